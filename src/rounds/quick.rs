//! A small model's word on something that the work also goes on without: it is asked, and asked once more where its answer
//! cannot be used. Nothing is waited for, for whoever asked sits before the page. What it costs is booked as every call is,
//! and held back before.

use std::collections::BTreeMap;

use super::{
    Cx, Policy,
    ask::{Ask, ask},
    draft::text_of,
    held::{NoAnswer, Waits},
    prompt::Prompt,
};
use crate::{config::Routing, engine::StepError, messages::Hold, providers::CallRole};

/// What is asked.
pub(super) struct Quick<'a> {
    pub(super) role: CallRole,
    /// The first question's place in the journal, and the second's.
    pub(super) keys: [&'static str; 2],
    pub(super) system: &'a str,
    pub(super) prompt: &'a Prompt,
    /// What the prompt's quotations are marked with.
    pub(super) mark: &'a str,
    /// The issue's.
    pub(super) labels: &'a [String],
}

/// What the model says, as `parse` reads it; or why there is nothing, in our words.
///
/// # Errors
/// Those of the journal and the books.
pub(super) async fn quick<T>(
    cx: &Cx,
    policy: &Policy,
    routing: &Routing,
    asked: Quick<'_>,
    parse: impl Fn(&str) -> Result<T, String>,
) -> Result<Result<T, String>, StepError> {
    let Quick { role, keys, system, prompt, mark, labels } = asked;
    let spec = routing.model.as_str();
    let providers = &cx.tools().providers;
    let program = providers.resolve(spec).is_ok_and(|(_, id)| providers.runs_program(&id));
    let deadline = if program { routing.program } else { routing.service };
    let (mut prompt, first, mut calls) = (prompt.clone(), prompt, BTreeMap::new());
    let mut wrong = String::new();
    for key in keys {
        let mut waits = Waits::default();
        let question = Ask {
            role,
            task: None,
            spec,
            system,
            prompt: &prompt,
            // A program that is held to a schema takes a second turn for it, and longer than anybody waits; the answer is
            // checked here.
            schema: None,
            not_families: &[],
            workers: cx.tools().settings.models.workers.assigned(labels, &[]).pool,
            facts: BTreeMap::from([("fence".to_owned(), mark.to_owned())]),
            caps: &policy.caps,
            deadline: Some(deadline),
            calls: &mut calls,
            waits: &mut waits,
        };
        let answered = match ask(cx, key, question).await {
            Ok(answered) => answered,
            Err(NoAnswer::Capped(_)) => return Ok(Err("the budget has no room for the call".to_owned())),
            Err(NoAnswer::Held(held)) => {
                let why = match held.view().hold {
                    Hold::Slow => format!("the model took longer than {} s", deadline.as_secs()),
                    Hold::Lacking | Hold::Refused => {
                        "this server cannot ask the model it is set to".to_owned()
                    }
                    _ => "the model is busy or out of reach".to_owned(),
                };
                return Ok(Err(why));
            }
            Err(NoAnswer::Step(StepError::User(why))) => {
                tracing::warn!(run = %cx.run().id, why, %role, "no model could be asked");
                return Ok(Err("this server cannot ask the model it is set to".to_owned()));
            }
            Err(NoAnswer::Step(error)) => return Err(error),
            Err(NoAnswer::Running) => {
                return Err(StepError::Bug(anyhow::anyhow!("a {role} has no tools to run")));
            }
        };
        let text = match &answered.outcome {
            Ok(text) => text_of(cx, &text.text).await?,
            Err(failure) => return Ok(Err(failure.kind.clause("model"))),
        };
        match parse(&text) {
            Ok(said) => return Ok(Ok(said)),
            Err(why) => wrong = why,
        }
        let again = "Your last answer could not be used";
        prompt = first.clone().ours(format!("{again}: {wrong}. Answer again, in the form described."));
    }
    tracing::warn!(run = %cx.run().id, wrong, %role, "an answer was unusable, twice");
    Ok(Err("the model's answer was unusable, twice".to_owned()))
}
