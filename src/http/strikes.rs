//! Wrong tokens slow down those who send them, and nobody else.
//!
//! The right token is never made to wait, for on loopback every program has the same address, and behind a proxy many
//! people may. What protects the token is its length; being slow to the wrong ones spares the log and tells an operator
//! that somebody tries. The same wrong one over and over (an app with an old token) waits no longer than the first time.

use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// So many different wrong tokens cost nothing yet.
const FREE: u32 = 5;
/// The longest wait after one more.
const LONGEST: Duration = Duration::from_secs(8);
/// Forgotten after so long without a wrong token.
const MEMORY: Duration = Duration::from_secs(600);
/// So many are remembered; then the one that was quiet longest makes room.
const MOST: usize = 4096;

/// Who sent wrong tokens lately.
pub struct Strikes {
    by: Mutex<HashMap<IpAddr, Strike>>,
    secret: RandomState,
}

struct Strike {
    count: u32,
    /// A keyed hash of the last wrong token.
    last: u64,
    at: Instant,
    until: Instant,
}

/// What becomes of a wrong token.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wrong {
    /// The last one again.
    Again,
    /// One more; so many different ones so far.
    Another(u32),
    /// It came before the wait was over, which goes on for so long.
    TooSoon(Duration),
}

impl Strikes {
    /// Nobody has been wrong yet.
    pub fn new() -> Strikes {
        Strikes { by: Mutex::default(), secret: RandomState::new() }
    }

    /// A wrong token came from this address.
    pub fn wrong(&self, address: IpAddr, given: &str) -> Wrong {
        let (hash, now) = (self.secret.hash_one(given), Instant::now());
        let mut by = self.by.lock().unwrap_or_else(PoisonError::into_inner);
        let who = prefix(address);
        by.retain(|_, strike| now.duration_since(strike.at) < MEMORY);
        if by.len() >= MOST
            && !by.contains_key(&who)
            && let Some(quiet) = by.iter().min_by_key(|(_, strike)| strike.at).map(|(who, _)| *who)
        {
            by.remove(&quiet);
        }
        let strike = by.entry(who).or_insert(Strike { count: 0, last: 0, at: now, until: now });
        let wait = strike.until.saturating_duration_since(now);
        if !wait.is_zero() {
            return Wrong::TooSoon(wait);
        }
        let again = strike.count > 0 && strike.last == hash;
        (strike.last, strike.at) = (hash, now);
        if again {
            return Wrong::Again;
        }
        strike.count = strike.count.saturating_add(1);
        if strike.count > FREE {
            let doubled = Duration::from_millis(250) * 2u32.saturating_pow((strike.count - FREE - 1).min(10));
            strike.until = now + doubled.min(LONGEST);
        }
        Wrong::Another(strike.count)
    }
}

/// Whom an address stands for: an IPv6 network of 64 bits is one customer's, and has more addresses than could be
/// remembered.
fn prefix(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => IpAddr::V4(address),
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << 64))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn different_wrong_tokens_wait_and_the_same_one_again_does_not() {
        let strikes = Strikes::new();
        let from = address("192.0.2.1");
        for n in 1..=FREE + 1 {
            assert_eq!(strikes.wrong(from, &n.to_string()), Wrong::Another(n));
        }
        let Wrong::TooSoon(wait) = strikes.wrong(from, "7") else { panic!("no wait") };
        assert!(wait <= Duration::from_millis(250));
        let old = address("192.0.2.2");
        assert_eq!(strikes.wrong(old, "old"), Wrong::Another(1));
        for _ in 0..50 {
            assert_eq!(strikes.wrong(old, "old"), Wrong::Again);
        }
        // An address written in two ways is one.
        assert!(matches!(strikes.wrong(address("::ffff:192.0.2.1"), "8"), Wrong::TooSoon(_)));
    }

    #[test]
    fn a_network_of_64_bits_is_one_and_memory_is_bounded() {
        let strikes = Strikes::new();
        for n in 0..u64::from(FREE) + 1 {
            strikes.wrong(address(&format!("2001:db8:1:2:{n}::1")), &n.to_string());
        }
        assert!(matches!(strikes.wrong(address("2001:db8:1:2:ffff::9"), "x"), Wrong::TooSoon(_)));
        assert_eq!(strikes.wrong(address("2001:db8:1:3::1"), "x"), Wrong::Another(1));
        for n in 0..2 * MOST as u128 {
            strikes.wrong(IpAddr::V6(Ipv6Addr::from_bits(n << 64 | 1 << 120)), "x");
        }
        assert_eq!(strikes.by.lock().unwrap().len(), MOST);
        // Who came last is still known.
        let last = Ipv6Addr::from_bits((2 * MOST as u128 - 1) << 64 | 1 << 120);
        assert_eq!(strikes.wrong(IpAddr::V6(last), "x"), Wrong::Again);
    }
}
