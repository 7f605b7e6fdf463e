//! Wire formats, read and written losslessly: JSON as spans and splices, server-sent events, hidden Unicode. Knows
//! nothing of any API, of conversations or of sockets.

pub mod body;
pub mod decoded;
pub mod escaped_text;
pub mod first_characters;
pub mod hidden_unicode;
pub mod json;
pub mod json_strings;
pub mod members;
mod piece;
pub mod plural;
pub mod sniff;
pub mod splice;
pub mod sse;
pub mod unseen;
pub mod whole_json;
