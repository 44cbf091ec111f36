//! Caps and timeouts, each with its reason. One that nobody else needs to know stands beside its only user.

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

/// Reading trees and blobs from a mirror that is already here.
pub const GIT_READ: Duration = Duration::from_secs(60);

/// Attempts at a step that ends in `Bug` or a panic before its run is buried.
pub const STEP_ATTEMPTS: u32 = 5;

/// Runs that take a step at the same time in one process. More than wait for programs of models, which are 14 where
/// the settings say nothing else: as many as there are places, and one more for each kind.
pub const LIVE_STEPS: usize = 24;

/// A document a model wrote; a design longer than this is not one a person will read.
pub const DOCUMENT_BYTES: usize = 256 * 1024;

/// How much of an issue's text a model is shown.
pub const ISSUE_CHARS: usize = 60_000;

/// Standard output a child process may produce before it is killed.
pub const CHILD_OUTPUT_BYTES: usize = 32 * 1024 * 1024;

/// Standard error kept of a child process: its end, where the reason stands.
pub const CHILD_ERROR_BYTES: usize = 64 * 1024;

/// Time a child process has between SIGTERM and SIGKILL: enough to close a file, not to go on.
pub const CHILD_KILL_DELAY: Duration = Duration::from_secs(2);

/// A model's answer that stalls this long in the middle is given up; whole answers may take longer.
pub const MODEL_IDLE: Duration = Duration::from_secs(90);

/// An HTTP answer of a model's API; the longest honest one is a few hundred kilobytes.
pub const MODEL_ANSWER_BYTES: usize = 8 * 1024 * 1024;

/// The longest GitHub makes us wait for its rate limit: the primary window is an hour. A header
/// that says more is a clock that is wrong.
pub const RATE_WAIT: Duration = Duration::from_secs(3900);

/// The wait when GitHub says "slow down" and not for how long; its documentation asks for a minute.
pub const RATE_PAUSE: Duration = Duration::from_secs(60);

/// Pages of a hundred that one listing reads before it is called endless.
pub const GITHUB_PAGES: usize = 50;

/// A file that is read from a mirror; a larger one is never shown to a model.
pub const BLOB_BYTES: u64 = 8 * 1024 * 1024;

/// A repository whose database cannot be read is looked at again after this long.
pub const DAMAGED_RETRY: Duration = Duration::from_secs(60);

/// The first wait after a step failed by our own fault; doubled each time.
pub const STEP_BACKOFF: Duration = Duration::from_secs(5);

/// How long a server that shares a Postgres with others, and is not heard of, has what it had in hand: longer than a
/// database takes to fail over to its replica.
pub const NODE_LEASE: Duration = Duration::from_secs(45);

/// The longest the live loop sleeps: a machine that was suspended must notice the time it lost.
pub const LONGEST_SLEEP: Duration = Duration::from_secs(60);

/// The first wait before a delivery is tried again, and the longest. In between it waits a quarter of its age,
/// which grows by a quarter each time: a short fault costs people seconds, a long one costs GitHub few calls.
pub const DELIVERY_RETRY: Duration = Duration::from_secs(5);
pub const DELIVERY_LONGEST_RETRY: Duration = Duration::from_secs(300);

/// Boots that may end in the middle of one delivery before it is taken for the cause.
pub const DELIVERY_CRASHES: u32 = 20;

/// Connections that the public door holds at a time, and each of the operator's: a proxy in front has some dozens. None
/// takes more than this share of the files that the process may have open: the rest is for the databases.
pub const PUBLIC_CONNECTIONS: usize = 256;
pub const OPERATOR_CONNECTIONS: usize = 32;
pub const CONNECTION_SHARE_OF_FILES: usize = 4;

/// Steps of one repository, and of all repositories of one installation, that run at the same time: however
/// busy either is, it leaves workers for the others, and programs of models leave some of these for other steps.
pub const REPOSITORY_STEPS: usize = 16;
pub const INSTALLATION_STEPS: usize = 20;

/// Repository databases that are open at the same time, each with a connection and two files; opening one that
/// was closed takes a fraction of a millisecond.
pub const OPEN_REPOSITORIES: usize = 64;

/// How often the log of deliveries is looked through for what never arrived.
pub const SWEEP_EVERY: Duration = Duration::from_secs(600);

/// Pages of a hundred of the log that make a part, of which two are held in memory at once, and how many parts one
/// look has before the log is called endless. Together they are more than GitHub keeps of the busiest App.
pub const SWEEP_PAGES: usize = 100;
pub const SWEEP_PARTS: usize = 100;

/// A delivery that was put off keeps later ones about the same issue waiting this long after it came. A fault of
/// GitHub's is mostly over by then; what is still not done is most likely never done.
pub const DELIVERY_HOLD_TIME: Duration = Duration::from_secs(600);

/// Bodies of deliveries in memory, arriving or not yet committed. Beyond it a sender is told to come again: GitHub
/// keeps what it sent, and the sweep fetches it.
pub const PENDING_DELIVERY_BYTES: usize = 64 * 1024 * 1024;

/// What a request is counted for at least, whatever its body: its buffers and its place in the queue.
pub const LEAST_REQUEST_BYTES: usize = 4096;

/// How often what is too old is looked for, and how much is dropped in one go: never enough to be felt.
pub const TIDY_EVERY: Duration = Duration::from_secs(3600);
pub const TIDY_ROWS: u64 = 500;

/// Between two looks for a write whose answer was lost. GitHub's own copies are seldom seconds apart.
pub const LOOKUP_INTERVAL: Duration = Duration::from_secs(5);

/// GitHub's reads lag its webhooks and its writes. What is not found is looked for this long before it counts
/// as not there.
pub const GITHUB_LAG: Duration = Duration::from_secs(120);

/// A step looks so often whether its job is over: in files a look reads and writes nothing, and between a job's end and the
/// next look a run stands still.
pub const JOB_POLL_INTERVAL: Duration = Duration::from_millis(500);

/// How long a lock that somebody else holds on a database file is waited for.
pub const SQLITE_BUSY_TIMEOUT: Duration = Duration::from_secs(10);

/// Deliveries that were put off and are woken in one go: never enough to be felt, should all of them be due at once.
pub const WAKE_ROWS: u64 = 500;

/// Hardly any text has fewer bytes a token than this. What is held back for a call goes by one byte a token, which none
/// has fewer than.
pub const FEWEST_BYTES_A_TOKEN: u64 = 2;

/// So long whatever failed again and again is left alone.
pub const BREAKER_COOLDOWN: Duration = Duration::from_secs(60);

/// Most tokens of an answer, by what is asked for, its thoughts included; a model whose longest answer is shorter has
/// that. What a call may cost is reserved before it, and most of that is the longest answer.
pub const DOCUMENT_TOKENS: u64 = 32_000;
pub const CHANGE_TOKENS: u64 = 64_000;
pub const EDITS_TOKENS: u64 = 24_000;
pub const VERDICT_TOKENS: u64 = 24_000;
pub const WORD_TOKENS: u64 = 8_000;

/// Least time that a model service which is busy, broken or slow is asked again before its run gives up.
pub const MODEL_RETRY_WINDOW: Duration = Duration::from_secs(15 * 60);

/// A key whose provider asks for a pause and does not say for how long: its limits are a minute's.
pub const RATE_COOLDOWN: Duration = Duration::from_secs(60);

/// One whose account is used up, nobody says until when: looked at again every hour, for someone may have paid.
pub const QUOTA_COOLDOWN: Duration = Duration::from_secs(3600);

/// However short a wait the provider names, the same key is not asked again in the same breath; and however long, no
/// allowance is for more than a day, which may have 25 hours.
pub const SHORTEST_COOLDOWN: Duration = Duration::from_secs(1);
pub const LONGEST_COOLDOWN: Duration = Duration::from_secs(25 * 3600);

/// Prose and source text have more bytes a token than this in the vocabularies of open models. What is too long by it is
/// not sent to a model that would cut it without a word.
pub const USUAL_BYTES_A_TOKEN: u64 = 3;

/// Most tokens of an answer, its thoughts included, whatever the model could write: all of it is reserved before a call, and
/// the usual cap on a call has room for this much of the dearest model and a long prompt.
pub const ANSWER_TOKENS: u64 = 100_000;

/// What a chat's own marks and the names of its roles take, at most.
pub const CHAT_FRAME_TOKENS: u64 = 256;

/// A program saying which version it is: a second on a busy machine, and some start a whole runtime for it.
pub const VERSION_TIME: Duration = Duration::from_secs(20);

/// What of a repository a model is shown, in tokens: about 60 KB of source text, which leaves 14,000 of the
/// smallest usual window (32,000) to everything else.
pub const CONTEXT_TOKENS: usize = 18_000;

/// Files found for a text that may be shown to a model, the best first; and those it may name as ones to change.
pub const CONTEXT_FILES: usize = 60;

/// Bytes of a text that similar code is looked for: the largest design, and more than any issue can hold.
pub const SIMILAR_TEXT: usize = 256 * 1024;

/// Different words of it that are looked for; more make the ranking slower and hardly ever better.
pub const SIMILAR_WORDS: usize = 200;

/// Bytes of an imported module's name; longer ones are not looked up.
pub const IMPORT_LENGTH: usize = 500;

/// Bytes of a source file whose structure is read; nothing of a longer one is. A megabyte of code is generated.
pub const SUMMARY_BYTES: usize = 1_000_000;

/// Items of a file that a summary names.
pub const SUMMARY_ITEMS: usize = 5_000;

/// Bytes of an import statement that is taken apart.
pub const IMPORT_BYTES: usize = 8_192;

/// What an item counts there besides its texts.
pub const SUMMARY_ITEM_BYTES: usize = 16;

/// How deep items of a file may be nested in each other: what reads a summary recurses.
pub const SUMMARY_NESTING: usize = 16;

/// A constant's value up to this is part of its signature.
pub const SUMMARY_VALUE_BYTES: usize = 80;

/// Lines and bytes of a signature; of a longer one only the first whole lines are kept.
pub const SIGNATURE_LINES: usize = 40;
pub const SIGNATURE_BYTES: usize = 2_000;

/// A longer name than this is none.
pub const NAME_BYTES: usize = 100;

/// Files that similar code is offered from: more than any prompt holds.
pub const SIMILAR_OFFERS: usize = 100;
