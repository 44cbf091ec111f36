//! Attacks through the build: files of the repository make build tools run a script when the repository's tests are
//! built or run.

use std::fs;

use crate::{
    cells,
    world::{CANARY, CommandOutput, World},
};

struct Build {
    name: &'static str,
    /// Program that the attack needs. If it is not installed, the row is skipped.
    needs: &'static str,
    files: &'static [(&'static str, &'static str)],
}

/// Attack script that each row makes the build run. The output of the script is in the message of a failing test.
const ATTACK: &str = "exec >>\"$HOME/said\" 2>&1; echo tried\n\
    cat {home}/.ssh/id_ed25519 {home}/private-key.pem {home}/.env {home}/main.db {home}/cache/other/secret; ls {home} {home}/cache\n\
    env; cat /proc/{pid}/environ /etc/shadow\n\
    for to in {home}/outside/file {home}/cache/other/secret {home}/cache/new {place}/repo/.git/config; do echo x >$to; done\n\
    chmod 777 {home}/outside/file; rm -rf {home}/cache/other {place}/repo/.git; kill -9 {pid}\n";

const MANIFEST: &str = "[package]\nname = \"a\"\nversion = \"0.1.0\"\nedition = \"2021\"\n";
const SHOWS: &str = "#[test]\nfn shows() {\n    panic!(\"{}\", std::fs::read_to_string(std::env::var(\"HOME\").unwrap() + \"/said\").unwrap());\n}\n";
const NODE_SHOWS: &str = "const { readFileSync } = require('node:fs');\nrequire('node:test')('shows', () => { throw new Error(readFileSync(process.env.HOME + '/said', 'utf8')); });\n";

const BUILDS: &[Build] = &[
    Build {
        name: "cargo's configuration names a wrapper",
        needs: "cargo",
        files: &[
            ("Cargo.toml", MANIFEST),
            ("src/lib.rs", SHOWS),
            (".cargo/config.toml", "[build]\nrustc-wrapper = \"./wrapper\"\n"),
            ("wrapper", "#!/bin/sh\nsh \"$(dirname \"$0\")/attack.sh\"\nexec \"$@\"\n"),
        ],
    },
    Build {
        name: "build.rs",
        needs: "cargo",
        files: &[
            ("Cargo.toml", MANIFEST),
            ("src/lib.rs", SHOWS),
            (
                "build.rs",
                "fn main() { std::process::Command::new(\"sh\").arg(\"attack.sh\").status().unwrap(); }\n",
            ),
        ],
    },
    Build {
        name: "conftest.py",
        needs: "pytest",
        files: &[
            ("pytest.ini", ""),
            ("conftest.py", "import subprocess\nsubprocess.run(['sh', 'attack.sh'])\n"),
            (
                "test_a.py",
                "import os\ndef test_shows():\n    assert not open(os.environ['HOME'] + '/said').read()\n",
            ),
        ],
    },
    Build {
        name: ".npmrc names a shell",
        needs: "npm",
        files: &[
            ("package.json", "{ \"scripts\": { \"pretest\": \"true\", \"test\": \"node --test\" } }"),
            (".npmrc", "script-shell=./wrapper\n"),
            ("wrapper", "#!/bin/sh\nsh ./attack.sh\nexec sh \"$@\"\n"),
            ("a.test.js", NODE_SHOWS),
            (".github/countersign.toml", "[test]\ncommand = \"npm test\"\n"),
        ],
    },
    Build {
        name: "a test of node's",
        needs: "node",
        files: &[
            ("package.json", "{}"),
            (
                "a.test.js",
                "require('node:child_process').spawnSync('sh', ['attack.sh']);\nrequire('./shows.js');\n",
            ),
            ("shows.js", NODE_SHOWS),
        ],
    },
    Build {
        name: ".mvn names what the virtual machine runs",
        needs: "mvn",
        files: &[
            (".mvn/jvm.config", "-Xmx6m -XX:OnOutOfMemoryError=./attack.sh\n"),
            (
                "pom.xml",
                "<project><modelVersion>4.0.0</modelVersion><groupId>a</groupId><artifactId>a</artifactId><version>1</version></project>",
            ),
            (
                ".github/countersign.toml",
                "[test]\ncommand = \"mvn -B -o validate >mvn-said 2>&1; cat $HOME/said || cat mvn-said; exit 1\"\n",
            ),
        ],
    },
    Build {
        name: "a command, and git's hooks and configuration",
        needs: "sh",
        files: &[
            (".github/countersign.toml", "[test]\ncommand = \"sh attack.sh; cat $HOME/said; exit 1\"\n"),
            (".gitattributes", "* filter=evil\n"),
            (".git/hooks/post-checkout", "#!/bin/sh\necho x >{home}/outside/file\n"),
            (".git/hooks/post-index-change", "#!/bin/sh\necho x >{home}/outside/file\n"),
            (
                ".git/config",
                "[core]\nrepositoryformatversion = 0\nbare = false\nfsmonitor = {place}/repo/wrapper\npager = {place}/repo/wrapper\n\
                 [filter \"evil\"]\nsmudge = {place}/repo/wrapper\nclean = {place}/repo/wrapper\n",
            ),
            ("wrapper", "#!/bin/sh\necho x >{home}/outside/file\n"),
        ],
    },
];

/// Runs each row in each cell, unless the row's program is not installed. The attack must run, but it must print no
/// secret and change nothing outside the sandbox.
#[test]
fn malicious_builds_reach_nothing_outside_the_sandbox() {
    for cell in cells() {
        for Build { name, needs, files } in BUILDS {
            let world = World::new(cell);
            let repository = world.repository(files, ATTACK);
            let CommandOutput { out, err, .. } = world.run_tests(&repository);
            let printed = format!("{name}, {}: {out}{err}", cell.name);
            let lacks =
                ["install", "ermission denied", "not found"].iter().any(|words| printed.contains(words));
            if !out.contains("tried") && lacks && *needs != "sh" {
                eprintln!("skipped: {printed}");
                continue;
            }
            assert!(out.contains("tried"), "{printed}");
            assert!(!printed.contains(CANARY), "{printed}");
            assert_eq!(world.violations(), Vec::<String>::new(), "{printed}");
            assert!(fs::exists(repository.join(".git/HEAD")).unwrap(), "{printed}");
        }
    }
}
