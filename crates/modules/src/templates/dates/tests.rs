use causeway_go_template::{ExecutionLimits, TemplateSet};

use super::*;

// The results of Go, by `go run . < templates.txt > expected.txt`.
const TEMPLATES: &str = include_str!("corpus/templates.txt");
const EXPECTED: &str = include_str!("corpus/expected.txt");

/// The current time is 2026-11-27T12:00:00Z, and times without a zone are in Berlin, as in `main.go`.
fn clock() -> Clock {
    Clock { now: Timestamp::from_second(1_795_780_800).unwrap(), zone: TimeZone::get("Europe/Berlin").unwrap() }
}

fn executed(template: &str) -> Result<String, String> {
    let (set, functions, mut output) = (TemplateSet::new(), with(Functions::new(), &clock()), Vec::new());
    set.parse("t", template.as_bytes(), &|name| functions.contains(name)).map_err(|error| error.to_string())?;
    let result = set.execute("t", &functions, &Value::Nil, ExecutionLimits::default(), &mut output);
    result.map_err(|error| error.to_string())?;
    Ok(String::from_utf8_lossy(&output).into_owned())
}

// Go, package time, "Layouts" and `ParseDuration`; Sprig, "Date Functions": the output of each template, or that it
// fails.
#[test]
fn times_are_formatted_like_go() {
    assert_eq!(TEMPLATES.lines().count(), EXPECTED.lines().count());
    let mut faults = Vec::new();
    for (template, want) in TEMPLATES.lines().zip(EXPECTED.lines()) {
        let got = executed(template);
        if got.as_deref().map_or("error".to_owned(), |output| format!("output {output}")) != want {
            faults.push(format!("{template}\n  Go:   {want}\n  ours: {got:?}"));
        }
    }
    assert!(faults.is_empty(), "{} differences\n{}", faults.len(), faults.join("\n"));
}

// Sprig, `now`, `ago`, `durationRound`, and functions whose argument is no time: they take the current time.
#[test]
fn the_current_time() {
    for (template, want) in [
        ("{{now}}", "2026-11-27 13:00:00 +0100 CET"),
        ("{{now.UTC.Format \"15:04\"}} {{toJson now}}", "12:00 \"2026-11-27T13:00:00+01:00\""),
        (
            "{{date \"2006-01-02\" \"x\"}} {{htmlDate nil}} {{htmlDateInZone nil \"UTC\"}}",
            "2026-11-27 2026-11-27 2026-11-27",
        ),
        ("{{ago (dateModify \"-90m0.5s\" now)}} {{ago now}} {{ago nil}}", "1h30m1s 0s 0s"),
        ("{{ago (dateModify \"90s\" now)}} {{ago (dateModify \"0.4s\" now)}}", "-1m30s 0s"),
        ("{{durationRound (dateModify \"-49h\" now)}} {{durationRound (dateModify \"49h\" now)}}", "2d 2d"),
        ("{{ago (toDate \"2006\" \"0001\")}}", "2562047h47m16.854775807s"),
        ("{{now | unixEpoch}} {{now.IsZero}}", "1795780800 false"),
    ] {
        assert_eq!(executed(template).as_deref(), Ok(want), "{template}");
    }
}

// A zone's name is short: the output has it as often as the layout.
#[test]
fn names_of_zones_are_short() {
    assert_eq!(executed("{{(toDate \"MST\" \"GMT+03\").Format \"MST\"}}").as_deref(), Ok("GMT+03"));
    for name in ["GMT+0000003", "+0000003"] {
        let time = executed(&format!("{{{{(toDate \"MST\" \"{name}\").Format \"MST\"}}}}"));
        assert!(!time.is_ok_and(|time| time.contains("000")), "{name}");
    }
}

// Times before the first one and after the last one of the server, which Go has, are errors.
#[test]
fn times_out_of_range() {
    for template in [
        "{{date \"2006\" 9223372036854775807}}",
        "{{date \"2006\" -9223372036854775808}}",
        "{{range 50}}{{dateModify \"2562047h\" (toDate \"2006\" \"9990\")}}{{end}}",
        "{{toDate \"2006-01-02\" \"9999-12-31\"}}",
        "{{mustToDate \"2006-01-02 -0700\" \"9999-12-31 -0500\"}}",
        "{{(toDate \"2006-01-02\" \"9999-12-01\").AddDate 0 1 0}}",
        "{{(toDate \"2006\" \"2020\").AddDate 9223372036854775807 9223372036854775807 0}}",
    ] {
        let error = executed(template).unwrap_err();
        assert!(error.contains("out of range: the last one is 9999-12-30T22:00:00Z"), "{template}: {error}");
    }
}

proptest::proptest! {
    // Any layout and any text end without a panic.
    #[test]
    fn any_layout_terminates(pieces in proptest::collection::vec(proptest::sample::select(vec![
        "Jan", "January", "Mon", "Monday", "MST", "2006", "06", "002", "__2", "_2", "01", "02", "1", "2", "15", "03", "3",
        "04", "05", "PM", "pm", "Z07:00", "-0700", "-07", "Z070000", ".000", ".999", ",9", " ", "  ", "ä", "GMT+3", "UTC",
        "CEST", "Feb", "29", "9999", "0", "-1", "+24", ":", "T", "Z", "µs", "h", "1.5", "\u{0}",
    ]), 0..12), split in 0_usize..12) {
        let split = split.min(pieces.len());
        let (layout, text) = (pieces[..split].concat(), pieces[split..].concat());
        if let Ok(time) = parse::parsed(&layout, &text, &clock().zone) {
            let _ = formatted(&time, &pieces.concat());
        }
        let _ = parse::parsed(&layout, &formatted(&clock().now(), &layout), &clock().zone);
        let _ = duration::parse(&text).map(duration::go_duration);
    }
}
