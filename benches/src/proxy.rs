//! `./bench proxy`: what a request costs that is passed on to another server, Causeway beside other proxies, as a ratio to a
//! relay that passes octets on without a look: two hops of the kernel's.
//!
//! - [`way`]: what is asked, over which protocols
//! - [`proxies`]: who is measured and how each runs
//! - [`contender`]: a proxy that runs, and a slot of it
//! - [`upstream`]: how many connections it made to its upstream

mod contender;
mod proxies;
mod upstream;
mod way;

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};

use crate::http2;
use crate::peers::{self, Tool};
use crate::progress::Progress;
use crate::record::{Chart, Metric, Record, Row, Table};
use crate::side_by_side::skip;
use crate::stats;
use crate::workshop::Workshop;
use contender::{Contender, Slot};
use proxies::{Proxy, RELAY};
use way::{SCENARIOS, Scenario, Way};

/// How much is measured.
pub struct Settings {
    /// Shorter and fewer rounds.
    pub quick: bool,
    /// Proxies asked for; all if empty. The relay always runs.
    pub only: Vec<String>,
    /// Scenarios asked for, by name or its beginning; all if empty.
    pub scenarios: Vec<String>,
    /// What was given, for the record.
    pub arguments: String,
}

/// How long and how often.
#[derive(Debug, Clone, Copy)]
struct Extent {
    rounds: usize,
    warm_ms: u64,
    run_ms: u64,
}

impl Extent {
    fn slot_ms(self) -> u64 {
        self.warm_ms + self.run_ms + 40
    }

    fn table_ms(self, proxies: usize) -> u64 {
        let slots = self.rounds * (2 * proxies.saturating_sub(1) + 1);
        slots as u64 * self.slot_ms() + proxies as u64 * STARTING_MS
    }
}

/// What starting a proxy, checking it and counting its system calls take, about.
const STARTING_MS: u64 = 1500;

/// Everything a scenario needs.
struct Bench<'a> {
    shop: &'a mut Workshop,
    extent: Extent,
    progress: Progress,
    h2load: Result<PathBuf, String>,
    proxies: Vec<(Proxy, Tool)>,
}

/// The scenarios by name, in their order.
pub fn names() -> Vec<&'static str> {
    SCENARIOS.iter().map(|scenario| scenario.name).collect()
}

/// Who there is and what is asked, for the help.
pub fn help() -> String {
    let proxies = proxies::PROXIES.iter().map(|proxy| format!("  {:<10}{}\n", proxy.name, proxy.about));
    let scenarios = SCENARIOS.iter().map(|scenario| format!("  {:<12}{}\n", scenario.name, scenario.title));
    format!("Proxies:\n{}\nScenarios:\n{}", proxies.collect::<String>(), scenarios.collect::<String>())
}

/// Runs the bench and returns its record.
pub fn run(shop: &mut Workshop, settings: &Settings) -> Result<Record> {
    let record = Record::begin("proxy", shop, settings.arguments.clone())?;
    for wanted in &settings.scenarios {
        let known = names().iter().any(|name| name.starts_with(wanted.as_str()));
        ensure!(known, "no scenario is called {wanted:?}: {}", names().join(", "));
    }
    let chosen = |scenario: &&Scenario| {
        let name = scenario.name;
        settings.scenarios.is_empty() || settings.scenarios.iter().any(|wanted| name.starts_with(wanted.as_str()))
    };
    let extent = if settings.quick {
        Extent { rounds: 3, warm_ms: 60, run_ms: 160 }
    } else {
        Extent { rounds: 7, warm_ms: 150, run_ms: 700 }
    };
    let proxies = obtain(shop, &settings.only)?;
    let h2load = http2::load::obtain(shop).map_err(|error| format!("{error:#}"));
    let scenarios: Vec<_> = SCENARIOS.iter().filter(chosen).collect();
    let planned = scenarios.len() as u64 * extent.table_ms(proxies.len());
    let mut bench = Bench { shop, extent, progress: Progress::new(planned), h2load, proxies };
    let mut tables = Vec::new();
    for scenario in scenarios {
        match measure(&mut bench, scenario) {
            Ok(table) => {
                bench.progress.show(&table);
                tables.push(table);
            }
            Err(error) => skip(bench.shop, scenario.name, &error),
        }
    }
    bench.progress.end();
    ensure!(!tables.is_empty(), "nothing was measured: {}", bench.shop.skipped.join("; "));
    Ok(record.finish(bench.shop, tables))
}

fn obtain(shop: &mut Workshop, only: &[String]) -> Result<Vec<(Proxy, Tool)>> {
    for wanted in only {
        let known: Vec<_> = proxies::PROXIES.iter().map(|proxy| proxy.name).collect();
        ensure!(known.contains(&wanted.as_str()), "no proxy is called {wanted:?}: there are {}", known.join(", "));
    }
    let mut ready = Vec::new();
    for proxy in proxies::PROXIES {
        if proxy.name != RELAY && !only.is_empty() && only.iter().all(|name| name != proxy.name) {
            continue;
        }
        match proxy.recipe().and_then(|recipe| peers::obtain(shop, recipe)) {
            Ok(tool) => ready.push((*proxy, tool)),
            Err(error) => skip(shop, proxy.name, &error),
        }
    }
    ensure!(ready.first().is_some_and(|(proxy, _)| proxy.name == RELAY), "without the relay nothing is compared");
    Ok(ready)
}

fn measure(bench: &mut Bench<'_>, scenario: &Scenario) -> Result<Table> {
    let extent = bench.extent;
    bench.progress.at(&format!("{}: starting servers", scenario.name));
    // The relay is asked over HTTP/1.1 in every scenario, since it can only pass on what it gets.
    let relayed = Way { front: way::Front::Http1, back: way::Back::Http1, ..scenario.way };
    let h2load = match (scenario.way.over_http2(), &bench.h2load) {
        (true, Err(error)) => anyhow::bail!("{error}"),
        (_, h2load) => h2load.clone().unwrap_or_default(),
    };
    let origin = way::start_origin(bench.shop, scenario.way, &h2load)?;
    let plain = if scenario.way == relayed { None } else { Some(way::start_origin(bench.shop, relayed, &h2load)?) };
    let mut contenders: BTreeMap<&str, Contender> = BTreeMap::new();
    let mut order = Vec::new();
    for (proxy, tool) in bench.proxies.clone() {
        if !proxy.takes(scenario.way) {
            continue;
        }
        let (way, origin) = match (&plain, proxy.name) {
            (Some(plain), RELAY) => (relayed, plain),
            _ => (scenario.way, &origin),
        };
        bench.progress.at(&format!("{}: {}", scenario.name, proxy.name));
        match Contender::start(bench.shop, proxy, &tool, way, origin.address.port(), &h2load, extent) {
            Ok(contender) => {
                order.push(proxy.name);
                contenders.insert(proxy.name, contender);
            }
            Err(error) => skip(bench.shop, &format!("{} in {}", proxy.name, scenario.name), &error),
        }
        bench.progress.done(STARTING_MS);
    }
    ensure!(contenders.contains_key(RELAY), "without the relay nothing is compared");

    let mut slots: BTreeMap<&str, Vec<Slot>> = BTreeMap::new();
    let mut ratios: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for round in 0..extent.rounds {
        let mut turn: Vec<&str> = order.iter().copied().filter(|name| *name != RELAY).collect();
        // Another order each round, so that no proxy always follows the same neighbour.
        let by = round % turn.len().max(1);
        turn.rotate_left(by);
        let relay = &contenders[RELAY];
        let mut relays = vec![relay.slot()?];
        let mut measured = Vec::new();
        for name in turn {
            bench.progress.at(&format!("{}, round {} of {}: {name}", scenario.name, round + 1, extent.rounds));
            match contenders[name].slot() {
                Ok(slot) => {
                    measured.push((name, slot.cpu_us));
                    slots.entry(name).or_default().push(slot);
                    relays.push(relay.slot()?);
                }
                Err(error) => skip(bench.shop, &format!("{name} in one round of {}", scenario.name), &error),
            }
            bench.progress.done(2 * extent.slot_ms());
        }
        bench.progress.done(extent.slot_ms());
        let relay_costs: Vec<_> = relays.iter().map(|slot| slot.cpu_us).collect();
        let costs: Vec<_> = measured.iter().map(|(_, cost)| *cost).collect();
        for ((name, _), ratio) in measured.iter().zip(stats::paired(&costs, &relay_costs)) {
            ratios.entry(name).or_default().push(ratio);
        }
        // The relay against itself: what the pairing leaves of the noise.
        let control = relay_costs.windows(3).map(|three| three[1] / f64::midpoint(three[0], three[2]));
        ratios.entry(RELAY).or_default().extend(control);
        slots.entry(RELAY).or_default().extend(relays);
    }

    let mut rows = Vec::new();
    for name in order {
        let Some(slots) = slots.get(name) else { continue };
        let contender = &contenders[name];
        let mut row = Row::new(name);
        let ratio = ratios.remove(name).unwrap_or_default();
        if !ratio.is_empty() {
            row.metrics.push(Metric::ratio(RATIO, ratio));
        }
        row.metrics.extend(contender::metrics(slots));
        match contender.calls(bench.shop) {
            Ok(calls) => row.metrics.push(Metric::count("system calls", "", vec![calls])),
            Err(error) => skip(bench.shop, &format!("system calls of {name} in {}", scenario.name), &error),
        }
        row.notes.extend(contender.made.map(|made| format!("made {made} connections to its upstream beforehand")));
        contender::note_disturbance(&mut row, slots);
        rows.push(row);
    }
    Ok(Table {
        name: scenario.name.to_owned(),
        title: scenario.title.to_owned(),
        how: how(scenario, extent),
        chart: Some(Chart { bars: vec!["user".to_owned(), "system".to_owned()], label: Some(RATIO.to_owned()) }),
        rows,
    })
}

/// The column that the chart shows too.
const RATIO: &str = "ratio to relay";

fn how(scenario: &Scenario, extent: Extent) -> String {
    let mut how = format!(
        "Proxy on core 0 with one worker; the upstream and the load on core 1, {}; {} rounds of {} ms. The ratio is CPU per request over the mean \
         of the relay's slots right before and behind, median ± standard error; in the relay's own row it is the relay against itself, which \
         shows what noise is left.",
        scenario.way.asked(),
        extent.rounds,
        extent.run_ms
    );
    if scenario.way.over_http2() {
        how.push_str(
            " The relay passes on HTTP/1.1, one request of 64 connections at a time, for want of a relay that translates: below 1 is what \
             HTTP/2 saves by bringing several requests with one read.",
        );
    }
    how.push_str(
        " How many connections a proxy made to its upstream was seen in a run before the slots, on new connections of clients: one that made \
         more than there were requests open at once is left out.",
    );
    how
}

/// The bound of connections made: what a proxy needs that keeps none of the last run, and uses each again in this one.
fn check_reuse(made: usize, answered: u64, open: usize) -> Result<()> {
    ensure!(answered > 2 * open as u64, "{answered} answers are too few to see connections used again");
    ensure!(
        made <= open,
        "made {made} connections to its upstream for {answered} requests, {open} of them open at once"
    );
    Ok(())
}

/// The recipe of `name` among those of HTTP/1.1's bench or HTTP/2's.
fn recipe_of(name: &str) -> Result<&'static peers::Recipe> {
    peers::recipe(name).or_else(|_| http2::servers::recipe_of(name)).context("a proxy without a recipe")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_that_are_not_used_again_are_refused() {
        assert!(check_reuse(0, 5000, 64).is_ok() && check_reuse(64, 5000, 64).is_ok());
        assert!(check_reuse(65, 5000, 64).is_err(), "more than were open at once");
        assert!(check_reuse(0, 100, 64).is_err(), "nothing was seen");
    }

    #[test]
    fn every_proxy_has_a_recipe_and_every_scenario_a_name_of_its_own() {
        for proxy in proxies::PROXIES {
            assert_eq!(proxy.recipe().unwrap().name, proxy.name);
        }
        for (index, name) in names().iter().enumerate() {
            assert!(!names()[..index].contains(name), "{name}");
        }
    }
}
