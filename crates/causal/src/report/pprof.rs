//! Stacks in pprof's format (profile.proto of google/pprof): a gzipped protobuf message.

use std::collections::HashMap;
use std::io::Write as _;

use super::Report;
use crate::varint;

/// Field numbers of `Profile`; those of nested messages are literals below.
mod field {
    pub(super) const SAMPLE_TYPE: u64 = 1;
    pub(super) const SAMPLE: u64 = 2;
    pub(super) const LOCATION: u64 = 4;
    pub(super) const FUNCTION: u64 = 5;
    pub(super) const STRING_TABLE: u64 = 6;
    pub(super) const TIME_NANOS: u64 = 9;
    pub(super) const DURATION_NANOS: u64 = 10;
    pub(super) const PERIOD_TYPE: u64 = 11;
    pub(super) const PERIOD: u64 = 12;
}

/// A message under construction.
#[derive(Default)]
struct ProtoMessage(Vec<u8>);

impl ProtoMessage {
    fn varint(&mut self, value: u64) {
        varint::put(value, &mut self.0);
    }

    fn number(&mut self, field: u64, value: u64) {
        self.varint(field << 3);
        self.varint(value);
    }

    fn bytes(&mut self, field: u64, bytes: &[u8]) {
        self.varint(field << 3 | 2);
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    /// A nested message, or packed numbers.
    fn inside(&mut self, field: u64, fill: impl FnOnce(&mut Self)) {
        let mut inner = Self::default();
        fill(&mut inner);
        self.bytes(field, &inner.0);
    }
}

/// The string table; its first entry is the empty string.
struct Strings {
    all: Vec<String>,
    known: HashMap<String, u64>,
}

impl Strings {
    fn number(&mut self, string: &str) -> u64 {
        if let Some(&known) = self.known.get(string) {
            return known;
        }
        let number = self.all.len() as u64;
        self.all.push(string.to_owned());
        self.known.insert(string.to_owned(), number);
        number
    }
}

impl Report {
    /// The stacks for `go tool pprof`, in samples and nanoseconds of processor time. The outermost function is the
    /// thread's name.
    #[must_use]
    pub fn to_pprof(&self) -> Vec<u8> {
        let mut strings = Strings { all: vec![String::new()], known: HashMap::from([(String::new(), 0)]) };
        let mut profile = ProtoMessage::default();
        let [samples, count, cpu, nanoseconds] =
            ["samples", "count", "cpu", "nanoseconds"].map(|word| strings.number(word));
        for (kind, unit) in [(samples, count), (cpu, nanoseconds)] {
            profile.inside(field::SAMPLE_TYPE, |of| {
                of.number(1, kind);
                of.number(2, unit);
            });
        }
        // Each function has one location of the same id; ids start at 1.
        let mut functions: HashMap<u64, u64> = HashMap::new();
        // pprof's order is innermost frame first.
        for stack in &self.stacks {
            let mut frames = Vec::with_capacity(stack.frames.len());
            for frame in stack.frames.iter().rev() {
                let next = functions.len() as u64 + 1;
                frames.push(*functions.entry(strings.number(frame)).or_insert(next));
            }
            profile.inside(field::SAMPLE, |sample| {
                sample.inside(1, |numbers| frames.iter().for_each(|&frame| numbers.varint(frame)));
                sample.inside(2, |numbers| {
                    numbers.varint(stack.count);
                    numbers.varint(stack.nanoseconds);
                });
            });
        }
        let mut functions: Vec<_> = functions.into_iter().map(|(name, number)| (number, name)).collect();
        functions.sort_unstable();
        for (number, name) in functions {
            profile.inside(field::LOCATION, |location| {
                location.number(1, number);
                location.inside(4, |line| line.number(1, number));
            });
            // Without a system name, because pprof would parse the brackets of Rust's names as C++ templates.
            profile.inside(field::FUNCTION, |function| {
                function.number(1, number);
                function.number(2, name);
            });
        }
        profile.number(field::TIME_NANOS, self.began.saturating_mul(1_000_000_000));
        profile.number(field::DURATION_NANOS, (self.seconds * 1e9) as u64);
        profile.inside(field::PERIOD_TYPE, |of| {
            of.number(1, cpu);
            of.number(2, nanoseconds);
        });
        // Merged programs may have different periods. pprof only displays this value.
        let period = self.stacks.first().map_or(0, |stack| stack.nanoseconds / stack.count.max(1));
        profile.number(field::PERIOD, period);
        for string in &strings.all {
            profile.bytes(field::STRING_TABLE, string.as_bytes());
        }
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        gzip.write_all(&profile.0).and_then(|()| gzip.finish()).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::process::Command;

    use super::super::Stack;
    use super::*;

    fn report() -> Report {
        let stack = |frames: &[&str], count| Stack {
            frames: frames.iter().map(|&frame| frame.to_owned()).collect(),
            count,
            nanoseconds: count * 1_000_000,
        };
        let stacks = vec![
            stack(&["worker", "app::main", "app::hot"], 750),
            stack(&["worker", "app::main", "<app::T as U>::cold"], 250),
        ];
        Report { stacks, began: 1_700_000_000, seconds: 2.0, ..Report::default() }
    }

    #[test]
    fn the_profile_is_a_gzipped_message_with_all_names() {
        let mut bytes = Vec::new();
        flate2::read::GzDecoder::new(&report().to_pprof()[..]).read_to_end(&mut bytes).unwrap();
        let has = |text: &str| bytes.windows(text.len()).any(|part| part == text.as_bytes());
        assert!(["app::hot", "<app::T as U>::cold", "nanoseconds"].iter().all(|text| has(text)));
    }

    #[test]
    fn go_tool_pprof_reads_it() {
        let path = std::env::temp_dir().join(format!("causal-{}.pb.gz", std::process::id()));
        std::fs::write(&path, report().to_pprof()).unwrap();
        let tool = Command::new("go").args(["tool", "pprof", "-top", "-cum"]).arg(&path).output();
        std::fs::remove_file(&path).unwrap();
        let Ok(output) = tool else {
            eprintln!("skipped: there is no Go here");
            return;
        };
        let (text, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{errors}");
        let row =
            |name: &str| text.lines().find(|line| line.ends_with(name)).unwrap_or_else(|| panic!("no {name}: {text}"));
        assert!(
            row("app::hot").split_whitespace().eq(["750ms", "75.00%", "75.00%", "750ms", "75.00%", "app::hot"]),
            "{text}"
        );
        assert!(row("<app::T as U>::cold").contains("250ms"), "{text}");
        assert!(row("app::main").contains("100%"), "{text}");
    }
}
