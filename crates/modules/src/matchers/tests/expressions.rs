//! `expression`: Caddy's documentation and CEL's language definition.

use causeway_pipeline::TlsFacts;
use causeway_testkit::{Kit, Request};
use serde_json::{Value, json};

use super::{check, refused, registry};

/// Evaluates expressions for a request for /foo?debug=1 to a.example.com, with the fields Field: foo, Field: bar and X:
/// 7, after `vars` has set foo=bar, n=5, list=a,b and yes=true.
#[track_caller]
fn holds(cases: &[(&str, bool)]) {
    for (expression, want) in cases {
        let status = status_of(&json!(expression));
        assert_eq!(status, if *want { 201 } else { 200 }, "{expression}");
    }
}

#[track_caller]
fn status_of(expression: &Value) -> u16 {
    let routes = json!([
        { "handle": [{ "handler": "vars", "foo": "bar", "n": 5, "list": "a,b", "yes": true, "ä": "x",
            "text": "5", "port": "{http.request.port}" }] },
        { "match": [{ "expression": expression }], "handle": [{ "handler": "static_response", "status_code": 201 }] },
    ]);
    let request = Request::get("/foo?debug=1").field("Host", "a.example.com:8080");
    Kit::new(&registry(), &routes).send(&request.field("Field", "foo").field("Field", "bar").field("X", "7")).status
}

// Caddy, http.matchers.expression and celmatcher's functions: each matcher is a function.
#[test]
fn matchers_are_functions() {
    holds(&[
        ("header({'Field': 'foo'})", true),
        ("header({'Field': ['x', 'b*']})", true),
        ("header({'Nope': 'foo'})", false),
        (r"header({'X': '\{http.request.header.X}'})", true),
        ("header_regexp('Field', 'fo{2}')", true),
        ("header_regexp('name', 'Field', '^bar$')", true),
        ("header_regexp('foo', 'Nope', 'fo{2}')", false),
        ("host('localhost')", false),
        ("host('*.example.com')", true),
        ("host('example.net', '*.example.org')", false),
        ("host({http.request.host})", true),
        ("method('PUT')", false),
        ("method('DELETE', 'GET')", true),
        ("path('*oo*')", true),
        ("path('/FOO')", true),
        ("path('/fo')", false),
        ("path('/bar', '/foo*')", true),
        ("path({http.request.uri.path} + '*')", true),
        ("path('/' + {http.vars.foo})", false),
        ("path_regexp('')", true),
        ("path_regexp('^/foo')", true),
        ("path_regexp('bar_at_start', '^/bar')", false),
        ("path_regexp('^/' + 'fo' + 'o$')", true),
        (r"path_regexp(r'^/foo\b')", true),
        (r"path_regexp('^/foo\\b')", true),
        ("protocol('HTTP')", true),
        ("protocol('grpc')", false),
        ("query({\"debug\": \"1\"})", true),
        ("query({'debug': ['0', '2']})", false),
        ("query({'debug': ['*']})", true),
        ("query({'debug': {http.request.uri.query.debug}})", true),
        ("query({'debug': ['0', {http.request.uri.query.debug}+'1']})", false),
        ("remote_ip('192.0.2.1')", true),
        ("remote_ip('10.0.0.0/8', '192.0.2.0/24')", true),
        ("client_ip('192.168.0.0/16')", false),
        ("vars({'foo': 'bar'})", true),
        ("vars({'foo': ['x', 'y']})", false),
        (r"vars({'\{http.request.uri.path}': '/foo'})", true),
        // The form in Caddy's documentation; Caddy itself requires the backslash.
        ("vars({'{http.request.uri.path}': ['/foo', '/x']})", true),
        ("vars_regexp('foo', 'ba?r')", true),
        ("vars_regexp('name', 'foo', '^a')", false),
        (r"vars_regexp('\{http.request.uri.path}', '/fo?o')", true),
        ("tls() || tls('any') || tls('complete') || tls('early_data')", false),
        ("!path('/foo') || method('GET') && !header({'Field': 'x'})", true),
    ]);
}

// Caddy: TLS placeholders are null in cleartext.
#[test]
fn with_and_without_tls() {
    let facts = TlsFacts { version: "tls1.3", server_name: Some("a.test".into()), ..TlsFacts::default() };
    for (expression, in_clear, over_tls) in [
        ("tls()", false, true),
        ("tls('any') && tls('complete') && !tls('early_data')", false, true),
        ("{http.request.tls.version} == 'tls1.3'", false, true),
        ("{http.request.tls.version} == null", true, false),
        ("{http.request.tls.resumed} == false && !{http.request.tls.resumed}", false, true),
        ("{http.request.tls.server_name} in ['a.test', 'b.test']", false, true),
        ("{http.request.tls.client.subject} == ''", false, true),
    ] {
        let secure = Request::get("/").tls(facts.clone());
        check("expression", &[(json!(expression), Request::get("/"), in_clear), (json!(expression), secure, over_tls)]);
    }
}

// Caddy: placeholders are values; a placeholder that is not set is null.
#[test]
fn placeholders_are_values() {
    holds(&[
        ("{http.request.method} == 'GET'", true),
        ("{http.request.host} == 'a.example.com'", true),
        // The port of the authority and of the addresses are integers.
        ("{http.request.port} == 8080 && {http.request.port} in [80, 8080] && {http.request.port} > 1024", true),
        ("{http.request.port} == '8080'", false),
        ("string({http.request.port}) == '8080'", true),
        ("{http.request.remote.port} >= 0 && {http.request.local.port} >= 0", true),
        ("{http.request.uri.path}.startsWith('/f')", true),
        ("{http.request.method}.startsWith(\"P\")", false),
        ("{http.request.header.X} == '7'", true),
        ("{http.request.header.X} == 7", false),
        ("int({http.request.header.X}) + 1 == 8", true),
        ("{http.request.header.Nope} == ''", true),
        ("{http.request.header.Nope} != null", true),
        ("{http.vars.unset} == null", true),
        ("{http.vars.unset} == ''", false),
        ("{http.vars.unset} in ['', 'x']", false),
        ("{http.vars.n} == 5 && {http.vars.n} > 4 && {http.vars.n} < 5.5 && {http.vars.n} in [4, 5]", true),
        ("{http.vars.n} * 2 == 10 && -{http.vars.n} == -5 && {http.vars.n} + 0.5 == 5.5", true),
        ("{http.vars.n} == '5' || {http.vars.text} == 5 || {http.vars.yes} == 'true'", false),
        ("{http.vars.text} == '5' && {http.vars.port} == '8080'", true),
        ("{http.vars.yes} == true && {http.vars.yes}", true),
        ("!{http.vars.yes}", false),
        ("{http.vars.foo} + 'x' == 'barx'", true),
        ("{http.error.status_code} == null", true),
        ("{http.regexp.name.1} == null", true),
        ("path_regexp('p', '^/(f)(o+)') && {http.regexp.p.2} == 'oo' && {http.regexp.1} == 'f'", true),
        ("{http.shutting_down} || false", false),
        ("{http.request.duration_ms} >= 0.0", true),
        ("{http.vars.client_ip} == '192.0.2.1'", true),
        ("{http.vars.trusted_proxy} == false", true),
        ("{my_own} == null", true),
        ("{http.request.unknown} == null && {http.time_until_shutdown} == null", true),
        ("'\\{http.request.method}' == '{' + 'http.request.method}'", true),
    ]);
    let named = json!({ "expr": "path_regexp('^/(.)') && {http.regexp.own.1} == 'f'", "name": "own" });
    assert_eq!(status_of(&named), 201);
}

// Caddy, http.handlers.map: the destinations are placeholders, whose values are texts, or null if neither a mapping nor
// a default applies.
#[test]
fn outputs_of_map() {
    let map = json!({
        "handler": "map", "source": "{http.request.uri.path}", "destinations": ["{backend}", "{a.b}", "{http.own.number}"],
        "mappings": [
            { "input": "/a", "outputs": ["10.0.0.1:80", "yes", 5] },
            { "input_regexp": "^/(b)$", "outputs": ["of $1", null, null] },
        ],
    });
    let default = json!({
        "handler": "map", "source": "{backend}", "destinations": ["{or}"],
        "mappings": [{ "input": "of b", "outputs": ["known"] }], "defaults": ["unknown"],
    });
    for (path, expression, want) in [
        ("/a", "{backend} == '10.0.0.1:80' && {a.b} == 'yes'", true),
        ("/a", "{backend} in ['x', '10.0.0.1:80'] && {backend}.startsWith('10.') && {backend} != null", true),
        ("/a", "{http.own.number} == '5' && int({http.own.number}) == 5", true),
        ("/a", "{http.own.number} == 5", false),
        ("/a", "{or} == 'unknown' && {or} != 'known'", true),
        ("/b", "{backend} == 'of b' && {a.b} == null && {or} == 'known'", true),
        ("/c", "{backend} == null && {or} == 'unknown'", true),
        ("/c", "{backend} == ''", false),
    ] {
        let routes = json!([
            { "handle": [map, default] },
            { "match": [{ "expression": expression }], "handle": [{ "handler": "static_response", "status_code": 201 }] },
        ]);
        let status = Kit::new(&registry(), &routes).send(&Request::get(path)).status;
        assert_eq!(status, if want { 201 } else { 200 }, "{path} {expression}");
    }
}

// CEL's language definition: operators, their precedence, and errors that && and || absorb.
#[test]
fn operators() {
    holds(&[
        ("1 + 2 * 3 == 7 && (1 + 2) * 3 == 9", true),
        ("7 / 2 == 3 && 7 % 4 == 3 && -7 / 2 == -3 && 2 - 3 - 4 == -5", true),
        ("1.5 + 1.5 == 3.0 && 1e3 == 1000.0 && .5 < 0.75", true),
        ("0x1F == 31", true),
        ("'a' + 'b' == \"ab\"", true),
        ("'a' < 'b' && 'B' < 'a' && !('a' < 'a') && 'a' <= 'a'", true),
        ("true != false && false < true", true),
        ("1 in [1, 2] && !(3 in [1, 2]) && 'a' in ['a',]", true),
        ("[1, 2] == [1, 2] && [1] != [2] && [1] + [2] == [1, 2] && [[1], ['a']][1][0] == 'a'", true),
        ("true ? false : true", false),
        ("{http.request.method} == 'GET' ? path('/foo') : false", true),
        ("false ? false : true ? true : false", true),
        ("true || int({http.vars.foo}) == 1", true),
        ("int({http.vars.foo}) == 1 || true", true),
        ("!(false && int({http.vars.foo}) == 1) && !(int({http.vars.foo}) == 1 && false)", true),
        ("-9223372036854775808 == -9223372036854775807 - 1 && -0x8000000000000000 < 0", true),
        ("!!true && - -1 == 1", true),
        ("null == null", true),
        (
            r#""\x41\u00e4\101\n\"" == 'Aä' + "A" + '''
"'''"#,
            true,
        ),
        (r"r'\n' == '\\n' && R'a' == 'a'", true),
        ("true // a comment", true),
        ("{http.request.header.X} == '7' &&\n\t{http.request.method} == 'GET'", true),
        ("double('1_0.5') == 10.5 && double('-Inf') < 0.0 && string(string(7)) == '7' && string('x') == 'x'", true),
        ("double('1.5') == 1.5 && int(1.9) == 1 && double(1) == 1.0 && bool('true')", true),
        ("string(1) + string(true) + string(1.5) == '1true1.5' && string(1000000.0) == '1e+06'", true),
        // Go, strconv: the shortest form has an exponent from 10^6, also of a number whose logarithm is rounded to 6.
        ("string(999999.9999999999) == '999999.9999999999' && string(0.0001) == '0.0001'", true),
        ("string(0.00001) == '1e-05' && string(-1234567.0) == '-1.234567e+06' && string(-0.5) == '-0.5'", true),
    ]);
}

// CEL's definitions of functions on strings, and cel-go's extension for strings, which Caddy adds.
#[test]
fn functions() {
    holds(&[
        ("'abc'.startsWith('ab') && 'abc'.endsWith('bc') && 'abc'.contains('b') && !'abc'.contains('x')", true),
        ("size('äb') == 2 && 'äb'.size() == 2 && size([1, 2]) == 2 && [].size() == 0", true),
        ("'abc'.matches('^a.c$') && matches('abc', 'b') && !'abc'.matches('^b')", true),
        (r"{http.request.host}.matches(r'^\w\.example\.com$')", true),
        ("'äbc'.charAt(1) == 'b' && 'abc'.charAt(3) == ''", true),
        ("'äbcb'.indexOf('b') == 1 && 'äbcb'.indexOf('b', 2) == 3 && 'abc'.indexOf('x') == -1", true),
        ("'äbcb'.lastIndexOf('b') == 3 && 'äbcb'.lastIndexOf('b', 2) == 1", true),
        ("'ABC'.lowerAscii() == 'abc' && 'abc'.upperAscii() == 'ABC' && ' a\t'.trim() == 'a'", true),
        ("'aXbXc'.replace('X', '-') == 'a-b-c' && 'aXbXc'.replace('X', '', 1) == 'abXc'", true),
        ("'äb'.replace('', '-') == '-ä-b-' && 'äb'.replace('', '-', 2) == '-ä-b' && ''.replace('', '-') == '-'", true),
        ("'a,b,c'.split(',') == ['a', 'b', 'c'] && 'a,b,c'.split(',', 2) == ['a', 'b,c']", true),
        ("'abc'.split('') == ['a', 'b', 'c'] && ''.split(',') == [''] && 'a'.split(',', 0) == []", true),
        ("'äbc'.substring(1) == 'bc' && 'äbc'.substring(0, 1) == 'ä'", true),
        ("['a', 'b'].join() == 'ab' && ['a', 'b'].join('-') == 'a-b'", true),
        ("{http.vars.list}.split(',')[1] == 'b'", true),
        ("'b' in {http.vars.list}.split(',')", true),
        ("['/x', '/f'].exists(p, {http.request.uri.path}.startsWith(p))", true),
        ("['/f', '/fo'].all(p, {http.request.uri.path}.startsWith(p))", true),
        ("[1, 2, 3].exists_one(n, n > 2) && ![1, 2, 3].exists_one(n, n > 1)", true),
        ("[1, 2, 3].filter(n, n > 1).map(n, n * 2) == [4, 6]", true),
        ("[1, 2, 3].map(n, n > 1, n * 2) == [4, 6]", true),
        ("dyn('a') == 'a' && dyn('a') != 1", true),
        ("[[1], [2, 3]].exists(l, l.exists(n, n == 3 && size(l) == 2))", true),
    ]);
}

// CEL, "Timestamps and durations"; compared with Caddy. Without a time zone the parts are those of UTC.
#[test]
fn times() {
    holds(&[
        ("{time.now} > timestamp('2020-01-01T00:00:00Z') && !({time.now} < timestamp('2020-01-01T00:00:00Z'))", true),
        ("{time.now} - timestamp('2020-01-01T00:00:00Z') > duration('24h')", true),
        ("{time.now}.getFullYear() > 2020 && {time.now}.getHours() < 24", true),
        // A time for "never": the last second that CEL has.
        ("{time.now} < timestamp('9999-12-31T23:59:59Z') && {time.now} < timestamp(253402300799)", true),
        ("timestamp('2026-11-28T23:04:05.678Z').getFullYear() == 2026", true),
        ("timestamp('2026-11-28T23:04:05.678Z').getMonth() == 10", true),
        ("timestamp('2026-11-28T23:04:05.678Z').getDate() == 28", true),
        ("timestamp('2026-11-28T23:04:05.678Z').getDayOfMonth() == 27", true),
        ("timestamp('2026-11-28T23:04:05.678Z').getDayOfWeek() == 6", true),
        ("timestamp('2026-11-29T23:04:05.678Z').getDayOfWeek() == 0", true),
        ("timestamp('2026-11-28T23:04:05.678Z').getDayOfYear() == 331", true),
        ("timestamp('2026-11-28T23:04:05.678Z').getHours() == 23", true),
        ("timestamp('2026-11-28T23:04:05.678Z').getHours('+02:30') == 1", true),
        ("timestamp('2026-11-28T23:04:05.678Z').getHours('-02:30') == 20", true),
        ("timestamp('2026-11-28T23:04:05.678Z').getDate('02:00') == 29", true),
        ("timestamp('2026-11-28T23:04:05.678Z').getHours('') == 23", true),
        ("timestamp('2026-11-28T23:04:05.678Z').getMinutes() == 4", true),
        ("timestamp('2026-11-28T23:04:05.678Z').getSeconds() == 5", true),
        ("timestamp('2026-11-28T23:04:05.678Z').getMilliseconds() == 678", true),
        ("timestamp('2026-01-01T00:00:00+02:00').getHours() == 22", true),
        ("timestamp(1767225600) == timestamp('2026-01-01T00:00:00Z')", true),
        ("int(timestamp('2026-01-01T00:00:00Z')) == 1767225600", true),
        ("string(timestamp('2026-01-01T00:00:00.5Z')) == '2026-01-01T00:00:00.5Z'", true),
        ("timestamp('2026-01-01T00:00:00Z') + duration('24h') == timestamp('2026-01-02T00:00:00Z')", true),
        ("timestamp('2026-01-02T00:00:00Z') - duration('24h') == timestamp('2026-01-01T00:00:00Z')", true),
        ("timestamp('2026-01-01T00:00:00Z') in [timestamp('2026-01-01T00:00:00Z')]", true),
        ("duration('1s') + duration('2s') == duration('3s') && duration('1s') - duration('2s') < duration('0')", true),
        ("duration('90m').getHours() == 1 && duration('90m').getMinutes() == 90", true),
        ("duration('1.5s').getSeconds() == 1 && duration('1.5s').getMilliseconds() == 1500", true),
        ("string(duration('90m')) == '5400s' && string(duration('1.5s')) == '1.5s'", true),
        ("int(duration('5s')) == 5000000000", true),
        ("{http.request.duration} < duration('1h') && {http.request.duration}.getHours() == 0", true),
        ("duration({http.vars.text} + 's') == duration('5s')", true),
    ]);
}

// Caddy responds with 500 if an expression has no value.
#[test]
fn errors_while_it_runs() {
    for expression in [
        "int({http.request.uri.path}) == 1",
        "{http.error.status_code} >= 500",
        "{http.request.method} > 5",
        "[1][1] == 1",
        "1 / (size('') + 0) == 1",
        "9223372036854775807 + 1 == 0",
        "-(-9223372036854775808) == 0",
        "'abc'.substring(4) == ''",
        "{http.request.method} ? true : false",
        "{http.request.method} in {http.request.host}",
        "{http.request.method} && true",
        "timestamp({http.request.method}) == timestamp(0)",
        "duration({http.request.method}) == duration('0')",
        "{http.request.method} + duration('1s') == 'x'",
        "{http.request.method}.getHours() == 1",
        "timestamp('9999-12-30T00:00:00Z') + duration('48h') > {time.now}",
    ] {
        assert_eq!(status_of(&json!(expression)), 500, "{expression}");
    }
}

#[test]
fn refused_at_load() {
    let own = |mistake: &str| format!("expected a CEL expression: {mistake}");
    for (expression, want) in [
        ("", "the end where a value was expected at character 1"),
        ("path('/a'", "the end where ')' was expected at character 10"),
        ("{http.request.uri.query}", "a value of type any, where true or false is needed, at character 1"),
        ("1 + 1", "a value of type int, where true or false is needed, at character 3"),
        ("'a' == 1", "'==', which does not take (string, int) at character 5"),
        ("1 == 1.0", "'==', which does not take (int, double) at character 3"),
        ("'a' && true", "a value of type string, where true or false is needed, at character 1"),
        ("'a' - 'b' == ''", "'-', which does not take (string, string) at character 5"),
        ("'a'.startsWith(1)", "'startsWith()', which does not take (string, int) at character 5"),
        ("'a'.nope()", "the function 'nope', which is not supported (docs/refused.md), at character 5"),
        ("has({http.request.host})", "the function 'has', which is not supported (docs/refused.md), at character 1"),
        (
            "math.greatest(1, 2) == 2",
            "the function 'greatest', which is not supported (docs/refused.md), at character 6",
        ),
        (
            "{http.request.host}.size == 1",
            "the field 'size' of a value, but values have no fields here at character 21",
        ),
        ("foo == 1", "the unknown name 'foo' at character 1"),
        ("5u == 5u", "unsigned numbers, which are not supported (docs/refused.md) at character 1"),
        ("b'a' == b'a'", "byte strings (b'…'), which are not supported (docs/refused.md) at character 1"),
        ("{'a': 1} == {'a': 1}", "a map, which only header(), query(), vars() and file() take, at character 1"),
        ("'a", "a string that is not closed at character 1"),
        (r"'\{' == ''", "an invalid escape at character 2"),
        (r"'\x+1' == ''", "an invalid escape at character 2"),
        ("'{http.request.host}' == ''", "a placeholder in a string, where it is not expanded"),
        ("{time.now} == 1", "'==', which does not take (timestamp, int) at character 12"),
        ("{time.now} + {time.now} == 1", "'+', which does not take (timestamp, timestamp) at character 12"),
        ("duration('1h').getMonth() == 1", "'getMonth()', which does not take (duration) at character 16"),
        ("{time.now}.getHours(1) == 1", "a time zone that is not a string literal at character 21"),
        ("{time.now}.getHours('UTC', 'UTC') == 1", "a second argument of getHours() at character 28"),
        ("{time.now} > timestamp('2026-01-01T00:00Z')", "'2026-01-01T00:00Z', which is not a time"),
        ("duration('1d') > duration('1s')", "'1d', which is not a duration such as '1h30m', at character 10"),
        ("{time.now} > timestamp('2026-01-01')", "'2026-01-01', which is not a time such as '2026-01-31T08:00:00Z'"),
        ("{time.now} > timestamp('2026-01-01 00:00:00Z')", "'2026-01-01 00:00:00Z', which is not a time"),
        ("duration('x') > duration('1s')", "'x', which is not a duration such as '1h30m', at character 10"),
        // As in Caddy, a conversion of a constant is one at load, also if its value is not needed.
        ("true || int('0x5') == 5", "'0x5', which is not an integer such as '7', at character 13"),
        ("int(string('x')) == 5", "'x', which is not an integer such as '7', at character 5"),
        ("int(1e30) == 5", "a value of type double, which is not an integer such as '7', at character 5"),
        ("bool('yes')", "'yes', which is not 'true' or 'false', at character 6"),
        ("double('_1') == 1.0", "'_1', which is not a number such as '1.5', at character 8"),
        ("double('1e400') > 1.0", "'1e400', which is not a number such as '1.5', at character 8"),
        ("9223372036854775808 > 0", "a number that is too large at character 1"),
        ("{time.now}.getHours('Mars') == 1", "'Mars', which is not a time zone such as 'Europe/Rome' or '+01:00'"),
        ("true = true", "'=', which cannot begin a value or an operator at character 6"),
        ("method()", "method() without a string at character 1"),
        ("host(80)", "an argument that is neither a string nor a placeholder, nor a sum of them at character 6"),
        ("protocol()", "protocol() without exactly one string at character 1"),
        ("protocol('a', 'b')", "protocol() without exactly one string at character 1"),
        ("protocol(true)", "an argument that is not a string literal at character 10"),
        ("header('foo')", "header() without exactly one map, such as {'key': 'value'} at character 1"),
        ("header_regexp('foo')", "header_regexp() without a field or variable and a pattern"),
        ("query({1: '1'})", "an argument that is neither a string nor a placeholder"),
        ("query({'debug': 1})", "an argument that is neither a string nor a placeholder"),
        ("query(Message{field: '1'})", "'{' where ')' was expected at character 14"),
        ("vars('foo', 'bar')", "vars() without exactly one map"),
        ("path_regexp({http.request.host})", "an argument that is not a string literal at character 13"),
        ("'a'.matches({http.request.host})", "a pattern that is not a string literal at character 13"),
        ("[1].exists('x', true)", "a variable that is not a plain name at character 12"),
        ("ä", "'ä', which cannot begin a value or an operator at character 1"),
    ] {
        let message = format!("found '{expression}', {}", own(want));
        refused("expression", &[(json!(expression), &message)]);
    }
    refused(
        "expression",
        &[
            (
                json!("path_regexp('a(')"),
                "path_regexp.pattern: found 'a(', expected a regular expression: unclosed group",
            ),
            (json!("'a'.matches('a(')"), "found 'a(', expected a regular expression"),
            (json!("remote_ip('x')"), "remote_ip.ranges[0]: found 'x', expected an IP address"),
            (json!({ "expr": "true", "nam": "x" }), "nam: unknown field `nam`"),
            (json!(5), "found '5', expected an expression, or an object with `expr`"),
        ],
    );
    let deep = format!("{}true{}", "(".repeat(40), ")".repeat(40));
    refused(
        "expression",
        &[(json!(deep), &format!("found '{deep}', {}", own("brackets nested deeper than 32 levels")))],
    );
    let long = format!("1{} == 1", " + 1".repeat(40));
    refused("expression", &[(json!(long), &format!("found '{long}', {}", own("a chain of more than 32 operators")))]);
}

// A long chain of || is one flat node, not a deep tree.
#[test]
fn long_chains() {
    let terms: Vec<_> = (0..2000).map(|number| format!("{{http.request.uri.path}} == '/{number}'")).collect();
    let mut kit = Kit::new(
        &registry(),
        &json!([{ "match": [{ "expression": terms.join(" || ") }], "handle": [
            { "handler": "static_response", "status_code": 201 },
        ] }]),
    );
    assert_eq!([kit.send(&Request::get("/1999")).status, kit.send(&Request::get("/2000")).status], [201, 200]);
}

// The condition that the Caddyfile's handle_errors with codes and classes compiles to.
#[test]
fn of_error_routes() {
    let condition =
        "{http.error.status_code} >= 500 && {http.error.status_code} <= 599 || {http.error.status_code} in [404]";
    let errors = json!([
        { "match": [{ "expression": condition }], "handle": [{ "handler": "static_response", "status_code": 201 }] },
    ]);
    for (status, want) in [(404, 201), (410, 410), (500, 201), (503, 201), (599, 201), (499, 499)] {
        let routes = json!([{ "handle": [{ "handler": "error", "status_code": status }] }]);
        let answer = Kit::with_errors(&registry(), &routes, &errors).send(&Request::get("/"));
        assert_eq!(answer.status, want, "{status}");
    }
}

// Multiplying the client's input is bounded, and memory of an exists() step is released.
#[test]
fn memory_and_work_are_bounded() {
    let field = ",".repeat(8 * 1024);
    let target = format!("/?{}", "a&".repeat(4 * 1024));
    for (expression, want) in [
        (
            "{http.request.header.A}.replace(',', {http.request.header.A}).replace(',', {http.request.header.A}) == ''",
            500,
        ),
        ("{http.request.header.A}.split(',').map(x, {http.request.header.A}.split(',')).size() > 0", 500),
        (
            "[{http.request.header.A}].map(x, x + x).map(x, x + x).map(x, x + x).map(x, x + x).map(x, x + x).map(x, x + x)\
          .map(x, x + x).map(x, x + x).map(x, x + x).map(x, x + x).map(x, x + x).map(x, x + x).map(x, x + x)\
          .map(x, x + x).map(x, x + x).size() == 1",
            500,
        ),
        ("{http.request.header.A}.split(',', 200).exists(x, {http.request.header.A}.split(',').size() == 0)", 200),
        ("{http.request.header.A}.split(',').exists(x, {http.request.header.A}.split(',').exists(y, y == 'z'))", 500),
        // Each function may read the whole field for each of its items.
        (
            "{http.request.header.A}.split(',').exists(x, {http.request.header.A}.contains('y') || {http.request.header.A}.contains('z'))",
            500,
        ),
        // A placeholder or a matcher may read the whole query for each of them, also without a result.
        ("{http.request.header.A}.split(',').exists(x, {http.request.uri.query.zz} == 'z')", 500),
        ("{http.request.header.A}.split(',').exists(x, query({'zz': 'z'}))", 500),
        (
            "{http.request.header.A}.split(',', 100).exists(x, {http.request.uri.query.zz} == 'z' || query({'zz': 'z'}))",
            200,
        ),
        ("{http.request.header.A}.replace(',', ',,').size() == 16384", 201),
    ] {
        let routes = json!([{ "match": [{ "expression": expression }], "handle": [
            { "handler": "static_response", "status_code": 201 },
        ] }]);
        let answer = Kit::new(&registry(), &routes).send(&Request::get(&target).field("A", &field));
        assert_eq!(answer.status, want, "{expression}");
    }
}

// In a set with other matchers, and negated.
#[test]
fn within_sets() {
    check("not", &[(json!([{ "expression": "path('/a')", "method": ["GET"] }]), Request::get("/a"), false)]);
    check("expression", &[(json!({ "expr": "path('/a')" }), Request::get("/a"), true)]);
}
