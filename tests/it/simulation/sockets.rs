//! The same model, the same upstream that refuses, and the same clients, with the built program between them over
//! real sockets. This tests the program's own order of steps.

use super::client::Client;
use super::model::{Ids, Model, streamed, whole};
use super::support::client;
use super::support::program::Toolrein;
use super::support::reply::Reply;
use super::support::scripted::{Recorded, Scripted};
use super::upstream::{Dislike, Refused, Upstream};
use super::{check, forms};
use bytes::Bytes;
use dialects::error::parse_in_200;
use mock::strict::violations;
use std::sync::{Arc, Mutex};

/// Steps, each a connection or several.
const STEPS: usize = 120;
/// The most forms of one request that are refused before the client gets the error.
const MOST_REFUSED: usize = 4;

/// What was refused of one client's request, as it was sent.
type Refusals = Arc<Mutex<Vec<(Dislike, Vec<u8>)>>>;

#[test]
fn over_sockets_the_client_gets_coherent_replies_and_a_strict_upstream_refuses_nothing() {
    for (seed, settings) in [
        (1, include_str!("everything.toml")),
        (2, include_str!("counting.toml")),
        (3, include_str!("overflow.toml")),
    ] {
        let refusals = Refusals::default();
        let upstream = upstream(seed, Arc::clone(&refusals));
        let program = Toolrein::before(&upstream, settings);
        let mut client = beginning(seed);
        let mut answers = 0;
        for step in 0..STEPS {
            let seen = upstream.violations().len();
            let body = client.body();
            let response = client::post(&program.chat_url(), &body);
            let told =
                |why: String| format!("seed {seed}, step {step}, a client that {}: {why}", client.deed);
            if violations(&body).is_empty() {
                let found = &upstream.violations()[seen..];
                assert!(found.is_empty(), "{}", told(format!("{found:?}")));
            }
            let refused = std::mem::take(&mut *refusals.lock().unwrap());
            if response.cut || response.status != 200 || is_error(&client, &response.body) {
                let why = forms::failed(&client, &response.body).err().or(groundless(&client, &refused));
                assert_eq!(why, None, "{}", told(response.text()));
                client.fail();
            } else {
                let messages = check::reply(&client, &response.body.clone().into());
                let message = messages.unwrap_or_else(|why| panic!("{}", told(why)))[0].clone();
                answers += 1;
                client.take(message);
                client.go_on();
            }
            client.ids = Ids::Unique;
            if client.history.len() > 30 || client.is_careless {
                client = beginning(seed * 1_000 + step as u64);
            }
        }
        assert!(answers * 2 > STEPS, "{answers} answers");
    }
}

fn beginning(seed: u64) -> Client {
    let mut client = Client::new(seed);
    client.ids = Ids::Unique;
    client
}

/// An error instead of an answer; in a stream, at its head.
fn is_error(client: &Client, body: &[u8]) -> bool {
    if client.is_stream { body.starts_with(b"data: {\"error\"") } else { parse_in_200(body).is_some() }
}

/// Why the client should not have got an error, if another form of its request was left.
fn groundless(client: &Client, refused: &[(Dislike, Vec<u8>)]) -> Option<String> {
    let again = refused.windows(2).find(|pair| pair[0].1 == pair[1].1);
    if let Some([(dislike, _), _]) = again {
        return Some(format!("{dislike:?} was refused, and the same sent again"));
    }
    // The rounds of a conversation without calls are the first of its history, and asking again is not tried twice.
    let stands = |dislike: &Dislike| matches!(dislike, Dislike::Length | Dislike::History);
    match refused.last() {
        None => Some("nothing was refused".to_owned()),
        Some((last, _)) if stands(last) || client.is_forced || refused.len() >= MOST_REFUSED => None,
        Some((last, _)) => Some(format!("{last:?} was refused, and no other form tried")),
    }
}

fn upstream(seed: u64, refusals: Refusals) -> Scripted {
    let parts = Mutex::new((Model::new(seed), Upstream::new(seed)));
    Scripted::start(move |nth, request| {
        let (model, upstream) = &mut *parts.lock().unwrap();
        if let Some(refused) = upstream.refuses(&request.json()) {
            refusals.lock().unwrap().push((refused.dislike, request.body.to_vec()));
            return refusal(request, refused);
        }
        written(nth, request, model)
    })
}

fn refusal(request: &Recorded, refused: Refused) -> Reply {
    let Refused { status, body, .. } = refused;
    if status == 200 && request.json()["stream"] == true {
        return Reply::stream([[b"data: ".as_slice(), &body, b"\n\n"].concat()]);
    }
    Reply::bytes(status, "application/json", body)
}

fn written(nth: usize, request: &Recorded, model: &mut Model) -> Reply {
    let (body, id) = (request.json(), format!("r{nth}"));
    let said = model.answer(&body);
    if body["stream"] != true {
        return Reply::bytes(200, "application/json", whole(&said, &id, &body["model"]));
    }
    let stream: Bytes = streamed(&said, &id, &body["model"], &mut model.numbers);
    Reply::stream([stream]).in_pieces_of(1 + model.numbers.below(900))
}
