//! Reading what was agreed from an offer and its answer.
//!
//! str0m parses, validates and answers; this reads the lines that media needs from the two texts,
//! in the same way on both sides: everything agreed stands in the answer, SSRCs in both.

use crate::lacks::Lacks;
use rtp::negotiated::{
    Codec, Direction, Extensions, Kind, Layer, Line, MOST_LAYERS, Negotiated, StreamIds,
};

/// Of the levels of sound (RFC 6464).
const LEVELS: &str = "urn:ietf:params:rtp-hdrext:ssrc-audio-level";
/// Of the numbers that transport-wide feedback is about.
pub(crate) const TRANSPORT_SEQUENCE: &str =
    "http://www.ietf.org/id/draft-holmer-rmcat-transport-wide-cc-extensions-01";

/// Longest SDP taken, in bytes: a pool of 200 slots in a browser's wordiest form is about 480 kB,
/// ours is limited to one codec a line.
pub const MAX_SDP_BYTES: usize = 512 * 1024;
/// Most m-lines taken.
pub const MAX_SDP_LINES: usize = 512;

/// The m-line sections of an SDP.
pub(crate) fn sections(sdp: &str) -> Vec<Vec<&str>> {
    let mut all: Vec<Vec<&str>> = Vec::new();
    for line in sdp.lines().map(str::trim_end) {
        if line.starts_with("m=") {
            all.push(vec![line]);
        } else if let Some(section) = all.last_mut() {
            section.push(line);
        }
    }
    all
}

fn attribute<'a>(section: &[&'a str], name: &str) -> Option<&'a str> {
    section.iter().find_map(|line| line.strip_prefix("a=")?.strip_prefix(name)?.strip_prefix(':'))
}

pub(crate) fn attributes<'a>(
    section: &'a [&'a str],
    name: &'a str,
) -> impl Iterator<Item = &'a str> {
    section
        .iter()
        .filter_map(move |line| line.strip_prefix("a=")?.strip_prefix(name)?.strip_prefix(':'))
}

/// The ICE user fragment and password of the side that wrote an SDP: the first in it, since all lines share one transport.
pub(crate) fn credentials(sdp: &str) -> Option<(String, String)> {
    let value = |name: &str| sdp.lines().find_map(|line| line.trim_end().strip_prefix(name));
    Some((value("a=ice-ufrag:")?.to_owned(), value("a=ice-pwd:")?.to_owned()))
}

/// How many m-lines an SDP has.
pub(crate) fn line_count(sdp: &str) -> usize {
    sdp.lines().filter(|line| line.starts_with("m=")).count()
}

/// The streams with retransmissions that one side sends on a line, by `ssrc-group:FID`.
fn repaired_streams<'a>(section: &'a [&'a str]) -> impl Iterator<Item = StreamIds> + 'a {
    attributes(section, "ssrc-group").filter_map(|group| {
        let (ssrc, rtx) = group.strip_prefix("FID ")?.split_once(' ')?;
        Some(StreamIds { ssrc: ssrc.parse().ok()?, rtx: Some(rtx.trim().parse().ok()?) })
    })
}

/// What one side sends on a line: the first of its SSRCs, and its RTX.
fn stream_ids(section: &[&str]) -> Option<StreamIds> {
    if let Some(ids) = repaired_streams(section).next() {
        return Some(ids);
    }
    let ssrc = attribute(section, "ssrc")?.split(' ').next()?.parse().ok()?;
    Some(StreamIds { ssrc, rtx: None })
}

fn codec_of(section: &[&str]) -> Option<(Codec, u8, Option<u8>)> {
    let (codec, payload_type) = attributes(section, "rtpmap").find_map(|map| {
        let (payload_type, encoding) = map.split_once(' ')?;
        let codec = match encoding.split('/').next()?.to_ascii_lowercase().as_str() {
            "opus" => Codec::Opus,
            "vp8" => Codec::Vp8,
            "h264" => Codec::H264,
            "vp9" => Codec::Vp9,
            "av1" => Codec::Av1,
            _ => return None,
        };
        Some((codec, payload_type.parse().ok()?))
    })?;
    let rtx = attributes(section, "fmtp").find_map(|parameters| {
        let (rtx, apt) = parameters.split_once(" apt=")?;
        (apt.trim().parse() == Ok(payload_type)).then(|| rtx.parse().ok())?
    });
    Some((codec, payload_type, rtx))
}

/// The payload type of RED, where its first block is the codec of this payload type.
fn red_of(section: &[&str], payload_type: u8) -> Option<u8> {
    let red = attributes(section, "rtpmap").find_map(|map| {
        let (red, encoding) = map.split_once(' ')?;
        encoding.to_ascii_lowercase().starts_with("red/").then_some(red)
    })?;
    let primary = attributes(section, "fmtp").find_map(|parameters| {
        let (of, blocks) = parameters.split_once(' ')?;
        (of == red).then(|| blocks.split('/').next())?
    })?;
    (primary.trim().parse() == Ok(payload_type)).then(|| red.parse().ok())?
}

fn offers_red(section: &[&str]) -> bool {
    codec_of(section).is_some_and(|(_, payload_type, _)| red_of(section, payload_type).is_some())
}

/// The answer with what the offer has first in front, on lines that offer RED: who offers sends what
/// the answer names first.
pub fn as_preferred(offer: &str, answer: String) -> String {
    if !offer.contains(" red/") {
        return answer;
    }
    let offered = sections(offer);
    with_first(&answer, |index| {
        let section = offered.get(index).filter(|section| offers_red(section))?;
        Some(section[0].split(' ').nth(3)?.to_owned())
    })
}

/// An offer that names its codecs before RED: what is sent has no redundancy unless losses ask for it.
pub(crate) fn codecs_first(offer: &str) -> String {
    let offered = sections(offer);
    with_first(offer, |index| {
        let section = offered.get(index).filter(|section| offers_red(section))?;
        codec_of(section).map(|(_, payload_type, _)| payload_type.to_string())
    })
}

/// The SDP with RTCP taken in reduced size (RFC 5506): on all lines of an offer, in an answer on those of `offered` that take it.
pub(crate) fn with_reduced_size(sdp: &str, offered: Option<&str>) -> String {
    let offered = offered.map(sections);
    let takes = |index: usize| match &offered {
        None => true,
        Some(lines) => lines.get(index).is_some_and(|line| reduced_size(line)),
    };
    let mut lines = 0;
    let mut changed = String::with_capacity(sdp.len());
    for line in sdp.split_inclusive('\n') {
        changed.push_str(line);
        lines += usize::from(line.starts_with("m="));
        if line.trim_end() == "a=rtcp-mux" && lines > 0 && takes(lines - 1) {
            changed.push_str("a=rtcp-rsize\r\n");
        }
    }
    changed
}

/// An answer with its candidates on the first line that is accepted (RFC 8843, section 7.1.3), and on the last one of each kind.
/// The library puts them on the first line, even if that is rejected. aiortc reads those of the last line of a transport. Until it
/// has read the whole answer, each kind has a transport of its own.
pub(crate) fn with_candidates(answer: &str) -> String {
    let lines = sections(answer);
    let is_candidate =
        |line: &str| line.starts_with("a=candidate:") || line.trim_end() == "a=end-of-candidates";
    let candidates: Vec<&str> =
        lines.iter().flatten().copied().filter(|line| is_candidate(line)).collect();
    let accepted = |kind: &'static str| {
        let lines = lines.iter().enumerate();
        lines.filter(move |(_, line)| line[0].starts_with(kind) && !is_rejected(line))
    };
    let mut holders: Vec<usize> = accepted("m=").take(1).map(|(at, _)| at).collect();
    holders.extend(
        ["m=audio", "m=video"].iter().filter_map(|kind| Some(accepted(kind).next_back()?.0)),
    );
    let (mut changed, mut index) = (String::with_capacity(answer.len() + 512), None::<usize>);
    let end_section = |changed: &mut String, index: Option<usize>| {
        if index.is_some_and(|index| holders.contains(&index)) {
            candidates.iter().for_each(|line| changed.extend([line, "\r\n"]));
        }
    };
    for line in answer.split_inclusive('\n').filter(|line| !is_candidate(line)) {
        if line.starts_with("m=") {
            end_section(&mut changed, index);
            index = Some(index.map_or(0, |index| index + 1));
        }
        changed.push_str(line);
    }
    end_section(&mut changed, index);
    changed
}

/// Whether a section says what a format is, or it is one that needs no words.
pub(crate) fn is_described(section: &[&str], format: &str) -> bool {
    let is_static = format.parse().is_ok_and(|format: u8| format < 35);
    is_static || attributes(section, "rtpmap").any(|map| map.split(' ').next() == Some(format))
}

/// Whether a section of an answer is a line that was rejected.
pub(crate) fn is_rejected(section: &[&str]) -> bool {
    section[0].split(' ').nth(1) == Some("0")
}

/// An SDP without the lines about feedback and levels that this side lacks. What else it lacks the library was never told.
pub(crate) fn lacking(sdp: String, lacks: Lacks) -> String {
    if !(lacks.feedback || lacks.feedback_on_sound || lacks.levels || lacks.reduced_size) {
        return sdp;
    }
    let mut video = false;
    let mut kept = String::with_capacity(sdp.len());
    for line in sdp.split_inclusive('\n') {
        if line.starts_with("m=") {
            video = line.starts_with("m=video");
        }
        let lacking = (is_of_feedback(line) && lacks.no_feedback_on(video))
            || (lacks.levels && has_value(line, "a=extmap:", LEVELS))
            || (lacks.reduced_size && line.trim_end() == "a=rtcp-rsize");
        if !lacking {
            kept.push_str(line);
        }
    }
    kept
}

/// An answer that gives no transport-wide feedback on sound that only comes. While pictures are paused, that feedback is all
/// that Chromium's controller has. It probes for twice what sound takes and believes the answer: 5.6 Mbit/s become 0.07 to 0.24.
/// Without it, the estimate stays as the pictures left it.
pub(crate) fn without_feedback_on_published_sound(answer: &str) -> String {
    let only_comes = |section: &Vec<&str>| {
        section[0].starts_with("m=audio") && direction_of(section) == Direction::Receive
    };
    let without: Vec<bool> = sections(answer).iter().map(only_comes).collect();
    let mut lines = 0;
    let kept = answer.split_inclusive('\n').filter(|line| {
        lines += usize::from(line.starts_with("m="));
        !(lines > 0 && without[lines - 1] && is_of_feedback(line))
    });
    kept.collect()
}

/// Whether a line of an SDP agrees on transport-wide feedback, or on the numbers that it is about.
fn is_of_feedback(line: &str) -> bool {
    has_value(line, "a=extmap:", TRANSPORT_SEQUENCE)
        || has_value(line, "a=rtcp-fb:", "transport-cc")
}

/// Whether a line is this attribute, for some id or payload type, with this value.
fn has_value(line: &str, attribute: &str, value: &str) -> bool {
    line.trim_end()
        .strip_prefix(attribute)
        .and_then(|rest| rest.split_once(' '))
        .is_some_and(|(_, rest)| rest == value)
}

/// An SDP whose m-lines name a payload type first: `first` tells which, by the number of the line. One that is not on the
/// line changes nothing.
fn with_first(sdp: &str, first: impl Fn(usize) -> Option<String>) -> String {
    let mut index = 0;
    let mut changed = String::with_capacity(sdp.len());
    for line in sdp.split_inclusive('\n') {
        let Some(media) = line.strip_prefix("m=") else {
            changed.push_str(line);
            continue;
        };
        let wanted = first(index);
        index += 1;
        match wanted.filter(|first| media.trim_end().split(' ').skip(3).any(|pt| pt == first)) {
            None => changed.push_str(line),
            Some(first) => changed.push_str(&first_of(media, &first)),
        }
    }
    changed
}

/// An m-line (without `m=`) that names this payload type first.
fn first_of(media: &str, payload_type: &str) -> String {
    let text = media.trim_end();
    let words: Vec<&str> = text.split(' ').collect();
    let (head, formats) = words.split_at(words.len().min(3));
    let others = formats.iter().filter(|format| **format != payload_type);
    let all: Vec<&str> = head.iter().chain([&payload_type]).chain(others).copied().collect();
    format!("m={}{}", all.join(" "), &media[text.len()..])
}

fn extensions_of(section: &[&str]) -> Extensions {
    let mut extensions = Extensions::default();
    for map in attributes(section, "extmap") {
        let Some((id, uri)) = map.split_once(' ') else { continue };
        let Ok(id) = id.split('/').next().unwrap_or_default().parse::<u8>() else { continue };
        let place = match uri.split(' ').next().unwrap_or_default() {
            LEVELS => &mut extensions.audio_level,
            TRANSPORT_SEQUENCE => &mut extensions.transport_sequence,
            "http://www.webrtc.org/experiments/rtp-hdrext/abs-send-time" => {
                &mut extensions.abs_send_time
            }
            "urn:ietf:params:rtp-hdrext:sdes:mid" => &mut extensions.mid,
            "urn:3gpp:video-orientation" => &mut extensions.orientation,
            "http://www.webrtc.org/experiments/rtp-hdrext/abs-capture-time" => {
                &mut extensions.capture_time
            }
            "urn:ietf:params:rtp-hdrext:sdes:rtp-stream-id" => &mut extensions.rid,
            "urn:ietf:params:rtp-hdrext:sdes:repaired-rtp-stream-id" => {
                &mut extensions.repaired_rid
            }
            rtp::dependency::URI => &mut extensions.dependency,
            _ => continue,
        };
        *place = Some(id);
    }
    extensions
}

/// The layers that an answer's line takes (`a=simulcast:recv q;h;f`, RFC 8853). `sender`: the offer's line, if its SSRCs
/// are this side's own. The other side's need not stand in the order of the layers.
fn layers_of(section: &[&str], sender: Option<&[&str]>) -> Vec<Layer> {
    let Some(simulcast) = attribute(section, "simulcast") else { return Vec::new() };
    let mut words = simulcast.split_ascii_whitespace();
    let Some(received) = words.find(|word| *word == "recv").and_then(|_| words.next()) else {
        return Vec::new();
    };
    let mut ids = sender.map(repaired_streams).into_iter().flatten();
    // Of several forms of a layer, the first counts; one that begins paused is a layer like any other.
    let rid = |layer: &str| {
        let first = layer.split(',').next().unwrap_or(layer);
        first.trim_start_matches('~').to_owned()
    };
    let layers = received.split(';').take(MOST_LAYERS);
    layers.map(|layer| Layer { rid: rid(layer), ids: ids.next(), pixels: 0 }).collect()
}

/// Direction of an answer's line, from the view of the side that answered.
fn direction_of(section: &[&str]) -> Direction {
    for line in section {
        match *line {
            "a=sendonly" => return Direction::Send,
            "a=recvonly" => return Direction::Receive,
            "a=inactive" => return Direction::Inactive,
            _ => {}
        }
    }
    Direction::Both
}

fn turned(direction: Direction) -> Direction {
    match direction {
        Direction::Send => Direction::Receive,
        Direction::Receive => Direction::Send,
        other => other,
    }
}

/// Whether a line takes RTCP in reduced size (RFC 5506, section 5).
fn reduced_size(section: &[&str]) -> bool {
    section.contains(&"a=rtcp-rsize")
}

/// Reads what `answer` accepts of `offer`, as seen by the answering side or by the offering one.
pub fn negotiated(offer: &str, answer: &str, we_answered: bool) -> Negotiated {
    let offered = sections(offer);
    let mut result = Negotiated::default();
    for (index, section) in sections(answer).iter().enumerate() {
        let (Some(mid), Some((codec, payload_type, rtx_payload_type))) =
            (attribute(section, "mid"), codec_of(section))
        else {
            continue;
        };
        if is_rejected(section) {
            continue;
        }
        let sender = offered.get(index).map(Vec::as_slice);
        // Only pictures have layers.
        let video = Some(section).filter(|_| codec.kind() == Kind::Video);
        let layers = video
            .map_or_else(Vec::new, |section| layers_of(section, sender.filter(|_| !we_answered)));
        let theirs = sender.filter(|_| layers.is_empty()).and_then(stream_ids);
        let ours = stream_ids(section);
        let answered = direction_of(section);
        let feedback = |name: &str| {
            attributes(section, "rtcp-fb")
                .any(|fb| fb.split_once(' ').is_some_and(|(_, rest)| rest == name))
        };
        let red_payload_type =
            red_of(section, payload_type).filter(|_| sender.is_some_and(offers_red));
        let first = section[0].split(' ').nth(3).and_then(|format| format.parse().ok());
        result.lines.push(Line {
            mid: mid.to_owned(),
            direction: if we_answered { answered } else { turned(answered) },
            codec,
            payload_type,
            rtx_payload_type,
            red_payload_type,
            red_first: red_payload_type.is_some() && red_payload_type == first,
            extensions: extensions_of(section),
            local: if we_answered { ours } else { theirs },
            remote: if we_answered { theirs } else { ours },
            layers,
            nack: feedback("nack"),
            transport_cc: feedback("transport-cc"),
            reduced_size: reduced_size(section) && sender.is_some_and(reduced_size),
        });
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rtcp_is_of_reduced_size_where_both_say_so() {
        let line = |kind: &str, mid: u8| {
            let codec = if kind == "audio" { "opus/48000/2" } else { "VP8/90000" };
            format!(
                "m={kind} 9 UDP/TLS/RTP/SAVPF 96\r\na=mid:{mid}\r\na=rtcp-mux\r\na=rtpmap:96 {codec}\r\n"
            )
        };
        let plain = format!("v=0\r\n{}{}", line("audio", 0), line("video", 1));
        let offer = with_reduced_size(&plain, None);
        assert_eq!(offer.matches("a=rtcp-mux\r\na=rtcp-rsize\r\n").count(), 2);
        assert_eq!(with_reduced_size(&plain, Some(&plain)), plain);
        let (head, video) = offer.split_once("m=video").unwrap();
        let video_alone = format!("{}m=video{video}", head.replace("a=rtcp-rsize\r\n", ""));
        let answer = with_reduced_size(&plain, Some(&video_alone));
        assert_eq!(answer, video_alone);
        let agreed = |offer: &str, answer: &str| {
            let lines = negotiated(offer, answer, true).lines;
            lines.iter().map(|line| line.reduced_size).collect::<Vec<_>>()
        };
        assert_eq!(agreed(&offer, &answer), [false, true]);
        assert_eq!(agreed(&plain, &offer), [false, false]);
    }

    #[test]
    fn candidates_stand_on_the_first_line_that_lives_and_on_the_last_of_each_kind() {
        let one = "a=candidate:1 1 udp 1 10.0.0.1 7 typ host\r\n";
        let line = |kind: &str, port: u16, more: &str| {
            format!("m={kind} {port} UDP/TLS/RTP/SAVPF 96\r\na=mid:x\r\n{more}")
        };
        let answer = |kinds: &[(&str, u16)], at: &[usize]| {
            let lines = kinds.iter().enumerate();
            let lines = lines.map(|(nth, (kind, port))| {
                line(kind, *port, if at.contains(&nth) { one } else { "" })
            });
            format!("v=0\r\n{}", lines.collect::<String>())
        };
        let kinds =
            [("video", 0), ("audio", 9), ("video", 9), ("audio", 9), ("video", 9), ("audio", 0)];
        assert_eq!(with_candidates(&answer(&kinds, &[0])), answer(&kinds, &[1, 3, 4]));
        let alone = [("audio", 9)];
        assert_eq!(with_candidates(&answer(&alone, &[0])), answer(&alone, &[0]));
        assert_eq!(with_candidates("v=0\r\n"), "v=0\r\n");
    }

    #[test]
    fn what_a_side_lacks_is_on_no_line_of_its_sdp() {
        let line = |kind: &str| {
            format!(
                "m={kind} 9 UDP/TLS/RTP/SAVPF 96\r\na=mid:{kind}\r\na=extmap:1 {LEVELS}\r\n\
                 a=extmap:3 {TRANSPORT_SEQUENCE}\r\na=rtpmap:96 {}\r\na=rtcp-fb:96 transport-cc\r\n",
                if kind == "audio" { "opus/48000/2" } else { "VP8/90000" }
            )
        };
        let whole = format!("v=0\r\n{}{}", line("audio"), line("video"));
        let none = Lacks::default();
        assert_eq!(lacking(whole.clone(), none), whole);
        let has = |lacks: Lacks| {
            let sdp = lacking(whole.clone(), lacks);
            let lines = negotiated(&sdp, &sdp, true).lines;
            let feedback = |line: &Line| {
                assert_eq!(line.transport_cc, line.extensions.transport_sequence.is_some());
                line.transport_cc
            };
            (
                lines[0].extensions.audio_level.is_some(),
                lines.iter().map(feedback).collect::<Vec<_>>(),
            )
        };
        assert_eq!(has(Lacks { levels: true, ..none }), (false, vec![true, true]));
        assert_eq!(has(Lacks { feedback: true, ..none }), (true, vec![false, false]));
        assert_eq!(has(Lacks { feedback_on_sound: true, ..none }), (true, vec![false, true]));
    }

    #[test]
    fn layers_are_those_that_the_answer_takes_and_only_own_ssrcs_are_told() {
        let line = |direction: &str, ssrcs: &str| {
            format!(
                "v=0\r\nm=video 9 UDP/TLS/RTP/SAVPF 96\r\na=mid:1\r\na=rtpmap:96 VP8/90000\r\n\
                 a=extmap:10 urn:ietf:params:rtp-hdrext:sdes:rtp-stream-id\r\n\
                 a=simulcast:{direction} q;~h,x;f;d\r\n{ssrcs}"
            )
        };
        let ssrcs = "a=ssrc-group:FID 1 2\r\na=ssrc-group:FID 3 4\r\na=ssrc-group:FID 5 6\r\n";
        let (offer, answer) = (line("send", ssrcs), line("recv", ""));
        let server = &negotiated(&offer, &answer, true).lines[0];
        let rids: Vec<&str> = server.layers.iter().map(|layer| layer.rid.as_str()).collect();
        assert_eq!((rids, server.remote), (vec!["q", "h", "f"], None));
        assert!(server.layers.iter().all(|layer| layer.ids.is_none()));
        assert_eq!(server.extensions.rid, Some(10));
        let client = &negotiated(&offer, &answer, false).lines[0];
        let third = StreamIds { ssrc: 5, rtx: Some(6) };
        assert_eq!((client.layers[2].ids, client.local), (Some(third), None));
        assert!(negotiated(&offer, &line("send", ""), true).lines[0].layers.is_empty());
        let voice = |text: &str| text.replace("VP8/90000", "opus/48000/2");
        assert!(negotiated(&voice(&offer), &voice(&answer), true).lines[0].layers.is_empty());
    }
}
