//! How a search for other people's repositories came out, where it found none. The three are never taken for each other.

use crate::{
    github::outbound,
    types::{Timestamp, count},
};

/// Longer ones are cut.
const TOPIC_CHARS: usize = 120;

/// It was asked and answered: there is none.
pub fn nothing_found_note(topic: &str, stars: u32) -> String {
    format!(
        "nothing was found for “{}” among public repositories with {stars} stars and more",
        outbound::plain_line(topic, TOPIC_CHARS)
    )
}

/// No model said what to search for.
pub fn not_planned_note(why: &str) -> String {
    format!("searched for with the topic's own words, since no model planned the searches: {why}")
}

/// No model said what else to search for.
pub fn no_further_search_note(why: &str) -> String {
    format!("searched no further, since no model could be asked for what: {why}")
}

/// One that was to go deeper.
pub fn further_search_failed_note() -> String {
    "a further search failed, and the brief is of what was found before; the server's log has the reason"
        .to_owned()
}

/// Pages that were named by whoever asked and not read, each with why; and how many home pages were not, whose addresses are words
/// of strangers.
pub fn unread_pages_notes(refused: &[(String, String)], homes: usize) -> Vec<String> {
    let one = |(url, why): &(String, String)| {
        format!("the page {} was not read: {why}", outbound::plain_line(url, TOPIC_CHARS))
    };
    let mut all: Vec<String> = refused.iter().map(one).collect();
    if homes > 0 {
        all.push(format!(
            "{} of what was found {} not read, for [fetch] does not name the host, or no text came from there",
            count(homes, "home page", "home pages"),
            if homes == 1 { "was" } else { "were" }
        ));
    }
    all
}

/// GitHub does not search the files of a repository for us.
pub fn files_not_searched_note(name: &str) -> String {
    format!(
        "of {} only the README was read, since GitHub did not search its files",
        outbound::plain_line(name, TOPIC_CHARS)
    )
}

/// It was not answered.
pub fn search_failed_reason(why: &str) -> String {
    format!("The search failed: {why}")
}

/// It was not asked.
pub fn search_rate_limit_reason(until: Timestamp) -> String {
    format!("GitHub limits searches until {until}; the run goes on then")
}
