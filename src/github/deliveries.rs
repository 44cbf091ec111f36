//! GitHub's own log of what it delivered to this App: what never arrived is found here for three days.

use serde::Deserialize;
use serde_json::Value;

use super::{
    api::{As, Request},
    app::GitHub,
    error::Fault,
    manifest::{DELIVERIES, DELIVERY},
    repo::time,
};
use crate::types::{DeliveryId, InstallationId, Timestamp};

/// One attempt to deliver something. A redelivery is another attempt under the same id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attempt {
    /// The attempt's own number, by which it is fetched.
    pub number: u64,
    pub id: DeliveryId,
    /// When it was made, by GitHub's clock.
    pub at: Timestamp,
    pub event: String,
    /// What the server answered; 0 where nobody did.
    pub status: u16,
    /// None for what concerns the App itself.
    pub installation: Option<InstallationId>,
}

/// Where the log is read on, further back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Further(String);

/// A page of the log, the newest attempt first.
#[derive(Debug, Clone)]
pub struct LogPage {
    pub attempts: Vec<Attempt>,
    /// None: this is the log's end.
    pub further: Option<Further>,
}

#[derive(Deserialize)]
struct Listed {
    id: u64,
    guid: String,
    delivered_at: String,
    event: String,
    #[serde(default)]
    status_code: u16,
    installation_id: Option<u64>,
}

impl GitHub {
    /// The log's newest page, or the one that `from` leads to.
    pub async fn deliveries(&self, from: Option<&Further>) -> Result<LogPage, Fault> {
        let request = Request::to(&DELIVERIES, &[]);
        let request = match from {
            None => request.query("per_page", 100),
            Some(Further(target)) => request.moved_to(target.clone()),
        };
        let answer = self.api().send(As::App, request).await?;
        let attempt = |listed: Listed| {
            Ok(Attempt {
                number: listed.id,
                id: DeliveryId(listed.guid),
                at: time(&DELIVERIES, &listed.delivered_at)?,
                event: listed.event,
                status: listed.status_code,
                installation: listed.installation_id.map(InstallationId),
            })
        };
        let attempts: Result<_, Fault> = answer.items::<Listed>(None)?.into_iter().map(attempt).collect();
        Ok(LogPage { attempts: attempts?, further: self.api().next_page(&answer).map(Further) })
    }

    /// What the attempt carried, as JSON; none where GitHub has it no longer.
    pub async fn delivered(&self, attempt: &Attempt) -> Result<Option<Vec<u8>>, Fault> {
        #[derive(Deserialize)]
        struct Whole {
            request: Option<Carried>,
        }
        #[derive(Deserialize)]
        struct Carried {
            #[serde(default)]
            payload: Value,
        }
        let request = Request::to(&DELIVERY, &[&attempt.number.to_string()]);
        let answer = match self.api().send(As::App, request).await {
            Ok(answer) => answer,
            Err(Fault::NotFound { .. } | Fault::Gone { .. }) => return Ok(None),
            Err(fault) => return Err(fault),
        };
        let payload = answer.json::<Whole>()?.request.map(|request| request.payload);
        let payload = payload.filter(|payload| payload.as_object().is_some_and(|fields| !fields.is_empty()));
        Ok(payload.map(|payload| payload.to_string().into_bytes()))
    }
}
