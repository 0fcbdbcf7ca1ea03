//! One certificate from an authority: the order, its challenges, and the certificate request (RFC 8555 §7.4).

use std::net::IpAddr;
use std::time::{Duration, SystemTime};

use causeway_certs::{KeyKind, SharedStorage, generate_key};
use instant_acme::{
    Account, AuthorizationHandle, AuthorizationState, AuthorizationStatus, CertificateIdentifier, ChallengeType, Error,
    Identifier, NewOrder, Order, OrderStatus, Problem,
};
use rcgen::{CertificateParams, CustomExtension, DistinguishedName, KeyPair};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use serde_json::json;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use tokio::time::Instant;

use crate::authority_client::{AuthorityClient, TRY_PAUSE_MAX};
use crate::bad_nonce::{is_problem, retry_bad_nonce};
use crate::challenge::{OpenChallenge, Published, StoredChallenge};
use crate::dns::DnsChallenge;
use crate::http::HttpError;
use crate::polling::Polling;
use crate::signed::SignedRequests;
use crate::{AcmeError, Issuer, OtherChallenge, account};

/// How long the authority may take to verify a challenge, and to issue: Caddy's limit.
pub(crate) const POLL_TIMEOUT: Duration = Duration::from_secs(5 * 60);
/// How long an order may take: both of these, and the requests between them.
const ORDER_TIMEOUT: Duration = Duration::from_secs(2 * POLL_TIMEOUT.as_secs() + 60);
/// How often the certificate is requested after the order for it is final: a new order would count towards the
/// authority's rate limits again.
const DOWNLOADS_MAX: usize = 4;
/// The longest pause between two of these requests. If `Retry-After` is longer, the order has failed.
const DOWNLOAD_PAUSE_MAX: Duration = Duration::from_secs(60);

/// An issued certificate.
#[derive(Debug)]
pub struct ObtainedCertificate {
    /// The chain as PEM, leaf first.
    pub chain: String,
    /// The private key as PEM.
    pub key: String,
}

/// A request for one certificate, of which the signing request (CSR) is made.
#[derive(Debug, Clone, Copy)]
pub struct CertificateRequest<'a> {
    /// A DNS name in lower-case ASCII, a wildcard (`*.` and such a name), or an IP address.
    pub name: &'a str,
    /// The kind of key to generate.
    pub key: KeyKind,
    /// The number of failed calls for this name: calls alternate in the challenge that they try first.
    pub attempt: usize,
    /// Whether to request the TLS feature extension (RFC 7633), so that clients insist on an OCSP response. Not every
    /// authority signs it.
    pub must_staple: bool,
    /// The certificate of this authority that the new one replaces (RFC 9773 §5).
    pub replaces: Option<&'a CertificateDer<'static>>,
}

/// Obtains a certificate. After a failure (`attempt`), the test authority has to issue one first, if there is one: its
/// rate limits are looser, so that a mistake that is still there does not exhaust those of the authority.
///
/// With a DNS provider only DNS-01 is used. Otherwise, if the authority cannot verify one of TLS-ALPN-01 and HTTP-01,
/// tries the other one with a new order, if there is one, because one of the two ports may not be reachable from
/// outside.
///
/// These two challenges are open in [`challenge`](crate::challenge) while this runs. A record of DNS-01 is removed at
/// the end, in the background if the call is cancelled.
///
/// # Errors
/// Returns the reason why the authority issued nothing.
pub async fn obtain(
    issuer: &Issuer,
    wanted: CertificateRequest<'_>,
    storage: &SharedStorage,
) -> Result<ObtainedCertificate, AcmeError> {
    if let Some(test) = issuer.test().filter(|_| wanted.attempt > 0) {
        let tested = Box::pin(obtain_from(&test, CertificateRequest { replaces: None, ..wanted }, storage)).await;
        tested.map_err(|error| AcmeError::Test(test.directory.clone(), Box::new(error)))?;
    }
    obtain_from(issuer, wanted, storage).await
}

async fn obtain_from(
    issuer: &Issuer,
    wanted: CertificateRequest<'_>,
    storage: &SharedStorage,
) -> Result<ObtainedCertificate, AcmeError> {
    let authority = AuthorityClient::new(issuer)?;
    obtain_over(&authority, issuer, wanted, storage).await.map_err(|error| authority.explain(error))
}

async fn obtain_over(
    authority: &AuthorityClient,
    issuer: &Issuer,
    wanted: CertificateRequest<'_>,
    storage: &SharedStorage,
) -> Result<ObtainedCertificate, AcmeError> {
    let CertificateRequest { name, replaces, .. } = wanted;
    let account = account::open(issuer, authority, storage).await?;
    let identifiers = [match name.parse::<IpAddr>() {
        Ok(ip) => Identifier::Ip(ip),
        Err(_) => Identifier::Dns(name.to_owned()),
    }];
    let identifiers = &identifiers;
    let order = |account: Account, attempt: usize| async move {
        let work = async {
            let order = match place(&account, issuer, authority, identifiers, replaces, storage).await {
                // The account was deleted there, or the authority has lost it.
                Err(AcmeError::Protocol(error)) if is_problem(&error, "accountDoesNotExist") => {
                    let account = account::replace(issuer, authority, storage, account.id()).await?;
                    place(&account, issuer, authority, identifiers, replaces, storage).await?
                }
                order => order?,
            };
            complete(issuer, authority, CertificateRequest { attempt, ..wanted }, order, storage).await
        };
        let timeout = ORDER_TIMEOUT + issuer.dns.as_ref().map_or(Duration::ZERO, DnsChallenge::timeout);
        tokio::time::timeout(timeout, work).await.unwrap_or(Err(AcmeError::Timeout(timeout)))
    };
    match order(account.clone(), wanted.attempt).await {
        Err(AcmeError::Unverified(first, OtherChallenge::MaySucceed)) => {
            let second = order(account, wanted.attempt + 1).await;
            second.map_err(|error| match error {
                AcmeError::Unverified(second, other) => AcmeError::Unverified(format!("{first}; {second}"), other),
                error => error,
            })
        }
        done => done,
    }
}

/// Places an order. It names the certificate that it replaces, if the authority has the extension and accepts that.
async fn place(
    account: &Account,
    issuer: &Issuer,
    authority: &AuthorityClient,
    identifiers: &[Identifier],
    replaces: Option<&CertificateDer<'static>>,
    storage: &SharedStorage,
) -> Result<Order, AcmeError> {
    if let Some(lifetime) = issuer.lifetime {
        return place_with_lifetime(account, issuer, authority, identifiers, lifetime, storage).await;
    }
    let new = || match &*issuer.profile {
        "" => NewOrder::new(identifiers),
        profile => NewOrder::new(identifiers).profile(profile),
    };
    if let Some(identifier) = replaces.and_then(|old| CertificateIdentifier::try_from(old).ok()) {
        let replacing = new().replaces(identifier);
        match retry_bad_nonce!(account.new_order(&replacing)) {
            // Without the extension, or the response does not have the member (RFC 9773 §5).
            Err(Error::Unsupported(_)) => {}
            Err(Error::Other(error)) if !error.is::<HttpError>() && !error.is::<AcmeError>() => {}
            // The certificate is unknown there, which Pebble calls an internal error, or another order has replaced it.
            Err(error @ Error::Api(_))
                if (authority.last_is_rejection() || is_problem(&error, "serverInternal"))
                    && !is_problem(&error, "accountDoesNotExist")
                    && !is_problem(&error, "rateLimited") => {}
            placed => return Ok(placed?),
        }
    }
    Ok(retry_bad_nonce!(account.new_order(&new()))?)
}

/// Places an order for a certificate that is valid for this time from now on (RFC 8555 §7.1.3). It does not name the
/// certificate that it replaces.
async fn place_with_lifetime(
    account: &Account,
    issuer: &Issuer,
    authority: &AuthorityClient,
    identifiers: &[Identifier],
    lifetime: Duration,
    storage: &SharedStorage,
) -> Result<Order, AcmeError> {
    let end =
        OffsetDateTime::from(SystemTime::now() + lifetime).replace_nanosecond(0).unwrap_or(OffsetDateTime::UNIX_EPOCH);
    let end = end.format(&Rfc3339).map_err(|error| AcmeError::Malformed(error.to_string()))?;
    let mut order = json!({ "identifiers": identifiers, "notAfter": end });
    if !issuer.profile.is_empty() {
        order["profile"] = issuer.profile.clone().into();
    }
    let mut requests = SignedRequests::open(issuer, authority, storage).await?;
    let new_order = requests.directory().new_order.clone();
    let placed = requests.post(&new_order, Some(&order)).await?;
    let url =
        placed.header("location").ok_or_else(|| AcmeError::Malformed("found an order without a URL".to_owned()))?;
    Ok(retry_bad_nonce!(account.order(url.to_owned()))?)
}

/// Proves that this server controls the name, and has the certificate signed.
async fn complete(
    issuer: &Issuer,
    authority: &AuthorityClient,
    wanted: CertificateRequest<'_>,
    mut order: Order,
    storage: &SharedStorage,
) -> Result<ObtainedCertificate, AcmeError> {
    // Fetches the authorizations. An order for one name has one, so repeating the step repeats no other request.
    retry_bad_nonce!(fetched(&mut order))?;
    // The challenges stay open until the order is ready or has failed.
    let mut open = Vec::new();
    let proven = prove(issuer, authority, wanted, &mut order, storage, &mut open).await;
    for challenge in open {
        challenge.close().await;
    }
    proven?;
    let key = make_key(wanted.key).await?;
    let request = request_params(wanted)?.serialize_request(&key)?;
    finalize(authority, &mut order, request.der()).await?;
    let mut chain = download(issuer, authority, &mut order).await?;
    if let (Some(chains), Some(url)) = (&issuer.chains, order.state().certificate.clone()) {
        let preferred =
            async { chains.fetch(&mut SignedRequests::open(issuer, authority, storage).await?, &url).await };
        match preferred.await {
            Ok(preferred) => chain = preferred,
            // The certificate is issued already, with a chain that most clients accept.
            Err(error) => tracing::warn!("{}: cannot read the alternate chains: {error}", wanted.name),
        }
    }
    Ok(ObtainedCertificate { chain, key: key.serialize_pem() })
}

/// Requests the certificate. After a fault, the order's status decides: the authority may have accepted a request whose
/// response was lost, and refuses the next one.
async fn finalize(authority: &AuthorityClient, order: &mut Order, request: &[u8]) -> Result<(), AcmeError> {
    let error = match retry_bad_nonce!(order.finalize_csr(request)) {
        Err(error) if authority.last_is_failure() || is_problem(&error, "orderNotReady") => error,
        accepted => return Ok(accepted?),
    };
    let (retry_at, retry_after) = (authority.retry_at(), authority.retry_after());
    // RFC 9110 §10.2.3: no further request before the time that the authority named.
    if retry_after > TRY_PAUSE_MAX {
        return Err(AcmeError::from(error).not_before(retry_at));
    }
    tokio::time::sleep(retry_after).await;
    match retry_bad_nonce!(order.refresh()) {
        Ok(state) if matches!(state.status, OrderStatus::Processing | OrderStatus::Valid) => Ok(()),
        _ => Err(AcmeError::from(error).not_before(retry_at)),
    }
}

/// Waits until the authority has issued the certificate, and reads its chain. Repeats that after a fault of the
/// authority or of the connection, unless [`poll`] has repeated its requests for its whole time.
async fn download(issuer: &Issuer, authority: &AuthorityClient, order: &mut Order) -> Result<String, AcmeError> {
    let mut downloads = 1;
    loop {
        let downloaded = match poll(issuer, authority, order, OrderStatus::Valid).await {
            Ok(()) => retry_bad_nonce!(order.certificate()),
            Err(error) if authority.last_is_failure() => return Err(error.into()),
            Err(error) => Err(error),
        };
        let error = match downloaded {
            Ok(Some(chain)) if is_chain(&chain) => return Ok(chain),
            Ok(Some(_)) => AcmeError::Malformed("found a certificate that is not PEM".to_owned()),
            Ok(None) => return Err(Error::Str("no certificates received from ACME CA").into()),
            // The authority has decided, or has had its time.
            Err(error @ (Error::Timeout(_) | Error::Str(_))) => return Err(error.into()),
            Err(error) => error.into(),
        };
        let retry_after = authority.retry_after();
        let is_refusal = authority.last_is_rejection() || order.state().status == OrderStatus::Invalid;
        if is_refusal || downloads == DOWNLOADS_MAX || retry_after > DOWNLOAD_PAUSE_MAX {
            return Err(error);
        }
        downloads += 1;
        let pause = issuer.timing.download_pause.max(retry_after);
        tracing::debug!(%error, pause = pause.as_secs_f64(), "the certificate has not arrived");
        tokio::time::sleep(pause).await;
    }
}

/// Waits until the order has this status or is invalid. The authority works on while a request fails, so a fault of the
/// connection or of its servers ends nothing before the authority's time is over.
async fn poll(
    issuer: &Issuer,
    authority: &AuthorityClient,
    order: &mut Order,
    wanted: OrderStatus,
) -> Result<(), Error> {
    let mut polling = Polling::new(issuer.timing.poll_interval, Instant::now(), issuer.timing.poll_timeout);
    let (mut last, mut retry_after) = (None, None);
    while let Some(pause) = polling.next(Instant::now(), retry_after) {
        tokio::time::sleep(pause).await;
        last = match retry_bad_nonce!(order.refresh()) {
            Ok(state) => {
                if let Some(problem) = &state.error {
                    return Err(Error::Api(problem.clone()));
                }
                if state.status == wanted || state.status == OrderStatus::Invalid {
                    return Ok(());
                }
                None
            }
            Err(error) if authority.last_is_failure() => {
                tracing::debug!(%error, "cannot read the order's status");
                Some(error)
            }
            Err(error) => return Err(error),
        };
        retry_after = authority.retry_at().and_then(|at| at.duration_since(SystemTime::now()).ok());
    }
    Err(last.unwrap_or(Error::Timeout(None)))
}

/// Whether this is a chain as RFC 8555 §9.1 defines it: certificates as PEM, at least one.
pub(crate) fn is_chain(text: &str) -> bool {
    let mut certificates = CertificateDer::pem_slice_iter(text.as_bytes()).peekable();
    certificates.peek().is_some() && certificates.all(|certificate| certificate.is_ok())
}

/// Generates a private key on a blocking thread: RSA takes seconds, and the caller's thread has other tasks.
pub(crate) async fn make_key(kind: KeyKind) -> Result<KeyPair, AcmeError> {
    let made = tokio::task::spawn_blocking(move || generate_key(kind)).await;
    Ok(made.map_err(|error| AcmeError::Key(error.to_string()))??)
}

/// The content of the certificate request.
pub(crate) fn request_params(wanted: CertificateRequest<'_>) -> Result<CertificateParams, rcgen::Error> {
    let mut params = CertificateParams::new(vec![wanted.name.to_owned()])?;
    params.distinguished_name = DistinguishedName::new();
    if wanted.must_staple {
        // RFC 7633 §4: a sequence of features, here 5, `status_request`.
        let feature = CustomExtension::from_oid_content(&[1, 3, 6, 1, 5, 5, 7, 1, 24], vec![0x30, 3, 2, 1, 5]);
        params.custom_extensions.push(feature);
    }
    Ok(params)
}

/// Answers a challenge of each authorization, and waits until the authority has verified them.
async fn prove(
    issuer: &Issuer,
    authority: &AuthorityClient,
    wanted: CertificateRequest<'_>,
    order: &mut Order,
    storage: &SharedStorage,
    open: &mut Vec<OpenChallenge>,
) -> Result<(), AcmeError> {
    let mut other = OtherChallenge::CannotHelp;
    let mut authorizations = order.authorizations();
    while let Some(authorization) = authorizations.next().await {
        let authorization = authorization?;
        match authorization.status {
            AuthorizationStatus::Valid => {}
            AuthorizationStatus::Pending => {
                other = answer(issuer, authority, wanted, authorization, storage, open).await?;
            }
            _ => {
                let reasons = explanation(&authorization).join("; ");
                return Err(AcmeError::Unverified(reasons, OtherChallenge::CannotHelp));
            }
        }
    }
    if order.state().status != OrderStatus::Pending {
        return Ok(());
    }
    let polled = poll(issuer, authority, order, OrderStatus::Ready).await;
    match (polled, order.state().status) {
        (_, OrderStatus::Invalid) => Err(failure(order, other).await),
        (polled, _) => Ok(polled?),
    }
}

/// Fetches the order's authorizations.
async fn fetched(order: &mut Order) -> Result<(), Error> {
    let mut authorizations = order.authorizations();
    while let Some(authorization) = authorizations.next().await {
        authorization?;
    }
    Ok(())
}

/// Opens a challenge of the authorization, adds it to `open`, and reports to the authority that it is ready. Returns
/// whether this server could have answered another one.
async fn answer(
    issuer: &Issuer,
    authority: &AuthorityClient,
    wanted: CertificateRequest<'_>,
    mut authorization: AuthorizationHandle<'_>,
    storage: &SharedStorage,
    open: &mut Vec<OpenChallenge>,
) -> Result<OtherChallenge, AcmeError> {
    let CertificateRequest { name, attempt, .. } = wanted;
    let offered: Vec<_> = authorization.challenges.iter().map(|challenge| challenge.r#type.clone()).collect();
    let usable = |kind: &ChallengeType| match kind {
        ChallengeType::Dns01 => issuer.dns.is_some(),
        ChallengeType::TlsAlpn01 => issuer.dns.is_none() && issuer.allows_tls_alpn01,
        ChallengeType::Http01 => issuer.dns.is_none() && issuer.allows_http01,
        _ => false,
    };
    let mut usable: Vec<_> = [ChallengeType::Dns01, ChallengeType::TlsAlpn01, ChallengeType::Http01]
        .into_iter()
        .filter(|kind| offered.contains(kind) && usable(kind))
        .collect();
    let none = || {
        let expected = match issuer.dns {
            Some(_) => "dns-01, because a DNS provider is set",
            None => "tls-alpn-01 or http-01, unless the configuration disables them",
        };
        AcmeError::NoChallenge(offered.iter().map(label).collect::<Vec<_>>().join(", "), expected)
    };
    if usable.is_empty() {
        return Err(none());
    }
    let kind = usable.swap_remove(attempt % usable.len());
    let other = if usable.is_empty() { OtherChallenge::CannotHelp } else { OtherChallenge::MaySucceed };
    let mut challenge = authorization.challenge(kind).ok_or_else(none)?;
    let authorized = challenge.key_authorization();
    let (url, token) = (&challenge.url, &challenge.token);
    // In storage before the authority begins to verify it.
    open.push(match (&challenge.r#type, &issuer.dns) {
        (ChallengeType::Dns01, Some(dns)) => OpenChallenge::Dns(dns.present(name, authorized.dns_value()).await?),
        (ChallengeType::Http01, _) => {
            let stored = StoredChallenge::http(name, url, token, authorized.as_str());
            OpenChallenge::http(token, authorized.as_str(), Published::new(issuer, storage, stored).await)
        }
        _ => {
            let stored = StoredChallenge::tls_alpn(name, url, token, authorized.as_str());
            OpenChallenge::tls(name, authorized.digest().as_ref(), Published::new(issuer, storage, stored).await)?
        }
    });
    match retry_bad_nonce!(challenge.set_ready()) {
        // The authority has accepted the response and has a first result of the verification already. The order says
        // when it is final.
        Err(Error::Api(_)) if authority.last_is_success() => {}
        accepted => accepted?,
    }
    Ok(other)
}

/// The name of a challenge in RFC 8555 and RFC 8737, for messages.
fn label(kind: &ChallengeType) -> String {
    match kind {
        ChallengeType::Http01 => "http-01".to_owned(),
        ChallengeType::Dns01 => "dns-01".to_owned(),
        ChallengeType::TlsAlpn01 => "tls-alpn-01".to_owned(),
        kind => format!("{kind:?}"),
    }
}

/// Returns the error for an invalid order, with the authority's explanation: that of each authorization, then that of
/// the order itself (RFC 8555 §7.1.3). `other`: whether this server could have answered another challenge. It counts
/// only if the challenge is the cause.
async fn failure(order: &mut Order, mut other: OtherChallenge) -> AcmeError {
    let mut reasons = Vec::new();
    let mut is_challenge = false;
    // One that cannot be read has no reasons.
    let _ = retry_bad_nonce!(fetched(order));
    let mut authorizations = order.authorizations();
    while let Some(Ok(authorization)) = authorizations.next().await {
        is_challenge |= authorization.status == AuthorizationStatus::Invalid;
        reasons.extend(explanation(&authorization));
    }
    reasons.extend(order.state().error.as_ref().map(description));
    if reasons.is_empty() {
        reasons.push("it gave no reason".to_owned());
    }
    if !is_challenge {
        other = OtherChallenge::CannotHelp;
    }
    AcmeError::Unverified(reasons.join("; "), other)
}

/// Returns the reasons why an authorization is not valid: the errors of its challenges (RFC 8555 §8), or else its
/// status.
fn explanation(authorization: &AuthorizationState) -> Vec<String> {
    let failed = authorization.challenges.iter().filter_map(|challenge| Some((challenge, challenge.error.as_ref()?)));
    let mut reasons: Vec<_> =
        failed.map(|(challenge, problem)| format!("{}: {}", label(&challenge.r#type), description(problem))).collect();
    let is_usable = matches!(authorization.status, AuthorizationStatus::Valid | AuthorizationStatus::Pending);
    if reasons.is_empty() && !is_usable {
        reasons.push(format!("the authorization is {}", format!("{:?}", authorization.status).to_lowercase()));
    }
    reasons
}

/// The texts of a problem document and of its subproblems (RFC 8555 §6.7.1).
fn description(problem: &Problem) -> String {
    let text = problem.to_string();
    text.strip_prefix("API error: ").unwrap_or(&text).to_owned()
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::pin::pin;
    use std::task::Poll;

    use super::*;

    // The server orders certificates on the thread of its signals and control commands: their tasks run while a key is
    // generated.
    #[test]
    fn other_tasks_run_while_a_key_is_generated() {
        let runtime = tokio::runtime::Builder::new_current_thread().max_blocking_threads(1).build().unwrap();
        runtime.block_on(async {
            let (release, held) = std::sync::mpsc::channel::<()>();
            // The only blocking thread is occupied.
            let occupied = tokio::task::spawn_blocking(move || held.recv());
            let mut key = pin!(make_key(KeyKind::P256));
            assert!(poll_fn(|context| Poll::Ready(key.as_mut().poll(context).is_pending())).await);
            release.send(()).unwrap();
            occupied.await.unwrap().unwrap();
            key.await.unwrap();
        });
    }

    // Caddy's `must_staple` (RFC 7633 §4): the certificate request has the TLS feature extension with `status_request`,
    // and by default it has not.
    #[test]
    fn the_request_for_a_certificate_that_must_be_stapled() {
        let key = generate_key(KeyKind::P256).unwrap();
        for must_staple in [false, true] {
            let wanted =
                CertificateRequest { name: "a.example", key: KeyKind::P256, attempt: 0, must_staple, replaces: None };
            let request = request_params(wanted).unwrap().serialize_request(&key).unwrap();
            // The OID and its value.
            let feature = [6, 8, 0x2b, 6, 1, 5, 5, 7, 1, 0x18, 4, 5, 0x30, 3, 2, 1, 5];
            assert_eq!(request.der().windows(feature.len()).any(|window| window == feature), must_staple);
        }
    }
}
