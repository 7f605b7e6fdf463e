//! Tests of the judge: calls that wait, and what their decisions do.

pub(crate) mod held;

mod asked;
mod timed;
