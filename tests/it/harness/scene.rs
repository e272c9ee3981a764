//! The scene of a test: which provider, what it promises, how it is asked. Written out as an `onceward.toml`.

use super::Harness;
use onceward::demo::provider::{Family, Faults, Provider};

/// Settings, all with a default that lets one payout go through at once.
#[derive(Clone)]
pub struct Scene {
    pub family: Family,
    pub profile: &'static str,
    pub base_url: String,
    pub total: &'static str,
    /// Further lines of `[providers.bank]`.
    pub provider: String,
    /// Further members of the body's table.
    pub body: String,
    pub reply: String,
    pub lookup: Option<String>,
    pub retry: String,
    /// Further lines of `[kinds.payout]`.
    pub kind: String,
    /// Further lines of `[worker]`.
    pub worker: String,
    /// Whole tables before the others.
    pub tables: String,
}

const REPLY: &str = r#"{ reference = "/id", amount = "/amount", currency = "/currency", status = "/status", settled = ["paid"], pending = ["processing"], rejected = ["failed"] }"#;

/// The rule by which a family D provider's error names the first object.
const DUPLICATE: &str =
    r#"duplicate = { status = 409, code = "/error/code", is = "duplicate", reference = "/error/id" }"#;

/// A look-up by reference, seen at once.
pub fn lookup(authoritative: bool) -> String {
    format!(
        r#"{{ path = "/v1/payouts?reference={{$key}}", reference = "/data/0/id", status = "/data/0/status", settled = ["paid"], pending = ["processing"], rejected = ["failed"], lag = "0s", authoritative = {authoritative} }}"#
    )
}

impl Scene {
    /// A provider of this family, without a look-up.
    pub fn new(family: Family) -> Scene {
        let (profile, provider) = match family {
            Family::A => ("stripe", ""),
            Family::B | Family::C => ("generic", ""),
            Family::D => ("generic", DUPLICATE),
            Family::E => ("none", ""),
        };
        Scene {
            family,
            profile,
            base_url: String::new(),
            total: "20s",
            provider: format!("breaker = {{ failures = 1000, cool_down = \"100ms\" }}\n{provider}"),
            // A provider without keys has no header for one; the body shows which generation it is.
            body: if family == Family::E { r#", wire = "{$wire_key}""#.into() } else { String::new() },
            reply: REPLY.into(),
            lookup: None,
            retry: r#"{ max_attempts = 10, base = "20ms", cap = "100ms", max_age = "1h" }"#.into(),
            kind: String::new(),
            worker: String::new(),
            tables: String::new(),
        }
    }

    /// With a look-up; `authoritative` or not.
    pub fn with_lookup(mut self, authoritative: bool) -> Scene {
        self.lookup = Some(lookup(authoritative));
        self
    }

    /// How long a call may take.
    pub fn total(mut self, total: &'static str) -> Scene {
        self.total = total;
        self
    }

    /// Changes anything else.
    pub fn set(mut self, change: impl FnOnce(&mut Scene)) -> Scene {
        change(&mut self);
        self
    }

    /// Starts the provider and writes the config.
    pub fn start(self) -> Harness {
        self.start_with(Faults::none())
    }

    /// The same, with these faults.
    pub fn start_with(mut self, faults: Faults) -> Harness {
        let provider = Provider::start(self.family, faults).expect("the provider starts");
        if self.base_url.is_empty() {
            self.base_url = provider.base_url();
        }
        Harness::new(self, provider)
    }

    /// The config's text.
    pub fn text(&self) -> String {
        let lookup = self.lookup.as_ref().map(|l| format!("lookup = {l}")).unwrap_or_default();
        let Scene { profile, base_url, total, provider, body, reply, retry, kind, worker, tables, .. } = self;
        format!(
            r#"{tables}
[store]
path = "onceward.db"

[worker]
threads = 4
poll = "20ms"
{worker}

[providers.bank]
profile = "{profile}"
base_url = "{base_url}"
timeout = {{ connect = "5s", total = "{total}" }}
concurrency = 16
{provider}

[kinds.payout]
provider = "bank"
key = "payout:{{invoice_id}}"
account = "{{account_id}}"
amount_minor = "{{amount_minor}}"
currency = "{{currency}}"
request = {{ method = "POST", path = "/v1/payouts", encoding = "json", body = {{ amount = "{{amount_minor}}", currency = "{{currency}}", reference = "{{$key}}"{body} }} }}
reply = {reply}
{lookup}
retry = {retry}
{kind}

[kinds.raw]
provider = "bank"
request = {{ method = "POST", path = "/v1/payouts", encoding = "json" }}
reply = {{ reference = "/id" }}
retry = {retry}
"#
        )
    }
}

#[test]
fn every_scene_is_a_valid_config() {
    for family in [Family::A, Family::B, Family::C, Family::D, Family::E] {
        for scene in [Scene::new(family), Scene::new(family).with_lookup(true)] {
            let text = scene.set(|s| s.base_url = "http://127.0.0.1:1".into()).text();
            let read = onceward::config::Config::parse(&text, std::path::Path::new("onceward.toml"));
            assert!(read.is_ok(), "{family:?}: {}\n{text}", read.unwrap_err());
        }
    }
}
