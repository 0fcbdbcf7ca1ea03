//! The directive `tls`: certificates and TLS settings of a site.

use serde_json::{Map, Value, json};

use super::super::dispenser::Dispenser;
use super::super::error::{Error, ErrorKind};
use super::super::members::Members;
use super::super::options::renewal_window_ratio;
use super::super::registry::DirectiveOutput;
use super::super::tls::{Issuer, Tls, client_auth, dns_option, dns_provider, eab};
use super::texts;

pub(crate) const SUBDIRECTIVES: &[&str] = &[
    "alpn",
    "ca",
    "ca_root",
    "ciphers",
    "client_auth",
    "curves",
    "dns",
    "dns_challenge_override_domain",
    "dns_ttl",
    "eab",
    "get_certificate",
    "insecure_secrets_log",
    "issuer",
    "key_type",
    "load",
    "on_demand",
    "propagation_delay",
    "propagation_timeout",
    "protocols",
    "renewal_window_ratio",
    "resolvers",
    "reuse_private_keys",
];

/// Caddy's cipher suites: all of TLS 1.3, and those of TLS 1.2 that it allows.
const SUITES: [&str; 13] = [
    "TLS_AES_128_GCM_SHA256",
    "TLS_AES_256_GCM_SHA384",
    "TLS_CHACHA20_POLY1305_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
];

const CURVES: [&str; 5] = ["x25519mlkem768", "x25519", "secp256r1", "secp384r1", "secp521r1"];

/// Settings that imply an issuer without naming one.
#[derive(Default)]
struct Shortcuts {
    internal: bool,
    /// ACME settings.
    acme: Option<Map<String, Value>>,
    /// Options of the DNS challenge. They require a provider.
    dns: Vec<&'static str>,
    has_provider: bool,
}

/// Parses `tls [<email>|internal|force_automate|<certificate> <key>] { … }`.
pub(super) fn tls(d: &mut Dispenser<'_>) -> Result<Vec<DirectiveOutput>, Error> {
    let mut tls = Tls::default();
    let mut shortcuts = Shortcuts::default();
    let first = d.rest();
    match first {
        [] => {}
        [word] => match &*word.text {
            "internal" => shortcuts.internal = true,
            "force_automate" => tls.force_automate = true,
            email if email.contains('@') => shortcuts.acme().text("email", email),
            _ => {
                let rule = "single argument must either be 'internal', 'force_automate', or an email address; expected one \
                            of them instead of '{}'";
                return Err(d.word(rule));
            }
        },
        [certificate, key] => {
            // A file that several directives name is loaded once: if it were loaded again, only the tags of the last
            // copy would apply.
            let (tag, new) = d.assign_certificate_tag(&certificate.text);
            if new {
                tls.files.push(json!({ "certificate": &*certificate.text, "key": &*key.text, "tags": [tag] }));
            }
            tls.tag = Some(tag);
        }
        _ => return Err(d.count_error()),
    }
    let mut lines = d.lines().peekable();
    if first.is_empty() && lines.peek().is_none() {
        return Err(d.count_error());
    }
    for mut line in lines {
        subdirective(&mut tls, &mut shortcuts, &mut line)?;
    }
    shortcuts.apply(&mut tls, d)?;
    Ok(vec![DirectiveOutput::Tls(Box::new(tls))])
}

fn subdirective(tls: &mut Tls, shortcuts: &mut Shortcuts, line: &mut Dispenser<'_>) -> Result<(), Error> {
    match &*line.name().text {
        "protocols" => {
            if line.remaining().is_empty() {
                return Err(line.rule("protocols requires one or two arguments"));
            }
            for key in ["protocol_min", "protocol_max"] {
                match line.argument().map(|token| &*token.text) {
                    Some(protocol @ ("tls1.2" | "tls1.3")) => tls.connection.text(key, protocol),
                    Some(_) => {
                        let rule = "wrong protocol name or protocol not supported: '{}'; expected tls1.2 or tls1.3";
                        return Err(line.word(rule));
                    }
                    None => {}
                }
            }
            line.expect_no_argument()?;
        }
        "ciphers" => {
            let rule = "wrong cipher suite name or cipher suite not supported: '{}'; expected a name such as \
                        TLS_AES_128_GCM_SHA256";
            known(&mut tls.connection, "cipher_suites", line, &SUITES, rule)?;
        }
        "curves" => {
            let rule = "Wrong curve name or curve not supported: '{}'; expected x25519mlkem768, x25519, secp256r1, \
                        secp384r1 or secp521r1";
            known(&mut tls.connection, "curves", line, &CURVES, rule)?;
        }
        "client_auth" => {
            let clients = client_auth(line)?;
            tls.connection.insert("client_authentication".into(), clients.into());
            return Ok(());
        }
        "alpn" => {
            line.require()?;
            line.rest();
            tls.connection.list("alpn", texts(line.arguments()));
        }
        "load" => tls.directories.extend(texts(line.rest())),
        "ca" => {
            let directory = &line.sole_argument()?.text;
            shortcuts.acme().text("ca", directory);
        }
        "ca_root" => {
            let root = (*line.sole_argument()?.text).into();
            shortcuts.acme().extend_list("trusted_roots_pem_files", vec![root]);
        }
        "eab" => {
            let account = eab(line)?;
            shortcuts.acme().insert("external_account".into(), account);
        }
        "key_type" => tls.key_type = line.sole_argument()?.text.to_string(),
        "issuer" => {
            tls.issuers.push(Issuer::read(line)?);
            return Ok(());
        }
        "get_certificate" => {
            tls.getters.push(getter(line)?);
            return Ok(());
        }
        "dns" => {
            if line.remaining().is_empty() && line.options().certificates.dns.is_none() {
                return Err(line.count_error());
            }
            dns_provider(shortcuts.acme(), line)?;
            shortcuts.has_provider = true;
            return Ok(());
        }
        name @ ("dns_challenge_override_domain"
        | "dns_ttl"
        | "propagation_delay"
        | "propagation_timeout"
        | "resolvers") => {
            dns_option(shortcuts.acme().child("challenges").child("dns"), line)?;
            let name = SUBDIRECTIVES.iter().find(|known| **known == name);
            shortcuts.dns.extend(name);
        }
        "on_demand" => tls.on_demand = true,
        "reuse_private_keys" => tls.reuse_private_keys = true,
        "insecure_secrets_log" => tls.connection.text("insecure_secrets_log", &line.require()?.text),
        "renewal_window_ratio" => tls.renewal_window_ratio = Some(renewal_window_ratio(line)?),
        _ => return Err(line.unknown("unknown subdirective: {}", SUBDIRECTIVES)),
    }
    line.expect_end_of_line()
}

/// Appends words, each of which must be one of `words`.
fn known(
    connection: &mut Map<String, Value>,
    key: &str,
    line: &mut Dispenser<'_>,
    words: &[&str],
    rule: &'static str,
) -> Result<(), Error> {
    while let Some(word) = line.argument() {
        if !words.contains(&&*word.text) {
            return Err(line.word(rule));
        }
        connection.extend_list(key, vec![(*word.text).into()]);
    }
    Ok(())
}

/// Parses `get_certificate tailscale` and `get_certificate http <url>`.
fn getter(d: &mut Dispenser<'_>) -> Result<Value, Error> {
    match &*d.require()?.text {
        "tailscale" => {
            d.expect_no_argument()?;
            Ok(json!({ "via": "tailscale" }))
        }
        "http" => {
            let mut getter = Map::from_iter([("via".to_owned(), Value::from("http"))]);
            getter.text("url", &d.sole_argument()?.text);
            d.expect_empty_block("block not allowed here")?;
            Ok(getter.into())
        }
        _ => {
            let rule = "getting module named 'tls.get_certificate.{}': module not registered";
            Err(d.unknown_module(rule, &["http", "tailscale"]))
        }
    }
}

impl Shortcuts {
    fn acme(&mut self) -> &mut Map<String, Value> {
        self.acme.get_or_insert_default()
    }

    /// Converts the settings to issuers of `tls`.
    fn apply(self, tls: &mut Tls, d: &Dispenser<'_>) -> Result<(), Error> {
        let global = &d.options().certificates;
        let acme_dns = global.acme_dns.as_ref().and_then(|acme_dns| acme_dns.provider.as_ref());
        let has_provider = self.has_provider || global.dns.is_some() || acme_dns.is_some();
        if !self.dns.is_empty() && !has_provider {
            let sentence = format!(
                "setting DNS challenge options [{}] requires a DNS provider (set with the 'dns' subdirective or 'acme_dns' \
                 global option)",
                self.dns.join(", ")
            );
            return Err(d.error(ErrorKind::Custom(sentence.into())).with_caddy_position(d.closing_position()));
        }
        if !tls.issuers.is_empty() && (self.internal || self.acme.is_some()) {
            let rule = "cannot mix issuer subdirective (explicit issuers) with other issuer-specific subdirectives \
                        (implicit issuers)";
            return Err(d.rule(rule));
        }
        match (self.internal, self.acme) {
            (true, Some(_)) => return Err(d.rule("cannot create both ACME and internal certificate issuers")),
            (true, None) => tls.issuers.push(Issuer::internal()),
            (false, Some(own)) => {
                tls.issuers = Issuer::from_directive(&own, &d.options().certificates.issuers);
            }
            (false, None) => {}
        }
        Ok(())
    }
}
