//! A shard's counters: plain numbers of the thread that owns it, read out by the shell.

use crate::drops::{InDrops, OutDrops};
use crate::mix::DelayCounts;

/// Totals since the start.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stats {
    /// SRTP datagrams that came in.
    pub rtp_in: u64,
    /// Their bytes.
    pub rtp_in_bytes: u64,
    /// SRTCP datagrams that came in.
    pub rtcp_in: u64,
    /// Copies made for slots, sent or dropped: `rtp_out` + Σ `out_drops`.
    pub copies: u64,
    /// Packets that a slot did not take because its track does not flow yet: it waits for a
    /// keyframe, or its receiver is not connected.
    pub waiting: u64,
    /// Copies handed to the sink, resent ones included.
    pub rtp_out: u64,
    /// Their bytes.
    pub rtp_out_bytes: u64,
    /// Connectivity checks answered here; all others go up to the ICE agent.
    pub checks: u64,
    /// Checks that asked an address whether it is a participant's.
    pub challenges: u64,
    /// Times that media of a participant moved to another address.
    pub moved: u64,
    /// Times that a packet from an unknown address was tried with a participant's keys.
    pub strangers_tried: u64,
    /// SRTCP datagrams handed to the sink.
    pub rtcp_out: u64,
    /// SRTCP datagrams that could not be sent: the send buffer was full.
    pub rtcp_not_sent: u64,
    /// Packets resent on request; part of `copies` and `rtp_out`.
    pub resent: u64,
    /// Packets of sound that left with a copy of the one before (RED).
    pub repeated: u64,
    /// Packets of sound that did not come and were taken from the copy in one after them.
    pub restored: u64,
    /// Packets of pictures that waited for their receiver's next burst.
    pub paced: u64,
    /// Packets of padding that probed paths.
    pub probed: u64,
    /// Pictures that began to rest, because a path did not carry them.
    pub rested: u64,
    /// Times that a slot was to carry another layer of its picture.
    pub layer_switches: u64,
    /// Packets of speech that came before the slot switched to it; part of `copies`.
    pub replayed: u64,
    /// Packets asked of publishers again.
    pub nacked: u64,
    /// Packets handed to other shards.
    pub relay_out: u64,
    /// Packets for other shards that found the lane full, and were not kept until it had room.
    pub relay_full: u64,
    /// Packets that came from other shards.
    pub relay_in: u64,
    /// Packets of sound handed to the mixer.
    pub mix_in: u64,
    /// Packets of sound for a mix that nobody would hear: opened, and not handed to the mixer.
    pub unheard: u64,
    /// Packets of sound for a mix that nobody would hear: their headers were read alone.
    pub glanced: u64,
    /// How long sound of mixed rooms was here, jitter buffers included: the longest in each mixed packet, for each copy.
    pub mix_residence: DelayCounts,
    /// Keyframes asked of publishers.
    pub keyframes_asked: u64,
    /// Keyframe requests of receivers that came too soon after the one before.
    pub keyframe_requests_refused: u64,
    /// What came in and was discarded.
    pub in_drops: InDrops,
    /// What was to go out and was discarded.
    pub out_drops: OutDrops,
    /// How many eighths of the receivers get no pictures at the moment because the CPU is short.
    pub without_pictures_eighths: u8,
    /// Commands that named a person, track or line which is not there.
    pub stale_commands: u64,
    /// How often `copies` was not `rtp_out` + Σ `out_drops`. It is 0 unless a step forgets to count.
    pub miscounted: u64,
}

impl Stats {
    /// A datagram of SRTP came in, or of SRTCP.
    #[inline]
    pub(super) fn came(&mut self, rtcp: bool, len: usize) {
        if rtcp {
            self.rtcp_in += 1;
        } else {
            self.rtp_in += 1;
            self.rtp_in_bytes += len as u64;
        }
    }

    /// Every copy was sent, or dropped for a reason.
    pub(super) fn check(&mut self) {
        let counted = self.copies == self.rtp_out + self.out_drops.total();
        debug_assert!(counted, "copies made = sent + dropped: {self:?}");
        self.miscounted += u64::from(!counted);
    }
}
