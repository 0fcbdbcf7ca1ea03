//! The PKI app: the local certificate authorities. Also the directive `acme_server`, which uses one.

use serde_json::{Map, Value, json};

use super::EvaluatedSite;
use super::dispenser::Dispenser;
use super::error::{Error, ErrorKind};
use super::members::Members;
use super::options::{Options, nested_duration};
use super::quantity::ratio;
use super::registry::DirectiveOutput;
use super::servers::ServerGroup;

/// The ID of the authority that is used if none is named.
const LOCAL: &str = "local";

/// Parses `pki { ca [<name>] { … } … }` into the authorities by ID.
pub(crate) fn option(d: &mut Dispenser<'_>) -> Result<Map<String, Value>, Error> {
    let mut authorities = Map::new();
    d.expect_no_argument()?;
    for mut line in d.lines() {
        if &*line.name().text != "ca" {
            return Err(line.unknown("unrecognized pki option '{}'", &["ca"]));
        }
        let name = line.argument().map_or("", |token| &token.text);
        line.expect_no_argument()?;
        let authority = authority(&line)?;
        authorities.insert((if name.is_empty() { LOCAL } else { name }).to_owned(), authority.into());
    }
    Ok(authorities)
}

fn authority(d: &Dispenser<'_>) -> Result<Map<String, Value>, Error> {
    const OPTIONS: &[&str] = &[
        "intermediate",
        "intermediate_cn",
        "intermediate_lifetime",
        "maintenance_interval",
        "name",
        "renewal_window_ratio",
        "root",
        "root_cn",
    ];
    let mut authority = Map::new();
    for mut line in d.lines() {
        match &*line.name().text {
            "name" => authority.text("name", &line.require()?.text),
            "root_cn" => authority.text("root_common_name", &line.require()?.text),
            "intermediate_cn" => authority.text("intermediate_common_name", &line.require()?.text),
            name @ ("intermediate_lifetime" | "maintenance_interval") => {
                let span = nested_duration(&mut line)?;
                authority.number(name, span);
            }
            "renewal_window_ratio" => {
                let number = ratio(&line.require()?.text).filter(|ratio| *ratio > 0.0 && *ratio <= 1.0);
                let rule = "renewal_window_ratio must be a number in (0, 1], got {}; expected one such as 0.3";
                let number = number.ok_or_else(|| line.word(rule))?;
                // Go prints a whole number without a fraction, so JSON readers see an integer.
                authority.insert("renewal_window_ratio".into(), if number < 1.0 { json!(number) } else { json!(1) });
            }
            name @ ("root" | "intermediate") => {
                let rule = match name {
                    "root" => "unrecognized pki ca root option '{}'",
                    _ => "unrecognized pki ca intermediate option '{}'",
                };
                line.expect_no_argument()?;
                let pair = authority.child(name);
                for line in line.lines() {
                    key_pair(pair, line, rule)?;
                }
                continue;
            }
            _ => return Err(line.unknown("unrecognized pki ca option '{}'", OPTIONS)),
        }
        line.expect_end_of_line()?;
    }
    Ok(authority)
}

fn key_pair(pair: &mut Map<String, Value>, mut line: Dispenser<'_>, rule: &'static str) -> Result<(), Error> {
    let key = match &*line.name().text {
        "cert" => "certificate",
        "key" => "private_key",
        "format" => "format",
        _ => return Err(line.unknown(rule, &["cert", "format", "key"])),
    };
    pair.text(key, &line.require()?.text);
    line.expect_end_of_line()
}

/// The app's members. Empty if it needs no configuration.
pub(crate) fn pki_app(server_groups: &[ServerGroup], sites: &[EvaluatedSite], options: &Options) -> Map<String, Value> {
    let distrust = options.certificates.skip_install_trust;
    let plain = || {
        let mut authority = Map::new();
        if distrust {
            authority.insert("install_trust".into(), false.into());
        }
        Value::Object(authority)
    };
    let mut authorities = options.certificates.authorities.clone();
    for (_, authority) in authorities.iter_mut().filter(|_| distrust) {
        authority["install_trust"] = false.into();
    }
    let served = || server_groups.iter().flat_map(|group| &group.parts).map(|part| &sites[part.site]);
    for output in served().flat_map(|site| &site.outputs) {
        if let DirectiveOutput::Authority(name) = &output.output {
            authorities.entry(name.as_str()).or_insert_with(plain);
        }
    }
    if distrust {
        if authorities.is_empty() && !options.has_auto_https_option("off") {
            authorities.insert(LOCAL.into(), plain());
        }
        // A site's internal issuer needs its authority regardless of automatic HTTPS.
        for (tls, _) in served().flat_map(EvaluatedSite::tls) {
            for name in tls.issuers.iter().filter_map(|issuer| issuer.authority()) {
                authorities.entry(name).or_insert_with(plain);
            }
        }
    }
    let mut pki = Map::new();
    if !authorities.is_empty() {
        pki.insert("certificate_authorities".into(), authorities.into());
    }
    pki
}

/// Parses `acme_server [<matcher>] { ca …; lifetime …; resolvers …; challenges …; allow { … }; deny { … }; … }`.
pub(crate) fn acme_server(d: &mut Dispenser<'_>) -> Result<Vec<DirectiveOutput>, Error> {
    const OPTIONS: &[&str] =
        &["allow", "allow_wildcard_names", "ca", "challenges", "deny", "lifetime", "resolvers", "sign_with_root"];
    let matcher = d.matcher()?;
    d.expect_no_argument()?;
    let mut handler = Map::from_iter([("handler".to_owned(), Value::from("acme_server"))]);
    let mut authority = None;
    for mut line in d.lines() {
        match &*line.name().text {
            "ca" => {
                let name = &line.sole_argument()?.text;
                handler.text("ca", name);
                authority = Some(name.to_string());
            }
            "lifetime" => {
                let lifetime = nested_duration(&mut line)?;
                handler.number("lifetime", lifetime);
            }
            "resolvers" => {
                if line.remaining().is_empty() {
                    return Err(line.rule("must specify at least one resolver address"));
                }
                handler.list("resolvers", super::directives::texts(line.rest()));
            }
            "challenges" => handler.extend_list("challenges", super::directives::texts(line.rest())),
            "allow_wildcard_names" => handler.child("policy").switch_on("allow_wildcard_names"),
            name @ ("allow" | "deny") => {
                let rule = match name {
                    "allow" => "unrecognized 'allow' subdirective: {}",
                    _ => "unrecognized 'deny' subdirective: {}",
                };
                line.expect_no_argument()?;
                let rules = rules(&line, rule)?;
                handler.child("policy").insert(name.to_owned(), rules.into());
                continue;
            }
            "sign_with_root" => handler.switch_on("sign_with_root"),
            _ => return Err(line.unknown("unrecognized ACME server directive: {}", OPTIONS)),
        }
        line.expect_end_of_line()?;
    }
    let route = DirectiveOutput::Route(super::route::Route::new(matcher, handler.into()));
    Ok([route].into_iter().chain(authority.map(DirectiveOutput::Authority)).collect())
}

fn rules(d: &Dispenser<'_>, rule: &'static str) -> Result<Map<String, Value>, Error> {
    let mut rules = Map::new();
    for mut line in d.lines() {
        if line.remaining().is_empty() {
            return Err(line.count_error());
        }
        match &*line.name().text {
            name @ ("domains" | "ip_ranges") => {
                rules.extend_list(name, super::directives::texts(line.rest()));
            }
            name => {
                let kind = ErrorKind::Unknown { rule, name: name.into(), expected: &["domains", "ip_ranges"] };
                return Err(Error::at(line.name(), kind));
            }
        }
        line.expect_end_of_line()?;
    }
    Ok(rules)
}
