//! Sound at 48 kHz: frames, their level, Opus, jitter buffer, automatic gain, limiter, and test tones. No clock and
//! no IO.
//!
//! The `opus` module is the only one with `unsafe` code.
#![deny(unsafe_code)]

pub mod frame;
pub mod gain;
pub mod jitter;
pub mod level;
pub mod limiter;
pub mod mark;
pub mod opus;
pub mod tone;

pub use frame::{Channels, FRAME_MS, FRAME_SAMPLES, Frame, SAMPLE_RATE};
pub use gain::Gain;
pub use jitter::{JitterBuffer, JitterCounts, Taken};
pub use level::level_dbov;
pub use limiter::Limiter;
