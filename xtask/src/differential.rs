//! Compares this server with Caddy. Both run side by side; random Caddyfiles are loaded into both, and random requests
//! are sent to both as bytes. A difference that [`wanted`] does not explain fails the step.
//!
//! In reading order:
//! - [`grammar`]: generates a Caddyfile
//! - [`request`]: generates a request; [`words`] is the vocabulary of both generators, [`random`] the source of
//!   randomness
//! - [`servers`]: starts both servers and loads a Caddyfile into them; [`tree`] is the site's files, [`origin`] the
//!   upstream
//! - [`exchange`]: sends a request and reads the response
//! - [`compare`]: finds the parts in which two responses differ
//! - [`wanted`]: the intended differences, each with its reason
//! - [`mod@shrink`]: minimises a failing case; [`document`] represents the Caddyfile as a tree of lines for that
//! - [`report`]: formats a failure for a person

mod compare;
mod document;
mod exchange;
mod grammar;
mod options;
mod origin;
mod random;
mod report;
mod request;
mod servers;
mod shrink;
mod tree;
mod wanted;
mod words;

use std::collections::BTreeMap;
use std::process::ExitCode;

use self::compare::{Difference, ResponseAspect};
use self::exchange::{DifferentialClient, NormalizedResponse};
use self::options::Options;
use self::random::Random;
use self::request::Request;
use self::servers::ServerPair;
use self::shrink::{DifferentialCase, shrink};
use self::wanted::{ObservedDifference, WANTED, covering};
use self::words::PORTS;
use crate::report::{Done, StepError};
use crate::stage::Stage;
use crate::steps::Workspace;

pub(crate) use options::USAGE;

/// Runs the step of `./test`. The environment variable `DIFFERENTIAL` holds the command's options.
pub(crate) fn step(stage: &mut Stage, workspace: &Workspace) -> Result<Done, StepError> {
    let words = std::env::var("DIFFERENTIAL").unwrap_or_default();
    let words: Vec<String> = words.split_whitespace().map(str::to_owned).collect();
    run(stage, workspace, &Options::parse(&words)?)
}

/// Runs `cargo xtask differential …`.
pub(crate) fn main(words: &[String]) -> anyhow::Result<ExitCode> {
    if words.iter().any(|word| word == "--help") {
        println!("{USAGE}");
        return Ok(ExitCode::SUCCESS);
    }
    let options = Options::parse(words)?;
    let workspace = Workspace::find(false)?;
    let mut stage = Stage::begin("differential");
    let outcome = run(&mut stage, &workspace, &options);
    stage.clear();
    Ok(match outcome {
        Ok(done) => {
            println!("{}", done.detail);
            ExitCode::SUCCESS
        }
        Err(StepError::Failed(text) | StepError::MissingTool(text) | StepError::MissingOptional(text)) => {
            println!("{text}");
            ExitCode::FAILURE
        }
    })
}

fn run(stage: &mut Stage, workspace: &Workspace, options: &Options) -> Result<Done, StepError> {
    let pair = ServerPair::start(stage, workspace)?;
    stage.clear();
    println!("differential: seed {}, {} Caddyfiles, {} requests", options.seed, options.caddyfiles, options.requests);
    let mut run = DifferentialRun {
        pair: &pair,
        options,
        covered: vec![0; WANTED.len()],
        found: BTreeMap::new(),
        unstable: (None, Vec::new()),
        tally: Tally::default(),
    };
    let each = options.requests.div_ceil(options.caddyfiles);
    let cases = options.case.map_or(0..u64::MAX, |case| case..case + 1);
    for case in cases {
        let left = options.requests.saturating_sub(run.tally.requests);
        if run.tally.caddyfiles == options.caddyfiles || (left == 0 && options.case.is_none()) {
            break;
        }
        stage.note(&format!("Caddyfile {} of {}", run.tally.caddyfiles + 1, options.caddyfiles));
        run.case(case, if options.case.is_some() { each } else { each.min(left) })?;
    }
    run.conclude(stage)
}

/// Differences of one class that are shrunk and shown.
const REPORTS_EACH: usize = 2;

/// Number of reloads of a Caddyfile to see whether Caddy's response changes. With two equally likely orders one in 32
/// goes undetected.
const RELOADS: usize = 6;

/// The state of a run.
struct DifferentialRun<'a> {
    pair: &'a ServerPair,
    options: &'a Options,
    /// Number of differences that each entry of [`WANTED`] covered.
    covered: Vec<usize>,
    /// Unexplained differences by class: their number, and some reports with their case numbers.
    found: BTreeMap<String, (usize, Vec<(u64, String)>)>,
    /// A case's number, and the indices of its responses that Caddy changes from load to load.
    unstable: (Option<u64>, Vec<usize>),
    tally: Tally,
}

#[derive(Default)]
struct Tally {
    /// Caddyfiles that both servers accepted.
    caddyfiles: usize,
    /// Caddyfiles that both refused: not a case, and not a difference.
    refused: usize,
    /// Caddyfiles that only one server accepted.
    taken_by_one: usize,
    requests: usize,
}

/// A request with both responses; `None` when the Caddyfile itself differs.
type ComparedExchange<'a> = Option<(&'a Request, &'a NormalizedResponse, &'a NormalizedResponse)>;

/// The outcome of a case on both servers.
enum Trial {
    /// Both refused the Caddyfile; Caddy's reason.
    Refused(String),
    /// Only one server accepted the Caddyfile.
    Split(Difference),
    Run {
        adapted: Option<Difference>,
        answers: Vec<(NormalizedResponse, NormalizedResponse)>,
    },
}

impl DifferentialRun<'_> {
    fn case(&mut self, number: u64, requests: usize) -> anyhow::Result<()> {
        let mut random = Random::new(self.options.seed, number);
        let drawn = grammar::draw(&mut random);
        let requests = (0..requests).map(|_| request::draw(&mut random, &drawn)).collect();
        let case = DifferentialCase { document: drawn.document, requests };
        let text = case.document.to_string();
        match self.trial(&case)? {
            Trial::Refused(refusal) => {
                self.tally.refused += 1;
                if self.options.verbose {
                    println!("case {number}: refused by both: {refusal}");
                }
            }
            Trial::Split(difference) => {
                self.tally.taken_by_one += 1;
                self.judge(number, &case, 0, &[(difference, None)], &text);
            }
            Trial::Run { adapted, answers } => {
                self.tally.caddyfiles += 1;
                self.tally.requests += answers.len();
                self.judge(
                    number,
                    &case,
                    0,
                    &adapted.map(|difference| (difference, None)).into_iter().collect::<Vec<_>>(),
                    &text,
                );
                for (index, (caddy, causeway)) in answers.iter().enumerate() {
                    let exchange = Some((&case.requests[index], caddy, causeway));
                    let differences: Vec<_> = compare::answers(caddy, causeway)
                        .into_iter()
                        .map(|difference| (difference, exchange))
                        .collect();
                    self.judge(number, &case, index + 1, &differences, &text);
                }
            }
        }
        Ok(())
    }

    /// Counts the differences of one response under the entries that cover them. The most significant difference
    /// without an entry is shrunk and kept for the report. `until` is the number of requests up to and including this
    /// response.
    fn judge(
        &mut self,
        number: u64,
        case: &DifferentialCase,
        until: usize,
        differences: &[(Difference, ComparedExchange<'_>)],
        text: &str,
    ) {
        let mut first: Option<&Difference> = None;
        for (difference, exchange) in differences {
            match covering(&ObservedDifference {
                document: text,
                difference,
                is_unstable: false,
                is_passing: false,
                exchange: *exchange,
            }) {
                Some(index) => self.covered[index] += 1,
                None if first.is_none_or(|first| difference.part < first.part) => first = Some(difference),
                None => {}
            }
        }
        let Some(first) = first else { return };
        let whole = DifferentialCase { document: case.document.clone(), requests: case.requests[..until].to_vec() };
        let seen = ObservedDifference {
            document: text,
            difference: first,
            is_unstable: false,
            is_passing: false,
            exchange: None,
        };
        // These two checks cost more trials, so they run only for a difference that looks unexplained.
        let is_unstable = until > 0 && self.unstable(case, number).contains(&(until - 1));
        let is_passing = self.still(&whole, &first.class()).is_none();
        if let Some(index) = covering(&ObservedDifference { is_unstable, is_passing, ..seen }) {
            self.covered[index] += 1;
            return;
        }
        // Shrinking costs hundreds of loads, so it is limited per class and in total.
        let reports: usize = self.found.values().map(|(_, reports)| reports.len()).sum();
        let (count, told) = self.found.entry(first.class()).or_default();
        *count += 1;
        // Differences of one Caddyfile mostly have one cause.
        let again = told.last().is_some_and(|(case, _)| *case == number);
        if again || told.len() == REPORTS_EACH || reports >= self.options.reports {
            return;
        }
        let class = first.class();
        let small = shrink(whole, |case| self.still(case, &class).is_some());
        let shown = self.still(&small, &class);
        let text = report::failure(self.options, number, &small, shown, first);
        self.found.entry(class).or_default().1.push((number, text));
    }

    /// Returns the responses of a case that change between loads on Caddy's side only. Computed once per case.
    fn unstable(&mut self, case: &DifferentialCase, number: u64) -> &[usize] {
        if self.unstable.0 != Some(number) {
            let runs: Vec<_> = (0..RELOADS)
                .filter_map(|_| match self.trial(case) {
                    Ok(Trial::Run { answers, .. }) => Some(answers),
                    _ => None,
                })
                .collect();
            let same = |one: &NormalizedResponse, other: &NormalizedResponse| {
                compare::answers(one, other)
                    .iter()
                    .all(|difference| difference.part == ResponseAspect::Field("date".to_owned()))
            };
            let changes = |index: &usize| {
                let pairs = || runs.iter().zip(runs.iter().skip(1)).map(|(one, other)| (&one[*index], &other[*index]));
                pairs().any(|(one, other)| !same(&one.0, &other.0))
                    && pairs().all(|(one, other)| same(&one.1, &other.1))
            };
            self.unstable = (Some(number), (0..case.requests.len()).filter(changes).collect());
        }
        &self.unstable.1
    }

    /// Returns the difference of this class in a case's last response, or in its Caddyfile if it has no request.
    fn still(
        &self,
        case: &DifferentialCase,
        class: &str,
    ) -> Option<(Difference, Option<(NormalizedResponse, NormalizedResponse)>)> {
        let text = case.document.to_string();
        let uncovered = |difference: &Difference, exchange| {
            difference.class() == class
                && covering(&ObservedDifference {
                    document: &text,
                    difference,
                    is_unstable: false,
                    is_passing: false,
                    exchange,
                })
                .is_none()
        };
        match self.trial(case).ok()? {
            Trial::Split(difference) => uncovered(&difference, None).then_some((difference, None)),
            Trial::Run { adapted, answers } => {
                if let Some(difference) = adapted.filter(|difference| uncovered(difference, None)) {
                    return Some((difference, None));
                }
                let (caddy, causeway) = answers.into_iter().next_back()?;
                let request = case.requests.last()?;
                let found = compare::answers(&caddy, &causeway)
                    .into_iter()
                    .find(|difference| uncovered(difference, Some((request, &caddy, &causeway))))?;
                Some((found, Some((caddy, causeway))))
            }
            Trial::Refused(_) => None,
        }
    }

    /// Loads a case into both servers, compares the adapted JSON, and sends the requests.
    fn trial(&self, case: &DifferentialCase) -> anyhow::Result<Trial> {
        let text = case.document.to_string();
        let pair = self.pair;
        match (pair.caddy.load(&text)?, pair.causeway.load(&text)?) {
            (Err(refusal), Err(_)) => return Ok(Trial::Refused(refusal)),
            (Ok(()), Ok(())) => {}
            (caddy, causeway) => {
                let word =
                    |outcome: Result<(), String>| outcome.map_or_else(|refusal| refusal, |()| "taken".to_owned());
                return Ok(Trial::Split(Difference::new(ResponseAspect::Accepted, word(caddy), word(causeway))));
            }
        }
        let adapted = match (pair.caddy.adapt(&text)?, pair.causeway.adapt(&text)?) {
            (Ok(caddy), Ok(causeway)) => compare::json(&caddy, &causeway),
            (caddy, causeway) => {
                Some(Difference::new(ResponseAspect::Adapted, format!("{caddy:?}"), format!("{causeway:?}")))
            }
        };
        let answers = self.exchanges(&case.requests)?;
        Ok(Trial::Run { adapted, answers })
    }

    /// Sends the requests to each server in turn. Connections are reused as long as the server keeps them.
    fn exchanges(&self, requests: &[Request]) -> anyhow::Result<Vec<(NormalizedResponse, NormalizedResponse)>> {
        let servers = [&self.pair.caddy, &self.pair.causeway];
        let mut outcomes: [Vec<NormalizedResponse>; 2] = [vec![], vec![]];
        for (server, answers) in servers.into_iter().zip(&mut outcomes) {
            let mut client = DifferentialClient::new(&server.texts, server.ports);
            let mut last: [Option<usize>; PORTS] = [None; PORTS];
            for request in requests {
                let (answer, was_kept) =
                    client.ask(request.port, &server.texts.fill(&request.bytes()), &request.method)?;
                if let (Some(false), Some(before)) = (was_kept, last[request.port]) {
                    answers[before].kept = false;
                }
                last[request.port] = Some(answers.len());
                answers.push(answer);
            }
            // One more request reveals whether the last connections are still open.
            for (port, before) in last.into_iter().enumerate() {
                if let (true, Some(before)) = (client.is_open(port), before) {
                    let probe = Request::get(port, "probe.invalid");
                    if client.ask(port, &server.texts.fill(&probe.bytes()), "GET")?.1 == Some(false) {
                        answers[before].kept = false;
                    }
                }
            }
        }
        let [caddy, causeway] = outcomes;
        Ok(caddy.into_iter().zip(causeway).collect())
    }

    fn conclude(self, stage: &mut Stage) -> Result<Done, StepError> {
        stage.clear();
        let Tally { caddyfiles, refused, taken_by_one, requests } = self.tally;
        let explained: usize = self.covered.iter().sum();
        let mut unseen = Vec::new();
        for (wanted, covered) in WANTED.iter().zip(&self.covered) {
            if self.options.verbose {
                println!("{covered:>8}  {}: {}; {}", wanted.name, wanted.covers, wanted.why);
            } else if *covered == 0 {
                unseen.push(wanted.name);
            }
        }
        if !unseen.is_empty() && self.options.case.is_none() {
            println!("differential: wanted differences that did not occur in this run: {}", unseen.join(", "));
        }
        let counts = format!(
            "{requests} requests over {caddyfiles} Caddyfiles, {explained} differences on purpose; {refused} Caddyfiles refused by both, {taken_by_one} by one"
        );
        if self.found.is_empty() {
            return Ok(Done::with_detail(format!("{counts}; seed {}", self.options.seed)));
        }
        let mut text = String::new();
        for (_, reports) in self.found.values() {
            reports.iter().for_each(|(_, report)| text += report);
        }
        for (class, (count, _)) in &self.found {
            text += &format!("{count:>6} unexplained differences in {class}\n");
        }
        Err(StepError::Failed(format!("{text}{counts}; seed {}\n", self.options.seed)))
    }
}
