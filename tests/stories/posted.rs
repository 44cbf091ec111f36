//! Fuzz tests of posted comments. Regardless of the text that a model writes, the rendered comment must be inert.
//!
//! The tests share no code with the cleaner. They render each comment with comrak and check the HTML. If cmark-gfm is
//! installed, they also check its HTML; `COUNTERSIGN_TEST_CMARK` names the program and makes it mandatory.

use std::{
    collections::BTreeMap,
    io::Write,
    iter::repeat_with,
    process::{Command, Stdio},
    sync::LazyLock,
};

use countersign::{
    documents::{
        findings::{Finding, FindingStatus},
        verdict::FindingSeverity,
    },
    github::{OutboundBody, outbound::clean},
    messages::{
        ApprovalProgress, ApproveLine, Author, GateCard, GateState, OwnedFiles, Provenance,
        gate_comment as posted, join_replies,
    },
    types::{Hash, IssueNo, RepoId, RunId, Verdict},
};

const BATCH: usize = 500;

/// Returns a gate comment with `line` in all short fields and `texts` in the long ones. Also asserts that cleaning a
/// text twice gives the same result as cleaning it once.
fn gate(line: &str, texts: [&str; 3]) -> OutboundBody {
    let once = clean(texts[0], 6_000);
    assert_eq!(clean(once.as_str(), 6_000), once, "{:?}", texts[0]);
    let [rationale, detail, summary] = texts.map(str::to_owned);
    let finding = Finding {
        id: "F1".into(),
        round: 1,
        last_round: 1,
        severity: FindingSeverity::High,
        category: line.into(),
        place: line.into(),
        title: line.into(),
        detail,
        status: FindingStatus::Open,
        why: line.into(),
        must_fix: false,
        declined: false,
        reply: None,
        answer: None,
    };
    posted(&GateCard {
        stage: "lld".into(),
        skips_review: false,
        state: GateState::Waits(ApproveLine::approve("lld", Hash::digest(b"s"), &[])),
        provenance: Provenance {
            run: RunId { repo: RepoId(1), seq: 1 },
            document: Hash::digest(b"d"),
            verdict: Some(Verdict::Approved),
            drafter: Author::Model {
                served: Some(line.into()),
                family: None,
                in_place_of: Some([line.into(), line.into()]),
            },
            reviewer: Author::Nobody,
            acceptance: None,
            subject: None,
            audit: None,
            cost: None,
            rehearsal: false,
        },
        round: 1,
        inconclusive: None,
        reviewer_now: None,
        rationale,
        unchanged: None,
        findings: vec![finding.clone()],
        dismissed: vec![finding],
        requirements: BTreeMap::from([(line.to_owned(), line.to_owned())]),
        diff: Some(summary.clone()),
        executed: Vec::new(),
        report: None,
        whole: None,
        questions: vec![summary.clone()],
        since: Some(summary.clone()),
        summary,
        overridable: true,
        others: Vec::new(),
        abandoned_branch: None,
        authorship: vec![],
        overlaps: vec![(IssueNo(7), vec![line.into()])],
        approvals: Some(ApprovalProgress {
            needed: 2,
            approved_by: vec![line.into()],
            excluded_requester: None,
            needs_owners: true,
            owned: vec![OwnedFiles {
                files: vec![line.into()],
                more: 0,
                owners: vec![line.into()],
                unknown_owners: vec![line.into()],
                has_no_owner: false,
                approved: true,
            }],
        }),
        edited_by: Some(line.into()),
        issue_diff: None,
        reason: None,
        document_url: None,
        pull_url: None,
        status_url: None,
    })
}

/// Beginnings of the top-level parts that the HTML of a gate comment must contain in this order. Texts by models may
/// add further parts in between.
const FRAME: [&str; 11] = [
    "<h3>✅ APPROVED: the design waits for a person (1 open finding)</h3>",
    "<table>\n<thead>\n<tr>\n<th></th>\n<th>Severity</th>",
    "<details><summary>Details of the findings</summary>",
    "<p><strong>F1</strong>",
    "</details>",
    "<details><summary>Summary of the design</summary>",
    "</details>",
    "<pre><code>/approve lld ",
    "<p><strong>1 of 2 approvals</strong>",
    "<table>\n<thead>\n<tr>\n<th>Files</th>",
    "<p><sub>Run 1-1 ",
];

/// Hazardous fragments from which random texts are built.
static WORDS: LazyLock<Vec<&str>> = LazyLock::new(|| {
    let words = "@mona·Fixes #1·a·b c· ·  ·`·``·```·~~~·~~·*·**·***·_·|·||·\\·<·>·<b>·</b>·<zz a=\"`\">·<!--·-->·[·]·[^·[^a]·\
        </details>·<details>·<pre>·</pre>·![x](https://e/p.png)·![·](·)·(·[x]·[a][x]·[ ]·é·$·!·#·-·=·%·\t·\u{200b}·\u{1f}·\
        [x]: /o/r/issues/1·[//]: # (@mona)·[l](//github.com/o/r/issues/1)·[l](/o/r/pull/1 \"@mona\")·&commat;mona·\
        &#35;1·&#10;·&#9;·&nbsp;·&lt;b>·https://github.com/o/r/issues/1·www.e.x/`·http://e/·m@e.x·mailto:m@e.x·GH-1·\
        o/r#1·/approve·\\@mona·<https://e.x>·a*b_c";
    words.split('·').collect()
});
static OPENINGS: LazyLock<Vec<&str>> = LazyLock::new(|| {
    let openings = "···· ·  ·   ·    ·\t·> ·>·\t>·  >·- ·-\t·  - ·1. ·1) ·10. ·* ·+ ·# ·## ·```·    ```·  ```·~~~·\
        ```mermaid·~~~ math·- ```·> ```·|-|-|·- |-·|-·:-·---·===·[^a]: ·|·- [ ] ";
    openings.split('·').collect()
});

struct TextGenerator(u64);

impl TextGenerator {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % n as u64).expect("the remainder fits in usize")
    }

    fn of(&mut self, from: &[&'static str]) -> &'static str {
        from[self.below(from.len())]
    }

    fn line(&mut self) -> String {
        (0..self.below(6)).map(|_| self.of(&WORDS)).collect()
    }

    fn text(&mut self, lines: usize) -> String {
        const ENDS: [&str; 8] = ["\n", "\n", "\n", "\n\n", "\r\n", " \\\n", "  \n", ""];
        let lines = self.below(lines);
        let line = |_| [self.of(&OPENINGS), self.of(&OPENINGS), &self.line(), self.of(&ENDS)].concat();
        let text: String = (0..=lines).map(line).collect();
        // The gate omits a blank text and its frame.
        if text.trim().is_empty() { "–".to_owned() } else { text }
    }

    fn gate(&mut self, lines: usize) -> OutboundBody {
        let [rationale, detail, summary] = [(); 3].map(|()| self.text(lines));
        gate(&self.line(), [&rationale, &detail, &summary])
    }
}

/// Checks that rendered Markdown is inert and balanced. For each top-level element, returns the HTML from that element
/// to the end.
///
/// # Errors
/// The first active tag, trigger or unbalanced element.
pub(crate) fn check_html(html: &str) -> Result<Vec<&str>, String> {
    const TAGS: &str = "p h1 h2 h3 h4 h5 h6 em strong del code pre ul ol li blockquote table thead tbody tr th td a br hr \
        details summary sub";
    let (mut open, mut begins, mut line) = (Vec::new(), Vec::new(), String::new());
    for (at, _) in html.match_indices('<') {
        let here = &html[at + 1..];
        let (tag, text) = here[..here.find('<').unwrap_or(here.len())].split_once('>').ok_or("a bare <")?;
        let (name, with) = tag.split_once(' ').unwrap_or((tag, ""));
        let (key, value) = with.split_once("=\"").unwrap_or((with, ""));
        let word = value.trim_end_matches('"').trim_start_matches("language-");
        let drawn = ["mermaid", "geojson", "topojson", "stl", "math"].contains(&word.to_lowercase().as_str());
        let harmless = match key {
            "" | "/" | "open" | "align" | "start" => true,
            "class" | "lang" => !drawn,
            "href" => value.starts_with("http") && !value.contains("github.com"),
            _ => false,
        };
        let known = TAGS.split(' ').any(|known| known == name.trim_start_matches('/'));
        let sound = known && harmless && value.matches('"').count() < 2;
        // The bot's own markers, at the top level.
        if !(sound || with.starts_with("countersign:") && open.is_empty()) {
            return Err(format!("the tag {tag}"));
        }
        if open.iter().all(|name| *name == "details") && (!name.starts_with('/') || name == "/details") {
            begins.push(&html[at..]);
        }
        match name.strip_prefix('/') {
            Some(name) if open.pop() == Some(name) => {}
            Some(_) => return Err(format!("{tag} closes another element")),
            None if ["br", "hr", "!--"].contains(&name) => {}
            None => open.push(name),
        }
        if !["code", "em", "strong", "del", "a"].contains(&name.trim_start_matches('/')) {
            line.clear();
        }
        let written = open.iter().any(|name| ["code", "pre", "a"].contains(name));
        if !written && let Some(acting) = find_trigger(text, &line) {
            return Err(format!("{acting} in {text:?}"));
        }
        line += text;
    }
    if open.is_empty() { Ok(begins) } else { Err(format!("{open:?} is left open")) }
}

/// Returns the kind of the first text outside code to which GitHub or another bot would react, such as a mention.
fn find_trigger(text: &str, line: &str) -> Option<&'static str> {
    if !text.contains(['@', '#', '/', '-', '\n']) {
        return None;
    }
    let text = text.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", "\"").replace("&amp;", "&");
    text.match_indices(['@', '#', '/', '-', '\n']).find_map(|(at, sign)| {
        let (before, after) = (&text[..at], text[at + 1..].bytes().next().unwrap_or(b' '));
        let word = before.rsplit(|c: char| !c.is_ascii_alphanumeric()).next().unwrap_or_default();
        let begins = || {
            !(line.to_owned() + before)
                .rsplit('\n')
                .next()
                .unwrap_or_default()
                .contains(char::is_alphanumeric)
        };
        match sign {
            "@" if after.is_ascii_alphanumeric() => Some("a mention"),
            "#" if after.is_ascii_digit() => Some("a reference"),
            "-" if after.is_ascii_digit() && word.eq_ignore_ascii_case("gh") => Some("a reference"),
            "/" if after == b'/' && before.ends_with(':') => Some("an address"),
            "/" if after.is_ascii_alphabetic() && begins() => Some("a command"),
            _ => None,
        }
    })
}

/// Checks that a gate comment is inert and contains all parts of `FRAME` in order.
fn whole(html: &str) -> Result<(), String> {
    let mut left = FRAME.iter().peekable();
    for here in check_html(html)? {
        left.next_if(|part| here.starts_with(**part));
    }
    left.next().map_or(Ok(()), |part| Err(format!("{part} is missing or out of order")))
}

pub(crate) fn render_comrak(text: &str) -> String {
    let mut options = comrak::Options::default();
    options.extension.table = true;
    options.extension.footnotes = true;
    options.extension.autolink = true;
    options.extension.strikethrough = true;
    options.extension.tasklist = true;
    options.render.r#unsafe = true;
    comrak::markdown_to_html(text, &options)
}

/// Renders many comments as one document with cmark-gfm and splits the result at headings between the comments. A
/// comment that leaves an element open would swallow the next heading. Returns `None` if cmark-gfm is not installed.
fn render_cmark(texts: &[String]) -> Option<Vec<String>> {
    let named = std::env::var("COUNTERSIGN_TEST_CMARK");
    let cmark = Command::new(named.as_deref().unwrap_or("cmark-gfm"))
        .args("--unsafe -e table -e footnotes -e autolink -e strikethrough -e tasklist".split(' '))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn();
    let mut cmark = match (cmark, named) {
        (Err(why), Ok(named)) => panic!("{named}: {why}"),
        (cmark, _) => cmark.ok()?,
    };
    let (mut stdin, all) = (cmark.stdin.take().unwrap(), texts.join("\n\n# the next comment\n\n"));
    let writer = std::thread::spawn(move || stdin.write_all(all.as_bytes()));
    let out = cmark.wait_with_output().unwrap();
    writer.join().unwrap().unwrap();
    let html = String::from_utf8(out.stdout).unwrap();
    Some(html.split("<h1>the next comment</h1>\n").map(str::to_owned).collect())
}

/// Checks each text as rendered by comrak. If cmark-gfm renders a text differently, checks that result, too.
#[track_caller]
#[expect(clippy::print_stdout, reason = "a skipped test says so")]
fn assert_rendered(texts: &[String], sound: fn(&str) -> Result<(), String>) {
    let check = |html: &str, text: &str| {
        if let Err(why) = sound(html) {
            panic!("{why}\n--- text\n{text}\n--- html\n{html}");
        }
    };
    let pages: Vec<String> = texts.iter().map(|text| render_comrak(text)).collect();
    pages.iter().zip(texts).for_each(|(html, text)| check(html, text));
    let Some(others) = render_cmark(texts) else {
        return println!("skipped: cmark-gfm, which is not installed");
    };
    for ((other, html), text) in others.iter().zip(&pages).zip(texts) {
        if other != html {
            check(other, text);
        }
    }
    assert_eq!(others.len(), texts.len(), "a comment swallowed the next");
}

/// Texts from past bugs, in which our parser and GitHub's disagreed.
#[test]
fn known_ways_to_break_out_of_escaped_markup_fail_in_gate_comments() {
    let acting = "@mona Fixes #1 ![x](https://e/p.png) <h1>x</h1>";
    let texts = [
        ["```\n    ```", "```\nACTING\n```"],
        [">a\n\t>``` ACTING", "a"],
        ["[^` ACTING `]", "[^`]: ACTING"],
        ["x||\n- |-\n  ```", "ACTING"],
        ["```mermaid\nACTING\n```", "[//]: # (ACTING)\n\n[^a]: ACTING"],
        ["[a](//github.com/o/r/issues/1) [b](/o/r/issues/1)", "[c](https://e \"ACTING\")"],
    ];
    let gates = texts.map(|texts| {
        let [rationale, detail] = texts.map(|text| text.replace("ACTING", acting));
        gate("a", [&rationale, &detail, &detail]).as_str().to_owned()
    });
    assert_rendered(&gates, whole);
    let fenced =
        |open: &str| clean(&(format!("{open} ```\n") + &format!("  {acting}\n").repeat(900)), 50_000);
    let parts =
        OutboundBody::frame(["-", ">", "1."].map(|open| fenced(open).to_string()).join("\n\n")).pieces();
    assert!(parts.len() > 1);
    assert_rendered(&parts, |html| check_html(html).map(drop));
    // A fold that is too long for one comment becomes code, with its closing tag.
    let long =
        OutboundBody::frame(format!("<details>\n{}\ninside\n\n</details>\n\nafter", "x\n".repeat(40_000)));
    assert_rendered(&long.pieces(), |html| check_html(html).map(drop));
}

#[test]
fn random_model_texts_cannot_activate_markdown_or_break_the_gate_layout() {
    let comments = if crate::world::all() { 100_000 } else { 2_000 };
    std::thread::scope(|scope| {
        for seed in [0x0005_eed0_f14e_57a7, 0x0005_eed0_f14e_57a8] {
            scope.spawn(move || {
                let mut chance = TextGenerator(seed);
                for _ in 0..comments / BATCH / 2 {
                    let one = || chance.gate(4).as_str().to_owned();
                    assert_rendered(&repeat_with(one).take(BATCH).collect::<Vec<_>>(), whole);
                }
            });
        }
    });
}

#[test]
#[ignore = "takes long"]
fn parts_of_a_split_comment_contain_no_active_markdown() {
    let mut chance = TextGenerator(0x000c_0ffe_e5ee_d000);
    // Comments that exceed GitHub's length limit.
    for _ in 0..if crate::world::all() { 20 } else { 5 } {
        let gates: Vec<OutboundBody> = repeat_with(|| chance.gate(90)).take(30).collect();
        let whole = join_replies(&gates);
        let texts: Vec<&str> = gates.iter().map(OutboundBody::as_str).collect();
        assert_eq!(whole.as_str(), texts.join("\n\n"), "joining leaves inert text unchanged");
        let parts = whole.pieces();
        assert!(parts.len() > 1 && parts.iter().all(|part| part.chars().count() < 65_500));
        assert_rendered(&parts, |html| check_html(html).map(drop));
    }
}
