//! Whether a stream, or a path, loses many packets: then it is worth while to send or to ask for things twice.

/// So many packets make a share of losses.
const PACKETS: u32 = 120;
/// From this share on, in 1/1000, losses are many…
const MANY: u32 = 20;
/// …until they are less than this.
const STILL_MANY: u32 = 10;

/// Counts losses: many from 2 % on, until they are less than 1 %.
#[derive(Debug, Clone, Copy, Default)]
pub struct Losses {
    packets: u32,
    /// In 1/256 packets.
    lost: u32,
    many: bool,
}

impl Losses {
    /// Whether there are many losses.
    pub fn are_many(&self) -> bool {
        self.many
    }

    /// A report tells of so many packets that `fraction`/256 of them were lost. Returns whether there are many losses, if
    /// enough was told to say so.
    pub fn report(&mut self, packets: u32, fraction: u8) -> Option<bool> {
        let packets = packets.min(10 * PACKETS);
        self.lost += packets * u32::from(fraction);
        self.sent(packets)
    }

    /// A packet was lost, of those that are counted as sent.
    pub fn lost(&mut self) {
        self.lost = self.lost.saturating_add(256);
    }

    /// So many packets more were sent. Returns the same as [`Losses::report`].
    pub fn sent(&mut self, packets: u32) -> Option<bool> {
        self.packets += packets.min(10 * PACKETS);
        if self.packets < PACKETS {
            return None;
        }
        let permille = (u64::from(self.lost) * 1000 / 256) / u64::from(self.packets);
        self.many = permille >= u64::from(if self.many { STILL_MANY } else { MANY });
        (self.packets, self.lost) = (0, 0);
        Some(self.many)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redundancy_is_asked_for_from_two_percent_and_until_one() {
        let mut losses = Losses::default();
        assert_eq!(losses.report(100, 255), None, "too few to tell");
        assert_eq!(losses.report(50, 0), Some(true));
        // 1.56 %: not enough to begin, enough to go on.
        assert_eq!(losses.report(1000, 4), Some(true));
        assert_eq!(losses.report(1000, 2), Some(false));
        assert_eq!(losses.report(1000, 4), Some(false));
        assert_eq!(losses.report(1000, 6), Some(true));
        assert_eq!(losses.report(u32::MAX, 255), Some(true), "what is told is bounded");
    }

    #[test]
    fn losses_are_counted_one_by_one_as_well() {
        let mut losses = Losses::default();
        for n in 0..1200 {
            losses.sent(1);
            if n % 40 == 0 {
                losses.lost();
            }
        }
        assert!(losses.are_many(), "one of 40");
        assert_eq!(losses.sent(u32::MAX), Some(false));
    }
}
