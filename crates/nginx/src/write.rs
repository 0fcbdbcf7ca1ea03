//! The lines of a Caddyfile, indented, with quotes where a word needs them.

/// Joins lines to a text, indented by their braces.
pub(crate) fn indent(lines: &[String]) -> String {
    let mut text = String::new();
    let mut depth = 0_usize;
    for line in lines {
        let comment = line.starts_with('#');
        if line == "}" {
            depth = depth.saturating_sub(1);
        }
        if !line.is_empty() {
            text.extend(std::iter::repeat_n('\t', depth));
        }
        if comment {
            // `{$` is the begin of an environment variable, also in a comment.
            text += &line.replace("{$", "{ $");
        } else {
            text += line;
        }
        text.push('\n');
        if !comment && line.ends_with('{') {
            depth += 1;
        }
    }
    text
}

/// Adds a block with these lines.
pub(crate) fn block(out: &mut Vec<String>, head: &str, lines: Vec<String>) {
    out.push(format!("{head} {{"));
    out.extend(lines);
    out.push("}".to_owned());
}

/// Returns a `rewrite` to a target. The values of its placeholders are text, such as parts of the decoded path, and not
/// decoded again.
pub(crate) fn rewrite(target: &str) -> String {
    const TEXTS: [&str; 6] = ["{re.", "{vars.", "{nginx_", "{query.", "{header.", "{cookie."];
    let path = target.split('?').next().unwrap_or_default();
    let has_text = TEXTS.iter().any(|text| path.contains(text));
    format!("rewrite * {}{}", quote(target), if has_text { " escape_values" } else { "" })
}

/// Returns a word of a Caddyfile with this value.
pub(crate) fn quote(word: &str) -> String {
    if word.is_empty() {
        return "\"\"".to_owned();
    }
    let plain = !word.starts_with(['#', '@', '<'])
        && !matches!(word, "{" | "}" | "*")
        && !word.contains(['"', '`', '\\'])
        && !word.contains(char::is_whitespace)
        && !word.ends_with('{');
    if plain {
        return word.to_owned();
    }
    if !word.contains('`') {
        format!("`{word}`")
    } else if word.contains("\\\"") || word.ends_with('\\') {
        // Between double quotes a backslash would belong to the quote after it.
        format!("<<NGINX_TEXT\n{word}\nNGINX_TEXT")
    } else {
        format!("\"{}\"", word.replace('"', "\\\""))
    }
}

/// Returns the word for a value of `map` or `vars`. Without quotes some texts would be read as a number or a Boolean
/// with another spelling: `t` is `true`, and `007` is 7.
pub(crate) fn quote_scalar(text: &str) -> String {
    let is_other_bool = matches!(text, "t" | "T" | "TRUE" | "True" | "f" | "F" | "FALSE" | "False");
    let is_number =
        text.parse::<f64>().is_ok() && text.parse::<i64>().map_or(true, |number| number.to_string() != text);
    if is_other_bool || is_number { format!("\"{text}\"") } else { quote(text) }
}

/// Returns the literal of a text in an expression of CEL.
pub(crate) fn cel_text(text: &str) -> String {
    format!("'{}'", text.replace('\\', r"\\").replace('\'', r"\'"))
}
