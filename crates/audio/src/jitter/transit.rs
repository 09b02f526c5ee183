//! How late the packets of a stream come.

/// Width of a bin of the histogram of lateness.
const BIN_US: i64 = 2_500;
/// As many bins as the longest wanted delay, 9 frames after the first, needs.
const BINS: usize = 72;
/// Weight that the histogram keeps at each packet: half of it is 40 packets old or older.
const MEMORY: f32 = 0.983;
/// Share of packets that come in time.
const IN_TIME: f32 = 0.97;
/// Packets after which the base forgets: the fastest of this many to twice as many counts.
const BASE_PACKETS: u32 = 256;

/// How late packets come, and when a sample could have been played at the soonest.
#[derive(Debug)]
pub(super) struct Transit {
    /// The fastest of the window that is filling, and of the one before it.
    base_us: (i64, i64),
    in_window: u32,
    bins: [f32; BINS],
}

impl Transit {
    pub(super) fn new(first_us: i64) -> Self {
        let mut bins = [0.0; BINS];
        // Nothing is known yet: a frame to be sure, until about eighty packets have come.
        bins[6] = 0.1;
        Self { base_us: (first_us, first_us), in_window: 0, bins }
    }

    /// Nothing came for long: clocks drifted apart, or the way is another. How much packets vary stays known.
    pub(super) fn forget_base(&mut self, transit_us: i64) {
        (self.base_us, self.in_window) = ((transit_us, transit_us), 0);
    }

    pub(super) fn base_us(&self) -> i64 {
        self.base_us.0.min(self.base_us.1)
    }

    pub(super) fn add(&mut self, transit_us: i64) {
        if self.in_window == BASE_PACKETS {
            (self.base_us, self.in_window) = ((transit_us, self.base_us.0), 0);
        }
        self.in_window += 1;
        self.base_us.0 = self.base_us.0.min(transit_us);
        let bin = ((transit_us - self.base_us()) / BIN_US) as usize;
        self.bins.iter_mut().for_each(|weight| *weight *= MEMORY);
        self.bins[bin.min(BINS - 1)] += 1.0 - MEMORY;
    }

    pub(super) fn wanted_us(&self) -> i64 {
        let all: f32 = self.bins.iter().sum();
        let mut sum = 0.0;
        let bin = self.bins.iter().position(|weight| {
            sum += weight;
            sum >= IN_TIME * all
        });
        // A bin to be sure.
        BIN_US * (bin.unwrap_or(BINS - 2) as i64 + 2)
    }
}
