//! What shards and mixers hand over: datagrams, and what goes from one thread of the server to another.

use super::world::Random;
use engine::limits::MAX_DATAGRAM;
use engine::mix::{Bar, MixCommand, MixFrame, MixPeer, MixSink, MixedPacket};
use engine::shard::{RelayContent, RelayControl, RelayPacket};
use engine::{Command, PersonKey, Priority, ShardIndex, Sink, StreamKey};
use rtp::TransportAddress;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::rc::Rc;

/// What one thread of the server hands to another: in order, but not at once.
pub(super) enum Within {
    Command(Command),
    Mix(MixCommand),
    Relayed { stream: StreamKey, index: u64, content: RelayContent, bytes: Vec<u8> },
    Control(RelayControl),
    Peer(MixPeer),
}

impl Within {
    /// Lanes keep their order, each for itself.
    pub(super) fn lane(&self) -> u8 {
        match self {
            Self::Command(_) => 0,
            Self::Mix(_) => 1,
            Self::Relayed { .. } => 2,
            Self::Control(_) => 3,
            Self::Peer(_) => 4,
        }
    }
}

/// What leaves a shard or a mixer at one moment.
#[derive(Default)]
pub(super) struct Outbox {
    behind: BTreeMap<SocketAddr, Priority>,
    /// Slots of UDP that are lent to nobody, by chance.
    pub(super) full: Option<Rc<RefCell<Random>>>,
    /// The media lanes to other shards are full, by chance.
    pub(super) lanes_full: Option<Rc<RefCell<Random>>>,
    buffer: Vec<u8>,
    to: Option<SocketAddr>,
    pub(super) out: Vec<(SocketAddr, Vec<u8>)>,
    pub(super) within: Vec<(ShardIndex, Within)>,
    pub(super) frames: Vec<MixFrame>,
    pub(super) mixed: Vec<MixedPacket>,
    pub(super) bars: Vec<Bar>,
    /// STUN and DTLS for the agent and whose it is, where any may come.
    pub(super) up: Option<Vec<(PersonKey, Vec<u8>)>>,
}

impl Outbox {
    /// `behind`: whose connections have no room for pictures (low), or for nothing at all (high).
    pub(super) fn new(behind: BTreeMap<SocketAddr, Priority>) -> Self {
        Self { buffer: vec![0; MAX_DATAGRAM], behind, ..Self::default() }
    }

    /// One for STUN and DTLS too.
    pub(super) fn with_control() -> Self {
        Self { up: Some(Vec::new()), ..Self::new(BTreeMap::new()) }
    }

    /// What leaves, and what goes up.
    pub(super) fn into_answers(self) -> (Vec<Vec<u8>>, Vec<Vec<u8>>) {
        let up = self.up.unwrap_or_default().into_iter().map(|(_, data)| data).collect();
        (self.out.into_iter().map(|(_, data)| data).collect(), up)
    }
}

impl MixSink for Outbox {
    fn packet(&mut self, packet: MixedPacket) -> bool {
        self.mixed.push(packet);
        true
    }

    fn bar(&mut self, bar: Bar) -> bool {
        self.bars.push(bar);
        true
    }

    fn peer(&mut self, shard: ShardIndex, message: MixPeer) -> bool {
        self.within.push((shard, Within::Peer(message)));
        true
    }
}

impl Sink for Outbox {
    fn has_room(&self, to: TransportAddress, priority: Priority) -> bool {
        match self.behind.get(&to.socket) {
            None => true,
            Some(Priority::Low) => priority == Priority::High,
            Some(Priority::High) => false,
        }
    }

    fn slot(&mut self, destination: TransportAddress, priority: Priority) -> Option<&mut [u8]> {
        let one_of = if priority == Priority::Low { 3 } else { 20 };
        if self.full.as_ref().is_some_and(|full| full.borrow_mut().below(one_of) == 0) {
            return None;
        }
        self.to = Some(destination.socket);
        Some(&mut self.buffer)
    }

    fn commit(&mut self, len: usize) {
        let to = self.to.take().expect("a slot was lent");
        self.out.push((to, self.buffer[..len].to_vec()));
    }

    fn relay_packet(&mut self, to: ShardIndex, packet: &RelayPacket<'_>) -> bool {
        if self.lanes_full.as_ref().is_some_and(|full| full.borrow_mut().below(10) == 0) {
            return false;
        }
        let RelayPacket { stream, index, content, bytes } = *packet;
        self.within.push((to, Within::Relayed { stream, index, content, bytes: bytes.to_vec() }));
        true
    }

    fn relay_control(&mut self, to: ShardIndex, message: RelayControl) {
        self.within.push((to, Within::Control(message)));
    }

    fn mix(&mut self, frame: &MixFrame) -> bool {
        self.frames.push(*frame);
        true
    }

    fn control(&mut self, person: PersonKey, _: TransportAddress, data: &[u8]) {
        self.up.as_mut().expect("bots here send media only").push((person, data.to_vec()));
    }
}

/// A sink whose memory was made before.
pub(super) struct Kept {
    bytes: Vec<u8>,
    /// Where each datagram goes, and where it ends.
    out: Vec<(SocketAddr, usize)>,
    to: Option<SocketAddr>,
    used: usize,
}

impl Kept {
    pub(super) fn new() -> Self {
        Self { bytes: vec![0; 2 << 20], out: Vec::with_capacity(2 << 10), to: None, used: 0 }
    }

    pub(super) fn datagrams(&self) -> Vec<(SocketAddr, Vec<u8>)> {
        let mut begin = 0;
        let cut = |(to, end): &(SocketAddr, usize)| {
            let datagram = self.bytes[begin..*end].to_vec();
            begin = *end;
            (*to, datagram)
        };
        self.out.iter().map(cut).collect()
    }
}

impl Sink for Kept {
    fn has_room(&self, _: TransportAddress, _: Priority) -> bool {
        true
    }

    fn slot(&mut self, destination: TransportAddress, _: Priority) -> Option<&mut [u8]> {
        self.to = Some(destination.socket);
        Some(&mut self.bytes[self.used..][..MAX_DATAGRAM])
    }

    fn commit(&mut self, len: usize) {
        self.used += len;
        self.out.push((self.to.take().expect("a slot was lent"), self.used));
    }

    fn relay_packet(&mut self, _: ShardIndex, _: &RelayPacket<'_>) -> bool {
        panic!("one shard has no others");
    }

    fn relay_control(&mut self, _: ShardIndex, _: RelayControl) {
        panic!("one shard has no others");
    }

    fn mix(&mut self, _: &MixFrame) -> bool {
        panic!("nothing is mixed");
    }

    fn control(&mut self, _: PersonKey, _: TransportAddress, _: &[u8]) {
        panic!("bots here send media only");
    }
}
