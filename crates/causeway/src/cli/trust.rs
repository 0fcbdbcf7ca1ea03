//! `trust` and `untrust`: the root certificate of a local authority in the trust stores of this machine and user.

use std::path::PathBuf;

use anyhow::{Context as _, anyhow, bail};
use causeway_certs::trust::{StoreOutcome, TrustStoreError, TrustStores, TrustedRoot};
use causeway_pipeline::Registry;
use clap::Args;
use serde_json::Value;

use super::client::{self, AdminEndpoint};
use super::output;

/// Flags that select an authority of a running server.
#[derive(Args)]
struct AuthorityFlags {
    /// ID of the certificate authority
    #[arg(long, value_name = "ID", default_value = "local")]
    ca: String,
    /// Address of the admin API; overrides the configuration, CADDY_ADMIN and the default localhost:2019
    #[arg(long, value_name = "ADDRESS")]
    address: Option<String>,
    /// Configuration that sets the address of the admin API
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Language of the configuration: `caddyfile`, `json` or `nginx`; default: by file name
    #[arg(short, long, value_name = "NAME")]
    adapter: Option<String>,
}

#[derive(Args)]
pub(crate) struct Trust {
    #[command(flatten)]
    authority: AuthorityFlags,
}

#[derive(Args)]
pub(crate) struct Untrust {
    /// File with the certificate, instead of that of a running server
    #[arg(short = 'p', long, value_name = "FILE", conflicts_with_all = ["ca", "address", "config", "adapter"])]
    cert: Option<PathBuf>,
    #[command(flatten)]
    authority: AuthorityFlags,
}

impl Trust {
    pub(crate) fn run(self) -> anyhow::Result<()> {
        let root = self.authority.root()?;
        report(&root, &TrustStores::here().trust(&root), ["added to", "is already in"])
    }
}

impl Untrust {
    pub(crate) fn run(self) -> anyhow::Result<()> {
        let root = match &self.cert {
            Some(file) => {
                let place = file.display().to_string();
                let text = std::fs::read(file).with_context(|| format!("--cert: {place}"))?;
                TrustedRoot::read(&text, &place)?
            }
            None => self.authority.root()?,
        };
        report(&root, &TrustStores::here().untrust(&root), ["removed from", "is not in"])
    }
}

impl AuthorityFlags {
    /// Fetches the root from the admin API.
    fn root(self) -> anyhow::Result<TrustedRoot> {
        let config = client::configured(self.address.as_deref(), self.config, self.adapter)?;
        let address = client::address(self.address.as_deref(), &config, &Registry::default())?;
        let response = AdminEndpoint::of(&address).request(&format!("GET /pki/ca/{}", self.ca), &[], b"")?;
        response
            .error_for_status()
            .map_err(|message| anyhow!("the server on {address} has no authority '{}': {message}", self.ca))?;
        let response: Value = serde_json::from_str(&response.body).context("the server's response is not JSON")?;
        let text = response["root_certificate"].as_str().unwrap_or_default();
        Ok(TrustedRoot::read(text.as_bytes(), &format!("the root of '{}'", self.ca))?)
    }
}

/// Prints a line for each store. It is an error if a store could not be changed, or if there is none.
fn report(root: &TrustedRoot, outcomes: &[StoreOutcome], [done, before]: [&str; 2]) -> anyhow::Result<()> {
    let mut failed = Vec::new();
    for StoreOutcome { store, result } in outcomes {
        match result {
            Ok(true) => output::print(&format!("'{}' {done} {store}", root.name()))?,
            Ok(false) => output::print(&format!("'{}' {before} {store}", root.name()))?,
            Err(TrustStoreError::NotPermitted) => {
                failed.push(format!("{store}: only root may change it; run `{}`", as_root()));
            }
            Err(error) => failed.push(format!("{store}: {error}")),
        }
    }
    match &failed[..] {
        [] if outcomes.is_empty() => {
            bail!(
                "found no trust store: neither a directory of the system for additional roots, nor a browser's database"
            )
        }
        [] => Ok(()),
        failed => bail!("{}", failed.join("; ")),
    }
}

/// Returns this command line for root.
fn as_root() -> String {
    let words = std::env::args().map(|word| {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./:=@,".contains(&byte);
        if word.bytes().all(is_plain) { word } else { format!("'{}'", word.replace('\'', r"'\''")) }
    });
    std::iter::once("sudo".to_owned()).chain(words).collect::<Vec<_>>().join(" ")
}
