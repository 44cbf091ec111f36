//! Stories about the audit chain of a run: its verification and its export as files.

use std::{
    os::unix::fs::{PermissionsExt, symlink},
    path::Path,
};

use countersign::{
    engine::RunViewStatus,
    store::{AuditRow, create_backup, walk_audit_chain},
    types::Hash,
};
use serde_json::Value;

use crate::{
    money::PRICES,
    operator::typed,
    script::{Script, design, finding, review},
    world::{Setting, World, world_of_files},
};

/// Creates a test environment with a finished run, whose document was sent back once and then approved.
async fn world_with_finished_run() -> World {
    let mut w = world_of_files().await;
    w.comes_to_the_gate().await;
    w.comment("sam", "/revise say what happens to an empty file").await;
    w.newest();
    let line = w.approve_line();
    w.comment("sam", &line).await;
    w.stands(RunViewStatus::Done).await;
    w
}

fn chain(w: &World) -> Vec<AuditRow> {
    let mut links = Vec::new();
    let walked = walk_audit_chain(&w.data().into(), w.repo, |_, link| links.push(link)).unwrap();
    assert!(walked.is_sound() && walked.links == links.len() && walked.uncovered == 0, "{walked:?}");
    links
}

fn links(w: &World) -> Vec<(String, String, Value)> {
    chain(w).into_iter().map(|link| (link.key, link.what, link.detail)).collect()
}

#[tokio::test]
#[ignore = "takes long"]
async fn audit_chain_covers_every_run_record_and_is_cited_in_the_approval_commit() {
    let w = world_with_finished_run().await;
    let links = links(&w);
    let keys: Vec<&str> = links.iter().map(|(key, ..)| key.as_str()).collect();
    for key in [
        "run",
        "text/issue",
        "call/draft/1",
        "call/draft/1 (2)",
        "text/draft",
        "verdict/verdict",
        "finding/finding-F1",
        "own_commit/propose-1",
        "pull_section/section",
        "approval/approval",
        "approved",
        "own_commit/publish-1",
        "end",
    ] {
        assert!(keys.contains(&key), "{key} is not among {keys:#?}");
    }
    let answers: Vec<_> = links.iter().filter(|(key, ..)| key.starts_with("answer/")).collect();
    let verbs: Vec<_> = answers.iter().map(|(.., detail)| (&detail["verb"], &detail["by/login"])).collect();
    assert_eq!(
        format!("{verbs:?}"),
        r#"[(String("revise"), String("sam")), (String("approve"), String("sam"))]"#
    );
    let settled = links.iter().find(|(key, ..)| key == "call/draft/1 (2)").unwrap();
    assert_eq!(
        (&settled.2["status"], &settled.2["role"]),
        (&"done".into(), &"drafter".into()),
        "{settled:?}"
    );
    let drafted = links.iter().filter(|(_, what, _)| what == "a model wrote the document").count();
    assert!(drafted >= 3, "{links:#?}");

    let head = w.hub.log(w.repo, &w.branch())[0].oid.to_string();
    let clone = w.hub.git_dir(w.repo);
    let against = ["audit", "verify", "maya/tally", "--against", &head, "--clone", clone.to_str().unwrap()];
    let (code, output) = typed(&w, &against).await;
    assert!(code == Some(0) && output.contains(" of this chain\nThe chain holds."), "{code:?} {output}");
    let named = w.pull().body;
    let position = links.iter().position(|(key, ..)| key == "approved").unwrap() + 1;
    assert!(output.contains(&format!("commit {head} names link {position} ")), "{output}");
    assert!(named.contains("Audit head"), "{named}");
    // Without a clone the commit is looked up in the server's mirror.
    let mirror = w.directory().join(format!("bot/data/repos/{}/mirror.git", w.repo));
    let fetch =
        std::process::Command::new("git").arg("-C").arg(mirror).arg("fetch").arg(&clone).arg(&head).output();
    assert!(fetch.unwrap().status.success());
    let (code, output) = typed(&w, &against[..5]).await;
    assert!(code == Some(0) && output.contains("The chain holds."), "{output}");
    let (code, output) = typed(&w, &["audit", "verify", "maya/tally", "--against", &"0".repeat(40)]).await;
    assert!(code == Some(1) && output.contains("name a clone that has the commit"), "{output}");
    let (code, output) = typed(&w, &["audit", "verify", "maya/other"]).await;
    assert!(code == Some(1) && output.contains("no repository maya/other is known here"), "{output}");
}

#[tokio::test]
async fn audit_chain_has_each_evidence_type_and_its_head_is_cited_in_the_pull_request() {
    // The checks remove the number from the heading.
    let draft = design().replacen("## Requirements\n", "## 3. Requirements\n", 1);
    let script = Script::default()
        .drafts(&draft)
        .reviews(&review("APPROVED", &[finding("One", None)], &[]))
        .edits("The goal of", "The aim of")
        .reviews(&review("REVISE", &[finding("One", Some("F1"))], &[]));
    let toml = format!("{PRICES}[lld]\nmax_rounds = 1\napprovals = 2\n");
    let script = Some(format!("billed = true\n{}", script.toml()));
    let mut w = World::new(Setting { as_files: true, script, toml, ..Setting::default() }).await;
    w.label("maya", "countersign:lld").await;
    let line = w.approve_line();
    for (who, command) in [("sam", line.as_str()), ("max", "/must-fix F1"), ("max", "/override it is known")]
    {
        w.stands(RunViewStatus::Asking).await;
        w.comment(who, command).await;
    }
    w.stands(RunViewStatus::Done).await;
    let chain = chain(&w);
    let has = |kind: &str, start: &str, wanted: &[(&str, &str)]| {
        let says = |link: &AuditRow, (field, word): &(&str, &str)| {
            !link.detail[*field].is_null() && link.detail[*field].to_string().contains(word)
        };
        let of_it =
            |link: &&AuditRow| link.key.starts_with(start) && wanted.iter().all(|want| says(link, want));
        assert!(chain.iter().any(|link| of_it(&link)), "{kind}: {chain:#?}");
    };
    has("prompt", "call/draft/1", &[("prompt", ""), ("role", "drafter")]);
    has("cost", "call/review/1", &[("status", "done"), ("cost_microusd", ""), ("output_tokens", "")]);
    has("draft", "text/draft", &[]);
    has("fix", "text/fix", &[]);
    has("edit", "call/revise", &[("status", "done")]);
    for verdict in ["APPROVED", "REVISE"] {
        has("verdict", "verdict/", &[("verdict", verdict), ("document", ""), ("prompt", "")]);
    }
    has("finding", "finding/finding-F1", &[("status", "open")]);
    has("remark", "remark/", &[("verb", "must-fix"), ("by/login", "max")]);
    for (verb, who) in [("approve", "sam"), ("override", "max")] {
        has("answer", "answer/", &[("verb", verb), ("by/login", who)]);
        has(verb, "approval/", &[("kind", verb), ("subject", ""), ("document", "")]);
    }
    let head = chain.iter().find(|link| link.key == "approved").unwrap();
    let body = w.pull().body;
    assert!(body.contains(&format!("| Audit head | `{}` |", head.hash)), "{body}");
    // Every later link records results of the approval.
    let after: Vec<_> = chain.iter().skip_while(|link| link.hash != head.hash).skip(1).collect();
    let is_result = |link: &&AuditRow| {
        ["own_commit/", "pull_section/", "artifact/", "end"].iter().any(|start| link.key.starts_with(start))
    };
    assert!(!after.is_empty() && after.iter().all(is_result), "{after:#?}");
    assert_eq!(after[0].previous, head.hash);
}

/// Damages a copy of the data with this SQL statement. Returns the output of `audit verify` on that copy.
async fn verify_after_damage(w: &World, name: &str, damage: &str) -> String {
    let copy = w.data().with_file_name(name);
    create_backup(&w.data().into(), &copy, &Default::default()).unwrap();
    let database = w.checkpoints(&copy);
    database.execute_batch("PRAGMA foreign_keys = OFF").unwrap();
    assert!(database.execute(damage, []).unwrap() > 0, "{damage}");
    drop(database);
    let (code, output) = typed(w, &["audit", "verify", "maya/tally", "--data", copy.to_str().unwrap()]).await;
    assert_eq!(code, Some(1), "{name}: {output}");
    output
}

#[tokio::test]
#[ignore = "takes long"]
async fn audit_verify_command_lists_each_tampered_row() {
    let w = world_with_finished_run().await;
    for (name, damage, words) in [
        (
            "call",
            "UPDATE call SET body = replace(body, '\"drafter\"', '\"Drafter\"') WHERE key = 'draft/1'",
            "call/draft/1 of run ",
        ),
        (
            "verdict",
            "UPDATE verdict SET body = replace(body, 'REVISE', 'APPROVED')",
            "verdict/verdict of run ",
        ),
        (
            "finding",
            "UPDATE finding SET body = replace(body, '\"F1\"', '\"F2\"') WHERE rowid = 1",
            "finding/finding-F1 of run ",
        ),
        ("answer", "UPDATE answer SET body = replace(body, 'empty', 'full')", "answer/"),
        ("subject", "UPDATE answer SET subject = '00' || substr(subject, 3) WHERE id = 1", "answer/"),
        ("approval", "UPDATE approval SET body = replace(body, 'sam', 'tom')", "approval/approval of run "),
        ("started", "UPDATE run SET request = replace(request, 'maya', 'sam')", "run of run "),
        ("ended", "UPDATE run SET outcome = replace(outcome, 'approved', 'refused')", "end of run "),
        ("removed", "DELETE FROM finding WHERE rowid = 1", "is gone, and link "),
        (
            "added",
            "INSERT INTO verdict SELECT run, visit, 'x', body, at FROM verdict LIMIT 1",
            "verdict/x of run ",
        ),
        (
            "detail",
            "UPDATE audit SET detail = replace(detail, 'done', 'lost') WHERE key = 'call/draft/1 (2)'",
            "link ",
        ),
        ("cut", "DELETE FROM audit WHERE seq = 3", "does not follow the one before it"),
        ("tail", "DELETE FROM audit WHERE seq > (SELECT MAX(seq) - 4 FROM audit)", " has no link"),
        (
            "swapped",
            "UPDATE audit SET seq = CASE seq WHEN 2 THEN 900 ELSE seq + 1000 END WHERE seq IN (2, 3)",
            "does not follow the one before it",
        ),
    ] {
        let output = verify_after_damage(&w, name, damage).await;
        let wrong: Vec<_> = output.lines().filter(|line| line.starts_with("WRONG: ")).collect();
        assert!(wrong.iter().any(|line| line.contains(words)), "{name}: {output}");
    }
}

fn file_names(folder: &Path) -> Vec<String> {
    let mut names: Vec<_> =
        std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[tokio::test]
#[ignore = "takes long"]
async fn export_writes_the_history_of_an_issue_to_a_folder() {
    let w = world_with_finished_run().await;
    let out = w.data().with_file_name("out");
    let folder = out.to_str().unwrap();
    let export = ["export", "maya/tally", "--issue", "1", "--out", folder];
    let (code, output) = typed(&w, &export).await;
    assert_eq!(code, Some(0), "{output}");
    insta::assert_snapshot!(file_names(&out).join("\n"), @r"
    001-issue.md
    002-draft.md
    003-verdict.json
    004-draft.md
    005-verdict.json
    006-commit.json
    007-answer.json
    008-issue.md
    009-draft.md
    010-verdict.json
    011-commit.json
    012-answer.json
    013-issue.md
    014-approval.json
    015-commit.json
    016-end.json
    audit.jsonl
    costs.json
    findings.json
    ");
    let read = |name: &str| std::fs::read_to_string(out.join(name)).unwrap();
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&out), mode(&out.join("001-issue.md"))), (0o700, 0o600));
    assert!(read("001-issue.md").starts_with("# Report time by week as well as by project\n\n"));
    let approved = file_names(&out).into_iter().find(|name| name.ends_with("approval.json")).unwrap();
    let approval: Value = serde_json::from_str(&read(&approved)).unwrap();
    let last = file_names(&out).into_iter().rfind(|name| name.contains("draft")).unwrap();
    assert_eq!(approval["document"], Hash::digest(read(&last).as_bytes()).to_string());
    let costs: Vec<Value> = serde_json::from_str(&read("costs.json")).unwrap();
    let findings: Vec<Value> = serde_json::from_str(&read("findings.json")).unwrap();
    assert!(costs.len() >= 4 && findings[0]["finding"]["id"] == "F1", "{costs:?} {findings:?}");

    // Somebody else put symbolic links at the export's paths.
    let theirs = w.data().with_file_name("theirs");
    std::fs::write(&theirs, "theirs").unwrap();
    std::fs::remove_file(out.join("costs.json")).unwrap();
    symlink(&theirs, out.join("costs.json")).unwrap();
    assert_eq!(typed(&w, &[&export[..], &["--force"]].concat()).await.0, Some(0));
    assert_eq!(std::fs::read_to_string(&theirs).unwrap(), "theirs");
    assert_eq!(mode(&out.join("costs.json")), 0o600);
    let link = w.data().with_file_name("link");
    symlink(&out, &link).unwrap();
    let through = ["export", "maya/tally", "--issue", "1", "--force", "--out", link.to_str().unwrap()];
    let (code, output) = typed(&w, &through).await;
    assert!(code == Some(1) && output.contains("is a symbolic link"), "{output}");

    let (code, output) = typed(&w, &export).await;
    assert!(code == Some(1) && output.contains("add --force"), "{output}");
    assert_eq!(typed(&w, &[&export[..], &["--force"]].concat()).await.0, Some(0));
    let (code, lines) = typed(&w, &["export", "maya/tally", "--issue", "1", "--jsonl"]).await;
    let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(code == Some(0) && lines.len() == links(&w).len() && lines[1]["text"].is_string(), "{lines:?}");
    assert_eq!(read("audit.jsonl").lines().count(), lines.len());
    let (code, output) = typed(&w, &["export", "maya/tally", "--issue", "9"]).await;
    assert!(code == Some(1) && output.contains("has no run of issue 9"), "{output}");
}

#[tokio::test]
#[ignore = "takes long"]
async fn audit_chain_records_a_stop_and_a_halt() {
    let mut w = world_of_files().await;
    w.comes_to_the_gate().await;
    w.comment("maya", "/stop").await;
    w.stands(RunViewStatus::Stopped).await;
    let all_links = links(&w);
    let has_key = |start: &str| all_links.iter().any(|(key, ..)| key.starts_with(start));
    assert!(has_key("stop/") && has_key("halt") && has_key("end"), "{all_links:#?}");
    drop(w);
    let script = Script::default().drafts("# A heading\n").fails("drafter", "rejected");
    let mut w =
        World::new(Setting { as_files: true, script: Some(script.toml()), ..Setting::default() }).await;
    w.label("maya", "countersign:lld").await;
    w.find("lld: halted");
    w.find("Halted at");
    w.stands(RunViewStatus::Failed).await;
    assert!(links(&w).iter().any(|(key, _, detail)| key == "end" && detail["status"] == "failed"));
}
