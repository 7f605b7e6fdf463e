//! The form in which hidden exchanges are written, and what the refusal of one means.

use super::Core;
use bytes::Bytes;
use dialects::error::UpstreamError;
use dialects::error::friendly::status_of;
use dialects::refusal::{may_be_about_the_form, overflows, refuses_signed_thinking};

/// The form in which the hidden exchanges of one client request are written.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ExchangeForm {
    /// Calls and results as text.
    pub(super) is_plain: bool,
    /// With short arguments and results.
    pub(super) is_short: bool,
}

impl ExchangeForm {
    /// The exchange in this form.
    pub(super) fn write(self, core: &Core, exchange: &Bytes) -> Bytes {
        match (self.is_short, self.is_plain) {
            (false, false) => exchange.clone(),
            (true, false) => core.dialect.short_exchange(&core.without_hidden_values(exchange)),
            (false, true) => core.dialect.plain_exchange(&core.without_hidden_values(exchange)),
            (true, true) => {
                let short = core.dialect.short_exchange(&core.without_hidden_values(exchange));
                core.dialect.plain_exchange(&short)
            }
        }
    }
}

pub(super) fn is_too_long(status: u16, error: &UpstreamError) -> bool {
    status == 413 || overflows(status, error)
}

/// Whether the upstream refuses what it was asked, and not the caller's key, credit or rate, and is not overloaded.
pub(super) fn is_refusal(status: u16, error: &UpstreamError) -> bool {
    let is_about_the_caller = |status| matches!(status, 401..=403 | 407 | 408 | 425 | 429);
    let meant = status_of(error);
    match status {
        400..=499 => {
            let is_final = is_about_the_caller(status) || is_about_the_caller(meant);
            !is_final && !matches!(meant, 503 | 529) && !refuses_signed_thinking(error)
        }
        _ => may_be_about_the_form(status, error),
    }
}
