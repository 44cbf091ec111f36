//! Brief skills: files that map a kind of request to a workflow and list what its brief must contain.
//!
//! Three skills are built in and use the same parser as a repository's own.

use serde::{Deserialize, Serialize};

use super::super::truncate;
use crate::types::WorkerPool;

/// Folder with a repository's own skills, on its default branch. Their file names end with [`SUFFIX`].
pub const FOLDER: &str = ".github/countersign/skills/";
pub const SUFFIX: &str = "-brief.md";

/// Maximum number of skills, because a small model cannot distinguish more.
pub const MOST_SKILLS: usize = 50;

/// Maximum size of a skill file, in bytes.
pub const FILE_BYTES: usize = 64 << 10;

/// Maximum size of a skill file's front matter, in bytes.
const FRONT_BYTES: usize = 8 << 10;

const BUILT_IN: [(&str, &str); 3] = [
    ("bug-brief.md", include_str!("briefs/bug-brief.md")),
    ("feature-brief.md", include_str!("briefs/feature-brief.md")),
    ("refactor-brief.md", include_str!("briefs/refactor-brief.md")),
];

/// A kind of request, and the workflow that handles it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Skill {
    pub name: String,
    /// Description of the kind of request. A routing model sees only this description and the skill's name.
    pub description: String,
    /// Name of the workflow that the skill starts.
    pub workflow: String,
    /// Questions to ask people if the request does not answer them.
    pub questions: Vec<String>,
    /// Contents that the brief must have.
    pub required: Vec<String>,
    /// Keywords that select the skill when no model is available.
    pub keywords: Vec<String>,
    /// Issue labels that select the skill when no model is available.
    #[serde(default)]
    pub labels: Vec<String>,
    /// Default worker pool of the skill's runs.
    #[serde(default)]
    pub pool: Option<WorkerPool>,
    /// Text below the front matter: advice for writing the brief.
    pub advice: String,
}

/// A skill file with an error, and instructions for fixing the error.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SkillFault {
    pub path: String,
    /// Line of the error, from 1.
    pub line: Option<usize>,
    pub why: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SkillFrontMatter {
    name: String,
    description: String,
    workflow: String,
    #[serde(default)]
    questions: Vec<String>,
    #[serde(default)]
    required: Vec<String>,
    #[serde(default)]
    keywords: Vec<String>,
    #[serde(default)]
    labels: Vec<String>,
    #[serde(default)]
    pool: Option<WorkerPool>,
    /// Category: `brief` or `None`. Files with another category belong to other tools.
    #[serde(default)]
    category: Option<String>,
    /// Note for people; not evaluated.
    #[serde(default, rename = "domain")]
    _domain: Option<String>,
    /// Whether the skill can be used. The value `false` also removes the built-in skill of the same name.
    #[serde(default)]
    enabled: Option<bool>,
}

/// Returns the built-in skills, the skills in `files` (path and text), and the errors in `files`. A file replaces the
/// built-in skill of the same name. `workflows` are the names of the workflows that a skill may start.
pub fn load_skills(files: &[(String, String)], workflows: &[&str]) -> (Vec<Skill>, Vec<SkillFault>) {
    let (mut all, mut faults): (Vec<Skill>, Vec<SkillFault>) = (Vec::new(), Vec::new());
    for (path, text) in BUILT_IN {
        match parse_skill(text, workflows) {
            Ok((skill, _)) => all.push(skill),
            // The server may have other workflows than the built-in skills.
            Err((_, why)) => tracing::debug!(
                path,
                why,
                "built-in skill names a workflow this server does not have; skipped"
            ),
        }
    }
    let mut own: Vec<(String, &str)> = Vec::new();
    let mut sorted: Vec<_> = files.iter().collect();
    sorted.sort();
    for (path, text) in sorted {
        let mut fault = |line, why| faults.push(SkillFault { path: path.clone(), line, why });
        match parse_skill(text, workflows) {
            Ok((skill, _)) if own.iter().any(|(name, _)| *name == skill.name) => {
                let (_, other) = own.iter().find(|(name, _)| *name == skill.name).expect("it was just found");
                fault(None, format!("its name `{}` is that of {other} already; choose another", skill.name));
            }
            Ok((skill, enabled)) => {
                own.push((skill.name.clone(), path));
                all.retain(|known| known.name != skill.name);
                if enabled && all.len() >= MOST_SKILLS {
                    fault(None, format!("there are more than {MOST_SKILLS} skills; remove some"));
                } else if enabled {
                    all.push(skill);
                }
            }
            Err((line, why)) => fault(line, why),
        }
    }
    (all, faults)
}

type SkillParseError = (Option<usize>, String);

/// Parses a skill file. Returns the skill, and whether it is enabled.
fn parse_skill(text: &str, workflows: &[&str]) -> Result<(Skill, bool), SkillParseError> {
    if text.len() > FILE_BYTES {
        return Err((None, format!("it is longer than {} KB; shorten it", FILE_BYTES >> 10)));
    }
    let text = text.strip_prefix('\u{feff}').unwrap_or(text).replace("\r\n", "\n");
    let is_mark = |line: &str| line.trim_end() == "---";
    let Some((_, rest)) = text.split_once('\n').filter(|(first, _)| is_mark(first)) else {
        return Err((Some(1), "it does not begin with a line `---` and its front matter in YAML".to_owned()));
    };
    let mut at = 0;
    let mut lines = rest.split_inclusive('\n');
    let end = lines.find_map(|line| {
        let here = at;
        at += line.len();
        is_mark(line.trim_end_matches('\n')).then_some(here)
    });
    let Some(end) = end else {
        return Err((Some(1), "its front matter has no end; add a second line `---`".to_owned()));
    };
    let (yaml, advice) = (&rest[..end], rest[at..].trim());
    if yaml.len() > FRONT_BYTES {
        return Err((
            Some(1),
            format!("its front matter is longer than {} KB; shorten it", FRONT_BYTES >> 10),
        ));
    }
    if let Some((line, name)) = find_repeated_anchor(yaml) {
        let why = format!("its front matter repeats `&{}` by `*`; write it out", truncate(name, 40));
        return Err((Some(line), why));
    }
    let front: SkillFrontMatter = serde_norway::from_str(yaml).map_err(|error| {
        // The parsed text lacks the first line, so line numbers are one too low.
        let line = error.location().map(|place| place.line() + 1);
        let why = error.to_string();
        let why = why.split(" at line ").next().unwrap_or(&why);
        (line, format!("its front matter cannot be used: {}", one_line(why, 200)))
    })?;
    check_front_matter(front, advice, yaml, workflows)
}

/// Returns a YAML anchor to which an alias refers, with the anchor's line. Such anchors are refused, because a few
/// lines with anchors and aliases can expand to gigabytes.
fn find_repeated_anchor(yaml: &str) -> Option<(usize, &str)> {
    yaml.match_indices('&').find_map(|(at, _)| {
        let rest = &yaml[at + 1..];
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && !"-_".contains(c)).unwrap_or(rest.len());
        let used = end > 0 && yaml.contains(&format!("*{}", &rest[..end]));
        used.then(|| (yaml[..at].matches('\n').count() + 2, &rest[..end]))
    })
}

fn check_front_matter(
    front: SkillFrontMatter,
    advice: &str,
    yaml: &str,
    workflows: &[&str],
) -> Result<(Skill, bool), SkillParseError> {
    let line_of = |key: &str| {
        let begins =
            |line: &str| line.strip_prefix(key).is_some_and(|rest| rest.trim_start().starts_with(':'));
        yaml.lines().position(begins).map(|index| index + 2)
    };
    let refuse = |key: &str, why: String| Err((line_of(key), why));
    let SkillFrontMatter { name, description, workflow, questions, required, keywords, labels, pool, .. } =
        front;
    let SkillFrontMatter { category, enabled, .. } = front;
    if category.as_ref().is_some_and(|category| category != "brief") {
        return refuse("category", "its category is not `brief`; remove the line or the file".to_owned());
    }
    let shaped = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    // The suffix distinguishes a name from a word of a request.
    let ends = name.strip_suffix("-brief").is_some_and(|stem| !stem.is_empty());
    if !ends || name.len() > 64 || name.starts_with('-') || !name.chars().all(shaped) {
        let why = "its name is not of small letters, digits and hyphens, 64 at most, with `-brief` at its end, such as `bug-brief`";
        return refuse("name", why.to_owned());
    }
    if description.trim().is_empty() || description.chars().count() > 1024 {
        return refuse("description", "its description is empty or longer than 1024 characters".to_owned());
    }
    if !workflows.contains(&workflow.as_str()) {
        let why =
            format!("there is no workflow `{}`; there are {}", one_line(&workflow, 40), workflows.join(", "));
        return refuse("workflow", why);
    }
    if pool == Some(WorkerPool::High) {
        let why = "the pool `high` is for the server's settings to give; write medium, low or background";
        return refuse("pool", why.to_owned());
    }
    let lists =
        [("questions", &questions), ("required", &required), ("keywords", &keywords), ("labels", &labels)];
    for (key, list) in lists {
        if list.len() > 30 || list.iter().any(|text| text.trim().is_empty() || text.chars().count() > 300) {
            return refuse(key, format!("{key} holds more than 30 rows, or one that is empty or too long"));
        }
    }
    let line = |text: String| one_line(&text, 1024);
    let skill = Skill {
        name,
        description: line(description),
        workflow,
        questions: questions.into_iter().map(line).collect(),
        required: required.into_iter().map(line).collect(),
        keywords: keywords.into_iter().map(|word| line(word).to_lowercase()).collect(),
        labels: labels.into_iter().map(|label| line(label).to_lowercase()).collect(),
        pool,
        advice: truncate(advice, 8000).to_owned(),
    };
    Ok((skill, enabled.unwrap_or(true)))
}

pub(super) fn one_line(text: &str, chars: usize) -> String {
    truncate(&text.split_whitespace().collect::<Vec<_>>().join(" "), chars).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORKFLOWS: [&str; 3] = ["issue", "lld", "scout"];

    fn load_names_and_faults(files: &[(&str, &str)]) -> (Vec<String>, Vec<(Option<usize>, String)>) {
        let files: Vec<_> =
            files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect();
        let (skills, faults) = load_skills(&files, &WORKFLOWS);
        let shown = skills.iter().map(|skill| format!("{}>{}", skill.name, skill.workflow)).collect();
        (shown, faults.into_iter().map(|fault| (fault.line, fault.why)).collect())
    }

    const BUILT_IN: [&str; 3] = ["bug-brief>issue", "feature-brief>lld", "refactor-brief>lld"];

    #[test]
    fn repository_can_add_skills_and_replace_or_remove_built_in_ones() {
        assert_eq!(load_names_and_faults(&[]), (BUILT_IN.map(str::to_owned).to_vec(), vec![]));
        let market = "\u{feff}---\r\nname: market-analysis-brief\r\ndescription: \"markets --- and\\n their trends\"\r\ncategory: brief\r\n\
                      workflow: scout\r\nquestions:\r\n  - Which quarter?\r\n---\r\nLook --- further.\r\n---\r\n";
        let bug = "---\nname: bug-brief\ndescription: ours\nworkflow: lld\n---\n";
        let off = "---\nname: refactor-brief\ndescription: none\nworkflow: lld\nenabled: false\n---\n";
        let (shown, faults) = load_names_and_faults(&[("m", market), ("b", bug), ("r", off)]);
        assert_eq!(
            (shown.join(" "), faults),
            ("feature-brief>lld bug-brief>lld market-analysis-brief>scout".into(), vec![])
        );
        let (skills, _) = load_skills(&[("m".into(), market.into())], &WORKFLOWS);
        let Skill { description, questions, advice, .. } = &skills[3];
        assert_eq!(
            (description.as_str(), questions.len(), advice.as_str()),
            ("markets --- and their trends", 1, "Look --- further.\n---")
        );
    }

    #[test]
    fn invalid_skill_is_reported_with_its_line_and_valid_ones_are_kept() {
        let with = |lines: &str| format!("---\nname: x-brief\ndescription: d\n{lines}\n---\n");
        let bomb = "questions: [&a [x, x, x, x], &b [*a, *a, *a, *a], &c [*b, *b, *b, *b]]".to_owned();
        for (text, line, why) in [
            ("# no front matter".to_owned(), Some(1), "does not begin with"),
            ("---\nname: x\n".to_owned(), Some(1), "has no end"),
            (with("workflow: [lld"), Some(4), "cannot be used"),
            (with("workflow: lld\nquestion: [a]"), Some(5), "unknown field `question`"),
            (with("questions: [a]"), Some(2), "missing field `workflow`"),
            (with("workflow: release"), Some(4), "no workflow `release`; there are issue, lld, scout"),
            (with("workflow: lld\ncategory: coordination"), Some(5), "not `brief`"),
            (with("workflow: lld\nquestions: ['']"), Some(5), "questions holds"),
            (with("workflow: lld\npool: high"), Some(5), "for the server's settings to give"),
            (with("workflow: lld").replace("x-brief", "X brief"), Some(2), "its name is not"),
            (with("workflow: lld").replace("x-brief", "fix"), Some(2), "its name is not"),
            (
                with(&format!("workflow: lld\nkeywords:{}", " ".repeat(FRONT_BYTES))),
                Some(1),
                "longer than 8 KB",
            ),
            (with(&bomb), Some(4), "repeats `&a` by `*`"),
            (with("workflow: lld\nkeywords: [R&D, A&B, '*', *x]"), Some(5), "unknown anchor"),
            (with("workflow: lld").replace(": d", ": ''"), Some(3), "its description is empty"),
            ("x".repeat(FILE_BYTES + 1), None, "longer than 64 KB"),
        ] {
            let (shown, faults) = load_names_and_faults(&[("x", &text)]);
            assert_eq!(shown, BUILT_IN, "{text:.80}");
            assert_eq!(faults.len(), 1, "{text:.80}");
            assert!(faults[0].0 == line && faults[0].1.contains(why), "{text:.80}: {faults:?}");
        }
        let (_, faults) =
            load_names_and_faults(&[("a", &with("workflow: lld")), ("b", &with("workflow: issue"))]);
        assert_eq!(faults, [(None, "its name `x-brief` is that of a already; choose another".to_owned())]);
    }
}
