//! The way from rooms to a control thread: offers, and ends of transports, none of which is ever lost.
//!
//! It is bounded by what it holds: of each participant one offer, or their end in its place. Datagrams go another
//! way, where junk may crowd them out. Handing something over takes a lock for a moment and waits for nobody, so
//! that it can be done under a room's lock: then an offer and a leave stand here in the room's order.

use crate::control::ControlInput;
use engine::PersonKey;
use rtp::negotiated::Negotiated;
use std::collections::{BTreeMap, HashMap};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;
use transport::{TransportError, VideoFormat};

/// By so much for each kilobyte an offer is due later: short offers, which cost little, go before long ones that
/// came a little earlier, and no offer waits for ever.
const LATER_PER_KILOBYTE: Duration = Duration::from_millis(10);

/// What becomes of an offer: the answer's SDP and what was agreed.
pub(crate) type Answered = Result<(String, Negotiated), TransportError>;

/// An offer on its way; the first one makes the participant's transport.
#[derive(Debug)]
pub(crate) struct Offer {
    /// Whose.
    pub person: PersonKey,
    /// The SDP.
    pub sdp: String,
    /// The room's video codec, if it has video.
    pub video: Option<VideoFormat>,
    /// Where the answer goes.
    pub reply: oneshot::Sender<Answered>,
}

/// Why an offer was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refused {
    /// The participant's last offer still waits.
    Waiting,
    /// The control thread has ended.
    Ended,
}

/// What a control thread takes from its lane in one round.
#[derive(Debug, Default)]
pub(crate) struct Round {
    /// Whose transports end.
    pub closed: Vec<PersonKey>,
    /// The offer that is due.
    pub offer: Option<Offer>,
    /// More offers wait.
    pub more: bool,
    /// The thread shall end.
    pub stop: bool,
}

/// What rooms hold of a control thread.
#[derive(Debug, Clone)]
pub(crate) struct ControlHandle {
    lane: Lane,
    inputs: SyncSender<ControlInput>,
}

impl ControlHandle {
    /// For the thread that reads `lane` and the other end of `inputs`.
    pub(crate) fn new(lane: Lane, inputs: SyncSender<ControlInput>) -> Self {
        Self { lane, inputs }
    }

    /// Hands an offer over; its answer comes where the receiver is.
    ///
    /// # Errors
    /// [`Refused`] says why not.
    pub(crate) fn offer(
        &self,
        person: PersonKey,
        sdp: String,
        video: Option<VideoFormat>,
    ) -> Result<oneshot::Receiver<Answered>, Refused> {
        let (reply, answered) = oneshot::channel();
        self.lane.offer(Offer { person, sdp, video, reply }, Instant::now())?;
        self.wake();
        Ok(answered)
    }

    /// A participant is gone: their transport ends, and an offer of theirs that waits makes none.
    pub(crate) fn close(&self, person: PersonKey) {
        self.lane.close(person);
        self.wake();
    }

    /// Ends the thread.
    pub(crate) fn stop(&self) {
        self.lane.locked().stop = true;
        self.wake();
    }

    fn wake(&self) {
        // Where the queue is full the thread is awake, and looks at its lane before it sleeps.
        let _ = self.inputs.try_send(ControlInput::Look);
    }
}

/// What waits for a control thread.
#[derive(Debug, Clone, Default)]
pub(crate) struct Lane(Arc<Mutex<Waiting>>);

#[derive(Debug, Default)]
struct Waiting {
    /// By when they are due; the number tells those of the same moment apart.
    offers: BTreeMap<(Instant, u64), Offer>,
    due: HashMap<PersonKey, (Instant, u64)>,
    offered: u64,
    closed: Vec<PersonKey>,
    stop: bool,
    ended: bool,
}

impl Lane {
    fn locked(&self) -> MutexGuard<'_, Waiting> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn offer(&self, offer: Offer, now: Instant) -> Result<(), Refused> {
        let mut waiting = self.locked();
        if waiting.ended {
            return Err(Refused::Ended);
        }
        if waiting.due.contains_key(&offer.person) {
            return Err(Refused::Waiting);
        }
        waiting.offered += 1;
        let kilobytes = (offer.sdp.len() >> 10) as u32;
        let due = (now + LATER_PER_KILOBYTE * kilobytes, waiting.offered);
        waiting.due.insert(offer.person, due);
        waiting.offers.insert(due, offer);
        Ok(())
    }

    fn close(&self, person: PersonKey) {
        let mut waiting = self.locked();
        if let Some(due) = waiting.due.remove(&person) {
            waiting.offers.remove(&due);
        }
        if !waiting.ended {
            waiting.closed.push(person);
        }
    }

    /// Takes what is to be done next.
    pub(crate) fn take(&self) -> Round {
        let mut waiting = self.locked();
        let offer = waiting.offers.pop_first().map(|(_, offer)| offer);
        if let Some(offer) = &offer {
            waiting.due.remove(&offer.person);
        }
        let closed = std::mem::take(&mut waiting.closed);
        Round { closed, offer, more: !waiting.offers.is_empty(), stop: waiting.stop }
    }

    /// The thread ends: what waits gets no answer, and nothing is taken any more.
    pub(crate) fn end(&self) {
        let mut waiting = self.locked();
        *waiting = Waiting { ended: true, ..Waiting::default() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offer(person: u64, bytes: usize) -> (Offer, oneshot::Receiver<Answered>) {
        let (reply, answered) = oneshot::channel();
        let sdp = "x".repeat(bytes);
        (Offer { person: PersonKey(person), sdp, video: None, reply }, answered)
    }

    fn order(lane: &Lane) -> Vec<u64> {
        std::iter::from_fn(|| lane.take().offer).map(|offer| offer.person.0).collect()
    }

    #[test]
    fn short_offers_go_before_long_ones_and_long_ones_in_time() {
        let (lane, now) = (Lane::default(), Instant::now());
        let at = |person, bytes, ms| {
            lane.offer(offer(person, bytes).0, now + Duration::from_millis(ms)).expect("taken");
        };
        (0..20).for_each(|hostile| at(hostile, 150 << 10, hostile));
        at(100, 10 << 10, 30);
        at(101, 10 << 10, 5000);
        let hostile: Vec<u64> = (0..20).collect();
        assert_eq!(order(&lane), [&[100][..], &hostile, &[101]].concat());
    }

    #[test]
    fn a_leave_takes_a_waiting_offer_away_and_is_never_lost() {
        let lane = Lane::default();
        let (first, mut answered) = offer(1, 10);
        lane.offer(first, Instant::now()).expect("taken");
        let again = lane.offer(offer(1, 10).0, Instant::now());
        assert_eq!(again, Err(Refused::Waiting), "one a participant");
        (1..=50_000).for_each(|person| lane.close(PersonKey(person)));
        let round = lane.take();
        assert_eq!(round.closed.len(), 50_000);
        assert!(round.offer.is_none() && !round.more && !round.stop);
        assert!(answered.try_recv().is_err());
    }

    #[test]
    fn a_lane_that_has_ended_holds_nothing() {
        let lane = Lane::default();
        let (waits, mut answered) = offer(1, 10);
        lane.offer(waits, Instant::now()).expect("taken");
        lane.end();
        assert_eq!(answered.try_recv(), Err(oneshot::error::TryRecvError::Closed));
        assert_eq!(lane.offer(offer(2, 10).0, Instant::now()), Err(Refused::Ended));
        lane.close(PersonKey(2));
        assert!(lane.take().closed.is_empty());
    }
}
