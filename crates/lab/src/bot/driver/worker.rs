//! One thread and all bots on it.

use super::peer::{Peer, Work};
use super::{Command, Common, Health, Reply, lock};
use crate::bots::BotError;
use net::{Events, Poller, RecvBatch, SendBatch, Waker};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Token of the waker; bots count from 1.
const WAKER: u64 = 0;
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
}

impl Worker {
    pub(super) fn new(
        common: Arc<Common>,
        incoming: Receiver<Command>,
        waker: Arc<Waker>,
        published: Arc<Mutex<Health>>,
    ) -> io::Result<Self> {
        let poller = Poller::new()?;
        poller.add(&*waker, WAKER)?;
        Ok(Self {
            common,
            incoming,
            waker,
            published,
            poller,
            peers: BTreeMap::new(),
            deadlines: BTreeSet::new(),
            work: Work { batch: SendBatch::new(256), health: Health::new() },
            received: RecvBatch::new(32),
        })
    }

    pub(super) fn run(mut self) {
        // The default slack of 50 µs would be lag of our own making. Without it, it is measured.
        let _ = net::thread::set_timer_slack(Duration::from_micros(1));
        super::be_prompt();
        let mut events = Events::with_capacity(256);
        let mut publish_at = Instant::now();
        while !self.common.stop.load(Ordering::Acquire) {
            let now = Instant::now();
            let next = self.deadlines.first().map_or(publish_at, |(at, _)| (*at).min(publish_at));
            if self.poller.wait(&mut events, Some(next.saturating_duration_since(now))).is_err() {
                self.work.health.drop("poll_failed", 1);
            }
            for event in events.iter() {
                match event.token {
                    WAKER => {
                        self.waker.drain();
                    }
                    bot => self.receive(bot),
                }
            }
            self.commands();
            self.timers();
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
        if peer.closed()
            && let Some(socket) = peer.socket.take()
        {
            self.work.health.drop("receive_buffer_full", socket.kernel_drops().unwrap_or(0));
            // The last descriptor of the socket: closing it takes it out anyway.
            let _ = self.poller.remove(&socket);
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
            Command::Add { bot, spec, tone, now } => {
                let peer = Peer::new(&self.common, *spec, tone, now);
                if let Some(socket) = &peer.socket
                    && let Err(error) = self.poller.add(socket, bot)
                {
                    self.peers.insert(bot, peer);
                    self.fail(bot, format!("its socket cannot be watched: {error}"));
                    return;
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
