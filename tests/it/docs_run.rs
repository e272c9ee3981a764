//! The pages are run as a reader would run them: every block of shell, in a shell, in a folder of its own, with the real
//! binary and the provider that it serves. What a page shows as output must be what comes out.
//!
//! A block that cannot be run has `<!-- not run: WHY -->` before it. A `text` block right after a shell block is its
//! output: line by line and in this order, `…` standing for anything, and further lines may come between.

use crate::harness::LIMIT;
use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

/// Where the pages let the provider listen. Each run has a port of its own instead.
const PAGE_ADDRESS: &str = "127.0.0.1:8080";

struct Block {
    line: usize,
    shell: String,
    shown: String,
}

/// The blocks that can be run, each with the output that the page shows.
fn blocks(page: &str) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    let mut lines = page.lines().enumerate();
    let (mut excused, mut after_shell) = (false, false);
    while let Some((n, line)) = lines.next() {
        let mut body = || {
            let inside = lines.by_ref().map(|(_, line)| line).take_while(|line| *line != "```");
            inside.fold(String::new(), |text, line| text + line + "\n")
        };
        match line {
            "" => continue,
            "```sh" if !excused => {
                blocks.push(Block { line: n + 1, shell: body(), shown: String::new() });
                after_shell = true;
                continue;
            }
            "```text" if after_shell => blocks.last_mut().expect("a block before").shown = body(),
            fence if fence.starts_with("```") => drop(body()),
            _ => {}
        }
        after_shell = false;
        excused = line.starts_with("<!-- not run: ") && line.ends_with(" -->");
    }
    blocks
}

/// `onceward` as the reader has it on the path; the config that `init` wrote gets this run's port.
fn wrapper(bin: &Path, address: &str) {
    let program = env!("CARGO_BIN_EXE_onceward");
    let text = format!(
        "#!/bin/sh\nif [ \"$1\" = init ]; then '{program}' init && sed -i 's/{PAGE_ADDRESS}/{address}/' onceward.toml\n\
         else exec '{program}' \"$@\"\nfi\n"
    );
    std::fs::create_dir(bin).expect("a folder");
    std::fs::write(bin.join("onceward"), text).expect("the wrapper");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(bin.join("onceward"), mode).expect("it can be run");
}

/// Runs a page's blocks in one shell; gives what each one said.
fn run(name: &str, blocks: &[Block]) -> Vec<String> {
    let dir = tempfile::tempdir().expect("a folder");
    let port = std::net::TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr()).expect("a free port");
    wrapper(&dir.path().join("bin"), &port.to_string());
    let shop = dir.path().join("shop");
    std::fs::create_dir(&shop).expect("a folder");
    let script = blocks.iter().enumerate().fold(String::new(), |script, (n, block)| {
        let shell = block.shell.replace(PAGE_ADDRESS, &port.to_string());
        script + &format!("printf '\\n@@@ %s\\n' {n}\n{shell}\n")
    });
    std::fs::write(dir.path().join("page.sh"), script + "printf '\\n@@@ end\\n'\n").expect("the script");
    let said = dir.path().join("said");
    let out = File::create(&said).expect("a file");
    let path = format!("{}:{}", dir.path().join("bin").display(), std::env::var("PATH").expect("a path"));
    let mut shell = Command::new("bash")
        .arg("-e")
        .arg(dir.path().join("page.sh"))
        .current_dir(&shop)
        .env_clear()
        .envs([("PATH", path.as_str()), ("HOME", "/nonexistent"), ("USER", "shop")])
        .stdin(Stdio::null())
        .stderr(out.try_clone().expect("the same file"))
        .stdout(out)
        .process_group(0)
        .spawn()
        .expect("bash is there");
    let start = Instant::now();
    let status = loop {
        if let Some(status) = shell.try_wait().expect("it can be waited for") {
            break Some(status);
        }
        if start.elapsed() > LIMIT * 3 {
            break None;
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    };
    // Whatever the page left running ends with it.
    let _ =
        Command::new("sh").args(["-c", &format!("kill -9 -{}", shell.id())]).stderr(Stdio::null()).status();
    let said = std::fs::read_to_string(&said).expect("what it said");
    assert!(status.is_some_and(|s| s.success()), "{name}: {status:?} at the last of these blocks\n{said}");
    let parts = (0..blocks.len()).map(|n| {
        let from = said.split_once(&format!("\n@@@ {n}\n")).expect("it began").1;
        from.split_once("\n@@@ ").expect("it ended").0.to_string()
    });
    parts.collect()
}

/// Is the line what the page shows? Blanks count as one, `…` is anything.
fn fits(line: &str, shown: &str) -> bool {
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let (line, shown) = (words(line), words(shown));
    let mut parts = shown.split('…').map(str::trim);
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = line.strip_prefix(first) else { return false };
    let mut whole = !shown.contains('…');
    for part in parts {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
        whole = !part.is_empty();
    }
    !whole || rest.is_empty()
}

fn check(page: &Path) {
    let name = page.file_name().expect("a name").to_string_lossy();
    let text = std::fs::read_to_string(page).expect("the page");
    let blocks = blocks(&text);
    if blocks.is_empty() {
        return;
    }
    for (block, said) in blocks.iter().zip(run(&name, &blocks)) {
        let mut lines = said.lines();
        for shown in block.shown.lines().filter(|line| !matches!(line.trim(), "" | "…")) {
            assert!(
                lines.any(|line| fits(line, shown)),
                "{name}:{}: the page shows\n  {shown}\nand this came out:\n{said}",
                block.line
            );
        }
    }
}

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("docs")
}

#[test]
fn every_command_of_the_tutorial_runs_and_says_what_the_page_shows() {
    check(&docs().join("tutorial.md"));
}

#[test]
fn every_command_of_the_readme_runs_and_says_what_the_page_shows() {
    check(&docs().join("../README.md"));
}

#[test]
fn every_command_of_the_other_pages_runs_and_says_what_the_page_shows() {
    let mut pages = vec![docs().join("concepts.md"), docs().join("api.md"), docs().join("SECURITY.md")];
    for entry in std::fs::read_dir(docs().join("how-to")).expect("the folder") {
        pages.push(entry.expect("an entry").path());
    }
    assert!(pages.len() > 6, "{pages:?}");
    for page in pages {
        check(&page);
    }
}

#[test]
fn a_line_fits_what_a_page_shows_only_if_it_is_that_line() {
    assert!(fits("created payout:INV-1 (#1, ready)", "created payout:INV-1 (#1, ready)"));
    assert!(fits(" #1  payout  settled   po_1 ", "#1 payout settled …"));
    assert!(fits("at 12:00 -> settled: x", "… -> settled: …"));
    for (line, shown) in [
        ("created payout:INV-10", "created payout:INV-1"),
        ("#1 payout parked", "#1 payout settled …"),
        ("x created", "created"),
        ("at 12:00 -> settled: x", "… -> settled:"),
    ] {
        assert!(!fits(line, shown), "{line} | {shown}");
    }
}
