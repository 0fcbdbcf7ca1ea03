//! A head from any octets: no panic; what is taken, httparse takes too and sees the same; a used head is as good as new.
#![no_main]

use causeway_h1::{Limits, Parsed, parse_head};
use causeway_message::Head;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let limits = Limits::default();
    let (mut used, mut fresh) = (Head::new(), Head::new());
    // The first half dirties the head in which the whole is parsed then.
    let _ = parse_head(&input[..input.len() / 2], &limits, &mut used);
    let again = parse_head(input, &limits, &mut used);
    let parsed = parse_head(input, &limits, &mut fresh);
    assert_eq!(again, parsed);
    assert_eq!(used.fields(), fresh.fields());
    assert_eq!(used.target(), fresh.target());
    let Ok(Parsed::Whole(len)) = parsed else {
        assert!(fresh.fields().is_empty() && fresh.octets() == 0);
        return;
    };
    let mut fields = [httparse::EMPTY_HEADER; 100];
    let mut request = httparse::Request::new(&mut fields);
    match request.parse(input) {
        Ok(httparse::Status::Complete(theirs)) => assert_eq!(len, theirs),
        // A minor version above 1 is read here and refused there.
        Err(httparse::Error::Version) => return,
        other => panic!("only we took it: {other:?}"),
    }
    assert_eq!(request.method, Some(fresh.method().as_str()));
    assert_eq!(request.path, Some(fresh.target().as_str()));
    assert_eq!(request.headers.len(), fresh.fields().len());
    for (theirs, (name, value)) in request.headers.iter().zip(fresh.fields().iter()) {
        assert!(theirs.name.eq_ignore_ascii_case(name.as_str()) && theirs.value == value);
    }
});
