//! The texts of quotas: what the model reads of one that is used up or nearly so, and a client whose request is refused.

use crate::texts::Text;

pub(super) const BLOCKED: Text = Text {
    key: "blocked",
    default: "The call was not run: the user's quota \"{name}\" of {limit} {limit:call/calls} within {window} is used up. {tool} can \
              be called again in {minutes} min, at {reset_at}. Go on without it, or tell the user what is missing.",
    placeholders: &["name", "tool", "used", "limit", "window", "minutes", "reset_at"],
};

pub(super) const CLOSED: Text = Text {
    key: "closed",
    default: "The call was not run: {tool} is not available to this user. Go on without it, or tell the user so.",
    placeholders: &["name", "tool"],
};

pub(super) const AWAY: Text = Text {
    key: "away",
    default: "The call was not run: the user's quota for {tool} cannot be checked at the moment. It can be tried again \
              in {seconds} s. Go on without it, or tell the user what is missing.",
    placeholders: &["tool", "seconds"],
};

pub(super) const NOTICE: Text = Text {
    key: "notice",
    default: "[toolrein] {remaining} of {limit} {limit:call/calls} of the user's quota \"{name}\" within {window} {limit:is/are} left. The next \
              one becomes free at {reset_at}.",
    placeholders: &["name", "remaining", "limit", "window", "reset_at"],
};

pub(super) const REFUSED: Text = Text {
    key: "refused",
    default: "The quota \"{name}\" of {limit} {limit:call/calls} within {window} is used up. The next call is possible at {reset_at}.",
    placeholders: &["name", "tool", "used", "limit", "window", "minutes", "reset_at"],
};
