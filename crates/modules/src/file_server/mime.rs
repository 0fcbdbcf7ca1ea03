//! Media types by file extension, with the charset that Go's `mime` package, and so Caddy, adds to text types.

use std::borrow::Cow;

/// Returns the media type for a file name. `None` for an unknown extension: then the response has no Content-Type, and
/// the content is not sniffed.
pub(super) fn of(path: &[u8]) -> Option<Cow<'static, str>> {
    let name = path.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
    let dot = name.iter().rposition(|&byte| byte == b'.')?;
    let extension = std::str::from_utf8(&name[dot + 1..]).ok()?.to_ascii_lowercase();
    // Overrides: types that are built into Go, or that the table spells differently.
    let known = match &*extension {
        "avif" => "image/avif",
        "deb" => "application/vnd.debian.binary-package",
        "dmg" => "application/x-apple-diskimage",
        "ico" => "image/vnd.microsoft.icon",
        "iso" => "application/x-iso9660-image",
        "js" | "mjs" => "text/javascript",
        "json" | "map" => "application/json",
        "log" => "text/plain",
        "m4a" => "audio/mp4",
        "m4v" => "video/mp4",
        "md" => "text/markdown",
        "otf" => "font/otf",
        "rpm" => "application/x-rpm",
        "stl" => "model/stl",
        "svg" => "image/svg+xml",
        // The segments of HTTP Live Streaming (RFC 8216), rather than TypeScript.
        "ts" => "video/mp2t",
        "wasm" => "application/wasm",
        "webmanifest" => "application/manifest+json",
        "webp" => "image/webp",
        "woff" => "font/woff",
        "xml" => "text/xml",
        "yaml" | "yml" => "application/yaml",
        "zst" => "application/zstd",
        _ => mime_guess::from_ext(&extension).first_raw()?,
    };
    Some(if known.starts_with("text/") { format!("{known}; charset=utf-8").into() } else { known.into() })
}

#[cfg(test)]
mod tests {
    // Go, package mime, func TypeByExtension: "Text types have the charset parameter set to "utf-8" by default."
    #[test]
    fn types() {
        for (path, want) in [
            ("/a/index.html", Some("text/html; charset=utf-8")),
            ("/a.HTM", Some("text/html; charset=utf-8")),
            ("a.css", Some("text/css; charset=utf-8")),
            ("a.js", Some("text/javascript; charset=utf-8")),
            ("a.json", Some("application/json")),
            ("a.tar.gz", Some("application/gzip")),
            ("a.png", Some("image/png")),
            ("a.svg", Some("image/svg+xml")),
            ("a.wasm", Some("application/wasm")),
            ("a.txt", Some("text/plain; charset=utf-8")),
            ("a.pdf", Some("application/pdf")),
            ("a.woff2", Some("font/woff2")),
            ("a.woff", Some("font/woff")),
            ("a.ts", Some("video/mp2t")),
            ("a.tar.zst", Some("application/zstd")),
            ("a.mp4", Some("video/mp4")),
            ("README", None),
            ("a.b/README", None),
            ("a.nosuchtype", None),
            ("a.", None),
            ("a.\u{e4}", None),
        ] {
            assert_eq!(super::of(path.as_bytes()).as_deref(), want, "{path}");
        }
    }
}
