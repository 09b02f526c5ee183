//! Offers of other people's clients, as they wrote them, with a line changed, dropped or doubled. Each is answered with what can
//! work, or refused with the line and the reason. What is answered comes up, or it is known why not.
//!
//! `offers/` has what Chromium 156, Firefox 153, Pion 4.2, aiortc 1.16 and webrtcbin 1.22 offered to a room. Of the browsers' slots it
//! has one of each kind.

use rtp::negotiated::{Kind, Negotiated};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use transport::{Event, IceDtls, OfferLine, Output, Shared, TransportError, VideoFormat};

const CLIENTS: [(&str, &str); 5] = [
    ("chromium", include_str!("offers/chromium.sdp")),
    ("firefox", include_str!("offers/firefox.sdp")),
    ("pion", include_str!("offers/pion.sdp")),
    ("aiortc", include_str!("offers/aiortc.sdp")),
    ("webrtcbin", include_str!("offers/webrtcbin.sdp")),
];
/// Mutations of each.
const TIMES: u64 = 200;
/// What says who a client is: if that is false, nothing can work, and the client is told so.
const IDENTITY: [&str; 3] = ["a=ice-ufrag:", "a=ice-pwd:", "a=fingerprint:"];

const SERVER: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 2000);
const CLIENT: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 1000);

struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % bound
    }
}

/// An offer with one line changed, dropped or doubled, and which line that was.
fn mutate(offer: &str, random: &mut Random) -> (String, String) {
    let mut lines: Vec<String> = offer.lines().map(str::to_owned).collect();
    let at = random.below(lines.len());
    let before = lines[at].clone();
    match random.below(3) {
        0 => drop(lines.remove(at)),
        1 => lines.insert(random.below(lines.len() - at) + at, before.clone()),
        _ => lines[at] = changed(&before, &lines.clone(), random),
    }
    let mutated = lines.iter().map(|line| format!("{line}\r\n")).collect();
    (mutated, before)
}

fn changed(line: &str, lines: &[String], random: &mut Random) -> String {
    let mut words: Vec<&str> = line.split(' ').collect();
    match random.below(6) {
        // A character.
        0 => {
            let mut bytes = line.as_bytes().to_vec();
            let at = random.below(bytes.len());
            bytes[at] = b'!' + random.below(93) as u8;
            String::from_utf8(bytes).unwrap_or_default()
        }
        // A number.
        1 => {
            let digits: Vec<usize> =
                line.char_indices().filter(|(_, c)| c.is_ascii_digit()).map(|(at, _)| at).collect();
            let Some(at) = (!digits.is_empty()).then(|| digits[random.below(digits.len())]) else {
                return String::new();
            };
            let mut bytes = line.as_bytes().to_vec();
            bytes[at] = b'0' + random.below(10) as u8;
            String::from_utf8(bytes).unwrap_or_default()
        }
        // A word is missing, or comes twice.
        2 => {
            words.remove(random.below(words.len()));
            words.join(" ")
        }
        3 => {
            let at = random.below(words.len());
            words.insert(at, words[at]);
            words.join(" ")
        }
        // It ends too soon.
        4 => line[..random.below(line.len())].to_owned(),
        // Another line stands in its place.
        _ => lines[random.below(lines.len())].clone(),
    }
}

fn value<'a>(sdp: &'a str, name: &str) -> Option<&'a str> {
    sdp.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
}

/// The sections of an SDP: the session's lines, and those of each line of media.
fn sections(sdp: &str) -> Vec<Vec<&str>> {
    let mut all = vec![Vec::new()];
    for line in sdp.lines() {
        if line.starts_with("m=") {
            all.push(Vec::new());
        }
        all.last_mut().unwrap().push(line);
    }
    all
}

fn has(section: &[&str], line: &str) -> bool {
    section.contains(&line)
}

fn values<'a>(section: &'a [&'a str], name: &'a str) -> impl Iterator<Item = &'a str> {
    section.iter().filter_map(move |line| line.strip_prefix(name)?.strip_prefix(':'))
}

fn is_rejected(section: &[&str]) -> bool {
    section[0].split(' ').nth(1) == Some("0")
}

fn direction<'a>(section: &[&'a str]) -> &'a str {
    let all = ["a=sendonly", "a=recvonly", "a=inactive", "a=sendrecv"];
    section.iter().find(|line| all.contains(line)).copied().unwrap_or("a=sendrecv")
}

/// What of an answer does not fit its offer (RFC 3264, RFC 8829, RFC 9143).
fn misfits(offer: &str, answer: &str) -> Vec<String> {
    let (offered, answered) = (sections(offer), sections(answer));
    let mut wrong = Vec::new();
    if offered.len() != answered.len() {
        return vec![format!("{} sections for {}", answered.len(), offered.len())];
    }
    let bundle = |session: &[&str]| -> BTreeSet<String> {
        let groups = values(session, "a=group").filter_map(|group| group.strip_prefix("BUNDLE"));
        groups.flat_map(str::split_whitespace).map(str::to_owned).collect()
    };
    let (may_share, share) = (bundle(&offered[0]), bundle(&answered[0]));
    let living = answered[1..].iter().filter(|section| !is_rejected(section)).count();
    if living == 0 {
        wrong.push("nothing is left".into());
    }
    for (asked, told) in offered[1..].iter().zip(&answered[1..]) {
        let words = |section: &[&str]| section[0].split(' ').map(str::to_owned).collect::<Vec<_>>();
        let (from, to) = (words(asked), words(told));
        if from[0] != to[0] || from.get(2) != to.get(2) {
            wrong.push(format!("{} for {}", told[0], asked[0]));
        }
        let mid = values(told, "a=mid").next().unwrap_or_default();
        if !values(asked, "a=mid").any(|offered| offered == mid) {
            wrong.push(format!("mid {mid}"));
        }
        if is_rejected(told) {
            if share.contains(mid) {
                wrong.push(format!("rejected {mid} is in the bundle"));
            }
            continue;
        }
        if living > 1 && !(share.contains(mid) && may_share.contains(mid)) {
            wrong.push(format!("{mid} has no transport of its own: {may_share:?} {share:?}"));
        }
        let strange = to[3..].iter().filter(|format| !from[3..].contains(format));
        wrong.extend(strange.map(|format| format!("format {format} of {mid}")));
        for name in ["a=rtcp-fb", "a=extmap", "a=rtpmap"] {
            for line in values(told, name) {
                // An id may have a direction behind it, and an extension attributes.
                let plain = |line: &str| {
                    let most = if name == "a=extmap" { 2 } else { 3 };
                    let words: Vec<&str> = line.split_whitespace().take(most).collect();
                    words.join(" ").replacen("/sendonly", "", 1).replacen("/recvonly", "", 1)
                };
                let any = line.split_once(' ').map_or("", |(_, what)| what);
                let known = values(asked, name).any(|offered| {
                    plain(offered).trim_end().eq_ignore_ascii_case(plain(line).trim_end())
                        || offered.trim_end() == format!("* {any}")
                });
                // Numbers that nobody tells of would look like losses: one goes with the other.
                let numbered = any == "transport-cc"
                    && values(told, "a=extmap").any(|map| map.contains("transport-wide-cc"));
                if !known && !numbered {
                    wrong.push(format!("{name}:{line} of {mid}"));
                }
            }
        }
        if has(told, "a=rtcp-mux") && !asked.iter().any(|line| line.starts_with("a=rtcp-mux")) {
            wrong.push(format!("rtcp-mux of {mid}"));
        }
        let fits = match direction(asked) {
            "a=sendonly" => ["a=recvonly", "a=inactive"].contains(&direction(told)),
            "a=recvonly" => ["a=sendonly", "a=inactive"].contains(&direction(told)),
            "a=inactive" => direction(told) == "a=inactive",
            _ => true,
        };
        if !fits {
            wrong.push(format!("{} for {}", direction(told), direction(asked)));
        }
        let setup = |part: &[&str], session: &[&str]| {
            values(part, "a=setup")
                .chain(values(session, "a=setup"))
                .next()
                .unwrap_or("none")
                .to_owned()
        };
        let (asked_role, role) = (setup(asked, &offered[0]), setup(told, &answered[0]));
        if !matches!(
            (asked_role.trim_end(), role.as_str()),
            ("actpass", "active" | "passive")
                | ("none", "passive")
                | ("active", "passive")
                | ("passive", "active")
        ) {
            wrong.push(format!("role {role} for {asked_role}"));
        }
    }
    wrong
}

/// A client of our own that says what another one offered, and the server that answers.
struct Pair {
    now: Instant,
    client: IceDtls,
    server: IceDtls,
    up: [bool; 2],
    error: Option<TransportError>,
}

const VOICE: OfferLine = OfferLine { kind: Kind::Audio, send: true, layers: &[] };

impl Pair {
    fn new(shared: &Shared, now: Instant) -> Self {
        let client = IceDtls::client(shared, Some(VideoFormat::Vp8), CLIENT, now).unwrap();
        let server = IceDtls::server(shared, Some(VideoFormat::Vp8), &[SERVER], now).unwrap();
        Self { now, client, server, up: [false; 2], error: None }
    }

    /// The client takes what the answer says of the transport.
    fn take(&mut self, shared: &Shared, own: &str, answer: &str) {
        let mut other =
            IceDtls::server(shared, Some(VideoFormat::Vp8), &[SERVER], self.now).unwrap();
        let (plain, _) = other.accept_offer(own).unwrap();
        let lines = plain.lines().map(|line| {
            let same = ["a=ice-ufrag", "a=ice-pwd", "a=fingerprint", "a=setup"];
            match same.iter().find(|name| line.starts_with(**name)) {
                Some(name) => format!("{name}:{}\r\n", value(answer, name).unwrap_or("missing")),
                // A candidate names the credentials that it is of.
                None => format!("{}\r\n", line.split(" ufrag ").next().unwrap_or_default()),
            }
        });
        let told: String = lines.collect();
        // Where media is received stands in the first line that lives.
        let first = sections(answer)[1..].iter().find(|section| !is_rejected(section)).cloned();
        assert!(first.is_some_and(|lines| values(&lines, "a=candidate").count() > 0), "{answer}");
        self.client.accept_answer(&told).unwrap();
    }

    fn drain(&mut self, wire: &mut VecDeque<(bool, SocketAddr, SocketAddr, Vec<u8>)>) -> Instant {
        let mut next = self.now + Duration::from_secs(1);
        for (at, peer) in [&mut self.client, &mut self.server].into_iter().enumerate() {
            loop {
                match peer.poll() {
                    Ok(Output::Transmit { source, destination, data }) => {
                        wire.push_back((at == 0, source, destination.socket, data));
                    }
                    Ok(Output::Event(event)) => {
                        self.up[at] |= matches!(event, Event::Connected { .. })
                    }
                    Ok(Output::Wait(when)) => {
                        next = next.min(when);
                        break;
                    }
                    Err(error) => {
                        self.error.get_or_insert(error);
                        break;
                    }
                }
            }
        }
        next
    }

    /// Whether both are up within 15 s.
    fn comes_up(&mut self) -> bool {
        let (end, mut wire) = (self.now + Duration::from_secs(15), VecDeque::new());
        while self.now < end && self.up != [true; 2] {
            let next = self.drain(&mut wire);
            if let Some((to_server, source, destination, data)) = wire.pop_front() {
                let peer = if to_server { &mut self.server } else { &mut self.client };
                if let Err(error) = peer.handle_datagram(self.now, source, destination, &data)
                    && to_server
                {
                    self.error.get_or_insert(error);
                }
                continue;
            }
            self.now = next.max(self.now + Duration::from_millis(1)).min(end);
            let timeouts =
                [self.client.handle_timeout(self.now), self.server.handle_timeout(self.now)];
            self.error = self.error.take().or(timeouts.into_iter().find_map(Result::err));
        }
        self.up == [true; 2]
    }
}

/// The offer of another client with the identity of ours.
fn of_ours(offer: &str, own: &str) -> String {
    let line = |line: &str| {
        let name = IDENTITY.iter().find(|name| line.starts_with(**name));
        match name.map(|name| name.trim_end_matches(':')) {
            Some(name) => format!("{name}:{}", value(own, name).expect("ours has it")),
            None => line.to_owned(),
        }
    };
    offer.lines().map(|text| format!("{}\r\n", line(text))).collect()
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum End {
    Refused,
    Up,
    /// Its client is told why it does not come up.
    Told,
}

/// What becomes of an offer. Errors: what is wrong with that.
fn end(
    shared: &Shared,
    now: Instant,
    offer: impl FnOnce(&str) -> (String, String),
) -> Result<End, String> {
    let mut pair = Pair::new(shared, now);
    let own = pair.client.offer(&[VOICE], false).unwrap().sdp;
    let (mutated, before) = offer(&own);
    let (answer, agreed): (String, Negotiated) = match pair.server.accept_offer(&mutated) {
        Ok(answered) => answered,
        Err(TransportError::Sdp(why)) if why.starts_with("line ") => return Ok(End::Refused),
        Err(error) => {
            return Err(format!("{before:?}: refused without a line: {error}\n{mutated}"));
        }
    };
    let told = |what: String| format!("{before:?}: {what}\n{mutated}\n{answer}");
    let wrong = misfits(&mutated, &answer);
    if !wrong.is_empty() {
        return Err(told(wrong.join(", ")));
    }
    if agreed.lines.is_empty() {
        return Err(told("nothing was agreed on".into()));
    }
    pair.take(shared, &own, &answer);
    if pair.comes_up() {
        return Ok(End::Up);
    }
    let is_told =
        pair.error.as_ref().is_some_and(|error| matches!(error, TransportError::Handshake(..)))
            || pair.server.was_checked();
    match is_told && IDENTITY.iter().any(|name| before.starts_with(name)) {
        true => Ok(End::Told),
        false => Err(told(format!(
            "it does not come up: {:?} checked {} up {:?}",
            pair.error,
            pair.server.was_checked(),
            pair.up
        ))),
    }
}

#[test]
fn offers_with_one_line_wrong_come_up_or_are_refused_with_the_line() {
    let (shared, now) = (Shared::new().unwrap(), Instant::now());
    let times = std::env::var("MOIM_TIMES").ok().and_then(|n| n.parse().ok()).unwrap_or(TIMES);
    let (mut ends, mut faults) = (BTreeMap::<(&str, End), u32>::new(), Vec::new());
    for (client, recorded) in CLIENTS {
        let whole = end(&shared, now, |own| (of_ours(recorded, own), "nothing".into()));
        assert_eq!(whole, Ok(End::Up), "{client}");
        for seed in 0..times {
            let mut random = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ client.len() as u64);
            let became = end(&shared, now, |own| mutate(&of_ours(recorded, own), &mut random));
            match became {
                Ok(end) => *ends.entry((client, end)).or_default() += 1,
                Err(why) => faults.push(format!("{client}, seed {seed}: {why}")),
            }
        }
    }
    println!("{ends:?}");
    assert!(faults.is_empty(), "{} faults: {}", faults.len(), faults.join("\n---\n"));
}

/// A client stops a track, and later another one takes its place in the offer (RFC 8829, section 5.2.2).
#[test]
fn lines_are_stopped_and_recycled() {
    let (shared, now) = (Shared::new().unwrap(), Instant::now());
    for (client, recorded) in CLIENTS {
        let mut pair = Pair::new(&shared, now);
        let own = pair.client.offer(&[VOICE], false).unwrap().sdp;
        let whole = of_ours(recorded, &own);
        let take = |pair: &mut Pair, offer: &str, what: &str| {
            let (answer, agreed) = pair
                .server
                .accept_offer(offer)
                .unwrap_or_else(|why| panic!("{client}, {what}: {why}\n{offer}"));
            assert_eq!(misfits(offer, &answer), [""; 0], "{client}, {what}:\n{offer}\n{answer}");
            let mids: Vec<String> = agreed.lines.into_iter().map(|line| line.mid).collect();
            (answer, mids)
        };
        let (answer, all) = take(&mut pair, &whole, "all lines");
        pair.take(&shared, &own, &answer);
        assert!(pair.comes_up(), "{client}");
        // The second line is stopped.
        let parts = sections(&whole);
        let stopped = values(&parts[2], "a=mid").next().unwrap().to_owned();
        let group = parts[0].iter().find(|line| line.starts_with("a=group:BUNDLE")).unwrap();
        let others: Vec<&str> = group.split(' ').filter(|mid| *mid != stopped).collect();
        let text = |parts: &[Vec<&str>]| -> String {
            parts.iter().flatten().map(|line| format!("{line}\r\n")).collect()
        };
        let without = others.join(" ");
        let mut offer = parts.clone();
        offer[0].iter_mut().filter(|line| *line == group).for_each(|line| *line = &without);
        let words: Vec<&str> = offer[2][0].split(' ').collect();
        let unused = [&[words[0], "0"], &words[2..]].concat().join(" ");
        offer[2][0] = &unused;
        offer[2].retain(|line| {
            *line != "a=bundle-only" && !line.starts_with("a=send") && !line.starts_with("a=ssrc")
        });
        offer[2].push("a=inactive");
        let (_, left) = take(&mut pair, &text(&offer), "one stopped");
        assert!(left.len() + 1 == all.len() && !left.contains(&stopped), "{client}: {left:?}");
        // A line of the other kind takes its place.
        let mut new = parts[3].clone();
        let mid = format!("a=mid:{}", values(&parts[3], "a=mid").next().unwrap());
        new.iter_mut().filter(|line| **line == mid).for_each(|line| *line = "a=mid:new");
        new.retain(|line| !line.starts_with("a=ssrc"));
        let with_new = group.split(' ').map(|mid| if mid == stopped { "new" } else { mid });
        let with_new = with_new.collect::<Vec<_>>().join(" ");
        offer[0] = parts[0].clone();
        offer[0].iter_mut().filter(|line| *line == group).for_each(|line| *line = &with_new);
        offer[2] = new;
        let (_, again) = take(&mut pair, &text(&offer), "one recycled");
        assert!(
            again.len() == all.len() && again.contains(&"new".to_owned()),
            "{client}: {again:?}"
        );
    }
}
