//! Checks the server's pages in a real browser.
//!
//! Every page is loaded in a light and a dark theme, at a phone's and a desktop's width: no console error, no uncaught
//! exception, no dialog, no request to another origin, no horizontal scrolling. Then its functions are tested:
//! [`listing`] sorts and follows links, and over TLS all resources use HTTP/2. Screenshots are written to
//! `target/pages/` for visual review.
//!
//! - [`devtools`]: Chromium, controlled through the DevTools protocol
//! - [`causal`]: the causal profiler's page, and a report
//! - [`listing`]: a directory to sort, and one with hostile file names

mod causal;
mod devtools;
mod listing;

use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, ExitCode};

use anyhow::Context;
use serde_json::{Value, json};

use crate::report::{Done, StepError};
use crate::server::{ChildServer, binary, free_address};
use crate::stage::Stage;
use crate::steps::Workspace;
use crate::tools;
use devtools::{Browser, Tab};

/// The appearance of a page: its theme, and its width in CSS pixels.
#[derive(Clone, Copy)]
struct View {
    theme: &'static str,
    width: u32,
}

const VIEWS: [View; 4] = [
    View { theme: "light", width: 390 },
    View { theme: "light", width: 1280 },
    View { theme: "dark", width: 390 },
    View { theme: "dark", width: 1280 },
];

/// Below this width a view is a phone's, with touch, overlay scroll bars, and a layout that uses the viewport's width.
const PHONE_WIDTH_MAX: u32 = 600;

/// Images on the page over TLS: more than a browser requests concurrently over HTTP/1.
const IMAGES: usize = 60;

/// A test of a loaded page; adds complaints to the list.
type Act<'a> = &'a dyn Fn(&mut Tab<'_>, View, &mut Vec<String>) -> anyhow::Result<()>;

/// Runs `./test pages`.
pub(crate) fn step(stage: &mut Stage, workspace: &Workspace) -> Result<Done, StepError> {
    let chromium = tools::CHROMIUM.need(stage, workspace)?;
    let causeway = binary(stage, workspace)?;

    let welcome_at = free_address()?;
    let mut run = Command::new(&causeway);
    run.args(["run", "--listen", &welcome_at.to_string()]);
    let welcome = ChildServer::start(run, &workspace.scratch("welcome")?, welcome_at)?;

    let directory = workspace.scratch("listing")?;
    let (sorted, hostile) = (directory.join("sorted"), directory.join("hostile"));
    listing::fill_sorted(&sorted)?;
    listing::fill_hostile(&hostile)?;
    let listing_at = free_address()?;
    let mut browse = Command::new(&causeway);
    browse.args(["file-server", "--browse", "--listen", &listing_at.to_string(), "--root"]).arg(&directory);
    // The home directory is not the listed directory, so that the server leaves no files of its own in it.
    let files = ChildServer::start(browse, &workspace.scratch("file-server")?, listing_at)?;

    let secure_at = free_address()?;
    let secure_directory = workspace.scratch("https")?;
    let secure = serve_secure(&causeway, &secure_directory, secure_at)?;

    let profiled = causal::Profiled::start(&causeway, &workspace.scratch("causal")?)?;
    let live = |tab: &mut Tab<'_>, view: View, complaints: &mut Vec<String>| profiled.check_live(tab, view, complaints);
    let report = |tab: &mut Tab<'_>, _: View, complaints: &mut Vec<String>| profiled.check_report(tab, complaints);

    let shots = workspace.target.join("pages");
    let mut browser = Browser::start(&chromium, &workspace.scratch("chromium")?)?;
    let listing = format!("http://{listing_at}");
    let pages: [(&str, String, Act); 7] = [
        ("welcome", format!("http://{welcome_at}/"), &|_, _, _| Ok(())),
        ("listing", format!("{listing}/"), &|_, _, _| Ok(())),
        ("sorted", format!("{listing}/sorted/"), &listing::check_sorting),
        ("hostile", format!("{listing}/hostile/"), &listing::check_names),
        ("https", format!("https://localhost:{}/", secure_at.port()), &check_http2),
        // The first leaves the report that the second shows.
        ("causal", profiled.url("/causal"), &live),
        ("report", profiled.url("/causal/report?format=html"), &report),
    ];
    let mut complaints = Vec::new();
    for (name, url, act) in &pages {
        for view in VIEWS {
            stage.note(&format!("{name}, {} {}", view.theme, view.width));
            complaints.extend(visit(&mut browser, name, url, view, *act, &shots)?);
        }
    }
    if complaints.is_empty() {
        return Ok(Done::with_detail(format!("{} pages in {} views", pages.len(), VIEWS.len())));
    }
    complaints.extend([format!("log of run:\n{}", welcome.log()), format!("log of file-server:\n{}", files.log())]);
    complaints.push(format!("log of the server over TLS:\n{}", secure.log()));
    complaints.push(format!("log of the server that is profiled:\n{}", profiled.log()));
    Err(StepError::Failed(complaints.join("\n")))
}

/// Starts a server with a page of many images, over TLS with a certificate of its local authority.
fn serve_secure(causeway: &Path, home: &Path, at: SocketAddr) -> anyhow::Result<ChildServer> {
    let global = "{\n\tadmin off\n\tskip_install_trust\n\tauto_https disable_redirects\n}\n";
    let site = format!("https://localhost:{} {{\n\ttls internal\n\troot site\n\tfile_server\n}}\n", at.port());
    std::fs::write(home.join("Caddyfile"), format!("{global}{site}"))?;
    let directory = home.join("site");
    std::fs::create_dir(&directory)?;
    let head = "<!doctype html><meta name=viewport content='width=device-width'><title>h2</title><link rel=icon href='data:,'>";
    let images: String = (0..IMAGES).map(|image| format!("<img src='{image}.svg' alt=''>")).collect();
    std::fs::write(directory.join("index.html"), format!("{head}{images}"))?;
    for image in 0..IMAGES {
        let svg = "<svg xmlns='http://www.w3.org/2000/svg' width='9' height='9'><path d='M0 0h9v9z'/></svg>";
        std::fs::write(directory.join(format!("{image}.svg")), svg)?;
    }
    let mut run = Command::new(causeway);
    run.args(["run", "--config", "Caddyfile"]);
    ChildServer::start(run, home, at)
}

/// Checks that the page and all its images came over HTTP/2, and are shown.
fn check_http2(tab: &mut Tab<'_>, _: View, complaints: &mut Vec<String>) -> anyhow::Result<()> {
    let used = tab.evaluate(
        "[...performance.getEntriesByType('navigation'), ...performance.getEntriesByType('resource')].map(entry => entry.nextHopProtocol)",
    )?;
    let used: Vec<&str> = used.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let over_h2 = used.iter().filter(|protocol| **protocol == "h2").count();
    if over_h2 != IMAGES + 1 || used.len() != IMAGES + 1 {
        complaints.push(format!("not all over h2: {used:?}"));
    }
    let shown = tab.evaluate("[...document.images].filter(image => image.naturalWidth == 9).length")?;
    if shown != IMAGES {
        complaints.push(format!("{shown} of {IMAGES} images are shown"));
    }
    Ok(())
}

/// Runs `cargo xtask pages URL…`: the checks that apply to any page, on pages of another server.
pub(crate) fn main(urls: &[String]) -> anyhow::Result<ExitCode> {
    let workspace = Workspace::find(false)?;
    let mut stage = Stage::begin("pages");
    let chromium = match tools::CHROMIUM.need(&mut stage, &workspace) {
        Ok(path) => path,
        Err(StepError::Failed(why) | StepError::MissingTool(why) | StepError::MissingOptional(why)) => {
            anyhow::bail!(why)
        }
    };
    let mut browser = Browser::start(&chromium, &workspace.scratch("chromium")?)?;
    let mut complaints = Vec::new();
    for (at, url) in urls.iter().enumerate() {
        for view in VIEWS {
            let name = format!("url-{}", at + 1);
            complaints.extend(visit(
                &mut browser,
                &name,
                url,
                view,
                &|_, _, _| Ok(()),
                &workspace.target.join("pages"),
            )?);
        }
    }
    stage.clear();
    complaints.iter().for_each(|complaint| println!("{complaint}"));
    Ok(if complaints.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Opens a page in a new tab, checks it, runs `act`, and returns the complaints.
fn visit(
    browser: &mut Browser,
    name: &str,
    url: &str,
    view: View,
    act: Act,
    shots: &Path,
) -> anyhow::Result<Vec<String>> {
    let place = format!("{name}, {} {}", view.theme, view.width);
    let mut complaints = Vec::new();
    let mut tab = browser.open().with_context(|| place.clone())?;
    let visited = look(&mut tab, name, url, view, act, shots, &mut complaints);
    if let Err(error) = visited {
        complaints.push(format!("{error:#}"));
    }
    complaints.extend(heard(&tab.take_events(), origin(url)));
    tab.close()?;
    Ok(complaints.into_iter().map(|complaint| format!("{place}: {complaint}")).collect())
}

/// Checks a page's status and width, takes a screenshot, and runs `act`.
fn look(
    tab: &mut Tab<'_>,
    name: &str,
    url: &str,
    view: View,
    act: Act,
    shots: &Path,
    complaints: &mut Vec<String>,
) -> anyhow::Result<()> {
    let phone = view.width < PHONE_WIDTH_MAX;
    let size = json!({ "width": view.width, "height": 800, "deviceScaleFactor": 1, "mobile": phone });
    tab.call("Emulation.setDeviceMetricsOverride", size)?;
    let features = json!({ "features": [{ "name": "prefers-color-scheme", "value": view.theme }] });
    tab.call("Emulation.setEmulatedMedia", features)?;
    tab.go(url)?;
    let status = tab.evaluate("performance.getEntriesByType('navigation')[0].responseStatus")?;
    if status != 200 {
        complaints.push(format!("the page answers {status}"));
    }
    let png = tab.screenshot()?;
    std::fs::create_dir_all(shots)?;
    std::fs::write(shots.join(format!("{name}-{}-{}.png", view.theme, view.width)), png)?;
    let width = tab.evaluate("document.documentElement.scrollWidth")?.as_u64().unwrap_or(u64::MAX);
    if width > u64::from(view.width) {
        complaints.push(format!("scrolls sideways: its content is {width} px wide"));
    }
    act(tab, view, complaints)
}

/// Returns the scheme, host and port of a URL.
fn origin(url: &str) -> &str {
    let from = url.find("://").map_or(0, |at| at + 3);
    url[from..].find(['/', '?', '#']).map_or(url, |at| &url[..from + at])
}

/// Returns a complaint for each browser event that our pages must not cause.
fn heard(events: &[Value], origin: &str) -> Vec<String> {
    let mut complaints = Vec::new();
    for event in events {
        let said = &event["params"];
        let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        match event["method"].as_str().unwrap_or_default() {
            "Runtime.exceptionThrown" => {
                let details = &said["exceptionDetails"];
                let thrown = &details["exception"]["description"];
                complaints
                    .push(format!("uncaught: {}", text(if thrown.is_null() { &details["text"] } else { thrown })));
            }
            "Runtime.consoleAPICalled" if said["type"] == "error" || said["type"] == "assert" => {
                let words = said["args"].as_array().into_iter().flatten();
                let words: Vec<String> =
                    words.map(|word| text(word.get("value").unwrap_or(&word["description"]))).collect();
                complaints.push(format!("console error: {}", words.join(" ")));
            }
            "Log.entryAdded" if said["entry"]["level"] == "error" => {
                complaints.push(format!(
                    "console error: {} {}",
                    text(&said["entry"]["text"]),
                    text(&said["entry"]["url"])
                ));
            }
            "Page.javascriptDialogOpening" => complaints.push(format!("opens a dialog: {}", text(&said["message"]))),
            "Network.requestWillBeSent" => complaints.extend(foreign(&text(&said["request"]["url"]), origin)),
            "Network.webSocketCreated" => complaints.extend(foreign(&text(&said["url"]), origin)),
            _ => {}
        }
    }
    complaints
}

fn foreign(url: &str, at_home: &str) -> Option<String> {
    // A data or blob URL contains its content, so it causes no request.
    let inside = url.starts_with("data:") || url.starts_with("blob:");
    (!inside && origin(url) != at_home).then(|| format!("requests another origin: {url}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origins() {
        assert_eq!(origin("http://localhost:8080/a/b"), "http://localhost:8080");
        assert_eq!(origin("http://localhost:8080?x"), "http://localhost:8080");
        assert_eq!(origin("http://localhost:80801/"), "http://localhost:80801");
        assert_eq!(foreign("http://a:80/x", "http://a:80"), None);
        assert_eq!(foreign("data:image/png;base64,", "http://a:80"), None);
        assert!(foreign("http://a:80.example/x", "http://a:80").is_some());
        assert!(foreign("https://a:80/x", "http://a:80").is_some());
    }

    #[test]
    fn events_become_complaints() {
        let event = |method: &str, params: Value| json!({ "method": method, "params": params });
        let bad = [
            event("Runtime.exceptionThrown", json!({ "exceptionDetails": { "text": "Uncaught x" } })),
            event("Runtime.consoleAPICalled", json!({ "type": "error", "args": [{ "value": "no" }] })),
            event("Log.entryAdded", json!({ "entry": { "level": "error", "text": "404", "url": "/x.css" } })),
            event("Page.javascriptDialogOpening", json!({ "message": "1" })),
            event("Network.requestWillBeSent", json!({ "request": { "url": "http://fonts.example/a" } })),
            event("Network.webSocketCreated", json!({ "url": "ws://a/live" })),
        ];
        for one in &bad {
            assert_eq!(heard(std::slice::from_ref(one), "http://a").len(), 1, "{one}");
        }
        let good = [
            event("Runtime.consoleAPICalled", json!({ "type": "log", "args": [{ "value": "hello" }] })),
            event("Log.entryAdded", json!({ "entry": { "level": "warning", "text": "slow" } })),
            event("Network.requestWillBeSent", json!({ "request": { "url": "http://a/style.css" } })),
            event("Page.loadEventFired", json!({})),
        ];
        assert_eq!(heard(&good, "http://a"), Vec::<String>::new());
    }
}
