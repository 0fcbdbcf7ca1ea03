//! The document root: absolute, and with `resolve_root_symlink` without symbolic links.

use std::cell::RefCell;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::rc::Rc;

use causeway_message::{StatusCode, path};
use causeway_pipeline::{Build, Busy, Context, Fault, Reason, StateId, Step, Template};

use super::super::{Local, attempt};
use crate::file_server::{absolute, push_root, root};
use crate::fresh::{CachedValue, Cost, Costly, Fresh};
use crate::single_flight::SingleFlight;

/// The resolved roots of a worker: room for about a thousand.
const REMEMBERED: Cost = Cost { bytes: 512 * 1024, open: 0 };

pub(super) struct DocumentRoot {
    path: RootPath,
    /// With `resolve_root_symlink`.
    resolved: Option<ResolvedRoots>,
}

enum RootPath {
    /// Without placeholders: absolute and clean.
    Fixed(Box<[u8]>),
    Templated(Template),
}

/// A worker's resolved roots.
struct ResolvedRoots {
    known: StateId<RefCell<Fresh<RealPath>>>,
    looks: StateId<SingleFlight<()>>,
}

/// A root without symbolic links, or why there is none.
struct RealPath(Result<Box<[u8]>, io::ErrorKind>);

impl Costly for RealPath {
    fn cost(&self) -> Cost {
        Cost { bytes: self.0.as_ref().map_or(0, |path| path.len()), open: 0 }
    }
}

impl DocumentRoot {
    pub(super) fn build(written: &str, resolves: bool, build: &mut Build<'_>) -> Self {
        let template = root(Some(written), build);
        let path = match template.literal() {
            Some(literal) => RootPath::Fixed(absolute(literal.as_bytes()).into()),
            None => RootPath::Templated(template),
        };
        let resolved = resolves.then(|| ResolvedRoots {
            known: build
                .allocate_kept_state("reverse_proxy roots".to_owned(), |_| RefCell::new(Fresh::new(REMEMBERED))),
            looks: build.allocate_state(|_| SingleFlight::new()),
        });
        Self { path, resolved }
    }

    /// Waits until the links of the request's root are resolved, and then dispatches the request. `None` if there is
    /// nothing to wait for.
    pub(super) fn prepare(&self, cx: &mut Context, local: &Rc<Local>) -> Option<Step> {
        let ResolvedRoots { known, looks } = self.resolved.as_ref()?;
        let now = cx.worker().now();
        cx.with_scratch(|cx, text| {
            self.put_path(cx, text);
            let (guard, has_old) = match cx.generation().state(*known).borrow_mut().find(text, now) {
                CachedValue::Fresh(_) => return None,
                CachedValue::Stale(_, guard) => (Some(guard), true),
                CachedValue::Nothing => (None, false),
            };
            let (generation, known) = (Rc::clone(cx.generation()), *known);
            let (key, path) = (Rc::<[u8]>::from(&**text), text.clone());
            let look = SingleFlight::join(
                cx,
                *looks,
                text,
                move || real_path(&path),
                move |found| {
                    // Moved here, so that other requests use the old value until the new one is stored.
                    let _guard = guard;
                    let found = RealPath(found.unwrap_or(Err(io::ErrorKind::Other)));
                    generation.state(known).borrow_mut().put(&key, Rc::new(found), now);
                },
            );
            match look {
                Ok((look, _)) => {
                    let local = Rc::clone(local);
                    Some(cx.wait(look, move |cx, _| attempt::start(cx, local)))
                }
                // An old value is better than a 503.
                Err(Busy) if has_old => None,
                Err(Busy) => Some(Step::Fail(Fault::busy())),
            }
        })
    }

    /// Appends the request's root.
    ///
    /// # Errors
    /// 502, as in Caddy, if its symbolic links cannot be resolved.
    pub(super) fn put(&self, cx: &mut Context, out: &mut Vec<u8>) -> Result<(), Fault> {
        self.put_path(cx, out);
        let Some(ResolvedRoots { known, .. }) = &self.resolved else { return Ok(()) };
        let found = match cx.generation().state(*known).borrow_mut().find(out, cx.worker().now()) {
            CachedValue::Fresh(found) | CachedValue::Stale(found, _) => found,
            // Evicted since `prepare`.
            CachedValue::Nothing => return Err(Fault::busy()),
        };
        match &found.0 {
            Ok(path) => {
                out.clear();
                out.extend_from_slice(path);
                Ok(())
            }
            Err(kind) => Err(unresolved(out, *kind)),
        }
    }

    /// Appends the root, absolute and clean; only `/` ends in a slash.
    fn put_path(&self, cx: &mut Context, out: &mut Vec<u8>) {
        match &self.path {
            RootPath::Fixed(path) => out.extend_from_slice(path),
            RootPath::Templated(template) => {
                push_root(template, cx, out);
                if out.is_empty() {
                    // `push_root` removes trailing slashes, here all of `/`.
                    out.push(b'/');
                } else if !path::is_clean(out) {
                    // A relative root, or one with dots: rare.
                    let whole = absolute(out);
                    out.clear();
                    out.extend_from_slice(&whole);
                }
            }
        }
    }
}

/// Runs on the file thread pool.
fn real_path(path: &[u8]) -> Result<Box<[u8]>, io::ErrorKind> {
    let real = std::fs::canonicalize(OsStr::from_bytes(path)).map_err(|error| error.kind())?;
    Ok(real.into_os_string().into_vec().into())
}

#[cold]
fn unresolved(path: &[u8], kind: io::ErrorKind) -> Fault {
    let message = format!("resolving the symbolic links of {}: {kind}", path.escape_ascii());
    Fault { status: StatusCode::BAD_GATEWAY, reason: Reason::Text(message.into()) }
}
