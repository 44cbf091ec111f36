//! Toy workflows for tests, built on the document stage. One publishes a document of several files. The other publishes
//! code and watches it until the code is merged.

mod pages;

use countersign::{
    config::WorkflowDefaults,
    engine::{AnyWorkflow, StepInfo, StepKind},
    rounds::StepServices,
    workflows,
};

/// All workflows of the product and the toy workflows.
pub(crate) static ALL: &[&dyn AnyWorkflow<StepServices>] = &[
    &workflows::route::RouteWorkflow,
    &workflows::scout::ScoutWorkflow,
    &workflows::issue::IssueWorkflow,
    &workflows::lld::LldWorkflow,
    &workflows::spec::SpecWorkflow,
    &workflows::implement::ImplementWorkflow,
    &pages::Made::<false>,
    &pages::Made::<true>,
];

/// Settings of the workflows in [`ALL`].
pub(crate) const TABLES: &[WorkflowDefaults] = &[
    WorkflowDefaults { routes: true, ..WorkflowDefaults::for_document("route", "") },
    WorkflowDefaults {
        searches: true,
        ..WorkflowDefaults::for_document("scout", "docs/scout/{slug}-{issue}.md")
    },
    WorkflowDefaults { files_issue: true, ..WorkflowDefaults::for_document("issue", "issue-{issue}.md") },
    WorkflowDefaults { looks: true, ..WorkflowDefaults::for_document("lld", "docs/lld/LLD-{issue}.md") },
    WorkflowDefaults {
        asks_before: true,
        ..WorkflowDefaults::for_document("spec", "docs/spec/SPEC-{issue}.md")
    },
    WorkflowDefaults {
        makes_code: true,
        looks: true,
        ..WorkflowDefaults::for_document("implement", "docs/reports/IMPLEMENT-{issue}.md")
    },
    WorkflowDefaults::for_document("pages", "docs/pages/{issue}/index.md"),
    WorkflowDefaults::for_document("patch", "docs/patch/{issue}.md"),
];

/// Returns a [`StepInfo`] with these values.
const fn step(id: &'static str, title: &'static str, kind: StepKind) -> StepInfo {
    StepInfo { id, title, kind }
}
