//! Frames as bytes: received frames are classified by type and stream, sent frames are canned.

use std::io::IoSlice;

/// The client's connection preface (RFC 9113 §3.4).
pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// An empty SETTINGS frame.
pub const SETTINGS: &[u8] = &[0, 0, 0, 4, 0, 0, 0, 0, 0];
/// The acknowledgement of the peer's SETTINGS.
pub const SETTINGS_ACK: &[u8] = &[0, 0, 0, 4, 1, 0, 0, 0, 0];

const HEAD_BYTES: usize = 9;
/// The default maximum frame size.
const FRAME_BYTES_MAX: usize = 16 << 10;
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

/// A complete received frame.
pub struct CompleteFrame<'o> {
    pub kind: FrameReaction,
    pub stream: u32,
    pub payload: &'o [u8],
}

/// The reaction that a frame requires.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FrameReaction {
    /// HEADERS, treated as a complete request.
    Request,
    /// The peer's SETTINGS, to be acknowledged.
    Settings,
    /// A PING request.
    Ping,
    /// No reaction.
    Other,
}

impl<'o> CompleteFrame<'o> {
    /// Returns the frame at the start of `bytes` if it is complete (RFC 9113 §4.1).
    pub fn first(bytes: &'o [u8]) -> Option<Self> {
        let (head, rest) = bytes.split_first_chunk::<HEAD_BYTES>()?;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        let payload = rest.get(..length)?;
        let kind = match (head[3], head[4] & 1) {
            (HEADERS, _) => FrameReaction::Request,
            (4, 0) => FrameReaction::Settings,
            (6, 0) => FrameReaction::Ping,
            _ => FrameReaction::Other,
        };
        let stream = u32::from_be_bytes([head[5] & 0x7f, head[6], head[7], head[8]]);
        Some(Self { kind, stream, payload })
    }

    /// Returns the size of head and payload in bytes.
    pub fn bytes(&self) -> usize {
        HEAD_BYTES + self.payload.len()
    }
}

/// Appends the response to a PING: its own payload.
pub fn put_pong(out: &mut Vec<u8>, payload: &[u8]) {
    put_frame_head(out, payload.len(), 6, 1, 0);
    out.extend_from_slice(payload);
}

fn put_frame_head(out: &mut Vec<u8>, length: usize, kind: u8, flags: u8, stream: u32) {
    let length = u32::try_from(length).expect("a frame's length has 24 bits").to_be_bytes();
    out.extend_from_slice(&length[1..]);
    out.extend_from_slice(&[kind, flags]);
    out.extend_from_slice(&stream.to_be_bytes());
}

/// The encoding of the response's fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Coding {
    /// Each response has all fields as literals.
    Literal,
    /// A connection's first response adds them to the peer's table; later responses use their indices.
    Indexed,
}

/// The server's only response: a head of twelve fields, and a body.
pub struct Answers<'b> {
    body: &'b [u8],
    /// All bytes except the body: the HEADERS frame and the head of each DATA frame. Stream identifiers are patched in.
    frames: Vec<u8>,
    /// Offsets of the stream identifiers in `frames`.
    numbers: Vec<usize>,
    /// Offsets of the ends of DATA frame heads in `frames`.
    cuts: Vec<usize>,
    /// The bytes gathered for one write.
    gathered: Vec<u8>,
}

/// Bodies up to this size are copied next to their frames; larger ones are written from their place.
const COPIED_BYTES_MAX: usize = 1 << 10;

impl<'b> Answers<'b> {
    pub fn new(body: &'b [u8], coding: Coding) -> Self {
        let block = match coding {
            // Literals without indexing (RFC 7541 §6.2.2).
            Coding::Literal => literals(0x00, body.len()),
            // :status 200, then the entries that the first response added to the table; the newest has index 62 (RFC
            // 7541 §2.3.3).
            Coding::Indexed => {
                let places = 62..62 + fields(body.len()).len();
                let indexed = places.map(|place| 0x80 | u8::try_from(place).expect("a small table"));
                [0x88].into_iter().chain(indexed).collect()
            }
        };
        let (mut frames, mut numbers, mut cuts) = (Vec::new(), vec![5], Vec::new());
        put_frame_head(&mut frames, block.len(), HEADERS, END_HEADERS, 0);
        frames.extend_from_slice(&block);
        for (place, piece) in body.chunks(FRAME_BYTES_MAX).enumerate() {
            numbers.push(frames.len() + 5);
            let last = (place + 1) * FRAME_BYTES_MAX >= body.len();
            put_frame_head(&mut frames, piece.len(), DATA, if last { END_STREAM } else { 0 }, 0);
            cuts.push(frames.len());
        }
        Self { body, frames, numbers, cuts, gathered: Vec::new() }
    }

    /// Returns the size of a response, except for a connection's first.
    pub fn bytes(&self) -> usize {
        self.frames.len() + self.body.len()
    }

    /// Appends a connection's first response if later ones use indices.
    pub fn put_first(&self, out: &mut Vec<u8>, stream: u32) {
        // Literals with incremental indexing (RFC 7541 §6.2.1).
        let block = literals(0x40, self.body.len());
        put_frame_head(out, block.len(), HEADERS, END_HEADERS, stream);
        out.extend_from_slice(&block);
        for (place, piece) in self.body.chunks(FRAME_BYTES_MAX).enumerate() {
            let last = (place + 1) * FRAME_BYTES_MAX >= self.body.len();
            put_frame_head(out, piece.len(), DATA, if last { END_STREAM } else { 0 }, stream);
            out.extend_from_slice(piece);
        }
    }

    /// Calls `send` with `before` and the responses for these streams, omitting the first `taken` bytes of the first
    /// response.
    pub fn write<T>(
        &mut self,
        before: &[u8],
        streams: impl Iterator<Item = u32>,
        taken: usize,
        send: impl FnOnce(&[IoSlice<'_>]) -> T,
    ) -> T {
        self.gathered.clear();
        self.gathered.extend_from_slice(before);
        let copied = self.body.len() <= COPIED_BYTES_MAX;
        let mut count = 0;
        for stream in streams {
            let start = self.gathered.len();
            self.gathered.extend_from_slice(&self.frames);
            for number in &self.numbers {
                self.gathered[start + number..][..4].copy_from_slice(&stream.to_be_bytes());
            }
            if copied {
                self.gathered.extend_from_slice(self.body);
            }
            count += 1;
        }
        if copied {
            let (control, rest) = self.gathered.split_at(before.len());
            let rest = &rest[taken.min(rest.len())..];
            // A partially written response is rare; only then are the two parts not contiguous.
            if taken == 0 {
                return send(&[IoSlice::new(&self.gathered)]);
            }
            return send(&[IoSlice::new(control), IoSlice::new(rest)]);
        }
        let (control, frames) = self.gathered.split_at(before.len());
        let mut slices = Vec::with_capacity(1 + 2 * self.cuts.len() * count);
        slices.push(IoSlice::new(control));
        let mut skip = taken;
        let mut push = |slice| {
            let passed = skip.min(<[u8]>::len(slice));
            skip -= passed;
            if passed < slice.len() {
                slices.push(IoSlice::new(&slice[passed..]));
            }
        };
        for frames in frames.chunks(self.frames.len()) {
            let mut from = 0;
            for (cut, piece) in self.cuts.iter().zip(self.body.chunks(FRAME_BYTES_MAX)) {
                push(&frames[from..*cut]);
                push(piece);
                from = *cut;
            }
        }
        send(&slices)
    }
}

/// Returns :status 200 and the fields as literals with new names, each preceded by `first`.
fn literals(first: u8, length: usize) -> Vec<u8> {
    let mut block = vec![0x88];
    for (name, value) in fields(length) {
        block.push(first);
        for text in [name, &value] {
            block.push(u8::try_from(text.len()).ok().filter(|length| *length < 127).expect("short texts"));
            block.extend_from_slice(text.as_bytes());
        }
    }
    block
}

/// Returns the twelve fields of the response.
fn fields(length: usize) -> Vec<(&'static str, String)> {
    let own = [
        ("server", "limit".to_owned()),
        ("date", "Sat, 21 Nov 2026 12:00:00 GMT".to_owned()),
        ("content-type", "text/plain".to_owned()),
        ("content-length", length.to_string()),
    ];
    own.into_iter().chain(answer::FIELDS.map(|(name, value)| (name, value.to_owned()))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frames(mut bytes: &[u8]) -> Vec<(u8, u8, u32, usize)> {
        let mut frames = Vec::new();
        while let Some(frame) = CompleteFrame::first(bytes) {
            frames.push((bytes[3], bytes[4], frame.stream, frame.payload.len()));
            bytes = &bytes[frame.bytes()..];
        }
        assert!(bytes.is_empty(), "frames are whole");
        frames
    }

    fn written(answers: &mut Answers<'_>, before: &[u8], streams: &[u32], taken: usize) -> Vec<u8> {
        answers.write(before, streams.iter().copied(), taken, |slices| {
            slices.iter().flat_map(|slice| slice.to_vec()).collect()
        })
    }

    // RFC 9113 §4.1, §6.2: a frame has a length, type, flags and stream; the last frame of a response ends the stream.
    #[test]
    fn answers_are_whole_frames_on_their_streams() {
        let page = answer::page();
        for (body, pieces) in [(answer::BODY, vec![13]), (&page, vec![16_384, 16_384, 16_384])] {
            let mut answers = Answers::new(body.as_bytes(), Coding::Indexed);
            let bytes = written(&mut answers, SETTINGS_ACK, &[1, 0x0102_0305], 0);
            let mut want = vec![(4, 1, 0, 0)];
            for stream in [1, 0x0102_0305] {
                want.push((HEADERS, END_HEADERS, stream, 13));
                let last = pieces.len() - 1;
                want.extend(
                    pieces.iter().enumerate().map(|(place, piece)| (DATA, u8::from(place == last), stream, *piece)),
                );
            }
            assert_eq!(frames(&bytes), want);
            assert_eq!(bytes.len(), SETTINGS_ACK.len() + 2 * answers.bytes());
            let mut first = Vec::new();
            answers.put_first(&mut first, 7);
            assert_eq!(frames(&first).len(), 1 + pieces.len());
            // The blocks differ only in their use of the table.
            let literal = written(&mut Answers::new(body.as_bytes(), Coding::Literal), b"", &[7], 0);
            assert_eq!((literal.len(), literal[10]), (first.len(), 0x00));
            assert_eq!(first[10], 0x40);
        }
    }

    #[test]
    fn what_was_taken_is_not_written_again() {
        let page = answer::page();
        for body in [answer::BODY, &page] {
            let mut answers = Answers::new(body.as_bytes(), Coding::Literal);
            let whole = written(&mut answers, b"", &[1, 3], 0);
            for taken in [1, 9, 22, 31, answers.bytes() - 1] {
                assert_eq!(written(&mut answers, b"", &[1, 3], taken), whole[taken..], "{taken}");
                let behind = written(&mut answers, SETTINGS, &[1, 3], taken);
                assert_eq!(behind, [SETTINGS, &whole[taken..]].concat(), "{taken}");
            }
        }
    }

    #[test]
    fn frames_that_came_in_part_wait() {
        let bytes = [SETTINGS, &[0, 0, 2, 1, 5, 0, 0, 0, 9, 0x82, 0x84]].concat();
        for split in 0..bytes.len() {
            let first = CompleteFrame::first(&bytes[..split]);
            assert_eq!(first.is_some(), split >= SETTINGS.len(), "{split}");
        }
        let request = CompleteFrame::first(&bytes[SETTINGS.len()..]).unwrap();
        assert_eq!((request.kind, request.stream, request.payload), (FrameReaction::Request, 9, &[0x82, 0x84][..]));
        let mut pong = Vec::new();
        put_pong(&mut pong, b"12345678");
        assert_eq!(frames(&pong), [(6, 1, 0, 8)]);
    }
}
