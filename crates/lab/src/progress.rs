//! What a run shows on the way: a line that changes on a terminal, else a plain line every 10 s.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;
use std::time::Duration;

/// How often a plain line comes.
const PLAIN_EVERY: Duration = Duration::from_secs(10);

/// Where a run stands.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Status {
    /// Time since the first join.
    pub elapsed: Duration,
    /// How long the run lasts.
    pub duration: Duration,
    /// People who are connected.
    pub connected: usize,
    /// People who should be.
    pub people: usize,
    /// What failed so far.
    pub faults: usize,
}

impl Status {
    fn line(&self) -> String {
        let faults = match self.faults {
            0 => String::new(),
            1 => "  1 fault".to_owned(),
            n => format!("  {n} faults"),
        };
        format!(
            "{} of {} s  {} of {} people connected{faults}",
            self.elapsed.as_secs(),
            self.duration.as_secs(),
            self.connected,
            self.people
        )
    }
}

/// Shows the progress on stderr.
#[derive(Debug)]
pub struct Progress {
    bar: Option<ProgressBar>,
    next_plain: Duration,
}

impl Progress {
    /// For the terminal if stderr is one.
    pub fn new(duration: Duration) -> Self {
        let bar = std::io::stderr().is_terminal().then(|| {
            let target = ProgressDrawTarget::stderr();
            let bar = ProgressBar::with_draw_target(Some(duration.as_millis() as u64), target);
            if let Ok(style) = ProgressStyle::with_template("{wide_bar} {msg}") {
                bar.set_style(style);
            }
            bar
        });
        Self { bar, next_plain: Duration::ZERO }
    }

    /// Shows where the run stands.
    pub fn update(&mut self, status: &Status) {
        if let Some(bar) = &self.bar {
            bar.set_position(status.elapsed.as_millis() as u64);
            bar.set_message(status.line());
        } else if status.elapsed >= self.next_plain {
            eprintln!("{}", status.line());
            self.next_plain = status.elapsed + PLAIN_EVERY;
        }
    }

    /// Shows a line that stays.
    pub fn note(&self, text: &str) {
        match &self.bar {
            Some(bar) => bar.println(text),
            None => eprintln!("{text}"),
        }
    }

    /// Ends the changing line.
    pub fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line() {
        let mut status = Status {
            elapsed: Duration::from_millis(12_900),
            duration: Duration::from_secs(60),
            connected: 9,
            people: 10,
            faults: 0,
        };
        assert_eq!(status.line(), "12 of 60 s  9 of 10 people connected");
        status.faults = 1;
        assert!(status.line().ends_with("connected  1 fault"));
    }

    #[test]
    fn plain_lines_are_ten_seconds_apart() {
        let mut progress = Progress { bar: None, next_plain: Duration::ZERO };
        let mut shown = Vec::new();
        for second in 0..25 {
            let before = progress.next_plain;
            progress.update(&Status { elapsed: Duration::from_secs(second), ..Status::default() });
            if progress.next_plain != before {
                shown.push(second);
            }
        }
        assert_eq!(shown, [0, 10, 20]);
    }
}
