//! A program of the operator: `PROGRAM [ARGUMENTS…] present|cleanup NAME. VALUE`.

use std::process::Stdio;
use std::time::Duration;

use serde::Deserialize;
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::process::Command;

use super::provider::{Provider, ProviderError, Receipt, TxtRecord, Work};
use crate::http::HttpClient;

/// How long the program may run.
const RUN_TIMEOUT: Duration = Duration::from_secs(2 * 60);
/// The part of the program's error output that the log shows, in bytes.
const OUTPUT_BYTES_MAX: u64 = 1024;

/// Settings: the program, and arguments to put before ours.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Exec {
    command: String,
    #[serde(default)]
    args: Vec<String>,
}

impl Exec {
    /// Runs the program without a shell. Its exit status is the outcome.
    async fn run(&self, action: &str, record: &TxtRecord) -> Result<(), ProviderError> {
        let failed = |reason: String| ProviderError::Program(format!("{} {action}: {reason}", self.command));
        let mut command = Command::new(&self.command);
        command.args(&self.args).arg(action).arg(format!("{}.", record.name)).arg(&record.value);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().map_err(|error| failed(format!("cannot start it: {error}")))?;
        let stderr = child.stderr.take();
        let run = async { tokio::join!(child.wait(), read_stderr(stderr)) };
        let Ok((status, stderr)) = tokio::time::timeout(RUN_TIMEOUT, run).await else {
            return Err(failed(format!("not done after {} s", RUN_TIMEOUT.as_secs())));
        };
        match status {
            Ok(status) if status.success() => Ok(()),
            Ok(status) => Err(failed(format!("{status}: {stderr}"))),
            Err(error) => Err(failed(error.to_string())),
        }
    }
}

/// Reads the error output to its end, so that the program never blocks on it, and returns its beginning as one line.
async fn read_stderr(output: Option<impl AsyncRead + Unpin>) -> String {
    let Some(mut output) = output else { return String::new() };
    let mut kept = Vec::new();
    let _ = (&mut output).take(OUTPUT_BYTES_MAX).read_to_end(&mut kept).await;
    let _ = tokio::io::copy(&mut output, &mut tokio::io::sink()).await;
    let text = String::from_utf8_lossy(&kept);
    text.split(char::is_control).filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" ")
}

impl Provider for Exec {
    fn name(&self) -> &'static str {
        "exec"
    }

    fn add<'a>(&'a self, _: &'a HttpClient, record: &'a TxtRecord) -> Work<'a, Receipt> {
        Box::pin(async move {
            self.run("present", record).await?;
            Ok(Receipt::default())
        })
    }

    fn remove<'a>(&'a self, _: &'a HttpClient, record: &'a TxtRecord, _: &'a Receipt) -> Work<'a, ()> {
        Box::pin(self.run("cleanup", record))
    }

    fn needs_zone(&self) -> bool {
        false
    }
}
