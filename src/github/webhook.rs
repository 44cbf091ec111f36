//! Signature check of webhooks. It is made on the raw bytes, before any parsing. The payload is parsed by `event` and
//! stored by the inbox.

use hmac::{Hmac, KeyInit, Mac};
use http::{HeaderMap, StatusCode, header};
use secrecy::{ExposeSecret, SecretString};
use sha2::Sha256;

use crate::types::DeliveryId;

/// Maximum number of characters of a delivery id, and of an event name. GitHub's ids have 36 characters and its event
/// names up to about 40.
const NAME_CHARS: usize = 128;

/// Id and event name of a delivery with a valid signature.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VerifiedDelivery {
    pub id: DeliveryId,
    pub event: String,
}

/// Response to a refused request: its status and one sentence that says how to fix the problem.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{sentence}")]
pub struct WebhookRefusal {
    pub status: StatusCode,
    pub sentence: &'static str,
}

fn refuse<T>(status: StatusCode, sentence: &'static str) -> Result<T, WebhookRefusal> {
    Err(WebhookRefusal { status, sentence })
}

/// Verifies a request against the webhook secrets in use: one secret, or two during a rotation.
///
/// The signature is checked first, so that unsigned requests never reach the other checks.
pub fn verify(
    secrets: &[SecretString],
    headers: &HeaderMap,
    body: &[u8],
) -> Result<VerifiedDelivery, WebhookRefusal> {
    check_signature(secrets, headers, body)?;
    check_content_type(headers)?;
    let Some(event) = header_word(headers, "x-github-event") else {
        return refuse(StatusCode::BAD_REQUEST, "The X-GitHub-Event header is missing or malformed.");
    };
    let Some(id) = delivery_id(headers) else {
        return refuse(StatusCode::BAD_REQUEST, "The X-GitHub-Delivery header is missing or malformed.");
    };
    Ok(VerifiedDelivery { id: DeliveryId(id), event })
}

/// Returns the digest from the signature header. This function is called before the body is read, so that a request
/// without a signature is refused early.
pub fn claimed_digest(headers: &HeaderMap) -> Result<[u8; 32], WebhookRefusal> {
    let Some(signature) = headers.get("x-hub-signature-256") else {
        let sentence = if headers.contains_key("x-hub-signature") {
            "Only a SHA-1 signature was sent; this server accepts only X-Hub-Signature-256."
        } else {
            "The request is not signed; set the App's webhook secret to the one this server has."
        };
        return refuse(StatusCode::UNAUTHORIZED, sentence);
    };
    let mut digest = [0; 32];
    let hexadecimal = signature.to_str().ok().and_then(|s| s.strip_prefix("sha256="));
    match hexadecimal.map(|text| hex::decode_to_slice(text, &mut digest)) {
        Some(Ok(())) => Ok(digest),
        _ => refuse(
            StatusCode::UNAUTHORIZED,
            "X-Hub-Signature-256 must be `sha256=` and 64 hexadecimal digits.",
        ),
    }
}

/// Returns the delivery id from its header. The signature does not cover this header.
pub fn delivery_id(headers: &HeaderMap) -> Option<String> {
    header_word(headers, "x-github-delivery")
}

fn check_signature(secrets: &[SecretString], headers: &HeaderMap, body: &[u8]) -> Result<(), WebhookRefusal> {
    let digest = claimed_digest(headers)?;
    // Try every secret, so that the timing does not reveal which one matches.
    let mut fits = false;
    for secret in secrets {
        let mut mac = Hmac::<Sha256>::new_from_slice(secret.expose_secret().as_bytes())
            .expect("HMAC takes keys of any length");
        mac.update(body);
        fits |= mac.verify_slice(&digest).is_ok();
    }
    if fits {
        Ok(())
    } else {
        refuse(
            StatusCode::UNAUTHORIZED,
            "The signature does not match; set the App's webhook secret to the one this server has.",
        )
    }
}

fn check_content_type(headers: &HeaderMap) -> Result<(), WebhookRefusal> {
    let content_type = headers.get(header::CONTENT_TYPE).and_then(|v| v.to_str().ok()).unwrap_or_default();
    let essence = content_type.split(';').next().unwrap_or_default().trim();
    if essence.eq_ignore_ascii_case("application/json") {
        return Ok(());
    }
    let sentence = if essence.eq_ignore_ascii_case("application/x-www-form-urlencoded") {
        "The payload came as a form; set the webhook's content type to application/json in the App's settings."
    } else {
        "The payload must be application/json."
    };
    refuse(StatusCode::UNSUPPORTED_MEDIA_TYPE, sentence)
}

/// Returns the value of a header if the value is one word of visible ASCII.
fn header_word(headers: &HeaderMap, header: &str) -> Option<String> {
    let value = headers.get(header)?.to_str().ok()?;
    let sound = (1..=NAME_CHARS).contains(&value.len()) && value.bytes().all(|b| b.is_ascii_graphic());
    sound.then(|| value.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Secret of the example that GitHub publishes together with its body and digest.
    const SECRET: &str = "It's a Secret to Everybody";
    const BODY: &[u8] = b"Hello, World!";
    const DIGEST: &str = "757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17";

    fn headers(changes: &[(&'static str, Option<&str>)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert("x-hub-signature-256", format!("sha256={DIGEST}").parse().unwrap());
        headers.insert("content-type", "application/json".parse().unwrap());
        headers.insert("x-github-event", "issues".parse().unwrap());
        headers.insert("x-github-delivery", "72d3162e-cc78-11e3-81ab-4c9367dc0958".parse().unwrap());
        for (name, value) in changes {
            match value {
                Some(value) => headers.insert(*name, value.parse().unwrap()),
                None => headers.remove(*name),
            };
        }
        headers
    }

    fn status(changes: &[(&'static str, Option<&str>)]) -> u16 {
        match verify(&[SECRET.into()], &headers(changes), BODY) {
            Ok(_) => 202,
            Err(refused) => refused.status.as_u16(),
        }
    }

    #[test]
    fn webhook_example_published_by_github_is_accepted() {
        let verified = verify(&[SECRET.into()], &headers(&[]), BODY).unwrap();
        assert_eq!(verified.event, "issues");
        assert_eq!(verified.id.0, "72d3162e-cc78-11e3-81ab-4c9367dc0958");
    }

    #[test]
    fn webhook_signed_with_either_of_two_secrets_is_accepted() {
        assert!(verify(&["new".into(), SECRET.into()], &headers(&[]), BODY).is_ok());
        assert!(verify(&[SECRET.into(), "new".into()], &headers(&[]), BODY).is_ok());
        assert!(verify(&["new".into()], &headers(&[]), BODY).is_err());
        assert!(verify(&[], &headers(&[]), BODY).is_err());
    }

    #[test]
    fn wrong_signature_is_refused() {
        let other = "0".repeat(64);
        assert_eq!(status(&[("x-hub-signature-256", None)]), 401);
        assert_eq!(status(&[("x-hub-signature-256", Some(DIGEST))]), 401, "no prefix");
        assert_eq!(status(&[("x-hub-signature-256", Some(&format!("sha512={DIGEST}")))]), 401);
        assert_eq!(status(&[("x-hub-signature-256", Some(&format!("sha256={other}")))]), 401);
        assert_eq!(status(&[("x-hub-signature-256", Some(&format!("sha256={}", &DIGEST[..62])))]), 401);
        assert_eq!(status(&[("x-hub-signature-256", Some("sha256=é"))]), 401);
        assert!(verify(&[SECRET.into()], &headers(&[]), b"Hello, World?").is_err());
        let sha1 = headers(&[("x-hub-signature-256", None), ("x-hub-signature", Some("sha1=00"))]);
        assert!(verify(&[SECRET.into()], &sha1, BODY).unwrap_err().sentence.contains("SHA-1"));
    }

    #[test]
    fn signed_but_malformed_request_is_refused() {
        assert_eq!(status(&[("content-type", Some("application/json; charset=utf-8"))]), 202);
        assert_eq!(status(&[("content-type", None)]), 415);
        let form = headers(&[("content-type", Some("application/x-www-form-urlencoded"))]);
        let refused = verify(&[SECRET.into()], &form, BODY).unwrap_err();
        assert_eq!(refused.status, 415);
        assert!(refused.sentence.contains("set the webhook's content type"));
        assert_eq!(status(&[("x-github-event", None)]), 400);
        assert_eq!(status(&[("x-github-delivery", Some("two words"))]), 400);
    }
}
