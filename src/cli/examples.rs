//! What `--help` of each command ends with: examples, which a test reads as the command line does.

use super::Cli;
use clap::{Command, CommandFactory};

/// A command's path, and its examples.
#[rustfmt::skip]
const EXAMPLES: &[(&str, &[&str])] = &[
    ("init", &["onceward init", "onceward --config /etc/onceward/onceward.toml init"]),
    ("check", &["onceward check", "onceward check --online"]),
    ("work", &[
        "onceward work",
        "onceward --config /etc/onceward/onceward.toml work",
        "onceward work --exit-when-idle",
        "onceward work --child",
    ]),
    ("enqueue", &[
        r#"onceward enqueue payout --payload '{"invoice_id":"INV-1001","account_id":"7","amount_minor":1250,"currency":"EUR"}'"#,
        "onceward enqueue mail --key mail:welcome:42 --payload-file mail.json --delay 10m",
    ]),
    ("import", &["onceward import jobs.jsonl", "onceward --json import -"]),
    ("list", &["onceward list --state parked", "onceward --json list --kind payout --limit 1000"]),
    ("show", &["onceward show payout:INV-1001", "onceward --json show '#7'"]),
    ("stats", &["onceward stats --watch", "onceward --json stats"]),
    ("replay", &[
        "onceward replay payout:INV-1001",
        "onceward replay --class rejected",
        r#"onceward replay payout:INV-1001 --payload '{"invoice_id":"INV-1001","iban":"DE02"}'"#,
    ]),
    ("resolve", &[
        "onceward resolve payout:INV-1001 --settled po_123 --note 'seen in the bank’s list'",
        "onceward resolve payout:INV-1001 --not-applied",
        "onceward resolve charge:17 --not-applied --generation 2",
        "onceward resolve payout:INV-1001 --rejected 'account closed'",
        "onceward resolve --not-applied --all-generations --all --class unknown_outcome",
    ]),
    ("cancel", &["onceward cancel payout:INV-1001"]),
    ("confirm", &["onceward confirm payout:INV-1001 --reference po_123"]),
    ("note", &[
        "onceward note payout:INV-1001 'asked the bank on Monday'",
        "onceward note payout:INV-1001 'chargeback' --reversed cb_9",
    ]),
    ("pause", &["onceward pause provider bank --why 'maintenance until six'", "onceward pause kind payout", "onceward pause group account:42"]),
    ("resume", &["onceward resume provider bank"]),
    ("group show", &["onceward group show account:42"]),
    ("group skip", &["onceward group skip account:42 --sequence 4"]),
    ("providers", &["onceward providers", "onceward providers stripe"]),
    ("audit verify", &["onceward audit verify"]),
    ("audit export", &["onceward audit export --format csv --output history.csv"]),
    ("backup", &["onceward backup /mnt/usb/onceward-monday.db"]),
    ("restore", &["onceward restore /mnt/usb/onceward-monday.db"]),
    ("prune", &["onceward prune", "onceward prune --archive 2026.jsonl"]),
    ("reconcile statement", &[
        "onceward reconcile statement payouts.csv --provider bank --columns reference=ID,amount=Amount,currency=Currency --confirm",
    ]),
    ("alerts test", &["onceward alerts test"]),
    ("demo", &["onceward demo", "onceward demo --serve 127.0.0.1:8080"]),
    ("bench", &["onceward bench", "onceward --json bench --seconds 5"]),
    ("completions", &["onceward completions bash"]),
    ("man", &["onceward man", "onceward man --to /usr/share/man/man1"]),
];

/// What the help of the whole ends with.
const FIRST_STEPS: &str = "First steps:
  onceward init                      a config and an empty file, here
  onceward check                     what is well, what is not, and what to do
  onceward work                      leave it running
  onceward enqueue payout --payload '{\"invoice_id\":\"INV-1001\",\"amount_minor\":1250,\"currency\":\"EUR\"}'
  onceward show payout:INV-1001      what became of it
  onceward list --state parked       what waits for a person
`onceward demo` shows it at work without any of this; `onceward help COMMAND` has examples of each command.";

/// The command line with its examples.
pub fn command() -> Command {
    EXAMPLES.iter().fold(Cli::command().after_help(FIRST_STEPS), |command, (path, examples)| {
        let text = examples.iter().fold("Examples:".to_string(), |text, example| text + "\n  " + example);
        match path.split_once(' ') {
            None => command.mut_subcommand(path, |below| below.after_help(text)),
            Some((above, below)) => command
                .mut_subcommand(above, |above| above.mut_subcommand(below, |below| below.after_help(text))),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The words of a line as a shell reads them: blanks part them, single quotes keep them together.
    fn words(line: &str) -> Vec<String> {
        let (mut words, mut quoted) = (vec![String::new()], false);
        for c in line.chars() {
            match c {
                '\'' => quoted = !quoted,
                ' ' if !quoted => words.push(String::new()),
                c => words.last_mut().unwrap().push(c),
            }
        }
        words
    }

    #[test]
    fn each_example_of_the_help_is_a_command_that_is_taken_and_is_of_its_own_command() {
        for (path, examples) in EXAMPLES {
            for example in *examples {
                let matches = command().try_get_matches_from(words(example));
                let matches = matches.unwrap_or_else(|e| panic!("{example}: {e}"));
                let mut at = &matches;
                for name in path.split(' ') {
                    let (found, below) = at.subcommand().unwrap();
                    assert_eq!(found, name, "{example}");
                    at = below;
                }
            }
        }
    }

    #[test]
    fn each_first_step_is_a_command_that_is_taken() {
        for step in FIRST_STEPS.lines().filter_map(|line| line.strip_prefix("  ")) {
            // What it does stands behind a gap.
            let example = step.split("   ").next().unwrap();
            let taken = command().try_get_matches_from(words(example));
            assert!(taken.is_ok(), "{example}: {}", taken.unwrap_err());
        }
    }

    #[test]
    fn every_command_has_an_example_in_its_help() {
        fn leaves(command: &Command) -> Vec<&Command> {
            let below: Vec<&Command> = command.get_subcommands().filter(|c| c.get_name() != "help").collect();
            if below.is_empty() || command.get_after_help().is_some() {
                vec![command]
            } else {
                below.into_iter().flat_map(leaves).collect()
            }
        }
        let command = command();
        for leaf in command.get_subcommands().filter(|c| c.get_name() != "help").flat_map(leaves) {
            let help = leaf.get_after_help().map(|help| help.to_string()).unwrap_or_default();
            assert!(help.contains("\n  onceward "), "{} has no example", leaf.get_name());
        }
    }
}
