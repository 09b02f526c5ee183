//! Whether the other side is there, as the states of the ICE agent tell it. Media may flow on a nominated pair that is
//! alive (consent, RFC 7675). A pair that is only looked for allows nothing.

use std::time::{Duration, Instant};
use str0m::IceConnectionState::{self, Checking, Completed, Connected, Disconnected, New};

/// So long the pair from before an ICE restart stays in use. The agent gives a silent pair up after the same time.
const RESTART_LASTS: Duration = Duration::from_secs(15);

/// What is known of the other side.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Known {
    /// No pair was nominated yet.
    #[default]
    Nothing,
    /// A pair is nominated.
    There,
    /// No pair is nominated any more.
    Gone,
}

/// What became of the other side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Turn {
    /// They were there, and no pair is nominated any more.
    Gone,
    /// They were gone, and a pair is nominated again.
    Back,
}

/// An ICE restart whose pair is not nominated yet.
#[derive(Debug, Clone, Copy)]
enum Restart {
    /// It came since the clock was told last.
    New,
    /// The clock has been told since this moment.
    Since(Instant),
}

/// Follows the life of one transport.
#[derive(Debug, Default)]
pub(crate) struct Life {
    known: Known,
    restart: Option<Restart>,
}

impl Life {
    /// ICE restarts: the agent forgets all pairs. Media goes on over the old one for a while (RFC 8445 §9).
    pub(crate) fn restarts(&mut self) {
        if self.known == Known::There {
            self.restart = Some(Restart::New);
        }
    }

    /// The agent's state changed.
    pub(crate) fn changed(&mut self, state: IceConnectionState) -> Option<Turn> {
        match state {
            Connected | Completed => {
                self.restart = None;
                let before = std::mem::replace(&mut self.known, Known::There);
                (before == Known::Gone).then_some(Turn::Back)
            }
            Disconnected => self.gone(),
            // The nominated pair died, and another may work. After a restart that says nothing of the old pair.
            Checking if self.known == Known::There && self.restart.is_none() => self.gone(),
            New | Checking => None,
        }
    }

    /// Time passes.
    pub(crate) fn at(&mut self, now: Instant) -> Option<Turn> {
        match self.restart? {
            Restart::New => self.restart = Some(Restart::Since(now)),
            // Without candidates in the offer the agent would wait for ever.
            Restart::Since(then) if now.saturating_duration_since(then) >= RESTART_LASTS => {
                return self.gone();
            }
            Restart::Since(_) => {}
        }
        None
    }

    fn gone(&mut self) -> Option<Turn> {
        self.restart = None;
        let before = std::mem::replace(&mut self.known, Known::Gone);
        (before != Known::Gone).then_some(Turn::Gone)
    }
}
