//! A plan applied to bytes: splices into the original request and reply, never a re-serialisation. Decides
//! nothing; what it writes is a function of its arguments.

pub mod choice;
pub mod confirm;
pub mod flatten;
pub mod judging;
pub mod notice;
pub mod pass;
pub mod reasks;
pub mod reply;
pub mod request;
pub mod restore;
pub mod rounds;
pub mod sent;
pub mod splice;
pub mod summary;
pub mod texts;
