//! Scripts of model responses for stories.

use serde_json::{Value, json};

/// Returns the first draft of the rehearsal script, which is well-formed for any repository.
pub(crate) fn design() -> String {
    let rehearsal: toml::Value =
        toml::from_str(include_str!("../../fixtures/models/rehearsal.toml")).unwrap();
    rehearsal["answer"][0]["text"].as_str().unwrap().to_owned()
}

/// Returns the first draft from the rehearsal script for a workflow that has its own responses there.
pub(crate) fn rehearsed(workflow: &str) -> String {
    let rehearsal: toml::Value =
        toml::from_str(include_str!("../../fixtures/models/rehearsal.toml")).unwrap();
    let drafts = |a: &&toml::Value| {
        let of = |key: &str| a.get(key).and_then(toml::Value::as_str);
        (of("workflow"), of("role")) == (Some(workflow), Some("drafter"))
    };
    rehearsal["answer"].as_array().unwrap().iter().find(drafts).unwrap()["text"].as_str().unwrap().to_owned()
}

/// Returns the drafter's responses for the sample's first issue: design, spec, tests and code.
pub(crate) fn to_a_pull() -> [String; 4] {
    let script: toml::Value = toml::from_str(include_str!("../../fixtures/models/pr.toml")).unwrap();
    let answers = script["answer"].as_array().unwrap().iter();
    let drafts = answers.filter(|answer| answer["role"].as_str() == Some("drafter"));
    let texts: Vec<_> =
        drafts.map(|answer| answer["text"].as_str().unwrap().trim_start().to_owned()).collect();
    texts.try_into().unwrap()
}

/// Returns the drafter's four responses (design, spec, tests and code) for the small repository, which has a single
/// function. Also returns the files of that repository.
pub(crate) fn small() -> ([String; 4], Vec<(String, Vec<u8>)>) {
    let small: toml::Value = toml::from_str(include_str!("../../fixtures/models/small.toml")).unwrap();
    let text = |value: &toml::Value| value.as_str().unwrap().trim_start().to_owned();
    let files = small["files"].as_table().unwrap().iter();
    let files = files.map(|(path, value)| (path.clone(), text(value).into_bytes())).collect();
    (["design", "spec", "tests", "code"].map(|key| text(&small[key])), files)
}

/// Builder of a script. Each method adds the next response of a role.
#[derive(Default)]
pub(crate) struct Script(Vec<Value>);

impl Script {
    pub(crate) fn drafts(self, text: &str) -> Self {
        self.with(json!({ "role": "drafter", "text": text }))
    }

    /// Adds a revision by the drafter that replaces the text `search`, which must occur once in the document.
    pub(crate) fn edits(self, search: &str, replace: &str) -> Self {
        let edits = json!([{ "search": search, "replace": replace }]);
        self.with(json!({ "role": "drafter", "json": { "edits": edits, "replies": [] } }))
    }

    /// Adds a revision by the drafter that replaces the text `search`, which must occur once in the document, and
    /// replies to findings.
    pub(crate) fn edits_and_replies(
        self,
        search: &str,
        replace: &str,
        replies: &[(&str, &str, &str)],
    ) -> Self {
        let mut script = self.replies(replies);
        script.0.last_mut().unwrap()["json"]["edits"] = json!([{ "search": search, "replace": replace }]);
        script
    }

    /// Adds a revision by the drafter that changes nothing and rebuts a finding.
    pub(crate) fn rebuts(self, finding: &str, why: &str) -> Self {
        self.replies(&[(finding, "rebutted", why)])
    }

    /// Adds a revision by the drafter that changes nothing and replies to findings. Each reply has the form `(finding,
    /// disposition, why)`.
    pub(crate) fn replies(self, replies: &[(&str, &str, &str)]) -> Self {
        let reply = |(finding, disposition, why): &(&str, &str, &str)| json!({ "finding": finding, "disposition": disposition, "why": why });
        let replies: Vec<Value> = replies.iter().map(reply).collect();
        self.with(json!({ "role": "drafter", "json": { "edits": [], "replies": replies } }))
    }

    pub(crate) fn reviews(self, review: &Value) -> Self {
        // As text, because TOML has no null and `repeats` may be null.
        self.reviews_as_text(&review.to_string())
    }

    pub(crate) fn reviews_as_text(self, text: &str) -> Self {
        self.with(json!({ "role": "reviewer", "text": text }))
    }

    pub(crate) fn fails(self, role: &str, error: &str) -> Self {
        self.with(json!({ "role": role, "error": error }))
    }

    /// Adds the response to the prompt that asks for the open questions of an issue.
    pub(crate) fn questions(self, text: &str) -> Self {
        self.with(json!({ "role": "reviewer", "task": "questions", "text": text }))
    }

    pub(crate) fn no_questions(self) -> Self {
        self.questions(r#"{"questions": []}"#)
    }

    /// Adds the response with the adversarial tests against an implementation.
    pub(crate) fn attacks(self, tests: &[Value]) -> Self {
        self.attacks_as_text(&json!({ "tests": tests }).to_string())
    }

    /// Adds a failure of the call that asks for adversarial tests.
    pub(crate) fn attack_fails(self, error: &str) -> Self {
        self.with(
            json!({ "role": "reviewer", "task": "adversarial", "workflow": "implement", "error": error }),
        )
    }

    pub(crate) fn attacks_as_text(self, text: &str) -> Self {
        self.with(json!({ "role": "reviewer", "task": "adversarial", "workflow": "implement", "text": text }))
    }

    /// Restricts the last response to runs of this workflow.
    pub(crate) fn of(mut self, workflow: &str) -> Self {
        self.0.last_mut().unwrap()["workflow"] = json!(workflow);
        self
    }

    /// Restricts the last response to this model.
    pub(crate) fn only(mut self, model: &str) -> Self {
        self.0.last_mut().unwrap()["model"] = json!(model);
        self
    }

    pub(crate) fn with(mut self, answer: Value) -> Self {
        self.0.push(answer);
        self
    }

    pub(crate) fn toml(&self) -> String {
        toml::to_string(&json!({ "answer": self.0 })).unwrap()
    }
}

/// Returns a well-formed review. The scripted model fills in the nonce.
pub(crate) fn review(verdict: &str, findings: &[Value], resolved: &[&str]) -> Value {
    json!({
        "nonce": "{{nonce}}", "verdict": verdict, "rationale": "A reason in one sentence.",
        "findings": findings, "resolved": resolved,
    })
}

pub(crate) fn approved() -> Value {
    review("APPROVED", &[], &[])
}

/// Returns an adversarial test in a file of its own.
pub(crate) fn attack(path: &str, requirement: &str, name: &str, body: &str) -> Value {
    let text = format!("#[test]\nfn {name}() {{\n    {body}\n}}\n");
    json!({ "path": path, "name": name, "requirement": requirement, "why": "It may wrap around.", "text": text })
}

pub(crate) fn finding(title: &str, repeats: Option<&str>) -> Value {
    json!({
        "severity": "high", "category": "tests", "place": "3", "title": title,
        "detail": "Say what is observed.", "repeats": repeats,
    })
}
