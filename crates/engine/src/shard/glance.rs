//! Of a packet of sound that nobody will hear, only the header is read. In a mixed room only the loudest are heard, and levels travel
//! in the clear (RFC 6464). The mixer tells the bar that a level must reach ([`Bar`]) and who is heard. A packet below the
//! bar, of somebody who is not heard, stays closed: what reports and feedback need of it stands in its header.
//!
//! Nothing in such a packet is authenticated, so what it can change is bounded. It must lie at most [`AHEAD`] numbers
//! after the newest packet of its stream that was opened. Each number counts once until the next packet is opened. So one
//! packet of sixteen is opened at least. The first packet is opened after silence, after a change of address and after a
//! rollover. A closed packet changes only reports and feedback to its sender. A packet with the same number that is opened
//! later counts again, and goes on. Replay windows, rollover counters, who speaks and who is connected follow opened
//! packets alone.
//!
//! Whoever can send from a participant's address, or change their packets on the way, can
//! - make reports and feedback to the participant wrong, by at most 15 packets for each that is opened: the loss of quiet
//!   packets can be hidden, and up to 16 packets can be said to come when they did not, or to be missing until they come,
//! - make a loud packet look quiet, if they can change it: that does what discarding it does.
//!
//! They cannot be heard, keep what the participant says from being heard by sending alone, make them count as speaking or
//! as connected, or end their stream. A packet that claims to be loud is opened, and discarded if its tag does not fit. A participant who claims too much is found out by the mixer
//! ([`crate::mix`]); one who claims too little is not heard.

use super::bar::{AHEAD, Told};
use super::datagram::Datagram;
use super::model::Model;
use super::person::Source;
use super::turn::Turn;
use crate::mix::Bar;
use crate::sink::Sink;
use rtp::RtpHeader;
use rtp::header::{self, AudioLevel};
use rtp::negotiated::Extensions;
use std::time::Instant;

/// The mixer told who is heard in a room, and how loud others must be.
pub(super) fn told(model: &mut Model, bar: &Bar, at: Instant) {
    for heard in bar.heard.iter().flatten() {
        if let Some(track) = model.track(heard.stream()) {
            track.glances.open_for(at);
        }
    }
    if let Some(mix) = model.mixes.get_mut(&bar.room) {
        mix.told = Told::new(at, bar.dbov);
    }
}

/// What the header of a quiet packet tells.
struct Quiet {
    level_dbov: u8,
    transport_sequence: Option<u16>,
}

impl Quiet {
    fn of(ids: &Extensions, packet: &[u8], header: &RtpHeader) -> Option<Self> {
        let (mut level, mut transport_sequence) = (None, None);
        for (id, value) in header.extensions(packet) {
            if Some(id) == ids.audio_level {
                level = AudioLevel::parse(value);
            } else if Some(id) == ids.transport_sequence {
                transport_sequence = header::transport_sequence(value);
            }
        }
        Some(Self { level_dbov: level?.level_dbov, transport_sequence })
    }
}

/// Takes note of an SRTP datagram that can stay closed. None if it has to be opened.
#[inline]
pub(super) fn glance<S: Sink>(
    model: &mut Model,
    turn: &mut Turn<'_, S>,
    datagram: &Datagram<'_>,
) -> Option<()> {
    if model.mixes.is_empty() {
        return None;
    }
    let Model { people, tracks, person_by_address, mixes, .. } = model;
    let (data, at) = (datagram.data, datagram.arrival);
    let person = people[*person_by_address.get(&datagram.source)?].as_mut()?;
    let mix = mixes.get(&person.room)?;
    let header = RtpHeader::parse(data).ok().filter(|header| !header.padding)?;
    let Source::Media(track) = person.source(header.ssrc)? else { return None };
    let track = tracks[track].as_mut().filter(|track| track.mixed && !track.silenced)?;
    let line = &track.encoding.line;
    let quiet = Quiet::of(&line.extensions, data, &header)?;
    let closed = quiet.level_dbov > mix.told.bar_dbov(at) && !track.glances.is_open(at);
    if !closed || line.nack || !track.glances.may_close(at) {
        return None;
    }
    let transport = quiet.transport_sequence.filter(|_| line.transport_cc);
    if transport.is_some_and(|sequence| !person.arrivals.is_near(sequence)) {
        return None;
    }
    let (seen, opened) = person.secure.as_ref()?.opener.look_at_rtp(data, header, AHEAD)?;
    if !track.glances.note(opened, seen.index) {
        return None;
    }
    let payload_len = seen.len - header.header_len;
    let receive = &mut track.encoding.reception.as_mut()?.receive;
    receive.push(header.sequence, header.timestamp, payload_len, at);
    if let Some(sequence) = transport {
        person.arrivals.record(sequence, at);
    }
    turn.stats.glanced += 1;
    Some(())
}
