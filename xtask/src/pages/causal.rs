//! Checks that the profiler's page starts a profile, shows its progress, stops it and offers its downloads, and that a
//! report's page is drawn from its JSON.
//!
//! The tests rely on this markup: a form `#control` with a button `#go`, a progress bar `#bar`, and links in `#get`. In
//! a report: a row per target in `#rank`, with the JSON's number beside the displayed one (`data-gain`,
//! `data-speedup`), and an `article.panel` per target with a path `.curve` and one `.band`.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use serde_json::json;

use super::View;
use super::devtools::Tab;
use crate::server::{ChildServer, free_address};

/// Duration of the profile that ends by itself: long enough for a few windows.
const SECONDS: u32 = 4;
/// A path whose route has a name wider than a phone's screen.
const LONG: &str = "/api/a-version/some-collection/an-item/its-part/";
/// Timeout for one reaction of the page.
const PATIENCE: Duration = Duration::from_secs(20);

/// A server with its admin API.
pub(super) struct Profiled {
    server: ChildServer,
    site: SocketAddr,
    admin: SocketAddr,
    downloads: PathBuf,
}

impl Profiled {
    pub(super) fn start(causeway: &Path, home: &Path) -> anyhow::Result<Self> {
        let (site, admin) = (free_address()?, free_address()?);
        let port = site.port();
        std::fs::write(
            home.join("Caddyfile"),
            format!(
                "{{\n\tadmin {admin}\n}}\nhttp://127.0.0.1:{port} {{\n\trespond {LONG}* \"api\"\n\trespond \"hello\"\n}}\n"
            ),
        )?;
        let downloads = home.join("downloads");
        std::fs::create_dir(&downloads)?;
        let mut run = Command::new(causeway);
        run.args(["run", "--config", "Caddyfile"]);
        let server = ChildServer::start(run, home, site)?;
        Ok(Self { server, site, admin, downloads })
    }

    pub(super) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.admin)
    }

    pub(super) fn log(&self) -> String {
        self.server.log()
    }

    /// Starts two profiles on the page: one is stopped, the other ends by itself.
    pub(super) fn check_live(&self, tab: &mut Tab<'_>, view: View, complaints: &mut Vec<String>) -> anyhow::Result<()> {
        // A profile takes seconds, and the theme has no effect on it: once per width is enough.
        if view.theme != "light" {
            return Ok(());
        }
        let _load = RequestLoop::begin(self.site);
        set(tab, "seconds", "120")?;
        tab.click("#go")?;
        until(tab, "a profile runs", "go.textContent === 'Stop'")?;
        let first = progress(tab)?;
        until(tab, "its progress moves", &format!("+bar.getAttribute('aria-valuenow') > {first}"))?;
        tab.click("#go")?;
        until(tab, "a profile is stopped", "go.textContent === 'Start' && !go.disabled")?;
        set(tab, "seconds", &SECONDS.to_string())?;
        tab.click("#go")?;
        until(tab, "a profile runs again", "go.textContent === 'Stop'")?;
        until(tab, "a profile ends", "go.textContent === 'Start' && bar.getAttribute('aria-valuenow') === '100'")?;
        check_drawing(tab, complaints)?;
        self.check_downloads(tab, complaints)?;
        Ok(())
    }

    fn check_downloads(&self, tab: &mut Tab<'_>, complaints: &mut Vec<String>) -> anyhow::Result<()> {
        let directory = &self.downloads;
        tab.call("Page.setDownloadBehavior", json!({ "behavior": "allow", "downloadPath": directory }))?;
        for (form, begin) in [
            ("html", &b"<!DOCTYPE html>"[..]),
            ("json", b"{\"program\""),
            ("coz", b"startup\ttime="),
            ("folded", b""),
            ("pprof", b"\x1f\x8b"),
        ] {
            if !tab.click(&format!("#get a[href$='format={form}']"))? {
                complaints.push(format!("no link to download {form}"));
                continue;
            }
            let name = tab.evaluate(&format!("document.querySelector(\"#get a[href$='format={form}']\").download"))?;
            let file = directory.join(name.as_str().unwrap_or_default());
            let begun = Instant::now();
            // The browser creates the file before it writes the content.
            while std::fs::metadata(&file).map_or(0, |file| file.len()) == 0 && begun.elapsed() < PATIENCE {
                std::thread::sleep(Duration::from_millis(50));
            }
            match std::fs::read(&file) {
                Ok(bytes) if bytes.starts_with(begin) && !bytes.is_empty() => std::fs::remove_file(&file)?,
                Ok(bytes) => {
                    complaints.push(format!(
                        "{form} begins with {:?}",
                        String::from_utf8_lossy(&bytes[..bytes.len().min(40)])
                    ));
                }
                Err(error) => complaints.push(format!("{form} was not downloaded: {error}")),
            }
        }
        Ok(())
    }

    /// Checks the page of the last report: drawn, sortable, and equal to the JSON.
    pub(super) fn check_report(&self, tab: &mut Tab<'_>, complaints: &mut Vec<String>) -> anyhow::Result<()> {
        check_drawing(tab, complaints)?;
        let told = json!(get(self.admin, "/causal/report")?);
        let same = tab.evaluate(&format!(
            "(() => {{ const [a, b] = [document.getElementById('report').textContent, {told}].map(JSON.parse); return \
             ['targets', 'progress', 'words'].every(key => JSON.stringify(a[key]) === JSON.stringify(b[key])) }})()"
        ))?;
        if same != json!(true) {
            complaints.push("the page contains another report than the API returns".into());
        }
        let values = "[...document.querySelectorAll('#rank [data-share]')].map(it => +it.dataset.share)";
        let mut sorted: Vec<f64> = serde_json::from_value(tab.evaluate(values)?)?;
        tab.click("#rank [data-sort=share] button")?;
        sorted.sort_by(|a, b| b.total_cmp(a));
        if serde_json::from_value::<Vec<f64>>(tab.evaluate(values)?)? != sorted {
            complaints.push("a click on the share does not sort by it".into());
        }
        Ok(())
    }
}

/// Checks that each target with gains has a curve and a band, and that each displayed number is the JSON's.
fn check_drawing(tab: &mut Tab<'_>, complaints: &mut Vec<String>) -> anyhow::Result<()> {
    let shown = tab.evaluate(
        "[...document.querySelectorAll('#rank tbody tr')].map(row => ({ name: row.dataset.target, cells: \
         [...row.querySelectorAll('[data-gain]')].map(it => [it.dataset.speedup, it.dataset.gain, \
         it.querySelector('b').textContent]), mode: row.querySelector('[data-head^=Found]').textContent, \
         panel: [...document.querySelectorAll('article.panel')].find(it => it.dataset.target === row.dataset.target) \
         ?.querySelector('[aria-live]').textContent }))",
    )?;
    let panels = tab.evaluate(
        "[...document.querySelectorAll('article.panel')].map(it => [it.dataset.target, \
         it.querySelectorAll('path.curve').length, it.querySelectorAll('path.band').length])",
    )?;
    let rows = shown.as_array().map_or(&[][..], Vec::as_slice);
    if rows.is_empty() || panels == json!([]) {
        complaints.push(format!("{} targets and {panels} panels are shown", rows.len()));
    }
    for row in rows {
        let drawn = json!([row["name"], 1, 1]);
        let by = match row["mode"].as_str() {
            Some("screened") => "found by replay,",
            Some("confirmed") => "found by pauses,",
            _ => {
                complaints.push(format!("{} is found by {}", row["name"], row["mode"]));
                continue;
            }
        };
        if row["panel"].as_str().is_some_and(|panel| !panel.starts_with(by)) {
            complaints.push(format!("{} is {}, but its curve {}", row["name"], row["mode"], row["panel"]));
        }
        // A single gain has no curve.
        let has_curve = row["cells"].as_array().is_some_and(|cells| cells.len() > 1);
        if has_curve && !panels.as_array().is_some_and(|panels| panels.contains(&drawn)) {
            complaints.push(format!("{} has no curve with a band", row["name"]));
        }
        for cell in row["cells"].as_array().into_iter().flatten() {
            let gain: f64 = cell[1].as_str().unwrap_or_default().parse().context("a gain that is no number")?;
            let text = cell[2].as_str().unwrap_or_default().replace('−', "-");
            let text: String = text.chars().filter(|char| !matches!(char, '+' | '%' | '\u{a0}' | ' ')).collect();
            let number: f64 = text.parse().with_context(|| format!("{} is shown as {}", row["name"], cell[2]))?;
            let precision = if text.contains('.') { 0.051 } else { 0.51 };
            if (gain * 100.0 - number).abs() > precision {
                complaints.push(format!("{} shows {} for {gain}", row["name"], cell[2]));
            }
        }
    }
    Ok(())
}

fn set(tab: &mut Tab<'_>, field: &str, value: &str) -> anyhow::Result<()> {
    tab.evaluate(&format!("document.getElementById('control').elements.{field}.value = '{value}'")).map(drop)
}

fn progress(tab: &mut Tab<'_>) -> anyhow::Result<u64> {
    let now = tab.evaluate("document.getElementById('bar').getAttribute('aria-valuenow')")?;
    Ok(now.as_str().and_then(|now| now.parse().ok()).unwrap_or(0))
}

/// Waits for a condition on the page's `go` and `bar`.
fn until(tab: &mut Tab<'_>, what: &str, condition: &str) -> anyhow::Result<()> {
    let begun = Instant::now();
    let expression = format!(
        "(() => {{ const [go, bar] = ['go', 'bar'].map(id => document.getElementById(id)); return {condition} }})()"
    );
    while tab.evaluate(&expression)? != json!(true) {
        if begun.elapsed() > PATIENCE {
            let state = tab.evaluate("document.getElementById('state').textContent")?;
            bail!("not so after {PATIENCE:?}: {what}; the page shows {state}");
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    Ok(())
}

/// Returns the body of a GET to the admin API.
fn get(admin: SocketAddr, path: &str) -> anyhow::Result<String> {
    let mut stream = TcpStream::connect(admin)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    write!(stream, "GET {path} HTTP/1.0\r\nHost: {admin}\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (_, body) = answer.split_once("\r\n\r\n").context("no head in the answer")?;
    Ok(body.to_owned())
}

/// One connection that sends its next request after each response.
struct RequestLoop {
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl RequestLoop {
    fn begin(site: SocketAddr) -> Self {
        let ends = Arc::new(AtomicBool::new(false));
        let end = Arc::clone(&ends);
        // Ignore errors: when the server is gone, the checks report it.
        let thread = std::thread::spawn(move || drop(ask(site, &end)));
        Self { ends, thread: Some(thread) }
    }
}

fn ask(site: SocketAddr, ends: &AtomicBool) -> std::io::Result<()> {
    let request = format!("GET {LONG}x HTTP/1.1\r\nHost: {site}\r\n\r\n");
    let mut block = [0; 4096];
    let mut stream = TcpStream::connect(site)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    while !ends.load(Ordering::Relaxed) {
        stream.write_all(request.as_bytes())?;
        // The response is shorter than a segment, so one read returns it.
        if stream.read(&mut block)? == 0 {
            break;
        }
    }
    Ok(())
}

impl Drop for RequestLoop {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
