//! A conversation continued by processes with the real `openai` packages, one after the other: each gets the history,
//! continues as `tests/clients/*/conversation` does, and prints the result.

use super::player::{Client, Player};
use super::program::Toolrein;
use serde_json::{Value, json};

/// A client and the form in which it asks.
pub type Way = (Client, &'static str);
/// Both forms of Python's package.
pub const PYTHON: [Way; 2] = [(Client::Python, "whole"), (Client::Python, "streamed")];
/// Both forms of Node's.
pub const NODE: [Way; 2] = [(Client::Node, "whole"), (Client::Node, "streamed")];

/// See the file's head.
#[derive(Clone)]
pub struct Agent {
    pub way: Way,
    /// The profile that it chooses by header; "": none.
    pub profile: &'static str,
    pub tools: Value,
    /// What each tool answers, the next first.
    pub results: Value,
    pub messages: Value,
    /// Names and arguments of the calls that were run.
    pub ran: Vec<(String, Value)>,
}

impl Agent {
    /// A new conversation, with tools that accept anything and give these answers in order.
    pub fn new(way: Way, results: Value) -> Self {
        let names = results.as_object().unwrap().keys();
        let tools = names.map(
            |name| json!({"type": "function", "function": {"name": name, "parameters": {"type": "object"}}}),
        );
        let tools = tools.collect();
        Self { way, profile: "", tools, results, messages: json!([]), ran: Vec::new() }
    }

    /// Starts a client that knows the conversation so far and says this, each in a turn of its own.
    pub fn start(&self, program: &Toolrein, says: &[&str]) -> Player {
        let mut player = Player::start(self.way.0, ("conversation", self.way.1), &program.base_url());
        let Self { profile, tools, results, messages, .. } = self;
        let plan = json!({"profile": profile, "tools": tools, "results": results, "messages": messages, "says": says});
        player.write_input(&plan.to_string());
        player
    }

    /// The same, to its good end.
    pub fn say(&mut self, program: &Toolrein, says: &[&str]) {
        let player = self.start(program, says);
        self.end(player);
    }

    /// Waits for the successful end of a client, and reads its result.
    pub fn end(&mut self, player: Player) {
        let done: Value = serde_json::from_str(&player.finish()).unwrap();
        self.messages = done["messages"].clone();
        for call in done["ran"].as_array().unwrap() {
            let name = call[0].as_str().unwrap();
            self.results[name].as_array_mut().unwrap().remove(0);
            self.ran.push((name.to_owned(), call[1].clone()));
        }
    }

    /// The names of the tools that were run.
    pub fn ran(&self) -> Vec<&str> {
        self.ran.iter().map(|(name, _)| name.as_str()).collect()
    }

    /// What the assistant said last.
    pub fn last(&self) -> &str {
        self.messages.as_array().unwrap().last().unwrap()["content"].as_str().unwrap()
    }

    /// The arguments of all calls in the history, as the client got them.
    pub fn arguments(&self) -> Vec<&str> {
        let messages = self.messages.as_array().unwrap().iter();
        let calls = messages.filter_map(|message| message["tool_calls"].as_array()).flatten();
        calls.map(|call| call["function"]["arguments"].as_str().unwrap()).collect()
    }
}
