//! A process whose hooks belong to somebody else.

use causeway_causal::policy::Recorder;
use causeway_causal::{Profiler, StartError};

static OTHER: Recorder = Recorder::new();

#[test]
fn hooks_that_belong_to_another_policy_are_left_alone() {
    assert!(causeway_progress::install(&OTHER).is_ok());
    for _ in 0..2 {
        let error = Profiler::builder().start().unwrap_err();
        assert!(matches!(error, StartError::Foreign), "{error}");
    }
    assert!(!causeway_progress::is_active());
}
