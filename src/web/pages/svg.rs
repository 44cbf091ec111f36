//! Pictures in plain SVG, without a script or a style of their own: a workflow's graph, and what was spent by day.

use std::collections::HashSet;

use crate::{
    engine::StepInfo,
    store::Spending,
    types::{MicroUsd, Timestamp},
};

const BOX: (usize, usize) = (184, 44);
const GAP: (usize, usize) = (20, 34);
/// At either side of the boxes, for the edges that pass some.
const LANE: usize = 56;
/// Characters of a title that a box has room for.
const TITLE: usize = 26;

/// A graph as it is drawn.
pub(super) struct GraphDrawing {
    pub(super) width: usize,
    pub(super) height: usize,
    pub(super) boxes: Vec<StepBox>,
    pub(super) arrows: Vec<StepArrow>,
}

/// A step in its place.
pub(super) struct StepBox {
    pub(super) x: usize,
    pub(super) y: usize,
    pub(super) step: StepInfo,
    /// As much of it as the box has room for.
    pub(super) title: String,
    /// `now`, `done` or `ahead`.
    pub(super) class: &'static str,
    /// The ids of the steps that may follow.
    pub(super) next: Vec<&'static str>,
}

impl StepBox {
    pub(super) fn middle(&self) -> usize {
        self.x + BOX.0 / 2
    }
}

pub(super) struct StepArrow {
    pub(super) path: String,
    /// Against the order of the rows.
    pub(super) back: bool,
}

/// Lays out steps in rows: each below all that lead to it, where no loop does. Edges of a loop go back at the right.
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
        // From the left: on a narrow page that is what one sees without moving it.
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
        // It passes rows at the left.
        Some(2..) => {
            let lane = LANE.saturating_sub(8 * (below - above)).max(6);
            format!("M{} {} C{lane} {1} {lane} {3} {} {}", from.x, middle(from), to.x, middle(to))
        }
        _ => {
            let (x1, x2) = (from.x + BOX.0, to.x + BOX.0);
            // What goes back to the same step stays beside it.
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

/// The row of each step: that of the longest path to it which goes round no loop. The first step is where it begins.
fn step_rows(steps: usize, edges: &[(usize, usize)]) -> Vec<usize> {
    let mut order = Vec::with_capacity(steps);
    let mut seen = vec![false; steps];
    for first in 0..steps {
        visit_step(first, edges, &mut seen, &mut order);
    }
    // Backwards it is an order in which only the edges that close a loop lead to what was before.
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

/// What was spent on each of so many days, as bars.
pub(super) struct SpendChart {
    pub(super) bars: Vec<SpendBar>,
    pub(super) width: usize,
    /// The highest bar's.
    pub(super) most: MicroUsd,
}

pub(super) struct SpendBar {
    pub(super) x: usize,
    pub(super) day: String,
    pub(super) spent: Spending,
    /// Of the bill, what is held back for it included, and by list price on top of it.
    pub(super) counted: usize,
    pub(super) notional: usize,
}

pub(super) const CHART_HEIGHT: usize = 120;
const BAR: usize = 14;

/// The days from `since` to `now`, those on which nothing was spent among them, but no more than a year's newest.
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
    fn each_step_stands_below_what_leads_to_it_and_loops_go_back() {
        let edges = [(0, 1), (1, 2), (2, 1), (1, 3), (2, 3), (3, 3), (3, 0)];
        assert_eq!(step_rows(4, &edges), [0, 1, 2, 3]);
        assert_eq!(step_rows(0, &[]), [0; 0]);
    }

    #[test]
    fn every_workflow_is_drawn_whole_and_no_two_boxes_meet() {
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
    fn a_chart_has_a_bar_for_every_day() {
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
