//! `reverse-proxy`: a proxy without a configuration file, like Caddy's command of this name.

use anyhow::{anyhow, bail};
use causeway_config::caddyfile::{FromAddress, ToAddress};
use clap::Args;
use serde_json::{Map, Value, json};

use super::{field, serving};
use crate::cli::serve::{ServeFlags, SiteKind, serve_generated};

#[derive(Args)]
pub(crate) struct ReverseProxy {
    /// The address to serve: with a host over HTTPS, unless it begins with http:// or has port 80
    #[arg(short, long, value_name = "ADDRESS", default_value = "localhost")]
    from: String,
    /// An upstream; may be repeated, and may have a range of ports
    #[arg(short, long, value_name = "ADDRESS", required = true, value_delimiter = ',')]
    to: Vec<String>,
    /// Send the upstream's address as Host, instead of the client's Host
    #[arg(short, long)]
    change_host_header: bool,
    /// Do not verify the upstream's certificate: anyone on the way can read and change the traffic
    #[arg(long)]
    insecure: bool,
    /// Do not redirect HTTP to HTTPS
    #[arg(short = 'r', long)]
    disable_redirects: bool,
    /// Obtain the certificate from the local authority
    #[arg(short, long)]
    internal_certs: bool,
    /// A field to set in requests to the upstream, such as "Name: value"; may be repeated
    #[arg(short = 'H', long, value_name = "FIELD")]
    header_up: Vec<String>,
    /// A field to set in responses to the client; may be repeated
    #[arg(short = 'd', long, value_name = "FIELD")]
    header_down: Vec<String>,
    /// Print a line for every request
    #[arg(long)]
    access_log: bool,
    #[command(flatten)]
    serve: ServeFlags,
}

impl ReverseProxy {
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        let from = FromAddress::parse(&self.from).map_err(|reason| anyhow!("--from {}: {reason}", self.from))?;
        let (handler, names) = self.handler()?;
        let mut route = json!({ "handle": [handler] });
        if !from.host.is_empty() {
            route["match"] = json!([{ "host": [from.host] }]);
        }
        let mut server = json!({ "listen": [format!(":{}", from.port)], "routes": [route] });
        if self.access_log {
            server["logs"] = json!({});
        }
        if from.scheme == "http" {
            server["automatic_https"] = json!({ "disable": true });
        } else if self.disable_redirects {
            server["automatic_https"] = json!({ "disable_redirects": true });
        }
        if from.scheme == "https" && from.host.is_empty() {
            bail!("--from {}: found no host, which a certificate needs; expected a host, or http://", self.from);
        }
        let mut apps = json!({ "http": { "servers": { "proxy": server } } });
        if self.internal_certs && !from.host.is_empty() {
            let policy = json!({ "subjects": [from.host], "issuers": [{ "module": "internal" }] });
            apps["tls"] = json!({ "automation": { "policies": [policy] } });
        }
        let config = json!({ "admin": { "disabled": true }, "apps": apps });
        let name = format!("a proxy to {}", names.join(", "));
        serve_generated(
            serving(SiteKind::ReverseProxy, &name, format!("reverse-proxy --from {}", self.from), config),
            &self.serve,
        )
    }

    /// Returns the handler, and the addresses of its upstreams.
    fn handler(&self) -> anyhow::Result<(Value, Vec<String>)> {
        let mut dials = Vec::new();
        // As in Caddy, the first scheme holds for all upstreams.
        let mut scheme = String::new();
        for written in self.to.iter().filter(|written| !written.is_empty()) {
            let to = ToAddress::parse(written).map_err(|reason| anyhow!("--to {written}: {reason}"))?;
            if scheme.is_empty() {
                scheme = to.scheme;
            }
            dials.extend(to.dials);
        }
        if dials.is_empty() {
            bail!("--to: found no address, expected at least one");
        }
        let mut transport = json!({ "protocol": "http" });
        if scheme == "https" {
            transport["tls"] = if self.insecure { json!({ "insecure_skip_verify": true }) } else { json!({}) };
        }
        let upstreams: Vec<_> = dials.iter().map(|dial| json!({ "dial": dial })).collect();
        let mut handler = json!({ "handler": "reverse_proxy", "transport": transport, "upstreams": upstreams });
        let mut up = fields("--header-up", &self.header_up)?;
        if self.change_host_header {
            up.insert("Host".into(), json!(["{http.reverse_proxy.upstream.hostport}"]));
        }
        let down = fields("--header-down", &self.header_down)?;
        for (side, fields) in [("request", up), ("response", down)] {
            if !fields.is_empty() {
                handler["headers"][side] = json!({ "set": fields });
            }
        }
        Ok((handler, dials))
    }
}

/// Parses fields to set. As in Caddy, the last of several fields with one name is set.
fn fields(flag: &str, written: &[String]) -> anyhow::Result<Map<String, Value>> {
    let mut fields = Map::new();
    for written in written {
        let (name, value) = field(flag, written)?;
        fields.retain(|known, _| !known.eq_ignore_ascii_case(name));
        fields.insert(name.to_owned(), json!([value]));
    }
    Ok(fields)
}
