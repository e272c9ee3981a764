//! What this process can do, drawn from the config: the store asks it inside a claim.

use crate::clock::{Clock, Ms};
use crate::config::{Config, Request};
use crate::intent::{Frozen, Intent, Scope};
use crate::job::{Code, Job, NewJob, Refusal};
use crate::provider::Providers;
use crate::store::{Desk, InboxRow, KindDesk, ProviderDesk};
use std::sync::Arc;
use std::time::Duration;

/// The kinds and providers of a config.
pub struct Trade {
    config: Arc<Config>,
    providers: Providers,
    kinds: Vec<KindDesk>,
    desks: Vec<ProviderDesk>,
}

impl Trade {
    /// Draws them from a config.
    pub fn new(config: Arc<Config>, clock: Arc<dyn Clock>) -> Trade {
        let kinds = config.kinds.values().filter_map(|kind| {
            // A kind without a provider is a handler's in an embedding app; this process can't do it.
            let provider = kind.provider.clone()?;
            Some(KindDesk {
                kind: kind.name.clone(),
                provider,
                terms: kind.terms.clone(),
                unique: kind.unique,
            })
        });
        let desks = config.providers.values().map(|p| ProviderDesk {
            name: p.name.clone(),
            concurrency: p.concurrency,
            rate: p.rate,
        });
        let (kinds, desks) = (kinds.collect(), desks.collect());
        Trade { providers: Providers::new(Arc::clone(&config), clock), config, kinds, desks }
    }

    /// The config.
    pub fn config(&self) -> &Arc<Config> {
        &self.config
    }

    pub(super) fn providers(&self) -> &Providers {
        &self.providers
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
        self.providers.scope(kind)
    }

    fn freeze(&self, job: &Job, intent: &Intent) -> Result<Frozen, String> {
        self.providers.freeze(&job.kind, job, intent)
    }

    fn key_template(&self, kind: &str) -> Option<String> {
        self.config.kinds.get(kind)?.key.as_ref().map(|template| template.text().to_string())
    }

    fn prepare(&self, row: InboxRow, now: Ms) -> Result<NewJob, Refusal> {
        self.config.prepare(request(row, now).map_err(|why| Refusal::new(Code::Invalid, why))?, now)
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
