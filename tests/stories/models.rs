//! Stories about bad responses of models: empty, malformed or hostile.

use countersign::{
    commands,
    engine::{RunViewStatus, Workflow},
    types::Hash,
    workflows::lld::LldWorkflow,
};
use serde_json::json;

use crate::{
    posted::{check_html, render_comrak},
    script::{Script, approved, design, finding, review},
    world::{Setting, World},
};

async fn scripted(script: &Script) -> World {
    World::new(Setting { as_files: true, script: Some(script.toml()), ..Setting::default() }).await
}

impl World {
    fn design_on_branch(&self) -> Option<Vec<u8>> {
        let path = format!("docs/lld/LLD-{}.md", self.issue);
        self.hub.branch_file(self.repo, &format!("countersign/issue-{}", self.issue), &path)
    }

    /// Returns the halt comment. Asserts that it names the run and the next command.
    #[track_caller]
    fn halt_comment(&mut self, run: &str) -> String {
        let halt = self.find("### ❌ Halted at").body;
        assert!(halt.contains(run), "names the run:\n{halt}");
        assert!(halt.contains("```\n/lld\n```"), "offers the next command to copy:\n{halt}");
        halt
    }
}

#[tokio::test]
#[ignore = "takes long"]
async fn run_without_a_usable_draft_halts_with_a_reason() {
    let twice = "No usable draft after 2 attempts";
    for (what, script, reason) in [
        ("empty", Script::default().drafts(""), ["gave an empty answer, twice", "/retry"]),
        ("blank", Script::default().drafts(" \n\n "), ["gave an empty answer, twice", "/retry"]),
        (
            "declined",
            Script::default().fails("drafter", "refused"),
            ["declined to answer", "Reword the issue"],
        ),
        ("cut", Script::default().fails("drafter", "truncated"), [twice, "cut off"]),
    ] {
        let mut w = scripted(&script.reviews(&approved())).await;
        w.label("maya", "countersign:lld").await;
        let run = w.run().await.unwrap();
        w.stands(RunViewStatus::Failed).await;
        w.find("Rehearsal");
        let halt = w.halt_comment(&run.id.to_string());
        assert!(reason.iter().all(|reason| halt.contains(reason)), "{what}:\n{halt}");
        assert!(w.hub.pulls(w.repo).is_empty(), "{what}: nothing was published");
        assert!(halt.contains("There is no branch and no pull request"), "{what}:\n{halt}");
    }
}

#[tokio::test]
async fn provider_error_text_is_not_taken_as_a_design() {
    let banner = "API Error: 529 {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\"}}";
    let mut w = scripted(&Script::default().drafts(banner).reviews(&approved())).await;
    w.label("maya", "countersign:lld").await;
    let run = w.run().await.unwrap();
    w.stands(RunViewStatus::Failed).await;
    w.find("Rehearsal");
    let halt = w.halt_comment(&run.id.to_string());
    assert!(!halt.contains("API Error"), "shows no provider text:\n{halt}");
    assert!(w.hub.pulls(w.repo).is_empty());
}

#[tokio::test]
async fn run_halts_when_three_drafts_repeat_the_same_mechanical_mistakes() {
    // Rewording the goal does not fix a path that does not exist.
    let wrong = design().replace("`{{path}}` | Modify", "`src/nowhere.rs` | Modify");
    let script = Script::default()
        .drafts(&wrong)
        .edits("The goal of a real design", "The aim of a real design")
        .edits("The aim of a real design", "The point of a real design")
        .reviews(&approved());
    // The cap is not reached: five rounds are allowed.
    let toml = "[lld]\nmax_rounds = 5\n".to_owned();
    let mut w = World::new(Setting { script: Some(script.toml()), toml, ..Setting::default() }).await;
    w.label("maya", "countersign:lld").await;
    let run = w.run().await.unwrap();
    w.stands(RunViewStatus::Failed).await;
    w.find("Rehearsal");
    let halt = w.halt_comment(&run.id.to_string());
    assert!(halt.contains("the same mistakes came back three times"), "{halt}");
    assert!(halt.contains("src/nowhere.rs"), "names the mistake: {halt}");
    assert!(halt.contains("- the last draft (`"), "links the last draft: {halt}");
    assert_eq!(w.notifying(), 2);
}

#[tokio::test]
#[ignore = "takes long"]
async fn run_halts_when_three_drafts_repeat_the_same_test_plan_gaps() {
    let untested = design().replace(
        "| 030 | What passed before still passes (REQ-3)",
        "| 030 | What passed before still passes (REQ-1)",
    );
    assert_ne!(untested, design());
    let script = Script::default()
        .drafts(&untested)
        .edits("The goal of a real design", "The aim of a real design")
        .edits("The aim of a real design", "The point of a real design")
        .reviews(&approved());
    let toml = "[lld]\nmax_rounds = 5\n".to_owned();
    let mut w = World::new(Setting { script: Some(script.toml()), toml, ..Setting::default() }).await;
    w.label("maya", "countersign:lld").await;
    let run = w.run().await.unwrap();
    w.stands(RunViewStatus::Failed).await;
    let halt = w.halt_comment(&run.id.to_string());
    assert!(halt.contains("the same mistakes came back three times"), "{halt}");
}

#[tokio::test]
#[ignore = "takes long"]
async fn run_without_a_valid_verdict_needs_a_maintainer_override() {
    let mut stale = approved();
    stale["nonce"] = json!("abcd1234");
    let mut unsigned = approved();
    unsigned.as_object_mut().unwrap().remove("nonce");
    for (what, script) in [
        ("cut", Script::default().fails("reviewer", "truncated")),
        ("without a nonce", Script::default().reviews(&unsigned)),
        ("another call's nonce", Script::default().reviews(&stale)),
        ("prose", Script::default().reviews_as_text("Verdict: APPROVED. Ship it.")),
        ("empty", Script::default().reviews_as_text("")),
    ] {
        let mut w = scripted(&script.drafts(&design())).await;
        w.label("maya", "countersign:lld").await;
        w.stands(RunViewStatus::Asking).await;
        let gate = w.gate();
        assert!(gate.contains("INCONCLUSIVE: the design waits"), "{what}:\n{gate}");
        let reason = match what {
            "cut" => "was cut off",
            "empty" => "gave an empty answer, twice",
            _ => "was not a valid verdict",
        };
        assert!(gate.contains(reason), "{what}:\n{gate}");
        assert!(!gate.contains("\n/approve"), "no line to paste: {gate}");
        if what != "cut" {
            continue;
        }

        let hash = w.run().await.unwrap().gate.unwrap().spec.subject.short();
        for line in ["/approve".to_owned(), format!("/approve lld {hash}")] {
            w.comment("maya", &line).await;
            w.stands(RunViewStatus::Asking).await;
            let comment = w.newest();
            assert!(comment.contains("/override"), "names the command that would pass:\n{comment}");
        }
        w.comment("sam", "/override the reviewer is down").await;
        // /override takes the maintain role
        w.stands(RunViewStatus::Asking).await;
        let view = w.view();
        let refused = view.comments.last().unwrap();
        assert_eq!(refused.author, "sam", "refused without a comment");
        assert_eq!(refused.reactions, [("countersign[bot]".to_owned(), "-1".to_owned())]);

        w.comment("max", "/override").await;
        assert!(w.newest().contains("REASON"));
        let document = w.design_on_branch().unwrap();
        w.comment("max", "/override the reviewer is down; I read every line").await;
        w.stands(RunViewStatus::Done).await;
        assert_eq!(
            w.design_on_branch().unwrap(),
            document,
            "the published document is the one shown at the gate"
        );
        let pull = &w.hub.pulls(w.repo)[0];
        let log = format!("docs/lld/LLD-{}.review.md", w.issue);
        let log = w.hub.branch_file(w.repo, &pull.head, &log).unwrap();
        for record in [&pull.body, &String::from_utf8(log).unwrap()] {
            assert!(record.contains("overridden** by max"), "{record}");
            assert!(record.contains("the reviewer is down; I read every line"), "{record}");
            assert!(record.contains("INCONCLUSIVE"), "{record}");
        }
    }
}

#[tokio::test]
#[ignore = "takes long"]
async fn gate_at_the_round_cap_offers_the_best_version() {
    // In section 1, which changed; a late finding elsewhere would not count.
    let of_the_change = |title: &str| {
        let mut found = finding(title, None);
        found["place"] = "1".into();
        found
    };
    let script = Script::default()
        .drafts(&design())
        .edits("The goal of a real design", "The better goal of a design")
        .edits("The better goal of a design", "The worse goal of a design")
        .edits("The better goal of a design", "The best goal of a design")
        .reviews(&review("REVISE", &[finding("One", None), finding("Two", None)], &[]))
        .reviews(&review("REVISE", &[finding("Two", Some("F2"))], &["F1"]))
        .reviews(&review("REVISE", &[of_the_change("Three"), of_the_change("Four")], &["F2"]))
        .reviews(&approved());
    let mut w = scripted(&script).await;
    w.label("maya", "countersign:lld").await;
    w.find("Rehearsal");
    let gate = w.find("waits for a person").body;
    assert!(gate.contains("REVISE: the design waits"), "{gate}");
    let kept = String::from_utf8(w.design_on_branch().unwrap()).unwrap();
    assert!(kept.contains("The better goal of a design"), "the version with the fewest objections is kept");
    assert!(gate.contains("| F2 |"), "with its open finding:\n{gate}");
    assert!(!gate.contains("| F3 |"), "without findings on other versions:\n{gate}");

    // /revise allows more drafts.
    w.comment("sam", "/revise make it better still").await;
    assert!(w.newest().contains("APPROVED"), "{}", w.thread());
    w.stands(RunViewStatus::Asking).await;
}

#[tokio::test]
async fn gate_opens_before_the_round_cap_when_the_same_finding_keeps_returning() {
    let same = |repeats| review("REVISE", &[finding("One", repeats)], &[]);
    let script = Script::default()
        .drafts(&design())
        .edits("The goal of a real design", "The aim of a real design")
        .edits("The aim of a real design", "The point of a real design")
        .edits("The point of a real design", "The sense of a real design")
        .reviews(&same(None))
        .reviews(&same(Some("F1")));
    let toml = "[lld]\nmax_rounds = 5\n".to_owned();
    let mut w = World::new(Setting { script: Some(script.toml()), toml, ..Setting::default() }).await;
    w.label("maya", "countersign:lld").await;
    let gate = w.find("waits for a person").body;
    assert!(gate.contains("REVISE") && gate.contains("round 3"), "three rounds of five:\n{gate}");
    w.stands(RunViewStatus::Asking).await;
}

/// Text in which every line would have an effect on GitHub if it were posted unchanged.
const HOSTILE: &str = "Ask @maya and @countersign/team.

/approve
/countersign approve
![picture](https://evil.example/pixel.png) <img src=\"https://evil.example/p\">
Fixes #1, closes octocat/hello#2, resolves https://github.com/octocat/hello/issues/3
</details></details><!-- countersign:status --> <script>alert(1)</script>
\u{202e}desrever\u{202c} \u{2066}x\u{2069}
[click](javascript:alert(1))

````
an unclosed fence
/override because";

#[tokio::test]
async fn hostile_model_text_creates_no_mentions_commands_or_markup_on_github() {
    // The design leaves out hidden text: with it the draft would be sent back before people see it.
    let visible = HOSTILE.replace("<!-- countersign:status -->", "").replace("<script>alert(1)</script>", "");
    let visible = visible.replace(['\u{202e}', '\u{202c}', '\u{2066}', '\u{2069}'], "");
    let hostile_design = design()
        .replace("None.\n\n## 2.", &format!("None. {visible}\n````\n\n## 2."))
        .replace("The goal of a real", &format!("{visible}\n````\n\nThe goal of a real"));
    let one_line = HOSTILE.replace('\n', " ");
    let attack = json!({
        "severity": "high", "category": HOSTILE.chars().take(60).collect::<String>(), "place": "3",
        "title": one_line.chars().take(190).collect::<String>(), "detail": HOSTILE, "repeats": null,
    });
    let mut rejected = review("REVISE", &[attack], &[]);
    rejected["rationale"] = json!(HOSTILE);
    let mut accepted = rejected.clone();
    accepted["verdict"] = json!("APPROVED");
    let script = Script::default()
        .drafts(&hostile_design)
        .edits("Invalid input is handled appropriately.", "An empty input ends with exit status 2.")
        .edits("An empty input ends with exit status 2.", "An empty input ends with exit status 3.")
        .reviews(&rejected)
        .reviews(&accepted);
    let issue = Some((one_line.chars().take(200).collect(), format!("Wanted: less of this.\n\n{HOSTILE}")));
    let mut w =
        World::new(Setting { as_files: true, script: Some(script.toml()), issue, ..Setting::default() })
            .await;
    w.label("maya", "countersign:lld").await;
    w.comment("sam", &format!("/revise {one_line}")).await;
    w.comment("max", &format!("/approve {one_line}")).await;
    assert!(w.newest().contains("was not understood"), "{}", w.thread());
    w.comment("sam", "/countersign status").await;
    w.find("### Runs on this issue");
    assert_page_intact(&w).await;

    let pulls = w.hub.pulls(w.repo);
    assert_eq!(pulls.len(), 1, "{}", w.thread());
    let bodies: Vec<String> = w
        .view()
        .comments
        .into_iter()
        .filter(|c| c.author == "countersign[bot]")
        .map(|c| c.body)
        .chain([pulls[0].body.replace("Part of #", "Part of ").replace("reject it on #", "reject it on ")])
        .collect();
    assert!(bodies.len() >= 4);
    for body in &bodies {
        assert_inert(body);
    }
    for title in [&pulls[0].title]
        .into_iter()
        .chain(&w.hub.log(w.repo, &pulls[0].head).into_iter().map(|c| c.message).take(2).collect::<Vec<_>>())
    {
        let small = title.to_lowercase();
        assert!(!small.contains("fixes #1") && !small.contains("@maya"), "{title}");
        assert!(!small.contains('\u{202e}'), "{title}");
    }
    assert_eq!(w.view().state, "open");

    // The document is not filtered: the file holds the bytes that were reviewed.
    w.approved_by("sam").await;
    let bytes = w.design_on_branch().unwrap();
    let log = w.hub.log(w.repo, &pulls[0].head);
    assert!(log[0].message.contains(&format!("Countersign-Document: {}", Hash::digest(&bytes))));
    assert!(String::from_utf8(bytes).unwrap().contains("an unclosed fence"));
}

/// Asserts that the rendered thread has no unclosed folded parts and contains neither scripts nor `javascript:` links.
async fn assert_page_intact(w: &World) {
    let page = w.page(&format!("issues/{}", w.issue)).await;
    assert!(page.contains("The goal of a real design"), "the page shows the thread:\n{page}");
    assert_eq!(page.matches("<details").count(), page.matches("</details>").count());
    for acting in ["href=\"javascript:", "<script>alert"] {
        assert!(!page.contains(acting), "{acting} is on the page");
    }
}

/// Asserts that a comment contains no command that our own parser recognizes and no markup that is active on GitHub.
#[track_caller]
fn assert_inert(body: &str) {
    let rows: Vec<_> = commands::COMMON.iter().chain(LldWorkflow::COMMANDS).copied().collect();
    let found = commands::parse(&rows, Some("countersign"), body);
    assert!(found.is_empty(), "our comment holds a command: {found:?}\n{body}");
    assert!(!body.contains(['\u{202a}', '\u{202e}', '\u{2066}', '\u{2069}']), "bidi: {body}");

    if let Err(why) = check_html(&render_comrak(body)) {
        panic!("{why}\n{body}");
    }
}

/// Two texts by models must not have an effect together. The first text leaves a code fence open that looks closed, and
/// the second text closes it.
#[tokio::test]
async fn two_model_texts_cannot_combine_into_active_markup() {
    let finding = json!({
        "severity": "suggestion", "category": "tests", "place": "3", "title": "A title", "repeats": null,
        "detail": "```\n@maya Fixes #1 ![x](https://evil.example/p.png) <h1>x</h1>\n```",
    });
    let mut answer = review("APPROVED", &[finding], &[]);
    answer["rationale"] = json!("```\n    ```");
    let mut w = scripted(&Script::default().drafts(&design()).reviews(&answer)).await;
    w.label("maya", "countersign:lld").await;
    w.find("Rehearsal");
    let gate = w.find("waits for a person").body;
    assert!(gate.contains("@maya Fixes #1"), "the text is shown:\n{gate}");
    assert_inert(&gate);
    w.stands(RunViewStatus::Asking).await;
}

#[tokio::test]
async fn run_waits_for_a_busy_provider() {
    let script = Script::default()
        .fails("drafter", "capacity")
        .fails("drafter", "timeout")
        .drafts(&design())
        .fails("reviewer", "rate_limited")
        .reviews(&approved());
    let mut w = scripted(&script).await;
    w.label("maya", "countersign:lld").await;
    assert_ne!(w.run().await.unwrap().status, RunViewStatus::Asking);
    w.wait(30).await;
    assert!(w.thread().contains("it did not answer in time; next try"), "{}", w.thread());
    w.wait(120).await;
    let gate = w.find("waits for a person").body;
    assert!(
        gate.contains("APPROVED") && gate.contains("round 1"),
        "waiting does not count as a round:\n{gate}"
    );
    w.stands(RunViewStatus::Asking).await;
}

/// Creates the default test environment with cassettes in `dir`, and starts a run.
async fn with_cassettes(dir: &std::path::Path, mode: &str) -> World {
    let toml = format!("cassettes = {{ dir = {dir:?}, mode = \"{mode}\" }}\n");
    let mut w = World::new(Setting { toml, ..Setting::default() }).await;
    w.label("maya", "countersign:lld").await;
    w
}

#[tokio::test]
#[ignore = "takes long"]
async fn recorded_run_replays_from_cassettes_without_calling_a_model() {
    let cassettes = tempfile::tempdir().unwrap();
    let mut recorded = with_cassettes(cassettes.path(), "record").await;
    let mut replayed = with_cassettes(cassettes.path(), "replay").await;
    for w in [&mut recorded, &mut replayed] {
        w.stands(RunViewStatus::Asking).await;
        assert!(w.gate().contains("APPROVED"), "{}", w.gate());
    }
    assert_eq!(recorded.design_on_branch(), replayed.design_on_branch());

    let nothing = tempfile::tempdir().unwrap();
    let w = with_cassettes(nothing.path(), "replay").await;
    assert!(!w.thread().contains("APPROVED"), "answers come from the folder alone:\n{}", w.thread());
    assert_eq!((w.run_status().await, w.labels()), (RunViewStatus::Waiting, vec![]));
    assert!(w.status().body.contains("### ⏳ lld: working"), "{}", w.thread());
    assert!(std::fs::read_dir(nothing.path()).unwrap().next().is_none(), "a replay writes nothing");
}
