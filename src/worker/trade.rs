//! What this process can do, drawn from the config and the app's handlers: the store asks it inside a claim.

use crate::clock::{Clock, Ms};
use crate::config::{Config, Kind, Request};
use crate::intent::{Frozen, Intent, Scope};
use crate::job::{Code, Job, NewJob, Refusal};
use crate::outcome::Outcome;
use crate::provider::{Call, Handler, Handlers, Programs, Providers};
use crate::store::{Desk, InboxRow, KindDesk, ProviderDesk};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// The kinds and providers of a config, and the app's handlers.
pub struct Trade {
    config: Arc<Config>,
    clock: Arc<dyn Clock>,
    providers: Providers,
    handlers: Handlers,
    programs: Programs,
    kinds: Vec<KindDesk>,
    /// Kinds without a provider, a program or a handler here.
    elsewhere: Vec<KindDesk>,
    desks: Vec<ProviderDesk>,
}

/// Why a handler cannot be registered.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TradeError {
    /// The config does not know the kind.
    #[error(
        "a handler is registered for kind `{0}`, and the config has no [kinds.{0}]: add it, without a provider"
    )]
    NoKind(String),
    /// The kind is a provider's.
    #[error(
        "a handler is registered for kind `{kind}`, and the config gives it to the provider `{provider}`: take one of \
         them out"
    )]
    HasProvider {
        /// The kind.
        kind: String,
        /// Its provider.
        provider: String,
    },
    /// A provider has the kind's name.
    #[error(
        "kind `{0}` has a handler and so stands as its own provider, and there is a [providers.{0}]: rename one"
    )]
    SharedName(String),
    /// The kind is a program's.
    #[error(
        "a handler is registered for kind `{0}`, and the config gives it to a program (exec): take one of them out"
    )]
    HasProgram(String),
    /// Two handlers for one kind.
    #[error("two handlers are registered for kind `{0}`: one kind has one")]
    Twice(String),
}

/// Puts handlers to a config; made by [`Trade::builder`].
pub struct TradeBuilder {
    config: Arc<Config>,
    clock: Arc<dyn Clock>,
    handlers: BTreeMap<String, Handler>,
    twice: Option<String>,
}

impl TradeBuilder {
    /// The kind is done by this handler. Its `[kinds.…]` in the config has no `provider`; key, account, amount,
    /// currency, group and retries are read from there.
    pub fn handler(mut self, kind: &str, handler: Handler) -> TradeBuilder {
        if self.handlers.insert(kind.to_string(), handler).is_some() {
            self.twice = Some(kind.to_string());
        }
        self
    }

    /// Checks each handler against the config.
    pub fn build(self) -> Result<Trade, TradeError> {
        if let Some(kind) = self.twice {
            return Err(TradeError::Twice(kind));
        }
        for name in self.handlers.keys() {
            let kind = self.config.kinds.get(name).ok_or_else(|| TradeError::NoKind(name.clone()))?;
            if let Some(provider) = kind.provider.clone() {
                return Err(TradeError::HasProvider { kind: name.clone(), provider });
            }
            if kind.exec.is_some() {
                return Err(TradeError::HasProgram(name.clone()));
            }
            if self.config.providers.contains_key(name) {
                return Err(TradeError::SharedName(name.clone()));
            }
        }
        Ok(Trade::assemble(self.config, self.clock, Handlers::new(self.handlers)))
    }
}

impl Trade {
    /// Draws them from a config, without handlers: a kind without a provider stays unclaimed.
    pub fn new(config: Arc<Config>, clock: Arc<dyn Clock>) -> Trade {
        Trade::assemble(config, clock, Handlers::default())
    }

    /// A trade to which an app adds its handlers.
    ///
    /// ```
    /// use onceward::clock::SystemClock;
    /// use onceward::config::Config;
    /// use onceward::{Handler, HandlerCall, HandlerOutcome};
    /// use onceward::worker::Trade;
    /// use std::{path::Path, sync::Arc};
    ///
    /// let config = Config::parse("[kinds.seat]\nkey = \"seat:{seat}\"\n", Path::new("app.toml"))?;
    /// let trade = Trade::builder(Arc::new(config), Arc::new(SystemClock::new()))
    ///     .handler(
    ///         "seat",
    ///         Handler::new(|_call: &HandlerCall| HandlerOutcome::Settled { reference: None, result: None })
    ///             .repeat_safe(),
    ///     )
    ///     .build()?;
    /// # let _ = trade;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn builder(config: Arc<Config>, clock: Arc<dyn Clock>) -> TradeBuilder {
        TradeBuilder { config, clock, handlers: BTreeMap::new(), twice: None }
    }

    fn assemble(config: Arc<Config>, clock: Arc<dyn Clock>, handlers: Handlers) -> Trade {
        let programs = Programs::new(Arc::clone(&config));
        let own = |kind: &Kind| handlers.has(&kind.name) || kind.exec.is_some();
        let (here, there): (Vec<&Kind>, Vec<&Kind>) =
            config.kinds.values().partition(|kind| kind.provider.is_some() || own(kind));
        let desks_of = |kinds: Vec<&Kind>| {
            let alerts = config.alerts.as_ref().map(|alerts| alerts.kind.as_str());
            kinds.into_iter().map(|kind| desk(kind, &handlers, alerts == Some(&kind.name))).collect()
        };
        let (kinds, elsewhere) = (desks_of(here), desks_of(there));
        let threads = u32::try_from(config.worker.threads).unwrap_or(u32::MAX);
        let providers = config.providers.values().map(|p| ProviderDesk {
            name: p.name.clone(),
            concurrency: p.concurrency,
            rate: p.rate,
        });
        // A handler's kind, and a program's, stand as their own providers.
        let own = config.kinds.values().filter(|kind| own(kind)).map(|kind| ProviderDesk {
            name: kind.name.clone(),
            concurrency: handlers
                .concurrency(&kind.name)
                .or(kind.exec.as_ref().and_then(|exec| exec.concurrency))
                .unwrap_or(threads),
            rate: None,
        });
        let desks = providers.chain(own).collect();
        let providers = Providers::new(Arc::clone(&config), Arc::clone(&clock));
        Trade { config, clock, providers, handlers, programs, kinds, elsewhere, desks }
    }

    /// The config.
    pub fn config(&self) -> &Arc<Config> {
        &self.config
    }

    /// Makes one call, to the kind's handler, its program or its provider.
    pub(crate) fn call(&self, call: &Call<'_>) -> Outcome {
        let started = self.clock.now();
        let own = self.handlers.call(call, started).or_else(|| self.programs.call(call, started));
        own.unwrap_or_else(|| self.providers.call(call))
    }

    pub(super) fn handlers(&self) -> &Handlers {
        &self.handlers
    }
}

/// A kind as the store is to see it. Without a provider it stands for itself.
fn desk(kind: &Kind, handlers: &Handlers, alerts: bool) -> KindDesk {
    KindDesk {
        alerts,
        kind: kind.name.clone(),
        provider: kind.provider.clone().unwrap_or_else(|| kind.name.clone()),
        called: kind.provider.clone(),
        terms: handlers.terms(&kind.name, &kind.terms).unwrap_or_else(|| kind.terms.clone()),
        unique: kind.unique,
    }
}

impl Desk for Trade {
    fn kinds(&self) -> &[KindDesk] {
        &self.kinds
    }

    fn providers(&self) -> &[ProviderDesk] {
        &self.desks
    }

    fn scope(&self, kind: &str) -> Scope {
        let own = self.handlers.scope(kind).or_else(|| self.programs.scope(kind));
        own.unwrap_or_else(|| self.providers.scope(kind))
    }

    fn freeze(&self, job: &Job, intent: &Intent) -> Result<Frozen, String> {
        let own = self.handlers.freeze(job).or_else(|| self.programs.freeze(job));
        own.unwrap_or_else(|| self.providers.freeze(&job.kind, job, intent))
    }

    fn elsewhere(&self, kind: &str) -> Option<&KindDesk> {
        self.elsewhere.iter().find(|k| k.kind == kind)
    }

    fn key_template(&self, kind: &str) -> Option<String> {
        self.config.kinds.get(kind)?.key.as_ref().map(|template| template.text().to_string())
    }

    fn prepare(&self, row: InboxRow, now: Ms) -> Result<NewJob, Refusal> {
        self.config.prepare(request(row, now).map_err(|why| Refusal::new(Code::Invalid, why))?)
    }

    fn row_limit(&self) -> usize {
        self.config.limits.payload.saturating_add(BESIDE_PAYLOAD)
    }
}

/// What the other members of a row or a line may have beside the payload.
pub const BESIDE_PAYLOAD: usize = 64 * 1024;

/// The last millisecond of the year 9999: what comes later cannot be written as a time.
const LAST: Ms = Ms(253_402_300_799_999);

/// The longest window, as on every other door.
const LONGEST: Duration = Duration::from_secs(36_500 * 86_400);

fn request(row: InboxRow, now: Ms) -> Result<Request, String> {
    let dedup = match (row.dedup, row.dedup_window_ms) {
        (None, None) => None,
        (Some(id), Some(window)) => {
            let window =
                u64::try_from(window).map_err(|_| format!("dedup_window_ms {window} is negative"))?;
            let window = Duration::from_millis(window);
            if window > LONGEST {
                return Err("dedup_window_ms is too long: 36500 days is the limit".into());
            }
            Some((id, window))
        }
        (Some(_), None) => return Err("dedup needs a dedup_window_ms: for how long?".into()),
        (None, Some(_)) => return Err("dedup_window_ms needs a dedup: which id?".into()),
    };
    if let Some(at) = row.run_after.filter(|at| *at > LAST) {
        return Err(format!("run_after_ms {} is after the year 9999", at.0));
    }
    Ok(Request {
        kind: row.kind,
        payload: row.payload,
        key: row.key,
        group: row.group,
        sequence: row.sequence,
        // A time that has passed is now: it must not bring the row before others that are due.
        at: row.run_after.filter(|at| *at > now),
        delay: None,
        priority: row.priority.unwrap_or(0),
        account: row.account,
        amount_minor: row.amount_minor.map(|amount| amount.to_string()),
        currency: row.currency,
        dedup,
    })
}
