//! What listeners heard of a room's mix, judged by the plan of tones.

/// Wrong windows kept as examples.
pub const MAX_EXAMPLES: usize = 8;

/// What a listener heard of the mix.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MixWindows {
    /// Windows that were judged.
    pub windows: u64,
    /// Windows of these that were wrong.
    pub wrong: u64,
    /// Windows left out, since too many packets were missing.
    pub void: u64,
    /// The first wrong ones.
    pub examples: Vec<Wrong>,
}

impl MixWindows {
    /// Adds what was heard later.
    pub fn absorb(&mut self, later: Self) {
        self.windows += later.windows;
        self.wrong += later.wrong;
        self.void += later.void;
        let room = MAX_EXAMPLES.saturating_sub(self.examples.len());
        self.examples.extend(later.examples.into_iter().take(room));
    }
}

/// A window that does not hold what the plan says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wrong {
    /// When the window began, in milliseconds on the plan's clock.
    pub at_ms: u64,
    /// Who should be heard and is not.
    pub missing: Vec<String>,
    /// Who is heard and should not be.
    pub extra: Vec<String>,
}
