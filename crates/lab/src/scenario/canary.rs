//! What a scenario says of its browsers.

use crate::clients::canary::WINDOW;
use serde_json::json;
use settings::{Section, boolean, duration, number, one_of, parsed};
use std::time::Duration;

/// How browsers take part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Canary {
    /// Videos that a browser shows.
    pub show: u32,
    /// The size of its camera's picture, as the page names it; none: it sends no picture.
    pub camera: Option<&'static str>,
    /// Pictures a second of its camera; none: as many as the browser's own fake camera has (20).
    pub frames_per_second: Option<u32>,
    /// The size of its window, in pixels.
    pub window: (u32, u32),
    /// The least jitter buffer of its sound, in ms; none: as the browser likes.
    pub jitter_buffer_ms: Option<u32>,
    /// Whether its camera shows a time code, and it reads those of others.
    pub time_code: bool,
}

const CAMERAS: [(&str, Option<&str>); 6] = [
    ("none", None),
    ("180p", Some("180p")),
    ("360p", Some("360p")),
    ("480p", Some("480p")),
    ("720p", Some("720p")),
    ("1080p", Some("1080p")),
];

/// Reads it; a `camera` that is not said has the size that goes with what bots send.
pub(super) fn decode(canary: &mut Section<'_>, camera: &'static str) -> Canary {
    let buffer = duration(Duration::ZERO..=Duration::from_secs(4));
    let buffer = canary.read("jitter_buffer", buffer).optional();
    let window = parsed("a size in pixels, such as 640x360", size);
    let window = window.like(json!({ "type": "string", "pattern": "^[0-9]{3,4}x[0-9]{3,4}$" }));
    Canary {
        show: canary.read("show", number(0..=100)).or(4),
        camera: canary.read("camera", one_of(&CAMERAS)).or(Some(camera)),
        frames_per_second: canary.read("frames_per_second", number(5..=60u32)).optional(),
        window: canary.read("window", window).or(WINDOW),
        jitter_buffer_ms: buffer.map(|buffer: Duration| buffer.as_millis() as u32),
        time_code: canary.read("time_code", boolean()).or(false),
    }
}

fn size(text: &str) -> Result<(u32, u32), String> {
    let side = |side: &str| side.parse().ok().filter(|side| (200..=4000u32).contains(side));
    let size = text.split_once('x').and_then(|(width, height)| Some((side(width)?, side(height)?)));
    size.ok_or_else(|| format!("{text:?} is no size of 200 to 4000 pixels each way"))
}
