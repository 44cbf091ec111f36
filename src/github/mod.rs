//! Client for GitHub's REST and GraphQL APIs, and parser of its webhooks. No other module talks to GitHub.
//!
//! Callers see our own types: [`event::WebhookEvent`] for webhooks, [`GitHubRepo`] for calls, [`GitHubApiError`] for
//! failures. Writes are idempotent: retrying a step does not create a second object. Text written by a model is posted
//! only as [`outbound::OutboundBody`].

mod api;
mod app;
mod assumptions;
mod authors;
mod checks;
mod ci;
mod client;
mod comments;
mod commits;
mod deliveries;
mod error;
mod etag_cache;
pub mod event;
mod graphql;
mod issues;
mod key;
pub mod manifest;
mod missed_events;
pub mod outbound;
mod permissions;
mod pulls;
mod repo;
mod search;
mod uncertain_writes;
pub mod webhook;
mod wire;
mod write_pacing;

pub use api::{ApiCallCounter, RemainingRateLimits, SuppressedWrite};
pub use app::{AppInfo, GitHub, GitHubOptions, InstallationInfo, NewApp, WebhookConfig, convert_manifest};
pub use assumptions::{AssumptionCheck, AssumptionOutcome, check_read_assumptions, check_write_assumptions};
pub use checks::{
    Annotation, AnnotationLevel, CheckRunContent, CheckRunStatus, CheckRunTarget, MAX_ANNOTATIONS,
    PostedCheckRun,
};
pub use ci::{CiCheckOutcome, CiCheckReport, JobLogError};
pub use comments::{Comment, Reaction, ReactionTarget};
pub use commits::{Commit, CommitInfo, CommitSpec};
pub use deliveries::{DeliveryAttempt, DeliveryLogCursor, DeliveryLogPage};
pub use error::{GitHubApiError, GitHubClientError, GitHubValidationError, none_if_refused};
pub use event::{RepoRef, WebhookEvent};
pub use issues::{MarkedIssue, OpenIssue, append_marker};
pub use manifest::{AppManifest, CALLS};
pub use missed_events::LabelEvent;
pub use outbound::OutboundBody;
pub use pulls::{LineComment, PullRequest, PullRequestSpec};
pub use repo::{GitHubRepo, Issue, LabelChange, LabelSpec, RepoInfo, RepositoryAvailability};
pub use search::PublicRepository;
pub use write_pacing::Pacing;

#[cfg(test)]
mod tests;
