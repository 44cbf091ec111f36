//! Papers that repeat what the code says, held to it. `UPDATE_DOCS=1 cargo test --test house docs` writes
//! them anew.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use countersign::{
    commands::{COMMON, CommandSpec},
    config::{ConfigError, Settings},
    workflows,
};

const COMMANDS: (&str, &str) = ("<!-- commands -->\n", "<!-- /commands -->");
const SETTINGS: (&str, &str) = ("<!-- settings -->\n```toml\n", "```\n<!-- /settings -->");
const DIAGRAM: (&str, &str) = ("```mermaid\n", "```");

fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

fn readme() -> String {
    fs::read_to_string(path("README.md")).unwrap()
}

fn settings_page() -> String {
    fs::read_to_string(path("docs/settings.md")).unwrap()
}

/// The text before, between and after the marks; both must be there once.
fn split<'a>(name: &str, text: &'a str, (open, close): (&str, &str)) -> [&'a str; 3] {
    let Some((before, rest)) = text.split_once(open) else { panic!("{name} has no line {open:?}") };
    assert!(!rest.contains(open), "{name} has two lines {open:?}");
    let Some(end) = rest.find(close) else { panic!("{name} has no {close:?} after {open:?}") };
    [before, &rest[..end], &rest[end..]]
}

/// Holds what stands between the marks to `truth`, or writes it there.
#[track_caller]
fn holds(name: &str, marks: (&str, &str), truth: &str) {
    let text = fs::read_to_string(path(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
    let [before, written, after] = split(name, &text, marks);
    if written == truth {
        return;
    }
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::write(path(name), format!("{before}{}{truth}{after}", marks.0)).unwrap();
        return;
    }
    assert_eq!(written, truth, "{name} is behind the code; run UPDATE_DOCS=1 cargo test --test house docs");
}

#[test]
fn diagrams_are_the_graphs() {
    for workflow in workflows::ALL {
        let diagram = workflow.mermaid();
        holds(
            &format!("docs/workflows/{}.md", workflow.name()),
            DIAGRAM,
            &format!("{}\n", diagram.trim_end()),
        );
    }
}

#[test]
fn the_command_table_is_the_commands() {
    let rows = workflows::ALL.iter().flat_map(|workflow| workflow.commands()).chain(COMMON);
    let mut table = "| write | or label | least role | what it does |\n|---|---|---|---|\n".to_owned();
    rows.for_each(|row| table += &table_row(row));
    holds("README.md", COMMANDS, &table);
}

fn table_row(row: &CommandSpec) -> String {
    let label = row.label.map(|label| format!("`{label}`")).unwrap_or_default();
    let [usage, about] = [row.usage, row.about].map(|text| text.replace('|', "\\|"));
    format!("| `{usage}` | {label} | {} | {about} |\n", row.role)
}

/// What README tells people to type: the words after `countersign`, and after `cargo run … --`.
fn invocations(markdown: &str) -> BTreeSet<Vec<String>> {
    let mut found = BTreeSet::new();
    for line in code(markdown) {
        let words: Vec<&str> = line.split_whitespace().collect();
        for (index, word) in words.iter().enumerate() {
            let ours = word.rsplit('/').next() == Some("countersign") && !word.starts_with("/countersign");
            let run = *word == "--" && words[..index].ends_with(&["run", "--release"]);
            if ours || run {
                let rest = words[index + 1..].iter().take_while(|word| !["#", "&&", "|", ";"].contains(word));
                found.insert(rest.map(|word| (*word).to_owned()).collect());
            }
        }
    }
    found.retain(|words: &Vec<String>| !words.is_empty());
    found
}

/// Lines of fenced blocks that are for a shell or say no language, and inline code.
fn code(markdown: &str) -> Vec<&str> {
    let (mut lines, mut fence) = (Vec::new(), None);
    for line in markdown.lines() {
        match (line.trim_start().strip_prefix("```"), fence) {
            (Some(language), None) => fence = Some(language),
            (Some(_), Some(_)) => fence = None,
            (None, Some("" | "sh" | "console")) => lines.push(line),
            (None, Some(_)) => {}
            (None, None) => lines.extend(line.split('`').skip(1).step_by(2)),
        }
    }
    lines
}

fn help(arguments: &[&str]) -> Option<String> {
    let output =
        Command::new(env!("CARGO_BIN_EXE_countersign")).args(arguments).arg("--help").output().unwrap();
    output.status.success().then(|| String::from_utf8(output.stdout).unwrap())
}

#[test]
fn every_command_line_in_readme_exists() {
    let invocations = invocations(&readme());
    assert!(invocations.len() > 4, "README names hardly a command: {invocations:?}");
    for words in invocations {
        let line = words.join(" ");
        let subcommand = words.first().filter(|word| !word.starts_with('-'));
        let arguments: Vec<&str> = subcommand.iter().map(|word| word.as_str()).collect();
        let help = help(&arguments).unwrap_or_else(|| panic!("README: there is no `countersign {line}`"));
        for flag in words.iter().filter(|word| word.starts_with("--")) {
            let flag = flag.split('=').next().unwrap_or(flag).trim_end_matches([']', ',', '.']);
            let known = help.split(|c: char| c.is_whitespace() || c == ',').any(|word| word == flag);
            assert!(known || flag == "--help", "README: `countersign {line}`: there is no {flag}");
        }
    }
}

#[test]
fn commands_are_found_in_code_only() {
    let text = "Say countersign nothing. Run `countersign demo --yes` or\n```sh\ntarget/release/countersign serve # it\n\
                cargo run --release -- demo\n```\n```toml\n# countersign toml\n```\nA comment: `/countersign approve`.\n";
    let expected: [&[&str]; 3] = [&["demo"], &["demo", "--yes"], &["serve"]];
    assert_eq!(
        invocations(text),
        expected.iter().map(|words| words.iter().map(|w| (*w).to_owned()).collect()).collect()
    );
}

/// The settings that `text` means, in a directory that is the same for each.
fn settings(text: &str) -> Result<Settings, ConfigError> {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("countersign.toml");
    fs::write(&file, text).unwrap();
    let env = "COUNTERSIGN_WEBHOOK_SECRET=0123456789abcdef\nGEMINI_API_KEY_TEAM=AIza\n";
    fs::write(directory.path().join(".env"), env).unwrap();
    Settings::load(&file)
}

/// What `Debug` shows of them, wherever they were read from.
fn shown(settings: &Settings) -> String {
    let directory = settings.file.parent().unwrap().to_str().unwrap();
    format!("{settings:?}").replace(directory, "")
}

#[test]
fn the_settings_page_shows_the_defaults() {
    let text = settings_page();
    let [_, written, _] = split("docs/settings.md", &text, SETTINGS);
    let least = "[app]\nid = 123456\nprivate_key_file = \"private-key.pem\"\n[data]\ndir = \"data\"\n";
    assert_eq!(shown(&settings(written).unwrap()), shown(&settings(least).unwrap()));
    // With its `# key =` lines in force it still means something, so none of them is a key that is gone.
    let full: String =
        written.lines().map(|line| format!("{}\n", line.strip_prefix("# ").unwrap_or(line))).collect();
    settings(&full).unwrap();
}

#[test]
fn the_settings_page_names_every_setting() {
    let text = settings_page();
    let [_, written, _] = split("docs/settings.md", &text, SETTINGS);
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
        ])
    {
        for key in keys(table) {
            let there = written.lines().any(|line| {
                let line = line.strip_prefix("# ").unwrap_or(line);
                line.starts_with(&format!("{key} ="))
                    || line.starts_with(&format!("[{table}.{key}]"))
                    || line.starts_with(&format!("[[{table}.{key}]]"))
            });
            assert!(there, "docs/settings.md lacks {key} of [{table}]");
        }
    }
}

/// The keys of a table, by what it says to one that it does not know.
fn keys(table: &str) -> Vec<String> {
    let error = settings(&format!("[{table}]\nno_such_key = 1\n")).unwrap_err().to_string();
    let (_, list) = error.split_once("expected").unwrap_or_else(|| panic!("[{table}]: {error}"));
    list.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}
