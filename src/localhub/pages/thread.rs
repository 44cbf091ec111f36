//! Thread page of an issue or pull request, with its body, comments, events and forms.

use super::{
    HubPageError, HubPageRequest, HubPageResult,
    issues::state_mark,
    layout::{EscapedHtml, RepositoryTab, avatar, count_label, label_pill, login_html, relative_time},
    markdown::render,
    redirect,
};
use crate::{
    localhub::{
        json::REACTIONS,
        model::{
            HubCheckRun, HubComment, HubIssue, HubReaction, HubRepository, HubReview, HubState,
            HubTimelineEvent,
        },
        views::issue_labels,
    },
    types::{CommentId, RepoId, Role, Timestamp, UserId},
};

const REACTION_EMOJI: [&str; 8] = ["👍", "👎", "😄", "😕", "❤️", "🎉", "👀", "🚀"];

struct ThreadEntry<'a> {
    anchor: String,
    author: UserId,
    at: Timestamp,
    edited: bool,
    body: &'a str,
    reactions: &'a [HubReaction],
    comment: Option<CommentId>,
}

impl HubPageRequest<'_> {
    pub(super) fn thread(&self, repo: RepoId, number: &str, pull: bool) -> HubPageResult {
        let number: u64 = number.parse().map_err(|_| HubPageError::not_found())?;
        let found = self.with_repo(repo, |s, r| {
            let issue = r.issues.get(&number)?;
            if issue.pull.is_some() != pull {
                let kind = if pull { "issues" } else { "pull" };
                return Some(Err(format!("/{}/{kind}/{number}", s.name_of(r))));
            }
            Some(Ok((format!("{} · #{number}", issue.title), self.thread_html(s, r, issue))))
        })?;
        match found.ok_or_else(HubPageError::not_found)? {
            Err(elsewhere) => Ok(redirect(&elsewhere)),
            Ok((title, body)) => self.repo_page(
                repo,
                if pull { RepositoryTab::Pulls } else { RepositoryTab::Issues },
                &title,
                &body,
            ),
        }
    }

    fn thread_html(&self, s: &HubState, r: &HubRepository, issue: &HubIssue) -> String {
        let base = self.issue_path(s, r, issue);
        let merge = if issue.pull.is_some() { self.merge_box(r, issue, &base) } else { String::new() };
        format!(
            "{}<div class=columns><div class=thread><div id=thread data-live>{}{}{merge}</div>{}</div>\
             <aside><div id=side data-live>{}</div>{}</aside></div>",
            self.heading(s, r, issue, "conversation"),
            self.conversation(s, r, issue, &base),
            checks_line(r, issue),
            self.comment_box(s, r, issue, &base),
            labels_and_people(self, s, r, issue, &base),
            self.label_box(r, &base),
        )
    }

    pub(super) fn issue_path(&self, s: &HubState, r: &HubRepository, issue: &HubIssue) -> String {
        let kind = if issue.pull.is_some() { "pull" } else { "issues" };
        format!("/{}/{kind}/{}", s.name_of(r), issue.number)
    }

    /// Returns the heading with title and state; for a pull request also with its branches and tabs.
    pub(super) fn heading(&self, s: &HubState, r: &HubRepository, issue: &HubIssue, here: &str) -> String {
        let (mark, word) = state_mark(issue);
        let mut line = format!(
            "<span class=\"state {mark}\">{word}</span> <span class=muted>{} opened this {} · {}</span>",
            login_html(s, issue.author),
            relative_time(self.now(), issue.created_at),
            count_label(issue.comments.len(), "comment")
        );
        let mut tabs = String::new();
        if let Some(pull) = &issue.pull {
            let branch = |b: &str| format!("<span class=branch>{}</span>", EscapedHtml(b));
            line = format!(
                "<span class=\"state {mark}\">{word}</span> <span class=muted>{} wants to merge {} into {}</span>",
                login_html(s, issue.author),
                branch(&pull.head),
                branch(&pull.base)
            );
            let path = self.issue_path(s, r, issue);
            let item = |key: &str, at: &str, text: &str| {
                let class = if key == here { " class=here" } else { "" };
                format!("<a{class} href=\"{path}{at}\">{text}</a>")
            };
            tabs = format!(
                "<nav class=subtabs>{}{}{}</nav>",
                item("conversation", "", "Conversation"),
                item("commits", "/commits", "Commits"),
                item("files", "/files", "Files changed"),
            );
        }
        format!(
            "<div id=heading data-live><h1>{} <span class=number>#{}</span></h1><p>{line}</p>{tabs}</div>",
            EscapedHtml(&issue.title),
            issue.number
        )
    }

    /// Returns the body, comments and events in chronological order.
    fn conversation(&self, s: &HubState, r: &HubRepository, issue: &HubIssue, base: &str) -> String {
        let first = ThreadEntry {
            anchor: format!("issue-{}", issue.number),
            author: issue.author,
            at: issue.created_at,
            edited: false,
            body: issue.body.as_deref().unwrap_or_default(),
            reactions: &issue.reactions,
            comment: None,
        };
        let mut rows = vec![];
        for comment in &issue.comments {
            rows.push((
                comment.created_at,
                comment.id.0,
                self.entry_html(s, r, &comment_entry(comment), base),
            ));
        }
        for event in &issue.events {
            rows.push((event.at, event.id, self.event_line(s, r, event)));
        }
        for review in issue.pull.iter().flat_map(|p| &p.reviews) {
            rows.push((review.at, review.id, self.review_line(s, r, review)));
        }
        rows.sort_by_key(|(at, id, _)| (*at, *id));
        let rows: String = rows.into_iter().map(|(_, _, html)| html).collect();
        format!("{}{rows}", self.entry_html(s, r, &first, base))
    }

    fn entry_html(&self, s: &HubState, r: &HubRepository, entry: &ThreadEntry<'_>, base: &str) -> String {
        let body = if entry.body.trim().is_empty() {
            "<p class=muted><em>No description provided.</em></p>".to_owned()
        } else {
            render(entry.body, &format!("/{}", s.name_of(r)))
        };
        let role = match r.role_of(entry.author) {
            _ if entry.author == r.owner => "<span class=tag>Owner</span>",
            Role::None | Role::Read => "",
            _ => "<span class=tag>Collaborator</span>",
        };
        let edited = if entry.edited { " · edited" } else { "" };
        format!(
            "<div class=entry id=\"{}\">{}<div class=card><div class=cardhead>{} <span class=muted>commented {}{edited}</span>\
             <span class=grow></span>{role}</div><div class=markdown>{body}</div>{}</div></div>",
            entry.anchor,
            avatar(s, entry.author, 40),
            login_html(s, entry.author),
            relative_time(self.now(), entry.at),
            self.reactions(s, entry, base),
        )
    }

    fn reactions(&self, s: &HubState, entry: &ThreadEntry<'_>, base: &str) -> String {
        let comment =
            entry.comment.map(|c| format!("<input type=hidden name=comment value={c}>")).unwrap_or_default();
        let mut counted = String::new();
        let mut offered = String::new();
        for (content, face) in REACTIONS.iter().zip(REACTION_EMOJI) {
            let who: Vec<String> =
                entry.reactions.iter().filter(|r| r.content == *content).map(|r| s.login(r.user)).collect();
            if who.is_empty() {
                offered.push_str(&format!("<button name=content value=\"{content}\">{face}</button>"));
            } else {
                let title = who.join(", ");
                counted.push_str(&format!(
                    "<button name=content value=\"{content}\" title=\"{}\">{face} {}</button>",
                    EscapedHtml(&title),
                    who.len()
                ));
            }
        }
        format!(
            "<form class=faces method=post action=\"{base}/react\">{}{comment}{counted}\
             <details><summary title=\"Add a reaction\">☺</summary>{offered}</details></form>",
            self.csrf_field()
        )
    }

    fn event_line(&self, s: &HubState, r: &HubRepository, event: &HubTimelineEvent) -> String {
        let label =
            event.label.as_ref().map(|l| label_pill(r.label(&l.name).unwrap_or(l))).unwrap_or_default();
        let what = match (event.event.as_str(), &event.rename) {
            ("labeled", _) => format!("added the label {label}"),
            ("unlabeled", _) => format!("removed the label {label}"),
            ("closed", _) => "closed this".to_owned(),
            ("reopened", _) => "reopened this".to_owned(),
            ("ready_for_review", _) => "marked this ready for review".to_owned(),
            ("comment_deleted", _) => "deleted a comment".to_owned(),
            (_, Some((from, to))) => {
                format!(
                    "changed the title from <del>{}</del> to <b>{}</b>",
                    EscapedHtml(from),
                    EscapedHtml(to)
                )
            }
            (other, None) => EscapedHtml(&other.replace('_', " ")).to_string(),
        };
        format!(
            "<div class=event>{}<span>{} {what} <span class=muted>{}</span></span></div>",
            avatar(s, event.actor, 20),
            login_html(s, event.actor),
            relative_time(self.now(), event.at)
        )
    }

    fn review_line(&self, s: &HubState, r: &HubRepository, review: &HubReview) -> String {
        let (class, what) = match review.state.as_str() {
            "APPROVED" => ("open", "approved these changes"),
            "CHANGES_REQUESTED" => ("stopped", "requested changes"),
            _ => ("draft", "reviewed"),
        };
        let body = if review.body.is_empty() {
            String::new()
        } else {
            format!(
                "<div class=card><div class=markdown>{}</div></div>",
                render(&review.body, &format!("/{}", s.name_of(r)))
            )
        };
        format!(
            "<div class=event><span class=\"dot {class}\"></span><span>{} {what} <span class=muted>{} at {}</span></span></div>{body}",
            login_html(s, review.user),
            relative_time(self.now(), review.at),
            review.commit.short()
        )
    }

    fn comment_box(&self, s: &HubState, r: &HubRepository, issue: &HubIssue, base: &str) -> String {
        let Some(user) = self.acting else { return String::new() };
        let may_close = r.role_of(user) >= Role::Triage || issue.author == user;
        let merged = issue.pull.as_ref().is_some_and(|p| p.merged_at.is_some());
        let switch = match (may_close && !merged, issue.open) {
            (false, _) => "",
            (true, true) => "<button name=close value=1>Close</button>",
            (true, false) => "<button name=reopen value=1>Reopen</button>",
        };
        let review = if issue.pull.is_some() && issue.open { self.review_box(base) } else { String::new() };
        format!(
            "<div class=said>{}<form class=\"card write\" method=post action=\"{base}/comment\">{}\
             <textarea name=body rows=5 placeholder=\"Leave a comment as {}. /help shows what the bot understands.\"></textarea>\
             <div class=bar><span class=grow></span>{switch}<button class=go>Comment</button></div></form></div>{review}",
            avatar(s, user, 40),
            self.csrf_field(),
            EscapedHtml(&s.login(user)),
        )
    }

    fn review_box(&self, base: &str) -> String {
        format!(
            "<details class=review><summary>Review changes</summary><form class=\"card write\" method=post action=\"{base}/review\">{}\
             <textarea name=body rows=3 placeholder=\"What you think of the changes\"></textarea><div class=bar><span class=grow></span>\
             <button name=state value=COMMENTED>Comment</button><button name=state value=CHANGES_REQUESTED>Request changes</button>\
             <button class=go name=state value=APPROVED>Approve</button></div></form></details>",
            self.csrf_field()
        )
    }

    /// Returns the button for an open pull request: it marks a draft as ready for review, or merges a pull request that
    /// is not a draft. Returns an empty string if the acting user has no write access.
    fn merge_box(&self, r: &HubRepository, issue: &HubIssue, base: &str) -> String {
        let Some(pull) = issue.pull.as_ref().filter(|_| issue.open) else { return String::new() };
        if self.acting.is_none_or(|u| r.role_of(u) < Role::Write) {
            return String::new();
        }
        let (text, action, button) = if pull.draft {
            ("This pull request is still a draft.", "ready", "Ready for review")
        } else {
            ("This branch can be merged.", "merge", "Merge pull request")
        };
        format!(
            "<form class=\"card mergebox\" method=post action=\"{base}/{action}\">{}<span class=grow>{text}</span>\
             <button class=go>{button}</button></form>",
            self.csrf_field()
        )
    }

    fn label_box(&self, r: &HubRepository, base: &str) -> String {
        if self.acting.is_none_or(|u| r.role_of(u) < Role::Triage) {
            return String::new();
        }
        let known: String =
            r.labels.iter().map(|l| format!("<option value=\"{}\">", EscapedHtml(&l.name))).collect();
        format!(
            "<form class=labelbox method=post action=\"{base}/label\">{}<input name=name list=known placeholder=\"countersign:lld\" required>\
             <datalist id=known>{known}<option value=\"countersign:lld\"></datalist><button>Add label</button></form>",
            self.csrf_field()
        )
    }
}

/// Returns a one-line summary of the checks on a pull request's head. Only the newest check of each name is counted.
fn checks_line(r: &HubRepository, issue: &HubIssue) -> String {
    let Some(pull) = &issue.pull else { return String::new() };
    let here: Vec<_> = r.checks.iter().filter(|c| c.head == pull.head_oid).collect();
    let newest = here.iter().filter(|c| here.iter().all(|other| other.name != c.name || other.id <= c.id));
    let one = |c: &&&HubCheckRun| {
        let state = c.conclusion.as_ref().unwrap_or(&c.status).replace('_', " ");
        let (name, title) = (EscapedHtml(&c.name), c.title.as_deref().unwrap_or_default());
        let link = c.details_url.as_deref().unwrap_or_default();
        format!(
            "<a href=\"{}\">{name}</a> <b>{}</b> {}",
            EscapedHtml(link),
            EscapedHtml(&state),
            EscapedHtml(title)
        )
    };
    let all: Vec<String> = newest.map(|c| one(&c)).collect();
    if all.is_empty() {
        String::new()
    } else {
        format!("<div class=event><span>{}</span></div>", all.join(" · "))
    }
}

fn comment_entry(comment: &HubComment) -> ThreadEntry<'_> {
    ThreadEntry {
        anchor: format!("issuecomment-{}", comment.id),
        author: comment.author,
        at: comment.created_at,
        edited: comment.edits > 0,
        body: &comment.body,
        reactions: &comment.reactions,
        comment: Some(comment.id),
    }
}

fn labels_and_people(
    visit: &HubPageRequest<'_>,
    s: &HubState,
    r: &HubRepository,
    issue: &HubIssue,
    base: &str,
) -> String {
    let may = visit.acting.is_some_and(|u| r.role_of(u) >= Role::Triage);
    let mut labels = String::new();
    for label in issue_labels(r, issue) {
        let off = if may {
            format!(
                "<form method=post action=\"{base}/unlabel\">{}<input type=hidden name=name value=\"{}\">\
                 <button class=off title=\"Remove this label\">×</button></form>",
                visit.csrf_field(),
                EscapedHtml(&label.name)
            )
        } else {
            String::new()
        };
        labels.push_str(&format!("<div class=labelrow>{}{off}</div>", label_pill(label)));
    }
    if labels.is_empty() {
        labels.push_str("<p class=muted>None yet</p>");
    }
    let mut people: Vec<UserId> = vec![issue.author];
    for comment in &issue.comments {
        if !people.contains(&comment.author) {
            people.push(comment.author);
        }
    }
    let faces: String = people.into_iter().map(|u| avatar(s, u, 26)).collect();
    format!("<h3>Participants</h3><p class=people>{faces}</p><h3>Labels</h3>{labels}")
}
