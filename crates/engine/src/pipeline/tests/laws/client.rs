//! The client of the lines protocol: an independent reader of the bytes that the pipeline gives out. It shares no code with
//! the codec.

use super::Rules;
use serde_json::Value;
use std::collections::BTreeMap;

/// Everything that a client finds in a reply.
#[derive(Debug, Default, PartialEq)]
pub struct Client {
    pub choices: BTreeMap<u64, ReadChoice>,
    pub usages: Vec<Value>,
    pub errors: usize,
    /// How many lines ended the reply, and how many followed the first of these.
    pub ends: usize,
    pub after_end: usize,
    /// Lines that are neither JSON nor comments.
    pub unreadable: usize,
}

/// One choice.
#[derive(Debug, Default, PartialEq)]
pub struct ReadChoice {
    pub text: String,
    pub calls: Vec<ReadCall>,
    /// Its texts, and its calls as `call NUMBER`, in the order in which they began.
    pub items: Vec<String>,
    pub finishes: Vec<String>,
}

/// One call.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ReadCall {
    pub number: u64,
    pub names: Vec<String>,
    pub arguments: String,
    /// What a client has of it that acts at a line that ends it: its joined name and its arguments.
    pub at_ends: Vec<(String, String)>,
}

impl ReadCall {
    /// Every name under which some client may run it.
    fn readings(&self) -> impl Iterator<Item = String> {
        let at_ends = self.at_ends.iter().map(|(name, _)| name.clone());
        self.names.iter().cloned().chain([self.names.concat()]).chain(at_ends)
    }

    /// Why it must not be there, if that is so; `is_over`: clients run what has come of it, even if it has no end.
    fn fault(&self, rules: Rules, is_over: bool) -> Option<String> {
        let name = self.readings().find(|name| Rules::denies_name(name) || name == "known");
        let joined = [&self.arguments].into_iter().filter(|_| is_over);
        let arguments = joined.chain(self.at_ends.iter().map(|(_, text)| text));
        let is_denied =
            |text: &&String| rules.denies(text) || Rules::is_to_be_fixed(&self.names.concat(), text);
        // No client runs a call without a name.
        let mut arguments = arguments.filter(|_| !self.names.concat().is_empty());
        name.or_else(|| arguments.find(is_denied).cloned())
    }
}

impl Client {
    /// Reads a stream.
    pub fn of_stream(stream: &str) -> Self {
        let mut client = Self::default();
        for line in stream.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#')) {
            match serde_json::from_str(line) {
                Ok(line) => client.take(&line),
                Err(_) => client.unreadable += 1,
            }
        }
        client
    }

    /// Reads a whole reply.
    pub fn of_body(body: &str) -> Self {
        let mut client = Self::default();
        let lines: Vec<Value> = serde_json::from_str(body).unwrap();
        lines.iter().for_each(|line| client.take(line));
        client
    }

    /// The calls that must not be there, each with the reason; `is_over`: nothing follows.
    pub fn faults(&self, rules: Rules, is_over: bool) -> Vec<String> {
        let calls = self.choices.values().flat_map(|choice| &choice.calls);
        let faults = calls.filter_map(|call| Some((call.number, call.fault(rules, is_over)?)));
        faults.map(|(number, fault)| format!("call {number}: {fault}")).collect()
    }

    fn take(&mut self, line: &Value) {
        self.after_end += usize::from(self.ends > 0);
        let is_of_call = !line["call"].is_null();
        self.ends += usize::from(line["end"] == true && !is_of_call);
        self.errors += usize::from(!line["error"].is_null());
        if !line["usage"].is_null() {
            self.usages.push(line["usage"].clone());
        }
        let Some(choice) = line["choice"].as_u64() else { return };
        let choice = self.choices.entry(choice).or_default();
        if let Some(text) = line["text"].as_str() {
            choice.text += text;
            choice.items.push(text.to_owned());
        }
        choice.finishes.extend(line["finish"].as_str().map(str::to_owned));
        let Some(number) = line["call"].as_u64() else { return };
        let known = choice.calls.iter().position(|call| call.number == number);
        let at = known.unwrap_or(choice.calls.len());
        if known.is_none() {
            choice.calls.push(ReadCall { number, ..ReadCall::default() });
            choice.items.push(format!("call {number}"));
        }
        let call = &mut choice.calls[at];
        call.names.extend(line["name"].as_str().map(str::to_owned));
        call.arguments += line["arguments"].as_str().unwrap_or_default();
        if line["end"] == true {
            call.at_ends.push((call.names.concat(), call.arguments.clone()));
        }
    }
}
