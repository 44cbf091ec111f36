//! People's requests for changes, at a gate or while a pushed change waits for its merge: which of them unlock tests, which
//! go to the drafter, and which are first answered with the command to type.

use super::{PublicationTarget, StageState, StepVisit, load_document, merge_watch::PushedReview};
use crate::{
    documents::{
        findings::LineRemark,
        hidden_text::{merge_hidden, visible_text},
    },
    engine::{GateAnswer, StepError},
    github::{LineComment, none_if_refused},
    messages,
    rounds::{self, github_error, load_text, post_announcement_on},
    types::Timestamp,
};

/// Maximum number of characters kept of a review remark. `PLACE_CHARS` is the limit for the remark's file path.
const REMARK_CHARS: usize = 4_000;
const PLACE_CHARS: usize = 300;

/// The part of a change that a request names: `/revise tests TEXT` or `/revise code TEXT`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NamedPart {
    Tests,
    Code,
}

impl NamedPart {
    /// Reads the part from the text of a command. A review can contain a line with the command.
    fn parse(text: &str, is_review: bool) -> Option<Self> {
        let part = |text: &str| match text.split_whitespace().next()?.trim_end_matches(':') {
            "tests" => Some(Self::Tests),
            "code" => Some(Self::Code),
            _ => None,
        };
        match is_review {
            true => text.lines().find_map(|line| part(line.trim().strip_prefix("/revise ")?)),
            false => part(text),
        }
    }
}

/// A person's request for changes.
struct ChangeRequest {
    /// Part of the journal key of a reply.
    key: String,
    text: String,
    /// Number of the GitHub review; `None` for a command.
    review: Option<u64>,
    by: String,
    at: Timestamp,
    part: Option<NamedPart>,
}

impl ChangeRequest {
    fn new(answer: &GateAnswer) -> Self {
        let (mut text, review) = (answer.text.clone(), answer.review);
        let part = NamedPart::parse(&text, review.is_some());
        // The word that names the part is for us.
        if part.is_some()
            && review.is_none()
            && let Some((_, rest)) = text.trim_start().split_once(char::is_whitespace)
        {
            text = rest.trim_start().to_owned();
        }
        Self { key: answer.cause.to_string(), text, review, by: answer.by.login.clone(), at: answer.at, part }
    }
}

/// Returns the text for the drafter of these requests: the command or review `answer`, and the reviews in the state. A
/// request that may mean a locked test gets a reply with the command to type. Such a review is kept, and goes to the drafter
/// with that command. Returns `None` if no request is left.
///
/// At a gate, only kept reviews are handled. The other reviews are about the pushed change, and wait until the run
/// watches it again.
pub(super) async fn take_requests(
    s: &mut StageState,
    v: &StepVisit<'_>,
    answer: Option<&GateAnswer>,
    is_at_gate: bool,
) -> Result<Option<String>, StepError> {
    let cx = v.cx;
    let mut requests: Vec<ChangeRequest> = answer.map(ChangeRequest::new).into_iter().collect();
    let released = requests.iter().find_map(|request| request.part);
    for review in std::mem::take(&mut s.after.reviews) {
        let waits = if review.kept { released.is_none() } else { is_at_gate };
        if waits {
            s.after.reviews.push(review);
            continue;
        }
        let (text, number) = (load_text(cx, &review.text).await?, Some(review.number));
        let part = NamedPart::parse(&text, true).or(released.filter(|_| review.kept));
        let (key, at) = (format!("review-{}", review.number), cx.now("reviewed").await?);
        requests.push(ChangeRequest { key, text, review: number, by: review.by, at, part });
    }
    let mut words = Vec::new();
    let document = load_document(s, cx).await?;
    for request in requests {
        let comments = match request.review {
            Some(review) => load_line_comments(s, v, review).await?,
            None => Vec::new(),
        };
        let on_tests = count_on_tests(s, v, &comments).await?;
        let wants_tests = match request.part {
            Some(part) => part == NamedPart::Tests,
            None => on_tests > 0,
        };
        if let Some(test) =
            v.doc.named_test(&document, &request.text).filter(|_| !wants_tests && request.part.is_none())
        {
            let reply = messages::unclear_request_reply(&request.by, &test, request.review.is_some());
            // The reply stands where the person wrote.
            let pushed = s.proposal.as_ref().filter(|_| request.review.is_some() || !is_at_gate);
            let place = pushed.map_or(cx.run().trigger.issue, |pushed| pushed.pull);
            post_announcement_on(cx, place, &format!("unclear-{}", request.key), &reply).await?;
            let now = cx.now(&format!("unclear-{}-at", request.key)).await?;
            s.asked.iter_mut().for_each(|asked| asked.unclear_request = Some(now));
            if let Some(number) = request.review {
                let text = cx.put(request.text.as_bytes()).await?;
                s.after.reviews.push(PushedReview { number, by: request.by, text, kept: true });
            }
            continue;
        }
        if v.doc.info().target == PublicationTarget::Code {
            if wants_tests {
                s.wants_tests.get_or_insert_with(|| (request.by.clone(), request.at));
            }
            s.wants_code |= !wants_tests || on_tests < comments.len();
        }
        if request.review.is_some() {
            record_remarks(s, v, comments, &request).await?;
        }
        words.push(request.text);
    }
    Ok(Some(words.join("\n\n")).filter(|words| !words.is_empty()))
}

/// Returns how many of these comments are on lines of locked tests of the pushed change.
async fn count_on_tests(
    s: &StageState,
    v: &StepVisit<'_>,
    comments: &[LineComment],
) -> Result<usize, StepError> {
    let Some(pushed) = s.proposal.as_ref().filter(|_| !comments.is_empty()) else { return Ok(0) };
    let text = load_text(v.cx, &pushed.document).await?;
    let is_on_test = |comment: &&LineComment| v.doc.is_test_line(&text, &comment.path, comment.line);
    Ok(comments.iter().filter(is_on_test).count())
}

/// Reads the line comments of a review of the pushed change. Returns an empty list before the first push.
async fn load_line_comments(
    s: &StageState,
    v: &StepVisit<'_>,
    review: u64,
) -> Result<Vec<LineComment>, StepError> {
    let Some(proposal) = s.proposal.clone().filter(|_| v.doc.info().target == PublicationTarget::Code) else {
        return Ok(Vec::new());
    };
    let repo = v.cx.tools().repository(v.cx).await?;
    let key = format!("remarks-{review}");
    let comments = v.cx.once(&key, |_| async {
        let said =
            none_if_refused(repo.review_comments(proposal.pull, review).await).map_err(github_error)?;
        let mut said = said.unwrap_or_default();
        said.truncate(rounds::MOST_REVIEW_REMARKS);
        // Truncate to what the journal and the ledger can hold.
        for comment in &mut said {
            comment.body = comment.body.chars().take(REMARK_CHARS).collect();
            comment.path = comment.path.chars().filter(|c| !c.is_control()).take(PLACE_CHARS).collect();
        }
        v.cx.put(&serde_json::to_vec(&said).map_err(anyhow::Error::new)?).await
    });
    Ok(serde_json::from_slice(&v.cx.get(&comments.await?).await?).map_err(anyhow::Error::new)?)
}

/// Records each line comment and the body of a review as findings, so that the drafter replies to each and the reviewer
/// judges the reply.
async fn record_remarks(
    s: &mut StageState,
    v: &StepVisit<'_>,
    comments: Vec<LineComment>,
    request: &ChangeRequest,
) -> Result<(), StepError> {
    let Some(proposal) = s.proposal.clone().filter(|_| v.doc.info().target == PublicationTarget::Code) else {
        return Ok(());
    };
    let body = messages::review_body(&request.text, !comments.is_empty());
    let lines = comments.iter().map(|comment| {
        let line = comment.line.map_or(String::new(), |line| format!(":{line}"));
        (Some(comment.thread), Some(format!("{}{line}", comment.path)), comment.body.as_str())
    });
    for (thread, place, text) in lines.chain(body.map(|body| (None, None, body))) {
        let said = visible_text(text);
        s.hidden = merge_hidden(s.hidden.iter().chain(&said.hidden));
        let finding =
            s.round.findings.add_remark(LineRemark { place, text: said.text, by: request.by.clone() });
        s.after.add_thread(thread, finding, proposal.commit.clone());
    }
    rounds::record_findings(v.cx, &s.round).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_names_a_part_only_by_its_first_word_or_a_commands_line() {
        let of = |text: &str| NamedPart::parse(text, false);
        assert_eq!(
            (of("tests Larger."), of("code: Smaller.")),
            (Some(NamedPart::Tests), Some(NamedPart::Code))
        );
        assert_eq!((of("testing is slow"), of("the tests")), (None, None));
        let of = |text: &str| NamedPart::parse(text, true);
        assert_eq!((of("tests are slow"), of("> /revise tests x")), (None, None));
        assert_eq!(of("- `a.rs:1`: Why?\n\n/revise tests Larger."), Some(NamedPart::Tests));
    }
}
