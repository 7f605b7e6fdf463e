//! The clients of the Messages API, unmodified: the `anthropic` packages, the frameworks that use them, and Claude Code. Each runs
//! its agents against the strict simulated model and a scripted upstream, straight and through toolrein.

use super::plays::{Outcome, Package, Play};
use super::support::messages::Message;
use super::support::player::Client;
use super::support::program::{Toolrein, before};
use super::support::reply::Reply;
use super::support::scripted::{Recorded, Scripted};
use super::support::simulated::Simulated;
use super::{GENEROUS, assert_same_requests};
use serde::Deserialize;
use serde_json::{Value, json};

const WHOLE_AND_STREAMED: &[&str] = &["whole", "streamed"];
const WITH_RUNNERS: &[&str] =
    &["raw", "whole", "helper", "runner", "streamed runner", super::plays::WITHOUT_THREADS];

const PYTHON_1: Package = Package {
    client: Client::Python,
    program: ("messages_sdk", "1"),
    forms: &["raw", "whole", "helper", "runner", "streamed runner"],
};
const PYTHON_2: Package =
    Package { client: Client::Python, program: ("messages_sdk", "2"), forms: WITH_RUNNERS };
const NODE: Package = Package { client: Client::Node, program: ("messages_sdk", ""), forms: WITH_RUNNERS };
const LANGCHAIN: Package =
    Package { client: Client::Python, program: ("messages_langchain", ""), forms: WHOLE_AND_STREAMED };
const LANGCHAIN_JS: Package =
    Package { client: Client::Node, program: ("messages_langchain", ""), forms: WHOLE_AND_STREAMED };
const PYDANTIC_AI: Package =
    Package { client: Client::Python, program: ("messages_pydantic", ""), forms: WHOLE_AND_STREAMED };
const LITELLM: Package =
    Package { client: Client::Python, program: ("messages_litellm", ""), forms: WHOLE_AND_STREAMED };
const AI_SDK: Package =
    Package { client: Client::Node, program: ("messages_ai", ""), forms: WHOLE_AND_STREAMED };
const CLAUDE_CODE: Package =
    Package { client: Client::Node, program: ("claude_code", ""), forms: &["print"] };

/// One test for each client, so that a failure names both.
macro_rules! with_each_client {
    ($($scenario:ident),* $(,)?) => {
        mod python_1 { $(#[test] fn $scenario() { super::$scenario(super::PYTHON_1); })* }
        mod python_2 { $(#[test] fn $scenario() { super::$scenario(super::PYTHON_2); })* }
        mod node { $(#[test] fn $scenario() { super::$scenario(super::NODE); })* }
        mod langchain { $(#[test] fn $scenario() { super::$scenario(super::LANGCHAIN); })* }
        mod langchain_js { $(#[test] fn $scenario() { super::$scenario(super::LANGCHAIN_JS); })* }
        mod pydantic_ai { $(#[test] fn $scenario() { super::$scenario(super::PYDANTIC_AI); })* }
        mod litellm { $(#[test] fn $scenario() { super::$scenario(super::LITELLM); })* }
        mod ai_sdk { $(#[test] fn $scenario() { super::$scenario(super::AI_SDK); })* }
        mod claude_code { $(#[test] fn $scenario() { super::$scenario(super::CLAUDE_CODE); })* }
    };
}

with_each_client!(
    agents_end_as_without_toolrein,
    requests_arrive_unchanged,
    runaway_models_end_with_text,
    a_blocked_call_never_runs_and_a_released_one_runs_once,
    no_odd_reply_runs_a_blocked_call,
);

/// The simulated model follows Anthropic's rules, keeps threads and refuses changed thinking.
fn agents_end_as_without_toolrein(package: Package) {
    let model = Simulated::start();
    let toolrein = Toolrein::start(&before(&format!("{}/v1", model.origin()), GENEROUS));
    let mut plays = Vec::new();
    for form in package.forms {
        for says in ["Use get_weather and search for Rome.", "Hello."] {
            for url in [model.origin(), toolrein.origin().to_owned()] {
                let session = plays.len();
                plays.push(Play { url, form, model: "demo-chat", says: says.to_owned(), session });
            }
        }
    }
    let mut outcomes = package.play(&plays);
    // Pydantic-AI runs the calls of a reply at once.
    outcomes.iter_mut().for_each(|outcome| outcome.ran.sort());
    for (plays, outcomes) in plays.chunks(2).zip(outcomes.chunks(2)) {
        let [straight, through] = outcomes else { panic!("pairs") };
        assert_eq!(straight, through, "{:?}", plays[0]);
        let calls = if plays[0].says == "Hello." { 0 } else { 2 };
        assert_eq!((straight.ran.len(), &straight.error), (calls, &None), "{:?}: {straight:?}", plays[0]);
        assert!(straight.text.as_ref().is_some_and(|text| !text.is_empty()), "{straight:?}");
    }
    toolrein.stop();
}

/// The upstream must see the same requests, to the byte.
fn requests_arrive_unchanged(package: Package) {
    let run = |url: &str| {
        let forms = package.stateless_forms().enumerate();
        let plays: Vec<Play> = forms
            .map(|(session, form)| {
                let says = "What is the weather in Rome, Oslo and Bern?".to_owned();
                Play { url: url.to_owned(), form, model: "demo-chat", says, session }
            })
            .collect();
        for (play, outcome) in plays.iter().zip(package.play(&plays)) {
            assert_eq!(outcome.text.as_deref(), Some("Clear everywhere."), "{play:?}: {outcome:?}");
            assert_eq!(["Rome", "Oslo", "Bern"].map(|city| outcome.runs(city)), [1, 1, 1], "{outcome:?}");
        }
    };
    let straight = Scripted::start(weather);
    run(&straight.origin());
    let upstream = Scripted::start(weather);
    let toolrein = Toolrein::before(&upstream, GENEROUS);
    run(toolrein.origin());
    if package.is_claude_code() {
        // Its requests have random ids and folders.
        assert_eq!(upstream.requests().len(), straight.requests().len());
    } else {
        assert_same_requests(&straight, &upstream);
    }
    upstream.assert_clean();
    toolrein.stop();
}

/// The calls of one turn under the budget as shipped.
const SHIPPED_CALLS: usize = 50;

/// A client without a limit of its own meets models that call for ever, under the policies as shipped.
fn runaway_models_end_with_text(package: Package) {
    let model = Simulated::start();
    let toolrein = Toolrein::start(&before(&format!("{}/v1", model.origin()), "base = \"shipped\"\n"));
    let mut plays = Vec::new();
    for form in package.forms {
        for model in ["demo-runaway", "demo-stuck"] {
            let (url, session) = (toolrein.origin().to_owned(), plays.len());
            plays.push(Play { url, form, model, says: "Find out all about bicycles.".to_owned(), session });
        }
    }
    for (play, outcome) in plays.iter().zip(package.play(&plays)) {
        assert_eq!(outcome.error, None, "{play:?}: {outcome:?}");
        let text = outcome.text.clone().unwrap_or_default();
        assert!(text.ends_with("and this is my final answer."), "{play:?}: {outcome:?}");
        assert!((1..=SHIPPED_CALLS).contains(&outcome.ran.len()), "{play:?}: {} calls", outcome.ran.len());
    }
    toolrein.stop();
}

/// No call for Paris may be made, whatever its spelling, and no search.
const NOT_PARIS: &str = r#"
[policy.allow]
except = ["search"]
[policy.arguments]
tools = { get_weather = { city = { pattern = "^(berlin|hamburg|Rome)$" } } }
"#;

fn a_blocked_call_never_runs_and_a_released_one_runs_once(package: Package) {
    let upstream = Scripted::start(tempts);
    let toolrein = Toolrein::before(&upstream, NOT_PARIS);
    let mut plays = Vec::new();
    for form in package.forms {
        for scene in ["by arguments", "by name", "all at first", "all"] {
            let (url, session) = (toolrein.origin().to_owned(), plays.len());
            let says = format!("What is the weather? Scene {session}: {scene}.");
            plays.push(Play { url, form, model: "demo-chat", says, session });
        }
    }
    for (play, outcome) in plays.iter().zip(package.play(&plays)) {
        let ran: &[(&str, &str)] =
            if play.says.ends_with("all.") { &[] } else { &[("get_weather", "berlin")] };
        // The texts before calls are the model's too, and some clients join all texts of a message.
        let text = outcome.text.clone().unwrap_or_default();
        assert_eq!(outcome, Outcome::text(&text, ran), "{play:?}");
        assert!(text.ends_with("Clear everywhere."), "{play:?}: {text}");
    }
    upstream.assert_clean();
    // Each scene is over after two requests at the upstream, the third scene after three. There LiteLLM joins the texts of the
    // two replies that it was shown as one: nothing is put back, and the model, which does not see its first call, makes it again.
    let joins_texts = usize::from(package.program.0 == LITELLM.program.0);
    assert_eq!(upstream.requests().len(), package.forms.len() * (2 + 2 + 3 + 2 + joins_texts));
    toolrein.stop();
}

/// LiteLLM 1.83 makes a client's call of a server's call in a stream, which toolrein carries: the provider has run it. No server's
/// tool is named as the client's tool is in this reply.
const MISREAD_BY_LITELLM: &str = "server_tool_use_named";

/// The odd replies, each sent to each form of a client: streams to those that ask for streams.
fn no_odd_reply_runs_a_blocked_call(package: Package) {
    let upstream = Scripted::start(|_, request| variant_for(request));
    let toolrein = Toolrein::before(&upstream, NOT_PARIS);
    let mut plays = Vec::new();
    for form in package.forms {
        let is_whole = |form: &str| ["whole", "runner", super::plays::WITHOUT_THREADS].contains(&form);
        let fits = |variant: &Variant| variant.form == "json" || !is_whole(form);
        let is_misread = |variant: &Variant| {
            package.program.0 == LITELLM.program.0 && variant.variant == MISREAD_BY_LITELLM
        };
        let numbers = (0..variants().len())
            .filter(|number| fits(&variants()[*number]) && !is_misread(&variants()[*number]));
        for number in numbers {
            // A conversation with a few odd replies each: starting Claude Code for every reply takes long.
            let (url, session) = (toolrein.origin().to_owned(), plays.len() / 17);
            let says = format!("What is the weather? Variant {number}.");
            plays.push(Play { url, form, model: "demo-chat", says, session });
        }
    }
    let mut faults = Vec::new();
    for (play, outcome) in plays.iter().zip(package.play(&plays)) {
        let name = &variants()[number_in(&play.says)].variant;
        let runs = ["paris", "berlin", "hamburg"].map(|city| outcome.runs(city));
        if runs[0] > 0 || runs[1] > 1 || runs[2] > 1 {
            faults.push(format!("{name}, {}: {outcome:?}", play.form));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    toolrein.stop();
}

/// The runners begin a thread by default. toolrein answers that it keeps none, and they go on with the whole history.
#[test]
fn tool_runners_with_threads_send_the_whole_history_through_toolrein() {
    for package in [PYTHON_2, NODE] {
        let run = |url: &str| {
            let plays = ["runner", "streamed runner"].map(|form| {
                let says = "What is the weather in Rome, Oslo and Bern?".to_owned();
                Play { url: url.to_owned(), form, model: "demo-chat", says, session: 0 }
            });
            let calls = ["Rome", "Oslo", "Bern"].map(|city| ("get_weather", city));
            for (play, outcome) in plays.iter().zip(package.play(&plays)) {
                assert_eq!(outcome, Outcome::text("Clear everywhere.", &calls), "{package:?}, {play:?}");
            }
        };
        let threads = |upstream: &Scripted| -> Vec<Value> {
            upstream.requests().iter().map(|request| request.json()["thread"]["type"].clone()).collect()
        };
        let straight = Scripted::start(weather);
        run(&straight.origin());
        assert_eq!(threads(&straight), ["create", "continue", "continue"].repeat(2), "{package:?}");
        let upstream = Scripted::start(weather);
        let toolrein = Toolrein::before(&upstream, GENEROUS);
        run(toolrein.origin());
        assert_eq!(threads(&upstream), vec![Value::Null; 6], "{package:?}: no thread, and no request more");
        upstream.assert_clean();
        toolrein.stop();
    }
}

/// Approval by the user's next message. Claude Code alone keeps the conversation itself.
#[test]
fn claude_code_runs_an_approved_call_once() {
    let model = Simulated::start();
    let settings = "[policy.confirm]\ntools = [\"get_weather\"]\n";
    let toolrein = Toolrein::start(&before(&format!("{}/v1", model.origin()), settings));
    let plays = ["Use get_weather for Rome.", "yes"].map(|says| {
        let (url, says) = (toolrein.origin().to_owned(), says.to_owned());
        Play { url, form: "print", model: "demo-chat", says, session: 0 }
    });
    let outcomes = CLAUDE_CODE.play(&plays);
    let question = outcomes[0].text.clone().unwrap_or_default();
    assert_eq!(outcomes[0], Outcome::text(&question, &[]));
    assert!(question.contains("get_weather") && question.contains("reply with"), "{question}");
    assert_eq!((outcomes[1].ran.len(), &outcomes[1].error), (1, &None), "{outcomes:?}");
    assert!(outcomes[1].text.as_ref().is_some_and(|text| !text.is_empty()), "{outcomes:?}");
    toolrein.stop();
}

/// Two rounds of calls, then the answer; which comes next is read off the conversation.
fn weather(nth: usize, request: &Recorded) -> Reply {
    let (body, tool) = (request.json(), tool(request, "get_weather"));
    let city = |name: &str| json!({"city": name});
    let message = match blocks(&body).filter(|block| block["type"] == "tool_result").count() {
        0 => Message::new(nth).thinks().says("Let me look.").calls("1", &tool, &city("Rome")),
        1 => Message::new(nth).calls("2", &tool, &city("Oslo")).calls("3", &tool, &city("Bern")),
        _ => Message::new(nth).thinks().says("Clear everywhere."),
    };
    message.reply(request)
}

/// A model whose reply holds a call for Paris or a search, in the scene that the user names.
fn tempts(nth: usize, request: &Recorded) -> Reply {
    let body = request.json();
    let said = said_in(&body, "Scene ");
    let (number, scene) = said.split('.').next().and_then(|said| said.split_once(": ")).expect(&said);
    let (weather, search) = (tool(request, "get_weather"), tool(request, "search"));
    let ids = ["paris", "berlin", "search"].map(|name| format!("{name}_{number}"));
    let knows = |id: &str| blocks(&body).any(|block| block["id"] == format!("toolu_{id}"));
    let [paris, berlin, found] = &ids;
    let (in_paris, in_berlin) = (json!({"city": "paris"}), json!({"city": "berlin"}));
    let looks = Message::new(nth).thinks().says("Let me look. ");
    let message = match scene {
        "by arguments" if !knows(paris) => {
            looks.calls(paris, &weather, &in_paris).calls(berlin, &weather, &in_berlin)
        }
        "by name" if !knows(found) => {
            looks.calls(berlin, &weather, &in_berlin).calls(found, &search, &json!({"query": "weather"}))
        }
        "all at first" if knows(paris) && !knows(berlin) => looks.calls(berlin, &weather, &in_berlin),
        "all" | "all at first" if !knows(paris) => looks.calls(paris, &weather, &in_paris),
        _ => Message::new(nth).thinks().says("Clear everywhere."),
    };
    message.reply(request)
}

/// An odd reply of `tests/data/messages`.
#[derive(Deserialize)]
struct Variant {
    variant: String,
    form: String,
    body: String,
}

fn variants() -> &'static [Variant] {
    static VARIANTS: std::sync::OnceLock<Vec<Variant>> = std::sync::OnceLock::new();
    VARIANTS.get_or_init(|| {
        let lines = include_str!("../data/messages/variants.jsonl").lines();
        lines.map(|line| serde_json::from_str(line).unwrap()).collect()
    })
}

fn number_in(said: &str) -> usize {
    let digits = said.rsplit("Variant ").next().unwrap_or_default();
    digits.chars().take_while(char::is_ascii_digit).collect::<String>().parse().expect(said)
}

/// The odd reply that the user asks for; a text once the conversation has gone on after it.
fn variant_for(request: &Recorded) -> Reply {
    let body = request.json();
    let last = body["messages"].as_array().into_iter().flatten().rfind(|message| message["role"] != "system");
    let says = last.is_some_and(|message| texts(message).any(|text| text.contains("Variant ")));
    if !says {
        return Message::new("after").says("Clear everywhere.").reply(request);
    }
    let number = number_in(&said_in(&body, "Variant "));
    let variant = &variants()[number];
    let name = tool(request, "get_weather");
    // Ids are unique in a conversation that gets several of these replies.
    let bytes = variant.body.replace("\"get_weather\"", &format!("{name:?}"));
    let bytes = bytes.replace("\\\"get_weather\\\"", &format!("\\\"{name}\\\""));
    let bytes =
        bytes.replace("toolu_01", &format!("toolu_{number}_")).replace("msg_01", &format!("msg_{number}_"));
    match &*variant.form {
        "json" => Reply::bytes(200, "application/json", bytes),
        _ => Reply::stream([bytes]),
    }
}

/// The name under which the request declares a tool, which may have a namespace. A request that goes on in a thread declares none.
fn tool(request: &Recorded, name: &str) -> String {
    let body = request.json();
    let mut names = body["tools"].as_array().into_iter().flatten().filter_map(|tool| tool["name"].as_str());
    names.find(|found| found.ends_with(name)).unwrap_or(name).to_owned()
}

fn blocks(body: &Value) -> impl Iterator<Item = &Value> {
    body["messages"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|message| message["content"].as_array())
        .flatten()
}

/// The texts of a message.
fn texts(message: &Value) -> impl Iterator<Item = &str> {
    let blocks =
        message["content"].as_array().into_iter().flatten().filter_map(|block| block["text"].as_str());
    message["content"].as_str().into_iter().chain(blocks)
}

/// What the user said last after `mark`.
fn said_in(body: &Value, mark: &str) -> String {
    let users = body["messages"].as_array().into_iter().flatten().filter(|message| message["role"] == "user");
    let found = users.flat_map(texts).filter_map(|text| text.split_once(mark)).last();
    found.expect("the user's words").1.to_owned()
}
