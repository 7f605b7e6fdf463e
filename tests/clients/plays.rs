//! Plays of the clients of the Messages API: agents' runs, several in one process of a client, whose program is in
//! `tests/clients/`; and what each came to.

use super::support::player::{Client, Player};
use serde::Deserialize;
use serde_json::{Value, json};

/// A client: the program that plays it, and the forms in which it can ask.
#[derive(Clone, Copy, Debug)]
pub struct Package {
    pub client: Client,
    /// The program's name and its argument.
    pub program: (&'static str, &'static str),
    pub forms: &'static [&'static str],
}

impl Package {
    /// The forms that send the whole history with each request: without threads.
    pub fn stateless_forms(self) -> impl Iterator<Item = &'static str> {
        let has_threads = self.forms.contains(&WITHOUT_THREADS);
        self.forms
            .iter()
            .copied()
            .filter(move |form| !has_threads || *form == WITHOUT_THREADS || !form.ends_with("runner"))
    }

    /// Whether it is Claude Code, whose requests have random ids.
    pub fn is_claude_code(self) -> bool {
        self.program.0 == "claude_code"
    }

    /// Runs the plays in one process, one after the other.
    pub fn play(self, plays: &[Play]) -> Vec<Outcome> {
        let mut player = Player::start(self.client, self.program, "");
        let plan: Vec<Value> = plays.iter().map(Play::json).collect();
        player.write_input(&json!(plan).to_string());
        let lines = player.finish_by_lines();
        assert_eq!(lines.len(), plays.len(), "a line for each play:\n{}", lines.join("\n"));
        lines.iter().map(|line| serde_json::from_str(line).expect(line)).collect()
    }
}

/// The tool runner of a package with threads that is told to send the whole history.
pub const WITHOUT_THREADS: &str = "runner without threads";

/// One run of an agent.
#[derive(Clone, Debug)]
pub struct Play {
    /// The origin that it asks.
    pub url: String,
    pub form: &'static str,
    pub model: &'static str,
    /// What the user says.
    pub says: String,
    /// Plays of one session are turns of one conversation, where the client keeps conversations itself.
    pub session: usize,
}

impl Play {
    fn json(&self) -> Value {
        let Self { url, form, model, says, session } = self;
        json!({"url": url, "form": form, "model": model, "says": says, "session": session})
    }
}

/// What a play came to.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
pub struct Outcome {
    /// The final text.
    pub text: Option<String>,
    /// Name and argument of each call that was run.
    pub ran: Vec<(String, String)>,
    pub error: Option<String>,
}

impl Outcome {
    /// The outcome of a play that ends with this text after these calls.
    pub fn text(text: &str, ran: &[(&str, &str)]) -> Self {
        let ran = ran.iter().map(|(name, argument)| ((*name).to_owned(), (*argument).to_owned())).collect();
        Self { text: Some(text.to_owned()), ran, error: None }
    }

    /// How often `get_weather` ran for this city.
    pub fn runs(&self, city: &str) -> usize {
        self.ran.iter().filter(|(_, argument)| argument.contains(city)).count()
    }
}
