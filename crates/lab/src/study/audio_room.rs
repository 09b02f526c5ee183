//! Study D: an audio-only room. The cost of one person first, then growth by one person a second,
//! then people in and out like a bisection until the largest healthy number is found, then the
//! loop of people who come and go.

mod fields;
mod health;

use super::columns::{GENERATOR_CPU, LATE, LOSS, PEOPLE, SERVER_CPU_OF_SET};
use super::session::{Session, Sessions, limits};
use crate::base::{mean, percentile};
use crate::observe::proc;
use crate::record::{About, Cell, MIX, Plot, Row, Table};
use fields::field_rows;
use health::Health;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use wire::quality::{QualitySample, ReceivedTrack};

/// More people are not tried.
const MOST: u32 = 1920;
/// The study's own trials: people, share of the busiest mixer thread where it is told, healthy.
const STUDY: [(f64, Option<f64>, bool); 6] = [
    (2000.0, None, false),
    (1400.0, None, false),
    (1300.0, None, true),
    (1000.0, Some(65.0), true),
    (1400.0, None, false),
    (1350.0, Some(90.0), true),
];

const TRIALS: [(&str, &str, u8); 12] = [
    PEOPLE,
    ("healthy", "healthy = 1", 0),
    ("mixer_thread_pct", "busiest mixer thread %", 1),
    SERVER_CPU_OF_SET,
    ("ticks_late_pct", "ticks over 20 ms late %", 3),
    LOSS,
    ("mix_packets_per_s", "mix packets/s, worst person", 1),
    ("mouth_to_ear_ms", "mouth to ear ms (95 %)", 0),
    ("gap_ms", "longest gap ms (95 % of people)", 0),
    LATE,
    ("mos_lq_median", "median MOS-LQ", 2),
    GENERATOR_CPU,
];

fn tables() -> Vec<Table> {
    let cost =
        [("mcpu", "mCPU", 1), ("memory_mb", "MB", 1), ("network_mb_per_min", "MB a minute", 3)];
    let spread =
        [("min", "min", 2), ("max", "max", 2), ("average", "average", 2), ("median", "median", 2)];
    let worst = [
        ("mos_cq", "MOS-CQ, with delay", 2),
        ("mouth_to_ear_ms", "mouth to ear ms", 0),
        ("mos_lq", "MOS-LQ", 2),
        ("mos_sdk", "MOS as SDKs count it", 2),
        LOSS,
        ("jitter_ms", "jitter ms", 2),
        ("rtt_ms", "RTT ms", 2),
    ];
    let churn = [
        PEOPLE,
        ("loops", "whole loops", 0),
        ("failures", "failed", 0),
        ("first_audio_p50_ms", "first audio ms, median", 0),
        ("first_audio_max_ms", "first audio ms, worst", 0),
    ];
    vec![
        Table::new(
            "cost",
            "What one person costs the generator",
            "Measured first, alone, as the study did: it put six people on a node of two CPUs.",
            &cost,
        ),
        Table::new(
            "trials",
            "In and out until the largest healthy number",
            "Healthy: 95 % of people lose under 1 % and have no gap over 100 ms, sound takes at most \
             400 ms from mouth to ear (95 %), under 1 % of the mixer's ticks are over 20 ms late, \
             nobody gets under 45 packets of the mix a second. “At least”: the generator was at its \
             limit. The study judged by ear, beside a MOS that stayed over 4.",
            &TRIALS,
        ),
        Table::new(
            "capacity",
            "Capacity",
            "The largest number that was healthy, the smallest that was not.",
            &[("low", "healthy", 0), ("high", "not healthy", 0), ("trials", "trials", 0)],
        ),
        Table::new("mos", "MOS-LQ over people", "Each person's median first.", &spread),
        Table::new("bottom", "The ten worst", "Of the largest healthy room.", &worst),
        Table::new(
            "fields",
            "The study's sample fields",
            "Share of our samples (after each person's first) that hold each field of the study's.",
            &[
                ("meaning", "in our sample", 0),
                ("present_pct", "native bots %", 1),
                ("browser_pct", "browser %", 1),
            ],
        ),
        Table::new(
            "churn",
            "Coming and going",
            "Enter, check that sound arrives within 10 s, stay, leave, again.",
            &churn,
        ),
    ]
}

/// What the study is, and its tables.
pub(super) fn about() -> About {
    let text = "The study grew an MCU room of headless browsers, one a pod, against a server of 96 \
               virtual CPUs. Here native bots fill one mixed room on half of this machine's CPUs.";
    About::new("Study D: an audio-only room", text, tables())
}

pub(super) async fn run(sessions: &mut Sessions, about: &mut About) -> Vec<Row> {
    let tables = about.tables.clone();
    let (mut rows, browser) = costs(sessions, &tables[0]).await;
    let search = Search::run(sessions, &tables[1], about).await;
    let best = search.best.as_ref().map(|(_, session)| session);
    rows.extend(capacity(&search, &tables[2], about));
    rows.extend(search.rows);
    rows.extend(mos_rows(best, &tables));
    rows.extend(field_rows(best, browser.as_ref()));
    rows.push(churn(sessions, &tables[6]).await);
    about.not_shown.extend([
        "What a delay estimated from round trip and jitter buffer (“late”) cannot know: the mixer's \
         own queue. “Mouth to ear” is measured by marks in the sound."
            .to_owned(),
        "Pods of browsers: one browser is measured for its cost, the room is of native bots."
            .to_owned(),
    ]);
    rows
}

/// The scenario of one mixed room.
fn room(sessions: &Sessions, bots: u32, chromium: u32, seconds: u32, join: f64) -> String {
    let serve = if chromium > 0 { "serve: { cpus: shared }\n" } else { &sessions.serve(1) };
    // As in the study the platform's API makes the room before anyone comes.
    format!(
        "{serve}duration: {seconds}s\nrooms: [{{ preset: large_room_for_audio_only, create: api, \
         max_participants: {}, people: {{ bot: {bots}, chromium: {chromium} }} }}]\nmedia: {{ \
         audio: speech, video: none }}\njoin: {{ per_second: {join} }}\n",
        bots + chromium
    )
}

/// What a bot and a browser cost, and the session with the browser in it.
async fn costs(sessions: &mut Sessions, table: &Table) -> (Vec<Row>, Option<Session>) {
    const BOTS: u32 = 10;
    let seconds = if sessions.quick { 8 } else { 20 };
    let row = Row::new("cost", "a native bot");
    let before = proc::rss_mib(std::process::id());
    let watch = Peak::start(|| proc::rss_mib(std::process::id()));
    let session = sessions.run("cost-bots", &room(sessions, BOTS, 0, seconds, 10.0)).await;
    let peak = watch.stop();
    let bots = match session {
        Ok(session) => {
            let memory = peak.zip(before).map(|(peak, before)| (peak - before) / f64::from(BOTS));
            let threads = session.summary.generator.threads.iter();
            let cores: f64 =
                threads.filter(|(name, _)| name.starts_with("bots")).map(|(_, cores)| cores).sum();
            row.cell("mcpu", Cell::number(cores * 1000.0 / f64::from(BOTS)))
                .measured("memory_mb", memory)
                .measured("network_mb_per_min", network_mb_per_min(&session))
                .note(format!("a tenth of what {BOTS} need together"))
        }
        Err(reason) => row.rest(table, &reason),
    };
    let row = Row::new("cost", "a browser").reference([
        ("mcpu", 200.0),
        ("memory_mb", 100.0),
        ("network_mb_per_min", 0.12),
    ]);
    if sessions.quick || !sessions.has_chromium() {
        let why = if sessions.quick { "--quick starts no browser" } else { "no chromium on PATH" };
        return (vec![bots, row.rest(table, why)], None);
    }
    let watch = Peak::start(|| proc::children_pss_mib(std::process::id(), "chrom"));
    let session = sessions.run("cost-browser", &room(sessions, 1, 1, seconds, 10.0)).await;
    let peak = watch.stop();
    match session {
        Ok(session) => {
            let browser = row
                .measured(
                    "mcpu",
                    session.summary.generator.threads.get("chromium").map(|c| c * 1000.0),
                )
                .measured("memory_mb", peak)
                .measured("network_mb_per_min", network_mb_per_min(&session))
                .note("all processes of one browser with one page");
            (vec![bots, browser], Some(session))
        }
        Err(reason) => (vec![bots, row.rest(table, &reason)], None),
    }
}

/// What a person sends and receives in a minute: payload, in MB.
fn network_mb_per_min(session: &Session) -> Option<f64> {
    let (mut megabytes, mut minutes) = (0.0, 0.0);
    for record in &session.samples {
        let sent: f64 = record.sample.sent.iter().map(|row| row.bitrate_kbps).sum();
        let received: f64 = record.sample.received.iter().map(|row| row.bitrate_kbps).sum();
        let seconds = record.sample.interval_ms as f64 / 1000.0;
        megabytes += (sent + received) * seconds / 8000.0;
        minutes += seconds / 60.0;
    }
    (minutes > 0.0).then(|| megabytes / minutes)
}

/// The largest of a figure that is read twice a second.
struct Peak {
    highest_kib: Arc<AtomicU64>,
    task: tokio::task::JoinHandle<()>,
}

impl Peak {
    fn start(read_mib: impl Fn() -> Option<f64> + Send + 'static) -> Self {
        let highest_kib = Arc::new(AtomicU64::new(0));
        let kept = Arc::clone(&highest_kib);
        let task = tokio::spawn(async move {
            loop {
                let kib = read_mib().unwrap_or(0.0) * 1024.0;
                kept.fetch_max(kib as u64, Relaxed);
                tokio::time::sleep(Duration::from_millis(500)).await;
            }
        });
        Self { highest_kib, task }
    }

    fn stop(self) -> Option<f64> {
        self.task.abort();
        let kib = self.highest_kib.load(Relaxed);
        (kib > 0).then(|| kib as f64 / 1024.0)
    }
}

/// How one trial went.
struct Trial {
    people: u32,
    healthy: bool,
    /// The generator, not the server, was at its end.
    generator: bool,
}

/// The search for the largest healthy number.
struct Search {
    trials: Vec<Trial>,
    rows: Vec<Row>,
    best: Option<(u32, Session)>,
}

impl Search {
    async fn run(sessions: &mut Sessions, table: &Table, about: &mut About) -> Self {
        let mut search = Self { trials: Vec::new(), rows: Vec::new(), best: None };
        let (grow, steps) = if sessions.quick { (6, 1) } else { (120, 4) };
        let growth = search.growth(sessions, table, grow, about).await;
        let mut next = if growth { grow * 2 } else { grow / 2 };
        for step in 0..if sessions.quick { 1 } else { 8 } {
            if sessions.interrupted() || search.trials.is_empty() {
                break;
            }
            let hold_s = if sessions.quick { 7 } else { 18 };
            let join = if sessions.quick { 10.0 } else { 40.0 };
            search.trial(sessions, table, (next, join, hold_s)).await;
            if search.generator_limit().is_some() {
                break;
            }
            let (low, high) = search.bounds();
            next = match (low, high) {
                (Some(low), None) if low * 2 <= MOST && step < 7 => low * 2,
                (Some(low), Some(high)) if high - low > (low / 12).max(1) => low.midpoint(high),
                (None, Some(high)) if high > 2 => high / 2,
                _ => break,
            };
            let beyond = search.trials.iter().filter(|trial| !trial.healthy).count();
            if beyond > 0 && search.trials.len() >= 2 + steps + 3 {
                break;
            }
        }
        for (index, (people, thread_pct, healthy)) in STUDY.into_iter().enumerate() {
            if search.rows.len() <= index {
                let row = Row::new("trials", format!("trial {}", index + 1));
                search.rows.push(row.rest(table, "the search had come to its end before"));
            }
            let row = &mut search.rows[index];
            row.reference.insert("people".into(), people);
            row.reference.insert("healthy".into(), f64::from(u8::from(healthy)));
            row.reference.extend(thread_pct.map(|pct| ("mixer_thread_pct".to_owned(), pct)));
        }
        search
    }

    /// Largest healthy, and smallest not healthy number. Where the generator was at its limit nothing is said of the server.
    fn bounds(&self) -> (Option<u32>, Option<u32>) {
        let healthy = self.trials.iter().filter(|trial| trial.healthy);
        let unhealthy = self.trials.iter().filter(|trial| !trial.healthy && !trial.generator);
        (healthy.map(|trial| trial.people).max(), unhealthy.map(|trial| trial.people).min())
    }

    /// The smallest number that the generator could not carry.
    fn generator_limit(&self) -> Option<u32> {
        let limited = self.trials.iter().filter(|trial| !trial.healthy && trial.generator);
        limited.map(|trial| trial.people).min()
    }

    /// One person a second, and the room over time; whether it was healthy to the end.
    async fn growth(
        &mut self,
        sessions: &mut Sessions,
        table: &Table,
        people: u32,
        about: &mut About,
    ) -> bool {
        let (per_s, hold_s) = if sessions.quick { (2.0, 6) } else { (1.0, 12) };
        let seconds = (f64::from(people) / per_s) as u32 + hold_s;
        let name = format!("trial 1: growth to {people}, {per_s} a second");
        let session = sessions
            .run(&format!("growth-{people}"), &room(sessions, people, 0, seconds, per_s))
            .await;
        if let Ok(session) = &session {
            about.plots.push(growth_plot(session, per_s, people));
        }
        self.take(table, name, people, f64::from(seconds - hold_s), session)
    }

    async fn trial(
        &mut self,
        sessions: &mut Sessions,
        table: &Table,
        (people, join_per_s, hold_s): (u32, f64, u32),
    ) {
        let arrival_s = (f64::from(people) / join_per_s).ceil();
        let text = room(sessions, people, 0, arrival_s as u32 + hold_s, join_per_s);
        let number = self.trials.len() + 1;
        let session = sessions.run(&format!("trial-{number}-{people}"), &text).await;
        self.take(table, format!("trial {number}: {people} people"), people, arrival_s, session);
    }

    fn take(
        &mut self,
        table: &Table,
        name: String,
        people: u32,
        settled_s: f64,
        session: Result<Session, String>,
    ) -> bool {
        let row = Row::new("trials", name).cell("people", Cell::number(people.into()));
        let session = match session {
            Ok(session) => session,
            Err(reason) => {
                self.rows.push(row.rest(table, &reason));
                return false;
            }
        };
        let health = Health::of(&session, settled_s + 4.0);
        let healthy = health.healthy();
        self.rows.push(trial_row(row, &session, &health, settled_s));
        let generator = session.generator_was_limit();
        self.trials.push(Trial { people, healthy, generator });
        if healthy && self.best.as_ref().is_none_or(|(most, _)| people > *most) {
            self.best = Some((people, session));
        }
        healthy
    }
}

fn trial_row(row: Row, session: &Session, health: &Health, settled_s: f64) -> Row {
    let end_s = session.summary.duration_s + 1.0;
    let cpus = session.meta.cpus.as_ref().map_or(1, |sets| sets.server.len().max(1)) as f64;
    let mixer = session.server_threads(settled_s, end_s, |name| name.starts_with("mix"));
    let rtt = session.metric("rtt_ms").map(|metric| metric.user_p95);
    let buffer = session.metric("jitter_buffer_ms").map_or(0.0, |metric| metric.user_p95);
    let healthy = match health.healthy() {
        false if session.generator_was_limit() => Cell::word("at least"),
        healthy => Cell::number(f64::from(u8::from(healthy))),
    };
    let no_ticks = "the server tells no ticks of a mixer (moim_mix_ticks_total)";
    let row = row
        .cell("healthy", healthy)
        .cell(
            "mixer_thread_pct",
            Cell::or(mixer.map(|cores| cores * 100.0), "the server has no thread named mix-N"),
        )
        .measured("server_cpu_pct", session.server_cores().map(|cores| cores * 100.0 / cpus))
        .cell("ticks_late_pct", Cell::or(health.ticks_late_pct, no_ticks))
        .measured("loss_pct", health.loss_pct)
        .measured("mix_packets_per_s", health.worst_mix_per_s)
        .cell("mouth_to_ear_ms", Cell::or(health.mouth_to_ear_ms, "no mark was found in the mix"))
        .measured("gap_ms", health.gap_ms)
        .measured("late_ms", rtt.map(|rtt| rtt / 2.0 + buffer))
        .measured("mos_lq_median", health.mos_lq_median)
        .cell("generator_cpu_cores", Cell::number(session.summary.generator.cpu_cores));
    limits(row, session)
}

fn growth_plot(session: &Session, per_s: f64, people: u32) -> Plot {
    let points = session.machine.iter().map(|record| {
        let t_s = record.t_ms as f64 / 1000.0;
        let here = (t_s * per_s).floor().min(f64::from(people));
        let server = record.server.as_ref();
        let cores = |prefix: &str| {
            let threads = server?.threads.iter().filter(|(name, _)| name.starts_with(prefix));
            Some(threads.map(|(_, cores)| cores).sum::<f64>() * 100.0)
        };
        let all = server.and_then(|server| server.cpu_cores).map(|cores| cores * 100.0);
        (t_s, vec![Some(here), all, cores("media"), cores("mix")])
    });
    Plot::new(
        ("Growth, one person after the other", "people; % of a core", "seconds"),
        &["people", "server", "media threads", "mixer threads"],
        points.collect(),
    )
}

fn capacity(search: &Search, table: &Table, about: &mut About) -> Vec<Row> {
    let (low, high) = search.bounds();
    let at_least = search.generator_limit().map(|people| {
        format!("at least: the generator was at its limit with {people} people, so the server's was not found")
    });
    let no_high = at_least.clone();
    let no_high = no_high.unwrap_or_else(|| "every number that was tried was healthy".into());
    let row = Row::new("capacity", "one mixed room")
        .cell("low", Cell::or(low.map(f64::from), "no number that was tried was healthy"))
        .cell("high", Cell::or(high.map(f64::from), no_high))
        .cell("trials", Cell::number(search.trials.len() as f64))
        .reference([("low", 1350.0), ("high", 1400.0), ("trials", 6.0)]);
    let row = match at_least {
        Some(why) => row.note(why),
        None => row,
    };
    if let Some(low) = low {
        about.shown.push(format!("{low} people in one mixed room were healthy here."));
    }
    vec![row.rest(table, "not searched")]
}

fn mos_rows(best: Option<&Session>, tables: &[Table]) -> Vec<Row> {
    let none = "no room was healthy";
    let spread = Row::new("mos", "MOS-LQ");
    let Some(session) = best else {
        let bottom = Row::new("bottom", "worst 1").rest(&tables[4], none);
        return vec![spread.rest(&tables[3], none), bottom];
    };
    let mut people: BTreeMap<&str, Vec<(&QualitySample, &ReceivedTrack)>> = BTreeMap::new();
    for record in &session.samples {
        let rows = record.sample.received.iter().filter(|row| row.track == MIX);
        let rows = rows.map(|row| (&record.sample, row));
        people.entry(&record.person).or_default().extend(rows);
    }
    let median = |rows: &[(&QualitySample, &ReceivedTrack)],
                  pick: fn(&QualitySample, &ReceivedTrack) -> Option<f64>| {
        let mut values: Vec<f64> = rows.iter().filter_map(|(s, row)| pick(s, row)).collect();
        values.sort_by(f64::total_cmp);
        percentile(&values, 50.0)
    };
    let scored = people
        .iter()
        .filter_map(|(name, rows)| Some((median(rows, |_, row| row.mos_lq)?, name, rows)));
    let mut scored: Vec<_> = scored.collect();
    scored.sort_by(|a, b| a.0.total_cmp(&b.0));
    let scores: Vec<f64> = scored.iter().map(|(score, ..)| *score).collect();
    // The ten worst by the score that knows of delay; of equals those who hear latest.
    let late = |rows: &[_]| median(rows, |_, row| row.mouth_to_ear_ms);
    let rank = |rows: &[_]| (median(rows, |_, row| row.mos_cq), late(rows).map(|ms| -ms));
    scored.sort_by(|(.., a), (.., b)| {
        rank(a).partial_cmp(&rank(b)).unwrap_or(std::cmp::Ordering::Equal)
    });
    let average = mean(scores.iter().copied());
    let mut out = vec![
        spread
            .measured("min", scores.first().copied())
            .measured("max", scores.last().copied())
            .measured("average", average)
            .measured("median", percentile(&scores, 50.0))
            .note("the study's stayed above 4 even while sound was audibly late"),
    ];
    for (index, (score, name, rows)) in scored.iter().take(10).enumerate() {
        out.push(
            Row::new("bottom", format!("{}. {name}", index + 1))
                .measured("mos_cq", median(rows, |_, row| row.mos_cq))
                .cell(
                    "mouth_to_ear_ms",
                    Cell::or(late(rows), "no mark was found in what they hear"),
                )
                .cell("mos_lq", Cell::number(*score))
                .measured("mos_sdk", median(rows, |_, row| row.mos_sdk))
                .measured("loss_pct", median(rows, |_, row| row.loss_pct))
                .measured("jitter_ms", median(rows, |_, row| row.jitter_ms))
                .measured("rtt_ms", median(rows, |sample, _| sample.rtt_ms)),
        );
    }
    if scored.is_empty() {
        out.push(Row::new("bottom", "worst 1").rest(&tables[4], "nobody has a MOS"));
    }
    out
}

async fn churn(sessions: &mut Sessions, table: &Table) -> Row {
    let (people, stay_s, seconds) = if sessions.quick { (4, 2, 12) } else { (20, 10, 75) };
    let row = Row::new("churn", format!("{people} people who stay about {stay_s} s"))
        .cell("people", Cell::number(people.into()));
    let text = format!(
        "{}duration: {seconds}s\nrooms:\n  - {{ preset: audio_room, churn: {{ stay: {stay_s}s }}, \
         people: {{ bot: {people} }} }}\nmedia: {{ audio: speech, video: none }}\n",
        sessions.serve(1)
    );
    match sessions.run("churn", &text).await {
        Ok(session) => {
            let churn = session.summary.churn.clone().unwrap_or_default();
            let failures: u64 = churn.failures.values().sum();
            let mut row = row
                .cell("loops", Cell::number(churn.loops as f64))
                .cell("failures", Cell::number(failures as f64))
                .measured("first_audio_p50_ms", churn.join_to_first_audio_ms_p50)
                .measured("first_audio_max_ms", churn.join_to_first_audio_ms_max);
            for (reason, count) in churn.failures {
                row = row.note(format!("{count} failed: {reason}"));
            }
            row
        }
        Err(reason) => row.rest(table, &reason),
    }
}
