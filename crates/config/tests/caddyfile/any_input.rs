use proptest::prelude::*;

use super::read;

/// Words with a meaning in Caddyfiles, with blanks and quotes between them.
const PIECES: &[&str] = &[
    " ",
    " ",
    " ",
    "\n",
    "\n",
    "\n\t",
    "{",
    "}",
    " {\n",
    "\n}\n",
    "{}",
    "\"",
    "`",
    "\\",
    "#",
    ",",
    "<<A\n",
    "\nA",
    "{$HOST}",
    "{$TWO_LINES}",
    "{$",
    "\r\n",
    "\u{feff}",
    "ä",
    ":80",
    "a.test",
    "http://",
    "https://*.b:8443/x*",
    "[::1]",
    "&(r)",
    "(s)",
    "import ",
    "import s a b",
    "{args[0]}",
    "{args[1:]}",
    "{block}",
    "{blocks.a}",
    "@m",
    "@m path /x",
    "not ",
    "expression",
    "header_regexp a b",
    "respond",
    "header",
    "root",
    "file_server",
    "browse",
    "precompressed",
    "handle",
    "handle_path /x*",
    "handle_errors 4xx",
    "route",
    "invoke r",
    "reverse_proxy ",
    "php_fastcgi ",
    "forward_auth ",
    "https://b:1-3",
    "h2c://[::1%25]é",
    "unix//a|7",
    "dns:///",
    "copy_headers a>b",
    "transport http",
    "lb_policy header",
    "fallback ",
    "dynamic multi",
    "handle_response @m",
    "status 2xx",
    "vars",
    "map",
    "uri query a>b",
    "rewrite",
    "try_files a b?c d",
    "redir",
    "bind",
    "tls",
    "internal",
    "ann@a.test",
    "client_auth {\n",
    "trust_pool",
    "combined {\nsource",
    "verifier leaf",
    "issuer acme",
    "zerossl",
    "preferred_chains",
    "acme_server",
    "ca",
    "pki",
    "cert_issuer",
    "local_certs",
    "email",
    "on_demand_tls",
    "renewal_window_ratio",
    "servers",
    "timeouts",
    "order respond first",
    "admin",
    "default_bind",
    "metrics",
    "*",
    "/a*",
    "@m",
    "200",
    "-1",
    "99999999999999999999",
    "?x",
    "+y",
    "-z",
    ">w",
    "match",
    "defer",
    "{host}",
    "{header.x}",
];

pub(super) fn soup() -> impl Strategy<Value = String> {
    let piece = prop_oneof![8 => proptest::sample::select(PIECES).prop_map(str::to_owned), 1 => ".{0,3}"];
    proptest::collection::vec(piece, 0..60).prop_map(|pieces| pieces.concat())
}

/// For any text: no panic, and an error's position is on a line of the file.
fn survives(source: &str) -> Result<(), TestCaseError> {
    if let Err(error) = read(source) {
        let lines = source.split('\n').count();
        prop_assert!((1..=lines).contains(&(error.position().line as usize)), "{error}");
        prop_assert!(!error.to_string().contains('\n'), "{error}");
        error.caddy_message();
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn token_soup(source in soup()) {
        survives(&source)?;
    }

    #[test]
    fn token_soup_in_a_site(source in soup()) {
        survives(&format!("(s) {{\nrespond {{args[0]}}\n}}\n&(r) {{\nrespond x\n}}\n:80 {{\n@m path /x\n{source}\n}}\n"))?;
    }

    #[test]
    fn any_text(source in "\\PC{0,80}") {
        survives(&source)?;
    }
}

// Deep nesting is rejected before it can exhaust the stack.
#[test]
fn nesting_is_bounded() {
    let source = format!(":80 {{\n{}", "handle {\n".repeat(100_000));
    let error = read(&source).unwrap_err();
    assert_eq!(error.position().line, 33);
    let source = format!(":80 {{\n@m {}path /x\nrespond @m x\n}}\n", "not ".repeat(2_000));
    survives(&source).unwrap();
}
