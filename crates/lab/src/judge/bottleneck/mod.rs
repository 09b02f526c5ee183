//! What broke first: utilization, saturation and errors of every resource in every window (the USE
//! method), and which of those that fired stands behind the others.
//!
//! The first bottleneck fires around the window in which quality broke. Of several the earliest
//! counts, then errors before saturation before utilization. What only follows from another one
//! ([`Candidate::explains`]: a full socket buffer whose reader has no CPU) is named as its
//! consequence. If quality held the answer is `none`, if nothing fired it is `unexplained`.

mod quality;
mod reading;

pub use quality::{Break, Danger, Signs, first_break};
pub use reading::{Candidate, Reading, readings};

use crate::base::short;
use crate::record::{LOADED_LINK, MachineRecord, Way};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Windows shorter than this are not judged.
const SHORTEST_WINDOW_MS: u64 = 1_000;
/// A thread must be busy in so many windows in a row.
const THREAD_WINDOWS: usize = 3;
/// From this share of its limit on, something that did not fire is named as the next.
const NEAR: f64 = 0.8;

/// The first bottleneck.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bottleneck {
    /// An id of [`Candidate`], `generator`, `none` if quality held, `unexplained` if nothing fired; null
    /// if nothing was judged.
    pub first: Option<String>,
    /// The next: it fired too and is no consequence, or it is near its limit.
    pub second: Option<String>,
    /// The participant whose link is the first one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub person: Option<String>,
    /// `suspected`, `proven` or null.
    pub state: Option<String>,
    /// What speaks for it, with the window.
    pub evidence: Vec<String>,
}

/// What is known of the generator over the whole run.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct GeneratorHealth {
    /// Why it was at its limit; empty: it was healthy.
    pub reasons: Vec<String>,
    /// Only lateness speaks against it ([`Limit::is_lateness`](super::generator::Limit::is_lateness)).
    pub only_late_timers: bool,
}

/// A stretch of windows around the break in which a candidate fired.
#[derive(Debug, Clone, PartialEq)]
struct Fired {
    candidate: Candidate,
    /// Index of the first window of the stretch, and of the one that is shown.
    since: usize,
    shown: usize,
    text: String,
    person: Option<String>,
}

/// Names the first bottleneck of a run and the next. `broke`: None if quality held.
pub fn judge(
    machine: &[MachineRecord],
    generator: &GeneratorHealth,
    broke: Option<&Break>,
) -> Bottleneck {
    let windows = Windows::of(machine, broke.map_or(&[][..], |broke| &broke.people));
    let mut evidence = Vec::new();
    if let Some(broke) = broke {
        evidence.push(format!("quality broke at {} s: {}", broke.t_ms / 1000, broke.why));
    }
    let around = broke.map(|broke| windows.around(broke.t_ms)).unwrap_or_default();
    let servers_fault = generator.only_late_timers && windows.server_used_more(&around);
    let roots = if generator.reasons.is_empty() || servers_fault {
        windows.roots(&around, &mut evidence)
    } else {
        Vec::new()
    };
    if !generator.reasons.is_empty() && roots.is_empty() {
        evidence.extend(generator.reasons.iter().map(|reason| format!("generator: {reason}")));
        return named(Some("generator"), None, evidence);
    }
    if broke.is_none() {
        evidence.extend(windows.nearest(&[]).map(|(_, text)| text));
        return Bottleneck { first: Some("none".into()), evidence, ..Bottleneck::default() };
    }
    let Some(first) = roots.first() else {
        let link = |broke| windows.narrow_link(broke).or_else(|| windows.long_link(broke));
        if let Some((person, text)) = broke.and_then(link) {
            evidence.push(text);
            let found = named(Some(Candidate::Link.id()), None, evidence);
            return Bottleneck { person: Some(person), ..found };
        }
        if let Some(text) = broke.and_then(|broke| windows.narrow_network(broke)) {
            evidence.push(text);
            return named(Some(Candidate::Network.id()), None, evidence);
        }
        evidence.push("no link and no resource of the server was at its limit".into());
        return Bottleneck { first: Some("unexplained".into()), evidence, ..Bottleneck::default() };
    };
    let next = roots.get(1).map(|fired| fired.candidate).or_else(|| {
        let (candidate, text) = windows.nearest(&[first.candidate])?;
        evidence.push(text);
        Some(candidate)
    });
    let found = named(Some(first.candidate.id()), next.map(Candidate::id), evidence);
    Bottleneck { person: first.person.clone(), ..found }
}

fn named(first: Option<&str>, second: Option<&str>, evidence: Vec<String>) -> Bottleneck {
    Bottleneck {
        first: first.map(str::to_owned),
        second: second.map(str::to_owned),
        person: None,
        state: Some("suspected".into()),
        evidence,
    }
}

/// All windows with what each candidate reads in them.
struct Windows<'a> {
    records: Vec<&'a MachineRecord>,
    /// (from, until) in ms.
    spans: Vec<(u64, u64)>,
    /// By window.
    readings: Vec<Vec<Reading>>,
}

impl<'a> Windows<'a> {
    fn of(machine: &'a [MachineRecord], people: &[String]) -> Self {
        let (mut records, mut spans, mut from) = (Vec::new(), Vec::new(), 0);
        for record in machine {
            if record.t_ms >= from + SHORTEST_WINDOW_MS {
                records.push(record);
                spans.push((from, record.t_ms));
            }
            from = record.t_ms;
        }
        let mut readings: Vec<Vec<Reading>> =
            records.iter().map(|r| reading::readings(r, people)).collect();
        only_long_stretches(&mut readings, Candidate::Thread, THREAD_WINDOWS);
        Self { records, spans, readings }
    }

    fn get(&self, window: usize, candidate: Candidate) -> Option<&Reading> {
        self.readings.get(window)?.iter().find(|reading| reading.candidate == candidate)
    }

    fn fires(&self, window: usize, candidate: Candidate) -> bool {
        self.get(window, candidate).is_some_and(Reading::fires)
    }

    /// The window in which quality broke, the one before and the one after: samples and machine
    /// windows do not end in the same moment.
    fn around(&self, t_ms: u64) -> Vec<usize> {
        let Some(last) = self.spans.len().checked_sub(1) else { return Vec::new() };
        let at = self.spans.iter().position(|span| span.1 >= t_ms).unwrap_or(last);
        (at.saturating_sub(1)..=(at + 1).min(last)).collect()
    }

    /// The link of a participant whose pictures were paused: it is never full, since the server keeps under what it
    /// carries.
    fn narrow_link(&self, broke: &Break) -> Option<(String, String)> {
        let around = self.around(broke.t_ms);
        let records = around.iter().rev().filter_map(|window| self.records.get(*window));
        let mut links = records.flat_map(|record| &record.person_links);
        let link = links.find(|link| {
            broke.limited
                && broke.people.contains(&link.person)
                && link.limit_mbit_per_s.is_some()
                && link.level() >= LOADED_LINK
        })?;
        let text = format!(
            "the server paused pictures to {}: the link {} ({}) carries {} Mbit/s, and carried {}",
            link.person,
            link.network,
            link.way.as_str(),
            short(link.limit_mbit_per_s.unwrap_or_default()),
            short(link.mbit_per_s),
        );
        Some((link.person.clone(), text))
    }

    /// The longest link, if its way there and back alone takes half of what was allowed.
    fn long_link(&self, broke: &Break) -> Option<(String, String)> {
        let allowed_ms = broke.allowed_ms?;
        let around = self.around(broke.t_ms);
        let records = around.iter().filter_map(|window| self.records.get(*window));
        let links = records.flat_map(|one| one.person_links.iter().map(|link| (one.t_ms, link)));
        // A person may have several links of a kind in a window: they came again, or have tried several ways.
        let mut ways_ms: BTreeMap<(u64, &str, &str), [f64; 2]> = BTreeMap::new();
        for (t_ms, link) in links {
            let ways = ways_ms.entry((t_ms, &link.network, &link.person)).or_default();
            let way_ms = &mut ways[usize::from(link.way == Way::Down)];
            *way_ms = way_ms.max(link.delay_ms.unwrap_or(0.0));
        }
        let round_trips = ways_ms.into_iter().map(|(of, [up, down])| (of, up + down));
        let ((_, network, person), ms) = round_trips.max_by(|a, b| a.1.total_cmp(&b.1))?;
        let text = format!(
            "the link {network} of {person} takes {} ms there and back, of {} that are allowed",
            short(ms),
            short(allowed_ms)
        );
        (ms >= allowed_ms / 2.0).then(|| (person.to_owned(), text))
    }

    /// The server's network, if pictures were limited and it was near its limit from then on: it need not be full either.
    fn narrow_network(&self, broke: &Break) -> Option<String> {
        let since = *self.around(broke.t_ms).first()?;
        let network = self.middle(Candidate::Network, since)?;
        let text = || {
            format!(
                "pictures were paused or too small, and what is near its limit since then is {}",
                network.text
            )
        };
        (broke.limited && network.level >= NEAR).then(text)
    }

    /// What a candidate reads in the middle one, by level, of the windows from one on.
    fn middle(&self, candidate: Candidate, since: usize) -> Option<&Reading> {
        let windows = since..self.readings.len();
        let mut levels: Vec<&Reading> = windows.filter_map(|w| self.get(w, candidate)).collect();
        levels.sort_by(|a, b| a.level.total_cmp(&b.level));
        levels.get(levels.len() / 2).copied()
    }

    /// Whether both were on the same CPUs, and the server used more of them.
    fn server_used_more(&self, around: &[usize]) -> bool {
        let (mut server, mut generator, mut shared) = (0.0, 0.0, false);
        for record in around.iter().filter_map(|window| self.records.get(*window)) {
            server += record.server.as_ref().and_then(|s| s.cpu_cores).unwrap_or(0.0);
            generator += record.generator.cpu_cores;
            shared |= reading::shared_cpus(record);
        }
        shared && server > generator
    }

    /// What fired around the break and follows from nothing else that did, in order.
    fn roots(&self, around: &[usize], evidence: &mut Vec<String>) -> Vec<Fired> {
        let mut fired: Vec<Fired> =
            Candidate::ALL.iter().filter_map(|one| self.fired(*one, around)).collect();
        let earliest = fired.iter().map(|one| one.since).min().unwrap_or(0);
        // Windows are coarse: what began in the same or the next one began together.
        fired.sort_by_key(|one| ((one.since - earliest) / 2, one.candidate.rank(), one.since));
        let causes: Vec<(Candidate, usize)> =
            fired.iter().map(|one| (one.candidate, one.since)).collect();
        let mut roots = Vec::new();
        for one in fired {
            let cause = causes
                .iter()
                .find(|(cause, since)| cause.explains(one.candidate) && *since <= one.since + 1);
            let (from, until) = self.spans[one.shown];
            let window = format!("{}–{} s", from / 1000, until / 1000);
            let follows = match cause {
                Some((cause, _)) => format!("; follows from {}", cause.id()),
                None => format!("; since {} s", self.spans[one.since].0 / 1000),
            };
            evidence.push(format!("{} ({window}): {}{follows}", one.candidate.id(), one.text));
            if cause.is_none() {
                roots.push(one);
            }
        }
        roots
    }

    /// The stretch around the break in which a candidate fires; a gap of one window is bridged.
    fn fired(&self, candidate: Candidate, around: &[usize]) -> Option<Fired> {
        let shown = *around.iter().rev().find(|window| self.fires(**window, candidate))?;
        let mut since = shown;
        while since > 0 {
            if self.fires(since - 1, candidate) {
                since -= 1;
            } else if since > 1 && self.fires(since - 2, candidate) {
                since -= 2;
            } else {
                break;
            }
        }
        let Reading { text, person, .. } = self.get(shown, candidate)?.clone();
        Some(Fired { candidate, since, shown, text, person })
    }

    /// What comes nearest to its limit in half of the windows or more. Candidates in `apart`, and those that follow
    /// from one of them, do not count.
    fn nearest(&self, apart: &[Candidate]) -> Option<(Candidate, String)> {
        let all = Candidate::ALL
            .iter()
            .filter(|one| !apart.iter().any(|known| known == *one || known.explains(**one)));
        let levels = all.filter_map(|candidate| self.middle(*candidate, 0));
        let most = levels
            .filter(|reading| reading.level >= NEAR)
            .max_by(|a, b| a.level.total_cmp(&b.level))?;
        Some((most.candidate, format!("{} is near its limit: {}", most.candidate.id(), most.text)))
    }
}

/// Leaves a candidate out of windows where it does not fire in `at_least` in a row.
fn only_long_stretches(readings: &mut [Vec<Reading>], candidate: Candidate, at_least: usize) {
    let fires = |row: &Vec<Reading>| row.iter().any(|r| r.candidate == candidate && r.fires());
    let fired: Vec<bool> = readings.iter().map(fires).collect();
    let mut window = 0;
    while window < fired.len() {
        let length = fired[window..].iter().take_while(|fired| **fired).count();
        if length > 0 && length < at_least {
            for row in &mut readings[window..window + length] {
                let of = row.iter_mut().find(|reading| reading.candidate == candidate);
                of.into_iter().for_each(|reading| reading.level = reading.level.min(0.99));
            }
        }
        window += length.max(1);
    }
}

#[cfg(test)]
mod tests;
