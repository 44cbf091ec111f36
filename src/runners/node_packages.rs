//! Fetches the packages of JavaScript projects with npm, yarn or pnpm. None of them sees a script, a setting or a plugin
//! of the repository, so that no code of the repository or of a package runs.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use serde_json::{Map, Value};

use super::{
    dependencies::{DependencyPreset, FetchNeed, FetchPlan, ProjectManifests},
    presets::{NO_SETTINGS, certificate_file, file_name, reject_entries},
    toolchains::SYSTEM_PATH,
};

pub(super) const NPM: DependencyPreset = DependencyPreset {
    name: "npm",
    is_manifest: |path| {
        let name = file_name(path);
        // Patches are data that yarn and pnpm apply to packages.
        let patch = name.ends_with(".patch") && path.contains("patches/");
        let manifest = matches!(name, "package.json" | WORKSPACE) || LOCKS.iter().any(|lock| lock.0 == name);
        (manifest || patch) && !path.split('/').any(|part| part == "node_modules")
    },
    plan_fetch,
    install: |made, tool| {
        let tree = made.join("tree");
        tool.read.push(tree.clone());
        tool.modules = Some(tree);
    },
    settings_for_tests: NO_SETTINGS,
    saves_time: false,
};

pub(super) const WORKSPACE: &str = "pnpm-workspace.yaml";

/// Lock files, each with the package manager that reads it.
const LOCKS: &[(&str, &str)] = &[
    ("npm-shrinkwrap.json", "npm"),
    ("package-lock.json", "npm"),
    ("pnpm-lock.yaml", "pnpm"),
    ("yarn.lock", "yarn"),
    ("bun.lock", "bun"),
    ("bun.lockb", "bun"),
];

const NPM_WORDS: &str = "--ignore-scripts --include=dev --no-audit --no-fund --no-update-notifier";

/// pnpm must not replace itself by the version that the repository names.
const PNPM_WORDS: &str = "install --frozen-lockfile --ignore-scripts --ignore-pnpmfile --network-concurrency=8 \
    --store-dir=/tmp/pnpm --reporter=append-only --config.manage-package-manager-versions=false";

/// Installs with the yarn whose lock file this is: `$0` is a pattern for its version.
const YARN: &str = "case $(yarn --version) in $0) ;; *) echo \"error: this yarn cannot read the lock file; install \
    the other one with npm install -g $1\" >&2; exit 1;; esac; shift; exec yarn install \"$@\"";

/// Fields of package.json that package managers need. Others, such as `scripts`, `packageManager` and pnpm's
/// `configDependencies`, could make them run code or fetch other programs.
const FIELDS: &str = "name version private workspaces dependencies devDependencies optionalDependencies peerDependencies \
    peerDependenciesMeta dependenciesMeta bundleDependencies bundledDependencies overrides resolutions \
    bin pnpm";

/// Settings of pnpm, in package.json or pnpm-workspace.yaml, on which a lock file depends.
const PNPM_FIELDS: &str = "packages catalog catalogs overrides packageExtensions peerDependencyRules \
    ignoredOptionalDependencies patchedDependencies autoInstallPeers injectWorkspacePackages nodeLinker \
    shamefullyHoist publicHoistPattern";

fn keep_fields(value: &mut Value, fields: &str) {
    if let Some(fields_of_value) = value.as_object_mut() {
        fields_of_value.retain(|name, _| fields.split(' ').any(|field| field == name));
    }
}

/// Returns the folders of the workspace's members, relative to its root. `folders` are all folders with a package.json.
pub(super) fn workspace_members<'f>(
    root: &Value,
    pnpm: Option<&str>,
    folders: impl Iterator<Item = &'f str>,
) -> Vec<&'f str> {
    let declared = root.get("workspaces").map(|all| all.get("packages").unwrap_or(all).clone());
    let pnpm = pnpm.and_then(|text| serde_norway::from_str::<Value>(text).ok()?.get("packages").cloned());
    let patterns = [declared, pnpm].into_iter().flatten();
    let patterns = patterns.flat_map(|all| all.as_array().cloned().unwrap_or_default());
    let (mut with, mut without) = (Vec::new(), Vec::new());
    for pattern in patterns.filter_map(|pattern| pattern.as_str().map(str::to_owned)) {
        let path = pattern.trim_start_matches('!').trim_start_matches("./").trim_end_matches('/');
        let form = regex::escape(path).replace(r"\*\*", ".*").replace(r"\*", "[^/]*");
        let form = form.replace(r"\{", "(").replace(r"\}", ")").replace(',', "|");
        let Ok(form) = regex::Regex::new(&format!("^{form}$")) else { continue };
        if pattern.starts_with('!') { without.push(form) } else { with.push(form) }
    }
    let matches = |forms: &[regex::Regex], folder: &str| forms.iter().any(|form| form.is_match(folder));
    folders.filter(|it| !it.is_empty() && matches(&with, it) && !matches(&without, it)).collect()
}

fn plan_fetch(seen: &ProjectManifests<'_>) -> Result<FetchNeed, String> {
    let parse = |text: &str| serde_json::from_str::<Value>(text).unwrap_or_default();
    let at = |folder: &str, name: &str| match folder {
        "" => name.to_owned(),
        folder => format!("{folder}/{name}"),
    };
    let read = |folder: &str, name: &str| seen.files.get(&at(folder, name)).map(String::as_str);
    let manifests = || {
        seen.files
            .keys()
            .filter_map(|path| path.strip_suffix("package.json"))
            .map(|f| f.trim_end_matches('/'))
    };
    let members = |root: &str| -> Vec<String> {
        let manifest = parse(read(root, "package.json").unwrap_or_default());
        let below = manifests().filter_map(|folder| match root {
            "" => Some(folder),
            root => folder.strip_prefix(root)?.strip_prefix('/'),
        });
        let found = workspace_members(&manifest, read(root, WORKSPACE), below);
        found.into_iter().map(|member| at(root, member)).collect()
    };
    let above = || Path::new(seen.folder).ancestors().filter_map(Path::to_str);
    let lock = |folder: &str| LOCKS.iter().any(|(name, _)| has_file(seen, &at(folder, name)));
    let contains = |root: &&str| members(root).iter().any(|member| member == seen.folder);
    let declares = read(seen.folder, "package.json").is_some_and(|text| text.contains("ependencies\""));
    let covers = |root: &&str| *root == seen.folder || !declares || contains(root);
    let locked = above().find(|root| lock(root) && covers(root));
    let root = locked.or_else(|| above().find(contains)).unwrap_or(seen.folder);
    let own = Path::new(root).join("node_modules");
    if seen.paths.iter().any(|path| Path::new(path).starts_with(&own)) {
        return Ok(FetchNeed::Nothing);
    }
    let manifest = parse(read(root, "package.json").unwrap_or_default());
    let wanted =
        manifest["packageManager"].as_str().and_then(|name| name.split('@').next()).unwrap_or_default();
    let locks = || LOCKS.iter().filter(|(name, _)| has_file(seen, &at(root, name)));
    let lock = locks().find(|lock| lock.1 == wanted).or_else(|| locks().next());

    let mut files = BTreeMap::new();
    let mut declared = Vec::new();
    for folder in [root.to_owned()].into_iter().chain(members(root)) {
        let mut manifest = parse(read(&folder, "package.json").unwrap_or_default());
        keep_fields(&mut manifest, FIELDS);
        if let Some(pnpm) = manifest.get_mut("pnpm") {
            keep_fields(pnpm, PNPM_FIELDS);
        }
        declared.extend(foreign_dependencies(&manifest));
        declared.extend(outside_places(&folder, &manifest));
        files.insert(at(&folder, "package.json"), manifest.to_string());
    }
    let patches = seen.files.iter().filter(|(path, _)| path.ends_with(".patch"));
    files.extend(patches.map(|(path, text)| (path.clone(), text.clone())));
    if let Some(mut settings) =
        read(root, WORKSPACE).and_then(|text| serde_norway::from_str::<Value>(text).ok())
    {
        keep_fields(&mut settings, PNPM_FIELDS);
        files.insert(at(root, WORKSPACE), settings.to_string());
    }
    let text = lock.and_then(|(name, _)| read(root, name)).unwrap_or_default();
    let (mut notes, mut hints) = (Vec::new(), Vec::new());
    let (mut program, mut args) = ("npm", NPM_WORDS.split(' ').collect::<Vec<_>>());
    let (mut foreign, mut unpinned) = (Vec::new(), Vec::new());
    match lock {
        Some((name, "npm")) => {
            args.insert(0, "ci");
            let lock: Value = serde_json::from_str(text).map_err(|error| format!("{name}: {error}"))?;
            let packages = npm_packages(&lock);
            if packages.is_empty() {
                return Ok(FetchNeed::Nothing);
            }
            foreign =
                packages.iter().filter_map(|(place, package)| foreign_package(place, package)).collect();
            unpinned =
                packages.iter().filter(|(_, package)| !is_pinned(package)).map(|it| it.0.clone()).collect();
            if lock["packages"].is_null() {
                // npm 6 wrote hashes that are no longer accepted, or none.
                unpinned.clear();
            }
            let built =
                packages.iter().filter(|(_, package)| package["hasInstallScript"] == Value::Bool(true));
            let built: Vec<&str> =
                built.filter_map(|(place, _)| place.rsplit("node_modules/").next()).take(5).collect();
            if !built.is_empty() {
                hints.push(format!("install scripts of packages do not run: {}", built.join(", ")));
            }
        }
        Some((_, "pnpm")) => {
            (program, args) = ("pnpm", PNPM_WORDS.split(' ').collect());
            // The place of a package is in `{tarball: URL}`, `{type: git, …}` or, for the registry, left out.
            let other = |line: &&str| match line.split_once("tarball: ") {
                Some((_, url)) => !(url.starts_with("https://") && url.contains(".tgz")),
                None => ["type: git", "type: directory", "repo: "].iter().any(|kind| line.contains(kind)),
            };
            foreign = text.lines().filter(other).map(|line| line.trim().to_owned()).collect();
            let mut lock: Value =
                serde_norway::from_str(text).map_err(|error| format!("pnpm-lock.yaml: {error}"))?;
            let importers = lock.as_object_mut().and_then(|lock| lock.remove("importers"));
            for (folder, importer) in importers.as_ref().and_then(Value::as_object).into_iter().flatten() {
                foreign.extend(outside_places(&at(root, folder), importer));
            }
            foreign.extend(outside_places(root, &lock));
        }
        Some((_, "yarn")) => {
            (program, args) = ("/bin/sh", vec!["-c", YARN]);
            if text.contains("\n__metadata:") {
                args.extend(["[2-9].*", "@yarnpkg/cli-dist", "--immutable", "--mode=skip-build"]);
            } else {
                args.extend(["1.*", "yarn", "--frozen-lockfile", "--ignore-scripts", "--ignore-engines"]);
                args.extend(["--non-interactive", "--no-progress", "--cache-folder=/tmp/yarn"]);
            }
            let own = regex::Regex::new(
                r#"^  (resolved "https://[^"]*\.tgz|resolution: "@?[^@"]+@(npm|workspace|patch|virtual):)"#,
            )
            .expect("it is a constant");
            let places = text.lines().filter(|line| line.starts_with("  resol"));
            foreign = places.filter(|line| !own.is_match(line)).map(|line| line.trim().to_owned()).collect();
        }
        other => {
            args.splice(0..0, ["install", "--no-package-lock"]);
            notes.push(match other {
                Some((name, _)) => format!("{name} is not read"),
                None => "there is no lock file".to_owned(),
            } + ": the packages' versions were resolved on {day} and stay the same until a manifest changes");
        }
    }
    reject_entries("only packages from a registry over HTTPS are fetched", foreign.into_iter())?;
    reject_entries("only packages with hashes are fetched", unpinned.into_iter())?;
    reject_entries("only packages from a registry are fetched", declared.into_iter())?;
    if let Some((name, _)) = lock.filter(|_| !text.is_empty()) {
        files.insert(at(root, name), text.to_owned());
    } else if !files.values().any(|manifest| manifest.contains("ependencies\"")) {
        return Ok(FetchNeed::Nothing);
    }
    let near = seen.tool.program.parent().unwrap_or(Path::new("/usr/bin"));
    let needed = lock.map_or("npm", |lock| if lock.1 == "bun" { "npm" } else { lock.1 });
    let found = find_program(near, needed).ok_or_else(|| {
        format!("its packages need {needed}, which is not installed next to node; `npm install -g {needed}` installs it")
    })?;
    let mut environment = vec![
        ("PATH", format!("{}:{SYSTEM_PATH}", near.display())),
        // Not kept; nothing reads it again.
        ("npm_config_cache", "/tmp/npm".to_owned()),
        // A package of a package may name a git repository.
        ("npm_config_git", "/bin/false".to_owned()),
        ("YARN_ENABLE_SCRIPTS", "false".to_owned()),
        ("YARN_ENABLE_TELEMETRY", "false".to_owned()),
        ("YARN_NODE_LINKER", "node-modules".to_owned()),
        ("YARN_GLOBAL_FOLDER", "/tmp/yarn".to_owned()),
        ("CI", "true".to_owned()),
    ];
    environment.extend(certificate_file().into_iter().map(|file| ("NODE_EXTRA_CA_CERTS", file)));
    Ok(FetchNeed::Fetch(FetchPlan {
        program: if program == "/bin/sh" { program.into() } else { found },
        args: args.into_iter().map(str::to_owned).collect(),
        environment,
        files,
        folder: root.to_owned(),
        notes,
        hints,
        // Without a lock file, many packages have only tools of their authors to fetch.
        is_optional: lock.is_none(),
        ..FetchPlan::default()
    }))
}

fn has_file(seen: &ProjectManifests<'_>, path: &str) -> bool {
    seen.paths.iter().any(|known| known == path)
}

fn find_program(near: &Path, name: &str) -> Option<PathBuf> {
    let folders = [near].into_iter().chain(SYSTEM_PATH.split(':').map(Path::new));
    folders.map(|folder| folder.join(name)).find(|program| program.is_file())
}

/// Returns the packages in a lock file of npm, by their place. npm 6 and older nests them.
fn npm_packages(lock: &Value) -> Vec<(String, &Value)> {
    fn nested<'l>(of: &'l Value, at: &str, found: &mut Vec<(String, &'l Value)>) {
        for (name, package) in of["dependencies"].as_object().into_iter().flatten() {
            let place = format!("{at}node_modules/{name}");
            nested(package, &format!("{place}/"), found);
            found.push((place, package));
        }
    }
    let mut found = Vec::new();
    match lock["packages"].as_object() {
        Some(packages) => found.extend(packages.iter().map(|(place, package)| (place.clone(), package))),
        None => nested(lock, "", &mut found),
    }
    found.retain(|(place, package)| place.contains("node_modules/") && package["link"] != Value::Bool(true));
    found
}

/// Whether a locked package has a hash. npm ignores an integrity value that is not a hash.
fn is_pinned(package: &Value) -> bool {
    let hash = regex::Regex::new(r"^sha(256|384|512)-[A-Za-z0-9+/=]+").expect("it is a constant");
    package["integrity"].as_str().is_some_and(|text| hash.is_match(text))
        || package["inBundle"] == Value::Bool(true)
}

/// Names a locked package that does not come from a registry.
fn foreign_package(place: &str, package: &Value) -> Option<String> {
    let from = package["resolved"].as_str().filter(|from| !from.is_empty() && !from.starts_with("https://"));
    // npm 6 writes the place of such a package into its version.
    let from = from.or(package["version"].as_str().filter(|version| version.contains([':', '/'])))?;
    let alias = from.starts_with("npm:");
    (!alias).then(|| format!("{place} ({from})"))
}

/// Names the dependencies in a manifest that do not come from a registry or from the repository itself.
fn foreign_dependencies(manifest: &Value) -> Vec<String> {
    let kinds = FIELDS.split(' ').filter(|name| name.ends_with("ependencies") || *name == "resolutions");
    let all = kinds.filter_map(|kind| manifest.get(kind)?.as_object()).flat_map(Map::iter);
    let own = ["npm:", "workspace:", "catalog:", "file:", "link:", "patch:"];
    let foreign = |from: &str| from.contains([':', '/']) && !own.iter().any(|kind| from.starts_with(kind));
    let named = all.filter_map(|(name, from)| Some((name, from.as_str()?)));
    named.filter(|(_, from)| foreign(from)).map(|(name, from)| format!("{name} ({from})")).collect()
}

/// Names the texts and keys in `of` that are places outside the repository, relative to `folder`. Some package managers
/// copy such a place into the packages, and the operator's settings are outside.
fn outside_places(folder: &str, of: &Value) -> Vec<String> {
    let leads_out = |text: &str| {
        let mut places =
            ["file:", "link:", "portal:", "directory:"].iter().flat_map(|kind| text.split(kind).skip(1));
        places.any(|place| {
            let mut depth = folder.split('/').filter(|part| !matches!(*part, "" | ".")).count();
            let place = place.split(['(', '#', ':']).next().unwrap_or_default();
            place.starts_with(['/', '~'])
                || place.split('/').any(|part| {
                    let is_up = part == "..";
                    let is_out = is_up && depth == 0;
                    depth = if is_up {
                        depth.saturating_sub(1)
                    } else {
                        depth + usize::from(!matches!(part, "" | "."))
                    };
                    is_out
                })
        })
    };
    let named = |text: &str| leads_out(text).then(|| text.to_owned());
    match of {
        Value::String(text) => named(text).into_iter().collect(),
        Value::Array(all) => all.iter().flat_map(|of| outside_places(folder, of)).collect(),
        Value::Object(all) => all
            .iter()
            .flat_map(|(key, of)| named(key).into_iter().chain(outside_places(folder, of)))
            .collect(),
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot continue should fail at once")]

    use super::{super::toolchains::Toolchain, *};

    #[test]
    fn places_outside_the_repository_are_refused() {
        for (folder, place, is_out) in [
            ("", "file:../settings", true),
            ("", "file:./a/../../b", true),
            ("", "link:a/b", false),
            ("packages/a", "link:../b", false),
            ("packages/a", "link:../../../b(x@1)", true),
            ("a", "portal:/etc", true),
            ("", "x@file:~/keys", true),
            ("", "https://example.org/../a", false),
        ] {
            let found = outside_places(folder, &serde_json::json!({ "a": [{ "b": place }] }));
            assert_eq!(!found.is_empty(), is_out, "{folder} {place}");
            assert_eq!(
                !outside_places(folder, &serde_json::json!({ place: 1 })).is_empty(),
                is_out,
                "{place}"
            );
        }
    }

    /// Returns the fetch planned for a commit with these files, where npm and yarn are installed.
    fn needed(folder: &str, files: &[(&str, &str)]) -> String {
        let bin = tempfile::tempdir().unwrap();
        ["npm", "yarn"].iter().for_each(|name| std::fs::write(bin.path().join(name), "").unwrap());
        let paths: Vec<String> = files.iter().map(|(path, _)| (*path).to_owned()).collect();
        let files = files.iter().filter(|(path, _)| (NPM.is_manifest)(path));
        let files = files.map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect();
        let tool = Toolchain { program: bin.path().join("node"), ..Toolchain::default() };
        match plan_fetch(&ProjectManifests { folder, paths: &paths, files: &files, tool: &tool }) {
            Ok(FetchNeed::Nothing) => "nothing".to_owned(),
            Ok(FetchNeed::Unknown(why)) => format!("unknown: {why}"),
            Ok(FetchNeed::Fetch(plan)) => {
                let seen: Vec<_> = plan.files.iter().map(|(path, text)| format!("{path}:{text}")).collect();
                let args: Vec<_> =
                    plan.args.iter().filter(|arg| !arg.contains(' ')).take(5).cloned().collect();
                let notes = plan.notes.join("");
                format!("in `{}` {} sees {}{notes}", plan.folder, args.join(" "), seen.join(" "))
            }
            Err(why) => format!("refused: {why}"),
        }
    }

    #[test]
    fn package_manager_is_chosen_by_the_manifest_or_the_lock_file() {
        let manifest =
            r#"{"dependencies":{"b":"1"},"scripts":{"prepare":"x"},"pnpm":{"configDependencies":{"c":"1"}}}"#;
        let kept = r#"package.json:{"dependencies":{"b":"1"},"pnpm":{}}"#;
        let yarn = "b@1:\n  resolved \"https://h/b/-/b-1.tgz#0\"\n";
        let berry = "\n__metadata:\n  version: 8\n\n\"b@npm:1\":\n  resolution: \"b@npm:1.0.0\"\n";
        let of = |files: &[(&str, &str)]| {
            needed("", &[&[("package.json", manifest), (".npmrc", "x"), ("a.js", "x")], files].concat())
        };
        assert_eq!(
            of(&[("yarn.lock", yarn)]),
            format!("in `` -c 1.* yarn --frozen-lockfile --ignore-scripts sees {kept} yarn.lock:{yarn}")
        );
        assert!(
            of(&[("yarn.lock", berry)]).starts_with("in `` -c [2-9].* @yarnpkg/cli-dist --immutable --mode")
        );
        let unlocked = "install --no-package-lock --ignore-scripts --include=dev --no-audit sees";
        let day = "the packages' versions were resolved on {day} and stay the same until a manifest changes";
        assert_eq!(of(&[]), format!("in `` {unlocked} {kept}there is no lock file: {day}"));
        assert_eq!(of(&[("bun.lockb", "")]), format!("in `` {unlocked} {kept}bun.lockb is not read: {day}"));
        let settings = "packages: [p]\nconfigDependencies: {c: 1}\nregistry: x\n";
        let pnpm = of(&[("pnpm-lock.yaml", "a"), ("pnpm-workspace.yaml", settings)]);
        if pnpm.starts_with("refused") {
            assert!(pnpm.contains("`npm install -g pnpm` installs it"), "{pnpm}");
        } else {
            assert!(
                pnpm.ends_with(&format!(
                    "{kept} pnpm-lock.yaml:a pnpm-workspace.yaml:{{\"packages\":[\"p\"]}}"
                )),
                "{pnpm}"
            );
        }
        for (lock, text) in [
            ("yarn.lock", "  resolved \"https://codeload.github.com/u/r/tar.gz/0\"\n"),
            ("yarn.lock", "  resolved \"http://h/b/-/b-1.tgz#0\"\n"),
            ("yarn.lock", "  resolution: \"b@exec:./run.js\"\n"),
            ("yarn.lock", "  resolution: \"b@https://github.com/u/r.git#commit=0\"\n"),
            ("pnpm-lock.yaml", "    resolution: {tarball: https://codeload.github.com/u/r/tar.gz/0}\n"),
            ("pnpm-lock.yaml", "    resolution: {commit: 0, repo: https://h/r.git, type: git}\n"),
        ] {
            let refused = of(&[(lock, text)]);
            assert!(refused.starts_with("refused: only packages from a registry over HTTPS"), "{refused}");
        }
        for from in ["u/r", "github:u/r", "git+ssh://h/r", "http://h/r.tgz", "exec:./run.js"] {
            let manifest = format!(r#"{{"devDependencies": {{"b": "{from}"}}}}"#);
            let refused = format!("refused: only packages from a registry are fetched, not b ({from})");
            assert_eq!(needed("", &[("package.json", &manifest)]), refused);
        }
    }

    #[test]
    fn npm_fetches_only_pinned_packages() {
        let lock = |packages: &str| format!("{{\"packages\": {{\"\": {{}}, {packages}}}}}");
        let root = r#"{"workspaces":["a"]}"#;
        let of = |lock: &str, path| {
            let more =
                [("a/node_modules/b/package.json", "{}"), (".npmrc", "registry=x"), ("a.js", "secret")];
            let manifests =
                [("package.json", root), ("a/package.json", r#"{"dependencies":{}}"#), (path, lock)];
            needed("a", &[&manifests[..], &more].concat())
        };
        let good = lock(
            r#""node_modules/b": {"integrity": "sha512-x"}, "node_modules/w": {"link": true, "resolved": "a"}"#,
        );
        let words = "ci --ignore-scripts --include=dev --no-audit --no-fund";
        let manifests = r#"a/package.json:{"dependencies":{}}"#;
        let fetched = format!("in `` {words} sees {manifests} package-lock.json:{good} package.json:{root}");
        assert_eq!(of(&good, "package-lock.json"), fetched);
        assert_eq!(of(&good, "a/package-lock.json"), "nothing");
        let by_https = "only packages from a registry over HTTPS are fetched, not node_modules/b";
        let by_hash = "only packages with hashes are fetched, not node_modules/b";
        for (package, refused) in [
            (r#"{"resolved": "git+ssh://h/x#0"}"#, format!("{by_https} (git+ssh://h/x#0)")),
            (r#"{"resolved": "http://h/x", "integrity": "x"}"#, format!("{by_https} (http://h/x)")),
            (r#"{"resolved": "file:x.tgz", "integrity": "x"}"#, format!("{by_https} (file:x.tgz)")),
            (r#"{"resolved": "https://h/x"}"#, by_hash.to_owned()),
            (r#"{"integrity": ""}"#, by_hash.to_owned()),
            (r#"{"integrity": "sha1-x"}"#, by_hash.to_owned()),
            (r#"{"integrity": "x sha512-x"}"#, by_hash.to_owned()),
        ] {
            let lock = lock(&format!("\"node_modules/b\": {package}"));
            assert_eq!(of(&lock, "package-lock.json"), format!("refused: {refused}"));
        }
        let many: Vec<_> = (0..7).map(|n| format!("\"node_modules/{n}\": {{}}")).collect();
        assert!(of(&lock(&many.join(",")), "package-lock.json").ends_with("node_modules/4 and 2 more"));
        // npm 6 nests packages and writes no acceptable hashes.
        let old = |version: &str| {
            format!(
                r#"{{"dependencies": {{"b": {{"version": "1", "dependencies": {{"c": {{"version": "{version}"}}}}}}}}}}"#
            )
        };
        assert!(of(&old("1.0.0"), "package-lock.json").starts_with(&format!("in `` {words}")));
        let nested = "node_modules/b/node_modules/c (git://h/c#0)";
        assert!(of(&old("git://h/c#0"), "package-lock.json").ends_with(nested));
    }
}
