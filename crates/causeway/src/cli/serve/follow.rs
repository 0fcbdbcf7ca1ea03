//! The file that the configuration came from, read again: once a second with `--watch`, and at each SIGUSR1.

use std::time::Duration;

use causeway::document::{AdaptedDocument, Document};
use causeway::server::{self, By, Control, Force, Load};
use serde_json::Value;

use super::Watch;
use crate::cli::source::{self, ConfigFlags};

/// How often a watched file is looked at; Caddy's.
const EVERY: Duration = Duration::from_secs(1);

/// A file, and how it was read.
#[derive(Clone)]
pub(crate) struct Followed {
    pub(super) flags: ConfigFlags,
    pub(super) source: server::Source,
    pub(super) watch: Watch,
}

impl Followed {
    /// Loads the file whenever what it says is not what it said before. The whole file is read and adapted each time, since what
    /// it imports may change too.
    pub(super) async fn watch(self, control: Control, mut last: Value) {
        let mut ticks = tokio::time::interval(EVERY);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        // What was complained about is said once, not every second.
        let mut complaint = String::new();
        loop {
            ticks.tick().await;
            let refused = match self.read().await {
                Ok((_, adapted)) if adapted.json == last => Ok(()),
                Ok((document, adapted)) => {
                    tracing::info!("{} changed", document.name);
                    last.clone_from(&adapted.json);
                    load(&document, &adapted, &control, Force::IfChanged).await
                }
                Err(error) => Err(error),
            };
            match refused {
                Ok(()) => complaint.clear(),
                Err(error) => {
                    let words = format!("{error:#}");
                    if words != complaint {
                        tracing::error!("{words}; the configuration that runs stays");
                        complaint = words;
                    }
                }
            }
        }
    }

    async fn read(&self) -> anyhow::Result<(Document, AdaptedDocument)> {
        let flags = self.flags.clone();
        let read = tokio::task::spawn_blocking(move || {
            let source = flags.read()?;
            let adapted = source.adapt()?;
            anyhow::Ok((source.document, adapted))
        });
        read.await?
    }
}

/// What SIGUSR1 asks for: the file again, even if it says the same. Not if the API has changed the configuration since.
pub(super) async fn again(followed: Option<Followed>, control: Control) {
    let (Some(followed), Some(source)) = (followed, control.follows().await) else {
        tracing::info!("SIGUSR1 is ignored: the configuration is not that of a file, or not any more");
        return;
    };
    let name = source.file.display();
    tracing::info!("SIGUSR1: loading {name} again");
    let loaded = match followed.read().await {
        Ok((document, adapted)) => load(&document, &adapted, &control, Force::Always).await,
        Err(error) => Err(error),
    };
    if let Err(error) = loaded {
        tracing::error!("{error:#}; the configuration that runs stays");
    }
}

async fn load(document: &Document, adapted: &AdaptedDocument, control: &Control, force: Force) -> anyhow::Result<()> {
    source::warn(adapted);
    let loaded = control.load(Load { config: adapted.json.clone(), force, by: By::Owner }).await;
    loaded.map_err(|fault| source::explain(document, adapted, &fault))
}
