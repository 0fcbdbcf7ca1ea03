//! Every decoder with arbitrary bytes, cut anywhere, compressed or not: no panic, no more memory than the limits allow,
//! the same result for all cuts, and a decoded message is the same after our encoder encodes it.
//!
//! The first byte selects the encoding and the decoder, and whether the rest is the call's content with or without a
//! frame; the second is the size of the chunks.
#![no_main]

use std::cell::Cell;
use std::sync::Weak;

use causeway_httpgrpc::stream::{RequestStreamDecoder, ResponseStreamDecoder, StreamPart};
use causeway_httpgrpc::{
    DecodeError, DecodeProgress, Encoding, Limits, RequestDecoder, ResponseDecoder, Status, decode_error,
    encode_request, encode_response,
};
use causeway_message::syntax::is_value;
use causeway_message::{Block, BlockMut, Chunk, FieldMap, FieldValue, Home, NameRef};
use libfuzzer_sys::fuzz_target;

const LIMITS: Limits =
    Limits { message_bytes_max: 50_000, head_bytes_max: 2000, fields_max: 30, target_bytes_max: 300 };

struct Nowhere;

impl Home for Nowhere {
    fn take_back(&self, _: Block) {}
}

fn block() -> BlockMut {
    Block::new(4096, Weak::<Nowhere>::new()).into_mut().expect("it is new")
}

type DecodedCall = (Vec<(String, Vec<u8>)>, Vec<u8>);

fn said(fields: &FieldMap, chunks: &[Chunk]) -> DecodedCall {
    let bytes: usize = fields.iter().map(|(name, value)| name.as_str().len() + value.len()).sum();
    assert!(bytes <= 2000 + 40 && fields.len() <= 31 && fields.iter().all(|(_, value)| is_value(value)));
    let fields = fields.iter().map(|(name, value)| (name.as_str().to_ascii_lowercase(), value.to_vec())).collect();
    (fields, chunks.iter().flat_map(|chunk| chunk.as_slice().iter().copied()).collect())
}

macro_rules! unary {
    ($name:ident, $decoder:ty) => {
        fn $name(
            decoder: &mut $decoder,
            bytes: &[u8],
            size: usize,
            encoding: Encoding,
        ) -> Result<DecodedCall, DecodeError> {
            decoder.begin(encoding);
            for some in bytes.chunks(size.max(1)) {
                let mut chunk = Chunk::from(some.to_vec());
                while decoder.push(&mut chunk, &mut block)? == DecodeProgress::More {}
                assert!(chunk.is_empty());
            }
            decoder.finish()?;
            let message = decoder.message();
            let said = said(message.head.fields(), message.body.chunks());
            assert!(said.1.len() as u64 == message.body.bytes() && said.1.len() <= 50_000);
            Ok(said)
        }
    };
}

unary!(request, RequestDecoder);
unary!(response, ResponseDecoder);

macro_rules! stream {
    ($name:ident, $decoder:ty) => {
        fn $name(bytes: &[u8], size: usize, encoding: Encoding) -> Result<DecodedCall, DecodeError> {
            let mut decoder = <$decoder>::new(LIMITS);
            decoder.begin(encoding);
            let (mut content, heads) = (Vec::new(), Cell::new(0));
            for some in bytes.chunks(size.max(1)) {
                let mut chunk = Chunk::from(some.to_vec());
                while let Some(part) = decoder.next(&mut chunk, &mut block)? {
                    match part {
                        StreamPart::Head => heads.set(heads.get() + 1),
                        StreamPart::Chunk(chunk) => content.push(chunk),
                        StreamPart::Trailers => content.push(Chunk::from_static(b"trailers")),
                        StreamPart::More => {}
                    }
                }
            }
            decoder.finish()?;
            assert!(heads.get() > 0);
            let _ = said(decoder.trailers(), &[]);
            Ok(said(decoder.head().fields(), &content))
        }
    };
}

stream!(request_stream, RequestStreamDecoder);
stream!(response_stream, ResponseStreamDecoder);

/// Compares two results. If a compressed message is invalid in two ways, the cuts determine which fault is found first.
fn same(first: &Result<DecodedCall, DecodeError>, again: &Result<DecodedCall, DecodeError>, encoding: Encoding) {
    match (first, again) {
        (Err(_), Err(_)) if encoding == Encoding::Gzip => {}
        _ => assert_eq!(first, again),
    }
}

fuzz_target!(|input: &[u8]| {
    let [control, size, content @ ..] = input else { return };
    let encoding = match control & 3 {
        0 | 1 => Encoding::Gzip,
        2 => Encoding::Identity,
        _ => Encoding::Unknown,
    };
    let mut framed = vec![0];
    framed.extend_from_slice(&(content.len() as u32).to_be_bytes());
    framed.extend_from_slice(content);
    let bytes = if control & 4 == 0 { content } else { &framed };
    let (size, whole) = (usize::from(*size), bytes.len());
    match control >> 3 & 7 {
        0 | 1 => {
            let mut decoder = RequestDecoder::new(LIMITS);
            let first = request(&mut decoder, bytes, whole, encoding);
            let again = request(&mut decoder, bytes, size, encoding);
            same(&first, &again, encoding);
            let Ok((mut fields, body)) = first else { return };
            let head = &decoder.message().head;
            let mut out = Vec::new();
            encode_request(head, body.len() as u64, &mut out).expect("a short head");
            out.extend_from_slice(&body);
            let method = head.method().as_str().to_owned();
            // The encoder does not write the host.
            fields.retain(|(name, _)| name != "host");
            // Each name also counts as a field; here there are at most as many names as fields.
            let mut second = RequestDecoder::new(Limits { fields_max: 100, ..LIMITS });
            assert_eq!(request(&mut second, &out, whole, Encoding::Identity), Ok((fields, body)));
            assert_eq!(second.message().head.method().as_str(), method);
        }
        2 | 3 => {
            let mut decoder = ResponseDecoder::new(LIMITS);
            let first = response(&mut decoder, bytes, whole, encoding);
            same(&first, &response(&mut decoder, bytes, size, encoding), encoding);
            let Ok((mut fields, body)) = first else { return };
            let head = &decoder.message().head;
            let mut out = Vec::new();
            encode_response(head.status(), head.fields(), body.len() as u64, &mut out).expect("a short head");
            out.extend_from_slice(&body);
            fields.retain(|(name, _)| name != "x-errormessage" && name != "x-donotlogerror");
            let mut second = ResponseDecoder::new(Limits { fields_max: 100, ..LIMITS });
            assert_eq!(response(&mut second, &out, whole, Encoding::Identity), Ok((fields, body)));
        }
        4 => same(&request_stream(bytes, whole, encoding), &request_stream(bytes, size, encoding), encoding),
        5 => same(&response_stream(bytes, whole, encoding), &response_stream(bytes, size, encoding), encoding),
        _ => {
            let mut trailers = FieldMap::new();
            for (name, value) in
                ["grpc-status", "grpc-message", "grpc-status-details-bin"].iter().zip(content.split(|&o| o == 0))
            {
                if let Some(value) = FieldValue::parse(value) {
                    trailers.append(NameRef::parse(name.as_bytes()).expect("a token"), value);
                }
            }
            let mut decoder = ResponseDecoder::new(LIMITS);
            let _ = decode_error(&trailers, &mut decoder, &mut block);
            let (status, mut again) = (Status::of(&trailers), FieldMap::new());
            status.put(&mut again, &mut Vec::new());
            assert_eq!(Status::of(&again), status);
        }
    }
});
