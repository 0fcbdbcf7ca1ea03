//! The messages that a collector returns: `ExportTraceServiceResponse` of OTLP and its equal for metrics, and gRPC's
//! `Status` and `RetryInfo`.
//!
//! A message that is damaged counts as empty: it only explains a result.

use std::time::Duration;

/// Characters of a collector's message that the log shows.
const MESSAGE_CHARS_MAX: usize = 200;

/// A field of a message: its number and value.
enum WireValue<'m> {
    Number(u64),
    Bytes(&'m [u8]),
}

/// Reads the fields of a message until its end or the first damaged one.
struct MessageFields<'m>(&'m [u8]);

impl<'m> Iterator for MessageFields<'m> {
    type Item = (u64, WireValue<'m>);

    fn next(&mut self) -> Option<Self::Item> {
        let tag = self.varint()?;
        let value = match tag & 7 {
            0 => WireValue::Number(self.varint()?),
            1 => WireValue::Number(u64::from_le_bytes(self.take(8)?.try_into().ok()?)),
            2 => {
                let len = usize::try_from(self.varint()?).ok()?;
                WireValue::Bytes(self.take(len)?)
            }
            5 => WireValue::Number(u32::from_le_bytes(self.take(4)?.try_into().ok()?).into()),
            _ => return None,
        };
        Some((tag >> 3, value))
    }
}

impl<'m> MessageFields<'m> {
    fn take(&mut self, len: usize) -> Option<&'m [u8]> {
        let (taken, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(taken)
    }

    fn varint(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = *self.take(1)?.first()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }
}

/// Returns a collector's text for a log line: one line of bounded length.
pub(crate) fn printable(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(MESSAGE_CHARS_MAX).collect()
}

/// Returns the number of rejected spans or data points and the message of an `ExportTraceServiceResponse` or an
/// `ExportMetricsServiceResponse`, which have the same fields.
pub(crate) fn partial_success(message: &[u8]) -> (u64, String) {
    let (mut rejected, mut text) = (0, String::new());
    for (number, value) in MessageFields(message) {
        let (1, WireValue::Bytes(partial)) = (number, value) else { continue };
        for field in MessageFields(partial) {
            match field {
                // A negative number has no meaning.
                (1, WireValue::Number(count)) => rejected = i64::try_from(count).map_or(0, i64::unsigned_abs),
                (2, WireValue::Bytes(bytes)) => text = printable(bytes),
                _ => {}
            }
        }
    }
    (rejected, text)
}

/// Returns the text of a `google.rpc.Status`, and the delay of its `RetryInfo`.
pub(crate) fn status(message: &[u8]) -> (String, Option<Duration>) {
    let (mut text, mut delay) = (String::new(), None);
    for field in MessageFields(message) {
        match field {
            (2, WireValue::Bytes(bytes)) => text = printable(bytes),
            (3, WireValue::Bytes(any)) => delay = delay.or_else(|| retry_delay(any)),
            _ => {}
        }
    }
    (text, delay)
}

/// Reads an `Any` that contains a `RetryInfo`.
fn retry_delay(any: &[u8]) -> Option<Duration> {
    let (mut is_retry_info, mut info) = (false, &[][..]);
    for field in MessageFields(any) {
        match field {
            (1, WireValue::Bytes(url)) => is_retry_info = url.ends_with(b"/google.rpc.RetryInfo"),
            (2, WireValue::Bytes(bytes)) => info = bytes,
            _ => {}
        }
    }
    let (_, WireValue::Bytes(delay)) = MessageFields(info).find(|(number, _)| is_retry_info && *number == 1)? else {
        return None;
    };
    let (mut seconds, mut nanoseconds) = (0, 0);
    for field in MessageFields(delay) {
        match field {
            (1, WireValue::Number(count)) => seconds = count,
            (2, WireValue::Number(count)) => {
                nanoseconds = u32::try_from(count).ok().filter(|count| *count < 1_000_000_000)?;
            }
            _ => {}
        }
    }
    // A negative delay is a very large number here.
    i64::try_from(seconds).ok().map(|_| Duration::new(seconds, nanoseconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    // opentelemetry-proto, ExportTraceServiceResponse: `partial_success` (1) with `rejected_spans` (1), `error_message`
    // (2). Of a message that ends early, the fields before its end count.
    #[test]
    fn partial_successes() {
        let message = b"\x0a\x07\x08\x05\x12\x03too";
        assert_eq!(partial_success(message), (5, "too".into()));
        for end in 0..message.len() {
            let _ = partial_success(&message[..end]);
        }
        assert_eq!(partial_success(b""), (0, String::new()));
        assert_eq!(partial_success(b"\xff\xff\xff"), (0, String::new()));
    }

    // google.rpc: `Status.details` (3) is a list of `Any`; `RetryInfo.retry_delay` (1) is a `Duration`.
    #[test]
    fn statuses_with_a_delay() {
        let mut any = vec![0x0a, 40];
        any.extend_from_slice(b"type.googleapis.com/google.rpc.RetryInfo");
        any.extend_from_slice(&[0x12, 4, 0x0a, 2, 0x08, 3]);
        let mut message = b"\x08\x0e\x12\x04busy\x1a".to_vec();
        message.push(any.len() as u8);
        message.extend_from_slice(&any);
        assert_eq!(status(&message), ("busy".into(), Some(Duration::from_secs(3))));
        for end in 0..message.len() {
            assert_eq!(status(&message[..end]).1, None);
        }
    }
}
