//! How people are asked about calls that need an approval, whichever policy wants it, as plain data: the form, the limits,
//! whom to notify, and the texts. Asks nobody.

use super::ConfigError;
use super::pattern::Pattern;
use super::texts::{OwnTexts, Text, Texts};
use model::plan::Reason;
use model::plan::approval::{ApprovalDecision, Unaskable};
use std::fmt::Display;
use std::sync::Arc;

/// How a person is asked about calls that need an approval.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Confirming {
    pub form: ApprovalForm,
    /// Words that a person may answer with in place of the token, in lower case.
    pub words: Vec<String>,
    /// How long a question stays open, in ms.
    pub expires_ms: u64,
    /// The most characters of arguments that are shown. If there are more, nobody is asked: what is hidden cannot be
    /// approved.
    pub max_chars: usize,
    /// The tools whose approvals hold for the rest of the conversation, by name or pattern.
    pub remembered: Vec<Pattern>,
    /// Who is notified of calls that wait.
    pub webhook: Option<Arc<Webhook>>,
    pub texts: Texts,
}

/// The way in which a person approves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ApprovalForm {
    /// In the conversation, by the user's next message.
    Chat,
    /// On the admin port, while the reply waits: at most this long, in ms.
    Held { hold_ms: u64 },
}

/// Where notifications about waiting calls are sent.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Webhook {
    pub url: String,
    /// The environment variable with the secret that signs them.
    pub secret_env: String,
    /// How long one try may take, in ms.
    pub timeout_ms: u64,
    /// How often a failed one is sent again.
    pub retries: u32,
    /// The page for the person who decides, with `{token}` where the call's token goes; `None`: the admin port's.
    pub link: Option<String>,
}

const QUESTION: Text = Text {
    key: "question",
    default: "I need your approval before I make this tool call:\n{calls}\nTo approve, reply with `{token}`{words} and \
              nothing else, within {expires}. Any other reply declines.",
    placeholders: &["calls", "token", "words", "expires"],
};
const QUESTIONS: Text = Text {
    key: "questions",
    default: "I need your approval before I make these tool calls:\n{calls}\nTo approve, reply with `{token}`{words} and \
              nothing else, within {expires}. Any other reply declines.",
    placeholders: &["calls", "token", "words", "expires"],
};
const LAPSED: Text = Text {
    key: "lapsed",
    default: "This approval came too late: the question was open for {expires}. No call was made by it. Ask me again if \
              it is still wanted.",
    placeholders: &["expires"],
};
const ASKED: Text = Text {
    key: "asked",
    default: "The call was not run. The user is being asked to approve it; if they do, the same call follows below and \
              is run. Otherwise do not make it again unless they ask for it.",
    placeholders: &[],
};
const ALONE: Text = Text {
    key: "alone",
    default: "The call was not run: {tool} needs the user's approval, and the user is asked only about replies that \
              contain nothing but such calls. Make it again alone.",
    placeholders: &["tool"],
};
const TOO_LONG: Text = Text {
    key: "too_long",
    default: "The call was not run: it needs the user's approval, and its arguments are longer than the {most} \
              {most:character/characters} that a user is shown. Make it shorter, or split it into several calls.",
    placeholders: &["most"],
};
const UNREADABLE: Text = Text {
    key: "unreadable",
    default: "The call was not run: it needs the user's approval, and its arguments are not JSON that could be shown. \
              Call it again with valid arguments.",
    placeholders: &[],
};
const CHANGED: Text = Text {
    key: "changed",
    default: "The call was not run: its arguments would no longer be those that the user approved. Make the call again \
              if it is still wanted.",
    placeholders: &[],
};
const DECLINED: Text = Text {
    key: "declined",
    default: "The call was not run: the user declined it. Do not make it again unless the user asks for it.",
    placeholders: &[],
};
const DECLINED_BECAUSE: Text = Text {
    key: "declined_because",
    default: "The call was not run: the user declined it, in these words: \"{reason}\" Do not make it again unless the \
              user asks for it.",
    placeholders: &["reason"],
};
const EXPIRED: Text = Text {
    key: "expired",
    default: "The call was not run: it needs the user's approval, and nobody answered in time. Do not make it again now; \
              tell the user what is left to do.",
    placeholders: &[],
};
const UNASKED: Text = Text {
    key: "unasked",
    default: "The call was not run: it needs the user's approval, and nobody can be asked now. Tell the user what is \
              left to do.",
    placeholders: &[],
};

/// Every text about approvals.
pub const TEXTS: &[Text] = &[
    QUESTION,
    QUESTIONS,
    LAPSED,
    ASKED,
    ALONE,
    TOO_LONG,
    UNREADABLE,
    CHANGED,
    DECLINED,
    DECLINED_BECAUSE,
    EXPIRED,
    UNASKED,
];

/// The texts as the operator wants them. A question must show the calls and how to approve them.
pub fn checked(own: OwnTexts, problems: &mut Vec<ConfigError>) -> Texts {
    let texts = own.check(TEXTS, problems);
    for text in [QUESTION, QUESTIONS] {
        let own = texts.own(&text).unwrap_or("{calls}{token}");
        for needed in ["{calls}", "{token}"] {
            if !own.contains(needed) {
                let problem = format!("expected {needed} in it: people approve what they are shown");
                problems.push(ConfigError::new(format!("texts.{}", text.key), problem));
            }
        }
    }
    texts
}

impl Confirming {
    /// How long a reply waits, in ms, where it does.
    pub fn hold_ms(&self) -> Option<u64> {
        match self.form {
            ApprovalForm::Chat => None,
            ApprovalForm::Held { hold_ms } => Some(hold_ms),
        }
    }

    /// The question to a person about `count` calls, shown as `calls`, each with a line before it. The token approves
    /// them, and each of `words`.
    pub fn question(&self, (calls, count): (&str, usize), token: &str, words: &[String]) -> String {
        let words: Vec<String> = words.iter().map(|word| format!(" or `{word}`")).collect();
        let values: [(&str, &dyn Display); 4] =
            [("calls", &calls), ("token", &token), ("words", &words.concat()), ("expires", &self.open_for())];
        self.texts.fill(if count == 1 { &QUESTION } else { &QUESTIONS }, &values)
    }

    /// What a person reads whose approval came too late.
    pub fn lapsed(&self) -> String {
        self.texts.fill(&LAPSED, &[("expires", &self.open_for())])
    }

    /// What the model reads as the result of a call that a person is being asked about.
    pub fn asked(&self) -> String {
        self.texts.fill(&ASKED, &[])
    }

    /// What the model reads of a call that nobody can be asked about as it is; `None`: why an approval is needed.
    pub fn unaskable(&self, why: Unaskable) -> Option<String> {
        match why {
            Unaskable::Nobody => None,
            Unaskable::TooLong { most } => Some(self.texts.fill(&TOO_LONG, &[("most", &most)])),
            Unaskable::Unreadable => Some(self.texts.fill(&UNREADABLE, &[])),
        }
    }

    /// Why a call of `tool` that needs an approval was not run beside others that need none.
    pub fn alone(&self, tool: &str, reason: &Reason) -> Reason {
        Reason { message: self.texts.fill(&ALONE, &[("tool", &tool)]), retryable: true, ..reason.clone() }
    }

    /// Why an approved call was not run after all.
    pub fn changed(&self) -> String {
        self.texts.fill(&CHANGED, &[])
    }

    /// Why a call of `tool` was not run where nobody can be asked about this reply.
    pub fn nobody(&self, tool: &str) -> (String, bool) {
        match self.form {
            ApprovalForm::Chat => (self.texts.fill(&ALONE, &[("tool", &tool)]), true),
            ApprovalForm::Held { .. } => (self.texts.fill(&UNASKED, &[]), false),
        }
    }

    /// What the model reads of a call that was not approved, with the person's own words, if there are any.
    pub fn refusal(&self, decision: ApprovalDecision, words: Option<&str>, reason: &Reason) -> Reason {
        let message = match (decision, words) {
            (ApprovalDecision::Approved | ApprovalDecision::Declined, Some(words)) => {
                self.texts.fill(&DECLINED_BECAUSE, &[("reason", &words)])
            }
            (ApprovalDecision::Approved | ApprovalDecision::Declined, None) => {
                self.texts.fill(&DECLINED, &[])
            }
            (ApprovalDecision::Expired, _) => self.texts.fill(&EXPIRED, &[]),
            (ApprovalDecision::Stopped | ApprovalDecision::Unasked, _) => self.texts.fill(&UNASKED, &[]),
        };
        Reason { message, retryable: false, ..reason.clone() }
    }

    fn open_for(&self) -> humantime::FormattedDuration {
        humantime::format_duration(std::time::Duration::from_millis(self.expires_ms))
    }
}

impl Default for Confirming {
    fn default() -> Self {
        Self {
            form: ApprovalForm::Chat,
            words: Vec::new(),
            expires_ms: 600_000,
            max_chars: 4_000,
            remembered: Vec::new(),
            webhook: None,
            texts: Texts::default(),
        }
    }
}
