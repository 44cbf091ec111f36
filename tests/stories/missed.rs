//! What happened while nobody was listening: found in GitHub's log of deliveries, or on the issue itself.

use std::{sync::Arc, time::Duration};

use countersign::{
    engine::RunViewStatus,
    intake::{IntakeError, LabelSearchResult},
    localhub::{Hub, HubFault, RepoSource},
    store::{DeliveryDisposition, InboxCounts},
    types::{DeliveryId, Role},
};
use secrecy::SecretString;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::{
    shell::process::PATIENCE,
    world::{SECRET, World, world, world_of_files},
};

const LABEL: &str = "countersign:lld";

impl World {
    /// Someone labels the issue while the bot is down; it is up again and has read nothing.
    async fn labeled_while_down(self, who: &str) -> Self {
        let (repo, issue, user) = (self.repo, self.issue, self.user(who));
        self.pass(60);
        self.restart_after(|hub| hub.label(repo, issue, user, LABEL).unwrap()).await
    }

    /// Something happens whose webhooks reach nobody; GitHub's log has them.
    async fn unheard(&mut self, happens: impl FnOnce(&Hub)) {
        let (app, secret) = (self.app.settings.app.id, SecretString::from(SECRET));
        self.pass(60);
        let nobody = "http://127.0.0.1:9/".parse().unwrap();
        self.hub.set_webhook(app, Some(nobody), &secret).unwrap();
        happens(&self.hub);
        self.hub.wait_for_webhooks().await;
        self.hub.set_webhook(app, Some(self.webhook.clone()), &secret).unwrap();
        self.pass(60);
    }

    async fn suspended(&self) -> bool {
        self.app
            .store
            .installation_registry()
            .installation(self.installation)
            .await
            .unwrap()
            .unwrap()
            .suspended
    }

    async fn sweep(&mut self) -> usize {
        let brought = self.app.intake.sweep().await.unwrap();
        self.settle().await;
        brought
    }

    pub(crate) async fn look(&mut self) -> LabelSearchResult {
        let found = self.app.intake.find_missed_labels().await.unwrap();
        self.settle().await;
        found
    }

    async fn inbox_counts(&self) -> InboxCounts {
        self.app.store.inbox().counts().await.unwrap()
    }

    /// How often GitHub was asked for something under this path.
    pub(crate) fn asked(&self, path: &str) -> usize {
        self.hub.requests().iter().filter(|r| r.method == "GET" && r.path.contains(path)).count()
    }
}

fn found(n: usize) -> LabelSearchResult {
    LabelSearchResult { found: n, unsure: 0 }
}

fn unwell(path: &str, status: u16, times: u32) -> HubFault {
    HubFault::Status { method: "GET".to_owned(), path_contains: path.to_owned(), status, times }
}

#[tokio::test]
#[ignore = "takes long"]
async fn what_was_said_while_the_bot_was_down_is_heard_afterwards() {
    let mut w = world().await.labeled_while_down("maya").await;
    assert!(w.run().await.is_none());
    assert!(w.sweep().await > 0);
    w.wait(60).await;
    let line = w.approve_line();
    w.stands(RunViewStatus::Asking).await;

    w.pass(60);
    let (repo, issue, sam) = (w.repo, w.issue, w.user("sam"));
    w = w
        .restart_after(|hub| {
            hub.comment(repo, issue, sam, &line).unwrap();
        })
        .await;
    assert_eq!(w.sweep().await, 1);
    w.wait(60).await;
    w.stands(RunViewStatus::Done).await;
    assert_eq!(w.sweep().await, 0, "what is known is not fetched again");
}

#[tokio::test]
async fn a_redelivery_and_the_sweep_are_one_delivery() {
    let mut w = world().await.labeled_while_down("maya").await;
    let missed = w.hub.deliveries().into_iter().find(|d| d.status == Some(0)).unwrap();
    w.hub.redeliver(&missed.guid).unwrap();
    w.settle().await;
    let before = w.inbox_counts().await;
    assert_eq!(w.sweep().await, 0);
    w.hub.redeliver(&missed.guid).unwrap();
    w.settle().await;
    assert_eq!(w.inbox_counts().await, before);
    assert_eq!(w.runs_begun(), 1);
    w.stands(RunViewStatus::Asking).await;
}

#[tokio::test]
async fn a_sweep_that_fails_begins_again_where_it_began() {
    let w = world().await;
    let (repo, issue, maya) = (w.repo, w.issue, w.user("maya"));
    w.pass(60);
    let mut w = w
        .restart_after(|hub| {
            hub.label(repo, issue, maya, LABEL).unwrap();
            for _ in 0..4 {
                hub.comment(repo, issue, maya, "just talk").unwrap();
            }
        })
        .await;
    let mark = w.app.store.sweep_position().await.unwrap();
    w.hub.arm_fault(unwell("/app/hook/deliveries/", 500, 100));
    assert!(matches!(w.app.intake.sweep().await, Err(IntakeError::GitHub(fault)) if fault.is_temporary()));
    // A read is tried twice.
    assert_eq!(w.asked("/app/hook/deliveries/"), 2 * 3, "the others would have fared no better");
    assert_eq!(w.app.store.sweep_position().await.unwrap(), mark);
    w.hub.clear_faults();
    assert_eq!(w.sweep().await, 5);
    assert!(w.run().await.is_some());

    // Later it moves, and stays so far behind that what is listed late is still seen.
    w.pass(24 * 3600);
    w.comment("maya", "just talk").await;
    w.sweep().await;
    let moved = w.app.store.sweep_position().await.unwrap();
    let behind = countersign::clock::Clock::now(&*w.clock).since(moved);
    assert!(moved > mark && behind >= Duration::from_secs(600), "{behind:?}");
    w.stands(RunViewStatus::Asking).await;
}

#[tokio::test]
async fn what_github_always_fails_on_keeps_nothing_else_out() {
    let w = world().await;
    let (repo, issue, maya) = (w.repo, w.issue, w.user("maya"));
    w.pass(60);
    let mut w = w
        .restart_after(|hub| {
            hub.comment(repo, issue, maya, "just talk").unwrap();
            hub.label(repo, issue, maya, LABEL).unwrap();
        })
        .await;
    let mark = w.app.store.sweep_position().await.unwrap();
    w.hub.arm_fault(unwell("/app/hook/deliveries/", 500, 2)); // a read is tried twice
    assert!(matches!(w.app.intake.sweep().await, Err(IntakeError::GitHub(fault)) if fault.is_temporary()));
    w.settle().await;
    assert!(w.run().await.is_some(), "what came after it was fetched");
    assert_eq!(w.app.store.sweep_position().await.unwrap(), mark, "and it is looked for again");
    assert_eq!(w.sweep().await, 1);
    w.stands(RunViewStatus::Asking).await;
}

#[tokio::test]
async fn what_github_no_longer_has_keeps_nothing_else_out() {
    let w = world().await;
    let (repo, issue, maya) = (w.repo, w.issue, w.user("maya"));
    w.pass(60);
    let mut w = w
        .restart_after(|hub| {
            hub.comment(repo, issue, maya, "/status").unwrap();
            hub.label(repo, issue, maya, LABEL).unwrap();
        })
        .await;
    w.hub.arm_fault(unwell("/app/hook/deliveries/", 404, 1));
    assert_eq!(w.sweep().await, 1);
    assert!(w.run().await.is_some());
    w.stands(RunViewStatus::Asking).await;
}

#[tokio::test]
#[ignore = "takes long"]
async fn a_long_silence_is_read_page_by_page_and_in_order() {
    let w = world().await;
    let (repo, issue, maya, clock) = (w.repo, w.issue, w.user("maya"), w.clock.clone());
    let mut w = w
        .restart_after(|hub| {
            for n in 0..130 {
                clock.pass(Duration::from_secs(1));
                hub.comment(repo, issue, maya, &format!("remark {n}")).unwrap();
            }
        })
        .await;
    assert_eq!(w.app.intake.sweep().await.unwrap(), 130);
    for n in 0..130 {
        let taken = w.app.store.inbox().claim().await.unwrap().unwrap();
        let body = String::from_utf8(taken.body().unwrap()).unwrap();
        assert!(body.contains(&format!("\"remark {n}\"")), "{n}: {body}");
        let done = DeliveryDisposition::Done("read".to_owned());
        w.app.store.inbox().record_dispositions(vec![(taken.id, done)]).await.unwrap();
    }
    w.settle().await;
    assert!(w.asked("cursor=v1_") >= 1);
}

#[tokio::test]
async fn strangers_installations_are_not_fetched() {
    let w = world().await;
    let other = w.hub.create_user("mallory").unwrap();
    let app = w.app.settings.app.id;
    let mut w = w
        .restart_after(|hub: &Hub| {
            let source = RepoSource::Files(vec![("README.md".to_owned(), b"hi".to_vec())]);
            let theirs = hub.create_repo(other, "theirs", source, false).unwrap();
            hub.install(app, &[theirs]).unwrap();
            let issue = hub.open_issue(theirs, other, "Work for me", "please").unwrap();
            hub.label(theirs, issue, other, LABEL).unwrap();
        })
        .await;
    assert_eq!(w.sweep().await, 0);
    assert_eq!(w.asked("/app/hook/deliveries/"), 0);
}

#[tokio::test]
async fn what_was_acknowledged_and_lost_comes_back_and_what_was_before_us_does_not() {
    let mut w = world().await;
    w.comment("maya", "/lld").await;
    let guid = w.hub.deliveries().into_iter().rfind(|d| d.event == "issue_comment").unwrap().guid;
    let main = w.app.settings.data_dir.join("main.db");
    let data = w.app.settings.data_dir.clone();
    let inbox = rusqlite::Connection::open(&main).unwrap();
    inbox.execute("DELETE FROM inbox WHERE id = ?1", [&guid]).unwrap();
    drop(inbox);
    w.sweep().await;
    let known = w.app.store.missing_deliveries(vec![DeliveryId(guid.clone())]).await.unwrap();
    assert!(known.is_empty(), "GitHub was told that we have it, and now we do");
    assert_eq!(w.runs_begun(), 1, "it had started its run already");
    w.stands(RunViewStatus::Asking).await;

    // A new data directory is a new bot: what people said before it came is not for it.
    w.pass(60);
    let clock = w.clock.clone();
    w = w
        .restart_after(|_| {
            std::fs::remove_dir_all(&data).unwrap();
            clock.pass(Duration::from_secs(1));
        })
        .await;
    assert_eq!(w.sweep().await, 0);
    assert!(w.run().await.is_none());
}

#[tokio::test]
async fn a_label_nobody_told_of_is_found_on_the_issue() {
    let mut w = world().await.labeled_while_down("maya").await;
    w.hub.forget_deliveries().unwrap();
    assert_eq!(w.sweep().await, 0);
    assert_eq!(w.look().await, found(1));
    w.wait(60).await;
    let run = w.run().await.unwrap();
    assert_eq!(
        (run.trigger.actor.login.as_str(), run.status),
        ("maya", RunViewStatus::Asking),
        "{}",
        w.thread()
    );
    assert!(!w.labels().contains(&LABEL.to_owned()));
    assert_eq!(w.look().await, found(0));
    w.stands(RunViewStatus::Asking).await;
}

#[tokio::test]
async fn a_label_by_a_reader_is_refused_once() {
    let mut w = world().await.labeled_while_down("stranger").await;
    w.hub.forget_deliveries().unwrap();
    assert_eq!(w.look().await, found(1));
    let asked = w.asked("/collaborators/");
    assert_eq!(asked, 1);
    let thumbs = vec![("countersign[bot]".to_owned(), "-1".to_owned())];
    assert_eq!(w.view().reactions, thumbs);
    w = w.restart().await;
    assert_eq!(w.look().await, found(0));
    assert_eq!(w.asked("/collaborators/"), asked, "nobody is asked again");

    // Rights that came later change nothing; setting the label anew does.
    w.hub.set_role(w.repo, w.user("stranger"), Role::Triage).unwrap();
    assert_eq!(w.look().await, found(0));
    assert!(w.run().await.is_none());
    let (repo, issue, stranger) = (w.repo, w.issue, w.user("stranger"));
    w.pass(60);
    w = w
        .restart_after(|hub| {
            hub.unlabel(repo, issue, stranger, LABEL).unwrap();
            hub.label(repo, issue, stranger, LABEL).unwrap();
            hub.forget_deliveries().unwrap();
        })
        .await;
    w.hub.forget_deliveries().unwrap();
    assert_eq!(w.look().await, found(1));
    assert!(w.run().await.is_some());
    w.stands(RunViewStatus::Asking).await;
}

#[tokio::test]
async fn a_refusal_by_webhook_is_not_asked_about_again() {
    let mut w = world().await;
    w.label("stranger", LABEL).await;
    let asked = w.asked("/collaborators/");
    assert_eq!(w.look().await, found(0));
    assert_eq!(w.asked("/collaborators/"), asked);
    assert!(w.run().await.is_none());
}

#[tokio::test]
async fn not_knowing_who_may_leaves_a_found_label_for_later() {
    let mut w = world().await.labeled_while_down("maya").await;
    w.hub.forget_deliveries().unwrap();
    w.hub.arm_fault(unwell("/collaborators/", 500, 2));
    assert_eq!(w.look().await, found(1));
    assert!(w.run().await.is_none());
    assert!(w.view().reactions.is_empty());
    assert_eq!(w.look().await, found(0), "it waits in the inbox");
    w.wait(30).await;
    assert!(w.run().await.is_some());
    w.stands(RunViewStatus::Asking).await;
}

#[tokio::test]
async fn a_bots_label_never_acts_wherever_it_is_found() {
    let mut w = world().await.labeled_while_down("countersign[bot]").await;
    w.hub.forget_deliveries().unwrap();
    assert_eq!(w.look().await, found(1));
    assert_eq!(w.look().await, found(0));
    assert!(w.run().await.is_none());
    assert_eq!(w.labels(), [LABEL], "it stays where it was put");
    assert_eq!(w.asked("/collaborators/"), 0);

    // What could not be seen is said, and seen the next time.
    w.hub.arm_fault(unwell("/issues", 500, 2));
    assert_eq!(w.look().await, LabelSearchResult { found: 0, unsure: 1 });
}

#[tokio::test]
async fn a_label_that_was_found_and_is_then_told_of_starts_one_run() {
    let mut w = world().await.labeled_while_down("maya").await;
    assert_eq!(w.look().await, found(1));
    w.wait(60).await;
    w.comment("maya", "/stop").await;
    w.wait(60).await;
    w.stands(RunViewStatus::Stopped).await;
    assert_eq!(w.sweep().await, 1, "the label's own delivery");
    assert_eq!(w.runs_begun(), 1, "{}", w.thread());
}

#[tokio::test]
async fn a_label_that_is_told_of_and_found_at_the_same_time_starts_one_run() {
    let mut w = world().await.labeled_while_down("maya").await;
    w.app.intake.sweep().await.unwrap();
    assert_eq!(w.look().await, found(1));
    assert_eq!(w.look().await, found(0));
    assert_eq!(w.runs_begun(), 1);
    w.stands(RunViewStatus::Asking).await;
}

#[tokio::test]
async fn a_suspension_that_was_lifted_before_we_heard_of_it_stops_nothing() {
    let mut w = world().await;
    let installation = w.installation;
    w.unheard(|hub| hub.suspend(installation, true).unwrap()).await;
    w.hub.suspend(installation, false).unwrap();
    w.settle().await;
    assert_eq!(w.sweep().await, 1);
    assert!(!w.suspended().await);

    // The other way round, and one that holds.
    w.unheard(|hub| hub.suspend(installation, true).unwrap()).await;
    w.unheard(|hub| hub.suspend(installation, false).unwrap()).await;
    w.hub.suspend(installation, true).unwrap();
    w.settle().await;
    assert_eq!(w.sweep().await, 2);
    assert!(w.suspended().await);
    w.unheard(|hub| hub.suspend(installation, false).unwrap()).await;
    assert_eq!(w.sweep().await, 1);
    assert!(!w.suspended().await);
}

#[tokio::test]
async fn a_suspension_nobody_told_of_is_seen_by_the_look_for_labels() {
    let mut w = world().await;
    w.hub.label(w.repo, w.issue, w.user("maya"), LABEL).unwrap();
    w.step(2).await;
    let (installation, visit) = (w.installation, w.run().await.unwrap().visit);
    w.unheard(|hub| hub.suspend(installation, true).unwrap()).await;
    w.hub.forget_deliveries().unwrap();
    w.look().await;
    assert!(w.suspended().await);
    w.wait(60).await;
    assert_eq!(w.run().await.unwrap().visit, visit, "it rests");
    w.unheard(|hub| hub.suspend(installation, false).unwrap()).await;
    w.hub.forget_deliveries().unwrap();
    w.look().await;
    w.wait(60).await;
    w.stands(RunViewStatus::Asking).await;
}

#[tokio::test]
async fn an_approval_written_while_the_app_was_suspended_counts_afterwards() {
    for told in [true, false] {
        let mut w = world().await;
        w.comes_to_the_gate().await;
        let (line, installation) = (w.approve_line(), w.installation);
        w.hub.suspend(installation, true).unwrap();
        w.settle().await;
        assert!(w.suspended().await);
        w.pass(60);
        for (who, words) in [("stranger", line.as_str()), ("maya", "Looks good."), ("maya", &line)] {
            w.hub.comment(w.repo, w.issue, w.user(who), words).unwrap();
        }
        w.wait(60).await;
        assert_eq!(w.run_status().await, RunViewStatus::Asking, "it rests");
        if told {
            w.hub.suspend(installation, false).unwrap();
        } else {
            w.unheard(|hub| hub.suspend(installation, false).unwrap()).await;
            w.hub.forget_deliveries().unwrap();
            w.look().await;
        }
        w.wait(60).await;
        w.stands(RunViewStatus::Done).await;
        let reactions: Vec<_> = w.view().comments.iter().map(|comment| comment.reactions.clone()).collect();
        let by_us = |sign: &str| vec![("countersign[bot]".to_owned(), sign.to_owned())];
        assert!(reactions.contains(&by_us("-1")) && reactions.contains(&by_us("eyes")), "{}", w.thread());
    }
}

#[tokio::test]
async fn a_live_engine_goes_on_at_once_when_a_suspension_is_lifted() {
    let mut w = world().await;
    w.hub.label(w.repo, w.issue, w.user("maya"), LABEL).unwrap();
    w.step(2).await;
    let visit = w.run().await.unwrap().visit;
    w.hub.suspend(w.installation, true).unwrap();
    w.settle().await;
    let (engine, stop) = (Arc::clone(&w.app.engine), CancellationToken::new());
    let living = tokio::spawn({
        let stop = stop.clone();
        async move { engine.run(stop).await }
    });
    while !w.app.intake.drain_inbox().await.is_ok_and(|read| read == 0) {}
    tokio::task::yield_now().await; // it naps, and no clock will end that
    w.hub.suspend(w.installation, false).unwrap();
    w.hub.wait_for_webhooks().await;
    w.app.intake.drain_inbox().await.unwrap();
    let gone_on = async {
        while w.run().await.unwrap().visit == visit {
            tokio::task::yield_now().await;
        }
    };
    timeout(PATIENCE, gone_on).await.expect("the clock stands still; only the word wakes it");
    stop.cancel();
    living.await.unwrap();
    let mut w = w.restart().await;
    w.settle().await;
    w.stands(RunViewStatus::Asking).await;
}

#[tokio::test]
async fn a_repository_that_was_deleted_unheard_ends_its_runs() {
    let mut w = world().await;
    w.comes_to_the_gate().await;
    let repo = w.repo;
    w.unheard(|hub| hub.delete_repo(repo).unwrap()).await;
    assert_eq!(w.sweep().await, 1);
    w.wait(60).await;
    assert!(!w.run().await.unwrap().status.is_live());
    assert!(w.app.store.installation_registry().repository(repo).await.unwrap().is_none());
}

#[tokio::test]
async fn an_issue_that_is_open_again_is_not_closed() {
    let mut w = world_of_files().await;
    w.comes_to_the_gate().await;
    let (repo, issue, maya) = (w.repo, w.issue, w.user("maya"));
    w.unheard(|hub| hub.close_issue(repo, issue, maya).unwrap()).await;
    w.hub.reopen(repo, issue, maya).unwrap();
    w.settle().await;
    assert_eq!(w.sweep().await, 1);
    w.stands(RunViewStatus::Asking).await;

    let pull = w.hub.pulls(repo).pop().expect("the run opened one").number;
    w.unheard(|hub| hub.close_issue(repo, pull, maya).unwrap()).await;
    w.hub.reopen(repo, pull, maya).unwrap();
    w.settle().await;
    assert_eq!(w.sweep().await, 1);
    // nor is a pull request
    w.stands(RunViewStatus::Asking).await;

    w.unheard(|hub| hub.close_issue(repo, pull, maya).unwrap()).await;
    assert_eq!(w.sweep().await, 1);
    w.wait(60).await;
    // what holds is heard
    w.stands(RunViewStatus::Stopped).await;
}

/// How the word of what happened comes late.
#[derive(Clone, Copy, Debug)]
enum Late {
    Swept,
    Redelivered,
}

impl World {
    async fn is_told_late(&mut self, how: Late) {
        match how {
            Late::Swept => assert_eq!(self.sweep().await, 1),
            Late::Redelivered => {
                let missed = self.hub.deliveries().into_iter().rfind(|d| d.status == Some(0)).unwrap();
                self.hub.redeliver(&missed.guid).unwrap();
                self.hub.wait_for_webhooks().await;
            }
        }
    }
}

#[tokio::test]
#[ignore = "takes long"]
async fn an_old_pull_request_that_was_closed_stops_no_newer_run() {
    for how in [Late::Swept, Late::Redelivered] {
        let mut w = world_of_files().await;
        let (repo, issue, maya) = (w.repo, w.issue, w.user("maya"));
        w.comes_to_the_gate().await;
        w.comment("maya", "/stop").await;
        w.wait(60).await;
        w.stands(RunViewStatus::Stopped).await;
        let old = w.pull_number();
        w.unheard(|hub| hub.close_issue(repo, old, maya).unwrap()).await;
        w.hub.label(repo, issue, maya, LABEL).unwrap();
        w.step(2).await;
        let run = w.run().await.unwrap();
        assert!(w.runs_begun() == 2 && run.status.is_live() && run.gate.is_none(), "{how:?}");
        w.pass(180);
        w.is_told_late(how).await;
        w.wait(60).await;
        w.stands(RunViewStatus::Asking).await;
        let new = w.hub.pulls(repo).pop().unwrap().number;
        assert_ne!(new, old, "it has opened its own");

        // That one is another matter, also when we hear of it late.
        w.unheard(|hub| hub.close_issue(repo, new, maya).unwrap()).await;
        w.pass(180);
        w.is_told_late(how).await;
        w.wait(60).await;
        w.stands(RunViewStatus::Stopped).await;
    }
}

#[tokio::test]
#[ignore = "takes long"]
async fn a_pull_request_that_a_newer_run_took_over_is_its_own() {
    let mut w = world_of_files().await;
    w.comes_to_the_gate().await;
    w.comment("maya", "/stop").await;
    w.wait(60).await;
    w.stands(RunViewStatus::Stopped).await;
    let (repo, maya) = (w.repo, w.user("maya"));
    let old = w.hub.pulls(repo).pop().unwrap().number;
    w.label("maya", LABEL).await;
    w.wait(60).await;
    assert_eq!((w.runs_begun(), w.hub.pulls(repo).len()), (2, 1));
    w.pass(60);
    w.hub.close_issue(repo, old, maya).unwrap();
    w.settle().await;
    w.wait(60).await;
    w.stands(RunViewStatus::Stopped).await;
}

#[tokio::test]
async fn an_old_word_delivered_again_holds_only_if_it_does() {
    let mut w = world().await;
    w.comes_to_the_gate().await;
    let (repo, issue, maya) = (w.repo, w.issue, w.user("maya"));
    w.unheard(|hub| hub.close_issue(repo, issue, maya).unwrap()).await;
    w.hub.reopen(repo, issue, maya).unwrap();
    w.settle().await;
    w.pass(180);
    w.is_told_late(Late::Redelivered).await;
    w.settle().await;
    // it is open again
    w.stands(RunViewStatus::Asking).await;

    w.comment("maya", "/stop").await;
    w.wait(60).await;
    w.unheard(|hub| hub.label(repo, issue, maya, LABEL).unwrap()).await;
    w.hub.unlabel(repo, issue, maya, LABEL).unwrap();
    w.settle().await;
    w.pass(180);
    w.is_told_late(Late::Redelivered).await;
    w.settle().await;
    assert_eq!(w.runs_begun(), 1, "the label was taken back");
    w.stands(RunViewStatus::Stopped).await;
}

#[tokio::test]
async fn a_label_that_was_taken_back_before_we_heard_of_it_does_nothing() {
    let mut w = world().await;
    let (repo, issue, maya) = (w.repo, w.issue, w.user("maya"));
    w.unheard(|hub| hub.label(repo, issue, maya, LABEL).unwrap()).await;
    w.hub.unlabel(repo, issue, maya, LABEL).unwrap();
    assert_eq!(w.sweep().await, 1);
    assert!(w.run().await.is_none());

    w.pass(60);
    w.comes_to_the_gate().await;
    const STOP: &str = "countersign:stop";
    w.unheard(|hub| hub.label(repo, issue, maya, STOP).unwrap()).await;
    w.hub.unlabel(repo, issue, maya, STOP).unwrap();
    assert_eq!(w.sweep().await, 1);
    w.stands(RunViewStatus::Asking).await;
    w.unheard(|hub| hub.label(repo, issue, maya, STOP).unwrap()).await;
    assert_eq!(w.sweep().await, 1);
    w.wait(60).await;
    // one that is there does
    w.stands(RunViewStatus::Stopped).await;
    assert!(!w.labels().contains(&STOP.to_owned()));
}

#[tokio::test]
#[ignore = "takes long"]
async fn a_start_that_a_later_run_overtook_is_asked_for_again() {
    let mut w = world().await;
    let (repo, issue, sam) = (w.repo, w.issue, w.user("sam"));
    w.unheard(|hub| _ = hub.comment(repo, issue, sam, "/lld").unwrap()).await;
    w.comment("maya", "/lld").await;
    w.comment("maya", "/stop").await;
    w.wait(60).await;
    assert_eq!(w.sweep().await, 1);
    assert_eq!(w.runs_begun(), 1);
    w.stands(RunViewStatus::Stopped).await;
    w.find("Your `/lld` came late");
    w.comment("sam", "/lld").await;
    assert_eq!(w.runs_begun(), 2);
    w.stands(RunViewStatus::Asking).await;
}
