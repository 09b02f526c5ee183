//! The scenarios of the study's rooms.

/// A room of bots who speak and show; `serve` says where, if the scenario does.
pub(super) fn scenario(serve: &str, seconds: u32, people: u32, media: &str) -> String {
    room(serve, seconds, (people, 0), media)
}

/// The same room with a browser that looks at one of them, and sends sound but no picture: its room is as large as its bots
/// make it.
pub(super) fn with_canary(serve: &str, seconds: u32, people: u32, media: &str) -> String {
    room(serve, seconds, (people, 1), media) + "canary: { show: 1, camera: none }\n"
}

fn room(serve: &str, seconds: u32, (bots, browsers): (u32, u32), media: &str) -> String {
    format!(
        "{serve}duration: {seconds}s\nrooms: [{{ audio: sfu, video: sfu, people: {{ bot: {bots}, chromium: {browsers} }} \
         }}]\nmedia: {{ audio: speech, {media} }}\njoin: {{ per_second: 5 }}\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::Scenario;

    #[test]
    fn the_canary_looks_on_and_adds_no_picture() {
        let text = with_canary("serve: {}\n", 60, 10, "video: light-1080p");
        let scenario = Scenario::parse(&format!("name: x\n{text}"), "x").expect("valid");
        assert_eq!((scenario.bots(), scenario.chromium()), (10, 1));
        assert_eq!((scenario.canary.show, scenario.canary.camera), (1, None));
        let text = self::scenario("serve: {}\n", 60, 30, "video: light-1080p, transport: tcp");
        let scenario = Scenario::parse(&format!("name: x\n{text}"), "x").expect("valid");
        assert_eq!((scenario.bots(), scenario.chromium()), (30, 0));
    }
}
