//! What the media lines of an SDP say.

use wire::room::MediaKind;

/// A media line that has a mid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Line {
    pub(super) mid: String,
    /// None: neither sound nor picture.
    pub(super) kind: Option<MediaKind>,
    /// Whether something is sent there.
    pub(super) sends: bool,
    /// Stream and track of its `a=msid`, if something is sent.
    pub(super) msid: Option<(String, String)>,
}

/// All of them, in order.
pub(super) fn lines(sdp: &str) -> Vec<Line> {
    sdp.split("\nm=").skip(1).filter_map(line).collect()
}

fn line(section: &str) -> Option<Line> {
    let value = |name: &str| section.lines().find_map(|line| line.trim_end().strip_prefix(name));
    let has = |line: &str| value(line) == Some("");
    let mut words = section.split(' ');
    let kind = match words.next() {
        Some("audio") => Some(MediaKind::Audio),
        Some("video") => Some(MediaKind::Video),
        _ => None,
    };
    // Port 0 refuses a line, unless that goes with others (RFC 9143, section 6).
    let refused = words.next() == Some("0") && !has("a=bundle-only");
    let sends = !refused && !has("a=inactive") && !has("a=recvonly");
    let msid = value("a=msid:").filter(|_| sends).and_then(|msid| msid.split_once(' '));
    let msid = msid.map(|(stream, track)| (stream.to_owned(), track.to_owned()));
    Some(Line { mid: value("a=mid:")?.to_owned(), kind, sends, msid })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SDP: &str = "v=0\r\nm=audio 9 UDP/TLS/RTP/SAVPF 111\r\na=mid:0\r\na=sendonly\r\na=msid:s t\r\n\
                       m=video 9 UDP/TLS/RTP/SAVPF 96\r\na=mid:1\r\na=inactive\r\na=msid:s u\r\n\
                       m=application 9 UDP/DTLS/SCTP webrtc-datachannel\r\na=mid:2\r\n";

    #[test]
    fn lines_tell_what_they_send() {
        let told: Vec<_> =
            lines(SDP).into_iter().map(|one| (one.kind, one.sends, one.msid)).collect();
        let msid = Some(("s".to_owned(), "t".to_owned()));
        let (audio, video) = (Some(MediaKind::Audio), Some(MediaKind::Video));
        assert_eq!(told, [(audio, true, msid), (video, false, None), (None, true, None)]);
    }

    #[test]
    fn port_0_refuses_a_line_that_is_alone() {
        let refused = SDP.replace("m=audio 9", "m=audio 0");
        assert!(!lines(&refused)[0].sends);
        let with_others = refused.replace("a=mid:0\r\n", "a=mid:0\r\na=bundle-only\r\n");
        assert!(lines(&with_others)[0].sends);
    }
}
