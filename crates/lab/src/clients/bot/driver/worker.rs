//! One thread and all bots on it.

use super::peer::Peer;
use super::port::{Port, SharedSocket, Work};
use super::shared::{Command, Common, Health, Reply, lock};
use crate::base::{be_prompt, busy::burn};
use crate::clients::bot::spec::BotError;
use crate::record::Fault;
use net::{Events, Poller, RecvBatch, Waker};
use rtp::Protocol;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io;
use std::net::Ipv4Addr;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Token of the waker; bots count from 1.
const WAKER: u64 = 0;
/// Token of the socket that all share.
const SHARED: u64 = u64::MAX;
/// With more bots than this, or more datagrams between two [`PUBLISH`], a thread takes turns…
const MANY: usize = 32;
const MANY_DATAGRAMS: u64 = 2500;
/// …of this length. Arrivals are stamped by the kernel, and marks are made as packets leave.
const TURN: Duration = Duration::from_millis(1);
/// Commands taken in a row before sockets and timers have their turn.
const COMMANDS_PER_TURN: usize = 64;
/// Receive calls for one bot in a row.
const RECEIVES_PER_TURN: usize = 8;
/// How often the health is published.
const PUBLISH: Duration = Duration::from_millis(250);

pub(super) struct Worker {
    /// A fault made on purpose: it has no time left.
    burns: bool,
    common: Arc<Common>,
    incoming: Receiver<Command>,
    waker: Arc<Waker>,
    published: Arc<Mutex<Health>>,
    poller: Poller,
    peers: Peers,
    /// Whose deadline is next. One that is not what its bot is armed for was overtaken, and says nothing.
    deadlines: BinaryHeap<Reverse<(Instant, u64)>>,
    /// Whose deadline has come, with it.
    due: Vec<(Instant, u64)>,
    work: Work,
    received: RecvBatch,
    /// Whose address of the shared socket is which; None: nobody's any more.
    sharing: Vec<Option<u64>>,
    /// Who has something to do after what was received.
    touched: Vec<u64>,
    /// Whether much came since the health was published last, and how much had come until then.
    busy: bool,
    published_received: u64,
}

impl Worker {
    pub(super) fn new(
        number: usize,
        common: Arc<Common>,
        incoming: Receiver<Command>,
        waker: Arc<Waker>,
        published: Arc<Mutex<Health>>,
    ) -> io::Result<Self> {
        let poller = Poller::new()?;
        poller.add(&*waker, WAKER)?;
        let shared = SharedSocket::open(number, common.local_ip)?;
        if let Some(shared) = &shared {
            shared.watch(&poller, SHARED)?;
        }
        let peers = Peers::new(common.threads);
        Ok(Self {
            burns: number == 0 && common.fault == Some(Fault::BusyBots),
            common,
            incoming,
            waker,
            published,
            poller,
            peers,
            deadlines: BinaryHeap::new(),
            due: Vec::new(),
            work: Work::new(shared),
            received: RecvBatch::new(64),
            sharing: vec![None],
            touched: Vec::new(),
            busy: false,
            published_received: 0,
        })
    }

    pub(super) fn run(mut self) {
        // The default slack of 50 µs would be lag of our own making. Without it, it is measured.
        let _ = net::thread::set_timer_slack(Duration::from_micros(1));
        be_prompt();
        let mut events = Events::with_capacity(256);
        let mut publish_at = Instant::now();
        let mut turned = Instant::now();
        while !self.common.stop.load(Ordering::Acquire) {
            // With many bots, or much that comes, something is due all the time: what comes within a turn shares its calls.
            if self.peers.len() > MANY || self.busy {
                std::thread::sleep((turned + TURN).saturating_duration_since(Instant::now()));
            }
            let now = Instant::now();
            turned = now;
            let next =
                self.deadlines.peek().map_or(publish_at, |Reverse((at, _))| (*at).min(publish_at));
            if self.poller.wait(&mut events, Some(next.saturating_duration_since(now))).is_err() {
                self.work.health.drop("poll_failed", 1);
            }
            for event in events.iter() {
                match event.token {
                    WAKER => {
                        self.waker.drain();
                    }
                    SHARED => self.receive_shared(),
                    bot => self.receive(bot),
                }
            }
            self.commands();
            self.timers();
            self.work.flush_shared();
            if self.burns {
                burn();
                self.waker.wake();
            }
            if publish_at <= Instant::now() {
                publish_at = Instant::now() + PUBLISH;
                self.publish();
            }
        }
    }

    fn publish(&mut self) {
        let received = self.work.health.received;
        self.busy = received - self.published_received > MANY_DATAGRAMS;
        self.published_received = received;
        let mut health = self.work.health.clone();
        for peer in self.peers.iter() {
            peer.add_health(&mut health);
        }
        let shared = self.work.shared().and_then(|shared| shared.socket.kernel_drops().ok());
        health.drop("receive_buffer_full", shared.unwrap_or(0));
        *lock(&self.published) = health;
    }

    fn receive(&mut self, bot: u64) {
        let Some(peer) = self.peers.get_mut(bot) else { return };
        for _ in 0..RECEIVES_PER_TURN {
            match peer.receive(&mut self.received, &mut self.work) {
                true if self.received.is_full() => {}
                _ => break,
            }
        }
        self.serve(bot);
    }

    /// Takes what came for any bot to the shared socket, then serves those that have to do.
    fn receive_shared(&mut self) {
        for _ in 0..RECEIVES_PER_TURN {
            let Some(shared) = self.work.shared() else { return };
            match shared.socket.recv(&mut self.received) {
                Ok(0) => break,
                Ok(_) => {}
                Err(_) => {
                    // An ICMP error of a datagram that was sent: the next call takes what arrived.
                    self.work.health.drop("receive_error", 1);
                    continue;
                }
            }
            let whose = self.received.destinations();
            let whose = whose.filter_map(|dst| sharing(&self.sharing, dst));
            self.warm(whose, Peer::warm_to_receive);
            let now = Instant::now();
            for datagram in self.received.datagrams() {
                // Who left gets the last packets of the others for a moment.
                let Some(bot) = sharing(&self.sharing, datagram.dst) else { continue };
                let Some(peer) = self.peers.get_mut(bot) else { continue };
                if peer.take(&datagram, now, &mut self.work.health)
                    && self.touched.last() != Some(&bot)
                {
                    self.touched.push(bot);
                }
            }
            if !self.received.is_full() {
                break;
            }
        }
        self.touched.sort_unstable();
        self.touched.dedup();
        let mut touched = std::mem::take(&mut self.touched);
        for bot in touched.drain(..) {
            self.serve(bot);
        }
        self.touched = touched;
    }

    /// Each packet meets a bot of its own, which is in no cache any more when there are many: read ahead
    /// for all that come next, a step at a time, the misses overlap.
    fn warm(&self, bots: impl Iterator<Item = u64> + Clone, read: impl Fn(&Peer, usize) -> u64) {
        if self.peers.len() <= MANY {
            return;
        }
        for step in 0..Peer::WARM_STEPS {
            let peers = bots.clone().filter_map(|bot| self.peers.get(bot));
            let sum = peers.fold(0, |sum: u64, peer| sum.wrapping_add(read(peer, step)));
            std::hint::black_box(sum);
        }
    }

    /// Lets a bot do what it has to do, and notes when it wants to be called again.
    fn serve(&mut self, bot: u64) {
        let Some(peer) = self.peers.get_mut(bot) else { return };
        let next = peer.serve(&mut self.work);
        if let Some(at) = next
            && peer.armed != next
        {
            self.deadlines.push(Reverse((at, bot)));
        }
        peer.armed = next;
        if let Port::Stream(stream) = &mut peer.port
            && stream.watch(&self.poller, bot).is_err()
        {
            peer.fail("its connection cannot be watched: no descriptor is left".into());
        }
        if peer.closed() {
            match std::mem::replace(&mut peer.port, Port::Closed) {
                Port::Own(socket) => {
                    let dropped = socket.kernel_drops().unwrap_or(0);
                    self.work.health.drop("receive_buffer_full", dropped);
                    // The last descriptor of the socket: closing it takes it out anyway.
                    let _ = self.poller.remove(&socket);
                }
                Port::Stream(stream) => stream.unwatch(&self.poller),
                Port::Shared(ip) => self.sharing[SharedSocket::place(ip)] = None,
                Port::Closed => {}
            }
        }
    }

    fn timers(&mut self) {
        let now = Instant::now();
        // The next deadlines lie ahead of `now`, so that this ends.
        while self.deadlines.peek().is_some_and(|Reverse((at, _))| *at <= now) {
            self.due.extend(self.deadlines.pop().map(|Reverse(due)| due));
        }
        self.warm(self.due.iter().map(|(_, bot)| *bot), Peer::warm_to_send);
        let mut due = std::mem::take(&mut self.due);
        for (at, bot) in due.drain(..) {
            let armed = self.peers.get_mut(bot).and_then(|peer| peer.armed.take_if(|to| *to == at));
            if armed.is_some() {
                let lag_us = now.saturating_duration_since(at).as_micros() as u64;
                self.work.health.timer_lag_us.saturating_record(lag_us);
                self.serve(bot);
            }
        }
        self.due = due;
    }

    fn commands(&mut self) {
        for _ in 0..COMMANDS_PER_TURN {
            match self.incoming.try_recv() {
                Ok(command) => self.command(command),
                Err(TryRecvError::Empty | TryRecvError::Disconnected) => return,
            }
        }
        // More may be waiting: come back at once.
        self.waker.wake();
    }

    fn command(&mut self, command: Command) {
        let bot = match command {
            Command::Add { bot, spec, says, now } => {
                let shared = match spec.protocol {
                    Protocol::Udp => self.work.shared().and_then(SharedSocket::next),
                    Protocol::Tcp => None,
                };
                let peer = Peer::new(&self.common, *spec, says, now, shared);
                match &peer.port {
                    Port::Own(socket) => {
                        if let Err(error) = self.poller.add(socket, bot) {
                            self.peers.insert(bot, peer);
                            self.fail(bot, format!("its socket cannot be watched: {error}"));
                            return;
                        }
                    }
                    Port::Shared(_) => self.sharing.push(Some(bot)),
                    Port::Stream(_) | Port::Closed => {}
                }
                self.peers.insert(bot, peer);
                bot
            }
            Command::Offer { bot, reply } => self.answer(bot, reply, Peer::offer),
            Command::Answer { bot, answer, reply } => {
                self.answer(bot, reply, |peer| peer.answer(&answer))
            }
            Command::Accept { bot, offer, reply } => {
                self.answer(bot, reply, |peer| peer.accept(&offer))
            }
            Command::Candidate { bot, candidate } => {
                self.tell(bot, |peer| peer.candidate(candidate))
            }
            Command::Heard { bot, reply } => self.answer(bot, reply, Peer::heard),
            Command::Sample { bot, reply } => self.answer(bot, reply, Peer::sample),
            Command::Slots { bot, changes } => self.tell(bot, |peer| peer.slots(&changes)),
            Command::Pause { bot, track, paused } => {
                self.tell(bot, |peer| peer.pause(&track, paused))
            }
            Command::Layers { bot, track, layer } => {
                self.tell(bot, |peer| peer.layers(&track, layer))
            }
            Command::Downlink { bot, estimate_kbps } => {
                self.tell(bot, |peer| peer.downlink(estimate_kbps))
            }
            Command::Grow { bot, pool } => self.tell(bot, |peer| peer.wanted = pool),
            Command::Do { bot, command } => self.tell(bot, |peer| peer.command(command)),
            Command::Connected { bot, reply } => self.tell(bot, |peer| peer.waiters.push(reply)),
            Command::Remove { bot } => {
                self.tell(bot, |peer| peer.command(crate::clients::bot::spec::BotCommand::Leave));
                self.serve(bot);
                if let Some(peer) = self.peers.remove(bot) {
                    peer.add_health(&mut self.work.health);
                }
                return;
            }
        };
        self.serve(bot);
    }

    fn fail(&mut self, bot: u64, why: String) {
        self.tell(bot, |peer| peer.fail(why));
        self.serve(bot);
    }

    fn tell(&mut self, bot: u64, f: impl FnOnce(&mut Peer)) -> u64 {
        if let Some(peer) = self.peers.get_mut(bot) {
            f(peer);
        }
        bot
    }

    fn answer<T>(
        &mut self,
        bot: u64,
        reply: Reply<T>,
        f: impl FnOnce(&mut Peer) -> Result<T, BotError>,
    ) -> u64 {
        let result = match self.peers.get_mut(bot) {
            Some(peer) => f(peer),
            None => Err(BotError::new("the bot is gone")),
        };
        // Who asked may have left meanwhile.
        let _ = reply.send(result);
        bot
    }
}

/// Whose an address of the shared socket is.
fn sharing(sharing: &[Option<u64>], destination: Option<Ipv4Addr>) -> Option<u64> {
    *sharing.get(SharedSocket::place(destination?))?
}

/// The bots of a thread. Numbers are given to the threads in turn and never again, so that a bot's place
/// follows from its own.
struct Peers {
    /// How many threads there are.
    threads: u64,
    places: Vec<Option<Box<Peer>>>,
    len: usize,
}

impl Peers {
    fn new(threads: usize) -> Self {
        Self { threads: threads.max(1) as u64, places: Vec::new(), len: 0 }
    }

    fn place(&self, bot: u64) -> usize {
        (bot / self.threads) as usize
    }

    fn insert(&mut self, bot: u64, peer: Peer) {
        let place = self.place(bot);
        if self.places.len() <= place {
            self.places.resize_with(place + 1, || None);
        }
        self.len += usize::from(self.places[place].replace(Box::new(peer)).is_none());
    }

    fn get(&self, bot: u64) -> Option<&Peer> {
        self.places.get(self.place(bot))?.as_deref()
    }

    fn get_mut(&mut self, bot: u64) -> Option<&mut Peer> {
        let place = self.place(bot);
        self.places.get_mut(place)?.as_deref_mut()
    }

    fn remove(&mut self, bot: u64) -> Option<Box<Peer>> {
        let place = self.place(bot);
        let peer = self.places.get_mut(place)?.take()?;
        self.len -= 1;
        Some(peer)
    }

    fn iter(&self) -> impl Iterator<Item = &Peer> {
        self.places.iter().flatten().map(Box::as_ref)
    }

    fn len(&self) -> usize {
        self.len
    }
}
