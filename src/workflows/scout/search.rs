//! S1 and S2: plans searches, searches GitHub, and reads the results. A model may plan the searches; the words of the
//! topic are searched for as well. Fetched text is untrusted input, so models get only its visible part, between fences
//! and within a token limit.

use std::{collections::BTreeSet, time::Duration};

use serde::{Deserialize, Serialize};

use super::ScoutRunState;
use crate::{
    codebase::{estimate_tokens, redact_text},
    documents::{
        hidden_text::{visible_line, visible_text},
        markdown::bare_addresses,
        scout::{ScoutSource, SearchTerms, table_rows},
        shorten::shorten,
    },
    egress::{self, HostRefusal, PageError, RefusalReason},
    engine::StepError,
    github::{GitHubApiError, PublicRepository},
    messages,
    rounds::{self, StepContext, github_error, require_state},
    stage::{self, BackgroundText, StepResult, StepVisit},
    types::{Hash, Role, Timestamp},
};

/// Number of files read per repository in addition to its README.
const FILES_PER_SOURCE: u32 = 2;

/// Maximum number of tokens, by our estimate, of all fetched texts together. Each source gets an equal share: half of
/// the share goes to its README, the rest to its files.
const READ_TOKENS: usize = 30_000;

/// Maximum number of characters of a file path that is shown to the model.
const PATH_CHARS: usize = 200;

/// Maximum number of bytes read from a file or page.
const README_BYTES: usize = 400_000;

const TOPIC_CHARS: usize = 200;

/// Words that are useless as search terms, because they match too many repositories or none.
const STOP_WORDS: &[&str] = &[
    "the", "and", "for", "with", "from", "into", "that", "this", "what", "how", "are", "our", "can", "add",
    "use", "make", "should", "when", "where", "there", "have", "not", "all", "any", "other", "others",
    "well", "new",
];

/// Returns the topic: the command's arguments without URLs, or the issue's title if nothing else is left.
pub(super) fn topic(args: &str, title: &str) -> String {
    let args = visible_line(args).text;
    let args = args.split_whitespace().filter(|word| !word.contains("://")).collect::<Vec<_>>().join(" ");
    let topic = if args.is_empty() { title } else { &args };
    topic.chars().take(TOPIC_CHARS).collect()
}

/// Returns at most three searches for a topic. GitHub requires all words to match, so each search has fewer words than
/// the previous one. Words contain only letters and digits, so they cannot contain search syntax.
pub(super) fn topic_queries(topic: &str) -> Vec<Vec<String>> {
    let telling = |word: &&str| word.chars().count() > 2 && !STOP_WORDS.contains(word);
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

/// Returns the topic as a path component of ASCII letters, digits and hyphens.
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

/// Plans the first searches: first the searches that the model planned, then searches for the topic's own words.
async fn plan_searches(s: &mut ScoutRunState, cx: &StepContext) -> Result<Vec<SearchTerms>, StepError> {
    let issue = s.stage.issue()?.clone();
    let planned = rounds::plan_searches(cx, s.stage.policy()?, &issue, &s.topic, None).await?;
    if let Err(why) = &planned {
        s.stage.add_note(messages::not_planned_note(why));
    }
    s.planned = planned.is_ok();
    let mut queries: Vec<_> =
        planned.unwrap_or_default().into_iter().chain(topic_queries(&s.topic)).collect();
    let mut seen = BTreeSet::new();
    queries.retain(|words| seen.insert(words.clone()));
    if queries.is_empty() {
        return Err(StepError::User(messages::search_failed_reason(
            "the topic has no word to search for. Write `/scout` and a topic in a few words.",
        )));
    }
    Ok(queries)
}

/// Asks the model to plan further searches after it has seen the results. Does nothing if no model planned the first
/// searches.
pub(super) async fn plan_further_searches(s: &mut ScoutRunState, v: &StepVisit<'_>) -> Result<(), StepError> {
    let cx = v.cx;
    let nothing_new = s.deeper > 0 && s.found.len() == s.before;
    if !s.stage.is_fresh() || !s.planned || s.deeper >= MOST_FURTHER_SEARCHES || nothing_new {
        return Ok(());
    }
    let mut read = s.stage.background_text("found", cx).await?;
    for n in 0..s.found.len() {
        let readme = s.stage.background_text(&format!("{README}{n}"), cx).await?;
        read.push_str(&format!(
            "\nThe README of source {}:\n{}\n",
            n + 1,
            cut_to_tokens(&readme, GLANCE_TOKENS)
        ));
    }
    let issue = s.stage.issue()?.clone();
    match rounds::plan_searches(cx, s.stage.policy()?, &issue, &s.topic, Some(&read)).await? {
        Err(why) => s.stage.add_note(messages::no_further_search_note(&why)),
        Ok(more) => s.further = more.into_iter().filter(|words| !s.searched.contains(words)).collect(),
    }
    Ok(())
}

/// Searches for repositories and adds them to the sources. The results are stored for the whole run, because a brief
/// must be revised with the same sources from which it was written.
pub(super) async fn search_repositories(
    s: &mut ScoutRunState,
    v: &StepVisit<'_>,
) -> Result<StepResult, StepError> {
    let cx = v.cx;
    let rules = require_state(&s.stage.policy()?.search)?.clone();
    let deeper = !s.further.is_empty();
    let queries = if deeper { std::mem::take(&mut s.further) } else { plan_searches(s, cx).await? };
    let repo = cx.tools().repository(cx).await?;
    let known: Vec<_> = s.found.iter().map(|source| source.name.clone()).collect();
    let (new, made, failed): (Vec<(PublicRepository, SearchTerms)>, usize, bool) = cx
        .once("searched", |_| async {
            let (mut found, mut made, mut failed): (Vec<(PublicRepository, SearchTerms)>, usize, _) =
                (Vec::new(), 0, false);
            for words in &queries {
                made += 1;
                // Ask for more than the limit: this repository and known sources may be among the results.
                let most = rules.limit + known.len() as u32 + 1;
                let more = match repo.search_repositories(words, rules.min_stars, most).await {
                    // The sources found so far are enough for a brief.
                    Err(why) if deeper && !why.is_temporary() => {
                        tracing::warn!(run = %cx.run().id, %why, "a further search failed; continuing with the sources found");
                        (made, failed) = (made - 1, true);
                        break;
                    }
                    more => more.map_err(|fault| search_error(fault, cx.clock().now()))?,
                };
                for one in more {
                    let twice = found.iter().any(|(other, _)| other.name == one.name);
                    if one.name != *repo.name() && !twice && !known.contains(&one.name.to_string()) {
                        found.push((one, words.clone()));
                    }
                }
                if found.len() >= rules.limit as usize {
                    break;
                }
            }
            found.truncate(rules.limit as usize);
            Ok((found, made, failed))
        })
        .await?;
    if failed {
        s.stage.add_note(messages::further_search_failed_note());
    }
    s.deeper += u8::from(deeper);
    s.before = s.found.len();
    if s.deeper == 0 {
        s.first = made;
    }
    s.searched.extend(queries.into_iter().take(made));
    let web = cx.tools().github.web_url().as_str().trim_end_matches('/').to_owned();
    let source = |found: &PublicRepository| ScoutSource {
        name: found.name.to_string(),
        url: format!("{web}/{}", found.name),
        stars: found.stars,
        licence: found.licence.clone(),
    };
    for (one, words) in &new {
        s.found.push(source(one));
        s.words.push(words.clone());
        let about = visible_line(&one.about).text;
        let line = format!("Source {}, {web}/{}, in its own words: {about}", s.found.len(), one.name);
        s.abouts.push(line);
        s.homes.push(one.homepage.clone());
    }
    let mut text = format!("Rows of the table:\n\n{}\n", table_rows(&s.found).join("\n"));
    if s.found.is_empty() {
        let sentence = messages::nothing_found_note(&s.topic, rules.min_stars);
        text.push_str(&format!("\nThe search was made, and {sentence}.\n"));
        s.stage.add_note(sentence);
    }
    for line in &s.abouts {
        text.push_str(&format!("\n{line}\n"));
    }
    add_background(s, cx, "topic", "What is to be looked for", &s.topic.clone()).await?;
    add_background(s, cx, "found", "What was found, as GitHub tells it", &text).await?;
    let (own, words) = (s.stage.issue()?.number, s.topic.clone());
    if !deeper {
        stage::add_similar_issues(&mut s.stage, cx, own, &words).await?;
    }
    Ok(StepResult::Pass)
}

/// Maps a failed search to a step error. Each type of failure has its own sentence for people.
fn search_error(why: GitHubApiError, now: Timestamp) -> StepError {
    match why {
        GitHubApiError::RateLimited { until } => {
            let after = until.since(now).max(Duration::from_secs(1));
            StepError::Later { why: messages::search_rate_limit_reason(until), after }
        }
        GitHubApiError::Rejected { status: 422, .. } => StepError::User(messages::search_failed_reason(
            "GitHub rejected the query. Write `/scout` and the topic in other words.",
        )),
        other => match github_error(other) {
            StepError::Later { why, after } => {
                StepError::Later { why: messages::search_failed_reason(&why), after }
            }
            StepError::User(why) => StepError::User(messages::search_failed_reason(&why)),
            ours => ours,
        },
    }
}

/// Reads the README, the most relevant files and the home page of each new source. Texts that were read earlier are
/// shortened, so that all texts together stay within the token limit.
pub(super) async fn read_found(s: &mut ScoutRunState, v: &StepVisit<'_>) -> Result<StepResult, StepError> {
    let cx = v.cx;
    let repo = cx.tools().repository(cx).await?;
    let named = named_pages(cx);
    let share = READ_TOKENS / (s.found.len() + usize::from(!named.is_empty())).max(1);
    for kind in background_kinds(s.before) {
        let text = s.stage.background_text(&kind, cx).await?;
        let cut = cut_to_tokens(&text, share / 4);
        if cut != text {
            let text = cx.put(cut.as_bytes()).await?;
            s.stage.shorten_background(&kind, text);
        }
    }
    read_pages(s, v, named, share / 4).await?;
    for (n, source) in s.found.clone().iter().enumerate().skip(s.before) {
        let name = source.name.parse().map_err(anyhow::Error::new)?;
        // The terms that found this source; empty in runs started by older versions.
        let words = s.words.get(n).cloned().unwrap_or_default();
        let paths: Option<Vec<String>> = match words.is_empty() {
            true => Some(Vec::new()),
            false => {
                cx.once(&format!("paths-{n}"), |_| async {
                    // One extra result, because the README may be among them.
                    optional_answer(repo.search_code(&name, &words, FILES_PER_SOURCE + 1).await)
                })
                .await?
            }
        };
        if paths.is_none() {
            s.stage.add_note(messages::files_not_searched_note(&source.name));
        }
        let others = paths.unwrap_or_default();
        let others = others.into_iter().filter(|path| !path.to_lowercase().starts_with("readme"));
        for (m, path) in others.take(FILES_PER_SOURCE as usize).enumerate() {
            let text: Option<Hash> = cx
                .once(&format!("file-{n}-{m}"), |_| async {
                    let text = optional_answer(repo.public_file(&name, &path).await)?.flatten();
                    let Some(text) = text.filter(|text| !text.contains('\0')) else { return Ok(None) };
                    // A path is untrusted text, too.
                    let shown: String = visible_line(&path).text.chars().take(PATH_CHARS).collect();
                    let told = format!("{shown}\n\n{}", visible_excerpt(&path, &text, share / 4));
                    Ok(Some(cx.put(told.as_bytes()).await?))
                })
                .await?;
            if let Some(text) = text {
                let heading = format!("File {} of source {}: its path, and what stands in it", m + 1, n + 1);
                s.stage.add_background(BackgroundText {
                    kind: format!("{FILE}{n}-{m}"),
                    heading,
                    text,
                    left: false,
                });
            }
        }
        let page = s.stage.background_text(&format!("{PAGE}{n}"), cx).await?;
        let room = if page.is_empty() { share / 2 } else { share / 4 };
        let readme: Option<Hash> = cx
            .once(&format!("readme-{n}"), |_| async {
                let Some(text) = repo.public_readme(&name).await.map_err(github_error)? else {
                    return Ok(None);
                };
                Ok(Some(cx.put(visible_excerpt("README.md", &text, room).as_bytes()).await?))
            })
            .await?;
        if let Some(text) = readme {
            let heading = format!("The README of source {}, as its authors wrote it", n + 1);
            s.stage.add_background(BackgroundText {
                kind: format!("{README}{n}"),
                heading,
                text,
                left: false,
            });
        }
    }
    Ok(StepResult::Pass)
}

/// Returns the URLs of the pages named in the command. Returns none if the author of the command lacks write access.
fn named_pages(cx: &StepContext) -> Vec<String> {
    let trigger = &cx.run().trigger;
    // In a routed request, the words may be somebody else's.
    match trigger.role >= Role::Write && trigger.request.is_none() {
        true => find_page_urls(&trigger.args).into_iter().take(MOST_NAMED_PAGES).collect(),
        false => Vec::new(),
    }
}

/// Returns the URLs in a text without duplicates.
fn find_page_urls(text: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for address in bare_addresses(text).filter(|a| a.starts_with("https://") || a.starts_with("http://")) {
        if !found.contains(&address) {
            found.push(address);
        }
    }
    found
}

/// Reads the named pages and the home pages of the sources. Our code, not a model, chooses the URLs: a model that has
/// seen repository text must not choose the target of a request.
async fn read_pages(
    s: &mut ScoutRunState,
    v: &StepVisit<'_>,
    named: Vec<String>,
    tokens: usize,
) -> Result<(), StepError> {
    let cx = v.cx;
    let hosts = &cx.tools().settings.fetch.hosts;
    let named = named.into_iter().filter(|_| s.deeper == 0);
    let mut wanted: Vec<(usize, String)> = named.map(|url| (TOPIC_PAGE, url)).collect();
    let homes = s.homes.iter().enumerate().skip(s.before);
    wanted.extend(homes.filter_map(|(n, home)| Some((n, find_page_urls(home.as_deref()?).pop()?))));
    let (mut refused, mut unread_homes) = (Vec::new(), 0);
    for (at, (n, url)) in wanted.into_iter().enumerate() {
        let read: Result<Hash, UnreadPage> = cx
            .once(&format!("page-{}-{at}", s.before), |_| async {
                Ok(match egress::fetch_page(hosts, &url).await {
                    Ok(page) => {
                        let path = if page.html { PAGE_NAME } else { "page.md" };
                        // A URL is untrusted text, too.
                        let told = format!("{url}\n\n{}", visible_excerpt(path, &page.text, tokens));
                        Ok(cx.put(told.as_bytes()).await?)
                    }
                    Err(PageError::Host(HostRefusal { host, why: RefusalReason::NotAllowed })) => {
                        Err(UnreadPage::NotNamed(host))
                    }
                    Err(why) => Err(UnreadPage::Other(why.to_string())),
                })
            })
            .await?;
        match read {
            Ok(text) => {
                let (kind, heading) = match n {
                    TOPIC_PAGE => (format!("{PAGE}topic-{at}"), "A page that the request names".to_owned()),
                    n => (format!("{PAGE}{n}"), format!("The home page of source {}", n + 1)),
                };
                s.stage.add_background(BackgroundText { kind, heading, text, left: false });
                s.pages.push(url);
            }
            // A home page's host was chosen by a stranger, so we never ask the operator to allow it.
            Err(_) if n != TOPIC_PAGE => unread_homes += 1,
            // We never ask the operator to allow a host that a redirect led to.
            Err(UnreadPage::NotNamed(host)) if egress::allowable_host(&url).as_ref() == Some(&host) => {
                s.stage.add_refused_host(host);
            }
            Err(UnreadPage::NotNamed(host)) => {
                let why = PageError::Host(HostRefusal { host, why: RefusalReason::NotAllowed });
                refused.push((url, why.to_string()));
            }
            Err(UnreadPage::Other(why)) => refused.push((url, why)),
        }
    }
    for sentence in messages::unread_pages_notes(&refused, unread_homes) {
        s.stage.add_note(sentence);
    }
    Ok(())
}

/// Reason why a page was not read.
#[derive(Serialize, Deserialize)]
enum UnreadPage {
    /// The page's host is not allowed. The operator can allow it in the settings.
    NotNamed(String),
    Other(String),
}

/// Returns the result of an optional API call. Returns `None` if the call failed and a later attempt would not help.
fn optional_answer<T>(called: Result<T, GitHubApiError>) -> Result<Option<T>, StepError> {
    match called {
        Ok(answer) => Ok(Some(answer)),
        Err(why) if why.is_temporary() => Err(github_error(why)),
        Err(why) => {
            tracing::info!(%why, "could not read an optional source; continuing without it");
            Ok(None)
        }
    }
}

/// Returns an untrusted file in the form shown to models: only the visible text, with secrets redacted, and cut to
/// `tokens`.
fn visible_excerpt(path: &str, text: &str, tokens: usize) -> String {
    let text = &text[..text.floor_char_boundary(README_BYTES)];
    if path == PAGE_NAME {
        // A page can hide more than a README.
        let unseen = ["script", "style", "template", "noscript", "svg", "iframe"];
        let text = ammonia::Builder::empty().clean_content_tags(unseen.into()).clean(text).to_string();
        return cut_to_tokens(&redact_text(&text), tokens);
    }
    let marked = [".md", ".markdown", ".html", ".htm"].iter().any(|end| path.to_lowercase().ends_with(end));
    cut_to_tokens(&redact_text(&if marked { visible_text(text).text } else { text.to_owned() }), tokens)
}

const README: &str = "readme-";

const PAGE: &str = "page-";

/// Returns the kinds of all background texts that can be read for this number of sources.
pub(super) fn background_kinds(sources: usize) -> impl Iterator<Item = String> {
    let of_one = |n: usize| {
        let files = (0..FILES_PER_SOURCE).map(move |m| format!("{FILE}{n}-{m}"));
        files.chain([format!("{README}{n}"), format!("{PAGE}{n}")])
    };
    (0..sources).flat_map(of_one).chain((0..MOST_NAMED_PAGES).map(|at| format!("{PAGE}topic-{at}")))
}

/// File name used for HTML pages, which makes their text be treated as HTML.
const PAGE_NAME: &str = "page.html";

/// Source number used for pages that belong to no source.
const TOPIC_PAGE: usize = usize::MAX;

/// Maximum number of pages that a command may name.
const MOST_NAMED_PAGES: usize = 2;

/// Maximum number of tokens shown of each README when the model plans further searches.
const GLANCE_TOKENS: usize = 1000;

const MOST_FURTHER_SEARCHES: u8 = 2;

/// Prefix of the kind of a file's background text. The source number and the file number follow.
const FILE: &str = "file-";

async fn add_background(
    s: &mut ScoutRunState,
    cx: &StepContext,
    kind: &str,
    heading: &str,
    text: &str,
) -> Result<(), StepError> {
    let text = cx.put(text.as_bytes()).await?;
    s.stage.add_background(BackgroundText {
        kind: kind.to_owned(),
        heading: heading.to_owned(),
        text,
        left: false,
    });
    Ok(())
}

/// Shortens a text, section by section, until it fits into `tokens`.
fn cut_to_tokens(text: &str, tokens: usize) -> String {
    let mut text = text.to_owned();
    loop {
        let estimate = estimate_tokens(&text);
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
    fn each_later_scout_search_query_uses_fewer_words_of_the_topic() {
        let all = topic_queries("Report time by week, as well as by project (user:eve stars:>0 OR \"x\")");
        let joined: Vec<_> = all.iter().map(|words| words.join(" ")).collect();
        assert_eq!(joined, ["report time week project stars", "report project stars", "report project"]);
        assert_eq!(topic_queries("weeks"), [["weeks"]]);
        assert!(topic_queries("🦀 :: the").is_empty());
        assert_eq!(topic_queries("Wochenübersicht für Zeiten").len(), 2);
    }

    #[test]
    fn links_are_removed_from_a_scout_topic_and_slugs_are_short_ascii() {
        assert_eq!(topic("  weekly reports ", "T"), "weekly reports");
        assert_eq!((topic(" ", "T").as_str(), topic("https://a.b", "T").as_str()), ("T", "T"));
        assert_eq!(topic("weeks, see https://a.b", "T"), "weeks, see");
        assert_eq!(topic("a\u{202e}b", "T"), "ab");
        assert_eq!(slug("Report time: by ../week!"), "report-time-by-week");
        assert_eq!((slug("週報").as_str(), slug(&"long ".repeat(40)).len()), ("brief", 49));
    }

    #[test]
    fn readme_is_cut_to_its_token_share() {
        let text = format!("# A\n\n{}\n\n## B\n\nshort\n", "many words in here\n".repeat(2000));
        let cut = cut_to_tokens(&text, 500);
        assert!(
            estimate_tokens(&cut) <= 500 && estimate_tokens(&cut) > 250 && cut.contains("## B\n\nshort"),
            "{cut}"
        );
        assert_eq!(cut_to_tokens("short", 500), "short");
    }
}
