//! Metrics by name, and how samples are reduced to them.
//!
//! `p50 … max` are over all values (one per received track and window). `user_pN` reduces within
//! each person first and then takes the percentile over people: a p95 over all samples hides ten
//! broken people. Within a person, *shares* are weighted (`loss_pct` is all lost over all
//! expected, `retransmitted_pct` what came as retransmission over all packets of pictures that
//! came). `freeze_ratio`, `concealed_pct`, `switches_per_minute`, `received_kbps` (payload of all
//! tracks, one value a window) and what limited the own picture (`cpu_limited_ratio`,
//! `bandwidth_limited_ratio`) are the mean over windows, because a median would hide a fault that
//! fills less than half of them. Everything else is the median.
//! Percentiles are nearest-rank. A person's first window is warm-up and left out, except for the
//! `join_to_…` values that it holds.

pub use super::reduced::{REDUCTIONS, Reduced};
use super::sockets;
use crate::base::{mean, percentile, percentile_of, sorted};
use crate::record::Join;
use std::collections::BTreeMap;
use wire::QualitySample;
use wire::quality::ReceivedTrack;

/// How values are reduced within one person.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Within {
    /// All that is counted over all that it is counted of.
    Share,
    Mean,
    Median,
}

/// Names of all metrics that a threshold may speak of.
pub const NAMES: [&str; 29] = [
    "loss_pct",
    "jitter_ms",
    "gap_ms",
    "rtt_ms",
    "transit_ms",
    "mouth_to_ear_ms",
    "camera_to_screen_ms",
    "mos_lq",
    "mos_cq",
    "mos_sdk",
    "freeze_ratio",
    "paused_ratio",
    "frames_per_second",
    "frame_height",
    "cpu_limited_ratio",
    "bandwidth_limited_ratio",
    "switches_per_minute",
    "retransmitted_pct",
    "estimate_kbps",
    "received_kbps",
    "concealed_pct",
    "jitter_buffer_ms",
    "join_to_connected_ms",
    "join_to_first_audio_ms",
    "join_to_first_frame_ms",
    sockets::PONG_MS,
    sockets::ANSWERED_PCT,
    sockets::CONNECT_MS,
    sockets::LOST,
];

fn within(name: &str) -> Within {
    match name {
        "loss_pct" | "retransmitted_pct" => Within::Share,
        "freeze_ratio"
        | "paused_ratio"
        | "concealed_pct"
        | "cpu_limited_ratio"
        | "bandwidth_limited_ratio"
        | "switches_per_minute"
        | "received_kbps" => Within::Mean,
        _ => Within::Median,
    }
}

/// The values of one metric of one person.
#[derive(Debug, Default, Clone)]
struct PersonValues {
    values: Vec<f64>,
    /// Of a share: what is counted, and of how many.
    share: (u64, u64),
}

impl PersonValues {
    fn reduce(&self, within: Within) -> Option<f64> {
        match within {
            Within::Share => pct(self.share),
            Within::Mean => mean(self.values.iter().copied()),
            Within::Median => percentile_of(self.values.iter().copied(), 50.0),
        }
    }
}

/// Collects samples and reduces them.
#[derive(Debug, Default, Clone)]
pub struct Collector {
    /// By metric, then by person.
    values: BTreeMap<&'static str, BTreeMap<String, PersonValues>>,
    /// How many samples of each person have been seen.
    seen: BTreeMap<String, u64>,
    /// Whether the delay in some score of conversational quality was not measured.
    estimated: bool,
    /// The metrics that are asked for; none: all.
    only: Option<Vec<&'static str>>,
}

/// A share in percent; None of nothing.
fn pct((part, whole): (u64, u64)) -> Option<f64> {
    (whole > 0).then(|| 100.0 * part as f64 / whole as f64)
}

/// Packets that came as retransmissions, of all packets of a picture; None where nobody counts them.
fn retransmitted(row: &ReceivedTrack) -> Option<(u64, u64)> {
    let again = row.retransmitted_packets_received?;
    Some((again, row.packets_received + again))
}

/// The values of a row of a sample's interval of this length, in milliseconds.
fn row_values(row: &ReceivedTrack, interval_ms: u64) -> [(&'static str, Option<f64>); 17] {
    let minutes = interval_ms as f64 / 60_000.0;
    let switches = row.resolution_switches.filter(|_| interval_ms > 0);
    [
        ("loss_pct", row.loss_pct),
        ("jitter_ms", row.jitter_ms),
        ("gap_ms", row.gap_ms),
        ("mos_lq", row.mos_lq),
        ("mos_cq", row.mos_cq),
        ("mos_sdk", row.mos_sdk),
        ("freeze_ratio", row.freeze_ratio),
        ("paused_ratio", row.paused_ratio),
        ("frames_per_second", row.frames_per_second),
        ("frame_height", row.frame_height.map(f64::from)),
        ("switches_per_minute", switches.map(|count| count as f64 / minutes)),
        ("retransmitted_pct", retransmitted(row).and_then(pct)),
        ("concealed_pct", row.concealed_pct),
        ("jitter_buffer_ms", row.jitter_buffer_ms),
        ("transit_ms", row.transit_ms),
        ("mouth_to_ear_ms", row.mouth_to_ear_ms),
        ("camera_to_screen_ms", row.camera_to_screen_ms),
    ]
}

impl Collector {
    /// A collector of these metrics alone: what is asked for during a run must cost little.
    pub fn only(names: Vec<&'static str>) -> Self {
        Self { only: Some(names), ..Self::default() }
    }

    /// Takes a sample of a person; samples of one person must come in order.
    pub fn add(&mut self, person: &str, sample: &QualitySample) {
        self.value(person, "join_to_first_audio_ms", sample.join_to_first_audio_ms);
        self.value(person, "join_to_first_frame_ms", sample.join_to_first_frame_ms);
        let seen = self.seen.entry(person.to_owned()).or_default();
        *seen += 1;
        if *seen == 1 {
            return; // warm-up
        }
        self.value(person, "rtt_ms", sample.rtt_ms);
        self.value(person, "estimate_kbps", sample.estimate_kbps);
        if !sample.received.is_empty() {
            let kbps = sample.received.iter().map(|row| row.bitrate_kbps).sum();
            self.value(person, "received_kbps", Some(kbps));
        }
        for row in &sample.sent {
            self.value(person, "cpu_limited_ratio", row.cpu_limited_ratio);
            self.value(person, "bandwidth_limited_ratio", row.bandwidth_limited_ratio);
        }
        for row in &sample.received {
            for (name, value) in row_values(row, sample.interval_ms) {
                self.value(person, name, value);
            }
            self.estimated |= row.mos_cq.is_some() && row.mouth_to_ear_ms.is_none();
            let expected = row.packets_lost + row.packets_received;
            let lost = row.loss_pct.map(|_| (row.packets_lost, expected));
            self.share(person, "loss_pct", lost);
            self.share(person, "retransmitted_pct", retransmitted(row));
        }
    }

    /// Takes a share of a person: what is counted, and of how many.
    fn share(&mut self, person: &str, name: &'static str, share: Option<(u64, u64)>) {
        let Some((part, whole)) = share.filter(|_| self.wants(name)) else { return };
        let of = &mut self.of(person, name).share;
        *of = (of.0 + part, of.1 + whole);
    }

    fn wants(&self, name: &str) -> bool {
        self.only.as_ref().is_none_or(|only| only.contains(&name))
    }

    /// Takes a sample of a person whose first one was taken elsewhere: nothing is warm-up.
    pub fn add_warm(&mut self, person: &str, sample: &QualitySample) {
        self.seen.entry(person.to_owned()).or_insert(1);
        self.add(person, sample);
    }

    /// A sample of a person came that does not count.
    pub fn pass(&mut self, person: &str) {
        *self.seen.entry(person.to_owned()).or_default() += 1;
    }

    /// Takes somebody's having been connected.
    pub fn join(&mut self, join: &Join) {
        self.value(&join.person, "join_to_connected_ms", Some(join.took_ms));
    }

    /// Takes a single value of a person, of a metric of [`NAMES`].
    pub fn value(&mut self, person: &str, name: &'static str, value: Option<f64>) {
        if let Some(value) = value.filter(|v| v.is_finite() && self.wants(name)) {
            self.of(person, name).values.push(value);
        }
    }

    fn of(&mut self, person: &str, name: &'static str) -> &mut PersonValues {
        self.values.entry(name).or_default().entry(person.to_owned()).or_default()
    }

    /// All metrics of [`NAMES`], or those asked for; one that nobody could measure is `None`.
    pub fn reduce(&self) -> BTreeMap<String, Option<Reduced>> {
        let names = self.only.as_deref().unwrap_or(&NAMES);
        names.iter().map(|name| ((*name).to_owned(), self.reduce_one(name))).collect()
    }

    /// Where the delays in scores come from; one that was estimated makes them all so.
    fn delay(&self) -> &'static str {
        if self.estimated { "estimated" } else { "measured" }
    }

    /// Each person's value of a metric, in rising order; those who could not measure it are left out.
    pub fn people(&self, name: &str) -> Vec<f64> {
        let people = self.values.get(name).into_iter().flat_map(BTreeMap::values);
        sorted(people.filter_map(|person| person.reduce(within(name))))
    }

    /// One metric; None if nobody could measure it.
    pub fn reduce_one(&self, name: &str) -> Option<Reduced> {
        let people = self.values.get(name)?;
        let all = sorted(people.values().flat_map(|p| p.values.iter().copied()));
        let users = self.people(name);
        let model = match name {
            "mos_lq" | "mos_cq" => Some(crate::observe::mos::MODEL.to_owned()),
            "mos_sdk" => Some(crate::observe::mos::MODEL_SDK.to_owned()),
            _ => None,
        };
        Some(Reduced {
            p50: percentile(&all, 50.0)?,
            p95: percentile(&all, 95.0)?,
            p99: percentile(&all, 99.0)?,
            max: percentile(&all, 100.0)?,
            user_p1: percentile(&users, 1.0)?,
            user_p5: percentile(&users, 5.0)?,
            user_p95: percentile(&users, 95.0)?,
            n: all.len() as u64,
            model,
            delay: (name == "mos_cq").then(|| self.delay().to_owned()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{audio_row, video_row};
    use wire::quality::SentTrack;
    use wire::room::MediaKind;

    fn sample(rows: Vec<ReceivedTrack>) -> QualitySample {
        QualitySample { received: rows, ..Default::default() }
    }

    #[test]
    fn nearest_rank() {
        let values: Vec<f64> = (1..=100).map(f64::from).collect();
        assert_eq!(percentile(&values, 50.0), Some(50.0));
        assert_eq!(percentile(&values, 95.0), Some(95.0));
        assert_eq!(percentile(&values, 100.0), Some(100.0));
        assert_eq!(percentile(&values, 0.0), Some(1.0));
        assert_eq!(percentile(&[7.0], 99.0), Some(7.0));
        assert_eq!(percentile(&[], 50.0), None);
    }

    #[test]
    fn one_broken_person_of_ten_shows_in_user_p95_and_hides_in_p95() {
        let mut collector = Collector::default();
        for person in 0..10 {
            let name = format!("bot-{person}");
            collector.add(&name, &sample(vec![]));
            // The broken one has few values, since they receive little.
            for _ in 0..if person == 0 { 2 } else { 100 } {
                let mut row = audio_row("p", "t", 100);
                row.packets_lost = if person == 0 { 100 } else { 0 };
                row.loss_pct = Some(if person == 0 { 50.0 } else { 0.0 });
                collector.add(&name, &sample(vec![row]));
            }
        }
        let loss = collector.reduce()["loss_pct"].clone().expect("measured");
        assert_eq!((loss.p95, loss.user_p95, loss.max), (0.0, 50.0, 50.0));
        assert_eq!(loss.n, 902);
    }

    #[test]
    fn what_a_person_receives_is_the_sum_of_their_tracks_and_the_mean_over_windows() {
        let mut collector = Collector::default();
        let rates = |all: &[f64]| {
            let row = |kbps: &f64| ReceivedTrack { bitrate_kbps: *kbps, ..audio_row("p", "t", 9) };
            sample(all.iter().map(row).collect())
        };
        for window in [&[9999.0][..], &[100.0, 50.0], &[], &[40.0, 10.0], &[400.0]] {
            collector.add("a", &rates(window));
        }
        let received = collector.reduce()["received_kbps"].clone().expect("measured");
        assert_eq!((received.n, received.max, received.user_p5), (3, 400.0, 200.0));
    }

    #[test]
    fn loss_of_a_person_is_all_lost_over_all_expected() {
        let mut collector = Collector::default();
        collector.add("a", &sample(vec![]));
        let mut bad = audio_row("p", "t", 0);
        (bad.packets_lost, bad.loss_pct) = (10, Some(100.0));
        let mut good = audio_row("p", "t", 990);
        good.loss_pct = Some(0.0);
        collector.add("a", &sample(vec![bad]));
        collector.add("a", &sample(vec![good]));
        let loss = collector.reduce()["loss_pct"].clone().expect("measured");
        assert!((loss.user_p95 - 1.0).abs() < 1e-9, "{}", loss.user_p95);
    }

    #[test]
    fn warm_up_is_left_out_but_join_times_are_not() {
        let mut collector = Collector::default();
        let mut first = sample(vec![audio_row("p", "t", 1)]);
        first.rtt_ms = Some(900.0);
        first.join_to_first_audio_ms = Some(310.0);
        collector.add("a", &first);
        let metrics = collector.reduce();
        assert_eq!(metrics["rtt_ms"], None);
        assert_eq!(metrics["join_to_first_audio_ms"].as_ref().map(|m| m.max), Some(310.0));
        assert_eq!(metrics["mouth_to_ear_ms"], None, "nobody measured it");
    }

    #[test]
    fn what_is_not_asked_for_is_not_collected() {
        let (mut all, mut some) = (Collector::default(), Collector::only(vec!["rtt_ms"]));
        for i in 0..3 {
            let mut row = audio_row("p", "t", 10);
            row.loss_pct = Some(f64::from(i));
            let mut sample = sample(vec![row]);
            sample.rtt_ms = Some(f64::from(i));
            all.add("a", &sample);
            some.add("a", &sample);
        }
        let (all, some) = (all.reduce(), some.reduce());
        assert!(all["loss_pct"].is_some() && all["rtt_ms"].is_some());
        assert_eq!(some, BTreeMap::from([("rtt_ms".to_owned(), all["rtt_ms"].clone())]));
    }

    #[test]
    fn what_a_picture_was_and_how_it_came() {
        let mut collector = Collector::default();
        let window = |height, switches, packets, again| {
            let mut row = video_row("p", "t", packets);
            row.frame_height = Some(height);
            row.resolution_switches = Some(switches);
            row.retransmitted_packets_received = Some(again);
            QualitySample { interval_ms: 3000, ..sample(vec![row]) }
        };
        collector.add("a", &window(180, 9, 1, 9));
        for (height, switches, packets, again) in
            [(180, 0, 100, 0), (360, 1, 200, 50), (360, 0, 600, 50), (480, 2, 0, 0)]
        {
            collector.add("a", &window(height, switches, packets, again));
        }
        // Sound has no picture, and nothing comes again of it.
        collector.add("a", &sample(vec![audio_row("p", "s", 100)]));
        let metrics = collector.reduce();
        let of = |name: &str| metrics[name].clone().expect("measured");
        let (height, switches) = (of("frame_height"), of("switches_per_minute"));
        assert_eq!((height.p50, height.max, height.user_p5), (360.0, 480.0, 360.0));
        assert_eq!((switches.p50, switches.max, switches.user_p95), (0.0, 40.0, 15.0));
        let again = of("retransmitted_pct");
        assert_eq!((again.n, again.max), (3, 20.0), "of nothing there is no share");
        assert_eq!(again.user_p95, 10.0, "100 of 1000 packets");
    }

    #[test]
    fn what_limited_the_own_picture_is_the_mean_over_windows() {
        let mut collector = Collector::default();
        let window = |cpu, bandwidth, late| {
            let track = |kind| SentTrack {
                track: "t".into(),
                kind,
                codec: None,
                packets_sent: 10,
                retransmitted_packets_sent: None,
                bitrate_kbps: 1.0,
                remote_loss_pct: None,
                frames_per_second: None,
                keyframe_requests: None,
                cpu_limited_ratio: cpu,
                bandwidth_limited_ratio: bandwidth,
            };
            let mut row = video_row("p", "u", 9);
            row.camera_to_screen_ms = late;
            let sound = SentTrack {
                cpu_limited_ratio: None,
                bandwidth_limited_ratio: None,
                ..track(MediaKind::Audio)
            };
            QualitySample { sent: vec![track(MediaKind::Video), sound], ..sample(vec![row]) }
        };
        collector.add("a", &window(Some(1.0), Some(1.0), Some(900.0)));
        collector.add("a", &window(Some(0.5), Some(0.0), Some(40.0)));
        collector.add("a", &window(Some(0.0), Some(0.0), None));
        let metrics = collector.reduce();
        let of = |name: &str| metrics[name].clone().expect("measured");
        let cpu = of("cpu_limited_ratio");
        assert_eq!((cpu.n, cpu.user_p95), (2, 0.25), "sound is limited by nothing");
        assert_eq!(of("bandwidth_limited_ratio").max, 0.0, "the first window is warm-up");
        assert_eq!((of("camera_to_screen_ms").n, of("camera_to_screen_ms").max), (1, 40.0));
    }

    #[test]
    fn a_freeze_in_one_window_of_five_is_not_hidden_by_a_median() {
        let mut collector = Collector::default();
        for i in 0..6 {
            let mut row = video_row("p", "t", 100);
            row.freeze_ratio = Some(if i == 3 { 0.5 } else { 0.0 });
            row.frames_per_second = Some(20.0 + f64::from(i));
            collector.add("a", &sample(vec![row]));
        }
        let metrics = collector.reduce();
        let freeze = metrics["freeze_ratio"].clone().expect("measured");
        assert!((freeze.user_p95 - 0.1).abs() < 1e-9);
        assert_eq!(metrics["frames_per_second"].as_ref().map(|m| m.user_p5), Some(23.0));
    }
}
