//! Limits and timeouts that several modules share, each with its reason. A limit that only one module uses is defined
//! in that module.

use std::time::Duration;

/// Maximum size of a webhook body. GitHub sends no body above 25 MB, and axum's default limit of 2 MB would refuse
/// valid bodies.
pub const WEBHOOK_BODY_BYTES: usize = 25 * 1024 * 1024;

/// Maximum number of characters that GitHub accepts in an issue comment, issue body or pull request body.
pub const BODY_CHARS: usize = 65_536;

/// Minimum interval between two edits of a status comment, because GitHub limits the rate of writes.
pub const STATUS_EDIT_GAP: Duration = Duration::from_secs(10);

/// Minimum time for which an artifact must have been visible without changes before an `/approve` without a hash is
/// accepted. Before that, the person may have seen only the previous artifact.
pub const SEEN_BEFORE_APPROVAL: Duration = Duration::from_secs(10);

/// Timeout for reading trees and blobs from a local Git mirror.
pub const GIT_READ: Duration = Duration::from_secs(60);

/// Maximum number of attempts at a step that returns `Bug` or panics. After the last attempt, the run fails.
pub const STEP_ATTEMPTS: u32 = 5;

/// Maximum number of steps that run at the same time in one process. The default worker pools hold 14 model programs,
/// so other steps can run while those 14 are waiting.
pub const LIVE_STEPS: usize = 24;

/// Maximum size of a document written by a model. Nobody would read a longer design.
pub const DOCUMENT_BYTES: usize = 256 * 1024;

/// Maximum number of characters of an issue shown to a model.
pub const ISSUE_CHARS: usize = 60_000;

/// Maximum size of a child process's standard output. A process that writes more is killed.
pub const CHILD_OUTPUT_BYTES: usize = 32 * 1024 * 1024;

/// Maximum number of bytes kept of a child process's standard error. The last bytes are kept, because they contain the
/// reason for a failure.
pub const CHILD_ERROR_BYTES: usize = 64 * 1024;

/// Time between SIGTERM and SIGKILL for a child process, which is enough to close its files.
pub const CHILD_KILL_DELAY: Duration = Duration::from_secs(2);

/// Timeout of a streamed model response while no data arrives. The whole response may take longer.
pub const MODEL_IDLE: Duration = Duration::from_secs(90);

/// Maximum size of an HTTP response of a model API. Real responses reach a few hundred kilobytes.
pub const MODEL_ANSWER_BYTES: usize = 8 * 1024 * 1024;

/// Maximum time to wait for GitHub's rate limit. The primary window is an hour, so a header that names a much longer
/// wait indicates a wrong clock.
pub const RATE_WAIT: Duration = Duration::from_secs(3900);

/// Time to wait after a rate limit response that names no duration. GitHub's documentation asks for a minute.
pub const RATE_PAUSE: Duration = Duration::from_secs(60);

/// Maximum number of pages, of 100 items each, that are read of one listing.
pub const GITHUB_PAGES: usize = 50;

/// Maximum size of a file read from a Git mirror. Larger files are never shown to a model.
pub const BLOB_BYTES: u64 = 8 * 1024 * 1024;

/// Delay before reading the database of a repository is retried after it could not be read.
pub const DAMAGED_RETRY: Duration = Duration::from_secs(60);

/// Delay before the first retry of a step that failed because of a bug in Countersign. The delay is doubled for each
/// further retry.
pub const STEP_BACKOFF: Duration = Duration::from_secs(5);

/// Lease duration of a server that shares a Postgres database. It is longer than a database takes to fail over to its
/// replica.
pub const NODE_LEASE: Duration = Duration::from_secs(45);

/// Maximum sleep of the scheduler loop, so that it soon notices the lost time after the machine was suspended.
pub const LONGEST_SLEEP: Duration = Duration::from_secs(60);

/// Minimum delay before a delivery is retried; [`DELIVERY_LONGEST_RETRY`] is the maximum. In between, the delay is a
/// quarter of the delivery's age. So a short fault delays people by seconds only, and a long one causes few calls to
/// GitHub.
pub const DELIVERY_RETRY: Duration = Duration::from_secs(5);
pub const DELIVERY_LONGEST_RETRY: Duration = Duration::from_secs(300);

/// Maximum number of server starts that may crash while processing one delivery. After that, the delivery is considered
/// the cause.
pub const DELIVERY_CRASHES: u32 = 20;

/// Maximum number of connections of the public listener; [`OPERATOR_CONNECTIONS`] is the maximum of each operator
/// listener. A reverse proxy opens a few dozen connections. No listener uses more than one
/// [`CONNECTION_SHARE_OF_FILES`]th of the open-file limit, because the databases need the rest.
pub const PUBLIC_CONNECTIONS: usize = 256;
pub const OPERATOR_CONNECTIONS: usize = 32;
pub const CONNECTION_SHARE_OF_FILES: usize = 4;

/// Maximum number of concurrent steps of one repository; [`INSTALLATION_STEPS`] is the maximum of all repositories of
/// one installation. These limits leave workers to other repositories and installations, and leave some steps to work
/// that runs no model program.
pub const REPOSITORY_STEPS: usize = 16;
pub const INSTALLATION_STEPS: usize = 20;

/// Maximum number of repository databases that are open at once. Each uses a connection and two files. Reopening one
/// takes a fraction of a millisecond.
pub const OPEN_REPOSITORIES: usize = 64;

/// Interval between searches of GitHub's delivery log for deliveries that never arrived.
pub const SWEEP_EVERY: Duration = Duration::from_secs(600);

/// Maximum number of pages, of 100 entries each, per section of the delivery log; [`SWEEP_PARTS`] is the maximum number
/// of sections per sweep. Two sections are in memory at once. Together, the two limits cover more than GitHub keeps for
/// the busiest App.
pub const SWEEP_PAGES: usize = 100;
pub const SWEEP_PARTS: usize = 100;

/// Time, counted from its arrival, for which a postponed delivery blocks later deliveries about the same issue. Most
/// GitHub faults are over by then, and a delivery that still fails will most likely never succeed.
pub const DELIVERY_HOLD_TIME: Duration = Duration::from_secs(600);

/// Maximum number of bytes in memory for delivery bodies that are being received or not yet committed. Above this
/// limit, the server responds 503. GitHub then keeps the delivery in its log, and a sweep fetches it later.
pub const PENDING_DELIVERY_BYTES: usize = 64 * 1024 * 1024;

/// Minimum number of bytes counted for a request, even if its body is small. They account for the request's buffers and
/// queue entry.
pub const LEAST_REQUEST_BYTES: usize = 4096;

/// Interval between cleanups of expired rows. [`TIDY_ROWS`] is the maximum number of rows deleted at a time, so that
/// other work is not delayed.
pub const TIDY_EVERY: Duration = Duration::from_secs(3600);
pub const TIDY_ROWS: u64 = 500;

/// Delay between the two lookups of a write whose response was lost. GitHub's replicas rarely lag by several seconds.
pub const LOOKUP_INTERVAL: Duration = Duration::from_secs(5);

/// Time for which GitHub is asked again for an object that it does not return, before the object counts as missing.
/// GitHub's reads lag its webhooks and its writes.
pub const GITHUB_LAG: Duration = Duration::from_secs(120);

/// Interval at which a step polls its job. With SQLite, a poll neither reads nor writes the database. Between the end
/// of the job and the next poll, the run makes no progress.
pub const JOB_POLL_INTERVAL: Duration = Duration::from_millis(500);

/// Busy timeout of SQLite connections.
pub const SQLITE_BUSY_TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum number of postponed deliveries that are woken at once, so that other work is not delayed if many become due
/// together.
pub const WAKE_ROWS: u64 = 500;

/// Number of bytes per token of the densest text that we expect. Budget reservations instead assume one byte per token,
/// which no text can go below.
pub const FEWEST_BYTES_A_TOKEN: u64 = 2;

/// Cooldown of a route after repeated failures.
pub const BREAKER_COOLDOWN: Duration = Duration::from_secs(60);

/// Maximum number of response tokens for each kind of task, including thinking; given by this constant and the four
/// below. If a model supports fewer tokens, the model's own maximum applies. Most of a call's reserved budget is for
/// the longest possible response.
pub const DOCUMENT_TOKENS: u64 = 32_000;
pub const CHANGE_TOKENS: u64 = 64_000;
pub const EDITS_TOKENS: u64 = 24_000;
pub const VERDICT_TOKENS: u64 = 24_000;
pub const WORD_TOKENS: u64 = 8_000;

/// Minimum time for which a busy, broken or slow model service is retried before the run gives up.
pub const MODEL_RETRY_WINDOW: Duration = Duration::from_secs(15 * 60);

/// Cooldown of an API key after a rate limit response that names no duration. Providers count requests per minute.
pub const RATE_COOLDOWN: Duration = Duration::from_secs(60);

/// Cooldown of an account whose quota is exhausted, if the provider names no reset time. The account is retried hourly,
/// because someone may have paid in the meantime.
pub const QUOTA_COOLDOWN: Duration = Duration::from_secs(3600);

/// Minimum cooldown, even if the provider names a shorter one; it prevents an immediate retry. [`LONGEST_COOLDOWN`] is
/// the maximum: no quota lasts longer than a day, which has up to 25 hours.
pub const SHORTEST_COOLDOWN: Duration = Duration::from_secs(1);
pub const LONGEST_COOLDOWN: Duration = Duration::from_secs(25 * 3600);

/// Number of bytes per token of usual prose and source text; a low estimate for the vocabularies of open models. A
/// prompt that is too long by this estimate is not sent to a model that would silently truncate it.
pub const USUAL_BYTES_A_TOKEN: u64 = 3;

/// Maximum number of response tokens, including thinking, even if the model supports more. A call reserves budget for
/// all of them. The default budget per call covers this reservation even for the most expensive model with a long
/// prompt.
pub const ANSWER_TOKENS: u64 = 100_000;

/// Maximum number of tokens for the role names and other markers of a chat.
pub const CHAT_FRAME_TOKENS: u64 = 256;

/// Timeout for a program's version command. The command takes a second on a busy machine, and some programs start a
/// whole runtime for it.
pub const VERSION_TIME: Duration = Duration::from_secs(20);

/// Maximum number of tokens of repository context shown to a model, about 60 KB of source text. In the smallest default
/// window (32,000 tokens), this leaves 14,000 tokens for everything else.
pub const CONTEXT_TOKENS: usize = 18_000;

/// Maximum number of ranked files that may be shown to a model. Also used as the maximum number of files that a
/// document may name as files to change.
pub const CONTEXT_FILES: usize = 60;

/// Maximum number of bytes of a text that is used to find similar code. This is the size of the largest design, and
/// more than any issue can hold.
pub const SIMILAR_TEXT: usize = 256 * 1024;

/// Maximum number of distinct words of a text that are used to find similar code. More words make the ranking slower
/// and rarely better.
pub const SIMILAR_WORDS: usize = 200;

/// Maximum number of bytes of an imported module's name. Longer names are not looked up.
pub const IMPORT_LENGTH: usize = 500;

/// Maximum size of a source file to summarise. A larger file is most likely generated code.
pub const SUMMARY_BYTES: usize = 1_000_000;

/// Maximum number of items in a file's summary.
pub const SUMMARY_ITEMS: usize = 5_000;

/// Maximum number of bytes of an import statement to parse.
pub const IMPORT_BYTES: usize = 8_192;

/// Number of bytes counted per item of a summary, in addition to the item's texts.
pub const SUMMARY_ITEM_BYTES: usize = 16;

/// Maximum nesting depth of items in a summary. It is limited because the code that reads summaries is recursive.
pub const SUMMARY_NESTING: usize = 16;

/// Maximum number of bytes of a constant's value that are included in the constant's signature.
pub const SUMMARY_VALUE_BYTES: usize = 80;

/// Maximum number of lines of a signature; [`SIGNATURE_BYTES`] is the maximum number of bytes. A longer signature is
/// truncated at a line end.
pub const SIGNATURE_LINES: usize = 40;
pub const SIGNATURE_BYTES: usize = 2_000;

/// Maximum number of bytes of a name. Longer names are ignored.
pub const NAME_BYTES: usize = 100;

/// Maximum number of files returned as similar code, which is more than any prompt can hold.
pub const SIMILAR_OFFERS: usize = 100;
