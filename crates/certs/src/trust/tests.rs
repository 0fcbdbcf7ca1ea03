use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use super::{TrustStoreError, TrustStores, TrustedRoot};

/// A machine in a directory: a system store, programs that log their arguments, a home.
struct Machine(PathBuf);

impl Machine {
    fn new(name: &str) -> Self {
        let directory = std::env::temp_dir().join(format!("causeway-trust-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&directory);
        fs::create_dir_all(directory.join("bin")).unwrap();
        Self(directory)
    }

    fn directory(&self, path: &str) -> PathBuf {
        fs::create_dir_all(self.0.join(path)).unwrap();
        self.0.join(path)
    }

    fn program(&self, name: &str, script: &str) {
        let file = self.0.join("bin").join(name);
        let log = self.0.join("log");
        fs::write(&file, format!("#!/bin/sh\necho \"{name} $*\" >> {}\n{script}\n", log.display())).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn stores(&self) -> TrustStores {
        TrustStores { root: self.0.clone(), home: Some(self.0.join("home")), path: vec![self.0.join("bin")] }
    }

    fn log(&self) -> String {
        fs::read_to_string(self.0.join("log")).unwrap_or_default().replace(&*self.0.to_string_lossy(), "")
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn root() -> TrustedRoot {
    let key = rcgen::KeyPair::generate().unwrap();
    let mut params = rcgen::CertificateParams::default();
    params.distinguished_name.push(rcgen::DnType::CommonName, "A Root");
    params.serial_number = Some(rcgen::SerialNumber::from_slice(&[0x4a, 1]));
    TrustedRoot::read(params.self_signed(&key).unwrap().pem().as_bytes(), "a root").unwrap()
}

fn files(directory: &Path) -> Vec<String> {
    fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect()
}

// Each family has its directory, its extension and its command; trust and untrust are idempotent.
#[test]
fn system_stores() {
    let root = root();
    assert_eq!(root.name(), "A Root");
    for (directory, file, program, log) in [
        ("etc/pki/ca-trust/source/anchors", "causeway-4a01.pem", "update-ca-trust", "update-ca-trust extract\n"),
        ("usr/local/share/ca-certificates", "causeway-4a01.crt", "update-ca-certificates", "update-ca-certificates \n"),
        ("usr/share/pki/trust/anchors", "causeway-4a01.pem", "update-ca-certificates", "update-ca-certificates \n"),
        ("etc/ca-certificates/trust-source/anchors", "causeway-4a01.crt", "update-ca-trust", "update-ca-trust \n"),
    ] {
        let machine = Machine::new("system");
        let anchors = machine.directory(directory);
        machine.program(program, "");
        let stores = machine.stores();
        let changed = |outcomes: Vec<super::StoreOutcome>| {
            assert_eq!(outcomes.len(), 1, "{directory}");
            outcomes.into_iter().next().unwrap().result.unwrap()
        };
        assert!(changed(stores.trust(&root)) && !changed(stores.trust(&root)), "{directory}");
        assert_eq!((files(&anchors), machine.log()), (vec![file.to_owned()], log.to_owned()));
        assert_eq!(fs::metadata(anchors.join(file)).unwrap().permissions().mode() & 0o777, 0o644);
        // A copy under another name, as documentation used to recommend.
        fs::write(anchors.join("mine.crt"), root.pem()).unwrap();
        fs::write(anchors.join("other.crt"), "not a certificate").unwrap();
        assert!(changed(stores.untrust(&root)) && !changed(stores.untrust(&root)), "{directory}");
        assert_eq!((files(&anchors), machine.log()), (vec!["other.crt".to_owned()], log.repeat(2)));
    }
}

#[test]
fn system_stores_that_fail() {
    let machine = Machine::new("fails");
    assert!(machine.stores().trust(&root()).is_empty(), "there is no store");
    let anchors = machine.directory("usr/local/share/ca-certificates");
    let result = |machine: &Machine| machine.stores().trust(&root()).remove(0).result;
    assert!(matches!(result(&machine), Err(TrustStoreError::NoProgram("update-ca-certificates", _))));
    assert!(files(&anchors).is_empty(), "a file without the command has no effect");
    machine.program("update-ca-certificates", "echo some >&2; echo 'disk is full' >&2; exit 3");
    let Err(TrustStoreError::Program(_, message)) = result(&machine) else { panic!("the program failed") };
    assert_eq!(message, "disk is full (exit status: 3)");
    assert!(files(&anchors).is_empty(), "a file has no effect until the command has ended");
}

// A change has no effect if the command fails, so the next attempt makes it.
#[test]
fn a_command_that_fails_is_repeated() {
    let machine = Machine::new("repeats");
    machine.directory("usr/local/share/ca-certificates");
    let (stores, root) = (machine.stores(), root());
    for change in [TrustStores::trust, TrustStores::untrust] {
        let result = || change(&stores, &root).remove(0).result;
        machine.program("update-ca-certificates", "exit 3");
        assert!(matches!(result(), Err(TrustStoreError::Program(..))));
        machine.program("update-ca-certificates", "");
        assert!(result().unwrap());
        assert!(!result().unwrap());
    }
}

// certutil of NSS: -A adds with a nickname, -L shows, -D deletes. This double keeps one nickname.
#[test]
fn browsers() {
    let machine = Machine::new("nss");
    let profile = machine.directory("home/.mozilla/firefox/abc.default");
    fs::write(profile.join("cert9.db"), "").unwrap();
    machine.directory("home/.mozilla/firefox/no-profile");
    let outcome = |stores: Vec<super::StoreOutcome>| {
        assert_eq!(stores.len(), 1);
        stores.into_iter().next().unwrap().result
    };
    assert!(matches!(outcome(machine.stores().trust(&root())), Err(TrustStoreError::NoProgram("certutil", _))));
    let kept = machine.0.join("kept");
    machine.program(
        "certutil",
        &format!("case $3 in -A) cat > {0};; -L) test -f {0};; -D) rm {0};; esac", kept.display()),
    );
    let stores = machine.stores();
    let root = root();
    assert!(outcome(stores.trust(&root)).unwrap() && !outcome(stores.trust(&root)).unwrap());
    assert_eq!(fs::read_to_string(&kept).unwrap(), root.pem());
    assert!(outcome(stores.untrust(&root)).unwrap() && !outcome(stores.untrust(&root)).unwrap());
    let database = "certutil -d sql:/home/.mozilla/firefox/abc.default";
    let [add, delete] =
        ["-A -a -t C,, -n causeway-4a01", "-D -n causeway-4a01"].map(|words| format!("{database} {words}\n"));
    assert!(machine.log().contains(&add) && machine.log().contains(&delete), "{}", machine.log());
}
