//! What a participant may publish: an offer or an announcement is checked against the room and what
//! they publish already. Nothing is changed here.

use super::person::Person;
use super::setup::{Refusal, RoomLimits, RoomSetup, Topology};
use super::track::Track;
use crate::command::TrackKey;
use crate::limits::MAX_TRACKS_EACH;
use rtp::negotiated::{Direction, Kind, Line, Negotiated};
use std::collections::BTreeSet;

/// A track that an offer announces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Published {
    /// Its line.
    pub mid: String,
    /// What the publisher calls it.
    pub name: String,
    /// Its payloads are encrypted end to end: nothing in them may be read or changed.
    pub opaque: bool,
    /// It is music: where it is mixed, its level stays as it is.
    pub music: bool,
    /// With simulcast, its layers: the RTP stream id, and how many pixels the pictures have.
    pub layers: Vec<(String, u32)>,
    /// The key that it gets if it is new.
    pub key: TrackKey,
}

impl Published {
    fn track(&self, kind: Kind) -> Track {
        Track {
            key: self.key,
            kind,
            mid: self.mid.clone(),
            name: self.name.clone(),
            muted: false,
            silenced: false,
            paused: false,
            layer: None,
            opaque: self.opaque,
            music: self.music,
        }
    }
}

/// What an offer or an announcement changes.
#[derive(Debug)]
pub(super) struct Agreed {
    /// The key of each track that was announced, in order.
    pub keys: Vec<TrackKey>,
    /// New tracks, with their lines where they pass the server.
    pub added: Vec<(Track, Option<Line>)>,
    /// Tracks that are not sent any more.
    pub gone: Vec<TrackKey>,
}

fn is_sent(line: &Line) -> bool {
    matches!(line.direction, Direction::Receive | Direction::Both)
}

/// Whether each line is named once: it carries one track.
fn check_lines<'a>(mut mids: impl Iterator<Item = &'a str>) -> Result<(), Refusal> {
    let mut named = BTreeSet::new();
    if mids.all(|mid| named.insert(mid)) { Ok(()) } else { Err(Refusal::LineTwice) }
}

/// Someone agreed on lines and says which tracks they send on them.
pub(super) fn offered(
    person: &Person,
    setup: &RoomSetup,
    negotiated: &Negotiated,
    published: &[Published],
) -> Result<Agreed, Refusal> {
    if published.len() > MAX_TRACKS_EACH {
        return Err(Refusal::TooManyTracks);
    }
    check_lines(published.iter().map(|track| track.mid.as_str()))?;
    let (mut keys, mut added) = (Vec::new(), Vec::new());
    for track in published {
        let line = negotiated.line(&track.mid).filter(|line| is_sent(line));
        let line = line.ok_or(Refusal::UnknownTrack)?;
        let kind = line.codec.kind();
        let topology = setup.topology(kind);
        if !topology.passes() {
            return Err(Refusal::OtherTopology);
        }
        if track.opaque && topology == Topology::Mcu {
            return Err(Refusal::Opaque);
        }
        if let Some(known) = person.track_on(&track.mid, kind) {
            keys.push(known.key);
            continue;
        }
        keys.push(track.key);
        added.push((track.track(kind), Some(line.clone())));
    }
    if person.tracks.len() + added.len() > MAX_TRACKS_EACH {
        return Err(Refusal::TooManyTracks);
    }
    let still = |track: &Track| {
        let line = negotiated.line(&track.mid).filter(|line| is_sent(line));
        line.is_some_and(|line| line.codec.kind() == track.kind)
    };
    let passing = person.tracks.iter().filter(|track| setup.topology(track.kind).passes());
    let gone = passing.filter(|track| !still(track)).map(|track| track.key).collect();
    Ok(Agreed { keys, added, gone })
}

/// Someone says what they send where media does not pass the server.
pub(super) fn announced(
    person: &Person,
    setup: &RoomSetup,
    announced: &[(Published, Kind)],
) -> Result<Agreed, Refusal> {
    let in_mesh = |kind: Kind| setup.topology(kind) == Topology::Mesh;
    if announced.iter().any(|(_, kind)| !in_mesh(*kind)) {
        return Err(Refusal::OtherTopology);
    }
    let others = person.tracks.iter().filter(|track| !in_mesh(track.kind));
    if others.count() + announced.len() > MAX_TRACKS_EACH {
        return Err(Refusal::TooManyTracks);
    }
    check_lines(announced.iter().map(|(new, _)| new.mid.as_str()))?;
    let (mut keys, mut added) = (Vec::new(), Vec::new());
    for (new, kind) in announced {
        if let Some(track) = person.track_on(&new.mid, *kind) {
            keys.push(track.key);
            continue;
        }
        keys.push(new.key);
        added.push((new.track(*kind), None));
    }
    let still = |track: &Track| {
        announced.iter().any(|(new, kind)| new.mid == track.mid && *kind == track.kind)
    };
    let meshed = person.tracks.iter().filter(|track| in_mesh(track.kind));
    let gone = meshed.filter(|track| !still(track)).map(|track| track.key).collect();
    Ok(Agreed { keys, added, gone })
}

/// The lines within the room's limits: slots beyond them are agreed on but never used.
pub(super) fn within(negotiated: &Negotiated, limits: RoomLimits) -> Negotiated {
    let mut counts = [0; 2];
    let lines = negotiated.lines.iter().filter(|line| {
        if line.direction != Direction::Send {
            return true;
        }
        let kind = line.codec.kind();
        let count = &mut counts[kind as usize];
        *count += 1;
        *count <= limits.slots(kind)
    });
    Negotiated { lines: lines.cloned().collect() }
}
