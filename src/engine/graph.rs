//! Checks and diagrams of a workflow's graph. They need only the workflow's table of edges.

use std::{
    collections::{HashSet, VecDeque},
    fmt::Write as _,
};

use super::workflow::{LesserProof, StepKind, WorkflowStep};

type StepGraph<S> = [(S, &'static [S])];

/// A step's public names and kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StepInfo {
    /// Id, such as `N1.5`.
    pub id: &'static str,
    /// Title, such as `Validate mechanically`.
    pub title: &'static str,
    pub kind: StepKind,
}

/// Reason why a graph is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GraphError {
    #[error("{workflow}: the graph has no rows; a run starts at the first row")]
    Empty { workflow: String },
    #[error("{workflow}: {step} has no row in the graph; give it one, empty if nothing follows")]
    NoRow { workflow: String, step: String },
    #[error("{workflow}: {step} has two rows in the graph; merge them")]
    TwoRows { workflow: String, step: String },
    #[error("{workflow}: two steps are called {id}; ids must differ")]
    SameId { workflow: String, id: String },
    #[error("{workflow}: no path from the start reaches {step}; remove it or add the missing edge")]
    Unreachable { workflow: String, step: String },
    #[error(
        "{workflow}: {path} publishes a draft that passed no review followed by a gate, and the workflow declares \
         no lesser proof; put both on this path"
    )]
    Unreviewed { workflow: String, path: String },
}

/// Checks that the graph is well formed. Every path from a draft to a publish must pass a review and then a gate. If
/// `proofs` allows it, one of the two is enough.
pub(super) fn check_graph<S: WorkflowStep>(
    workflow: &str,
    graph: &StepGraph<S>,
    proofs: &[LesserProof],
) -> Result<(), GraphError> {
    let workflow = || workflow.to_owned();
    let Some((first, _)) = graph.first() else { return Err(GraphError::Empty { workflow: workflow() }) };
    let mut ids = HashSet::new();
    for (index, (step, _)) in graph.iter().enumerate() {
        if graph[..index].iter().any(|(earlier, _)| earlier == step) {
            return Err(GraphError::TwoRows { workflow: workflow(), step: format!("{step:?}") });
        }
        if !ids.insert(step.id()) {
            return Err(GraphError::SameId { workflow: workflow(), id: step.id().to_owned() });
        }
    }
    let (mut seen, mut todo) = (HashSet::from([*first]), vec![*first]);
    while let Some(step) = todo.pop() {
        let Some((_, next)) = graph.iter().find(|(at, _)| *at == step) else {
            return Err(GraphError::NoRow { workflow: workflow(), step: format!("{step:?}") });
        };
        todo.extend(next.iter().filter(|to| seen.insert(**to)));
    }
    if let Some((step, _)) = graph.iter().find(|(step, _)| !seen.contains(step)) {
        return Err(GraphError::Unreachable { workflow: workflow(), step: format!("{step:?}") });
    }
    match unproved_path(graph, proofs) {
        Some(path) => Err(GraphError::Unreviewed { workflow: workflow(), path }),
        None => Ok(()),
    }
}

/// Progress since the last draft on a path: whether the path has passed a review, a gate or both.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum DraftProgress {
    Nothing,
    Gate,
    Review,
    ReviewThenGate,
}

/// Returns the shortest path from a draft to a publish that lacks a required review or gate; `None` if all paths are
/// valid. `proofs` tells which of the two may be missing.
fn unproved_path<S: WorkflowStep>(graph: &StepGraph<S>, proofs: &[LesserProof]) -> Option<String> {
    let enough = |seen| match seen {
        DraftProgress::Nothing => false,
        DraftProgress::Gate => proofs.contains(&LesserProof::Unreviewed),
        DraftProgress::Review => proofs.contains(&LesserProof::Policy),
        DraftProgress::ReviewThenGate => true,
    };
    let drafts = graph.iter().map(|(step, _)| *step).filter(|step| step.kind() == StepKind::Draft);
    let mut todo: VecDeque<(Vec<S>, DraftProgress)> =
        drafts.map(|draft| (vec![draft], DraftProgress::Nothing)).collect();
    let mut visited = HashSet::new();
    while let Some((path, seen)) = todo.pop_front() {
        let at = *path.last()?;
        for to in successors(graph, at) {
            let seen = match (to.kind(), seen) {
                (StepKind::Draft, _) => DraftProgress::Nothing,
                (StepKind::Gate, DraftProgress::Nothing) => DraftProgress::Gate,
                (StepKind::Review, DraftProgress::Nothing | DraftProgress::Gate) => DraftProgress::Review,
                (StepKind::Gate, DraftProgress::Review) => DraftProgress::ReviewThenGate,
                (_, seen) => seen,
            };
            let mut longer = path.clone();
            longer.push(*to);
            if to.kind() == StepKind::Publish && !enough(seen) {
                let names: Vec<_> = longer.iter().map(|step| step.id()).collect();
                return Some(names.join(" -> "));
            }
            if visited.insert((*to, seen)) {
                todo.push_back((longer, seen));
            }
        }
    }
    None
}

fn successors<S: WorkflowStep>(graph: &StepGraph<S>, at: S) -> &'static [S] {
    graph.iter().find(|(step, _)| *step == at).map_or(&[], |(_, next)| *next)
}

/// Returns the maximum number of moves without an answer from a person. The limit allows `iterations` rounds of a loop
/// and one pass through the graph. Each of these has at most as many moves as the graph has steps.
pub(super) fn recursion_limit<S: WorkflowStep>(graph: &StepGraph<S>, iterations: u32) -> u32 {
    let steps = u32::try_from(graph.len()).unwrap_or(u32::MAX);
    iterations.saturating_add(1).saturating_mul(steps)
}

/// Renders the graph as a Mermaid flowchart; a node's shape and class show its kind.
pub(super) fn mermaid<S: WorkflowStep>(graph: &StepGraph<S>) -> String {
    let mut text = String::from("flowchart TD\n");
    for (step, _) in graph {
        let (open, close, class) = match step.kind() {
            StepKind::Work => ("[", "]", "work"),
            StepKind::Draft => ("([", "])", "draft"),
            StepKind::Review => ("{{", "}}", "review"),
            StepKind::Gate => ("{", "}", "gate"),
            StepKind::Pause | StepKind::Watch => ("[/", "/]", "pause"),
            StepKind::Publish => ("[[", "]]", "publish"),
        };
        let label = format!("{} · {}", step.id(), step.info().title).replace('"', "#quot;");
        let _ = writeln!(text, "    {}{open}\"{label}\"{close}:::{class}", mermaid_node(*step));
    }
    for (step, next) in graph {
        for to in *next {
            let _ = writeln!(text, "    {} --> {}", mermaid_node(*step), mermaid_node(*to));
        }
    }
    text.push_str(
        "    classDef work fill:#f6f8fa,stroke:#57606a,color:#24292f
    classDef draft fill:#ddf4ff,stroke:#0969da,color:#24292f
    classDef review fill:#fbefff,stroke:#8250df,color:#24292f
    classDef gate fill:#fff8c5,stroke:#9a6700,color:#24292f
    classDef pause fill:#fff1e5,stroke:#bc4c00,color:#24292f
    classDef publish fill:#dafbe1,stroke:#1a7f37,color:#24292f
",
    );
    text
}

/// Returns the step id as a Mermaid node name: `N1.5` becomes `N1_5`.
fn mermaid_node(step: impl WorkflowStep) -> String {
    step.id().chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::{Deserialize, Serialize};

    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
    enum GraphTestStep {
        Load,
        Draft,
        Review,
        Gate,
        Publish,
    }
    use GraphTestStep::{Draft, Gate, Load, Publish, Review};

    impl WorkflowStep for GraphTestStep {
        fn info(self) -> StepInfo {
            let (id, title, kind) = match self {
                Load => ("N0", "Load \"it\"", StepKind::Work),
                Draft => ("N1.5", "Draft", StepKind::Draft),
                Review => ("N3", "Review", StepKind::Review),
                Gate => ("N4", "Gate", StepKind::Gate),
                Publish => ("N5", "Publish", StepKind::Publish),
            };
            StepInfo { id, title, kind }
        }
    }

    fn check_result(graph: &'static StepGraph<GraphTestStep>) -> String {
        check_result_with_proofs(graph, &[])
    }

    fn check_result_with_proofs(graph: &'static StepGraph<GraphTestStep>, proofs: &[LesserProof]) -> String {
        check_graph("lld", graph, proofs).map_or_else(|error| error.to_string(), |()| "sound".to_owned())
    }

    #[test]
    fn error_for_a_malformed_graph_names_the_step() {
        assert_eq!(
            check_result(&[
                (Load, &[Draft]),
                (Draft, &[Review]),
                (Review, &[Draft, Gate]),
                (Gate, &[Draft, Publish]),
                (Publish, &[])
            ]),
            "sound"
        );
        assert!(check_result(&[]).contains("no rows"));
        assert!(check_result(&[(Load, &[Draft])]).contains("Draft has no row"));
        assert!(check_result(&[(Load, &[]), (Load, &[])]).contains("Load has two rows"));
        assert!(check_result(&[(Load, &[]), (Draft, &[])]).contains("reaches Draft"));
    }

    #[test]
    fn graph_with_a_path_that_skips_review_or_gate_is_refused() {
        let around: [(&'static StepGraph<GraphTestStep>, &str); 4] = [
            (&[(Draft, &[Review]), (Review, &[Publish]), (Publish, &[])], "N1.5 -> N3 -> N5"),
            (&[(Draft, &[Gate]), (Gate, &[Publish]), (Publish, &[])], "N1.5 -> N4 -> N5"),
            // The gate comes before the review.
            (
                &[(Draft, &[Gate]), (Gate, &[Review]), (Review, &[Publish]), (Publish, &[])],
                "N1.5 -> N4 -> N3 -> N5",
            ),
            // A second draft follows the gate.
            (
                &[
                    (Review, &[Gate]),
                    (Gate, &[Draft, Publish]),
                    (Draft, &[Load]),
                    (Load, &[Review, Publish]),
                    (Publish, &[]),
                ],
                "N1.5 -> N0 -> N5",
            ),
        ];
        for (graph, path) in around {
            assert!(
                check_result(graph).contains(&format!("lld: {path} publishes")),
                "{}",
                check_result(graph)
            );
        }
    }

    #[test]
    fn graph_may_skip_review_or_gate_only_if_the_workflow_declares_it() {
        let reviewed: &StepGraph<GraphTestStep> = &[(Draft, &[Review]), (Review, &[Publish]), (Publish, &[])];
        let asked: &StepGraph<GraphTestStep> = &[(Draft, &[Gate]), (Gate, &[Publish]), (Publish, &[])];
        let neither: &StepGraph<GraphTestStep> = &[(Draft, &[Load]), (Load, &[Publish]), (Publish, &[])];
        for (graph, enough) in [(reviewed, LesserProof::Policy), (asked, LesserProof::Unreviewed)] {
            assert_eq!(check_result_with_proofs(graph, &[enough]), "sound");
            let other =
                if enough == LesserProof::Policy { LesserProof::Unreviewed } else { LesserProof::Policy };
            assert_ne!(check_result_with_proofs(graph, &[other]), "sound");
        }
        assert_ne!(
            check_result_with_proofs(neither, &[LesserProof::Policy, LesserProof::Unreviewed]),
            "sound"
        );
    }

    #[test]
    fn graph_diagram_contains_every_step_and_edge() {
        let text = mermaid::<GraphTestStep>(&[(Load, &[Draft]), (Draft, &[Draft])]);
        let lines: Vec<_> = text.lines().take(5).map(str::trim).collect();
        assert_eq!(
            lines,
            [
                "flowchart TD",
                "N0[\"N0 · Load #quot;it#quot;\"]:::work",
                "N1_5([\"N1.5 · Draft\"]):::draft",
                "N0 --> N1_5",
                "N1_5 --> N1_5"
            ]
        );
    }
}
