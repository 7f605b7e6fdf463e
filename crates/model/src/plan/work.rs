//! Work counters for tests: a step for each element that is processed. A test of growth reads the count, and no
//! clock. In the program they do nothing.

#[cfg(any(test, feature = "testing"))]
use std::cell::Cell;

#[cfg(any(test, feature = "testing"))]
thread_local! {
    static STEPS: Cell<usize> = const { Cell::new(0) };
}

/// One element was processed.
#[inline]
pub fn step() {
    #[cfg(any(test, feature = "testing"))]
    STEPS.with(|steps| steps.set(steps.get() + 1));
}

/// The steps that `work` takes in this thread.
#[cfg(any(test, feature = "testing"))]
pub fn steps_of(work: impl FnOnce()) -> usize {
    let before = STEPS.with(Cell::get);
    work();
    STEPS.with(Cell::get) - before
}

/// The steps of `work` on a small input and on one four times as large: no more than five times as many.
#[cfg(any(test, feature = "testing"))]
pub fn assert_linear(small: usize, mut work: impl FnMut(usize)) {
    let [few, many] = [small, 4 * small].map(|size| steps_of(|| work(size)));
    assert!(few > 0 && many <= 5 * few, "{few} steps for {small}, {many} for four times as much");
}
