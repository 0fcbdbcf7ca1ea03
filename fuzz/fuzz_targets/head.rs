//! A head from arbitrary bytes: no panic; httparse accepts each accepted head with the same result; a reused head gives
//! the same result as a new one.
#![no_main]

use causeway_h1::{Limits, Parsed, parse_head};
use causeway_message::Head;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let limits = Limits::default();
    let (mut used, mut fresh) = (Head::new(), Head::new());
    // The first half dirties the head in which the whole input is then parsed.
    let _ = parse_head(&input[..input.len() / 2], &limits, &mut used);
    let again = parse_head(input, &limits, &mut used);
    let parsed = parse_head(input, &limits, &mut fresh);
    assert_eq!(again, parsed);
    assert_eq!(used.fields(), fresh.fields());
    assert_eq!(used.target(), fresh.target());
    let Ok(Parsed::Whole(len)) = parsed else {
        assert!(fresh.fields().is_empty() && fresh.bytes() == 0);
        return;
    };
    // httparse only accepts targets in UTF-8.
    if input[..len].split(|byte| *byte == b'\r').next().is_some_and(|line| std::str::from_utf8(line).is_err()) {
        return;
    }
    let mut fields = [httparse::EMPTY_HEADER; 100];
    let mut request = httparse::Request::new(&mut fields);
    match request.parse(input) {
        Ok(httparse::Status::Complete(theirs)) => assert_eq!(len, theirs),
        // httparse rejects minor versions above 1, which we accept.
        Err(httparse::Error::Version) => return,
        other => panic!("httparse rejects an accepted head: {other:?}"),
    }
    assert_eq!(request.method, Some(fresh.method().as_str()));
    // Our parser percent-encodes raw bytes of a target.
    let mut theirs = Head::new();
    theirs.set_target(request.path.expect("the request line is whole")).expect("our parser accepted it");
    assert_eq!(theirs.target(), fresh.target());
    assert_eq!(request.headers.len(), fresh.fields().len());
    for (theirs, (name, value)) in request.headers.iter().zip(fresh.fields().iter()) {
        assert!(theirs.name.eq_ignore_ascii_case(name.as_str()) && theirs.value == value);
    }
});
