//! Reads `reply` and `lookup` of a kind.

use super::kind::path;
use super::walk::Value;
use crate::config::template::Builtin;
use crate::config::{Absence, BodyCode, ConfigError, Lookup, Provider, Reply, is_element};
use crate::decide::LookupTerms;
use std::time::Duration;

pub(super) fn reply(value: &Value) -> Result<(Reply, bool), ConfigError> {
    let t = value.table(&[
        "reference",
        "amount",
        "amount_unit",
        "currency",
        "key",
        "status",
        "settled",
        "pending",
        "rejected",
        "unique",
    ])?;
    Ok((reading(&t)?, t.read("unique", Value::flag)?.unwrap_or(true)))
}

pub(super) fn lookup(
    value: &Value,
    provider: Option<&Provider>,
) -> Result<(Lookup, LookupTerms), ConfigError> {
    let t = value.table(&[
        "path",
        "reference",
        "amount",
        "amount_unit",
        "currency",
        "key",
        "status",
        "settled",
        "pending",
        "rejected",
        "lag",
        "authoritative",
        "not_found",
    ])?;
    let path_value = t.need("path", "where to ask, such as /v1/payouts?reference={$key}")?;
    if let Some(provider) = provider.filter(|p| p.base_url.is_empty()) {
        return Err(
            value.error(format!("a look-up needs an address: add base_url to [providers.{}]", provider.name))
        );
    }
    let known = provider.and_then(|p| p.profile.lookup_lag).unwrap_or_default();
    let reply = reading(&t)?;
    let not_found = t.read("not_found", absence)?;
    let terms = LookupTerms {
        lag: t.read("lag", |v| v.duration(Duration::ZERO))?.unwrap_or(known.max(Duration::from_secs(120))),
        authoritative: t.read("authoritative", Value::flag)?.unwrap_or(false),
        ..LookupTerms::default()
    };
    if let Some(value) = t.get("authoritative")
        && terms.authoritative
        && not_found.is_none()
        && !reply.lists()
    {
        return Err(value.error(
            "this look-up asks for one object, and a 404 says that there is none: so does a gateway that knows no such path. \
             Add not_found = { status = 404, code = \"/error/code\", is = \"…\" } with the provider's own words for it (or \
             { status = 200 } where it answers with null), ask for a list, or take this out",
        ));
    }
    Ok((Lookup { path: path(&path_value, Builtin::IN_REQUEST)?, reply, not_found }, terms))
}

/// The fields that say how an answer is read: the same in `reply` and in `lookup`.
fn reading(t: &super::walk::Table) -> Result<Reply, ConfigError> {
    let list = |name: &str| -> Result<Vec<String>, ConfigError> {
        let Some(value) = t.get(name) else { return Ok(Vec::new()) };
        if t.get("status").is_none() {
            return Err(value.error("a list of values needs status = \"/…\": where the status stands"));
        }
        value.items()?.iter().map(Value::scalar).collect()
    };
    let (settled, pending, rejected) = (list("settled")?, list("pending")?, list("rejected")?);
    for (name, values, others) in
        [("pending", &pending, [&settled, &rejected]), ("rejected", &rejected, [&settled, &pending])]
    {
        if let Some(value) = values.iter().find(|v| others.iter().any(|other| other.contains(v)))
            && let Some(place) = t.get(name)
        {
            return Err(place.error(format!("{value:?} stands in two lists: a status has one meaning")));
        }
    }
    let amount_major = match t.get("amount_unit") {
        Some(unit) if t.get("amount").is_none() => {
            return Err(unit.error("this needs amount = \"/…\": where the amount stands"));
        }
        Some(unit) => unit.word(&[("major", true), ("minor", false)])?,
        None => false,
    };
    let pointer = |name: &str| t.read(name, Value::pointer);
    let reply = Reply {
        reference: pointer("reference")?,
        amount: pointer("amount")?,
        amount_major,
        currency: pointer("currency")?,
        key: pointer("key")?,
        status: pointer("status")?,
        settled,
        pending,
        rejected,
    };
    in_one_list(t, &reply)?;
    Ok(reply)
}

/// Every `*` stands in the list that the status (or the first pointer there is) stands in, and nothing else names one
/// element of that list.
fn in_one_list(t: &super::walk::Table, reply: &Reply) -> Result<(), ConfigError> {
    let Some(spine) = reply.spine() else { return Ok(()) };
    let spine_parts: Vec<&str> = spine.split('/').collect();
    for name in ["reference", "amount", "currency", "key"] {
        let Some(value) = t.get(name) else { continue };
        let pointer = value.pointer()?;
        let mut together = true;
        for (at, part) in pointer.split('/').enumerate() {
            let other = spine_parts.get(at).copied();
            if together
                && other != Some(part)
                && [part, other.unwrap_or_default()].contains(&"*")
                && is_element(part)
            {
                return Err(value.error(format!(
                    "this and {spine} name the elements of one list in two ways: write * in both"
                )));
            }
            together &= other == Some(part);
            if part == "*" && !together {
                return Err(value.error(format!(
                    "a * reads the list that {spine} stands in, and this is another one: name the element by its number"
                )));
            }
        }
    }
    Ok(())
}

/// `not_found = { … }`
fn absence(value: &Value) -> Result<Absence, ConfigError> {
    let t = value.table(&["status", "code", "is"])?;
    let named = t.need("status", "the status of the answer that says so, such as 404")?;
    let status = named.whole(200, 499)? as u16;
    if status != 200 && (status < 400 || [401, 407, 408, 425, 429].contains(&status)) {
        return Err(named.error(format!("{status} never says that there is nothing: 404 does, or 200")));
    }
    let code = match (t.get("code"), t.get("is")) {
        (Some(at), Some(is)) => Some(BodyCode { at: at.pointer()?, is: is.scalar()?, part: false }),
        (None, None) if status == 200 => None,
        (None, None) => {
            return Err(named.error(format!(
                "any gateway answers {status} too: add code = \"/…\" and is = \"…\", where and what the provider's own error says"
            )));
        }
        _ => return Err(t.error("code goes with is: where the error's code stands, and its value")),
    };
    Ok(Absence { status, code })
}
