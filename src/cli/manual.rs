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
