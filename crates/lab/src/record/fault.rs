//! A fault of the lab's own, on purpose: whether its checks of itself bite is seen in a real run.

use serde::{Deserialize, Serialize};
use std::str::FromStr;

/// What `moim load --fault` breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fault {
    /// Bots count no freezes (`freeze_counter`).
    FreezeCounter,
}

impl FromStr for Fault {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "freeze_counter" => Ok(Self::FreezeCounter),
            _ => Err("the lab knows one fault: freeze_counter (bots count no freezes)".into()),
        }
    }
}
