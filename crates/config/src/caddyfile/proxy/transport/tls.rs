//! TLS to the upstreams.

use serde_json::{Map, Value};

use super::super::super::directives::texts;
use super::super::super::dispenser::Dispenser;
use super::super::super::error::Error;
use super::super::super::members::Members;
use super::super::super::tls::trust_pool;
use causeway_pipeline::build::nanoseconds;

/// Parses the line if it is a TLS option. Any such line enables TLS.
pub(super) fn option(line: &mut Dispenser<'_>, transport: &mut Map<String, Value>) -> Result<bool, Error> {
    let name = &*line.name().text;
    if name != "tls" && !name.starts_with("tls_") {
        return Ok(false);
    }
    let mut tls = transport.get("tls").and_then(Value::as_object).cloned().unwrap_or_default();
    match name {
        "tls" => {}
        "tls_client_auth" => match line.rest() {
            [name] => tls.text("client_certificate_automate", &name.text),
            [certificate, key] => {
                tls.text("client_certificate_file", &certificate.text);
                tls.text("client_certificate_key_file", &key.text);
            }
            _ => return Err(line.count_error()),
        },
        "tls_insecure_skip_verify" => {
            line.expect_no_argument()?;
            tls.switch_on("insecure_skip_verify");
        }
        "tls_curves" | "tls_except_ports" => {
            let words = line.rest();
            if words.is_empty() {
                return Err(line.count_error());
            }
            tls.list(&name["tls_".len()..], texts(words));
        }
        "tls_timeout" => {
            let timeout = nanoseconds(&line.require()?.text);
            let rule = "bad timeout value '{}'; expected one such as 10s";
            tls.number("handshake_timeout", timeout.ok_or_else(|| line.word(rule))?);
        }
        "tls_trusted_ca_certs" => {
            let files = line.rest();
            if files.is_empty() {
                return Err(line.count_error());
            }
            if tls.contains_key("ca") {
                return Err(line.rule("cannot specify both 'tls_trust_pool' and 'tls_trusted_ca_certs'"));
            }
            let message = "'tls_trusted_ca_certs' is deprecated, please use 'tls_trust_pool' instead";
            line.warn(line.name(), message.to_owned());
            tls.list("root_ca_pem_files", texts(files));
        }
        "tls_server_name" => tls.text("server_name", &line.require()?.text),
        "tls_renegotiation" => match &*line.require()?.text {
            level @ ("never" | "once" | "freely") => tls.text("renegotiation", level),
            _ => return Err(line.word("unrecognized renegotiation level: {}; expected never, once or freely")),
        },
        "tls_trust_pool" => {
            let pool = trust_pool(line)?;
            if tls.contains_key("root_ca_pem_files") {
                return Err(line.rule("cannot specify both 'tls_trust_pool' and 'tls_trusted_ca_certs'"));
            }
            if tls.contains_key("ca") {
                return Err(line.rule("cannot specify \"tls_trust_pool\" twice in caddyfile"));
            }
            tls.insert("ca".into(), pool);
        }
        _ => return Ok(false),
    }
    transport.insert("tls".into(), tls.into());
    Ok(true)
}
