//! What a turn of the media thread works with, beside people and tracks.

use super::index::PersonIndex;
use super::person::Person;
use super::shortage::Shortage;
use super::stats::Stats;
use crate::clock::Now;
use crate::command::Report;
use crate::drops::OutDrop;
use crate::sink::{Priority, Sink};

/// One turn: a batch of datagrams, a packet of another shard or of the mixer, or periodic work.
pub(super) struct Turn<'a, S> {
    pub now: Now,
    pub sink: &'a mut S,
    pub stats: &'a mut Stats,
    pub reports: &'a mut Vec<Report>,
    pub shortage: &'a Shortage,
}

impl<S: Sink> Turn<'_, S> {
    /// Why packets must not go to a slot of a participant at the moment; None if they may.
    #[inline]
    pub(super) fn held(&self, person: &Person, index: PersonIndex, slot: usize) -> Option<OutDrop> {
        let slot = &person.slots[slot];
        let priority = slot.priority();
        let secure = person.secure.as_ref()?;
        if secure.lost {
            return Some(OutDrop::NoConsent);
        }
        if priority == Priority::Low && self.shortage.holds(index) {
            return Some(OutDrop::CpuShort);
        }
        if slot.rests() {
            return Some(OutDrop::Bandwidth);
        }
        if slot.is_hidden() {
            return Some(OutDrop::Hidden);
        }
        let tcp = secure.remote.is_tcp();
        let behind = !self.sink.has_room(secure.remote, priority);
        behind.then_some(if tcp { OutDrop::ConnectionBehind } else { OutDrop::SendBufferFull })
    }

    /// A copy was discarded.
    pub(super) fn drop_copy(&mut self, reason: OutDrop) {
        self.stats.copies += 1;
        self.stats.out_drops.add(reason);
    }

    /// Seals a compound of control packets into the send buffer. Counts it as sent or not sent.
    pub(super) fn send_rtcp(&mut self, person: &mut Person, compound: &[u8]) {
        match self.try_send_rtcp(person, compound) {
            Some(()) => self.stats.rtcp_out += 1,
            None => self.stats.rtcp_not_sent += 1,
        }
    }

    fn try_send_rtcp(&mut self, person: &mut Person, compound: &[u8]) -> Option<()> {
        let secure = person.secure.as_mut()?;
        let buffer = self.sink.slot(secure.remote, Priority::High)?;
        buffer.get_mut(..compound.len())?.copy_from_slice(compound);
        let len = secure.sealer.seal_rtcp(buffer, compound.len()).ok()?;
        self.sink.commit(len);
        Some(())
    }
}
