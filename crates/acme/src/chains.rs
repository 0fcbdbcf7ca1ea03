//! The choice between the chains that an authority offers for a certificate (RFC 8555 §7.4.2).

use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use x509_parser::prelude::{FromDer as _, X509Certificate};

use crate::AcmeError;
use crate::http::HttpResponse;
use crate::order::is_chain;
use crate::signed::SignedRequests;

/// Alternate chains that are read.
const ALTERNATES_MAX: usize = 8;

/// The chains to prefer. The first that applies, in the order of its members, decides; if none does, the authority's
/// first chain.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ChainPreference {
    /// `Some(true)`: chains with fewer bytes first; `Some(false)`: those with more.
    pub smallest: Option<bool>,
    /// Common names; a chain with a certificate whose issuer has one of them. Earlier names are preferred.
    pub any_common_names: Vec<String>,
    /// Common names; a chain whose last certificate's issuer has one of them. Earlier names are preferred.
    pub root_common_names: Vec<String>,
}

impl ChainPreference {
    /// Reads the chains at a certificate's URL and returns the preferred one as PEM.
    ///
    /// # Errors
    /// The authority does not return the certificate, or not as PEM.
    pub(crate) async fn fetch(&self, requests: &mut SignedRequests, url: &str) -> Result<String, AcmeError> {
        let first = requests.post(url, None).await?;
        let mut chains = vec![text(&first)?];
        for alternate in alternates(&first).iter().take(ALTERNATES_MAX) {
            match requests.post(alternate, None).await.and_then(|response| text(&response)) {
                Ok(chain) => chains.push(chain),
                Err(error) => tracing::warn!("{alternate}: cannot read an alternate chain: {error}"),
            }
        }
        Ok(self.choose(chains))
    }

    /// Returns the preferred chain. There is at least one.
    fn choose(&self, mut chains: Vec<String>) -> String {
        match self.smallest {
            // Both sorts are stable.
            Some(true) => chains.sort_by_key(String::len),
            Some(false) => chains.sort_by_key(|chain| std::cmp::Reverse(chain.len())),
            None => {}
        }
        let issuers: Vec<_> = chains.iter().map(|chain| issuers(chain)).collect();
        let any = self.any_common_names.iter().find_map(|name| issuers.iter().position(|all| all.contains(name)));
        let root = || {
            let is_root = |name: &String| issuers.iter().position(|all| all.last() == Some(name));
            self.root_common_names.iter().find_map(is_root)
        };
        let chosen = any.or_else(root);
        if chosen.is_none() && !(self.any_common_names.is_empty() && self.root_common_names.is_empty()) {
            tracing::warn!("the authority offers no preferred chain, found those of {issuers:?}; using the first");
        }
        chains.swap_remove(chosen.unwrap_or(0))
    }
}

/// The common name of each certificate's issuer; empty if it has none.
fn issuers(chain: &str) -> Vec<String> {
    let certificates = CertificateDer::pem_slice_iter(chain.as_bytes()).filter_map(Result::ok);
    let issuer = |certificate: CertificateDer<'_>| {
        let (_, parsed) = X509Certificate::from_der(&certificate).ok()?;
        let name = parsed.issuer().iter_common_name().next()?.as_str().ok()?.to_owned();
        Some(name)
    };
    certificates.map(|certificate| issuer(certificate).unwrap_or_default()).collect()
}

fn text(response: &HttpResponse) -> Result<String, AcmeError> {
    let text = String::from_utf8(response.body.to_vec()).ok().filter(|text| is_chain(text));
    text.ok_or_else(|| AcmeError::Malformed("found a certificate that is not PEM".to_owned()))
}

/// The URLs of `Link: <URL>;rel="alternate"` (RFC 8555 §7.4.2). Several links may share a header line (RFC 8288 §3).
fn alternates(response: &HttpResponse) -> Vec<String> {
    let mut found = Vec::new();
    for value in response.headers("link") {
        let mut rest = value;
        while let Some((url, after)) = rest.split_once('<').and_then(|(_, rest)| rest.split_once('>')) {
            // The parameters end where the next link begins; URLs have no `<`.
            let parameters = after.split('<').next().unwrap_or_default();
            let is_alternate = parameters.split([';', ',']).any(|parameter| {
                let Some((name, value)) = parameter.split_once('=') else { return false };
                name.trim().eq_ignore_ascii_case("rel")
                    && value.trim().trim_matches('"').split_ascii_whitespace().any(|relation| relation == "alternate")
            });
            if is_alternate && !url.contains(char::is_whitespace) {
                found.push(url.to_owned());
            }
            rest = after;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, CertifiedIssuer, DistinguishedName, DnType, IsCa, KeyPair};

    use super::*;
    use crate::http::HttpRequest;
    use crate::http::double::Double;

    /// A certificate for a name, signed by an issuer with this common name.
    fn signed_by(issuer: &str) -> String {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, issuer);
        params.is_ca = IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let leaf = CertificateParams::new(vec!["a.example".to_owned()]).unwrap();
        leaf.signed_by(&KeyPair::generate().unwrap(), &issuer).unwrap().pem()
    }

    // certmagic's `selectPreferredChain`.
    #[test]
    fn preferences() {
        let (r10, x1, x2) = (signed_by("R10"), signed_by("ISRG Root X1"), signed_by("ISRG Root X2"));
        let long = format!("{r10}{x1}{x1}");
        let short = format!("{r10}{x2}");
        let names = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
        let none = ChainPreference::default();
        for (preference, want) in [
            (none.clone(), &long),
            (ChainPreference { smallest: Some(true), ..none.clone() }, &short),
            (ChainPreference { smallest: Some(false), ..none.clone() }, &long),
            (ChainPreference { root_common_names: names(&["ISRG Root X2"]), ..none.clone() }, &short),
            (ChainPreference { root_common_names: names(&["missing", "ISRG Root X2"]), ..none.clone() }, &short),
            (ChainPreference { root_common_names: names(&["R10"]), ..none.clone() }, &long),
            (ChainPreference { any_common_names: names(&["R10"]), ..none.clone() }, &long),
            (ChainPreference { any_common_names: names(&["ISRG Root X2", "R10"]), ..none.clone() }, &short),
            (ChainPreference { smallest: Some(true), root_common_names: names(&["missing"]), ..none }, &short),
        ] {
            assert_eq!(&preference.choose(vec![long.clone(), short.clone()]), want, "{preference:?}");
        }
        assert_eq!(ChainPreference::default().choose(vec!["nonsense".to_owned()]), "nonsense");
    }

    // RFC 8555 §9.1: a chain is PEM. Another text does not replace the one that was downloaded.
    #[tokio::test]
    async fn a_chain_is_pem() {
        for (body, is_chain) in [(&*signed_by("R10"), true), ("<html>down", false), ("", false)] {
            let double = Double::new(&[("200 OK", body)]).await;
            let response =
                crate::http::HttpClient::new(&[]).unwrap().send(HttpRequest::get(&double.url)).await.unwrap();
            assert_eq!(text(&response).is_ok(), is_chain, "{body}");
        }
    }

    // RFC 8288 §3.
    #[tokio::test]
    async fn links() {
        for (head, want) in [
            ("200 OK", &[][..]),
            ("200 OK\r\nLink: <https://ca/1/1>;rel=\"alternate\"", &["https://ca/1/1"]),
            (
                "200 OK\r\nLink: <https://ca/dir>;rel=\"index\"\r\nLink: <https://ca/1>; REL=alternate\r\nLink: <https://ca/2>; title=\"x\"; rel=\"up alternate\"",
                &["https://ca/1", "https://ca/2"],
            ),
            (
                "200 OK\r\nLink: <https://ca/a,b>;rel=\"alternate\", <https://ca/x>;rel=\"up\", <https://ca/c>;rel=\"alternate\"",
                &["https://ca/a,b", "https://ca/c"],
            ),
            ("200 OK\r\nLink: nonsense, <, >;rel=\"alternate\"", &[]),
        ] {
            let double = Double::new(&[(head, "")]).await;
            let response =
                crate::http::HttpClient::new(&[]).unwrap().send(HttpRequest::get(&double.url)).await.unwrap();
            assert_eq!(alternates(&response), want, "{head}");
        }
    }
}
