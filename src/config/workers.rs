//! `[workers]`: concurrency, priority and memory of the model programs we run.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    time::Duration,
};

use serde::Deserialize;
use toml::Spanned;

use super::{ConfigError, file::SettingsChecker};
use crate::{limits, types::WorkerPool};

/// Name of the directory, inside the data directory, for records of running programs.
const CHILDREN: &str = "children";

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerSettings {
    pub high: Bulkhead,
    pub medium: Bulkhead,
    pub low: Bulkhead,
    pub background: Bulkhead,
    /// Worker pools by issue label, for runs about an issue with that label. Case is ignored.
    pub labels: BTreeMap<String, WorkerPool>,
    /// Worker pools by file or folder, for runs about that file or about files in that folder.
    pub paths: BTreeMap<String, WorkerPool>,
    /// Directory for records of running programs, so that orphans can be killed at the next start.
    pub children: PathBuf,
    /// Delay between SIGTERM and SIGKILL. It is short, because shutdown waits for it.
    pub kill_delay: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bulkhead {
    /// Maximum number of concurrent programs.
    pub size: usize,
    /// Nice value of the programs, relative to the server's.
    pub nice: i32,
    /// Memory limit in MB of one program and its children.
    pub memory_mb: u64,
}

/// The worker pool chosen for a run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PoolAssignment {
    pub pool: WorkerPool,
    /// Label, file or folder that determined the pool; `None` if the default pool applies.
    pub row: Option<String>,
}

impl WorkerSettings {
    pub fn new(data_dir: &Path) -> Self {
        let pool = |size, nice, memory_mb| Bulkhead { size, nice, memory_mb };
        let labels = [WorkerPool::High, WorkerPool::Low, WorkerPool::Background];
        Self {
            high: pool(2, 0, 2048),
            medium: pool(5, 5, 1024),
            low: pool(2, 10, 512),
            background: pool(1, 15, 256),
            labels: labels.map(|pool| (format!("priority:{}", pool.as_str()), pool)).into(),
            paths: BTreeMap::new(),
            children: data_dir.join(CHILDREN),
            kill_delay: limits::CHILD_KILL_DELAY,
        }
    }

    pub fn pool_settings(&self, pool: WorkerPool) -> Bulkhead {
        match pool {
            WorkerPool::High => self.high,
            WorkerPool::Medium => self.medium,
            WorkerPool::Low => self.low,
            WorkerPool::Background => self.background,
        }
    }

    /// Chooses the worker pool of a run from its issue's labels and its files. The most urgent matching pool wins. A
    /// file without a match gets the default pool, so that one low-priority file does not delay the other files.
    pub fn assign_pool(&self, labels: &[String], paths: &[String]) -> PoolAssignment {
        let labels = self.labels.iter().filter(|(name, _)| labels.iter().any(|on| is_same_label(on, name)));
        let row = |path: &String| {
            let rows = self.paths.iter().filter(|(place, _)| matches_path(path, place));
            rows.min_by_key(|(_, pool)| **pool)
        };
        let pool =
            |row: &Option<(&String, &WorkerPool)>| row.map_or(WorkerPool::default(), |(_, pool)| *pool);
        let paths = paths.iter().map(row).min_by_key(|row| (pool(row), row.is_none())).flatten();
        let urgent = labels.chain(paths).min_by_key(|(_, pool)| **pool);
        urgent.map(|(row, pool)| PoolAssignment { pool: *pool, row: Some(row.clone()) }).unwrap_or_default()
    }
}

/// Returns whether `path` is the file `place` or is inside the folder `place`. Only whole names match, not prefixes of
/// names.
fn matches_path(path: &str, place: &str) -> bool {
    let place = place.strip_suffix('/').unwrap_or(place);
    path.strip_prefix(place).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Returns whether two labels are the same for GitHub, which ignores case.
fn is_same_label(one: &str, other: &str) -> bool {
    one.to_lowercase() == other.to_lowercase()
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
pub(super) struct WorkersTable {
    high: WorkerPoolTable,
    medium: WorkerPoolTable,
    low: WorkerPoolTable,
    background: WorkerPoolTable,
    labels: Option<BTreeMap<String, WorkerPool>>,
    paths: BTreeMap<Spanned<String>, WorkerPool>,
    kill_delay: Option<Spanned<String>>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct WorkerPoolTable {
    size: Option<Spanned<usize>>,
    nice: Option<Spanned<i32>>,
    memory_mb: Option<Spanned<u64>>,
}

impl WorkersTable {
    pub(super) fn to_settings(
        &self,
        check: &SettingsChecker<'_>,
        data_dir: &Path,
    ) -> Result<WorkerSettings, ConfigError> {
        let default = WorkerSettings::new(data_dir);
        Ok(WorkerSettings {
            high: self.high.to_settings(check, default.high)?,
            medium: self.medium.to_settings(check, default.medium)?,
            low: self.low.to_settings(check, default.low)?,
            background: self.background.to_settings(check, default.background)?,
            labels: self.labels.clone().unwrap_or(default.labels),
            paths: self.paths(check)?,
            children: default.children,
            kill_delay: check.time("kill_delay", self.kill_delay.as_ref(), default.kill_delay, 0..=10)?,
        })
    }

    /// Checks the keys of `paths`. A path that is not normalized is an error, because it would never match.
    fn paths(&self, check: &SettingsChecker<'_>) -> Result<BTreeMap<String, WorkerPool>, ConfigError> {
        let row = |(path, pool): (&Spanned<String>, &WorkerPool)| {
            let text = path.as_ref();
            let mut names = text.strip_suffix('/').unwrap_or(text).split('/');
            if names.any(|name| matches!(name, "" | "." | "..")) {
                let message =
                    format!("{text:?} is not a path; write one from the root, such as \"src/billing/\"");
                return Err(check.refuse(path, message));
            }
            Ok((text.clone(), *pool))
        };
        self.paths.iter().map(row).collect()
    }
}

impl WorkerPoolTable {
    fn to_settings(&self, check: &SettingsChecker<'_>, default: Bulkhead) -> Result<Bulkhead, ConfigError> {
        if let Some(size) = &self.size
            && !(1..=64).contains(size.as_ref())
        {
            return Err(check.refuse(size, format!("size = {} is outside 1 to 64", size.as_ref())));
        }
        if let Some(nice) = &self.nice
            && !(0..=19).contains(nice.as_ref())
        {
            let message = format!("nice = {} is outside 0 to 19; higher means lower priority", nice.as_ref());
            return Err(check.refuse(nice, message));
        }
        if let Some(memory) = &self.memory_mb
            && !(64..=1_048_576).contains(memory.as_ref())
        {
            let message = format!("memory_mb = {} is outside 64 to 1048576", memory.as_ref());
            return Err(check.refuse(memory, message));
        }
        Ok(Bulkhead {
            size: self.size.as_ref().map_or(default.size, |given| *given.as_ref()),
            nice: self.nice.as_ref().map_or(default.nice, |given| *given.as_ref()),
            memory_mb: self.memory_mb.as_ref().map_or(default.memory_mb, |given| *given.as_ref()),
        })
    }
}
