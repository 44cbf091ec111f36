//! Finds the test runners in the scripts of package.json: follows `npm run` and the like from the script `test`, and
//! splits it into steps.

use std::collections::{BTreeMap, VecDeque};

use serde_json::Value;

use super::node_packages::{WORKSPACE, workspace_members};

/// A test runner that can write a report.
pub(super) struct ScriptRunner {
    pub(super) word: &'static str,
    pub(super) format: ReportFormat,
    /// Arguments to add. `{report}` stands for the path of the report.
    pub(super) args: &'static str,
    /// Option that selects tests by a regular expression for their names.
    pub(super) filter: &'static str,
    /// Whether a test's id begins with its file.
    pub(super) by_file: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReportFormat {
    Node,
    Jest,
    Junit,
    /// TAP on standard output.
    Tap,
}

const NODE: ScriptRunner =
    ScriptRunner { word: "node --test", format: ReportFormat::Node, args: "", filter: "", by_file: true };

const RUNNERS: &[ScriptRunner] = &[
    ScriptRunner {
        word: "vitest",
        format: ReportFormat::Junit,
        args: "--reporter=junit --outputFile.junit={report} --coverage.enabled=false",
        filter: "--testNamePattern",
        by_file: true,
    },
    ScriptRunner {
        word: "jest",
        format: ReportFormat::Jest,
        args: "--ci --json --outputFile={report} --testLocationInResults --coverage=false",
        filter: "--testNamePattern",
        by_file: true,
    },
    ScriptRunner {
        word: "mocha",
        format: ReportFormat::Junit,
        args: "--reporter xunit -O output={report}",
        filter: "--grep",
        by_file: false,
    },
    ScriptRunner { word: "ava", format: ReportFormat::Tap, args: "--tap", filter: "", by_file: false },
    ScriptRunner {
        word: "tap",
        format: ReportFormat::Tap,
        args: "--reporter=tap",
        filter: "",
        by_file: false,
    },
    ScriptRunner { word: "tape", format: ReportFormat::Tap, args: "", filter: "", by_file: false },
];

pub(super) const SUPPORTED: &str = "node --test, vitest, jest, mocha, ava, tap or tape";

/// Programs that check style, types or packaging. They test nothing, so they are named and not run.
const CHECKS: &str = "eslint xo standard semistandard ts-standard neostandard tslint jshint jscs prettier biome oxlint \
    dprint stylelint markdownlint markdownlint-cli2 remark cspell tsd attw publint size-limit bundlesize \
    knip depcheck ls-engines vue-tsc check-dts dtslint installed-check lockfile-lint npmignore aud \
    evalmd nve madge flow commitlint";

/// Names of scripts that do the same, before a `:`.
const CHECK_SCRIPTS: &[&str] = &["lint", "format", "prettier", "typecheck", "type-check", "audit"];

/// Programs that `prepare` runs to set up a developer's machine.
const HOOKS: &[&str] = &["husky", "simple-git-hooks", "lefthook", "is-ci", "ts-patch", "patch-package"];

/// Parts of options that select members of a workspace.
const SELECTIONS: &str = "filter scope include exclude from since private ignore project";

/// Maximum number of steps, and of scripts that call each other.
const MOST_STEPS: usize = 500;
const DEEPEST: usize = 12;

/// One command of the test script.
pub(super) struct ScriptStep {
    /// Folder relative to the project's.
    pub(super) folder: String,
    /// Shell commands before it, such as `cd x &&`, and its environment variables.
    pub(super) before: String,
    pub(super) words: Vec<String>,
    /// `None` for any other command, which counts only if it fails.
    pub(super) runner: Option<&'static ScriptRunner>,
    /// Whether the tests run even if this command fails.
    pub(super) optional: bool,
}

impl ScriptStep {
    pub(super) fn line(&self) -> String {
        format!("{}{}", self.before, self.words.join(" "))
    }
}

pub(super) struct ScriptPlan<'m> {
    manifests: &'m BTreeMap<String, String>,
    pub(super) steps: VecDeque<ScriptStep>,
    /// Commands that are not run, because they are no tests.
    pub(super) checks: Vec<String>,
}

impl<'m> ScriptPlan<'m> {
    /// Plans the tests of the project with these manifests, whose own one is `package.json`. `paths` are the project's
    /// files.
    ///
    /// # Errors
    ///
    /// Returns the reason why the tests cannot be run.
    pub(super) fn new(manifests: &'m BTreeMap<String, String>, paths: &[String]) -> Result<Self, String> {
        let mut plan = Self { manifests, steps: VecDeque::new(), checks: Vec::new() };
        let text = manifests.get("package.json").map_or("{}", String::as_str);
        serde_json::from_str::<Value>(text)
            .map_err(|error| format!("package.json cannot be read: {error}"))?;
        match plan.script("", "test") {
            Some(_) => plan.add_script("", "test", "", "", 0)?,
            None => plan.add_members("test", "", 0)?,
        }
        if plan.steps.is_empty() && plan.checks.is_empty() && plan.script("", "test").is_none() {
            plan.add_line("", "node --test", "", 0)?;
        }
        if plan.steps.iter().all(|step| step.runner.is_none()) {
            let script = plan.script("", "test").unwrap_or_else(|| "the scripts of its members".to_owned());
            return Err(format!(
                "package.json runs its tests by `{script}`, which calls none of {SUPPORTED}; to run it, put these lines \
                 into .github/countersign.toml: [test], then command = \"npm test\""
            ));
        }
        plan.add_build(paths)?;
        Ok(plan)
    }

    /// Adds the build before the tests if the project's entry point is not in the commit and the tests do not build it.
    fn add_build(&mut self, paths: &[String]) -> Result<(), String> {
        fn files<'v>(value: &'v Value, found: &mut Vec<&'v str>) {
            match value {
                Value::String(path) => found.push(path),
                Value::Object(all) => all.values().for_each(|value| files(value, found)),
                Value::Array(all) => all.iter().for_each(|value| files(value, found)),
                _ => {}
            }
        }
        let lacks_entry = |folder: &&str| {
            let (manifest, mut entries) = (self.manifest(folder), Vec::new());
            ["main", "module", "exports", "bin"]
                .iter()
                .for_each(|name| files(&manifest[*name], &mut entries));
            entries.iter().any(|entry| {
                let path = entry.trim_start_matches("./");
                let name = path.rsplit('/').next().unwrap_or_default();
                let path = format!("{folder}/{path}");
                name.contains('.')
                    && !name.contains(".d.")
                    && !path.contains('*')
                    && !paths.iter().any(|known| *known == path.trim_start_matches('/'))
            })
        };
        let folders: Vec<&str> = [""].into_iter().chain(self.members()).collect();
        let built_first = self.steps.front().is_some_and(|step| step.runner.is_none());
        if built_first || !folders.iter().any(lacks_entry) {
            return Ok(());
        }
        let (tests, checks) = (std::mem::take(&mut self.steps), std::mem::take(&mut self.checks));
        for name in ["prepare", "build"] {
            self.add_script("", name, "", "", 0)?;
            self.steps.retain(|step| !step.words.first().is_some_and(|word| HOOKS.contains(&program(word))));
            if !self.steps.is_empty() {
                break;
            }
        }
        self.steps.retain(|step| step.runner.is_none());
        self.steps.iter_mut().for_each(|step| step.optional = true);
        self.steps.extend(tests);
        self.checks = checks;
        Ok(())
    }

    fn manifest(&self, folder: &str) -> Value {
        let path =
            if folder.is_empty() { "package.json".to_owned() } else { format!("{folder}/package.json") };
        self.manifests.get(&path).and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
    }

    /// Returns a script. Ignores the placeholder that `npm init` writes.
    fn script(&self, folder: &str, name: &str) -> Option<String> {
        let script = self.manifest(folder)["scripts"][name].as_str()?.to_owned();
        (!script.contains("no test specified")).then_some(script)
    }

    fn members(&self) -> Vec<&'m str> {
        let folders = self.manifests.keys().filter_map(|path| path.strip_suffix("/package.json"));
        let pnpm = self.manifests.get(WORKSPACE).map(String::as_str);
        workspace_members(&self.manifest(""), pnpm, folders)
    }

    /// Adds the script `name` of each member that has it.
    fn add_members(&mut self, name: &str, before: &str, depth: usize) -> Result<(), String> {
        for member in self.members() {
            if self.script(member, name).is_some() {
                self.add_script(member, name, "", before, depth + 1)?;
            }
        }
        Ok(())
    }

    /// Adds a script and its `pre` and `post` scripts.
    fn add_script(
        &mut self,
        folder: &str,
        name: &str,
        more: &str,
        before: &str,
        depth: usize,
    ) -> Result<(), String> {
        if CHECK_SCRIPTS.contains(&name.split(':').next().unwrap_or_default()) {
            self.checks.push(format!("npm run {name}"));
            return Ok(());
        }
        for (name, more) in [(format!("pre{name}"), ""), (name.to_owned(), more), (format!("post{name}"), "")]
        {
            if let Some(script) = self.script(folder, &name) {
                self.add_line(folder, format!("{script} {more}").trim(), before, depth + 1)?;
            }
        }
        Ok(())
    }

    fn add_line(&mut self, folder: &str, line: &str, before: &str, depth: usize) -> Result<(), String> {
        if depth > DEEPEST || self.steps.len() > MOST_STEPS {
            return Err("the scripts of package.json call each other too often".to_owned());
        }
        let mut before = before.to_owned();
        let Some(commands) = split_line(line) else {
            // Other shell features: the line runs as it is.
            let (folder, words) = (folder.to_owned(), vec![line.to_owned()]);
            self.steps.push_back(ScriptStep { folder, before, words, runner: None, optional: false });
            return Ok(());
        };
        for words in commands {
            if words.first().is_some_and(|word| matches!(word.as_str(), "cd" | "export")) {
                before += &format!("{} && ", words.join(" "));
            } else {
                self.add_command(folder, words, &before, depth)?;
            }
        }
        Ok(())
    }

    fn add_command(
        &mut self,
        folder: &str,
        all: Vec<String>,
        before: &str,
        depth: usize,
    ) -> Result<(), String> {
        let (mut before, mut words) = (before.to_owned(), &all[..]);
        while let [word, rest @ ..] = words {
            let name = program(word).split('@').next().unwrap_or_default();
            let flagged = |flags: &[&str]| rest.iter().any(|word| flags.contains(&word.as_str()));
            let manager = matches!(name, "npm" | "yarn" | "pnpm");
            if is_assignment(word) {
                before += &format!("{word} ");
            } else if matches!(name, "c8" | "nyc") {
                // Coverage is measured by our own means, if at all.
                let known = |word: &String| is_known(program(word)) || is_assignment(word);
                let Some(at) = rest.iter().position(known) else { break };
                words = &rest[at..];
                continue;
            } else if matches!(name, "run-s" | "run-p" | "npm-run-all" | "npm-run-all2") {
                let scripts = self.manifest(folder)["scripts"].as_object().cloned().unwrap_or_default();
                for pattern in rest.iter().filter(|word| !word.starts_with('-')) {
                    let pattern = pattern.trim_matches(['"', '\'', '\\']);
                    for script in scripts.keys().filter(|script| matches_script(pattern, script)) {
                        self.add_script(folder, script, "", &before, depth + 1)?;
                    }
                }
                return Ok(());
            } else if matches!(name, "turbo" | "lerna" | "nx")
                || manager && flagged(&["-ws", "--workspaces", "-r", "--recursive", "workspaces"])
            {
                // A selection of members is not understood.
                if rest.iter().any(|word| SELECTIONS.split(' ').any(|part| word.contains(part))) {
                    break;
                }
                let targets = rest.iter().map(|word| word.rsplit('=').next().unwrap_or(word));
                let members = self.members();
                let named = |name: &&str| members.iter().any(|member| self.script(member, name).is_some());
                let scripts: Vec<&str> = targets.clone().filter(named).collect();
                if scripts.is_empty() || targets.clone().any(|word| word == "exec") {
                    break;
                }
                return scripts.iter().try_for_each(|script| self.add_members(script, &before, depth + 1));
            } else if manager && rest.iter().any(|word| is_selection(word)) {
                if rest.iter().filter(|word| is_selection(word)).count() > 1 {
                    break;
                }
                let at = rest.iter().position(|word| is_selection(word)).unwrap_or_default();
                let (value, others) = match rest[at].split_once('=') {
                    Some((_, value)) => (value, [&rest[..at], &rest[at + 1..]].concat()),
                    None => match rest.get(at + 1) {
                        Some(value) => (value.as_str(), [&rest[..at], &rest[at + 2..]].concat()),
                        None => break,
                    },
                };
                let named = |member: &&&str| *member == &value || self.manifest(member)["name"] == *value;
                let script = others.iter().find(|word| !word.starts_with('-') && *word != "run");
                match (self.members().iter().find(named), script) {
                    (Some(member), Some(script)) if self.script(member, script).is_some() => {
                        return self.add_script(member, script, "", &before, depth + 1);
                    }
                    _ => break,
                }
            } else if manager || name == "npx" {
                let rest: Vec<&String> = rest.iter().skip_while(|word| word.starts_with('-')).collect();
                let run = rest.first().is_some_and(|word| matches!(word.as_str(), "run" | "run-script"));
                let called = rest.iter().skip(usize::from(run)).find(|word| !word.starts_with('-'));
                let called = called.map(|word| if *word == "t" { "test" } else { word.as_str() });
                if !run && called == Some("audit") {
                    self.checks.push(format!("{name} audit"));
                    return Ok(());
                }
                let own = run || name != "npm" || called == Some("test");
                if let Some(script) =
                    called.filter(|it| own && name != "npx" && self.script(folder, it).is_some())
                {
                    let more = rest.iter().map(|word| word.as_str());
                    let more = more.skip_while(|word| *word != script && *word != "t").skip(1);
                    let more: Vec<&str> = match name {
                        "npm" => more.skip_while(|word| *word != "--").skip(1).collect(),
                        _ => more.collect(),
                    };
                    return self.add_script(folder, script, &more.join(" "), &before, depth + 1);
                }
                let at = all.len() - rest.len()
                    + usize::from(matches!(rest.first(), Some(word) if *word == "exec"));
                match all[at..].iter().position(|word| !word.starts_with('-')) {
                    Some(next) if !run && (name == "npx" || is_known(program(&all[at + next]))) => {
                        words = &all[at + next..];
                        continue;
                    }
                    _ => break,
                }
            } else if !matches!(name, "cross-env" | "cross-env-shell" | "env") {
                break;
            }
            words = rest;
        }
        let Some(first) = words.first() else { return Ok(()) };
        let type_check =
            program(first) == "tsc" && words.iter().any(|word| word.eq_ignore_ascii_case("--noEmit"));
        if is_check(program(first)) || type_check {
            self.checks.push(program(first).to_owned());
            return Ok(());
        }
        let node = matches!(program(first), "node" | "tsx");
        let runner = match node && words.iter().any(|word| word == "--test") {
            true => Some(&NODE),
            false => {
                // `node --flag node_modules/jest/bin/jest.js` runs jest.
                let own = |word: &&String| word.contains("node_modules/");
                let called = if node { words.iter().find(own) } else { Some(first) };
                called.and_then(|word| RUNNERS.iter().find(|runner| runner.word == program(word)))
            }
        };
        let mut words = words.to_vec();
        if runner.is_some_and(|runner| runner.by_file && runner.word != NODE.word) {
            let mut has_value = false;
            words.retain(|word| {
                let is_value = std::mem::take(&mut has_value) && !word.starts_with('-');
                let is_coverage = word.starts_with("--coverage");
                has_value = is_coverage && word != "--coverage" && !word.contains('=');
                !is_value && !is_coverage && !word.starts_with("--watch")
            });
        }
        if runner.is_some_and(|runner| runner.word == "vitest")
            && words.get(1).is_none_or(|word| word != "run")
        {
            words.insert(1, "run".to_owned());
        }
        self.steps.push_back(ScriptStep {
            folder: folder.to_owned(),
            before,
            words,
            runner,
            optional: false,
        });
        Ok(())
    }
}

/// Returns the name of the program that a word calls, without folder and extension.
fn program(word: &str) -> &str {
    let name = word.rsplit('/').next().unwrap_or(word);
    let name = [".js", ".mjs", ".cjs"].iter().find_map(|end| name.strip_suffix(end)).unwrap_or(name);
    if name == "_mocha" { "mocha" } else { name }
}

/// Whether a program is one that [`ScriptPlan::add_command`] looks into.
fn is_known(name: &str) -> bool {
    let tools = ["npm", "yarn", "pnpm", "npx", "node", "tsx", "cross-env", "run-s", "npm-run-all"];
    tools.contains(&name) || is_check(name) || RUNNERS.iter().any(|runner| runner.word == name)
}

/// Whether a word selects one member of a workspace; the member follows it or a `=` in it.
fn is_selection(word: &str) -> bool {
    let option = word.split('=').next().unwrap_or_default();
    matches!(option, "-w" | "--workspace" | "workspace" | "--filter" | "-F")
}

fn is_check(name: &str) -> bool {
    CHECKS.split(' ').any(|check| check == name)
}

fn is_assignment(word: &str) -> bool {
    let name = word.split_once('=').map_or("", |(name, _)| name);
    !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// Whether a script has a name such as `test:*`.
fn matches_script(pattern: &str, script: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == script,
        Some((start, end)) => {
            let rest =
                script.strip_prefix(start).and_then(|rest| rest.strip_suffix(end.trim_start_matches('*')));
            rest.is_some_and(|rest| end.starts_with('*') || !rest.contains(':'))
        }
    }
}

/// Splits a script into commands that run one after the other, and these into words with their quotes. Formatters after
/// a `|` are left out. `None` if the script uses other features of the shell.
fn split_line(line: &str) -> Option<Vec<Vec<String>>> {
    let (mut commands, mut words, mut word) = (Vec::new(), Vec::new(), String::new());
    let (mut quote, mut piped) = (None, false);
    let mut chars = line.chars().peekable();
    while let Some(c) = chars.next() {
        let ends = matches!(c, ' ' | '\t' | '\n' | ';' | '|' | '&') && quote.is_none();
        if !ends {
            match (c, quote) {
                ('(' | ')' | '`' | '<' | '>', None) => return None,
                ('\\', _) => word.extend([c].into_iter().chain(chars.next())),
                (c, Some(open)) if c == open => quote = None,
                ('"' | '\'', None) => quote = Some(c),
                _ => {}
            }
            if c != '\\' {
                word.push(c);
            }
            continue;
        }
        if !word.is_empty() && !piped {
            words.push(std::mem::take(&mut word));
        }
        word.clear();
        match c {
            '&' if chars.next_if_eq(&'&').is_none() => return None,
            '|' if chars.peek() == Some(&'|') => return None,
            '|' => piped = true,
            '&' | ';' | '\n' => {
                commands.push(std::mem::take(&mut words));
                piped = false;
            }
            _ => {}
        }
    }
    if !word.is_empty() && !piped {
        words.push(word);
    }
    commands.push(words);
    commands.retain(|words| !words.is_empty());
    quote.is_none().then_some(commands)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the planned steps as `folder: command`, with `!` before an optional one and `*` before a test runner.
    fn planned(manifests: &[(&str, &str)], paths: &[&str]) -> String {
        let manifests =
            manifests.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect();
        let paths: Vec<String> = paths.iter().map(|path| (*path).to_owned()).collect();
        let plan = match ScriptPlan::new(&manifests, &paths) {
            Ok(plan) => plan,
            Err(why) => return why,
        };
        let step = |step: &ScriptStep| {
            let mark = if step.optional { "!" } else { "" }.to_owned() + step.runner.map_or("", |_| "*");
            format!("{mark}{}: {}", step.folder, step.line())
        };
        let steps = plan.steps.iter().map(step).chain(plan.checks.iter().map(|check| format!("-{check}")));
        steps.collect::<Vec<_>>().join(" | ")
    }

    #[test]
    fn test_script_is_split_into_builds_test_runners_and_checks() {
        for (scripts, expected) in [
            (r#""test": "node --test test/""#, "*: node --test test/"),
            (r#""test": "xo && c8 --reporter=lcov ava && tsd""#, "*: ava | -xo | -tsd"),
            (r#""test": "nyc -r lcov mocha -b 'a b' test/*.js""#, "*: mocha -b 'a b' test/*.js"),
            (
                r#""pretest": "npm run lint && tsc", "lint": "eslint .", "test": "jest --coverage""#,
                ": tsc | *: jest | -npm run lint",
            ),
            (
                r#""test": "npm run unit -- --bail", "unit": "cross-env A='b c' NODE_OPTIONS=--x vitest", "posttest": "tsc --noEmit && npx npm@10 audit""#,
                "*: A='b c' NODE_OPTIONS=--x vitest run --bail | -tsc | -npm audit",
            ),
            (
                r#""test": "run-s test:*", "test:a": "tape a.js | tap-spec", "test:a:b": "x", "test:c": "node c.js""#,
                "*: tape a.js | : node c.js",
            ),
            (
                r#""test": "node --a ./node_modules/jest/bin/jest.js""#,
                "*: node --a ./node_modules/jest/bin/jest.js",
            ),
            (
                r#""test": "yarn lint; yarn -s unit --x", "lint": "standard", "unit": "npx --no-install jest""#,
                "*: jest --x | -npm run lint",
            ),
            (r#""test": "cd lib && mocha && echo done""#, "*: cd lib && mocha | : cd lib && echo done"),
            (r#""test": "c8 ./run.sh && mocha""#, ": c8 ./run.sh | *: mocha"),
            (r#""test": "pnpm exec mocha && tsx --test""#, "*: mocha | *: tsx --test"),
            ("", "*: node --test"),
            (r#""test": "echo \"Error: no test specified\" && exit 1""#, "*: node --test"),
        ] {
            assert_eq!(
                planned(&[("package.json", &format!(r#"{{"scripts": {{{scripts}}}}}"#))], &[]),
                expected
            );
        }
        for script in
            ["grunt test", "mocha || true", "mocha > out", "npm test", "(mocha)", "node a.js", "eslint ."]
        {
            let why = planned(&[("package.json", &format!(r#"{{"scripts": {{"test": "{script}"}}}}"#))], &[]);
            assert!(
                why.starts_with(&format!("package.json runs its tests by `{script}`"))
                    || why.contains("too often"),
                "{why}"
            );
        }
    }

    #[test]
    fn build_runs_before_the_tests_if_the_entry_point_is_not_in_the_commit() {
        let manifest =
            r#"{"main": "./dist/a.js", "scripts": {"test": "jest", "prepare": "husky", "build": "tsc"}}"#;
        assert_eq!(planned(&[("package.json", manifest)], &[]), "!: tsc | *: jest");
        assert_eq!(planned(&[("package.json", manifest)], &["dist/a.js"]), "*: jest");
    }

    #[test]
    fn root_script_that_calls_its_members_runs_the_tests_of_each_member() {
        let with = |root: &str| {
            let root = format!(r#"{{"workspaces": ["p/*", "!p/x"], "scripts": {{{root}}}}}"#);
            let member = r#"{"name": "@s/a", "scripts": {"test": "jest", "unit": "mocha"}}"#;
            let others =
                [("p/b/package.json", "{}"), ("p/x/package.json", member), ("q/package.json", member)];
            planned(
                &[&[("package.json", root.as_str()), ("p/a/package.json", member)][..], &others].concat(),
                &[],
            )
        };
        for (script, expected) in [
            ("npm test --workspaces", "*p/a: jest"),
            ("turbo run unit", "*p/a: mocha"),
            ("pnpm -r test", "*p/a: jest"),
            ("lerna run test --stream", "*p/a: jest"),
            ("yarn workspaces foreach -A run unit", "*p/a: mocha"),
            ("npm run unit -w @s/a", "*p/a: mocha"),
        ] {
            assert_eq!(with(&format!(r#""test": "{script}""#)), expected, "{script}");
        }
        assert_eq!(with(""), "*p/a: jest");
        assert!(with(r#""test": "turbo run test --filter=./p/*""#).contains("calls none of"));
    }
}
