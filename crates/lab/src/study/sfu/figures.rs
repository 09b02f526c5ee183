//! What a session's bots saw and what its server used. A browser that watches beside them is left out.

use crate::base::percentile_of;
use crate::observe::metrics::{Collector, Reduced};
use crate::record::{Cell, Column, LinkUsage, PersonKind, Row, SampleRecord, Table};
use crate::study::columns::percent;
use crate::study::session::{Session, limits};
use std::collections::{BTreeMap, BTreeSet};
use wire::quality::{ReceivedTrack, SentTrack};
use wire::room::MediaKind;

/// Length of a window, in ms.
const WINDOW_MS: u64 = wire::quality::SAMPLE_INTERVAL_MS;

/// The samples of a kind of people.
pub(super) fn samples_of(
    session: &Session,
    kind: PersonKind,
) -> impl Iterator<Item = &SampleRecord> {
    session.samples.iter().filter(move |record| record.kind == kind)
}

/// Metrics of a kind of people, by name.
pub(super) fn metrics_of(session: &Session, kind: PersonKind) -> BTreeMap<String, Option<Reduced>> {
    let mut collector = Collector::default();
    samples_of(session, kind).for_each(|record| collector.add(&record.person, &record.sample));
    collector.reduce()
}

/// A session's figures, in whichever table they stand.
pub(super) fn session_row(row: Row, session: &Session) -> Row {
    let metrics = metrics_of(session, PersonKind::Bot);
    let of = |name: &str, pick: fn(&Reduced) -> f64| metrics.get(name)?.as_ref().map(pick);
    let end_s = session.summary.duration_s + 1.0;
    let cpus = session.meta.cpus.as_ref().map_or(1, |sets| sets.server.len().max(1));
    let signaling = session.server_threads(3.5, end_s, |name| name.starts_with("signaling"));
    let people = people(session);
    let rate = received_mbit(session, 0);
    let settled = session.summary.delivery.as_ref();
    let server = session.summary.server.as_ref();
    let link = session.link_used_pct(session.summary.duration_s / 2.0);
    let row = row
        .cell("people", Cell::number(people as f64))
        .cell("seconds", Cell::number(session.summary.duration_s))
        .measured("server_cpu_pct", percent(session.server_cores()).map(|all| all / cpus as f64))
        .measured("busiest_thread_pct", percent(session.busiest_server_thread(3.5, end_s)))
        .measured("signaling_cpu_pct", percent(signaling))
        .measured("rss_mib", server.and_then(|server| server.rss_mib))
        .measured("jitter_ms", of("jitter_ms", |metric| metric.user_p95))
        .measured("delay_ms", of("transit_ms", |metric| metric.user_p95))
        .measured("usual_delay_ms", of("transit_ms", |metric| metric.p50))
        .measured("gap_ms", of("gap_ms", |metric| metric.user_p95))
        .measured("loss_pct", of("loss_pct", |metric| metric.user_p95))
        .measured("settled_loss_pct", settled.map(|delivery| 100.0 * delivery.missing_share))
        .measured("rtt_ms", of("rtt_ms", |metric| metric.user_p95))
        .measured("mos_cq", of("mos_cq", |metric| metric.user_p5))
        .measured("frame_height", of("frame_height", |metric| metric.user_p5))
        .measured("frames_per_second", of("frames_per_second", |metric| metric.user_p5))
        .measured("picture_mbit", picture_mbit(session))
        .measured("paused_pct", of("paused_ratio", |metric| 100.0 * metric.user_p95))
        .cell("received_mb", Cell::number(received_mb(session)))
        .measured("mean_rate_mbit", rate)
        .cell("link_used_pct", Cell::or(link, "no limited link was read"))
        .measured("per_person_mbit", rate.map(|rate| rate / people.max(1) as f64))
        .cell("consumers", Cell::number(consumers(session) as f64))
        .measured("us_per_packet_out", server.and_then(|server| server.us_per_packet_out))
        .cell("generator_cpu_cores", Cell::number(generator_cores(session)));
    limits(with_bottlenecks(row, session), session)
}

/// The columns of a table out of those of a session.
pub(super) fn from_session(row: Row, table: &Table, session: &Session) -> Row {
    let whole = session_row(Row::default(), session);
    let row = table.columns.iter().fold(row, |mut row, Column { key, .. }| {
        if !row.cells.contains_key(key) {
            let cell = whole.cells.get(key).cloned();
            let none = || Cell::none("a session has no such figure");
            row.cells.insert(key.clone(), cell.unwrap_or_else(none));
        }
        row
    });
    limits(row, session)
}

/// What broke first and what lies behind it; what was proven is said to be.
fn with_bottlenecks(row: Row, session: &Session) -> Row {
    let found = &session.summary.bottleneck;
    let proven = found.state.as_deref() == Some("proven");
    let word = |word: &Option<String>| word.clone().unwrap_or_else(|| "none".into());
    let first = word(&found.first) + if proven { " (proven)" } else { "" };
    row.cell("bottleneck", Cell::word(first))
        .cell("second_bottleneck", Cell::word(word(&found.second)))
}

/// Bots who joined.
fn people(session: &Session) -> usize {
    let joined = session.meta.people.iter().filter(|person| person.participant.is_some());
    joined.filter(|person| person.kind == PersonKind::Bot).count()
}

/// Payload that all bots received over the whole session, in MB.
fn received_mb(session: &Session) -> f64 {
    let rows = samples_of(session, PersonKind::Bot).flat_map(|record| {
        let ms = record.sample.interval_ms as f64;
        record.sample.received.iter().map(move |row| row.bitrate_kbps * ms / 8.0)
    });
    rows.sum::<f64>() / 1e6
}

/// The sum over a kind's people of what each one's samples say in windows that end at `from_ms` or later, as its median:
/// so the seconds of joining do not thin it.
fn sum_of_medians(
    session: &Session,
    from_ms: u64,
    pick: impl Fn(&SampleRecord) -> f64,
) -> Option<f64> {
    let mut people = BTreeMap::<&str, Vec<f64>>::new();
    let late = samples_of(session, PersonKind::Bot).filter(|record| record.t_ms >= from_ms);
    for record in late {
        people.entry(&record.person).or_default().push(pick(record));
    }
    let medians = people.into_values().map(|values| percentile_of(values, 50.0));
    medians.sum::<Option<f64>>().filter(|sum| *sum > 0.0)
}

/// Payload that all bots receive together in windows that end at `from_ms` or later, in Mbit/s.
fn received_mbit(session: &Session, from_ms: u64) -> Option<f64> {
    let kbps = |record: &SampleRecord| {
        record.sample.received.iter().map(|row| row.bitrate_kbps).sum::<f64>()
    };
    sum_of_medians(session, from_ms, kbps).map(|kbps| kbps / 1000.0)
}

/// Tracks that bots usually receive at once from bots, added up.
fn consumers(session: &Session) -> u64 {
    let browsers = session.meta.people.iter().filter(|person| person.kind != PersonKind::Bot);
    let browsers: BTreeSet<&str> = browsers.filter_map(|p| p.participant.as_deref()).collect();
    let flows = |row: &&ReceivedTrack| {
        row.packets_received > 0 && !browsers.contains(row.participant.as_str())
    };
    let count = |record: &SampleRecord| record.sample.received.iter().filter(flows).count() as f64;
    sum_of_medians(session, 0, count).unwrap_or_default() as u64
}

/// What a bot sends of its picture, in Mbit/s: the median.
fn picture_mbit(session: &Session) -> Option<f64> {
    sent_pictures(session, |row| Some(row.bitrate_kbps / 1000.0))
}

/// Frames a second that a bot sends: the median.
pub(super) fn sent_frames_per_second(session: &Session) -> Option<f64> {
    sent_pictures(session, |row| row.frames_per_second)
}

fn sent_pictures(session: &Session, pick: fn(&SentTrack) -> Option<f64>) -> Option<f64> {
    let rows = samples_of(session, PersonKind::Bot).flat_map(|record| &record.sample.sent);
    percentile_of(rows.filter(|row| row.kind == MediaKind::Video).filter_map(pick), 50.0)
}

/// CPU of the lab without a browser's, in cores.
fn generator_cores(session: &Session) -> f64 {
    let generator = &session.summary.generator;
    generator.cpu_cores - generator.threads.get("chromium").copied().unwrap_or_default()
}

/// A figure of bots' rows over time: by the end of the window in s, the `percent`th percentile over the rows.
pub(super) fn over_time(
    session: &Session,
    percent: f64,
    pick: impl Fn(&ReceivedTrack) -> Option<f64>,
) -> BTreeMap<u64, f64> {
    let mut windows = BTreeMap::<u64, Vec<f64>>::new();
    for record in samples_of(session, PersonKind::Bot) {
        let values = record.sample.received.iter().filter_map(&pick);
        windows.entry(window(record.t_ms)).or_default().extend(values);
    }
    let reduce = |(at, values): (u64, Vec<f64>)| Some((at, percentile_of(values, percent)?));
    windows.into_iter().filter_map(reduce).collect()
}

/// The end of the window that a moment is in, in s.
pub(super) fn window(t_ms: u64) -> u64 {
    t_ms.div_ceil(WINDOW_MS) * WINDOW_MS / 1000
}

/// What fills a limited link in the second half of a session, in Mbit/s.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Filling {
    /// All that the link sent.
    pub all: f64,
    /// Payload of pictures, each packet once.
    pub pictures: f64,
    /// Payload of sound.
    pub sound: f64,
    /// Pictures' packets that were sent again, as far as they came.
    pub repair: f64,
}

impl Filling {
    /// None where no limited link was read.
    pub fn of(session: &Session) -> Option<Self> {
        let half_s = session.summary.duration_s / 2.0;
        let all = session.mean_from(half_s, |record| {
            let links = &record.server.as_ref()?.kernel.as_ref()?.links;
            let limited = links.iter().filter(|link| link.limit_mbit_per_s.is_some());
            limited.map(|link: &LinkUsage| link.mbit_per_s).reduce(f64::max)
        })?;
        let of = |kind: MediaKind, share: fn(&ReceivedTrack) -> f64| {
            let kbps = |record: &SampleRecord| {
                let rows = record.sample.received.iter().filter(|row| row.kind == kind);
                rows.map(|row| row.bitrate_kbps * share(row)).sum::<f64>()
            };
            session.bots_together(half_s, kbps) / 1000.0
        };
        let again = |row: &ReceivedTrack| {
            let again = row.retransmitted_packets_received.unwrap_or_default() as f64;
            again / row.packets_received.max(1) as f64
        };
        let (pictures, sound) = (of(MediaKind::Video, |_| 1.0), of(MediaKind::Audio, |_| 1.0));
        Some(Self { all, pictures, sound, repair: of(MediaKind::Video, again) })
    }

    /// Headers, control packets, padding, and what TCP itself sends again.
    pub fn rest(&self) -> f64 {
        (self.all - self.pictures - self.sound - self.repair).max(0.0)
    }

    /// Shares of all, in percent: pictures, sound, repair, the rest.
    pub fn shares(&self) -> [f64; 4] {
        let all = self.all.max(1e-9);
        [self.pictures, self.sound, self.repair, self.rest()].map(|part| 100.0 * part / all)
    }
}
