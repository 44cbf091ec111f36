//! Checks documentation that repeats facts from the code. `UPDATE_DOCS=1 cargo test --test house docs` updates the
//! documentation instead.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use clap::error::ErrorKind;
use countersign::{
    cli,
    commands::{COMMON, CommandSpec},
    config::{ConfigError, Secrets, Settings},
    web, workflows,
};
use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};

const COMMANDS: (&str, &str) = ("<!-- commands -->\n", "<!-- /commands -->");
const SETTINGS: (&str, &str) = ("<!-- settings -->\n```toml\n", "```\n<!-- /settings -->");
const METRICS: (&str, &str) = ("<!-- metrics -->\n", "<!-- /metrics -->");
const DIAGRAM: (&str, &str) = ("```mermaid\n", "```");

fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

/// Returns the name and text of each documentation page.
fn pages() -> Vec<(String, String)> {
    let mut names =
        ["README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"].map(str::to_owned).to_vec();
    let mut folders = vec!["docs".to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(path(&folder)).unwrap() {
            let entry = entry.unwrap();
            let name = format!("{folder}/{}", entry.file_name().to_str().unwrap());
            match entry.file_type().unwrap().is_dir() {
                true => folders.push(name),
                false if name.ends_with(".md") => names.push(name),
                false => {}
            }
        }
    }
    let read = |name: String| (fs::read_to_string(path(&name)).unwrap(), name);
    names.into_iter().map(read).map(|(text, name)| (name, text)).collect()
}

/// Returns the name and text of the only page with these markers.
fn page_with((open, _): (&str, &str)) -> (String, String) {
    let mut having = pages().into_iter().filter(|(_, text)| text.contains(open));
    let page = having.next().unwrap_or_else(|| panic!("no page has a line {open:?}"));
    assert!(having.next().is_none(), "two pages have a line {open:?}");
    page
}

/// Splits the text into the parts before, between and after the two markers. Each marker must occur exactly once.
fn split<'a>(name: &str, text: &'a str, (open, close): (&str, &str)) -> [&'a str; 3] {
    let Some((before, rest)) = text.split_once(open) else { panic!("{name} has no line {open:?}") };
    assert!(!rest.contains(open), "{name} has two lines {open:?}");
    let Some(end) = rest.find(close) else { panic!("{name} has no {close:?} after {open:?}") };
    [before, &rest[..end], &rest[end..]]
}

/// Checks that the text between the markers equals `truth`. If `UPDATE_DOCS` is set, writes `truth` there instead.
#[track_caller]
fn check_section(name: &str, marks: (&str, &str), truth: &str) {
    let text = fs::read_to_string(path(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
    let [before, written, after] = split(name, &text, marks);
    if written == truth {
        return;
    }
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::write(path(name), format!("{before}{}{truth}{after}", marks.0)).unwrap();
        return;
    }
    assert_eq!(
        written, truth,
        "{name} differs from the code; run UPDATE_DOCS=1 cargo test --test house docs"
    );
}

#[test]
fn workflow_diagrams_match_the_graphs() {
    for workflow in workflows::ALL {
        let diagram = workflow.mermaid();
        check_section(
            &format!("docs/workflows/{}.md", workflow.name()),
            DIAGRAM,
            &format!("{}\n", diagram.trim_end()),
        );
    }
}

#[test]
fn command_table_matches_the_commands() {
    let rows = workflows::ALL.iter().flat_map(|workflow| workflow.commands()).chain(COMMON);
    let mut table = "| command | label | minimum role | effect |\n|---|---|---|---|\n".to_owned();
    rows.for_each(|row| table += &table_row(row));
    check_section(&page_with(COMMANDS).0, COMMANDS, &table);
}

#[test]
fn metrics_table_matches_the_metrics() {
    let mut table = "| metric | labels | description |\n|---|---|---|\n".to_owned();
    web::METRIC_DESCRIPTIONS
        .iter()
        .for_each(|(name, labels, help)| table += &format!("| `countersign_{name}` | {labels} | {help} |\n"));
    check_section(&page_with(METRICS).0, METRICS, &table);
}

fn table_row(row: &CommandSpec) -> String {
    let label = row.label.map(|label| format!("`{label}`")).unwrap_or_default();
    let [usage, about] = [row.usage, row.about].map(|text| text.replace('|', "\\|"));
    format!("| `{usage}` | {label} | {} | {about} |\n", row.role)
}

/// A fenced code block: its language, the number of its first line, and its text.
struct Block<'a> {
    language: &'a str,
    line: usize,
    text: String,
}

/// Returns the fenced code blocks of a page, and the inline code outside these blocks.
fn code(markdown: &str) -> (Vec<Block<'_>>, Vec<&str>) {
    let (mut blocks, mut inline): (Vec<Block<'_>>, Vec<&str>) = (Vec::new(), Vec::new());
    let mut inside = false;
    for (number, line) in markdown.lines().enumerate() {
        match (line.trim_start().strip_prefix("```"), blocks.last_mut().filter(|_| inside)) {
            (Some(_), Some(_)) => inside = false,
            (Some(language), None) => {
                inside = true;
                blocks.push(Block { language, line: number + 2, text: String::new() });
            }
            (None, Some(block)) => block.text += &format!("{line}\n"),
            (None, None) => inline.extend(line.split('`').skip(1).step_by(2)),
        }
    }
    (blocks, inline)
}

/// Returns the arguments of each `countersign` command in a shell text. Commands of the form `cargo run … --` are
/// included.
fn invocations(shell: &str) -> Vec<Vec<&str>> {
    let mut found = Vec::new();
    for line in shell.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        for (index, word) in words.iter().enumerate() {
            let ours = word.rsplit('/').next() == Some("countersign") && !word.starts_with("/countersign");
            let run = *word == "--" && words[..index].ends_with(&["run", "--release"]);
            if ours || run {
                let over = |word: &&&str| !["#", "&&", "|", ";", ">", "2>", "&"].contains(word);
                found.push(words[index + 1..].iter().take_while(over).copied().collect());
            }
        }
    }
    found
}

/// Checks a command line with the program's argument parser, without running the command. Inline mentions (`whole` is
/// false) may be incomplete.
#[track_caller]
fn check_command_line(at: &str, arguments: &[&str], whole: bool) {
    let help = (!whole).then_some("--help");
    let words = ["countersign"].iter().chain(arguments).copied().chain(help);
    if let Err(error) = cli::command().try_get_matches_from(words) {
        let shows = match error.kind() {
            ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => true,
            ErrorKind::ValueValidation => !whole, // a placeholder such as RUN
            _ => false,
        };
        assert!(shows, "{at}: `countersign {}`: {error}", arguments.join(" "));
    }
}

/// Checks that every line of a `.env` file sets a variable that the server reads.
#[track_caller]
fn check_env(at: &str, text: &str) {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join(".env");
    let debug_text = |line: &str| {
        fs::write(&file, line.replace("_FILE=", "=")).unwrap();
        Secrets::load(&file)
            .map(|secrets| format!("{secrets:?}"))
            .unwrap_or_else(|error| panic!("{at}: {error}"))
    };
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
        assert_ne!(debug_text(line), debug_text(""), "{at}: {line:?} sets nothing the server reads");
    }
}

#[test]
fn code_blocks_in_the_docs_are_valid() {
    let mut checked = 0;
    for (name, text) in pages() {
        let (blocks, inline) = code(&text);
        for Block { language, line, text } in blocks {
            let place = &format!("{name}:{line}");
            checked += 1;
            match language {
                "toml" => drop(
                    settings(&with_required_tables(&text)).unwrap_or_else(|error| panic!("{place}: {error}")),
                ),
                "env" => check_env(place, &text),
                "sh" => {
                    let lines = text.replace("\\\n", " ");
                    invocations(&lines)
                        .iter()
                        .for_each(|arguments| check_command_line(place, arguments, true));
                }
                "yaml" => {
                    drop(
                        serde_norway::from_str::<serde_norway::Value>(&text)
                            .unwrap_or_else(|error| panic!("{place}: {error}")),
                    );
                }
                // Text for people or for other programs.
                "text" | "mermaid" => {}
                other => panic!(
                    "{place}: nothing here checks `{other}`: use toml, yaml, env, sh or text, or add to this test"
                ),
            }
        }
        for arguments in inline.into_iter().flat_map(invocations).filter(|words| !words.is_empty()) {
            check_command_line(&name, &arguments, false);
        }
    }
    assert!(checked > 10, "the pages have almost no code block");
}

/// Returns the links of a page, and the anchors that GitHub creates for its headings.
fn links(markdown: &str) -> (Vec<String>, Vec<String>) {
    let (mut links, mut headings, mut heading) = (Vec::new(), Vec::new(), None);
    for event in Parser::new_ext(markdown, Options::ENABLE_TABLES) {
        match event {
            Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                links.push(dest_url.into_string());
            }
            Event::Start(Tag::Heading { .. }) => heading = Some(String::new()),
            Event::End(TagEnd::Heading(_)) => headings.extend(heading.take().map(|text| {
                let kept = text.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
                kept.collect::<String>().to_lowercase().replace(' ', "-")
            })),
            Event::Text(text) | Event::Code(text) => heading.iter_mut().for_each(|heading| *heading += &text),
            _ => {}
        }
    }
    (links, headings)
}

#[test]
fn relative_links_in_the_docs_have_targets() {
    let mut checked = 0;
    let headings_of = |file: &Path| links(&fs::read_to_string(file).unwrap()).1;
    for (name, text) in pages() {
        let (links, _) = links(&text);
        for link in links.iter().filter(|link| !link.contains("://")) {
            let (file, heading) = link.split_once('#').unwrap_or((link, ""));
            let target = match file {
                "" => path(&name),
                file => path(&name).parent().unwrap().join(file),
            };
            assert!(target.exists(), "{name}: {link} does not exist");
            let named = || headings_of(&target).iter().any(|there| there == heading);
            assert!(heading.is_empty() || named(), "{name}: {link} names a missing heading");
            checked += 1;
        }
    }
    assert!(checked > 40, "the pages have almost no link");
    let (found, headings) = links("[a](b#c) ![d](e.png)\n\n## What `it` may, and may not\n");
    assert_eq!(
        (found, headings),
        (vec!["b#c".into(), "e.png".into()], vec!["what-it-may-and-may-not".into()])
    );
}

#[test]
fn docs_pages_have_at_most_200_lines_and_are_listed_in_the_docs_readme() {
    let readme = fs::read_to_string(path("README.md")).unwrap();
    assert!(readme.lines().count() <= 130, "README.md has {} lines", readme.lines().count());
    assert!(
        readme.lines().all(|line| line.chars().count() <= 120),
        "README.md has a line above 120 characters"
    );
    let (listed, _) = links(&fs::read_to_string(path("docs/README.md")).unwrap());
    for (name, text) in pages() {
        let Some(page) = name.strip_prefix("docs/").filter(|page| *page != "README.md") else { continue };
        assert!(text.lines().count() <= 200, "{name} has {} lines", text.lines().count());
        let found = listed.iter().any(|link| {
            link == page || link.strip_suffix('/').is_some_and(|folder| page.starts_with(folder))
        });
        assert!(found, "docs/README.md does not name {name}");
    }
}

#[test]
fn docs_check_rejects_invalid_settings_env_and_command_line_snippets() {
    let fails = |check: &(dyn Fn() + std::panic::RefUnwindSafe)| std::panic::catch_unwind(check).is_err();
    assert!(
        settings(&with_required_tables("[[providers.gemini.key]]\ntier = \"paid\"\n")).is_err(),
        "a key without a name is refused"
    );
    assert!(settings(&with_required_tables("[lld]\nmax_rounds = 2\n")).is_ok());
    assert!(fails(&|| check_env("here", "GEMINI_KEY=x")));
    assert!(fails(&|| check_command_line("here", &["localhub"], true)), "--data is required");
    assert!(!fails(&|| check_command_line("here", &["localhub"], false)));
    assert!(fails(&|| check_command_line("here", &["demo", "--no"], false)));
    let shell = "target/release/countersign serve # it\ncargo run --release -- demo --yes && x\nsay /countersign help\n";
    assert_eq!(invocations(shell), [vec!["serve"], vec!["demo", "--yes"]]);
    let (blocks, inline) = code("Say `one`.\n  ```sh\n  two\n  ```\n`three`\n");
    assert_eq!((blocks[0].language, blocks[0].line, inline), ("sh", 3, vec!["one", "three"]));
}

/// Returns the settings snippet with the required tables that it leaves out.
fn with_required_tables(text: &str) -> String {
    let least = ["[app]\nid = 123456\nprivate_key_file = \"private-key.pem\"\n", "[data]\ndir = \"data\"\n"];
    let has =
        |table: &str| text.lines().any(|line| table.starts_with(line.trim()) && line.trim().starts_with('['));
    let missing = least.into_iter().filter(|table| !has(table));
    missing.fold(format!("{text}\n"), |whole, table| whole + table)
}

/// Loads `text` as a settings file in a temporary directory.
fn settings(text: &str) -> Result<Settings, ConfigError> {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("countersign.toml");
    fs::write(&file, text).unwrap();
    let env = "COUNTERSIGN_WEBHOOK_SECRET=0123456789abcdef\nGEMINI_API_KEY=AIza\nGEMINI_API_KEY_TEAM=AIzb\n";
    fs::write(directory.path().join(".env"), env).unwrap();
    let postgres = directory.path().join("postgres.url");
    fs::write(&postgres, "postgres://user:password@host/database\n").unwrap();
    fs::set_permissions(&postgres, fs::Permissions::from_mode(0o600)).unwrap();
    workflows::load_settings(&file)
}

/// Returns the `Debug` output of the settings, without their directory.
fn debug_text(settings: &Settings) -> String {
    let directory = settings.file.parent().unwrap().to_str().unwrap();
    format!("{settings:?}").replace(directory, "")
}

/// Returns all settings that the documentation pages list, as the text of one settings file.
fn listed_settings() -> String {
    let pages = pages();
    let listing = pages.iter().filter(|(_, text)| text.contains(SETTINGS.0));
    listing.map(|(name, text)| split(name, text, SETTINGS)[1]).collect::<Vec<_>>().join("\n")
}

#[test]
fn settings_listed_in_the_docs_equal_the_defaults() {
    let written = listed_settings();
    assert_eq!(
        debug_text(&settings(&written).unwrap()),
        debug_text(&settings(&with_required_tables("")).unwrap())
    );
    // With the commented `# key =` lines enabled the file must load, so that none of them is an obsolete key.
    let full: String =
        written.lines().map(|line| format!("{}\n", line.strip_prefix("# ").unwrap_or(line))).collect();
    // The directory must exist.
    settings(&full.replace("/etc/countersign/home", "/")).unwrap();
}

#[test]
fn each_setting_is_listed_in_the_docs() {
    let written = listed_settings();
    for table in ["app", "github", "server", "data", "installations", "models", "providers", "workers", "lld"]
        .into_iter()
        .chain([
            "providers.claude",
            "providers.gemini",
            "providers.ollama",
            "providers.openai",
            "providers.opencode",
            "providers.stub",
            "pools.default",
            "retry.usual",
            "capabilities",
            "roles",
            "workers.high",
            "sandbox",
            "telemetry",
        ])
    {
        for key in keys(table) {
            let there = written.lines().any(|line| {
                let line = line.strip_prefix("# ").unwrap_or(line);
                line.starts_with(&format!("{key} ="))
                    || line.starts_with(&format!("[{table}.{key}]"))
                    || line.starts_with(&format!("[[{table}.{key}]]"))
            });
            assert!(there, "no page lists {key} of [{table}]");
        }
    }
}

/// Returns the keys of a settings table. They are taken from the error message for an unknown key.
fn keys(table: &str) -> Vec<String> {
    let error = settings(&format!("[{table}]\nno_such_key = 1\n")).unwrap_err().to_string();
    let (_, list) = error.split_once("expected").unwrap_or_else(|| panic!("[{table}]: {error}"));
    list.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}
