//! What the arguments mean, before anything is opened.

use super::*;

#[track_caller]
fn parse(args: &str) -> Result<Cli, clap::Error> {
    Cli::try_parse_from(std::iter::once("onceward").chain(args.split_whitespace()))
}

#[track_caller]
fn refused(args: &str) {
    assert!(parse(args).is_err(), "`{args}` was taken");
}

#[test]
fn the_command_line_is_sound() {
    use clap::CommandFactory;
    Cli::command().debug_assert();
}

#[test]
fn global_options_stand_before_or_after_the_command() {
    for args in
        ["--json --config f.toml stats", "stats --json --config f.toml", "--json stats --config f.toml"]
    {
        let cli = parse(args).unwrap();
        assert!(cli.json && cli.config.as_deref() == Some("f.toml".as_ref()), "{args}");
    }
}

#[test]
fn what_contradicts_itself_is_refused() {
    for args in [
        "",
        "frobnicate",
        "work --once --exit-when-idle",
        "enqueue",
        "enqueue k --payload {} --payload-file f",
        "enqueue k --payload {} --dedup a",
        "enqueue k --payload {} --dedup-window 5m",
        "enqueue k --payload {} --at 2026-11-29T13:00:00Z --delay 5m",
        "enqueue k --payload {} --sequence one",
        "list --limit many",
        "show",
        "replay",
        "replay k --all",
        "replay --all --class timeout",
        "replay --all --payload {}",
        "replay k --amend-money",
        "resolve k",
        "resolve k --settled r --not-applied",
        "resolve k --not-applied --rejected no",
        "cancel",
        "confirm k",
        "demo --jobs 0",
    ] {
        refused(args);
    }
}

#[test]
fn values_may_begin_with_a_hyphen() {
    for args in [
        "enqueue k --payload -1 --key -k --group -g --account -a --dedup -d --dedup-window 5m --priority -3",
        "enqueue k --payload-file - --amount-minor -5 --sequence -1",
        "resolve k --settled -r --note -n",
        "resolve k --rejected --why-not",
        "confirm k --reference -r",
        "show -- -k",
    ] {
        if let Err(e) = parse(args) {
            panic!("{args}: {e}");
        }
    }
}

#[test]
fn every_code_has_the_exit_code_of_the_documents() {
    for code in Code::ALL {
        let exit = match code.as_str() {
            "usage" | "config" => 2,
            "not_found" => 3,
            "database" | "io" | "busy" => 1,
            _ => 4,
        };
        assert_eq!(exit_code(*code), exit, "{code}");
    }
    assert_eq!(CliError::Closed.exit(), 0);
    assert_eq!(CliError::Told(Code::NotAllowed).exit(), 4);
    assert_eq!(CliError::Store(StoreError::NoFile("f".into())).exit(), 3);
}

#[test]
fn several_missing_secrets_are_named_in_one_error() {
    let error = |line: usize| ConfigError {
        file: "onceward.toml".into(),
        line: Some(line),
        field: format!("providers.p{line}.auth"),
        message: "not set".into(),
    };
    assert!(all_missing(Vec::new()).is_none());
    let all = all_missing(vec![error(3), error(9)]).unwrap().to_string();
    assert!(all.starts_with("onceward.toml:3:") && all.contains("onceward.toml:9:"), "{all}");
}

#[test]
fn the_actor_says_who_and_where() {
    let actor = actor();
    assert!(actor.starts_with("cli:") && actor.matches('@').count() == 1, "{actor}");
    assert!(!actor.contains(char::is_control));
}

/// What people look up: the help of every command, in one page. `ONCEWARD_BLESS=1` writes it anew.
#[test]
fn the_reference_of_commands_is_what_the_command_line_knows() {
    let page = manual::reference();
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/reference/commands.md");
    if std::env::var_os("ONCEWARD_BLESS").is_some() {
        std::fs::write(path, &page).unwrap();
    }
    let kept = std::fs::read_to_string(path).unwrap_or_default();
    assert_eq!(kept, page, "{path} differs: run this test with ONCEWARD_BLESS=1");
}
