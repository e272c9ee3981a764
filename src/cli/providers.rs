//! `providers`: what is known of each provider's promises, from where, and how surely.

use super::{CliError, Context, Opened};
use crate::config::{BodyCode, Config, Fact, KeyPlace, KeyRule, Profile, StatusRule, Template};
use crate::job::{Code, Refusal};
use comfy_table::{ContentArrangement, Table, presets};
use serde_json::{Value, json};
use std::fmt::Write;
use std::time::Duration;

/// All built-in profiles, or one of them, or a provider of the config with all that it overrides.
pub fn run(context: &Context, name: Option<&str>) -> Result<(), CliError> {
    let Some(name) = name else { return list(context) };
    if let Some(profile) = Profile::builtin(name) {
        return context.out.result(&view(&profile, None), || tell(&profile, None));
    }
    let opened = Config::find(context.config.as_deref()).ok().map(|file| Config::load(&file)).transpose()?;
    let opened = opened.map(Opened::new);
    let provider = opened.as_ref().and_then(|opened| opened.config.providers.get(name));
    let Some(provider) = provider else {
        let names = Profile::builtin_names().join(", ");
        let why = format!("`{name}` is neither a profile ({names}) nor a provider of the config");
        return Err(Refusal::new(Code::NotFound, why).into());
    };
    context.out.result(&view(&provider.profile, Some(name)), || tell(&provider.profile, Some(name)))
}

fn list(context: &Context) -> Result<(), CliError> {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(["PROFILE", "FAMILY", "KEY", "WINDOW", "WHAT IT PROMISES"]);
    for profile in Profile::builtin_names().into_iter().filter_map(Profile::builtin) {
        if context.out.is_json() {
            context.out.result(&view(&profile, None), String::new)?;
            continue;
        }
        let window = profile.window.map_or("-".into(), span);
        let family = family(&profile);
        table.add_row([profile.name.clone(), family, profile.key.to_string(), window, profile.summary]);
    }
    context.out.text(table.trim_fmt().trim_end())
}

fn family(profile: &Profile) -> String {
    format!("{:?}", profile.family)
}

fn view(profile: &Profile, provider: Option<&str>) -> Value {
    let rules: Vec<Value> = profile.statuses.iter().map(rule).collect();
    let facts: Vec<Value> = profile
        .facts
        .iter()
        .map(|f| {
            json!({"about": f.about.as_str(), "what": f.what, "source": f.source, "certainty": f.certainty.as_str()})
        })
        .collect();
    let duplicate = profile.duplicate.as_ref().map(
        |d| json!({"status": d.status, "code": d.code, "is": d.is, "reference": d.reference, "link": d.link, "path": d.path.as_ref().map(Template::text)}),
    );
    let replay = profile.replay.as_ref().map(|r| json!({"header": r.header, "value": r.value}));
    let mut view = json!({
        "profile": profile.name,
        "summary": profile.summary,
        "family": family(profile),
        "external": profile.external,
        "key": key(&profile.key, &profile.key_rule),
        "raw_key": profile.raw_key,
        "window": profile.window.map(span),
        "scope": profile.scope.as_str(),
        "statuses": rules,
        "replay": replay,
        "duplicate": duplicate,
        "should_retry": profile.should_retry,
        "transient": profile.transient,
        "retry_after_ms": profile.retry_after_ms,
        "reset": profile.reset,
        "lookup_lag": profile.lookup_lag.map(span),
        "signed": profile.signed,
        "facts": facts,
    });
    if let (Some(provider), Value::Object(members)) = (provider, &mut view) {
        members.insert("provider".into(), provider.into());
    }
    view
}

fn key(place: &KeyPlace, rule: &KeyRule) -> Option<Value> {
    let (at, name, quoted) = match place {
        KeyPlace::Header { name, quoted } => ("header", name, *quoted),
        KeyPlace::Body { pointer } => ("body", pointer, false),
        KeyPlace::Query { name } => ("query", name, false),
        KeyPlace::None => return None,
    };
    let chars = rule.chars.as_str();
    Some(json!({"in": at, "name": name, "quoted": quoted, "min": rule.min, "max": rule.max, "chars": chars}))
}

fn rule(rule: &StatusRule) -> Value {
    let code = |part: bool| rule.code.as_ref().filter(|c| c.part == part).map(|c| &c.is);
    json!({
        "status": rule.status.to_string(),
        "at": rule.code.as_ref().map(|c| &c.at),
        "is": code(false),
        "contains": code(true),
        "class": rule.class.as_str(),
        "doubt": rule.doubt,
        "disable": rule.disable,
    })
}

fn tell(profile: &Profile, provider: Option<&str>) -> String {
    let mut out = match provider {
        Some(name) => format!("{name}, by the profile {}\n", profile.name),
        None => format!("{}\n", profile.name),
    };
    let mut line = |name: &str, value: Option<String>| {
        if let Some(value) = value.filter(|v| !v.is_empty()) {
            // Writing to a string cannot fail.
            let _ = writeln!(out, "  {name:<13} {value}");
        }
    };
    let keyed = profile.key != KeyPlace::None;
    line("promises", Some(profile.summary.clone()));
    line("family", Some(family(profile)));
    line("key", Some(profile.key.to_string()));
    line("takes", keyed.then(|| profile.key_rule.to_string()));
    line("sent as", keyed.then(|| if profile.raw_key { "the job's own key" } else { "a UUID" }.to_string()));
    line("window", keyed.then(|| profile.window.map_or("for ever".into(), span)));
    line("scope", keyed.then(|| profile.scope.to_string()));
    line("replay", profile.replay.as_ref().map(|r| format!("{}: {}", r.header, r.value)));
    line("should retry", profile.should_retry.clone());
    line("transient", profile.transient.clone());
    line("retry after", profile.retry_after_ms.as_ref().map(|h| format!("{h} (milliseconds)")));
    line("limit lifted", profile.reset.clone());
    line("look-up lag", profile.lookup_lag.map(span));
    line("signed", profile.signed.then(|| "as Standard Webhooks says".into()));
    if let Some(d) = &profile.duplicate {
        line(
            "duplicate",
            Some(format!("{} where {} is {:?}: fetch what {} names", d.status, d.code, d.is, d.reference)),
        );
    }
    let code =
        |c: &BodyCode| format!(" where {} {} {:?}", c.at, if c.part { "contains" } else { "is" }, c.is);
    for rule in &profile.statuses {
        let more = match (rule.doubt, rule.disable) {
            (true, _) => ", and may have had an effect",
            (_, true) => ", and the provider is paused until a person resumes it",
            (false, false) => "",
        };
        let code = rule.code.as_ref().map(code).unwrap_or_default();
        line("status", Some(format!("{}{code}: {}{more}", rule.status, rule.class)));
    }
    for Fact { about, what, source, certainty } in &profile.facts {
        let _ = writeln!(out, "  {about}: {what}\n    {certainty}: {source}");
    }
    out.trim_end().to_string()
}

/// A time as it is written in a config.
fn span(time: Duration) -> String {
    let ms = time.as_millis();
    match ms {
        ms if ms % 1000 != 0 => format!("{ms}ms"),
        ms if ms % 60_000 != 0 => format!("{}s", ms / 1000),
        ms if ms % 3_600_000 != 0 => format!("{}m", ms / 60_000),
        ms if ms % 86_400_000 != 0 || ms == 86_400_000 => format!("{}h", ms / 3_600_000),
        ms => format!("{}d", ms / 86_400_000),
    }
}
