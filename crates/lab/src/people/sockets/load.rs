//! The thread that drives a group of connections.

use super::connection::{Connection, Ended, Told};
use super::counts::{Counted, Counts, Now, histogram};
use crate::base::spread;
use crate::observe::sockets::SocketCounts;
use crate::record::{Latency, Phase, Second, SocketsSummary};
use crate::scenario::SocketGroup;
use hdrhistogram::Histogram;
use net::{Events, Poller};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU32};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Pings stop so long before the end, so that the last answers can come.
pub const DRAIN: Duration = Duration::from_secs(2);
/// Between the last arrival and what counts as steady.
const SETTLE_NS: u64 = 1_000_000_000;
const SECOND_NS: u64 = 1_000_000_000;
/// The thread waits at most so long, so that it sees when it is to stop.
const MAX_WAIT: Duration = Duration::from_millis(20);
/// At most so many connections are opened in one turn, so that pings do not wait for them.
const OPEN_A_TURN: u32 = 16;
/// Events taken in one turn.
const EVENTS: usize = 512;
/// A connection whose handshake was not answered so long after it was due does not come up any more.
const HANDSHAKE_NS: u64 = 10 * SECOND_NS;
/// While a load runs, a ping counts as one that should be answered once it is so old.
const ANSWER_NS: u64 = 1_000_000_000;

fn p95_ms(us: &Histogram<u64>) -> Option<f64> {
    (!us.is_empty()).then(|| us.value_at_quantile(0.95) as f64 / 1000.0)
}

/// What others may see while it runs.
#[derive(Debug, Default)]
struct Shared {
    stop: AtomicBool,
    live: AtomicU32,
    failed: AtomicU32,
    first_failure: Mutex<Option<String>>,
    now: Mutex<Now>,
    /// Seconds that nobody took yet.
    seconds: Mutex<Vec<Second>>,
}

/// A group of connections under way.
#[derive(Debug)]
pub struct Load {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<(SocketsSummary, Counted)>>,
}

impl Load {
    /// Starts the thread `sockets-N`: connections come at their rate, to the first of the addresses that answers, and pings end
    /// [`DRAIN`] before `length`. While it runs it tells its counts from each of the moments `from` on.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn start(
        index: usize,
        addresses: Vec<SocketAddr>,
        host: String,
        group: SocketGroup,
        length: Duration,
        from: &[Duration],
    ) -> io::Result<Self> {
        crate::base::files::raise_limit();
        let shared = Arc::new(Shared::default());
        let seen = Arc::clone(&shared);
        let driver = Driver::new(addresses, host, group, (length, from), seen)?;
        let thread = thread::Builder::new().name(format!("sockets-{index}")).spawn(move || {
            crate::base::be_prompt();
            driver.run()
        })?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// How it goes.
    pub fn now(&self) -> Now {
        let now = self.shared.now.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Now { live: self.shared.live.load(Relaxed), ..now }
    }

    /// The seconds since this was asked last.
    pub fn take_seconds(&self) -> Vec<Second> {
        std::mem::take(&mut self.shared.seconds.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Connections that did not come up, or were lost, so far; with the first reason.
    pub fn failed(&self) -> (u32, Option<String>) {
        let first = self.shared.first_failure.lock().unwrap_or_else(PoisonError::into_inner);
        (self.shared.failed.load(Relaxed), first.clone())
    }

    /// Ends all connections and gives the figures, and the counts from the start and from each of the moments that were
    /// asked for.
    pub fn finish(mut self) -> (SocketsSummary, Counted) {
        self.shared.stop.store(true, Relaxed);
        let ended = self.thread.take().and_then(|thread| thread.join().ok());
        ended.unwrap_or_default()
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.shared.stop.store(true, Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The pings of one connection: the k-th is due at `start_ns + k / rate`.
#[derive(Debug, Clone, Copy, Default)]
struct Pings {
    start_ns: u64,
    made: u64,
    answered: u64,
    last_count: u64,
}

impl Pings {
    fn due_ns(&self, k: u64, rate: f64) -> u64 {
        self.start_ns + (k as f64 * 1e9 / rate) as u64
    }

    /// How many are due up to `now_ns`.
    fn due(&self, now_ns: u64, rate: f64) -> u64 {
        match now_ns.checked_sub(self.start_ns) {
            Some(since) if rate > 0.0 => (since as f64 * rate / 1e9) as u64 + 1,
            _ => 0,
        }
    }
}

#[derive(Debug)]
struct Client {
    /// None: not open any more.
    connection: Option<Connection>,
    /// When it was due to come.
    due_ns: u64,
    /// Which of the addresses it tried first, and how many it tried.
    first: usize,
    tried: usize,
    pings: Option<Pings>,
}

impl Client {
    /// The next of so many addresses that it has not tried.
    fn next_address(&mut self, all: usize) -> Option<usize> {
        let at = (self.tried < all).then(|| (self.first + self.tried) % all)?;
        self.tried += 1;
        Some(at)
    }
}

/// The counts of a whole load and of all that is steady; further ones stand behind.
const WHOLE: usize = 0;
const STEADY: usize = 1;

#[derive(Debug)]
struct Driver {
    /// All of the server, and which of them answered last.
    addresses: Vec<SocketAddr>,
    answers: usize,
    host: String,
    group: SocketGroup,
    shared: Arc<Shared>,
    poller: Poller,
    begin: Instant,
    /// Pings end here.
    until_ns: u64,
    clients: Vec<Client>,
    /// When which client wakes next.
    wakes: BinaryHeap<Reverse<(u64, u32)>>,
    /// Which clients came, in order, and may still wait for their handshake's answer.
    coming: VecDeque<u32>,
    live: u32,
    connected: u32,
    /// From the start, from when all have come, and from each moment that was asked for.
    counts: Vec<Counts>,
    window_us: Histogram<u64>,
    window_answered: u64,
    window_lost: u64,
    window_connect_us: Histogram<u64>,
    /// How much later than due it began connections and made pings.
    late_us: Histogram<u64>,
    seconds: Vec<Second>,
    closed: BTreeMap<String, u64>,
    failed: BTreeMap<String, u64>,
    counts_not_rising: u64,
    other_packets: u64,
}

impl Driver {
    fn new(
        addresses: Vec<SocketAddr>,
        host: String,
        group: SocketGroup,
        (length, from): (Duration, &[Duration]),
        shared: Arc<Shared>,
    ) -> io::Result<Self> {
        let arrival_ns = f64::from(group.connections) / group.arrival_per_second * 1e9;
        Ok(Self {
            addresses,
            answers: 0,
            host,
            group,
            shared,
            poller: Poller::new()?,
            begin: Instant::now(),
            until_ns: length.saturating_sub(DRAIN).as_nanos() as u64,
            clients: Vec::new(),
            wakes: BinaryHeap::new(),
            coming: VecDeque::new(),
            live: 0,
            connected: 0,
            counts: [0, arrival_ns as u64 + SETTLE_NS]
                .into_iter()
                .chain(from.iter().map(|from| from.as_nanos() as u64))
                .map(Counts::new)
                .collect::<io::Result<_>>()?,
            window_us: histogram()?,
            window_answered: 0,
            window_lost: 0,
            window_connect_us: histogram()?,
            late_us: histogram()?,
            seconds: Vec::new(),
            closed: BTreeMap::new(),
            failed: BTreeMap::new(),
            counts_not_rising: 0,
            other_packets: 0,
        })
    }

    fn now_ns(&self) -> u64 {
        self.begin.elapsed().as_nanos() as u64
    }

    /// How often a client wakes: for each batch, or for each ping if pings are rarer.
    fn period_ns(&self) -> u64 {
        let batch_ns = f64::from(self.group.batch_ms) * 1e6;
        batch_ns.max(1e9 / self.group.rate_per_second) as u64
    }

    fn run(mut self) -> (SocketsSummary, Counted) {
        self.begin = Instant::now();
        let mut events = Events::with_capacity(EVENTS);
        let mut buffer = vec![0; 64 << 10];
        let mut next_second_ns = SECOND_NS;
        while !self.shared.stop.load(Relaxed) {
            let now_ns = self.now_ns();
            let next_open_ns = self.open(now_ns).min(self.give_up(now_ns));
            self.wake(now_ns);
            if now_ns >= next_second_ns {
                self.second(now_ns);
                next_second_ns = now_ns - now_ns % SECOND_NS + SECOND_NS;
            }
            let next_wake_ns = self.wakes.peek().map_or(u64::MAX, |Reverse((at, _))| *at);
            let next_ns = next_open_ns.min(next_wake_ns).min(next_second_ns);
            let wait = Duration::from_nanos(next_ns.saturating_sub(self.now_ns())).min(MAX_WAIT);
            if self.poller.wait(&mut events, Some(wait)).is_err() {
                break;
            }
            for event in events.iter() {
                self.ready(event.token as u32, event.readable, &mut buffer);
            }
        }
        self.finish()
    }

    /// Opens the connections that are due. Returns when the next one is due.
    fn open(&mut self, now_ns: u64) -> u64 {
        for _ in 0..OPEN_A_TURN {
            let index = self.clients.len() as u32;
            if index >= self.group.connections {
                return u64::MAX;
            }
            let at_ns = (f64::from(index) * 1e9 / self.group.arrival_per_second) as u64;
            if at_ns > now_ns {
                return at_ns;
            }
            for counts in self.counts.iter_mut().filter(|counts| at_ns >= counts.from_ns) {
                counts.tried += 1;
            }
            self.late_us.saturating_record(self.now_ns().saturating_sub(at_ns) / 1000);
            let (due_ns, first) = (at_ns, self.answers);
            self.clients.push(Client { connection: None, due_ns, first, tried: 0, pings: None });
            self.coming.push_back(index);
            self.begin(index);
        }
        now_ns
    }

    /// Begins to connect a client to the next address that it has not tried.
    fn begin(&mut self, index: u32) {
        let mut why = io::ErrorKind::NotFound;
        let all = self.addresses.len();
        while let Some(at) = self.clients[index as usize].next_address(all) {
            let (address, seed) = (self.addresses[at], index.wrapping_mul(2_654_435_769));
            let opened = Connection::open(address, &self.host, seed).and_then(|connection| {
                self.poller.add(connection.stream(), u64::from(index))?;
                Ok(connection)
            });
            match opened {
                Ok(connection) => {
                    self.clients[index as usize].connection = Some(connection);
                    return self.flush(index);
                }
                Err(error) => why = error.kind(),
            }
        }
        self.fail(format!("no connection: {why}"));
    }

    /// Gives up connections whose handshake has not been answered for too long. Returns when the next one's time ends.
    fn give_up(&mut self, now_ns: u64) -> u64 {
        while let Some(index) = self.coming.front().copied() {
            let Client { connection, due_ns, .. } = &self.clients[index as usize];
            let waits = connection.as_ref().is_some_and(|connection| !connection.is_live());
            let end_ns = due_ns + HANDSHAKE_NS;
            if waits && end_ns > now_ns {
                return end_ns;
            }
            self.coming.pop_front();
            if waits {
                self.too_late(index, "within 10 s");
            }
        }
        u64::MAX
    }

    /// A connection did not come up in time: no other address is tried.
    fn too_late(&mut self, index: u32, when: &str) {
        let why = self.no_answer(index, when);
        self.clients[index as usize].tried = self.addresses.len();
        self.end(index, &Ended::Lost(why));
    }

    /// Why a connection is given up that did not come up in time.
    fn no_answer(&self, index: u32, when: &str) -> String {
        let connection = self.clients[index as usize].connection.as_ref();
        let what = match connection.is_some_and(Connection::came_up) {
            true => "the handshake was not answered",
            false => "no connection",
        };
        format!("{what} {when}")
    }

    /// Sends the pings of all clients that are due.
    fn wake(&mut self, now_ns: u64) {
        let (rate, period_ns) = (self.group.rate_per_second, self.period_ns());
        while let Some(&Reverse((at_ns, index))) = self.wakes.peek() {
            if at_ns > now_ns {
                return;
            }
            self.wakes.pop();
            let client = &mut self.clients[index as usize];
            let (Some(connection), Some(pings)) = (&mut client.connection, &mut client.pings)
            else {
                continue;
            };
            let up_to_ns = now_ns.min(self.until_ns.saturating_sub(1));
            let due = pings.due(up_to_ns, rate).saturating_sub(pings.made);
            self.late_us.saturating_record(now_ns.saturating_sub(at_ns) / 1000);
            let made = connection.ping(due);
            for k in pings.made..pings.made + made {
                let due_ns = pings.due_ns(k, rate);
                for counts in &mut self.counts {
                    counts.made += u64::from(due_ns >= counts.from_ns);
                }
            }
            pings.made += made;
            if at_ns < self.until_ns {
                // A client that was woken late does not wake twice as often afterwards.
                let next_ns = (at_ns + period_ns).max(now_ns.saturating_sub(period_ns));
                self.wakes.push(Reverse((next_ns, index)));
            }
            if made > 0 {
                self.flush(index);
            }
        }
    }

    fn flush(&mut self, index: u32) {
        let client = &mut self.clients[index as usize];
        let Some(connection) = &mut client.connection else { return };
        match connection.flush() {
            Ok(waits) if waits != connection.wants_write => {
                let asked = self.poller.set_writable(connection.stream(), u64::from(index), waits);
                connection.wants_write = waits;
                if let Err(error) = asked {
                    self.end(index, &Ended::Lost(error.kind().to_string()));
                }
            }
            Ok(_) => {}
            Err(ended) => self.end(index, &ended),
        }
    }

    fn ready(&mut self, index: u32, readable: bool, buffer: &mut [u8]) {
        let Some(client) = self.clients.get_mut(index as usize) else { return };
        let (Some(mut connection), came_ns) = (client.connection.take(), client.due_ns) else {
            return;
        };
        let mut pings = client.pings;
        let (now_ns, rate) = (self.begin.elapsed().as_nanos() as u64, self.group.rate_per_second);
        let mut became_live = false;
        let result = if readable {
            connection.read(buffer, |told| match told {
                Told::Live => became_live = true,
                Told::Other => self.other_packets += 1,
                Told::Pong(count) => {
                    let Some(pings) = &mut pings else { return self.other_packets += 1 };
                    if pings.answered >= pings.made {
                        return self.other_packets += 1;
                    }
                    self.counts_not_rising += u64::from(count <= pings.last_count);
                    pings.last_count = count;
                    let due_ns = pings.due_ns(pings.answered, rate);
                    pings.answered += 1;
                    let us = now_ns.saturating_sub(due_ns) / 1000;
                    self.window_us.saturating_record(us);
                    self.window_answered += 1;
                    for counts in self.counts.iter_mut().filter(|of| due_ns >= of.from_ns) {
                        counts.answer(index, us);
                    }
                }
            })
        } else {
            Ok(())
        };
        if became_live {
            self.connected += 1;
            self.live += 1;
            self.shared.live.store(self.live, Relaxed);
            let us = now_ns.saturating_sub(came_ns) / 1000;
            for counts in self.counts.iter_mut().filter(|counts| came_ns >= counts.from_ns) {
                counts.connect_us.saturating_record(us);
            }
            self.window_connect_us.saturating_record(us);
            // The next ones try the address first that answered.
            let Client { first, tried, .. } = self.clients[index as usize];
            self.answers = (first + tried - 1) % self.addresses.len();
            if rate > 0.0 {
                // Spread over the period, so that no two wake together.
                let start_ns = now_ns + (self.period_ns() as f64 * spread(index)) as u64;
                pings = Some(Pings { start_ns, ..Pings::default() });
                self.wakes.push(Reverse((start_ns, index)));
            }
        }
        let client = &mut self.clients[index as usize];
        client.connection = Some(connection);
        client.pings = pings;
        match result {
            Ok(()) => self.flush(index),
            Err(ended) => self.end(index, &ended),
        }
    }

    fn fail(&mut self, why: String) {
        self.lose();
        let mut first = self.shared.first_failure.lock().unwrap_or_else(PoisonError::into_inner);
        first.get_or_insert_with(|| why.clone());
        drop(first);
        *self.failed.entry(why).or_default() += 1;
    }

    /// A connection did not come up, or ended before it was ended here.
    fn lose(&mut self) {
        let now_ns = self.now_ns();
        for counts in self.counts.iter_mut().filter(|counts| now_ns >= counts.from_ns) {
            counts.lost += 1;
        }
        self.window_lost += 1;
        self.shared.failed.fetch_add(1, Relaxed);
    }

    /// A connection ended before it was ended here.
    fn end(&mut self, index: u32, ended: &Ended) {
        let client = &mut self.clients[index as usize];
        let Some(connection) = client.connection.take() else { return };
        if !connection.came_up() && client.tried < self.addresses.len() {
            drop(connection);
            return self.begin(index);
        }
        if connection.is_live() {
            self.live -= 1;
            self.shared.live.store(self.live, Relaxed);
            let (key, why) = match ended {
                Ended::Code(code) => (code.to_string(), format!("closed with {code}")),
                Ended::Lost(why) => ("lost".to_owned(), why.clone()),
            };
            *self.closed.entry(key).or_default() += 1;
            self.lose();
            let mut first =
                self.shared.first_failure.lock().unwrap_or_else(PoisonError::into_inner);
            first.get_or_insert(why);
        } else {
            self.fail(match ended {
                Ended::Code(code) => format!("closed with {code} before it was up"),
                Ended::Lost(why) => why.clone(),
            });
        }
    }

    /// Pings due in `[from_ns, to_ns)`, over all clients that were ever up.
    fn offered(&self, from_ns: u64, to_ns: u64) -> u64 {
        let pings = self.clients.iter().filter_map(|client| client.pings.as_ref());
        pings.map(|pings| self.offered_by(pings, from_ns, to_ns)).sum()
    }

    /// Pings of one client due in `[from_ns, to_ns)`.
    fn offered_by(&self, pings: &Pings, from_ns: u64, to_ns: u64) -> u64 {
        let (rate, to_ns) = (self.group.rate_per_second, to_ns.min(self.until_ns));
        let before = |at_ns: u64| match at_ns {
            0 => 0,
            at_ns => pings.due(at_ns - 1, rate),
        };
        before(to_ns).saturating_sub(before(from_ns))
    }

    /// What [`Counts`] come to by now.
    fn counted(&self, counts: &Counts) -> SocketCounts {
        let to_ns = self.now_ns().saturating_sub(ANSWER_NS);
        let nothing = (0, 0);
        let mut answered_of_each_pct = Vec::new();
        for (index, client) in self.clients.iter().enumerate() {
            let Some(pings) = &client.pings else { continue };
            let offered = self.offered_by(pings, counts.from_ns, to_ns);
            let (answered, _) = counts.each.get(index).unwrap_or(&nothing);
            if offered > 0 {
                // Younger pings may be answered already.
                let pct = 100.0 * *answered as f64 / offered as f64;
                answered_of_each_pct.push(pct.min(100.0));
            }
        }
        let answered = counts.each.iter().filter(|(answered, _)| *answered > 0);
        let mean_ms = |(answered, sum_us): &(u64, u64)| *sum_us as f64 / *answered as f64 / 1000.0;
        SocketCounts {
            pong_us: counts.latency_us.clone(),
            connect_us: counts.connect_us.clone(),
            pong_of_each_ms: answered.map(mean_ms).collect(),
            answered_of_each_pct,
            tried: counts.tried,
            lost: counts.lost,
        }
    }

    /// The counts from each moment that was asked for.
    fn asked(&self) -> Counted {
        let asked = self.counts.iter().skip(STEADY + 1);
        asked.map(|one| (Duration::from_nanos(one.from_ns), self.counted(one))).collect()
    }

    fn second(&mut self, now_ns: u64) {
        let from_ns = self.seconds.last().map_or(0, |last| (last.t_s * 1e9) as u64);
        let latency = Latency::of(&self.window_us);
        let second = Second {
            t_s: now_ns as f64 / 1e9,
            live: self.live,
            offered: self.offered(from_ns, now_ns),
            answered: self.window_answered,
            p50_ms: latency.map(|latency| latency.p50_ms),
            p99_ms: latency.map(|latency| latency.p99_ms),
            lost: self.window_lost,
            connect_p95_ms: p95_ms(&self.window_connect_us),
        };
        let length_s = now_ns.saturating_sub(from_ns) as f64 / 1e9;
        let now = Now {
            live: self.live,
            offered_per_s: second.offered as f64 / length_s,
            answered_per_s: second.answered as f64 / length_s,
            p99_ms: second.p99_ms,
            counts: self.asked(),
        };
        *self.shared.now.lock().unwrap_or_else(PoisonError::into_inner) = now;
        self.shared.seconds.lock().unwrap_or_else(PoisonError::into_inner).push(second);
        self.seconds.push(second);
        self.window_us.reset();
        self.window_connect_us.reset();
        (self.window_answered, self.window_lost) = (0, 0);
    }

    fn phase(&self, counts: &Counts, end_ns: u64) -> Phase {
        Phase {
            seconds: end_ns.saturating_sub(counts.from_ns) as f64 / 1e9,
            offered: self.offered(counts.from_ns, end_ns),
            made: counts.made,
            answered: counts.answered,
            latency: Latency::of(&counts.latency_us),
        }
    }

    /// Who did not come up until the end did not come up. Who came just before it is not counted.
    fn end_coming(&mut self) {
        let now_ns = self.now_ns();
        for index in std::mem::take(&mut self.coming) {
            let Client { connection, due_ns, .. } = &self.clients[index as usize];
            let waits = connection.as_ref().is_some_and(|connection| !connection.is_live());
            if waits && due_ns + ANSWER_NS <= now_ns {
                self.too_late(index, "until the end");
            }
        }
    }

    /// Connections that pinged and were never answered, although there was time.
    fn unanswered(&self) -> u32 {
        let to_ns = self.now_ns().saturating_sub(ANSWER_NS);
        let pings = self.clients.iter().filter_map(|client| client.pings.as_ref());
        let silent = |pings: &&Pings| pings.answered == 0 && self.offered_by(pings, 0, to_ns) > 0;
        pings.filter(silent).count() as u32
    }

    fn finish(mut self) -> (SocketsSummary, Counted) {
        self.end_coming();
        let end_ns = self.now_ns().min(self.until_ns);
        let live = self.live;
        let (whole, steady) = (&self.counts[WHOLE], &self.counts[STEADY]);
        let steady = (end_ns > steady.from_ns).then(|| self.phase(steady, end_ns));
        let connect = Latency::of(&whole.connect_us);
        let mut counted = self.asked();
        counted.insert(Duration::ZERO, self.counted(whole));
        let whole = self.phase(whole, end_ns);
        for client in &mut self.clients {
            if let Some(connection) = &mut client.connection {
                connection.close();
                let _ = connection.flush();
            }
        }
        let summary = SocketsSummary {
            connections: self.group.connections,
            connected: self.connected,
            live,
            arrival_per_second: self.group.arrival_per_second,
            rate_per_second: self.group.rate_per_second,
            batch_ms: self.group.batch_ms,
            connect,
            late_ms_p99: (!self.late_us.is_empty())
                .then(|| self.late_us.value_at_quantile(0.99) as f64 / 1000.0),
            unanswered: self.unanswered(),
            closed: self.closed,
            failed: self.failed,
            counts_not_rising: self.counts_not_rising,
            other_packets: self.other_packets,
            whole,
            steady,
            seconds: self.seconds,
            ..SocketsSummary::default()
        };
        (summary, counted)
    }
}
