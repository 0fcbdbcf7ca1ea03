//! Guesses the intended word: a close spelling, our equivalent of another server's directive or of a plugin's, or a
//! misplaced site address.

use super::directives::tls;
use super::proxy;

/// The known word closest to `written`: at most two edits away, and fewer edits than half of its letters.
pub(crate) fn near<'a>(known: impl Iterator<Item = &'a str>, written: &str) -> Option<&'a str> {
    // A swap of two neighbours is one edit.
    let near = known.map(|known| (strsim::osa_distance(known, written), known));
    near.filter(|(distance, known)| (1..=2).contains(distance) && *distance * 2 < known.len())
        .min()
        .map(|(_, known)| known)
}

/// As [`near`], among the single words that a sentence lists after "expected" or "one of". Ignores items of several
/// words, which are examples or descriptions.
pub(crate) fn near_in_sentence<'a>(sentence: &'a str, written: &str) -> Option<&'a str> {
    let (_, list) = sentence.rsplit_once("expected ").or_else(|| sentence.rsplit_once("one of "))?;
    let items = list.split([',', ';']).flat_map(|item| item.split(" or "));
    let words = items.map(|item| item.trim().trim_matches(['\'', '`', '"']).trim_start_matches("or "));
    near(words.filter(|word| word.len() > 2 && !word.contains(' ')), written)
}

/// The block that a subdirective belongs to, for one that stands in a site block by mistake.
pub(crate) fn home_of(subdirective: &str) -> Option<&'static str> {
    match subdirective {
        name if proxy::OPTIONS.contains(&name) => Some("reverse_proxy"),
        name if tls::SUBDIRECTIVES.contains(&name) => Some("tls"),
        name if proxy::TRANSPORT_OPTIONS.contains(&name) => Some("transport http, in that of reverse_proxy"),
        "hide" | "precompressed" | "pass_thru" => Some("file_server"),
        "output" | "format" | "level" => Some("log"),
        "max_size" => Some("request_body"),
        "email" | "acme_ca" | "auto_https" | "debug" | "admin" | "servers" | "order" => {
            Some("global options, at the top of the file")
        }
        _ => None,
    }
}

/// The place or the name of an option that `reverse_proxy` has elsewhere, or had in Caddy 1.
pub(crate) fn in_proxy(option: &str) -> Option<&'static str> {
    Some(match option {
        "timeout" | "timeouts" => {
            "time limits are those of 'transport http', such as 'response_header_timeout' and 'dial_timeout'"
        }
        "insecure_skip_verify" => "it is 'tls_insecure_skip_verify' in 'transport http'",
        "websocket" | "transparent" => "nothing takes its place: the proxy does this by itself",
        "header_upstream" => "it is 'header_up' here",
        "header_downstream" => "it is 'header_down' here",
        "health_check" => "it is 'health_uri' here",
        "without" => "'uri strip_prefix' or 'handle_path' removes a prefix",
        _ if proxy::TRANSPORT_OPTIONS.contains(&option) => "it belongs in the block of 'transport http'",
        _ => return None,
    })
}

/// The equivalent of a directive of nginx, Apache or Caddy 1.
pub(crate) fn of_another_server(directive: &str) -> Option<&'static str> {
    const HINTS: &[(&[&str], &str)] = &[
        (&["proxy_pass", "ProxyPass", "grpc_pass", "uwsgi_pass", "proxy"], "reverse_proxy HOST:PORT"),
        (&["upstream"], "reverse_proxy with several addresses"),
        (&["fastcgi_pass", "fastcgi"], "php_fastcgi HOST:PORT"),
        (&["location", "<Location"], "handle /path/* { … }"),
        (&["listen", "Listen"], "a port in the site's address, as in example.com:8080 { … }"),
        (&["server_name", "ServerName", "ServerAlias"], "the site's address before its block, as in example.com { … }"),
        (&["server", "<VirtualHost"], "the site's address before its block, as in example.com { … }"),
        (&["ssl_certificate", "ssl_certificate_key", "SSLCertificateFile", "ssl"], "tls CERTIFICATE KEY"),
        (&["ssl_protocols", "ssl_ciphers"], "tls { protocols …; ciphers … }"),
        (&["ssl_client_certificate", "ssl_verify_client"], "tls { client_auth { … } }"),
        (&["gzip", "gzip_types", "gzip_static", "brotli"], "encode, or precompressed in file_server"),
        (&["return"], "redir TARGET [STATUS], or respond TEXT [STATUS]"),
        (&["add_header", "more_set_headers", "Header"], "header FIELD VALUE"),
        (&["expires"], "header Cache-Control VALUE"),
        (&["proxy_set_header", "proxy_hide_header"], "header_up and header_down in reverse_proxy { … }"),
        (&["proxy_read_timeout", "proxy_connect_timeout"], "transport http { read_timeout …; dial_timeout … }"),
        (&["index", "DirectoryIndex"], "file_server { index … }"),
        (&["ext"], "try_files {path}.html"),
        (&["browse"], "file_server browse"),
        (&["autoindex"], "file_server browse"),
        (&["alias", "Alias"], "handle_path /path/* { root … }"),
        (&["DocumentRoot"], "root DIRECTORY"),
        (&["error_page", "ErrorDocument", "errors"], "handle_errors { … }"),
        (&["access_log", "error_log", "CustomLog", "ErrorLog"], "log"),
        (&["client_max_body_size"], "request_body { max_size … }"),
        (&["auth_basic", "auth_basic_user_file", "AuthType"], "basic_auth { USER HASH }"),
        (&["auth_request"], "forward_auth HOST:PORT"),
        (&["allow", "deny", "Require"], "@name remote_ip RANGES, and respond @name 403"),
        (&["set"], "vars NAME VALUE"),
        (&["if"], "a named matcher, as in @name path /a*"),
        (&["include", "Include"], "import FILE"),
        (&["RewriteRule", "RewriteEngine"], "rewrite, redir or uri"),
        (&["sub_filter", "sendfile", "tcp_nopush", "worker_processes", "keepalive_timeout"], "no equivalent"),
    ];
    // In nginx a line ends with a semicolon, which is a part of the word here.
    let directive = directive.trim_end_matches(';');
    HINTS.iter().find(|(names, _)| names.contains(&directive)).map(|(_, hint)| *hint)
}

/// The plugin of Caddy that a directive, a global option or a module belongs to, and our alternative.
pub(crate) fn of_a_plugin(name: &str) -> Option<(&'static str, &'static str)> {
    const PLUGINS: &[(&[&str], &str, &str)] = &[
        (&["php_server", "php", "frankenphp"], "FrankenPHP", "php_fastcgi, with PHP-FPM"),
        (&["mercure"], "Mercure", "reverse_proxy to a Mercure hub"),
        (&["vulcain"], "Vulcain", "reverse_proxy to a Vulcain gateway"),
        (&["coraza_waf", "waf"], "Coraza", "no equivalent"),
        (&["crowdsec", "appsec"], "CrowdSec", "its bouncer for firewalls, which reads the access log"),
        (&["webdav"], "WebDAV", "reverse_proxy to a WebDAV server"),
        (&["security", "authenticate", "authorize", "authp"], "caddy-security", "forward_auth, or basic_auth"),
        (&["jwtauth"], "caddy-jwt", "forward_auth"),
        (&["layer4"], "layer4", "no equivalent: this server carries HTTP only"),
        (&["forward_proxy"], "forwardproxy", "no equivalent: this server is no forward proxy"),
        (&["dynamic_dns"], "dynamicdns", "a program that updates the DNS record"),
        (&["cgi"], "caddy-cgi", "reverse_proxy with `transport fastcgi`"),
        (&["exec", "supervisor"], "exec or supervisor", "a unit of systemd"),
        (&["replace", "replace_response"], "replace-response", "no equivalent"),
        (&["realip"], "realip", "trusted_proxies in the global option servers"),
        (&["geoip", "geo_ip", "maxmind_geolocation", "geocn"], "MaxMind GeoIP", "no equivalent"),
        (&["authelia"], "caddy-authelia", "forward_auth to Authelia"),
        (&["http_cache"], "http-cache", "cache"),
        (&["zlog"], "zlog", "log"),
        (&["if"], "caddy-conditional-logging", "log_skip with a matcher"),
        (&["jsonselect"], "caddy-jsonselect-encoder", "format filter, or format transform"),
        (&["formatted"], "format-encoder", "format transform"),
        (&["s3proxy"], "s3-proxy", "reverse_proxy to the bucket's address"),
    ];
    let (_, plugin, instead) = PLUGINS.iter().find(|(names, ..)| names.contains(&name))?;
    Some((plugin, instead))
}

/// Returns why an earlier version of Caddy removed an option or a module, and its replacement.
pub(crate) fn removed(name: &str) -> Option<&'static str> {
    match name {
        "experimental_http3" => Some("it was removed in Caddy 2.6, and needs no replacement"),
        "single_field" => Some(
            "it was removed in Caddy 2.5; `format transform \"{common_log}\"` writes the lines of `single_field common_log`",
        ),
        _ => None,
    }
}

/// The equivalent of an nginx variable that `word` contains; returns both.
pub(crate) fn of_variable(word: &str) -> Option<(&'static str, &'static str)> {
    const VARIABLES: &[(&str, &str)] = &[
        ("$request_uri", "{uri}"),
        ("$document_uri", "{path}"),
        ("$uri", "{path}"),
        ("$query_string", "{query}"),
        ("$args", "{query}"),
        ("$host", "{host}"),
        ("$scheme", "{scheme}"),
        ("$remote_addr", "{remote_host}"),
        ("$request_method", "{method}"),
        ("$proxy_add_x_forwarded_for", "nothing: reverse_proxy sends X-Forwarded-For by itself"),
    ];
    VARIABLES.iter().find(|(name, _)| word.contains(name)).copied()
}

/// Whether a word in a directive's position looks like a site address.
pub(crate) fn is_address(word: &str) -> bool {
    let word = word.trim_end_matches(',');
    word.contains("://")
        || word
            .split_once(':')
            .is_some_and(|(_, port)| !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit()))
        || word == "localhost"
        || (word.contains('.') && word.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-.*".contains(&byte)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_words() {
        let known = || ["respond", "reverse_proxy", "log"].into_iter();
        for (written, want) in [
            ("respnd", Some("respond")),
            ("respond", None),
            ("reverseproxy", Some("reverse_proxy")),
            ("lo", Some("log")),
            ("lgo", Some("log")),
            ("l", None),
            ("xyz", None),
            ("a-word-that-is-long-enough", None),
        ] {
            assert_eq!(near(known(), written), want, "{written}");
        }
        assert_eq!(near_in_sentence("'{}' is none; expected fastest, better or best", "fastst"), Some("fastest"));
        assert_eq!(near_in_sentence("'{}' is none; expected one such as 16KiB", "much"), None);
        assert_eq!(near_in_sentence("no list", "fastst"), None);
    }

    #[test]
    fn contexts_of_options() {
        for (name, want) in [
            ("header_up", Some("reverse_proxy")),
            ("on_demand", Some("tls")),
            ("email", Some("global options, at the top of the file")),
            ("nonsense", None),
        ] {
            assert_eq!(home_of(name), want, "{name}");
        }
    }

    #[test]
    fn addresses() {
        for word in [":8081", "b.test", "b.test,", "http://b", "localhost", "*.b.test", "b:80"] {
            assert!(is_address(word), "{word}");
        }
        for word in ["respond", "header_up", "a:b", "x/y", ""] {
            assert!(!is_address(word), "{word}");
        }
    }
}
