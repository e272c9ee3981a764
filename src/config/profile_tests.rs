//! Profiles as a config writes and bends them: what is taken, and the place of what is refused.

use super::*;
use crate::job::Code;
use std::path::Path;

const OWN: &str = r#"
[profiles.lender]
family = "B"
key = { header = "X-Request-Id", max = 64 }
window = "48h"
statuses = [{ status = 409, at = "/code", is = "busy", class = "in_progress" }]
[providers.bank]
profile = "lender"
base_url = "https://x"
[kinds.pay]
provider = "bank"
key = "pay:{id}"
request = { path = "/pay" }
"#;

fn parse(text: &str) -> Result<Config, ConfigError> {
    Config::parse(text, Path::new("onceward.toml"))
}

/// Puts `with` in the place of `this`; the error must be about this field, on the line where `with` stands.
#[track_caller]
fn refused(this: &str, with: &str, field: &str, message: &str) {
    assert!(OWN.contains(this), "{this}");
    let text = OWN.replacen(this, with, 1);
    let e = parse(&text).err().unwrap_or_else(|| panic!("{with} was taken"));
    assert_eq!(e.field, field, "{e}");
    assert!(e.message.contains(message), "{e}");
    let line = OWN[..OWN.find(this).unwrap()].matches('\n').count() + 1;
    assert_eq!(e.line, Some(line), "{e}");
}

#[test]
fn a_profile_of_ones_own_is_read_with_the_fields_of_the_built_in_ones() {
    let config = parse(OWN).unwrap();
    let profile = &config.providers["bank"].profile;
    assert_eq!((profile.name.as_str(), profile.key_rule.max), ("lender", Some(64)));
    assert_eq!(profile.window, Some(Duration::from_secs(172_800)));
    assert_eq!(profile.statuses[0].class, crate::outcome::Class::InProgress);
    assert_eq!(config.kinds["pay"].terms.window, profile.window);
}

#[test]
fn a_profile_that_contradicts_itself_is_refused_at_its_place() {
    let key = "key = { header = \"X-Request-Id\", max = 64 }";
    refused("family = \"B\"", "family = \"F\"", "profiles.lender.family", "\"F\" is not one of");
    refused(key, "key = { max = 64 }", "profiles.lender.key", "where the key goes");
    refused(
        key,
        "key = { header = \"X\", min = 9, max = 8 }",
        "profiles.lender.key",
        "at least 9 and at most 8",
    );
    refused(key, "key = { header = \"X\", chars = \"hex\" }", "profiles.lender.key.chars", "\"token\"");
    refused(key, "keys = { header = \"X\" }", "profiles.lender.keys", "did you mean key?");
    refused("409, at", "200, at", "profiles.lender.statuses.0.status", "from 300 to 599");
    refused("409, at", "\"9xx\", at", "profiles.lender.statuses.0.status", "\"4xx\"");
    refused("in_progress", "not_sent", "profiles.lender.statuses.0.class", "no meaning of a status");
    refused(", is = \"busy\"", "", "profiles.lender.statuses.0", "is and contains");
    refused(
        "class = \"in_progress\"",
        "class = \"rejected\", doubt = true",
        "profiles.lender.statuses.0.doubt",
        "throttled",
    );
    refused(
        "class = \"in_progress\"",
        "class = \"throttled\", disable = true",
        "profiles.lender.statuses.0.disable",
        "rejected",
    );
    refused("profile = \"lender\"", "profile = \"lendr\"", "providers.bank.profile", "did you mean lender?");
    refused("[profiles.lender]", "[profiles.stripe]", "profiles.stripe", "built-in");
}

#[test]
fn a_family_and_its_key_belong_together() {
    let forgets = OWN.replacen("family = \"B\"", "family = \"E\"", 1);
    let e = parse(&forgets).unwrap_err();
    assert_eq!((e.field.as_str(), e.line), ("profiles.lender", Some(2)), "{e}");
    let keyless = OWN.replacen("key = { header = \"X-Request-Id\", max = 64 }", "", 1);
    let e = parse(&keyless).unwrap_err();
    assert!(e.message.contains("where does the key go"), "{e}");
}

#[test]
fn keys_that_a_provider_would_refuse_are_refused_where_the_config_asks_for_them() {
    let profile = |name: &str, idempotency: &str| {
        parse(&format!(
            "[providers.p]\nprofile = '{name}'\nbase_url = 'https://x'\nidempotency = {{ {idempotency} }}\n"
        ))
    };
    for (name, idempotency, why) in [
        ("razorpay", "raw = true", "letters, digits"),
        ("wise", "raw = true", "nothing but a UUID"),
        ("brevo", "raw = true", "nothing but a UUID"),
        ("standard-webhooks", "raw = true", "letters, digits"),
        ("generic", "raw = true, max = 11", "room for its generation"),
        ("generic", "max = 35", "UUIDs of 36 characters"),
        ("generic", "min = 40", "UUIDs of 36 characters"),
        ("none", "raw = true", "no key is sent"),
    ] {
        let text = if name == "standard-webhooks" { "chars = 'token', raw = true" } else { idempotency };
        let e = profile(name, text).err().unwrap_or_else(|| panic!("{name} {idempotency} was taken"));
        // A signed provider is refused for its missing secret later; its keys come first.
        assert_eq!((e.field.as_str(), e.line), ("providers.p.idempotency", Some(4)), "{e}");
        assert!(e.message.contains(why), "{e}");
    }
    for fits in ["raw = true", "max = 36", "min = 36", "raw = true, chars = 'ascii', max = 64"] {
        assert!(profile("generic", fits).is_ok(), "{fits}");
    }
    // The template's own text shows it before any job is asked for.
    let raw = OWN.replacen("base_url", "idempotency = { raw = true, max = 20 }\nbase_url", 1);
    let e = parse(&raw.replacen("pay:{id}", "pay me {id}", 1)).unwrap_err();
    assert_eq!((e.field.as_str(), e.line), ("kinds.pay.key", Some(13)), "{e}");
    assert!(e.message.contains("' '"), "{e}");
    let e = parse(&raw.replacen("pay:{id}", "payment-order:{id}", 1)).unwrap_err();
    assert!(e.message.contains("longer than 9"), "{e}");
}

/// R09's kind: what only the value shows is refused at the door, before anything is stored.
#[test]
fn a_raw_key_that_does_not_fit_is_refused_when_the_job_is_asked_for() {
    let raw = OWN.replacen("base_url", "idempotency = { raw = true, max = 24 }\nbase_url", 1);
    let config = parse(&raw).unwrap();
    let ask = |id: &str| {
        let payload = format!("{{\"id\":\"{id}\"}}");
        let request = Request { kind: "pay".into(), payload, ..Request::default() };
        config.prepare(request)
    };
    assert!(ask("123456789").is_ok());
    for id in ["1234567890", "ü", "a b"] {
        let refusal = ask(id).unwrap_err();
        assert_eq!(refusal.code, Code::Invalid, "{id}");
        assert!(refusal.message.contains("as it is"), "{}", refusal.message);
    }
}

#[test]
fn signing_secrets_belong_to_profiles_that_sign() {
    let shop = |more: &str| {
        parse(&format!("[providers.shop]\nprofile = 'standard-webhooks'\nbase_url = 'https://x'\n{more}\n"))
    };
    let e = shop("").unwrap_err();
    assert_eq!(e.field, "providers.shop.signing", "{e}");
    for (signing, why) in [
        ("signing = []", "one secret, or two"),
        ("signing = [{ env = 'A' }, { env = 'B' }, { env = 'C' }]", "one secret, or two"),
        ("signing = ['whsec_hunter2']", "may not stand in the config"),
    ] {
        let e = shop(signing).unwrap_err();
        assert!(e.message.contains(why) && !e.to_string().contains("hunter2"), "{e}");
        assert_eq!(e.line, Some(4), "{e}");
    }
    for elsewhere in ["query = 'id'", "header = 'X-Id'", "quoted = true"] {
        let e = shop(&format!("signing = [{{ env = 'A' }}]\nidempotency = {{ {elsewhere} }}")).unwrap_err();
        assert!(e.message.contains("webhook-id"), "{e}");
        assert_eq!(e.line, Some(5), "{e}");
    }
    let config = shop("signing = [{ env = 'ONCEWARD_TEST_NOT_SET' }]").unwrap();
    assert_eq!(config.missing_secrets()[0].field, "providers.shop.signing.0");
    let e = parse("[providers.p]\nprofile = 'generic'\nbase_url = 'https://x'\nsigning = [{ env = 'A' }]\n");
    assert!(e.unwrap_err().message.contains("not signed"));
}

#[test]
fn a_look_up_waits_at_least_for_what_the_profile_knows_of_the_providers_lists() {
    let lag = |profile: &str, lag: &str| {
        let text = format!(
            "[providers.p]\nprofile = '{profile}'\nbase_url = 'https://x'\n[kinds.k]\nprovider = 'p'\n\
             request = {{ path = '/p' }}\nlookup = {{ path = '/l'{lag} }}\n"
        );
        parse(&text).unwrap().kinds["k"].terms.lookup.unwrap().lag.as_secs()
    };
    assert_eq!(lag("stripe", ""), 3600);
    assert_eq!(lag("generic", ""), 120);
    assert_eq!(lag("stripe", ", lag = '5m'"), 300, "the config's own word");
}
