//! Markdown as GitHub renders it in threads, made harmless: whatever a comment holds, the page
//! keeps its structure and runs nothing.

use std::{collections::HashSet, sync::LazyLock};

use ammonia::Builder;
use pulldown_cmark::{Options, Parser, html};

static CLEANER: LazyLock<Builder<'static>> = LazyLock::new(|| {
    let mut cleaner = Builder::default();
    cleaner
        .add_tags(["details", "summary", "input", "section"])
        .add_tag_attributes("details", ["open"])
        .add_tag_attributes("input", ["type", "checked", "disabled"])
        .add_allowed_classes(
            "code",
            ["language-mermaid", "language-rust", "language-diff", "language-console"],
        )
        .add_allowed_classes("blockquote", ALERTS)
        .url_schemes(HashSet::from(["http", "https", "mailto"]))
        .link_rel(Some("noopener noreferrer nofollow"));
    cleaner
});

/// The classes of `> [!NOTE]` and its kin.
const ALERTS: [&str; 5] = [
    "markdown-alert-note",
    "markdown-alert-tip",
    "markdown-alert-important",
    "markdown-alert-warning",
    "markdown-alert-caution",
];

pub(super) fn render(text: &str) -> String {
    let options = Options::ENABLE_TABLES
        | Options::ENABLE_STRIKETHROUGH
        | Options::ENABLE_TASKLISTS
        | Options::ENABLE_FOOTNOTES
        | Options::ENABLE_GFM;
    let mut out = String::new();
    html::push_html(&mut out, Parser::new_ext(text, options));
    CLEANER.clean(&out).to_string()
}

#[cfg(test)]
mod tests {
    use super::render;

    #[test]
    fn githubs_markdown_is_understood() {
        let html = render(
            "| a |\n|---|\n| ~~b~~ |\n\n- [x] done\n\n<details><summary>More</summary>\n\n**in**\n\n</details>",
        );
        for part in
            ["<table>", "<del>b</del>", "type=\"checkbox\"", "<details><summary>More", "<strong>in</strong>"]
        {
            assert!(html.contains(part), "{part} in {html}");
        }
    }

    #[test]
    fn nothing_runs_and_nothing_breaks_out() {
        let html = render(
            "<script>x</script><img src=x onerror=y>[l](javascript:z)</div></main><!-- m --><style>*{}</style>",
        );
        for part in ["<script", "onerror", "javascript:", "</main>", "</div>", "<!--", "<style"] {
            assert!(!html.contains(part), "{part} in {html}");
        }
    }
}
