//! One line that says what the bot is doing right now, where a terminal can take it back. Elsewhere a long step is told
//! of now and then.

use std::io::Write;

use super::{super::print_line, POLL_INTERVAL, terminal::Terminal};
use crate::{
    clock::{Clock, SystemClock},
    engine::{RunView, RunViewStatus},
    messages::step_name,
};

/// A step that takes less is told soon enough by its line in the transcript.
const WORTH_SHOWING_S: u64 = 1;

/// How often a long step is told of where no line can be taken back.
const WORTH_A_LINE_S: u64 = 30;

pub(super) struct ProgressLine {
    /// What stands on the line now.
    shown: String,
    /// The visit and how often it had a line.
    told: (u64, u64),
}

impl ProgressLine {
    pub(super) fn new() -> Self {
        Self { shown: String::new(), told: (0, 0) }
    }

    /// `… Draft the design (N1) (1 min 12 s)` while a step runs.
    pub(super) fn show(&mut self, run: &RunView) {
        let elapsed = SystemClock.now().since(run.updated_at).as_secs();
        self.replace_line(progress_text(run, elapsed), (run.visit, elapsed / WORTH_A_LINE_S));
    }

    /// `… Preparing the repository (12 s)` for as long as nobody drops it.
    pub(super) async fn show_preparation() {
        let (began, mut progress) = (SystemClock.now(), Self::new());
        loop {
            tokio::time::sleep(POLL_INTERVAL).await;
            let elapsed = SystemClock.now().since(began).as_secs();
            let text = format!("  … Preparing the repository ({})", format_elapsed(elapsed));
            progress.replace_line(text, (0, elapsed / WORTH_A_LINE_S));
        }
    }

    fn replace_line(&mut self, text: String, told: (u64, u64)) {
        let terminal = Terminal::detect();
        if terminal.is_terminal() && text != self.shown {
            self.clear();
            write(&terminal.truncate_to_row(&text));
            self.shown = text;
        } else if !terminal.is_terminal() && !text.is_empty() && told.1 > 0 && told != self.told {
            self.told = told;
            print_line(text);
        }
    }

    /// Makes room for a line that stays.
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
    // A closed pipe is not our trouble.
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
            let why = run.why.as_deref().unwrap_or("about to go on");
            format!("  … {step} waits ({so_long}): {why}")
        }
        _ => String::new(),
    }
}
