use super::*;
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
    let plan = plan(&Index::of_texts(texts.iter().copied()), asked);
    let wanted: Vec<&str> = plan.wants().collect();
    let unique: BTreeSet<&str> = wanted.iter().copied().collect();
    assert_eq!(unique.len(), wanted.len(), "a text is read once");
    let bytes = |path: &str| texts.iter().find(|(known, _)| *known == path).unwrap().1.as_bytes().to_vec();
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
    let mut there = false;
    for budget in 0..full + 10 {
        let Context { shown, report } = context(REPO, &asked(budget));
        let counted =
            tokens::estimate(&shown.paths) + shown.files.iter().map(|f| tokens::estimate(f)).sum::<usize>();
        assert!(report.tokens <= budget && counted == report.tokens, "{budget}: {counted} {}", report.tokens);
        let named = report.included.iter().any(|file| file.path == "src/weather.rs");
        assert!(named || !there, "{budget}: what was shown for less is gone");
        there = named;
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
    assert_eq!(headings, ["## `README.md`", "## ``b`x`.rs``"], "{text}");
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

#[test]
fn line_numbers_hold_where_a_key_was_blacked_out() {
    let text = "one\n-----BEGIN PRIVATE KEY-----\nMII\n-----END PRIVATE KEY-----\nfive\n";
    let file = Index::of_texts([("a.rs", text)]);
    let file = file.file("a.rs").unwrap();
    let candidate = Candidate {
        path: "a.rs".to_owned(),
        why: String::new(),
        value: 1.0,
        role: Role::Found,
        pages: forms::Pages::of(file),
        items: vec![(5, 9), (0, 3), (7, 8)],
        wanted: true,
    };
    let forms = forms::of(&candidate, Some(text));
    assert!(forms[0].text.contains("one\n[redacted]\n\n\nfive\n"), "{}", forms[0].text);
    assert_eq!(forms[0].secrets, 1);
}

#[test]
fn what_a_manifest_says_of_dependencies() {
    let cargo = "[package]\nname = \"x\"\n\n[dependencies]\nserde = { version = \"1\" }\n\n[lints]\na = 1\n\n[dev-dependencies]\ninsta = \"1\"\n";
    assert_eq!(
        roles::dependencies("Cargo.toml", cargo).unwrap(),
        "[dependencies]\nserde = { version = \"1\" }\n[dev-dependencies]\ninsta = \"1\"\n"
    );
    let python = "[project]\nname = \"x\"\ndependencies = [\n  \"flask[async]>=2\",\n]\nreadme = \"r\"\n";
    assert_eq!(
        roles::dependencies("pyproject.toml", python).unwrap(),
        "dependencies = [\n  \"flask[async]>=2\",\n]\n"
    );
    let node = r#"{"name": "x", "dependencies": {"vue": "^3"}, "devDependencies": {"vite": 5}}"#;
    assert_eq!(
        roles::dependencies("package.json", node).unwrap(),
        "dependencies:\n  vue ^3\ndevDependencies:\n  vite ?\n"
    );
    assert_eq!(roles::dependencies("package.json", "{"), None);
    let go = "module x\n\nrequire (\n\ta v1\n\tb v2 // indirect\n)\n";
    assert_eq!(roles::dependencies("go.mod", go).unwrap(), "module x\n\nrequire (\n\ta v1\n)\n");
}
