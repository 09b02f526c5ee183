//! What a mixer counts.

use audio::JitterCounts;

/// Upper bounds in ms by which [`DelayCounts`] counts.
pub const DELAY_BOUNDS_MS: [u32; 12] = [10, 20, 30, 40, 50, 60, 80, 100, 120, 160, 240, 320];

/// Delays, counted by how long they were.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DelayCounts {
    /// How many were over one of [`DELAY_BOUNDS_MS`] and at most the next one: first those up to
    /// the lowest, last those over the highest.
    pub counts: [u64; DELAY_BOUNDS_MS.len() + 1],
    /// All of them together, in ms.
    pub sum_ms: u64,
}

impl DelayCounts {
    pub(crate) fn add(&mut self, delay_ms: u32, times: u64) {
        self.counts[DELAY_BOUNDS_MS.partition_point(|bound| *bound < delay_ms)] += times;
        self.sum_ms += times * u64::from(delay_ms);
    }
}

/// Counters of one mixer, since it was made.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MixStats {
    /// Ticks run.
    pub ticks: u64,
    /// Ticks of these that began more than 20 ms late.
    pub ticks_late: u64,
    /// Ticks left out because more than three were due at once.
    pub ticks_skipped: u64,
    /// Frames of sound put in.
    pub frames_in: u64,
    /// Frames of a track that this mixer does not know.
    pub unknown_track: u64,
    /// Frames of a track that is not to be heard.
    pub silenced: u64,
    /// What the jitter buffers counted, over all tracks.
    pub jitter: JitterCounts,
    /// The delays in force of jitter buffers: one for each tick of each track that gave sound.
    pub delays: DelayCounts,
    /// Encodes for all who are not heard.
    pub encodes_common: u64,
    /// Encodes for one who is heard.
    pub encodes_own: u64,
    /// Ticks of a room in which its listeners got silence and nothing was encoded.
    pub silent_ticks: u64,
    /// Encoders and decoders that could not be made or failed.
    pub codec_failed: u64,
    /// Partial sums sent.
    pub sums_sent: u64,
    /// Partial sums received.
    pub sums_received: u64,
    /// Partial sums that were not there in time: the tick went on without them.
    pub sums_late: u64,
    /// Partial sums received that were of no use: their tick was over, or their room unknown.
    pub sums_unused: u64,
    /// Changes of a rank decided here as the room's home.
    pub ranks: u64,
    /// Packets made for listeners.
    pub packets: u64,
    /// Packets of these, and bars, for which the sink had no room.
    pub packets_refused: u64,
    /// Messages for other mixers for which the sink had no room.
    pub peers_refused: u64,
    /// Commands for a room, track or person that is not known.
    pub commands_unknown: u64,
}

impl MixStats {
    /// Frames put in that were not mixed, by reason as it stands in metrics. `unheard` is no fault:
    /// it counts those of people who were not among the loudest. Frames in are the sum of these,
    /// those decoded (`jitter.decoded`) and the few still held.
    pub fn frame_drops(&self) -> [(&'static str, u64); 7] {
        [
            ("unknown_track", self.unknown_track),
            ("silenced", self.silenced),
            ("too_late", self.jitter.late),
            ("duplicate", self.jitter.duplicate),
            ("overflow", self.jitter.overflow),
            ("malformed", self.jitter.malformed),
            ("unheard", self.jitter.unheard),
        ]
    }
}
