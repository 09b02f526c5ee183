//! The layers of pictures (simulcast): which there are, and which of them somebody wants.

use super::effects::Notice;
use super::person::Person;
use super::publish::Published;
use crate::command::TrackKey;
use rtp::negotiated::Negotiated;

/// Notes how large the layers of these tracks are, the smallest first. What was not announced stays as the SDP has it.
pub(super) fn sizes(negotiated: &mut Negotiated, published: &[Published]) {
    for line in &mut negotiated.lines {
        let Some(track) = published.iter().find(|track| track.mid == line.mid) else { continue };
        for layer in &mut line.layers {
            let announced = track.layers.iter().find(|(rid, _)| *rid == layer.rid);
            layer.pixels = announced.map_or(0, |(_, pixels)| *pixels);
        }
        if line.layers.iter().all(|layer| layer.pixels > 0) {
            line.layers.sort_by_key(|layer| layer.pixels);
        }
    }
}

/// The highest layer of a track that somebody wants changed: what its publisher is told.
pub(super) fn wanted(publisher: &mut Person, track: TrackKey, layer: u8) -> Option<Notice> {
    let person = publisher.key;
    let known = publisher.tracks.iter_mut().find(|known| known.key == track)?;
    let changed = known.layer.replace(layer) != Some(layer);
    changed.then_some(Notice::Layers { person, track, layer })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rtp::negotiated::Layer;

    #[test]
    fn layers_stand_by_their_size_if_all_are_announced() {
        let layer = |rid: &str| Layer { rid: rid.into(), ids: None, pixels: 0 };
        let line = super::super::tests::line_with(vec![layer("f"), layer("h"), layer("q")]);
        let mut negotiated = Negotiated { lines: vec![line] };
        let mut published = super::super::tests::published("v", TrackKey(1));
        published.layers = vec![("q".into(), 100), ("f".into(), 1600)];
        let rids = |negotiated: &Negotiated| {
            negotiated.lines[0].layers.iter().map(|l| l.rid.clone()).collect::<String>()
        };
        sizes(&mut negotiated, std::slice::from_ref(&published));
        assert_eq!(rids(&negotiated), "fhq", "one is not known");
        published.layers.push(("h".into(), 400));
        sizes(&mut negotiated, &[published]);
        assert_eq!(rids(&negotiated), "qhf");
    }
}
