//! Finds the objects in a body: one, or each element of a list.
//!
//! A pointer that goes into an array, by an index or by `*`, is read in every element of it: the first may be an earlier
//! generation's failed object and hide the second, which was paid. All pointers of a `reply` follow the one that says
//! how the object stands: where they share its way into the list, they share its element.

use crate::config::{Reply, is_element};
use crate::json::Json;

/// One object: its pointers, with the elements' numbers in them, and the part of the body that is its own.
pub struct Object<'d> {
    /// The pointers; its lists of words are empty.
    pub at: Reply,
    /// The element, or the whole body.
    pub own: &'d Json,
}

/// What a body lists.
pub struct Objects<'d> {
    /// Each of them.
    pub list: Vec<Object<'d>>,
    /// The body is one object, and no list.
    pub whole: bool,
    /// Somewhere on the way the body does not have what the pointers name, and does not say that there is nothing.
    pub unread: bool,
}

/// The body as one object, its pointers taken as they are written.
pub fn whole<'d>(reply: &Reply, doc: &'d Json) -> Object<'d> {
    Object { at: bound(reply, &[]), own: doc }
}

/// Every object of a body.
pub fn objects<'d>(reply: &Reply, doc: &'d Json) -> Objects<'d> {
    let spine: Vec<&str> = reply.spine().unwrap_or_default().split('/').skip(1).collect();
    let mut walk = Walk { spine: &spine, found: Vec::new(), unread: false, lists: false };
    walk.go(doc, 0, Vec::new(), doc);
    let Walk { found, unread, lists, .. } = walk;
    if !lists {
        return Objects { list: vec![whole(reply, doc)], whole: true, unread: false };
    }
    let mut list: Vec<Object<'d>> = Vec::with_capacity(found.len());
    for (places, own) in found {
        let object = Object { at: bound(reply, &places), own };
        // An array may hold other things beside what was written for one place in it: a page's head, say.
        if as_written(&spine, &places) || says_anything(reply, &object.at, doc) {
            list.push(object);
        }
    }
    Objects { list, whole: false, unread }
}

/// Whether the element is the one that the pointer names, or it names all.
fn as_written(spine: &[&str], places: &[Place]) -> bool {
    places.iter().all(|p| spine.get(p.at).is_some_and(|part| *part == "*" || *part == p.item.to_string()))
}

/// Whether anything stands at the pointers that lead into the element.
fn says_anything(written: &Reply, at: &Reply, doc: &Json) -> bool {
    written.pointers().zip(at.pointers()).any(|(written, at)| written != at && doc.pointer(at).is_some())
}

/// One step into an array: at which part of the pointer, and to which item.
#[derive(Clone)]
struct Place {
    at: usize,
    item: usize,
}

struct Walk<'s, 'd> {
    spine: &'s [&'s str],
    found: Vec<(Vec<Place>, &'d Json)>,
    unread: bool,
    lists: bool,
}

impl<'d> Walk<'_, 'd> {
    /// From the value at part `at` of the spine on; `own` is the element that the value is part of.
    fn go(&mut self, value: &'d Json, at: usize, places: Vec<Place>, own: &'d Json) {
        if !self.spine[at.min(self.spine.len())..].iter().any(|part| is_element(part)) {
            self.found.push((places, own));
            return;
        }
        let part = self.spine[at];
        match value {
            Json::Array(items) if is_element(part) => {
                self.lists = true;
                for (item, value) in items.iter().enumerate() {
                    let places = places.iter().cloned().chain([Place { at, item }]).collect();
                    self.go(value, at + 1, places, value);
                }
            }
            // An explicit nothing where the list would be.
            Json::Null => self.lists = true,
            Json::Array(items) if items.is_empty() => self.lists = true,
            _ => match value.pointer(&format!("/{part}")) {
                Some(next) => self.go(next, at + 1, places, own),
                None => self.unread |= as_written(self.spine, &places),
            },
        }
    }
}

/// The pointers with these elements in place of what was written.
fn bound(reply: &Reply, places: &[Place]) -> Reply {
    let spine: Vec<&str> = reply.spine().unwrap_or_default().split('/').skip(1).collect();
    let bind = |pointer: &Option<String>| -> Option<String> {
        let pointer = pointer.as_deref()?;
        if places.is_empty() {
            return Some(pointer.to_string());
        }
        let mut together = true;
        let parts = pointer.split('/').skip(1).enumerate().map(|(at, part)| {
            together &= spine.get(at) == Some(&part);
            match places.iter().find(|place| place.at == at).filter(|_| together) {
                Some(place) => format!("/{}", place.item),
                None => format!("/{part}"),
            }
        });
        Some(parts.collect())
    };
    Reply {
        reference: bind(&reply.reference),
        amount: bind(&reply.amount),
        amount_major: reply.amount_major,
        currency: bind(&reply.currency),
        key: bind(&reply.key),
        status: bind(&reply.status),
        ..Reply::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(reference: &str, status: &str) -> Reply {
        let at = |p: &str| (!p.is_empty()).then(|| p.to_string());
        Reply { reference: at(reference), status: at(status), ..Reply::default() }
    }

    #[track_caller]
    fn check(reference: &str, status: &str, doc: &str, expected: &[&str], unread: bool) {
        let (doc, reply) = (Json::parse(doc).unwrap(), reply(reference, status));
        let found = objects(&reply, &doc);
        let at: Vec<&str> = found.list.iter().map(|o| o.at.reference.as_deref().unwrap()).collect();
        assert_eq!((at.as_slice(), found.unread), (expected, unread));
    }

    #[test]
    fn an_index_or_a_star_reads_every_element_and_pointers_of_one_object_stay_together() {
        let two = r#"{"data":[{"id":"a","s":1},{"id":"b","s":2}]}"#;
        for pointer in ["/data/0", "/data/*"] {
            let (id, status) = (format!("{pointer}/id"), format!("{pointer}/s"));
            check(&id, &status, two, &["/data/0/id", "/data/1/id"], false);
            check(&id, &status, r#"{"data":[]}"#, &[], false);
            check(&id, &status, r#"{"data":null}"#, &[], false);
            check(&id, "", two, &["/data/0/id", "/data/1/id"], false);
        }
        check("/data/0/id", "/data/0/s", "{}", &["/data/0/id"], false);
        check("/0/id", "/0/s", r#"[{"id":"a"},{"id":"b"}]"#, &["/0/id", "/1/id"], false);
    }

    #[test]
    fn a_status_outside_the_list_says_that_the_body_is_one_object() {
        let doc = r#"{"status":"paid","links":[{"href":"x"},{"href":"y"}]}"#;
        check("/links/1/href", "/status", doc, &["/links/1/href"], false);
        check("/id", "/status", doc, &["/id"], false);
    }

    #[test]
    fn lists_in_lists_are_read_whole_and_what_is_not_there_is_not_nothing() {
        let doc =
            r#"{"units":[{"captures":[{"id":"a","s":1},{"id":"b","s":2}]},{"captures":[{"id":"c","s":3}]}]}"#;
        let all = ["/units/0/captures/0/id", "/units/0/captures/1/id", "/units/1/captures/0/id"];
        check("/units/0/captures/0/id", "/units/0/captures/0/s", doc, &all, false);
        check("/units/*/captures/*/id", "/units/*/captures/*/s", doc, &all, false);
        let short = r#"{"units":[{"captures":[]},{}]}"#;
        check("/units/*/captures/*/id", "/units/*/captures/*/s", short, &[], true);
        check("/units/0/captures/0/id", "/units/0/captures/0/s", short, &[], false);
    }

    #[test]
    fn an_array_of_other_things_has_only_the_place_that_was_written() {
        check(
            "/1/rows/0/id",
            "/1/rows/0/s",
            r#"[{"page":1},{"rows":[{"id":"a","s":1}]}]"#,
            &["/1/rows/0/id"],
            false,
        );
        check("/1/id", "/1/s", r#"[{"page":1},{"id":"a","s":1}]"#, &["/1/id"], false);
        // A member's name may be a number.
        check("/data/0/id", "/data/0/s", r#"{"data":{"0":{"id":"a"}}}"#, &["/data/0/id"], false);
    }
}
