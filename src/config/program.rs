//! `[providers.claude]` and `[providers.opencode]`: external programs through which we call models.

use std::path::{Path, PathBuf};

use serde::Deserialize;
use toml::Spanned;
use url::Url;

/// Settings of one external program.
#[derive(Debug, Clone)]
pub struct ProgramSettings {
    /// Path of the program. If `None`, the program is searched for in `PATH` and the usual directories.
    pub path: Option<PathBuf>,
    /// Configuration directory that the server uses for this program. The operator's own directory is never used,
    /// because its hooks would run.
    pub config_dir: PathBuf,
    /// API to use instead of the program's own, such as a fake on loopback.
    pub base_url: Option<Url>,
    /// Whether to run the program even if this machine cannot stop it from reading our files.
    pub allow_unconfined: bool,
}

impl ProgramSettings {
    /// Returns the default settings with this configuration directory.
    pub fn with_config_dir(config_dir: PathBuf) -> Self {
        Self { path: None, config_dir, base_url: None, allow_unconfined: false }
    }
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
pub(super) struct ProgramTable {
    path: Option<PathBuf>,
    config_dir: Option<PathBuf>,
    pub(super) base_url: Option<Spanned<String>>,
    allow_unconfined: bool,
}

impl ProgramTable {
    /// Returns the program's settings. `usual` is the default configuration directory.
    pub(super) fn settings(
        &self,
        directory: &Path,
        usual: PathBuf,
        base_url: Option<Url>,
    ) -> ProgramSettings {
        ProgramSettings {
            // Like a shell, look up a bare name in `PATH`.
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
