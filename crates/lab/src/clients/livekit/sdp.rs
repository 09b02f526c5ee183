//! What an SDP says of tracks.

/// A line of an SDP with a track.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Line {
    /// The stream of its `a=msid`…
    pub(super) stream: String,
    /// …and the track.
    pub(super) track: String,
}

/// All media lines in order: by mid, and what is sent there, if anything is.
pub(super) fn lines(sdp: &str) -> Vec<(String, Option<Line>)> {
    let sections = sdp.split("\nm=").skip(1);
    let line = |section: &str| {
        let value =
            |name: &str| section.lines().find_map(|line| line.trim_end().strip_prefix(name));
        let mid = value("a=mid:")?.to_owned();
        let sends = !["a=inactive", "a=recvonly"].iter().any(|way| value(way) == Some(""));
        let msid = value("a=msid:").filter(|_| sends).and_then(|msid| msid.split_once(' '));
        let line =
            msid.map(|(stream, track)| Line { stream: stream.to_owned(), track: track.to_owned() });
        Some((mid, line))
    };
    sections.filter_map(line).collect()
}

/// The participant of a stream that LiveKit names `PA_…|…`.
pub(super) fn participant(stream: &str) -> &str {
    stream.split('|').next().unwrap_or(stream)
}
