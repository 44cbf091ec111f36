//! Every cap and timeout in one place, each with its reason.

use std::time::Duration;

/// GitHub sends no webhook above 25 MB; axum's own default of 2 MB would refuse real ones.
pub const WEBHOOK_BODY_BYTES: usize = 25 * 1024 * 1024;

/// GitHub refuses an issue comment, issue body or pull request body above this many characters.
pub const BODY_CHARS: usize = 65_536;

/// Edits of a status comment are at least this far apart: each one is a write that GitHub paces.
pub const STATUS_EDIT_GAP: Duration = Duration::from_secs(10);

/// A bare `/approve` counts only when its artifact had been on the page this long, unchanged:
/// otherwise the writer may have been looking at the one before.
pub const SEEN_BEFORE_APPROVAL: Duration = Duration::from_secs(10);

/// One REST call, from the first byte sent to the last received.
pub const GITHUB_CALL: Duration = Duration::from_secs(30);

/// An installation token lives an hour; one this close to its end is not used for new work.
pub const TOKEN_MARGIN: Duration = Duration::from_secs(120);

/// Fetching a mirror; a first fetch of a large repository is the slowest thing git does for us.
pub const GIT_FETCH: Duration = Duration::from_secs(600);

/// Reading trees and blobs from a mirror that is already here.
pub const GIT_READ: Duration = Duration::from_secs(60);

/// A language model's whole answer. The longest `once` there is; shutdown waits a little longer.
pub const MODEL_CALL: Duration = Duration::from_secs(300);

/// Shutdown awaits paid calls in flight this long before it parks their runs.
pub const SHUTDOWN: Duration = Duration::from_secs(330);

/// One journalled value; longer texts go through `Cx::put`, which stores them by hash.
pub const JOURNAL_VALUE_BYTES: usize = 64 * 1024;

/// All journalled values of one visit to a step.
pub const JOURNAL_VISIT_BYTES: usize = 1024 * 1024;

/// Attempts at a step that ends in `Bug` or a panic before its run is buried.
pub const STEP_ATTEMPTS: u32 = 5;

/// Runs that take a step at the same time in one process.
pub const LIVE_STEPS: usize = 16;

/// A document a model wrote; a design longer than this is not one a person will read.
pub const DOCUMENT_BYTES: usize = 256 * 1024;

/// How much of an issue's text a model is shown.
pub const ISSUE_CHARS: usize = 60_000;

/// What of the repository the drafter is shown, in bytes.
pub const EXCERPT_BYTES: usize = 60_000;

/// Standard output a child process may produce before it is killed.
pub const CHILD_OUTPUT_BYTES: usize = 32 * 1024 * 1024;

/// A repository whose database cannot be read is looked at again after this long.
pub const DAMAGED_RETRY: Duration = Duration::from_secs(60);

/// The first wait after a step failed by our own fault; doubled each time.
pub const STEP_BACKOFF: Duration = Duration::from_secs(5);

/// The longest the live loop sleeps: a machine that was suspended must notice the time it lost.
pub const LONGEST_NAP: Duration = Duration::from_secs(60);
