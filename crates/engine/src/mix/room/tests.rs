//! What goes into the encoders, beside sums in f64 of what was said.

use super::super::message::{MAX_PAYLOAD, MixFrame, Payload};
use super::*;
use audio::limiter::THRESHOLD;
use audio::opus::{Application, Decoder, Encoder, EncoderOptions};
use audio::tone::{Sine, goertzel};
use audio::{Channels, level_dbov};
use std::f32::consts::PI;
use std::time::Duration;

const HERE: ShardIndex = ShardIndex(0);
const THERE: ShardIndex = ShardIndex(1);
/// A listener who says nothing.
const LISTENER: PersonKey = PersonKey(99);

struct Void;

impl MixSink for Void {
    fn bar(&mut self, _: Bar) -> bool {
        true
    }

    fn packet(&mut self, _: MixedPacket) -> bool {
        true
    }

    fn peer(&mut self, _: ShardIndex, _: MixPeer) -> bool {
        true
    }
}

/// A codec that adds next to nothing of its own.
const PRECISE: EncoderOptions = EncoderOptions {
    channels: Channels::Mono,
    application: Application::Audio,
    bitrate_bps: 128_000,
    complexity: 5,
    fec: false,
    expected_loss_percent: 0,
    dtx: false,
};

/// Somebody who says syllables: a tone that swells and fades for 160 ms, and a pause of 80 ms.
struct Voice {
    sine: Sine,
    amplitude: f32,
    /// He says a steady tone in place of syllables.
    steady: bool,
    sends: bool,
    encoder: Encoder,
    decoder: Decoder,
    /// What his packets decode to, frame by frame.
    said: Vec<[f32; TICK_SAMPLES]>,
}

struct Bench {
    room: Room,
    voices: Vec<Voice>,
    tick: u64,
    epoch: Instant,
    stats: MixStats,
}

impl Bench {
    /// A room of `voices` with this amplitude, of whom the first listens, and one who only listens.
    fn new(voices: u64, amplitude: f32, loudest: u8) -> Self {
        let hear = Hear::Loudest(loudest);
        let layout = Layout { home: HERE, talking: 1, listening: 1, hear, packet_ticks: 1 };
        let mut room = Room::new(RoomKey(1), layout);
        for voice in 0..voices {
            room.add_track(TrackKey(voice), PersonKey(voice), false);
        }
        room.listen(PersonKey(0));
        room.listen(LISTENER);
        let voice = |voice| Voice {
            sine: Sine::new(300.0 + 70.0 * voice as f64, 1.0),
            amplitude,
            steady: false,
            sends: true,
            encoder: Encoder::new(PRECISE).unwrap(),
            decoder: Decoder::new(Channels::Mono).unwrap(),
            said: Vec::new(),
        };
        let (voices, stats) = ((0..voices).map(voice).collect(), MixStats::default());
        Self { room, voices, tick: 0, epoch: Instant::now(), stats }
    }

    /// One tick: each says a frame, and the room mixes what is due. With what the other shard gives.
    fn tick(&mut self, other: Option<f32>) {
        let now = self.epoch + Duration::from_millis(20 * (self.tick + 1));
        for (key, voice) in self.voices.iter_mut().enumerate() {
            let (mut pcm, mut packet) = ([0.0; TICK_SAMPLES], [0; MAX_PAYLOAD]);
            let first = self.tick as usize % 12 * TICK_SAMPLES;
            for (at, sample) in pcm.iter_mut().enumerate() {
                let turn = (first + at) as f32 / (8 * TICK_SAMPLES) as f32;
                let swell = match turn {
                    _ if voice.steady => 1.0,
                    0.0..1.0 => (turn * PI).sin(),
                    _ => 0.0,
                };
                *sample = (voice.sine.next_sample() * swell * voice.amplitude).clamp(-1.0, 1.0);
            }
            let len = voice.encoder.encode(&pcm, &mut packet).unwrap();
            let mut said = [0.0; TICK_SAMPLES];
            voice.decoder.decode(Some(&packet[..len]), &mut said).unwrap();
            voice.said.push(said);
            if !voice.sends {
                continue;
            }
            let frame = MixFrame {
                track: TrackKey(key as u64),
                index: self.tick,
                timestamp: self.tick as u32 * TICK_SAMPLES as u32,
                // Who becomes heard a tick later is within the range of delays then: nothing is left out to catch up.
                arrival: now - Duration::from_millis(1),
                level_dbov: level_dbov(&pcm),
                payload: Payload::new(&packet[..len]).unwrap(),
            };
            self.room.track(TrackKey(key as u64)).unwrap().put(&frame, &mut self.stats);
        }
        if let Some(sample) = other {
            self.room.take_sum(self.tick, THERE, Box::new([sample; TICK_SAMPLES]));
        }
        let mut turn = Turn { shard: HERE, stats: &mut self.stats, sink: &mut Void };
        self.room.begin(self.tick, now, &mut turn);
        self.room.settle(self.tick, true, &mut turn);
        self.tick += 1;
    }

    /// By how many dB `mixes` of the last ticks differ from the sum of `voices`, which were said
    /// some frames before.
    fn error_db(&self, mixes: &[[f32; TICK_SAMPLES]], voices: std::ops::Range<usize>) -> f64 {
        let from = self.tick as usize - mixes.len();
        let with_delay = |delay: usize| {
            let (mut error, mut signal) = (0.0, 0.0);
            for (number, mix) in mixes.iter().enumerate() {
                for (at, sample) in mix.iter().enumerate() {
                    let said = |voice: &Voice| f64::from(voice.said[from + number - delay][at]);
                    let sum: f64 = self.voices[voices.clone()].iter().map(said).sum();
                    error += (f64::from(*sample) - sum).powi(2);
                    signal += sum * sum;
                }
            }
            10.0 * (error / signal).log10()
        };
        (0..10).map(with_delay).fold(f64::INFINITY, f64::min)
    }
}

#[test]
fn where_gain_and_limiter_rest_the_mix_is_the_sum_and_each_mix_the_sum_without_him() {
    // Voices of −26 dBov, where the gain has nothing to do.
    let mut bench = Bench::new(4, 0.1, 8);
    (0..300).for_each(|_| bench.tick(None));
    let (mut common, mut own) = (Vec::new(), Vec::new());
    for _ in 0..100 {
        bench.tick(None);
        common.push(*bench.room.sum);
        own.push(*bench.room.scratch);
    }
    assert_eq!(bench.stats.jitter.concealed + bench.stats.jitter.shortened, 0);
    let (all, others) = (bench.error_db(&common, 0..4), bench.error_db(&own, 1..4));
    println!("error {all:.1} dB, of the first one's mix {others:.1} dB");
    assert!(all < -50.0 && others < -50.0, "{all} dB, {others} dB");
}

#[test]
fn nothing_over_the_threshold_reaches_an_encoder() {
    let mut bench = Bench::new(20, 4.0, 8);
    bench.room.set_layout(Layout { talking: 3, ..bench.room.layout });
    for tick in 0..300 {
        bench.tick(Some(if tick % 3 == 0 { 8.0 } else { -2.0 }));
        for (name, pcm) in [("common", &bench.room.sum), ("own", &bench.room.scratch)] {
            let peak = pcm.iter().fold(0.0_f32, |peak, x| peak.max(x.abs()));
            assert!(peak <= THRESHOLD + 1e-6, "tick {tick}, {name}: {peak}");
        }
    }
    assert_eq!(bench.stats.sums_unused, 0);
}

/// The power of `sound` from 3 to 11 kHz in 20 ms, the most of pieces 5 ms apart; in dB beside a tone
/// of an amplitude.
fn beside_db(sound: &[f32], amplitude: f32) -> f64 {
    let piece = |at: usize| {
        let hann = |n: usize| (PI * (n as f32 + 0.5) / TICK_SAMPLES as f32).sin().powi(2);
        let piece = sound[at..at + TICK_SAMPLES].iter().enumerate();
        let windowed: Vec<f32> = piece.map(|(n, x)| x * hann(n)).collect();
        (60..220).map(|n| goertzel(&windowed, f64::from(n) * 50.0)).sum::<f64>()
    };
    let most = (0..=sound.len() - TICK_SAMPLES).step_by(240).map(piece).fold(0.0, f64::max);
    10.0 * (most / f64::from(amplitude * amplitude / 2.0)).log10()
}

#[test]
fn who_enters_and_leaves_makes_no_click() {
    let mut bench = Bench::new(2, 0.1, 1);
    bench.voices[0].amplitude = 0.2;
    bench.voices.iter_mut().for_each(|voice| voice.steady = true);
    let mut sound = Vec::new();
    // Runs until one is heard and the other is not, and a second more; returns where in `sound`.
    let mut run = |bench: &mut Bench, heard: u64| {
        let mut change = None;
        while change.is_none_or(|at| sound.len() < at + 50 * TICK_SAMPLES) {
            bench.tick(None);
            if change.is_none() && bench.room.rank.has(TrackKey(heard)) {
                change = Some(sound.len());
            }
            sound.extend(*bench.room.sum);
            assert!(bench.tick < 1_000, "{heard} is never heard");
        }
        change.unwrap()
    };
    run(&mut bench, 0);
    // The other one enters amid his tone, in silence; then the first one again, and the other leaves.
    bench.voices[0].sends = false;
    let enters = run(&mut bench, 1);
    bench.voices[0].sends = true;
    let leaves = run(&mut bench, 0);
    let of = |from: usize, ticks: usize| &sound[from..from + ticks * TICK_SAMPLES];
    let before = 2 * TICK_SAMPLES;
    let steady = beside_db(of(enters + 20 * TICK_SAMPLES, 20), 0.1);
    let entering = beside_db(of(enters - before, 8), 0.1);
    let leaving = beside_db(of(leaves - before, 8), 0.2);
    println!(
        "beside the tone: steady {steady:.1}, entering {entering:.1}, leaving {leaving:.1} dB"
    );
    // No more than the codec itself adds, or next to nothing.
    assert!(steady < -42.0);
    assert!(entering < f64::max(-50.0, steady + 3.0) && leaving < f64::max(-50.0, steady + 3.0));
}
