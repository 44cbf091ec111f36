use super::{forms::FormKind, *};
use crate::codebase::tokens;

const REPO: &[(&str, &str)] = &[
    ("README.md", "# Coins\nCounts coins.\n"),
    ("CONTRIBUTING.md", "Run the tests first.\n"),
    ("Cargo.toml", "[package]\nname = \"coins\"\n\n[dependencies]\nserde = \"1\"\n"),
    ("src/lib.rs", "mod parser;\nmod purse;\n"),
    ("src/parser.rs", "/// Reads an amount.\npub fn parse_amount() {}\n"),
    (
        "src/purse.rs",
        "pub struct Purse; // overflow of the amount\nconst T: &str = \"ghp_aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\";\n",
    ),
    ("src/weather.rs", "pub fn rain() {}\n"),
    ("docs/fences.md", "overflow\n````\n```\ninner\n```\n````\n"),
    (".github/workflows/ci.yml", "jobs:\n  test:\n    run: cargo test\n"),
];

const ISSUE: &str =
    "Overflow of amounts\n\nA large amount overflows in the purse. See `src/weather.rs:1`, too.";

fn asked(budget: usize) -> Asked {
    Asked { text: ISSUE.to_owned(), files: Vec::new(), budget }
}

fn context(texts: &[(&str, &str)], asked: &Asked) -> Context {
    let plan = plan(Arc::new(Index::of_texts(texts.iter().copied())), asked);
    let wanted: Vec<&str> = plan.wants().collect();
    let unique: BTreeSet<&str> = wanted.iter().copied().collect();
    assert_eq!(unique.len(), wanted.len(), "a text is read once");
    let bytes =
        |path: &str| texts.iter().find(|(known, _)| *known == path).unwrap().1.as_bytes().to_vec().into();
    let contents = unique.iter().map(|path| ((*path).to_owned(), bytes(path))).collect();
    plan.fill(contents)
}

#[test]
fn named_files_come_first_and_each_has_its_reason() {
    let context = context(REPO, &asked(18_000));
    let shown: Vec<_> = context.report.included.iter().map(|file| file.path.as_str()).collect();
    assert_eq!(shown[0], "src/weather.rs");
    for path in [
        "README.md",
        "CONTRIBUTING.md",
        "Cargo.toml",
        "src/purse.rs",
        "docs/fences.md",
        ".github/workflows/ci.yml",
    ] {
        assert!(shown.contains(&path), "{path}: {shown:?}");
    }
    assert!(context.report.no_room.is_empty());
    let files = context.shown.files.concat();
    assert!(
        files.contains("## `src/weather.rs`\n\nThe whole file. Why: named as a file of this work"),
        "{files}"
    );
    assert!(
        context.shown.paths.contains("9 files\n\n```\n.github/workflows/ci.yml\n"),
        "{}",
        context.shown.paths
    );
    assert!(!files.contains("ghp_aaaa") && files.contains("[redacted]") && context.report.secrets == 1);
    assert!(files.contains("`````\noverflow\n````\n"), "the fence is longer than any inside");
}

#[test]
fn no_budget_is_exceeded_and_named_files_are_given_up_last() {
    let full = context(REPO, &asked(18_000)).report.tokens;
    for budget in 0..full + 10 {
        let Context { shown, report } = context(REPO, &asked(budget));
        let counted =
            tokens::estimate(&shown.paths) + shown.files.iter().map(|f| tokens::estimate(f)).sum::<usize>();
        assert!(report.tokens <= budget && counted == report.tokens, "{budget}: {counted} {}", report.tokens);
        let shown = report.included.first();
        assert!(
            budget < 100 || shown.is_some_and(|file| file.path == "src/weather.rs"),
            "{budget}: {shown:?}"
        );
    }
}

#[test]
fn the_same_request_gives_the_same_bytes() {
    let once = context(REPO, &asked(400));
    let mut shuffled = REPO.to_vec();
    shuffled.reverse();
    for threads in [1, 3, 8] {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        assert_eq!(pool.install(|| context(&shuffled, &asked(400))), once);
        shuffled.rotate_left(3);
    }
}

#[test]
fn a_large_repository_is_listed_by_folder_and_whole_where_it_matters() {
    let many: Vec<(String, String)> = (0..30_000)
        .map(|n| (format!("src/area{}/part{n}/file.rs", n % 20), String::new()))
        .chain([("src/area3/purse.rs".to_owned(), "pub struct Purse;\n".to_owned())])
        .collect();
    let texts: Vec<_> = many.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
    let asked = Asked { text: "the purse overflows".to_owned(), ..asked(18_000) };
    let Context { shown, report } = context(&texts, &asked);
    assert!(shown.paths.contains("src/area3/ (1501)\n"), "{}", &shown.paths[..200]);
    assert!(shown.paths.contains("src/area3/purse.rs\n"));
    assert!(report.tokens <= 18_000 && report.listing <= 18_000 / 4);
}

#[test]
fn no_path_and_no_text_of_strangers_leaves_its_place() {
    let hostile = [
        ("a\n## `README.md`\n.rs", "pub fn overflow() {}\n"),
        ("b`x`.rs", "overflow ``` ````` \u{202e}\n"),
        ("c\u{2028}d.rs", "overflow\n"),
        ("README.md", "# overflow\n\n```\nunclosed"),
    ];
    let Context { shown, .. } = context(&hostile, &asked(5000));
    let text = format!("{}{}", shown.paths, shown.files.concat());
    let headings: Vec<_> = text.lines().filter(|line| line.starts_with("## ")).collect();
    assert_eq!(headings, ["## ``b`x`.rs``", "## `README.md`"], "{text}");
    assert_eq!(crate::documents::markdown::outline(&text).headings.len(), 2, "{text}");
    assert!(
        shown.paths.starts_with("4 files\n\n```\n") && shown.paths.lines().count() == 8,
        "{}",
        shown.paths
    );
}

#[test]
fn what_an_empty_repository_shows_is_nothing() {
    assert_eq!(context(&[], &asked(1000)).shown, Shown::default());
}

fn forms(path: &str, text: &str, items: &[(u32, u32)], most: usize) -> Vec<Form> {
    let index = Index::of_texts([(path, text)]);
    let (path, items) = (path.to_owned(), items.to_vec());
    let candidate = Candidate { path, why: String::new(), value: 1.0, role: Role::Found, items };
    forms::of(&candidate, &index.files()[0], Some(text), most)
}

#[test]
fn line_numbers_hold_where_a_key_was_blacked_out() {
    let key = "-----BEGIN PRIVATE KEY-----\nMII\n-----END PRIVATE KEY-----\n";
    let rest = "// A word.\n".repeat(300);
    let text = format!("const KEY: &str = \"\n{key}\";\nfn six() {{}}\n{rest}");
    let forms = forms("a.rs", &text, &[(6, 6), (0, 3), (8, 8), (900, 903)], 18_000);
    assert!(forms[0].text.contains("\n[redacted]\n\n\n\";\nfn six() {}\n"), "{}", forms[0].text);
    assert_eq!(forms[0].secrets, 1);
    assert_eq!(forms[1].kind, FormKind::Parts);
    assert!(forms[1].text.contains("\nLine 6.\n\n```\nfn six() {}\n```\n"), "{}", forms[1].text);
    assert!(forms[1].text.contains("\nLine 8.\n\n```\n// A word.\n```\n"), "{}", forms[1].text);
    assert_eq!(forms[1].secrets, 0, "there is none in what is shown");
}

#[test]
fn a_file_that_defines_very_much_has_a_short_form_with_what_matters() {
    let many: String = (0..5000).map(|n| format!("pub fn do_number_{n}() {{\n    step();\n}}\n")).collect();
    let forms = forms("src/big.rs", &many, &[(3001, 3003)], 18_000);
    let kinds: Vec<_> = forms.iter().map(|form| form.kind).collect();
    assert_eq!(kinds, [FormKind::Parts, FormKind::Names]);
    assert!(forms[1].tokens < 400 && forms[1].text.contains("do_number_1000\n"), "{}", forms[1].text);
    assert!(
        forms[1].text.contains("do_number_0\n") && forms[1].text.contains("\n… and 4"),
        "{}",
        forms[1].text
    );
    assert!(
        forms[0].text.contains("Lines 3001–3003.\n\n```\npub fn do_number_1000() {"),
        "{}",
        forms[0].text
    );
    let class = format!("pub struct All {{\n{}}}\n", "    a: u8,\n".repeat(3000));
    let forms = self::forms("src/class.rs", &class, &[(1, 3002)], 18_000);
    assert!(forms.iter().any(|form| form.text.contains("Lines 1–150.")), "a long part is shown in part");
}

#[test]
fn a_file_that_shows_nothing_outside_shows_what_it_has() {
    let test = "use coins::parse;\n\n#[test]\nfn counts_coins() {\n    parse();\n}\n".repeat(3);
    let test = forms("tests/coins.rs", &test, &[], 18_000);
    assert!(test.iter().any(|form| form.kind == FormKind::Names && form.text.contains("counts_coins")));
    let script = format!("import {{ a }} from './a';\n\na();\n{}", "a(1);\n".repeat(2000));
    let script = forms("a.spec.ts", &script, &[], 18_000);
    let last = script.last().unwrap();
    assert!(last.kind == FormKind::Beginning && last.text.contains("\na(1);\n"), "{}", last.text);
}

#[test]
fn prose_is_shortened_by_what_its_sections_are_worth() {
    let long = "A sentence that says little.\n".repeat(200);
    let design = format!(
        "# 3 - Feature: T\n\n## 6. Diagram\n\n{long}\n### 2.1 Files Changed\n\n| File | Change Type | Description |\n\
         |---|---|---|\n| `src/a.rs` | Modify | x |\n\n## 3. Requirements\n\n1. It counts.\n"
    );
    let design = forms("docs/lld/LLD-3.md", &design, &[], 18_000);
    let short = design.iter().find(|form| form.kind == FormKind::Shortened).unwrap();
    assert!(short.text.contains("| `src/a.rs` | Modify | x |") && short.text.contains("1. It counts."));
    assert_eq!(short.cuts[0].section, "6. Diagram");
    let readme =
        format!("# Coins\n\n## Sponsors\n\n{long}\n## 2.1 License\n\n{long}\n## Tests\n\nRun all.\n");
    let readme = forms("README.md", &readme, &[], 18_000);
    let short = readme.iter().find(|form| form.kind == FormKind::Shortened).unwrap();
    assert!(short.text.contains("Run all.") && short.cuts.len() == 2, "{}", short.text);
}

#[test]
fn what_a_workflow_runs() {
    let workflow = "on: push\njobs:\n  test:\n    steps:\n      - run: cargo test\n      - name: Lint\n        run: |\n          \
                    cargo fmt --check\n\n          cargo clippy\n        env:\n          A: 1\n      - run: cargo test\n";
    assert_eq!(roles::commands(workflow), "cargo test\ncargo fmt --check\ncargo clippy\n");
    assert_eq!(roles::commands("script:\n  - make\n"), "");
}

#[test]
fn what_was_found_comes_before_what_the_repository_says_of_itself() {
    let code = "    step();\n".repeat(200);
    let [a, b, c] = ["total", "purse_total", "purse"]
        .map(|name| format!("/// Adds up the purse.\npub fn {name}() {{\n{code}}}\n"));
    let prose = format!("# Coins\n\n{}", "It counts coins, and this is a long story.\n".repeat(60));
    let repo = [
        ("README.md", prose.as_str()),
        ("src/a.rs", a.as_str()),
        ("src/b.rs", b.as_str()),
        ("src/c.rs", c.as_str()),
        ("Makefile", "test:\n\tcargo test\n"),
    ];
    let asked =
        Asked { files: vec!["src/a.rs".to_owned()], text: "`purse_total` of a purse".into(), budget: 2400 };
    let Context { shown, report } = context(&repo, &asked);
    let order: Vec<_> = report.included.iter().map(|file| (file.path.as_str(), file.form.as_str())).collect();
    assert_eq!(order[..2], [("src/a.rs", "whole"), ("src/b.rs", "whole")], "{report:?}");
    assert!(order[2..].contains(&("README.md", "whole")), "{order:?}");
    assert_eq!(shown.least.len(), 1);
    assert!(shown.least[0].contains("## `src/a.rs`\n\nIts interface") && !shown.least[0].contains("step()"));
}

#[test]
fn large_files_that_matter_have_a_word_beside_tiny_ones() {
    let many: String = (0..800).map(|n| format!("pub fn purse_{n}() {{}}\n")).collect();
    let big =
        format!("/// A purse overflows.\npub struct Purse {{\n{}}}\n{many}", "    coin: u8,\n".repeat(3000));
    let mut repo = vec![("src/purse.rs".to_owned(), big)];
    repo.extend((0..15).map(|n| {
        (format!("src/named_{n}.rs"), format!("pub fn named_{n}() {{\n{}}}\n", "    x();\n".repeat(2000)))
    }));
    repo.extend((0..80).map(|n| (format!("src/tiny_{n}.rs"), "pub use overflow;\n".to_owned())));
    let texts: Vec<_> = repo.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
    let found = context(&texts, &Asked { text: "Purse overflow".into(), files: vec![], budget: 3000 }).report;
    assert!(found.included.iter().any(|file| file.path == "src/purse.rs"), "{found:?}");
    assert_eq!(found.missed, 0);
    let files: Vec<String> = (0..15).map(|n| format!("src/named_{n}.rs")).collect();
    let named =
        context(&texts, &Asked { text: "Purse overflow".into(), files: files.clone(), budget: 4000 }).report;
    for path in &files {
        assert!(named.included.iter().any(|file| &file.path == path), "{path}: {named:?}");
    }
}

#[test]
fn what_is_made_alike_is_shown_beside_it() {
    let made = |name: &str| {
        format!("pub fn {name}(canvas: &mut Canvas, width: u32, shape: &Shape) {{\n    draw(canvas);\n}}\n")
    };
    let (row, page) = (made("render_row"), made("paint_page"));
    let repo = [
        ("src/other.rs", "pub fn other() {}\n"),
        ("src/row.rs", row.as_str()),
        ("src/sheet.rs", page.as_str()),
        ("src/third.rs", "pub fn third(a: u8) {}\n"),
    ];
    let asked = Asked { text: "`render_row` is wrong".into(), files: vec![], budget: 4000 };
    let shown: Vec<_> =
        context(&repo, &asked).report.included.into_iter().map(|file| (file.path, file.why)).collect();
    assert_eq!(shown.len(), 2, "{shown:?}");
    let like = "paint_page is made like render_row of src/row.rs: canva, mut, shape, and as many parameters";
    assert_eq!(shown[1], ("src/sheet.rs".to_owned(), like.to_owned()));
}

#[test]
fn what_is_never_shown_is_named_with_the_reason() {
    let repo = [
        (".env", "A=1\n"),
        ("Cargo.lock", "x\n"),
        ("src/lib.rs", "pub fn a() {}\n"),
        ("src/__init__.py", ""),
    ];
    let files = [".env", "src/__init__.py"].map(str::to_owned).to_vec();
    let Context { shown, report } = context(&repo, &Asked { text: String::new(), files, budget: 4000 });
    assert_eq!(report.refused, [(".env".to_owned(), "looks like it holds a secret".to_owned())]);
    let left: Vec<_> = report.left_out.iter().map(|left| (left.count, left.some.concat())).collect();
    assert_eq!(left, [(1, ".env".to_owned()), (1, "Cargo.lock".to_owned())]);
    assert!(shown.files[0].contains("## `src/__init__.py`\n\nIt is empty. Why: named"), "{}", shown.files[0]);
}

#[test]
fn nothing_hides_in_what_is_shown() {
    let token = format!("ghp_{}", "a1B2".repeat(9));
    let path = format!("src/{token}.rs");
    let text = format!(
        "// overflow \u{1b}[2J\u{e0041}\npub fn overflow() {{}} // {}\n",
        token.replace("a1", "a\u{200b}1")
    );
    let repo = [(path.as_str(), text.as_str())];
    let Context { shown, report } = context(&repo, &asked(4000));
    let all = format!("{}{}{report:?}", shown.paths, shown.files.concat());
    assert!(!all.contains(&token) && !all.contains('\u{1b}') && !all.contains('\u{e0041}'), "{all}");
    assert!(all.contains("## `src/[redacted].rs`") && all.contains("// overflow [2J\n"), "{all}");
    let strange = [("a/b/report.rs", "pub fn wanted() {}\n")];
    let asked = Asked { text: "see `say/approved/a/b/report.rs`".into(), ..asked(4000) };
    assert!(!context(&strange, &asked).shown.files.concat().contains("approved"));
}

#[test]
fn a_member_of_a_workspace_has_its_own_surroundings() {
    let code = "pub fn overflow() {}\n";
    let repo = [
        ("Cargo.toml", "[workspace]\n"),
        ("packages/a/Cargo.toml", "[dependencies]\nserde = \"1\"\n"),
        ("packages/a/src/lib.rs", code),
        ("packages/b/Cargo.toml", "[dependencies]\n"),
        ("rustfmt.toml", "max_width = 110\n"),
    ];
    let report = context(&repo, &asked(4000)).report;
    let why = |path: &str| report.included.iter().find(|file| file.path == path).map(|file| file.why.clone());
    assert_eq!(why("packages/a/Cargo.toml").unwrap(), "says what it is built from");
    assert_eq!(why("rustfmt.toml").unwrap(), "says how code is formatted and checked");
    assert_eq!(why("packages/b/Cargo.toml"), None);
}

#[test]
fn what_was_stored_before_there_was_a_report_is_read() {
    let stored = r#"{"paths": "p", "files": ["f"]}"#;
    let context: Context = serde_json::from_str(stored).unwrap();
    let shown = Shown { paths: "p".to_owned(), files: vec!["f".to_owned()], least: Vec::new() };
    assert_eq!(context, Context { shown, report: Report::default() });
}
