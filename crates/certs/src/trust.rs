//! The trust stores of this machine and user: adds a root certificate, and removes it again.
//!
//! Nothing here prompts for a password or raises privileges: a store that this process may not write is an error that
//! says so.

use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::{env, fs, io};

use data_encoding::HEXLOWER;
use rustls::pki_types::CertificateDer;
use x509_parser::prelude::{FromDer as _, X509Certificate};

use super::pem;
use super::{Durability, Error, replace};

/// Where the distributions keep additional roots, and the command that makes programs use them. The first directory
/// that exists counts: the order is by how specific it is for its family.
const FAMILIES: &[Family] = &[
    // Fedora, RHEL
    Family { directory: "etc/pki/ca-trust/source/anchors", extension: "pem", update: &["update-ca-trust", "extract"] },
    // Debian, Ubuntu, Alpine
    Family { directory: "usr/local/share/ca-certificates", extension: "crt", update: &["update-ca-certificates"] },
    // openSUSE
    Family { directory: "usr/share/pki/trust/anchors", extension: "pem", update: &["update-ca-certificates"] },
    // Arch
    Family { directory: "etc/ca-certificates/trust-source/anchors", extension: "crt", update: &["update-ca-trust"] },
];
/// Databases of Firefox and Chromium, below the home directory: single ones, and directories of profiles.
const NSS_SINGLE: &[&str] = &[".pki/nssdb", "snap/chromium/current/.pki/nssdb"];
const NSS_PROFILES: &[&str] = &[".mozilla/firefox", "snap/firefox/common/.mozilla/firefox"];
/// Firefox's file of certificates, by which a directory is recognised as a database.
const NSS_FILE: &str = "cert9.db";
/// Profiles that are searched.
const PROFILES_MAX: usize = 100;
/// Directories of administrators' programs, which the path of other users lacks.
const SYSTEM_PROGRAMS: [&str; 3] = ["/usr/sbin", "/usr/local/sbin", "/sbin"];

struct Family {
    directory: &'static str,
    extension: &'static str,
    update: &'static [&'static str],
}

/// The trust stores that one user can reach.
#[derive(Debug, Clone)]
pub struct TrustStores {
    /// The root of the file system.
    root: PathBuf,
    home: Option<PathBuf>,
    /// The directories of programs.
    path: Vec<PathBuf>,
}

/// A root certificate for trust stores.
#[derive(Debug, Clone)]
pub struct TrustedRoot {
    der: CertificateDer<'static>,
    /// The common name, for messages.
    name: String,
    /// The name of its file and its nickname, derived from the serial number.
    label: String,
}

/// The outcome for one store.
#[derive(Debug)]
pub struct StoreOutcome {
    /// The store's usual name.
    pub store: String,
    /// Whether the store changed; `Ok(false)`: it already had the requested content.
    pub result: Result<bool, TrustStoreError>,
}

/// Why a trust store could not be changed.
#[derive(Debug)]
#[non_exhaustive]
pub enum TrustStoreError {
    /// This user may not write it.
    NotPermitted,
    /// Reading or writing a file failed.
    File(PathBuf, io::Error),
    /// The program that the store needs is not installed; the packages that contain it.
    NoProgram(&'static str, &'static str),
    /// The store's program failed: its name and its message.
    Program(String, String),
}

impl fmt::Display for TrustStoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotPermitted => f.write_str("only root may change it"),
            Self::File(path, error) => write!(f, "{}: {error}", path.display()),
            Self::NoProgram(name, packages) => write!(f, "it needs the program {name} (package {packages})"),
            Self::Program(name, message) => write!(f, "{name} failed: {message}"),
        }
    }
}

impl std::error::Error for TrustStoreError {}

impl TrustedRoot {
    /// Reads the first certificate of a PEM text. `location` names the text in error messages.
    ///
    /// # Errors
    /// The text has no certificate, or one that cannot be read.
    pub fn read(text: &[u8], location: &str) -> Result<Self, Error> {
        let der = pem::chain(text, location)?.swap_remove(0);
        let bad = |why: String| Error::BadCertificate(location.to_owned(), why);
        let (_, certificate) = X509Certificate::from_der(&der).map_err(|error| bad(error.to_string()))?;
        let name = certificate.subject().iter_common_name().find_map(|name| name.as_str().ok());
        let name = name.map_or_else(|| certificate.subject().to_string(), str::to_owned);
        let label = format!("causeway-{}", HEXLOWER.encode(certificate.raw_serial()));
        Ok(Self { der, name, label })
    }

    /// The common name.
    pub fn name(&self) -> &str {
        &self.name
    }

    fn pem(&self) -> String {
        pem::write_chain(std::slice::from_ref(&self.der))
    }
}

impl TrustStores {
    /// The stores of this machine and of the user of this process.
    pub fn here() -> Self {
        let path = env::var_os("PATH").unwrap_or_default();
        let path = env::split_paths(&path).chain(SYSTEM_PROGRAMS.map(PathBuf::from)).collect();
        let home = env::var_os("HOME").filter(|home| !home.is_empty()).map(PathBuf::from);
        Self { root: "/".into(), home, path }
    }

    /// Adds a root to every store that exists. Blocks on disk and on other programs.
    pub fn trust(&self, root: &TrustedRoot) -> Vec<StoreOutcome> {
        let system = self.system().map(|(family, directory)| StoreOutcome {
            store: format!("the system's store, {}", directory.display()),
            result: self.add_to_system(family, &directory, root),
        });
        system.into_iter().chain(self.nss(|database| self.add_to_nss(database, root))).collect()
    }

    /// Removes a root from every store that exists: also copies that were added in another way. Blocks on disk and on
    /// other programs.
    pub fn untrust(&self, root: &TrustedRoot) -> Vec<StoreOutcome> {
        let system = self.system().map(|(family, directory)| StoreOutcome {
            store: format!("the system's store, {}", directory.display()),
            result: self.remove_from_system(family, &directory, root),
        });
        system.into_iter().chain(self.nss(|database| self.remove_from_nss(database, root))).collect()
    }

    fn system(&self) -> Option<(&'static Family, PathBuf)> {
        let locations = FAMILIES.iter().map(|family| (family, self.root.join(family.directory)));
        locations.into_iter().find(|(_, directory)| directory.is_dir())
    }

    fn add_to_system(&self, family: &Family, directory: &Path, root: &TrustedRoot) -> Result<bool, TrustStoreError> {
        if !copies(directory, root)?.is_empty() {
            return Ok(false);
        }
        // Looked for before the write, so that no file is left that has no effect.
        let update = self.program(family.update[0], "ca-certificates")?;
        let file = directory.join(format!("{}.{}", root.label, family.extension));
        write(&file, root)?;
        let update = || run(Command::new(&update).args(&family.update[1..]));
        update().inspect_err(|_| {
            // Best effort: the command may have written a part of its output, from which the next run removes the root.
            let _ = fs::remove_file(&file);
            let _ = update();
        })?;
        Ok(true)
    }

    fn remove_from_system(
        &self,
        family: &Family,
        directory: &Path,
        root: &TrustedRoot,
    ) -> Result<bool, TrustStoreError> {
        let copies = copies(directory, root)?;
        if copies.is_empty() {
            return Ok(false);
        }
        let update = self.program(family.update[0], "ca-certificates")?;
        for file in &copies {
            fs::remove_file(file).map_err(|error| fault(file, error))?;
        }
        run(Command::new(update).args(&family.update[1..])).inspect_err(|_| {
            // Programs still trust the root: with the file, the next attempt runs the command again.
            let _ = write(&copies[0], root);
        })?;
        Ok(true)
    }

    /// Does `work` for each NSS database of the user.
    fn nss(&self, work: impl Fn(&Path) -> Result<bool, TrustStoreError>) -> Vec<StoreOutcome> {
        let Some(home) = &self.home else { return Vec::new() };
        let single = NSS_SINGLE.iter().map(|directory| home.join(directory));
        let profiles = NSS_PROFILES.iter().filter_map(|directory| fs::read_dir(home.join(directory)).ok());
        let profiles = profiles.flatten().flatten().map(|entry| entry.path()).take(PROFILES_MAX);
        let databases = single.chain(profiles).filter(|directory| directory.join(NSS_FILE).is_file());
        let outcome = |directory: PathBuf| StoreOutcome {
            store: format!("the browsers' database {}", directory.display()),
            result: work(&directory),
        };
        databases.map(outcome).collect()
    }

    fn add_to_nss(&self, database: &Path, root: &TrustedRoot) -> Result<bool, TrustStoreError> {
        if self.is_in_nss(database, root)? {
            return Ok(false);
        }
        let mut certutil = self.certutil(database)?;
        // Trusted as an authority for servers. Without `-i`, certutil reads the certificate from standard input.
        let mut child = certutil
            .args(["-A", "-a", "-t", "C,,", "-n", &root.label])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| TrustStoreError::Program("certutil".to_owned(), error.to_string()))?;
        if let Some(mut input) = child.stdin.take() {
            // A certutil that fails early closes its input; its own message is the better one.
            let _ = io::Write::write_all(&mut input, root.pem().as_bytes());
        }
        let done = child.wait_with_output();
        let done = done.map_err(|error| TrustStoreError::Program("certutil".to_owned(), error.to_string()))?;
        succeeded("certutil", &done)?;
        Ok(true)
    }

    fn remove_from_nss(&self, database: &Path, root: &TrustedRoot) -> Result<bool, TrustStoreError> {
        if !self.is_in_nss(database, root)? {
            return Ok(false);
        }
        run(self.certutil(database)?.args(["-D", "-n", &root.label]))?;
        Ok(true)
    }

    fn is_in_nss(&self, database: &Path, root: &TrustedRoot) -> Result<bool, TrustStoreError> {
        let mut certutil = self.certutil(database)?;
        let done = certutil.args(["-L", "-n", &root.label]).stdin(Stdio::null()).output();
        let done = done.map_err(|error| TrustStoreError::Program("certutil".to_owned(), error.to_string()))?;
        Ok(done.status.success())
    }

    fn certutil(&self, database: &Path) -> Result<Command, TrustStoreError> {
        let mut command = Command::new(self.program("certutil", "libnss3-tools or nss-tools")?);
        let mut location = OsString::from("sql:");
        location.push(database);
        command.arg("-d").arg(location);
        Ok(command)
    }

    fn program(&self, name: &'static str, packages: &'static str) -> Result<PathBuf, TrustStoreError> {
        let found = self.path.iter().map(|directory| directory.join(name)).find(|file| file.is_file());
        found.ok_or(TrustStoreError::NoProgram(name, packages))
    }
}

/// Returns the files of a directory that hold this certificate and no other one.
fn copies(directory: &Path, root: &TrustedRoot) -> Result<Vec<PathBuf>, TrustStoreError> {
    let entries = fs::read_dir(directory).map_err(|error| fault(directory, error))?;
    let is_copy = |file: &PathBuf| {
        let text = fs::read(file).unwrap_or_default();
        pem::chain(&text, "").is_ok_and(|chain| chain == [root.der.clone()])
    };
    Ok(entries.flatten().map(|entry| entry.path()).filter(|file| file.is_file()).filter(is_copy).collect())
}

/// Writes a root to a file that every program can read.
fn write(file: &Path, root: &TrustedRoot) -> Result<(), TrustStoreError> {
    use std::os::unix::fs::PermissionsExt as _;
    replace(file, root.pem().as_bytes(), Durability::Flushed)
        .and_then(|()| fs::set_permissions(file, fs::Permissions::from_mode(0o644)))
        .map_err(|error| fault(file, error))
}

fn fault(path: &Path, error: io::Error) -> TrustStoreError {
    match error.kind() {
        io::ErrorKind::PermissionDenied => TrustStoreError::NotPermitted,
        _ => TrustStoreError::File(path.to_owned(), error),
    }
}

fn run(command: &mut Command) -> Result<(), TrustStoreError> {
    let name = Path::new(command.get_program()).file_name().unwrap_or_default().to_string_lossy().into_owned();
    let done = command.stdin(Stdio::null()).output();
    let done = done.map_err(|error| TrustStoreError::Program(name.clone(), error.to_string()))?;
    succeeded(&name, &done)
}

fn succeeded(name: &str, done: &std::process::Output) -> Result<(), TrustStoreError> {
    if done.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&done.stderr);
    let last = said.trim().lines().last().unwrap_or("no message");
    Err(TrustStoreError::Program(name.to_owned(), format!("{last} ({})", done.status)))
}

#[cfg(test)]
mod tests;
