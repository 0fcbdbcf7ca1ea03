//! Versions by Semantic Versioning, and constraints on them, as `github.com/Masterminds/semver`.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::fmt;
use std::rc::Rc;
use std::sync::LazyLock;

use regex::Regex;

use super::{STRING, fixed, text};
use crate::error::FunctionError;
use crate::functions::{Builtin, CallContext, Signature, Type};
use crate::value::{Object, Value};

pub(super) static BUILTINS: &[Builtin] = &[
    fixed("semver", STRING, |call, args| {
        call.charge_memory(256 + 4 * text(&args[0]).len())?;
        let version = Semver::parse(&string(&args[0])?)?;
        Ok(Value::Object(Rc::new(VersionValue { version, is_pointer: true })))
    }),
    fixed("semverCompare", &[Type::String, Type::String], |call, args| {
        call.charge_memory(256 + 64 * text(&args[0]).len())?;
        call.charge_steps(text(&args[0]).len().saturating_mul(16))?;
        let constraints = constraints(&string(&args[0])?)?;
        let version = Semver::parse(&string(&args[1])?)?;
        let holds = constraints.iter().any(|all| all_hold(all, &version));
        Ok(Value::Bool(holds))
    }),
];

fn string(value: &Value) -> Result<String, FunctionError> {
    String::from_utf8(text(value).to_vec()).map_err(|_| "Invalid Semantic Version".into())
}

#[derive(Clone, Debug)]
struct Semver {
    major: u64,
    minor: u64,
    patch: u64,
    prerelease: String,
    metadata: String,
    original: String,
}

impl fmt::Display for Semver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)?;
        for (mark, part) in [("-", &self.prerelease), ("+", &self.metadata)] {
            if !part.is_empty() {
                write!(f, "{mark}{part}")?;
            }
        }
        Ok(())
    }
}

fn are_identifiers(text: &str) -> bool {
    text.split('.')
        .all(|part| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-'))
}

/// Checks a prerelease that may have empty parts.
fn check_prerelease(text: &str) -> Result<(), FunctionError> {
    for part in text.split('.') {
        if part.bytes().all(|byte| byte.is_ascii_digit()) {
            if part.len() > 1 && part.starts_with('0') {
                return Err("Version segment starts with 0".into());
            }
        } else if !are_identifiers(part) {
            return Err("Invalid Prerelease string".into());
        }
    }
    Ok(())
}

impl Semver {
    /// Parses `1`, `v1.2`, `1.2.3-beta.1+build`.
    fn parse(text: &str) -> Result<Self, FunctionError> {
        const INVALID: &str = "Invalid Semantic Version";
        let rest = text.strip_prefix('v').unwrap_or(text);
        let (rest, metadata) = rest.split_once('+').map_or((rest, None), |(rest, after)| (rest, Some(after)));
        let (numbers, prerelease) = rest.split_once('-').map_or((rest, None), |(rest, after)| (rest, Some(after)));
        if [metadata, prerelease].into_iter().flatten().any(|part| !are_identifiers(part)) {
            return Err(INVALID.into());
        }
        let mut values = [0; 3];
        for (index, part) in numbers.split('.').enumerate() {
            let is_number = !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
            let slot = values.get_mut(index).filter(|_| is_number).ok_or(INVALID)?;
            *slot = part.parse().map_err(|_| format!("Error parsing version segment: {part} is out of range"))?;
        }
        let prerelease = prerelease.unwrap_or_default();
        if !prerelease.is_empty() {
            check_prerelease(prerelease)?;
        }
        let [major, minor, patch] = values;
        let metadata = metadata.unwrap_or_default().to_owned();
        Ok(Self { major, minor, patch, prerelease: prerelease.to_owned(), metadata, original: text.to_owned() })
    }

    /// Compares by precedence: metadata does not count.
    fn compare(&self, other: &Self) -> Ordering {
        let numbers = |version: &Self| (version.major, version.minor, version.patch);
        numbers(self).cmp(&numbers(other)).then_with(|| match (&*self.prerelease, &*other.prerelease) {
            ("", "") => Ordering::Equal,
            ("", _) => Ordering::Greater,
            (_, "") => Ordering::Less,
            (a, b) => compare_prereleases(a, b),
        })
    }

    /// Changes the numbers or the parts after them. The original keeps its `v`.
    fn changed(&self, change: impl FnOnce(&mut Self)) -> Self {
        let mut next = self.clone();
        change(&mut next);
        let prefix = if self.original.starts_with('v') { "v" } else { "" };
        next.original = format!("{prefix}{next}");
        next
    }

    /// Removes the parts after the numbers.
    fn without_parts(&mut self) {
        self.prerelease.clear();
        self.metadata.clear();
    }
}

fn compare_prereleases(a: &str, b: &str) -> Ordering {
    let (mut a_parts, mut b_parts) = (a.split('.'), b.split('.'));
    loop {
        let order = match (a_parts.next(), b_parts.next()) {
            (None, None) => return Ordering::Equal,
            (a, b) => compare_identifiers(a.unwrap_or_default(), b.unwrap_or_default()),
        };
        if order != Ordering::Equal {
            return order;
        }
    }
}

/// Numbers are before other identifiers, and a missing one before all.
fn compare_identifiers(a: &str, b: &str) -> Ordering {
    match (a.parse::<u64>(), b.parse::<u64>()) {
        _ if a == b => Ordering::Equal,
        _ if a.is_empty() => Ordering::Less,
        _ if b.is_empty() => Ordering::Greater,
        (Ok(a), Ok(b)) => a.cmp(&b),
        (Ok(_), Err(_)) => Ordering::Less,
        (Err(_), Ok(_)) => Ordering::Greater,
        (Err(_), Err(_)) => a.cmp(b),
    }
}

/// A version in a constraint, where `x` or nothing stands for any number.
const VERSION: &str = r"v?([0-9|xX*]+)(\.[0-9|xX*]+)?(\.[0-9|xX*]+)?(-([0-9A-Za-z\-]+(\.[0-9A-Za-z\-]+)*))?(\+([0-9A-Za-z\-]+(\.[0-9A-Za-z\-]+)*))?";
const OPERATORS: &str = r"=||!=|>|<|>=|=>|<=|=<|~|~>|\^";
const SPACE: &str = r"[\t\n\f\r ]";

/// Compiles a pattern in which `S` stands for a space, `O` for an operator and `V` for a version.
fn pattern(form: &str) -> Option<Regex> {
    let form = form.replace('S', SPACE).replace('O', &format!("({OPERATORS})"));
    Regex::new(&form.replace('V', &format!("({VERSION})"))).ok()
}

static SINGLE: LazyLock<Option<Regex>> = LazyLock::new(|| pattern("^S*OS*VS*$"));
static EACH: LazyLock<Option<Regex>> = LazyLock::new(|| pattern("OS*V"));
static RANGE: LazyLock<Option<Regex>> = LazyLock::new(|| pattern("S*VS+-S+VS*"));
static ALL: LazyLock<Option<Regex>> = LazyLock::new(|| pattern("^(S*OS*VS*)((?:S+|,S*)OS*VS*)*$"));

#[derive(Clone, Copy, Eq, PartialEq)]
enum Operator {
    Caret,
    Equal,
    Greater,
    GreaterOrEqual,
    Less,
    LessOrEqual,
    NotEqual,
    Tilde,
}

struct Constraint {
    operator: Operator,
    version: Semver,
    /// Whether any number of the version is open.
    is_wildcard: bool,
    is_minor_open: bool,
    is_patch_open: bool,
}

/// Replaces each `1 - 2` by two constraints, in one pass: a text may have very many of them.
fn without_ranges(text: &str) -> Option<Cow<'_, str>> {
    Some(RANGE.as_ref()?.replace_all(text, ">= ${1}, <= ${11} "))
}

/// Parses constraints: alternatives, each of which has constraints that all hold.
fn constraints(text: &str) -> Result<Vec<Vec<Constraint>>, FunctionError> {
    const IMPOSSIBLE: &str = "the patterns of constraints do not compile";
    let (all, each) = (ALL.as_ref().ok_or(IMPOSSIBLE)?, EACH.as_ref().ok_or(IMPOSSIBLE)?);
    let rewritten = without_ranges(text).ok_or(IMPOSSIBLE)?;
    let alternative = |part: &str| {
        if !all.is_match(part) {
            return Err(FunctionError::from(format!("improper constraint: {part}")));
        }
        each.find_iter(part).map(|found| Constraint::parse(found.as_str())).collect()
    };
    rewritten.split("||").map(alternative).collect()
}

/// Returns whether all constraints of an alternative hold. A prerelease satisfies only an alternative that has one.
fn all_hold(all: &[Constraint], version: &Semver) -> bool {
    let may_hold =
        version.prerelease.is_empty() || all.iter().any(|constraint| !constraint.version.prerelease.is_empty());
    may_hold && all.iter().all(|constraint| constraint.holds(version))
}

impl Constraint {
    fn parse(text: &str) -> Result<Self, FunctionError> {
        let improper = || format!("improper constraint: {text}");
        let groups = SINGLE.as_ref().and_then(|single| single.captures(text)).ok_or_else(improper)?;
        let group = |number: usize| groups.get(number).map_or("", |group| group.as_str());
        let operator = match group(1) {
            "!=" => Operator::NotEqual,
            ">" => Operator::Greater,
            "<" => Operator::Less,
            ">=" | "=>" => Operator::GreaterOrEqual,
            "<=" | "=<" => Operator::LessOrEqual,
            "~" | "~>" => Operator::Tilde,
            "^" => Operator::Caret,
            _ => Operator::Equal,
        };
        let is_any = |part: &str| matches!(part.strip_prefix('.').unwrap_or(part), "" | "x" | "X" | "*");
        let (major, minor, patch, prerelease) = (group(3), group(4), group(5), group(6));
        let is_major_open = is_any(major);
        let is_minor_open = !is_major_open && is_any(minor);
        let is_patch_open = !is_major_open && !is_minor_open && is_any(patch);
        let version = if is_major_open {
            format!("0.0.0{prerelease}")
        } else if is_minor_open {
            format!("{major}.0.0{prerelease}")
        } else if is_patch_open {
            format!("{major}{minor}.0{prerelease}")
        } else {
            group(2).to_owned()
        };
        let version = Semver::parse(&version).map_err(|_| "constraint Parser Error")?;
        let is_wildcard = is_major_open || is_minor_open || is_patch_open;
        Ok(Self { operator, version, is_wildcard, is_minor_open, is_patch_open })
    }

    fn holds(&self, version: &Semver) -> bool {
        let (wanted, order) = (&self.version, version.compare(&self.version));
        match self.operator {
            Operator::Caret => self.caret(version, order),
            Operator::Equal if !self.is_wildcard => order == Ordering::Equal,
            Operator::Equal | Operator::Tilde => self.tilde(version, order),
            Operator::Greater if !self.is_wildcard || !self.is_minor_open && !self.is_patch_open => {
                if self.is_wildcard && version.major != wanted.major {
                    return version.major > wanted.major;
                }
                order == Ordering::Greater
            }
            Operator::Greater => {
                // `>11` demands 12, and `>11.1` demands 11.2.
                let is_minor_greater = self.is_patch_open && version.minor > wanted.minor;
                version.major > wanted.major || version.major == wanted.major && is_minor_greater
            }
            Operator::GreaterOrEqual => order != Ordering::Less,
            Operator::Less => order == Ordering::Less,
            Operator::LessOrEqual if !self.is_wildcard => order != Ordering::Greater,
            Operator::LessOrEqual => {
                let is_minor_beyond = version.minor > wanted.minor && !self.is_minor_open;
                version.major < wanted.major || version.major == wanted.major && !is_minor_beyond
            }
            Operator::NotEqual => self.differs(version, order),
        }
    }

    fn differs(&self, version: &Semver, order: Ordering) -> bool {
        let wanted = &self.version;
        if !self.is_wildcard {
            return order != Ordering::Equal;
        }
        if version.major != wanted.major || version.minor != wanted.minor && !self.is_minor_open {
            return true;
        }
        if self.is_minor_open {
            return false;
        }
        if self.is_patch_open {
            let has_prerelease = !version.prerelease.is_empty() || !wanted.prerelease.is_empty();
            let prereleases = compare_prereleases(&version.prerelease, &wanted.prerelease);
            return has_prerelease && prereleases != Ordering::Equal;
        }
        version.patch != wanted.patch || order != Ordering::Equal
    }

    /// `~1.2.3`: the same major and minor version, and not less.
    fn tilde(&self, version: &Semver, order: Ordering) -> bool {
        let wanted = &self.version;
        if order == Ordering::Less {
            return false;
        }
        let is_zero = (wanted.major, wanted.minor, wanted.patch) == (0, 0, 0);
        if is_zero && !self.is_minor_open && !self.is_patch_open {
            return true;
        }
        version.major == wanted.major && (version.minor == wanted.minor || self.is_minor_open)
    }

    /// `^1.2.3`: the same version up to the first number that is not 0, and not less.
    fn caret(&self, version: &Semver, order: Ordering) -> bool {
        let wanted = &self.version;
        if order == Ordering::Less {
            return false;
        }
        if wanted.major > 0 || self.is_minor_open {
            return version.major == wanted.major;
        }
        if version.major > 0 {
            return false;
        }
        if wanted.minor > 0 || self.is_patch_open {
            return version.minor == wanted.minor;
        }
        version.minor == 0 && version.patch == wanted.patch
    }
}

/// Go's `*semver.Version`, or the structure itself, which has fewer methods.
#[derive(Debug)]
struct VersionValue {
    version: Semver,
    is_pointer: bool,
}

/// Returns the version of an argument, which is a pointer.
fn argument(value: &Value) -> Result<&Semver, FunctionError> {
    if let Value::Object(object) = value
        && let Some(found) = object.as_any().and_then(|object| object.downcast_ref::<VersionValue>())
        && found.is_pointer
    {
        return Ok(&found.version);
    }
    Err(format!("wrong type for value; expected *semver.Version; got {}", value.type_name()).into())
}

impl Object for VersionValue {
    fn type_name(&self) -> &str {
        if self.is_pointer { "*semver.Version" } else { "semver.Version" }
    }

    fn kind(&self) -> &str {
        if self.is_pointer { "ptr" } else { "struct" }
    }

    fn method(&self, name: &str) -> Option<Signature> {
        match name {
            "Major" | "Minor" | "Patch" | "Prerelease" | "Metadata" | "String" | "IncMajor" | "IncMinor"
            | "IncPatch" => Some(Signature::fixed(&[])),
            "SetPrerelease" | "SetMetadata" => Some(Signature::fixed(STRING)),
            "Original" if self.is_pointer => Some(Signature::fixed(&[])),
            "Compare" | "Equal" | "LessThan" | "LessThanEqual" | "GreaterThan" | "GreaterThanEqual"
                if self.is_pointer =>
            {
                Some(Signature::fixed(&[Type::Any]))
            }
            _ => None,
        }
    }

    fn invoke(&self, name: &str, arguments: &[Value], call: &mut CallContext<'_>) -> Result<Value, FunctionError> {
        let version = &self.version;
        call.charge_memory(256 + 2 * version.original.len())?;
        let value = |version| Ok(Value::Object(Rc::new(Self { version, is_pointer: false })));
        match name {
            "Major" => Ok(Value::Uint(version.major)),
            "Minor" => Ok(Value::Uint(version.minor)),
            "Patch" => Ok(Value::Uint(version.patch)),
            "Prerelease" => Ok(version.prerelease.as_str().into()),
            "Metadata" => Ok(version.metadata.as_str().into()),
            "Original" => Ok(version.original.as_str().into()),
            "String" => Ok(version.to_string().into()),
            "IncMajor" => value(version.changed(|next| {
                next.without_parts();
                (next.major, next.minor, next.patch) = (next.major.wrapping_add(1), 0, 0);
            })),
            "IncMinor" => value(version.changed(|next| {
                next.without_parts();
                (next.minor, next.patch) = (next.minor.wrapping_add(1), 0);
            })),
            "IncPatch" => value(version.changed(|next| {
                // The version after a prerelease has the same numbers.
                next.patch = next.patch.wrapping_add(u64::from(next.prerelease.is_empty()));
                next.without_parts();
            })),
            "SetPrerelease" => {
                let part = string(&arguments[0])?;
                if !part.is_empty() {
                    check_prerelease(&part)?;
                }
                value(version.changed(|next| next.prerelease = part))
            }
            "SetMetadata" => {
                let part = string(&arguments[0])?;
                if !part.split('.').all(|part| part.is_empty() || are_identifiers(part)) {
                    return Err("Invalid Metadata string".into());
                }
                value(version.changed(|next| next.metadata = part))
            }
            _ => {
                let order = version.compare(argument(&arguments[0])?);
                Ok(match name {
                    "Compare" => Value::Int(order as i64),
                    "Equal" => Value::Bool(order == Ordering::Equal),
                    "LessThan" => Value::Bool(order == Ordering::Less),
                    "LessThanEqual" => Value::Bool(order != Ordering::Greater),
                    "GreaterThan" => Value::Bool(order == Ordering::Greater),
                    _ => Value::Bool(order != Ordering::Less),
                })
            }
        }
    }

    fn text(&self) -> Option<String> {
        Some(self.version.to_string())
    }

    fn as_any(&self) -> Option<&dyn std::any::Any> {
        Some(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Masterminds/semver, "Hyphen Range Comparisons": each range is replaced where it is, also one that is there again.
    #[test]
    fn ranges_of_versions() {
        for (text, want) in [
            ("1.2 - 3.4.5", ">= 1.2, <= 3.4.5 "),
            ("1 - 2 || 1 - 2", ">= 1, <= 2 ||>= 1, <= 2 "),
            ("^1 || 3 - 4 || 1-2", "^1 ||>= 3, <= 4 || 1-2"),
            ("> 1", "> 1"),
        ] {
            assert_eq!(without_ranges(text).as_deref(), Some(want), "{text}");
        }
        let text = "1 - 2 || ".repeat(10_000);
        let many = without_ranges(&text).unwrap();
        assert!(many.split(' ').filter(|part| part.ends_with(">=")).count() == 10_000 && !many.contains('-'));
    }
}
