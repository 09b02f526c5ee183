//! Whether a socket has a token's rights, and whose: by its own token, or by the one of a join.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What the session looks at after each frame.
#[derive(Debug, Default)]
pub(super) struct Rights {
    changes: AtomicU64,
    joined: Mutex<Option<Joined>>,
}

/// A join with a token of its own.
#[derive(Debug)]
struct Joined {
    identity: Option<String>,
}

impl Rights {
    /// The socket's own token is another than before.
    pub(super) fn changed(&self) {
        self.changes.fetch_add(1, Relaxed);
    }

    /// A token that came with a join was taken.
    pub(super) fn joined(&self, identity: Option<&str>) {
        *self.lock() = Some(Joined { identity: identity.map(ToOwned::to_owned) });
        self.changed();
    }

    /// How often they have changed.
    pub(super) fn changes(&self) -> u64 {
        self.changes.load(Relaxed)
    }

    /// Whether a join with a token succeeded.
    pub(super) fn has_joined(&self) -> bool {
        self.lock().is_some()
    }

    /// Who it was by that token.
    pub(super) fn joined_as(&self) -> Option<String> {
        self.lock().as_ref()?.identity.clone()
    }

    fn lock(&self) -> MutexGuard<'_, Option<Joined>> {
        self.joined.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
