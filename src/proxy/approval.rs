//! The wait for a person's decision on a call, and the notifications about it. Waits; decides nothing.

use super::driver::Driver;
use super::handler::AppState;
use super::webhooks::Notification;
use crate::store::held::{End, Shown, Ticket};
use crate::telemetry::spans::{Child, StepKind};
use engine::ApprovalRequest;
use model::plan::approval::{ApprovalDecision, Decided};
use policies::approvals::Webhook;
use serde_json::{Value, json};
use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::time::Instant;

/// How long toolrein keeps trying to send the notification that nobody answered in time.
const LATE_NOTICE: Duration = Duration::from_secs(60);

/// Who is notified of a call that waits for a person, and of what.
struct Notice {
    webhook: Arc<Webhook>,
    data: Value,
    /// The step of the notification in the request's trace, where one is kept.
    step: Option<Child>,
}

impl Driver {
    /// Asks for a person's decision on a call until `until`, and notifies the webhook that is configured for it. Dropping
    /// the future means that the client has left.
    pub(super) fn ask_person(
        &mut self,
        request: ApprovalRequest,
        until: Instant,
    ) -> impl Future<Output = Decided> + Send + use<> {
        let ApprovalRequest { call, webhook, .. } = request;
        let app = Arc::clone(&self.app);
        let since = SystemTime::now();
        let expires = since + until.saturating_duration_since(Instant::now());
        let step = self.record.trace.as_deref().map(|trace| trace.child(StepKind::Webhook));
        let record = self.exchange.record();
        let conversation = record.conversation.clone().unwrap_or_default();
        let (tool, readable, why) = (call.tool.clone(), call.shown.clone(), call.why.clone());
        let shown = Shown {
            tool: call.tool,
            arguments: call.arguments,
            readable: call.shown,
            why: call.why,
            conversation,
            since,
            expires,
        };
        let mut ticket = app.held.hold(record.caller.as_deref().unwrap_or_default(), shown, until);
        app.telemetry.live.approval_asked(record, &tool);
        let notice = webhook.zip(ticket.token()).map(|(webhook, token)| {
            let data = json!({
                "token": token,
                "link": app.approval_link(&webhook, token),
                "tool": tool,
                "arguments": readable,
                "why": why,
                "conversation": record.conversation,
                "caller": record.caller,
                "request_id": record.request_id,
                "expires_at": humantime::format_rfc3339_millis(expires).to_string(),
            });
            Notice { webhook, data, step }
        });
        if let Some(Notice { webhook, data, step }) = &notice {
            let (kind, asks_about) = ("approval.requested", ticket.token().map(str::to_owned));
            let (data, step) = (data.clone(), step.clone());
            app.notify(webhook, Notification { kind, data, until, asks_about, step });
        }
        async move {
            let end = ticket.decision().await;
            if let Some(notice) = notice.filter(|_| end == End::Expired) {
                app.notify_expiry(notice);
            }
            decided(end, &ticket)
        }
    }
}

impl AppState {
    fn notify_expiry(self: &Arc<Self>, notice: Notice) {
        let Notice { webhook, data, step } = notice;
        let step = step.map(|step| step.anew());
        let until = Instant::now() + LATE_NOTICE;
        let (kind, asks_about) = ("approval.expired", None);
        self.notify(&webhook, Notification { kind, data, until, asks_about, step });
    }
}

/// The decision in which a person's ticket ended.
fn decided(end: End, ticket: &Ticket) -> Decided {
    let decision = match end {
        End::Approved => ApprovalDecision::Approved,
        End::Declined => ApprovalDecision::Declined,
        End::Expired => ApprovalDecision::Expired,
        End::Stopped => ApprovalDecision::Stopped,
        End::Refused | End::Left => ApprovalDecision::Unasked,
    };
    let (approver, reason) =
        ticket.spoken().cloned().map_or((None, None), |spoken| (spoken.approver, spoken.reason));
    Decided { decision, approver, reason }
}
