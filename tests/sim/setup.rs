//! What a seed draws before its first step: the kinds and their providers, and which faults are about how often.

use fastrand::Rng;
use onceward::config::Config;
use std::path::Path;
use std::time::Duration;

/// How a provider answers a repeat; the letters are those of `onceward::decide::Family`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Family {
    A,
    B,
    C,
    D,
    E,
}

impl Family {
    pub const ALL: [Family; 5] = [Family::A, Family::B, Family::C, Family::D, Family::E];
}

/// A kind's look-up as the provider keeps it: what it does by then is seen, and whether it ever misses something.
#[derive(Clone, Copy, Debug)]
pub struct LookUp {
    pub lag: Duration,
    pub authoritative: bool,
    /// It asks by the business key, and so finds the objects of all generations.
    pub by_key: bool,
    /// It shows what is merely accepted.
    pub lists_pending: bool,
}

impl LookUp {
    fn draw(lag: Duration, rng: &mut Rng) -> LookUp {
        let lists_pending = rng.u8(..4) > 0;
        // What hides what is accepted is no authority: an answer that is lost says so to nobody.
        LookUp { lag, authoritative: rng.u8(..3) > 0 && lists_pending, by_key: rng.bool(), lists_pending }
    }
}

/// One kind with a provider of its own.
#[derive(Clone, Debug)]
pub struct KindSetup {
    pub name: String,
    pub family: Family,
    pub window: Duration,
    /// The provider forgets after so many windows: it may remember longer than it promises.
    pub forgets_after: u32,
    pub lookup: Option<LookUp>,
    pub max_attempts: u32,
    pub max_age: Duration,
    pub skip: bool,
    pub retry_on: bool,
    pub failures: u32,
}

/// All that a seed draws before its first step.
#[derive(Clone, Debug)]
pub struct Setup {
    pub kinds: Vec<KindSetup>,
    pub workers: usize,
    /// Out of 100: how often a call meets trouble before the provider acts, and how often its answer is lost.
    pub front: u32,
    pub lost: u32,
    /// Out of 100: how often the provider answers its own 5xx, a refusal, a pending object, something unreadable.
    pub server_error: u32,
    pub refusal: u32,
    pub pending: u32,
    pub rubbish: u32,
    /// Whether clocks are set, disks fill up and commits fail in this run.
    pub clocks: bool,
    pub disk: bool,
    /// Whether the file is lost and restored, and whether credentials are replaced.
    pub restores: bool,
    pub swaps: bool,
    pub steps: usize,
}

impl Setup {
    pub fn draw(rng: &mut Rng) -> Setup {
        let kinds = (0..rng.usize(1..=3)).map(|n| KindSetup::draw(n, rng)).collect();
        let rates = [0, 10, 30, 60];
        Setup {
            kinds,
            workers: rng.usize(2..=3),
            front: rates[rng.usize(..4)],
            lost: rates[rng.usize(..4)],
            server_error: [0, 10, 30][rng.usize(..3)],
            refusal: [0, 10, 30][rng.usize(..3)],
            pending: [0, 10, 40][rng.usize(..3)],
            rubbish: [0, 5, 20][rng.usize(..3)],
            clocks: rng.bool(),
            disk: rng.u8(..5) < 2,
            restores: rng.bool(),
            swaps: rng.u8(..4) == 0,
            steps: rng.usize(30..90),
        }
    }

    pub fn kind(&self, name: &str) -> Option<&KindSetup> {
        self.kinds.iter().find(|k| k.name == name)
    }

    /// The config of a version: 0 at first; an odd one has another body, from 2 on the providers have moved.
    pub fn config(&self, version: u32, dir: &Path) -> Config {
        let text: String = self.kinds.iter().map(|kind| kind.text(version, dir)).collect();
        Config::parse(&text, &dir.join("onceward.toml")).unwrap_or_else(|e| panic!("{e}\n{text}"))
    }
}

impl KindSetup {
    fn draw(n: usize, rng: &mut Rng) -> KindSetup {
        let lag = Duration::from_secs([0, 5, 30, 120][rng.usize(..4)]);
        KindSetup {
            name: format!("k{n}"),
            family: Family::ALL[rng.usize(..5)],
            window: Duration::from_secs([60, 600, 3600, 86_400][rng.usize(..4)]),
            forgets_after: [1, 1, 2][rng.usize(..3)],
            lookup: (rng.u8(..3) > 0).then(|| LookUp::draw(lag, rng)),
            max_attempts: rng.u32(2..8),
            max_age: Duration::from_secs([300, 7200, 259_200, 259_200][rng.usize(..4)]),
            skip: rng.bool(),
            retry_on: rng.u8(..3) == 0,
            failures: if rng.bool() { 3 } else { 1000 },
        }
    }

    fn text(&self, version: u32, dir: &Path) -> String {
        let name = &self.name;
        let host = if version >= 2 { "new" } else { "old" };
        let secret = dir.join("secret");
        let window = self.window.as_secs();
        let (profile, promises) = match self.family {
            Family::A => ("stripe", format!("idempotency = {{ window = \"{window}s\" }}")),
            Family::B | Family::C => ("generic", format!("idempotency = {{ window = \"{window}s\" }}")),
            Family::D => (
                "generic",
                format!(
                    "idempotency = {{ window = \"{window}s\" }}\nduplicate = {{ status = 409, code = \"/error/code\", is = \"duplicate\", reference = \"/error/id\" }}"
                ),
            ),
            Family::E => ("none", String::new()),
        };
        let memo = if version % 2 == 1 { ", memo = \"new\"" } else { "" };
        let statuses =
            r#"status = "/status", settled = ["paid"], pending = ["processing"], rejected = ["failed"]"#;
        let lookup = self.lookup.map_or(String::new(), |l| {
            let asks = if l.by_key { "reference={$key}" } else { "wire={$wire_key}" };
            let statuses = match l.lists_pending {
                true => statuses.to_string(),
                false => statuses.replace(r#"pending = ["processing"], "#, ""),
            };
            format!(
                "lookup = {{ path = \"/v1/payouts?{asks}\", reference = \"/data/0/id\", amount = \"/data/0/amount\", {}, lag = \"{}s\", authoritative = {}, not_found = {{ status = 404, code = \"/error\", is = \"none\" }} }}\n",
                statuses.replace("/status", "/data/0/status"),
                l.lag.as_secs(),
                l.authoritative
            )
        });
        let retry_on = if self.retry_on { "[402]" } else { "[]" };
        format!(
            r#"[providers.bank-{name}]
profile = "{profile}"
base_url = "https://{host}.{name}.example"
auth = {{ bearer = {{ file = "{secret}" }} }}
breaker = {{ failures = {failures}, cool_down = "20s" }}
{promises}

[kinds.{name}]
provider = "bank-{name}"
amount_minor = "{{amount_minor}}"
currency = "EUR"
on_parked = "{on_parked}"
request = {{ method = "POST", path = "/v1/payouts", encoding = "json", body = {{ amount = "{{amount_minor}}", reference = "{{$key}}", wire = "{{$wire_key}}"{memo} }} }}
reply = {{ reference = "/id", amount = "/amount", {statuses} }}
{lookup}retry = {{ max_attempts = {max_attempts}, base = "1s", cap = "60s", max_age = "{max_age}s", retry_on = {retry_on} }}

"#,
            secret = secret.display(),
            failures = self.failures,
            on_parked = if self.skip { "skip" } else { "block" },
            max_attempts = self.max_attempts,
            max_age = self.max_age.as_secs(),
        )
    }
}
