//! What the shared state store reports of itself: whether it answers, and its errors. The program counts and shows it.

use model::store_health::{Circuit, StoreOp};

/// Receives how the shared state store does.
pub trait Observer: Send + Sync {
    /// So many errors of an operation.
    fn count_store_errors(&self, op: StoreOp, count: u64);

    /// The circuit breaker before it has this state.
    fn store_breaker(&self, circuit: Circuit);

    /// Whether it answers and accepts writes.
    fn store_answers(&self, answers: bool);
}

/// Counts nothing.
pub struct Unobserved;

impl Observer for Unobserved {
    fn count_store_errors(&self, _op: StoreOp, _count: u64) {}

    fn store_breaker(&self, _circuit: Circuit) {}

    fn store_answers(&self, _answers: bool) {}
}
