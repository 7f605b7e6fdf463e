//! The serialised request record: the parts of a record, each in one form, and projections of it. A projection is what one output
//! writes: the members that it lists, in its order, under its keys. Texts from outside are cleaned and bounded here. Copies no
//! record, and names no output.

use super::bounded;
use model::record::{Action, JudgedCall, LimitUse, NewResult, NewText, On, PolicyDecision, RequestRecord};
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Duration;

/// The most texts that policies wrote anew, and the longest form of one, in characters.
const MAX_NEW_TEXTS: usize = 20;
const MAX_NEW_TEXT_CHARS: usize = 400;

/// What an output writes of the record, or of one call of it. Serialised, it is an object.
pub(crate) struct Projection<'a, P: RecordPart> {
    part: P::Ref<'a>,
    columns: &'static [Column<P>],
    bounds: &'a TextBounds,
}

/// The record, or a call of it: what has projections.
pub(crate) trait RecordPart: 'static {
    type Ref<'a>: Copy;
}

/// A member that an output writes: its key, its value, and when it is written.
pub(crate) type Column<P> =
    (&'static str, for<'a> fn(<P as RecordPart>::Ref<'a>, &'a TextBounds) -> MemberValue<'a>, Inclusion);

/// When a member is written.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Inclusion {
    /// Always: as `null` where it is not known.
    Always,
    /// Where it is known.
    IfKnown,
    /// Where it is known and not empty, zero or false.
    IfAny,
}

/// How an output shows texts and lists.
#[derive(Clone, Copy)]
pub(crate) struct TextBounds {
    /// The longest text, in characters. `None`: texts and names are written unchanged, for an output that redacts them.
    pub text_chars: Option<usize>,
    /// The longest id of a call, in characters.
    pub id_chars: usize,
    /// The longest list.
    pub items: usize,
    /// Unknown members of approvals and limits are `null`; otherwise they are left out.
    pub has_null: bool,
    /// What may quote people or arguments is written: messages of objections, new arguments, who approved and why.
    pub has_quotes: bool,
}

/// The value of a member.
#[derive(Serialize)]
#[serde(untagged)]
pub(crate) enum MemberValue<'a> {
    Unknown,
    /// A word of toolrein's own.
    Own(&'static str),
    Text(Cow<'a, str>),
    Number(u64),
    Decimal(f64),
    Flag(bool),
    Texts(Vec<Cow<'a, str>>),
    Parts(Vec<ListedPart<'a>>),
}

/// A call of a record, and one decision on it.
#[derive(Clone, Copy)]
pub(crate) struct CallWithDecision<'a> {
    pub judged: &'a JudgedCall,
    /// Among the calls of the record, from 0.
    pub index: usize,
    /// `None`: no policy decided.
    decision: Option<&'a PolicyDecision>,
    is_first: bool,
    limits: &'a [LimitUse],
}

/// An item of a list.
#[derive(Serialize)]
#[serde(untagged)]
pub(crate) enum ListedPart<'a> {
    Call(Projection<'a, JudgedCall>),
    Action {
        policy: &'static str,
        action: Cow<'a, str>,
        count: u64,
    },
    Decision {
        policy: &'static str,
        reason: &'static str,
    },
    Objection {
        policy: &'static str,
        reason: &'static str,
        #[serde(skip_serializing_if = "Option::is_none")]
        message: Option<&'a str>,
        numbers: BTreeMap<&'static str, u64>,
    },
    /// A text of a call's arguments in both forms.
    NewText {
        policy: &'static str,
        tool: Cow<'a, str>,
        before: Cow<'a, str>,
        after: Cow<'a, str>,
    },
    Approval {
        tool: Cow<'a, str>,
        outcome: &'static str,
        #[serde(skip_serializing_if = "Option::is_none")]
        approver: Option<MemberValue<'a>>,
        #[serde(skip_serializing_if = "Option::is_none")]
        reason: Option<MemberValue<'a>>,
    },
    Result {
        tool: Cow<'a, str>,
        bytes: u64,
        tokens: u64,
        #[serde(skip_serializing_if = "Option::is_none")]
        ms: Option<u64>,
    },
    Limit {
        #[serde(skip_serializing_if = "Option::is_none")]
        policy: Option<MemberValue<'a>>,
        tool: Cow<'a, str>,
        used: u64,
        limit: u64,
    },
}

impl RecordPart for RequestRecord {
    type Ref<'a> = &'a Self;
}

impl RecordPart for JudgedCall {
    type Ref<'a> = CallWithDecision<'a>;
}

impl<'a, P: RecordPart> Projection<'a, P> {
    pub(crate) fn new(part: P::Ref<'a>, columns: &'static [Column<P>], bounds: &'a TextBounds) -> Self {
        Self { part, columns, bounds }
    }

    /// The members that are written, with their keys.
    pub(crate) fn members(&self) -> impl Iterator<Item = (&'static str, MemberValue<'a>)> {
        self.columns.iter().filter_map(|(key, value, inclusion)| {
            let value = value(self.part, self.bounds);
            value.is_written(*inclusion).then_some((*key, value))
        })
    }
}

impl<P: RecordPart> Serialize for Projection<'_, P> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut object = serializer.serialize_map(None)?;
        self.members().try_for_each(|(key, value)| object.serialize_entry(key, &value))?;
        object.end()
    }
}

/// The members of a projection in which values may be that are to be redacted.
pub(crate) struct Redactable<'p, 'a, P: RecordPart> {
    pub projection: &'p Projection<'a, P>,
    /// No smaller number is redacted.
    pub least_number: u64,
}

impl<P: RecordPart> Serialize for Redactable<'_, '_, P> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut object = serializer.serialize_map(None)?;
        let mut members =
            self.projection.members().filter(|(_, value)| value.may_be_redacted(self.least_number));
        members.try_for_each(|(key, value)| object.serialize_entry(key, &value))?;
        object.end()
    }
}

/// The calls of a record, each with the first decision on it.
pub(crate) fn calls_of(record: &RequestRecord) -> impl Iterator<Item = CallWithDecision<'_>> {
    let limits = &record.usage_of_limits;
    record.judged.iter().enumerate().map(|(index, judged)| CallWithDecision {
        judged,
        index,
        decision: judged.decisions.first(),
        is_first: true,
        limits,
    })
}

/// What policies did that is not in the record of an earlier request.
pub(super) fn new_actions(record: &RequestRecord) -> impl Iterator<Item = &Action> {
    // Actions of a resent request were recorded before; its reply is new.
    record.actions.iter().filter(|action| !record.repeated || action.on == On::Reply)
}

impl<'a> CallWithDecision<'a> {
    /// The call with each decision on it, or once where there is none.
    pub(super) fn all(self) -> impl Iterator<Item = Self> {
        let further = self.further().map(move |it| Self { decision: Some(it), is_first: false, ..self });
        std::iter::once(self).chain(further)
    }

    /// The decisions after the first one.
    pub(super) fn further(self) -> impl Iterator<Item = &'a PolicyDecision> {
        self.judged.decisions.iter().skip(1)
    }

    /// The policy that decided.
    pub(super) fn policy(self) -> Option<&'static str> {
        self.decision.map(|decision| decision.policy)
    }

    pub(super) fn reason(self) -> Option<&'static str> {
        self.decision.map(|decision| decision.reason)
    }

    /// The model reads the text of this decision.
    pub(super) fn is_spoken(self) -> bool {
        self.is_first && self.decision.is_some() && self.judged.is_spoken
    }

    /// The limit of the policy that decided: that of the tool, or else that of all tools together.
    pub(super) fn limit(self) -> Option<&'a LimitUse> {
        let policy = self.policy()?;
        let limit =
            |tool: &str| self.limits.iter().find(|limit| limit.policy == Some(policy) && limit.tool == tool);
        limit(&self.judged.tool).or_else(|| limit("*"))
    }
}

impl TextBounds {
    /// Texts, names and lists unchanged and whole.
    pub(crate) const WHOLE: Self = Self { text_chars: None, ..Self::new(0, usize::MAX) };

    /// Texts of at most `chars` characters, lists of at most `items`.
    pub(crate) const fn new(chars: usize, items: usize) -> Self {
        Self { text_chars: Some(chars), id_chars: chars, items, has_null: true, has_quotes: true }
    }

    pub(crate) fn text(self, raw: &str) -> Cow<'_, str> {
        self.text_chars.map_or(Cow::Borrowed(raw), |chars| bounded::text(raw, chars))
    }

    pub(crate) fn name(self, raw: &str) -> Cow<'_, str> {
        if self.text_chars.is_some() { bounded::name(raw) } else { Cow::Borrowed(raw) }
    }

    pub(crate) fn id(self, raw: &str) -> Cow<'_, str> {
        Self { text_chars: self.text_chars.map(|_| self.id_chars), ..self }.text(raw)
    }

    pub(crate) fn optional(self, raw: Option<&str>) -> MemberValue<'_> {
        raw.map_or(MemberValue::Unknown, |raw| MemberValue::Text(self.text(raw)))
    }

    /// `None`: left out.
    fn nullable(self, raw: Option<&str>) -> Option<MemberValue<'_>> {
        (raw.is_some() || self.has_null).then(|| self.optional(raw))
    }

    /// A text of a person's decision; `None`: left out.
    fn person(self, raw: Option<&str>) -> Option<MemberValue<'_>> {
        if self.has_quotes { self.nullable(raw) } else { None }
    }

    /// A text that may quote people or arguments.
    pub(crate) fn quoted(self, raw: Option<&str>) -> Option<&str> {
        raw.filter(|_| self.has_quotes)
    }

    pub(crate) fn texts<'a>(self, texts: impl Iterator<Item = Cow<'a, str>>) -> MemberValue<'a> {
        MemberValue::Texts(texts.take(self.items).collect())
    }

    fn parts<'a>(self, parts: impl Iterator<Item = ListedPart<'a>>) -> MemberValue<'a> {
        MemberValue::Parts(parts.take(self.items).collect())
    }

    pub(crate) fn actions<'a>(self, actions: impl Iterator<Item = &'a Action>) -> MemberValue<'a> {
        self.parts(actions.map(|&Action { policy, ref action, count, .. }| {
            let action = self.text(action);
            ListedPart::Action { policy, action, count }
        }))
    }

    pub(crate) fn calls<'a>(
        &'a self,
        calls: impl Iterator<Item = CallWithDecision<'a>>,
        columns: &'static [Column<JudgedCall>],
    ) -> MemberValue<'a> {
        self.parts(calls.map(|call| ListedPart::Call(Projection::<JudgedCall>::new(call, columns, self))))
    }

    /// The decisions on a call after the first one.
    pub(super) fn further_decisions(self, call: CallWithDecision<'_>) -> MemberValue<'_> {
        let further = call.further();
        self.parts(
            further.map(|&PolicyDecision { policy, reason, .. }| ListedPart::Decision { policy, reason }),
        )
    }

    /// The objections to a call, with their numbers.
    pub(crate) fn objections(self, call: CallWithDecision<'_>) -> MemberValue<'_> {
        let objections = call.judged.decisions.iter().filter(|decision| decision.is_objection);
        self.parts(objections.map(|&PolicyDecision { policy, reason, ref message, ref numbers, .. }| {
            let (message, numbers) = (self.quoted(message.as_deref()), numbers.iter().copied().collect());
            ListedPart::Objection { policy, reason, message, numbers }
        }))
    }

    /// The decisions on a call that are no objections.
    pub(crate) fn acts(self, call: CallWithDecision<'_>) -> MemberValue<'_> {
        let acts = call.judged.decisions.iter().filter(|decision| !decision.is_objection);
        self.parts(acts.map(|&PolicyDecision { policy, reason, .. }| {
            let action = reason.into();
            ListedPart::Action { policy, action, count: 1 }
        }))
    }

    pub(super) fn new_texts(self, record: &RequestRecord) -> MemberValue<'_> {
        let text = |text| bounded::text(text, MAX_NEW_TEXT_CHARS);
        let texts = record.new_texts.iter().take(MAX_NEW_TEXTS);
        self.parts(texts.map(|NewText { policy, tool, before, after }| {
            let (before, after) = (text(before), text(after));
            ListedPart::NewText { policy, tool: self.name(tool), before, after }
        }))
    }

    pub(crate) fn approvals(self, record: &RequestRecord) -> MemberValue<'_> {
        self.parts(record.approvals.iter().map(|approval| ListedPart::Approval {
            tool: self.name(&approval.tool),
            outcome: approval.outcome.as_str(),
            approver: self.person(approval.approver.as_deref()),
            reason: self.person(approval.reason.as_deref()),
        }))
    }

    pub(super) fn results(self, record: &RequestRecord) -> MemberValue<'_> {
        self.parts(record.results.iter().map(|&NewResult { ref tool, bytes, tokens, took, .. }| {
            ListedPart::Result { tool: self.name(tool), bytes, tokens, ms: took.map(whole_millis) }
        }))
    }

    pub(crate) fn limits(self, record: &RequestRecord) -> MemberValue<'_> {
        self.parts(record.usage_of_limits.iter().map(
            |&LimitUse { policy, ref tool, used, limit, .. }| ListedPart::Limit {
                policy: self.nullable(policy),
                tool: self.name(tool),
                used,
                limit,
            },
        ))
    }

    /// How many items of lists of these `lengths` are not shown.
    pub(super) fn left_out<'a>(self, lengths: &[usize]) -> MemberValue<'a> {
        MemberValue::Number(lengths.iter().map(|length| length.saturating_sub(self.items) as u64).sum())
    }
}

impl MemberValue<'_> {
    /// Whether it is empty, zero, false or unknown.
    pub(super) fn is_empty(&self) -> bool {
        !self.is_written(Inclusion::IfAny)
    }

    pub(super) fn is_written(&self, inclusion: Inclusion) -> bool {
        match (inclusion, self) {
            (Inclusion::Always, _) => true,
            (_, Self::Unknown) => false,
            (Inclusion::IfKnown, _) => true,
            (Inclusion::IfAny, Self::Own(word)) => !word.is_empty(),
            (Inclusion::IfAny, Self::Text(text)) => !text.is_empty(),
            (Inclusion::IfAny, Self::Number(number)) => *number > 0,
            (Inclusion::IfAny, Self::Decimal(number)) => *number > 0.0,
            (Inclusion::IfAny, Self::Flag(flag)) => *flag,
            (Inclusion::IfAny, Self::Texts(texts)) => !texts.is_empty(),
            (Inclusion::IfAny, Self::Parts(parts)) => !parts.is_empty(),
        }
    }

    /// Whether a value that is to be redacted may be in it. toolrein's own words are none.
    fn may_be_redacted(&self, least_number: u64) -> bool {
        match self {
            Self::Unknown | Self::Own(_) | Self::Flag(_) => false,
            Self::Number(number) => *number >= least_number,
            Self::Text(_) | Self::Decimal(_) => true,
            Self::Texts(texts) => !texts.is_empty(),
            Self::Parts(parts) => !parts.is_empty(),
        }
    }
}

/// A text of toolrein's own.
pub(crate) fn word<'a>(word: impl Into<Option<&'static str>>) -> MemberValue<'a> {
    word.into().map_or(MemberValue::Unknown, MemberValue::Own)
}

/// A value that may not be known.
pub(crate) fn known<'a, T>(value: Option<T>, member: fn(T) -> MemberValue<'a>) -> MemberValue<'a> {
    value.map_or(MemberValue::Unknown, member)
}

pub(crate) fn whole_millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
