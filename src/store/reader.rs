//! The state store for an exchange that is only tried out: it answers, and nothing is changed.

use engine::offline::OfflineStore;
use model::account::Tally;
use model::fact::{Answers, Batch};
use state::StateStore;
use tokio::runtime::Handle;

/// Reads what the state store knows, and changes nothing there. For a thread that may wait.
pub struct StoreReader<'a>(pub &'a dyn StateStore, pub Handle);

impl OfflineStore for StoreReader<'_> {
    fn look_up(&mut self, mut batch: Batch) -> Answers {
        (batch.request, batch.conversation, batch.ahead) = (None, None, Tally::default());
        self.1.block_on(self.0.look_up(batch))
    }
}
