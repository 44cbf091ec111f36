//! The App's private key, and the tokens it signs.

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use rustls::{
    SignatureScheme,
    crypto::ring::sign::RsaSigningKey,
    pki_types::{PrivateKeyDer, pem::PemObject},
    sign::SigningKey,
};
use secrecy::{ExposeSecret, SecretString};
use serde::Serialize;

use super::GitHubError;

pub(super) struct AppKey(RsaSigningKey);

impl AppKey {
    /// Reads PKCS#1, which GitHub hands out, or PKCS#8.
    pub(super) fn from_pem(pem: &SecretString) -> Result<Self, GitHubError> {
        let unreadable = |why: String| GitHubError::Key { why };
        let der = PrivateKeyDer::from_pem_slice(pem.expose_secret().trim().as_bytes());
        let der = der.map_err(|error| unreadable(error.to_string()))?;
        RsaSigningKey::new(&der).map(Self).map_err(|error| unreadable(error.to_string()))
    }

    /// A JSON web token with these claims, signed with RS256. `None` if the key cannot sign.
    pub(super) fn sign(&self, claims: &impl Serialize) -> Option<String> {
        let claims = URL_SAFE_NO_PAD.encode(serde_json::to_vec(claims).ok()?);
        let message = format!("{}.{claims}", URL_SAFE_NO_PAD.encode(r#"{"typ":"JWT","alg":"RS256"}"#));
        let signer = self.0.choose_scheme(&[SignatureScheme::RSA_PKCS1_SHA256])?;
        let signature = signer.sign(message.as_bytes()).ok()?;
        Some(format!("{message}.{}", URL_SAFE_NO_PAD.encode(signature)))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn token_has_the_signature_that_openssl_makes() {
        let key = AppKey::from_pem(&include_str!("../../fixtures/github/app-key.pem").into()).unwrap();
        let token = key.sign(&json!({ "iss": "1" })).unwrap();
        let (message, signature) = token.rsplit_once('.').unwrap();
        assert_eq!(message, "eyJ0eXAiOiJKV1QiLCJhbGciOiJSUzI1NiJ9.eyJpc3MiOiIxIn0");
        let by_openssl = "ZIsltCX7Ky3mYfFRqb8byFZyqcmzDP3koNqPLeIraHc39jttCTCedCeDNnR1_0_0RHOsOvcoBt0SdxYWStETIv\
             esoNKxHYuAITO5qJ6Q4LtHcquSct-5v4laO0OEjbqdbVYlTTv0maGkWjHzQ1IlNW9ION7nIRTD-QogVFQPuYUi\
             AFte28GDkOurIXN_m9my5iDPAWz_aNrgvqf74x036z7E0zWRFzHrOu5yPuY4aR5uLpGzPsIoQe51_WoS70Gx5P\
             d8LlhvJorbkdeZXTBGbnKf0qZEc5rkQiZnFil2hfVm1XY4d22m92vCdEJWjY00dwtTODWKHSfwVmoTHdxi4g";
        assert_eq!(signature, by_openssl);
    }
}
