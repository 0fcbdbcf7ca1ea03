//! Passes facts about the build to `causeway build-info`.

use std::env;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let compiler = env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let version = Command::new(compiler).arg("--version").output().ok();
    let version = version.and_then(|output| String::from_utf8(output.stdout).ok());
    let version = version.as_deref().map_or("unknown", str::trim);
    println!("cargo::rustc-env=CAUSEWAY_RUSTC={version}");
    for (name, variable) in [("CAUSEWAY_TARGET", "TARGET"), ("CAUSEWAY_OPT_LEVEL", "OPT_LEVEL")] {
        println!("cargo::rustc-env={name}={}", env::var(variable).unwrap_or_default());
    }
}
