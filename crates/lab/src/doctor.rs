//! What this machine allows, tried out rather than looked up: so that one knows before a run what it
//! can show.

use crate::observe::proc;
use net::{RecvBatch, SendBatch, SocketOptions, UdpBatchSocket};
use rustix::process::{Resource, getrlimit};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Something that a machine allows or not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// What was tried.
    pub what: &'static str,
    /// Whether it can be had.
    pub ok: bool,
    /// What was found, in words.
    pub found: String,
    /// What it is for, or what to do about it.
    pub remark: &'static str,
}

/// Tries everything; under a second.
pub fn examine() -> Vec<Finding> {
    let machine = proc::machine();
    let finding = |what, ok, found: String, remark| Finding { what, ok, found, remark };
    let cpus = format!("{} × {}, Linux {}", machine.cores, machine.cpu, machine.kernel);
    let files = getrlimit(Resource::Nofile).current;
    let files_text = files.map_or("no limit".to_owned(), |limit| limit.to_string());
    vec![
        finding(
            "CPUs",
            machine.cores > 1,
            cpus,
            "server and generator get CPUs of their own where there are two or more",
        ),
        timers(),
        run(
            "network namespace",
            "unshare -n true",
            "browsers and bots of a run see no other network; needs root or user namespaces",
        ),
        run(
            "tbf",
            "unshare -n sh -c 'ip link set lo up && tc qdisc add dev lo root tbf rate 10mbit burst 10k latency 50ms'",
            "links of a limited rate between two namespaces (iproute2)",
        ),
        run(
            "veth",
            "unshare -n sh -c 'ip link add veth-a type veth peer name veth-b'",
            "a path between two namespaces, as between two machines (iproute2)",
        ),
        cgroups(),
        gso(),
        finding(
            "nice -10",
            std::thread::spawn(|| net::thread::set_current_thread_nice(-10).is_ok())
                .join()
                .unwrap_or(false),
            "tried on a thread of its own".into(),
            "bots and media threads are served before browsers; needs root or CAP_SYS_NICE",
        ),
        finding(
            "open files",
            files.is_none_or(|limit| limit >= 10_000),
            files_text,
            "each socket of a load takes one: `ulimit -n` raises it",
        ),
        run(
            "chromium",
            "chromium --version",
            "chromium people, the page tests: `apt-get install chromium`",
        ),
    ]
}

/// Prints all findings; none of them is an error.
pub fn print() {
    for Finding { what, ok, found, remark } in examine() {
        let mark = if ok { "yes" } else { "no " };
        outln!("{mark}  {what:<18} {found}\n     {:<18} {remark}", "");
    }
}

fn run(what: &'static str, command: &str, remark: &'static str) -> Finding {
    let output = Command::new("sh").args(["-c", command]).stdin(Stdio::null()).output();
    let (ok, text) = match output {
        Ok(output) => {
            let text = if output.status.success() { output.stdout } else { output.stderr };
            (output.status.success(), String::from_utf8_lossy(&text).trim().to_owned())
        }
        Err(error) => (false, error.to_string()),
    };
    let first = text.lines().next().unwrap_or(if ok { "works" } else { "refused" }).to_owned();
    Finding { what, ok, found: first, remark }
}

/// How late a sleep of 1 ms ends.
fn timers() -> Finding {
    let _ = net::thread::set_timer_slack(Duration::from_micros(1));
    let mut late_us: Vec<u128> = (0..200)
        .map(|_| {
            let begin = Instant::now();
            std::thread::sleep(Duration::from_millis(1));
            begin.elapsed().as_micros().saturating_sub(1000)
        })
        .collect();
    late_us.sort_unstable();
    let (median, worst) = (late_us[100], late_us[197]);
    let found = format!("{median} µs late, {worst} µs in 1 of 100 cases");
    let remark = "a generator whose timers are over 5 ms late proves nothing";
    Finding { what: "timers", ok: worst < 5_000, found, remark }
}

fn cgroups() -> Finding {
    let (v2, v1) = ("/sys/fs/cgroup/cgroup.controllers", "/sys/fs/cgroup/cpu");
    let (ok, found) = if Path::new(v2).exists() {
        (true, "version 2".to_owned())
    } else if Path::new(v1).exists() {
        (true, "version 1, CPU controller".to_owned())
    } else {
        (false, "no CPU controller is mounted".to_owned())
    };
    Finding { what: "cgroups", ok, found, remark: "CPU quotas, and whether one throttles a server" }
}

/// Whether one system call sends many datagrams (UDP_SEGMENT), and takes many (UDP_GRO).
fn gso() -> Finding {
    let outcome = || -> std::io::Result<(u64, usize, bool)> {
        let open = || {
            let local = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
            UdpBatchSocket::bind(local, SocketOptions::default())
        };
        let (from, to) = (open()?, open()?);
        let (mut out, mut inbox) = (SendBatch::new(16), RecvBatch::new(16));
        let destination = to.local_addr()?;
        for _ in 0..10 {
            let _ = out.push(destination, &[0; 1000]);
        }
        let report = out.flush(&from);
        std::thread::sleep(Duration::from_millis(5));
        let count = to.recv(&mut inbox)?;
        Ok((report.gso_messages, count, inbox.messages() < count))
    };
    let remark = "many packets a system call: what a forwarded packet costs depends on it";
    match outcome() {
        Ok((messages, count, joined)) => {
            let found = match (messages > 0, joined) {
                (true, true) => "sends and receives many at once",
                (true, false) => "sends many at once",
                (false, _) => "sends one at a time",
            };
            let ok = messages > 0 && count == 10;
            Finding { what: "GSO and GRO", ok, found: found.into(), remark }
        }
        Err(error) => Finding { what: "GSO and GRO", ok: false, found: error.to_string(), remark },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_is_tried_and_said() {
        let findings = examine();
        let whats: std::collections::BTreeSet<_> = findings.iter().map(|one| one.what).collect();
        assert_eq!(whats.len(), findings.len());
        for finding in &findings {
            assert!(!finding.found.is_empty() && !finding.found.contains('\n'), "{finding:?}");
        }
        let refused = run("x", "echo no way >&2; false", "");
        assert_eq!((refused.ok, refused.found.as_str()), (false, "no way"));
    }
}
