//! What a form says.

use crate::http::message::{Problem, Request, decode, whole};
use crate::http::wire::Body;
use subtle::ConstantTimeEq;

/// The most bytes of a form of somebody who is logged in.
pub const MOST: usize = 64 * 1024;

/// A form's fields, in their order.
#[derive(Debug)]
pub struct Form {
    pairs: Vec<(String, String)>,
}

impl Form {
    /// Reads a form of at most so many bytes from a request's body.
    pub fn read(request: &Request, body: &mut Body, most: usize) -> Result<Form, Problem> {
        let given = request.header("content-type")?.unwrap_or_default();
        let given = given.split(';').next().unwrap_or_default().trim();
        if !given.eq_ignore_ascii_case("application/x-www-form-urlencoded") {
            let why = "the body must be a form (application/x-www-form-urlencoded)";
            return Err(Problem::new(415, "unsupported_media_type", why));
        }
        let bytes = whole(body, most)?;
        let text = String::from_utf8(bytes).map_err(|_| Problem::invalid("the form is not UTF-8"))?;
        let pairs = text.split('&').filter(|pair| !pair.is_empty()).map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            Ok((decode(&name.replace('+', " "))?, decode(&value.replace('+', " "))?))
        });
        let pairs =
            pairs.collect::<Result<_, String>>().map_err(|_| Problem::invalid("the form cannot be read"))?;
        Ok(Form { pairs })
    }

    /// A field without white space at its ends; `None` if it is missing or empty.
    pub fn get(&self, name: &str) -> Option<&str> {
        let value = self.pairs.iter().find(|(n, _)| n == name).map(|(_, value)| value.trim());
        value.filter(|value| !value.is_empty())
    }

    /// A field that must be there.
    pub fn need(&self, name: &str, what: &str) -> Result<&str, Problem> {
        self.get(name).ok_or_else(|| Problem::invalid(format!("{what} is missing: fill it in")))
    }

    /// All values of a field.
    pub fn all<'f>(&'f self, name: &'f str) -> impl Iterator<Item = &'f str> {
        self.pairs.iter().filter(move |(n, _)| n == name).map(|(_, value)| value.as_str())
    }

    /// Whether it carries this CSRF token.
    pub fn carries(&self, csrf: &str) -> bool {
        self.get("csrf").is_some_and(|given| bool::from(given.as_bytes().ct_eq(csrf.as_bytes())))
    }
}
