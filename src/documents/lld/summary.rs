//! The summary of a design, for people who decide whether to read all of it.

use super::{ChangeType, parse};

const GOAL_LINES: usize = 10;
const FILES: usize = 15;

/// Returns the questions that the design leaves open.
pub fn open_questions(text: &str) -> Vec<String> {
    let open = parse(text).open_questions.into_iter().filter(|question| !question.done);
    open.map(|question| question.text).collect()
}

/// Returns a summary with the goal, the files, and the number of requirements and scenarios. The summary quotes the
/// document and has at most 40 lines of Markdown.
pub fn summary(text: &str) -> String {
    let lld = parse(text);
    let mut out: Vec<String> = Vec::new();
    if let Some(goal) = lld.section("1") {
        let body = &text[goal.body.clone()];
        let goal = body.find("\n#").map_or(body, |end| &body[..end]).trim();
        out.extend(goal.lines().take(GOAL_LINES).map(str::to_owned));
        out.push(String::new());
    }
    for file in lld.files.iter().take(FILES) {
        let folder = if file.directory { " (folder)" } else { "" };
        let change = file.change.map_or("?", ChangeType::as_str);
        out.push(format!("- {change}{folder} `{}`: {}", file.path.replace('`', "'"), file.description));
    }
    if lld.files.len() > FILES {
        out.push(format!("- … and {} more files", lld.files.len() - FILES));
    }
    out.push(String::new());
    out.push(format!("Requirements: {}. Test scenarios: {}.", lld.requirements.len(), lld.scenarios.len()));
    out.join("\n").trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::{super::tests::filled_template, open_questions, summary};

    #[test]
    fn design_summary_shows_changed_files_and_requirement_counts() {
        let text = filled_template()
            .replace("### Open Questions\n\nNone.", "### Open Questions\n\n- [ ] Which?\n- [x] Done.");
        insta::assert_snapshot!(summary(&text), @r#"
        the exit code is 2

        - Modify `src/lib.rs`: the exit code is 2

        Requirements: 1. Test scenarios: 1.
        "#);
        assert_eq!(open_questions(&text), ["Which?"]);
        let long = text
            .replace("the exit code is 2", "a\na")
            .repeat(3)
            .replace("| `src/lib.rs`", "| a | Add | x |\n| `src/lib.rs`");
        assert!(summary(&long).lines().count() <= 40);
        assert_eq!(summary(""), "Requirements: 0. Test scenarios: 0.");
    }
}
