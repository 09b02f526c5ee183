//! Where a server takes and gives streams.

/// What stands in a path for the name of a stream.
pub const NAME: &str = "{stream}";

/// Where a server takes and gives streams.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Paths {
    /// Where a stream is sent, by WHIP.
    pub publish: String,
    /// Where it is asked for, by WHEP.
    pub play: String,
}

impl Default for Paths {
    /// As MediaMTX has them.
    fn default() -> Self {
        Self { publish: format!("/{NAME}/whip"), play: format!("/{NAME}/whep") }
    }
}
