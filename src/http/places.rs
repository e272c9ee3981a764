//! Who has a place at the server, and who gives his up when all are taken.
//!
//! A connection begins as a stranger's, and a stranger's place can be taken away at any moment, in the midst of a head, a
//! body or an answer: the oldest gives way to whoever comes. Requests that have shown a valid token or session, and
//! `/healthz`, are counted apart, so however many strangers there are, and however slowly they speak, whoever may ask is
//! answered. All places together leave the worker the descriptors that it needs: its own calls come first.

use crate::descriptors;
use std::collections::BTreeMap;
use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A stranger keeps its place at least so long, or a crowd that comes all at once would leave nobody time to speak.
const GRACE: Duration = Duration::from_millis(20);
/// How long a new connection waits for a stranger to go. One that goes takes microseconds.
const PATIENCE: Duration = Duration::from_secs(2);

/// How many connections of each sort there may be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shares {
    strangers: usize,
    health: usize,
    known: usize,
}

impl Shares {
    const FULL: Shares = Shares { strangers: 192, health: 16, known: 304 };

    /// All places.
    pub fn all(&self) -> usize {
        self.strangers + self.health + self.known
    }

    /// The places of this process beside so many threads that make calls. The soft limit of descriptors is raised to
    /// what is needed, as far as the hard one lets it be; what it is then is shared.
    pub fn beside(threads: usize) -> Shares {
        let calls = descriptors::of_worker(threads);
        let shares = Shares::of(descriptors::raise(calls + Shares::FULL.all()).saturating_sub(calls));
        if shares != Shares::FULL {
            log::warn!(
                "this process may have so few descriptors that the API takes {} connections at once and not {}: raise \
                 the limit (ulimit -n, LimitNOFILE=)",
                shares.all(),
                Shares::FULL.all()
            );
        }
        shares
    }

    fn of(places: usize) -> Shares {
        if places >= Shares::FULL.all() {
            return Shares::FULL;
        }
        // Below this nobody could be served at all.
        let places = places.max(24);
        let (strangers, health) = (places * 3 / 8, (places / 32).max(4));
        Shares { strangers, health, known: places - strangers - health }
    }
}

/// What a connection has shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Standing {
    Stranger,
    Health,
    Known,
}

/// All places.
pub struct Places {
    shares: Shares,
    taken: Mutex<Taken>,
    one_less: Condvar,
}

#[derive(Default)]
struct Taken {
    last: u64,
    closing: bool,
    /// By the order of their coming.
    held: BTreeMap<u64, Held>,
}

struct Held {
    stream: Arc<TcpStream>,
    standing: Standing,
    /// Nothing is being done for it: it has been answered, and its next request has shown nothing yet.
    rests: bool,
    given_up: bool,
    since: Instant,
}

impl Taken {
    fn count(&self, standing: Standing) -> usize {
        self.held.values().filter(|held| held.standing == standing).count()
    }

    /// The oldest of this standing that may be given up.
    fn oldest(&mut self, standing: Standing) -> Option<&mut Held> {
        let mut held = self.held.values_mut();
        held.find(|held| held.standing == standing && held.may_go())
    }
}

impl Held {
    fn may_go(&self) -> bool {
        !self.given_up && (self.standing == Standing::Stranger || self.rests)
    }

    /// Its thread finds the connection ended, and goes.
    fn give_up(&mut self) {
        self.given_up = true;
        let _ = self.stream.shutdown(Shutdown::Both);
    }
}

impl Places {
    /// None is taken.
    pub fn new(shares: Shares) -> Arc<Places> {
        Arc::new(Places { shares, taken: Mutex::default(), one_less: Condvar::new() })
    }

    fn lock(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place for a new connection, a stranger's, when the oldest stranger has left it. `None`: none of them goes.
    pub fn admit(self: &Arc<Places>, stream: &Arc<TcpStream>) -> Option<Place> {
        let deadline = Instant::now() + PATIENCE;
        let mut taken = self.lock();
        while taken.count(Standing::Stranger) >= self.shares.strangers {
            if Instant::now() >= deadline {
                return None;
            }
            let wait = match taken.oldest(Standing::Stranger) {
                Some(oldest) if oldest.since.elapsed() < GRACE => {
                    GRACE.saturating_sub(oldest.since.elapsed())
                }
                Some(oldest) => {
                    oldest.give_up();
                    GRACE
                }
                None => GRACE,
            };
            taken = self.one_less.wait_timeout(taken, wait).unwrap_or_else(PoisonError::into_inner).0;
        }
        taken.last += 1;
        let number = taken.last;
        let (stream, standing) = (Arc::clone(stream), Standing::Stranger);
        let held = Held { stream, standing, rests: false, given_up: false, since: Instant::now() };
        taken.held.insert(number, held);
        Some(Place { places: Arc::clone(self), number })
    }

    /// Ends what nothing is being done for, and waits for the rest. Gives how many were left at the end of the grace.
    pub fn close(&self, grace: Duration) -> usize {
        let deadline = Instant::now() + grace;
        let mut taken = self.lock();
        taken.closing = true;
        for held in taken.held.values_mut().filter(|held| held.may_go()) {
            held.give_up();
        }
        while !taken.held.is_empty() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            taken = self.one_less.wait_timeout(taken, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        taken.held.len()
    }
}

/// A connection's place, given back when it ends, however it ends.
pub struct Place {
    places: Arc<Places>,
    number: u64,
}

impl Place {
    /// It has shown a valid token or session: nobody takes its place until it rests. `false`: all such places are taken
    /// by others that are at work, or this one was given up a moment ago.
    pub fn is_known(&self) -> bool {
        let most = self.places.shares.known;
        let mut taken = self.places.lock();
        let full = taken.count(Standing::Known) >= most;
        let Some(own) = taken.held.get(&self.number).filter(|own| !own.given_up) else { return false };
        if full && own.standing != Standing::Known {
            let Some(oldest) = taken.oldest(Standing::Known) else { return false };
            oldest.give_up();
        }
        self.stand(&mut taken, Standing::Known);
        true
    }

    /// It asks whether all is well, which takes a moment. When all such places are taken it stays a stranger.
    pub fn asks_for_health(&self) {
        let mut taken = self.places.lock();
        if taken.count(Standing::Health) < self.places.shares.health {
            self.stand(&mut taken, Standing::Health);
        }
    }

    fn stand(&self, taken: &mut Taken, standing: Standing) {
        if let Some(own) = taken.held.get_mut(&self.number) {
            (own.standing, own.rests) = (standing, false);
        }
    }

    /// The request has shown a token or session, so the connection may be kept for another.
    pub fn may_stay(&self) -> bool {
        let taken = self.places.lock();
        let own = taken.held.get(&self.number);
        own.is_some_and(|own| own.standing == Standing::Known && !own.rests && !own.given_up)
            && !taken.closing
    }

    /// It has been answered: others may have its place. `false`: somebody has it already.
    pub fn rests(&self) -> bool {
        let mut taken = self.places.lock();
        let closing = taken.closing;
        let Some(own) = taken.held.get_mut(&self.number) else { return false };
        own.rests = true;
        !own.given_up && !closing
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.places.lock().held.remove(&self.number);
        self.places.one_less.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::net::TcpListener;

    /// A connection's two ends, the server's first.
    fn pair() -> (Arc<TcpStream>, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (Arc::new(listener.accept().unwrap().0), client)
    }

    fn is_ended(client: &mut TcpStream) -> bool {
        client.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        matches!(client.read(&mut [0]), Ok(0))
    }

    #[test]
    fn the_places_never_ask_for_more_descriptors_than_there_are() {
        assert_eq!(Shares::of(usize::MAX), Shares::FULL);
        for places in 24..600 {
            let shares = Shares::of(places);
            assert!(shares.all() <= places, "{places}: {shares:?}");
            assert!(shares.strangers >= 8 && shares.health >= 4 && shares.known >= 8, "{places}: {shares:?}");
        }
        // 256 descriptors, as some systems give: a worker of 16 threads, and the rest.
        assert_eq!(Shares::of(256 - descriptors::of_worker(16)).all(), 144);
        assert_eq!(Shares::of(0).all(), 24);
    }

    #[test]
    fn strangers_give_way_to_whoever_comes_and_nobody_who_is_known_does() {
        let places = Places::new(Shares { strangers: 2, health: 1, known: 2 });
        let (a, mut a_end) = pair();
        let (b, mut b_end) = pair();
        let (c, mut c_end) = pair();
        let known = places.admit(&a).unwrap();
        assert!(known.is_known());
        let health = places.admit(&b).unwrap();
        health.asks_for_health();
        let stranger = places.admit(&c).unwrap();
        // Of the next two, one finds a place and one takes the oldest stranger's, which goes.
        let (d, _d_end) = pair();
        let _second = places.admit(&d).unwrap();
        let leaves = std::thread::spawn(move || {
            assert!(is_ended(&mut c_end));
            drop(stranger);
        });
        let (e, _e_end) = pair();
        let third = places.admit(&e).unwrap();
        leaves.join().unwrap();
        assert!(!is_ended(&mut a_end) && !is_ended(&mut b_end));
        // The known ones' places are theirs: full is full, until one of them rests.
        assert!(third.is_known());
        let fourth = places.admit(&c).unwrap();
        assert!(!fourth.is_known());
        known.rests();
        assert!(fourth.is_known());
        assert!(is_ended(&mut a_end));
        // One who was given up does nothing more, even if it then shows its token.
        assert!(!known.is_known());
    }

    #[test]
    fn a_stranger_that_does_not_go_keeps_nobody_waiting_for_ever() {
        let places = Places::new(Shares { strangers: 1, health: 1, known: 1 });
        let (a, _a_end) = pair();
        let _stuck = places.admit(&a).unwrap();
        assert!(places.admit(&a).is_none());
        assert_eq!(places.close(Duration::from_millis(10)), 1);
    }
}
