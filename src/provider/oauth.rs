//! OAuth2 client credentials (RFC 6749, 4.4): tokens are fetched when a call needs one, shared by the threads of a
//! provider, renewed before they end, and kept in memory only.
//!
//! A fetch asks for no effect, so whatever becomes of it nothing has left for the provider. One thread fetches; the
//! others use the token that still holds, or wait and share what came of it, the failure too: a token server that is
//! down is not asked once a thread.

use super::auth::{self, Client, Credential};
use super::connect::Route;
use super::http::{Answer, Http, Wire};
use super::redact;
use crate::clock::Clock;
use crate::config::{OAuth2, Provider};
use crate::json::Json;
use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Instant;

/// How long a token holds whose server does not say.
const UNSAID_S: i64 = 300;
/// The longest that is believed, so that a wrong number cannot keep a token for ever.
const LONGEST_S: i64 = 86_400;
/// How long before its end a token is renewed, or a tenth of its time if that is less.
const MARGIN_MS: i64 = 60_000;

/// The tokens of all providers.
#[derive(Default)]
pub struct Tokens {
    by_provider: Mutex<BTreeMap<String, Arc<Shelf>>>,
}

/// The token of one provider.
#[derive(Default)]
struct Shelf {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    token: Option<Token>,
    /// A thread is fetching.
    fetching: bool,
    /// How many fetches have ended, and how the last one failed.
    ended: u64,
    failed: Option<String>,
}

#[derive(Clone)]
struct Token {
    text: String,
    /// Who it was given to: another client, or another secret, needs another one.
    basic: String,
    /// By the boot clock, which counts a machine's sleep.
    renew_ms: i64,
    end_ms: i64,
}

impl Tokens {
    /// The provider's credential with a token that holds now. The error has no secret in it.
    pub fn credential(
        &self,
        http: &Http,
        clock: &dyn Clock,
        provider: &Provider,
        oauth2: &OAuth2,
    ) -> Result<Credential, String> {
        let client = auth::client(oauth2)?;
        let token = self.shelf(&provider.name).token(clock, provider, &client, || {
            fetch(http, provider, oauth2, &client).map_err(|why| {
                let secrets = [client.secret.clone(), client.basic.clone()];
                // No colon after the address: what follows a name that ends in "token" is masked.
                redact::words(&format!("the token server {} gave none: {why}", oauth2.token_url), &secrets)
            })
        })?;
        let mut credential = auth::bearer(token, client.fingerprint)?;
        credential.secrets.extend([client.secret, client.basic]);
        Ok(credential)
    }

    /// The provider refused this token: the next call fetches another one.
    pub fn refused(&self, provider: &str, credential: &Credential) {
        let shelf = self.shelf(provider);
        let mut state = shelf.state.lock().unwrap_or_else(PoisonError::into_inner);
        // Another thread may have a newer one by now.
        if state.token.as_ref().is_some_and(|token| credential.secrets.contains(&token.text)) {
            state.token = None;
        }
    }

    fn shelf(&self, provider: &str) -> Arc<Shelf> {
        let mut all = self.by_provider.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(all.entry(provider.to_string()).or_default())
    }
}

impl Shelf {
    fn token(
        &self,
        clock: &dyn Clock,
        provider: &Provider,
        client: &Client,
        fetch: impl FnOnce() -> Result<Fetched, String>,
    ) -> Result<String, String> {
        let deadline = Instant::now() + provider.total_timeout;
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let seen = state.ended;
        loop {
            let now = clock.boot_ms();
            // While somebody renews it, and when that has failed, the old one does until its end.
            let renewing = state.fetching || state.ended != seen;
            let ours = state.token.as_ref().filter(|token| token.basic == client.basic);
            if let Some(token) = ours.filter(|t| now < t.renew_ms || (renewing && now < t.end_ms)) {
                return Ok(token.text.clone());
            }
            if !state.fetching {
                // A fetch for which this thread waited has failed: its failure is this thread's as well.
                match state.failed.clone().filter(|_| state.ended != seen) {
                    Some(why) => return Err(why),
                    None => break,
                }
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err("another thread is still fetching the token".into());
            }
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        state.fetching = true;
        drop(state);

        let asked = clock.boot_ms();
        let fetching = Fetching(self);
        let fetched = fetch();
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let result = match fetched {
            Ok(Fetched { text, lasts_s }) => {
                let lasts = lasts_s.clamp(0, LONGEST_S) * 1000;
                let token = Token {
                    text: text.clone(),
                    basic: client.basic.clone(),
                    renew_ms: asked + lasts - MARGIN_MS.min(lasts / 10),
                    end_ms: asked + lasts,
                };
                state.token = Some(token);
                state.failed = None;
                Ok(text)
            }
            Err(why) => {
                let now = clock.boot_ms();
                let still = state.token.as_ref().filter(|t| t.basic == client.basic && now < t.end_ms);
                // The old one holds for a while yet; it is renewed at the next call.
                let old = still.map(|token| token.text.clone());
                state.failed = Some(why.clone());
                old.ok_or(why)
            }
        };
        drop(state);
        drop(fetching);
        result
    }
}

/// Ends the fetch whatever happens in it, so that nobody waits for ever.
struct Fetching<'a>(&'a Shelf);

impl Drop for Fetching<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.fetching = false;
        state.ended += 1;
        drop(state);
        self.0.changed.notify_all();
    }
}

/// What a token server gave.
struct Fetched {
    text: String,
    lasts_s: i64,
}

/// Asks for a token.
fn fetch(http: &Http, provider: &Provider, oauth2: &OAuth2, client: &Client) -> Result<Fetched, String> {
    let mut body = "grant_type=client_credentials".to_string();
    if let Some(scope) = &oauth2.scope {
        body = format!("{body}&scope={}", auth::form(scope));
    }
    let header = |name: &str, value: &str, secret| (name.to_string(), value.to_string(), secret);
    let wire = Wire {
        method: "POST",
        url: oauth2.token_url.clone(),
        headers: vec![
            header("Content-Type", "application/x-www-form-urlencoded", false),
            header("Accept", "application/json", false),
            header("Authorization", &format!("Basic {}", client.basic), true),
        ],
        body: Some(body.as_bytes()),
        connect_timeout: provider.connect_timeout,
        total_timeout: provider.total_timeout,
        caller: None,
        route: Route { tls: &provider.tls, proxy: provider.proxy.as_ref() },
    };
    read(&http.exchange(&wire, &|| Ok(())).map_err(|broken| broken.error)?)
}

/// Reads a token server's answer. Nothing of it is repeated but its error's code: the rest may hold a token.
fn read(answer: &Answer) -> Result<Fetched, String> {
    let doc = std::str::from_utf8(&answer.body).ok().and_then(|text| Json::parse(text).ok());
    let text = |at: &str| match doc.as_ref().and_then(|doc| doc.pointer(at)) {
        Some(Json::String(text)) => Some(text.as_str()),
        _ => None,
    };
    if answer.status != 200 {
        let code = text("/error")
            .filter(|c| c.len() <= 64 && c.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'));
        return Err(match code {
            Some(code) => format!("it answered {} ({code})", answer.status),
            None => format!("it answered {}", answer.status),
        });
    }
    if text("/token_type").is_some_and(|kind| !kind.eq_ignore_ascii_case("bearer")) {
        return Err("its token is not a bearer token".into());
    }
    let token = text("/access_token").filter(|t| !t.is_empty()).ok_or("its answer has no access_token")?;
    if !token.bytes().all(|b| b.is_ascii_graphic()) {
        return Err("its token has a character in it that a header cannot carry".into());
    }
    // Some send the number as text. A number that cannot be read is no number of seconds.
    let lasts = match doc.as_ref().and_then(|doc| doc.pointer("/expires_in")) {
        Some(Json::Number(n) | Json::String(n)) => n.split('.').next().and_then(|n| n.parse().ok()),
        _ => None,
    };
    Ok(Fetched { text: token.to_string(), lasts_s: lasts.unwrap_or(UNSAID_S) })
}

#[cfg(test)]
mod tests {
    use super::super::tests::Scene;
    use super::*;
    use crate::clock::{ManualClock, Ms};
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    fn client(secret: &str) -> Client {
        Client { secret: secret.into(), basic: secret.into(), fingerprint: String::new() }
    }

    fn gives(n: usize, lasts_s: i64) -> Result<Fetched, String> {
        Ok(Fetched { text: format!("tok-{n}"), lasts_s })
    }

    /// Eight threads at once: one fetches, and all get what came of it, be it a token or a failure.
    #[test]
    fn one_thread_fetches_and_the_others_share_what_comes_of_it() {
        for fails in [false, true] {
            let (shelf, clock) = (Shelf::default(), ManualClock::at(Ms(0)));
            let provider = Scene::new("http://127.0.0.1:1").provider;
            let (fetches, start) = (AtomicUsize::new(0), Barrier::new(8));
            std::thread::scope(|scope| {
                for _ in 0..8 {
                    scope.spawn(|| {
                        start.wait();
                        let result = shelf.token(&clock, &provider, &client("a"), || {
                            let n = fetches.fetch_add(1, Ordering::SeqCst) + 1;
                            // Long enough for the others to come and wait.
                            std::thread::sleep(Duration::from_millis(300));
                            if fails { Err("down".into()) } else { gives(n, 3600) }
                        });
                        let expected = if fails { Err("down".to_string()) } else { Ok("tok-1".to_string()) };
                        assert_eq!(result, expected);
                    });
                }
            });
            assert_eq!(fetches.load(Ordering::SeqCst), 1);
        }
    }

    #[test]
    fn a_token_is_renewed_a_margin_before_its_end_and_the_old_one_does_until_then() {
        let (shelf, clock) = (Shelf::default(), ManualClock::at(Ms(0)));
        let provider = Scene::new("http://127.0.0.1:1").provider;
        let token =
            |fetched: Result<Fetched, String>| shelf.token(&clock, &provider, &client("a"), || fetched);
        let unasked = || Err("nobody was to be asked".to_string());
        assert_eq!(token(gives(1, 3600)).unwrap(), "tok-1");
        clock.advance(Duration::from_secs(3539));
        assert_eq!(token(unasked()).unwrap(), "tok-1");
        clock.advance(Duration::from_secs(2));
        assert_eq!(token(Err("down".into())).unwrap(), "tok-1", "it holds for a minute yet");
        assert_eq!(token(gives(2, 10)).unwrap(), "tok-2");
        clock.advance(Duration::from_millis(8999));
        assert_eq!(token(unasked()).unwrap(), "tok-2");
        clock.advance(Duration::from_millis(1));
        assert_eq!(token(gives(3, 0)).unwrap(), "tok-3");
        assert_eq!(token(Err("down".into())).unwrap_err(), "down", "it had ended at once");
        // An absurd time is not believed, and a negative one is none.
        assert_eq!(token(gives(4, i64::MAX)).unwrap(), "tok-4");
        clock.advance(Duration::from_secs(86_400));
        assert_eq!(token(gives(5, -5)).unwrap(), "tok-5");
        assert_eq!(token(gives(6, 60)).unwrap(), "tok-6");
    }

    #[test]
    fn another_secret_gets_another_token_and_a_refused_one_is_not_shown_again() {
        let (tokens, clock) = (Tokens::default(), ManualClock::at(Ms(0)));
        let provider = Scene::new("http://127.0.0.1:1").provider;
        let shelf = tokens.shelf("bank");
        let token =
            |secret: &str, n| shelf.token(&clock, &provider, &client(secret), || gives(n, 3600)).unwrap();
        assert_eq!(token("a", 1), "tok-1");
        assert_eq!(token("b", 2), "tok-2");
        let shown = |n: usize| auth::bearer(format!("tok-{n}"), String::new()).unwrap();
        tokens.refused("bank", &shown(1));
        assert_eq!(token("b", 3), "tok-2", "an older token was refused, not this one");
        tokens.refused("bank", &shown(2));
        assert_eq!(token("b", 3), "tok-3");
    }
}
