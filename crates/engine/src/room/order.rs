//! Which pictures come first on a path that does not carry all of them: screens, then those of whom spoke last. Shards
//! are told when that changes.

use super::effects::Effects;
use super::index::Index;
use super::person::Person;
use super::track::Track;
use crate::command::{Command, PersonKey, Precedence};
use rtp::negotiated::Kind;
use std::collections::BTreeSet;

/// Who spoke last, as shards were told.
#[derive(Debug, Default)]
pub(super) struct Lately(BTreeSet<PersonKey>);

impl Lately {
    /// These people speak. Says whether the order of pictures changes: it does not while the same speak after a silence.
    pub(super) fn speak(&mut self, speakers: &[(PersonKey, u8)]) -> bool {
        let now: BTreeSet<PersonKey> = speakers.iter().map(|(speaker, _)| *speaker).collect();
        let changes = !now.is_empty() && now != self.0;
        if changes {
            self.0 = now;
        }
        changes
    }
}

/// The place of a track in the order of pictures; `spoke`: when its publisher spoke last.
pub(super) fn precedence(spoke: u64, track: &Track) -> Precedence {
    Precedence { screen: track.is_screen(), spoke }
}

/// Every shard that has pictures of somebody who speaks is told that they come first.
pub(super) fn tell(person: &Person, index: &Index, effects: &mut Effects) {
    for known in person.tracks_of(Kind::Video) {
        let (track, precedence) = (known.key, precedence(person.spoke, known));
        let elsewhere = index.wanted(track).filter(|shard| *shard != person.shard);
        for shard in [person.shard].into_iter().chain(elsewhere) {
            effects.commands.push((shard, Command::Precedence { track, precedence }));
        }
    }
}
