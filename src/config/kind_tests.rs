//! Tests of kinds: what their look-ups and keys may say.

use super::{Config, ConfigError};
use std::path::Path;

fn parse(text: &str) -> Result<Config, ConfigError> {
    Config::parse(text, Path::new("/etc/shop/onceward.toml"))
}

/// A kind with this look-up.
fn looking_up(lookup: &str) -> Result<Config, ConfigError> {
    parse(&format!(
        "[providers.p]\nprofile='none'\nbase_url='https://x'\n[kinds.k]\nprovider='p'\nrequest={{path='/x'}}\nlookup={{path='/q?k={{$key}}',{lookup}}}\n"
    ))
}

/// Asserts that the look-up is refused at this field of it, with these words.
#[track_caller]
fn refused(lookup: &str, field: &str, words: &str) {
    let e = looking_up(lookup).unwrap_err();
    assert_eq!((e.line, e.field), (Some(7), format!("kinds.k.lookup{field}")), "{lookup}: {}", e.message);
    assert!(e.message.contains(words), "{lookup}: {}", e.message);
}

#[test]
fn a_look_up_of_one_object_is_authoritative_only_with_the_providers_own_words_for_nothing() {
    refused("reference='/id',authoritative=true", ".authoritative", "Add not_found");
    refused("authoritative=true", ".authoritative", "so does a gateway");
    for good in [
        "reference='/id'",
        "reference='/id',authoritative=true,not_found={status=404,code='/error/code',is='missing'}",
        "reference='/id',authoritative=true,not_found={status=200}",
        "reference='/data/0/id',authoritative=true",
        "reference='/data/*/id',authoritative=true",
        "reference='/data/*/id',not_found={status=400,code='/errors/*/code',is=17}",
    ] {
        assert!(looking_up(good).is_ok(), "{good}: {}", looking_up(good).unwrap_err());
    }
    let read = looking_up("reference='/id',not_found={status=404,code='/e',is='none'}").unwrap();
    let absence = read.kinds["k"].lookup.as_ref().unwrap().not_found.clone().unwrap();
    assert_eq!((absence.status, absence.code.unwrap().is.as_str()), (404, "none"));
}

#[test]
fn what_says_nothing_there_is_a_status_and_a_code_that_no_gateway_gives() {
    let at = ".not_found.status";
    refused("not_found={status=404}", at, "any gateway answers 404 too: add code");
    refused("not_found={code='/e',is='x'}", ".not_found.status", "missing");
    refused("not_found={status=404,code='/e'}", ".not_found", "code goes with is");
    refused("not_found={status=401,code='/e',is='x'}", at, "never says that there is nothing");
    refused("not_found={status=302,code='/e',is='x'}", at, "never says that there is nothing");
    refused("not_found={status=500,code='/e',is='x'}", at, "from 200 to 499");
    refused("not_found={status=404,kode='/e'}", ".not_found.kode", "did you mean code?");
}

#[test]
fn placeholders_are_filled_in_wherever_a_request_is_made_or_refused_where_nothing_is() {
    let kind = |fields: &str| {
        parse(&format!(
            "[providers.p]\nprofile='none'\nbase_url='https://x'\n[kinds.k]\nprovider='p'\n{fields}\n"
        ))
    };
    let good =
        kind("key='k:{id}'\nrequest={path='/x',headers={X-Ref='{$wire_key}',X-To='{to.name}'}}").unwrap();
    let ask = |payload: &str| {
        let request = super::Request { kind: "k".into(), payload: payload.into(), ..Default::default() };
        good.prepare(request).map(|_| ()).map_err(|e| e.message)
    };
    assert_eq!(ask(r#"{"id":1,"to":{"name":"A"}}"#), Ok(()));
    for (payload, says) in [
        (r#"{"id":1}"#, "request.headers.X-To: the payload has no field {to.name}"),
        (r#"{"id":1,"to":{"name":"ü"}}"#, "request.headers.X-To: a header's value is visible ASCII"),
    ] {
        let why = ask(payload).unwrap_err();
        assert!(why.contains(says), "{why}");
    }
    for (fields, field, says) in [
        ("request={path='/x',headers={X='{$wire_kye}'}}", "kinds.k.request.headers.X", "is not known"),
        ("request={path='/x',headers={X='{a'}}", "kinds.k.request.headers.X", "not closed"),
        ("request={path='/x',body={m={'{$key}'=1}}}", "kinds.k.request.body.m", "nothing is filled in here"),
    ] {
        let e = kind(fields).unwrap_err();
        assert_eq!(e.field, field, "{e}");
        assert!(e.message.contains(says), "{e}");
    }
    for (text, field) in [
        ("[kinds.k]\nexec=['/bin/echo','{$wire_key}']\n", "kinds.k.exec.1"),
        (
            "[kinds.k]\n[schedules.s]\ncron='0 2 * * *'\nkind='k'\npayload={a=['{$key}']}\n",
            "schedules.s.payload.a.0",
        ),
    ] {
        let e = parse(text).unwrap_err();
        assert_eq!(e.field, field, "{e}");
        assert!(e.message.contains("nothing is filled in here"), "{e}");
    }
    assert!(parse("[kinds.k]\nexec=['/usr/bin/awk','{print $1}']\n").is_ok());
}

#[test]
fn a_kind_of_an_external_provider_is_in_no_group() {
    let text = "[providers.p]\nprofile='external'\n[kinds.k]\nprovider='p'\nkey='k:{id}'\ngroup='g:{to}'\n";
    let e = parse(text).unwrap_err();
    assert_eq!((e.line, e.field.as_str()), (Some(6), "kinds.k.group"));
    assert!(e.message.contains("cannot be in a group"), "{e}");
    assert!(parse(&text.replace("group='g:{to}'", "")).is_ok());
}

#[test]
fn stars_stand_in_one_list() {
    for (good, at) in [
        ("reference='/data/*/id',status='/data/*/status',currency='/currency'", ""),
        ("reference='/a/*/b/*/id',status='/a/*/b/*/s',amount='/a/*/amount'", ""),
        ("reference='/data/0/id',status='/status'", ""),
    ] {
        assert!(looking_up(good).is_ok(), "{good}{at}");
    }
    refused("reference='/data/*/id',status='/data/0/status'", ".reference", "write * in both");
    refused("reference='/data/0/id',status='/data/*/status'", ".reference", "write * in both");
    refused("status='/status',reference='/data/*/id'", ".reference", "another one");
    refused("status='/data/*/status',key='/data/*/tags/*/key'", ".key", "another one");
    refused("status='/a/*/status',amount='/b/*/amount'", ".amount", "another one");
}

#[test]
fn a_look_up_says_whether_it_asks_by_the_key_alone_and_lists_what_is_pending() {
    let terms = |request: &str, reply: &str, lookup: &str| {
        let text = format!(
            "[providers.p]\nprofile='generic'\nbase_url='https://x'\n[kinds.k]\nprovider='p'\nkey='k:{{id}}'\nrequest={{path='/x'{request}}}\nreply={{status='/s'{reply}}}\nlookup={{status='/s',{lookup}}}"
        );
        parse(&text).unwrap().kinds["k"].terms.lookup.unwrap()
    };
    let by_key = |path: &str| terms("", "", &format!("path='{path}'")).by_key;
    assert!(by_key("/q?ref={$key}") && by_key("/q/{$key}?again={$key}"));
    for other in
        ["/q", "/q?ref={$wire_key}", "/q?ref={$key}&to={iban}", "/q/{$account}?ref={$key}", "/q?ref={id}"]
    {
        assert!(!by_key(other), "{other}");
    }
    // A question carries the request's headers.
    let with = |header: &str| terms(&format!(",headers={{X='{header}'}}"), "", "path='/q?ref={$key}'").by_key;
    assert!(with("7") && with("{$wire_key}") && !with("{iban}") && !with("{$account}"));
    let lists = |reply: &str, lookup: &str| terms("", reply, &format!("path='/q'{lookup}")).lists_accepted;
    assert!(lists("", "") && lists("", ",pending=['new']") && lists(",pending=['new']", ",pending=['new']"));
    assert!(!lists(",pending=['new']", ",settled=['paid']"));
}

#[test]
fn a_groups_number_is_written_plainly_in_a_schedules_payload_too() {
    let config = "[kinds.k]\ngroup='g:{n}'\n[schedules.s]\ncron='0 2 * * *'\nkind='k'\npayload={n=NUMBER}\n";
    assert!(parse(&config.replace("NUMBER", "1_000")).is_ok());
    let e = parse(&config.replace("NUMBER", "1000.0")).unwrap_err();
    assert_eq!((e.line, e.field.as_str()), (Some(6), "schedules.s.payload"));
    assert!(e.message.contains("group: {n} is the number 1000.0: send an integer or a string"), "{e}");
}
