//! The run of a profile: what is asked, what is done about it, and how it stands.

/// Which ways a profile goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Modes {
    /// All targets are screened, the most worthwhile confirmed.
    #[default]
    Both,
    /// Screening alone: nothing is paused for a target's sake.
    Screen,
    /// Confirming alone.
    Confirm,
}
