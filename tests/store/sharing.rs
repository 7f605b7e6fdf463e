//! Two programs at one address, as a load balancer has them: what one of them records, the other knows.

use crate::server::{Server, is_connected, pair};
use crate::support::client::Request;
use crate::support::program::Toolrein;
use crate::support::reply::{Reply, Speech};
use crate::support::scripted::{Recorded, Scripted};
use crate::support::talk::{Form, Said, Talk, in_both_forms, search, text};
use crate::support::until;
use serde_json::{Value, json};

const TWO_SEARCHES: &str =
    "reask.max = 0\n[policy.rate_limit]\ntools = { search = { calls = 2, per = \"1h\" } }\n";
const ONE_SEARCH: &str = "[policy.rate_limit]\ntools = { search = { calls = 1, per = \"1h\" } }\n";
const QUOTA: &str = "[policy.quota.limits]\nsearches = { tools = [\"search*\"], calls = 2, per = \"5h\" }\n";
const CONFIRM: &str = "[policy.confirm]\ntools = [\"fetch\"]\n";

/// Waits until the state store has a key of this kind. What a program told may arrive a moment after its reply.
fn is_told(server: &Server, kind: char, count: usize) {
    let start = format!("toolrein:{kind}:");
    until(&format!("{count} keys {start}"), || {
        (server.keys().iter().filter(|key| key.starts_with(&start)).count() >= count).then_some(())
    });
}

#[test]
fn a_rate_window_holds_among_replicas_and_after_a_restart() {
    in_both_forms(|form| {
        let (server, upstream) = (Server::start(), Scripted::start(search));
        let [one, other] = pair(&server, &upstream, TWO_SEARCHES);
        let mut talk = Talk::new(form);
        for (nth, program) in [&one, &other].into_iter().enumerate() {
            let said = talk.ask(program);
            assert_eq!(said.calls.len(), 1, "call {nth}");
            talk.add(&said);
            // A call has two keys: one with its id, one without.
            is_told(&server, 't', 2 * (nth + 1));
        }
        assert!(talk.ask(&one).calls.is_empty(), "one by each are two");
        assert!(talk.ask(&other).calls.is_empty());
        one.stop();
        let anew = server.share(&upstream, TWO_SEARCHES);
        is_connected(&anew);
        assert!(talk.ask(&anew).calls.is_empty(), "a new process knows them too");
        for program in [&other, &anew] {
            assert!(program.metric("toolrein_store_errors_total").abs() < 0.5);
            assert!(program.metric("toolrein_store_away_total").abs() < 0.5);
        }
    });
}

/// Four replies of 25 tokens in the conversation, and three calls in the caller's day.
const ACCOUNTS: &str = "[policy.budget]\ntool_calls = 0\nbilled_tokens = 100\nday = { tool_calls = 5 }\n";

/// Of whole replies: a stream's call is stored with an estimate first, and with its bill when the stream ends, so another
/// replica that is asked within that moment counts the estimate.
#[test]
fn what_was_billed_counts_among_replicas_and_notices_stay_where_they_are() {
    let form = Form::Whole;
    let calls = |nth: usize, request: &Recorded| {
        let id = format!("call_Ae2Y4fDJmxZkQhWq8LbTz{nth:03}");
        match request.json()["tool_choice"] == "none" {
            true => text("Enough.", request),
            false => Reply::speech(request, &Speech::calls(&[(&id, "search", "{}")])),
        }
    };
    let (server, upstream) = (Server::start(), Scripted::start(calls));
    let programs = pair(&server, &upstream, ACCOUNTS);
    let mut talk = Talk::new(form);
    for nth in 0..4 {
        let said = talk.ask(&programs[nth % 2]);
        assert_eq!(said.calls.len(), 1, "call {nth}");
        talk.add(&said);
        // Of each request its own key, and that of its reply.
        is_told(&server, 'b', 2 * (nth + 1));
    }
    assert!(talk.ask(&programs[0]).calls.is_empty(), "two by each are four");
    let sent: Vec<Value> = upstream.requests().iter().map(|it| it.json()["messages"].clone()).collect();
    for pair in sent.windows(2) {
        let [before, after] = [&pair[0], &pair[1]].map(|messages| messages.as_array().unwrap());
        assert_eq!(after[..before.len()], before[..]);
    }
    // The day's five calls are four by this conversation, and one by another.
    is_told(&server, 'd', 1);
    let said = [&programs[1], &programs[0]].map(|program| Talk::new(form).ask(program).calls.len());
    assert_eq!(said[0], 1);
    until("the sums of both to be known", || {
        Talk::new(form).ask(&programs[0]).calls.is_empty().then_some(())
    });
    for program in &programs {
        assert!(program.metric("toolrein_store_errors_total").abs() < 0.5);
    }
}

#[test]
fn a_blocked_round_is_put_back_by_another_replica_to_the_byte() {
    in_both_forms(|form| {
        let server = Server::start();
        let upstream = Scripted::start(|nth, request| match nth {
            0..=2 => search(nth, request),
            3 => text("Here it is.", request),
            _ => text("You are welcome.", request),
        });
        let [one, other] = pair(&server, &upstream, ONE_SEARCH);
        let mut talk = Talk::new(form);
        talk.add(&talk.ask(&one));
        is_told(&server, 't', 2);
        let second = talk.ask(&one);
        assert_eq!(second.text, "Here it is.");
        talk.add(&second);
        talk.say("Thanks");
        is_told(&server, 'r', 1);
        talk.ask(&other).assert_coherent(form);
        let asked_last = upstream.request(3).json()["messages"].clone();
        let sent = upstream.request(4).json()["messages"].clone();
        let (before, sent) = (asked_last.as_array().unwrap(), sent.as_array().unwrap());
        assert!(before.len() > 3, "there was a round: {before:?}");
        assert_eq!(&sent[..before.len()], before, "the model sees what it saw");
        assert!(other.metric("toolrein_lost_hidden_exchanges_total").abs() < 0.5);
        upstream.assert_clean();
    });
}

fn ask_as(program: &Toolrein, nth: usize, form: Form) -> Said {
    let mut talk = Talk::new(form);
    talk.messages[0]["content"] = json!(format!("Question {nth}"));
    let request = Request::post(&program.chat_url(), talk.body().to_string());
    Said::read(request.send(), form)
}

#[test]
fn a_quota_holds_among_replicas_and_a_retry_at_another_one_is_charged_once() {
    in_both_forms(|form| {
        let server = Server::start();
        // The same question leads to the same call, but for its id.
        let upstream = Scripted::start(|nth, request| {
            match request.json()["messages"].to_string().contains("RATE_LIMIT") {
                true => text("No more for today.", request),
                false => Reply::speech(request, &Speech::calls(&[(&format!("call_{nth}"), "search", "{}")])),
            }
        });
        let [one, other] = pair(&server, &upstream, QUOTA);
        let uses = || {
            let keys = server.keys();
            let key = keys.iter().find(|key| key.starts_with("toolrein:q:"));
            key.map(|key| server.ask::<Vec<Vec<u8>>>(&["ZRANGE", key, "0", "-1"])).unwrap_or_default()
        };
        // One entry for each time that a call is handed out.
        let stored = |count| until(&format!("{count} uses"), || (uses().len() == count).then_some(()));
        assert_eq!(ask_as(&one, 0, form).calls.len(), 1);
        stored(1);
        assert_eq!(ask_as(&other, 0, form).calls.len(), 1);
        stored(2);
        assert_eq!(ask_as(&other, 1, form).calls.len(), 1, "the two tries are one call");
        stored(3);
        for program in [&one, &other] {
            assert_eq!(ask_as(program, 2, form).text, "No more for today.");
        }
        let longest = uses().iter().map(Vec::len).max();
        assert!(longest.unwrap() <= 120, "what a look-up reads of each: {longest:?}");
    });
}

/// Calls `fetch` whenever the user has just asked for it, else says how it stands.
fn fetches(_nth: usize, request: &Recorded) -> Reply {
    let body = request.json();
    let last = body["messages"].as_array().unwrap().last().unwrap().clone();
    match last["content"].as_str().unwrap() {
        "What is new?" => {
            Reply::speech(request, &Speech::calls(&[("call_f", "fetch", "{\"url\" :\"//a/\\u00e9\"}")]))
        }
        _ => text("As you like.", request),
    }
}

/// A conversation in which `program` has asked, and the user says yes.
fn approved(server: &Server, program: &Toolrein, form: Form) -> Talk {
    let mut talk = Talk::new(form);
    let said = talk.ask(program);
    assert!(said.text.contains("approval"), "{}", said.text);
    talk.add(&said);
    talk.say("yes");
    is_told(server, 'a', 1);
    talk
}

#[test]
fn an_approval_sent_to_all_replicas_at_once_releases_the_call_once_as_shown() {
    in_both_forms(|form| {
        let (server, upstream) = (Server::start(), Scripted::start(fetches));
        let [one, other] = pair(&server, &upstream, CONFIRM);
        let talk = approved(&server, &one, form);
        let said: Vec<Said> = std::thread::scope(|scope| {
            let asking: Vec<_> = [&one, &other, &one, &other]
                .into_iter()
                .map(|program| {
                    // Each with a spelling of its own, so that none is another's second try.
                    let mut talk =
                        Talk { form, members: talk.members.clone(), messages: talk.messages.clone() };
                    talk.members["user"] = json!(format!("{program:p}{scope:p}"));
                    scope.spawn(move || talk.ask(program))
                })
                .collect();
            asking.into_iter().map(|asking| asking.join().unwrap()).collect()
        });
        let handed: Vec<&Said> = said.iter().filter(|said| !said.calls.is_empty()).collect();
        assert_eq!(handed.len(), 1, "{said:?}");
        assert_eq!(handed[0].calls[0].2, "{\"url\" :\"//a/\\u00e9\"}");
        let late = talk.ask(&other);
        assert_eq!((late.calls.len(), late.text.as_str()), (0, "As you like."));
    });
}

#[test]
fn what_a_model_refuses_is_known_to_all_replicas_by_caller_and_for_all_once_two_have_met_it() {
    let server = Server::start();
    let upstream = Scripted::start(|_, request| match request.json().get("tools") {
        Some(_) => Reply::error(400, "invalid_request_error", "x", "m does not support tools"),
        None => text("Without.", request),
    });
    let [one, other] = pair(&server, &upstream, "");
    let body = Talk::new(Form::Whole).body().to_string();
    let ask = |program: &Toolrein, key: &str| {
        let request = Request::new("POST", &program.chat_url(), &body);
        let request = request.header("content-type", "application/json");
        assert_eq!(request.header("authorization", &format!("Bearer {key}")).send().status, 200);
        upstream.requests().len()
    };
    assert_eq!(ask(&one, "key-of-an"), 2);
    // The list of the caller, and the one of all callers.
    is_told(&server, 'v', 2);
    assert_eq!(ask(&other, "key-of-an"), 3, "the other replica does not try");
    assert_eq!(ask(&other, "key-of-ann"), 5, "for another caller it does");
    is_told(&server, 'v', 3);
    assert_eq!(ask(&one, "key-of-anna"), 6, "two have met it");
}

#[test]
fn keys_are_hashes_under_the_prefix_that_end_and_another_secret_shares_nothing() {
    let (server, upstream) = (Server::start(), Scripted::start(search));
    let settings = format!("store.prefix = \"mine/\"\nstore.ttl = \"6h\"\n{ONE_SEARCH}");
    let program = server.share(&upstream, &settings);
    is_connected(&program);
    let mut talk = Talk::new(Form::Whole);
    talk.add(&talk.ask(&program));
    until("keys", || server.keys().iter().any(|key| key.starts_with("mine/t:")).then_some(()));
    for key in server.keys() {
        let name = key.strip_prefix("mine/").expect(&key);
        let (kind, hash) = name.split_once(':').unwrap();
        let is_hash = hash.len() == 32 && hash.bytes().all(|byte| byte.is_ascii_hexdigit());
        assert!(kind.len() == 1 && is_hash, "{key}");
        let ttl: i64 = server.ask(&["PTTL", &key]);
        assert!((1..=6 * 3_600_000).contains(&ttl), "{key} lives for {ttl} ms");
    }
    let config = crate::support::client::get(&format!("{}/config", program.admin_url())).json();
    assert_eq!(config["store"]["url_env"], "STORE_OF_THE_TESTS");
    let all = format!("{config}{}{}", program.metrics(), program.stop().join("\n"));
    assert!(!all.contains("pass-of-the-tests") && !all.contains(crate::server::SECRET), "{all}");
}

#[test]
fn pending_records_are_written_to_the_store_before_the_program_ends() {
    let (server, upstream) = (Server::start(), Scripted::start(search));
    let program = server.share(&upstream, TWO_SEARCHES);
    is_connected(&program);
    let mut talk = Talk::new(Form::Whole);
    for _ in 0..2 {
        talk.add(&talk.ask(&program));
    }
    program.stop();
    let anew = server.share(&upstream, TWO_SEARCHES);
    is_connected(&anew);
    assert!(talk.ask(&anew).calls.is_empty(), "{:?}", Value::from(server.keys()));
}
