//! Two workflows that nobody needs, made of the document stage: in another order than the design's, with another
//! target, and with several files.

mod note;
mod pages;

use countersign::{
    config::WorkflowTable,
    engine::{AnyWorkflow, Kind, StepInfo},
    rounds::Desk,
    workflows,
};

/// The product's, and the toys.
pub(crate) static ALL: &[&dyn AnyWorkflow<Desk>] =
    &[&workflows::issue::Issue, &workflows::lld::Lld, &note::Note, &pages::Pages];

/// The settings of all of them.
pub(crate) const TABLES: &[WorkflowTable] = &[
    WorkflowTable { name: "issue", document_path: "issue-{issue}.md", files_issue: true },
    WorkflowTable::of("lld", "docs/lld/LLD-{issue}.md"),
    WorkflowTable::of("note", "NOTE-{issue}.md"),
    WorkflowTable::of("pages", "docs/pages/{issue}/index.md"),
];

/// A step in a line.
const fn step(id: &'static str, title: &'static str, kind: Kind) -> StepInfo {
    StepInfo { id, title, kind }
}
