//! ZeroSSL: certificates by its own interface (`certificates`), and the accounts for its ACME authority. The authority
//! requires an external account (RFC 8555 §7.3.4); ZeroSSL creates one for an email address
//! (<https://zerossl.com/documentation/acme/generate-eab-credentials/>).

pub(crate) mod certificates;

use serde::Deserialize;

use crate::http::{HttpClient, HttpRequest, Method};
use crate::{AcmeError, ExternalAccount, Issuer};

/// The directories of ZeroSSL's authority begin with this.
const DIRECTORIES: &str = "https://acme.zerossl.com/";
/// The interface that creates accounts.
const CREDENTIALS: &str = "https://api.zerossl.com/acme/eab-credentials-email";

/// The interface's answer, of success or of failure.
#[derive(Deserialize)]
struct Credentials {
    #[serde(default)]
    success: bool,
    #[serde(default)]
    eab_kid: String,
    #[serde(default)]
    eab_hmac_key: String,
    #[serde(default)]
    error: Option<CredentialsFault>,
}

#[derive(Deserialize)]
struct CredentialsFault {
    #[serde(default, rename = "type")]
    kind: String,
}

/// Creates an external account for the issuer's email address; `None` if the authority is not ZeroSSL, or there is no
/// address.
///
/// # Errors
/// The interface does not answer, or refuses the address.
pub(crate) async fn external_account(issuer: &Issuer) -> Result<Option<ExternalAccount>, AcmeError> {
    if !issuer.directory.starts_with(DIRECTORIES) || issuer.email.is_empty() {
        return Ok(None);
    }
    let http = HttpClient::through(&issuer.proxy, &[])?;
    create(&http, CREDENTIALS, &issuer.email).await.map(Some)
}

async fn create(http: &HttpClient, interface: &str, email: &str) -> Result<ExternalAccount, AcmeError> {
    let body = format!("email={}", crate::dns::encoded(email));
    let request = HttpRequest::new(Method::POST, interface).body("application/x-www-form-urlencoded", body);
    let response = http.send(request).await?;
    let refused =
        |why: &str| AcmeError::NoExternalAccount(format!("{} {why}", response.status.as_u16()).trim().to_owned());
    match serde_json::from_slice(&response.body) {
        Ok(Credentials { success: true, eab_kid, eab_hmac_key, .. })
            if response.status.is_success() && !eab_kid.is_empty() && !eab_hmac_key.is_empty() =>
        {
            Ok(ExternalAccount { key_id: eab_kid, mac_key: eab_hmac_key })
        }
        Ok(Credentials { error: Some(CredentialsFault { kind }), .. }) => Err(refused(&kind)),
        _ => Err(refused("")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::double::Double;

    // ZeroSSL's documentation, "Generate EAB credentials": a form with the address.
    #[tokio::test]
    async fn an_account_for_an_address() {
        let answer = r#"{"success":true,"eab_kid":"kid-1","eab_hmac_key":"a2V5"}"#;
        let double = Double::new(&[("200 OK", answer)]).await;
        let account =
            create(&HttpClient::new(&[]).unwrap(), &format!("{}/acme", double.url), "a+b@example.com").await.unwrap();
        assert_eq!(account, ExternalAccount { key_id: "kid-1".to_owned(), mac_key: "a2V5".to_owned() });
        assert!(!format!("{account:?}").contains("a2V5"), "the key is a secret");
        let received = &double.received()[0];
        assert_eq!((&*received.line, &*received.body), ("POST /acme", "email=a%2Bb%40example.com"));
        assert_eq!(received.header("content-type"), "application/x-www-form-urlencoded");
    }

    #[tokio::test]
    async fn refusals() {
        for (head, body, want) in [
            ("200 OK", r#"{"success":false,"error":{"code":2900,"type":"invalid_email"}}"#, "200 invalid_email"),
            ("429 Too Many Requests", "<html>", "429"),
            ("200 OK", r#"{"success":true}"#, "200"),
        ] {
            let double = Double::new(&[(head, body)]).await;
            let error =
                create(&HttpClient::new(&[]).unwrap(), &double.url, "a@example.com").await.unwrap_err().to_string();
            assert_eq!(error, format!("ZeroSSL created no external account for the email address: it answered {want}"));
        }
    }

    #[tokio::test]
    async fn other_authorities_and_no_address() {
        let zerossl = Issuer { directory: "https://acme.zerossl.com/v2/DV90".to_owned(), ..Issuer::default() };
        for issuer in [zerossl, Issuer { email: "a@example.com".to_owned(), ..Issuer::default() }] {
            assert_eq!(external_account(&issuer).await.unwrap(), None);
        }
    }
}
