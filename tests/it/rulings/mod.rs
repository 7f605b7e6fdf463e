//! The rulings on hard cases (ARCHITECTURE.md lists them), each over real sockets, streamed and whole: hidden
//! exchanges, counting, the final answer, one stream out of several replies, several choices, fallbacks. The relay
//! and single parts are tested elsewhere.

mod choices;
mod counting;
mod crossing;
mod fallback;
mod landing;
mod placement;
mod refusals;
mod refused;
mod repair;
mod restoring;
mod wordings;
