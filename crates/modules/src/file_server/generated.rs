//! Compressed variants that the server makes itself: `precompress`, an extension of Caddy's file server.
//!
//! The first request that prefers a coding starts a job, and gets the uncompressed file like all requests until the
//! variant is ready. A variant belongs to a cached entry, so it is of one version with its validators, and is dropped
//! with the entry. Its bytes are made once for all workers.
//!
//! ```text
//! None ──first request, and a free place in the queue──► UnderWay ──job──► Ready, or Useless if it is not smaller
//! ```

use std::cell::{Cell, OnceCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use causeway_message::{Chunk, FieldValue, Method, names};
use causeway_pipeline::worker::{Work, WorkKind, offload};
use causeway_pipeline::{Build, BuildError, Context};

use super::disk::FileIdentity;
use super::entry::{FileContent, FileEntry, FileVariant};
use crate::accept_encoding;
use crate::encode::{Coding, LENGTH_MIN, compressed, is_compressible, with_suffix};

/// Number of shared variants at which the dropped ones are first removed from the table.
const SHARED_PRUNE_MIN: usize = 1024;

/// The codings whose variants are made, the preferred one first.
pub(super) struct GeneratedCodings(Box<[(Coding, FieldValue<'static>)]>);

impl GeneratedCodings {
    pub(super) fn build(written: &[String], build: &mut Build<'_>) -> Result<Self, BuildError> {
        let mut codings: Vec<(Coding, FieldValue<'static>)> = Vec::with_capacity(written.len());
        for (index, name) in written.iter().enumerate() {
            build.at(format!("precompress[{index}]"), |build| {
                let Some(coding) = Coding::smallest(name) else {
                    return Err(build.refuse(name, "one of br, gzip, zstd"));
                };
                if codings.iter().any(|(known, _)| *known == coding) {
                    return Err(build.refuse(name, "each coding once"));
                }
                codings.push((coding, FieldValue::from_static(coding.name())));
                Ok(())
            })?;
        }
        Ok(Self(codings.into()))
    }

    /// The variants of a file that was just read: none if it is too short, too long to be in memory, or of a type that
    /// does not compress.
    pub(super) fn of(&self, main: &FileVariant, content_type: Option<&str>) -> Box<[GeneratedVariant]> {
        let is_eligible = matches!(main.content, FileContent::Small(_))
            && main.len > LENGTH_MIN
            && content_type.is_some_and(|content_type| is_compressible(content_type.as_bytes()));
        let codings = if is_eligible { &*self.0 } else { &[] };
        let etag = |coding: Coding| {
            // RFC 9110 §8.8.3.3: each coding has a strong tag of its own. A weak tag stays.
            let etag = main.etag.as_deref()?;
            Some(with_suffix(etag, coding.name()).map_or_else(|| etag.into(), Vec::into_boxed_slice))
        };
        codings
            .iter()
            .map(|(coding, _)| GeneratedVariant { etag: etag(*coding), ..GeneratedVariant::default() })
            .collect()
    }
}

/// One variant of a cached file.
#[derive(Default)]
pub(super) struct GeneratedVariant {
    phase: Cell<VariantPhase>,
    /// Set once, when the phase becomes `Ready`.
    variant: OnceCell<FileVariant>,
    etag: Option<Box<[u8]>>,
}

/// The state of a variant: not requested yet, being made, usable, or not shorter than the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum VariantPhase {
    #[default]
    None,
    UnderWay,
    Ready,
    Useless,
}

/// Returns the variant that the request prefers, if it is ready, with the value of Content-Encoding. Starts to make it
/// if it is missing. Does not allocate otherwise.
pub(super) fn choose<'e>(
    codings: &GeneratedCodings,
    cx: &Context,
    entry: &'e Rc<FileEntry>,
) -> Option<(FieldValue<'static>, &'e FileVariant)> {
    if !may_choose(cx, entry) {
        return None;
    }
    let request = cx.head();
    let best = |is_offered: fn(VariantPhase) -> bool| {
        accept_encoding::choose(request.fields(), |name| {
            let at = codings.0.iter().position(|(coding, _)| name.eq_ignore_ascii_case(coding.name().as_bytes()))?;
            is_offered(entry.generated[at].phase.get()).then_some((at, codings.0.len() - at))
        })
    };
    let mut at = best(|phase| phase != VariantPhase::Useless)?;
    if entry.generated[at].phase.get() != VariantPhase::Ready {
        if entry.generated[at].phase.get() == VariantPhase::None {
            make(codings.0[at].0, at, cx, entry);
        }
        at = best(|phase| phase == VariantPhase::Ready)?;
    }
    Some((codings.0[at].1, entry.generated[at].variant.get()?))
}

/// Returns whether a variant of this file could be the response to this request.
fn may_choose(cx: &Context, entry: &FileEntry) -> bool {
    let request = cx.head();
    // Ranges are those of the uncompressed file.
    if entry.generated.is_empty() || request.method() == Method::Get && request.fields().contains(names::RANGE) {
        return false;
    }
    // An earlier handler declared that the content is encoded already, or that it must not be, or set the tag of the
    // uncompressed file.
    let response = cx.response().fields();
    let is_set = response.contains(names::CONTENT_ENCODING) || response.contains(names::ETAG);
    !is_set && !response.has_token(names::CACHE_CONTROL, "no-transform")
}

/// Returns the entity tag that a response to this request should have: of the tags of the file and its variants, the
/// one that the request's `If-None-Match` lists. All of them stand for the same version, and the client has one of
/// them: then that one is selected, and not `chosen`.
///
/// RFC 9110 §13.1.2: the condition is evaluated for the selected representation. So only the tags count that a response
/// to this request could have: a cache may have a variant that this client does not accept.
pub(super) fn known_tag<'e>(
    codings: &GeneratedCodings,
    cx: &Context,
    entry: &'e FileEntry,
    chosen: &'e FileVariant,
) -> Option<&'e [u8]> {
    let request = cx.head().fields();
    if !request.contains(names::IF_NONE_MATCH) || !may_choose(cx, entry) {
        return None;
    }
    let accepts = |coding: &Coding| {
        let is_same = |name: &[u8]| name.eq_ignore_ascii_case(coding.name().as_bytes()).then_some(((), 0));
        accept_encoding::choose(request, is_same).is_some()
    };
    let accepted = codings.0.iter().zip(&entry.generated).filter(|((coding, _), _)| accepts(coding));
    // If a cache has several of them, it should use the one that it would get.
    let tags = [&chosen.etag, &entry.main.etag].into_iter().chain(accepted.map(|(_, variant)| &variant.etag));
    tags.filter_map(Option::as_deref).find(|tag| crate::conditional::lists_weakly(request, tag))
}

/// Starts a job that makes a variant.
fn make(coding: Coding, at: usize, cx: &Context, entry: &Rc<FileEntry>) {
    let FileContent::Small(content) = &entry.main.content else { return };
    let (content, identity) = (content.clone(), entry.seen.identity());
    let job = move || shared(identity.map(|identity| (identity, coding.name())), coding, content.as_slice());
    // Without a free place in the queue, a later request tries again.
    let Ok(job) = offload(&**cx.worker(), Work::of(WorkKind::Precompress), job) else { return };
    entry.generated[at].phase.set(VariantPhase::UnderWay);
    let entry = Rc::clone(entry);
    cx.worker().spawn(Box::pin(async move {
        let made = job.await.filter(|made| made.bytes().is_some());
        let generated = &entry.generated[at];
        let Some(made) = made else { return generated.phase.set(VariantPhase::Useless) };
        // The bytes are shared with other workers, the chunk's counter is not.
        let content = Chunk::from_owner(made);
        let len = content.len() as u64;
        let variant = FileVariant { content: FileContent::Small(content), len, etag: generated.etag.clone() };
        if generated.variant.set(variant).is_ok() {
            generated.phase.set(VariantPhase::Ready);
        }
    }));
}

/// The bytes of a variant, shared by all workers. `None` inside if it is not smaller than the file.
#[derive(Default)]
struct SharedBytes(OnceLock<Option<Box<[u8]>>>);

#[derive(Clone)]
struct MadeBytes(Arc<SharedBytes>);

impl MadeBytes {
    fn bytes(&self) -> Option<&[u8]> {
        self.0.0.get()?.as_deref()
    }
}

impl AsRef<[u8]> for MadeBytes {
    fn as_ref(&self) -> &[u8] {
        self.bytes().unwrap_or_default()
    }
}

/// The variants that some worker holds, and the number of them at which the dropped ones are removed.
struct SharedTable {
    variants: HashMap<(FileIdentity, &'static str), Weak<SharedBytes>>,
    prune_at: usize,
}

/// Makes a variant, or returns the one that another worker holds or is just making. Runs on a thread of the pool; `key`
/// is `None` for content that its metadata do not identify.
fn shared(key: Option<(FileIdentity, &'static str)>, coding: Coding, content: &[u8]) -> MadeBytes {
    static SHARED: Mutex<Option<SharedTable>> = Mutex::new(None);
    let made = match key {
        None => Arc::default(),
        Some(key) => {
            let mut table = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
            let SharedTable { variants, prune_at } =
                table.get_or_insert_with(|| SharedTable { variants: HashMap::new(), prune_at: SHARED_PRUNE_MIN });
            if variants.len() >= *prune_at {
                variants.retain(|_, made| made.strong_count() > 0);
                *prune_at = SHARED_PRUNE_MIN.max(2 * variants.len());
            }
            let held = variants.get(&key).and_then(Weak::upgrade);
            held.unwrap_or_else(|| {
                let made = Arc::default();
                variants.insert(key, Arc::downgrade(&made));
                made
            })
        }
    };
    // Waits if another thread is making it.
    made.0.get_or_init(|| {
        let coded = compressed(coding, content).filter(|coded| coded.len() < content.len())?;
        Some(coded.into_boxed_slice())
    });
    MadeBytes(made)
}
