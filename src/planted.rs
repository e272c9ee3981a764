//! Planted bugs: with the feature `planted-bugs`, `ONCEWARD_PLANTED_BUG=N` breaks one rule on purpose, so that the
//! simulation (`tests/sim`) can show that it would find such a fault. Without the feature there is nothing to break.
//! What each number breaks is said where it is asked for, and listed in `tests/sim/planted.rs`.

/// Is this one planted?
#[cfg(not(feature = "planted-bugs"))]
#[inline(always)]
pub const fn bug(_number: u32) -> bool {
    false
}

/// Is this one planted?
#[cfg(feature = "planted-bugs")]
pub fn bug(number: u32) -> bool {
    use std::sync::OnceLock;
    static PLANTED: OnceLock<Option<u32>> = OnceLock::new();
    let planted = PLANTED.get_or_init(|| std::env::var("ONCEWARD_PLANTED_BUG").ok()?.parse().ok());
    *planted == Some(number)
}
