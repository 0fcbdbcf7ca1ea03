//! Checks the dependencies between crates, and names that a crate's source must not contain.
//!
//! [`ROOMS`] is the allow-list that enforces ARCHITECTURE.md's map. Three checks use it: the dependencies between our
//! crates, the absence of third-party crates, and ([`sources`]) the absence of names that the compiler would accept.

mod sources;
#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use serde_json::Value;

use crate::report::{Done, Halt};
use crate::stage::Stage;
use crate::steps::{House, metadata};

/// A crate with its rules. Names are without the `causeway-` prefix.
struct Room {
    name: &'static str,
    /// Our crates that it may depend on, also for building.
    may: &'static [&'static str],
    /// Our crates that its tests may use in addition.
    tests_may: &'static [&'static str],
    /// Third-party crates that it must not depend on; its tests may.
    never: &'static [&'static str],
    /// Words that its source must not contain; its tests may.
    unsaid: &'static [&'static str],
}

/// Matches all our crates.
const ALL: &str = "*";

/// A protocol machine receives the time and bytes as arguments: it has no reactor, socket or system call.
const NO_IO: &[&str] = &["tokio", "rustix", "socket2", "libc"];
/// Names by which the standard library offers clocks, locks, threads and sockets without a dependency.
const NO_WORLD: &[&str] = &[
    "Instant::now",
    "SystemTime::now",
    "Mutex",
    "RwLock",
    "Condvar",
    "std::thread",
    "TcpStream",
    "TcpListener",
    "UdpSocket",
    "UnixStream",
    "UnixListener",
];
/// A handler uses I/O and tasks only through `pipeline::Worker`. A socket or task of its own would bypass the worker's
/// deadlines, pools and drain, and the profiler.
const NO_SOCKET: &[&str] =
    &["tokio::", "TcpStream", "TcpListener", "UdpSocket", "UnixStream", "UnixListener", "thread::spawn"];

const ROOMS: &[Room] = &[
    // The top: combines all crates, and re-exports them for embedding programs.
    Room { name: "server", may: &[ALL], tests_may: &[ALL], never: &[], unsaid: &[] },
    // Turns text into a plan. It refers to modules by name only, through the registry, so that a user's module is equal
    // to a built-in one. Its tests need some modules.
    Room {
        name: "config",
        may: &["pem", "pipeline"],
        tests_may: &["modules", "message", "testkit"],
        never: &[],
        unsaid: &[],
    },
    // Text to text: the caller reads the files.
    Room { name: "nginx", may: &["go-regexp"], tests_may: &[], never: NO_IO, unsaid: NO_WORLD },
    // A language of its own: the caller provides data, functions and the time.
    Room { name: "go-template", may: &["go-regexp"], tests_may: &[], never: NO_IO, unsaid: NO_WORLD },
    // Text to text: patterns in Go's syntax for handlers and templates.
    Room { name: "go-regexp", may: &[], tests_may: &[], never: NO_IO, unsaid: NO_WORLD },
    Room {
        name: "modules",
        may: &[
            "pipeline",
            "message",
            "fastcgi",
            "go-regexp",
            "go-template",
            "httpgrpc",
            "log-output",
            "pem",
            "progress",
            "shared-counts",
            "trace-output",
        ],
        tests_may: &["testkit"],
        never: &["tokio", "socket2"],
        unsaid: NO_SOCKET,
    },
    // Writes lines to files and sockets on threads of its own, so that handlers need neither. It has no dependency on requests.
    Room { name: "log-output", may: &[], tests_may: &[], never: &["tokio"], unsaid: &[] },
    // Sends spans to a collector on threads of its own, for the same reason. Encoding a span needs no request.
    Room { name: "trace-output", may: &[], tests_may: &["testkit"], never: &[], unsaid: &[] },
    // Exchanges counts with Redis on a thread of its own, for the same reason. What is counted is the caller's matter.
    Room { name: "shared-counts", may: &[], tests_may: &["testkit"], never: &["tokio"], unsaid: &[] },
    // Certificates: no access to connections or configurations, so that signing and files stay out of both.
    Room { name: "certs", may: &["pem"], tests_may: &[], never: &["tokio", "socket2"], unsaid: NO_SOCKET },
    // Text to DER: certificates and configurations, which must not depend on each other, have the same reader.
    Room { name: "pem", may: &[], tests_may: &[], never: NO_IO, unsaid: NO_WORLD },
    // Obtains certificates over the network. It depends on no configuration text and no handler.
    Room { name: "acme", may: &["certs", "dns", "pem"], tests_may: &[], never: &[], unsaid: &[] },
    // Queries DNS servers, for certificates and for upstreams.
    Room { name: "dns", may: &[], tests_may: &[], never: &[], unsaid: &[] },
    // Carries connections, independent of the handlers.
    Room {
        name: "engine",
        may: &["pipeline", "message", "fastcgi", "h1", "h2", "dns", "progress"],
        tests_may: &["testkit"],
        never: &[],
        unsaid: &[],
    },
    // Its tests enable its own features.
    Room {
        name: "tower-edge",
        may: &["engine", "pem", "pipeline", "message"],
        tests_may: &["testkit", "tower-edge"],
        never: &[],
        unsaid: &[],
    },
    // Tests run handlers without a server, which requires that this crate needs no runtime.
    Room {
        name: "pipeline",
        may: &["message", "pem", "progress"],
        tests_may: &["testkit"],
        never: &["tokio"],
        unsaid: NO_SOCKET,
    },
    Room { name: "h1", may: &["message"], tests_may: &["testkit"], never: NO_IO, unsaid: NO_WORLD },
    // Its tests use the `h2` crate of crates.io as a peer.
    Room { name: "h2", may: &["message"], tests_may: &["testkit"], never: NO_IO, unsaid: NO_WORLD },
    Room { name: "fastcgi", may: &["message"], tests_may: &["testkit"], never: NO_IO, unsaid: NO_WORLD },
    Room { name: "httpgrpc", may: &["message"], tests_may: &["testkit"], never: NO_IO, unsaid: NO_WORLD },
    Room { name: "message", may: &[], tests_may: &[], never: NO_IO, unsaid: NO_WORLD },
    // The profiler works for any Rust program, so it must not depend on HTTP.
    Room { name: "causal", may: &["progress"], tests_may: &["testkit"], never: &[], unsaid: &[] },
    Room { name: "progress", may: &[], tests_may: &[], never: &[], unsaid: &[] },
    // Only tests may use it: no other crate lists it in `may`.
    Room {
        name: "testkit",
        may: &["pipeline", "message", "progress"],
        tests_may: &["modules"],
        never: &[],
        unsaid: &[],
    },
    // Only tests may use it.
    Room { name: "simulator", may: &["causal", "progress"], tests_may: &[], never: &[], unsaid: &[] },
    // Must build even when other crates do not.
    Room { name: "xtask", may: &[], tests_may: &[], never: &[], unsaid: &[] },
];

/// Runs `cargo xtask layering`.
pub(crate) fn main() -> anyhow::Result<ExitCode> {
    let faults = faults(&House::find(false)?)?;
    faults.iter().for_each(|fault| eprintln!("{fault}"));
    Ok(if faults.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

pub(crate) fn step(_: &mut Stage, house: &House) -> Result<Done, Halt> {
    let faults = faults(house)?;
    if faults.is_empty() { Ok(Done::default()) } else { Err(Halt::Failed(faults.join("\n"))) }
}

fn faults(house: &House) -> anyhow::Result<Vec<String>> {
    let members = members(&metadata(None)?)?;
    let mut faults = arrows(&members);
    for member in &members {
        if let Some(room) = room(&member.name) {
            faults.extend(sources::faults(&member.directory.join("src"), room.unsaid, &house.root)?);
        }
    }
    Ok(faults)
}

/// A workspace crate, from cargo's metadata.
struct Member {
    name: String,
    directory: PathBuf,
    needs: Vec<Need>,
}

struct Need {
    /// The package's own name, even if the manifest renames it.
    name: String,
    for_tests: bool,
    /// Whether it is our crate, decided by the package's name: another crate may have one of our names without the
    /// prefix (`h2`).
    ours: bool,
}

/// Returns a package's name without the prefix that all our published crates have.
fn short(name: &str) -> String {
    name.strip_prefix("causeway-").unwrap_or(name).to_owned()
}

fn members(meta: &Value) -> anyhow::Result<Vec<Member>> {
    let packages = meta["packages"].as_array().context("cargo metadata: no packages")?;
    let text = |value: &Value, key: &str| {
        value[key].as_str().map(str::to_owned).with_context(|| format!("cargo metadata: a package without {key}"))
    };
    let member = |package: &Value| {
        let needs = package["dependencies"].as_array().context("cargo metadata: a package without dependencies")?;
        let need = |need: &Value| {
            let name = text(need, "name")?;
            let ours = name == "xtask" || name.starts_with("causeway-");
            Ok(Need { name: short(&name), for_tests: need["kind"] == "dev", ours })
        };
        Ok(Member {
            name: short(&text(package, "name")?),
            directory: PathBuf::from(text(package, "manifest_path")?).with_file_name(""),
            needs: needs.iter().map(need).collect::<anyhow::Result<_>>()?,
        })
    };
    packages.iter().map(member).collect()
}

fn room(name: &str) -> Option<&'static Room> {
    ROOMS.iter().find(|room| room.name == name)
}

/// Returns every dependency that the table does not allow.
fn arrows(members: &[Member]) -> Vec<String> {
    let mut faults = Vec::new();
    for Member { name, needs, .. } in members {
        let Some(room) = room(name) else {
            faults.push(format!("{name} is unknown: add it to ROOMS in xtask/src/layering.rs"));
            continue;
        };
        for need in needs {
            let listed = |list: &[&str]| list.contains(&ALL) || list.contains(&need.name.as_str());
            // The wildcard does not include test helpers and xtask, which must not be linked into the server.
            let may = listed(room.may) && need.name != "testkit" && need.name != "xtask";
            if !need.ours {
                if !need.for_tests && room.never.contains(&need.name.as_str()) {
                    faults.push(format!("{name} must not depend on {} (xtask/src/layering.rs)", need.name));
                }
            } else if need.for_tests && !may && !listed(room.tests_may) {
                faults.push(format!("{name}'s tests must not use {} (xtask/src/layering.rs)", need.name));
            } else if !need.for_tests && !may {
                faults.push(format!("{name} must not depend on {} (xtask/src/layering.rs)", need.name));
            }
        }
    }
    faults
}
