//! Chooses which pieces fit into a token budget, and the form in which each piece is shown.
//!
//! Each piece has several forms, longest first. Required pieces get tokens first: the shortest form of each, then
//! longer forms up to the piece's required form (`floor`). After that, the upgrade with the most value per token is
//! applied repeatedly. An upgrade adds a new piece, or replaces a chosen form by a longer form.
//!
//! The order of upgrades does not depend on the budget. A larger budget therefore makes the same choices as a smaller
//! one until it applies the first upgrade that exceeded the smaller budget. The remaining tokens are spent on later
//! upgrades that still fit; these upgrades may differ between budgets. The functions are pure and deterministic.

#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct BudgetItem {
    /// Cost and value of each form, longest first.
    pub(super) forms: Vec<FormCost>,
    /// Index of the form that a required piece must at least reach; `None` if the piece is not required.
    pub(super) floor: Option<usize>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct FormCost {
    pub(super) tokens: usize,
    /// Value of the form, on the same scale for all pieces.
    pub(super) value: f64,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct BudgetSelection {
    /// Index of the chosen form of each piece, in the order of the pieces; `None` if the piece did not fit.
    pub(super) forms: Vec<Option<usize>>,
    pub(super) tokens: usize,
}

/// Chooses a form for each piece within the budget. On a tie, the earlier piece wins.
pub(super) fn select_forms(pieces: &[BudgetItem], budget: usize) -> BudgetSelection {
    let mut chosen = BudgetSelection { forms: vec![None; pieces.len()], tokens: 0 };
    loop {
        let left = budget - chosen.tokens;
        let steps = pieces.iter().enumerate().flat_map(|(at, piece)| piece.upgrades(at, chosen.forms[at]));
        let best =
            steps.filter(|step| step.tokens <= left).reduce(|a, b| if b.is_before(&a) { b } else { a });
        let Some(step) = best else { return chosen };
        chosen.forms[step.piece] = Some(step.form);
        chosen.tokens += step.tokens;
    }
}

/// An upgrade of a piece from its current form to a longer one.
struct FormUpgrade {
    piece: usize,
    form: usize,
    tokens: usize,
    /// Priority; lower values come first. 0: the shortest form of a required piece. 1: a longer form that a required
    /// piece must have. 2: replacing any piece by a longer form.
    turn: u8,
    density: f64,
}

impl FormUpgrade {
    /// Returns whether this upgrade comes before `other`: the lower turn comes first, then the higher density. Returns
    /// false on a tie, so that the earlier upgrade in the list wins. The list is ordered by piece, and by form from
    /// short to long.
    fn is_before(&self, other: &Self) -> bool {
        self.turn.cmp(&other.turn).then(other.density.total_cmp(&self.density)).is_lt()
    }
}

impl BudgetItem {
    /// Returns one upgrade for each form that is longer than the current one, shortest first.
    fn upgrades(&self, at: usize, now: Option<usize>) -> impl Iterator<Item = FormUpgrade> {
        let before = now.map_or(FormCost::default(), |form| self.forms[form]);
        let last = now.unwrap_or(self.forms.len());
        (0..last).rev().filter_map(move |form| {
            let next = self.forms[form];
            let tokens = next.tokens.checked_sub(before.tokens)?;
            let density = (next.value - before.value) / tokens.max(1) as f64;
            if self.floor.is_some_and(|floor| form >= floor) {
                // Required forms grow in the order of the pieces.
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
    fn required_context_items_are_selected_before_optional_items() {
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
    fn context_items_with_the_highest_value_per_token_are_selected_first() {
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
