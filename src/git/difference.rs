//! How two commits of a mirror differ: all of it, however many files, links and submodules that are.

use serde::{Deserialize, Serialize};

use super::{GitError, Mode, Snapshot, command, snapshot::unreadable};
use crate::{limits, types::Oid};

/// What git takes for a tree with nothing in it, though no mirror holds one.
const EMPTY_TREE: &str = "4b825dc642cb6eb9a060e54bf8d69288fbee4904";

/// A path that two commits do not have alike.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Changed {
    /// As [`Entry::path`](super::Entry::path).
    pub path: String,
    /// What is there in the later of the two, if anything is.
    pub now: Option<(Mode, Oid)>,
}

impl Snapshot {
    /// Does the history of this commit hold that one?
    pub async fn grew_from(&self, older: &Oid) -> Result<bool, GitError> {
        let known = command::commit(self.mirror(), older.as_str()).await?.is_some();
        Ok(known && self.merge_bases(older).await?.contains(older))
    }

    /// The best common ancestors of this commit and another: several where histories were merged crosswise, none where
    /// the two have nothing in common.
    pub async fn merge_bases(&self, other: &Oid) -> Result<Vec<Oid>, GitError> {
        let find = command::on(self.mirror())
            .args(["merge-base", "--all"])
            .args([self.commit.as_str(), other.as_str()]);
        let found = match command::read("merge-base", find).await {
            // Its way to say that there is none.
            Err(GitError::Failed { stderr, .. }) if stderr.is_empty() => return Ok(Vec::new()),
            found => found?,
        };
        let found = String::from_utf8_lossy(&found);
        found
            .lines()
            .map(|line| line.parse().map_err(|_| unreadable("merge-base", line.as_bytes())))
            .collect()
    }

    /// What came to this commit since it parted from another: whatever differs from any of their merge bases, and all
    /// there is where they have none. A rename is a path that went and one that came.
    pub async fn changed_since_parting(&self, other: &Oid) -> Result<Vec<Changed>, GitError> {
        let bases = self.merge_bases(other).await?;
        let bases: Vec<&str> = bases.iter().map(Oid::as_str).collect();
        let mut all = Vec::new();
        for base in if bases.is_empty() { &[EMPTY_TREE] } else { bases.as_slice() } {
            let differ = command::on(self.mirror())
                .args([
                    "diff-tree",
                    "-r",
                    "-z",
                    "--raw",
                    "--no-abbrev",
                    "--no-renames",
                    "--ignore-submodules=none",
                ])
                .args([base, self.commit.as_str()])
                .output_limit(limits::TREE_BYTES);
            all.extend(parse(&command::read("diff-tree", differ).await?)?);
        }
        if bases.len() > 1 {
            all.sort_by(|a, b| a.path.cmp(&b.path));
            all.dedup();
        }
        Ok(all)
    }
}

/// `:<mode> <mode now> <oid> <oid now> <status>\0<path>\0`, as often as there are paths.
fn parse(listing: &[u8]) -> Result<Vec<Changed>, GitError> {
    let fields: Vec<&[u8]> = listing.split(|byte| *byte == 0).filter(|field| !field.is_empty()).collect();
    let pairs = fields.chunks(2);
    pairs.map(|pair| changed(pair).ok_or_else(|| unreadable("diff-tree", pair[0]))).collect()
}

fn changed(pair: &[&[u8]]) -> Option<Changed> {
    let [head, path] = pair else { return None };
    let head: Vec<&str> = std::str::from_utf8(head).ok()?.split(' ').collect();
    let [_, mode, _, oid, status] = head.as_slice() else { return None };
    let now = match *status {
        "D" => None,
        _ => Some((Mode::parse(mode)?, oid.parse().ok()?)),
    };
    Some(Changed { path: String::from_utf8_lossy(path).into_owned(), now })
}
