//! Runs Rust tests. Cargo builds the test binaries and reports them in JSON. Each binary then lists its tests and runs
//! them. Only the text output of libtest is stable, so we parse that. Only names from the list are accepted as tests,
//! no matter what a test prints.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    path::Path,
};

use cargo_metadata::{
    Artifact, CompilerMessage, Message, PackageId, Target, TargetKind,
    diagnostic::{Diagnostic, DiagnosticLevel, DiagnosticSpan},
};

use super::{
    CommandExit, CompilerError, SuiteCommand, SuiteOutput, TestFailure, TestProject, TestReport, TestResult,
    TestRunner, TestSuite, libtest, presets,
    test_report::MOST_FAULTS,
    toolchains::{SYSTEM_PATH, Toolchain, ToolchainProbe, home_folder},
};

pub(super) const RUNNER: TestRunner = TestRunner {
    name: "cargo",
    manifests: &["Cargo.toml"],
    probe: ToolchainProbe {
        language: "Rust",
        program: "rustc",
        args: &["--print", "sysroot"],
        version: &["-vV"],
        oldest: (0, 0),
        missing: "Rust's tests need rustc and cargo; install them by rustup or `apt install cargo`",
        tool: parse_toolchain,
    },
    setup: &[presets::CARGO],
    suite: |project| Box::new(CargoSuite { project, waiting: VecDeque::new(), stage: None }),
};

fn parse_toolchain(lines: &[&str]) -> Option<Toolchain> {
    let root = Path::new(lines.first()?);
    let home = home_folder("CARGO_HOME", ".cargo")?;
    // Crates are unpacked again: the unpacked ones here may be incomplete, and runs may not write there.
    let names = [".cargo/registry/index", ".cargo/registry/cache"];
    let there = names.map(|name| (name, home.join(name.trim_start_matches(".cargo/"))));
    let there: Vec<_> = there.into_iter().filter(|(_, path)| path.is_dir()).collect();
    let read = [root.to_owned()].into_iter().chain(there.iter().map(|(_, path)| path.clone())).collect();
    Some(Toolchain { program: root.join("bin/cargo"), read, home: there, ..Toolchain::default() })
}

struct CargoSuite {
    project: TestProject,
    waiting: VecDeque<TestBinary>,
    stage: Option<CargoStage>,
}

/// A program that runs tests: a test binary, or cargo itself for doc tests.
#[derive(Debug, Clone)]
struct TestBinary {
    /// Id in the format of cargo-nextest: `package`, `package::target` or `package::bin/target`.
    id: String,
    program: String,
    args: Vec<String>,
    /// Working directory, relative to the project's folder.
    folder: String,
}

#[derive(Debug)]
enum CargoStage {
    Build,
    List(TestBinary),
    /// The binary runs its tests. Holds the names that the binary listed, and whether they run one at a time.
    Run(TestBinary, BTreeSet<String>, bool),
}

impl TestSuite for CargoSuite {
    fn begin(&mut self) -> Result<SuiteCommand, String> {
        self.stage = Some(CargoStage::Build);
        // Like `cargo test --no-run`, which would stop at the first target that does not build.
        let mut args = ["build", "--profile=test", "--keep-going", "--offline", "--message-format=json"]
            .map(str::to_owned)
            .to_vec();
        args.extend(match self.test_targets() {
            Some(names) => names.into_iter().map(|name| format!("--test={name}")).collect::<Vec<_>>(),
            None => ["--tests", "--examples"]
                .into_iter()
                // Members that the manifest does not build by default belong to the suite, too.
                .chain(self.project.manifest.contains("[workspace").then_some("--workspace"))
                .map(str::to_owned)
                .collect(),
        });
        Ok(self.cargo_command(&self.project.tool.program.display().to_string(), args, ""))
    }

    fn read_output(&mut self, output: SuiteOutput, found: &mut TestReport) -> Option<SuiteCommand> {
        match self.stage.take()? {
            CargoStage::Build => self.read_build(&output, found),
            CargoStage::List(binary) => {
                if let Some(call) = self.read_list(binary, &output, found) {
                    return Some(call);
                }
            }
            CargoStage::Run(binary, names, one_by_one) => {
                // A crash ends all tests of the process; running them one at a time shows which one crashed.
                if matches!(output.end, CommandExit::Signal(_)) && !one_by_one && names.len() > 1 {
                    return Some(self.run_binary(binary, names, true));
                }
                libtest::read_libtest(&binary.id, &names, &output, found);
                if is_doc(&binary) {
                    libtest::number_doc_tests(found);
                    let is_other = |id: &str| self.project.only.as_ref().is_some_and(|only| id != only);
                    found.tests.retain(|test| {
                        !test.id.starts_with(&format!("{} ", binary.id)) || !is_other(&test.id)
                    });
                }
            }
        }
        let binary = self.waiting.pop_front()?;
        let listing = ["--list", "--format", "terse"].map(str::to_owned);
        let call = self
            .binary_command(&binary, listing.into_iter().chain(self.single_test_filter(&binary)).collect());
        self.stage = Some(CargoStage::List(binary));
        Some(call)
    }
}

impl CargoSuite {
    /// Returns the target names of the requested files. `None` if cargo's target auto-discovery does not find all of
    /// these files.
    fn test_targets(&self) -> Option<Vec<&str>> {
        let found_alone = !["[[test]]", "autotests"].iter().any(|word| self.project.manifest.contains(word));
        let files = self.project.requested_files(|file| found_alone && file.ends_with(".rs"));
        let names = files.into_iter().map(|file| {
            let name = file.strip_prefix("tests/")?.strip_suffix(".rs")?;
            Some(name.strip_suffix("/main").unwrap_or(name)).filter(|name| !name.contains('/'))
        });
        let names: Option<Vec<&str>> = names.collect();
        names.filter(|names| !names.is_empty())
    }

    /// Builds a command that runs in `folder`, which is relative to the project's folder.
    fn cargo_command(&self, program: &str, args: Vec<String>, folder: &str) -> SuiteCommand {
        let root = self.project.tool.program.parent().and_then(Path::parent).unwrap_or(Path::new("/usr"));
        let mut version = self.project.tool.version.lines();
        let host = version.find_map(|line| line.strip_prefix("host: ")).unwrap_or_default();
        let libraries = root.join("lib");
        let environment = [
            ("PATH", format!("{}:{SYSTEM_PATH}", root.join("bin").display())),
            // Tests of procedural macros link against the compiler's library, and some programs against the standard one.
            (
                "LD_LIBRARY_PATH",
                format!("{}:{}/rustlib/{host}/lib", libraries.display(), libraries.display()),
            ),
            ("CARGO_TERM_COLOR", "never".to_owned()),
            ("RUST_BACKTRACE", "0".to_owned()),
            ("CARGO_TARGET_DIR", self.project.built.join("cargo").display().to_string()),
            // Debug info is not needed and would take a third of the build time.
            ("CARGO_PROFILE_DEV_DEBUG", "0".to_owned()),
            ("CARGO_PROFILE_TEST_DEBUG", "0".to_owned()),
        ];
        let environment = environment.map(|(name, value)| (name.to_owned(), value)).into();
        let folder = Path::new(&self.project.folder).join(folder).display().to_string();
        SuiteCommand { program: program.into(), args, environment, folder, report: None }
    }

    fn binary_command(&self, binary: &TestBinary, more: Vec<String>) -> SuiteCommand {
        let args = binary.args.iter().cloned().chain(more).collect();
        let mut call = self.cargo_command(&binary.program, args, &binary.folder);
        let folder = self.project.root.join(&binary.folder).display().to_string();
        call.environment.push(("CARGO_MANIFEST_DIR".to_owned(), folder));
        call
    }

    fn single_test_filter(&self, binary: &TestBinary) -> Vec<String> {
        // Cargo knows a doc test by its line, so the result is filtered instead.
        let Some(only) = self.project.only.as_ref().filter(|_| !is_doc(binary)) else { return Vec::new() };
        let name = only.strip_prefix(&format!("{} ", binary.id)).unwrap_or(only);
        vec!["--exact".to_owned(), name.to_owned()]
    }

    fn run_binary(&mut self, binary: TestBinary, names: BTreeSet<String>, one_by_one: bool) -> SuiteCommand {
        let alone = one_by_one.then(|| "--test-threads=1".to_owned());
        let call =
            self.binary_command(&binary, alone.into_iter().chain(self.single_test_filter(&binary)).collect());
        self.stage = Some(CargoStage::Run(binary, names, one_by_one));
        call
    }

    /// Reads the build output. Collects the test binaries and the targets that did not build.
    fn read_build(&mut self, output: &SuiteOutput, found: &mut TestReport) {
        let mut tested = BTreeSet::<PackageId>::new();
        let mut documented = BTreeSet::<PackageId>::new();
        let mut broken = BTreeMap::<String, Vec<Diagnostic>>::new();
        // Parsed line by line: the crate's stream reader overflows the stack on deeply nested lines.
        for message in output.stdout.lines().filter_map(|line| serde_json::from_str::<Message>(line).ok()) {
            match message {
                Message::CompilerArtifact(artifact) => {
                    if artifact.profile.test {
                        self.package_folder(&artifact.package_id).iter().for_each(|at| found.add_package(at));
                        tested.insert(artifact.package_id.clone());
                    }
                    if artifact.target.doctest {
                        documented.insert(artifact.package_id.clone());
                    }
                    self.waiting.extend(self.test_binary(&artifact));
                }
                Message::CompilerMessage(CompilerMessage { package_id, target, message, .. })
                    if matches!(message.level, DiagnosticLevel::Error | DiagnosticLevel::Ice) =>
                {
                    self.package_folder(&package_id).iter().for_each(|at| found.add_package(at));
                    broken.entry(binary_id(&package_id, &target)).or_default().push(message);
                }
                _ => {}
            }
        }
        // Cargo reports binaries in the order builds finish, which varies.
        self.waiting.make_contiguous().sort_by(|one, other| one.id.cmp(&other.id));
        let whole = self.test_targets().is_none();
        for package in documented.intersection(&tested).filter(|_| whole) {
            self.waiting.push_back(self.doc_test_binary(package));
        }
        broken.iter().for_each(|(id, errors)| found.add_or_merge(not_built(id, errors)));
        if !matches!(output.end, CommandExit::Exit(_))
            || output.end != CommandExit::Exit(0) && broken.is_empty()
        {
            let mut error_line =
                output.stderr.lines().map(str::trim).filter(|line| line.starts_with("error"));
            let error_line =
                error_line.next().or(output.stderr.lines().next_back()).unwrap_or("it printed nothing");
            found.add_trouble(format!("cargo: {}: {error_line}", output.end));
        }
    }

    /// Returns the folder of a package of the repository, relative to the project.
    fn package_folder(&self, of: &PackageId) -> Option<String> {
        let folder = of.repr.rsplit_once('#')?.0.strip_prefix("path+file://")?;
        Some(Path::new(folder).strip_prefix(&self.project.root).ok()?.to_str()?.to_owned())
    }

    fn test_binary(&self, artifact: &Artifact) -> Option<TestBinary> {
        let program = artifact.executable.as_ref().filter(|_| artifact.profile.test)?;
        let package = artifact.manifest_path.parent()?.as_std_path();
        let folder = package.strip_prefix(&self.project.root).unwrap_or(Path::new("")).display().to_string();
        let id = binary_id(&artifact.package_id, &artifact.target);
        Some(TestBinary { id, program: program.to_string(), args: Vec::new(), folder })
    }

    fn doc_test_binary(&self, of: &PackageId) -> TestBinary {
        let args = ["test", "--offline", "--doc", "-p", &of.repr, "--"].map(str::to_owned).into();
        let program = self.project.tool.program.display().to_string();
        TestBinary { id: format!("{}::doc", package_name(of)), program, args, folder: String::new() }
    }

    fn read_list(
        &mut self,
        binary: TestBinary,
        output: &SuiteOutput,
        found: &mut TestReport,
    ) -> Option<SuiteCommand> {
        let names = output.stdout.lines().filter_map(|line| line.strip_suffix(": test"));
        let names: BTreeSet<String> = names.map(str::to_owned).collect();
        if output.end != CommandExit::Exit(0) {
            let stderr = output.stderr.trim();
            found.add_or_merge(TestResult::failed(
                &binary.id,
                TestFailure::Build,
                format!("{}\n{stderr}", output.end),
            ));
            return None;
        }
        (!names.is_empty()).then(|| self.run_binary(binary, names, false))
    }
}

fn is_doc(binary: &TestBinary) -> bool {
    binary.id.ends_with("::doc")
}

fn package_name(id: &PackageId) -> &str {
    let (path, name) = id.repr.rsplit_once('#').unwrap_or(("", &id.repr));
    match name.split_once('@') {
        Some((name, _)) => name,
        None => path.rsplit('/').next().unwrap_or(name),
    }
}

fn binary_id(id: &PackageId, target: &Target) -> String {
    let (package, name) = (package_name(id), &target.name);
    match target.kind.first() {
        Some(TargetKind::Test) => format!("{package}::{name}"),
        Some(
            kind @ (TargetKind::Bin | TargetKind::Bench | TargetKind::Example | TargetKind::CustomBuild),
        ) => {
            format!("{package}::{kind}/{name}")
        }
        _ => package.to_owned(),
    }
}

/// Compiler error codes that report a missing name.
const MISSING: &[&str] = &[
    "E0405", "E0412", "E0422", "E0423", "E0424", "E0425", "E0432", "E0433", "E0463", "E0531", "E0560",
    "E0583", "E0599", "E0609",
];

fn not_built(id: &str, errors: &[Diagnostic]) -> TestResult {
    // The last error only says how many there were.
    let errors = || errors.iter().filter(|error| !error.message.starts_with("aborting due to"));
    let faults: Vec<CompilerError> = errors().take(MOST_FAULTS).map(fault).collect();
    let failure = match faults.iter().any(|fault| !fault.missing.is_empty()) {
        true => TestFailure::Missing,
        false => TestFailure::Build,
    };
    let rendered = errors().map(|error| error.rendered.as_deref().unwrap_or(&error.message));
    let at = errors().find_map(primary).map(|span| format!("{}:{}", span.file_name, span.line_start));
    TestResult::failed(id, failure, rendered.collect::<Vec<_>>().join("\n"))
        .with_place(at)
        .with_errors(faults)
}

fn primary(error: &Diagnostic) -> Option<&DiagnosticSpan> {
    error.spans.iter().find(|span| span.is_primary)
}

/// Converts a compiler error and collects the missing names from its message. In `cannot find function `a` in crate
/// `b``, the first name is missing. In an import error, all names are missing. In a field error, the name after `named`
/// is missing.
fn fault(error: &Diagnostic) -> CompilerError {
    let missing = error.code.as_ref().is_some_and(|code| MISSING.contains(&code.code.as_str()));
    let message = &error.message;
    let from = message.find("named `").unwrap_or(0);
    let names = message[from..].split('`').skip(1).step_by(2);
    let most = match (missing, message.starts_with("unresolved import")) {
        (false, _) => 0,
        (true, imports) => {
            if imports {
                usize::MAX
            } else {
                1
            }
        }
    };
    let names = names.take(most).map(|name| name.rsplit("::").next().unwrap_or(name));
    CompilerError::new(primary(error).map_or("", |span| &span.file_name), message, names)
}
