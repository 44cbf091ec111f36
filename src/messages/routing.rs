//! Replies to free-text requests.

use serde::{Deserialize, Serialize};

use super::access_name;
use crate::{
    documents::routing::RoutingAction,
    github::outbound::{OutboundBody, clean, code_block, inline_code, inline_text, plain_line},
    types::{Role, count},
};

/// Maximum number of characters of the request in a command line to paste. If the request is truncated, the reply says
/// so.
const PASTED_CHARS: usize = 2000;

/// Maximum number of characters of a model's answer to a question.
const ANSWER_CHARS: usize = 6000;

/// A workflow or skill that is offered to a person for a request.
#[derive(Debug, Clone)]
pub struct RouteOffer {
    pub skill: String,
    pub description: String,
    /// Command that starts the offered workflow.
    pub usage: &'static str,
    /// The model's confidence in this offer, in thousandths; 0 if the model did not name the offer.
    pub confidence: u16,
}

/// A model's classification of a request.
#[derive(Debug, Clone)]
pub struct RouteCard {
    /// Offers, most likely first.
    pub offers: Vec<RouteOffer>,
    pub request: String,
    /// The model's confidence in the first offer, in thousandths.
    pub confidence: u16,
    /// The model's reason for the classification, in one sentence.
    pub reasoning: String,
    /// Points that the request leaves open.
    pub missing: Vec<String>,
    /// Reason why no model's response could be used, in our own words; `None` if one could be used.
    pub fell_back: Option<String>,
    /// Skills in the repository that cannot be used: path, line and reason of each.
    pub faults: Vec<(String, Option<usize>, String)>,
}

/// Returns the reply that offers workflows to choose from.
pub fn route_offer_reply(card: &RouteCard) -> OutboundBody {
    let why = match &card.fell_back {
        Some(why) => format!("No model could classify this request: {}", inline_text(why, 200)),
        None => "It is unclear what you are asking for".to_owned(),
    };
    if card.offers.is_empty() {
        return frame_reply(format!(
            "{why}, so nothing was started. `/help` lists the commands.{}",
            skill_faults(card)
        ));
    }
    let words = card.request.split_whitespace().collect::<Vec<_>>().join(" ");
    let (words, cut) = match words.char_indices().nth(PASTED_CHARS) {
        Some((end, _)) => {
            let add = "\n\nYour text was too long and is cut off above: replace the “…” with the rest.";
            (format!("{}…", &words[..end]), add)
        }
        None => (words, ""),
    };
    let pasted = |offer: &RouteOffer| {
        let line = format!("/route {} {words}", offer.skill);
        let sure = if offer.confidence == 0 || card.fell_back.is_some() {
            String::new()
        } else {
            format!(", {}", confidence_text(offer.confidence))
        };
        format!(
            "{} (as {}{sure}): {}\n\n{}",
            inline_code(&offer.skill, 64),
            inline_code(offer.usage, 40),
            inline_text(&offer.description, 200),
            code_block("", line.trim_end(), 2 * PASTED_CHARS)
        )
    };
    let lines: Vec<_> = card.offers.iter().map(pasted).collect();
    let choose = if lines.len() == 1 { "this line" } else { "one of these lines" };
    frame_reply(format!(
        "{why}, so nothing was started. To start the work, write {choose}:\n\n{}{cut}{}{}",
        lines.join("\n\n"),
        open_points_with_answer_line(card),
        skill_faults(card)
    ))
}

/// Returns the reply saying that a workflow starts, and how to stop it.
pub fn route_started_reply(card: &RouteCard, skill: &str, usage: &str, lead: RoutingAction) -> OutboundBody {
    let (skill, usage) = (inline_code(skill, 64), inline_code(usage, 40));
    let text = match lead {
        RoutingAction::Probably => {
            let reasoning = match inline_text(&card.reasoning, 300) {
                text if text.is_empty() => String::new(),
                text => format!(" The model's reason: {text}"),
            };
            format!(
                "This is probably a {skill} ({}), so {usage} starts.{reasoning} If you meant something else, stop \
                 it:\n\n```\n/stop\n```",
                confidence_text(card.confidence)
            )
        }
        _ => format!("{usage} starts for this {skill}."),
    };
    frame_reply(text + &open_points_if(lead == RoutingAction::Probably, card) + &skill_faults(card))
}

/// Reason why a request starts no workflow and is not answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeclineReason {
    /// The text of the comment is not a request.
    NoWork,
    /// The person already got an answer within the last hour.
    TooSoon,
    /// No model could answer. Contains the reason in our own words.
    NoAnswer(String),
}

/// Returns the reply to a request that starts nothing.
pub fn route_declined_reply(why: &DeclineReason) -> OutboundBody {
    let why = match why {
        DeclineReason::NoWork => {
            "This reads like a remark, not a request, so nothing was started.".to_owned()
        }
        DeclineReason::TooSoon => {
            "This reads like a question, and Countersign answers one question per person and hour. Nothing was \
             started; ask again later."
                .to_owned()
        }
        DeclineReason::NoAnswer(why) => format!(
            "This reads like a question, and no model could answer it: {}. Nothing was started; ask again in an hour.",
            inline_text(why, 200)
        ),
    };
    frame_reply(format!("{why} `/help` lists the commands."))
}

/// A model's answer to a question.
#[derive(Debug, Clone)]
pub struct AnswerCard {
    pub answer: String,
    pub places: Vec<CodeLink>,
    /// Number of locations cited by the model that do not exist.
    pub dropped: usize,
    /// Abbreviated id of the commit that the answer refers to.
    pub commit: String,
}

/// A location in the code.
#[derive(Debug, Clone)]
pub struct CodeLink {
    pub path: String,
    pub lines: Option<(u64, u64)>,
    /// URL of the location at that commit.
    pub url: String,
    pub what: String,
}

/// Returns the reply that contains the model's answer.
pub fn route_answer_reply(card: &AnswerCard) -> OutboundBody {
    let place = |place: &CodeLink| {
        let lines = place.lines.map_or_else(String::new, |(from, to)| format!(", lines {from} to {to}"));
        let what = match inline_text(&place.what, 200) {
            what if what.is_empty() => what,
            what => format!(": {what}"),
        };
        format!("- [{}](<{}>){lines}{what}", inline_code(&place.path, 150), place.url)
    };
    let places = match card.places.iter().map(place).collect::<Vec<_>>().join("\n") {
        none if none.is_empty() => {
            "The answer names no existing place in the code, so treat it with care.".to_owned()
        }
        rows => rows,
    };
    let dropped = match card.dropped {
        0 => String::new(),
        dropped => format!(
            " It also named {} that {} not exist.",
            count(dropped, "place", "places"),
            if dropped == 1 { "does" } else { "do" }
        ),
    };
    frame_reply(format!(
        "{}\n\n{places}\n\n<sub>A model’s answer, based on the code it saw at commit `{}`. Nothing was run or \
         started.{dropped}</sub>",
        clean(&card.answer, ANSWER_CHARS),
        card.commit
    ))
}

/// Returns the reply to a person who answers open points but has no open request.
pub fn no_open_request_reply() -> OutboundBody {
    frame_reply(
        "You have no open request on this issue: your last one is more than a day old, needed no answer, or was \
         followed by a run. Write the whole request in one comment. `/help` lists the commands."
            .to_owned(),
    )
}

/// Returns the reply to a request whose workflow requires a higher role than the person has.
pub fn route_not_allowed_reply(skill: &str, usage: &str, needs: Role) -> OutboundBody {
    frame_reply(format!(
        "This reads like a {}, which requires {}. Nothing was started; someone with that access can write {}.",
        inline_code(skill, 64),
        access_name(needs),
        inline_code(usage, 40)
    ))
}

/// Returns the reply to a free-text request if routing is switched off.
pub fn routing_disabled_reply() -> OutboundBody {
    frame_reply("Free-text requests are switched off here. `/help` lists the commands.".to_owned())
}

/// State of the run that prevents a request from starting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ConflictingRunState {
    AtWork,
    /// The run waits for a person.
    Asking,
    /// The run started after the request was written, and has already ended.
    Over,
}

/// Returns the reply to a request while another run is active, or if another run started after the request was written.
pub fn route_busy_reply(workflow: &str, state: ConflictingRunState) -> OutboundBody {
    let (is, how) = match state {
        ConflictingRunState::AtWork => {
            ("is active on this issue", "`/status` shows its state, and `/stop` ends it")
        }
        ConflictingRunState::Asking => {
            ("is active on this issue", "It waits for a person: `/revise TEXT` sends it back with your text")
        }
        ConflictingRunState::Over => (
            "was started on this issue after you wrote",
            "It has ended; write your request again if you still want it",
        ),
    };
    frame_reply(format!(
        "A run of {} {is}, so your request was not started. {how}. `/help` lists the commands.",
        inline_code(workflow, 30)
    ))
}

/// Returns the reply to a request that no model could read.
pub fn route_halted_reply(why: &str) -> OutboundBody {
    frame_reply(format!(
        "The request could not be read, so nothing was started. {} `/help` lists the commands.",
        inline_text(why, 400)
    ))
}

/// Returns a status note about the free-text request that started the run.
pub fn route_note(skill: &str, confidence: u16) -> String {
    let by = if confidence == 1000 { String::new() } else { format!(" ({})", confidence_text(confidence)) };
    format!("Started from a free-text request, read as “{}”{by}.", plain_line(skill, 64))
}

fn confidence_text(thousandths: u16) -> String {
    format!("{} % sure", thousandths / 10)
}

fn open_points_if(on: bool, card: &RouteCard) -> String {
    if on { open_points(card) } else { String::new() }
}

fn open_points(card: &RouteCard) -> String {
    let rows: Vec<_> =
        card.missing.iter().take(5).map(|text| format!("- {}", inline_text(text, 300))).collect();
    if rows.is_empty() { String::new() } else { format!("\n\nOpen points:\n\n{}", rows.join("\n")) }
}

/// Returns the open points with the command line to answer them; an empty string if no point is open.
fn open_points_with_answer_line(card: &RouteCard) -> String {
    let how = "\n\nOr answer these points within a day, and your request is read again with the \
               answers:\n\n```\n/route answer: …\n```";
    let missing = open_points(card);
    if missing.is_empty() { missing } else { missing + how }
}

fn skill_faults(card: &RouteCard) -> String {
    let row = |(path, line, why): &(String, Option<usize>, String)| {
        let place = line.map_or_else(|| path.clone(), |line| format!("{path}:{line}"));
        format!("- {}: {}", inline_code(&place, 150), inline_text(why, 300))
    };
    let rows: Vec<_> = card.faults.iter().map(row).collect();
    if rows.is_empty() {
        return String::new();
    }
    format!("\n\nSkill files of this repository that could not be used:\n\n{}", rows.join("\n"))
}

fn frame_reply(text: String) -> OutboundBody {
    OutboundBody::frame(text)
}

#[cfg(test)]
mod tests {
    use super::{super::tests::*, *};

    #[test]
    fn routing_replies_neutralise_hostile_text() {
        let offer = |skill: &str, confidence| RouteOffer {
            skill: skill.into(),
            description: HOSTILE.into(),
            usage: "/lld",
            confidence,
        };
        let card = RouteCard {
            offers: vec![offer("feature-brief", 650), offer("bug-brief", 0)],
            request: format!("make it\nfaster {HOSTILE}"),
            confidence: 650,
            reasoning: HOSTILE.into(),
            missing: vec![HOSTILE.into()],
            fell_back: None,
            faults: vec![(HOSTILE.into(), Some(3), HOSTILE.into())],
        };
        let fallen = RouteCard { fell_back: Some("the model took longer than 2 s".into()), ..card.clone() };
        let nothing = RouteCard { offers: vec![], ..fallen.clone() };
        for body in [
            route_offer_reply(&card),
            route_offer_reply(&fallen),
            route_offer_reply(&nothing),
            route_started_reply(&card, "feature-brief", "/lld", RoutingAction::Probably),
            route_started_reply(&card, "feature-brief", "/lld", RoutingAction::Begin),
            route_declined_reply(&DeclineReason::NoAnswer(HOSTILE.into())),
            route_answer_reply(&AnswerCard {
                answer: HOSTILE.into(),
                places: vec![CodeLink {
                    path: HOSTILE.into(),
                    lines: Some((1, 2)),
                    url: "https://github.com/o/r/blob/c/p".into(),
                    what: HOSTILE.into(),
                }],
                dropped: 1,
                commit: "1234567".into(),
            }),
            no_open_request_reply(),
            route_not_allowed_reply("feature-brief", "/implement", Role::Write),
            routing_disabled_reply(),
            route_busy_reply("lld", ConflictingRunState::Over),
            route_halted_reply(HOSTILE),
        ] {
            assert_inert(body.as_str());
        }
        let text = route_offer_reply(&card).as_str().to_owned();
        assert!(text.contains("```\n/route feature-brief make it faster"), "{text}");
        let long =
            route_offer_reply(&RouteCard { request: "ä ".repeat(PASTED_CHARS), ..card }).as_str().to_owned();
        assert!(long.contains(" ä …\n```") && long.contains("with the rest"), "{long}");
    }
}
