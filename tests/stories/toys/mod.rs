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
pub(crate) static ALL: &[&dyn AnyWorkflow<Desk>] = &[&workflows::lld::Lld, &note::Note, &pages::Pages];

/// The settings of all of them.
pub(crate) const TABLES: &[WorkflowTable] = &[
    WorkflowTable { name: "lld", document_path: "docs/lld/LLD-{issue}.md" },
    WorkflowTable { name: "note", document_path: "NOTE-{issue}.md" },
    WorkflowTable { name: "pages", document_path: "docs/pages/{issue}/index.md" },
];

/// A step in a line.
const fn step(id: &'static str, title: &'static str, kind: Kind) -> StepInfo {
    StepInfo { id, title, kind }
}
