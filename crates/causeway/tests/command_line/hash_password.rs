//! `hash-password`: its hashes are accepted by `basic_auth`.

use crate::client::send;
use crate::process::Directory;

fn printed(directory: &Directory, arguments: &[&str], input: &str) -> String {
    let arguments = [&["hash-password"], arguments].concat();
    let output = if input.is_empty() { directory.output(&arguments) } else { directory.output_of(&arguments, input) };
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
}

// Caddy, `hash-password`: the password comes from the flag, or from the first line of standard input without its line
// break; every hash has a new salt.
#[test]
fn a_printed_hash_works_for_login() {
    let directory = Directory::new();
    let argon2id = &["--algorithm", "argon2id", "--argon2id-memory", "64", "--argon2id-time", "2"];
    for (algorithm, prefix, flags) in
        [("bcrypt", "$2a$04$", &["--bcrypt-cost", "4"][..]), ("argon2id", "$argon2id$v=19$m=64,t=2,p=1$", argon2id)]
    {
        let hashes = [
            printed(&directory, &[flags, &["--plaintext", "hunter2"]].concat(), ""),
            printed(&directory, &[flags, &["-p", "hunter2"]].concat(), ""),
            printed(&directory, flags, "hunter2\r\nnot this\n"),
            printed(&directory, flags, "hunter2"),
        ];
        assert!(hashes.iter().all(|hash| hash.starts_with(prefix)), "{hashes:?}");
        assert_ne!(hashes[0], hashes[1]);
        let accounts = hashes.iter().enumerate();
        let accounts: Vec<_> =
            accounts.map(|(at, hash)| format!(r#"{{"username": "user{at}", "password": "{hash}"}}"#)).collect();
        let config = format!(
            r#"{{"admin": {{"disabled": true}}, "apps": {{"http": {{"servers": {{"a": {{"listen": ["127.0.0.1:0"], "routes": [{{"handle": [
                {{"handler": "authentication", "providers": {{"http_basic": {{"hash": {{"algorithm": "{algorithm}"}}, "accounts": [{}]}}}}}},
                {{"handler": "static_response", "body": "{{http.auth.user.id}}"}}]}}]}}}}}}}}}}"#,
            accounts.join(",")
        );
        directory.write("config.json", config);
        let server = directory.start(&["run", "--config", "config.json"]);
        for (credentials, status, body) in [
            // user0, user2 and user3 with hunter2; user1 with a wrong password.
            ("dXNlcjA6aHVudGVyMg==", 200, "user0"),
            ("dXNlcjI6aHVudGVyMg==", 200, "user2"),
            ("dXNlcjM6aHVudGVyMg==", 200, "user3"),
            ("dXNlcjE6aHVudGVyMw==", 401, ""),
        ] {
            let field = format!("Authorization: Basic {credentials}");
            let answer = send(server.port(), "GET /", &["Host: localhost", &field]);
            assert_eq!((answer.status, &*answer.body), (status, body), "{algorithm} {credentials}");
        }
    }
}

#[test]
fn mistakes() {
    let directory = Directory::new();
    let long = "x".repeat(73);
    for (arguments, want) in [
        (&["--algorithm", "md5", "-p", "x"][..], "unrecognized hash algorithm: md5; expected bcrypt or argon2id"),
        (&[], "plaintext is required"),
        (&["-p", &long], "found a password of 73 bytes, bcrypt takes at most 72"),
        (&["-p", "x", "-a", "argon2id", "--argon2id-memory", "1"], "memory cost is too small"),
        (&["-p", "x", "--argon2id-threads", "256"], "256"),
    ] {
        let output = directory.output(&[&["hash-password"], arguments].concat());
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), stderr.lines().count()), (Some(1), 1), "{arguments:?}: {stderr}");
        assert!(stderr.starts_with("Error: ") && stderr.contains(want), "{stderr}");
    }
}
