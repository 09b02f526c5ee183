//! What server and generator used in an interval: the lines of `machine.jsonl`.

use super::sockets::Second;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What server and generator used in an interval; a line of `machine.jsonl`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct MachineRecord {
    /// End of the interval, in milliseconds since the start of the run.
    pub t_ms: u64,
    /// The server; null if it is not on this machine and tells no metrics.
    pub server: Option<ServerUsage>,
    /// The generator.
    pub generator: GeneratorUsage,
    /// Links of the lab's own that lost something, were half full or more, or are long; the worst first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub person_links: Vec<PersonLinkUsage>,
    /// The seconds of each group of sockets since the record before.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sockets: Vec<Vec<Second>>,
}

/// A thread in an interval.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ThreadUsage {
    /// Its name.
    pub name: String,
    /// Share of the interval that it was on a CPU, 0 to 1.
    pub cores: f64,
    /// Share that it was ready to run, with no CPU for it.
    pub waited: f64,
}

impl ThreadUsage {
    /// Share of the interval in which it had work to do.
    pub fn wanted(&self) -> f64 {
        self.cores + self.waited
    }
}

/// A direction of somebody's link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Way {
    /// From the person to the server.
    Up,
    /// From the server to the person.
    Down,
}

impl Way {
    /// The word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::Down => "down",
        }
    }
}

/// What a link of the lab's own did with one person's packets in an interval, one way.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PersonLinkUsage {
    /// Whose link it is.
    pub person: String,
    /// Which of the scenario's networks.
    pub network: String,
    /// In which direction.
    pub way: Way,
    /// Packets that came to it.
    pub packets: u64,
    /// Packets of these that it lost, or dropped for a full queue.
    pub dropped: u64,
    /// What it sent on, in Mbit/s; by a link that several people share, of all of them.
    pub mbit_per_s: f64,
    /// What it may send at most; null if it has no limit.
    pub limit_mbit_per_s: Option<f64>,
    /// Mean delay of what it sent on, in milliseconds; null if that was nothing.
    pub delay_ms: Option<f64>,
}

/// Share of its packets that a participant's link may lose, and the packets of a window from which on that is a share.
const LINK_LOSS: f64 = 0.02;
const LINK_PACKETS: u64 = 50;
/// Share of a link's rate from which on it is full.
pub const FULL_LINK: f64 = 0.9;
/// [`PersonLinkUsage::level`] from which on a link counts as loaded.
pub const LOADED_LINK: f64 = 0.5;

impl PersonLinkUsage {
    /// How near the link is to its limit: from 1 on it is full, or loses too much.
    pub fn level(&self) -> f64 {
        let lost = match self.packets >= LINK_PACKETS {
            true => self.dropped as f64 / self.packets as f64,
            false => 0.0,
        };
        let used = self.limit_mbit_per_s.map_or(0.0, |limit| self.mbit_per_s / limit.max(1e-6));
        (lost / LINK_LOSS).max(used / FULL_LINK)
    }
}

/// What the server used in an interval.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ServerUsage {
    /// CPU cores busy; null if the process is not on this machine.
    pub cpu_cores: Option<f64>,
    /// CPU cores by thread name.
    pub threads: BTreeMap<String, f64>,
    /// Its busiest single thread, in cores.
    #[serde(default)]
    pub busiest_thread: Option<(String, f64)>,
    /// Memory, in MiB; null if the process is not on this machine.
    pub rss_mib: Option<f64>,
    /// Packets a second from people; null if the server tells none.
    pub packets_in_per_s: Option<f64>,
    /// Packets a second to people; likewise.
    pub packets_out_per_s: Option<f64>,
    /// Mbit/s from people; likewise.
    pub mbit_in_per_s: Option<f64>,
    /// Mbit/s to people; likewise.
    pub mbit_out_per_s: Option<f64>,
    /// Bytes that wait for TCP connections of media at its end, beside what the kernel holds; null if the server tells none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tcp_waiting_bytes: Option<f64>,
    /// What was discarded in the interval, by reason; reasons with nothing are left out.
    pub drops: BTreeMap<String, u64>,
    /// What the mixers did in the interval, by the name of the counter (`moim_mix_…_total`).
    #[serde(default)]
    pub mix: BTreeMap<String, u64>,
    /// Ticks of its signaling loop that were due and that were missed, as the server itself counts
    /// them; null if it does not.
    #[serde(default)]
    pub signaling_ticks: Option<(u64, u64)>,
    /// Ticks of 50 ms for which a thread of it had stood still for over 1.5 s, as the server counts them, by thread; those
    /// that did not are left out.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub stalled_ticks: BTreeMap<String, u64>,
    /// Ticks of its signaling loop that were over 5 ms late, and how late the latest was since its start, in ms;
    /// null if it does not tell.
    #[serde(default)]
    pub signaling_delay: Option<(u64, f64)>,
    /// Small requests that the lab made, and how many of them were not answered in
    /// [`crate::observe::monitor::PROBE_LATE`].
    #[serde(default)]
    pub probes: Option<(u64, u64)>,
    /// What a fixed piece of work (packets through sockets) costs on its CPUs, in milliseconds of CPU time; null if that is
    /// not measured (`serve: { floor: true }`, and with a quota).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub floor_ms: Option<f64>,
    /// What the kernel says of it; null if the process is not on this machine.
    #[serde(default)]
    pub kernel: Option<KernelUsage>,
    /// What its link bears, as the scenario declares it.
    #[serde(default)]
    pub link_limit: LinkLimit,
}

/// What the generator used in an interval.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct GeneratorUsage {
    /// CPU cores busy, browsers included.
    pub cpu_cores: f64,
    /// CPU cores by thread name; all browser processes together are `chromium`.
    pub threads: BTreeMap<String, f64>,
    /// Cores of the busiest single thread of the lab itself.
    #[serde(default)]
    pub busiest_thread: Option<(String, f64)>,
    /// Its thread that had least time left.
    #[serde(default)]
    pub fullest_thread: Option<ThreadUsage>,
    /// How late a 10 ms timer fires, 99th percentile, in milliseconds.
    pub timer_lag_ms_p99: f64,
    /// How late the lab handles what comes to its own threads (answers, events, joins), 99th
    /// percentile, in milliseconds.
    #[serde(default)]
    pub input_lag_ms_p99: f64,
    /// Memory of the lab itself, in MiB; null if it was not read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rss_mib: Option<f64>,
    /// Datagrams a second that its bots sent; null if there are none.
    #[serde(default)]
    pub packets_out_per_s: Option<f64>,
    /// Datagrams a second that its bots received; likewise.
    #[serde(default)]
    pub packets_in_per_s: Option<f64>,
    /// What the kernel says of the lab itself.
    #[serde(default)]
    pub kernel: Option<KernelUsage>,
}

/// What the kernel says of a process in an interval. Shares are from 0 to 1; null is unknown.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct KernelUsage {
    /// The process.
    pub pid: u32,
    /// Of the time that its threads wanted to run, the share that they waited for a CPU.
    pub waiting: f64,
    /// The thread that waited most, and for which share of the interval.
    pub waiting_thread: Option<(String, f64)>,
    /// The CPUs that it may use.
    pub cpus: Vec<usize>,
    /// Share of the time that these CPUs were not idle, whoever used them, steal included.
    pub cpus_busy: Option<f64>,
    /// Share of these CPUs that the machine's host took.
    pub cpus_steal: Option<f64>,
    /// Soft interrupts' share of the CPU that had most of them.
    pub softirq_most: Option<f64>,
    /// The CPU quota of its control group; null without one.
    pub quota: Option<QuotaUsage>,
    /// Datagrams that found its sockets' receive buffers full.
    pub udp_drops: Option<u64>,
    /// Packets that found a CPU's input queue full; of the whole machine.
    pub softnet_drops: Option<u64>,
    /// Interfaces with a queue in its network.
    pub links: Vec<LinkUsage>,
    /// Descriptors open at the end of the interval.
    pub fds: Option<u64>,
    /// How many it may have open.
    pub fd_limit: Option<u64>,
    /// What its control group may use, in MiB; null without a limit.
    pub memory_limit_mib: Option<f64>,
    /// Processes of its control group that were killed for lack of memory.
    pub oom_kills: Option<u64>,
}

/// A CPU quota in an interval.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct QuotaUsage {
    /// What it allows, in cores.
    pub cores: f64,
    /// Periods in which something wanted to run.
    pub periods: u64,
    /// Those in which it was used up.
    pub throttled: u64,
}

impl QuotaUsage {
    /// Share of the periods in which it was throttled, 0 to 1.
    pub fn throttled_share(&self) -> f64 {
        self.throttled as f64 / self.periods.max(1) as f64
    }
}

/// An interface's queue in an interval.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct LinkUsage {
    /// The interface.
    pub interface: String,
    /// The queueing discipline, such as `tbf`.
    pub kind: String,
    /// What it sent, in Mbit/s.
    pub mbit_per_s: f64,
    /// What it sent, in packets a second.
    pub packets_per_s: f64,
    /// What it may send at most, in Mbit/s; null if it has no limit.
    pub limit_mbit_per_s: Option<f64>,
    /// Packets it dropped.
    pub drops: u64,
    /// Bytes that waited at the end of the interval.
    pub backlog_bytes: u64,
}

/// What a link to people bears, as somebody declared it; none: not said.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct LinkLimit {
    /// Mbit/s.
    pub mbit_per_s: Option<f64>,
    /// Packets a second.
    pub packets_per_s: Option<f64>,
}
