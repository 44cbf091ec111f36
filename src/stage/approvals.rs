//! Additional approval rules of a gate: a number of approvers, an approver other than the requester, and owners of the
//! files. Also tracks the progress of an approval towards these rules.

use std::collections::{HashMap, HashSet};

use serde::{Deserialize, Serialize};

use super::{GateQuestion, StageState, StepVisit, load_document};
use crate::{
    documents::owners::{CodeOwner, CodeOwners, PLACES},
    engine::{AllowedResponders, ApprovalKind, ApprovalRow, Approvers, GateAnswer, LedgerRecord, StepError},
    github::{GitHubApiError, GitHubRepo},
    messages::{ApprovalProgress, OwnedFiles},
    rounds::{github_error, require_state},
    types::{Actor, Hash, Role, UserId},
};

/// Maximum number of owners to look up. All further owners are treated as unresolved.
const MOST_OWNERS: usize = 50;

/// Maximum number of files shown per group of owners.
const FILES_SHOWN: usize = 5;

/// Approval rules of the open gate, as configured when the gate was opened.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct ApprovalRules {
    /// Number of distinct approvers required. 0 if the gate does not publish its approvals; one approver is then
    /// enough.
    needed: u32,
    /// The requester of the run, if the requester may not approve the document.
    not: Option<Actor>,
    owned: Vec<OwnedFileGroup>,
}

/// Files of the document that have the same owners.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct OwnedFileGroup {
    files: Vec<String>,
    /// Number of files in the group that are not listed in `files`.
    more: usize,
    /// Owners, as written in the code owners file.
    names: Vec<String>,
    /// Owners that could not be resolved to people.
    unread: Vec<String>,
    people: Vec<UserId>,
}

impl OwnedFileGroup {
    /// Returns the rule for the people who may approve for the owners. If `few` is set, a maintainer may approve as
    /// well. If no owner could be resolved, only a maintainer may approve.
    fn required_approver(&self, few: bool) -> AllowedResponders {
        match self.people.is_empty() {
            true => AllowedResponders::Role(Role::Maintain),
            false => {
                AllowedResponders::Either { people: self.people.clone(), role: few.then_some(Role::Maintain) }
            }
        }
    }
}

impl ApprovalRules {
    /// Reads the approval rules that the settings define for this gate.
    pub(super) async fn for_gate(
        s: &StageState,
        v: &StepVisit<'_>,
        asks: GateQuestion,
    ) -> Result<Self, StepError> {
        let rules = &require_state(&s.policy)?.gates;
        if asks == GateQuestion::Draft || !rules.has_extra_rules() {
            return Ok(Self::default());
        }
        let not = rules.approver_not_requester.then(|| v.cx.run().trigger.actor.clone());
        let mut owned = if rules.code_owners { load_owned_files(s, v).await? } else { Vec::new() };
        for files in &mut owned {
            files.people.retain(|person| not.as_ref().is_none_or(|not| not.id != *person));
        }
        Ok(Self { needed: rules.approvals, not, owned })
    }

    /// Returns the rule for the approvers of this gate. If the files have fewer owners than the number of approvals
    /// needed, maintainers may approve as well. Otherwise nobody could pass the gate.
    pub(super) fn approvers(&self) -> Approvers {
        let owners: HashSet<_> = self.owned.iter().flat_map(|files| &files.people).collect();
        let few = owners.len() < usize::try_from(self.needed.max(1)).unwrap_or(usize::MAX);
        Approvers {
            needed: self.needed.max(1),
            not: self.not.as_ref().map(|actor| actor.id),
            owners: self.owned.iter().map(|files| files.required_approver(few)).collect(),
        }
    }
}

/// Looks up the owners of the document's files in the code owners file of the default branch.
async fn load_owned_files(s: &StageState, v: &StepVisit<'_>) -> Result<Vec<OwnedFileGroup>, StepError> {
    let cx = v.cx;
    let (repo, text) = (cx.tools().repository(cx).await?, load_document(s, cx).await?);
    let snapshot = cx.tools().snapshot(cx, require_state(&s.base)?).await?;
    // For a folder, the files in it count, and for a new folder its future files.
    let mut paths = Vec::new();
    for path in v.doc.paths(&text) {
        let below = format!("{}/", path.trim_end_matches('/'));
        let in_it = snapshot.entries().iter().filter(|entry| entry.path.starts_with(&below));
        paths.extend(in_it.map(|entry| entry.path.clone()));
        paths.push(if path.ends_with('/') { below + "_" } else { path });
    }
    cx.once("owners", |_| async {
        let branch = repo.info().await.map_err(github_error)?.default_branch;
        let mut rules = CodeOwners::default();
        for place in PLACES {
            if let Some(bytes) = repo.file(place, &branch).await.map_err(github_error)? {
                rules = CodeOwners::parse(&String::from_utf8_lossy(&bytes));
                break;
            }
        }
        let mut lists: Vec<(&[CodeOwner], Vec<String>)> = Vec::new();
        for path in paths {
            let owners = rules.owners_of(&path);
            match lists.iter_mut().find(|(known, _)| *known == owners) {
                _ if owners.is_empty() => {}
                Some((_, files)) => files.push(path),
                None => lists.push((owners, vec![path])),
            }
        }
        let mut owned = Vec::new();
        let mut known = HashMap::new();
        for (owners, files) in lists {
            owned.push(resolve_owners(&repo, owners, files, &mut known).await?);
        }
        Ok(owned)
    })
    .await
}

/// User IDs by owner name; `None` if the owner is unknown or cannot approve.
type OwnerIds = HashMap<String, Option<Vec<UserId>>>;

async fn resolve_owners(
    repo: &GitHubRepo,
    owners: &[CodeOwner],
    mut files: Vec<String>,
    known: &mut OwnerIds,
) -> Result<OwnedFileGroup, StepError> {
    let (mut people, mut unread) = (Vec::new(), Vec::new());
    for owner in owners {
        let name = owner.file_notation();
        if !known.contains_key(&name) && known.len() < MOST_OWNERS {
            known.insert(name.clone(), find_owner_ids(repo, owner).await.map_err(github_error)?);
        }
        match known.get(&name) {
            Some(Some(found)) => people.extend(found),
            _ => unread.push(name),
        }
    }
    let more = files.len().saturating_sub(FILES_SHOWN);
    files.truncate(FILES_SHOWN);
    Ok(OwnedFileGroup {
        files,
        more,
        names: owners.iter().map(CodeOwner::file_notation).collect(),
        unread,
        people,
    })
}

/// Returns the user IDs of the people behind an owner. Leaves out people without write access, because they cannot
/// approve.
async fn find_owner_ids(repo: &GitHubRepo, owner: &CodeOwner) -> Result<Option<Vec<UserId>>, GitHubApiError> {
    match owner {
        CodeOwner::Person(login) => {
            let Some(Actor { id, .. }) = repo.find_user(login).await? else { return Ok(None) };
            let actor = Actor { id, login: login.clone(), bot: false };
            let may = repo.permission(&actor).await? >= Role::Write;
            Ok(may.then(|| vec![id]))
        }
        CodeOwner::Team { organization, team } => repo.team_members(organization, team).await,
        CodeOwner::Other(_) => Ok(None),
    }
}

/// Returns the progress of the open gate's approvals; `None` if one person is enough.
pub(super) async fn approval_progress(
    s: &StageState,
    v: &StepVisit<'_>,
) -> Result<Option<ApprovalProgress>, StepError> {
    let rules = &s.rules;
    if rules.needed == 0 {
        return Ok(None);
    }
    let given = match &s.asked {
        Some(asked) => v.cx.counted_approvers(*require_state(&s.round.document)?, asked.subject).await?.0,
        None => Vec::new(),
    };
    let who = rules.approvers().owners;
    let owned = rules.owned.iter().zip(&who).map(|(files, who)| OwnedFiles {
        files: files.files.clone(),
        more: files.more,
        owners: files.names.clone(),
        unknown_owners: files.unread.clone(),
        has_no_owner: files.people.is_empty(),
        approved: given.iter().any(|answer| who.allows(answer.by.id, answer.role)),
    });
    let (owned, not) = (owned.collect(), rules.not.as_ref().map(|actor| actor.login.clone()));
    let by = given.into_iter().map(|answer| answer.by.login).collect();
    Ok(Some(ApprovalProgress {
        needed: rules.needed,
        approved_by: by,
        excluded_requester: not,
        owned,
        needs_owners: require_state(&s.policy)?.gates.code_owners,
    }))
}

/// Records an approval, which takes effect when the document is published. Returns `false` if more people have to
/// approve.
pub(super) async fn record_approval(
    s: &mut StageState,
    v: &StepVisit<'_>,
    subject: Hash,
    kind: ApprovalKind,
    answer: Option<GateAnswer>,
) -> Result<bool, StepError> {
    let (cx, document) = (v.cx, *require_state(&s.round.document)?);
    let one_of_several = answer.as_ref().filter(|_| s.rules.needed > 0);
    let key = one_of_several.map_or("approval".to_owned(), |answer| format!("approval-{}", answer.cause));
    let mut row = ApprovalRow { document, subject, answer, kind, with: Vec::new() };
    if kind == ApprovalKind::Approve || kind == ApprovalKind::Unreviewed {
        let (before, _) = cx.counted_approvers(document, subject).await?;
        let by = row.answer.as_ref().map(|answer| answer.by.id);
        row.with = before.into_iter().map(|other| other.by).filter(|other| Some(other.id) != by).collect();
    }
    cx.record(&key, LedgerRecord::Approval(row.clone())).await?;
    let waits = row.answer.is_some()
        && kind != ApprovalKind::Override
        && !cx.counted_approvers(document, subject).await?.1;
    if !waits {
        s.approval = Some(row);
    }
    Ok(!waits)
}
