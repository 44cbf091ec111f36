//! Workflows that nobody needs, made of the document stage: with several files, also as code that is watched until it is
//! merged.

mod pages;

use countersign::{
    config::WorkflowTable,
    engine::{AnyWorkflow, Kind, StepInfo},
    rounds::Desk,
    workflows,
};

/// The product's, and the toys.
pub(crate) static ALL: &[&dyn AnyWorkflow<Desk>] = &[
    &workflows::route::Route,
    &workflows::scout::Scout,
    &workflows::issue::Issue,
    &workflows::lld::Lld,
    &workflows::spec::Spec,
    &workflows::implement::Implement,
    &pages::Made::<false>,
    &pages::Made::<true>,
];

/// The settings of all of them.
pub(crate) const TABLES: &[WorkflowTable] = &[
    WorkflowTable { routes: true, ..WorkflowTable::of("route", "") },
    WorkflowTable { searches: true, ..WorkflowTable::of("scout", "docs/scout/{slug}-{issue}.md") },
    WorkflowTable { files_issue: true, ..WorkflowTable::of("issue", "issue-{issue}.md") },
    WorkflowTable { looks: true, ..WorkflowTable::of("lld", "docs/lld/LLD-{issue}.md") },
    WorkflowTable { asks_before: true, ..WorkflowTable::of("spec", "docs/spec/SPEC-{issue}.md") },
    WorkflowTable {
        makes_code: true,
        looks: true,
        ..WorkflowTable::of("implement", "docs/reports/IMPLEMENT-{issue}.md")
    },
    WorkflowTable::of("pages", "docs/pages/{issue}/index.md"),
    WorkflowTable::of("patch", "docs/patch/{issue}.md"),
];

/// A step in a line.
const fn step(id: &'static str, title: &'static str, kind: Kind) -> StepInfo {
    StepInfo { id, title, kind }
}
