//! Feedback is authentic, but its sender may say anything: no answer of theirs panics, or takes the estimate out of its
//! bounds.

use bwe::{Downlink, Kind, Limits};
use rtp::rtcp::{self, Packet};
use rtp::twcc::{Feedback, FeedbackBuilder};
use std::time::{Duration, Instant};

const MS: Duration = Duration::from_millis(1);
const LIMITS: Limits = Limits { start_bps: 1_000_000, least_bps: 100_000, most_bps: 50_000_000 };

/// Small and seeded (SplitMix64).
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) % bound
    }
}

/// Sends some packets and a probe's, as a server would.
fn send(downlink: &mut Downlink, random: &mut Random, now: Instant) {
    downlink.prober().bytes_due(now);
    downlink.prober().begin(now);
    for _ in 0..random.below(8) {
        let kind = [Kind::Audio, Kind::Video, Kind::Padding][random.below(3) as usize];
        downlink.sent(now, 1 + random.below(1400) as usize, kind);
    }
}

/// What a receiver may say of numbers near the last one: arrivals forwards and backwards in time, at once, or years apart.
fn lies(random: &mut Random, last: u16, origin: Instant, now: Instant) -> Vec<u8> {
    let mut builder = FeedbackBuilder::new();
    let span = 1 + random.below(400) as u16;
    for back in (0..span).rev() {
        let at = match random.below(6) {
            0 => origin + Duration::from_micros(random.below(1 << 42)),
            1 => now - Duration::from_micros(random.below(20_000_000)).min(now - origin),
            2 => now,
            _ => now + Duration::from_micros(random.below(100_000)),
        };
        if random.below(3) > 0 {
            builder.record(last.wrapping_sub(back), at);
        }
    }
    let mut bytes = Vec::new();
    while builder.build(1, 2, &mut bytes) {}
    bytes
}

fn feed(downlink: &mut Downlink, now: Instant, bytes: &[u8]) {
    for packet in rtcp::parse(bytes).flatten() {
        if let Packet::TransportFeedback { fci, .. } = packet
            && let Ok(feedback) = Feedback::parse(fci)
        {
            let _too_much = downlink.feedback(now, &feedback);
        }
    }
}

#[test]
fn no_feedback_panics_or_takes_the_estimate_out_of_its_bounds() {
    let seeds = std::env::var("MOIM_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(60);
    for seed in 0..seeds {
        let (mut random, origin) = (Random(seed), Instant::now());
        let mut downlink = Downlink::new(origin, LIMITS);
        downlink.want(origin, 20_000_000, true);
        let mut now = origin;
        for step in 0..3000_u64 {
            now += MS * random.below(30) as u32;
            send(&mut downlink, &mut random, now);
            if random.below(4) == 0 {
                let last = downlink.next_number().wrapping_sub(1);
                let at = last.wrapping_add(random.below(4) as u16);
                let mut bytes = lies(&mut random, at, origin, now);
                if random.below(3) == 0 && !bytes.is_empty() {
                    let place = random.below(bytes.len() as u64) as usize;
                    bytes[place] = random.below(256) as u8;
                }
                feed(&mut downlink, now, &bytes);
            }
            downlink.tick(now);
            let estimate = downlink.estimate_bps();
            let bounds = LIMITS.least_bps..=LIMITS.most_bps;
            assert!(bounds.contains(&estimate), "seed {seed}, step {step}: {estimate}");
            assert!(downlink.in_flight() < 16_384 * 1500, "seed {seed}");
        }
    }
}

#[test]
fn a_receiver_tells_of_what_left_a_few_times_and_no_more() {
    let now = Instant::now();
    let mut downlink = Downlink::new(now, LIMITS);
    (0..1000).for_each(|_| downlink.sent(now, 1000, Kind::Video));
    // 1000 numbers that did not come, from 1 on.
    let fci = [0, 1, 0x03, 0xE8, 0, 0, 1, 0, 0x03, 0xE8];
    let feedback = Feedback::parse(&fci).unwrap();
    let mut tell = |nth| {
        downlink.tick(now + nth * MS);
        downlink.feedback(now + nth * MS, &feedback).is_ok()
    };
    let told = (0..1000).take_while(|nth| tell(*nth)).count();
    assert!((4..=80).contains(&told), "{told} times");
    // What leaves may be told of again.
    (0..1000).for_each(|_| downlink.sent(now, 1000, Kind::Video));
    let fci = [0x03, 0xE9, 0x03, 0xE8, 0, 0, 1, 0, 0x03, 0xE8];
    let feedback = Feedback::parse(&fci).unwrap();
    assert_eq!(downlink.feedback(now, &feedback), Ok(false));
}
