//! Go's `time.Month`, `time.Weekday` and `time.Duration`: integers that are printed as texts.

use std::rc::Rc;

use causeway_go_template::{CallContext, FunctionError, IntegerType, Object, Signature, Value};
use causeway_log_output::go_layout::{MONTHS, WEEKDAYS};

use super::duration::go_duration;

#[derive(Debug)]
pub(super) enum NamedInteger {
    /// From 1.
    Month(i8),
    /// From 0, which is Sunday.
    Weekday(i8),
    /// In nanoseconds.
    Duration(i64),
}

impl NamedInteger {
    pub(super) fn month(month: i8) -> Value {
        Value::Object(Rc::new(Self::Month(month)))
    }

    pub(super) fn weekday(weekday: i8) -> Value {
        Value::Object(Rc::new(Self::Weekday(weekday)))
    }

    pub(super) fn duration(nanoseconds: i64) -> Value {
        Value::Object(Rc::new(Self::Duration(nanoseconds)))
    }
}

impl Object for NamedInteger {
    fn type_name(&self) -> &str {
        match self {
            Self::Month(_) => "time.Month",
            Self::Weekday(_) => "time.Weekday",
            Self::Duration(_) => "time.Duration",
        }
    }

    fn kind(&self) -> &str {
        if let Self::Duration(_) = self { "int64" } else { "int" }
    }

    fn method(&self, name: &str) -> Option<Signature> {
        let is_known = match name {
            "String" => true,
            "Hours" | "Minutes" | "Seconds" | "Milliseconds" | "Microseconds" | "Nanoseconds" => {
                matches!(self, Self::Duration(_))
            }
            _ => false,
        };
        is_known.then_some(Signature::fixed(&[]))
    }

    fn invoke(&self, name: &str, _: &[Value], _: &mut CallContext<'_>) -> Result<Value, FunctionError> {
        let Self::Duration(nanoseconds) = *self else { return Ok(self.text().unwrap_or_default().into()) };
        // As in Go: the whole units and the rest are converted, of which each is exact.
        let float = |unit: i64| {
            let (whole, rest) = (nanoseconds / unit, nanoseconds % unit);
            Value::Float(whole as f64 + rest as f64 / unit as f64)
        };
        let whole = |unit: i64| Value::Integer(nanoseconds / unit, IntegerType::Int64);
        Ok(match name {
            "Hours" => float(3_600_000_000_000),
            "Minutes" => float(60_000_000_000),
            "Seconds" => float(1_000_000_000),
            "Milliseconds" => whole(1_000_000),
            "Microseconds" => whole(1000),
            "Nanoseconds" => whole(1),
            _ => self.text().unwrap_or_default().into(),
        })
    }

    fn underlying(&self) -> Option<Value> {
        Some(match *self {
            Self::Month(number) | Self::Weekday(number) => Value::Int(number.into()),
            Self::Duration(nanoseconds) => Value::Integer(nanoseconds, IntegerType::Int64),
        })
    }

    fn text(&self) -> Option<String> {
        Some(match *self {
            Self::Month(number) => name(&MONTHS, number - 1),
            Self::Weekday(number) => name(&WEEKDAYS, number),
            Self::Duration(nanoseconds) => go_duration(nanoseconds),
        })
    }
}

fn name(names: &[&str], index: i8) -> String {
    usize::try_from(index).ok().and_then(|index| names.get(index).copied()).unwrap_or_default().to_owned()
}
