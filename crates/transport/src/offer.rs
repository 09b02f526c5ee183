//! Offers of any client in the form that the library reads, and what is wrong with one that it does not.
//!
//! JSEP lets an offer have lines that mean nothing here (RFC 8829, section 5.8): bandwidths, titles, times. Browsers take them.
//! The library's parser does not, so it gets the offer without them.

use crate::sdp::{TRANSPORT_SEQUENCE, attributes, line_count, sections};
use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use str0m::change::SdpOffer;

mod checks;

/// Kinds of lines that mean nothing here.
const IGNORED: [&str; 10] = ["b", "c", "e", "i", "k", "p", "r", "t", "u", "z"];
/// What a line of media may be sent over (RFC 8829, section 5.1.2). The library knows the first.
const PROFILES: [&str; 4] =
    ["UDP/TLS/RTP/SAVPF", "TCP/DTLS/RTP/SAVPF", "UDP/TLS/RTP/SAVP", "RTP/SAVPF"];

/// The last line of what the library reads: if it did not see that, it stopped somewhere.
const END: &str = "a=x-end-of-offer";

/// An offer without what means nothing here.
pub(crate) fn plain(offer: &str) -> String {
    let mut plain = String::with_capacity(offer.len() + 64);
    let begins = offer.find("\nm=").map_or(offer.len(), |at| at + 1);
    let (session, media) = offer.split_at(begins);
    let media = sections(media);
    add_session(&mut plain, session, &media);
    let direction = session.lines().map(str::trim_end).find(|line| is_direction(line));
    for section in &media {
        add_media(&mut plain, section, direction.unwrap_or("a=sendrecv"));
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
    let known =
        |line: &&str| line.starts_with("v=") || line.starts_with("o=") || line.starts_with("s=");
    lines().filter(known).for_each(|line| plain.extend([line, "\r\n"]));
    plain.push_str("t=0 0\r\n");
    let named: Option<Vec<&str>> = lines().find_map(checks::bundle).map(Iterator::collect);
    let mids = media.iter().filter_map(|section| attributes(section, "mid").next());
    let mids = mids.filter(|mid| named.as_ref().is_none_or(|named| named.contains(mid)));
    plain.push_str("a=group:BUNDLE");
    mids.for_each(|mid| plain.extend([" ", mid]));
    plain.push_str("\r\n");
    for line in lines().filter(|line| !known(line) && !line.starts_with("a=group:")) {
        let kind = line.split('=').next().unwrap_or(line);
        // The library says what is wrong with all else.
        if !IGNORED.contains(&kind) && !is_direction(line) {
            plain.extend([line, "\r\n"]);
        }
    }
}

/// The lines of a line of media. Without a direction it has that of the session (RFC 8866, section 6.7). What is said of formats that
/// it does not have means nothing.
fn add_media(plain: &mut String, section: &[&str], direction: &str) {
    plain.extend([&known_profile(section[0]), "\r\n"]);
    let formats: Vec<&str> = section[0].split_whitespace().skip(3).collect();
    let of_another = |line: &str| format_of(line).is_some_and(|format| !formats.contains(&format));
    let mut connected = false;
    for line in section[1..].iter().filter(|line| !line.is_empty() && !of_another(line)) {
        let kind = line.split('=').next().unwrap_or(line);
        match kind {
            "c" if !connected => {
                connected = true;
                plain.extend([line, "\r\n"]);
            }
            _ if IGNORED.contains(&kind) => {}
            _ => plain.extend([line, "\r\n"]),
        }
    }
    if section[0].contains("RTP/") && !section.iter().any(|line| is_direction(line)) {
        plain.extend([direction, "\r\n"]);
    }
}

/// The format that an attribute is about, if it is about one.
fn format_of(line: &str) -> Option<&str> {
    let names = ["a=rtpmap:", "a=fmtp:", "a=rtcp-fb:"];
    let value = names.iter().find_map(|name| line.strip_prefix(name))?;
    value.split(' ').next().filter(|format| *format != "*")
}

/// A line of media over the profile that the library knows.
fn known_profile(line: &str) -> String {
    let mut words: Vec<&str> = line.split(' ').collect();
    if let Some(profile) = words.get_mut(2).filter(|profile| PROFILES.contains(profile)) {
        *profile = PROFILES[0];
    }
    words.join(" ")
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

/// An answer with the profiles of its offer, and without formats, feedback (RFC 4585, section 4.2), header extensions (RFC
/// 8285, section 6) and a group that were not offered. What was `agreed` on before stays. Some clients leave it out of their later
/// offers.
pub(crate) fn as_offered(offer: &str, answer: &str, agreed: &Agreed) -> String {
    let offered = sections(offer);
    let grouped = offer.lines().any(|line| checks::bundle(line.trim_end()).is_some());
    let (mut index, mut changed) = (None::<usize>, String::with_capacity(answer.len()));
    for line in answer.split_inclusive('\n') {
        if line.starts_with("m=") {
            index = Some(index.map_or(0, |index| index + 1));
        }
        match index.and_then(|index| offered.get(index)) {
            Some(section) if line.starts_with("m=") => {
                changed.push_str(&as_offered_line(section, line, agreed));
            }
            Some(section) if !agreed.has(section, line) && !is_offered(section, line) => {}
            None if !grouped && line.starts_with("a=group:") => {}
            _ => changed.push_str(line),
        }
    }
    changed
}

/// The first line of a section of an answer, over the profile and with the formats of its offer. A format may be known of other lines.
fn as_offered_line(section: &[&str], line: &str, agreed: &Agreed) -> String {
    let (offered, words): (Vec<&str>, Vec<&str>) =
        (section[0].split_whitespace().collect(), line.split_whitespace().collect());
    let (Some(of_offer), Some((head, formats))) = (offered.get(3..), words.split_at_checked(3))
    else {
        return line.to_owned();
    };
    let taken = |format: &&str| of_offer.contains(format) || agreed.has(section, format);
    let mut formats: Vec<&str> = formats.iter().copied().filter(taken).collect();
    if formats.is_empty() {
        // It is rejected.
        formats = of_offer.to_vec();
    }
    [&[head[0], head[1], offered[2]], &formats[..]].concat().join(" ") + "\r\n"
}

/// Whether a line of an answer agrees on no other format, header extension or feedback than this section of the offer has. An offer
/// of transport-wide numbers counts as one of the feedback on them. The library leaves that out of its later offers. Without it, numbered packets
/// would look lost.
fn is_offered(section: &[&str], line: &str) -> bool {
    let formats = || section[0].split(' ').skip(3);
    if format_of(line.trim_end()).is_some_and(|format| !formats().any(|known| known == format)) {
        return false;
    }
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

/// Reads an offer.
///
/// # Errors
/// Which line the library does not take, and why.
pub(crate) fn read(offer: &str) -> Result<SdpOffer, String> {
    checks::check(offer)?;
    parse(&plain(offer)).map_err(|why| fault(offer, &why))
}

/// Of the parser alone, a panic harms nothing. It stops silently where it understands no more.
fn parse(plain: &str) -> Result<SdpOffer, String> {
    let parsed = std::panic::catch_unwind(|| SdpOffer::from_sdp_string(plain))
        .map_err(|_| "the parser gave up on it".to_owned())?
        .map_err(|error| error.to_string())?;
    match parsed.to_sdp_string().trim_end().ends_with(END) || line_count(plain) == 0 {
        true => Ok(parsed),
        false => Err("it was not understood".to_owned()),
    }
}

/// Says which line of an offer the library does not take, and why. `why`: its words for the whole offer.
fn fault(offer: &str, why: &str) -> String {
    let numbered: Vec<(usize, &str)> =
        offer.lines().map(str::trim_end).enumerate().map(|(at, line)| (at + 1, line)).collect();
    let begins: Vec<usize> =
        (0..numbered.len()).filter(|at| numbered[*at].1.starts_with("m=")).collect();
    let session = &numbered[..begins.first().copied().unwrap_or(numbered.len())];
    // Each section is read alone with the session's lines, which name no others then.
    let alone = |lines: &[(usize, &str)]| {
        let session = session.iter().filter(|(_, line)| !line.starts_with("a=group:"));
        let all: Vec<&str> = session.chain(lines).map(|(_, line)| *line).collect();
        parse(&plain(&all.join("\r\n"))).map(|_| ())
    };
    for (nth, begin) in begins.iter().enumerate() {
        let end = begins.get(nth + 1).copied().unwrap_or(numbered.len());
        let section = &numbered[*begin..end];
        let Err(why) = alone(section) else { continue };
        for (at, (number, line)) in section.iter().enumerate().skip(1) {
            let others = [&section[..at], &section[at + 1..]].concat();
            if alone(&others).is_ok() {
                return format!("line {number} ({line:?}): {why}");
            }
        }
        let (number, line) = section[0];
        return format!("line {number} ({line:?}) and those below it: {why}");
    }
    why.to_owned()
}

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
        read(offer).is_ok()
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
            let told = read(&sdp).err().unwrap_or_else(|| panic!("it is read: {sdp}"));
            assert!(told.contains(line), "{told}, not {line}");
        }
    }
}
