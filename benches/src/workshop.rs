//! Obtains the programs of a bench: builds ours, builds peers from source, installs packages.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

use crate::machine::output;
use crate::peers::Tool;

/// The directories of a bench, and the obtained programs.
pub struct Workshop {
    /// The repository.
    pub root: PathBuf,
    /// `benches/` in it.
    pub bench: PathBuf,
    /// The directory of the runner, which also contains the limit server and others.
    pub binaries: PathBuf,
    /// Built peers; kept between runs.
    pub tools: PathBuf,
    /// Configurations, logs and served files.
    pub scratch: PathBuf,
    /// The samples of all records, which are not committed.
    pub samples: PathBuf,
    /// Whether to install through sudo when we are not root.
    install: bool,
    /// Versions of the obtained programs.
    pub versions: BTreeMap<String, String>,
    /// Skipped parts, with reasons.
    pub skipped: Vec<String>,
    /// Results of `peers::obtain`, so that nothing is built or fails twice.
    pub obtained: BTreeMap<&'static str, Result<Tool, String>>,
}

impl Workshop {
    /// Opens the workshop; `install` allows `sudo apt-get install`.
    pub fn open(install: bool) -> Result<Self> {
        let bench = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
        let root = bench.parent().context("benches/ has no parent directory")?.to_owned();
        let binaries = std::env::current_exe()?.parent().context("the executable has no directory")?.to_owned();
        let target = binaries.parent().context("target/release has no parent directory")?.to_owned();
        let (tools, scratch) = (target.join("tools"), target.join("scratch"));
        fs::create_dir_all(&tools)?;
        fs::create_dir_all(&scratch)?;
        Ok(Self {
            root,
            bench,
            binaries,
            tools,
            scratch,
            samples: target.join("samples"),
            install,
            versions: BTreeMap::new(),
            skipped: Vec::new(),
            obtained: BTreeMap::new(),
        })
    }

    /// Returns a line with this machine's directories replaced: records are committed.
    pub fn shown(&self, line: &str) -> String {
        let directories =
            [(&self.scratch, "SCRATCH"), (&self.tools, "TOOLS"), (&self.binaries, "BINARIES"), (&self.root, ".")];
        directories
            .iter()
            .fold(line.to_owned(), |line, (directory, name)| line.replace(&*directory.to_string_lossy(), name))
    }

    /// Returns a program of a Debian package, installing it if it is missing and that is permitted; otherwise the error
    /// contains the command to run.
    pub fn packaged(&self, program: &str, package: &str) -> Result<PathBuf> {
        if let Some(found) = find(program) {
            return Ok(found);
        }
        let root = rustix::process::geteuid().is_root();
        let install = format!("apt-get install -y --no-install-recommends {package}");
        if !root && !self.install {
            bail!("{program} is missing: run `sudo {install}`, or pass --install");
        }
        eprintln!("installing {package}");
        let mut command = if root { Command::new("sh") } else { Command::new("sudo") };
        if !root {
            command.arg("sh");
        }
        let done = command.args(["-c", &install]).env("DEBIAN_FRONTEND", "noninteractive").output()?;
        ensure!(done.status.success(), "`{install}` failed: {}", String::from_utf8_lossy(&done.stderr).trim());
        find(program).with_context(|| format!("{package} does not contain {program}"))
    }

    /// Builds `output` with `command` unless it is newer than all of `sources`.
    pub fn built(&self, output: &str, sources: &[PathBuf], command: &mut Command) -> Result<PathBuf> {
        let path = self.tools.join(output);
        let modified = |path: &Path| fs::metadata(path).and_then(|file| file.modified());
        let fresh = modified(&path)
            .is_ok_and(|built| sources.iter().all(|source| modified(source).is_ok_and(|changed| changed < built)));
        if !fresh {
            eprintln!("building {output}");
            let done = command.stdin(Stdio::null()).output().with_context(|| format!("building {output}"))?;
            ensure!(done.status.success(), "building {output}: {}", last_line(&done.stderr));
        }
        ensure!(path.is_file(), "building {output} created no file");
        Ok(path)
    }

    /// Installs a Go program from the module proxy into the tools directory.
    pub fn go_installed(&self, program: &str, module: &str) -> Result<PathBuf> {
        let go = self.packaged("go", "golang-go")?;
        let mut install = Command::new(go);
        self.built(program, &[], install.args(["install", module]).env("GOBIN", &self.tools))
    }

    /// Builds the server under test from the working tree, with a profile of its workspace: `dist` as it is shipped,
    /// `release` without link-time optimisation.
    pub fn causeway(&self, profile: &str) -> Result<PathBuf> {
        eprintln!("building causeway");
        let arguments =
            ["build", "--profile", profile, "-p", "causeway-server", "--message-format=json-render-diagnostics"];
        let done = Command::new("cargo").current_dir(&self.root).args(arguments).output()?;
        ensure!(done.status.success(), "cargo build -p causeway-server: {}", last_line(&done.stderr));
        let messages = String::from_utf8_lossy(&done.stdout);
        executable(&messages, "causeway").context("the package causeway-server has no binary")
    }

    /// Returns a file of `bytes` bytes that is stored on disk, for cold reads.
    pub fn cold_file(&self, bytes: u64) -> Result<PathBuf> {
        let path = self.scratch.join("cold.bin");
        if fs::metadata(&path).map(|file| file.len()).unwrap_or_default() != bytes {
            use std::io::Write;
            let mut file = fs::File::create(&path)?;
            // Not zeros, which a file system could store as holes.
            let block: Vec<u8> =
                (0..1u32 << 18).flat_map(|word| word.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
            for _ in 0..bytes / block.len() as u64 {
                file.write_all(&block)?;
            }
            file.set_len(bytes)?;
            file.sync_all()?;
        }
        Ok(path)
    }
}

/// Returns the executable of the binary target `name` from cargo's JSON messages.
fn executable(messages: &str, name: &str) -> Option<PathBuf> {
    let messages = messages.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    messages
        .filter(|message| message["target"]["name"] == name)
        .find_map(|message| message["executable"].as_str().map(PathBuf::from))
}

/// Finds a program in the path or in directories where Debian and Go install programs.
pub fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let directories = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/usr/local/go/bin".into()]);
    directories.map(|directory| directory.join(program)).find(|file| file.is_file())
}

/// Returns the first line of a program's version output; `unknown` if it is empty.
pub fn version(program: &Path, argument: &str) -> String {
    let said = output(Command::new(program).arg(argument)).unwrap_or_default();
    said.lines().next().unwrap_or("unknown").to_owned()
}

/// Returns the version of the main module that a Go program was built from.
pub fn go_version(program: &Path) -> String {
    let said = find("go").and_then(|go| output(Command::new(go).args(["version", "-m"]).arg(program)).ok());
    said.as_deref().and_then(go_module).unwrap_or("unknown").to_owned()
}

fn go_module(said: &str) -> Option<&str> {
    said.lines().find_map(|line| line.trim().strip_prefix("mod\t"))?.split('\t').nth(1)
}

/// Returns the version of a dependency in the bench's lock file.
pub fn locked(lock: &str, name: &str) -> String {
    let package = format!("name = \"{name}\"");
    let mut lines = lock.lines().skip_while(|line| *line != package);
    let version = lines.nth(1).and_then(|line| line.strip_prefix("version = "));
    version.map_or("unknown", |version| version.trim_matches('"')).to_owned()
}

fn last_line(said: &[u8]) -> String {
    let said = String::from_utf8_lossy(said);
    said.trim().lines().last().unwrap_or("no output").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cargo_names_the_executable() {
        let messages = concat!(
            "{\"reason\":\"compiler-artifact\",\"target\":{\"name\":\"causeway\"},\"executable\":null}\n",
            "{\"reason\":\"compiler-artifact\",\"target\":{\"name\":\"other\"},\"executable\":\"/t/other\"}\n",
            "{\"reason\":\"compiler-artifact\",\"target\":{\"name\":\"causeway\"},\"executable\":\"/t/causeway\"}\n",
        );
        assert_eq!(executable(messages, "causeway"), Some("/t/causeway".into()));
        assert_eq!(executable(messages, "missing"), None);
    }

    #[test]
    fn versions_are_read_from_what_tools_say() {
        let said = "caddy: go1.26\n\tpath\tgithub.com/x/caddy\n\tmod\tgithub.com/x/caddy\tv2.1.0\th1:x=\n";
        assert_eq!(go_module(said), Some("v2.1.0"));
        let lock = "[[package]]\nname = \"hyper\"\nversion = \"1.7.0\"\n";
        assert_eq!(locked(lock, "hyper"), "1.7.0");
        assert_eq!(locked(lock, "h2"), "unknown");
    }
}
