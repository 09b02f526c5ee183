//! Which process listens on a port.

use procfs::process::{FDTarget, Process, all_processes};
use std::collections::HashSet;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The process on this machine that listens on a TCP port at an address of this machine, in
/// whichever network namespace: another one's loopback is never meant.
pub fn listener(host: &str, port: u16) -> Option<u32> {
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let wanted: IpAddr =
        if host == "localhost" { Ipv4Addr::LOCALHOST.into() } else { host.parse().ok()? };
    let mut seen = HashSet::new();
    for process in all_processes().ok()?.flatten() {
        let namespace = fs::read_link(format!("/proc/{}/ns/net", process.pid));
        // A process whose files cannot be read belongs to somebody else.
        let Ok(namespace) = namespace else { continue };
        let ours = fs::read_link("/proc/self/ns/net").is_ok_and(|own| own == namespace);
        if !seen.insert(namespace) || (wanted.is_loopback() && !ours) {
            continue;
        }
        let found = listener_beside(process.pid, wanted, port);
        if found.is_some() {
            return found;
        }
    }
    None
}

/// The same in the network namespace of one process.
fn listener_beside(pid: i32, wanted: IpAddr, port: u16) -> Option<u32> {
    let process = Process::new(pid).ok()?;
    let entries = process.tcp().unwrap_or_default();
    let entries = entries.into_iter().chain(process.tcp6().unwrap_or_default());
    let any = |ip: IpAddr| ip == Ipv4Addr::UNSPECIFIED || ip == Ipv6Addr::UNSPECIFIED;
    let inodes: HashSet<u64> = entries
        .filter(|e| e.state == procfs::net::TcpState::Listen && e.local_address.port() == port)
        .filter(|e| {
            let ip = e.local_address.ip();
            ip == wanted || (any(ip) && has_address(pid, wanted))
        })
        .map(|e| e.inode)
        .collect();
    if inodes.is_empty() {
        return None;
    }
    for process in all_processes().ok()?.flatten() {
        let Ok(fds) = process.fd() else { continue };
        let holds = |target: &FDTarget| matches!(target, FDTarget::Socket(i) if inodes.contains(i));
        if fds.flatten().any(|fd| holds(&fd.target)) {
            return u32::try_from(process.pid).ok();
        }
    }
    None
}

/// Whether an address is one of those where a process is.
fn has_address(pid: i32, address: IpAddr) -> bool {
    let read = |file: &str| fs::read_to_string(format!("/proc/{pid}/net/{file}"));
    match address {
        _ if address.is_loopback() => true,
        IpAddr::V4(v4) => {
            // An address line is followed by what it is: `/32 host LOCAL`.
            let text = read("fib_trie").unwrap_or_default();
            let lines: Vec<&str> = text.lines().map(str::trim).collect();
            let is = |line: &str| line.strip_prefix("|-- ") == Some(&v4.to_string());
            lines.windows(2).any(|pair| is(pair[0]) && pair[1].ends_with("LOCAL"))
        }
        IpAddr::V6(v6) => {
            let hex: String = v6.octets().iter().map(|byte| format!("{byte:02x}")).collect();
            read("if_inet6").unwrap_or_default().lines().any(|line| line.starts_with(&hex))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_listener_of_a_port_is_found() {
        let listener_socket = std::net::TcpListener::bind("127.0.0.1:0").expect("bind");
        let port = listener_socket.local_addr().expect("address").port();
        assert_eq!(listener("127.0.0.1", port), Some(std::process::id()));
        assert_eq!(listener("localhost", port), Some(std::process::id()));
        assert_eq!(listener("192.0.2.1", port), None);
        drop(listener_socket);
        assert_eq!(listener("127.0.0.1", port), None);
    }
}
