//! The resources of an execution: every template ends within them.

use std::cell::Cell;
use std::fmt;

use crate::sprig::RegexCache;

/// The default of [`ExecutionLimits::steps_max`]: some seconds of work at most.
pub const STEPS_DEFAULT: u64 = 10_000_000;
/// The default of [`ExecutionLimits::memory_bytes_max`].
pub const MEMORY_BYTES_DEFAULT: usize = 64 << 20;
/// The default of [`ExecutionLimits::output_bytes_max`].
pub const OUTPUT_BYTES_DEFAULT: usize = 16 << 20;
/// How deep nodes, pipelines and templates nest at most while they run. A thread's stack of 2 MiB is enough for it.
pub const DEPTH_MAX: u32 = 400;
/// How deep containers nest that are printed, compared, copied or encoded. Deeper ones may exist.
pub const VALUE_DEPTH_MAX: u32 = 200;

/// The bounds of an execution, with all executions that it starts.
#[derive(Clone, Copy, Debug)]
pub struct ExecutionLimits {
    /// Nodes that are executed, functions that are called, and elements that functions look at.
    pub steps_max: u64,
    /// Bytes of all values that functions make. Bytes of values that are dropped again count too.
    pub memory_bytes_max: usize,
    /// Bytes of the output.
    pub output_bytes_max: usize,
}

impl Default for ExecutionLimits {
    fn default() -> Self {
        Self {
            steps_max: STEPS_DEFAULT,
            memory_bytes_max: MEMORY_BYTES_DEFAULT,
            output_bytes_max: OUTPUT_BYTES_DEFAULT,
        }
    }
}

/// The rest of the [`ExecutionLimits`].
#[derive(Debug)]
pub struct Budget {
    steps: Cell<u64>,
    memory: Cell<usize>,
    output: Cell<usize>,
    pub(crate) depth: Cell<u32>,
    /// Patterns that the execution has compiled.
    pub(crate) regexes: RegexCache,
}

/// A bound that an execution has reached.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum LimitError {
    /// [`ExecutionLimits::steps_max`].
    Steps,
    /// [`ExecutionLimits::memory_bytes_max`].
    Memory,
    /// [`ExecutionLimits::output_bytes_max`].
    Output,
    /// [`DEPTH_MAX`].
    Depth,
    /// [`VALUE_DEPTH_MAX`].
    ValueDepth,
}

impl fmt::Display for LimitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Steps => f.write_str("the template needs more steps than it may use"),
            Self::Memory => f.write_str("the template's values need more memory than it may use"),
            Self::Output => f.write_str("the output is longer than it may be"),
            Self::Depth => write!(f, "exceeded maximum template depth ({DEPTH_MAX})"),
            Self::ValueDepth => write!(f, "a value nests deeper than {VALUE_DEPTH_MAX}"),
        }
    }
}

impl std::error::Error for LimitError {}

impl Budget {
    /// Makes a budget with everything that the limits allow.
    #[must_use]
    pub fn new(limits: ExecutionLimits) -> Self {
        Self {
            steps: Cell::new(limits.steps_max),
            memory: Cell::new(limits.memory_bytes_max),
            output: Cell::new(limits.output_bytes_max),
            depth: Cell::new(0),
            regexes: RegexCache::default(),
        }
    }

    /// Returns the steps that are left.
    #[must_use]
    pub fn steps_left(&self) -> u64 {
        self.steps.get()
    }

    /// Charges steps: one for each element that a function looks at.
    ///
    /// # Errors
    /// [`LimitError::Steps`] if fewer are left.
    pub fn charge_steps(&self, steps: usize) -> Result<(), LimitError> {
        let left = self.steps.get().checked_sub(steps as u64);
        self.steps.set(left.unwrap_or(0));
        left.map(drop).ok_or(LimitError::Steps)
    }

    /// Charges the bytes of a value that a function makes, and the steps to write them. Allocates nothing.
    ///
    /// # Errors
    /// [`LimitError::Memory`] if less is left, or [`LimitError::Steps`].
    pub fn charge_memory(&self, bytes: usize) -> Result<(), LimitError> {
        let left = self.memory.get().checked_sub(bytes).ok_or(LimitError::Memory)?;
        self.memory.set(left);
        self.charge_steps(bytes / 64)
    }

    pub(crate) fn charge_output(&self, bytes: usize) -> Result<(), LimitError> {
        let left = self.output.get().checked_sub(bytes).ok_or(LimitError::Output)?;
        self.output.set(left);
        Ok(())
    }
}

/// Text that a function makes, within the budget.
pub(crate) struct Text<'a> {
    bytes: Vec<u8>,
    budget: &'a Budget,
}

impl<'a> Text<'a> {
    pub(crate) fn new(budget: &'a Budget) -> Self {
        Self { bytes: Vec::new(), budget }
    }

    pub(crate) fn push(&mut self, bytes: &[u8]) -> Result<(), LimitError> {
        self.budget.charge_memory(bytes.len())?;
        self.bytes.extend_from_slice(bytes);
        Ok(())
    }

    pub(crate) fn repeat(&mut self, bytes: &[u8], count: usize) -> Result<(), LimitError> {
        let length = bytes.len().checked_mul(count).ok_or(LimitError::Memory)?;
        self.budget.charge_memory(length)?;
        if !bytes.is_empty() {
            self.bytes.reserve(length);
            for _ in 0..count {
                self.bytes.extend_from_slice(bytes);
            }
        }
        Ok(())
    }

    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// Makes an empty text within the same budget.
    pub(crate) fn sibling(&self) -> Self {
        Self::new(self.budget)
    }

    pub(crate) fn budget(&self) -> &'a Budget {
        self.budget
    }
}
