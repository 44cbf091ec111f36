//! Plain SVG drawings without scripts or styles: a workflow's graph, and spend by day.

use std::collections::HashSet;

use crate::{
    engine::StepInfo,
    store::Spending,
    types::{MicroUsd, Timestamp},
};

const BOX: (usize, usize) = (184, 44);
const GAP: (usize, usize) = (20, 34);
/// Width of the margin on each side of the boxes, in which edges pass rows that they skip.
const LANE: usize = 56;
/// Maximum number of characters of a step title in its box.
const TITLE: usize = 26;

/// A workflow's graph, laid out for drawing.
pub(super) struct GraphDrawing {
    pub(super) width: usize,
    pub(super) height: usize,
    pub(super) boxes: Vec<StepBox>,
    pub(super) arrows: Vec<StepArrow>,
}

/// A step and its position in the drawing.
pub(super) struct StepBox {
    pub(super) x: usize,
    pub(super) y: usize,
    pub(super) step: StepInfo,
    /// Title of the step, truncated to fit the box.
    pub(super) title: String,
    /// CSS class for the progress of the run: `now`, `done` or `ahead`.
    pub(super) class: &'static str,
    /// Ids of the steps that may follow this step.
    pub(super) next: Vec<&'static str>,
}

impl StepBox {
    pub(super) fn middle(&self) -> usize {
        self.x + BOX.0 / 2
    }
}

pub(super) struct StepArrow {
    pub(super) path: String,
    /// Whether the arrow points to the same row or an earlier one.
    pub(super) back: bool,
}

/// Lays out steps in rows. Apart from loops, each step is below all steps that lead to it. Edges that close a loop are
/// drawn upwards on the right.
pub(super) fn draw_graph(
    steps: &[StepInfo],
    edges: &[(&'static str, &'static str)],
    been: &HashSet<&str>,
    now: &str,
) -> GraphDrawing {
    let at = |id: &str| steps.iter().position(|step| step.id == id);
    let edges: Vec<(usize, usize)> =
        edges.iter().filter_map(|(from, to)| Some((at(from)?, at(to)?))).collect();
    let rows = step_rows(steps.len(), &edges);
    let widest = (0..steps.len()).map(|row| rows.iter().filter(|of| **of == row).count()).max().unwrap_or(0);
    let inner = widest * (BOX.0 + GAP.0);
    let mut boxes = Vec::with_capacity(steps.len());
    for (step, row) in rows.iter().enumerate() {
        let before = rows[..step].iter().filter(|of| *of == row).count();
        // Rows are left-aligned, so that a narrow page shows their start without scrolling.
        let x = LANE + before * (BOX.0 + GAP.0) + GAP.0 / 2;
        let info = steps[step];
        let class = match info.id {
            id if id == now => "now",
            id if been.contains(id) => "done",
            _ => "ahead",
        };
        let mut title: String = info.title.chars().take(TITLE).collect();
        if title.len() < info.title.len() {
            title.push('…');
        }
        let next = edges.iter().filter(|(from, _)| *from == step).map(|(_, to)| steps[*to].id).collect();
        boxes.push(StepBox { x, y: row * (BOX.1 + GAP.1) + 4, step: info, title, class, next });
    }
    let width = inner + 2 * LANE;
    let arrows =
        edges.iter().map(|(from, to)| draw_arrow(&boxes, width, (*from, rows[*from]), (*to, rows[*to])));
    let arrows = arrows.collect();
    let height = rows.iter().max().map_or(0, |last| (last + 1) * (BOX.1 + GAP.1));
    GraphDrawing { width, height, boxes, arrows }
}

fn draw_arrow(
    boxes: &[StepBox],
    width: usize,
    (from, above): (usize, usize),
    (to, below): (usize, usize),
) -> StepArrow {
    let (from, to) = (&boxes[from], &boxes[to]);
    let middle = |drawn: &StepBox| drawn.y + BOX.1 / 2;
    let path = match below.checked_sub(above) {
        Some(1) => {
            let (x1, y1, x2, y2) = (from.middle(), from.y + BOX.1, to.middle(), to.y);
            format!("M{x1} {y1} C{x1} {0} {x2} {0} {x2} {y2}", y1.midpoint(y2))
        }
        // The edge bypasses rows on the left.
        Some(2..) => {
            let lane = LANE.saturating_sub(8 * (below - above)).max(6);
            format!("M{} {} C{lane} {1} {lane} {3} {} {}", from.x, middle(from), to.x, middle(to))
        }
        _ => {
            let (x1, x2) = (from.x + BOX.0, to.x + BOX.0);
            // An edge to the same step stays next to its box.
            let lane = match above - below {
                0 => x1.max(x2) + GAP.0,
                rows => width - LANE.saturating_sub(8 * (rows + 1)).max(6),
            };
            let (y1, y2) = (middle(from) + 6, middle(to) - 6);
            format!("M{x1} {y1} C{lane} {y1} {lane} {y2} {x2} {y2}")
        }
    };
    StepArrow { path, back: below <= above }
}

/// Returns the row number of each step: the length of the longest loop-free path from the first step to that step.
fn step_rows(steps: usize, edges: &[(usize, usize)]) -> Vec<usize> {
    let mut order = Vec::with_capacity(steps);
    let mut seen = vec![false; steps];
    for first in 0..steps {
        visit_step(first, edges, &mut seen, &mut order);
    }
    // In reverse postorder only edges that close a loop point backwards.
    order.reverse();
    let mut rows = vec![0; steps];
    for (nth, step) in order.iter().enumerate() {
        let (before, row) = (&order[..=nth], rows[*step] + 1);
        for (_, to) in edges.iter().filter(|(from, to)| from == step && !before.contains(to)) {
            rows[*to] = rows[*to].max(row);
        }
    }
    rows
}

fn visit_step(step: usize, edges: &[(usize, usize)], seen: &mut [bool], order: &mut Vec<usize>) {
    if std::mem::replace(&mut seen[step], true) {
        return;
    }
    for (_, to) in edges.iter().filter(|(from, _)| *from == step) {
        visit_step(*to, edges, seen, order);
    }
    order.push(step);
}

/// Bar chart of the spend per day.
pub(super) struct SpendChart {
    pub(super) bars: Vec<SpendBar>,
    pub(super) width: usize,
    /// Amount that the highest bar stands for.
    pub(super) most: MicroUsd,
}

pub(super) struct SpendBar {
    pub(super) x: usize,
    pub(super) day: String,
    pub(super) spent: Spending,
    /// Height of the lower part of the bar: the billed plus the reserved amounts. The part for the list price is
    /// stacked on top.
    pub(super) counted: usize,
    pub(super) notional: usize,
}

pub(super) const CHART_HEIGHT: usize = 120;
const BAR: usize = 14;

/// Draws a bar for each day from `since` to `now`, including days without spend. At most the latest 366 days are drawn.
pub(super) fn draw_chart(spent: &[(Timestamp, Spending)], since: Timestamp, now: Timestamp) -> SpendChart {
    let mut days = vec![];
    let mut day = now.day_start();
    while day >= since.day_start() && days.len() < 366 {
        days.push(day);
        day = Timestamp(day.0 - 1).day_start();
    }
    days.reverse();
    let of = |day: &Timestamp| {
        let its = spent.iter().filter(|(at, _)| at == day);
        its.fold(Spending::default(), |sum, (_, spent)| sum.plus(spent))
    };
    let sums: Vec<_> = days.iter().map(|day| (*day, of(day))).collect();
    let counted = |spent: &Spending| spent.billed.plus(spent.held);
    let most = sums.iter().map(|(_, spent)| counted(spent).plus(spent.notional)).max_by_key(|sum| sum.0);
    let most = most.unwrap_or_default();
    let high = |part: u64| {
        let share = part.saturating_mul(CHART_HEIGHT as u64 - 10).checked_div(most.0).unwrap_or(0);
        usize::try_from(share).unwrap_or(0) + usize::from(part > 0)
    };
    let bars = sums.into_iter().enumerate().map(|(nth, (day, spent))| SpendBar {
        x: nth * BAR,
        day: day.to_string()[..10].to_owned(),
        spent,
        counted: high(counted(&spent).0),
        notional: high(spent.notional.0),
    });
    let bars: Vec<_> = bars.collect();
    SpendChart { width: (bars.len() * BAR).max(1), bars, most }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workflows;

    #[test]
    fn chart_draws_steps_below_their_predecessors_except_in_loops() {
        let edges = [(0, 1), (1, 2), (2, 1), (1, 3), (2, 3), (3, 3), (3, 0)];
        assert_eq!(step_rows(4, &edges), [0, 1, 2, 3]);
        assert_eq!(step_rows(0, &[]), [0; 0]);
    }

    #[test]
    fn every_workflow_is_drawn_without_overlapping_boxes() {
        for workflow in workflows::ALL {
            let (steps, edges) = (workflow.steps(), workflow.edges());
            let drawn = draw_graph(&steps, &edges, &HashSet::from([steps[0].id]), steps[1].id);
            assert_eq!((drawn.boxes.len(), drawn.arrows.len()), (steps.len(), edges.len()));
            assert_eq!((drawn.boxes[0].class, drawn.boxes[1].class), ("done", "now"));
            for (nth, one) in drawn.boxes.iter().enumerate() {
                assert!(one.x + BOX.0 <= drawn.width && one.y + BOX.1 <= drawn.height, "{}", workflow.name());
                let apart = |other: &StepBox| one.y != other.y || one.x.abs_diff(other.x) >= BOX.0;
                assert!(drawn.boxes[..nth].iter().all(apart), "{} {}", workflow.name(), one.step.id);
            }
            assert!(drawn.arrows.iter().any(|arrow| !arrow.back));
        }
    }

    #[test]
    fn chart_has_a_bar_for_every_day() {
        let day = |text: &str| Timestamp::parse(text).unwrap();
        let spent = Spending { billed: MicroUsd(5), ..Spending::default() };
        let (since, now) = (day("2026-01-30T07:00:00Z"), day("2026-02-02T01:00:00Z"));
        let drawn = draw_chart(&[(day("2026-01-31T00:00:00Z"), spent)], since, now);
        let days: Vec<_> = drawn.bars.iter().map(|bar| (bar.day.as_str(), bar.counted > 0)).collect();
        let wanted =
            [("2026-01-30", false), ("2026-01-31", true), ("2026-02-01", false), ("2026-02-02", false)];
        assert_eq!(days, wanted);
    }
}
