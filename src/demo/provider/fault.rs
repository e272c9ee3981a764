//! What goes wrong with a request, and who decides it: a script (tests) or a seeded draw (the demonstration).
//!
//! Requests that ask for an effect (POST) and requests that only ask (GET) have a queue each. When a queue is empty,
//! the rule for the rest applies.

use std::collections::VecDeque;
use std::time::Duration;

/// A reply as it goes out. In the body, `{id}`, `{key}`, `{reference}` and `{authorization}` stand for the effect's id
/// and for what the request carried.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Answer {
    /// The status code.
    pub status: u16,
    /// Headers besides the length and `Connection: close`.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: String,
}

impl Answer {
    /// A JSON reply.
    pub fn json(status: u16, body: impl Into<String>) -> Answer {
        Answer { status, headers: vec![header("Content-Type", "application/json")], body: body.into() }
    }

    /// A web page, as captive portals and login walls send it.
    pub fn html(status: u16) -> Answer {
        Answer {
            status,
            headers: vec![header("Content-Type", "text/html")],
            body: "<html><body>Please log in</body></html>".into(),
        }
    }

    /// The same reply with one more header.
    pub fn with(mut self, name: &str, value: &str) -> Answer {
        self.headers.push(header(name, value));
        self
    }
}

fn header(name: &str, value: &str) -> (String, String) {
    (name.to_string(), value.to_string())
}

/// What happens to one request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Fault {
    /// Nothing goes wrong.
    None,
    /// Read, not applied; the connection closes without a reply.
    DropBefore,
    /// Applied; the connection closes without a reply.
    DropAfter,
    /// Nothing for so long (or until released), then applied and answered.
    HoldBefore(Duration),
    /// Applied, then nothing for so long (or until released), then answered.
    HoldAfter(Duration),
    /// An error status, nothing applied.
    ErrorBefore(u16),
    /// Applied, and an error status all the same.
    ErrorAfter(u16),
    /// 429, with this Retry-After.
    Throttle(Option<String>),
    /// Applied; the body ends early, with a Content-Length that says so, or without one.
    Truncated {
        /// Send the true Content-Length.
        length: bool,
    },
    /// 302 to this place, nothing applied.
    Redirect(String),
    /// Applied, and answered by a web page with status 200.
    Html,
    /// Applied as pending: 202, and this many look-ups see `processing` before `paid`.
    Pending(u32),
    /// 401 that repeats the credential in its body, as careless providers do; nothing applied.
    Unauthorized,
    /// This reply, nothing applied.
    Answer(Answer),
    /// Applied, and this reply.
    AnswerAfter(Answer),
}

impl Fault {
    /// Whether the request is carried out.
    pub(super) fn applies(&self) -> bool {
        match self {
            Fault::None
            | Fault::DropAfter
            | Fault::HoldBefore(_)
            | Fault::HoldAfter(_)
            | Fault::ErrorAfter(_)
            | Fault::Truncated { .. }
            | Fault::Html
            | Fault::Pending(_)
            | Fault::AnswerAfter(_) => true,
            Fault::DropBefore
            | Fault::ErrorBefore(_)
            | Fault::Throttle(_)
            | Fault::Redirect(_)
            | Fault::Unauthorized
            | Fault::Answer(_) => false,
        }
    }
}

/// The faults to come.
#[derive(Debug)]
pub struct Faults {
    posts: VecDeque<Fault>,
    gets: VecDeque<Fault>,
    rest: Rest,
}

#[derive(Debug)]
enum Rest {
    Clean,
    Always(Fault),
    Random { rng: fastrand::Rng, rate: f64 },
}

impl Faults {
    /// A provider that does what it should.
    pub fn none() -> Faults {
        Faults { posts: VecDeque::new(), gets: VecDeque::new(), rest: Rest::Clean }
    }

    /// The first requests for an effect meet these, in order; the others go well.
    pub fn script(posts: Vec<Fault>) -> Faults {
        Faults { posts: posts.into(), ..Faults::none() }
    }

    /// Every request for an effect meets this.
    pub fn always(fault: Fault) -> Faults {
        Faults { rest: Rest::Always(fault), ..Faults::none() }
    }

    /// Of the requests, the share `rate` (0 to 1) meets a fault drawn at random; the same seed draws the same.
    pub fn random(seed: u64, rate: f64) -> Faults {
        Faults { rest: Rest::Random { rng: fastrand::Rng::with_seed(seed), rate }, ..Faults::none() }
    }

    /// Puts further faults into the queue of requests for an effect.
    pub fn add(&mut self, posts: Vec<Fault>) {
        self.posts.extend(posts);
    }

    /// Puts further faults into the queue of look-ups.
    pub fn add_lookups(&mut self, gets: Vec<Fault>) {
        self.gets.extend(gets);
    }

    /// The fault of the next request.
    pub(super) fn next(&mut self, asks_for_effect: bool) -> Fault {
        let queue = if asks_for_effect { &mut self.posts } else { &mut self.gets };
        if let Some(fault) = queue.pop_front() {
            return fault;
        }
        match &mut self.rest {
            Rest::Clean => Fault::None,
            Rest::Always(fault) if asks_for_effect => fault.clone(),
            Rest::Always(_) => Fault::None,
            Rest::Random { rng, rate } => {
                if rng.f64() >= *rate {
                    Fault::None
                } else if asks_for_effect {
                    draw(rng)
                } else {
                    draw_lookup(rng)
                }
            }
        }
    }
}

/// A fault for a request that asks for an effect. Half of them lose the reply after the effect: the case that matters.
fn draw(rng: &mut fastrand::Rng) -> Fault {
    match rng.u8(0..16) {
        0..=4 => Fault::DropAfter,
        5..=6 => Fault::DropBefore,
        7 => Fault::HoldAfter(Duration::from_millis(1500)),
        8 => Fault::HoldBefore(Duration::from_millis(1500)),
        9 => Fault::ErrorBefore(500),
        10 => Fault::ErrorAfter(500),
        11 => Fault::ErrorBefore(503),
        12 => Fault::Throttle(None),
        13 => Fault::Truncated { length: true },
        14 => Fault::Truncated { length: false },
        _ => Fault::Html,
    }
}

fn draw_lookup(rng: &mut fastrand::Rng) -> Fault {
    match rng.u8(0..3) {
        0 => Fault::DropBefore,
        1 => Fault::ErrorBefore(500),
        _ => Fault::Truncated { length: false },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_is_followed_in_order_and_then_all_goes_well() {
        let mut faults = Faults::script(vec![Fault::DropAfter, Fault::Html]);
        faults.add_lookups(vec![Fault::DropBefore]);
        assert_eq!(faults.next(true), Fault::DropAfter);
        assert_eq!(faults.next(false), Fault::DropBefore);
        assert_eq!(faults.next(true), Fault::Html);
        assert_eq!(faults.next(true), Fault::None);
        assert_eq!(faults.next(false), Fault::None);
    }

    #[test]
    fn the_same_seed_draws_the_same_faults() {
        let draw = |seed| {
            let mut faults = Faults::random(seed, 0.5);
            (0..100).map(|i| faults.next(i % 3 != 0)).collect::<Vec<_>>()
        };
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
    }
}
