use super::*;
use crate::rtcp::{Packet, parse};
use crate::testing::{Random, hex};
use std::collections::BTreeMap;
use std::time::Duration;

/// Builds all that is pending, as (sequence, arrival in µs).
fn flush(builder: &mut FeedbackBuilder) -> Vec<(u16, Option<i64>)> {
    let mut told = Vec::new();
    let mut out = Vec::new();
    while builder.build(1, 2, &mut out) {
        assert!(out.len() < 1300, "{} bytes", out.len());
        let Packet::TransportFeedback { sender: 1, media: 2, fci } =
            parse(&out).next().unwrap().unwrap()
        else {
            panic!()
        };
        told.extend(Feedback::parse(fci).unwrap().packets());
        out.clear();
    }
    assert!(!builder.is_pending());
    told
}

#[test]
fn random_arrivals_make_the_round_trip_within_a_tick() {
    let origin = Instant::now();
    let mut random = Random::new(17);
    for round in 0..300 {
        let mut builder = FeedbackBuilder::new();
        let mut sent = BTreeMap::new();
        let mut at_us = 10_000_000_u64;
        let mut sequence = 65_000 + random.below(600);
        for _ in 0..1 + random.below(900) {
            sequence += 1;
            // Losses from none to most, gaps from bursts to seconds.
            if random.below(10) < round % 9 {
                if random.below(40) == 0 {
                    sequence += random.below(300);
                }
                continue;
            }
            at_us += match random.below(200) {
                0 => random.below(20_000_000),
                1..20 => random.below(100_000),
                _ => random.below(3_000),
            };
            // Some come before the one that is recorded first.
            let at_us = if random.below(10) == 0 { at_us - random.below(90_000) } else { at_us };
            builder.record(sequence as u16, origin + Duration::from_micros(at_us));
            sent.insert(sequence, at_us as i64);
        }
        let Some((&first, &first_at)) = sent.first_key_value() else { continue };
        let told = flush(&mut builder);
        let last = *sent.last_key_value().unwrap().0;
        assert_eq!(told.len() as u64, last - first + 1);
        let told_first = told[0].1.unwrap();
        for (expected, (told, arrival)) in (first..=last).zip(told) {
            assert_eq!(told, expected as u16);
            match (sent.get(&expected), arrival) {
                (None, None) => {}
                (Some(sent), Some(arrival)) => {
                    let error = (arrival - told_first) - (sent - first_at);
                    assert!(error.abs() <= 250, "{error} µs");
                }
                other => panic!("{other:?}"),
            }
        }
    }
}

#[test]
fn nothing_is_told_twice_but_late_packets_are() {
    let origin = Instant::now();
    let at = |ms| origin + Duration::from_millis(ms);
    let mut builder = FeedbackBuilder::new();
    assert!(!builder.is_pending());
    assert!(flush(&mut builder).is_empty());
    builder.record(10, at(0));
    builder.record(12, at(2));
    builder.record(12, at(9)); // a copy: the first arrival counts
    assert_eq!(flush(&mut builder), [(10, Some(0)), (11, None), (12, Some(2000))]);
    assert!(flush(&mut builder).is_empty());
    builder.record(14, at(4));
    assert_eq!(flush(&mut builder), [(13, None), (14, Some(4000))]);
    builder.record(11, at(5));
    assert_eq!(
        flush(&mut builder),
        [(11, Some(5000)), (12, Some(2000)), (13, None), (14, Some(4000))]
    );
}

#[test]
fn the_clock_wraps_after_six_days_and_nothing_else_happens() {
    let origin = Instant::now();
    let wraps = Duration::from_micros((1_u64 << 31) * TICK_US as u64);
    let mut builder = FeedbackBuilder::new();
    builder.record(1, origin);
    assert_eq!(flush(&mut builder), [(1, Some(0))]);
    for (sequence, before_us) in [(2, 1_000), (3, 500), (4, 0)] {
        builder.record(sequence, origin + wraps - Duration::from_micros(before_us));
    }
    builder.record(5, origin + wraps + Duration::from_micros(500));
    let told: Vec<_> = flush(&mut builder).iter().map(|(_, arrival)| arrival.unwrap()).collect();
    let after: Vec<_> = told.iter().map(|arrival| arrival - told[0]).collect();
    // The tick of the wrap itself stands for nothing: that arrival is told one tick later.
    assert_eq!(after, [0, 500, 1_250, 1_500]);
}

#[test]
fn what_is_kept_is_bounded() {
    let now = Instant::now();
    let mut builder = FeedbackBuilder::new();
    for sequence in 0..60_000_u32 {
        builder.record(sequence as u16, now);
        assert!(builder.arrivals.len() <= MAX_SPAN);
    }
    assert_eq!(flush(&mut builder).len(), MAX_SPAN);
    assert_eq!(builder.arrivals.len() as u64, HISTORY);
    builder.record(20_000_u32 as u16, now);
    assert_eq!(flush(&mut builder), [(20_000, Some(0))]);
}

#[test]
fn numbers_that_jump_cost_no_more_than_a_gap() {
    let now = Instant::now();
    let mut builder = FeedbackBuilder::new();
    builder.record(0, now);
    let mut sequence = 0_u16;
    for jump in [MAX_GAP as u16 + 2, 8_000, 16_000, 32_000, 16_383, 9_000] {
        sequence = sequence.wrapping_add(jump);
        builder.record(sequence, now);
        assert_eq!(builder.arrivals.len(), 1, "after a jump of {jump}");
        assert_eq!(flush(&mut builder), [(sequence, Some(0))]);
    }
    builder.record(sequence.wrapping_add(MAX_GAP as u16 + 1), now);
    assert_eq!(builder.pending(), MAX_GAP as u64 + 1);
}

#[test]
fn a_number_is_near_if_it_follows_those_that_came() {
    let now = Instant::now();
    assert!(!FeedbackBuilder::new().is_near(7), "nothing came");
    for newest in [7_u16, 65_530, 65_535, 3] {
        let mut builder = FeedbackBuilder::new();
        builder.record(newest, now);
        for ahead in -40_i16..40 {
            let near = builder.is_near(newest.wrapping_add_signed(ahead));
            assert_eq!(near, (-16..=16).contains(&ahead), "{newest} and {ahead}");
        }
    }
}

#[test]
fn reads_every_kind_of_chunk() {
    // Base 5, 14 packets, reference 3, count 7. Run of 2 small; two-bit: large, missing, small,
    // then 4 missing; one-bit: its first 5 of which two are small.
    let fci = hex("0005 000e 000003 07  2002  e100  a800  04 08 fffc 01 02 03");
    let feedback = Feedback::parse(&fci).unwrap();
    assert_eq!((feedback.base_sequence, feedback.status_count), (5, 14));
    assert_eq!((feedback.reference_time, feedback.feedback_count), (3, 7));
    let at = |ticks: i64| Some(3 * 64_000 + ticks * 250);
    let arrivals: Vec<_> = feedback.packets().map(|(_, arrival)| arrival).collect();
    let none = None;
    assert_eq!(
        arrivals,
        [
            at(4),
            at(12), // run
            at(8),
            none,
            at(9),
            none,
            none,
            none,
            none, // two-bit
            at(11),
            none,
            at(14),
            none,
            none, // one-bit: 10100
        ]
    );
}

#[test]
fn negative_reference_times_are_read() {
    let fci = hex("0000 0001 ffffff 00  2001  00");
    let feedback = Feedback::parse(&fci).unwrap();
    assert_eq!(feedback.packets().next(), Some((0, Some(-64_000))));
}

#[test]
fn malformed_feedback_is_an_error() {
    let error = |digits| Feedback::parse(&hex(digits)).unwrap_err();
    assert_eq!(error("0005 000e 000003"), ParseError::TooShort);
    assert_eq!(error("0000 0001 000000 00"), ParseError::TooShort);
    assert_eq!(error("0000 0001 000000 00 2001"), ParseError::TooShort);
    assert_eq!(error("0000 0001 000000 00 6001 0000"), ParseError::BadValue);
    assert_eq!(error("0000 0001 000000 00 f000 0000"), ParseError::BadValue);
    // Runs of nothing do not hang.
    assert_eq!(error("0000 0001 000000 00 0000 0000 0000"), ParseError::TooShort);
    let mut random = Random::new(23);
    let mut buf = [0; 100];
    let mut fine = 0;
    for _ in 0..100_000 {
        let len = random.below(100) as usize;
        random.bytes(&mut buf[..len]);
        buf[2] = 0;
        if let Ok(feedback) = Feedback::parse(&buf[..len]) {
            assert_eq!(feedback.packets().count(), usize::from(feedback.status_count));
            fine += 1;
        }
    }
    assert!(fine > 100);
}

#[test]
fn many_packets_are_told_soon_and_few_later() {
    let begin = Instant::now();
    let mut builder = FeedbackBuilder::new();
    let mut told = Vec::new();
    assert!(!builder.is_due(FEEDBACK_LONGEST), "there is nothing to tell");
    for sequence in 0..10 {
        assert!(!builder.is_due(Duration::from_millis(50)));
        builder.record(sequence, begin);
        assert!(builder.is_due(FEEDBACK_LONGEST));
    }
    assert!(builder.is_due(Duration::ZERO));
    assert!(builder.build(1, 2, &mut told));
    assert_eq!((builder.pending(), builder.is_due(FEEDBACK_LONGEST)), (0, false));
}

#[test]
fn runs_of_what_did_not_come_are_read_where_somebody_looks() {
    // 8 runs of 7500 numbers that did not come, and one that came behind each.
    let fci = |base: u16, arrivals: bool| {
        let mut fci = base.to_be_bytes().to_vec();
        fci.extend((if arrivals { 60_008_u16 } else { 60_000 }).to_be_bytes());
        fci.extend([0, 0, 1, 0]);
        for _ in 0..8 {
            fci.extend(7500_u16.to_be_bytes());
            if arrivals {
                fci.extend((1 << 13 | 1_u16).to_be_bytes());
            }
        }
        fci.extend(if arrivals { &[4; 8][..] } else { &[] });
        fci
    };
    for (base, first, count) in
        [(0, 0, 256), (65_000, 100, 300), (5, 65_500, 16_384), (40_000, 34_000, 1), (9, 9, 0)]
    {
        for arrivals in [false, true] {
            let bytes = fci(base, arrivals);
            let feedback = Feedback::parse(&bytes).unwrap();
            assert_eq!(feedback.packets().count(), usize::from(feedback.status_count));
            let within = |number: u16| usize::from(number.wrapping_sub(first)) < count;
            let told: Vec<_> = feedback.packets_within(first, count).collect();
            let all = feedback.packets();
            let expected: Vec<_> = all.filter(|(n, came)| came.is_some() || within(*n)).collect();
            assert_eq!(told, expected, "{base}, {first}, {count}, {arrivals}");
            assert!(told.len() <= count + 8);
        }
    }
}
