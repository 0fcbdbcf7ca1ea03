//! Names outside of ASCII as DNS and browsers have them (RFC 3492).

// RFC 3492 §5: the parameters of Punycode.
const BASE: u32 = 36;
const T_MIN: u32 = 1;
const T_MAX: u32 = 26;
const SKEW: u32 = 38;
const DAMP: u32 = 700;
const INITIAL_BIAS: u32 = 72;
const INITIAL_N: u32 = 128;

/// Labels outside of ASCII in small letters and Punycode, the others as they are.
pub fn to_ascii(host: &str) -> String {
    let labels = host.split('.').map(|label| match label.is_ascii() {
        true => label.to_owned(),
        false => format!("xn--{}", encode(&label.to_lowercase())),
    });
    labels.collect::<Vec<_>>().join(".")
}

/// RFC 3492 §6.3. A label of a configuration is far too short for any of these sums to overflow, so they are 64 bits.
fn encode(label: &str) -> String {
    let mut out: String = label.chars().filter(char::is_ascii).collect();
    let basic = out.len() as u64;
    if basic > 0 {
        out.push('-');
    }
    let total = label.chars().count() as u64;
    let (mut n, mut delta, mut bias, mut handled) = (u64::from(INITIAL_N), 0_u64, INITIAL_BIAS, basic);
    while handled < total {
        let codes = || label.chars().map(|ch| u64::from(u32::from(ch)));
        let next = codes().filter(|code| *code >= n).min().expect("some are left");
        delta += (next - n) * (handled + 1);
        n = next;
        for code in codes() {
            if code < n {
                delta += 1;
            }
            if code == n {
                number(delta, bias, &mut out);
                bias = adapt(delta, handled + 1, handled == basic);
                delta = 0;
                handled += 1;
            }
        }
        delta += 1;
        n += 1;
    }
    out
}

/// A number of variable length, its digits' weights adapted.
fn number(delta: u64, bias: u32, out: &mut String) {
    let mut rest = delta;
    let mut k = BASE;
    loop {
        let threshold = u64::from(k.saturating_sub(bias).clamp(T_MIN, T_MAX));
        if rest < threshold {
            return out.push(digit(rest));
        }
        let above = u64::from(BASE) - threshold;
        out.push(digit(threshold + (rest - threshold) % above));
        rest = (rest - threshold) / above;
        k += BASE;
    }
}

fn digit(value: u64) -> char {
    char::from(b"abcdefghijklmnopqrstuvwxyz0123456789"[value as usize])
}

/// RFC 3492 §6.1.
fn adapt(delta: u64, points: u64, first: bool) -> u32 {
    let mut delta = if first { delta / u64::from(DAMP) } else { delta / 2 };
    delta += delta / points;
    let mut k = 0;
    while delta > u64::from((BASE - T_MIN) * T_MAX / 2) {
        delta /= u64::from(BASE - T_MIN);
        k += BASE;
    }
    k + ((u64::from(BASE - T_MIN + 1) * delta) / (delta + u64::from(SKEW))) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    // RFC 3492 §7.1 (A), (B), (D), (L), (S); and names as registries list them.
    #[test]
    fn rfc3492_7_1() {
        for (label, want) in [
            ("ليهمابتكلموشعربي؟", "egbpdaj6bu4bxfgehfvwxn"),
            ("他们为什么不说中文", "ihqwcrb4cv8a8dqg056pqjye"),
            ("3年b組金八先生", "3b-ww4c5e180e575a65lsy2b"),
            ("-> $1.00 <-", "-> $1.00 <--"),
            ("bücher", "bcher-kva"),
            ("ä", "4ca"),
        ] {
            assert_eq!(encode(label), want, "{label}");
        }
        assert_eq!(to_ascii("*.BÜCHER.Example"), "*.xn--bcher-kva.Example");
    }
}
