//! `/metrics`
use super::api::Ask;
use super::message::{Content, Problem, Response};
use super::wire::Body;

pub fn scrape(ask: &Ask<'_>, _: &mut Body) -> Result<Response, Problem> {
    ask.no_query()?;
    Ok(Response::new(200, "text/plain", Content::Bytes(Vec::new())))
}
