//! The end of a process, of which there is one: a test of its own.

use std::time::Duration;

use causeway_log_output::{NetSpec, Network, Output, OutputSpec, WhenFull, end_all, lost_lines};

/// Lines that wait for an absent collector, and those that are queued after them, are lost at once and counted.
#[test]
fn no_line_delays_the_end() {
    let limit = Duration::from_secs(20);
    let address = "/none/collector.sock".to_owned();
    let spec = NetSpec { network: Network::Unix, address, dial_timeout: limit, soft_start: true };
    let output = Output::open(&OutputSpec::Net(spec)).unwrap();
    for line in ["first", "second", "third"] {
        output.write(WhenFull::Wait, |buffer| {
            buffer.extend_from_slice(line.as_bytes());
            buffer.push(b'\n');
        });
        // The writer takes the first line, and then waits for the collector.
        std::thread::sleep(Duration::from_millis(50));
    }
    end_all(limit);
    assert_eq!(lost_lines()[0].failed, 3);
}
