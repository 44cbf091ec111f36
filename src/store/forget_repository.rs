//! Forgetting a repository, so that it may stop anywhere and be asked for again.
//!
//! The folder is moved aside first: from then on the repository has no runs, and a new run of it begins a new folder.
//! The directory's row goes last, so that whoever names the repository finds it until nothing is left.

use std::{
    fs,
    io::{Error, ErrorKind},
    path::{Path, PathBuf},
    sync::Arc,
};

use super::{
    PauseScope, Store, StoreError, archive,
    database::{Database, signed},
    off_thread,
    postgres_backend::PostgresScope,
    spend,
    sql::Transaction,
    upgrade_copies::UpgradeCopies,
};
use crate::types::RepoId;

/// Begins the name of a folder that is being removed.
const GONE: &str = ".gone-";

impl Store {
    /// Removes everything we have of a repository: its folder with database and mirror, the bodies of its
    /// deliveries, what the directory and the hints know. None of its runs may be in hand.
    pub async fn forget_repo(&self, repo: RepoId) -> Result<(), StoreError> {
        let _no_archive_appears_later = self.archiving.lock().await;
        let order = self.agenda.order(repo);
        let _order = order.lock().await;
        let doubt = self.agenda.doubt(repo);
        let leaving = self.repositories.forget(repo).await;
        let (folder, gone) = (self.repo_dir(repo), self.repos_dir().join(format!("{GONE}{repo}")));
        let aside = gone.clone();
        off_thread(move || {
            let _nobody_opens_it = leaving.close();
            set_aside(&folder, &aside)
        })
        .await?;
        self.agenda.set_hinted(repo, false);
        self.main
            .write(move |tx| {
                if let Transaction::File(_) = tx {
                    tx.execute("DELETE FROM hint WHERE repo = ?1", [signed(repo.0)])?;
                }
                tx.execute("DELETE FROM labeling WHERE repo = ?1", [signed(repo.0)])?;
                spend::keep(tx, repo)
            })
            .await?;
        if let Some(cluster) = &self.cluster {
            // In turn with whoever writes there, which may take long and keeps nobody else waiting.
            let part = PostgresScope::new(Arc::clone(&cluster.pool), Some(repo));
            let its = Database::served(part, Arc::clone(&self.watch));
            off_thread(move || {
                its.write_now(|tx| {
                    tx.run("SET LOCAL statement_timeout = 0")?;
                    // What refers to others first.
                    let of_runs = archive::TABLES.iter().rev().map(|(table, ..)| *table);
                    for table in of_runs.chain(["document", "cancel"]) {
                        tx.execute(&format!("DELETE FROM all_{table} WHERE repo = ?1"), [signed(repo.0)])?;
                    }
                    Ok(())
                })
            })
            .await?;
        }
        self.resume(PauseScope::Repo(repo)).await?;
        self.inbox().forget(repo).await?;
        let kept = UpgradeCopies::repo(&self.root, repo, self.clock.now());
        let kept_main = UpgradeCopies::main(&self.root, self.clock.now());
        let root = self.root.clone();
        off_thread(move || {
            kept.forget()?;
            // They hold deliveries about it; what they are the way back to is lost with them.
            kept_main.forget()?;
            archive::forget(&root, repo)?;
            remove(&gone)
        })
        .await?;
        self.main
            .write(move |tx| {
                tx.execute("DELETE FROM repository WHERE id = ?1", [signed(repo.0)])?;
                Ok(())
            })
            .await?;
        doubt.settle(&[]);
        self.agenda.forget(repo);
        Ok(())
    }
}

/// Removes what a boot that was cut short had set aside. What stays only takes room.
pub(super) fn sweep(root: &Path) {
    let Ok(entries) = fs::read_dir(root.join("repos")) else { return };
    for entry in entries.filter_map(Result::ok) {
        if entry.file_name().to_string_lossy().starts_with(GONE)
            && let Err(error) = remove(&entry.path())
        {
            tracing::warn!(%error, "what is left of a forgotten repository stays");
        }
    }
}

/// The move is on disk when this returns: what follows must not be known without it.
fn set_aside(folder: &Path, gone: &Path) -> Result<(), StoreError> {
    if !folder.exists() {
        return Ok(());
    }
    remove(gone)?;
    fs::rename(folder, gone).map_err(|error| at(folder, error))?;
    let repos = folder.parent().unwrap_or(folder);
    fs::File::open(repos).and_then(|directory| directory.sync_all()).map_err(|error| at(repos, error))
}

pub(super) fn remove(path: &Path) -> Result<(), StoreError> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(at(path, error)),
        _ => Ok(()),
    }
}

fn at(path: &Path, source: Error) -> StoreError {
    StoreError::Io { path: PathBuf::from(path), source }
}
