//! A control thread: ICE, DTLS and SDP of one shard's people, apart from their packets.
//!
//! It owns each participant's [`transport::IceDtls`]. Offers come from signaling with a place for
//! the answer, STUN and DTLS from the media thread (which answers itself most of the checks that
//! change nothing); what happened goes to the rooms.

use crate::media::MediaHandle;
use crate::metrics::{Counter, Gauge, Metrics};
use crate::rooms::RoomInput;
use engine::{Command, PersonKey};
use net::UdpBatchSocket;
use rtp::TransportAddress;
use rtp::negotiated::Negotiated;
use std::collections::{BTreeSet, HashMap};
use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, oneshot};
use transport::{Event, IceDtls, Output, Shared, TransportError, VideoFormat};

/// Inputs that may wait for a control thread.
const INPUTS: usize = 8192;
/// Inputs taken in a row before deadlines are looked at.
const INPUTS_IN_A_ROW: usize = 64;
/// A participant's source addresses that are remembered.
const ADDRESSES_EACH: usize = 16;
/// Deadlines so far off or more…
const FAR: Duration = Duration::from_secs(2);
/// …wait for the next whole one of these.
const TOGETHER: Duration = Duration::from_millis(250);

/// What a control thread is told.
pub(crate) enum ControlInput {
    /// A STUN or DTLS datagram.
    Datagram {
        /// Who sent it.
        source: TransportAddress,
        /// On which of the shard's sockets; of TCP, the one of the same address family.
        socket: usize,
        /// Its bytes.
        data: Vec<u8>,
    },
    /// An offer; the first one makes the participant's transport.
    Offer {
        /// Whose.
        person: PersonKey,
        /// The SDP.
        sdp: String,
        /// The room's video codec, if it has video.
        video: Option<VideoFormat>,
        /// Where the answer goes.
        reply: oneshot::Sender<Result<(String, Negotiated), TransportError>>,
    },
    /// A participant is gone.
    Close {
        /// Who.
        person: PersonKey,
    },
    /// The thread shall end.
    Stop,
}

/// What is reached of an address family.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Candidates {
    /// The socket.
    pub udp: SocketAddr,
    /// The listener.
    pub tcp: SocketAddr,
}

struct Peer {
    transport: IceDtls,
    ufrag: String,
    /// Which user fragment the media thread answers checks of; none before it has keys.
    answered: Option<String>,
    addresses: Vec<TransportAddress>,
    deadline: Option<Instant>,
}

impl Peer {
    fn new(transport: IceDtls) -> Self {
        let (ufrag, addresses) = (String::new(), Vec::new());
        Self { transport, ufrag, answered: None, addresses, deadline: None }
    }
}

/// One control thread's state.
pub(crate) struct ControlThread {
    name: String,
    inputs: Receiver<ControlInput>,
    rooms: mpsc::Sender<RoomInput>,
    media: MediaHandle,
    shared: Shared,
    sockets: Vec<UdpBatchSocket>,
    /// What each socket is reached at, and the listener of the same address family.
    candidates: Vec<Candidates>,
    peers: HashMap<PersonKey, Peer>,
    by_ufrag: HashMap<String, PersonKey>,
    by_address: HashMap<TransportAddress, PersonKey>,
    deadlines: BTreeSet<(Instant, PersonKey)>,
    begun: Instant,
    counts: Counts,
}

struct Counts {
    unknown: Counter,
    refused: Counter,
    rooms_full: Counter,
    send_failed: Counter,
    leaks: Counter,
    peers: Gauge,
}

/// The queue to a control thread.
pub(crate) fn queue() -> (SyncSender<ControlInput>, Receiver<ControlInput>) {
    sync_channel(INPUTS)
}

impl ControlThread {
    /// The thread of shard `index`; `sockets` are the shard's own, each reached at the candidate
    /// of the same place.
    pub(crate) fn new(
        index: usize,
        inputs: Receiver<ControlInput>,
        (rooms, media): (mpsc::Sender<RoomInput>, MediaHandle),
        shared: Shared,
        (sockets, candidates): (Vec<UdpBatchSocket>, Vec<Candidates>),
        metrics: &Metrics,
    ) -> Self {
        Self {
            name: format!("control-{index}"),
            inputs,
            rooms,
            media,
            shared,
            sockets,
            candidates,
            peers: HashMap::new(),
            by_ufrag: HashMap::new(),
            by_address: HashMap::new(),
            deadlines: BTreeSet::new(),
            begun: Instant::now(),
            counts: Counts {
                unknown: metrics.drops("control", "unknown_peer"),
                refused: metrics.drops("control", "bad_datagram"),
                rooms_full: metrics.drops("control", "room_queue_full"),
                send_failed: metrics.drops("control", "send_failed"),
                leaks: metrics.drops("control", "media_from_transport"),
                peers: metrics.registry.gauge("moim_transports", "Transports now.", &[]),
            },
        }
    }

    /// Starts the thread.
    ///
    /// # Errors
    /// The system has no thread left.
    pub(crate) fn spawn(self) -> std::io::Result<std::thread::JoinHandle<()>> {
        std::thread::Builder::new().name(self.name.clone()).spawn(move || self.run())
    }

    fn run(mut self) {
        loop {
            let timeout = self.deadlines.first().map_or(Duration::from_secs(1), |(at, _)| {
                at.saturating_duration_since(Instant::now())
            });
            let mut next = match self.inputs.recv_timeout(timeout) {
                Ok(input) => Some(input),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => return,
            };
            for taken in 1.. {
                match next {
                    Some(ControlInput::Stop) => return,
                    Some(input) => self.input(input),
                    None => break,
                }
                if taken == INPUTS_IN_A_ROW {
                    break;
                }
                next = self.inputs.try_recv().ok();
            }
            self.run_deadlines();
        }
    }

    fn input(&mut self, input: ControlInput) {
        match input {
            ControlInput::Datagram { source, socket, data } => {
                self.datagram(source, socket, &data);
            }
            ControlInput::Offer { person, sdp, video, reply } => {
                let answer = self.offer(person, &sdp, video);
                // Who asked may be gone.
                let _ = reply.send(answer);
                self.drive(person);
            }
            ControlInput::Close { person } => self.close(person),
            ControlInput::Stop => {}
        }
    }

    fn offer(
        &mut self,
        person: PersonKey,
        sdp: &str,
        video: Option<VideoFormat>,
    ) -> Result<(String, Negotiated), TransportError> {
        let known = self.peers.contains_key(&person);
        if !known {
            let all =
                |c: &Candidates| [TransportAddress::from(c.udp), TransportAddress::tcp(c.tcp)];
            let candidates: Vec<_> = self.candidates.iter().flat_map(all).collect();
            let transport = IceDtls::server(&self.shared, video, &candidates, Instant::now())?;
            self.peers.insert(person, Peer::new(transport));
            self.counts.peers.add(1);
        }
        let Some(peer) = self.peers.get_mut(&person) else {
            return Err(TransportError::Failed("the transport is gone".into()));
        };
        let answer = peer.transport.accept_offer(sdp);
        if answer.is_err() && !known {
            self.close(person);
            return answer;
        }
        // An ICE restart changes it; the old one goes on until the new pair is nominated.
        let ufrag = peer.transport.local_ufrag();
        if ufrag != peer.ufrag {
            self.by_ufrag.remove(&peer.ufrag);
            self.by_ufrag.insert(ufrag.clone(), person);
            peer.ufrag = ufrag;
        }
        answer
    }

    fn datagram(&mut self, source: TransportAddress, socket: usize, data: &[u8]) {
        let person = self.by_address.get(&source).copied();
        let named = rtp::stun::receiver(data).and_then(|ufrag| self.by_ufrag.get(ufrag).copied());
        let Some(person) = named.or(person) else {
            self.counts.unknown.inc();
            return;
        };
        let Some(peer) = self.peers.get_mut(&person) else { return };
        if !peer.addresses.contains(&source) {
            if peer.addresses.len() == ADDRESSES_EACH {
                let oldest = peer.addresses.remove(0);
                self.by_address.remove(&oldest);
            }
            peer.addresses.push(source);
            self.by_address.insert(source, person);
        }
        let reached = self.candidates[socket];
        let local = if source.is_tcp() { reached.tcp } else { reached.udp };
        let handled = peer.transport.handle_datagram(Instant::now(), source, local, data);
        if let Err(error) = handled {
            self.counts.refused.inc();
            tracing::debug!(thread = self.name, %source, %error, "datagram refused");
        }
        self.drive(person);
    }

    fn run_deadlines(&mut self) {
        let now = Instant::now();
        while let Some((at, person)) = self.deadlines.first().copied() {
            if at > now {
                return;
            }
            self.deadlines.remove(&(at, person));
            if let Some(peer) = self.peers.get_mut(&person) {
                peer.deadline = None;
                if let Err(error) = peer.transport.handle_timeout(now) {
                    tracing::debug!(thread = self.name, ?person, %error, "timeout");
                }
                self.drive(person);
            }
        }
    }

    /// Does what a transport wants until it waits.
    fn drive(&mut self, person: PersonKey) {
        let Some(peer) = self.peers.get_mut(&person) else { return };
        let mut inputs = Vec::new();
        let mut transmits = Vec::new();
        let mut begins = false;
        let leaks = peer.transport.media_leaks();
        let wait = loop {
            match peer.transport.poll() {
                Ok(Output::Transmit { source, destination, data }) => {
                    let at = self.candidates.iter().position(|c| c.udp == source).unwrap_or(0);
                    transmits.push((at, destination, data));
                }
                Ok(Output::Event(event)) => inputs.push(match event {
                    // Keys and address go straight to the media thread, and before the handshake's
                    // last flight: with it the other side may begin to send. Its lines are there
                    // since the offer. What goes to it waits until that flight is out.
                    Event::Connected { keys, remote } => {
                        let keys = Box::new(keys);
                        self.media.send(Command::Install { person, keys, remote });
                        peer.answered = Some(String::new());
                        begins = true;
                        RoomInput::Connected { person, remote }
                    }
                    Event::Remote(remote) => {
                        self.media.send(Command::Move { person, remote });
                        RoomInput::Moved { person, remote }
                    }
                    Event::Disconnected => {
                        self.media.send(Command::Suspend { person });
                        RoomInput::MediaLost { person }
                    }
                    Event::Reconnected => {
                        self.media.send(Command::Begin { person });
                        RoomInput::MediaBack { person }
                    }
                }),
                Ok(Output::Wait(at)) => break Some(at),
                Err(error) => {
                    inputs.push(RoomInput::Failed { person, why: error.to_string() });
                    break None;
                }
            }
        };
        for (at, destination, data) in transmits {
            if destination.is_tcp() {
                // In order with the commands: what goes on TCP goes through the media thread.
                self.media.send_on_tcp(destination.socket, data);
            } else if self.sockets[at].send_to(destination.socket, &data).is_err() {
                self.counts.send_failed.inc();
            }
        }
        if peer.answered.as_ref().is_some_and(|ufrag| *ufrag != peer.ufrag)
            && let Some(responder) = peer.transport.responder()
        {
            let responder = Box::new(responder);
            self.media.send(Command::Credentials { person, responder });
            peer.answered = Some(peer.ufrag.clone());
        }
        if begins {
            self.media.send(Command::Begin { person });
        }
        self.counts.leaks.add(peer.transport.media_leaks() - leaks);
        if let Some(old) = peer.deadline.take() {
            self.deadlines.remove(&(old, person));
        }
        if let Some(at) = wait.map(|at| together(self.begun, at)) {
            peer.deadline = Some(at);
            self.deadlines.insert((at, person));
        }
        for input in inputs {
            if self.rooms.try_send(input).is_err() {
                self.counts.rooms_full.inc();
                tracing::error!(thread = self.name, ?person, "the rooms' queue is full");
            }
        }
    }

    fn close(&mut self, person: PersonKey) {
        let Some(peer) = self.peers.remove(&person) else { return };
        self.counts.peers.add(-1);
        self.by_ufrag.remove(&peer.ufrag);
        for address in peer.addresses {
            if self.by_address.get(&address) == Some(&person) {
                self.by_address.remove(&address);
            }
        }
        if let Some(at) = peer.deadline {
            self.deadlines.remove(&(at, person));
        }
    }
}

/// Far deadlines of all peers come together: each transport looks after itself every 3 s, and one
/// wake-up for many costs less than one for each.
fn together(begun: Instant, at: Instant) -> Instant {
    let far = at.saturating_duration_since(Instant::now()) >= FAR;
    let past = at.saturating_duration_since(begun).as_nanos() % TOGETHER.as_nanos();
    if far && past > 0 { at + TOGETHER - Duration::from_nanos(past as u64) } else { at }
}
