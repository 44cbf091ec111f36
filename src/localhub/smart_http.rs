//! Git's smart HTTP protocol, read only, for `git fetch` and `git clone` of the bare repositories. A private repository
//! requires an installation token with `contents: read`. Pushes are refused.

use std::{
    io::Write,
    process::{Command, Stdio},
};

use http::{Method, StatusCode};

use super::{
    Hub,
    git::git_command,
    rest::auth::{self, HubPermissionLevel, RestCaller},
    server::{HubReply, HubRequest},
};

const READ: &str = "git-upload-pack";
const WRITE: &str = "git-receive-pack";

/// Whether the request uses the Git protocol and is not for a page.
pub(super) fn is_git(request: &HubRequest) -> bool {
    let path = request.path.as_str();
    path.ends_with("/info/refs") || path.ends_with(READ) || path.ends_with(WRITE)
}

pub(super) fn answer(hub: &Hub, request: &HubRequest) -> HubReply {
    let not_found = || HubReply::text(StatusCode::NOT_FOUND, "Repository not found.\n");
    let segments: Vec<&str> = request.segments.iter().map(String::as_str).collect();
    let [owner, name, rest @ ..] = segments.as_slice() else { return not_found() };
    let name = name.strip_suffix(".git").unwrap_or(name);
    let Some(caller) = auth::authenticate_git(hub, request) else {
        return challenge("Invalid username or token.\n");
    };
    let found = hub.read(|s| {
        let moved = || s.renamed.get(&format!("{owner}/{name}").to_ascii_lowercase()).copied();
        s.repository_named(owner, name).map(|r| r.id).or_else(moved)
    });
    let readable = found.filter(|id| {
        auth::require_permission(hub, &caller, *id, &[("contents", HubPermissionLevel::Read)]).is_ok()
    });
    let Some(repo) = readable else {
        // The same response for private and missing repositories, so strangers cannot tell them apart.
        return match caller {
            RestCaller::Anonymous => challenge("Authentication is required.\n"),
            _ => not_found(),
        };
    };
    let pushing = rest.last() == Some(&WRITE) || request.query("service") == Some(WRITE);
    if pushing {
        return HubReply::text(
            StatusCode::FORBIDDEN,
            "localhub takes no pushes; write through the REST API.\n",
        );
    }
    let mut command = git_command(&hub.0.git_dir(repo));
    if let Some(version) = request.header("git-protocol") {
        command.env("GIT_PROTOCOL", version);
    }
    match (&request.method, rest) {
        (&Method::GET, ["info", "refs"]) if request.query("service") == Some(READ) => {
            advertise(command, request.header("git-protocol").is_some_and(|v| v.contains("version=2")))
        }
        (&Method::POST, [READ]) => exchange(command, request),
        _ => not_found(),
    }
}

fn challenge(text: &str) -> HubReply {
    HubReply::text(StatusCode::UNAUTHORIZED, text).with_header("www-authenticate", "Basic realm=\"GitHub\"")
}

fn advertise(mut command: Command, second_version: bool) -> HubReply {
    command.args(["upload-pack", "--stateless-rpc", "--advertise-refs", "."]);
    // Protocol version 2 starts with its own line; older versions with the service name.
    let mut body = Vec::new();
    if !second_version {
        body.extend_from_slice(b"001e# service=git-upload-pack\n0000");
    }
    match run(command, &[]) {
        Some(out) => body.extend(out),
        None => return HubReply::text(StatusCode::INTERNAL_SERVER_ERROR, "git upload-pack failed.\n"),
    }
    HubReply::new(StatusCode::OK, "application/x-git-upload-pack-advertisement", body)
        .with_header("cache-control", "no-cache")
}

fn exchange(mut command: Command, request: &HubRequest) -> HubReply {
    let sent = match request.header("content-encoding") {
        None => Some(request.body.to_vec()),
        Some("gzip" | "x-gzip") => gunzip(&request.body),
        Some(_) => None,
    };
    let Some(sent) = sent else {
        return HubReply::text(StatusCode::UNSUPPORTED_MEDIA_TYPE, "Send the request plain or gzipped.\n");
    };
    command.args(["upload-pack", "--stateless-rpc", "."]);
    match run(command, &sent) {
        Some(out) => HubReply::new(StatusCode::OK, "application/x-git-upload-pack-result", out)
            .with_header("cache-control", "no-cache"),
        None => HubReply::text(StatusCode::INTERNAL_SERVER_ERROR, "git upload-pack failed.\n"),
    }
}

/// Decompresses a request body with the system's `gzip`. Git compresses long requests.
fn gunzip(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut command = Command::new("gzip");
    command.arg("-dc").env_clear();
    command.env("PATH", std::env::var_os("PATH").unwrap_or_else(|| "/usr/bin:/bin".into()));
    run(command, bytes)
}

/// Runs a command with this standard input and returns its output; `None` if the command cannot run.
fn run(mut command: Command, input: &[u8]) -> Option<Vec<u8>> {
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().ok()?;
    let mut pipe = child.stdin.take()?;
    let output = std::thread::scope(|scope| {
        // A command that stops reading early reports why in its output.
        scope.spawn(move || drop(pipe.write_all(input)));
        child.wait_with_output()
    });
    // upload-pack fails after a complete response if the client hangs up early.
    output.ok().filter(|o| o.status.success() || !o.stdout.is_empty()).map(|o| o.stdout)
}
