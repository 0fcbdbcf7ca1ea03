//! Both roles against rustls's buffered connections, with records split and replaced in transit.

use rustls::{AlertDescription, SideData};

use super::super::fixture::{TLS12, TLS13, TlsFixture, hear, plain, records, sealed, sent};
use super::super::record::Opener;
use super::*;

/// Records in place of a message's second part, and the alert that each must cause; `None` accepts any alert.
fn interruptions(mut seal: impl FnMut(u8, &[u8]) -> Vec<u8>) -> Vec<(&'static str, Vec<u8>, Option<AlertDescription>)> {
    use AlertDescription as Alert;
    vec![
        ("a record that does not open", plain(23, &[7; 60]), Some(Alert::BadRecordMac)),
        ("application data", seal(23, b"data"), Some(Alert::UnexpectedMessage)),
        ("an empty record of application data", seal(23, b""), Some(Alert::UnexpectedMessage)),
        ("a warning", seal(21, &[1, 90]), Some(Alert::UnexpectedMessage)),
        ("a record of an unknown type", seal(99, b"?"), Some(Alert::UnexpectedMessage)),
        ("a record without a type", vec![0, 3, 3, 0, 1, 0], Some(Alert::DecodeError)),
        ("a record without a version", vec![22, 9, 9, 0, 1, 0], Some(Alert::DecodeError)),
        ("a record that is too long", vec![23, 3, 3, 0xff, 0xff], None),
    ]
}

/// Asserts that the handshake failed and that the peer can read our alert.
#[track_caller]
fn faulted<E: Endpoint, S: SideData>(
    why: &str,
    session: &mut Session<E>,
    result: Result<(), Error>,
    peer: &mut rustls::ConnectionCommon<S>,
    want: Option<AlertDescription>,
) {
    let error = result.expect_err(why);
    assert!(!session.out.is_empty(), "{why}: no alert for {error:?}");
    match hear(peer, &mut session.out) {
        Err(Error::AlertReceived(alert)) => {
            assert!(want.is_none_or(|want| want == alert), "{why}: {alert:?} for {error:?}");
        }
        other => panic!("{why}: {other:?} after {error:?}"),
    }
}

/// RFC 8446 §5.1, §6: a fault within a message causes an alert under our keys. The server has a part of the client's
/// Finished.
#[test]
fn rfc8446_5_1_a_server_faults_amid_a_finished() {
    let fixture = TlsFixture::new(TLS13);
    for case in 0..8 {
        for part in [1, 4, 20] {
            let (mut session, mut client, keys) = fixture.server();
            fixture.feed(&mut session, &sent(&mut client)).unwrap();
            hear(&mut client, &mut session.out).unwrap();
            let mut flight = records(&sent(&mut client));
            let suite = client.negotiated_cipher_suite().unwrap();
            let mut sealer = keys.sealer(suite, None).unwrap();
            let (sequence, secrets) = keys.secrets(suite, None).unwrap();
            let mut opener = Opener::new(suite, sequence, secrets).unwrap();
            let finished = flight.last_mut().unwrap();
            let (kind, content) = opener.open(finished).unwrap();
            assert_eq!((kind, finished[content.start]), (ContentType::Handshake, 20));
            let first = sealed(&mut sealer, 22, &finished[content][..part]);
            fixture.feed(&mut session, &first).unwrap();
            let (why, record, want) =
                interruptions(|kind, content| sealed_once(&keys, suite, kind, content)).swap_remove(case);
            let result = fixture.feed(&mut session, &record);
            faulted(why, &mut session, result, &mut client, want);
        }
    }
}

/// Seals the second record under a peer's handshake keys.
fn sealed_once(keys: &WriteSecret, suite: rustls::SupportedCipherSuite, kind: u8, content: &[u8]) -> Vec<u8> {
    let mut sealer = keys.sealer(suite, None).unwrap();
    sealed(&mut sealer, 22, b"the first");
    sealed(&mut sealer, kind, content)
}

/// RFC 8446 §5.1, §6 in the client's role: the fault is within the server's EncryptedExtensions.
#[test]
fn rfc8446_5_1_a_client_faults_amid_a_message() {
    let fixture = TlsFixture::new(TLS13);
    for case in 0..8 {
        let (mut session, mut server, keys) = fixture.client();
        session.advance().unwrap();
        hear(&mut server, &mut session.out).unwrap();
        let flight = records(&sent(&mut server));
        fixture.feed(&mut session, &flight[0]).unwrap();
        let suite = server.negotiated_cipher_suite().unwrap();
        let first = sealed(&mut keys.sealer(suite, None).unwrap(), 22, &[8, 0, 0]);
        fixture.feed(&mut session, &first).unwrap();
        let (why, record, want) =
            interruptions(|kind, content| sealed_once(&keys, suite, kind, content)).swap_remove(case);
        let result = fixture.feed(&mut session, &record);
        faulted(why, &mut session, result, &mut server, want);
    }
}

/// RFC 5246 §6.2.1 before there are keys: faults within a ClientKeyExchange and within a ServerHello.
#[test]
fn rfc5246_6_2_1_a_fault_before_keys() {
    let fixture = TlsFixture::new(TLS12);
    for (why, record, want) in interruptions(plain) {
        // Without keys every record opens, so its type decides.
        let want = match (record[0], want) {
            (99, _) => Some(AlertDescription::DecodeError),
            (_, Some(AlertDescription::BadRecordMac)) => Some(AlertDescription::UnexpectedMessage),
            _ => want,
        };
        let (mut session, mut client, _) = fixture.server();
        fixture.feed(&mut session, &sent(&mut client)).unwrap();
        hear(&mut client, &mut session.out).unwrap();
        fixture.feed(&mut session, &plain(22, &[16, 0, 0])).unwrap();
        let result = fixture.feed(&mut session, &record);
        faulted(why, &mut session, result, &mut client, want);

        let (mut session, mut server, _) = fixture.client();
        session.advance().unwrap();
        hear(&mut server, &mut session.out).unwrap();
        fixture.feed(&mut session, &plain(22, &sent(&mut server)[5..15])).unwrap();
        let result = fixture.feed(&mut session, &record);
        faulted(why, &mut session, result, &mut server, want);
    }
}

/// RFC 5246 §7.1 when our next record is already protected: a client that waits for the server's Finished, and a server
/// that resumes a session and waits for the client's Finished.
#[test]
fn rfc5246_7_1_a_fault_after_our_change_cipher_spec() {
    let fixture = TlsFixture::new(TLS12);
    let part = plain(22, &[4, 0, 0]);
    let record = plain(23, b"data");

    let (mut session, mut server, _) = fixture.client();
    session.advance().unwrap();
    hear(&mut server, &mut session.out).unwrap();
    fixture.feed(&mut session, &sent(&mut server)).unwrap();
    hear(&mut server, &mut session.out).unwrap();
    fixture.feed(&mut session, &part).unwrap();
    let result = fixture.feed(&mut session, &record);
    faulted("a client", &mut session, result, &mut server, Some(AlertDescription::UnexpectedMessage));

    for is_resumed in [false, true] {
        let (mut session, mut client, _) = fixture.server();
        fixture.feed(&mut session, &sent(&mut client)).unwrap();
        hear(&mut client, &mut session.out).unwrap();
        if is_resumed {
            assert_eq!(session.tls.handshake_kind(), Some(rustls::HandshakeKind::Resumed));
            fixture.feed(&mut session, &part).unwrap();
            let result = fixture.feed(&mut session, &record);
            faulted("a server", &mut session, result, &mut client, Some(AlertDescription::UnexpectedMessage));
        } else {
            fixture.feed(&mut session, &sent(&mut client)).unwrap();
            hear(&mut client, &mut session.out).unwrap();
            assert!(!session.tls.is_handshaking());
        }
    }
}

/// Records that follow the handshake in one read stay unopened for the record layer, for any split of the input.
#[test]
fn records_after_the_handshake_are_left_alone() {
    for versions in [TLS12, TLS13] {
        let fixture = TlsFixture::new(versions);
        for step in [1, 7, usize::MAX] {
            let (mut session, mut client, _) = fixture.server();
            let after = plain(23, b"content for the record layer");
            // The ClientHello, then the flight that ends with Finished.
            for is_last in [false, true] {
                let bytes = [sent(&mut client), if is_last { after.clone() } else { vec![] }].concat();
                for bytes in bytes.chunks(step.min(bytes.len())) {
                    fixture.feed(&mut session, bytes).unwrap();
                }
                hear(&mut client, &mut session.out).unwrap();
            }
            assert!(!session.tls.is_handshaking());
            assert_eq!(session.inbound.sealed(), after);
            session.tls.dangerous_into_kernel_connection().unwrap();
        }
    }
}
