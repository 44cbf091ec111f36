//! Fetch presets of each ecosystem: the files to read, the lock file entries to refuse, and the command. For Node, see
//! `node_packages`.

use std::{collections::BTreeMap, path::Path};

use super::{
    dependencies::{DependencyPreset, FetchNeed, FetchPlan, FileContents, ProjectManifests, SETTINGS_FILE},
    toolchains::SYSTEM_PATH,
};

/// Maximum number of refused entries named in an error message.
const NAMED: usize = 5;

pub(super) const CARGO: DependencyPreset = DependencyPreset {
    name: "cargo",
    is_manifest: |path| matches!(file_name(path), "Cargo.toml" | "Cargo.lock"),
    plan_fetch: plan_cargo,
    install: |made, tool| {
        let parts = [".cargo/registry/index", ".cargo/registry/cache", ".cargo/registry/src"];
        let before: Vec<_> = tool.home.iter().map(|(_, path)| path.clone()).collect();
        tool.read.retain(|path| !before.contains(path));
        let parts = parts.into_iter().map(|name| (name, made.join("home").join(name)));
        let config = (CARGO_CONFIG, made.join(SETTINGS_FILE));
        tool.home = parts.chain([config]).filter(|(_, path)| path.exists()).collect();
        tool.read.extend(tool.home.iter().map(|(_, path)| path.clone()));
        tool.locks = Some(made.join("tree"));
    },
    settings_for_tests: mirror_settings,
    saves_time: false,
};

const CARGO_CONFIG: &str = ".cargo/config.toml";

/// Returns the cargo settings that offline runs need in order to use a mirror. Credentials and all other settings are
/// left out.
fn mirror_settings(home: &FileContents) -> Result<String, String> {
    let Some(config) = home.get(CARGO_CONFIG) else { return Ok(String::new()) };
    let config: toml::Table = toml::from_str(&String::from_utf8_lossy(config))
        .map_err(|error| format!("the operator's {CARGO_CONFIG}: {}", error.message()))?;
    let table = |name: &str| config.get(name).and_then(toml::Value::as_table).cloned().unwrap_or_default();
    let (mut sources, mut registries) = (table("source"), table("registries"));
    let replaces = |source: &toml::Value, name: &str| {
        source.get("replace-with").and_then(toml::Value::as_str) == Some(name)
    };
    registries.retain(|name, _| sources.values().any(|source| replaces(source, name)));
    for (all, known) in [
        (&mut sources, &["registry", "replace-with", "directory", "local-registry"][..]),
        (&mut registries, &["index"]),
    ] {
        all.retain(|_, of| of.is_table());
        all.iter_mut()
            .filter_map(|(_, of)| of.as_table_mut())
            .for_each(|of| of.retain(|key, _| known.contains(&key)));
    }
    let secret = |value: &toml::Value| {
        let authority = value.as_str()?.split_once("://")?.1.split('/').next()?;
        Some(authority.contains('@') || value.as_str()?.contains(['?', '#']))
    };
    let of =
        |table: &toml::Value| table.as_table().is_some_and(|t| t.values().any(|v| secret(v) == Some(true)));
    let named = sources.iter().chain(&registries).filter(|(_, table)| of(table));
    reject_entries(
        "tests can read the operator's mirror addresses, so only addresses without user and query are allowed",
        named.map(|(name, _)| name.clone()),
    )?;
    let tables =
        [("source", sources), ("registries", registries)].map(|(name, all)| (name.to_owned(), all.into()));
    Ok(toml::Table::from_iter(tables).to_string())
}

pub(super) const NO_SETTINGS: fn(&FileContents) -> Result<String, String> = |_| Ok(String::new());

#[derive(serde::Deserialize)]
struct CargoLock {
    #[serde(default)]
    package: Vec<LockedCrate>,
}

#[derive(serde::Deserialize)]
struct LockedCrate {
    name: String,
    source: Option<String>,
}

fn plan_cargo(seen: &ProjectManifests<'_>) -> Result<FetchNeed, String> {
    if seen.paths.iter().any(|path| file_name(path) == ".cargo-checksum.json") {
        return Ok(FetchNeed::Nothing);
    }
    let lock = seen.nearest_file("Cargo.lock");
    match lock {
        Some((_, lock)) => {
            let lock: CargoLock =
                toml::from_str(lock).map_err(|error| format!("Cargo.lock: {}", error.message()))?;
            let sources = || {
                lock.package.iter().filter_map(|package| Some((&package.name, package.source.as_deref()?)))
            };
            // A lock file always names the default registry this way, even behind a mirror.
            let own = |source: &str| source.starts_with("registry+") && source.ends_with("/crates.io-index");
            reject_entries(
                "only crates from cargo's own registry are fetched",
                sources()
                    .filter(|(_, source)| !own(source))
                    .map(|(name, source)| format!("{name} ({source})")),
            )?;
            if sources().next().is_none() {
                return Ok(FetchNeed::Nothing);
            }
        }
        None => {
            let table = |line: &str| line.trim_start().starts_with('[') && line.contains("dependencies");
            if !seen.files.values().any(|manifest| manifest.lines().any(table)) {
                return Ok(FetchNeed::Nothing);
            }
        }
    }
    let root = seen.tool.program.parent().and_then(Path::parent).unwrap_or(Path::new("/usr")).display();
    let host = seen.tool.version.lines().find_map(|line| line.strip_prefix("host: "));
    let target = host.map(|host| format!("--target={host}"));
    let fetch = |how: &[&str]| {
        let words = ["fetch"].iter().chain(how).map(|word| (*word).to_owned());
        words.chain(target.clone()).collect()
    };
    // Cargo requires the target files to exist, but finds them by name alone.
    let empty = seen.paths.iter().filter(|path| path.ends_with(".rs"));
    let empty = empty.map(|path| (path.clone(), String::new()));
    Ok(FetchNeed::Fetch(FetchPlan {
        program: seen.tool.program.clone(),
        // Without a lock file, cargo writes one, which is stored with the crates.
        args: fetch(lock.as_ref().map_or(&[], |_| &["--locked"][..])),
        local: fetch(&["--offline"]),
        least: Vec::new(),
        environment: vec![
            ("PATH", format!("{root}/bin:{SYSTEM_PATH}")),
            ("RUSTUP_TOOLCHAIN", root.to_string()),
            ("CARGO_TERM_COLOR", "never".to_owned()),
            // A host that refuses once will refuse again.
            ("CARGO_NET_RETRY", "1".to_owned()),
        ],
        files: seen.files.clone().into_iter().chain(empty).collect(),
        folder: seen.folder.to_owned(),
        notes: match lock {
            Some(_) => Vec::new(),
            None => vec![
                "there is no Cargo.lock: the crates' versions were resolved on {day} and stay the same until a manifest changes"
                    .to_owned(),
            ],
        },
        ..FetchPlan::default()
    }))
}

pub(super) const PIP: DependencyPreset = DependencyPreset {
    name: "pip",
    is_manifest: |path| {
        let (name, folder) = (file_name(path), path.rsplit('/').nth(1).unwrap_or_default());
        let listed =
            name.contains("requirements") || name.contains("constraints") || folder == "requirements";
        listed && name.ends_with(".txt") || PYTHON_MANIFESTS.contains(&name)
    },
    plan_fetch: plan_pip,
    install: |made, tool| {
        let sites = ["home/site", "home/build"].map(|name| made.join(name)).into_iter();
        tool.sites = sites.filter(|site| site.is_dir()).collect();
        tool.read.extend(tool.sites.clone());
    },
    settings_for_tests: NO_SETTINGS,
    saves_time: false,
};

const PYTHON_MANIFESTS: &[&str] = &[
    "pyproject.toml",
    "setup.cfg",
    "setup.py",
    "tox.ini",
    "uv.lock",
    "poetry.lock",
    "pdm.lock",
    "Pipfile.lock",
];

/// Words in the path of a requirements file that says what the project or its tests need.
const REQUIREMENTS_WORDS: &[&str] = &[
    "requirements",
    "requirement",
    "reqs",
    "txt",
    "base",
    "main",
    "test",
    "tests",
    "testing",
    "unit",
    "dev",
    "develop",
    "development",
];

/// Regular expression for a requirement with package, version, markers and hashes, but without a source URL.
const PINNED: &str = r"^[A-Za-z0-9][A-Za-z0-9._-]*(\[[A-Za-z0-9 ,._-]*\])?\s*===?\s*[A-Za-z0-9.!+_-]+\s*(;[^@/#:]*?)?(\s+--hash=sha(256|384|512):[0-9a-f]+)+$";

/// File with all requirements that the project pins by hash. Its name is not one that a project would use.
const PINNED_FILE: &str = ".pinned-by-hash";

fn plan_pip(seen: &ProjectManifests<'_>) -> Result<FetchNeed, String> {
    let mut files = BTreeMap::new();
    for (path, text) in seen.files {
        let relative = seen
            .relative_path(path)
            .filter(|relative| relative.matches('/').count() < 2 || file_name(relative) == "pyproject.toml");
        files.extend(relative.map(|relative| (relative.to_owned(), text.clone())));
    }
    let lists = |path: &str| {
        let mut words = path.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
        path.ends_with(".txt") && words.all(|word| REQUIREMENTS_WORDS.contains(&&*word.to_ascii_lowercase()))
    };
    let mut lists: Vec<String> = files.keys().filter(|path| lists(path)).cloned().collect();
    let declares = |(path, text): (&String, &String)| match file_name(path) {
        "pyproject.toml" => text.contains("requires") || text.contains("ependenc"),
        "setup.cfg" => text.contains("_require"),
        "tox.ini" => ["deps", "extras", "dependency_groups"].iter().any(|key| text.contains(key)),
        name => name == "setup.py" || lists.contains(path),
    };
    if !files.iter().filter(|(path, _)| !path.contains('/') || lists.contains(path)).any(declares) {
        return Ok(FetchNeed::Nothing);
    }
    let pinned = pinned_requirements(
        files.iter().filter(|(path, text)| lists.contains(path) && text.contains("--hash=")),
    )?;
    if !pinned.is_empty() {
        files.insert(PINNED_FILE.to_owned(), pinned);
        lists = vec![PINNED_FILE.to_owned()];
    }
    let run = |what: &str| {
        let words = ["-I", "-c", include_str!("python_requirements.py"), what].map(str::to_owned);
        words.into_iter().chain(lists.clone()).collect()
    };
    Ok(FetchNeed::Fetch(FetchPlan {
        program: seen.tool.program.clone(),
        args: run("fetch"),
        local: run("local"),
        least: run("least"),
        environment: Vec::new(),
        files: files.into_iter().map(|(path, text)| (seen.joined(&path), text)).collect(),
        folder: seen.folder.to_owned(),
        ..FetchPlan::default()
    }))
}

/// Returns the requirements of these files, one per line.
///
/// # Errors
///
/// Returns the lines that do not pin a package by hash.
fn pinned_requirements<'f>(files: impl Iterator<Item = (&'f String, &'f String)>) -> Result<String, String> {
    let files: Vec<_> = files.collect();
    let form = regex::Regex::new(PINNED).map_err(|error| error.to_string())?;
    let mut all = String::new();
    let mut others = Vec::new();
    for (path, text) in &files {
        // A backslash continues a line; ` #` starts a comment.
        for line in text.replace("\\\r\n", " ").replace("\\\n", " ").lines() {
            let line = line.split(" #").next().unwrap_or_default().trim();
            let more = line.strip_prefix("-r").or(line.strip_prefix("-c")).map(str::trim);
            let known = |more: &str| files.iter().any(|(path, _)| file_name(path) == file_name(more));
            match line {
                "" => {}
                _ if line.starts_with('#') || more.is_some_and(known) => {}
                _ if form.is_match(line) => all += &format!("{line}\n"),
                _ => others.push(format!("`{line}` of {path}")),
            }
        }
    }
    reject_entries("packages are fetched only by name, version and hash", others.into_iter())?;
    Ok(all)
}

pub(super) const GO: DependencyPreset = DependencyPreset {
    name: "go",
    is_manifest: |path| matches!(file_name(path), "go.mod" | "go.sum" | "go.work" | "go.work.sum"),
    plan_fetch: plan_go,
    install: |made, tool| {
        let modules = made.join("home/go/pkg/mod");
        tool.environment = vec![("GOMODCACHE", modules.display().to_string())];
        tool.read.push(modules);
    },
    settings_for_tests: NO_SETTINGS,
    saves_time: false,
};

fn plan_go(seen: &ProjectManifests<'_>) -> Result<FetchNeed, String> {
    let vendored = |path: &String| {
        seen.relative_path(path) == Some("vendor/modules.txt") || path == "vendor/modules.txt"
    };
    let Some((folder, module)) = seen.nearest_file("go.mod").filter(|_| !seen.paths.iter().any(vendored))
    else {
        return Ok(FetchNeed::Nothing);
    };
    let sums: Vec<_> = ["go.sum", "go.work.sum"].iter().filter_map(|name| seen.nearest_file(name)).collect();
    if sums.is_empty() {
        return Ok(match module.contains("require") {
            true => unknown_need("there is no go.sum; only modules that it pins are fetched"),
            false => FetchNeed::Nothing,
        });
    }
    // Checked here, because Go itself would download more than the tests need.
    let own = seen.tool.environment.iter().find(|(name, _)| *name == "GOMODCACHE");
    let there = |line: &str| match line.split(' ').collect::<Vec<_>>()[..] {
        [module, version, _] if !version.ends_with("/go.mod") => {
            own.is_some_and(|(_, cache)| Path::new(cache).join(module_cache_name(module, version)).is_dir())
        }
        _ => true,
    };
    if sums.iter().flat_map(|(_, sums)| sums.lines()).all(there) {
        return Ok(FetchNeed::Nothing);
    }
    let bin = seen.tool.program.parent().unwrap_or(Path::new("/usr/bin"));
    let mut environment = vec![
        ("PATH", format!("{}:{SYSTEM_PATH}", bin.display())),
        ("GOTOOLCHAIN", "local".to_owned()),
        // Modules missing from go.sum are not looked up, and no module comes from a version control host.
        ("GOSUMDB", "off".to_owned()),
        ("GOVCS", "*:off".to_owned()),
        ("GOFLAGS", "-mod=readonly -modcacherw".to_owned()),
    ];
    environment.extend(certificate_file().into_iter().map(|file| ("SSL_CERT_FILE", file)));
    Ok(FetchNeed::Fetch(FetchPlan {
        program: seen.tool.program.clone(),
        args: ["mod", "download"].map(str::to_owned).into(),
        environment,
        files: seen.files.clone(),
        folder,
        ..FetchPlan::default()
    }))
}

/// Preset that prebuilds Go's standard library. Go ships the library as source and would compile it in each run, so
/// that even a one-line test would take 20 s.
pub(super) const GO_LIBRARY: DependencyPreset = DependencyPreset {
    name: "go's library",
    is_manifest: |_| false,
    plan_fetch: |seen| {
        let bin = seen.tool.program.parent().unwrap_or(Path::new("/usr/bin")).display();
        Ok(FetchNeed::Fetch(FetchPlan {
            program: "/bin/sh".into(),
            args: ["-c", LIBRARY].map(str::to_owned).into(),
            environment: vec![("PATH", format!("{bin}:{SYSTEM_PATH}")), ("GOTOOLCHAIN", "local".to_owned())],
            ..FetchPlan::default()
        }))
    },
    install: |made, tool| tool.built = Some(made.join("home/built")),
    settings_for_tests: NO_SETTINGS,
    saves_time: true,
};

/// Script that compiles Go's standard library. The script ignores packages that fail to build. A test run that needs
/// such a package builds it itself, or reports the error.
const LIBRARY: &str = "export GOCACHE=\"$HOME/built\"; mkdir \"$GOCACHE\"; echo module a >go.mod; \
    { echo package a; go list std | grep -vE '(^|/)(internal|vendor)(/|$)' | sed 's/.*/import _ \"&\"/'; } >a_test.go; \
    go test . || :";

/// Escapes capital letters in the same way as Go's module cache, because some file systems ignore case.
fn module_cache_name(module: &str, version: &str) -> String {
    let marked =
        |c: char| if c.is_ascii_uppercase() { format!("!{}", c.to_ascii_lowercase()) } else { c.into() };
    format!("{module}@{version}").chars().map(marked).collect()
}

/// Returns the path of this machine's certificate file, for tools that do not use the system's certificates by default.
pub(super) fn certificate_file() -> Option<String> {
    let known =
        ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem"];
    known.into_iter().find(|file| Path::new(file).is_file()).map(str::to_owned)
}

impl ProjectManifests<'_> {
    /// Returns the folder and text of the nearest file named `name`. Searches the project's folder first, then each
    /// parent folder.
    fn nearest_file(&self, name: &str) -> Option<(String, &str)> {
        let folders = Path::new(self.folder).ancestors();
        let mut there = folders.filter_map(|folder| {
            let text = self.files.get(folder.join(name).to_str()?)?;
            Some((folder.to_str()?.to_owned(), text.as_str()))
        });
        there.next()
    }

    /// Returns the path, relative to the repository's root, of a path in the project's folder.
    fn joined(&self, path: &str) -> String {
        if self.folder.is_empty() { path.to_owned() } else { format!("{}/{path}", self.folder) }
    }

    /// Returns `path` relative to the project's folder. `None` if `path` is outside that folder.
    fn relative_path<'p>(&self, path: &'p str) -> Option<&'p str> {
        match self.folder {
            "" => Some(path),
            folder => path.strip_prefix(folder)?.strip_prefix('/'),
        }
    }
}

pub(super) fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

pub(super) fn unknown_need(why: &str) -> FetchNeed {
    FetchNeed::Unknown(why.to_owned())
}

/// Rejects lock file entries that break a rule.
///
/// # Errors
///
/// Returns the rule and the entries, if there are any.
pub(super) fn reject_entries(rule: &str, these: impl Iterator<Item = String>) -> Result<(), String> {
    let these: Vec<String> = these.collect();
    let more = these.len().saturating_sub(NAMED);
    match these.first() {
        None => Ok(()),
        Some(_) if more == 0 => Err(format!("{rule}, not {}", these.join(", "))),
        Some(_) => Err(format!("{rule}, not {} and {more} more", these[..NAMED].join(", "))),
    }
}

#[cfg(test)]
mod tests {
    use super::{super::toolchains::Toolchain, *};

    /// Returns the fetch planned for a commit with these files, as "nothing", a reason, or a command line. `folder` is
    /// the project's folder.
    fn needed(preset: &DependencyPreset, folder: &str, files: &[(&str, &str)]) -> String {
        let paths: Vec<String> = files.iter().map(|(path, _)| (*path).to_owned()).collect();
        let files = files.iter().filter(|(path, _)| (preset.is_manifest)(path));
        let files = files.map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect();
        let tool = Toolchain {
            program: "/t/bin/p".into(),
            version: "v\nhost: h".to_owned(),
            ..Toolchain::default()
        };
        match (preset.plan_fetch)(&ProjectManifests { folder, paths: &paths, files: &files, tool: &tool }) {
            Ok(FetchNeed::Nothing) => "nothing".to_owned(),
            Ok(FetchNeed::Unknown(why)) => format!("unknown: {why}"),
            Ok(FetchNeed::Fetch(plan)) => {
                let seen: Vec<_> =
                    plan.files.iter().map(|(path, text)| format!("{path}:{}", text.len())).collect();
                let args: Vec<_> =
                    plan.args.iter().filter(|arg| !arg.starts_with("--cert=")).cloned().collect();
                format!("in `{}` {} sees {}", plan.folder, args.join(" "), seen.join(" "))
            }
            Err(why) => format!("refused: {why}"),
        }
    }

    #[test]
    fn cargo_fetches_only_locked_crates() {
        let lock = |source: &str| format!("[[package]]\nname = \"a\"\nversion = \"1.0.0\"\n{source}");
        let known = lock("source = \"registry+https://example.org/crates.io-index\"\n");
        let of = |folder, lock: &str, path| {
            let more =
                [("w/Cargo.toml", "[package]"), ("w/src/lib.rs", "secret"), ("w/.cargo/config.toml", "x")];
            needed(&CARGO, folder, &[&[("Cargo.toml", "[w]"), (path, lock)], &more[..]].concat())
        };
        let fetched = format!(
            "in `w` fetch --locked --target=h sees Cargo.lock:{} Cargo.toml:3 w/Cargo.toml:9 w/src/lib.rs:0",
            known.len()
        );
        assert_eq!(of("w", &known, "Cargo.lock"), fetched);
        assert_eq!(of("", &lock(""), "Cargo.lock"), "nothing");
        assert_eq!(of("", &known, "vendor/a/.cargo-checksum.json"), "nothing");
        assert_eq!(of("", &known, "w/Cargo.lock"), "nothing");
        let unlocked = needed(&CARGO, "", &[("Cargo.toml", "[dependencies]\na = \"1\"")]);
        assert_eq!(unlocked, "in `` fetch --target=h sees Cargo.toml:22");
        assert_eq!(needed(&CARGO, "", &[("Cargo.toml", "[package]")]), "nothing");
        for from in
            ["git+https://example.org/a#0", "registry+https://example.org/own", "sparse+https://example.org/"]
        {
            assert_eq!(
                of("", &lock(&format!("source = \"{from}\"\n")), "Cargo.lock"),
                format!("refused: only crates from cargo's own registry are fetched, not a ({from})")
            );
        }
        assert!(of("", "[", "Cargo.lock").starts_with("refused: Cargo.lock: "));
    }

    #[test]
    fn tests_receive_mirror_settings_with_credentials_removed() {
        let settings = |text: &str| mirror_settings(&[(CARGO_CONFIG.to_owned(), text.into())].into());
        assert_eq!(mirror_settings(&FileContents::new()).unwrap(), "");
        let mirror = "[source.m]\nreplace-with = \"o\"\n[registries.o]\nindex = \"https://h/a@b\"\n";
        let all = format!(
            "{mirror}token = \"secret\"\n[http]\nproxy = \"secret\"\n[registry]\ntoken = \"secret\"\n\
             [source.m.a]\ntoken = \"secret\"\n[registries.unused]\nindex = \"ssh://git@h/\"\n"
        );
        let parsed: toml::Table = settings(&all).unwrap().parse().unwrap();
        assert_eq!(parsed, mirror.parse().unwrap());
        for key in ["[source.m]\nregistry", "[source.crates-io]\nreplace-with = \"m\"\n[registries.m]\nindex"]
        {
            for address in ["sparse+https://a:secret@h/", "https://secret@h", "https://h/?token=secret"] {
                let why = settings(&format!("{key} = \"{address}\"")).unwrap_err();
                assert!(why.ends_with(", not m"), "{why}");
            }
        }
        assert!(settings("[").is_err());
    }

    #[test]
    fn pip_fetches_by_hash_where_the_project_pins_hashes() {
        let of = |text: &str| {
            let files = [
                ("requirements-dev.txt", text),
                ("docs/requirements.txt", "x --hash=y"),
                ("a/b/setup.py", ""),
            ];
            needed(&PIP, "", &files).replace(include_str!("python_requirements.py"), "SCRIPT")
        };
        let hash = format!("--hash=sha256:{:064}", 0);
        let good = format!(
            "# by hand\n-r requirements-dev.txt\nb-c[d] == 1.0 ; python_version < '3' \\\n    {hash} # via e\n"
        );
        let line = format!("b-c[d] == 1.0 ; python_version < '3'      {hash}\n");
        assert_eq!(
            of(&good),
            format!(
                "in `` -I -c SCRIPT fetch {PINNED_FILE} sees {PINNED_FILE}:{} docs/requirements.txt:10 requirements-dev.txt:{}",
                line.len(),
                good.len()
            )
        );
        assert!(of("b==1.0").starts_with("in `` -I -c SCRIPT fetch requirements-dev.txt sees "));
        for bad in [
            "b",
            "b>=1",
            "b==1.0",
            "--index-url https://example.org/simple",
            "--extra-index-url=https://example.org/simple",
            "--find-links /opt",
            "--no-binary :all:",
            "-e .",
            "-r other.txt",
            &format!("b @ https://example.org/b.tar.gz {hash}"),
            &format!("git+https://example.org/b#egg=b {hash}"),
            &format!("./b {hash}"),
            &format!("b==1.0 {hash} --config-settings=x"),
        ] {
            let refused = format!(
                "refused: packages are fetched only by name, version and hash, not `{bad}` of requirements-dev.txt"
            );
            assert_eq!(of(&format!("{bad}\n{good}")), refused);
        }
        for nothing in
            [("pyproject.toml", "[project]\nname = \"a\""), ("docs/requirements.txt", "a"), ("setup.cfg", "")]
        {
            assert_eq!(needed(&PIP, "", &[nothing, ("w/setup.py", "")]), "nothing", "{nothing:?}");
        }
    }

    /// Runs the script that reads Python's manifests. The lines of its output: requirements of the project, of its tests,
    /// of its build, and notes.
    #[test]
    fn python_requirements_are_read_from_each_kind_of_manifest() {
        let pyproject = |text: &'static str| [("pyproject.toml", text)];
        let cases: [(&[(&str, &str)], &str); 11] = [
            (
                &pyproject(
                    "[build-system]\nrequires = ['setuptools>=61', 'setuptools-scm']\n[project]\nname = 'My.Own'\n\
                     dependencies = ['a>=1', 'b; python_version<\"3\"', 'g @ git+https://h/g']\n\
                     [project.optional-dependencies]\nTest = ['c', 'my_own[speed]']\nspeed = ['s']\ndocs = ['sphinx']\n",
                ),
                "a>=1; b; python_version < \"3\"|c; s|setuptools>=61; setuptools-scm; wheel|\
                 `g @ git+https://h/g` of pyproject.toml was not fetched",
            ),
            (
                &pyproject(
                    "[dependency-groups]\ntests = ['c', {include-group = 'more'}]\nmore = ['m']\ntyping = ['mypy']\n\
                     [build-system]\nrequires = ['hatchling']\n[tool.hatch.envs.default]\ndependencies = ['h']\n",
                ),
                "|c; m; h|hatchling; editables|there is no lock file",
            ),
            (
                &pyproject(
                    "[tool.poetry]\nname = 'x'\n[tool.poetry.dependencies]\npython = '^3.8'\na = '^1.2'\nb = '~0.3'\n\
                     c = {version = '^0.0.3', extras = ['e']}\nd = '*'\ne = {version = '1.0', optional = true}\n\
                     p = {path = '../p'}\n[tool.poetry.group.test.dependencies]\nf = '>=1,<2'\n",
                ),
                "a<2,>=1.2; b<0.4,>=0.3; c[e]<0.0.4,>=0.0.3; d|f<2,>=1||`p @ ../p` of pyproject.toml was",
            ),
            (
                &[
                    (
                        "setup.cfg",
                        "[metadata]\nname = x\n[options]\ninstall_requires =\n    a>1\n    b\n[options.extras_require]\n\
                         testing =\n    c\n    %(x)s\n",
                    ),
                    ("setup.py", ""),
                ],
                "a>1; b|c|setuptools; wheel|`%(x)s` of extra `testing` was not read",
            ),
            (
                &[(
                    "setup.py",
                    "raise SystemExit(1)\nmore = ['b']\nimport setuptools\nsetuptools.setup(name='x', install_requires=['a'] + more,\n\
                     tests_require=unknown(), extras_require={'test': ['c'], 'docs': ['d']})\n",
                )],
                "a; b|c|setuptools; wheel|there is no lock file",
            ),
            (&[("setup.py", "(")], "||setuptools; wheel|setup.py was not read as a whole"),
            (
                &[
                    (
                        "tox.ini",
                        "[testenv:docs]\ndeps = sphinx\n[testenv:py{2,3}-unit]\ndeps = u\n[testenv]\ndeps =\n    -rdev-requirements.txt\n    py39: old\n    unit: t\n    !x: n\n    {[base]deps}\n",
                    ),
                    ("dev-requirements.txt", "-c constraints.txt\n-e .\nr # note\n--pre\n"),
                ],
                "|u; r; t||`--pre` of dev-requirements.txt was not read",
            ),
            (
                &[("requirements.txt", "a\n"), ("tests/requirements.txt", "-r ../requirements.txt\nb\n")],
                "a|b||there is no",
            ),
            (
                // Options and URLs of a constraints file would make pip run code.
                &[
                    ("requirements.txt", "a\n-r ../home/pip.conf\n-c constraints.txt\n"),
                    ("constraints.txt", "a<2\n--no-binary e\ne @ https://h/e.tar.gz\n"),
                ],
                "a|||`-r ../home/pip.conf` of requirements.txt was not read; it leads out of the repository; \
                 `--no-binary e` of constraints.txt was not read; `e @ https://h/e.tar.gz` of constraints.txt was not read",
            ),
            (
                &[("requirements.txt", "a"), ("poetry.lock", "")],
                "a|||poetry.lock was not read; versions were resolved",
            ),
            (&[("pyproject.toml", "[")], "error: pyproject.toml: "),
        ];
        let has_pip =
            || Some(std::process::Command::new("python3").args(["-m", "pip", "-V"]).output().ok()?.status);
        if !has_pip().is_some_and(|status| status.success()) {
            return;
        }
        for (files, expected) in cases {
            let folder = tempfile::tempdir().unwrap();
            let mut python = std::process::Command::new("python3");
            python.current_dir(&folder).args(["-I", "-c", include_str!("python_requirements.py"), "list"]);
            for (path, text) in files {
                std::fs::create_dir_all(folder.path().join(path).parent().unwrap()).unwrap();
                std::fs::write(folder.path().join(path), text).unwrap();
                python.args(path.ends_with("requirements.txt").then_some(path));
            }
            let output = python.output().unwrap();
            let printed = [output.stdout, output.stderr].concat();
            let printed = String::from_utf8_lossy(&printed).trim_end_matches('\n').replace('\n', "|");
            assert!(printed.starts_with(expected), "{files:?}: {printed}");
        }
    }

    #[test]
    fn go_fetches_only_modules_in_go_sum() {
        let module = [("m/go.mod", "module m\nrequire a v1"), ("m/a.go", "")];
        let of = |files: &[(&str, &str)]| needed(&GO, "m", &[&module, files].concat());
        let sum = "a v1 h1:x\na v1/go.mod h1:x\n";
        assert_eq!(of(&[("m/go.sum", sum)]), "in `m` mod download sees m/go.mod:21 m/go.sum:27");
        assert_eq!(of(&[("m/go.sum", "a v1/go.mod h1:x\n")]), "nothing");
        assert_eq!(module_cache_name("a/Bc", "v1.0.0-RC1"), "a/!bc@v1.0.0-!r!c1");
        assert_eq!(of(&[("m/go.sum", sum), ("m/vendor/modules.txt", "")]), "nothing");
        assert!(of(&[]).starts_with("unknown: there is no go.sum"));
        assert_eq!(needed(&GO, "", &[("go.mod", "module m")]), "nothing");
        let library = needed(&GO_LIBRARY, "m", &[&module, &[("m/go.sum", sum)][..]].concat());
        assert_eq!(library, format!("in `` -c {LIBRARY} sees "), "something of the repository");
    }
}
