//! Checks the dependencies between crates, and names that a crate's source must not contain.
//!
//! [`RULES`] is the allow-list that enforces ARCHITECTURE.md's map. Three checks use it: the dependencies between our
//! crates, the absence of third-party crates, and ([`sources`]) the absence of names that the compiler would accept.

mod sources;
#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use serde_json::Value;

use crate::report::{Done, StepError};
use crate::stage::Stage;
use crate::steps::{Workspace, metadata};

/// A crate with its rules. Names are without the `causeway-` prefix.
struct CrateRules {
    name: &'static str,
    /// Our crates that it may depend on, also for building.
    may: &'static [&'static str],
    /// Our crates that its tests may use in addition.
    tests_may: &'static [&'static str],
    /// Third-party crates that it must not depend on; its tests may.
    never: &'static [&'static str],
    /// Words that its source must not contain; its tests may.
    forbidden_names: &'static [&'static str],
}

/// Matches all our crates.
const ALL: &str = "*";

/// A protocol machine receives the time and bytes as arguments: it has no reactor, socket or system call.
const NO_IO: &[&str] = &["tokio", "rustix", "socket2", "libc"];
/// Names by which the standard library offers clocks, locks, threads and sockets without a dependency.
const NO_CLOCKS_OR_SOCKETS: &[&str] = &[
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

const RULES: &[CrateRules] = &[
    // The top: combines all crates, and re-exports them for embedding programs.
    CrateRules { name: "server", may: &[ALL], tests_may: &[ALL], never: &[], forbidden_names: &[] },
    // Turns text into a plan. It refers to modules by name only, through the registry, so that a user's module is equal
    // to a built-in one. Its tests need some modules.
    CrateRules {
        name: "config",
        may: &["pem", "pipeline"],
        tests_may: &["modules", "message", "testkit"],
        never: &[],
        forbidden_names: &[],
    },
    // Text to text: the caller reads the files.
    CrateRules {
        name: "nginx",
        may: &["go-regexp"],
        tests_may: &[],
        never: NO_IO,
        forbidden_names: NO_CLOCKS_OR_SOCKETS,
    },
    // A language of its own: the caller provides data, functions and the time.
    CrateRules {
        name: "go-template",
        may: &["go-regexp"],
        tests_may: &[],
        never: NO_IO,
        forbidden_names: NO_CLOCKS_OR_SOCKETS,
    },
    // Text to text: patterns in Go's syntax for handlers and templates.
    CrateRules { name: "go-regexp", may: &[], tests_may: &[], never: NO_IO, forbidden_names: NO_CLOCKS_OR_SOCKETS },
    CrateRules {
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
        forbidden_names: NO_SOCKET,
    },
    // Writes lines to files and sockets on threads of its own, so that handlers need neither. It has no dependency on
    // requests.
    CrateRules { name: "log-output", may: &[], tests_may: &[], never: &["tokio"], forbidden_names: &[] },
    // Sends spans to a collector on threads of its own, for the same reason. Encoding a span needs no request.
    CrateRules { name: "trace-output", may: &[], tests_may: &["testkit"], never: &[], forbidden_names: &[] },
    // Exchanges counts with Redis on a thread of its own, for the same reason. What is counted is the caller's matter.
    CrateRules { name: "shared-counts", may: &[], tests_may: &["testkit"], never: &["tokio"], forbidden_names: &[] },
    // Certificates: no access to connections or configurations, so that signing and files stay out of both.
    CrateRules {
        name: "certs",
        may: &["pem"],
        tests_may: &["testkit"],
        never: &["tokio", "socket2"],
        forbidden_names: NO_SOCKET,
    },
    // Text to DER: certificates and configurations, which must not depend on each other, have the same reader.
    CrateRules { name: "pem", may: &[], tests_may: &[], never: NO_IO, forbidden_names: NO_CLOCKS_OR_SOCKETS },
    // Obtains certificates over the network. It depends on no configuration text and no handler.
    CrateRules { name: "acme", may: &["certs", "dns", "pem"], tests_may: &[], never: &[], forbidden_names: &[] },
    // Queries DNS servers, for certificates and for upstreams.
    CrateRules { name: "dns", may: &[], tests_may: &[], never: &[], forbidden_names: &[] },
    // Carries connections, independent of the handlers.
    CrateRules {
        name: "engine",
        may: &["pipeline", "message", "fastcgi", "h1", "h2", "dns", "progress"],
        tests_may: &["testkit"],
        never: &[],
        forbidden_names: &[],
    },
    // Its tests enable its own features.
    CrateRules {
        name: "tower-edge",
        may: &["engine", "pem", "pipeline", "progress", "message"],
        tests_may: &["testkit", "tower-edge"],
        never: &[],
        forbidden_names: &[],
    },
    // Tests run handlers without a server, which requires that this crate needs no runtime.
    CrateRules {
        name: "pipeline",
        may: &["message", "pem", "progress"],
        tests_may: &["testkit"],
        never: &["tokio"],
        forbidden_names: NO_SOCKET,
    },
    CrateRules {
        name: "h1",
        may: &["message"],
        tests_may: &["testkit"],
        never: NO_IO,
        forbidden_names: NO_CLOCKS_OR_SOCKETS,
    },
    // Its tests use the `h2` crate of crates.io as a peer.
    CrateRules {
        name: "h2",
        may: &["message"],
        tests_may: &["testkit"],
        never: NO_IO,
        forbidden_names: NO_CLOCKS_OR_SOCKETS,
    },
    CrateRules {
        name: "fastcgi",
        may: &["message"],
        tests_may: &["testkit"],
        never: NO_IO,
        forbidden_names: NO_CLOCKS_OR_SOCKETS,
    },
    CrateRules {
        name: "httpgrpc",
        may: &["message"],
        tests_may: &["testkit"],
        never: NO_IO,
        forbidden_names: NO_CLOCKS_OR_SOCKETS,
    },
    CrateRules { name: "message", may: &[], tests_may: &[], never: NO_IO, forbidden_names: NO_CLOCKS_OR_SOCKETS },
    // The profiler works for any Rust program, so it must not depend on HTTP.
    CrateRules { name: "causal", may: &["progress"], tests_may: &["testkit"], never: &[], forbidden_names: &[] },
    CrateRules { name: "progress", may: &[], tests_may: &[], never: &[], forbidden_names: &[] },
    // Only tests may use it: no other crate lists it in `may`.
    CrateRules {
        name: "testkit",
        may: &["pipeline", "message", "progress"],
        tests_may: &["modules"],
        never: &[],
        forbidden_names: &[],
    },
    // Only tests may use it.
    CrateRules { name: "simulator", may: &["causal", "progress"], tests_may: &[], never: &[], forbidden_names: &[] },
    // Must build even when other crates do not.
    CrateRules { name: "xtask", may: &[], tests_may: &[], never: &[], forbidden_names: &[] },
];

/// Runs `cargo xtask layering`.
pub(crate) fn main() -> anyhow::Result<ExitCode> {
    let violations = violations(&Workspace::find(false)?)?;
    violations.iter().for_each(|violation| eprintln!("{violation}"));
    Ok(if violations.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

pub(crate) fn step(_: &mut Stage, workspace: &Workspace) -> Result<Done, StepError> {
    let violations = violations(workspace)?;
    if violations.is_empty() { Ok(Done::default()) } else { Err(StepError::Failed(violations.join("\n"))) }
}

fn violations(workspace: &Workspace) -> anyhow::Result<Vec<String>> {
    let members = members(&metadata(None)?)?;
    let mut violations = forbidden_dependencies(&members);
    for member in &members {
        if let Some(rules) = rules_of(&member.name) {
            violations.extend(sources::violations(
                &member.directory.join("src"),
                rules.forbidden_names,
                &workspace.root,
            )?);
        }
    }
    Ok(violations)
}

/// A workspace crate, from cargo's metadata.
struct Member {
    name: String,
    directory: PathBuf,
    dependencies: Vec<Dependency>,
}

struct Dependency {
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
        let dependencies =
            package["dependencies"].as_array().context("cargo metadata: a package without dependencies")?;
        let dependency = |dependency: &Value| {
            let name = text(dependency, "name")?;
            let ours = name == "xtask" || name.starts_with("causeway-");
            Ok(Dependency { name: short(&name), for_tests: dependency["kind"] == "dev", ours })
        };
        Ok(Member {
            name: short(&text(package, "name")?),
            directory: PathBuf::from(text(package, "manifest_path")?).with_file_name(""),
            dependencies: dependencies.iter().map(dependency).collect::<anyhow::Result<_>>()?,
        })
    };
    packages.iter().map(member).collect()
}

fn rules_of(name: &str) -> Option<&'static CrateRules> {
    RULES.iter().find(|rules| rules.name == name)
}

/// Returns every dependency that the table does not allow.
fn forbidden_dependencies(members: &[Member]) -> Vec<String> {
    let mut violations = Vec::new();
    for Member { name, dependencies, .. } in members {
        let Some(rules) = rules_of(name) else {
            violations.push(format!("{name} is unknown: add it to RULES in xtask/src/layering.rs"));
            continue;
        };
        for dependency in dependencies {
            let listed = |list: &[&str]| list.contains(&ALL) || list.contains(&dependency.name.as_str());
            // The wildcard does not include test helpers and xtask, which must not be linked into the server.
            let may = listed(rules.may) && dependency.name != "testkit" && dependency.name != "xtask";
            if !dependency.ours {
                if !dependency.for_tests && rules.never.contains(&dependency.name.as_str()) {
                    violations.push(format!("{name} must not depend on {} (xtask/src/layering.rs)", dependency.name));
                }
            } else if dependency.for_tests && !may && !listed(rules.tests_may) {
                violations.push(format!("{name}'s tests must not use {} (xtask/src/layering.rs)", dependency.name));
            } else if !dependency.for_tests && !may {
                violations.push(format!("{name} must not depend on {} (xtask/src/layering.rs)", dependency.name));
            }
        }
    }
    violations
}
