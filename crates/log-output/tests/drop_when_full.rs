//! `DropWhenFull`. The process has one such state, so these tests have a process of their own.

use std::time::Duration;

use causeway_log_output::{DropWhenFull, NetSpec, Network, Output, OutputSpec, WhenFull, lost_lines};

// Threads that wait for room go on, and further ones do not wait, while a guard lives.
#[test]
fn waiting_threads_go_on() {
    let address = "/none/collector.sock".to_owned();
    let spec = NetSpec { network: Network::Unix, address, dial_timeout: Duration::from_secs(1), soft_start: true };
    let output = Output::open(&OutputSpec::Net(spec)).unwrap();
    let line = [b'x'; 64 * 1024];
    let write = |when_full| assert!(output.write(when_full, |buffer| buffer.extend_from_slice(&line)));
    let dropped = || lost_lines().iter().map(|lost| lost.dropped).sum::<u64>();
    // The queue has 4 MiB, which are 64 lines. The output's thread takes lines once, and keeps them because the
    // collector is absent. So once more are kept and a line is dropped, the queue stays full.
    let mut kept = 0;
    let before = loop {
        let before = dropped();
        write(WhenFull::Drop);
        match dropped() {
            now if now == before => kept += 1,
            now if kept > 64 => break now,
            _ => {}
        }
    };
    let (begun, begin) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        let waiting = [(); 4].map(|()| {
            let begun = begun.clone();
            scope.spawn(move || {
                begun.send(()).unwrap();
                write(WhenFull::Wait);
            })
        });
        waiting.iter().for_each(|_| begin.recv().unwrap());
        let _dropping = DropWhenFull::begin();
        write(WhenFull::Wait);
        for thread in waiting {
            thread.join().unwrap();
        }
    });
    assert_eq!(dropped(), before + 5);
}
