//! Behaviour of the whole module: config texts in, configs, errors and jobs out.

use super::*;
use crate::clock::Ms;
use crate::decide::{Family, LookupTerms};
use crate::job::{Code, NewJob, Refusal};
use crate::schedule::Missed;
use proptest::prelude::*;
use std::path::Path;
use std::time::Duration;

/// The example of the documents, without what this version refuses.
const EXAMPLE: &str = r#"
[store]
path = "data/onceward.db"
namespace = "shop"

[http]
token = { env = "ONCEWARD_TEST_UNSET_A" }

[providers.bank]
profile = "generic"
base_url = "https://api.bank.example/"
auth = { bearer = { env = "ONCEWARD_TEST_UNSET_B" } }
timeout = { connect = "5s", total = "30s" }
concurrency = 8
rate = "25/s"
idempotency = { header = "Idempotency-Key", window = "24h" }
breaker = { failures = 5, cool_down = "30s" }

[providers.app]
profile = "external"

[kinds.payout]
provider = "bank"
key = "payout:{invoice_id}"
account = "{account_id}"
amount_minor = "{amount_minor}"
currency = "{currency}"
group = "account:{account_id}"
on_parked = "block"
request = { method = "POST", path = "/v1/payouts", encoding = "json", body = { amount = "{amount_minor}", currency = "{currency}", reference = "{$key}" } }
reply = { reference = "/id", amount = "/amount", currency = "/currency", status = "/status", pending = ["processing"], rejected = ["failed"] }
lookup = { path = "/v1/payouts?reference={$key}", reference = "/data/0/id", status = "/data/0/status", settled = ["paid"], pending = ["processing"], rejected = ["failed"], lag = "0s", authoritative = true }
retry = { max_attempts = 10, base = "1s", cap = "1h", max_age = "72h", retry_on = [402] }

[kinds.charge]
provider = "app"

[kinds.mail]

[schedules.nightly-sync]
cron = "0 2 * * *"
timezone = "Europe/Berlin"
kind = "mail"
payload = { scope = "all", n = 1.50 }
missed = "one"
"#;

fn parse(text: &str) -> Result<Config, ConfigError> {
    Config::parse(text, Path::new("/etc/shop/onceward.toml"))
}

fn example() -> Config {
    parse(EXAMPLE).unwrap()
}

/// The error that follows from putting `with` in the place of `this` in the example.
#[track_caller]
fn error(this: &str, with: &str) -> ConfigError {
    assert!(EXAMPLE.contains(this), "{this} is not in the example");
    match parse(&EXAMPLE.replacen(this, with, 1)) {
        Err(e) => e,
        Ok(_) => panic!("{with} was taken"),
    }
}

/// Asserts that the error is about this field, on the line where `with` begins, and says `message`.
#[track_caller]
fn check(this: &str, with: &str, field: &str, message: &str) {
    let e = error(this, with);
    assert_eq!(e.field, field, "{e}");
    assert!(e.message.contains(message), "{e}");
    let at = EXAMPLE.find(this).unwrap();
    let first = EXAMPLE[..at].matches('\n').count() + 1;
    let line = e.line.unwrap();
    assert!((first..=first + with.matches('\n').count()).contains(&line), "{e}, expected line {first}");
}

#[test]
fn the_example_of_the_documents_is_read_whole() {
    let config = example();
    assert_eq!(config.store.path, Path::new("/etc/shop/data/onceward.db"));
    assert_eq!(config.store.namespace, "shop");
    let bank = &config.providers["bank"];
    assert_eq!(bank.base_url, "https://api.bank.example");
    assert_eq!((bank.concurrency, bank.rate), (8, Some(25.0)));
    assert_eq!(bank.profile.key, KeyPlace::Header { name: "Idempotency-Key".into(), quoted: false });
    let payout = &config.kinds["payout"];
    assert_eq!(payout.terms.family, Family::B);
    assert_eq!(payout.terms.window, Some(Duration::from_secs(86_400)));
    assert_eq!(
        payout.terms.lookup,
        Some(LookupTerms { lag: Duration::ZERO, authoritative: true, by_key: true, lists_accepted: true })
    );
    assert_eq!(payout.retry_on, [402]);
    assert!(payout.unique);
    assert_eq!(payout.lookup.as_ref().unwrap().reply.settled, ["paid"]);
    assert!(config.kinds["charge"].terms.external);
    assert_eq!(config.kinds["charge"].confirm_within, Some(Duration::from_secs(72 * 3600)));
    assert_eq!(config.kinds["mail"].terms.family, Family::E);
    let nightly = &config.schedules["nightly-sync"];
    assert_eq!((nightly.kind.as_str(), nightly.missed), ("mail", Missed::One));
    assert_eq!(nightly.payload, r#"{"scope":"all","n":1.50}"#);
    let next = nightly.timetable.next(Ms::parse_rfc3339("2026-11-29T12:00:00Z").unwrap()).unwrap();
    assert_eq!(nightly.key(next), "nightly-sync:2026-11-30T01:00:00Z");
}

#[test]
fn an_empty_config_has_the_defaults() {
    let config = parse("").unwrap();
    assert_eq!(config.store.path, Path::new("/etc/shop/onceward.db"));
    assert_eq!((config.worker.threads, config.worker.lease), (16, Duration::from_secs(60)));
    assert_eq!((config.limits.payload, config.limits.free_disk), (262_144, 67_108_864));
    assert!(config.limits.refuse_card_numbers && config.http.is_none());
    let text = "[providers.p]\nprofile='generic'\nbase_url='https://x'\n[kinds.k]\nprovider='p'\nrequest={path='/',method='GET'}\nlookup={path='/q'}";
    let config = parse(text).unwrap();
    let p = &config.providers["p"];
    assert_eq!((p.connect_timeout, p.total_timeout), (Duration::from_secs(5), Duration::from_secs(30)));
    assert_eq!((p.concurrency, p.rate, p.breaker_failures), (8, None, 5));
    let k = &config.kinds["k"];
    assert_eq!(k.request.as_ref().unwrap().encoding, Encoding::None);
    assert_eq!(
        k.terms.lookup,
        Some(LookupTerms { lag: Duration::from_secs(120), lists_accepted: true, ..LookupTerms::default() })
    );
    assert_eq!((k.terms.max_attempts, k.terms.cap), (10, Duration::from_secs(3600)));
}

#[test]
fn an_error_is_one_line_with_file_line_and_field() {
    let e = error("rate = \"25/s\"", "rate = \"25\"");
    assert_eq!(
        e.to_string(),
        "/etc/shop/onceward.toml:15: providers.bank.rate: \"25\" is not a rate: write 25/s, 100/m or 1000/h"
    );
    let e = parse("[store]\npath = \n").unwrap_err();
    assert_eq!(e.line, Some(2), "{e}");
    assert!(e.message.starts_with("this is not valid TOML"), "{e}");
    assert!(!e.to_string().contains('\n'));
}

#[test]
fn unknown_fields_are_refused_with_the_name_that_was_meant() {
    check("path = \"data", "pth = \"data", "store.pth", "did you mean path?");
    check("rate = ", "rat = ", "providers.bank.rat", "did you mean rate?");
    check("[store]", "[stores]", "stores", "did you mean store?");
    check("on_parked", "parked_on_that", "kinds.payout.parked_on_that", "known are provider, exec, key");
    check("connect = ", "conect = ", "providers.bank.timeout.conect", "did you mean connect?");
}

#[test]
fn values_of_the_wrong_type_or_range_are_refused_by_name() {
    check(
        "concurrency = 8",
        "concurrency = \"8\"",
        "providers.bank.concurrency",
        "a whole number is needed here, not a string",
    );
    check("concurrency = 8", "concurrency = 0", "providers.bank.concurrency", "from 1");
    check("[store]", "[worker]\nthreads = 1025\n[store]", "worker.threads", "from 1 to 1024");
    check("[store]", "[worker]\nlease = '999ms'\n[store]", "worker.lease", "at least 1s");
    check("[store]", "[limits]\npayload = '5KB'\n[store]", "limits.payload", "256KiB");
    check(
        "[store]",
        "[limits]\ncard_numbers = 'maybe'\n[store]",
        "limits.card_numbers",
        "\"refuse\", \"allow\"",
    );
    check(
        "window = \"24h\"",
        "window = 24",
        "providers.bank.idempotency.window",
        "a string is needed here, not an integer",
    );
    check("\"shop\"", "\"a\\u001f\"", "store.namespace", "control");
    check("max_attempts = 10", "max_attempts = 0", "kinds.payout.retry.max_attempts", "from 1");
    check("cap = \"1h\"", "cap = \"1ms\"", "kinds.payout.retry.cap", "shorter than base");
    check("retry_on = [402]", "retry_on = [500]", "kinds.payout.retry.retry_on.0", "from 400 to 499");
}

#[test]
fn secrets_stand_nowhere_in_the_config() {
    let e = error("bearer = { env = \"ONCEWARD_TEST_UNSET_B\" }", "bearer = \"sk_live_hunter2\"");
    assert_eq!(e.field, "providers.bank.auth.bearer");
    assert!(e.message.contains("{ env = \"NAME\" } or { file = \"PATH\" }"), "{e}");
    assert!(!e.to_string().contains("hunter2"));
    check("{ env = \"ONCEWARD_TEST_UNSET_A\" }", "{ env = 'A', file = 'b' }", "http.token", "one source");
    check("{ env = \"ONCEWARD_TEST_UNSET_A\" }", "{}", "http.token", "one source");
}

#[test]
fn every_missing_secret_is_reported_with_its_place() {
    let missing = example().missing_secrets();
    let places: Vec<_> = missing.iter().map(|e| (e.line, e.field.as_str())).collect();
    assert_eq!(places, [(Some(7), "http.token"), (Some(12), "providers.bank.auth.bearer")]);
    assert!(missing[0].message.contains("ONCEWARD_TEST_UNSET_A is not set"), "{}", missing[0]);
}

#[test]
fn providers_are_refused_where_they_would_leak_or_cannot_work() {
    check("https://api", "http://api", "providers.bank.base_url", "plain http");
    check("https://api", "https://u:p@api", "providers.bank.base_url", "auth = { basic");
    check("bank.example/", "bank.example/?x=1", "providers.bank.base_url", "query");
    check(
        "profile = \"generic\"",
        "profile = \"strip\"",
        "providers.bank.profile",
        "external, generic, gocardless",
    );
    let e = error("profile = \"generic\"", "profile = \"none\"");
    assert_eq!((e.field.as_str(), e.line), ("providers.bank.idempotency.window", Some(16)), "{e}");
    check(
        "header = \"Idempotency-Key\"",
        "header = \"Bad Name\"",
        "providers.bank.idempotency.header",
        "not the name of a header",
    );
    check(
        "header = \"Idempotency-Key\"",
        "header = 'A', query = 'b'",
        "providers.bank.idempotency",
        "one place",
    );
    check("auth = { bearer", "auth = { basic = {}, bearer", "providers.bank.auth", "one way");
    check("auth = { bearer", "auth = { oauth2 = {}, bearer", "providers.bank.auth", "one way");
    check(
        "auth = { bearer = { env = \"ONCEWARD_TEST_UNSET_B\" } }",
        "auth = { header = { name = 'idempotency-KEY', value = { env = 'A' } } }",
        "providers.bank.auth.header.name",
        "cannot travel",
    );
    check(
        "auth = { bearer = { env = \"ONCEWARD_TEST_UNSET_B\" } }",
        "auth = { oauth2 = { token_url = 'http://bank.example/t', client_id = { env = 'A' }, client_secret = { env = 'B' } } }",
        "providers.bank.auth.oauth2.token_url",
        "plain http",
    );
    // Generic keys may be the credential's, for all that anybody knows.
    check(
        "auth = { bearer",
        "account = 'a'\nauth = { bearer",
        "providers.bank.account",
        "its scope is unknown",
    );
    let named = |account: &str| {
        let text =
            EXAMPLE.replacen("profile = \"generic\"", &format!("profile = 'square'\naccount = {account}"), 1);
        parse(&text).map(|config| config.providers["bank"].account.clone()).map_err(|e| e.to_string())
    };
    assert_eq!(named("'L-1'"), Ok(Some("L-1".into())));
    for odd in ["''", "'a b'", "'ä'", "7"] {
        assert!(named(odd).is_err_and(|e| e.contains("providers.bank.account")), "{odd}");
    }
    let e = error("base_url = \"https://api.bank.example/\"", "");
    assert_eq!((e.field.as_str(), e.line), ("providers.bank.base_url", Some(9)), "{e}");
}

#[test]
fn a_provider_overrides_single_fields_of_its_profile() {
    let with = |idempotency: &str| {
        let text = EXAMPLE.replacen("{ header = \"Idempotency-Key\", window = \"24h\" }", idempotency, 1);
        parse(&text).unwrap().providers["bank"].profile.clone()
    };
    assert_eq!(
        with("{ window = '1h' }").key,
        KeyPlace::Header { name: "Idempotency-Key".into(), quoted: false }
    );
    assert_eq!(
        with("{ quoted = true }").key,
        KeyPlace::Header { name: "Idempotency-Key".into(), quoted: true }
    );
    assert_eq!(with("{ quoted = true }").window, Some(Duration::from_secs(86_400)));
    assert_eq!(with("{ body = '/key' }").key, KeyPlace::Body { pointer: "/key".into() });
    assert_eq!(with("{ query = 'requestid' }").key, KeyPlace::Query { name: "requestid".into() });
    let duplicate = "duplicate = { status = 409, code = '/error/code', is = 'dup', reference = '/error/id', path = '/v1/p/{$reference}' }\nrate =";
    let config = parse(&EXAMPLE.replacen("rate =", duplicate, 1)).unwrap();
    assert_eq!(config.providers["bank"].profile.duplicate.as_ref().unwrap().is, "dup");
    check("rate =", "duplicate = { status = 409 }\nrate =", "providers.bank.duplicate.code", "missing");
}

#[test]
fn kinds_are_refused_where_they_would_surprise() {
    check("provider = \"bank\"", "provider = \"bnak\"", "kinds.payout.provider", "did you mean bank?");
    check("payout:{invoice_id}", "payout:{$invoice_id}", "kinds.payout.key", "is not known");
    check("payout:{invoice_id}", "payout:{invoice_id", "kinds.payout.key", "not closed");
    check(
        "reference = \"{$key}\" } }",
        "reference = { a = [1, '{'] } } }",
        "kinds.payout.request.body.reference.a.1",
        "not closed",
    );
    check("path = \"/v1/payouts\"", "path = \"v1\"", "kinds.payout.request.path", "must begin with /");
    check("path = \"/v1/payouts\"", "path = \"//v1\"", "kinds.payout.request.path", "another host");
    check("path = \"/v1/payouts\"", "path = \"/a b\"", "kinds.payout.request.path", "percent-encoded");
    check("path = \"/v1/payouts\"", "path = \"/a%2\"", "kinds.payout.request.path", "hexadecimal");
    check("path = \"/v1/payouts\", ", "", "kinds.payout.request.path", "missing");
    check("method = \"POST\"", "method = \"post\"", "kinds.payout.request.method", "\"POST\"");
    check("method = \"POST\"", "method = \"GET\"", "kinds.payout.request.encoding", "no body");
    check("path = \"/v1/payouts?reference={$key}\", ", "", "kinds.payout.lookup.path", "missing");
    check("status = \"/status\", ", "", "kinds.payout.reply.pending", "where the status stands");
    check("reference = \"/id\"", "reference = \"id\"", "kinds.payout.reply.reference", "JSON pointer");
    check(
        "rejected = [\"failed\"] }\nlookup",
        "rejected = [\"processing\"] }\nlookup",
        "kinds.payout.reply.pending",
        "two lists",
    );
    check("\"{currency}\"\n", "\"EURO\"\n", "kinds.payout.currency", "three letters");
    check("\"{amount_minor}\"\n", "\"12.50\"\n", "kinds.payout.amount_minor", "1250");
    check("encoding = \"json\"", "headers = { host = 'x' }", "kinds.payout.request.headers.host", "itself");
    check(
        "encoding = \"json\"",
        "headers = { X = \"a\\nb\" }",
        "kinds.payout.request.headers.X",
        "visible ASCII",
    );
    check("on_parked", "confirm_within = '1h'\non_parked", "kinds.payout.confirm_within", "external");
    check("[kinds.mail]", "[kinds.mail]\nlookup = { path = '/' }", "kinds.mail.lookup", "only a provider");
    check(
        "[kinds.charge]\nprovider = \"app\"",
        "[kinds.charge]\nprovider = \"bank\"",
        "kinds.charge.request",
        "missing",
    );
    check(
        "provider = \"app\"",
        "provider = \"app\"\nrequest = {path = '/'}",
        "kinds.charge.request",
        "external",
    );
    check(
        "provider = \"app\"",
        "provider = \"app\"\nlookup = {path = '/'}",
        "kinds.charge.lookup",
        "base_url",
    );
    check("[kinds.mail]", "[kinds.'a b']", "kinds.\"a b\"", "without blanks");
}

#[test]
fn the_api_is_never_open_and_what_is_not_built_is_not_passed_over() {
    let e = error("token = { env = \"ONCEWARD_TEST_UNSET_A\" }", "");
    assert_eq!((e.field.as_str(), e.line), ("http.token", Some(6)), "{e}");
    check("[http]", "[http]\nlisten = '0.0.0.0:7117'", "http.listen", "behind_proxy");
    check("[http]", "[http]\nlisten = 'localhost'", "http.listen", "127.0.0.1:7117");
    let text = EXAMPLE.replacen("[http]", "[http]\nlisten = '0.0.0.0:7117'\nbehind_proxy = true", 1);
    assert!(parse(&text).unwrap().http.unwrap().behind_proxy);
    check("[http]", "[alerts]\nkind = \"none\"\n[http]", "alerts.kind", "there is no [kinds.none]");
}

#[test]
fn a_schedule_that_could_not_make_its_jobs_is_refused_at_its_place() {
    const KIND: &str = "kind = \"mail\"";
    let field = |name: &str| format!("schedules.nightly-sync.{name}");
    check("0 2 * * *", "0 25 * * *", &field("cron"), "five fields");
    check("0 2 * * *", "0 2 30 2 *", &field("cron"), "never comes due");
    check("Europe/Berlin", "Europe/Berlinn", &field("timezone"), "IANA");
    check(KIND, "kind = \"mial\"", &field("kind"), "did you mean mail?");
    check(KIND, "kind = \"charge\"", &field("kind"), "external");
    let e = error(KIND, "kind = \"payout\"");
    let key_line = EXAMPLE[..EXAMPLE.find("key = \"payout:").unwrap()].matches('\n').count() + 1;
    assert!(e.message.contains(&format!("kinds.payout.key (line {key_line})")), "{e}");
    let e = error(KIND, "");
    assert!(e.field == field("kind") && e.message.contains("missing"), "{e}");
    check("missed = \"one\"", "missed = \"two\"", &field("missed"), "not one of");
    check("missed = \"one\"", "mised = \"one\"", &field("mised"), "did you mean missed?");
    check("{ scope = \"all\", n = 1.50 }", "7", &field("payload"), "a payload is a table");
    check(
        "{ scope = \"all\", n = 1.50 }",
        "{ scope = inf }",
        &field("payload.scope"),
        "not a number in JSON",
    );
    check("{ scope = \"all\", n = 1.50 }", "{ c = '4111111111111111' }", &field("payload"), "card");
    check("[schedules.nightly-sync]", "[schedules.'a b']", "schedules.\"a b\"", "without blanks");
    let braces = EXAMPLE.replacen("scope = \"all\"", "scope = \"{as it stands}\"", 1);
    assert!(parse(&braces).unwrap().schedules["nightly-sync"].payload.contains("{as it stands}"));
}

#[test]
fn a_key_in_the_body_needs_a_body_with_members() {
    let with = |request: &str| {
        let text = format!(
            "[providers.p]\nprofile='generic'\nbase_url='https://x'\nidempotency={{body='/k'}}\n[kinds.k]\nprovider='p'\nrequest={request}"
        );
        parse(&text)
    };
    assert!(with("{ path = '/' }").is_ok());
    assert!(with("{ path = '/', encoding = 'form', body = { a = 1 } }").is_ok());
    for bad in
        ["{ path = '/', encoding = 'none' }", "{ path = '/', body = [1] }", "{ path = '/', method = 'GET' }"]
    {
        assert!(with(bad).unwrap_err().message.contains("member of the body"), "{bad}");
    }
}

#[test]
fn one_header_cannot_carry_both_key_and_credential() {
    let text = "[providers.p]\nprofile='generic'\nbase_url='https://x'\nidempotency={header='X-Id'}\nauth={header={name='x-id',value={env='A'}}}";
    let e = parse(text).unwrap_err();
    assert_eq!((e.line, e.field.as_str()), (Some(1), "providers.p"), "{e}");
    assert!(e.message.contains("both the key and the credential"), "{e}");
}

#[test]
fn absurd_nesting_is_an_error() {
    for text in [
        format!("a={}", "[".repeat(100_000)),
        format!("a={}", "{a=".repeat(100_000)),
        format!("{}a=1", "a.".repeat(100_000)),
        format!("[{}a]", "a.".repeat(100_000)),
    ] {
        assert!(parse(&text).is_err());
    }
}

#[test]
fn a_file_that_is_not_there_or_not_text_says_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("onceward.toml");
    assert!(Config::load(&file).unwrap_err().message.contains("onceward init"));
    std::fs::write(&file, b"[store]\npath = \"\xff\"\n").unwrap();
    let e = Config::load(&file).unwrap_err();
    assert_eq!((e.line, e.message.as_str()), (Some(2), "this is not UTF-8"));
    std::fs::write(&file, "[store]\npath = \"a.db\"\n").unwrap();
    assert_eq!(Config::load(&file).unwrap().store.path, folder.path().join("a.db"));
    assert_eq!(Config::find(Some(&file)).unwrap(), file);
}

const PAYLOAD: &str = r#"{"invoice_id":"INV-1001","account_id":42,"amount_minor":1250,"currency":"eur"}"#;

fn request(kind: &str, payload: &str) -> Request {
    Request { kind: kind.into(), payload: payload.into(), ..Request::default() }
}

fn prepare(request: Request) -> Result<NewJob, Refusal> {
    example().prepare(request)
}

/// Asserts that the request is refused with this code and these words.
#[track_caller]
fn refused(request: Request, code: Code, words: &str) {
    let refusal = prepare(request).unwrap_err();
    assert_eq!(refusal.code, code, "{refusal}");
    assert!(refusal.message.contains(words), "{refusal}");
}

#[test]
fn a_job_is_drawn_from_its_payload() {
    let job = prepare(request("payout", PAYLOAD)).unwrap();
    assert_eq!(job.key.as_str(), "payout:INV-1001");
    assert_eq!(job.payload, PAYLOAD);
    assert_eq!(
        (job.account.as_deref(), job.amount_minor, job.currency.as_deref()),
        (Some("42"), Some(1250), Some("EUR"))
    );
    assert_eq!((job.group.as_deref(), job.sequence, job.run_after), (Some("account:42"), None, None));
    assert_eq!((job.provider.as_deref(), job.external), (Some("bank"), None));
    let agreeing = Request {
        key: Some("payout:INV-1001".into()),
        account: Some("42".into()),
        amount_minor: Some("1250".into()),
        currency: Some("EUR".into()),
        group: Some("account:42".into()),
        ..request("payout", PAYLOAD)
    };
    assert_eq!(prepare(agreeing).unwrap(), job);
}

#[test]
fn the_request_may_not_contradict_the_kind() {
    let base = || request("payout", PAYLOAD);
    refused(Request { key: Some("k".into()), ..base() }, Code::Invalid, "kind payout: key: ");
    refused(Request { account: Some("7".into()), ..base() }, Code::Invalid, "account: ");
    refused(Request { amount_minor: Some("1".into()), ..base() }, Code::Invalid, "amount_minor: ");
    refused(Request { currency: Some("USD".into()), ..base() }, Code::Invalid, "currency: ");
    refused(Request { group: Some("g".into()), ..base() }, Code::Invalid, "group: ");
}

#[test]
fn fields_that_are_missing_null_or_empty_are_named_when_the_job_is_asked_for() {
    let without = |name: &str, value: &str| {
        let members: Vec<String> =
            [("invoice_id", "\"I\""), ("account_id", "42"), ("amount_minor", "1"), ("currency", "\"EUR\"")]
                .iter()
                .map(|(n, v)| format!("\"{n}\":{}", if *n == name { value } else { v }))
                .collect();
        request("payout", &format!("{{{}}}", members.join(",")))
    };
    refused(without("invoice_id", "null"), Code::Invalid, "kind payout: key: {invoice_id} is null");
    refused(without("account_id", "\"\""), Code::Invalid, "{account_id} is empty");
    refused(without("currency", "\"EURO\""), Code::Invalid, "three letters");
    refused(without("currency", "\"ZZZ\""), Code::Invalid, "ISO 4217");
    refused(request("payout", "{}"), Code::Invalid, "the payload has no field {account_id}");
    for spelling in ["1000.0", "1e3", "1E+3", "-0", "0.5", "-0.0"] {
        for (field, part) in [("invoice_id", "key: {invoice_id}"), ("account_id", "account: {account_id}")] {
            let words = format!("kind payout: {part} is the number {spelling}: send an integer or a string");
            refused(without(field, spelling), Code::Invalid, &words);
        }
    }
    for plain in ["1000", "-7", "0", "12345678901234567890123", "\"1e3\"", "true"] {
        assert!(prepare(without("invoice_id", plain)).is_ok(), "{plain}");
    }
    for (amount, words) in [
        ("12.50", "minor units"),
        ("1.0", "minor units"),
        ("1e3", "minor units"),
        ("\"\"", "empty"),
        ("\" 1\"", "minor units"),
        ("\"+1\"", "minor units"),
        ("-1", "negative"),
        ("9223372036854775808", "too large"),
        ("true", "minor units"),
        ("[1]", "array"),
    ] {
        refused(without("amount_minor", amount), Code::Invalid, words);
    }
    assert_eq!(prepare(without("amount_minor", "9223372036854775807")).unwrap().amount_minor, Some(i64::MAX));
    let text = EXAMPLE.replacen("reference = \"{$key}\" } }", "note = \"{note}\" } }", 1);
    let refusal = parse(&text).unwrap().prepare(request("payout", PAYLOAD)).unwrap_err();
    assert_eq!(refusal.message, "kind payout: payload: request.body: the payload has no field {note}");
}

#[test]
fn payloads_that_cannot_be_kept_are_refused() {
    refused(request("payuot", PAYLOAD), Code::Invalid, "known are charge, mail, payout");
    refused(request("payout", "[]"), Code::Invalid, "no JSON object");
    refused(request("payout", "{"), Code::Invalid, "not valid JSON");
    refused(request("payout", r#"{"a":1,"a":2}"#), Code::Invalid, "twice");
    // The size is looked at first: what is too large is not parsed.
    refused(request("payout", &"x".repeat(262_145)), Code::TooLarge, "262145 bytes");
    refused(request("mail", "{}"), Code::Invalid, "no key template");
}

#[test]
fn card_numbers_are_refused_everywhere_and_never_repeated() {
    let pan = "4111 1111 1111 1111";
    let mail = |payload: &str| Request { key: Some("m".into()), ..request("mail", payload) };
    refused(mail(&format!(r#"{{"a":{{"b":"{pan}"}}}}"#)), Code::CardNumber, "{a.b}");
    for request in [
        Request { key: Some(pan.into()), ..mail("{}") },
        Request { account: Some(pan.into()), ..mail("{}") },
        Request { group: Some(pan.into()), ..mail("{}") },
    ] {
        let refusal = prepare(request).unwrap_err();
        assert_eq!(refusal.code, Code::CardNumber);
        assert!(!refusal.message.contains("1111"), "{refusal}");
    }
    let allowing = parse(&format!("[limits]\ncard_numbers = 'allow'\n{EXAMPLE}")).unwrap();
    assert!(allowing.prepare(mail(&format!(r#"{{"a":"{pan}"}}"#))).is_ok());
}

#[test]
fn order_delay_and_dedup_are_checked() {
    let mail = || Request { key: Some("m".into()), ..request("mail", "{}") };
    let minute = Duration::from_secs(60);
    refused(Request { sequence: Some(1), ..mail() }, Code::Invalid, "no group");
    refused(Request { sequence: Some(0), group: Some("g".into()), ..mail() }, Code::Invalid, "begins at 1");
    refused(Request { group: Some(String::new()), ..mail() }, Code::Invalid, "empty");
    refused(Request { at: Some(Ms(5)), delay: Some(minute), ..mail() }, Code::Invalid, "leave one out");
    refused(Request { dedup: Some(("d".into(), Duration::ZERO)), ..mail() }, Code::Invalid, "no length");
    refused(
        Request { kind: "charge".into(), group: Some("g".into()), ..mail() },
        Code::Invalid,
        "cannot be in a group",
    );
    let charge = || Request { kind: "charge".into(), ..mail() };
    refused(Request { at: Some(Ms(5)), ..charge() }, Code::Invalid, "no time of its own");
    refused(Request { delay: Some(minute), ..charge() }, Code::Invalid, "no time of its own");
    let job = prepare(Request { delay: Some(minute), sequence: Some(3), group: Some("g".into()), ..mail() })
        .unwrap();
    assert_eq!((job.run_after, job.delay, job.sequence), (None, Some(Duration::from_secs(60)), Some(3)));
    let charge = prepare(charge()).unwrap();
    assert_eq!(charge.external, Some(Duration::from_secs(72 * 3600)));
}

#[test]
fn a_kind_is_filled_in_as_its_config_draws_it() {
    let config = example();
    let payload = crate::json::Json::parse(PAYLOAD).unwrap();
    let values = Values {
        payload: &payload,
        key: Some("payout:INV-1001"),
        wire_key: Some("w"),
        account: None,
        amount_minor: None,
        currency: None,
        reference: None,
    };
    let rendered = config.kinds["payout"].render(&values).unwrap();
    assert_eq!(rendered.path.as_deref(), Some("/v1/payouts"));
    assert_eq!(rendered.lookup_path.as_deref(), Some("/v1/payouts?reference=payout%3AINV-1001"));
    assert_eq!(
        rendered.body.unwrap().to_text(),
        r#"{"amount":1250,"currency":"eur","reference":"payout:INV-1001"}"#
    );
    let mail = config.kinds["mail"].render(&values).unwrap();
    assert_eq!(mail, Rendered { path: None, body: None, lookup_path: None });
}

proptest! {
    #[test]
    fn no_text_makes_the_reader_panic(text in "[\\[\\]{}=\"'.,#\n a-e0-9\\PC]{0,80}") {
        let _ = parse(&text);
    }

    /// A config with one piece cut out or written over is read or refused with a line that the file has.
    #[test]
    fn no_damage_to_a_config_makes_the_reader_panic(at in 0..EXAMPLE.len(), cut in 0usize..12, put in "[\\[\\]{}=\"'.,\n a-c0-9$/]{0,4}") {
        let end = (at + cut).min(EXAMPLE.len());
        let text = format!("{}{put}{}", &EXAMPLE[..at], &EXAMPLE[end..]);
        if let Err(e) = parse(&text) {
            prop_assert!(e.line.is_none_or(|line| line >= 1 && line <= text.matches('\n').count() + 1), "{}", e);
            prop_assert!(!e.to_string().contains('\n'));
        }
    }

    #[test]
    fn no_request_makes_the_intake_panic(payload in "[{}:,\"a-d0-9_i\\PC]{0,40}", amount in "[0-9.e+-]{0,21}") {
        let _ = prepare(Request { amount_minor: Some(amount), key: Some("k".into()), ..request("mail", &payload) });
    }
}
