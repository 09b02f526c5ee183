//! What each candidate reads in one window, against the value from which on it fires.

use crate::base::short;
use crate::judge::generator;
use crate::record::{
    FULL_LINK, KernelUsage, LinkUsage, MachineRecord, PersonLinkUsage, ServerUsage,
};

/// Something that can be the first bottleneck; the load generator stands apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Candidate {
    /// The link of a participant: a network of the scenario.
    Link,
    /// The CPUs that the server may use.
    Cpu,
    /// One of its threads, while its CPUs are not full.
    Thread,
    /// One of its threads, which stood still.
    Stall,
    /// The CPU quota of its control group.
    CpuQuota,
    /// A link of limited rate.
    Network,
    /// The receive buffers of its sockets.
    SocketBuffer,
    /// The kernel's own work on packets.
    Softirq,
    /// Memory.
    Memory,
    /// Open files and sockets.
    Fds,
    /// The loop that answers requests.
    Signaling,
    /// The mixers' ticks.
    MixerDeadline,
}

impl Candidate {
    /// All of them.
    pub const ALL: [Self; 12] = [
        Self::Link,
        Self::Cpu,
        Self::Thread,
        Self::Stall,
        Self::CpuQuota,
        Self::Network,
        Self::SocketBuffer,
        Self::Softirq,
        Self::Memory,
        Self::Fds,
        Self::Signaling,
        Self::MixerDeadline,
    ];

    /// The id in summaries.
    pub fn id(self) -> &'static str {
        match self {
            Self::Link => "link",
            Self::Cpu => "cpu",
            Self::Thread => "thread",
            Self::Stall => "stall",
            Self::CpuQuota => "cpu_quota",
            Self::Network => "network",
            Self::SocketBuffer => "socket_buffer",
            Self::Softirq => "softirq",
            Self::Memory => "memory",
            Self::Fds => "fds",
            Self::Signaling => "signaling",
            Self::MixerDeadline => "mixer_deadline",
        }
    }

    /// Errors first, then saturation, then utilization.
    pub fn rank(self) -> u8 {
        match self {
            Self::Stall | Self::Memory | Self::Fds | Self::SocketBuffer | Self::Softirq => 0,
            Self::Link | Self::CpuQuota | Self::Network => 1,
            Self::MixerDeadline | Self::Signaling => 1,
            Self::Cpu | Self::Thread => 2,
        }
    }

    /// Whether the other one, if it fires too, only follows from this one: a server without CPU reads no
    /// sockets, keeps no deadlines and answers late; a full link delays answers.
    pub fn explains(self, effect: Self) -> bool {
        use Candidate::*;
        match self {
            CpuQuota => {
                matches!(effect, Cpu | Thread | Stall | SocketBuffer | Signaling | MixerDeadline)
            }
            Cpu => matches!(effect, Thread | Stall | SocketBuffer | Signaling | MixerDeadline),
            Thread => matches!(effect, Stall | SocketBuffer | Signaling | MixerDeadline),
            Stall => matches!(effect, SocketBuffer | Signaling | MixerDeadline),
            Softirq => matches!(effect, Cpu | Stall | SocketBuffer | Signaling | MixerDeadline),
            Memory => matches!(effect, Stall | Signaling),
            Network | Fds => effect == Signaling,
            // Of the lab's own making: the server's resources are as they are.
            Link => false,
            SocketBuffer | Signaling | MixerDeadline => false,
        }
    }
}

/// What a candidate reads in a window.
#[derive(Debug, Clone, PartialEq)]
pub struct Reading {
    /// Which.
    pub candidate: Candidate,
    /// Against its limit: from 1 on it fires.
    pub level: f64,
    /// In words.
    pub text: String,
    /// Whose it is, if it is a participant's.
    pub person: Option<String>,
}

impl Reading {
    /// Whether it fires.
    pub fn fires(&self) -> bool {
        self.level >= 1.0
    }
}

/// CPUs busy from this share on are full.
const CPU_BUSY: f64 = 0.9;
/// There are too few CPUs if threads wait for one this share of the time, and the CPUs are at least as busy as
/// the second: on idle CPUs threads only wait for each other to end a tick, or for a quota.
const CPU_WAITING: f64 = 0.2;
const CPU_WAITING_BUSY: f64 = 0.7;
/// A single thread busy from this share on is full, while its CPUs are below the second.
const THREAD_BUSY: f64 = 0.95;
const THREAD_SET_BUSY: f64 = 0.85;
/// Share of throttled periods from which on a quota holds a server back.
const THROTTLED: f64 = 0.05;
/// Soft interrupts on one CPU.
const SOFTIRQ: f64 = 0.8;
/// Missed ticks from this share on.
const MISSED: f64 = 0.01;
/// Late answers from this number on: a single one may be the host's doing.
const LATE_PROBES: u64 = 2;
/// Descriptors that are left when a server can accept nobody.
const FDS_LEFT: u64 = 2;
/// Share of the memory that may be used.
const MEMORY: f64 = 0.98;

/// Everything that is known of a window. If it is known whom the break concerns, only the links of these
/// `people` count: somebody else's explains nothing.
pub fn readings(record: &MachineRecord, people: &[String]) -> Vec<Reading> {
    let theirs = |link: &&PersonLinkUsage| people.is_empty() || people.contains(&link.person);
    let links = record.person_links.iter().filter(theirs).map(person_link);
    let mut all = vec![links.max_by(|a, b| a.level.total_cmp(&b.level))];
    if let Some(server) = &record.server {
        all.extend(of_server(record, server));
    }
    all.into_iter().flatten().collect()
}

fn of_server(record: &MachineRecord, server: &ServerUsage) -> Vec<Option<Reading>> {
    let mut all = Vec::new();
    if let Some(kernel) = &server.kernel {
        all.extend([cpu(kernel), thread(server, kernel), quota(server, kernel)]);
        all.extend([socket_buffer(server, kernel), softirq(kernel)]);
        all.extend([memory(server, kernel), fds(server, kernel)]);
    }
    let links = server.kernel.iter().flat_map(|kernel| kernel.links.iter().filter_map(link));
    let links = links.chain(declared_link(record, server));
    all.push(links.max_by(|a, b| a.level.total_cmp(&b.level)));
    all.extend([stall(server), signaling(record, server), mixer(server)]);
    all
}

fn person_link(link: &PersonLinkUsage) -> Reading {
    let PersonLinkUsage { person, network, packets, dropped, .. } = link;
    let limit = link.limit_mbit_per_s;
    let limit = limit.map_or(String::new(), |limit| format!(" of {}", short(limit)));
    let delay = link.delay_ms.map_or(String::new(), |ms| format!(", {} ms late", short(ms)));
    let text = format!(
        "the link {network} of {person} ({}) dropped {dropped} of {packets} packets and sent \
         {}{limit} Mbit/s{delay}",
        link.way.as_str(),
        short(link.mbit_per_s)
    );
    let level = link.level();
    Reading { candidate: Candidate::Link, level, text, person: Some(person.clone()) }
}

/// Whether server and generator may use a common CPU.
pub fn shared_cpus(record: &MachineRecord) -> bool {
    let server = record.server.as_ref().and_then(|server| server.kernel.as_ref());
    match (server, &record.generator.kernel) {
        (Some(server), Some(own)) => server.cpus.iter().any(|cpu| own.cpus.contains(cpu)),
        _ => false,
    }
}

fn reading(candidate: Candidate, level: f64, text: String) -> Option<Reading> {
    Some(Reading { candidate, level, text, person: None })
}

fn percent(share: f64) -> f64 {
    (share * 100.0).round()
}

fn cpu(kernel: &KernelUsage) -> Option<Reading> {
    let busy = kernel.cpus_busy?;
    let steal = kernel.cpus_steal.filter(|steal| *steal >= 0.005);
    let steal = steal.map_or(String::new(), |s| format!(" ({} % taken by the host)", percent(s)));
    let cpus: Vec<String> = kernel.cpus.iter().map(ToString::to_string).collect();
    let text = format!(
        "CPU {} busy {} %{steal}, its threads waited {} % of the time",
        cpus.join(","),
        percent(busy),
        percent(kernel.waiting)
    );
    let waiting = if busy >= CPU_WAITING_BUSY { kernel.waiting / CPU_WAITING } else { 0.0 };
    reading(Candidate::Cpu, (busy / CPU_BUSY).max(waiting), text)
}

fn thread(server: &ServerUsage, kernel: &KernelUsage) -> Option<Reading> {
    let (name, cores) = server.busiest_thread.as_ref()?;
    if kernel.cpus_busy? >= THREAD_SET_BUSY {
        return None;
    }
    // Its own wait for a CPU and what the host takes are time in which it had work to do.
    let waiting = kernel.waiting_thread.as_ref().filter(|(waiting, _)| waiting == name);
    let waiting = waiting.map_or(0.0, |(_, share)| *share);
    let taken = kernel.cpus_steal.unwrap_or(0.0);
    let busy = (cores + waiting + taken).min(1.0).min(cores * 1.25);
    let text = format!("thread {name} busy {} %", percent(*cores));
    reading(Candidate::Thread, busy / THREAD_BUSY, text)
}

fn stall(server: &ServerUsage) -> Option<Reading> {
    let (thread, ticks) = server.stalled_ticks.iter().max_by_key(|(_, ticks)| **ticks)?;
    let text = format!("thread {thread} stood still for 1.5 s, and {} ms more", ticks * 50);
    reading(Candidate::Stall, 1.0, text)
}

fn quota(server: &ServerUsage, kernel: &KernelUsage) -> Option<Reading> {
    let quota = kernel.quota.as_ref()?;
    let throttled = quota.throttled_share();
    let used = server.cpu_cores.unwrap_or(0.0) / quota.cores.max(1e-6);
    let text = format!(
        "throttled in {} % of the periods, quota {:.2} cores",
        percent(throttled),
        quota.cores
    );
    reading(Candidate::CpuQuota, (throttled / THROTTLED).max(used.min(0.99)), text)
}

fn link(link: &LinkUsage) -> Option<Reading> {
    let used = link.limit_mbit_per_s.map(|limit| link.mbit_per_s / limit.max(1e-6));
    let of = link.limit_mbit_per_s.map_or(String::new(), |limit| format!(" of {limit:.1}"));
    let text = format!(
        "{} sent {:.1}{of} Mbit/s, {:.0} packets/s, and dropped {} packets",
        link.interface, link.mbit_per_s, link.packets_per_s, link.drops
    );
    let dropped = if link.drops > 0 { 1.0 } else { 0.0 };
    reading(Candidate::Network, (used.unwrap_or(0.0) / FULL_LINK).max(dropped), text)
}

/// Bytes of IPv4 and UDP before each payload, which a link carries as well.
const HEADERS: f64 = 28.0;

/// The link as the scenario declares it, against what went to people: packets as the server counts them,
/// otherwise as the bots do. Only the server knows Mbit/s.
fn declared_link(record: &MachineRecord, server: &ServerUsage) -> Option<Reading> {
    let used = |value: Option<f64>, limit: Option<f64>| Some((value?, limit?));
    let limit = server.link_limit;
    let packets = server.packets_out_per_s.or(record.generator.packets_in_per_s);
    let headers = server.packets_out_per_s.unwrap_or(0.0) * HEADERS * 8.0 / 1e6;
    let mbit = server.mbit_out_per_s.map(|payload| payload + headers);
    let found = [
        (used(mbit, limit.mbit_per_s), "Mbit/s"),
        (used(packets, limit.packets_per_s), "packets/s"),
    ];
    let found = found.into_iter().filter_map(|(used, unit)| {
        let (value, limit) = used?;
        let text = format!("{value:.1} of the declared {limit} {unit} went to people");
        reading(Candidate::Network, value / limit / FULL_LINK, text)
    });
    found.max_by(|a, b| a.level.total_cmp(&b.level))
}

fn socket_buffer(server: &ServerUsage, kernel: &KernelUsage) -> Option<Reading> {
    let dropped = kernel.udp_drops?;
    let unsent = server.drops.get("socket/send_buffer_full").copied().unwrap_or(0);
    let text = format!("{dropped} datagrams found a receive buffer full, {unsent} a send buffer");
    reading(Candidate::SocketBuffer, if dropped + unsent > 0 { 1.0 } else { 0.0 }, text)
}

fn softirq(kernel: &KernelUsage) -> Option<Reading> {
    let (share, dropped) = (kernel.softirq_most?, kernel.softnet_drops.unwrap_or(0));
    let text = format!(
        "soft interrupts took {} % of a CPU, {dropped} packets found its queue full",
        percent(share)
    );
    let level = if dropped > 0 { 1.0 } else { share / SOFTIRQ };
    reading(Candidate::Softirq, level, text)
}

fn memory(server: &ServerUsage, kernel: &KernelUsage) -> Option<Reading> {
    let used = server.rss_mib? / kernel.memory_limit_mib.unwrap_or(f64::INFINITY);
    let kills = kernel.oom_kills.unwrap_or(0);
    let text =
        format!("{} % of its memory, {kills} processes killed for lack of it", percent(used));
    reading(Candidate::Memory, if kills > 0 { 1.0 } else { used / MEMORY }, text)
}

/// A server that shares its descriptors out refuses connections before the last one is taken.
fn fds(server: &ServerUsage, kernel: &KernelUsage) -> Option<Reading> {
    let (open, limit) = (kernel.fds?, kernel.fd_limit?);
    let refused = server.drops.get("http/too_many_connections").copied().unwrap_or(0);
    let text = match refused {
        0 => format!("{open} of {limit} descriptors open"),
        _ => format!("{open} of {limit} descriptors open, {refused} connections refused"),
    };
    let full = limit.saturating_sub(FDS_LEFT).max(1);
    let level = open as f64 / full as f64;
    reading(Candidate::Fds, if refused > 0 { level.max(1.0) } else { level }, text)
}

fn signaling(record: &MachineRecord, server: &ServerUsage) -> Option<Reading> {
    let share = server.signaling_ticks.filter(|(due, _)| *due > 0);
    let share = share.map(|(due, missed)| missed as f64 / due as f64);
    // A generator that is late itself cannot tell whether the server is.
    let own = &record.generator;
    let punctual = generator::limits(std::iter::once(own), own.timer_lag_ms_p99).is_empty();
    let probes = server.probes.filter(|(made, _)| *made > 0 && punctual);
    if share.is_none() && probes.is_none() {
        return None;
    }
    let own = share.map_or(0.0, |share| share / MISSED);
    let seen = probes.map_or(0.0, |(_, late)| late as f64 / LATE_PROBES as f64);
    let mut parts = Vec::new();
    parts.extend(
        share.map(|s| format!("the signaling loop missed {:.1} % of its ticks", s * 100.0)),
    );
    parts.extend(probes.map(|(made, late)| format!("{late} of {made} requests answered late")));
    reading(Candidate::Signaling, own.max(seen), parts.join(", "))
}

fn mixer(server: &ServerUsage) -> Option<Reading> {
    let of = |name: &str| server.mix.get(name).copied().unwrap_or(0);
    let ticks = of("moim_mix_ticks_total");
    let missed = of("moim_mix_ticks_late_total") + of("moim_mix_ticks_skipped_total");
    let due = ticks + of("moim_mix_ticks_skipped_total");
    if due == 0 {
        return None;
    }
    let share = missed as f64 / due as f64;
    let text = format!("{:.1} % of the mixers' ticks late or left out", share * 100.0);
    reading(Candidate::MixerDeadline, share / MISSED, text)
}
