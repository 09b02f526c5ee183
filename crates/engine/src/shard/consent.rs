//! Answers connectivity checks on the pair in use, so that no second thread has to wake up for each of them. The ICE
//! agent sees one often enough to know that the participant is there.

use super::datagram::Datagram;
use crate::limits::CHECK_INTERVAL;
use rtp::stun::Responder;
use std::time::Instant;

/// The checks of one participant.
pub(super) struct Checks {
    responder: Responder,
    /// When one went up to the agent last.
    told_at: Option<Instant>,
}

impl Checks {
    /// Checks with new credentials: they come with each ICE restart, and the first check goes up.
    pub(super) fn new(responder: Responder) -> Self {
        Self { responder, told_at: None }
    }

    /// Writes the answer to an authentic check into `answer` and returns its length. None if the check is for the agent:
    /// it is not authentic, or may change something, or the agent has not seen one for [`CHECK_INTERVAL`].
    pub(super) fn answer(
        &mut self,
        now: Instant,
        datagram: &Datagram<'_>,
        answer: &mut [u8],
    ) -> Option<usize> {
        let len = self.responder.answer(datagram.data, datagram.source, answer)?;
        let recently = |told: Instant| now.saturating_duration_since(told) < CHECK_INTERVAL;
        if !self.told_at.is_some_and(recently) {
            // Only an authentic check counts here: a forged one must not keep the agent from hearing the others.
            self.told_at = Some(now);
            return None;
        }
        Some(len)
    }
}
