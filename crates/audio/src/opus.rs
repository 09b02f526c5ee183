//! Opus (RFC 6716) at 48 kHz, by libopus: safe encoders and decoders, and what a packet tells
//! without being decoded. The only `unsafe` code of this crate.
#![allow(unsafe_code)]

use std::fmt;
use std::ptr::{self, NonNull};
use std::time::Duration;

use opusic_sys as sys;

use crate::frame::{Channels, SAMPLE_RATE};

/// Most bytes of a packet of up to 20 ms: one frame of 1275 (RFC 6716, section 3.4, R2) and the
/// byte before it.
pub const MAX_PACKET: usize = 1276;
/// Most samples of one channel in a packet: 120 ms.
pub const MAX_PACKET_SAMPLES: usize = 5760;

/// What libopus refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpusError {
    /// A setting or a length that Opus does not have.
    BadArgument,
    /// The result does not fit the memory given.
    BufferTooSmall,
    /// The packet is malformed.
    InvalidPacket,
    /// There was no memory for it.
    OutOfMemory,
    /// A fault inside libopus, with its own number.
    Internal(i32),
}

impl fmt::Display for OpusError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BadArgument => f.write_str("a setting or a length that Opus does not have"),
            Self::BufferTooSmall => f.write_str("the result does not fit the buffer"),
            Self::InvalidPacket => f.write_str("the Opus packet is malformed"),
            Self::OutOfMemory => f.write_str("no memory for the Opus codec"),
            Self::Internal(code) => write!(f, "libopus failed with {code}"),
        }
    }
}

impl std::error::Error for OpusError {}

fn check(code: i32) -> Result<usize, OpusError> {
    usize::try_from(code).map_err(|_| match code {
        sys::OPUS_BAD_ARG | sys::OPUS_UNIMPLEMENTED => OpusError::BadArgument,
        sys::OPUS_BUFFER_TOO_SMALL => OpusError::BufferTooSmall,
        sys::OPUS_INVALID_PACKET => OpusError::InvalidPacket,
        sys::OPUS_ALLOC_FAIL => OpusError::OutOfMemory,
        other => OpusError::Internal(other),
    })
}

/// How far an input reaches into C, whose lengths are `i32`.
fn c_len(len: usize) -> Result<i32, OpusError> {
    i32::try_from(len).map_err(|_| OpusError::BadArgument)
}

/// What the encoder is tuned for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Application {
    /// Speech: its intelligibility first.
    Voip,
    /// Music and mixes: its likeness first.
    Audio,
    /// CELT alone: 2.5 ms of look-ahead in place of 6.5, and a fraction of the CPU time.
    LowDelay,
}

/// How an [`Encoder`] works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EncoderOptions {
    /// Mono or stereo input.
    pub channels: Channels,
    /// What it is tuned for.
    pub application: Application,
    /// Target of the variable rate, in bits a second (500 to 512 000).
    pub bitrate_bps: u32,
    /// 0 (cheapest) to 10.
    pub complexity: u8,
    /// Carry a coarse copy of each speech frame in the next packet, once
    /// [`expected_loss_percent`](Self::expected_loss_percent) is over 0.
    pub fec: bool,
    /// Loss to prepare for, 0 to 100.
    pub expected_loss_percent: u8,
    /// In silence, make packets that need not be sent ([`is_dtx`]).
    pub dtx: bool,
}

impl Default for EncoderOptions {
    /// Mono speech at 32 kbit/s, complexity 5, neither FEC nor DTX.
    fn default() -> Self {
        Self {
            channels: Channels::Mono,
            application: Application::Voip,
            bitrate_bps: 32_000,
            complexity: 5,
            fec: false,
            expected_loss_percent: 0,
            dtx: false,
        }
    }
}

/// An Opus encoder at 48 kHz.
#[derive(Debug)]
pub struct Encoder {
    state: NonNull<sys::OpusEncoder>,
    channels: Channels,
}

// SAFETY: libopus keeps no state of a thread; the state is owned here alone.
unsafe impl Send for Encoder {}

impl Encoder {
    /// An encoder with `options`.
    ///
    /// # Errors
    /// [`OpusError::BadArgument`] for options out of their range; [`OpusError::OutOfMemory`].
    pub fn new(options: EncoderOptions) -> Result<Self, OpusError> {
        let application = match options.application {
            Application::Voip => sys::OPUS_APPLICATION_VOIP,
            Application::Audio => sys::OPUS_APPLICATION_AUDIO,
            Application::LowDelay => sys::OPUS_APPLICATION_RESTRICTED_LOWDELAY,
        };
        let mut code = sys::OPUS_OK;
        let (rate, count) = (SAMPLE_RATE as i32, options.channels.count() as i32);
        // SAFETY: `code` outlives the call; the result is null on error.
        let state = unsafe { sys::opus_encoder_create(rate, count, application, &raw mut code) };
        check(code)?;
        let state = NonNull::new(state).ok_or(OpusError::OutOfMemory)?;
        let mut encoder = Self { state, channels: options.channels };
        encoder.set_bitrate(options.bitrate_bps)?;
        encoder.set(sys::OPUS_SET_COMPLEXITY_REQUEST, i32::from(options.complexity))?;
        encoder.set(sys::OPUS_SET_INBAND_FEC_REQUEST, i32::from(options.fec))?;
        encoder.set_expected_loss(options.expected_loss_percent)?;
        encoder.set(sys::OPUS_SET_DTX_REQUEST, i32::from(options.dtx))?;
        Ok(encoder)
    }

    /// One of the requests that take an `opus_int32`.
    fn set(&mut self, request: i32, value: i32) -> Result<(), OpusError> {
        // SAFETY: the state is live, and every request passed here takes one `opus_int32`.
        check(unsafe { sys::opus_encoder_ctl(self.state.as_ptr(), request, value) }).map(drop)
    }

    /// Changes the target rate, in bits a second.
    ///
    /// # Errors
    /// [`OpusError::BadArgument`] outside 500 to 512 000.
    pub fn set_bitrate(&mut self, bitrate_bps: u32) -> Result<(), OpusError> {
        if !(500..=512_000).contains(&bitrate_bps) {
            return Err(OpusError::BadArgument);
        }
        self.set(sys::OPUS_SET_BITRATE_REQUEST, bitrate_bps as i32)
    }

    /// Changes the loss to prepare for, in percent.
    ///
    /// # Errors
    /// [`OpusError::BadArgument`] over 100.
    pub fn set_expected_loss(&mut self, percent: u8) -> Result<(), OpusError> {
        self.set(sys::OPUS_SET_PACKET_LOSS_PERC_REQUEST, i32::from(percent))
    }

    /// Takes over settings and past of `other`: from now on both make the same packets of the same
    /// samples, so that a listener can pass from one encoder's stream to the other's.
    ///
    /// # Errors
    /// [`OpusError::BadArgument`] where one is mono and the other stereo.
    pub fn copy_state_from(&mut self, other: &Self) -> Result<(), OpusError> {
        if self.channels != other.channels {
            return Err(OpusError::BadArgument);
        }
        // SAFETY: takes a number, touches no memory.
        let size = check(unsafe { sys::opus_encoder_get_size(self.channels.count() as i32) })?;
        // SAFETY: both states are live and of `size` bytes, which depends on the channels alone
        // (opus.h: a state is one block that may be copied); `&mut` and `&` cannot be the same.
        unsafe {
            ptr::copy_nonoverlapping(
                other.state.as_ptr().cast::<u8>(),
                self.state.as_ptr().cast::<u8>(),
                size,
            );
        }
        Ok(())
    }

    /// Forgets the past, so that the next packet is like the first one.
    pub fn reset(&mut self) {
        // SAFETY: the state is live; this request takes no argument and cannot fail.
        unsafe { sys::opus_encoder_ctl(self.state.as_ptr(), sys::OPUS_RESET_STATE) };
    }

    /// Encodes interleaved `samples` of one frame (2.5, 5, 10, 20, 40 or 60 ms and up to 120) into
    /// `packet`, and returns the packet's length.
    ///
    /// # Errors
    /// [`OpusError::BadArgument`] for samples that are no such frame, [`OpusError::BufferTooSmall`]
    /// for an empty `packet`; a smaller packet than [`MAX_PACKET`] lowers the quality instead.
    pub fn encode(&mut self, samples: &[f32], packet: &mut [u8]) -> Result<usize, OpusError> {
        let channels = self.channels.count();
        if !samples.len().is_multiple_of(channels) {
            return Err(OpusError::BadArgument);
        }
        if packet.is_empty() {
            return Err(OpusError::BufferTooSmall);
        }
        let (count, room) = (c_len(samples.len() / channels)?, c_len(packet.len())?);
        // SAFETY: the state is live; `samples` holds `count` samples of each channel and `packet`
        // has `room` bytes.
        check(unsafe {
            sys::opus_encode_float(
                self.state.as_ptr(),
                samples.as_ptr(),
                count,
                packet.as_mut_ptr(),
                room,
            )
        })
    }
}

impl Drop for Encoder {
    fn drop(&mut self) {
        // SAFETY: made by `opus_encoder_create`, owned here alone and not used again.
        unsafe { sys::opus_encoder_destroy(self.state.as_ptr()) }
    }
}

/// An Opus decoder at 48 kHz. It takes mono and stereo packets alike and makes its own channels.
#[derive(Debug)]
pub struct Decoder {
    state: NonNull<sys::OpusDecoder>,
    channels: Channels,
}

// SAFETY: libopus keeps no state of a thread; the state is owned here alone.
unsafe impl Send for Decoder {}

impl Decoder {
    /// A decoder that makes `channels`.
    ///
    /// # Errors
    /// [`OpusError::OutOfMemory`].
    pub fn new(channels: Channels) -> Result<Self, OpusError> {
        let mut code = sys::OPUS_OK;
        let (rate, count) = (SAMPLE_RATE as i32, channels.count() as i32);
        // SAFETY: `code` outlives the call; the result is null on error.
        let state = unsafe { sys::opus_decoder_create(rate, count, &raw mut code) };
        check(code)?;
        let state = NonNull::new(state).ok_or(OpusError::OutOfMemory)?;
        Ok(Self { state, channels })
    }

    /// Decodes `packet` into `samples` (interleaved) and returns the samples of one channel. For
    /// `None`, a lost packet, it conceals: `samples` as a whole is filled, so give it the length
    /// that is missing.
    ///
    /// # Errors
    /// [`OpusError::InvalidPacket`] for a malformed or empty packet;
    /// [`OpusError::BufferTooSmall`] for one that is longer than `samples`
    /// ([`MAX_PACKET_SAMPLES`] of each channel fit any); [`OpusError::BadArgument`] for a length to
    /// conceal that is no multiple of 2.5 ms.
    pub fn decode(
        &mut self,
        packet: Option<&[u8]>,
        samples: &mut [f32],
    ) -> Result<usize, OpusError> {
        match packet {
            // libopus would take an empty packet for a lost one.
            Some([]) => Err(OpusError::InvalidPacket),
            Some(packet) => self.run(packet.as_ptr(), c_len(packet.len())?, samples, false),
            None => self.run(ptr::null(), 0, samples, false),
        }
    }

    /// Decodes the coarse copy of the packet **before** `packet` (in-band FEC), of which `samples`
    /// is to have the length (20 ms); where there is no copy, it conceals. Decode `packet` itself
    /// afterwards.
    ///
    /// # Errors
    /// As [`decode`](Self::decode).
    pub fn decode_previous(
        &mut self,
        packet: &[u8],
        samples: &mut [f32],
    ) -> Result<usize, OpusError> {
        if packet.is_empty() {
            return Err(OpusError::InvalidPacket);
        }
        self.run(packet.as_ptr(), c_len(packet.len())?, samples, true)
    }

    fn run(
        &mut self,
        packet: *const u8,
        packet_len: i32,
        samples: &mut [f32],
        previous: bool,
    ) -> Result<usize, OpusError> {
        let room = c_len(samples.len() / self.channels.count())?;
        if room == 0 {
            return Err(OpusError::BufferTooSmall);
        }
        // SAFETY: the state is live; `packet` is null or holds `packet_len` bytes, and `samples`
        // has space for `room` samples of each channel.
        check(unsafe {
            sys::opus_decode_float(
                self.state.as_ptr(),
                packet,
                packet_len,
                samples.as_mut_ptr(),
                room,
                i32::from(previous),
            )
        })
    }

    /// Forgets the past: the stream begins anew.
    pub fn reset(&mut self) {
        // SAFETY: the state is live; this request takes no argument and cannot fail.
        unsafe { sys::opus_decoder_ctl(self.state.as_ptr(), sys::OPUS_RESET_STATE) };
    }
}

impl Drop for Decoder {
    fn drop(&mut self) {
        // SAFETY: made by `opus_decoder_create`, owned here alone and not used again.
        unsafe { sys::opus_decoder_destroy(self.state.as_ptr()) }
    }
}

/// Puts several Opus packets into one longer one (RFC 6716, section 3.2), without decoding them.
#[derive(Debug)]
pub struct Repacketizer(NonNull<sys::OpusRepacketizer>);

// SAFETY: libopus keeps no state of a thread; the state is owned here alone.
unsafe impl Send for Repacketizer {}

impl Repacketizer {
    /// A repacketizer.
    ///
    /// # Errors
    /// [`OpusError::OutOfMemory`].
    pub fn new() -> Result<Self, OpusError> {
        // SAFETY: it takes nothing and returns null or a state that nobody else has.
        let state = unsafe { sys::opus_repacketizer_create() };
        NonNull::new(state).map(Self).ok_or(OpusError::OutOfMemory)
    }

    /// Writes the frames of `packets`, in order, as one packet into `out`, and returns its length.
    ///
    /// # Errors
    /// [`OpusError::InvalidPacket`] if they are not of one configuration (mode, bandwidth, frame
    /// size, channels), last over 120 ms in all, or one is malformed;
    /// [`OpusError::BufferTooSmall`].
    pub fn join(&mut self, packets: &[&[u8]], out: &mut [u8]) -> Result<usize, OpusError> {
        // SAFETY: the state is valid. What it keeps of packets joined before is forgotten here, and
        // it reads the packets given now only in this call, which holds their borrow.
        unsafe { sys::opus_repacketizer_init(self.0.as_ptr()) };
        for packet in packets {
            let len = c_len(packet.len())?;
            // SAFETY: `packet` is readable for `len` bytes.
            check(unsafe { sys::opus_repacketizer_cat(self.0.as_ptr(), packet.as_ptr(), len) })?;
        }
        let len = c_len(out.len())?;
        // SAFETY: all packets are still borrowed, and `out` is writable for `len` bytes.
        check(unsafe { sys::opus_repacketizer_out(self.0.as_ptr(), out.as_mut_ptr(), len) })
    }
}

impl Drop for Repacketizer {
    fn drop(&mut self) {
        // SAFETY: the state is valid and not used after this.
        unsafe { sys::opus_repacketizer_destroy(self.0.as_ptr()) }
    }
}

/// How long `packet` lasts (RFC 6716, section 3.1: the first byte, and the second where the frame
/// count is in it); `None` for an empty packet or one over 120 ms.
pub fn packet_duration(packet: &[u8]) -> Option<Duration> {
    let (&toc, rest) = packet.split_first()?;
    let (config, code) = (toc >> 3, toc & 3);
    let frame_us: u32 = match config {
        0..12 => [10_000, 20_000, 40_000, 60_000][usize::from(config & 3)],
        12..16 => [10_000, 20_000][usize::from(config & 1)],
        _ => [2_500, 5_000, 10_000, 20_000][usize::from(config & 3)],
    };
    let frames = match code {
        0 => 1,
        1 | 2 => 2,
        _ => u32::from(rest.first()? & 0x3f),
    };
    let total_us = frame_us * frames;
    (1..=120_000).contains(&total_us).then(|| Duration::from_micros(total_us.into()))
}

/// Whether `packet` carries no sound, so that its sender may leave it out: at most two bytes, as
/// libopus tells of an encoder with DTX (`opus_encode` in its opus.h).
pub fn is_dtx(packet: &[u8]) -> bool {
    packet.len() <= 2
}

/// Whether `packet` carries a coarse copy of the one before it: the LBRR flag of its first SILK
/// frame (RFC 6716, section 4.2.3: after the VAD flags of each 20 ms), for packets of one frame.
/// Others count as without.
pub fn has_fec(packet: &[u8]) -> bool {
    let [toc, first, ..] = packet else { return false };
    // Configurations 16 and up are CELT alone; 0 to 11 are SILK, of 10, 20, 40 and 60 ms.
    let (config, one_frame) = (toc >> 3, toc & 3 == 0);
    let vad_flags = match config {
        0..12 => [1, 1, 2, 3][usize::from(config & 3)],
        12..16 => 1,
        _ => return false,
    };
    one_frame && first << vad_flags & 0x80 != 0
}
