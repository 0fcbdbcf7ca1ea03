//! `profile`: runs a causal profile on one or more servers through their admin APIs, shows its progress, and saves the
//! report.
//!
//! - `show`: displays the progress

mod show;

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher as _, Hasher as _};
use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use causal::report::Report;
use causeway_pipeline::Registry;
use clap::{Args, ValueEnum};
use serde_json::{Value, json};

use super::client::{AdminEndpoint, ApiResponse};
use super::output;
use show::ProgressDisplay;

/// Polling interval for the servers' progress.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// Read timeout per request. A server computes its results at the end of a profile.
const READ_TIMEOUT: Duration = Duration::from_secs(120);
/// Table width when standard output is not a terminal.
const WIDTH: usize = 110;
/// Interrupts within this time count as one.
const REPEAT_WINDOW: Duration = Duration::from_millis(200);
/// Exit status after a second interrupt: 128 plus the signal's number, as shells report it.
const INTERRUPTED: i32 = 130;

#[derive(Args)]
pub(crate) struct Profile {
    /// Addresses of the admin APIs, separated by commas; several servers are profiled together. Default: CADDY_ADMIN,
    /// or else localhost:2019
    #[arg(long, value_name = "ADDRESS", value_delimiter = ',')]
    address: Vec<String>,
    /// Duration of the profile, such as 30s or 2m
    #[arg(long = "for", value_name = "TIME", default_value = "30s")]
    time: String,
    /// Largest share of the run time that profiling may cost
    #[arg(long, value_name = "PART", default_value = "3%")]
    budget: String,
    /// Profile only targets with this in their name; may be repeated
    #[arg(long, value_name = "NAME")]
    target: Vec<String>,
    /// Report the gains for requests of this route, named as in reports, hosts included: `/api/*`, `localhost /api/*`;
    /// may be repeated
    #[arg(long, value_name = "ROUTE")]
    route: Vec<String>,
    /// Measure gains by replaying recorded work (screen), by pauses (confirm), or both
    #[arg(long, value_enum, default_value = "both")]
    mode: Mode,
    /// Seed of the random choices; measurements influence a profile too, so its repetition is similar, not identical
    #[arg(long, value_name = "NUMBER")]
    seed: Option<u64>,
    /// Write the report to this page, and as JSON beside it
    #[arg(long, value_name = "FILE.html")]
    out: Option<PathBuf>,
    /// Also write the report in these formats, beside the page; separated by commas
    #[arg(long, value_enum, value_name = "FORM", value_delimiter = ',', requires = "out")]
    formats: Vec<ProfileFormat>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Mode {
    Both,
    Screen,
    Confirm,
}

#[derive(Clone, Copy, ValueEnum)]
enum ProfileFormat {
    /// For Coz's viewer
    Coz,
    /// For flame graphs
    Folded,
    /// For `go tool pprof`
    Pprof,
}

impl Profile {
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        if let Some(out) = &self.out {
            can_keep(out)?;
        }
        let endpoints = self.endpoints()?;
        let options = self.request_body()?;
        let interrupts = interrupts()?;
        let mut profiles = Profiles::start(endpoints, &options)?;
        let seconds = options["seconds"].as_f64().unwrap_or_default();
        let mut display = ProgressDisplay::begin(seconds);
        let waited = profiles.wait(&interrupts, &mut display);
        display.end();
        waited?;
        let report = profiles.report()?;
        self.write_report(&report)?;
        match &self.out {
            Some(out) => self.keep(&report, out),
            None => Ok(()),
        }
    }

    fn endpoints(&self) -> anyhow::Result<Vec<AdminEndpoint>> {
        if self.address.is_empty() {
            let address = super::client::default_address(&Registry::default())?.to_string();
            return Ok(vec![AdminEndpoint::parse(&address, "CADDY_ADMIN", READ_TIMEOUT)?]);
        }
        let mut endpoints: Vec<AdminEndpoint> = Vec::new();
        for address in &self.address {
            let endpoint = AdminEndpoint::parse(address, "--address", READ_TIMEOUT)?;
            if let Some(same) = endpoints.iter().find(|other| other.is_same(&endpoint)) {
                bail!("--address: found '{}' and '{address}', which are one server, expected each once", same.name);
            }
            endpoints.push(endpoint);
        }
        Ok(endpoints)
    }

    /// Returns the request body. All servers get one body, including its seed.
    fn request_body(&self) -> anyhow::Result<Value> {
        let seconds = seconds(&self.time)?;
        // The standard library's hasher keys are random, which is good enough for a seed.
        let seed = self.seed.unwrap_or_else(|| RandomState::new().build_hasher().finish());
        let mode = match self.mode {
            Mode::Both => "both",
            Mode::Screen => "screen",
            Mode::Confirm => "confirm",
        };
        let progress: Vec<String> = self
            .route
            .iter()
            .map(|route| if route.starts_with("route ") { route.clone() } else { format!("route {route}") })
            .collect();
        Ok(json!({
            "seconds": seconds,
            "budget": self.budget,
            "mode": mode,
            "targets": self.target,
            "progress": progress,
            "seed": seed,
        }))
    }

    fn write_report(&self, report: &Report) -> anyhow::Result<()> {
        let mut text = report.to_terminal(width());
        text.push('\n');
        for word in report.words() {
            text.push_str(&word);
            text.push('\n');
        }
        output::print_as_is(&text)
    }

    fn keep(&self, report: &Report, out: &Path) -> anyhow::Result<()> {
        let mut kept = vec![(out.to_owned(), report.to_html().into_bytes())];
        let json = format!("{}\n", report.to_json());
        kept.push((out.with_extension("json"), json.into_bytes()));
        for form in &self.formats {
            kept.push(match form {
                ProfileFormat::Coz => (out.with_extension("coz"), report.to_coz().into_bytes()),
                ProfileFormat::Folded => (out.with_extension("folded"), report.to_folded_stacks().into_bytes()),
                ProfileFormat::Pprof => (out.with_extension("pb.gz"), report.to_pprof()),
            });
        }
        for (file, bytes) in &kept {
            std::fs::write(file, bytes).with_context(|| format!("writing {}", file.display()))?;
        }
        let names: Vec<_> = kept.iter().map(|(file, _)| file.display().to_string()).collect();
        output::note(&format!("The report is in {}", names.join(", ")));
        Ok(())
    }
}

/// Checks the output file before the profile runs, so that its report is not lost at the end.
fn can_keep(out: &Path) -> anyhow::Result<()> {
    if out.extension().is_none_or(|extension| extension != "html") {
        bail!("--out: found '{}', expected a file's name that ends in .html", out.display());
    }
    let directory = out.parent().filter(|directory| !directory.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if !directory.is_dir() {
        bail!("--out: there is no directory {}", directory.display());
    }
    Ok(())
}

/// Parses a duration such as 30, 30s, 2m or 1m30s, in seconds.
fn seconds(text: &str) -> anyhow::Result<f64> {
    let wrong = || anyhow!("--for: found '{text}', expected a time from 0.5s to 1h, as in 30s or 2m");
    let mut sum = 0.0;
    let mut number = String::new();
    for char in text.chars() {
        let unit = match char {
            '0'..='9' | '.' => {
                number.push(char);
                continue;
            }
            's' => 1.0,
            'm' => 60.0,
            'h' => 3600.0,
            _ => return Err(wrong()),
        };
        sum += number.parse::<f64>().map_err(|_| wrong())? * unit;
        number.clear();
    }
    if !number.is_empty() {
        sum += number.parse::<f64>().map_err(|_| wrong())?;
    }
    if (0.5..=3600.0).contains(&sum) { Ok(sum) } else { Err(wrong()) }
}

/// Returns the terminal's width, or [`WIDTH`] without a terminal.
fn width() -> usize {
    let out = std::io::stdout();
    let size = out.is_terminal().then(|| rustix::termios::tcgetwinsize(&out).ok()).flatten();
    size.map_or(WIDTH, |size| usize::from(size.ws_col))
}

/// Sends a message at the first SIGINT or SIGTERM; the second ends the process.
fn interrupts() -> anyhow::Result<Receiver<()>> {
    let (sender, interrupts) = channel();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("starting the runtime")?;
    let mut end = {
        let _inside = runtime.enter();
        super::serve::StopSignals::listen()?
    };
    std::thread::spawn(move || {
        runtime.block_on(end.next());
        let _ = sender.send(());
        // A process that forwards a signal may send it both to us and to our group, so ignore repetitions for a moment.
        std::thread::sleep(REPEAT_WINDOW);
        while runtime.block_on(async { tokio::time::timeout(Duration::ZERO, end.next()).await.is_ok() }) {}
        runtime.block_on(end.next());
        std::process::exit(INTERRUPTED);
    });
    Ok(interrupts)
}

/// A profile that this command started on one server.
struct StartedProfile {
    endpoint: AdminEndpoint,
    number: u64,
    is_running: bool,
}

/// The profiles in the order of the servers' addresses. Dropping it stops those that still run.
struct Profiles(Vec<StartedProfile>);

impl Profiles {
    /// Starts a profile on every server. When one fails, those already started are stopped.
    fn start(endpoints: Vec<AdminEndpoint>, options: &Value) -> anyhow::Result<Self> {
        let mut profiles = Self(Vec::new());
        let body = options.to_string();
        for endpoint in endpoints {
            let response =
                endpoint.request("POST /causal/start", &[("Content-Type", "application/json")], body.as_bytes())?;
            let status: Option<Value> = serde_json::from_str(&response.body).ok().filter(Value::is_object);
            // Of an admin API, these responses are objects. Any other error may come from a proxy before the API.
            if status.is_none() && matches!(response.status, ..400 | 404 | 405) {
                bail!("{} is not the address of an admin API (HTTP {})", endpoint.name, response.status);
            }
            response
                .error_for_status()
                .map_err(|message| anyhow!("the server on {} did not start a profile: {message}", endpoint.name))?;
            let number = status.and_then(|status| status["number"].as_u64());
            let number =
                number.with_context(|| format!("the server on {} returned no profile number", endpoint.name))?;
            profiles.0.push(StartedProfile { endpoint, number, is_running: true });
        }
        Ok(profiles)
    }

    /// Waits until all profiles have ended. The first interrupt stops them.
    fn wait(&mut self, interrupts: &Receiver<()>, display: &mut ProgressDisplay) -> anyhow::Result<()> {
        while self.running().next().is_some() {
            // Waiting for an interrupt doubles as the polling interval.
            if interrupts.recv_timeout(POLL_INTERVAL).is_ok() {
                display.note("Stopping: keeping the results so far");
                for ours in self.running() {
                    // An error response only means that the profile has already ended.
                    let _ = ours.stop()?;
                }
            }
            let mut slowest: Option<Value> = None;
            for ours in self.0.iter_mut().filter(|ours| ours.is_running) {
                match ours.status()? {
                    None => ours.is_running = false,
                    Some(status) if slowest.as_ref().is_some_and(|slowest| elapsed(slowest) <= elapsed(&status)) => {}
                    Some(status) => slowest = Some(status),
                }
            }
            if let Some(status) = slowest {
                // Show the first finding once there is a target; before that only the phase is known.
                let so_far =
                    status["report"]["words"][0].as_str().filter(|_| status["report"]["targets"][0].is_object());
                display.progress(
                    elapsed(&status),
                    status["phase"].as_str().unwrap_or_default(),
                    so_far.unwrap_or_default(),
                );
            }
        }
        Ok(())
    }

    fn running(&self) -> impl Iterator<Item = &StartedProfile> {
        self.0.iter().filter(|ours| ours.is_running)
    }

    /// Fetches the reports and merges them.
    fn report(&self) -> anyhow::Result<Report> {
        let mut reports = Vec::new();
        for StartedProfile { endpoint, number, .. } in &self.0 {
            let response = endpoint.request(&format!("GET /causal/report?number={number}"), &[], b"")?;
            response
                .error_for_status()
                .map_err(|message| anyhow!("the server on {} has no report: {message}", endpoint.name))?;
            let report = Report::from_json(&response.body);
            let mut report =
                report.with_context(|| format!("reading the report of the server on {}", endpoint.name))?;
            if self.0.len() > 1 {
                report.program.clone_from(&endpoint.name);
            }
            reports.push(report);
        }
        let mut report = Report::merged(reports).context("no server was profiled")?;
        if self.0.len() > 1 {
            report.speech.subject = "these servers".into();
        }
        Ok(report)
    }
}

impl Drop for Profiles {
    fn drop(&mut self) {
        for ours in self.running() {
            // The error that led here is already reported; a server that has exited runs no profile.
            let _ = ours.stop();
        }
    }
}

impl StartedProfile {
    /// Returns the profile's status; `None` once it has ended.
    fn status(&self) -> anyhow::Result<Option<Value>> {
        let endpoint = &self.endpoint;
        let gone = || format!("the server on {} stopped responding while it was profiled", endpoint.name);
        let response = endpoint.request("GET /causal/status", &[], b"").with_context(gone)?;
        response
            .error_for_status()
            .map_err(|message| anyhow!("the server on {} did not report its progress: {message}", endpoint.name))?;
        let status = read_status(endpoint, &response)?;
        Ok((status["running"] == true && status["number"] == self.number).then_some(status))
    }

    fn stop(&self) -> anyhow::Result<ApiResponse> {
        self.endpoint.request(&format!("POST /causal/stop?number={}", self.number), &[], b"")
    }
}

fn read_status(endpoint: &AdminEndpoint, response: &ApiResponse) -> anyhow::Result<Value> {
    serde_json::from_str(&response.body)
        .with_context(|| format!("parsing the response of the server on {}", endpoint.name))
}

fn elapsed(status: &Value) -> f64 {
    status["elapsed"].as_f64().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::seconds;

    #[test]
    fn times() {
        for (text, want) in [
            ("30", Some(30.0)),
            ("30s", Some(30.0)),
            ("1.5s", Some(1.5)),
            ("2m", Some(120.0)),
            ("1m30s", Some(90.0)),
            ("1h", Some(3600.0)),
            ("0", None),
            ("2h", None),
            ("", None),
            ("s", None),
            ("-1s", None),
            ("1d", None),
            ("1..5s", None),
            ("ms", None),
        ] {
            assert_eq!(seconds(text).ok(), want, "{text}");
        }
    }
}
