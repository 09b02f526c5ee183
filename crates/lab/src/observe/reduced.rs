//! A metric's reductions.

use serde::{Deserialize, Serialize};

/// Names of the reductions of a metric.
pub const REDUCTIONS: [&str; 8] =
    ["p50", "p95", "p99", "max", "user_p1", "user_p5", "user_p95", "n"];

/// A metric's reductions.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Reduced {
    /// Median of all values.
    pub p50: f64,
    /// 95th percentile of all values.
    pub p95: f64,
    /// 99th percentile of all values.
    pub p99: f64,
    /// Largest value.
    pub max: f64,
    /// 1st percentile over people.
    pub user_p1: f64,
    /// 5th percentile over people.
    pub user_p5: f64,
    /// 95th percentile over people.
    pub user_p95: f64,
    /// How many values.
    pub n: u64,
    /// The model of a score (MOS only).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Whether the delay in a score was `measured` or `estimated` (MOS-CQ only).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay: Option<String>,
}

impl Reduced {
    /// The reduction of this name, one of [`REDUCTIONS`].
    pub fn get(&self, reduction: &str) -> Option<f64> {
        Some(match reduction {
            "p50" => self.p50,
            "p95" => self.p95,
            "p99" => self.p99,
            "max" => self.max,
            "user_p1" => self.user_p1,
            "user_p5" => self.user_p5,
            "user_p95" => self.user_p95,
            "n" => self.n as f64,
            _ => return None,
        })
    }
}
