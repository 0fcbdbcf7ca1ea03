//! Formats a failure for a person: the Caddyfile, the request as bytes, both responses, and the command that repeats
//! it.

use super::compare::Difference;
use super::exchange::{NormalizedResponse, ResponseEnd};
use super::options::Options;
use super::shrink::DifferentialCase;

const BODY_SHOWN_MAX: usize = 1500;

/// Formats one failure. `shown` is the difference of the shrunk case; `None` when it did not occur again.
pub(crate) fn failure(
    options: &Options,
    number: u64,
    case: &DifferentialCase,
    shown: Option<(Difference, Option<(NormalizedResponse, NormalizedResponse)>)>,
    first: &Difference,
) -> String {
    let rule = "-".repeat(80);
    let stable = if shown.is_some() { "" } else { " (it did not come again when the case was tried once more)" };
    let (difference, answers) = shown.unwrap_or((first.clone(), None));
    let mut text = format!("{rule}\n{:?} differs{stable}\n", difference.part);
    text += &format!(
        "  Caddy:    {}\n  Causeway: {}\n\n{}",
        shorten(&difference.caddy),
        shorten(&difference.causeway),
        case.document
    );
    for request in &case.requests {
        text += &format!(
            "\nto <p{}>: {}\n",
            request.port,
            request.bytes().escape_ascii().to_string().replace("\\n", "\\n\n  ")
        );
    }
    if let Some((caddy, causeway)) = &answers {
        text += &format!("\nCaddy:\n{}\nCauseway:\n{}\n", answer(caddy), answer(causeway));
    }
    // Requests are generated after their Caddyfile, so this number includes the failing one.
    let each = options.requests.div_ceil(options.caddyfiles);
    text += &format!(
        "again: cargo xtask differential --seed {} --case {number} --caddyfiles 1 --requests {each}\n",
        options.seed
    );
    text
}

fn answer(answer: &NormalizedResponse) -> String {
    let mut text = String::new();
    if answer.end != ResponseEnd::Complete {
        text += &format!("  ({:?})\n", answer.end);
    }
    for status in &answer.interim {
        text += &format!("  {status}\n");
    }
    text += &format!("  {} {} {}\n", answer.version, answer.status, answer.reason);
    for (name, value) in &answer.fields {
        text += &format!("  {name}: {value}\n");
    }
    let body = shorten(&String::from_utf8_lossy(&answer.body)).replace('\n', "\n  ");
    text + &format!("\n  {body}\n  (connection {})\n", if answer.kept { "kept" } else { "closed" })
}

fn shorten(text: &str) -> String {
    let mut shown: String = text.chars().take(BODY_SHOWN_MAX).collect();
    if shown.len() < text.len() {
        shown += &format!("… ({} bytes)", text.len());
    }
    shown
}
