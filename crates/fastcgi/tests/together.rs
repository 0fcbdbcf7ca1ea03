//! Random responses in random records, cut at random places, against a model that only joins streams.
#![allow(missing_docs, reason = "a test")]

mod application;

use application::{Application, STDERR, STDOUT, end, padded};
use causeway_message::{Framing, Method};
use causeway_testkit::random::Random;

#[test]
fn records_and_reads_may_be_cut_anywhere() {
    for seed in 0..3000 {
        let mut random = Random::new(seed);
        let content: String = (0..random.below(400)).map(|at| char::from(b'a' + (at % 26) as u8)).collect();
        let sized = random.below(2) == 0;
        let length = if sized { format!("Content-Length: {}\r\n", content.len()) } else { String::new() };
        let output = format!("X-Seed: {seed}\r\n{length}\r\n{content}");
        let errors = "e".repeat(random.below(30) as usize);
        // Records of both streams in a random order.
        let (mut stdout, mut stderr, mut input) = (output.as_bytes(), errors.as_bytes(), Vec::new());
        while !stdout.is_empty() || !stderr.is_empty() {
            let (kind, stream) = if stderr.is_empty() || !stdout.is_empty() && random.below(3) > 0 {
                (STDOUT, &mut stdout)
            } else {
                (STDERR, &mut stderr)
            };
            let (part, rest) = stream.split_at(stream.len().min(1 + random.below(60) as usize));
            input.extend(padded(1, kind, 1, part, random.below(9) as u8));
            *stream = rest;
        }
        input.extend(end(random.below(9) as u32, 0));

        let mut application = Application::with_request(Method::Get, Framing::Empty);
        let mut rest = &*input;
        while !rest.is_empty() {
            let (piece, later) = rest.split_at(rest.len().min(1 + random.below(90) as usize));
            application.feed(piece);
            rest = later;
        }
        let framing = match (sized, content.len()) {
            (false, _) => " +?".to_owned(),
            (true, 0) => String::new(),
            (true, bytes) => format!(" +{bytes}"),
        };
        let mut want = format!("200 X-Seed={seed}{framing}");
        if !content.is_empty() {
            want += &format!("; [{content}]");
        }
        want += "; end";
        if sized && !content.is_empty() {
            // The response's, then the application's.
            want += "; end";
        }
        if !errors.is_empty() {
            want += &format!("; log [{errors}]");
        }
        assert_eq!(application.take(), want + "; close", "seed {seed}");
    }
}
