//! Study D: an audio-only room. What one person costs first, then one room that lives on while people come and go
//! around the largest healthy number, then a mixer that is late, and the loop of people who come and go.

mod cost;
mod edge;
mod fields;
mod health;
mod living;
mod loops;
mod mos;
mod others;
mod room;
mod timeline;
mod trials;

use super::columns::MOUTH_TO_EAR;
use super::others::Others;
use super::session::Sessions;
use crate::base::{AS_A_SLOW_CPU, Quota};
use crate::record::{About, Cell, MachineRecord, Row, Table};
use fields::field_rows;
use health::Health;
use living::{Living, Pace};
use room::scenario;
use timeline::Timeline;

/// More people are not tried: about here two CPUs are full with people, whatever the server does.
const MOST: u32 = 2400;
/// The server's CPU quota, so that its end comes before the generator's.
const QUOTA_CORES: f64 = 0.4;
/// A handful, to see the same in a minute.
const QUICK_MOST: u32 = 6;

/// The tables in the order of the report.
struct Tables {
    cost: Table,
    sizing: Table,
    trials: [Table; 2],
    late: Table,
    mos: [Table; 2],
    fields: Table,
    loops: Table,
}

impl Tables {
    fn new() -> Self {
        let cost = [
            ("mcpu", "mCPU", 1),
            ("memory_mb", "MB", 1),
            ("inbound_mb_per_min", "MB a minute inbound", 3),
            ("outbound_mb_per_min", "MB a minute outbound", 3),
        ];
        let sizing = [
            ("mcpu_given", "mCPU given to each", 1),
            ("memory_mb_given", "MB given to each", 1),
            ("a_node", "a node", 0),
            ("nodes", "nodes for 2160", 0),
        ];
        let late = [
            ("people", "people", 0),
            ("verdict", "verdict", 0),
            ("mos_lq_median", "median MOS-LQ", 2),
            MOUTH_TO_EAR,
            ("ticks_late_pct", "ticks over 20 ms late %", 2),
            ("bottleneck", "bottleneck", 0),
        ];
        let fields = [
            ("meaning", "in our sample", 0),
            ("present_pct", "native bots %", 1),
            ("browser_pct", "browser %", 1),
        ];
        Self {
            cost: Table::new(
                "cost",
                "What one person costs the generator, and two",
                "Measured first, alone, as the study did. MB a minute are payload.",
                &cost,
            ),
            sizing: Table::new(
                "sizing",
                "How many a node, how many nodes",
                "As the study reckoned: each person is given a quarter more than was measured (250 of 200 mCPU), and \
                 people get 1500 mCPU of a node of two CPUs. The study planned 2160 people.",
                &sizing,
            ),
            trials: trials::tables(),
            late: Table::new(
                "late",
                "A score that knows nothing of delay",
                "The study's regret: its MOS stayed over 4 while sound was audibly late. The same room with a mixer \
                 that is a second behind (`moim serve --fault mixer_backlog=1s`), and without.",
                &late,
            ),
            mos: mos::tables(),
            fields: Table::new(
                "fields",
                "The study's sample fields",
                "Share of our samples (after each person's first) that hold each field of the study's.",
                &fields,
            ),
            loops: loops::table(),
        }
    }

    fn all(&self) -> Vec<Table> {
        let (trials, mos) = (self.trials.iter(), self.mos.iter());
        let all = [&self.cost, &self.sizing].into_iter().chain(trials).chain([&self.late]);
        all.chain(mos).chain([&self.fields, &self.loops]).cloned().collect()
    }
}

/// What the study is, and its tables.
pub(super) fn about() -> About {
    let text = "The study grew an MCU room of headless browsers, one a pod, against a server of 96 \
               virtual CPUs. Here native bots fill one mixed room on half of this machine's CPUs.";
    About::new("Study D: an audio-only room", text, Tables::new().all()).found(
        "1350 people in one mixed room were clean; from 1400 on one mixer thread stood at 100 % while the machine stood at 55 %, \
         and MOS stayed over 4 while sound was audibly late.",
    )
}

pub(super) async fn run(sessions: &mut Sessions, about: &mut About) -> Vec<Row> {
    let (tables, beside) = (Tables::new(), Others::meet(sessions).await);
    let (mut rows, browser) = cost::costs(sessions, &tables.cost, &tables.sizing).await;
    let (living, machine) = live(sessions, about).await;
    let (machine, reason) = match machine {
        Ok(machine) => (machine, "nobody came".to_owned()),
        Err(reason) => (Vec::new(), reason),
    };
    rows.extend(trials::rows(&living, &tables.trials[0], &reason));
    rows.extend(trials::edges(&living, &tables.trials[1], about));
    about.plots.extend(trials::pictures(&living, &machine));
    for fault in [true, false] {
        rows.push(late(sessions, fault, &tables.late).await);
    }
    let best = living.best.as_ref().map(|(_, samples)| &samples[..]);
    rows.extend(mos::rows(best, &tables.mos));
    rows.extend(field_rows(best, browser.as_ref()));
    rows.extend(loops::rows(sessions, &tables.loops).await);
    rows.extend(others::run(sessions, &beside, about).await);
    about.not_shown.push(
        "Pods of browsers: browsers are measured for their cost and come and go, the large room is of \
         native bots."
            .into(),
    );
    rows
}

/// One room that lives on through the whole search.
async fn live(
    sessions: &mut Sessions,
    about: &mut About,
) -> (Living, Result<Vec<MachineRecord>, String>) {
    let (start, most) = if sessions.quick { (QUICK_MOST, QUICK_MOST) } else { (300, MOST) };
    let pace = match (sessions.quick, sessions.asked.like_the_study) {
        (true, _) => Pace { per_second: 4.0, last_per_second: 4.0, hold_ms: 3_000 },
        (false, false) => Pace { per_second: 20.0, last_per_second: 5.0, hold_ms: 18_000 },
        (false, true) => Pace { per_second: 1.0, last_per_second: 1.0, hold_ms: 240_000 },
    };
    let mut living = Living::new(Timeline::new(start, most), pace);
    let limited = !sessions.quick && Quota::new(QUOTA_CORES, AS_A_SLOW_CPU).is_ok();
    let serve = match limited {
        true => sessions.serve_with(1, &format!(", quota_cores: {QUOTA_CORES}")),
        false => sessions.serve(1),
    };
    about.shown.push(match (limited, sessions.quick) {
        (true, _) => format!(
            "The server of the living room has a CPU quota of {QUOTA_CORES} cores: with a whole CPU it carries more \
             people than the generator on the other. The quota is one of work: where the machine gets slower for a \
             while it is larger, as a picture shows."
        ),
        (false, true) => "--quick: no quota, a handful of people.".into(),
        (false, false) => "The server has no CPU quota, which takes root: the generator may end first.".into(),
    });
    let text = scenario(&serve, most, 0, 8 * 3600, 20.0);
    let session = sessions.run_led("living-room", &text, &mut living).await;
    // What everybody sampled is no longer needed: the leader kept what is.
    (living, session.map(|session| session.machine))
}

/// A room whose mixer is late on purpose, or the same without that.
async fn late(sessions: &mut Sessions, fault: bool, table: &Table) -> Row {
    let (bots, seconds) = if sessions.quick { (4, 12) } else { (60, 24) };
    let (name, session) = match fault {
        true => ("a mixer that is a second behind", "late-mixer"),
        false => ("the same without the fault", "mixer-in-time"),
    };
    let more = if fault { ", fault: mixer_backlog=1s" } else { "" };
    let text = scenario(&sessions.serve_with(1, more), bots, 0, seconds, 20.0)
        + "thresholds: { mouth_to_ear_ms: [\"p95 <= 400\"] }\n";
    let row = Row::new("late", name).cell("people", Cell::number(bots.into()));
    let session = match sessions.run(session, &text).await {
        Ok(session) => session,
        Err(reason) => return row.rest(table, &reason),
    };
    let health = Health::of_session(&session, bots as usize);
    health
        .worded(row)
        .measured("mos_lq_median", health.mos_lq_median)
        .measured("mouth_to_ear_ms", health.mouth_to_ear_ms)
        .measured("ticks_late_pct", health.ticks_late_pct)
        .cell(
            "bottleneck",
            Cell::word(session.summary.bottleneck.first.as_deref().unwrap_or("not judged")),
        )
}
