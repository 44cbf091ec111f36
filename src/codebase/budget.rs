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
pub(super) struct Piece {
    /// What each form takes and what it is worth, the longest first.
    pub(super) forms: Vec<Form>,
    /// Of the ground truth, the form that it is held to.
    pub(super) floor: Option<usize>,
}

/// One way to show a piece.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Form {
    pub(super) tokens: usize,
    /// Comparable among all pieces.
    pub(super) value: f64,
}

/// What was chosen.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Choice {
    /// The form of each piece, in the order of the pieces; `None`: there is no room for it.
    pub(super) forms: Vec<Option<usize>>,
    pub(super) tokens: usize,
}

/// Chooses. Pieces that come earlier are preferred where nothing else speaks.
pub(super) fn choose(pieces: &[Piece], budget: usize) -> Choice {
    let mut chosen = Choice { forms: vec![None; pieces.len()], tokens: 0 };
    loop {
        let room = budget - chosen.tokens;
        let steps = pieces.iter().enumerate().flat_map(|(at, piece)| piece.steps(at, chosen.forms[at]));
        let best =
            steps.filter(|step| step.tokens <= room).reduce(|a, b| if b.is_before(&a) { b } else { a });
        let Some(step) = best else { return chosen };
        chosen.forms[step.piece] = Some(step.form);
        chosen.tokens += step.tokens;
    }
}

/// A longer form in place of what there is of a piece.
struct Step {
    piece: usize,
    form: usize,
    /// What it takes in addition.
    tokens: usize,
    /// First the ground truth, and of that first what there is nothing of.
    turn: u8,
    /// What a token of it brings.
    density: f64,
}

impl Step {
    /// Turn before turn, then by density. Of equals the earlier piece, and of one piece the shorter form, which come first.
    fn is_before(&self, other: &Self) -> bool {
        self.turn.cmp(&other.turn).then(other.density.total_cmp(&self.density)).is_lt()
    }
}

impl Piece {
    /// Every longer form than the one there is, from the shortest.
    fn steps(&self, at: usize, now: Option<usize>) -> impl Iterator<Item = Step> {
        let before = now.map_or(Form::default(), |form| self.forms[form]);
        let last = now.unwrap_or(self.forms.len());
        (0..last).rev().filter_map(move |form| {
            let next = self.forms[form];
            let tokens = next.tokens.checked_sub(before.tokens)?;
            let density = (next.value - before.value) / tokens.max(1) as f64;
            if self.floor.is_some_and(|floor| form >= floor) {
                // One form after the other, in the order of the pieces.
                return Some(Step { piece: at, form, tokens, turn: u8::from(now.is_some()), density: 0.0 });
            }
            (density > 0.0).then_some(Step { piece: at, form, tokens, turn: 2, density })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pieces of all kinds, the same for the same seed.
    fn pieces(seed: u64) -> Vec<Piece> {
        let mut seed = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        let mut next = |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) % below
        };
        let mut piece = || {
            let (mut tokens, mut value) = (0, 0.0);
            let mut forms: Vec<Form> = (0..next(5))
                .map(|_| {
                    tokens += next(300) as usize + 1;
                    value += (next(100) + 1) as f64 / 50.0;
                    Form { tokens, value }
                })
                .collect();
            forms.reverse();
            let floor = (next(4) == 0 && !forms.is_empty()).then(|| next(forms.len() as u64) as usize);
            Piece { forms, floor }
        };
        (0..30).map(|_| piece()).collect()
    }

    fn used(pieces: &[Piece], choice: &Choice) -> usize {
        let forms = pieces.iter().zip(&choice.forms);
        forms.filter_map(|(piece, form)| Some(piece.forms[(*form)?].tokens)).sum()
    }

    #[test]
    fn no_budget_is_exceeded_and_all_of_a_large_one_is_used() {
        for seed in 0..60 {
            let pieces = pieces(seed);
            let all: usize =
                pieces.iter().filter_map(|piece| piece.forms.first()).map(|form| form.tokens).sum();
            for budget in (0..all + 50).step_by(37) {
                let choice = choose(&pieces, budget);
                assert!(
                    choice.tokens <= budget && choice.tokens == used(&pieces, &choice),
                    "{seed} {budget}"
                );
                assert_eq!(choice, choose(&pieces, budget));
            }
            let whole: Vec<_> = pieces.iter().map(|piece| (!piece.forms.is_empty()).then_some(0)).collect();
            assert_eq!(choose(&pieces, all).forms, whole, "{seed}");
        }
    }

    #[test]
    fn the_ground_truth_has_its_place_before_anything_else() {
        for seed in 0..60 {
            let pieces = pieces(seed);
            for budget in (0..6000).step_by(41) {
                let choice = choose(&pieces, budget);
                let mut all = pieces.iter().zip(&choice.forms);
                let others = all.any(|(piece, form)| piece.floor.is_none() && form.is_some());
                // Whoever has no floor is there only if every floor that would still fit is.
                for (piece, form) in pieces.iter().zip(&choice.forms) {
                    let Some(floor) = piece.floor else { continue };
                    if !others {
                        continue;
                    }
                    let now = form.map_or(0, |form| piece.forms[form].tokens);
                    let held = form.is_some_and(|form| form <= floor);
                    let next = form
                        .unwrap_or(piece.forms.len())
                        .checked_sub(1)
                        .map_or(0, |at| piece.forms[at].tokens);
                    assert!(
                        held || next - now > budget - choice.tokens,
                        "{seed} {budget}: {piece:?} as {form:?}"
                    );
                }
            }
        }
    }

    #[test]
    fn more_budget_shows_no_less_where_nothing_was_passed_over() {
        // Steps so small that whatever is next always fits until the end.
        let even: Vec<Piece> = (1..40)
            .map(|n| Piece {
                forms: vec![
                    Form { tokens: 20, value: f64::from(n) * 1.5 },
                    Form { tokens: 10, value: f64::from(n) },
                ],
                floor: (n % 7 == 0).then_some(1),
            })
            .collect();
        let mut before = choose(&even, 0);
        for budget in (10..1000).step_by(10) {
            let now = choose(&even, budget);
            for (was, is) in before.forms.iter().zip(&now.forms) {
                assert!(was.is_none_or(|was| is.is_some_and(|is| is <= was)), "{budget}");
            }
            before = now;
        }
    }

    #[test]
    fn what_tells_most_for_its_length_comes_first() {
        let file = |tokens, value| Piece { forms: vec![Form { tokens, value }], floor: None };
        let page = Piece {
            forms: vec![Form { tokens: 900, value: 1.0 }, Form { tokens: 100, value: 0.5 }],
            floor: None,
        };
        let pieces = [file(500, 0.9), page, file(400, 0.2)];
        assert_eq!(choose(&pieces, 600).forms, [Some(0), Some(1), None]);
        assert_eq!(choose(&pieces, 1000).forms, [Some(0), Some(1), Some(0)]);
        assert_eq!(choose(&pieces, 1500).forms, [Some(0), Some(0), None]);
        assert_eq!(choose(&pieces, 99).forms, [None, None, None]);
    }
}
