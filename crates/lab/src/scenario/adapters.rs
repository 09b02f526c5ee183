//! What servers of others have not, or their adapters do not reach.

use super::rooms::RoomGroup;
use crate::clients::bot::words::{AudioSource, Media, VideoSource};
use crate::clients::seat::Adapter;
use rtp::Protocol;
use settings::Section;
use wire::room::{AudioTopology, VideoTopology};

/// What a scenario asks of its target.
#[derive(Debug, Clone, Copy)]
pub(super) struct Asked<'a> {
    pub(super) rooms: &'a [RoomGroup],
    pub(super) media: Media,
    pub(super) protocol: Protocol,
    /// Whether there are sockets without rooms.
    pub(super) sockets: bool,
}

pub(super) fn check(root: &mut Section<'_>, adapter: Adapter, scenario: Asked<'_>) {
    match adapter {
        Adapter::Moim => {}
        Adapter::Janus => {
            check_janus(root, scenario);
            check_common(root, scenario, "Janus");
        }
        Adapter::LiveKit => {
            check_livekit(root, scenario);
            check_common(root, scenario, "LiveKit");
        }
        Adapter::Whip => {
            check_whip(root, scenario);
            check_common(root, scenario, "a server of streams");
        }
        // A server of sockets alone.
        Adapter::SocketCluster if !scenario.rooms.is_empty() => {
            let cure = "write `sockets` alone, or another adapter";
            root.fault("rooms", "a SocketCluster server has no rooms", cure);
        }
        Adapter::SocketCluster => {}
    }
}

/// What is of moim's rooms alone.
fn check_common(root: &mut Section<'_>, scenario: Asked<'_>, server: &str) {
    let mut refuse = |key: &str, what: String, cure: String| root.fault(key, what, cure);
    if scenario.rooms.iter().any(|room| room.chromium > 0) {
        let what = "browsers enter moim's rooms alone".to_owned();
        refuse("rooms", what, format!("write bots alone for {server}"));
    }
    let silent = |room: &RoomGroup| room.roles.iter().any(|role| role.lacks.sound);
    if scenario.rooms.iter().any(silent) {
        let what = format!("{server} offers lines for sound, and bots take them");
        refuse("rooms", what, "leave sound out of `lacks`".to_owned());
    }
    if scenario.sockets {
        let what = format!("{server} has no realtime sockets");
        refuse("sockets", what, format!("leave them out for {server}"));
    }
    if scenario.protocol == Protocol::Tcp {
        refuse("media", format!("bots reach {server} by udp alone"), "write udp".into());
    }
    if scenario.rooms.iter().any(|room| room.ahead.is_some()) {
        let what = format!("{server} does not have moim's HTTP API");
        refuse("rooms", what, format!("leave `create` out for {server}"));
    }
}

fn check_janus(root: &mut Section<'_>, scenario: Asked<'_>) {
    let mut refuse = |key: &str, what: &str, cure: &str| root.fault(key, what, cure);
    let has = |room: &RoomGroup| match room.audio {
        AudioTopology::Sfu => room.video != VideoTopology::Mesh,
        AudioTopology::Mcu => room.video == VideoTopology::None,
        AudioTopology::Mesh => false,
    };
    if !scenario.rooms.iter().all(has) {
        let cure = "write sfu, or `audio: mcu` with `video: none`";
        refuse("rooms", "a room of Janus forwards sound and pictures, or mixes sound", cure);
    }
    let mixes = |room: &RoomGroup| room.audio == AudioTopology::Mcu;
    if scenario.media.audio == AudioSource::Tone && scenario.rooms.iter().any(mixes) {
        let what =
            "an AudioBridge of Janus mixes everybody, and of tones only the loudest may be heard";
        refuse("media", what, "write speech");
    }
    if scenario.media.video == VideoSource::Simulcast {
        refuse("media", "nobody chooses layers of a VideoRoom of Janus", "write 480p");
    }
}

fn forwards(room: &RoomGroup) -> bool {
    room.audio == AudioTopology::Sfu && room.video != VideoTopology::Mesh
}

fn check_whip(root: &mut Section<'_>, scenario: Asked<'_>) {
    if !scenario.rooms.iter().all(forwards) {
        let what = "streams are forwarded, and neither mixed nor a mesh";
        root.fault("rooms", what, "write `audio: sfu`, and sfu or none for `video`");
    }
    if scenario.media.video == VideoSource::Simulcast {
        root.fault("media", "nobody chooses layers of a stream by WHEP", "write 480p");
    }
}

fn check_livekit(root: &mut Section<'_>, scenario: Asked<'_>) {
    if !scenario.rooms.iter().all(forwards) {
        let what = "a room of LiveKit forwards sound and pictures, and neither mixes nor is a mesh";
        root.fault("rooms", what, "write `audio: sfu`, and sfu or none for `video`");
    }
}
