//! What is counted of media connections, and told in the log, one line a minute for each reason.

use crate::metrics::{Counter, Gauge, Metrics};
use crate::places::Full;
use crate::proxy_protocol::BadHeader;
use crate::seldom::Seldom;
use std::net::IpAddr;
use std::time::Instant;

pub(super) struct Counts {
    pub(super) open: Gauge,
    pub(super) waiting: Gauge,
    pub(super) refused: Counter,
    pub(super) of_address: Counter,
    pub(super) silent: Counter,
    pub(super) bad_frame: Counter,
    untrusted: Counter,
    bad_proxy_header: Counter,
    pub(super) too_much: Counter,
    pub(super) sent: Counter,
    pub(super) received: Counter,
    told: Told,
}

#[derive(Default)]
struct Told {
    full: Seldom,
    of_address: Seldom,
    untrusted: Seldom,
    bad_proxy_header: Seldom,
}

impl Counts {
    pub(super) fn new(thread: &str, metrics: &Metrics) -> Self {
        let counter = |name, help| metrics.registry.counter(name, help, &[("thread", thread)]);
        let gauge = |name, help| metrics.registry.gauge(name, help, &[("thread", thread)]);
        Self {
            open: gauge("moim_tcp_connections", "Connections that carry media or may come to."),
            waiting: gauge(
                "moim_tcp_waiting_bytes",
                "Bytes that waited for TCP connections a second ago at most, beside what the kernel holds.",
            ),
            refused: metrics.drops("tcp", "too_many_connections"),
            of_address: metrics.drops("tcp", "too_many_of_address"),
            silent: metrics.drops("tcp", "silent_connection"),
            bad_frame: metrics.drops("tcp", "bad_frame"),
            untrusted: metrics.drops("tcp", "untrusted_proxy"),
            bad_proxy_header: metrics.drops("tcp", "bad_proxy_header"),
            too_much: metrics.drops("tcp", "queue_full"),
            sent: counter("moim_tcp_packets_out_total", "Packets handed to TCP."),
            received: counter("moim_tcp_packets_in_total", "Packets that came by TCP."),
            told: Told::default(),
        }
    }

    /// There is no place for a connection of an address.
    pub(super) fn refuse(&self, full: Full, address: IpAddr, most_each: usize, now: Instant) {
        match full {
            Full::All => {
                self.refused.inc();
                if let Some(times) = self.told.full.happens(now) {
                    tracing::warn!(
                        %address, times,
                        "all places for media on TCP are taken, or few are left and this address has its share: \
                         raise the limit of open files (ulimit -n, LimitNOFILE)"
                    );
                }
            }
            Full::Address => {
                self.of_address.inc();
                if let Some(times) = self.told.of_address.happens(now) {
                    tracing::warn!(
                        %address, most = most_each, times,
                        "an address has as many media connections on TCP as limits.connections_per_address \
                         allows: raise it, or list the address under http.trusted_proxies if it is a proxy"
                    );
                }
            }
        }
    }

    /// A trusted proxy's header is none that can be read.
    pub(super) fn refuse_header(&self, why: BadHeader, proxy: IpAddr, now: Instant) {
        self.bad_proxy_header.inc();
        if let Some(times) = self.told.bad_proxy_header.happens(now) {
            tracing::warn!(address = %proxy, times, "media of a trusted proxy is refused: {why}");
        }
    }

    /// A PROXY header of who is no trusted proxy.
    pub(super) fn refuse_untrusted(&self, address: IpAddr, now: Instant) {
        self.untrusted.inc();
        if let Some(times) = self.told.untrusted.happens(now) {
            tracing::warn!(
                %address, times,
                "a PROXY header came to the media port from an address that is not under \
                 http.trusted_proxies: list it there if it is a proxy"
            );
        }
    }
}
