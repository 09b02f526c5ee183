//! Tokens that are taken no more although their time is not over.

use super::Grants;
use super::token::LONGEST_S;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// Most revocations at once: one more is refused, none is forgotten before its time.
pub const MOST: usize = 10_000;
/// Longest `jti` or `sub` that can be revoked, in bytes.
pub const NAME_BYTES: usize = 1024;

/// Which tokens are meant.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Target {
    /// The one with this `jti`.
    Token(String),
    /// Those of this `sub`.
    Identity(String),
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    /// Tokens of this time (`iat`, else `nbf`) and later are taken; those that do not tell are not.
    issued_before: u64,
    /// When the last of these tokens is over, and this entry with it.
    until: u64,
}

/// Why a revocation is not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// There are [`MOST`] already.
    Full,
    /// The name is empty or longer than [`NAME_BYTES`].
    Name,
}

/// The revocations of a server, all times in seconds since the Unix epoch. They are kept in memory.
#[derive(Debug, Default)]
pub(super) struct Revocations(Mutex<BTreeMap<Target, Entry>>);

impl Revocations {
    /// Takes a revocation; `until`: when the last token that it is about is over, at most as long as a token may
    /// hold. Of an identity the latest time counts. Tells when the entry ends.
    pub(super) fn add(
        &self,
        target: Target,
        issued_before: u64,
        until: Option<u64>,
        now: u64,
    ) -> Result<u64, Refused> {
        let (Target::Token(name) | Target::Identity(name)) = &target;
        if name.is_empty() || name.len() > NAME_BYTES {
            return Err(Refused::Name);
        }
        let longest = now.saturating_add(LONGEST_S);
        let until = until.unwrap_or(longest).min(longest);
        let mut table = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if table.len() >= MOST && !table.contains_key(&target) {
            table.retain(|_, entry| entry.until > now);
            if table.len() >= MOST {
                return Err(Refused::Full);
            }
        }
        let entry = table.entry(target).or_insert(Entry { issued_before, until });
        entry.issued_before = entry.issued_before.max(issued_before);
        entry.until = entry.until.max(until);
        Ok(entry.until)
    }

    /// Whether the token that gave these grants is revoked.
    pub(super) fn cover(&self, grants: &Grants, now: u64) -> bool {
        let table = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if table.is_empty() {
            return false;
        }
        let entry = |target| table.get(&target).filter(|entry| entry.until > now);
        let token = grants.token_id.clone().map(Target::Token);
        if token.is_some_and(|target| entry(target).is_some()) {
            return true;
        }
        let of_identity = grants.identity.clone().map(Target::Identity).and_then(entry);
        of_identity.is_some_and(|entry| {
            grants.issued_unix_s.is_none_or(|issued| issued < entry.issued_before)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grants(token: &str, identity: &str, issued: Option<u64>) -> Grants {
        Grants {
            token_id: Some(token.into()),
            identity: Some(identity.into()),
            issued_unix_s: issued,
            ..Grants::default()
        }
    }

    #[test]
    fn a_token_is_revoked_by_its_id_or_by_whose_it_is_and_when() {
        let list = Revocations::default();
        list.add(Target::Token("t1".into()), 0, Some(500), 100).expect("taken");
        list.add(Target::Identity("ada".into()), 90, Some(500), 100).expect("taken");
        assert!(list.cover(&grants("t1", "bob", Some(99)), 100));
        assert!(!list.cover(&grants("t2", "bob", Some(10)), 100));
        assert!(list.cover(&grants("t3", "ada", Some(89)), 100));
        assert!(list.cover(&grants("t4", "ada", None), 100), "nothing says that it is newer");
        assert!(!list.cover(&grants("t5", "ada", Some(90)), 100), "a fresh one");
        // An earlier time takes nothing back.
        list.add(Target::Identity("ada".into()), 50, Some(200), 100).expect("taken");
        assert!(list.cover(&grants("t3", "ada", Some(89)), 300));
        assert!(!list.cover(&grants("t1", "ada", Some(89)), 500), "over with the tokens");
    }

    #[test]
    fn the_list_is_bounded_and_forgets_only_what_is_over() {
        let list = Revocations::default();
        for n in 0..MOST {
            let until = if n == 0 { 200 } else { 900 };
            list.add(Target::Token(n.to_string()), 0, Some(until), 100).expect("room");
        }
        let more = |name: &str, now| list.add(Target::Token(name.into()), 0, Some(900), now);
        assert_eq!(more("more", 100), Err(Refused::Full));
        assert_eq!(more("7", 100), Ok(900), "it is there already");
        assert_eq!(more("more", 200), Ok(900), "one was over");
        assert_eq!(more("another", 200), Err(Refused::Full));
        assert!(list.cover(&grants("9999", "x", None), 200));
        assert_eq!(more("", 300), Err(Refused::Name));
        assert_eq!(more(&"x".repeat(NAME_BYTES + 1), 300), Err(Refused::Name));
        let unlimited = Revocations::default().add(Target::Token("t".into()), 0, None, 100);
        assert_eq!(unlimited, Ok(100 + LONGEST_S), "as long as a token may hold");
    }
}
