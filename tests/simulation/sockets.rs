//! The same model and the same clients with the built program between them, over real sockets.

use super::check;
use super::client::Client;
use super::model::{Model, Said, streamed, whole};
use super::support::client;
use super::support::program::Toolrein;
use super::support::reply::Reply;
use super::support::scripted::{Recorded, Scripted};
use super::support::strict::violations;
use bytes::Bytes;
use std::sync::Mutex;

/// Steps, each a connection or several.
const STEPS: usize = 120;

#[test]
fn over_sockets_the_client_gets_coherent_replies_and_a_strict_upstream_refuses_nothing() {
    for (seed, settings) in [(1, include_str!("everything.toml")), (2, include_str!("counting.toml"))] {
        let model = Mutex::new(Model::new(seed));
        let upstream = Scripted::start(move |nth, request| {
            let mut model = model.lock().unwrap();
            let answer = model.answer(&request.json());
            written(nth, request, &answer, &mut model)
        });
        let program = Toolrein::before(&upstream, settings);
        let mut client = Client::new(seed);
        client.ids = super::model::Ids::Unique;
        for step in 0..STEPS {
            let seen = upstream.violations().len();
            let body = client.body();
            let response = client::post(&program.chat_url(), &body);
            assert_eq!((response.status, response.cut), (200, false), "step {step}: {}", response.text());
            let deed = client.deed;
            let messages = check::reply(&client, &response.body.clone().into());
            let messages = messages.unwrap_or_else(|why| panic!("step {step}, a client that {deed}: {why}"));
            if violations(&body).is_empty() {
                let found = &upstream.violations()[seen..];
                assert!(found.is_empty(), "step {step}, a client that {deed}: {found:?}");
            }
            client.take(messages[0].clone());
            client.go_on();
            if client.history.len() > 30 || client.is_careless {
                client = Client::new(seed * 1_000 + step as u64);
                client.ids = super::model::Ids::Unique;
            }
        }
    }
}

fn written(nth: usize, request: &Recorded, said: &[Said], model: &mut Model) -> Reply {
    let (body, id) = (request.json(), format!("r{nth}"));
    if body["stream"] != true {
        return Reply::bytes(200, "application/json", whole(said, &id, &body["model"]));
    }
    let stream: Bytes = streamed(said, &id, &body["model"], &mut model.numbers);
    Reply::stream([stream]).in_pieces_of(1 + model.numbers.below(900))
}
