//! How much is said on standard error; a configuration may change it while the server runs.

use std::io::IsTerminal as _;

use causeway_config::plan::Level;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{Registry, fmt, reload};

/// Sets how much is said from now on.
pub(super) struct Said(reload::Handle<LevelFilter, Registry>);

impl Said {
    pub(super) fn set(&self, level: Level) {
        // Fails only when the subscriber is gone, and then nothing is said at all.
        let _ = self.0.modify(|filter| *filter = filter_of(level));
    }
}

/// Begins.
pub(super) fn to_stderr(level: Level) -> Said {
    let (filter, handle) = reload::Layer::new(filter_of(level));
    let lines = fmt::layer().with_ansi(std::io::stderr().is_terminal()).with_writer(std::io::stderr).with_target(false);
    // Fails only when a subscriber is there already, as in a program that embeds us.
    let _ = tracing_subscriber::registry().with(filter).with(lines).try_init();
    Said(handle)
}

fn filter_of(level: Level) -> LevelFilter {
    match level {
        Level::Debug => LevelFilter::DEBUG,
        Level::Info => LevelFilter::INFO,
    }
}
