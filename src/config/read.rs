//! Reads `onceward.toml`.
