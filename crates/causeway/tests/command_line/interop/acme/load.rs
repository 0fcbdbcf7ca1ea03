//! Renewals while clients make handshakes and requests. `./bench certificates --only renewals` measures a thousand.

use std::collections::HashSet;
use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use super::*;

const NAMES: usize = 50;
const CLIENTS: usize = 2;

/// Requests every name once, each over a connection of its own whose chain curl verifies.
fn get_all(root: &Path, names: &[String], port: u16) -> Result<(), String> {
    let resolve = format!("*:{port}:127.0.0.1");
    let urls: Vec<_> = names.iter().map(|name| format!("https://{name}:{port}/")).collect();
    let mut arguments =
        vec!["--fail-early", "-f", "-m", "20", "--cacert", root.to_str().unwrap(), "--resolve", &resolve];
    arguments.extend(urls.iter().map(String::as_str));
    let body = curl(&arguments)?;
    let want: String = names.iter().map(|name| hello(name).unwrap()).collect();
    if body == want { Ok(()) } else { Err(format!("found the bodies {body:?}")) }
}

// docs/https.md, "Renewal": a handshake finds the old certificate or the new one, never neither. All names are due at
// once (RFC 9773), and no client sees a failed handshake or request.
#[test]
fn renewals_while_clients_connect() {
    let Some(pebble) = Pebble::start(Settings::default()) else { return };
    let names: Vec<_> = (0..NAMES).map(|number| format!("site{number}.example.test")).collect();
    let sites: String = names.iter().map(|name| site(name)).collect();
    let dir = pebble.dir("auto_https disable_redirects", &sites);
    let mut server = spawn(&dir);
    for _ in &names {
        server.line_with(": obtained a certificate from ");
    }
    drop(server);
    let authority = format!("data/certificates/localhost-{}-dir", pebble.directory);
    let leaf = |name: &String| {
        let chain = fs::read_to_string(dir.path(&format!("{authority}/{name}/{name}.crt"))).unwrap();
        chain.split_inclusive("-----END CERTIFICATE-----\n").next().unwrap().to_owned()
    };
    let before: HashSet<_> = names.iter().map(leaf).collect();
    assert_eq!((before.len(), pebble.orders()), (NAMES, NAMES));
    let window = json!({ "suggestedWindow": { "start": "2021-01-02T00:00:00Z", "end": "2021-01-03T00:00:00Z" } });
    let url = format!("https://localhost:{}/set-renewal-info/", pebble.management);
    for leaf in &before {
        let body = json!({ "Certificate": leaf, "ARIResponse": window.to_string() }).to_string();
        curl(&["-k", "-f", "--data-binary", &body, &url]).unwrap();
    }
    let roots = curl(&["-k", &format!("https://localhost:{}/roots/0", pebble.management)]).unwrap();
    pebble.dir.write("issuer.pem", roots);
    let root = pebble.dir.path("issuer.pem");

    let is_over = AtomicBool::new(false);
    let mut server = spawn(&dir);
    server.line_with("Causeway serves");
    let results: Vec<_> = thread::scope(|scope| {
        let client = || {
            let mut rounds = 0;
            while !is_over.load(Ordering::Relaxed) {
                get_all(&root, &names, pebble.https)?;
                rounds += 1;
            }
            Ok::<_, String>(rounds)
        };
        let clients: Vec<_> = (0..CLIENTS).map(|_| scope.spawn(client)).collect();
        let begun = Instant::now();
        while pebble.orders() < 2 * NAMES || names.iter().any(|name| before.contains(&leaf(name))) {
            // The clients must end before an assertion can fail.
            if begun.elapsed() > 3 * TIMEOUT {
                break;
            }
            thread::sleep(Duration::from_millis(50));
        }
        is_over.store(true, Ordering::Relaxed);
        clients.into_iter().map(|client| client.join().unwrap()).collect()
    });
    for rounds in results {
        assert!(rounds.clone().is_ok_and(|rounds| rounds > 0), "{rounds:?}");
    }
    assert_eq!(get_all(&root, &names, pebble.https), Ok(()));
    let failures: Vec<_> = server.unread_lines().into_iter().filter(|line| line.contains("ERROR")).collect();
    assert_eq!((pebble.orders(), pebble.accounts(), failures), (2 * NAMES, 1, Vec::new()));
}
