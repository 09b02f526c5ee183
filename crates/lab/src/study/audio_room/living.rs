//! The room that lives on: leads its people along the timeline, and judges each number while they are all there.

use super::edge::Edge;
use super::health::Health;
use super::timeline::{Part, Timeline, Verdict};
use crate::base::{mean, percentile, percentile_of, sorted};
use crate::judge::bottleneck::{self, Break, GeneratorHealth};
use crate::judge::generator;
use crate::record::{MIX, MachineRecord, SampleRecord};
use crate::run::{Leader, Seen};
use crate::scenario::Crowd;
use std::sync::Arc;

/// Once all are there, what they hear counts from so much later on: a sample tells of the 3 s before it.
const SETTLES_MS: u64 = 5_000;
/// Beside the time that joining takes, all have so long to be there.
const PATIENCE_MS: u64 = 20_000;

/// So many come more slowly than the others.
const LAST: u32 = 40;

/// How fast it goes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pace {
    /// So many come or leave a second …
    pub(super) per_second: f64,
    /// … and so many as soon as only [`LAST`] are to come or to leave: what coming costs should not end a room that
    /// carries all who are there.
    pub(super) last_per_second: f64,
    /// So long a number is judged.
    pub(super) hold_ms: u64,
}

impl Pace {
    /// How long so many take, in seconds.
    fn takes_s(self, people: u32) -> f64 {
        let last = people.min(LAST);
        f64::from(people - last) / self.per_second + f64::from(last) / self.last_per_second
    }
}

/// A number of people, and how it went.
pub(super) struct Trial {
    /// When it was judged, in seconds since the start.
    pub(super) from_s: f64,
    /// How many were asked for.
    pub(super) wanted: u32,
    /// How many were there at the end.
    pub(super) people: u32,
    pub(super) part: Part,
    pub(super) verdict: Verdict,
    /// Of all windows together.
    pub(super) health: Health,
    /// What it lacks, in words.
    pub(super) lacks: Vec<String>,
    /// Windows that were not healthy, of how many.
    pub(super) bad: (usize, usize),
    /// The resource of the server that was at its end; none where it was healthy.
    pub(super) broke: Option<String>,
    /// What speaks for it.
    pub(super) evidence: Vec<String>,
    /// Why the generator was at its end; empty: it was not.
    pub(super) limits: Vec<String>,
    /// Usage of the machine meanwhile.
    pub(super) machine: Vec<MachineRecord>,
}

/// Three seconds of the room.
#[derive(Debug, Clone, Default)]
pub(super) struct Moment {
    pub(super) t_s: f64,
    pub(super) people: f64,
    /// Of everybody's MOS-LQ: least, one person of a hundred, average, median, most.
    pub(super) mos_lq: [Option<f64>; 5],
    /// The same of MOS-CQ, which knows of delay.
    pub(super) mos_cq: [Option<f64>; 5],
    /// Of 95 in 100 measurements.
    pub(super) mouth_to_ear_ms: Option<f64>,
    pub(super) gap_ms: Option<f64>,
}

/// What is done now.
enum Doing {
    /// People come or leave; it is judged at the latest from then on.
    Moving { until_ms: u64 },
    /// What they hear counts from then on.
    Judging { from_ms: u64 },
}

/// The living room.
pub(super) struct Living {
    timeline: Timeline,
    pace: Pace,
    doing: Doing,
    /// Of the number that is judged now.
    samples: Vec<Arc<SampleRecord>>,
    machine: Vec<MachineRecord>,
    /// Windows of it in which somebody told something.
    windows: usize,
    /// Those that were not healthy, and what the last of them lacked.
    bad: (usize, Vec<String>),
    pub(super) trials: Vec<Trial>,
    pub(super) moments: Vec<Moment>,
    /// What was sampled of the largest healthy number, and that number.
    pub(super) best: Option<(u32, Vec<Arc<SampleRecord>>)>,
}

impl Living {
    pub(super) fn new(timeline: Timeline, pace: Pace) -> Self {
        let mut living = Self {
            timeline,
            pace,
            doing: Doing::Judging { from_ms: 0 },
            samples: Vec::new(),
            machine: Vec::new(),
            windows: 0,
            bad: Default::default(),
            trials: Vec::new(),
            moments: Vec::new(),
            best: None,
        };
        living.move_on(0, 0);
        living
    }

    /// One a search.
    pub(super) fn edges(&self) -> &[Edge] {
        &self.timeline.edges
    }

    fn move_on(&mut self, now_ms: u64, here: u32) {
        let (people, part) = self.timeline.now();
        let takes_s = self.pace.takes_s(people.abs_diff(here));
        self.doing = Doing::Moving { until_ms: now_ms + (takes_s * 1000.0) as u64 + PATIENCE_MS };
        errln!("  {:.0} s: {here} people, {} to {people}", now_ms as f64 / 1000.0, part.as_str());
    }

    /// Judges the number that is there: not healthy is what was not so in half of its windows, since a machine's hiccup
    /// fills one or two. False: the search is over.
    fn judge(&mut self, from_ms: u64, here: u32) -> bool {
        let (wanted, part) = self.timeline.now();
        let samples = std::mem::take(&mut self.samples);
        let machine = std::mem::take(&mut self.machine);
        let (bad, of_one) = std::mem::take(&mut self.bad);
        let bad = (bad, std::mem::take(&mut self.windows));
        let health = Health::of(&samples, &machine, here >= wanted);
        let healthy = here >= wanted && bad.0 * 2 < bad.1;
        // What half of the windows lack can lie below the limits of all together.
        let lacks = Some(health.lacks()).filter(|lacks| !lacks.is_empty()).unwrap_or(of_one);
        let lag_ms = machine.iter().map(|one| one.generator.timer_lag_ms_p99).fold(0.0, f64::max);
        let limits = generator::limits(machine.iter().map(|one| &one.generator), lag_ms);
        let verdict = match (healthy, limits.is_empty()) {
            (true, _) => Verdict::Healthy,
            (false, true) => Verdict::Broken,
            (false, false) => Verdict::Generator,
        };
        let found = (verdict == Verdict::Broken).then(|| {
            let middle = machine.get(machine.len() / 2).map_or(from_ms, |one| one.t_ms);
            let broke = Break { t_ms: middle, why: lacks.join(", "), ..Break::default() };
            bottleneck::judge(&machine, &GeneratorHealth::default(), Some(&broke))
        });
        let said = match verdict {
            Verdict::Healthy => "healthy".to_owned(),
            Verdict::Broken => format!("not healthy: {}", lacks.join(", ")),
            Verdict::Generator => format!("the generator is at its limit: {}", lacks.join(", ")),
        };
        errln!("  {here} people, {} of {} windows bad: {said}", bad.0, bad.1);
        if verdict == Verdict::Healthy && self.best.as_ref().is_none_or(|best| here > best.0) {
            self.best = Some((here, samples));
        }
        self.trials.push(Trial {
            from_s: from_ms as f64 / 1000.0,
            wanted,
            people: here,
            part,
            verdict,
            health,
            lacks,
            bad,
            broke: found.as_ref().and_then(|found| found.first.clone()),
            evidence: found.map(|found| found.evidence).unwrap_or_default(),
            limits: limits.iter().map(ToString::to_string).collect(),
            machine,
        });
        self.timeline.went(verdict)
    }
}

impl Leader for Living {
    fn look(&mut self, seen: &Seen<'_>) -> Option<Crowd> {
        let here = seen.connected as u32;
        self.moments.push(moment(seen));
        match self.doing {
            Doing::Moving { until_ms } => {
                let (wanted, _) = self.timeline.now();
                if here == wanted || seen.t_ms >= until_ms {
                    self.doing = Doing::Judging { from_ms: seen.t_ms + SETTLES_MS };
                }
            }
            Doing::Judging { from_ms } if seen.t_ms < from_ms => {}
            Doing::Judging { from_ms } => {
                let of_this = |one: &&Arc<SampleRecord>| one.t_ms >= from_ms;
                let window: Vec<_> = seen.samples.iter().filter(of_this).cloned().collect();
                // A look right after they began to be judged has nothing yet.
                if !window.is_empty() {
                    self.windows += 1;
                    let health = Health::of(&window, std::slice::from_ref(seen.machine), true);
                    let lacks = health.lacks();
                    if !lacks.is_empty() {
                        self.bad = (self.bad.0 + 1, lacks);
                    }
                }
                self.samples.extend(window);
                self.machine.push(seen.machine.clone());
                if seen.t_ms >= from_ms + self.pace.hold_ms {
                    if !self.judge(from_ms, here) {
                        return None;
                    }
                    self.move_on(seen.t_ms, here);
                }
            }
        }
        let (people, _) = self.timeline.now();
        let per_second = match here.abs_diff(people) <= LAST {
            true => self.pace.last_per_second,
            false => self.pace.per_second,
        };
        Some(Crowd { people, per_second })
    }
}

fn moment(seen: &Seen<'_>) -> Moment {
    let rows = || {
        let rows = seen.samples.iter().flat_map(|record| &record.sample.received);
        rows.filter(|row| row.track == MIX)
    };
    let spread = |values: Vec<f64>| {
        let nth = |percent| percentile(&values, percent);
        [nth(0.0), nth(1.0), mean(values.iter().copied()), nth(50.0), nth(100.0)]
    };
    Moment {
        t_s: seen.t_ms as f64 / 1000.0,
        people: seen.connected as f64,
        mos_lq: spread(sorted(rows().filter_map(|row| row.mos_lq))),
        mos_cq: spread(sorted(rows().filter_map(|row| row.mos_cq))),
        mouth_to_ear_ms: percentile_of(rows().filter_map(|row| row.mouth_to_ear_ms), 95.0),
        gap_ms: rows().filter_map(|row| row.gap_ms).reduce(f64::max),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{PersonKind, ServerUsage};
    use wire::QualitySample;
    use wire::quality::ReceivedTrack;

    /// Plays against a server whose sound is late from so many people on: MOS knows nothing of it.
    fn play(capacity: usize) -> Living {
        let pace = Pace { per_second: 10.0, last_per_second: 5.0, hold_ms: 9_000 };
        let mut living = Living::new(Timeline::new(10, 40), pace);
        let (mut connected, mut t_ms) = (0, 0);
        loop {
            t_ms += 3_000;
            let row = ReceivedTrack {
                track: MIX.to_owned(),
                packets_received: 150,
                mos_lq: Some(4.3),
                mouth_to_ear_ms: Some(if connected > capacity { 900.0 } else { 60.0 }),
                gap_ms: Some(20.0),
                mos_cq: None,
                packets_lost: 0,
                ..crate::testing::audio_row("p", MIX, 150)
            };
            let sample = QualitySample {
                interval_ms: 3_000,
                received: vec![row],
                ..QualitySample::default()
            };
            let samples: Vec<Arc<SampleRecord>> = (0..connected)
                .map(|number| {
                    let (person, kind) = (format!("bot-{number}"), PersonKind::Bot);
                    Arc::new(SampleRecord { t_ms, person, kind, sample: sample.clone() })
                })
                .collect();
            let mix = [("moim_mix_ticks_total".to_owned(), 150)].into();
            let server = ServerUsage { cpu_cores: Some(0.2), mix, ..ServerUsage::default() };
            let machine = MachineRecord { t_ms, server: Some(server), ..MachineRecord::default() };
            let seen = Seen { t_ms, connected, samples: &samples, machine: &machine };
            match living.look(&seen) {
                // Half of those who come are there at the next look; who leaves is gone.
                Some(crowd) => {
                    let wanted = crowd.people as usize;
                    connected = wanted.min((connected + wanted).div_ceil(2));
                }
                None => return living,
            }
            assert!(t_ms < 3_600_000, "it comes to an end");
        }
    }

    #[test]
    fn late_sound_is_not_healthy_whatever_the_score_says() {
        let living = play(25);
        let edges: Vec<u32> = living.edges().iter().map(|edge| edge.people).collect();
        assert_eq!(edges, [25, 25]);
        let broken = living.trials.iter().filter(|trial| trial.verdict == Verdict::Broken);
        for trial in broken.clone() {
            assert!(trial.people > 25 && trial.health.mos_lq_median == Some(4.3));
            assert_eq!(trial.health.lacks(), ["900 ms from mouth to ear"]);
        }
        assert!(broken.count() >= 3);
        assert_eq!(living.best.as_ref().map(|best| best.0), Some(25));
        assert!(living.trials.iter().all(|trial| trial.people == trial.wanted));
        assert!(living.moments.iter().any(|moment| moment.mos_cq[0].is_none()));
    }

    #[test]
    fn all_that_were_tried_may_be_healthy() {
        let living = play(1000);
        assert!(living.edges().is_empty());
        assert_eq!(living.trials.iter().map(|trial| trial.people).max(), Some(40));
    }
}
