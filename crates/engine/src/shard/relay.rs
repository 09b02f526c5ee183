//! The relay between shards: a media lane that may drop, counted, and a control lane that does not.
//!
//! A packet crosses once a shard, opened, and only while somebody there has its track in a slot.
//! What comes over goes on as if it had been opened here: same history, same slots.

use super::forward::Kept;
use super::incoming::{Opened, describe};
use super::lately::Past;
use super::track::{Export, Origin, Track};
use super::{Shard, Stats, TrackIndex};
use crate::command::{PersonKey, RoomKey, ShardIndex, TrackKey};
use crate::drops::InDrop;
use crate::sink::{Now, Sink};
use rtp::RtpHeader;
use rtp::negotiated::{Kind, Line};

/// A packet on the media lane.
#[derive(Debug, Clone, Copy)]
pub struct RelayPacket<'a> {
    /// Its track.
    pub track: TrackKey,
    /// Its sequence number, unwrapped by the publisher's shard.
    pub index: u64,
    /// What it brings.
    pub content: RelayContent,
    /// The whole RTP packet in plaintext; empty where nothing of it is passed on.
    pub bytes: &'a [u8],
}

/// What a number of a track brings to another shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RelayContent {
    /// A packet as it came.
    Original,
    /// A packet that came as a retransmission.
    Repaired,
    /// Nothing but padding: the next packet takes its number.
    Padding,
    /// Nothing that may be passed on: a moderator muted the track.
    Silenced,
}

/// A message on the control lane.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RelayControl {
    /// To the publisher's shard: somebody needs a keyframe.
    Keyframe {
        /// Of which track.
        track: TrackKey,
    },
    /// To the publisher's shard: a track of sound is known here and wanted.
    Wanted {
        /// Which track.
        track: TrackKey,
        /// By which shard.
        to: ShardIndex,
    },
    /// To shards that get a track: its clock.
    Clock {
        /// Which track.
        track: TrackKey,
        /// A timestamp of it,
        rtp_timestamp: u32,
        /// and when that was on the server's wall clock, in nanoseconds since the Unix epoch.
        at_ns: i128,
    },
    /// To a room's home shard: who speaks here.
    Speaking {
        /// In which room.
        room: RoomKey,
        /// On which shard.
        from: ShardIndex,
        /// Who, with the level in −dBov.
        speakers: Vec<(PersonKey, u8)>,
    },
}

/// A track of sound from another shard of which nothing has come yet.
pub(super) struct Imported {
    from: ShardIndex,
    pub key: TrackKey,
    /// It was asked for.
    asked: bool,
}

impl Shard {
    pub(super) fn import(
        &mut self,
        key: TrackKey,
        from: ShardIndex,
        line: Line,
        opaque: bool,
    ) -> Option<()> {
        if line.codec.kind() == Kind::Audio {
            self.imported.push(Imported { from, key, asked: false });
        }
        if !self.track_by_key.contains_key(&key) {
            let mut track = Track::new(key, Origin::Relay(from), line);
            track.opaque = opaque;
            self.place_track(track);
        }
        Some(())
    }

    /// Asks for imported sound where it is published: at once, and again when it is `due` until something of it comes, since
    /// the first time may come before the track itself is there.
    pub(super) fn ask_for_imported(&mut self, due: bool, sink: &mut impl Sink) {
        let Self { imported, tracks, track_by_key, index, .. } = self;
        imported.retain_mut(|one| {
            let found = track_by_key.get(&one.key).and_then(|at| tracks[*at].as_ref());
            let Some(track) = found else { return false };
            let waits = track.newest.is_none();
            if !one.asked || (due && waits) {
                one.asked = true;
                sink.relay_control(one.from, RelayControl::Wanted { track: one.key, to: *index });
            }
            waits
        });
    }

    pub(super) fn export(&mut self, key: TrackKey, to: ShardIndex, on: bool) -> Option<()> {
        self.track_mut(key)?.export(to, on);
        Some(())
    }

    /// Sends a packet of a track to the shards that want it.
    pub(super) fn relay(
        &mut self,
        track: TrackIndex,
        packet: &RelayPacket<'_>,
        sink: &mut impl Sink,
    ) {
        let Some(track) = self.tracks[track].as_mut() else { return };
        for at in 0..track.exports.len() {
            let Export { to, begun, replay } = track.exports[at];
            if !begun {
                continue;
            }
            if replay {
                track.exports[at].replay = false;
                for past in track.speech().filter(|past| past.index != packet.index) {
                    let content = RelayContent::Original;
                    let Past { index, bytes, .. } = past;
                    let missed = RelayPacket { track: packet.track, index, content, bytes };
                    self.stats.count_relayed(sink.relay_packet(to, &missed));
                }
            }
            self.stats.count_relayed(sink.relay_packet(to, packet));
        }
    }

    /// A packet came over the media lane. It waits with others until [`Shard::flush`].
    pub fn handle_relayed(&mut self, now: Now, packet: &RelayPacket<'_>, sink: &mut impl Sink) {
        self.stats.relay_in += 1;
        if let Err(reason) = self.take_relayed(now, packet, sink) {
            self.stats.in_drops.add(reason);
        }
    }

    fn take_relayed(
        &mut self,
        now: Now,
        packet: &RelayPacket<'_>,
        sink: &mut impl Sink,
    ) -> Result<(), InDrop> {
        let brings = matches!(packet.content, RelayContent::Original | RelayContent::Repaired);
        // What came before a packet that takes no number has numbers of its own.
        if !brings || self.queue.is_full() {
            self.flush(now, sink);
        }
        // Nobody here wants it any more, or its end overtook it.
        let index = *self.track_by_key.get(&packet.track).ok_or(InDrop::NotWanted)?;
        let track = self.tracks[index].as_mut().ok_or(InDrop::NotWanted)?;
        match packet.content {
            RelayContent::Original | RelayContent::Repaired => {}
            RelayContent::Padding => {
                self.skip_copies(index, packet.index);
                return Ok(());
            }
            RelayContent::Silenced => {
                self.suspend(index);
                return Ok(());
            }
        }
        let repaired = packet.content == RelayContent::Repaired;
        let header = RtpHeader::parse(packet.bytes).map_err(|_| InDrop::Malformed)?;
        let payload = header.payload_range(packet.bytes).map_err(|_| InDrop::Malformed)?;
        let mut opened: Opened =
            describe(track, packet.index, header, payload, packet.bytes, repaired);
        opened.kept = Kept::of(track, packet.bytes, &header);
        track.note_frame(&opened, now.at);
        if !repaired {
            track.newest = Some((opened.header.timestamp, now.unix));
            track.hear(&opened, now.at, packet.bytes, &mut self.sampler);
        }
        if track.line.nack {
            track.history.keep(packet.index, &packet.bytes[..opened.payload.end]);
        }
        let place = self.queue.lend().ok_or(InDrop::TooLong)?;
        place.get_mut(..packet.bytes.len()).ok_or(InDrop::TooLong)?.copy_from_slice(packet.bytes);
        self.queue.push(index, opened);
        Ok(())
    }

    /// A message came over the control lane.
    pub fn handle_relay_control(&mut self, message: RelayControl) {
        match message {
            RelayControl::Keyframe { track } => {
                if let Some(track) = self.track_mut(track) {
                    track.keyframe.want();
                    self.hurry();
                }
            }
            RelayControl::Wanted { track, to } => {
                if let Some(track) = self.track_mut(track) {
                    track.asked_by(to);
                }
            }
            RelayControl::Clock { track, rtp_timestamp, at_ns } => {
                if let Some(track) = self.track_mut(track) {
                    track.reference = Some((rtp_timestamp, at_ns));
                }
            }
            RelayControl::Speaking { room, from, speakers } => {
                self.speakers.elsewhere(room, from, speakers);
                self.voices_began = true;
            }
        }
    }

    fn track_mut(&mut self, key: TrackKey) -> Option<&mut Track> {
        self.tracks[*self.track_by_key.get(&key)?].as_mut()
    }
}

impl Stats {
    fn count_relayed(&mut self, taken: bool) {
        if taken {
            self.relay_out += 1;
        } else {
            self.relay_full += 1;
        }
    }
}
