//! DNS providers in a Caddyfile: `NAME [ARGUMENT] { SETTING VALUE … }`.

use serde_json::{Map, Value};

use super::super::directives::texts;
use super::super::dispenser::Dispenser;
use super::super::error::{Error, ErrorKind};
use super::super::members::Members;
use crate::dns::{Form, NAMES, ProviderSyntax};

/// The settings of an account of `acmedns`.
const ACCOUNT: &[&str] = &["fulldomain", "password", "server_url", "subdomain", "username"];

/// Parses a provider: its name, the argument and the block that may follow.
pub(crate) fn provider(d: &mut Dispenser<'_>) -> Result<Value, Error> {
    let name = d.require()?;
    let Some(provider) = ProviderSyntax::of(&name.text) else {
        return Err(d.unknown_module("getting module named 'dns.providers.{}': module not registered", NAMES));
    };
    let mut settings = Map::from_iter([("name".to_owned(), Value::from(provider.name))]);
    if !provider.argument.is_empty()
        && let Some(argument) = d.argument()
    {
        settings.text(provider.argument, &argument.text);
    }
    for setting in provider.settings.iter().filter(|setting| setting.form == Form::Words) {
        settings.list(setting.key, texts(d.rest()));
    }
    d.expect_no_argument()?;
    for mut line in d.lines() {
        setting(provider, &mut settings, &mut line)?;
    }
    let mut missing = provider.required().filter(|key| !settings.contains_key(*key));
    match missing.next() {
        None => Ok(settings.into()),
        Some(key) => {
            let sentence = format!("missing {key} of the DNS provider {}; it has {}", provider.name, provider.keys());
            Err(Error::at(name, ErrorKind::Custom(sentence.into())))
        }
    }
}

fn setting(
    provider: &'static ProviderSyntax,
    settings: &mut Map<String, Value>,
    line: &mut Dispenser<'_>,
) -> Result<(), Error> {
    let name = line.name();
    let key = match (&*name.text, provider.name) {
        // The plugin's word for the member `auth_token`.
        ("api_token", "digitalocean") => "auth_token",
        // An earlier word of the plugin.
        ("token", "route53") => "session_token",
        (key, _) => key,
    };
    if let Some(reason) = provider.ignored(key) {
        line.sole_argument()?;
        line.warn(name, format!("'{key}' of the DNS provider {} has no effect: {reason}", provider.name));
        return line.expect_end_of_line();
    }
    let Some(form) = provider.form(key) else {
        let sentence = format!("unrecognized subdirective '{}'; expected {}", name.text, provider.keys());
        return Err(Error::at(name, ErrorKind::Custom(sentence.into())));
    };
    if settings.contains_key(key) {
        return Err(line.word("'{}' is already set"));
    }
    match form {
        Form::Required | Form::Optional => settings.text(key, &line.sole_argument()?.text),
        Form::Words => {
            line.require()?;
            line.rest();
            settings.list(key, texts(line.arguments()));
        }
        Form::Accounts => {
            line.expect_no_argument()?;
            let accounts = accounts(line)?;
            settings.insert(key.to_owned(), accounts.into());
            return Ok(());
        }
    }
    line.expect_end_of_line()
}

/// Parses `config { NAME { SETTING VALUE … } … }`.
fn accounts(d: &mut Dispenser<'_>) -> Result<Map<String, Value>, Error> {
    let mut accounts = Map::new();
    for mut line in d.lines() {
        line.expect_no_argument()?;
        let mut account = Map::new();
        for mut setting in line.lines() {
            if !ACCOUNT.contains(&&*setting.name().text) {
                return Err(setting.unknown("unrecognized subdirective '{}'", ACCOUNT));
            }
            let key = setting.name().text.to_string();
            account.text(&key, &setting.sole_argument()?.text);
            setting.expect_end_of_line()?;
        }
        accounts.insert(line.name().text.to_string(), account.into());
    }
    Ok(accounts)
}
