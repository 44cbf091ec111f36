//! Caps and timeouts that several modules share, each with its reason. A limit that only one module uses is defined in
//! that module.

use std::time::Duration;

/// Maximum size of a webhook body. GitHub sends no body above 25 MB; axum's default of 2 MB would refuse valid ones.
pub const WEBHOOK_BODY_BYTES: usize = 25 * 1024 * 1024;

/// Maximum characters of an issue comment, issue body or pull request body on GitHub.
pub const BODY_CHARS: usize = 65_536;

/// Minimum interval between edits of a status comment: each edit is a write that GitHub paces.
pub const STATUS_EDIT_GAP: Duration = Duration::from_secs(10);

/// Minimum time an artifact must be visible, unchanged, before an `/approve` without a hash is accepted. Before that,
/// the person may have seen only the previous artifact.
pub const SEEN_BEFORE_APPROVAL: Duration = Duration::from_secs(10);

/// Timeout for reading trees and blobs from a local mirror.
pub const GIT_READ: Duration = Duration::from_secs(60);

/// Maximum attempts at a step that returns `Bug` or panics. Then the run fails.
pub const STEP_ATTEMPTS: u32 = 5;

/// Maximum steps that run at the same time in one process. The default worker pools hold 14 model programs, so other
/// steps can run while those wait.
pub const LIVE_STEPS: usize = 24;

/// Maximum size of a document that a model wrote. Nobody reads a longer design.
pub const DOCUMENT_BYTES: usize = 256 * 1024;

/// Maximum characters of an issue's text shown to a model.
pub const ISSUE_CHARS: usize = 60_000;

/// Maximum standard output of a child process; a process that writes more is killed.
pub const CHILD_OUTPUT_BYTES: usize = 32 * 1024 * 1024;

/// Maximum standard error kept of a child process. The end is kept, since it holds the reason for a failure.
pub const CHILD_ERROR_BYTES: usize = 64 * 1024;

/// Time between SIGTERM and SIGKILL for a child process: enough to close a file.
pub const CHILD_KILL_DELAY: Duration = Duration::from_secs(2);

/// Idle timeout of a streamed model response. The whole response may take longer.
pub const MODEL_IDLE: Duration = Duration::from_secs(90);

/// Maximum size of an HTTP response of a model API; real ones reach a few hundred kilobytes.
pub const MODEL_ANSWER_BYTES: usize = 8 * 1024 * 1024;

/// Longest wait for GitHub's rate limit. The primary window is an hour; a header that names a longer wait comes from a
/// wrong clock.
pub const RATE_WAIT: Duration = Duration::from_secs(3900);

/// Wait after a rate limit without a duration; GitHub's documentation asks for a minute.
pub const RATE_PAUSE: Duration = Duration::from_secs(60);

/// Maximum pages of 100 items that one listing reads.
pub const GITHUB_PAGES: usize = 50;

/// Maximum size of a file read from a mirror; a model never sees a larger one.
pub const BLOB_BYTES: u64 = 8 * 1024 * 1024;

/// Delay before a repository whose database cannot be read is tried again.
pub const DAMAGED_RETRY: Duration = Duration::from_secs(60);

/// First retry delay after a step failed by our own fault; doubled each time.
pub const STEP_BACKOFF: Duration = Duration::from_secs(5);

/// Lease of a server that shares a Postgres database. Longer than a database takes to fail over to its replica.
pub const NODE_LEASE: Duration = Duration::from_secs(45);

/// Longest sleep of the scheduler loop: a machine that was suspended must notice the lost time.
pub const LONGEST_SLEEP: Duration = Duration::from_secs(60);

/// Shortest delay before a delivery is retried; [`DELIVERY_LONGEST_RETRY`] is the longest. In between, the delay is a
/// quarter of the delivery's age, so that a short fault costs people seconds and a long one costs GitHub few calls.
pub const DELIVERY_RETRY: Duration = Duration::from_secs(5);
pub const DELIVERY_LONGEST_RETRY: Duration = Duration::from_secs(300);

/// Number of server starts that may crash on one delivery. After that, the delivery is considered the cause.
pub const DELIVERY_CRASHES: u32 = 20;

/// Maximum connections of the public listener; [`OPERATOR_CONNECTIONS`] is that of each operator listener. A proxy in
/// front opens some dozens. No listener takes more than one [`CONNECTION_SHARE_OF_FILES`]th of the open-file limit,
/// because the databases need the rest.
pub const PUBLIC_CONNECTIONS: usize = 256;
pub const OPERATOR_CONNECTIONS: usize = 32;
pub const CONNECTION_SHARE_OF_FILES: usize = 4;

/// Maximum concurrent steps of one repository; [`INSTALLATION_STEPS`] is that of all repositories of one installation.
/// So a busy repository or installation leaves workers to other ones, and model programs leave some steps to other
/// work.
pub const REPOSITORY_STEPS: usize = 16;
pub const INSTALLATION_STEPS: usize = 20;

/// Maximum repository databases open at once, each with a connection and two files. Reopening one takes a fraction of a
/// millisecond.
pub const OPEN_REPOSITORIES: usize = 64;

/// Interval between checks of GitHub's delivery log for deliveries that never arrived.
pub const SWEEP_EVERY: Duration = Duration::from_secs(600);

/// Pages of 100 entries per part of the delivery log; [`SWEEP_PARTS`] is the maximum number of parts per check. Two
/// parts are in memory at once. Together the limits exceed what GitHub keeps of the busiest App.
pub const SWEEP_PAGES: usize = 100;
pub const SWEEP_PARTS: usize = 100;

/// Time for which a deferred delivery blocks later deliveries about the same issue, counted from its arrival. Most
/// GitHub faults are over by then; a delivery that still fails most likely never succeeds.
pub const DELIVERY_HOLD_TIME: Duration = Duration::from_secs(600);

/// Maximum bytes of delivery bodies in memory that are arriving or not yet committed. Beyond it the server answers 503;
/// GitHub keeps the delivery and the sweep fetches it.
pub const PENDING_DELIVERY_BYTES: usize = 64 * 1024 * 1024;

/// Minimum bytes counted for a request, however small its body: its buffers and its queue entry.
pub const LEAST_REQUEST_BYTES: usize = 4096;

/// Interval between cleanups of expired rows. [`TIDY_ROWS`] is the maximum of rows deleted at a time, so that other
/// work is not delayed.
pub const TIDY_EVERY: Duration = Duration::from_secs(3600);
pub const TIDY_ROWS: u64 = 500;

/// Delay between two lookups of a write whose response was lost. GitHub's replicas seldom lag by seconds.
pub const LOOKUP_INTERVAL: Duration = Duration::from_secs(5);

/// Time for which an object that GitHub does not show is looked up again before it counts as missing. GitHub's reads
/// lag its webhooks and its writes.
pub const GITHUB_LAG: Duration = Duration::from_secs(120);

/// Interval at which a step polls its job. With SQLite a poll neither reads nor writes. The run makes no progress
/// between the job's end and the next poll.
pub const JOB_POLL_INTERVAL: Duration = Duration::from_millis(500);

/// SQLite busy timeout.
pub const SQLITE_BUSY_TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum deferred deliveries woken at once, so that other work is not delayed when all are due together.
pub const WAKE_ROWS: u64 = 500;

/// Bytes per token of the densest text we expect. Budget reservations assume one byte per token, which is the strict
/// minimum.
pub const FEWEST_BYTES_A_TOKEN: u64 = 2;

/// Cooldown after repeated failures of a route.
pub const BREAKER_COOLDOWN: Duration = Duration::from_secs(60);

/// Maximum response tokens by task, thinking included: this constant and the four below. A model with a lower maximum
/// uses its own. Most of a call's reserved budget is for its longest response.
pub const DOCUMENT_TOKENS: u64 = 32_000;
pub const CHANGE_TOKENS: u64 = 64_000;
pub const EDITS_TOKENS: u64 = 24_000;
pub const VERDICT_TOKENS: u64 = 24_000;
pub const WORD_TOKENS: u64 = 8_000;

/// Minimum time to retry a busy, broken or slow model service before the run gives up.
pub const MODEL_RETRY_WINDOW: Duration = Duration::from_secs(15 * 60);

/// Cooldown of a key whose provider rate-limits it without a duration: providers count per minute.
pub const RATE_COOLDOWN: Duration = Duration::from_secs(60);

/// Cooldown of an account whose quota is used up without a reset time. It is retried hourly, since someone may have
/// paid.
pub const QUOTA_COOLDOWN: Duration = Duration::from_secs(3600);

/// Shortest cooldown, whatever the provider names; it prevents an immediate retry. [`LONGEST_COOLDOWN`] is the longest:
/// no quota lasts longer than a day, which may have 25 hours.
pub const SHORTEST_COOLDOWN: Duration = Duration::from_secs(1);
pub const LONGEST_COOLDOWN: Duration = Duration::from_secs(25 * 3600);

/// Bytes per token of usual prose and source text, a low estimate for the vocabularies of open models. A prompt too
/// long by this measure is not sent to a model that would silently truncate it.
pub const USUAL_BYTES_A_TOKEN: u64 = 3;

/// Maximum response tokens, thinking included, whatever the model supports. A call reserves all of it, and the default
/// cap per call covers it for the most expensive model with a long prompt.
pub const ANSWER_TOKENS: u64 = 100_000;

/// Maximum tokens of a chat's own markers and role names.
pub const CHAT_FRAME_TOKENS: u64 = 256;

/// Timeout for a program's version command. It takes a second on a busy machine, and some programs start a whole
/// runtime for it.
pub const VERSION_TIME: Duration = Duration::from_secs(20);

/// Maximum tokens of repository context shown to a model: about 60 KB of source text. It leaves 14,000 tokens of the
/// smallest default window (32,000) for everything else.
pub const CONTEXT_TOKENS: usize = 18_000;

/// Maximum ranked files that may be shown to a model, also used as the maximum of files that a text may name as files
/// to change.
pub const CONTEXT_FILES: usize = 60;

/// Maximum bytes of a text used to find similar code: the largest design, and more than any issue can hold.
pub const SIMILAR_TEXT: usize = 256 * 1024;

/// Maximum distinct words of a text used to find similar code. More words make the ranking slower and rarely better.
pub const SIMILAR_WORDS: usize = 200;

/// Maximum bytes of an imported module's name; longer ones are not looked up.
pub const IMPORT_LENGTH: usize = 500;

/// Maximum size of a source file to summarise. A file of a megabyte is generated code.
pub const SUMMARY_BYTES: usize = 1_000_000;

/// Maximum items in a file's summary.
pub const SUMMARY_ITEMS: usize = 5_000;

/// Maximum bytes of an import statement to parse.
pub const IMPORT_BYTES: usize = 8_192;

/// Bytes counted per item of a summary, on top of its texts.
pub const SUMMARY_ITEM_BYTES: usize = 16;

/// Maximum nesting of items in a summary, because the code that reads summaries is recursive.
pub const SUMMARY_NESTING: usize = 16;

/// Maximum bytes of a constant's value that is included in its signature.
pub const SUMMARY_VALUE_BYTES: usize = 80;

/// Maximum lines of a signature; [`SIGNATURE_BYTES`] is the maximum of its bytes. A longer signature is cut after whole
/// lines.
pub const SIGNATURE_LINES: usize = 40;
pub const SIGNATURE_BYTES: usize = 2_000;

/// Maximum bytes of a name; longer names are ignored.
pub const NAME_BYTES: usize = 100;

/// Maximum files offered as similar code: more than any prompt holds.
pub const SIMILAR_OFFERS: usize = 100;
