//! A participant's packets come from another address than before. A NAT gives another port, and the participant does not know:
//! they nominate nothing. Media follows once the address has answered a challenge ([`super::challenges`]).
//!
//! Three things say that a participant may have moved.
//! - They nominated the address. The ICE agent tells it.
//! - A packet came that their keys open, or a check from their IP address with the priority of the pair in use.
//! - Any authentic check came, and the address in use was silent for 6 s.

use super::challenges::{Came, Reason};
use super::datagram::Datagram;
use super::model::Model;
use super::stats::Stats;
use super::transports::Transports;
use crate::command::PersonKey;
use crate::limits::{PATH_QUIET, PATH_SILENT, STRANGER_TRIES};
use rtp::TransportAddress;
use rtp::stun;
use std::time::Instant;

/// An authentic check came.
pub(super) fn checked(
    model: &mut Model,
    transports: &mut Transports,
    now: Instant,
    key: PersonKey,
    datagram: &Datagram<'_>,
) {
    let source = datagram.source;
    let Some(secure) = model.person(key).and_then(|person| person.secure.as_mut()) else { return };
    if source == secure.remote {
        secure.heard_at = now;
    }
    if source.is_tcp() {
        return;
    }
    let same_pair = || {
        source.socket.ip() == secure.remote.socket.ip()
            && !secure.remote.is_tcp()
            && stun::priority(datagram.data) == transports.priority(secure.remote)
    };
    let reason = if secure.nominated == Some(source) {
        Reason::Nominated
    } else if source == secure.remote {
        return;
    } else if secure.is_silent(now, PATH_QUIET) && same_pair() {
        Reason::Moved
    } else if secure.is_silent(now, PATH_SILENT) {
        Reason::Silent
    } else {
        return;
    };
    transports.challenge((key, source), reason, Came::Check(datagram.data.len()), now);
}

/// The participant nominated an address, or uses it already.
pub(super) fn nominated(
    model: &mut Model,
    transports: &mut Transports,
    now: Instant,
    (key, remote): (PersonKey, TransportAddress),
) -> Option<()> {
    let secure = model.person(key)?.secure.as_mut()?;
    if secure.remote == remote || remote.is_tcp() {
        secure.nominated = None;
        return model.move_person(key, remote, now);
    }
    secure.nominated = Some(remote);
    transports.challenge_checked((key, remote), now);
    Some(())
}

/// Somebody answered a challenge: media goes there from now on. Returns who.
pub(super) fn answered(
    model: &mut Model,
    transports: &mut Transports,
    stats: &mut Stats,
    now: Instant,
    datagram: &Datagram<'_>,
) -> Option<PersonKey> {
    let (key, reason) = transports.answered(datagram)?;
    let secure = model.person(key)?.secure.as_mut()?;
    let from = secure.remote;
    if reason == Reason::Silent && !secure.is_silent(now, PATH_SILENT) {
        return None;
    }
    secure.heard_at = now;
    secure.nominated.take_if(|nominated| *nominated == datagram.source);
    if from == datagram.source {
        model.reached(key)?;
    } else {
        model.move_person(key, datagram.source, now)?;
        stats.moved += 1;
    }
    Some(key)
}

/// An SRTP or SRTCP packet came from an address of nobody. If it is a participant's who fell silent, returns where they were:
/// what their keys open is theirs, wherever it comes from. Few participants are tried, those first who use its SSRC.
pub(super) fn stranger(
    model: &mut Model,
    transports: &mut Transports,
    stats: &mut Stats,
    now: Instant,
    (datagram, plain): (&Datagram<'_>, &mut [u8]),
) -> Option<TransportAddress> {
    let source = datagram.source;
    if source.is_tcp() {
        return None;
    }
    if let Some(key) = transports.challenged(source) {
        transports.came(source, Came::Media(datagram.data.len()));
        return Some(model.person(key)?.secure.as_ref()?.remote);
    }
    let owner = transports.owner(source).and_then(|key| model.person_by_key.get(&key).copied());
    let Model { people, nearby, .. } = model;
    let silent = |index: usize| {
        let secure = people[index].as_ref()?.secure.as_ref()?;
        let silent = !secure.remote.is_tcp() && secure.is_silent(now, PATH_QUIET);
        silent.then_some(&secure.opener)
    };
    let mut opens = |index: usize| {
        stats.strangers_tried += 1;
        silent(index).is_some_and(|opener| opener.authenticates(datagram.data, plain))
    };
    let index = owner.filter(|owner| opens(*owner)).or_else(|| {
        let ip = source.socket.ip();
        // Before anybody is looked for: many may be there.
        if !nearby.may_try(ip, now) {
            return None;
        }
        let there: Vec<_> = nearby.people(ip).filter_map(|at| Some((at, silent(at)?))).collect();
        let (known, others): (Vec<_>, Vec<_>) =
            there.into_iter().partition(|(_, opener)| opener.knows_source(datagram.data));
        let mut tried = known.into_iter().chain(others).take(STRANGER_TRIES).enumerate();
        tried.find_map(|(nth, (index, _))| {
            let may = nth == 0 || nearby.may_try(ip, now);
            (may && opens(index)).then_some(index)
        })
    })?;
    let person = people[index].as_ref()?;
    let remote = person.secure.as_ref()?.remote;
    let came = Came::Media(datagram.data.len());
    transports.challenge((person.key, source), Reason::Moved, came, now);
    Some(remote)
}
