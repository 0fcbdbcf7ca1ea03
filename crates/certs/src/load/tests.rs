use std::process::Command;
use std::time::Duration;

use rcgen::{KeyPair, PKCS_ECDSA_P384_SHA384, PKCS_ED25519, PKCS_RSA_SHA256};

use rustls::pki_types::pem::PemObject as _;

use super::*;
use crate::tests::Directory;

/// A self-signed certificate for a name, and its key, as PEM.
fn pair(name: &str, algorithm: &'static rcgen::SignatureAlgorithm) -> (String, String) {
    let key = KeyPair::generate_for(algorithm).unwrap();
    let certificate = rcgen::CertificateParams::new([name.to_owned()]).unwrap().self_signed(&key).unwrap();
    (certificate.pem(), key.serialize_pem())
}

fn outcome(sources: &[LoadedSource]) -> Result<Vec<Vec<String>>, String> {
    let loaded = load(sources).map_err(|error| error.to_string())?;
    Ok(loaded.iter().map(|certificate| certificate.names().to_vec()).collect())
}

fn pem_source(certificate: &str, key: &str) -> [LoadedSource; 1] {
    [LoadedSource::Pem { location: "p".into(), certificate: certificate.into(), key: key.into(), tags: Vec::new() }]
}

// Caddy's documentation of `load_files`, `load_pem`, `load_folders`: RSA, ECDSA and Ed25519, as PEM.
#[test]
fn kinds_of_keys() {
    let directory = Directory::new();
    for (index, algorithm) in [&PKCS_ED25519, &PKCS_ECDSA_P384_SHA384, &PKCS_RSA_SHA256].into_iter().enumerate() {
        let (certificate, key) = pair("a.example", algorithm);
        assert!(outcome(&pem_source(&certificate, &key)).is_ok(), "{index}");
        fs::create_dir_all(directory.path("bundles/deep")).unwrap();
        let name = if index == 0 { "bundles/deep/x.PEM".to_owned() } else { format!("bundles/{index}.pem") };
        fs::write(directory.path(&name), format!("# both\n{key}{certificate}")).unwrap();
        let (at, of) = (directory.path(&format!("{index}.crt")), directory.path(&format!("{index}.key")));
        fs::write(&at, &certificate).unwrap();
        fs::write(&of, &key).unwrap();
        let files = LoadedSource::Files { certificate: at, key: of, tags: vec!["t".into()] };
        assert_eq!(load(std::slice::from_ref(&files)).unwrap()[0].tags(), ["t"]);
    }
    fs::write(directory.path("bundles/other.txt"), "not looked at").unwrap();
    assert_eq!(outcome(&[LoadedSource::Directory(directory.path("bundles"))]).unwrap().len(), 3);
}

// Caddy's `load_folders` uses Go's `filepath.Walk`: links to files are read, links to directories are not. Two links to
// their own directory would otherwise double the files with each level.
#[test]
fn links_to_directories_are_not_followed() {
    use std::os::unix::fs::symlink;
    let directory = Directory::new();
    fs::create_dir_all(directory.path("bundles/deep")).unwrap();
    let (certificate, key) = pair("a.example", &PKCS_ED25519);
    fs::write(directory.path("a.pem"), format!("{key}{certificate}")).unwrap();
    symlink(directory.path("a.pem"), directory.path("bundles/deep/linked.pem")).unwrap();
    for link in ["one", "two", "three.pem"] {
        symlink(directory.path("bundles"), directory.path(&format!("bundles/{link}"))).unwrap();
    }
    // The directory itself may be a link.
    symlink(directory.path("bundles"), directory.path("linked")).unwrap();
    assert_eq!(outcome(&[LoadedSource::Directory(directory.path("linked"))]).unwrap().len(), 1);
}

// SEC 1 and PKCS #1: the formats that OpenSSL writes with these options. Caddy stores its own keys as SEC 1.
#[test]
fn keys_of_openssl() {
    if Command::new("openssl").arg("version").output().is_err() {
        eprintln!("skipped: openssl is not installed");
        return;
    }
    let directory = Directory::new();
    for (kind, header) in [("EC", "-----BEGIN EC PRIVATE KEY-----"), ("RSA", "-----BEGIN RSA PRIVATE KEY-----")] {
        let (algorithm, option) =
            if kind == "EC" { (&rcgen::PKCS_ECDSA_P256_SHA256, "ec") } else { (&PKCS_RSA_SHA256, "rsa") };
        let (certificate, key) = pair("a.example", algorithm);
        fs::write(directory.path("in"), key).unwrap();
        let mut command = Command::new("openssl");
        command.arg(option).arg("-in").arg(directory.path("in")).arg("-out").arg(directory.path("out"));
        command.args((kind == "RSA").then_some("-traditional"));
        let output = command.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let key = fs::read_to_string(directory.path("out")).unwrap();
        assert!(key.contains(header), "{key}");
        assert!(outcome(&pem_source(&certificate, &key)).unwrap()[0].contains(&"a.example".to_owned()), "{kind}");
    }
}

// Go's `tls.X509KeyPair` and CertMagic's `PEMDecodePrivateKey`: any label that ends in PRIVATE KEY, with a key of any
// format. CertMagic writes Ed25519 keys as `ED25519 PRIVATE KEY`.
#[test]
fn the_der_decides_the_format_of_a_key() {
    let pem = |label: &str, der: &[u8]| {
        let digits = base64::Engine::encode(&base64::prelude::BASE64_STANDARD, der);
        format!("-----BEGIN {label}-----\n{digits}\n-----END {label}-----\n")
    };
    let labels = ["PRIVATE KEY", "RSA PRIVATE KEY", "EC PRIVATE KEY", "ED25519 PRIVATE KEY", "ANY PRIVATE KEY"];
    for algorithm in [&PKCS_ED25519, &rcgen::PKCS_ECDSA_P256_SHA256, &PKCS_RSA_SHA256] {
        let (certificate, key) = pair("a.example", algorithm);
        let pkcs8 = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap().secret_der().to_vec();
        // RFC 5958 §2: a SEQUENCE of the version, the algorithm and an OCTET STRING with the key in its own format.
        let inner = {
            use x509_parser::der_parser::asn1_rs::{Any, FromDer as _, OctetString, Sequence};
            let (_, sequence) = Sequence::from_der(&pkcs8).unwrap();
            let (rest, _version) = Any::from_der(&sequence.content).unwrap();
            let (rest, _algorithm) = Any::from_der(rest).unwrap();
            OctetString::from_der(rest).unwrap().1.as_ref().to_vec()
        };
        for label in labels {
            assert!(outcome(&pem_source(&certificate, &pem(label, &pkcs8))).is_ok(), "{label}");
            assert!(from_bundle((pem(label, &pkcs8) + &certificate).as_bytes(), "b").is_ok(), "{label}");
            // Ed25519 has no other format.
            if *algorithm != PKCS_ED25519 {
                assert!(outcome(&pem_source(&certificate, &pem(label, &inner))).is_ok(), "{label}");
            }
        }
    }
}

#[test]
fn mistakes_name_their_location() {
    let directory = Directory::new();
    let (certificate, key) = pair("a.example", &PKCS_ED25519);
    let (_, other) = pair("a.example", &PKCS_ED25519);
    let encrypted = "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n";
    let wants_key = "expected a private key as PEM: `-----BEGIN PRIVATE KEY-----`";
    let wants_certificate = "expected a certificate as PEM: `-----BEGIN CERTIFICATE-----`";
    let request = "-----BEGIN CERTIFICATE REQUEST-----\nMAA=\n-----END CERTIFICATE REQUEST-----\n";
    let private = "`-----BEGIN PRIVATE KEY-----`";
    let indented = certificate.replace("-----BEGIN", "  -----BEGIN");
    for (certificate, key, want) in [
        (&*certificate, &*other, "p.key: found another key than that of the certificate in p.certificate".to_owned()),
        ("", &key, format!("p.certificate: found nothing: it is empty, {wants_certificate}")),
        (" \n", &key, format!("p.certificate: found nothing: it is empty, {wants_certificate}")),
        ("hello", &key, format!("p.certificate: found text that is not PEM, {wants_certificate}")),
        (&key, &key, format!("p.certificate: found {private}, {wants_certificate}")),
        (
            &indented,
            &key,
            format!(
                "p.certificate: found `-----BEGIN CERTIFICATE-----` after spaces, which must not begin a line of PEM, {wants_certificate}"
            ),
        ),
        (request, &key, format!("p.certificate: found `-----BEGIN CERTIFICATE REQUEST-----`, {wants_certificate}")),
        (&certificate, "", format!("p.key: found nothing: it is empty, {wants_key}")),
        (&certificate, &certificate, format!("p.key: found `-----BEGIN CERTIFICATE-----`, {wants_key}")),
        (&certificate, encrypted, "p.key: found an encrypted private key, expected one without a pass phrase".into()),
    ] {
        assert_eq!(outcome(&pem_source(certificate, key)), Err(want));
    }
    let der = CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap();
    let (at, of) = (directory.path("der.crt"), directory.path("the.key"));
    fs::write(&at, &der).unwrap();
    fs::write(&of, &key).unwrap();
    let location = at.display().to_string();
    let error = outcome(&[LoadedSource::Files { certificate: at, key: of, tags: vec![] }]).unwrap_err();
    assert_eq!(error, format!("{location}: found binary data (DER), {wants_certificate}"));
    let cut = &certificate[..certificate.len() / 2];
    let error = outcome(&pem_source(cut, &key)).unwrap_err();
    assert!(error.starts_with("p.certificate: found "), "{error}");
    let nonsense = "-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n";
    let error = outcome(&pem_source(nonsense, &key)).unwrap_err();
    assert!(error.starts_with("p.certificate: found a certificate that cannot be read: "), "{error}");
    let nowhere = directory.path("nowhere.crt");
    let files = LoadedSource::Files { certificate: nowhere.clone(), key: nowhere.clone(), tags: Vec::new() };
    let error = outcome(&[files]).unwrap_err();
    assert!(error.starts_with(&format!("{}: cannot be read: ", nowhere.display())), "{error}");
    fs::write(directory.path("x.pem"), &certificate).unwrap();
    let error = outcome(&[LoadedSource::Directory(directory.path(""))]).unwrap_err();
    assert!(error.starts_with(&format!("{}: found `-----BEGIN CERT", directory.path("x.pem").display())), "{error}");
}

// RFC 7468 §3: the end of a section takes a line. Go's parser ignores a section that ends otherwise, so Caddy refuses
// the chain.
#[test]
fn joined_sections_are_refused() {
    let (certificate, key) = pair("a.example", &PKCS_ED25519);
    let lines = certificate.trim_end().lines().count();
    let joined = format!("{}{certificate}", certificate.trim_end());
    let expected = format!(":{lines}: found text after `-----END CERTIFICATE-----`, expected it on a line of its own");
    assert_eq!(outcome(&pem_source(&joined, &key)), Err(format!("p.certificate{expected}")));
    let commented = format!("{} # mine\n", certificate.trim_end());
    assert_eq!(outcome(&pem_source(&commented, &key)), Err(format!("p.certificate{expected}")));
    let with_key = format!("{}{key}", certificate.trim_end());
    assert_eq!(outcome(&pem_source(&certificate, &with_key)), Err(format!("p.key{expected}")));
    assert_eq!(from_bundle(with_key.as_bytes(), "b").unwrap_err().to_string(), format!("b{expected}"));
    for ending in [" \t", "\r", ""] {
        let separate = format!("{}{ending}\n{certificate}", certificate.trim_end());
        assert_eq!(load(&pem_source(&separate, &key)).unwrap()[0].signed().cert.len(), 2);
    }
}

/// The error describes a key that cannot sign a handshake.
#[test]
fn keys_that_cannot_be_used() {
    if Command::new("openssl").arg("version").output().is_err() {
        eprintln!("skipped: openssl is not installed");
        return;
    }
    let (certificate, _) = pair("a.example", &PKCS_ED25519);
    let expected = "expected RSA of 2048 to 8192 bits, ECDSA on P-256, P-384 or P-521, or Ed25519";
    for (options, found) in [
        (&["-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:1024"][..], "an RSA key of 1024 bits"),
        (&["-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:secp256k1"], "an ECDSA key on secp256k1"),
        (&["-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-224"], "an ECDSA key on P-224"),
        (&["-algorithm", "ED448"], "an Ed448 key"),
        (&["-algorithm", "X25519"], "an X25519 key, which cannot sign"),
    ] {
        let output = Command::new("openssl").arg("genpkey").args(options).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let key = String::from_utf8(output.stdout).unwrap();
        assert_eq!(outcome(&pem_source(&certificate, &key)), Err(format!("p.key: found {found}, {expected}")));
    }
    let broken = "-----BEGIN PRIVATE KEY-----\nMAA=\n-----END PRIVATE KEY-----\n";
    let error = outcome(&pem_source(&certificate, broken)).unwrap_err();
    assert_eq!(error, format!("p.key: found a private key that is broken, {expected}"));
}

/// RFC 5280 §4.1.2.1: version 1 has no extensions, so the certificate is found by its common name, as in Caddy.
#[test]
fn a_certificate_of_version_1() {
    const VERSION_1: &str = include_str!("version1.pem");
    assert_eq!(outcome(&pem_source(VERSION_1, VERSION_1)), Ok(vec![vec!["v1.example".to_owned()]]));
    let loaded = load(&pem_source(VERSION_1, VERSION_1)).unwrap();
    let warning = |at| loaded[0].warning(at);
    let (year, day) = (Duration::from_secs(365 * 86_400), crate::tests::DAY);
    assert_eq!(
        warning(crate::tests::now()).as_deref(),
        Some("the certificate has no subjectAltName, and most clients do not look at its common name")
    );
    assert_eq!(
        warning(SystemTime::UNIX_EPOCH + day).as_deref(),
        Some("the certificate is not valid before 2020-01-01")
    );
    assert_eq!(warning(crate::tests::now() + 110 * year).as_deref(), Some("the certificate expired on 2120-01-01"));
    let (_, other) = pair("a.example", &rcgen::PKCS_ECDSA_P256_SHA256);
    let error = outcome(&pem_source(VERSION_1, &other)).unwrap_err();
    assert_eq!(error, "p.key: found another key than that of the certificate in p.certificate");
}

/// As in CertMagic: a certificate that no server name can select is an error.
#[test]
fn a_certificate_without_names_is_refused() {
    let key = KeyPair::generate().unwrap();
    let mut params = rcgen::CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    let certificate = params.self_signed(&key).unwrap().pem();
    let error = outcome(&pem_source(&certificate, &key.serialize_pem())).unwrap_err();
    assert!(error.starts_with("p.certificate: found a certificate without a name, expected "), "{error}");
}

// Caddy's documentation of `load_storage`: pairs of keys in the storage.
#[test]
fn certificates_in_a_storage() {
    let directory = Directory::new();
    let storage: SharedStorage = std::sync::Arc::new(crate::FileStorage::new(directory.path("")));
    let (certificate, key) = pair("a.example", &PKCS_ED25519);
    let source = |certificate: &str| LoadedSource::Stored {
        storage: storage.clone(),
        certificate: certificate.to_owned(),
        key: "own/a.key".to_owned(),
        tags: vec!["t".to_owned()],
    };
    for (at, text) in [("own/a.crt", &*certificate), ("own/a.key", &*key), ("own/bad.crt", "no PEM")] {
        storage.store(at, text.as_bytes(), crate::Durability::Unflushed).unwrap();
    }
    let loaded = load(&[source("own/a.crt")]).unwrap();
    assert!(loaded[0].names().contains(&"a.example".to_owned()) && loaded[0].tags() == ["t"]);
    for (at, want) in
        [("own/b.crt", "there is no such value in the storage"), ("own/bad.crt", "found text that is not PEM")]
    {
        let error = outcome(&[source(at)]).unwrap_err();
        assert!(error.contains(at) && error.contains(want), "{error}");
    }
}
