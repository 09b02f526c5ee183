//! Sound in all forms that clients send it: long and short packets, stereo, other modes, wrong clocks, gaps and jumps.
//!
//! Each form goes through a room that forwards and one that mixes. What is forwarded comes whole, with the times that it was
//! sent with; what is mixed is decoded.

use super::asking_again::Control;
use super::hand::{Ears, Hand, Heard, LOUD, PACKET, PACKET_TIME, Packet};
use super::world::{LAN, Link, Made, World};
use audio::Channels;
use audio::opus::{Application, Encoder, EncoderOptions, MAX_PACKET, Repacketizer};
use audio::tone::Sine;
use engine::PersonKey;
use engine::drops::InDrop;
use engine::room::Topology;
use rtp::negotiated::Kind;
use rtp::rtcp;
use std::time::Duration;

const TOPOLOGIES: [Topology; 2] = [Topology::Sfu, Topology::Mcu];
const HOUR: u32 = 3600 * 48_000;

/// Somebody who sends sound by hand, and somebody who hears it.
struct Call {
    world: World,
    hand: Hand,
    ears: Ears,
    listener: PersonKey,
    audio: Topology,
}

impl Call {
    fn new(audio: Topology, shards: u16, link: Link) -> Self {
        let made = Made { audio, video: Topology::None, shards };
        let mut world = World::with_slots(61, link, made, (4, 0));
        let people: Vec<_> = (0..2).map(|_| world.join_silent(false)).collect();
        let hand = Hand::new(&mut world, people[1], Kind::Audio);
        let ears = Ears::of(&mut world, &people[..1]);
        Self { world, hand, ears, listener: people[0], audio }
    }

    /// A packet of so many samples; its time passes.
    fn say(&mut self, payload: &[u8], samples: u32, takes: Duration) {
        let payload_type = self.hand.line.payload_type;
        let packet = Packet { payload_type, marker: false, level_dbov: Some(LOUD), payload };
        self.hand.send(&mut self.world, packet);
        self.hand.timestamp = self.hand.timestamp.wrapping_add(samples);
        self.world.run(takes);
    }

    /// So many packets of 20 ms.
    fn speak(&mut self, packets: usize) {
        for _ in 0..packets {
            self.hand.say(&mut self.world, LOUD);
            self.world.run(PACKET_TIME);
        }
    }

    /// How many packets were forwarded or decoded so far.
    fn came(&self) -> u64 {
        match self.audio {
            Topology::Mcu => self.world.mixers.iter().map(|it| it.stats().jitter.decoded).sum(),
            _ => self.world.all_stats().map(|stats| stats.rtp_out).sum(),
        }
    }

    /// The packets that were heard since the last time. None may be missing in between.
    fn heard(&mut self) -> Vec<Heard> {
        let heard = self.ears.take_all(self.listener);
        for pair in heard.windows(2) {
            assert_eq!(pair[1].sequence, pair[0].sequence.wrapping_add(1), "{:?}", self.audio);
        }
        heard
    }
}

/// A tone as a client encodes it.
struct Tone {
    encoder: Encoder,
    sine: Sine,
    channels: usize,
    /// A packet, at 48 kHz.
    samples: u32,
}

impl Tone {
    fn new(application: Application, channels: Channels, samples: u32) -> Self {
        let options = EncoderOptions { application, channels, ..EncoderOptions::default() };
        let encoder = Encoder::new(options).expect("libopus has one");
        let channels = if channels == Channels::Mono { 1 } else { 2 };
        Self { encoder, sine: Sine::new(440.0, 1.0), channels, samples }
    }

    fn encode(&mut self, samples: u32) -> Vec<u8> {
        let mut mono = vec![0.0; samples as usize];
        self.sine.fill(&mut mono);
        let pcm: Vec<f32> =
            mono.into_iter().flat_map(|sample| vec![sample * 0.2; self.channels]).collect();
        let mut packet = [0; MAX_PACKET];
        let len = self.encoder.encode(&pcm, &mut packet).expect("it is encoded");
        packet[..len].to_vec()
    }

    /// The next packet. Of 120 ms libopus makes two of 60.
    fn packet(&mut self) -> Vec<u8> {
        if self.samples <= 2880 {
            return self.encode(self.samples);
        }
        let halves = [self.encode(2880), self.encode(2880)];
        let mut whole = [0; 2 * MAX_PACKET];
        let mut repacketizer = Repacketizer::new().expect("one");
        let len = repacketizer.join(&[&halves[0], &halves[1]], &mut whole).expect("they fit");
        whole[..len].to_vec()
    }
}

#[test]
fn sound_is_heard_whatever_its_packets_are_like() {
    for audio in TOPOLOGIES {
        for (application, channels) in [
            (Application::Voip, Channels::Mono),
            (Application::LowDelay, Channels::Mono),
            (Application::Audio, Channels::Stereo),
        ] {
            for samples in [120, 240, 480, 960, 1920, 2880, 5760] {
                // What is shorter than 10 ms is of CELT anyhow.
                let mut tone = Tone::new(application, channels, samples);
                let takes = Duration::from_nanos(u64::from(samples) * 1_000_000_000 / 48_000);
                let mut call = Call::new(audio, 1, LAN);
                let sent = 2 * 48_000 / samples;
                let payloads: Vec<Vec<u8>> = (0..sent).map(|_| tone.packet()).collect();
                for payload in &payloads {
                    call.say(payload, samples, takes);
                }
                call.world.run(Duration::from_secs(1));
                let (came, what) = (call.came(), format!("{audio:?} {application:?} {samples}"));
                let heard = call.heard();
                if audio == Topology::Sfu {
                    assert_eq!((came, heard.len()), (u64::from(sent), sent as usize), "{what}");
                    assert!(heard.iter().map(|it| &it.payload).eq(&payloads), "{what}");
                    let step = |pair: &[Heard]| pair[1].timestamp.wrapping_sub(pair[0].timestamp);
                    assert!(heard.windows(2).all(|pair| step(pair) == samples), "{what}");
                } else {
                    // Some pass until he is ranked.
                    let (missing, most) =
                        (u64::from(sent) - came, 1 + u64::from(4 * PACKET / samples));
                    assert!(missing <= most, "{what}: {missing}");
                    let concealed: u64 =
                        call.world.mixers.iter().map(|it| it.stats().jitter.concealed).sum();
                    assert!(concealed <= 5, "{what}: {concealed} concealed");
                }
                call.world.assert_invariants(61);
            }
        }
    }
}

#[test]
fn sound_goes_on_after_gaps_and_jumps_of_time() {
    for (audio, shards) in [(Topology::Sfu, 1), (Topology::Sfu, 2), (Topology::Mcu, 1)] {
        // Timestamps go on, stand still, or jump far ahead or back. Some time may pass without a packet.
        for jump in [0, PACKET, HOUR, HOUR.wrapping_neg(), 1 << 31, 5 * 48_000] {
            for gap_ms in [0, 400, 5_000] {
                let mut call = Call::new(audio, shards, LAN);
                call.speak(100);
                call.world.run(Duration::from_millis(gap_ms));
                call.hand.timestamp = call.hand.timestamp.wrapping_add(jump);
                call.heard();
                call.speak(25);
                let before = call.came();
                call.heard();
                call.speak(50);
                let what = format!("{audio:?} {shards} {jump} {gap_ms}");
                assert!(call.came() >= before + 48, "{what}: {}", call.came() - before);
                assert!(call.heard().len() >= 48, "{what}");
                call.world.assert_invariants(61);
            }
        }
    }
}

#[test]
fn pauses_with_comfort_noise_alone_end_with_the_first_word() {
    for audio in TOPOLOGIES {
        let mut call = Call::new(audio, 1, LAN);
        for _ in 0..5 {
            call.speak(50);
            // Discontinuous transmission: a packet of nothing each 400 ms.
            for _ in 0..10 {
                call.say(&[0x08], 20 * PACKET, Duration::from_millis(400));
            }
            let before = call.came();
            call.heard();
            call.speak(50);
            assert!(call.came() >= before + 45, "{audio:?}: {}", call.came() - before);
            assert!(call.heard().len() >= 45, "{audio:?}");
        }
        call.world.assert_invariants(61);
    }
}

#[test]
fn clocks_that_go_wrong_by_half_a_percent_are_followed() {
    for audio in TOPOLOGIES {
        for off_permille in [-5_i64, 5] {
            let mut call = Call::new(audio, 1, LAN);
            let takes = PACKET_TIME.as_micros() as i64 * (1000 + off_permille) / 1000;
            let sent = 60 * 50;
            for _ in 0..sent {
                call.hand.say(&mut call.world, LOUD);
                call.world.run(Duration::from_micros(takes as u64));
            }
            let what = format!("{audio:?} {off_permille}");
            assert!(call.came() + 60 >= sent, "{what}: {} of {sent}", call.came());
            let mixers = call.world.mixers.iter().map(|mixer| &mixer.stats().delays.counts);
            let late: u64 = mixers.map(|counts| counts[9..].iter().sum::<u64>()).sum();
            assert_eq!(late, 0, "{what}: nobody waits 120 ms or more");
            call.heard();
            call.world.assert_invariants(61);
        }
    }
}

#[test]
fn who_says_goodbye_and_goes_on_is_heard() {
    for audio in TOPOLOGIES {
        let mut call = Call::new(audio, 1, LAN);
        call.speak(50);
        let ssrc = call.hand.ssrc();
        let mut control = Control::new(&mut call.world, call.hand.key);
        for _ in 0..3 {
            let mut compound = Vec::new();
            rtcp::receiver_report(&mut compound, ssrc, &[]);
            rtcp::bye(&mut compound, &[ssrc]);
            control.send(&mut call.world, &compound);
            let before = call.came();
            call.speak(50);
            assert!(call.came() >= before + 48, "{audio:?}: {}", call.came() - before);
        }
        call.heard();
        call.world.assert_invariants(61);
    }
}

#[test]
fn numbers_wrap_while_packets_are_lost_and_overtake_each_other() {
    for audio in TOPOLOGIES {
        for first in [65_530, 65_535, 0, 1] {
            let link = Link { delay_ms: 30, jitter_ms: 60, loss_permille: 30 };
            let mut call = Call::new(audio, 1, link);
            call.hand.sequence = first;
            // Three times round, in steps that a receiver takes for losses.
            let (mut said, mut step) = (0, 0);
            while step < 200_000 {
                call.speak(25);
                said += 25;
                step += 25 + 2000;
                call.hand.sequence = call.hand.sequence.wrapping_add(2000);
            }
            call.world.run(Duration::from_secs(1));
            let drops = |reason| -> u64 {
                call.world.all_stats().map(|stats| stats.in_drops.get(reason)).sum()
            };
            let what = format!("{audio:?} from {first}");
            let failed = drops(InDrop::AuthenticationFailed) + drops(InDrop::Replayed);
            assert_eq!(failed, 0, "{what}");
            let came: u64 = call.world.all_stats().map(|stats| stats.rtp_in).sum();
            assert!(came * 100 >= said * 95, "{what}: {came} of {said}");
            assert!(call.came() * 100 >= came * 80, "{what}: {} of {came}", call.came());
        }
    }
}
