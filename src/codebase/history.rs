//! Selects history for a drafter: related earlier designs, and findings that were fixed in several earlier designs.
//!
//! The functions are pure: the same stored designs and findings give the same texts. The output quotes models and
//! untrusted people, and the prompt labels the output as quoted text.

use std::{cmp::Reverse, collections::BTreeSet, iter};

use serde::{Deserialize, Serialize};

use super::{bm25, tree::file_name, words};
use crate::{
    documents::{self, DocumentSummary, is_invisible},
    store::{PastDesign, PastFinding},
    types::{IssueNo, Verdict},
};

/// Texts of the history that is shown to a drafter.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct History {
    /// Rules derived from findings that were fixed in the designs of several issues, one text per rule.
    pub rules: Vec<String>,
    /// Related earlier designs, one text per design, most related first.
    pub designs: Vec<String>,
    /// Outcomes of pushed changes, one text per outcome, newest first.
    #[serde(default)]
    pub lessons: Vec<String>,
}

/// Maximum number of rules shown to a drafter.
const MOST_RULES: usize = 8;
const MOST_DESIGNS: usize = 4;

/// Minimum number of issues whose designs must have had a finding before the finding becomes a rule. Several runs of
/// the same issue count once.
const PATTERN: usize = 3;

/// Minimum share of common words (Dice coefficient) for two findings to be treated as the same finding.
const ALIKE: f64 = 0.5;

/// Minimum score of a design that is treated as related to the issue.
const LEAST: f64 = 2.5;

/// Minimum rarity (inverse document frequency) of a shared word that counts towards the score.
const TELLING: f64 = 1.0;
const SHORT: usize = 3;

/// Score added for each file that is changed by the design and also named in the issue. One such file outweighs several
/// shared words.
const SAME_FILE: f64 = 8.0;

/// Maximum number of characters quoted from a text.
const QUOTED: usize = 300;

/// Maximum number of files read from a design's table of files.
const MOST_FILES: usize = 50;

/// Selects history by the words and paths in an issue's text. `alone` returns whether only one file in the repository
/// has a given name; such a name identifies the file without its folder.
pub fn select_history(
    issue: IssueNo,
    text: &str,
    designs: &[PastDesign],
    findings: &[PastFinding],
    alone: impl Fn(&str) -> bool,
) -> History {
    let touching = related_designs(issue, text, designs, &alone);
    let designs = touching.iter().take(MOST_DESIGNS).map(|touching| touching.describe(issue, findings));
    History { rules: recurring_rules(findings), designs: designs.collect(), lessons: Vec::new() }
}

/// An earlier design, and the files and words that it shares with the issue.
struct RelatedDesign<'p> {
    past: &'p PastDesign,
    gist: DocumentSummary,
    /// Files that the design changes and that the issue names.
    files: Vec<String>,
    words: Vec<String>,
    score: f64,
}

/// Returns the related designs, best first. Earlier designs of the same issue come before the designs of other issues.
fn related_designs<'p>(
    issue: IssueNo,
    text: &str,
    designs: &'p [PastDesign],
    alone: &impl Fn(&str) -> bool,
) -> Vec<RelatedDesign<'p>> {
    let wanted = words::word_set(text);
    let mut seen = BTreeSet::new();
    // Only the newest run of each issue counts.
    let newest = designs.iter().filter(|past| seen.insert(past.issue));
    let read = newest.map(|past| {
        let mut gist = documents::summarize(&past.text);
        gist.paths.truncate(MOST_FILES);
        let words = words::word_set(&format!("{}\n{}\n{}", gist.title, gist.goal, gist.paths.join("\n")));
        (past, gist, words)
    });
    let read: Vec<_> = read.collect();
    let rarity = |word: &String| {
        let having = read.iter().filter(|(_, _, words)| words.contains(word)).count();
        bm25::inverse_document_frequency(read.len(), u32::try_from(having).unwrap_or(u32::MAX))
    };
    let touching = read.iter().map(|(past, gist, words)| {
        let shared = words.intersection(&wanted).filter(|word| word.len() > SHORT);
        let mut shared: Vec<(&String, f64)> = shared.map(|word| (word, rarity(word))).collect();
        shared.retain(|(_, rarity)| *rarity >= TELLING);
        shared.sort_by(|(left, a), (right, b)| b.total_cmp(a).then_with(|| left.cmp(right)));
        let files: Vec<String> =
            gist.paths.iter().filter(|path| mentions_path(text, path, alone)).cloned().collect();
        let score = shared.iter().map(|(_, worth)| worth).sum::<f64>() + SAME_FILE * files.len() as f64;
        let words = shared.into_iter().map(|(word, _)| word.clone()).collect();
        RelatedDesign { past, gist: gist.clone(), files, words, score }
    });
    let own = |touching: &RelatedDesign<'_>| touching.past.issue == issue;
    let mut touching: Vec<_> = touching.filter(|touching| own(touching) || touching.score >= LEAST).collect();
    touching.sort_by(|a, b| {
        let order = own(b).cmp(&own(a)).then_with(|| b.score.total_cmp(&a.score));
        order.then_with(|| b.past.issue.cmp(&a.past.issue))
    });
    touching
}

/// Returns whether the text names this path, or an end of the path that identifies the file.
fn mentions_path(text: &str, path: &str, alone: impl Fn(&str) -> bool) -> bool {
    let part = |c: char| c.is_alphanumeric() || "_-/".contains(c);
    let named = |name: &str| {
        text.match_indices(name).any(|(at, _)| {
            let before = text[..at].chars().next_back().is_some_and(part);
            !before && !text[at + name.len()..].starts_with(part)
        })
    };
    let telling = |end: &&str| end.contains('/') || end.contains('.') && alone(end);
    let ends = path.match_indices('/').map(|(at, _)| &path[at + 1..]).filter(telling);
    text.contains(file_name(path)) && iter::once(path).chain(ends).any(named)
}

impl RelatedDesign<'_> {
    fn describe(&self, issue: IssueNo, findings: &[PastFinding]) -> String {
        let of = self.past.issue;
        let judged = match (self.past.approved, self.past.verdict) {
            (true, Verdict::Approved) => "Approved".to_owned(),
            (true, verdict) => format!("Accepted though the review said {verdict}"),
            (false, verdict) => format!("Of an earlier run of this issue; the review said {verdict}"),
        };
        let mut text = format!("## #{of} {}\n\n{judged}.\n", quote_line(&self.gist.title));
        if !self.files.is_empty() {
            text.push_str(&format!(
                "It changes files that the issue names: {}.\n",
                abbreviate_list(&self.files)
            ));
        } else if !self.words.is_empty() {
            text.push_str(&format!("It shares words with the issue: {}.\n", abbreviate_list(&self.words)));
        }
        // A change has no section with its goal.
        if !self.gist.goal.is_empty() {
            let (paths, goal) = (abbreviate_list(&self.gist.paths), quote_line(&self.gist.goal));
            text.push_str(&format!("Files: {paths}.\nGoal: {goal}\n"));
        }
        if of == issue {
            for past in findings.iter().filter(|past| past.issue == issue).take(10) {
                let (status, title) = (&past.finding.status, quote_line(&past.finding.title));
                text.push_str(&format!(
                    "- found then, at {}, {status}: {title}\n",
                    quote_line(&past.finding.place)
                ));
            }
        }
        text + "\n"
    }
}

/// A group of similar findings about the same section of a document.
struct RecurringFinding<'p> {
    section: String,
    words: BTreeSet<String>,
    newest: &'p PastFinding,
    issues: BTreeSet<IssueNo>,
}

/// Returns the rules for findings that were fixed in the designs of at least [`PATTERN`] issues, most frequent first.
fn recurring_rules(findings: &[PastFinding]) -> Vec<String> {
    let mut patterns: Vec<RecurringFinding<'_>> = Vec::new();
    // Unfixed findings were waived by a person, so they make no rule.
    for past in findings.iter().filter(|past| past.approved && past.finding.status == "fixed") {
        let section = finding_section(&past.finding.place);
        let words = significant_words(&past.finding.title);
        let same = |pattern: &&mut RecurringFinding<'_>| {
            pattern.section == section && are_similar(&pattern.words, &words)
        };
        match patterns.iter_mut().find(same) {
            Some(pattern) => drop(pattern.issues.insert(past.issue)),
            None => {
                patterns.push(RecurringFinding { section, words, newest: past, issues: [past.issue].into() })
            }
        }
    }
    patterns.retain(|pattern| pattern.issues.len() >= PATTERN);
    patterns.sort_by_key(|pattern| Reverse(pattern.issues.len()));
    patterns.iter().take(MOST_RULES).map(describe_recurring_finding).collect()
}

fn describe_recurring_finding(pattern: &RecurringFinding<'_>) -> String {
    let (times, finding) = (pattern.issues.len(), &pattern.newest.finding);
    let issues: Vec<String> = pattern.issues.iter().rev().map(|issue| format!("#{issue}")).collect();
    format!(
        "- In {times} designs ({}), section “{}”: {}. {}\n",
        abbreviate_list(&issues),
        pattern.section,
        quote_line(&finding.title).trim_end_matches('.'),
        quote_line(&finding.detail)
    )
}

/// Returns the title of the section to which a finding's location refers.
fn finding_section(place: &str) -> String {
    let place = place.trim().trim_matches('`').trim_start_matches(['§', '#', ' ']).to_lowercase();
    let bare = place.strip_prefix("section ").unwrap_or(&place);
    let word = bare.split([' ', ',', '(', ':']).next().unwrap_or(bare).trim_end_matches('.');
    let titled = |number: &str| documents::lld::section_title(number).unwrap_or(number).to_lowercase();
    let number = word.split('.').all(|part| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit()));
    match word {
        _ if word.starts_with("req-") => titled("3"),
        _ if number && word.len() == 3 && !word.contains('.') => titled("10.1"),
        _ if bare.contains('/') => titled("2.1"),
        _ if number => titled(word),
        _ => quote_line(bare),
    }
}

/// Returns the words of a title without names, paths and numbers, because those are specific to one document.
fn significant_words(title: &str) -> BTreeSet<String> {
    let plain = |word: &&str| word.trim_end_matches([',', ':', '.']).chars().all(char::is_alphabetic);
    let mut words = words::word_set(&title.split_whitespace().filter(plain).collect::<Vec<_>>().join(" "));
    words.retain(|word| word.len() > SHORT);
    // If nothing is left, compare the whole title.
    if words.is_empty() { BTreeSet::from([title.trim().to_lowercase()]) } else { words }
}

fn are_similar(a: &BTreeSet<String>, b: &BTreeSet<String>) -> bool {
    let common = a.intersection(b).count() as f64;
    2.0 * common / (a.len() + b.len()) as f64 >= ALIKE && (common >= 2.0 || a == b)
}

/// Joins the first ten names, and appends the number of remaining names.
fn abbreviate_list(names: &[String]) -> String {
    const MOST: usize = 10;
    let more = names.len().saturating_sub(MOST);
    let some = names.iter().take(MOST).map(|name| quote_line(name)).collect::<Vec<_>>().join(", ");
    if more == 0 { some } else { format!("{some} and {more} more") }
}

/// Joins the lines of a text, removes invisible characters and truncates the result to [`QUOTED`] characters.
fn quote_line(text: &str) -> String {
    let shows = |c: &char| !is_invisible(*c) && (c.is_whitespace() || !c.is_control());
    let seen: String = text.chars().filter(shows).collect();
    let line = seen.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(QUOTED) {
        Some((at, _)) => format!("{}…", &line[..at]),
        None => line,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::FindingRow;

    fn design(issue: u64, title: &str, path: &str) -> PastDesign {
        let text = format!(
            "# {issue} - Feature: {title}\n\n## 1. Context & Goal\nIt was slow.\n\n### 2.1 Files Changed\n\n\
             | File | Change Type | Description |\n|---|---|---|\n| `{path}` | Modify | x |\n"
        );
        PastDesign { issue: IssueNo(issue), verdict: Verdict::Approved, approved: true, text }
    }

    fn found(issue: u64, place: &str, title: &str, status: &str) -> PastFinding {
        let finding = FindingRow {
            id: "F1".into(),
            round: 1,
            severity: "high".into(),
            place: place.into(),
            title: title.into(),
            detail: "Say what is observed.".into(),
            status: status.into(),
            why: String::new(),
        };
        PastFinding { run: issue, issue: IssueNo(issue), approved: true, finding }
    }

    fn selected_titles(text: &str, designs: &[PastDesign]) -> Vec<String> {
        let history = select_history(IssueNo(9), text, designs, &[], |name| name != "lib.rs");
        history.designs.iter().map(|text| text.lines().next().unwrap_or_default().to_owned()).collect()
    }

    #[test]
    fn past_designs_are_found_by_shared_files_and_words() {
        let designs = [
            design(5, "Sort the words of a report", "src/report.rs"),
            design(4, "Colour on terminals", "src/terminal.rs"),
            design(3, "Count lines", "src/counting.rs"),
            design(2, "Read standard input", "src/input.rs"),
            design(1, "Translate messages", "src/messages.rs"),
        ];
        assert_eq!(
            selected_titles("Colour of words in src/report.rs", &designs)[0],
            "## #5 Sort the words of a report"
        );
        assert_eq!(
            selected_titles("Bad colours where terminals are dark", &designs),
            ["## #4 Colour on terminals"]
        );
        assert_eq!(selected_titles("Faster start", &designs), [""; 0]);
        assert_eq!(selected_titles("", &[]), [""; 0]);
        let whole = select_history(IssueNo(9), "src/input.rs", &designs, &[], |_| false);
        insta::assert_snapshot!(whole.designs[0], @r"
        ## #2 Read standard input

        Approved.
        It changes files that the issue names: src/input.rs.
        Files: src/input.rs.
        Goal: It was slow.
        ");
    }

    #[test]
    fn path_is_mentioned_if_the_text_contains_it_or_an_unambiguous_suffix_of_it() {
        let names = |text: &str, path: &str| mentions_path(text, path, |name| name != "lib.rs");
        assert!(names("In src/lib.rs, please", "src/lib.rs") && names("see `a/lib.rs`.", "src/a/lib.rs"));
        assert!(names("in report.rs", "src/report.rs") && !names("in lib.rs", "src/a/lib.rs"));
        assert!(!names("in old/report.rs", "src/report.rs") && !names("run it", "bin/run"));
        assert!(!names("in report.rs_old", "src/report.rs"));
    }

    #[test]
    fn quote_line_drops_invisible_characters() {
        assert_eq!(quote_line("a\u{202E}b\u{200B}\u{7}\n c\u{2028}d"), "ab c d");
    }

    #[test]
    fn history_lists_earlier_runs_of_the_same_issue_first() {
        let own =
            PastDesign { approved: false, verdict: Verdict::Revise, ..design(9, "Anything", "src/any.rs") };
        let designs = [design(4, "Colour on terminals", "src/terminal.rs"), own];
        let history = select_history(
            IssueNo(9),
            "Colour terminals, src/terminal.rs",
            &designs,
            &[found(9, "3", "x y z", "open")],
            |_| false,
        );
        let judged = "Of an earlier run of this issue; the review said REVISE.";
        assert!(history.designs[0].contains(judged), "{history:?}");
        assert!(history.designs[0].contains("- found then, at 3, open: x y z"), "{history:?}");
    }

    #[test]
    fn finding_fixed_in_three_approved_designs_becomes_a_prompt_rule() {
        let title = "Requirement 2 of `read()` names no exit status";
        let mut findings = vec![
            found(4, "Requirements", title, "fixed"),
            found(3, "REQ-1", "The exit status is not named in requirement REQ-7", "fixed"),
            PastFinding { run: 30, ..found(3, "3", title, "fixed") },
            found(2, "2.1", title, "fixed"),
            found(1, "3", "Something else about scenarios", "fixed"),
        ];
        assert_eq!(recurring_rules(&findings), [""; 0], "only two issues have it in this section");
        let third = || found(1, "section 3", "Requirement 14 names no exit status", "fixed");
        findings.push(PastFinding { approved: false, ..third() });
        assert_eq!(recurring_rules(&findings), [""; 0], "the third design was not approved");
        for waived in ["open", "dismissed"] {
            findings.push(found(1, "section 3", "Requirement 14 names no exit status", waived));
        }
        assert_eq!(recurring_rules(&findings), [""; 0], "the third finding was not fixed");
        findings.push(third());
        assert_eq!(
            recurring_rules(&findings),
            [
                "- In 3 designs (#4, #3, #1), section “requirements”: Requirement 2 of `read()` names no exit status. Say what is \
              observed.\n"
            ]
        );
    }
}
