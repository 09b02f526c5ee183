//! Study A: an SFU on a small box. Rooms of one kind of video at a time: 10 and 30 people at
//! 1080p, two at 480p and at 360p.

use super::columns::{
    GENERATOR_CPU, LOSS, MEAN_RATE, PEOPLE, SERVER_CPU, SERVER_CPU_OF_SET, US_PER_PACKET_OUT,
    percent,
};
use super::limited::Limits;
use super::session::{Session, Sessions, limits};
use crate::judge::quality::Quality;
use crate::observe::metrics::Reduced;
use crate::record::{About, Cell, Column, Plot, Row, Table};

/// One of the study's sessions.
struct Plan {
    name: &'static str,
    people: u32,
    quick_people: u32,
    video: &'static str,
    /// What a person sends, in Mbit/s.
    rate_mbit: f64,
    seconds: u32,
    reference: &'static [(&'static str, f64)],
    note: Option<&'static str>,
}

/// The study's network.
const LINK_MBIT: f64 = 100.0;
/// A quota of so much of what the server uses behind the limited link is the next thing in its way. It uses more
/// there than on a free link, since what is lost is asked for again.
const BEHIND: f64 = 1.15;
/// What a limited link makes worse: packets are lost, or pictures are paused or smaller.
const WHOLE: &str = "thresholds: { loss_pct: [\"user_p95 < 2\"], paused_ratio: [\"user_p95 < 0.05\"], \
                     frame_height: [\"user_p5 >= 480\"] }\n";
const SENDS_LESS: &str = "the study's rate is no plausible one for this picture: here the video is \
                          sent at an ordinary rate";

const PLANS: [Plan; 4] = [
    Plan {
        name: "session 1: 10 people, 1080p",
        people: 10,
        quick_people: 4,
        video: "1080p",
        rate_mbit: 1.46,
        seconds: 60,
        reference: &[
            ("people", 10.0),
            ("seconds", 664.0),
            ("server_cpu_pct", 50.0),
            ("jitter_ms", 2144.0),
            ("loss_pct", 0.0),
            ("rtt_ms", 166.0),
            ("received_mb", 34_388.0),
            ("mean_rate_mbit", 434.0),
            ("per_person_mbit", 43.4),
            ("consumers", 176.0),
        ],
        note: None,
    },
    Plan {
        name: "session 2: 2 people, 480p",
        people: 2,
        quick_people: 2,
        video: "480p",
        rate_mbit: 1.0,
        seconds: 40,
        reference: &[
            ("people", 2.0),
            ("seconds", 661.0),
            ("server_cpu_pct", 9.6),
            ("jitter_ms", 378.0),
            ("loss_pct", 0.0),
            ("rtt_ms", 131.0),
            ("received_mb", 8441.0),
            ("mean_rate_mbit", 107.0),
            ("per_person_mbit", 53.6),
            ("consumers", 4.0),
        ],
        note: Some(SENDS_LESS),
    },
    Plan {
        name: "session 3: 2 people, 360p",
        people: 2,
        quick_people: 2,
        video: "360p",
        rate_mbit: 0.6,
        seconds: 40,
        reference: &[
            ("people", 2.0),
            ("seconds", 662.0),
            ("server_cpu_pct", 7.4),
            ("jitter_ms", 158.0),
            ("loss_pct", 0.0),
            ("rtt_ms", 127.0),
            ("received_mb", 8614.0),
            ("mean_rate_mbit", 109.0),
            ("per_person_mbit", 54.6),
            ("consumers", 4.0),
        ],
        note: Some(SENDS_LESS),
    },
    Plan {
        name: "sessions 4–11: 30 people, 1080p",
        people: 30,
        quick_people: 5,
        video: "1080p",
        rate_mbit: 1.46,
        seconds: 90,
        reference: &[
            ("people", 30.0),
            ("seconds", 666.0),
            ("server_cpu_pct", 99.0),
            ("jitter_ms", 2978.0),
            ("mean_rate_mbit", 1272.0),
            ("consumers", 1510.0),
        ],
        note: None,
    },
];

const SESSIONS: [(&str, &str, u8); 15] = [
    PEOPLE,
    ("seconds", "seconds", 0),
    SERVER_CPU_OF_SET,
    ("busiest_thread_pct", "busiest server thread %", 1),
    ("signaling_cpu_pct", "signaling thread %", 2),
    ("jitter_ms", "jitter ms (95 % of people)", 2),
    ("loss_pct", "loss % (95 % of people)", 3),
    ("rtt_ms", "RTT ms (95 % of people)", 2),
    ("received_mb", "received MB", 0),
    MEAN_RATE,
    ("per_person_mbit", "per person Mbit/s", 2),
    ("consumers", "consumers", 0),
    US_PER_PACKET_OUT,
    GENERATOR_CPU,
    ("bottleneck", "bottleneck", 0),
];

fn tables() -> Vec<Table> {
    let verdicts = [
        ("stable", "stable = 1", 0),
        ("caution", "caution = 1", 0),
        ("danger", "danger = 1", 0),
        LOSS,
        SERVER_CPU,
    ];
    let signaling = [
        ("idle_pct", "signaling idle %", 2),
        ("worst_delay_ms", "worst delay ms", 1),
        ("delays_over_5_ms", "delays over 5 ms", 0),
    ];
    let later = [
        SERVER_CPU,
        ("jitter_ms", "jitter ms", 1),
        ("loss_pct", "loss %", 2),
        ("settled_loss_pct", "loss % of all packets, second half", 2),
        ("mos_cq", "MOS-CQ of sound (5 % of people)", 2),
        ("frame_height", "picture's height (5 % of people)", 0),
        ("paused_pct", "pictures paused % (95 % of people)", 1),
        MEAN_RATE,
        ("link_used_pct", "link used %, second half", 1),
        US_PER_PACKET_OUT,
        ("bottleneck", "first bottleneck", 0),
        ("second_bottleneck", "behind it", 0),
    ];
    vec![
        Table::new(
            "sessions",
            "Sessions",
            "Sessions are shorter than the study's eleven minutes. The study's rates and jitter \
             came through a tunnel without UDP; ours are native bots over UDP on one machine. \
             Received is payload.",
            &SESSIONS,
        ),
        Table::new(
            "verdicts",
            "Verdict per resolution",
            &format!("By what was measured here: {}.", Quality::MEANING),
            &verdicts,
        ),
        Table::new(
            "signaling",
            "The signaling thread",
            "The study read its event loop: idle 98.8 to 99.9 %, at worst 80 to 84 ms late. Ours \
             is the CPU time of the thread that serves sockets and rooms, and how late its timer of 50 ms \
             was.",
            &signaling,
        ),
        Table::new(
            "later",
            "TCP, limited links, a hidden second bottleneck",
            "What the study could not separate. The mean rate is payload; the link also carries headers, which are a third of \
             each packet of sound, what is sent again, and probes.",
            &later,
        ),
    ]
}

/// What the study is, and its tables.
pub(super) fn about() -> About {
    let text = "The study ran mediasoup v3 on a cloud machine with 2 virtual CPUs and about \
               100 Mbit/s, with hosted browsers behind a tunnel that forced RTP over TCP. Here a \
               server of our own has half of this machine's CPUs, native bots the other half.";
    About::new("Study A: an SFU on a small box", text, tables())
}

pub(super) async fn run(sessions: &mut Sessions, about: &mut About) -> Vec<Row> {
    let tables = about.tables.clone();
    let mut rows = Vec::new();
    let mut points = Vec::new();
    let mut signaling = Vec::new();
    for plan in &PLANS {
        let people = if sessions.quick { plan.quick_people } else { plan.people };
        let seconds = if sessions.quick { 8 } else { plan.seconds };
        let mut row = Row::new("sessions", plan.name).cell("people", Cell::number(people.into()));
        row.reference.extend(plan.reference.iter().map(|(key, value)| ((*key).to_owned(), *value)));
        if let Some(note) = plan.note {
            row = row.note(format!("{note} ({} Mbit/s)", plan.rate_mbit));
        }
        if people != plan.people {
            row = row.note(format!("--quick: {people} people instead of {}", plan.people));
        }
        let name = format!("{people}-people-{}", plan.video);
        let media = format!("video: {}", plan.video);
        let text = scenario(&sessions.serve(1), seconds, people, &media);
        let session = sessions.run(&name, &text).await;
        let verdict = Row::new("verdicts", format!("{} ({people} people)", plan.video));
        let verdict = studys_verdict(verdict, plan);
        let session = match session {
            Ok(session) => session,
            Err(reason) => {
                rows.push(row.rest(&tables[0], &reason));
                rows.push(verdict.rest(&tables[1], &reason));
                signaling.push(signaling_row(plan, None, None).rest(&tables[2], &reason));
                continue;
            }
        };
        let row = session_row(row, &session);
        let of = |key: &str| row.cells.get(key).and_then(|cell| cell.value);
        points.push((
            of("mean_rate_mbit").unwrap_or(0.0),
            vec![of("server_cpu_pct"), of("busiest_thread_pct")],
        ));
        let figures = [of("loss_pct"), of("server_cpu_pct")];
        rows.push(verdict_row(verdict, figures, session.summary.quality));
        signaling.push(signaling_row(plan, of("signaling_cpu_pct"), session.signaling_delay()));
        rows.push(row);
    }
    rows.extend(signaling);
    rows.push(over_tcp(sessions, &tables[3]).await);
    rows.extend(limited(sessions, &tables[3]).await);
    about.plots.push(Plot::new(
        ("Server CPU over what it sends", "% of a CPU set; % of a core", "Mbit/s"),
        &["server", "busiest thread"],
        points,
    ));
    about.shown.push(
        "Loss, jitter and RTT as each bot saw them, the server's CPU by thread, and what a packet \
         costs."
            .into(),
    );
    about
        .not_shown
        .extend(["Browsers as people: two CPUs do not carry ten browsers at 1080p.".to_owned()]);
    rows
}

/// A room of bots who speak and show; `serve` says where, if the scenario does.
fn scenario(serve: &str, seconds: u32, people: u32, media: &str) -> String {
    format!(
        "{serve}duration: {seconds}s\nrooms: [{{ audio: sfu, video: sfu, people: {{ bot: {people} }} \
         }}]\nmedia: {{ audio: speech, {media} }}\njoin: {{ per_second: 5 }}\n"
    )
}

/// The largest room once more, by TCP.
async fn over_tcp(sessions: &mut Sessions, table: &Table) -> Row {
    let (people, seconds) = if sessions.quick { (5, 8) } else { (30, 60) };
    let row = Row::new("later", format!("{people} people, 1080p, by TCP"))
        .note("the study expects 50 to 500 ms of jitter on UDP, 500 to 3000 ms on TCP");
    let media = "video: 1080p, transport: tcp";
    let text = scenario(&sessions.serve(1), seconds, people, media);
    match sessions.run(&format!("{people}-people-tcp"), &text).await {
        Err(reason) => row.rest(table, &reason),
        Ok(session) => from_session(row, table, &session),
    }
}

fn session_row(row: Row, session: &Session) -> Row {
    let end_s = session.summary.duration_s + 1.0;
    let of = |name: &str, pick: fn(&Reduced) -> f64| session.metric(name).map(pick);
    let cpus = session.meta.cpus.as_ref().map_or(1, |sets| sets.server.len().max(1));
    let signaling = session.server_threads(3.5, end_s, |name| name.starts_with("signaling"));
    let megabytes = received_mb(session);
    let people = session.summary.people.max(1) as f64;
    // Everyone's own steady rate, so that the seconds of joining do not thin it.
    let rate = session.mean_received_mbit();
    let settled = session.summary.delivery.as_ref();
    let link = session.link_used_pct(session.summary.duration_s / 2.0);
    let row = row
        .cell("seconds", Cell::number(session.summary.duration_s))
        .measured("server_cpu_pct", percent(session.server_cores()).map(|all| all / cpus as f64))
        .measured("busiest_thread_pct", percent(session.busiest_server_thread(3.5, end_s)))
        .measured("signaling_cpu_pct", percent(signaling))
        .measured("jitter_ms", of("jitter_ms", |metric| metric.user_p95))
        .measured("loss_pct", of("loss_pct", |metric| metric.user_p95))
        .measured("settled_loss_pct", settled.map(|delivery| 100.0 * delivery.missing_share))
        .measured("rtt_ms", of("rtt_ms", |metric| metric.user_p95))
        .measured("mos_cq", of("mos_cq", |metric| metric.user_p5))
        .measured("frame_height", of("frame_height", |metric| metric.user_p5))
        .measured("paused_pct", of("paused_ratio", |metric| 100.0 * metric.user_p95))
        .cell("received_mb", Cell::number(megabytes))
        .measured("mean_rate_mbit", rate)
        .cell(
            "link_used_pct",
            link.map_or_else(|| Cell::none("no limited link was read"), Cell::number),
        )
        .measured("per_person_mbit", rate.map(|rate| rate / people))
        .cell("consumers", Cell::number(session.summary.subscriptions as f64))
        .measured(
            "us_per_packet_out",
            session.summary.server.as_ref().and_then(|server| server.us_per_packet_out),
        )
        .cell("generator_cpu_cores", Cell::number(session.summary.generator.cpu_cores));
    limits(with_bottlenecks(row, session), session)
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

/// Payload that everyone received over the whole session, in MB.
fn received_mb(session: &Session) -> f64 {
    let rows = session.samples.iter().flat_map(|record| {
        let ms = record.sample.interval_ms as f64;
        record.sample.received.iter().map(move |row| row.bitrate_kbps * ms / 8.0)
    });
    rows.sum::<f64>() / 1e6
}

fn studys_verdict(row: Row, plan: &Plan) -> Row {
    let word = match plan.video {
        "360p" => "stable",
        "480p" => "caution",
        _ => "danger",
    };
    row.reference([(word, 1.0)])
}

fn verdict_row(
    row: Row,
    [loss_pct, server_cpu_pct]: [Option<f64>; 2],
    quality: Option<Quality>,
) -> Row {
    let mut row = row.measured("loss_pct", loss_pct).measured("server_cpu_pct", server_cpu_pct);
    for one in Quality::ALL {
        let value = quality.map(|quality| f64::from(u8::from(quality == one)));
        row = row.measured(one.as_str(), value);
    }
    row
}

fn signaling_row(plan: &Plan, busy_pct: Option<f64>, delay: Option<(u64, f64)>) -> Row {
    let told = |pick: fn((u64, f64)) -> f64| delay.map(pick);
    let row = Row::new("signaling", plan.name)
        .measured("worst_delay_ms", told(|(_, worst)| worst))
        .measured("delays_over_5_ms", told(|(over, _)| over as f64));
    // The study names these three for its first three sessions.
    let row = match plan.name.as_bytes().get(8) {
        Some(b'1') => row.reference([
            ("idle_pct", 98.8),
            ("worst_delay_ms", 84.0),
            ("delays_over_5_ms", 148.0),
        ]),
        Some(b'2') => row.reference([("delays_over_5_ms", 55.0)]),
        Some(b'3') => row.reference([("delays_over_5_ms", 71.0)]),
        _ => row,
    };
    match busy_pct {
        Some(busy) => row.cell("idle_pct", Cell::number(100.0 - busy)),
        None => row,
    }
}

/// Rooms behind a link of 100 Mbit/s: the study's one picture for all, and layers, of which the server chooses. The link must
/// be named for what it makes worse. And one whose server has a CPU quota besides that is the next in its way.
async fn limited(sessions: &mut Sessions, table: &Table) -> Vec<Row> {
    let (one, layers) = ("video: 1080p", "video: simulcast");
    // Layers have a minute: the server must find out what each path carries.
    let plans = [
        ("10 people, 1080p, 100 Mbit/s", 10, one, 30, false),
        ("30 people, 1080p, 100 Mbit/s", 30, one, 30, false),
        ("10 people, 480p in layers, 100 Mbit/s", 10, layers, 60, false),
        ("30 people, 480p in layers, 100 Mbit/s", 30, layers, 60, false),
        ("10 people, 1080p, 100 Mbit/s, a CPU quota behind", 10, one, 30, true),
    ];
    let mut rows: Vec<Row> = Vec::new();
    for (name, people, media, seconds, behind) in plans {
        let row = Row::new("later", name);
        let link = Limits { mbit_per_s: LINK_MBIT, cores: None };
        // The first row's, of one CPU.
        let used = rows.first().and_then(|row| row.cells.get("server_cpu_pct")?.value);
        let limits = match behind {
            false => Some(link),
            true => used.map(|pct| Limits { cores: Some(BEHIND * pct / 100.0), ..link }),
        };
        let reason = match (sessions.quick, limits) {
            (true, _) => "left out with --quick",
            (_, None) => "what the server uses without the quota was not measured",
            (false, Some(limits)) => {
                let slug = name.replace([' ', ','], "-").replace("--", "-").replace('/', "");
                let text = scenario("", seconds, people, media) + WHOLE;
                let slug: String = slug.to_ascii_lowercase().chars().take(40).collect();
                let session = sessions.run_limited(&slug, limits, &text).await;
                rows.push(limited_row(row, table, session));
                continue;
            }
        };
        rows.push(row.rest(table, reason));
    }
    rows
}

fn limited_row(row: Row, table: &Table, session: Result<Session, String>) -> Row {
    let session = match session {
        Err(reason) => return row.rest(table, &reason),
        Ok(session) => session,
    };
    let row =
        session.summary.bottleneck.evidence.iter().fold(row, |row, text| row.note(text.clone()));
    from_session(row, table, &session)
}

/// The columns of a table out of those of a session.
fn from_session(row: Row, table: &Table, session: &Session) -> Row {
    let whole = session_row(Row::new("later", ""), session);
    let row = table.columns.iter().fold(row, |row, Column { key, .. }| {
        let cell = whole.cells.get(key).cloned();
        row.cell(key, cell.unwrap_or_else(|| Cell::none("a session has no such figure")))
    });
    limits(row, session)
}
