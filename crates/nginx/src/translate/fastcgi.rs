//! Programs: `fastcgi_pass` with its parameters, and the names of scripts.

use super::content::alias_of;
use super::directories::{ends, has_programs};
use super::units::bytes;
use super::upstream::without_kept_fields;
use super::{Translator, WHOLE_PATH, inherited, own, value};
use crate::expressions::compiled;
use crate::location::{Location, Pattern};
use crate::parse::Directive;
use crate::variables::{VariableScope, variable, variables};
use crate::write::{block, quote};

/// The parameters that the transport sends by itself, with the values for which it does.
const USUAL: &[(&str, &[&str])] = &[
    (
        "SCRIPT_FILENAME",
        &["$document_root$fastcgi_script_name", "$realpath_root$fastcgi_script_name", "$request_filename"],
    ),
    ("SCRIPT_NAME", &["$fastcgi_script_name"]),
    ("QUERY_STRING", &["$query_string", "$args"]),
    ("REQUEST_METHOD", &["$request_method"]),
    ("CONTENT_TYPE", &["$content_type"]),
    ("CONTENT_LENGTH", &["$content_length"]),
    ("REQUEST_URI", &["$request_uri"]),
    ("DOCUMENT_URI", &["$document_uri", "$uri"]),
    ("DOCUMENT_ROOT", &["$document_root", "$realpath_root"]),
    ("SERVER_PROTOCOL", &["$server_protocol"]),
    ("REQUEST_SCHEME", &["$scheme"]),
    ("HTTPS", &["$https"]),
    ("GATEWAY_INTERFACE", &["CGI/1.1"]),
    ("REMOTE_ADDR", &["$remote_addr"]),
    ("REMOTE_PORT", &["$remote_port"]),
    ("REMOTE_USER", &["$remote_user"]),
    ("SERVER_ADDR", &["$server_addr"]),
    ("SERVER_NAME", &["$host"]),
    ("REDIRECT_STATUS", &["200"]),
    ("PATH_INFO", &["$fastcgi_path_info"]),
    ("PATH_TRANSLATED", &["$document_root$fastcgi_path_info", "$realpath_root$fastcgi_path_info"]),
];

/// nginx's limit for a request's content, in bytes.
const BODY_DEFAULT: u64 = 1 << 20;
/// Bytes of content without a Content-Length that are buffered, in memory; nginx buffers all of it in files.
const BUFFER_MAX: u64 = 16 << 20;

/// The third word of a `fastcgi_param` that is sent only with a value.
const IF_NOT_EMPTY: &str = "if_not_empty";

/// Variables of `fastcgi_split_path_info`.
const SCRIPT: &str = "fastcgi_script_name";
const PATH_INFO: &str = "fastcgi_path_info";

impl<'a> Translator<'a> {
    /// Defines the variables of `fastcgi_split_path_info`, if rules of the location have them. They are those of the
    /// path as it is here.
    pub(super) fn write_script_names(
        &mut self,
        out: &mut Vec<String>,
        location: &Location<'a>,
        scope: &mut VariableScope,
    ) {
        let is_usual =
            |d: &Directive| USUAL.iter().any(|(name, texts)| d.argument(0) == *name && texts.contains(&d.argument(1)));
        let in_rules = |d: &&Directive| !(d.name == "fastcgi_param" && is_usual(d));
        let runs = has_programs(location.own());
        let has_alias = alias_of(location).is_some() && !own(location.own(), "fastcgi_pass").is_empty();
        // The parameters may be those of a block around the location.
        let parameters = inherited(&location.blocks, "fastcgi_param").into_iter().filter(|_| runs);
        let has_name = has_alias || location.own().block().iter().chain(parameters).filter(in_rules).any(has_script);
        let Some(split) = Some(&location.blocks).filter(|_| has_name).and_then(|blocks| self.split(out, blocks)) else {
            if has_alias {
                out.push(format!("vars {} {{path}}", variable(SCRIPT)));
                self.write_index_of_script(out, location);
                scope.set.push(SCRIPT.to_owned());
            }
            return;
        };
        let name = self.fresh("script");
        let whole = self.fresh("path");
        let mut lines = vec![
            format!("@{whole} path_regexp {whole} {WHOLE_PATH}"),
            format!("vars @{whole} {} {{re.{whole}.0}}", variable(SCRIPT)),
            format!("@{name} path_regexp {name} {}", quote(split.argument(0))),
            format!("vars @{name} {} {{re.{name}.1}}", variable(SCRIPT)),
            format!("vars @{name} {} {{re.{name}.2}}", variable(PATH_INFO)),
        ];
        self.write_index_of_script(&mut lines, location);
        block(out, "route", lines);
        scope.set.extend([SCRIPT.to_owned(), PATH_INFO.to_owned()]);
    }

    /// Adds the `fastcgi_index` to the variable with the script's name, as nginx does for a name with a slash at its
    /// end.
    fn write_index_of_script(&mut self, out: &mut Vec<String>, location: &Location<'a>) {
        if let Some(index) = value(&location.blocks, "fastcgi_index") {
            let (name, script) = (self.fresh("directory"), variable(SCRIPT));
            out.push(format!("@{name} vars_regexp {script} /$"));
            out.push(format!("vars @{name} {script} {}", quote(&format!("{{vars.{script}}}{index}"))));
        }
    }

    /// The line `fastcgi_split_path_info`, if its expression has an equivalent.
    fn split(&mut self, out: &mut Vec<String>, blocks: &[&'a Directive]) -> Option<&'a Directive> {
        let split = *inherited(blocks, "fastcgi_split_path_info").last()?;
        match compiled(split.argument(0)) {
            Ok(_) => Some(split),
            Err(mistake) => {
                self.note(out, split, &format!("no equivalent expression: {mistake}"));
                None
            }
        }
    }

    /// Writes the upstream, with the lines that hide its fields.
    pub(super) fn write_fastcgi(
        &mut self,
        out: &mut Vec<String>,
        pass: &Directive,
        location: &Location<'a>,
        scope: &VariableScope,
        hidden: Vec<String>,
    ) {
        let blocks = &*location.blocks;
        let hosts = self.upstream_addresses(pass.argument(0), 80);
        if hosts.is_empty() {
            out.push("error 502".to_owned());
            return self.note(out, pass, "all servers of the upstream are down; requests fail with 502");
        }
        // The script's name is that of the split path.
        let may_be_directory = !matches!(&location.pattern, Pattern::Regexp(expression) if ends(expression).is_some());
        let index = value(blocks, "fastcgi_index").filter(|_| may_be_directory).map(|index| {
            let name = self.fresh("directory");
            [format!("@{name} path */"), format!("rewrite @{name} {}", quote(&format!("{{path}}{index}")))]
        });
        let mut lines = script_root(location, scope);
        // Every path is a script's whole name, of which `fastcgi_split_path_info` cuts the end off. Caddy's `split
        // .php` would run `/admin.php` for `/admin.php~`, which rules for the former do not refuse.
        lines.push("split \"\"".to_owned());
        let parameters = inherited(blocks, "fastcgi_param");
        let is_sent = |d: &&&Directive| {
            !USUAL.iter().any(|(name, texts)| *name == d.argument(0) && texts.contains(&d.argument(1)))
        };
        let sent: Vec<_> = parameters.iter().filter(is_sent).map(|d| d.argument(1)).collect();
        let mut scope = scope.clone();
        match self.split(out, blocks) {
            Some(split) => {
                // The path of the request, of which the script's name is a part.
                scope = self.with_path(out, &scope, sent);
                self.write_split(out, &mut lines, split, index, &parameters);
            }
            None => {
                out.extend(index.into_iter().flatten());
                scope = self.with_path(out, &scope, sent);
            }
        }
        let scope = &scope;
        let has_real_path =
            |d: &&Directive| d.argument(0) == "SCRIPT_FILENAME" && d.argument(1).starts_with("$realpath_root");
        if parameters.iter().any(has_real_path) {
            lines.push("resolve_root_symlink".to_owned());
        }
        self.write_parameters(out, &mut lines, &parameters, scope);
        self.write_transport_times(out, &mut lines, "fastcgi", blocks);
        let mut transport = hidden;
        transport.extend(request_buffers(blocks));
        // A field of FastCGI, not of HTTP.
        transport.push("header_down -Status".to_owned());
        transport.extend(without_kept_fields(blocks));
        transport.extend(self.outer_fields.line_of_upstream());
        self.write_intercepted(&mut transport, "fastcgi", blocks);
        self.write_accel(&mut transport, "fastcgi", location, scope);
        block(&mut transport, "transport fastcgi", lines);
        block(out, &format!("reverse_proxy {}", hosts.join(" ")), transport);
    }

    /// Writes the rewrite for `fastcgi_split_path_info`, with the lines of the index, and the parameters that have its
    /// result.
    fn write_split(
        &mut self,
        out: &mut Vec<String>,
        lines: &mut Vec<String>,
        split: &Directive,
        index: Option<[String; 2]>,
        parameters: &[&Directive],
    ) {
        let name = self.fresh("script");
        let mut script = vec![
            format!("@{name} path_regexp {name} {}", quote(split.argument(0))),
            format!("rewrite @{name} {{re.{name}.1}} escape_values"),
        ];
        match index {
            Some(index) => {
                script.extend(index);
                block(out, "route", script);
            }
            None => out.extend(script),
        }
        let info = format!("{{re.{name}.2}}");
        for (parameter, variables, value) in [
            ("PATH_INFO", &["$fastcgi_path_info"][..], info.clone()),
            ("PATH_TRANSLATED", &["$fastcgi_path_info"], format!("{{http.vars.root}}{info}")),
            // The path before it was split.
            ("DOCUMENT_URI", &["$document_uri", "$uri"], format!("{{path}}{info}")),
        ] {
            let has = |d: &&Directive| variables.iter().any(|variable| d.argument(1).ends_with(variable));
            if parameters.iter().any(|d| d.argument(0) == parameter && has(d)) {
                lines.push(format!("env {parameter} {value}"));
            }
        }
    }

    /// Writes the parameters that have another value than the transport gives them.
    fn write_parameters(
        &mut self,
        out: &mut Vec<String>,
        lines: &mut Vec<String>,
        parameters: &[&Directive],
        scope: &VariableScope,
    ) {
        for (index, parameter) in parameters.iter().enumerate() {
            let (name, text) = (parameter.argument(0), parameter.argument(1));
            let usual = USUAL.iter().find(|(usual, _)| *usual == name).map_or(&[][..], |(_, texts)| texts);
            // A program takes the last of several values. The one of nginx's `fastcgi_params` is for requests over TLS
            // only.
            let is_of_tls =
                |d: &&&Directive| name == "HTTPS" && d.argument(1) == "$https" && d.argument(2) == IF_NOT_EMPTY;
            let mut later = parameters[index + 1..].iter().filter(|later| later.argument(0) == name).peekable();
            let may_stay = later.peek().is_some_and(is_of_tls);
            let is_replaced = later.any(|later| !is_of_tls(&later));
            // The transport sends the host of the request, which a client chooses. Without a name there is nothing
            // better.
            let is_nameless = matches!(text, "$server_name" | "${server_name}")
                && (scope.server_name.is_empty() || scope.server_name == "_");
            if is_replaced || usual.contains(&text) || (name == "SERVER_NAME" && is_nameless) {
                continue;
            }
            if parameter.argument(2) == IF_NOT_EMPTY && !variables(text).is_empty() {
                self.remark(out, parameter, "an empty value is sent too");
            }
            // Programs such as WordPress look for the name of the server only.
            let text = text.strip_suffix("/$nginx_version").unwrap_or(text);
            let Some(text) = self.expand(out, parameter, scope, text) else { continue };
            let text = if may_stay && text != "on" { self.with_tls(out, &text) } else { text };
            lines.push(format!("env {} {}", quote(name), quote(&text)));
        }
    }

    /// Writes the lines that give a variable this value of HTTPS, or `on` for a request over TLS; returns its
    /// placeholder.
    fn with_tls(&mut self, out: &mut Vec<String>, text: &str) -> String {
        let name = self.fresh("https");
        let lines = vec![
            format!("@{name} protocol https"),
            format!("vars {name} {}", quote(text)),
            format!("vars @{name} {name} on"),
        ];
        block(out, "route", lines);
        format!("{{vars.{name}}}")
    }
}

/// The lines for the directory that the upstream's scripts are in.
fn script_root(location: &Location<'_>, scope: &VariableScope) -> Vec<String> {
    if alias_of(location).is_some() {
        return vec![
            "root {http.vars.root}".to_owned(),
            format!("env SCRIPT_NAME {{vars.{}}}", variable(SCRIPT)),
            format!("env DOCUMENT_URI {{vars.{}}}", variable(SCRIPT)),
        ];
    }
    let root = value(&location.blocks, "root").and_then(|root| scope.expand(root).ok());
    Vec::from_iter(root.map(|root| format!("root {}", quote(&root))))
}

/// The line that buffers contents, unless they are sent as they arrive: FastCGI needs their length.
fn request_buffers(blocks: &[&Directive]) -> Option<String> {
    if value(blocks, "fastcgi_request_buffering") == Some("off") {
        return None;
    }
    let size = value(blocks, "client_max_body_size").and_then(bytes).unwrap_or(BODY_DEFAULT);
    let size = if size == 0 { BUFFER_MAX } else { size.min(BUFFER_MAX) };
    Some(format!("request_buffers {size}"))
}

/// Whether a directive, or one within it, has a variable of `fastcgi_split_path_info`.
fn has_script(directive: &Directive) -> bool {
    let is_script = |word: &String| variables(word).into_iter().any(|name| matches!(name, SCRIPT | PATH_INFO));
    directive.arguments.iter().any(is_script)
        || directive.name != "location" && directive.block().iter().any(has_script)
}
