//! Files that matter by what they are: named ones, and those in which a repository speaks of itself.

use std::collections::BTreeSet;

use super::{Asked, Role, write};
use crate::{
    codebase::{Index, surroundings, tree::file_name},
    documents::shorten::{Rank, has_word},
    limits,
};

/// The files that the work is about by their paths: those asked for, then those the text names. And those of them that no
/// model is shown, with the reason.
pub(super) fn named(index: &Index, asked: &Asked) -> (Vec<String>, Vec<(String, String)>) {
    let mut seen = BTreeSet::new();
    let in_text =
        asked.text.split(|c: char| c.is_whitespace() || "`'\"()[]{}<>,;*|=".contains(c)).filter_map(|word| {
            let word = word.trim_start_matches("./").trim_end_matches(['.', ':', '!', '?']);
            // `src/lib.rs:12`
            let path = word.split(':').next().unwrap_or(word);
            (path.contains('/') || path.contains('.')).then_some(path)
        });
    let (mut named, mut refused) = (Vec::new(), Vec::new());
    for path in asked.files.iter().map(String::as_str).chain(in_text).filter(|path| seen.insert(*path)) {
        let left = index.left_out().binary_search_by(|left| left.path.as_str().cmp(path));
        if index.file(path).is_some() {
            named.push(path.to_owned());
        } else if let Ok(at) = left {
            refused.push((write::one_line(path), index.left_out()[at].why.to_string()));
        }
    }
    named.truncate(limits::CONTEXT_FILES);
    refused.truncate(limits::CONTEXT_FILES);
    (named, refused)
}

/// What stands around some files: where the repository says how people, and models, work in it.
pub(super) fn about(index: &Index, files: Vec<String>) -> Vec<(String, Role, f64)> {
    let around = surroundings(index, &files);
    let conventions = around.conventions.into_iter().map(|path| {
        let name = file_name(&path).to_lowercase();
        let everywhere = name.starts_with("readme") || name.starts_with("contributing");
        // Most have these two, and many say little in them.
        (path, Role::Convention, if everywhere { 0.3 } else { 0.5 })
    });
    let manifests = around.manifests.into_iter().map(|path| (path, Role::Manifest, 0.25));
    let settings = around.settings.into_iter().map(|path| (path, Role::Settings, 0.1));
    let (checks, others): (Vec<String>, Vec<String>) =
        around.checks.into_iter().partition(|path| has_word(file_name(path), CHECKS));
    let checks = if checks.is_empty() { others } else { checks };
    let checks = checks.into_iter().take(MOST_CHECKS).map(|path| (path, Role::Automation, 0.08));
    conventions.chain(manifests).chain(settings).chain(checks).collect()
}

/// Files of automation that are shown at most; large projects have dozens, most of them for other things than checks.
const MOST_CHECKS: usize = 2;
const CHECKS: &[&str] = &["ci ", "test", "check", "build", "lint", "makefile ", "justfile "];

/// What a section of a repository's own prose is worth to whoever is to change it.
pub(super) fn prose_rank(title: &str) -> Option<Rank> {
    const NEEDED: &[&str] = &[
        "convention",
        "rule",
        "guideline",
        "style",
        "architect",
        "structure",
        "layout",
        "design",
        "test",
        "build",
        "develop",
        "lint",
        "format",
        "commit",
        "header",
    ];
    const NEEDLESS: &[&str] = &[
        "licen",
        "sponsor",
        "backer",
        "thank",
        "acknowledg",
        "credit",
        "author ",
        "authors ",
        "contributors ",
        "communit",
        "badge",
        "changelog",
        "release",
        "table of contents ",
        "contents ",
        "support ",
        "supporters ",
        "star history ",
        "code of conduct ",
    ];
    match () {
        () if title.is_empty() => Some(3),
        () if has_word(title, NEEDED) => Some(1),
        () if has_word(title, NEEDLESS) => Some(9),
        () => None,
    }
}

/// The commands of a workflow, word for word, each once.
pub(super) fn commands(text: &str) -> String {
    let mut commands: Vec<&str> = Vec::new();
    let mut seen = BTreeSet::new();
    // How far right the key stands whose block goes on.
    let mut block: Option<usize> = None;
    for line in text.lines() {
        let indent = line.len() - line.trim_start().len();
        if block.is_some_and(|key| indent > key || line.trim().is_empty()) {
            commands.extend(Some(line.trim()).filter(|line| !line.is_empty() && seen.insert(*line)));
            continue;
        }
        block = None;
        let Some(command) = line.trim_start().trim_start_matches("- ").strip_prefix("run:") else { continue };
        match command.trim() {
            "" | "|" | "|-" | "|+" | ">" | ">-" | ">+" => block = line.find("run:"),
            command => commands.extend(Some(command).filter(|command| seen.insert(*command))),
        }
    }
    commands.iter().take(COMMANDS).map(|command| format!("{command}\n")).collect()
}

/// Lines of commands that are shown of one workflow.
const COMMANDS: usize = 40;
