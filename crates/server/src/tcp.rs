//! Media on TCP, for people whose networks let no UDP through: the connections of one media thread.
//!
//! Each carries STUN, DTLS and media in frames (RFC 4571). What waits for one is bounded, sound apart from
//! pictures: where a connection is behind, pictures wait for a later keyframe, and sound overtakes what of them
//! is still here.
//!
//! A connection of a trusted proxy is its client's: what the proxy tells in a PROXY header stands for where it comes from.

mod counts;
mod entry;
mod reader;

pub(crate) use reader::{Come, Reader};

use crate::metrics::Metrics;
use crate::places::Places;
use crate::proxies::Proxies;
use counts::Counts;
use engine::Priority;
use engine::limits::MAX_DATAGRAM;
use entry::{Entered, Entry};
use net::framing::HEADER_LEN;
use net::stream::Listener;
use net::{Event, Events, Poller};
use reader::ReadEnd;
use std::collections::{HashMap, VecDeque};
use std::io::{self, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Connections accepted in a row before packets have their turn.
const ACCEPTS: usize = 64;
/// A connection that has carried nothing authentic so long after it was accepted is nobody's: time for ICE and
/// DTLS over a slow network.
const UNPROVEN: Duration = Duration::from_secs(15);
/// ICE asks every few seconds whether the other side is there: a participant who is silent for so long is gone.
const IDLE: Duration = Duration::from_secs(30);
/// How often such are looked for.
const SWEEP: Duration = Duration::from_secs(1);
/// Such connections closed in a row before packets have their turn.
const CLOSES: usize = 32;
/// With so many bytes of pictures waiting a connection is behind…
const BEHIND_BYTES: usize = 128 << 10;
/// …until no more than so many are left.
const CAUGHT_UP_BYTES: usize = 16 << 10;
/// What one batch of packets adds once a connection is behind, or full.
const BATCH_BYTES: usize = 128 << 10;
/// Most bytes of pictures.
const MAX_PICTURE_BYTES: usize = BEHIND_BYTES + BATCH_BYTES;
/// Most bytes of sound and control, some 500 packets.
const MAX_SOUND_BYTES: usize = 64 << 10;
/// Handed to the kernel at a time, pictures at the end: what is in there, sound cannot overtake.
const WRITE_BYTES: usize = 16 << 10;

/// Token of the first connection; those below are listeners.
const FIRST: u64 = 16;

/// Who may connect, and a fault if one is asked for.
pub(crate) struct Terms {
    /// For how many there is room.
    pub(crate) places: Places,
    /// Whose connections are their clients'.
    pub(crate) proxies: Proxies,
    /// See [`TcpPort::with_backlog`].
    pub(crate) backlog: Option<usize>,
}

/// The connections of a media thread.
pub(crate) struct TcpPort {
    listeners: Vec<Listener>,
    /// Those that wait for a descriptor.
    resting: Vec<usize>,
    poller: Poller,
    events: Events,
    connections: Vec<Option<Connection>>,
    by_peer: HashMap<SocketAddr, usize>,
    places: Places,
    proxies: Proxies,
    free: Vec<usize>,
    /// Who has something to read.
    readable: VecDeque<usize>,
    /// Who got something to write since the last flush.
    written: Vec<usize>,
    lent: Option<(usize, Priority)>,
    scratch: Box<[u8; MAX_DATAGRAM]>,
    /// Packets and bytes queued since they were taken.
    sent: (u64, u64),
    /// A fault made on purpose: so many bytes wait for a connection, sound among pictures, before anything is dropped.
    backlog: Option<usize>,
    sweep_due: Instant,
    counts: Counts,
}

struct Connection {
    /// The client, as far as it is known.
    peer: SocketAddr,
    /// Of a trusted proxy: it has a place of no address, and may count for its client's.
    proxied: bool,
    counted: Option<IpAddr>,
    /// A trusted proxy may still say for whom it is.
    entry: Option<Entry>,
    stream: Arc<TcpStream>,
    /// None while it is lent.
    reader: Option<Box<Reader>>,
    /// Framed packets that wait.
    sound: VecDeque<u8>,
    pictures: VecDeque<u8>,
    /// What goes to the kernel next, from `written` on.
    out: Vec<u8>,
    written: usize,
    /// The kernel takes no more for now.
    blocked: bool,
    behind: bool,
    /// It is in the list of those who got something.
    listed: bool,
    /// It is closed then, unless something authentic comes before.
    until: Instant,
}

impl TcpPort {
    /// The connections that come to `listeners`, none yet, as many as there are `places`; those of `proxies` are their
    /// clients'.
    ///
    /// # Errors
    /// The system has no descriptor left.
    pub(crate) fn new(
        listeners: Vec<Listener>,
        (places, proxies): (Places, Proxies),
        thread: &str,
        metrics: &Metrics,
    ) -> io::Result<Self> {
        let poller = Poller::new()?;
        for (token, listener) in listeners.iter().enumerate() {
            poller.add(listener, token as u64)?;
        }
        Ok(Self {
            listeners,
            resting: Vec::new(),
            poller,
            events: Events::with_capacity(256),
            connections: Vec::new(),
            by_peer: HashMap::new(),
            places,
            proxies,
            free: Vec::new(),
            readable: VecDeque::new(),
            written: Vec::new(),
            lent: None,
            scratch: Box::new([0; MAX_DATAGRAM]),
            sent: (0, 0),
            backlog: None,
            sweep_due: Instant::now(),
            counts: Counts::new(thread, metrics),
        })
    }

    /// The same with a fault, if one is asked for: nothing is dropped for a connection that is behind until so many bytes wait
    /// for it, in the order in which they came.
    pub(crate) fn with_backlog(self, backlog: Option<usize>) -> Self {
        Self { backlog, ..self }
    }

    /// Readable where there is something to do.
    pub(crate) fn poller(&self) -> &Poller {
        &self.poller
    }

    /// Whether it is time to look for connections that nobody uses, or some wait to be read.
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        self.waits() || now >= self.sweep_due
    }

    /// Whether connections wait to be read.
    pub(crate) fn waits(&self) -> bool {
        !self.readable.is_empty()
    }

    /// Accepts who comes, writes where there is room again, and notes who has something to read; once all who had are
    /// read.
    pub(crate) fn serve(&mut self, now: Instant) {
        if !self.waits() {
            let mut events = std::mem::replace(&mut self.events, Events::with_capacity(1));
            if self.poller.wait(&mut events, Some(Duration::ZERO)).is_ok() {
                for event in events.iter() {
                    self.event(event, now);
                }
            }
            self.events = events;
        }
        if now >= self.sweep_due {
            self.sweep_due = now + SWEEP;
            self.sweep(now);
        }
    }

    fn event(&mut self, event: Event, now: Instant) {
        if event.token < FIRST {
            return self.accept(event.token as usize, now);
        }
        let index = (event.token - FIRST) as usize;
        let Some(Some(_)) = self.connections.get(index) else { return };
        if event.writable {
            self.write(index, true);
        }
        if event.readable {
            self.readable.push_back(index);
        }
    }

    fn accept(&mut self, listener: usize, now: Instant) {
        for _ in 0..ACCEPTS {
            let (stream, peer) = match self.listeners[listener].accept() {
                Ok(Some(accepted)) => accepted,
                Ok(None) => return,
                // Who hung up meanwhile.
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => continue,
                Err(error) => return self.rest(listener, &error),
            };
            let proxied = self.proxies.trust(peer.ip());
            let taken =
                if proxied { self.places.take_for_proxy() } else { self.places.take(peer.ip()) };
            if let Err(full) = taken {
                self.counts.refuse(full, peer.ip(), self.places.most_each(), now);
                continue;
            }
            let index = self.free.pop().unwrap_or(self.connections.len());
            if self.poller.add(&stream, FIRST + index as u64).is_err() {
                self.counts.refused.inc();
                give_back(&mut self.places, proxied, peer.ip(), None);
                self.free.extend((index < self.connections.len()).then_some(index));
                continue;
            }
            let stream = Arc::new(stream);
            let connection = Connection {
                peer,
                proxied,
                counted: None,
                entry: proxied.then(|| Entry::new(stream.clone())),
                reader: Some(Box::new(Reader::new(stream.clone(), MAX_DATAGRAM))),
                stream,
                sound: VecDeque::new(),
                pictures: VecDeque::new(),
                out: Vec::new(),
                written: 0,
                blocked: false,
                behind: false,
                listed: false,
                until: now + UNPROVEN,
            };
            match self.connections.get_mut(index) {
                Some(place) => *place = Some(connection),
                None => self.connections.push(Some(connection)),
            }
            self.by_peer.insert(peer, index);
            self.counts.open.add(1);
        }
    }

    /// Reads what a trusted proxy says of the client; false where it waits for more, or is closed.
    fn enter(&mut self, index: usize, now: Instant) -> bool {
        let Some(Some(connection)) = self.connections.get_mut(index) else { return false };
        let Some(entry) = &mut connection.entry else { return true };
        let (client, early) = match entry.read() {
            Entered::Waits => return false,
            Entered::Known(client, early) => (client, early),
            Entered::Closed => {
                self.close(index);
                return false;
            }
            Entered::Bad(why) => {
                self.counts.refuse_header(why, connection.peer.ip(), now);
                self.close(index);
                return false;
            }
        };
        connection.entry = None;
        if let Some(reader) = &mut connection.reader {
            reader.begin_with(&early);
        }
        let Some(client) = client else { return true };
        let proxy = std::mem::replace(&mut connection.peer, client);
        let trusted = self.proxies.trust(client.ip());
        if self.by_peer.get(&proxy) == Some(&index) {
            self.by_peer.remove(&proxy);
        }
        self.by_peer.insert(client, index);
        if trusted {
            return true;
        }
        match self.places.count(client.ip()) {
            Ok(()) => {
                connection.counted = Some(client.ip());
                true
            }
            Err(full) => {
                self.counts.refuse(full, client.ip(), self.places.most_each(), now);
                self.close(index);
                false
            }
        }
    }

    /// There is no descriptor for who waits: who comes waits until the next sweep.
    fn rest(&mut self, listener: usize, error: &io::Error) {
        self.counts.refused.inc();
        tracing::warn!(%error, "no connection of media can be accepted");
        if self.poller.remove(&self.listeners[listener]).is_ok() {
            self.resting.push(listener);
        }
    }

    /// Lends what comes in on the next connection that has something to read, and says who that is;
    /// [`Self::give_back`] takes it again.
    pub(crate) fn lend_reader(&mut self, now: Instant) -> Option<(usize, SocketAddr, Box<Reader>)> {
        while let Some(index) = self.readable.pop_front() {
            if self.enter(index, now)
                && let Some(Some(connection)) = self.connections.get_mut(index)
                && let Some(reader) = connection.reader.take()
            {
                return Some((index, connection.peer, reader));
            }
        }
        None
    }

    /// Takes back what was lent, and what was made of what came: only something authentic lets the connection
    /// live on.
    pub(crate) fn give_back(
        &mut self,
        index: usize,
        reader: Box<Reader>,
        come: Come,
        now: Instant,
    ) {
        self.counts.received.add(come.packets);
        let Some(Some(connection)) = self.connections.get_mut(index) else { return };
        connection.reader = Some(reader);
        if come.authentic {
            connection.until = now + IDLE;
        }
        if let Some(end) = come.end {
            let peer = connection.peer;
            match end {
                ReadEnd::Closed => {}
                ReadEnd::ProxyHeader => self.counts.refuse_untrusted(peer.ip(), now),
                ReadEnd::BadFrame(error) => {
                    self.counts.bad_frame.inc();
                    tracing::debug!(%peer, %error, "a connection of no media is closed");
                }
            }
            self.close(index);
        }
    }

    /// Whether there is room for a packet to this one.
    pub(crate) fn has_room(&self, to: SocketAddr, priority: Priority) -> bool {
        let Some(connection) = self.connection(to) else { return false };
        match (priority, self.backlog) {
            (_, Some(most)) => connection.pictures.len() + BATCH_BYTES <= most,
            (Priority::High, None) => {
                connection.sound.len() + MAX_DATAGRAM + HEADER_LEN <= MAX_SOUND_BYTES
            }
            (Priority::Low, None) => !connection.behind,
        }
    }

    fn connection(&self, peer: SocketAddr) -> Option<&Connection> {
        self.connections[*self.by_peer.get(&peer)?].as_ref()
    }

    /// Lends room for a packet; none where the connection is gone or takes no more.
    pub(crate) fn lend(&mut self, to: SocketAddr, priority: Priority) -> Option<&mut [u8]> {
        self.lent = None;
        let index = *self.by_peer.get(&to)?;
        let connection = self.connections[index].as_ref()?;
        // In one queue nothing overtakes.
        let priority = if self.backlog.is_some() { Priority::Low } else { priority };
        let (waiting, most) = match priority {
            Priority::High => (connection.sound.len(), MAX_SOUND_BYTES),
            Priority::Low => (connection.pictures.len(), self.backlog.unwrap_or(MAX_PICTURE_BYTES)),
        };
        if waiting + MAX_DATAGRAM + HEADER_LEN > most {
            self.counts.too_much.inc();
            return None;
        }
        self.lent = Some((index, priority));
        Some(&mut self.scratch[..])
    }

    /// Queues the first `len` bytes of what was lent last.
    pub(crate) fn commit(&mut self, len: usize) {
        let Some((index, priority)) = self.lent.take() else { return };
        let Some(Some(connection)) = self.connections.get_mut(index) else { return };
        let queue = match priority {
            Priority::High => &mut connection.sound,
            Priority::Low => &mut connection.pictures,
        };
        queue.extend((len as u16).to_be_bytes());
        queue.extend(&self.scratch[..len]);
        connection.behind |= connection.pictures.len() >= BEHIND_BYTES;
        if !std::mem::replace(&mut connection.listed, true) {
            self.written.push(index);
        }
        self.sent.0 += 1;
        self.sent.1 += len as u64;
    }

    /// Takes how many packets, and bytes of them, were queued since the last time.
    pub(crate) fn take_sent(&mut self) -> (u64, u64) {
        let sent = std::mem::take(&mut self.sent);
        self.counts.sent.add(sent.0);
        sent
    }

    /// Queues a packet of the control thread; one to a connection that is gone is nothing.
    pub(crate) fn send(&mut self, to: SocketAddr, packet: &[u8]) {
        let room = self.lend(to, Priority::High).and_then(|room| room.get_mut(..packet.len()));
        if let Some(room) = room {
            room.copy_from_slice(packet);
            self.commit(packet.len());
        }
    }

    /// Writes what was queued.
    pub(crate) fn flush(&mut self) {
        for at in 0..self.written.len() {
            let index = self.written[at];
            if let Some(Some(connection)) = self.connections.get_mut(index) {
                connection.listed = false;
                self.write(index, false);
            }
        }
        self.written.clear();
    }

    /// Writes what waits for a connection. One that is blocked waits until the poller says that it is `writable`.
    fn write(&mut self, index: usize, writable: bool) {
        let Some(Some(connection)) = self.connections.get_mut(index) else { return };
        let before = connection.blocked;
        if before && !writable {
            return;
        }
        connection.blocked = false;
        if connection.write().is_err() {
            return self.close(index);
        }
        // Only a change costs a system call. Interest that stays would wake the thread without end.
        if connection.blocked != before {
            let token = FIRST + index as u64;
            let _ = self.poller.set_writable(&*connection.stream, token, connection.blocked);
        }
    }

    fn sweep(&mut self, now: Instant) {
        for listener in std::mem::take(&mut self.resting) {
            if self.poller.add(&self.listeners[listener], listener as u64).is_err() {
                self.resting.push(listener);
            }
        }
        let over = |place: &Option<Connection>| place.as_ref().is_some_and(|c| c.until <= now);
        let connections = self.connections.iter().enumerate();
        let silent = connections.filter(|(_, place)| over(place)).map(|(index, _)| index);
        let silent: Vec<usize> = silent.take(CLOSES).collect();
        if silent.len() == CLOSES {
            self.sweep_due = now;
        }
        for index in silent {
            self.counts.silent.inc();
            self.close(index);
        }
        let waiting = self.connections.iter().flatten().map(Connection::waiting);
        self.counts.waiting.set(waiting.sum::<usize>() as i64);
    }

    fn close(&mut self, index: usize) {
        let Some(connection) = self.connections[index].take() else { return };
        let _ = self.poller.remove(&*connection.stream);
        let _ = connection.stream.shutdown(std::net::Shutdown::Both);
        // A newer connection of the same address may have the entry.
        if self.by_peer.get(&connection.peer) == Some(&index) {
            self.by_peer.remove(&connection.peer);
        }
        let Connection { peer, proxied, counted, .. } = connection;
        give_back(&mut self.places, proxied, peer.ip(), counted);
        self.free.push(index);
        self.counts.open.add(-1);
    }
}

/// Gives back the place of a connection, and what it counts for its client.
fn give_back(places: &mut Places, proxied: bool, address: IpAddr, counted: Option<IpAddr>) {
    if let Some(client) = counted {
        places.uncount(client);
    }
    if proxied {
        places.give_back_of_proxy();
    } else {
        places.give_back(address);
    }
}

impl Connection {
    /// Bytes that the kernel has not taken yet.
    fn waiting(&self) -> usize {
        self.sound.len() + self.pictures.len() + self.out.len() - self.written
    }

    /// Hands what waits to the kernel, as much as it takes.
    fn write(&mut self) -> io::Result<()> {
        loop {
            if self.written == self.out.len() && !self.fill() {
                return Ok(());
            }
            match (&*self.stream).write(&self.out[self.written..]) {
                Ok(count) => self.written += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.blocked = true;
                    return Ok(());
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Puts together what goes to the kernel next: all sound, then pictures, packet by packet. Says whether there
    /// is any.
    fn fill(&mut self) -> bool {
        self.out.clear();
        self.written = 0;
        take(&mut self.sound, usize::MAX, &mut self.out);
        take(&mut self.pictures, WRITE_BYTES, &mut self.out);
        self.behind &= self.pictures.len() > CAUGHT_UP_BYTES;
        !self.out.is_empty()
    }
}

/// Moves framed packets from the front of `queue` until `out` has `enough` bytes.
fn take(queue: &mut VecDeque<u8>, enough: usize, out: &mut Vec<u8>) {
    let mut len = 0;
    while len < queue.len() && out.len() + len < enough {
        // Only whole packets are queued.
        len += HEADER_LEN + usize::from(u16::from_be_bytes([queue[len], queue[len + 1]]));
    }
    let (front, back) = queue.as_slices();
    let of_front = len.min(front.len());
    out.extend_from_slice(&front[..of_front]);
    out.extend_from_slice(&back[..len - of_front]);
    queue.drain(..len);
}

#[cfg(test)]
mod tests;
