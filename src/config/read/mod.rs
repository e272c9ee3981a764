//! Reads `onceward.toml`: the one maker of a [`Config`].
//!
//! The document is walked by hand, table by table, so that each error names its own line; nothing is read from the
//! environment or from another file here, so a config is checked the same way on every machine. Secrets are only noted
//! with their places; [`Config::missing_secrets`] looks for them.

mod alerts;
mod exec;
pub(super) mod kind;
mod provider;
mod reply;
mod schedule;
mod units;
pub(super) mod walk;

pub(crate) use kind::RESERVED_HEADERS;
pub use units::duration as parse_duration;

use super::{
    Anchor, Config, ConfigError, Http, Limits, PlacedSecret, Secret, SecretSource, Source as Needed, Store,
    Worker,
};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use walk::{Source, Value};

/// The environment variable that names the config.
const VARIABLE: &str = "ONCEWARD_CONFIG";
/// Where the config is looked for when nobody names one.
const PLACES: [&str; 2] = ["onceward.toml", "/etc/onceward/onceward.toml"];

impl Config {
    /// Where the config is: `explicit`, else `$ONCEWARD_CONFIG`, else `./onceward.toml`, else
    /// `/etc/onceward/onceward.toml`.
    pub fn find(explicit: Option<&Path>) -> Result<PathBuf, ConfigError> {
        if let Some(file) = explicit {
            return Ok(file.to_path_buf());
        }
        if let Some(file) = std::env::var_os(VARIABLE).filter(|file| !file.is_empty()) {
            return Ok(PathBuf::from(file));
        }
        PLACES.iter().map(PathBuf::from).find(|file| file.exists()).ok_or_else(|| ConfigError {
            file: PathBuf::from(PLACES[0]),
            line: None,
            field: String::new(),
            message: format!(
                "there is no config, neither here nor at {}: make one with `onceward init`, or name one with --config or ${VARIABLE}",
                PLACES[1]
            ),
        })
    }

    /// Reads and checks a config file.
    pub fn load(path: &Path) -> Result<Config, ConfigError> {
        let fail = |message: String| ConfigError {
            file: path.to_path_buf(),
            line: None,
            field: String::new(),
            message,
        };
        let bytes = std::fs::read(path).map_err(|e| match e.kind() {
            std::io::ErrorKind::NotFound => {
                fail("there is no such file: make one with `onceward init`".into())
            }
            _ => fail(format!("this cannot be read: {e}")),
        })?;
        let text = String::from_utf8(bytes).map_err(|e| {
            let good = &e.as_bytes()[..e.utf8_error().valid_up_to()];
            let line = good.iter().filter(|b| **b == b'\n').count() + 1;
            ConfigError { line: Some(line), ..fail("this is not UTF-8".into()) }
        })?;
        Config::parse(&text, path)
    }

    /// Checks the text of a config. `file` is for errors, and its folder is what paths are relative to.
    pub fn parse(text: &str, file: &Path) -> Result<Config, ConfigError> {
        let source = Source { file, text };
        let document = source.document(text)?;
        let root = Value::root(source, &document);
        let t = root.table(&[
            "store",
            "worker",
            "audit",
            "http",
            "schedules",
            "alerts",
            "limits",
            "profiles",
            "providers",
            "kinds",
        ])?;
        let mut reader = Reader { folder: file.parent().unwrap_or(Path::new("")), secrets: Vec::new() };
        let store = reader.store(t.get("store"))?;
        let worker = worker(t.get("worker"))?;
        let limits = limits(t.get("limits"))?;
        let anchor = t.get("audit").map(|audit| reader.anchor(&audit)).transpose()?.flatten();
        let http = t.get("http").map(|http| reader.http(&http)).transpose()?;
        let profiles = provider::profiles(t.get("profiles"))?;
        let mut providers = BTreeMap::new();
        for (name, value) in t.get("providers").map(|v| v.entries()).transpose()?.unwrap_or_default() {
            providers.insert(name.clone(), reader.provider(&name, &value, &profiles)?);
        }
        let mut kinds = BTreeMap::new();
        for (name, value) in t.get("kinds").map(|v| v.entries()).transpose()?.unwrap_or_default() {
            kinds.insert(name.clone(), kind::kind(&name, &value, &providers, reader.folder)?);
        }
        let secrets = reader.secrets;
        let (file, schedules) = (file.to_path_buf(), BTreeMap::new());
        let alerts = None;
        let mut config = Config {
            file,
            store,
            worker,
            limits,
            anchor,
            http,
            providers,
            kinds,
            schedules,
            alerts,
            secrets,
        };
        config.alerts = t.read("alerts", |v| alerts::alerts(v, &config))?;
        if let Some(kind) = config.alerts.as_ref().and_then(|alerts| config.kinds.get_mut(&alerts.kind)) {
            kind.terms.never_doubtful = true;
        }
        // Read last: each one is tried as a request for a job would be.
        for (name, value) in t.get("schedules").map(|v| v.entries()).transpose()?.unwrap_or_default() {
            let read = schedule::schedule(&name, &value, &config, t.get("kinds").as_ref())?;
            config.schedules.insert(name, Arc::new(read));
        }
        Ok(config)
    }

    /// The secrets that cannot be read now, each with its place. Every one of them is tried.
    pub fn missing_secrets(&self) -> Vec<ConfigError> {
        let missing = |secret: &PlacedSecret| {
            secret.source.missing().map(|message| ConfigError {
                file: self.file.clone(),
                line: Some(secret.line),
                field: secret.field.clone(),
                message,
            })
        };
        self.secrets.iter().filter_map(missing).collect()
    }

    /// The API's token is this one, and not what `[http]` says. Without an `[http]` it listens on this machine only, on
    /// a port of the system's choosing.
    pub fn take_api_token(&mut self, token: Secret) {
        self.secrets.retain(|secret| secret.field != "http.token");
        let token = SecretSource::Given(token);
        match &mut self.http {
            Some(http) => http.token = token,
            None => {
                let listen = SocketAddr::from(([127, 0, 0, 1], 0));
                self.http = Some(Http { listen, token, behind_proxy: false, hosts: Vec::new() });
            }
        }
    }
}

/// What is gathered on the way through the document.
struct Reader<'a> {
    folder: &'a Path,
    secrets: Vec<PlacedSecret>,
}

impl Reader<'_> {
    fn secret(&mut self, value: &Value) -> Result<SecretSource, ConfigError> {
        self.note_secret(value, Needed::Secret)
    }

    fn note_secret(
        &mut self,
        value: &Value,
        needed: fn(SecretSource) -> Needed,
    ) -> Result<SecretSource, ConfigError> {
        let source = value.secret(self.folder)?;
        self.place(value, needed(source.clone()));
        Ok(source)
    }

    /// A file that must be there.
    fn file(&mut self, value: &Value) -> Result<PathBuf, ConfigError> {
        let path = value.path(self.folder)?;
        self.place(value, Needed::File(path.clone()));
        Ok(path)
    }

    fn place(&mut self, value: &Value, source: Needed) {
        self.secrets.push(PlacedSecret { line: value.line(), field: value.field.clone(), source });
    }

    fn store(&self, value: Option<Value>) -> Result<Store, ConfigError> {
        let mut store = Store { path: self.folder.join("onceward.db"), namespace: String::new() };
        let Some(value) = value else { return Ok(store) };
        let t = value.table(&["path", "namespace"])?;
        if let Some(path) = t.read("path", |v| v.path(self.folder))? {
            store.path = path;
        }
        if let Some(namespace) = t.get("namespace") {
            let text = namespace.text()?;
            // The parts of a wire key are parted by a control character.
            if text.chars().any(char::is_control) {
                return Err(namespace.error("a namespace has no control characters"));
            }
            store.namespace = text.to_string();
        }
        Ok(store)
    }

    fn anchor(&self, value: &Value) -> Result<Option<Anchor>, ConfigError> {
        let t = value.table(&["anchor"])?;
        let Some(anchor) = t.get("anchor") else { return Ok(None) };
        let t = anchor.table(&["file", "every"])?;
        let file = t.need("file", "the anchor's own file, best on another disk")?.path(self.folder)?;
        let every = t.read("every", |v| v.duration(Duration::from_secs(1)))?;
        Ok(Some(Anchor { file, every: every.unwrap_or(Duration::from_secs(3600)) }))
    }

    fn http(&mut self, value: &Value) -> Result<Http, ConfigError> {
        let t = value.table(&["listen", "token", "behind_proxy", "hosts"])?;
        let behind_proxy = t.read("behind_proxy", Value::flag)?.unwrap_or(false);
        let listen = match t.get("listen") {
            None => SocketAddr::from(([127, 0, 0, 1], 7117)),
            Some(listen) => {
                let address: SocketAddr = listen.text()?.parse().map_err(|_| {
                    listen.error("an address and a port are needed here, such as \"127.0.0.1:7117\"")
                })?;
                if !address.ip().to_canonical().is_loopback() && !behind_proxy {
                    return Err(listen.error(
                        "others could read the token on its way: listen on 127.0.0.1, or put a proxy with TLS in front and write behind_proxy = true",
                    ));
                }
                address
            }
        };
        let token = t.need("token", "the API is never open: { env = \"ONCEWARD_TOKEN\" }")?;
        let token = self.note_secret(&token, Needed::Token)?;
        let hosts = t.get("hosts").map(|hosts| hosts.items()).transpose()?.unwrap_or_default();
        let hosts = hosts.iter().map(host).collect::<Result<_, _>>()?;
        Ok(Http { listen, token, behind_proxy, hosts })
    }
}

/// A name as the Host field has it: no scheme, no path.
fn host(value: &Value) -> Result<String, ConfigError> {
    let text = value.text_not_empty()?;
    let clean = |c: char| c.is_ascii_alphanumeric() || "-._:[]".contains(c);
    if text.chars().all(clean) {
        return Ok(text.to_ascii_lowercase());
    }
    Err(value.error("a name is needed here, with its port unless that is the scheme's own: \"pay.example\""))
}

fn worker(value: Option<Value>) -> Result<Worker, ConfigError> {
    let mut worker = Worker {
        threads: 16,
        lease: Duration::from_secs(60),
        poll: Duration::from_millis(25),
        shutdown_grace: Duration::from_secs(25),
    };
    let Some(value) = value else { return Ok(worker) };
    let t = value.table(&["threads", "lease", "poll", "shutdown_grace"])?;
    if let Some(threads) = t.read("threads", |v| v.whole(1, 1024))? {
        worker.threads = threads as usize;
    }
    for (name, span, at_least) in [
        ("lease", &mut worker.lease, Duration::from_secs(1)),
        ("poll", &mut worker.poll, Duration::from_millis(1)),
        ("shutdown_grace", &mut worker.shutdown_grace, Duration::ZERO),
    ] {
        if let Some(given) = t.read(name, |v| v.duration(at_least))? {
            *span = given;
        }
    }
    Ok(worker)
}

fn limits(value: Option<Value>) -> Result<Limits, ConfigError> {
    let mut limits = Limits { payload: 256 << 10, free_disk: 64 << 20, refuse_card_numbers: true };
    let Some(value) = value else { return Ok(limits) };
    let t = value.table(&["payload", "free_disk", "card_numbers"])?;
    if let Some(payload) = t.get("payload") {
        // `{}` is the smallest payload; SQLite's own limit for one value is a billion bytes.
        limits.payload = match usize::try_from(payload.size()?) {
            Ok(bytes) if (2..=1 << 29).contains(&bytes) => bytes,
            _ => return Err(payload.error("a payload's limit is from 2 bytes to 512MiB")),
        };
    }
    if let Some(bytes) = t.read("free_disk", Value::size)? {
        limits.free_disk = bytes;
    }
    if let Some(refuse) = t.read("card_numbers", |v| v.word(&[("refuse", true), ("allow", false)]))? {
        limits.refuse_card_numbers = refuse;
    }
    Ok(limits)
}

/// Checks the name of a provider or a kind: it is typed on command lines and stands in metrics.
fn check_name(name: &str, value: &Value) -> Result<(), ConfigError> {
    let clean = !name.chars().any(|c| c.is_control() || c.is_whitespace());
    if !name.is_empty() && name.len() <= 100 && clean {
        return Ok(());
    }
    Err(value.error("a name has 1 to 100 bytes, without blanks and control characters"))
}
