//! Markdown as GitHub renders it in threads. The output is sanitised, so that no comment can break the page's structure
//! or run a script.

use std::{collections::HashSet, sync::LazyLock};

use ammonia::Builder;
use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd, html};

use super::layout::EscapedHtml;

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

/// CSS classes of alerts such as `> [!NOTE]`.
const ALERTS: [&str; 5] = [
    "markdown-alert-note",
    "markdown-alert-tip",
    "markdown-alert-important",
    "markdown-alert-warning",
    "markdown-alert-caution",
];

/// Returns the HTML of a Markdown text, with `#12` and `@login` references. `base` is the path of its repository,
/// `/owner/name`.
pub(super) fn render(text: &str, base: &str) -> String {
    let options = Options::ENABLE_TABLES
        | Options::ENABLE_STRIKETHROUGH
        | Options::ENABLE_TASKLISTS
        | Options::ENABLE_FOOTNOTES
        | Options::ENABLE_GFM;
    // Nesting depth inside code and links, whose text stays unchanged.
    let mut literal = 0_usize;
    let events = Parser::new_ext(text, options).map(|event| match event {
        Event::Start(Tag::CodeBlock(_) | Tag::Link { .. }) => {
            literal += 1;
            event
        }
        Event::End(TagEnd::CodeBlock | TagEnd::Link) => {
            literal = literal.saturating_sub(1);
            event
        }
        Event::Text(text) if literal == 0 => Event::InlineHtml(references(&text, base).into()),
        other => other,
    });
    let mut out = String::new();
    html::push_html(&mut out, events);
    CLEANER.clean(&out).to_string()
}

/// Escapes a text for HTML; turns `#12` into a link and emphasises `@login`.
fn references(text: &str, base: &str) -> String {
    let mut out = String::new();
    let mut before = ' ';
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let tail = &rest[first.len_utf8()..];
        let length = |fits: fn(char) -> bool| tail.find(|c| !fits(c)).unwrap_or(tail.len());
        let starts = !before.is_alphanumeric();
        let taken = match first {
            '#' if starts => length(|c| c.is_ascii_digit()),
            '@' if starts => length(|c| c.is_ascii_alphanumeric() || c == '-'),
            _ => 0,
        };
        let word = &tail[..taken];
        match first {
            '#' if taken > 0 => out.push_str(&format!("<a href=\"{base}/issues/{word}\">#{word}</a>")),
            '@' if taken > 0 => out.push_str(&format!("<strong>@{word}</strong>")),
            other => out.push_str(&EscapedHtml(other.encode_utf8(&mut [0; 4])).to_string()),
        }
        before = word.chars().last().unwrap_or(first);
        rest = &tail[taken..];
    }
    out
}

#[cfg(test)]
mod tests {
    use super::render;

    #[test]
    fn github_markdown_is_rendered_as_html() {
        let html = render(
            "| a |\n|---|\n| ~~b~~ |\n\n- [x] done\n\n<details><summary>More</summary>\n\n**in**\n\n</details>",
            "/a/b",
        );
        for part in
            ["<table>", "<del>b</del>", "type=\"checkbox\"", "<details><summary>More", "<strong>in</strong>"]
        {
            assert!(html.contains(part), "{part} in {html}");
        }
    }

    #[test]
    fn scripts_and_stray_closing_tags_are_removed_from_rendered_markdown() {
        let html = render(
            "<script>x</script><img src=x onerror=y>\n\n[l](javascript:z)\n\n</div></main><!-- m --><style>*{}</style>",
            "/a/b",
        );
        for part in ["<script", "onerror", "javascript:", "</main>", "</div>", "<!--", "<style"] {
            assert!(!html.contains(part), "{part} in {html}");
        }
    }

    #[test]
    fn issue_numbers_outside_code_become_links() {
        let html = render("Part of #12, `#13`, a#14, @ada <b>", "/ada/tally");
        assert!(html.contains("href=\"/ada/tally/issues/12\""), "{html}");
        assert!(!html.contains("issues/13") && !html.contains("issues/14"), "{html}");
        assert!(html.contains("<strong>@ada</strong>"), "{html}");
    }
}
