//! The causal profiler over HTTP. One profile runs at a time; every client that passes the API's checks may start, read
//! and stop it.
//!
//! - `options`: profile parameters, parsed from a query or from JSON
//! - `runner`: the current profile, and the report of the last one
//! - `run`: starts the profiler
//! - `live.html`, `live.js`: the browser's controls, shown above the report
//!
//! A process has one profiler, so all servers and configurations in it share one runner.

mod options;
mod run;
mod runner;

pub(super) use options::pairs;
use std::rc::Rc;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use causal::report::Report;
use causal::report::html::LivePage;
use causeway_message::Method;
use causeway_pipeline::worker::{Work, WorkKind, offload};
use causeway_pipeline::{Sleep, Worker};
use serde_json::json;
use tokio::sync::oneshot;

use super::response::{AdminResponse, MediaType};
pub(super) use options::ProfileOptions;
use runner::{ProfileRunner, ProfileSnapshot};

/// Largest request body, 64 KiB. A larger one gets status 413.
pub(super) const BODY_BYTES_MAX: usize = 64 << 10;

/// Polling interval of requests that wait for the end of a profile.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// A request about profiles.
#[derive(Debug, PartialEq)]
pub(super) enum ProfileCommand {
    /// Starts a profile. Without options in the query, the body holds the parameters.
    Start(Option<ProfileOptions>),
    /// Runs a profile to its end and responds with its report.
    Whole { options: ProfileOptions, form: ReportFormat },
    /// Returns the progress, with the results so far.
    Status,
    /// Returns a report: that of the numbered profile, or else of the last one.
    Report { form: ReportFormat, number: Option<u64> },
    /// Ends the current profile with its results so far; with a number, only if it has that number.
    Stop { number: Option<u64> },
    /// Returns the interactive page.
    Page,
}

/// A report's format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReportFormat {
    Json,
    Html,
    Coz,
    Folded,
    Pprof,
}

impl ReportFormat {
    const ALL: [(&str, Self); 5] = [
        ("json", Self::Json),
        ("html", Self::Html),
        ("coz", Self::Coz),
        ("folded", Self::Folded),
        ("pprof", Self::Pprof),
    ];
}

/// Go's path of a CPU profile, which `go tool pprof` requests. It takes the same parameters as `/causal`.
pub(super) const PPROF_PATH: &str = "/debug/pprof/profile";

/// Parses a request for [`PPROF_PATH`] or for a path under `/causal`; `None` when the path is unknown.
pub(super) fn parse_command(
    path: &str,
    method: Method,
    query: Option<&str>,
) -> Option<Result<ProfileCommand, AdminResponse>> {
    let query = query.filter(|query| !query.is_empty());
    Some(match (path, method) {
        ("/causal", Method::Get) => match query {
            None => Ok(ProfileCommand::Page),
            Some(query) => whole(query, ReportFormat::Json),
        },
        (PPROF_PATH, Method::Get) => whole(query.unwrap_or_default(), ReportFormat::Pprof),
        ("/causal/start", Method::Post) => {
            query.map(ProfileOptions::from_query).transpose().map(ProfileCommand::Start).map_err(refused)
        }
        ("/causal/stop", Method::Post) => stop(query.unwrap_or_default()),
        ("/causal/status", Method::Get) => Ok(ProfileCommand::Status),
        ("/causal/report", Method::Get) => report(query.unwrap_or_default()),
        ("/causal" | "/causal/status" | "/causal/report" | PPROF_PATH, _) => Err(AdminResponse::not_allowed("GET")),
        ("/causal/start" | "/causal/stop", _) => Err(AdminResponse::not_allowed("POST")),
        _ => return None,
    })
}

fn whole(query: &str, form: ReportFormat) -> Result<ProfileCommand, AdminResponse> {
    ProfileOptions::from_query(query).map(|options| ProfileCommand::Whole { options, form }).map_err(refused)
}

fn report(query: &str) -> Result<ProfileCommand, AdminResponse> {
    let (mut form, mut number) = (ReportFormat::Json, None);
    for (key, value) in pairs(query) {
        match &*key {
            "format" => {
                let known = ReportFormat::ALL.iter().find(|(name, _)| *name == value);
                let expected = ReportFormat::ALL.map(|(name, _)| name).join(", ");
                let message = || format!("format: found '{}', expected one of {expected}", options::clipped(&value));
                form = known.ok_or_else(|| refused(message()))?.1;
            }
            "number" => number = Some(numbered(&value)?),
            _ => return Err(refused(unknown(&key, "'format' or 'number'"))),
        }
    }
    options::check_distinct(pairs(query).map(|(key, _)| key)).map_err(refused)?;
    Ok(ProfileCommand::Report { form, number })
}

fn stop(query: &str) -> Result<ProfileCommand, AdminResponse> {
    let mut number = None;
    for (key, value) in pairs(query) {
        match &*key {
            "number" => number = Some(numbered(&value)?),
            _ => return Err(refused(unknown(&key, "'number'"))),
        }
    }
    options::check_distinct(pairs(query).map(|(key, _)| key)).map_err(refused)?;
    Ok(ProfileCommand::Stop { number })
}

fn unknown(key: &str, expected: &str) -> String {
    format!("found the parameter '{}', expected {expected}", options::clipped(key))
}

fn numbered(value: &str) -> Result<u64, AdminResponse> {
    let message = || format!("number: found '{}', expected a profile's number", options::clipped(value));
    value.parse().map_err(|_| refused(message()))
}

fn refused(message: String) -> AdminResponse {
    AdminResponse::error(400, message)
}

/// The process's only runner.
fn runner() -> &'static ProfileRunner {
    static RUNNER: OnceLock<ProfileRunner> = OnceLock::new();
    RUNNER.get_or_init(|| ProfileRunner::new(Box::new(run::start)))
}

/// Records that the configuration was replaced. A running profile mentions it in its report.
pub(crate) fn configuration_changed() {
    runner().configuration_changed();
}

/// Executes a request. Only [`ProfileCommand::Start`] without a query uses `body`.
pub(super) async fn perform(command: ProfileCommand, body: Vec<u8>, worker: Rc<dyn Worker>) -> AdminResponse {
    match respond(command, body, &worker).await {
        Ok(response) | Err(response) => response,
    }
}

async fn respond(
    command: ProfileCommand,
    body: Vec<u8>,
    worker: &Rc<dyn Worker>,
) -> Result<AdminResponse, AdminResponse> {
    Ok(match command {
        ProfileCommand::Page => AdminResponse::text(page(), MediaType::Page),
        ProfileCommand::Start(options) => {
            let start = move || {
                let options = start_parameters(options, &body).map_err(refused)?;
                let number = runner().start(&options)?;
                runner().snapshot_of(number).map(status)
            };
            run_on_new_thread(start).await??
        }
        ProfileCommand::Status => blocking(worker, || status(runner().snapshot())).await?,
        ProfileCommand::Report { form, number } => {
            let look = move || number.map_or_else(|| Ok(runner().snapshot()), |number| runner().snapshot_of(number));
            blocking(worker, move || look()?.report().map(|report| render_report(&report, form))).await??
        }
        ProfileCommand::Stop { number } => {
            // `stop` does not wait for the end of the profile.
            let number = blocking(worker, move || runner().stop(number)).await??;
            let seen = ended(worker, number).await?;
            blocking(worker, || status(seen)).await?
        }
        ProfileCommand::Whole { options, form } => {
            // The guard is created on the starting thread: if the client disconnects first, its drop still stops
            // the profile.
            let guard = run_on_new_thread(move || runner().start(&options).map(ProfileGuard)).await??;
            let seen = ended(worker, guard.0).await?;
            blocking(worker, move || seen.report().map(|report| render_report(&report, form))).await??
        }
    })
}

/// Returns a start's parameters, from its query or its body.
fn start_parameters(query: Option<ProfileOptions>, body: &[u8]) -> Result<ProfileOptions, String> {
    match query {
        Some(_) if !body.trim_ascii().is_empty() => Err("found a query and a body, expected one of them".into()),
        Some(options) => Ok(options),
        None => ProfileOptions::from_json(body),
    }
}

/// Stops the profile when its waiting client disconnects, even while the profile still starts.
struct ProfileGuard(u64);

impl Drop for ProfileGuard {
    fn drop(&mut self) {
        runner().abandon(self.0);
    }
}

/// Waits for the end of the profile with this number, and of no later one.
async fn ended(worker: &Rc<dyn Worker>, number: u64) -> Result<ProfileSnapshot, AdminResponse> {
    loop {
        let seen = blocking(worker, move || runner().snapshot_of(number)).await??;
        if !seen.is_running {
            return Ok(seen);
        }
        // When the API's server shuts down, the client gets the results so far.
        if worker.shutdown_at().is_some_and(|at| at <= worker.now()) {
            runner().abandon(number);
        }
        Sleep::until(Rc::clone(worker), worker.now() + POLL_INTERVAL).await;
    }
}

/// Runs `job` on the blocking pool: the profiler's thread may hold the runner's lock.
async fn blocking<T: Send + 'static>(
    worker: &Rc<dyn Worker>,
    job: impl FnOnce() -> T + Send + 'static,
) -> Result<T, AdminResponse> {
    let done = offload(&**worker, Work::of(WorkKind::Blocking), job)
        .map_err(|_| AdminResponse::error(503, "the server is busy"))?
        .await;
    done.ok_or_else(|| AdminResponse::error(500, "the profiler failed inside the server"))
}

/// Runs `job` on a new thread. The pool's threads have a low priority, and the profiler's threads would inherit it.
async fn run_on_new_thread<T: Send + 'static>(job: impl FnOnce() -> T + Send + 'static) -> Result<T, AdminResponse> {
    let (done, result) = oneshot::channel();
    let work = move || {
        // The send fails after the client has disconnected.
        let _ = done.send(job());
    };
    std::thread::Builder::new()
        .name("causal-start".into())
        .spawn(work)
        .map_err(|error| AdminResponse::error(503, format!("cannot start a thread for the profiler: {error}")))?;
    result.await.map_err(|_| AdminResponse::error(500, "the profiler failed inside the server"))
}

/// Builds the status which the page and the command poll. Must run off the worker: a long report takes long to encode.
fn status(seen: ProfileSnapshot) -> AdminResponse {
    let head = json!({
        "number": seen.number,
        "running": seen.is_running,
        "phase": seen.phase,
        "elapsed": seen.elapsed.as_secs_f64(),
        "seconds": seen.duration.as_secs_f64(),
    });
    let head = head.to_string();
    let has_report = seen.report.is_some();
    let report = seen.report.map_or_else(|| "null".into(), |report| encoded(&report, seen.is_running));
    let text = format!("{},\"report\":{report}}}\n", head.trim_end_matches('}'));
    // As in `render_report`. While the profile runs, the next text needs the memory.
    if has_report && !seen.is_running {
        causal::profiler::give_back();
    }
    AdminResponse::text(text, MediaType::Json)
}

/// Returns the report as JSON without its stacks. While the profile runs, the text is kept: a status is polled more
/// often than the report changes, and to encode it each time would be much of a lightly loaded server's work.
fn encoded(report: &Arc<Report>, is_running: bool) -> Arc<str> {
    static KEPT: Mutex<Option<(Arc<Report>, Arc<str>)>> = Mutex::new(None);
    let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((of, text)) = &*kept
        && Arc::ptr_eq(of, report)
    {
        return Arc::clone(text);
    }
    let text: Arc<str> = report.without_stacks().to_json().into();
    *kept = is_running.then(|| (Arc::clone(report), Arc::clone(&text)));
    text
}

fn render_report(report: &Report, form: ReportFormat) -> AdminResponse {
    let response = match form {
        ReportFormat::Json => AdminResponse::text(format!("{}\n", report.to_json()), MediaType::Json),
        ReportFormat::Html => AdminResponse::text(report.to_html(), MediaType::Page),
        ReportFormat::Coz => AdminResponse::text(report.to_coz(), MediaType::Coz),
        ReportFormat::Folded => AdminResponse::text(report.to_folded_stacks(), MediaType::Folded),
        ReportFormat::Pprof => AdminResponse::bytes(report.to_pprof(), MediaType::Pprof),
    };
    // Encoding needs several times the report's size; return that memory to the system.
    causal::profiler::give_back();
    response
}

fn page() -> String {
    let (controls, script) = (include_str!("causal/live.html"), include_str!("causal/live.js"));
    LivePage { title: "Causeway", controls, script }.page()
}

#[cfg(test)]
mod tests {
    use causeway_message::Method;

    use super::*;

    #[track_caller]
    fn check(line: &str, want: Result<Option<ProfileCommand>, (u16, &str)>) {
        let (method, target) = line.split_once(' ').unwrap();
        let (path, query) = target.split_once('?').map_or((target, None), |(path, query)| (path, Some(query)));
        let method = if method == "GET" { Method::Get } else { Method::Post };
        match (parse_command(path, method, query).transpose(), want) {
            (Ok(got), Ok(want)) => assert_eq!(got, want, "{line}"),
            (Err(response), Err((status, message))) => {
                let (got, got_message) = response.status_and_error();
                assert!(got == status && got_message.contains(message), "{line}: {got} {got_message}");
            }
            (got, want) => panic!("{line}: {got:?}, {want:?}"),
        }
    }

    #[test]
    fn commands_of_requests() {
        check("GET /causal", Ok(Some(ProfileCommand::Page)));
        check("GET /causal?", Ok(Some(ProfileCommand::Page)));
        let options = ProfileOptions { seconds: Duration::from_secs(3), ..ProfileOptions::default() };
        let whole = |options: &ProfileOptions, form| Ok(Some(ProfileCommand::Whole { options: options.clone(), form }));
        check("GET /causal?seconds=3", whole(&options, ReportFormat::Json));
        check("GET /debug/pprof/profile?seconds=3", whole(&options, ReportFormat::Pprof));
        check("GET /debug/pprof/profile", whole(&ProfileOptions::default(), ReportFormat::Pprof));
        check("POST /debug/pprof/profile", Err((405, "method not allowed")));
        check("GET /debug/pprof/profile?second=3", Err((400, "found 'second', expected one of")));
        check("POST /causal/start", Ok(Some(ProfileCommand::Start(None))));
        check("POST /causal/start?seconds=3", Ok(Some(ProfileCommand::Start(Some(options)))));
        check("POST /causal/stop", Ok(Some(ProfileCommand::Stop { number: None })));
        check("POST /causal/stop?number=7", Ok(Some(ProfileCommand::Stop { number: Some(7) })));
        check("GET /causal/status", Ok(Some(ProfileCommand::Status)));
        check("GET /causal/report", Ok(Some(ProfileCommand::Report { form: ReportFormat::Json, number: None })));
        let third = ProfileCommand::Report { form: ReportFormat::Pprof, number: Some(3) };
        check("GET /causal/report?format=pprof&number=3", Ok(Some(third)));
        check("GET /causal/reports", Ok(None));
        check("GET /causal/start", Err((405, "method not allowed")));
        check("POST /causal", Err((405, "method not allowed")));
        check("GET /causal?second=3", Err((400, "found 'second', expected one of")));
        check("GET /causal/report?format=svg", Err((400, "format: found 'svg', expected one of json, html, coz")));
        check("GET /causal/report?form=json", Err((400, "found the parameter 'form', expected 'format' or 'number'")));
        check("GET /causal/report?number=last", Err((400, "number: found 'last', expected a profile's number")));
        check("POST /causal/stop?form=json", Err((400, "found the parameter 'form', expected 'number'")));
        check("GET /causal?seconds=1&seconds=2", Err((400, "seconds: found twice, expected once")));
        check("GET /causal/report?format=coz&format=json", Err((400, "format: found twice, expected once")));
        check("POST /causal/stop?number=1&number=2", Err((400, "number: found twice, expected once")));
        check("POST /causal/stop?number=-1", Err((400, "number: found '-1', expected a profile's number")));
    }
}
