//! The interface through which the admin server has recorded conversations explained and replayed by modules above
//! it. The program's assembly supplies the implementation.

use crate::config::Config;
use crate::telemetry::live::conversations::Conversation;
use bytes::Bytes;
use serde_json::Value;

/// See the module's documentation. Every method takes time in proportion to the conversation's size.
pub trait Review: Send + Sync {
    /// The `conversation`, whose newest request is `body`, as a self-contained HTML page: what happened, and how the
    /// policies of `config` see it.
    ///
    /// # Errors
    /// Why it cannot be shown.
    fn page(&self, config: &Config, body: &Bytes, conversation: &Conversation) -> Result<String, String>;

    /// Its items: messages, calls, results, notices and blocked calls.
    ///
    /// # Errors
    /// Why it cannot be shown.
    fn items(&self, config: &Config, body: &Bytes, id: &str) -> Result<Value, String>;

    /// The report of its replay under `config`.
    ///
    /// # Errors
    /// Why it cannot be replayed.
    fn replay(&self, config: Config, body: &Bytes, id: &str) -> Result<Value, String>;
}
