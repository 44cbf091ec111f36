//! Is this request really a delivery of GitHub's? Decided on the raw bytes, before anything in them
//! is read. What the delivery says is `event`'s business, keeping it is the inbox's.

use hmac::{Hmac, KeyInit, Mac};
use http::{HeaderMap, StatusCode, header};
use secrecy::{ExposeSecret, SecretString};
use sha2::Sha256;

use crate::types::DeliveryId;

/// The longest delivery id or event name we would store; GitHub's have 36 and about 40 characters.
const NAME_CHARS: usize = 128;

/// The head of a delivery whose signature holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VerifiedDelivery {
    pub id: DeliveryId,
    pub event: String,
}

/// Why a request is not taken: the status to answer and one sentence that says what to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{sentence}")]
pub struct WebhookRefusal {
    pub status: StatusCode,
    pub sentence: &'static str,
}

fn refuse<T>(status: StatusCode, sentence: &'static str) -> Result<T, WebhookRefusal> {
    Err(WebhookRefusal { status, sentence })
}

/// Checks a request against the secrets in use: one, or two while a secret is being replaced.
///
/// The signature comes first: to a stranger every request is answered alike.
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

/// The digest that a request claims to be signed with. Asked before the body is read: whoever has none to show
/// need not send one.
pub fn claimed_digest(headers: &HeaderMap) -> Result<[u8; 32], WebhookRefusal> {
    let Some(signature) = headers.get("x-hub-signature-256") else {
        let sentence = if headers.contains_key("x-hub-signature") {
            "Only a SHA-1 signature was sent; this server accepts X-Hub-Signature-256 alone."
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

/// What the request calls itself, signed or not.
pub fn delivery_id(headers: &HeaderMap) -> Option<String> {
    header_word(headers, "x-github-delivery")
}

fn check_signature(secrets: &[SecretString], headers: &HeaderMap, body: &[u8]) -> Result<(), WebhookRefusal> {
    let digest = claimed_digest(headers)?;
    // Every secret is tried: which of two fits must not show in the time it takes.
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
            "The signature does not fit; set the App's webhook secret to the one this server has.",
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

/// A header whose value is one word of visible ASCII.
fn header_word(headers: &HeaderMap, header: &str) -> Option<String> {
    let value = headers.get(header)?.to_str().ok()?;
    let sound = (1..=NAME_CHARS).contains(&value.len()) && value.bytes().all(|b| b.is_ascii_graphic());
    sound.then(|| value.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// GitHub's published example: secret, body and digest.
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
    fn the_published_example_holds() {
        let verified = verify(&[SECRET.into()], &headers(&[]), BODY).unwrap();
        assert_eq!(verified.event, "issues");
        assert_eq!(verified.id.0, "72d3162e-cc78-11e3-81ab-4c9367dc0958");
    }

    #[test]
    fn either_of_two_secrets_is_enough_and_none_is_not() {
        assert!(verify(&["new".into(), SECRET.into()], &headers(&[]), BODY).is_ok());
        assert!(verify(&[SECRET.into(), "new".into()], &headers(&[]), BODY).is_ok());
        assert!(verify(&["new".into()], &headers(&[]), BODY).is_err());
        assert!(verify(&[], &headers(&[]), BODY).is_err());
    }

    #[test]
    fn a_wrong_signature_is_refused_whatever_its_form() {
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
    fn what_is_signed_but_malformed_says_how() {
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
