//! The settings of each workflow: one table a workflow, of the same shape.
//!
//! Which workflows there are is told from above; this room knows no workflow's name.

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

/// More rounds than this is a quarrel, not a review.
pub const MOST_ROUNDS: u32 = 10;

/// A workflow that has settings.
#[derive(Debug)]
pub struct WorkflowDefaults {
    /// The table's name in both files: `lld`.
    pub name: &'static str,
    /// Where its document goes, if nothing is said of it; `{issue}` is the issue's number.
    pub document_path: &'static str,
    /// What it makes is filed as an issue, of which more can be said, and its path in the repository is a mere name.
    pub files_issue: bool,
    /// Its one gate stands before the review, and asks nobody unless somebody wants it to.
    pub asks_before: bool,
    /// What it makes is run, by whoever merges it and by CI before: no review is enough for that.
    pub makes_code: bool,
    /// It looks at other people's repositories, of which more can be said.
    pub searches: bool,
    /// It makes no document, and chooses the workflow for what somebody asks in free words.
    pub routes: bool,
    /// Its models may have the tools of their roles.
    pub looks: bool,
}

impl WorkflowDefaults {
    /// One whose document goes into the repository.
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

/// How a workflow goes whose document is filed as an issue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Filing {
    /// A model of another family reviews it; otherwise people decide on the draft.
    pub review: bool,
    /// How long people may answer questions before the defaults hold.
    pub answer_hours: u32,
    /// Labels it may put on the issue, of those that the repository has.
    pub labels: Vec<String>,
}

/// How a workflow goes that looks at other people's repositories.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Search {
    /// Repositories with fewer stars are not looked at.
    pub min_stars: u32,
    /// So many are read, at most.
    pub limit: u32,
    /// Models are shown code of the repository that asks.
    pub send_code: bool,
}

/// Who has the tools of its role.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolSettings {
    pub drafter: bool,
    pub reviewer: bool,
    /// Either may have its role's commands run, too.
    pub commands: bool,
    /// How often, before it must answer.
    pub turns: u32,
}

/// Where a reviewed document is published.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Publish {
    /// In a comment on the issue; a pull request has code and tests alone.
    #[default]
    Comment,
    /// As a file on the issue's branch, beside its review log, with a pull request that shows them.
    PullRequest,
}

/// What the workflow that writes code begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BeginsWith {
    Spec,
    /// Where there is no spec of it yet, that is written first.
    Lld,
}

/// Each turn is a call that is paid for, with all that was found before in its prompt.
const MOST_TURNS: u32 = 20;

/// Each is read by models, in a prompt of one size.
const MOST_REPOSITORIES: u32 = 10;

/// No repository has more.
const MOST_STARS: u32 = 1_000_000;

/// A month: whoever has not answered by then does not.
const MOST_ANSWER_HOURS: u32 = 720;

/// More than that says nothing of an issue.
const MOST_LABELS: usize = 20;

/// What labels of ours begin with: they start and stop runs.
const OUR_LABELS: &str = "countersign:";

/// How a workflow goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkflowSettings {
    /// Review rounds before the run halts.
    pub max_rounds: u32,
    /// A person looks at the draft before the reviewer does.
    pub draft_gate: bool,
    /// A person decides on what the reviewer approved.
    pub verdict_gate: bool,
    /// Whom its gates ask, and how long.
    pub gates: GateRules,
    /// Where the approved document goes in the repository; `{issue}` is the issue's number.
    pub document_path: String,
    /// Where its document is published, unless that is filed as an issue.
    pub publish: Publish,
    /// None: it goes into the repository.
    pub filing: Option<Filing>,
    /// None: it looks at nothing but its own repository.
    pub search: Option<Search>,
    /// None: its models are shown what they need, and look at nothing themselves.
    pub tools: Option<ToolSettings>,
    /// Its one gate stands before the review.
    pub asks_before: bool,
    /// What it makes is run.
    pub makes_code: bool,
    /// Percent of the changed lines that tests should run; none where nothing is run.
    pub coverage: Option<u32>,
    /// None: it makes a document as well.
    pub from: Option<BeginsWith>,
    /// None: it makes a document.
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

    /// The document's path for one issue.
    pub fn document_path_of(&self, issue: IssueNo) -> String {
        document_path_of(&self.document_path, issue)
    }
}

/// Where such a path leads for one issue.
pub fn document_path_of(document_path: &str, issue: IssueNo) -> String {
    document_path.replace("{issue}", &issue.to_string())
}

/// What a file says of a workflow.
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

/// A value that can't be used: the byte where it stands, and why.
pub(super) type Refusal = (usize, String);

/// The settings of every workflow, by its name.
pub type SettingsByWorkflow = BTreeMap<&'static str, WorkflowSettings>;

/// What a file says of each workflow, in the order of their names as they were given.
type NamedWorkflowTables = Vec<(&'static str, WorkflowSettingsTable)>;

/// Takes the workflows' tables out of a file; the rest of it is an `F`.
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
    /// Where a path for documents is said.
    pub(super) fn document_path(&self) -> Option<usize> {
        self.document_path.as_ref().map(|path| path.span().start)
    }

    /// The server's own word.
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

    /// Refuses what means nothing for such a workflow, or must not be.
    fn check_fits(&self, settings: &WorkflowSettings) -> Result<(), Refusal> {
        self.check_fits_routing(settings.routing.is_some())?;
        if let Some(gate) = self.verdict_gate.as_ref().filter(|_| settings.asks_before) {
            let message = "verdict_gate is not for a workflow whose one gate stands before its review; write draft_gate";
            return Err((gate.span().start, message.to_owned()));
        }
        if let Some(gate) = self.verdict_gate.as_ref().filter(|gate| settings.makes_code && !*gate.as_ref()) {
            let message = "verdict_gate = false is not for a workflow that writes code: what is pushed is run, and that takes \
                           a person; remove the line";
            return Err((gate.span().start, message.to_owned()));
        }
        if let Some(gate) = self.draft_gate.as_ref().filter(|_| settings.makes_code) {
            let message = "draft_gate is not for a workflow that writes code: its gate stands after the tests and the \
                           review; remove the line";
            return Err((gate.span().start, message.to_owned()));
        }
        if let Some(gate) = self.draft_gate.as_ref().filter(|_| settings.search.is_some()) {
            let message =
                "draft_gate is not for [scout], whose one gate stands after the review; remove the line";
            return Err((gate.span().start, message.to_owned()));
        }
        let spans = [
            ("coverage", self.coverage.as_ref().map(Spanned::span)),
            ("from", self.from.as_ref().map(Spanned::span)),
        ];
        if let (false, Some((name, span))) =
            (settings.makes_code, spans.into_iter().find_map(|(name, span)| Some((name, span?))))
        {
            return Err((span.start, format!("{name} is for [implement] alone; remove the line")));
        }
        let spans = [
            ("min_stars", self.min_stars.as_ref().map(Spanned::span)),
            ("limit", self.limit.as_ref().map(Spanned::span)),
            ("send_code", self.send_code.as_ref().map(Spanned::span)),
        ];
        if let (None, Some((name, span))) =
            (&settings.search, spans.into_iter().find_map(|(name, span)| Some((name, span?))))
        {
            return Err((span.start, format!("{name} is for [scout] alone; remove the line")));
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
                    Err((span.start, format!("{name} is for [issue] alone; remove the line")))
                }
                None => Ok(()),
            };
        }
        if let Some(gate) = self.verdict_gate.as_ref().filter(|gate| !*gate.as_ref()) {
            let message = "verdict_gate = false is not for [issue]: what is filed takes the place of somebody's words, or \
                           speaks in this repository's name, and that takes a person; remove the line";
            return Err((gate.span().start, message.to_owned()));
        }
        let spans = [
            ("document_path", self.document_path.as_ref().map(Spanned::span)),
            ("publish", self.publish.as_ref().map(Spanned::span)),
        ];
        match spans.into_iter().find_map(|(name, span)| Some((name, span?))) {
            Some((name, span)) => Err((
                span.start,
                format!("{name} is not for [issue], which is filed as one; remove the line"),
            )),
            None => Ok(()),
        }
    }

    /// What is said of `[route]` is said of nothing else, and the other way round.
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
            Some((name, at)) => Err((at, format!("{name} is for [route] alone; remove the line"))),
            None => Ok(()),
        }
    }

    /// A repository's word, which may tighten the server's and never loosen it.
    pub(super) fn tighten(self, server: &WorkflowSettings) -> Result<WorkflowSettings, Refusal> {
        let mut settings = server.clone();
        self.check_fits(server)?;
        settings.gates = self.gate_rules(&server.gates, false)?;
        settings.routing = settings.routing.map(|server| self.tighten_routing(&server)).transpose()?;
        if let Some(filing) = &mut settings.filing {
            if let Some(review) = self.review {
                if filing.review && !*review.as_ref() {
                    let message = "review = false would take away a review the server demands; remove the line or set it \
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
                    let message = "send_code = true is for the server to say; remove the line".to_owned();
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
                    let message = format!("{name} = true is for the server to say; remove the line");
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
        // Either way it is built from what was reviewed and accepted.
        settings.from = self.from.map(Spanned::into_inner).or(settings.from);
        settings.publish = self.publish.map_or(settings.publish, Spanned::into_inner);
        if let Some(rounds) = self.max_rounds {
            let (asked, allowed) = (*rounds.as_ref(), server.max_rounds);
            if asked == 0 || asked > allowed {
                let message = format!(
                    "max_rounds = {asked} is outside 1 to {allowed}, what the server allows; \
                     choose a number in that range"
                );
                return Err((rounds.span().start, message));
            }
            settings.max_rounds = asked;
        }
        if let Some(path) = self.document_path {
            let message = "document_path is for the server to say; remove the line".to_owned();
            return Err((path.span().start, message));
        }
        for (name, given, gate) in [
            ("draft_gate", self.draft_gate, &mut settings.draft_gate),
            ("verdict_gate", self.verdict_gate, &mut settings.verdict_gate),
        ] {
            let Some(given) = given else { continue };
            if *gate && !*given.as_ref() {
                let message = format!(
                    "{name} = false would take away a gate the server demands; remove the line or set it to true"
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
        // GitHub takes none that is longer.
        if label.trim().is_empty() || label.chars().count() > 50 || label.contains([',', '`', '\n']) {
            return refuse(format!("labels holds {label:?}, which is no label's name"));
        }
        if label.to_lowercase().starts_with(OUR_LABELS) {
            return refuse(format!(
                "labels holds {label:?}: what begins with {OUR_LABELS} starts and stops runs"
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
        Err("must end in .md, for it is Markdown".to_owned())
    } else {
        Ok(())
    }
}
