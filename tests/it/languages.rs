//! The examples in other languages: each enqueues in its own transaction and over HTTP, and reads what became of it. The
//! answer to the first request over HTTP is lost on its way, so that each of them has to ask again.
//!
//! `tests/run` installs what they need; a language that is missing is skipped, and says so.

use crate::harness::wire::{Asked, Conn, Wire, fault};
use crate::harness::*;
use onceward::demo::provider::Family;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

fn here(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// Whether a command can be run and says yes.
fn can(program: &str, args: &[&str]) -> bool {
    let mut command = Command::new(program);
    command.args(args).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.env("NODE_PATH", here("target/node/node_modules"));
    command.status().is_ok_and(|status| status.success())
}

fn skipped(language: &str, needs: &str) {
    eprintln!("SKIPPED the example in {language}: it needs {needs}; tests/run installs it where it can");
}

/// Hands a request on to the API, under the name that it goes by, and gives the whole answer.
fn forward(api: SocketAddr, asked: &Asked) -> Vec<u8> {
    let mut stream = TcpStream::connect(api).expect("the API takes connections");
    let fields = asked.head.split("\r\n").filter(|line| {
        !["host:", "connection:"].iter().any(|name| line.to_ascii_lowercase().starts_with(name))
    });
    let head: Vec<&str> = fields.collect();
    let head = head.join("\r\n").replacen("\r\n", &format!("\r\nHost: {api}\r\nConnection: close\r\n"), 1);
    stream.write_all(&[head.as_bytes(), &asked.body].concat()).expect("sent");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("answered");
    answer
}

/// Lets a shop do its three things against the real program and a provider.
#[track_caller]
fn a_shop_works(mut shop: Command) {
    let h = Scene::new(Family::B).with_http().start();
    let web = h.serve();
    let (api, requests) = (web.address, Arc::new(AtomicUsize::new(0)));
    let lossy = move |conn: &mut Conn| {
        let answer = forward(api, &conn.request());
        if requests.fetch_add(1, Ordering::SeqCst) > 0 {
            conn.say(answer);
        }
    };
    let wire = Wire::start(Vec::new(), fault(lossy), None);
    let log = h.dir.path().join("shop.log");
    let said = h.dir.path().join("shop.txt");
    let mut running = shop
        .arg(h.dir.path().join("onceward.db"))
        .arg(wire.base_url())
        .env("ONCEWARD_TOKEN", TOKEN)
        .current_dir(h.dir.path())
        .stdin(Stdio::null())
        .stdout(std::fs::File::create(&said).expect("a file"))
        .stderr(std::fs::File::create(&log).expect("a log"))
        .spawn()
        .expect("the shop starts");
    let status = wait(&mut running, LIMIT * 3);
    let _ = running.kill();
    assert!(status.is_some_and(|status| status.success()), "{status:?}");

    let reference =
        |n| h.assert_settled_once(&key(n))["intent"]["reference"].as_str().expect("one").to_string();
    let expected = format!(
        "payout:INV-2 settled {}\npayout:INV-3 duplicate\npayout:INV-3 settled {}\n",
        reference(2),
        reference(3)
    );
    assert_eq!(std::fs::read_to_string(&said).expect("what it said"), expected);
    assert_eq!(h.list(&[]).len(), 2, "what was rolled back is no job");
    assert_eq!(h.count("SELECT count(*) FROM invoices"), 1);
    assert_eq!(h.show(&key(2))["history"][0]["actor"], "inbox");
    let asked = wire.asked();
    let posts: Vec<&Asked> = asked.iter().filter(|asked| asked.head.starts_with("POST")).collect();
    assert_eq!(posts.len(), 2, "once more for the answer that was lost");
    assert!(posts.iter().all(|post| post.header("idempotency-key") == Some("payout:INV-3")));
    assert_eq!(posts[0].body, posts[1].body);
    drop(web);
    h.assert_laws();
}

#[test]
fn the_example_in_python_works() {
    let mut shop = Command::new("python3");
    shop.arg(here("examples/python/shop.py"));
    a_shop_works(shop);
}

#[test]
fn the_example_in_shell_works() {
    let mut shop = Command::new("sh");
    shop.arg(here("examples/shell/shop.sh"));
    a_shop_works(shop);
}

#[test]
fn the_example_in_node_works() {
    let module = "try { require('node:sqlite') } catch { require('@photostructure/sqlite') }; fetch";
    if !can("node", &["-e", module]) {
        return skipped("Node", "node 20 and node:sqlite or @photostructure/sqlite");
    }
    let mut shop = Command::new("node");
    shop.arg(here("examples/node/shop.js")).env("NODE_PATH", here("target/node/node_modules"));
    a_shop_works(shop);
}

#[test]
fn the_example_in_php_works() {
    if !can("php", &["-r", "exit(extension_loaded('sqlite3') ? 0 : 1);"]) {
        return skipped("PHP", "php-cli and php-sqlite3");
    }
    let mut shop = Command::new("php");
    shop.arg(here("examples/php/shop.php"));
    a_shop_works(shop);
}

#[test]
fn the_example_in_ruby_works() {
    if !can("ruby", &["-e", "require 'sqlite3'"]) {
        return skipped("Ruby", "ruby and ruby-sqlite3");
    }
    let mut shop = Command::new("ruby");
    shop.arg(here("examples/ruby/shop.rb"));
    a_shop_works(shop);
}

#[test]
fn the_example_in_go_works() {
    let driver = Path::new("/usr/share/gocode/src/github.com/mattn/go-sqlite3");
    if !can("go", &["version"]) || !driver.exists() {
        return skipped("Go", "golang-go and golang-github-mattn-go-sqlite3-dev");
    }
    let program = tempfile::tempdir().expect("a folder");
    let built = Command::new("go")
        .args(["build", "-o"])
        .arg(program.path().join("shop"))
        .arg(here("examples/go/shop.go"))
        .envs([("GO111MODULE", "off"), ("GOPATH", "/usr/share/gocode")])
        .env("GOCACHE", here("target/go"))
        .output()
        .expect("go runs");
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    a_shop_works(Command::new(program.path().join("shop")));
}

#[test]
fn the_examples_config_and_bank_fit_each_other() {
    let h = Scene::new(Family::B).start();
    let mut bank = Command::new("python3")
        .arg(here("examples/bank.py"))
        .arg("0")
        .stdout(Stdio::piped())
        .spawn()
        .expect("python3 starts");
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(bank.stdout.take().expect("stdout")));
    let address = lines.next().expect("a line").expect("text");
    let url = address.strip_prefix("listening on ").expect("an address");
    let text = std::fs::read_to_string(here("examples/onceward.toml")).expect("the config");
    h.config(&text.replace("http://127.0.0.1:8080", url));
    h.payout(1);
    h.env("ONCEWARD_TOKEN", TOKEN);
    h.work_until_idle();
    let job = h.show(&key(1));
    let _ = bank.kill();
    let _ = bank.wait();
    assert_eq!((&job["state"], &job["intent"]["reference"]), (&"settled".into(), &"po_1".into()), "{job:#}");
    assert_eq!(lines.next().expect("a line").expect("text"), "paid po_1 payout:INV-1");
}

/// Celery's worker; ended with its whole process group when it is dropped.
#[cfg(unix)]
struct Celery(std::process::Child);

#[cfg(unix)]
impl Drop for Celery {
    fn drop(&mut self) {
        let group = format!("-{}", self.0.id());
        let _ = Command::new("sh").args(["-c", "kill -KILL \"$0\"", &group]).status();
        let _ = self.0.wait();
    }
}

#[cfg(unix)]
#[test]
fn a_task_that_celery_delivers_three_times_around_a_kill_is_one_row_and_one_effect() {
    use std::os::unix::process::CommandExt;
    let bin = here("target/celery/bin");
    if !bin.join("celery").exists() {
        return skipped("Celery", "celery in target/celery");
    }
    let h = Scene::new(Family::B).start();
    h.config(&std::fs::read_to_string(here("examples/celery/onceward.toml")).expect("the config"));
    let shop = h.dir.path().join("shop");
    std::fs::create_dir(&shop).expect("a folder");
    std::fs::write(shop.join("fuse"), "").expect("a fuse");
    let log = h.dir.path().join("celery.log");
    let in_shop = |program: &str| {
        let mut command = Command::new(bin.join(program));
        command
            .current_dir(here("examples/celery"))
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .env("SHOP", &shop)
            .env("BANK", h.provider.base_url())
            .env("ONCEWARD", env!("CARGO_BIN_EXE_onceward"))
            .env("ONCEWARD_CONFIG", h.config_path())
            .stdin(Stdio::null());
        command
    };
    let send = || {
        let sent = in_shop("python").args(["-m", "tasks", "ORD-17", "1250"]).output().expect("python runs");
        assert!(sent.status.success(), "{}", String::from_utf8_lossy(&sent.stderr));
    };
    // Twice by the shop's own mistake, and once more because the process that does the first dies.
    send();
    send();
    let said = std::fs::File::create(&log).expect("a log");
    let worker = in_shop("celery")
        .args(["-A", "tasks", "worker", "--pool", "prefork", "--concurrency", "1", "--loglevel", "info"])
        .args(["--without-gossip", "--without-mingle", "--without-heartbeat"])
        .stdout(said.try_clone().expect("the log"))
        .stderr(said)
        .process_group(0)
        .spawn()
        .expect("celery starts");
    let worker = Celery(worker);
    let read = || std::fs::read_to_string(&log).expect("the log");
    let start = Instant::now();
    while read().matches("delivery charge:ORD-17").count() < 3 || h.stats()["jobs"]["settled"] != 1 {
        assert!(start.elapsed() < LIMIT * 2, "the task was not delivered three times and settled");
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    drop(worker);
    let said = read();
    assert!(!shop.join("fuse").exists() && said.contains("WorkerLostError"), "nobody was killed: {said}");
    assert_eq!(said.matches("delivery charge:ORD-17 created").count(), 1, "{said}");
    assert_eq!((h.posts().len(), h.effects("charge:ORD-17")), (1, 1), "one call, one effect");
    h.assert_settled_once("charge:ORD-17");
    assert_eq!(h.count("SELECT count(*) FROM onceward_intents"), 1);
}
