//! The rubric of a good issue, applied to a rough idea. A good issue has a title with a verb, criteria that can be
//! answered yes or no, and a scope. The paths in the issue exist. The issue has an example, and it names a command to
//! run or an output to inspect that shows the result.
//!
//! The rules are heuristics for English. Each rule reports only clear cases, because people ignore a check that objects
//! to good text.

use serde::{Deserialize, Serialize};

use super::parse::{AcceptanceCriterion, items_in_section};
use crate::documents::{FileTree, lld::find_paths, markdown, quotable_path, shorten, truncate};

/// Parts of the rubric, most important first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RubricPart {
    Criteria,
    Scope,
    Determinism,
    Signal,
    Paths,
    Title,
}

/// A part of the rubric that an idea lacks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RubricGap {
    pub part: RubricPart,
    /// Description of the gap, for models and people.
    pub said: String,
    /// Question for a person, and the answer that applies by default. `None` if a model can fill the gap without
    /// asking.
    pub question: Option<(String, String)>,
}

/// Returns the gaps of an idea, at most one per part.
pub fn find_gaps(name: &str, body: &str, tree: &dyn FileTree) -> Vec<RubricGap> {
    let mut gaps = Vec::new();
    let mut say = |part, said: String, question: Option<(String, &str)>| {
        gaps.push(RubricGap {
            part,
            said,
            question: question.map(|(asked, default)| (asked, default.to_owned())),
        });
    };
    let criteria = find_criteria(body);
    let by_drafter = "The drafter words a check, and whoever approves it judges it.";
    if criteria.is_empty() {
        let asked = "How would one see that it is done? Name what can be answered yes or no.";
        say(
            RubricPart::Criteria,
            "no acceptance criterion was found".into(),
            Some((asked.into(), by_drafter)),
        );
    } else if let Some((criterion, word)) = criteria.iter().find_map(|c| Some((c, find_vague_word(&c.text)?)))
    {
        let quoted = truncate(&criterion.text, 120);
        let asked = format!("“{quoted}”: what would one look at or measure to say yes or no to “{word}”?");
        say(
            RubricPart::Criteria,
            format!("`{word}` in a criterion cannot be answered yes or no"),
            Some((asked, by_drafter)),
        );
    }
    if !has_any_word(body, LIMITS) {
        let asked = "What is not part of this?";
        let default = "Nothing but what the issue says; all that it does not mention stays as it is.";
        say(RubricPart::Scope, "nothing says what is out of scope".into(), Some((asked.into(), default)));
    }
    if !has_example(body) {
        let asked = "Which example besides the usual case shows it, with its input and its result?";
        let default = "The drafter makes one up.";
        say(
            RubricPart::Determinism,
            "there is no example with an exact input and result".into(),
            Some((asked.into(), default)),
        );
    }
    if !has_test_signal(body) {
        let asked = "What shows that it works: a command, a test, an output?";
        say(
            RubricPart::Signal,
            "nothing says how one sees that it works".into(),
            Some((asked.into(), "A new automated test.")),
        );
    }
    let strays = find_paths(body, tree);
    if let Some(path) =
        strays.iter().find(|path| !tree.is_file(path) && !tree.is_dir(path.trim_end_matches('/')))
    {
        let shown = quotable_path(path);
        let question = tree.nearest_paths(path).first().map(|near| {
            let near = quotable_path(near);
            (
                format!("`{shown}` does not exist. Which file is meant, or is it to be made?"),
                format!("`{near}` is meant."),
            )
        });
        let question = question.as_ref().map(|(asked, default)| (asked.clone(), default.as_str()));
        say(RubricPart::Paths, format!("`{shown}` does not exist"), question);
    }
    if classify_title(name) == TitleOpening::None {
        // The drafter can fix the title from the text, so nobody is asked.
        say(RubricPart::Title, "the title does not say with a verb what is to be done".into(), None);
    }
    gaps
}

/// Returns the pieces of text that read like acceptance criteria. List items under a heading for criteria are
/// preferred. Without such a heading, all list items are used; without list items, sentences with words such as "must".
fn find_criteria(body: &str) -> Vec<AcceptanceCriterion> {
    const DEMANDS: &str = "must/should/shall/has to/have to/needs to/never/always";
    const WANTED: &[&str] =
        &["accept", "criteri", "expected", "require", "want", "would like", "must", "done"];
    let outline = markdown::parse_outline(body);
    let wanted = |title: &str| shorten::has_word_beginning(title, WANTED);
    let under =
        |at: usize| outline.headings.iter().rfind(|h| h.range.start < at).is_some_and(|h| wanted(&h.text));
    let all: Vec<_> = items_in_section(&outline, &(0..body.len())).collect();
    let listed: Vec<_> = all.iter().filter(|item| under(item.range.start)).collect();
    let chosen = if listed.is_empty() { all.iter().collect() } else { listed };
    let item = |(item, number): (&&&markdown::MarkdownListItem, usize)| AcceptanceCriterion {
        id: format!("AC-{number}"),
        text: body[item.range.clone()].trim().trim_start_matches(['-', '*', '+', ' ']).to_owned(),
        range: item.range.clone(),
    };
    let found: Vec<AcceptanceCriterion> = chosen.iter().zip(1..).map(item).collect();
    if !found.is_empty() {
        return found;
    }
    let mut from = 0;
    let mut sentences = Vec::new();
    for (at, c) in body.char_indices().chain([(body.len(), '\n')]) {
        let ends = c == '\n' || (matches!(c, '.' | '!' | '?') && body[at + 1..].starts_with([' ', '\n']));
        if ends {
            let sentence = &body[from..at];
            if has_any_word(sentence, DEMANDS) && !outline.code_blocks.iter().any(|b| b.range.contains(&from))
            {
                let id = format!("AC-{}", sentences.len() + 1);
                sentences.push(AcceptanceCriterion { id, text: sentence.trim().to_owned(), range: from..at });
            }
            from = (at + 1).min(body.len());
        }
    }
    sentences
}

/// Words with which a text limits its scope.
const LIMITS: &str = "out of scope/not/no/don't/doesn't/without/only/stays/stay/keep/keeps/unchanged/except/\
    non-goal/non-goals/never/nothing/but";

/// Returns the first vague word, such as "fast", that makes it hard to answer a criterion with yes or no. Returns
/// `None` if a number, code or quotation makes the text precise.
pub(super) fn find_vague_word(text: &str) -> Option<&'static str> {
    const VAGUE: &str = "fast/faster/quick/quickly/slow/properly/appropriate/appropriately/reasonable/reasonably/\
        user-friendly/intuitive/intuitively/easy/easily/robust/robustly/efficient/efficiently/\
        better/nice/nicely/graceful/gracefully/sensible/sensibly/etc/and so on/as needed/\
        as expected/works/work well/seamless/seamlessly/smooth/smoothly/good";
    let measured = text.chars().any(|c| c.is_ascii_digit()) || text.contains(['`', '"', '“']);
    VAGUE.split('/').find(|word| has_word(text, word)).filter(|_| !measured)
}

/// Returns whether the text seems to have an example with an exact input or result.
pub(super) fn has_example(text: &str) -> bool {
    const FIXED: &str = "seed/sorted/no clock/no network/same order";
    text.contains('`') || text.chars().any(|c| c.is_ascii_digit()) || has_any_word(text, FIXED)
}

/// Returns whether the text names something that a test could run or inspect, such as a command or an output.
pub(super) fn has_test_signal(text: &str) -> bool {
    const SEEN: &str = "test/tests/tested/run/runs/print/prints/printed/output/outputs/show/shows/return/returns/\
        exit/exits/status/command/see/log/logs/error/message/benchmark";
    text.contains('`') || has_any_word(text, SEEN)
}

/// Classification of the first word of a title.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TitleOpening {
    Verb,
    /// A word that is not in our lists. It may be a verb, because the list of verbs is incomplete.
    Unknown,
    None,
}

pub(super) fn classify_title(title: &str) -> TitleOpening {
    const VERBS: &str = "accept add adopt allow announce apply archive attach audit avoid ban begin block build bump cache \
        cancel change check clarify clean close collect compare compress compute configure convert copy count create cut \
        debounce decode deduplicate define delay delete deny deprecate describe detect disable display do document download \
        drop emit enable encode encrypt end enforce ensure escape expire explain export expose extend extract fail fetch \
        filter find finish fix flag flush follow force format forbid generate give group guard handle hide highlight honor \
        honour ignore implement import improve include index inform inline insert install introduce invalidate join keep \
        kill lazily let limit link list load localize lock log lower make map mark measure memoize merge migrate mock move \
        name normalize notify offer omit open optimize order page paginate parallelize parse pass persist pin port preserve \
        prevent print process protect prove provide prune publish push put raise read rebuild record redact reduce refactor \
        refuse register reject release reload remember remove rename render reorder replace report require reset resolve \
        respect restart restore restrict retry return reuse revert rewrite rotate round run sanitize save say scan schedule \
        search select send separate set share shorten show simplify skip sort specify speed split start stop store stream \
        strip summarize support suppress surface switch sync tell terminate test throttle tidy track translate treat trim \
        truncate turn unify update upgrade upload use validate verify wait warn wrap write";
    const NONE: &str = "a an the this that these those it its it's i we you they my our there when where why how \
        what which who if is are was were can could should would will does did bug feature idea \
        question wish problem issue some no not in on for with";
    let first = title.split_whitespace().next().unwrap_or_default();
    let word = first.trim_matches(|c: char| !c.is_alphanumeric()).to_lowercase();
    match word.as_str() {
        "" => TitleOpening::None,
        word if VERBS.split_whitespace().any(|verb| verb == word) => TitleOpening::Verb,
        word if NONE.split(' ').any(|none| none == word) || first.ends_with(':') => TitleOpening::None,
        _ => TitleOpening::Unknown,
    }
}

fn has_any_word(text: &str, words: &'static str) -> bool {
    words.split('/').any(|word| has_word(text, word))
}

/// Returns whether the text contains this word, ignoring case.
fn has_word(text: &str, word: &str) -> bool {
    let text = text.to_lowercase().replace('’', "'");
    let part = |c: char| c.is_alphanumeric() || c == '-';
    text.match_indices(word)
        .any(|(at, _)| !text[..at].ends_with(part) && !text[at + word.len()..].starts_with(part))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::documents::lld::tests::DesignTestTree;

    fn missing_parts(title: &str, body: &str) -> Vec<RubricPart> {
        find_gaps(title, body, &DesignTestTree).into_iter().map(|gap| gap.part).collect()
    }

    #[test]
    fn rough_idea_has_gaps_in_five_rubric_parts() {
        let found = find_gaps("The weeks", "It would be cool to have weeks in the sums.", &DesignTestTree);
        let parts: Vec<RubricPart> = found.iter().map(|gap| gap.part).collect();
        assert_eq!(
            parts,
            [
                RubricPart::Criteria,
                RubricPart::Scope,
                RubricPart::Determinism,
                RubricPart::Signal,
                RubricPart::Title
            ]
        );
        assert_eq!(found.iter().filter(|gap| gap.question.is_some()).count(), 4, "the drafter words a title");
    }

    #[test]
    fn sample_issues_have_no_rubric_gaps() {
        for text in [
            include_str!("../../../fixtures/sample/issues/1.md"),
            include_str!("../../../fixtures/sample/issues/2.md"),
            include_str!("../../../fixtures/sample/issues/3.md"),
        ] {
            let (title, body) = text.split_once('\n').unwrap();
            assert_eq!(missing_parts(title.trim_start_matches("# "), body), [], "{title}");
        }
    }

    #[test]
    fn vague_word_is_reported_unless_a_number_makes_it_precise() {
        assert_eq!(find_vague_word("It is fast"), Some("fast"));
        assert_eq!(find_vague_word("It answers fast, in 200 ms"), None);
        assert_eq!(find_vague_word("Errors are handled gracefully"), Some("gracefully"));
        assert_eq!(find_vague_word("The breakfast is not served"), None);
        let found = find_gaps("Add it", "- it works, etc.\n- `x` prints 1, not 2", &DesignTestTree);
        let asked = &found[0].question.as_ref().unwrap().0;
        assert!(found[0].part == RubricPart::Criteria && asked.contains("“it works, etc.”"), "{found:?}");
    }

    #[test]
    fn path_missing_from_the_repository_raises_a_question() {
        let found = find_gaps("Add it", "- `src/lob.rs` must print 1, not 2", &DesignTestTree);
        assert_eq!(found.len(), 1, "{found:?}");
        let question = found[0].question.as_ref().unwrap();
        assert_eq!(question.1, "`src/lib.rs` is meant.");
    }

    #[test]
    fn titles_that_open_with_a_verb_are_recognized() {
        assert_eq!(classify_title("Report time by week"), TitleOpening::Verb);
        assert_eq!(classify_title("Bug: it crashes"), TitleOpening::None);
        assert_eq!(classify_title("Yodel at noon"), TitleOpening::Unknown);
        assert_eq!(classify_title("Durations wrap around"), TitleOpening::Unknown);
    }

    #[test]
    fn acceptance_criteria_are_list_items_or_sentences_with_must_or_should() {
        let texts = |body| find_criteria(body).into_iter().map(|c| c.text).collect::<Vec<_>>();
        assert_eq!(texts("- seen\n\n## Expected\n\n- a\n- b"), ["a", "b"]);
        assert_eq!(texts("- one\n- two"), ["one", "two"]);
        assert_eq!(
            texts("It must stop. It is nice. It should never wrap."),
            ["It must stop", "It should never wrap."]
        );
    }
}
