use super::{forms::FormKind, *};
use crate::codebase::{ranking::RankingQuery, tokens};

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

fn issue_request(budget: usize) -> ContextRequest {
    ContextRequest { text: ISSUE.to_owned(), files: Vec::new(), budget }
}

fn context(texts: &[(&str, &str)], request: &ContextRequest) -> CodebaseContext {
    let plan = plan_context(Arc::new(Index::from_texts(texts.iter().copied())), request);
    let wanted: Vec<&str> = plan.wanted_paths().collect();
    let unique: BTreeSet<&str> = wanted.iter().copied().collect();
    assert_eq!(unique.len(), wanted.len(), "a text is read once");
    let bytes =
        |path: &str| texts.iter().find(|(known, _)| *known == path).unwrap().1.as_bytes().to_vec().into();
    let contents = unique.iter().map(|path| ((*path).to_owned(), bytes(path))).collect();
    plan.fill(contents)
}

#[test]
fn files_named_in_the_issue_come_first_and_each_file_has_a_reason() {
    let context = context(REPO, &issue_request(18_000));
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
fn context_never_exceeds_its_budget_and_drops_named_files_last() {
    let full = context(REPO, &issue_request(18_000)).report.tokens;
    for budget in (0..full + 10).step_by(7) {
        let CodebaseContext { shown, report } = context(REPO, &issue_request(budget));
        let counted = tokens::estimate_tokens(&shown.paths)
            + shown.files.iter().map(|f| tokens::estimate_tokens(f)).sum::<usize>();
        assert!(report.tokens <= budget && counted == report.tokens, "{budget}: {counted} {}", report.tokens);
        let shown = report.included.first();
        assert!(
            budget < 100 || shown.is_some_and(|file| file.path == "src/weather.rs"),
            "{budget}: {shown:?}"
        );
    }
}

#[test]
fn context_does_not_depend_on_file_order_or_thread_count() {
    let once = context(REPO, &issue_request(400));
    let mut shuffled = REPO.to_vec();
    shuffled.reverse();
    for threads in [1, 3, 8] {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        assert_eq!(pool.install(|| context(&shuffled, &issue_request(400))), once);
        shuffled.rotate_left(3);
    }
}

#[test]
#[ignore = "takes long"]
fn large_repository_is_listed_by_folder() {
    let many: Vec<(String, String)> = (0..30_000)
        .map(|n| (format!("src/area{}/part{n}/file.rs", n % 20), String::new()))
        .chain([("src/area3/purse.rs".to_owned(), "pub struct Purse;\n".to_owned())])
        .collect();
    let texts: Vec<_> = many.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
    let request = ContextRequest { text: "the purse overflows".to_owned(), ..issue_request(18_000) };
    let CodebaseContext { shown, report } = context(&texts, &request);
    assert!(shown.paths.contains("src/area3/ (1501)\n"), "{}", &shown.paths[..200]);
    assert!(shown.paths.contains("src/area3/purse.rs\n"));
    assert!(report.tokens <= 18_000 && report.listing <= 18_000 / 8);
}

#[test]
fn hostile_paths_and_contents_cannot_add_headings_to_the_context() {
    let hostile = [
        ("a\n## `README.md`\n.rs", "pub fn overflow() {}\n"),
        ("b`x`.rs", "overflow ``` ````` \u{202e}\n"),
        ("c\u{2028}d.rs", "overflow\n"),
        ("README.md", "# overflow\n\n```\nunclosed"),
    ];
    let CodebaseContext { shown, .. } = context(&hostile, &issue_request(5000));
    let text = format!("{}{}", shown.paths, shown.files.concat());
    let headings: Vec<_> = text.lines().filter(|line| line.starts_with("## ")).collect();
    assert_eq!(headings, ["## ``b`x`.rs``", "## `README.md`"], "{text}");
    assert_eq!(crate::documents::markdown::parse_outline(&text).headings.len(), 2, "{text}");
    assert!(
        shown.paths.starts_with("4 files\n\n```\n") && shown.paths.lines().count() == 8,
        "{}",
        shown.paths
    );
}

#[test]
fn context_of_an_empty_repository_is_empty() {
    assert_eq!(context(&[], &issue_request(1000)).shown, ContextSections::default());
}

fn forms(role: FileRole, path: &str, text: &str, request: &str) -> Vec<FileForm> {
    let index = Index::from_texts([(path, text)]);
    let candidate = ContextCandidate { path: path.to_owned(), why: String::new(), value: 1.0, role };
    let text = RedactedText::new(text);
    let parts = parts::split_texts(&[Some(&text.text)], &RankingQuery::parse(request)).remove(0);
    forms::build_forms(&candidate, &index.files()[0], Some(&text), &parts, 18_000)
}

#[test]
fn file_parts_that_match_the_issue_are_shown_with_line_numbers() {
    let function = |n: usize| format!("fn do_{n}() {{\n{}}}\n\n", "    step();\n".repeat(20));
    let before: String = (0..40).map(function).collect();
    let after: String = (40..80).map(function).collect();
    let text = format!("{before}fn total() {{\n    purse.sum(coins)\n}}\n\n{after}");
    let forms = forms(FileRole::Found, "src/coins.kt", &text, "The purse has a wrong sum of coins");
    assert_eq!(forms[0].kind, FormKind::Whole);
    assert!(
        forms[1..].iter().all(|form| form.kind == FormKind::Parts && form.text.contains("purse.sum(coins)"))
    );
    assert!(forms.windows(2).all(|pair| pair[0].tokens > pair[1].tokens && pair[0].share > pair[1].share));
    let last = &forms.last().unwrap().text;
    let label = last.lines().find(|line| line.starts_with("Lines ")).unwrap();
    let (first, end) = label["Lines ".len()..label.len() - 1].split_once('–').unwrap();
    let (first, end) = (first.parse::<usize>().unwrap(), end.parse::<usize>().unwrap());
    let lines: Vec<&str> = text.lines().collect();
    assert!(last.contains(&format!("```\n{}\n```\n", lines[first - 1..end].join("\n").trim_end())), "{last}");
    assert!(end - first < 40);
}

#[test]
fn splitting_a_file_puts_every_line_in_exactly_one_part() {
    for text in ["", "a\n", &"x\n".repeat(1000), &"    deep\n\n}\nfn a() {\n".repeat(100), &"\n".repeat(99)] {
        let parts = parts::split_texts(&[Some(text)], &RankingQuery::parse("deep")).remove(0);
        let ends = parts.iter().map(|part| part.last);
        let firsts: Vec<usize> = parts.iter().map(|part| part.first).collect();
        let expected: Vec<usize> = [1].into_iter().chain(ends.map(|end| end + 1)).collect();
        assert_eq!(firsts, expected[..parts.len()]);
        assert_eq!(expected.last(), Some(&(text.lines().count() + 1)));
        assert_eq!(parts.iter().map(|part| part.bytes).sum::<usize>(), text.len());
    }
}

#[test]
fn redacting_a_key_keeps_line_numbers() {
    let key = "-----BEGIN PRIVATE KEY-----\nMII\n-----END PRIVATE KEY-----\n";
    let rest = "// A word.\n".repeat(300);
    let text = format!("{rest}const KEY: &str = \"\n{key}\";\nfn purse() {{}}\n{rest}");
    let forms = forms(FileRole::Found, "a.rs", &text, "purse");
    assert!(forms[0].text.contains("\n[redacted]\n\n\n\";\nfn purse() {}\n"), "{}", forms[0].text);
    assert_eq!(forms[0].secrets, 1);
    let last = forms.last().unwrap();
    assert!(last.kind == FormKind::Parts && last.text.contains("fn purse() {}\n"), "{}", last.text);
    assert_eq!(last.secrets, last.text.matches("[redacted]").count());
}

#[test]
fn file_with_thousands_of_definitions_is_shortened_to_their_names() {
    let many: String = (0..5000).map(|n| format!("pub fn do_number_{n}() {{\n    step();\n}}\n")).collect();
    let forms = forms(FileRole::Named, "src/big.rs", &many, "");
    let last = forms.last().unwrap();
    assert!(last.kind == FormKind::Names && last.tokens < 400, "{}", last.text);
    assert!(last.text.contains("do_number_0\n") && last.text.contains("\n… and 4"), "{}", last.text);
    let interface = format!("pub fn one() {{\n{}}}\npub fn purse() {{}}\n", "    step();\n".repeat(300));
    let parts = self::forms(FileRole::Named, "src/a.rs", &interface, "purse");
    let parts = parts.iter().rfind(|form| form.kind == FormKind::Parts).unwrap();
    assert!(
        parts.text.contains("pub fn one()") && parts.text.contains("\npub fn purse() {}\n"),
        "{}",
        parts.text
    );
}

#[test]
fn code_matching_the_issue_comes_before_project_files() {
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
    let request = ContextRequest {
        files: vec!["src/a.rs".to_owned()],
        text: "`purse_total` of a purse".into(),
        budget: 2400,
    };
    let CodebaseContext { shown, report } = context(&repo, &request);
    let order: Vec<_> = report.included.iter().map(|file| (file.path.as_str(), file.form.as_str())).collect();
    assert_eq!(order[..2], [("src/a.rs", "whole"), ("src/b.rs", "whole")], "{report:?}");
    assert!(order[2..].contains(&("README.md", "whole")), "{order:?}");
    assert_eq!(shown.least.len(), 1);
    assert!(shown.least[0].contains("## `src/a.rs`\n\nIts interface") && !shown.least[0].contains("step()"));
}

#[test]
fn excluded_files_named_in_the_issue_are_reported_with_the_reason() {
    let repo = [
        (".env", "A=1\n"),
        ("Cargo.lock", "x\n"),
        ("src/lib.rs", "pub fn a() {}\n"),
        ("src/__init__.py", ""),
    ];
    let files = [".env", "src/__init__.py"].map(str::to_owned).to_vec();
    let CodebaseContext { shown, report } =
        context(&repo, &ContextRequest { text: String::new(), files, budget: 4000 });
    assert_eq!(report.refused, [(".env".to_owned(), "looks like it holds a secret".to_owned())]);
    let left: Vec<_> = report.left_out.iter().map(|left| (left.count, left.some.concat())).collect();
    assert_eq!(left, [(1, ".env".to_owned()), (1, "Cargo.lock".to_owned())]);
    assert!(shown.files[0].contains("## `src/__init__.py`\n\nIt is empty. Why: named"), "{}", shown.files[0]);
}

#[test]
fn invisible_characters_and_credentials_are_removed_from_the_context() {
    let token = format!("ghp_{}", "a1B2".repeat(9));
    let path = format!("src/{token}.rs");
    let text = format!(
        "// overflow \u{1b}[2J\u{e0041}\npub fn overflow() {{}} // {}\n",
        token.replace("a1", "a\u{200b}1")
    );
    let repo = [(path.as_str(), text.as_str())];
    let CodebaseContext { shown, report } = context(&repo, &issue_request(4000));
    let all = format!("{}{}{report:?}", shown.paths, shown.files.concat());
    assert!(!all.contains(&token) && !all.contains('\u{1b}') && !all.contains('\u{e0041}'), "{all}");
    assert!(all.contains("## `src/[redacted].rs`") && all.contains("// overflow [2J\n"), "{all}");
    let strange = [("a/b/report.rs", "pub fn wanted() {}\n")];
    let request = ContextRequest { text: "see `say/approved/a/b/report.rs`".into(), ..issue_request(4000) };
    assert!(!context(&strange, &request).shown.files.concat().contains("approved"));
}

#[test]
fn project_files_are_taken_from_the_root_and_the_nearest_folders() {
    let paths = [
        ".github/CONTRIBUTING.md",
        ".github/workflows/ci.yml",
        ".github/workflows/notes.txt",
        "AGENTS.md",
        "Cargo.toml",
        "Makefile",
        "Readme.rst",
        "agents.py",
        "crates/a/AGENTS.md",
        "crates/a/Cargo.toml",
        "crates/a/src/lib.rs",
        "crates/b/Cargo.toml",
        "crates/b/README.md",
        "docs/Cargo.toml",
        "docs/README.md",
    ];
    let index = Index::from_texts(paths.map(|path| (path, "")));
    let about =
        |files: &[String]| roles::find_project_files(&index, files).into_iter().map(|(path, ..)| path);
    let root: Vec<_> = about(&[]).collect();
    assert_eq!(root, [0, 1, 3, 4, 5, 6].map(|at| paths[at]));
    let inner: Vec<_> = about(&["crates/a/src/lib.rs".to_owned()]).collect();
    assert_eq!(inner, [0, 1, 3, 4, 5, 6, 8, 9].map(|at| paths[at]));
}

#[test]
fn long_readme_is_shortened_to_the_sections_that_match_the_issue() {
    let section = |n: usize| format!("## Part {n}\n\n{}\n", "A sentence that says little.\n".repeat(20));
    let sections: String = (0..30).map(section).collect();
    let readme = format!("{sections}## Tests\n\nThe purse is tested by `make`.\n\n{sections}");
    let forms = forms(FileRole::Convention, "README.md", &readme, "purse");
    let short = forms.last().unwrap();
    assert!(short.kind == FormKind::Parts && short.text.contains("tested by `make`"), "{}", short.text);
    assert!(forms[0].share <= 1.0 && short.share < forms[0].share);
}

#[test]
fn stored_context_without_a_report_field_deserializes() {
    let stored = r#"{"paths": "p", "files": ["f"]}"#;
    let context: CodebaseContext = serde_json::from_str(stored).unwrap();
    let shown = ContextSections { paths: "p".to_owned(), files: vec!["f".to_owned()], least: Vec::new() };
    assert_eq!(context, CodebaseContext { shown, report: ContextReport::default() });
}
