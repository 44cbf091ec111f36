//! Asks a small model a question whose answer is optional. The question is repeated once if the response is unusable.
//! The module does not wait for a busy model, because a person is waiting. As for every call, the cost is reserved and
//! recorded.

use std::{collections::BTreeMap, time::Duration};

use super::{
    Policy, StepContext,
    call_waits::{UnansweredCall, VisitWaits},
    draft::load_text,
    model_calls::{BudgetedCall, ServedModel, call_model},
    prompt::Prompt,
};
use crate::{
    config::Routing,
    engine::StepError,
    limits,
    messages::{FailureKind, ModelWaitReason},
    providers::CallRole,
    types::WorkerPool,
};

pub(super) struct SmallModelQuestion<'a> {
    pub(super) role: CallRole,
    /// Task of the call; `None` for the role's usual task.
    pub(super) task: Option<&'static str>,
    /// Journal keys of the first and the second call.
    pub(super) keys: [&'static str; 2],
    pub(super) system: &'a str,
    pub(super) prompt: &'a Prompt,
    /// Random word in the delimiters of the prompt's fences.
    pub(super) mark: &'a str,
    /// Worker pool whose slots limit the call, if the model runs as a program.
    pub(super) workers: WorkerPool,
    /// JSON Schema of the response, for services that support schemas.
    pub(super) schema: &'a serde_json::Value,
    /// Timeout of the call. `None` for the timeout of routing, which is shorter.
    pub(super) time: Option<Duration>,
}

/// Returns the parsed response and the model that wrote it. The inner error is a sentence that says why the response is
/// missing.
///
/// # Errors
/// Errors of journal and ledger.
pub(super) async fn ask_small_model<T>(
    cx: &StepContext,
    policy: &Policy,
    routing: &Routing,
    asked: SmallModelQuestion<'_>,
    parse: impl Fn(&str) -> Result<T, String>,
) -> Result<Result<(T, ServedModel), String>, StepError> {
    let SmallModelQuestion { role, task, keys, system, prompt, mark, workers, schema, time } = asked;
    let spec = routing.model.as_str();
    let providers = &cx.tools().providers;
    let program = providers.resolve(spec).is_ok_and(|(_, id)| providers.runs_program(&id));
    let deadline = time.unwrap_or(if program { routing.program } else { routing.service });
    // With a schema, a program needs a second turn, which takes too long. A service that does not support or refuses
    // the schema is called without it. The response is validated here.
    let mut schema = Some(schema).filter(|_| !program);
    let (mut prompt, first, mut calls) = (prompt.clone(), prompt, BTreeMap::new());
    let mut wrong = String::new();
    for key in keys {
        let mut waits = VisitWaits::default();
        let form = schema.take();
        let question = BudgetedCall {
            role,
            task,
            spec,
            system,
            prompt: &prompt,
            schema: form,
            tools: None,
            not_families: &[],
            workers,
            facts: BTreeMap::from([("fence".to_owned(), mark.to_owned())]),
            caps: &policy.caps,
            longest: limits::WORD_TOKENS,
            deadline: Some(deadline),
            calls: &mut calls,
            waits: &mut waits,
        };
        let answered = match call_model(cx, key, question).await {
            Ok(answered) => answered,
            Err(UnansweredCall::OverBudget(_)) => {
                return Ok(Err("the budget leaves too little for the call".to_owned()));
            }
            Err(UnansweredCall::Waiting(held)) => {
                let why = match held.to_view().reason {
                    ModelWaitReason::Slow => format!("the model took longer than {} s", deadline.as_secs()),
                    ModelWaitReason::Lacking | ModelWaitReason::Refused => {
                        "this server cannot call the configured model".to_owned()
                    }
                    _ => "the model is busy or unreachable".to_owned(),
                };
                return Ok(Err(why));
            }
            Err(UnansweredCall::Step(StepError::User(why))) => {
                tracing::warn!(run = %cx.run().id, why, %role, "could not call the small model");
                return Ok(Err("this server cannot call the configured model".to_owned()));
            }
            Err(UnansweredCall::Step(error)) => return Err(error),
            Err(UnansweredCall::CommandRunning) => {
                return Err(StepError::Bug(anyhow::anyhow!("a {role} has no tools to run")));
            }
        };
        let read = match &answered.outcome {
            Ok(text) => parse(&load_text(cx, &text.text).await?),
            Err(failure) if form.is_some() && matches!(failure.kind, FailureKind::Rejected { .. }) => {
                continue;
            }
            Err(failure) if failure.kind == FailureKind::Invalid => {
                Err("it was not one JSON object of that form".to_owned())
            }
            Err(failure) => return Ok(Err(failure.kind.clause("model"))),
        };
        match read {
            Ok(said) => return Ok(Ok((said, answered.served))),
            Err(why) => wrong = why,
        }
        let again = "Your last answer could not be used";
        prompt = first
            .clone()
            .with_instructions(format!("{again}: {wrong}. Answer again, in the form described."));
    }
    tracing::warn!(run = %cx.run().id, wrong, %role, "small model's response was invalid twice; continuing without it");
    Ok(Err("the model's answer was invalid twice".to_owned()))
}
