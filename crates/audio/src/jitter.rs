//! The jitter buffer of one Opus stream: packets come when the network lets them, a frame of 20 ms
//! leaves at every tick.
//!
//! Time is measured by transit: arrival less timestamp. The fastest packet of the last seconds is
//! the base; how much later than it the others come makes the wanted delay (97 of 100 are in time).
//! The delay in force is how long after the fastest possible arrival a sample is played; it may lie
//! up to a frame and a bit over the wanted one. Where it leaves this range for long, by jitter or
//! by a sender's clock that runs at another speed, a frame is made up, or some periods of the sound are left out, soon in silence,
//! else after a second. After a beginning with an onset that came before the start, up to 15 ms are left out every third tick.

mod shorten;
mod transit;

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::frame::FRAME_SAMPLES;
use shorten::shorten;
use transit::Transit;

use crate::opus::{Decoder, has_fec, is_dtx, packet_duration};

/// Most packets held.
pub const MAX_PACKETS: usize = 32;
/// Longest wanted delay in frames.
pub const MAX_TARGET_FRAMES: u32 = 10;

const FRAME: i64 = FRAME_SAMPLES as i64;
const FRAME_US: i64 = 20_000;
/// The delay may exceed the wanted one by a frame and this, or by a frame and half of the wanted delay, if that is less.
const SLACK_US: i64 = 10_000;
/// Ticks out of range after which the delay changes: in silence, and in sound.
const PATIENCE: (u32, u32) = (5, 50);
/// Ticks between two cuts after a beginning with an onset that came before the start.
const CATCH_UP: u32 = 2;
/// A transit that changes by more than this is another stream.
const RESTART_US: i64 = 2_000_000;
/// Frames made up in a row before a stream that stopped is silent.
const MAX_CONCEALED: u32 = 5;
/// Gap over which sound begins anew instead of being concealed.
const MAX_GAP: i64 = 10 * FRAME;
/// So far back a start reaches for the onset of speech.
const ONSET_US: i64 = 300_000;
/// After so long without a packet, the fastest of before tells nothing.
const IDLE_US: i64 = 2_000_000;
/// Mean square under which a frame is quiet: -50 dBov.
const QUIET: f32 = 1e-5;
/// Samples of 2.5 ms, of which every Opus duration is a multiple.
const UNIT: i64 = 120;

/// What a tick's frame is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// Decoded sound.
    Sound,
    /// Sound, in which the coarse copy of a lost packet stands for it (in-band FEC).
    Recovered,
    /// In part or wholly made up by the decoder for what is missing.
    Concealed,
    /// Nothing was to be played: before the first packet, in a pause, or after the end.
    Silence,
}

/// Why a packet was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// Its time is over.
    Late,
    /// It came before.
    Duplicate,
    /// It is no Opus packet.
    Malformed,
}

/// What buffers count; several may share one. A packet is counted once: `received` = `decoded` +
/// `late` + `duplicate` + `overflow` + `malformed` + `unheard` + those still held.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JitterCounts {
    /// Packets put in.
    pub received: u64,
    /// Packets decoded.
    pub decoded: u64,
    /// Packets that came after their time.
    pub late: u64,
    /// Packets that came twice.
    pub duplicate: u64,
    /// Packets that fell out because too many came.
    pub overflow: u64,
    /// Packets that are no Opus.
    pub malformed: u64,
    /// Packets that passed while nobody listened ([`JitterBuffer::stop`]).
    pub unheard: u64,
    /// Lost packets recovered by FEC.
    pub recovered: u64,
    /// Frames concealed.
    pub concealed: u64,
    /// Frames of silence.
    pub silent: u64,
    /// Frames added to lengthen the delay.
    pub repeated: u64,
    /// Times that a part of the sound was left out to shorten the delay.
    pub shortened: u64,
    /// Streams that began anew.
    pub restarts: u64,
}

#[derive(Debug)]
struct Packet {
    /// Unwrapped timestamp.
    at: i64,
    index: u64,
    samples: i64,
    bytes: Vec<u8>,
}

/// The jitter buffer of one stream of mono sound; see the module. It starts stopped.
#[derive(Debug, Default)]
pub struct JitterBuffer {
    packets: VecDeque<Packet>,
    spare: Vec<Vec<u8>>,
    origin: Option<Instant>,
    transit: Option<Transit>,
    /// When the last packet came.
    came_us: Option<i64>,
    newest_at: i64,
    /// Highest index, and a bit for each of the 64 up to it.
    highest: Option<u64>,
    seen: u64,
    playing: bool,
    /// Unwrapped timestamp of the packet that the present speech began with.
    onset: Option<i64>,
    /// Unwrapped timestamp of the next sample to decode, where sound is under way.
    next_at: Option<i64>,
    last_index: u64,
    paused: bool,
    /// Began after a stop: the decoder knows nothing yet.
    fresh: bool,
    /// Began with an onset that came before the start: the delay is longer than any other beginning would make it.
    catches_up: bool,
    concealed_in_row: u32,
    out_of_range: (u32, u32),
    quiet: bool,
    delay_us: i64,
    /// Decoded and not yet played.
    ready: Vec<f32>,
}

fn us(samples: i64) -> i64 {
    samples * 125 / 6
}

impl JitterBuffer {
    /// An empty buffer, stopped.
    pub fn new() -> Self {
        Self::default()
    }

    /// Somebody listens from now on: sound begins at the next [`take`](Self::take) with the packet
    /// whose time it is, or with the onset of speech ([`onset`](Self::onset)) up to 300 ms before
    /// it: the delay is longer then, and is taken back within about a second. The decoder given there should be new or reset.
    pub fn start(&mut self) {
        (self.playing, self.fresh, self.next_at) = (true, true, None);
        self.ready.clear();
    }

    /// Nobody listens: packets pass without being decoded. The newest are kept so that a start finds
    /// them, and those from an onset of speech on.
    pub fn stop(&mut self) {
        (self.playing, self.next_at) = (false, None);
        self.ready.clear();
    }

    /// The packet of this RTP timestamp, which was put last, begins speech. Of several within 300 ms
    /// the first counts.
    pub fn onset(&mut self, timestamp: u32) {
        let at = self.unwrapped(timestamp);
        if self.onset.is_none_or(|before| !(0..ONSET_US).contains(&us(at - before))) {
            self.onset = Some(at);
        }
    }

    /// Whether it is started.
    pub fn is_playing(&self) -> bool {
        self.playing
    }

    /// Packets held.
    pub fn held(&self) -> usize {
        self.packets.len()
    }

    /// The wanted delay in frames, 1 to [`MAX_TARGET_FRAMES`].
    pub fn target_frames(&self) -> u32 {
        let wanted_us = self.transit.as_ref().map_or(0, Transit::wanted_us);
        (1 + (wanted_us / FRAME_US) as u32).min(MAX_TARGET_FRAMES)
    }

    /// The delay in force at the last [`take`](Self::take) in ms: how long after its soonest possible
    /// arrival a sample was played.
    pub fn delay_ms(&self) -> u32 {
        u32::try_from(self.delay_us / 1_000).unwrap_or(0)
    }

    /// Forgets all packets, counted as unheard.
    pub fn clear(&mut self, counts: &mut JitterCounts) {
        while let Some(packet) = self.packets.pop_front() {
            counts.unheard += 1;
            self.recycle(packet);
        }
        self.next_at = None;
        self.ready.clear();
    }

    /// A packet came: its unwrapped sequence number, RTP timestamp (48 kHz) and arrival.
    ///
    /// # Errors
    /// [`Refused`], counted too.
    pub fn put(
        &mut self,
        index: u64,
        timestamp: u32,
        arrival: Instant,
        payload: &[u8],
        counts: &mut JitterCounts,
    ) -> Result<(), Refused> {
        counts.received += 1;
        let Some(length) = packet_duration(payload) else {
            counts.malformed += 1;
            return Err(Refused::Malformed);
        };
        let samples = (length.as_micros() as i64) * 6 / 125;
        let arrival_us = self.since_origin_us(arrival);
        let mut at = self.unwrapped(timestamp);
        let transit_us = arrival_us - us(at);
        let jumped = |transit: &Transit| (transit_us - transit.base_us()).abs() > RESTART_US;
        if self.transit.as_ref().is_none_or(jumped) {
            if self.transit.is_some() {
                counts.restarts += 1;
                counts.late += self.packets.len() as u64;
                self.packets.clear();
            }
            at = i64::from(timestamp);
            self.newest_at = at;
            (self.highest, self.next_at, self.onset) = (None, None, None);
            self.transit = Some(Transit::new(arrival_us - us(at)));
        }
        match self.note_index(index) {
            Ok(()) => {}
            Err(Refused::Duplicate) => {
                counts.duplicate += 1;
                return Err(Refused::Duplicate);
            }
            Err(other) => {
                counts.late += 1;
                return Err(other);
            }
        }
        let last_us = self.came_us.replace(arrival_us);
        if let Some(transit) = &mut self.transit {
            if last_us.is_some_and(|last_us| arrival_us - last_us > IDLE_US) {
                transit.forget_base(arrival_us - us(at));
            }
            transit.add(arrival_us - us(at));
        }
        self.newest_at = self.newest_at.max(at);
        if self.next_at.is_some_and(|next| at < next) {
            counts.late += 1;
            return Err(Refused::Late);
        }
        let mut bytes = self.spare.pop().unwrap_or_default();
        bytes.extend_from_slice(payload);
        let place = self.packets.iter().rposition(|held| held.at <= at).map_or(0, |i| i + 1);
        self.packets.insert(place, Packet { at, index, samples, bytes });
        self.make_room(arrival_us, counts);
        Ok(())
    }

    fn unwrapped(&self, timestamp: u32) -> i64 {
        self.newest_at + i64::from(timestamp.wrapping_sub(self.newest_at as u32) as i32)
    }

    /// Keeps what is held within its bounds.
    fn make_room(&mut self, now_us: i64, counts: &mut JitterCounts) {
        let newest_us = self.wanted_us() + 3 * FRAME_US;
        while let Some(oldest) = self.packets.front() {
            // The packet before the onset warms the decoder up.
            let speech = self.onset.is_some_and(|onset| oldest.at + oldest.samples >= onset);
            let keep_us = if speech { newest_us.max(ONSET_US) } else { newest_us };
            let old = !self.playing && self.delay_us(now_us, oldest.at) > keep_us;
            if !old && self.packets.len() <= MAX_PACKETS {
                break;
            }
            *(if self.playing { &mut counts.overflow } else { &mut counts.unheard }) += 1;
            self.discard_front();
        }
    }

    fn note_index(&mut self, index: u64) -> Result<(), Refused> {
        let Some(highest) = self.highest else {
            (self.highest, self.seen) = (Some(index), 1);
            return Ok(());
        };
        if index > highest {
            self.seen = self.seen.checked_shl((index - highest).min(64) as u32).unwrap_or(0) | 1;
            self.highest = Some(index);
            return Ok(());
        }
        let bit = 1_u64.checked_shl((highest - index).min(64) as u32).unwrap_or(0);
        if bit == 0 {
            return Err(Refused::Late);
        }
        if self.seen & bit != 0 {
            return Err(Refused::Duplicate);
        }
        self.seen |= bit;
        Ok(())
    }

    fn since_origin_us(&mut self, at: Instant) -> i64 {
        let origin = *self.origin.get_or_insert(at);
        let us = |length: Duration| i64::try_from(length.as_micros()).unwrap_or(i64::MAX / 4);
        at.checked_duration_since(origin).map_or_else(|| -us(origin - at), us)
    }

    fn wanted_us(&self) -> i64 {
        self.transit.as_ref().map_or(0, Transit::wanted_us)
    }

    /// How long after its soonest possible arrival a sample would be played now.
    fn delay_us(&self, now_us: i64, at: i64) -> i64 {
        now_us - self.transit.as_ref().map_or(0, Transit::base_us) - us(at)
    }

    fn recycle(&mut self, mut packet: Packet) {
        packet.bytes.clear();
        self.spare.push(packet.bytes);
    }

    fn discard_front(&mut self) {
        if let Some(packet) = self.packets.pop_front() {
            self.recycle(packet);
        }
    }

    /// The frame of the tick at `now`, into `frame`; call it once every 20 ms while started.
    /// `decoder` is this stream's own, of one channel.
    pub fn take(
        &mut self,
        now: Instant,
        decoder: &mut Decoder,
        frame: &mut [f32; FRAME_SAMPLES],
        counts: &mut JitterCounts,
    ) -> Taken {
        let now_us = self.since_origin_us(now);
        let taken = if self.next_at.is_none() && !self.begin(now_us, decoder, counts) {
            frame.fill(0.0);
            Taken::Silence
        } else {
            match self.adapt(now_us) {
                Adapt::No => {
                    let taken = self.gather(FRAME_SAMPLES, now_us, decoder, counts);
                    self.give_gathered(taken, frame)
                }
                Adapt::Longer => {
                    counts.repeated += 1;
                    self.conceal(decoder, FRAME - self.ready.len() as i64);
                    self.give(frame);
                    Taken::Sound
                }
                Adapt::Shorter(most) => {
                    let taken = self.gather(FRAME_SAMPLES + most, now_us, decoder, counts);
                    let most = most.min(self.ready.len().saturating_sub(FRAME_SAMPLES));
                    counts.shortened += u64::from(shorten(&mut self.ready, most).is_some());
                    self.give_gathered(taken, frame)
                }
            }
        };
        match taken {
            Taken::Silence => counts.silent += 1,
            Taken::Concealed => counts.concealed += 1,
            Taken::Sound | Taken::Recovered => {}
        }
        let square: f32 = frame.iter().map(|x| x * x).sum();
        self.quiet = square < QUIET * FRAME_SAMPLES as f32;
        taken
    }

    /// Begins, after a start or a pause, with the newest packet that has the wanted delay, or after
    /// a start with the onset of speech before it; says whether there is one.
    fn begin(&mut self, now_us: i64, decoder: &mut Decoder, counts: &mut JitterCounts) -> bool {
        let wanted_us = self.wanted_us();
        let in_time = |packet: &Packet| self.delay_us(now_us, packet.at) >= wanted_us;
        let Some(newest) = self.packets.iter().rposition(in_time) else {
            return false;
        };
        let onset = self.onset.filter(|_| self.fresh);
        let onset = onset.and_then(|at| self.packets.iter().position(|packet| packet.at == at));
        let place = onset.map_or(newest, |onset| onset.min(newest));
        self.catches_up = place < newest;
        for left in (0..place).rev() {
            let Some(packet) = self.packets.pop_front() else { break };
            if left == 0 && self.fresh {
                // The one before warms the decoder up, which else would begin amid a wave.
                counts.decoded += 1;
                let mut unused = [0.0; crate::opus::MAX_PACKET_SAMPLES];
                let _ = decoder.decode(Some(&packet.bytes), &mut unused);
            } else if self.fresh {
                counts.unheard += 1;
            } else {
                counts.late += 1;
            }
            self.recycle(packet);
        }
        if let Some(first) = self.packets.front() {
            self.next_at = Some(first.at);
            self.last_index = first.index.wrapping_sub(1);
        }
        (self.fresh, self.paused) = (false, false);
        (self.concealed_in_row, self.out_of_range) = (0, (0, 0));
        true
    }

    /// Whether the delay has been out of its range for long enough.
    fn adapt(&mut self, now_us: i64) -> Adapt {
        let Some(next) = self.next_at else { return Adapt::No };
        let delay_us = self.delay_us(now_us, next - self.ready.len() as i64);
        self.delay_us = delay_us;
        let wanted_us = self.wanted_us();
        self.catches_up &= delay_us >= wanted_us + FRAME_US;
        // Where packets hardly vary, what is wanted hardly does.
        let slack_us = if self.catches_up { 0 } else { SLACK_US.min(wanted_us / 2) };
        let longest_us = wanted_us + FRAME_US + slack_us;
        let (short, long) = &mut self.out_of_range;
        *short = if delay_us < wanted_us { *short + 1 } else { 0 };
        *long = if delay_us >= longest_us { *long + 1 } else { 0 };
        if self.ready.len() >= FRAME_SAMPLES {
            // Amid a packet of 40 or 60 ms.
            return Adapt::No;
        }
        let hurry = self.quiet || delay_us > longest_us + 5 * FRAME_US;
        let patience = if hurry { PATIENCE.0 } else { PATIENCE.1 };
        if *short > patience {
            self.out_of_range = (0, 0);
            return Adapt::Longer;
        }
        let patience = if self.catches_up { CATCH_UP } else { patience };
        if *long <= patience {
            return Adapt::No;
        }
        // What came just now is the reserve for the next ones that come late.
        let in_time = |packet: &&Packet| self.delay_us(now_us, packet.at) >= wanted_us;
        let newest = self.packets.iter().rfind(in_time);
        let end = newest.map_or(next, |packet| packet.at + packet.samples);
        let held = end - next + self.ready.len() as i64 - FRAME;
        let most =
            held.min((delay_us - wanted_us) * 6 / 125).clamp(0, shorten::MOST as i64) as usize;
        if most < shorten::LEAST {
            return Adapt::No;
        }
        self.out_of_range = (0, 0);
        Adapt::Shorter(most)
    }

    /// Makes up `samples` samples at the end of what is ready.
    fn conceal(&mut self, decoder: &mut Decoder, samples: i64) {
        let from = self.ready.len();
        let samples = (samples.max(0) + UNIT - 1) / UNIT * UNIT;
        self.ready.resize(from + samples as usize, 0.0);
        // It fails for no length that is a multiple of 2.5 ms; silence stands there if it did.
        let _ = decoder.decode(None, &mut self.ready[from..]);
    }

    /// Moves a frame from what is ready into `frame`, silence where there is too little.
    fn give(&mut self, frame: &mut [f32; FRAME_SAMPLES]) {
        self.ready.resize(self.ready.len().max(FRAME_SAMPLES), 0.0);
        frame.copy_from_slice(&self.ready[..FRAME_SAMPLES]);
        self.ready.drain(..FRAME_SAMPLES);
    }

    /// Gets so many samples of the stream's time ready: a frame, and what lies beyond it as far as it has come.
    fn gather(
        &mut self,
        samples: usize,
        now_us: i64,
        decoder: &mut Decoder,
        counts: &mut JitterCounts,
    ) -> Taken {
        let mut taken = Taken::Sound;
        while self.ready.len() < samples {
            let Some(next) = self.next_at else { break };
            let follows = |front: &Packet| front.at - next < UNIT;
            if self.ready.len() >= FRAME_SAMPLES && !self.packets.front().is_some_and(follows) {
                // A frame is there: nothing is made up beyond it.
                break;
            }
            let missing = match self.packets.front() {
                Some(front) => front.at - next,
                None if self.paused || self.concealed_in_row >= MAX_CONCEALED => MAX_GAP + 1,
                None => {
                    // Late or lost: time stands still, so that a late one is still played. A lost
                    // one is left out later, for this frame stands for it.
                    self.concealed_in_row += 1;
                    self.conceal(decoder, FRAME - self.ready.len() as i64);
                    taken = Taken::Concealed;
                    break;
                }
            };
            if missing < UNIT {
                self.decode_front(decoder, counts, &mut taken);
            } else if missing > MAX_GAP || self.follows() {
                // A pause (DTX) or the end: silence, until a packet's time comes.
                if self.ready.is_empty() {
                    taken = Taken::Silence;
                }
                self.next_at = None;
            } else if self.concealed_in_row > 0
                && self.delay_us(now_us, next) >= self.wanted_us() + FRAME_US
            {
                self.next_at = Some(next + missing.min(FRAME));
            } else {
                self.bridge(missing, next, decoder, counts, &mut taken);
            }
        }
        taken
    }

    /// Moves a frame of what was gathered into `frame`.
    fn give_gathered(&mut self, taken: Taken, frame: &mut [f32; FRAME_SAMPLES]) -> Taken {
        self.give(frame);
        if taken != Taken::Silence && self.next_at.is_none() {
            self.ready.clear();
        }
        taken
    }

    /// Whether the oldest packet held is the one after the last played, by sequence number.
    fn follows(&self) -> bool {
        self.packets.front().is_some_and(|front| front.index == self.last_index.wrapping_add(1))
    }

    fn decode_front(
        &mut self,
        decoder: &mut Decoder,
        counts: &mut JitterCounts,
        taken: &mut Taken,
    ) {
        let Some(packet) = self.packets.pop_front() else { return };
        let from = self.ready.len();
        self.ready.resize(from + packet.samples as usize, 0.0);
        match decoder.decode(Some(&packet.bytes), &mut self.ready[from..]) {
            Ok(_) => {
                counts.decoded += 1;
                self.concealed_in_row = 0;
            }
            Err(_) => {
                counts.malformed += 1;
                self.ready.truncate(from);
                self.conceal(decoder, packet.samples);
                *taken = Taken::Concealed;
            }
        }
        self.paused = is_dtx(&packet.bytes);
        self.last_index = packet.index;
        self.next_at = Some(packet.at + packet.samples);
        self.recycle(packet);
    }

    /// Stands in for the `missing` samples before the oldest packet held: with that packet's copy
    /// of the one before it where this is all that is missing, else made up.
    fn bridge(
        &mut self,
        missing: i64,
        next: i64,
        decoder: &mut Decoder,
        counts: &mut JitterCounts,
        taken: &mut Taken,
    ) {
        let samples = missing.min(FRAME) / UNIT * UNIT;
        let single = missing <= FRAME
            && missing % UNIT == 0
            && self.packets.front().is_some_and(|front| {
                front.samples == missing && front.index == self.last_index.wrapping_add(2)
            });
        let from = self.ready.len();
        if let (true, Some(front)) = (single, self.packets.front()) {
            self.ready.resize(from + samples as usize, 0.0);
            // Without a copy in it, this conceals, which a caller cannot tell apart by the result;
            // it is counted by what the packet says.
            let copied = has_fec(&front.bytes);
            let _ = decoder.decode_previous(&front.bytes, &mut self.ready[from..]);
            if copied {
                counts.recovered += 1;
                if *taken == Taken::Sound {
                    *taken = Taken::Recovered;
                }
            } else {
                *taken = Taken::Concealed;
            }
        } else {
            self.conceal(decoder, samples);
            *taken = Taken::Concealed;
        }
        self.next_at = Some(next + samples);
    }
}

enum Adapt {
    No,
    Longer,
    /// By at most so many samples.
    Shorter(usize),
}
