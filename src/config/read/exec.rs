//! Reads `exec` of `[kinds.*]`.

use super::walk::Value;
use crate::config::template::as_it_stands;
use crate::config::{ConfigError, Exec, Provider, Said};
use crate::decide::{Family, LookupTerms};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long a program may run unless the config says otherwise.
const TIMEOUT: Duration = Duration::from_secs(30);
/// How long after a run "nothing there" proves nothing, unless the config says otherwise: as for every look-up.
const LAG: Duration = Duration::from_secs(120);

/// What the program is good for, in the words of the decisions.
pub(super) struct Promise {
    pub(super) family: Family,
    pub(super) lookup: Option<LookupTerms>,
    pub(super) unique: bool,
}

pub(super) fn exec(
    kind: &str,
    value: &Value,
    folder: &Path,
    provider: Option<&Provider>,
    providers: &BTreeMap<String, Provider>,
) -> Result<(Exec, Promise), ConfigError> {
    if let Some(provider) = provider {
        return Err(value.error(format!(
            "this kind is done by the provider {} already: take one of them out",
            provider.name
        )));
    }
    if providers.contains_key(kind) {
        return Err(value.error(format!(
            "a kind with a program stands as its own provider, and there is a [providers.{kind}]: rename one"
        )));
    }
    let dir = folder.to_path_buf();
    let plain = |(program, args)| Exec {
        program,
        args,
        dir,
        timeout: TIMEOUT,
        concurrency: None,
        repeat_safe: false,
        codes: BTreeMap::new(),
        lookup: None,
    };
    if value.is_array() {
        let promise = Promise { family: Family::E, lookup: None, unique: true };
        return Ok((plain(command(value, folder)?), promise));
    }
    let t = value.table(&[
        "command",
        "dir",
        "timeout",
        "concurrency",
        "repeat_safe",
        "codes",
        "unique",
        "lookup",
        "lag",
        "authoritative",
    ])?;
    let needed =
        t.need("command", "the program and its arguments: [\"/usr/bin/print-receipt\", \"--copy\"]")?;
    let mut exec = plain(command(&needed, folder)?);
    if let Some(dir) = t.read("dir", |v| v.path(folder))? {
        exec.dir = dir;
    }
    if let Some(timeout) = t.read("timeout", |v| v.duration(Duration::from_millis(1)))? {
        exec.timeout = timeout;
    }
    exec.concurrency = t.read("concurrency", |v| v.whole(1, 1024))?;
    exec.repeat_safe = t.read("repeat_safe", Value::flag)?.unwrap_or(false);
    exec.codes = t.read("codes", codes)?.unwrap_or_default();
    exec.lookup = t.read("lookup", |v| command(v, folder))?;
    if exec.lookup.is_none()
        && let Some(part) = ["lag", "authoritative"].iter().find_map(|part| t.get(part))
    {
        return Err(part.error("this is about a look-up, and there is none: add lookup = [\"…\"]"));
    }
    let lag = t.read("lag", |v| v.duration(Duration::ZERO))?.unwrap_or(LAG);
    let authoritative = t.read("authoritative", Value::flag)?.unwrap_or(false);
    let promise = Promise {
        family: if exec.repeat_safe { Family::B } else { Family::E },
        lookup: exec.lookup.as_ref().map(|_| LookupTerms { lag, authoritative, ..LookupTerms::default() }),
        unique: t.read("unique", Value::flag)?.unwrap_or(true),
    };
    Ok((exec, promise))
}

/// A program and its arguments. It is a path from the config's folder, or an absolute one.
fn command(value: &Value, folder: &Path) -> Result<(PathBuf, Vec<String>), ConfigError> {
    let words = value.items()?;
    let Some(program) = words.first() else {
        return Err(value.error("this is empty: the program comes first, such as \"/usr/bin/print-receipt\""));
    };
    let no_zero = |word: &Value| match word.text()? {
        text if text.contains('\0') => Err(word.error("a zero byte cannot be handed to a program")),
        text => match as_it_stands(text) {
            Ok(()) => Ok(text.to_string()),
            Err(why) => {
                Err(word.error(format!("{why}. A program is told in its environment (ONCEWARD_KEY)")))
            }
        },
    };
    no_zero(program)?;
    let path = program.path(folder)?;
    Ok((path, words.iter().skip(1).map(no_zero).collect::<Result<_, _>>()?))
}

fn codes(value: &Value) -> Result<BTreeMap<u8, Said>, ConfigError> {
    const WORDS: [(&str, Said); 4] = [
        ("settled", Said::Settled),
        ("try_again", Said::TryAgain),
        ("rejected", Said::Rejected),
        ("unknown", Said::Unknown),
    ];
    let mut codes = BTreeMap::new();
    for (name, value) in value.entries()? {
        let code = match name.parse::<u8>() {
            Ok(0) => return Err(value.error("0 means done, to every program: take this out")),
            Ok(code) if code.to_string() == name => code,
            _ => return Err(value.error("an exit code is a whole number from 1 to 255")),
        };
        codes.insert(code, value.word(&WORDS)?);
    }
    Ok(codes)
}
