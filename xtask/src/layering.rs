//! Which crate may know which, and what may a room not even mention?
//!
//! [`ROOMS`] is the allow-list that ARCHITECTURE.md's map is held to. Three checks read it: the arrows between our crates,
//! the absence of third-party crates, and ([`sources`]) the absence of names that the compiler would let through.

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

/// One crate and what it may know. Names are without the `causeway-` prefix.
struct Room {
    name: &'static str,
    /// Our crates that it may depend on, for building too.
    may: &'static [&'static str],
    /// Our crates that its tests may use besides.
    tests_may: &'static [&'static str],
    /// Third-party crates it must not depend on; its tests may.
    never: &'static [&'static str],
    /// Words its source must not contain; its tests may.
    unsaid: &'static [&'static str],
}

/// Stands for every crate of ours.
const ALL: &str = "*";

/// A protocol machine is told the time, and is told octets: it owns neither reactor, socket nor system call.
const NO_IO: &[&str] = &["tokio", "rustix", "socket2", "libc"];
/// The same for what the standard library would hand out without a dependency: clocks, locks, threads, sockets.
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
/// A handler asks `pipeline::Worker` for the world. Its own socket or task would escape the worker's deadlines, pools and
/// drain, and the profiler.
const NO_SOCKET: &[&str] =
    &["tokio::", "TcpStream", "TcpListener", "UdpSocket", "UnixStream", "UnixListener", "thread::spawn"];

const ROOMS: &[Room] = &[
    // The top: joins all, and names them for those who embed it.
    Room { name: "causeway", may: &[ALL], tests_may: &[ALL], never: &[], unsaid: &[] },
    // Turns text into a plan. It meets modules by name only, through the registry, so a user's module is no second class;
    // its tests need some module to meet.
    Room { name: "config", may: &["pipeline"], tests_may: &["modules", "message", "testkit"], never: &[], unsaid: &[] },
    Room {
        name: "modules",
        may: &["pipeline", "message", "httpgrpc", "progress"],
        tests_may: &["testkit"],
        never: &["tokio", "socket2"],
        unsaid: NO_SOCKET,
    },
    // Certificates: it never meets a connection or a configuration, so that signing and files stay off both.
    Room { name: "certs", may: &[], tests_may: &[], never: &["tokio", "socket2"], unsaid: NO_SOCKET },
    // Carries connections and never learns what the handlers are.
    Room {
        name: "engine",
        may: &["pipeline", "message", "h1", "h2", "progress"],
        tests_may: &["testkit"],
        never: &[],
        unsaid: &[],
    },
    // Its tests turn its own features on.
    Room {
        name: "tower-edge",
        may: &["engine", "pipeline", "message"],
        tests_may: &["testkit", "tower-edge"],
        never: &[],
        unsaid: &[],
    },
    // Tests run handlers without a server, which only works while nothing here needs a runtime.
    Room {
        name: "pipeline",
        may: &["message", "progress"],
        tests_may: &["testkit"],
        never: &["tokio"],
        unsaid: NO_SOCKET,
    },
    Room { name: "h1", may: &["message"], tests_may: &[], never: NO_IO, unsaid: NO_WORLD },
    // Its tests use the crate that has its name, as a peer.
    Room { name: "h2", may: &["message"], tests_may: &[], never: NO_IO, unsaid: NO_WORLD },
    Room { name: "httpgrpc", may: &["message"], tests_may: &[], never: NO_IO, unsaid: NO_WORLD },
    Room { name: "message", may: &[], tests_may: &[], never: NO_IO, unsaid: NO_WORLD },
    // The profiler serves any Rust program: it would be useless to most if it knew HTTP.
    Room { name: "causal", may: &["progress"], tests_may: &[], never: &[], unsaid: &[] },
    Room { name: "progress", may: &[], tests_may: &[], never: &[], unsaid: &[] },
    // Only tests may name it: it stands in no other room's `may`.
    Room {
        name: "testkit",
        may: &["pipeline", "message", "progress"],
        tests_may: &["modules"],
        never: &[],
        unsaid: &[],
    },
    // Only tests may name it, as above.
    Room { name: "simulator", may: &["causal", "progress"], tests_may: &[], never: &[], unsaid: &[] },
    // Must build when everything else does not.
    Room { name: "xtask", may: &[], tests_may: &[], never: &[], unsaid: &[] },
];

/// `cargo xtask layering`
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
            faults.extend(sources::faults(&member.folder.join("src"), room.unsaid, &house.root)?);
        }
    }
    Ok(faults)
}

/// A crate of the workspace, as cargo sees it.
struct Member {
    name: String,
    folder: PathBuf,
    needs: Vec<Need>,
}

struct Need {
    /// The package's own name, whatever the manifest renames it to.
    name: String,
    for_tests: bool,
    /// By its package's name: another's crate may be called as one of ours without the prefix (`h2`).
    ours: bool,
}

/// Cargo's name for a crate, without the prefix that every crate of ours but the top has.
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
            let ours =
                matches!(name.as_str(), "causal" | "causeway" | "progress" | "xtask") || name.starts_with("causeway-");
            Ok(Need { name: short(&name), for_tests: need["kind"] == "dev", ours })
        };
        Ok(Member {
            name: short(&text(package, "name")?),
            folder: PathBuf::from(text(package, "manifest_path")?).with_file_name(""),
            needs: needs.iter().map(need).collect::<anyhow::Result<_>>()?,
        })
    };
    packages.iter().map(member).collect()
}

fn room(name: &str) -> Option<&'static Room> {
    ROOMS.iter().find(|room| room.name == name)
}

/// Every dependency that the table does not allow.
fn arrows(members: &[Member]) -> Vec<String> {
    let mut faults = Vec::new();
    for Member { name, needs, .. } in members {
        let Some(room) = room(name) else {
            faults.push(format!("{name} has no room: say in xtask/src/layering.rs, ROOMS, what it may depend on"));
            continue;
        };
        for need in needs {
            let listed = |list: &[&str]| list.contains(&ALL) || list.contains(&need.name.as_str());
            // The wildcard is for rooms that run. Linking a test's helper into the server is no one's intention.
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
