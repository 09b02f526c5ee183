//! A word for how good a run, or a window of it, was.

use serde::{Deserialize, Serialize};

/// How good a run was, in the words of study A ([`Quality::MEANING`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Quality {
    /// Recommended.
    Stable,
    /// Between the two.
    Caution,
    /// Not to be used so.
    Danger,
}

impl Quality {
    /// What the words mean.
    pub const MEANING: &'static str = "stable where loss stays under 1 % for 95 % of people and the server under 50 % of its \
         CPUs, danger where loss is over 5 %, the server over 90 %, or a subscription was dead for a \
         window, caution between";
    /// Loss over this, in percent, is dangerous.
    pub(crate) const DANGEROUS_LOSS_PCT: f64 = 5.0;
    /// All, from good to bad.
    pub const ALL: [Self; 3] = [Self::Stable, Self::Caution, Self::Danger];

    /// By loss (95th percentile over people) and the share that the server used of its CPUs, both
    /// in percent. None if what is known does not tell.
    pub(crate) fn of(loss_pct: Option<f64>, server_cpu_pct: Option<f64>) -> Option<Self> {
        if loss_pct.is_some_and(|loss| loss > Self::DANGEROUS_LOSS_PCT)
            || server_cpu_pct.is_some_and(|cpu| cpu > 90.0)
        {
            return Some(Self::Danger);
        }
        match (loss_pct?, server_cpu_pct?) {
            (loss, cpu) if loss < 1.0 && cpu < 50.0 => Some(Self::Stable),
            _ => Some(Self::Caution),
        }
    }

    /// The word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Stable => "stable",
            Self::Caution => "caution",
            Self::Danger => "danger",
        }
    }
}
