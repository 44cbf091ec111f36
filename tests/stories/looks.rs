//! Methods with which a story inspects the bot's actions. Everything that they return is marked as inspected in its
//! current form.

use countersign::{
    engine::{RunView, RunViewStatus},
    localhub::{HubCheckView, HubCommentView, HubPullRequestView, HubRequestView},
    messages::stage_name,
    publication::MERGE_GATE,
    types::{CommentId, Hash, IssueNo},
};

use crate::{
    unseen::{Act, BOT},
    world::World,
};

impl World {
    /// Returns the first of the bot's comments on the issue that contain this text.
    #[track_caller]
    pub(crate) fn find(&self, text: &str) -> HubCommentView {
        let found = self.bots().into_iter().find(|c| c.body.contains(text));
        self.mark_seen(
            found.unwrap_or_else(|| panic!("no comment says {text:?}; the thread:\n{}", self.thread())),
        )
    }

    /// Returns the newest of the bot's comments on the issue that contain this text.
    #[track_caller]
    pub(crate) fn last(&self, text: &str) -> HubCommentView {
        let found = self.bots().into_iter().rfind(|c| c.body.contains(text));
        self.mark_seen(
            found.unwrap_or_else(|| panic!("no comment says {text:?}; the thread:\n{}", self.thread())),
        )
    }

    /// Returns the bot's newest comment on the issue, without addresses and hashes.
    #[track_caller]
    pub(crate) fn newest(&self) -> String {
        self.plain(&self.last("").body)
    }

    /// Returns the issue's status comment.
    #[track_caller]
    pub(crate) fn status(&self) -> HubCommentView {
        let marked = |comment: &HubCommentView| {
            // Status comments of an earlier version name their run.
            let last = comment.body.lines().last().unwrap_or_default();
            last.starts_with("<!-- countersign:status") && last.ends_with(" -->")
        };
        let found = self.bots().into_iter().rfind(marked);
        self.mark_seen(
            found.unwrap_or_else(|| panic!("there is no status comment; the thread:\n{}", self.thread())),
        )
    }

    /// Returns the text of the newest gate comment.
    #[track_caller]
    pub(crate) fn gate(&self) -> String {
        self.last(GATE).body
    }

    pub(crate) fn labels(&self) -> Vec<String> {
        self.unseen.saw(self.repo, Act::Labels(self.issue));
        self.view().labels
    }

    pub(crate) fn branch(&self) -> String {
        format!("countersign/issue-{}", self.issue)
    }

    /// Returns the first lines of the commit messages on the issue's branch, newest first.
    pub(crate) fn commits(&self) -> Vec<String> {
        self.unseen.saw(self.repo, Act::Branch(self.branch()));
        let log = self.hub.log(self.repo, &self.branch());
        log.iter().map(|commit| commit.message.lines().next().unwrap().to_owned()).collect()
    }

    /// Returns the pull requests of the issue's branch and of its successors, newest last.
    pub(crate) fn pulls(&self) -> Vec<HubPullRequestView> {
        let (branch, next) = (self.branch(), format!("{}-", self.branch()));
        let of_it = |pull: &HubPullRequestView| pull.head == branch || pull.head.starts_with(&next);
        self.hub.pulls(self.repo).into_iter().filter(of_it).collect()
    }

    /// Returns the newest pull request.
    #[track_caller]
    pub(crate) fn pull(&self) -> HubPullRequestView {
        self.pull_at(self.pulls().len() - 1)
    }

    #[track_caller]
    pub(crate) fn pull_at(&self, n: usize) -> HubPullRequestView {
        let pull = self.pulls().remove(n);
        self.unseen.saw(self.repo, Act::Text(pull.number));
        pull
    }

    /// Returns the bot's comments on the newest pull request.
    pub(crate) fn on_pull(&self) -> Vec<String> {
        self.on_thread(self.pull_number())
    }

    /// Returns the bot's comments on another issue or pull request.
    pub(crate) fn on_thread(&self, number: IssueNo) -> Vec<String> {
        let thread = self.hub.issue(self.repo, number).unwrap();
        let ours = thread.comments.into_iter().filter(|c| c.author == BOT);
        ours.map(|comment| self.mark_seen(comment).body).collect()
    }

    fn mark_seen(&self, comment: HubCommentView) -> HubCommentView {
        self.unseen.saw(self.repo, Act::Comment(comment.id));
        comment
    }

    /// Marks a comment as inspected.
    pub(crate) fn look_at(&self, id: CommentId) {
        self.unseen.saw(self.repo, Act::Comment(id));
    }

    pub(crate) fn bots(&self) -> Vec<HubCommentView> {
        self.view().comments.into_iter().filter(|c| c.author == BOT).collect()
    }

    /// Returns the number of comments that caused mail. Those are all comments that the bot ever created, including
    /// deleted ones.
    pub(crate) fn notifying(&self) -> usize {
        let events = self.view().timeline;
        let deleted = events.iter().filter(|e| e.event == "comment_deleted" && e.actor == BOT);
        self.bots().len() + deleted.count()
    }

    pub(crate) fn pull_number(&self) -> IssueNo {
        self.pulls().pop().expect("no pull request").number
    }

    pub(crate) async fn run_status(&self) -> RunViewStatus {
        self.run().await.expect("no run").status
    }

    /// Returns every approve command that the gates offer for pasting.
    pub(crate) fn lines_to_paste(&self) -> Vec<String> {
        let gates = self.bots().into_iter().filter(|comment| comment.body.contains(GATE));
        let texts: Vec<String> = gates.map(|gate| gate.body).collect();
        let lines = texts.iter().flat_map(|text| text.lines()).filter(|line| line.starts_with("/approve"));
        lines.map(str::to_owned).collect()
    }

    /// Asserts that the newest run has this status wherever people see it. The places are the label, the status
    /// comment, the gates, the approve commands, the pull request, the check, and the document on the branch.
    pub(crate) async fn stands(&self, status: RunViewStatus) {
        let mut run = self.run().await.expect("no run");
        self.keep_states();
        // A run that waits only for its merge looks like a finished one.
        if run.gate.as_ref().is_some_and(|gate| gate.spec.stage == MERGE_GATE) {
            run.status = RunViewStatus::Done;
        }
        assert_eq!(run.status, status, "{:?}\n{}", run.why, self.thread());
        let (label, headline) = match status {
            RunViewStatus::Asking => (Some("needs-you"), "waiting for you"),
            RunViewStatus::Done => (Some("done"), "done"),
            RunViewStatus::Stopped => (Some("stopped"), "stopped"),
            RunViewStatus::Failed => (Some("stopped"), "halted"),
            _ => (None, "working"),
        };
        let ours = ["working", "needs-you", "done", "stopped"].map(|label| format!("countersign:{label}"));
        let labels: Vec<_> = self.labels().into_iter().filter(|label| ours.contains(label)).collect();
        let label = label.map(|label| format!("countersign:{label}"));
        assert_eq!(labels, label.into_iter().collect::<Vec<_>>(), "{}", self.thread());
        let status_text = self.status().body;
        assert!(status_text.contains(&format!(" {}: {headline}\n\n", run.workflow)), "{status_text}");
        assert!(status_text.contains(&format!("un `{}`", run.id)), "{status_text}");
        let asks = status == RunViewStatus::Asking && !status_text.contains("**Paused**: ");
        let newest_first = self.bots().into_iter().rev().filter(|comment| comment.body.contains(GATE));
        for (n, gate) in newest_first.enumerate() {
            let waits = self.mark_seen(gate).body.contains(" waits for a person");
            assert_eq!(waits, asks && n == 0, "{}", self.thread());
        }
        let lines = self.lines_to_paste();
        assert!(lines.len() <= usize::from(status == RunViewStatus::Asking), "{lines:?}\n{}", self.thread());
        for comment in self.bots() {
            if comment.body.contains("passed its review\n") {
                self.look_at(comment.id);
            }
        }
        if !self.pulls().is_empty() {
            self.assert_document_stands(&run, &status_text);
            self.assert_check_stands(&run);
        }
    }

    /// Returns a page of the hub's website as a browser receives it.
    pub(crate) async fn page(&self, path: &str) -> String {
        let client = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).build().unwrap();
        let entered = client.get(self.hub.repo_page_url(self.repo, path).unwrap()).send().await.unwrap();
        let header = |name: &str| entered.headers()[name].to_str().unwrap().to_owned();
        let (url, cookie) = (self.hub.base_url().join(&header("location")).unwrap(), header("set-cookie"));
        let cookie = cookie.split(';').next().unwrap();
        client.get(url).header("cookie", cookie).send().await.unwrap().text().await.unwrap()
    }

    /// Returns the checks on the repository's commits, oldest first.
    pub(crate) fn checks(&self) -> Vec<HubCheckView> {
        self.unseen.saw(self.repo, Act::Checks);
        self.hub.checks(self.repo)
    }

    /// Returns the conclusion and title of the newest check, as one text.
    pub(crate) fn check_says(&self) -> String {
        let newest = self.checks().pop().expect("no check");
        format!("{}: {}", newest.conclusion.unwrap_or(newest.status), newest.title)
    }

    /// Asserts that the run's newest check shows the state of the run and is on a commit of the branch. Also asserts
    /// that each older check has ended without success, except for checks of pushed code.
    fn assert_check_stands(&self, run: &RunView) {
        let stage = if run.workflow == "implement" { "change" } else { run.workflow.as_str() };
        let of_it = |check: &HubCheckView| check.external_id.starts_with(&format!("{}/{stage}/", run.id));
        let (pull, mut checks) = (self.pull(), self.checks());
        let main = self.hub.branches(self.repo).into_iter().find(|(name, _)| name == "main").unwrap().1;
        assert!(checks.iter().all(|check| check.head != main), "{checks:#?}");
        checks.retain(of_it);
        let Some(newest) = checks.pop() else {
            let refused = |r: &HubRequestView| r.path.ends_with("/check-runs") && r.status >= 400;
            let refused = self.hub.requests().iter().any(refused);
            return assert!(refused || !pull.body.contains(&format!("<sub>Run {}</sub>", run.id)));
        };
        let expected = match run.status {
            RunViewStatus::Asking => "action_required",
            RunViewStatus::Done => "success",
            RunViewStatus::Stopped => "cancelled",
            RunViewStatus::Failed => "failure",
            _ => "in_progress",
        };
        assert_eq!(newest.conclusion.as_ref().unwrap_or(&newest.status), expected, "{newest:#?}");
        // A pushed commit was approved, so its check keeps its success.
        let code = run.workflow == "implement";
        let ended =
            |check: &HubCheckView| check.conclusion.as_ref().is_some_and(|word| code || word != "success");
        assert!(checks.iter().all(ended), "{checks:#?}");
        let log = self.hub.log(self.repo, &pull.head);
        let live = matches!(run.status, RunViewStatus::Asking | RunViewStatus::Done);
        assert!(!live || log.iter().any(|commit| commit.oid == newest.head), "{newest:#?}");
    }

    /// Asserts that the pull request and the branch contain the run's document and the decision on it. Does nothing if
    /// the document was not published.
    fn assert_document_stands(&self, run: &RunView, status_text: &str) {
        let (pull, status) = (self.pull(), run.status);
        let log = self.hub.log(self.repo, &pull.head);
        self.unseen.saw(self.repo, Act::Branch(pull.head.clone()));
        let stage = stage_name(&run.workflow);
        let heading = format!("### {}{}\n", stage[..1].to_uppercase(), &stage[1..]);
        let Some((_, section)) = pull.body.split_once(&heading) else { return };
        let section = section.split("\n### ").next().unwrap();
        let path = section.split("| Document | `").nth(1).unwrap().split('`').next().unwrap();
        let hash = Hash::digest(&self.hub.branch_file(self.repo, &pull.head, path).unwrap());
        assert!(section.contains(&format!("| sha256 | `{hash}` |")), "{hash}: {}", pull.body);
        // Sections of an earlier version say explicitly that nobody has decided.
        let decided = section.contains("| Decision |") && !section.contains("| Decision | waits for");
        let is_stated = match status {
            RunViewStatus::Done => decided,
            RunViewStatus::Asking => !decided,
            _ => true,
        };
        assert!(is_stated, "{}", pull.body);
        // A person's own version waits at the gate without a commit of ours.
        let ours = log.iter().find(|commit| commit.author == BOT).map_or("", |commit| &commit.message);
        assert_eq!(ours.starts_with("docs: accept"), status == RunViewStatus::Done, "{log:#?}");
        let of_it = ours.contains(&format!("Countersign-Document: {hash}"));
        assert!(of_it || log[0].author != BOT, "{hash}: {log:#?}");
        let draft = status_text.contains("<details><summary>Draft ");
        assert!(draft || !matches!(status, RunViewStatus::Asking | RunViewStatus::Done), "{status_text}");
    }

    /// Labels the issue and lets the run reach its gate. Asserts that the bot has posted two comments and set a label,
    /// and has opened a pull request if documents are published as files.
    pub(crate) async fn comes_to_the_gate(&mut self) {
        self.label("maya", "countersign:lld").await;
        self.stands(RunViewStatus::Asking).await;
        assert_eq!(self.labels(), ["countersign:needs-you"]);
        assert!(self.gate().contains("### ✅ APPROVED: the design waits for a person"));
        assert_eq!(self.notifying(), 2, "{}", self.thread());
        if !self.hub.pulls(self.repo).is_empty() {
            let propose = format!("docs: propose design for #{}", self.issue);
            assert_eq!(self.commits(), [&propose, "Initial commit"]);
        }
    }

    /// Posts the approve command as this user and asserts that the run is done.
    pub(crate) async fn approved_by(&mut self, who: &str) {
        let line = self.approve_line();
        self.comment(who, &line).await;
        self.stands(RunViewStatus::Done).await;
    }

    /// Returns the approve command from the newest comment that contains one.
    #[track_caller]
    pub(crate) fn approve_line(&self) -> String {
        let bodies: Vec<_> = self.bots().into_iter().rev().map(|c| c.body).collect();
        bodies
            .iter()
            .flat_map(|body| body.lines())
            .map(|line| line.trim().trim_matches('`'))
            .find(|line| {
                line.starts_with("/approve ") && !line.ends_with("HASH") && line.split(' ').count() == 3
            })
            .unwrap_or_else(|| panic!("no gate shows its line; the thread:\n{}", self.thread()))
            .to_owned()
    }
}

/// Text that occurs in every gate comment.
const GATE: &str = "the hash covers the document";

/// Replaces each folded part of a comment by the summary of that part.
pub(crate) fn without_details(text: &str) -> String {
    let parts =
        text.split("<details><summary>").enumerate().map(|(n, part)| match part.split_once("</details>") {
            Some((folded, after)) if n > 0 => {
                format!("▸ {}{after}", folded.split("</summary>").next().unwrap())
            }
            _ => part.to_owned(),
        });
    parts.collect::<String>() + "\n"
}
