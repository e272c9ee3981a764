//! The product at work against a provider that misbehaves.

pub mod provider;
