//! Checks formulas and diagrams, which GitHub renders as drawings instead of showing their source. A drawing can leave
//! out part of its source, so only commands that are known to be drawn are allowed.

use super::{
    hidden_text::{SHORT_WORD_BYTES, is_listed, word_parts, words, words_beyond},
    truncate,
};

/// Formula commands that draw a symbol or their argument.
const COMMANDS: &str = "alpha beta gamma delta epsilon varepsilon zeta eta theta vartheta iota kappa lambda mu nu xi pi rho \
    sigma tau upsilon phi varphi chi psi omega Gamma Delta Theta Lambda Xi Pi Sigma Upsilon Phi Psi Omega frac dfrac tfrac \
    cfrac binom sqrt sum prod int iint oint lim limsup liminf sup inf max min arg log ln lg exp sin cos tan cot sinh cosh \
    tanh arcsin arccos arctan det dim gcd ker deg Pr mod bmod pmod operatorname le leq ge geq ne neq lt gt ll gg approx sim \
    simeq equiv cong propto prec preceq succ succeq in notin ni subset subseteq supset supseteq mid nmid parallel perp \
    vdash models cdot cdots times div pm mp ast star circ bullet oplus otimes ominus odot cup cap bigcup bigcap setminus \
    land lor lnot neg wedge vee bigwedge bigvee uplus to gets rightarrow leftarrow leftrightarrow Rightarrow Leftarrow \
    Leftrightarrow longrightarrow Longrightarrow longleftarrow mapsto longmapsto implies iff uparrow downarrow \
    hookrightarrow left right middle big Big bigg Bigg bigl bigr Bigl Bigr lfloor rfloor lceil rceil langle rangle lvert \
    rvert lVert rVert vert Vert lbrace rbrace backslash ldots dots vdots ddots hat bar vec dot ddot tilde widehat widetilde \
    overline underline overbrace underbrace overset underset stackrel boxed text textbf textit textrm texttt mathrm mathbf \
    mathit mathbb mathcal mathsf mathtt mathfrak boldsymbol displaystyle textstyle infty partial nabla forall exists \
    nexists emptyset varnothing prime ell hbar Re Im aleph angle triangle square top bot quad qquad limits nolimits \
    substack because therefore colon";

const ENVIRONMENTS: &str =
    "matrix pmatrix bmatrix vmatrix cases align aligned gather gathered split equation";

/// Text colours visible on light and dark pages.
const TEXT_COLOURS: &str = "red green blue orange purple magenta cyan teal gray";

/// Tags allowed in the text of a diagram.
const TAGS: &str = "br br/ b /b i /i em /em strong /strong u /u code /code";

/// Light colours that a diagram may use as fill.
const BACKGROUNDS: &str = "white yellow pink lightyellow lightblue lightgreen lightgray lightgrey lightpink";

/// Returns whether a formula may contain text that GitHub does not draw.
pub(super) fn formula_hides(formula: &str) -> bool {
    let mut rest = formula;
    while let Some(at) = rest.find(['\\', '%']) {
        let (sign, after) = rest[at..].split_at(1);
        let (command, after) =
            after.split_at(after.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(after.len()));
        let argument = || after.trim_start().strip_prefix('{')?.split_once('}').map(|(name, _)| name.trim());
        let known = match command {
            // Of the one-sign commands, only `\!` moves what follows back over earlier signs.
            "" => !after.starts_with('!'),
            "color" | "textcolor" => argument().is_some_and(|name| is_listed(TEXT_COLOURS, name)),
            "begin" | "end" => {
                argument().is_some_and(|name| is_listed(ENVIRONMENTS, name.trim_end_matches('*')))
            }
            _ => is_listed(COMMANDS, command),
        };
        if sign == "%" || !known {
            return true;
        }
        let escaped = after.chars().next().filter(|_| command.is_empty()).map_or(0, char::len_utf8);
        rest = &after[escaped..];
    }
    false
}

/// Returns the lines of a Mermaid diagram. The flag of each line says whether the line may contain text that the
/// drawing does not show.
pub(super) fn diagram_lines(source: &str) -> impl Iterator<Item = (&str, bool)> {
    let begins = |line: &str| ["graph", "flowchart"].iter().any(|kind| line.trim_start().starts_with(kind));
    let is_flowchart = source.lines().any(begins);
    let mut until = None;
    source.split_inclusive('\n').map(move |line| {
        let small = line.trim().to_ascii_lowercase();
        let inside = until.is_some();
        match until {
            Some(end) if small.ends_with(end) => until = None,
            None if small == "---" => until = Some("---"),
            None if small.starts_with("accdescr") && small.contains('{') && !small.contains('}') => {
                until = Some("}");
            }
            _ => {}
        }
        let hides = |statement: &str| statement_hides(statement.trim(), is_flowchart);
        (line, inside || until.is_some() || line.contains("%%") || line.split(';').any(hides))
    })
}

fn statement_hides(statement: &str, is_flowchart: bool) -> bool {
    let tokens: Vec<&str> = statement.split_whitespace().collect();
    let [first, second] = [0, 1].map(|nth| tokens.get(nth).copied().unwrap_or_default());
    let (small, rest) = (first.to_ascii_lowercase(), tokens.get(2..).unwrap_or_default().join(" "));
    let last = tokens.last().copied().unwrap_or_default();
    // A name and the text drawn in its place.
    let (name, drawn) = match first {
        "click" | "link" | "links" | "callback" | "properties" | "details" => {
            return second.starts_with(char::is_alphanumeric);
        }
        "style" | "linkStyle" | "classDef" if style_hides(&rest) => return true,
        "classDef" => (second, ""),
        "class" if is_flowchart => (last, ""),
        "participant" | "actor" if rest.starts_with("as ") => (second, &*rest),
        "state" if rest.contains("as ") => (last, second),
        "subgraph" if rest.contains('[') => (second, &*rest),
        _ => ("", ""),
    };
    small.starts_with("acctitle")
        || small.starts_with("accdescr")
        || statement.contains("@{")
        || has_other_tags(statement)
        || says_more(name, drawn)
        || is_flowchart && has_name_that_says_more(statement)
}

/// Returns whether the name of a flowchart node, or of its class, contains words that the node's label does not show.
fn has_name_that_says_more(statement: &str) -> bool {
    statement.split(|c: char| !c.is_alphanumeric() && !"_-.".contains(c)).filter(|name| !name.is_empty()).any(
        |name| {
            let at = name.as_ptr() as usize - statement.as_ptr() as usize;
            let before = statement[..at].trim_end().chars().next_back();
            let after = &statement[at + name.len()..];
            let has_label =
                after.starts_with(['[', '(', '{']) || after.starts_with('>') && !name.ends_with(['-', '.']);
            let is_name = has_label && before.is_none_or(|c| ">-=|&.".contains(c));
            (is_name || before == Some(':')) && says_more(name, truncate(after, 200))
        },
    )
}

/// Returns whether more than one short word of `name` is missing from `drawn`, the text that is drawn instead of the
/// name.
fn says_more(name: &str, drawn: &str) -> bool {
    let beyond = words_beyond(name, drawn);
    let mut unshown = word_parts(&beyond).filter(|part| part.len() > 2);
    unshown.next().is_some_and(|part| part.len() > SHORT_WORD_BYTES || unshown.next().is_some())
}

/// Returns whether a diagram's text contains tags that are not in [`TAGS`].
fn has_other_tags(statement: &str) -> bool {
    statement.match_indices('<').any(|(at, _)| {
        let inside: String = statement[at + 1..].chars().take(9).filter(|c| *c != ' ').collect();
        let is_tag = inside.starts_with(|c: char| c.is_ascii_alphabetic() || "!/?".contains(c));
        let is_known = inside.split_once('>').is_some_and(|(name, _)| is_listed(TAGS, name));
        is_tag && !is_known && !statement[..at].ends_with('<')
    })
}

/// Returns whether a style may hide text. A style may hide text if it sets more than colours and strokes, or if its
/// text colour is too similar to its background.
fn style_hides(style: &str) -> bool {
    // Mermaid's defaults are dark text on light ground.
    let (mut ground, mut text) = (Some(43), Some(9));
    let sets_more = style.split(',').filter(|property| !property.trim().is_empty()).any(|property| {
        let (name, value) = property.split_once(':').unwrap_or_default();
        let starts = |word: &str| word.starts_with(|c: char| c.is_ascii_digit());
        match (name.trim(), colour_brightness(value.trim())) {
            ("fill", colour) => ground = colour,
            ("color", colour) => text = colour,
            ("stroke", colour) => return colour.is_none(),
            ("stroke-width" | "stroke-dasharray", _) => return !words(value).all(|(_, word)| starts(word)),
            _ => return true,
        }
        false
    });
    sets_more || ground.zip(text).is_none_or(|(ground, text)| ground.abs_diff(text) < 8)
}

/// Returns the brightness of a colour, from 0 for black to 45 for white.
fn colour_brightness(colour: &str) -> Option<u32> {
    match colour.strip_prefix('#') {
        Some(hex) if matches!(hex.len(), 3 | 6) => {
            hex.chars().step_by(hex.len() / 3).map(|c| c.to_digit(16)).sum()
        }
        _ => is_listed(BACKGROUNDS, colour).then_some(40),
    }
}
