//! Makes requests: the frozen one from a kind's templates, and the addresses of look-ups and fetches.

use crate::config::{
    Auth, Builtin, Duplicate, Encoding, KeyPlace, Kind, Lookup, Provider, RESERVED_HEADERS, RequestTemplate,
    Values,
};
use crate::intent::{Frozen, Intent};
use crate::job::Job;
use crate::json::Json;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// All that RFC 3986 does not call unreserved.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Renders the request of the intent's present generation. What is returned is what is stored and sent, byte for byte.
pub fn freeze(kind: &Kind, provider: &Provider, job: &Job, intent: &Intent) -> Result<Frozen, String> {
    let template = kind.request.as_ref().ok_or_else(|| format!("the kind {} has no request", kind.name))?;
    let text = job.payload.as_deref().ok_or("the payload was pruned: nothing can be sent any more")?;
    let payload = Json::parse(text).map_err(|e| format!("the payload is not JSON: {e}"))?;
    let values = values(&payload, job, intent);

    let mut path = checked_path(template.path.render_path(&values)?)?;
    if let KeyPlace::Query { name } = &provider.profile.key {
        let sign = if path.contains('?') { '&' } else { '?' };
        path = format!("{path}{sign}{}={}", escaped(name), escaped(&intent.wire_key));
    }
    let body = body(template, provider, text, &values, &intent.wire_key)?;
    Ok(Frozen {
        method: template.method.clone(),
        path,
        headers: headers(template, provider, &values, &intent.wire_key, !body.is_empty())?,
        body,
        lookup_path: kind.lookup.as_ref().map(|l| checked_path(l.path.render_path(&values)?)).transpose()?,
    })
}

/// A question alone, about a request that was never made.
pub fn question(
    kind: &Kind,
    provider: &Provider,
    lookup: &Lookup,
    job: &Job,
    intent: &Intent,
) -> Result<Frozen, String> {
    let payload = Json::parse(job.payload.as_deref().unwrap_or("{}"))?;
    let values = values(&payload, job, intent);
    let headers = match &kind.request {
        Some(template) => headers(template, provider, &values, &intent.wire_key, false)?,
        None => Vec::new(),
    };
    let lookup_path = Some(checked_path(lookup.path.render_path(&values)?)?);
    Ok(Frozen { headers, lookup_path, ..Frozen::default() })
}

/// The look-up's path, as it was frozen; for a generation frozen before the kind had a look-up, as it would be now.
pub fn lookup_path(kind: &Kind, job: &Job, intent: &Intent, frozen: &Frozen) -> Result<String, String> {
    if let Some(path) = &frozen.lookup_path {
        return Ok(path.clone());
    }
    let lookup = kind.lookup.as_ref().ok_or_else(|| format!("the kind {} has no look-up", kind.name))?;
    let text = job.payload.as_deref().ok_or("the payload was pruned: the look-up cannot be made")?;
    let payload = Json::parse(text).map_err(|e| format!("the payload is not JSON: {e}"))?;
    checked_path(lookup.path.render_path(&values(&payload, job, intent))?)
}

/// Where the object that a duplicate's error named is fetched.
pub fn fetch_path(
    duplicate: Option<&Duplicate>,
    job: &Job,
    intent: &Intent,
    frozen: &Frozen,
    reference: &str,
) -> Result<String, String> {
    // Encoding leaves dots alone, and a dot segment would lead elsewhere.
    if matches!(reference, "" | "." | "..") {
        return Err(format!("the provider named the object `{reference}`, which is no id"));
    }
    let path = match duplicate.and_then(|d| d.path.as_ref()) {
        Some(path) => {
            let payload = job.payload.as_deref().map(Json::parse).transpose();
            let payload = payload.map_err(|e| format!("the payload is not JSON: {e}"))?.unwrap_or(Json::Null);
            path.render_path(&Values { reference: Some(reference), ..values(&payload, job, intent) })?
        }
        None => {
            let own = frozen.path.split('?').next().unwrap_or_default();
            format!("{}/{}", own.trim_end_matches('/'), escaped(reference))
        }
    };
    checked_path(path)
}

/// The headers of a question about a request: the request's own (a version, an account), without those that belong to
/// its body or carry its key.
pub fn question_headers(
    frozen: &Frozen,
    kind: &Kind,
    provider: &Provider,
    wire_key: &str,
) -> Vec<(String, String)> {
    let of_key = |name: &str| {
        let own = kind.request.iter().flat_map(|request| &request.headers);
        own.into_iter().any(|(n, value)| n.eq_ignore_ascii_case(name) && value.has(Builtin::KEYS))
    };
    let key_header = match &provider.profile.key {
        KeyPlace::Header { name, .. } => name.as_str(),
        KeyPlace::Body { .. } | KeyPlace::Query { .. } | KeyPlace::None => "",
    };
    let keep = |name: &str, value: &str| {
        !name.eq_ignore_ascii_case("content-type")
            && !name.eq_ignore_ascii_case(key_header)
            && !of_key(name)
            && value != wire_key
    };
    frozen.headers.iter().filter(|(n, v)| keep(n, v)).cloned().collect()
}

fn values<'a>(payload: &'a Json, job: &'a Job, intent: &'a Intent) -> Values<'a> {
    Values {
        payload,
        key: Some(job.key.as_str()),
        wire_key: Some(&intent.wire_key),
        account: intent.account.as_deref(),
        amount_minor: intent.amount_minor,
        currency: intent.currency.as_deref(),
        reference: None,
    }
}

fn headers(
    template: &RequestTemplate,
    provider: &Provider,
    values: &Values<'_>,
    wire_key: &str,
    has_body: bool,
) -> Result<Vec<(String, String)>, String> {
    let mut headers: Vec<(String, String)> = Vec::new();
    let fixed = |name: &str| template.headers.iter().any(|(n, _)| n.eq_ignore_ascii_case(name));
    let content_type = match template.encoding {
        Encoding::Json => Some("application/json"),
        Encoding::Form => Some("application/x-www-form-urlencoded"),
        Encoding::None => None,
    };
    if let Some(content_type) = content_type.filter(|_| has_body && !fixed("content-type")) {
        headers.push(("Content-Type".into(), content_type.into()));
    }
    if !fixed("accept") {
        headers.push(("Accept".into(), "application/json".into()));
    }
    if let KeyPlace::Header { name, quoted } = &provider.profile.key {
        if fixed(name) {
            return Err(format!("the header {name} carries the key: take it out of request.headers"));
        }
        headers.push((name.clone(), key_value(wire_key, *quoted)?));
    }
    let of_auth = |name: &str| matches!(&provider.auth, Some(Auth::Header { name: own, .. }) if own.eq_ignore_ascii_case(name));
    for (name, value) in &template.headers {
        if of_auth(name) || RESERVED_HEADERS.iter().any(|r| name.eq_ignore_ascii_case(r)) {
            return Err(format!(
                "the header {name} cannot be a fixed one: it is set by onceward, or belongs into `auth`"
            ));
        }
        let value = value.render_header(values).map_err(|e| format!("request.headers.{name}: {e}"))?;
        headers.push((name.clone(), value));
    }
    Ok(headers)
}

/// The key as a header's value. A raw key may have any character; a header takes visible ASCII.
fn key_value(wire_key: &str, quoted: bool) -> Result<String, String> {
    if !wire_key.chars().all(|c| c.is_ascii_graphic() || c == ' ') {
        return Err(
            "the key has characters that a header cannot carry: use a key of ASCII, or not raw_key".into()
        );
    }
    Ok(match quoted {
        true => format!("\"{}\"", wire_key.replace('\\', "\\\\").replace('"', "\\\"")),
        false => wire_key.to_string(),
    })
}

/// The body's bytes. Without a template they are the payload's own, as the app gave them.
fn body(
    template: &RequestTemplate,
    provider: &Provider,
    payload: &str,
    values: &Values<'_>,
    wire_key: &str,
) -> Result<Vec<u8>, String> {
    let pointer = match &provider.profile.key {
        KeyPlace::Body { pointer } => Some(pointer.as_str()),
        KeyPlace::Header { .. } | KeyPlace::Query { .. } | KeyPlace::None => None,
    };
    if template.encoding == Encoding::None || template.method == "GET" {
        return match pointer {
            Some(_) => Err("the provider wants the key in the body, and the request has none".into()),
            None => Ok(Vec::new()),
        };
    }
    let mut doc = match (&template.body, pointer, template.encoding) {
        (None, None, Encoding::Json) => return Ok(payload.as_bytes().to_vec()),
        (None, _, _) => values.payload.clone(),
        (Some(body), _, _) => body.render(values)?,
    };
    if let Some(pointer) = pointer {
        set(&mut doc, pointer, wire_key)?;
    }
    match template.encoding {
        Encoding::Form => form(&doc).map(String::into_bytes),
        Encoding::Json | Encoding::None => Ok(doc.to_text().into_bytes()),
    }
}

/// Sets the member that a pointer names, making the objects on the way. One that is there already must be the key.
fn set(doc: &mut Json, pointer: &str, key: &str) -> Result<(), String> {
    let tokens: Vec<String> =
        pointer.split('/').skip(1).map(|t| t.replace("~1", "/").replace("~0", "~")).collect();
    let (last, way) =
        tokens.split_last().ok_or_else(|| format!("`{pointer}` names no member of the body"))?;
    let not_object = || format!("the key cannot be put at {pointer}: the body has no object there");
    let mut at = doc;
    for token in way {
        let Json::Object(members) = at else { return Err(not_object()) };
        let index = match members.iter().position(|(n, _)| n == token) {
            Some(index) => index,
            None => {
                members.push((token.clone(), Json::Object(Vec::new())));
                members.len() - 1
            }
        };
        at = &mut members[index].1;
    }
    let Json::Object(members) = at else { return Err(not_object()) };
    match members.iter_mut().find(|(n, _)| n == last) {
        Some((_, value)) if value.scalar().as_deref() == Some(key) => Ok(()),
        Some((_, value @ Json::Null)) => {
            *value = Json::String(key.into());
            Ok(())
        }
        Some(_) => Err(format!("the body has another value at {pointer}, where the provider wants the key")),
        None => {
            members.push((last.clone(), Json::String(key.into())));
            Ok(())
        }
    }
}

/// Form encoding, nested as `a[b]=…` and `a[0]=…`. A null is left out, as forms have none.
pub fn form(doc: &Json) -> Result<String, String> {
    fn walk(value: &Json, name: &str, out: &mut Vec<String>) {
        match value {
            Json::Null => {}
            Json::Object(members) => {
                members.iter().for_each(|(n, v)| walk(v, &format!("{name}[{}]", escaped(n)), out))
            }
            Json::Array(items) => {
                items.iter().enumerate().for_each(|(i, v)| walk(v, &format!("{name}[{i}]"), out))
            }
            scalar => out.push(format!("{name}={}", escaped(&scalar.scalar().unwrap_or_default()))),
        }
    }
    let Json::Object(members) = doc else {
        return Err("a form's body must be an object".into());
    };
    let mut out = Vec::new();
    members.iter().for_each(|(name, value)| walk(value, &escaped(name), &mut out));
    Ok(out.join("&"))
}

fn escaped(text: &str) -> String {
    utf8_percent_encode(text, ESCAPED).to_string()
}

/// A path and query as they may stand in a request line: rooted, visible ASCII, no fragment, no dot segments.
fn checked_path(path: String) -> Result<String, String> {
    if !path.starts_with('/') || path.starts_with("//") {
        return Err(format!("the path `{path}` must begin with one slash"));
    }
    if let Some(bad) = path.chars().find(|c| !c.is_ascii_graphic() || "#\\\"<>{}|^`".contains(*c)) {
        return Err(format!("the path has {bad:?} in it, which a URL cannot carry as it is"));
    }
    let segments = path.split('?').next().unwrap_or_default();
    if segments
        .split('/')
        .any(|s| matches!(s.to_ascii_lowercase().as_str(), "." | ".." | "%2e" | "%2e%2e" | ".%2e" | "%2e."))
    {
        return Err(format!("the path `{path}` has a dot segment in it, which would lead elsewhere"));
    }
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Template;
    use crate::provider::tests::Scene;

    #[test]
    fn forms_nest_with_brackets_and_keep_every_digit() {
        let doc =
            Json::parse(r#"{"amount":12.50,"meta":{"a b":"ü&"},"list":[1,{"x":true}],"none":null}"#).unwrap();
        assert_eq!(form(&doc).unwrap(), "amount=12.50&meta[a%20b]=%C3%BC%26&list[0]=1&list[1][x]=true");
        assert!(form(&Json::Array(Vec::new())).is_err());
    }

    #[test]
    fn the_key_is_put_where_the_pointer_says_and_replaces_nothing() {
        let put = |doc: &str, pointer: &str| {
            let mut doc = Json::parse(doc).unwrap();
            set(&mut doc, pointer, "K").map(|()| doc.to_text())
        };
        assert_eq!(put(r#"{"a":1}"#, "/idempotency_key").unwrap(), r#"{"a":1,"idempotency_key":"K"}"#);
        assert_eq!(put(r#"{"a":1}"#, "/m/k").unwrap(), r#"{"a":1,"m":{"k":"K"}}"#);
        assert_eq!(put(r#"{"k":"K"}"#, "/k").unwrap(), r#"{"k":"K"}"#);
        assert!(put(r#"{"k":"other"}"#, "/k").is_err());
        assert!(put(r#"{"m":1}"#, "/m/k").is_err());
        assert!(put(r#"[]"#, "/k").is_err());
        assert!(put(r#"{}"#, "").is_err());
    }

    #[test]
    fn paths_are_rooted_visible_and_lead_nowhere_else() {
        assert!(checked_path("/v1/payouts?reference=a%3Ab".into()).is_ok());
        for bad in [
            "v1",
            "//evil.example/x",
            "/a b",
            "/a#b",
            "/a\r\nX: y",
            "/ü",
            "/a/../b",
            "/a/%2E%2e/b",
            "/a/.",
            "",
        ] {
            assert!(checked_path(bad.into()).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_named_object_is_fetched_below_the_requests_own_path_or_where_the_config_says() {
        let Scene { job, intent, .. } = Scene::new("http://127.0.0.1:9");
        let frozen = Frozen { path: "/v1/payouts?x=1".into(), ..Frozen::default() };
        let fetch = |path: Option<&str>, id: &str| {
            let duplicate = Duplicate {
                status: 409,
                code: "/c".into(),
                is: "x".into(),
                reference: "/id".into(),
                link: false,
                path: path.map(|p| Template::parse(p, Builtin::IN_FETCH).unwrap()),
            };
            fetch_path(Some(&duplicate), &job, &intent, &frozen, id)
        };
        assert_eq!(fetch(None, "po/1").unwrap(), "/v1/payouts/po%2F1");
        assert!(fetch(None, "..").is_err());
        assert_eq!(fetch(Some("/p/{$reference}?full=1"), "7").unwrap(), "/p/7?full=1");
        assert_eq!(fetch(Some("/p/{amount}/{$key}/{$reference}"), "7").unwrap(), "/p/1250/payout%3AINV-1/7");
        assert!(fetch(Some("/p/{none}/{$reference}"), "7").unwrap_err().contains("{none}"));
    }
}
