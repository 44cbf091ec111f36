//! What is packaged names commands, places and times of the program; each is held to the program.

use std::{collections::BTreeSet, fs, path::Path, time::Duration};

use countersign::{cli, config::Settings};

fn packaged(name: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(name)).unwrap()
}

/// What follows `start` on the last line that begins with it.
#[track_caller]
fn after<'a>(text: &'a str, start: &str) -> &'a str {
    text.lines()
        .rev()
        .find_map(|line| line.strip_prefix(start))
        .unwrap_or_else(|| panic!("no line begins with {start:?}"))
}

/// The words of a JSON array, which is how a Dockerfile says a command.
fn words(array: &str) -> Vec<String> {
    serde_json::from_str(array).unwrap()
}

#[track_caller]
fn runs(words: &[String]) {
    let (program, rest) = words.split_first().unwrap();
    assert!(program.ends_with("countersign"), "{words:?}");
    cli::command().try_get_matches_from([&"countersign".to_owned()].into_iter().chain(rest)).unwrap();
}

/// As they come.
fn settings() -> Settings {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("countersign.toml");
    let least = "[app]\nid = 1\nprivate_key_file = \"private-key.pem\"\n[data]\ndir = \"data\"\n";
    fs::write(&file, least).unwrap();
    fs::write(directory.path().join(".env"), "COUNTERSIGN_WEBHOOK_SECRET=0123456789abcdef\n").unwrap();
    countersign::workflows::load_settings(&file).unwrap()
}

#[test]
fn the_image_starts_the_program_and_asks_it_how_it_is() {
    let image = packaged("packaging/Dockerfile");
    let [entry, command, (_, health)] =
        [after(&image, "ENTRYPOINT "), after(&image, "CMD "), after(&image, "HEALTHCHECK ")]
            .map(|line| line.split_once("CMD ").unwrap_or(("", line)));
    runs(&[words(entry.1), words(command.1)].concat());
    runs(&words(health));
    assert_eq!(words(command.1).last(), words(health).last(), "both have the same settings");
    assert_eq!(after(&image, "EXPOSE "), settings().server.listen.port().to_string());
    let user: u32 = after(&image, "USER ").parse().unwrap();
    assert!(user > 0 && image.contains(&format!("useradd --uid {user} ")));
    assert!(packaged("packaging/compose.yaml").contains("127.0.0.1:8008:8008"));
}

#[test]
fn two_nodes_wait_for_the_database_that_they_share() {
    use serde_norway::Value;
    let read = |file: &str| -> Value { serde_norway::from_str(&packaged(file)).unwrap() };
    let (one, both) = (read("packaging/compose.yaml"), read("packaging/compose.postgres.yaml"));
    let names = |of: &Value, key: &str| -> Vec<String> {
        of[key].as_mapping().unwrap().keys().map(|name| name.as_str().unwrap().to_owned()).collect()
    };
    assert!(names(&one, "services").contains(&"countersign".to_owned()));
    assert_eq!(names(&both, "services"), ["database", "countersign", "countersign-2"]);
    assert_eq!(names(&both, "volumes"), ["database", "data-2"]);
    let secret = both["secrets"]["postgres_password"]["file"].as_str().unwrap();
    assert!(packaged("packaging/README.md").contains(&format!("`{}`", secret.trim_start_matches("./"))));
}

/// The build reads these besides the code, and a context without them only fails where an image is built.
#[test]
fn the_image_is_built_of_all_that_the_build_reads() {
    let ignored = packaged("packaging/Dockerfile.dockerignore");
    let taken: BTreeSet<&str> = ignored.lines().filter_map(|line| line.strip_prefix('!')).collect();
    let manifest: toml::Table = packaged("Cargo.toml").parse().unwrap();
    let benches = manifest["bench"][0]["path"].as_str().unwrap().split('/').next().unwrap();
    for read in
        [".cargo", "Cargo.toml", "Cargo.lock", "askama.toml", "app-manifest.yml", "src", "fixtures", benches]
    {
        assert!(taken.contains(read) && Path::new(env!("CARGO_MANIFEST_DIR")).join(read).exists(), "{read}");
    }
}

#[test]
fn the_unit_starts_the_program_and_waits_for_its_end() {
    let unit = packaged("packaging/countersign.service");
    let command: Vec<String> = after(&unit, "ExecStart=").split(' ').map(str::to_owned).collect();
    runs(&command);
    assert!(command.last().unwrap().starts_with(after(&unit, "WorkingDirectory=")));
    assert_eq!(after(&unit, "WorkingDirectory="), format!("/var/lib/{}", after(&unit, "StateDirectory=")));
    runs(&after(&unit, "ExecReload=").split(' ').map(str::to_owned).collect::<Vec<_>>());
    // What the server itself waits at most, see `countersign serve --help`.
    let longest = settings().models.timeouts.longest() + Duration::from_secs(30);
    let minutes: u64 = after(&unit, "TimeoutStopSec=").strip_suffix("min").unwrap().parse().unwrap();
    assert!(Duration::from_secs(minutes * 60) > longest, "killed before a call that was paid for is over");
    let compose = packaged("packaging/compose.yaml");
    assert!(compose.contains(&format!("stop_grace_period: {minutes}m\n")));
}

#[test]
fn what_breaks_the_sandbox_is_left_out_of_the_unit_with_its_reason() {
    let unit = packaged("packaging/countersign.service");
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
            "{option}: why not?"
        );
    }
}

#[test]
fn actions_are_named_by_commit_and_the_rust_is_ours() {
    let release = packaged(".github/workflows/release.yml");
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
    assert!(release.contains(&image) && packaged("packaging/Dockerfile").contains(&image), "{image}");
}

#[test]
fn what_is_released_is_what_is_checked() {
    let release = packaged(".github/workflows/release.yml");
    let targets: BTreeSet<&str> = release
        .lines()
        .filter_map(|line| line.split_once("target: "))
        .map(|(_, rest)| rest.trim_end_matches(" }"))
        .filter(|target| target.ends_with("-gnu"))
        .collect();
    let deny: toml::Table = packaged("deny.toml").parse().unwrap();
    let checked = deny["graph"]["targets"].as_array().unwrap().iter().filter_map(|target| target.as_str());
    assert_eq!(targets, checked.collect());
    let pinned =
        |text: &str| text.split_once("cargo-deny@").unwrap().1.split_whitespace().next().unwrap().to_owned();
    let ci = packaged(".ci/run");
    assert!(ci.contains(&format!("cargo_deny_version='{}'", pinned(&release))));
}
