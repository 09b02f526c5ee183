//! How many files a process may open.

use rustix::process::{Resource, getrlimit, setrlimit};

/// Lets this process, and those that it starts later, open as many files as allowed. Returns how many that are; none:
/// as many as it likes.
pub(crate) fn raise_limit() -> Option<u64> {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // If it fails the limit stays, and a connection that does not come up tells so.
    let _ = setrlimit(Resource::Nofile, limit);
    getrlimit(Resource::Nofile).current
}
