//! What a side of a session does not have, as some browsers do not.

/// What a side neither offers nor accepts; by default it lacks nothing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Lacks {
    /// Transport-wide feedback on sound (Firefox 116).
    pub feedback_on_sound: bool,
    /// Transport-wide feedback on anything.
    pub feedback: bool,
    /// The level of sound in headers (RFC 6464).
    pub levels: bool,
    /// Retransmissions as a stream of their own (RFC 4588).
    pub rtx: bool,
    /// Redundancy of sound (RED, RFC 2198).
    pub red: bool,
    /// RTCP in reduced size (RFC 5506).
    pub reduced_size: bool,
}

impl Lacks {
    /// What either of both lacks.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            feedback_on_sound: self.feedback_on_sound || other.feedback_on_sound,
            feedback: self.feedback || other.feedback,
            levels: self.levels || other.levels,
            rtx: self.rtx || other.rtx,
            red: self.red || other.red,
            reduced_size: self.reduced_size || other.reduced_size,
        }
    }

    /// Whether transport-wide feedback is lacking on pictures, or on sound.
    pub(crate) fn no_feedback_on(self, video: bool) -> bool {
        self.feedback || (!video && self.feedback_on_sound)
    }
}
