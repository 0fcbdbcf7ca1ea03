#![doc = include_str!("../README.md")]
//!
//! # In reading order
//! - [`RedisServer`]: the address of a server
//! - [`CountedKeys`]: a counter in this process; [`KeyDelta`] and [`WindowCounts`]: the data that it sends and receives
//! - [`CountExchange`]: an open exchange; all users of a server share it
//! - `rounds`: the thread of an exchange
//! - `connection`: one round trip to Redis

mod connection;
mod exchange;
mod rounds;
mod server;

pub use exchange::{
    CountExchange, CountedKeys, ExchangeStatus, KEYS_PER_ROUND, KeyDelta, ROUND_INTERVAL, WindowCounts, statuses,
};
pub use server::{RedisPlace, RedisServer};

#[cfg(test)]
mod tests;
