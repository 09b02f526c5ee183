//! Thresholds: `user_p95 < 1` over the metrics of [`crate::observe::metrics`].

use crate::observe::metrics::{Collector, REDUCTIONS, Reduced};
use crate::observe::sockets::{self, SocketCounts};
use crate::record::{Join, SampleRecord};
use serde::{Deserialize, Serialize};
use settings::{Section, Shape, boolean, duration, either, parsed, section};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// How a value is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Comparison {
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    Equal,
    NotEqual,
}

/// Longer signs first, so that `<=` is not read as `<`.
const SIGNS: [(&str, Comparison); 6] = [
    ("<=", Comparison::LessOrEqual),
    (">=", Comparison::GreaterOrEqual),
    ("==", Comparison::Equal),
    ("!=", Comparison::NotEqual),
    ("<", Comparison::Less),
    (">", Comparison::Greater),
];

impl Comparison {
    fn holds(self, value: f64, limit: f64) -> bool {
        match self {
            Self::Less => value < limit,
            Self::LessOrEqual => value <= limit,
            Self::Greater => value > limit,
            Self::GreaterOrEqual => value >= limit,
            Self::Equal => value == limit,
            Self::NotEqual => value != limit,
        }
    }
}

/// The right side of a threshold: `p95 < 100`.
#[derive(Debug, Clone, PartialEq)]
pub struct Condition {
    text: String,
    reduction: &'static str,
    comparison: Comparison,
    limit: f64,
}

impl std::fmt::Display for Condition {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)
    }
}

impl Condition {
    /// What to write, for messages.
    pub const EXPECTED: &'static str = "a condition such as \"user_p95 < 1\": one of p50, p95, \
         p99, max, user_p1, user_p5, user_p95, n; then <, <=, >, >=, == or !=; then a number";

    /// Reads a condition.
    ///
    /// # Errors
    /// A sentence that says what is wrong.
    pub fn parse(text: &str) -> Result<Self, String> {
        let at = text.find(['<', '>', '=', '!']).ok_or(format!("{text:?} compares nothing"))?;
        let (name, rest) = (text[..at].trim(), &text[at..]);
        let (sign, comparison) = SIGNS
            .into_iter()
            .find(|(sign, _)| rest.starts_with(sign))
            .ok_or(format!("{text:?} has no comparison that is known"))?;
        let reduction = REDUCTIONS
            .into_iter()
            .find(|known| *known == name)
            .ok_or(format!("{name:?} is no known reduction"))?;
        let number = rest[sign.len()..].trim();
        let limit: f64 = number.parse().map_err(|_| format!("{number:?} is no number"))?;
        if !limit.is_finite() {
            return Err(format!("{number:?} is no number to compare with"));
        }
        Ok(Self { text: format!("{name} {sign} {number}"), reduction, comparison, limit })
    }

    /// Whether it allows a value.
    pub fn allows(&self, value: f64) -> bool {
        self.comparison.holds(value, self.limit)
    }

    /// The largest value that it allows; none if it bounds from below, or not at all.
    pub fn most(&self) -> Option<f64> {
        let bounds = matches!(self.comparison, Comparison::Less | Comparison::LessOrEqual);
        bounds.then_some(self.limit)
    }
}

/// A threshold: a condition on a metric.
#[derive(Debug, Clone, PartialEq)]
pub struct Threshold {
    /// The metric, one of [`crate::observe::metrics::NAMES`].
    pub metric: &'static str,
    /// What must hold.
    pub condition: Condition,
    /// Only windows that begin, and people who join, so long after the start of the run count.
    pub from: Duration,
    /// Set if the run ends as soon as it does not hold; never before so long after the first join.
    pub abort: Option<Duration>,
}

/// The right side of a threshold in a scenario: the condition, from when on it counts, and whether it ends the run.
pub(crate) type Side = (Condition, Duration, Option<Duration>);

/// A threshold's right side in a scenario: `"user_p95 < 1"`, or a mapping that also says from when on it counts, and
/// whether the run ends if it fails, in k6's words.
pub(crate) fn shape() -> impl Shape<Value = Side> {
    let plain = |text: &str| Condition::parse(text).map(|c| (c, Duration::ZERO, None));
    either(parsed(Condition::EXPECTED, plain).pattern(PATTERN), section(decode))
}

/// What a condition looks like.
const PATTERN: &str =
    r"^\s*(p50|p95|p99|max|user_p1|user_p5|user_p95|n)\s*(<=|>=|==|!=|<|>)\s*[-+0-9.eE]+\s*$";

fn decode(threshold: &mut Section<'_>) -> Option<Side> {
    let condition = parsed(Condition::EXPECTED, Condition::parse).pattern(PATTERN);
    let condition = threshold.read("threshold", condition).required();
    let day = Duration::ZERO..=Duration::from_secs(24 * 3600);
    let begins = duration(day.clone()).about(
        "Only windows that begin, and people who join, so long after the start of the run count",
    );
    let from = threshold.read("from", begins).optional();
    // Both ways to write them: those of scenarios and those of k6.
    let fails = || boolean().about("End the run as soon as it fails");
    let delay = || duration(day.clone()).about("Not before so long after the first join");
    let aborts = threshold.read("abort_on_fail", fails()).optional();
    let aborts = aborts.or(threshold.read("abortOnFail", fails()).optional());
    let after = threshold.read("delay_abort_eval", delay()).optional();
    let after = after.or(threshold.read("delayAbortEval", delay()).optional());
    threshold.at_most_one(&["abort_on_fail", "abortOnFail"]);
    threshold.at_most_one(&["delay_abort_eval", "delayAbortEval"]);
    let abort = aborts.unwrap_or(false).then(|| after.unwrap_or_default());
    Some((condition?, from.unwrap_or_default(), abort))
}

/// How a threshold came out, as the summary shows it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ThresholdResult {
    /// Such as `loss_pct user_p95 < 1`.
    pub expr: String,
    /// Whether it holds. If nothing was measured it does not.
    pub ok: bool,
    /// What was compared; null if nobody could measure it.
    pub value: Option<f64>,
}

impl Threshold {
    /// Judges what a collector holds, whenever that was. A metric with no value fails: silence proves nothing.
    pub fn judge(&self, collector: &Collector) -> ThresholdResult {
        self.result(collector.reduce_one(self.metric))
    }

    fn result(&self, reduced: Option<Reduced>) -> ThresholdResult {
        let value = reduced.and_then(|reduced| reduced.get(self.condition.reduction));
        ThresholdResult {
            expr: self.to_string(),
            ok: value.is_some_and(|value| self.condition.allows(value)),
            value,
        }
    }
}

/// The moments from which on sockets are counted for these thresholds.
pub fn socket_moments<'a>(thresholds: impl IntoIterator<Item = &'a Threshold>) -> Vec<Duration> {
    let of_sockets = thresholds.into_iter().filter(|one| sockets::NAMES.contains(&one.metric));
    of_sockets.map(|one| one.from).collect::<BTreeSet<_>>().into_iter().collect()
}

impl std::fmt::Display for Threshold {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.metric, self.condition)?;
        match self.from.as_secs_f64() {
            0.0 => Ok(()),
            seconds => write!(f, " from {seconds} s on"),
        }
    }
}

/// What the thresholds of a run are judged by: samples and sockets, by the moment from which on they count.
#[derive(Debug, Default)]
pub struct Windows {
    samples: BTreeMap<Duration, Collector>,
    sockets: BTreeMap<Duration, SocketCounts>,
}

impl Windows {
    /// Collects only what these thresholds ask for: during a run that must cost little.
    pub fn new<'a>(thresholds: impl IntoIterator<Item = &'a Threshold>) -> Self {
        let mut names = BTreeMap::<Duration, Vec<&'static str>>::new();
        for threshold in thresholds {
            names.entry(threshold.from).or_default().push(threshold.metric);
        }
        let samples = names.into_iter().map(|(from, names)| (from, Collector::only(names)));
        Self { samples: samples.collect(), sockets: BTreeMap::new() }
    }

    /// Takes a sample of a person; samples of one person must come in order.
    pub fn add(&mut self, record: &SampleRecord) {
        let began = record.began();
        for (from, collector) in &mut self.samples {
            match began >= *from {
                true => collector.add(&record.person, &record.sample),
                false => collector.pass(&record.person),
            }
        }
    }

    /// Takes somebody's having been connected.
    pub fn join(&mut self, join: &Join) {
        let at = Duration::from_millis(join.t_ms);
        let counts = self.samples.iter_mut().filter(|(from, _)| at >= **from);
        counts.for_each(|(_, collector)| collector.join(join));
    }

    /// Takes what sockets came to by now, in place of what was told before.
    pub fn sockets(&mut self, counts: BTreeMap<Duration, SocketCounts>) {
        self.sockets = counts;
    }

    /// Judges what came so far.
    pub fn judge(&self, threshold: &Threshold) -> ThresholdResult {
        let Threshold { metric, from, .. } = threshold;
        if sockets::NAMES.contains(metric) {
            return threshold.result(self.sockets.get(from).and_then(|of| of.reduce(metric)));
        }
        let nothing = Collector::default();
        threshold.judge(self.samples.get(from).unwrap_or(&nothing))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::PersonKind;
    use crate::testing::audio_row;
    use wire::QualitySample;

    fn threshold(metric: &'static str, text: &str, from_s: u64) -> Threshold {
        let condition = Condition::parse(text).expect(text);
        Threshold { metric, condition, from: Duration::from_secs(from_s), abort: None }
    }

    /// A sample each second, from the first to the last one.
    fn samples(jitter_ms: &[f64]) -> Vec<SampleRecord> {
        let record = |(second, jitter_ms): (usize, &f64)| {
            let mut row = audio_row("p", "t", 100);
            row.jitter_ms = Some(*jitter_ms);
            let sample = QualitySample {
                interval_ms: 1000,
                received: vec![row],
                ..QualitySample::default()
            };
            SampleRecord {
                t_ms: 1000 * (second as u64 + 1),
                person: "a".into(),
                kind: PersonKind::Bot,
                sample,
            }
        };
        jitter_ms.iter().enumerate().map(record).collect()
    }

    #[test]
    fn reads_and_judges() {
        let samples = samples(&[99.0, 1.0, 1.0, 4.0]);
        for (text, ok) in [
            ("max < 4", false),
            ("p95<=4.0", true),
            ("max > 3", true),
            ("n >= 4", false),
            ("p50 == 1", true),
            ("p50 != 1", false),
        ] {
            let jitter = threshold("jitter_ms", text, 0);
            let rtt = threshold("rtt_ms", text, 0);
            let mut windows = Windows::new([&jitter, &rtt]);
            samples.iter().for_each(|record| windows.add(record));
            let result = windows.judge(&jitter);
            assert_eq!(result.ok, ok, "{text}");
            assert!(result.value.is_some());
            let nobody = windows.judge(&rtt);
            assert_eq!((nobody.ok, nobody.value), (false, None), "no sample fails: {text}");
        }
    }

    #[test]
    fn a_threshold_counts_windows_that_begin_from_its_moment_on() {
        let thresholds = [0, 2, 3, 9].map(|from_s| threshold("jitter_ms", "max < 5", from_s));
        let mut windows = Windows::new(&thresholds);
        samples(&[99.0, 9.0, 7.0, 4.0, 2.0]).iter().for_each(|record| windows.add(record));
        let values = thresholds.each_ref().map(|one| windows.judge(one).value);
        assert_eq!(values, [Some(9.0), Some(7.0), Some(4.0), None]);
        let words = thresholds.map(|one| one.to_string());
        assert_eq!(words[0], "jitter_ms max < 5");
        assert_eq!(words[1], "jitter_ms max < 5 from 2 s on");
    }

    #[test]
    fn a_threshold_may_end_the_run_in_k6s_words_too() {
        let read = |text: &str| {
            settings::read(&format!("t: {text}"), "x", |root| root.read("t", shape()).required())
                .map_err(|problems| problems.to_string())
        };
        let condition = Condition::parse("user_p95 < 1").expect("a condition");
        for (text, from, abort) in [
            ("\"user_p95 < 1\"", 0, None),
            ("{ threshold: \"user_p95 < 1\" }", 0, None),
            ("{ threshold: \"user_p95 < 1\", from: 10s }", 10, None),
            (
                "{ threshold: \"user_p95 < 1\", abort_on_fail: false, delay_abort_eval: 10s }",
                0,
                None,
            ),
            ("{ threshold: \"user_p95 < 1\", abort_on_fail: true }", 0, Some(0)),
            (
                "{ threshold: \"user_p95 < 1\", abortOnFail: true, delayAbortEval: 10s }",
                0,
                Some(10),
            ),
        ] {
            let abort = abort.map(Duration::from_secs);
            let expected = (condition.clone(), Duration::from_secs(from), abort);
            assert_eq!(read(text), Ok(expected), "{text}");
        }
        for (text, told) in [
            ("{ abort_on_fail: true }", "threshold: the key is missing"),
            ("{ threshold: \"p90 < 1\" }", "no known reduction"),
            ("{ threshold: \"max < 1\", abortOnFail: true, abort_on_fail: true }", "both abort"),
            ("{ threshold: \"max < 1\", abort_on_fial: true }", "did you mean \"abort_on_fail\""),
        ] {
            let problems = read(text).expect_err(text);
            assert!(problems.contains(told), "{problems}");
        }
    }

    #[test]
    fn sockets_pass_and_fail_by_what_was_counted_from_their_moment_on() {
        use hdrhistogram::Histogram;
        let counts = |ms: u64, answered_pct: f64, lost: u64| {
            let mut us = Histogram::new_with_max(60_000_000, 3).expect("bounds");
            us.record(ms * 1000).expect("within the bounds");
            SocketCounts {
                pong_us: us.clone(),
                connect_us: us,
                pong_of_each_ms: vec![ms as f64],
                answered_of_each_pct: vec![100.0, answered_pct],
                tried: 2,
                lost,
            }
        };
        for (metric, text, from_s, ok) in [
            ("pong_ms", "p99 < 10", 0, false),
            ("pong_ms", "p99 < 10", 5, true),
            ("connect_ms", "max <= 100", 0, true),
            ("answered_pct", "user_p5 >= 99", 0, false),
            ("answered_pct", "user_p5 >= 99", 5, true),
            ("lost", "max == 0", 0, false),
            ("lost", "max == 0", 5, true),
            ("lost", "n == 2", 5, true),
        ] {
            let one = threshold(metric, text, from_s);
            assert_eq!(socket_moments([&one]), [Duration::from_secs(from_s)]);
            let mut windows = Windows::new([&one]);
            let before = windows.judge(&one);
            assert_eq!((before.ok, before.value), (false, None), "nothing was counted yet");
            let (early, late) = (counts(90, 50.0, 1), counts(5, 100.0, 0));
            let of = [(Duration::ZERO, early), (Duration::from_secs(5), late)];
            windows.sockets(of.into());
            let result = windows.judge(&one);
            assert_eq!(result.ok, ok, "{result:?}");
            assert!(result.value.is_some(), "{result:?}");
        }
        assert!(socket_moments([&threshold("loss_pct", "max < 1", 0)]).is_empty());
    }

    #[test]
    fn tells_what_is_wrong() {
        for (text, part) in [
            ("", "compares nothing"),
            ("user_p95 1", "compares nothing"),
            ("user_p90 < 1", "\"user_p90\" is no known reduction"),
            ("p95 < one", "\"one\" is no number"),
            ("p95 = 1", "no comparison that is known"),
            ("p95 < NaN", "no number"),
        ] {
            let error = Condition::parse(text).expect_err(text);
            assert!(error.contains(part), "{error}");
        }
    }
}
