//! Counters, gauges and histograms, and their Prometheus text
//! (<https://prometheus.io/docs/instrumenting/exposition_formats/>, version 0.0.4).
//!
//! A handle is an atomic number behind an `Arc`: whoever counts on a hot path takes the handle
//! once and bumps it without locks. Label values come from fixed sets, never from clients.

use crate::health::Health;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use wire::room::{AudioTopology, VideoTopology};

/// A number that only grows.
#[derive(Debug, Clone, Default)]
pub struct Counter(Arc<AtomicU64>);

impl Counter {
    /// Adds one.
    pub fn inc(&self) {
        self.add(1);
    }
    /// Adds `n`.
    pub fn add(&self, n: u64) {
        self.0.fetch_add(n, Relaxed);
    }
    /// The count so far.
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// A number that goes up and down.
#[derive(Debug, Clone, Default)]
pub struct Gauge(Arc<AtomicI64>);

impl Gauge {
    /// Sets it.
    pub fn set(&self, value: i64) {
        self.0.store(value, Relaxed);
    }
    /// Adds `n`, which may be negative.
    pub fn add(&self, n: i64) {
        self.0.fetch_add(n, Relaxed);
    }
    /// The value now.
    pub fn get(&self) -> i64 {
        self.0.load(Relaxed)
    }
}

/// A distribution over fixed buckets.
#[derive(Debug, Clone)]
pub struct Histogram(Arc<Buckets>);

#[derive(Debug)]
struct Buckets {
    bounds: &'static [f64],
    /// One more than `bounds`: the last takes what is above all of them.
    counts: Vec<AtomicU64>,
    /// In millionths: floats have no atomic addition.
    sum_millionths: AtomicU64,
}

/// Upper bounds for times in seconds, 0.1 ms to 10 s.
pub const SECONDS: &[f64] = &[
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5,
    5.0, 10.0,
];

/// Upper bounds for a MOS.
pub const MOS: &[f64] = &[1.5, 2.0, 2.5, 3.0, 3.2, 3.4, 3.6, 3.8, 4.0, 4.1, 4.2, 4.3, 4.4, 4.5];

impl Histogram {
    fn new(bounds: &'static [f64]) -> Self {
        let counts = (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect();
        Self(Arc::new(Buckets { bounds, counts, sum_millionths: AtomicU64::new(0) }))
    }
    /// Counts a value (not negative).
    pub fn observe(&self, value: f64) {
        let index = self.0.bounds.partition_point(|bound| *bound < value);
        self.0.counts[index].fetch_add(1, Relaxed);
        self.0.sum_millionths.fetch_add((value * 1e6) as u64, Relaxed);
    }
    /// Counts values that were counted by the same bounds elsewhere: how many fell into each bucket,
    /// the one over the last bound at the end, and their sum.
    pub fn add(&self, counts: impl IntoIterator<Item = u64>, sum: f64) {
        for (bucket, count) in self.0.counts.iter().zip(counts) {
            bucket.fetch_add(count, Relaxed);
        }
        self.0.sum_millionths.fetch_add((sum * 1e6) as u64, Relaxed);
    }
    /// How many values were counted.
    pub fn count(&self) -> u64 {
        self.0.counts.iter().map(|count| count.load(Relaxed)).sum()
    }
}

#[derive(Debug, Clone)]
enum Series {
    Counter(Counter),
    Gauge(Gauge),
    Histogram(Histogram),
}

#[derive(Debug)]
struct Family {
    help: &'static str,
    kind: &'static str,
    /// By rendered labels: `a="1",b="2"`.
    series: BTreeMap<String, Series>,
}

/// All series by name and labels. Asking twice for the same gives the same series.
#[derive(Debug, Default)]
pub struct Registry {
    families: Mutex<BTreeMap<&'static str, Family>>,
}

impl Registry {
    /// A counter; its name should end in `_total`.
    pub fn counter(
        &self,
        name: &'static str,
        help: &'static str,
        labels: &[(&str, &str)],
    ) -> Counter {
        let new = || Series::Counter(Counter::default());
        match self.series(name, help, "counter", labels, new) {
            Series::Counter(counter) => counter,
            // The name is taken by another kind: a fault of the code, harmless at run time.
            _ => Counter::default(),
        }
    }

    /// A gauge.
    pub fn gauge(&self, name: &'static str, help: &'static str, labels: &[(&str, &str)]) -> Gauge {
        let new = || Series::Gauge(Gauge::default());
        match self.series(name, help, "gauge", labels, new) {
            Series::Gauge(gauge) => gauge,
            _ => Gauge::default(),
        }
    }

    /// A histogram over ascending upper bounds, such as [`SECONDS`].
    pub fn histogram(
        &self,
        name: &'static str,
        help: &'static str,
        labels: &[(&str, &str)],
        bounds: &'static [f64],
    ) -> Histogram {
        let new = || Series::Histogram(Histogram::new(bounds));
        match self.series(name, help, "histogram", labels, new) {
            Series::Histogram(histogram) => histogram,
            _ => Histogram::new(bounds),
        }
    }

    fn series(
        &self,
        name: &'static str,
        help: &'static str,
        kind: &'static str,
        labels: &[(&str, &str)],
        new: impl FnOnce() -> Series,
    ) -> Series {
        let mut families = self.families.lock().unwrap_or_else(PoisonError::into_inner);
        let family =
            families.entry(name).or_insert_with(|| Family { help, kind, series: BTreeMap::new() });
        debug_assert_eq!(family.kind, kind, "{name} is registered as another kind");
        family.series.entry(render_labels(labels)).or_insert_with(new).clone()
    }

    /// The Prometheus text of everything, in the order of the names.
    pub fn render(&self) -> String {
        let families = self.families.lock().unwrap_or_else(PoisonError::into_inner);
        let mut out = String::with_capacity(4096);
        for (name, family) in families.iter() {
            // Writing to a String cannot fail.
            let _ = writeln!(out, "# HELP {name} {}", family.help);
            let _ = writeln!(out, "# TYPE {name} {}", family.kind);
            for (labels, series) in &family.series {
                match series {
                    Series::Counter(counter) => line(&mut out, name, labels, counter.get()),
                    Series::Gauge(gauge) => line(&mut out, name, labels, gauge.get()),
                    Series::Histogram(histogram) => {
                        render_histogram(&mut out, name, labels, &histogram.0);
                    }
                }
            }
        }
        out
    }
}

fn line(out: &mut String, name: &str, labels: &str, value: impl std::fmt::Display) {
    let _ = if labels.is_empty() {
        writeln!(out, "{name} {value}")
    } else {
        writeln!(out, "{name}{{{labels}}} {value}")
    };
}

fn render_histogram(out: &mut String, name: &str, labels: &str, buckets: &Buckets) {
    let comma = if labels.is_empty() { "" } else { "," };
    let mut total = 0;
    for (index, count) in buckets.counts.iter().enumerate() {
        total += count.load(Relaxed);
        let bound = buckets.bounds.get(index).map_or("+Inf".to_owned(), f64::to_string);
        let _ = writeln!(out, "{name}_bucket{{{labels}{comma}le=\"{bound}\"}} {total}");
    }
    let sum = buckets.sum_millionths.load(Relaxed) as f64 / 1e6;
    line(out, &format!("{name}_sum"), labels, sum);
    line(out, &format!("{name}_count"), labels, total);
}

fn render_labels(labels: &[(&str, &str)]) -> String {
    let mut out = String::new();
    for (index, (name, value)) in labels.iter().enumerate() {
        let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
        let comma = if index > 0 { "," } else { "" };
        let _ = write!(out, "{comma}{name}=\"{value}\"");
    }
    out
}

/// What one media thread counts, alone: its handles are not shared with other threads.
#[derive(Debug, Clone)]
pub struct MediaCounters {
    /// Datagrams and TCP frames received.
    pub packets_in: Counter,
    /// Their bytes.
    pub bytes_in: Counter,
    /// Datagrams and TCP frames sent.
    pub packets_out: Counter,
    /// Their bytes.
    pub bytes_out: Counter,
}

/// The server's metrics: the series everyone shares, and the registry for more.
#[derive(Debug)]
pub struct Metrics {
    /// For series that only one part knows.
    pub registry: Registry,
    /// Whether the threads that carry calls run.
    pub health: Health,
    /// Rooms now.
    pub rooms: Gauge,
    /// Participants now, in all rooms.
    pub participants: Gauge,
    /// Sockets now.
    pub sockets: Gauge,
    /// Sockets ever opened.
    pub sockets_opened: Counter,
    /// Packets (not frames) read from sockets.
    pub socket_packets_in: Counter,
    /// Packets written to sockets.
    pub socket_packets_out: Counter,
    /// Bytes of the frames read from sockets.
    pub socket_bytes_in: Counter,
    /// Bytes of the packets written to sockets.
    pub socket_bytes_out: Counter,
    /// Messages published on channels of applications.
    pub publications: Counter,
    /// Copies of them that were handed to subscribers.
    pub publications_delivered: Counter,
    /// How long calls take.
    pub call_seconds: Histogram,
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Metrics {
    /// All series at zero.
    pub fn new() -> Self {
        let registry = Registry::default();
        let r = &registry;
        // The server has begun.
        let _ = crate::process::started();
        Self {
            health: Health::default(),
            rooms: r.gauge("moim_rooms", "Rooms now.", &[]),
            participants: r.gauge("moim_participants", "Participants now, in all rooms.", &[]),
            sockets: r.gauge("moim_sockets", "Sockets now.", &[]),
            sockets_opened: r.counter("moim_sockets_opened_total", "Sockets opened.", &[]),
            socket_packets_in: r.counter(
                "moim_socket_packets_in_total",
                "Packets read from sockets.",
                &[],
            ),
            socket_packets_out: r.counter(
                "moim_socket_packets_out_total",
                "Packets written to sockets.",
                &[],
            ),
            socket_bytes_in: r.counter(
                "moim_socket_bytes_in_total",
                "Bytes of frames read from sockets.",
                &[],
            ),
            socket_bytes_out: r.counter(
                "moim_socket_bytes_out_total",
                "Bytes of packets written to sockets.",
                &[],
            ),
            publications: r.counter(
                "moim_publications_total",
                "Messages published on channels of applications.",
                &[],
            ),
            publications_delivered: r.counter(
                "moim_publications_delivered_total",
                "Copies of published messages handed to subscribers.",
                &[],
            ),
            call_seconds: r.histogram(
                "moim_call_seconds",
                "Time from a call's arrival to its answer.",
                &[],
                SECONDS,
            ),
            registry,
        }
    }

    /// The counter of what is discarded at a place for a reason. Take it once where it is hot.
    pub fn drops(&self, place: &str, reason: &str) -> Counter {
        self.registry.counter(
            "moim_dropped_total",
            "Packets and messages discarded, by place and reason.",
            &[("where", place), ("reason", reason)],
        )
    }

    /// Counts one that was discarded, where it is rare.
    pub fn dropped(&self, place: &str, reason: &str) {
        self.drops(place, reason).inc();
    }

    /// Counts a socket that was closed with a code, or by its peer.
    pub fn socket_closed(&self, code: &str) {
        self.registry
            .counter("moim_sockets_closed_total", "Sockets closed, by code.", &[("code", code)])
            .inc();
    }

    /// Counts a call by its outcome: `ok` or an error code.
    pub fn call_ended(&self, outcome: &str) {
        self.registry
            .counter("moim_calls_total", "Calls on sockets, by outcome.", &[("outcome", outcome)])
            .inc();
    }

    /// Counts a call to a client by its outcome: `ok`, `error`, `timeout`, `closed`, `busy`.
    pub fn invocation_ended(&self, outcome: &str) {
        let help = "Calls of the server to clients, by outcome.";
        self.registry.counter("moim_invocations_total", help, &[("outcome", outcome)]).inc();
    }

    /// The counters of a media thread, such as `media-0`.
    pub fn media_thread(&self, thread: &str) -> MediaCounters {
        let counter = |name, help| self.registry.counter(name, help, &[("thread", thread)]);
        MediaCounters {
            packets_in: counter("moim_media_packets_in_total", "Packets received, by thread."),
            bytes_in: counter("moim_media_bytes_in_total", "Bytes received, by thread."),
            packets_out: counter("moim_media_packets_out_total", "Packets sent, by thread."),
            bytes_out: counter("moim_media_bytes_out_total", "Bytes sent, by thread."),
        }
    }

    /// The Prometheus text.
    pub fn render(&self) -> String {
        self.registry.render() + &crate::process::render()
    }

    /// How good samples are in rooms of a kind: MOS-LQ, by topologies.
    pub fn mos_lq(&self, audio: AudioTopology, video: VideoTopology) -> Histogram {
        let labels = [("audio", audio.as_str()), ("video", video.as_str())];
        let help = "MOS-LQ of quality samples, by the room's topologies.";
        self.registry.histogram("moim_mos_lq", help, &labels, MOS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_has_every_series() {
        let metrics = Metrics::new();
        metrics.rooms.set(2);
        metrics.rooms.add(-1);
        metrics.media_thread("media-0").packets_in.add(7);
        metrics.dropped("socket", "not_json");
        metrics.dropped("socket", "not_json");
        let text = metrics.render();
        for line in [
            "# TYPE moim_rooms gauge",
            "moim_rooms 1",
            "# TYPE moim_media_packets_in_total counter",
            "moim_media_packets_in_total{thread=\"media-0\"} 7",
            "moim_dropped_total{where=\"socket\",reason=\"not_json\"} 2",
        ] {
            assert!(text.lines().any(|have| have == line), "{line} is missing in\n{text}");
        }
        assert_eq!(text.matches("# TYPE moim_dropped_total").count(), 1);
        assert!(text.ends_with('\n'));
    }

    #[test]
    fn the_same_labels_give_the_same_series() {
        let registry = Registry::default();
        let first = registry.counter("a_total", "A.", &[("x", "1")]);
        registry.counter("a_total", "A.", &[("x", "1")]).inc();
        registry.counter("a_total", "A.", &[("x", "2")]).add(5);
        assert_eq!(first.get(), 1);
    }

    #[test]
    fn histograms_are_cumulative() {
        let registry = Registry::default();
        let histogram = registry.histogram("h", "H.", &[("k", "v")], &[0.5, 1.0]);
        for value in [0.25, 0.5, 0.75, 3.0] {
            histogram.observe(value);
        }
        assert_eq!(histogram.count(), 4);
        let expected = "# HELP h H.\n# TYPE h histogram\nh_bucket{k=\"v\",le=\"0.5\"} 2\n\
            h_bucket{k=\"v\",le=\"1\"} 3\nh_bucket{k=\"v\",le=\"+Inf\"} 4\n\
            h_sum{k=\"v\"} 4.5\nh_count{k=\"v\"} 4\n";
        assert_eq!(registry.render(), expected);
    }

    #[test]
    fn label_values_are_escaped() {
        assert_eq!(render_labels(&[("a", "q\"b\\n\n")]), "a=\"q\\\"b\\\\n\\n\"");
    }
}
