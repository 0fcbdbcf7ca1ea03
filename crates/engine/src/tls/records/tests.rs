use rustls::{ClientConnection, ServerConnection, SupportedProtocolVersion};

use super::super::fixture::{TLS12, TLS13, TlsFixture, hear, sealed, sent};
use super::*;

/// A connection of ours after its handshake, and its peer's keys.
struct RecordPair {
    ours: Records,
    seal: Sealer,
    open: Opener,
}

impl RecordPair {
    fn new(fixture: &TlsFixture, role: Role) -> Self {
        match role {
            Role::Server => {
                let (mut session, mut client, _) = fixture.server();
                while session.tls.is_handshaking() || client.is_handshaking() {
                    fixture.feed(&mut session, &sent(&mut client)).unwrap();
                    hear(&mut client, &mut session.out).unwrap();
                }
                let (secrets, keys) = session.tls.dangerous_into_kernel_connection().unwrap();
                Self::of(Records::new(secrets, Keys::Server(keys)).unwrap(), TlsPeer::Client(client))
            }
            Role::Client => {
                let (mut session, mut server, _) = fixture.client();
                session.advance().unwrap();
                while session.tls.is_handshaking() || server.is_handshaking() {
                    hear(&mut server, &mut session.out).unwrap();
                    fixture.feed(&mut session, &sent(&mut server)).unwrap();
                }
                let (secrets, keys) = session.tls.dangerous_into_kernel_connection().unwrap();
                let mut ours = Records::new(secrets, Keys::Client(keys)).unwrap();
                // Session tickets follow in the server's last flight.
                let mut rest = session.inbound.sealed().to_vec();
                let mut rest = &mut rest[..];
                while let Some(len) = ours.whole(rest) {
                    let (record, after) = rest.split_at_mut(len);
                    assert_eq!(ours.open(record), None);
                    rest = after;
                }
                Self::of(ours, TlsPeer::Server(server))
            }
        }
    }

    fn of(ours: Records, peer: TlsPeer) -> Self {
        let suite = ours.keys.suite();
        let secrets = match peer {
            TlsPeer::Client(client) => client.dangerous_extract_secrets(),
            TlsPeer::Server(server) => server.dangerous_extract_secrets(),
        };
        let secrets = secrets.unwrap();
        let seal = Sealer::new(suite, secrets.tx.0, &secrets.tx.1).unwrap();
        let open = Opener::new(suite, secrets.rx.0, secrets.rx.1).unwrap();
        Self { ours, seal, open }
    }

    /// Passes one record of the peer's to our connection. Returns whether it held content.
    fn receive(&mut self, kind: u8, content: &[u8]) -> bool {
        let mut record = sealed(&mut self.seal, kind, content);
        assert_eq!(self.ours.whole(&record), Some(record.len()));
        self.ours.open(&mut record).is_some()
    }

    /// Seals content and opens the resulting records with the peer's keys, up to a change of keys.
    fn sealed_records(&mut self) -> Vec<(u8, Vec<u8>)> {
        let mut out = vec![0; 1000];
        let (_, mut len) = self.ours.seal(&[IoSlice::new(b"content")], &mut out).unwrap();
        let (mut rest, mut sent) = (&mut out[..], vec![]);
        while len > 0 {
            let (record, after) = rest.split_at_mut(whole(rest).unwrap().unwrap());
            let (kind, content) = self.open.open(record).unwrap();
            sent.push((kind.into(), record[content].to_vec()));
            len -= record.len();
            rest = after;
            if sent.last().unwrap().0 == 22 {
                // The next record is under the next keys, which `open` does not have.
                break;
            }
        }
        sent
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Role {
    Server,
    Client,
}

enum TlsPeer {
    Client(ClientConnection),
    Server(ServerConnection),
}

fn fault(description: u8) -> Option<ReceiveEnd> {
    Some(ReceiveEnd::Fault(RecordError(description)))
}

const HELLO: &[u8] = &[1, 0, 0, 3, 3, 3, 9];

/// A label; records, each with its type; the end of the receive direction after them.
type RecordCase<'c> = (&'c str, &'c [(u8, &'c [u8])], Option<ReceiveEnd>);

#[track_caller]
fn check(versions: &[&'static SupportedProtocolVersion], role: Role, cases: &[RecordCase<'_>]) {
    let fixture = TlsFixture::new(versions);
    for (why, records, want) in cases {
        let mut pair = RecordPair::new(&fixture, role);
        for (kind, content) in *records {
            assert_eq!(pair.ours.end(), None, "{why}: before the last record");
            pair.receive(*kind, content);
        }
        assert_eq!(pair.ours.end(), *want, "{why}");
        if want.is_none() && !pair.ours.messages.is_amid() && !records.iter().any(|(kind, _)| *kind == 22) {
            assert!(pair.receive(23, b"content"), "{why}: content after it");
        }
    }
}

/// RFC 8446 §5.1: messages may be split over records and may share one; no other record may separate their parts, and a
/// KeyUpdate must end its record. §4.6: the allowed messages. §5.4: alerts and messages must not be empty.
#[test]
fn rfc8446_5_1_messages_after_the_handshake() {
    let update: &[u8] = &[24, 0, 0, 1, 0];
    for role in [Role::Server, Role::Client] {
        check(
            TLS13,
            role,
            &[
                ("a KeyUpdate", &[(22, update)], None),
                ("a KeyUpdate in two records", &[(22, &update[..2]), (22, &update[2..])], None),
                ("a KeyUpdate in five", &[(22, &[24]), (22, &[0]), (22, &[0]), (22, &[1]), (22, &[1])], None),
                ("content within it", &[(22, &update[..2]), (23, b"content")], fault(10)),
                ("empty content within it", &[(22, &update[..2]), (23, b"")], fault(10)),
                ("a close within it", &[(22, &update[..2]), (21, &[1, 0])], fault(10)),
                ("an empty record within it", &[(22, &update[..2]), (22, b"")], fault(10)),
                ("an empty record of messages", &[(22, b"")], fault(10)),
                ("an empty alert", &[(21, b"")], fault(10)),
                ("two KeyUpdates in a record", &[(22, &[update, update].concat())], fault(10)),
                ("a KeyUpdate, and the first byte of the next", &[(22, &[24, 0, 0, 1, 0, 24])], fault(10)),
                ("a split KeyUpdate, and a byte of the next", &[(22, &[24, 0]), (22, &[0, 1, 0, 24])], fault(10)),
                ("a KeyUpdate with the value 2", &[(22, &[24, 0, 0, 1, 2])], fault(47)),
                ("an empty KeyUpdate", &[(22, &[24, 0, 0, 0])], fault(50)),
                ("a long KeyUpdate", &[(22, &[24, 0, 0, 2, 0, 0])], fault(50)),
                ("a change_cipher_spec", &[(20, &[1])], fault(10)),
                ("a ClientHello", &[(22, HELLO)], fault(10)),
                ("a HelloRequest", &[(22, &[0, 0, 0, 0])], fault(10)),
                ("a CertificateRequest", &[(22, &[13, 0, 0, 3, 0, 0, 0])], fault(10)),
                ("a Finished", &[(22, &[20, 0, 0, 0])], fault(10)),
            ],
        );
    }
    // RFC 8446 §4.6.1: lifetime, addition, nonce, ticket, extensions.
    let body = [&[0, 0, 0, 9][..], &[1, 2, 3, 4], &[1, 7], &[0, 3, 5, 5, 5], &[0, 0]].concat();
    let ticket = [&[4, 0, 0, u8::try_from(body.len()).unwrap()][..], &body].concat();
    let two = [&ticket[..], &ticket].concat();
    let then_update = [&ticket[..], update].concat();
    check(
        TLS13,
        Role::Client,
        &[
            ("a ticket", &[(22, &ticket)], None),
            ("two in a record", &[(22, &two)], None),
            ("two over two records, split in the second", &[(22, &two[..25]), (22, &two[25..])], None),
            ("a ticket and a KeyUpdate", &[(22, &then_update)], None),
            ("a malformed ticket", &[(22, &[4, 0, 0, 1, 0])], fault(50)),
            ("a ticket that is too long", &[(22, &[4, 1, 0, 0])], fault(50)),
        ],
    );
    check(TLS13, Role::Server, &[("a ticket for a server", &[(22, &ticket)], fault(10))]);
}

/// RFC 8446 §4.6.3: a KeyUpdate takes effect with the next record, and gets a KeyUpdate in return when it requests one.
#[test]
fn rfc8446_4_6_3_keys_follow() {
    let fixture = TlsFixture::new(TLS13);
    for (update_requested, is_answered) in [(0, false), (1, true)] {
        let ((mut server, ..), (mut client, ..)) = (fixture.server(), fixture.client());
        client.advance().unwrap();
        while server.tls.is_handshaking() || client.tls.is_handshaking() {
            fixture.feed(&mut server, &std::mem::take(&mut client.out)).unwrap();
            fixture.feed(&mut client, &std::mem::take(&mut server.out)).unwrap();
        }
        let (secrets, keys) = server.tls.dangerous_into_kernel_connection().unwrap();
        let mut ours = Records::new(secrets, Keys::Server(keys)).unwrap();
        let (secrets, mut theirs) = client.tls.dangerous_into_kernel_connection().unwrap();
        let suite = ours.keys.suite();
        let mut seal = Sealer::new(suite, secrets.tx.0, &secrets.tx.1).unwrap();
        // The server's tickets are unread.
        let tickets = records_in(client.inbound.sealed());
        let mut open = Opener::new(suite, secrets.rx.0 + tickets, secrets.rx.1).unwrap();
        for part in [&[24, 0][..], &[0, 1, update_requested]] {
            assert_eq!(ours.open(&mut sealed(&mut seal, 22, part)), None);
        }
        let (sequence, secrets) = theirs.update_tx_secret().unwrap();
        let mut seal = Sealer::new(suite, sequence, &secrets).unwrap();
        assert!(ours.open(&mut sealed(&mut seal, 23, b"content")).is_some());
        let mut out = vec![0; 1000];
        let (_, len) = ours.seal(&[IoSlice::new(b"content")], &mut out).unwrap();
        let mut rest = &mut out[..len];
        if is_answered {
            let (record, after) = rest.split_at_mut(whole(rest).unwrap().unwrap());
            let (kind, content) = open.open(record).unwrap();
            assert_eq!((kind, &record[content]), (ContentType::Handshake, &[24, 0, 0, 1, 0][..]));
            let (sequence, secrets) = theirs.update_rx_secret().unwrap();
            open = Opener::new(suite, sequence, secrets).unwrap();
            rest = after;
        }
        let (kind, content) = open.open(rest).unwrap();
        assert_eq!((kind, &rest[content]), (ContentType::ApplicationData, &b"content"[..]));
    }
}

fn records_in(mut bytes: &[u8]) -> u64 {
    let mut count = 0;
    while let Some(len) = whole(bytes).unwrap() {
        bytes = &bytes[len..];
        count += 1;
    }
    count
}

/// RFC 5246 §7.2.2, §7.4.1.1: a client's request for a renegotiation is declined with a warning and a server's is
/// ignored; the connection continues. Any further handshake message is a fault.
#[test]
fn rfc5246_7_4_1_1_another_handshake_is_declined() {
    let request: &[u8] = &[0, 0, 0, 0];
    check(
        TLS12,
        Role::Client,
        &[
            ("a HelloRequest", &[(22, request)], None),
            ("a HelloRequest in two records", &[(22, &request[..1]), (22, &request[1..])], None),
            ("two in a record", &[(22, &[0; 8])], None),
            ("content within it", &[(22, &request[..1]), (23, b"content")], fault(10)),
            ("a HelloRequest that is not empty", &[(22, &[0, 0, 0, 1, 0])], fault(50)),
            ("a ClientHello", &[(22, HELLO)], fault(10)),
            ("a KeyUpdate", &[(22, &[24, 0, 0, 1, 0])], fault(10)),
            ("a ticket", &[(22, &[4, 0, 0, 0])], fault(10)),
            ("a change_cipher_spec", &[(20, &[1])], fault(10)),
        ],
    );
    check(
        TLS12,
        Role::Server,
        &[
            ("a ClientHello", &[(22, HELLO)], None),
            ("a ClientHello in two records", &[(22, &HELLO[..5]), (22, &HELLO[5..])], None),
            ("a HelloRequest", &[(22, request)], fault(10)),
            ("a Finished", &[(22, &[20, 0, 0, 0])], fault(10)),
            ("a ClientHello that is too long", &[(22, &[1, 1, 0, 0])], fault(50)),
        ],
    );
    let fixture = TlsFixture::new(TLS12);
    for (role, message, is_answered) in [(Role::Client, request, false), (Role::Server, HELLO, true)] {
        let mut pair = RecordPair::new(&fixture, role);
        assert!(!pair.receive(22, message));
        assert_eq!(pair.ours.must_warn(), is_answered);
        let warning = if is_answered { vec![(21, vec![1, 100])] } else { vec![] };
        assert_eq!(pair.sealed_records(), [warning, vec![(23, b"content".to_vec())]].concat(), "{role:?}");
        assert!(pair.receive(23, b"content"));
        assert_eq!(pair.sealed_records(), [(23, b"content".to_vec())]);
    }
}

/// The effect of alerts on a connection; `alert::tests` has the whole table.
#[test]
fn alerts_end_the_connection_or_not() {
    for role in [Role::Server, Role::Client] {
        check(
            TLS13,
            role,
            &[
                ("close_notify", &[(21, &[1, 0])], Some(ReceiveEnd::CloseNotify)),
                ("user_canceled, then close_notify", &[(21, &[1, 90]), (21, &[1, 0])], Some(ReceiveEnd::CloseNotify)),
                ("a fatal user_canceled", &[(21, &[2, 90])], None),
                ("a warning that is an error", &[(21, &[1, 100])], Some(ReceiveEnd::PeerAborted(100))),
                ("a fatal error", &[(21, &[2, 40])], Some(ReceiveEnd::PeerAborted(40))),
            ],
        );
        check(
            TLS12,
            role,
            &[
                ("close_notify", &[(21, &[1, 0])], Some(ReceiveEnd::CloseNotify)),
                ("a fatal user_canceled", &[(21, &[2, 90])], Some(ReceiveEnd::PeerAborted(90))),
                ("a user_canceled warning", &[(21, &[1, 90])], None),
                ("no_renegotiation", &[(21, &[1, 100])], None),
                ("a fatal no_renegotiation", &[(21, &[2, 100])], Some(ReceiveEnd::PeerAborted(100))),
                ("a level that does not exist", &[(21, &[3, 0])], fault(47)),
            ],
        );
    }
}

/// Too many consecutive records without content end the connection; content resets the count.
#[test]
fn records_without_content_are_bounded() {
    let fixture = TlsFixture::new(TLS12);
    for (kind, content) in [(23, &b""[..]), (21, &[1, 90]), (22, HELLO)] {
        let mut pair = RecordPair::new(&fixture, Role::Server);
        for _ in 0..2 {
            for _ in 0..EMPTY_RECORDS_MAX {
                pair.receive(kind, content);
            }
            assert!(pair.receive(23, b"content"));
        }
        for _ in 0..=EMPTY_RECORDS_MAX {
            pair.receive(kind, content);
        }
        assert_eq!(pair.ours.end(), fault(10), "type {kind}");
    }
    // Messages count one by one, also within one record.
    let mut pair = RecordPair::new(&fixture, Role::Client);
    pair.receive(22, &[0; 4 * 33]);
    assert_eq!(pair.ours.end(), fault(10));
}
