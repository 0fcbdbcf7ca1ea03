//! The exchange as values of the template language: Caddy's `TemplateContext`, Go's `http.Request` and `url.URL`.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;

use causeway_go_template::{
    CallContext, Element, FunctionError, IntegerType, List, Map, Object, Signature, Type, Value,
};
use causeway_message::{FieldName, FieldValue, Version, query};
use causeway_pipeline::{Client, UNIX_PEER};

use super::functions::FieldChange;
use super::request::{RequestFacts, Snapshot, TlsValues, canonical};
use super::text::{bytes_of, string_of};

const NO_PARAMETERS: Signature = Signature::fixed(&[]);
const ONE_TEXT: Signature = Signature::fixed(&[Type::String]);
const TWO_TEXTS: Signature = Signature::fixed(&[Type::String, Type::String]);

/// The dot of a template.
#[derive(Clone)]
pub(super) struct Dot {
    snapshot: Arc<Snapshot>,
    /// The arguments of `include`.
    arguments: Value,
    /// The changes of the response's fields.
    changes: Rc<RefCell<Vec<FieldChange>>>,
}

impl std::fmt::Debug for Dot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Dot")
    }
}

impl Dot {
    pub(super) fn new(
        snapshot: &Arc<Snapshot>,
        arguments: Vec<Value>,
        changes: &Rc<RefCell<Vec<FieldChange>>>,
    ) -> Self {
        Self { snapshot: Arc::clone(snapshot), arguments: Value::list(arguments), changes: Rc::clone(changes) }
    }
}

impl Object for Dot {
    fn type_name(&self) -> &str {
        "*templates.TemplateContext"
    }

    fn field(&self, name: &str) -> Option<Value> {
        if let Some(found) = self.snapshot.dot.as_ref().and_then(|dot| Arc::clone(dot).field(name)) {
            return Some(found);
        }
        match name {
            "Args" => Some(self.arguments.clone()),
            "Req" => Some(request(&self.snapshot, false)),
            "RespHeader" => Some(Value::Object(Rc::new(ResponseFields(self.clone())))),
            _ => None,
        }
    }

    fn method(&self, name: &str) -> Option<Signature> {
        if let Some(found) = self.snapshot.dot.as_ref().and_then(|dot| dot.method(name)) {
            return Some(found);
        }
        match name {
            "ClientIP" | "Host" | "OriginalReq" | "RemoteIP" => Some(NO_PARAMETERS),
            "Cookie" => Some(ONE_TEXT),
            _ => None,
        }
    }

    fn invoke(&self, name: &str, arguments: &[Value], _: &mut CallContext<'_>) -> Result<Value, FunctionError> {
        if let Some(dot) = self.snapshot.dot.as_ref().filter(|dot| dot.method(name).is_some()) {
            return Ok(dot.invoke(name));
        }
        let facts = &self.snapshot.request;
        Ok(match name {
            "ClientIP" => match self.snapshot.client {
                Client { ip: Some(ip), .. } => address(ip).into(),
                Client { proxied: true, .. } => UNIX_PEER.into(),
                Client { .. } => "".into(),
            },
            "RemoteIP" => facts.peer.map_or_else(|| UNIX_PEER.into(), |peer| address(peer.ip()).into()),
            "Host" => return host(&facts.host),
            "OriginalReq" => request(&self.snapshot, true),
            _ => facts.cookie(bytes_of(&arguments[0])).map_or_else(|| Value::from(""), bytes),
        })
    }
}

fn bytes(text: &[u8]) -> Value {
    Value::String(text.into())
}

fn address(ip: IpAddr) -> String {
    ip.to_canonical().to_string()
}

/// Returns the host without its port. As in Go, a colon that begins no port is an error.
fn host(authority: &str) -> Result<Value, FunctionError> {
    let Some((host, _)) = authority.rsplit_once(':') else { return Ok(authority.into()) };
    let is_literal = host.starts_with('[') && host.ends_with(']');
    if host.contains(':') && !is_literal {
        return Err(format!("address {authority}: too many colons in address").into());
    }
    Ok(host.trim_start_matches('[').trim_end_matches(']').into())
}

fn request(snapshot: &Arc<Snapshot>, is_original: bool) -> Value {
    Value::Object(Rc::new(RequestValue(RequestRef { snapshot: Arc::clone(snapshot), is_original })))
}

/// The request of a snapshot, or its original form.
#[derive(Clone)]
struct RequestRef {
    snapshot: Arc<Snapshot>,
    is_original: bool,
}

impl RequestRef {
    fn facts(&self) -> &RequestFacts {
        if self.is_original { &self.snapshot.original } else { &self.snapshot.request }
    }
}

/// Go's `http.Request`.
struct RequestValue(RequestRef);

impl std::fmt::Debug for RequestValue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("RequestValue")
    }
}

impl RequestValue {
    fn first(&self, name: &str) -> Value {
        self.0.facts().values(name).next().map_or_else(|| Value::from(""), bytes)
    }
}

impl Object for RequestValue {
    fn type_name(&self) -> &str {
        if self.0.is_original { "http.Request" } else { "*http.Request" }
    }

    fn kind(&self) -> &str {
        if self.0.is_original { "struct" } else { "ptr" }
    }

    fn field(&self, name: &str) -> Option<Value> {
        let facts = self.0.facts();
        let (major, minor) = match facts.version {
            Version::Http2 => (2, 0),
            Version::Http11 => (1, 1),
            Version::Http10 => (1, 0),
        };
        Some(match name {
            "Method" => facts.method.as_str().into(),
            "URL" => Value::Object(Rc::new(Url(self.0.clone()))),
            "Proto" => format!("HTTP/{major}.{minor}").into(),
            "ProtoMajor" => Value::Int(major),
            "ProtoMinor" => Value::Int(minor),
            // As in Go, Host is no field of the request.
            "Header" => {
                let fields = facts.fields.iter().filter(|(name, _)| name != "Host");
                lists("http.Header", true, fields.map(|(name, value)| (name.as_str(), &**value)))
            }
            "TLS" => match &self.0.snapshot.tls {
                Some(tls) => Value::Object(Rc::new(tls.clone())),
                None => Value::Nil,
            },
            "ContentLength" => {
                let length = facts.content_length.and_then(|length| i64::try_from(length).ok());
                Value::Integer(length.unwrap_or_default(), IntegerType::Int64)
            }
            "Host" => facts.host.as_str().into(),
            "RemoteAddr" => facts.peer.map_or_else(|| UNIX_PEER.into(), |peer| peer.to_string().into()),
            // As in Caddy, whose rewrites set it too.
            "RequestURI" => bytes(&facts.target),
            _ => return None,
        })
    }

    fn method(&self, name: &str) -> Option<Signature> {
        match name {
            "UserAgent" | "Referer" | "Cookies" => Some(NO_PARAMETERS),
            "FormValue" | "Cookie" => Some(ONE_TEXT),
            "ProtoAtLeast" => Some(Signature::fixed(&[Type::Int, Type::Int])),
            _ => None,
        }
    }

    fn invoke(&self, name: &str, arguments: &[Value], _: &mut CallContext<'_>) -> Result<Value, FunctionError> {
        Ok(match name {
            "UserAgent" => self.first("User-Agent"),
            "Referer" => self.first("Referer"),
            "Cookies" => {
                let cookies = self.0.facts().cookies().map(|(name, value)| cookie(name, value)).collect::<Vec<_>>();
                Value::List(List::new(cookies, Element::Any))
            }
            "Cookie" => {
                let name = bytes_of(&arguments[0]);
                let value = self.0.facts().cookie(name).ok_or_else(|| "http: named cookie not present".to_owned())?;
                cookie(name, value)
            }
            "ProtoAtLeast" => {
                let number = |index: usize| arguments[index].as_integer().unwrap_or_default();
                let own = if self.0.facts().version == Version::Http2 {
                    (2, 0)
                } else {
                    (1, i64::from(self.0.facts().version == Version::Http11))
                };
                Value::Bool(own >= (number(0), number(1)))
            }
            // Of the query alone: other handlers have read the body.
            _ => {
                let wanted = bytes_of(&arguments[0]);
                let found = query_pairs(self.0.facts().query.as_deref().unwrap_or_default());
                found
                    .into_iter()
                    .find(|(name, _)| name == wanted)
                    .map_or_else(|| Value::from(""), |(_, value)| bytes(&value))
            }
        })
    }
}

/// Go's `tls.ConnectionState`.
impl Object for TlsValues {
    fn type_name(&self) -> &str {
        "*tls.ConnectionState"
    }

    fn field(&self, name: &str) -> Option<Value> {
        Some(match name {
            "Version" => Value::Int(self.version.into()),
            "CipherSuite" => Value::Int(self.cipher_suite.into()),
            "NegotiatedProtocol" => self.protocol.into(),
            "ServerName" => self.server_name.as_str().into(),
            "DidResume" => Value::Bool(self.is_resumed),
            "HandshakeComplete" => Value::Bool(true),
            _ => return None,
        })
    }
}

/// Go's `http.Cookie` of a request.
#[derive(Debug)]
struct Cookie {
    name: Value,
    value: Value,
}

fn cookie(name: &[u8], value: &[u8]) -> Value {
    Value::Object(Rc::new(Cookie { name: bytes(name), value: bytes(value) }))
}

impl Object for Cookie {
    fn type_name(&self) -> &str {
        "*http.Cookie"
    }

    fn field(&self, name: &str) -> Option<Value> {
        match name {
            "Name" => Some(self.name.clone()),
            "Value" => Some(self.value.clone()),
            _ => None,
        }
    }
}

/// Go's `url.URL` of a request.
struct Url(RequestRef);

impl std::fmt::Debug for Url {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Url")
    }
}

impl Url {
    fn raw_path(&self) -> &[u8] {
        self.0.facts().target.split(|byte| *byte == b'?').next().unwrap_or_default()
    }
}

impl Object for Url {
    fn type_name(&self) -> &str {
        "*url.URL"
    }

    fn field(&self, name: &str) -> Option<Value> {
        let facts = self.0.facts();
        Some(match name {
            "Path" => bytes(&facts.path),
            "RawQuery" => facts.query.as_deref().unwrap_or_default().into(),
            // The target of a request has neither.
            "Scheme" | "Host" | "Fragment" | "Opaque" | "RawPath" => "".into(),
            "ForceQuery" => Value::Bool(facts.query.as_deref() == Some("")),
            _ => return None,
        })
    }

    fn method(&self, name: &str) -> Option<Signature> {
        matches!(name, "String" | "RequestURI" | "EscapedPath" | "Query" | "Hostname" | "Port" | "IsAbs")
            .then_some(NO_PARAMETERS)
    }

    fn invoke(&self, name: &str, _: &[Value], _: &mut CallContext<'_>) -> Result<Value, FunctionError> {
        Ok(match name {
            "Query" => {
                let pairs = query_pairs(self.0.facts().query.as_deref().unwrap_or_default());
                let pairs: Vec<_> = pairs
                    .into_iter()
                    .map(|(name, value)| (String::from_utf8_lossy(&name).into_owned(), value))
                    .collect();
                lists("url.Values", false, pairs.iter().map(|(name, value)| (name.as_str(), &**value)))
            }
            "EscapedPath" => bytes(self.raw_path()),
            "Hostname" | "Port" => "".into(),
            "IsAbs" => Value::Bool(false),
            _ => bytes(&self.0.facts().target),
        })
    }

    fn text(&self) -> Option<String> {
        Some(String::from_utf8_lossy(&self.0.facts().target).into_owned())
    }
}

/// Parses a query as Go does: a pair with a semicolon or a bad escape is left out.
fn query_pairs(text: &str) -> Vec<(Vec<u8>, Vec<u8>)> {
    let decode = |part: &[u8]| {
        let mut decoded = Vec::new();
        query::decode(part, &mut decoded).then_some(decoded)
    };
    query::pairs(text.as_bytes()).filter_map(|(name, value)| Some((decode(name)?, decode(value)?))).collect()
}

/// Makes a map of lists with methods: `http.Header` or `url.Values`.
fn lists<'t>(type_name: &'static str, is_header: bool, pairs: impl Iterator<Item = (&'t str, &'t [u8])>) -> Value {
    let mut values = BTreeMap::<String, Vec<Value>>::new();
    for (name, value) in pairs {
        values.entry(name.to_owned()).or_default().push(bytes(value));
    }
    Value::Object(Rc::new(Lists { type_name, is_header, values }))
}

#[derive(Debug)]
struct Lists {
    type_name: &'static str,
    /// Names are compared in Go's canonical form.
    is_header: bool,
    values: BTreeMap<String, Vec<Value>>,
}

impl Lists {
    fn values(&self, name: &Value) -> &[Value] {
        let name = string_of(name);
        let name = if self.is_header { canonical(&name) } else { name };
        self.values.get(&name).map_or(&[], Vec::as_slice)
    }
}

impl Object for Lists {
    fn type_name(&self) -> &str {
        self.type_name
    }

    fn kind(&self) -> &str {
        "map"
    }

    fn method(&self, name: &str) -> Option<Signature> {
        match (name, self.is_header) {
            ("Get", _) | ("Values", true) | ("Has", false) => Some(ONE_TEXT),
            _ => None,
        }
    }

    fn invoke(&self, name: &str, arguments: &[Value], _: &mut CallContext<'_>) -> Result<Value, FunctionError> {
        let values = self.values(&arguments[0]);
        Ok(match name {
            "Get" => values.first().cloned().unwrap_or_else(|| "".into()),
            "Has" => Value::Bool(!values.is_empty()),
            _ => Value::strings(values.iter().cloned()),
        })
    }

    fn underlying(&self) -> Option<Value> {
        let entries = self
            .values
            .iter()
            .map(|(name, values)| (Arc::from(name.as_bytes()), Value::strings(values.iter().cloned())));
        Some(Value::Map(Map::new(entries.collect(), Element::Strings)))
    }
}

/// The fields of the response, which a template may change.
#[derive(Debug)]
struct ResponseFields(Dot);

/// Returns the fields of the response with the changes so far.
fn changed_fields(snapshot: &Snapshot, changes: &[FieldChange]) -> Vec<(String, Vec<u8>)> {
    let mut fields = snapshot.response.clone();
    for change in changes {
        match change {
            FieldChange::Add(name, value) => fields.push((name.clone(), value.clone())),
            FieldChange::Set(name, value) => {
                fields.retain(|(field, _)| field != name);
                fields.push((name.clone(), value.clone()));
            }
            FieldChange::Del(name) => fields.retain(|(field, _)| field != name),
        }
    }
    fields
}

/// Returns the values of one field of the response with the changes so far.
pub(super) fn changed_values<'s>(snapshot: &'s Snapshot, changes: &'s [FieldChange], field: &str) -> Vec<&'s [u8]> {
    let sent = snapshot.response.iter().filter(|(name, _)| name == field);
    let mut values: Vec<&[u8]> = sent.map(|(_, value)| &**value).collect();
    for change in changes {
        match change {
            FieldChange::Add(name, value) if name == field => values.push(value),
            FieldChange::Set(name, value) if name == field => {
                values.clear();
                values.push(value);
            }
            FieldChange::Del(name) if name == field => values.clear(),
            _ => {}
        }
    }
    values
}

impl ResponseFields {
    fn lists(&self) -> Value {
        let fields = changed_fields(&self.0.snapshot, &self.0.changes.borrow());
        lists("http.Header", true, fields.iter().map(|(name, value)| (name.as_str(), &**value)))
    }
}

impl Object for ResponseFields {
    fn type_name(&self) -> &str {
        "templates.WrappedHeader"
    }

    fn kind(&self) -> &str {
        "struct"
    }

    fn field(&self, name: &str) -> Option<Value> {
        (name == "Header").then(|| self.lists())
    }

    fn method(&self, name: &str) -> Option<Signature> {
        match name {
            "Add" | "Set" => Some(TWO_TEXTS),
            "Del" | "Get" | "Values" => Some(ONE_TEXT),
            _ => None,
        }
    }

    fn invoke(&self, name: &str, arguments: &[Value], call: &mut CallContext<'_>) -> Result<Value, FunctionError> {
        if matches!(name, "Get" | "Values") {
            call.charge_steps(self.0.snapshot.response.len() + self.0.changes.borrow().len())?;
            if let Value::Object(lists) = self.lists() {
                return lists.invoke(name, arguments, call);
            }
        }
        let field = canonical(&string_of(&arguments[0]));
        if FieldName::parse(&field).is_none() {
            return Err(format!("'{field}' is no name of a field").into());
        }
        let value = arguments.get(1).map(|value| bytes_of(value).to_vec()).unwrap_or_default();
        if FieldValue::parse(&value).is_none() {
            return Err(format!("the value for {field} has characters that a field cannot have").into());
        }
        // Each change is kept until the end.
        call.charge_memory(field.len() + value.len() + 64)?;
        self.0.changes.borrow_mut().push(match name {
            "Add" => FieldChange::Add(field, value),
            "Set" => FieldChange::Set(field, value),
            _ => FieldChange::Del(field),
        });
        Ok("".into())
    }
}
