//! The wait of a body for a time.

use std::pin::Pin;
use std::task::{Context, Poll, Waker, ready};
use tokio::task::coop::has_budget_remaining;
use tokio::time::{Instant, Sleep, sleep_until};

/// A wait for a time that mostly moves on before it comes, as the end of a silence does. Its timer is not moved with it, but
/// set anew when it fires too early.
#[derive(Debug, Default)]
pub(super) struct DeadlineTimer {
    /// Created at the first wait; for most requests that never happens.
    sleep: Option<Pin<Box<Sleep>>>,
    /// The task that it wakes when it fires.
    wakes: Option<Waker>,
}

impl DeadlineTimer {
    /// Ready when it is `until`.
    pub(super) fn poll(&mut self, until: Instant, context: &mut Context<'_>) -> Poll<()> {
        let waits = self.waits_for(context);
        let sleep = self.sleep.get_or_insert_with(|| Box::pin(sleep_until(until)));
        if until < sleep.deadline() {
            sleep.as_mut().reset(until);
        } else if waits {
            return Poll::Pending;
        }
        loop {
            // Without budget it does not take the task, which is then polled again at once.
            self.wakes = has_budget_remaining().then(|| context.waker().clone());
            ready!(sleep.as_mut().poll(context));
            if sleep.deadline() >= until {
                return Poll::Ready(());
            }
            sleep.as_mut().reset(until);
        }
    }

    /// Whether it wakes the task that is polled, at the time that was asked for last or before.
    pub(super) fn waits_for(&self, context: &Context<'_>) -> bool {
        let is_running = self.sleep.as_ref().is_some_and(|sleep| !sleep.is_elapsed());
        is_running && wakes(self.wakes.as_ref(), context)
    }
}

/// Whether the task that is polled is woken by one that was polled for `task`: then that need not be polled again before it has
/// something to say.
pub(super) fn wakes(task: Option<&Waker>, context: &Context<'_>) -> bool {
    task.is_some_and(|task| task.will_wake(context.waker()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt as _;
    use std::future::poll_fn;
    use std::time::Duration;

    /// Waits until so many milliseconds have passed since `start`.
    async fn wait(timer: &mut DeadlineTimer, start: Instant, after: u64) {
        let until = start + Duration::from_millis(after);
        poll_fn(|context| timer.poll(until, context)).await;
    }

    #[tokio::test]
    async fn a_timer_waits_for_the_time_that_it_was_asked_for_last_be_it_later_or_earlier() {
        let (start, mut timer) = (Instant::now(), DeadlineTimer::default());
        assert!(wait(&mut timer, start, 20).now_or_never().is_none());
        assert!(wait(&mut timer, start, 60_000).now_or_never().is_none());
        // The time that it waits for last is later than the first one, and earlier than the second.
        for after in [40, 60, 50] {
            wait(&mut timer, start, after).await;
            assert!(start.elapsed() >= Duration::from_millis(after), "{after}");
        }
        assert!(start.elapsed() < Duration::from_secs(30), "it does not wait for a time of before");
        assert!(wait(&mut timer, start, 60_000).now_or_never().is_none());
    }

    #[tokio::test]
    async fn a_timer_wakes_a_task_that_has_polled_it_again_before_it_fired() {
        let (start, mut timer, mut polls) = (Instant::now(), DeadlineTimer::default(), 0);
        let until = start + Duration::from_millis(20);
        poll_fn(|context| {
            polls += 1;
            if polls < 4 {
                context.waker().wake_by_ref();
            }
            timer.poll(until, context)
        })
        .await;
        assert!(polls > 4 && Instant::now() >= until, "{polls}");
    }
}
