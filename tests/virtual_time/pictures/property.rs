//! Keyframes of any size on paths of any kind: they are shown in time, again after each dip, and sound does not wait for them.
//!
//! A case is drawn from a seed. The seeds that `make test` plays cover all pairs of values; `make evidence-rooms` plays more.

use super::super::{number, seeds};
use super::call::{Call, FAST, Feedback, MS, S, link, pictures};
use crate::virtual_time::Random;
use lab::link::{LinkSpec, Loss};
use std::collections::BTreeSet;
use std::time::Duration;

/// What happens to the link in the middle of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Trouble {
    Nothing,
    /// It carries three quarters of what flows, for so many seconds.
    Dip(u64),
    /// It carries nothing.
    Outage(u64),
}

const KEYFRAMES: [usize; 5] = [5_000, 20_000, 60_000, 100_000, 300_000];
const LINKS_KBPS: [u32; 6] = [300, 600, 1500, 3000, 8000, 20_000];
const FEEDBACK: [Feedback; 4] =
    [Feedback::All, Feedback::Pictures, Feedback::Remb, Feedback::Reports];
const LOSSES_PERMILLE: [u32; 3] = [0, 20, 50];
const ROUND_TRIPS_MS: [u32; 3] = [20, 100, 300];
const RECEIVERS: [usize; 2] = [1, 3];
const TROUBLES: [Trouble; 7] = [
    Trouble::Nothing,
    Trouble::Dip(1),
    Trouble::Dip(4),
    Trouble::Dip(10),
    Trouble::Outage(1),
    Trouble::Outage(5),
    Trouble::Outage(10),
];
/// How many seeds cover all pairs of values.
const SEEDS: u64 = 200;
/// Evidence plays so many times as many as of other tests.
const EVIDENCE_TIMES: u64 = 5;
#[derive(Debug, Clone, Copy)]
struct Case {
    keyframe: usize,
    link_kbps: u32,
    feedback: Feedback,
    loss_permille: u32,
    rtt_ms: u32,
    receivers: usize,
    trouble: Trouble,
}

impl Case {
    fn of(seed: u64) -> Self {
        let mut random = Random(seed);
        let mut draw = |count: usize| random.below(count as u64) as usize;
        Self {
            keyframe: KEYFRAMES[draw(KEYFRAMES.len())],
            link_kbps: LINKS_KBPS[draw(LINKS_KBPS.len())],
            feedback: FEEDBACK[draw(FEEDBACK.len())],
            loss_permille: LOSSES_PERMILLE[draw(LOSSES_PERMILLE.len())],
            rtt_ms: ROUND_TRIPS_MS[draw(ROUND_TRIPS_MS.len())],
            receivers: RECEIVERS[draw(RECEIVERS.len())],
            trouble: TROUBLES[draw(TROUBLES.len())],
        }
    }

    /// The value of each factor, by its place.
    fn values(&self) -> [usize; 7] {
        fn at<T: PartialEq>(all: &[T], value: &T) -> usize {
            all.iter().position(|known| known == value).expect("it is one of them")
        }
        [
            at(&KEYFRAMES, &self.keyframe),
            at(&LINKS_KBPS, &self.link_kbps),
            at(&FEEDBACK, &self.feedback),
            at(&LOSSES_PERMILLE, &self.loss_permille),
            at(&ROUND_TRIPS_MS, &self.rtt_ms),
            at(&RECEIVERS, &self.receivers),
            at(&TROUBLES, &self.trouble),
        ]
    }

    /// What the frames between keyframes bring.
    fn kbps(&self) -> u32 {
        (self.link_kbps * 2 / 5).min(1000)
    }

    fn link(&self) -> LinkSpec {
        link(self.link_kbps, self.rtt_ms, self.loss_permille)
    }

    /// Whether a keyframe may take so long that the frames after it do not wait: the picture is a still then.
    fn is_still(&self) -> bool {
        let bps = 0.7 * f64::from(self.link_kbps) * 1000.0 - 80_000.0;
        let takes = self.keyframe as f64 * 8.0 / bps;
        f64::from(self.kbps()) * 1000.0 * takes > bps
    }

    /// The time in which a keyframe has to be shown: what it takes at 70 % of the link's rate, and 3 s. Those who say nothing
    /// but what they lose wait longer.
    fn within(&self) -> Duration {
        let takes = self.keyframe as f64 * 8.0 / (0.7 * f64::from(self.link_kbps) * 1000.0);
        match self.feedback {
            // Reports come once a second, and only losses tell that a path is slow.
            Feedback::Reports => Duration::from_secs_f64(2.0 * takes) + 10 * S,
            _ => Duration::from_secs_f64(takes) + 3 * S,
        }
    }
}

/// What is wrong with the pictures and the sound of a case.
fn faults(seed: u64, case: Case) -> Vec<String> {
    let mut call = Call::new(seed, FAST, &pictures(case.keyframe, 25, case.kbps()));
    (0..case.receivers).for_each(|_| call.look_on(case.link(), case.feedback));
    let mut faults = Vec::new();
    let came = call.now();
    call.run(case.within() + S);
    shown_within(&call, case, came, "at first", &mut faults);
    call.run(8 * S);
    let quiet = call.now();
    let mut settled = quiet;
    if case.trouble != Trouble::Nothing {
        let (span, spec) = match case.trouble {
            Trouble::Outage(s) => (s, LinkSpec { loss: Loss::Random(1.0), ..case.link() }),
            Trouble::Dip(s) => (s, link(case.kbps() * 3 / 4, case.rtt_ms, case.loss_permille)),
            Trouble::Nothing => unreachable!("there is none"),
        };
        call.set_links(spec);
        let end = call.now() + span as u32 * S;
        // Reports come once a second, and say nothing of a rate.
        if matches!(case.trouble, Trouble::Dip(4..)) && case.feedback != Feedback::Reports {
            paused_within(&mut call, case, &mut faults);
        }
        call.run(end - call.now());
        call.set_links(case.link());
        let back = call.now();
        settled = back + 2 * S;
        call.run(case.within() + S);
        shown_within(&call, case, back + MS * case.rtt_ms / 2, "after the trouble", &mut faults);
    }
    call.run(8 * S);
    for viewer in 0..case.receivers {
        let holes = call.holes(viewer);
        if holes > 0 {
            faults.push(format!("{holes} numbers never left to viewer {viewer}"));
        }
        let eye = call.viewers[viewer].eye.borrow();
        let mut waits: Vec<_> = eye
            .sound
            .iter()
            .filter(|(at, _)| (quiet - 6 * S..quiet).contains(at) || *at > settled)
            .filter_map(|(_, wait)| *wait)
            .collect();
        waits.sort_unstable();
        let p95 = waits[(waits.len() * 95 / 100).min(waits.len() - 1)];
        // Without feedback nothing but a full queue tells that a path is slow.
        if p95 > 100 * MS && case.feedback != Feedback::Reports {
            faults.push(format!("sound waits {p95:?} in the link's queue (p95)"));
        }
    }
    call.world.assert_invariants(seed);
    faults
}

/// The path carries less than its picture takes: notes viewers who are not told within 3 s, and a round trip, that it is paused.
fn paused_within(call: &mut Call, case: Case, faults: &mut Vec<String>) {
    let end = call.now() + 3 * S + MS * case.rtt_ms;
    let mut untold: Vec<_> = (0..case.receivers).collect();
    while call.now() < end {
        call.run((end - call.now()).min(250 * MS));
        untold.retain(|viewer| !call.is_paused(*viewer));
    }
    if !untold.is_empty() {
        faults.push(format!("viewers {untold:?} are not told that their picture is paused"));
    }
}

/// Notes viewers who saw nothing in time after this moment.
fn shown_within(
    call: &Call,
    case: Case,
    from: std::time::Instant,
    when: &str,
    faults: &mut Vec<String>,
) {
    for viewer in 0..case.receivers {
        // A frame that was on its way already does not count.
        let eye = call.viewers[viewer].eye.borrow();
        let after = from + MS * 300;
        let first = eye.shown.iter().find(|shown| shown.at > after).map(|shown| shown.at - from);
        let still = case.is_still() && call.is_paused(viewer) && !eye.shown.is_empty();
        if !still && first.is_none_or(|after| after > case.within()) {
            faults
                .push(format!("{when} viewer {viewer} saw {first:?}, not in {:?}", case.within()));
        }
    }
}

#[test]
fn the_seeds_cover_all_pairs_of_values() {
    let counts = [
        KEYFRAMES.len(),
        LINKS_KBPS.len(),
        FEEDBACK.len(),
        LOSSES_PERMILLE.len(),
        ROUND_TRIPS_MS.len(),
        RECEIVERS.len(),
        TROUBLES.len(),
    ];
    let mut pairs = BTreeSet::new();
    for seed in 1..=SEEDS {
        let values = Case::of(seed).values();
        for one in 0..values.len() {
            for other in one + 1..values.len() {
                pairs.insert((one, values[one], other, values[other]));
            }
        }
    }
    let all: usize = (0..counts.len())
        .flat_map(|one| (one + 1..counts.len()).map(move |other| counts[one] * counts[other]))
        .sum();
    assert_eq!(pairs.len(), all, "of all pairs");
}

#[test]
fn keyframes_of_any_size_are_shown_in_time_on_any_path() {
    let (played, threads): (Vec<u64>, _) = match number("MOIM_SEEDS") {
        Some(count) if number("MOIM_SEED").is_none() => {
            let threads = std::thread::available_parallelism().map_or(1, usize::from);
            ((1..=EVIDENCE_TIMES * count).collect(), threads)
        }
        // Other tests run meanwhile.
        _ => (seeds(SEEDS, &[]), 1),
    };
    let play = |seed: u64| {
        let case = Case::of(seed);
        let faults = faults(seed, case);
        if number("MOIM_SEED").is_some() || !faults.is_empty() {
            println!("seed {seed}: {case:?}: {faults:?}");
        }
        (!faults.is_empty()).then_some(seed)
    };
    let share = |nth: usize| {
        let seeds = played.iter().skip(nth).step_by(threads);
        seeds.filter_map(|seed| play(*seed)).collect::<Vec<_>>()
    };
    let mut wrong = std::thread::scope(|scope| {
        let shares: Vec<_> = (0..threads).map(|nth| scope.spawn(move || share(nth))).collect();
        let shares = shares.into_iter().map(|share| share.join().expect("what is broken was told"));
        shares.flatten().collect::<Vec<_>>()
    });
    wrong.sort_unstable();
    assert!(wrong.is_empty(), "{} of {} seeds: {wrong:?}", wrong.len(), played.len());
}
