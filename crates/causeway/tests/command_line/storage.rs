//! `causeway storage export` and `causeway storage import`, and the clean-up of storage.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use serde_json::{Value, json};

use crate::client::get;
use crate::process::{Directory, ServerProcess, wait_until};
use crate::redis::RedisProcess;

/// A site of the local authority, so that the storage has something.
const SITE: &str = "a.localhost:0 {\n\ttls internal\n}\n";

fn caddyfile(storage: &str) -> String {
    format!("{{\n\tskip_install_trust\n\tauto_https disable_redirects\n\t{storage}\n}}\n{SITE}")
}

/// The files of a directory, except for locks and the time of the clean-up.
fn files(root: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut directories = vec![root.to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
            if path.is_dir() {
                directories.push(path);
            } else if !name.starts_with("locks/") && !name.starts_with("last_clean.json") {
                found.insert(name, std::fs::read(path).unwrap());
            }
        }
    }
    found
}

#[track_caller]
fn succeeded(output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{}", text(&output.stderr));
    text(&output.stdout) + &text(&output.stderr)
}

/// A directory whose server has run, with `data` as its storage.
fn used() -> Directory {
    let directory = Directory::new();
    directory.write("Caddyfile", caddyfile(&format!("storage file_system {}", directory.path("data").display())));
    drop(directory.start(&["run"]));
    directory
}

// Caddy's `storage export` and `storage import`: one archive between two storages, with keys as names.
#[test]
fn from_directory_to_directory() {
    let directory = used();
    let before = files(&directory.path("data"));
    assert!(before.contains_key("pki/authorities/local/root.key"), "{:?}", before.keys());
    let exported = succeeded(&directory.output(&["storage", "export", "--config", "Caddyfile", "--output", "all.tar"]));
    let data = directory.path("data").display().to_string();
    assert!(exported.contains(&format!(" values from {data}\n")), "{exported}");
    let mode = std::fs::metadata(directory.path("all.tar")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "it has private keys");
    // So does one in the place of a file that others could read.
    directory.write("old.tar", "old");
    std::fs::set_permissions(directory.path("old.tar"), std::fs::Permissions::from_mode(0o644)).unwrap();
    succeeded(&directory.output(&["storage", "export", "--config", "Caddyfile", "--output", "old.tar"]));
    let mode = std::fs::metadata(directory.path("old.tar")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    succeeded(&directory.output(&["storage", "export", "--config", "Caddyfile", "--output", "/dev/null"]));
    let other = format!("storage file_system {}", directory.path("other").display());
    directory.write("other.json", succeeded_adapt(&directory, &caddyfile(&other)));
    let exported = succeeded(&directory.output(&["storage", "import", "-c", "other.json", "-i", "all.tar"]));
    assert!(exported.contains(" values into ") && exported.ends_with("/other\n"), "{exported}");
    assert_eq!(files(&directory.path("other")), before);
}

// Caddy's `storage` of an automation policy and of an authority: certificates and authorities that are not in the
// configuration's.
#[test]
fn separate_storages() {
    let directory = Directory::new();
    let at = |name: &str| json!({ "module": "file_system", "root": directory.path(name) });
    let internal = |names: &[&str], storage: Value| json!({ "subjects": names, "issuers": [{ "module": "internal" }], "storage": storage });
    let config = json!({
        "storage": at("data"),
        "apps": {
            "http": { "servers": { "s": { "listen": [":0"], "routes": [{ "match": [{ "host": ["a.localhost"] }] }] } } },
            "tls": {
                "certificates": { "automate": ["a.localhost", "b.localhost"] },
                "automation": { "policies": [internal(&["b.localhost"], at("leaves")), internal(&[], Value::Null)] },
            },
            "pki": { "certificate_authorities": { "local": { "storage": at("pki") } } },
        },
    });
    directory.write("config.json", config.to_string());
    // Without the time of the last cleaning, which a server may be writing when it is killed.
    let all = || {
        ["data", "leaves", "pki"].map(|name| {
            let mut files = files(&directory.path(name));
            files.retain(|key, _| !key.starts_with("last_clean.json"));
            files
        })
    };
    drop(directory.start(&["run", "--config", "config.json"]));
    let first = all();
    let keys: Vec<_> =
        first.iter().map(|files| files.keys().filter(|key| !key.ends_with(".json")).collect::<Vec<_>>()).collect();
    let pair = |name: &str| ["crt", "key"].map(|kind| format!("certificates/local/{name}/{name}.{kind}")).to_vec();
    let of_authority = ["intermediate.crt", "intermediate.key", "root.crt", "root.key"];
    let of_authority = of_authority.map(|file| format!("pki/authorities/local/{file}")).to_vec();
    let want = [pair("a.localhost"), pair("b.localhost"), of_authority];
    assert_eq!(keys, want.iter().map(|keys| keys.iter().collect::<Vec<_>>()).collect::<Vec<_>>());
    drop(directory.start(&["run", "--config", "config.json"]));
    assert_eq!(all(), first, "the next start finds them");
}

fn succeeded_adapt(directory: &Directory, text: &str) -> Vec<u8> {
    directory.write("adapted/Caddyfile", text);
    directory.output(&["adapt", "--config", "adapted/Caddyfile"]).stdout
}

/// An empty archive is no backup: the configuration has another storage than the server, or no server has run.
#[test]
fn an_export_of_nothing_fails() {
    let directory = Directory::new();
    let empty = directory.path("empty");
    directory.write("Caddyfile", caddyfile(&format!("storage file_system {}", empty.display())));
    for output in ["all.tar", "-"] {
        let output = directory.output(&["storage", "export", "--config", "Caddyfile", "--output", output]);
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{errors}");
        let want =
            format!("Error: {}: found no values, expected the storage of a server that has run\n", empty.display());
        assert!(errors.ends_with(&want), "{errors}");
    }
}

// The same by Redis, through pipes.
#[test]
fn from_directory_to_redis_and_back() {
    let Some(redis) = RedisProcess::start() else { return };
    let directory = used();
    let before = files(&directory.path("data"));
    directory.write("redis.caddyfile", caddyfile(&redis.caddyfile()));
    directory.write("back.caddyfile", caddyfile(&format!("storage file_system {}", directory.path("back").display())));
    let program = env!("CARGO_BIN_EXE_causeway");
    for (from, to) in [("Caddyfile", "redis.caddyfile"), ("redis.caddyfile", "back.caddyfile")] {
        let pipe = format!("{program} storage export -c {from} -o - | {program} storage import -c {to} -i -");
        let output =
            Command::new("bash").args(["-o", "pipefail", "-c", &pipe]).current_dir(directory.path("")).output();
        succeeded(&output.unwrap());
    }
    assert!(redis.keys("*root.key").contains(&"caddy/pki/authorities/local/root.key".to_owned()));
    assert_eq!(files(&directory.path("back")), before);
}

// GNU tar reads the archive, and its archives are read: with directories, with `./` in front, and with long names.
#[test]
fn archives_of_another_program() {
    let directory = used();
    let long = format!("certificates/ca/{0}/{0}.crt", "a".repeat(120));
    directory.write(&format!("data/{long}"), "x");
    succeeded(&directory.output(&["storage", "export", "-o", "all.tar"]));
    let listed =
        Command::new("tar").args(["--list", "--file", "all.tar"]).current_dir(directory.path("")).output().unwrap();
    let listed = succeeded(&listed);
    assert!(listed.lines().any(|line| line == long) && !listed.contains("locks"), "{listed}");
    let packed =
        Command::new("tar").args(["-cf", "own.tar", "-C", "data", "."]).current_dir(directory.path("")).status();
    assert!(packed.unwrap().success());
    directory.write("new.caddyfile", caddyfile(&format!("storage file_system {}", directory.path("new").display())));
    succeeded(&directory.output(&["storage", "import", "-c", "new.caddyfile", "-i", "own.tar"]));
    assert_eq!(files(&directory.path("new")), files(&directory.path("data")));
}

#[test]
fn mistakes() {
    let directory = used();
    let refused = |arguments: &[&str]| {
        let output = directory.output(&[&["storage"], arguments].concat());
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(text.starts_with("Error: ") && text.lines().count() == 1, "{text}");
        text
    };
    for (arguments, want) in [
        (&["export"][..], "--output"),
        (&["import"], "--input"),
        (&["export", "-c", "missing", "-o", "x"], "missing"),
        (&["import", "-i", "missing.tar"], "missing.tar"),
        (&["import", "-c", "-", "-i", "-"], "standard input for one of them"),
        (&["export", "-o", "missing/x.tar"], "missing/x.tar"),
    ] {
        let text = refused(arguments);
        assert!(text.contains(want), "{text}");
    }
    // An archive that would write outside of the storage, one with a link, and no archive.
    std::fs::create_dir(directory.path("evil")).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", directory.path("evil/link")).unwrap();
    directory.write("evil/file", "x");
    for (arguments, want) in [
        (&["--transform", "s,^file,../../outside,", "file"][..], "out of the storage"),
        (&["--transform", "s,^file,/tmp/outside,", "file"], "out of the storage"),
        (&["link"], "expected files only"),
    ] {
        let mut tar = Command::new("tar");
        tar.args(["-P", "-cf", "../evil.tar"]).args(arguments).current_dir(directory.path("evil"));
        assert!(tar.status().unwrap().success());
        let text = refused(&["import", "-i", "evil.tar"]);
        assert!(text.contains(want), "{text}");
    }
    directory.write("evil.tar", "nonsense");
    refused(&["import", "-i", "evil.tar"]);
    assert!(!directory.path("outside").exists());
}

// Caddy's `storage_clean_interval`: the server removes old values, and records the time for all servers with the
// storage.
#[test]
fn storage_is_cleaned() {
    let directory = Directory::new();
    let at = "acme/ca/challenge_tokens/a.example.json";
    let data = format!("storage file_system {}", directory.path("data").display());
    let start = |options: &str| {
        directory.write(&format!("data/{at}"), "{}");
        let file = std::fs::File::options().write(true).open(directory.path(&format!("data/{at}"))).unwrap();
        file.set_modified(std::time::SystemTime::now() - Duration::from_secs(2 * 86_400)).unwrap();
        directory.write("Caddyfile", caddyfile(&format!("{data}\n\t{options}")));
        directory.start(&["run"])
    };
    let is_cleaned = || {
        wait_until("it is not cleaned", || !directory.path(&format!("data/{at}")).exists());
    };
    drop(start("storage_clean_interval off"));
    assert!(!directory.path("data/last_clean.json").exists());
    let server = start("");
    is_cleaned();
    // The server records the time after the last removal.
    wait_until("it is not recorded", || directory.path("data/last_clean.json").exists());
    drop(server);
    // Cleaned lately, unless the interval is shorter.
    let record = std::fs::read(directory.path("data/last_clean.json")).unwrap();
    drop(start(""));
    assert_eq!(std::fs::read(directory.path("data/last_clean.json")).unwrap(), record);
    let server = start("storage_clean_interval 1s");
    is_cleaned();
    drop(server);
}

// Caddy: a data directory below the working directory is hidden from file servers. So is the directory of the saved
// configuration.
#[test]
fn own_files_are_not_served() {
    let directory = Directory::new();
    let options = "skip_install_trust\n\tauto_https disable_redirects";
    let sites = "a.localhost:0 {\n\tbind 127.0.0.2\n\ttls internal\n}\n\nhttp://:0 {\n\troot .\n\tfile_server\n}\n";
    directory.write("Caddyfile", format!("{{\n\t{options}\n}}\n{sites}"));
    directory.write("a.txt", "a");
    let mut command = directory.command(&["run"]);
    command.env_remove("HOME").env("XDG_CONFIG_HOME", "settings");
    let server = ServerProcess::start(command);
    let (_, plain) = server.first_line.split_once("http://").unwrap();
    let port = plain.split([' ', ',', ';']).next().unwrap().rsplit_once(':').unwrap().1.parse().unwrap();
    assert_eq!(get(port, "/a.txt").status, 200);
    for file in ["causeway/pki/authorities/local/root.key", "settings/causeway/autosave.json"] {
        assert!(directory.path(file).exists(), "{file}");
        assert_eq!(get(port, &format!("/{file}")).status, 404, "{file}");
    }
    drop(server);
    // Also for a command that saves no configuration.
    let mut command = directory.command(&["file-server", "--listen", "127.0.0.1:0"]);
    command.env_remove("HOME").env("XDG_CONFIG_HOME", "settings");
    let server = ServerProcess::start(command);
    let (_, plain) = server.first_line.split_once("http://").unwrap();
    let port = plain.split([' ', ',', ';']).next().unwrap().rsplit_once(':').unwrap().1.parse().unwrap();
    assert_eq!(get(port, "/a.txt").status, 200);
    assert_eq!(get(port, "/settings/causeway/autosave.json").status, 404);
}
