//! The jitter buffer under networks of every kind: what leaves it is the sound that went in.

use std::time::{Duration, Instant};

use audio::jitter::{JitterBuffer, JitterCounts, MAX_PACKETS, Refused, Taken};
use audio::opus::has_fec;
use audio::opus::{Decoder, Encoder, EncoderOptions, MAX_PACKET};
use audio::tone::{Sine, goertzel};
use audio::{Channels, FRAME_SAMPLES};

const TONE_HZ: f64 = 440.0;

/// A stream of a tone, in packets of `length_ms`, each with its timestamp.
fn packets(options: EncoderOptions, length_ms: usize, count: usize) -> Vec<(u32, Vec<u8>)> {
    let mut encoder = Encoder::new(options).unwrap();
    let mut sine = Sine::new(TONE_HZ, 0.3);
    let (mut pcm, mut packet) = (vec![0.0; 48 * length_ms], [0; 2 * MAX_PACKET]);
    (0..count)
        .map(|number| {
            sine.fill(&mut pcm);
            let len = encoder.encode(&pcm, &mut packet).unwrap();
            // Over the turn of the timestamp.
            let timestamp = (u32::MAX - 48_000).wrapping_add((number * pcm.len()) as u32);
            (timestamp, packet[..len].to_vec())
        })
        .collect()
}

/// Tones that change five times a second: a steady one is noise to the encoder and gets no FEC.
fn syllables(count: u32) -> Vec<(u32, Vec<u8>)> {
    let mut encoder = Encoder::new(speech()).unwrap();
    let mut packet = [0; MAX_PACKET];
    let (mut frame, mut sine) = ([0.0; FRAME_SAMPLES], Sine::new(200.0, 0.3));
    (0..count)
        .map(|number| {
            if number % 10 == 0 {
                sine = Sine::new(f64::from(200 + number * 7919 % 13 * 60), 0.3);
            }
            sine.fill(&mut frame);
            frame.iter_mut().for_each(|x| *x *= (1 + number % 10) as f32 / 10.0);
            let len = encoder.encode(&frame, &mut packet).unwrap();
            (number * 960, packet[..len].to_vec())
        })
        .collect()
}

fn speech() -> EncoderOptions {
    EncoderOptions { fec: true, expected_loss_percent: 10, ..EncoderOptions::default() }
}

/// A little generator of its own: a seed gives the same network every time.
struct Seed(u64);

impl Seed {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
        (self.0 >> 33) % limit
    }
}

struct Listener {
    buffer: JitterBuffer,
    decoder: Decoder,
    counts: JitterCounts,
    sound: Vec<f32>,
    taken: Vec<Taken>,
    epoch: Instant,
}

/// When, sequence number, timestamp and packet.
type Arrival<'a> = (u64, u64, &'a (u32, Vec<u8>));

impl Listener {
    fn new() -> Self {
        let mut buffer = JitterBuffer::new();
        buffer.start();
        Self {
            buffer,
            decoder: Decoder::new(Channels::Mono).unwrap(),
            counts: JitterCounts::default(),
            sound: Vec::new(),
            taken: Vec::new(),
            epoch: Instant::now(),
        }
    }

    fn put(&mut self, index: u64, at_us: u64, packet: &(u32, Vec<u8>)) -> Result<(), Refused> {
        let arrival = self.epoch + Duration::from_micros(at_us);
        self.buffer.put(index, packet.0, arrival, &packet.1, &mut self.counts)
    }

    fn take(&mut self, at_us: u64) -> Taken {
        let mut frame = [0.0; FRAME_SAMPLES];
        let now = self.epoch + Duration::from_micros(at_us);
        let taken = self.buffer.take(now, &mut self.decoder, &mut frame, &mut self.counts);
        self.sound.extend(frame);
        self.taken.push(taken);
        taken
    }

    /// Plays packets that arrive at given times, a tick each 20 ms from 7 ms on, until `end_us`.
    fn play(&mut self, mut arrivals: Vec<Arrival<'_>>, end_us: u64) {
        arrivals.sort_by_key(|(at_us, index, _)| (*at_us, *index));
        let mut arrivals = arrivals.into_iter().peekable();
        for tick_us in (7_000..end_us).step_by(20_000) {
            while let Some((at_us, index, packet)) = arrivals.next_if(|next| next.0 <= tick_us) {
                let _ = self.put(index, at_us, packet);
            }
            self.take(tick_us);
        }
    }

    fn taken(&self, kind: Taken) -> usize {
        self.taken.iter().filter(|taken| **taken == kind).count()
    }

    /// Every packet is counted once.
    fn check_counts(&self) {
        let c = &self.counts;
        let gone = c.decoded + c.late + c.duplicate + c.overflow + c.malformed + c.unheard;
        assert_eq!(c.received, gone + self.buffer.held() as u64, "{c:?}");
    }
}

fn tone_power(sound: &[f32]) -> f64 {
    goertzel(sound, TONE_HZ)
}

#[test]
fn packets_of_every_length_come_out_whole() {
    for length_ms in [10_u64, 20, 40, 60] {
        let stream = packets(speech(), length_ms as usize, 4000 / length_ms as usize);
        let mut listener = Listener::new();
        let arrivals = stream.iter().zip(0..).map(|(p, i)| (i * length_ms * 1000, i, p));
        listener.play(arrivals.collect(), 3_900_000);
        let c = &listener.counts;
        assert_eq!((c.concealed, c.late, c.overflow, c.repeated), (0, 0, 0, 0), "{length_ms} ms");
        assert!(listener.taken(Taken::Silence) <= 5, "{length_ms} ms: {c:?}");
        assert!(listener.taken[5..].iter().all(|taken| *taken == Taken::Sound));
        // One tone without a gap: a 1 s window is 1 Hz narrow.
        let power = tone_power(&listener.sound[24_000..72_000]);
        assert!((0.035..0.055).contains(&power), "{length_ms} ms: {power}");
        listener.check_counts();
    }
}

#[test]
fn jitter_makes_the_delay_and_its_end_takes_it_back() {
    let stream = packets(speech(), 20, 1500);
    let mut seed = Seed(3);
    let jittered = |i: u64, seed: &mut Seed| if i < 500 { seed.below(70_000) } else { 0 };
    let arrivals: Vec<_> =
        stream.iter().zip(0..).map(|(p, i)| (i * 20_000 + jittered(i, &mut seed), i, p)).collect();
    let mut listener = Listener::new();
    listener.play(arrivals[..500].to_vec(), 9_900_000);
    let c = &listener.counts;
    assert!(c.late <= 10, "2 % of 500 at most, mostly at first: {c:?}");
    assert!((4..=5).contains(&listener.buffer.target_frames()), "70 ms of jitter");
    let late = c.late;
    let before = listener.counts.shortened;
    let mut rest = Listener { sound: Vec::new(), taken: Vec::new(), ..listener };
    for (number, tick_us) in (9_907_000..29_900_000).step_by(20_000).enumerate() {
        for (at_us, index, packet) in &arrivals[500..] {
            if *at_us <= tick_us && *at_us + 20_000 > tick_us {
                let _ = rest.put(*index, *at_us, packet);
            }
        }
        rest.take(tick_us);
        assert!(rest.buffer.held() <= 6, "tick {number}");
    }
    assert_eq!(rest.buffer.target_frames(), 1, "the jitter is over");
    assert_eq!(rest.counts.late, late);
    // 70 ms, up to 15 at a time.
    assert!((4..=14).contains(&(rest.counts.shortened - before)), "{:?}", rest.counts);
    rest.check_counts();
}

#[test]
fn a_lost_packet_is_concealed_and_where_the_next_is_there_recovered() {
    let stream = syllables(1000);
    // Fifty are lost, each with a copy of itself in the next one.
    let mut lost: Vec<u64> =
        (5..999).filter(|i| has_fec(&stream[*i + 1].1)).map(|i| i as u64).collect();
    lost.dedup_by_key(|i| *i / 20);
    assert!((45..=50).contains(&lost.len()), "{}", lost.len());
    // Ticks are at 7 ms: packets of 8 ms are played 19 ms later, before the next one is there.
    for (from_us, jitter_us, recovers) in [(8_000, 1, false), (0, 60_000, true)] {
        let mut seed = Seed(8);
        let arrivals: Vec<_> = stream
            .iter()
            .zip(0..)
            .filter(|(_, i)| !lost.contains(i))
            .map(|(p, i)| (i * 20_000 + from_us + seed.below(jitter_us), i, p))
            .collect();
        let mut listener = Listener::new();
        listener.play(arrivals, 19_900_000);
        let c = &listener.counts;
        let found = c.recovered + c.concealed;
        assert!((45..=70).contains(&found), "50 were lost: {c:?}");
        assert_eq!(c.recovered > 35, recovers, "{c:?}");
        assert!(listener.taken(Taken::Silence) <= 6);
        listener.check_counts();
    }
}

#[test]
fn a_pause_is_silence_and_not_loss() {
    let stream = packets(speech(), 20, 400);
    // Sequence numbers go on over the pause, timestamps leap with it.
    let talks = |i: u64| !(100..300).contains(&i);
    let arrivals = stream.iter().zip(0..).filter(|(_, i)| talks(*i));
    let arrivals = arrivals.map(|(p, i)| (i * 20_000, if i < 100 { i } else { i - 200 }, p));
    let mut listener = Listener::new();
    listener.play(arrivals.collect(), 7_900_000);
    let c = &listener.counts;
    // What a buffer cannot know when the packets just end: five frames are made up.
    assert!(c.concealed <= 5, "{c:?}");
    assert_eq!((c.late, c.unheard, c.restarts), (0, 0, 0));
    assert!((190..=206).contains(&listener.taken(Taken::Silence)), "{c:?}");
    assert!(listener.sound[150 * 960..295 * 960].iter().all(|x| *x == 0.0));
    assert!(tone_power(&listener.sound[320 * 960..370 * 960]) > 0.03);
    // With DTX the last packet says so: nothing is made up at all.
    let quiet = EncoderOptions { dtx: true, ..speech() };
    let mut encoder = Encoder::new(quiet).unwrap();
    let mut sent = Vec::new();
    let mut packet = [0; MAX_PACKET];
    let mut sine = Sine::new(TONE_HZ, 0.3);
    for i in 0..200_u32 {
        let mut pcm = [0.0; FRAME_SAMPLES];
        if i < 50 {
            sine.fill(&mut pcm);
        }
        let len = encoder.encode(&pcm, &mut packet).unwrap();
        sent.push((i * 960, packet[..len].to_vec()));
    }
    let mut listener = Listener::new();
    // An empty packet and the first two-byte one are sent, the others are left out.
    let mut index = 0;
    let mut said = false;
    let mut arrivals = Vec::new();
    for (i, packet) in (0..).zip(&sent) {
        let dtx = audio::opus::is_dtx(&packet.1);
        if !dtx || !said {
            arrivals.push((i * 20_000, index, packet));
            index += 1;
        }
        said = dtx;
    }
    assert!(arrivals.len() < 120, "DTX left packets out: {}", arrivals.len());
    listener.play(arrivals, 3_900_000);
    assert_eq!(listener.counts.concealed, 0, "{:?}", listener.counts);
    listener.check_counts();
}

#[test]
fn a_clock_that_runs_at_another_speed_is_followed() {
    let stream = packets(speech(), 20, 6000);
    // 0.5 % fast and slow: 600 ms in two minutes, 30 frames, or 40 times 15 ms and more if the sound is cut at its own periods.
    for (spacing_us, fast) in [(19_900, true), (20_100, false)] {
        let arrivals = stream.iter().zip(0..).map(|(p, i)| (i * spacing_us, i, p));
        let mut listener = Listener::new();
        listener.play(arrivals.collect(), 5_900 * spacing_us);
        let c = &listener.counts;
        assert!(listener.buffer.held() <= 5, "{c:?}");
        assert!(c.late <= 3 && c.overflow == 0, "{c:?}");
        let changes = if fast { c.shortened } else { c.repeated + c.concealed };
        let meant = if fast { 40..=100 } else { 25..=36 };
        assert!(meant.contains(&changes), "{spacing_us}: {c:?}");
        listener.check_counts();
    }
}

#[test]
fn late_twice_too_many_and_broken_are_told_apart() {
    let stream = packets(speech(), 20, 200);
    let mut listener = Listener::new();
    for i in 0..10 {
        listener.put(i, i * 20_000, &stream[i as usize]).unwrap();
    }
    assert_eq!(listener.put(9, 190_000, &stream[9]), Err(Refused::Duplicate));
    assert_eq!(listener.take(200_000), Taken::Sound);
    assert_eq!(listener.take(220_000), Taken::Concealed, "packet 10 is not there");
    assert_eq!(
        listener.put(9, 260_000, &stream[9]),
        Err(Refused::Duplicate),
        "after it was played"
    );
    assert_eq!(listener.put(10, 261_000, &(0, vec![])), Err(Refused::Malformed));
    assert_eq!(listener.put(10, 262_000, &(0, vec![0xff, 0xff])), Err(Refused::Malformed));
    listener.put(100, 263_000, &stream[100]).unwrap();
    assert_eq!(listener.put(11, 264_000, &stream[11]), Err(Refused::Late), "beyond the window");
    for i in 101..160 {
        listener.put(i, 265_000, &stream[i as usize]).unwrap();
        assert!(listener.buffer.held() <= MAX_PACKETS);
    }
    let c = &listener.counts;
    assert_eq!((c.duplicate, c.malformed), (2, 2));
    assert!(c.late >= 1 && c.overflow >= 25, "{c:?}");
    listener.check_counts();
}

#[test]
fn a_stream_that_begins_anew_is_heard_again() {
    let stream = packets(speech(), 20, 300);
    let mut listener = Listener::new();
    let second = |p: &(u32, Vec<u8>)| (p.0.wrapping_add(900_000_000), p.1.clone());
    let moved: Vec<_> = stream.iter().map(second).collect();
    let first = stream[..100].iter().zip(5000..).map(|(p, i)| ((i - 5000) * 20_000, i, p));
    // Lower sequence numbers, another timestamp.
    let then = moved[100..].iter().zip(100..).map(|(p, i)| (i * 20_000, i - 90, p));
    listener.play(first.chain(then).collect(), 5_900_000);
    assert_eq!(listener.counts.restarts, 1);
    assert!(listener.taken[110..].iter().all(|taken| *taken == Taken::Sound));
    listener.check_counts();
}

#[test]
fn a_stopped_buffer_keeps_only_the_newest_and_starts_at_once() {
    let stream = packets(speech(), 20, 200);
    let mut listener = Listener::new();
    listener.buffer.stop();
    for i in 0..100 {
        listener.put(i, i * 20_000, &stream[i as usize]).unwrap();
        assert!(listener.buffer.held() <= 5);
    }
    assert_eq!(listener.counts.decoded, 0);
    listener.buffer.start();
    assert_eq!(listener.take(99 * 20_000 + 7_000), Taken::Sound);
    listener.check_counts();
    listener.buffer.clear(&mut listener.counts);
    assert_eq!(listener.buffer.held(), 0);
    listener.check_counts();
}

#[test]
fn after_a_long_silence_the_way_of_before_tells_nothing() {
    // An hour without a packet, in which the sender's clock fell back by 400 ms.
    let hour_us = 3_600_000_000;
    let said: Vec<(u32, Vec<u8>)> = packets(speech(), 20, 100)
        .into_iter()
        .enumerate()
        .map(|(n, (timestamp, packet))| {
            let silence = if n < 50 { 0 } else { ((hour_us - 400_000) / 1000 * 48) as u32 };
            (timestamp.wrapping_add(silence), packet)
        })
        .collect();
    let mut listener = Listener::new();
    listener.buffer.stop();
    for (n, packet) in (0..50).zip(&said) {
        listener.put(n, n * 20_000, packet).unwrap();
    }
    let unheard = listener.counts.unheard;
    for (n, packet) in (50..).zip(&said[50..]) {
        let at_us = hour_us + n * 20_000;
        listener.put(n, at_us, packet).unwrap();
        if n == 53 {
            listener.buffer.start();
        }
        if n >= 53 {
            let taken = listener.take(at_us + 1_000);
            assert_eq!(taken, Taken::Sound, "packet {n}");
        }
    }
    assert_eq!(listener.counts.concealed, 0);
    assert!(unheard > 30 && listener.buffer.target_frames() <= 2, "{:?}", listener.counts);
    listener.check_counts();
}

#[test]
fn a_start_finds_the_onset_of_speech_and_takes_the_delay_back() {
    let stream = syllables(600);
    let onset = 100;
    // What was said first, decoded without any buffer.
    let mut decoder = Decoder::new(Channels::Mono).unwrap();
    let mut plain = vec![0.0; 102 * FRAME_SAMPLES];
    for (packet, frame) in stream.iter().zip(plain.chunks_mut(FRAME_SAMPLES)) {
        decoder.decode(Some(&packet.1), frame).unwrap();
    }
    let first = &plain[onset as usize * FRAME_SAMPLES..];
    // Heard 40 to 500 ms after the onset; 300 ms are kept.
    for (late_ms, behind_ms) in [(40, 40), (100, 100), (280, 280), (340, 0), (500, 0)] {
        let mut listener = Listener::new();
        listener.buffer.stop();
        let start_us = (onset * 20 + late_ms + 7) * 1_000;
        let (mut next, mut delays) = (0, Vec::new());
        for tick_us in (7_000..11_000_000).step_by(20_000) {
            while next * 20_000 <= tick_us {
                let packet = &stream[next as usize];
                listener.put(next, next * 20_000, packet).unwrap();
                // A second one in the same speech changes nothing.
                if next == onset || next == onset + 5 {
                    listener.buffer.onset(packet.0);
                }
                next += 1;
                assert!(listener.buffer.held() <= 17, "{} held", listener.buffer.held());
            }
            if tick_us == start_us {
                listener.buffer.start();
            }
            if tick_us >= start_us {
                assert_ne!(listener.take(tick_us), Taken::Silence, "{late_ms} ms late");
                delays.push(listener.buffer.delay_ms());
            }
        }
        // Ticks come 7 ms after packets. Without the onset it begins with the newest.
        let first_ms = behind_ms + 7;
        assert_eq!(u64::from(delays[0]), first_ms, "{late_ms} ms late");
        assert!(delays[350] < 40, "{late_ms} ms late: {} ms after 7 s", delays[350]);
        let c = &listener.counts;
        assert_eq!((c.concealed, c.repeated, c.late), (0, 0, 0), "{late_ms} ms: {c:?}");
        let heard = &listener.sound[..first.len()];
        let dot = |one: &[f32], other: &[f32]| -> f64 {
            one.iter().zip(other).map(|(x, y)| f64::from(x * y)).sum()
        };
        let same = dot(first, heard) / (dot(first, first) * dot(heard, heard)).sqrt();
        assert_eq!(same > 0.8, behind_ms > 0, "{late_ms} ms late: {same}");
        listener.check_counts();
    }
}
