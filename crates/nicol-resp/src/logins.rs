//! Passwords: paced for each address.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Wrong passwords of an address that are answered at once.
pub const FREE: u32 = 5;
/// Then its passwords are answered one after the other, so far apart: under 7 a second, over
/// however many connections they come.
pub const PACE: Duration = Duration::from_millis(150);
/// A password that would wait longer is not judged.
const WAIT_MAX: Duration = Duration::from_secs(5);
/// Addresses whose failures are remembered; when full, all are forgotten.
const ADDRESSES_MAX: usize = 16_384;

/// What is answered to a password.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Judged {
    /// Whether it is right, and how long the answer waits.
    Answer(bool, Option<Duration>),
    /// Not judged: too many of this address wait already.
    TooMany,
}

/// The wrong passwords of an address since its last right one.
#[derive(Clone, Copy, Debug)]
struct Failures {
    count: u32,
    /// When the last of its answers that wait is given.
    last: Instant,
}

/// The addresses that gave wrong passwords; `None`: sockets in the file system.
#[derive(Debug, Default)]
pub struct Logins(Mutex<BTreeMap<Option<IpAddr>, Failures>>);

impl Logins {
    /// Judges the password that `peer` gives `now`; `is_right` is asked if it is judged.
    pub fn judge(
        &self,
        peer: Option<IpAddr>,
        now: Instant,
        is_right: impl FnOnce() -> bool,
    ) -> Judged {
        let peer = peer.map(network);
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let before = all.get(&peer).copied().unwrap_or(Failures { count: 0, last: now });
        // The right password waits as well, or the wait would tell the wrong ones apart early.
        let at = (before.count >= FREE).then(|| before.last.max(now) + PACE);
        let wait = at.map(|at| at.saturating_duration_since(now));
        if wait.is_some_and(|wait| wait > WAIT_MAX) {
            return Judged::TooMany;
        }
        let right = is_right();
        if right {
            all.remove(&peer);
        } else {
            if all.len() >= ADDRESSES_MAX {
                all.clear();
            }
            let count = before.count.saturating_add(1);
            all.insert(peer, Failures { count, last: at.unwrap_or(now) });
        }
        Judged::Answer(right, wait)
    }
}

/// The address, or the network of 64 bits that one owner of an address of version 6 has.
fn network(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(six) => match six.to_ipv4_mapped() {
            Some(four) => IpAddr::V4(four),
            None => IpAddr::V6(Ipv6Addr::from_bits(six.to_bits() >> 64 << 64)),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_gets_few_answers_a_second_over_many_connections() {
        let (logins, begun) = (Logins::default(), Instant::now());
        let guess =
            |address: &str, now| logins.judge(Some(address.parse().unwrap()), now, || false);
        for _ in 0..FREE {
            assert_eq!(guess("10.0.0.1", begun), Judged::Answer(false, None));
        }
        // Fifty connections, each of which guesses again as soon as it is answered.
        let mut due = vec![begun; 50];
        let (mut answered, mut refused) = (0, 0);
        let end = begun + Duration::from_secs(60);
        while let Some(next) = due.iter_mut().min()
            && *next < end
        {
            match guess("10.0.0.1", *next) {
                Judged::Answer(false, Some(wait)) => {
                    answered += 1;
                    *next += wait;
                }
                Judged::TooMany => {
                    refused += 1;
                    *next += Duration::from_millis(10);
                }
                other => panic!("{other:?}"),
            }
        }
        assert!((300..10 * 60).contains(&answered), "{answered} guesses in a minute");
        assert!(refused > 0, "the wait of fifty connections is longer than an answer may wait");
        // Another address is served at once, and the hosts of one network of version 6 are one.
        assert_eq!(guess("10.0.0.2", end), Judged::Answer(false, None));
        for host in 0..FREE {
            assert_eq!(guess(&format!("2001:db8::{host}"), end), Judged::Answer(false, None));
        }
        assert_eq!(guess("2001:db8::ff", end), Judged::Answer(false, Some(PACE)));
        assert_eq!(guess("::ffff:10.0.0.2", end), Judged::Answer(false, None));
    }

    #[test]
    fn the_right_password_waits_as_long_and_ends_the_pace() {
        let (logins, now) = (Logins::default(), Instant::now());
        let give = |right| logins.judge(None, now, || right);
        for _ in 0..FREE {
            assert_eq!(give(false), Judged::Answer(false, None));
        }
        assert_eq!(give(true), Judged::Answer(true, Some(PACE)));
        assert_eq!(give(true), Judged::Answer(true, None));
    }
}
