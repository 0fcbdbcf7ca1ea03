//! Stacks in the folded format for flame graphs: one stack per line, outermost frame first, then its time.

use super::Report;

impl Report {
    /// Folded stacks: `worker;main;serve 12`, in milliseconds of processor time, rounded up. Empty without samples.
    #[must_use]
    pub fn to_folded_stacks(&self) -> String {
        let mut out = String::new();
        for stack in &self.stacks {
            for (at, frame) in stack.frames.iter().enumerate() {
                if at > 0 {
                    out.push(';');
                }
                // The separators of frames and lines are replaced.
                out.extend(frame.chars().map(|ch| match ch {
                    ';' => ':',
                    ch if ch.is_control() => ' ',
                    ch => ch,
                }));
            }
            out.push_str(&format!(" {}\n", stack.nanoseconds.div_ceil(1_000_000)));
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::super::Stack;
    use super::*;

    #[test]
    fn each_stack_is_one_line() {
        let stack = |frames: &[&str], count| Stack {
            frames: frames.iter().map(|&frame| frame.to_owned()).collect(),
            count,
            nanoseconds: count * 3_997_000,
        };
        let stacks = vec![stack(&["worker", "main", "<[u8; 4] as A>::b"], 3), stack(&["a b", "two\nlines"], 1)];
        let report = Report { stacks, ..Report::default() };
        assert_eq!(report.to_folded_stacks(), "worker;main;<[u8: 4] as A>::b 12\na b;two lines 4\n");
        assert_eq!(Report::default().to_folded_stacks(), "");
    }
}
