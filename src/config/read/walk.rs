//! Walks a TOML document and knows at every step where it is: file, line and dotted field.
//!
//! A [`Table`] is opened with the names it may hold, so an unknown field is refused before anything of the table is
//! used: a slip of the pen is reported as such, not as the missing field that it causes.

use super::units;
use crate::config::{ConfigError, SecretSource};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// The file that is read.
#[derive(Clone, Copy, Debug)]
pub(in crate::config) struct Source<'a> {
    pub(in crate::config) file: &'a Path,
    pub(in crate::config) text: &'a str,
}

impl Source<'_> {
    pub(in crate::config) fn error(
        &self,
        at: Option<usize>,
        field: &str,
        message: impl Into<String>,
    ) -> ConfigError {
        ConfigError {
            file: self.file.to_path_buf(),
            line: at.map(|byte| self.line(byte)),
            field: field.to_string(),
            message: message.into(),
        }
    }

    fn line(&self, byte: usize) -> usize {
        self.text.bytes().take(byte).filter(|b| *b == b'\n').count() + 1
    }

    /// Parses the text as TOML.
    pub(in crate::config) fn document<'t>(&self, text: &'t str) -> Result<Spanned<DeValue<'t>>, ConfigError> {
        match DeTable::parse(text) {
            Ok(table) => {
                let span = table.span();
                Ok(Spanned::new(span, DeValue::Table(table.into_inner())))
            }
            Err(e) => {
                let message = e.message().lines().collect::<Vec<_>>().join(", ");
                Err(self.error(e.span().map(|s| s.start), "", format!("this is not valid TOML: {message}")))
            }
        }
    }
}

/// A value and where it stands.
#[derive(Clone, Debug)]
pub(in crate::config) struct Value<'a> {
    source: Source<'a>,
    value: &'a Spanned<DeValue<'a>>,
    /// Where an error about it points: the name of a table, or the value itself.
    at: usize,
    pub(in crate::config) field: String,
}

impl<'a> Value<'a> {
    /// The whole document.
    pub(in crate::config) fn root(source: Source<'a>, document: &'a Spanned<DeValue<'a>>) -> Value<'a> {
        Value { source, value: document, at: 0, field: String::new() }
    }

    fn below(&self, name: &str, key: Range<usize>, value: &'a Spanned<DeValue<'a>>) -> Value<'a> {
        let at = match value.get_ref() {
            DeValue::Table(_) => key.start,
            _ => value.span().start,
        };
        Value { source: self.source, value, at, field: joined(&self.field, name) }
    }

    pub(in crate::config) fn error(&self, message: impl Into<String>) -> ConfigError {
        self.source.error(Some(self.at), &self.field, message)
    }

    /// The line it stands on.
    pub(in crate::config) fn line(&self) -> usize {
        self.source.line(self.at)
    }

    /// The value itself, for a part that reads its own shape.
    pub(in crate::config) fn raw(&self) -> &'a Spanned<DeValue<'a>> {
        self.value
    }

    /// An error at another place inside this value.
    pub(in crate::config) fn error_at(&self, byte: usize, below: &str, message: String) -> ConfigError {
        self.source.error(Some(byte), &format!("{}{below}", self.field), message)
    }

    fn wrong_type(&self, wanted: &str) -> ConfigError {
        let article = if self.value.get_ref().type_str().starts_with(['a', 'i']) { "an" } else { "a" };
        self.error(format!("{wanted} is needed here, not {article} {}", self.value.get_ref().type_str()))
    }

    /// Opens a table that may hold these names and no others.
    pub(in crate::config) fn table(&self, names: &'static [&'static str]) -> Result<Table<'a>, ConfigError> {
        let DeValue::Table(table) = self.value.get_ref() else {
            return Err(self.wrong_type("a table"));
        };
        let mut keys: Vec<_> = table.keys().collect();
        keys.sort_by_key(|key| key.span().start);
        match keys.into_iter().find(|key| !names.contains(&key.get_ref().as_ref())) {
            Some(key) => Err(self.source.error(
                Some(key.span().start),
                &joined(&self.field, key.get_ref()),
                format!("there is no such field{}", instead(key.get_ref(), names)),
            )),
            None => Ok(Table { here: self.clone(), table, names }),
        }
    }

    /// The entries of a table whose names are the user's own, in the order they were written.
    pub(in crate::config) fn entries(&self) -> Result<Vec<(String, Value<'a>)>, ConfigError> {
        let DeValue::Table(table) = self.value.get_ref() else {
            return Err(self.wrong_type("a table"));
        };
        let mut entries: Vec<_> = table.iter().collect();
        entries.sort_by_key(|(key, _)| key.span().start);
        Ok(entries
            .into_iter()
            .map(|(key, value)| (key.get_ref().to_string(), self.below(key.get_ref(), key.span(), value)))
            .collect())
    }

    pub(in crate::config) fn is_array(&self) -> bool {
        self.value.get_ref().is_array()
    }

    /// The items of an array.
    pub(in crate::config) fn items(&self) -> Result<Vec<Value<'a>>, ConfigError> {
        let DeValue::Array(items) = self.value.get_ref() else {
            return Err(self.wrong_type("an array"));
        };
        Ok(items.iter().enumerate().map(|(i, item)| self.below(&i.to_string(), item.span(), item)).collect())
    }

    pub(in crate::config) fn text(&self) -> Result<&'a str, ConfigError> {
        self.value.get_ref().as_str().ok_or_else(|| self.wrong_type("a string"))
    }

    pub(in crate::config) fn text_not_empty(&self) -> Result<&'a str, ConfigError> {
        match self.text()? {
            "" => Err(self.error("this is empty")),
            text => Ok(text),
        }
    }

    /// A string, or a number or boolean by its text: how values of a status field may be written.
    pub(in crate::config) fn scalar(&self) -> Result<String, ConfigError> {
        match self.value.get_ref() {
            DeValue::String(text) => Ok(text.to_string()),
            DeValue::Integer(number) if number.radix() == 10 => Ok(number.as_str().to_string()),
            DeValue::Boolean(flag) => Ok(flag.to_string()),
            _ => Err(self.wrong_type("a string")),
        }
    }

    pub(in crate::config) fn flag(&self) -> Result<bool, ConfigError> {
        self.value.get_ref().as_bool().ok_or_else(|| self.wrong_type("true or false"))
    }

    /// A whole number from `low` to `high`.
    pub(in crate::config) fn whole(&self, low: u32, high: u32) -> Result<u32, ConfigError> {
        let DeValue::Integer(number) = self.value.get_ref() else {
            return Err(self.wrong_type("a whole number"));
        };
        match u32::from_str_radix(number.as_str(), number.radix()) {
            Ok(n) if (low..=high).contains(&n) => Ok(n),
            _ if high == u32::MAX => Err(self.error(format!("{number} is not a whole number from {low}"))),
            _ => Err(self.error(format!("{number} is not a whole number from {low} to {high}"))),
        }
    }

    pub(in crate::config) fn duration(&self, at_least: Duration) -> Result<Duration, ConfigError> {
        let span = units::duration(self.text()?).map_err(|e| self.error(e))?;
        if span < at_least {
            return Err(self.error(format!("{} is too short: at least {at_least:?}", self.text()?)));
        }
        Ok(span)
    }

    /// A size in bytes: a whole number, or text with a unit.
    pub(in crate::config) fn size(&self) -> Result<u64, ConfigError> {
        let text = match self.value.get_ref() {
            DeValue::Integer(number) if number.radix() == 10 => number.as_str(),
            DeValue::String(text) => text.as_ref(),
            _ => return Err(self.wrong_type("a size such as \"256KiB\"")),
        };
        units::size(text).map_err(|e| self.error(e))
    }

    /// One of a few words.
    pub(in crate::config) fn word<T: Copy>(&self, words: &[(&str, T)]) -> Result<T, ConfigError> {
        let text = self.text()?;
        words.iter().find(|(word, _)| *word == text).map(|(_, value)| *value).ok_or_else(|| {
            let all: Vec<String> = words.iter().map(|(word, _)| format!("\"{word}\"")).collect();
            self.error(format!("\"{text}\" is not one of {}", all.join(", ")))
        })
    }

    /// An RFC 6901 pointer.
    pub(in crate::config) fn pointer(&self) -> Result<String, ConfigError> {
        let text = self.text()?;
        let tildes = text.split('~').skip(1).all(|after| after.starts_with(['0', '1']));
        if (text.is_empty() || text.starts_with('/')) && tildes {
            return Ok(text.to_string());
        }
        Err(self.error(format!(
            "\"{text}\" is not a JSON pointer: it is written like \"/data/0/id\" (~ as ~0, / as ~1)"
        )))
    }

    /// The name of a header (an RFC 9110 token).
    pub(in crate::config) fn header_name(&self) -> Result<String, ConfigError> {
        let name = self.text()?;
        if is_token(name) { Ok(name.to_string()) } else { Err(self.error(not_a_header(name))) }
    }

    /// Where a secret is to be found. A literal is refused without being repeated.
    pub(in crate::config) fn secret(&self, folder: &Path) -> Result<SecretSource, ConfigError> {
        const HOW: &str = "write { env = \"NAME\" } or { file = \"PATH\" }";
        if self.value.get_ref().is_str() {
            return Err(self.error(format!("a secret may not stand in the config itself: {HOW}")));
        }
        let table = self.table(&["env", "file"])?;
        match (table.get("env"), table.get("file")) {
            (Some(env), None) => {
                let name = env.text_not_empty()?;
                if name.contains(['=', '\0']) || name.contains(char::is_whitespace) {
                    return Err(env.error("this cannot be the name of an environment variable"));
                }
                Ok(SecretSource::Env(name.to_string()))
            }
            (None, Some(file)) => Ok(SecretSource::File(file.path(folder)?)),
            _ => Err(self.error(format!("a secret has one source: {HOW}"))),
        }
    }

    /// A path, relative to the config's folder.
    pub(in crate::config) fn path(&self, folder: &Path) -> Result<PathBuf, ConfigError> {
        Ok(folder.join(self.text_not_empty()?))
    }
}

/// An opened table.
#[derive(Clone, Debug)]
pub(in crate::config) struct Table<'a> {
    pub(in crate::config) here: Value<'a>,
    table: &'a DeTable<'a>,
    names: &'static [&'static str],
}

impl<'a> Table<'a> {
    pub(in crate::config) fn get(&self, name: &str) -> Option<Value<'a>> {
        debug_assert!(self.names.contains(&name), "{name} is read but not among the table's names");
        self.table.get_key_value(name).map(|(key, value)| self.here.below(name, key.span(), value))
    }

    /// A field that must be there. `why` says what it is for.
    pub(in crate::config) fn need(&self, name: &str, why: &str) -> Result<Value<'a>, ConfigError> {
        self.get(name).ok_or_else(|| {
            let error = self.here.error(format!("this is missing: {why}"));
            ConfigError { field: joined(&self.here.field, name), ..error }
        })
    }

    /// The value of an optional field, read by `read`.
    pub(in crate::config) fn read<T>(
        &self,
        name: &str,
        read: impl FnOnce(&Value<'a>) -> Result<T, ConfigError>,
    ) -> Result<Option<T>, ConfigError> {
        self.get(name).map(|value| read(&value)).transpose()
    }

    pub(in crate::config) fn error(&self, message: impl Into<String>) -> ConfigError {
        self.here.error(message)
    }
}

/// A token of RFC 9110: what a header's name is made of.
pub(in crate::config) fn is_token(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b))
}

pub(in crate::config) fn not_a_header(name: &str) -> String {
    format!("{name:?} is not the name of a header: letters, digits and - are")
}

fn joined(above: &str, name: &str) -> String {
    let plain = !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
    let name = if plain { name.to_string() } else { format!("{name:?}") };
    if above.is_empty() { name } else { format!("{above}.{name}") }
}

/// The end of an error about a name that is not known: the one that was probably meant, else all of them.
pub(in crate::config) fn instead(name: &str, known: &[&str]) -> String {
    let near = known.iter().map(|k| (distance(&name.to_ascii_lowercase(), k), k)).min();
    match near {
        // A third of the letters may be wrong; more would be guessing.
        Some((wrong, k)) if wrong <= name.chars().count().max(3) / 3 => format!(": did you mean {k}?"),
        _ if known.is_empty() => String::new(),
        _ => format!("; known are {}", known.join(", ")),
    }
}

/// How many letters must be changed, added or taken away to make one word of the other; the same letters in another
/// order count as one.
fn distance(a: &str, b: &str) -> usize {
    // A name of absurd length is like nothing, and is not worth the time.
    if a.len() > 64 {
        return usize::MAX;
    }
    let letters = |word: &str| {
        let mut letters: Vec<char> = word.chars().collect();
        letters.sort_unstable();
        letters
    };
    if a != b && letters(a) == letters(b) {
        return 1;
    }
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let changed = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = changed.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}
