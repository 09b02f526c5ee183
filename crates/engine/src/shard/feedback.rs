//! Control packets that go out: what publishers are asked for, reports both ways, transport-wide feedback.

use super::bursts::begin_with_kept;
use super::fit::fit;
use super::index::{PersonIndex, TrackIndex};
use super::keyframe::Waits;
use super::model::Model;
use super::person::Person;
use super::relay::relay_missed;
use super::slot::Slot;
use super::track::{Origin, Track};
use super::turn::Turn;
use crate::clock::Now;
use crate::egress::round_trip;
use crate::limits::MAX_PACKET;
use crate::relay::RelayControl;
use crate::sink::Sink;
use rtp::report::Ntp;
use rtp::rtcp::{self, SenderInfo};
use std::time::Instant;

/// The SSRC that our control packets come from; media has others.
const CONTROL_SSRC: u32 = 1;
/// Control packets are cut into datagrams of about this many bytes.
const COMPOUND_BYTES: usize = 1100;
/// The canonical name in our source descriptions.
const CNAME: &str = "moim";

/// Memory for control packets, made once.
#[derive(Default)]
pub(super) struct Scratch {
    pub plain: Vec<u8>,
    rtcp: Vec<u8>,
    sequences: Vec<u16>,
}

impl Scratch {
    /// Room for a packet in plaintext.
    pub(super) fn plain(&mut self) -> &mut [u8] {
        self.plain.resize(MAX_PACKET, 0);
        &mut self.plain
    }
}

/// Asks publishers for keyframes and for packets that are missing. Says whether there is more to ask for soon.
pub(super) fn ask_publishers<S: Sink>(
    model: &mut Model,
    turn: &mut Turn<'_, S>,
    scratch: &mut Scratch,
) -> bool {
    let mut more = false;
    for at in 0..model.pictures.len() {
        more |= ask_publisher(model, turn, model.pictures[at], scratch);
    }
    more
}

/// The same for one track of pictures.
pub(super) fn ask_publisher<S: Sink>(
    model: &mut Model,
    turn: &mut Turn<'_, S>,
    index: TrackIndex,
    scratch: &mut Scratch,
) -> bool {
    let Some(track) = model.tracks[index].as_mut() else { return false };
    // No keyframe is asked for if the track is muted: its slots wait until a moderator releases it. None is asked for a
    // subscriber who cannot receive pictures at the moment.
    let mut waits = Waits::Nobody;
    if !track.silenced && track.encoding.keyframe.looks(turn.now.at) {
        waits = begin_with_kept(model, turn, index);
    }
    let Some(track) = model.tracks[index].as_mut() else { return false };
    if !track.silenced {
        track.encoding.keyframe.waited(waits);
    }
    relay_missed(track, turn);
    match track.origin {
        Origin::Person(publisher) => ask_person(model, turn, (index, publisher), waits, scratch),
        Origin::Relay(shard) => {
            let keyframe = &mut track.encoding.keyframe;
            if keyframe.ask(turn.now.at, waits) {
                let stream = track.key;
                turn.sink.relay_control(shard, RelayControl::Keyframe { stream });
            }
            keyframe.is_wanted()
        }
    }
}

/// Asks a publisher of this shard. `waits`: whose slots wait for a keyframe.
fn ask_person<S: Sink>(
    model: &mut Model,
    turn: &mut Turn<'_, S>,
    (index, publisher): (TrackIndex, PersonIndex),
    waits: Waits,
    scratch: &mut Scratch,
) -> bool {
    let Some(track) = model.tracks[index].as_mut() else { return false };
    let Some(person) = model.people[publisher].as_mut() else { return false };
    if !person.reachable() {
        return false;
    }
    let wanted = track.is_wanted();
    // A layer that is not sent begins with a keyframe by itself.
    let sent = !track.is_layered() || track.is_alive(turn.now);
    let Track { encoding, silenced, .. } = track;
    let Scratch { rtcp, sequences, .. } = scratch;
    let begin = begin_compound(person, rtcp);
    sequences.clear();
    encoding.forget_superseded();
    let Some(reception) = &mut encoding.reception else { return false };
    let Some(ids) = reception.ids else { return false };
    if encoding.line.nack {
        let missing = &mut reception.missing;
        missing.set_rtt(round_trip(person.rtt_ms));
        missing.due(turn.now.at, sequences);
        rtcp::nack(rtcp, CONTROL_SSRC, ids.ssrc, sequences.iter().copied());
        turn.stats.nacked += sequences.len() as u64;
        if missing.take_keyframe_needed() && wanted {
            encoding.keyframe.want();
        }
    } else if reception.misses_picture(turn.now.at, sequences) && wanted {
        encoding.keyframe.want();
    }
    if !*silenced && sent && encoding.keyframe.ask(turn.now.at, waits) {
        rtcp::pli(rtcp, CONTROL_SSRC, ids.ssrc);
        turn.stats.keyframes_asked += 1;
    }
    if rtcp.len() > begin {
        turn.send_rtcp(person, rtcp);
    }
    let keyframe = encoding.keyframe.is_wanted() && sent && !*silenced;
    keyframe || reception.missing.is_pending()
}

/// Sends the reports and the feedback that are due to the people whose turn this tick is: every `turns`-th person, from
/// the `nth` on.
pub(super) fn send_reports<S: Sink>(
    model: &mut Model,
    turn: &mut Turn<'_, S>,
    (nth, turns): (usize, usize),
    scratch: &mut Scratch,
) {
    let now = turn.now.at;
    for index in (nth..model.people.len()).step_by(turns) {
        let Some(person) = model.people[index].as_mut() else { continue };
        if !person.reachable() {
            continue;
        }
        fit(model, turn, index);
        if feedback_is_due(model, index, now) {
            send_feedback(model, turn, index, scratch);
        }
        let Some(person) = model.people[index].as_mut() else { continue };
        if person.reports_due(now) {
            person.reported_at = Some(now);
            person.egress.fill(now);
            receiver_report(model, turn, index, scratch);
            sender_reports(model, turn, index, scratch);
        }
    }
}

/// Whether feedback to a participant has to leave now.
fn feedback_is_due(model: &Model, index: PersonIndex, now: Instant) -> bool {
    let due = |person: &Person| {
        let since_last = now.saturating_duration_since(person.feedback_at);
        person.arrivals.is_due(since_last)
    };
    model.people[index].as_ref().is_some_and(due)
}

/// Tells a publisher which of their packets came, and when (transport-wide feedback).
fn send_feedback<S: Sink>(
    model: &mut Model,
    turn: &mut Turn<'_, S>,
    index: PersonIndex,
    scratch: &mut Scratch,
) {
    let Some(person) = model.people[index].as_mut() else { return };
    person.feedback_at = turn.now.at;
    loop {
        begin_compound(person, &mut scratch.rtcp);
        if !build_feedback(person, &mut scratch.rtcp) {
            return;
        }
        turn.send_rtcp(person, &scratch.rtcp);
    }
}

/// Begins a datagram of control packets, and returns its length so far. Unless reduced size was agreed on, it begins with a
/// report and a name (RFC 3550, section 6.1).
fn begin_compound(person: &Person, rtcp: &mut Vec<u8>) -> usize {
    rtcp.clear();
    if !person.reduced_size {
        rtcp::receiver_report(rtcp, CONTROL_SSRC, &[]);
        rtcp::sdes_cname(rtcp, CONTROL_SSRC, CNAME);
    }
    rtcp.len()
}

/// Appends feedback, if there is anything to tell.
fn build_feedback(person: &mut Person, rtcp: &mut Vec<u8>) -> bool {
    let media = person.sources.first().map_or(0, |(ssrc, _)| *ssrc);
    person.arrivals.build(CONTROL_SSRC, media, rtcp)
}

/// Tells a publisher how their tracks arrive, with what feedback there is by now.
fn receiver_report<S: Sink>(
    model: &mut Model,
    turn: &mut Turn<'_, S>,
    index: PersonIndex,
    scratch: &mut Scratch,
) {
    let Model { people, tracks, .. } = model;
    let Some(person) = people[index].as_mut() else { return };
    let mut blocks = Vec::new();
    for track in &person.tracks {
        let reception = tracks[*track].as_mut().and_then(|track| track.encoding.reception.as_mut());
        blocks.extend(reception.and_then(|it| it.receive.report_block(turn.now.at)));
    }
    if blocks.is_empty() {
        return;
    }
    scratch.rtcp.clear();
    rtcp::receiver_report(&mut scratch.rtcp, CONTROL_SSRC, &blocks);
    rtcp::sdes_cname(&mut scratch.rtcp, CONTROL_SSRC, CNAME);
    if build_feedback(person, &mut scratch.rtcp) {
        person.feedback_at = turn.now.at;
    }
    turn.send_rtcp(person, &scratch.rtcp);
}

/// Tells a subscriber what their slots sent, on the server's clock, so that sound and picture stay together.
fn sender_reports<S: Sink>(
    model: &mut Model,
    turn: &mut Turn<'_, S>,
    index: PersonIndex,
    scratch: &mut Scratch,
) {
    let Model { people, tracks, .. } = model;
    let Some(person) = people[index].as_mut() else { return };
    let rtcp = &mut scratch.rtcp;
    rtcp.clear();
    let mut last_ssrc = None;
    for slot_index in 0..person.slots.len() {
        let slot = &person.slots[slot_index];
        if let Some(rtp_timestamp) = slot_timestamp(slot, tracks, turn.now) {
            let info = SenderInfo {
                ntp: Ntp::from_unix(turn.now.unix),
                rtp_timestamp,
                packet_count: slot.packets,
                octet_count: slot.octets,
            };
            last_ssrc = Some(slot.ssrc());
            rtcp::sender_report(rtcp, slot.ssrc(), &info, &[]);
        }
        let full = rtcp.len() > COMPOUND_BYTES || slot_index + 1 == person.slots.len();
        if let Some(ssrc) = last_ssrc.filter(|_| full) {
            rtcp::sdes_cname(rtcp, ssrc, CNAME);
            turn.send_rtcp(person, rtcp);
            rtcp.clear();
            last_ssrc = None;
        }
    }
}

/// The timestamp of what leaves a slot at this moment; None if nothing has left yet or nothing flows.
fn slot_timestamp(slot: &Slot, tracks: &[Option<Track>], now: Now) -> Option<u32> {
    if slot.packets == 0 {
        return None;
    }
    if slot.mix_tick.is_some() {
        let (timestamp, at) = slot.last_timestamp?;
        let passed = now.at.saturating_duration_since(at).as_micros() as u64;
        return Some(timestamp.wrapping_add((passed * 48 / 1000) as u32));
    }
    let timestamp = tracks[slot.current?].as_ref()?.encoding.timestamp_at(now)?;
    Some(timestamp.wrapping_add(slot.rewrite.timestamp_offset()))
}
