//! Two sides beside each other, metric by metric.

use super::difference::{Difference, Is};
use super::group::Group;
use super::metric::Metric;

/// A metric of the first side and another one; none: one of them did not measure it.
pub(super) type Compared = (Metric, Option<Difference>);

/// Two sides.
pub(super) struct Pair {
    pub(super) first: String,
    pub(super) second: String,
    pub(super) metrics: Vec<Compared>,
}

impl Pair {
    /// `margin`: a smaller difference is none, as a share.
    pub(super) fn of(first: &Group, second: &Group, margin: f64) -> Self {
        let compare = |metric: Metric| {
            let (a, b) = (first.figures(metric.name), second.figures(metric.name));
            let any = !a.is_empty() || !b.is_empty();
            any.then(|| (metric, Difference::of(&metric, &a, &b, margin)))
        };
        Self {
            first: first.name.clone(),
            second: second.name.clone(),
            metrics: Metric::all().into_iter().filter_map(compare).collect(),
        }
    }

    /// The metrics of which the second is this.
    pub(super) fn are(&self, is: Is) -> impl Iterator<Item = (&Metric, &Difference)> {
        let all = self.metrics.iter();
        let found = all.filter_map(|(metric, found)| Some((metric, found.as_ref()?)));
        found.filter(move |(_, found)| found.is == is)
    }

    /// What was found, in a sentence or two.
    pub(super) fn sentence(&self, margin_pct: f64) -> String {
        let Self { first, second, .. } = self;
        if self.are(Is::Unknown).next().is_some() {
            return format!(
                "Whether {second} differs from {first} is not known: a side has a single run, which says nothing of how much \
                 runs differ by themselves. Record each three times or more."
            );
        }
        let told = |is: Is| {
            let one = |(metric, found): (&Metric, &Difference)| {
                let (low, high) = found.between.unwrap_or((found.change, found.change));
                format!(
                    "{} {:+.1} % ({:+.1} to {:+.1})",
                    metric.title(),
                    100.0 * found.change,
                    100.0 * low,
                    100.0 * high
                )
            };
            self.are(is).map(one).collect::<Vec<String>>()
        };
        let (worse, better) = (told(Is::Worse), told(Is::Better));
        let mut text = match (worse.is_empty(), better.is_empty()) {
            (false, _) => format!("{second} is worse than {first}: {}.", worse.join("; ")),
            (true, false) => format!("{second} is better than {first}: {}.", better.join("; ")),
            (true, true) => {
                let same = self.are(Is::Same).count();
                format!(
                    "No difference of over {margin_pct} % was found between {first} and {second} ({same} \
                     metrics surely differ by less)."
                )
            }
        };
        if !worse.is_empty() && !better.is_empty() {
            text += &format!(" It is better in {}.", better.join("; "));
        }
        let differs = told(Is::Differs);
        if !differs.is_empty() {
            text += &format!(" It differs in {}, which is neither.", differs.join("; "));
        }
        let unclear = self.are(Is::Unclear).count();
        if unclear > 0 {
            text += &format!(" {unclear} are not clear: more repeats would tell.");
        }
        text
    }
}
