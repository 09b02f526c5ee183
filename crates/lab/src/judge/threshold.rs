//! Thresholds: `user_p95 < 1` over the metrics of [`crate::observe::metrics`].

use crate::observe::metrics::{Collector, REDUCTIONS, Reduced};
use serde::{Deserialize, Serialize};
use settings::{Section, Shape, boolean, duration, either, parsed, section};
use std::collections::BTreeMap;
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
}

/// A threshold: a condition on a metric.
#[derive(Debug, Clone, PartialEq)]
pub struct Threshold {
    /// The metric, one of [`crate::observe::metrics::NAMES`].
    pub metric: &'static str,
    /// What must hold.
    pub condition: Condition,
    /// Set if the run ends as soon as it does not hold; never before so long after the first join.
    pub abort: Option<Duration>,
}

/// A threshold's right side in a scenario: `"user_p95 < 1"`, or a mapping that also says whether the
/// run ends if it fails, in k6's words.
pub(crate) fn shape() -> impl Shape<Value = (Condition, Option<Duration>)> {
    let plain = parsed(Condition::EXPECTED, |text| Condition::parse(text).map(|c| (c, None)));
    either(plain.pattern(PATTERN), section(decode))
}

/// What a condition looks like.
const PATTERN: &str =
    r"^\s*(p50|p95|p99|max|user_p1|user_p5|user_p95|n)\s*(<=|>=|==|!=|<|>)\s*[-+0-9.eE]+\s*$";

fn decode(threshold: &mut Section<'_>) -> Option<(Condition, Option<Duration>)> {
    let condition = parsed(Condition::EXPECTED, Condition::parse).pattern(PATTERN);
    let condition = threshold.read("threshold", condition).required();
    let day = Duration::ZERO..=Duration::from_secs(24 * 3600);
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
    Some((condition?, abort))
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
    /// Judges the reduced metrics. A metric with no value fails: silence proves nothing.
    pub fn judge(&self, metrics: &BTreeMap<String, Option<Reduced>>) -> ThresholdResult {
        self.result(metrics.get(self.metric).and_then(Option::as_ref))
    }

    /// Judges what was collected so far. Only this metric is reduced.
    pub fn judge_so_far(&self, collector: &Collector) -> ThresholdResult {
        self.result(collector.reduce_one(self.metric).as_ref())
    }

    fn result(&self, reduced: Option<&Reduced>) -> ThresholdResult {
        let value = reduced.and_then(|reduced| reduced.get(self.condition.reduction));
        ThresholdResult {
            expr: format!("{} {}", self.metric, self.condition.text),
            ok: value.is_some_and(|v| self.condition.comparison.holds(v, self.condition.limit)),
            value,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_and_judges() {
        let reduced = Reduced {
            p50: 1.0,
            p95: 2.0,
            p99: 3.0,
            max: 4.0,
            user_p1: 0.1,
            user_p5: 0.5,
            user_p95: 1.0,
            n: 9,
            model: None,
            delay: None,
        };
        let metrics =
            BTreeMap::from([("loss_pct".to_owned(), Some(reduced)), ("rtt_ms".to_owned(), None)]);
        for (text, ok) in [
            ("user_p95 < 1", false),
            ("user_p95<=1.0", true),
            ("max > 3", true),
            ("n >= 10", false),
            ("p50 == 1", true),
            ("p50 != 1", false),
        ] {
            let condition = Condition::parse(text).expect(text);
            let result =
                Threshold { metric: "loss_pct", condition: condition.clone(), abort: None }
                    .judge(&metrics);
            assert_eq!(result.ok, ok, "{text}");
            assert!(result.value.is_some());
            let nobody = Threshold { metric: "rtt_ms", condition, abort: None }.judge(&metrics);
            assert_eq!((nobody.ok, nobody.value), (false, None), "no sample fails: {text}");
        }
    }

    #[test]
    fn a_threshold_may_end_the_run_in_k6s_words_too() {
        let read = |text: &str| {
            settings::read(&format!("t: {text}"), "x", |root| root.read("t", shape()).required())
                .map_err(|problems| problems.to_string())
        };
        let condition = Condition::parse("user_p95 < 1").expect("a condition");
        for (text, abort) in [
            ("\"user_p95 < 1\"", None),
            ("{ threshold: \"user_p95 < 1\" }", None),
            ("{ threshold: \"user_p95 < 1\", abort_on_fail: false, delay_abort_eval: 10s }", None),
            ("{ threshold: \"user_p95 < 1\", abort_on_fail: true }", Some(0)),
            ("{ threshold: \"user_p95 < 1\", abortOnFail: true, delayAbortEval: 10s }", Some(10)),
        ] {
            assert_eq!(
                read(text),
                Ok((condition.clone(), abort.map(Duration::from_secs))),
                "{text}"
            );
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
