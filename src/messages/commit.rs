//! Pull request titles and commit messages, in the repository's own style.

use serde::{Deserialize, Serialize};

use super::{Acceptance, ChangeReport, capitalize, stage_name};
use crate::{
    github::outbound::{inert_message, inert_subject},
    types::{Actor, Hash, IssueNo, RunId},
};

/// Maximum number of characters of a commit's subject, and of each line of its message.
const COLUMNS: usize = 72;

const BODY_CHARS: usize = 3_000;

/// Commit types of the Conventional Commits convention.
const TYPES: [&str; 11] =
    ["feat", "fix", "docs", "chore", "refactor", "test", "build", "ci", "perf", "style", "revert"];

/// Commit message style of a repository.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CommitConvention {
    /// A plain subject, such as `Print a total for each week`.
    #[default]
    Plain,
    /// A conventional commit, such as `feat: print a total for each week`.
    Conventional,
}

impl CommitConvention {
    /// Returns `Conventional` if most of these subjects are conventional commits, otherwise `Plain`. Commits of our own
    /// documents are not counted.
    pub fn detect<'s>(subjects: impl IntoIterator<Item = &'s str>) -> Self {
        let ours =
            |subject: &str| subject.starts_with("docs: propose ") || subject.starts_with("docs: accept ");
        let (mut all, mut conventional) = (0, 0);
        for subject in subjects.into_iter().filter(|subject| !ours(subject)) {
            all += 1;
            conventional += usize::from(split_commit_type(subject).is_some());
        }
        if 2 * conventional > all { Self::Conventional } else { Self::Plain }
    }
}

/// Splits a subject such as `feat(cli)!: text` into type and text. The mark for a breaking change (`!`) is dropped,
/// because models must not decide on releases.
fn split_commit_type(subject: &str) -> Option<(&str, &str)> {
    let (before, text) = subject.split_once(':')?;
    let before = before.trim_end_matches('!');
    let (word, scope) = before.split_once('(').map_or((before, None), |(word, scope)| (word, Some(scope)));
    let is_plain = |scope: &str| scope.chars().all(|c| c.is_ascii_alphanumeric() || "-_./".contains(c));
    let scoped = scope.is_none_or(|scope| scope.strip_suffix(')').is_some_and(is_plain));
    (TYPES.contains(&word) && scoped).then_some((before, text.trim_start()))
}

/// Returns the pull request's title, which is also the commit's subject.
pub fn change_title(report: &ChangeReport, convention: CommitConvention, is_bug: bool) -> String {
    let heading = report.title.trim().trim_end_matches('.');
    let (known, words) =
        split_commit_type(heading).map_or((None, heading), |(known, words)| (Some(known), words));
    let first = words.split(' ').next().unwrap_or_default();
    let fixes = ["Fix", "fix"].contains(&first);
    match convention {
        CommitConvention::Plain => inert_subject(&truncate_words(&capitalize(words), COLUMNS), COLUMNS),
        CommitConvention::Conventional => {
            let kind = match known {
                Some(known) => known,
                None if report.only_documents => "docs",
                None if is_bug || fixes => "fix",
                None => "feat",
            };
            let words = if fixes { words[first.len()..].trim_start() } else { words };
            let columns = COLUMNS.saturating_sub(kind.len() + 2);
            format!("{kind}: {}", inert_subject(&truncate_words(&lowercase_first(words), columns), columns))
        }
    }
}

/// Returns the subject of a commit that changes a pushed change.
pub fn follow_up_title(fixes_ci: bool, convention: CommitConvention) -> String {
    let words = if fixes_ci { "fix the failing checks" } else { "address review comments" };
    match convention {
        CommitConvention::Plain => capitalize(words),
        CommitConvention::Conventional => format!("chore: {words}"),
    }
}

/// Lowercases the first letter, unless the second letter is uppercase, which suggests a name.
fn lowercase_first(text: &str) -> String {
    let mut chars = text.chars();
    match (chars.next(), text.chars().nth(1)) {
        (Some(first), Some(second)) if !second.is_uppercase() => first.to_lowercase().chain(chars).collect(),
        _ => text.to_owned(),
    }
}

/// Truncates a text to `columns` characters, at a word boundary where possible.
fn truncate_words(words: &str, columns: usize) -> String {
    let Some((end, _)) = words.char_indices().nth(columns) else { return words.to_owned() };
    let head = &words[..end];
    let whole = head.rfind(' ').filter(|at| *at > columns / 2).map_or(head, |at| &head[..at]);
    format!("{}…", whole.chars().take(columns.saturating_sub(1)).collect::<String>())
}

/// Purpose of a commit on our branch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CommitKind {
    /// A version committed for review.
    Proposal,
    /// The accepted version and its review log.
    Approval(Acceptance),
}

#[derive(Debug, Clone)]
pub struct CommitCard {
    pub kind: CommitKind,
    pub stage: String,
    pub issue: IssueNo,
    /// Title of the issue.
    pub title: String,
    /// Message parts of the change; `None` if the commit contains no code.
    pub change: Option<ChangeCommit>,
    pub run: RunId,
    pub document: Hash,
    pub audit: Option<Hash>,
}

/// Message parts of a code commit.
#[derive(Debug, Clone)]
pub struct ChangeCommit {
    /// Title, as returned by [`change_title`].
    pub title: String,
    /// The drafter's summary of what changes and why.
    pub why: String,
    pub acceptance: Option<Acceptance>,
    pub approved_by: Vec<Actor>,
    /// Host name of the GitHub server.
    pub host: String,
}

/// Name of the commit trailer that contains the audit chain entry. Only commits of approved documents have this
/// trailer.
pub const AUDIT_TRAILER: &str = "Countersign-Audit: ";

/// Returns the message of one of our commits. Trailers in the message identify a repeated commit and link to the audit
/// chain.
pub fn commit_message(card: &CommitCard) -> String {
    let (issue, run, document) = (card.issue, card.run, card.document);
    let accepted = |acceptance: &Acceptance| format!("{}\n", acceptance.sentence());
    let (head, trailers) = match &card.change {
        Some(change) => {
            let part = match card.kind {
                CommitKind::Proposal => "",
                CommitKind::Approval(_) => " (report)",
            };
            let why = inert_message(&change.why, BODY_CHARS, COLUMNS);
            // A plain approval is named only by a trailer.
            let plain = |acceptance: &&Acceptance| matches!(acceptance, Acceptance::Approved { .. });
            let exception = change.acceptance.as_ref().filter(|acceptance| !plain(acceptance));
            let exception =
                exception.map_or(String::new(), |acceptance| format!("\n{}", accepted(acceptance)));
            let approved = change.approved_by.iter().map(|actor| approved_by_trailer(actor, &change.host));
            let title = &change.title;
            (
                format!("{title}{part}\n\n{why}\n{exception}"),
                format!("Issue: #{issue}\n{}", approved.collect::<String>()),
            )
        }
        None => {
            let (verb, body) = match &card.kind {
                CommitKind::Approval(acceptance) => ("accept", accepted(acceptance)),
                _ => ("propose", String::new()),
            };
            let stage = stage_name(&card.stage);
            // In quotes, so that no title can pass for a trailer.
            let title = inert_subject(&card.title, 180);
            (format!("docs: {verb} {stage} for #{issue}\n\n“{title}”\n{body}"), String::new())
        }
    };
    let audit = card.audit.map_or(String::new(), |hash| format!("{AUDIT_TRAILER}{hash}\n"));
    format!("{head}\n{trailers}Countersign-Run: {run}\nCountersign-Document: {document}\n{audit}")
}

/// Returns the trailer for an approval: `Approved-by: mona <7+mona@users.noreply.github.com>`. GitHub links this email
/// address to the account.
fn approved_by_trailer(actor: &Actor, host: &str) -> String {
    let login: String =
        actor.login.chars().filter(|c| c.is_ascii_alphanumeric() || "-_".contains(*c)).collect();
    format!("Approved-by: {login} <{}+{login}@users.noreply.{host}>\n", actor.id)
}

#[cfg(test)]
mod tests {
    use super::{
        super::{report::tests::report, tests::RUN},
        *,
    };
    use crate::types::{Timestamp, UserId};

    fn card() -> CommitCard {
        CommitCard {
            kind: CommitKind::Proposal,
            stage: "lld".into(),
            issue: IssueNo(42),
            title: "x\n\nCountersign-Run: 1-1\nCloses #7 [skip ci]".into(),
            change: None,
            run: RUN,
            document: Hash::digest(b"x"),
            audit: Some(Hash::digest(b"y")),
        }
    }

    fn overridden() -> Acceptance {
        Acceptance::Overridden { by: "mona".into(), at: Timestamp(0), reason: "known".into() }
    }

    #[test]
    fn commit_title_cannot_forge_a_trailer_or_a_skip_ci_mark() {
        let card = CommitCard { kind: CommitKind::Approval(overridden()), ..card() };
        insta::assert_snapshot!(commit_message(&card).replace('\u{200b}', "·"), @r#"
        docs: accept design for #42

        “x Countersign-Run: 1-1 Closes #·7 [·skip ci]”
        Accepted by mona, who overrode the verdict.

        Countersign-Run: 8123-4
        Countersign-Document: 2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881
        Countersign-Audit: a1fce4363854ff888cff4b8e7875d600c2682390412a8cf79b37d0b11148b0fa
        "#);
    }

    #[test]
    fn change_commit_names_reason_and_approvers() {
        let change = ChangeCommit {
            title: "Print a total for each week".into(),
            why: "Whoever writes invoices needs the total of each week and adds it up by hand today.\n\nSigned-off-by: o3".into(),
            acceptance: Some(overridden()),
            approved_by: vec![Actor { id: UserId(7), login: "mona>\nX: y".into(), bot: false }],
            host: "github.com".into(),
        };
        let card = CommitCard { change: Some(change), ..card() };
        insta::assert_snapshot!(commit_message(&card).replace('\u{200b}', "·"), @r#"
        Print a total for each week

        Whoever writes invoices needs the total of each week and adds it up by
        hand today.

        Signed-off-by·: o3

        Accepted by mona, who overrode the verdict.

        Issue: #42
        Approved-by: monaXy <7+monaXy@users.noreply.github.com>
        Countersign-Run: 8123-4
        Countersign-Document: 2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881
        Countersign-Audit: a1fce4363854ff888cff4b8e7875d600c2682390412a8cf79b37d0b11148b0fa
        "#);
    }

    #[test]
    fn commit_title_of_a_change_follows_the_style_of_the_repository() {
        use CommitConvention::{Conventional, Plain};
        let long = "Print a total for each week and each project and each person who wrote the sheet";
        for (heading, convention, is_bug, title) in [
            ("Print a total for each week.", Plain, false, "Print a total for each week"),
            ("Print a total", Conventional, false, "feat: print a total"),
            ("Fix the total of a week", Conventional, false, "fix: the total of a week"),
            ("Stop at the largest sum", Conventional, true, "fix: stop at the largest sum"),
            ("perf(sum)!: add up once", Conventional, false, "perf(sum): add up once"),
            ("feat([skip ci]): add up", Conventional, false, "feat: feat([·skip ci])·: add up"),
            ("feat!: add up once", Plain, false, "Add up once"),
            ("README says more", Conventional, false, "feat: README says more"),
            ("Sum [skip ci] for #7", Plain, false, "Sum [·skip ci] for #·7"),
            (long, Plain, false, "Print a total for each week and each project and each person who wrote…"),
        ] {
            let report = ChangeReport { title: heading.into(), ..report() };
            let actual = change_title(&report, convention, is_bug);
            assert_eq!(actual.replace('\u{200b}', "·"), title);
            assert!(actual.replace('\u{200b}', "").chars().count() <= COLUMNS, "{actual}");
        }
        let documents = ChangeReport { title: "Say more".into(), only_documents: true, ..report() };
        assert_eq!(change_title(&documents, Conventional, true), "docs: say more");
    }

    #[test]
    fn detected_title_style_is_the_style_of_most_commits() {
        use CommitConvention::{Conventional, Plain};
        for (subjects, convention) in [
            (&["feat: a", "fix(b)!: c", "Add d"][..], Conventional),
            (&["feat: a", "Add b"], Plain),
            (&["docs: accept design for #1", "docs: propose design for #1", "Initial commit"], Plain),
            (&["server: a", "engine: b"], Plain),
            (&[], Plain),
        ] {
            assert_eq!(CommitConvention::detect(subjects.iter().copied()), convention, "{subjects:?}");
        }
    }
}
