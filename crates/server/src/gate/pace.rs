//! How fast an address may open connections. Each costs something before anything is asked, with TLS most of all.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// An address may open as many connections at once as it may have. It earns as many again in this time.
const EARNED_IN: Duration = Duration::from_secs(10);
/// From so many addresses on those that have earned all again are forgotten.
const FORGET_FROM: usize = 64;

/// When each address may open its next connection.
#[derive(Debug)]
pub(crate) struct Pace {
    /// What one connection takes to earn; none: one address is everybody's.
    each: Option<Duration>,
    known: Mutex<Known>,
}

#[derive(Debug)]
struct Known {
    /// Until when what each address opened is earned.
    earned: HashMap<IpAddr, Instant>,
    forget_at: usize,
}

impl Pace {
    /// For addresses that may have so many connections at once; none: one address is everybody's.
    pub(crate) fn new(most_each: Option<usize>) -> Self {
        let each = most_each.map(|most| EARNED_IN / u32::try_from(most.max(1)).unwrap_or(u32::MAX));
        let known = Known { earned: HashMap::new(), forget_at: FORGET_FROM };
        Self { each, known: Mutex::new(known) }
    }

    /// How long one more connection of this address waits. It counts from now on.
    pub(super) fn wait(&self, network: IpAddr, now: Instant) -> Duration {
        let Some(each) = self.each else { return Duration::ZERO };
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.earned.len() >= known.forget_at {
            known.earned.retain(|_, earned| *earned > now);
            known.forget_at = (2 * known.earned.len()).max(FORGET_FROM);
        }
        let earned = known.earned.entry(network).or_insert(now);
        *earned = (*earned).max(now) + each;
        (*earned - now).saturating_sub(EARNED_IN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(last: u8) -> IpAddr {
        IpAddr::from([127, 0, 0, last])
    }

    #[test]
    fn an_address_opens_as_many_at_once_as_it_may_have_and_then_a_tenth_of_that_a_second() {
        let (pace, now) = (Pace::new(Some(100)), Instant::now());
        let waits: Vec<u128> = (0..103).map(|_| pace.wait(address(1), now).as_millis()).collect();
        assert_eq!(waits[..100], [0; 100]);
        assert_eq!(waits[100..], [100, 200, 300], "ten a second");
        assert_eq!(pace.wait(address(2), now), Duration::ZERO, "another address");
        let later = now + Duration::from_secs(10) + Duration::from_millis(400);
        assert_eq!(pace.wait(address(1), later), Duration::ZERO);
        let much_later = later + 2 * EARNED_IN;
        let at_once = (0..200).filter(|_| pace.wait(address(1), much_later).is_zero()).count();
        assert_eq!(at_once, 100, "no more is saved up");
    }

    #[test]
    fn of_addresses_that_are_gone_nothing_is_kept() {
        let (pace, begin) = (Pace::new(Some(10)), Instant::now());
        for nth in 0..100_000_u32 {
            let address = IpAddr::from((nth | 0x7f00_0000).to_be_bytes());
            pace.wait(address, begin + Duration::from_millis(nth.into()));
        }
        let known = pace.known.lock().unwrap().earned.len();
        // One connection is earned again after a second, in which 1000 addresses come.
        assert!((1000..=3000).contains(&known), "{known}");
    }

    #[test]
    fn where_one_address_is_everybodys_nobody_waits() {
        let (pace, now) = (Pace::new(None), Instant::now());
        assert!((0..10_000).all(|_| pace.wait(address(1), now).is_zero()));
    }
}
