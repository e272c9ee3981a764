//! What goes over the wire, byte for byte, and what must not.

use super::*;
use crate::outcome::{Class, Phase};

fn secret(dir: &tempfile::TempDir, name: &str, text: &str) -> SecretSource {
    let path = dir.path().join(name);
    std::fs::write(&path, text).unwrap();
    SecretSource::File(path)
}

#[test]
fn the_request_is_the_frozen_one_plus_the_credential() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::says(http("500 Oops", "", r#"{"error":"token tok_s3cret is bad"}"#));
    let mut scene = Scene::new(&server.base_url);
    scene.provider.auth = Some(Auth::Bearer(secret(&dir, "t", "tok_s3cret\n")));
    scene.kind.request.as_mut().unwrap().headers = vec![("X-Version".into(), template("7"))];
    let (providers, job, intent) = scene.providers();
    let frozen = providers.freeze("payout", &job, &intent).unwrap();
    assert!(!format!("{frozen:?}").contains("s3cret"));
    assert_eq!(frozen.body, job.payload.clone().unwrap().into_bytes());
    assert_eq!(frozen.lookup_path.as_deref(), Some("/v1/payouts?reference=payout%3AINV-1"));

    let hook = || Ok(());
    let outcome = providers.call(&Call {
        step: Step::Send,
        job: &job,
        intent: &intent,
        frozen: &frozen,
        scope: None,
        before_first_byte: &hook,
        program: None,
    });
    assert_eq!(outcome.class, Class::ServerError);
    assert!(!format!("{outcome:?}").contains("s3cret"), "{outcome:?}");

    let request = &server.requests()[0];
    let host = server.base_url.trim_start_matches("http://");
    let version = env!("CARGO_PKG_VERSION");
    let expected = [
        "POST /v1/payouts HTTP/1.1".to_string(),
        "accept-encoding: identity".into(),
        "accept: application/json".into(),
        "authorization: Bearer tok_s3cret".into(),
        format!("content-length: {}", frozen.body.len()),
        "content-type: application/json".into(),
        format!("host: {host}"),
        format!("idempotency-key: {}", intent.wire_key),
        format!("user-agent: onceward/{version}"),
        "x-version: 7".into(),
    ];
    let (head, body) = request.split_once("\r\n\r\n").unwrap();
    let mut lines: Vec<&str> = head.split("\r\n").collect();
    lines[1..].sort_unstable();
    assert_eq!(lines, expected);
    assert_eq!(body.as_bytes(), frozen.body);
    assert_eq!(intent.wire_key.len(), 36);
}

#[test]
fn a_question_carries_no_body_and_no_key() {
    let server = Server::says(http("200 OK", "", r#"{"data":[]}"#));
    let outcome = Scene::new(&server.base_url).step(Step::LookUp, &|| Ok(()));
    assert_eq!(outcome.class, Class::NotFound);
    let request = server.requests()[0].to_ascii_lowercase();
    assert!(request.starts_with("get /v1/payouts?reference=payout%3ainv-1 http/1.1\r\n"), "{request}");
    for absent in ["idempotency-key", "content-type", "content-length", "transfer-encoding"] {
        assert!(!request.contains(absent), "{request}");
    }
}

#[test]
fn a_named_object_is_fetched_and_read_like_a_reply() {
    let server =
        Server::says(http("200 OK", "", r#"{"id":"po_9","amount":1300,"currency":"eur","status":"paid"}"#));
    let mut scene = Scene::new(&server.base_url);
    scene.intent.generation.named = Some("po_9".into());
    let outcome = scene.step(Step::Fetch, &|| Ok(()));
    assert_eq!(outcome.class, Class::Ok);
    assert_eq!(outcome.differs.as_deref(), Some("the reply's amount is 1300, the intent's 1250"));
    assert!(server.requests()[0].starts_with("GET /v1/payouts/po_9 HTTP/1.1\r\n"));
}

#[test]
fn the_key_goes_where_the_profile_says() {
    let frozen = |place: KeyPlace| {
        let mut scene = Scene::new("http://127.0.0.1:9");
        scene.provider.profile.key = place;
        let wire = scene.intent.wire_key.clone();
        (scene.freeze().unwrap(), wire)
    };
    let (request, wire) = frozen(KeyPlace::Header { name: "Idem".into(), quoted: true });
    assert!(request.headers.contains(&("Idem".into(), format!("\"{wire}\""))));
    let (request, wire) = frozen(KeyPlace::Query { name: "key".into() });
    assert_eq!(request.path, format!("/v1/payouts?key={wire}"));
    let (request, wire) = frozen(KeyPlace::Body { pointer: "/idempotency_key".into() });
    let body = String::from_utf8(request.body).unwrap();
    assert_eq!(body, format!(r#"{{"amount":1250,"n":18446744073709551616.10,"idempotency_key":"{wire}"}}"#));
    let (request, wire) = frozen(KeyPlace::None);
    assert!(!format!("{request:?}").contains(&wire));
}

#[test]
fn headers_are_filled_in_and_a_question_has_none_that_carries_the_key() {
    let server = Server::says(http("200 OK", "", r#"{"data":[]}"#));
    let mut scene = Scene::new(&server.base_url);
    scene.provider.profile.key = KeyPlace::None;
    let headers = [
        ("X-Version", "7 {{x}}"),
        ("X-Amount", "EUR {amount}"),
        ("X-Ref", "a-{$wire_key}"),
        ("X-Key", "{$key}"),
    ];
    scene.kind.request.as_mut().unwrap().headers =
        headers.map(|(name, value)| (name.into(), template(value))).into();
    let wire = scene.intent.wire_key.clone();
    let (providers, job, intent) = scene.providers();
    let frozen = providers.freeze("payout", &job, &intent).unwrap();
    let has = |name: &str, value: &str| frozen.headers.contains(&(name.into(), value.into()));
    assert!(has("X-Version", "7 {x}") && has("X-Amount", "EUR 1250"), "{frozen:?}");
    assert!(has("X-Ref", &format!("a-{wire}")) && has("X-Key", "payout:INV-1"), "{frozen:?}");
    let call = Call {
        step: Step::LookUp,
        job: &job,
        intent: &intent,
        frozen: &frozen,
        scope: None,
        before_first_byte: &|| Ok(()),
        program: None,
    };
    assert_eq!(providers.call(&call).class, Class::NotFound);
    let asked = server.requests()[0].to_ascii_lowercase();
    assert!(asked.contains("x-version: 7 {x}") && asked.contains("x-amount: eur 1250"), "{asked}");
    assert!(!asked.contains("x-ref") && !asked.contains("x-key"), "{asked}");
}

#[test]
fn a_header_that_cannot_be_sent_as_it_is_filled_in_makes_no_request() {
    for (payload, says) in [
        (r#"{"amount":1,"to":"a\r\nX-Evil: 1"}"#, "visible ASCII"),
        (r#"{"amount":1,"to":"ü"}"#, "visible ASCII"),
        (r#"{"amount":1,"to":" a"}"#, "visible ASCII"),
        (r#"{"amount":1,"to":""}"#, "{to} is empty"),
        (r#"{"amount":1}"#, "no field {to}"),
    ] {
        let mut scene = Scene::new("http://127.0.0.1:9");
        scene.kind.request.as_mut().unwrap().headers = vec![("X-To".into(), template("{to}"))];
        scene.job.payload = Some(payload.into());
        let error = scene.freeze().unwrap_err();
        assert!(error.contains("request.headers.X-To: ") && error.contains(says), "{payload}: {error}");
    }
}

#[test]
fn a_request_that_would_be_read_in_two_ways_is_not_made() {
    let freeze = |name: &str| {
        let mut scene = Scene::new("http://127.0.0.1:9");
        scene.kind.request.as_mut().unwrap().headers = vec![(name.into(), template("x"))];
        let value = SecretSource::Env("ONCEWARD_TEST_NOT_SET".into());
        scene.provider.auth = Some(Auth::Header { name: "X-Api-Key".into(), value });
        scene.freeze()
    };
    for name in
        ["idempotency-key", "Authorization", "Host", "Content-Length", "Transfer-Encoding", "x-api-key"]
    {
        let error = freeze(name).unwrap_err();
        assert!(error.to_ascii_lowercase().contains(&name.to_ascii_lowercase()), "{error}");
    }
    let mut scene = Scene::new("http://127.0.0.1:9");
    scene.intent.wire_key = "ключ".into();
    assert!(scene.freeze().unwrap_err().contains("ASCII"));
    let mut scene = Scene::new("http://127.0.0.1:9");
    scene.job.payload = None;
    assert!(scene.freeze().unwrap_err().contains("pruned"));
}

#[test]
fn a_credential_that_cannot_be_read_or_sent_leaves_no_byte() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::says(http("200 OK", "", "{}"));
    let send = |auth: Auth| {
        let mut scene = Scene::new(&server.base_url);
        scene.provider.auth = Some(auth);
        let outcome = scene.send();
        assert_eq!((outcome.class, outcome.phase), (Class::NotSent, Some(Phase::Claimed)));
        outcome.error.unwrap()
    };
    let missing = send(Auth::Bearer(SecretSource::Env("ONCEWARD_TEST_NOT_SET".into())));
    assert!(missing.contains("ONCEWARD_TEST_NOT_SET") && missing.contains("providers.bank"), "{missing}");
    for bad in ["a\r\nX-Evil: 1", "a b", "ключ", "a\u{7f}b"] {
        let error = send(Auth::Bearer(secret(&dir, "bad", bad)));
        let says_why = error.contains("header cannot carry") || error.contains("control character");
        assert!(!error.contains("Evil") && says_why, "{error}");
    }
    assert_eq!(server.requests().len(), 0);
}

#[test]
fn basic_and_custom_headers_are_sent_and_the_scope_follows_the_credential() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::says(http("500 Oops", "", ""));
    let scope = |auth: Option<Auth>| {
        let mut scene = Scene::new(&server.base_url);
        scene.provider.auth = auth;
        let (providers, job, intent) = scene.providers();
        let frozen = providers.freeze("payout", &job, &intent).unwrap();
        providers.call(&Call {
            step: Step::Send,
            job: &job,
            intent: &intent,
            frozen: &frozen,
            scope: None,
            before_first_byte: &|| Ok(()),
            program: None,
        });
        let first = providers.scope("payout");
        // A secret that is away for a moment is not another account.
        let _ = std::fs::remove_file(dir.path().join("v"));
        assert_eq!(providers.scope("payout"), first);
        first
    };
    let basic =
        scope(Some(Auth::Basic { user: secret(&dir, "u", "me"), password: secret(&dir, "p", "pass:word") }));
    let header = scope(Some(Auth::Header { name: "X-Api-Key".into(), value: secret(&dir, "v", "k 1") }));
    let other = scope(Some(Auth::Header { name: "X-Api-Key".into(), value: secret(&dir, "v", "k 2") }));
    let none = scope(None);
    assert!(
        server.requests()[0].contains("authorization: Basic bWU6cGFzczp3b3Jk\r\n"),
        "{}",
        server.requests()[0]
    );
    assert!(server.requests()[1].contains("x-api-key: k 1\r\n"), "{}", server.requests()[1]);
    assert!(basic != header && header != other && other != none);
    assert!(basic.send.starts_with(&format!("bank {} ", server.base_url)));
    assert!(!format!("{basic:?}{header:?}").contains("pass") && basic.lookup.contains("/data/0/id"));
}

#[test]
fn user_info_in_the_address_is_refused_and_not_repeated() {
    let outcome = Scene::new("http://me:hunter2@127.0.0.1:9").send();
    assert_eq!(outcome.class, Class::NotSent);
    assert!(!outcome.error.unwrap().contains("hunter2"));
}

/// Claims with one secret in the file and calls with another one, then claims again; for a send and for a question.
#[track_caller]
fn rotated(auth: impl Fn(&tempfile::TempDir) -> Auth, account: Option<&str>, sent: bool) {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::says(http("200 OK", "", r#"{"data":[],"access_token":"t","token_type":"bearer"}"#));
    secret(&dir, "rotating", "account-one");
    let mut scene = Scene::new(&server.base_url);
    scene.provider.auth = Some(auth(&dir));
    if let Some(Auth::OAuth2(oauth2)) = &mut scene.provider.auth {
        oauth2.token_url = format!("{}/token", server.base_url);
    }
    scene.provider.account = account.map(str::to_string);
    let (providers, job, intent) = scene.providers();
    let frozen = providers.freeze("payout", &job, &intent).unwrap();
    for (step, left_out) in [(Step::Send, Class::NotSent), (Step::LookUp, Class::LookupFailed)] {
        secret(&dir, "rotating", "account-one");
        let call = |scope: &crate::intent::Scope| {
            let hook = || Ok(());
            let scope = Some(scope);
            providers.call(&Call {
                step,
                job: &job,
                intent: &intent,
                frozen: &frozen,
                scope,
                before_first_byte: &hook,
                program: None,
            })
        };
        let asked = || server.requests().iter().filter(|r| !r.starts_with("POST /token")).count();
        let (claimed, before) = (providers.scope("payout"), asked());
        secret(&dir, "rotating", "account-two");
        let outcome = call(&claimed);
        assert_eq!(asked() - before, usize::from(sent), "{step:?} {outcome:?}");
        if !sent {
            assert_eq!((outcome.class, outcome.phase), (left_out, Some(Phase::Claimed)), "{outcome:?}");
            let why = outcome.error.unwrap();
            assert!(why.contains("providers.bank") && !why.contains("account-"), "{why}");
            assert_ne!(providers.scope("payout"), claimed);
        }
        // The next claim goes by what is there now.
        assert_ne!(call(&providers.scope("payout")).class, left_out);
    }
}

#[test]
fn a_call_goes_out_only_with_the_credential_of_its_claim() {
    let header = |dir: &tempfile::TempDir| Auth::Header {
        name: "X-Key".into(),
        value: SecretSource::File(dir.path().join("rotating")),
    };
    let basic = |dir: &tempfile::TempDir| Auth::Basic {
        user: SecretSource::File(dir.path().join("rotating")),
        password: SecretSource::File(dir.path().join("rotating")),
    };
    let bearer = |dir: &tempfile::TempDir| Auth::Bearer(SecretSource::File(dir.path().join("rotating")));
    let client = |dir: &tempfile::TempDir, id: &str, password: &str| {
        Auth::OAuth2(OAuth2 {
            token_url: String::new(),
            client_id: SecretSource::File(dir.path().join(id)),
            client_secret: SecretSource::File(dir.path().join(password)),
            scope: None,
        })
    };
    rotated(bearer, None, false);
    rotated(header, None, false);
    rotated(basic, None, false);
    rotated(|dir| client(dir, "rotating", "rotating"), None, false);
    // A client's new secret is no other account; nor is anything else where the config names the account.
    rotated(
        |dir| {
            secret(dir, "id", "till-3");
            client(dir, "id", "rotating")
        },
        None,
        true,
    );
    rotated(bearer, Some("acct_1"), true);
    rotated(|dir| client(dir, "rotating", "rotating"), Some("acct_1"), true);
}
