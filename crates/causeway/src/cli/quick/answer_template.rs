//! The body template of `respond`. It has three variables in the notation of Go's `text/template`, which identify the
//! responding server. Every other action of that language is refused.

use anyhow::{Context as _, bail};

/// One of the servers that `respond` starts, with its template variables.
pub(super) struct Numbered {
    number: usize,
    port: String,
    /// The listen address.
    pub(super) address: String,
}

impl Numbered {
    /// Returns one server per port of a listen address. An invalid address is kept as it is, so that the address parser
    /// reports it.
    pub(super) fn all(listen: &str) -> Vec<Self> {
        let (host, ports) = listen.rsplit_once(':').unwrap_or((listen, ""));
        let range =
            ports.split_once('-').and_then(|(first, last)| Some((first.parse::<u16>().ok()?, last.parse().ok()?)));
        match range {
            Some((first, last)) if first <= last => (first..=last)
                .enumerate()
                .map(|(number, port)| Self { number, port: port.to_string(), address: format!("{host}:{port}") })
                .collect(),
            _ => vec![Self { number: 0, port: ports.to_owned(), address: listen.to_owned() }],
        }
    }

    /// Replaces the variables in `body` with this server's values.
    pub(super) fn fill(&self, body: &str) -> anyhow::Result<String> {
        let number = self.number.to_string();
        let mut out = String::with_capacity(body.len());
        let mut rest = body;
        while let Some((before, action)) = rest.split_once("{{") {
            let (name, after) = action.split_once("}}").context("the body: found '{{', expected '}}' after it")?;
            out.push_str(before);
            out.push_str(match name.trim() {
                ".N" => &number,
                ".Port" => &self.port,
                ".Address" => &self.address,
                other => {
                    bail!("the body: found '{{{{{other}}}}}', expected {{{{.N}}}}, {{{{.Port}}}} or {{{{.Address}}}}")
                }
            });
            rest = after;
        }
        out.push_str(rest);
        Ok(out)
    }
}

#[cfg(test)]
mod tests {
    use super::Numbered;

    #[test]
    fn a_server_for_each_port() {
        for (listen, want) in [
            (":0", &[":0"][..]),
            ("127.0.0.1:8080-8082", &["127.0.0.1:8080", "127.0.0.1:8081", "127.0.0.1:8082"]),
            ("[::1]:80-80", &["[::1]:80"]),
            (":9-8", &[":9-8"]),
            ("nonsense", &["nonsense"]),
        ] {
            let got: Vec<_> = Numbered::all(listen).into_iter().map(|numbered| numbered.address).collect();
            assert_eq!(got, want, "{listen}");
        }
    }

    #[test]
    fn variables() {
        let second = &Numbered::all("127.0.0.1:80-81")[1];
        for (body, want) in [
            ("{{.N}} {{ .Port }} {{.Address}}", Ok("1 81 127.0.0.1:81")),
            ("{http.request.host} {} }}", Ok("{http.request.host} {} }}")),
            ("{{.Foo}}", Err("the body: found '{{.Foo}}', expected {{.N}}, {{.Port}} or {{.Address}}")),
            ("a {{.N", Err("the body: found '{{', expected '}}' after it")),
        ] {
            let got = second.fill(body).map_err(|error| format!("{error:#}"));
            assert_eq!(got.as_deref().map_err(|error| &**error), want, "{body}");
        }
    }
}
