//! What is said to a request in free words.

use serde::{Deserialize, Serialize};

use super::access_name;
use crate::{
    documents::routing::RoutingAction,
    github::outbound::{OutboundBody, clean, code_block, inline_code, inline_text, plain_line},
    types::{Role, count},
};

/// Characters of the request in a line that people paste. A longer one is cut, and they are told.
const PASTED_CHARS: usize = 2000;

/// Of an answer to a question.
const ANSWER_CHARS: usize = 6000;

/// A kind of request that people may choose.
#[derive(Debug, Clone)]
pub struct RouteOffer {
    pub skill: String,
    pub description: String,
    /// The command that begins the same workflow.
    pub usage: &'static str,
    /// In thousandths; 0: nobody named it.
    pub confidence: u16,
}

/// How a request was read.
#[derive(Debug, Clone)]
pub struct RouteCard {
    /// The likeliest first.
    pub offers: Vec<RouteOffer>,
    pub request: String,
    /// Of the first, in thousandths.
    pub confidence: u16,
    /// The model's, in one sentence.
    pub reasoning: String,
    /// What the request leaves open.
    pub missing: Vec<String>,
    /// Why no model's answer could be used, in our words.
    pub fell_back: Option<String>,
    /// Skills of the repository that cannot be used: path, line, why.
    pub faults: Vec<(String, Option<usize>, String)>,
}

/// Nothing was begun: the person chooses.
pub fn route_offer_reply(card: &RouteCard) -> OutboundBody {
    let why = match &card.fell_back {
        Some(why) => format!("No model could say what this asks for: {}", inline_text(why, 200)),
        None => "It is not clear what this asks for".to_owned(),
    };
    if card.offers.is_empty() {
        return frame_reply(format!(
            "{why}, so nothing was begun. `/help` lists what can be.{}",
            skill_faults(card)
        ));
    }
    let words = card.request.split_whitespace().collect::<Vec<_>>().join(" ");
    let (words, cut) = match words.char_indices().nth(PASTED_CHARS) {
        Some((end, _)) => {
            let add = "\n\nThe lines hold only the beginning of what you wrote: put what is missing in place of the “…”.";
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
    let choose = count(lines.len(), "line", "lines").replace("1 line", "this line");
    frame_reply(format!(
        "{why}, so nothing was begun. Write one of these {choose} to begin the work it names:\n\n{}{cut}{}{}",
        lines.join("\n\n"),
        open_points_with_answer_line(card),
        skill_faults(card)
    ))
}

/// It begins, and may have been meant otherwise.
pub fn route_started_reply(card: &RouteCard, skill: &str, usage: &str, lead: RoutingAction) -> OutboundBody {
    let (skill, usage) = (inline_code(skill, 64), inline_code(usage, 40));
    let text = match lead {
        RoutingAction::Probably => {
            let reasoning = match inline_text(&card.reasoning, 300) {
                text if text.is_empty() => String::new(),
                text => format!(" The model's reason: {text}"),
            };
            format!(
                "This is probably a {skill} ({}), so {usage} begins for it.{reasoning} If it was meant otherwise, take it \
                 back:\n\n```\n/stop\n```",
                confidence_text(card.confidence)
            )
        }
        _ => format!("{usage} begins for this, as a {skill}."),
    };
    frame_reply(text + &open_points_if(lead == RoutingAction::Probably, card) + &skill_faults(card))
}

/// Why a request is neither begun nor answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeclineReason {
    /// It is none.
    NoWork,
    /// Another question of this person's was answered within the hour.
    TooSoon,
    /// The model had no answer, in our words.
    NoAnswer(String),
}

/// It asks for no work.
pub fn route_declined_reply(why: &DeclineReason) -> OutboundBody {
    let why = match why {
        DeclineReason::NoWork => {
            "This reads like a remark, and not like a request for work, so nothing was begun.".to_owned()
        }
        DeclineReason::TooSoon => {
            "This reads like a question, and of one person’s questions one an hour is answered. Nothing was begun; ask again later."
                .to_owned()
        }
        DeclineReason::NoAnswer(why) => format!(
            "This reads like a question, and no model could answer it: {}. Nothing was begun; ask again in an hour.",
            inline_text(why, 200)
        ),
    };
    frame_reply(format!("{why} `/help` lists what Countersign can be asked for."))
}

/// What a model says to a question, with the places that are there.
#[derive(Debug, Clone)]
pub struct AnswerCard {
    pub answer: String,
    pub places: Vec<CodeLink>,
    /// Places that it named and that are not there.
    pub dropped: usize,
    /// Short.
    pub commit: String,
}

/// A place in the code.
#[derive(Debug, Clone)]
pub struct CodeLink {
    pub path: String,
    pub lines: Option<(u64, u64)>,
    /// Ours, to that commit.
    pub url: String,
    pub what: String,
}

/// A question is answered.
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
            "It names no place in the code that is there, so take it with care.".to_owned()
        }
        rows => rows,
    };
    let dropped = match card.dropped {
        0 => String::new(),
        dropped => format!(
            " Left out: {} that {} not there.",
            count(dropped, "place", "places"),
            if dropped == 1 { "is" } else { "are" }
        ),
    };
    frame_reply(format!(
        "{}\n\n{places}\n\n<sub>A model’s answer, from what it was shown of commit `{}`; nothing was run, and nothing was \
         begun.{dropped}</sub>",
        clean(&card.answer, ANSWER_CHARS),
        card.commit
    ))
}

/// An answer to a request that is not there.
pub fn no_open_request_reply() -> OutboundBody {
    frame_reply(
        "There is no request of yours on this issue that waits for an answer: the last one is older than a day, asked nothing, \
         or work was begun since. Say all of it in one comment. `/help` lists the commands."
            .to_owned(),
    )
}

/// Whoever asked may not say the command for it.
pub fn route_not_allowed_reply(skill: &str, usage: &str, needs: Role) -> OutboundBody {
    frame_reply(format!(
        "This reads like a {}, and what that leads to takes {}. Nothing was begun; somebody who has it may write {}.",
        inline_code(skill, 64),
        access_name(needs),
        inline_code(usage, 40)
    ))
}

/// The settings have it that no free words are read.
pub fn routing_disabled_reply() -> OutboundBody {
    frame_reply("Requests in free words are not read here. `/help` lists the commands.".to_owned())
}

/// How the work stands because of which words begin nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ConflictingRunState {
    AtWork,
    /// It waits for a person.
    Asking,
    /// It was begun after the words were written, and has ended.
    Over,
}

/// Something else is at work on the issue, or was begun since.
pub fn route_busy_reply(workflow: &str, stands: ConflictingRunState) -> OutboundBody {
    let (is, how) = match stands {
        ConflictingRunState::AtWork => {
            ("is at work on this issue", "`/status` shows how it stands, `/stop` ends it")
        }
        ConflictingRunState::Asking => (
            "is at work on this issue",
            "It waits for a person: `/revise TEXT` sends it back with your words",
        ),
        ConflictingRunState::Over => {
            ("was begun on this issue since you wrote", "It has ended; if you still mean it, say it again")
        }
    };
    frame_reply(format!(
        "A run of {} {is}, so your words begin nothing new. {how}; `/help` lists what else can be said.",
        inline_code(workflow, 30)
    ))
}

/// The run that was to read the request could not.
pub fn route_halted_reply(why: &str) -> OutboundBody {
    frame_reply(format!(
        "The request could not be read, and nothing was begun. {} `/help` lists the commands.",
        inline_text(why, 400)
    ))
}

/// What a run says of the request it was begun for.
pub fn route_note(skill: &str, confidence: u16) -> String {
    let by = if confidence == 1000 { String::new() } else { format!(" ({})", confidence_text(confidence)) };
    format!("Begun for a request in free words, read as a “{}”{by}.", plain_line(skill, 64))
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
    if rows.is_empty() { String::new() } else { format!("\n\nWhat it leaves open:\n\n{}", rows.join("\n")) }
}

/// With the words by which it is answered, in place of choosing.
fn open_points_with_answer_line(card: &RouteCard) -> String {
    let how = "\n\nOr answer that within a day, and the request is read anew together with it:\n\n```\n/route answer: …\n```";
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
    format!("\n\nBrief skills of this repository that cannot be used:\n\n{}", rows.join("\n"))
}

fn frame_reply(text: String) -> OutboundBody {
    OutboundBody::frame(text)
}

#[cfg(test)]
mod tests {
    use super::{super::tests::*, *};

    #[test]
    fn whatever_was_asked_nothing_of_it_acts() {
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
        assert!(long.contains(" ä …\n```") && long.contains("put what is missing"), "{long}");
    }
}
