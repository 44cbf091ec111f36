//! Builds and runs git commands with our settings only. The git configuration of the machine and of the operator is
//! ignored.

use std::{fmt, path::Path, time::Duration};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use secrecy::{ExposeSecret, SecretString};
use tokio_util::sync::CancellationToken;
use url::{Host, Url};

use super::GitError;
use crate::{
    limits,
    proc::{ChildCommand, ChildOutput, ProcError},
    types::{Oid, RepoName},
};

/// Oldest supported git version. It is the first version that reads settings from `GIT_CONFIG_COUNT`, which keeps a
/// token out of arguments and files.
pub(super) const OLDEST: GitVersion = GitVersion { major: 2, minor: 31 };

pub(super) const FETCH: &str = "fetch";

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct GitVersion {
    pub major: u32,
    pub minor: u32,
}

impl fmt::Display for GitVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// Returns the version of the git in `PATH`. If git is missing or too old, the error tells which version to install.
async fn version() -> Result<GitVersion, GitError> {
    let output =
        run_git("version", base_command().arg("version"), Duration::from_secs(10), &CancellationToken::new())
            .await?;
    let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    match parse_version(&text) {
        Some(version) if version >= OLDEST => Ok(version),
        Some(version) => Err(GitError::TooOld { found: version.to_string() }),
        None => Err(GitError::Unreadable { what: "version", why: text }),
    }
}

/// Checks that git can create a mirror and fetch over HTTPS, for which git uses a separate program. Returns git's
/// version.
pub async fn check_git() -> Result<GitVersion, GitError> {
    let version = version().await?;
    let failed = |source| GitError::Directory { path: std::env::temp_dir(), source };
    let scratch = tempfile::tempdir().map_err(failed)?;
    read_output("init", init_mirror(&scratch.path().join("mirror.git"))).await?;
    let programs = read_output("--exec-path", base_command().arg("--exec-path")).await?;
    match Path::new(String::from_utf8_lossy(&programs).trim()).join("git-remote-https").exists() {
        true => Ok(version),
        false => Err(GitError::NoHttps),
    }
}

/// Parses `git version 2.47.3`, with or without a vendor suffix.
fn parse_version(text: &str) -> Option<GitVersion> {
    let mut numbers = text.strip_prefix("git version ")?.split(['.', ' ']);
    Some(GitVersion { major: numbers.next()?.parse().ok()?, minor: numbers.next()?.parse().ok()? })
}

/// Returns a git command with only our settings. `proc` has already cleared the environment.
fn base_command() -> ChildCommand {
    ChildCommand::new("git")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_TERMINAL_PROMPT", "0")
        .env("GIT_ASKPASS", "true")
        .env("GIT_NO_REPLACE_OBJECTS", "1")
        // A partial clone would fetch missing objects with whatever program its config names.
        .env("GIT_NO_LAZY_FETCH", "1")
        .env("GIT_ALLOW_PROTOCOL", "none")
        .env("LC_ALL", "C")
        .args(["-c", "credential.helper=", "-c", "core.hooksPath=/dev/null"])
}

/// Returns a git command for a bare repository. `--git-dir` stops git from searching for another repository.
pub(super) fn in_mirror(mirror: &Path) -> ChildCommand {
    base_command().arg("--git-dir").arg(mirror)
}

/// Returns a git command that runs in a directory, where git finds the repository itself.
pub(super) fn in_directory(directory: &Path) -> ChildCommand {
    base_command().arg("-C").arg(directory)
}

pub(super) fn init_mirror(mirror: &Path) -> ChildCommand {
    base_command().args(["init", "--quiet", "--bare", "--template="]).arg(mirror)
}

/// Returns the command that fetches branches from `source` into the mirror. The branches keep their names.
pub(super) fn fetch_branches(
    mirror: &Path,
    source: &FetchSource,
    branches: &[String],
    token: &SecretString,
) -> ChildCommand {
    let basic = STANDARD.encode(format!("x-access-token:{}", token.expose_secret()));
    in_mirror(mirror)
        .with_proxy_environment()
        .env("GIT_ALLOW_PROTOCOL", source.protocol)
        .env("GIT_CONFIG_COUNT", "1")
        .env("GIT_CONFIG_KEY_0", format!("http.{}.extraHeader", source.url))
        .env("GIT_CONFIG_VALUE_0", format!("Authorization: Basic {basic}"))
        // No redirects: the token header must reach only this repository's host.
        .args(["-c", "http.followRedirects=false"])
        // Maintenance would otherwise continue in a background process.
        .args(["-c", "gc.auto=0", "-c", "maintenance.auto=false"])
        .args([FETCH, "--quiet", "--no-tags", "--no-write-fetch-head", "--no-recurse-submodules"])
        // The demo's copy of a shallow clone is shallow, and without this git skips its branches.
        .arg("--update-shallow")
        .arg(source.url.as_str())
        .args(branches.iter().map(|branch| format!("+refs/heads/{branch}:refs/heads/{branch}")))
}

/// URL of a repository to fetch from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FetchSource {
    url: Url,
    /// The only protocol that git may use. `http` is used only for a server on this machine.
    protocol: &'static str,
}

impl FetchSource {
    pub(super) fn new(git_url: &Url, name: &RepoName) -> Result<Self, GitError> {
        let loopback = match git_url.host() {
            Some(Host::Ipv4(ip)) => ip.is_loopback(),
            Some(Host::Ipv6(ip)) => ip.is_loopback(),
            Some(Host::Domain(name)) => name == "localhost",
            None => false,
        };
        let protocol = match git_url.scheme() {
            "https" => "https",
            "http" if loopback => "http",
            _ => {
                let stderr = format!("{git_url} would carry a token in the clear; set an https git_url");
                return Err(GitError::Failed { what: "setup", stderr });
            }
        };
        let mut url = git_url.clone();
        let last = format!("{}.git", name.name);
        match url.path_segments_mut() {
            Ok(mut path) => path.pop_if_empty().push(&name.owner).push(&last),
            Err(()) => {
                return Err(GitError::Failed {
                    what: "setup",
                    stderr: format!("{git_url} is no base for a path"),
                });
            }
        };
        url.set_query(None);
        Ok(Self { url, protocol })
    }
}

/// Runs git; any non-zero status is an error.
pub(super) async fn run_git(
    what: &'static str,
    command: ChildCommand,
    time: Duration,
    cancel: &CancellationToken,
) -> Result<ChildOutput, GitError> {
    let output = command.timeout(time).run(cancel).await.map_err(|source| match source {
        ProcError::NotFound { .. } => GitError::Missing,
        source => GitError::Process { what, source },
    })?;
    if output.success() {
        return Ok(output);
    }
    let stderr = output.stderr_text().chars().take(500).collect();
    Err(GitError::Failed { what, stderr })
}

/// Runs a short command that reads objects, and returns its output. It can be cancelled only by dropping the future.
pub(super) async fn read_output(what: &'static str, command: ChildCommand) -> Result<Vec<u8>, GitError> {
    Ok(run_git(what, command, limits::GIT_READ, &CancellationToken::new()).await?.stdout)
}

/// Returns the commit that a revision names; `None` if the revision does not exist.
pub(super) async fn resolve_commit(repository: &Path, revision: &str) -> Result<Option<Oid>, GitError> {
    let parse = in_mirror(repository)
        .args(["rev-parse", "--verify", "--quiet", "--end-of-options"])
        .arg(format!("{revision}^{{commit}}"));
    let found = match read_output("rev-parse", parse).await {
        Ok(found) => found,
        Err(GitError::Failed { .. }) => return Ok(None),
        Err(error) => return Err(error),
    };
    let commit = String::from_utf8_lossy(&found).trim().parse();
    commit.map(Some).map_err(|e| GitError::Unreadable { what: "rev-parse", why: format!("{e}") })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(git_url: &str) -> Result<FetchSource, GitError> {
        FetchSource::new(&git_url.parse().unwrap(), &"Octo/he.llo".parse().unwrap())
    }

    #[test]
    fn fetch_url_keeps_path_and_port() {
        let of = |git_url| source(git_url).unwrap().url.to_string();
        assert_eq!(of("https://github.com"), "https://github.com/Octo/he.llo.git");
        assert_eq!(of("https://ghe.example:8443/git/"), "https://ghe.example:8443/git/Octo/he.llo.git");
        assert_eq!(of("https://ghe.example/git?x=1"), "https://ghe.example/git/Octo/he.llo.git");
    }

    #[test]
    fn plain_http_is_allowed_for_loopback_only() {
        assert_eq!(source("https://github.com/").unwrap().protocol, "https");
        for loopback in ["http://127.0.0.1:8000/", "http://localhost:1/", "http://[::1]:1/"] {
            assert_eq!(source(loopback).unwrap().protocol, "http", "{loopback}");
        }
        for bad in
            ["http://github.com/", "file:///tmp/x", "ssh://git@github.com/", "http://127.0.0.1.example/"]
        {
            assert!(source(bad).is_err(), "{bad}");
        }
    }

    #[tokio::test]
    async fn token_never_appears_in_git_arguments_or_errors() {
        let token = SecretString::from("ghs_verysecret");
        let basic = STANDARD.encode("x-access-token:ghs_verysecret");
        // A closed port: git itself fails, and we see its full message.
        let directory = tempfile::tempdir().unwrap();
        let mirror = directory.path().join("mirror.git");
        let soon = Duration::from_secs(20);
        run_git("init", init_mirror(&mirror), soon, &CancellationToken::new()).await.unwrap();
        let source = source("http://127.0.0.1:9/").unwrap();
        let command = fetch_branches(&mirror, &source, &["main".into()], &token);
        let error = run_git(FETCH, command, soon, &CancellationToken::new()).await.unwrap_err();
        assert!(error.is_transient(), "{error}");
        let shown = format!("{error} {error:?}");
        assert!(shown.contains("127.0.0.1"), "{shown}");
        assert!(!shown.contains("ghs_verysecret") && !shown.contains(&basic), "{shown}");
        let config = std::fs::read_to_string(mirror.join("config")).unwrap();
        assert!(!config.contains(&basic) && !config.contains("extraHeader"), "{config}");
    }

    #[test]
    fn git_version_with_a_vendor_suffix_is_parsed() {
        assert_eq!(
            parse_version("git version 2.39.5 (Apple Git-154)"),
            Some(GitVersion { major: 2, minor: 39 })
        );
        assert!(parse_version("git version 2.30.2").unwrap() < OLDEST);
        assert_eq!(parse_version("hub 1"), None);
    }

    #[tokio::test]
    async fn installed_git_is_recent_enough() {
        assert!(version().await.unwrap() >= OLDEST);
    }
}
