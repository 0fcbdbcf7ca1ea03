//! Runs an example as a user does.

use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};

use causeway_testkit::ports::free_port;

/// A running example; dropping it kills the process.
pub(crate) struct Example {
    process: Child,
    pub(crate) address: SocketAddr,
}

impl Example {
    /// Starts it on a free port, and waits until it listens.
    #[track_caller]
    pub(crate) fn start(name: &str) -> Self {
        // In the directory next to this test's; `cargo test` builds both.
        let tests = std::env::current_exe().expect("a path").parent().expect("a directory").to_owned();
        let program = tests.join("../examples").join(name);
        assert!(
            program.is_file(),
            "{} is not built: run `cargo build --examples`, or the tests without `--test`",
            program.display()
        );
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
        let mut command = Command::new(program);
        let process = command.arg(address.to_string()).stdin(Stdio::null()).spawn().expect("it starts");
        let example = Self { process, address };
        super::until("the example listens", || TcpStream::connect(address).is_ok());
        example
    }

    /// Sends SIGINT, as Ctrl-C does, and waits for the exit.
    pub(crate) fn interrupt(mut self) -> std::process::ExitStatus {
        let id = self.process.id().to_string();
        let kill_status = Command::new("kill").args(["-INT", &id]).status().expect("kill");
        assert!(kill_status.success());
        self.process.wait().expect("it ends")
    }
}

impl Drop for Example {
    fn drop(&mut self) {
        // Fails if the process has exited already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
