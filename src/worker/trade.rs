//! What this process can do, drawn from the config: the store asks it inside a claim.

use crate::clock::Clock;
use crate::config::Config;
use crate::intent::{Frozen, Intent, Scope};
use crate::job::Job;
use crate::provider::Providers;
use crate::store::{Desk, KindDesk, ProviderDesk};
use std::sync::Arc;

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
}
