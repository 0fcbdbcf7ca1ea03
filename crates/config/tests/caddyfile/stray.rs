//! No input is silently ignored. A word or a block added after any line of an accepted Caddyfile must cause an error,
//! appear in the JSON, or cause a warning on its line (for an unused definition).
//!
//! [`check`] tests this for every Caddyfile of these tests ([`json`](super::json) calls it), and one test for those of
//! the peer suite.

use std::path::{Path, PathBuf};

use causeway_config::caddyfile::{Directives, adapt};

use super::{environment, json};

const STRAY: &str = "strayword";

/// Lines of these tests that have no effect because another line overrides them, as in Caddy.
const OVERRIDDEN: &[&str] = &["default_bind ", "alpn h2", "a.test, :443"];

/// The text with an addition after one line, in each way that the line allows, and the line's number.
fn variants(source: &str) -> Vec<(u32, String)> {
    let lines = Vec::from_iter(source.split('\n'));
    let mut variants = Vec::new();
    for (index, line) in lines.iter().enumerate() {
        let line = line.trim_end();
        let skipped = line.is_empty() || line.contains('#') || line.ends_with('\\');
        if skipped || OVERRIDDEN.iter().any(|start| line.trim_start().starts_with(start)) {
            continue;
        }
        let with = |changed: String| {
            let mut all = lines.clone();
            all[index] = &changed;
            (u32::try_from(index).unwrap() + 1, all.join("\n"))
        };
        match line.strip_suffix('{') {
            Some(head) if head.trim().is_empty() => {}
            Some(head) => variants.push(with(format!("{head}{STRAY} {{"))),
            None => {
                variants.push(with(format!("{line} {STRAY}")));
                variants.push(with(format!("{line} {{\n{STRAY}\n}}")));
            }
        }
    }
    variants
}

/// Checks the rule for an accepted Caddyfile. `file` names it, and is the base of its relative imports.
#[track_caller]
pub(super) fn check(source: &str, file: &str) {
    // A word after a heredoc's marker would change where the heredoc ends.
    if source.contains("<<") {
        return;
    }
    for (line, changed) in variants(source) {
        let Ok(adapted) = adapt(&changed, file, &Directives::standard(), &environment) else { continue };
        let held = adapted.json.to_string().to_lowercase().contains(STRAY);
        let warned = adapted
            .warnings
            .iter()
            .any(|warning| warning.message.contains("never used") || warning.message.contains("no effect"));
        assert!(held || warned, "line {line} is accepted without its last word:\n{changed}");
    }
}

// One line for each option whose parser does not check all its words itself.
#[test]
fn options_with_few_arguments() {
    let servers = "name a\ntimeouts {\nidle 5s\nread_body 10s\nread_header 1s\nwrite 1s\n}\nmax_header_size 1MB\nkeepalive_interval 1s\n\
                   keepalive_idle 1s\nkeepalive_count 3\nenable_full_duplex\ntrusted_proxies_unix\ntrusted_proxies_strict\n\
                   expected_dot_headers a\nlog_credentials\ntrace\nprotocols h1 h2\nclient_ip_headers A\nstrict_sni_host on\n0rtt off\n\
                   trusted_proxies combine {\nstatic 10.0.0.0/8\ncloudflare {\ninterval 1h\ntimeout 1s\n}\n}\nlistener_wrappers {\nproxy_protocol {\ntimeout 1s\nallow 10.0.0.0/8\n\
                   fallback_policy use\n}\nhttp_redirect\ntls\n}";
    json(&format!("{{\nservers :80 {{\n{servers}\n}}\n}}\n:80 {{\nrespond x\n}}\n"));
    let options = "debug\nhttp_port 8080\nhttps_port 8443\ngrace_period 1s\nshutdown_delay 1s\ndefault_sni a\npersist_config off\n\
                   auto_https off\norder root first\nadmin localhost:2019 {\nenforce_origin\norigins a\n}\n\
                   metrics {\nper_host\n}\nstorage file_system {\nroot /x\n}\nlocal_certs\nskip_install_trust\nemail a@b\n\
                   renew_interval 1h\nocsp_interval 1h\nocsp_stapling off\ncert_lifetime 1h\nkey_type p256\n\
                   pki {\nca {\nname a\nroot {\ncert a\nkey b\n}\n}\n}";
    json(&format!("{{\n{options}\n}}\n:80 {{\nrespond x\n}}\n"));
    let log = "output file /x {\nroll_size 1MB\nroll_keep 3\nroll_keep_for 1h\nmode 0640\nroll_disabled\n}\n\
               format filter {\nwrap json {\ntime_format wall\n}\nfields {\nrequest>a delete\nrequest>b replace x\n\
               request>c ip_mask {\nipv4 24\n}\nrequest>d query {\nreplace a b\ndelete c\n}\n}\n}\nlevel INFO\n\
               sampling {\ninterval 1s\nfirst 1\nthereafter 2\n}";
    json(&format!("{{\nlog {{\n{log}\n}}\n}}\n:80 {{\nlog {{\n{log}\nhostnames a\n}}\nrespond x\n}}\n"));
    json(
        ":80 {\nheader +A b\nheader -C\nheader ?D e\nrequest_header -F\nuri query -a\nuri strip_prefix /a\nabort\nfs a\nmethod GET\n\
         rewrite /a\nroot /a\nredir /a /b html\nlog_append a b\nlog_skip\nlog_level INFO\nmetrics\ntry_files /a\nbind 127.0.0.1\n}\n",
    );
}

// Caddy reads the words of this line as two timeouts, as if each had its own line.
#[test]
fn options_on_one_line_are_all_read() {
    let source =
        |timeouts: &str| format!("{{\nservers {{\ntimeouts {{\n{timeouts}\n}}\n}}\n}}\n:80 {{\nrespond x\n}}\n");
    assert_eq!(json(&source("idle 5s read_body 10s")), json(&source("idle 5s\nread_body 10s")));
}

// The peer suite is not in this repository. The test looks for it next to the repository, or in `PEER_SUITE`.
#[test]
fn the_peer_suite() {
    let beside = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/peer-suite");
    let suite = std::env::var_os("PEER_SUITE").map_or_else(beside, PathBuf::from).join("caddyfile-adapt");
    let Ok(cases) = std::fs::read_dir(suite.join("cases")) else {
        println!("nothing tested: no cases in ../shared/peer-suite/caddyfile-adapt or $PEER_SUITE/caddyfile-adapt");
        return;
    };
    let file = suite.join("integration/Caddyfile").to_string_lossy().into_owned();
    for case in cases {
        let text = std::fs::read_to_string(case.unwrap().path()).unwrap().replace("\r\n", "\n");
        let Some((source, _)) = text.split_once("\n----------\n") else { continue };
        if adapt(source, &file, &Directives::standard(), &environment).is_ok() {
            check(source, &file);
        }
    }
}
