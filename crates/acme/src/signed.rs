//! Requests that instant-acme has no interface for, signed with the account's key (RFC 8555 §6.2).

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use causeway_certs::SharedStorage;
use instant_acme::Error;
use rustls_pki_types::PrivatePkcs8KeyDer;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::authority_client::{AuthorityClient, problem, unexplained};
use crate::bad_nonce::{NONCE_TRIES, is_problem};
use crate::http::{HttpRequest, HttpResponse, Method};
use crate::{AcmeError, Issuer, account};

/// The client of an authority, with the account in storage.
pub(crate) struct SignedRequests {
    authority: AuthorityClient,
    directory: Directory,
    key: EcdsaKeyPair,
    /// The account's URL; `None`: requests carry the key itself, to register it.
    account: Option<String>,
    /// From the last response (RFC 8555 §6.5.1).
    nonce: Option<String>,
}

/// The members of a directory that this crate uses.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Directory {
    new_nonce: String,
    new_account: String,
    pub(crate) new_order: String,
}

impl SignedRequests {
    /// Reads the account that [`account::open`] has opened, and the authority's directory.
    ///
    /// # Errors
    /// Storage has no usable account, or the authority does not answer.
    pub(crate) async fn open(
        issuer: &Issuer,
        authority: &AuthorityClient,
        storage: &SharedStorage,
    ) -> Result<Self, AcmeError> {
        let known = account::read(issuer, storage).await?;
        let known = known.ok_or_else(|| AcmeError::Malformed("found no account in storage".to_owned()))?;
        Self::new(issuer, authority, &known.key, Some(known.url)).await
    }

    async fn new(
        issuer: &Issuer,
        authority: &AuthorityClient,
        key: &PrivatePkcs8KeyDer<'_>,
        account: Option<String>,
    ) -> Result<Self, AcmeError> {
        let key = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, key.secret_pkcs8_der());
        let key = key.map_err(|error| AcmeError::Key(error.to_string()))?;
        let response = authority.send(HttpRequest::get(&issuer.directory)).await?;
        let response = checked(response)?;
        let directory = serde_json::from_slice(&response.body).map_err(|error| not_a_directory(&response, &error))?;
        Ok(Self { authority: authority.clone(), directory, key, account, nonce: None })
    }

    pub(crate) fn directory(&self) -> &Directory {
        &self.directory
    }

    /// Sends a signed request; without a payload, a POST-as-GET (RFC 8555 §6.3).
    ///
    /// # Errors
    /// The authority does not answer, or answers with a problem.
    pub(crate) async fn post(&mut self, url: &str, payload: Option<&Value>) -> Result<HttpResponse, AcmeError> {
        let mut tries = 0;
        loop {
            let nonce = match self.nonce.take() {
                Some(nonce) => nonce,
                None => self.fresh_nonce().await?,
            };
            let mut header = json!({ "alg": "ES256", "nonce": nonce, "url": url });
            match &self.account {
                Some(account) => header["kid"] = account.clone().into(),
                None => header["jwk"] = self.jwk(),
            }
            let body = self.sign(&header, payload)?;
            let request = HttpRequest::new(Method::POST, url).body("application/jose+json", body);
            let response = self.authority.send(request).await?;
            self.nonce = response.header("replay-nonce").map(str::to_owned);
            match checked(response) {
                Err(AcmeError::Protocol(error)) if is_problem(&error, "badNonce") && tries < NONCE_TRIES => tries += 1,
                response => return response,
            }
        }
    }

    /// The public key (RFC 7518 §6.2.1).
    fn jwk(&self) -> Value {
        // An uncompressed point: 4, then the two coordinates of 32 bytes.
        let point = self.key.public_key().as_ref();
        let [x, y] = [&point[1..33], &point[33..65]].map(|part| BASE64_URL_SAFE_NO_PAD.encode(part));
        json!({ "kty": "EC", "crv": "P-256", "x": x, "y": y })
    }

    async fn fresh_nonce(&self) -> Result<String, AcmeError> {
        let request = HttpRequest::new(Method::HEAD, &self.directory.new_nonce);
        // RFC 8555 §7.2.
        let response = checked(self.authority.send(request).await?)?;
        let nonce = response.header("replay-nonce").map(str::to_owned);
        nonce.ok_or_else(|| AcmeError::Malformed("found no nonce".to_owned()))
    }

    /// Encodes a flattened JWS (RFC 7515 §7.2.2).
    fn sign(&self, header: &Value, payload: Option<&Value>) -> Result<String, AcmeError> {
        let protected = BASE64_URL_SAFE_NO_PAD.encode(header.to_string());
        let payload = payload.map(|payload| BASE64_URL_SAFE_NO_PAD.encode(payload.to_string())).unwrap_or_default();
        let signature = self.key.sign(&SystemRandom::new(), format!("{protected}.{payload}").as_bytes());
        let signature = signature.map_err(|_| AcmeError::Key("signing failed".to_owned()))?;
        let signature = BASE64_URL_SAFE_NO_PAD.encode(signature);
        Ok(json!({ "protected": protected, "payload": payload, "signature": signature }).to_string())
    }
}

/// Registers an account for a key, and returns its URL. The authority returns the account that it has for the key, if
/// it has one (RFC 8555 §7.3).
///
/// # Errors
/// The authority does not answer, or refuses the account.
pub(crate) async fn register(
    issuer: &Issuer,
    authority: &AuthorityClient,
    key: &PrivatePkcs8KeyDer<'_>,
    contacts: &[&str],
) -> Result<String, AcmeError> {
    let mut account = json!({ "termsOfServiceAgreed": true });
    if !contacts.is_empty() {
        account["contact"] = json!(contacts);
    }
    new_account(issuer, authority, key, &account).await
}

/// Returns the URL of the account that the authority has for a key (RFC 8555 §7.3.1).
///
/// # Errors
/// The authority does not answer, or has no account for the key.
pub(crate) async fn find_account(
    issuer: &Issuer,
    authority: &AuthorityClient,
    key: &PrivatePkcs8KeyDer<'_>,
) -> Result<String, AcmeError> {
    new_account(issuer, authority, key, &json!({ "onlyReturnExisting": true })).await.map_err(|error| match error {
        AcmeError::Protocol(problem) if is_problem(&problem, "accountDoesNotExist") => AcmeError::NoAccount,
        error => error,
    })
}

async fn new_account(
    issuer: &Issuer,
    authority: &AuthorityClient,
    key: &PrivatePkcs8KeyDer<'_>,
    account: &Value,
) -> Result<String, AcmeError> {
    let mut requests = SignedRequests::new(issuer, authority, key, None).await?;
    let url = requests.directory.new_account.clone();
    let response = requests.post(&url, Some(account)).await?;
    let url = response.header("location").map(str::to_owned);
    url.ok_or_else(|| AcmeError::Malformed("found an account without a URL".to_owned()))
}

/// The error for a response of success that is not a directory (RFC 8555 §7.1.1), such as the page of a web server at a
/// wrong URL.
fn not_a_directory(response: &HttpResponse, error: &serde_json::Error) -> AcmeError {
    let media_type = response.header("content-type").unwrap_or("no Content-Type");
    AcmeError::Malformed(format!(
        "found no ACME directory (status {}, {media_type}): {error}",
        response.status.as_u16()
    ))
}

/// Returns a response of success; others as errors, with the authority's explanation (RFC 8555 §6.7).
fn checked(response: HttpResponse) -> Result<HttpResponse, AcmeError> {
    if response.status.is_success() {
        return Ok(response);
    }
    Err(problem(&response).map_or_else(|| unexplained(&response), |problem| Error::Api(problem).into()))
}
