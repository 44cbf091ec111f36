//! One line that says what the bot is doing right now, where a terminal can take it back.

use std::io::{IsTerminal, Write};

use crate::{
    clock::{Clock, SystemClock},
    engine::{RunView, Status},
};

/// A step that takes less is told soon enough by its line in the transcript.
const WORTH_SHOWING_S: u64 = 1;

pub(super) struct Progress {
    terminal: bool,
    /// What stands on the line now.
    shown: String,
}

impl Progress {
    pub(super) fn new() -> Self {
        Self { terminal: std::io::stdout().is_terminal(), shown: String::new() }
    }

    /// `… N1 Draft (12 s)` while a step runs.
    pub(super) fn show(&mut self, run: &RunView) {
        let text = text(run, SystemClock.now().since(run.updated_at).as_secs());
        if self.terminal && text != self.shown {
            self.clear();
            self.write(&text);
            self.shown = text;
        }
    }

    /// Makes room for a line that stays.
    pub(super) fn clear(&mut self) {
        if !std::mem::take(&mut self.shown).is_empty() {
            self.write("\r\x1b[2K");
        }
    }

    fn write(&self, text: &str) {
        let mut out = std::io::stdout();
        // A closed pipe is not our trouble.
        let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    }
}

fn text(run: &RunView, elapsed: u64) -> String {
    match run.status {
        Status::Running if elapsed >= WORTH_SHOWING_S => {
            format!("  … {} {} ({elapsed} s)", run.step_id, run.step_title)
        }
        Status::Waiting | Status::Ready if elapsed >= WORTH_SHOWING_S => {
            let why = run.why.as_deref().unwrap_or("about to go on");
            format!("  … {} {} waits: {why}", run.step_id, run.step_title)
        }
        _ => String::new(),
    }
}
