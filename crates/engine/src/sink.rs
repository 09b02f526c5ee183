//! Where a shard's datagrams and messages leave.

use crate::command::{PersonKey, ShardIndex};
use crate::mix::MixFrame;
use crate::relay::{RelayControl, RelayPacket};
use rtp::TransportAddress;

/// What goes first where a connection is behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Priority {
    /// Sound, and what both sides must know.
    High,
    /// Pictures.
    Low,
}

/// Where datagrams leave. The packet is built and sealed in the slot that the sink lends: nothing
/// is copied after the seal.
pub trait Sink {
    /// Whether there is room for a packet of this priority to `destination`: in its connection by TCP, in the send
    /// buffer by UDP. Where room is short, pictures have none first.
    fn has_room(&self, destination: TransportAddress, priority: Priority) -> bool;

    /// Lends a slot of at least [`crate::limits::MAX_DATAGRAM`] bytes for a datagram to
    /// `destination`; none where the send buffer is full. A slot not committed is lent again.
    fn slot(&mut self, destination: TransportAddress, priority: Priority) -> Option<&mut [u8]>;

    /// The first `len` bytes of the slot lent last are the datagram.
    fn commit(&mut self, len: usize);

    /// A packet for another shard; says whether there was room on the lane.
    fn relay_packet(&mut self, to: ShardIndex, packet: &RelayPacket<'_>) -> bool;

    /// A message for another shard; it is never dropped.
    fn relay_control(&mut self, to: ShardIndex, message: RelayControl);

    /// A packet of sound for the mixer of this shard; says whether there was room.
    fn mix(&mut self, frame: &MixFrame) -> bool;

    /// A STUN or DTLS datagram of a participant: for the control thread.
    fn control(&mut self, person: PersonKey, source: TransportAddress, data: &[u8]);
}
