//! S1 and S2: what is looked for, what GitHub finds, and what of that is read. A model may say what to search for, in plain
//! words; where none does, the topic's own words do. What is read is text of strangers: only what people see of it, between marks, and never more than so much.

use std::{collections::BTreeSet, time::Duration};

use super::State;
use crate::{
    codebase::{as_shown, estimate},
    documents::{
        scout::{Source, Words, rows},
        shorten::shorten,
        visible::{visible, visible_line},
    },
    engine::StepError,
    github::{Fault, Found},
    messages,
    rounds::{self, Cx, fault, need},
    stage::{Exit, Known, Visit},
    types::{Hash, Timestamp},
    workflows::issue,
};

/// Files of a repository that are read besides its README.
pub(super) const FILES: u32 = 2;

/// Tokens of all that is read together, by our own estimate: half of a source's share is its README's, the rest its files'.
const READ_TOKENS: usize = 30_000;

/// Of a path, so much is told.
const PATH_CHARS: usize = 200;

/// None of it is read further.
const README_BYTES: usize = 400_000;

/// A topic is a line.
const TOPIC_CHARS: usize = 200;

/// Words that a search finds nothing without, and everything with.
const EMPTY: &[&str] = &[
    "the", "and", "for", "with", "from", "into", "that", "this", "what", "how", "are", "our", "can", "add",
    "use", "make", "should", "when", "where", "there", "have", "not", "all", "any", "other", "others",
    "well", "new",
];

/// What is to be looked for: the words after the command, or the issue's title.
pub(super) fn topic(args: &str, title: &str) -> String {
    let args = visible_line(args).text;
    let topic = if args.trim().is_empty() { title } else { args.trim() };
    topic.chars().take(TOPIC_CHARS).collect()
}

/// At most three searches, each of fewer words than the one before: GitHub finds what has all of them. They are letters and
/// digits, so none means anything else to it.
pub(super) fn queries(topic: &str) -> Vec<Vec<String>> {
    let telling = |word: &&str| word.chars().count() > 2 && !EMPTY.contains(word);
    let topic = topic.to_lowercase();
    let mut words: Vec<&str> = Vec::new();
    for word in topic.split(|c: char| !c.is_alphanumeric()).filter(telling) {
        if !words.contains(&word) {
            words.push(word);
        }
    }
    let mut longest = words.clone();
    longest.sort_by_key(|word| std::cmp::Reverse(word.chars().count()));
    let mut queries: Vec<Vec<String>> = Vec::new();
    for count in [5, 3, 2] {
        let kept = &longest[..count.min(longest.len())];
        let query: Vec<String> =
            words.iter().filter(|word| kept.contains(word)).map(|w| (*w).to_owned()).collect();
        if !query.is_empty() && !queries.contains(&query) {
            queries.push(query);
        }
    }
    queries
}

/// A path's part, of plain letters.
pub(super) fn slug(topic: &str) -> String {
    let words = topic.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    let mut slug = String::new();
    for word in words {
        if slug.len() + word.len() > 50 {
            break;
        }
        slug = if slug.is_empty() { word.to_lowercase() } else { format!("{slug}-{}", word.to_lowercase()) };
    }
    if slug.is_empty() { "brief".to_owned() } else { slug }
}

/// Looks for repositories. What was found stays for the whole run: a brief is revised on what it was written from.
pub(super) async fn search(s: &mut State, v: &Visit<'_>) -> Result<Exit, StepError> {
    let cx = v.cx;
    let rules = need(&s.stage.policy()?.search)?.clone();
    let issue = s.stage.issue()?.clone();
    let planned = rounds::queries(cx, s.stage.policy()?, &issue, &s.topic).await?;
    if let Err(why) = &planned {
        s.stage.say(messages::not_planned(why));
    }
    let mut queries: Vec<_> = planned.unwrap_or_default().into_iter().chain(queries(&s.topic)).collect();
    let mut seen = BTreeSet::new();
    queries.retain(|words| seen.insert(words.clone()));
    if queries.is_empty() {
        return Err(StepError::User(messages::search_failed(
            "the topic has no word to search for. Write `/scout` and a topic in a few words.",
        )));
    }
    let repo = cx.tools().repo(cx).await?;
    let found: Vec<(Found, Words)> = cx
        .once("searches", |_| async {
            let mut found: Vec<(Found, Words)> = Vec::new();
            for words in &queries {
                // One more than is wanted, for this repository may be among them.
                let more = repo.search(words, rules.min_stars, rules.limit + 1).await;
                for one in more.map_err(|fault| searched(fault, cx.clock().now()))? {
                    if one.name != *repo.name() && !found.iter().any(|(known, _)| known.name == one.name) {
                        found.push((one, words.clone()));
                    }
                }
                if found.len() >= rules.limit as usize {
                    break;
                }
            }
            found.truncate(rules.limit as usize);
            Ok(found)
        })
        .await?;
    let (found, words): (Vec<Found>, Vec<Words>) = found.into_iter().unzip();
    s.words = words;
    let web = cx.tools().github.web_url().as_str().trim_end_matches('/').to_owned();
    let source = |found: &Found| Source {
        name: found.name.to_string(),
        url: format!("{web}/{}", found.name),
        stars: found.stars,
        licence: found.licence.clone(),
    };
    s.found = found.iter().map(source).collect();
    let mut text = format!("Rows of the table:\n\n{}\n", rows(&s.found).join("\n"));
    if s.found.is_empty() {
        let sentence = messages::nothing_found(&s.topic, rules.min_stars);
        text.push_str(&format!("\nThe search was made, and {sentence}.\n"));
        s.stage.say(sentence);
    }
    for (n, found) in found.iter().enumerate() {
        let about = visible_line(&found.about).text;
        text.push_str(&format!("\nSource {}, {web}/{}, in its own words: {about}\n", n + 1, found.name));
    }
    know(s, cx, "topic", "What is to be looked for", &s.topic.clone()).await?;
    know(s, cx, "found", "What was found, as GitHub tells it", &text).await?;
    let (own, words) = (s.stage.issue()?.number, s.topic.clone());
    issue::similar(&mut s.stage, cx, own, &words).await?;
    Ok(Exit::Pass)
}

/// The three ways in which a search gives nothing have a sentence each; this is where two of them part.
fn searched(why: Fault, now: Timestamp) -> StepError {
    match why {
        Fault::RateLimited { until } => {
            let after = until.since(now).max(Duration::from_secs(1));
            StepError::Later { why: messages::searches_limited(until), after }
        }
        Fault::Rejected { status: 422, .. } => StepError::User(messages::search_failed(
            "GitHub does not take it. Write `/scout` and a topic in other words.",
        )),
        other => match fault(other) {
            StepError::Later { why, after } => StepError::Later { why: messages::search_failed(&why), after },
            StepError::User(why) => StepError::User(messages::search_failed(&why)),
            ours => ours,
        },
    }
}

/// Reads the READMEs of what was found, and the files there that have most to do with the topic.
pub(super) async fn read(s: &mut State, v: &Visit<'_>) -> Result<Exit, StepError> {
    let cx = v.cx;
    let repo = cx.tools().repo(cx).await?;
    let share = READ_TOKENS / s.found.len().max(1);
    for (n, source) in s.found.clone().iter().enumerate() {
        let name = source.name.parse().map_err(anyhow::Error::new)?;
        // Those that it was found by; a run of a version before this has none.
        let words = s.words.get(n).cloned().unwrap_or_default();
        let paths: Option<Vec<String>> = match words.is_empty() {
            true => Some(Vec::new()),
            false => {
                cx.once(&format!("paths-{n}"), |_| async {
                    // One more than is wanted, for the README may be among them.
                    optional(repo.search_code(&name, &words, FILES + 1).await)
                })
                .await?
            }
        };
        if paths.is_none() {
            s.stage.say(messages::files_not_searched(&source.name));
        }
        let others = paths.unwrap_or_default();
        let others = others.into_iter().filter(|path| !path.to_lowercase().starts_with("readme"));
        for (m, path) in others.take(FILES as usize).enumerate() {
            let text: Option<Hash> = cx
                .once(&format!("file-{n}-{m}"), |_| async {
                    let text = optional(repo.file_of(&name, &path).await)?.flatten();
                    let Some(text) = text.filter(|text| !text.contains('\0')) else { return Ok(None) };
                    // A path is anybody's words as well.
                    let shown: String = visible_line(&path).text.chars().take(PATH_CHARS).collect();
                    let told = format!("{shown}\n\n{}", seen(&path, &text, share / 4));
                    Ok(Some(cx.put(told.as_bytes()).await?))
                })
                .await?;
            if let Some(text) = text {
                let heading = format!("File {} of source {}: its path, and what stands in it", m + 1, n + 1);
                s.stage.know(Known { kind: format!("{FILE}{n}-{m}"), heading, text, left: false });
            }
        }
        let readme: Option<Hash> = cx
            .once(&format!("readme-{n}"), |_| async {
                let Some(text) = repo.readme_of(&name).await.map_err(fault)? else { return Ok(None) };
                Ok(Some(cx.put(seen("README.md", &text, share / 2).as_bytes()).await?))
            })
            .await?;
        if let Some(text) = readme {
            let heading = format!("The README of source {}, as its authors wrote it", n + 1);
            s.stage.know(Known { kind: format!("{README}{n}"), heading, text, left: false });
        }
    }
    Ok(Exit::Pass)
}

/// What comes of a call that the work also goes on without: nothing, where waiting does not help.
fn optional<T>(called: Result<T, Fault>) -> Result<Option<T>, StepError> {
    match called {
        Ok(answer) => Ok(Some(answer)),
        Err(why) if why.passes() => Err(fault(why)),
        Err(why) => {
            tracing::info!(%why, "nothing is read there");
            Ok(None)
        }
    }
}

/// A stranger's file as models are shown it: what people see of it, without what looks like a secret, and so much of that.
fn seen(path: &str, text: &str, tokens: usize) -> String {
    let text = &text[..text.floor_char_boundary(README_BYTES)];
    let marked = [".md", ".markdown", ".html", ".htm"].iter().any(|end| path.to_lowercase().ends_with(end));
    within(&as_shown(&if marked { visible(text).text } else { text.to_owned() }), tokens)
}

pub(super) const README: &str = "readme-";

/// The first of a source's is followed by 0, the next by 1.
pub(super) const FILE: &str = "file-";

async fn know(s: &mut State, cx: &Cx, kind: &str, heading: &str, text: &str) -> Result<(), StepError> {
    let text = cx.put(text.as_bytes()).await?;
    s.stage.know(Known { kind: kind.to_owned(), heading: heading.to_owned(), text, left: false });
    Ok(())
}

/// As much of a text as so many tokens hold, cut by its sections.
fn within(text: &str, tokens: usize) -> String {
    let mut text = text.to_owned();
    loop {
        let estimate = estimate(&text);
        if estimate <= tokens {
            return text;
        }
        let room = (text.len() * tokens / estimate).min(text.len() - 1);
        text = shorten(&text, &|_| None, room).text;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn searches_are_of_plain_words_and_ever_fewer() {
        let all = queries("Report time by week, as well as by project (user:eve stars:>0 OR \"x\")");
        let joined: Vec<_> = all.iter().map(|words| words.join(" ")).collect();
        assert_eq!(joined, ["report time week project stars", "report project stars", "report project"]);
        assert_eq!(queries("weeks"), [["weeks"]]);
        assert!(queries("🦀 :: the").is_empty());
        assert_eq!(queries("Wochenübersicht für Zeiten").len(), 2);
    }

    #[test]
    fn a_topic_is_a_line_and_names_the_file() {
        assert_eq!(topic("  weekly reports ", "T"), "weekly reports");
        assert_eq!(topic(" ", "T"), "T");
        assert_eq!(topic("a\u{202e}b", "T"), "ab");
        assert_eq!(slug("Report time: by ../week!"), "report-time-by-week");
        assert_eq!((slug("週報").as_str(), slug(&"long ".repeat(40)).len()), ("brief", 49));
    }

    #[test]
    fn a_readme_is_cut_to_its_share() {
        let text = format!("# A\n\n{}\n\n## B\n\nshort\n", "many words in here\n".repeat(2000));
        let cut = within(&text, 500);
        assert!(estimate(&cut) <= 500 && estimate(&cut) > 250 && cut.contains("## B\n\nshort"), "{cut}");
        assert_eq!(within("short", 500), "short");
    }
}
