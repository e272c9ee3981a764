//! Configs: real ones with something done to them. Never a panic, and each error says where and what.

use super::{cases, mutated, rng};
use onceward::config::Config;
use std::path::Path;

const INIT: &str = include_str!("../../src/cli/init.toml");
const PROVIDERS: &str = include_str!("../../docs/providers.md");

fn sources() -> Vec<String> {
    let blocks = PROVIDERS.split("```toml\n").skip(1).filter_map(|rest| rest.split("```").next());
    let mut sources: Vec<String> = blocks.map(String::from).collect();
    sources.push(INIT.into());
    // What is commented out there is a config too.
    sources.push(INIT.replace("\n# ", "\n"));
    assert!(sources.len() > 6);
    sources
}

#[test]
fn no_config_makes_the_reader_fail_and_each_error_names_file_line_and_field() {
    let (sources, mut rng, mut refused) = (sources(), rng(), 0);
    for n in 0..cases(4000) {
        let source = &sources[rng.usize(..sources.len())];
        let text = mutated(&mut rng, source);
        let Err(e) = Config::parse(&text, Path::new("of-this-test.toml")) else { continue };
        refused += 1;
        let said = e.to_string();
        assert!(said.starts_with("of-this-test.toml"), "case {n}: {said}\n{text}");
        assert!(e.message.len() > 3, "case {n}: {said}\n{text}");
        // A line unless the whole file is meant, and then the field says what is missing.
        assert!(e.line.is_some() || !e.field.is_empty() || e.message.len() > 15, "case {n}: {said}\n{text}");
        let lines = text.lines().count() + 1;
        assert!(e.line.is_none_or(|line| (1..=lines).contains(&line)), "case {n}: {said}\n{text}");
    }
    assert!(refused > cases(4000) / 10, "the mutations do something: {refused}");
}
