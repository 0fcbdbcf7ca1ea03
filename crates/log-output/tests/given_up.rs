//! A line that a collector has taken in part when the process gives it up: as a test of the end of a process, one of
//! its own.

use std::os::unix::net::UnixListener;
use std::time::Duration;

use causeway_log_output::{NetSpec, Network, Output, OutputSpec, WhenFull, end_all, flush_all, lost_lines};

const LIMIT: Duration = Duration::from_secs(20);

/// The next line does not continue in the middle of the former one: it begins a connection of its own.
#[test]
fn the_next_line_is_whole() {
    let path = std::env::temp_dir().join(format!("causeway-log-given-up-{}", std::process::id()));
    let _ = std::fs::remove_file(&path);
    let listener = UnixListener::bind(&path).unwrap();
    let address = path.display().to_string();
    let spec = NetSpec { network: Network::Unix, address, dial_timeout: LIMIT, soft_start: false };
    let output = Output::open(&OutputSpec::Net(spec)).unwrap();
    let write = |line: &str| output.write(WhenFull::Wait, |buffer| buffer.extend_from_slice(line.as_bytes()));
    let (_full, _) = listener.accept().unwrap();
    // More than the socket takes, of which the collector reads nothing.
    write(&format!("{}\n", "x".repeat(3 << 20)));
    end_all(LIMIT);
    assert_eq!(lost_lines()[0].failed, 1);
    write("whole\n");
    flush_all(LIMIT);
    listener.set_nonblocking(true).unwrap();
    let (next, _) = listener.accept().expect("another connection");
    drop(output);
    assert_eq!(std::io::read_to_string(next).unwrap(), "whole\n");
    std::fs::remove_file(&path).unwrap();
}
