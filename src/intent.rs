//! An intent: the ledger row of one business operation, at most one per key, for ever. Types, no I/O.

use crate::clock::Ms;
use crate::job::Key;
use crate::json::Json;
use crate::outcome::words;
use sha2::{Digest, Sha256};
use uuid::Uuid;

words! {
    /// Where an operation stands with its provider.
    IntentState {
        /// Nothing was sent.
        Pending = "pending",
        /// Something may have been.
        Requested = "requested",
        /// Confirmed; never changes again.
        Settled = "settled",
        /// The provider refused: certainly no effect.
        Rejected = "rejected",
        /// Given up before anything was sent, or by a person's word.
        Cancelled = "cancelled",
    }
}

/// The constant under which wire keys are drawn (UUIDv5). Published, and never to change: two installs, or a lost
/// and restored file, must give the provider the same key for the same event.
pub const WIRE_NAMESPACE: Uuid = Uuid::from_u128(0x6f6e6365_7761_5264_8a4b_6f6e63652121);

/// How the provider is to see the key.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum WireStyle {
    /// UUIDv5 of namespace, key and generation: 36 characters that no provider refuses and that give nothing away.
    #[default]
    Uuid,
    /// The key itself; `~2`, `~3`… follows it from the second generation on.
    Raw,
}

/// The key as the provider sees it. Depends on nothing in the file.
pub fn wire_key(style: WireStyle, namespace: &str, key: &Key, generation: u32) -> String {
    match style {
        WireStyle::Uuid => {
            let name = format!("{namespace}\u{1f}{}\u{1f}{generation}", key.as_str());
            Uuid::new_v5(&WIRE_NAMESPACE, name.as_bytes()).to_string()
        }
        WireStyle::Raw if generation == 1 => key.as_str().to_string(),
        WireStyle::Raw => format!("{}~{generation}", key.as_str()),
    }
}

/// A Message-ID drawn from a wire key: `<UUID@onceward.invalid>`. The same for every try of a generation, so that a
/// mailbox or a person can tell that two e-mails are one. The domain is reserved (RFC 2606) and nobody's.
pub fn message_id(wire_key: &str) -> String {
    // A raw key may have characters that no Message-ID may have.
    let id = match Uuid::parse_str(wire_key) {
        Ok(id) => id,
        Err(_) => Uuid::new_v5(&WIRE_NAMESPACE, format!("message-id\u{1f}{wire_key}").as_bytes()),
    };
    format!("<{}@onceward.invalid>", id.hyphenated())
}

/// What an operation is about: two enqueues of one key must agree in all of it.
#[derive(Clone, PartialEq, Debug)]
pub struct Content<'a> {
    /// The kind.
    pub kind: &'a str,
    /// The payload; key order and white space do not count, digits do.
    pub payload: &'a Json,
    /// Whose account, if stated.
    pub account: Option<&'a str>,
    /// How much, in minor units.
    pub amount_minor: Option<i64>,
    /// ISO 4217.
    pub currency: Option<&'a str>,
}

/// A SHA-256 hash.
pub type Hash = [u8; 32];

impl Content<'_> {
    /// SHA-256 over the canonical content. Lengths go before the parts, so that no two contents share their bytes.
    pub fn hash(&self) -> Hash {
        let amount = self.amount_minor.map(|a| a.to_string());
        let payload = self.payload.canonical();
        let parts = [Some(self.kind), Some(&payload), self.account, amount.as_deref(), self.currency];
        let mut hash = Sha256::new();
        for part in parts {
            match part {
                Some(text) => {
                    hash.update((text.len() as u64 + 1).to_be_bytes());
                    hash.update(text.as_bytes());
                }
                None => hash.update(0u64.to_be_bytes()),
            }
        }
        hash.finalize().into()
    }
}

/// SHA-256 of the canonical payload: `payload_sha256` in JSON.
pub fn payload_hash(payload: &Json) -> Hash {
    Sha256::digest(payload.canonical().as_bytes()).into()
}

/// Lower-case hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// The request of one generation as it was first sent, and as it is sent again: byte for byte.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Frozen {
    /// The HTTP method; empty for an in-process handler.
    pub method: String,
    /// Path and query, already encoded, without the base URL.
    pub path: String,
    /// Header names and values without secrets, in their order.
    pub headers: Vec<(String, String)>,
    /// The body's bytes.
    pub body: Vec<u8>,
    /// The path of the look-up, rendered with the same values; `None` without one.
    pub lookup_path: Option<String>,
}

/// Where a generation was sent: if one part changes, the old key may mean nothing there.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Scope {
    /// Provider, base URL and account fingerprint.
    pub send: String,
    /// The look-up's definition.
    pub lookup: String,
}

/// The longest reference that is taken, in characters.
pub const REFERENCE_LIMIT: usize = 255;

/// What is known about the present generation.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Generation {
    /// 1 at first.
    pub number: u32,
    /// Requests of it that may have left.
    pub sends: u32,
    /// When the first of them was begun: the provider's window runs from here.
    pub first_sent: Option<Ms>,
    /// The boot clock at its claim, so that a set clock cannot reopen the window.
    pub first_sent_boot: Option<i64>,
    /// When the last of them was begun, or the crash that cut it short: a look-up's lag runs from here.
    pub last_sent: Option<Ms>,
    /// The boot clock when that was recorded, so that a set clock cannot end the lag. `None` if it is not known.
    pub last_sent_boot: Option<i64>,
    /// One attempt ended unknown. Sticky: only a settlement, a look-up or a person ends it.
    pub unknown: bool,
    /// The provider once took it: never sent again, never followed by a new generation on a look-up's word.
    pub accepted: bool,
    /// 5xx answers so far.
    pub server_errors: u32,
    /// 2xx answers that did not say what they should.
    pub bad_responses: u32,
    /// Sending again is of no use: the provider said mismatch, or refused after an unknown.
    pub no_resend: bool,
    /// Look-ups that found nothing and count.
    pub not_found: u32,
    /// When the last of them was begun.
    pub not_found_at: Option<Ms>,
    /// The boot clock when that was recorded.
    pub not_found_boot: Option<i64>,
    /// Look-ups so far: their pauses grow with it.
    pub lookups: u32,
    /// In doubt since a restore, and a look-up has proved since then that nothing happened under any generation: this one
    /// may go out.
    pub proved: bool,
    /// The provider's refusal answered the request itself, and is not stored: the same request may go under this key.
    pub refused_directly: bool,
    /// The object that a duplicate's error named.
    pub named: Option<String>,
}

/// What is known of the other generations: an object of one before the present one says nothing about this one.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Earlier {
    /// Their keys as the provider saw them.
    pub wire_keys: Vec<String>,
    /// The provider's ids of the objects that they led to.
    pub references: Vec<String>,
    /// In doubt since a restore: the keys of those that the lost file may have come to. What they did was done for this
    /// intent.
    pub lost: Vec<String>,
}

/// The file was restored, and the intent stood in the copy or is new to it: the lost file may have brought it to any
/// generation. Only settling, or a person's word about all generations, ends this.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Doubt {
    /// When the earliest copy that concerns it was made.
    pub since: Ms,
    /// When the file was last restored.
    pub restored: Ms,
    /// A person has said of every restore that concerns it: since the copy nobody amended, cancelled, rejected or called
    /// anything not applied.
    pub no_words: bool,
}

/// One intent as it stands in the file.
#[derive(Clone, PartialEq, Debug)]
pub struct Intent {
    /// Where it stands.
    pub state: IntentState,
    /// The present generation.
    pub generation: Generation,
    /// The generations before it.
    pub earlier: Earlier,
    /// It is in doubt since the file was restored.
    pub doubt: Option<Doubt>,
    /// The app makes the call itself and has not been told of this generation yet: since then.
    pub waits_for_app: Option<Ms>,
    /// An earlier generation was given up though a request of it may have left.
    pub earlier_unknown: bool,
    /// The key as the provider sees it.
    pub wire_key: String,
    /// Who carries it out.
    pub provider: Option<String>,
    /// Whose account.
    pub account: Option<String>,
    /// Minor units.
    pub amount_minor: Option<i64>,
    /// ISO 4217.
    pub currency: Option<String>,
    /// The frozen request, from the first send on.
    pub frozen: Option<Frozen>,
    /// Where it was sent.
    pub scope: Option<Scope>,
    /// The provider's own id of the effect.
    pub reference: Option<String>,
    /// When the first request of any generation was begun.
    pub requested: Option<Ms>,
    /// When the effect was confirmed.
    pub confirmed: Option<Ms>,
    /// The provider's answer, shortened and redacted: JSON text, or a JSON string of other text.
    pub result: Option<String>,
}

impl Intent {
    /// A request may have taken effect: of this generation, or of any since the file was restored.
    pub fn in_doubt(&self) -> bool {
        self.generation.unknown || self.doubt.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wire_key_is_the_published_vector_and_changes_with_each_part() {
        let key = Key::new("payout:INV-1001").unwrap();
        let first = wire_key(WireStyle::Uuid, "", &key, 1);
        assert_eq!(first, "966b27f5-7e40-53ee-afca-3d77557216ce");
        assert_eq!(first.len(), 36);
        assert_ne!(first, wire_key(WireStyle::Uuid, "shop", &key, 1));
        assert_ne!(first, wire_key(WireStyle::Uuid, "", &key, 2));
        assert_eq!(wire_key(WireStyle::Raw, "", &key, 1), "payout:INV-1001");
        assert_eq!(wire_key(WireStyle::Raw, "", &key, 2), "payout:INV-1001~2");
    }

    #[test]
    fn a_message_id_is_one_for_each_wire_key_and_clean_whatever_the_key_is() {
        let uuid = "966b27f5-7e40-53ee-afca-3d77557216ce";
        assert_eq!(message_id(uuid), format!("<{uuid}@onceward.invalid>"));
        let raw = message_id("mail:a <b>\r\nBcc: x");
        assert_eq!((raw.len(), raw.contains("Bcc")), (message_id(uuid).len(), false));
        assert_ne!(raw, message_id("mail:a~2"));
    }

    #[test]
    fn content_is_told_apart_by_every_part_of_it() {
        let payload = Json::parse(r#"{"a":1}"#).unwrap();
        let base =
            Content { kind: "k", payload: &payload, account: None, amount_minor: Some(5), currency: None };
        let empty_account = Content { account: Some(""), ..base.clone() };
        let other_amount = Content { amount_minor: None, ..base.clone() };
        assert_ne!(base.hash(), empty_account.hash());
        assert_ne!(base.hash(), other_amount.hash());
        let spaced = Json::parse(r#"{ "a" : 1 }"#).unwrap();
        assert_eq!(base.hash(), Content { payload: &spaced, ..base.clone() }.hash());
    }
}
