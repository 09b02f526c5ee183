//! Offers of any client in the form that the library reads, and what is wrong with one that it does not.
//!
//! JSEP lets an offer have lines that mean nothing here (RFC 8829, section 5.8): bandwidths, titles, times. Browsers take them.
//! The library's parser does not, so it gets the offer without them.

use crate::sdp::{TRANSPORT_SEQUENCE, attributes, is_described, line_count, sections};
use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use str0m::change::SdpOffer;

mod checks;

/// Kinds of lines that mean nothing here.
const IGNORED: [&str; 13] = ["b", "c", "e", "i", "k", "o", "p", "r", "s", "t", "u", "v", "z"];
/// What a line of media may be sent over (RFC 8829, section 5.1.2). The library knows the first.
const PROFILES: [&str; 4] =
    ["UDP/TLS/RTP/SAVPF", "TCP/DTLS/RTP/SAVPF", "UDP/TLS/RTP/SAVP", "RTP/SAVPF"];

/// The last line of what the library reads: if it did not see that, it stopped somewhere.
const END: &str = "a=x-end-of-offer";

/// An offer without what means nothing here, and with so many candidates at most.
pub(crate) fn plain(offer: &str, mut candidates: usize) -> String {
    let mut plain = String::with_capacity(offer.len() + 64);
    let begins = offer.find("\nm=").map_or(offer.len(), |at| at + 1);
    let (session, media) = offer.split_at(begins);
    let mut media = sections(media);
    media.retain(|section| is_known_kind(section[0]));
    add_session(&mut plain, session, &media);
    let mut wanted = |line: &str| {
        let is_candidate = line.starts_with("a=candidate:");
        let wanted = !is_candidate || candidates > 0;
        candidates = candidates.saturating_sub(usize::from(is_candidate));
        wanted
    };
    let direction = session.lines().map(str::trim_end).find(|line| is_direction(line));
    for section in &media {
        let section: Vec<&str> = section.iter().copied().filter(|line| wanted(line)).collect();
        add_media(&mut plain, &section, direction.unwrap_or("a=sendrecv"));
    }
    plain.extend([END, "\r\n"]);
    plain
}

fn is_direction(line: &str) -> bool {
    matches!(line, "a=sendonly" | "a=recvonly" | "a=sendrecv" | "a=inactive")
}

/// The lines of the session. One group holds all lines of media, in their order: others mean nothing here, and a line that is alone
/// needs none.
fn add_session(plain: &mut String, session: &str, media: &[Vec<&str>]) {
    let lines = || session.lines().map(str::trim_end).filter(|line| !line.is_empty());
    // Its version, who made it, and its name. Once is enough.
    lines().take(3).for_each(|line| plain.extend([line, "\r\n"]));
    plain.push_str("t=0 0\r\n");
    let named: Option<Vec<&str>> = lines().find_map(checks::bundle).map(Iterator::collect);
    let mids = media.iter().filter_map(|section| {
        let mid = attributes(section, "mid").next()?;
        let shares = match &named {
            Some(named) => named.contains(&mid),
            None => section[0].split(' ').nth(1) != Some("0"),
        };
        shares.then_some(mid)
    });
    plain.push_str("a=group:BUNDLE");
    mids.for_each(|mid| plain.extend([" ", mid]));
    plain.push_str("\r\n");
    for line in lines().skip(3).filter(|line| !line.starts_with("a=group:")) {
        let kind = line.split('=').next().unwrap_or(line);
        // The library says what is wrong with all else.
        let is_candidate = line.starts_with("a=candidate:");
        if !IGNORED.contains(&kind) && !is_direction(line) && !is_candidate {
            plain.extend([line, "\r\n"]);
        }
    }
}

/// The lines of a line of media, each once. Without a direction it has that of the session (RFC 8866, section 6.7). A format that is
/// neither described nor static (RFC 3551, section 6) means nothing, and nor does what is said of others.
fn add_media(plain: &mut String, section: &[&str], direction: &str) {
    let is_rtp = section[0].contains("RTP/");
    let mut words: Vec<&str> = section[0].split_whitespace().collect();
    let formats: Vec<&str> = words.iter().skip(3).copied().collect();
    let known = |format: &&str| !is_rtp || is_described(section, format);
    let formats: Vec<&str> = formats.into_iter().filter(known).collect();
    if !formats.is_empty() {
        words.truncate(3);
        words.extend(&formats);
    }
    if let Some(profile) = words.get_mut(2).filter(|profile| PROFILES.contains(profile)) {
        *profile = PROFILES[0];
    }
    plain.extend([&words.join(" "), "\r\n"]);
    let of_another = |line: &str| format_of(line).is_some_and(|format| !formats.contains(&format));
    let (mut connected, mut seen) = (false, HashSet::new());
    for line in section[1..].iter().filter(|line| !line.is_empty() && !of_another(line)) {
        let kind = line.split('=').next().unwrap_or(line);
        match kind {
            "c" if !connected => {
                connected = true;
                plain.extend([line, "\r\n"]);
            }
            _ if IGNORED.contains(&kind) => {}
            _ if seen.insert(line) => plain.extend([line, "\r\n"]),
            _ => {}
        }
    }
    if is_rtp && !section.iter().any(|line| is_direction(line)) {
        plain.extend([direction, "\r\n"]);
    }
}

/// The format that an attribute is about, if it is about one.
fn format_of(line: &str) -> Option<&str> {
    let names = ["a=rtpmap:", "a=fmtp:", "a=rtcp-fb:"];
    let value = names.iter().find_map(|name| line.strip_prefix(name))?;
    value.split(' ').next().filter(|format| *format != "*")
}

/// What was agreed on for each line so far: formats, feedback and header extensions. Hashes of them suffice, and are short.
#[derive(Debug, Default)]
pub(crate) struct Agreed(HashSet<u64>);

impl Agreed {
    fn hash(mid: &str, what: &str) -> u64 {
        let mut hasher = DefaultHasher::new();
        (mid, what.trim_end()).hash(&mut hasher);
        hasher.finish()
    }

    fn has(&self, section: &[&str], what: &str) -> bool {
        attributes(section, "mid").any(|mid| self.0.contains(&Self::hash(mid, what)))
    }

    /// What an answer agrees on.
    pub(crate) fn of(answer: &str) -> Self {
        let mut all = HashSet::new();
        for section in sections(answer).iter().filter(|section| !crate::sdp::is_rejected(section)) {
            let Some(mid) = attributes(section, "mid").next() else { continue };
            let formats = section[0].split_whitespace().skip(3);
            let lines = section[1..].iter().copied();
            let lines =
                lines.filter(|line| format_of(line).is_some() || line.starts_with("a=extmap:"));
            all.extend(formats.chain(lines).map(|what| Self::hash(mid, what)));
        }
        Self(all)
    }
}

/// An answer with the lines, the profiles and the order of its offer. It has no formats, feedback (RFC 4585, section 4.2), header
/// extensions (RFC 8285, section 6) or group that were not offered. What was `agreed` on before stays. Some clients leave it
/// out of their later offers.
pub(crate) fn as_offered(offer: &str, answer: &str, agreed: &Agreed) -> String {
    let begins = answer.find("\nm=").map_or(answer.len(), |at| at + 1);
    let grouped = offer.lines().any(|line| checks::bundle(line.trim_end()).is_some());
    let session = answer[..begins].split_inclusive('\n');
    let session = session.filter(|line| grouped || !line.starts_with("a=group:"));
    let mut changed = String::with_capacity(answer.len());
    session.for_each(|line| changed.push_str(line));
    let answered = sections(&answer[begins..]);
    let mut answered = answered.iter();
    for offered in sections(offer) {
        let told = if is_known_kind(offered[0]) { answered.next() } else { None };
        match told {
            Some(told) => add_answered(&mut changed, &offered, told, agreed),
            None => add_rejected(&mut changed, &offered, &[]),
        }
    }
    changed
}

/// Whether a kind of media has a use here. The library gets no others, so that it opens no data channel that nobody
/// reads.
fn is_known_kind(line: &str) -> bool {
    ["m=audio ", "m=video "].iter().any(|kind| line.starts_with(kind))
}

/// A section of an answer that rejects what was offered (RFC 3264, section 6). Candidates that the library told there are kept.
fn add_rejected(changed: &mut String, offered: &[&str], told: &[&str]) {
    let mut words: Vec<&str> = offered[0].split_whitespace().collect();
    if let Some(port) = words.get_mut(1) {
        *port = "0";
    }
    changed.extend([&words.join(" "), "\r\nc=IN IP4 0.0.0.0\r\na=inactive\r\n"]);
    attributes(offered, "mid").take(1).for_each(|mid| changed.extend(["a=mid:", mid, "\r\n"]));
    let candidates = told.iter().filter(|line| line.starts_with("a=candidate:"));
    candidates.for_each(|line| changed.extend([line, "\r\n"]));
}

fn add_answered(changed: &mut String, offered: &[&str], told: &[&str], agreed: &Agreed) {
    let words: Vec<&str> = told[0].split_whitespace().collect();
    let (Some((head, formats)), Some(profile)) =
        (words.split_at_checked(3), offered[0].split_whitespace().nth(2))
    else {
        return add_rejected(changed, offered, told);
    };
    let taken = |format: &str| {
        agreed.has(offered, format) || offers_format(offered, format, attributes(told, "rtpmap"))
    };
    let formats: Vec<&str> = formats.iter().copied().filter(|format| taken(format)).collect();
    if formats.is_empty() || crate::sdp::is_rejected(told) {
        return add_rejected(changed, offered, told);
    }
    changed.extend([&[&[head[0], head[1], profile], &formats[..]].concat().join(" "), "\r\n"]);
    for line in &told[1..] {
        let is_taken = format_of(line).is_none_or(taken);
        if is_taken && (agreed.has(offered, line) || is_offered(offered, line)) {
            changed.extend([line, "\r\n"]);
        }
    }
}

/// Whether a section of an offer has a format, and as the same codec as the lines that describe it in the answer.
fn offers_format<'a>(
    offered: &[&str],
    format: &str,
    mut answered: impl Iterator<Item = &'a str>,
) -> bool {
    let of_it = |map: &&str| map.split(' ').next() == Some(format);
    let known = answered.find(of_it);
    let described = attributes(offered, "rtpmap").find(of_it);
    let same = match (described, known) {
        (Some(offered), Some(known)) => known.eq_ignore_ascii_case(offered.trim_end()),
        (None, Some(_)) => false,
        (_, None) => true,
    };
    same && offered[0].split_whitespace().skip(3).any(|offered| offered == format)
}

/// Whether a line of an answer agrees on no other header extension or feedback than this section of the offer has. An offer of
/// transport-wide numbers counts as one of the feedback on them. The library leaves that out of its later offers. Without it,
/// numbered packets would look lost.
fn is_offered(section: &[&str], line: &str) -> bool {
    if let Some(map) = line.trim_end().strip_prefix("a=extmap:") {
        // An id may have a direction behind it.
        let plain = |map: &str| {
            let (id, uri) = map.split_once(' ')?;
            Some((id.split('/').next()?.to_owned(), uri.split(' ').next()?.to_owned()))
        };
        return attributes(section, "extmap").any(|offered| plain(offered) == plain(map));
    }
    let Some((payload_type, wanted)) =
        line.trim_end().strip_prefix("a=rtcp-fb:").and_then(|feedback| feedback.split_once(' '))
    else {
        return true;
    };
    let numbered = || attributes(section, "extmap").any(|map| map.ends_with(TRANSPORT_SEQUENCE));
    if wanted == "transport-cc" && numbered() {
        return true;
    }
    attributes(section, "rtcp-fb").any(|offered| {
        offered.split_once(' ').is_some_and(|(of, what)| {
            (of == payload_type || of == "*") && what.trim_end() == wanted
        })
    })
}

/// The mids of lines that an answer rejects.
pub fn rejected(answer: &str) -> Vec<String> {
    let rejected = sections(answer).into_iter().filter(|section| crate::sdp::is_rejected(section));
    rejected.filter_map(|section| attributes(&section, "mid").next().map(str::to_owned)).collect()
}

/// Reads an offer, with so many of its candidates at most.
///
/// # Errors
/// Which line the library does not take, and why.
pub(crate) fn read(offer: &str, candidates: usize) -> Result<SdpOffer, String> {
    checks::check(offer)?;
    parse(&plain(offer, candidates)).map_err(|why| fault(offer, &why))
}

/// What is said of what the library does not read.
const NOT_UNDERSTOOD: &str = "it was not understood";
/// So many lines are looked at one by one, at most, to find the one that is wrong: some 20 µs each.
const LINES_LOOKED_AT: usize = 2000;

/// What the library says of an SDP or a candidate. Some of its words have addresses in memory: those are left out.
pub(crate) fn words(error: &dyn std::fmt::Display) -> String {
    match error.to_string() {
        why if why.contains("PointerOffset") => NOT_UNDERSTOOD.into(),
        why => why,
    }
}

/// Of the parser alone, a panic harms nothing. It stops silently where it understands no more.
fn parse(plain: &str) -> Result<SdpOffer, String> {
    let parsed = std::panic::catch_unwind(|| SdpOffer::from_sdp_string(plain))
        .map_err(|_| "the parser gave up on it".to_owned())?
        .map_err(|error| words(&error))?;
    match parsed.to_sdp_string().trim_end().ends_with(END) || line_count(plain) == 0 {
        true => Ok(parsed),
        false => Err(NOT_UNDERSTOOD.into()),
    }
}

/// Says which line of an offer the library does not take, and why. `why`: its words for the whole offer.
fn fault(offer: &str, why: &str) -> String {
    let mut in_media = false;
    for (at, line) in offer.lines().map(str::trim_end).enumerate().take(LINES_LOOKED_AT) {
        in_media |= line.starts_with("m=");
        if !is_understood(line, in_media) {
            return format!("line {} ({line:?}): {NOT_UNDERSTOOD}", at + 1);
        }
    }
    // Each section is read alone.
    let lines: Vec<&str> = offer.lines().map(str::trim_end).collect();
    let begins: Vec<usize> = (0..lines.len()).filter(|at| lines[*at].starts_with("m=")).collect();
    for (nth, begin) in begins.iter().enumerate() {
        let end = begins.get(nth + 1).copied().unwrap_or(lines.len());
        let section = lines[*begin..end].join("\r\n");
        if let Err(why) = parse(&plain(&format!("{HEAD}{section}"), 1)) {
            return format!("line {} ({:?}) and those below it: {why}", begin + 1, lines[*begin]);
        }
    }
    why.to_owned()
}

/// Whether the library reads a line, in an offer that is right but for it.
fn is_understood(line: &str, in_media: bool) -> bool {
    let media = "m=audio 9 UDP/TLS/RTP/SAVPF 0\r\na=mid:0\r\na=sendrecv\r\n";
    let offer = match in_media {
        _ if line.starts_with("m=") => format!("{HEAD}{line}\r\na=mid:0\r\na=sendrecv\r\n"),
        true => format!("{HEAD}{media}{line}\r\n"),
        false => format!("{HEAD}{line}\r\n{media}"),
    };
    !parse(&plain(&offer, 1)).is_err_and(|why| why == NOT_UNDERSTOOD)
}

/// How an offer begins.
const HEAD: &str = "v=0\r\no=- 1 1 IN IP4 0.0.0.0\r\ns=-\r\n";

#[cfg(test)]
mod tests {
    use super::*;

    fn offer(session: &str, media: &str) -> String {
        format!(
            "v=0\r\no=- 1 2 IN IP4 127.0.0.1\r\ns=-\r\n{session}a=group:BUNDLE 0\r\n\
             a=fingerprint:sha-256 {}\r\na=setup:actpass\r\na=ice-ufrag:abcd\r\n\
             a=ice-pwd:abcdefghijklmnopqrstuvwx\r\n{media}",
            vec!["AA"; 32].join(":")
        )
    }

    fn audio(profile: &str, more: &str) -> String {
        format!(
            "m=audio 9 {profile} 111\r\n{more}a=mid:0\r\na=sendonly\r\na=rtcp-mux\r\n\
             a=rtpmap:111 opus/48000/2\r\na=rtcp-fb:111 nack\r\n"
        )
    }

    fn reads(offer: &str) -> bool {
        read(offer, 1).is_ok()
    }

    #[test]
    fn what_browsers_take_is_read() {
        for session in [
            "t=0 0\r\n",
            "i=a call\r\nu=http://127.0.0.1\r\ne=a@b\r\np=+1\r\nc=IN IP4 0.0.0.0\r\nb=AS:5\r\nt=0 0\r\n",
            "t=3034423619 3042462419\r\nr=7d 1h 0 25h\r\nz=0 0\r\nk=clear:x\r\n",
            "b=CT:1000\r\nb=AS:5\r\n",
        ] {
            for more in [
                "c=IN IP4 0.0.0.0\r\n",
                "",
                "i=a voice\r\nc=IN IP4 0.0.0.0\r\nc=IN IP4 1.2.3.4\r\nb=AS:64\r\nb=TIAS:64000\r\nk=clear:x\r\n",
            ] {
                for profile in PROFILES {
                    let offer = offer(session, &audio(profile, more));
                    assert!(reads(&offer), "{offer}");
                    assert!(reads(&offer.replace("\r\n", "\n")), "{offer}");
                }
            }
        }
    }

    #[test]
    fn an_answer_has_the_profiles_of_its_offer_and_no_other_feedback() {
        let offer = format!(
            "v=0\r\n{}m=video 9 TCP/DTLS/RTP/SAVPF 96\r\na=rtcp-fb:* nack pli\r\n",
            audio(PROFILES[0], "")
        );
        let answer = "v=0\r\nm=audio 9 UDP/TLS/RTP/SAVPF 111\r\na=rtcp-fb:111 nack\r\na=rtcp-fb:111 transport-cc\r\n\
                      m=video 9 UDP/TLS/RTP/SAVPF 96\r\na=rtcp-fb:96 nack\r\na=rtcp-fb:96 nack pli\r\n";
        let wanted = "v=0\r\nm=audio 9 UDP/TLS/RTP/SAVPF 111\r\na=rtcp-fb:111 nack\r\n\
                      m=video 9 TCP/DTLS/RTP/SAVPF 96\r\na=rtcp-fb:96 nack pli\r\n";
        assert_eq!(as_offered(&offer, answer, &Agreed::default()), wanted);
    }

    #[test]
    fn an_error_says_line_and_reason() {
        let good = audio(PROFILES[0], "c=IN IP4 0.0.0.0\r\n");
        for (bad, line) in [
            (good.replace("a=mid:0\r\n", ""), "line 10 (\"m=audio"),
            (format!("{good}nonsense\r\n"), "line 17 (\"nonsense\")"),
            (good.replace("111\r\nc=", "abc\r\nc="), "line 10 (\"m=audio"),
        ] {
            let sdp = offer("t=0 0\r\n", &bad);
            let told = read(&sdp, 1).err().unwrap_or_else(|| panic!("it is read: {sdp}"));
            assert!(told.contains(line), "{told}, not {line}");
        }
    }

    /// The time in which a fault is found is bounded, whatever the offer is.
    #[test]
    fn an_offer_of_many_lines_is_refused_soon() {
        let good = audio(PROFILES[0], "c=IN IP4 0.0.0.0\r\n");
        let lines = |line: &str| line.repeat(crate::MAX_SDP_BYTES / 2 / line.len());
        let formats = good.replace("SAVPF 111", &format!("SAVPF 111{}", lines(" 96")));
        let sections = lines(&good.replace("a=mid:0", "a=mid:0\r\na=mid:1"));
        let begin = std::time::Instant::now();
        for bad in [
            format!("{good}{}a=\r\n", lines("a=ssrc:1 cname:x\r\n")),
            format!("{good}{}", lines("a=\r\n")),
            format!("{good}{}a=mid:1\r\n", lines("a=fmtp:111 x=1\r\n")),
            formats,
            sections,
        ] {
            assert!(read(&offer("t=0 0\r\n", &bad), 1).is_err());
        }
        assert!(begin.elapsed() < std::time::Duration::from_secs(5), "{:?}", begin.elapsed());
    }
}
