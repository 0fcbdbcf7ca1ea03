//! How far a bench is and how long it still takes. The bar counts planned milliseconds, so that its time left is right
//! for steps of different length.

use indicatif::{ProgressBar, ProgressStyle};

use crate::record::Table;
use crate::record::table::markdown;

/// A bar over the whole bench; silent where standard error is no terminal, but for [`Progress::say`].
pub struct Progress {
    bar: ProgressBar,
}

impl Progress {
    /// A bar of so many planned milliseconds.
    pub fn new(planned_ms: u64) -> Self {
        let bar = ProgressBar::new(planned_ms);
        let style = ProgressStyle::with_template("[{elapsed_precise}] {bar:40} {percent:>3} %, {eta} left  {msg}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        bar.enable_steady_tick(std::time::Duration::from_millis(500));
        Self { bar }
    }

    /// Names what goes on now.
    pub fn at(&self, what: &str) {
        self.bar.set_message(what.to_owned());
    }

    /// A step of so many planned milliseconds is done.
    pub fn done(&self, planned_ms: u64) {
        self.bar.inc(planned_ms);
    }

    /// A line that stays, also where there is no terminal.
    pub fn say(&self, line: &str) {
        self.bar.suspend(|| eprintln!("{line}"));
    }

    /// A table that stays.
    pub fn show(&self, table: &Table) {
        self.say(&format!("\n{}\n{}", table.title, markdown(table)));
    }

    /// Takes the bar away.
    pub fn end(&self) {
        self.bar.finish_and_clear();
    }
}
