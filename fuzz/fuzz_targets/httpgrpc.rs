//! Every decoder over any octets, cut anywhere, compressed or not: no panic, no more memory than the limits allow, the same at every cut, and what
//! was understood is understood again when our encoder says it.
//!
//! The first octet says the encoding and the decoder, the second the size of the chunks; the rest is the call's content, without a frame around it
//! where the first octet says so.
#![no_main]

use std::cell::Cell;
use std::sync::Weak;

use causeway_httpgrpc::stream::{Part, RequestStreamDecoder, ResponseStreamDecoder};
use causeway_httpgrpc::{
    DecodeFault, Encoding, Limits, RequestDecoder, ResponseDecoder, Status, Turn, decode_error, encode_request,
    encode_response,
};
use causeway_message::octets::is_value;
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

type Said = (Vec<(String, Vec<u8>)>, Vec<u8>);

fn said(fields: &FieldMap, chunks: &[Chunk]) -> Said {
    let octets: usize = fields.iter().map(|(name, value)| name.as_str().len() + value.len()).sum();
    assert!(octets <= 2000 + 40 && fields.len() <= 31 && fields.iter().all(|(_, value)| is_value(value)));
    let fields = fields.iter().map(|(name, value)| (name.as_str().to_ascii_lowercase(), value.to_vec())).collect();
    (fields, chunks.iter().flat_map(|chunk| chunk.as_slice().iter().copied()).collect())
}

macro_rules! unary {
    ($name:ident, $decoder:ty) => {
        fn $name(decoder: &mut $decoder, octets: &[u8], size: usize, encoding: Encoding) -> Result<Said, DecodeFault> {
            decoder.begin(encoding);
            for some in octets.chunks(size.max(1)) {
                let mut chunk = Chunk::from(some.to_vec());
                while decoder.push(&mut chunk, &mut block)? == Turn::More {}
                assert!(chunk.is_empty());
            }
            decoder.finish()?;
            let message = decoder.message();
            let said = said(message.head.fields(), message.body.chunks());
            assert!(said.1.len() as u64 == message.body.octets() && said.1.len() <= 50_000);
            Ok(said)
        }
    };
}

unary!(request, RequestDecoder);
unary!(response, ResponseDecoder);

macro_rules! stream {
    ($name:ident, $decoder:ty) => {
        fn $name(octets: &[u8], size: usize, encoding: Encoding) -> Result<Said, DecodeFault> {
            let mut decoder = <$decoder>::new(LIMITS);
            decoder.begin(encoding);
            let (mut content, heads) = (Vec::new(), Cell::new(0));
            for some in octets.chunks(size.max(1)) {
                let mut chunk = Chunk::from(some.to_vec());
                while let Some(part) = decoder.next(&mut chunk, &mut block)? {
                    match part {
                        Part::Head => heads.set(heads.get() + 1),
                        Part::Chunk(chunk) => content.push(chunk),
                        Part::Trailers => content.push(Chunk::from_static(b"trailers")),
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

/// Where a message is wrong in two ways, and compressed, the cuts decide which is found first.
fn same(first: &Result<Said, DecodeFault>, again: &Result<Said, DecodeFault>, encoding: Encoding) {
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
    let octets = if control & 4 == 0 { content } else { &framed };
    let (size, whole) = (usize::from(*size), octets.len());
    match control >> 3 & 7 {
        0 | 1 => {
            let mut decoder = RequestDecoder::new(LIMITS);
            let first = request(&mut decoder, octets, whole, encoding);
            let again = request(&mut decoder, octets, size, encoding);
            same(&first, &again, encoding);
            let Ok((mut fields, body)) = first else { return };
            let head = &decoder.message().head;
            let mut out = Vec::new();
            encode_request(head, body.len() as u64, &mut out).expect("it is short");
            out.extend_from_slice(&body);
            let method = head.method().as_str().to_owned();
            // The host is not carried.
            fields.retain(|(name, _)| name != "host");
            // Every name is counted too, and here names are as many as fields at most.
            let mut second = RequestDecoder::new(Limits { fields_max: 100, ..LIMITS });
            assert_eq!(request(&mut second, &out, whole, Encoding::Identity), Ok((fields, body)));
            assert_eq!(second.message().head.method().as_str(), method);
        }
        2 | 3 => {
            let mut decoder = ResponseDecoder::new(LIMITS);
            let first = response(&mut decoder, octets, whole, encoding);
            same(&first, &response(&mut decoder, octets, size, encoding), encoding);
            let Ok((mut fields, body)) = first else { return };
            let head = &decoder.message().head;
            let mut out = Vec::new();
            encode_response(head.status(), head.fields(), body.len() as u64, &mut out).expect("it is short");
            out.extend_from_slice(&body);
            fields.retain(|(name, _)| name != "x-errormessage" && name != "x-donotlogerror");
            let mut second = ResponseDecoder::new(Limits { fields_max: 100, ..LIMITS });
            assert_eq!(response(&mut second, &out, whole, Encoding::Identity), Ok((fields, body)));
        }
        4 => same(&request_stream(octets, whole, encoding), &request_stream(octets, size, encoding), encoding),
        5 => same(&response_stream(octets, whole, encoding), &response_stream(octets, size, encoding), encoding),
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
