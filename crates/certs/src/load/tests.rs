use std::process::Command;

use rcgen::{KeyPair, PKCS_ECDSA_P384_SHA384, PKCS_ED25519, PKCS_RSA_SHA256};

use super::*;
use crate::tests::Folder;

/// A certificate for a name that signed itself, and its key.
fn pair(name: &str, algorithm: &'static rcgen::SignatureAlgorithm) -> (String, String) {
    let key = KeyPair::generate_for(algorithm).unwrap();
    let certificate = rcgen::CertificateParams::new([name.to_owned()]).unwrap().self_signed(&key).unwrap();
    (certificate.pem(), key.serialize_pem())
}

fn outcome(sources: &[Source]) -> Result<Vec<Vec<String>>, String> {
    let loaded = load(sources).map_err(|error| error.to_string())?;
    Ok(loaded.iter().map(|certificate| certificate.names().to_vec()).collect())
}

fn pem_source(certificate: &str, key: &str) -> [Source; 1] {
    [Source::Pem { place: "p".into(), certificate: certificate.into(), key: key.into(), tags: Vec::new() }]
}

// Caddy's documentation of `load_files`, `load_pem`, `load_folders`: RSA, ECDSA and Ed25519, as PEM.
#[test]
fn kinds_of_keys() {
    let folder = Folder::new();
    for (index, algorithm) in [&PKCS_ED25519, &PKCS_ECDSA_P384_SHA384, &PKCS_RSA_SHA256].into_iter().enumerate() {
        let (certificate, key) = pair("a.example", algorithm);
        assert!(outcome(&pem_source(&certificate, &key)).is_ok(), "{index}");
        fs::create_dir_all(folder.path("bundles/deep")).unwrap();
        let name = if index == 0 { "bundles/deep/x.PEM".to_owned() } else { format!("bundles/{index}.pem") };
        fs::write(folder.path(&name), format!("# both\n{key}{certificate}")).unwrap();
        let (at, of) = (folder.path(&format!("{index}.crt")), folder.path(&format!("{index}.key")));
        fs::write(&at, &certificate).unwrap();
        fs::write(&of, &key).unwrap();
        let files = Source::Files { certificate: at, key: of, tags: vec!["t".into()] };
        assert_eq!(load(std::slice::from_ref(&files)).unwrap()[0].tags(), ["t"]);
    }
    fs::write(folder.path("bundles/other.txt"), "not looked at").unwrap();
    assert_eq!(outcome(&[Source::Folder(folder.path("bundles"))]).unwrap().len(), 3);
}

// SEC 1 and PKCS #1, as OpenSSL writes them on request and Caddy keeps its own.
#[test]
fn keys_of_openssl() {
    if Command::new("openssl").arg("version").output().is_err() {
        eprintln!("skipped: there is no openssl");
        return;
    }
    let folder = Folder::new();
    for (kind, header) in [("EC", "-----BEGIN EC PRIVATE KEY-----"), ("RSA", "-----BEGIN RSA PRIVATE KEY-----")] {
        let (algorithm, option) =
            if kind == "EC" { (&rcgen::PKCS_ECDSA_P256_SHA256, "ec") } else { (&PKCS_RSA_SHA256, "rsa") };
        let (certificate, key) = pair("a.example", algorithm);
        fs::write(folder.path("in"), key).unwrap();
        let mut command = Command::new("openssl");
        command.arg(option).arg("-in").arg(folder.path("in")).arg("-out").arg(folder.path("out"));
        command.args((kind == "RSA").then_some("-traditional"));
        let output = command.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let key = fs::read_to_string(folder.path("out")).unwrap();
        assert!(key.contains(header), "{key}");
        assert!(outcome(&pem_source(&certificate, &key)).unwrap()[0].contains(&"a.example".to_owned()), "{kind}");
    }
}

#[test]
fn mistakes_name_their_place() {
    let folder = Folder::new();
    let (certificate, key) = pair("a.example", &PKCS_ED25519);
    let (_, other) = pair("a.example", &PKCS_ED25519);
    let encrypted = "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n";
    let no_key = "p.key: found no private key, expected `-----BEGIN PRIVATE KEY-----` and what follows it";
    for (certificate, key, want) in [
        (&*certificate, &*other, "p.key: found another key than that of the certificate in p.certificate"),
        ("", &key, "p.certificate: found no certificate, expected `-----BEGIN CERTIFICATE-----` and what follows it"),
        (&key, &key, "p.certificate: found no certificate, expected `-----BEGIN CERTIFICATE-----` and what follows it"),
        (&certificate, "", no_key),
        (&certificate, &certificate, no_key),
        (&certificate, encrypted, "p.key: found an encrypted private key, expected one without a pass phrase"),
    ] {
        assert_eq!(outcome(&pem_source(certificate, key)), Err(want.to_owned()));
    }
    let cut = &certificate[..certificate.len() / 2];
    let error = outcome(&pem_source(cut, &key)).unwrap_err();
    assert!(error.starts_with("p.certificate: found "), "{error}");
    let nonsense = "-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n";
    let error = outcome(&pem_source(nonsense, &key)).unwrap_err();
    assert!(error.starts_with("p.certificate: found what is no certificate: "), "{error}");
    let nowhere = folder.path("nowhere.crt");
    let files = Source::Files { certificate: nowhere.clone(), key: nowhere.clone(), tags: Vec::new() };
    let error = outcome(&[files]).unwrap_err();
    assert!(error.starts_with(&format!("{}: reading it: ", nowhere.display())), "{error}");
    fs::write(folder.path("x.pem"), &certificate).unwrap();
    let error = outcome(&[Source::Folder(folder.path(""))]).unwrap_err();
    assert!(error.starts_with(&format!("{}: found no private key", folder.path("x.pem").display())), "{error}");
}
