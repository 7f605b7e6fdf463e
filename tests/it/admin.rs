//! The admin API of the running program: what its pages show after a conversation in which a call was blocked, the
//! stream of events, and who may open what.

use crate::support;

use serde_json::{Value, json};
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use support::client::{Request, Response, Stream, get};
use support::person::Person;
use support::program::{ADMIN_TOKEN, Toolrein};
use support::reply::{Gate, Reply, Speech};
use support::scripted::Scripted;
use support::until;

/// The first call of the conversation `stopped` is blocked, and the model then answers.
fn settings() -> String {
    format!(
        "{}[policy.kill]\nconversations = [\"stopped\"]\n[policy.budget]\ntool_calls = 10\n",
        Person::SETTINGS
    )
}

/// Calls `search` once, then answers; answers at once where no call is allowed.
fn searcher() -> Scripted {
    Scripted::start(|_, request| {
        let asked = request.json();
        let has_result =
            asked["messages"].as_array().unwrap().iter().any(|message| message["role"] == "tool");
        let speech = match has_result || asked["tool_choice"] == "none" {
            true => Speech::text("Done."),
            false => Speech::calls(&[("call_1", "search", "{\"q\":\"x\"}")]),
        };
        Reply::speech(request, &speech)
    })
}

fn body(more: &[Value]) -> Value {
    let first = [
        json!({"role": "system", "content": "You search."}),
        json!({"role": "user", "content": "Find <b>it</b>."}),
    ];
    let messages = [&first[..], more].concat();
    let search = json!({"name": "search", "parameters": {"type": "object"}});
    json!({
        "model": "gpt-4o",
        "messages": messages,
        "tools": [{"type": "function", "function": search}],
    })
}

/// One request of a conversation through the proxy.
fn ask(program: &Toolrein, conversation: &str, more: &[Value]) -> Response {
    let request = Request::post(&program.chat_url(), body(more).to_string());
    let response = request.header("x-toolrein-conversation", conversation).send();
    assert_eq!(response.status, 200, "{}", response.text());
    response
}

/// The conversation `c1`: a call that runs, its result, an answer.
fn converse(program: &Toolrein) {
    ask(program, "c1", &[]);
    let call = json!({"id": "call_1", "type": "function", "function": {"name": "search", "arguments": "{\"q\":\"x\"}"}});
    let made = json!({"role": "assistant", "content": null, "tool_calls": [call]});
    let result = json!({"role": "tool", "tool_call_id": "call_1", "content": "Error: no such index"});
    ask(program, "c1", &[made, result]);
}

fn open(program: &Toolrein, method: &str, path: &str, body: &Value) -> Response {
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let request = Request::new(method, &format!("{}{path}", program.admin_url()), body);
    request.header("authorization", &format!("Bearer {ADMIN_TOKEN}")).send()
}

fn shown(program: &Toolrein, path: &str) -> Value {
    let response = open(program, "GET", path, &Value::Null);
    assert_eq!(response.status, 200, "{path}: {}", response.text());
    response.json()
}

/// A page once it shows what is waited for: a request is recorded when its reply has been sent.
fn once(program: &Toolrein, path: &str, holds: impl Fn(&Value) -> bool) -> Value {
    until(path, || Some(shown(program, path)).filter(|page| holds(page)))
}

/// A program after the conversation `c1`, and after a call in `stopped` was blocked.
fn after_three_requests(upstream: &Scripted) -> Toolrein {
    let program = Toolrein::before(upstream, &settings());
    converse(&program);
    ask(&program, "stopped", &[]);
    once(&program, "/api/overview", |page| page["requests"] == 3);
    program
}

/// A page without the token.
fn open_to_all(program: &Toolrein, path: &str) -> Value {
    get(&format!("{}{path}", program.admin_url())).json()
}

fn of_policy<'a>(entries: &'a Value, policy: &str) -> &'a Value {
    entries.as_array().unwrap().iter().find(|entry| entry["policy"] == policy).unwrap()
}

#[test]
fn the_overview_and_the_tools_show_what_happened_and_are_open_to_all() {
    let upstream = searcher();
    let program = after_three_requests(&upstream);
    let overview = open_to_all(&program, "/api/overview");
    assert_eq!(overview["tool_calls"], json!({"allow": 1, "block": 1, "modify": 0, "answer": 0, "ask": 0}));
    assert_eq!((&overview["mode"], &overview["turns"]), (&json!("enforce"), &json!(2)), "{overview}");
    assert_eq!(overview["models"][0]["model"], "gpt-4o");
    assert!(overview["minutes"][0]["at_ms"].is_u64() && overview["money"]["net_usd_cached"].is_number());
    assert_eq!(of_policy(&overview["policies"], "kill")["block"], 1);
    let tools = open_to_all(&program, "/api/tools");
    let search = &tools["tools"][0];
    assert_eq!(
        (&search["tool"], &search["calls"], &search["blocked"], &search["results"], &search["errors"]),
        (&json!("search"), &json!(2), &json!(1), &json!(1), &json!(1))
    );
    assert!(search["bytes"]["p95"].as_f64().is_some_and(|bytes| (19.0..22.0).contains(&bytes)), "{search}");
    assert!(tools["start"]["system_tokens"]["p50"].as_f64() > Some(0.0), "{tools}");
}

#[test]
fn percentiles_of_few_results_are_sizes_that_occurred() {
    let upstream = Scripted::start(|_, request| Reply::speech(request, &Speech::text("Done.")));
    let program = Toolrein::before(&upstream, &settings());
    for (nth, size) in [400, 900, 1_500].into_iter().enumerate() {
        let call =
            json!({"id": "call_1", "type": "function", "function": {"name": "search", "arguments": "{}"}});
        let made = json!({"role": "assistant", "content": null, "tool_calls": [call]});
        let result = json!({"role": "tool", "tool_call_id": "call_1", "content": "x".repeat(size)});
        ask(&program, &format!("c{nth}"), &[made, result]);
    }
    let tools = once(&program, "/api/tools", |page| page["tools"][0]["results"] == 3);
    let bytes = &tools["tools"][0]["bytes"];
    assert_eq!(bytes, &json!({"p50": 900.0, "p95": 1_500.0, "p99": 1_500.0}), "P95 is none of 917");
}

#[test]
fn a_conversation_shows_its_start_its_duration_its_turns_and_the_time_of_each_call() {
    let before_ms = now_ms();
    let upstream = searcher();
    let program = after_three_requests(&upstream);
    let call = json!({"id": "call_1", "type": "function", "function": {"name": "search", "arguments": "{\"q\":\"x\"}"}});
    let made = json!({"role": "assistant", "content": null, "tool_calls": [call]});
    let result = json!({"role": "tool", "tool_call_id": "call_1", "content": "Error: no such index"});
    let answer = json!({"role": "assistant", "content": "Done."});
    ask(&program, "c1", &[made, result, answer, json!({"role": "user", "content": "And more?"})]);
    let page = once(&program, "/api/conversations/c1", |page| page["requests"] == 3);
    let number = |value: &Value| value.as_u64().unwrap_or_else(|| panic!("{page}"));
    let (started, last) = (number(&page["started_ms"]), number(&page["last_ms"]));
    assert!(before_ms <= started && started <= last && last <= now_ms(), "{page}");
    assert_eq!(number(&page["duration_ms"]), last - started);
    assert_eq!((&page["turns"], &page["calls"]), (&json!(2), &json!(1)), "{page}");
    let calls = page["tool_calls"].as_array().unwrap();
    assert_eq!(calls.len(), 1, "{page}");
    let call = &calls[0];
    assert_eq!(
        (&call["tool"], &call["verdict"], &call["outcome"]),
        (&json!("search"), &json!("allow"), &json!("failed"))
    );
    assert!((started..=last).contains(&number(&call["at_ms"])) && call["took_ms"].is_u64(), "{page}");
    let stopped = shown(&program, "/api/conversations/stopped");
    assert_eq!(stopped["first_blocked_by"], "kill");
    assert_eq!(
        (&stopped["tool_calls"][0]["verdict"], &stopped["tool_calls"][0]["took_ms"]),
        (&json!("block"), &Value::Null)
    );
}

fn now_ms() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    now.as_millis() as u64
}

#[test]
fn the_limits_and_the_health_show_what_happened_and_are_open_to_all() {
    let upstream = searcher();
    let program = after_three_requests(&upstream);
    let limits = open_to_all(&program, "/api/limits");
    assert_eq!(limits["limits"], json!([{"policy": "kill", "tool": "search", "blocked": 1}]));
    assert!(of_policy(&limits["turns"], "budget")["turns"].as_u64() >= Some(1), "{limits}");
    let health = open_to_all(&program, "/api/health");
    assert_eq!(
        (&health["requests"], &health["store"]["kind"], &health["store"]["up"]),
        (&json!(3), &json!("memory"), &json!(true))
    );
    assert_eq!(health["config"]["path"], json!(program.config_file().to_str()));
    assert_eq!(health["recorder"], json!({"on": false, "dropped": 0}));
    let folder = tempfile::tempdir().unwrap();
    let program = Toolrein::before(&upstream, &format!("record.dir = {:?}\n", folder.path()));
    assert_eq!(open_to_all(&program, "/api/health")["recorder"], json!({"on": true, "dropped": 0}));
}

#[test]
fn the_dashboard_comes_in_files_of_their_kind_and_allows_nothing_inline() {
    let upstream = searcher();
    let program = Toolrein::before(&upstream, &settings());
    for (path, kind) in [
        ("/", "text/html; charset=utf-8"),
        ("/dashboard/dashboard.js", "text/javascript; charset=utf-8"),
        ("/dashboard/views/tools.js", "text/javascript; charset=utf-8"),
        ("/dashboard/uplot/uPlot.min.css", "text/css; charset=utf-8"),
        ("/dashboard/icon.svg", "image/svg+xml"),
    ] {
        let file = get(&format!("{}{path}", program.admin_url()));
        assert_eq!((file.status, file.header("content-type")), (200, Some(kind)), "{path}");
        let policy = file.header("content-security-policy").unwrap();
        assert!(policy.starts_with("default-src 'none'") && !policy.contains("unsafe"), "{policy}");
    }
    for path in ["/dashboard/none.js", "/dashboard/views/none.js", "/dashboard/views%2Ftools.js/x"] {
        assert_eq!(get(&format!("{}{path}", program.admin_url())).status, 404, "{path}");
    }
}

/// Ends the program when the test does.
struct Demo(Child);

impl Drop for Demo {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn the_demonstration_ends_with_the_address_of_a_dashboard_that_shows_what_happened() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_toolrein"));
    command.args(["demo", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"]);
    let mut demo = Demo(command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap());
    // Kept open, because the program ends when nobody reads its output any more.
    let mut lines = BufReader::new(demo.0.stdout.take().unwrap()).lines().map_while(Result::ok);
    let line = lines.by_ref().find(|line| line.starts_with("Dashboard: ")).expect("its address");
    let (url, token) = line["Dashboard: ".len()..].split_once("/#token=").expect("a token");
    let list = until("the conversations", || {
        let request = Request::new("GET", &format!("{url}/api/conversations"), "");
        let list = request.header("authorization", &format!("Bearer {token}")).send().json();
        Some(list).filter(|list| list["total"].as_u64() >= Some(4))
    });
    let blocked =
        list["conversations"].as_array().unwrap().iter().any(|one| one["blocked"].as_u64() > Some(0));
    assert!(blocked, "{list}");
}

#[test]
fn the_list_of_conversations_is_filtered_and_decisions_say_what_the_model_read() {
    let upstream = searcher();
    let program = after_three_requests(&upstream);
    let list = once(&program, "/api/conversations", |page| page["conversations"][1]["requests"] == 2);
    assert_eq!((&list["total"], &list["conversations"][0]["id"]), (&json!(2), &json!("stopped")));
    let filtered = shown(&program, "/api/conversations?policy=kill&query=GPT&limit=5&offset=0");
    assert_eq!((&filtered["total"], &filtered["conversations"][0]["blocked"]), (&json!(1), &json!(1)));
    assert_eq!(open(&program, "GET", "/api/conversations?limit=x", &Value::Null).status, 400);
    let blocked = shown(&program, "/api/conversations/stopped");
    let decision = &blocked["decisions"][0];
    assert_eq!((&decision["policy"], &decision["verdict"]), (&json!("kill"), &json!("block")));
    assert!(decision["message"].as_str().is_some_and(|message| message.contains(' ')), "{decision}");
    assert_eq!(open(&program, "GET", "/api/conversations/nobody", &Value::Null).status, 404);
}

#[test]
fn a_conversation_is_shown_with_its_items_its_budgets_and_its_explanation() {
    let upstream = searcher();
    let program = after_three_requests(&upstream);
    let one = shown(&program, "/api/conversations/c1");
    let kinds: Vec<_> =
        one["items"].as_array().unwrap().iter().map(|item| item["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["system", "user", "call", "result"], "{one}");
    let [call, result] = [&one["items"][2], &one["items"][3]];
    assert_eq!((&call["tool"], &call["arguments"]), (&json!("search"), &json!("{\"q\":\"x\"}")));
    assert_eq!((&result["text"], &result["is_error"]), (&json!("Error: no such index"), &json!(true)));
    assert!(one["budgets"].as_array().unwrap().iter().any(|budget| budget["limit"] == 10), "{one}");
    let page = open(&program, "GET", "/api/conversations/c1/explain", &Value::Null);
    let text = page.text();
    assert!(text.contains("<html") && text.contains("&lt;b&gt;it&lt;/b&gt;"), "{text}");
    assert!(page.header("content-security-policy").unwrap().starts_with("default-src 'none'"));
}

#[test]
fn what_is_shown_of_a_conversation_is_redacted_unless_the_operator_wants_it_plain() {
    for (settings, is_plain) in [(settings(), false), (format!("admin.redact = false\n{}", settings()), true)]
    {
        let upstream = searcher();
        let program = Toolrein::before(&upstream, &settings);
        ask(&program, "c1", &[json!({"role": "user", "content": "Write to anna@example.org."})]);
        let path = "/api/conversations/c1";
        let page =
            once(&program, path, |page| page["items"].as_array().is_some_and(|items| !items.is_empty()));
        let explained = open(&program, "GET", &format!("{path}/explain"), &Value::Null).text();
        for shown in [page["items"].to_string(), explained] {
            assert_eq!(shown.contains("anna@example.org"), is_plain, "{shown}");
            assert_eq!(shown.contains("Write to [EMAIL_"), !is_plain, "{shown}");
        }
    }
}

#[test]
fn a_conversation_is_stopped_and_replayed_under_another_configuration() {
    let upstream = searcher();
    let program = after_three_requests(&upstream);
    let stop = open(&program, "POST", "/api/conversations/c1/stop", &Value::Null);
    assert_eq!(stop.status, 200, "{}", stop.text());
    assert_eq!(shown(&program, "/api/conversations/c1")["is_stopped"], true);
    let asked = json!({"conversation": "c1", "configuration": "[policy.kill]\nenabled = true\n"});
    let report = open(&program, "POST", "/api/replay", &asked);
    assert_eq!(report.status, 200, "{}", report.text());
    assert_eq!(report.json()["report"]["conversations"], 1);
}

#[test]
fn a_configuration_from_a_request_reads_no_variable_and_opens_no_file() {
    let upstream = searcher();
    let program = Toolrein::before_in(&upstream, &settings(), &[("SECRET_OF_THE_HOST", "hunter2")]);
    converse(&program);
    once(&program, "/api/overview", |page| page["requests"] == 2);
    let replay = |configuration: &str| {
        let asked = json!({"conversation": "c1", "configuration": configuration});
        open(&program, "POST", "/api/replay", &asked)
    };
    for configuration in [
        "mode = \"${SECRET_OF_THE_HOST}\"",
        r#"mode = "\u0024{SECRET_OF_THE_HOST}""#,
        r#"mode = "\U00000024\u007bSECRET_OF_THE_HOST}""#,
        r#"mode = "$\u007bSECRET_OF_THE_HOST:-x}""#,
        "mode = '${SECRET_OF_THE_HOST}'",
        r#"upstream.url = "http://\u0024{SECRET_OF_THE_HOST}/v1""#,
        r#"policy.rate_limit.tools = { f = { calls = 1, per = "\u0024{SECRET_OF_THE_HOST}" } }"#,
        r#"policy.allow.except = ["\u0024{SECRET_OF_THE_HOST}"]"#,
        r#"profile.a.models = ["\u0024{SECRET_OF_THE_HOST}"]"#,
    ] {
        let answer = replay(configuration);
        assert_eq!((answer.status, &answer.json()["error"]["code"]), (400, &json!("configuration_refused")));
        assert!(answer.text().contains("named at the start uses variables"), "{}", answer.text());
        assert!(!answer.text().contains("hunter2"), "{}", answer.text());
    }
    // Whether a file is there, and what it is, makes no difference.
    let folder = tempfile::tempdir().unwrap();
    let (file, missing) = (folder.path().join("a.pem"), folder.path().join("b.pem"));
    std::fs::write(&file, "-----BEGIN hunter2").unwrap();
    for key in [
        "upstream.ca_file = @",
        "listen.tls = { certificate = @, key = @ }",
        "audit.file = @",
        "record.dir = @",
        "admin.token_env = \"SECRET_OF_THE_HOST\"",
    ] {
        let answers = [&file, &missing, &folder.path().to_owned(), &missing.join("c")]
            .map(|path| replay(&key.replace('@', &format!("{:?}", path.to_str().unwrap()))));
        for answer in &answers {
            assert_eq!((answer.status, answer.text()), (200, answers[0].text()), "{key}");
        }
    }
    assert!(!missing.exists());
    // What is no variable is a text like any other.
    assert_eq!(replay("policy.allow.except = [\"a$b\", \"$${c}\"]").status, 200);
}

#[test]
fn the_public_configuration_and_the_log_show_no_secret_of_an_address() {
    let upstream = searcher();
    let settings = format!(
        "{}[policy.confirm]\ntools = [\"never\"]\nform = \"held\"\n[policy.confirm.webhook]\n\
         url = \"https://hooks.example:8443/services/T024BE7LD/s3cret-path?token=s3cret\"\nsecret_env = \"PATH\"\n\
         link = \"https://ops.example/approve/{{token}}?sig=s3cret\"\n\
         [policy.compact]\nstyle = \"summary\"\n[policy.compact.summary]\nmodel = \"m\"\n\
         url = \"https://gate.example/s3cretT0kenOfMine/v1\"\n\
         [profile.other]\npolicy.confirm.webhook = {{ url = \"https://hooks.example/s3cret\", secret_env = \"PATH\" }}\n",
        Person::SETTINGS
    );
    let program = Toolrein::before(&upstream, &settings);
    let shown = get(&format!("{}/config", program.admin_url())).text();
    assert!(shown.contains("https://hooks.example:8443/***") && !shown.contains("s3cret"), "{shown}");
    let config = std::fs::read_to_string(program.config_file()).unwrap();
    std::fs::write(program.config_file(), config.replace("s3cret-path", "s3cret-other")).unwrap();
    let difference = open(&program, "GET", "/api/config/difference", &Value::Null).text();
    assert!(
        difference.contains("policy.confirm.webhook.url") && !difference.contains("s3cret"),
        "{difference}"
    );
    ask(&program, "c1", &[]);
    let log = program.stop().join("\n");
    assert!(!log.contains("s3cret"), "{log}");
}

#[test]
fn wrong_tokens_are_counted_logged_once_and_answered_slowly() {
    const ATTEMPTS: u32 = 8;
    let upstream = searcher();
    let program = Toolrein::before(&upstream, &settings());
    let url = format!("{}/api/stops", program.admin_url());
    let begin = std::time::Instant::now();
    std::thread::scope(|scope| {
        for nth in 0..ATTEMPTS {
            let url = &url;
            scope.spawn(move || {
                let wrong = format!("Bearer a-wrong-token-of-number-{nth}");
                let refused = Request::new("GET", url, "").header("authorization", &wrong).send();
                assert_eq!(refused.status, 401);
            });
        }
        // Meanwhile the right one is answered, and a request without any is no attempt.
        assert_eq!(open(&program, "GET", "/api/stops", &Value::Null).status, 200);
        assert_eq!(get(&url).status, 401);
    });
    let least = std::time::Duration::from_millis(200) * (ATTEMPTS - 1);
    assert!(begin.elapsed() >= least, "{:?}", begin.elapsed());
    program.wait_for_metric("toolrein_admin_wrong_tokens_total", f64::from(ATTEMPTS));
    let log = program.stop();
    let lines: Vec<&String> = log.iter().filter(|line| line.contains("wrong token")).collect();
    assert_eq!(lines.len(), 1, "{log:?}");
    assert!(!log.join("\n").contains("a-wrong-token-of"), "{log:?}");
}

#[test]
fn without_the_token_there_are_no_contents_and_without_a_configured_one_none_are_kept() {
    let upstream = searcher();
    let program = Toolrein::before(&upstream, &settings());
    converse(&program);
    for path in ["/api/conversations", "/api/conversations/c1", "/api/events", "/api/config/difference"] {
        let refused = get(&format!("{}{path}", program.admin_url()));
        assert_eq!((refused.status, refused.header("www-authenticate")), (401, Some("Bearer")), "{path}");
    }
    let program = Toolrein::before(&upstream, "");
    converse(&program);
    for path in ["/api/conversations", "/api/conversations/c1/explain", "/api/events"] {
        assert_eq!(open(&program, "GET", path, &Value::Null).status, 404, "{path}");
    }
    assert_eq!(get(&format!("{}/api/overview", program.admin_url())).status, 200);
}

#[test]
fn events_come_while_they_happen() {
    let upstream = searcher();
    let program = Toolrein::before(&upstream, &settings());
    let mut stream = events(&program);
    ask(&program, "stopped", &[]);
    let text = stream.until("event: done");
    let text = if text.ends_with("\n\n") { text } else { stream.until("\"message\":\"200\"") };
    let place = |event: &str| {
        text.find(&format!("event: {event}\n")).unwrap_or_else(|| panic!("no {event} in {text}"))
    };
    assert!(place("tool_call_blocked") < place("re_ask") && place("re_ask") < place("done"), "{text}");
    let data = text.lines().find_map(|line| line.strip_prefix("data: ")).unwrap();
    let data: Value = serde_json::from_str(data).unwrap();
    assert_eq!(
        (&data["conversation"], &data["model"], &data["tool"], &data["policy"]),
        (&json!("stopped"), &json!("gpt-4o"), &json!("search"), &json!("kill"))
    );
    assert!(data["message"].as_str().is_some_and(|message| !message.is_empty()));
}

/// The stream of events of a program.
fn events(program: &Toolrein) -> Stream {
    let url = format!("{}/api/events", program.admin_url());
    let mut stream =
        Request::new("GET", &url, "").header("authorization", &format!("Bearer {ADMIN_TOKEN}")).open();
    stream.until(": events from now on");
    stream
}

/// Asks in a conversation for a stream, whose head has come.
fn ask_for_stream(program: &Toolrein, conversation: &str, more: &[Value]) -> Stream {
    let mut asked = body(more);
    asked["stream"] = json!(true);
    let request = Request::post(&program.chat_url(), asked.to_string());
    let stream = request.header("x-toolrein-conversation", conversation).open();
    assert_eq!(stream.status, 200);
    stream
}

#[test]
fn a_call_and_a_result_are_shown_while_the_upstream_holds_the_stream_open() {
    let gate = Gate::shut();
    let held = gate.clone();
    let upstream = Scripted::start(move |_, _| {
        let chunks = Speech::calls(&[("call_2", "search", "{\"q\":\"y\"}")]).chunks(false);
        Reply::events(&chunks).held_after(chunks.len() - 1, &held)
    });
    let program = Toolrein::before(&upstream, &settings());
    let mut events = events(&program);
    let call = json!({"id": "call_1", "type": "function", "function": {"name": "search", "arguments": "{\"q\":\"x\"}"}});
    let made = json!({"role": "assistant", "content": null, "tool_calls": [call]});
    let result = json!({"role": "tool", "tool_call_id": "call_1", "content": "Found."});
    let reply = ask_for_stream(&program, "c1", &[made, result]);
    let text = events.until("event: tool_call_start\n");
    assert!(text.contains("event: tool_result\n") && !text.contains("event: done\n"), "{text}");
    gate.open();
    assert!(!reply.rest().cut);
    let text = events.until("event: done\n");
    for event in ["tool_result", "tool_call_start", "done"] {
        assert_eq!(text.matches(&format!("event: {event}\n")).count(), 1, "{event} in {text}");
    }
}

#[test]
fn a_blocked_call_and_a_re_ask_are_shown_while_the_second_reply_is_awaited() {
    let gate = Gate::shut();
    let held = gate.clone();
    let upstream = Scripted::start(move |nth, request| match nth {
        0 => Reply::speech(request, &Speech::calls(&[("call_1", "search", "{\"q\":\"x\"}")])),
        _ => Reply::speech(request, &Speech::text("Done.")).held(&held),
    });
    let program = Toolrein::before(&upstream, &settings());
    let mut events = events(&program);
    let reply = ask_for_stream(&program, "stopped", &[]);
    let text = events.until("event: re_ask\n");
    assert!(text.contains("event: tool_call_blocked\n") && !text.contains("event: done\n"), "{text}");
    gate.open();
    assert!(!reply.rest().cut);
    let text = events.until("event: done\n");
    for event in ["tool_call_blocked", "re_ask", "done"] {
        assert_eq!(text.matches(&format!("event: {event}\n")).count(), 1, "{event} in {text}");
    }
}

#[test]
fn the_difference_to_the_file_is_shown_until_it_is_loaded() {
    let upstream = searcher();
    let program = Toolrein::before(&upstream, &settings());
    let path = json!(program.config_file().to_str());
    assert_eq!(shown(&program, "/api/config/difference"), json!({"path": path, "changed": []}));
    let text = std::fs::read_to_string(program.config_file()).unwrap();
    std::fs::write(program.config_file(), text.replace("tool_calls = 10", "tool_calls = 11")).unwrap();
    let changed = json!([{"key": "policy.budget.tool_calls", "in_force": "10", "in_file": "11"}]);
    once(&program, "/api/config/difference", |page| {
        page["changed"] == changed || page["changed"] == json!([])
    });
    assert!(program.reread());
    assert_eq!(shown(&program, "/api/config/difference"), json!({"path": path, "changed": []}));
    std::fs::write(program.config_file(), "mode = 7").unwrap();
    let refused = open(&program, "GET", "/api/config/difference", &Value::Null);
    assert_eq!((refused.status, &refused.json()["error"]["code"]), (409, &json!("file_refused")));
}

#[test]
fn decisions_of_people_are_kept_with_who_decided_and_why() {
    let settings = format!("{}[policy.confirm]\ntools = [\"search\"]\nform = \"held\"\n", Person::SETTINGS);
    let upstream = searcher();
    let program = Toolrein::before(&upstream, &settings);
    let person = Person::at(&program);
    std::thread::scope(|scope| {
        let asking = scope.spawn(|| ask(&program, "c1", &[]));
        let call = person.sees(1).remove(0);
        let path = format!("/api/confirmations/{}", call["token"].as_str().unwrap());
        let decision = json!({"decision": "decline", "approver": "Ann", "reason": "Not today."});
        assert_eq!(open(&program, "POST", &path, &decision).status, 200);
        asking.join().unwrap();
    });
    let history = shown(&program, "/api/confirmations/history");
    let decided = &history["history"][0];
    assert_eq!(
        (&decided["tool"], &decided["decision"], &decided["approver"], &decided["reason"]),
        (&json!("search"), &json!("decline"), &json!("Ann"), &json!("Not today."))
    );
    assert!(
        decided["at_ms"].is_u64() && decided["arguments"].as_str().unwrap().contains("\"q\""),
        "{decided}"
    );
}

#[test]
fn the_port_of_the_probes_has_no_other_page() {
    let upstream = Scripted::start(|_, request| Reply::speech(request, &Speech::text("Fine.")));
    let settings = "listen.probes = \"127.0.0.1:0\"\n[admin]\ntoken_env = \"TOKEN_OF_THE_TESTS\"\n";
    let program = Toolrein::before(&upstream, settings);
    let ask = |method: &str, path: &str, headers: &[(&str, &str)]| {
        let url = format!("http://127.0.0.1:{}{path}", program.probes_port());
        let request =
            headers.iter().fold(Request::new(method, &url, ""), |it, (name, value)| it.header(name, value));
        request.send()
    };
    for (path, text) in [("/livez", "live"), ("/readyz", "ready"), ("/metrics", "toolrein_build_info")] {
        let response = ask("GET", path, &[]);
        assert!(response.status == 200 && response.text().contains(text), "{path}: {}", response.text());
        assert_eq!(ask("POST", path, &[]).status, 405);
        // The name of the pod or its address: the kubelet's, Prometheus's or anybody's.
        assert_eq!(ask("GET", path, &[("sec-fetch-site", "cross-site")]).status, 403, "{path}");
    }
    let bearer = format!("Bearer {ADMIN_TOKEN}");
    for path in [
        "/",
        "/config",
        "/openapi.json",
        "/dashboard/api.js",
        "/api/overview",
        "/api/health",
        "/api/conversations",
        "/api/stops",
        "/metrics/",
        "//metrics",
        "/livez/../config",
        "/v1/chat/completions",
    ] {
        assert_eq!(ask("GET", path, &[("authorization", &bearer)]).status, 404, "{path}");
    }
    assert_eq!(ask("POST", "/api/replay", &[("authorization", &bearer)]).status, 404);
    assert_eq!(get(&format!("{}/config", program.admin_url())).json()["listen"]["probes"], "127.0.0.1:0");
}

/// The decision on the next call of `search` in the conversation that [`converse`] had, with these further members.
fn validated(program: &Toolrein, session: &Value) -> Value {
    let call = json!({"id": "call_1", "type": "function", "function": {"name": "search", "arguments": "{\"q\":\"x\"}"}});
    let made = json!({"role": "assistant", "content": null, "tool_calls": [call]});
    let result = json!({"role": "tool", "tool_call_id": "call_1", "content": "Error: no such index"});
    let mut asked =
        json!({"request": body(&[made, result]), "call": {"name": "search", "arguments": {"q": "y"}}});
    asked.as_object_mut().unwrap().extend(session.as_object().unwrap().clone());
    let response = open(program, "POST", "/api/validate", &asked);
    assert_eq!(response.status, 200, "{}", response.text());
    response.json()
}

/// The caller of the requests so far, as the log names it.
fn logged_caller(program: &Toolrein) -> String {
    until("a line with the caller", || {
        let lines = program.logs();
        let lines = lines.iter().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let mut callers = lines.filter_map(|line| Some(line["caller"].as_str()?.to_owned()));
        callers.next()
    })
}

#[test]
fn a_validation_knows_what_the_session_that_it_names_has_used() {
    let rate = "[policy.rate_limit]\ntools = { search = { calls = 1, per = \"1h\" } }\n";
    let quota = "[policy.quota]\nlimits = { searches = { tools = [\"search\"], calls = 1, per = \"1h\" } }\n";
    for (policy, settings, known, unknown) in [
        // Calls of a conversation, and calls of a caller over all of its conversations.
        (
            "rate_limit",
            rate,
            json!({"conversation": "c1", "caller": "sk-test"}),
            json!({"conversation": "c2", "caller": "sk-test"}),
        ),
        ("quota", quota, json!({"caller": "sk-test"}), json!({"conversation": "c1", "caller": "sk-other"})),
        ("quota", quota, json!({"conversation": "c9", "caller": "sk-test"}), json!({"conversation": "c1"})),
    ] {
        let upstream = searcher();
        let program = Toolrein::before(&upstream, &format!("{}{settings}", Person::SETTINGS));
        converse(&program);
        let hash = logged_caller(&program);
        let mut by_hash = known.clone();
        by_hash["caller"] = hash.into();
        // Nothing is stored: each is asked again, and is answered the same.
        for _ in 0..2 {
            for session in [&known, &by_hash] {
                let judged = validated(&program, session);
                assert_eq!(
                    (&judged["verdict"], &judged["policy"]),
                    (&json!("block"), &json!(policy)),
                    "{judged}"
                );
                assert_eq!(
                    (&judged["usage"][0]["used"], &judged["usage"][0]["limit"]),
                    (&json!(1), &json!(1)),
                    "{judged}"
                );
            }
            for session in [unknown.clone(), json!({})] {
                let judged = validated(&program, &session);
                assert_eq!(judged["verdict"], "allow", "{policy} {judged}");
            }
        }
        assert_eq!(upstream.requests().len(), 2, "nothing is sent");
    }
}

#[test]
fn a_validation_knows_that_a_conversation_is_stopped_and_in_which_state_it_is() {
    let states = "[policy.kill]\n[policy.states]\nstart = \"asking\"\n[policy.states.state.asking]\n\
        on = [{ event = \"tool_failed\", tool = \"search\", to = \"failed\" }]\n\
        [policy.states.state.failed]\ntools = []\nfinal = true\n";
    let upstream = searcher();
    let program = Toolrein::before(&upstream, &format!("{}{states}", Person::SETTINGS));
    let judged = validated(&program, &json!({"conversation": "c1", "caller": "sk-test"}));
    assert_eq!((&judged["policy"], &judged["state"]), (&json!("states"), &json!("failed")), "{judged}");
    let call = json!({"name": "search", "arguments": {}});
    let first = open(&program, "POST", "/api/validate", &json!({"request": body(&[]), "call": call})).json();
    assert_eq!((&first["verdict"], &first["state"]), (&json!("allow"), &json!("asking")), "before the call");
    assert_eq!(open(&program, "POST", "/api/conversations/c1/stop", &Value::Null).status, 200);
    let stopped = validated(&program, &json!({"conversation": "c1"}));
    assert_eq!((&stopped["verdict"], &stopped["policy"]), (&json!("block"), &json!("kill")), "{stopped}");
    assert_eq!(validated(&program, &json!({"conversation": "c2"}))["policy"], "states");
    let plain = Toolrein::before(&upstream, Person::SETTINGS);
    assert_eq!(validated(&plain, &json!({}))["state"], Value::Null, "no policy keeps states");
}

#[test]
fn a_validation_takes_the_profile_and_the_tier_of_the_caller_that_it_names() {
    // printf %s sk-free | sha256sum
    let free = "[tier.free]\nkeys = [\"sha256:a97ffab5cd3331858e03076328705ababa22813218d8511eb09bbbce51d39ff8\"]\n\
        [profile.free]\ntiers = [\"free\"]\npolicy.allow.except = [\"search\"]\n";
    let upstream = searcher();
    let program = Toolrein::before(&upstream, &format!("{}{free}", Person::SETTINGS));
    for (session, verdict) in [
        (json!({"caller": "sk-free"}), "block"),
        (json!({"caller": "sk-other"}), "allow"),
        (json!({}), "allow"),
    ] {
        assert_eq!(validated(&program, &session)["verdict"], verdict, "{session}");
    }
    let bad = json!({"request": body(&[]), "call": {"name": "search", "arguments": {}}, "caller": "a\nb"});
    assert_eq!(open(&program, "POST", "/api/validate", &bad).status, 400);
}
