use serde_json::{Value, json};

use super::{json, server};

/// The HTTP app without its servers.
fn http(options: &str) -> Value {
    let mut app = json(&format!("{{\n{options}\n}}\n:99 {{\n}}\n"))["apps"]["http"].clone();
    app.as_object_mut().unwrap().remove("servers");
    app
}

#[test]
fn http_app() {
    assert_eq!(http("http_port 8080\nhttps_port 8443"), json!({ "http_port": 8080, "https_port": 8443 }));
    assert_eq!(http("grace_period 1m30s"), json!({ "grace_period": 90_000_000_000_u64 }));
    assert_eq!(http("shutdown_delay 1.5d"), json!({ "shutdown_delay": 129_600_000_000_000_u64 }));
    assert_eq!(http("grace_period 0"), json!({}));
    assert_eq!(http("metrics {\nper_host\n}"), json!({ "metrics": { "per_host": true } }));
}

// The plugin cache-handler: its global option is an app.
#[test]
fn cache() {
    let apps = json("{\ncache {\nttl 1m\nkey {\ndisable_query\n}\n}\n}\n:99 {\ncache\n}\n")["apps"].clone();
    assert_eq!(apps["cache"], json!({ "ttl": 60_000_000_000_i64, "key": { "disable_query": true } }));
}

#[test]
fn admin() {
    let admin = |options: &str| json(&format!("{{\n{options}\n}}\n"))["admin"].clone();
    assert_eq!(admin("admin off"), json!({ "disabled": true }));
    assert_eq!(admin("admin"), json!({ "listen": "localhost:2019" }));
    assert_eq!(
        admin("admin :2020 {\nenforce_origin\norigins a b\n}"),
        json!({ "listen": ":2020", "enforce_origin": true, "origins": ["a", "b"] })
    );
    assert_eq!(admin("persist_config off"), json!({ "config": { "persist": false } }));
}

#[test]
fn default_bind() {
    let listen = |source: &str| server(source)["listen"].clone();
    assert_eq!(listen("{\ndefault_bind 127.0.0.1\n}\n:80 {\n}\n"), json!(["127.0.0.1:80"]));
    assert_eq!(listen("{\ndefault_bind 127.0.0.1\n}\n:80 {\nbind ::1\n}\n"), json!(["[::1]:80"]));
}

#[test]
fn per_server() {
    let members = |options: &str| {
        let mut server = server(&format!("{{\nservers {{\n{options}\n}}\n}}\n:80 {{\n}}\n"));
        server.as_object_mut().unwrap().remove("listen");
        server
    };
    assert_eq!(
        members("timeouts {\nread_body 1s\nread_header 2s\nwrite 3s\nidle 4m\nread_body_idle 5s 100\n}"),
        json!({
            "read_timeout": 1_000_000_000, "read_header_timeout": 2_000_000_000, "write_timeout": 3_000_000_000_u64,
            "idle_timeout": 240_000_000_000_u64, "read_idle_timeout": 5_000_000_000_u64, "read_min_rate": 100,
        })
    );
    assert_eq!(members("max_header_size 16KiB"), json!({ "max_header_bytes": 16384 }));
    assert_eq!(members("max_header_size 2MB"), json!({ "max_header_bytes": 2_000_000 }));
    assert_eq!(members("protocols h1 h2"), json!({ "protocols": ["h1", "h2"] }));
    assert_eq!(members("log_credentials"), json!({ "logs": { "should_log_credentials": true } }));
    assert_eq!(
        members("trusted_proxies static 10.0.0.0/8\ntrusted_proxies_strict"),
        json!({ "trusted_proxies": { "source": "static", "ranges": ["10.0.0.0/8"] }, "trusted_proxies_strict": 1 })
    );
}

// The README of the plugins caddy-cloudflare-ip and caddy-combine-ip-ranges, and their source: a duration of zero is
// omitted.
#[test]
fn sources_of_trusted_proxies() {
    for (written, want) in [
        ("static", json!({ "source": "static" })),
        ("cloudflare", json!({ "source": "cloudflare" })),
        (
            "cloudflare {\ninterval 12h\ntimeout 15s\n}",
            json!({ "source": "cloudflare", "interval": 43_200_000_000_000_u64, "timeout": 15_000_000_000_u64 }),
        ),
        (
            "cloudflare {\ninterval 1m\ntimeout 15s\ninterval 0\n}",
            json!({ "source": "cloudflare", "timeout": 15_000_000_000_u64 }),
        ),
        ("combine", json!({ "source": "combine" })),
        ("combine {\n}", json!({ "source": "combine" })),
        (
            "combine {\nstatic 192.0.2.0/24 ::1\ncloudflare {\ninterval 1d\n}\ncombine {\nstatic 198.51.100.7\ncloudflare\n}\n}",
            json!({ "source": "combine", "parts": [
                { "source": "static", "ranges": ["192.0.2.0/24", "::1"] },
                { "source": "cloudflare", "interval": 86_400_000_000_000_u64 },
                { "source": "combine", "parts": [
                    { "source": "static", "ranges": ["198.51.100.7"] },
                    { "source": "cloudflare" },
                ] },
            ] }),
        ),
    ] {
        let source = format!("{{\nservers {{\ntrusted_proxies {written}\ntrusted_proxies_strict\n}}\n}}\n:80 {{\n}}\n");
        let server = server(&source);
        assert_eq!((&server["trusted_proxies"], &server["trusted_proxies_strict"]), (&want, &json!(1)), "{written}");
    }
}

// Options for a listener take precedence over those for all, and can rename the server.
#[test]
fn options_of_a_listener() {
    let source = "{\nservers {\nenable_full_duplex\n}\nservers :81 {\nname side\n}\n}\n:80 {\n}\n:81 {\n}\n";
    assert_eq!(
        json(source)["apps"]["http"]["servers"],
        json!({ "srv0": { "listen": [":80"], "enable_full_duplex": true }, "side": { "listen": [":81"] } })
    );
    assert_eq!(
        json("{\nservers :81 {\nname side\n}\n}\n:081 {\n}\n")["apps"]["http"]["servers"],
        json!({ "side": { "listen": [":81"] } })
    );
}

#[test]
fn order() {
    let first = |option: &str| {
        server(&format!("{{\n{option}\n}}\n:80 {{\nheader A b\nrespond x\n}}\n"))["routes"][0]["handle"][0]["handler"]
            .clone()
    };
    assert_eq!(first("debug"), "headers");
    assert_eq!(first("order respond first"), "static_response");
    assert_eq!(first("order respond before header"), "static_response");
    assert_eq!(first("order header last"), "static_response");
    assert_eq!(first("order header after respond"), "static_response");
}

#[test]
fn storage() {
    let want = json!({ "module": "file_system", "root": "/srv/data" });
    for option in ["storage file_system /srv/data", "storage file_system {\nroot /srv/data\n}"] {
        assert_eq!(json(&format!("{{\n{option}\n}}\n:80\n"))["storage"], want, "{option}");
    }
}

// The README of the plugin caddy-storage-redis: a value after its name, or for addresses one on each line of a block.
#[test]
fn storage_in_redis() {
    for (block, want) in [
        ("", json!({})),
        (
            "address {\na:1\nb:2\n}\nusername u\npassword {env.P}\ndb 1\ntimeout 5\nkey_prefix p\ntls_enabled true",
            json!({
                "address": ["a:1", "b:2"], "username": "u", "password": "{env.P}", "db": "1", "timeout": "5", "key_prefix": "p",
                "tls_enabled": true,
            }),
        ),
        (
            "host a\nport 1\naes_key k\ncompression flate",
            json!({
                "host": ["a"], "port": ["1"], "encryption_key": "k", "compression": "flate",
            }),
        ),
        ("tls_insecure 0\ntls_server_certs_path f", json!({ "tls_insecure": false, "tls_server_certs_path": "f" })),
    ] {
        let mut want = want;
        want["module"] = "redis".into();
        assert_eq!(json(&format!("{{\nstorage redis {{\n{block}\n}}\n}}\n:80\n"))["storage"], want, "{block}");
    }
}

// The wrappers keep the written order. Empty, 0 and default values are omitted.
#[test]
fn listener_wrappers() {
    let wrappers = |lines: &str| {
        let source = format!("{{\nservers {{\nlistener_wrappers {{\n{lines}\n}}\n}}\n}}\n:80\n");
        server(&source).get("listener_wrappers").cloned()
    };
    assert_eq!(wrappers(""), None);
    assert_eq!(
        wrappers("http_redirect\nproxy_protocol\ntls"),
        Some(json!([{ "wrapper": "http_redirect" }, { "wrapper": "proxy_protocol" }, { "wrapper": "tls" }]))
    );
    assert_eq!(
        wrappers("proxy_protocol {\ntimeout 2s\nallow 10.0.0.0/8\nallow ::1\ndeny\nfallback_policy use\n}"),
        Some(json!([{
            "wrapper": "proxy_protocol", "timeout": 2_000_000_000, "allow": ["10.0.0.0/8", "::1"], "fallback_policy": "USE",
        }]))
    );
    assert_eq!(wrappers("proxy_protocol {\nfallback_policy ignore\n}"), Some(json!([{ "wrapper": "proxy_protocol" }])));
}
