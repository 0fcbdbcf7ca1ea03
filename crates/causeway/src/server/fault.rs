//! Why a configuration was not loaded. Whatever it is, what ran before runs on.

use std::fmt;

use causeway_config::plan::{AdminAddress, LoadError};
use causeway_engine::StartError;
use causeway_pipeline::ListenAddress;

use super::ids::IdFault;
use super::tree::TreeFault;

/// Why a configuration is not served.
#[derive(Debug)]
#[non_exhaustive]
pub enum LoadFault {
    /// Its `@id` names.
    Ids(IdFault),
    /// What it says.
    Config(LoadError),
    /// A certificate cannot be obtained.
    Certificates(causeway_certs::Error),
    /// A site cannot listen where it says, or the system has no threads for it.
    Sites(StartError),
    /// The admin API cannot listen where the configuration, or the environment, says.
    Admin(AdminAddress, StartError),
    /// A site would listen where the admin API does, or still does.
    Shared(ListenAddress, AdminAddress),
    /// The server is stopping.
    Stopping,
    /// Compiling it panicked: our mistake, reported by its thread.
    Broken,
}

impl LoadFault {
    /// Whether an address was taken already.
    pub fn is_port_in_use(&self) -> bool {
        let (Self::Sites(error) | Self::Admin(_, error)) = self else { return false };
        matches!(error, StartError::Bind(bind) if bind.error.kind() == std::io::ErrorKind::AddrInUse)
    }
}

impl fmt::Display for LoadFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ids(fault) => write!(f, "indexing config: {fault}"),
            Self::Config(error) => error.fmt(f),
            Self::Certificates(error) => error.fmt(f),
            Self::Sites(error) => error.fmt(f),
            Self::Admin(address, StartError::Bind(bind)) => {
                write!(f, "the admin API cannot listen on {address}: ")?;
                match bind.error.kind() {
                    std::io::ErrorKind::AddrInUse => f.write_str("the port is in use by another program")?,
                    _ => bind.error.fmt(f)?,
                }
                f.write_str("; choose another with the global option `admin`, with `admin off`, or with CADDY_ADMIN")
            }
            Self::Admin(address, error) => write!(f, "the admin API cannot listen on {address}: {error}"),
            Self::Shared(site, admin) => {
                write!(f, "listening on {site}: the admin API is on {admin}; move one of them first")
            }
            Self::Stopping => f.write_str("the server is stopping"),
            Self::Broken => f.write_str("compiling the configuration failed inside the server"),
        }
    }
}

impl std::error::Error for LoadFault {}

impl From<causeway_certs::Error> for LoadFault {
    fn from(error: causeway_certs::Error) -> Self {
        Self::Certificates(error)
    }
}

/// Why a change to a part of the configuration was not made.
#[derive(Debug)]
#[non_exhaustive]
pub enum ChangeFault {
    /// No object has this `@id`.
    UnknownId(String),
    /// `/id/` and nothing behind it.
    NoId,
    /// `If-Match` is no entity tag of ours.
    BadIfMatch(&'static str),
    /// The configuration is another by now.
    Changed,
    /// The path.
    Tree(TreeFault),
    /// What it would have become.
    Load(LoadFault),
}

impl fmt::Display for ChangeFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownId(id) => write!(f, "unknown object ID '{id}'"),
            Self::NoId => f.write_str("request path is missing object ID"),
            Self::BadIfMatch(expected) => write!(f, "malformed If-Match header; expect {expected}"),
            Self::Changed => f.write_str("If-Match header did not match current config hash"),
            Self::Tree(fault) => fault.fmt(f),
            Self::Load(fault @ LoadFault::Ids(_)) => fault.fmt(f),
            Self::Load(fault) => write!(f, "loading new config: {fault}"),
        }
    }
}

impl std::error::Error for ChangeFault {}

impl From<TreeFault> for ChangeFault {
    fn from(fault: TreeFault) -> Self {
        Self::Tree(fault)
    }
}
