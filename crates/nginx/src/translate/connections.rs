//! Limits of clients' connections as global options: times, and the size of heads.

use super::Translator;
use super::units::{bytes, seconds};
use crate::parse::Directive;

/// The directives, each with the option in `timeouts`. nginx counts the last two between two reads or writes too.
const TIMEOUTS: [(&str, &str); 4] = [
    ("client_header_timeout", "read_header"),
    ("client_body_timeout", "read_body_idle"),
    ("send_timeout", "write_idle"),
    ("keepalive_timeout", "idle"),
];

/// The default of `max_header_size`, and its largest value.
const HEAD_BYTES: u64 = 32 << 10;
const HEAD_BYTES_MAX: u64 = 64 << 20;

impl<'a> Translator<'a> {
    /// Adds the global options. They are for all servers: of different values the largest counts, and the others are
    /// named.
    pub(super) fn write_connections(&mut self, head: &mut Vec<String>, http: &'a Directive) {
        let mut timeouts = Vec::new();
        for (name, option) in TIMEOUTS {
            // 0 turns keep-alive off, which no option does.
            let read = |line: &Directive| seconds(line.argument(0)).filter(|seconds| *seconds > 0);
            if let Some(most) = self.largest(head, http, name, read) {
                timeouts.push(format!("{option} {most}s"));
            }
        }
        let product = |line: &Directive| line.argument(0).parse::<u64>().ok()?.checked_mul(bytes(line.argument(1))?);
        if let Some(most) = self.largest(head, http, "large_client_header_buffers", product)
            && most != HEAD_BYTES
        {
            self.options.push(format!("max_header_size {}KiB", most.min(HEAD_BYTES_MAX).div_ceil(1 << 10)));
            let mut lines = Vec::new();
            collect(http, "large_client_header_buffers", &mut lines);
            for line in lines.into_iter().filter(|line| product(line).is_some_and(|bytes| bytes > HEAD_BYTES_MAX)) {
                self.remark(head, line, "a request's head has at most 64 MiB");
            }
        }
        if !timeouts.is_empty() {
            super::block(&mut self.options, "timeouts", timeouts);
        }
    }

    fn largest(
        &mut self,
        head: &mut Vec<String>,
        http: &'a Directive,
        name: &str,
        read: impl Fn(&Directive) -> Option<u64>,
    ) -> Option<u64> {
        let mut lines = Vec::new();
        collect(http, name, &mut lines);
        let values: Vec<Option<u64>> = lines.iter().map(|line| read(line)).collect();
        let most = values.iter().flatten().max().copied();
        for (line, value) in lines.into_iter().zip(values) {
            match value {
                None => self.note(head, line, "no option has this value"),
                Some(value) if Some(value) != most => {
                    self.note(head, line, "this is a global option here, with the largest value of the file");
                }
                Some(_) => {}
            }
        }
        most
    }
}

fn collect<'a>(block: &'a Directive, name: &str, found: &mut Vec<&'a Directive>) {
    for directive in block.block() {
        if directive.name == name {
            found.push(directive);
        }
        collect(directive, name, found);
    }
}
