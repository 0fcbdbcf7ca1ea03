//! Retries: `lb_retries`, `lb_try_duration`, `lb_try_interval` and `lb_retry_match`.
//!
//! A retry selects an upstream again. It is safe if the failed attempt sent nothing, and then any request is retried, with its body. After
//! that the upstream may have acted on the request: only a GET is retried, or a request that `lb_retry_match` allows; and a body only if it was kept
//! ([`Replay`]).

use std::cell::RefCell;
use std::rc::Rc;
use std::task::{Context as Task, Poll, ready};
use std::time::{Duration, Instant};

use causeway_message::{Chunk, FieldMap, Method};
use causeway_pipeline::build::DurationConfig;
use causeway_pipeline::{
    Body, BodyFault, BodyStream, Build, BuildError, CallFault, Context, Frame, IncomingBody, Matcher,
};

use super::policy::LoadBalancingConfig;

/// Bytes of a request body that are kept for a retry, or more with `request_buffers`. A longer body is sent only once.
const KEPT_BYTES_MAX: usize = 256 * 1024;
/// The pause before a retry if only `lb_try_duration` is set; Caddy's.
const INTERVAL: Duration = Duration::from_millis(250);
/// The shortest pause after no upstream was available.
const PAUSE_MIN: Duration = Duration::from_millis(1);

/// The settings of retries.
pub(super) struct Retries {
    /// `None` is no limit.
    count_max: Option<u32>,
    duration_max: Option<Duration>,
    interval: Duration,
    /// Each set is a list of conditions that must all hold.
    matchers: Vec<Vec<Box<dyn Matcher>>>,
}

impl Retries {
    /// Compiles the settings; `None` if there are no retries.
    pub(super) fn build(written: &LoadBalancingConfig, build: &mut Build<'_>) -> Result<Option<Self>, BuildError> {
        let mut duration = |key: &str, written: &Option<DurationConfig>| match written {
            Some(written) => build.at(key, |build| written.read(build)),
            None => Ok(None),
        };
        let duration_max = duration("try_duration", &written.try_duration)?;
        let interval = duration("try_interval", &written.try_interval)?;
        let mut matchers = Vec::with_capacity(written.retry_match.len());
        for (index, set) in written.retry_match.iter().enumerate() {
            let matcher = build.at(format!("retry_match[{index}]"), |build| match set.as_object() {
                Some(set) => build.matcher_set(set),
                None => Err(build.refuse(set.to_string(), "an object of matchers")),
            })?;
            matchers.push(matcher);
        }
        let count_max = u32::try_from(written.retries).ok().filter(|&count| count > 0);
        if count_max.is_none() && duration_max.is_none() {
            return Ok(None);
        }
        let default = if duration_max.is_some() { INTERVAL } else { Duration::ZERO };
        Ok(Some(Self { count_max, duration_max, interval: interval.unwrap_or(default), matchers }))
    }

    /// Returns the pause before the next attempt; `None` if there is no next attempt.
    pub(super) fn pause(&self, cx: &mut Context, tries: &Tries, failed: Attempt) -> Option<Duration> {
        let took = cx.worker().now().saturating_duration_since(tries.began);
        if self.duration_max.is_some_and(|max| took >= max) || self.count_max.is_some_and(|max| tries.retries >= max) {
            return None;
        }
        match failed {
            Attempt::NoUpstream => Some(self.interval.max(PAUSE_MIN)),
            Attempt::NotSent => Some(self.interval),
            Attempt::Sent => self.allows(cx).then_some(self.interval),
        }
    }

    /// Returns whether the request may be sent again although an upstream may have acted on it: then its body is kept. A matcher that
    /// would have to wait does not match.
    pub(super) fn allows(&self, cx: &mut Context) -> bool {
        if self.matchers.is_empty() {
            return cx.head().method() == Method::Get;
        }
        self.matchers.iter().any(|set| set.iter().all(|matcher| matcher.matches(cx).is_ok_and(|matched| matched)))
    }
}

/// How far a failed attempt got.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Attempt {
    /// No upstream was available.
    NoUpstream,
    /// Nothing was sent, or the upstream has rejected the request.
    NotSent,
    /// The upstream may have received the request.
    Sent,
}

impl Attempt {
    pub(super) fn of(fault: &CallFault) -> Self {
        match fault {
            CallFault::Resolve(_)
            | CallFault::Connect(_)
            | CallFault::ConnectTimedOut
            | CallFault::Tls(_)
            | CallFault::Busy
            // FastCGI 1.0 §5.5: with FCGI_OVERLOADED the application rejects the request.
            | CallFault::Overloaded => Self::NotSent,
            _ => Self::Sent,
        }
    }
}

/// The attempts of one request so far.
#[derive(Clone, Copy)]
pub(super) struct Tries {
    pub(super) began: Instant,
    pub(super) retries: u32,
}

impl Tries {
    pub(super) fn first(cx: &Context) -> Self {
        Self { began: cx.worker().now(), retries: 0 }
    }

    pub(super) fn next(self) -> Self {
        Self { retries: self.retries + 1, ..self }
    }
}

/// A request body that can be read again from its beginning, as long as it is not too long to be kept.
#[derive(Clone)]
pub(super) struct Replay(Rc<RefCell<Kept>>);

struct Kept {
    source: IncomingBody,
    /// The part of the source that was read; empty once it was too long.
    bytes: Vec<u8>,
    trailers: Option<Box<FieldMap>>,
    is_at_end: bool,
    is_too_long: bool,
    len: Option<u64>,
    bytes_max: usize,
}

impl Replay {
    /// `buffered_max` is how much of a body `request_buffers` has in memory anyway.
    pub(super) fn new(source: IncomingBody, buffered_max: usize) -> Self {
        let len = source.len();
        let kept = Kept {
            source,
            bytes: Vec::new(),
            trailers: None,
            is_at_end: false,
            is_too_long: false,
            len,
            bytes_max: KEPT_BYTES_MAX.max(buffered_max),
        };
        Self(Rc::new(RefCell::new(kept)))
    }

    /// Returns whether everything that was read so far is kept.
    pub(super) fn is_whole(&self) -> bool {
        !self.0.borrow().is_too_long
    }

    /// Returns the body from its beginning. The body must be [whole](Self::is_whole), and an earlier reader must not be used any more.
    pub(super) fn body(&self) -> Body {
        Body::Stream(Box::new(Reader { kept: self.clone(), read: 0, has_trailers: true }))
    }
}

struct Reader {
    kept: Replay,
    /// Bytes of `Kept::bytes` that this reader has returned.
    read: usize,
    /// The trailers were not returned.
    has_trailers: bool,
}

impl BodyStream for Reader {
    fn poll_frame(&mut self, task: &mut Task<'_>) -> Poll<Option<Result<Frame, BodyFault>>> {
        let mut kept = self.kept.0.borrow_mut();
        if self.read < kept.bytes.len() {
            // Rare: only a retry gets here.
            let again = Chunk::from(kept.bytes[self.read..].to_vec());
            self.read = kept.bytes.len();
            return Poll::Ready(Some(Ok(Frame::Chunk(again))));
        }
        if kept.is_at_end {
            let trailers = kept.trailers.clone().filter(|_| std::mem::take(&mut self.has_trailers));
            return Poll::Ready(trailers.map(|trailers| Ok(Frame::Trailers(trailers))));
        }
        let frame = ready!(kept.source.poll_frame(task));
        match &frame {
            Some(Ok(Frame::Chunk(chunk))) => {
                if !kept.is_too_long && kept.bytes.len() + chunk.len() <= kept.bytes_max {
                    kept.bytes.extend_from_slice(chunk.as_slice());
                } else {
                    kept.is_too_long = true;
                    kept.bytes = Vec::new();
                }
                self.read = kept.bytes.len();
            }
            Some(Ok(Frame::Trailers(trailers))) => {
                kept.trailers = Some(trailers.clone());
                self.has_trailers = false;
            }
            None => kept.is_at_end = true,
            // A body that has failed cannot be sent again.
            Some(Err(_)) => kept.is_too_long = true,
        }
        Poll::Ready(frame)
    }

    fn len(&self) -> Option<u64> {
        let kept = self.kept.0.borrow();
        if kept.is_too_long { kept.source.len() } else { Some(kept.len? - self.read as u64) }
    }
}
