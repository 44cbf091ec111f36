//! Checks that commands, paths and times in the packaging files match the program.

use std::{collections::BTreeSet, fs, path::Path, time::Duration};

use countersign::{cli, config::Settings};

fn read_file(name: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(name)).unwrap()
}

/// Returns the rest of the last line that begins with `start`.
#[track_caller]
fn value_of<'a>(text: &'a str, start: &str) -> &'a str {
    text.lines()
        .rev()
        .find_map(|line| line.strip_prefix(start))
        .unwrap_or_else(|| panic!("no line begins with {start:?}"))
}

/// Parses a JSON array of strings, the form in which a Dockerfile contains a command.
fn words(array: &str) -> Vec<String> {
    serde_json::from_str(array).unwrap()
}

#[track_caller]
fn assert_parses(words: &[String]) {
    let (program, rest) = words.split_first().unwrap();
    assert!(program.ends_with("countersign"), "{words:?}");
    cli::command().try_get_matches_from([&"countersign".to_owned()].into_iter().chain(rest)).unwrap();
}

/// Returns the settings with all defaults.
fn settings() -> Settings {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("countersign.toml");
    let least = "[app]\nid = 1\nprivate_key_file = \"private-key.pem\"\n[data]\ndir = \"data\"\n";
    fs::write(&file, least).unwrap();
    fs::write(directory.path().join(".env"), "COUNTERSIGN_WEBHOOK_SECRET=0123456789abcdef\n").unwrap();
    countersign::workflows::load_settings(&file).unwrap()
}

#[test]
fn image_starts_the_program_and_checks_its_health() {
    let image = read_file("packaging/Dockerfile");
    let [entry, command, (_, health)] =
        [value_of(&image, "ENTRYPOINT "), value_of(&image, "CMD "), value_of(&image, "HEALTHCHECK ")]
            .map(|line| line.split_once("CMD ").unwrap_or(("", line)));
    assert_parses(&[words(entry.1), words(command.1)].concat());
    assert_parses(&words(health));
    assert_eq!(words(command.1).last(), words(health).last(), "both commands use the same settings file");
    assert_eq!(value_of(&image, "EXPOSE "), settings().server.listen.port().to_string());
    let user: u32 = value_of(&image, "USER ").parse().unwrap();
    assert!(user > 0 && image.contains(&format!("useradd --uid {user} ")));
    assert!(read_file("packaging/compose.yaml").contains("127.0.0.1:8008:8008"));
}

#[test]
fn compose_file_has_two_nodes_and_their_database() {
    use serde_norway::Value;
    let read = |file: &str| -> Value { serde_norway::from_str(&read_file(file)).unwrap() };
    let (one, both) = (read("packaging/compose.yaml"), read("packaging/compose.postgres.yaml"));
    let names = |of: &Value, key: &str| -> Vec<String> {
        of[key].as_mapping().unwrap().keys().map(|name| name.as_str().unwrap().to_owned()).collect()
    };
    assert!(names(&one, "services").contains(&"countersign".to_owned()));
    assert_eq!(names(&both, "services"), ["database", "countersign", "countersign-2"]);
    assert_eq!(names(&both, "volumes"), ["database", "data-2"]);
    let secret = both["secrets"]["postgres_password"]["file"].as_str().unwrap();
    assert!(read_file("packaging/README.md").contains(&format!("`{}`", secret.trim_start_matches("./"))));
}

/// Tests that the Docker context contains the files that the build reads in addition to the code. A missing file would
/// go unnoticed until somebody builds the image.
#[test]
fn docker_context_has_all_build_inputs() {
    let ignored = read_file("packaging/Dockerfile.dockerignore");
    let taken: BTreeSet<&str> = ignored.lines().filter_map(|line| line.strip_prefix('!')).collect();
    let manifest: toml::Table = read_file("Cargo.toml").parse().unwrap();
    let benches = manifest["bench"][0]["path"].as_str().unwrap().split('/').next().unwrap();
    for read in
        [".cargo", "Cargo.toml", "Cargo.lock", "askama.toml", "app-manifest.yml", "src", "fixtures", benches]
    {
        assert!(taken.contains(read) && Path::new(env!("CARGO_MANIFEST_DIR")).join(read).exists(), "{read}");
    }
}

#[test]
fn systemd_unit_starts_the_program_and_waits_for_its_shutdown() {
    let unit = read_file("packaging/countersign.service");
    let command: Vec<String> = value_of(&unit, "ExecStart=").split(' ').map(str::to_owned).collect();
    assert_parses(&command);
    assert!(command.last().unwrap().starts_with(value_of(&unit, "WorkingDirectory=")));
    assert_eq!(
        value_of(&unit, "WorkingDirectory="),
        format!("/var/lib/{}", value_of(&unit, "StateDirectory="))
    );
    assert_parses(&value_of(&unit, "ExecReload=").split(' ').map(str::to_owned).collect::<Vec<_>>());
    // Longest time the server waits at shutdown, see `countersign serve --help`.
    let longest = settings().models.timeouts.longest() + Duration::from_secs(30);
    let minutes: u64 = value_of(&unit, "TimeoutStopSec=").strip_suffix("min").unwrap().parse().unwrap();
    assert!(Duration::from_secs(minutes * 60) > longest, "systemd kills the server before a paid call ends");
    let compose = read_file("packaging/compose.yaml");
    assert!(compose.contains(&format!("stop_grace_period: {minutes}m\n")));
}

#[test]
fn systemd_unit_sets_no_option_that_breaks_the_sandbox() {
    let unit = read_file("packaging/countersign.service");
    for option in [
        "RestrictNamespaces",
        "RestrictSUIDSGID",
        "ProtectHostname",
        "ProtectKernelTunables",
        "ProtectKernelLogs",
        "ProcSubset",
    ] {
        assert!(!unit.lines().any(|line| line.starts_with(option)), "{option} is set");
        assert!(
            unit.lines().any(|line| line.starts_with('#') && line.contains(option)),
            "{option}: a comment must give the reason"
        );
    }
}

#[test]
fn release_workflow_pins_action_commits_and_the_rust_version_from_cargo_toml() {
    let release = read_file(".github/workflows/release.yml");
    let actions: Vec<&str> = release
        .lines()
        .filter_map(|line| line.trim().trim_start_matches("- ").strip_prefix("uses: "))
        .collect();
    assert!(actions.len() > 3);
    for action in actions {
        let commit = action.split_once('@').unwrap().1.split_once(" # v").unwrap().0;
        assert!(commit.len() == 40 && commit.chars().all(|c| c.is_ascii_hexdigit()), "{action}");
    }
    let rust =
        cargo_metadata::MetadataCommand::new().no_deps().other_options(["--offline".to_owned()]).exec();
    let rust = rust.unwrap().root_package().unwrap().rust_version.clone().unwrap();
    let image = format!("rust:{}.{}-slim", rust.major, rust.minor);
    assert!(release.contains(&image) && read_file("packaging/Dockerfile").contains(&image), "{image}");
}

#[test]
fn release_targets_equal_the_targets_checked_by_cargo_deny() {
    let release = read_file(".github/workflows/release.yml");
    let targets: BTreeSet<&str> = release
        .lines()
        .filter_map(|line| line.split_once("target: "))
        .map(|(_, rest)| rest.trim_end_matches(" }"))
        .filter(|target| target.ends_with("-gnu"))
        .collect();
    let deny: toml::Table = read_file("deny.toml").parse().unwrap();
    let checked = deny["graph"]["targets"].as_array().unwrap().iter().filter_map(|target| target.as_str());
    assert_eq!(targets, checked.collect());
    let pinned =
        |text: &str| text.split_once("cargo-deny@").unwrap().1.split_whitespace().next().unwrap().to_owned();
    let ci = read_file(".ci/run");
    assert!(ci.contains(&format!("cargo_deny_version='{}'", pinned(&release))));
}
