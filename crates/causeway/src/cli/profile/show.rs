//! Progress of a profile: a bar on a terminal, or else a line every ten seconds.

use std::io::IsTerminal as _;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use super::output;

/// Interval between lines without a terminal.
const PAUSE: Duration = Duration::from_secs(10);
const TEMPLATE: &str = "{bar:30} {prefix}  {wide_msg}";

pub(super) struct ProgressDisplay {
    seconds: f64,
    bar: Option<ProgressBar>,
    printed_at: Instant,
}

impl ProgressDisplay {
    pub(super) fn begin(seconds: f64) -> Self {
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::new(1000);
            let style = ProgressStyle::with_template(TEMPLATE).expect("the template above is right");
            bar.set_style(style.progress_chars("━╸─"));
            bar
        });
        let show = Self { seconds, bar, printed_at: Instant::now() };
        match &show.bar {
            Some(bar) => bar.set_prefix(format!("0 of {seconds:.0} s")),
            None => output::note(&format!("Profiling for {seconds} s")),
        }
        show
    }

    pub(super) fn progress(&mut self, elapsed: f64, phase: &str, so_far: &str) {
        let progress = format!("{elapsed:.0} of {:.0} s", self.seconds);
        let text = if so_far.is_empty() { phase } else { so_far };
        match &self.bar {
            Some(bar) => {
                bar.set_position((elapsed / self.seconds * 1000.0) as u64);
                bar.set_prefix(progress);
                bar.set_message(text.chars().filter(|char| !char.is_control()).collect::<String>());
            }
            None if self.printed_at.elapsed() >= PAUSE => {
                self.printed_at = Instant::now();
                output::note(&format!("Profiling: {progress}; {text}"));
            }
            None => {}
        }
    }

    /// Prints a line that stays above the bar.
    pub(super) fn note(&self, line: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| output::note(line)),
            None => output::note(line),
        }
    }

    pub(super) fn end(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
