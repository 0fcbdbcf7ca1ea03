//! Reloads the configuration's file: when it changes with `--watch`, and at each SIGUSR1.

use std::time::Duration;

use causeway::document::{AdaptedDocument, Document, log_warnings};
use causeway::server::{self, Control, Force, LoadOrigin, LoadRequest};
use serde_json::Value;

use super::{Watch, handover};
use crate::cli::source::{self, ConfigFlags};

/// Polling interval of a watched file; Caddy's value.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// A file, and the flags with which it was read.
#[derive(Clone)]
pub(crate) struct FollowedFile {
    pub(super) flags: ConfigFlags,
    pub(super) source: server::ConfigFile,
    pub(super) watch: Watch,
    /// Whether the running configuration is another one, which the API has loaded.
    pub(super) is_replaced: bool,
}

impl FollowedFile {
    /// Polls the file and loads it when the adapted configuration changes, as in Caddy also after the API has loaded
    /// another one. Each poll adapts the whole file, since imported files may change too. `running` is the running
    /// configuration.
    pub(super) async fn watch(self, control: Control, running: Value) {
        // A file that did not change must not replace the configuration of the API.
        let mut last = (!self.is_replaced).then_some(running);
        let mut ticks = tokio::time::interval(POLL_INTERVAL);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        // The last error, so that a repeated one is logged once, not every second.
        let mut complaint = String::new();
        loop {
            ticks.tick().await;
            let refused = match self.read().await {
                // Remember it even if the load fails, so that a refused file is not retried every second.
                Ok((document, adapted)) => match last.replace(adapted.json.clone()) {
                    Some(last) if last != adapted.json => {
                        tracing::info!("{} changed", document.name);
                        load(&document, &adapted, &control, Force::IfChanged).await
                    }
                    _ => Ok(()),
                },
                Err(error) => {
                    // Its correction is a change.
                    last.get_or_insert(Value::Null);
                    Err(error)
                }
            };
            // Another process may have taken this one's place, and watches the file.
            if control.is_stopping() {
                return;
            }
            match refused {
                Ok(()) => complaint.clear(),
                Err(error) => {
                    let message = format!("{error:#}");
                    if message != complaint {
                        tracing::error!("{message}; keeping the current configuration");
                        complaint = message;
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

/// Handles SIGUSR1: reloads the file even if it is unchanged, unless the API has replaced the configuration. If another
/// process has taken this one's place meanwhile, that one does it: the signal was sent to the server.
pub(super) async fn reload_file(followed: Option<FollowedFile>, control: Control) {
    // Before the check: the command completes only after an upgrade that is under way, which decides whether there is a
    // successor.
    let source = control.followed_file().await;
    if pass_on_reload(&control) {
        return;
    }
    let (Some(followed), Some(source)) = (followed, source) else {
        tracing::info!("SIGUSR1 is ignored: the configuration was not read from a file, or the API has replaced it");
        return;
    };
    let name = source.file.display();
    tracing::info!("SIGUSR1: reloading {name}");
    let loaded = match followed.read().await {
        Ok((document, adapted)) => load(&document, &adapted, &control, Force::Always).await,
        Err(error) => Err(error),
    };
    if let Err(error) = loaded
        && !pass_on_reload(&control)
    {
        tracing::error!("{error:#}; keeping the current configuration");
    }
}

/// Passes SIGUSR1 on to the process that has taken this one's place. Returns false if there is none.
fn pass_on_reload(control: &Control) -> bool {
    control.is_stopping() && handover::reload_successor()
}

async fn load(document: &Document, adapted: &AdaptedDocument, control: &Control, force: Force) -> anyhow::Result<()> {
    log_warnings(&adapted.warnings);
    log_warnings(&document.root_warnings(adapted));
    let loaded = control.load(LoadRequest { config: adapted.json.clone(), force, by: LoadOrigin::Owner }).await;
    loaded.map_err(|error| source::explain(document, adapted, &error))
}
