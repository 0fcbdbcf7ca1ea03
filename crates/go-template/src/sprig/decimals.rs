//! Arithmetic of decimal numbers of any length, as `github.com/shopspring/decimal`: `addf 0.1 0.2` is 0.3.

use num_bigint::{BigInt, Sign};

use super::numbers::float64;
use super::{ANY, fixed, variadic};
use crate::error::FunctionError;
use crate::functions::{Builtin, CallContext, Type};
use crate::value::Value;

const TWO: &[Type] = &[Type::Any, Type::Any];
/// The digits after the point of a quotient.
const QUOTIENT_PLACES: i32 = 16;

pub(super) static BUILTINS: &[Builtin] = &[
    fixed("add1f", ANY, |call, args| calculate(call, 1.0, args, Decimal::add)),
    variadic("addf", ANY, |call, args| calculate(call, 0.0, args, Decimal::add)),
    variadic("divf", TWO, |call, args| calculate(call, float64(&args[0]), &args[1..], Decimal::div)),
    variadic("mulf", TWO, |call, args| calculate(call, float64(&args[0]), &args[1..], Decimal::mul)),
    variadic("subf", TWO, |call, args| {
        calculate(call, float64(&args[0]), &args[1..], |a, b| {
            a.add(&Decimal { digits: -&b.digits, exponent: b.exponent })
        })
    }),
];

/// A number: `digits` times a power of ten.
struct Decimal {
    digits: BigInt,
    exponent: i32,
}

type Operation = fn(&Decimal, &Decimal) -> Result<Decimal, FunctionError>;

/// Applies an operation to a number and each argument, and rounds the result to a float.
fn calculate(call: &CallContext<'_>, first: f64, args: &[Value], operation: Operation) -> Result<Value, FunctionError> {
    let mut result = Decimal::of(first)?;
    for arg in args {
        // Exact products grow with each factor, so they count as memory.
        call.charge_memory(64 + usize::try_from(result.digits.bits() / 8).unwrap_or(usize::MAX))?;
        result = operation(&result, &Decimal::of(float64(arg))?)?;
    }
    let text = format!("{}e{}", result.digits, result.exponent);
    Ok(text.parse::<f64>().unwrap_or_default().into())
}

fn power(exponent: u32) -> BigInt {
    BigInt::from(10).pow(exponent)
}

impl Decimal {
    /// Takes the shortest digits that identify the float.
    fn of(value: f64) -> Result<Self, FunctionError> {
        if !value.is_finite() {
            return Err("Cannot create a Decimal from a number that is not finite".into());
        }
        let text = format!("{value:e}");
        let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        let places = digits.split_once('.').map_or(0, |(_, fraction)| fraction.len());
        let exponent = exponent.parse::<i32>().unwrap_or(0) - places as i32;
        Ok(Self { digits: digits.replace('.', "").parse().unwrap_or_default(), exponent })
    }

    /// Returns the digits for a lower exponent.
    fn with_exponent(&self, exponent: i32) -> BigInt {
        &self.digits * power(self.exponent.abs_diff(exponent))
    }

    fn add(&self, other: &Self) -> Result<Self, FunctionError> {
        let exponent = self.exponent.min(other.exponent);
        Ok(Self { digits: self.with_exponent(exponent) + other.with_exponent(exponent), exponent })
    }

    fn mul(&self, other: &Self) -> Result<Self, FunctionError> {
        let exponent = self.exponent.checked_add(other.exponent).ok_or("the exponent is too large")?;
        Ok(Self { digits: &self.digits * &other.digits, exponent })
    }

    /// Divides, and rounds half away from 0.
    fn div(&self, other: &Self) -> Result<Self, FunctionError> {
        if other.digits.sign() == Sign::NoSign {
            return Err("decimal division by 0".into());
        }
        let shift = self.exponent - other.exponent + QUOTIENT_PLACES;
        let scale = power(shift.unsigned_abs());
        let (dividend, divisor) = if shift < 0 {
            (self.digits.clone(), &other.digits * scale)
        } else {
            (&self.digits * scale, other.digits.clone())
        };
        let quotient = &dividend / &divisor;
        let remainder = &dividend - &quotient * &divisor;
        let is_half = remainder.magnitude() * 2_u32 >= *divisor.magnitude();
        let away = match (is_half, dividend.sign() == divisor.sign()) {
            (false, _) => 0,
            (true, true) => 1,
            (true, false) => -1,
        };
        Ok(Self { digits: quotient + away, exponent: -QUOTIENT_PLACES })
    }
}
