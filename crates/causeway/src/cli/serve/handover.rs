//! The handover between two processes of this program, over a pair of connected Unix sockets.
//!
//! ```text
//!   former process                               new process, whose standard input is the other end
//!   offer: length, JSON, descriptors ──────────►
//!                                    ◄────────── "ready", or "failed" and the reason
//!   "go", or "no": it continues to serve ──────►
//!   perhaps "reload", perhaps "stop" ──────────►
//! ```
//! The descriptors travel as SCM_RIGHTS (unix(7)), so the new process needs no numbers, and no other program inherits
//! them. If the former process ends before "go", the new one serves on: the sockets are open in it. A former process
//! that a signal ends at once kills the new one first.
//!
//! A third process, the launcher, starts the new one and is its parent until it serves:
//! ```text
//!   former process ── starts ──► launcher ── starts ──► new process
//!                  ◄── "id N" with a descriptor of the process, and "ended STATUS" if it ends ──
//!                  ── kills it at "ready" ──►             now a child of process 1
//! ```
//! systemd does not wait for the end of a main process that is not its child, and gets no signal of it: a stop of the
//! unit would kill it at once with SIGKILL.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader, ErrorKind, IoSlice, IoSliceMut, Read as _, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow, bail};
use causeway::document::{Document, Language};
use causeway::server::{ConfigFile, Handover, UpgradeOffer};
use causeway_config::json;
use causeway_engine::HandedSockets;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::retry_on_intr;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    recvmsg, sendmsg,
};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal, set_parent_process_death_signal};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _};

use super::{SiteKind, service_manager};
use crate::cli::environment::EnvironmentFiles;
use crate::cli::source::{ConfigFlags, ConfigSource};

/// Set for a process whose standard input is a handover.
const VARIABLE: &str = "CAUSEWAY_HANDOVER";
/// The first argument of the launcher. The program of the new process and its arguments follow.
const LAUNCH: &str = "launch-successor";
/// This program, also after a package has replaced or removed its file.
const THIS_PROGRAM: &str = "/proc/self/exe";
/// Time limit for the new process until it serves.
const READY_TIMEOUT: Duration = Duration::from_secs(60);
/// Time limit for the launcher, for the new process to read the offer, and for the former one to answer "ready".
const TALK_TIMEOUT: Duration = Duration::from_secs(10);
/// Time in which a process that does not serve may end by itself.
const END_TIMEOUT: Duration = Duration::from_millis(500);
/// Interval at which a wait looks whether the server was stopped.
const CHECK_INTERVAL: Duration = Duration::from_millis(50);
/// Descriptors in one message; Linux allows 253.
const DESCRIPTORS_MAX: usize = 64;
/// The longest offer: the largest configuration that the admin API accepts, and the rest.
const OFFER_BYTES_MAX: u64 = 80 << 20;
/// The longest reason of a failure that is read.
const REASON_BYTES_MAX: u64 = 16 << 10;

/// The last process that this one has started.
static STARTED: Mutex<Option<StartedProcess>> = Mutex::new(None);

/// A process that has been started to take this one's place.
enum StartedProcess {
    /// The new process does not serve yet.
    Starting(StartingProcess),
    /// The new process serves, and reads this connection.
    Serving(UnixStream),
}

/// A process that does not serve yet.
struct StartingProcess {
    /// Its parent, which ends with it, or earlier if another program kills it.
    launcher: Child,
    id: u32,
    /// The process itself (pidfd_open(2)): after its end the system may give its id to another one.
    process: OwnedFd,
}

impl StartingProcess {
    /// Kills the process, unless it has ended.
    fn kill(&self) {
        // Ignore a failure: it has ended.
        let _ = pidfd_send_signal(&self.process, Signal::KILL);
    }

    /// Waits for the end of the process.
    fn wait(mut self) {
        self.wait_for_end(None);
        let _ = self.launcher.wait();
    }

    /// Ends the launcher, so that the process is a child of process 1, or of the nearest subreaper (prctl(2)). Returns
    /// false if the process has ended.
    fn release(&mut self) -> bool {
        // Ignore a failure: it has ended.
        let _ = self.launcher.kill();
        let _ = self.launcher.wait();
        !self.wait_for_end(Some(&Timespec::default()))
    }

    /// Waits for the end of the process, without a timeout for ever. Returns whether it has ended.
    fn wait_for_end(&self, timeout: Option<&Timespec>) -> bool {
        // pidfd_open(2): the descriptor is readable when the process has ended.
        retry_on_intr(|| poll(&mut [PollFd::new(&self.process, PollFlags::IN)], timeout)).is_ok_and(|count| count > 0)
    }
}

fn started() -> MutexGuard<'static, Option<StartedProcess>> {
    STARTED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Kills the process that has not yet taken this one's place, before this one ends at once: at the end of the
/// connection it would serve.
pub(super) fn kill_started() {
    if let Some(StartedProcess::Starting(process)) = &*started() {
        process.kill();
    }
}

/// Stops the process that has taken this one's place. Not by a signal: it may have got the one that this process got,
/// and a second one would end its requests at once.
pub(super) fn stop_successor() {
    if let Some(StartedProcess::Serving(stream)) = &mut *started()
        && let Err(error) = stream.write_all(b"stop\n")
    {
        tracing::error!("cannot stop it: {error}");
    }
}

/// Passes SIGUSR1 on to the process that has taken this one's place. Returns false if there is none.
pub(super) fn reload_successor() -> bool {
    let Some(StartedProcess::Serving(stream)) = &mut *started() else { return false };
    if let Err(error) = stream.write_all(b"reload\n") {
        tracing::error!("cannot pass SIGUSR1 on: {error}");
    }
    true
}

/// The offer without its descriptors.
#[derive(Serialize, Deserialize)]
struct WrittenOffer {
    name: String,
    is_configured: bool,
    config: Value,
    /// The file that the server was started with: path and adapter.
    file: Option<(PathBuf, String)>,
    /// Whether the API has replaced the file's configuration.
    is_replaced: bool,
    sites: Vec<WrittenSockets>,
    admin: Vec<WrittenSockets>,
}

/// The sockets of one listener: the number of their descriptors.
#[derive(Serialize, Deserialize)]
struct WrittenSockets {
    name: String,
    count: usize,
}

/// The facts about a server that its successor needs besides the offer.
#[derive(Clone)]
pub(super) struct ServerFacts {
    /// The program, found before a package could replace the file.
    pub(super) program: Option<PathBuf>,
    /// The configuration's name in the first line.
    pub(super) name: String,
    pub(super) site: SiteKind,
    /// The file that the server was started with.
    pub(super) file: Option<ConfigFile>,
}

impl ServerFacts {
    /// Starts another process with this one's arguments and waits until it serves. Returns its process id.
    pub(super) fn start_successor(&self, offer: UpgradeOffer) -> Result<u32, String> {
        if std::process::id() == 1 {
            return Err(
                "found process id 1, expected another: a container ends with its first process; start another \
                        container instead"
                    .into(),
            );
        }
        let program = offer.binary.as_ref().or(self.program.as_ref()).ok_or("the path of this program is not known")?;
        let program = program.clone();
        let with_program = |error: anyhow::Error| format!("{}: {error:#}", program.display());
        let (ours, theirs) = UnixStream::pair().context("a pair of sockets").map_err(with_program)?;
        // Locked meanwhile: an end at once must wait for the id of the process, to kill it.
        let mut place = started();
        let process = launch(&program, &ours, theirs).map_err(with_program)?;
        let id = process.id;
        *place = Some(StartedProcess::Starting(process));
        drop(place);
        let mut stream = &ours;
        match self.send_offer(offer, stream, READY_TIMEOUT) {
            Ok(()) => {
                let has_not_ended = match &mut *started() {
                    Some(StartedProcess::Starting(process)) => process.release(),
                    _ => true,
                };
                if !has_not_ended {
                    let _ = stream.write_all(b"no\n");
                    return Err(with_program(end_started(
                        anyhow!("the new process ended before it took over"),
                        stream,
                    )));
                }
                // Not before: systemd looks at this message whether the next main process is its child. While this is
                // still the main process, systemd accepts the message.
                service_manager::succeeded_by(id);
                // An error means that the process has just ended; the service manager then restarts the service.
                let _ = stream.write_all(b"go\n");
                *started() = Some(StartedProcess::Serving(ours));
                Ok(id)
            }
            Err(error) => {
                // The process may become ready at this moment.
                let _ = stream.write_all(b"no\n");
                Err(with_program(end_started(error, stream)))
            }
        }
    }

    /// Sends the offer and waits for "ready".
    fn send_offer(&self, offer: UpgradeOffer, mut stream: &UnixStream, within: Duration) -> anyhow::Result<()> {
        let count = |sockets: &[HandedSockets]| {
            let written = |of: &HandedSockets| WrittenSockets { name: of.name.clone(), count: of.descriptors.len() };
            sockets.iter().map(written).collect()
        };
        let written = WrittenOffer {
            name: self.name.clone(),
            is_configured: self.site == SiteKind::Configured,
            config: offer.config,
            file: self.file.as_ref().map(|of| (of.file.clone(), of.adapter.clone())),
            is_replaced: offer.followed_file.is_none(),
            sites: count(&offer.sockets.sites),
            admin: count(&offer.sockets.admin),
        };
        let json = serde_json::to_vec(&written)?;
        let sent = (|| {
            stream.set_write_timeout(Some(TALK_TIMEOUT))?;
            stream.write_all(&(json.len() as u64).to_be_bytes())?;
            stream.write_all(&json)?;
            let sockets = offer.sockets.sites.iter().chain(&offer.sockets.admin);
            let descriptors: Vec<_> = sockets.flat_map(|of| &of.descriptors).collect();
            descriptors.chunks(DESCRIPTORS_MAX).try_for_each(|some| send_descriptors(stream, b"d", some))
        })();
        // The process may have ended before it read the offer: the failed read below then has more to tell.
        let sent: io::Result<()> = sent;
        let answer = read_line(stream, within, &offer.is_withdrawn);
        match (answer, sent) {
            // Also if the process is ready by now: it must not take the place of a server that was stopped.
            _ if offer.is_withdrawn.load(Ordering::Relaxed) => bail!("the server was stopped meanwhile"),
            (Ok(text), _) if text == "ready" => Ok(()),
            (Ok(text), _) if text.is_empty() => bail!("the new process ended before it served"),
            (Ok(text), _) if text.starts_with(ENDED) => {
                bail!("the new process ended before it served ({})", &text[ENDED.len()..])
            }
            (Ok(text), _) => {
                let reason =
                    text.strip_prefix("failed ").unwrap_or("found another program's answer, expected a causeway's");
                bail!("the new process does not serve: {reason}")
            }
            (Err(error), _) if is_timeout(&error) => {
                bail!("the new process did not serve within {} s and was ended", within.as_secs())
            }
            (Err(error), Ok(())) | (Err(_), Err(error)) => Err(error).context("the connection to the new process"),
        }
    }
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}

/// Starts a process with this one's arguments, whose parent is a launcher and whose standard input is `theirs`.
fn launch(program: &Path, ours: &UnixStream, theirs: UnixStream) -> anyhow::Result<StartingProcess> {
    let mut arguments = std::env::args_os();
    let own_name = arguments.next().unwrap_or_else(|| THIS_PROGRAM.into());
    let mut command = Command::new(THIS_PROGRAM);
    command.arg0(own_name).arg(LAUNCH).arg(program).args(arguments);
    command.env(VARIABLE, "1").stdin(Stdio::from(OwnedFd::from(theirs)));
    // sd_watchdog_enabled(3): the variable would say that the signs of life are another process's task.
    command.env_remove("WATCHDOG_PID");
    let mut launcher = command.spawn().context("starting the launcher of the new process")?;
    // The command holds the other end of the connection, whose end is a message.
    drop(command);
    let mut descriptors = Vec::new();
    let answer = read_launched(ours, &mut descriptors);
    let id = answer.as_deref().ok().and_then(|text| text.strip_prefix("id ")?.parse().ok());
    if let (Some(id), Some(process)) = (id, descriptors.pop()) {
        return Ok(StartingProcess { launcher, id, process });
    }
    // Ignore a failure: it has ended.
    let _ = launcher.kill();
    let status = launcher.wait().context("the launcher of the new process")?;
    match answer.context("the launcher of the new process")?.strip_prefix("failed ") {
        Some(reason) => bail!("starting the new process: {reason}"),
        None => bail!("the launcher of the new process ended early ({status})"),
    }
}

/// Reads the launcher's first line and the descriptor that comes with it.
fn read_launched(stream: &UnixStream, descriptors: &mut Vec<OwnedFd>) -> io::Result<String> {
    stream.set_read_timeout(Some(TALK_TIMEOUT))?;
    match receive_byte(stream, descriptors)? {
        Some(first) => {
            Ok(format!("{}{}", char::from(first), read_line(stream, TALK_TIMEOUT, &AtomicBool::new(false))?))
        }
        None => Ok(String::new()),
    }
}

/// The launcher's message that the new process has ended by itself. Its status follows.
const ENDED: &str = "ended ";

/// Does the work of a launcher if this process is one: starts the new process, reports its id, and waits for its end,
/// which it reports too.
pub(crate) fn run_launcher() -> Option<ExitCode> {
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next()? != LAUNCH || !Predecessor::is_offered() {
        return None;
    }
    let program = arguments.next()?;
    // Without the former process nothing else ends this one. Ignore a failure: it then ends with the new process.
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
    let launch = || -> io::Result<()> {
        let mut stream = UnixStream::from(rustix::stdio::stdin().try_clone_to_owned()?);
        let started = Command::new(program).args(arguments).spawn().and_then(|mut child| {
            // Here, since the id is the process's until this one waits for its end.
            match pidfd_open(Pid::from_child(&child), PidfdFlags::empty()) {
                Ok(process) => Ok((child, process)),
                Err(error) => child.kill().and(Err(error.into())),
            }
        });
        let (mut child, process) = match started {
            Ok(started) => started,
            Err(error) => return stream.write_all(format!("failed {error}\n").as_bytes()),
        };
        // One write each: the new process may write too.
        send_descriptors(&stream, format!("id {}\n", child.id()).as_bytes(), &[&process])?;
        let status = child.wait()?;
        stream.write_all(format!("{ENDED}{status}\n").as_bytes())
    };
    // An error means that the former process has ended.
    Some(launch().map_or(ExitCode::FAILURE, |()| ExitCode::SUCCESS))
}

/// Ends the process that does not serve. Adds its exit status to the error if it has ended by itself.
fn end_started(error: anyhow::Error, stream: &UnixStream) -> anyhow::Error {
    // A process that has reported a failure is about to exit; the status is a part of the reason. One that reports now
    // that it is ready, or why it is not, is about to end too, and gives its pid file back first.
    let deadline = Instant::now() + END_TIMEOUT;
    let status = loop {
        let left = deadline.saturating_duration_since(Instant::now());
        match read_line(stream, left, &AtomicBool::new(false)) {
            Ok(text) if !text.is_empty() && !text.starts_with(ENDED) => {}
            last => break last.unwrap_or_default(),
        }
    };
    kill_started();
    let ended = started().take();
    if let Some(StartedProcess::Starting(process)) = ended {
        process.wait();
    }
    match status.strip_prefix(ENDED) {
        Some(status) => anyhow!("{error:#} ({status})"),
        None => error,
    }
}

/// Reads a line; returns an empty one at the end of the stream.
///
/// # Errors
/// The read failed or timed out, or was withdrawn.
fn read_line(stream: &UnixStream, within: Duration, is_withdrawn: &AtomicBool) -> io::Result<String> {
    let deadline = Instant::now() + within;
    let mut text = Vec::new();
    // One byte at a time: the following lines are for other readers.
    let mut from = BufReader::with_capacity(1, stream.take(REASON_BYTES_MAX));
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        stream.set_read_timeout(Some(left.clamp(Duration::from_millis(1), CHECK_INTERVAL)))?;
        match from.read_until(b'\n', &mut text) {
            Ok(_) => return Ok(String::from_utf8_lossy(&text).trim_end().to_owned()),
            Err(error) if is_timeout(&error) && Instant::now() < deadline && !is_withdrawn.load(Ordering::Relaxed) => {}
            Err(error) if error.kind() == ErrorKind::ConnectionReset => return Ok(String::new()),
            Err(error) => return Err(error),
        }
    }
}

/// Sends `bytes`, and the descriptors with the first of them.
fn send_descriptors(stream: &UnixStream, bytes: &[u8], descriptors: &[&OwnedFd]) -> io::Result<()> {
    let borrowed: Vec<_> = descriptors.iter().map(|descriptor| descriptor.as_fd()).collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    control.push(SendAncillaryMessage::ScmRights(&borrowed));
    retry_on_intr(|| sendmsg(stream, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL))?;
    Ok(())
}

/// Receives a byte and the descriptors that come with it; `None` at the end of the stream.
fn receive_byte(stream: &UnixStream, out: &mut Vec<OwnedFd>) -> io::Result<Option<u8>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let received =
        retry_on_intr(|| recvmsg(stream, &mut [IoSliceMut::new(&mut byte)], &mut control, RecvFlags::CMSG_CLOEXEC))?;
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(descriptors) = message {
            out.extend(descriptors);
        }
    }
    Ok((received.bytes > 0).then_some(byte[0]))
}

/// The process whose place this one takes.
pub(crate) struct Predecessor {
    stream: UnixStream,
    name: String,
    is_configured: bool,
    config: Value,
    file: Option<ConfigFile>,
    is_replaced: bool,
    sockets: Handover,
}

impl Predecessor {
    /// Receives the offer of a former process; `None` if there is none. Standard input is empty afterwards.
    pub(crate) fn connect() -> anyhow::Result<Option<Self>> {
        if !Self::is_offered() {
            return Ok(None);
        }
        let stream = UnixStream::from(rustix::stdio::stdin().try_clone_to_owned()?);
        rustix::stdio::dup2_stdin(File::open("/dev/null").context("/dev/null")?)?;
        Self::read(stream).context("taking over from a running server").map(Some)
    }

    /// Returns whether standard input is an offer.
    pub(crate) fn is_offered() -> bool {
        // Another program may have set the variable, or passed it on.
        let is_socket = || {
            let input = rustix::stdio::stdin().try_clone_to_owned();
            input.is_ok_and(|input| UnixStream::from(input).local_addr().is_ok())
        };
        std::env::var_os(VARIABLE).is_some() && is_socket()
    }

    fn read(mut stream: UnixStream) -> anyhow::Result<Self> {
        stream.set_read_timeout(Some(TALK_TIMEOUT))?;
        let mut length = [0; 8];
        stream.read_exact(&mut length)?;
        let length = u64::from_be_bytes(length);
        if length > OFFER_BYTES_MAX {
            bail!("found an offer of {length} bytes, expected at most {OFFER_BYTES_MAX}");
        }
        let mut text = Vec::new();
        // Exactly these bytes: a read beyond them would lose the descriptors that come with the next one.
        (&stream).take(length).read_to_end(&mut text)?;
        // The configuration is within one more object.
        let offer = json::parse_within(&text, json::LEVELS_MAX + 1).and_then(serde_json::from_value);
        let offer: WrittenOffer = offer.context("the offer of the former process")?;
        let count = |sockets: &[WrittenSockets]| sockets.iter().fold(0, |sum: usize, of| sum.saturating_add(of.count));
        let expected = count(&offer.sites).saturating_add(count(&offer.admin));
        let mut descriptors = Vec::new();
        while descriptors.len() < expected {
            let before = descriptors.len();
            let byte = receive_byte(&stream, &mut descriptors).context("the sockets of the former process")?;
            if byte.is_none() || descriptors.len() == before {
                bail!("the former process has sent {before} sockets, expected {expected}");
            }
        }
        let mut descriptors = descriptors.into_iter();
        let mut handed = |sockets: Vec<WrittenSockets>| {
            let handed = |WrittenSockets { name, count }| HandedSockets {
                name,
                descriptors: descriptors.by_ref().take(count).collect(),
            };
            sockets.into_iter().map(handed).collect()
        };
        Ok(Self {
            stream,
            name: offer.name,
            is_configured: offer.is_configured,
            config: offer.config,
            file: offer.file.map(|(file, adapter)| ConfigFile { file, adapter }),
            is_replaced: offer.is_replaced,
            sockets: Handover { sites: handed(offer.sites), admin: handed(offer.admin) },
        })
    }

    /// Returns the running configuration, in place of one from a file.
    pub(crate) fn source(&self, flags: &ConfigFlags) -> anyhow::Result<(ConfigSource, SiteKind)> {
        let environment = Arc::new(EnvironmentFiles::read(&flags.envfile)?);
        let document = Document { name: self.name.clone(), text: self.config.to_string(), language: Language::Json };
        let site = if self.is_configured { SiteKind::Configured } else { SiteKind::Welcome };
        Ok((ConfigSource { document, environment, file: None, notes: Vec::new(), is_translated: false }, site))
    }

    /// Returns the running configuration.
    pub(super) fn config(&self) -> &Value {
        &self.config
    }

    /// Returns the file that the server was started with, and whether the API has replaced its configuration.
    pub(crate) fn file(&self) -> (Option<ConfigFile>, bool) {
        (self.file.clone(), self.is_replaced)
    }

    /// Takes the sockets.
    pub(super) fn take_sockets(&mut self) -> Handover {
        std::mem::take(&mut self.sockets)
    }

    /// Reports that this process serves, and waits until the former one has reported it to the service manager. Both
    /// accept connections then; the former one stops soon after.
    ///
    /// # Errors
    /// The former process has given this one up, and continues to serve.
    pub(super) fn report_ready(&self) -> anyhow::Result<()> {
        let mut stream = &self.stream;
        // An error, or an end without a word, means that the former process has ended: then this one is alone.
        let _ = stream.write_all(b"ready\n");
        match read_line(&self.stream, TALK_TIMEOUT, &AtomicBool::new(false)) {
            Ok(word) if word == "no" => bail!("the former process continues to serve: this one was ready too late"),
            _ => Ok(()),
        }
    }

    /// Waits until the former process passes a signal to stop on to this one, by `stream`. Never completes if there is
    /// no former process, or when it has ended. Calls `reload` for each SIGUSR1 that it passes on before.
    pub(super) async fn wait_for_stop(stream: Option<UnixStream>, mut reload: impl FnMut()) {
        let mut read = async |stream: UnixStream| -> io::Result<bool> {
            stream.set_nonblocking(true)?;
            let mut reader = tokio::io::BufReader::new(tokio::net::UnixStream::from_std(stream)?);
            loop {
                let mut word = String::new();
                (&mut reader).take(REASON_BYTES_MAX).read_line(&mut word).await?;
                match &*word {
                    "reload\n" => reload(),
                    word => return Ok(word == "stop\n"),
                }
            }
        };
        // An error or an end means that the former process has ended.
        if let Some(stream) = stream
            && read(stream).await.is_ok_and(|is_stop| is_stop)
        {
            return;
        }
        std::future::pending::<()>().await;
    }

    /// Passes the result on; reports a failure to the former process, which then serves on.
    pub(crate) fn report<T>(stream: Option<UnixStream>, result: anyhow::Result<T>) -> anyhow::Result<T> {
        if let (Some(mut stream), Err(error)) = (stream, &result) {
            let message = format!("failed {error:#}").replace(char::is_control, " ");
            // An error means that the former process has ended; standard error has the reason too.
            let _ = stream.write_all(message.as_bytes()).and_then(|()| stream.write_all(b"\n"));
        }
        result
    }

    /// Returns another handle of the connection, for [`report`](Self::report).
    pub(crate) fn stream(&self) -> Option<UnixStream> {
        self.stream.try_clone().ok()
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    fn offer(sockets: usize) -> UpgradeOffer {
        let listeners = (0..sockets).map(|_| TcpListener::bind("127.0.0.1:0").unwrap().into());
        let sites = vec![HandedSockets { name: ":80".into(), descriptors: listeners.collect() }];
        UpgradeOffer {
            config: serde_json::json!({ "apps": {} }),
            followed_file: None,
            sockets: Handover { sites, admin: Vec::new() },
            binary: None,
            is_withdrawn: Arc::default(),
        }
    }

    fn facts() -> ServerFacts {
        let file = Some(ConfigFile { file: "Caddyfile".into(), adapter: "caddyfile".into() });
        ServerFacts { program: None, name: "Caddyfile".into(), site: SiteKind::Configured, file }
    }

    /// More descriptors than one message has room for arrive in their order.
    #[test]
    fn an_offer_arrives_complete() {
        for sockets in [0, 1, DESCRIPTORS_MAX, DESCRIPTORS_MAX + 1] {
            let offer = offer(sockets);
            let address =
                |descriptor: &OwnedFd| TcpListener::from(descriptor.try_clone().unwrap()).local_addr().unwrap();
            let want: Vec<_> = offer.sockets.sites[0].descriptors.iter().map(address).collect();
            let (ours, theirs) = UnixStream::pair().unwrap();
            std::thread::scope(|scope| {
                let former = scope.spawn(|| {
                    let sent = facts().send_offer(offer, &ours, READY_TIMEOUT);
                    (&ours).write_all(b"go\n").unwrap();
                    sent
                });
                let new = Predecessor::read(theirs).unwrap();
                assert_eq!(new.sockets.sites[0].descriptors.iter().map(address).collect::<Vec<_>>(), want);
                assert_eq!((&*new.name, &new.config["apps"]), ("Caddyfile", &serde_json::json!({})));
                assert_eq!(new.file(), (facts().file, true));
                new.report_ready().unwrap();
                former.join().unwrap().unwrap();
            });
        }
    }

    /// Every answer of the other process but "ready" is a failure with its reason.
    #[test]
    fn responses() {
        for (answer, want) in [
            ("failed listening on :80: no\n", "the new process does not serve: listening on :80: no"),
            ("", "the new process ended before it served"),
            ("ended exit status: 0\n", "the new process ended before it served (exit status: 0)"),
            ("hello\n", "the new process does not serve: found another program's answer, expected a causeway's"),
        ] {
            let (ours, mut theirs) = UnixStream::pair().unwrap();
            theirs.write_all(answer.as_bytes()).unwrap();
            theirs.shutdown(std::net::Shutdown::Write).unwrap();
            assert_eq!(facts().send_offer(offer(1), &ours, READY_TIMEOUT).unwrap_err().to_string(), want);
        }
    }

    /// A process that sends nothing is abandoned after a timeout.
    #[test]
    fn silence() {
        let (ours, _theirs) = UnixStream::pair().unwrap();
        let error = facts().send_offer(offer(1), &ours, Duration::from_millis(20)).unwrap_err();
        assert_eq!(error.to_string(), "the new process did not serve within 0 s and was ended");
    }

    /// A stop of the server ends the wait at once; another process that is ready then does not take its place.
    #[test]
    fn a_withdrawal() {
        for answer in ["", "ready\n"] {
            let (ours, mut theirs) = UnixStream::pair().unwrap();
            theirs.write_all(answer.as_bytes()).unwrap();
            let offer = offer(1);
            offer.is_withdrawn.store(true, Ordering::Relaxed);
            let error = facts().send_offer(offer, &ours, Duration::MAX / 4).unwrap_err();
            assert_eq!(error.to_string(), "the server was stopped meanwhile", "{answer}");
        }
    }

    /// A signal that comes at the moment of the handover reaches the new process, also right after "go".
    #[tokio::test]
    async fn signals_are_passed_on() {
        for (lines, stops, reloads) in [
            ("go\nstop\n", true, 0),
            ("go\n", false, 0),
            ("go\nhello\n", false, 0),
            ("go\nreload\nreload\n", false, 2),
            ("go\nreload\nstop\n", true, 1),
        ] {
            let (mut ours, theirs) = UnixStream::pair().unwrap();
            ours.write_all(lines.as_bytes()).unwrap();
            drop(ours);
            let stream = theirs.try_clone().unwrap();
            assert_eq!(read_line(&theirs, TALK_TIMEOUT, &AtomicBool::new(false)).unwrap(), "go");
            let mut count = 0;
            let stop = Predecessor::wait_for_stop(Some(stream), || count += 1);
            if stops {
                stop.await;
            } else {
                assert!(tokio::time::timeout(Duration::from_millis(20), stop).await.is_err(), "{lines}");
            }
            assert_eq!(count, reloads, "{lines}");
        }
    }

    /// A process that becomes ready after the former one has given it up does not take its place. Without a former
    /// process it does.
    #[test]
    fn ready_too_late() {
        for (word, serves) in [("no\n", false), ("go\n", true), ("", true)] {
            let (mut ours, theirs) = UnixStream::pair().unwrap();
            ours.write_all(word.as_bytes()).unwrap();
            drop(ours);
            let new = Predecessor {
                stream: theirs,
                name: String::new(),
                is_configured: true,
                config: Value::Null,
                file: None,
                is_replaced: false,
                sockets: Handover::default(),
            };
            assert_eq!(new.report_ready().is_ok(), serves, "{word}");
        }
    }

    /// An offer that ends early, at any byte, or that announces too many bytes is an error.
    #[test]
    fn a_truncated_offer() {
        let json = br#"{"name":"","is_configured":true,"config":null,"file":null,"is_replaced":false,"sites":[{"name":"a","count":1}],"admin":[]}"#;
        let whole = [&(json.len() as u64).to_be_bytes(), &json[..]].concat();
        for end in 0..=whole.len() {
            let (mut ours, theirs) = UnixStream::pair().unwrap();
            ours.write_all(&whole[..end]).unwrap();
            drop(ours);
            assert!(Predecessor::read(theirs).is_err(), "cut at {end}");
        }
        let (mut ours, theirs) = UnixStream::pair().unwrap();
        ours.write_all(&u64::MAX.to_be_bytes()).unwrap();
        assert!(Predecessor::read(theirs).err().unwrap().to_string().starts_with("found an offer of "));
    }
}
