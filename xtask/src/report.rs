//! The outcome of each step, and the summary at the end.

use std::fmt;
use std::time::Duration;

/// A step that completed successfully.
#[derive(Default)]
pub(crate) struct Done {
    /// A detail for the summary; may be empty.
    pub(crate) detail: String,
    /// Counts of the step's own tests.
    pub(crate) tally: Tally,
}

impl Done {
    /// Counts the `test result:` lines of a cargo run.
    pub(crate) fn counted(output: &str) -> Self {
        let tally = Tally::of(output);
        Self { detail: format!("{} tests", tally.passed), tally }
    }

    pub(crate) fn with_detail(detail: impl Into<String>) -> Self {
        Self { detail: detail.into(), ..Self::default() }
    }
}

/// The reason why a step did not succeed.
pub(crate) enum StepError {
    /// A failure; the text is everything that was printed.
    Failed(String),
    /// A tool or a part of this repository is missing. The step is skipped, but fails with CI=true.
    MissingTool(String),
    /// An optional external resource is missing. The step is always skipped.
    MissingOptional(String),
}

impl<E: Into<anyhow::Error>> From<E> for StepError {
    fn from(error: E) -> Self {
        Self::Failed(format!("{:#}\n", error.into()))
    }
}

/// Counts of single tests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) passed: u64,
    pub(crate) failed: u64,
    pub(crate) skipped: u64,
}

impl Tally {
    /// Sums lines such as `test result: ok. 5 passed; 0 failed; 1 ignored; 0 measured; 2 filtered out; …`. Filtered
    /// tests do not count.
    pub(crate) fn of(output: &str) -> Self {
        let mut sum = Self::default();
        for line in output.lines().filter(|line| line.starts_with("test result: ")) {
            let words: Vec<&str> = line.split_whitespace().collect();
            // Each count precedes its word: "5 passed;".
            for pair in words.windows(2) {
                let Ok(count) = pair[0].parse::<u64>() else { continue };
                match pair[1] {
                    "passed;" => sum.passed += count,
                    "failed;" => sum.failed += count,
                    "ignored;" => sum.skipped += count,
                    _ => {}
                }
            }
        }
        sum
    }
}

/// A line of the summary.
pub(crate) struct SummaryRow {
    pub(crate) step: &'static str,
    pub(crate) verdict: Verdict,
    pub(crate) took: Duration,
    pub(crate) tally: Tally,
}

pub(crate) enum Verdict {
    Passed(String),
    /// One line with the reason: the end of the output must suffice to find it.
    Failed(String),
    Skipped(String),
}

impl fmt::Display for SummaryRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (word, text) = match &self.verdict {
            Verdict::Passed(detail) => ("ok", detail.as_str()),
            Verdict::Failed(why) => ("FAILED", why.as_str()),
            Verdict::Skipped(why) => ("skipped", why.as_str()),
        };
        let line = format!("{word:<8}{:<12}{:>6.1} s  {text}", self.step, self.took.as_secs_f64());
        f.write_str(line.trim_end())
    }
}

/// Returns one line about a step's output: the tests that failed, or else the last line that names an error, or else
/// the last one.
pub(crate) fn reason(output: &str) -> String {
    let tests = output.lines().filter_map(|line| line.strip_prefix("test ")?.strip_suffix(" ... FAILED"));
    let tests: Vec<&str> = tests.collect();
    if !tests.is_empty() {
        return tests.join(", ");
    }
    let mut lines = output.lines().rev().map(str::trim).filter(|line| !line.is_empty());
    let last = lines.clone().next();
    let error = lines.find(|line| ["error", "Error", "E: "].iter().any(|start| line.starts_with(start)));
    error.or(last).unwrap_or_default().to_owned()
}

/// Sums the steps and their tests; a failed test counts in addition to its failed step.
pub(crate) fn total(rows: &[SummaryRow]) -> Tally {
    let mut sum = Tally::default();
    for row in rows {
        sum.passed += row.tally.passed;
        sum.failed += row.tally.failed;
        sum.skipped += row.tally.skipped;
        match row.verdict {
            Verdict::Passed(_) => sum.passed += 1,
            Verdict::Failed(_) => sum.failed += 1,
            Verdict::Skipped(_) => sum.skipped += 1,
        }
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn result_lines_are_summed_and_other_lines_are_not() {
        let output = "running 2 tests\n\
            test result: ok. 5 passed; 0 failed; 1 ignored; 0 measured; 2 filtered out; finished in 0.00s\n\
            it said: test result: ok. 9 passed; 9 failed;\n\
            test result: FAILED. 1 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s\n";
        assert_eq!(Tally::of(output), Tally { passed: 6, failed: 2, skipped: 1 });
    }

    #[test]
    fn one_line_tells_why() {
        for (output, why) in [
            ("test a::b ... ok\ntest a::c ... FAILED\ntest d ... FAILED\nerror: test failed\n", "a::c, d"),
            ("error: first\nerror: second\n  more\n", "error: second"),
            ("curl: (7) refused\n\n", "curl: (7) refused"),
            ("", ""),
        ] {
            assert_eq!(reason(output), why);
        }
    }

    #[test]
    fn a_total_counts_steps_and_tests() {
        let row = |verdict, tally| SummaryRow { step: "x", verdict, took: Duration::ZERO, tally };
        let rows = [
            row(Verdict::Passed(String::new()), Tally { passed: 3, failed: 0, skipped: 1 }),
            row(Verdict::Failed(String::new()), Tally { passed: 0, failed: 2, skipped: 0 }),
            row(Verdict::Skipped("no tool".into()), Tally::default()),
        ];
        assert_eq!(total(&rows), Tally { passed: 4, failed: 3, skipped: 2 });
    }
}
