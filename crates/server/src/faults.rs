//! Faults made on purpose, so that tests can see whether the lab finds them. In development mode, or with
//! `--for-tests`, only: a server that hosts people refuses them.

use crate::health::ThreadFault;
use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

/// The mixers' queues grow with their backlog: it has a bound.
const LONGEST_BACKLOG: Duration = Duration::from_secs(10);

/// The queue of each TCP connection of media grows with it: it has a bound, and so short a one would hold less than without.
const TCP_BACKLOG: RangeInclusive<usize> = 256 << 10..=16 << 20;

/// What shall go wrong; by default nothing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Faults {
    /// `hot_thread=40us`: the first media thread works so much longer on each packet.
    pub hot_thread: Option<Duration>,
    /// `stalled_signaling=800ms/3s`: the threads of the signaling stand still for the first time
    /// once in the second.
    pub stalled_signaling: Option<(Duration, Duration)>,
    /// `receive_buffer=4096`: bytes of each media socket's receive buffer.
    pub receive_buffer: Option<usize>,
    /// `mixer_backlog=1s`: the mixing threads are behind by so long, and lose nothing of what they get. They also tell so late
    /// who is heard, so that pauses of somebody who just began may stay closed. At most 10 s.
    pub mixer_backlog: Option<Duration>,
    /// `tcp_backlog=2097152`: nothing is dropped for a TCP connection of media that is behind until so many bytes wait for it,
    /// and sound waits among the pictures, as at a server that writes all into TCP. 256 KiB to 16 MiB.
    pub tcp_backlog: Option<usize>,
    /// `panic=media`: the first thread of that kind panics after a second.
    pub panic: Option<Part>,
    /// `stall=media/5s`: the first thread of that kind stands still for so long after a second, once.
    pub stall: Option<(Part, Duration)>,
}

/// A kind of thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// `media-0`.
    Media,
    /// `control-0`.
    Control,
    /// `mix-0`.
    Mix,
}

impl Part {
    fn read(text: &str) -> Option<Self> {
        match text {
            "media" => Some(Self::Media),
            "control" => Some(Self::Control),
            "mix" => Some(Self::Mix),
            _ => None,
        }
    }
}

impl Faults {
    /// What can be written, for messages.
    pub const EXPECTED: &'static str = "hot_thread=40us, stalled_signaling=800ms/3s, \
        receive_buffer=4096, mixer_backlog=1s (10s at most), tcp_backlog=2097152 (262144 to 16777216), panic=media or stall=media/5s (media, control or mix)";

    /// Adds the fault in a text.
    ///
    /// # Errors
    /// A sentence that says what is wrong.
    pub fn with(mut self, text: &str) -> Result<Self, String> {
        let bad = || format!("{text:?} is no fault; write {}", Self::EXPECTED);
        let (name, value) = text.split_once('=').ok_or_else(bad)?;
        match name {
            "hot_thread" => self.hot_thread = Some(duration(value).ok_or_else(bad)?),
            "stalled_signaling" => {
                let (stall, every) = value.split_once('/').ok_or_else(bad)?;
                let pair = duration(stall).zip(duration(every)).filter(|(s, e)| s < e);
                self.stalled_signaling = Some(pair.ok_or_else(bad)?);
            }
            "receive_buffer" => self.receive_buffer = Some(value.parse().map_err(|_| bad())?),
            "mixer_backlog" => {
                let backlog = duration(value).filter(|backlog| *backlog <= LONGEST_BACKLOG);
                self.mixer_backlog = Some(backlog.ok_or_else(bad)?);
            }
            "tcp_backlog" => {
                let bytes = value.parse().ok().filter(|bytes| TCP_BACKLOG.contains(bytes));
                self.tcp_backlog = Some(bytes.ok_or_else(bad)?);
            }
            "panic" => self.panic = Some(Part::read(value).ok_or_else(bad)?),
            "stall" => {
                let (part, long) = value.split_once('/').ok_or_else(bad)?;
                self.stall = Some(Part::read(part).zip(duration(long)).ok_or_else(bad)?);
            }
            _ => return Err(bad()),
        }
        Ok(self)
    }

    /// What shard `index`'s thread of a kind shall do wrong.
    pub(crate) fn of_thread(&self, part: Part, index: usize) -> Option<ThreadFault> {
        let panics = self.panic.filter(|of| *of == part).map(|_| ThreadFault::Panic);
        let stalls = self.stall.filter(|(of, _)| *of == part);
        let stalls = stalls.map(|(_, long)| ThreadFault::Stall(long));
        panics.or(stalls).filter(|_| index == 0)
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Reads `700ns`, `40us`, `800ms` or `3s`.
fn duration(text: &str) -> Option<Duration> {
    let digits = text.find(|c: char| !c.is_ascii_digit())?;
    let number: u64 = text[..digits].parse().ok()?;
    match &text[digits..] {
        "ns" => Some(Duration::from_nanos(number)),
        "us" => Some(Duration::from_micros(number)),
        "ms" => Some(Duration::from_millis(number)),
        "s" => Some(Duration::from_secs(number)),
        _ => None,
    }
}

/// Keeps a CPU busy for a time.
pub(crate) fn burn(time: Duration) {
    let begin = Instant::now();
    while begin.elapsed() < time {
        std::hint::spin_loop();
    }
}

/// Makes all threads of the current runtime stand still for `stall` once in `every`.
pub(crate) fn stall(stall: Duration, every: Duration) {
    let workers = tokio::runtime::Handle::current().metrics().num_workers();
    let begin = tokio::time::Instant::now();
    for _ in 0..workers {
        tokio::spawn(async move {
            let mut ticks = tokio::time::interval_at(begin + every, every);
            loop {
                let due = ticks.tick().await;
                // Until the same moment for all, whenever each came to it.
                let left = (due + stall).saturating_duration_since(tokio::time::Instant::now());
                std::thread::sleep(left);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_faults_and_says_what_is_wrong() {
        let all = [
            "hot_thread=40us",
            "stalled_signaling=800ms/3s",
            "receive_buffer=4096",
            "mixer_backlog=1s",
            "tcp_backlog=2097152",
            "panic=control",
            "stall=mix/5s",
        ];
        let faults = all.iter().try_fold(Faults::default(), |faults, text| faults.with(text));
        let want = Faults {
            hot_thread: Some(Duration::from_micros(40)),
            stalled_signaling: Some((Duration::from_millis(800), Duration::from_secs(3))),
            receive_buffer: Some(4096),
            mixer_backlog: Some(Duration::from_secs(1)),
            tcp_backlog: Some(2 << 20),
            panic: Some(Part::Control),
            stall: Some((Part::Mix, Duration::from_secs(5))),
        };
        assert_eq!(faults, Ok(want));
        assert!(Faults::default().is_empty() && !want.is_empty());
        assert_eq!(want.of_thread(Part::Control, 0), Some(ThreadFault::Panic));
        let stalls = Some(ThreadFault::Stall(Duration::from_secs(5)));
        assert_eq!([0, 1].map(|index| want.of_thread(Part::Mix, index)), [stalls, None]);
        let bad = ["", "hot_thread", "hot_thread=40", "stalled_signaling=3s/1s", "x=1"];
        let more = ["panic=all", "stall=media", "stall=x/1s", "mixer_backlog=11s"];
        for text in bad.into_iter().chain(more).chain(["tcp_backlog=1000", "tcp_backlog=1GB"]) {
            let error = Faults::default().with(text).expect_err(text);
            assert!(error.contains("receive_buffer=4096"), "{error}");
        }
    }

    #[test]
    fn a_stall_holds_up_every_thread() {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        let runtime = builder.worker_threads(2).enable_all().build().expect("runtime");
        let latest = runtime.block_on(async {
            stall(Duration::from_millis(300), Duration::from_millis(400));
            tokio::spawn(async {
                let mut latest = Duration::ZERO;
                for _ in 0..40 {
                    let begin = Instant::now();
                    tokio::time::sleep(Duration::from_millis(20)).await;
                    latest = latest.max(begin.elapsed());
                }
                latest
            })
            .await
            .expect("task")
        });
        assert!(latest >= Duration::from_millis(250), "{latest:?}");
    }
}
