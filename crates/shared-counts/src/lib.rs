#![doc = include_str!("../README.md")]
//!
//! # In reading order
//! - [`RedisServer`]: the address of a server
//! - [`CountedKeys`]: a counter in this process; [`KeyNews`] and [`WindowCounts`]: the data that it sends and receives
//! - [`CountExchange`]: an open exchange; all users of a server share it
//! - `rounds`: the thread of an exchange
//! - `link`: one round trip to Redis

mod exchange;
mod link;
mod rounds;
mod server;

pub use exchange::{
    CountExchange, CountedKeys, ExchangeStatus, KEYS_PER_ROUND, KeyNews, ROUND_INTERVAL, WindowCounts, statuses,
};
pub use server::{RedisPlace, RedisServer};

#[cfg(test)]
mod tests;
