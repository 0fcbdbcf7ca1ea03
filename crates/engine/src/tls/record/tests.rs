use rustls::crypto::cipher::AeadKey;

use super::super::names::SUITES;
use super::*;

fn pair(suite: SupportedCipherSuite, name: &str, sequence: u64) -> (Sealer, Opener) {
    let secrets = || {
        // `AeadKey` is always made of 32 bytes, and only rustls's key schedule can shorten it; so suites with shorter
        // keys cannot be tested here.
        let (key, iv) = (AeadKey::from([7; 32]), Iv::new([9; 12]));
        if name.contains("CHACHA20") {
            ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv }
        } else {
            ConnectionTrafficSecrets::Aes256Gcm { key, iv }
        }
    };
    (Sealer::new(suite, sequence, &secrets()).unwrap(), Opener::new(suite, sequence, secrets()).unwrap())
}

fn suites() -> impl Iterator<Item = (&'static str, SupportedCipherSuite)> {
    SUITES.iter().copied().filter(|(name, _)| !name.contains("AES_128"))
}

/// Content sealed from slices of any lengths opens to the same bytes.
#[test]
fn sealed_slices_open_to_the_same_bytes() {
    let bytes: Vec<u8> = (0..=250).cycle().take(150_000).collect();
    for (name, suite) in suites() {
        for cuts in [
            vec![150_000],
            vec![0, 200, 49_152],
            vec![1, 1, 1, 0, 16_383, 1, 40_000],
            vec![16_384, 16_384, 5],
            vec![100, 16_384, 100, 70_000],
            vec![9_000; 10],
        ] {
            let (mut sealer, mut opener) = pair(suite, name, 3);
            let mut at = 0;
            let slices: Vec<_> = cuts
                .iter()
                .map(|len| {
                    (at, {
                        at += len;
                        at
                    })
                })
                .collect();
            let slices: Vec<_> = slices.into_iter().map(|(from, to)| IoSlice::new(&bytes[from..to])).collect();
            let mut out = vec![0; SEALED_BYTES];
            let (taken, filled) = sealer.seal_slices(&slices, &mut out).unwrap();
            assert_eq!(taken, at.min(SEALED_CONTENT_MAX), "{name} {cuts:?}");
            let (mut opened, mut rest) = (Vec::new(), &mut out[..filled]);
            while !rest.is_empty() {
                let len = whole(rest).unwrap().expect("only whole records");
                let (record, remaining) = std::mem::take(&mut rest).split_at_mut(len);
                let (kind, content) = opener.open(record).unwrap();
                assert_eq!(kind, ContentType::ApplicationData);
                opened.extend_from_slice(&record[content]);
                rest = remaining;
            }
            assert!(opened == bytes[..taken], "{name} {cuts:?}");
        }
    }
}

/// RFC 8446 §5.2, RFC 5246 §6.2.3: changed or replayed records do not open.
#[test]
fn changed_bytes_are_not_opened() {
    for (name, suite) in suites() {
        let mut record = vec![0; 200];
        let (mut sealer, _) = pair(suite, name, 0);
        let len = sealer.seal(ContentType::ApplicationData, b"content", &mut record).unwrap();
        for at in 0..len {
            let mut changed = record[..len].to_vec();
            changed[at] ^= 1;
            let (_, mut opener) = pair(suite, name, 0);
            let is_framed = whole(&changed) == Ok(Some(len));
            // The minor version in a record's header is neither authenticated nor checked.
            let is_version = at == 2;
            assert!(is_version || !is_framed || opener.open(&mut changed).is_err(), "{name}, byte {at}");
        }
        let (_, mut opener) = pair(suite, name, 0);
        assert!(opener.open(&mut record.clone()[..len]).is_ok());
        assert_eq!(opener.open(&mut record[..len]), Err(RecordError(alert::BAD_RECORD_MAC)), "{name}: again");
    }
}

#[test]
fn a_key_seals_at_most_its_limit_of_records() {
    for (name, suite) in suites().filter(|(name, _)| !name.contains("CHACHA20")) {
        let limit = 1 << 24;
        let (mut sealer, _) = pair(suite, name, limit - 65);
        let mut out = [0; 64];
        assert!(!sealer.is_worn());
        sealer.seal(ContentType::Alert, &[1, 0], &mut out).unwrap();
        assert!(sealer.is_worn(), "{name}");
        for _ in 0..64 {
            sealer.seal(ContentType::Alert, &[1, 0], &mut out).unwrap();
        }
        assert_eq!(sealer.seal(ContentType::Alert, &[1, 0], &mut out), Err(Exhausted), "{name}");
    }
}

#[test]
fn records_are_framed() {
    for (bytes, want) in [
        (&[][..], Ok(None)),
        (&[23, 3, 3, 0], Ok(None)),
        (&[23, 3, 3, 0, 1], Ok(None)),
        (&[23, 3, 3, 0, 1, 9], Ok(Some(6))),
        (&[23, 3, 3, 0, 1, 9, 9], Ok(Some(6))),
        (&[23, 3, 3, 0, 0], Ok(Some(5))),
        (&[23, 2, 3, 0, 1, 9], Err(RecordError(alert::DECODE_ERROR))),
        (&[19, 3, 3, 0x48, 0], Err(RecordError(alert::UNEXPECTED_MESSAGE))),
        (&[25, 3, 3, 0, 0], Err(RecordError(alert::UNEXPECTED_MESSAGE))),
        (&[23, 3, 3, 0x48, 0], Ok(None)),
        (&[23, 3, 3, 0x48, 1], Err(RecordError(alert::RECORD_OVERFLOW))),
    ] {
        assert_eq!(whole(bytes), want, "{bytes:?}");
    }
}
