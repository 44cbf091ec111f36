//! GitHub's log of webhook deliveries to this App. GitHub keeps the log for three days, so that we can find deliveries
//! that we missed.

use serde::Deserialize;
use serde_json::Value;

use super::{
    api::{ApiIdentity, ApiRequest},
    app::GitHub,
    error::GitHubApiError,
    manifest::{DELIVERIES, DELIVERY},
    repo::parse_time,
};
use crate::types::{DeliveryId, InstallationId, Timestamp};

/// An attempt to deliver a webhook. A redelivery is another attempt with the same delivery id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeliveryAttempt {
    /// Id of this attempt in GitHub's log, used to fetch its payload.
    pub number: u64,
    pub id: DeliveryId,
    /// Time of the attempt, by GitHub's clock.
    pub at: Timestamp,
    pub event: String,
    /// HTTP status of our response; 0 if GitHub received no response.
    pub status: u16,
    /// Installation that the event belongs to; `None` for events about the App itself.
    pub installation: Option<InstallationId>,
}

/// Position in the delivery log from which an older page is read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeliveryLogCursor(String);

/// A page of the log, newest attempt first.
#[derive(Debug, Clone)]
pub struct DeliveryLogPage {
    pub attempts: Vec<DeliveryAttempt>,
    /// Position of the next older page; `None` on the last page.
    pub next_page: Option<DeliveryLogCursor>,
}

#[derive(Deserialize)]
struct DeliveryListItem {
    id: u64,
    guid: String,
    delivered_at: String,
    event: String,
    #[serde(default)]
    status_code: u16,
    installation_id: Option<u64>,
}

impl GitHub {
    /// Returns the newest page of the delivery log, or the page at the position `from`.
    pub async fn deliveries(
        &self,
        from: Option<&DeliveryLogCursor>,
    ) -> Result<DeliveryLogPage, GitHubApiError> {
        let request = ApiRequest::new(&DELIVERIES, &[]);
        let request = match from {
            None => request.query("per_page", 100),
            Some(DeliveryLogCursor(target)) => request.with_route(target.clone()),
        };
        let answer = self.api().send(ApiIdentity::App, request).await?;
        let attempt = |listed: DeliveryListItem| {
            Ok(DeliveryAttempt {
                number: listed.id,
                id: DeliveryId(listed.guid),
                at: parse_time(&DELIVERIES, &listed.delivered_at)?,
                event: listed.event,
                status: listed.status_code,
                installation: listed.installation_id.map(InstallationId),
            })
        };
        let attempts: Result<_, GitHubApiError> =
            answer.items::<DeliveryListItem>(None)?.into_iter().map(attempt).collect();
        Ok(DeliveryLogPage {
            attempts: attempts?,
            next_page: self.api().next_page(&answer).map(DeliveryLogCursor),
        })
    }

    /// Returns a delivery's payload as JSON, or `None` if GitHub no longer has it.
    pub async fn delivery_payload(
        &self,
        attempt: &DeliveryAttempt,
    ) -> Result<Option<Vec<u8>>, GitHubApiError> {
        #[derive(Deserialize)]
        struct DeliveryDetail {
            request: Option<DeliveryRequest>,
        }
        #[derive(Deserialize)]
        struct DeliveryRequest {
            #[serde(default)]
            payload: Value,
        }
        let request = ApiRequest::new(&DELIVERY, &[&attempt.number.to_string()]);
        let answer = match self.api().send(ApiIdentity::App, request).await {
            Ok(answer) => answer,
            Err(GitHubApiError::NotFound { .. } | GitHubApiError::Gone { .. }) => return Ok(None),
            Err(fault) => return Err(fault),
        };
        let payload = answer.json::<DeliveryDetail>()?.request.map(|request| request.payload);
        let payload = payload.filter(|payload| payload.as_object().is_some_and(|fields| !fields.is_empty()));
        Ok(payload.map(|payload| payload.to_string().into_bytes()))
    }
}
