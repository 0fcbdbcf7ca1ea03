//! Compiles a configuration, without binding an address or obtaining a certificate.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use causeway_certs::Certificate;
use causeway_config::plan::{self, Loaded, PlanError};
use causeway_engine::StartError;
use causeway_modules::logs::Logs;
use causeway_modules::metric_push::PreparedPush;
use causeway_pipeline::{Build, BuildError, Registry};
use serde_json::Value;

use super::certificates::{self, Reader, data_directory_in};
use super::error::LoadError;
use super::{ids, issuers, pull};
use crate::admin::{AcceptedClients, ListenerAccess, RemoteGuard};

/// A configuration that passed every check possible without binding an address.
pub(super) struct Compiled {
    pub(super) ids: Ids,
    pub(super) loaded: Loaded,
    /// The clients of the remote admin API.
    pub(super) remote: Option<ListenerAccess>,
    pub(super) logs: Arc<Logs>,
    /// Certificates that the configuration loads from files.
    pub(super) certificates: Vec<Certificate>,
    /// The export of metrics to a collector.
    pub(super) metric_push: Option<PreparedPush>,
}

/// Maps an `@id` to the path of its object.
pub(super) type Ids = BTreeMap<String, String>;

/// Checks a configuration without serving it. Faults that only binding an address reveals are not detected. The files
/// of logs are created, unless the registry is for checks only ([`Registry::check_only`]).
///
/// Returns warnings about settings that it accepts.
///
/// # Errors
/// Returns the reason when the configuration cannot be served.
pub fn validate(config: Value, registry: &Registry) -> Result<Vec<String>, LoadError> {
    let data = data_directory_in(&|name| registry.environment().get(name));
    Ok(compile(config, registry, &data, None)?.loaded.warnings)
}

pub(super) fn compile(
    mut config: Value,
    registry: &Registry,
    data: &Path,
    autosave: Option<&Path>,
) -> Result<Compiled, LoadError> {
    let ids = ids::index(&config).map_err(LoadError::Ids)?;
    ids::strip(&mut config);
    let mut build = Build::new(registry);
    let logs = open_logs(&config, &mut build).map_err(|error| LoadError::Config(error.into()))?;
    let reader = Reader::new(data);
    // The plan needs the names in certificate files, so they are read now and kept for `Custody`.
    let mut loaded =
        plan::load_with(&config, registry, &reader, own_files(data, autosave)).map_err(LoadError::Config)?;
    loaded.warnings.extend(build.take_warnings());
    if registry.is_check_only() {
        forget_secrets_logs(&mut loaded);
    }
    causeway_engine::check_tls(&loaded.listeners).map_err(|error| match error {
        StartError::Tls(error) => LoadError::TlsPolicy(error),
        error => LoadError::Sites(error),
    })?;
    let identity = loaded.admin.identity.as_ref().map(|identity| &identity.certificates);
    for certificates in std::iter::once(&loaded.certificates).chain(identity) {
        issuers::check(certificates).map_err(LoadError::Config)?;
        certificates::check(certificates).map_err(LoadError::Config)?;
    }
    let remote = remote_access(&loaded.admin).map_err(LoadError::Config)?;
    pull::check(loaded.admin.pull.as_ref()).map_err(LoadError::Config)?;
    let metric_push = match loaded.pushes_metrics {
        true => Build::new(registry).at("apps.http.metrics.otlp", |build| PreparedPush::read(build)),
        false => Ok(None),
    };
    let metric_push = metric_push.map_err(|error| LoadError::Config(error.into()))?;
    Ok(Compiled { ids, loaded, remote, logs, certificates: reader.into_read(), metric_push })
}

/// Removes the files of `insecure_secrets_log`, which a check of the policies would create.
fn forget_secrets_logs(loaded: &mut Loaded) {
    for tls in loaded.listeners.iter_mut().filter_map(|listener| listener.tls.as_mut()) {
        tls.policies.iter_mut().for_each(|policy| policy.secrets_log = None);
    }
}

/// Returns the data directory and that of the saved configuration if their paths are relative, so that they may be
/// below the root of a site: they have private keys and passwords. As in Caddy, absolute ones are left to the operator.
fn own_files(data: &Path, autosave: Option<&Path>) -> Vec<PathBuf> {
    // A file in the working directory itself has an empty parent.
    let saved =
        autosave.map(|file| file.parent().filter(|directory| !directory.as_os_str().is_empty()).unwrap_or(file));
    [Some(data), saved].into_iter().flatten().filter(|path| path.is_relative()).map(Path::to_owned).collect()
}

/// Returns the rules of the remote admin API; `None` when there is none.
fn remote_access(admin: &plan::Admin) -> Result<Option<ListenerAccess>, PlanError> {
    let Some(remote) = &admin.remote else { return Ok(None) };
    let identifiers = admin.identity.as_ref().map_or(&[][..], |identity| &identity.identifiers);
    let guard = Arc::new(RemoteGuard::new(remote, identifiers)?);
    Ok(Some(ListenerAccess { address: remote.listen.clone(), clients: AcceptedClients::Remote(guard) }))
}

/// Opens the logs before the rest is compiled, so that a mistake in them has its place in `logging`.
fn open_logs(config: &Value, build: &mut Build<'_>) -> Result<Arc<Logs>, BuildError> {
    let none = serde_json::Map::new();
    // A value of another type is reported with all other shapes.
    let written = config.pointer("/logging/logs").and_then(Value::as_object).unwrap_or(&none);
    build.at("logging.logs", |build| Logs::open(written, build))
}
