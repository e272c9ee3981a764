//! Every way in which a connection can end, and what may be said of it.

use super::*;
use crate::outcome::{Class, Phase};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

const GOOD: &str = r#"{"id":"po_1","amount":1250,"currency":"EUR","status":"paid"}"#;

#[track_caller]
fn check(outcome: &Outcome, class: Class, phase: Phase) {
    assert_eq!((outcome.class, outcome.phase), (class, Some(phase)), "{outcome:?}");
    assert!(outcome.class == Class::Ok || outcome.error.is_some(), "{outcome:?}");
}

/// Sends to a server, with a total timeout of so many milliseconds.
fn send_within(server: &Server, ms: u64) -> Outcome {
    let mut scene = Scene::new(&server.base_url);
    scene.provider.total_timeout = Duration::from_millis(ms);
    scene.send()
}

#[test]
fn a_good_answer_is_ok() {
    let server = Server::says(http("201 Created", "", GOOD));
    let outcome = Scene::new(&server.base_url).send();
    check(&outcome, Class::Ok, Phase::Body);
    assert_eq!(outcome.http_status, Some(201));
    assert_eq!(outcome.reference.as_deref(), Some("po_1"));
    assert_eq!(outcome.result.as_deref(), Some(GOOD));
}

#[test]
fn a_refused_port_and_an_unknown_host_are_not_sent() {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    check(&Scene::new(&format!("http://127.0.0.1:{port}")).send(), Class::NotSent, Phase::Connect);
    check(&Scene::new("http://nonexistent.invalid").send(), Class::NotSent, Phase::Resolve);
    let outcome = Scene::new(&format!("http://127.0.0.1:{port}")).step(Step::LookUp, &|| Ok(()));
    check(&outcome, Class::LookupFailed, Phase::Connect);
}

#[test]
fn tls_to_a_plain_port_is_not_sent() {
    let server = Server::raw(Arc::default(), |stream| {
        let _ = stream.read(&mut [0; 512]);
        let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
    });
    let outcome = Scene::new(&server.base_url.replace("http:", "https:")).send();
    check(&outcome, Class::NotSent, Phase::Tls);
}

#[test]
fn a_tls_handshake_that_is_never_answered_ends_with_the_connect_timeout() {
    let server = Server::raw(Arc::default(), |stream| {
        let _ = stream.read_to_end(&mut Vec::new());
    });
    let mut scene = Scene::new(&server.base_url.replace("http:", "https:"));
    scene.provider.connect_timeout = Duration::from_millis(300);
    let start = Instant::now();
    check(&scene.send(), Class::NotSent, Phase::Tls);
    assert!(start.elapsed() < Duration::from_secs(5));
}

#[test]
fn silence_after_the_request_is_a_timeout() {
    let server = Server::new(|stream| {
        let _ = stream.read(&mut [0]);
    });
    check(&send_within(&server, 400), Class::Timeout, Phase::Sent);
}

#[test]
fn a_close_before_the_status_is_interrupted_and_not_sent_again() {
    let server = Server::says("");
    check(&Scene::new(&server.base_url).send(), Class::Interrupted, Phase::Sent);
    assert_eq!(server.requests().len(), 1);
}

#[test]
fn a_reset_is_interrupted() {
    // Closing a socket with a byte unread in it resets the connection.
    let server = Server::raw(Arc::default(), |stream| {
        read_request(stream, 1);
    });
    check(&Scene::new(&server.base_url).send(), Class::Interrupted, Phase::Sent);
}

#[test]
fn a_peer_that_stops_reading_is_a_timeout_while_sending() {
    let server = Server::raw(Arc::default(), |_| std::thread::sleep(Duration::from_secs(3)));
    let mut scene = Scene::new(&server.base_url);
    scene.provider.total_timeout = Duration::from_millis(500);
    scene.job.payload = Some(format!(r#"{{"x":"{}"}}"#, "x".repeat(32 << 20)));
    check(&scene.send(), Class::Timeout, Phase::Sending);
}

#[test]
fn bodies_cut_short_are_interrupted() {
    for reply in [
        "HTTP/1.1 200 OK\r\ncontent-length: 500\r\n\r\n{\"id\":\"po_1\"".to_string(),
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\n{\"id\"\r\n".into(),
        // No length at all: nothing but the JSON itself tells that something is missing.
        "HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n{\"id\":\"po_".into(),
    ] {
        let server = Server::says(reply);
        check(&Scene::new(&server.base_url).send(), Class::Interrupted, Phase::Body);
    }
    let server = Server::says(format!("HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n{GOOD}"));
    check(&Scene::new(&server.base_url).send(), Class::Ok, Phase::Body);
}

#[test]
fn what_is_not_http_is_interrupted() {
    check(&Scene::new(&Server::says("+OK hello\r\n\r\n").base_url).send(), Class::Interrupted, Phase::Sent);
    check(
        &Scene::new(&Server::says("HTTP/1.1 200 OK\r\ncontent-le").base_url).send(),
        Class::Interrupted,
        Phase::Sent,
    );
}

#[test]
fn a_redirect_is_reported_and_not_followed() {
    for status in [
        "301 Moved Permanently",
        "302 Found",
        "303 See Other",
        "307 Temporary Redirect",
        "308 Permanent Redirect",
    ] {
        let server = Server::says(http(status, "location: https://u:p@elsewhere.example/x?t=1\r\n", ""));
        let outcome = Scene::new(&server.base_url).send();
        check(&outcome, Class::Redirected, Phase::Body);
        let error = outcome.error.unwrap();
        assert!(error.contains("https://elsewhere.example/x,") && !error.contains("u:p"), "{error}");
        assert_eq!(server.requests().len(), 1);
    }
}

#[test]
fn a_dribbling_answer_ends_with_the_total_timeout() {
    let dribble = |head: &'static str| {
        Server::new(move |stream| {
            let _ = stream.write_all(head.as_bytes());
            for _ in 0..100 {
                if stream.write_all(b"a").is_err() {
                    return;
                }
                std::thread::sleep(Duration::from_millis(100));
            }
        })
    };
    let start = Instant::now();
    let body = send_within(&dribble("HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n"), 600);
    check(&body, Class::Timeout, Phase::Body);
    assert_eq!(body.http_status, Some(200));
    check(&send_within(&dribble("HTTP/1.1 200 OK\r\nx: "), 600), Class::Timeout, Phase::Sent);
    assert!(start.elapsed() < Duration::from_secs(6));
}

#[test]
fn an_endless_body_is_read_to_the_limit_and_no_further() {
    let server = Server::new(|stream| {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n");
        let block = [b'x'; 65536];
        for _ in 0..160 {
            if stream.write_all(&block).is_err() {
                return;
            }
        }
    });
    let outcome = Scene::new(&server.base_url).send();
    check(&outcome, Class::BadResponse, Phase::Body);
    assert_eq!(outcome.error.as_deref(), Some("the reply is over 1 MiB"));
}

#[test]
fn a_102_as_the_last_word_means_in_progress_and_one_before_an_answer_nothing() {
    let outcome = Scene::new(&Server::says("HTTP/1.1 102 Processing\r\n\r\n").base_url).send();
    check(&outcome, Class::InProgress, Phase::Headers);
    assert_eq!(outcome.http_status, Some(102));
    let both = format!("HTTP/1.1 102 Processing\r\n\r\n{}", http("200 OK", "", GOOD));
    check(&Scene::new(&Server::says(both).base_url).send(), Class::Ok, Phase::Body);
}

#[test]
fn html_and_empty_answers_are_bad_responses() {
    for body in ["<html>log in</html>", "", "not json", "\u{1}"] {
        let server = Server::says(http("200 OK", "", body));
        check(&Scene::new(&server.base_url).send(), Class::BadResponse, Phase::Body);
    }
    let server = Server::new(|stream| {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n\xff\xfe");
    });
    check(&Scene::new(&server.base_url).send(), Class::BadResponse, Phase::Body);
}

#[test]
fn the_hook_runs_once_before_any_byte() {
    let arrived = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&arrived);
    let server = Server::raw(Arc::default(), move |stream| {
        let _ = stream.peek(&mut [0]);
        seen.fetch_add(1, Ordering::SeqCst);
        read_request(stream, 0);
        let _ = stream.write_all(http("200 OK", "", GOOD).as_bytes());
    });
    let runs = AtomicUsize::new(0);
    let outcome = Scene::new(&server.base_url).step(Step::Send, &|| {
        runs.fetch_add(1, Ordering::SeqCst);
        std::thread::sleep(Duration::from_millis(200));
        assert_eq!(arrived.load(Ordering::SeqCst), 0, "a byte arrived before the hook had agreed");
        Ok(())
    });
    check(&outcome, Class::Ok, Phase::Body);
    assert_eq!(runs.load(Ordering::SeqCst), 1);
}

#[test]
fn a_hook_that_refuses_leaves_no_byte() {
    let (tx, rx) = std::sync::mpsc::channel();
    let server = Server::raw(Arc::default(), move |stream| {
        let mut bytes = Vec::new();
        let _ = stream.read_to_end(&mut bytes);
        tx.send(bytes.len()).unwrap();
    });
    let outcome = Scene::new(&server.base_url).step(Step::Send, &|| Err("the disk is full".into()));
    check(&outcome, Class::NotSent, Phase::Connect);
    assert_eq!(outcome.error.as_deref(), Some("the disk is full"));
    assert_eq!(rx.recv_timeout(Duration::from_secs(10)).unwrap(), 0);
}

#[test]
fn the_hook_does_not_run_without_a_connection() {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let runs = AtomicUsize::new(0);
    Scene::new(&format!("http://127.0.0.1:{port}")).step(Step::Send, &|| {
        runs.fetch_add(1, Ordering::SeqCst);
        Ok(())
    });
    assert_eq!(runs.load(Ordering::SeqCst), 0);
}

#[test]
fn providers_are_shared_by_threads() {
    fn shared<T: Send + Sync>() {}
    shared::<Providers>();
}
