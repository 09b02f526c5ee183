//! The way to and from other shards. A packet crosses once for each shard, opened, and only while somebody there has its
//! track in a slot. What comes over goes on as if it had been opened here: same history, same slots.

use super::claim::Sampler;
use super::encoding::{Arrival, Arrived, Encoding, Fate};
use super::forward::flush;
use super::lately::Past;
use super::mixing::hand_to_mixer;
use super::model::Model;
use super::packet::{Opened, Passed};
use super::track::{Export, Track};
use super::turn::Turn;
use crate::command::{ShardIndex, StreamKey, TrackKey};
use crate::drops::InDrop;
use crate::limits::HISTORY_PACKETS;
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
    let layered = track.is_layered();
    let Track { encoding, exports, .. } = track;
    for export in exports.iter_mut().filter(|export| export.begun) {
        if std::mem::take(&mut export.replay) {
            if layered {
                // What crossed before ended somewhere: nothing may begin with it, or go on from it.
                let ended = RelayPacket::empty(packet.stream, packet.index, RelayContent::Silenced);
                cross(encoding, export, turn, &ended);
            }
            for past in encoding.speech().filter(|past| past.index != packet.index) {
                let content = RelayContent::Original;
                let Past { index, bytes, .. } = past;
                let missed = RelayPacket { stream: packet.stream, index, content, bytes };
                cross(encoding, export, turn, &missed);
            }
        }
        cross(encoding, export, turn, packet);
    }
}

/// Sends what did not get into the lanes to other shards, as far as they have room now.
pub(super) fn relay_missed<S: Sink>(track: &mut Track, turn: &mut Turn<'_, S>) {
    let Track { encoding, exports, key, .. } = track;
    for export in exports.iter_mut().filter(|export| !export.missed.is_empty()) {
        catch_up(encoding, export, turn, *key);
    }
}

/// Sends a packet to a shard, behind all before it. If the lane is full, it goes later, as long as the history keeps it; sound
/// that is late is lost.
fn cross<S: Sink>(
    encoding: &Encoding,
    export: &mut Export,
    turn: &mut Turn<'_, S>,
    packet: &RelayPacket<'_>,
) {
    if catch_up(encoding, export, turn, packet.stream) && turn.sink.relay_packet(export.to, packet)
    {
        turn.stats.relay_out += 1;
        return;
    }
    if packet.content == RelayContent::Silenced {
        // Nothing may go on from what came before.
        turn.stats.relay_full += export.missed.len() as u64;
        export.missed.clear();
    }
    let kept = encoding.keeps_history() || packet.bytes.is_empty();
    if kept && export.missed.len() < HISTORY_PACKETS {
        export.missed.push_back((packet.index, packet.content));
    } else {
        turn.stats.relay_full += 1;
    }
}

/// Sends what did not get into the lane. Says whether all of it did now.
fn catch_up<S: Sink>(
    encoding: &Encoding,
    export: &mut Export,
    turn: &mut Turn<'_, S>,
    stream: StreamKey,
) -> bool {
    while let Some((index, content)) = export.missed.front().copied() {
        let bytes = match content {
            RelayContent::Original | RelayContent::Repaired => encoding.history.get(index),
            RelayContent::Padding | RelayContent::Silenced => Some(&[][..]),
        };
        let packet = bytes.map(|bytes| RelayPacket { stream, index, content, bytes });
        match packet.map(|packet| turn.sink.relay_packet(export.to, &packet)) {
            Some(true) => turn.stats.relay_out += 1,
            Some(false) => return false,
            None => turn.stats.relay_full += 1,
        }
        export.missed.pop_front();
    }
    true
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
        track.encoding.arrive(arrival, plain, Fate::default(), turn.now, sampler)?
    {
        queue.push(index, opened);
    }
    Ok(())
}
