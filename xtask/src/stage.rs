//! Runs the commands of a step, shows their progress, and captures their output for failures.
//!
//! On a terminal one line is rewritten; elsewhere a line is printed every half minute.

use std::io::{IsTerminal, Read, Write};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use anyhow::Context;

use crate::report::StepError;

/// Timeout for one command, so that a hanging test fails. The longest valid case is the first build of all
/// tests, and their run, on two slow cores.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(20 * 60);
/// Pause between two looks at a command that has closed its output and runs.
const CLOSED_PAUSE: Duration = Duration::from_millis(10);
const HEARTBEAT: Duration = Duration::from_secs(30);
const LAST_LINE_CHARS_MAX: usize = 90;

/// A running step, with its progress display.
pub(crate) struct Stage {
    step: &'static str,
    begun: Instant,
    spoken: Instant,
    terminal: bool,
}

impl Stage {
    pub(crate) fn begin(step: &'static str) -> Self {
        let now = Instant::now();
        let stage = Self { step, begun: now, spoken: now, terminal: std::io::stdout().is_terminal() };
        if !stage.terminal {
            println!("{step} …");
        }
        stage
    }

    pub(crate) fn took(&self) -> Duration {
        self.begun.elapsed()
    }

    /// Shows the step's current activity.
    pub(crate) fn note(&mut self, text: &str) {
        let text: String = text.chars().filter(|c| !c.is_control()).take(LAST_LINE_CHARS_MAX).collect();
        if self.terminal {
            print!("\r\x1b[2K{} … {} s  {text}", self.step, self.begun.elapsed().as_secs());
            let _ = std::io::stdout().flush();
        } else if self.spoken.elapsed() >= HEARTBEAT {
            self.spoken = Instant::now();
            println!("{} … {} s  {text}", self.step, self.begun.elapsed().as_secs());
        }
    }

    /// Removes the progress line, to make room for the result.
    pub(crate) fn clear(&self) {
        if self.terminal {
            print!("\r\x1b[2K");
        }
    }

    /// Runs a command to its end and returns its standard output and error, interleaved. A status other than 0 is
    /// [`StepError::Failed`] with that output.
    pub(crate) fn run(&mut self, command: Command) -> Result<String, StepError> {
        let shown = show(&command);
        let (status, output) = self.finish(command, COMMAND_TIMEOUT).with_context(|| format!("cannot run: {shown}"))?;
        match status {
            Some(status) if status.success() => Ok(output),
            Some(status) => Err(StepError::Failed(format!("$ {shown}\n{output}({status})\n"))),
            None => Err(StepError::Failed(format!(
                "$ {shown}\n{output}(ended by us after {} s)\n",
                COMMAND_TIMEOUT.as_secs()
            ))),
        }
    }

    /// Runs a command with a timeout, and reads the output of it and its descendants. The status is `None` when the
    /// command was killed.
    fn finish(&mut self, mut command: Command, timeout: Duration) -> anyhow::Result<(Option<ExitStatus>, String)> {
        let (mut reader, writer) = std::io::pipe()?;
        command.stdin(Stdio::null()).stdout(writer.try_clone()?).stderr(writer);
        let mut child = command.spawn()?;
        drop(command); // It holds the pipe's write end, which must close for the reader to see the end.
        let (sender, pieces) = mpsc::channel::<Vec<u8>>();
        std::thread::spawn(move || {
            let mut piece = [0; 8192];
            while let Ok(count @ 1..) = reader.read(&mut piece) {
                if sender.send(piece[..count].to_vec()).is_err() {
                    break;
                }
            }
        });

        let begun = Instant::now();
        let mut output = Vec::new();
        let mut status = None;
        loop {
            match pieces.recv_timeout(Duration::from_millis(200)) {
                Ok(piece) => output.extend_from_slice(&piece),
                // The child has exited and no output arrived for a while; a grandchild may keep the pipe open forever.
                Err(_) if status.is_some() => break,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => std::thread::sleep(CLOSED_PAUSE),
            }
            if status.is_none() {
                status = child.try_wait()?;
            }
            // Also after the child's end: a grandchild may print forever.
            if begun.elapsed() > timeout {
                if status.is_none() {
                    end_tree(&mut child);
                }
                break;
            }
            self.note(&last_line(&output));
        }
        Ok((status, String::from_utf8_lossy(&output).into_owned()))
    }
}

fn last_line(output: &[u8]) -> String {
    let tail = &output[output.len().saturating_sub(1000)..];
    String::from_utf8_lossy(tail).lines().rfind(|line| !line.trim().is_empty()).unwrap_or_default().trim().to_owned()
}

fn show(command: &Command) -> String {
    let settings = command
        .get_envs()
        .filter_map(|(name, value)| Some(format!("{}='{}'", name.to_string_lossy(), value?.to_string_lossy())));
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    settings.chain(words.map(|word| word.to_string_lossy().into_owned())).collect::<Vec<_>>().join(" ")
}

/// Kills a child and all its descendants: cargo's test binaries would survive if only cargo were killed.
fn end_tree(child: &mut Child) {
    let parents: Vec<(u32, u32)> = std::fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            let id = entry.file_name().to_str()?.parse().ok()?;
            let stat = std::fs::read_to_string(PathBuf::from("/proc").join(entry.file_name()).join("stat")).ok()?;
            // The name in parentheses may contain spaces; the parent is the second word after it.
            let parent = stat.rsplit(')').next()?.split_whitespace().nth(1)?.parse().ok()?;
            Some((id, parent))
        })
        .collect();
    let mut ours = vec![child.id()];
    let mut at = 0;
    while at < ours.len() {
        let above = ours[at];
        ours.extend(parents.iter().filter(|(_, parent)| *parent == above).map(|(id, _)| *id));
        at += 1;
    }
    let ids: Vec<String> = ours.iter().map(u32::to_string).collect();
    let _ = Command::new("sh").arg("-c").arg(format!("kill -KILL {}", ids.join(" "))).status();
    let _ = child.wait();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sh(script: &str) -> Result<String, StepError> {
        stage().run(command(script))
    }

    fn stage() -> Stage {
        Stage { step: "test", begun: Instant::now(), spoken: Instant::now(), terminal: false }
    }

    fn command(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.arg("-c").arg(script);
        command
    }

    #[test]
    fn every_command_has_a_timeout() {
        let finish = |script: &str| stage().finish(command(script), Duration::from_millis(500)).unwrap().0;
        assert_eq!(finish("exec >&- 2>&-; sleep 600"), None, "it has closed its output");
        assert!(finish("(while :; do echo a; sleep 0.1; done) &").unwrap().success(), "a grandchild prints forever");
        assert!(finish("exec >&- 2>&-; sleep 0.1").unwrap().success());
    }

    #[test]
    fn output_is_kept_in_order_and_a_bad_status_is_a_failure() {
        assert!(matches!(sh("echo a; echo b >&2; echo c"), Ok(text) if text == "a\nb\nc\n"));
        assert!(
            matches!(sh("echo why; exit 3"), Err(StepError::Failed(text)) if text.contains("why\n(exit status: 3)"))
        );
    }

    #[test]
    fn a_missing_program_is_named() {
        let halt = Stage::begin("test").run(Command::new("no-such-program-here"));
        assert!(matches!(halt, Err(StepError::Failed(text)) if text.contains("no-such-program-here")));
    }

    #[test]
    fn ending_takes_grandchildren_along() {
        let mut child =
            Command::new("sh").args(["-c", "sleep 600 & echo $!; wait"]).stdout(Stdio::piped()).spawn().unwrap();
        let mut grandchild = [0; 16];
        let count = child.stdout.take().unwrap().read(&mut grandchild).unwrap();
        let id = String::from_utf8_lossy(&grandchild[..count]).trim().to_owned();
        end_tree(&mut child);
        // The signal may take a moment; afterwards the process is gone, or a zombie until its new parent collects it.
        let lives = || {
            let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
            !stat.is_empty() && !stat.contains(") Z ")
        };
        let polls = (0..500).take_while(|_| lives()).inspect(|_| std::thread::sleep(Duration::from_millis(20))).count();
        assert!(polls < 500, "{id} still lives");
    }
}
