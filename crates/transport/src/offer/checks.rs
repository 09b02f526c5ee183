//! What an offer must say so that its connection can come up. The library takes some offers without it, and names no line when it
//! refuses one.

use crate::sdp::{attributes, is_described};

/// Payload types have seven bits (RFC 3550, section 5.1).
const MOST_FORMATS: usize = 128;

/// A line of an offer with its number, from 1.
type Numbered<'a> = (usize, &'a str);

/// An offer in parts: the lines of the session, and of each line of media.
struct Parts<'a> {
    session: Vec<Numbered<'a>>,
    media: Vec<Vec<Numbered<'a>>>,
}

impl<'a> Parts<'a> {
    fn of(offer: &'a str) -> Self {
        let mut parts = Self { session: Vec::new(), media: Vec::new() };
        for (at, line) in offer.lines().map(str::trim_end).enumerate() {
            if line.starts_with("m=") {
                parts.media.push(Vec::new());
            }
            parts.media.last_mut().unwrap_or(&mut parts.session).push((at + 1, line));
        }
        parts
    }
}

/// Says which line is wrong, and why.
fn wrong((number, line): Numbered<'_>, why: &str) -> String {
    format!("line {number} ({line:?}): {why}")
}

fn texts<'a>(part: &[Numbered<'a>]) -> Vec<&'a str> {
    part.iter().map(|(_, line)| *line).collect()
}

/// The mids of a line that groups all lines of media in one transport (RFC 9143).
pub(super) fn bundle(line: &str) -> Option<impl Iterator<Item = &str>> {
    let mids = line.strip_prefix("a=group:BUNDLE")?;
    (mids.is_empty() || mids.starts_with(' ')).then(|| mids.split_whitespace())
}

/// Whether a section is not offered: its port is 0, and it shares no other line's (RFC 9143, section 6).
fn is_unused(section: &[&str]) -> bool {
    section[0].split(' ').nth(1) == Some("0") && !section.contains(&"a=bundle-only")
}

/// The hash of a certificate (RFC 8122, section 5).
fn is_fingerprint(value: &str) -> bool {
    let lens = [("sha-1", 20), ("sha-224", 28), ("sha-256", 32), ("sha-384", 48), ("sha-512", 64)];
    let Some((name, bytes)) = value.split_once(' ') else { return false };
    let len = lens.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
    let is_byte = |byte: &str| byte.len() == 2 && byte.bytes().all(|it| it.is_ascii_hexdigit());
    len.is_some_and(|(_, len)| bytes.split(':').count() == *len) && bytes.split(':').all(is_byte)
}

/// Looks at an offer.
///
/// # Errors
/// Which line is wrong or where one is missing, and why.
pub(super) fn check(offer: &str) -> Result<(), String> {
    let parts = Parts::of(offer);
    let all = parts.session.iter().chain(parts.media.iter().flatten());
    for line in all.filter(|(_, line)| !line.is_empty()) {
        let bytes = line.1.as_bytes();
        if !bytes[0].is_ascii_lowercase() || bytes.get(1) != Some(&b'=') {
            return Err(wrong(*line, "it is not a letter, an equals sign and a value"));
        }
        let fingerprint = line.1.strip_prefix("a=fingerprint:");
        if fingerprint.is_some_and(|fingerprint| !is_fingerprint(fingerprint)) {
            return Err(wrong(*line, "it is not a hash's name, a space and its bytes in hex"));
        }
        let role = line.1.strip_prefix("a=setup:");
        if role.is_some_and(|role| !["actpass", "active", "passive"].contains(&role)) {
            return Err(wrong(*line, "the role is none of actpass, active and passive"));
        }
    }
    let session = texts(&parts.session);
    check_beginning(&parts.session)?;
    let mut first = true;
    for part in &parts.media {
        let section = texts(part);
        let words: Vec<&str> = section[0].split(' ').collect();
        if words.len() < 4 || words[1].parse::<u16>().is_err() {
            return Err(wrong(part[0], "it is not a kind of media, a port, a profile and formats"));
        }
        if words.len() > 3 + MOST_FORMATS {
            return Err(wrong(part[0], "it has more formats than there are payload types"));
        }
        if is_unused(&section) {
            continue;
        }
        let has = |start: &str| section.iter().any(|line| line.starts_with(start));
        if !has("a=mid:") {
            return Err(wrong(part[0], "it has no a=mid"));
        }
        let is_rtp = section[0].contains("RTP/");
        if is_rtp && !words[3..].iter().any(|format| is_described(&section, format)) {
            return Err(wrong(part[0], "a=rtpmap describes none of its formats"));
        }
        if is_rtp && !has("a=rtcp-mux") {
            return Err(wrong(part[0], "a=rtcp-mux is missing: RTP and RTCP share one port here"));
        }
        for start in ["a=ice-ufrag:", "a=ice-pwd:", "a=fingerprint:"] {
            if first && !has(start) && !session.iter().any(|line| line.starts_with(start)) {
                return Err(wrong(part[0], &format!("it has no {start}, nor has the session")));
            }
        }
        first = false;
    }
    check_bundle(&parts)
}

/// An SDP begins with its version, who made it, and its name (RFC 8866, section 5).
fn check_beginning(session: &[Numbered<'_>]) -> Result<(), String> {
    let number = |word: Option<&str>| word.is_some_and(|word| word.parse::<u64>().is_ok());
    type Right = fn(&str) -> bool;
    let checks: [(Right, &str); 3] = [
        (|line| line == "v=0", "v=0"),
        (|line| line.starts_with("o="), "o= with six words, of which the second is a number"),
        (|line| line.starts_with("s=") && line.len() > 2, "s= with a name, such as s=-"),
    ];
    for (at, (is_right, what)) in checks.into_iter().enumerate() {
        let Some(line) = session.get(at) else {
            return Err(format!("line {}: it is missing; it has to be {what}", at + 1));
        };
        let words: Vec<&str> = line.1.split(' ').collect();
        let named = at != 1 || words.len() == 6 && number(words.get(1).copied());
        if !is_right(line.1) || !named {
            return Err(wrong(*line, &format!("it has to be {what}")));
        }
    }
    Ok(())
}

/// All lines of media have to share one transport.
fn check_bundle(parts: &Parts<'_>) -> Result<(), String> {
    let mut groups = parts.session.iter().filter(|(_, line)| bundle(line).is_some());
    let group = groups.next();
    if let (Some((_, known)), Some(other)) = (group, groups.next())
        && *known != other.1
    {
        return Err(wrong(
            *other,
            "all lines of media share one transport here: there is one BUNDLE group",
        ));
    }
    let named: Vec<&str> =
        group.and_then(|(_, line)| bundle(line)).map_or_else(Vec::new, Iterator::collect);
    let mut mids = Vec::new();
    let used = parts.media.iter().filter(|part| !is_unused(&texts(part)));
    for part in used.clone() {
        let section = texts(part);
        let Some(mid) = attributes(&section, "mid").next() else { continue };
        let alone = group.is_none() && used.clone().count() == 1;
        if !named.contains(&mid) && !alone {
            let why = format!(
                "a=group:BUNDLE does not name its a=mid:{mid}: all lines of media share one transport here"
            );
            return Err(wrong(part[0], &why));
        }
        mids.push(mid.to_owned());
    }
    let strange = named.iter().find(|mid| !mids.iter().any(|known| known == *mid));
    match (group, strange) {
        (Some(group), Some(mid)) => {
            Err(wrong(*group, &format!("no line of media that is offered has a=mid:{mid}")))
        }
        _ => Ok(()),
    }
}
