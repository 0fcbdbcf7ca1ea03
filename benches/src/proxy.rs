//! `./bench proxy`: the cost of a proxied request with Causeway and other proxies, as a ratio to a relay that forwards
//! bytes unexamined: the kernel's cost of two hops.
//!
//! - [`way`]: the requests and protocols
//! - [`proxies`]: the proxies and their configurations
//! - [`contender`]: a running proxy, and its slots
//! - [`upstream`]: counts the connections to the upstream

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
use contender::{Contender, ProxySlot};
use proxies::{Proxy, RELAY};
use way::{ProxyPath, SCENARIOS, Scenario};

/// The extent of the measurement.
pub struct ProxySettings {
    /// Shorter and fewer rounds.
    pub quick: bool,
    /// Proxies to measure; empty for all. The relay always runs.
    pub only: Vec<String>,
    /// Scenarios to measure, by name or prefix; empty for all.
    pub scenarios: Vec<String>,
    /// The command's arguments, for the record.
    pub arguments: String,
}

/// Durations and repetitions.
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

/// Approximate time in ms to start a proxy, check it and count its system calls.
const STARTING_MS: u64 = 1500;

/// The shared state of all scenarios.
struct ProxyBench<'a> {
    shop: &'a mut Workshop,
    extent: Extent,
    progress: Progress,
    h2load: Result<PathBuf, String>,
    proxies: Vec<(Proxy, Tool)>,
}

/// Returns the names of the scenarios, in order.
pub fn names() -> Vec<&'static str> {
    SCENARIOS.iter().map(|scenario| scenario.name).collect()
}

/// Returns the lists of proxies and scenarios for the help.
pub fn help() -> String {
    let proxies = proxies::PROXIES.iter().map(|proxy| format!("  {:<10}{}\n", proxy.name, proxy.about));
    let scenarios = SCENARIOS.iter().map(|scenario| format!("  {:<18}{}\n", scenario.name, scenario.title));
    format!("Proxies:\n{}\nScenarios:\n{}", proxies.collect::<String>(), scenarios.collect::<String>())
}

/// Runs the bench and returns its record.
pub fn run(shop: &mut Workshop, settings: &ProxySettings) -> Result<Record> {
    let record = Record::begin("proxy", shop, settings.arguments.clone())?;
    for wanted in &settings.scenarios {
        let known = names().iter().any(|name| name.starts_with(wanted.as_str()));
        ensure!(known, "unknown scenario {wanted:?}; expected one of {}", names().join(", "));
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
    let mut bench = ProxyBench { shop, extent, progress: Progress::new(planned), h2load, proxies };
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
    ensure!(!tables.is_empty(), "no scenario was measured: {}", bench.shop.skipped.join("; "));
    Ok(record.finish(bench.shop, tables))
}

fn obtain(shop: &mut Workshop, only: &[String]) -> Result<Vec<(Proxy, Tool)>> {
    for wanted in only {
        let known: Vec<_> = proxies::PROXIES.iter().map(|proxy| proxy.name).collect();
        ensure!(known.contains(&wanted.as_str()), "unknown proxy {wanted:?}; expected one of {}", known.join(", "));
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
    ensure!(ready.first().is_some_and(|(proxy, _)| proxy.name == RELAY), "the relay is required as the reference");
    Ok(ready)
}

fn measure(bench: &mut ProxyBench<'_>, scenario: &Scenario) -> Result<Table> {
    let extent = bench.extent;
    bench.progress.at(&format!("{}: starting servers", scenario.name));
    // The relay gets HTTP/1.1 in every scenario, since it cannot translate.
    let relayed = ProxyPath { front: way::Front::Http1, back: way::Back::Http1, ..scenario.way };
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
    ensure!(contenders.contains_key(RELAY), "the relay is required as the reference");

    let mut slots: BTreeMap<&str, Vec<ProxySlot>> = BTreeMap::new();
    let mut ratios: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for round in 0..extent.rounds {
        let mut turn: Vec<&str> = order.iter().copied().filter(|name| *name != RELAY).collect();
        // Rotate the order each round, so that no proxy always follows one neighbour.
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
                    // A slot of the relay follows each measured one, so `relays` has one more element.
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
        // The relay's ratio to itself shows the noise that remains after pairing.
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

/// The name of the ratio's column, which the chart shows too.
const RATIO: &str = "ratio to relay";

fn how(scenario: &Scenario, extent: Extent) -> String {
    let mut how = format!(
        "Proxy on core 0 with one worker; the upstream and the load on core 1, {}; {} rounds of {} ms. The ratio is CPU per request over the mean \
         of the relay's slots immediately before and after, median ± standard error; the relay's own row has its ratio to itself, which \
         shows the remaining noise.",
        scenario.way.asked(),
        extent.rounds,
        extent.run_ms
    );
    if scenario.way.over_http2() {
        how.push_str(
            " The relay forwards HTTP/1.1, one request at a time on 64 connections, since there is no relay that translates: a ratio below 1 is the \
             saving of HTTP/2, which brings several requests per read.",
        );
    }
    how.push_str(
        " The number of connections that a proxy made to its upstream was counted in a run before the slots, on new client connections: a proxy that made \
         more than there were concurrent requests is skipped.",
    );
    how
}

/// Checks the number of connections made. The bound is that of a proxy which keeps no connection of the last run but
/// reuses every connection in this one.
fn check_reuse(made: usize, answered: u64, open: usize) -> Result<()> {
    ensure!(answered > 2 * open as u64, "{answered} answers are too few to see connections used again");
    ensure!(
        made <= open,
        "made {made} connections to its upstream for {answered} requests, {open} of them open at once"
    );
    Ok(())
}

/// Returns the recipe of `name` from the bench for HTTP/1.1, or else from that for HTTP/2.
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
