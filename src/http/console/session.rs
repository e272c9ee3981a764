//! Who is logged in to the console.
//!
//! A session's id is 256 random bits and goes to the browser only; here is its hash, in memory, so a restart ends all
//! sessions and nothing that is written down lets anybody in. A session carries the hash of the token that opened it:
//! when the token changes, it is over.

use crate::intent::{Hash, hex};
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use subtle::ConstantTimeEq;

/// Over after so long without a page being asked for. A page that refreshes itself does not count.
const IDLE: Duration = Duration::from_secs(45 * 60);
/// Over after so long in any case.
const LONGEST: Duration = Duration::from_secs(12 * 3600);
/// So many at once; the one that was idle longest makes room for a new one.
const MOST: usize = 64;

/// All sessions.
pub struct Sessions {
    open: Mutex<HashMap<Hash, Session>>,
}

struct Session {
    token: Hash,
    csrf: String,
    begun: Instant,
    seen: Instant,
}

/// A session that was just opened.
pub struct Opened {
    /// For the cookie.
    pub id: String,
}

impl Sessions {
    /// Nobody is logged in.
    pub fn new() -> Sessions {
        Sessions { open: Mutex::default() }
    }

    /// Opens a session for whoever showed the token with this hash. `None`: the system gives no random numbers.
    pub fn open(&self, token: Hash) -> Option<Opened> {
        let (id, csrf) = (random()?, random()?);
        let now = Instant::now();
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|_, session| !session.is_over(now));
        if open.len() >= MOST
            && let Some(oldest) = open.iter().min_by_key(|(_, s)| s.seen).map(|(id, _)| *id)
        {
            open.remove(&oldest);
        }
        open.insert(Sha256::digest(&id).into(), Session { token, csrf, begun: now, seen: now });
        Some(Opened { id })
    }

    /// The session's CSRF token, if the session is open and was opened with the present token. `touch`: somebody is
    /// there, so its idle time begins anew.
    pub fn csrf(&self, id: &str, token: &Hash, touch: bool) -> Option<String> {
        let hash: Hash = Sha256::digest(id).into();
        let now = Instant::now();
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let session = open.get_mut(&hash)?;
        if session.is_over(now) || !bool::from(session.token.ct_eq(token)) {
            open.remove(&hash);
            return None;
        }
        if touch {
            session.seen = now;
        }
        Some(session.csrf.clone())
    }

    /// Ends a session.
    pub fn end(&self, id: &str) {
        let hash: Hash = Sha256::digest(id).into();
        self.open.lock().unwrap_or_else(PoisonError::into_inner).remove(&hash);
    }
}

impl Session {
    fn is_over(&self, now: Instant) -> bool {
        now.duration_since(self.seen) >= IDLE || now.duration_since(self.begun) >= LONGEST
    }
}

/// 256 bits in hexadecimal.
fn random() -> Option<String> {
    let mut bytes = [0u8; 32];
    match getrandom::fill(&mut bytes) {
        Ok(()) => Some(hex(&bytes)),
        Err(e) => {
            log::error!("no random numbers for a session: {e}");
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_ends_by_logout_by_time_and_by_a_changed_token() {
        let sessions = Sessions::new();
        let open = |token| sessions.open(token).unwrap().id;
        let (a, b, c) = (open([1; 32]), open([1; 32]), open([1; 32]));
        assert_eq!(a.len(), 64);
        assert!(sessions.csrf(&a, &[1; 32], true).is_some());
        assert_ne!(sessions.csrf(&a, &[1; 32], true), sessions.csrf(&b, &[1; 32], true));
        assert_eq!(sessions.csrf("", &[1; 32], true), None);
        sessions.end(&a);
        assert_eq!(sessions.csrf(&a, &[1; 32], true), None);
        // Refused once, it is over for good, whatever the token is later.
        assert_eq!(sessions.csrf(&b, &[2; 32], true), None);
        assert_eq!(sessions.csrf(&b, &[1; 32], true), None);
        let mut inside = sessions.open.lock().unwrap();
        let session = inside.values_mut().next().unwrap();
        let now = session.begun;
        assert!(!session.is_over(now + IDLE - Duration::from_secs(1)) && session.is_over(now + IDLE));
        session.seen = now + LONGEST;
        assert!(session.is_over(now + LONGEST));
        drop(inside);
        assert!(sessions.csrf(&c, &[1; 32], true).is_some());
    }

    #[test]
    fn there_are_never_more_sessions_than_may_be() {
        let sessions = Sessions::new();
        let first = sessions.open([0; 32]).unwrap().id;
        for _ in 0..MOST {
            sessions.open([0; 32]).unwrap();
        }
        assert_eq!(sessions.open.lock().unwrap().len(), MOST);
        assert_eq!(sessions.csrf(&first, &[0; 32], true), None);
    }

    #[test]
    fn a_page_that_refreshes_itself_keeps_nobody_logged_in() {
        assert_eq!((IDLE, LONGEST), (Duration::from_secs(2_700), Duration::from_secs(43_200)));
        let sessions = Sessions::new();
        let id = sessions.open([1; 32]).unwrap().id;
        let seen = || sessions.open.lock().unwrap().values().next().unwrap().seen;
        let before = seen();
        while Instant::now() <= before {
            std::thread::yield_now();
        }
        assert!(sessions.csrf(&id, &[1; 32], false).is_some());
        assert_eq!(seen(), before);
        assert!(sessions.csrf(&id, &[1; 32], true).is_some());
        assert!(seen() > before);
    }
}
