//! Clients of a server: bots and browsers, their places there, and the links before them.

pub mod bot;
pub mod canary;
mod janus;
pub mod link;
mod livekit;
pub(crate) mod login;
mod sdp;
pub(crate) mod seat;
pub mod signaling;
pub mod whip;

use crate::base::Url;
use seat::{Adapter, Incoming, Seat, SignalingError};
use signaling::Signaling;
use tokio::sync::mpsc;
use wire::room::AudioTopology;

pub(crate) use livekit::keys as livekit_keys;

/// A server as people enter it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Server {
    /// What it speaks.
    pub adapter: Adapter,
    /// Where it answers.
    pub url: Url,
    /// Where it takes and gives streams, if it speaks WHIP.
    pub paths: whip::Paths,
}

/// Connects to a server, for a room that does with sound what `audio` says; `linked`: for somebody before whom a link
/// stands. The receiver gives what comes without being asked for; when it ends, the connection is gone.
///
/// # Errors
/// No connection, or the server does not speak as its adapter says.
pub(crate) async fn take_seat(
    server: &Server,
    audio: AudioTopology,
    linked: bool,
) -> Result<(Box<dyn Seat>, mpsc::Receiver<Incoming>), SignalingError> {
    let target = &server.url;
    Ok(match server.adapter {
        Adapter::Moim | Adapter::SocketCluster => {
            let (signaling, incoming) = Signaling::connect(&target.socket()).await?;
            (Box::new(signaling), incoming)
        }
        Adapter::Janus => janus::take_seat(target, audio, linked).await?,
        Adapter::LiveKit => livekit::take_seat(target, linked),
        Adapter::Whip => whip::take_seat(target, &server.paths, linked),
    })
}

/// Checks that a server speaks as its adapter says, and lets people in.
///
/// # Errors
/// As of [`take_seat`].
pub(crate) async fn reach(server: &Server, audio: AudioTopology) -> Result<(), SignalingError> {
    match server.adapter {
        Adapter::LiveKit => livekit::reach(&server.url).await,
        Adapter::Whip => whip::reach(&server.url).await,
        _ => take_seat(server, audio, false).await.map(drop),
    }
}
