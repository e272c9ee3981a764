//! The body of a request, as the config draws it: a TOML value whose strings are templates.
//!
//! A string that is one placeholder and nothing else takes over the field's JSON value, type and digits included;
//! any other string becomes text. Members keep the order in which they were written, so that a body looks in the log
//! the way it looks in the config. Invariant: what is rendered nests no deeper than [`DEPTH`].

use super::template::{self, Builtin, Template, Values};
use crate::json::{DEPTH, Json};
use std::ops::Range;
use toml::Spanned;
use toml::de::DeValue;

/// A parsed body.
#[derive(Clone, PartialEq, Debug)]
pub struct BodyTemplate(Node);

#[derive(Clone, PartialEq, Debug)]
enum Node {
    Fixed(Json),
    Text(Template),
    Array(Vec<Node>),
    Object(Vec<(String, Node)>),
}

/// What is wrong with a body: the byte range in the config, the names that lead there, the message.
#[derive(Debug)]
pub(super) struct BodyError {
    pub(super) span: Range<usize>,
    pub(super) at: String,
    pub(super) message: String,
}

impl BodyTemplate {
    /// Reads a body from its TOML value.
    pub(super) fn read(value: &Spanned<DeValue<'_>>) -> Result<BodyTemplate, BodyError> {
        Node::read(value, "", 1, &filled).map(BodyTemplate)
    }

    /// Whether it can become an object, which is what a form needs.
    pub(super) fn may_be_object(&self) -> bool {
        match &self.0 {
            Node::Object(_) => true,
            Node::Text(template) => template.only_place().is_some(),
            Node::Fixed(_) | Node::Array(_) => false,
        }
    }

    /// Fills the body in. The error names the field that is missing, or that is no scalar inside other text.
    pub fn render(&self, values: &Values) -> Result<Json, String> {
        self.0.render(values, 1)
    }
}

/// Reads a TOML value as the JSON that it says, its strings as they stand.
pub(super) fn as_it_stands(value: &Spanned<DeValue<'_>>) -> Result<Json, BodyError> {
    let fixed = |text: &str| {
        template::as_it_stands(text)?;
        Ok(Node::Fixed(Json::String(text.to_string())))
    };
    Node::read(value, "", 1, &fixed).map(Node::unfilled)
}

/// A string of a body: a template.
fn filled(text: &str) -> Result<Node, String> {
    let template = Template::parse(text, Builtin::IN_REQUEST)?;
    Ok(match template.fixed() {
        Some(fixed) => Node::Fixed(Json::String(fixed.to_string())),
        None => Node::Text(template),
    })
}

impl Node {
    fn read(
        value: &Spanned<DeValue<'_>>,
        at: &str,
        depth: usize,
        string: &dyn Fn(&str) -> Result<Node, String>,
    ) -> Result<Node, BodyError> {
        let fail = |message: String| BodyError { span: value.span(), at: at.to_string(), message };
        if depth > DEPTH {
            return Err(fail(format!("nested more than {DEPTH} deep")));
        }
        match value.get_ref() {
            DeValue::String(text) => string(text).map_err(fail),
            DeValue::Integer(number) if number.radix() == 10 => literal(number.as_str()).map_err(fail),
            DeValue::Integer(number) => Err(fail(format!("{number} must be written in decimal digits"))),
            DeValue::Float(number) => literal(number.as_str()).map_err(fail),
            DeValue::Boolean(flag) => Ok(Node::Fixed(Json::Bool(*flag))),
            DeValue::Datetime(time) => Err(fail(format!("JSON has no dates: write \"{time}\" in quotes"))),
            DeValue::Array(items) => items
                .iter()
                .enumerate()
                .map(|(i, item)| Node::read(item, &format!("{at}.{i}"), depth + 1, string))
                .collect::<Result<_, _>>()
                .map(Node::Array),
            DeValue::Table(table) => {
                let mut members: Vec<_> = table.iter().collect();
                members.sort_by_key(|(name, _)| name.span().start);
                members
                    .into_iter()
                    .map(|(name, member)| {
                        let name = name.get_ref().to_string();
                        template::as_it_stands(&name).map_err(fail)?;
                        Node::read(member, &format!("{at}.{name}"), depth + 1, string)
                            .map(|node| (name, node))
                    })
                    .collect::<Result<_, _>>()
                    .map(Node::Object)
            }
        }
    }

    /// The JSON with every template as its own text.
    fn unfilled(self) -> Json {
        match self {
            Node::Fixed(json) => json,
            Node::Text(template) => Json::String(template.text().to_string()),
            Node::Array(items) => Json::Array(items.into_iter().map(Node::unfilled).collect()),
            Node::Object(members) => {
                Json::Object(members.into_iter().map(|(name, node)| (name, node.unfilled())).collect())
            }
        }
    }

    fn render(&self, values: &Values, depth: usize) -> Result<Json, String> {
        match self {
            Node::Fixed(json) => Ok(json.clone()),
            Node::Text(template) => match template.only_place() {
                Some(place) => {
                    let json = place.json(values)?.into_owned();
                    // A payload may nest to the limit by itself, and stands below other levels here.
                    if depth - 1 + levels(&json) > DEPTH {
                        return Err(format!("{place} makes the body nest more than {DEPTH} deep"));
                    }
                    Ok(json)
                }
                None => template.render_text(values).map(Json::String),
            },
            Node::Array(items) => {
                items.iter().map(|n| n.render(values, depth + 1)).collect::<Result<_, _>>().map(Json::Array)
            }
            Node::Object(members) => members
                .iter()
                .map(|(name, node)| Ok((name.clone(), node.render(values, depth + 1)?)))
                .collect::<Result<_, String>>()
                .map(Json::Object),
        }
    }
}

/// A TOML number as JSON, digits as written. `inf`, `nan` and the like are no JSON.
fn literal(text: &str) -> Result<Node, String> {
    let digits = text.strip_prefix('+').unwrap_or(text);
    match Json::parse(digits) {
        Ok(number @ Json::Number(_)) => Ok(Node::Fixed(number)),
        _ => Err(format!("{text} is not a number in JSON")),
    }
}

/// How many arrays and objects stand one inside the other.
fn levels(json: &Json) -> usize {
    match json {
        Json::Array(items) => 1 + items.iter().map(levels).max().unwrap_or(0),
        Json::Object(members) => 1 + members.iter().map(|(_, v)| levels(v)).max().unwrap_or(0),
        Json::Null | Json::Bool(_) | Json::Number(_) | Json::String(_) => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use toml::de::DeTable;

    fn body(toml: &str) -> Result<BodyTemplate, BodyError> {
        let table = DeTable::parse(toml).unwrap();
        BodyTemplate::read(table.get_ref().get("body").unwrap())
    }

    fn render(toml: &str, payload: &str) -> Result<String, String> {
        let payload = Json::parse(payload).unwrap();
        let values = Values {
            payload: &payload,
            key: Some("k:1"),
            wire_key: Some("w"),
            account: None,
            amount_minor: Some(1250),
            currency: Some("EUR"),
            reference: None,
        };
        body(toml).unwrap().render(&values).map(|json| json.to_text())
    }

    #[test]
    fn a_lone_placeholder_keeps_the_json_type_and_every_digit() {
        let toml = r#"body = { n = "{n}", o = "{o}", z = "{z}", m = "{$amount_minor}", d = "{$amount_major}", t = "n {n}" }"#;
        let payload = r#"{"n":0.1000,"o":{"x":[1970670598291982290]},"z":null}"#;
        assert_eq!(
            render(toml, payload).as_deref(),
            Ok(
                r#"{"n":0.1000,"o":{"x":[1970670598291982290]},"z":null,"m":1250,"d":"12.50","t":"n 0.1000"}"#
            )
        );
    }

    #[test]
    fn members_keep_their_order_and_numbers_their_digits() {
        let toml =
            "body = { z = 1.50, a = [+7, true, \"x{{y}}\"], m = { b = 1e3, a = 12345678901234567890 } }";
        assert_eq!(
            render(toml, "{}").as_deref(),
            Ok(r#"{"z":1.50,"a":[7,true,"x{y}"],"m":{"b":1e3,"a":12345678901234567890}}"#)
        );
    }

    #[test]
    fn a_missing_field_is_named_and_null_is_no_text() {
        assert_eq!(render(r#"body = { a = "{x.y}" }"#, "{}"), Err("the payload has no field {x.y}".into()));
        assert_eq!(render(r#"body = { a = "n {x}" }"#, r#"{"x":null}"#), Err("{x} is null".into()));
        assert_eq!(render(r#"body = { a = "n{x}" }"#, r#"{"x":""}"#).as_deref(), Ok(r#"{"a":"n"}"#));
    }

    #[test]
    fn what_json_cannot_say_is_refused() {
        for bad in
            ["body = { a = { b = inf } }", "body = { a = { b = 0x10 } }", "body = { a = { b = 2026-11-29 } }"]
        {
            assert_eq!(body(bad).unwrap_err().at, ".a.b", "{bad}");
        }
        assert!(body(r#"body = "{$reference}""#).unwrap_err().message.contains("no value here"));
    }

    #[test]
    fn a_deep_payload_in_a_deep_body_stays_within_the_limit() {
        let deep = |n: usize| format!(r#"{{"a":{}{}}}"#, "[".repeat(n), "]".repeat(n));
        assert!(render(r#"body = [["{a}"]]"#, &deep(62)).is_ok());
        assert!(render(r#"body = [["{a}"]]"#, &deep(63)).unwrap_err().contains("64 deep"));
    }
}
