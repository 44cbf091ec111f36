//! Writes the demo's output: coloured and wrapped on a terminal, plain lines otherwise.

use std::{ffi::OsStr, io::IsTerminal};

use super::super::print_line;

const PLAIN: &str = "";
const BOLD: &str = "\x1b[1m";
const DIM: &str = "\x1b[2m";
const RED: &str = "\x1b[31m";
const GREEN: &str = "\x1b[32m";
const YELLOW: &str = "\x1b[33m";
const RESET: &str = "\x1b[0m";

/// Minimum number of columns for wrapped text. Lines are not wrapped if fewer columns are available.
const NARROWEST: usize = 20;

#[derive(Clone, Copy)]
pub(super) struct Terminal {
    /// Width of the terminal in columns; `None` if stdout is not a terminal.
    width: Option<usize>,
    colours: bool,
}

impl Terminal {
    /// Detects the terminal's width and colours. Callers repeat the detection for each line, because the user may
    /// resize the window.
    pub(super) fn detect() -> Self {
        let out = std::io::stdout();
        let terminal = out.is_terminal();
        let columns = || rustix::termios::tcgetwinsize(&out).map_or(80, |size| usize::from(size.ws_col));
        Self {
            width: terminal.then(columns),
            colours: terminal && colours_wanted(std::env::var_os("NO_COLOR").as_deref()),
        }
    }

    pub(super) fn is_terminal(self) -> bool {
        self.width.is_some()
    }

    /// Prints a line. If the line is wrapped, each part starts with the indentation or bar of the line.
    pub(super) fn print_line(self, line: &str) {
        let (text, style) = (line.trim_start_matches([' ', '│']), style(line));
        let edge = &line[..line.len() - text.len()];
        let room = self.width.map_or(usize::MAX, |width| width.saturating_sub(count_columns(edge)));
        for text in wrap_line(text, if room < NARROWEST { usize::MAX } else { room }) {
            print_line(format_args!("{}{}", self.paint(edge, DIM), self.paint(&text, style)));
        }
    }

    pub(super) fn truncate_to_row(self, line: &str) -> String {
        let room = self.width.unwrap_or(usize::MAX).saturating_sub(1);
        let mut taken = 0;
        let fits = |c: &char| {
            taken += columns_of_char(*c);
            taken <= room
        };
        self.paint(&line.chars().take_while(fits).collect::<String>(), DIM)
    }

    fn paint(self, text: &str, style: &str) -> String {
        if self.colours && !style.is_empty() && !text.trim().is_empty() {
            format!("{style}{text}{RESET}")
        } else {
            text.to_owned()
        }
    }
}

/// Returns whether to print colours. Any non-empty value of `NO_COLOR` turns colours off, see <https://no-color.org>.
fn colours_wanted(no_color: Option<&OsStr>) -> bool {
    no_color.is_none_or(OsStr::is_empty)
}

fn style(line: &str) -> &'static str {
    let text = line.trim_start_matches([' ', '│']);
    match text.split(' ').next().unwrap_or_default() {
        "###" | "/approve" => BOLD,
        "·" => DIM,
        "review" if text.contains(": APPROVED") => GREEN,
        "review" if text.contains(": BLOCKED") => RED,
        "review" => YELLOW,
        _ => PLAIN,
    }
}

/// Wraps text at spaces into lines of at most `room` columns. A single word that is longer, such as a link, is not
/// broken.
fn wrap_line(text: &str, room: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let line = lines.last_mut().expect("there is one line at least");
        if !line.is_empty() && count_columns(line) + 1 + count_columns(word) > room {
            lines.push(word.to_owned());
        } else {
            let space = if line.is_empty() { "" } else { " " };
            line.push_str(space);
            line.push_str(word);
        }
    }
    lines
}

fn count_columns(text: &str) -> usize {
    text.chars().map(columns_of_char).sum()
}

/// Returns the number of columns that a character occupies. The estimate is high: arrows, symbols and all characters
/// after them in Unicode count as two columns. A line that is wrapped too early does no harm.
fn columns_of_char(c: char) -> usize {
    match c {
        '│' | '…' => 1,
        c if c < '\u{2190}' => 1,
        _ => 2,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terminal_text_wraps_between_words_and_never_inside_a_link() {
        assert_eq!(wrap_line("one two three", 8), ["one two", "three"]);
        assert_eq!(wrap_line("see http://127.0.0.1:1/a/b now", 8), ["see", "http://127.0.0.1:1/a/b", "now"]);
        assert_eq!(wrap_line("✅ ✅ ✅", 5), ["✅ ✅", "✅"]);
        assert_eq!(wrap_line("a  b", usize::MAX), ["a  b"], "text that fits is unchanged");
    }

    #[test]
    fn colours_are_disabled_when_no_color_is_set() {
        assert!(colours_wanted(None) && colours_wanted(Some(OsStr::new(""))));
        assert!(!colours_wanted(Some(OsStr::new("1"))));
        let bare = Terminal { width: Some(10), colours: false };
        assert_eq!(bare.truncate_to_row("  … Draft the design (N1)"), "  … Draft");
        assert_eq!(Terminal { colours: true, ..bare }.paint("x", BOLD), "\x1b[1mx\x1b[0m");
    }
}
