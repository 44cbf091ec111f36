//! What may be posted, and how it is cut into comments that GitHub takes.

use super::within;
use crate::limits;

/// What may be posted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Body(String);

impl Body {
    /// Text that is ours, with nothing of anybody else's in it that did not pass [`clean`](super::clean),
    /// [`plain`](super::plain) or [`code`](super::code). Only `messages` calls this.
    pub fn frame(text: String) -> Self {
        Self(text)
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The body in parts that GitHub takes, each with room for a marker, cut at headings and blank
    /// lines, with folds and code closed and opened again. One part when it fits.
    pub fn pieces(&self) -> Vec<String> {
        const ROOM: usize = 200;
        let limit = limits::BODY_CHARS - ROOM;
        if within(&self.0, limit) {
            return vec![self.0.clone()];
        }
        let parts = split(&self.0, limit - ROOM);
        let count = parts.len();
        parts
            .iter()
            .enumerate()
            .map(|(i, part)| format!("{}\n\n*({}/{count})*", part.trim_end(), i + 1))
            .collect()
    }
}

/// What is open at a line: the code fence, and how many folds.
#[derive(Debug, Clone, Default)]
struct Open {
    fence: Option<String>,
    folds: usize,
}

impl Open {
    fn after(mut self, line: &str) -> Self {
        let line = line.trim();
        let mark = line.chars().next().filter(|c| matches!(c, '`' | '~'));
        let length = mark.map_or(0, |m| line.chars().take_while(|c| *c == m).count());
        match &self.fence {
            Some(fence) => {
                if length >= fence.len()
                    && line.len() == length
                    && fence.starts_with(line.chars().next().unwrap_or(' '))
                {
                    self.fence = None;
                }
            }
            None if length >= 3 => self.fence = Some(line[..length].to_owned()),
            None => {
                self.folds += line.matches("<details").count();
                self.folds = self.folds.saturating_sub(line.matches("</details>").count());
            }
        }
        self
    }

    fn close(&self) -> String {
        let fence = self.fence.as_ref().map_or(String::new(), |f| format!("\n{f}\n"));
        fence + &"\n</details>\n".repeat(self.folds)
    }

    fn reopen(&self) -> String {
        let folds = "<details open><summary>(continued)</summary>\n\n".repeat(self.folds);
        folds + &self.fence.as_ref().map_or(String::new(), |f| format!("{f}\n"))
    }
}

fn split(text: &str, limit: usize) -> Vec<String> {
    let mut parts = Vec::new();
    let (mut part, mut length) = (String::new(), 0);
    let mut open = Open::default();
    // The last good place to cut in this part, and what was open there.
    let mut good: Option<(usize, Open)> = None;
    // A cut is made above a heading or below a blank line, never between a heading and its text.
    let (mut blank, mut headed) = (false, false);
    for line in text.split_inclusive('\n').flat_map(|line| chunks(line, limit / 2)) {
        let added = line.chars().count();
        if length + added > limit {
            let (at, state) = good.take().filter(|(at, _)| *at > 0).unwrap_or((part.len(), open.clone()));
            let rest = part.split_off(at);
            part.push_str(&state.close());
            parts.push(std::mem::replace(&mut part, state.reopen() + &rest));
            length = part.chars().count();
        }
        if open.fence.is_none() && ((blank && !headed) || line.starts_with('#')) && part.len() > limit / 4 {
            good = Some((part.len(), open.clone()));
        }
        part.push_str(line);
        length += added;
        open = open.after(line);
        blank = line.trim().is_empty();
        headed = line.starts_with('#') || (headed && blank);
    }
    parts.push(part);
    parts
}

/// A line in pieces of at most `limit` characters.
fn chunks(line: &str, limit: usize) -> Vec<&str> {
    let mut out = Vec::new();
    let mut rest = line;
    while let Some((at, _)) = rest.char_indices().nth(limit) {
        let (piece, after) = rest.split_at(at);
        out.push(piece);
        rest = after;
    }
    out.push(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_body_is_split_at_headings_with_folds_and_code_kept_whole() {
        let section =
            |n: usize| format!("## Part {n}\n\n```rust\n{}```\n\ntext {n}\n\n", "let x = 1;\n".repeat(1500));
        let whole: String = (0..12).map(section).collect();
        let body = Body::frame(format!("<details><summary>Draft</summary>\n\n{whole}\n</details>\n"));
        let pieces = body.pieces();
        assert!(pieces.len() >= 3);
        for (i, piece) in pieces.iter().enumerate() {
            assert!(piece.chars().count() <= limits::BODY_CHARS - 200);
            assert_eq!(piece.matches("<details").count(), piece.matches("</details>").count(), "piece {i}");
            assert_eq!(piece.matches("```").count() % 2, 0, "piece {i}");
            assert!(piece.ends_with(&format!("*({}/{})*", i + 1, pieces.len())));
        }
        assert!(pieces[1].starts_with("<details open><summary>(continued)</summary>\n\n## Part"));
        let lines = |text: &str| text.matches("let x = 1;").count();
        assert_eq!(pieces.iter().map(|p| lines(p)).sum::<usize>(), 18_000, "nothing is lost");
        let unbroken = Body::frame("é".repeat(200_000)).pieces();
        assert_eq!(unbroken.iter().map(|p| p.matches('é').count()).sum::<usize>(), 200_000);
    }
}
