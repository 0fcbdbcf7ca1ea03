//! The causal profiler over HTTP: one profile at a time, started, looked at and stopped by whoever may ask.
//!
//! - `wish`: what a profile is asked to be, from a query or from JSON
//! - `desk`: the profile that runs, and what the last one found
//! - `run`: the profiler itself
//! - `live.html`, `live.js`: what a browser is shown of it above the report
//!
//! There is one profiler in a process, so there is one desk, whatever server or configuration its API belongs to.

mod desk;
mod run;
mod wish;

use std::rc::Rc;
use std::sync::OnceLock;
use std::time::Duration;

use causal::report::Report;
use causal::report::html::Live;
use causeway_message::Method;
use causeway_pipeline::worker::run_blocking;
use causeway_pipeline::{Sleep, Worker};
use serde_json::{Value, json};
use tokio::sync::oneshot;

use super::answer::{Answer, Kind};
use desk::{Desk, Seen};
pub(super) use wish::Wish;

/// How large a body may be; 64 KiB. Beyond: 413.
pub(super) const BODY_OCTETS_MAX: usize = 64 << 10;

/// How often somebody who waits for a profile looks whether it has ended.
const LOOK: Duration = Duration::from_millis(100);

/// What is asked about profiles.
#[derive(Debug, PartialEq)]
pub(super) enum Ask {
    /// A profile is to run. Without a wish, the body has it.
    Start(Option<Wish>),
    /// A profile is to run; the answer is its report.
    Whole(Wish),
    /// How far it is, with what it found so far.
    Status,
    /// What was found, in some form: by the profile with this number, else by the last one.
    Report { form: Form, number: Option<u64> },
    /// It is to end now, with what it has; where there is a number, only if it is its own.
    Stop { number: Option<u64> },
    /// The page that does all this.
    Page,
}

/// A form of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    Json,
    Html,
    Coz,
    Folded,
    Pprof,
}

impl Form {
    const ALL: [(&str, Self); 5] = [
        ("json", Self::Json),
        ("html", Self::Html),
        ("coz", Self::Coz),
        ("folded", Self::Folded),
        ("pprof", Self::Pprof),
    ];
}

/// What is asked at a path below `/causal`; `None` when nothing is there.
pub(super) fn ask(path: &str, method: Method, query: Option<&str>) -> Option<Result<Ask, Answer>> {
    let wrong_method = || Err(Answer::error(405, "method not allowed"));
    let query = query.filter(|query| !query.is_empty());
    Some(match (path, method) {
        ("/causal", Method::Get) => match query {
            None => Ok(Ask::Page),
            Some(query) => Wish::from_query(query).map(Ask::Whole).map_err(refused),
        },
        ("/causal/start", Method::Post) => query.map(Wish::from_query).transpose().map(Ask::Start).map_err(refused),
        ("/causal/stop", Method::Post) => stop(query.unwrap_or_default()),
        ("/causal/status", Method::Get) => Ok(Ask::Status),
        ("/causal/report", Method::Get) => report(query.unwrap_or_default()),
        ("/causal" | "/causal/start" | "/causal/stop" | "/causal/status" | "/causal/report", _) => wrong_method(),
        _ => return None,
    })
}

fn report(query: &str) -> Result<Ask, Answer> {
    let (mut form, mut number) = (Form::Json, None);
    for (key, value) in wish::pairs(query) {
        match &*key {
            "format" => {
                let known = Form::ALL.iter().find(|(name, _)| *name == value);
                let expected = Form::ALL.map(|(name, _)| name).join(", ");
                let words = || format!("format: found '{}', expected one of {expected}", wish::clipped(&value));
                form = known.ok_or_else(|| refused(words()))?.1;
            }
            "number" => number = Some(numbered(&value)?),
            _ => return Err(refused(unknown(&key, "'format' or 'number'"))),
        }
    }
    Ok(Ask::Report { form, number })
}

fn stop(query: &str) -> Result<Ask, Answer> {
    let mut number = None;
    for (key, value) in wish::pairs(query) {
        match &*key {
            "number" => number = Some(numbered(&value)?),
            _ => return Err(refused(unknown(&key, "'number'"))),
        }
    }
    Ok(Ask::Stop { number })
}

fn unknown(key: &str, expected: &str) -> String {
    format!("found the parameter '{}', expected {expected}", wish::clipped(key))
}

fn numbered(value: &str) -> Result<u64, Answer> {
    let words = || format!("number: found '{}', expected a profile's number", wish::clipped(value));
    value.parse().map_err(|_| refused(words()))
}

fn refused(words: String) -> Answer {
    Answer::error(400, words)
}

/// The only one.
fn desk() -> &'static Desk {
    static DESK: OnceLock<Desk> = OnceLock::new();
    DESK.get_or_init(|| Desk::new(Box::new(run::start)))
}

/// Another configuration is served from now on: a profile that runs says so.
pub(crate) fn configuration_changed() {
    desk().configuration_changed();
}

/// Does what was asked. `body` is what came with it; only a start without a query has a use for one.
pub(super) async fn perform(ask: Ask, body: Vec<u8>, worker: Rc<dyn Worker>) -> Answer {
    match answer(ask, body, &worker).await {
        Ok(answer) | Err(answer) => answer,
    }
}

async fn answer(ask: Ask, body: Vec<u8>, worker: &Rc<dyn Worker>) -> Result<Answer, Answer> {
    Ok(match ask {
        Ask::Page => Answer::text(page(), Kind::Page),
        Ask::Start(wish) => {
            let start = move || {
                let wish = wished(wish, &body).map_err(refused)?;
                let number = desk().start(&wish)?;
                desk().look_at(number).map(status)
            };
            aside(start).await??
        }
        Ask::Status => blocking(worker, || status(desk().look())).await?,
        Ask::Report { form, number } => {
            let look = move || number.map_or_else(|| Ok(desk().look()), |number| desk().look_at(number));
            blocking(worker, move || look()?.report().map(|report| told(&report, form))).await??
        }
        Ask::Stop { number } => {
            let number = blocking(worker, move || desk().stop(number)).await??;
            let seen = ended(worker, number).await?;
            blocking(worker, || status(seen)).await?
        }
        Ask::Whole(wish) => {
            let ward = aside(move || desk().start(&wish).map(Ward)).await??;
            let seen = ended(worker, ward.0).await?;
            blocking(worker, || seen.report().map(|report| told(&report, Form::Json))).await??
        }
    })
}

/// What a start asks for: in its query, or in its body.
fn wished(query: Option<Wish>, body: &[u8]) -> Result<Wish, String> {
    match query {
        Some(_) if !body.trim_ascii().is_empty() => Err("found a query and a body, expected one of them".into()),
        Some(wish) => Ok(wish),
        None => Wish::from_json(body),
    }
}

/// A profile that somebody waits for: it ends when they go, also while it begins.
struct Ward(u64);

impl Drop for Ward {
    fn drop(&mut self) {
        desk().abandon(self.0);
    }
}

/// The profile with this number, once it has ended; what others begin meanwhile is not waited for.
async fn ended(worker: &Rc<dyn Worker>, number: u64) -> Result<Seen, Answer> {
    loop {
        let seen = blocking(worker, move || desk().look_at(number)).await??;
        if !seen.is_running {
            return Ok(seen);
        }
        Sleep::until(Rc::clone(worker), worker.now() + LOOK).await;
    }
}

/// Off the worker: the profiler's own thread may hold what is asked for.
async fn blocking<T: Send + 'static>(
    worker: &Rc<dyn Worker>,
    job: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Answer> {
    let done = run_blocking(&**worker, job).map_err(|_| Answer::error(503, "the server is busy"))?.await;
    done.ok_or_else(|| Answer::error(500, "the profiler failed inside the server"))
}

/// On a thread of its own: those of `blocking` let everybody else go first, and so would the profiler's, which come from this one.
async fn aside<T: Send + 'static>(job: impl FnOnce() -> T + Send + 'static) -> Result<T, Answer> {
    let (done, result) = oneshot::channel();
    let work = move || {
        // Nobody there: whoever asked has gone.
        let _ = done.send(job());
    };
    std::thread::Builder::new()
        .name("causal-start".into())
        .spawn(work)
        .map_err(|error| Answer::error(503, format!("the system gave no thread for the profiler: {error}")))?;
    result.await.map_err(|_| Answer::error(500, "the profiler failed inside the server"))
}

/// What the page and the command look at once a second. Not for a worker: a report may be long.
fn status(seen: Seen) -> Answer {
    let report = seen.report.map(|report| report.without_stacks().to_json());
    Answer::json(&json!({
        "number": seen.number,
        "running": seen.is_running,
        "phase": seen.phase,
        "elapsed": seen.elapsed.as_secs_f64(),
        "seconds": seen.duration.as_secs_f64(),
        "report": report.and_then(|json| serde_json::from_str::<Value>(&json).ok()),
    }))
}

fn told(report: &Report, form: Form) -> Answer {
    match form {
        Form::Json => Answer::text(format!("{}\n", report.to_json()), Kind::Json),
        Form::Html => Answer::text(report.to_html(), Kind::Page),
        Form::Coz => Answer::text(report.to_coz(), Kind::Coz),
        Form::Folded => Answer::text(report.to_folded(), Kind::Folded),
        Form::Pprof => Answer::octets(report.to_pprof(), Kind::Pprof),
    }
}

fn page() -> String {
    let (controls, script) = (include_str!("causal/live.html"), include_str!("causal/live.js"));
    Live { title: "Causeway", controls, script }.page()
}

#[cfg(test)]
mod tests {
    use causeway_message::Method;

    use super::*;

    #[track_caller]
    fn check(line: &str, want: Result<Option<Ask>, (u16, &str)>) {
        let (method, target) = line.split_once(' ').unwrap();
        let (path, query) = target.split_once('?').map_or((target, None), |(path, query)| (path, Some(query)));
        let method = if method == "GET" { Method::Get } else { Method::Post };
        match (ask(path, method, query).transpose(), want) {
            (Ok(got), Ok(want)) => assert_eq!(got, want, "{line}"),
            (Err(answer), Err((status, words))) => {
                let (got, said) = answer.said();
                assert!(got == status && said.contains(words), "{line}: {got} {said}");
            }
            (got, want) => panic!("{line}: {got:?}, {want:?}"),
        }
    }

    #[test]
    fn what_is_asked() {
        check("GET /causal", Ok(Some(Ask::Page)));
        check("GET /causal?", Ok(Some(Ask::Page)));
        let wish = Wish { seconds: Duration::from_secs(3), ..Wish::default() };
        check("GET /causal?seconds=3", Ok(Some(Ask::Whole(wish.clone()))));
        check("POST /causal/start", Ok(Some(Ask::Start(None))));
        check("POST /causal/start?seconds=3", Ok(Some(Ask::Start(Some(wish)))));
        check("POST /causal/stop", Ok(Some(Ask::Stop { number: None })));
        check("POST /causal/stop?number=7", Ok(Some(Ask::Stop { number: Some(7) })));
        check("GET /causal/status", Ok(Some(Ask::Status)));
        check("GET /causal/report", Ok(Some(Ask::Report { form: Form::Json, number: None })));
        let third = Ask::Report { form: Form::Pprof, number: Some(3) };
        check("GET /causal/report?format=pprof&number=3", Ok(Some(third)));
        check("GET /causal/reports", Ok(None));
        check("GET /causal/start", Err((405, "method not allowed")));
        check("POST /causal", Err((405, "method not allowed")));
        check("GET /causal?second=3", Err((400, "found 'second', expected one of")));
        check("GET /causal/report?format=svg", Err((400, "format: found 'svg', expected one of json, html, coz")));
        check("GET /causal/report?form=json", Err((400, "found the parameter 'form', expected 'format' or 'number'")));
        check("GET /causal/report?number=last", Err((400, "number: found 'last', expected a profile's number")));
        check("POST /causal/stop?form=json", Err((400, "found the parameter 'form', expected 'number'")));
        check("POST /causal/stop?number=-1", Err((400, "number: found '-1', expected a profile's number")));
    }
}
