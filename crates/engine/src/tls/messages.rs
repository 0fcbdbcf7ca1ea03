//! Reassembles post-handshake messages from records.
//!
//! RFC 8446 §5.1, RFC 5246 §6.2.1: a message may be split over records, and a record may hold several. A message within
//! one record is parsed in place; only a split message is copied, up to [`MESSAGE_BYTES_MAX`].

use super::alert;
use super::record::RecordError;

/// Maximum length of a message without its header, enough for any ticket or ClientHello. rustls has the same bound.
const MESSAGE_BYTES_MAX: usize = 0xffff;
/// Length of a message's header: type and 24-bit length (RFC 8446 §4).
const HEADER_BYTES: usize = 4;

pub(super) const HELLO_REQUEST: u8 = 0;
pub(super) const CLIENT_HELLO: u8 = 1;
pub(super) const NEW_SESSION_TICKET: u8 = 4;
pub(super) const KEY_UPDATE: u8 = 24;

/// The reassembly buffer.
#[derive(Default)]
pub(super) struct Messages {
    /// The received part of an incomplete message; empty between messages.
    part: Vec<u8>,
}

/// A complete message.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct HandshakeMessage<'m> {
    pub(super) kind: u8,
    pub(super) body: &'m [u8],
    /// The message is the last one in its record.
    pub(super) ends_record: bool,
}

impl Messages {
    /// Returns whether a message is incomplete, so that the next record must continue it.
    pub(super) fn is_amid(&self) -> bool {
        !self.part.is_empty()
    }

    /// Calls `handle` with each message that this record completes, and stores the incomplete rest. A message whose
    /// type is not in `expected` is refused at its first byte, before any of it is stored.
    ///
    /// # Errors
    /// The record is empty, a message has an unexpected type or length, or `handle` failed.
    pub(super) fn feed(
        &mut self,
        mut content: &[u8],
        expected: &[u8],
        mut handle: impl FnMut(HandshakeMessage<'_>) -> Result<(), RecordError>,
    ) -> Result<(), RecordError> {
        if content.is_empty() {
            // RFC 8446 §5.4, RFC 5246 §6.2.1: handshake records must not be empty.
            return Err(RecordError(alert::UNEXPECTED_MESSAGE));
        }
        // First completes the stored message: its header, which may be split too, then its body. The length is checked
        // as soon as the header is complete, so `part` never exceeds the bound.
        while self.is_amid() && !content.is_empty() {
            let missing = match bytes(&self.part)? {
                Some(bytes) => bytes - self.part.len(),
                None => HEADER_BYTES - self.part.len(),
            };
            let (part, rest) = content.split_at(missing.min(content.len()));
            self.part.extend_from_slice(part);
            content = rest;
            check(&self.part, expected)?;
            if bytes(&self.part)? == Some(self.part.len()) {
                // This also frees the buffer, which split messages rarely need again.
                let whole = std::mem::take(&mut self.part);
                handle(HandshakeMessage {
                    kind: whole[0],
                    body: &whole[HEADER_BYTES..],
                    ends_record: content.is_empty(),
                })?;
            }
        }
        // Then parses messages in place.
        while !content.is_empty() {
            check(content, expected)?;
            match bytes(content)? {
                Some(bytes) if bytes <= content.len() => {
                    let (whole, rest) = content.split_at(bytes);
                    content = rest;
                    handle(HandshakeMessage {
                        kind: whole[0],
                        body: &whole[HEADER_BYTES..],
                        ends_record: rest.is_empty(),
                    })?;
                }
                _ => {
                    self.part.extend_from_slice(content);
                    return Ok(());
                }
            }
        }
        Ok(())
    }
}

/// Checks the type of a message by its first byte.
fn check(message: &[u8], expected: &[u8]) -> Result<(), RecordError> {
    match message.first() {
        Some(kind) if !expected.contains(kind) => Err(RecordError(alert::UNEXPECTED_MESSAGE)),
        _ => Ok(()),
    }
}

/// Returns the length of the message at the front of `message`, header included, or `None` while its header is
/// incomplete.
fn bytes(message: &[u8]) -> Result<Option<usize>, RecordError> {
    let Some(&[kind, high, middle, low]) = message.first_chunk::<HEADER_BYTES>() else { return Ok(None) };
    let bytes = usize::from(high) << 16 | usize::from(middle) << 8 | usize::from(low);
    let is_right = match kind {
        HELLO_REQUEST => bytes == 0,
        KEY_UPDATE => bytes == 1,
        _ => bytes <= MESSAGE_BYTES_MAX,
    };
    if is_right { Ok(Some(HEADER_BYTES + bytes)) } else { Err(RecordError(alert::DECODE_ERROR)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    type ParsedMessage = (u8, Vec<u8>, bool);

    fn feed(messages: &mut Messages, record: &[u8], seen: &mut Vec<ParsedMessage>) -> Result<(), RecordError> {
        messages.feed(
            record,
            &[CLIENT_HELLO, KEY_UPDATE, NEW_SESSION_TICKET],
            |HandshakeMessage { kind, body, ends_record }| {
                seen.push((kind, body.to_vec(), ends_record));
                Ok(())
            },
        )
    }

    /// RFC 8446 §5.1: every split of messages over records yields equal messages, and a message is incomplete exactly
    /// when a record does not end with a message's end.
    #[test]
    fn rfc8446_5_1_messages_are_split_and_joined() {
        let bytes = [&[4, 0, 0, 3, 1, 2, 3][..], &[4, 0, 0, 0], &[1, 0, 0, 2, 8, 9], &[24, 0, 0, 1, 1]].concat();
        let ends = [7, 11, 17, 22];
        let want = [(4, vec![1, 2, 3]), (4, vec![]), (1, vec![8, 9]), (24, vec![1])];
        for first in 0..=bytes.len() {
            for second in first..=bytes.len() {
                let (mut messages, mut seen) = (Messages::default(), Vec::new());
                for (start, end) in [(0, first), (first, second), (second, bytes.len())] {
                    if start == end {
                        continue;
                    }
                    let before = seen.len();
                    feed(&mut messages, &bytes[start..end], &mut seen).unwrap();
                    assert_eq!(messages.is_amid(), !ends.contains(&end), "{first} {second}");
                    let last = seen.len().checked_sub(1).filter(|last| *last >= before);
                    assert_eq!(last.is_some_and(|last| seen[last].2), ends.contains(&end), "{first} {second}");
                }
                let came: Vec<_> = seen.into_iter().map(|(kind, body, _)| (kind, body)).collect();
                assert_eq!(came, want, "{first} {second}");
            }
        }
    }

    #[test]
    fn malformed_messages_are_refused_at_the_first_wrong_byte() {
        for (why, records, want) in [
            ("an empty record", &[&[][..]][..], alert::UNEXPECTED_MESSAGE),
            ("an empty record within a message", &[&[24, 0], &[]], alert::UNEXPECTED_MESSAGE),
            ("a message of an unexpected type", &[&[20]], alert::UNEXPECTED_MESSAGE),
            ("an unexpected type after an expected message", &[&[24, 0, 0, 1, 0, 20]], alert::UNEXPECTED_MESSAGE),
            ("an unexpected type after a split message", &[&[24, 0], &[0, 1, 0, 20]], alert::UNEXPECTED_MESSAGE),
            ("a KeyUpdate of two bytes", &[&[24, 0, 0, 2]], alert::DECODE_ERROR),
            ("a split KeyUpdate of two bytes", &[&[24], &[0, 0, 2]], alert::DECODE_ERROR),
            ("an empty KeyUpdate", &[&[24, 0, 0, 0]], alert::DECODE_ERROR),
            ("a message above the length limit", &[&[4, 1, 0, 0]], alert::DECODE_ERROR),
        ] {
            let (mut messages, mut seen) = (Messages::default(), Vec::new());
            let (last, before) = records.split_last().unwrap();
            before.iter().for_each(|record| feed(&mut messages, record, &mut seen).unwrap());
            assert_eq!(feed(&mut messages, last, &mut seen), Err(RecordError(want)), "{why}");
        }
    }

    #[test]
    fn a_partial_message_is_bounded_and_freed_when_complete() {
        let (mut messages, mut seen) = (Messages::default(), Vec::new());
        feed(&mut messages, &[4, 0, 0xff, 0xff], &mut seen).unwrap();
        for _ in 0..3 {
            feed(&mut messages, &[7; 16_384], &mut seen).unwrap();
        }
        feed(&mut messages, &[7; 16_383], &mut seen).unwrap();
        assert!(!messages.is_amid() && messages.part.capacity() == 0);
        assert_eq!(seen.len(), 1);
        assert_eq!(seen[0].1.len(), 0xffff);
    }
}
