//! Stories about the recovery of missed events, from GitHub's delivery log or from the issue itself.

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
    /// Labels the issue while the bot is down and restarts the bot, which has not swept the delivery log yet.
    async fn labeled_during_downtime(self, who: &str) -> Self {
        let (repo, issue, user) = (self.repo, self.issue, self.user(who));
        self.pass(60);
        self.restart_after(|hub| hub.label(repo, issue, user, LABEL).unwrap()).await
    }

    /// Runs `action` while webhooks are sent to an address where nobody listens. The failed deliveries are in GitHub's
    /// delivery log.
    async fn with_failed_webhooks(&mut self, action: impl FnOnce(&Hub)) {
        let (app, secret) = (self.app.settings.app.id, SecretString::from(SECRET));
        self.pass(60);
        let nobody = "http://127.0.0.1:9/".parse().unwrap();
        self.hub.set_webhook(app, Some(nobody), &secret).unwrap();
        action(&self.hub);
        self.hub.wait_for_webhooks().await;
        self.hub.set_webhook(app, Some(self.webhook.clone()), &secret).unwrap();
        self.pass(60);
    }

    async fn is_suspended(&self) -> bool {
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
        let fetched = self.app.intake.sweep().await.unwrap();
        self.settle().await;
        fetched
    }

    pub(crate) async fn look(&mut self) -> LabelSearchResult {
        let found = self.app.intake.find_missed_labels().await.unwrap();
        self.settle().await;
        found
    }

    async fn inbox_counts(&self) -> InboxCounts {
        self.app.store.inbox().counts().await.unwrap()
    }

    /// Returns the number of GET requests to GitHub whose path contains `path`.
    pub(crate) fn count_gets(&self, path: &str) -> usize {
        self.hub.requests().iter().filter(|r| r.method == "GET" && r.path.contains(path)).count()
    }
}

fn search_result(n: usize) -> LabelSearchResult {
    LabelSearchResult { found: n, unsure: 0 }
}

fn read_fault(path: &str, status: u16, times: u32) -> HubFault {
    HubFault::Status { method: "GET".to_owned(), path_contains: path.to_owned(), status, times }
}

#[tokio::test]
#[ignore = "takes long"]
async fn sweep_recovers_events_sent_while_the_bot_was_down() {
    let mut w = world().await.labeled_during_downtime("maya").await;
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
    assert_eq!(w.sweep().await, 0, "known deliveries are not fetched again");
}

#[tokio::test]
async fn delivery_redelivered_and_swept_is_processed_once() {
    let mut w = world().await.labeled_during_downtime("maya").await;
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
async fn failed_sweep_starts_again_from_its_stored_position() {
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
    w.hub.arm_fault(read_fault("/app/hook/deliveries/", 500, 100));
    assert!(matches!(w.app.intake.sweep().await, Err(IntakeError::GitHub(fault)) if fault.is_temporary()));
    // Each read has two attempts.
    assert_eq!(w.count_gets("/app/hook/deliveries/"), 2 * 3, "the sweep stops after three failures");
    assert_eq!(w.app.store.sweep_position().await.unwrap(), mark);
    w.hub.clear_faults();
    assert_eq!(w.sweep().await, 5);
    assert!(w.run().await.is_some());

    // The position then advances, but stays far enough behind to see deliveries that are listed late.
    w.pass(24 * 3600);
    w.comment("maya", "just talk").await;
    w.sweep().await;
    let moved = w.app.store.sweep_position().await.unwrap();
    let behind = countersign::clock::Clock::now(&*w.clock).since(moved);
    assert!(moved > mark && behind >= Duration::from_secs(600), "{behind:?}");
    w.stands(RunViewStatus::Asking).await;
}

#[tokio::test]
async fn delivery_that_github_cannot_return_blocks_no_other_delivery() {
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
    w.hub.arm_fault(read_fault("/app/hook/deliveries/", 500, 2)); // each read has two attempts
    assert!(matches!(w.app.intake.sweep().await, Err(IntakeError::GitHub(fault)) if fault.is_temporary()));
    w.settle().await;
    assert!(w.run().await.is_some(), "later deliveries were fetched");
    assert_eq!(
        w.app.store.sweep_position().await.unwrap(),
        mark,
        "the failed delivery is fetched again next time"
    );
    assert_eq!(w.sweep().await, 1);
    w.stands(RunViewStatus::Asking).await;
}

#[tokio::test]
async fn delivery_deleted_by_github_blocks_no_other_delivery() {
    let w = world().await;
    let (repo, issue, maya) = (w.repo, w.issue, w.user("maya"));
    w.pass(60);
    let mut w = w
        .restart_after(|hub| {
            hub.comment(repo, issue, maya, "/status").unwrap();
            hub.label(repo, issue, maya, LABEL).unwrap();
        })
        .await;
    w.hub.arm_fault(read_fault("/app/hook/deliveries/", 404, 1));
    assert_eq!(w.sweep().await, 1);
    assert!(w.run().await.is_some());
    w.stands(RunViewStatus::Asking).await;
}

#[tokio::test]
#[ignore = "takes long"]
async fn sweep_reads_many_deliveries_page_by_page_and_in_order() {
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
    assert!(w.count_gets("cursor=v1_") >= 1);
}

#[tokio::test]
async fn sweep_skips_installations_not_on_the_allow_list() {
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
    assert_eq!(w.count_gets("/app/hook/deliveries/"), 0);
}

#[tokio::test]
async fn sweep_recovers_a_lost_delivery_but_none_older_than_the_data_directory() {
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
    assert!(known.is_empty(), "the acknowledged delivery is stored again");
    assert_eq!(w.runs_begun(), 1, "its run had already started");
    w.stands(RunViewStatus::Asking).await;

    // A new data directory is a new bot: it ignores older deliveries.
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
async fn label_is_found_on_the_issue_when_its_delivery_was_lost() {
    let mut w = world().await.labeled_during_downtime("maya").await;
    w.hub.forget_deliveries().unwrap();
    assert_eq!(w.sweep().await, 0);
    assert_eq!(w.look().await, search_result(1));
    w.wait(60).await;
    let run = w.run().await.unwrap();
    assert_eq!(
        (run.trigger.actor.login.as_str(), run.status),
        ("maya", RunViewStatus::Asking),
        "{}",
        w.thread()
    );
    assert!(!w.labels().contains(&LABEL.to_owned()));
    assert_eq!(w.look().await, search_result(0));
    w.stands(RunViewStatus::Asking).await;
}

#[tokio::test]
async fn label_found_by_polling_is_refused_once_if_its_author_lacks_the_role() {
    let mut w = world().await.labeled_during_downtime("stranger").await;
    w.hub.forget_deliveries().unwrap();
    assert_eq!(w.look().await, search_result(1));
    let lookups = w.count_gets("/collaborators/");
    assert_eq!(lookups, 1);
    let thumbs = vec![("countersign[bot]".to_owned(), "-1".to_owned())];
    assert_eq!(w.view().reactions, thumbs);
    w = w.restart().await;
    assert_eq!(w.look().await, search_result(0));
    assert_eq!(w.count_gets("/collaborators/"), lookups, "the permission is not looked up again");

    // A role granted later changes nothing; setting the label again does.
    w.hub.set_role(w.repo, w.user("stranger"), Role::Triage).unwrap();
    assert_eq!(w.look().await, search_result(0));
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
    assert_eq!(w.look().await, search_result(1));
    assert!(w.run().await.is_some());
    w.stands(RunViewStatus::Asking).await;
}

#[tokio::test]
async fn polling_skips_a_refused_label_without_a_second_permission_lookup() {
    let mut w = world().await;
    w.label("stranger", LABEL).await;
    let lookups = w.count_gets("/collaborators/");
    assert_eq!(w.look().await, search_result(0));
    assert_eq!(w.count_gets("/collaborators/"), lookups);
    assert!(w.run().await.is_none());
}

#[tokio::test]
async fn label_found_by_polling_is_processed_after_permission_lookup_recovers() {
    let mut w = world().await.labeled_during_downtime("maya").await;
    w.hub.forget_deliveries().unwrap();
    w.hub.arm_fault(read_fault("/collaborators/", 500, 2));
    assert_eq!(w.look().await, search_result(1));
    assert!(w.run().await.is_none());
    assert!(w.view().reactions.is_empty());
    assert_eq!(w.look().await, search_result(0), "the label waits in the inbox");
    w.wait(30).await;
    assert!(w.run().await.is_some());
    w.stands(RunViewStatus::Asking).await;
}

#[tokio::test]
async fn label_set_by_a_bot_never_starts_a_run() {
    let mut w = world().await.labeled_during_downtime("countersign[bot]").await;
    w.hub.forget_deliveries().unwrap();
    assert_eq!(w.look().await, search_result(1));
    assert_eq!(w.look().await, search_result(0));
    assert!(w.run().await.is_none());
    assert_eq!(w.labels(), [LABEL], "the label stays");
    assert_eq!(w.count_gets("/collaborators/"), 0);

    // A failed search is reported as unsure.
    w.hub.arm_fault(read_fault("/issues", 500, 2));
    assert_eq!(w.look().await, LabelSearchResult { found: 0, unsure: 1 });
}

#[tokio::test]
async fn label_found_by_polling_and_delivered_later_starts_one_run() {
    let mut w = world().await.labeled_during_downtime("maya").await;
    assert_eq!(w.look().await, search_result(1));
    w.wait(60).await;
    w.comment("maya", "/stop").await;
    w.wait(60).await;
    w.stands(RunViewStatus::Stopped).await;
    assert_eq!(w.sweep().await, 1, "the delivery of the label");
    assert_eq!(w.runs_begun(), 1, "{}", w.thread());
}

#[tokio::test]
async fn label_delivered_and_found_by_polling_at_the_same_time_starts_one_run() {
    let mut w = world().await.labeled_during_downtime("maya").await;
    w.app.intake.sweep().await.unwrap();
    assert_eq!(w.look().await, search_result(1));
    assert_eq!(w.look().await, search_result(0));
    assert_eq!(w.runs_begun(), 1);
    w.stands(RunViewStatus::Asking).await;
}

#[tokio::test]
async fn late_suspension_delivery_is_ignored_if_the_state_has_changed() {
    let mut w = world().await;
    let installation = w.installation;
    w.with_failed_webhooks(|hub| hub.suspend(installation, true).unwrap()).await;
    w.hub.suspend(installation, false).unwrap();
    w.settle().await;
    assert_eq!(w.sweep().await, 1);
    assert!(!w.is_suspended().await);

    // Reversed order: a late unsuspend delivery, then one that is still true.
    w.with_failed_webhooks(|hub| hub.suspend(installation, true).unwrap()).await;
    w.with_failed_webhooks(|hub| hub.suspend(installation, false).unwrap()).await;
    w.hub.suspend(installation, true).unwrap();
    w.settle().await;
    assert_eq!(w.sweep().await, 2);
    assert!(w.is_suspended().await);
    w.with_failed_webhooks(|hub| hub.suspend(installation, false).unwrap()).await;
    assert_eq!(w.sweep().await, 1);
    assert!(!w.is_suspended().await);
}

#[tokio::test]
async fn label_polling_detects_a_missed_suspension() {
    let mut w = world().await;
    w.hub.label(w.repo, w.issue, w.user("maya"), LABEL).unwrap();
    w.step(2).await;
    let (installation, visit) = (w.installation, w.run().await.unwrap().visit);
    w.with_failed_webhooks(|hub| hub.suspend(installation, true).unwrap()).await;
    w.hub.forget_deliveries().unwrap();
    w.look().await;
    assert!(w.is_suspended().await);
    w.wait(60).await;
    assert_eq!(w.run().await.unwrap().visit, visit, "the run rests during a suspension");
    w.with_failed_webhooks(|hub| hub.suspend(installation, false).unwrap()).await;
    w.hub.forget_deliveries().unwrap();
    w.look().await;
    w.wait(60).await;
    w.stands(RunViewStatus::Asking).await;
}

#[tokio::test]
async fn approval_written_during_a_suspension_is_accepted_after_the_suspension_ends() {
    for delivered in [true, false] {
        let mut w = world().await;
        w.comes_to_the_gate().await;
        let (line, installation) = (w.approve_line(), w.installation);
        w.hub.suspend(installation, true).unwrap();
        w.settle().await;
        assert!(w.is_suspended().await);
        w.pass(60);
        for (who, words) in [("stranger", line.as_str()), ("maya", "Looks good."), ("maya", &line)] {
            w.hub.comment(w.repo, w.issue, w.user(who), words).unwrap();
        }
        w.wait(60).await;
        assert_eq!(w.run_status().await, RunViewStatus::Asking, "the run rests during a suspension");
        if delivered {
            w.hub.suspend(installation, false).unwrap();
        } else {
            w.with_failed_webhooks(|hub| hub.suspend(installation, false).unwrap()).await;
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
async fn running_engine_resumes_runs_when_a_suspension_is_lifted() {
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
    tokio::task::yield_now().await; // the engine sleeps now, and the clock stands still
    w.hub.suspend(w.installation, false).unwrap();
    w.hub.wait_for_webhooks().await;
    w.app.intake.drain_inbox().await.unwrap();
    let woken = async {
        while w.run().await.unwrap().visit == visit {
            tokio::task::yield_now().await;
        }
    };
    timeout(PATIENCE, woken)
        .await
        .expect("the unsuspend event wakes the engine although the clock stands still");
    stop.cancel();
    living.await.unwrap();
    let mut w = w.restart().await;
    w.settle().await;
    w.stands(RunViewStatus::Asking).await;
}

#[tokio::test]
async fn runs_end_when_the_deletion_of_their_repository_was_missed() {
    let mut w = world().await;
    w.comes_to_the_gate().await;
    let repo = w.repo;
    w.with_failed_webhooks(|hub| hub.delete_repo(repo).unwrap()).await;
    assert_eq!(w.sweep().await, 1);
    w.wait(60).await;
    assert!(!w.run().await.unwrap().status.is_live());
    assert!(w.app.store.installation_registry().repository(repo).await.unwrap().is_none());
}

#[tokio::test]
async fn late_close_delivery_is_ignored_after_a_reopen() {
    let mut w = world_of_files().await;
    w.comes_to_the_gate().await;
    let (repo, issue, maya) = (w.repo, w.issue, w.user("maya"));
    w.with_failed_webhooks(|hub| hub.close_issue(repo, issue, maya).unwrap()).await;
    w.hub.reopen(repo, issue, maya).unwrap();
    w.settle().await;
    assert_eq!(w.sweep().await, 1);
    w.stands(RunViewStatus::Asking).await;

    let pull = w.hub.pulls(repo).pop().expect("the run opened one").number;
    w.with_failed_webhooks(|hub| hub.close_issue(repo, pull, maya).unwrap()).await;
    w.hub.reopen(repo, pull, maya).unwrap();
    w.settle().await;
    assert_eq!(w.sweep().await, 1);
    // a reopened pull request is not closed either
    w.stands(RunViewStatus::Asking).await;

    w.with_failed_webhooks(|hub| hub.close_issue(repo, pull, maya).unwrap()).await;
    assert_eq!(w.sweep().await, 1);
    w.wait(60).await;
    // a pull request that stays closed stops the run
    w.stands(RunViewStatus::Stopped).await;
}

/// The way in which a delivery arrives late.
#[derive(Clone, Copy, Debug)]
enum Late {
    Swept,
    Redelivered,
}

impl World {
    async fn deliver_late(&mut self, how: Late) {
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
async fn late_close_event_of_an_old_pull_request_does_not_stop_a_newer_run() {
    for how in [Late::Swept, Late::Redelivered] {
        let mut w = world_of_files().await;
        let (repo, issue, maya) = (w.repo, w.issue, w.user("maya"));
        w.comes_to_the_gate().await;
        w.comment("maya", "/stop").await;
        w.wait(60).await;
        w.stands(RunViewStatus::Stopped).await;
        let old = w.pull_number();
        w.with_failed_webhooks(|hub| hub.close_issue(repo, old, maya).unwrap()).await;
        w.hub.label(repo, issue, maya, LABEL).unwrap();
        w.step(2).await;
        let run = w.run().await.unwrap();
        assert!(w.runs_begun() == 2 && run.status.is_live() && run.gate.is_none(), "{how:?}");
        w.pass(180);
        w.deliver_late(how).await;
        w.wait(60).await;
        w.stands(RunViewStatus::Asking).await;
        let new = w.hub.pulls(repo).pop().unwrap().number;
        assert_ne!(new, old, "the newer run opened its own pull request");

        // Closing the newer run's own pull request stops it, even if the delivery is late.
        w.with_failed_webhooks(|hub| hub.close_issue(repo, new, maya).unwrap()).await;
        w.pass(180);
        w.deliver_late(how).await;
        w.wait(60).await;
        w.stands(RunViewStatus::Stopped).await;
    }
}

#[tokio::test]
#[ignore = "takes long"]
async fn closing_a_pull_request_stops_the_newer_run_that_reuses_it() {
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
async fn redelivered_close_or_label_event_is_ignored_after_a_reopen_or_unlabel() {
    let mut w = world().await;
    w.comes_to_the_gate().await;
    let (repo, issue, maya) = (w.repo, w.issue, w.user("maya"));
    w.with_failed_webhooks(|hub| hub.close_issue(repo, issue, maya).unwrap()).await;
    w.hub.reopen(repo, issue, maya).unwrap();
    w.settle().await;
    w.pass(180);
    w.deliver_late(Late::Redelivered).await;
    w.settle().await;
    // the issue was reopened
    w.stands(RunViewStatus::Asking).await;

    w.comment("maya", "/stop").await;
    w.wait(60).await;
    w.with_failed_webhooks(|hub| hub.label(repo, issue, maya, LABEL).unwrap()).await;
    w.hub.unlabel(repo, issue, maya, LABEL).unwrap();
    w.settle().await;
    w.pass(180);
    w.deliver_late(Late::Redelivered).await;
    w.settle().await;
    assert_eq!(w.runs_begun(), 1, "the label was removed");
    w.stands(RunViewStatus::Stopped).await;
}

#[tokio::test]
async fn late_label_delivery_is_ignored_if_the_label_was_removed_meanwhile() {
    let mut w = world().await;
    let (repo, issue, maya) = (w.repo, w.issue, w.user("maya"));
    w.with_failed_webhooks(|hub| hub.label(repo, issue, maya, LABEL).unwrap()).await;
    w.hub.unlabel(repo, issue, maya, LABEL).unwrap();
    assert_eq!(w.sweep().await, 1);
    assert!(w.run().await.is_none());

    w.pass(60);
    w.comes_to_the_gate().await;
    const STOP: &str = "countersign:stop";
    w.with_failed_webhooks(|hub| hub.label(repo, issue, maya, STOP).unwrap()).await;
    w.hub.unlabel(repo, issue, maya, STOP).unwrap();
    assert_eq!(w.sweep().await, 1);
    w.stands(RunViewStatus::Asking).await;
    w.with_failed_webhooks(|hub| hub.label(repo, issue, maya, STOP).unwrap()).await;
    assert_eq!(w.sweep().await, 1);
    w.wait(60).await;
    // a stop label that is still set stops the run
    w.stands(RunViewStatus::Stopped).await;
    assert!(!w.labels().contains(&STOP.to_owned()));
}

#[tokio::test]
#[ignore = "takes long"]
async fn start_command_delivered_late_is_refused_if_a_newer_run_exists() {
    let mut w = world().await;
    let (repo, issue, sam) = (w.repo, w.issue, w.user("sam"));
    w.with_failed_webhooks(|hub| _ = hub.comment(repo, issue, sam, "/lld").unwrap()).await;
    w.comment("maya", "/lld").await;
    w.comment("maya", "/stop").await;
    w.wait(60).await;
    assert_eq!(w.sweep().await, 1);
    assert_eq!(w.runs_begun(), 1);
    w.stands(RunViewStatus::Stopped).await;
    w.find("GitHub delivered your `/lld` late");
    w.comment("sam", "/lld").await;
    assert_eq!(w.runs_begun(), 2);
    w.stands(RunViewStatus::Asking).await;
}
