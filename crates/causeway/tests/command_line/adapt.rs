//! `adapt`, `validate`, `version` and help: commands that print and end.

use std::process::Output;

use serde_json::{Value, json};

use crate::process::Directory;

/// Every supported directive, with its supported matchers and options.
const EVERYTHING: &str = "\
{
	admin off
	grace_period 5s
	servers {
		timeouts {
			read_header 5s
			read_body 30s
			write 30s
			idle 2m
		}
		max_header_size 16KiB
	}
}
http://localhost:8080, http://127.0.0.1:8081 {
	bind 127.0.0.1
	root /srv/www
	vars greeting hello
	log_skip /health
	header X-Served-By causeway
	redir /old /new permanent
	method @post GET
	@post {
		method POST
		path /form
		host localhost
		header X-A *
		query a=b
		not path /x
	}
	rewrite /a /b
	uri /api/* strip_prefix /api
	request_header -Cookie
	handle /h/* {
		respond {vars.greeting}
	}
	handle_path /p/* {
		respond {path}
	}
	route /r {
		error 418
	}
	abort /gone
	error /broken broken 500
	respond /health 200
	file_server {
		hide .*
		index index.html
		browse
	}
	handle_errors {
		respond \"{err.status_code}\"
	}
}
";

#[track_caller]
fn stdout(output: Output) -> String {
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn json_on_one_line_or_for_people() {
    let directory = Directory::with(&[("Caddyfile", ":8080\nrespond hi\n")]);
    let want = json!({ "apps": { "http": { "servers": { "srv0": {
        "listen": [":8080"], "routes": [{ "handle": [{ "handler": "static_response", "body": "hi" }] }],
    } } } } });
    for (arguments, lines) in [
        (&["adapt"][..], 1),
        (&["adapt", "--config", "Caddyfile", "--adapter", "caddyfile", "--validate"], 1),
        (&["adapt", "--pretty"], 23),
        (&["adapt", "-p", "-c", "Caddyfile"], 23),
    ] {
        let text = stdout(directory.output(arguments));
        assert_eq!((serde_json::from_str::<Value>(&text).unwrap(), text.lines().count()), (want.clone(), lines));
    }
    // Caddy: the language is `caddyfile` unless a flag names another.
    directory.write("site.conf", ":8080\nrespond hi\n");
    stdout(directory.output(&["adapt", "-c", "site.conf"]));
    stdout(directory.output_of(&["adapt", "-c", "-"], ":8080\nrespond hi\n"));
    let text = stdout(directory.output_of(&["adapt", "-c", "-", "-a", "caddyfile"], ":8080\nrespond hi\n"));
    assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), want);
}

#[test]
fn all_implemented_features() {
    let directory = Directory::with(&[("Caddyfile", EVERYTHING)]);
    let json: Value = serde_json::from_str(&stdout(directory.output(&["adapt", "--validate"]))).unwrap();
    let server = &json["apps"]["http"]["servers"]["srv0"];
    assert_eq!(server["idle_timeout"], 120_000_000_000_u64);
    assert_eq!(stdout(directory.output(&["validate"])), "Caddyfile is valid\n");
    // The output of `adapt` is a valid configuration.
    directory.write("config.json", json.to_string());
    assert_eq!(stdout(directory.output(&["validate", "--config", "config.json"])), "config.json is valid\n");
}

/// A check creates no file and no directory: as root it would leave ones that the server's user cannot write. It
/// refuses a path that no user can write.
#[test]
fn a_check_creates_no_files() {
    let site = |path: &str| {
        format!(
            "{{\nadmin off\nlog {{\noutput file own/server.log\n}}\n}}\nlocalhost:8443 {{\nlog {{\noutput file {path}\n}}\ntls {{\ninsecure_secrets_log secrets\n}}\nroute {{\ncache {{\nsimplefs {{\npath cached\n}}\n}}\n}}\n}}\n"
        )
    };
    let directory = Directory::with(&[("Caddyfile", &site("logs/deep/access.log"))]);
    for arguments in [&["validate"][..], &["adapt", "--validate"]] {
        stdout(directory.output(arguments));
        for path in ["own", "logs", "secrets", "cached"] {
            assert!(!directory.path(path).exists(), "{arguments:?} created {path}");
        }
    }
    for (path, found) in [(".", "Is a directory"), ("Caddyfile/access.log", "Not a directory")] {
        let directory = Directory::with(&[("Caddyfile", &site(path))]);
        let output = directory.output(&["validate"]);
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(1) && errors.contains(found), "{path}: {errors}");
    }
}

/// `adapt` accepts the syntax of unsupported directives; with `--validate` it refuses them.
#[test]
fn valid_syntax_that_cannot_be_served() {
    let site = ":8080\nreverse_proxy :9 {\n\ttransport http {\n\t\tversions 3\n\t}\n}\n";
    let directory = Directory::with(&[("Caddyfile", site)]);
    let json: Value = serde_json::from_str(&stdout(directory.output(&["adapt"]))).unwrap();
    assert_eq!(
        json["apps"]["http"]["servers"]["srv0"]["routes"][0]["handle"][0]["transport"]["versions"],
        json!(["3"])
    );
    for arguments in [&["adapt", "--validate"][..], &["validate"], &["run"]] {
        let refused = directory.output(arguments);
        assert_eq!(refused.status.code(), Some(1));
        assert_eq!(refused.stdout, b"");
        let want =
            "Error: Caddyfile:4:12: found '3', expected 1.1, 2 or h2c; HTTP/3 is not supported (docs/refused.md)\n";
        assert_eq!(String::from_utf8_lossy(&refused.stderr), want, "{arguments:?}");
    }
}

/// `adapt` adds Caddy's wording on a second line where it differs; `validate` and `run` print the first line only.
#[test]
fn errors_in_the_format_of_caddy() {
    let directory = Directory::with(&[("Caddyfile", ":8080 {\n\trespnd hi\n}\n")]);
    let line =
        "Error: Caddyfile:2:2: unrecognized directive: respnd (did you mean \"respond\"?); expected a directive\n";
    let adapt = directory.output(&["adapt"]);
    let both = format!("{line}Caddyfile:2: unrecognized directive: respnd\n");
    assert_eq!((adapt.status.code(), &*String::from_utf8_lossy(&adapt.stderr)), (Some(1), &*both));
    assert_eq!(String::from_utf8_lossy(&directory.output(&["validate"]).stderr), line);
}

#[test]
fn warnings_are_no_errors() {
    let directory = Directory::with(&[("Caddyfile", ":8080\nskip_log\nrespond hi\n")]);
    let output = directory.output(&["validate"]);
    let want = "Warning: Caddyfile:2:1: the 'skip_log' directive is deprecated, use 'log_skip' instead\n";
    assert_eq!((output.status.code(), &*String::from_utf8_lossy(&output.stderr)), (Some(0), want));
}

#[test]
fn variables_from_a_file() {
    let directory = Directory::with(&[("Caddyfile", ":{$PORT}\nrespond hi\n"), ("env", "PORT=8099\n")]);
    for arguments in [&["adapt", "--envfile", "env"][..], &["validate", "--envfile", "env"]] {
        let mut command = directory.command(arguments);
        let output = command.env_remove("PORT").output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        assert!(arguments[0] != "adapt" || String::from_utf8_lossy(&output.stdout).contains("[\":8099\"]"));
    }
}

#[test]
fn version_and_help() {
    let directory = Directory::new();
    let version = env!("CARGO_PKG_VERSION");
    assert_eq!(stdout(directory.output(&["version"])), format!("causeway v{version}\n"));
    assert_eq!(stdout(directory.output(&["--version"])), format!("causeway v{version}\n"));
    for arguments in [&[][..], &["--help"], &["help"], &["-h"]] {
        let text = stdout(directory.output(arguments));
        for command in ["run", "file-server", "respond", "adapt", "fmt", "validate", "version"] {
            assert!(text.lines().any(|line| line.trim_start().starts_with(command)), "{arguments:?}: {command}");
        }
    }
    for (arguments, flag) in [
        (&["help", "run"][..], "--envfile"),
        (&["file-server", "--help"], "--browse"),
        (&["respond", "-h"], "--header"),
    ] {
        assert!(stdout(directory.output(arguments)).contains(flag), "{arguments:?}");
    }
}
