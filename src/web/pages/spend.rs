//! Spend on models: billed amounts, amounts reserved for calls, and the list price of calls that subscriptions cover.

use std::{cmp::Reverse, collections::BTreeMap};

use askama::Template;
use axum::{
    Extension,
    extract::{Query, State},
};
use serde::Deserialize;

use super::{
    OperatorPageResult, PageFrame, PagesState, filters,
    page_sessions::PageSession,
    render_page,
    runs::{self, truncate},
    svg::{CHART_HEIGHT, SpendChart, draw_chart},
};
use crate::{
    store::{DailySpend, Spending},
    types::Timestamp,
};

/// Number of days shown by default.
const DEFAULT_DAYS: u64 = 30;

/// Maximum number of rows per table.
const MAX_TABLE_ROWS: usize = 300;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct SpendQuery {
    /// First day to show, such as `2026-03-01`.
    since: String,
}

#[derive(Template)]
#[template(path = "spend.html")]
struct SpendPage {
    page: PageFrame,
    month: Spending,
    since: String,
    chart: SpendChart,
    height: usize,
    tables: Vec<SpendTable>,
    notices: Vec<String>,
}

struct SpendTable {
    title: &'static str,
    heads: &'static [&'static str],
    rows: Vec<(Vec<String>, Spending)>,
    /// Number of rows left out because of the table's limit.
    more: usize,
}

impl SpendTable {
    fn grouped_by(
        title: &'static str,
        heads: &'static [&'static str],
        lines: &[&DailySpend],
        key: impl Fn(&DailySpend) -> Vec<String>,
    ) -> Self {
        let mut sums = BTreeMap::<_, Spending>::new();
        for line in lines {
            let sum = sums.entry(key(line)).or_default();
            *sum = sum.plus(&line.spent);
        }
        let (more, mut rows) =
            (sums.len().saturating_sub(MAX_TABLE_ROWS), Vec::from_iter(sums.into_iter().rev()));
        // Rows by day stay newest first; other tables are sorted by cost.
        if heads[0] != "Day" {
            rows.sort_by_key(|(_, sum)| Reverse((sum.billed.plus(sum.held).plus(sum.notional).0, sum.calls)));
        }
        rows.truncate(MAX_TABLE_ROWS);
        Self { title, heads, rows, more }
    }
}

pub(super) async fn page(
    State(pages): PagesState,
    Extension(visit): Extension<PageSession>,
    Query(wanted): Query<SpendQuery>,
) -> OperatorPageResult {
    let control = &pages.operator.control;
    let now = control.clock.now();
    let (since, wrong) = first_day(&wanted.since, now);
    let month = now.month_start();
    let (lines, left_out) = control.store.spend_since(None, since.min(month)).await?;
    let mut notices = runs::unreadable_notices(&pages, &left_out).await?;
    notices.extend(wrong);
    let this_month = lines.iter().filter(|line| line.day >= month);
    let month = this_month.fold(Spending::default(), |sum, line| sum.plus(&line.spent));
    let lines: Vec<_> = lines.iter().filter(|line| line.day >= since).collect();
    let names = runs::repository_names(&pages, lines.iter().map(|line| line.repo)).await?;
    let day = |line: &DailySpend| format_day(line.day);
    let tables = vec![
        SpendTable::grouped_by("By repository", &["Repository"], &lines, |line| {
            vec![names[&line.repo].clone()]
        }),
        SpendTable::grouped_by("By workflow and role", &["Workflow", "Role"], &lines, |line| {
            vec![line.workflow.clone(), line.role.clone()]
        }),
        SpendTable::grouped_by("By model", &["Model"], &lines, |line| vec![truncate(&line.model, 80)]),
        SpendTable::grouped_by("All", &["Day", "Workflow", "Role", "Model"], &lines, |line| {
            vec![day(line), line.workflow.clone(), line.role.clone(), truncate(&line.model, 80)]
        }),
    ];
    let by_day: Vec<_> = lines.iter().map(|line| (line.day, line.spent)).collect();
    let chart = draw_chart(&by_day, since, now);
    let page = PageFrame::new("Spend", &visit);
    render_page(&SpendPage {
        page,
        month,
        since: format_day(since),
        chart,
        height: CHART_HEIGHT,
        tables,
        notices,
    })
}

/// Returns the first day to show. If the requested day is invalid, also returns a notice.
fn first_day(text: &str, now: Timestamp) -> (Timestamp, Option<String>) {
    let usual = now.minus(std::time::Duration::from_secs((DEFAULT_DAYS - 1) * 24 * 3600)).day_start();
    match Timestamp::parse(&format!("{text}T00:00:00Z")) {
        _ if text.is_empty() => (usual, None),
        Ok(since) if since <= now => (since, None),
        _ => {
            let notice = format!(
                "“{}” is not a day up to today: the last {DEFAULT_DAYS} days are shown.",
                truncate(text, 40)
            );
            (usual, Some(notice))
        }
    }
}

fn format_day(at: Timestamp) -> String {
    at.to_string()[..10].to_owned()
}
