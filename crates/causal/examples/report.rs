//! Converts a report from JSON on standard input to another format: `report html|coz|terminal|words|json`.

use std::io::Read as _;

use causal::report::Report;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text)?;
    let report = Report::from_json(&text)?;
    let form = std::env::args().nth(1);
    print!(
        "{}",
        match form.as_deref() {
            Some("html") => report.to_html(),
            Some("coz") => report.to_coz(),
            Some("terminal") => report.to_terminal(100),
            Some("words") => report.words().join("\n") + "\n",
            Some("json") => report.to_json(),
            other => return Err(format!("found {other:?}, expected html, coz, terminal, words or json").into()),
        }
    );
    Ok(())
}
