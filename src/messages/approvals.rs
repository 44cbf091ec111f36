//! Approval rules of a gate in addition to the required role, and the approvals given so far.

use super::access_name;
use crate::{
    github::outbound::{inline_code, inline_text},
    types::Role,
};

/// Progress of a gate that needs approvals from several people or from file owners.
#[derive(Debug, Clone)]
pub struct ApprovalProgress {
    /// Number of distinct people who must approve.
    pub needed: u32,
    pub approved_by: Vec<String>,
    /// Login of the person who requested the run, if that person may not approve it.
    pub excluded_requester: Option<String>,
    /// Whether only owners of the files may approve.
    pub needs_owners: bool,
    pub owned: Vec<OwnedFiles>,
}

/// Files that have the same owners.
#[derive(Debug, Clone)]
pub struct OwnedFiles {
    pub files: Vec<String>,
    /// Number of further files with the same owners that are not listed in `files`.
    pub more: usize,
    pub owners: Vec<String>,
    /// Owners whose members could not be looked up, such as teams.
    pub unknown_owners: Vec<String>,
    /// Whether no owner of these files is known.
    pub has_no_owner: bool,
    pub approved: bool,
}

/// Joins names with commas and "and": `a`, `a and b`, `a, b and c`.
pub fn join_names(names: &[String]) -> String {
    match names {
        [] => String::new(),
        [one] => one.clone(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

pub(super) fn approval_progress(shown: &ApprovalProgress) -> String {
    let by = join_names(
        &shown.approved_by.iter().map(|login| inline_text(login, 60).to_string()).collect::<Vec<_>>(),
    );
    let mut lines = Vec::new();
    match (shown.needed, shown.approved_by.len()) {
        (1, 0) => {}
        (1, _) => lines.push(format!("**Approved so far** by {by}.")),
        (needed, 0) => {
            lines.push(format!("**0 of {needed} approvals.** {needed} different people must approve."))
        }
        (needed, given) => lines.push(format!("**{given} of {needed} approvals**: {by}.")),
    }
    if let Some(login) = &shown.excluded_requester {
        lines.push(format!("{} requested this run and may not approve it.", inline_code(login, 60)));
    }
    if !shown.needs_owners {
        return lines.join(" ");
    }
    if shown.owned.is_empty() {
        lines.push("None of the affected files has a code owner.".to_owned());
        return lines.join(" ");
    }
    lines.push("Only code owners can approve; each row needs the approval of one of its owners.".to_owned());
    let list = |names: &[String]| {
        names.iter().map(|name| inline_code(name, 200).to_string()).collect::<Vec<_>>().join(", ")
    };
    let mut rows = String::from("| Files | Owners | |\n|---|---|---|");
    for files in &shown.owned {
        let sign = if files.approved { "✅" } else { "" };
        let more = if files.more > 0 { format!(" and {} more", files.more) } else { String::new() };
        rows += &format!("\n| {}{more} | {} | {sign} |", list(&files.files), list(&files.owners));
    }
    let mut notes = Vec::new();
    let mut unread: Vec<_> = shown.owned.iter().flat_map(|files| &files.unknown_owners).cloned().collect();
    unread.sort();
    unread.dedup();
    if !unread.is_empty() {
        let who = list(&unread);
        notes.push(format!(
            "Countersign could not look up {who}, so in their rows only the other owners count."
        ));
    }
    if shown.owned.iter().any(|files| files.has_no_owner) {
        let access = access_name(Role::Maintain);
        notes.push(format!("For a row without a known owner, someone with {access} may approve instead."));
    }
    let mut parts = vec![lines.join(" "), rows];
    parts.extend((!notes.is_empty()).then(|| notes.join(" ")));
    parts.join("\n\n")
}
