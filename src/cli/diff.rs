//! `countersign diff`: prints the complete diff of a code gate.

use std::{
    io::{IsTerminal, Write},
    path::PathBuf,
    process::ExitCode,
};

use anyhow::bail;

use super::{ConfigFlag, absolute_path};
use crate::{documents::escape_control_characters, store, types::RunId};

/// Print the complete change of a run as a unified diff.
///
/// This is the change whose approval the code gate requests; a long change does not fit into the gate's comment.
/// Read-only; works while a server runs. On a terminal, control characters and invisible characters are printed as
/// escapes.
#[derive(clap::Args)]
pub(super) struct DiffCommand {
    /// Run ID as shown by the gate's comment and by `countersign runs`, for example 1002-1.
    #[arg(value_name = "RUN")]
    run: RunId,
    /// Data directory to read instead of the one in the settings, for example that of a backup.
    #[arg(long, value_name = "DIR", value_parser = absolute_path())]
    data: Option<PathBuf>,
    #[command(flatten)]
    config: ConfigFlag,
}

impl DiffCommand {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let place = self.config.open_source(self.data)?;
        let Some(diff) = store::last_diff(&place, self.run)? else {
            bail!("run {} has not reached a code gate yet; `countersign runs --all` lists runs", self.run)
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
    fn diff_output_escapes_control_and_invisible_characters() {
        assert_eq!(escape_control_characters("+a\u{1b}[2J\tb\r\n"), "+a\\u{1b}[2J\tb\\r\n");
        assert_eq!(escape_control_characters("if a\u{202e}b\u{200b}"), "if a\\u{202e}b\\u{200b}");
    }
}
