use std::os::unix::fs::{PermissionsExt, symlink};

use super::*;

const KIND: ProgramKind =
    ProgramKind { title: "the parrot", name: "parrot", install: "buy a parrot", tried: &["1.2.3"] };

fn script(path: &Path, body: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, format!("#!/bin/sh\n{body}\n")).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

/// Creates a program whose script has this `body`, in a directory next to the server's files.
fn program(place: &Path, body: &str) -> ModelProgram {
    let path = place.join("opt/parrot");
    script(&path, body);
    let settings =
        ProgramSettings { path: Some(path), ..ProgramSettings::with_config_dir(place.join("data/parrot")) };
    ModelProgram::new(&KIND, settings, vec![place.join("data"), place.join(".env")])
}

async fn found(program: &ModelProgram) -> Result<String, String> {
    program.find(&CancellationToken::new()).await.map(|found| found.version)
}

#[tokio::test]
async fn version_of_a_model_cli_is_read_once_per_executable_file() {
    let place = tempfile::tempdir().unwrap();
    let parrot = program(place.path(), "echo asked >> \"$0.log\"; echo '1.2.3 (Parrot)'");
    // It can write nowhere else, so its log write fails silently.
    assert_eq!(found(&parrot).await.unwrap(), "1.2.3");
    assert!(!place.path().join("opt/parrot.log").exists(), "it wrote beside itself");
    assert_eq!(parrot.describe().await.unwrap(), format!("1.2.3 at {}/opt/parrot", place.path().display()));
    assert_eq!(parrot.probed.lock().unwrap().len(), 1);

    script(&place.path().join("opt/parrot"), "echo 2.0.0-beta");
    fs::File::options()
        .write(true)
        .open(place.path().join("opt/parrot"))
        .and_then(|file| file.set_modified(SystemTime::UNIX_EPOCH))
        .unwrap();
    assert_eq!(found(&parrot).await.unwrap(), "2.0.0-beta", "another file is asked anew");
    let description = parrot.describe().await.unwrap();
    assert!(
        description.contains("which this release was not tested with (it was with 1.2.3)"),
        "{description}"
    );
}

#[tokio::test]
async fn model_program_without_a_valid_version_is_refused() {
    let place = tempfile::tempdir().unwrap();
    for body in [
        "echo 'native binary not installed' >&2; exit 1",
        "echo 1.2.3; exit 1",
        "echo hello",
        "exit 0",
        "printf '1.2.3-\\033[2J'",
        "printf '1.2.3-'; head -c 100 /dev/zero | tr '\\0' a",
        "printf '1.2.\\377'",
    ] {
        let parrot = program(place.path(), body);
        assert_eq!(parrot.missing_requirement(), None, "nobody has tried it yet");
        let why = found(&parrot).await.unwrap_err();
        assert!(why.starts_with("the parrot does not work (") && why.contains("buy a parrot"), "{why}");
        assert_eq!(parrot.missing_requirement(), Some(why));
    }
}

#[test]
fn home_of_a_model_program_is_accessible_to_its_owner_only() {
    let place = tempfile::tempdir().unwrap();
    let home = program(place.path(), "").prepare_home().unwrap();
    assert_eq!(home.path().metadata().unwrap().permissions().mode() & 0o777, 0o700);
}

#[tokio::test]
async fn model_program_cannot_read_files_of_the_server() {
    let place = tempfile::tempdir().unwrap();
    let at = |name: &str| place.path().join(name);
    fs::create_dir_all(at("data/repos")).unwrap();
    for secret in [".env", "key.pem", "countersign.toml", "data/main.db"] {
        fs::write(at(secret), "the-secret").unwrap();
    }
    let body = format!(
        "cat {0}/.env {0}/key.pem {0}/countersign.toml {0}/data/main.db >&2; ls {0} {0}/data >&2; \
         cat /proc/$PPID/environ >&2; echo 1.2.3",
        place.path().display()
    );
    let parrot = program(place.path(), &body);
    let found = parrot.find(&CancellationToken::new()).await.unwrap();
    let home = parrot.prepare_home().unwrap();
    let output = parrot.command(&found.path, home.path()).run(&CancellationToken::new()).await.unwrap();
    let stderr = output.stderr_text();
    assert!(!stderr.contains("the-secret") && !stderr.contains("main.db\n"), "{stderr}");
    assert!(stderr.matches("Permission denied").count() >= 7, "{stderr}");
}

#[test]
fn error_for_a_model_program_able_to_read_server_files_says_how_to_prevent_it() {
    let place = tempfile::tempdir().unwrap();
    let mut parrot = program(place.path(), "echo 1.2.3");
    assert_eq!(parrot.missing_requirement(), None);
    parrot.settings.config_dir = place.path().join("data");
    let why = parrot.missing_requirement().unwrap();
    assert!(
        why.contains("could read")
            && why.ends_with(&format!("move {}/data elsewhere", place.path().display()))
    );

    let modules = place.path().join("app/node_modules");
    script(&modules.join("parrot/bin/parrot"), "echo 1.2.3");
    let mut parrot = program(place.path(), "");
    parrot.settings.path = Some(modules.join("parrot/bin/parrot"));
    parrot.ours = vec![modules.join(".env")];
    assert!(parrot.missing_requirement().is_some_and(|why| why.contains("node_modules/.env")));
    parrot.ours = vec![place.path().join("app/.env")];
    assert_eq!(parrot.missing_requirement(), None);

    // Also through symlinks, and in paths that every confined program may read.
    symlink(&modules, place.path().join("linked")).unwrap();
    for own in [place.path().join("linked/new/key.pem"), "/etc/ssl/certs/key.pem".into(), "/lib/data".into()]
    {
        parrot.ours = vec![own];
        assert!(
            parrot.missing_requirement().is_some_and(|why| why.contains("could read")),
            "{:?}",
            parrot.ours
        );
    }
}

#[test]
fn files_required_by_a_script_include_its_packages_and_its_interpreter() {
    let place = tempfile::tempdir().unwrap();
    let root = place.path().canonicalize().unwrap();
    let package = root.join("lib/node_modules/parrot/bin/parrot");
    script(&package, "");
    fs::write(&package, "#!/usr/bin/env -S node --flag\n").unwrap();
    script(&root.join("bin/node"), "");
    symlink(&package, root.join("bin/parrot")).unwrap();
    let expected = [root.join("lib/node_modules"), root.join("bin/node")];
    assert_eq!(installation(&root.join("bin/parrot")), expected);

    let alone = root.join("versions/1.2.3");
    fs::create_dir_all(root.join("versions")).unwrap();
    fs::write(&alone, "\x7fELF").unwrap();
    assert_eq!(installation(&alone), [alone]);
}

#[test]
fn node_version_directories_are_listed_newest_first() {
    let place = tempfile::tempdir().unwrap();
    for version in ["v9.1.0", "v22.3.0", "v20.11.1"] {
        fs::create_dir_all(place.path().join(version)).unwrap();
    }
    let found = expand_pattern(&place.path().join("*/bin"));
    let expected = ["v22.3.0/bin", "v20.11.1/bin", "v9.1.0/bin"].map(|version| place.path().join(version));
    assert_eq!(found, expected);
    assert_eq!(expand_pattern(Path::new("/usr/local/bin")), [Path::new("/usr/local/bin")]);
}
