//! Settings of each workflow, in one table per workflow. All tables have the same keys. The caller lists the workflows;
//! this module does not know their names.

use std::{
    collections::BTreeMap,
    path::{Component, Path},
};

use serde::{Deserialize, Serialize};
use toml::{
    Spanned,
    de::{DeTable, Deserializer, Error, ValueDeserializer},
};

use super::{
    gates::{GateRules, parse_number},
    routing::{RouteMode, Routing},
};
use crate::types::IssueNo;

/// Maximum value of `max_rounds`.
pub const MOST_ROUNDS: u32 = 10;

/// Defaults and features of a workflow that has a settings table.
#[derive(Debug)]
pub struct WorkflowDefaults {
    /// Name of the workflow's table in the server's and the repository's settings, such as `lld`.
    pub name: &'static str,
    /// Default path of the workflow's document; `{issue}` is replaced by the issue number.
    pub document_path: &'static str,
    /// Whether the workflow files its result as an issue. If so, the [`Filing`] settings apply, and `document_path`
    /// only names the document.
    pub files_issue: bool,
    /// Whether the workflow has only one gate, which comes before the review and is off by default.
    pub asks_before: bool,
    /// Whether the workflow writes code. If so, a person must approve the result: CI and other people will run the
    /// code, so a review is not enough.
    pub makes_code: bool,
    /// Whether the workflow searches other repositories. Enables the [`Search`] settings.
    pub searches: bool,
    /// Whether the workflow is the router, which chooses the workflow for a free-text request and writes no document.
    pub routes: bool,
    /// Whether settings can give the workflow's models the tools of their roles.
    pub looks: bool,
}

impl WorkflowDefaults {
    /// Returns the defaults of a workflow whose document goes into the repository.
    pub const fn for_document(name: &'static str, document_path: &'static str) -> Self {
        Self {
            name,
            document_path,
            files_issue: false,
            asks_before: false,
            makes_code: false,
            searches: false,
            routes: false,
            looks: false,
        }
    }
}

/// Settings of a workflow that files its result as an issue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Filing {
    /// Whether a model of another family reviews the draft. If not, people decide on the unreviewed draft.
    pub review: bool,
    /// Number of hours in which people may answer questions. Afterwards the default answers apply.
    pub answer_hours: u32,
    /// Labels that the workflow may set on the issue, if they exist in the repository.
    pub labels: Vec<String>,
}

/// Settings of a workflow that searches other repositories.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Search {
    /// Minimum number of stars of the repositories that the workflow considers.
    pub min_stars: u32,
    /// Maximum number of repositories to read.
    pub limit: u32,
    /// Whether models see code of the repository in which the run was started.
    pub send_code: bool,
}

/// Tools that models may call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolSettings {
    pub drafter: bool,
    pub reviewer: bool,
    /// Whether the tools may run the role's commands.
    pub commands: bool,
    /// Maximum number of responses that request tools. After that many, the model must answer without tools.
    pub turns: u32,
}

/// Place where a reviewed document is published.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Publish {
    /// The document is published in a comment on the issue. A pull request then contains only code and tests.
    #[default]
    Comment,
    /// The document is published in a pull request: as a file on the issue's branch, next to its review log.
    PullRequest,
}

/// Document from which the code workflow starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BeginsWith {
    Spec,
    /// The code workflow starts from the design. If the issue has no spec, the spec is written first.
    Lld,
}

/// Maximum value of `tool_turns`. Each turn is a paid call, and its prompt repeats all earlier results.
const MOST_TURNS: u32 = 20;

/// Maximum value of `limit`. It is low, because all repositories found are shown in one prompt.
const MOST_REPOSITORIES: u32 = 10;

const MOST_STARS: u32 = 1_000_000;

/// Maximum value of `answer_hours`: one month.
const MOST_ANSWER_HOURS: u32 = 720;

const MOST_LABELS: usize = 20;

/// Prefix of our own labels, which start and stop runs.
const OUR_LABELS: &str = "countersign:";

/// Settings of one workflow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkflowSettings {
    /// Maximum number of review rounds before the run halts.
    pub max_rounds: u32,
    /// Whether a person approves the draft before the review.
    pub draft_gate: bool,
    /// Whether a person must decide after the reviewer has approved.
    pub verdict_gate: bool,
    /// Approval rules of the workflow's gates.
    pub gates: GateRules,
    /// Path of the approved document in the repository; `{issue}` is replaced by the issue number.
    pub document_path: String,
    /// Place where the document is published; not used if the result is filed as an issue.
    pub publish: Publish,
    /// Settings for filing the result as an issue; `None` if it goes into the repository.
    pub filing: Option<Filing>,
    /// Settings for searching other repositories; `None` if the workflow does not search.
    pub search: Option<Search>,
    /// Tools for the workflow's models; `None` if they cannot get tools.
    pub tools: Option<ToolSettings>,
    /// Whether the workflow has only one gate, which comes before the review.
    pub asks_before: bool,
    /// Whether the workflow writes code.
    pub makes_code: bool,
    /// Minimum percentage of the changed lines that the tests must execute; `None` if the workflow writes no code.
    pub coverage: Option<u32>,
    /// Document from which the workflow starts; `None` if the workflow writes no code.
    pub from: Option<BeginsWith>,
    /// Settings of the router; `None` for other workflows.
    pub routing: Option<Routing>,
}

impl WorkflowSettings {
    fn from_defaults(table: &WorkflowDefaults) -> Self {
        let document_path = table.document_path.to_owned();
        let filing = Filing { review: true, answer_hours: 24, labels: Vec::new() };
        let filing = table.files_issue.then_some(filing);
        let search = table.searches.then_some(Search { min_stars: 100, limit: 3, send_code: false });
        let tools = ToolSettings { drafter: false, reviewer: false, commands: false, turns: 5 };
        let tools = table.looks.then_some(tools);
        let gates = GateRules::default();
        let WorkflowDefaults { asks_before, makes_code, .. } = *table;
        let (draft_gate, verdict_gate) = (false, !asks_before);
        Self {
            max_rounds: 3,
            draft_gate,
            verdict_gate,
            gates,
            document_path,
            publish: Publish::default(),
            filing,
            search,
            tools,
            asks_before,
            makes_code,
            coverage: makes_code.then_some(95),
            from: makes_code.then_some(BeginsWith::Spec),
            routing: table.routes.then(Routing::default),
        }
    }

    /// Returns the document's path for one issue.
    pub fn document_path_of(&self, issue: IssueNo) -> String {
        document_path_of(&self.document_path, issue)
    }
}

/// Replaces `{issue}` in a document path.
pub fn document_path_of(document_path: &str, issue: IssueNo) -> String {
    document_path.replace("{issue}", &issue.to_string())
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
pub(super) struct WorkflowSettingsTable {
    max_rounds: Option<Spanned<u32>>,
    draft_gate: Option<Spanned<bool>>,
    verdict_gate: Option<Spanned<bool>>,
    document_path: Option<Spanned<String>>,
    publish: Option<Spanned<Publish>>,
    review: Option<Spanned<bool>>,
    answer_hours: Option<Spanned<u32>>,
    labels: Option<Spanned<Vec<String>>>,
    min_stars: Option<Spanned<u32>>,
    limit: Option<Spanned<u32>>,
    send_code: Option<Spanned<bool>>,
    pub(super) mode: Option<Spanned<RouteMode>>,
    pub(super) model: Option<Spanned<String>>,
    pub(super) service_timeout: Option<Spanned<String>>,
    pub(super) program_timeout: Option<Spanned<String>>,
    tools: Option<Spanned<bool>>,
    review_tools: Option<Spanned<bool>>,
    tool_commands: Option<Spanned<bool>>,
    tool_turns: Option<Spanned<u32>>,
    coverage: Option<Spanned<u32>>,
    from: Option<Spanned<BeginsWith>>,
    pub(super) approvals: Option<Spanned<u32>>,
    pub(super) approver_not_requester: Option<Spanned<bool>>,
    pub(super) code_owners: Option<Spanned<bool>>,
    pub(super) remind_days: Option<Spanned<u32>>,
    pub(super) expire_days: Option<Spanned<u32>>,
}

/// Byte offset of an invalid value in the file, and the error message.
pub(super) type Refusal = (usize, String);

/// Settings of every workflow, by name.
pub type SettingsByWorkflow = BTreeMap<&'static str, WorkflowSettings>;

/// Settings table of each workflow, in the order in which the caller gave the names.
type NamedWorkflowTables = Vec<(&'static str, WorkflowSettingsTable)>;

/// Removes the workflow tables from a settings file and parses the remaining tables as `F`.
pub(super) fn split_workflow_tables<'t, F: Deserialize<'t>>(
    text: &'t str,
    names: impl Iterator<Item = &'static str>,
) -> Result<(F, NamedWorkflowTables), Error> {
    let mut file = DeTable::parse(text)?;
    let mut tables = Vec::new();
    for name in names {
        let table = file
            .get_mut()
            .remove(name)
            .map(|given| WorkflowSettingsTable::deserialize(ValueDeserializer::from(given)));
        tables.push((name, table.transpose()?.unwrap_or_default()));
    }
    Ok((F::deserialize(Deserializer::from(file))?, tables))
}

impl WorkflowSettingsTable {
    pub(super) fn document_path(&self) -> Option<usize> {
        self.document_path.as_ref().map(|path| path.span().start)
    }

    pub(super) fn into_settings(self, defaults: &WorkflowDefaults) -> Result<WorkflowSettings, Refusal> {
        let mut settings = WorkflowSettings::from_defaults(defaults);
        self.check_fits(&settings)?;
        settings.gates = self.gate_rules(&settings.gates, true)?;
        settings.routing = settings.routing.map(|usual| self.routing_settings(&usual)).transpose()?;
        if let Some(filing) = &mut settings.filing {
            filing.review = self.review.map_or(filing.review, Spanned::into_inner);
            if let Some(hours) = self.answer_hours {
                filing.answer_hours = parse_number("answer_hours", &hours, 1..=MOST_ANSWER_HOURS)?;
            }
            filing.labels = self.labels.map_or(Ok(Vec::new()), |labels| parse_labels(&labels))?;
        }
        if let Some(search) = &mut settings.search {
            if let Some(stars) = &self.min_stars {
                search.min_stars = parse_number("min_stars", stars, 0..=MOST_STARS)?;
            }
            if let Some(limit) = &self.limit {
                search.limit = parse_number("limit", limit, 1..=MOST_REPOSITORIES)?;
            }
            search.send_code = self.send_code.is_some_and(Spanned::into_inner);
        }
        if let Some(tools) = &mut settings.tools {
            tools.drafter = self.tools.is_some_and(Spanned::into_inner);
            tools.reviewer = self.review_tools.is_some_and(Spanned::into_inner);
            tools.commands = self.tool_commands.is_some_and(Spanned::into_inner);
            if let Some(turns) = &self.tool_turns {
                tools.turns = parse_number("tool_turns", turns, 1..=MOST_TURNS)?;
            }
        }
        if let Some(coverage) = &self.coverage {
            settings.coverage = Some(parse_number("coverage", coverage, 0..=100)?);
        }
        settings.from = self.from.map(Spanned::into_inner).or(settings.from);
        settings.publish = self.publish.map_or(settings.publish, Spanned::into_inner);
        if let Some(rounds) = &self.max_rounds {
            settings.max_rounds = parse_number("max_rounds", rounds, 1..=MOST_ROUNDS)?;
        }
        if let Some(path) = self.document_path {
            if let Err(why) = check_document_path(path.as_ref(), defaults) {
                let message = format!("document_path = {:?} {why}", path.as_ref());
                return Err((path.span().start, message));
            }
            settings.document_path = path.into_inner();
        }
        for (given, gate) in
            [(self.draft_gate, &mut settings.draft_gate), (self.verdict_gate, &mut settings.verdict_gate)]
        {
            *gate = given.map_or(*gate, Spanned::into_inner);
        }
        Ok(settings)
    }

    /// Refuses keys that do not apply to this workflow, and values that this workflow does not allow.
    fn check_fits(&self, settings: &WorkflowSettings) -> Result<(), Refusal> {
        self.check_fits_routing(settings.routing.is_some())?;
        if let Some(gate) = self.verdict_gate.as_ref().filter(|_| settings.asks_before) {
            let message = "verdict_gate does not apply: this workflow's only gate comes before its review; write draft_gate";
            return Err((gate.span().start, message.to_owned()));
        }
        if let Some(gate) = self.verdict_gate.as_ref().filter(|gate| settings.makes_code && !*gate.as_ref()) {
            let message = "verdict_gate = false is not allowed for code: CI runs pushed code, so a person must \
                           approve it; remove the line";
            return Err((gate.span().start, message.to_owned()));
        }
        if let Some(gate) = self.draft_gate.as_ref().filter(|_| settings.makes_code) {
            let message = "draft_gate is not for a workflow that writes code: its gate comes after the tests and the \
                           review; remove the line";
            return Err((gate.span().start, message.to_owned()));
        }
        if let Some(gate) = self.draft_gate.as_ref().filter(|_| settings.search.is_some()) {
            let message =
                "draft_gate is not for [scout], whose only gate comes after the review; remove the line";
            return Err((gate.span().start, message.to_owned()));
        }
        let spans = [
            ("coverage", self.coverage.as_ref().map(Spanned::span)),
            ("from", self.from.as_ref().map(Spanned::span)),
        ];
        if let (false, Some((name, span))) =
            (settings.makes_code, spans.into_iter().find_map(|(name, span)| Some((name, span?))))
        {
            return Err((span.start, format!("{name} is for [implement] only; remove the line")));
        }
        let spans = [
            ("min_stars", self.min_stars.as_ref().map(Spanned::span)),
            ("limit", self.limit.as_ref().map(Spanned::span)),
            ("send_code", self.send_code.as_ref().map(Spanned::span)),
        ];
        if let (None, Some((name, span))) =
            (&settings.search, spans.into_iter().find_map(|(name, span)| Some((name, span?))))
        {
            return Err((span.start, format!("{name} is for [scout] only; remove the line")));
        }
        let spans = [
            ("tools", self.tools.as_ref().map(Spanned::span)),
            ("review_tools", self.review_tools.as_ref().map(Spanned::span)),
            ("tool_commands", self.tool_commands.as_ref().map(Spanned::span)),
            ("tool_turns", self.tool_turns.as_ref().map(Spanned::span)),
        ];
        if let (None, Some((name, span))) =
            (&settings.tools, spans.into_iter().find_map(|(name, span)| Some((name, span?))))
        {
            return Err((
                span.start,
                format!("{name} is for [lld], [spec] and [implement]; remove the line"),
            ));
        }
        if settings.filing.is_none() {
            let spans = [
                ("review", self.review.as_ref().map(Spanned::span)),
                ("answer_hours", self.answer_hours.as_ref().map(Spanned::span)),
                ("labels", self.labels.as_ref().map(Spanned::span)),
            ];
            return match spans.into_iter().find_map(|(name, span)| Some((name, span?))) {
                Some((name, span)) => {
                    Err((span.start, format!("{name} is for [issue] only; remove the line")))
                }
                None => Ok(()),
            };
        }
        if let Some(gate) = self.verdict_gate.as_ref().filter(|gate| !*gate.as_ref()) {
            let message = "verdict_gate = false is not allowed for [issue]: the filed text replaces a person's own, or \
                           speaks in this repository's name, so a person must approve it; remove the line";
            return Err((gate.span().start, message.to_owned()));
        }
        let spans = [
            ("document_path", self.document_path.as_ref().map(Spanned::span)),
            ("publish", self.publish.as_ref().map(Spanned::span)),
        ];
        match spans.into_iter().find_map(|(name, span)| Some((name, span?))) {
            Some((name, span)) => Err((
                span.start,
                format!("{name} is not for [issue], whose result is filed as an issue; remove the line"),
            )),
            None => Ok(()),
        }
    }

    /// Refuses keys of `[route]` in other workflows' tables, and other workflows' keys in `[route]`.
    fn check_fits_routing(&self, routes: bool) -> Result<(), Refusal> {
        fn at<T>(name: &'static str, given: &Option<Spanned<T>>) -> Option<(&'static str, usize)> {
            given.as_ref().map(|given| (name, given.span().start))
        }
        let of_route = [
            at("mode", &self.mode),
            at("model", &self.model),
            at("service_timeout", &self.service_timeout),
            at("program_timeout", &self.program_timeout),
        ];
        let of_others = [
            at("max_rounds", &self.max_rounds),
            at("draft_gate", &self.draft_gate),
            at("verdict_gate", &self.verdict_gate),
            at("document_path", &self.document_path),
            at("publish", &self.publish),
            at("approvals", &self.approvals),
            at("approver_not_requester", &self.approver_not_requester),
            at("code_owners", &self.code_owners),
            at("remind_days", &self.remind_days),
            at("expire_days", &self.expire_days),
        ];
        let strange = if routes {
            of_others.into_iter().flatten().next()
        } else {
            of_route.into_iter().flatten().next()
        };
        match strange {
            Some((name, at)) if routes => Err((at, format!("{name} is not for [route]; remove the line"))),
            Some((name, at)) => Err((at, format!("{name} is for [route] only; remove the line"))),
            None => Ok(()),
        }
    }

    /// Builds a repository's settings of a workflow. They may only tighten the server's settings.
    pub(super) fn tighten(self, server: &WorkflowSettings) -> Result<WorkflowSettings, Refusal> {
        let mut settings = server.clone();
        self.check_fits(server)?;
        settings.gates = self.gate_rules(&server.gates, false)?;
        settings.routing = settings.routing.map(|server| self.tighten_routing(&server)).transpose()?;
        if let Some(filing) = &mut settings.filing {
            if let Some(review) = self.review {
                if filing.review && !*review.as_ref() {
                    let message = "review = false would remove a review the server requires; remove the line or set it \
                                   to true";
                    return Err((review.span().start, message.to_owned()));
                }
                filing.review = review.into_inner();
            }
            if let Some(hours) = self.answer_hours {
                let within = filing.answer_hours..=MOST_ANSWER_HOURS;
                filing.answer_hours = parse_number("answer_hours", &hours, within)?;
            }
            if let Some(labels) = self.labels {
                let own = parse_labels(&labels)?;
                if let Some(other) = own.iter().find(|label| !filing.labels.contains(label)) {
                    let message =
                        format!("labels holds {other:?}, which the server does not allow; remove it");
                    return Err((labels.span().start, message));
                }
                filing.labels = own;
            }
        }
        if let Some(search) = &mut settings.search {
            if let Some(stars) = &self.min_stars {
                search.min_stars = parse_number("min_stars", stars, search.min_stars..=MOST_STARS)?;
            }
            if let Some(limit) = &self.limit {
                search.limit = parse_number("limit", limit, 1..=search.limit)?;
            }
            if let Some(send) = &self.send_code {
                if *send.as_ref() && !search.send_code {
                    let message =
                        "send_code = true can only be set by the server; remove the line".to_owned();
                    return Err((send.span().start, message));
                }
                search.send_code = *send.as_ref();
            }
        }
        if let Some(tools) = &mut settings.tools {
            for (name, given, on) in [
                ("tools", &self.tools, &mut tools.drafter),
                ("review_tools", &self.review_tools, &mut tools.reviewer),
                ("tool_commands", &self.tool_commands, &mut tools.commands),
            ] {
                let Some(given) = given else { continue };
                if *given.as_ref() && !*on {
                    let message = format!("{name} = true can only be set by the server; remove the line");
                    return Err((given.span().start, message));
                }
                *on = *given.as_ref();
            }
            if let Some(turns) = &self.tool_turns {
                tools.turns = parse_number("tool_turns", turns, 1..=tools.turns)?;
            }
        }
        if let (Some(coverage), Some(least)) = (&self.coverage, server.coverage) {
            settings.coverage = Some(parse_number("coverage", coverage, least..=100)?);
        }
        // Allowed: either way the code is built from reviewed and approved documents.
        settings.from = self.from.map(Spanned::into_inner).or(settings.from);
        settings.publish = self.publish.map_or(settings.publish, Spanned::into_inner);
        if let Some(rounds) = self.max_rounds {
            let (requested, allowed) = (*rounds.as_ref(), server.max_rounds);
            if requested == 0 || requested > allowed {
                let message = format!(
                    "max_rounds = {requested} is outside 1 to {allowed}, the range that the server allows; choose \
                     a number in that range"
                );
                return Err((rounds.span().start, message));
            }
            settings.max_rounds = requested;
        }
        if let Some(path) = self.document_path {
            let message = "document_path can only be set by the server; remove the line".to_owned();
            return Err((path.span().start, message));
        }
        for (name, given, gate) in [
            ("draft_gate", self.draft_gate, &mut settings.draft_gate),
            ("verdict_gate", self.verdict_gate, &mut settings.verdict_gate),
        ] {
            let Some(given) = given else { continue };
            if *gate && !*given.as_ref() {
                let message = format!(
                    "{name} = false would remove a gate the server requires; remove the line or set it to true"
                );
                return Err((given.span().start, message));
            }
            *gate = given.into_inner();
        }
        Ok(settings)
    }
}

fn parse_labels(labels: &Spanned<Vec<String>>) -> Result<Vec<String>, Refusal> {
    let given = labels.as_ref();
    let refuse = |message: String| Err((labels.span().start, message));
    if given.len() > MOST_LABELS {
        return refuse(format!("labels holds {} names; {MOST_LABELS} are allowed", given.len()));
    }
    for label in given {
        // GitHub limits label names to 50 characters.
        if label.trim().is_empty() || label.chars().count() > 50 || label.contains([',', '`', '\n']) {
            return refuse(format!("labels holds {label:?}, which is not a label name"));
        }
        if label.to_lowercase().starts_with(OUR_LABELS) {
            return refuse(format!(
                "labels holds {label:?}: labels beginning with {OUR_LABELS} start and stop runs"
            ));
        }
    }
    Ok(given.clone())
}

fn check_document_path(path: &str, defaults: &WorkflowDefaults) -> Result<(), String> {
    let parts: Vec<_> = Path::new(path).components().collect();
    let inside = parts.iter().all(|part| match part {
        Component::Normal(name) => !name.to_string_lossy().to_ascii_lowercase().starts_with(".git"),
        _ => false,
    });
    if !inside || path.contains(['\\', '\n', ':']) {
        let good = defaults.document_path;
        Err(format!("must be a path inside the repository, away from .git and .github; write {good}"))
    } else if !path.contains("{issue}") {
        Err("must hold {issue}, or documents would overwrite each other".to_owned())
    } else if !path.ends_with(".md") {
        Err("must end in .md, because it is Markdown".to_owned())
    } else {
        Ok(())
    }
}
