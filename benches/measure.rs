//! Computes percentiles, reads memory and processor figures of processes, and prints table rows.

use std::{fmt::Display, fs, io::Write, path::Path, time::Duration};

/// Returns `full`, or `small` if `COUNTERSIGN_BENCH_SMALL` was set at build time. The small sizes serve to check
/// quickly that each part runs.
pub(crate) const fn sized(full: usize, small: usize) -> usize {
    if option_env!("COUNTERSIGN_BENCH_SMALL").is_some() { small } else { full }
}

pub(crate) fn say(line: impl Display) {
    let mut out = std::io::stdout();
    let _ = writeln!(out, "{line}");
    let _ = out.flush();
}

pub(crate) fn row(cells: &[&dyn Display]) {
    let cells: Vec<String> = cells.iter().map(ToString::to_string).collect();
    say(format_args!("| {} |", cells.join(" | ")));
}

pub(crate) fn head(cells: &[&str]) {
    say(format_args!("| {} |", cells.join(" | ")));
    say(format_args!("|{}", "---|".repeat(cells.len())));
}

/// A number of milliseconds. Small values are printed with more decimal places.
pub(crate) struct Ms(pub(crate) f64);

impl Display for Ms {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let digits = if self.0 < 10.0 { 3 } else { 1 };
        write!(f, "{:.digits$} ms", self.0)
    }
}

pub(crate) fn ms(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

/// Measured durations, in milliseconds.
#[derive(Default, Clone)]
pub(crate) struct Samples(Vec<f64>);

impl Samples {
    pub(crate) fn add(&mut self, sample: f64) {
        self.0.push(sample);
    }

    /// Sorts the samples, so that percentiles can be looked up.
    pub(crate) fn sorted(mut self) -> Sorted {
        self.0.sort_by(f64::total_cmp);
        Sorted(self.0)
    }
}

impl FromIterator<f64> for Samples {
    fn from_iter<I: IntoIterator<Item = f64>>(samples: I) -> Self {
        Self(samples.into_iter().collect())
    }
}

pub(crate) struct Sorted(Vec<f64>);

impl Sorted {
    /// Returns the percentile `share`, a number from 0 to 1.
    pub(crate) fn at(&self, share: f64) -> f64 {
        let last = self.0.len().saturating_sub(1);
        let index = ((self.0.len() as f64 * share).ceil() as usize).saturating_sub(1).min(last);
        self.0.get(index).copied().unwrap_or(f64::NAN)
    }
}

/// Returns the resident memory of a process in megabytes.
pub(crate) fn resident(pid: u32) -> f64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default();
    line.trim().trim_end_matches(" kB").parse::<f64>().map_or(f64::NAN, |kilobytes| kilobytes / 1024.0)
}

/// Returns the processor time of a process in milliseconds, with a resolution of 10 ms.
pub(crate) fn processor(pid: u32) -> f64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let after_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let ticks = after_name.split_whitespace().skip(11).take(2);
    ticks.filter_map(|field| field.parse::<f64>().ok()).sum::<f64>() * 10.0
}

/// Returns the total size, in bytes, of a database and its write-ahead log.
pub(crate) fn database_bytes(file: &Path) -> u64 {
    let beside = |ending: &str| {
        let mut name = file.as_os_str().to_owned();
        name.push(ending);
        fs::metadata(name).map_or(0, |m| m.len())
    };
    beside("") + beside("-wal")
}
