//! Whether a stream, or a path, loses many packets: then it is worth while to send or to ask for things twice.

/// So many packets make a share of losses.
const PACKETS: u32 = 120;
/// From this share on, in 1/1000, losses are many…
const MANY: u32 = 20;
/// …until they are less than this.
const STILL_MANY: u32 = 10;
/// From this share on, in 1/1000, one copy is not enough…
const VERY_MANY: u32 = 60;
/// …until it is less than this.
const STILL_VERY_MANY: u32 = 40;

/// Counts losses: many from 2 % on, until they are less than 1 %; very many from 6 % on, until they are less than 4 %.
#[derive(Debug, Clone, Copy, Default)]
pub struct Losses {
    packets: u32,
    /// In 1/256 packets.
    lost: u32,
    copies: usize,
}

impl Losses {
    /// Whether there are many losses.
    pub fn are_many(&self) -> bool {
        self.copies > 0
    }

    /// How many copies sound is worth: one if there are many losses, two if there are very many.
    pub fn copies(&self) -> usize {
        self.copies
    }

    /// A report tells of so many packets that `fraction`/256 of them were lost. If enough was told to say so, returns how many
    /// copies sound is worth, see [`Losses::copies`].
    pub fn report(&mut self, packets: u32, fraction: u8) -> Option<usize> {
        let packets = packets.min(10 * PACKETS);
        self.lost += packets * u32::from(fraction);
        self.sent(packets)
    }

    /// A packet was lost, of those that are counted as sent.
    pub fn lost(&mut self) {
        self.lost = self.lost.saturating_add(256);
    }

    /// So many packets more were sent. Returns the same as [`Losses::report`].
    pub fn sent(&mut self, packets: u32) -> Option<usize> {
        self.packets += packets.min(10 * PACKETS);
        if self.packets < PACKETS {
            return None;
        }
        let permille = (u64::from(self.lost) * 1000 / 256) / u64::from(self.packets);
        let reaches = |share, still, copies| {
            permille >= u64::from(if self.copies >= copies { still } else { share })
        };
        let one = reaches(MANY, STILL_MANY, 1);
        let two = reaches(VERY_MANY, STILL_VERY_MANY, 2);
        self.copies = usize::from(one) + usize::from(two);
        (self.packets, self.lost) = (0, 0);
        Some(self.copies)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_copy_from_two_percent_until_one_and_two_from_six_until_four() {
        let mut losses = Losses::default();
        assert_eq!(losses.report(100, 255), None, "too few to tell");
        assert_eq!(losses.report(50, 0), Some(2), "two thirds");
        for (of_256, copies) in
            [(11, 2), (10, 1), (4, 1), (2, 0), (4, 0), (6, 1), (15, 1), (16, 2), (2, 0)]
        {
            assert_eq!(losses.report(1000, of_256), Some(copies), "{of_256}/256");
        }
        assert_eq!(losses.report(u32::MAX, 255), Some(2), "what is told is bounded");
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
        assert_eq!(losses.sent(u32::MAX), Some(0));
    }
}
