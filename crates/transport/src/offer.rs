//! Offers of any client in the form that the library reads, and what is wrong with one that it does not.
//!
//! JSEP lets an offer have lines that mean nothing here (RFC 8829, section 5.8): bandwidths, titles, times. Browsers take them.
//! The library's parser does not, so it gets the offer without them.

use crate::sdp::{TRANSPORT_SEQUENCE, attributes, line_count, sections};
use rtp::negotiated::Negotiated;
use str0m::change::SdpOffer;

/// What a line of media may be sent over (RFC 8829, section 5.1.2). The library knows the first.
const PROFILES: [&str; 4] =
    ["UDP/TLS/RTP/SAVPF", "TCP/DTLS/RTP/SAVPF", "UDP/TLS/RTP/SAVP", "RTP/SAVPF"];

/// An offer without what means nothing here.
pub(crate) fn plain(offer: &str) -> String {
    let mut plain = String::with_capacity(offer.len());
    let (mut in_media, mut timed, mut connected) = (false, false, false);
    for line in offer.lines().map(str::trim_end).filter(|line| !line.is_empty()) {
        let kind = line.split('=').next().unwrap_or(line);
        if kind == "m" {
            if !in_media && !timed {
                plain.push_str("t=0 0\r\n");
            }
            (in_media, connected) = (true, false);
            plain.extend([&known_profile(line), "\r\n"]);
            continue;
        }
        match kind {
            "t" if !in_media && !timed => {
                timed = true;
                plain.push_str("t=0 0\r\n");
            }
            "c" if in_media && !connected => {
                connected = true;
                plain.extend([line, "\r\n"]);
            }
            "b" | "c" | "e" | "i" | "k" | "p" | "r" | "t" | "u" | "z" => {}
            // The library says what is wrong with all else.
            _ => {
                // Attributes of the session stand behind its time.
                if kind == "a" && !in_media && !timed {
                    timed = true;
                    plain.push_str("t=0 0\r\n");
                }
                plain.extend([line, "\r\n"]);
            }
        }
    }
    plain
}

/// A line of media over the profile that the library knows.
fn known_profile(line: &str) -> String {
    let mut words: Vec<&str> = line.split(' ').collect();
    if let Some(profile) = words.get_mut(2).filter(|profile| PROFILES.contains(profile)) {
        *profile = PROFILES[0];
    }
    words.join(" ")
}

/// An answer with the profiles of its offer, and without feedback that was not offered (RFC 4585, section 4.2). On `known` lines
/// it stays as it was agreed on. Some clients leave it out of their later offers.
pub(crate) fn as_offered(offer: &str, answer: &str, known: &Negotiated) -> String {
    let offered = sections(offer);
    let is_known =
        |section: &[&str]| attributes(section, "mid").any(|mid| known.line(mid).is_some());
    let (mut index, mut changed) = (None::<usize>, String::with_capacity(answer.len()));
    for line in answer.split_inclusive('\n') {
        if line.starts_with("m=") {
            index = Some(index.map_or(0, |index| index + 1));
        }
        let section = index.and_then(|index| offered.get(index));
        match section {
            Some(section) if line.starts_with("m=") => {
                let profile = section[0].split(' ').nth(2).unwrap_or(PROFILES[0]);
                changed.push_str(&line.replacen(PROFILES[0], profile, 1));
            }
            Some(section) if !is_known(section) && !is_offered(section, line) => {}
            _ => changed.push_str(line),
        }
    }
    changed
}

/// Whether a line of an answer agrees on no other feedback than this section of the offer has. An offer of transport-wide
/// numbers counts as one of the feedback on them. The library leaves that out of its later offers. Without it, numbered packets
/// would look lost.
fn is_offered(section: &[&str], line: &str) -> bool {
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
    let odd = offer
        .lines()
        .map(str::trim_end)
        .enumerate()
        .find(|(_, line)| !line.is_empty() && line.as_bytes().get(1) != Some(&b'='));
    if let Some((at, line)) = odd {
        let number = at + 1;
        return Err(format!(
            "line {number} ({line:?}) is not a letter, an equals sign and a value"
        ));
    }
    parse(&plain(offer)).map_err(|why| fault(offer, &why))
}

/// Of the parser alone, a panic harms nothing. It stops silently where it understands no more.
fn parse(plain: &str) -> Result<SdpOffer, String> {
    let parsed = std::panic::catch_unwind(|| SdpOffer::from_sdp_string(plain))
        .map_err(|_| "the parser gave up on it".to_owned())?
        .map_err(|error| error.to_string())?;
    match line_count(&parsed.to_sdp_string()) == line_count(plain) {
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
        assert_eq!(as_offered(&offer, answer, &Negotiated::default()), wanted);
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
