//! Starts servers for a step, and stops them afterwards.

use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};

use crate::report::StepError;
use crate::stage::Stage;
use crate::steps::{Workspace, metadata};

const START_MAX: Duration = Duration::from_secs(10);

/// Builds the program of the tests, without optimisation and with assertions, and returns its path. `CAUSEWAY_BIN`
/// selects another program: a release build takes longer than all cases together.
pub(crate) fn binary(stage: &mut Stage, workspace: &Workspace) -> Result<PathBuf, StepError> {
    if let Some(path) = std::env::var_os("CAUSEWAY_BIN") {
        return Ok(path.into());
    }
    let meta = metadata(None)?;
    let targets = meta["packages"].as_array().into_iter().flatten().flat_map(|package| package["targets"].as_array());
    if !targets.flatten().any(|target| target["name"] == "causeway" && target["kind"][0] == "bin") {
        return Err(StepError::MissingTool("the workspace builds no binary called causeway".into()));
    }
    stage.run(workspace.cargo(&["build", "--package", "causeway-server", "--bin", "causeway"]))?;
    Ok(workspace.target.join("debug/causeway"))
}

/// Returns a loopback address that is currently free.
pub(crate) fn free_address() -> anyhow::Result<SocketAddr> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?)
}

/// A child process that listens; killed when dropped.
pub(crate) struct ChildServer {
    child: Child,
    log: PathBuf,
}

impl ChildServer {
    /// Starts a server in `directory`, which is also its home, so that it reads and writes no files elsewhere. Its
    /// output goes to `server.log` beside the directory. Returns once `address` accepts connections.
    pub(crate) fn start(mut command: Command, directory: &Path, address: SocketAddr) -> anyhow::Result<Self> {
        let log = directory.with_extension("server.log");
        let out = File::create(&log).with_context(|| format!("cannot write {}", log.display()))?;
        command.current_dir(directory).env("HOME", directory).env_remove("XDG_CONFIG_HOME").env_remove("XDG_DATA_HOME");
        command.stdin(Stdio::null()).stdout(out.try_clone()?).stderr(out);
        let child = command.spawn().with_context(|| format!("cannot run {}", command.get_program().display()))?;
        let mut server = Self { child, log };
        let begun = Instant::now();
        while TcpStream::connect(address).is_err() {
            if let Some(status) = server.child.try_wait()? {
                bail!("{command:?} ended at once ({status}):\n{}", server.log());
            }
            if begun.elapsed() > START_MAX {
                bail!("{command:?} does not listen on {address} after {START_MAX:?}:\n{}", server.log());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(server)
    }

    /// Returns the output so far.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }
}

impl Drop for ChildServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
