//! Which participants the others know by name. In a room of few people, everybody is told of each. A larger room has an audience:
//! of most people only their number is told, so that a join need not be told to everybody. Who is known stays known until
//! they leave.

use super::effects::{Change, Effects, Notice};
use crate::command::PersonKey;
use std::collections::BTreeSet;

/// Those whom everybody was told of by name.
#[derive(Debug, Default)]
pub(super) struct Names(BTreeSet<PersonKey>);

impl Names {
    /// Whether everybody was told of them.
    pub(super) fn has(&self, person: PersonKey) -> bool {
        self.0.contains(&person)
    }

    /// Those whom everybody was told of, in the order of their keys.
    pub(super) fn iter(&self) -> impl ExactSizeIterator<Item = PersonKey> {
        self.0.iter().copied()
    }

    /// They come in, and everybody is told.
    pub(super) fn came(&mut self, person: PersonKey, effects: &mut Effects) {
        self.0.insert(person);
        effects.notices.push(Notice::All(Change::Joined(person)));
    }

    /// They were among the audience, and everybody knows them from now on. The event holds what they publish already.
    pub(super) fn name(&mut self, person: PersonKey, effects: &mut Effects) {
        if self.0.insert(person) {
            effects.notices.push(Notice::All(Change::Named(person)));
        }
    }

    /// Tells everybody of a change that concerns a participant, if they know the participant.
    pub(super) fn tell(&self, person: PersonKey, change: Change, effects: &mut Effects) {
        if self.has(person) {
            effects.notices.push(Notice::All(change));
        }
    }

    /// They are gone.
    pub(super) fn left(&mut self, person: PersonKey, effects: &mut Effects) {
        let notice = match self.0.remove(&person) {
            true => Notice::All(Change::Left(person)),
            false => Notice::Audience { joined: false },
        };
        effects.notices.push(notice);
    }
}
