//! The waits of held calls: for a person's decision, for another model's answer, or for a point in time. Waits;
//! decides nothing.

use super::handler::AppState;
use super::webhooks::Notification;
use crate::store::held::{End, HeldCalls, Pause, Shown, Ticket};
use crate::telemetry::spans::{Child, StepKind, Trace};
use engine::{ApprovalRequest, Exchange, Input};
use model::plan::approval::{ApprovalDecision, Decided};
use policies::approvals::Webhook;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::sync::oneshot;
use tokio::time::Instant;

/// How long toolrein keeps trying to send the notification that nobody answered in time.
const LATE_NOTICE: Duration = Duration::from_secs(60);

/// The held calls of one client request, each with its number, in the order in which they go out.
#[derive(Default)]
pub(super) struct Held {
    waits: Vec<(u32, Wait)>,
    /// When the wait for decisions ends for all calls: set by the first one.
    until: Option<Instant>,
}

enum Wait {
    Person(Ticket, Option<Box<Notice>>),
    Model(oneshot::Receiver<Option<Arc<str>>>),
    Time(Pause),
}

/// Who is notified of a call that waits for a person, and of what.
struct Notice {
    webhook: Arc<Webhook>,
    data: Value,
    /// The step of the notification in the request's trace, where one is kept.
    step: Option<Child>,
}

impl Held {
    /// Asks for a person's decision on a call, and notifies the webhook that is configured for it.
    pub(super) fn ask(
        &mut self,
        app: &Arc<AppState>,
        exchange: &mut Exchange,
        trace: Option<&Trace>,
        request: ApprovalRequest,
    ) {
        let ApprovalRequest { call, hold_ms, webhook } = request;
        let now = Instant::now();
        let until = *self.until.get_or_insert_with(|| now + Duration::from_millis(hold_ms));
        let since = SystemTime::now();
        let expires = since + (until - now);
        let record = exchange.record();
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
        let ticket = app.held.hold(record.caller.as_deref().unwrap_or_default(), shown, until);
        let step = trace.map(|trace| trace.child(StepKind::Webhook));
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
            Box::new(Notice { webhook, data, step })
        });
        if let Some(Notice { webhook, data, step }) = notice.as_deref() {
            let (kind, asks_about) = ("approval.requested", ticket.token().map(str::to_owned));
            let (data, step) = (data.clone(), step.clone());
            app.notify(webhook, Notification { kind, data, until, asks_about, step });
        }
        self.waits.push((call.id, Wait::Person(ticket, notice)));
    }

    /// Lets the call of this number wait for another model's `answer`.
    pub(super) fn await_answer(&mut self, id: u32, answer: oneshot::Receiver<Option<Arc<str>>>) {
        self.waits.push((id, Wait::Model(answer)));
    }

    /// Lets the call of this number wait for `ms` from `now` on.
    pub(super) fn pause(&mut self, calls: &HeldCalls, id: u32, now: Instant, ms: u64) {
        // A time that no clock reaches is later than any client stays.
        let until = now.checked_add(Duration::from_millis(ms)).unwrap_or(now + LONGEST);
        self.waits.push((id, Wait::Time(calls.pause(until))));
    }

    /// The call of this number waits no longer.
    pub(super) fn forget(&mut self, id: u32) {
        self.waits.retain(|(held, _)| *held != id);
    }

    /// Whether any call waits.
    pub(super) fn is_empty(&self) -> bool {
        self.waits.is_empty()
    }

    /// The next decision or answer for a call that waits; `None` if none does. Cancel-safe.
    pub(super) async fn decision(&mut self, app: &Arc<AppState>) -> Option<Input> {
        let (id, wait) = self.waits.first_mut()?;
        let id = *id;
        let input = match wait {
            // The answer is there at once where the question could not be asked.
            Wait::Model(answer) => Input::Answered(id, answer.await.unwrap_or_default()),
            Wait::Time(pause) => {
                let is_over = pause.is_over().await;
                let decision = if is_over { ApprovalDecision::Approved } else { ApprovalDecision::Stopped };
                Input::Decided(id, decision.into())
            }
            Wait::Person(ticket, notice) => {
                let end = ticket.decision().await;
                if let Some(notice) = notice.take().filter(|_| end == End::Expired) {
                    let Notice { webhook, data, step } = *notice;
                    let step = step.map(|step| step.anew());
                    let until = Instant::now() + LATE_NOTICE;
                    let (kind, asks_about) = ("approval.expired", None);
                    app.notify(&webhook, Notification { kind, data, until, asks_about, step });
                }
                Input::Decided(id, decided(end, ticket))
            }
        };
        self.waits.remove(0);
        Some(input)
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

/// A day.
const LONGEST: Duration = Duration::from_secs(24 * 3600);
