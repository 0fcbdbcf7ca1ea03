//! The certificates of public authorities that a new configuration takes over.

use std::collections::HashMap;
use std::time::SystemTime;

use super::stored::load_all;
use super::{IssuedCertificate, Keeper, PublicCertificateSpec, PublicState};
use crate::{SharedStorage, ocsp};

/// Finds the certificates of public names in the previous configuration's keeper or in storage. As in Caddy, the
/// certificate in use serves until there is another one: also if its authority or its storage was replaced, or if
/// storage cannot be read.
pub(super) fn carry_public(
    names: Vec<PublicCertificateSpec>,
    before: Option<&Keeper>,
    storage: &SharedStorage,
    now: SystemTime,
) -> HashMap<String, PublicState> {
    let Some(before) = before else { return load_all(names, storage, now).into_iter().collect() };
    let mut known = before.state().public.clone();
    let (mut carried, mut superseded) = (HashMap::new(), HashMap::new());
    let mut missing = Vec::new();
    for public in names {
        let Some(PublicState { public: was, issued: Some(issued) }) = known.remove(&public.name) else {
            missing.push(public);
            continue;
        };
        let certificate = ocsp::carried(&issued.certificate, &public.ocsp);
        let issued = IssuedCertificate { certificate, ..issued };
        let is_stored_there = was.storage.as_ref().unwrap_or(&before.storage).identity()
            == public.storage.as_ref().unwrap_or(storage).identity();
        if is_stored_there && !issued.is_superseded && public.authorities.contains(&issued.authority) {
            carried.insert(public.name.clone(), PublicState { public, issued: Some(issued) });
            continue;
        }
        // As in Caddy, the certificate of a local authority does not stand in for that of a public one: other clients
        // trust it.
        let is_local = before.authorities.iter().any(|authority| authority.spec().id == issued.authority);
        if !is_local || public.authorities.contains(&issued.authority) {
            superseded.insert(public.name.clone(), IssuedCertificate { is_superseded: true, ..issued });
        }
        missing.push(public);
    }
    for (name, mut state) in load_all(missing, storage, now) {
        if let Some(old) = superseded.remove(&name)
            && (state.issued.is_none() || old.certificate.is_valid(now))
            && !state.certificate().is_some_and(|found| found.is_valid(now))
        {
            state.issued = Some(old);
        }
        carried.insert(name, state);
    }
    carried
}
