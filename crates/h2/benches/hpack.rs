//! Decoding and encoding of field blocks: rounds, medians. The first block of a new connection, and later ones whose
//! fields are all in the table.
//!
//! Decoding: the sink checks each field as a request's head would, and counts it. Encoding: twelve fields of a
//! response. The `hpack` crate is measured in the same rounds.

use std::hint::black_box;
use std::io::IoSlice;
use std::time::Instant;

use causeway_h2::hpack::{Decoder, Encoder, Field, Name, Pseudo, Sink};
use causeway_message::{KnownName, NameRef, StatusCode, WriteList, names};

const ROUNDS: usize = 301;
const TURNS: u32 = 1_000;

const REQUEST: [(&str, &str); 15] = [
    (":method", "GET"),
    (":scheme", "https"),
    (":authority", "www.example.com"),
    (":path", "/static/app/main.js?v=20261101"),
    ("user-agent", "Mozilla/5.0 (X11; Linux x86_64; rv:132.0) Gecko/20100101 Firefox/132.0"),
    ("accept", "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8"),
    ("accept-language", "en-US,en;q=0.5"),
    ("accept-encoding", "gzip, deflate, br, zstd"),
    ("referer", "https://www.example.com/"),
    ("cookie", "session=3f9a8c1d7b6e45029f1e; theme=dark; _ga=GA1.2.1234567890.1700000000; consent=yes"),
    ("upgrade-insecure-requests", "1"),
    ("sec-fetch-dest", "document"),
    ("sec-fetch-mode", "navigate"),
    ("sec-fetch-site", "same-origin"),
    ("te", "trailers"),
];

const RESPONSE: [(KnownName, &str); 11] = [
    (names::SERVER, "Causeway"),
    (names::DATE, "Sun, 06 Nov 1994 08:49:37 GMT"),
    (names::CONTENT_TYPE, "text/html; charset=utf-8"),
    (names::CONTENT_LENGTH, "12345"),
    (names::CACHE_CONTROL, "public, max-age=3600"),
    (names::ETAG, "\"d41d8cd98f00b204\""),
    (names::LAST_MODIFIED, "Sat, 05 Nov 1994 08:49:37 GMT"),
    (names::ACCEPT_RANGES, "bytes"),
    (names::VARY, "Accept-Encoding"),
    (names::STRICT_TRANSPORT_SECURITY, "max-age=31536000; includeSubDomains"),
    (names::X_CONTENT_TYPE_OPTIONS, "nosniff"),
];

#[derive(Default)]
struct Counted {
    bytes: usize,
    pseudo: u32,
    good: bool,
}

impl Sink for Counted {
    fn field(&mut self, field: Field<'_>) {
        self.bytes += field.value.len();
        self.good &= field.value_is_valid;
        match field.name {
            Name::Known(known) => self.bytes += known.index(),
            Name::Other(name) => self.bytes += name.len(),
            Name::Invalid => self.good = false,
            _ => self.pseudo += 1,
        }
    }
}

fn timed(mut run: impl FnMut()) -> f64 {
    let start = Instant::now();
    (0..TURNS).for_each(|_| run());
    start.elapsed().as_nanos() as f64 / f64::from(TURNS)
}

fn median(all: &mut [f64]) -> f64 {
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}

fn bytes(out: &WriteList) -> Vec<u8> {
    let mut slices = [IoSlice::new(b""); 4];
    let used = out.slices(&mut slices);
    slices[..used].iter().flat_map(|slice| slice.iter().copied()).collect()
}

fn request(encoder: &mut Encoder, path: &str, out: &mut WriteList) {
    for (name, value) in REQUEST {
        match name {
            ":method" => encoder.pseudo(Pseudo::Method, value.as_bytes(), out),
            ":scheme" => encoder.pseudo(Pseudo::Scheme, value.as_bytes(), out),
            ":authority" => encoder.pseudo(Pseudo::Authority, value.as_bytes(), out),
            ":path" => encoder.pseudo(Pseudo::Path, path.as_bytes(), out),
            name => encoder.field(NameRef::parse(name.as_bytes()).expect("a token"), value.as_bytes(), out),
        }
    }
}

fn decode(what: &str, first: &[u8], later: &[u8]) {
    let (mut ours_first, mut ours, mut theirs) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        ours_first.push(timed(|| {
            let mut decoder = Decoder::new(4096);
            black_box(decoder.decode(black_box(first), &mut Counted::default()).is_ok());
        }));
        let mut decoder = Decoder::new(4096);
        decoder.decode(first, &mut Counted::default()).expect("a block");
        let mut sink = Counted::default();
        ours.push(timed(|| {
            black_box(decoder.decode(black_box(later), &mut sink).is_ok());
            black_box(&mut sink);
        }));
        let mut decoder = hpack::Decoder::new();
        decoder.decode(first).expect("a block");
        theirs.push(timed(|| {
            let mut bytes = 0;
            let all = decoder.decode_with_cb(black_box(later), |name, value| bytes += name.len() + value.len());
            black_box((all.is_ok(), bytes));
        }));
    }
    let (ours_first, ours, theirs) = (median(&mut ours_first), median(&mut ours), median(&mut theirs));
    println!(
        "{what:<38} {:3} bytes: first block {ours_first:6.1} ns; later {ours:6.1} ns, {:4.1} ns a field; hpack crate {theirs:7.1} ns",
        later.len(),
        ours / REQUEST.len() as f64,
    );
}

/// Measures one Huffman-coded string that is not inserted into the table, such as a path or a cookie.
fn literal() {
    let value = REQUEST[9].1.repeat(4);
    let mut out = WriteList::new();
    // Our encoder codes only values that it inserts; so replace the first byte by that of a literal without indexing.
    Encoder::new(4096).field(names::COOKIE, value.as_bytes(), &mut out);
    let block = [&[0x0f, 0x11][..], &bytes(&out)[1..]].concat();
    let (mut decoder, mut sink, mut all) = (Decoder::new(4096), Counted::default(), Vec::new());
    for _ in 0..ROUNDS {
        all.push(timed(|| {
            decoder.decode(black_box(&block), &mut sink).expect("a block");
            black_box(&mut sink);
        }));
    }
    let ns = median(&mut all);
    println!("one Huffman value of {} bytes: {ns:6.1} ns, {:.0} MB/s", value.len(), value.len() as f64 / ns * 1e3);
}

fn encode() {
    let response = |encoder: &mut Encoder, out: &mut WriteList| {
        encoder.status(StatusCode::OK, out);
        RESPONSE.iter().for_each(|(name, value)| encoder.field(*name, value.as_bytes(), out));
    };
    let (mut encoder, mut out) = (Encoder::new(4096), WriteList::new());
    response(&mut encoder, &mut out);
    let first = out.len();
    out.clear();
    response(&mut encoder, &mut out);
    let later = out.len();
    let fields: Vec<(&[u8], &[u8])> =
        RESPONSE.iter().map(|(name, value)| (name.lower().as_bytes(), value.as_bytes())).collect();
    let mut theirs = hpack::Encoder::new();
    theirs.encode(fields.iter().copied());
    let (mut ours, mut crates) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        ours.push(timed(|| {
            out.clear();
            response(&mut encoder, black_box(&mut out));
        }));
        crates.push(timed(|| {
            black_box(theirs.encode(fields.iter().copied()));
        }));
    }
    let (ours, crates) = (median(&mut ours), median(&mut crates));
    println!(
        "response of 12 fields out, {first} bytes first, {later} later: {ours:6.1} ns later; hpack crate {crates:7.1} ns"
    );
}

fn main() {
    let (mut encoder, mut out) = (Encoder::new(4096), WriteList::new());
    request(&mut encoder, REQUEST[3].1, &mut out);
    let first = bytes(&out);
    out.clear();
    request(&mut encoder, "/", &mut out);
    decode("browser, 15 fields, all indexed", &first, &bytes(&out));
    out.clear();
    request(&mut encoder, REQUEST[3].1, &mut out);
    decode("browser, 15 fields, the path literal", &first, &bytes(&out));
    literal();
    encode();
}
