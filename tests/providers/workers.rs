//! Tests of the worker slots for model programs. The model program is our own shell script, which can respond with the
//! information that `/proc` has about its process.

use std::{os::unix::fs::PermissionsExt, path::Path};

use countersign::{
    clock::SystemClock,
    config::ModelSettings,
    providers::{CallErrorKind, ModelProviders},
    types::WorkerPool,
};
use tokio_util::sync::CancellationToken;

use crate::{question, settings};

/// Installs a shell script in place of the Claude program. `work` is shell code that sets the response in `$said`.
fn program(directory: &Path, work: &str) -> ModelSettings {
    let path = directory.join("imitation");
    let script = format!(
        r#"#!/bin/sh
[ "$1" = --version ] && {{ echo '2.1.197 (Claude Code)'; exit; }}
cat >/dev/null
{work}
echo '{{"type":"assistant","message":{{"id":"m","model":"claude-opus-5-5","content":[]}}}}'
echo '{{"type":"result","is_error":false,"result":"'"$said"'","stop_reason":"end_turn"}}'
"#
    );
    std::fs::write(&path, script).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    let mut settings = settings(directory);
    settings.claude.path = Some(path);
    settings.claude.base_url = Some("http://127.0.0.1:9".parse().unwrap());
    settings
}

fn nice_of(stat: &str) -> i64 {
    stat.rsplit(')').next().unwrap().split_whitespace().nth(16).unwrap().parse().unwrap()
}

#[tokio::test]
async fn program_has_the_nice_value_of_its_pool_and_a_clean_environment() {
    let data = tempfile::tempdir().unwrap();
    let work = r#"said=$(cat /proc/self/stat; tr '\0' '\n' </proc/$$/environ | cut -d= -f1 | sort)
said=$(echo "$said" | tr '\n"' '  ')"#;
    let settings = program(data.path(), work);
    let mut call = question("claude");
    call.workers = WorkerPool::Low;
    let text = crate::ask(&settings, "claude:opus", call).await.unwrap().text;
    let own = nice_of(&std::fs::read_to_string("/proc/thread-self/stat").unwrap());
    assert_eq!(nice_of(&text), (own + 10).min(19));
    let names: Vec<_> = text.rsplit(')').next().unwrap().split_whitespace().skip(50).collect();
    let allowed =
        ["ANTHROPIC_", "API_TIMEOUT", "CLAUDE_", "COUNTERSIGN_CHILD", "DISABLE_", "HOME", "PATH", "TMPDIR"];
    assert!(names.contains(&"CLAUDE_CONFIG_DIR") && names.contains(&"HOME"), "{names:?}");
    for name in names {
        assert!(allowed.iter().any(|start| name.starts_with(start)), "{name}");
    }
    let children = data.path().join("children");
    assert_eq!(
        std::fs::read_dir(children).unwrap().count(),
        0,
        "the record of the process is deleted with it"
    );
}

#[tokio::test]
async fn only_two_of_twelve_calls_run_at_once_with_two_worker_slots() {
    let data = tempfile::tempdir().unwrap();
    let settings = program(data.path(), "began=$(date +%s%N); sleep 0.1; said=\"$began $(date +%s%N)\"");
    let providers = ModelProviders::new(&settings, std::sync::Arc::new(SystemClock)).unwrap();
    let (provider, id) = providers.resolve("claude:opus").unwrap();
    let jobs: Vec<_> = (0..12)
        .map(|_| {
            let mut call = question(&id.model);
            call.workers = WorkerPool::Low;
            let provider = std::sync::Arc::clone(&provider);
            tokio::spawn(async move { provider.call(&call, &CancellationToken::new()).await })
        })
        .collect();
    let mut spans = Vec::new();
    for job in jobs {
        let reply = job.await.unwrap().unwrap();
        let times: Vec<u64> = reply.text.split(' ').map(|time| time.parse().unwrap()).collect();
        spans.push((times[0], times[1]));
    }
    let at = |moment| spans.iter().filter(|(began, ended)| (*began..*ended).contains(&moment)).count();
    assert!(spans.iter().all(|(began, _)| at(*began) <= 2), "{spans:?}");
}

#[tokio::test]
async fn program_over_its_memory_limit_is_killed_and_reported() {
    let data = tempfile::tempdir().unwrap();
    let mut settings = program(data.path(), "head -c 200000000 /dev/zero | tail | sleep 60");
    settings.workers.medium.memory_mb = 64;
    let error = crate::ask(&settings, "claude:opus", question("claude")).await.unwrap_err();
    let CallErrorKind::ResourceExhausted { used, limit, pool } = error.kind else { panic!("{error:?}") };
    assert!(used > limit && (limit, pool) == (64 << 20, WorkerPool::Medium), "{error}");
    assert!(error.message.contains("ERR_RESOURCE_EXHAUSTED"), "{error}");
}
