//! The console over raw sockets: who gets in, what a change needs, and what every answer carries.

use crate::harness::{Answer, Harness, LIMIT, Scene, TOKEN, Web, key};
use onceward::demo::provider::{Decision, Family, Faults};
use std::time::Instant;

const POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self' data:; connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'";

const PAGES: [&str; 12] = [
    "/",
    "/?span=30d",
    "/doubt",
    "/parked",
    "/parked/replay?reason=rejected&which=all",
    "/jobs",
    "/jobs?state=ready&kind=payout",
    "/job/1",
    "/providers",
    "/groups",
    "/audit",
    "/audit?of=events",
];
