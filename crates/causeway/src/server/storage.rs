//! Opens the storage of certificates that the configuration sets.

use std::path::Path;
use std::sync::Arc;

use causeway_certs::{Compression, Error, FileStorage, RedisSpec, RedisStorage, RedisTls, SharedStorage};
use causeway_config::plan::{self, RedisCompression, RedisRoots, RedisServer, RedisTlsSettings, Storage};
use causeway_pipeline::Registry;
use serde_json::Value;

use super::LoadFault;

/// Opens the storage that a configuration sets, or the folder `default`, for callers that need nothing else of the configuration. Connects to no
/// server yet.
///
/// # Errors
/// Returns the setting that cannot be used.
pub fn open_storage(config: &Value, registry: &Registry, default: &Path) -> Result<SharedStorage, LoadFault> {
    let written = plan::load_storage(config, registry).map_err(LoadFault::Config)?;
    Ok(open(&written, default)?)
}

/// Returns the storage that a configuration sets, or the folder `default`. Connects to no server yet.
///
/// # Errors
/// Returns the setting that cannot be used, such as a file of roots that cannot be read.
pub(super) fn open(written: &Storage, default: &Path) -> Result<SharedStorage, Error> {
    Ok(match written {
        Storage::FileSystem(root) => Arc::new(FileStorage::new(root.as_deref().unwrap_or(default))),
        Storage::Redis(server) => Arc::new(RedisStorage::new(&redis(server)?)?),
    })
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
