//! Compares executions with Go's: `corpus/execute/main.go` writes `corpus/execute/expected.txt`.

mod support;

use causeway_go_template::{CallContext, ExecutionLimits, Functions, IntegerType, Signature, TemplateSet, Type, Value};
use proptest::prelude::*;
use support::unquoted;

const TEMPLATES: &str = include_str!("corpus/execute/templates.txt");
const EXPECTED: &str = include_str!("corpus/execute/expected.txt");
const SPRIG: &str = include_str!("corpus/sprig/templates.txt");
const SPRIG_EXPECTED: &str = include_str!("corpus/sprig/expected.txt");
const SPRIG_NAMES: &str = include_str!("corpus/sprig/names.txt");

/// The data of `corpus/execute/main.go`.
fn data() -> Value {
    Value::map([
        ("n", Value::Int(3)),
        ("f", Value::Float(1.5)),
        ("s", "text".into()),
        ("h", "<a href='x'>&\"\n".into()),
        ("t", true.into()),
        ("nil", Value::Nil),
        ("l", Value::list(vec![Value::Int(1), "two".into(), Value::Float(3.5), Value::Nil])),
        ("e", Value::list(Vec::new())),
        ("w", Value::strings(["x", "y", "z"])),
        ("m", Value::map([("a", Value::Int(1)), ("b", "two".into()), ("c", Value::map([("d", Value::Bool(true))]))])),
        ("long", Value::Integer(-7, IntegerType::Int64)),
    ])
}

fn execute(text: &[u8], limits: ExecutionLimits) -> (&'static str, Vec<u8>) {
    execute_with(&Functions::new(), text, limits)
}

fn execute_with(functions: &Functions, text: &[u8], limits: ExecutionLimits) -> (&'static str, Vec<u8>) {
    let (set, mut output) = (TemplateSet::new(), Vec::new());
    if set.parse("t", text, &|name| functions.contains(name)).is_err() {
        return ("refused", Vec::new());
    }
    match set.execute("t", functions, &data(), limits, &mut output) {
        Ok(()) => ("output", output),
        Err(error) => ("error", error.to_string().into_bytes()),
    }
}

// text/template, "Actions", "Pipelines", "Functions"; fmt, "Printing": the output of each template, and the message if
// it fails.
#[test]
fn templates_execute_like_go() {
    assert_eq!(TEMPLATES.lines().count(), EXPECTED.lines().count());
    let mut faults = Vec::new();
    for (template, expected) in TEMPLATES.lines().zip(EXPECTED.lines()) {
        let (kind, want) = expected.split_once(' ').unwrap_or((expected, "\"\""));
        let got = execute_with(&Functions::without_sprig(), &unquoted(template), ExecutionLimits::default());
        if got != (kind, unquoted(want)) {
            let text = String::from_utf8_lossy(&got.1);
            faults.push(format!("{template}\n  Go:   {kind} {want}\n  ours: {} {text:?}", got.0));
        }
    }
    assert!(faults.is_empty(), "{} differences\n{}", faults.len(), faults.join("\n"));
}

// Sprig's documentation: its functions. Messages are ours.
#[test]
fn sprig_functions_execute_like_go() {
    assert_eq!(SPRIG.lines().count(), SPRIG_EXPECTED.lines().count());
    let mut faults = Vec::new();
    for (template, expected) in SPRIG.lines().zip(SPRIG_EXPECTED.lines()) {
        let (kind, want) = expected.split_once(' ').unwrap_or((expected, "\"\""));
        let got = execute(&unquoted(template), ExecutionLimits::default());
        if got.0 != kind || (kind == "output" && got.1 != unquoted(want)) {
            let text = String::from_utf8_lossy(&got.1);
            faults.push(format!("{template}\n  Go:   {kind} {want}\n  ours: {} {text:?}", got.0));
        }
    }
    assert!(faults.is_empty(), "{} differences\n{}", faults.len(), faults.join("\n"));
}

// Sprig, `TxtFuncMap`: each function is there but those that need a clock, random numbers, the environment, a resolver,
// or much time.
#[test]
fn the_function_names_equal_those_of_sprig() {
    let left_to_the_caller = [
        "ago",
        "bcrypt",
        "buildCustomCert",
        "date",
        "dateInZone",
        "dateModify",
        "date_in_zone",
        "date_modify",
        "decryptAES",
        "derivePassword",
        "duration",
        "durationRound",
        "encryptAES",
        "env",
        "expandenv",
        "genCA",
        "genCAWithKey",
        "genPrivateKey",
        "genSelfSignedCert",
        "genSelfSignedCertWithKey",
        "genSignedCert",
        "genSignedCertWithKey",
        "getHostByName",
        "htmlDate",
        "htmlDateInZone",
        "htpasswd",
        "mustDateModify",
        "mustToDate",
        "must_date_modify",
        "now",
        "randAlpha",
        "randAlphaNum",
        "randAscii",
        "randBytes",
        "randInt",
        "randNumeric",
        "shuffle",
        "toDate",
        "unixEpoch",
        "uuidv4",
    ];
    let functions = Functions::new();
    let missing: Vec<&str> = SPRIG_NAMES.lines().filter(|name| !functions.contains(name)).collect();
    assert_eq!(missing, left_to_the_caller);
}

// Sprig: `set` changes a dictionary for all that refer to it. One within itself would never be freed.
#[test]
fn a_dictionary_cannot_contain_itself() {
    for template in [
        "{{$d := dict}}{{$_ := set $d \"a\" $d}}",
        "{{$d := dict}}{{$_ := set $d \"a\" (list 1 (dict \"b\" $d))}}",
        "{{$d := dict}}{{$e := dict \"d\" $d}}{{$_ := set $d \"e\" $e}}",
    ] {
        let (kind, text) = execute(template.as_bytes(), ExecutionLimits::default());
        let text = String::from_utf8_lossy(&text);
        assert!(kind == "error" && text.contains("a dictionary cannot be within itself"), "{text}");
    }
}

// A custom function hides the one of Go with its name, and gets the arguments of its own signature.
#[test]
fn a_custom_function_may_be_named_call() {
    let count = |_: &mut CallContext<'_>, args: &[Value]| Ok(Value::Int(i64::try_from(args.len()).unwrap()));
    let functions = Functions::new().with("call", Signature::variadic(&[Type::Any]), count);
    let got = execute_with(&functions, b"{{call 1 2}} {{3 | call}}", ExecutionLimits::default());
    assert_eq!(got, ("output", b"2 1".to_vec()));
}

// text/template, notAFunction: the message has the pipeline's source, with the parentheses inside of it.
#[test]
fn a_pipeline_takes_no_arguments() {
    for (template, want) in [
        ("{{((1) | print) 2}}", "can't give argument to non-function (1) | print"),
        ("{{(print (1)) 2}}", "can't give argument to non-function print (1)"),
    ] {
        let (kind, message) = execute(template.as_bytes(), ExecutionLimits::default());
        let message = String::from_utf8(message).unwrap();
        assert!(kind == "error" && message.ends_with(want), "{template}: {kind} {message}");
    }
}

// fmt, fmtFloat: of the numbers that are not finite, only NaN has no sign without a flag.
#[test]
fn signs_of_numbers_that_are_not_finite() {
    for (number, want) in [("Inf", "+Inf +Inf  Inf"), ("-Inf", "-Inf -Inf -Inf"), ("NaN", "NaN +NaN  NaN")] {
        let template = format!("{{{{$n := float64 {number:?}}}}}{{{{printf \"%f %+f % f\" $n $n $n}}}}");
        let got = execute(template.as_bytes(), ExecutionLimits::default());
        assert_eq!(got, ("output", want.as_bytes().to_vec()), "{number}");
    }
}

// Go, package fmt, parsenum: a width or precision has no more digits once it is above 1 000 000; with more the format
// has no verb.
#[test]
fn long_precisions() {
    for (template, want) in [
        ("{{printf \"%.70000f\" 1.5 | len}}", "70002"),
        ("{{printf \"%.*f\" 1000000 1.5 | len}}", "1000002"),
        ("{{printf \"%.1000001f\" 1.5 | len}}", "1000003"),
        ("{{printf \"%.10000009f\" 1.5 | len}}", "10000011"),
        ("{{printf \"%1000001d|\" 15 | len}}", "1000002"),
        ("{{printf \"%.*f\" 1000001 1.5}}", "%!(BADPREC)1.500000"),
        ("{{printf \"%.10000010f\" 1.5}}", "%!(NOVERB)%!(EXTRA float64=1.5)"),
        ("{{printf \"%.99999999999999999999f\" 1.5}}", "%!(NOVERB)%!(EXTRA float64=1.5)"),
        ("{{printf \"%99999999999[1]d\" 15}}", "%!(NOVERB)%!(EXTRA int=15)"),
        ("{{printf \"a%99999999999db%d\" 1 2}}", "a%!(NOVERB)%!(EXTRA int=1, int=2)"),
        ("{{printf \"%.70000e\" 1.5 | len}}", "70006"),
        ("{{printf \"%.70000g\" 1.5}}", "1.5"),
        ("{{printf \"%.1200f\" 5e-324 | len}}", "1202"),
    ] {
        let (kind, text) = execute(template.as_bytes(), ExecutionLimits::default());
        assert_eq!((kind, String::from_utf8_lossy(&text)), ("output", want.into()), "{template}");
    }
}

// Go, text/template/exec.go: the error of a range over an integer with two variables shows the integer.
#[test]
fn a_range_over_a_negative_integer_with_two_variables() {
    for (template, want) in
        [("{{range $a, $b := -5}}{{end}}", "can't use -5 to"), ("{{range $a, $b := .long}}{{end}}", "can't use -7 to")]
    {
        let (kind, text) = execute(template.as_bytes(), ExecutionLimits::default());
        let text = String::from_utf8_lossy(&text);
        assert!(kind == "error" && text.contains(want), "{template}: {kind} {text}");
    }
}

// Each bound ends an execution that would not end, or not soon, with an error of its own.
#[test]
fn bounds() {
    for (template, want) in [
        ("{{range 1000000000}}{{end}}", "needs more steps"),
        ("{{range 1000000}}0123456789012345678901234567890123456789{{end}}", "the output is longer"),
        ("{{$s := \"0123456789\"}}{{range 60}}{{$s = print $s $s}}{{end}}", "need more memory"),
        ("{{$l := list}}{{range 100000}}{{$l = append $l 1}}{{end}}", "need"),
        ("{{repeat 1000000000 \"abcdef\"}}", "need more memory"),
        ("{{until 1000000000}}", "need more memory"),
        (
            "{{printf \"%0999999d%0999999d\" 1 1 | len}}{{range 100}}{{printf \"%999999d\" 1 | len}}{{end}}",
            "need more memory",
        ),
        ("{{define \"r\"}}{{template \"r\"}}{{end}}{{template \"r\"}}", "exceeded maximum template depth"),
    ] {
        let (kind, text) = execute(template.as_bytes(), ExecutionLimits::default());
        let text = String::from_utf8_lossy(&text);
        assert!(kind == "error" && text.contains(want), "{template}: {kind} {text}");
    }
}

// Functions whose results or work grow faster than their arguments keep the bounds too.
#[test]
fn sprig_functions_respect_the_bounds() {
    let limits = ExecutionLimits { steps_max: 1_000_000, memory_bytes_max: 6 << 20, ..ExecutionLimits::default() };
    for (template, want) in [
        ("{{untilStep 0 9223372036854775807 1}}", "need more memory"),
        ("{{seq 9223372036854775806}}", "need more memory"),
        ("{{indent 9223372036854775807 \"a\\nb\"}}", "need more memory"),
        ("{{indent 1000000 (repeat 100 \"\\n\")}}", "need more memory"),
        ("{{wrapWith 1 (repeat 100000 \"-\") (repeat 100000 \"a\")}}", "need more memory"),
        ("{{replace \"a\" (repeat 100000 \"-\") (repeat 100000 \"a\")}}", "need more memory"),
        ("{{regexReplaceAll \"a\" (repeat 100000 \"a\") (repeat 100000 \"-\")}}", "need more memory"),
        ("{{join (repeat 100000 \"-\") (until 100000)}}", "need more memory"),
        ("{{$x := repeat 50000 \"a\"}}{{range 10000}}{{$_ := regexFindAll \"a\" $x -1}}{{end}}", "need"),
        ("{{$l := until 10000}}{{uniq $l | len}}{{has 10001 $l}}", "needs more steps"),
        ("{{$d := dict}}{{range 300}}{{$d = dict \"a\" $d}}{{end}}{{deepCopy $d}}", "nests deeper"),
        ("{{$d := dict}}{{range 300}}{{$d = dict \"a\" $d}}{{end}}{{toJson $d}}", "nests deeper"),
        ("{{$d := dict}}{{range 300}}{{$d = dict \"a\" $d}}{{end}}{{merge $d $d}}", "nests deeper"),
        ("{{$l := list 1}}{{range 300}}{{$l = list $l}}{{end}}{{deepEqual $l (deepCopy $l)}}", "nests deeper"),
        ("{{$l := list 1 1}}{{range 100}}{{$l = list $l $l}}{{end}}{{deepCopy $l}}", "need"),
        ("{{$l := list 1 1}}{{range 100}}{{$l = list $l $l}}{{end}}{{toJson $l}}", "need"),
        ("{{fromJson (repeat 300 \"[\")}}", "nests deeper"),
        ("{{range $i, $_ := until 100000}}{{regexMatch (printf \"\\\\pL%d\" $i) \"a\"}}{{end}}", "needs more steps"),
        // The compiler refuses each of these, after much work.
        (
            "{{range $i, $_ := until 100000}}{{regexMatch (printf \"\\\\pL{100}%d\" $i) \"a\"}}{{end}}",
            "needs more steps",
        ),
        // Reading an expression takes time and memory before its states are known.
        ("{{mustRegexMatch (repeat 600000 \"{\") \"x\"}}", "the expression is too large"),
        ("{{mustRegexMatch (printf \"(?i)%s\" (repeat 5000 \"\\\\pL\")) \"x\"}}", "needs more steps"),
        (
            "{{range $i, $_ := until 100}}{{regexMatch (printf \"[%s%d]\" (repeat 10000 \"a\") $i) \"a\"}}{{end}}",
            "needs more steps",
        ),
        // Copies of one long string.
        ("{{$s := repeat 1000000 \"k\"}}{{toStrings (list $s $s $s $s $s $s) | len}}", "need more memory"),
        ("{{$s := repeat 1000000 \"k\"}}{{sortAlpha (list $s $s $s $s $s $s) | len}}", "need more memory"),
        ("{{quote (repeat 1100000 \"k\") | len}}", "need more memory"),
        ("{{squote (repeat 1300000 \"k\") | len}}", "need more memory"),
        (
            "{{$k := repeat 1000000 \"k\"}}{{$l := list}}{{range 6}}{{$l = list $l (dict $k 1)}}{{end}}",
            "need more memory",
        ),
        ("{{$k := repeat 1000000 \"k\"}}{{$d := dict}}{{range 6}}{{$_ := set $d $k 1}}{{end}}", "need more memory"),
        (
            "{{$k := repeat 1000000 \"k\"}}{{$d := dict $k 1}}{{range 1000}}{{$_ := pick $d $k}}{{$_ := omit $d $k}}{{end}}",
            "needs more steps",
        ),
        // The groups of an expression.
        ("{{regexMatch (repeat 400 \"(a)\") \"b\"}}", "need more memory"),
        ("{{regexReplaceAll (repeat 100 \"(a)?\") (repeat 10000 \"a\") \"\"}}", "needs more steps"),
        ("{{regexReplaceAll \"b\" \"a\" (repeat 200000 \"$\")}}", "need more memory"),
        // Each search looks at the whole rest.
        ("{{regexFindAll \"a[^b]{30}.*b|a\" (repeat 5000 \"a\") -1 | len}}", "needs more steps"),
        // Comparisons of long keys.
        (
            "{{$k := repeat 1000000 \"k\"}}{{$a := dict $k 1}}{{$b := dict (print $k) 1}}{{range 1000}}{{$_ := deepEqual $a $b}}{{end}}",
            "needs more steps",
        ),
        (
            "{{$k := repeat 1000000 \"k\"}}{{$d := dict (print $k) 1}}{{range 1000}}{{$_ := hasKey $d $k}}{{end}}",
            "needs more steps",
        ),
        // Functions that read long texts and return little.
        ("{{$s := repeat 1000000 \"k\"}}{{range 1000}}{{$_ := contains \"x\" $s}}{{end}}", "needs more steps"),
        ("{{$s := repeat 1000000 \"k\"}}{{range 1000}}{{$_ := trimAll \"k\" $s}}{{end}}", "needs more steps"),
        ("{{splitList \"\" (repeat 100000 \"a\") | len}}", "need more memory"),
        ("{{splitList \",\" (repeat 100000 \",\") | len}}", "need more memory"),
        (
            "{{$x := 1.1}}{{range 100000}}{{$x = mulf 1.1 1.1 1.1 1.1 1.1 1.1 1.1 1.1 1.1 1.1 1.1 1.1 1.1 1.1 1.1 1.1}}{{end}}",
            "need",
        ),
    ] {
        let (kind, text) = execute(template.as_bytes(), limits);
        let text = String::from_utf8_lossy(&text);
        assert!(kind == "error" && text.contains(want), "{template}: {kind} {text}");
    }
}

// Functions for deep values fit into the stack also in the deepest template.
#[test]
fn deep_values_in_deep_templates() {
    let work = "{{$_ := toJson .}}{{$_ := deepCopy .}}{{$_ := merge (dict) . .}}{{$_ := deepEqual . (deepCopy .)}}\
                {{$_ := print .}}{{$_ := fromJson (toPrettyJson .)}}{{$_ := mergeOverwrite (deepCopy .) .}}\
                {{$_ := regexMatch (printf \"%sa%s\" (repeat 240 \"(\") (repeat 240 \")\")) \"a\"}}";
    let text = format!(
        "{{{{define \"r\"}}}}{work}{{{{template \"r\" .}}}}{{{{end}}}}\
         {{{{$d := dict}}}}{{{{range 190}}}}{{{{$d = dict \"a\" $d}}}}{{{{end}}}}{{{{template \"r\" $d}}}}"
    );
    let (kind, text) = execute(text.as_bytes(), ExecutionLimits::default());
    let text = String::from_utf8_lossy(&text);
    assert!(kind == "error" && text.contains("exceeded maximum template depth"), "{kind} {text}");
}

/// Pieces of templates, in any order.
fn pieces() -> impl Strategy<Value = String> {
    let piece = prop::sample::select(vec![
        "{{",
        "}}",
        " ",
        "|",
        "(",
        ")",
        ".",
        "$",
        "$x",
        ":=",
        "=",
        ",",
        "if",
        "else",
        "end",
        "range",
        "with",
        "define \"a\"",
        "template \"a\"",
        "break",
        "continue",
        ".l",
        ".m",
        ".nil",
        ".s",
        ".w",
        "1",
        "-1",
        "1.5",
        "\"%5.3v\"",
        "\"%*d\"",
        "nil",
        "true",
        "print",
        "printf",
        "index",
        "list",
        "dict",
        "set",
        "append",
        "join",
        "until",
        "toJson",
        "repeat",
        "slice",
        "len",
        "eq",
        "lt",
        "and",
        "or",
        "not",
        "html",
        "js",
        "call",
        "text",
        "9223372036854775807",
    ]);
    prop::collection::vec(piece, 0..24).prop_map(|pieces| pieces.join(" "))
}

/// Arguments of any type, also extreme ones.
fn argument() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec![
        "nil",
        "true",
        "0",
        "1",
        "-1",
        "3",
        "9223372036854775807",
        "-9223372036854775808",
        "1.5",
        "-0.0",
        "1e308",
        "(float64 \"NaN\")",
        "(float64 \"-Inf\")",
        "(int64 5)",
        "\"\"",
        "\"a\"",
        "\"Ab Cd_1\"",
        "\"\\xff\\xfe\\xc3\"",
        "\"ä\\u2028€\"",
        "\"(a|b)*$\"",
        "\"[\"",
        "\"${1}\"",
        "\"http://[::1%25x]:1/%41?#\"",
        "\"^1.x || >2-a\"",
        "\"1.2.3-a+b\"",
        "\"[1,{\\\"a\\\":null}]\"",
        "(list)",
        "(rest list)",
        "(list 1 nil \"a\" (list))",
        "(until 3)",
        "(split \",\" \"a,b\")",
        "(chunk 1 (until 2))",
        "(dict)",
        "(dict \"a\" (dict \"b\" 1) \"scheme\" \"x\" \"host\" nil)",
        "(semver \"1.2.3\")",
        ".l",
        ".",
    ])
}

proptest! {
    // Any function with any arguments ends without a panic, within its limits.
    #[test]
    fn any_call_terminates(name in prop::sample::select(SPRIG_NAMES.lines().collect::<Vec<_>>()), arguments in prop::collection::vec(argument(), 0..5)) {
        let limits = ExecutionLimits { steps_max: 20_000, memory_bytes_max: 200_000, output_bytes_max: 20_000 };
        let call = format!("{{{{{name} {}}}}}", arguments.join(" "));
        let (kind, output) = execute(call.as_bytes(), limits);
        prop_assert!(kind != "output" || output.len() <= 20_000);
    }

    // Any template ends, with an output or an error, within its limits.
    #[test]
    fn any_template_terminates(text in pieces()) {
        let limits = ExecutionLimits { steps_max: 10_000, memory_bytes_max: 100_000, output_bytes_max: 10_000 };
        let (kind, output) = execute(text.as_bytes(), limits);
        prop_assert!(kind != "output" || output.len() <= 10_000);
        let _ = execute(format!("{{{{{text}}}}}").as_bytes(), limits);
    }
}
