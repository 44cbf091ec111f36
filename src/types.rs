//! Shared vocabulary: ids, roles, hashes and times. This module has no logic, input or output.
//!
//! GitHub's objects are identified by number, because their names and logins can change.

use std::{fmt, str::FromStr, time::Duration};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// Error for a value that is not valid for its type.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{value}` is not {expected}")]
pub struct MalformedValue {
    pub value: String,
    pub expected: &'static str,
}

fn malformed(value: &str, expected: &'static str) -> MalformedValue {
    MalformedValue { value: value.chars().take(80).collect(), expected }
}

macro_rules! number {
    ($(#[$doc:meta])* $name:ident, $expected:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub u64);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl FromStr for $name {
            type Err = MalformedValue;
            fn from_str(s: &str) -> Result<Self, MalformedValue> {
                s.parse().map(Self).map_err(|_| malformed(s, $expected))
            }
        }
    };
}

number!(
    /// GitHub's number of a repository; survives renames and transfers.
    RepoId,
    "a repository number"
);
number!(
    /// GitHub's number of an installation of the App.
    InstallationId,
    "an installation number"
);
number!(
    /// GitHub's number of a user or bot; survives a change of login.
    UserId,
    "a user number"
);
number!(
    /// Number of an issue, as people write it after `#`. Pull requests share the same sequence of numbers.
    IssueNo,
    "an issue number"
);
number!(
    /// GitHub's number of an issue comment.
    CommentId,
    "a comment number"
);

impl IssueNo {
    /// Returns the name of the branch for our documents on this issue, such as `countersign/issue-42`. If people
    /// rewrote an earlier branch, `nth` is greater than 1 and is appended, as in `countersign/issue-42-2`.
    pub fn branch(self, nth: u32) -> String {
        if nth == 1 { format!("{BRANCH}{self}") } else { format!("{BRANCH}{self}-{nth}") }
    }

    /// Returns the issue number from the name of one of our branches; `None` for any other branch.
    pub fn from_branch(branch: &str) -> Option<Self> {
        let named = branch.strip_prefix(BRANCH)?;
        let (issue, nth) = named.split_once('-').unwrap_or((named, "1"));
        let (issue, nth): (Self, u32) = (issue.parse().ok()?, nth.parse().ok()?);
        // Refuse other spellings of the same numbers (`+4`, `04`, `4-1`).
        (nth >= 1 && issue.branch(nth) == branch).then_some(issue)
    }
}

const BRANCH: &str = "countersign/issue-";

/// GitHub's id of one webhook delivery (`X-GitHub-Delivery`); a redelivery has the same id.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct DeliveryId(pub String);

impl fmt::Display for DeliveryId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Idempotency key of a request to the engine: what caused it, such as a comment, and the index of the request.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Cause(pub String);

impl Cause {
    /// Returns the cause of the follow-up run. The run with the cause `self` starts the follow-up run when it ends.
    pub fn follow_up(&self) -> Self {
        Self(format!("{self}{}", Self::FOLLOW_UP_SUFFIX))
    }

    /// Suffix of the causes that [`follow_up`](Self::follow_up) creates.
    pub const FOLLOW_UP_SUFFIX: &str = ".onward";
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Id of a workflow run: the repository's number and the run's number in that repository, written `8123-4`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RunId {
    pub repo: RepoId,
    pub seq: u64,
}

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.repo, self.seq)
    }
}

impl FromStr for RunId {
    type Err = MalformedValue;
    fn from_str(s: &str) -> Result<Self, MalformedValue> {
        let bad = || malformed(s, "a run id such as 8123-4");
        let (repo, seq) = s.split_once('-').ok_or_else(bad)?;
        Ok(Self { repo: RepoId(repo.parse().map_err(|_| bad())?), seq: seq.parse().map_err(|_| bad())? })
    }
}

impl Serialize for RunId {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for RunId {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        String::deserialize(d)?.parse().map_err(serde::de::Error::custom)
    }
}

/// Current `owner/name` of a repository. Comparison ignores case, as on GitHub.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RepoName {
    pub owner: String,
    pub name: String,
}

impl PartialEq for RepoName {
    fn eq(&self, other: &Self) -> bool {
        self.owner.eq_ignore_ascii_case(&other.owner) && self.name.eq_ignore_ascii_case(&other.name)
    }
}

impl Eq for RepoName {}

impl fmt::Display for RepoName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.owner, self.name)
    }
}

impl FromStr for RepoName {
    type Err = MalformedValue;
    fn from_str(s: &str) -> Result<Self, MalformedValue> {
        let part = |p: &str| {
            !p.is_empty()
                && p != "."
                && p != ".."
                && p.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
        };
        match s.split_once('/') {
            Some((owner, name)) if part(owner) && part(name) => {
                Ok(Self { owner: owner.into(), name: name.into() })
            }
            _ => Err(malformed(s, "OWNER/NAME")),
        }
    }
}

/// A SHA-256 hash. It is written as 64 hexadecimal digits; people are shown only the first 12.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Hash([u8; 32]);

impl Hash {
    pub fn digest(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// Returns the hash of a list of parts. Each part is hashed together with its length, so that different lists never
    /// produce the same input.
    pub fn digest_parts<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> Self {
        let mut hasher = Sha256::new();
        for part in parts {
            hasher.update((part.len() as u64).to_be_bytes());
            hasher.update(part);
        }
        Self(hasher.finalize().into())
    }

    pub fn bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Returns the first twelve digits, the short form that people copy into commands.
    pub fn short(&self) -> String {
        self.to_string()[..12].to_owned()
    }

    /// Returns whether this hash starts with `prefix` (at least 8 digits, any case).
    pub fn starts_with(&self, prefix: &str) -> bool {
        prefix.len() >= 8 && self.to_string().starts_with(&prefix.to_ascii_lowercase())
    }
}

impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

impl fmt::Debug for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Hash({})", self.short())
    }
}

impl FromStr for Hash {
    type Err = MalformedValue;
    fn from_str(s: &str) -> Result<Self, MalformedValue> {
        let mut bytes = [0; 32];
        hex::decode_to_slice(s, &mut bytes).map_err(|_| malformed(s, "a sha256 of 64 hexadecimal digits"))?;
        Ok(Self(bytes))
    }
}

impl Serialize for Hash {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Hash {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        String::deserialize(d)?.parse().map_err(serde::de::Error::custom)
    }
}

/// A git object id: 40 lower-case hexadecimal digits, or 64 in SHA-256 repositories.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Oid(String);

impl Oid {
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the first seven digits, as git shows them.
    pub fn short(&self) -> &str {
        &self.0[..7]
    }
}

impl FromStr for Oid {
    type Err = MalformedValue;
    fn from_str(s: &str) -> Result<Self, MalformedValue> {
        let hex = s.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
        if hex && (s.len() == 40 || s.len() == 64) {
            Ok(Self(s.to_owned()))
        } else {
            Err(malformed(s, "a git object id"))
        }
    }
}

impl TryFrom<String> for Oid {
    type Error = MalformedValue;
    fn try_from(s: String) -> Result<Self, MalformedValue> {
        s.parse()
    }
}

impl From<Oid> for String {
    fn from(oid: Oid) -> Self {
        oid.0
    }
}

impl fmt::Display for Oid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A command that every workflow understands. The command is stored with each answer to a gate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verb {
    /// Passes a gate.
    Approve,
    /// Sends the document back to the drafter.
    Revise,
    /// Passes a gate despite the reviewer's verdict; requires a reason.
    Override,
    /// Answers the numbered questions.
    Answer,
    /// Raises the budget of a paused run.
    Budget,
    /// Continues a run that halted, or reviews the same version again.
    Retry,
    Restart,
    Stop,
    Dismiss,
    MustFix,
    Cost,
    Status,
    Help,
}

impl Verb {
    /// Returns the word that people type after the slash.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Approve => "approve",
            Self::Revise => "revise",
            Self::Override => "override",
            Self::Answer => "answer",
            Self::Budget => "budget",
            Self::Retry => "retry",
            Self::Restart => "restart",
            Self::Stop => "stop",
            Self::Dismiss => "dismiss",
            Self::MustFix => "must-fix",
            Self::Cost => "cost",
            Self::Status => "status",
            Self::Help => "help",
        }
    }

    /// Returns whether the command approves the document or change that the gate asks about.
    pub fn accepts(self) -> bool {
        matches!(self, Self::Approve | Self::Override)
    }
}

impl fmt::Display for Verb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A user's permission in a repository, as on GitHub. Permissions are ordered from lowest to highest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// No access, or only the read access that everybody has to a public repository.
    None,
    Read,
    Triage,
    Write,
    Maintain,
    Admin,
}

impl Role {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Read => "read",
            Self::Triage => "triage",
            Self::Write => "write",
            Self::Maintain => "maintain",
            Self::Admin => "admin",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Role {
    type Err = MalformedValue;
    fn from_str(s: &str) -> Result<Self, MalformedValue> {
        [Self::None, Self::Read, Self::Triage, Self::Write, Self::Maintain, Self::Admin]
            .into_iter()
            .find(|r| r.as_str() == s)
            .ok_or_else(|| malformed(s, "one of none, read, triage, write, maintain, admin"))
    }
}

/// The user or bot that caused an event on GitHub. Permissions depend on `id`; `login` is only for display.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Actor {
    pub id: UserId,
    pub login: String,
    /// Whether GitHub marks the account as a bot, or an App caused the event.
    pub bot: bool,
}

/// Outcome of a review. The first three come only from a schema-valid response of a reviewer. Without such a response,
/// we set `Inconclusive`, which passes no gate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Verdict {
    Approved,
    Revise,
    Blocked,
    Inconclusive,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Approved => "APPROVED",
            Self::Revise => "REVISE",
            Self::Blocked => "BLOCKED",
            Self::Inconclusive => "INCONCLUSIVE",
        })
    }
}

/// A family of language models from one vendor, such as `claude` or `gemini`. Models of one family likely share blind
/// spots, so the reviewer's family must differ from the drafter's.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Family(pub String);

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A time in milliseconds since 1970-01-01 UTC. It comes from GitHub's RFC 3339 timestamps or from our `Clock`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Timestamp(pub i64);

impl Timestamp {
    pub fn plus(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)))
    }

    pub fn minus(self, duration: Duration) -> Self {
        Self(self.0.saturating_sub(i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)))
    }

    /// Returns the time elapsed since `earlier`; zero if `earlier` is later.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }

    /// Parses a timestamp in GitHub's format, such as `2026-02-19T10:00:00Z`.
    pub fn parse(s: &str) -> Result<Self, MalformedValue> {
        time::OffsetDateTime::parse(s, &time::format_description::well_known::Rfc3339)
            .map(|t| Self((t.unix_timestamp_nanos() / 1_000_000) as i64))
            .map_err(|_| malformed(s, "an RFC 3339 time"))
    }
}

impl Timestamp {
    /// Returns the UTC date, such as `2026-02-19`.
    pub fn date(self) -> String {
        self.to_string().chars().take(10).collect()
    }

    /// Returns the start of the next UTC day.
    pub fn next_day(self) -> Self {
        Self(self.day() + DAY_MS)
    }

    /// Returns the start of this UTC day.
    pub fn day_start(self) -> Self {
        Self(self.day())
    }

    /// Returns the start of this UTC month.
    pub fn month_start(self) -> Self {
        let into = self.utc().map_or(0, |t| i64::from(t.day()) - 1);
        Self(self.day() - into * DAY_MS)
    }

    /// Returns the start of the next UTC month.
    pub fn next_month(self) -> Self {
        let days = self.utc().map_or(30, |t| i64::from(t.month().length(t.year())));
        Self(self.month_start().0 + days * DAY_MS)
    }

    fn day(self) -> i64 {
        self.0.div_euclid(DAY_MS) * DAY_MS
    }

    fn utc(self) -> Option<time::OffsetDateTime> {
        time::OffsetDateTime::from_unix_timestamp(self.0.div_euclid(1000)).ok()
    }
}

const DAY_MS: i64 = 24 * 3600 * 1000;

/// An amount of money in micro-dollars. It is rounded to the cent only for display.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct MicroUsd(pub u64);

impl MicroUsd {
    /// Maximum amount that users may enter, in micro-dollars. The limit keeps sums of amounts far from overflow.
    const MOST_MICRO_DOLLARS: u64 = 1_000_000_000_000;

    /// Parses dollars as people write them: `$2`, `2.50`, `$0.05`.
    pub fn parse(text: &str) -> Result<Self, MalformedValue> {
        let wrong = || malformed(text, "dollars such as $2 or $0.50, at most $1000000");
        let digits = text.trim();
        let digits = digits.strip_prefix('$').unwrap_or(digits);
        let (whole, cents) = digits.split_once('.').unwrap_or((digits, "00"));
        let number = |text: &str| text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse::<u64>().ok());
        let whole = number(whole).flatten().ok_or_else(wrong)?;
        let fraction = number(cents).flatten().filter(|_| cents.len() <= 6).ok_or_else(wrong)?;
        let scale = 10_u64.pow(6 - u32::try_from(cents.len()).unwrap_or(6));
        let micro = whole.checked_mul(1_000_000).and_then(|whole| whole.checked_add(fraction * scale));
        micro.filter(|micro| *micro <= Self::MOST_MICRO_DOLLARS).map(Self).ok_or_else(wrong)
    }

    pub fn plus(self, more: Self) -> Self {
        Self(self.0.saturating_add(more.0))
    }

    pub fn minus(self, less: Self) -> Self {
        Self(self.0.saturating_sub(less.0))
    }

    /// Returns the amount, rounded up to the next whole dollar.
    pub fn to_whole_dollars(self) -> Self {
        Self(self.0.div_ceil(1_000_000).saturating_mul(1_000_000))
    }

    /// Formats the exact amount, such as `3` or `0.5`. [`parse`](Self::parse) turns the result back into the same
    /// amount.
    pub fn to_exact_dollars(self) -> String {
        let (whole, rest) = (self.0 / 1_000_000, self.0 % 1_000_000);
        let text = format!("{whole}.{rest:06}");
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    }
}

impl fmt::Display for MicroUsd {
    /// Formats the amount as `$0.40`. Positive amounts below half a cent are written `<$0.01`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cents = self.0.saturating_add(5_000) / 10_000;
        if cents == 0 && self.0 > 0 {
            return f.write_str("<$0.01");
        }
        write!(f, "${}.{:02}", cents / 100, cents % 100)
    }
}

impl fmt::Display for Timestamp {
    /// Formats the time as `2026-02-19T10:00:00Z`, in whole seconds as GitHub does.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let t = time::OffsetDateTime::from_unix_timestamp(self.0.div_euclid(1000))
            .unwrap_or(time::OffsetDateTime::UNIX_EPOCH);
        write!(
            f,
            "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}Z",
            t.year(),
            u8::from(t.month()),
            t.day(),
            t.hour(),
            t.minute(),
            t.second()
        )
    }
}

/// Priority class of a run. When models run as child processes, each pool has its own worker slots, OS priority and
/// memory, which other pools cannot use.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WorkerPool {
    High,
    #[default]
    Medium,
    Low,
    Background,
}

impl WorkerPool {
    pub const ALL: [Self; 4] = [Self::High, Self::Medium, Self::Low, Self::Background];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::High => "high",
            Self::Medium => "medium",
            Self::Low => "low",
            Self::Background => "background",
        }
    }
}

/// Formats a number with its noun in singular or plural: `1 finding`, `3 findings`.
pub fn count(n: usize, one: &str, many: &str) -> String {
    if n == 1 { format!("1 {one}") } else { format!("{n} {many}") }
}

/// Returns the messages of an error and its causes as one text. A cause is skipped if the text before it already
/// contains the cause's message.
pub fn with_causes(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    for cause in std::iter::successors(error.source(), |error| error.source()).map(ToString::to_string) {
        if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    text
}

/// Approval option: the accepted text replaces the issue's text.
pub const IN_PLACE: &str = "in-place";

/// Approval option: the accepted text becomes a new issue.
pub const NEW_ISSUE: &str = "new";

/// Options from which an approval can choose at gates that offer several. No stage may have one of these names.
pub const APPROVAL_OPTIONS: &[&str] = &[IN_PLACE, NEW_ISSUE];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamp_round_trips_githubs_format() {
        let t = Timestamp::parse("2026-02-19T10:00:00Z").unwrap();
        assert_eq!(t.to_string(), "2026-02-19T10:00:00Z");
        assert_eq!(t.plus(Duration::from_secs(61)).to_string(), "2026-02-19T10:01:01Z");
    }

    #[test]
    fn day_and_month_boundaries_are_in_utc() {
        for (at, day, next, month, after) in [
            ("2026-02-28T23:59:59Z", "2026-02-28", "2026-03-01", "2026-02-01", "2026-03-01"),
            ("2026-12-01T00:00:00Z", "2026-12-01", "2026-12-02", "2026-12-01", "2027-01-01"),
        ] {
            let t = Timestamp::parse(at).unwrap();
            let found = [t.day_start(), t.next_day(), t.month_start(), t.next_month()];
            let wanted = [day, next, month, after].map(|day| format!("{day}T00:00:00Z"));
            assert_eq!(found.map(|t| t.to_string()), wanted);
        }
    }

    #[test]
    fn money_parses_user_input_and_displays_cents() {
        let read = |text| MicroUsd::parse(text).map(|money| money.0).ok();
        assert_eq!(
            ["$2", "2.5", " 0.000001 ", "$0.05"].map(read),
            [2_000_000, 2_500_000, 1, 50_000].map(Some)
        );
        for wrong in ["", "$", "-1", "1,5", "1.", ".5", "1.0000001", "1000001", "2 dollars", "0x1", "+3"] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
        let shown =
            [0, 1, 4_999, 5_000, 404_999, 405_000, 12_000_000].map(|micro| MicroUsd(micro).to_string());
        assert_eq!(shown, ["$0.00", "<$0.01", "<$0.01", "$0.01", "$0.40", "$0.41", "$12.00"]);
    }

    #[test]
    fn issue_number_is_parsed_from_bot_branch_names_and_no_others() {
        assert_eq!(IssueNo(42).branch(1), "countersign/issue-42");
        for nth in [1, 3] {
            assert_eq!(IssueNo::from_branch(&IssueNo(42).branch(nth)), Some(IssueNo(42)));
        }
        for other in ["", "4x", "4-x", "4-", "4-0", "4-1", "4-02", "4-+2", "4-2-3", "+4", "04", "-4"] {
            assert_eq!(IssueNo::from_branch(&format!("countersign/issue-{other}")), None, "{other}");
        }
        for other in ["x/countersign/issue-4", "issue-4"] {
            assert_eq!(IssueNo::from_branch(other), None, "{other}");
        }
    }

    #[test]
    fn repo_name_with_path_characters_is_refused() {
        for bad in ["a", "a/b/c", "../x", "a/..", "a/", "/b", "a b/c", "a/b\n"] {
            assert!(bad.parse::<RepoName>().is_err(), "{bad}");
        }
        assert_eq!("A/b".parse::<RepoName>().unwrap(), "a/B".parse::<RepoName>().unwrap());
    }

    #[test]
    fn digest_of_parts_depends_on_part_boundaries() {
        assert_ne!(Hash::digest_parts([&b"ab"[..], b"c"]), Hash::digest_parts([&b"a"[..], b"bc"]));
    }
}
