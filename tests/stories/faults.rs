//! GitHub fails, the bot dies: the thread reads as if nothing had happened. And what a design costs.

use countersign::{engine::Status, localhub::Fault};

use crate::world::{World, world};

/// What people can see of a finished design, without what is different in every world.
fn seen(w: &World) -> String {
    let view = w.view();
    let mut labels = view.labels;
    labels.sort();
    let bots = view.comments.iter().filter(|c| c.author == "countersign[bot]");
    let first_lines = |body: &str| w.plain(body).lines().take(3).collect::<Vec<_>>().join(" / ");
    let comments: Vec<_> = bots.map(|c| first_lines(&c.body)).collect();
    let pulls: Vec<_> = w.hub.pulls(w.repo).iter().map(|p| (p.title.clone(), p.draft)).collect();
    let branch = format!("countersign/issue-{}", w.issue);
    let log = w.hub.log(w.repo, &branch);
    let commits: Vec<_> = log.iter().map(|c| c.message.lines().next().unwrap().to_owned()).collect();
    let mut reactions = view.reactions;
    reactions.sort();
    format!("{labels:?}\n{comments:#?}\n{pulls:?}\n{commits:#?}\n{reactions:?}")
}

/// A design from its label to its end, waiting out whatever comes in between.
async fn designed(w: &mut World) {
    w.label("maya", "countersign:lld").await;
    w.wait(60).await;
    let line = w.approve_line();
    w.comment("sam", &line).await;
    w.wait(60).await;
    assert_eq!(w.run().await.unwrap().status, Status::Done, "{}", w.thread());
}

#[tokio::test]
async fn an_answer_lost_after_its_effect_changes_nothing_people_see() {
    let mut w = world().await;
    designed(&mut w).await;
    let expected = seen(&w);

    // Every kind of write, each lost once in one and the same story.
    let mut w = world().await;
    for (method, path) in [
        ("POST", "/comments"),
        ("PATCH", "/issues/comments/"),
        ("POST", "/git/refs"),
        ("POST", "/git/blobs"),
        ("POST", "/git/trees"),
        ("POST", "/git/commits"),
        ("PATCH", "/git/refs"),
        ("POST", "/pulls"),
        ("PATCH", "/pulls/"),
        ("POST", "/labels"),
        ("DELETE", "/labels/"),
        ("POST", "/reactions"),
        ("POST", "/access_tokens"),
    ] {
        let (method, path_contains) = (method.to_owned(), path.to_owned());
        w.hub.fault(Fault::AnswerBadGatewayAfter { method, path_contains, times: 2 });
    }
    w.label("maya", "countersign:lld").await;
    w.wait(900).await;
    let line = w.approve_line();
    w.comment("sam", &line).await;
    w.wait(600).await;
    assert_eq!(w.run().await.unwrap().status, Status::Done, "{}", w.thread());
    assert_eq!(seen(&w), expected);
}

#[tokio::test]
async fn a_bot_that_dies_between_any_two_steps_goes_on_where_it_was() {
    let mut w = world().await;
    designed(&mut w).await;
    let expected = seen(&w);

    let mut w = world().await;
    w.hub.label(w.repo, w.issue, w.user("maya"), "countersign:lld").unwrap();
    w = killed_at_every_step(w).await;
    let line = w.approve_line();
    w.pass(60);
    w.hub.comment(w.repo, w.issue, w.user("sam"), &line).unwrap();
    w = killed_at_every_step(w).await;
    w.wait(120).await;
    assert_eq!(w.run().await.unwrap().status, Status::Done, "{}", w.thread());
    assert_eq!(seen(&w), expected);
}

/// One delivery, one step, another process; until there is nothing to do.
async fn killed_at_every_step(mut w: World) -> World {
    for _ in 0..60 {
        w.hub.settled().await;
        // Stored and not yet read, when the process ends.
        w = w.restart().await;
        let worked = w.app.intake.tick().await.unwrap() + w.app.engine.tick().await.unwrap();
        if worked == 0 && w.hub.webhooks_pending() == 0 {
            return w;
        }
    }
    panic!("it does not come to rest:\n{}", w.thread());
}

#[tokio::test]
async fn not_knowing_who_may_is_not_a_no() {
    let mut w = world().await;
    let broken = |status| Fault::Status {
        method: "GET".to_owned(),
        path_contains: "/collaborators/".to_owned(),
        status,
        times: 3,
    };
    w.hub.fault(broken(500));
    w.comment("tess", "/lld").await;
    let reactions = |w: &World| w.view().comments[0].reactions.clone();
    assert!(w.run().await.is_none());
    assert!(reactions(&w).is_empty(), "neither yes nor no: {:?}", reactions(&w));
    w.wait(30).await;
    assert!(w.run().await.is_some(), "asked again, it is a yes");
    assert_eq!(reactions(&w), [("countersign[bot]".to_owned(), "eyes".to_owned())]);
}

#[tokio::test]
async fn a_design_costs_few_mails_and_few_calls() {
    let mut w = world().await;
    let (calls, writes) = (w.hub.requests().len(), w.hub.writes());
    w.label("maya", "countersign:lld").await;
    let line = w.approve_line();
    w.comment("sam", &line).await;
    assert_eq!(w.run().await.unwrap().status, Status::Done);
    assert!(w.notifying() <= 2, "a design costs its readers two mails:\n{}", w.thread());
    let mailed_on_pull = w.hub.issue(w.repo, w.hub.pulls(w.repo)[0].number).unwrap().comments.len();
    assert_eq!(mailed_on_pull, 0);

    let (calls, writes) = (&w.hub.requests()[calls..], w.hub.writes() - writes);
    let list: Vec<_> = calls.iter().map(|r| format!("{} {} {}", r.status, r.method, r.path)).collect();
    // A repository's labels are made once, whatever comes after.
    let once = calls.iter().filter(|r| r.method == "POST" && r.path == "/repos/maya/tally/labels").count();
    let (count, writes, list) = (calls.len(), writes - once, list.join("\n"));
    assert!(count <= 60 && writes <= 25, "one revision cost {count} calls, {writes} of them writes:\n{list}");
}
