//! A control thread: ICE, DTLS and SDP of one shard's participants, apart from their packets.
//!
//! It owns each participant's [`transport::IceDtls`]. Offers and ends come from the rooms by a lane that loses
//! nothing ([`crate::lane`]), STUN and DTLS by a queue from the media thread, which knows whose they are, passes
//! on only so much of each participant, and answers itself most of the checks that change nothing. What happened
//! goes to the rooms. Where the library panics, that transport alone ends.

use crate::health::{Beat, Health, ThreadFault};
use crate::lane::{Answered, Lane, Offer};
use crate::media::MediaHandle;
use crate::metrics::{Counter, Gauge, Metrics};
use crate::rooms::{About, Happened, RoomInput};
use engine::{Command, Outbox, PersonKey};
use net::UdpBatchSocket;
use rtp::TransportAddress;
use std::collections::{BTreeSet, HashMap};
use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};
use tokio::sync::mpsc;
use transport::{Event, HandshakeFault, IceDtls, Output, Shared, TransportError, VideoFormat};
use wire::MediaFault;

/// Datagrams that may wait for a control thread.
const INPUTS: usize = 8192;
/// Datagrams taken in a row before the lane and deadlines are looked at.
const INPUTS_IN_A_ROW: usize = 64;
/// The longest sleep: so often the thread says that it runs.
const SLEEP: Duration = Duration::from_secs(1);
/// So soon what the rooms had no room for is tried again.
const AGAIN: Duration = Duration::from_millis(10);
/// Of so many participants and matters something may wait for the rooms.
const TOLD: usize = 65_536;
/// After an error in a handshake it may still come to an end for so long.
const HANDSHAKE_FAILS: Duration = Duration::from_millis(600);
/// So soon after its first answer a media connection is up, or the client is told that it is not.
const UP_WITHIN: Duration = Duration::from_secs(15);
/// Deadlines so far off or more…
const FAR: Duration = Duration::from_secs(2);
/// …wait for the next whole one of these.
const TOGETHER: Duration = Duration::from_millis(250);

/// What comes by the queue of a control thread.
pub(crate) enum ControlInput {
    /// A STUN or DTLS datagram.
    Datagram {
        /// Whose it is.
        person: PersonKey,
        /// Who sent it.
        source: TransportAddress,
        /// On which of the shard's sockets; of TCP, the one of the same address family.
        socket: usize,
        /// Its bytes.
        data: Vec<u8>,
    },
    /// The lane has something.
    Look,
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
    /// Which user fragment the media thread expects in checks; empty before the first answer.
    ufrag: String,
    /// Which user fragment the media thread answers checks of; none before it has keys.
    answered: Option<String>,
    deadline: Option<Instant>,
    /// When it is told that it is not up yet.
    up_by: Option<Instant>,
    /// Its handshake went wrong, and when that is told unless it comes to an end all the same.
    failing: Option<(Instant, TransportError)>,
}

impl Peer {
    fn new(transport: IceDtls) -> Self {
        let (answered, deadline, up_by, failing) = (None, None, None, None);
        Self { transport, ufrag: String::new(), answered, deadline, up_by, failing }
    }
}

/// One control thread's state.
pub(crate) struct ControlThread {
    name: String,
    lane: Lane,
    inputs: Receiver<ControlInput>,
    rooms: mpsc::Sender<RoomInput>,
    /// What the rooms have not taken yet.
    told: Outbox<(PersonKey, About), (PersonKey, Happened)>,
    media: MediaHandle,
    shared: Shared,
    sockets: Vec<UdpBatchSocket>,
    /// What each socket is reached at, and the listener of the same address family.
    candidates: Vec<Candidates>,
    /// Boxed: a peer takes kilobytes, and a table keeps room for as many again.
    peers: HashMap<PersonKey, Box<Peer>>,
    deadlines: BTreeSet<(Instant, PersonKey)>,
    begun: Instant,
    counts: Counts,
}

struct Counts {
    unknown: Counter,
    refused: Counter,
    panics: Counter,
    /// Media connections that came to nothing, by [`MediaFault`].
    failed: [Counter; MediaFault::ALL.len()],
    send_failed: Counter,
    told_too_much: Counter,
    leaks: Counter,
    peers: Gauge,
}

/// The queue of datagrams to a control thread.
pub(crate) fn queue() -> (SyncSender<ControlInput>, Receiver<ControlInput>) {
    sync_channel(INPUTS)
}

impl ControlThread {
    /// The thread of shard `index`; `sockets` are the shard's own, each reached at the candidate
    /// of the same place.
    pub(crate) fn new(
        index: usize,
        (lane, inputs): (Lane, Receiver<ControlInput>),
        (rooms, media): (mpsc::Sender<RoomInput>, MediaHandle),
        shared: Shared,
        (sockets, candidates): (Vec<UdpBatchSocket>, Vec<Candidates>),
        metrics: &Metrics,
    ) -> Self {
        Self {
            name: format!("control-{index}"),
            lane,
            inputs,
            rooms,
            told: Outbox::new(TOLD),
            media,
            shared,
            sockets,
            candidates,
            peers: HashMap::new(),
            deadlines: BTreeSet::new(),
            begun: Instant::now(),
            counts: Counts {
                unknown: metrics.drops("control", "unknown_peer"),
                refused: metrics.drops("control", "bad_datagram"),
                panics: metrics.registry.counter(
                    "moim_transport_panics_total",
                    "Transports that ended because the ICE and DTLS library panicked.",
                    &[],
                ),
                failed: MediaFault::ALL.map(|fault| {
                    let help = "Media connections that came to nothing.";
                    let labels = [("cause", fault.as_str())];
                    metrics.registry.counter("moim_media_failed_total", help, &labels)
                }),
                send_failed: metrics.drops("control", "send_failed"),
                told_too_much: metrics.drops("control", "report_queue_full"),
                leaks: metrics.drops("control", "media_from_transport"),
                peers: metrics.registry.gauge("moim_transports", "Transports now.", &[]),
            },
        }
    }

    /// Starts the thread.
    ///
    /// # Errors
    /// The system has no thread left.
    pub(crate) fn spawn(
        self,
        health: &Health,
        fault: Option<ThreadFault>,
    ) -> std::io::Result<std::thread::JoinHandle<()>> {
        let name = self.name.clone();
        health.spawn(&name, fault, move |beat| self.run(beat))
    }

    fn run(mut self, mut beat: Beat) {
        loop {
            let now = Instant::now();
            beat.round(now);
            let round = self.lane.take();
            if round.stop {
                return;
            }
            round.closed.into_iter().for_each(|person| self.close(person));
            if let Some(offer) = round.offer {
                self.offer(offer);
            }
            let next = self
                .deadlines
                .first()
                .map_or(SLEEP, |(at, _)| at.saturating_duration_since(Instant::now()).min(SLEEP));
            self.hand_over();
            let next = if self.told.is_empty() { next } else { next.min(AGAIN) };
            let timeout = if round.more { Duration::ZERO } else { next };
            let mut next = match self.inputs.recv_timeout(timeout) {
                Ok(input) => Some(input),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => return,
            };
            for taken in 1.. {
                match next {
                    Some(ControlInput::Datagram { person, source, socket, data }) => {
                        self.datagram(person, source, socket, &data);
                    }
                    Some(ControlInput::Look) => {}
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

    fn offer(&mut self, offer: Offer) {
        let Offer { person, sdp, video, reply } = offer;
        let answer = self.answer(person, &sdp, video);
        let panicked = matches!(answer, Err(TransportError::Panicked));
        // Who asked may be gone.
        let _ = reply.send(answer);
        if panicked {
            self.fail(person, &TransportError::Panicked);
        } else {
            self.drive(person);
        }
    }

    fn answer(&mut self, person: PersonKey, sdp: &str, video: Option<VideoFormat>) -> Answered {
        let known = self.peers.contains_key(&person);
        if !known {
            let all =
                |c: &Candidates| [TransportAddress::from(c.udp), TransportAddress::tcp(c.tcp)];
            let candidates: Vec<_> = self.candidates.iter().flat_map(all).collect();
            let transport = IceDtls::server(&self.shared, video, &candidates, Instant::now())?;
            self.peers.insert(person, Box::new(Peer::new(transport)));
            self.counts.peers.add(1);
        }
        let Some(peer) = self.peers.get_mut(&person) else {
            return Err(TransportError::Failed("the transport is gone".into()));
        };
        let answer = peer.transport.accept_offer(sdp);
        match answer {
            Err(TransportError::Panicked) => return answer,
            Err(_) if !known => {
                self.close(person);
                return answer;
            }
            _ => {}
        }
        if !known {
            peer.up_by = Some(Instant::now() + UP_WITHIN);
        }
        // An ICE restart changes it. The media thread knows it before the answer leaves.
        let responder = peer.transport.credentials();
        if responder.local_ufrag() != peer.ufrag
            && let Some(challenger) = peer.transport.challenger()
        {
            peer.ufrag = responder.local_ufrag().to_owned();
            let (responder, challenger) = (Box::new(responder), Box::new(challenger));
            self.media.send(Command::Expect { person, responder, challenger });
        }
        answer
    }

    fn datagram(
        &mut self,
        person: PersonKey,
        source: TransportAddress,
        socket: usize,
        data: &[u8],
    ) {
        let Some(peer) = self.peers.get_mut(&person) else {
            // It has just left.
            self.counts.unknown.inc();
            return;
        };
        let reached = self.candidates[socket];
        let local = if source.is_tcp() { reached.tcp } else { reached.udp };
        let handled = peer.transport.handle_datagram(Instant::now(), source, local, data);
        if let Err(error) = handled {
            self.counts.refused.inc();
            tracing::debug!(thread = self.name, %source, %error, "datagram refused");
            if error == TransportError::Panicked {
                return self.fail(person, &error);
            }
            // A datagram that somebody forged does not end a handshake.
            if matches!(error, TransportError::Handshake(..)) && peer.answered.is_none() {
                peer.failing.get_or_insert((Instant::now() + HANDSHAKE_FAILS, error));
            }
        }
        self.drive(person);
    }

    /// A transport ends, and nothing else.
    fn fail(&mut self, person: PersonKey, error: &TransportError) {
        if *error == TransportError::Panicked {
            self.counts.panics.inc();
            tracing::error!(thread = self.name, ?person, %error, "a transport ended");
        }
        self.close(person);
        self.tell(person, failed(error));
    }

    /// Rooms must know it, as soon as their queue has room.
    fn tell(&mut self, person: PersonKey, what: Happened) {
        if let Happened::Failed(fault, _) | Happened::NotUp(fault) = &what {
            self.counts.failed[*fault as usize].inc();
        }
        if self.told.put((person, what.about()), (person, what)).is_err() {
            self.counts.told_too_much.inc();
        }
    }

    fn hand_over(&mut self) {
        self.told.hand_over(|(person, what)| match self.rooms.try_reserve() {
            Ok(place) => {
                place.send(RoomInput::Transport(person, what));
                Ok(())
            }
            Err(_) => Err((person, what)),
        });
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
                let failing = peer.failing.take_if(|(due, _)| *due <= now);
                if let Some((_, error)) = failing.filter(|_| peer.answered.is_none()) {
                    self.fail(person, &error);
                    continue;
                }
                let late = peer.up_by.take_if(|due| *due <= now).is_some();
                if late && peer.answered.is_none() {
                    let fault = match peer.transport.was_checked() {
                        true => MediaFault::Unfinished,
                        false => MediaFault::Unreachable,
                    };
                    self.tell(person, Happened::NotUp(fault));
                }
                let Some(peer) = self.peers.get_mut(&person) else { continue };
                match peer.transport.handle_timeout(now) {
                    Err(error @ TransportError::Panicked) => {
                        self.fail(person, &error);
                        continue;
                    }
                    Err(error) => tracing::debug!(thread = self.name, ?person, %error, "timeout"),
                    Ok(()) => {}
                }
                self.drive(person);
            }
        }
    }

    /// Does what a transport wants until it waits.
    fn drive(&mut self, person: PersonKey) {
        let Some(peer) = self.peers.get_mut(&person) else { return };
        let mut happened = Vec::new();
        let mut transmits = Vec::new();
        let mut begins = false;
        let leaks = peer.transport.media_leaks();
        let wait = loop {
            match peer.transport.poll() {
                Ok(Output::Transmit { source, destination, data }) => {
                    let at = self.candidates.iter().position(|c| c.udp == source).unwrap_or(0);
                    transmits.push((at, destination, data));
                }
                Ok(Output::Event(event)) => happened.push(match event {
                    // Keys and address go straight to the media thread, and before the handshake's
                    // last flight: with it the other side may begin to send. Its lines are there
                    // since the offer. What goes to it waits until that flight is out.
                    Event::Connected { keys, remote, reached } => {
                        let keys = Box::new(keys);
                        self.media.send(Command::Install { person, keys, remote, reached });
                        (peer.answered, peer.up_by) = (Some(String::new()), None);
                        begins = true;
                        Happened::Connected(remote)
                    }
                    Event::Remote(remote) => {
                        self.media.send(Command::Move { person, remote });
                        Happened::Moved(remote)
                    }
                    Event::Disconnected => {
                        self.media.send(Command::Suspend { person });
                        Happened::MediaLost
                    }
                    Event::Reconnected => {
                        self.media.send(Command::Begin { person });
                        Happened::MediaBack
                    }
                }),
                Ok(Output::Wait(at)) => break Some(at),
                Err(error @ TransportError::Panicked) => return self.fail(person, &error),
                Err(error) => {
                    happened.push(failed(&error));
                    break None;
                }
            }
        };
        for (at, destination, data) in transmits {
            if destination.is_tcp() {
                // In order with the commands: what goes on TCP goes through the media thread.
                if !self.media.send_on_tcp(destination.socket, data) {
                    self.counts.send_failed.inc();
                }
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
        let failing = peer.failing.as_ref().map(|(at, _)| *at);
        let wait = wait.map(|at| together(self.begun, at));
        if let Some(at) =
            wait.map(|at| [failing, peer.up_by].into_iter().flatten().fold(at, Instant::min))
        {
            peer.deadline = Some(at);
            self.deadlines.insert((at, person));
        }
        happened.into_iter().for_each(|what| self.tell(person, what));
    }

    fn close(&mut self, person: PersonKey) {
        self.told.forget(|(whose, _)| *whose == person);
        let Some(peer) = self.peers.remove(&person) else { return };
        self.counts.peers.add(-1);
        if !peer.ufrag.is_empty() {
            self.media.send(Command::Forget { person });
        }
        if let Some(at) = peer.deadline {
            self.deadlines.remove(&(at, person));
        }
    }
}

impl Drop for ControlThread {
    /// However it ends, whoever waits for an answer is told.
    fn drop(&mut self) {
        self.lane.end();
    }
}

/// What rooms are told of a transport that ended.
fn failed(error: &TransportError) -> Happened {
    let fault = match error {
        TransportError::Handshake(HandshakeFault::CertificateKind, _) => {
            MediaFault::CertificateKind
        }
        TransportError::Handshake(HandshakeFault::Fingerprint, _) => MediaFault::Fingerprint,
        TransportError::Handshake(HandshakeFault::Other, _) => MediaFault::Handshake,
        _ => MediaFault::Internal,
    };
    Happened::Failed(fault, error.to_string())
}

/// Far deadlines of all peers come together: each transport looks after itself every 3 s, and one
/// wake-up for many costs less than one for each.
fn together(begun: Instant, at: Instant) -> Instant {
    let far = at.saturating_duration_since(Instant::now()) >= FAR;
    let past = at.saturating_duration_since(begun).as_nanos() % TOGETHER.as_nanos();
    if far && past > 0 { at + TOGETHER - Duration::from_nanos(past as u64) } else { at }
}
