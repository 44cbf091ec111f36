//! Routing: classifies a request in free text and decides what to do with it.
//!
//! The module is pure: it parses the model's answer into a decision or an error. A confidence outside 0 to 1 is an
//! error and is not corrected.

mod question;
mod skills;

use std::collections::HashSet;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

pub use question::{ANSWER_RULES, CodeAnswer, CodeLocation, answer_schema, parse_code_answer};
pub use skills::{FILE_BYTES, FOLDER, MOST_SKILLS, SUFFIX, Skill, SkillFault, load_skills};

use self::skills::one_line;
use super::strip_fence;

/// Version of the routing prompt. Increasing it invalidates cached decisions.
pub const PROMPT_VERSION: u32 = 3;

/// Minimum confidence for starting a workflow without asking people. All confidences in this module are in thousandths.
pub const CLEAR_CONFIDENCE: u16 = 900;
const PROBABLE_CONFIDENCE: u16 = 700;
/// Minimum difference in confidence between the best and the second-best kind of work, in thousandths. If the
/// difference is smaller, people choose.
const CONFIDENCE_GAP: u16 = 100;
/// Confidence of a kind of work with a matching keyword, used if no model decided. It is below [`PROBABLE_CONFIDENCE`],
/// so that no workflow starts.
const KEYWORD_CONFIDENCE: u16 = 600;
const NO_KEYWORD_CONFIDENCE: u16 = 500;

/// Number of bytes kept from the start of a long request. [`TAIL_BYTES`] are kept from its end, and the middle is left
/// out.
const HEAD_BYTES: usize = 8 << 10;
const TAIL_BYTES: usize = 2 << 10;

/// Maximum number of skills whose descriptions the prompt shows in full. With more skills, all descriptions share
/// `DESCRIBED_CHARS` characters, and each description gets at least `LEAST_DESCRIBED` characters.
const FEW_SKILLS: usize = 4;
const DESCRIBED_CHARS: usize = 840;
const LEAST_DESCRIBED: usize = 60;

/// Maximum number of kinds of work offered to people. Also the maximum number of other kinds of work, and of open
/// questions, in a decision.
const MOST_OFFERED: usize = 3;

/// Intent of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RequestIntent {
    /// The person asks for work to be done.
    Work,
    /// The person asks how something works.
    Question,
    /// The text is neither a task nor a question.
    Chatter,
}

/// Method that produced a decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RoutingMethod {
    Model,
    /// A model's earlier answer to the same words was reused.
    Cache,
    /// Keywords decided, because no model was available or no model gave a valid answer.
    Keywords,
    /// The person named the kind of work explicitly.
    Named,
}

/// Decision on which kind of work a request asks for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoutingDecision {
    pub method: RoutingMethod,
    pub intent: RequestIntent,
    pub skill: Option<String>,
    pub confidence: u16,
    /// Other possible kinds of work with their confidences, most likely first.
    pub others: Vec<(String, u16)>,
    pub reasoning: String,
    /// Questions that the request does not answer.
    pub missing: Vec<String>,
}

/// Action that follows from a decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RoutingAction {
    Begin,
    /// The workflow starts, and people are told how to undo this.
    Probably,
    /// People are offered kinds of work to choose from.
    Offer,
    /// The question is answered, and no workflow starts.
    Answer,
    /// The request is declined, because it asks for no work.
    Decline,
}

impl RoutingDecision {
    /// Returns the action for this decision. If `confirm` is true, a workflow starts only if the person named the kind
    /// of work.
    pub fn routing_action(&self, confirm: bool) -> RoutingAction {
        let second = self.others.iter().map(|(_, confidence)| *confidence).max().unwrap_or(0);
        match (self.method, self.confidence) {
            (RoutingMethod::Named, _) => RoutingAction::Begin,
            (RoutingMethod::Keywords, _) => RoutingAction::Offer,
            _ if self.intent == RequestIntent::Question => RoutingAction::Answer,
            _ if self.intent == RequestIntent::Chatter => RoutingAction::Decline,
            _ if confirm || self.skill.is_none() || self.confidence < second + CONFIDENCE_GAP => {
                RoutingAction::Offer
            }
            (_, CLEAR_CONFIDENCE..) => RoutingAction::Begin,
            (_, PROBABLE_CONFIDENCE..) => RoutingAction::Probably,
            _ => RoutingAction::Offer,
        }
    }

    /// Returns the kinds of work from which people may choose, most likely first, with their confidences.
    pub fn offered_skills<'s>(&self, skills: &'s [Skill]) -> Vec<(&'s Skill, u16)> {
        let first = self.skill.iter().map(|name| (name, self.confidence));
        let named = first.chain(self.others.iter().map(|(name, confidence)| (name, *confidence)));
        let mut all: Vec<(&Skill, u16)> = named
            .filter_map(|(name, confidence)| Some((skills.iter().find(|s| s.name == *name)?, confidence)))
            .collect();
        let rest = skills.iter().filter(|skill| !all.iter().any(|(known, _)| known.name == skill.name));
        let rest: Vec<_> = rest.map(|skill| (skill, 0)).collect();
        all.extend(rest);
        all.sort_by_key(|(_, confidence)| std::cmp::Reverse(*confidence));
        all.truncate(MOST_OFFERED);
        all
    }
}

/// Shortens a long request for the prompt.
pub fn shorten_request(text: &str) -> String {
    let text = text.trim();
    if text.len() <= HEAD_BYTES + TAIL_BYTES {
        return text.to_owned();
    }
    let (head, rest) = text.split_at(text.floor_char_boundary(HEAD_BYTES));
    let tail = &rest[rest.ceil_char_boundary(rest.len() - TAIL_BYTES)..];
    format!("{head}\n[… {} bytes are left out …]\n{tail}", rest.len() - tail.len())
}

/// Returns the skill whose name is at the start of the request, and the rest of the request.
pub fn find_named_skill<'t, 's>(text: &'t str, skills: &'s [Skill]) -> Option<(&'s Skill, &'t str)> {
    let (word, rest) = text.trim().split_once(char::is_whitespace).unwrap_or((text.trim(), ""));
    let word = word.trim_matches(['`', ':', ',', '.']);
    let skill = skills.iter().find(|skill| skill.name.eq_ignore_ascii_case(word))?;
    Some((skill, rest.trim()))
}

/// Returns the text after `answer:` if the request starts with this prefix. Such a request answers an earlier open
/// question.
pub fn strip_answer_prefix(text: &str) -> Option<&str> {
    let (word, rest) = text.trim().split_once(':')?;
    word.trim_end().eq_ignore_ascii_case("answer").then_some(rest.trim())
}

/// Returns the decision for a kind of work that a person named.
pub fn decide_by_name(skill: &Skill) -> RoutingDecision {
    RoutingDecision {
        method: RoutingMethod::Named,
        intent: RequestIntent::Work,
        skill: Some(skill.name.clone()),
        confidence: 1000,
        others: Vec::new(),
        reasoning: String::new(),
        missing: Vec::new(),
    }
}

/// Decides by keywords and labels, without a model. The confidence is too low to start a workflow.
pub fn decide_by_keywords(text: &str, labels: &[String], skills: &[Skill]) -> RoutingDecision {
    let text = text.to_lowercase();
    let labels: HashSet<String> = labels.iter().map(|label| label.to_lowercase()).collect();
    let words: HashSet<&str> = text.split(|c: char| !c.is_alphanumeric()).collect();
    let fits = |skill: &Skill| {
        let name = skill.name.strip_suffix("-brief").unwrap_or(&skill.name);
        let mut known = name.split('-').chain(skill.keywords.iter().map(String::as_str));
        known.any(|word| words.contains(word)) || skill.labels.iter().any(|label| labels.contains(label))
    };
    let mut all: Vec<(String, u16)> = skills
        .iter()
        .map(|skill| {
            (skill.name.clone(), if fits(skill) { KEYWORD_CONFIDENCE } else { NO_KEYWORD_CONFIDENCE })
        })
        .collect();
    // The sort is stable: kinds with equal scores keep their order.
    all.sort_by_key(|(_, score)| std::cmp::Reverse(*score));
    let best = (!all.is_empty()).then(|| all.remove(0));
    let (skill, confidence) = best.map_or((None, NO_KEYWORD_CONFIDENCE), |(name, score)| (Some(name), score));
    RoutingDecision {
        method: RoutingMethod::Keywords,
        intent: RequestIntent::Work,
        skill,
        confidence,
        others: all,
        reasoning: String::new(),
        missing: Vec::new(),
    }
}

/// Rules of the answer's format, in words, for the prompt.
pub const ROUTE_RULES: &str = "{\"skill\": NAME or null, \"confidence\": 0.0 to 1.0, \"intent\": \"work\", \"question\" or \"chatter\", \
\"reasoning\": SENTENCE, \"others\": [{\"skill\": NAME, \"confidence\": …}], \"missing\": [QUESTION]}\n\n`skill` is the one kind that \
fits, or null. `confidence` is 0.90 and more for a clear match, from 0.70 for a probable one, less where it is unclear or several \
kinds are asked for. `intent` is \"work\" to do or find out something here, \"question\" to be told how something works, \"chatter\" \
otherwise. `others` are up to three more kinds, `missing` up to three questions that are left open.";

/// Returns the JSON Schema of the answer, for providers with structured output.
pub fn decision_schema(skills: &[Skill]) -> Value {
    let names: Vec<Value> = skills.iter().map(|skill| json!(skill.name)).collect();
    let name = json!({ "type": "string", "enum": names });
    let or_none: Vec<Value> = names.into_iter().chain([Value::Null]).collect();
    let (text, number) = (json!({ "type": "string" }), json!({ "type": "number" }));
    let other = json!({
        "type": "object",
        "properties": { "skill": name, "confidence": number },
        "required": ["skill", "confidence"],
        "additionalProperties": false,
    });
    json!({
        "type": "object",
        "properties": {
            "skill": { "type": ["string", "null"], "enum": or_none },
            "confidence": number,
            "intent": { "type": "string", "enum": ["work", "question", "chatter"] },
            "reasoning": text,
            "others": { "type": "array", "items": other },
            "missing": { "type": "array", "items": text },
        },
        "required": ["skill", "confidence", "intent", "reasoning", "others", "missing"],
        "additionalProperties": false,
    })
}

/// Describes the skills for the prompt. The descriptions are untrusted, because anyone with push access can write them.
/// If there are many skills, each description is shortened, because the prompt of every request contains all
/// descriptions.
pub fn describe_skills(skills: &[Skill]) -> String {
    let most = if skills.len() <= FEW_SKILLS {
        usize::MAX
    } else {
        (DESCRIBED_CHARS / skills.len()).max(LEAST_DESCRIBED)
    };
    let row = |skill: &Skill| format!("- `{}`: {}", skill.name, one_line(&skill.description, most));
    skills.iter().map(row).collect::<Vec<_>>().join("\n")
}

fn skill_names(skills: &[Skill]) -> String {
    skills.iter().map(|skill| format!("`{}`", skill.name)).collect::<Vec<_>>().join(", ")
}

/// Parses a model's answer into a decision.
///
/// # Errors
/// Returns a description of the mistake in the answer, worded for the model.
pub fn parse_decision(answer: &str, skills: &[Skill]) -> Result<RoutingDecision, String> {
    let text = strip_fence(answer);
    let value: Value = serde_json::from_str(text).map_err(|_| "the answer is not one JSON object")?;
    let Value::Object(object) = value else { return Err("the answer is not one JSON object".to_owned()) };
    let skill = match object.get("skill") {
        Some(Value::Null) => None,
        Some(Value::String(name)) => Some(known_skill_name(name, skills)?),
        _ => return Err("`skill` is missing, or neither a name nor null".to_owned()),
    };
    let confidence = parse_confidence(object.get("confidence"))?;
    let intent = match object.get("intent").and_then(Value::as_str) {
        Some("work") => RequestIntent::Work,
        Some("question") => RequestIntent::Question,
        Some("chatter") => RequestIntent::Chatter,
        _ => return Err("`intent` must be work, question or chatter".to_owned()),
    };
    let list = |key: &str| match object.get(key) {
        None | Some(Value::Null) => Ok(&[][..]),
        Some(Value::Array(rows)) => Ok(rows.as_slice()),
        Some(_) => Err(format!("`{key}` is not a list")),
    };
    let mut others: Vec<(String, u16)> = Vec::new();
    for row in list("others")? {
        let name = row.get("skill").and_then(Value::as_str).ok_or("a row of `others` names no skill")?;
        let other = (known_skill_name(name, skills)?, parse_confidence(row.get("confidence"))?);
        if Some(&other.0) != skill.as_ref() && !others.iter().any(|(known, _)| *known == other.0) {
            others.push(other);
        }
    }
    others.sort_by_key(|(_, confidence)| std::cmp::Reverse(*confidence));
    others.truncate(MOST_OFFERED);
    let missing = list("missing")?.iter().filter_map(Value::as_str).map(|text| one_line(text, 200));
    let missing = missing.filter(|text| !text.is_empty()).take(MOST_OFFERED).collect();
    let reasoning = one_line(object.get("reasoning").and_then(Value::as_str).unwrap_or_default(), 500);
    Ok(RoutingDecision {
        method: RoutingMethod::Model,
        intent,
        skill,
        confidence,
        others,
        reasoning,
        missing,
    })
}

fn known_skill_name(name: &str, skills: &[Skill]) -> Result<String, String> {
    let known = skills.iter().find(|skill| skill.name == name);
    // The message never repeats the invented name: the model reads it as ours, and a request may have injected it.
    known.map(|skill| skill.name.clone()).ok_or_else(|| {
        format!("it names a kind that is not there; the kinds are {}, or null for none", skill_names(skills))
    })
}

fn parse_confidence(value: Option<&Value>) -> Result<u16, String> {
    let number = value.and_then(Value::as_f64).filter(|number| (0.0..=1.0).contains(number));
    let number = number.ok_or("`confidence` is not a number from 0 to 1")?;
    // Rounds down, so that nothing reaches a higher band; `1e-6` makes 0.9 become 900.
    Ok((number * 1000.0 + 1e-6).floor() as u16)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn built_in_skills() -> Vec<Skill> {
        load_skills(&[], &["issue", "lld"]).0
    }

    fn parse_value(value: &Value) -> Result<RoutingDecision, String> {
        parse_decision(&value.to_string(), &built_in_skills())
    }

    fn model_answer(skill: &str, confidence: f64, others: &[(&str, f64)]) -> Value {
        let others: Vec<_> = others.iter().map(|(s, c)| json!({ "skill": s, "confidence": c })).collect();
        json!({ "skill": skill, "confidence": confidence, "intent": "work", "reasoning": "r", "others": others })
    }

    #[test]
    fn routing_action_depends_on_confidence_and_margin_over_the_second_skill() {
        for (confidence, others, lead) in [
            (0.90, vec![], RoutingAction::Begin),
            (1.0, vec![("bug-brief", 0.90)], RoutingAction::Begin),
            (0.95, vec![("bug-brief", 0.90)], RoutingAction::Offer),
            (0.89, vec![], RoutingAction::Probably),
            (0.8999, vec![], RoutingAction::Probably),
            (0.70, vec![("bug-brief", 0.60)], RoutingAction::Probably),
            (0.75, vec![("bug-brief", 0.70)], RoutingAction::Offer),
            (0.6999, vec![], RoutingAction::Offer),
            (0.0, vec![], RoutingAction::Offer),
        ] {
            let decision = parse_value(&model_answer("feature-brief", confidence, &others)).unwrap();
            assert_eq!(decision.routing_action(false), lead, "{confidence} {others:?}");
            assert_eq!(
                decision.routing_action(true),
                RoutingAction::Offer,
                "nothing begins unasked in that mode"
            );
        }
        let none = json!({ "skill": null, "confidence": 0.99, "intent": "work" });
        assert_eq!(parse_value(&none).unwrap().routing_action(false), RoutingAction::Offer);
        for (intent, lead) in [("question", RoutingAction::Answer), ("chatter", RoutingAction::Decline)] {
            let mut request = model_answer("bug-brief", 0.99, &[]);
            request["intent"] = json!(intent);
            assert_eq!(parse_value(&request).unwrap().routing_action(false), lead);
        }
        assert_eq!(decide_by_name(&built_in_skills()[0]).routing_action(true), RoutingAction::Begin);
    }

    #[test]
    fn routing_answer_is_parsed_or_refused_with_a_reason() {
        let good = model_answer("bug-brief", 0.92, &[("bug-brief", 0.9), ("lint-brief", 0.1)]);
        assert_eq!(
            parse_value(&good).unwrap_err(),
            "it names a kind that is not there; the kinds are `bug-brief`, `feature-brief`, `refactor-brief`, or null for none"
        );
        let good = model_answer("bug-brief", 0.92, &[("bug-brief", 0.9), ("feature-brief", 0.1)]);
        let decision = parse_value(&good).unwrap();
        assert_eq!((decision.confidence, decision.others.len()), (920, 1), "it is not its own rival");
        for fence in ["```json\n{}\n```", "```\n{}\n```", "  {}\n"] {
            assert_eq!(
                parse_decision(&fence.replace("{}", &good.to_string()), &built_in_skills()).as_ref(),
                Ok(&decision),
                "{fence}"
            );
        }
        for (key, value, why) in [
            ("confidence", json!(1.7), "`confidence` is not a number from 0 to 1"),
            ("confidence", json!(-0.1), "`confidence` is not"),
            ("confidence", json!("high"), "`confidence` is not"),
            ("confidence", json!("0.9"), "`confidence` is not"),
            ("confidence", json!(null), "`confidence` is not"),
            ("skill", json!("release-brief"), "it names a kind that is not there"),
            ("skill", json!(["bug-brief"]), "neither a name nor null"),
            ("intent", json!("WORK"), "`intent` must be"),
            ("others", json!("bug-brief"), "`others` is not a list"),
            ("others", json!([{ "skill": "bug-brief", "confidence": 2 }]), "`confidence` is not"),
        ] {
            let mut bad = good.clone();
            bad[key] = value;
            assert!(parse_value(&bad).unwrap_err().contains(why), "{bad}");
        }
        for bad in
            ["", "null", "[]", "Sure! {\"skill\": null}", "{}", "```json", "``````", "{\"skill\": NaN}"]
        {
            assert!(parse_decision(bad, &built_in_skills()).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn keyword_routing_offers_skills_and_never_starts_a_run() {
        for (text, best, score) in [
            ("There is a BUG in it", "bug-brief", KEYWORD_CONFIDENCE),
            ("refactor the parser", "refactor-brief", KEYWORD_CONFIDENCE),
            ("debug output, please", "bug-brief", NO_KEYWORD_CONFIDENCE),
            ("añade un modo oscuro 🌙", "bug-brief", NO_KEYWORD_CONFIDENCE),
            ("", "bug-brief", NO_KEYWORD_CONFIDENCE),
        ] {
            let decision = decide_by_keywords(text, &[], &built_in_skills());
            assert_eq!((decision.skill.as_deref(), decision.confidence), (Some(best), score), "{text}");
            assert_eq!(decision.routing_action(false), RoutingAction::Offer);
            assert_eq!(decision.offered_skills(&built_in_skills()).len(), 3);
        }
        let labelled: Vec<_> = built_in_skills()
            .into_iter()
            .map(|skill| Skill { labels: vec![skill.name.clone()], ..skill })
            .collect();
        let decision = decide_by_keywords("", &["Feature-Brief".to_owned()], &labelled);
        assert_eq!(
            (decision.skill.as_deref(), decision.confidence),
            (Some("feature-brief"), KEYWORD_CONFIDENCE)
        );
        let nothing = decide_by_keywords("a bug", &[], &[]);
        assert_eq!((nothing.skill.clone(), nothing.offered_skills(&[]).len()), (None, 0));
        assert_eq!(nothing.routing_action(false), RoutingAction::Offer);
    }

    #[test]
    fn shortened_request_keeps_its_beginning_and_end() {
        assert_eq!(shorten_request("  short 🎉 "), "short 🎉");
        let long = format!("begin{}end", "🎉".repeat(50_000));
        let short = shorten_request(&long);
        assert!(short.len() < HEAD_BYTES + TAIL_BYTES + 100, "{}", short.len());
        assert!(
            short.starts_with("begin🎉") && short.ends_with("🎉end") && short.contains("bytes are left out")
        );
    }

    #[test]
    fn routing_answer_must_start_with_prefix_and_colon() {
        assert_eq!(strip_answer_prefix(" Answer: On Linux.\n2: no"), Some("On Linux.\n2: no"));
        assert_eq!(
            (strip_answer_prefix("answer :"), strip_answer_prefix("the answer: 42")),
            (Some(""), None)
        );
        assert_eq!(
            (strip_answer_prefix("answer it"), strip_answer_prefix("bug-brief: answer: x")),
            (None, None)
        );
    }

    #[test]
    fn request_starting_with_a_skill_name_is_routed_without_a_model() {
        let skills = built_in_skills();
        let read = |text| find_named_skill(text, &skills).map(|(skill, rest)| (skill.name.as_str(), rest));
        assert_eq!(read("`Bug-Brief`: it\nbroke"), Some(("bug-brief", "it\nbroke")));
        assert_eq!(read("bug-brief"), Some(("bug-brief", "")));
        assert_eq!(read("the bug-brief please"), None);
    }
}
