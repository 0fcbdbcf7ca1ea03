use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::mpsc;
use std::time::Duration;

use super::*;
use crate::tests::Directory;

// certmagic's `KeyBuilder.Safe`.
#[test]
fn names_as_parts_of_keys() {
    for (name, want) in [
        ("localhost", "localhost"),
        ("*.Example.com", "wildcard_.example.com"),
        ("::1", "--1"),
        ("a b+c", "a_b_plus_c"),
        ("../../etc/passwd", "etcpasswd"),
        ("a/b\\c", "abc"),
        ("x_@-y", "x_@-y"),
        // certmagic differs here: it drops these characters and can leave `..`, which leads out of the directory.
        ("./.", ""),
        (".\u{e9}./a", "a"),
    ] {
        assert_eq!(safe_key(name), want, "{name}");
    }
}

// certmagic's FileStorage: files of mode 0600 in directories of mode 0700; a value is replaced as a whole.
#[test]
fn values_are_readable_by_their_owner_only() {
    let directory = Directory::new();
    let storage = FileStorage::new(directory.path("data"));
    assert_eq!(storage.load("a/b/c.crt").unwrap(), None);
    storage.store("a/b/c.crt", b"one", Durability::Flushed).unwrap();
    storage.store("a/b/c.crt", b"two", Durability::Unflushed).unwrap();
    assert_eq!(storage.load("a/b/c.crt").unwrap().as_deref(), Some(&b"two"[..]));
    let age = storage.modified("a/b/c.crt").unwrap().unwrap().elapsed().unwrap_or_default();
    assert!(age < Duration::from_secs(60), "{age:?}");
    assert_eq!(storage.modified("a/missing").unwrap(), None);
    let mode = |path: &str| fs::metadata(directory.path(path)).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode("data"), mode("data/a/b"), mode("data/a/b/c.crt")), (0o700, 0o700, 0o600));
    assert_eq!(fs::read_dir(directory.path("data/a/b")).unwrap().count(), 1, "no temporary file remains");
    fs::write(directory.path("file"), "").unwrap();
    let error = FileStorage::new(directory.path("file")).store("x", b"", Durability::Flushed).unwrap_err().to_string();
    assert!(error.contains("cannot be written: "), "{error}");
}

// certmagic's `Storage.List` with `recursive`, and `Delete`. Locks and the temporary files of a killed process are not
// values.
#[test]
fn values_are_listed_and_deleted() {
    let directory = Directory::new();
    let storage = FileStorage::new(directory.path("data"));
    assert_eq!(storage.list("").unwrap(), [""; 0]);
    for key in ["a/b/c.crt", "a/b/c.key", "a/d/e.json", "f"] {
        storage.store(key, b"", Durability::Unflushed).unwrap();
    }
    drop(storage.lock("n").unwrap());
    fs::write(directory.path("data/a/b/c.crt.0123456789abcdef.new"), "").unwrap();
    let list = |prefix: &str| {
        let mut keys = storage.list(prefix).unwrap();
        keys.sort();
        keys
    };
    assert_eq!(list(""), ["a/b/c.crt", "a/b/c.key", "a/d/e.json", "f"]);
    assert_eq!(list("a/b"), ["a/b/c.crt", "a/b/c.key"]);
    assert_eq!(list("f"), [""; 0], "a value has no keys below it");
    storage.delete("a/d/e.json").unwrap();
    storage.delete("a/d/e.json").unwrap();
    assert_eq!(list("a"), ["a/b/c.crt", "a/b/c.key"]);
    assert!(!directory.path("data/a/d").exists() && directory.path("data/a/b").exists());
}

#[test]
fn a_lock_has_one_holder() {
    let directory = Directory::new();
    let storage = FileStorage::new(directory.path(""));
    let held = storage.lock("n").unwrap();
    let (sender, receiver) = mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let _second = storage.lock("n").unwrap();
            sender.send(()).unwrap();
        });
        assert!(receiver.recv_timeout(Duration::from_millis(100)).is_err());
        drop(storage.lock("another").unwrap());
        drop(held);
        receiver.recv().unwrap();
    });
}

// Processes that store and remove values in one directory, as open challenges are: the directory disappears with its
// last value, and no write fails because of that.
#[test]
fn a_directory_removed_and_created_concurrently() {
    let directory = Directory::new();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let directory = &directory;
            scope.spawn(move || {
                let storage = FileStorage::new(directory.path(""));
                for _ in 0..500 {
                    let key = format!("tokens/{thread}.json");
                    storage.store(&key, b"{}", Durability::Unflushed).unwrap();
                    storage.delete(&key).unwrap();
                }
            });
        }
    });
}
