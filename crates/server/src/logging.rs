//! Structured logs on the standard error stream.

use crate::config::{LogConfig, LogFormat, log_filter};
use crate::names::is_hidden;
use std::io::{IsTerminal, Write};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;

/// Starts logging as configured; `RUST_LOG`, if set, wins over the configured level. Where a
/// subscriber is set already (tests), that one stays.
pub fn init(config: &LogConfig) {
    let wanted = std::env::var(EnvFilter::DEFAULT_ENV).ok();
    let filter = wanted
        .and_then(|text| log_filter(&text))
        .or_else(|| log_filter(&config.level))
        .unwrap_or_else(|| EnvFilter::new("info"));
    // What it says depends on what receivers send.
    let filter = match "goog_cc=off".parse() {
        Ok(quiet) => filter.add_directive(quiet),
        Err(_) => filter,
    };
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(std::io::stderr().is_terminal())
        // Where nobody reads the log any more, calls go on all the same.
        .log_internal_errors(false)
        .with_writer(OneLine);
    // An error here means that one is set already.
    let _ = match config.format {
        LogFormat::Text => builder.with_target(false).try_init(),
        LogFormat::Json => builder.json().flatten_event(true).try_init(),
    };
}

/// Writes each event as one line: what clients send stands in some of them.
struct OneLine;

impl MakeWriter<'_> for OneLine {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        Self
    }
}

impl Write for OneLine {
    /// An event comes whole, with the end of its line.
    fn write(&mut self, event: &[u8]) -> std::io::Result<usize> {
        let line = one_line(&String::from_utf8_lossy(event));
        std::io::stderr().lock().write_all(line.as_bytes())?;
        Ok(event.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        std::io::stderr().flush()
    }
}

/// An event without line ends and other control characters within it. Colours begin with one that stays: the formatter lets none
/// through from elsewhere.
fn one_line(event: &str) -> String {
    let text = event.strip_suffix('\n').unwrap_or(event);
    let mut line = String::with_capacity(event.len());
    for char in text.chars() {
        match char {
            '\t' | '\x1b' => line.push(char),
            _ if is_hidden(char) => line.extend(char.escape_default()),
            _ => line.push(char),
        }
    }
    if text.len() < event.len() {
        line.push('\n');
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_one_line_whatever_is_in_it() {
        assert_eq!(one_line("INFO refused: a\nINFO b\r\n"), "INFO refused: a\\nINFO b\\r\n");
        assert_eq!(one_line("\x1b[32mINFO\x1b[0m\t모임\n"), "\x1b[32mINFO\x1b[0m\t모임\n");
        assert_eq!(one_line("a\u{202e}b\u{2028}\0"), "a\\u{202e}b\\u{2028}\\u{0}");
    }

    #[test]
    fn starting_twice_is_harmless() {
        for format in [LogFormat::Text, LogFormat::Json] {
            init(&LogConfig { format, level: "off".into() });
        }
        assert!(tracing::dispatcher::has_been_set());
    }
}
