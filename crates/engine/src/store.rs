//! What the engine makes of the state store's facts, and the update for the store after a reply. The data itself is the
//! model's.

mod calls;
mod update;

pub use calls::CallNames;
pub use update::ReplyContext;

/// The most calls of one request that are looked up, the newest first: older ones are outside every window, and a
/// request with a million calls must not cost a million look-ups. The same for replies.
pub const MOST_LOOKED_UP: usize = 1024;
