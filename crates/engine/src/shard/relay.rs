//! The way to and from other shards. A packet crosses once for each shard, opened, and only while somebody there has its
//! track in a slot. What comes over goes on as if it had been opened here: same history, same slots.

use super::claim::Sampler;
use super::encoding::{Arrival, Arrived};
use super::forward::flush;
use super::lately::Past;
use super::mixing::hand_to_mixer;
use super::model::Model;
use super::packet::{Opened, Passed};
use super::track::{Export, Track};
use super::turn::Turn;
use crate::command::{ShardIndex, TrackKey};
use crate::drops::InDrop;
use crate::relay::{RelayContent, RelayControl, RelayPacket};
use crate::sink::Sink;
use rtp::RtpHeader;
use std::time::Instant;

/// Tracks of sound from other shards of which nothing has come yet.
#[derive(Default)]
pub(super) struct Imports(Vec<Imported>);

struct Imported {
    from: ShardIndex,
    key: TrackKey,
    /// It was asked for.
    asked: bool,
}

impl Imports {
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn add(&mut self, key: TrackKey, from: ShardIndex) {
        self.0.push(Imported { from, key, asked: false });
    }

    pub(super) fn remove(&mut self, key: TrackKey) {
        self.0.retain(|imported| imported.key != key);
    }

    /// Asks the shards that publish the tracks for them: once, and again whenever it is `due` until a packet comes, since
    /// the first request may arrive there before the track does.
    pub(super) fn ask<S: Sink>(
        &mut self,
        model: &mut Model,
        turn: &mut Turn<'_, S>,
        to: ShardIndex,
        due: bool,
    ) {
        self.0.retain_mut(|one| {
            let Some(track) = model.track(one.key.stream()) else { return false };
            let waits = track.encoding.newest.is_none();
            if !one.asked || (due && waits) {
                one.asked = true;
                turn.sink.relay_control(one.from, RelayControl::Wanted { track: one.key, to });
            }
            waits
        });
    }
}

/// An opened packet goes to the mixer, or to the shards that want it.
pub(super) fn pass_on<S: Sink>(
    track: &mut Track,
    turn: &mut Turn<'_, S>,
    opened: &Opened,
    plain: &[u8],
    arrival: Instant,
) -> Result<(), InDrop> {
    let number = opened.counters.index;
    if track.silenced {
        relay(track, turn, &RelayPacket::empty(track.key, number, RelayContent::Silenced));
        return Err(InDrop::Silenced);
    }
    if track.mixed {
        return hand_to_mixer(turn, track, opened, plain, arrival);
    }
    let content = if opened.repaired { RelayContent::Repaired } else { RelayContent::Original };
    let bytes = &plain[..opened.payload.end];
    relay(track, turn, &RelayPacket { stream: track.key, index: number, content, bytes });
    Ok(())
}

/// Sends a packet of a track to the shards that want it.
pub(super) fn relay<S: Sink>(track: &mut Track, turn: &mut Turn<'_, S>, packet: &RelayPacket<'_>) {
    for at in 0..track.exports.len() {
        let Export { to, begun, replay, .. } = track.exports[at];
        if !begun {
            continue;
        }
        if replay {
            track.exports[at].replay = false;
            if track.is_layered() {
                // What crossed before ended somewhere: nothing may begin with it, or go on from it.
                let content = RelayContent::Silenced;
                cross(turn, to, &RelayPacket::empty(packet.stream, packet.index, content));
            }
            for past in track.encoding.speech().filter(|past| past.index != packet.index) {
                let content = RelayContent::Original;
                let Past { index, bytes, .. } = past;
                let missed = RelayPacket { stream: packet.stream, index, content, bytes };
                cross(turn, to, &missed);
            }
        }
        cross(turn, to, packet);
    }
}

fn cross<S: Sink>(turn: &mut Turn<'_, S>, to: ShardIndex, packet: &RelayPacket<'_>) {
    if turn.sink.relay_packet(to, packet) {
        turn.stats.relay_out += 1;
    } else {
        turn.stats.relay_full += 1;
    }
}

/// A packet came over the media lane; it waits in the queue.
///
/// # Errors
/// Why it was discarded.
pub(super) fn take_relayed<S: Sink>(
    model: &mut Model,
    turn: &mut Turn<'_, S>,
    packet: &RelayPacket<'_>,
    sampler: &mut Sampler,
) -> Result<(), InDrop> {
    let brings = matches!(packet.content, RelayContent::Original | RelayContent::Repaired);
    // The packets queued before one that takes no number get theirs first.
    if !brings || model.queue.is_full() {
        flush(model, turn);
    }
    // Nobody here wants it any more, or its end overtook it.
    let index = *model.track_by_key.get(&packet.stream).ok_or(InDrop::NotWanted)?;
    match packet.content {
        RelayContent::Original | RelayContent::Repaired => {}
        RelayContent::Padding => {
            let track = model.tracks[index].as_mut().ok_or(InDrop::NotWanted)?;
            track.encoding.pass(packet.index, turn.now.at);
            model.leave_out(index, packet.index);
            return Ok(());
        }
        RelayContent::Silenced => {
            model.suspend(index);
            return Ok(());
        }
    }
    let Model { tracks, queue, .. } = &mut *model;
    let track = tracks[index].as_mut().ok_or(InDrop::NotWanted)?;
    let place = queue.lend().ok_or(InDrop::TooLong)?;
    let plain = place.get_mut(..packet.bytes.len()).ok_or(InDrop::TooLong)?;
    plain.copy_from_slice(packet.bytes);
    let header = RtpHeader::parse(plain).map_err(|_| InDrop::Malformed)?;
    let payload = header.payload_range(plain).map_err(|_| InDrop::Malformed)?;
    let arrival = Arrival {
        number: packet.index,
        header,
        payload,
        passed: Passed::of(&track.encoding.line.extensions, plain, &header),
        repaired: packet.content == RelayContent::Repaired,
        at: turn.now.at,
    };
    if let Arrived::Media(opened, _) =
        track.encoding.arrive(arrival, plain, false, turn.now, sampler)?
    {
        queue.push(index, opened);
    }
    Ok(())
}
