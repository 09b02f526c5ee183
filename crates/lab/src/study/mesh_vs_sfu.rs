//! Study C: mesh against SFU. The study's meeting, in which everybody sends camera and voice to everybody, and beside it one
//! sender before a growing audience.

use super::columns::{LATE, PEOPLE, percent};
use super::session::{Session, Sessions, limits};
use crate::observe::metrics::Reduced;
use crate::record::{About, Cell, Plot, Row, Table};

/// The study's table: people, then CPU in percent of client with mesh and SFU, of server likewise.
const STUDY: [(u32, [f64; 4]); 7] = [
    (2, [4.0, 5.0, 0.1, 2.0]),
    (3, [10.0, 8.0, 0.1, 13.0]),
    (4, [22.0, 9.5, 0.1, 24.0]),
    (5, [34.0, 18.0, 0.1, 32.0]),
    (6, [47.0, 25.0, 0.1, 41.0]),
    (7, [64.0, 30.0, 0.1, 48.0]),
    (8, [80.0, 30.0, 0.1, 50.0]),
];
/// People of the other table; bots, whose server's CPU is the question.
const AUDIENCES: [u32; 4] = [4, 16, 30, 100];
/// Members of a mesh, at most.
const MOST_IN_A_MESH: u32 = 16;
/// How browsers take part: what makes a page cheap without making it another thing. Of what four pages in an SFU need with
/// 360p and large windows, a quarter is the drawing of windows, a fifth is pictures, and the rest is sound and packets.
/// In a smaller window than this not all of eight tiles are in view, and what nobody can see is not sent.
const BROWSERS: &str =
    "{ show: 8, camera: 180p, frames_per_second: 15, window: 960x540, time_code: true }";
/// What native bots tell of cameras, screens and encoders.
const NO_CAMERA: &str = "native bots have neither camera nor screen, and encode nothing";
/// From this share of all its CPUs on the machine is full, in percent.
const FULL_PCT: f64 = 90.0;

/// A way of a meeting's media.
struct Kind {
    key: &'static str,
    audio: &'static str,
    video: &'static str,
}

const MESH: Kind = Kind { key: "mesh", audio: "mesh", video: "mesh" };
const SFU: Kind = Kind { key: "sfu", audio: "sfu", video: "sfu" };
const MCU: Kind = Kind { key: "mcu", audio: "mcu", video: "sfu" };

/// What is tested: who sends pictures, by which ways, and the tables of its figures.
struct Shape {
    cpu: &'static str,
    quality: &'static str,
    kinds: &'static [Kind],
    /// What a scenario says of who sends.
    senders: &'static str,
    /// Most people with `--quick`.
    quick: u32,
}

const MEETING: Shape =
    Shape { cpu: "cpu", quality: "quality", kinds: &[MESH, SFU, MCU], senders: "", quick: 3 };
const AUDIENCE: Shape = Shape {
    cpu: "audience_cpu",
    quality: "audience",
    kinds: &[MESH, SFU],
    senders: "senders: 1, ",
    quick: AUDIENCES[0],
};

fn tables() -> Vec<Table> {
    let cpu = [
        ("client_cpu_mesh_pct", "clients' CPU %, mesh", 1),
        ("client_cpu_sfu_pct", "clients' CPU %, SFU", 1),
        ("client_cpu_mcu_pct", "clients' CPU %, sound mixed", 1),
        ("server_cpu_mesh_pct", "server CPU %, mesh", 2),
        ("server_cpu_sfu_pct", "server CPU %, SFU", 2),
        ("server_cpu_mcu_pct", "server CPU %, sound mixed", 2),
        ("browsers", "browsers", 0),
        ("bots", "native bots", 0),
    ];
    let audience_cpu = [cpu[3], cpu[4], cpu[7]];
    let quality = [
        ("camera_to_screen_ms", "camera to screen ms (median)", 0),
        ("camera_to_screen_p95_ms", "camera to screen ms (95 %)", 0),
        ("freeze_pct", "frozen % (worst 5 % of people)", 2),
        ("frames_per_second", "frames/s (worst 5 %)", 1),
        ("cpu_limited_pct", "limited by CPU, % of time (worst 5 %)", 1),
        ("bandwidth_limited_pct", "limited by bandwidth, % of time (worst 5 %)", 1),
        LATE,
        ("loss_pct", "loss % (95 %)", 3),
        ("first_frame_ms", "first frame ms (95 %)", 0),
        PEOPLE,
    ];
    let audience = [quality[6], quality[3], quality[7], quality[8], PEOPLE];
    vec![
        Table::new(
            MEETING.cpu,
            "A meeting: CPU over people",
            "Everybody sends camera and voice to everybody, by real browsers. Percent of one core, of all \
             clients together, over the second half of each session; the study's is of its desktop. \
             So that this machine carries more of them, all pages are in one browser process, their \
             windows are small (960 × 540), and their cameras have 180 lines and 15 frames/s, in VP8. Where the machine is full, its clients' CPU is “at least”, \
             and larger meetings of that way are not held. Two people are no cheaper with an SFU: a mesh of two \
             encodes each picture once, too. Of 360 lines an SFU's clients send a second, smaller size besides, for a \
             path that narrows.",
            &cpu,
        ),
        Table::new(
            MEETING.quality,
            "A meeting: how late and how frozen",
            "What the study saw but could not say in numbers: with its SFU, video was no longer \
             live from 6 people and froze for seconds from 7; in the mesh it slowed and never froze. \
             Camera to screen is read from a time code in the picture, where the page shows it: the median and the \
             95th percentile of all pictures and windows of 3 s. The browser says for how much of the time it sent \
             its picture worse than it could, and for want of what. Late, of native bots, is half the round \
             trip plus the jitter buffer.",
            &quality,
        ),
        Table::new(
            AUDIENCE.cpu,
            "One sender, growing audience: CPU of the server",
            "One person shows video, everyone speaks and hears: a wish of the study's. Percent of \
             one core, over the second half of each session.",
            &audience_cpu,
        ),
        Table::new(
            AUDIENCE.quality,
            "One sender, growing audience: how late",
            "All people are native bots: late is half the round trip plus the jitter buffer.",
            &audience,
        ),
    ]
}

/// What the study is, and its tables.
pub(super) fn about() -> About {
    let text = "The study had browsers and server on one desktop and held a meeting of two to eight \
               people, everybody with camera and voice, by a mesh and by an SFU.";
    About::new("Study C: mesh against SFU", text, tables()).found(
        "From 2 to 8 people a client's CPU grows from 4 to 80 % in a mesh and from 5 to 30 % with an SFU, whose server takes \
         2 to 50 %; with their SFU pictures were no longer live from 6 people and froze for seconds from 7.",
    )
}

/// What was found, in a sentence, of the largest meeting of browsers by both ways.
fn found(rows: &[Row]) -> String {
    let held = |row: &&Row| {
        let told = |key: &str| row.cells.get(key).is_some_and(|cell| cell.value.is_some());
        row.table == MEETING.cpu && told("client_cpu_mesh_pct") && told("client_cpu_sfu_pct")
    };
    let Some(row) = rows.iter().rfind(held) else {
        return "No meeting of browsers was held; only the server's CPU is told.".into();
    };
    let cpu = |key| Row::shown(rows, MEETING.cpu, &row.name, key, 0);
    let late = |way: &str| {
        let name = format!("{}, {way}", row.name);
        Row::shown(rows, MEETING.quality, &name, "camera_to_screen_ms", 0)
    };
    format!(
        "With {} all clients together take {} % of a core in a mesh and {} % with the SFU, whose server takes {} %; from \
         camera to screen it is {} ms and {} ms.",
        row.name,
        cpu("client_cpu_mesh_pct"),
        cpu("client_cpu_sfu_pct"),
        cpu("server_cpu_sfu_pct"),
        late("mesh"),
        late("sfu"),
    )
}

pub(super) async fn run(sessions: &mut Sessions, about: &mut About) -> Vec<Row> {
    let tables = about.tables.clone();
    let has_chromium = sessions.has_chromium();
    let mut full = Full::default();
    let (mut rows, mut points) = (Vec::new(), Vec::new());
    for (people, theirs) in STUDY {
        let [client_mesh, client_sfu, server_mesh, server_sfu] = theirs;
        let row = Row::new(MEETING.cpu, format!("{people} people")).reference([
            ("client_cpu_mesh_pct", client_mesh),
            ("client_cpu_sfu_pct", client_sfu),
            ("server_cpu_mesh_pct", server_mesh),
            ("server_cpu_sfu_pct", server_sfu),
        ]);
        let browsers = if has_chromium { people } else { 0 };
        let who = (people, browsers);
        let (some, point) = compare(sessions, &tables, &MEETING, row, who, &mut full).await;
        rows.extend(some);
        points.extend(point.map(|point| (f64::from(people), point)));
    }
    for people in AUDIENCES {
        let row = Row::new(AUDIENCE.cpu, format!("{people} people"));
        let who = (people, 0);
        let (some, _) = compare(sessions, &tables, &AUDIENCE, row, who, &mut Full::default()).await;
        rows.extend(some);
    }
    let labels = MEETING.kinds.iter().map(|kind| kind.key);
    let labels: Vec<String> = ["clients", "server"]
        .iter()
        .flat_map(|side| labels.clone().map(move |kind| format!("{side}, {kind}")))
        .collect();
    about.plots.push(Plot::new(
        ("A meeting: CPU over people", "% of one core", "people"),
        &labels.iter().map(String::as_str).collect::<Vec<_>>(),
        points,
    ));
    about.ours = found(&rows);
    about.shown.push(if has_chromium {
        "The meeting's people are real browsers that share this machine's CPUs with the server, up to \
         where it is full."
            .to_owned()
    } else {
        "There is no Chromium here: the meeting's people are native bots, and only the server's CPU is told."
            .to_owned()
    });
    about
        .not_shown
        .push("What a browser needs with more people than this machine carries.".to_owned());
    rows
}

/// The ways in which a meeting filled the machine, and with how many people.
#[derive(Debug, Default)]
struct Full(Vec<(&'static str, u32)>);

impl Full {
    /// Why a larger meeting of this kind is not held, if so.
    fn reason(&self, kind: &Kind) -> Option<String> {
        let (_, people) = self.0.iter().find(|(key, _)| *key == kind.key)?;
        Some(format!("this machine was full with {people} people"))
    }
}

/// The CPU of clients, then of the server, by each way.
type Point = Vec<Option<f64>>;

/// The same room by each way: its rows, and its point if it was held.
async fn compare(
    sessions: &mut Sessions,
    tables: &[Table],
    shape: &Shape,
    mut row: Row,
    (people, browsers): (u32, u32),
    full: &mut Full,
) -> (Vec<Row>, Option<Point>) {
    let table = |id: &str| tables.iter().find(|table| table.id == id).cloned().unwrap_or_default();
    let (cpu, quality) = (table(shape.cpu), table(shape.quality));
    let name = |kind: &Kind| format!("{people} people, {}", kind.key);
    if sessions.quick && people > shape.quick {
        let reason = &format!("--quick runs up to {} people only", shape.quick);
        let mut rows = vec![row.rest(&cpu, reason)];
        let of_kinds = shape.kinds.iter();
        rows.extend(of_kinds.map(|k| Row::new(shape.quality, name(k)).rest(&quality, reason)));
        return (rows, None);
    }
    let bots = people - browsers;
    row =
        row.cell("browsers", Cell::number(browsers.into())).cell("bots", Cell::number(bots.into()));
    let (mut rows, mut clients, mut servers) = (Vec::new(), Vec::new(), Vec::new());
    for kind in shape.kinds {
        let session = match full.reason(kind) {
            Some(reason) => Err(reason),
            None => hold(sessions, shape, kind, (bots, browsers)).await,
        };
        let of_kind = Row::new(shape.quality, name(kind));
        let figures = match &session {
            Ok(held) => held.cpu(browsers > 0),
            Err(reason) => (Err(reason.clone()), Err(reason.clone())),
        };
        for (side, figure, all) in
            [("client", figures.0, &mut clients), ("server", figures.1, &mut servers)]
        {
            all.push(figure.as_ref().ok().copied());
            let cell = figure.map_or_else(Cell::none, Cell::number);
            row = row.cell(&format!("{side}_cpu_{}_pct", kind.key), cell);
        }
        match session {
            Err(reason) => rows.push(of_kind.rest(&quality, &reason)),
            Ok(held) => {
                rows.push(limits(quality_row(of_kind, &held.session, browsers > 0), &held.session));
                if let Some(busy) = held.machine_pct().filter(|busy| *busy >= FULL_PCT) {
                    let what = format!(
                        "{}: at least, since the machine is full, {busy:.0} % of its CPUs",
                        kind.key
                    );
                    row = row.note(what);
                    if browsers > 0 {
                        full.0.push((kind.key, people));
                    }
                }
            }
        }
    }
    rows.insert(0, row);
    (rows, Some(clients.into_iter().chain(servers).collect()))
}

/// A room that was held.
struct Held {
    session: Session,
    /// Its second half begins here: pages take a while to start, and their start is not the room's cost.
    from_s: f64,
}

async fn hold(
    sessions: &mut Sessions,
    shape: &Shape,
    kind: &Kind,
    (bots, browsers): (u32, u32),
) -> Result<Held, String> {
    let people = bots + browsers;
    if kind.key == MESH.key && people > MOST_IN_A_MESH {
        return Err(format!("a mesh has {MOST_IN_A_MESH} members at most"));
    }
    let seconds = match (sessions.quick, browsers) {
        (true, 0) => 8,
        (true, _) => 14,
        (false, 0) => 16,
        (false, _) => 26,
    };
    let serve = if browsers > 0 { "serve: { cpus: shared }\n" } else { &sessions.serve(1) };
    let Shape { cpu, senders, .. } = shape;
    let Kind { key, audio, video } = kind;
    let text = format!(
        "{serve}duration: {seconds}s\nrooms: [{{ audio: {audio}, video: {video}, {senders}people: \
         {{ bot: {bots}, chromium: {browsers} }} }}]\nmedia: {{ audio: speech, video: 360p \
         }}\ncanary: {BROWSERS}\njoin: {{ per_second: {} }}\n",
        if people > MOST_IN_A_MESH { 20 } else { 2 }
    );
    let session = sessions.run(&format!("{cpu}-{key}-{people}"), &text).await?;
    Ok(Held { session, from_s: f64::from(seconds) / 2.0 })
}

impl Held {
    /// CPU of clients and of the server, in percent of a core, or why it is not known.
    fn cpu(&self, browsers: bool) -> (Result<f64, String>, Result<f64, String>) {
        let of_browsers = || {
            self.session.mean_from(self.from_s, |record| {
                let threads = record.generator.threads.iter();
                let wanted = threads.filter(|(name, _)| *name == "chromium");
                let cores: f64 = wanted.map(|(_, cores)| cores).sum();
                (cores > 0.0).then_some(cores * 100.0)
            })
        };
        let clients = match browsers {
            true => of_browsers().ok_or_else(|| "the browser's CPU could not be read".to_owned()),
            false => Err("native bots encode and decode nothing".to_owned()),
        };
        let server = self.server_cores().map(|cores| cores * 100.0);
        (clients, server.ok_or_else(|| "the server's CPU could not be read".to_owned()))
    }

    fn server_cores(&self) -> Option<f64> {
        self.session.mean_from(self.from_s, |record| record.server.as_ref()?.cpu_cores)
    }

    /// Share of all CPUs that server and clients used together, in percent.
    fn machine_pct(&self) -> Option<f64> {
        let lab = self.session.mean_from(self.from_s, |record| {
            Some(record.generator.threads.values().sum::<f64>())
        })?;
        let cpus = net::thread::current_thread_cpus().ok()?.len() as f64;
        Some(100.0 * (lab + self.server_cores()?) / cpus)
    }
}

fn quality_row(row: Row, session: &Session, browsers: bool) -> Row {
    let of = |name: &str, pick: fn(&Reduced) -> f64| session.metric(name).map(pick);
    let of_browsers = |value| match browsers {
        true => Cell::or(value, "nobody could measure it in this session"),
        false => Cell::none(NO_CAMERA),
    };
    let share = |name| percent(of(name, |metric| metric.user_p95));
    let late = match browsers {
        true => Cell::none("measured: camera to screen"),
        false => Cell::or(late_ms(session), "nobody could measure it in this session"),
    };
    row.cell("camera_to_screen_ms", of_browsers(of("camera_to_screen_ms", |metric| metric.p50)))
        .cell(
            "camera_to_screen_p95_ms",
            of_browsers(of("camera_to_screen_ms", |metric| metric.p95)),
        )
        .cell("freeze_pct", of_browsers(share("freeze_ratio")))
        .cell("cpu_limited_pct", of_browsers(share("cpu_limited_ratio")))
        .cell("bandwidth_limited_pct", of_browsers(share("bandwidth_limited_ratio")))
        .cell("late_ms", late)
        .measured("frames_per_second", of("frames_per_second", |metric| metric.user_p5))
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
