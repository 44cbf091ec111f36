//! Removes a repository's data. The removal can be interrupted at any point and then repeated.
//!
//! The folder is renamed first. After the rename, the repository has no runs, and a new run creates a new folder. The
//! repository's registry row is deleted last, so that commands can still name the repository until all its data is
//! gone.

use std::{
    fs,
    io::{Error, ErrorKind},
    path::{Path, PathBuf},
    sync::Arc,
};

use super::{
    PauseScope, Store, StoreError, archive,
    database::{Database, to_signed},
    postgres_backend::PostgresScope,
    run_blocking, spend,
    sql::Transaction,
    upgrade_copies::UpgradeCopies,
};
use crate::types::RepoId;

/// File name prefix of a repository's folder while the folder is being removed.
const FORGOTTEN_PREFIX: &str = ".gone-";

impl Store {
    /// Removes all data of a repository: its folder with database and mirror, the bodies of its deliveries, its
    /// registry row and its wake hints. The caller must ensure that no worker has claimed a run of the repository.
    pub async fn forget_repo(&self, repo: RepoId) -> Result<(), StoreError> {
        let _no_archive_appears_later = self.archive_lock.lock().await;
        let order = self.agenda.repository_lock(repo);
        let _order = order.lock().await;
        let doubt = self.agenda.begin_change(repo);
        let leaving = self.repositories.remove(repo).await;
        let (folder, gone) =
            (self.repo_dir(repo), self.repos_dir().join(format!("{FORGOTTEN_PREFIX}{repo}")));
        let aside = gone.clone();
        run_blocking(move || {
            let _nobody_opens_it = leaving.close();
            set_aside(&folder, &aside)
        })
        .await?;
        self.agenda.set_hinted(repo, false);
        self.main
            .write(move |tx| {
                if let Transaction::File(_) = tx {
                    tx.execute("DELETE FROM hint WHERE repo = ?1", [to_signed(repo.0)])?;
                }
                tx.execute("DELETE FROM labeling WHERE repo = ?1", [to_signed(repo.0)])?;
                spend::close_spend(tx, repo)
            })
            .await?;
        if let Some(cluster) = &self.cluster {
            // Waits in turn with other writers of the repository; this may take long but blocks nobody else.
            let part = PostgresScope::new(Arc::clone(&cluster.pool), Some(repo));
            let its = Database::from_postgres(part, Arc::clone(&self.commit_watch));
            run_blocking(move || {
                its.write_blocking(|tx| {
                    tx.execute_batch("SET LOCAL statement_timeout = 0")?;
                    // Referring tables first.
                    let of_runs = archive::ARCHIVED_TABLES.iter().rev().map(|(table, ..)| *table);
                    for table in of_runs.chain(["document", "cancel"]) {
                        tx.execute(&format!("DELETE FROM all_{table} WHERE repo = ?1"), [to_signed(repo.0)])?;
                    }
                    Ok(())
                })
            })
            .await?;
        }
        self.remove_pause(PauseScope::Repo(repo)).await?;
        self.inbox().forget_repository(repo).await?;
        let kept = UpgradeCopies::for_repository(&self.root, repo, self.clock.now());
        let kept_main = UpgradeCopies::for_main(&self.root, self.clock.now());
        let root = self.root.clone();
        run_blocking(move || {
            kept.remove_all()?;
            // Copies of main.db contain deliveries of the repository, so they are deleted too, at the cost of the way
            // back.
            kept_main.remove_all()?;
            archive::remove_archives(&root, repo)?;
            remove_directory(&gone)
        })
        .await?;
        self.main
            .write(move |tx| {
                tx.execute("DELETE FROM repository WHERE id = ?1", [to_signed(repo.0)])?;
                Ok(())
            })
            .await?;
        doubt.commit(&[]);
        self.agenda.forget_repository(repo);
        Ok(())
    }
}

/// Removes folders that were renamed by an interrupted removal of a repository. If this fails, the folders only take up
/// disk space until the server starts again.
pub(super) fn remove_forgotten_folders(root: &Path) {
    let Ok(entries) = fs::read_dir(root.join("repos")) else { return };
    for entry in entries.filter_map(Result::ok) {
        if entry.file_name().to_string_lossy().starts_with(FORGOTTEN_PREFIX)
            && let Err(error) = remove_directory(&entry.path())
        {
            tracing::warn!(%error, "could not remove a forgotten repository's folder; will retry at the next start");
        }
    }
}

/// Renames the folder and syncs its parent directory, so that later changes cannot reach the disk before the rename.
fn set_aside(folder: &Path, gone: &Path) -> Result<(), StoreError> {
    if !folder.exists() {
        return Ok(());
    }
    remove_directory(gone)?;
    fs::rename(folder, gone).map_err(|error| io_error(folder, error))?;
    let repos = folder.parent().unwrap_or(folder);
    fs::File::open(repos).and_then(|directory| directory.sync_all()).map_err(|error| io_error(repos, error))
}

pub(super) fn remove_directory(path: &Path) -> Result<(), StoreError> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(io_error(path, error)),
        _ => Ok(()),
    }
}

fn io_error(path: &Path, source: Error) -> StoreError {
    StoreError::Io { path: PathBuf::from(path), source }
}
