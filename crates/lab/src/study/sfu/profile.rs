//! Where the server's media thread spends its time: `perf` beside one more of the largest sessions.

use super::room::scenario;
use crate::clients::canary::find;
use crate::observe::proc;
use crate::record::{Cell, Row, Table};
use crate::study::session::Sessions;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use tokio::process::Command;
use tokio::time::{Instant, sleep};

/// The server has so long to be there.
const PATIENCE: Duration = Duration::from_secs(30);
/// Until everybody is there and flows.
const SETTLES: Duration = Duration::from_secs(10);
/// How many samples a second.
const RATE: &str = "997";
/// With a larger share of samples without a name the picture says little, in percent.
const NAMELESS_PCT: f64 = 20.0;
/// A character of a bar stands for so many percent.
const BAR_PCT: f64 = 2.0;
/// So many symbols are named.
const NAMED: usize = 3;

/// The profile's table.
pub(super) fn table() -> Table {
    Table::new(
        "profile",
        "Where the media thread's time goes",
        "One more session of the largest room, with perf beside it: samples of the media threads by what they were at. On a \
         loopback the kernel's sending is also the way to the receiver's socket.",
        &[("bar", "share", 0), ("share_pct", "%", 1), ("symbols", "most of it in", 0)],
    )
}

/// One more session, and what perf saw in it; one row with the reason where there is none.
pub(super) async fn run(sessions: &mut Sessions, table: &Table, dir: &Path) -> Vec<Row> {
    let found = profile(sessions, dir).await;
    let rows = found.and_then(|text| rows(&text));
    rows.unwrap_or_else(|reason| vec![Row::new("profile", "media threads").rest(table, &reason)])
}

async fn profile(sessions: &mut Sessions, dir: &Path) -> Result<String, String> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let perf = find("perf", &path).ok_or(
        "there is no perf on PATH: install it with `apt-get install linux-perf`, and run `moim study sfu --profile` again",
    )?;
    let (people, seconds, looks) = if sessions.quick { (5, 16, 3) } else { (30, 24, 10) };
    let text = scenario(&sessions.serve(1), seconds, people, "video: light-1080p");
    let name = format!("{people}-people-profile");
    let file = dir.join("perf.data");
    if sessions.interrupted() {
        return Err("the study was interrupted before".into());
    }
    let (session, recorded) = tokio::join!(sessions.run(&name, &text), record(&perf, &file, looks));
    if let Err(reason) = recorded.and(session) {
        let _ = std::fs::remove_file(&file);
        return Err(reason);
    }
    let script = ["script", "--no-inline", "-F", "comm,ip,sym,dso", "-i"];
    let output = Command::new(&perf).args(script).arg(&file).output().await;
    let output = output.map_err(|error| format!("perf script: {error}"))?;
    // It is large, and its figures stand in the report.
    let _ = std::fs::remove_file(&file);
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Samples the media threads of the server that this process starts, for so many seconds.
async fn record(perf: &Path, file: &PathBuf, seconds: u32) -> Result<(), String> {
    let begin = Instant::now();
    let server = loop {
        if let Some(pid) = proc::child_with_thread(std::process::id(), "media-0") {
            break pid;
        }
        if begin.elapsed() > PATIENCE {
            return Err("no server was there to look at".into());
        }
        sleep(Duration::from_millis(100)).await;
    };
    sleep(SETTLES).await;
    let threads = proc::threads_named(server, "media-");
    let threads: Vec<String> = threads.iter().map(ToString::to_string).collect();
    if threads.is_empty() {
        return Err("the server had ended before perf could look at it".into());
    }
    // A virtual machine may have no counters of cycles.
    let line =
        ["record", "-q", "-e", "cpu-clock", "-g", "-F", RATE, "-t", &threads.join(","), "-o"];
    let mut command = Command::new(perf);
    command.args(line).arg(file).args(["--", "sleep", &seconds.to_string()]);
    let output = command.stdin(Stdio::null()).kill_on_drop(true).output().await;
    let output = output.map_err(|error| format!("perf: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let first = said.lines().find(|line| !line.trim().is_empty()).unwrap_or("it said nothing");
    Err(format!(
        "perf could not look at the server ({}): run as root, or lower kernel.perf_event_paranoid",
        first.trim()
    ))
}

/// What samples were at, by group: how many, and how many in each symbol.
type Groups<'a> = BTreeMap<&'static str, BTreeMap<&'a str, u32>>;

/// Rows of what `perf script` tells, the largest share first.
fn rows(script: &str) -> Result<Vec<Row>, String> {
    let groups = groups(script);
    let total: u32 = groups.values().flat_map(BTreeMap::values).sum();
    if total == 0 {
        return Err("perf saw the media threads at nothing".into());
    }
    let pct = |count: u32| 100.0 * f64::from(count) / f64::from(total);
    let mut shares: Vec<_> = groups
        .iter()
        .map(|(name, symbols)| (pct(symbols.values().sum()), *name, symbols))
        .collect();
    shares.sort_by(|a, b| b.0.total_cmp(&a.0));
    let row = |(share, name, symbols): &(f64, &'static str, &BTreeMap<&str, u32>)| {
        let mut most: Vec<(&str, u32)> = symbols.iter().map(|(name, n)| (*name, *n)).collect();
        most.sort_by_key(|(name, count)| (std::cmp::Reverse(*count), *name));
        let named = most.iter().take(NAMED);
        let named: Vec<String> =
            named.map(|(name, count)| format!("{} {:.1} %", brief(name), pct(*count))).collect();
        let bar = "█".repeat((share / BAR_PCT).round().max(1.0) as usize);
        Row::new("profile", *name)
            .cell("bar", Cell::word(bar))
            .cell("share_pct", Cell::number(*share))
            .cell("symbols", Cell::word(named.join(", ")))
    };
    let mut rows: Vec<Row> = shares.iter().map(row).collect();
    if let Some(first) = rows.first_mut() {
        first.notes.push(format!("{total} samples, {RATE} a second of a thread that runs"));
        let nameless = groups.get(NAMELESS).map_or(0.0, |all| pct(all.values().sum()));
        if nameless > NAMELESS_PCT {
            first.notes.push(format!(
                "{nameless:.0} % have no name: the binary has no symbols, build it without `strip`"
            ));
        }
    }
    Ok(rows)
}

const NAMELESS: &str = "no symbol";

fn groups(script: &str) -> Groups<'_> {
    let mut groups = Groups::new();
    for sample in script.split("\n\n") {
        // The first line names the thread; the others the frames, the innermost first.
        let frames: Vec<(&str, &str)> = sample.lines().skip(1).filter_map(frame).collect();
        if let Some((symbol, _)) = frames.first() {
            *groups.entry(group(&frames)).or_default().entry(symbol).or_default() += 1;
        }
    }
    groups
}

/// Symbol and file of a frame.
fn frame(line: &str) -> Option<(&str, &str)> {
    let (_, rest) = line.trim().split_once(' ')?;
    let (symbol, file) = rest.rsplit_once(" (")?;
    Some((symbol, file.trim_end_matches(')')))
}

/// What a sample was at. The kernel tells who called; of our own code only the innermost function is sure.
fn group(frames: &[(&str, &str)]) -> &'static str {
    let (symbol, file) = frames[0];
    let has = |words: &[&str]| words.iter().any(|word| symbol.contains(word));
    if file.starts_with("[kernel") || file.starts_with("[guest.kernel") {
        let calls = |words: &[&str]| {
            frames.iter().any(|(name, _)| words.iter().any(|word| name.contains(word)))
        };
        return match () {
            () if calls(&["sys_send", "sys_write"]) => "kernel: send",
            () if calls(&["sys_recv", "sys_read"]) => "kernel: receive",
            () if calls(&["poll", "futex", "nanosleep"]) => "kernel: wait",
            () => "kernel: interrupts and the rest",
        };
    }
    match () {
        () if symbol == "[unknown]" => NAMELESS,
        () if has(&["opus", "silk", "celt"]) => "voices: measure who is loud",
        () if has(&["bwe::", "goog_cc"]) => "estimate of paths",
        () if has(&["encrypt", "seal", "Sealer"]) => "seal (SRTP)",
        () if has(&["decrypt", "::open", "_open", "Opener"]) => "open (SRTP)",
        () if has(&["aws_lc", "gcm", "CRYPTO_", "EVP_"]) => "AES-GCM, either way",
        () if has(&["engine::", "rtp::"]) => "forward: choose, rewrite, pace, report",
        () if has(&["net::", "server::"]) => "the thread's loop, batches of packets",
        () if file.contains("libc") || has(&["alloc", "mem"]) => "memory and copies",
        () => "the rest",
    }
}

/// The last two parts of a path; of a trait's function its type and itself.
fn brief(symbol: &str) -> String {
    let of_trait = symbol.strip_prefix('<').and_then(|rest| {
        let (own, rest) = rest.split_once(" as ")?;
        Some((own, rest.rsplit_once(">::")?.1))
    });
    let last = |path: &str, count: usize| {
        let parts: Vec<&str> = path.split("::").collect();
        parts[parts.len().saturating_sub(count)..].join("::")
    };
    match of_trait {
        Some((own, function)) => format!("{}::{function}", last(own, 1)),
        None => last(symbol, 2),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCRIPT: &str = "media-0 
\t          a2cf92 engine::shard::forward::forward (/usr/bin/moim)
\t               0 [unknown] ([unknown])

media-0 
\tffffffff81ec7d70 skb_clone_tx_timestamp ([kernel.kallsyms])
\tffffffff82044de6 udp_sendmsg ([kernel.kallsyms])
\tffffffff81e2ffdd __x64_sys_sendmmsg ([kernel.kallsyms])
\t          10b106 __sendmmsg (/usr/lib/libc.so.6)

media-0 
\tffffffff81ec7d70 udp_recvmsg ([kernel.kallsyms])
\tffffffff81e2ffdd __x64_sys_recvmmsg ([kernel.kallsyms])

media-0 
\t          a2cf92 aws_lc_0_47_0_aes_gcm_encrypt_avx512 (/usr/bin/moim)

media-0 
\tffffffff81ec7d70 skb_clone_tx_timestamp ([kernel.kallsyms])
\tffffffff81e2ffdd __x64_sys_sendmmsg ([kernel.kallsyms])

";

    #[test]
    fn samples_are_told_by_what_they_were_at() {
        let rows = rows(SCRIPT).expect("samples");
        let share = |name: &str| {
            let row = rows.iter().find(|row| row.name == name);
            row.and_then(|row| row.cells["share_pct"].value)
        };
        assert_eq!(rows[0].name, "kernel: send", "the largest first");
        assert_eq!(share("kernel: send"), Some(40.0));
        assert_eq!(share("kernel: receive"), Some(20.0));
        assert_eq!(share("seal (SRTP)"), Some(20.0));
        assert_eq!(share("forward: choose, rewrite, pace, report"), Some(20.0));
        let symbols = |row: &Row| row.cells["symbols"].word.clone().expect("a word");
        assert_eq!(symbols(&rows[0]), "skb_clone_tx_timestamp 40.0 %");
        assert_eq!(rows[0].cells["bar"].word.as_deref().map(|bar| bar.chars().count()), Some(20));
        assert!(rows[0].notes[0].starts_with("5 samples"), "{:?}", rows[0].notes);
        assert!(super::rows("").expect_err("no samples").contains("nothing"));
    }

    #[test]
    fn names_are_brief_and_missing_ones_are_told() {
        assert_eq!(brief("engine::shard::deliver::deliver"), "deliver::deliver");
        assert_eq!(
            brief("<goog_cc::x::Estimator as goog_cc::y::Trait>::incoming"),
            "Estimator::incoming"
        );
        assert_eq!(brief("<core::FilterMap<I,F> as core::Iterator>::next"), "FilterMap<I,F>::next");
        assert_eq!(brief("udp_sendmsg"), "udp_sendmsg");
        let stripped = "media-0 \n\t  a2cf92 [unknown] (/usr/bin/moim)\n\n";
        let rows = rows(stripped).expect("a sample");
        assert!(rows[0].notes[1].contains("strip"), "{:?}", rows[0].notes);
    }
}
