//! What moderators decided about people. A decision outlives its track and its seat: a participant who offers anew
//! or joins again stays silenced, and a participant who was removed stays out.

use super::Member;
use engine::PersonKey;
use rtp::negotiated::Kind;
use std::collections::VecDeque;

/// Decisions of each kind that a room remembers. A new one takes the place of the oldest.
const KEPT: usize = 1024;

/// Whom a decision is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Subject {
    /// The identity of a token (`sub`).
    Identity(String),
    /// A page or bot without an identity.
    Session(String),
}

impl Subject {
    /// Who this is. None for a guest who gave no session: nothing tells them from another guest.
    pub(super) fn new(identity: Option<&str>, session: Option<&str>) -> Option<Self> {
        let identity = identity.map(|identity| Self::Identity(identity.to_owned()));
        identity.or_else(|| session.map(|session| Self::Session(session.to_owned())))
    }

    /// Who this member is.
    pub(super) fn of(member: &Member) -> Option<Self> {
        Self::new(member.grants.identity.as_deref(), member.session.as_deref())
    }
}

/// A room's decisions that hold until a moderator lifts them, or the room ends.
#[derive(Debug, Default)]
pub(super) struct Decisions {
    /// Whose tracks of a kind are silenced. The kind counts, not the track's name: its publisher chooses the name.
    silenced: VecDeque<(Subject, Kind)>,
    /// Who may not come in again, and the participants that they were.
    removed: VecDeque<(Subject, Vec<PersonKey>)>,
    /// Participants that another session of the same identity took the place of.
    replaced: VecDeque<PersonKey>,
}

impl Decisions {
    /// Whether new tracks of this kind are silenced.
    pub(super) fn is_silenced(&self, subject: Option<&Subject>, kind: Kind) -> bool {
        self.silenced.iter().any(|(known, of)| Some(known) == subject && *of == kind)
    }

    /// A moderator silences a kind of somebody's tracks, or lifts that. Says whether an older decision was forgotten.
    pub(super) fn silence(&mut self, subject: Option<Subject>, kind: Kind, on: bool) -> bool {
        let Some(subject) = subject else { return false };
        self.silenced.retain(|known| *known != (subject.clone(), kind));
        on && push(&mut self.silenced, (subject, kind))
    }

    /// Whether a moderator put them out.
    pub(super) fn is_removed(&self, subject: Option<&Subject>) -> bool {
        self.removed.iter().any(|(known, _)| Some(known) == subject)
    }

    /// A moderator puts somebody out who has these seats. Says whether an older decision was forgotten.
    pub(super) fn remove(&mut self, subject: Option<Subject>, seats: &[PersonKey]) -> bool {
        subject.is_some_and(|subject| push(&mut self.removed, (subject, seats.to_vec())))
    }

    /// Another session took this one's place.
    pub(super) fn replace(&mut self, person: PersonKey) {
        push(&mut self.replaced, person);
    }

    /// Whether another session took this one's place.
    pub(super) fn was_replaced(&self, person: PersonKey) -> bool {
        self.replaced.contains(&person)
    }

    /// Whether a moderator put this participant out, and lets nobody in who is the same.
    pub(super) fn was_removed(&self, person: PersonKey) -> bool {
        self.removed.iter().any(|(_, seats)| seats.contains(&person))
    }

    /// A moderator lets somebody in again, named by a participant that they were. Says whether they were out.
    pub(super) fn readmit(&mut self, person: PersonKey) -> bool {
        let found = self.removed.iter().find(|(_, seats)| seats.contains(&person));
        let Some((subject, _)) = found.cloned() else { return false };
        self.removed.retain(|(known, _)| *known != subject);
        true
    }
}

fn push<T>(kept: &mut VecDeque<T>, decision: T) -> bool {
    let full = kept.len() == KEPT;
    if full {
        kept.pop_front();
    }
    kept.push_back(decision);
    full
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_counts_before_a_session_and_memory_is_bounded() {
        let identity = Subject::new(Some("ada"), Some("page"));
        assert_eq!(identity, Some(Subject::Identity("ada".into())));
        assert_eq!(Subject::new(None, None), None);
        let mut decisions = Decisions::default();
        assert!(!decisions.silence(identity.clone(), Kind::Audio, true));
        assert!(decisions.is_silenced(identity.as_ref(), Kind::Audio));
        assert!(!decisions.is_silenced(identity.as_ref(), Kind::Video));
        assert!(!decisions.is_silenced(None, Kind::Audio));
        for n in 0..KEPT as u64 {
            let forgot =
                decisions.remove(Subject::new(None, Some(&n.to_string())), &[PersonKey(n)]);
            assert!(!forgot);
        }
        let seats = [PersonKey(9998), PersonKey(9999)];
        assert!(decisions.remove(identity.clone(), &seats), "the oldest is forgotten");
        assert!(!decisions.is_removed(Subject::new(None, Some("0")).as_ref()));
        assert!(decisions.readmit(PersonKey(9999)) && !decisions.readmit(PersonKey(9999)));
        assert!(!decisions.is_removed(identity.as_ref()));
        decisions.silence(identity.clone(), Kind::Audio, false);
        assert!(!decisions.is_silenced(identity.as_ref(), Kind::Audio));
    }
}
