//! A fault of the lab's own, on purpose: whether its checks of itself bite is seen in a real run.

use serde::{Deserialize, Serialize};
use std::str::FromStr;

/// What `moim load --fault` breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fault {
    /// Bots count no freezes (`freeze_counter`).
    FreezeCounter,
    /// The threads of the lab's tasks have no time left (`busy_thread=lab`).
    BusyLab,
    /// The first thread of bots has no time left (`busy_thread=bots`).
    BusyBots,
}

impl FromStr for Fault {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "freeze_counter" => Ok(Self::FreezeCounter),
            "busy_thread=lab" => Ok(Self::BusyLab),
            "busy_thread=bots" => Ok(Self::BusyBots),
            _ => Err("the lab knows these faults: freeze_counter (bots count no freezes), \
                 busy_thread=lab (its threads have no time left) and busy_thread=bots (the first thread of bots has none)"
                .into()),
        }
    }
}
