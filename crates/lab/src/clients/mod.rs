//! Clients of a server: bots and browsers, their places there, and the links before them.

pub mod bot;
pub mod canary;
mod janus;
pub mod link;
mod livekit;
pub(crate) mod login;
pub(crate) mod seat;
pub mod signaling;

use crate::base::Url;
use seat::{Adapter, Incoming, Seat, SignalingError};
use signaling::Signaling;
use tokio::sync::mpsc;
use wire::room::AudioTopology;

/// Connects to a server, for a room that does with sound what `audio` says; `linked`: for somebody before whom a link
/// stands. The receiver gives what comes without being asked for; when it ends, the connection is gone.
///
/// # Errors
/// No connection, or the server does not speak as its adapter says.
pub(crate) async fn take_seat(
    adapter: Adapter,
    target: &Url,
    audio: AudioTopology,
    linked: bool,
) -> Result<(Box<dyn Seat>, mpsc::Receiver<Incoming>), SignalingError> {
    Ok(match adapter {
        Adapter::Moim | Adapter::SocketCluster => {
            let (signaling, incoming) = Signaling::connect(&target.socket()).await?;
            (Box::new(signaling), incoming)
        }
        Adapter::Janus => janus::take_seat(target, audio).await?,
        Adapter::LiveKit => livekit::take_seat(target, linked),
    })
}

/// Checks that a server speaks as its adapter says, and lets people in.
///
/// # Errors
/// As of [`take_seat`].
pub(crate) async fn reach(
    adapter: Adapter,
    target: &Url,
    audio: AudioTopology,
) -> Result<(), SignalingError> {
    match adapter {
        Adapter::LiveKit => livekit::reach(target).await,
        _ => take_seat(adapter, target, audio, false).await.map(drop),
    }
}
