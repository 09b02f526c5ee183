//! A NAT gives a participant another port, and they do not know: media follows, to addresses that answer and to no others.

use super::consent::{Call, PERSON, address};
use engine::drops::InDrop;
use engine::limits::{PATH_SILENT, STRANGERS_A_SECOND};
use engine::{Command, Handled, Precedence, TrackKey};
use rtp::header::HeaderWriter;
use rtp::negotiated::Direction;
use rtp::rtcp;
use rtp::srtp::{SealStream, Sealer};
use rtp::stun::{Check, Role};
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

const MS: Duration = Duration::from_millis(1);
const S: Duration = Duration::from_secs(1);

fn port(port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], port))
}

/// A client who sends sound, and can be anywhere.
struct Talker {
    call: Call,
    sealer: Sealer,
    stream: SealStream,
    sequence: u16,
}

impl Talker {
    fn new() -> Self {
        Self::of(Call::begin())
    }

    fn of(mut call: Call) -> Self {
        call.connect();
        let sends = |line: &&rtp::negotiated::Line| line.direction == Direction::Send;
        let line = call.agreed.lines.iter().find(sends).expect("it sends sound").clone();
        let mut sealer = Sealer::new(&call.keys.as_ref().expect("connected").local);
        let ssrc = line.local.expect("of an SSRC").ssrc;
        let stream = sealer.stream(ssrc).expect("nobody else sends it");
        call.command(Command::AddTrack {
            track: TrackKey(1),
            person: PERSON,
            mid: line.mid,
            mixed: false,
            opaque: false,
            precedence: Precedence::default(),
        });
        Self { call, sealer, stream, sequence: 100 }
    }

    /// A packet of sound.
    fn packet(&mut self) -> Vec<u8> {
        let mut packet = [0; 200];
        let writer = HeaderWriter {
            payload_type: 111,
            sequence: self.sequence,
            timestamp: u32::from(self.sequence) * 960,
            ssrc: self.stream.ssrc(),
            ..HeaderWriter::default()
        };
        let header = writer.write(&mut packet).expect("it fits");
        self.sequence += 1;
        let len = self.sealer.seal_rtp(&mut self.stream, &mut packet, header, header + 60);
        packet[..len.expect("it fits")].to_vec()
    }

    /// A report, as a listener sends it each 5 s.
    fn report(&mut self) -> Vec<u8> {
        let mut report = Vec::new();
        rtcp::receiver_report(&mut report, 77, &[]);
        rtcp::sdes_cname(&mut report, 77, "somebody-who-only-listens");
        let len = report.len();
        report.resize(len + 40, 0);
        let len = self.sealer.seal_rtcp(&mut report, len).expect("it fits");
        report.truncate(len);
        report
    }

    /// Talks for so long.
    fn talk(&mut self, span: Duration) {
        let end = self.call.now + span;
        while self.call.now < end {
            let packet = self.packet();
            self.call.come(self.call.at, &packet);
            self.call.run(20 * MS);
        }
    }

    /// A check with the client's credentials. Pion, aiortc and Firefox nominate no more once a pair is chosen.
    fn check(&mut self, priority: u32, nominates: bool) -> Vec<u8> {
        let own = self.call.agent.credentials();
        let username = format!("{}:theirs", own.local_ufrag());
        let (role, id) = (Role::Controlling { nominates }, [7; 12]);
        let check = Check { username: &username, id, priority, role, tie_breaker: [0; 8] };
        let mut out = [0; 200];
        let len = check.write(own.password(), &mut out).expect("it fits");
        out[..len].to_vec()
    }

    fn moved(&self) -> u64 {
        self.call.shard.stats().moved
    }

    /// Bytes that went to an address.
    fn went(&self, at: SocketAddr) -> usize {
        self.call.went.get(&at).copied().unwrap_or_default()
    }
}

#[test]
fn media_follows_a_port_that_changes_under_who_talks() {
    let mut talker = Talker::new();
    talker.talk(S);
    for nth in 1..=3 {
        // A restarted NAT is silent for a while.
        talker.call.run(S);
        talker.call.at = port(5000 + nth);
        let moved_at = talker.call.now;
        talker.talk(60 * MS);
        assert_eq!(talker.moved(), u64::from(nth));
        talker.talk(20 * S);
        let since = talker.call.media.iter().filter(|(at, ..)| *at > moved_at);
        let to: BTreeSet<_> = since.map(|(_, to, _)| *to).collect();
        assert_eq!(to, BTreeSet::from([talker.call.at]), "nothing goes where nobody is");
    }
    let stats = talker.call.shard.stats();
    assert_eq!(stats.in_drops.get(InDrop::UnknownSource), 0, "all was heard");
    assert_eq!(stats.strangers_tried, 3, "the first packet of each port");
    // The agent knows them there: they are not taken for gone.
    talker.talk(40 * S);
    assert!(talker.call.agent_events.is_empty(), "{:?}", talker.call.agent_events);
}

#[test]
fn a_listener_is_found_by_a_report_or_by_a_check() {
    for by_check in [false, true] {
        let mut talker = Talker::new();
        let report = talker.report();
        talker.call.come(address(false), &report);
        talker.call.run(S);
        talker.call.at = port(5001);
        let sign = match by_check {
            true => talker.check(talker.call.priority.expect("it checked"), false),
            false => talker.report(),
        };
        talker.call.come(port(5001), &sign);
        talker.call.run(20 * MS);
        assert_eq!(talker.moved(), 1, "by a check: {by_check}");
        talker.call.run(40 * S);
        assert!(talker.call.agent_events.is_empty(), "{:?}", talker.call.agent_events);
    }
}

#[test]
fn nothing_goes_to_a_first_address_that_the_handshake_did_not_show_before_it_answers() {
    let mut call = Call::begin();
    call.reached = false;
    let mut talker = Talker::of(call);
    talker.talk(3 * S);
    assert_eq!(talker.call.shard.stats().challenges, 1);
    assert!(talker.call.media.len() >= 2, "it answered, and gets reports");
    let mut call = Call::begin();
    call.reached = false;
    let mut talker = Talker::of(call);
    // From the handshake on nothing reaches the client.
    talker.call.lose = usize::MAX;
    let answered = talker.call.shard.stats().challenges;
    talker.call.at = port(5001);
    talker.talk(10 * S);
    assert!(talker.call.shard.stats().challenges > answered, "the other port is asked as well");
    assert!(talker.call.media.is_empty(), "neither ever answered: {:?}", talker.call.media);
}

#[test]
fn a_challenge_that_is_lost_is_sent_again() {
    let mut talker = Talker::new();
    talker.talk(S);
    talker.call.run(S);
    talker.call.at = port(5001);
    talker.call.lose = 2;
    talker.talk(280 * MS);
    assert_eq!(talker.moved(), 0);
    talker.talk(60 * MS);
    assert_eq!((talker.moved(), talker.call.shard.stats().challenges), (1, 3));
    assert_eq!(talker.call.shard.stats().in_drops.get(InDrop::UnknownSource), 0, "all was heard");
}

#[test]
fn an_address_that_never_answers_gets_three_times_what_came_from_there_at_most() {
    let (mut talker, victim) = (Talker::new(), port(6001));
    talker.talk(S);
    let mut came = 0;
    for round in 0..600 {
        // Nominations, checks like those of the pair in use, checks of another pair, and media.
        let priority = talker.call.priority.expect("it checked");
        let datagram = match round % 4 {
            0 => talker.check(priority + 1, true),
            1 => talker.check(priority, false),
            2 => talker.check(1, false),
            _ => talker.packet(),
        };
        came += datagram.len();
        talker.call.come(victim, &datagram);
        assert!(talker.went(victim) <= 3 * came, "{} for {came}", talker.went(victim));
        talker.call.run(100 * MS);
    }
    assert!(talker.went(victim) > 0 && talker.moved() == 0);
    assert!(talker.call.media.iter().all(|(_, to, _)| *to == address(false)));
    assert!(talker.call.media.len() > 50, "who was there still gets all");
}

#[test]
fn other_pairs_of_a_client_change_nothing_while_theirs_lives() {
    let mut talker = Talker::new();
    let elsewhere = SocketAddr::from(([127, 0, 0, 2], 5001));
    let priority = talker.call.priority.expect("it checked");
    for _ in 0..20 {
        talker.talk(S);
        let other = talker.check(priority - 1, false);
        talker.call.come(elsewhere, &other);
        talker.call.come(port(5001), &other);
        let same = talker.check(priority, false);
        talker.call.come(elsewhere, &same);
        talker.call.come(port(5001), &same);
    }
    assert_eq!((talker.moved(), talker.call.shard.stats().challenges), (0, 0));
    // Another network, of which the client does not know: nothing comes from the old one any more.
    talker.call.at = elsewhere;
    talker.call.run(PATH_SILENT);
    let check = talker.check(priority, false);
    talker.call.come(elsewhere, &check);
    talker.call.run(20 * MS);
    assert_eq!(talker.moved(), 1);
}

#[test]
fn strangers_packets_are_tried_with_few_keys_and_seldom() {
    let mut talker = Talker::new();
    talker.talk(S);
    talker.call.run(S);
    let before = talker.call.shard.stats().clone();
    let mut forged = talker.packet();
    let last = forged.len() - 1;
    forged[last] ^= 1;
    for nth in 0..10_000u32 {
        let handled = talker.call.come(port(7000 + (nth % 1000) as u16), &forged);
        assert_eq!(handled, Handled::Dropped(InDrop::UnknownSource));
        if nth % 10 == 9 {
            talker.call.run(MS);
        }
    }
    let stats = talker.call.shard.stats();
    let tried = stats.strangers_tried - before.strangers_tried;
    assert!(tried <= 2 * u64::from(STRANGERS_A_SECOND), "in a second, with a full bucket: {tried}");
    assert_eq!((stats.challenges, talker.moved()), (0, 0));
    // From another IP address nobody's keys are tried.
    let packet = talker.packet();
    let elsewhere = SocketAddr::from(([127, 0, 0, 2], 5001));
    assert_eq!(talker.call.come(elsewhere, &packet), Handled::Dropped(InDrop::UnknownSource));
}

#[test]
fn nothing_is_kept_of_addresses_once_their_participant_has_left() {
    let mut talker = Talker::new();
    talker.talk(S);
    for nth in 0..20 {
        talker.call.run(S);
        let packet = talker.packet();
        talker.call.come(port(6000 + nth), &packet);
    }
    talker.call.command(Command::Remove { person: PERSON });
    talker.call.command(Command::Forget { person: PERSON });
    talker.call.run(S);
    let kept: Vec<_> = talker.call.shard.kept().filter(|(_, count)| *count > 0).collect();
    assert_eq!(kept, []);
}
