//! Stories about tool calls of drafters and reviewers, as seen in prompts, on the issue and in the ledger, and about
//! the choice of worker pools.

use countersign::engine::{CallStatus, RunViewStatus};
use serde_json::{Value, json};

use crate::{
    implement::{can_run, specified},
    money::PRICES,
    operator::typed,
    prompts::{Drafts, segment, sound, with_reviewer},
    script::{Script, approved, design, finding, review},
    world::{Setting, World},
};

fn tools(more: &str) -> Setting {
    Setting { toml: format!("[lld]\ntools = true\n{more}"), ..Setting::default() }
}

fn asks(calls: &[(&str, Value)]) -> String {
    let calls: Vec<_> = calls.iter().map(|(name, with)| json!({ "name": name, "arguments": with })).collect();
    json!({ "toolCalls": calls }).to_string()
}

fn reads(_: &str) -> String {
    asks(&[("read", json!({ "path": "src/lib.rs" }))])
}

fn drafts(_: &str) -> String {
    sound("src/lib.rs")
}

/// Returns the numbers of the drafter's successful and failed calls in the ledger.
async fn drafter_calls(w: &World) -> (usize, usize) {
    let calls = w.calls().await;
    let of = |status| calls.iter().filter(|row| row.role == "drafter" && row.status == status).count();
    assert_eq!(of(CallStatus::Done) + of(CallStatus::Failed), count_drafter_calls(&calls), "{calls:#?}");
    (of(CallStatus::Done), of(CallStatus::Failed))
}

fn count_drafter_calls(calls: &[countersign::engine::CallRow]) -> usize {
    calls.iter().filter(|row| row.role == "drafter").count()
}

#[tokio::test]
async fn drafter_with_tools_reads_a_file_before_drafting() {
    // An answer with tool calls is not taken as a document, whatever else it holds.
    fn plans(_: &str) -> String {
        format!("First I look.\n# Plan\n{}", reads(""))
    }
    let (mut w, models) = with_reviewer(vec![plans, drafts], |_| approved(), tools("")).await;
    w.comes_to_the_gate().await;
    let prompts = models.sent("drafter");
    assert_eq!((prompts.len(), drafter_calls(&w).await), (2, (2, 0)));
    assert!(prompts[0].contains("## What you may look at") && prompts[0].contains("\n- `read` {"));
    for other in ["`diff`", "`fetch`", "`write`", "`typecheck`"] {
        assert!(!prompts[0].contains(other), "{other} is not offered to an architect");
    }
    let sample = countersign::localhub::embedded_sample();
    let (_, file) = sample.files.iter().find(|(path, _)| *path == "src/lib.rs").unwrap();
    let found = segment(&prompts[1], "found");
    assert!(found.starts_with("call 1: read {\"path\":\"src/lib.rs\"}\n"), "{found}");
    assert!(found.contains(std::str::from_utf8(file).unwrap().trim_end()), "{found}");
    assert!(w.status().body.contains("- models made 1 tool call to read the repository\n"), "{}", w.thread());
    assert!(!models.sent("reviewer")[0].contains("What you may look at"));

    let (mut w, models) = with_reviewer(vec![reads, drafts], |_| approved(), Setting::default()).await;
    w.label("maya", "countersign:lld").await;
    w.stands(RunViewStatus::Asking).await;
    assert!(models.sent("drafter").iter().all(|prompt| !prompt.contains("What you may look at")));
    assert!(!w.thread().contains("to read the repository"));
    w.find("waits for a person");
}

#[tokio::test]
async fn refused_tool_calls_are_reported_and_not_executed() {
    fn tries(_: &str) -> String {
        let path = |path: &str| json!({ "path": path });
        asks(&[
            ("curl", json!({ "url": "http://127.0.0.1/" })),
            ("/bin/cat", path("src/lib.rs")),
            ("write", json!({ "path": "src/lib.rs", "text": "" })),
            ("diff", json!({ "path": "src/lib.rs", "other": "Cargo.toml" })),
            ("typecheck", json!({})),
            ("read", path("../../../../etc/passwd")),
            ("read", path(".env")),
            ("find", json!({ "name": "*", "exec": "id" })),
        ])
    }
    fn calls_200_tools(_: &str) -> String {
        asks(&vec![("count", json!({ "path": "src/lib.rs" })); 200])
    }
    let files = vec![(".env".to_owned(), b"KEY=of-the-repository\n".to_vec())];
    let setting = Setting { files, ..tools("") };
    let (mut w, models) = with_reviewer(vec![tries, calls_200_tools, drafts], |_| approved(), setting).await;
    w.comes_to_the_gate().await;
    let prompts = models.sent("drafter");
    assert_eq!(prompts.len(), 3);
    let found = segment(&prompts[1], "found");
    for expected in [
        "refused: \"curl\" is not for the architect; it has read, list, search, count",
        "refused: there is no tool called \"/bin/cat\" for the architect",
        "refused: \"write\" is not for the architect",
        "refused: \"diff\" is not for the architect",
        "refused: \"typecheck\" is the architect's, but it is not done here",
        "refused: the path \"../../../../etc/passwd\" leads out of the repository",
        "refused: no model is shown \".env\": looks like it holds a secret",
        "refused: unknown field `exec`",
    ] {
        assert!(found.contains(expected), "{expected}\n{found}");
    }
    assert!(!prompts.iter().any(|prompt| prompt.contains("of-the-repository") || prompt.contains("root:x")));
    let found = prompts[2].split("What your calls found, the 2. time").nth(1).unwrap();
    assert_eq!(found.matches(" words, ").count(), 8, "{found}");
    assert!(found.contains("calls 9 to 200: refused, for an answer may hold at most 8"), "{found}");
    let expected = "- models made 208 tool calls to read the repository, 200 of them refused\n";
    assert!(w.status().body.contains(expected), "{}", w.thread());
}

#[tokio::test]
async fn tool_turns_are_limited_and_a_malformed_call_is_retried_once() {
    fn always_reads(prompt: &str) -> String {
        if prompt.contains("Answer now, without tools") { drafts(prompt) } else { reads(prompt) }
    }
    let (mut w, models) = with_reviewer(vec![always_reads], |_| approved(), tools("tool_turns = 2\n")).await;
    w.comes_to_the_gate().await;
    assert_eq!(models.sent("drafter").len(), 3, "two tool turns and the draft");
    w.status();

    // A drafter that only ever calls tools gives no draft, and the run halts.
    let (mut w, models) =
        with_reviewer(vec![reads], |_| approved(), tools("tool_turns = 1\nmax_rounds = 2\n")).await;
    w.label("maya", "countersign:lld").await;
    w.stands(RunViewStatus::Failed).await;
    assert_eq!(models.sent("drafter").len(), 4, "a tool turn and a final request, twice");
    w.find(
        "No usable draft after 2 attempts. On the last attempt, the answer asked for tools although no tool call was left",
    );

    let out_of_form: Drafts = vec![|_| "{\"toolCalls\": [{\"tool\": \"shell\"}]}".to_owned(), reads, |_| {
        "I have seen enough and will draft now.".to_owned()
    }];
    let (mut w, models) = with_reviewer(out_of_form, |_| approved(), tools("max_rounds = 1\n")).await;
    w.label("maya", "countersign:lld").await;
    w.stands(RunViewStatus::Failed).await;
    let prompts = models.sent("drafter");
    assert_eq!(prompts.len(), 3, "only the first of two is mended");
    assert!(prompts[1].contains("could not be read: `toolCalls` is not a list of objects, each with a `name` and its `arguments`. Ask again"), "{}", prompts[1]);
    w.find("No usable draft after 1 attempt. On the last attempt, the answer was not a document");
}

#[tokio::test]
async fn drafter_can_use_tools_during_a_revision() {
    fn answers(prompt: &str) -> String {
        let edit = json!({ "search": "That nobody wrote", "replace": "The aim of" });
        match () {
            () if !prompt.starts_with("Revise") => drafts(prompt),
            () if prompt.contains("could not be applied") => {
                drafts(prompt).replace("The goal of", "The aim of")
            }
            () if prompt.contains("<<<found ") => {
                format!("```json\n{}\n```", json!({ "edits": [edit], "replies": [] }))
            }
            () => reads(prompt),
        }
    }
    let reviews = |prompt: &str| match segment(prompt, "document").contains("The aim of") {
        true => review("APPROVED", &[], &["F1"]),
        false => review("REVISE", &[finding("One", None)], &[]),
    };
    let (mut w, models) = with_reviewer(vec![answers], reviews, tools("")).await;
    w.label("maya", "countersign:lld").await;
    w.stands(RunViewStatus::Asking).await;
    let prompts = models.sent("drafter");
    assert_eq!((prompts.len(), drafter_calls(&w).await), (4, (4, 0)));
    // The retry after a failed edit shows earlier tool results but offers no tools.
    assert!(prompts[3].contains("<<<found ") && !prompts[3].contains("may look at"), "{}", prompts[3]);
    assert!(w.find("waits for a person").body.contains("APPROVED"));
}

#[tokio::test]
async fn role_command_runs_in_the_sandbox() {
    if !can_run().await {
        return;
    }
    fn checks(_: &str) -> String {
        asks(&[
            ("cargo check", json!({})),
            ("typecheck", json!({})),
            ("cargo clippy", json!({})),
            ("tsc", json!({})),
        ])
    }
    let setting = tools("tool_commands = true\n");
    let (mut w, models) = with_reviewer(vec![checks, drafts], |_| approved(), setting).await;
    w.label("maya", "countersign:lld").await;
    w.tried().await;
    w.stands(RunViewStatus::Asking).await;
    let prompts = models.sent("drafter");
    assert!(prompts.len() == 2 && prompts[0].contains("\n- `typecheck` {}: "), "{}", prompts[0]);
    let found = segment(&prompts[1], "found");
    assert!(
        found.starts_with("call 1: cargo check {}\nit ended well\n\ncall 2: typecheck {}\nit ended well\n"),
        "{found}"
    );
    assert!(found.contains("refused: \"cargo clippy\" is not for the architect"), "{found}");
    assert!(found.contains("refused: there is no tool called \"tsc\""), "{found}");
    w.find("waits for a person");
}

#[tokio::test]
async fn reviewer_with_tools_still_needs_a_well_formed_verdict() {
    let look =
        asks(&[("diff", json!({ "path": "src/lib.rs", "other": "src/lib.rs" })), ("write", json!({}))]);
    let setting =
        || Setting { toml: "[lld]\nreview_tools = true\ntool_turns = 2\n".to_owned(), ..Setting::default() };
    // No schema is sent while tools are offered, so models may wrap their answers in fences.
    let fenced = format!("```json\n{}\n```", approved());
    let script = Script::default().drafts(&design()).reviews_as_text(&look).reviews_as_text(&fenced);
    let mut w = World::new(Setting { script: Some(script.toml()), ..setting() }).await;
    w.comes_to_the_gate().await;
    let expected = "- models made 2 tool calls to read the repository, 1 of them refused\n";
    assert!(w.status().body.contains(expected), "{}", w.thread());
    let calls = w.calls().await;
    let of = |role: &str| calls.iter().filter(|row| row.role == role).count();
    assert_eq!((of("drafter"), of("reviewer")), (1, 2));

    let script = Script::default().drafts(&design()).reviews_as_text(&look);
    let mut w = World::new(Setting { script: Some(script.toml()), ..setting() }).await;
    w.label("maya", "countersign:lld").await;
    w.stands(RunViewStatus::Asking).await;
    assert!(w.find("waits for a person").body.contains("INCONCLUSIVE"), "{}", w.thread());

    // The retry after a malformed verdict still shows the tool results.
    let answers = |prompt: &str| match () {
        () if prompt.contains("was not in this form") => approved(),
        () if prompt.contains("<<<found ") => json!({ "verdict": "APPROVED" }),
        () => json!({ "toolCalls": [{ "name": "list" }] }),
    };
    let (mut w, models) = with_reviewer(vec![drafts], answers, setting()).await;
    w.comes_to_the_gate().await;
    let prompts = models.sent("reviewer");
    let last = prompts.last().unwrap();
    assert!(last.contains("<<<found ") && !last.contains("may look at"), "{last}");
    w.status();
}

#[tokio::test]
async fn restart_between_tool_turns_continues_at_the_next_turn() {
    let script = Script::default()
        .drafts(&reads(""))
        .fails("drafter", "capacity")
        .drafts(&asks(&[("list", json!({}))]))
        .drafts(&design())
        .reviews(&approved());
    let mut w = World::new(Setting { script: Some(script.toml()), ..tools("") }).await;
    w.label("maya", "countersign:lld").await;
    let run = w.run().await.unwrap();
    assert_eq!((run.status, run.step_id.as_str()), (RunViewStatus::Waiting, "N1"), "{}", w.thread());
    assert_eq!(drafter_calls(&w).await, (1, 1));
    let mut w = w.restart().await;
    w.wait(60).await;
    w.stands(RunViewStatus::Asking).await;
    assert_eq!(drafter_calls(&w).await, (3, 1), "earlier turns are not paid again");
    assert!(
        w.status().body.contains("- models made 2 tool calls to read the repository\n"),
        "{}",
        w.thread()
    );
    w.find("waits for a person");
}

#[tokio::test]
async fn paid_call_is_not_repeated_after_a_budget_pause_between_tool_turns() {
    let script = Script::default().drafts(&reads("")).drafts(&design()).reviews(&approved());
    let script = Some(format!("billed = true\n{}", script.toml()));
    let toml = format!("{PRICES}[budget]\nrun = \"$1\"\n[lld]\ntools = true\n");
    let mut w = World::new(Setting { script, toml, ..Setting::default() }).await;
    w.label("maya", "countersign:lld").await;
    w.find("### ✋ Paused before Draft the design");
    assert_eq!(drafter_calls(&w).await, (1, 0));
    let mut w = w.restart().await;
    w.comment("max", "/budget +1").await;
    w.stands(RunViewStatus::Asking).await;
    assert_eq!(drafter_calls(&w).await, (2, 0), "{}", w.thread());
    assert!(w.status().body.contains("models made 1 tool call to"), "{}", w.thread());
    w.find("waits for a person");
    w.find("Paused");
}

#[tokio::test]
async fn doctor_reports_the_state_of_each_role() {
    let w = World::new(tools("review_tools = true\ntool_commands = true\n")).await;
    let (_, output) = typed(&w, &["doctor"]).await;
    for line in [
        "ok    role           architect: ready, stub:drafter drafts designs\n",
        "ok    role           reviewer: ready, stub:reviewer reviews\n",
        "ok    role           implementer: ready, stub:drafter drafts code\n",
        "note  role           hunter: unavailable, no workflow uses it yet\n",
        "note  role           narrator: unavailable, claude:haiku cannot be asked\n",
    ] {
        assert!(output.contains(line), "{line}\n{output}");
    }
    assert_eq!(output.matches(" role           ").count(), 10, "{output}");
}

#[tokio::test]
async fn status_comment_names_the_worker_pool_and_the_rule_that_assigned_it() {
    let toml = "[workers.paths]\n\"src/\" = \"high\"\n\"docs/\" = \"low\"\n".to_owned();
    let mut w = World::new(Setting { toml, ..Setting::default() }).await;
    w.label("maya", "priority:background").await;
    w.label("maya", "countersign:lld").await;
    w.stands(RunViewStatus::Asking).await;
    w.find("waits for a person");
    assert!(w.status().body.contains("- worker pool `high`, assigned by `src/`\n"), "{}", w.thread());

    let mut w = World::new(Setting::default()).await;
    w.label("maya", "Priority:Low").await;
    w.label("maya", "countersign:lld").await;
    w.stands(RunViewStatus::Asking).await;
    w.find("waits for a person");
    assert!(w.status().body.contains("- worker pool `low`, assigned by `priority:low`\n"), "{}", w.thread());
}

#[tokio::test]
#[ignore = "takes long"]
async fn implementer_and_code_reviewer_can_use_tools() {
    if !can_run().await {
        return;
    }
    let toml = "[implement]\ntools = true\nreview_tools = true\n";
    let mut w = specified(toml, |script, [tests, code]| {
        let looks = |role: &str, tool: &str, path: &str| {
            json!({ "role": role, "workflow": "implement", "text": asks(&[(tool, json!({ "path": path }))]) })
        };
        let script = script.with(looks("drafter", "read", "src/lib.rs")).drafts(&tests).of("implement");
        let script = script.with(looks("reviewer", "diff", "tests/new.rs")).reviews(&approved()).of("implement");
        let script = script.with(looks("drafter", "lint", "src/lib.rs")).drafts(&code).of("implement");
        script.with(looks("reviewer", "diff", "src/lib.rs")).reviews(&approved()).of("implement")
    })
    .await;
    w.implement().await;
    w.stands(RunViewStatus::Asking).await;
    let expected = "- models made 4 tool calls to read the repository, 1 of them refused\n";
    assert!(w.status().body.contains(expected), "{}", w.thread());
    w.gate();
    w.commits();
}

#[tokio::test]
#[ignore = "takes long"]
async fn implementer_write_tool_changes_only_a_copy_and_only_allowed_files() {
    if !can_run().await {
        return;
    }
    let toml = "[implement]\ntools = true\ntool_commands = true\n";
    let mut w = specified(toml, |script, [tests, code]| {
        let (head, block) = code.split_once("```rust\n").unwrap();
        let block = block.split("```").next().unwrap();
        let write = |path: &str, text: &str| ("write", json!({ "path": path, "text": text }));
        let first = asks(&[
            ("cargo check", json!({})),
            write("src/lib.rs", &block.replace("left.saturating_add(right)", "nowhere")),
            write("tests/new.rs", "// Nothing to show.\n"),
            write("build.rs", "fn main() {}\n"),
            ("/bin/cp", json!({ "from": "src/lib.rs", "path": "src/lib.rs" })),
        ]);
        let mend = block.replace("left.wrapping_add(right)", "nowhere");
        let second = asks(&[
            write("src/lib.rs", &mend),
            ("typecheck", json!({})),
            ("read", json!({ "path": "src/lib.rs" })),
            ("read", json!({ "path": "tests/new.rs" })),
        ]);
        let of = |text: &str| json!({ "role": "drafter", "workflow": "implement", "text": text });
        let script = script.drafts(&tests).of("implement").reviews(&approved()).of("implement");
        let script = script.with(of(&first)).fails("drafter", "capacity").of("implement").with(of(&second));
        // The answer has no code block, because the tool wrote the file.
        script.with(of(head)).reviews(&approved()).of("implement")
    })
    .await;
    w.implement().await;
    // The server restarts between two answers of the implementer.
    w = w.restart().await;
    w.wait(60).await;
    w.tried().await;
    w.stands(RunViewStatus::Asking).await;
    let expected = "- models made 9 tool calls to read the repository, 3 of them refused\n";
    assert!(w.status().body.contains(expected), "{}", w.thread());
    let out = w.data().with_file_name("out");
    typed(&w, &["export", "maya/tally", "--issue", "1", "--out", out.to_str().unwrap()]).await;
    let all = texts_below(&out);
    for expected in [
        "refused: `tests/new.rs` is a file of the tests, which are locked; leave it out",
        "refused: `build.rs` is not in the approved spec; leave it out",
        "refused: there is no tool called \"/bin/cp\" for the implementer",
        "cannot find value `nowhere` in this scope",
        "call 2: typecheck {}\nit ended well\n",
        "    left.saturating_add(right)\n",
        "fn what_does_not_fit_is_the_largest()",
    ] {
        assert!(all.contains(expected), "{expected}\n{all}");
    }
    assert!(w.gate().contains("\n+    left.saturating_add(right)\n"), "{}", w.thread());
    w.nothing_is_pushed();
}

/// Returns the concatenated contents of all files below a folder.
fn texts_below(folder: &std::path::Path) -> String {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let text = |path: std::path::PathBuf| match path.is_dir() {
        true => texts_below(&path),
        false => String::from_utf8_lossy(&std::fs::read(&path).unwrap()).into_owned(),
    };
    entries.map(text).collect()
}

#[tokio::test]
async fn model_thoughts_are_exported_but_appear_in_no_prompt_or_comment() {
    const THOUGHT: &str = "Nobody but people is to read this.";
    fn thinks(prompt: &str) -> String {
        format!("<think>\n{THOUGHT}\n</think>\n\n{}", drafts(prompt))
    }
    let revises: fn(&str) -> String = |_| json!({ "edits": [], "replies": [] }).to_string();
    let (mut w, models) = with_reviewer(vec![thinks, revises], |_| approved(), Setting::default()).await;
    w.comes_to_the_gate().await;
    w.comment("sam", "/revise Say it in fewer words.").await;
    assert!(models.sent("drafter").len() > 1, "{}", w.thread());
    for prompt in models.sent("drafter").iter().chain(&models.sent("reviewer")) {
        assert!(!prompt.contains(THOUGHT), "{prompt}");
    }
    assert!(!w.thread().contains(THOUGHT));
    let out = w.data().with_file_name("out");
    let (code, output) =
        typed(&w, &["export", "maya/tally", "--issue", "1", "--out", out.to_str().unwrap()]).await;
    assert_eq!(code, Some(0), "{output}");
    let files = std::fs::read_dir(&out).unwrap().map(|file| file.unwrap().path());
    let thoughts: Vec<_> = files.filter(|path| path.to_string_lossy().ends_with("thoughts.txt")).collect();
    assert_eq!(thoughts.len(), 1, "{output}");
    assert_eq!(std::fs::read_to_string(&thoughts[0]).unwrap().trim(), THOUGHT);
    for comment in w.bots() {
        w.look_at(comment.id);
    }
    w.checks();
    w.labels();
    w.commits();
}
