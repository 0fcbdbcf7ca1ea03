//! Caddy's functions, and the execution of a template with them.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;

use causeway_go_template::{
    Budget, CallContext, ExecutionLimits, FunctionError, Functions, STEPS_DEFAULT, Signature, TemplateSet, Type, Value,
};
use causeway_message::StatusCode;
use causeway_message::path::push_escape;
use jiff::tz::TimeZone;

use super::data::{Dot, changed_values};
use super::dates::Clock;
use super::files::TemplateDirectory;
use super::random::RandomBytes;
use super::request::{Snapshot, canonical};
use super::text::{bytes_of, lossy, string_of, to_string_as_caddy};
use super::{dates, front_matter, markdown, random};
use crate::human_size;

/// Bytes of the message about a failure, for the log.
const MESSAGE_BYTES_MAX: usize = 2048;

/// The result of an execution.
pub(super) enum Executed {
    Whole {
        output: Vec<u8>,
        changes: Vec<FieldChange>,
    },
    /// The execution has met values that are missing. It has no effect.
    Missing(MissingValues),
}

/// Values that a template needs from the worker.
#[derive(Default)]
pub(super) struct MissingValues {
    pub(super) placeholders: BTreeSet<String>,
    /// URIs of the server whose responses `httpInclude` executes.
    pub(super) includes: BTreeSet<String>,
    /// Steps of all executions so far.
    pub(super) steps_used: u64,
}

/// The values that the worker has supplied.
#[derive(Default)]
pub(super) struct ResolvedValues {
    pub(super) placeholders: BTreeMap<String, Vec<u8>>,
    /// The content of each response, or why there is none.
    pub(super) includes: BTreeMap<String, Result<Vec<u8>, String>>,
    /// Steps of the executions before this one. All executions of a response together keep the limit.
    pub(super) steps_used: u64,
}

/// A change of the response's fields. Names are valid and in Go's canonical form, values are valid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum FieldChange {
    Add(String, Vec<u8>),
    Set(String, Vec<u8>),
    Del(String),
}

/// The template cannot be executed.
pub(super) struct TemplateError {
    pub(super) failure: Failure,
    /// The changes of the response's fields until then.
    pub(super) changes: Vec<FieldChange>,
}

/// Why there is no output.
pub(super) enum Failure {
    /// The template has ended the execution with `httpError`.
    Status(StatusCode),
    /// The text is no template, or its execution fails: the message for the log.
    Broken(String),
}

/// Executes the template in the snapshot with the values that are resolved.
///
/// # Errors
/// If the text is no template, or its execution fails or ends with `httpError`.
pub(super) fn execute(
    snapshot: &Arc<Snapshot>,
    resolved: &Arc<ResolvedValues>,
    delimiters: [&str; 2],
) -> Result<Executed, TemplateError> {
    let changes = Rc::default();
    let shared = Rc::new(Shared {
        snapshot: Arc::clone(snapshot),
        directory: TemplateDirectory::at(&snapshot.root),
        resolved: Arc::clone(resolved),
        missing: RefCell::default(),
        status: Cell::new(None),
        delimiters: delimiters.map(str::to_owned),
        changes: Rc::clone(&changes),
        clock: Clock { now: snapshot.now, zone: TimeZone::system() },
        random: Rc::new(RandomBytes::new(&snapshot.seed)),
    });
    let dot = Dot::new(snapshot, Vec::new(), &changes);
    let name = String::from_utf8_lossy(&snapshot.request.path);
    let steps_max = STEPS_DEFAULT.saturating_sub(resolved.steps_used);
    let budget = Budget::new(ExecutionLimits { steps_max, ..ExecutionLimits::default() });
    let executed = run(&shared, &name, &snapshot.text, dot, &budget);
    let mut missing = shared.missing.take();
    missing.steps_used = STEPS_DEFAULT - budget.steps_left();
    if !missing.placeholders.is_empty() || !missing.includes.is_empty() {
        // A failure may come from the values that are missing.
        return Ok(Executed::Missing(missing));
    }
    match executed {
        Ok(output) => Ok(Executed::Whole { output, changes: shared.changes.take() }),
        Err(message) => {
            // The message of a status would have the path, which the client chooses.
            let failure = shared.status.get().map_or_else(|| Failure::Broken(shortened(message)), Failure::Status);
            Err(TemplateError { failure, changes: shared.changes.take() })
        }
    }
}

/// Shortens a message in its middle: each template that includes another one adds its own place.
fn shortened(message: String) -> String {
    let Some(over) = message.len().checked_sub(MESSAGE_BYTES_MAX).filter(|over| *over > 0) else { return message };
    let start = message.floor_char_boundary(MESSAGE_BYTES_MAX / 4);
    let end = message.ceil_char_boundary(start + over);
    format!("{} … {}", &message[..start], &message[end..])
}

/// The state of one execution, with all templates that it includes.
struct Shared {
    snapshot: Arc<Snapshot>,
    directory: TemplateDirectory,
    resolved: Arc<ResolvedValues>,
    /// Values that were met and are not in `resolved`.
    missing: RefCell<MissingValues>,
    /// The status that `httpError` has set.
    status: Cell<Option<StatusCode>>,
    delimiters: [String; 2],
    changes: Rc<RefCell<Vec<FieldChange>>>,
    clock: Clock,
    random: Rc<RandomBytes>,
}

/// Parses and executes a text within the budget of the whole execution.
fn run(shared: &Rc<Shared>, name: &str, text: &[u8], dot: Dot, budget: &Budget) -> Result<Vec<u8>, String> {
    let set = Rc::new(TemplateSet::new().delimiters(&shared.delimiters[0], &shared.delimiters[1]));
    let functions = functions(shared, &set);
    parse(&set, name, text, &functions)?;
    let mut output = Vec::new();
    let executed = set.execute_within(name, &functions, &Value::Object(Rc::new(dot)), budget, &mut output);
    executed.map(|()| output).map_err(|error| error.to_string())
}

/// Functions of Sprig that the server does not have: they make keys and certificates, encrypt, query resolvers, or read
/// the environment. Of these, Caddy removes `expandenv`, and has an `env` of its own.
const LEFT_OUT: [&str; 13] = [
    "buildCustomCert",
    "decryptAES",
    "derivePassword",
    "encryptAES",
    "genCA",
    "genCAWithKey",
    "genPrivateKey",
    "genSelfSignedCert",
    "genSelfSignedCertWithKey",
    "genSignedCert",
    "genSignedCertWithKey",
    "getHostByName",
    "expandenv",
];

/// Parses a text and adds its templates to the set.
fn parse(set: &TemplateSet, name: &str, text: &[u8], functions: &Functions) -> Result<(), String> {
    let refused = Cell::new(None);
    let is_function = |function: &str| {
        refused.set(LEFT_OUT.iter().find(|left_out| **left_out == function));
        functions.contains(function)
    };
    set.parse(name, text, &is_function).map_err(|mut error| {
        if let Some(function) = refused.get() {
            error.message = format!("function \"{function}\" is not in this server: see docs/templates.md");
        }
        error.to_string()
    })
}

const NAME: Signature = Signature::fixed(&[Type::String]);
const ANY: Signature = Signature::fixed(&[Type::Any]);

/// A function that uses the execution's state.
type Function = fn(&Rc<Shared>, &mut CallContext<'_>, &[Value]) -> Result<Value, FunctionError>;

fn functions(shared: &Rc<Shared>, set: &Rc<TemplateSet>) -> Functions {
    let with = |function: Function| {
        let shared = Rc::clone(shared);
        move |call: &mut CallContext<'_>, arguments: &[Value]| function(&shared, call, arguments)
    };
    let (importing, into) = (Rc::clone(shared), Rc::downgrade(set));
    let import = move |call: &mut CallContext<'_>, arguments: &[Value]| {
        let set = into.upgrade().ok_or("its template is gone")?;
        let text = read(&importing, call, &arguments[0])?;
        parse(&set, &lossy(&importing.snapshot.request.path), &text, &functions(&importing, &set))?;
        Ok("".into())
    };
    random::with(dates::with(Functions::new(), &shared.clock), &shared.random)
        .with("include", Signature::variadic(&[Type::String, Type::Any]), with(include))
        .with("import", NAME, import)
        .with("readFile", NAME, with(|shared, call, arguments| Ok(read(shared, call, &arguments[0])?.into())))
        .with("fileExists", NAME, with(|shared, _, arguments| Ok(shared.directory.has(bytes_of(&arguments[0])).into())))
        .with("fileStat", NAME, with(|shared, _, arguments| shared.directory.stat(bytes_of(&arguments[0]))))
        .with("listFiles", NAME, with(|shared, call, arguments| shared.directory.list(bytes_of(&arguments[0]), call)))
        .with("httpInclude", NAME, with(http_include))
        .with("httpError", Signature::fixed(&[Type::Int]), with(http_error))
        .with("env", NAME, with(env))
        .with("placeholder", NAME, with(placeholder))
        .with("ph", NAME, with(placeholder))
        .with("humanize", Signature::fixed(&[Type::String, Type::String]), with(humanize))
        // There are no functions of plugins.
        .with("maybe", Signature::variadic(&[Type::String, Type::Any]), with(|_, _, _| Ok("".into())))
        .with("pathEscape", NAME, with(path_escape))
        .with("stripHTML", NAME, with(strip_html))
        .with(
            "markdown",
            ANY,
            with(|_, call, arguments| markdown::render(&to_string_as_caddy(&arguments[0], call)?, call)),
        )
        .with(
            "splitFrontMatter",
            ANY,
            with(|_, call, arguments| front_matter::split(&to_string_as_caddy(&arguments[0], call)?, call)),
        )
}

fn read(shared: &Shared, call: &mut CallContext<'_>, file: &Value) -> Result<Vec<u8>, FunctionError> {
    shared.directory.read(bytes_of(file), call)
}

/// Executes a file as a template of its own, with arguments.
fn include(shared: &Rc<Shared>, call: &mut CallContext<'_>, arguments: &[Value]) -> Result<Value, FunctionError> {
    let [file, rest @ ..] = arguments else { return Err("it needs the name of a file".into()) };
    let source = read(shared, call, file)?;
    let dot = Dot::new(&shared.snapshot, rest.to_vec(), &shared.changes);
    Ok(run(shared, &string_of(file), &source, dot, call.budget())?.into())
}

/// Executes the response of this server to another request as a template, with the dot of this one.
fn http_include(shared: &Rc<Shared>, call: &mut CallContext<'_>, arguments: &[Value]) -> Result<Value, FunctionError> {
    let uri = string_of(&arguments[0]);
    match shared.resolved.includes.get(&uri) {
        Some(Ok(source)) => {
            call.charge_memory(source.len())?;
            let dot = Dot::new(&shared.snapshot, Vec::new(), &shared.changes);
            Ok(run(shared, &uri, source, dot, call.budget())?.into())
        }
        Some(Err(cause)) => Err(format!("httpInclude {uri}: {cause}").into()),
        None => {
            // The worker sends the request.
            call.charge_memory(uri.len() + 64)?;
            shared.missing.borrow_mut().includes.insert(uri);
            Ok("".into())
        }
    }
}

/// Ends the execution with a status.
fn http_error(shared: &Rc<Shared>, _: &mut CallContext<'_>, arguments: &[Value]) -> Result<Value, FunctionError> {
    let status = arguments[0].as_integer().and_then(|status| u16::try_from(status).ok());
    let status = status.and_then(StatusCode::new).filter(|status| status.as_u16() >= 200);
    let status = status.ok_or("it needs the status of a response, from 200 to 999")?;
    shared.status.set(Some(status));
    Err(format!("HTTP {}", status.as_u16()).into())
}

fn env(shared: &Rc<Shared>, _: &mut CallContext<'_>, arguments: &[Value]) -> Result<Value, FunctionError> {
    let variable = string_of(&arguments[0]);
    // The standard library demands a name that can be one.
    let is_name = !variable.is_empty() && !variable.contains(['=', '\0']);
    let value = if is_name { shared.snapshot.environment.get(&variable) } else { None };
    Ok(Value::from(&*value.unwrap_or_default()))
}

fn placeholder(shared: &Rc<Shared>, call: &mut CallContext<'_>, arguments: &[Value]) -> Result<Value, FunctionError> {
    let placeholder = string_of(&arguments[0]);
    // The worker does not know the changes that this execution has made.
    if let Some(field) = placeholder.strip_prefix("http.response.header.") {
        let changes = shared.changes.borrow();
        call.charge_steps(shared.snapshot.response.len() + changes.len())?;
        let values = changed_values(&shared.snapshot, &changes, &canonical(field));
        call.charge_memory(values.iter().map(|value| value.len() + 1).sum())?;
        return Ok(values.join(&b","[..]).into());
    }
    match shared.resolved.placeholders.get(&placeholder) {
        Some(value) => Ok(Value::from(&**value)),
        None => {
            // The worker evaluates each.
            call.charge_memory(placeholder.len() + 64)?;
            shared.missing.borrow_mut().placeholders.insert(placeholder);
            Ok("".into())
        }
    }
}

/// `size` and `time`, as the library humanize of Go prints them.
fn humanize(shared: &Rc<Shared>, _: &mut CallContext<'_>, arguments: &[Value]) -> Result<Value, FunctionError> {
    let (form, data) = (string_of(&arguments[0]), string_of(&arguments[1]));
    let (form, layout) = form.split_once(':').map_or((&*form, None), |(form, layout)| (form, Some(layout)));
    match (form, layout) {
        ("size", _) => {
            let size = data.parse().map_err(|error| format!("humanize: size cannot be parsed: '{data}': {error}"))?;
            Ok(human_size::decimal(size).into())
        }
        ("time", layout) => {
            // Caddy's default is Go's RFC1123Z.
            let layout = layout.unwrap_or("Mon, 02 Jan 2006 15:04:05 -0700");
            let then = dates::timestamp(layout, &data).map_err(|error| format!("humanize: {error}"))?;
            Ok(distance(shared.clock.now.as_second() - then.as_second()).into())
        }
        _ => Err(format!("humanize: found '{form}', expected size or time").into()),
    }
}

/// Returns how long ago a time was, by the largest unit that fits.
fn distance(seconds: i64) -> String {
    const MINUTE: u64 = 60;
    const HOUR: u64 = 60 * MINUTE;
    const DAY: u64 = 24 * HOUR;
    const WEEK: u64 = 7 * DAY;
    const MONTH: u64 = 30 * DAY;
    const YEAR: u64 = 12 * MONTH;
    let side = if seconds < 0 { "from now" } else { "ago" };
    let count = seconds.unsigned_abs();
    let some = |unit: u64, name: &str| format!("{} {name} {side}", count / unit);
    match count {
        0 => "now".to_owned(),
        1 => format!("1 second {side}"),
        2..MINUTE => some(1, "seconds"),
        MINUTE..120 => format!("1 minute {side}"),
        120..HOUR => some(MINUTE, "minutes"),
        HOUR..7200 => format!("1 hour {side}"),
        7200..DAY => some(HOUR, "hours"),
        DAY..172_800 => format!("1 day {side}"),
        172_800..WEEK => some(DAY, "days"),
        WEEK..1_209_600 => format!("1 week {side}"),
        1_209_600..MONTH => some(WEEK, "weeks"),
        MONTH..5_184_000 => format!("1 month {side}"),
        5_184_000..YEAR => some(MONTH, "months"),
        YEAR..46_656_000 => format!("1 year {side}"),
        46_656_000..62_208_000 => format!("2 years {side}"),
        62_208_000..1_150_848_000 => some(YEAR, "years"),
        _ => format!("a long while {side}"),
    }
}

/// Go's `url.PathEscape`: a text for one segment of a path.
fn path_escape(_: &Rc<Shared>, call: &mut CallContext<'_>, arguments: &[Value]) -> Result<Value, FunctionError> {
    let text = bytes_of(&arguments[0]);
    call.charge_memory(3 * text.len())?;
    let mut escaped = Vec::new();
    for &byte in text {
        if byte.is_ascii_alphanumeric() || b"-_.~$&+:=@".contains(&byte) {
            escaped.push(byte);
        } else {
            push_escape(byte, &mut escaped);
        }
    }
    Ok(escaped.into())
}

/// Removes tags, with `>` in quoted values of attributes, and keeps the text between them.
fn strip_html(_: &Rc<Shared>, call: &mut CallContext<'_>, arguments: &[Value]) -> Result<Value, FunctionError> {
    let text = bytes_of(&arguments[0]);
    call.charge_memory(text.len())?;
    let mut kept = Vec::new();
    let (mut depth, mut quote) = (0_usize, None);
    for &byte in text {
        match (byte, quote) {
            (b'"' | b'\'', None) if depth > 0 => quote = Some(byte),
            (byte, Some(open)) if depth > 0 && byte == open => quote = None,
            (b'<', None) => depth += 1,
            (b'>', None) if depth > 0 => depth -= 1,
            _ if depth == 0 => kept.push(byte),
            _ => {}
        }
    }
    Ok(kept.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    // The first and the last place of a failure are kept.
    #[test]
    fn long_messages() {
        assert_eq!(shortened("short".to_owned()), "short");
        let long = format!("first{}last", "é".repeat(5000));
        let short = shortened(long);
        assert!(short.starts_with("first") && short.ends_with("last") && short.len() < MESSAGE_BYTES_MAX + 10);
    }

    // go-humanize, `Time`.
    #[test]
    fn distances() {
        let wants = [
            (0, "now"),
            (1, "1 second ago"),
            (59, "59 seconds ago"),
            (60, "1 minute ago"),
            (-7200, "2 hours from now"),
            (86_400, "1 day ago"),
            (14 * 86_400, "2 weeks ago"),
            (61 * 86_400, "2 months ago"),
            (-400 * 86_400, "1 year from now"),
            (i64::MAX, "a long while ago"),
        ];
        for (seconds, want) in wants {
            assert_eq!(distance(seconds), want);
        }
    }
}
