//! Outputs as a server uses them: lines from several threads, files that are rolled, moved and full, collectors that go
//! away.

use std::io::{BufRead as _, BufReader};
use std::net::{TcpListener, UdpSocket};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::time::Duration;

use causeway_log_output::{
    Compression, DirectoryMode, FileSpec, NetSpec, Network, Output, OutputSpec, RollSpec, WhenFull, Zone, flush_all,
    lost_lines, reopen_all,
};

const LIMIT: Duration = Duration::from_secs(20);

/// A directory that is removed at the end.
struct LogDirectory(PathBuf);

impl LogDirectory {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("causeway-log-output-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn file(&self, name: &str) -> FileSpec {
        FileSpec { path: self.0.join(name), mode: None, directory_mode: DirectoryMode::Private, roll: None }
    }

    fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(&self.0).unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

impl Drop for LogDirectory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn roll(bytes_max: u64, compression: Compression) -> RollSpec {
    RollSpec {
        bytes_max,
        interval: None,
        minutes: Vec::new(),
        times: Vec::new(),
        keep: 1000,
        keep_for: Duration::from_secs(3600),
        compression,
        zone: Zone::Utc,
        stamp: None,
    }
}

fn write(output: &Output, line: &str) {
    output.write(WhenFull::Wait, |buffer| {
        buffer.extend_from_slice(line.as_bytes());
        buffer.push(b'\n');
    });
}

fn lines(path: &Path) -> Vec<String> {
    std::fs::read_to_string(path).unwrap_or_default().lines().map(str::to_owned).collect()
}

// Each complete line is in exactly one file, while files are rolled and reopened, and threads write concurrently.
#[test]
fn no_line_is_lost_or_torn() {
    let directory = LogDirectory::new("soak");
    let spec = FileSpec { roll: Some(roll(4096, Compression::None)), ..directory.file("a.log") };
    let output = Output::open(&OutputSpec::File(spec)).unwrap();
    let (threads, count) = (4, 2000);
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let output = &output;
            scope.spawn(move || {
                for number in 0..count {
                    write(output, &format!("<{thread} {number} {}>", "x".repeat(number % 50)));
                    if number % 500 == 0 {
                        reopen_all();
                    }
                }
            });
        }
    });
    flush_all(LIMIT);
    let mut found = vec![Vec::new(); threads];
    let names = directory.names();
    assert!(names.len() > 20, "{names:?}");
    for name in names {
        assert!(std::fs::metadata(directory.0.join(&name)).unwrap().len() <= 4096, "{name}");
        for line in lines(&directory.0.join(&name)) {
            let words: Vec<_> =
                line.strip_prefix('<').and_then(|line| line.strip_suffix('>')).unwrap().split(' ').collect();
            found[words[0].parse::<usize>().unwrap()].push(words[1].parse::<usize>().unwrap());
        }
    }
    for mut numbers in found {
        numbers.sort_unstable();
        assert_eq!(numbers, (0..count).collect::<Vec<_>>());
    }
}

// Caddy's documentation of `output file`: `mode`, `dir_mode`, `roll_compression`; new options apply when a
// configuration takes effect.
#[test]
fn permissions_and_compression() {
    let directory = LogDirectory::new("modes");
    let mode = |path: &str| std::fs::metadata(directory.0.join(path)).unwrap().permissions().mode() & 0o777;
    for (name, file_mode, directory_mode, want) in [
        ("private", None, DirectoryMode::Private, (0o700, 0o600)),
        ("fixed", Some(0o640), DirectoryMode::Fixed(0o710), (0o710, 0o640)),
        ("from_file", Some(0o640), DirectoryMode::FromFile, (0o750, 0o640)),
    ] {
        let spec = FileSpec { mode: file_mode, directory_mode, ..directory.file(&format!("{name}/a.log")) };
        let _output = Output::open(&OutputSpec::File(spec)).unwrap();
        assert_eq!((mode(name), mode(&format!("{name}/a.log"))), want, "{name}");
    }
    let spec = directory.file("zstd.log");
    let output = Output::open(&OutputSpec::File(spec.clone())).unwrap();
    write(&output, "one");
    let rolled = FileSpec { mode: Some(0o644), roll: Some(roll(5, Compression::Zstd)), ..spec };
    let again = Output::open(&OutputSpec::File(rolled.clone())).unwrap();
    assert!(std::sync::Arc::ptr_eq(&output, &again), "the same file is opened once");
    again.configure(&OutputSpec::File(rolled));
    write(&output, "two");
    flush_all(LIMIT);
    assert_eq!((mode("zstd.log"), lines(&directory.0.join("zstd.log"))), (0o644, vec!["two".to_owned()]));
    let compressed = file_with_ending(&directory, "-size.log.zst");
    assert_eq!(zstd::decode_all(&*std::fs::read(compressed).unwrap()).unwrap(), b"one\n");
}

/// Waits for a file whose name ends with `ending`.
fn file_with_ending(directory: &LogDirectory, ending: &str) -> PathBuf {
    loop {
        match directory.names().into_iter().find(|name| name.ends_with(ending)) {
            Some(name) => return directory.0.join(name),
            None => std::thread::sleep(Duration::from_millis(5)),
        }
    }
}

// A program that reads the log, such as a shipper, is not locked out by the rolling: as in Caddy, the new file and the
// compressed one have the owner of the rolled file, and its permissions unless `mode` is set.
#[test]
fn a_rolled_file_hands_on_its_attributes() {
    let is_root = rustix::process::geteuid().is_root();
    for (name, mode, new) in [("plain", None, 0o644), ("mode", Some(0o640), 0o640)] {
        let directory = LogDirectory::new(&format!("attributes-{name}"));
        let path = directory.0.join("a.log");
        std::fs::write(&path, "one\n").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        let owner = std::fs::metadata(&path).map(|own| if is_root { (33, 4) } else { (own.uid(), own.gid()) }).unwrap();
        std::os::unix::fs::chown(&path, Some(owner.0), Some(owner.1)).unwrap();
        let spec = FileSpec { mode, roll: Some(roll(5, Compression::Gzip)), ..directory.file("a.log") };
        let output = Output::open(&OutputSpec::File(spec)).unwrap();
        write(&output, "two");
        flush_all(LIMIT);
        for path in [path, file_with_ending(&directory, "-size.log.gz")] {
            let metadata = std::fs::metadata(&path).unwrap();
            let found = (metadata.mode() & 0o777, (metadata.uid(), metadata.gid()));
            assert_eq!(found, (new, owner), "{name}: {}", path.display());
        }
    }
}

// As in Caddy, the first line, not the next roll, compresses and removes rolled files of an earlier process; new
// options apply to them too.
#[test]
fn rolled_files_of_an_earlier_process() {
    let directory = LogDirectory::new("earlier");
    let rolled = |time: &str, ending: &str| directory.0.join(format!("a-{time}-size.log{ending}"));
    let (expired, recent) = ("2020-01-02T03-04-05.678", "2026-11-29T20-15-03.123");
    std::fs::write(rolled(expired, ".gz"), "").unwrap();
    std::fs::File::open(rolled(expired, ".gz")).unwrap().set_modified(std::time::UNIX_EPOCH).unwrap();
    // The process was killed while it compressed this file.
    std::fs::write(rolled(recent, ""), "whole\n").unwrap();
    std::fs::write(rolled(recent, ".part"), "unfini").unwrap();
    let spec = FileSpec { roll: Some(roll(1 << 20, Compression::Gzip)), ..directory.file("a.log") };
    let output = Output::open(&OutputSpec::File(spec.clone())).unwrap();
    assert_eq!(directory.names().len(), 4, "a configuration that is rejected changes nothing");
    write(&output, "one");
    let file_name = |path: PathBuf| path.file_name().unwrap().to_str().unwrap().to_owned();
    wait_for_names(&directory, &[file_name(rolled(recent, ".gz")), "a.log".into()]);
    output.configure(&OutputSpec::File(FileSpec { roll: spec.roll.map(|roll| RollSpec { keep: 0, ..roll }), ..spec }));
    write(&output, "two");
    wait_for_names(&directory, &["a.log".into()]);
}

fn wait_for_names(directory: &LogDirectory, names: &[String]) {
    let end = std::time::Instant::now() + LIMIT;
    while directory.names() != names {
        assert!(std::time::Instant::now() < end, "{:?} {names:?}", directory.names());
        std::thread::sleep(Duration::from_millis(5));
    }
}

// A full disk, and a directory in which no file can be made: lines are lost, the output works again when the cause is
// gone.
#[test]
fn faults_of_files() {
    let directory = LogDirectory::new("faults");
    let full = FileSpec { path: "/dev/full".into(), roll: Some(roll(1, Compression::None)), ..directory.file("") };
    let output = Output::open(&OutputSpec::File(full)).unwrap();
    (0..100).for_each(|_| write(&output, "lost"));
    flush_all(LIMIT);
    let output = Output::open(&OutputSpec::File(directory.file("sub/a.log"))).unwrap();
    write(&output, "before");
    flush_all(LIMIT);
    std::fs::rename(directory.0.join("sub"), directory.0.join("moved")).unwrap();
    std::fs::write(directory.0.join("sub"), "no directory").unwrap();
    write(&output, "to the moved file");
    flush_all(LIMIT);
    std::fs::remove_file(directory.0.join("sub")).unwrap();
    write(&output, "after");
    flush_all(LIMIT);
    assert_eq!(lines(&directory.0.join("moved/a.log")), ["before", "to the moved file"]);
    assert_eq!(lines(&directory.0.join("sub/a.log")), ["after"]);
    assert!(Output::open(&OutputSpec::File(directory.file("sub/a.log/b"))).is_err());
}

// A collector that closes its connection: lines wait, and the next connection begins with a whole line.
#[test]
fn a_collector_over_tcp() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let spec = |soft_start| {
        OutputSpec::Net(NetSpec { network: Network::Tcp, address: address.clone(), dial_timeout: LIMIT, soft_start })
    };
    let output = Output::open(&spec(false)).unwrap();
    for round in 0..5 {
        // The first connection is made when the output is opened, each further one for a line after the close.
        if round > 0 {
            write(&output, &format!("{round} again"));
        }
        let (stream, _) = listener.accept().unwrap();
        let mut received = BufReader::new(stream).lines();
        if round > 0 {
            assert_eq!(received.next().unwrap().unwrap(), format!("{round} again"));
        }
        for number in 0..100 {
            write(&output, &format!("{round} {number}"));
            assert_eq!(received.next().unwrap().unwrap(), format!("{round} {number}"));
        }
    }
}

// Without a soft start an absent collector is an error; over UDP each line is a datagram.
#[test]
fn a_collector_over_udp() {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(LIMIT)).unwrap();
    let address = socket.local_addr().unwrap().to_string();
    let net = |network, address: &str, soft_start| {
        OutputSpec::Net(NetSpec { network, address: address.into(), dial_timeout: LIMIT, soft_start })
    };
    let output = Output::open(&net(Network::Udp, &address, false)).unwrap();
    for number in 0..20 {
        write(&output, &number.to_string());
        let mut datagram = [0; 16];
        let count = socket.recv(&mut datagram).unwrap();
        assert_eq!(&datagram[..count], format!("{number}\n").as_bytes());
    }
    assert!(Output::open(&net(Network::Unix, "/none/collector.sock", false)).is_err());
    assert!(Output::open(&net(Network::Unix, "/none/collector.sock", true)).is_ok());
}

// udp(7), unix(7): EMSGSIZE, a datagram cannot be that long. The line is lost and counted, and the next ones go on.
#[test]
fn a_line_that_is_longer_than_a_datagram() {
    let directory = LogDirectory::new("long");
    let path = directory.0.join("socket");
    let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
    udp.set_read_timeout(Some(LIMIT)).unwrap();
    let unix = UnixDatagram::bind(&path).unwrap();
    unix.set_read_timeout(Some(LIMIT)).unwrap();
    let address = udp.local_addr().unwrap().to_string();
    check_long_line(Network::Udp, address, |buffer| udp.recv(buffer).unwrap());
    check_long_line(Network::UnixDatagram, path.display().to_string(), |buffer| unix.recv(buffer).unwrap());
}

#[track_caller]
fn check_long_line(network: Network, address: String, receive: impl Fn(&mut [u8]) -> usize) {
    let spec = NetSpec { network, address, dial_timeout: LIMIT, soft_start: false };
    let name = spec.to_string();
    let output = Output::open(&OutputSpec::Net(spec)).unwrap();
    for line in ["first", &"x".repeat(1 << 20), "second"] {
        write(&output, line);
    }
    for want in ["first\n", "second\n"] {
        let mut datagram = [0; 16];
        let count = receive(&mut datagram);
        assert_eq!(&datagram[..count], want.as_bytes(), "{name}");
    }
    let lost = lost_lines().into_iter().find(|lost| lost.output == name).unwrap();
    assert_eq!((lost.dropped, lost.failed), (0, 1), "{name}");
}

/// A device that is always full represents a full disk: each line is counted as lost, and the next one is tried again.
#[test]
fn lost_lines_are_counted() {
    let full = FileSpec { path: "/dev/full".into(), mode: None, directory_mode: DirectoryMode::Private, roll: None };
    let output = Output::open(&OutputSpec::File(full)).unwrap();
    for round in 1..=3 {
        write(&output, "a");
        write(&output, "b");
        flush_all(LIMIT);
        let lost = lost_lines().into_iter().find(|lost| lost.output == "/dev/full").unwrap();
        assert_eq!((lost.dropped, lost.failed), (0, 2 * round));
    }
    drop(output);
    assert!(lost_lines().iter().all(|lost| lost.output != "/dev/full"), "an output that is closed");
}
