//! `countersign routes`: lists the routing decisions for free-text requests.

use std::process::ExitCode;

use serde_json::json;

use super::{ConfigFlag, align_columns, print_line};
use crate::{
    documents::routing::{RoutingDecision, RoutingMethod},
    store::{self, DatabaseSource, PastRoute},
    types::{MicroUsd, RepoName},
    workflows::route::{CALL_ALERT_MICROUSD, MEAN_ALERT_MICROUSD, MEAN_SAMPLE, mean},
};

/// List how free-text requests were routed, with the costs and how often people changed the result.
///
/// Read-only; works while a server runs. LED TO is the result: begin (a run was started), probably (a run was started,
/// and a command to undo this was shown), offer (people were offered a choice), answer (a question was answered),
/// decline (the request was declined). CHANGED counts the runs that people stopped, or replaced by another workflow
/// before their end, within a day. With --json, amounts are whole micro-dollars.
#[derive(clap::Args)]
pub(super) struct RoutesCommand {
    /// List only requests in this repository.
    #[arg(value_name = "OWNER/REPO")]
    repo: Option<RepoName>,
    /// Print JSON instead of a table.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    config: ConfigFlag,
}

impl RoutesCommand {
    pub(super) async fn run(self) -> anyhow::Result<ExitCode> {
        let lines = read_routes(&self.config.open_source(None)?, self.repo.as_ref())?;
        let sums = RouteTotals::from_lines(&lines);
        if self.json {
            let rows: Vec<_> =
                lines.iter().map(|(name, line, decision)| row_json(name, line, decision)).collect();
            print_line(serde_json::to_string_pretty(&json!({ "routes": rows, "sums": sums.json() }))?);
        } else if lines.is_empty() {
            print_line("No requests in free words yet.");
        } else {
            table(&lines).iter().for_each(print_line);
            sums.sentences().iter().for_each(print_line);
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Returns the routed requests of one repository or of all repositories, oldest first.
fn read_routes(
    place: &DatabaseSource,
    only: Option<&RepoName>,
) -> anyhow::Result<Vec<(String, PastRoute, RoutingDecision)>> {
    let mut lines: Vec<(String, PastRoute, RoutingDecision)> = Vec::new();
    for (repo, name) in store::repositories(place)? {
        if only.is_some_and(|wanted| !wanted.to_string().eq_ignore_ascii_case(&name.to_string())) {
            continue;
        }
        for line in store::read_routes(place, repo)? {
            let decision = serde_json::from_value(line.route.decision.clone())?;
            lines.push((name.to_string(), line, decision));
        }
    }
    lines.sort_by_key(|(_, line, _)| line.at);
    Ok(lines)
}

/// Returns one alert for each cost limit that recent requests have exceeded.
pub(super) fn cost_alerts(place: &DatabaseSource) -> anyhow::Result<Vec<String>> {
    Ok(RouteTotals::from_lines(&read_routes(place, None)?).alerts().into_iter().map(alert_sentence).collect())
}

fn alert_sentence(why: &str) -> String {
    format!("Cost alert: {why}; choose a smaller model under [route].")
}

/// Totals over all listed requests.
struct RouteTotals {
    requests: usize,
    by_words: usize,
    begun: usize,
    changed: usize,
    /// Mean cost, in micro-dollars, of the most recent requests that called a model.
    mean: u64,
    dearest: u64,
    /// 95th percentile (nearest rank) of the answer time in milliseconds, over the requests that called a model.
    p95_ms: u64,
}

impl RouteTotals {
    fn from_lines(lines: &[(String, PastRoute, RoutingDecision)]) -> Self {
        let asked: Vec<_> =
            lines.iter().map(|(_, line, _)| &line.route).filter(|route| route.calls > 0).collect();
        let last = || asked.iter().rev().take(MEAN_SAMPLE as usize);
        let costs: Vec<u64> = last().map(|route| route.cost_microusd).collect();
        let mut times: Vec<u64> = asked.iter().map(|route| route.elapsed_ms).collect();
        times.sort_unstable();
        let begun = || {
            lines.iter().filter(|(_, line, d)| line.started_run.is_some() && d.method != RoutingMethod::Named)
        };
        Self {
            requests: lines.len(),
            by_words: lines
                .iter()
                .filter(|(.., decision)| decision.method == RoutingMethod::Keywords)
                .count(),
            begun: begun().count(),
            changed: begun().filter(|(_, line, _)| line.changed).count(),
            mean: mean(&costs),
            dearest: last().map(|route| route.dearest_microusd).max().unwrap_or(0),
            p95_ms: times.get((times.len() * 95).div_ceil(100).max(1) - 1).copied().unwrap_or(0),
        }
    }

    fn alerts(&self) -> Vec<&'static str> {
        let dear = (self.dearest > CALL_ALERT_MICROUSD)
            .then_some("one of the last routing calls cost more than $0.01");
        let mean =
            (self.mean > MEAN_ALERT_MICROUSD).then_some("the last requests cost more than $0.005 on average");
        dear.into_iter().chain(mean).collect()
    }

    fn precision(&self) -> Option<usize> {
        (self.begun > 0).then(|| (self.begun - self.changed) * 100 / self.begun)
    }

    fn sentences(&self) -> Vec<String> {
        let Self { requests, by_words, begun, changed, mean, p95_ms, .. } = self;
        let share = by_words * 100 / (*requests).max(1);
        let precision =
            self.precision().map_or("none started yet".to_owned(), |percent| format!("{percent} %"));
        let mut lines = vec![format!(
            "\n{requests} requests; {begun} runs started, {changed} of them changed by people (precision {precision}); \
             {share} % fell back to keywords; mean cost per request ${:.4}, 95 % answered within {p95_ms} ms.",
            *mean as f64 / 1e6
        )];
        lines.extend(self.alerts().into_iter().map(alert_sentence));
        lines
    }

    fn json(&self) -> serde_json::Value {
        json!({
            "requests": self.requests, "fell_back": self.by_words, "begun": self.begun, "changed": self.changed,
            "precision_percent": self.precision(), "mean_microusd": self.mean, "dearest_call_microusd": self.dearest,
            "p95_ms": self.p95_ms, "alerts": self.alerts(),
        })
    }
}

fn method(method: RoutingMethod) -> &'static str {
    match method {
        RoutingMethod::Model => "model",
        RoutingMethod::Cache => "cache",
        RoutingMethod::Keywords => "words",
        RoutingMethod::Named => "named",
    }
}

fn row_json(name: &str, line: &PastRoute, decision: &RoutingDecision) -> serde_json::Value {
    json!({
        "repository": name, "issue": line.issue, "run": line.run, "at": line.at.to_string(), "request": line.route.snippet,
        "skill": decision.skill, "confidence": f64::from(decision.confidence) / 1000.0, "method": method(decision.method),
        "led_to": line.route.lead, "workflow": line.route.workflow, "begun": line.started_run, "changed": line.changed,
        "calls": line.route.calls, "cost_microusd": line.route.cost_microusd, "elapsed_ms": line.route.elapsed_ms,
        "model": line.route.model, "reasoning": decision.reasoning, "fell_back": line.route.fell_back,
    })
}

fn table(lines: &[(String, PastRoute, RoutingDecision)]) -> Vec<String> {
    let head =
        ["AT", "REPOSITORY", "ISSUE", "SKILL", "SURE", "BY", "LED TO", "CHANGED", "COST", "MS", "REQUEST"];
    let row = |(name, line, decision): &(String, PastRoute, RoutingDecision)| {
        let PastRoute { route, .. } = line;
        [
            line.at.to_string(),
            name.clone(),
            format!("#{}", line.issue),
            decision.skill.clone().unwrap_or_else(|| "none".to_owned()),
            format!("{:.2}", f64::from(decision.confidence) / 1000.0),
            method(decision.method).to_owned(),
            line.started_run.map_or_else(|| route.lead.clone(), |run| format!("{} {run}", route.lead)),
            if line.changed { "yes" } else { "" }.to_owned(),
            format!("${:.4}", MicroUsd(route.cost_microusd).0 as f64 / 1e6),
            route.elapsed_ms.to_string(),
            route.snippet.chars().filter(|c| !c.is_control()).collect(),
        ]
    };
    let rows: Vec<_> = std::iter::once(head.map(str::to_owned)).chain(lines.iter().map(row)).collect();
    align_columns(&rows)
}
