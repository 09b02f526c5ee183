//! Why packets were discarded. Every discarded packet has one of these reasons, and is counted.

macro_rules! reasons {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident => $text:literal,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum $name { $($(#[$vdoc])* $variant,)* }

        impl $name {
            /// All reasons, in the order of their counters.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The reason as it stands in metrics.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text,)* }
            }
        }
    };
}

reasons! {
    /// Why a datagram that came in was discarded.
    InDrop {
        /// It is none of STUN, DTLS, SRTP and SRTCP.
        NotMedia => "not_media",
        /// It came from an address that belongs to nobody.
        UnknownSource => "unknown_source",
        /// It came before the keys.
        NoKeys => "no_keys",
        /// Its header cannot be read.
        Malformed => "malformed",
        /// Its tag does not fit.
        AuthenticationFailed => "authentication_failed",
        /// It was seen before.
        Replayed => "replayed",
        /// It is older than the replay window.
        TooOld => "too_old",
        /// Its sender uses too many SSRCs.
        TooManyStreams => "too_many_streams",
        /// Its SSRC was not offered.
        UnknownSsrc => "unknown_ssrc",
        /// It is of a payload type that was not agreed on, such as telephone-event.
        UnknownPayloadType => "unknown_payload_type",
        /// It is longer than what is forwarded.
        TooLong => "too_long",
        /// Its control packets cannot be read.
        MalformedRtcp => "malformed_rtcp",
        /// A sender report so soon after the last one of its track.
        ReportTooSoon => "report_too_soon",
        /// Transport-wide feedback tells of far more packets than left to its sender.
        FeedbackShare => "feedback_share",
        /// More sound, pictures or control packets than one track or participant may send.
        SenderShare => "sender_share",
        /// It came over the relay for a track that nobody here wants any more.
        NotWanted => "not_wanted",
        /// The mixer's queue is full.
        MixerFull => "mixer_full",
        /// A moderator muted its track.
        Silenced => "silenced",
        /// STUN that is no whole binding request: no answer is waited for here (ICE-lite).
        StunNotAsked => "stun_not_asked",
        /// A connectivity check that names a user fragment of nobody.
        UnknownFragment => "unknown_fragment",
        /// A connectivity check whose integrity does not fit.
        CheckNotAuthentic => "check_not_authentic",
        /// A connectivity check from the address of another participant who is there.
        AddressTaken => "address_taken",
        /// More STUN or DTLS than one participant may send to the control thread.
        ControlShare => "control_share",
        /// Only padding, sent to probe the path.
        PaddingOnly => "padding_only",
        /// A retransmission of a packet that had come already: a probe, or repaired twice.
        Duplicate => "duplicate",
    }
}

impl InDrop {
    /// Whether nobody lost anything by it: a sender that looks for more bandwidth fills up with
    /// padding and with packets that had come already.
    pub fn is_probe(self) -> bool {
        matches!(self, Self::PaddingOnly | Self::Duplicate)
    }
}

reasons! {
    /// Why a copy for a subscriber was discarded.
    OutDrop {
        /// The slot has no index space: its keys are of another session.
        NotConnected => "not_connected",
        /// The packet is from before the slot switched to this track.
        BeforeSwitch => "before_switch",
        /// The send buffer is full.
        SendBufferFull => "send_buffer_full",
        /// The receiver has given no sign of life for too long (RFC 7675).
        NoConsent => "no_consent",
        /// The receiver's TCP connection is behind: pictures wait first, until it has caught up.
        ConnectionBehind => "connection_behind",
        /// The CPU is short: some receivers get no pictures, so that everybody gets sound.
        CpuShort => "cpu_short",
        /// The path to the receiver does not carry it: its picture rests.
        Bandwidth => "bandwidth",
        /// A frame of a layer within its stream that the slot does not get.
        Layer => "layer",
        /// The receiver said that the slot is not visible.
        Hidden => "hidden",
        /// Too much waits for the receiver's next burst.
        PacerFull => "pacer_full",
        /// While it waited for a burst, its slot took another track, or a moderator muted its track.
        Withdrawn => "withdrawn",
        /// Its index was sealed already, or lies too far back to know.
        SealRefused => "seal_refused",
        /// It does not fit into a datagram.
        TooLong => "too_long",
        /// The listener has a mixed packet of this tick already.
        SameTick => "same_tick",
        /// Asked for again, but no longer kept.
        NotKept => "not_kept",
        /// Asked for again within a round trip of when it was sent again.
        ResendTooSoon => "resend_too_soon",
        /// Asked for again, beyond what the receiver may have again.
        ResendBudget => "resend_budget",
        /// It is of a format that its receiver did not agree on, and cannot be made another.
        NotNegotiated => "not_negotiated",
    }
}

/// Counters of one kind of reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Counters<const N: usize>([u64; N]);

impl<const N: usize> Default for Counters<N> {
    fn default() -> Self {
        Self([0; N])
    }
}

impl<const N: usize> Counters<N> {
    /// Sum over all reasons.
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }
}

/// Counters of datagrams that came in and were discarded.
pub type InDrops = Counters<{ InDrop::ALL.len() }>;
/// Counters of copies that were discarded.
pub type OutDrops = Counters<{ OutDrop::ALL.len() }>;

impl InDrops {
    /// Counts one.
    pub fn add(&mut self, reason: InDrop) {
        self.0[reason as usize] += 1;
    }

    /// How many were discarded for this reason.
    pub fn get(&self, reason: InDrop) -> u64 {
        self.0[reason as usize]
    }
}

impl OutDrops {
    /// Counts one.
    pub fn add(&mut self, reason: OutDrop) {
        self.0[reason as usize] += 1;
    }

    /// Counts so many.
    pub fn add_many(&mut self, reason: OutDrop, count: u64) {
        self.0[reason as usize] += count;
    }

    /// How many were discarded for this reason.
    pub fn get(&self, reason: OutDrop) -> u64 {
        self.0[reason as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_has_its_counter() {
        let (mut ins, mut outs) = (InDrops::default(), OutDrops::default());
        InDrop::ALL.iter().for_each(|reason| ins.add(*reason));
        OutDrop::ALL.iter().for_each(|reason| outs.add(*reason));
        assert!(InDrop::ALL.iter().all(|reason| ins.get(*reason) == 1));
        assert!(OutDrop::ALL.iter().all(|reason| outs.get(*reason) == 1));
        assert_eq!((ins.total(), outs.total()), (ins.0.len() as u64, outs.0.len() as u64));
    }
}
