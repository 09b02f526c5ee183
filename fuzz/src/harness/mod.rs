//! What reads bytes of strangers, each as a function that takes any bytes and asserts what must hold. The fuzz targets
//! (`fuzz/src/main.rs`, nightly) and a bounded property run on stable (`tests/fuzz.rs`) share it.

mod packets;
mod streams;
mod texts;
mod transports;
mod web;

/// One reader and how it is driven.
pub struct Target {
    /// Its name, and that of its directory under `fuzz/corpus/`.
    pub name: &'static str,
    /// Panics if a property does not hold.
    pub run: fn(&[u8]),
    /// Longest input, in bytes.
    pub max_len: usize,
    /// Inputs of the bounded run: a target's cost decides how many fit a second or two.
    pub inputs: u32,
}

const fn target(name: &'static str, run: fn(&[u8]), max_len: usize, inputs: u32) -> Target {
    Target { name, run, max_len, inputs }
}

/// All of them.
pub const TARGETS: &[Target] = &[
    target("stun", packets::stun, 1500, 100_000),
    target("rtp", packets::rtp, 1500, 100_000),
    target("srtp", packets::srtp, 1500, 100_000),
    target("rtcp", packets::rtcp, 1500, 100_000),
    target("red", packets::red, 1500, 100_000),
    target("vp8", packets::vp8, 1500, 100_000),
    target("vp9", packets::vp9, 1500, 100_000),
    target("dependency", packets::dependency, 1500, 20_000),
    target("h264", packets::h264, 1500, 100_000),
    target("framing", streams::framing, 4096, 50_000),
    target("sequences", streams::sequences, 1024, 4_000),
    target("datagrams", transports::datagrams, 8192, 1_000),
    target("handshake", transports::handshake, 4096, 150),
    target("sdp", transports::sdp, 16_384, 500),
    target("answer", transports::answer, 16_384, 2_000),
    target("http2", web::http2, 8192, 400),
    target("socket", texts::socket, 8192, 50_000),
    target("websocket", texts::websocket, 8192, 50_000),
    target("settings", texts::settings, 8192, 2_000),
    target("scenario", texts::scenario, 8192, 2_000),
];
