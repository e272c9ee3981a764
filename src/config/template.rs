//! Templates: text with `{field}`, `{a.b}` and `{$built_in}` in it.

use crate::json::Json;

/// What a template may draw on.
#[derive(Clone, Debug)]
pub struct Values<'a> {
    /// `{field}`, `{a.b}`
    pub payload: &'a Json,
    /// `{$key}`
    pub key: Option<&'a str>,
    /// `{$wire_key}`
    pub wire_key: Option<&'a str>,
    /// `{$account}`
    pub account: Option<&'a str>,
    /// `{$amount_minor}`, `{$amount_major}`
    pub amount_minor: Option<i64>,
    /// `{$currency}`
    pub currency: Option<&'a str>,
    /// `{$reference}`: only where a named object is fetched.
    pub reference: Option<&'a str>,
}

/// A parsed template.
#[derive(Clone, PartialEq, Debug)]
pub struct Template {}
