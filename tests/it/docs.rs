//! The documents say what is so: their examples are read by the real reader, their table is the profiles'.

use onceward::config::{Config, KeyPlace, Profile};
use std::path::Path;

const PROVIDERS: &str = include_str!("../../docs/providers.md");

/// The fenced blocks of TOML, with the line that each begins on.
fn examples(document: &str) -> Vec<(usize, String)> {
    let mut blocks: Vec<(usize, String)> = Vec::new();
    let mut inside = false;
    for (n, line) in document.lines().enumerate() {
        match (inside, line) {
            (false, "```toml") => {
                inside = true;
                blocks.push((n + 1, String::new()));
            }
            (true, "```") => inside = false,
            (true, line) => blocks.last_mut().expect("a block was begun").1 += &format!("{line}\n"),
            (false, _) => {}
        }
    }
    blocks
}

#[test]
fn every_example_of_a_provider_can_be_used_as_it_stands() {
    let examples = examples(PROVIDERS);
    assert!(examples.len() >= 6, "{}", examples.len());
    for (line, text) in examples {
        let read = Config::parse(&text, Path::new("providers.md"));
        assert!(read.is_ok(), "the example at line {line}: {}\n{text}", read.unwrap_err());
        assert!(!read.unwrap().providers.is_empty(), "the example at line {line} has no provider");
    }
}

#[test]
fn the_table_of_profiles_is_what_the_profiles_say() {
    let rows: Vec<&str> = PROVIDERS.lines().filter(|line| line.starts_with("| `")).collect();
    let names = Profile::builtin_names();
    assert_eq!(rows.len(), names.len());
    for (row, name) in rows.iter().zip(names) {
        let profile = Profile::builtin(name).expect("it is one of them");
        let window = row.rsplit('|').nth(1).expect("a window").trim();
        let key = if profile.key == KeyPlace::None { "none".into() } else { profile.key.to_string() };
        assert_eq!(*row, format!("| `{name}` | {:?} | {key} | {window} |", profile.family));
        let said = (window != "-").then(|| onceward::config::parse_duration(window).expect("a duration"));
        assert_eq!(said, profile.window, "{name}");
    }
}

/// Every `name_of_a_test` in a document that promises something.
fn tests_named(document: &str) -> Vec<&str> {
    let spans = document.split('`').skip(1).step_by(2);
    let is_test = |name: &&str| {
        name.matches('_').count() >= 3
            && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
    };
    spans.filter(is_test).collect()
}

fn sources(folder: &Path, all: &mut String) {
    for entry in std::fs::read_dir(folder).expect("the folder is there").flatten() {
        let path = entry.path();
        if path.is_dir() {
            sources(&path, all);
        } else if path.extension().is_some_and(|end| end == "rs") {
            all.push_str(&std::fs::read_to_string(&path).expect("a source is text"));
        }
    }
}

#[test]
fn every_test_that_the_documents_name_is_there() {
    let guarantees = tests_named(include_str!("../../docs/guarantees.md"));
    let security = tests_named(include_str!("../../docs/SECURITY.md"));
    assert!(guarantees.len() > 50 && security.len() > 25, "{} {}", guarantees.len(), security.len());
    let names = guarantees.into_iter().chain(security);
    let mut all = String::new();
    for folder in ["src", "tests"] {
        sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join(folder), &mut all);
    }
    let there = |name: &str| {
        let head = format!("fn {name}(");
        // A test of its own, or one that a macro makes of its name.
        all.match_indices(&head).any(|(at, _)| all[..at].trim_end().ends_with("#[test]"))
            || all.lines().any(|line| line.trim_start().starts_with(name))
    };
    let missing: Vec<&str> = names.filter(|name| !there(name)).collect();
    assert_eq!(missing, Vec::<&str>::new());
}

#[test]
fn every_link_of_the_documents_leads_to_a_file() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut pages = vec![root.join("README.md")];
    for folder in ["docs", "docs/how-to", "docs/reference"] {
        let entries = std::fs::read_dir(root.join(folder)).expect("the folder is there").flatten();
        pages.extend(
            entries.map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|e| e == "md")),
        );
    }
    let mut followed = 0;
    for page in pages {
        let text = std::fs::read_to_string(&page).expect("a page is text");
        for link in text.split("](").skip(1).filter_map(|rest| Some(rest.split_once(')')?.0)) {
            let file = link.split('#').next().unwrap_or_default();
            if file.is_empty() || link.starts_with("http") {
                continue;
            }
            let there = page.parent().expect("a folder").join(file);
            assert!(there.exists(), "{} links to {link}, which is not there", page.display());
            followed += 1;
        }
    }
    assert!(followed > 20, "{followed}");
}

/// `forbid` cannot be taken back further in.
#[test]
fn the_code_forbids_unsafe() {
    for root in [include_str!("../../src/lib.rs"), include_str!("../../src/main.rs")] {
        assert!(root.lines().any(|line| line == "#![forbid(unsafe_code)]"));
    }
}
