//! `build-info`: facts about the build of this program.

use super::VERSION;

/// Returns one fact a line: its name, a tab, its value, as Caddy's command of this name does for Go.
pub(super) fn facts() -> String {
    let checks = if cfg!(debug_assertions) { "on" } else { "off" };
    let facts = [
        ("program", "causeway"),
        ("version", VERSION),
        ("rust", env!("CAUSEWAY_RUSTC")),
        ("target", env!("CAUSEWAY_TARGET")),
        ("opt-level", env!("CAUSEWAY_OPT_LEVEL")),
        ("debug-assertions", checks),
        ("cryptography", "aws-lc-rs"),
        ("allocator", "mimalloc"),
    ];
    facts.map(|(name, value)| format!("{name}\t{value}")).join("\n")
}
