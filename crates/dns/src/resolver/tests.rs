use std::sync::{Arc, Mutex};

use hickory_proto::op::MessageType;
use hickory_proto::rr::Record;
use hickory_proto::rr::rdata::{A, AAAA, CNAME, SRV};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, UdpSocket};

use super::*;

/// The queries that a server received, with `tcp` after those over TCP.
type Queries = Arc<Mutex<Vec<String>>>;

/// Binds a port that is free for UDP and for TCP.
async fn sockets() -> (SocketAddr, UdpSocket, TcpListener) {
    loop {
        let tcp = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = tcp.local_addr().unwrap();
        if let Ok(udp) = UdpSocket::bind(address).await {
            return (address, udp, tcp);
        }
    }
}

/// Starts a DNS server on UDP and TCP; `answer` fills the response. Nothing is sent if it returns false.
async fn server(answer: impl Fn(&mut Message) -> bool + Clone + Send + 'static) -> (SocketAddr, Queries) {
    let (address, udp, tcp) = sockets().await;
    let queries = Queries::default();
    let respond = {
        let queries = Arc::clone(&queries);
        move |bytes: &[u8], suffix: &str| {
            let mut message = Message::from_vec(bytes).unwrap();
            let query = &message.queries[0];
            queries.lock().unwrap().push(format!("{} {}{suffix}", query.name(), query.query_type()));
            message.metadata.message_type = MessageType::Response;
            answer(&mut message).then(|| message.to_vec().unwrap())
        }
    };
    let over_tcp = respond.clone();
    tokio::spawn(async move {
        let mut bytes = [0; 2048];
        while let Ok((length, client)) = udp.recv_from(&mut bytes).await {
            if let Some(answer) = respond(&bytes[..length], "") {
                udp.send_to(&answer, client).await.unwrap();
            }
        }
    });
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = tcp.accept().await {
            let length = stream.read_u16().await.unwrap();
            let mut bytes = vec![0; length.into()];
            stream.read_exact(&mut bytes).await.unwrap();
            if let Some(answer) = over_tcp(&bytes, " tcp") {
                stream.write_u16(u16::try_from(answer.len()).unwrap()).await.unwrap();
                stream.write_all(&answer).await.unwrap();
            }
        }
    });
    (address, queries)
}

fn name(text: &str) -> Name {
    Name::from_ascii(text).unwrap()
}

fn push(message: &mut Message, owner: &str, data: RData) {
    message.answers.push(Record::from_rdata(name(owner), 60, data));
}

/// A zone with addresses, an alias, services, and names that fail.
fn world(message: &mut Message) -> bool {
    let query = message.queries[0].clone();
    match (query.name().to_ascii().as_str(), query.query_type()) {
        ("a.test.", RecordType::A) => {
            push(message, "a.test.", RData::A(A::new(127, 0, 0, 2)));
            push(message, "a.test.", RData::A(A::new(127, 0, 0, 1)));
        }
        ("a.test.", RecordType::AAAA) => push(message, "a.test.", RData::AAAA(AAAA::new(0, 0, 0, 0, 0, 0, 0, 1))),
        ("alias.test.", RecordType::A) => {
            push(message, "alias.test.", RData::CNAME(CNAME(name("a.test."))));
            push(message, "a.test.", RData::A(A::new(127, 0, 0, 2)));
        }
        ("_http._tcp.a.test.", RecordType::SRV) => {
            for (priority, weight, port, target) in [(2, 0, 3, "b.test."), (1, 0, 1, "a.test."), (1, 9, 2, "a.test.")] {
                push(message, "_http._tcp.a.test.", RData::SRV(SRV::new(priority, weight, port, name(target))));
            }
        }
        ("_none._tcp.a.test.", RecordType::SRV) => {
            push(message, "_none._tcp.a.test.", RData::SRV(SRV::new(0, 0, 0, Name::root())));
        }
        ("broken.test.", _) => message.metadata.response_code = ResponseCode::ServFail,
        ("silent.test.", _) => return false,
        ("alias.test." | "half.test.", _) => {}
        _ => message.metadata.response_code = ResponseCode::NXDomain,
    }
    true
}

// RFC 8305 §3: the resolver queries both families at once, and the addresses of one do not depend on an answer for the
// other.
#[tokio::test]
async fn one_family_does_not_wait_for_the_other() {
    let is_queried = Arc::new(Mutex::new(false));
    let (server, queries) = server(move |message| {
        let kind = message.queries[0].query_type();
        let mut is_queried = is_queried.lock().unwrap();
        *is_queried |= kind == RecordType::AAAA;
        if kind == RecordType::A {
            push(message, "a.test.", RData::A(A::new(127, 0, 0, 2)));
        }
        // Never for AAAA, and for A only once the server has seen that question.
        kind == RecordType::A && *is_queried
    })
    .await;
    let mut resolver = resolver(&[server.to_string()]);
    resolver.settings.attempts = 2;
    assert_eq!(resolver.addresses("a.test.", Families::Both).await.unwrap(), [IpAddr::from([127, 0, 0, 2])]);
    assert!(queries.lock().unwrap().iter().any(|it| it == "a.test. AAAA"));
}

/// A resolver with short limits for these servers.
fn resolver(servers: &[String]) -> Resolver {
    let servers = servers.iter().map(|text| {
        let (network, address) = text.split_once('/').unwrap_or(("udp", text));
        DnsServer { address: address.to_owned(), is_tcp: network == "tcp", families: Families::Both }
    });
    let servers = servers.collect();
    let mut settings = Settings::parse("search sub.test test\noptions attempts:1");
    settings.timeout = Duration::from_millis(200);
    Resolver { settings, hosts: String::new(), ..Resolver::of_system(1) }.with_servers(servers)
}

async fn addresses(server: SocketAddr, name: &str, families: Families) -> Result<Vec<String>, String> {
    let found = resolver(&[server.to_string()]).addresses(name, families).await;
    let mut found: Vec<_> = found.map_err(|error| error.to_string())?.iter().map(ToString::to_string).collect();
    // Whether IPv6 addresses precede IPv4 ones depends on the machine.
    found.sort_by_key(|ip| ip.contains(':'));
    Ok(found)
}

// RFC 1035, RFC 3596; resolv.conf(5), `search`.
#[tokio::test]
async fn addresses_of_names() {
    let (server, queries) = server(world).await;
    let both = ["127.0.0.2", "127.0.0.1", "::1"].map(str::to_owned).to_vec();
    for (name, families, want) in [
        ("a.test.", Families::Both, Ok(both.clone())),
        ("a.test", Families::Ipv4, Ok(both[..2].to_vec())),
        ("a.test", Families::Ipv6, Ok(both[2..].to_vec())),
        ("a", Families::Both, Ok(both.clone())),
        ("alias.test", Families::Both, Ok(both[..1].to_vec())),
        ("127.0.0.9", Families::Both, Ok(vec!["127.0.0.9".to_owned()])),
        ("::1", Families::Ipv4, Err("found no records of ::1")),
        ("half.test.", Families::Both, Err("found no records of half.test.")),
        ("absent.test.", Families::Both, Err("found no records of absent.test.")),
        ("broken.test.", Families::Both, Err("a server answered Server Failure for broken.test.")),
        ("a..test", Families::Both, Err("found 'a..test', expected a DNS name")),
        ("", Families::Both, Err("found '', expected a DNS name")),
    ] {
        let found = addresses(server, name, families).await;
        assert_eq!(found.as_ref().map_err(String::as_str), want.as_ref().map_err(|text| *text), "{name}");
    }
    queries.lock().unwrap().clear();
    addresses(server, "a", Families::Ipv4).await.unwrap();
    assert_eq!(*queries.lock().unwrap(), ["a.sub.test. A", "a.test. A"]);
    let long = format!("{}.test", "a".repeat(250));
    assert!(addresses(server, &long, Families::Both).await.is_err());
}

// RFC 2782: sorted by priority; the target "." means that there is no service.
#[tokio::test]
async fn services_of_names() {
    let (server, _) = server(world).await;
    let found = resolver(&[server.to_string()]).services("_http._tcp.a.test").await.unwrap();
    let found: Vec<_> = found.iter().map(|it| format!("{}:{}", it.target, it.port)).collect();
    assert_eq!(found, ["a.test.:2", "a.test.:1", "b.test.:3"]);
    for name in ["_none._tcp.a.test.", "a.test."] {
        let error = resolver(&[server.to_string()]).services(name).await.unwrap_err();
        assert!(matches!(error, LookupError::NotFound(_)), "{error}");
    }
}

// If a server fails or does not respond, the next one is used; either may be the first.
#[tokio::test]
async fn several_servers() {
    let (good, _) = server(world).await;
    let failing = |message: &mut Message| {
        message.metadata.response_code = ResponseCode::Refused;
        true
    };
    let (refusing, _) = server(failing).await;
    let (silent, _) = server(|_| false).await;
    for bad in [refusing, silent] {
        for seed in 0..4 {
            let servers = [bad.to_string(), good.to_string()];
            let resolver = Resolver { random: seed << 40, ..resolver(&servers) };
            assert_eq!(resolver.addresses("a.test.", Families::Ipv4).await.unwrap().len(), 2, "{bad}");
        }
    }
}

// Caddy, network addresses: `tcp/` means TCP from the start.
#[tokio::test]
async fn over_tcp() {
    let (server, queries) = server(world).await;
    let resolver = resolver(&[format!("tcp/{server}")]).with_limits(Some(Duration::from_secs(5)), None);
    assert_eq!(resolver.addresses("a.test.", Families::Ipv4).await.unwrap().len(), 2);
    assert_eq!(*queries.lock().unwrap(), ["a.test. A tcp"]);
}

// The system's own hosts come first, as in every resolver of Unix.
#[tokio::test]
async fn the_hosts_file_has_precedence() {
    let (server, queries) = server(world).await;
    let resolver = Resolver { hosts: "127.0.0.7 a.test".to_owned(), ..resolver(&[server.to_string()]) };
    assert_eq!(resolver.addresses("a.test", Families::Both).await.unwrap(), [IpAddr::from([127, 0, 0, 7])]);
    assert!(queries.lock().unwrap().is_empty());
}

// RFC 8305 §5: the second family is tried after a pause, or at once if the first one fails.
#[tokio::test(start_paused = true)]
async fn races() {
    let after = |ms: u64, result: Result<u8, u8>| async move {
        tokio::time::sleep(Duration::from_millis(ms)).await;
        result
    };
    for (first, second, want) in [
        (after(10, Ok(1)), after(0, Ok(2)), Ok(1)),
        (after(10, Err(1)), after(10, Ok(2)), Ok(2)),
        (after(1000, Ok(1)), after(10, Ok(2)), Ok(2)),
        (after(1000, Ok(1)), after(10, Err(2)), Ok(1)),
        (after(400, Err(1)), after(1000, Ok(2)), Ok(2)),
        (after(400, Err(1)), after(1000, Err(2)), Err(2)),
    ] {
        assert_eq!(race(first, second, FALLBACK_DELAY).await, want);
    }
}
