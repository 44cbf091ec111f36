//! Countersign: a GitHub App that publishes nothing until a second model family and a person have approved it.
//!
//! How one webhook becomes a published document:
//!
//! 1. [`web`] takes `POST /webhook`, [`github::webhook`] checks the signature over the raw bytes, and [`store`] commits
//!    them to the inbox. Only then does the server answer 202. A body that cannot be parsed is stored like any other.
//! 2. [`intake`] takes the row and parses it as a [`WebhookEvent`](github::WebhookEvent): a label or a command
//!    ([`commands`]) by a user whose current role is read from GitHub. It reacts with 👀. Then it asks the engine's
//!    [`EnginePort`](engine::EnginePort) to start a run, or passes a person's answer to it.
//! 3. [`engine`] claims the run and executes one step at a time. It commits the step and the run's new state together.
//!    Inside a step, each paid or visible action goes through `AttemptContext::once`, which records the intent first
//!    and the result after. A run whose process is killed resumes from its last checkpoint.
//! 4. [`workflows::lld`] defines the steps and the edges between them; [`stage`] implements the steps. A stage runs
//!    [`rounds`]: one family of models drafts ([`providers`]), code checks the draft ([`documents`]), another family
//!    reviews it. Rounds repeat until the draft is approved or a person must decide.
//! 5. At a gate, [`messages`] renders the comment, and [`github`] posts it in such a way that a retry creates no second
//!    comment. The waiting run is a row in the database and uses no memory.
//! 6. `/approve` arrives like any webhook (step 1). The engine matches it to the gate by stage and by the hash
//!    of the gate's subject, and the step checks the issue and repository again. Publishing requires a
//!    [`Countersignature`](engine::Countersignature), which is built from stored rows only.
//!
//! Modules form layers: each may use the layers below it, but neither its own layer nor those above. A test checks
//! this.

// Layer 0
pub mod limits;
mod panics;
pub mod types;
// Layer 1
pub mod clock;
pub mod config;
pub mod proc;
// Layer 2
pub mod documents;
pub mod egress;
pub mod git;
pub mod store;
// Layer 3
pub mod github;
pub mod providers;
pub mod sandbox;
// Layer 4
pub mod codebase;
pub mod commands;
pub mod messages;
pub mod runners;
// Layer 5
pub mod agents;
// Layer 6
pub mod engine;
// Layer 7
pub mod rounds;
// Layer 8
pub mod publication;
// Layer 9
pub mod stage;
// Layer 10
pub mod workflows;
// Layer 11
pub mod intake;
// Layer 12
pub mod traces;
// Layer 13
pub mod web;
// Above all layers: wiring, the command line, and a small GitHub for rehearsals, which uses only `types`.
pub mod app;
pub mod cli;
pub mod localhub;
