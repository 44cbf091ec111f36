use serde_json::json;

use super::*;
use crate::providers::CallRole;

fn call(schema: bool) -> Call {
    Call {
        role: CallRole::Drafter,
        system: String::new(),
        prompt: String::new(),
        schema: schema.then(|| {
            json!({"type": "object", "required": ["severity"], "properties": {"severity": {"type": "string"}}})
        }),
        model: "claude-opus-4-6".into(),
        effort: None,
        deadline: Duration::from_secs(1),
        budget: None,
        private: false,
        not_families: Vec::new(),
        workers: Default::default(),
        facts: Default::default(),
    }
}

fn judge(lines: &str, status: Option<i32>, schema: bool) -> Result<Reply, CallError> {
    let mut transcript = Transcript::default();
    lines.lines().for_each(|line| transcript.line(line.as_bytes()));
    let output =
        Output { status, stdout: vec![], stderr: b"error: why".to_vec(), elapsed: Duration::from_secs(2) };
    transcript.judge(&call(schema), &output)
}

fn fixture(name: &str) -> String {
    std::fs::read_to_string(format!("fixtures/models/claude/{name}.jsonl")).unwrap()
}

#[test]
fn every_recorded_ending_is_told_apart() {
    use CallErrorKind::*;
    let wrong = |served: &str| WrongModel { served: Some(served.into()) };
    let cases: Vec<(&str, i32, bool, Option<CallErrorKind>)> = vec![
        ("good", 0, false, None),
        ("good-about-limits", 0, false, None),
        ("good-structured", 0, true, None),
        ("good", 1, false, Some(Unavailable)),
        ("structured-misfit", 0, true, Some(InvalidOutput)),
        ("schema-ignored", 0, true, Some(InvalidOutput)),
        ("schema-given-up", 1, true, Some(InvalidOutput)),
        ("other-model", 0, false, Some(wrong("claude-haiku-4-5-20251001"))),
        ("second-message-other-model", 0, false, Some(wrong("claude-sonnet-4-6"))),
        ("stranger", 0, false, Some(wrong("somebody-else-1"))),
        ("unnamed-model", 0, false, Some(WrongModel { served: None })),
        ("no-assistant", 0, false, Some(WrongModel { served: None })),
        ("local-command", 0, false, Some(WrongModel { served: None })),
        ("empty", 0, false, Some(InvalidOutput)),
        ("blank", 0, false, Some(InvalidOutput)),
        ("unauthorized", 1, false, Some(Auth)),
        ("unauthorized-old", 1, false, Some(Auth)),
        ("forbidden", 1, false, Some(Auth)),
        ("not-logged-in", 1, false, Some(Auth)),
        ("rate-limited", 1, false, Some(RateLimited { reset: Some(Duration::from_millis(20_500)) })),
        ("overloaded", 1, false, Some(Capacity)),
        ("server-error", 1, false, Some(Unavailable)),
        ("bad-gateway", 1, false, Some(Unavailable)),
        ("no-such-model", 1, false, Some(Unavailable)),
        ("prompt-too-long", 1, false, Some(TooLong)),
        ("too-large", 1, false, Some(TooLong)),
        ("no-credit", 1, false, Some(Quota { reset: None })),
        ("cut", 1, false, Some(Truncated)),
        ("refused", 1, false, Some(Refused)),
        ("dropped", 1, false, Some(Unavailable)),
        ("over-budget", 1, false, Some(Quota { reset: None })),
    ];
    for (name, status, schema, expected) in &cases {
        let outcome = judge(&fixture(name), Some(*status), *schema);
        assert_eq!(outcome.as_ref().err().map(|error| &error.kind), expected.as_ref(), "{name}: {outcome:?}");
    }
    let recorded = std::fs::read_dir("fixtures/models/claude").unwrap().count();
    assert_eq!(recorded, cases.iter().map(|c| c.0).collect::<std::collections::BTreeSet<_>>().len());
}

#[test]
fn usage_comes_from_the_result_and_the_model_from_the_message() {
    let usage = judge(&fixture("good"), Some(0), false).unwrap().usage;
    assert_eq!(usage.served.as_deref(), Some("claude-opus-4-6"));
    assert_eq!((usage.input_tokens, usage.output_tokens, usage.cache_read_tokens), (1000, 50, 200));
    assert_eq!((usage.attempts, usage.billed, usage.elapsed), (1, false, Duration::from_secs(2)));

    let usage = judge(&fixture("other-model"), Some(0), false).unwrap_err().usage;
    assert_eq!(usage.asked, "claude-opus-4-6");
    assert_eq!(usage.served.as_deref(), Some("claude-haiku-4-5-20251001"));

    let usage = judge(&fixture("schema-given-up"), Some(1), true).unwrap_err().usage;
    assert_eq!((usage.input_tokens, usage.output_tokens), (4000, 200), "spent though the usage says 0");
    assert_eq!(judge(&fixture("overloaded"), Some(1), false).unwrap_err().usage.attempts, 2);
}

#[test]
fn nothing_printed_is_no_answer() {
    for (status, lines) in
        [(Some(0), ""), (Some(1), ""), (None, ""), (Some(0), "not json\n{\"type\":\"system\"}\n[]\n")]
    {
        let error = judge(lines, status, false).unwrap_err();
        assert_eq!(error.kind, CallErrorKind::Unavailable);
        assert!(error.message.contains("error: why"), "{error}");
    }
}

#[test]
fn no_cut_of_the_output_makes_an_answer() {
    let whole = fixture("good");
    for end in 0..whole.trim_end().len() {
        if whole.is_char_boundary(end) {
            assert!(judge(&whole[..end], Some(0), false).is_err(), "cut at {end}");
        }
    }
}
