//! Progress of a bench and its remaining time. The bar counts planned milliseconds, so that the remaining time is right
//! for steps of different lengths.

use indicatif::{ProgressBar, ProgressStyle};

use crate::record::Table;
use crate::record::table::markdown;

/// A bar for the whole bench. Without a terminal only [`Progress::say`] prints.
pub struct Progress {
    bar: ProgressBar,
}

impl Progress {
    /// Creates a bar of this number of planned milliseconds.
    pub fn new(planned_ms: u64) -> Self {
        let bar = ProgressBar::new(planned_ms);
        let style = ProgressStyle::with_template("[{elapsed_precise}] {bar:40} {percent:>3} %, {eta} left  {msg}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        bar.enable_steady_tick(std::time::Duration::from_millis(500));
        Self { bar }
    }

    /// Shows the current step.
    pub fn at(&self, what: &str) {
        self.bar.set_message(what.to_owned());
    }

    /// Advances the bar by a step's planned milliseconds.
    pub fn done(&self, planned_ms: u64) {
        self.bar.inc(planned_ms);
    }

    /// Prints a line that stays, also without a terminal.
    pub fn say(&self, line: &str) {
        self.bar.suspend(|| eprintln!("{line}"));
    }

    /// Prints a table that stays.
    pub fn show(&self, table: &Table) {
        self.say(&format!("\n{}\n{}", table.title, markdown(table)));
    }

    /// Removes the bar.
    pub fn end(&self) {
        self.bar.finish_and_clear();
    }
}
