//! The mixer of one shard: who is loudest, decode, partial sum, sum, limit, encode.
//!
//! A tick of 20 ms in a room, in order:
//! 1. `mixer.rs` finds what is due; all mixers share one epoch, so tick n is the same 20 ms in all.
//! 2. `room.rs`, first half: the rank for this tick takes effect; `rank.rs` smooths the levels that
//!    came since the last tick. The home mixer fixes the rank for the next tick from them; the
//!    others tell it their loudest. Each tells its media thread how loud a packet must be to be
//!    handed over at all ([`Bar`]). Where everybody is heard nobody ranks: each mixer lets those of
//!    its shard be heard who are loud enough.
//! 3. `track.rs`: each heard track of this shard gives a frame from its jitter buffer, at the level
//!    that all voices have. Who becomes heard begins with the onset of their speech. The sum goes
//!    to the other shards that have listeners.
//! 4. `room.rs`, second half, as soon as the sums of the others are in, at the latest 10 ms into the
//!    tick: the whole sum, and for each listener who is heard the sum without their own voice.
//! 5. `stream.rs`: limited and encoded, once for all who are not heard and once for each who is. In
//!    silence the last packet is repeated instead. In large rooms the packets of two or three
//!    ticks leave as one (`gather.rs`) to those who are not heard. When who is heard changes, what
//!    waits leaves first.

mod claim;
mod gather;
mod message;
mod mixer;
mod rank;
mod room;
mod stats;
mod stream;
mod track;

pub use message::{
    Bar, Hear, MAX_LOUDEST, MAX_PACKET_TICKS, MAX_PAYLOAD, MixCommand, MixFor, MixFrame, MixPeer,
    MixSink, MixedPacket, Payload, TICK_SAMPLES,
};
pub use mixer::{Mixer, SUM_WAIT, TICK};
pub(crate) use rank::QUIETEST_DBOV;
pub use stats::{DELAY_BOUNDS_MS, DelayCounts, MixStats};
