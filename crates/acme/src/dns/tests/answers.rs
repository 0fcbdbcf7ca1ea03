//! Errors of interfaces, and programs.

use std::os::unix::fs::PermissionsExt as _;

use super::*;
use crate::http::StatusCode;

/// The providers whose interface speaks HTTP, with the number of requests until the record would be added.
const INTERFACES: [&str; 8] =
    ["acmedns", "cloudflare", "digitalocean", "duckdns", "gandi", "hetzner", "porkbun", "route53"];

fn record_of(name: &str) -> TxtRecord {
    match name {
        "duckdns" => TxtRecord { name: "_acme-challenge.mine.duckdns.org".to_owned(), ..record() },
        _ => record(),
    }
}

async fn failure(name: &str, answers: &[(&str, &str)]) -> (ProviderError, usize) {
    let double = Double::new(answers).await;
    let (provider, http) = (provider(name, &double.url), HttpClient::new(&[]).unwrap());
    let error = provider.add(&http, &record_of(name)).await.unwrap_err();
    (error, double.received().len())
}

// A token that is wrong or may not write, and a server that fails: the interface's explanation, and never the token.
#[tokio::test]
async fn refusals() {
    for name in INTERFACES {
        let (error, _) = failure(name, &[("401 Unauthorized", r#"{"errors":[{"message":"Invalid token"}]}"#)]).await;
        let want = "it answered 401: Invalid token (check the credentials and their permissions)";
        assert_eq!(error.to_string(), want, "{name}");
        let (error, _) = failure(name, &[("500 Internal Server Error", "<h1>oh\r\nno</h1>")]).await;
        assert_eq!(error.to_string(), "it answered 500: <h1>oh  no</h1>", "{name}");
    }
    for (body, want) in [
        (r#"{"error":{"code":"forbidden","message":"a"}}"#, "a"),
        (r#"{"message":"b"}"#, "b"),
        (r#"{"error":"c"}"#, "c"),
        ("<ErrorResponse><Error><Message>d</Message></Error></ErrorResponse>", "d"),
        (r#"{"other":1}"#, r#"{"other":1}"#),
    ] {
        let (error, _) = failure("hetzner", &[("400 Bad Request", body)]).await;
        assert!(matches!(error, ProviderError::Refused(StatusCode::BAD_REQUEST, text) if text == want), "{body}");
    }
    let (error, _) = failure("hetzner", &[("400 Bad Request", &"é".repeat(1000))]).await;
    assert!(error.to_string().len() < 340, "a long explanation is cut");
}

// RFC 6585 §4, RFC 9110 §10.2.3: after 429 the request is repeated when the interface allows it, with a bound.
#[tokio::test]
async fn rate_limits() {
    let limited = ("429 Too Many Requests\r\nRetry-After: 0", "slow down");
    let double = Double::new(&[limited, limited, ("201 Created", "{}")]).await;
    let http = HttpClient::new(&[]).unwrap();
    assert_eq!(provider("hetzner", &double.url).add(&http, &record()).await.unwrap(), receipt(""));
    for (answer, requests) in [
        (limited, 3),
        (("429 Too Many Requests", "slow down"), 1),
        (("429 Too Many Requests\r\nRetry-After: 3600", "slow down"), 1),
        (("503 Service Unavailable\r\nRetry-After: 0", "slow down"), 1),
    ] {
        let (error, count) = failure("hetzner", &[answer; 4]).await;
        assert_eq!(count, requests, "{}", answer.0);
        assert!(error.to_string().ends_with(": slow down"), "{error}");
    }
}

// A success with another body than documented is an error, and no panic.
#[tokio::test]
async fn garbage() {
    for (name, answers, want) in [
        ("cloudflare", &[("200 OK", "hello")][..], "found no JSON in its answer"),
        (
            "cloudflare",
            &[("200 OK", r#"{"result":[]}"#)][..],
            "it has no zone example.com, or the credentials do not open it",
        ),
        (
            "cloudflare",
            &[("200 OK", r#"{"result":[{"id":"z"}]}"#), ("200 OK", "[]")][..],
            "found no 'result.id' in its answer",
        ),
        ("digitalocean", &[("200 OK", "{}")][..], "found no 'domain_record.id' in its answer"),
        ("porkbun", &[("200 OK", "{}")][..], "found no 'id' in its answer"),
        ("gandi", &[("200 OK", "{}")][..], "found no 'rrset_values' in its answer"),
        ("duckdns", &[("200 OK", "<html>")][..], "found no OK or KO in its answer"),
        ("route53", &[("200 OK", "<a/>")][..], "it has no zone example.com, or the credentials do not open it"),
    ] {
        let (error, _) = failure(name, answers).await;
        assert_eq!(error.to_string(), want, "{name}");
    }
    for name in INTERFACES {
        let (error, _) = failure(name, &[]).await;
        assert!(matches!(error, ProviderError::Http(_)), "{name}: {error}");
    }
}

// docs/https.md: `PROGRAM [ARGUMENTS…] present|cleanup NAME. VALUE`, its exit status, and its error output in the log.
#[tokio::test]
async fn programs() {
    let dir = std::env::temp_dir().join(format!("causeway-exec-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let (program, log) = (dir.join("hook"), dir.join("log"));
    let text =
        "#!/bin/sh\necho \"$@\" >> \"$1\"\n[ $3 != _acme-challenge.bad. ] || { echo no such zone >&2; exit 3; }\n";
    std::fs::write(&program, text).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    let http = HttpClient::new(&[]).unwrap();
    let settings = json!({ "command": program, "args": [log] });
    let exec: exec::Exec = provider::read(settings.as_object().unwrap().clone()).unwrap();
    let receipt = exec.add(&http, &record()).await.unwrap();
    exec.remove(&http, &record(), &receipt).await.unwrap();
    let words = "_acme-challenge.www.example.com. a-text_1";
    let log = log.display().to_string();
    assert_eq!(std::fs::read_to_string(&log).unwrap(), format!("{log} present {words}\n{log} cleanup {words}\n"));
    let bad = TxtRecord { name: "_acme-challenge.bad".to_owned(), ..record() };
    let error = exec.add(&http, &bad).await.unwrap_err().to_string();
    assert_eq!(error, format!("{} present: exit status: 3: no such zone", program.display()));
    std::fs::remove_dir_all(&dir).unwrap();
    let error = exec.add(&http, &bad).await.unwrap_err().to_string();
    assert!(error.contains("present: cannot start it: No such file"), "{error}");
}
