//! The intended differences from Caddy. Each entry describes the differences that it covers and their reason. A
//! difference without an entry fails the step; an entry that covers no difference in a run is reported.
//!
//! An entry is as narrow as possible: it examines the request, the Caddyfile and both responses, so that another fault
//! in that response is still detected.

mod malformed;
mod seen;

use self::malformed::malformed;
pub(crate) use self::seen::ObservedDifference;
use super::compare::ResponseAspect;
use super::exchange::{NormalizedResponse, ResponseEnd};

pub(crate) struct ExpectedDifference {
    pub(crate) name: &'static str,
    /// The differences that the entry covers.
    pub(crate) covers: &'static str,
    pub(crate) why: &'static str,
    holds: fn(&ObservedDifference<'_>) -> bool,
}

pub(crate) const WANTED: &[ExpectedDifference] = &[
    ExpectedDifference {
        name: "unstable",
        covers: "a response of Caddy that varies from load to load, where Causeway's is always the same",
        why: "Caddy evaluates the matchers of a set, and operations on fields, in the random order of a Go map",
        holds: |seen| seen.is_unstable,
    },
    ExpectedDifference {
        name: "timing",
        covers: "interim responses, the end of a response, and whether a connection is kept, if the case shows no difference when it is repeated",
        why: "these depend on which bytes arrive together, and on when a reloading server closes a connection",
        holds: |seen| {
            seen.is_passing
                && matches!(seen.difference.part, ResponseAspect::Interim | ResponseAspect::End | ResponseAspect::Kept)
        },
    },
    ExpectedDifference {
        name: "server",
        covers: "the product's name in the field Server",
        why: "each product names itself",
        holds: |seen| {
            seen.field("server")
                && seen.difference.caddy.replace("\"Caddy\"", "\"Causeway\"") == seen.difference.causeway
        },
    },
    ExpectedDifference {
        name: "date",
        covers: "the field Date, if both responses have one",
        why: "a second may pass between the two responses",
        holds: |seen| seen.field("date") && seen.both_have_it(),
    },
    ExpectedDifference {
        name: "via",
        covers: "the product's name in the field Via and its position, in responses and in forwarded requests",
        why: "each product names itself; RFC 9110 §7.6.3: each proxy appends its name, while Caddy inserts it first",
        holds: |seen| {
            let sorted = |values: &str| {
                let mut values: Vec<String> = values
                    .split(", ")
                    .map(|value| value.replace("Caddy", "Causeway").replace("1.2 ", "1.1 "))
                    .collect();
                values.sort();
                values
            };
            (seen.field("via") || seen.forwarded("via"))
                && sorted(&seen.difference.caddy) == sorted(&seen.difference.causeway)
        },
    },
    ExpectedDifference {
        name: "refusal",
        covers: "everything except the status of a 4xx or 5xx that both servers send before any site handles the request",
        why: "Go's own response has no Date and explains the error in its reason phrase, which helps attackers more than clients",
        holds: |seen| {
            seen.answers(|_, caddy, causeway| {
                caddy.status >= 400
                    && caddy.status == causeway.status
                    && caddy.values("server").next().is_none()
                    && caddy.values("via").next().is_none()
            }) && seen.difference.part != ResponseAspect::Status
        },
    },
    ExpectedDifference {
        name: "strict requests",
        covers: "the whole response to a request that RFC 9110, RFC 9112 or RFC 3986 forbids: Causeway sends 400, Caddy serves it",
        why: "docs/decisions/0002: a request that two parsers interpret differently is refused",
        holds: |seen| seen.answers(|request, _, causeway| causeway.status == 400 && malformed(request).is_some()),
    },
    ExpectedDifference {
        name: "options *",
        covers: "the whole response to `OPTIONS *`",
        why: "the sites respond to it here; Go responds itself, before Caddy",
        holds: |seen| seen.answers(|request, _, _| request.method == "OPTIONS" && request.target == "*"),
    },
    ExpectedDifference {
        name: "empty path",
        covers: "the whole response to an absolute target without a path",
        why: "RFC 9110 §4.2.3: an empty path is `/`; in Caddy it is a path that most matchers do not match",
        holds: |seen| {
            seen.answers(|request, _, _| request.target.strip_prefix("http://").is_some_and(|rest| !rest.contains('/')))
        },
    },
    ExpectedDifference {
        name: "version",
        covers: "version and Connection of responses to HTTP/1.0",
        why: "RFC 9110 §2.5 and §6.2: a server sends its own highest minor version; `Connection: close` informs these clients too",
        holds: |seen| {
            seen.answers(|request, _, _| request.version == "HTTP/1.0")
                && (seen.difference.part == ResponseAspect::Version || seen.field("connection"))
        },
    },
    ExpectedDifference {
        name: "reason",
        covers: "the reason phrase of a status that no standard names, and of 413, 416 and 422",
        why: "RFC 9110 has new phrases for three, and Go writes `status code 599`; clients ignore the phrase (RFC 9112 §4)",
        holds: |seen| {
            seen.difference.part == ResponseAspect::Reason
                && (seen.difference.caddy.starts_with("status code ")
                    || seen.answers(|_, caddy, _| matches!(caddy.status, 413 | 416 | 422)))
        },
    },
    ExpectedDifference {
        name: "control characters",
        covers: "a control character from a placeholder in a field's value, which becomes a blank",
        why: "RFC 9110 §5.5: such a value is dangerous, and a proxy in front may refuse the whole response",
        holds: |seen| {
            let blank = |text: &str| {
                ["\\0", "\\u{1}", "\\u{7f}"].iter().fold(text.to_owned(), |text, control| text.replace(control, " "))
            };
            matches!(seen.difference.part, ResponseAspect::Field(_) | ResponseAspect::Forwarded(_))
                && blank(&seen.difference.caddy) == seen.difference.causeway
        },
    },
    ExpectedDifference {
        name: "accept-encoding",
        covers: "Accept-Encoding: gzip in a forwarded request whose client sent no Accept-Encoding",
        why: "docs/reverse-proxy.md: requests themselves list the codings they accept; Caddy requests gzip and decodes it",
        holds: |seen| seen.forwarded("accept-encoding") && seen.is("\"gzip\"", ""),
    },
    ExpectedDifference {
        name: "te",
        covers: "Connection: TE in a forwarded request with TE",
        why: "RFC 9110 §10.1.4: a sender of TE also lists it in Connection",
        holds: |seen| seen.forwarded("connection") && seen.is("", "\"TE\""),
    },
    ExpectedDifference {
        name: "known length",
        covers: "Content-Length instead of Transfer-Encoding in a forwarded request that arrived in chunks",
        why: "docs/reverse-proxy.md: content that is complete is sent with its length, which every upstream understands",
        holds: |seen| {
            (seen.forwarded("content-length") && seen.difference.caddy.is_empty()
                || seen.forwarded("transfer-encoding") && seen.is("\"chunked\"", ""))
                && seen.answers(|request, _, _| request.has("transfer-encoding"))
        },
    },
    ExpectedDifference {
        name: "expectation",
        covers: "closing the connection after a response to `Expect: 100-continue` if no handler read the content",
        why: "RFC 9110 §10.1.1: such a client may or may not send its content, so the next bytes are ambiguous",
        holds: |seen| {
            (seen.difference.part == ResponseAspect::Kept || seen.field("connection"))
                && seen.answers(|request, _, causeway| request.has("expect") && !causeway.kept)
        },
    },
    ExpectedDifference {
        name: "deferred",
        covers: "fields of an empty 200 that no handler produced",
        why: "a deferred operation of `header` applies to every response; Caddy skips it if no handler writes",
        holds: |seen| {
            matches!(seen.difference.part, ResponseAspect::Field(_))
                && seen.document.contains("header")
                && seen.answers(|_, caddy, causeway| {
                    caddy.status == 200 && causeway.status == 200 && caddy.body.is_empty() && causeway.body.is_empty()
                })
        },
    },
    ExpectedDifference {
        name: "path of the root",
        covers: "the whole response if `try_files` finds the root itself, by `..` or after a rewrite to `/`; for `/` itself only the slash",
        why: "docs/caddyfile.md: a path always begins with a slash; Caddy produces an empty path, which `/*` does not match",
        holds: |seen| {
            let without = |body: &[u8]| String::from_utf8_lossy(body).replace("%2F", "").replace('/', "");
            seen.document.contains("try_files")
                && seen.answers(|request, caddy, causeway| {
                    let is_body = seen.difference.part == ResponseAspect::Body || seen.field("content-length");
                    let rewritten =
                        ["\"/?", "strip_prefix", "handle_path"].iter().any(|line| seen.document.contains(line));
                    request.target.contains("..")
                        || rewritten
                        || (is_body && without(&caddy.body) == without(&causeway.body))
                })
        },
    },
    ExpectedDifference {
        name: "bare question mark",
        covers: "the `?` of a target without a query, after several rewrites and in a redirect to a canonical path",
        why: "a rewrite here starts from the target that the previous one produced; Go still stores that there was a `?`",
        holds: |seen| {
            let without = |bytes: &[u8]| bytes.iter().copied().filter(|byte| *byte != b'?').collect::<Vec<u8>>();
            seen.answers(|request, caddy, causeway| {
                request.target.ends_with('?')
                    && (seen.field("location") || without(&caddy.body) == without(&causeway.body))
            }) && (seen.difference.part == ResponseAspect::Body
                || seen.field("content-length")
                || seen.field("location"))
        },
    },
    ExpectedDifference {
        name: "invalid status",
        covers: "the whole response if a placeholder yields a status below 100: Causeway turns it into an error, 500",
        why: "Go panics at such a status and closes the connection without a response",
        holds: |seen| {
            seen.answers(|_, caddy, causeway| caddy.end == ResponseEnd::Silent && causeway.status >= 300)
                && seen.document.contains("query.a}")
        },
    },
    ExpectedDifference {
        name: "invalid host",
        covers: "the whole response if a placeholder yields an invalid Host: Causeway sends 502",
        why: "Go sends an empty Host to the upstream, which selects another of its sites",
        holds: |seen| {
            let sets_host = ["header_up Host", "request_header Host", "+Host", "* Host ", " Host \""]
                .iter()
                .any(|line| seen.document.contains(line));
            sets_host && seen.answers(|_, caddy, causeway| causeway.status == 502 && caddy.status != 502)
        },
    },
    ExpectedDifference {
        name: "interim answers to http/1.0",
        covers: "1xx of the upstream for an HTTP/1.0 client",
        why: "RFC 9110 §15.2: a server must not send 1xx to such a client",
        holds: |seen| {
            seen.difference.part == ResponseAspect::Interim
                && seen.difference.causeway == "[]"
                && seen.answers(|request, _, _| request.version == "HTTP/1.0")
        },
    },
    ExpectedDifference {
        name: "type of an upstream's answer",
        covers: "Content-Type of a forwarded response whose upstream sent none",
        why: "only the upstream has this information; Go guesses from the content",
        holds: |seen| {
            seen.field("content-type")
                && seen.difference.causeway.is_empty()
                && seen.answers(|request, _, _| request.values("x-origin").any(|wishes| wishes.contains("untyped")))
        },
    },
    ExpectedDifference {
        name: "prefix beyond ascii",
        covers: "the whole response if a prefix with letters beyond ASCII is stripped from a path",
        why: "Caddy compares such a prefix byte by byte as if bytes were letters, so that it never matches",
        holds: |seen| {
            let strips =
                seen.document.contains("strip_prefix /{path.0}") || seen.document.contains("handle_path /{path.0}");
            strips
                && (seen.document.contains('é')
                    || seen.answers(|request, _, _| request.target.to_ascii_lowercase().contains("%c3")))
        },
    },
    ExpectedDifference {
        name: "error after an upstream",
        covers: "the status of an error in the routes after forward_auth or in handle_response, which Caddy replaces by 502",
        why: "the upstream did not fail; error routes receive the original error",
        holds: |seen| {
            (seen.document.contains("forward_auth") || seen.document.contains("handle_response"))
                && seen.answers(|_, caddy, causeway| caddy.status == 502 && causeway.status != 502)
        },
    },
    ExpectedDifference {
        name: "later version",
        covers: "the whole response to HTTP/1.2",
        why: "RFC 9110 §2.5: a higher minor version is processed as the highest supported one, so matchers see HTTP/1.1 too",
        holds: |seen| seen.answers(|request, _, _| request.version == "HTTP/1.2"),
    },
    ExpectedDifference {
        name: "several entity tags",
        covers: "the second ETag that `header +ETag` adds before file_server",
        why: "the operator adds it; Caddy's file_server keeps only the first",
        holds: |seen| {
            seen.field("etag")
                && seen.document.contains("+ETag")
                && seen.difference.causeway.starts_with(&seen.difference.caddy)
        },
    },
    ExpectedDifference {
        name: "conditions on several lines",
        covers: "the whole response if If-Match or If-None-Match spans several lines",
        why: "RFC 9110 §5.3: the lines are one list; Go reads only the first",
        holds: |seen| {
            seen.answers(|request, _, _| {
                ["if-match", "if-none-match"].iter().any(|name| request.values(name).count() > 1)
            })
        },
    },
    ExpectedDifference {
        name: "chunks of a head",
        covers: "Transfer-Encoding of the upstream's response to HEAD",
        why: "RFC 9112 §6.1: it describes the framing of a response to GET, and is forwarded; Go omits it",
        holds: |seen| {
            seen.field("transfer-encoding")
                && seen.is("", "\"chunked\"")
                && seen.answers(|request, _, _| request.method == "HEAD")
        },
    },
    ExpectedDifference {
        name: "placeholders after an upstream",
        covers: "the body and fields if the request is changed after forward_auth or in handle_response",
        why: "placeholders show the request as the handlers changed it; there Caddy's show the earlier one",
        holds: |seen| {
            let upstream = seen.document.contains("forward_auth") || seen.document.contains("handle_response");
            let changes =
                ["method ", "rewrite ", "uri ", "request_header "].iter().any(|line| seen.document.contains(line));
            matches!(seen.difference.part, ResponseAspect::Body | ResponseAspect::Field(_)) && upstream && changes
        },
    },
    ExpectedDifference {
        name: "cut content of a head",
        covers: "keeping the connection if the client sent HEAD and the upstream's response to another method breaks off",
        why: "a response to HEAD is complete with its head",
        holds: |seen| {
            seen.difference.part == ResponseAspect::Kept
                && seen.answers(|request, _, _| {
                    request.method == "HEAD" && request.values("x-origin").any(|wishes| wishes.contains("cut"))
                })
        },
    },
    ExpectedDifference {
        name: "fields of a directive in Connection",
        covers: "a field of a forwarded request that a directive has set, if the client's Connection names it",
        why: "docs/reverse-proxy.md: a client must not remove such a field, as the name of its user; Caddy forwards the request without it",
        holds: |seen| {
            let sets = ["copy_headers", "request_header"].iter().any(|line| seen.document.contains(line));
            let ResponseAspect::Forwarded(name) = &seen.difference.part else { return false };
            let is_named = |list: &str| list.split(',').any(|listed| listed.trim().eq_ignore_ascii_case(name));
            sets && seen.difference.caddy.is_empty()
                && seen.answers(|request, _, _| request.values("connection").any(is_named))
        },
    },
    ExpectedDifference {
        name: "error of an expression",
        covers: "the whole response if an expression fails and the site has error routes",
        why: "the error is a 500, and its error routes run; Caddy's error of a matcher has no status, so routes are not found or have no status to show",
        holds: |seen| {
            seen.document.contains("handle_errors")
                && seen.document.contains('`')
                && seen.answers(|_, caddy, causeway| {
                    let bare = (caddy.status == 500 && (caddy.body.is_empty() || causeway.status != 500))
                        || (caddy.status == 200 && causeway.status == 500);
                    bare && causeway != caddy
                        || String::from_utf8_lossy(&caddy.body).contains("{http.error.status_code}")
                })
        },
    },
    ExpectedDifference {
        name: "empty entity tag",
        covers: "ETag with an empty value that the Caddyfile sets before file_server",
        why: "the operator sets it; Caddy's file_server treats it as absent",
        holds: |seen| seen.field("etag") && seen.difference.causeway == "\"\"" && seen.document.contains("ETag"),
    },
    ExpectedDifference {
        name: "escapes in a host",
        covers: "the whole response to an absolute target whose host has percent-encoded letters",
        why: "RFC 3986 §3.2.2 allows them in a name; Go refuses the target, but accepts such a Host field",
        holds: |seen| {
            let host = |target: &str| {
                target.strip_prefix("http://").and_then(|rest| rest.split('/').next().map(str::to_owned))
            };
            seen.answers(|request, _, _| host(&request.target).is_some_and(|host| host.contains('%')))
        },
    },
    ExpectedDifference {
        name: "body as a placeholder",
        covers: "the whole response if `{http.request.body}` stands for a body larger than `max_size`: Causeway sends 413",
        why: "docs/placeholders.md: a body that is too long is refused; Caddy inserts the error's message",
        holds: |seen| {
            seen.document.contains("{http.request.body}")
                && seen.document.contains("max_size")
                && seen.answers(|_, _, causeway| causeway.status == 413)
        },
    },
    ExpectedDifference {
        name: "leading slash",
        covers: "the slash before a path that a rewrite leaves without one, in forwarded requests and in bodies",
        why: "docs/caddyfile.md: a path always begins with a slash, so that path matchers work",
        holds: |seen| {
            let without = |bytes: &[u8]| bytes.iter().copied().filter(|byte| *byte != b'/').collect::<Vec<u8>>();
            let rewrites = ["uri ", "rewrite ", "strip_"].iter().any(|name| seen.document.contains(name));
            let differs = without(seen.difference.caddy.as_bytes()) != without(seen.difference.causeway.as_bytes());
            let is_body = seen.difference.part == ResponseAspect::Body || seen.field("content-length");
            rewrites
                && ((matches!(seen.difference.part, ResponseAspect::Forwarded(_)) && !differs)
                    || (is_body && seen.answers(|_, caddy, causeway| without(&caddy.body) == without(&causeway.body))))
        },
    },
    ExpectedDifference {
        name: "error message",
        covers: "the text of `{err.message}`, if the server itself produced the error",
        why: "the messages are this project's own; they name the upstream, while Caddy's quote the Go library",
        holds: |seen| {
            let caddys = [
                "EOF",
                "rfc9112 forbids empty Host",
                "invalid host",
                "http: request body too large",
                "strconv.",
                "invalid argument",
            ];
            (seen.difference.part == ResponseAspect::Body || seen.field("content-length"))
                && seen.document.contains("{err.message}")
                && seen.answers(|_, caddy, _| {
                    caddy.body.is_empty()
                        || caddys.iter().any(|words| String::from_utf8_lossy(&caddy.body).contains(words))
                })
        },
    },
    ExpectedDifference {
        name: "empty content-type",
        covers: "Content-Type that the Caddyfile sets to an empty or blank value",
        why: "the operator sets it; Caddy treats an empty one as absent, and Go omits it from some responses",
        holds: |seen| {
            let blank = seen.is("", "\"\"") || seen.difference.causeway == "\"\"" || seen.difference.caddy == "\"\"";
            seen.field("content-type") && blank && seen.document.contains("Content-Type")
        },
    },
    ExpectedDifference {
        name: "nil",
        covers: "`<nil>` in a query, if a rewrite names a placeholder that is not set",
        why: "docs/caddyfile.md: an unknown placeholder in a query is empty, not Go's word for an absent value",
        holds: |seen| {
            let without = |text: &str| {
                ["%253Cnil%253E", "%3Cnil%3E", "<nil>"].iter().fold(text.to_owned(), |text, nil| text.replace(nil, ""))
            };
            let body = |answer: &NormalizedResponse| without(&String::from_utf8_lossy(&answer.body));
            without(&seen.difference.caddy) == without(&seen.difference.causeway)
                || (seen.field("content-length") && seen.answers(|_, caddy, causeway| body(caddy) == body(causeway)))
        },
    },
    ExpectedDifference {
        name: "user agent",
        covers: "User-Agent of a forwarded request",
        why: "Go adds its own if it was removed, sends one of several, and hides one that `header_up +User-Agent` adds",
        holds: |seen| {
            let removed = seen.is("\"Go-http-client/1.1\"", "");
            let one_of =
                !seen.difference.causeway.is_empty() && seen.difference.causeway.contains(&seen.difference.caddy);
            seen.forwarded("user-agent") && (removed || one_of)
        },
    },
    ExpectedDifference {
        name: "framing of an answer",
        covers: "Content-Length of a response that Caddy sends in chunks or ends by closing, and that HTTP/1.0 then keeps the connection",
        why: "content that is complete is sent with its length; Go does so only up to 2048 bytes",
        holds: |seen| {
            let has_length = |answer: &NormalizedResponse| answer.values("content-length").next().is_some();
            (seen.field("content-length") && seen.difference.caddy.is_empty() && !seen.difference.causeway.is_empty())
                || (seen.field("transfer-encoding") && seen.is("\"chunked\"", ""))
                || (seen.difference.part == ResponseAspect::Kept
                    && seen.answers(|request, caddy, causeway| {
                        request.version == "HTTP/1.0" && !has_length(caddy) && has_length(causeway)
                    }))
        },
    },
    ExpectedDifference {
        name: "range of HEAD",
        covers: "the whole response to HEAD with a range, to which Caddy sends 206 or 416",
        why: "RFC 9110 §14.2: a range applies to GET only",
        holds: |seen| {
            seen.answers(|request, caddy, _| {
                request.method == "HEAD" && request.has("range") && matches!(caddy.status, 206 | 416)
            })
        },
    },
    ExpectedDifference {
        name: "several connection options",
        covers: "whether the connection is kept if HTTP/1.0 sends `close` or several Connection lines",
        why: "RFC 9112 §9.3 and RFC 9110 §5.3: the lines are one list, in which close takes precedence; Go reads only the first line",
        holds: |seen| {
            (seen.difference.part == ResponseAspect::Kept || seen.field("connection"))
                && seen.answers(|request, _, _| {
                    let options: Vec<&str> = request.values("connection").collect();
                    request.version == "HTTP/1.0"
                        && (options.len() > 1 || options.iter().any(|option| option.contains("close")))
                })
        },
    },
    ExpectedDifference {
        name: "two faults",
        covers: "the whole refusal, 400 or 505, of a request that has another version and also another fault",
        why: "both servers refuse it; the order in which faults are found is unspecified",
        holds: |seen| {
            seen.answers(|request, caddy, causeway| {
                !["HTTP/1.0", "HTTP/1.1"].contains(&request.version)
                    && [caddy, causeway].iter().all(|answer| matches!(answer.status, 400 | 501 | 505))
            })
        },
    },
    ExpectedDifference {
        name: "several ranges",
        covers: "the boundary between the parts of multipart/byteranges, and the order of fields in a part",
        why: "the boundary is random; the order of fields is irrelevant",
        holds: |seen| {
            let parts = |answer: &NormalizedResponse| {
                let kind = answer.values("content-type").next()?;
                let boundary = kind.strip_prefix("multipart/byteranges; boundary=")?;
                let text = String::from_utf8_lossy(&answer.body).replace(boundary, "");
                let mut lines: Vec<String> = text.split("\r\n").map(str::to_owned).collect();
                lines.sort();
                Some(lines)
            };
            (seen.difference.part == ResponseAspect::Body || seen.field("content-type") || seen.field("content-length"))
                && seen.answers(|_, caddy, causeway| parts(caddy).is_some_and(|lines| parts(causeway) == Some(lines)))
        },
    },
    ExpectedDifference {
        name: "fields of content",
        covers: "Content-Type, Content-Encoding, Content-Language and Content-Range of a 204 or 304",
        why: "RFC 9110 §15.4.5: fields that describe content are omitted without content",
        holds: |seen| {
            let fields = ["content-type", "content-encoding", "content-language", "content-range"];
            fields.iter().any(|name| seen.field(name))
                && seen.difference.causeway.is_empty()
                && seen.answers(|_, _, causeway| matches!(causeway.status, 204 | 304))
        },
    },
    ExpectedDifference {
        name: "dots in a location",
        covers: "Location of a redirect to a canonical path, if the path has dot segments, empty segments or escapes",
        why: "RFC 3986 §5.2.4: the client removes dot segments; Go's redirect already does, and treats an escaped question mark as the start of a query",
        holds: |seen| {
            seen.field("location")
                && seen.answers(|request, caddy, causeway| {
                    caddy.status == 308
                        && causeway.status == 308
                        && ["/.", "%2", "//", "%3F"].iter().any(|odd| request.target.contains(odd))
                })
        },
    },
    ExpectedDifference {
        name: "method without content",
        covers: "content of a forwarded request, if the proxy's `method GET` applies to a request that is already a GET",
        why: "the operator selects a method without content; Caddy drops the content only if the rewrite changes the method",
        holds: |seen| {
            (seen.forwarded("content") || seen.forwarded("transfer-encoding") || seen.forwarded("content-length"))
                && seen.document.contains("method GET")
        },
    },
    ExpectedDifference {
        name: "last request",
        covers: "Connection: close in a forwarded request with `keepalive off`",
        why: "RFC 9112 §9.6 makes it the client's choice; the proxy closes after the response",
        holds: |seen| {
            seen.forwarded("connection")
                && seen.difference.caddy == "\"close\""
                && seen.document.contains("keepalive off")
        },
    },
    ExpectedDifference {
        name: "listing",
        covers: "the page of a directory's listing",
        why: "the page is this project's own; its JSON is Caddy's",
        holds: |seen| {
            let fields = ["content-length", "transfer-encoding", "content-security-policy"];
            (seen.difference.part == ResponseAspect::Body || fields.iter().any(|name| seen.field(name)))
                && seen.document.contains("browse")
                && seen.answers(|_, caddy, causeway| {
                    [caddy, causeway]
                        .iter()
                        .all(|answer| answer.values("content-type").any(|value| value.starts_with("text/html")))
                })
        },
    },
    ExpectedDifference {
        name: "text of a redirect",
        covers: "text and Content-Type of the redirect to a directory's or a file's canonical path",
        why: "docs/caddyfile.md: redirects to a directory's slash have no text, since no client shows it",
        holds: |seen| {
            (seen.difference.part == ResponseAspect::Body || seen.field("content-type") || seen.field("content-length"))
                && seen.answers(|_, caddy, causeway| caddy.status == 308 && causeway.status == 308)
        },
    },
    ExpectedDifference {
        name: "ranges of an error page",
        covers: "the whole response of file_server with a `status` or in error routes, if the request has a range or a condition",
        why: "docs/caddyfile.md: ranges and conditions apply only if the status is 200; an error page is sent whole",
        holds: |seen| {
            let conditions =
                ["range", "if-range", "if-match", "if-none-match", "if-modified-since", "if-unmodified-since"];
            let has_status =
                ["status 203", "status 404", "handle_errors"].iter().any(|line| seen.document.contains(line));
            seen.answers(|request, _, causeway| {
                has_status
                    && conditions.iter().any(|name| request.has(name))
                    && (causeway.status == 203 || causeway.status >= 400)
                    && causeway.values("last-modified").next().is_some()
            })
        },
    },
    ExpectedDifference {
        name: "expectation of the upstream",
        covers: "the field Expect in a forwarded request",
        why: "docs/reverse-proxy.md: the proxy itself responds to `Expect: 100-continue`, once the upstream accepts the content",
        holds: |seen| seen.forwarded("expect") && seen.is("\"100-continue\"", ""),
    },
    ExpectedDifference {
        name: "empty head",
        covers: "Content-Length: 0 in a response to HEAD",
        why: "RFC 9110 §8.6: a server may omit it",
        holds: |seen| {
            seen.field("content-length")
                && seen.is("\"0\"", "")
                && seen.answers(|request, _, _| request.method == "HEAD")
        },
    },
    ExpectedDifference {
        name: "removed content-type",
        covers: "Content-Type, if the Caddyfile removes it from the response",
        why: "the operator removes it; Go then guesses one from the content",
        holds: |seen| {
            seen.field("content-type")
                && seen.difference.causeway.is_empty()
                && ["-Content-Type", "-*-*", "-*"].iter().any(|removal| seen.document.contains(removal))
        },
    },
    ExpectedDifference {
        name: "refused range",
        covers: "text, Content-Type, X-Content-Type-Options and Content-Range of a 416",
        why: "docs/caddyfile.md: refused ranges have no text; RFC 9110 §15.5.17: the response has the file's length, also if the range is unreadable",
        holds: |seen| {
            let fields = ["content-type", "x-content-type-options", "content-length", "content-range"];
            seen.answers(|_, caddy, causeway| caddy.status == 416 && causeway.status == 416)
                && (seen.difference.part == ResponseAspect::Body || fields.iter().any(|name| seen.field(name)))
        },
    },
    ExpectedDifference {
        name: "range unit",
        covers: "the whole response to a range in another unit than bytes, or to a range that `request_header` made of a placeholder",
        why: "RFC 9110 §14.2: a range in an unknown unit is ignored; Caddy sends 416",
        holds: |seen| {
            let made =
                ["request_header +Range", "+Range \"", "Range \""].iter().any(|line| seen.document.contains(line));
            seen.answers(|request, caddy, _| {
                let other = request.values("range").any(|range| !range.starts_with("bytes="));
                (other || made)
                    && (caddy.status == 416
                        || caddy.body.starts_with(b"invalid range")
                        || caddy.values("x-content-type-options").next().is_some())
            })
        },
    },
    ExpectedDifference {
        name: "empty range",
        covers: "the whole response to a range of no bytes: a suffix of length 0, a list without ranges, or any range of an empty file",
        why: "RFC 9110 §14.1.2: it is unsatisfiable or ignored; Go sends a Content-Range that ends before it begins",
        holds: |seen| {
            seen.answers(|request, caddy, causeway| {
                request.values("range").any(|range| matches!(range, "bytes=-0" | "bytes="))
                    || (request.has("range")
                        && causeway.status == 200
                        && causeway.body.is_empty()
                        && matches!(caddy.status, 206 | 416))
            })
        },
    },
    ExpectedDifference {
        name: "status of a file",
        covers: "Last-Modified of the 500 for a `status` of file_server whose placeholder is not a status",
        why: "a response to an operator's mistake; Caddy sends the ETag and omits the date because of the order of its code",
        holds: |seen| {
            seen.field("last-modified")
                && seen.document.contains("status {query.a}")
                && seen.answers(|_, caddy, _| caddy.status == 500)
        },
    },
    ExpectedDifference {
        name: "continue",
        covers: "interim 100s if the content arrived with the head, also before a connection that is aborted",
        why: "RFC 9110 §10.1.1: a server may omit them once it has received content of the request",
        holds: |seen| {
            seen.answers(|request, caddy, causeway| {
                let others = caddy.interim.iter().filter(|status| **status != 100);
                let is_aborted =
                    seen.difference.part == ResponseAspect::End && caddy.status == 0 && causeway.status == 0;
                request.has("expect")
                    && (seen.difference.part == ResponseAspect::Interim || is_aborted)
                    && others.eq(causeway.interim.iter())
            })
        },
    },
    ExpectedDifference {
        name: "dead configuration",
        covers: "a Caddyfile with an invalid field name or method: Causeway refuses it, Caddy accepts it but never sends or matches it",
        why: "no part of a configuration is ignored silently",
        holds: |seen| {
            let refusal = &seen.difference.causeway;
            seen.difference.part == ResponseAspect::Accepted
                && seen.difference.caddy == "taken"
                && (refusal.contains("expected a field name") || refusal.contains("expected a method"))
        },
    },
];

/// Returns the index of the first entry that covers a difference.
pub(crate) fn covering(seen: &ObservedDifference<'_>) -> Option<usize> {
    WANTED.iter().position(|wanted| (wanted.holds)(seen))
}
