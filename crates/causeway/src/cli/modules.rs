//! `list-modules`: prints the names of the modules that a configuration may use.

use clap::Args;
use serde_json::json;

use super::{VERSION, output};

#[derive(Args)]
pub(crate) struct ListModules {
    /// Also print the package of each module
    #[arg(long)]
    packages: bool,
    /// Also print the version of each module
    #[arg(long)]
    versions: bool,
    /// Leave out the standard modules; this program has no others
    #[arg(short, long)]
    skip_standard: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Modules of the registry that only the server itself uses.
const INTERNAL: &[&str] = &["http.handlers.access_log", "http.handlers.acme_challenge", "http.handlers.error_log"];

/// Modules that have no registry, by Caddy's names. The load-balancing policies and the DNS providers are in lists of
/// their own.
const BUILT_IN: &[&str] = &[
    "admin.api.load",
    "admin.api.metrics",
    "admin.api.pki",
    "admin.api.reverse_proxy",
    "caddy.adapters.caddyfile",
    "caddy.adapters.nginx",
    "caddy.config_loaders.http",
    "caddy.listeners.http_redirect",
    "caddy.listeners.proxy_protocol",
    "caddy.listeners.tls",
    "caddy.logging.encoders.append",
    "caddy.logging.encoders.console",
    "caddy.logging.encoders.filter",
    "caddy.logging.encoders.filter.cookie",
    "caddy.logging.encoders.filter.delete",
    "caddy.logging.encoders.filter.hash",
    "caddy.logging.encoders.filter.ip_mask",
    "caddy.logging.encoders.filter.multi_regexp",
    "caddy.logging.encoders.filter.query",
    "caddy.logging.encoders.filter.regexp",
    "caddy.logging.encoders.filter.rename",
    "caddy.logging.encoders.filter.replace",
    "caddy.logging.encoders.filter.set_cookie",
    "caddy.logging.encoders.journald",
    "caddy.logging.encoders.json",
    "caddy.logging.encoders.transform",
    "caddy.logging.writers.discard",
    "caddy.logging.writers.file",
    "caddy.logging.writers.net",
    "caddy.logging.writers.stderr",
    "caddy.logging.writers.stdout",
    "caddy.network_proxy.none",
    "caddy.network_proxy.url",
    "caddy.storage.file_system",
    "caddy.storage.redis",
    "http",
    "http.authentication.hashes.argon2id",
    "http.authentication.hashes.bcrypt",
    "http.authentication.providers.http_basic",
    "http.encoders.br",
    "http.encoders.gzip",
    "http.encoders.zstd",
    "http.ip_sources.cloudflare",
    "http.ip_sources.combine",
    "http.ip_sources.static",
    "http.precompressed.br",
    "http.precompressed.gzip",
    "http.precompressed.zstd",
    "http.reverse_proxy.circuit_breakers.internal",
    "http.reverse_proxy.transport.fastcgi",
    "http.reverse_proxy.transport.http",
    "http.reverse_proxy.transport.httpgrpc",
    "http.reverse_proxy.upstreams.a",
    "http.reverse_proxy.upstreams.multi",
    "http.reverse_proxy.upstreams.srv",
    "pki",
    "tls",
    "tls.ca_pool.source.combined",
    "tls.ca_pool.source.file",
    "tls.ca_pool.source.http",
    "tls.ca_pool.source.inline",
    "tls.ca_pool.source.pki_intermediate",
    "tls.ca_pool.source.pki_root",
    "tls.ca_pool.source.storage",
    "tls.ca_pool.source.system",
    "tls.certificates.automate",
    "tls.certificates.load_files",
    "tls.certificates.load_folders",
    "tls.certificates.load_pem",
    "tls.certificates.load_storage",
    "tls.client_auth.verifier.leaf",
    "tls.get_certificate.http",
    "tls.get_certificate.tailscale",
    "tls.handshake_match.local_ip",
    "tls.handshake_match.not",
    "tls.handshake_match.remote_ip",
    "tls.handshake_match.sni",
    "tls.issuance.acme",
    "tls.issuance.internal",
    "tls.issuance.zerossl",
    "tls.leaf_cert_loader.file",
    "tls.leaf_cert_loader.folder",
    "tls.leaf_cert_loader.pem",
    "tls.leaf_cert_loader.storage",
    "tls.permission.http",
    "tls.stek.distributed",
    "tls.stek.standard",
];

/// Returns the names of all modules that a configuration may use, sorted.
fn modules() -> Vec<String> {
    let registered = causeway::registry().modules().into_iter().filter(|name| !INTERNAL.contains(&&**name));
    let providers = causeway_config::dns_providers().iter().map(|name| format!("dns.providers.{name}"));
    let policies = causeway_config::selection_policies().iter();
    let policies = policies.map(|name| format!("http.reverse_proxy.selection_policies.{name}"));
    let built_in = BUILT_IN.iter().map(|name| (*name).to_owned());
    let mut modules: Vec<_> = registered.chain(providers).chain(policies).chain(built_in).collect();
    modules.sort_unstable();
    modules
}

const PACKAGE: &str = env!("CARGO_PKG_NAME");

impl ListModules {
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        let modules = if self.skip_standard { Vec::new() } else { modules() };
        if self.json {
            let list = modules.iter().map(|module| {
                json!({ "module_name": module, "module_type": "standard", "version": VERSION, "package_url": PACKAGE })
            });
            return output::print(&serde_json::to_string_pretty(&list.collect::<Vec<_>>())?);
        }
        let mut lines: Vec<_> = modules.iter().map(|module| self.line(module)).collect();
        if !self.skip_standard {
            lines.push(format!("\n  Standard modules: {}", modules.len()));
        }
        lines.push("\n  Non-standard modules: 0\n\n  Unknown modules: 0".to_owned());
        output::print(&lines.join("\n"))
    }

    fn line(&self, module: &str) -> String {
        let mut line = module.to_owned();
        for (word, wanted) in [(VERSION, self.versions), (PACKAGE, self.packages)] {
            if wanted {
                line = format!("{line} {word}");
            }
        }
        line
    }
}
