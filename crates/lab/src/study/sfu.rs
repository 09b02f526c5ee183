//! Study A: an SFU on a small box. Rooms of one kind of video at a time: 10 and 30 people at
//! 1080p, two at 480p and at 360p.

mod canary;
mod congestion;
mod figures;
mod others;
mod profile;
mod repeats;
mod room;
mod shape;
mod verdict;

use super::others::Others;
use super::session::{Session, Sessions};
use crate::record::{About, Cell, Plot, Row, Table};
use figures::session_row;
use shape::{PLANS, Plan};

fn tables() -> Vec<Table> {
    vec![
        shape::sessions_table(),
        verdict::table(),
        shape::change_table(),
        repeats::table(),
        canary::table(),
        shape::signaling_table(),
        congestion::tcp_table(),
        congestion::later_table(),
    ]
}

/// What the study is, and its tables.
pub(super) fn about() -> About {
    let text = "The study ran mediasoup v3 on a cloud machine with 2 virtual CPUs and about \
               100 Mbit/s, with hosted browsers behind a tunnel that forced RTP over TCP. Here a \
               server of our own has half of this machine's CPUs, native bots the other half.";
    About::new("Study A: an SFU on a small box", text, tables()).found(
        "Ten people at 1080p filled the network while the CPU was half idle, thirty filled both; jitter was of seconds and \
         nothing was lost, so 360p is stable, 480p a caution and 1080p a danger.",
    )
}

/// What was found, in two sentences; one whose figures were not measured is left out.
fn found(rows: &[Row]) -> String {
    let of = |table: &str, name: &str, column: &str| {
        let row = rows.iter().find(|row| row.table == table && row.name == name)?;
        row.cells.get(column)?.shown(0)
    };
    let free = || {
        let session = |plan: &Plan, column| of("sessions", plan.name, column);
        let [few, many] = [&PLANS[0], &PLANS[3]];
        Some(format!(
            "{} people at 1080p use {} % of the server's CPUs and {} use {} % on a free network. ",
            session(few, "people")?,
            session(few, "server_cpu_pct")?,
            session(many, "people")?,
            session(many, "server_cpu_pct")?,
        ))
    };
    let by_tcp = || {
        let written = |column| of("tcp", "10 people, TCP as the study's server", column);
        Some(format!(
            "Behind 100 Mbit/s a server that writes all into TCP loses {} % and delays sound by {} ms (95 % of people); \
             moim by TCP delays it by {} ms, since pictures give way.",
            written("loss_pct")?,
            written("delay_ms")?,
            of("tcp", "10 people, TCP", "delay_ms")?,
        ))
    };
    let found = free().unwrap_or_default() + &by_tcp().unwrap_or_default();
    found.trim_end().to_owned()
}

pub(super) async fn run(sessions: &mut Sessions, about: &mut About) -> Vec<Row> {
    let tables = about.tables.clone();
    let of = |id: &str| tables.iter().find(|table| table.id == id).cloned().unwrap_or_default();
    // First: whoever is missing is known before the long sessions.
    let beside = Others::meet(sessions).await;
    let mut rows = Vec::new();
    let mut points = Vec::new();
    for plan in &PLANS {
        rows.extend(planned(sessions, plan, of, &mut points).await);
    }
    rows.extend(change(&rows, &of("change")));
    rows.extend(repeats::run(sessions, &of("repeats")).await);
    rows.push(congestion::over_tcp(sessions, &of("later")).await);
    rows.extend(others::run(sessions, &beside, about).await);
    let tables = [&of("later"), &of("tcp"), &of("verdicts")];
    let (limited, plots) = congestion::limited(sessions, tables).await;
    rows.extend(limited);
    about.plots.extend(plots);
    about.plots.push(Plot::new(
        ("Server CPU over what it sends", "% of a CPU set; % of a core", "Mbit/s"),
        &["server", "busiest thread"],
        points,
    ));
    if sessions.asked.profile {
        let table = profile::table();
        let dir = sessions.dir().to_owned();
        rows.extend(profile::run(sessions, &table, &dir).await);
        about.tables.push(table);
    }
    about.ours = found(&rows);
    about.shown.push(
        "Loss, jitter and RTT as each bot saw them, the server's CPU by thread, and what a packet \
         costs."
            .into(),
    );
    about.shown.extend(congestion::finding(&rows));
    about.not_shown.extend([
        "Browsers as people: ten of them at 1080p need more CPUs than a server beside them leaves; one looks on in each session.".to_owned(),
    ]);
    rows
}

/// A point of the plot: Mbit/s, then the CPU of the server and of its busiest thread.
type Point = (f64, Vec<Option<f64>>);

/// One of the study's sessions: its row in each table.
async fn planned(
    sessions: &mut Sessions,
    plan: &Plan,
    table: impl Fn(&str) -> Table,
    points: &mut Vec<Point>,
) -> Vec<Row> {
    let people = if sessions.quick { plan.quick_people } else { plan.people };
    let row = session_of(plan, people, sessions.quick);
    let watched = watched(sessions, plan);
    let seconds = match (sessions.quick, &watched) {
        (false, _) => plan.seconds,
        // A page takes a while to start.
        (true, Ok(())) => 14,
        (true, Err(_)) => 8,
    };
    let name = format!("{people}-people-{}", plan.video);
    let media = format!("video: {}", plan.source());
    let serve = sessions.serve(1);
    let text = match &watched {
        Ok(()) => room::with_canary(&serve, seconds, people, &media),
        Err(_) => room::scenario(&serve, seconds, people, &media),
    };
    let verdict = format!("{} ({people} people)", plan.video);
    let session = match sessions.run(&name, &text).await {
        Ok(session) => session,
        Err(reason) => {
            let verdict = Row::new("verdicts", verdict).cell("theirs", Cell::word(plan.verdict));
            return vec![
                row.rest(&table("sessions"), &reason),
                verdict.rest(&table("verdicts"), &reason),
                Row::new("canaries", plan.name).rest(&table("canaries"), &reason),
                signaling_row(plan, None, None).rest(&table("signaling"), &reason),
            ];
        }
    };
    let row = with_frames(session_row(row, &session), plan, &session);
    let of = |key: &str| row.value(key);
    points.push((
        of("mean_rate_mbit").unwrap_or(0.0),
        vec![of("server_cpu_pct"), of("busiest_thread_pct")],
    ));
    let canary = match watched {
        Ok(()) => canary::row(plan.name, &session),
        Err(reason) => Row::new("canaries", plan.name).rest(&table("canaries"), &reason),
    };
    let theirs = plan
        .reference
        .iter()
        .filter(|(key, _)| ["jitter_ms", "loss_pct", "server_cpu_pct"].contains(key));
    let mut verdict = verdict::row(verdict, &row, &session, Ok(plan.verdict));
    verdict.reference.extend(theirs.map(|(key, value)| ((*key).to_owned(), *value)));
    let signaling = signaling_row(plan, of("signaling_cpu_pct"), session.signaling_delay());
    vec![row, verdict, canary, signaling]
}

/// A session's row with the study's figures, and notes.
fn session_of(plan: &Plan, people: u32, quick: bool) -> Row {
    let mut row = Row::new("sessions", plan.name);
    row.reference.extend(plan.reference.iter().map(|(key, value)| ((*key).to_owned(), *value)));
    if let Some(note) = plan.note {
        row = row.note(format!("{note} ({} Mbit/s)", plan.rate_mbit));
    }
    match quick && people != plan.people {
        true => row.note(format!("--quick: {people} people instead of {}", plan.people)),
        false => row,
    }
}

/// Whether a browser looks on, or why not.
fn watched(sessions: &Sessions, plan: &Plan) -> Result<(), String> {
    match sessions.no_chromium() {
        Some(reason) => Err(reason),
        None if sessions.quick && plan.name != PLANS[0].name => {
            Err("with --quick a browser is in the first session only".into())
        }
        None => Ok(()),
    }
}

/// Says what the bots sent beside what the study's cameras gave.
fn with_frames(row: Row, plan: &Plan, session: &Session) -> Row {
    let sent = figures::sent_frames_per_second(session);
    let rate = row.value("picture_mbit");
    let Some((frames, mbit)) = sent.zip(rate) else { return row };
    row.note(format!(
        "pictures of {} with {frames:.1} frames/s and {mbit:.2} Mbit/s here; the study had 30 frames/s, and at 1080p 1.46 \
         Mbit/s (1272 over 870 pictures)",
        plan.video
    ))
}

fn signaling_row(plan: &Plan, busy_pct: Option<f64>, delay: Option<(u64, f64)>) -> Row {
    let told = |pick: fn((u64, f64)) -> f64| delay.map(pick);
    let mut row = Row::new("signaling", plan.name)
        .measured("worst_delay_ms", told(|(_, worst)| worst))
        .measured("delays_over_5_ms", told(|(over, _)| over as f64));
    row.reference.extend(plan.signaling.iter().map(|(key, value)| ((*key).to_owned(), *value)));
    match busy_pct {
        Some(busy) => row.cell("idle_pct", Cell::number(100.0 - busy)),
        None => row,
    }
}

/// What changes from the study's first session to its last ones: figure, and the study's with 10 and with 30 people.
const CHANGES: [(&str, &str, f64, f64, f64); 4] = [
    ("server_cpu_pct", "server CPU % of its set", 50.0, 99.0, 98.0),
    ("jitter_ms", "jitter ms", 2144.0, 2978.0, 39.0),
    ("consumers", "consumers", 176.0, 1510.0, 758.0),
    ("mean_rate_mbit", "mean rate Mbit/s", 434.0, 1272.0, 193.0),
];

fn change(rows: &[Row], table: &Table) -> Vec<Row> {
    let cells = |plan: &Plan| {
        let row = rows.iter().find(|row| row.table == "sessions" && row.name == plan.name);
        row.map(|row| row.cells.clone()).unwrap_or_default()
    };
    let [ten, thirty] = [&PLANS[0], &PLANS[3]].map(cells);
    let row = |(key, name, before, after, change): (&str, &str, f64, f64, f64)| {
        let [ten, thirty] = [&ten, &thirty].map(|cells| cells.get(key)?.value);
        let grew = ten.zip(thirty).filter(|(ten, _)| *ten > 0.0);
        Row::new("change", name)
            .measured("ten", ten)
            .measured("thirty", thirty)
            .measured("change_pct", grew.map(|(ten, thirty)| 100.0 * (thirty / ten - 1.0)))
            .reference([("ten", before), ("thirty", after), ("change_pct", change)])
            .rest(table, "not measured")
    };
    CHANGES.into_iter().map(row).collect()
}

#[cfg(test)]
mod tests;
