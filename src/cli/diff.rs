//! `countersign diff`: what people are asked about at a code gate, whole.

use std::{
    io::{IsTerminal, Write},
    path::PathBuf,
    process::ExitCode,
};

use anyhow::bail;

use super::{ConfigFlag, absolute_path};
use crate::{documents::escape_control_characters, store, types::RunId};

/// Print how a run would change the code, whole, as a unified diff.
///
/// It is what people are asked about at the code gate, whose comment has no room for a long one. Reads only, also beside a
/// server at work. At a terminal, characters that would steer it or are not seen are shown by their numbers.
#[derive(clap::Args)]
pub(super) struct DiffCommand {
    /// The run, as the gate's comment and `countersign runs` name it: 1002-1.
    #[arg(value_name = "RUN")]
    run: RunId,
    /// The data directory, in place of that of the settings: of a backup, for example.
    #[arg(long, value_name = "DIR", value_parser = absolute_path())]
    data: Option<PathBuf>,
    #[command(flatten)]
    config: ConfigFlag,
}

impl DiffCommand {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let place = self.config.open_source(self.data)?;
        let Some(diff) = store::last_diff(&place, self.run)? else {
            bail!("run {} has asked nobody about code yet; `countersign runs --all` lists runs", self.run)
        };
        let mut out = std::io::stdout();
        let text = if out.is_terminal() { escape_control_characters(&diff) } else { diff };
        let _ = out.write_all(text.as_bytes());
        Ok(ExitCode::SUCCESS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_steers_a_terminal() {
        assert_eq!(escape_control_characters("+a\u{1b}[2J\tb\r\n"), "+a\\u{1b}[2J\tb\\r\n");
        assert_eq!(escape_control_characters("if a\u{202e}b\u{200b}"), "if a\\u{202e}b\\u{200b}");
    }
}
