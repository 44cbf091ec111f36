//! Countersign: a GitHub App that ships nothing a second model family and a human have not signed.
//!
//! The story of one webhook:
//!
//! 1. [`web`] takes `POST /webhook`. [`github::webhook`] checks the signature over the raw bytes, and
//!    [`store`] commits them to the inbox. Only then is 202 answered. Nothing
//!    that could not be parsed has kept it out.
//! 2. [`intake`] takes the row, reads it as an [`WebhookEvent`](github::WebhookEvent), and asks what it means: a label or a
//!    command ([`commands`]) by someone whose role GitHub confirms now. It reacts with 👀 and asks the engine's
//!    [`EnginePort`](engine::EnginePort) to start a run, or hands it an answer.
//! 3. [`engine`] claims the run, and runs one step at a time. After each it commits step and state together; inside
//!    one, everything that costs or shows goes through `AttemptContext::once`, intent first and result after. Kill the process
//!    anywhere: the run goes on from its last checkpoint.
//! 4. [`workflows::lld`] says which steps there are and what may follow what; the [`stage`] is what they do. It goes
//!    through the [`rounds`]: draft by one family of models
//!    ([`providers`]), checks by code ([`documents`]), review by another family, and so on until it stands or a
//!    person must decide.
//! 5. The run asks. [`messages`] writes the gate comment, [`github`] posts it so that posting it twice leaves one,
//!    and the run sleeps in the database; no memory waits with it.
//! 6. `/approve` comes in by the door of step 1. The engine matches it to the gate by what the approval is *of*,
//!    the step looks at the world once more, and only a
//!    [`Countersignature`](engine::Countersignature), made from stored rows, can be published.
//!
//! Modules stand on floors. Each may use those below it and none beside or above; a test holds that.

// [0]
pub mod limits;
mod panics;
pub mod types;
// [1]
pub mod clock;
pub mod config;
pub mod proc;
// [2]
pub mod documents;
pub mod egress;
pub mod git;
pub mod store;
// [3]
pub mod github;
pub mod providers;
pub mod sandbox;
// [4]
pub mod codebase;
pub mod commands;
pub mod messages;
pub mod runners;
// [5]
pub mod agents;
// [6]
pub mod engine;
// [7]
pub mod rounds;
// [8]
pub mod publication;
// [9]
pub mod stage;
// [10]
pub mod workflows;
// [11]
pub mod intake;
// [12]
pub mod traces;
// [13]
pub mod web;
// On top, wiring; and beside them all a small GitHub for rehearsals, which knows only `types`.
pub mod app;
pub mod cli;
pub mod localhub;
