//! A bound for waits that mostly end early: a timer that is armed once and used for one wait after the other. It may
//! ring too early for the one that is under way, and is armed again then. To arm one for each chunk of a stream would
//! cost more than to judge it, and to arm one for each request a thousand instructions.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
use tokio::time::{Instant, Sleep, sleep_until};

/// See the file's head.
#[derive(Default)]
pub(super) struct Alarm {
    sleep: Option<Pin<Box<Sleep>>>,
    /// Who is woken when it rings.
    woken: Option<Waker>,
}

impl Alarm {
    /// What `awaited` brings; `None` where that takes longer than `until`, which may move on meanwhile.
    pub(super) async fn before<T>(
        &mut self,
        until: impl Fn() -> Instant,
        awaited: impl Future<Output = T>,
    ) -> Option<T> {
        let mut awaited = pin!(awaited);
        poll_fn(|context| {
            // What is here already is taken whatever the time.
            if let Poll::Ready(brought) = awaited.as_mut().poll(context) {
                return Poll::Ready(Some(brought));
            }
            self.poll_end(until(), context).map(|()| None)
        })
        .await
    }

    /// Ready at `end`, which may be another one each time.
    pub(super) fn poll_end(&mut self, end: Instant, context: &mut Context<'_>) -> Poll<()> {
        let sleep = self.sleep.get_or_insert_with(|| Box::pin(sleep_until(end)));
        if sleep.deadline() > end {
            sleep.as_mut().reset(end);
            self.woken = None;
        }
        let knows = self.woken.as_ref().is_some_and(|waker| waker.will_wake(context.waker()));
        if knows && !sleep.is_elapsed() {
            return Poll::Pending;
        }
        while sleep.as_mut().poll(context).is_ready() {
            if Instant::now() >= end {
                return Poll::Ready(());
            }
            sleep.as_mut().reset(end);
        }
        self.woken = Some(context.waker().clone());
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::future::{pending, ready};
    use std::time::Duration;

    const SHORT: Duration = Duration::from_millis(5);
    const LONG: Duration = Duration::from_millis(40);
    /// Longer than any test waits.
    const PATIENCE: Duration = Duration::from_secs(30);

    #[tokio::test]
    async fn one_alarm_bounds_one_wait_after_the_other_by_its_own_end() {
        let mut alarm = Alarm::default();
        // The later ones find it armed for an earlier end, for a later one, and rung.
        for wait in [SHORT, LONG, SHORT, LONG, LONG] {
            let end = Instant::now() + wait;
            assert_eq!(alarm.before(|| end, ready(7)).await, Some(7));
            assert_eq!(alarm.before(|| end, pending::<()>()).await, None);
            assert!(Instant::now() >= end, "{wait:?}");
            let later = Instant::now() + PATIENCE;
            assert_eq!(alarm.before(|| later, tokio::time::sleep(SHORT)).await, Some(()));
            assert!(Instant::now() < later, "{wait:?}");
        }
    }

    #[tokio::test]
    async fn an_end_that_moves_on_is_waited_for() {
        let began = Instant::now();
        let end = Cell::new(began + SHORT);
        let mut alarm = Alarm::default();
        let upload = async {
            tokio::time::sleep(SHORT / 2).await;
            end.set(began + LONG);
            pending::<()>().await;
        };
        assert_eq!(alarm.before(|| end.get(), upload).await, None);
        assert!(began.elapsed() >= LONG);
    }
}
