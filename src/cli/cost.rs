//! `countersign cost`: sums the costs of model calls.

use std::{path::Path, process::ExitCode, sync::Arc};

use anyhow::{Context, anyhow};

use super::{
    ConfigFlag, align_columns,
    control::{operator_name, post_to_server},
    print_line, require_data,
};
use crate::{
    clock::SystemClock,
    store::{Spending, Store},
    types::{MicroUsd, RepoName, RunId},
    web::{
        control::{self, ControlMessage, ControlReply, CostGrouping, CostLine, CostReportRequest},
        held_calls::{SettleCallsRequest, settle_calls},
    },
    workflows,
};

/// Sum the ledger: billed cost, held cost, and the list-price cost of calls paid by subscriptions.
///
/// Reads through the running server, or from the data directory if no server runs. HELD is the amount reserved for
/// calls in flight and for finished calls for which it is unknown whether they were billed. Amounts held for finished
/// calls count towards the limits of the day and the month until you record the billed amount with --settle. With
/// --json, amounts are whole micro-dollars.
#[derive(clap::Args)]
pub(super) struct CostCommand {
    /// Count only calls of this repository.
    #[arg(value_name = "OWNER/REPO")]
    repo: Option<RepoName>,
    /// Count only calls of this run.
    #[arg(long)]
    run: Option<RunId>,
    /// Property by which calls are grouped into lines.
    #[arg(long, value_enum, default_value_t)]
    by: CostGrouping,
    /// Print a JSON array instead of a table.
    #[arg(long)]
    json: bool,
    /// Release the amounts held for finished calls. Without --billed, the calls are recorded as not billed.
    #[arg(long, conflicts_with_all = ["by", "json"])]
    settle: bool,
    /// Amount that was billed for the held calls of --run, for example $0.40.
    #[arg(long, value_name = "DOLLARS", requires = "settle", requires = "run", value_parser = MicroUsd::parse)]
    billed: Option<MicroUsd>,
    #[command(flatten)]
    config: ConfigFlag,
}

impl CostCommand {
    pub(super) async fn run(self) -> anyhow::Result<ExitCode> {
        let settings = workflows::load_settings(&self.config.config)?;
        if self.settle {
            return self.settle(&settings.data_dir).await;
        }
        let request = CostReportRequest {
            repository: self.repo.map(|name| name.to_string()),
            run: self.run,
            by: self.by,
        };
        let by = serde_json::to_value(request.by)?;
        let mut query = url::form_urlencoded::Serializer::new(String::new());
        query.append_pair("by", by.as_str().unwrap_or_default());
        query.extend_pairs(request.repository.iter().map(|name| ("repository", name)));
        query.extend_pairs(request.run.iter().map(|run| ("run", run.to_string())));
        let path = format!("/cost?{}", query.finish());
        let reply = control::call_server(&settings.data_dir, &path, None).await;
        let lines: Vec<CostLine> = match reply.context("the server did not answer")? {
            ControlReply::Done(lines) => lines,
            ControlReply::Refused(why) => return Err(anyhow!(why)),
            ControlReply::NotRunning => read_costs(&settings.data_dir, &request).await?,
        };
        if self.json {
            print_line(serde_json::to_string_pretty(&lines)?);
        } else if lines.is_empty() {
            print_line("No model calls yet.");
        } else {
            table(&lines, request.by).iter().for_each(print_line);
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl CostCommand {
    async fn settle(self, data: &Path) -> anyhow::Result<ExitCode> {
        let billed = self.billed.unwrap_or_default();
        let request =
            SettleCallsRequest { repository: self.repo, run: self.run, billed, by: operator_name() };
        match post_to_server::<ControlMessage>(data, "/settle", &request).await? {
            ControlReply::Done(reply) => print_line(reply.message),
            ControlReply::Refused(why) => return Err(anyhow!(why)),
            ControlReply::NotRunning => {
                require_data(data)?;
                let store = Store::open(data, Arc::new(SystemClock))?;
                print_line(settle_calls(&store, &request).await?);
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Reads the costs from a data directory that no server uses.
async fn read_costs(data: &Path, request: &CostReportRequest) -> anyhow::Result<Vec<CostLine>> {
    require_data(data)?;
    let store = Store::open(data, Arc::new(SystemClock))?;
    Ok(control::sum_costs(&store, request).await?)
}

fn table(lines: &[CostLine], by: CostGrouping) -> Vec<String> {
    let what = match by {
        CostGrouping::Run => "RUN",
        CostGrouping::Stage => "STAGE",
        CostGrouping::Model => "MODEL",
        CostGrouping::Day => "DAY",
    };
    let head = [what, "REPOSITORY", "CALLS", "BILLED", "HELD", "NOTIONAL"].map(str::to_owned);
    let row = |what: &str, repository: &str, sum: &Spending| {
        let amounts = [sum.billed, sum.held, sum.notional].map(|amount| amount.to_string());
        let [billed, held, notional] = amounts;
        [what.to_owned(), repository.to_owned(), sum.calls.to_string(), billed, held, notional]
    };
    let all = lines.iter().fold(Spending::default(), |sum, line| sum.plus(&line.spent));
    let mut rows = vec![head];
    rows.extend(lines.iter().map(|line| row(&line.what, &line.repository, &line.spent)));
    rows.push(row("all", "", &all));
    align_columns(&rows)
}
