//! `completions` and `man`: made from the command line's own definition.

use super::{CliError, examples};
use clap_complete::Shell;
use std::io::{ErrorKind, Write};
use std::path::Path;

pub fn completions(shell: Shell) -> Result<(), CliError> {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut examples::command(), "onceward", &mut text);
    print(&text)
}

pub fn man(to: Option<&Path>) -> Result<(), CliError> {
    let Some(folder) = to else {
        let mut page = Vec::new();
        let rendered = clap_mangen::Man::new(examples::command()).render(&mut page);
        rendered.map_err(|error| CliError::Io { what: "the page".into(), error })?;
        return print(&page);
    };
    clap_mangen::generate_to(examples::command(), folder)
        .map_err(|error| CliError::Io { what: format!("{} cannot be written to", folder.display()), error })
}

fn print(text: &[u8]) -> Result<(), CliError> {
    let mut stdout = std::io::stdout().lock();
    match stdout.write_all(text).and_then(|()| stdout.flush()) {
        Err(e) if e.kind() == ErrorKind::BrokenPipe => Err(CliError::Closed),
        Err(error) => Err(CliError::Io { what: "stdout".into(), error }),
        Ok(()) => Ok(()),
    }
}

/// The page of all commands: docs/reference/commands.md.
#[cfg(test)]
pub fn reference() -> String {
    // What every command has is told once, at the top.
    let mut command = examples::command().disable_help_subcommand(true);
    let mut page = format!(
        "# Commands\n\nThis page is made from the command line's own help by a test.\n\n```text\n{}\n```\n",
        command.render_long_help().to_string().trim_end()
    );
    command.build();
    sections(&command, "onceward", &mut page);
    page
}

#[cfg(test)]
fn sections(command: &clap::Command, path: &str, page: &mut String) {
    for below in command.get_subcommands() {
        let path = format!("{path} {}", below.get_name());
        if below.has_subcommands() {
            sections(below, &path, page);
            continue;
        }
        let told = |arg: clap::Arg| {
            let known = ["config", "json", "help", "version"].contains(&arg.get_id().as_str());
            if known { arg.hide(true) } else { arg }
        };
        let help = below.clone().mut_args(told).render_long_help().to_string();
        page.push_str(&format!("\n## {path}\n\n```text\n{}\n```\n", help.trim_end()));
    }
}
