//! `[providers.claude]` and `[providers.opencode]`: programs of others that models are asked through.

use std::path::{Path, PathBuf};

use serde::Deserialize;
use toml::Spanned;
use url::Url;

/// How one of them is run.
#[derive(Debug, Clone)]
pub struct ProgramSettings {
    /// The program; looked up in `PATH` and the usual places where it is not set.
    pub path: Option<PathBuf>,
    /// Our own configuration directory for it, never the operator's: a hook in theirs would run.
    pub config_dir: PathBuf,
    /// Another API than its own, such as an imitation on loopback.
    pub base_url: Option<Url>,
    /// Run it on a machine that can't keep it from reading what is ours, too.
    pub allow_unconfined: bool,
}

impl ProgramSettings {
    /// Everything at its default, but for where it keeps its own.
    pub fn with_config_dir(config_dir: PathBuf) -> Self {
        Self { path: None, config_dir, base_url: None, allow_unconfined: false }
    }
}

/// The table as written.
#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
pub(super) struct ProgramTable {
    path: Option<PathBuf>,
    config_dir: Option<PathBuf>,
    pub(super) base_url: Option<Spanned<String>>,
    allow_unconfined: bool,
}

impl ProgramTable {
    /// Its settings; what it keeps goes into `usual` where it does not say otherwise.
    pub(super) fn settings(
        &self,
        directory: &Path,
        usual: PathBuf,
        base_url: Option<Url>,
    ) -> ProgramSettings {
        ProgramSettings {
            // A bare name is looked up in `PATH`, as a shell would.
            path: self.path.as_ref().map(|path| match path.components().count() {
                1 => path.clone(),
                _ => directory.join(path),
            }),
            config_dir: self.config_dir.as_ref().map_or(usual, |path| directory.join(path)),
            base_url,
            allow_unconfined: self.allow_unconfined,
        }
    }
}
