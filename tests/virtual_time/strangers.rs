//! STUN and DTLS go up to the control thread if they are a participant's; all others' end at the shard.

use super::sinks::Outbox;
use engine::drops::InDrop;
use engine::limits::{
    ADDRESS_LASTS, ADDRESSES_EACH, CHECKS_A_SECOND, CHECKS_AT_ONCE, DTLS_A_SECOND, DTLS_AT_ONCE,
};
use engine::shard::Datagram;
use engine::{Command, Handled, Now, PersonKey, Shard, ShardIndex};
use rtp::negotiated::Kind;
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use transport::{IceDtls, OfferLine, Output, Shared};

const DTLS: &[u8] = &[22, 254, 253, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0];
const ADA: PersonKey = PersonKey(1);
const EVE: PersonKey = PersonKey(2);

/// A shard that expects two participants.
struct World {
    now: Instant,
    shard: Shard,
    /// An authentic check of each.
    checks: [Vec<u8>; 2],
}

fn address(port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], port))
}

/// An agent that answered, and the first check that the other side sends it.
fn expected(shared: &Shared, now: Instant) -> (IceDtls, Vec<u8>) {
    let mut client = IceDtls::client(shared, None, address(1), now).expect("a client");
    let mut agent = IceDtls::server(shared, None, &[address(2)], now).expect("an agent");
    let line = OfferLine { kind: Kind::Audio, send: true, layers: &[] };
    let offer = client.offer(&[line], false).expect("an offer");
    let (answer, _) = agent.accept_offer(&offer.sdp).expect("an answer");
    client.accept_answer(&answer).expect("agreed");
    let mut at = now;
    loop {
        client.handle_timeout(at).expect("alive");
        match client.poll().expect("alive") {
            Output::Transmit { data, .. } => return (agent, data),
            Output::Wait(next) => at = next,
            Output::Event(_) => {}
        }
    }
}

impl World {
    fn new() -> Self {
        let (shared, now) = (Shared::new().expect("a certificate"), Instant::now());
        let mut world = Self { now, shard: Shard::new(ShardIndex(0), 1), checks: [vec![], vec![]] };
        for (at, person) in [ADA, EVE].into_iter().enumerate() {
            let (mut agent, check) = expected(&shared, now);
            world.checks[at] = check;
            world.expect(person, &mut agent);
        }
        world
    }

    fn command(&mut self, command: Command) {
        let now = Now { at: self.now, unix: Duration::from_secs(1_700_000_000) };
        self.shard.command(command, now, &mut Outbox::with_control());
    }

    fn expect(&mut self, person: PersonKey, agent: &mut IceDtls) {
        let responder = Box::new(agent.credentials());
        let challenger = Box::new(agent.challenger().expect("an offer came"));
        self.command(Command::Expect { person, responder, challenger });
    }

    /// Whose a datagram was that went up, or why it did not.
    fn come(&mut self, port: u16, data: &[u8]) -> Result<PersonKey, InDrop> {
        let mut sink = Outbox::with_control();
        let come = Datagram { source: address(port).into(), data, arrival: self.now };
        let now = Now { at: self.now, unix: Duration::from_secs(1_700_000_000) };
        let handled = self.shard.handle_datagram(now, &come, &mut sink);
        assert!(sink.out.is_empty(), "nobody gets an answer here");
        match (handled, &sink.up.expect("for control")[..]) {
            (Handled::Control, [(person, up)]) if up == data => Ok(*person),
            (Handled::Dropped(reason), []) => Err(reason),
            other => panic!("{other:?}"),
        }
    }

    fn check(&mut self, person: PersonKey, port: u16) -> Result<PersonKey, InDrop> {
        let check = self.checks[if person == ADA { 0 } else { 1 }].clone();
        self.come(port, &check)
    }
}

#[test]
fn strangers_datagrams_end_at_the_shard_by_reason() {
    let mut world = World::new();
    assert_eq!(world.come(10, DTLS), Err(InDrop::UnknownSource));
    let check = world.checks[0].clone();
    let mut response = check.clone();
    response[0] = 1;
    assert_eq!(world.come(10, &response), Err(InDrop::StunNotAsked), "no answer is waited for");
    let mut forged = check.clone();
    forged[8] ^= 1;
    assert_eq!(world.come(10, &forged), Err(InDrop::CheckNotAuthentic));
    for end in 2..check.len() - 9 {
        let cut = world.come(10, &check[..end]).expect_err("cut");
        assert!(
            matches!(
                cut,
                InDrop::StunNotAsked | InDrop::UnknownFragment | InDrop::CheckNotAuthentic
            ),
            "{end}: {cut:?}"
        );
    }
    assert_eq!(world.come(10, DTLS), Err(InDrop::UnknownSource), "none of them taught an address");
    assert_eq!(world.come(10, &check), Ok(ADA));
    assert_eq!(world.come(10, DTLS), Ok(ADA));
    assert_eq!(world.come(11, DTLS), Err(InDrop::UnknownSource), "another address");
}

#[test]
fn a_restart_ends_the_old_credentials_and_a_leave_all() {
    let mut world = World::new();
    assert_eq!(world.check(ADA, 10), Ok(ADA));
    let (shared, now) = (Shared::new().expect("a certificate"), world.now);
    let (mut agent, check) = expected(&shared, now);
    world.expect(ADA, &mut agent);
    assert_eq!(world.check(ADA, 10), Err(InDrop::UnknownFragment));
    assert_eq!(world.come(10, &check), Ok(ADA));
    world.command(Command::Forget { person: ADA });
    assert_eq!(world.come(10, &check), Err(InDrop::UnknownFragment));
    assert_eq!(world.come(10, DTLS), Err(InDrop::UnknownSource));
    assert_eq!(world.check(EVE, 11), Ok(EVE));
}

#[test]
fn an_address_stays_its_participants_while_they_are_there() {
    let mut world = World::new();
    assert_eq!(world.check(ADA, 10), Ok(ADA));
    // Eve signs with her own credentials and forges the source.
    assert_eq!(world.check(EVE, 10), Err(InDrop::AddressTaken));
    assert_eq!(world.come(10, DTLS), Ok(ADA));
    world.now += ADDRESS_LASTS - Duration::from_secs(1);
    assert_eq!(world.check(ADA, 10), Ok(ADA));
    world.now += ADDRESS_LASTS - Duration::from_secs(1);
    assert_eq!(world.check(EVE, 10), Err(InDrop::AddressTaken));
    // Whoever is silent for so long is gone, and a NAT gives the port to somebody else.
    world.now += Duration::from_secs(1);
    assert_eq!(world.check(EVE, 10), Ok(EVE));
    assert_eq!(world.come(10, DTLS), Ok(EVE));
    // Ada gets around, and loses the oldest of her addresses: that one is not hers any more.
    for port in 100..100 + ADDRESSES_EACH as u16 {
        assert_eq!(world.check(ADA, port), Ok(ADA));
    }
    assert_eq!(world.come(10, DTLS), Ok(EVE));
    assert_eq!(world.come(100, DTLS), Ok(ADA));
    assert_eq!(world.check(ADA, 200), Ok(ADA));
    assert_eq!(world.come(100, DTLS), Err(InDrop::UnknownSource));
    world.command(Command::Forget { person: ADA });
    assert_eq!(world.come(10, DTLS), Ok(EVE));
    assert_eq!(world.check(EVE, 101), Ok(EVE), "what was hers is free");
}

#[test]
fn ones_junk_leaves_the_others_their_share() {
    let mut world = World::new();
    let taken = |world: &mut World, count: u32, dtls: bool| {
        let mut come = |_: &u32| match dtls {
            true => world.come(10, DTLS),
            false => world.check(ADA, 10),
        };
        (0..count).filter(|nth| come(nth).is_ok()).count() as u32
    };
    assert_eq!(taken(&mut world, 1000, false), CHECKS_AT_ONCE);
    assert_eq!(taken(&mut world, 1000, true), DTLS_AT_ONCE, "a share of its own");
    assert_eq!(world.check(EVE, 11), Ok(EVE));
    assert_eq!(world.come(11, DTLS), Ok(EVE));
    world.now += Duration::from_secs(1);
    assert_eq!(taken(&mut world, 1000, false), CHECKS_A_SECOND);
    assert_eq!(taken(&mut world, 1000, true), DTLS_A_SECOND);
    assert_eq!(world.come(10, DTLS), Err(InDrop::ControlShare));
}
