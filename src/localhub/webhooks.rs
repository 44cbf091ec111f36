//! Sends webhooks to the Apps, one at a time and in order, signed as GitHub signs them. As on GitHub, a failed delivery
//! is recorded and sent again only on request.

use std::time::Duration;

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use url::Url;

use super::{Hub, HubError, model::HubDelivery};

/// Time within which GitHub expects a receiver to respond.
const RECEIVER_TIMEOUT: Duration = Duration::from_secs(10);

/// Status recorded for a delivery if the receiver did not respond.
const NO_ANSWER: u16 = 0;

pub(super) struct WebhookSender {
    hub: Hub,
    client: reqwest::Client,
}

impl WebhookSender {
    pub(super) fn new(hub: Hub) -> Result<Self, HubError> {
        // rustls allows one default provider per process; an earlier one is equivalent.
        drop(rustls::crypto::ring::default_provider().install_default());
        let client = reqwest::Client::builder()
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .timeout(RECEIVER_TIMEOUT)
            .build()
            .map_err(|e| HubError::Refused(format!("webhooks can't be sent: {e}")))?;
        Ok(Self { hub, client })
    }

    pub(super) async fn run(self) {
        let mut pending = self.hub.0.pending.subscribe();
        loop {
            let some = tokio::select! {
                () = self.hub.0.stop.cancelled() => return,
                some = pending.wait_for(|n| *n > 0) => some.is_ok(),
            };
            let next = self.hub.read(|s| s.deliveries.iter().find(|d| d.status.is_none()).cloned());
            let Some(delivery) = next.filter(|_| some) else { return };
            let status = tokio::select! {
                () = self.hub.0.stop.cancelled() => return,
                status = self.deliver(&delivery) => status,
            };
            if let Err(error) = self.record(delivery.id, status) {
                return tracing::error!(%error, "could not record a delivery; sending no more webhooks");
            }
        }
    }

    fn record(&self, id: u64, status: u16) -> Result<(), HubError> {
        self.hub.change(|c| {
            if let Some(row) = c.state.deliveries.iter_mut().find(|d| d.id == id) {
                row.status = Some(status);
            }
            Ok(())
        })
    }

    async fn deliver(&self, delivery: &HubDelivery) -> u16 {
        let app = self.hub.read(|s| {
            s.apps.get(&delivery.app).map(|a| (a.webhook_url.clone(), a.webhook_secret.clone(), a.hook_id))
        });
        let Some((Some(url), secret, hook)) = app else { return NO_ANSWER };
        let Some(url) = loopback_url(&url) else {
            tracing::warn!(%url, "webhook not sent: localhub delivers to this machine only");
            return NO_ANSWER;
        };
        let Ok(body) = std::fs::read(self.hub.0.delivery_file(&delivery.guid)) else { return NO_ANSWER };
        let request = self
            .client
            .post(url)
            .header("Content-Type", "application/json")
            .header("Accept", "*/*")
            .header("User-Agent", "GitHub-Hookshot/localhub")
            .header("X-GitHub-Delivery", &delivery.guid)
            .header("X-GitHub-Event", &delivery.event)
            .header("X-GitHub-Hook-ID", hook.to_string())
            .header("X-GitHub-Hook-Installation-Target-ID", delivery.app.to_string())
            .header("X-GitHub-Hook-Installation-Target-Type", "integration");
        let request = match signature(&secret, &body) {
            Some(signature) => request.header("X-Hub-Signature-256", signature),
            None => request,
        };
        request.body(body).send().await.map_or(NO_ANSWER, |answer| answer.status().as_u16())
    }
}

/// Returns the signature of a body: `sha256=` and its HMAC. Returns `None` if the App has no secret.
fn signature(secret: &str, body: &[u8]) -> Option<String> {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).ok().filter(|_| !secret.is_empty())?;
    mac.update(body);
    Some(format!("sha256={}", hex::encode(mac.finalize().into_bytes())))
}

fn loopback_url(url: &str) -> Option<Url> {
    let url = Url::parse(url).ok()?;
    let here = match url.host()? {
        url::Host::Domain(name) => name == "localhost",
        url::Host::Ipv4(ip) => ip.is_loopback(),
        url::Host::Ipv6(ip) => ip.is_loopback(),
    };
    here.then_some(url)
}

impl Hub {
    /// Returns the number of webhook deliveries that are queued or being sent.
    pub fn pending_webhooks(&self) -> usize {
        *self.0.pending.borrow()
    }

    /// Waits until every webhook has been answered or given up. Returns at once if no webhook is queued.
    pub async fn wait_for_webhooks(&self) {
        // The sender lives as long as the hub, so waiting cannot fail.
        drop(self.0.pending.subscribe().wait_for(|n| *n == 0).await);
    }

    /// Empties the delivery log, as if GitHub had forgotten it. Queued deliveries are still sent.
    pub fn forget_deliveries(&self) -> Result<(), HubError> {
        self.change(|c| {
            c.state.deliveries.retain(|d| d.status.is_none());
            Ok(())
        })
    }

    /// Sends a delivery again under the same delivery id.
    pub fn redeliver(&self, guid: &str) -> Result<(), HubError> {
        self.change(|c| {
            let known = c.state.deliveries.iter().rev().find(|d| d.guid == guid).cloned();
            let known = known.ok_or_else(|| HubError::Missing(format!("delivery {guid}")))?;
            let (id, at) = (c.state.fresh_id(), c.at);
            c.state.deliveries.push(HubDelivery { id, at, redelivery: true, status: None, ..known });
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signature_matches_githubs_published_example() {
        let signature = signature("It's a Secret to Everybody", b"Hello, World!").unwrap();
        assert_eq!(signature, "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17");
    }

    #[test]
    fn webhooks_are_sent_to_loopback_only() {
        assert!(loopback_url("http://127.0.0.1:8080/webhook").is_some());
        assert!(loopback_url("http://localhost/webhook").is_some());
        for elsewhere in ["http://example.com/", "http://127.0.0.1.example.com/", "http://10.0.0.1/"] {
            assert!(loopback_url(elsewhere).is_none(), "{elsewhere}");
        }
    }
}
