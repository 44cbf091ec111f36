//! Private keys of Apps: key generation and verification of Apps' signatures.

use base64::{Engine, engine::general_purpose::STANDARD};
use num_bigint::BigUint;
use rustls::{
    SignatureScheme,
    crypto::ring::sign::RsaSigningKey,
    pki_types::{PrivateKeyDer, pem::PemObject},
    sign::SigningKey,
};
use secrecy::SecretString;

use super::HubError;

/// Size of a prime in bytes. Two such primes make a 2048-bit key, as on GitHub.
const PRIME_BYTES: usize = 128;

const EXPONENT: u32 = 65_537;

/// Bases of the Miller-Rabin test. Candidates are random, so fixed bases are as good as random ones.
const BASES: [u32; 12] = [2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37];

/// Small divisors that are tried before the slower Miller-Rabin test.
const SMALL_DIVISORS: std::ops::Range<u32> = 3..2000;

/// Generates a 2048-bit RSA key in PKCS#1 PEM format.
pub(super) fn new_key() -> Result<SecretString, HubError> {
    let failed = || HubError::Refused("could not generate a key".to_owned());
    let der = private_key(&prime()?, &prime()?).ok_or_else(failed)?;
    let mut pem = "-----BEGIN RSA PRIVATE KEY-----\n".to_owned();
    let mut text = STANDARD.encode(der);
    while !text.is_empty() {
        let rest = text.split_off(text.len().min(64));
        pem = pem + &text + "\n";
        text = rest;
    }
    Ok(SecretString::from(pem + "-----END RSA PRIVATE KEY-----\n"))
}

/// Returns the RS256 signature of `message`. RS256 is deterministic, so an App's signature is valid if it equals the
/// returned one.
pub(super) fn sign(pem: &str, message: &[u8]) -> Option<Vec<u8>> {
    let der = PrivateKeyDer::from_pem_slice(pem.as_bytes()).ok()?;
    let key = RsaSigningKey::new(&der).ok()?;
    key.choose_scheme(&[SignatureScheme::RSA_PKCS1_SHA256])?.sign(message).ok()
}

fn prime() -> Result<BigUint, HubError> {
    loop {
        let mut bytes = [0; PRIME_BYTES];
        getrandom::fill(&mut bytes)
            .map_err(|e| HubError::Refused(format!("could not generate a key: {e}")))?;
        // The product of two such numbers has full length.
        bytes[0] |= 0b1100_0000;
        bytes[PRIME_BYTES - 1] |= 1;
        let candidate = BigUint::from_bytes_be(&bytes);
        let invertible = (&candidate - 1_u32) % EXPONENT != BigUint::ZERO;
        if invertible && is_prime(&candidate) {
            return Ok(candidate);
        }
    }
}

/// Whether a large odd number is probably prime, by the Miller-Rabin test.
fn is_prime(number: &BigUint) -> bool {
    if SMALL_DIVISORS.step_by(2).any(|divisor| number % divisor == BigUint::ZERO) {
        return false;
    }
    let (one, last) = (BigUint::from(1_u32), number - 1_u32);
    let twos = last.trailing_zeros().unwrap_or(0);
    let odd = &last >> twos;
    BASES.into_iter().all(|base| {
        let mut power = BigUint::from(base).modpow(&odd, number);
        let mut squared = 0;
        while power != last && power != one && squared < twos {
            power = &power * &power % number;
            squared += 1;
        }
        power == last || (power == one && squared == 0)
    })
}

/// Returns the `RSAPrivateKey` structure of RFC 8017 in DER; `None` if no key can be made from the two primes.
fn private_key(p: &BigUint, q: &BigUint) -> Option<Vec<u8>> {
    let exponent = BigUint::from(EXPONENT);
    let (before_p, before_q) = (p - 1_u32, q - 1_u32);
    let d = exponent.modinv(&(&before_p * &before_q))?;
    let (dp, dq, inverse) = (&d % &before_p, &d % &before_q, q.modinv(p)?);
    let numbers = [BigUint::ZERO, p * q, exponent, d, p.clone(), q.clone(), dp, dq, inverse];
    Some(der_element(0x30, numbers.iter().flat_map(der_integer).collect()))
}

fn der_integer(number: &BigUint) -> Vec<u8> {
    let mut bytes = number.to_bytes_be();
    if bytes[0] & 0x80 != 0 {
        bytes.insert(0, 0); // otherwise it would be negative
    }
    der_element(0x02, bytes)
}

fn der_element(tag: u8, content: Vec<u8>) -> Vec<u8> {
    let length = content.len().to_be_bytes();
    let length = &length[length.iter().take_while(|byte| **byte == 0).count()..];
    let mut head = vec![tag];
    if content.len() >= 0x80 {
        head.push(0x80 | length.len() as u8);
    }
    head.extend_from_slice(length);
    head.extend(content);
    head
}

#[cfg(test)]
mod tests {
    use secrecy::ExposeSecret;

    use super::*;

    #[test]
    fn generated_keys_can_sign_and_are_distinct() {
        let [one, other] = [(); 2].map(|()| new_key().unwrap());
        let signed = |key: &SecretString| sign(key.expose_secret(), b"message").unwrap();
        assert_eq!(signed(&one).len(), 2 * PRIME_BYTES);
        assert_ne!(signed(&one), signed(&other));
    }

    #[test]
    fn composite_numbers_fail_the_primality_test() {
        let prime = prime().unwrap();
        // Strong pseudoprimes to base 2 and to bases 2 to 7, and a square.
        let composites = [4_033_u64 * 4_051, 3_215_031_751].map(BigUint::from);
        assert!(is_prime(&prime));
        assert!(composites.into_iter().chain([&prime * &prime]).all(|number| !is_prime(&number)));
    }
}
