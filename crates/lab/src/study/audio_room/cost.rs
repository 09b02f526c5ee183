//! What one person costs the generator, and two; and how many then fit on a node.

use super::super::session::{Session, Sessions};
use super::room::{no_browser, room};
use crate::observe::proc;
use crate::record::{Cell, PersonKind, Row, Table};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// The study gave each person so much more than it had measured (250 of 200 mCPU) …
const SPARE: f64 = 1.25;
/// … and used so much of a node's CPUs (six of 250 mCPU on two CPUs), in mCPU.
const NODE_MCPU: f64 = 1500.0;
/// The people of the study's plan.
const PLANNED: f64 = 2160.0;

/// A kind of person, and so many of them.
struct Kind {
    name: &'static str,
    session: &'static str,
    bots: u32,
    browsers: u32,
    /// What the study measured of as many: mCPU, MB, MB inbound a minute.
    study: Option<[f64; 3]>,
    note: &'static str,
}

const KINDS: [Kind; 3] = [
    Kind {
        name: "a native bot",
        session: "cost-bots",
        bots: 10,
        browsers: 0,
        study: None,
        note: "a tenth of what 10 need together",
    },
    Kind {
        name: "a browser",
        session: "cost-browser",
        bots: 1,
        browsers: 1,
        study: Some([200.0, 100.0, 0.12]),
        note: "all processes of one browser with one page",
    },
    Kind {
        name: "two browsers",
        session: "cost-browsers",
        bots: 1,
        browsers: 2,
        study: Some([400.0, 200.0, 0.28]),
        note: "two pages of one browser; the study's were two pods on one node",
    },
];

/// What kinds of people cost, what fits on a node by that, and the session with one browser.
pub(super) async fn costs(
    sessions: &mut Sessions,
    cost: &Table,
    sizing: &Table,
) -> (Vec<Row>, Option<Session>) {
    let (mut rows, mut browser) = (Vec::new(), None);
    for kind in KINDS {
        let (row, session) = measure(sessions, cost, &kind).await;
        if kind.name != "two browsers" {
            rows.push(size(&kind, &row, sizing));
        }
        rows.push(row);
        if kind.browsers == 1 {
            browser = session;
        }
    }
    (rows, browser)
}

async fn measure(sessions: &mut Sessions, table: &Table, kind: &Kind) -> (Row, Option<Session>) {
    let seconds = if sessions.quick { 8 } else { 20 };
    let row = Row::new("cost", kind.name);
    let row = match kind.study {
        Some([mcpu, memory, inbound]) => {
            row.reference([("mcpu", mcpu), ("memory_mb", memory), ("inbound_mb_per_min", inbound)])
        }
        None => row,
    };
    if let Some(why) = no_browser(sessions).filter(|_| kind.browsers > 0) {
        return (row.rest(table, &why), None);
    }
    let of_browsers = kind.browsers > 0;
    let me = std::process::id();
    let before = if of_browsers { Some(0.0) } else { proc::rss_mib(me) };
    let watch = Peak::start(move || match of_browsers {
        true => proc::children_pss_mib(me, "chrom"),
        false => proc::rss_mib(me),
    });
    let text = room(sessions, kind.bots, kind.browsers, seconds, 10.0);
    let session = sessions.run(kind.session, &text).await;
    let peak = watch.stop();
    let session = match session {
        Ok(session) => session,
        Err(reason) => return (row.rest(table, &reason), None),
    };
    // Of ten bots one is told, of browsers all.
    let share = if of_browsers { 1.0 } else { f64::from(kind.bots) };
    let wanted = if of_browsers { "chromium" } else { "bots" };
    let threads = session.summary.generator.threads.iter();
    let threads = threads.filter(|(name, _)| name.starts_with(wanted));
    let cores = threads.map(|(_, cores)| cores).copied().reduce(|sum, one| sum + one);
    let person = if of_browsers { PersonKind::Chromium } else { PersonKind::Bot };
    let [inbound, outbound] = mb_per_min(&session, person, f64::from(kind.browsers.max(1)));
    let row = row
        .measured("mcpu", cores.map(|cores| cores * 1000.0 / share))
        .measured("memory_mb", peak.zip(before).map(|(peak, before)| (peak - before) / share))
        .measured("inbound_mb_per_min", inbound)
        .measured("outbound_mb_per_min", outbound)
        .note(kind.note);
    (row, Some(session))
}

/// How many of a kind a node carries, and how many nodes the study's plan takes.
fn size(kind: &Kind, cost: &Row, table: &Table) -> Row {
    let row = Row::new("sizing", kind.name);
    let row = match kind.study {
        Some(_) => row.reference([
            ("mcpu_given", 250.0),
            ("memory_mb_given", 600.0),
            ("a_node", 6.0),
            ("nodes", 360.0),
        ]),
        None => row,
    };
    let given = |key: &str| Some(cost.value(key)? * SPARE);
    let Some(mcpu) = given("mcpu") else {
        return row.rest(table, "what one costs was not measured");
    };
    let a_node = (NODE_MCPU / mcpu).floor();
    row.cell("mcpu_given", Cell::number(mcpu))
        .measured("memory_mb_given", given("memory_mb"))
        .cell("a_node", Cell::number(a_node))
        .cell("nodes", Cell::or((a_node > 0.0).then(|| (PLANNED / a_node).ceil()), "not one fits"))
}

/// What so many people of a kind receive and send in a minute: payload, in MB.
fn mb_per_min(session: &Session, kind: PersonKind, people: f64) -> [Option<f64>; 2] {
    let (mut megabytes, mut minutes) = ([0.0; 2], 0.0);
    for record in session.samples.iter().filter(|record| record.kind == kind) {
        let received: f64 = record.sample.received.iter().map(|row| row.bitrate_kbps).sum();
        let sent: f64 = record.sample.sent.iter().map(|row| row.bitrate_kbps).sum();
        let seconds = record.sample.interval_ms as f64 / 1000.0;
        megabytes[0] += received * seconds / 8000.0;
        megabytes[1] += sent * seconds / 8000.0;
        minutes += seconds / 60.0;
    }
    megabytes.map(|megabytes| (minutes > 0.0).then(|| people * megabytes / minutes))
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
