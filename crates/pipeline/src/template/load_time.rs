//! Placeholders that stay as they are while a configuration runs: the environment, the system, files.
//!
//! They are looked at once, when the configuration is loaded: what Caddy reads from the disk for each request
//! (`{file.PATH}`) is read again with the next load.

use std::io::Read as _;

use crate::build::Build;

/// Octets of a file that `{file.PATH}` stands for at most; the rest is cut off.
const FILE_OCTETS_MAX: u64 = 1024 * 1024;

pub(super) fn text(name: &str, build: &Build<'_>) -> Option<String> {
    if let Some(variable) = name.strip_prefix("env.") {
        return Some(build.environment(variable).unwrap_or_default());
    }
    if let Some(path) = name.strip_prefix("file.") {
        return Some(file(path));
    }
    Some(match name {
        "system.hostname" => rustix::system::uname().nodename().to_string_lossy().into_owned(),
        "system.slash" => std::path::MAIN_SEPARATOR.to_string(),
        "system.os" => std::env::consts::OS.to_owned(),
        "system.arch" => arch().to_owned(),
        "system.wd" => std::env::current_dir().map(|path| path.display().to_string()).unwrap_or_default(),
        _ => return None,
    })
}

/// Without the line end at its own end. A file that can't be read is an empty text, as in Caddy.
fn file(path: &str) -> String {
    let mut octets = Vec::new();
    let read = std::fs::File::open(path).and_then(|file| file.take(FILE_OCTETS_MAX).read_to_end(&mut octets));
    if let Err(error) = read {
        tracing::error!(path, %error, "a file that a placeholder names cannot be read");
        return String::new();
    }
    let text = String::from_utf8_lossy(&octets);
    let text = text.strip_suffix('\n').unwrap_or(&text);
    text.strip_suffix('\r').unwrap_or(text).to_owned()
}

/// The machine's architecture by the name that Caddy gives it.
fn arch() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        "x86" => "386",
        other => other,
    }
}
