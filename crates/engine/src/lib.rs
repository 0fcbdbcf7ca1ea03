//! Accept, drive, write, drain: the workers that carry connections
