//! Tests of the estimates of a call's cost. A service that reports no token counts may still charge for a call.

use countersign::{
    config::{GeminiKey, ModelSettings},
    providers::Usage,
};
use serde_json::{Value, json};

use crate::{
    ask,
    openai::{at, text_stream},
    question, settings,
    streaming::{Behaviour, start},
};

/// A service with its model, API path and complete response. `counts` is the key under which the response contains
/// token counts.
struct Service {
    spec: &'static str,
    path: &'static str,
    answer: String,
    counts: &'static str,
    settings: fn(url::Url) -> ModelSettings,
}

fn services() -> [Service; 3] {
    let data = |event: Value| format!("data: {event}\n\n");
    let claude = [
        json!({"type": "message_start", "message": {"model": "claude-opus-5-5", "usage": {"input_tokens": 9}}}),
        json!({"type": "content_block_delta", "delta": {"type": "text_delta", "text": "Yes."}}),
        json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 7}}),
        json!({"type": "message_stop"}),
    ];
    let gemini = json!({
        "candidates": [{"content": {"parts": [{"text": "Yes."}]}, "finishReason": "STOP"}],
        "usageMetadata": {"promptTokenCount": 9, "candidatesTokenCount": 7},
        "modelVersion": "gemini-3.1-pro-preview",
    });
    [
        Service {
            spec: "anthropic:opus",
            path: "/v1/messages",
            answer: claude.map(data).concat(),
            counts: "output_tokens",
            settings: |url| {
                let mut settings = settings("/nowhere".as_ref());
                (settings.anthropic.base_url, settings.anthropic.api_key) = (url, Some("sk-ant".into()));
                settings
            },
        },
        Service {
            spec: "gemini:pro",
            path: "/v1beta/models/{target}",
            answer: gemini.to_string(),
            counts: "usageMetadata",
            settings: |url| {
                let mut settings = settings("/nowhere".as_ref());
                settings.gemini.base_url = url;
                settings.gemini.keys = vec![GeminiKey::without_details("default", "AIza".into())];
                settings
            },
        },
        Service {
            spec: "openai:gpt-x",
            path: "/chat/completions",
            answer: text_stream("Yes.", "stop"),
            counts: "completion_tokens",
            settings: at,
        },
    ]
}

impl Service {
    async fn usage_at(&self, url: url::Url) -> Usage {
        match ask(&(self.settings)(url), self.spec, question("a reviewer")).await {
            Ok(reply) => reply.usage,
            Err(error) => *error.usage,
        }
    }
}

#[tokio::test]
async fn recorded_cost_is_marked_as_a_minimum_when_final_token_counts_are_missing() {
    for service in services() {
        let (answer, half) = (&service.answer, service.answer.len() / 2);
        let uncounted = answer.replace(service.counts, "something_else");
        assert_ne!(&uncounted, answer);
        let status = |status| Behaviour::Status(status, json!({"error": {"message": "no"}}), None);
        let mut cases = vec![
            (Behaviour::Stream(answer.clone()), false),
            (Behaviour::Stream(uncounted), true),
            (Behaviour::Stream(answer[..half].to_owned()), true),
            (Behaviour::Break(answer[..half].to_owned()), true),
            (Behaviour::Break(String::new()), true),
        ];
        // An error status of the service itself is final. A proxy's timeout leaves open how much the service bills.
        cases.extend([400, 401, 404, 429, 500, 503, 529].map(|number| (status(number), false)));
        cases.extend([408, 502, 504].map(|number| (status(number), true)));
        for (number, (behaviour, more)) in cases.into_iter().enumerate() {
            let (url, api) = start(service.path, behaviour).await;
            let usage = service.usage_at(url).await;
            assert_eq!((usage.attempts, api.requests().len()), (1, 1), "{} {number}", service.spec);
            assert!(usage.billed && usage.may_cost_more() == more, "{} {number}: {usage:?}", service.spec);
        }
        let unreachable = service.usage_at("http://127.0.0.1:1".parse().unwrap()).await;
        assert!(!unreachable.may_cost_more(), "nothing was sent: {unreachable:?}");
    }
}

#[tokio::test]
async fn token_counts_in_the_middle_of_a_stream_do_not_count_as_final() {
    let counting = "\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":1},\"choices\":[{";
    let counting = text_stream("Yes.", "stop").replace("\"choices\":[{", counting);
    let begun = counting.split_inclusive("\r\n\r\n").next().unwrap();
    let (url, _) = start("/chat/completions", Behaviour::Stream(begun.to_owned())).await;
    let usage = services()[2].usage_at(url).await;
    assert!(usage.output_tokens == 1 && usage.may_cost_more(), "{usage:?}");
}
