//! `basic_auth`, `request_body`.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use causeway_modules::authentication::hash::{Argon2idCost, argon2id_string, bcrypt};

use crate::{check, check_field, refused};

fn with(target: &str, credentials: &str) -> String {
    format!("{target}\nAuthorization: Basic {}", BASE64_STANDARD.encode(credentials))
}

// caddyserver.com/docs/caddyfile/directives/basic_auth
#[test]
fn basic_auth() {
    let hash = bcrypt(b"hiccup", 4).expect("a hash");
    let body = format!("{{\nBob {hash}\n}}\nrespond \"hi {{http.auth.user.id}}\"");
    let everywhere = format!("basic_auth {body}");
    check(&everywhere, &[(&with("/", "Bob:hiccup"), 200, "hi Bob"), (&with("/", "Bob:x"), 401, ""), ("/", 401, "")]);
    check_field(&everywhere, "WWW-Authenticate", &[("/", Some("Basic realm=\"restricted\""))]);
    let some = format!("basic_auth /secret/* {body}");
    check(
        &some,
        &[
            ("/", 200, "hi {http.auth.user.id}"),
            ("/secret/x", 401, ""),
            (&with("/secret/x", "Bob:hiccup"), 200, "hi Bob"),
        ],
    );
    let cost = Argon2idCost { time: 1, memory: 64, lanes: 1, key_len: 32 };
    let hash = argon2id_string(b"hiccup", cost).expect("a hash");
    let argon2id = format!("basic_auth argon2id \"My realm\" {{\nBob {hash}\n}}\nrespond ok");
    check(&argon2id, &[(&with("/", "Bob:hiccup"), 200, "ok"), (&with("/", "bob:hiccup"), 401, "")]);
    check_field(&argon2id, "WWW-Authenticate", &[("/", Some("Basic realm=\"My realm\""))]);
    refused("basic_auth {\nBob hiccup\n}", "expected a user with a bcrypt hash");
}

// caddyserver.com/docs/caddyfile/directives/request_body
#[test]
fn request_body() {
    let limited = "request_body {\nmax_size 10MB\n}\nrespond ok";
    check(limited, &[("POST /\nContent-Length: 10000000", 200, "ok"), ("POST /\nContent-Length: 10000001", 413, "")]);
    check(
        "request_body {\nset \"{\\\"m\\\": {method}}\"\n}\nrespond {http.request.body}",
        &[("POST /", 200, "{\"m\": POST}")],
    );
}
