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

/// A child process without a timeout of its own; nothing we start may run for ever.
pub const CHILD_TIME: Duration = Duration::from_secs(60);

/// A model's answer that stalls this long in the middle is given up; whole answers may take longer.
pub const MODEL_IDLE: Duration = Duration::from_secs(90);

/// Connecting to a model's API; a host that is down should not cost a whole call's time.
pub const MODEL_CONNECT: Duration = Duration::from_secs(10);

/// An HTTP answer of a model's API; the longest honest one is a few hundred kilobytes.
pub const MODEL_ANSWER_BYTES: usize = 8 * 1024 * 1024;

/// Linux refuses a single argument above 128 KiB; a longer system prompt goes into the prompt.
pub const ARGUMENT_BYTES: usize = 100 * 1024;

/// The longest GitHub makes us wait for its rate limit: the primary window is an hour. A header
/// that says more is a clock that is wrong.
pub const RATE_WAIT: Duration = Duration::from_secs(3900);

/// The wait when GitHub says "slow down" and not for how long; its documentation asks for a minute.
pub const RATE_PAUSE: Duration = Duration::from_secs(60);

/// One answer of GitHub's API; the largest we ask for is a blob.
pub const GITHUB_ANSWER_BYTES: usize = 32 * 1024 * 1024;

/// Pages of a hundred that one listing reads before it is called endless.
pub const GITHUB_PAGES: usize = 50;

/// Pages of comments searched, newest first, for one of ours that a crash left unrecorded.
pub const COMMENT_LOOK_PAGES: usize = 10;

/// A file that is read from a mirror; a larger one is never shown to a model.
pub const BLOB_BYTES: u64 = 8 * 1024 * 1024;

/// A repository's name is taken to mean the same repository this long after GitHub said so: the writes of
/// one step come in a burst, and each would ask again.
pub const NAME_HOLDS: Duration = Duration::from_secs(10);

/// A repository whose database cannot be read is looked at again after this long.
pub const DAMAGED_RETRY: Duration = Duration::from_secs(60);

/// The first wait after a step failed by our own fault; doubled each time.
pub const STEP_BACKOFF: Duration = Duration::from_secs(5);

/// The longest the live loop sleeps: a machine that was suspended must notice the time it lost.
pub const LONGEST_NAP: Duration = Duration::from_secs(60);

/// A mirror that git cannot fetch is tried again this long, then people are told.
pub const FETCH_TRIES: Duration = Duration::from_secs(600);

/// A step that does nothing but wait for somebody else this long ends its run, because nobody reads a thread
/// that only ever says "working". A day covers a provider's daily quota.
pub const PATIENCE: Duration = Duration::from_secs(24 * 3600);

/// How often setup asks GitHub whether the new App is installed: somebody is at it in the browser.
pub const INSTALL_LOOK: Duration = Duration::from_secs(2);

/// How often it is tried to tell people of a run's end when a day of trying has not been enough.
pub const TELL_AGAIN: Duration = Duration::from_secs(3600);

/// A delivery that GitHub's faults or our disk's keep from being dealt with is tried this long: GitHub keeps
/// what it delivered for three days, so that until then somebody could ask for it again anyway.
pub const DELIVERY_AGE: Duration = Duration::from_secs(3 * 24 * 3600);

/// The first wait before a delivery is tried again, and the longest. In between it waits a quarter of its age,
/// which grows by a quarter each time: a short fault costs people seconds, a long one costs GitHub few calls.
pub const DELIVERY_RETRY: Duration = Duration::from_secs(5);
pub const DELIVERY_LONGEST_RETRY: Duration = Duration::from_secs(300);

/// Boots that may end in the middle of one delivery before it is taken for the cause.
pub const DELIVERY_CRASHES: u32 = 20;

/// Commands of one comment that are obeyed; nobody means more at once.
pub const COMMANDS_PER_COMMENT: usize = 5;

/// A webhook's whole body, from its first byte; GitHub itself gives up after ten seconds.
pub const WEBHOOK_READ: Duration = Duration::from_secs(15);

/// Once the work has ended, a client in the middle of a request is waited for this long.
pub const DOOR_GRACE: Duration = Duration::from_secs(1);

/// Connections that the public door holds at a time, and each of the operator's: a proxy in front has some dozens. None
/// takes more than this share of the files that the process may have open: the rest is for the databases.
pub const DOOR_CONNECTIONS: usize = 256;
pub const OPERATOR_CONNECTIONS: usize = 32;
pub const DOOR_SHARE_OF_FILES: usize = 4;

/// A connection that has brought no whole request head for so long, new or after an answer, is closed. That is longer than
/// proxies keep one that they would use again (nginx for 60 s): a delivery on one that we close at that moment is lost. In
/// a full door a silent one gives way sooner.
pub const DOOR_HEAD: Duration = Duration::from_secs(75);

/// In a full door a connection gives way that has been quiet for so long: an honest one brings its request at once, and it
/// is on disk within milliseconds.
pub const DOOR_QUIET: Duration = Duration::from_secs(1);

/// Between two lines of the log about what anybody can cause as often as they like.
pub const LOG_GAP: Duration = Duration::from_secs(60);

/// Steps of one repository, and of all repositories of one installation, that run at the same time: however
/// busy either is, it leaves workers for the others, and programs of models leave some of these for other steps.
pub const REPOSITORY_STEPS: usize = 16;
pub const INSTALLATION_STEPS: usize = 20;

/// Repository databases that are open at the same time, each with a connection and two files; opening one that
/// was closed takes a fraction of a millisecond.
pub const OPEN_REPOSITORIES: usize = 64;

/// What one open repository database may keep in memory of its pages.
pub const REPOSITORY_CACHE_KIB: u32 = 256;

/// How often the log of deliveries is looked through for what never arrived.
pub const SWEEP_EVERY: Duration = Duration::from_secs(600);

/// How much of the log that was looked through already is looked through again: an attempt may be listed late.
pub const SWEEP_OVERLAP: Duration = Duration::from_secs(600);

/// Pages of a hundred of the log that make a part, of which two are held in memory at once, and how many parts one
/// look has before the log is called endless. Together they are more than GitHub keeps of the busiest App.
pub const SWEEP_PAGES: usize = 100;
pub const SWEEP_PARTS: usize = 100;

/// How often issues are looked for that bear a label of ours nobody told us of.
pub const LABELS_EVERY: Duration = Duration::from_secs(6 * 3600);

/// The first wait before such a look is repeated that could not see everything; doubled up to the longest.
pub const LABELS_RETRY: Duration = Duration::from_secs(30);
pub const LABELS_LONGEST_RETRY: Duration = Duration::from_secs(1800);

/// Pages of an issue's events that are searched, newest first, for who put a label on it.
pub const EVENT_LOOK_PAGES: usize = 20;

/// A webhook tells of a label by the issue's time, the issue's history by the event's own: the same act when they are
/// this close.
pub const SAME_LABELING: Duration = Duration::from_secs(5);

/// Writes that share one commit, and how long they may gather: the first of them waits for the last.
pub const COMMIT_WRITES: usize = 256;
pub const COMMIT_TIME: Duration = Duration::from_millis(5);

/// Prepared statements kept for each open database; the busiest uses about thirty.
pub const STATEMENTS: usize = 40;

/// Lanes that are worked on at the same time; most of the time goes into waiting for GitHub.
pub const LANES: usize = 8;

/// Deliveries of one lane that are taken at once, and their bytes as stored: one commit for many, and others
/// have their turn after a few.
pub const LANE_DELIVERIES: usize = 16;
pub const LANE_BYTES: u64 = 1024 * 1024;

/// How many unfinished deliveries of one repository a claim looks at. Behind so many that wait, a few more
/// make no difference.
pub const LOOK_AHEAD: u64 = 128;

/// A delivery that was put off keeps later ones about the same issue waiting this long after it came. A fault of
/// GitHub's is mostly over by then; what is still not done is most likely never done.
pub const DELIVERY_HOLDS: Duration = Duration::from_secs(600);

/// Deliveries of a suspended installation are looked at again after this long, or when it is told that the
/// suspension was lifted.
pub const SUSPENDED_RETRY: Duration = Duration::from_secs(3600);

/// Bodies of deliveries in memory, arriving or not yet committed. Beyond it a sender is told to come again: GitHub
/// keeps what it sent, and the sweep fetches it.
pub const DOOR_BYTES: usize = 64 * 1024 * 1024;

/// What a request is counted for at least, whatever its body: its buffers and its place in the queue.
pub const DOOR_REQUEST_BYTES: usize = 4096;

/// When a sender who was turned away may come again.
pub const DOOR_RETRY: Duration = Duration::from_secs(5);

/// Bodies are kept for looking into what went wrong: of what was done a week, of what was given up a month.
pub const BODY_KEPT_DONE: Duration = Duration::from_secs(7 * 24 * 3600);
pub const BODY_KEPT_DEAD: Duration = Duration::from_secs(30 * 24 * 3600);

/// A delivery's id is remembered for three months: GitHub redelivers for three days, and an operator who
/// restores a backup may sweep a month.
pub const DELIVERY_KEPT: Duration = Duration::from_secs(90 * 24 * 3600);

/// What belongs to a repository that was deleted or taken from the App is kept for a month, for whoever
/// took it away by mistake; then it is removed.
pub const GONE_KEPT: Duration = Duration::from_secs(30 * 24 * 3600);

/// How often what is too old is looked for, and how much is dropped in one go: never enough to be felt.
pub const TIDY_EVERY: Duration = Duration::from_secs(3600);
pub const TIDY_ROWS: u64 = 500;

/// GitHub asks for a second between one App's writes. Held, it also stays below the secondary limit of 80 new
/// contents a minute; the one of 500 an hour is GitHub's to announce, since a run makes a handful of contents
/// among its writes and an installation rarely has a hundred runs in an hour.
pub const WRITE_GAP: Duration = Duration::from_secs(1);

/// Writes that may go at once after a quiet time: what starting a run needs, in one go. Sixty-five in the worst
/// minute is still below GitHub's eighty.
pub const WRITES_AT_ONCE: u32 = 5;

/// Of those, kept for opening gates and for telling people that they were heard: the 👀 and the label that is taken off
/// with it.
pub const WRITES_RESERVED: u32 = 2;

/// What one person may make us write in such a time who needs no rights for it: 👎, and answers to `/status` and
/// `/help`. Nobody in earnest needs more, and ten who are not leave an installation most of its writes.
pub const PERSON_WRITES: u32 = 5;
pub const PERSON_WINDOW: Duration = Duration::from_secs(60);

/// Between two looks for a write whose answer was lost. GitHub's own copies are seldom seconds apart.
pub const LOOK_GAP: Duration = Duration::from_secs(5);

/// GitHub's reads lag its webhooks and its writes. What is not found is looked for this long before it counts
/// as not there.
pub const LAG: Duration = Duration::from_secs(120);

/// A step that GitHub's rate limit holds back looks this often whether it still does; nothing is sent for it.
pub const LIMIT_CHECK: Duration = Duration::from_secs(15);

/// A doubt about a write that nobody came back to is forgotten after this long.
pub const DOUBT_FORGOTTEN: Duration = Duration::from_secs(3600);

/// Answers kept with their tags, and the longest one that is: an issue with its text, not a listing.
pub const ANSWERS_KEPT: usize = 512;
pub const ANSWER_KEPT_BYTES: usize = 64 * 1024;

/// Repository databases that are being opened at the same time. After an unclean end each is read through, which is
/// the disk's work: enough that a few large ones leave room for the others, and few enough that their threads and
/// page caches (two megabytes each) are not felt.
pub const OPENINGS: usize = 16;

/// Jobs that go on at once; others wait for their place.
pub const JOBS: usize = 2;

/// A step looks so often whether its job is over.
pub const JOB_LOOK: Duration = Duration::from_secs(10);

/// A job that was told to end and does not is given up after this.
pub const JOB_END: Duration = Duration::from_secs(10);

/// How long a lock that somebody else holds on a database file is waited for.
pub const FILE_LOCK: Duration = Duration::from_secs(10);

/// Deliveries that were put off and are woken in one go: never enough to be felt, should all of them be due at once.
pub const WAKE_ROWS: u64 = 500;
/// A gate's line is on the page a moment before the gate is open; a quick reader's answer, which comes in between, waits
/// this long.
pub const GATE_OPENING: Duration = Duration::from_secs(1);

/// Hardly any text has fewer bytes a token than this. What is held back for a call goes by one byte a token, which none
/// has fewer than.
pub const FEWEST_BYTES_A_TOKEN: u64 = 2;
/// Deliveries in a row that GitHub fails to hand over before a look through its log is given up: one may be broken for
/// ever, so many together are an outage.
pub const SWEEP_FAILURES: usize = 3;

/// Commits of others on top of one of ours whose answer was lost, beneath which it is still found; each is a call.
pub const COMMITS_ON_OURS: usize = 20;

/// Tokens of an answer of a model that the table says nothing of.
pub const MODEL_OUTPUT: u64 = 32_000;

/// What of a call's time the Claude program gets where the API stands behind it, and what the API gets.
pub const FIRST_LEG: Duration = Duration::from_secs(180);
pub const SECOND_LEG: Duration = Duration::from_secs(300);

/// So many failures in a row are an outage and not bad luck, and for so long it is left alone.
pub const OUTAGE_FAILURES: u32 = 2;
pub const OUTAGE_HOLDS: Duration = Duration::from_secs(60);

/// A key whose provider asks for a pause and does not say for how long: its limits are a minute's.
pub const KEY_RESTS_FROM_RATE: Duration = Duration::from_secs(60);

/// One whose account is used up, nobody says until when: looked at again every hour, for someone may have paid.
pub const KEY_RESTS_FROM_QUOTA: Duration = Duration::from_secs(3600);

/// One that may not use a model, though it may use others: looked at again every hour, for someone may have allowed it.
pub const KEY_RESTS_FROM_DENIAL: Duration = Duration::from_secs(3600);

/// However short a wait the provider names, the same key is not asked again in the same breath; and however long, no
/// allowance is for more than a day, which may have 25 hours.
pub const KEY_RESTS_LEAST: Duration = Duration::from_secs(1);
pub const KEY_RESTS_MOST: Duration = Duration::from_secs(25 * 3600);

/// Prose and source text have more bytes a token than this in the vocabularies of open models. What is too long by it is
/// not sent to a model that would cut it without a word.
pub const USUAL_BYTES_A_TOKEN: u64 = 3;

/// What a chat's own marks and the names of its roles take, at most.
pub const CHAT_FRAME_TOKENS: u64 = 256;

/// Windows are asked for in steps, because a server loads the model anew for each size.
pub const WINDOW_STEP_TOKENS: u64 = 4096;

/// The longest that a model is left alone because it was asked too often: no such limit is for more than an hour.
pub const MODEL_RESTS_MOST: Duration = Duration::from_secs(3600);

/// Models of a pool that one call is asked of: the three and the two of the usual one.
pub const POOL_ATTEMPTS: u32 = 5;

/// A wait up to this is sat out by asking the same model again; for a longer one another is asked.
pub const POOL_SITS_OUT: Duration = Duration::from_secs(60);
/// A program saying which version it is: a second on a busy machine, and some start a whole runtime for it.
pub const VERSION_TIME: Duration = Duration::from_secs(20);
/// How often the memory of a child and its descendants is added up. A look reads all of `/proc`, which takes a
/// millisecond or two; two seconds after one has outgrown its limit it must be gone.
pub const CHILD_MEMORY_LOOK: Duration = Duration::from_millis(250);

/// What a model's program takes before it has done anything; with less left it is not begun. Seen: 200 MB and more.
pub const PROGRAM_MEMORY: u64 = 512 * 1024 * 1024;

/// What must be left for everybody else when such a program begins.
pub const SPARE_MEMORY: u64 = 128 * 1024 * 1024;

/// How often it is looked whether there is memory again.
pub const MEMORY_LOOK: Duration = Duration::from_secs(1);

/// Looks for descendants of a child after SIGKILL, 20 ms apart, before they are given up: one that hangs in the kernel
/// ends when that lets it.
pub const CHILD_KILL_LOOKS: u32 = 25;
/// Between two looks whether a model that could not be asked can be asked now: that asks nobody, and whoever has just
/// put in the key looks whether it helped.
pub const PARKED_LOOK: Duration = Duration::from_secs(60);

/// A provider that refuses our key or login is asked again after this, and doubled up to an hour: hardly ever does that
/// mend itself.
pub const REFUSED_LOOK: Duration = Duration::from_secs(600);
/// Past runs that a quote is made from: enough for a p90 to mean something, and few enough to be of today's models.
pub const QUOTED_RUNS: u32 = 50;

/// The most that a service's count of tokens is believed: a thousand times what the largest model reads, and far from the
/// end of the numbers that the books hold.
pub const MOST_TOKENS: u64 = 1_000_000_000;

/// Characters of a model's name, as an answer gives it.
pub const MODEL_NAME: usize = 100;

/// Characters of the word that a service has for an error; what is longer is prose.
pub const ERROR_CODE: usize = 60;
/// A run that waits for a place in a crowd looks again after this: a call takes a minute or more, and a place stands
/// empty no longer than that only when all who stood in line had theirs.
pub const PLACE_LOOK: Duration = Duration::from_secs(5);

/// Lines of `.gitattributes` that are heeded in one commit, and how long a pattern may be: repositories have a dozen, and
/// each file is compared with all.
pub const ATTRIBUTE_PATTERNS: usize = 500;
pub const ATTRIBUTE_PATTERN: usize = 200;

/// Of a commit's `.gitattributes`, how many are read and how large each may be.
pub const ATTRIBUTE_FILES: usize = 200;
pub const ATTRIBUTE_FILE_BYTES: u64 = 64 * 1024;

/// A text of at least so many bytes is minified when its lines have so many on average, or one of them has so many.
pub const MINIFIED_LEAST: usize = 2_000;
pub const MINIFIED_MEAN_LINE: usize = 400;
pub const MINIFIED_LINE: usize = 20_000;

/// The largest source file that is indexed: people do write such. Data of that size was not written by hand.
pub const INDEX_LARGEST_CODE: u64 = 1024 * 1024;
pub const INDEX_LARGEST_DATA: u64 = 256 * 1024;

/// Files and bytes of one commit that are indexed: two large repositories' worth. What is known of them is held in
/// memory while a prompt is put together.
pub const INDEX_FILES: usize = 25_000;
pub const INDEX_BYTES: u64 = 160 * 1024 * 1024;

/// Bytes and files read from git at a time while an index is made: large enough that starting git does not count, small
/// enough that three such batches do not count in memory. And of the first, which all processors wait for.
pub const INDEX_BATCH_BYTES: u64 = 4 * 1024 * 1024;
pub const INDEX_BATCH_FILES: usize = 2_000;
pub const INDEX_FIRST_BATCH_BYTES: u64 = 256 * 1024;

/// What is kept for the next index of a repository: several commits' worth of a large one.
pub const CACHE_BYTES: u64 = 256 * 1024 * 1024;
/// What of a repository a model is shown, in tokens: about 60 KB of source text, which leaves 14,000 of the
/// smallest usual window (32,000) to everything else.
pub const CONTEXT_TOKENS: usize = 18_000;

/// Files found for a text that may be shown to a model, the best first; and those it may name as ones to change.
pub const CONTEXT_FILES: usize = 60;

/// Of their texts, what is in memory at once.
pub const CONTEXT_READ_BYTES: u64 = 8 * 1024 * 1024;
/// Bytes of a text that similar code is looked for: the largest design, and more than any issue can hold.
pub const SIMILAR_TEXT: usize = 256 * 1024;
/// Different words of it that are looked for; more make the ranking slower and hardly ever better.
pub const SIMILAR_WORDS: usize = 200;
/// Names, and paths, of it that are looked for.
pub const SIMILAR_NAMES: usize = 200;

/// Bytes of an imported module's name; longer ones are not looked up.
pub const IMPORT_LENGTH: usize = 500;
/// Parts of a path that an import is followed along, and folders upwards that its root is looked for.
pub const IMPORT_PARTS: usize = 32;
/// Files of the same name among which the one that an import means is looked for.
pub const IMPORT_CANDIDATES: usize = 512;
/// Bytes of a source file whose structure is read; of a longer one only an outline is. A megabyte of code is generated.
pub const SUMMARY_BYTES: usize = 1_000_000;

/// Items of a file that a summary names.
pub const SUMMARY_ITEMS: usize = 5_000;

/// Bytes of an import statement that is taken apart.
pub const IMPORT_BYTES: usize = 8_192;

/// Bytes that a summary keeps of a text, of any text and for each of its bytes: a statement is kept once for each module
/// it names, a declaration once for each name. Real files need at most twice as many as they have.
pub const SUMMARY_KEPT_BYTES: usize = 16_384;
pub const SUMMARY_KEPT_TIMES: usize = 4;
/// What an item counts there besides its texts.
pub const SUMMARY_ITEM_BYTES: usize = 16;

/// Bytes of a function's body or a comment that is worth leaving out when its file is parsed, and how many are of one
/// file: for each token that it reads the parser looks through the list of what is left.
pub const SUMMARY_GAP_BYTES: usize = 40;
pub const SUMMARY_GAPS: usize = 1_000;

/// How deep items of a file may be nested in each other: what reads a summary recurses.
pub const SUMMARY_NESTING: usize = 16;

/// How often text inside a text inside a text is read again: each time costs as much as the first.
pub const SUMMARY_EMBEDDED: usize = 3;

/// A constant's value up to this is part of its signature.
pub const SUMMARY_VALUE_BYTES: usize = 80;

/// Lines and bytes of a signature; of a longer one only the first whole lines are kept.
pub const SIGNATURE_LINES: usize = 40;
pub const SIGNATURE_BYTES: usize = 2_000;

/// Bytes of a documentation's first sentence.
pub const DOC_BYTES: usize = 200;

/// A longer name than this is none.
pub const NAME_BYTES: usize = 100;

/// Computing time that parsing one file may take: ten times what the longest real one takes. Whether it is over is looked
/// up at every so many reports: asking costs as much as a hundredth of what is reported.
pub const PARSE_TIME: Duration = Duration::from_secs(2);
pub const PARSE_REPORTS_PER_LOOK: usize = 8;

/// Reports of progress (one for a hundred operations) that a parser may make before it is stopped, whatever the text,
/// and for how many bytes of it there may be one more.
pub const PARSE_REPORTS: usize = 1_000;
pub const PARSE_BYTES_PER_REPORT: usize = 5;

/// Bytes of a text that a parser is given at once, and for how many bytes of it it may ask once more: it reads a text
/// some sixty times over at most.
pub const PARSE_CHUNK: usize = 1_024;
pub const PARSE_BYTES_PER_READ: usize = 16;
/// Files that similar code is offered from: more than any prompt holds.
pub const SIMILAR_OFFERS: usize = 100;
/// Items of an offered file that are pointed at.
pub const SIMILAR_ITEMS: usize = 8;
/// Items that are offered as like another one.
pub const SIMILAR_ALIKE: usize = 20;
/// Bytes of a signature whose words are compared.
pub const SIMILAR_SIGNATURE: usize = 2000;

/// Bytes of a manifest that is read for what it depends on.
pub const MANIFEST: usize = 512 * 1024;

/// Earlier runs whose designs a new one is compared with: each design is read whole, and the newest matter most.
pub const PAST_RUNS: u32 = 60;

/// Rows of findings that are read for what reviewers ask again and again: some ten of a run, written once a review.
pub const PAST_FINDINGS: u32 = 1500;

/// Commits whose index is kept between the steps of runs: two repositories that are busy at a time, or one that moves.
pub const INDEXES_KEPT: usize = 2;

/// What git may print of a commit's tree: half a million files with long paths.
pub const TREE_BYTES: usize = 128 * 1024 * 1024;
/// Files found for a text of which a model is shown at least what they define, before anything that is dense but matters
/// less: as many as people look into first.
pub const CONTEXT_HELD: usize = 8;
/// Parts of a path, from its end, that are compared with those of a repository's files: deeper trees say no more.
pub const NAMED_PARTS: usize = 12;
/// Files of one name among which the one that a text's path means is looked for: several times what the largest of
/// repositories have. And those among which a test's is, once for each test.
pub const NAMED_CANDIDATES: usize = 2_000;
pub const TESTED_CANDIDATES: usize = 256;

/// Lines of an item that are pointed at: of a longer one a model is shown the beginning, or what it holds.
pub const SIMILAR_ITEM_LINES: u32 = 150;
/// Mistakes of one kind that are told at once about a design's names: enough to see what is wrong.
pub const NAMED_MISTAKES: usize = 12;

/// Words, imports of a block and blocks of code that a design is read for, and files that one of its imports may stand in.
/// Nobody reads a design that has more; each is looked up in all files, which is a millisecond of the largest repository.
pub const NAMED_WORDS: usize = 2_000;
pub const NAMED_IMPORTS: usize = 100;
pub const NAMED_BLOCKS: usize = 100;
pub const NAMED_PLACES: usize = 20;
/// Paths, and words that no file has, that are compared with every path or name of a repository.
pub const NAMED_UNKNOWN: usize = 200;

/// Files that name a Go module each.
pub const MODULE_FILES: usize = 60;

/// Code that the index leaves out and that is read for its names, and bytes of it: what a large repository has generated,
/// and a library or two of others.
pub const UNREAD_FILES: usize = 2_000;
pub const UNREAD_BYTES: u64 = 16_777_216;
