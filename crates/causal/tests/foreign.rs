//! A process whose hooks belong to another policy.

use causal::policy::Recorder;
use causal::{Profiler, StartError};

static OTHER: Recorder = Recorder::new();

#[test]
fn hooks_of_another_policy_are_not_replaced() {
    assert!(progress::install(&OTHER).is_ok());
    for _ in 0..2 {
        let error = Profiler::builder().start().unwrap_err();
        assert!(matches!(error, StartError::Foreign), "{error}");
    }
    assert!(!progress::is_active());
}
