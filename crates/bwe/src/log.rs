//! What was sent with each transport-wide sequence number, until feedback says what became of it.

/// Packets that are remembered at first…
const LEAST_PACKETS: usize = 256;
/// …and at most: a quarter of the 16-bit number's space, so that no number is ambiguous. A receiver of 100 Mbit/s gets
/// as many in 1.6 s.
const MOST_PACKETS: usize = 16_384;

/// What IP and UDP add to a datagram, in bytes.
pub const IP_UDP_BYTES: usize = 28;

/// What a packet carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Sound.
    Audio,
    /// Pictures and their retransmissions.
    Video,
    /// Nothing but padding.
    Padding,
}

/// A packet as it was sent.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sent {
    /// When, in µs of the log's clock.
    pub at_us: u64,
    pub bytes: u16,
    pub kind: Kind,
    /// The probe cluster it belongs to.
    pub cluster: Option<u8>,
    /// Bytes that were sent before it and not told of when it left.
    pub in_flight: u32,
    /// Feedback said that it came.
    told: bool,
}

#[cfg(test)]
impl Sent {
    pub(crate) fn of(at_us: u64, bytes: u16, kind: Kind) -> Self {
        Self { at_us, bytes, kind, cluster: None, in_flight: 0, told: false }
    }
}

/// The numbers of one receiver's packets.
#[derive(Debug)]
pub(crate) struct SendLog {
    /// By number, a power of two of them.
    ring: Vec<Option<Sent>>,
    /// The next packet's number.
    next: u64,
    /// The oldest number that feedback has not passed yet.
    untold: u64,
    /// Bytes from `untold` on.
    in_flight: u32,
}

impl SendLog {
    /// With room for the first packets.
    pub fn new() -> Self {
        // As libwebrtc: a number of 0 would be its receivers' first guess for what was lost before.
        Self { ring: vec![None; LEAST_PACKETS], next: 1, untold: 1, in_flight: 0 }
    }

    /// The transport-wide sequence number of the next packet.
    #[inline]
    pub fn next_number(&self) -> u16 {
        self.next as u16
    }

    /// A packet left with the next number.
    #[inline]
    pub fn push(&mut self, at_us: u64, bytes: usize, kind: Kind, cluster: Option<u8>) {
        let mask = self.ring.len() - 1;
        let bytes = u16::try_from(bytes).unwrap_or(u16::MAX);
        if self.next - self.untold > mask as u64 {
            self.pass(self.untold + 1);
        }
        let sent = Sent { at_us, bytes, kind, cluster, in_flight: self.in_flight, told: false };
        self.ring[self.next as usize & mask] = Some(sent);
        self.in_flight += u32::from(bytes);
        self.next += 1;
    }

    /// Makes room for more, if feedback is late beside what is sent. To be called now and then.
    pub fn grow(&mut self) {
        let len = self.ring.len();
        let crowded = (self.next - self.untold) as usize > len / 2;
        if !crowded || len >= MOST_PACKETS {
            return;
        }
        let mut ring = vec![None; 2 * len];
        for number in self.next.saturating_sub(len as u64)..self.next {
            ring[number as usize & (2 * len - 1)] = self.ring[number as usize & (len - 1)];
        }
        self.ring = ring;
    }

    /// Bytes sent that feedback has not told of.
    pub fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// The whole number of a 16-bit one: the last sent with it. None if it was never sent or is forgotten.
    pub(crate) fn number(&self, number: u16) -> Option<u64> {
        let back = u64::from((self.next as u16).wrapping_sub(number));
        let back = if back == 0 { 1 << 16 } else { back };
        let whole = self.next.checked_sub(back)?;
        (whole > 0 && back <= self.ring.len() as u64).then_some(whole)
    }

    /// The numbers that are remembered: the first of them, and how many.
    pub(crate) fn window(&self) -> (u16, usize) {
        let count = (self.next - 1).min(self.ring.len() as u64);
        ((self.next - count) as u16, count as usize)
    }

    /// Feedback tells of a packet: says what was sent, once if it came. A lost one may come yet.
    pub(crate) fn tell(&mut self, number: u64, came: bool) -> Option<Sent> {
        let mask = self.ring.len() - 1;
        let sent = self.ring[number as usize & mask].as_mut().filter(|sent| !sent.told)?;
        sent.told = came;
        let sent = *sent;
        self.pass(number + 1);
        Some(sent)
    }

    /// Feedback is past all numbers below this.
    fn pass(&mut self, number: u64) {
        let mask = self.ring.len() - 1;
        while self.untold < number {
            let sent = self.ring[self.untold as usize & mask];
            self.in_flight -= sent.map_or(0, |sent| u32::from(sent.bytes));
            self.untold += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(packets: u64) -> SendLog {
        let mut log = SendLog::new();
        for n in 0..packets {
            log.push(n * 1000, 100, Kind::Video, None);
        }
        log
    }

    #[test]
    fn a_packet_is_told_once_and_what_is_in_flight_follows() {
        let mut log = log(10);
        assert_eq!((log.next_number(), log.in_flight()), (11, 1000));
        let third = log.number(3).and_then(|number| log.tell(number, true)).expect("it was sent");
        assert_eq!((third.at_us, third.in_flight), (2000, 200));
        assert_eq!(log.in_flight(), 700, "feedback is past the first two");
        assert!(log.tell(3, true).is_none(), "once");
        // A lost one may be told to have come after all.
        assert!(log.tell(2, false).is_some());
        assert!(log.tell(2, true).is_some());
        assert!(log.tell(2, true).is_none());
        assert_eq!(log.in_flight(), 700);
    }

    #[test]
    fn numbers_that_were_never_sent_or_are_forgotten_are_nobodys() {
        let log = log(300);
        for number in [0, 301, 302, 40_000, 44, 65_535] {
            assert_eq!(log.number(number), None, "{number}");
        }
        assert_eq!((log.number(45), log.number(300)), (Some(45), Some(300)));
    }

    #[test]
    fn a_log_grows_while_feedback_is_late_keeps_what_it_had_and_has_an_end() {
        let mut log = log(200);
        log.grow();
        for n in 200..400 {
            log.push(n * 1000, 100, Kind::Video, None);
        }
        assert_eq!(log.in_flight(), 40_000);
        assert_eq!(log.tell(1, true).map(|sent| sent.at_us), Some(0));
        for n in 400..100_000 {
            log.push(n * 1000, 100, Kind::Video, None);
            log.grow();
        }
        assert_eq!(log.ring.len(), MOST_PACKETS);
        assert_eq!(log.in_flight(), MOST_PACKETS as u32 * 100);
        let oldest = 100_001 - MOST_PACKETS as u64;
        assert_eq!(log.number(oldest as u16), Some(oldest));
        assert_eq!(log.number((oldest - 1) as u16), None);
    }

    #[test]
    fn numbers_go_on_beyond_sixteen_bits() {
        let mut log = log(65_700);
        assert_eq!(log.next_number(), 165);
        let number = log.number(164).expect("the last");
        assert_eq!(number, 65_700);
        assert_eq!(log.tell(number, true).map(|sent| sent.at_us), Some(65_699_000));
    }
}
