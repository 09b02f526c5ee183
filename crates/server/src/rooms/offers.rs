//! How much SDP a socket may have negotiated: the longer an offer, the more time its answer costs the control thread,
//! and all participants of a shard share one. And how much a member of a mesh may have passed on to others.

use super::locked;
use crate::config::Limits;
use engine::Bucket;
use engine::limits::MAX_TRACKS_EACH;
use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Instant;
use wire::{ErrorCode, RoomError};

/// Bytes of offers that may come at once: enough for a pool that grows to its full size in steps, or for three of the
/// longest offers.
const BYTES_AT_ONCE: u32 = 576 << 10;
/// Bytes a second in the long run: about one of the longest.
const BYTES_A_SECOND: u32 = 160 << 10;
/// An offer counts as this many bytes at least: the transport that a first one makes has its cost too.
const LEAST_BYTES: u32 = 16 << 10;

/// Bytes that a member of a mesh may have passed on at once: offers and candidates for all others, when they come in or
/// their network changes. Less than half of an outbox of the default size: half is what
/// [`Socket::has_room_for`](crate::socket::Socket) gives all members together.
const PASSED_AT_ONCE: u32 = 384 << 10;
/// Bytes a second of them in the long run.
const PASSED_A_SECOND: u32 = 32 << 10;
/// What is passed on counts as this many bytes at least.
const PASSED_LEAST: u32 = 512;

/// What each socket has left. It stays with the socket, so that nobody gains by leaving and joining again.
#[derive(Debug, Default)]
struct Shares(Mutex<HashMap<u64, Bucket>>);

impl Shares {
    fn take(&self, socket: u64, bytes: u32, at_once: u32, a_second: u32) -> bool {
        let now = Instant::now();
        let mut by_socket = locked(&self.0);
        let bucket = by_socket.entry(socket).or_insert_with(|| Bucket::new(at_once, a_second, now));
        bucket.take(bytes, now)
    }

    fn forget(&self, socket: u64) {
        locked(&self.0).remove(&socket);
    }
}

/// Offers to the server.
#[derive(Debug, Default)]
pub(super) struct Budgets(Shares);

impl Budgets {
    /// Takes an offer's share of the budget, after a cheap look at its size.
    ///
    /// # Errors
    /// It is too long, has more lines than anybody may have, or comes too soon.
    pub(super) fn take(&self, socket: u64, sdp: &str, limits: &Limits) -> Result<(), RoomError> {
        check_size(sdp, limits)?;
        let bytes = (sdp.len() as u32).max(LEAST_BYTES);
        if self.0.take(socket, bytes, BYTES_AT_ONCE, BYTES_A_SECOND) {
            return Ok(());
        }
        let text = "too many offers in a short time: offer again in a second";
        Err(RoomError::new(ErrorCode::TooFast, text))
    }

    /// A socket is gone.
    pub(super) fn forget(&self, socket: u64) {
        self.0.forget(socket);
    }
}

/// Descriptions and candidates that members of a mesh have passed on.
#[derive(Debug, Default)]
pub(super) struct Passing(Shares);

impl Passing {
    /// Takes the share of one.
    ///
    /// # Errors
    /// It comes too soon after others.
    pub(super) fn take(&self, socket: u64, bytes: usize) -> Result<(), RoomError> {
        let bytes = (bytes as u32).max(PASSED_LEAST);
        if self.0.take(socket, bytes, PASSED_AT_ONCE, PASSED_A_SECOND) {
            return Ok(());
        }
        let text =
            "too many descriptions and candidates in a short time: send this one again in a second";
        Err(RoomError::new(ErrorCode::TooFast, text))
    }

    /// A socket is gone.
    pub(super) fn forget(&self, socket: u64) {
        self.0.forget(socket);
    }
}

fn check_size(sdp: &str, limits: &Limits) -> Result<(), RoomError> {
    if sdp.len() > limits.sdp_bytes {
        let text = format!(
            "the SDP has {} bytes, at most {} are taken: offer fewer slots, one codec each",
            sdp.len(),
            limits.sdp_bytes
        );
        return Err(RoomError::new(ErrorCode::BadSdp, text));
    }
    let most = (limits.audio_slots + limits.video_slots) as usize + MAX_TRACKS_EACH;
    let lines = sdp.split('\n').filter(|line| line.starts_with("m=")).take(most + 1).count();
    if lines > most {
        let text = format!(
            "the SDP has more than {most} lines of media: offer at most {} slots for sound, {} for \
             pictures and {MAX_TRACKS_EACH} tracks, and use lines again",
            limits.audio_slots, limits.video_slots
        );
        return Err(RoomError::new(ErrorCode::BadSdp, text));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(result: Result<(), RoomError>) -> Option<ErrorCode> {
        result.err().map(|error| error.code)
    }

    #[test]
    fn lines_are_bounded_by_slots_and_tracks() {
        let limits = Limits { audio_slots: 2, video_slots: 3, ..Limits::default() };
        let sdp = |lines: usize| format!("v=0\r\n{}", "m=audio 9 x\r\na=mid:m=\r\n".repeat(lines));
        let most = 2 + 3 + MAX_TRACKS_EACH;
        assert_eq!(code(check_size(&sdp(most), &limits)), None);
        assert_eq!(code(check_size(&sdp(most + 1), &limits)), Some(ErrorCode::BadSdp));
        let long = "x".repeat(limits.sdp_bytes);
        assert_eq!(code(check_size(&long, &limits)), None);
        assert_eq!(code(check_size(&(long + "x"), &limits)), Some(ErrorCode::BadSdp));
    }

    #[test]
    fn a_socket_offers_a_few_at_once_and_others_beside_it() {
        let (budgets, limits) = (Budgets::default(), Limits::default());
        let long = "x".repeat(150_000);
        let taken =
            |socket| (0..50).filter(|_| budgets.take(socket, &long, &limits).is_ok()).count();
        assert_eq!(taken(1), 3);
        assert_eq!(code(budgets.take(1, &long, &limits)), Some(ErrorCode::TooFast));
        assert_eq!(taken(2), 3, "another socket has its own");
        let short = (0..100).filter(|_| budgets.take(3, "v=0", &limits).is_ok()).count();
        assert!((30..50).contains(&short), "{short}");
        budgets.forget(1);
        assert_eq!(taken(1), 3, "a number is never used twice");
        // A pool that grows to its full size in steps of eight slots, a kilobyte a line.
        let pool =
            (1..=10).all(|step| budgets.take(4, &"x".repeat(step * 8 * 1024), &limits).is_ok());
        assert!(pool);
    }

    #[test]
    fn a_member_of_a_mesh_passes_on_what_a_call_needs_and_no_flood() {
        let passing = Passing::default();
        // 31 others: an offer of 8 kB and ten candidates for each.
        for _ in 0..31 {
            assert_eq!(code(passing.take(1, 8 << 10)), None);
        }
        assert!((0..200).all(|_| passing.take(1, 200).is_ok()));
        let flood = (0..100).filter(|_| passing.take(2, 100_000).is_ok()).count();
        assert_eq!(flood, 3);
        assert_eq!(code(passing.take(2, 100_000)), Some(ErrorCode::TooFast));
        passing.forget(2);
        assert_eq!(code(passing.take(2, 100_000)), None);
    }
}
