//! Study C: mesh against SFU, 1:N video, two to eight people.

use super::columns::{LATE, PEOPLE};
use super::session::{Session, Sessions, limits};
use crate::observe::metrics::Reduced;
use crate::record::{About, Cell, Plot, Row, Table};

/// The study's table: people, then CPU in percent of client with mesh and SFU, of server likewise.
const STUDY: [(u32, f64, f64, f64, f64); 7] = [
    (2, 4.0, 5.0, 0.1, 2.0),
    (3, 10.0, 8.0, 0.1, 13.0),
    (4, 22.0, 9.5, 0.1, 24.0),
    (5, 34.0, 18.0, 0.1, 32.0),
    (6, 47.0, 25.0, 0.1, 41.0),
    (7, 64.0, 30.0, 0.1, 48.0),
    (8, 80.0, 30.0, 0.1, 50.0),
];
/// So many browsers that encode in software are as many as two CPUs carry.
const MOST_BROWSERS: u32 = 4;

const KINDS: [&str; 2] = ["mesh", "sfu"];

fn tables() -> Vec<Table> {
    let cpu = [
        ("client_cpu_mesh_pct", "clients' CPU %, mesh", 1),
        ("client_cpu_sfu_pct", "clients' CPU %, SFU", 1),
        ("server_cpu_mesh_pct", "server CPU %, mesh", 2),
        ("server_cpu_sfu_pct", "server CPU %, SFU", 2),
        ("browsers", "browsers", 0),
        ("bots", "native bots", 0),
    ];
    let quality = [
        ("freeze_pct", "frozen % (worst 5 % of people)", 2),
        ("frames_per_second", "frames/s (worst 5 %)", 1),
        LATE,
        ("loss_pct", "loss % (95 %)", 3),
        ("first_frame_ms", "first frame ms (95 %)", 0),
        PEOPLE,
    ];
    vec![
        Table::new(
            "cpu",
            "CPU over people",
            "One person sends 360p video, everyone speaks and hears. Percent of one core, of all \
             clients together, over the second half of each session; the study's is of its desktop. \
             Rows of native bots encode nothing and decode nothing: their clients' CPU is the cost \
             of the network alone and is not to be compared with a browser's.",
            &cpu,
        ),
        Table::new(
            "quality",
            "How late and how frozen",
            "What the study saw but could not say in numbers: with its SFU, video was no longer \
             live from 6 people and froze for seconds from 7; in the mesh it slowed and never \
             froze. Late is half the round trip plus the jitter buffer.",
            &quality,
        ),
    ]
}

/// What the study is, and its tables.
pub(super) fn about() -> About {
    let text = "The study had browsers and server on one desktop and let one person show video to \
               one to seven others, by a mesh and by an SFU.";
    About::new("Study C: mesh against SFU", text, tables())
}

pub(super) async fn run(sessions: &mut Sessions, about: &mut About) -> Vec<Row> {
    let tables = about.tables.clone();
    let most_browsers = match (sessions.has_chromium(), sessions.quick) {
        (false, _) => 0,
        (true, true) => 2,
        (true, false) => MOST_BROWSERS,
    };
    let (mut rows, mut points) = (Vec::new(), Vec::new());
    for (people, client_mesh, client_sfu, server_mesh, server_sfu) in STUDY {
        let row = Row::new("cpu", format!("{people} people")).reference([
            ("client_cpu_mesh_pct", client_mesh),
            ("client_cpu_sfu_pct", client_sfu),
            ("server_cpu_mesh_pct", server_mesh),
            ("server_cpu_sfu_pct", server_sfu),
        ]);
        if sessions.quick && people > 3 {
            let reason = "--quick runs two and three people only";
            rows.push(row.rest(&tables[0], reason));
            for kind in KINDS {
                let name = format!("{people} people, {kind}");
                rows.push(Row::new("quality", name).rest(&tables[1], reason));
            }
            continue;
        }
        let browsers = if people <= most_browsers { people } else { 0 };
        let (row, quality, point) = pair(sessions, &tables, row, people, browsers).await;
        rows.push(row);
        rows.extend(quality);
        points.push((f64::from(people), point));
    }
    about.plots.push(Plot::new(
        ("CPU over people", "% of one core", "people"),
        &["clients, mesh", "clients, SFU", "server, mesh", "server, SFU"],
        points,
    ));
    about.shown.push(format!(
        "Up to {most_browsers} people are real browsers that share this machine's CPUs with the \
         server; more are native bots, and labelled so."
    ));
    about.not_shown.extend([
        "What a browser needs with more people than this machine carries.".to_owned(),
        "Mouth-to-ear and camera-to-screen delay: marks in sound and picture come later; “late” is \
         an estimate."
            .to_owned(),
    ]);
    rows
}

type Point = Vec<Option<f64>>;

/// The same room by mesh and by SFU.
async fn pair(
    sessions: &mut Sessions,
    tables: &[Table],
    mut row: Row,
    people: u32,
    browsers: u32,
) -> (Row, Vec<Row>, Point) {
    let bots = people - browsers;
    row =
        row.cell("browsers", Cell::number(browsers.into())).cell("bots", Cell::number(bots.into()));
    let mut quality = Vec::new();
    let (mut clients, mut servers) = (Vec::new(), Vec::new());
    for kind in KINDS {
        let seconds = match (sessions.quick, browsers) {
            (true, 0) => 8,
            (true, _) => 14,
            (false, 0) => 20,
            (false, _) => 32,
        };
        // Pages take a while to start, and their start is not the room's cost.
        let from_s = f64::from(seconds) / 2.0;
        let serve = if browsers > 0 { "serve: { cpus: shared }\n" } else { &sessions.serve(1) };
        let text = format!(
            "{serve}duration: {seconds}s\nrooms: [{{ audio: {kind}, video: {kind}, senders: 1, \
             people: {{ bot: {bots}, chromium: {browsers} }} }}]\nmedia: {{ audio: speech, video: \
             360p }}\ncanary: {{ show: 8 }}\njoin: {{ per_second: 2 }}\n"
        );
        let name = format!("{kind}-{people}");
        let of_kind = Row::new("quality", format!("{people} people, {kind}"));
        let session = match sessions.run(&name, &text).await {
            Ok(session) => session,
            Err(reason) => {
                quality.push(of_kind.rest(&tables[1], &reason));
                for side in ["client", "server"] {
                    let key = format!("{side}_cpu_{kind}_pct");
                    row = row.cell(&key, Cell::none(reason.clone()));
                }
                clients.push(None);
                servers.push(None);
                continue;
            }
        };
        let client = clients_pct(&session, browsers > 0, from_s);
        let server = session
            .mean_from(from_s, |record| record.server.as_ref()?.cpu_cores)
            .map(|cores| cores * 100.0);
        row = row
            .measured(&format!("client_cpu_{kind}_pct"), client)
            .measured(&format!("server_cpu_{kind}_pct"), server);
        clients.push(client);
        servers.push(server);
        let mut of_kind = limits(quality_row(of_kind, &session), &session);
        if browsers == 0 {
            of_kind = of_kind.note("native bots: no jitter buffer, so late is the network alone");
        }
        quality.push(of_kind);
    }
    (row, quality, clients.into_iter().chain(servers).collect())
}

/// CPU of the people: of the browser's processes, or of the bots' own threads, in % of a core.
fn clients_pct(session: &Session, browsers: bool, from_s: f64) -> Option<f64> {
    let wanted = |name: &str| match browsers {
        true => name == "chromium",
        false => name.starts_with("bots"),
    };
    session.mean_from(from_s, |record| {
        let threads = record.generator.threads.iter();
        let cores: f64 = threads.filter(|(name, _)| wanted(name)).map(|(_, cores)| cores).sum();
        (cores > 0.0).then_some(cores * 100.0)
    })
}

fn quality_row(row: Row, session: &Session) -> Row {
    let of = |name: &str, pick: fn(&Reduced) -> f64| session.metric(name).map(pick);
    let no_freeze = "native bots decode nothing: they tell no freezes";
    row.cell(
        "freeze_pct",
        Cell::or(of("freeze_ratio", |metric| metric.user_p95 * 100.0), no_freeze),
    )
    .measured("frames_per_second", of("frames_per_second", |metric| metric.user_p5))
    .measured("late_ms", late_ms(session))
    .measured("loss_pct", of("loss_pct", |metric| metric.user_p95))
    .measured("first_frame_ms", of("join_to_first_frame_ms", |metric| metric.p95))
    .cell("people", Cell::number(session.summary.people as f64))
}

/// Half the round trip plus the jitter buffer; only the first where no buffer is told.
fn late_ms(session: &Session) -> Option<f64> {
    let rtt = session.metric("rtt_ms")?.user_p95;
    let buffer = session.metric("jitter_buffer_ms").map_or(0.0, |metric| metric.user_p95);
    Some(rtt / 2.0 + buffer)
}
