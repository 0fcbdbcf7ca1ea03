//! The certificates of the configuration that is served: obtained before it takes over, renewed while it is in place.
//!
//! What a configuration says of them are plain records; here they become what `causeway_certs` takes.

use std::cell::RefCell;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use causeway_certs::{
    Authority, AuthoritySpec, Certificate, FileStorage, Keeper, Managed, PairFiles, Source, Store, Wanted,
};
use causeway_config::plan::{
    CertificateAuthority, CertificateFault, CertificateFiles, CertificateSource, Certificates, KeyKind, ManagedName,
    Storage,
};
use causeway_engine::certificate::CertifiedKey;
use tokio::task::AbortHandle;

use super::fault::LoadFault;

/// How often at least the dates are looked at; Caddy's.
const LOOK_EVERY: Duration = Duration::from_secs(10 * 60);

/// `causeway` in the user's folder for data, where certificates are kept unless a configuration says otherwise.
pub fn data_folder() -> PathBuf {
    let named = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let folder = named("XDG_DATA_HOME").or_else(|| Some(named("HOME")?.join(".local/share")));
    // Caddy's answer where the environment names nothing.
    folder.unwrap_or_else(|| PathBuf::from(".")).join("causeway")
}

/// Reads certificates while a configuration is compiled, and keeps what was read.
#[derive(Default)]
pub(super) struct Reader(RefCell<Vec<Certificate>>);

impl Reader {
    /// The names that are in them.
    pub(super) fn names_of(&self, sources: &[CertificateSource]) -> Result<Vec<String>, CertificateFault> {
        let sources: Vec<_> = sources.iter().map(source).collect();
        let read = causeway_certs::load(&sources)?;
        let names = read.iter().flat_map(Certificate::names).cloned().collect();
        self.0.replace(read);
        Ok(names)
    }

    pub(super) fn into_read(self) -> Vec<Certificate> {
        self.0.into_inner()
    }
}

/// Certificates in place, and the task that renews them; dropping it ends the task.
pub(super) struct Custody {
    keeper: Arc<Keeper>,
    storage: FileStorage,
    renewal: AbortHandle,
}

impl Custody {
    /// Gets what a configuration wants, off this task. What the one before has and is still wanted is taken over.
    pub(super) async fn open(
        wanted: &Certificates,
        loaded: Vec<Certificate>,
        storage: FileStorage,
        before: Option<&Self>,
    ) -> Result<Self, LoadFault> {
        let wanted = Wanted {
            storage: storage.clone(),
            authorities: wanted.authorities.iter().map(authority).collect(),
            loaded,
            managed: wanted.managed.iter().map(managed).collect(),
            look_every: wanted.look_every.unwrap_or(LOOK_EVERY),
        };
        let before = before.map(|before| Arc::clone(&before.keeper));
        let opened = tokio::task::spawn_blocking(move || Keeper::open(wanted, before.as_deref(), SystemTime::now()));
        let keeper = Arc::new(opened.await.map_err(|_| LoadFault::Broken)??);
        let renewal = tokio::spawn(renew(Arc::clone(&keeper))).abort_handle();
        Ok(Self { keeper, storage, renewal })
    }

    /// What handshakes ask; a renewal shows there by itself.
    pub(super) fn finder(&self) -> Arc<dyn causeway_engine::Certificates> {
        Arc::new(Finder(Arc::clone(self.keeper.store())))
    }

    /// Each authority and the file of its root.
    pub(super) fn roots(&self) -> Vec<(String, PathBuf)> {
        self.keeper.authorities(|authority| (authority.spec().id.clone(), authority.root_path().clone()))
    }

    /// What is to be known of an authority, off this task; `None` where there is none of this id. The local one is made where it
    /// is missing, as by Caddy: whoever asks is about to use it.
    pub(super) async fn authority(&self, id: String) -> Result<Option<AuthorityFacts>, causeway_certs::Error> {
        let (keeper, storage) = (Arc::clone(&self.keeper), self.storage.clone());
        let look = move || {
            let now = SystemTime::now();
            let known = keeper.authorities(|authority| (authority.spec().id == id).then(|| facts(authority, now)));
            match known.into_iter().flatten().next() {
                Some(known) => Ok(Some(known)),
                None if id == "local" => {
                    Authority::open(AuthoritySpec::new(id), &storage, now).map(|authority| Some(facts(&authority, now)))
                }
                None => Ok(None),
            }
        };
        tokio::task::spawn_blocking(look).await.unwrap_or(Ok(None))
    }
}

#[derive(Debug)]
struct Finder(Arc<Store>);

impl causeway_engine::Certificates for Finder {
    fn find(&self, server_name: Option<&str>, tags: &[String]) -> Option<Arc<CertifiedKey>> {
        self.0.find(server_name, tags).map(|found| Arc::clone(found.signed()))
    }
}

impl Drop for Custody {
    fn drop(&mut self) {
        self.renewal.abort();
    }
}

/// What the admin API says of an authority.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuthorityFacts {
    /// By which issuers name it.
    pub id: String,
    /// What people call it.
    pub name: String,
    /// The root's common name.
    pub root_common_name: String,
    /// The intermediate's.
    pub intermediate_common_name: String,
    /// The root's certificate as PEM.
    pub root: String,
    /// The intermediate's.
    pub intermediate: String,
}

fn facts(authority: &Authority, now: SystemTime) -> AuthorityFacts {
    let (root_common_name, intermediate_common_name) = authority.common_names(now);
    AuthorityFacts {
        id: authority.spec().id.clone(),
        name: authority.spec().name.clone(),
        root_common_name,
        intermediate_common_name,
        root: authority.root_pem(),
        intermediate: authority.intermediate_pem(),
    }
}

/// Renews until it is aborted. Signing and files are not for this thread.
async fn renew(keeper: Arc<Keeper>) {
    loop {
        let at_work = Arc::clone(&keeper);
        let next = tokio::task::spawn_blocking(move || at_work.renew(SystemTime::now())).await;
        // A panic was reported by its thread; certificates are valid for a while yet.
        tokio::time::sleep(next.unwrap_or(LOOK_EVERY)).await;
    }
}

/// Where a configuration's storage is.
pub(super) fn storage(written: &Storage, default: &PathBuf) -> FileStorage {
    let Storage::FileSystem(root) = written;
    FileStorage::new(root.as_ref().unwrap_or(default))
}

fn source(source: &CertificateSource) -> Source {
    match source.clone() {
        CertificateSource::Files { certificate, key, tags } => Source::Files { certificate, key, tags },
        CertificateSource::Pem { place, certificate, key, tags } => Source::Pem { place, certificate, key, tags },
        CertificateSource::Folder(path) => Source::Folder(path),
    }
}

fn authority(written: &CertificateAuthority) -> AuthoritySpec {
    let CertificateAuthority {
        id,
        name,
        root_common_name,
        intermediate_common_name,
        intermediate_lifetime,
        renewal_ratio,
        root,
        intermediate,
    } = written.clone();
    let usual = AuthoritySpec::new(id);
    let files = |files: CertificateFiles| PairFiles { certificate: files.certificate, key: files.key };
    AuthoritySpec {
        name: name.unwrap_or(usual.name),
        root_common_name: root_common_name.unwrap_or(usual.root_common_name),
        intermediate_common_name: intermediate_common_name.unwrap_or(usual.intermediate_common_name),
        intermediate_lifetime: intermediate_lifetime.unwrap_or(usual.intermediate_lifetime),
        renewal_ratio: renewal_ratio.unwrap_or(usual.renewal_ratio),
        root: root.map(files),
        intermediate: intermediate.map(files),
        id: usual.id,
    }
}

fn managed(written: &ManagedName) -> Managed {
    let usual = Managed::new(written.name.clone(), written.authority.clone());
    Managed {
        lifetime: written.lifetime.unwrap_or(usual.lifetime),
        renewal_ratio: written.renewal_ratio.unwrap_or(usual.renewal_ratio),
        by_root: written.by_root,
        key: match written.key {
            KeyKind::P256 => causeway_certs::KeyKind::P256,
            KeyKind::P384 => causeway_certs::KeyKind::P384,
            KeyKind::Ed25519 => causeway_certs::KeyKind::Ed25519,
            KeyKind::Rsa2048 => causeway_certs::KeyKind::Rsa2048,
            KeyKind::Rsa4096 => causeway_certs::KeyKind::Rsa4096,
        },
        reuse_key: written.reuse_key,
        ..usual
    }
}
