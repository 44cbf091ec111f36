//! Shows the current step as a progress line. On a terminal the line is overwritten in place. Without a terminal, a
//! long step is logged every 30 seconds.

use std::io::Write;

use super::{super::print_line, POLL_INTERVAL, terminal::Terminal};
use crate::{
    clock::{Clock, SystemClock},
    engine::{RunView, RunViewStatus},
    messages::step_name,
};

/// Minimum duration of a step, in seconds, before the step is shown as progress. Shorter steps appear only in the
/// transcript.
const WORTH_SHOWING_S: u64 = 1;

/// Seconds between two lines about the same long step if stdout is not a terminal.
const WORTH_A_LINE_S: u64 = 30;

pub(super) struct ProgressLine {
    /// Text that the progress line on the terminal currently shows.
    shown: String,
    /// Visit number of the step that was printed last, and the number of 30-second intervals that the step had run when
    /// it was printed.
    printed: (u64, u64),
}

impl ProgressLine {
    pub(super) fn new() -> Self {
        Self { shown: String::new(), printed: (0, 0) }
    }

    /// Shows a line such as `… Draft the design (N1) (1 min 12 s)` while a step runs.
    pub(super) fn show(&mut self, run: &RunView) {
        let elapsed = SystemClock.now().since(run.updated_at).as_secs();
        self.replace_line(progress_text(run, elapsed), (run.visit, elapsed / WORTH_A_LINE_S));
    }

    /// Shows a line such as `… Preparing the repository (12 s)` until the future is dropped.
    pub(super) async fn show_preparation() {
        let (began, mut progress) = (SystemClock.now(), Self::new());
        loop {
            tokio::time::sleep(POLL_INTERVAL).await;
            let elapsed = SystemClock.now().since(began).as_secs();
            let text = format!("  … Preparing the repository ({})", format_elapsed(elapsed));
            progress.replace_line(text, (0, elapsed / WORTH_A_LINE_S));
        }
    }

    fn replace_line(&mut self, text: String, position: (u64, u64)) {
        let terminal = Terminal::detect();
        if terminal.is_terminal() && text != self.shown {
            self.clear();
            write(&terminal.truncate_to_row(&text));
            self.shown = text;
        } else if !terminal.is_terminal() && !text.is_empty() && position.1 > 0 && position != self.printed {
            self.printed = position;
            print_line(text);
        }
    }

    /// Clears the progress line, so that a permanent line can be printed.
    pub(super) fn clear(&mut self) {
        if !std::mem::take(&mut self.shown).is_empty() {
            write("\r\x1b[2K");
        }
    }
}

impl Drop for ProgressLine {
    fn drop(&mut self) {
        self.clear();
    }
}

fn write(text: &str) {
    let mut out = std::io::stdout();
    // A closed pipe is not our problem.
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

fn format_elapsed(elapsed: u64) -> String {
    match elapsed {
        0..60 => format!("{elapsed} s"),
        _ => format!("{} min {} s", elapsed / 60, elapsed % 60),
    }
}

fn progress_text(run: &RunView, elapsed: u64) -> String {
    let step = step_name(&run.step_id, &run.step_title);
    let so_long = format_elapsed(elapsed);
    match run.status {
        _ if elapsed < WORTH_SHOWING_S => String::new(),
        RunViewStatus::Running => format!("  … {step} ({so_long})"),
        RunViewStatus::Waiting | RunViewStatus::Ready => {
            let why = run.why.as_deref().unwrap_or("about to continue");
            format!("  … {step} waits ({so_long}): {why}")
        }
        _ => String::new(),
    }
}
