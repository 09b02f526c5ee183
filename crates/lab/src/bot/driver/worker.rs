//! One thread and all bots on it.

use super::peer::Peer;
use super::port::{Port, SharedSocket, Work};
use super::{Command, Common, Health, Reply, lock};
use crate::bots::BotError;
use net::{Events, Poller, RecvBatch, Waker};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Token of the waker; bots count from 1.
const WAKER: u64 = 0;
/// Token of the socket that all share.
const SHARED: u64 = u64::MAX;
/// With more bots than this a thread takes turns…
const MANY: usize = 32;
/// …of this length. Arrivals are stamped by the kernel, and marks are made as packets leave.
const TURN: Duration = Duration::from_millis(1);
/// Commands taken in a row before sockets and timers have their turn.
const COMMANDS_PER_TURN: usize = 64;
/// Receive calls for one bot in a row.
const RECEIVES_PER_TURN: usize = 8;
/// How often the health is published.
const PUBLISH: Duration = Duration::from_millis(250);

pub(super) struct Worker {
    common: Arc<Common>,
    incoming: Receiver<Command>,
    waker: Arc<Waker>,
    published: Arc<Mutex<Health>>,
    poller: Poller,
    peers: BTreeMap<u64, Peer>,
    /// Whose deadline is next.
    deadlines: BTreeSet<(Instant, u64)>,
    work: Work,
    received: RecvBatch,
    /// Whose address of the shared socket is which; 0: nobody's any more.
    sharing: Vec<u64>,
    /// Who has something to do after what was received.
    touched: Vec<u64>,
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
        Ok(Self {
            common,
            incoming,
            waker,
            published,
            poller,
            peers: BTreeMap::new(),
            deadlines: BTreeSet::new(),
            work: Work::new(shared),
            received: RecvBatch::new(64),
            sharing: vec![0],
            touched: Vec::new(),
        })
    }

    pub(super) fn run(mut self) {
        // The default slack of 50 µs would be lag of our own making. Without it, it is measured.
        let _ = net::thread::set_timer_slack(Duration::from_micros(1));
        super::be_prompt();
        let mut events = Events::with_capacity(256);
        let mut publish_at = Instant::now();
        let mut turned = Instant::now();
        while !self.common.stop.load(Ordering::Acquire) {
            // With many bots something is due all the time: what comes within a turn shares its calls.
            if self.peers.len() > MANY {
                std::thread::sleep((turned + TURN).saturating_duration_since(Instant::now()));
            }
            let now = Instant::now();
            turned = now;
            let next = self.deadlines.first().map_or(publish_at, |(at, _)| (*at).min(publish_at));
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
            if publish_at <= Instant::now() {
                publish_at = Instant::now() + PUBLISH;
                self.publish();
            }
        }
    }

    fn publish(&mut self) {
        let mut health = self.work.health.clone();
        for peer in self.peers.values() {
            peer.add_health(&mut health);
        }
        let shared = self.work.shared().and_then(|shared| shared.socket.kernel_drops().ok());
        health.drop("receive_buffer_full", shared.unwrap_or(0));
        *lock(&self.published) = health;
    }

    fn receive(&mut self, bot: u64) {
        let Some(peer) = self.peers.get_mut(&bot) else { return };
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
            let now = Instant::now();
            for datagram in self.received.datagrams() {
                let place = datagram.dst.map_or(0, SharedSocket::place);
                let bot = self.sharing.get(place).copied().unwrap_or(0);
                // Who left gets the last packets of the others for a moment.
                let Some(peer) = self.peers.get_mut(&bot) else { continue };
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

    /// Lets a bot do what it has to do, and notes when it wants to be called again.
    fn serve(&mut self, bot: u64) {
        let Some(peer) = self.peers.get_mut(&bot) else { return };
        if let Some(armed) = peer.armed.take() {
            self.deadlines.remove(&(armed, bot));
        }
        if let Some(at) = peer.serve(&mut self.work) {
            peer.armed = Some(at);
            self.deadlines.insert((at, bot));
        }
        if peer.closed() {
            match std::mem::replace(&mut peer.port, Port::Closed) {
                Port::Own(socket) => {
                    let dropped = socket.kernel_drops().unwrap_or(0);
                    self.work.health.drop("receive_buffer_full", dropped);
                    // The last descriptor of the socket: closing it takes it out anyway.
                    let _ = self.poller.remove(&socket);
                }
                Port::Shared(ip) => self.sharing[SharedSocket::place(ip)] = 0,
                Port::Closed => {}
            }
        }
    }

    fn timers(&mut self) {
        let now = Instant::now();
        while let Some((at, bot)) = self.deadlines.first().copied().filter(|(at, _)| *at <= now) {
            let lag_us = now.saturating_duration_since(at).as_micros() as u64;
            self.work.health.timer_lag_us.saturating_record(lag_us);
            // The next deadline lies ahead of `now`, so that this ends.
            self.serve(bot);
        }
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
                let shared = self.work.shared().and_then(SharedSocket::next);
                let peer = Peer::new(&self.common, *spec, says, now, shared);
                match &peer.port {
                    Port::Own(socket) => {
                        if let Err(error) = self.poller.add(socket, bot) {
                            self.peers.insert(bot, peer);
                            self.fail(bot, format!("its socket cannot be watched: {error}"));
                            return;
                        }
                    }
                    Port::Shared(_) => self.sharing.push(bot),
                    Port::Closed => {}
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
            Command::Grow { bot, pool } => self.tell(bot, |peer| peer.wanted = pool),
            Command::Do { bot, command } => self.tell(bot, |peer| peer.command(command)),
            Command::Connected { bot, reply } => self.tell(bot, |peer| peer.waiters.push(reply)),
            Command::Remove { bot } => {
                self.tell(bot, |peer| peer.command(crate::bots::BotCommand::Leave));
                self.serve(bot);
                if let Some(peer) = self.peers.remove(&bot) {
                    peer.add_health(&mut self.work.health);
                    if let Some(armed) = peer.armed {
                        self.deadlines.remove(&(armed, bot));
                    }
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
        if let Some(peer) = self.peers.get_mut(&bot) {
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
        let result = match self.peers.get_mut(&bot) {
            Some(peer) => f(peer),
            None => Err(BotError::new("the bot is gone")),
        };
        // Who asked may have left meanwhile.
        let _ = reply.send(result);
        bot
    }
}
