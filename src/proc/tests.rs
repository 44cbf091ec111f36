//! Tests with real processes, observed through `/proc`.

use super::*;

fn shell(script: &str) -> ChildCommand {
    ChildCommand::new("sh").args(["-c", script])
}

/// Whether the process exists and is not a zombie.
fn alive(pid: &str) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| !stat.rsplit(')').next().unwrap_or("").trim_start().starts_with('Z'))
}

async fn gone(pid: &str) -> bool {
    for _ in 0..30_000 {
        if !alive(pid) {
            return true;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    false
}

#[tokio::test]
async fn child_gets_only_the_environment_set_by_the_caller() {
    let output = ChildCommand::new("env").env("GIVEN", "1").run(&CancellationToken::new()).await.unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let mut names: Vec<_> = text.lines().filter_map(|l| l.split('=').next()).collect();
    names.sort_unstable();
    assert_eq!(names, ["COUNTERSIGN_CHILD", "GIVEN", "PATH"]);
    assert!(std::env::vars().count() > 2, "our own environment has more to leak");
}

#[tokio::test]
async fn large_input_and_output_do_not_block_each_other() {
    let input = vec![b'x'; 8 * 1024 * 1024];
    let output = ChildCommand::new("cat").stdin(input.clone()).run(&CancellationToken::new()).await.unwrap();
    assert!(output.success());
    assert_eq!(output.stdout, input);
}

#[tokio::test]
async fn child_that_ignores_stdin_keeps_its_exit_status() {
    let output = shell("echo why >&2; exit 3")
        .stdin(vec![b'x'; 1024 * 1024])
        .run(&CancellationToken::new())
        .await
        .unwrap();
    assert_eq!(output.status, Some(3));
    assert_eq!(output.stderr_text(), "why");
}

#[tokio::test]
async fn timeout_kills_grandchildren() {
    let mut pids = Vec::new();
    let error = shell("sleep 300 & echo $!; wait")
        .timeout(Duration::from_secs(3))
        .run_lines(&CancellationToken::new(), |line| pids.push(String::from_utf8(line.to_vec()).unwrap()))
        .await
        .unwrap_err();
    assert!(matches!(error, ProcError::TimedOut { elapsed } if elapsed >= Duration::from_secs(3)));
    assert!(gone(&pids[0]).await);
}

#[tokio::test]
async fn child_that_ignores_sigterm_is_killed() {
    let mut pids = Vec::new();
    let error = shell("trap '' TERM; (trap '' TERM; sleep 300) & echo $!; wait; wait")
        .timeout(Duration::from_secs(3))
        .run_lines(&CancellationToken::new(), |line| pids.push(String::from_utf8(line.to_vec()).unwrap()))
        .await
        .unwrap_err();
    assert!(matches!(error, ProcError::TimedOut { .. }));
    assert!(gone(&pids[0]).await);
}

#[tokio::test]
async fn cancelling_or_dropping_a_child_kills_its_process_group() {
    let cancel = CancellationToken::new();
    let (send, mut receive) = tokio::sync::mpsc::unbounded_channel();
    let lines = move |line: &[u8]| drop(send.send(String::from_utf8(line.to_vec()).unwrap()));
    let waiting = tokio::spawn({
        let (cancel, lines) = (cancel.clone(), lines.clone());
        async move { shell("sleep 300 & echo $!; wait").run_lines(&cancel, lines).await }
    });
    let pid = receive.recv().await.unwrap();
    cancel.cancel();
    assert!(matches!(waiting.await.unwrap(), Err(ProcError::Cancelled)));
    assert!(gone(&pid).await);

    let dropped = tokio::spawn(async move {
        shell("sleep 300 & echo $!; wait").run_lines(&CancellationToken::new(), lines).await
    });
    let pid = receive.recv().await.unwrap();
    dropped.abort();
    assert!(gone(&pid).await);
}

#[tokio::test]
async fn background_process_left_by_a_child_is_killed_and_does_not_block_the_caller() {
    let output = shell("sleep infinity & echo $!").run(&CancellationToken::new()).await.unwrap();
    assert!(gone(String::from_utf8(output.stdout).unwrap().trim()).await);
}

#[test]
fn proxy_port_is_parsed_with_or_without_scheme() {
    for (proxy, port) in [
        ("http://proxy:3128", Some(3128)),
        ("proxy:8080", Some(8080)),
        ("https://proxy", Some(443)),
        ("", None),
    ] {
        assert_eq!(proxy_address_port(proxy), port, "{proxy}");
    }
}

#[tokio::test]
async fn output_over_the_limit_and_missing_program_are_errors() {
    let error =
        ChildCommand::new("yes").output_limit(100_000).run(&CancellationToken::new()).await.unwrap_err();
    assert!(matches!(error, ProcError::OutputTooLong { limit: 100_000 }));
    let error = ChildCommand::new("no-such-program-here").run(&CancellationToken::new()).await.unwrap_err();
    assert!(matches!(&error, ProcError::NotFound { program } if program == "no-such-program-here"));
    let error = ChildCommand::new("true")
        .current_dir("/no/such/place")
        .run(&CancellationToken::new())
        .await
        .unwrap_err();
    assert!(matches!(error, ProcError::Io { .. }));
}

#[tokio::test]
async fn only_the_end_of_long_stderr_is_kept() {
    let flood =
        shell("head -c 200000000 /dev/zero >&2; printf '\\377 the end' >&2; printf 'a\\000b\\377\\n'");
    let output = flood.memory_limit(64 * MEGABYTE).run(&CancellationToken::new()).await.unwrap();
    assert!(
        output.stderr_text().ends_with("\u{fffd} the end")
            && output.stderr.len() == limits::CHILD_ERROR_BYTES
    );
    assert_eq!(output.stdout, b"a\0b\xff\n");
}

#[tokio::test]
async fn child_that_closes_its_pipes_is_killed_by_the_timeout() {
    let mut pids = Vec::new();
    let error = shell("echo $$; exec >&- 2>&- <&-; exec sleep 300")
        .timeout(Duration::from_secs(3))
        .run_lines(&CancellationToken::new(), |line| pids.push(String::from_utf8(line.to_vec()).unwrap()))
        .await
        .unwrap_err();
    assert!(matches!(error, ProcError::TimedOut { .. }), "{error}");
    assert!(!alive(&pids[0]));
}

/// Parses one field of a `/proc/<pid>/stat` line. Field 0 is the field after the process name.
fn field(stat: &str, at: usize) -> i64 {
    stat.rsplit(')').next().unwrap().split_whitespace().nth(at).unwrap().parse().unwrap()
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn confined_child_can_access_only_the_allowed_paths() {
    let given = tempfile::tempdir().unwrap();
    let [read, write, outside] = ["read", "write", "outside"].map(|name| {
        let place = given.path().join(name);
        std::fs::create_dir(&place).unwrap();
        std::fs::write(place.join("file"), name).unwrap();
        place
    });
    let script = format!(
        "cd {}
        cat read/file; cat write/file; cat outside/file; ls outside; cat /proc/{}/environ | head -c 1
        echo changed >read/file; echo changed >outside/file; echo new >outside/new; rm outside/file; mv outside/file write/
        echo changed >write/file && mkdir write/new && rm -r write/new && echo written
        test -s /etc/passwd && grep -q root /etc/passwd && echo names >/dev/null && echo system",
        given.path().display(),
        std::process::id(),
    );
    let confinement = Confinement {
        read: vec![read.clone(), "/no/such/place".into()],
        write: vec![write.clone()],
        ..Confinement::default()
    };
    let output = shell(&script).confined(confinement).run(&CancellationToken::new()).await.unwrap();
    let stdout = String::from_utf8(output.stdout).unwrap();
    assert_eq!(stdout, "readwritewritten\nsystem\n", "{}", String::from_utf8_lossy(&output.stderr));
    // Neither our thread nor its other children are confined.
    for (place, text) in [(&read, "read"), (&outside, "outside"), (&write, "changed\n")] {
        assert_eq!(std::fs::read_to_string(place.join("file")).unwrap(), text);
    }
    assert!(!outside.join("new").exists());
    let output =
        shell(&format!("cat {}/file", outside.display())).run(&CancellationToken::new()).await.unwrap();
    assert_eq!(output.stdout, b"outside");
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn child_that_cannot_be_confined_is_not_started() {
    assert_eq!(check_confinement(), Ok(()));
    let place = tempfile::tempdir().unwrap();
    let confinement = Confinement { write: vec![place.path().join("missing")], ..Confinement::default() };
    let trace = place.path().join("trace");
    let touch = ChildCommand::new("touch").arg(&trace).confined(confinement);
    let error = touch.run(&CancellationToken::new()).await.unwrap_err();
    assert!(matches!(&error, ProcError::NotConfined { why } if why.contains("missing")), "{error}");
    assert!(!trace.exists());
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn nice_lowers_only_the_childs_priority() {
    let own = || field(&std::fs::read_to_string("/proc/thread-self/stat").unwrap(), 16);
    let before = own();
    let cat = ChildCommand::new("cat").arg("/proc/self/stat").nice(7);
    let output = cat.run(&CancellationToken::new()).await.unwrap();
    let theirs = field(&String::from_utf8(output.stdout).unwrap(), 16);
    assert_eq!(theirs, (before + 7).min(19));
    assert_eq!(own(), before);
}

#[tokio::test]
async fn child_over_memory_limit_is_killed_with_descendants() {
    let mut pids = Vec::new();
    // `tail` buffers input without line ends, without a limit.
    let error = shell("sleep 300 & echo $!; head -c 150000000 /dev/zero | tail | sleep 300")
        .memory_limit(64 * MEGABYTE)
        .run_lines(&CancellationToken::new(), |line| pids.push(String::from_utf8(line.to_vec()).unwrap()))
        .await
        .unwrap_err();
    assert!(matches!(error, ProcError::ResourceExhausted { limit, used } if used > limit), "{error}");
    assert!(error.to_string().starts_with("ERR_RESOURCE_EXHAUSTED"), "{error}");
    assert!(!alive(&pids[0]));
}

#[tokio::test]
async fn grandchildren_in_other_sessions_are_killed() {
    let mut pids = Vec::new();
    // The first is a grandchild of ours; the second has lost its parent.
    let error =
        shell("trap '' TERM; setsid sleep 300 & echo $!; (setsid sleep 300 & echo $!); sleep 300; sleep 300")
            .timeout(Duration::from_secs(3))
            .run_lines(&CancellationToken::new(), |line| pids.push(String::from_utf8(line.to_vec()).unwrap()))
            .await
            .unwrap_err();
    assert!(matches!(error, ProcError::TimedOut { .. }));
    assert_eq!(pids.len(), 2);
    assert!(pids.iter().all(|pid| !alive(pid)));
}

#[tokio::test]
async fn child_with_a_memory_limit_leaves_no_descendants_behind() {
    let script = "(setsid sleep infinity & echo $!)";
    let output = shell(script).memory_limit(512 * MEGABYTE).run(&CancellationToken::new()).await.unwrap();
    assert!(output.success());
    assert!(!alive(String::from_utf8(output.stdout).unwrap().trim()));
}

/// Starts `sleep`, optionally with a folder for process records and a scratch directory. Then abandons the process, as
/// a crash of the bot would. Returns the pid.
async fn abandoned(directories: Option<(&Path, &Path)>) -> String {
    let (send, mut receive) = tokio::sync::mpsc::unbounded_channel();
    let mut command = shell("echo $$; exec sleep 300");
    if let Some((records, scratch)) = directories {
        command = command.recorded_in(records).scratch(scratch);
    }
    let cancel = CancellationToken::new();
    let mut running = Box::pin(
        command.run_lines(&cancel, |line| drop(send.send(String::from_utf8(line.to_vec()).unwrap()))),
    );
    let pid = tokio::select! {
        ended = &mut running => panic!("{ended:?}"),
        pid = receive.recv() => pid.unwrap(),
    };
    std::mem::forget(running);
    pid
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn server_start_kills_child_processes_left_by_a_crashed_server() {
    let data = tempfile::tempdir().unwrap();
    let children = data.path().join("children");
    assert_eq!(end_orphans(&children).await.unwrap(), 0, "nothing was ever recorded");
    let scratch = data.path().join("scratch");
    std::fs::create_dir(&scratch).unwrap();
    std::fs::write(scratch.join("prompt"), "private").unwrap();
    std::os::unix::fs::symlink(data.path(), scratch.join("link")).unwrap();
    let pids = [abandoned(Some((&children, &scratch))).await, abandoned(Some((&children, &scratch))).await];
    let records: Vec<_> = std::fs::read_dir(&children).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(records.len(), 2);
    for pid in &pids {
        let names_pid = |record: &PathBuf| {
            std::fs::read_to_string(record).unwrap().contains(&format!("\"pid\":{pid},\"started\":"))
        };
        assert!(records.iter().any(names_pid));
    }
    // Simulates a crash before the PID was recorded.
    let text = std::fs::read_to_string(&records[1]).unwrap();
    let mut written: serde_json::Value = serde_json::from_str(&text).unwrap();
    (written["pid"], written["started"]) = Default::default();
    std::fs::write(&records[1], written.to_string()).unwrap();
    std::fs::create_dir(children.join("not-ours")).unwrap();

    assert_eq!(end_orphans(&children).await.unwrap(), 2);
    assert!(pids.iter().all(|pid| !alive(pid)));
    assert!(!scratch.exists() && data.path().exists());
    std::fs::remove_dir(children.join("not-ours")).unwrap();
    assert_eq!(std::fs::read_dir(&children).unwrap().count(), 0);

    ChildCommand::new("true").recorded_in(&children).run(&CancellationToken::new()).await.unwrap();
    assert_eq!(std::fs::read_dir(&children).unwrap().count(), 0, "one that ended is forgotten");
    ChildCommand::new("no-such-program")
        .recorded_in(&children)
        .run(&CancellationToken::new())
        .await
        .unwrap_err();
    assert_eq!(std::fs::read_dir(&children).unwrap().count(), 0, "and so is one that never began");
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn process_with_a_reused_pid_is_not_killed() {
    let data = tempfile::tempdir().unwrap();
    let pid = abandoned(None).await;
    let started = field(&std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap(), 19);
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let record = |started: i64, boot: &str| {
        format!(r#"{{"pid":{pid},"started":{started},"boot":"{boot}","mark":"other","program":"sleep"}}"#)
    };
    let strangers = [record(started - 1, boot.trim()), record(started, "another"), "{\"pid\":".to_owned()];
    for (number, text) in strangers.iter().enumerate() {
        std::fs::write(data.path().join(format!("{number}.json")), text).unwrap();
    }
    assert_eq!(end_orphans(data.path()).await.unwrap(), 0);
    assert!(alive(&pid));
    assert_eq!(std::fs::read_dir(data.path()).unwrap().count(), 0);

    std::fs::write(data.path().join("own.json"), record(started, boot.trim())).unwrap();
    assert_eq!(end_orphans(data.path()).await.unwrap(), 1);
    assert!(!alive(&pid));
}
