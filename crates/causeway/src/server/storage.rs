//! Opens the storage of certificates that the configuration sets.

use std::path::Path;
use std::sync::Arc;

use causeway_certs::{Compression, Error, FileStorage, RedisSpec, RedisStorage, RedisTls, SharedStorage};
use causeway_config::plan::{self, RedisCompression, RedisRoots, RedisServer, RedisTlsSettings, Storage};
use causeway_pipeline::Registry;
use serde_json::Value;

use super::LoadError;

/// Opens the storage that a configuration sets, or the directory `default`, for callers that need nothing else of the
/// configuration. Connects to no server yet.
///
/// # Errors
/// Returns the setting that cannot be used.
pub fn open_storage(config: &Value, registry: &Registry, default: &Path) -> Result<SharedStorage, LoadError> {
    let written = plan::load_storage(config, registry).map_err(LoadError::Config)?;
    Ok(open(&written, default)?)
}

/// Returns the storage that a configuration sets, or the directory `default`. Connects to no server yet.
///
/// # Errors
/// Returns the setting that cannot be used, such as a file of roots that cannot be read.
pub(super) fn open(written: &Storage, default: &Path) -> Result<SharedStorage, Error> {
    Ok(match written {
        Storage::FileSystem(root) => Arc::new(FileStorage::new(root.as_deref().unwrap_or(default))),
        Storage::Redis(server) => Arc::new(RedisStorage::new(&redis(server)?)?),
    })
}

/// The storages of a configuration's certificates, each opened once. Clones share them.
#[derive(Debug, Clone)]
pub(super) struct Storages {
    default_storage: SharedStorage,
    /// The storages of policies and authorities, by their settings.
    own: Arc<[(Storage, SharedStorage)]>,
}

impl Storages {
    /// Opens the storages of single policies and authorities, besides `default_storage`. Connects to no server yet.
    ///
    /// # Errors
    /// As [`open`].
    pub(super) fn open<'s>(
        default_storage: SharedStorage,
        written: impl Iterator<Item = &'s Storage>,
        default: &Path,
    ) -> Result<Self, Error> {
        let mut own: Vec<(Storage, SharedStorage)> = Vec::new();
        for written in written {
            if !own.iter().any(|(known, _)| known == written) {
                own.push((written.clone(), open(written, default)?));
            }
        }
        Ok(Self { default_storage, own: own.into() })
    }

    /// Returns the storage of all names and authorities without one of their own.
    pub(super) fn default_storage(&self) -> &SharedStorage {
        &self.default_storage
    }

    /// Returns the storage of a policy or an authority with this setting; `None` for the default one.
    ///
    /// # Panics
    /// Panics if the setting was not opened.
    pub(super) fn own(&self, written: Option<&Storage>) -> Option<&SharedStorage> {
        let written = written?;
        let known = self.own.iter().find(|(known, _)| known == written);
        Some(&known.expect("every storage of a configuration is opened").1)
    }

    /// Returns the storage of a policy or an authority with this setting.
    ///
    /// # Panics
    /// As [`own`](Self::own).
    pub(super) fn of(&self, written: Option<&Storage>) -> &SharedStorage {
        self.own(written).unwrap_or(&self.default_storage)
    }

    /// Returns all storages, beginning with the default one.
    pub(super) fn all(&self) -> impl Iterator<Item = &SharedStorage> {
        [&self.default_storage].into_iter().chain(self.own.iter().map(|(_, storage)| storage))
    }
}

fn redis(written: &RedisServer) -> Result<RedisSpec, Error> {
    let tls = |tls: &RedisTlsSettings| {
        let roots = match &tls.roots {
            RedisRoots::System => None,
            RedisRoots::Pem(text) => Some(text.clone().into_bytes()),
            RedisRoots::File(path) => {
                Some(std::fs::read(path).map_err(|error| Error::Read(path.display().to_string(), error))?)
            }
        };
        Ok::<_, Error>(RedisTls { insecure: tls.insecure, roots })
    };
    Ok(RedisSpec {
        host: written.host.clone(),
        port: written.port,
        username: written.username.clone(),
        password: written.password.0.clone(),
        db: written.db,
        timeout: written.timeout,
        key_prefix: written.key_prefix.clone(),
        // The plan has checked its length. As in the plugin, only the first 32 bytes count.
        encryption_key: written.encryption_key.0.as_bytes().first_chunk().copied(),
        compression: match written.compression {
            RedisCompression::None => Compression::None,
            RedisCompression::Flate => Compression::Flate,
            RedisCompression::Zlib => Compression::Zlib,
        },
        tls: written.tls.as_ref().map(tls).transpose()?,
    })
}
