//! The reasons for refusing a configuration. In every case the previous configuration stays in effect.

use std::fmt;

use causeway_config::plan::{AdminAddress, PlanError};
use causeway_engine::{StartError, TlsError};
use causeway_pipeline::ListeningSocket;

use super::ids::IdError;
use super::pull::PullError;
use super::tree::TreeError;

/// The reason why a configuration is not served.
#[derive(Debug)]
#[non_exhaustive]
pub enum LoadError {
    /// Two objects share an `@id`, or an `@id` has the wrong type.
    Ids(IdError),
    /// The configuration is invalid.
    Config(PlanError),
    /// A TLS policy of a listener is invalid.
    TlsPolicy(TlsError),
    /// A certificate cannot be loaded or issued.
    Certificates(causeway_certs::Error),
    /// A client for an endpoint of on-demand TLS cannot be made.
    OnDemand(causeway_acme::http::HttpError),
    /// The pull of the next configuration from this URL, which is a step of the load, has failed.
    Pull(String, PullError),
    /// The configuration that pulled this one has been replaced in the meantime.
    Superseded,
    /// A site cannot bind its address, or the system cannot start a worker thread.
    Sites(StartError),
    /// The admin API cannot bind the address that the configuration or the environment sets.
    Admin(AdminAddress, StartError),
    /// A site would use an address of the admin API: the current one or the next.
    AddressConflict(ListeningSocket, AdminAddress),
    /// The server is stopping.
    Stopping,
    /// Compiling the configuration panicked: a bug in the server, already reported by its thread.
    Panicked,
}

impl LoadError {
    /// Whether an address is already in use.
    pub fn is_port_in_use(&self) -> bool {
        let (Self::Sites(error) | Self::Admin(_, error)) = self else { return false };
        matches!(error, StartError::Bind(bind) if bind.error.kind() == std::io::ErrorKind::AddrInUse)
    }
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ids(error) => write!(f, "indexing config: {error}"),
            Self::Config(error) => error.fmt(f),
            Self::TlsPolicy(error) => error.fmt(f),
            Self::Certificates(error) => error.fmt(f),
            Self::OnDemand(error) => write!(f, "on-demand TLS: {error}"),
            Self::Pull(from, error) => write!(f, "pulling a configuration from {from}: {error}"),
            Self::Superseded => f.write_str("another configuration has replaced the one that pulled this"),
            Self::Sites(error) => error.fmt(f),
            Self::Admin(address, StartError::Bind(bind)) => {
                write!(f, "the admin API cannot listen on {address}: ")?;
                match bind.error.kind() {
                    std::io::ErrorKind::AddrInUse => f.write_str("the port is in use already")?,
                    _ => bind.error.fmt(f)?,
                }
                f.write_str("; choose another with the global option `admin`, with `admin off`, or with CADDY_ADMIN")
            }
            Self::Admin(address, error) => write!(f, "the admin API cannot listen on {address}: {error}"),
            Self::AddressConflict(site, admin) => {
                write!(f, "listening on {site}: the admin API is on {admin}; move one of them first")
            }
            Self::Stopping => f.write_str("the server is stopping, or another process has taken its place"),
            Self::Panicked => f.write_str("compiling the configuration failed inside the server"),
        }
    }
}

impl std::error::Error for LoadError {}

impl From<causeway_certs::Error> for LoadError {
    fn from(error: causeway_certs::Error) -> Self {
        Self::Certificates(error)
    }
}

/// The reason why a change to a part of the configuration was refused.
#[derive(Debug)]
#[non_exhaustive]
pub enum ChangeError {
    /// No object has this `@id`.
    UnknownId(String),
    /// The path is `/id/` without an id.
    NoId,
    /// `If-Match` is not an entity tag of this API.
    BadIfMatch(&'static str),
    /// The configuration has changed since the client read it.
    Changed,
    /// The path does not lead to a value, or the verb does not fit it.
    Tree(TreeError),
    /// The changed configuration was refused.
    Load(LoadError),
}

impl fmt::Display for ChangeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownId(id) => write!(f, "unknown object ID '{id}'"),
            Self::NoId => f.write_str("request path is missing object ID"),
            Self::BadIfMatch(expected) => write!(f, "malformed If-Match header; expect {expected}"),
            Self::Changed => f.write_str("If-Match header did not match current config hash"),
            Self::Tree(error) => error.fmt(f),
            Self::Load(error @ LoadError::Ids(_)) => error.fmt(f),
            Self::Load(error) => write!(f, "loading new config: {error}"),
        }
    }
}

impl std::error::Error for ChangeError {}

impl From<TreeError> for ChangeError {
    fn from(error: TreeError) -> Self {
        Self::Tree(error)
    }
}
