//! Parses quota reset times in all the forms Google uses.

use std::time::Duration;

use serde_json::Value;
use time::{Date, Month, OffsetDateTime};

use crate::types::Timestamp;

/// Whether the error says that a daily quota is exhausted. All other limits are short-term.
pub(super) fn is_daily(error: &Value, message: &str) -> bool {
    let by_name = error_details(error)
        .flat_map(|detail| detail["violations"].as_array().into_iter().flatten())
        .any(|violation| violation["quotaId"].as_str().is_some_and(|id| id.contains("PerDay")));
    let message = message.to_ascii_lowercase();
    by_name || message.contains("daily quota") || message.contains("per day")
}

/// Returns the time until the quota resets. If the message of a daily quota names no time, the quota resets at midnight
/// in Google's time zone. The structured retry delay is ignored for a daily quota, because it belongs to the per-minute
/// limit.
pub(super) fn reset_wait(
    error: &Value,
    message: &str,
    header: Option<Duration>,
    daily: bool,
    now: Timestamp,
) -> Option<Duration> {
    if daily {
        return wait_in_sentence(message, &["after"]).or_else(|| Some(until_midnight(now)));
    }
    error_details(error)
        .find_map(|detail| parse_wait(detail["retryDelay"].as_str()?))
        .or(header)
        .or_else(|| wait_in_sentence(message, &["after", "in"]))
}

pub(super) fn error_details(error: &Value) -> impl Iterator<Item = &Value> {
    error["details"].as_array().into_iter().flatten()
}

/// Finds a duration within a sentence such as "will reset after 45m10s." `before` lists the words that may precede the
/// duration.
fn wait_in_sentence(message: &str, before: &[&str]) -> Option<Duration> {
    let words: Vec<_> = message.split_whitespace().collect();
    words
        .windows(2)
        .filter(|pair| before.contains(&pair[0]))
        .find_map(|pair| parse_wait(pair[1].trim_end_matches(['.', ',', ';', ')'])))
}

/// Parses durations as services write them: `45s`, `0.5s`, `1h2m3s`, `45m10s`.
fn parse_wait(text: &str) -> Option<Duration> {
    let mut seconds = 0.0;
    let mut rest = text.trim();
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let number: f64 = rest[..end].parse().ok()?;
        let unit = rest[end..].find(|c: char| c.is_ascii_digit()).map_or(rest.len(), |at| end + at);
        seconds += number
            * match &rest[end..unit] {
                "ms" => 0.001,
                "s" => 1.0,
                "m" => 60.0,
                "h" => 3600.0,
                "d" => 86_400.0,
                _ => return None,
            };
        rest = &rest[unit..];
    }
    Duration::try_from_secs_f64(seconds).ok()
}

const HOUR: i64 = 3_600_000;
const DAY: i64 = 24 * HOUR;

/// Returns the time until midnight in the Pacific time zone, at which Google's quota days end.
fn until_midnight(now: Timestamp) -> Duration {
    let day = (now.0 + pacific_offset(now)).div_euclid(DAY) + 1;
    let unless_clocks_change = Timestamp(day * DAY - pacific_offset(now));
    Timestamp(day * DAY - pacific_offset(unless_clocks_change)).since(now)
}

/// Returns the offset of the Pacific time zone from UTC. Daylight saving time lasts from 2:00 on the second Sunday of
/// March to 2:00 on the first Sunday of November.
fn pacific_offset(at: Timestamp) -> i64 {
    let year = OffsetDateTime::from_unix_timestamp(at.0.div_euclid(1000)).map_or(1970, OffsetDateTime::year);
    let summer =
        nth_sunday(year, Month::March, 2) + 10 * HOUR..nth_sunday(year, Month::November, 1) + 9 * HOUR;
    if summer.contains(&at.0) { -7 * HOUR } else { -8 * HOUR }
}

/// Returns midnight UTC of the `nth` Sunday of a month.
fn nth_sunday(year: i32, month: Month, nth: i64) -> i64 {
    let Ok(first) = Date::from_calendar_date(year, month, 1) else { return 0 };
    let to_sunday = (7 - i64::from(first.weekday().number_days_from_sunday())) % 7;
    first.midnight().assume_utc().unix_timestamp() * 1000 + (to_sunday + 7 * (nth - 1)) * DAY
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn durations_are_parsed_in_each_format_that_services_send() {
        for (text, seconds) in
            [("45s", 45.0), ("0.5s", 0.5), ("1h2m3s", 3723.0), ("45m10s", 2710.0), ("250ms", 0.25)]
        {
            assert_eq!(parse_wait(text), Some(Duration::from_secs_f64(seconds)), "{text}");
        }
        for bad in ["", "s", "12", "3 parsecs", "1.2.3s", "1e9s", "-4s"] {
            assert_eq!(parse_wait(bad), None, "{bad}");
        }
    }

    #[test]
    fn daily_quota_resets_at_pacific_midnight() {
        for (now, midnight) in [
            ("2026-01-15T07:59:59Z", "2026-01-15T08:00:00Z"),
            ("2026-01-15T08:00:00Z", "2026-01-16T08:00:00Z"),
            ("2026-07-04T12:00:00Z", "2026-07-05T07:00:00Z"),
            // Clocks go forward on 8 March 2026 and back on 1 November.
            ("2026-03-08T07:30:00Z", "2026-03-08T08:00:00Z"),
            ("2026-03-08T09:59:00Z", "2026-03-09T07:00:00Z"),
            ("2026-03-08T10:00:00Z", "2026-03-09T07:00:00Z"),
            ("2026-11-01T06:00:00Z", "2026-11-01T07:00:00Z"),
            ("2026-11-01T08:30:00Z", "2026-11-02T08:00:00Z"),
            ("2026-12-31T23:00:00Z", "2027-01-01T08:00:00Z"),
        ] {
            let at = Timestamp::parse(now).unwrap();
            assert_eq!(at.plus(until_midnight(at)).to_string(), midnight, "after {now}");
        }
    }

    #[test]
    fn retry_wait_prefers_the_delay_field_then_the_header_then_the_message() {
        let now = Timestamp::parse("2026-07-04T06:00:00Z").unwrap();
        let info = json!({"details": [{"retryDelay": "45s"}]});
        let header = Some(Duration::from_secs(7));
        let text = "Quota exceeded. Please retry in 38.5s.";
        let daily = "You have exhausted your daily quota; it will reset after 45m10s.";
        let seconds = Duration::from_secs;
        assert_eq!(reset_wait(&info, text, header, false, now), Some(seconds(45)));
        assert_eq!(reset_wait(&Value::Null, text, header, false, now), Some(seconds(7)));
        assert_eq!(reset_wait(&Value::Null, text, None, false, now), Some(Duration::from_millis(38_500)));
        assert_eq!(reset_wait(&Value::Null, "slow down in general", None, false, now), None);
        assert_eq!(reset_wait(&info, text, header, true, now), Some(seconds(3600)));
        assert_eq!(reset_wait(&info, daily, header, true, now), Some(seconds(2710)));
        assert!(is_daily(&Value::Null, daily) && !is_daily(&info, text));
    }
}
