//! What the study could not separate: its tunnel from its server, and the first bottleneck from the second. Rooms by TCP,
//! behind a link of the study's rate, and behind a CPU quota besides.

use super::figures::{Filling, from_session, over_time, session_row, window};
use super::verdict;
use crate::record::{Cell, Plot, Row, ServerUsage, Table};
use crate::study::columns::{MEAN_RATE, SERVER_CPU, US_PER_PACKET_OUT};
use crate::study::limited::Limits;
use crate::study::session::{Session, Sessions};
use std::collections::{BTreeMap, BTreeSet};

/// The study's network.
const LINK_MBIT: f64 = 100.0;
/// A quota of so much of what the server uses behind the limited link is the next thing in its way. It uses more
/// there than on a free link, since what is lost is asked for again.
const BEHIND: f64 = 1.15;
/// The queue of each connection at a server that writes all into TCP: 2 MiB, about what the buffers of a socket's two ends
/// hold by default.
const WRITES_ALL: &str = "tcp_backlog=2097152";
/// What a limited link makes worse: packets are lost, or pictures are paused or smaller.
const WHOLE: &str = "thresholds: { loss_pct: [\"user_p95 < 2\"], paused_ratio: [\"user_p95 < 0.05\"], \
                     frame_height: [\"user_p5 >= 480\"] }\n";

/// The table of everything that the study could not separate.
pub(super) fn later_table() -> Table {
    Table::new(
        "later",
        "TCP, limited links, a hidden second bottleneck",
        "What the study could not separate. The mean rate is payload; the link also carries headers, which are a third of \
         each packet of sound, what is sent again, and probes.",
        &[
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
        ],
    )
}

/// The table of TCP behind the study's link, with UDP beside it.
pub(super) fn tcp_table() -> Table {
    Table::new(
        "tcp",
        "TCP behind 100 Mbit/s",
        "The row that made the study: no loss, and seconds of delay. Everybody sends 1080p; the server's link is limited to \
         the study's rate. Delay is the way of sound from being sent to arriving, measured by the time in each packet \
         (abs-capture-time). Jitter is RFC 3550's, which smooths the difference between neighbours: a queue that stays long \
         moves it little, so the study's seconds are nearer to our delay. “As the study's server”: all that people are to get is written into TCP, \
         in one queue of 2 MiB a connection (`--fault tcp_backlog=2097152`). The other TCP rows are moim as it is: where a \
         connection is behind, pictures give way and sound overtakes them. Shares of the link are of its second half; the \
         rest are headers, control packets, and what TCP itself sends again.",
        &[
            ("jitter_ms", "jitter ms (95 % of people)", 1),
            ("usual_delay_ms", "delay ms, median", 0),
            ("delay_ms", "delay ms (95 % of people)", 0),
            ("gap_ms", "gap in sound ms (95 % of people)", 0),
            ("loss_pct", "loss % (95 % of people)", 2),
            ("waiting_mib", "waits in the server MiB, at most", 2),
            ("queue_kib", "waits in the link KiB, at most", 0),
            ("frames_per_second", "frames/s (5 % of people)", 1),
            ("paused_pct", "pictures paused % (95 % of people)", 1),
            MEAN_RATE,
            ("link_used_pct", "link used %", 1),
            ("pictures_pct", "of the link: pictures %", 1),
            ("sound_pct", "sound %", 1),
            ("repair_pct", "pictures again %", 1),
            ("rest_pct", "the rest %", 1),
            ("held_back", "copies not sent to who is behind", 0),
        ],
    )
}

/// How people are reached behind the link, and by what server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Udp,
    Tcp,
    /// By TCP, and the server writes all into it.
    Written,
}

impl Way {
    const ALL: [Self; 3] = [Self::Udp, Self::Tcp, Self::Written];

    fn text(self) -> &'static str {
        match self {
            Self::Udp => "UDP",
            Self::Tcp => "TCP",
            Self::Written => "TCP as the study's server",
        }
    }
}

/// The largest room once more, by TCP.
pub(super) async fn over_tcp(sessions: &mut Sessions, table: &Table) -> Row {
    let (people, seconds) = if sessions.quick { (5, 8) } else { (30, 60) };
    let row = Row::new("later", format!("{people} people, 1080p, by TCP"))
        .note("the study expects 50 to 500 ms of jitter on UDP, 500 to 3000 ms on TCP");
    let media = "video: light-1080p, transport: tcp";
    let text = super::room::scenario(&sessions.serve(1), seconds, people, media);
    match sessions.run(&format!("{people}-people-tcp"), &text).await {
        Err(reason) => row.rest(table, &reason),
        Ok(session) => from_session(row, table, &session),
    }
}

/// Lines of a figure over time, by session.
#[derive(Default)]
struct Lines {
    names: Vec<String>,
    jitter: Vec<BTreeMap<u64, f64>>,
    delay: Vec<BTreeMap<u64, f64>>,
    waiting: Vec<BTreeMap<u64, f64>>,
}

impl Lines {
    fn add(&mut self, name: &str, session: &Session) {
        self.names.push(name.to_owned());
        self.jitter.push(over_time(session, 95.0, |row| row.jitter_ms));
        self.delay.push(over_time(session, 95.0, |row| row.transit_ms));
        let waiting = session.machine.iter().filter_map(|record| {
            Some((window(record.t_ms), record.server.as_ref()?.tcp_waiting_bytes? / MIB))
        });
        self.waiting.push(waiting.collect());
    }

    /// One figure's lines in one plot.
    fn plot(&self, title: &str, unit: &str, lines: &[BTreeMap<u64, f64>]) -> Plot {
        let names: Vec<&str> = self.names.iter().map(String::as_str).collect();
        let windows: BTreeSet<u64> = lines.iter().flat_map(BTreeMap::keys).copied().collect();
        let values = |at: &u64| lines.iter().map(|line| line.get(at).copied()).collect();
        let points = windows.iter().map(|at| (*at as f64, values(at))).collect();
        Plot::new((title, unit, "s"), &names, points)
    }

    fn plots(&self) -> [Plot; 3] {
        [
            self.plot("Behind 100 Mbit/s: delay of sound (95 %)", "ms", &self.delay),
            self.plot("Behind 100 Mbit/s: jitter (95 %)", "ms", &self.jitter),
            self.plot("Behind 100 Mbit/s: waits in the server for TCP", "MiB", &self.waiting),
        ]
    }
}

const MIB: f64 = 1024.0 * 1024.0;
const LINK: Limits = Limits { mbit_per_s: LINK_MBIT, cores: None, fault: None };

/// Rooms behind a link of 100 Mbit/s: rows of both tables and of verdicts, and plots.
pub(super) async fn limited(
    sessions: &mut Sessions,
    [later, tcp, verdicts]: [&Table; 3],
) -> (Vec<Row>, Vec<Plot>) {
    let (mut rows, mut lines) = (Vec::new(), Lines::default());
    let mut used = None;
    for people in [10, 30] {
        for way in Way::ALL {
            let name = name_of(people, way);
            let session = behind(sessions, people, way).await;
            if way == Way::Udp {
                let name = format!("{people} people, 1080p, 100 Mbit/s");
                let row = limited_row(Row::new("later", name), later, &session);
                used = used.or_else(|| row.value("server_cpu_pct"));
                rows.push(row);
            }
            if let Ok(session) = &session {
                lines.add(&name, session);
            }
            rows.extend(both(&name, (people, way), &session, [tcp, verdicts]));
        }
    }
    rows.extend(more(sessions, later, used).await);
    (rows, lines.plots().into())
}

/// Cause and cure in one sentence, from rows of the table `tcp`; none where they were not measured.
pub(super) fn finding(rows: &[Row]) -> Option<String> {
    let delay = |people: u32, way: Way| {
        let name = name_of(people, way);
        let row = rows.iter().find(|row| row.table == "tcp" && row.name == name)?;
        row.value("usual_delay_ms")
    };
    let of = |people| {
        let [written, own, udp] = [Way::Written, Way::Tcp, Way::Udp].map(|way| delay(people, way));
        Some(format!(
            "{:.0} ms with {people} people where all is written into TCP, {:.0} ms where moim holds pictures back, {:.0} ms by UDP",
            written?, own?, udp?
        ))
    };
    Some(format!("Behind 100 Mbit/s sound is under way (median) for {}; {}.", of(10)?, of(30)?))
}

fn name_of(people: u32, way: Way) -> String {
    format!("{people} people, {}", way.text())
}

/// A room at 1080p behind the link.
async fn behind(sessions: &mut Sessions, people: u32, way: Way) -> Result<Session, String> {
    if sessions.quick {
        return Err("left out with --quick".into());
    }
    let media = match way {
        Way::Udp => "video: light-1080p",
        Way::Tcp | Way::Written => "video: light-1080p, transport: tcp",
    };
    let fault = (way == Way::Written).then_some(WRITES_ALL);
    let text = super::room::scenario("", 30, people, media) + WHOLE;
    let slug = format!("{people}-people-limited-{way:?}").to_ascii_lowercase();
    // What broke first is proven once.
    sessions.run_limited(&slug, (Limits { fault, ..LINK }, way == Way::Udp), &text).await
}

/// A session's row by TCP or UDP, and its verdict.
fn both(
    name: &str,
    (people, way): (u32, Way),
    session: &Result<Session, String>,
    [tcp, verdicts]: [&Table; 2],
) -> [Row; 2] {
    let row = Row::new("tcp", name);
    let (row, theirs) = match way {
        Way::Written if people == 10 => {
            (row.reference([("jitter_ms", 2144.0), ("loss_pct", 0.0)]), Ok("danger"))
        }
        Way::Written => (row.reference([("jitter_ms", 2978.0)]), Ok("danger")),
        Way::Udp | Way::Tcp => (row, Err("the study had no such server")),
    };
    let verdict = format!("1080p, 100 Mbit/s ({name})");
    match session {
        Err(reason) => [
            row.rest(tcp, reason),
            Row::new("verdicts", verdict)
                .cell("theirs", verdict::word(theirs))
                .rest(verdicts, reason),
        ],
        Ok(session) => {
            let row = from_session(filled(row, way, session), tcp, session);
            let whole = session_row(Row::default(), session);
            [row, verdict::row(verdict, &whole, session, theirs)]
        }
    }
}

/// What waits where, and what fills the link, in columns and in words.
fn filled(row: Row, way: Way, session: &Session) -> Row {
    let servers = || session.machine.iter().filter_map(|record| record.server.as_ref());
    let links = || servers().filter_map(|server| server.kernel.as_ref()).flat_map(|k| &k.links);
    let waiting = servers().filter_map(|server| server.tcp_waiting_bytes).reduce(f64::max);
    let queue = links().map(|link| link.backlog_bytes as f64 / 1024.0).reduce(f64::max);
    let dropped: u64 = links().map(|link| link.drops).sum();
    let behind = |server: &ServerUsage| {
        server.drops.get("out/connection_behind").copied().unwrap_or_default()
    };
    let held_back: u64 = servers().map(behind).sum();
    let waiting = waiting.filter(|_| way != Way::Udp).map(|bytes| bytes / MIB);
    let row = row
        .cell("waiting_mib", Cell::or(waiting, "by UDP the server holds no queue for a connection"))
        .measured("queue_kib", queue);
    let row = match way {
        Way::Udp => row.cell("held_back", Cell::none("by UDP there is no connection to be behind")),
        _ => row.cell("held_back", Cell::number(held_back as f64)),
    };
    let Some(filling) = Filling::of(session) else {
        let keys = ["pictures_pct", "sound_pct", "repair_pct", "rest_pct"];
        return keys.into_iter().fold(row, |row, key| row.measured(key, None));
    };
    let [pictures, sound, repair, rest] = filling.shares();
    let row = row
        .cell("pictures_pct", Cell::number(pictures))
        .cell("sound_pct", Cell::number(sound))
        .cell("repair_pct", Cell::number(repair))
        .cell("rest_pct", Cell::number(rest));
    let queues = match (way, waiting) {
        (Way::Udp, _) => format!("the link dropped {dropped} packets"),
        (Way::Tcp, Some(mib)) => format!(
            "{held_back} copies were not sent while a connection was behind, so no more than {mib:.1} MiB waited"
        ),
        (Way::Written, Some(mib)) => format!(
            "up to {mib:.1} MiB waited in the order in which they came; {held_back} copies found a full queue"
        ),
        (_, None) => "what waited is not known".into(),
    };
    row.note(format!("{}; {queues}", words(filling, session)))
}

/// What fills the link, in words.
fn words(filling: Filling, session: &Session) -> String {
    let Filling { all, pictures, sound, repair } = filling;
    let lost = session.summary.delivery.as_ref().map_or(0.0, |d| 100.0 * d.missing_share);
    format!(
        "the link carried {all:.1} Mbit/s: {pictures:.1} of pictures, {sound:.1} of sound, {repair:.1} of pictures again, \
         {:.1} of headers and the rest; {lost:.2} % of what was sent to people was lost",
        filling.rest()
    )
}

/// Layers, of which the server chooses, and a CPU quota behind the link; `used`: what the server uses without it, in
/// percent of its CPU.
async fn more(sessions: &mut Sessions, table: &Table, used: Option<f64>) -> Vec<Row> {
    let (one, layers) = ("video: light-1080p", "video: simulcast");
    let quota = |pct| Limits { cores: Some(BEHIND * pct / 100.0), ..LINK };
    // Layers have a minute: the server must find out what each path carries.
    let plans = [
        ("10 people, 480p in layers, 100 Mbit/s", 10, layers, 60, Some(LINK)),
        ("30 people, 480p in layers, 100 Mbit/s", 30, layers, 60, Some(LINK)),
        ("10 people, 1080p, 100 Mbit/s, a CPU quota behind", 10, one, 30, used.map(quota)),
    ];
    let mut rows = Vec::new();
    for (name, people, media, seconds, limits) in plans {
        let session = match (sessions.quick, limits) {
            (true, _) => Err("left out with --quick".to_owned()),
            (_, None) => Err("what the server uses without the quota was not measured".to_owned()),
            (false, Some(limits)) => {
                let slug = name.replace([' ', ','], "-").replace("--", "-").replace('/', "");
                let text = super::room::scenario("", seconds, people, media) + WHOLE;
                let slug: String = slug.to_ascii_lowercase().chars().take(40).collect();
                sessions.run_limited(&slug, (limits, true), &text).await
            }
        };
        rows.push(limited_row(Row::new("later", name), table, &session));
    }
    rows
}

fn limited_row(row: Row, table: &Table, session: &Result<Session, String>) -> Row {
    let session = match session {
        Err(reason) => return row.rest(table, reason),
        Ok(session) => session,
    };
    let row =
        session.summary.bottleneck.evidence.iter().fold(row, |row, text| row.note(text.clone()));
    from_session(row, table, session)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fills_a_link_is_told_in_shares_and_its_sum_is_the_link() {
        let filling = Filling { all: 100.0, pictures: 80.0, sound: 5.0, repair: 2.5 };
        assert_eq!(filling.shares(), [80.0, 5.0, 2.5, 12.5]);
        let over = Filling { all: 80.0, ..filling };
        assert_eq!(over.rest(), 0.0, "figures of two clocks");
    }

    #[test]
    fn cause_and_cure_are_told_from_what_was_measured() {
        let row = |people, way, ms| {
            Row::new("tcp", name_of(people, way)).cell("usual_delay_ms", Cell::number(ms))
        };
        let of = |people, delays: [f64; 3]| {
            Way::ALL.into_iter().zip(delays).map(move |(way, ms)| row(people, way, ms))
        };
        let rows: Vec<Row> =
            of(10, [8.0, 52.0, 1250.0]).chain(of(30, [7.0, 232.0, 5758.0])).collect();
        let text = finding(&rows).expect("measured");
        assert!(
            text.contains("1250 ms with 10 people") && text.contains("232 ms where moim"),
            "{text}"
        );
        assert_eq!(finding(&rows[..5]), None, "the worst of them was not run");
    }
}
