//! A collector's double: it receives OTLP over HTTP or gRPC, decodes it with prost, and sends a test's answers.

use std::collections::VecDeque;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use flate2::read::GzDecoder;
use prost::Message as _;

/// How long a test waits for a request that has to come.
const TIMEOUT: Duration = Duration::from_secs(20);

/// The messages of opentelemetry-proto, as far as tests need them.
pub(crate) mod otlp {
    #[derive(Clone, PartialEq, prost::Message)]
    pub(crate) struct ExportRequest {
        #[prost(message, repeated, tag = "1")]
        pub(crate) resource_spans: Vec<ResourceSpans>,
    }
    #[derive(Clone, PartialEq, prost::Message)]
    pub(crate) struct ResourceSpans {
        #[prost(message, optional, tag = "1")]
        pub(crate) resource: Option<Resource>,
        #[prost(message, repeated, tag = "2")]
        pub(crate) scope_spans: Vec<ScopeSpans>,
    }
    #[derive(Clone, PartialEq, prost::Message)]
    pub(crate) struct Resource {
        #[prost(message, repeated, tag = "1")]
        pub(crate) attributes: Vec<KeyValue>,
    }
    #[derive(Clone, PartialEq, prost::Message)]
    pub(crate) struct ScopeSpans {
        #[prost(message, optional, tag = "1")]
        pub(crate) scope: Option<SpanScope>,
        #[prost(message, repeated, tag = "2")]
        pub(crate) spans: Vec<Span>,
    }
    #[derive(Clone, PartialEq, prost::Message)]
    pub(crate) struct SpanScope {
        #[prost(string, tag = "1")]
        pub(crate) name: String,
        #[prost(string, tag = "2")]
        pub(crate) version: String,
    }
    #[derive(Clone, PartialEq, prost::Message)]
    pub(crate) struct Span {
        #[prost(bytes, tag = "1")]
        pub(crate) trace_id: Vec<u8>,
        #[prost(bytes, tag = "2")]
        pub(crate) span_id: Vec<u8>,
        #[prost(string, tag = "3")]
        pub(crate) trace_state: String,
        #[prost(bytes, tag = "4")]
        pub(crate) parent_span_id: Vec<u8>,
        #[prost(string, tag = "5")]
        pub(crate) name: String,
        #[prost(int32, tag = "6")]
        pub(crate) kind: i32,
        #[prost(fixed64, tag = "7")]
        pub(crate) start_time_unix_nano: u64,
        #[prost(fixed64, tag = "8")]
        pub(crate) end_time_unix_nano: u64,
        #[prost(message, repeated, tag = "9")]
        pub(crate) attributes: Vec<KeyValue>,
        #[prost(message, optional, tag = "15")]
        pub(crate) status: Option<SpanStatus>,
        #[prost(fixed32, tag = "16")]
        pub(crate) flags: u32,
    }
    #[derive(Clone, PartialEq, prost::Message)]
    pub(crate) struct SpanStatus {
        #[prost(string, tag = "2")]
        pub(crate) message: String,
        #[prost(int32, tag = "3")]
        pub(crate) code: i32,
    }
    #[derive(Clone, PartialEq, prost::Message)]
    pub(crate) struct MetricsRequest {
        #[prost(message, repeated, tag = "1")]
        pub(crate) resource_metrics: Vec<ResourceMetrics>,
    }
    #[derive(Clone, PartialEq, prost::Message)]
    pub(crate) struct ResourceMetrics {
        #[prost(message, optional, tag = "1")]
        pub(crate) resource: Option<Resource>,
        #[prost(message, repeated, tag = "2")]
        pub(crate) scope_metrics: Vec<ScopeMetrics>,
    }
    #[derive(Clone, PartialEq, prost::Message)]
    pub(crate) struct ScopeMetrics {
        #[prost(message, optional, tag = "1")]
        pub(crate) scope: Option<SpanScope>,
        #[prost(message, repeated, tag = "2")]
        pub(crate) metrics: Vec<Metric>,
    }
    #[derive(Clone, PartialEq, prost::Message)]
    pub(crate) struct Metric {
        #[prost(string, tag = "1")]
        pub(crate) name: String,
        #[prost(string, tag = "2")]
        pub(crate) description: String,
        #[prost(oneof = "MetricData", tags = "5, 7, 9")]
        pub(crate) data: Option<MetricData>,
    }
    #[derive(Clone, PartialEq, prost::Oneof)]
    pub(crate) enum MetricData {
        #[prost(message, tag = "5")]
        Gauge(Gauge),
        #[prost(message, tag = "7")]
        Sum(Sum),
        #[prost(message, tag = "9")]
        Histogram(Histogram),
    }
    #[derive(Clone, PartialEq, prost::Message)]
    pub(crate) struct Gauge {
        #[prost(message, repeated, tag = "1")]
        pub(crate) data_points: Vec<NumberPoint>,
    }
    #[derive(Clone, PartialEq, prost::Message)]
    pub(crate) struct Sum {
        #[prost(message, repeated, tag = "1")]
        pub(crate) data_points: Vec<NumberPoint>,
        #[prost(int32, tag = "2")]
        pub(crate) aggregation_temporality: i32,
        #[prost(bool, tag = "3")]
        pub(crate) is_monotonic: bool,
    }
    #[derive(Clone, PartialEq, prost::Message)]
    pub(crate) struct Histogram {
        #[prost(message, repeated, tag = "1")]
        pub(crate) data_points: Vec<HistogramPoint>,
        #[prost(int32, tag = "2")]
        pub(crate) aggregation_temporality: i32,
    }
    #[derive(Clone, PartialEq, prost::Message)]
    pub(crate) struct NumberPoint {
        #[prost(fixed64, tag = "2")]
        pub(crate) start_time_unix_nano: u64,
        #[prost(fixed64, tag = "3")]
        pub(crate) time_unix_nano: u64,
        #[prost(double, tag = "4")]
        pub(crate) as_double: f64,
        #[prost(message, repeated, tag = "7")]
        pub(crate) attributes: Vec<KeyValue>,
    }
    #[derive(Clone, PartialEq, prost::Message)]
    pub(crate) struct HistogramPoint {
        #[prost(fixed64, tag = "2")]
        pub(crate) start_time_unix_nano: u64,
        #[prost(fixed64, tag = "3")]
        pub(crate) time_unix_nano: u64,
        #[prost(fixed64, tag = "4")]
        pub(crate) count: u64,
        #[prost(double, tag = "5")]
        pub(crate) sum: f64,
        #[prost(fixed64, repeated, tag = "6")]
        pub(crate) bucket_counts: Vec<u64>,
        #[prost(double, repeated, tag = "7")]
        pub(crate) explicit_bounds: Vec<f64>,
        #[prost(message, repeated, tag = "9")]
        pub(crate) attributes: Vec<KeyValue>,
    }
    #[derive(Clone, PartialEq, prost::Message)]
    pub(crate) struct KeyValue {
        #[prost(string, tag = "1")]
        pub(crate) key: String,
        #[prost(message, optional, tag = "2")]
        pub(crate) value: Option<AnyValue>,
    }
    #[derive(Clone, PartialEq, prost::Message)]
    pub(crate) struct AnyValue {
        #[prost(oneof = "AttributeValue", tags = "1, 3")]
        pub(crate) value: Option<AttributeValue>,
    }
    #[derive(Clone, PartialEq, prost::Oneof)]
    pub(crate) enum AttributeValue {
        #[prost(string, tag = "1")]
        Text(String),
        #[prost(int64, tag = "3")]
        Number(i64),
    }

    /// Returns attributes as texts.
    pub(crate) fn texts(attributes: &[KeyValue]) -> Vec<(&str, String)> {
        let text = |attribute: &KeyValue| match attribute.value.as_ref().and_then(|any| any.value.clone()) {
            Some(AttributeValue::Text(text)) => text,
            Some(AttributeValue::Number(number)) => number.to_string(),
            None => String::new(),
        };
        attributes.iter().map(|attribute| (&*attribute.key, text(attribute))).collect()
    }
}

/// A request as the collector received it.
#[derive(Debug)]
pub(crate) struct Received {
    pub(crate) path: String,
    pub(crate) headers: Vec<(String, String)>,
    /// A request for spans; empty for metrics.
    pub(crate) message: otlp::ExportRequest,
    /// A request for metrics; empty for spans.
    pub(crate) metrics: otlp::MetricsRequest,
}

impl Received {
    fn new(path: String, headers: Vec<(String, String)>, message: &[u8]) -> Self {
        let (mut spans, mut metrics) = (otlp::ExportRequest::default(), otlp::MetricsRequest::default());
        match path.to_ascii_lowercase().contains("metrics") {
            true => metrics = otlp::MetricsRequest::decode(message).expect("a message"),
            false => spans = otlp::ExportRequest::decode(message).expect("a message"),
        }
        Self { path, headers, message: spans, metrics }
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| &**value)
    }

    /// Returns the metric of this name.
    pub(crate) fn metric(&self, name: &str) -> Option<&otlp::Metric> {
        let scopes = self.metrics.resource_metrics.iter().flat_map(|resource| &resource.scope_metrics);
        scopes.flat_map(|scope| &scope.metrics).find(|metric| metric.name == name)
    }

    pub(crate) fn spans(&self) -> Vec<&otlp::Span> {
        let scopes = self.message.resource_spans.iter().flat_map(|resource| &resource.scope_spans);
        scopes.flat_map(|scope| &scope.spans).collect()
    }
}

/// An answer: over HTTP a status, headers and a body; over gRPC a status, trailers and a message.
#[derive(Debug, Clone, Default)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) fields: Vec<(&'static str, String)>,
    pub(crate) body: Vec<u8>,
    /// Ends the connection in place of an answer.
    pub(crate) hangs_up: bool,
}

impl Reply {
    pub(crate) fn of(status: u16) -> Self {
        Self { status, ..Self::default() }
    }
}

pub(crate) struct Collector {
    pub(crate) port: u16,
    received: Receiver<Received>,
    replies: Arc<Mutex<VecDeque<Reply>>>,
}

impl Collector {
    /// Starts a collector for OTLP/HTTP. After the `replies` it accepts everything.
    pub(crate) fn http(port: u16, replies: Vec<Reply>) -> Self {
        Self::start(port, replies, |stream, sender, replies| {
            let _ = serve_http(&stream, &sender, &replies);
        })
    }

    /// Starts a collector for OTLP/gRPC.
    pub(crate) fn grpc(port: u16, replies: Vec<Reply>) -> Self {
        Self::start(port, replies, |stream, sender, replies| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            let _ = runtime.block_on(serve_grpc(stream, sender, replies));
        })
    }

    fn start(
        port: u16,
        replies: Vec<Reply>,
        serve: impl Fn(TcpStream, Sender<Received>, Arc<Mutex<VecDeque<Reply>>>) + Send + Clone + 'static,
    ) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", port)).expect("the port is free");
        let port = listener.local_addr().expect("an address").port();
        let (sender, received) = channel();
        let replies = Arc::new(Mutex::new(replies.into()));
        let shared = Arc::clone(&replies);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (serve, sender, replies) = (serve.clone(), sender.clone(), Arc::clone(&shared));
                std::thread::spawn(move || serve(stream, sender, replies));
            }
        });
        Self { port, received, replies }
    }

    #[track_caller]
    pub(crate) fn receive(&self) -> Received {
        self.received.recv_timeout(TIMEOUT).expect("a request")
    }

    pub(crate) fn is_quiet(&self) -> bool {
        self.received.try_recv().is_err()
    }

    pub(crate) fn replies_left(&self) -> usize {
        self.replies.lock().expect("a lock").len()
    }
}

fn serve_http(stream: &TcpStream, sender: &Sender<Received>, replies: &Mutex<VecDeque<Reply>>) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream);
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return Ok(());
        }
        assert!(line.starts_with("POST "), "{line}");
        let path = line.split(' ').nth(1).unwrap_or_default().to_owned();
        let mut headers = Vec::new();
        loop {
            let mut line = String::new();
            reader.read_line(&mut line)?;
            let Some((name, value)) = line.trim_end().split_once(": ") else { break };
            headers.push((name.to_ascii_lowercase(), value.to_owned()));
        }
        let find = |name: &str| headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone());
        let mut body = vec![0; find("content-length").and_then(|length| length.parse().ok()).expect("a length")];
        reader.read_exact(&mut body)?;
        let body = unzipped(body, find("content-encoding").is_some());
        let reply = replies.lock().expect("a lock").pop_front().unwrap_or_else(|| Reply::of(200));
        let _ = sender.send(Received::new(path, headers, &body));
        if reply.hangs_up {
            return Ok(());
        }
        let mut head = format!("HTTP/1.1 {} Status\r\nContent-Length: {}\r\n", reply.status, reply.body.len());
        for (name, value) in &reply.fields {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        (&mut &*stream).write_all(&[head.as_bytes(), b"\r\n", &reply.body].concat())?;
    }
}

async fn serve_grpc(
    stream: TcpStream,
    sender: Sender<Received>,
    replies: Arc<Mutex<VecDeque<Reply>>>,
) -> Result<(), Box<dyn std::error::Error>> {
    stream.set_nonblocking(true)?;
    let mut connection = h2::server::handshake(tokio::net::TcpStream::from_std(stream)?).await?;
    while let Some(exchange) = connection.accept().await {
        let (request, mut respond) = exchange?;
        let (sender, replies) = (sender.clone(), Arc::clone(&replies));
        // Concurrently with the connection, which has to be polled.
        tokio::spawn(async move {
            let (head, mut content) = request.into_parts();
            let mut body = Vec::new();
            while let Some(Ok(data)) = content.data().await {
                body.extend_from_slice(&data);
                let _ = content.flow_control().release_capacity(data.len());
            }
            let length = u32::from_be_bytes(body[1..5].try_into().expect("four bytes"));
            assert_eq!(length as usize, body.len() - 5);
            let message = unzipped(body[5..].to_vec(), body[0] == 1);
            let headers = head.headers.iter();
            let headers = headers.map(|(name, value)| (name.to_string(), value.to_str().unwrap_or("").to_owned()));
            let received = Received::new(head.uri.path().to_owned(), headers.collect(), &message);
            let reply = replies.lock().expect("a lock").pop_front().unwrap_or_default();
            let _ = sender.send(received);
            if reply.hangs_up {
                respond.send_reset(h2::Reason::INTERNAL_ERROR);
                return;
            }
            let mut trailers = http::HeaderMap::new();
            trailers.insert("grpc-status", reply.status.into());
            for (name, value) in reply.fields {
                trailers.insert(name, value.parse().expect("a value"));
            }
            let mut response = http::Response::builder().header("content-type", "application/grpc");
            if reply.status != 0 {
                // As gRPC's own servers do: an error without a message has its status in the head.
                response.headers_mut().expect("headers").extend(trailers);
                let _ = respond.send_response(response.body(()).expect("a response"), true);
                return;
            }
            let mut message = vec![0];
            message.extend_from_slice(&(reply.body.len() as u32).to_be_bytes());
            message.extend_from_slice(&reply.body);
            let mut stream = respond.send_response(response.body(()).expect("a response"), false).expect("a stream");
            stream.send_data(message.into(), false).expect("room");
            stream.send_trailers(trailers).expect("room");
        });
    }
    Ok(())
}

fn unzipped(bytes: Vec<u8>, is_zipped: bool) -> Vec<u8> {
    if !is_zipped {
        return bytes;
    }
    let mut plain = Vec::new();
    GzDecoder::new(&*bytes).read_to_end(&mut plain).expect("gzip");
    plain
}
