//! Checks on a pair in use are answered where packets arrive; the ICE agent hears enough of them.

use super::sinks::Outbox;
use engine::drops::InDrop;
use engine::shard::Datagram;
use engine::{Command, Handled, Now, PersonKey, RoomKey, Shard, ShardIndex};
use rtp::negotiated::{Kind, Negotiated};
use rtp::srtp::KeyPair;
use rtp::stun;
use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use transport::{Event, IceDtls, OfferLine, Output, Shared};

/// A real client and a real agent; between them a shard, as in the server.
pub(super) struct Call {
    pub now: Instant,
    client: IceDtls,
    pub agent: IceDtls,
    pub shard: Shard,
    /// Whether it goes to the server, where the server sees the client, and its bytes.
    wire: VecDeque<(bool, SocketAddr, Vec<u8>)>,
    /// Where the server sees the client now.
    pub at: SocketAddr,
    /// The client is off the network.
    pub cut: bool,
    pub answered: usize,
    went_up: usize,
    client_events: Vec<Event>,
    pub agent_events: Vec<Event>,
    /// What was agreed last, as the client sees it, and their keys.
    pub agreed: Negotiated,
    pub keys: Option<KeyPair>,
    /// When packets of media left the shard, and where they went.
    pub media: Vec<(Instant, SocketAddr, usize)>,
    /// Bytes that went to an address: all of them.
    pub went: BTreeMap<SocketAddr, usize>,
    /// The priority that the client's checks give the pair.
    pub priority: Option<u32>,
    /// So many datagrams to the client are lost from now on.
    pub lose: usize,
    /// Whether the handshake is said to have shown that the client receives at their address.
    pub reached: bool,
}

pub(super) const PERSON: PersonKey = PersonKey(1);

pub(super) fn address(server: bool) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], if server { 2000 } else { 1000 }))
}

impl Call {
    pub fn begin() -> Self {
        let (shared, now) = (Shared::new().expect("a certificate"), Instant::now());
        let client = IceDtls::client(&shared, None, address(false), now).expect("a client");
        let agent = IceDtls::server(&shared, None, &[address(true)], now).expect("an agent");
        let mut call = Self {
            now,
            client,
            agent,
            shard: Shard::new(ShardIndex(0), 1),
            wire: VecDeque::new(),
            at: address(false),
            cut: false,
            answered: 0,
            went_up: 0,
            client_events: Vec::new(),
            agent_events: Vec::new(),
            agreed: Negotiated::default(),
            keys: None,
            media: Vec::new(),
            went: BTreeMap::new(),
            priority: None,
            lose: 0,
            reached: true,
        };
        call.offer(&[OfferLine { kind: Kind::Audio, send: true, layers: &[] }], false);
        call
    }

    fn time(&self) -> Now {
        Now { at: self.now, unix: Duration::from_secs(1_700_000_000) }
    }

    pub fn command(&mut self, command: Command) {
        let (now, mut sink) = (self.time(), Outbox::with_control());
        self.shard.command(command, now, &mut sink);
        self.leave(sink);
    }

    /// What the shard sends goes on the wire.
    fn leave(&mut self, sink: Outbox) -> Vec<Vec<u8>> {
        for (to, data) in sink.out {
            *self.went.entry(to).or_default() += data.len();
            if data[0] >= 128 {
                self.media.push((self.now, to, data.len()));
            }
            self.wire.push_back((false, to, data));
        }
        sink.up.unwrap_or_default().into_iter().map(|(_, data)| data).collect()
    }

    fn offer(&mut self, lines: &[OfferLine], restart: bool) {
        let offer = self.client.offer(lines, restart).expect("an offer");
        let (answer, negotiated) = self.agent.accept_offer(&offer.sdp).expect("an answer");
        self.agreed = self.client.accept_answer(&answer).expect("agreed");
        let responder = Box::new(self.agent.credentials());
        let challenger = Box::new(self.agent.challenger().expect("an offer came"));
        self.command(Command::Expect { person: PERSON, responder, challenger });
        self.command(Command::Lines { person: PERSON, room: RoomKey(1), negotiated });
    }

    fn credentials(&mut self) {
        let responder = Box::new(self.agent.responder().expect("nominated"));
        self.command(Command::Credentials { person: PERSON, responder });
    }

    /// The client's next deadline and the agent's; what they say goes on the wire, or is kept.
    fn drain(&mut self) -> Instant {
        let mut next = self.now + Duration::from_secs(1);
        for server in [false, true] {
            let (peer, events) = match server {
                false => (&mut self.client, &mut self.client_events),
                true => (&mut self.agent, &mut self.agent_events),
            };
            loop {
                match peer.poll().expect("alive") {
                    Output::Transmit { destination, data, .. } => {
                        let at = if server { destination.socket } else { self.at };
                        if server {
                            *self.went.entry(at).or_default() += data.len();
                        }
                        self.wire.push_back((!server, at, data));
                    }
                    Output::Event(event) => events.push(event),
                    Output::Wait(at) => break next = next.min(at),
                }
            }
        }
        next
    }

    fn deliver(&mut self, to_server: bool, at: SocketAddr, data: &[u8]) {
        let now = self.now;
        if to_server {
            self.priority = stun::priority(data).or(self.priority);
            self.come(at, data);
        } else if self.lose > 0 {
            self.lose -= 1;
        } else if at == self.at && data[0] < 128 {
            self.client.handle_datagram(now, address(true), address(false), data).expect("taken");
        }
    }

    /// A datagram comes to the server.
    pub fn come(&mut self, at: SocketAddr, data: &[u8]) -> Handled {
        let (now, time, mut sink) = (self.now, self.time(), Outbox::with_control());
        let come = Datagram { source: at.into(), data, arrival: now };
        let handled = self.shard.handle_datagram(time, &come, &mut sink);
        self.shard.flush(time, &mut sink);
        let up = self.leave(sink);
        match handled {
            Handled::Check => self.answered += 1,
            Handled::Control => self.went_up += 1,
            _ => {}
        }
        assert_eq!(usize::from(handled == Handled::Control), up.len());
        for data in up {
            self.agent.handle_datagram(now, at, address(true), &data).expect("taken");
            self.obey();
        }
        handled
    }

    /// What the agent says once the call has begun, the shard is told, as by the control thread.
    fn obey(&mut self) {
        self.drain();
        for event in std::mem::take(&mut self.agent_events) {
            match event {
                Event::Remote(remote) => self.command(Command::Move { person: PERSON, remote }),
                other => self.agent_events.push(other),
            }
        }
    }

    pub fn run(&mut self, span: Duration) {
        let end = self.now + span;
        while self.now < end {
            let next = self.drain();
            if let Some((to_server, at, data)) = self.wire.pop_front() {
                if !self.cut {
                    self.deliver(to_server, at, &data);
                }
                continue;
            }
            let due = self.shard.next_deadline();
            if due.is_some_and(|due| due <= self.now) {
                let (now, mut sink) = (self.time(), Outbox::with_control());
                self.shard.handle_timeout(now, &mut sink);
                self.leave(sink);
                continue;
            }
            let next = due.map_or(next, |due| due.min(next));
            self.now = next.max(self.now + Duration::from_millis(1)).min(end);
            self.client.handle_timeout(self.now).expect("alive");
            self.agent.handle_timeout(self.now).expect("alive");
        }
    }

    /// As the control thread does when both have keys.
    pub fn connect(&mut self) {
        self.run(Duration::from_secs(3));
        let connected = self.agent_events.drain(..).find_map(|event| match event {
            Event::Connected { keys, remote, reached } => Some((Box::new(keys), remote, reached)),
            _ => None,
        });
        let (keys, remote, reached) = connected.expect("connected");
        assert!(reached, "the handshake went to one address alone");
        let reached = self.reached;
        self.command(Command::Install { person: PERSON, keys, remote, reached });
        self.credentials();
        self.command(Command::Begin { person: PERSON });
        let keys = |event: Event| match event {
            Event::Connected { keys, .. } => Some(keys),
            _ => None,
        };
        self.keys = self.client_events.drain(..).find_map(keys);
        (self.answered, self.went_up) = (0, 0);
    }
}

#[test]
fn a_call_lives_on_checks_answered_by_the_shard_and_ends_when_they_end() {
    let mut call = Call::begin();
    call.connect();
    call.run(Duration::from_secs(120));
    assert!(call.agent_events.is_empty(), "{:?}", call.agent_events);
    assert!(call.client_events.is_empty(), "{:?}", call.client_events);
    let (answered, went_up) = (call.answered, call.went_up);
    assert!((20..=24).contains(&went_up), "one each 5 s or the next after: {went_up}");
    assert!(answered >= 15, "{answered} answered here, {went_up} went up");
    assert_eq!(call.shard.stats().checks, answered as u64);

    call.cut = true;
    call.run(Duration::from_secs(16));
    assert!(matches!(call.agent_events[..], [Event::Disconnected]), "{:?}", call.agent_events);
    call.command(Command::Suspend { person: PERSON });
    call.agent_events.clear();
    (call.answered, call.went_up) = (0, 0);
    call.cut = false;
    call.run(Duration::from_secs(6));
    assert!(matches!(call.agent_events[..], [Event::Reconnected]), "{:?}", call.agent_events);
    assert_eq!(call.answered, 0, "whoever was gone: the agent says that he is back");
}

#[test]
fn after_an_ice_restart_the_agent_sees_the_nomination() {
    let mut call = Call::begin();
    call.connect();
    call.run(Duration::from_secs(10));
    assert!(call.answered > 0);
    call.offer(&[], true);
    assert!(call.agent.responder().is_none(), "not before a pair is nominated anew");
    call.answered = 0;
    call.run(Duration::from_secs(5));
    let old = call.answered;
    call.credentials();
    call.run(Duration::from_secs(60));
    assert!(call.agent_events.is_empty(), "{:?}", call.agent_events);
    assert!(call.client_events.is_empty(), "{:?}", call.client_events);
    assert!(call.answered - old >= 5, "with the new ones too: {}", call.answered);
}

#[test]
fn nobody_forges_a_check() {
    let mut call = Call::begin();
    call.connect();
    call.run(Duration::from_secs(10));
    // Each 100 ms from the participant's own address: to be heard of the agent, and to keep it from hearing them.
    let own = call.agent.credentials().local_ufrag().to_owned();
    let forged = |name: &str| {
        let pad = vec![0; name.len().next_multiple_of(4) - name.len()];
        let len = name.len() as u8;
        let head = [0, 1, 0, 4 + len + pad.len() as u8, 0x21, 0x12, 0xA4, 0x42];
        [&head[..], &[9; 12], &[0, 6, 0, len], name.as_bytes(), &pad].concat()
    };
    let checks = [
        (forged("a:b"), InDrop::UnknownFragment),
        (forged(&format!("{own}:b")), InDrop::CheckNotAuthentic),
    ];
    let mut sink = Outbox::with_control();
    for _ in 0..600 {
        for (forged, reason) in &checks {
            let come = Datagram { source: address(false).into(), data: forged, arrival: call.now };
            let time = call.time();
            let handled = call.shard.handle_datagram(time, &come, &mut sink);
            assert_eq!(handled, Handled::Dropped(*reason));
        }
        call.run(Duration::from_millis(100));
    }
    let (answers, up) = sink.into_answers();
    assert!(answers.is_empty() && up.is_empty());
    assert!(call.agent_events.is_empty(), "{:?}", call.agent_events);
    assert!(call.answered >= 8);
}
