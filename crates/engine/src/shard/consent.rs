//! Connectivity checks on the pair in use: answered on the way of the packets, where no second thread
//! has to wake up for each; the ICE agent sees one often enough to know that the person is there.

use super::{Inbound, Shard};
use crate::command::PersonKey;
use crate::limits::CHECK_INTERVAL;
use crate::sink::{Now, Priority, Sink};
use rtp::stun::Responder;
use std::time::Instant;

/// Of one person.
pub(crate) struct Checks {
    responder: Responder,
    /// When one went up to the agent last.
    told_at: Option<Instant>,
}

impl Shard {
    /// New credentials come with each ICE restart; the first check with them goes up.
    pub(super) fn credentials(&mut self, person: PersonKey, responder: Responder) -> Option<()> {
        let index = *self.person_by_key.get(&person)?;
        let secure = self.people[index].as_mut()?.secure.as_mut()?;
        secure.checks = Some(Checks { responder, told_at: None });
        Some(())
    }

    /// Answers a check that changes nothing; says whether it did. From another address it may be a
    /// nomination, and of someone taken for gone it is his return: both are the agent's.
    pub(super) fn answer_check(
        &mut self,
        now: Now,
        datagram: &Inbound<'_>,
        sink: &mut impl Sink,
    ) -> bool {
        let answered = self.try_answer(now, datagram, sink).is_some();
        self.stats.checks += u64::from(answered);
        answered
    }

    fn try_answer(&mut self, now: Now, datagram: &Inbound<'_>, sink: &mut impl Sink) -> Option<()> {
        let index = *self.person_by_address.get(&datagram.source)?;
        let secure = self.people[index].as_mut()?.secure.as_mut()?;
        let checks = secure.checks.as_mut().filter(|_| secure.begun && !secure.lost)?;
        let slot = sink.slot(datagram.source, Priority::High)?;
        let len = checks.responder.answer(datagram.data, datagram.source, slot)?;
        let recently = |told: Instant| now.at.saturating_duration_since(told) < CHECK_INTERVAL;
        if !checks.told_at.is_some_and(recently) {
            // Of an authentic one only: who forges must not keep the agent from hearing the others.
            checks.told_at = Some(now.at);
            return None;
        }
        sink.commit(len);
        self.transports.seen(datagram.source, now.at);
        Some(())
    }
}
