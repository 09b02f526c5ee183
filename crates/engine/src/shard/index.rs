//! Where people and tracks lie in a shard.

/// Index of a person in the shard.
pub(super) type PersonIndex = usize;
/// Index of a track in the shard.
pub(super) type TrackIndex = usize;

/// A subscription: a slot of a person.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Subscription {
    pub person: PersonIndex,
    pub slot: usize,
}
