//! The two servers under comparison. Both run during the whole step, and each Caddyfile is loaded into both through the
//! admin API.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, bail};
use serde_json::Value;

use super::exchange::{self, Texts};
use super::words::PORTS;
use super::{origin, tree};
use crate::report::StepError;
use crate::server::{ChildServer, binary, free_address};
use crate::stage::Stage;
use crate::steps::Workspace;
use crate::tools;

const PACKAGE: &str = "github.com/caddyserver/caddy/v2/cmd/caddy";
/// The value of `{env.GREETING}` in both servers.
const GREETING: &str = "hello from the environment";
/// The file whose entity tag conditional requests use.
const TAGGED: &str = "/a.txt";

/// A running server with the texts for its tokens.
pub(crate) struct Contestant {
    pub(crate) name: &'static str,
    pub(crate) texts: Texts,
    pub(crate) ports: [u16; PORTS],
    admin: u16,
    server: ChildServer,
}

pub(crate) struct ServerPair {
    pub(crate) caddy: Contestant,
    pub(crate) causeway: Contestant,
}

impl ServerPair {
    pub(crate) fn start(stage: &mut Stage, workspace: &Workspace) -> Result<Self, StepError> {
        let caddy = match std::env::var_os("CADDY_BIN") {
            Some(path) => PathBuf::from(path),
            None => tools::go_built(stage, workspace, "caddy", "caddy", PACKAGE)?,
        };
        let causeway = binary(stage, workspace)?;
        let directory = workspace.scratch("differential")?;
        let root = directory.join("root");
        std::fs::create_dir(&root).context("cannot make the directory of files")?;
        tree::plant(&root)?;
        let origin = origin::start()?;
        let mut taken = vec![origin];
        let mut pair = Self {
            caddy: Contestant::start("caddy", &caddy, &directory, origin, &mut taken)?,
            causeway: Contestant::start("causeway", &causeway, &directory, origin, &mut taken)?,
        };
        pair.learn_tag()?;
        Ok(pair)
    }

    /// Requests a file's entity tag and adds it as a token's text. Both servers compute equal tags from a file's date
    /// and length; otherwise each response would show a difference.
    fn learn_tag(&mut self) -> anyhow::Result<()> {
        let site = "{\n\tadmin localhost:<admin>\n\tpersist_config off\n}\nhttp://:<p0> {\n\troot * <root>\n\tfile_server\n}\n";
        self.caddy.load(site)?.map_err(anyhow::Error::msg)?;
        let request = format!("GET {TAGGED} HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n");
        let answer = exchange::once(self.caddy.ports[0], request.as_bytes())?;
        let tag = answer.values("etag").next().context("Caddy sent no entity tag")?.to_owned();
        self.caddy.texts.add("<etag>", tag.clone());
        self.causeway.texts.add("<etag>", tag);
        Ok(())
    }
}

impl Contestant {
    fn start(
        name: &'static str,
        program: &Path,
        directory: &Path,
        origin: u16,
        taken: &mut Vec<u16>,
    ) -> anyhow::Result<Self> {
        let mut port = || -> anyhow::Result<u16> {
            // Ports of five digits, so that lengths are comparable.
            for _ in 0..1000 {
                let port = free_address()?.port();
                if port >= 10_000 && !taken.contains(&port) {
                    taken.push(port);
                    return Ok(port);
                }
            }
            bail!("found no free port of five digits")
        };
        let admin = port()?;
        let mut ports = [port()?, port()?, port()?];
        // Both servers number a configuration's listeners by ascending port.
        ports.sort_unstable();
        let root = directory.join("root").display().to_string();
        let mut texts = Texts::new([
            ("<admin>".to_owned(), admin.to_string()),
            ("<origin>".to_owned(), origin.to_string()),
            ("<root>".to_owned(), root),
        ]);
        for (index, port) in ports.iter().enumerate() {
            texts.add(&format!("<p{index}>"), port.to_string());
        }

        // Each server has a home of its own, so that neither reads the other one's saved state.
        let home = directory.join(name);
        std::fs::create_dir(&home).with_context(|| format!("cannot make {}", home.display()))?;
        let start = format!("{{\n\tadmin localhost:{admin}\n\tpersist_config off\n}}\n");
        std::fs::write(home.join("Caddyfile"), start)?;
        let mut run = Command::new(program);
        run.args(["run", "--config", "Caddyfile"]).env("GREETING", GREETING).env_remove("NONE");
        let server = ChildServer::start(run, &home, ([127, 0, 0, 1], admin).into())?;
        Ok(Self { name, texts, ports, admin, server })
    }

    /// Loads a Caddyfile; the inner error is the server's refusal.
    pub(crate) fn load(&self, document: &str) -> anyhow::Result<Result<(), String>> {
        Ok(self.post("/load", document)?.map(drop))
    }

    /// Adapts a Caddyfile to JSON, with this server's texts replaced by tokens.
    pub(crate) fn adapt(&self, document: &str) -> anyhow::Result<Result<Value, String>> {
        let Ok(text) = self.post("/adapt", document)? else { return Ok(Err("refused".to_owned())) };
        let mut value: Value = serde_json::from_slice(&self.texts.neutral(&text)).context("/adapt answered no JSON")?;
        Ok(Ok(value["result"].take()))
    }

    fn post(&self, path: &str, document: &str) -> anyhow::Result<Result<Vec<u8>, String>> {
        let body = self.texts.fill(document.as_bytes());
        let mut request = format!(
            "POST {path} HTTP/1.1\r\nHost: localhost:{}\r\nContent-Type: text/caddyfile\r\nCache-Control: must-revalidate\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
            self.admin,
            body.len()
        )
        .into_bytes();
        request.extend_from_slice(&body);
        let answer = exchange::once(self.admin, &request)
            .with_context(|| format!("{} does not take a Caddyfile; its log ends:\n{}", self.name, self.log_end()))?;
        Ok(match answer.status {
            200 => Ok(answer.body),
            0 => bail!("{} gave no answer to {path}; its log ends:\n{}", self.name, self.log_end()),
            status => Err(format!("{status} {}", String::from_utf8_lossy(&self.texts.neutral(&answer.body)).trim())),
        })
    }

    pub(crate) fn log_end(&self) -> String {
        let log = self.server.log();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(10)..].join("\n")
    }
}
