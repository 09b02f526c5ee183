//! What an offer has to say so that its connection can come up: the library takes some without it, and says no line where it does not.

use crate::sdp::attributes;

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
        let role = line.1.strip_prefix("a=setup:");
        if role.is_some_and(|role| !["actpass", "active", "passive"].contains(&role)) {
            return Err(wrong(*line, "the role is none of actpass, active and passive"));
        }
    }
    let session = texts(&parts.session);
    let mut first = true;
    for part in &parts.media {
        let section = texts(part);
        if is_unused(&section) {
            continue;
        }
        let has = |start: &str| section.iter().any(|line| line.starts_with(start));
        if !has("a=mid:") {
            return Err(wrong(part[0], "it has no a=mid"));
        }
        if section[0].contains("RTP/") && !has("a=rtcp-mux") {
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
