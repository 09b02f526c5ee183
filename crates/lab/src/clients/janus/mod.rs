//! The adapter for Janus (1.x): real WebRTC, in Janus' own words. Rooms that forward are of its VideoRoom plugin,
//! rooms that mix of its AudioBridge. Rooms are made by whoever comes first.

mod audio_bridge;
mod entrance;
mod session;
mod video_room;

use crate::base::Url;
use crate::clients::seat::{Incoming, Seat, SignalingError};
use audio_bridge::AudioBridge;
use tokio::sync::mpsc;
use video_room::VideoRoom;
use wire::room::AudioTopology;

/// Takes a seat at the plugin whose rooms do with sound what `audio` says; `linked`: for somebody before whom a link stands.
///
/// # Errors
/// No connection, or Janus has not this plugin.
pub async fn take_seat(
    target: &Url,
    audio: AudioTopology,
    linked: bool,
) -> Result<(Box<dyn Seat>, mpsc::Receiver<Incoming>), SignalingError> {
    Ok(match audio {
        AudioTopology::Mcu => {
            let (room, incoming) = AudioBridge::connect(target, linked).await?;
            (Box::new(room), incoming)
        }
        AudioTopology::Sfu | AudioTopology::Mesh => {
            let (room, incoming) = VideoRoom::connect(target, linked).await?;
            (Box::new(room), incoming)
        }
    })
}

#[cfg(test)]
mod tests;
