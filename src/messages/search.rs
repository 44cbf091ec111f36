//! Texts about the outcome of a repository search. "Nothing found", "search failed" and "not searched" have different
//! sentences.

use crate::{
    github::outbound,
    types::{Timestamp, count},
};

/// Maximum number of characters shown of a topic.
const TOPIC_CHARS: usize = 120;

/// Returns a note saying that GitHub searched and found nothing.
pub fn nothing_found_note(topic: &str, stars: u32) -> String {
    format!(
        "nothing was found for “{}” among public repositories with at least {stars} stars",
        outbound::plain_line(topic, TOPIC_CHARS)
    )
}

/// Returns a note saying that no model planned the search, and why.
pub fn not_planned_note(why: &str) -> String {
    format!("searched with the topic's own words, because no model planned the search: {why}")
}

/// Returns a note saying that no model planned another search, and why.
pub fn no_further_search_note(why: &str) -> String {
    format!("stopped searching, because no model could plan another search: {why}")
}

/// Returns a note saying that a later search failed.
pub fn further_search_failed_note() -> String {
    "a later search failed, so the brief covers only earlier results; the server's log has the reason"
        .to_owned()
}

/// Returns notes about pages that were not read. Each page named in the request is listed with the reason; home pages
/// are only counted. The URLs of home pages are not shown, because they are untrusted text.
pub fn unread_pages_notes(refused: &[(String, String)], homes: usize) -> Vec<String> {
    let one = |(url, why): &(String, String)| {
        format!("the page {} was not read: {why}", outbound::plain_line(url, TOPIC_CHARS))
    };
    let mut all: Vec<String> = refused.iter().map(one).collect();
    if homes > 0 {
        all.push(format!(
            "{} not read: [fetch] does not allow the host, or the page has no text",
            count(homes, "home page was", "home pages were"),
        ));
    }
    all
}

/// Returns a note saying that GitHub did not search the repository's files.
pub fn files_not_searched_note(name: &str) -> String {
    format!(
        "only the README of {} was read, because GitHub did not search its files",
        outbound::plain_line(name, TOPIC_CHARS)
    )
}

/// Returns the reason for ending a run whose search failed.
pub fn search_failed_reason(why: &str) -> String {
    format!("The search failed: {why}")
}

/// Returns the reason why a search waits for GitHub's rate limit.
pub fn search_rate_limit_reason(until: Timestamp) -> String {
    format!("GitHub limits searches until {until}; the run resumes then")
}
