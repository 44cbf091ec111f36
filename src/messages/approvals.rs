//! Whom a gate asks besides a role, and who has approved so far.

use super::access_name;
use crate::{
    github::outbound::{inline_code, inline_text},
    types::Role,
};

/// How it stands with a gate that asks for more than anybody who may.
#[derive(Debug, Clone)]
pub struct ApprovalProgress {
    /// So many different people.
    pub needed: u32,
    /// Who approved so far.
    pub approved_by: Vec<String>,
    /// Who asked for the run, where they may not.
    pub excluded_requester: Option<String>,
    /// Only owners of the files may.
    pub needs_owners: bool,
    pub owned: Vec<OwnedFiles>,
}

/// Files of one list of owners.
#[derive(Debug, Clone)]
pub struct OwnedFiles {
    pub files: Vec<String>,
    /// Beside these.
    pub more: usize,
    pub owners: Vec<String>,
    /// Those of whom nobody knows who they are.
    pub unknown_owners: Vec<String>,
    /// So no owner at all is known.
    pub has_no_owner: bool,
    pub approved: bool,
}

/// `a`, `a and b`, `a, b and c`.
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
    let mut said = Vec::new();
    match (shown.needed, shown.approved_by.len()) {
        (1, 0) => {}
        (1, _) => said.push(format!("**Approved so far** by {by}.")),
        (needed, 0) => said.push(format!("**0 of {needed} approvals.** It takes {needed} different people.")),
        (needed, given) => said.push(format!("**{given} of {needed} approvals**: {by}.")),
    }
    if let Some(login) = &shown.excluded_requester {
        said.push(format!("{} asked for this run and may not approve it.", inline_code(login, 60)));
    }
    if !shown.needs_owners {
        return said.join(" ");
    }
    if shown.owned.is_empty() {
        said.push("None of the files it names has an owner.".to_owned());
        return said.join(" ");
    }
    said.push("An approval counts from owners of the files alone; it takes one of each row.".to_owned());
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
            "It could not be read who {who} are: they count only where they are named themselves."
        ));
    }
    if shown.owned.iter().any(|files| files.has_no_owner) {
        let access = access_name(Role::Maintain);
        notes.push(format!("Where that leaves nobody, someone with {access} may approve in their place."));
    }
    let mut parts = vec![said.join(" "), rows];
    parts.extend((!notes.is_empty()).then(|| notes.join(" ")));
    parts.join("\n\n")
}
