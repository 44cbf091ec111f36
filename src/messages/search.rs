//! How a search for other people's repositories came out, where it found none. The three are never taken for each other.

use crate::{github::outbound, types::Timestamp};

/// Longer ones are cut.
const TOPIC_CHARS: usize = 120;

/// It was asked and answered: there is none.
pub fn nothing_found(topic: &str, stars: u32) -> String {
    format!(
        "nothing was found for “{}” among public repositories with {stars} stars and more",
        outbound::line(topic, TOPIC_CHARS)
    )
}

/// No model said what to search for.
pub fn not_planned(why: &str) -> String {
    format!("searched for with the topic's own words, since no model planned the searches: {why}")
}

/// GitHub does not search the files of a repository for us.
pub fn files_not_searched(name: &str) -> String {
    format!(
        "of {} only the README was read, since GitHub did not search its files",
        outbound::line(name, TOPIC_CHARS)
    )
}

/// It was not answered.
pub fn search_failed(why: &str) -> String {
    format!("The search failed: {why}")
}

/// It was not asked.
pub fn searches_limited(until: Timestamp) -> String {
    format!("GitHub limits searches until {until}; the run goes on then")
}
