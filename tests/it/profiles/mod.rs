//! Profiles over real sockets: which request takes which profile, what is passed on, and each shipped profile in use,
//! streamed and whole. How profiles are read from the configuration is tested beside that code.

use crate::support;
use crate::support::talk;

mod choice;
mod clients;
mod documents;
mod shipped;

use support::client::Request;
use support::program::Toolrein;
use talk::{Said, Talk};

/// Sends the conversation with these headers besides the usual ones; a key among them takes the place of the usual one.
fn ask(talk: &Talk, program: &Toolrein, headers: &[(&str, &str)]) -> Said {
    let body = talk.body().to_string();
    let request = match headers.iter().any(|(name, _)| name.ends_with("api-key")) {
        true => Request::new("POST", &program.chat_url(), body).header("content-type", "application/json"),
        false => Request::post(&program.chat_url(), body),
    };
    let request = headers.iter().fold(request, |request, (name, value)| request.header(name, value));
    Said::read(request.send(), talk.form)
}
