//! Expands the Caddyfile's short placeholders, such as `{path}`, to their JSON names.

use super::segment::Segment;

/// Short names and their expansions, without braces.
const SHORT: &[(&str, &str)] = &[
    ("host", "http.request.host"),
    ("hostport", "http.request.hostport"),
    ("port", "http.request.port"),
    ("orig_method", "http.request.orig_method"),
    ("orig_uri", "http.request.orig_uri"),
    ("orig_path", "http.request.orig_uri.path"),
    ("orig_dir", "http.request.orig_uri.path.dir"),
    ("orig_file", "http.request.orig_uri.path.file"),
    ("orig_query", "http.request.orig_uri.query"),
    ("orig_?query", "http.request.orig_uri.prefixed_query"),
    ("method", "http.request.method"),
    ("uri", "http.request.uri"),
    ("%uri", "http.request.uri_escaped"),
    ("path", "http.request.uri.path"),
    ("%path", "http.request.uri.path_escaped"),
    ("dir", "http.request.uri.path.dir"),
    ("file", "http.request.uri.path.file"),
    ("query", "http.request.uri.query"),
    ("%query", "http.request.uri.query_escaped"),
    ("?query", "http.request.uri.prefixed_query"),
    ("remote", "http.request.remote"),
    ("remote_host", "http.request.remote.host"),
    ("remote_port", "http.request.remote.port"),
    ("scheme", "http.request.scheme"),
    ("uuid", "http.request.uuid"),
    ("tls_cipher", "http.request.tls.cipher_suite"),
    ("tls_version", "http.request.tls.version"),
    ("tls_client_fingerprint", "http.request.tls.client.fingerprint"),
    ("tls_client_issuer", "http.request.tls.client.issuer"),
    ("tls_client_serial", "http.request.tls.client.serial"),
    ("tls_client_subject", "http.request.tls.client.subject"),
    ("tls_client_certificate_pem", "http.request.tls.client.certificate_pem"),
    ("tls_client_certificate_der_base64", "http.request.tls.client.certificate_der_base64"),
    ("upstream_hostport", "http.reverse_proxy.upstream.hostport"),
    ("client_ip", "http.vars.client_ip"),
];

/// Short prefixes `{name.*}`, their expansions, and whether the part after the prefix may contain dots.
const FAMILIES: &[(&str, &str, Dots)] = &[
    ("header.", "http.request.header.", Dots::No),
    ("cookie.", "http.request.cookie.", Dots::No),
    ("labels.", "http.request.host.labels.", Dots::No),
    ("path.", "http.request.uri.path.", Dots::No),
    ("file.", "http.request.uri.path.file.", Dots::No),
    ("query.", "http.request.uri.query.", Dots::No),
    ("re.", "http.regexp.", Dots::Yes),
    ("vars.", "http.vars.", Dots::No),
    ("rp.", "http.reverse_proxy.", Dots::Yes),
    ("resp.", "http.intercept.", Dots::Yes),
    ("err.", "http.error.", Dots::Yes),
    ("file_match.", "http.matchers.file.", Dots::No),
];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Dots {
    Yes,
    No,
}

/// Expands all words of the segments, blocks included.
pub(crate) fn expand_shorthands(segments: &mut [Segment]) {
    for segment in segments {
        segment.for_each_token(&mut |token| {
            if token.text.contains('{') {
                token.text = expand(&token.text).into();
            }
        });
    }
}

/// The short name whose expansion is `placeholder`, with or without braces.
pub(crate) fn shorthand_of(placeholder: &str) -> Option<&'static str> {
    let name = placeholder.trim_matches(['{', '}']);
    SHORT.iter().find(|(_, long)| *long == name).map(|(short, _)| *short)
}

fn expand(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(open) = rest.find('{') {
        out.push_str(&rest[..open]);
        rest = &rest[open..];
        // No name has a brace. A search beyond the next one would take quadratic time for a text of open braces.
        let brace = rest[1..].find(['{', '}']).filter(|brace| rest.as_bytes()[1 + *brace] == b'}');
        let found = brace.map(|brace| &rest[1..=brace]).and_then(|name| Some((name, expansion(name)?)));
        match found {
            Some((name, long)) => {
                out.push('{');
                out.push_str(&long);
                out.push('}');
                rest = &rest[name.len() + 2..];
            }
            // Copies the brace only: a shorthand may start directly after it.
            None => {
                out.push('{');
                rest = &rest[1..];
            }
        }
    }
    out + rest
}

fn expansion(name: &str) -> Option<String> {
    if let Some((_, long)) = SHORT.iter().find(|(short, _)| *short == name) {
        return Some((*long).to_owned());
    }
    FAMILIES.iter().find_map(|(short, long, dots)| {
        let part = name.strip_prefix(short)?;
        let word =
            |ch: char| ch.is_ascii_alphanumeric() || matches!(ch, '_' | '-') || (ch == '.' && *dots == Dots::Yes);
        part.chars().all(word).then(|| format!("{long}{part}"))
    })
}
