//! The only place that speaks to GitHub: who we are there, what was delivered, what may be asked,
//! and how a thing is written so that writing it twice leaves one.
//!
//! Everything above this room sees its own types: [`event::Event`] for what happened, [`Repo`] for
//! what can be done, [`Fault`] for what went wrong. No text a model wrote leaves but as
//! [`outbound::Body`].

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
mod doubt;
mod error;
mod etags;
pub mod event;
mod graphql;
mod issues;
mod key;
mod listings;
pub mod manifest;
pub mod outbound;
mod pace;
mod permit;
mod pulls;
mod repo;
mod search;
pub mod webhook;
mod wire;

pub use api::{Counter, Left, Unsent};
pub use app::{AppInfo, GitHub, GitHubOptions, HookConfig, InstallationInfo, NewApp, convert_manifest};
pub use assumptions::{Looked, Seen, look, write};
pub use checks::{ANNOTATIONS, Annotation, AnnotationLevel, CheckPlace, CheckSeen, CheckState, CheckText};
pub use ci::{NoLog, Report, ReportOutcome};
pub use comments::{Comment, On, Reaction};
pub use commits::{Commit, CommitInfo, CommitSpec};
pub use deliveries::{Attempt, Further, LogPage};
pub use error::{Fault, GitHubError, Problem, decorated};
pub use event::{Event, RepoRef};
pub use issues::{OpenIssue, Written, marked};
pub use listings::Labeling;
pub use manifest::{CALLS, Manifest};
pub use outbound::Body;
pub use pace::Pacing;
pub use pulls::{LineComment, Pull, PullSpec};
pub use repo::{Issue, LabelChange, LabelSpec, Repo, RepoInfo, Whereabouts};
pub use search::Found;

#[cfg(test)]
mod tests;
