//! The link on real sockets: a thread (`link`) between people and servers.
//!
//! Who goes by it is told an address of its own to send to, in place of each of the server's (a
//! [`Leg`]); the relay sends on from an address that only this person's packets come from, as a NAT
//! does, so that any server keeps people apart. All addresses are of 127.0.0.0/8 on two shared
//! sockets: legs need no descriptors, unless a server has an address beyond the loopback. From there nothing comes back to
//! 127.0.0.0/8, so that each connection to each address of such a server has a socket of its own ([`OwnSockets`]).
//! What is under way waits in one queue by its time.

use super::model::{Counts, Fate, LinkSpec, Path, Queue};
use super::own::OwnSockets;
use crate::base::local_ip;
use hdrhistogram::Histogram;
use net::{Events, Poller, RecvBatch, SendBatch, SocketOptions, UdpBatchSocket, Waker};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// First two bytes of the addresses that people send to, and that servers see.
const DOWN: [u8; 2] = [127, 252];
const UP: [u8; 2] = [127, 253];
/// Most legs, and most pairs of a leg and an address that is heard on it.
const MAX_LEGS: usize = 60_000;
/// Most packets under way.
const MAX_UNDER_WAY: usize = 200_000;
const BUFFER: usize = 16 << 20;
/// Receive calls in a row before packets that are due leave.
const RECEIVES_PER_TURN: usize = 4;
/// Tokens of the waker and the sockets; a flow's own socket has this one and its number more.
const WOKEN: u64 = 0;
const FROM_PEOPLE: u64 = 1;
const FROM_SERVERS: u64 = 2;
const FROM_A_SERVER: u64 = 3;

/// A person's way to one address of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Leg {
    number: usize,
    /// Where the person sends to.
    pub address: SocketAddr,
}

/// What a leg did: all packets, and those of media streams.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct LegCounts {
    /// To the server: all, media.
    pub up: (Counts, Counts),
    /// To the person: all, media.
    pub down: (Counts, Counts),
}

/// The queues of a link that several legs share, one each way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shared(usize);

/// A running relay. Dropping it ends it.
pub struct Relay {
    common: Arc<Common>,
    down_port: u16,
    thread: Option<JoinHandle<()>>,
}

struct Common {
    state: Mutex<State>,
    stop: AtomicBool,
    waker: Waker,
}

#[derive(Default)]
struct State {
    legs: Vec<LegState>,
    /// To servers, to people.
    queues: Vec<(Queue, Queue)>,
    flows: Vec<Flow>,
    by_person: HashMap<(usize, SocketAddr), usize>,
    dropped: u64,
    /// Why the first socket of a flow that could not be opened was not.
    socket_error: Option<String>,
    /// How much later than the model said packets left, in µs.
    late_us: Option<Histogram<u64>>,
}

struct LegState {
    server: SocketAddr,
    /// Where people's own sockets are bound to, before a server beyond the loopback.
    near: Option<IpAddr>,
    up: Path,
    down: Path,
    shared: Option<Shared>,
}

/// What a packet leaves by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Exit {
    /// The socket towards people, from this address.
    ToPeople(Ipv4Addr),
    /// The socket towards servers, from this address.
    ToServers(Ipv4Addr),
    /// The socket that this flow has for itself.
    Own(usize),
}

/// The way of a packet: what it goes by, what it leaves by, and where to.
struct Way<'a> {
    path: &'a mut Path,
    /// The queue that it waits in with those of others.
    queue: Option<&'a mut Queue>,
    exit: Exit,
    destination: SocketAddr,
}

/// An address that is heard on a leg; its number is that of the address that the server sees.
struct Flow {
    leg: usize,
    person: SocketAddr,
}

/// A packet under way.
struct Parcel {
    at: Instant,
    number: u64,
    exit: Exit,
    destination: SocketAddr,
    bytes: Vec<u8>,
}

impl PartialEq for Parcel {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Parcel {}

impl PartialOrd for Parcel {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Parcel {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.number).cmp(&(other.at, other.number))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The address of a number; 0 is none.
fn address(net: [u8; 2], number: usize) -> Ipv4Addr {
    let [high, low] = ((number + 1) as u16).to_be_bytes();
    Ipv4Addr::new(net[0], net[1], high, low)
}

fn number(address: Ipv4Addr) -> Option<usize> {
    let [_, _, high, low] = address.octets();
    usize::from(u16::from_be_bytes([high, low])).checked_sub(1)
}

/// The SSRC of a packet of media; none of STUN, DTLS and RTCP (RFC 7983, RFC 5761).
fn stream_of(packet: &[u8]) -> Option<u32> {
    let media = matches!(packet, [128..=191, second, ..] if !rtp::header::is_rtcp(*second));
    let ssrc = packet.get(8..12).filter(|_| media)?;
    Some(u32::from_be_bytes([ssrc[0], ssrc[1], ssrc[2], ssrc[3]]))
}

impl Relay {
    /// Starts the thread.
    ///
    /// # Errors
    /// The system gives no socket or thread.
    pub fn start() -> io::Result<Self> {
        let (down, up) = (open_shared()?, open_shared()?);
        let down_port = down.local_addr()?.port();
        let poller = Poller::new()?;
        let common = Arc::new(Common {
            state: Mutex::new(State {
                late_us: Histogram::new_with_bounds(1, 60_000_000, 2).ok(),
                ..State::default()
            }),
            stop: AtomicBool::new(false),
            waker: Waker::new()?,
        });
        poller.add(&common.waker, WOKEN)?;
        poller.add(&down, FROM_PEOPLE)?;
        poller.add(&up, FROM_SERVERS)?;
        let post = Post {
            common: common.clone(),
            poller,
            down,
            up,
            own: OwnSockets::new(FROM_A_SERVER),
            under_way: BinaryHeap::new(),
            count: 0,
            to_server: SendBatch::new(256),
            to_people: SendBatch::new(256),
            alone: SendBatch::new(1),
        };
        let thread = std::thread::Builder::new().name("link".into()).spawn(move || {
            let _ = net::thread::set_timer_slack(Duration::from_micros(1));
            crate::base::be_prompt();
            post.run();
        })?;
        Ok(Self { common, down_port, thread: Some(thread) })
    }

    /// Queues for legs that share a link.
    pub fn share(&self) -> Shared {
        let mut state = lock(&self.common.state);
        state.queues.push(Default::default());
        Shared(state.queues.len() - 1)
    }

    /// A way to `server` that behaves so in each direction, `up` and `down`, with the queues of those who share a link or its
    /// own; everything random comes from `seed`. None where there are too many, or no own address reaches the server.
    pub fn leg(
        &self,
        server: SocketAddr,
        (up, down): (LinkSpec, LinkSpec),
        shared: Option<Shared>,
        seed: u64,
    ) -> Option<Leg> {
        let near = match server.ip().is_loopback() {
            true => None,
            false => Some(local_ip(Some(server)).ok()?),
        };
        self.leg_from(near, server, (up, down), shared, seed)
    }

    fn leg_from(
        &self,
        near: Option<IpAddr>,
        server: SocketAddr,
        (up, down): (LinkSpec, LinkSpec),
        shared: Option<Shared>,
        seed: u64,
    ) -> Option<Leg> {
        let mut state = lock(&self.common.state);
        let number = state.legs.len();
        if number >= MAX_LEGS {
            return None;
        }
        let (up, down) = (Path::new(up, seed), Path::new(down, seed ^ 0xD0));
        state.legs.push(LegState { server, near, up, down, shared });
        let ip = address(DOWN, number);
        Some(Leg { number, address: SocketAddr::from((ip, self.down_port)) })
    }

    /// A leg behaves so from now on.
    pub fn set(&self, leg: Leg, up: LinkSpec, down: LinkSpec) {
        if let Some(state) = lock(&self.common.state).legs.get_mut(leg.number) {
            state.up.set(up);
            state.down.set(down);
        }
    }

    /// What a leg did so far.
    pub fn counts(&self, leg: Leg) -> LegCounts {
        let state = lock(&self.common.state);
        let leg = state.legs.get(leg.number);
        leg.map_or(LegCounts::default(), |leg| LegCounts {
            up: leg.up.counts(),
            down: leg.down.counts(),
        })
    }

    /// How much later than the model said packets left so far: a percentile, in ms; none where none
    /// has left. What is read of a link can be no more exact.
    pub fn late_ms(&self, percent: f64) -> Option<f64> {
        let state = lock(&self.common.state);
        let late = state.late_us.as_ref().filter(|late| !late.is_empty())?;
        Some(late.value_at_quantile(percent / 100.0) as f64 / 1000.0)
    }

    /// Packets that the relay itself had no room or no socket for, or that belong to no leg.
    pub fn dropped(&self) -> u64 {
        lock(&self.common.state).dropped
    }

    /// Why a packet found no socket to leave by, if one did not.
    pub fn socket_error(&self) -> Option<String> {
        lock(&self.common.state).socket_error.clone()
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.common.stop.store(true, Ordering::Release);
        self.common.waker.wake();
        if let Some(thread) = self.thread.take() {
            // A panic on the thread has been told by the panic itself.
            let _ = thread.join();
        }
    }
}

/// The thread's own.
struct Post {
    common: Arc<Common>,
    poller: Poller,
    down: UdpBatchSocket,
    up: UdpBatchSocket,
    own: OwnSockets,
    under_way: BinaryHeap<Reverse<Parcel>>,
    count: u64,
    to_server: SendBatch,
    to_people: SendBatch,
    /// For what leaves by a socket of one flow.
    alone: SendBatch,
}

impl Post {
    fn run(mut self) {
        let mut events = Events::with_capacity(256);
        let mut batch = RecvBatch::new(64);
        while !self.common.stop.load(Ordering::Acquire) {
            let next = self.under_way.peek().map(|Reverse(parcel)| parcel.at);
            let wait = next.map(|at| at.saturating_duration_since(Instant::now()));
            // An error here would be one of the next calls too: they tell nothing new.
            let _ = self.poller.wait(&mut events, wait);
            for event in events.iter() {
                match event.token {
                    WOKEN => {
                        self.common.waker.drain();
                    }
                    token => self.receive(token, &mut batch),
                }
            }
            self.deliver();
        }
    }

    /// Takes what came from people (or from servers) and decides what becomes of it.
    fn receive(&mut self, token: u64, batch: &mut RecvBatch) {
        let flow = self.own.flow_of(token);
        for _ in 0..RECEIVES_PER_TURN {
            let socket = match token {
                FROM_PEOPLE => Some(&self.down),
                FROM_SERVERS => Some(&self.up),
                _ => flow.and_then(|flow| self.own.get(flow)),
            };
            if !socket.is_some_and(|socket| matches!(socket.recv(batch), Ok(1..))) {
                return;
            }
            let common = Arc::clone(&self.common);
            let mut state = lock(&common.state);
            for datagram in batch.datagrams() {
                let number = datagram.dst.and_then(number);
                let found = match token {
                    FROM_PEOPLE => number.and_then(|leg| state.way_up(leg, datagram.src)),
                    _ => flow.or(number).and_then(|flow| state.way_down(flow)),
                };
                let Some(Way { path, queue, exit, destination }) = found else {
                    state.dropped += 1;
                    continue;
                };
                let (arrival, len) = (datagram.arrival, datagram.data.len());
                let stream = stream_of(datagram.data);
                let fate = match queue {
                    Some(queue) => path.offer_by(queue, arrival, len, stream),
                    None => path.offer(arrival, len, stream),
                };
                let Fate::Arrives(at) = fate else { continue };
                if self.under_way.len() >= MAX_UNDER_WAY {
                    state.dropped += 1;
                    continue;
                }
                self.count += 1;
                self.under_way.push(Reverse(Parcel {
                    at,
                    number: self.count,
                    exit,
                    destination,
                    bytes: datagram.data.to_vec(),
                }));
            }
            if !batch.is_full() {
                return;
            }
        }
    }

    /// Sends what is due.
    fn deliver(&mut self) {
        let now = Instant::now();
        if self.under_way.peek().is_none_or(|Reverse(parcel)| parcel.at > now) {
            return;
        }
        let common = Arc::clone(&self.common);
        let mut state = lock(&common.state);
        while let Some(Reverse(parcel)) = self.under_way.peek()
            && parcel.at <= now
        {
            let Some(Reverse(parcel)) = self.under_way.pop() else { break };
            if let Some(late_us) = &mut state.late_us {
                late_us.saturating_record(now.duration_since(parcel.at).as_micros() as u64);
            }
            let (batch, socket, source) = match parcel.exit {
                Exit::ToServers(source) => (&mut self.to_server, &self.up, Some(source)),
                Exit::ToPeople(source) => (&mut self.to_people, &self.down, Some(source)),
                Exit::Own(flow) => {
                    let Some(near) = state.near(flow) else { continue };
                    match self.own.of(flow, near, &self.poller, now) {
                        Ok(socket) => (&mut self.alone, socket, None),
                        Err(why) => {
                            state.dropped += 1;
                            state.socket_error.get_or_insert_with(|| why.to_string());
                            continue;
                        }
                    }
                }
            };
            if batch.is_full() {
                batch.flush(socket);
            }
            if !batch.push_from(source, parcel.destination, &parcel.bytes) {
                state.dropped += 1;
            }
            if source.is_none() {
                batch.flush(socket);
            }
        }
        drop(state);
        self.to_server.flush(&self.up);
        self.to_people.flush(&self.down);
    }
}

/// One of the two sockets that all legs share.
fn open_shared() -> io::Result<UdpBatchSocket> {
    let options = SocketOptions {
        recv_buffer: BUFFER,
        send_buffer: BUFFER,
        packet_info: true,
        ..SocketOptions::default()
    };
    UdpBatchSocket::bind(SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)), options)
}

impl State {
    /// Where the socket of a flow is bound to, before a server beyond the loopback.
    fn near(&self, flow: usize) -> Option<IpAddr> {
        self.legs.get(self.flows.get(flow)?.leg)?.near
    }

    /// The way of what a person sends on a leg.
    fn way_up(&mut self, leg: usize, person: SocketAddr) -> Option<Way<'_>> {
        let count = self.flows.len();
        let flow = *self.by_person.entry((leg, person)).or_insert(count);
        if flow == count {
            if count >= MAX_LEGS || leg >= self.legs.len() {
                self.by_person.remove(&(leg, person));
                return None;
            }
            self.flows.push(Flow { leg, person });
        }
        let LegState { server, near, up: path, shared, .. } = self.legs.get_mut(leg)?;
        let exit = match near {
            Some(_) => Exit::Own(flow),
            None => Exit::ToServers(address(UP, flow)),
        };
        let queue =
            shared.and_then(|Shared(at)| self.queues.get_mut(at)).map(|queues| &mut queues.0);
        Some(Way { path, queue, exit, destination: *server })
    }

    /// The way of what a server sends to the address of a flow.
    fn way_down(&mut self, flow: usize) -> Option<Way<'_>> {
        let Flow { leg, person: destination } = *self.flows.get(flow)?;
        let exit = Exit::ToPeople(address(DOWN, leg));
        let LegState { down: path, shared, .. } = self.legs.get_mut(leg)?;
        let queue =
            shared.and_then(|Shared(at)| self.queues.get_mut(at)).map(|queues| &mut queues.1);
        Some(Way { path, queue, exit, destination })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;

    const MS: Duration = Duration::from_millis(1);

    fn socket() -> UdpSocket {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        socket
    }

    fn receive(socket: &UdpSocket) -> (Vec<u8>, SocketAddr) {
        let mut buffer = [0; 2000];
        let (len, from) = socket.recv_from(&mut buffer).unwrap();
        (buffer[..len].to_vec(), from)
    }

    fn media(ssrc: u32, sequence: u16) -> Vec<u8> {
        let mut packet = vec![0x80, 111, 0, 0, 0, 0, 0, 0];
        packet[2..4].copy_from_slice(&sequence.to_be_bytes());
        packet.extend(ssrc.to_be_bytes());
        packet.extend([7; 60]);
        packet
    }

    #[test]
    fn people_and_server_meet_through_it_and_are_delayed() {
        let relay = Relay::start().unwrap();
        let (server, first, second) = (socket(), socket(), socket());
        let up = LinkSpec { delay: 30 * MS, ..LinkSpec::default() };
        let down = LinkSpec { delay: 10 * MS, ..LinkSpec::default() };
        let server_address = server.local_addr().unwrap();
        let leg = |seed| relay.leg(server_address, (up, down), None, seed).unwrap();
        let (one, two) = (leg(1), leg(2));
        let begin = Instant::now();
        first.send_to(&media(5, 1), one.address).unwrap();
        second.send_to(b"\0\x01 stun", two.address).unwrap();
        let mut seen: Vec<_> = (0..2).map(|_| receive(&server)).collect();
        assert!(begin.elapsed() >= 30 * MS);
        seen.sort_by_key(|(data, _)| data.len());
        assert_eq!((&seen[0].0[..], &seen[1].0[..]), (&b"\0\x01 stun"[..], &media(5, 1)[..]));
        assert_ne!(seen[0].1, seen[1].1, "the server keeps them apart");
        // Answers find their way by the address that the server saw.
        server.send_to(b"to the first", seen[1].1).unwrap();
        server.send_to(b"to the second", seen[0].1).unwrap();
        assert_eq!(receive(&first), (b"to the first".to_vec(), one.address));
        assert_eq!(receive(&second), (b"to the second".to_vec(), two.address));
        let counts = relay.counts(one);
        assert_eq!((counts.up.0.offered, counts.up.1.offered), (1, 1));
        assert_eq!((counts.down.0.delay_ms(), counts.down.1.offered), (Some(10.0), 0));
        assert_eq!((relay.counts(two).up.1.offered, relay.dropped()), (0, 0));
        // To an address that nobody was given.
        let stranger = SocketAddr::from((address(DOWN, 9), one.address.port()));
        first.send_to(b"x", stranger).unwrap();
        first.send_to(&media(5, 2), one.address).unwrap();
        receive(&server);
        assert_eq!(relay.dropped(), 1);
    }

    #[test]
    fn before_a_server_beyond_the_loopback_each_person_has_a_socket() {
        let relay = Relay::start().unwrap();
        let (server, people) = (socket(), [socket(), socket()]);
        // Any address of ours: what tells people apart is the port.
        let near = Ipv4Addr::new(127, 0, 0, 9);
        let (address, clear) = (server.local_addr().unwrap(), LinkSpec::default());
        for (seed, person) in (0..).zip(&people) {
            let leg = relay.leg_from(Some(near.into()), address, (clear, clear), None, seed);
            let leg = leg.unwrap();
            let mut from = Vec::new();
            for sequence in 0..2 {
                person.send_to(&media(7, sequence), leg.address).unwrap();
                from.push(receive(&server).1);
                server.send_to(b"answer", from[0]).unwrap();
                assert_eq!(receive(person), (b"answer".to_vec(), leg.address));
            }
            assert_eq!((from[0].ip(), from[0]), (near.into(), from[1]), "one socket, kept");
            let counts = relay.counts(leg);
            assert_eq!((counts.up.1.offered, counts.down.0.offered), (2, 2));
        }
        assert_eq!(relay.dropped(), 0);
    }

    #[test]
    fn it_loses_what_it_counts_and_changes_while_it_runs() {
        let relay = Relay::start().unwrap();
        let (server, person) = (socket(), socket());
        let lossy = LinkSpec { loss: super::super::Loss::Random(0.3), ..LinkSpec::default() };
        let leg = relay.leg(server.local_addr().unwrap(), (lossy, lossy), None, 3).unwrap();
        // Not more than the socket of the test holds.
        for sequence in 0..200 {
            person.send_to(&media(9, sequence), leg.address).unwrap();
        }
        let clean = LinkSpec::default();
        let counted = || relay.counts(leg).up.1;
        let deadline = Instant::now() + Duration::from_secs(10);
        while counted().offered < 200 {
            assert!(Instant::now() < deadline, "{:?}", counted());
            std::thread::sleep(MS);
        }
        relay.set(leg, clean, clean);
        person.send_to(b"\0the end", leg.address).unwrap();
        let mut got = 0;
        while receive(&server).0 != b"\0the end" {
            got += 1;
        }
        let counts = counted();
        assert_eq!((counts.offered, counts.delivered()), (200, got));
        assert!((35..90).contains(&counts.lost), "{counts:?}");
    }
}
