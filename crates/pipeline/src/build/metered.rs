//! The counters of a plan's routes.

use std::sync::Arc;

use rustc_hash::FxHashMap;
use serde_json::Value;

use super::Build;
use crate::metrics::{HostId, Meter, MeteredHosts, MeteredPlan, Metrics, MetricsSpec, RouteSeries};
use crate::punycode;

impl Build<'_> {
    /// Counts the requests of all servers that are built after this call.
    pub fn measure(&mut self, spec: MetricsSpec) {
        let metrics = Arc::clone(&self.registry.metrics);
        // Kept, so that a reload continues the counters.
        let meter = self.allocate_kept_state("metrics".to_owned(), move |_| Meter::new(&metrics));
        let observes_all = spec.observe_catchall_hosts;
        let hosts = spec.per_host.then(|| MeteredHosts { known: FxHashMap::default(), observes_all });
        self.plan.metered = Some(MeteredPlan { meter, hosts });
        self.uncounted = spec.uncounted;
    }

    /// Returns the counters of a route of a server's own list: those of its first handler, as in Caddy.
    pub(super) fn series_of(&mut self, server: &str, route: &Value) -> Option<RouteSeries> {
        let metrics = Arc::clone(&self.registry.metrics);
        let plan = self.plan.metered.as_mut()?;
        let handler = route.pointer("/handle/0/handler").and_then(Value::as_str).unwrap_or_default();
        if self.uncounted.contains(&handler) {
            return None;
        }
        let host = plan.hosts.as_mut().and_then(|hosts| known_hosts(route, hosts, &metrics));
        Some(RouteSeries { series: metrics.series(server, handler), host })
    }
}

/// Gives labels to the hosts that a route's matchers name. Returns the host if they admit only one.
fn known_hosts(route: &Value, labelled: &mut MeteredHosts, metrics: &Metrics) -> Option<HostId> {
    let sets = route.get("match").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let (mut only, mut admits_others) = (Vec::new(), sets.is_empty());
    for set in sets {
        let hosts = set.get("host").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        let plain = hosts.iter().filter_map(Value::as_str).filter(|host| !host.contains(['*', '{']));
        for host in plain.clone() {
            // The matcher itself refuses a name that IDNA does not allow.
            let Some(host) = punycode::to_ascii(host) else { continue };
            let host = host.to_ascii_lowercase();
            let id = metrics.intern_host(&host);
            labelled.known.insert(host.into(), id);
            only.push(id);
        }
        // Without a list of hosts, or with a pattern in it, the set admits others.
        admits_others |= hosts.is_empty() || plain.count() < hosts.len();
    }
    only.dedup();
    (only.len() == 1 && !admits_others).then(|| only[0])
}
