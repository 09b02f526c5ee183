//! The trials of the living room as rows and pictures, and the edges that they found.

use super::super::columns::{GENERATOR_CPU, LOSS, MOUTH_TO_EAR, SERVER_CPU};
use super::living::{Living, Moment, Trial};
use super::timeline::{Part, Verdict};
use crate::base::mean;
use crate::record::{About, Cell, MachineRecord, Plot, Row, Table};
use std::collections::BTreeMap;

/// The study's own trials, by what they were tried for: people, share of the busiest mixer thread where it is told,
/// healthy.
const STUDY: [(Part, bool, f64, Option<f64>); 5] = [
    (Part::Out, false, 2000.0, None),
    (Part::In, true, 1300.0, None),
    (Part::Deep, true, 1000.0, Some(65.0)),
    (Part::TooManyAgain, false, 1400.0, Some(100.0)),
    (Part::Edge, true, 1350.0, Some(90.0)),
];

/// The largest number that the study found clean, and its trials.
const STUDY_EDGE: [(&str, f64); 2] = [("people", 1350.0), ("trials", 6.0)];

/// The tables: trials, and the edges.
pub(super) fn tables() -> [Table; 2] {
    let trials = [
        ("at_s", "at s", 0),
        ("people", "people", 0),
        ("verdict", "verdict", 0),
        ("bad", "3 s that were not healthy", 0),
        ("broke", "what is at its end", 0),
        ("mixer_thread_pct", "busiest mixer thread %", 1),
        SERVER_CPU,
        ("ticks_late_pct", "ticks over 20 ms late %", 2),
        LOSS,
        ("mix_packets_per_s", "packets of the mix/s, worst person", 1),
        MOUTH_TO_EAR,
        ("gap_ms", "longest gap ms (95 % of people)", 0),
        ("mos_lq_median", "median MOS-LQ", 2),
        GENERATOR_CPU,
    ];
    let edges = [
        ("people", "people", 0),
        ("between", "90 % sure", 0),
        ("apart_pct", "apart from the first %", 1),
        ("trials", "trials", 0),
    ];
    [
        Table::new(
            "trials",
            "One room that lives on: out, in, out again",
            "Everybody sends sound all the time, and speaks for a hundredth of it. Healthy: all came in, 95 % of people lose under 1 % and have no gap over 100 ms, sound takes at most \
             400 ms from mouth to ear (95 %), under 1 % of the mixer's ticks are over 20 ms late, nobody gets under 15 \
             packets of the mix a second (of 17 to 50). Each 3 s are judged, and a number is too many if half of them are not \
             healthy: this machine stumbles now and then, and a stumble fills one or two. “At least”: the \
             generator was at its limit, so nothing is said of the server. The study judged by ear, beside a MOS \
             that stayed over 4. Marks in the sound are said and listened for by the first 100 who came.",
            &trials,
        ),
        Table::new(
            "capacity",
            "Capacity",
            "How many people are as often healthy as not, found twice in the same room, each time by trials of its own: ten near \
             the edge beside those on the way there. Each trial moves what is believed of the edge, by a curve with a \
             standard deviation of 5 % (QUEST); the next number is its middle.",
            &edges,
        ),
    ]
}

/// A row a trial, the study's own beside those that were tried for the same.
pub(super) fn rows(living: &Living, table: &Table, reason: &str) -> Vec<Row> {
    let mut rows: Vec<Row> = living.trials.iter().zip(1..).map(row).collect();
    for (part, healthy, people, thread_pct) in STUDY {
        let same =
            |trial: &Trial| trial.part == part && (trial.verdict == Verdict::Healthy) == healthy;
        let Some(index) = living.trials.iter().rposition(same) else { continue };
        let row = &mut rows[index];
        row.reference.insert("people".into(), people);
        row.reference.extend(thread_pct.map(|pct| ("mixer_thread_pct".to_owned(), pct)));
        row.notes.push(format!(
            "the study: {people} people, {}",
            if healthy { "clean" } else { "late, or silent" }
        ));
    }
    if rows.is_empty() {
        rows.push(Row::new("trials", "1.").rest(table, reason));
    }
    rows
}

fn row((trial, number): (&Trial, usize)) -> Row {
    let verdict = match trial.verdict {
        Verdict::Healthy => "healthy",
        Verdict::Broken => "not healthy",
        Verdict::Generator => "at least",
    };
    let broke = match (&trial.broke, trial.verdict) {
        (Some(first), _) => Cell::word(first.clone()),
        (None, Verdict::Generator) => Cell::word("generator"),
        (None, _) => Cell::word("nothing"),
    };
    let machine = &trial.machine;
    let server = mean(machine.iter().filter_map(|one| one.server.as_ref()?.cpu_cores));
    let lab = mean(machine.iter().map(|one| one.generator.cpu_cores));
    let mixer = mixer_cores(machine);
    let health = &trial.health;
    let mut row = Row::new("trials", format!("{number}. {}", trial.part.as_str()))
        .cell("at_s", Cell::number(trial.from_s))
        .cell("people", Cell::number(trial.people.into()))
        .cell("verdict", Cell::word(verdict))
        .cell("bad", Cell::word(format!("{} of {}", trial.bad.0, trial.bad.1)))
        .cell("broke", broke)
        .cell(
            "mixer_thread_pct",
            Cell::or(mixer.map(|cores| cores * 100.0), "the server has no thread named mix-N"),
        )
        .measured("server_cpu_pct", server.map(|cores| cores * 100.0))
        .cell(
            "ticks_late_pct",
            Cell::or(health.ticks_late_pct, "the server tells no ticks of a mixer"),
        )
        .measured("loss_pct", health.loss_pct)
        .measured("mix_packets_per_s", health.worst_mix_per_s)
        .cell("mouth_to_ear_ms", Cell::or(health.mouth_to_ear_ms, "no mark was found in the mix"))
        .measured("gap_ms", health.gap_ms)
        .measured("mos_lq_median", health.mos_lq_median)
        .measured("generator_cpu_cores", lab);
    if trial.people != trial.wanted {
        row = row.note(format!("{} were to be there", trial.wanted));
    }
    if trial.verdict == Verdict::Healthy {
        return row;
    }
    row = row.note(format!("not healthy: {}", trial.lacks.join(", ")));
    let evidence = trial.evidence.iter().filter(|text| !text.starts_with("quality broke"));
    evidence.chain(&trial.limits).take(2).fold(row, |row, text| row.note(text.clone()))
}

/// The busiest mixer thread over some windows, in cores.
fn mixer_cores(machine: &[MachineRecord]) -> Option<f64> {
    let mut threads = BTreeMap::<&str, f64>::new();
    for server in machine.iter().filter_map(|one| one.server.as_ref()) {
        for (name, cores) in server.threads.iter().filter(|(name, _)| name.starts_with("mix")) {
            *threads.entry(name).or_default() += cores;
        }
    }
    threads.into_values().reduce(f64::max).map(|sum| sum / machine.len() as f64)
}

/// The edges, and in a sentence what was found.
pub(super) fn edges(living: &Living, table: &Table, about: &mut About) -> Vec<Row> {
    let trials = Cell::number(living.trials.len() as f64);
    let healthy = living.trials.iter().filter(|trial| trial.verdict == Verdict::Healthy);
    let most = healthy.map(|trial| trial.people).max();
    let mut rows = Vec::new();
    for (edge, name) in living.edges().iter().zip(["the edge", "once more"]) {
        let first = f64::from(living.edges()[0].people);
        let apart = 100.0 * (f64::from(edge.people) - first).abs() / first;
        let row = Row::new("capacity", name)
            .cell("people", Cell::number(edge.people.into()))
            .cell("between", Cell::word(format!("{} to {}", edge.between.0, edge.between.1)))
            .cell("apart_pct", Cell::number(apart))
            .cell("trials", trials.clone());
        rows.push(match rows.is_empty() {
            true => row.reference(STUDY_EDGE),
            false => row,
        });
    }
    let by_generator = living.trials.iter().find(|trial| trial.verdict == Verdict::Generator);
    if rows.is_empty() {
        let why = match by_generator {
            Some(trial) => format!(
                "the generator was at its limit with {} people: {}",
                trial.people,
                trial.limits.join("; ")
            ),
            None => "every number that was tried was healthy, or none".to_owned(),
        };
        let row = Row::new("capacity", "at least")
            .cell("people", Cell::or(most.map(f64::from), "no number that was tried was healthy"))
            .reference(STUDY_EDGE)
            .note(why);
        rows.push(row.cell("trials", trials).rest(table, "no edge of the server was found"));
    }
    let broke = living.trials.iter().filter_map(|trial| trial.broke.as_deref()).next_back();
    about.ours = match (living.edges(), most, broke) {
        ([edge, ..], _, broke) => format!(
            "{} people fit in one mixed room (90 % sure: {} to {}); what breaks with more is {}.",
            edge.people,
            edge.between.0,
            edge.between.1,
            broke.unwrap_or("not known")
        ),
        (_, Some(most), _) => {
            format!(
                "At least {most} people in one mixed room were healthy; no edge of the server was found."
            )
        }
        (_, None, _) => "No number of people was healthy.".to_owned(),
    };
    rows
}

/// Pictures over time: people, scores, CPU, network, delay.
pub(super) fn pictures(living: &Living, machine: &[MachineRecord]) -> Vec<Plot> {
    let of = |pick: fn(&Moment) -> Vec<Option<f64>>| {
        living.moments.iter().map(|moment| (moment.t_s, pick(moment))).collect()
    };
    let server = |pick: fn(&crate::record::ServerUsage) -> Vec<Option<f64>>| {
        let windows = machine.iter().filter_map(|one| Some((one.t_ms, one.server.as_ref()?)));
        windows.map(|(t_ms, server)| (t_ms as f64 / 1000.0, pick(server))).collect()
    };
    let scores = ["least", "99 % have more", "average", "median", "most"];
    vec![
        Plot::new(
            ("People in the room, counted", "people", "seconds"),
            &["people"],
            of(|moment| vec![Some(moment.people)]),
        ),
        Plot::new(
            ("MOS-LQ over time (the study's: 99 % over 4)", "MOS", "seconds"),
            &scores,
            of(|moment| moment.mos_lq.to_vec()),
        ),
        Plot::new(
            ("MOS-CQ over time, with delay in it", "MOS", "seconds"),
            &scores,
            of(|moment| moment.mos_cq.to_vec()),
        ),
        Plot::new(
            ("Mouth to ear (95 %) and longest gap", "ms", "seconds"),
            &["mouth to ear", "gap"],
            of(|moment| vec![moment.mouth_to_ear_ms, moment.gap_ms]),
        ),
        Plot::new(
            ("CPU of the server (the study's at most 55 %)", "% of a core", "seconds"),
            &["server", "media threads", "mixer threads", "signaling"],
            server(|server| {
                let of = |prefix: &str| {
                    let threads =
                        server.threads.iter().filter(|(name, _)| name.starts_with(prefix));
                    Some(threads.map(|(_, cores)| cores * 100.0).sum())
                };
                let all = server.cpu_cores.map(|cores| cores * 100.0);
                vec![all, of("media"), of("mix"), of("signaling")]
            }),
        ),
        Plot::new(
            (
                "CPU quota of the server, which follows the speed of the machine",
                "% of a core",
                "seconds",
            ),
            &["quota"],
            server(|server| {
                let quota = server.kernel.as_ref().and_then(|kernel| kernel.quota.as_ref());
                vec![quota.map(|quota| quota.cores * 100.0)]
            }),
        ),
        Plot::new(
            ("Network of the server", "Mbit/s", "seconds"),
            &["in", "out"],
            server(|server| vec![server.mbit_in_per_s, server.mbit_out_per_s]),
        ),
    ]
}
