//! Where a run stands, as far as it is shown: people, thresholds so far, machines, notes.

use crate::base::{Url, mean, percentile, short};
use crate::judge::generator;
use crate::judge::threshold::{Threshold, ThresholdResult, Windows};
use crate::people::sockets::Now;
use crate::people::stage::News;
use crate::record::{MachineRecord, SampleRecord};
use crate::scenario::Scenario;
use std::cmp::Ordering;
use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};
use wire::quality::{ReceivedTrack, SAMPLE_INTERVAL_MS};

/// So many notes are kept for the view.
const MAX_NOTES: usize = 200;
/// Who has given no sample for so many windows is not shown: they have left.
const STALE_WINDOWS: u64 = 3;
/// Judging takes at most this share of the time of its thread.
const JUDGE_SHARE: u32 = 100;

/// What is known of a run before it begins.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct About {
    /// The scenario's name.
    pub name: String,
    /// What is tested.
    pub target: String,
    /// How long the run lasts.
    pub duration: Duration,
    /// When the last person joins.
    pub joining: Duration,
    /// People who should be there.
    pub people: usize,
    /// Sockets without a room that should be open.
    pub sockets: u32,
    /// What must hold.
    pub thresholds: Vec<Threshold>,
}

impl About {
    /// What a scenario says of itself.
    pub fn of(scenario: &Scenario, target: &Url) -> Self {
        let people = scenario.bots() + scenario.chromium();
        let last = f64::from(people.saturating_sub(1)) / scenario.join_per_second;
        Self {
            name: scenario.name.clone(),
            target: target.to_string(),
            duration: scenario.duration,
            joining: Duration::try_from_secs_f64(last).unwrap_or_default(),
            people: people as usize,
            sockets: scenario.sockets.iter().map(|group| group.connections).sum(),
            thresholds: scenario.thresholds.clone(),
        }
    }
}

/// Which part of a run it is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Phase {
    /// Under way: joining until the last person's time, then steady.
    #[default]
    Under,
    /// Everyone leaves.
    Leaving,
}

/// A person's last sample, reduced within the person as `user_pN` does it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PersonLine {
    /// Who.
    pub name: String,
    /// End of the sample, in milliseconds since the start of the run.
    pub t_ms: u64,
    /// Whether anything came in.
    pub received: bool,
    /// Median over tracks.
    pub mos_cq: Option<f64>,
    /// All lost over all expected, in percent.
    pub loss_pct: Option<f64>,
    /// Median over tracks, in milliseconds.
    pub jitter_ms: Option<f64>,
    /// To the server, in milliseconds.
    pub rtt_ms: Option<f64>,
    /// Median over tracks, in milliseconds.
    pub mouth_to_ear_ms: Option<f64>,
    /// Mean over tracks.
    pub freeze_ratio: Option<f64>,
}

impl PersonLine {
    /// Reduces a sample.
    pub fn of(record: &SampleRecord) -> Self {
        let rows = &record.sample.received;
        let values = |pick: fn(&ReceivedTrack) -> Option<f64>| {
            let mut values: Vec<f64> = rows.iter().filter_map(pick).collect();
            values.sort_by(f64::total_cmp);
            values
        };
        let median = |pick| percentile(&values(pick), 50.0);
        let judged = rows.iter().filter(|row| row.loss_pct.is_some());
        let (lost, expected) = judged.fold((0, 0), |(lost, expected), row| {
            (lost + row.packets_lost, expected + row.packets_lost + row.packets_received)
        });
        let freezes = values(|row| row.freeze_ratio);
        Self {
            name: record.person.clone(),
            t_ms: record.t_ms,
            received: rows.iter().any(|row| row.packets_received > 0),
            mos_cq: median(|row| row.mos_cq),
            loss_pct: (expected > 0).then(|| 100.0 * lost as f64 / expected as f64),
            jitter_ms: median(|row| row.jitter_ms),
            rtt_ms: record.sample.rtt_ms,
            mouth_to_ear_ms: median(|row| row.mouth_to_ear_ms),
            freeze_ratio: mean(freezes.iter().copied()),
        }
    }

    /// Worse people come first: who receives nothing, then by MOS-CQ, loss and freezes. What is
    /// unknown is no better than what is best.
    fn worse_first(&self, other: &Self) -> Ordering {
        let key = |line: &Self| {
            let mos = line.mos_cq.unwrap_or(f64::INFINITY);
            let (loss, freeze) = (line.loss_pct.unwrap_or(0.0), line.freeze_ratio.unwrap_or(0.0));
            (line.received, mos, -loss, -freeze)
        };
        let (a, b) = (key(self), key(other));
        let by_figures = a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)).then(a.2.total_cmp(&b.2));
        let by_name = || (self.name.len(), &self.name).cmp(&(other.name.len(), &other.name));
        by_figures.then(a.3.total_cmp(&b.3)).then_with(by_name)
    }
}

/// Where a run stands.
#[derive(Debug, Default)]
pub struct Standing {
    about: About,
    elapsed: Duration,
    phase: Phase,
    /// Whether anything was told yet.
    begun: bool,
    /// Somebody has asked for the end.
    ending: bool,
    connected: usize,
    joined: usize,
    sockets: Now,
    faults: usize,
    people: BTreeMap<String, PersonLine>,
    /// What the thresholds are judged by.
    samples: Windows,
    thresholds: Vec<ThresholdResult>,
    /// Samples have come that were not judged.
    unjudged: bool,
    judge_at: Option<Instant>,
    machine: Option<MachineRecord>,
    /// Windows of the machine so far, and those in which the generator was at its limit.
    windows: (u32, u32),
    notes: VecDeque<String>,
}

impl Standing {
    /// A run that has not begun.
    pub fn new(about: About) -> Self {
        let samples = Windows::new(&about.thresholds);
        let thresholds = about.thresholds.iter().map(|one| samples.judge(one)).collect();
        Self { samples, thresholds, about, ..Self::default() }
    }

    /// Takes what is new.
    pub fn take(&mut self, elapsed: Duration, phase: Phase, mut sockets: Now, news: News) {
        self.begun = true;
        self.unjudged |= !sockets.counts.is_empty();
        self.samples.sockets(std::mem::take(&mut sockets.counts));
        (self.elapsed, self.phase, self.sockets) = (elapsed, phase, sockets);
        (self.connected, self.joined, self.faults) = (news.connected, news.joined, news.faults);
        news.joins.iter().for_each(|join| self.samples.join(join));
        self.unjudged |= !news.samples.is_empty() || !news.joins.is_empty();
        for record in &news.samples {
            self.samples.add(record);
            self.people.insert(record.person.clone(), PersonLine::of(record));
        }
        self.notes.extend(news.notes);
        while self.notes.len() > MAX_NOTES {
            self.notes.pop_front();
        }
    }

    /// Takes what server and generator used in a window.
    pub fn machine(&mut self, record: MachineRecord) {
        self.windows.0 += 1;
        self.machine = Some(record);
        self.windows.1 += u32::from(self.generator_limit().is_some());
    }

    /// Judges the thresholds over all samples so far, if some are new: once a window, and where
    /// that takes long less often.
    pub fn judge(&mut self) {
        let now = Instant::now();
        if !self.unjudged || self.judge_at.is_some_and(|at| now < at) {
            return;
        }
        self.unjudged = false;
        let thresholds = self.about.thresholds.iter();
        self.thresholds = thresholds.map(|one| self.samples.judge(one)).collect();
        let window = Duration::from_millis(SAMPLE_INTERVAL_MS);
        self.judge_at = Some(now + window.max(now.elapsed() * JUDGE_SHARE));
    }

    /// What is known of the run.
    pub fn about(&self) -> &About {
        &self.about
    }

    /// Time since the first join.
    pub fn elapsed(&self) -> Duration {
        self.elapsed
    }

    /// Whether anything was told yet.
    pub fn begun(&self) -> bool {
        self.begun
    }

    /// Somebody has asked for the end.
    pub fn ending(&mut self) {
        self.ending = true;
    }

    /// The word for where the run is.
    pub fn phase(&self) -> &'static str {
        match self.phase {
            _ if !self.begun => "starting",
            Phase::Leaving => "leaving",
            Phase::Under if self.ending => "ending",
            Phase::Under if self.elapsed < self.about.joining => "joining",
            Phase::Under => "steady",
        }
    }

    /// People connected now, and those who have ever joined.
    pub fn heads(&self) -> (usize, usize) {
        (self.connected, self.joined)
    }

    /// Sockets without a room, as they are now.
    pub fn sockets(&self) -> &Now {
        &self.sockets
    }

    /// What they answer, in words; none while nothing is offered.
    pub fn answers(&self) -> Option<String> {
        let Now { offered_per_s, answered_per_s, p99_ms, .. } = &self.sockets;
        (*offered_per_s > 0.0 || *answered_per_s > 0.0).then(|| {
            let p99 = p99_ms.map_or(String::new(), |ms| format!(", p99 {} ms", short(ms)));
            format!("{answered_per_s:.0} of {offered_per_s:.0} messages/s answered{p99}")
        })
    }

    /// Faults so far.
    pub fn faults(&self) -> usize {
        self.faults
    }

    /// At most `count` people by their last samples, the worst first, and how many there are.
    pub fn worst(&self, count: usize) -> (Vec<&PersonLine>, usize) {
        let newest = self.people.values().map(|line| line.t_ms).max().unwrap_or(0);
        let oldest = newest.saturating_sub(STALE_WINDOWS * SAMPLE_INTERVAL_MS);
        let mut people: Vec<_> = self.people.values().filter(|line| line.t_ms >= oldest).collect();
        people.sort_by(|a, b| a.worse_first(b));
        let all = people.len();
        people.truncate(count);
        (people, all)
    }

    /// The thresholds so far, those that fail first; without a value there is no sample yet.
    pub fn thresholds(&self) -> Vec<&ThresholdResult> {
        let mut results: Vec<_> = self.thresholds.iter().collect();
        results.sort_by_key(|result| result.ok || result.value.is_none());
        results
    }

    /// What server and generator used in the last window.
    pub fn last_machine(&self) -> Option<&MachineRecord> {
        self.machine.as_ref()
    }

    /// Windows so far, and those in which the generator was at its limit.
    pub fn windows(&self) -> (u32, u32) {
        self.windows
    }

    /// Why the generator was at its limit in the last window, if it was.
    pub fn generator_limit(&self) -> Option<String> {
        let usage = &self.machine.as_ref()?.generator;
        let limits = generator::limits(std::iter::once(usage), usage.timer_lag_ms_p99);
        limits.first().map(ToString::to_string)
    }

    /// At most `count` of the latest notes, in order.
    pub fn last_notes(&self, count: usize) -> impl Iterator<Item = &str> {
        let skip = self.notes.len().saturating_sub(count);
        self.notes.iter().skip(skip).map(String::as_str)
    }

    /// Notes to show and forget.
    pub fn take_notes(&mut self) -> Vec<String> {
        self.notes.drain(..).collect()
    }

    /// Forgets all but the last notes, and says how many that were.
    pub fn keep_last_notes(&mut self, count: usize) {
        let forgotten = self.notes.len().saturating_sub(count);
        self.notes.drain(..forgotten);
        if forgotten > 0 {
            self.notes.push_front(format!("({forgotten} earlier ones are in events.jsonl)"));
        }
    }

    /// The run in a line.
    pub fn line(&self) -> String {
        let (elapsed, duration) = (self.elapsed.as_secs(), self.about.duration.as_secs());
        let mut text = format!("{elapsed} of {duration} s  {}", self.phase());
        if self.about.people > 0 || self.about.sockets == 0 {
            text.push_str(&format!("  {} of {} people", self.connected, self.about.people));
        }
        if self.about.sockets > 0 {
            text.push_str(&format!("  {} of {} sockets", self.sockets.live, self.about.sockets));
        }
        text.push_str(match self.about.people + self.about.sockets as usize {
            0 => "",
            _ => " connected",
        });
        if let Some(answers) = self.answers() {
            text.push_str(&format!("  {answers}"));
        }
        match self.faults {
            0 => {}
            1 => text.push_str("  1 fault"),
            n => text.push_str(&format!("  {n} faults")),
        }
        text.push_str(&self.thresholds_in_words());
        if let Some(reason) = self.generator_limit() {
            text.push_str(&format!("  generator at its limit: {reason}"));
        }
        text
    }

    fn thresholds_in_words(&self) -> String {
        let known = self.thresholds.iter().filter(|result| result.value.is_some());
        let (holding, failing): (Vec<_>, Vec<_>) = known.partition(|result| result.ok);
        match (&holding[..], &failing[..]) {
            ([], []) => String::new(),
            (holding, []) => {
                format!("  {} of {} thresholds hold", holding.len(), self.thresholds.len())
            }
            (_, [first, rest @ ..]) => {
                let value = first.value.map_or(String::new(), short);
                let more = match rest.len() {
                    0 => String::new(),
                    n => format!(" and {n} more"),
                };
                format!("  fails: {} ({value}){more}", first.expr)
            }
        }
    }
}
