//! Finds sentences of our own in a comment. When a person replies by mail, the mail program quotes our gate below the
//! reply, often without `>`. This quote includes the command to paste, which must not be run.

/// Returns the byte offset of the first line in the comment that repeats one of our earlier comments, which are given
/// as `ours`. A line is a repetition if it has at least five words and one of our comments contains the same words in
/// sequence.
///
/// Code and folded text in our comments are ignored, because they quote other people or show the command to paste.
pub fn find_quoted_text<'o>(comment: &str, ours: impl IntoIterator<Item = &'o str>) -> Option<usize> {
    const LEAST: usize = 5;
    let words = |text: &str| {
        let words = text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
        words.fold(String::from(" "), |all, word| all + &word.to_lowercase() + " ")
    };
    let own = |text: &str| {
        let (mut folds, mut code, mut own) = (0_usize, false, String::new());
        for line in text.lines() {
            folds += line.matches("<details").count();
            code ^= line.starts_with("```");
            if folds == 0 && !code {
                own.extend([line, "\n"]);
            }
            folds = folds.saturating_sub(line.matches("</details>").count());
        }
        words(&own)
    };
    let ours: Vec<String> = ours.into_iter().map(own).collect();
    let mut start = 0;
    comment.split_inclusive('\n').find_map(|line| {
        let (at, line_words) = (start, words(line));
        start += line.len();
        let sentence = !line.trim_start().starts_with('/') && line_words.matches(' ').count() > LEAST;
        (sentence && ours.iter().any(|own| own.contains(&line_words))).then_some(at)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comment_is_cut_at_its_first_quote_of_a_bot_comment() {
        let ours = "### ✅ APPROVED: the design waits for a person\n\nTo accept it, someone with write access \
                    writes\n\n```\n/approve lld 3f9c2ab1d4e7\n```\n\n<details><summary>Document</summary>\n\nThe table has \
                    three columns of numbers.\n\n</details>";
        let above = |comment: &str| find_quoted_text(comment, [ours]).map(|at| comment[..at].to_owned());
        for quoted in [
            "To accept it, someone with write access writes\n\n/approve lld 3f9c2ab1d4e7",
            "**APPROVED**: the design waits for a\r\nperson",
            "  someone with write access writes",
        ] {
            assert_eq!(above(&format!("No.\n\n{quoted}")).as_deref(), Some("No.\n\n"), "{quoted}");
        }
        for own in [
            "/approve lld 3f9c2ab1d4e7",
            "The table has three columns of numbers.\n\n/revise make it four",
            "It waits for a person.\n\n/approve",
            "someone with write access",
        ] {
            assert_eq!(above(own), None, "{own}");
        }
    }
}
