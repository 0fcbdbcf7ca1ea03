//! `profile`: starts a causal profile by way of the admin API of one server or several, shows how far it is, and keeps what it found.
//!
//! - `show`: the progress on the terminal

mod show;

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher as _, Hasher as _};
use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use causal::report::Report;
use clap::{Args, ValueEnum};
use serde_json::{Value, json};

use super::client::{Answer, Place};
use super::say;
use show::Show;

/// How often a server is asked how far it is.
const LOOK: Duration = Duration::from_millis(500);
/// How long a server may think about one question; at its profile's end it computes.
const PATIENCE: Duration = Duration::from_secs(120);
/// The width of a table where no terminal says one.
const WIDTH: usize = 110;
/// Within this time two interrupts are one.
const TWICE: Duration = Duration::from_millis(200);
/// The exit status at a second interrupt: 128 and the signal's number, as a shell has it.
const INTERRUPTED: i32 = 130;

#[derive(Args)]
pub(crate) struct Profile {
    /// Where admin APIs listen, with commas between; several servers are profiled together. Without it, the environment's
    /// CADDY_ADMIN and localhost:2019
    #[arg(long, value_name = "ADDRESS", value_delimiter = ',')]
    address: Vec<String>,
    /// For how long, as in 30s or 2m
    #[arg(long = "for", value_name = "TIME", default_value = "30s")]
    time: String,
    /// The part of the time that the profile may cost
    #[arg(long, value_name = "PART", default_value = "3%")]
    budget: String,
    /// Only this target, by its name or a part of it; may be repeated
    #[arg(long, value_name = "NAME")]
    target: Vec<String>,
    /// What requests of this route would gain, by its whole name as in reports, hosts included: `/api/*`, `localhost /api/*`; may be
    /// repeated
    #[arg(long, value_name = "ROUTE")]
    route: Vec<String>,
    /// How gains are found: by replaying what was recorded, by pauses, or both
    #[arg(long, value_enum, default_value = "both")]
    mode: Mode,
    /// Where chance begins; what is measured has a part in it, so two profiles are alike and not equal
    #[arg(long, value_name = "NUMBER")]
    seed: Option<u64>,
    /// Keep the report as this page, and as JSON beside it
    #[arg(long, value_name = "FILE.html")]
    out: Option<PathBuf>,
    /// Keep it in these forms too, beside the page; with commas between
    #[arg(long, value_enum, value_name = "FORM", value_delimiter = ',', requires = "out")]
    formats: Vec<Form>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Mode {
    Both,
    Screen,
    Confirm,
}

#[derive(Clone, Copy, ValueEnum)]
enum Form {
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
        let places = self.places()?;
        let wish = self.wish()?;
        let interrupts = interrupts()?;
        let mut profiles = Profiles::start(places, &wish)?;
        let seconds = wish["seconds"].as_f64().unwrap_or_default();
        let mut show = Show::begin(seconds);
        let waited = profiles.wait(&interrupts, &mut show);
        show.end();
        waited?;
        let report = profiles.report()?;
        self.tell(&report)?;
        match &self.out {
            Some(out) => self.keep(&report, out),
            None => Ok(()),
        }
    }

    fn places(&self) -> anyhow::Result<Vec<Place>> {
        if self.address.is_empty() {
            let address = super::client::default_address()?.to_string();
            return Ok(vec![Place::parse(&address, "CADDY_ADMIN", PATIENCE)?]);
        }
        self.address.iter().map(|address| Place::parse(address, "--address", PATIENCE)).collect()
    }

    /// What each server is asked for: the same of all, the seed too.
    fn wish(&self) -> anyhow::Result<Value> {
        let seconds = seconds(&self.time)?;
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

    fn tell(&self, report: &Report) -> anyhow::Result<()> {
        let mut text = report.to_terminal(width());
        text.push('\n');
        for word in report.words() {
            text.push_str(&word);
            text.push('\n');
        }
        say::print_as_is(&text)
    }

    fn keep(&self, report: &Report, out: &Path) -> anyhow::Result<()> {
        let mut kept = vec![(out.to_owned(), report.to_html().into_bytes())];
        let json = format!("{}\n", report.to_json());
        kept.push((out.with_extension("json"), json.into_bytes()));
        for form in &self.formats {
            kept.push(match form {
                Form::Coz => (out.with_extension("coz"), report.to_coz().into_bytes()),
                Form::Folded => (out.with_extension("folded"), report.to_folded().into_bytes()),
                Form::Pprof => (out.with_extension("pb.gz"), report.to_pprof()),
            });
        }
        for (file, octets) in &kept {
            std::fs::write(file, octets).with_context(|| format!("writing {}", file.display()))?;
        }
        let names: Vec<_> = kept.iter().map(|(file, _)| file.display().to_string()).collect();
        say::note(&format!("The report is in {}", names.join(", ")));
        Ok(())
    }
}

/// Refuses early what would be lost at the end.
fn can_keep(out: &Path) -> anyhow::Result<()> {
    if out.extension().is_none_or(|extension| extension != "html") {
        bail!("--out: found '{}', expected a file's name that ends in .html", out.display());
    }
    let folder = out.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if !folder.is_dir() {
        bail!("--out: there is no folder {}", folder.display());
    }
    Ok(())
}

/// A time as in 30, 30s, 2m or 1m30s, in seconds.
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

fn width() -> usize {
    let out = std::io::stdout();
    let size = out.is_terminal().then(|| rustix::termios::tcgetwinsize(&out).ok()).flatten();
    size.map_or(WIDTH, |size| usize::from(size.ws_col))
}

/// Tells of each ^C, and of SIGTERM; after the first, the second ends the process.
fn interrupts() -> anyhow::Result<Receiver<()>> {
    let (sender, interrupts) = channel();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("starting the runtime")?;
    let mut end = {
        let _inside = runtime.enter();
        super::serve::End::listen()?
    };
    std::thread::spawn(move || {
        runtime.block_on(end.next());
        let _ = sender.send(());
        // What passes a signal on may send it to us and to our group.
        std::thread::sleep(TWICE);
        while runtime.block_on(async { tokio::time::timeout(Duration::ZERO, end.next()).await.is_ok() }) {}
        runtime.block_on(end.next());
        std::process::exit(INTERRUPTED);
    });
    Ok(interrupts)
}

/// A server's profile that is ours: others may begin theirs once it has ended.
struct Ours {
    place: Place,
    number: u64,
    is_running: bool,
}

/// The profiles, in the order in which servers were named; what still runs when this is dropped is stopped.
struct Profiles(Vec<Ours>);

impl Profiles {
    /// Starts all of them, or none.
    fn start(places: Vec<Place>, wish: &Value) -> anyhow::Result<Self> {
        let mut profiles = Self(Vec::new());
        let body = wish.to_string();
        for place in places {
            let answer = place.ask("POST /causal/start", &[("Content-Type", "application/json")], body.as_bytes())?;
            answer.good().map_err(|words| anyhow!("the server on {} does not profile: {words}", place.name))?;
            let status = read_status(&place, &answer)?;
            let number = status["number"].as_u64();
            let number =
                number.with_context(|| format!("the server on {} does not number its profiles", place.name))?;
            profiles.0.push(Ours { place, number, is_running: true });
        }
        Ok(profiles)
    }

    /// Until all have ended; the first interrupt ends them.
    fn wait(&mut self, interrupts: &Receiver<()>, show: &mut Show) -> anyhow::Result<()> {
        while self.running().next().is_some() {
            if interrupts.recv_timeout(LOOK).is_ok() {
                show.note("Stopping: what was found so far is kept");
                for ours in self.running() {
                    // One that has ended by itself meanwhile says so.
                    let _ = ours.stop()?;
                }
            }
            let mut slowest: Option<Value> = None;
            for ours in self.0.iter_mut().filter(|ours| ours.is_running) {
                match ours.look()? {
                    None => ours.is_running = false,
                    Some(status) if slowest.as_ref().is_some_and(|slowest| elapsed(slowest) <= elapsed(&status)) => {}
                    Some(status) => slowest = Some(status),
                }
            }
            if let Some(status) = slowest {
                let so_far =
                    status["report"]["words"][0].as_str().filter(|_| status["report"]["targets"][0].is_object());
                show.progress(
                    elapsed(&status),
                    status["phase"].as_str().unwrap_or_default(),
                    so_far.unwrap_or_default(),
                );
            }
        }
        Ok(())
    }

    fn running(&self) -> impl Iterator<Item = &Ours> {
        self.0.iter().filter(|ours| ours.is_running)
    }

    /// What all of them found, as one.
    fn report(&self) -> anyhow::Result<Report> {
        let mut reports = Vec::new();
        for Ours { place, number, .. } in &self.0 {
            let answer = place.ask(&format!("GET /causal/report?number={number}"), &[], b"")?;
            answer.good().map_err(|words| anyhow!("the server on {} has no report: {words}", place.name))?;
            let report = Report::from_json(&answer.body);
            let mut report = report.with_context(|| format!("reading the report of the server on {}", place.name))?;
            if self.0.len() > 1 {
                report.program.clone_from(&place.name);
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
            // Whoever brought us here is told already; a server that is gone profiles no more.
            let _ = ours.stop();
        }
    }
}

impl Ours {
    /// How far it is; `None` once it has ended.
    fn look(&self) -> anyhow::Result<Option<Value>> {
        let place = &self.place;
        let gone = || format!("the server on {} went away while it was profiled", place.name);
        let answer = place.ask("GET /causal/status", &[], b"").with_context(gone)?;
        answer.good().map_err(|words| anyhow!("the server on {} does not say how far it is: {words}", place.name))?;
        let status = read_status(place, &answer)?;
        Ok((status["running"] == true && status["number"] == self.number).then_some(status))
    }

    fn stop(&self) -> anyhow::Result<Answer> {
        self.place.ask(&format!("POST /causal/stop?number={}", self.number), &[], b"")
    }
}

fn read_status(place: &Place, answer: &Answer) -> anyhow::Result<Value> {
    serde_json::from_str(&answer.body).with_context(|| format!("reading what the server on {} says", place.name))
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
