//! Step 1: what a datagram is (RFC 7983) and whose.

use super::{Inbound, Shard};
use crate::drops::InDrop;
use crate::sink::{Now, Sink};
use rtp::header::{self, Kind};

/// What became of a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Handled {
    /// Handed up to the control thread.
    Control,
    /// A connectivity check, answered.
    Check,
    /// A packet of sound, forwarded to whoever wants it.
    Audio,
    /// A packet of video, likewise.
    Video,
    /// A compound of control packets.
    Rtcp,
    /// Discarded and counted.
    Dropped(InDrop),
}

impl Handled {
    /// Whether its tag or its integrity showed that a participant sent it. What goes up to the control thread
    /// is not known to be anybody's here.
    pub fn is_authentic(self) -> bool {
        match self {
            Self::Check | Self::Audio | Self::Video | Self::Rtcp => true,
            Self::Control | Self::Dropped(_) => false,
        }
    }
}

impl Shard {
    /// A datagram came in; what is to be forwarded of it leaves with [`Shard::flush`].
    pub fn handle_datagram(
        &mut self,
        now: Now,
        datagram: &Inbound<'_>,
        sink: &mut impl Sink,
    ) -> Handled {
        let outcome = match datagram.data {
            [first, second, ..] => match header::classify(*first) {
                Kind::Stun if self.answer_check(now, datagram, sink) => Ok(Handled::Check),
                // What goes up is somebody's: strangers' datagrams end here.
                kind @ (Kind::Stun | Kind::Dtls) => {
                    let admitted = match kind {
                        Kind::Stun => self.transports.check(now.at, datagram),
                        _ => self.transports.dtls(now.at, datagram),
                    };
                    admitted.map(|person| {
                        sink.control(person, datagram.source, datagram.data);
                        Handled::Control
                    })
                }
                Kind::SrtpOrSrtcp if header::is_rtcp(*second) => {
                    self.handle_rtcp(now, datagram, sink)
                }
                Kind::SrtpOrSrtcp => self.handle_rtp(now, datagram, sink),
                _ => Err(InDrop::NotMedia),
            },
            _ => Err(InDrop::NotMedia),
        };
        outcome.unwrap_or_else(|reason| {
            self.stats.in_drops.add(reason);
            Handled::Dropped(reason)
        })
    }
}
