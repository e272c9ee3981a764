//! The example of a desktop app that carries the library, as a process of its own: closed, interrupted, and killed.

use rusqlite::Connection;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use crate::harness::{LIMIT, wait};

struct Window {
    child: Child,
    clicks: Option<ChildStdin>,
    lines: std::io::Lines<BufReader<ChildStdout>>,
}

impl Window {
    fn open(folder: &Path) -> Window {
        let program = Path::new(env!("CARGO_BIN_EXE_onceward")).with_file_name("examples").join("window");
        let mut child = Command::new(&program)
            .arg(folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|e| panic!("{}: {e}; build it: cargo build --examples", program.display()));
        let clicks = child.stdin.take();
        let lines = BufReader::new(child.stdout.take().expect("stdout")).lines();
        Window { child, clicks, lines }
    }

    fn sell(&mut self, seat: &str) {
        writeln!(self.clicks.as_mut().expect("open"), "sell {seat}").expect("a click");
    }

    /// Reads on until it says this.
    #[track_caller]
    fn says(&mut self, wanted: &str) {
        let mut so_far = Vec::new();
        while let Some(Ok(line)) = self.lines.next() {
            if line == wanted {
                return;
            }
            so_far.push(line);
        }
        panic!("it never said `{wanted}`: {so_far:?}");
    }

    #[track_caller]
    fn ends(&mut self) {
        self.says("closed, nothing is being printed");
        let status = wait(&mut self.child, LIMIT).expect("it ends");
        assert!(status.success(), "{status}");
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn column(folder: &Path, sql: &str) -> Vec<String> {
    let db = Connection::open(folder.join("tickets.db")).expect("the file opens");
    db.busy_timeout(Duration::from_secs(30)).expect("a time-out");
    let mut statement = db.prepare(sql).expect(sql);
    let rows = statement.query_map([], |row| row.get(0)).expect(sql);
    rows.collect::<Result<_, _>>().expect(sql)
}

const CLASSES: &str = "SELECT class FROM onceward_history WHERE class IS NOT NULL ORDER BY seq";
const TICKETS: &str = "SELECT seat FROM tickets ORDER BY seat";

#[test]
fn a_window_that_is_closed_waits_for_the_ticket_in_the_printer() {
    let folder = tempfile::tempdir().expect("a folder");
    let paper = folder.path().join("out-of-paper");
    std::fs::write(&paper, "").expect("written");
    let mut window = Window::open(folder.path());
    window.sell("A12");
    window.says("A12: printing");
    drop(window.clicks.take());
    std::fs::remove_file(&paper).expect("paper again");
    window.ends();
    assert_eq!(column(folder.path(), TICKETS), ["A12"]);
    assert_eq!(column(folder.path(), CLASSES), ["ok"]);
}

#[cfg(unix)]
#[test]
fn ctrl_c_closes_it_in_the_same_way() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut window = Window::open(folder.path());
    window.sell("A12");
    window.says("A12: printing");
    let pid = window.child.id().to_string();
    let status = Command::new("sh").args(["-c", "kill -INT \"$0\"", &pid]).status().expect("sh runs");
    assert!(status.success());
    window.ends();
    assert_eq!(column(folder.path(), TICKETS), ["A12"]);
}

#[test]
fn a_window_that_was_killed_while_it_printed_prints_one_ticket_when_it_is_opened_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let paper = folder.path().join("out-of-paper");
    std::fs::write(&paper, "").expect("written");
    let mut window = Window::open(folder.path());
    window.sell("A12");
    window.says("A12: printing");
    window.child.kill().expect("SIGKILL");
    window.child.wait().expect("gone");
    assert_eq!(column(folder.path(), TICKETS).len(), 0);
    std::fs::remove_file(&paper).expect("paper again");

    let mut window = Window::open(folder.path());
    window.says("A12: printing");
    window.sell("A12");
    window.says("A12: duplicate");
    drop(window.clicks.take());
    window.ends();
    assert_eq!(column(folder.path(), TICKETS), ["A12"]);
    assert_eq!(column(folder.path(), CLASSES), ["crashed", "ok"]);
}
