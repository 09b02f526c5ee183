//! Readers of text.

use lab::scenario::Scenario;
use lab::sockets::frame::{self as websocket_frame, Frame};
use server::config::Config;
use server::socket::frame::{Packet, packets};
use std::path::Path;
use wire::error::MAX_MESSAGE_BYTES;
use wire::{ErrorCode, RoomError};

/// A frame of a socket: its packets are parts of it, and what is wrong is told in a bounded message.
pub fn socket(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let check = |message: &str| {
        let told = RoomError::new(ErrorCode::BadRequest, message).message;
        assert!(told.len() <= MAX_MESSAGE_BYTES, "a message of {} bytes", told.len());
    };
    let all = match packets(&text) {
        Ok(all) => all,
        Err(bad) => return check(&bad.message),
    };
    let mut count = 0;
    for packet in all {
        count += 1;
        match packet {
            Ok(Packet::Request(request)) => {
                assert!(request.event.len() <= text.len());
                assert!(request.data.is_none_or(|data| text.contains(data.get())));
            }
            Ok(Packet::Answer { result, .. }) => {
                let (Ok(data) | Err(data)) = result.map_err(Some);
                assert!(data.is_none_or(|data| text.contains(data.get())));
            }
            Err(bad) => check(&bad.message),
        }
    }
    assert!(count <= 1 + text.len() / 2);
}

/// What the lab reads of a server: WebSocket frames and the packets in them.
pub fn websocket(data: &[u8]) {
    let mut rest = data;
    while let Ok(Some((frame, length))) = websocket_frame::next(rest) {
        assert!(length >= 2 && length <= rest.len());
        if let Frame::Text(text) = frame {
            let mut count = 0;
            websocket_frame::packets(text, |_| count += 1);
            assert!(count <= 1 + text.len() / 2);
        }
        rest = &rest[length..];
    }
    let mut out = Vec::new();
    websocket_frame::text(&mut out, data, 0x0102_0304);
    assert!(websocket_frame::next(&out).is_err(), "a client's frame is no server's");
}

/// The server's settings.
pub fn settings(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    match Config::parse(&text, "fuzz.yaml", Path::new("/nonexistent")) {
        Ok(config) => {
            let ports = usize::from(config.media.port) + config.media.shards;
            assert!(config.media.shards > 0 && (config.media.port == 0 || ports <= 65536));
            assert!(
                !config.http.bind.is_empty()
                    && !config.media.bind.is_empty()
                    && !config.development
            );
        }
        Err(problems) => told(&problems, &text),
    }
}

/// A scenario of the lab.
pub fn scenario(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    match Scenario::parse(&text, "fuzz.yaml") {
        Ok(scenario) => {
            assert!(u64::from(scenario.bots()) + u64::from(scenario.browsers()) <= 1_000_000);
            for room in &scenario.rooms {
                let dealt = room.deal(1).len();
                assert!(dealt == 0 || dealt == room.bots as usize);
            }
        }
        Err(problems) => told(&problems, &text),
    }
}

/// Every problem has a place in the text and says something.
fn told(problems: &settings::Problems, text: &str) {
    assert!(!problems.list().is_empty() && problems.list().len() <= 101);
    let lines = 1 + text.matches(['\n', '\r']).count() - text.matches("\r\n").count();
    for problem in problems.list() {
        assert!(problem.line <= lines, "{problem:?} in {lines} lines");
        assert!(!problem.what.is_empty() && problem.what.len() <= 2000 + 2 * text.len());
    }
    assert!(problems.to_string().contains("fuzz.yaml"));
}
