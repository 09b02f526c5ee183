//! What a bot begins with: its media, and how its lines and candidates are named.

use super::shared::{Common, Says};
use crate::clients::bot::fixtures::Clip;
use crate::clients::bot::media::{BotMedia, Config, Opening};
use crate::clients::bot::spec::BotSpec;
use crate::clients::bot::talk::Talk;
use crate::clients::bot::words::{AudioSource, Media, VideoSource};
use rtp::negotiated::{Codec, Kind};
use std::sync::Arc;
use std::time::Instant;
use transport::OfferLine;
use wire::room::{ContentHint, MediaKind, OfferedLayer, OfferedTrack, VideoCodec};

/// Bots take turns to open all that comes: one in so many at a time.
const TURNS: u32 = 10;

/// The media of a bot that begins at `now`.
pub(super) fn media(common: &Common, spec: &BotSpec, says: Says, now: Instant) -> BotMedia {
    let voice = match spec.media.audio {
        AudioSource::Speech => Some(common.fixtures.voice(spec.index.wrapping_sub(1))),
        AudioSource::Steady => Some(common.fixtures.steady()),
        AudioSource::None | AudioSource::Tone => None,
    };
    let mut media = BotMedia::new(Config {
        seed: seed(common, spec),
        cname: spec.name.clone(),
        voice,
        clip: common.fixtures.clip_in(spec.media.video, rtp_codec(spec.video_codec)),
        joined: spec.link.as_ref().map_or(now, |link| link.joined),
        clock: common.clock,
        opening: Opening::InTurn { place: spec.index, of: TURNS },
    });
    media.begin_sample(now);
    if let Some(marks) = says.marks {
        media.set_marks(marks);
    }
    if let Some(talk) = spec.talk {
        media.set_talk(Talk::new(talk, common.fixtures.silence(), (common.origin, now)));
    }
    if let Some(tone) = says.tone {
        media.set_tone(tone);
    }
    media
}

/// Where all that is random of its media comes from; connections of a mesh differ by the other.
fn seed(common: &Common, spec: &BotSpec) -> u64 {
    let own = common.seed.wrapping_mul(0x1_0000_0001) ^ u64::from(spec.index);
    let other = spec.link.iter().flat_map(|link| link.other.bytes());
    other.fold(own, |seed, byte| (seed ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}

pub(super) fn rtp_kind(kind: MediaKind) -> Kind {
    match kind {
        MediaKind::Audio => Kind::Audio,
        MediaKind::Video => Kind::Video,
    }
}

fn rtp_codec(codec: VideoCodec) -> Codec {
    match codec {
        VideoCodec::Vp8 => Codec::Vp8,
        VideoCodec::H264 => Codec::H264,
        VideoCodec::Vp9 => Codec::Vp9,
        VideoCodec::Av1 => Codec::Av1,
    }
}

/// What a line of a kind sends. Tones are no voices: a mix leaves their levels as the plan has them.
pub(super) fn offered(media: Media, kind: Kind, mid: String) -> OfferedTrack {
    let content_hint = match (kind, media.audio) {
        (Kind::Audio, AudioSource::Tone) => ContentHint::Music,
        _ => ContentHint::Speech,
    };
    let (kind, name) = match kind {
        Kind::Audio => (MediaKind::Audio, "microphone"),
        Kind::Video => (MediaKind::Video, media.video.track_name()),
    };
    let name = name.into();
    OfferedTrack { mid, kind, name, opaque: false, content_hint, layers: Vec::new() }
}

/// The same with the layers of what is shown, by size, if it is sent in layers.
pub(super) fn with_layers(track: OfferedTrack, common: &Common, media: Media) -> OfferedTrack {
    let clip = common.fixtures.clip(media.video).filter(|_| track.kind == MediaKind::Video);
    let layer = |(rid, clip): (&&str, &Arc<Clip>)| OfferedLayer {
        rid: (*rid).to_owned(),
        width: clip.width,
        height: clip.height,
    };
    let layers = clip.iter().flat_map(|clip| media.video.rids().iter().zip(clip.layers()));
    OfferedTrack { layers: layers.map(layer).collect(), ..track }
}

/// The lines that a bot sends on to a server.
pub(super) fn own_lines(media: Media) -> Vec<OfferLine> {
    let audio = (media.audio != AudioSource::None).then_some((Kind::Audio, &[][..]));
    let video = (media.video != VideoSource::None).then_some((Kind::Video, media.video.rids()));
    let sent = |(kind, layers)| OfferLine { kind, send: true, layers };
    audio.into_iter().chain(video).map(sent).collect()
}

/// The addresses of an SDP's candidates, for people.
pub(super) fn candidates(sdp: &str) -> String {
    let mut addresses: Vec<String> = Vec::new();
    for line in sdp.lines().filter_map(|line| line.strip_prefix("a=candidate:")) {
        let mut fields = line.split_ascii_whitespace().skip(4);
        if let (Some(ip), Some(port)) = (fields.next(), fields.next()) {
            let address = format!("{ip}:{port}");
            if !addresses.contains(&address) && addresses.len() < 4 {
                addresses.push(address);
            }
        }
    }
    addresses.join(", ")
}
