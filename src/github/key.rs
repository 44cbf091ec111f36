//! The App's private key and the JWTs it signs.

use std::sync::Once;

use jsonwebtoken::{
    Algorithm, EncodingKey, Header,
    crypto::{CryptoProvider, JwkUtils, JwtSigner},
    errors::{Error, ErrorKind},
};
use rustls::{
    SignatureScheme, crypto::ring::sign::RsaSigningKey, pki_types::PrivatePkcs1KeyDer, sign::SigningKey,
};
use secrecy::{ExposeSecret, SecretString};
use serde::Serialize;

use super::GitHubClientError;

pub(super) struct AppKey(EncodingKey);

impl AppKey {
    /// Parses a private key in PKCS#1 (the format of keys downloaded from GitHub) or PKCS#8 format.
    pub(super) fn from_pem(pem: &SecretString) -> Result<Self, GitHubClientError> {
        let unreadable = |why: String| GitHubClientError::Key { why };
        let key = EncodingKey::from_rsa_pem(pem.expose_secret().trim().as_bytes());
        let key = key.map_err(|error| unreadable(error.to_string()))?;
        RsaSigner::new(&key).map_err(|error| unreadable(error.to_string()))?;
        Ok(Self(key))
    }

    /// Returns a JSON web token with these claims, signed with RS256; `None` if the key cannot sign.
    pub(super) fn sign(&self, claims: &impl Serialize) -> Option<String> {
        static INSTALLED: Once = Once::new();
        // It fails only if a provider is installed already, and nothing else installs one.
        INSTALLED.call_once(|| {
            let _ = PROVIDER.install_default();
        });
        jsonwebtoken::encode(&Header::new(Algorithm::RS256), claims, &self.0).ok()
    }
}

/// Signs with ring, which TLS already uses. The built-in provider of jsonwebtoken is not used, because it needs `rsa`
/// (RUSTSEC-2023-0071).
static PROVIDER: CryptoProvider = CryptoProvider {
    signer_factory: |algorithm, key| match algorithm {
        Algorithm::RS256 => {
            let signer = RsaSigner::new(key).map_err(|_| Error::from(ErrorKind::InvalidKeyFormat))?;
            Ok(Box::new(signer) as Box<dyn JwtSigner>)
        }
        _ => Err(ErrorKind::InvalidAlgorithm.into()),
    },
    verifier_factory: |_, _| Err(ErrorKind::InvalidAlgorithm.into()),
    jwk_utils: JwkUtils::new_unimplemented(),
};

struct RsaSigner(RsaSigningKey);

impl RsaSigner {
    fn new(key: &EncodingKey) -> Result<Self, rustls::Error> {
        RsaSigningKey::new(&PrivatePkcs1KeyDer::from(key.inner()).into()).map(Self)
    }
}

impl signature::Signer<Vec<u8>> for RsaSigner {
    fn try_sign(&self, message: &[u8]) -> Result<Vec<u8>, signature::Error> {
        let signer =
            self.0.choose_scheme(&[SignatureScheme::RSA_PKCS1_SHA256]).ok_or_else(signature::Error::new)?;
        signer.sign(message).map_err(signature::Error::from_source)
    }
}

impl JwtSigner for RsaSigner {
    fn algorithm(&self) -> Algorithm {
        Algorithm::RS256
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn token_signature_equals_the_one_computed_by_openssl() {
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
