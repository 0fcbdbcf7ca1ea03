//! `map`: placeholders whose values depend on another value. They are computed on each use, so they reflect earlier
//! changes to the request.

use causeway_pipeline::context::{ComputedId, ValueKind, VarId};
use causeway_pipeline::{Build, BuildError, Context, Handler, Step, Template};
use serde::Deserialize;
use serde_json::Value;

use crate::rendered::WeakString;
use crate::replace::Replacer;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MapConfig {
    #[serde(default)]
    source: String,
    #[serde(default)]
    destinations: Vec<String>,
    #[serde(default)]
    mappings: Vec<MappingConfig>,
    #[serde(default)]
    defaults: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MappingConfig {
    #[serde(default)]
    input: String,
    #[serde(default)]
    input_regexp: String,
    #[serde(default)]
    outputs: Vec<Option<WeakString>>,
}

struct Mapped(Box<[(VarId, ComputedId)]>);

/// The cases and the default of one destination.
struct Destination {
    source: Template,
    /// The mappings with an output for this destination, in order.
    cases: Box<[MapCase]>,
    default: Option<Template>,
}

enum MapCase {
    Equal { input: Box<[u8]>, output: Template },
    Match { input: Replacer, output: Box<[u8]> },
}

/// Compiles the handler from its JSON.
///
/// # Errors
/// If a destination is not a placeholder, a regular expression is not valid, or a mapping has two inputs, the input of
/// an earlier mapping, or the wrong number of outputs.
pub fn make(value: &Value, build: &mut Build<'_>) -> Result<Box<dyn Handler>, BuildError> {
    let written: MapConfig = build.parse_module(value)?;
    check(&written, build)?;
    let mut mapped = Vec::with_capacity(written.destinations.len());
    for (number, name) in written.destinations.iter().enumerate() {
        let mut cases = Vec::new();
        for (index, mapping) in written.mappings.iter().enumerate() {
            // A null output: this mapping does not apply to this destination.
            let Some(WeakString(output)) = &mapping.outputs[number] else { continue };
            cases.push(if mapping.input_regexp.is_empty() {
                MapCase::Equal { input: mapping.input.as_bytes().into(), output: build.template(output) }
            } else {
                let place = format!("mappings[{index}].input_regexp");
                let input = build.at(place, |build| Replacer::build(&mapping.input_regexp, build))?;
                MapCase::Match { input, output: output.as_bytes().into() }
            });
        }
        let default = written.defaults.get(number).map(|text| build.template(text));
        let destination = Destination { source: build.template(&written.source), cases: cases.into(), default };
        // The name without its braces; `check` has verified them.
        let computed = build.allocate_computed(move |cx, out| Some(destination.put(cx, out)));
        mapped.push((build.allocate_slot(&name[1..name.len() - 1]), computed));
    }
    Ok(Box::new(Mapped(mapped.into())))
}

/// Validates everything that does not need compiling.
fn check(written: &MapConfig, build: &mut Build<'_>) -> Result<(), BuildError> {
    for (number, name) in written.destinations.iter().enumerate() {
        let inner = name.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')).unwrap_or_default();
        if inner.is_empty() || inner.contains(['{', '}']) {
            return build.at(format!("destinations[{number}]"), |build| {
                // The text after the colon is Caddy's.
                let expected = format!(
                    "a placeholder such as {{name}}: destination {number} must be a placeholder and only a placeholder, but \
                     got '{name}'"
                );
                Err(build.refuse(name, expected))
            });
        }
    }
    let count = written.destinations.len();
    if !written.defaults.is_empty() && written.defaults.len() != count {
        let found = format!("{} defaults", written.defaults.len());
        return Err(build.refuse(found, "as many defaults as destinations, or none"));
    }
    for (index, mapping) in written.mappings.iter().enumerate() {
        let same =
            |earlier: &MappingConfig| earlier.input == mapping.input && earlier.input_regexp == mapping.input_regexp;
        let mistake = if !mapping.input.is_empty() && !mapping.input_regexp.is_empty() {
            Some((mapping.input.clone(), "`input` or `input_regexp`, not both"))
        } else if written.mappings[..index].iter().any(same) {
            let input = if mapping.input_regexp.is_empty() { &mapping.input } else { &mapping.input_regexp };
            Some((input.clone(), "an input that no mapping before it has"))
        } else if mapping.outputs.len() != count {
            Some((format!("{} outputs", mapping.outputs.len()), "as many outputs as destinations"))
        } else {
            None
        };
        if let Some((found, expected)) = mistake {
            return build.at(format!("mappings[{index}]"), |build| Err(build.refuse(found, expected)));
        }
    }
    Ok(())
}

impl Handler for Mapped {
    fn enter(&self, cx: &mut Context) -> Step {
        for (id, computed) in &self.0 {
            cx.set_computed_variable(*id, *computed);
        }
        Step::Next
    }
}

impl Destination {
    /// Appends the value, which is a text. It is null if neither a mapping nor a default applies, as in Caddy.
    fn put(&self, cx: &mut Context, out: &mut Vec<u8>) -> ValueKind {
        let mut kind = ValueKind::Text;
        let text = cx.with_rendered(&self.source, |cx, source| {
            for case in &self.cases {
                match case {
                    MapCase::Equal { input, output } if **input == *source => return Some(output),
                    // `expand` has already appended the output.
                    MapCase::Match { input, output } if input.expand(cx, source, output, out) => return None,
                    _ => {}
                }
            }
            if self.default.is_none() {
                kind = ValueKind::Null;
            }
            self.default.as_ref()
        });
        if let Some(text) = text {
            text.render(cx, out);
        }
        kind
    }
}

#[cfg(test)]
mod tests {
    use causeway_pipeline::Registry;
    use causeway_testkit::{Kit, Request};
    use serde_json::{Value, json};

    fn registry() -> Registry {
        let mut registry = Registry::default();
        crate::register(&mut registry);
        registry
    }

    fn map(mut map: Value) -> Value {
        map["handler"] = json!("map");
        map
    }

    fn respond(body: &str) -> Value {
        json!({ "handler": "static_response", "body": body })
    }

    #[track_caller]
    fn check(handlers: Value, request: &Request, want: &str) {
        assert_eq!(Kit::new(&registry(), &json!([{ "handle": handlers }])).send(request).text(), want, "{handlers}");
    }

    // Caddy, http.handlers.map: the first matching mapping with an output for the destination applies, else the
    // default, else the empty string. Outputs of expressions expand groups, other outputs expand placeholders.
    #[test]
    fn mappings() {
        let handler = map(json!({
            "source": "{http.request.uri.path}", "destinations": ["{first}", "{second}"],
            "mappings": [
                { "input": "/a", "outputs": ["A", null] },
                { "input_regexp": "^/b/(?P<rest>.*)$", "outputs": ["B $1 ${rest} {http.request.method}", 2] },
                { "input_regexp": "^/[a-d]", "outputs": [null, true] },
                { "input": "/c", "outputs": ["C {http.request.method}", "never"] },
            ],
            "defaults": ["default", "{http.request.host}"],
        }));
        let show = respond("{first}|{second}");
        for (target, want) in [
            ("/a", "A|true"),
            ("/b/x", "B x x {http.request.method}|2"),
            ("/c", "C GET|true"),
            ("/d", "default|true"),
            ("/z", "default|localhost"),
        ] {
            check(json!([handler, show]), &Request::get(target), want);
        }
        let bare = map(json!({ "source": "{http.request.method}", "destinations": ["{a}"], "mappings": [] }));
        check(json!([bare, respond("<{a}>{b}")]), &Request::get("/"), "<>{b}");
    }

    // Caddy: "Mapped placeholders are not evaluated until they are used"; of two maps with one destination the first
    // applies.
    #[test]
    fn outputs_are_computed_on_demand() {
        let of_path = |output: &str| {
            map(json!({
                "source": "{http.request.uri.path}{http.vars.later}", "destinations": ["{m}"],
                "mappings": [{ "input": "/new!", "outputs": [output] }], "defaults": ["no"],
            }))
        };
        let rewrite = json!({ "handler": "rewrite", "uri": "/new" });
        let vars = json!({ "handler": "vars", "later": "!" });
        let get = Request::get("/old");
        check(json!([of_path("one"), of_path("two"), respond("{m}"), rewrite]), &get, "no");
        check(json!([of_path("one"), of_path("two"), rewrite, vars, respond("{m}")]), &get, "one");
        let chained = map(
            json!({ "source": "{m}", "destinations": ["{n}"], "mappings": [{ "input": "one", "outputs": ["1 {m}"] }] }),
        );
        check(json!([of_path("one"), chained, rewrite, vars, respond("{n}")]), &get, "1 one");
    }

    // Caddy would recurse until its stack overflows.
    #[test]
    fn a_self_reference_terminates() {
        let own = map(
            json!({ "source": "x{a}", "destinations": ["{a}"], "mappings": [{ "input": "x", "outputs": ["y{a}"] }] }),
        );
        check(json!([own, respond("{a}")]), &Request::get("/"), "y");
    }

    #[test]
    fn refused() {
        for (handler, want) in [
            (json!({ "destinations": ["a"] }), "destinations[0]: found 'a', expected a placeholder"),
            (json!({ "destinations": ["{}"] }), "found '{}', expected a placeholder"),
            (json!({ "destinations": ["{a}{b}"] }), "expected a placeholder"),
            (json!({ "destinations": ["{a}"], "defaults": ["1", "2"] }), "found '2 defaults', expected as many"),
            (
                json!({ "destinations": ["{a}"], "mappings": [{ "input": "x", "input_regexp": "y", "outputs": ["1"] }] }),
                "mappings[0]: found 'x', expected `input` or `input_regexp`, not both",
            ),
            (
                json!({ "destinations": ["{a}"], "mappings": [
                    { "input": "x", "outputs": ["1"] }, { "input_regexp": "x", "outputs": ["1"] }, { "input": "x", "outputs": ["1"] },
                ] }),
                "mappings[2]: found 'x', expected an input that no mapping before it has",
            ),
            (
                json!({ "destinations": ["{a}"], "mappings": [{ "input": "x" }] }),
                "found '0 outputs', expected as many outputs",
            ),
            (
                json!({ "destinations": ["{a}"], "mappings": [{ "input_regexp": "(", "outputs": ["1"] }] }),
                "mappings[0].input_regexp: found '(', expected a regular expression",
            ),
        ] {
            let error =
                Kit::build(&registry(), &json!([{ "handle": [map(handler)] }]), &Value::Null).err().expect(want);
            assert!(error.to_string().contains(want), "{error}");
        }
    }
}
