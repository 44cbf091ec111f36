//! Which pieces fit into a budget, and how much of each.
//!
//! A piece comes in several forms, the longest first. The ground truth is given its place before anything else: first the
//! shortest form of each such piece, then the form that it is held to. After that whatever is worth most for its tokens is
//! taken, one step after the other: a piece that was not there, or a longer form of one that was.
//!
//! What is worth most is settled without a look at the budget, so up to the first step that does not fit, more budget
//! shows the same and more. The little room that is left then is filled with steps that do fit, and of those another
//! budget may take others. Pure, and the same for the same input.

/// Something to show.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct BudgetItem {
    /// What each form takes and what it is worth, the longest first.
    pub(super) forms: Vec<FormCost>,
    /// Of the ground truth, the form that it is held to.
    pub(super) floor: Option<usize>,
}

/// One way to show a piece.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct FormCost {
    pub(super) tokens: usize,
    /// Comparable among all pieces.
    pub(super) value: f64,
}

/// What was chosen.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct BudgetSelection {
    /// The form of each piece, in the order of the pieces; `None`: there is no room for it.
    pub(super) forms: Vec<Option<usize>>,
    pub(super) tokens: usize,
}

/// Chooses. Pieces that come earlier are preferred where nothing else speaks.
pub(super) fn select_forms(pieces: &[BudgetItem], budget: usize) -> BudgetSelection {
    let mut chosen = BudgetSelection { forms: vec![None; pieces.len()], tokens: 0 };
    loop {
        let room = budget - chosen.tokens;
        let steps = pieces.iter().enumerate().flat_map(|(at, piece)| piece.upgrades(at, chosen.forms[at]));
        let best =
            steps.filter(|step| step.tokens <= room).reduce(|a, b| if b.is_before(&a) { b } else { a });
        let Some(step) = best else { return chosen };
        chosen.forms[step.piece] = Some(step.form);
        chosen.tokens += step.tokens;
    }
}

/// A longer form in place of what there is of a piece.
struct FormUpgrade {
    piece: usize,
    form: usize,
    /// What it takes in addition.
    tokens: usize,
    /// First the ground truth, and of that first what there is nothing of.
    turn: u8,
    /// What a token of it brings.
    density: f64,
}

impl FormUpgrade {
    /// Turn before turn, then by density. Of equals the earlier piece, and of one piece the shorter form, which come first.
    fn is_before(&self, other: &Self) -> bool {
        self.turn.cmp(&other.turn).then(other.density.total_cmp(&self.density)).is_lt()
    }
}

impl BudgetItem {
    /// Every longer form than the one there is, from the shortest.
    fn upgrades(&self, at: usize, now: Option<usize>) -> impl Iterator<Item = FormUpgrade> {
        let before = now.map_or(FormCost::default(), |form| self.forms[form]);
        let last = now.unwrap_or(self.forms.len());
        (0..last).rev().filter_map(move |form| {
            let next = self.forms[form];
            let tokens = next.tokens.checked_sub(before.tokens)?;
            let density = (next.value - before.value) / tokens.max(1) as f64;
            if self.floor.is_some_and(|floor| form >= floor) {
                // One form after the other, in the order of the pieces.
                return Some(FormUpgrade {
                    piece: at,
                    form,
                    tokens,
                    turn: u8::from(now.is_some()),
                    density: 0.0,
                });
            }
            (density > 0.0).then_some(FormUpgrade { piece: at, form, tokens, turn: 2, density })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ground_truth_has_its_place_before_anything_else() {
        let form = |tokens, value| FormCost { tokens, value };
        let held = |value| BudgetItem {
            forms: vec![form(300, value), form(100, 0.0), form(10, 0.0)],
            floor: Some(1),
        };
        let pieces = [BudgetItem { forms: vec![form(50, 9.0)], floor: None }, held(0.1), held(0.1)];
        assert_eq!(select_forms(&pieces, 60).forms, [None, Some(2), Some(2)]);
        assert_eq!(select_forms(&pieces, 150).forms, [None, Some(1), Some(2)]);
        assert_eq!(select_forms(&pieces, 250).forms, [Some(0), Some(1), Some(1)]);
    }

    #[test]
    fn what_tells_most_for_its_length_comes_first() {
        let file = |tokens, value| BudgetItem { forms: vec![FormCost { tokens, value }], floor: None };
        let page = BudgetItem {
            forms: vec![FormCost { tokens: 900, value: 1.0 }, FormCost { tokens: 100, value: 0.5 }],
            floor: None,
        };
        let pieces = [file(500, 0.9), page, file(400, 0.2)];
        assert_eq!(select_forms(&pieces, 600).forms, [Some(0), Some(1), None]);
        assert_eq!(select_forms(&pieces, 1000).forms, [Some(0), Some(1), Some(0)]);
        assert_eq!(select_forms(&pieces, 1500).forms, [Some(0), Some(0), None]);
        assert_eq!(select_forms(&pieces, 99).forms, [None, None, None]);
    }
}
