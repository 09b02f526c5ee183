//! The boundary to a server's signaling: how somebody enters a room there and gets his media,
//! whatever words that server has for it. A further server is a further [`Seat`].

use crate::janus::VideoRoom;
use crate::scenario::{Adapter, Url};
use crate::signaling::{Incoming, Signaling, SignalingError};
use futures_util::future::BoxFuture;
use tokio::sync::mpsc;
use wire::room::{
    Announce, Announced, Answer, Join, Joined, Offer, PeerDescription, Resume, Resumed,
};
use wire::{ErrorCode, QualitySample, RoomError};

/// What a call comes to.
pub type Asked<'a, T> = BoxFuture<'a, Result<T, SignalingError>>;

/// Somebody's place at a server. Dropping it closes the connection.
///
/// Where a server has no slots ([`Adapter::offers_each`]), each publisher's tracks come as an offer
/// of their own, [`wire::Event::PeerOffer`], which [`Seat::peer_answer`] answers; what its person
/// sends goes by [`Seat::offer`] in all cases.
///
/// Errors of all calls: refused, no answer in time, closed, or an answer of another shape.
pub trait Seat: Send + Sync {
    /// Enters a room. The others' tracks are in the answer or come as events.
    fn join<'a>(&'a self, join: &'a Join) -> Asked<'a, Joined>;
    /// Negotiates what is sent, and what is received where the server has slots.
    fn offer<'a>(&'a self, offer: &'a Offer) -> Asked<'a, Answer>;
    /// Answers an offer that came as an event.
    fn peer_answer<'a>(&'a self, answer: &'a PeerDescription) -> Asked<'a, ()>;
    /// Leaves the room.
    fn leave(&self) -> Asked<'_, ()>;

    /// Says what is sent where media does not pass the server.
    fn announce<'a>(&'a self, _: &'a Announce) -> Asked<'a, Announced> {
        Box::pin(async { Err(no_mesh()) })
    }
    /// Offers a connection to another member of a mesh.
    fn peer_offer<'a>(&'a self, _: &'a PeerDescription) -> Asked<'a, ()> {
        Box::pin(async { Err(no_mesh()) })
    }
    /// Takes up a participant whose connection was lost.
    fn resume<'a>(&'a self, _: &'a Resume) -> Asked<'a, Resumed> {
        let gone = RoomError::new(ErrorCode::Gone, "this server keeps no place for whom it lost");
        Box::pin(async move { Err(SignalingError::Refused(gone)) })
    }
    /// Posts a quality sample, where the server takes them.
    fn quality_sample<'a>(&'a self, _: &'a QualitySample) -> Asked<'a, ()> {
        Box::pin(async { Ok(()) })
    }
}

fn no_mesh() -> SignalingError {
    SignalingError::Malformed("this server has no mesh".into())
}

/// Connects to a server. The receiver gives what comes without being asked for; when it ends, the
/// connection is gone.
///
/// # Errors
/// No connection, or the server does not speak as its adapter says.
pub async fn take(
    adapter: Adapter,
    target: &Url,
) -> Result<(Box<dyn Seat>, mpsc::Receiver<Incoming>), SignalingError> {
    Ok(match adapter {
        Adapter::Moim => {
            let (signaling, incoming) = Signaling::connect(&target.socket()).await?;
            (Box::new(signaling), incoming)
        }
        Adapter::Janus => {
            let (room, incoming) = VideoRoom::connect(target).await?;
            (Box::new(room), incoming)
        }
    })
}

impl Seat for Signaling {
    fn join<'a>(&'a self, join: &'a Join) -> Asked<'a, Joined> {
        Box::pin(self.join(join))
    }
    fn offer<'a>(&'a self, offer: &'a Offer) -> Asked<'a, Answer> {
        Box::pin(self.offer(offer))
    }
    fn peer_answer<'a>(&'a self, answer: &'a PeerDescription) -> Asked<'a, ()> {
        Box::pin(self.peer_answer(answer))
    }
    fn leave(&self) -> Asked<'_, ()> {
        Box::pin(self.leave())
    }
    fn announce<'a>(&'a self, announce: &'a Announce) -> Asked<'a, Announced> {
        Box::pin(self.announce(announce))
    }
    fn peer_offer<'a>(&'a self, offer: &'a PeerDescription) -> Asked<'a, ()> {
        Box::pin(self.peer_offer(offer))
    }
    fn resume<'a>(&'a self, resume: &'a Resume) -> Asked<'a, Resumed> {
        Box::pin(self.resume(resume))
    }
    fn quality_sample<'a>(&'a self, sample: &'a QualitySample) -> Asked<'a, ()> {
        Box::pin(self.quality_sample(sample))
    }
}
