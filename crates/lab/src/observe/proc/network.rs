//! The network that a process is in: drops of its UDP sockets, of the CPUs' input queues, and what
//! queueing disciplines (tc(8)) of its interfaces sent, held and dropped.

use crate::record::LinkUsage;
use serde::Deserialize;
use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Counters so far.
#[derive(Debug, Clone, Default)]
pub struct Counts {
    /// Drops by inode of the process's UDP sockets; none if they cannot be read.
    udp: Option<BTreeMap<u64, u64>>,
    softnet: Option<u64>,
    qdiscs: Vec<Qdisc>,
}

/// A queueing discipline, as `tc -s -j qdisc show` tells it.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Qdisc {
    /// Such as `tbf`.
    pub kind: String,
    /// The interface.
    pub dev: String,
    /// Its settings, by the kind's own names: `rate` and `burst` (bytes), `lat` (µs) of `tbf`.
    #[serde(default)]
    pub options: serde_json::Value,
    /// Bytes sent so far.
    #[serde(default)]
    bytes: u64,
    #[serde(default)]
    packets: u64,
    #[serde(default)]
    drops: u64,
    /// Bytes that wait now.
    #[serde(default)]
    backlog: u64,
}

impl Qdisc {
    /// Its rate limit in bytes a second, if it has one.
    pub fn rate_bytes(&self) -> Option<u64> {
        self.options.get("rate")?.as_u64()
    }
}

/// `tc` with these arguments, in the network namespace of a process.
pub fn tc(pid: u32, arguments: &[&str]) -> Command {
    let namespace = |of: &str| fs::read_link(format!("/proc/{of}/ns/net")).ok();
    let mut command = if namespace(&pid.to_string()) == namespace("self") {
        Command::new("tc")
    } else {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/proc/{pid}/ns/net")).arg("tc");
        command
    };
    command.args(arguments).stdin(Stdio::null()).stderr(Stdio::null());
    command
}

/// The queueing disciplines of a process's network; empty without `tc`, or without the right to look.
pub fn qdiscs(pid: u32) -> Vec<Qdisc> {
    let output = tc(pid, &["-s", "-j", "qdisc", "show"]).output();
    let text = output.ok().filter(|output| output.status.success()).map(|output| output.stdout);
    text.and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default()
}

impl Counts {
    /// Reads them for a process.
    pub fn of(pid: u32) -> Self {
        let softnet = fs::read_to_string("/proc/net/softnet_stat").ok();
        let mut qdiscs = qdiscs(pid);
        // A discipline that neither limits nor queues has nothing to tell.
        qdiscs.retain(|qdisc| qdisc.kind != "noqueue");
        Self { udp: udp_drops(pid), softnet: softnet.map(|text| softnet_drops(&text)), qdiscs }
    }

    /// Datagrams that found the buffer of a socket full; new sockets count from 0.
    pub fn udp_drops_since(&self, before: &Self) -> Option<u64> {
        let (now, before) = (self.udp.as_ref()?, before.udp.as_ref()?);
        let grown = now
            .iter()
            .map(|(inode, drops)| drops.saturating_sub(before.get(inode).copied().unwrap_or(0)));
        Some(grown.sum())
    }

    /// Packets that found a CPU's input queue full; of the whole machine.
    pub fn softnet_drops_since(&self, before: &Self) -> Option<u64> {
        delta(self.softnet, before.softnet)
    }

    /// What each interface with a queue did.
    pub fn links_since(&self, before: &Self, wall: Duration) -> Vec<LinkUsage> {
        let links = self.qdiscs.iter().filter_map(|now| {
            let same = |then: &&Qdisc| then.dev == now.dev && then.kind == now.kind;
            let then = before.qdiscs.iter().find(same)?;
            let wall_s = wall.as_secs_f64().max(1e-3);
            let of = |now: u64, then: u64| now.saturating_sub(then);
            Some(LinkUsage {
                interface: now.dev.clone(),
                kind: now.kind.clone(),
                mbit_per_s: of(now.bytes, then.bytes) as f64 * 8.0 / 1e6 / wall_s,
                packets_per_s: of(now.packets, then.packets) as f64 / wall_s,
                limit_mbit_per_s: now.rate_bytes().map(|bytes| bytes as f64 * 8.0 / 1e6),
                drops: of(now.drops, then.drops),
                backlog_bytes: now.backlog,
            })
        });
        links.collect()
    }
}

/// Drops of each UDP socket of a process, by inode.
fn udp_drops(pid: u32) -> Option<BTreeMap<u64, u64>> {
    let mut inodes = HashSet::new();
    for fd in fs::read_dir(format!("/proc/{pid}/fd")).ok()?.flatten() {
        let target: PathBuf = fs::read_link(fd.path()).unwrap_or_default();
        let name = target.to_string_lossy();
        let inode = name.strip_prefix("socket:[").and_then(|rest| rest.strip_suffix(']'));
        inodes.extend(inode.and_then(|inode| inode.parse::<u64>().ok()));
    }
    let mut drops = BTreeMap::new();
    for file in ["udp", "udp6"] {
        let text = fs::read_to_string(format!("/proc/{pid}/net/{file}")).unwrap_or_default();
        for line in text.lines().skip(1) {
            let fields: Vec<&str> = line.split_whitespace().collect();
            let (Some(inode), Some(count)) = (fields.get(9), fields.last()) else { continue };
            if let (Ok(inode), Ok(count)) = (inode.parse(), count.parse())
                && inodes.contains(&inode)
            {
                drops.insert(inode, count);
            }
        }
    }
    Some(drops)
}

/// The second column of each CPU's line, in hexadecimal.
fn softnet_drops(text: &str) -> u64 {
    let column = |line: &str| u64::from_str_radix(line.split_whitespace().nth(1)?, 16).ok();
    text.lines().filter_map(column).sum()
}

/// How much a counter grew, if it was known both times.
pub(super) fn delta(after: Option<u64>, before: Option<u64>) -> Option<u64> {
    Some(after?.saturating_sub(before?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TC: &str = r#"[{"kind":"noqueue","handle":"0:","dev":"vb","root":true,"refcnt":2,
        "options":{},"bytes":0,"packets":0,"drops":0,"overlimits":0,"requeues":0,"backlog":0},
        {"kind":"tbf","handle":"8004:","dev":"va","root":true,"refcnt":3,
        "options":{"rate":1250000,"burst":16383,"lat":50000},"bytes":2500000,"packets":2500,
        "drops":12,"overlimits":3,"requeues":0,"backlog":4000,"qlen":4}]"#;

    #[test]
    fn a_limited_link() {
        let qdiscs: Vec<Qdisc> = serde_json::from_str(TC).expect("json");
        let after = Counts { qdiscs: qdiscs[1..].to_vec(), ..Counts::default() };
        let mut before = after.clone();
        (before.qdiscs[0].bytes, before.qdiscs[0].drops) = (0, 2);
        let links = after.links_since(&before, Duration::from_secs(2));
        assert_eq!(links.len(), 1);
        assert_eq!((links[0].mbit_per_s, links[0].limit_mbit_per_s), (10.0, Some(10.0)));
        assert_eq!((links[0].drops, links[0].backlog_bytes), (10, 4000));
        assert!(after.links_since(&Counts::default(), Duration::from_secs(2)).is_empty());
    }

    #[test]
    fn full_input_queues() {
        let text = "0479dc48 0000000a 00000296 0\n02e0921c 00000001 000001d4 0\n";
        assert_eq!(softnet_drops(text), 11);
    }
}
