//! Stories: tests of actions that people take on an issue and of the texts that they read there. The bot and a localhub
//! communicate over real HTTP.

#![allow(clippy::unwrap_used, reason = "a test should fail where it breaks")]

mod after;
#[allow(dead_code, reason = "the provider tests use more of it")]
#[path = "../providers/anthropic.rs"]
mod anthropic;
mod apis;
mod approvals;
mod bad_code;
mod bad_input;
mod beyond;
mod branch;
mod chance;
mod checks;
mod chromium;
mod degraded;
mod doors;
mod endless;
mod faults;
mod gemini;
mod hands;
mod hidden;
mod implement;
mod in_line;
mod inline_tests;
mod insisted;
mod intake;
mod issue;
mod joined;
mod known;
mod languages;
mod lineage;
mod lld;
mod local;
mod long_log;
mod looks;
mod made;
mod missed;
mod models;
mod money;
mod operator;
mod outage;
mod own_checks;
mod paced;
mod pages;
mod pages_runs;
mod patience;
mod people;
mod pools;
mod posted;
#[path = "../house/postgres.rs"]
#[allow(dead_code, reason = "each test binary uses another part of it")]
mod postgres;
mod prompts;
mod proofs;
#[path = "../crash/random.rs"]
#[allow(dead_code, reason = "the crash tests use other parts of it")]
mod random;
mod reckless;
mod refusals;
mod released;
mod requests;
mod resumed;
mod reviewed_again;
mod roles;
mod route;
mod scout;
mod script;
mod settled;
mod shell;
mod spec;
mod states;
mod strangers;
mod threads;
mod toys;
mod tricks;
mod unasked;
mod unseen;
mod verdicts;
mod watched;
#[allow(dead_code, reason = "the crash tests use other parts of it")]
mod world;

/// Serves a router on a free local port until the test's runtime ends. Returns the server's URL.
async fn serve(router: axum::Router) -> url::Url {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, router).await });
    format!("http://{address}").parse().unwrap()
}
