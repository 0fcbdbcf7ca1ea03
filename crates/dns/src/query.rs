//! One DNS message to one server, and its response (RFC 1035 §4.2).

use std::fmt;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use hickory_proto::op::{Edns, Message, OpCode, Query};
use hickory_proto::rr::{Name, RecordType};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpStream, UdpSocket};

/// How long a server may take to answer over one transport.
const QUERY_TIMEOUT: Duration = Duration::from_secs(5);
/// The longest response over UDP, which EDNS announces: below the usual MTU, so that no response is fragmented.
const UDP_BYTES_MAX: u16 = 1232;

/// The reason why a server gave no usable answer.
#[derive(Debug)]
#[non_exhaustive]
pub enum QueryError {
    /// The message could not be sent or the response could not be read.
    Io(io::Error),
    /// No response arrived in time.
    Timeout,
    /// The response is not a DNS message.
    Malformed,
}

impl fmt::Display for QueryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => error.fmt(f),
            Self::Timeout => f.write_str("no answer in time"),
            Self::Malformed => f.write_str("the answer is not a DNS message"),
        }
    }
}

impl std::error::Error for QueryError {}

impl From<io::Error> for QueryError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// A recursive query, as a stub resolver sends it.
pub fn question(name: &Name, kind: RecordType) -> Message {
    let mut message = Message::query();
    message.metadata.recursion_desired = true;
    message.add_query(Query::query(name.clone(), kind));
    let mut edns = Edns::new();
    edns.set_max_payload(UDP_BYTES_MAX).set_version(0);
    message.set_edns(edns);
    message
}

/// Sends an encoded message and returns the response's bytes and its decoded form. UDP first, then TCP if the response
/// is truncated or none arrives (firewalls).
pub async fn exchange(server: SocketAddr, sent: &[u8]) -> Result<(Message, Vec<u8>), QueryError> {
    exchange_within(server, sent, QUERY_TIMEOUT).await
}

/// As [`exchange`], with another limit for each transport.
pub async fn exchange_within(
    server: SocketAddr,
    sent: &[u8],
    timeout: Duration,
) -> Result<(Message, Vec<u8>), QueryError> {
    let query = Message::from_vec(sent).map_err(|_| QueryError::Malformed)?;
    match in_time(over_udp(server, sent, &query), timeout).await {
        Ok((message, _)) if message.truncation => {}
        Err(QueryError::Timeout) => {}
        done => return done,
    }
    in_time(over_tcp(server, sent, &query, None), timeout).await
}

/// As [`exchange_within`], over TCP only. `dial_timeout` bounds the connection.
pub async fn exchange_tcp(
    server: SocketAddr,
    sent: &[u8],
    timeout: Duration,
    dial_timeout: Option<Duration>,
) -> Result<(Message, Vec<u8>), QueryError> {
    let query = Message::from_vec(sent).map_err(|_| QueryError::Malformed)?;
    in_time(over_tcp(server, sent, &query, dial_timeout), timeout).await
}

async fn in_time<T>(work: impl Future<Output = Result<T, QueryError>>, timeout: Duration) -> Result<T, QueryError> {
    tokio::time::timeout(timeout, work).await.unwrap_or(Err(QueryError::Timeout))
}

async fn over_udp(server: SocketAddr, sent: &[u8], query: &Message) -> Result<(Message, Vec<u8>), QueryError> {
    let own: SocketAddr =
        if server.is_ipv4() { (Ipv4Addr::UNSPECIFIED, 0).into() } else { (Ipv6Addr::UNSPECIFIED, 0).into() };
    let socket = UdpSocket::bind(own).await?;
    // The kernel then drops datagrams of other senders.
    socket.connect(server).await?;
    socket.send(sent).await?;
    let mut bytes = vec![0; usize::from(u16::MAX)];
    loop {
        let length = socket.recv(&mut bytes).await?;
        // A datagram that does not belong to the question may be forged, so it ends nothing.
        if let Ok(message) = Message::from_vec(&bytes[..length])
            && answers(&message, query)
        {
            return Ok((message, bytes[..length].to_vec()));
        }
    }
}

async fn over_tcp(
    server: SocketAddr,
    sent: &[u8],
    query: &Message,
    dial_timeout: Option<Duration>,
) -> Result<(Message, Vec<u8>), QueryError> {
    let connecting = TcpStream::connect(server);
    let mut stream = match dial_timeout {
        Some(limit) => tokio::time::timeout(limit, connecting).await.unwrap_or(Err(io::ErrorKind::TimedOut.into())),
        None => connecting.await,
    }?;
    let length = u16::try_from(sent.len()).map_err(|_| QueryError::Malformed)?;
    stream.write_all(&[&length.to_be_bytes(), sent].concat()).await?;
    let length = stream.read_u16().await?;
    let mut bytes = vec![0; length.into()];
    stream.read_exact(&mut bytes).await?;
    let message = Message::from_vec(&bytes).map_err(|_| QueryError::Malformed)?;
    if answers(&message, query) { Ok((message, bytes)) } else { Err(QueryError::Malformed) }
}

/// RFC 5452 §9.1: the response must have the question's ID and repeat the question. Responses to an update may leave
/// the latter out (RFC 2136 §3.8).
fn answers(response: &Message, query: &Message) -> bool {
    let repeats = response.queries == query.queries || (query.op_code == OpCode::Update && response.queries.is_empty());
    response.id == query.id && response.op_code == query.op_code && repeats
}
