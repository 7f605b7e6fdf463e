//! Reloads while requests run: what changes for which request, what stays, and what is logged.

use crate::governed::talk::{after, budget, calling, chat, log_line, question};
use crate::support::client::{Connection, Request, Response, get};
use crate::support::person::Person;
use crate::support::program::{Toolrein, before};
use crate::support::reply::{Gate, Reply, Speech};
use crate::support::scripted::Scripted;
use crate::support::until;
use serde_json::{Value, json};

/// The configuration in force, as the admin port shows it.
fn shown(toolrein: &Toolrein) -> Value {
    get(&format!("{}/config", toolrein.admin_url())).json()
}

fn is_told(toolrein: &Toolrein, words: &[&str]) {
    until(&format!("{words:?} in the log"), || {
        let logs = toolrein.logs();
        logs.iter().any(|line| words.iter().all(|word| line.contains(word))).then_some(())
    });
}

fn calls(reply: &Response) -> usize {
    reply.text().matches("\"finish_reason\":\"tool_calls\"").count()
}

#[test]
fn a_reloaded_limit_applies_to_new_requests_and_not_to_running_streams() {
    let gate = Gate::shut();
    let shut = gate.clone();
    let upstream = Scripted::start(move |nth, request| {
        let reply = calling(1)(nth, request);
        if nth == 0 { reply.held_after(1, &shut) } else { reply }
    });
    let with = |calls| before(&upstream.base_url(), &budget(calls));
    let toolrein = Toolrein::start(&with(50));
    let mut stream = Request::post(&toolrein.chat_url(), after(&["r"], true)).open();
    stream.until("assistant");
    assert!(toolrein.reload(&with(1)));
    for stream in [false, true] {
        let next = chat(&toolrein, after(&["r"], stream));
        assert_eq!((next.status, calls(&next)), (200, 0), "{}", next.text());
        assert!(next.text().contains("without."), "{}", next.text());
    }
    gate.open();
    let whole = stream.rest();
    assert_eq!((calls(&whole), whole.cut), (1, false), "{}", whole.text());
    assert_eq!(shown(&toolrein)["policy"]["budget"]["tool_calls"], 1);
    assert!(toolrein.reload(&with(50)));
    assert_eq!(calls(&chat(&toolrein, after(&["r"], false))), 1, "and back again");
    upstream.assert_clean();
}

#[test]
fn a_reload_of_an_invalid_file_changes_nothing_and_reports_every_problem() {
    let upstream = Scripted::start(calling(1));
    let toolrein = Toolrein::before(&upstream, &budget(1));
    let in_force = shown(&toolrein);
    let bad =
        "[policy.budget]\ntool_calls = \"many\"\n[limits]\nconections = 3\n[admin]\ntoken_env = \"1x\"\n";
    let no_token = "[policy.budget]\ntool_calls = 9\n[admin]\ntoken_env = \"IS_SET_NOWHERE\"\n";
    assert!(!toolrein.reload(&before(&upstream.base_url(), bad)));
    for problem in
        [":7: policy.budget.tool_calls: expected", ":9: limits.conections: unknown key", ":11: admin"]
    {
        is_told(&toolrein, &["\"error\"", "the old one stays in force", problem]);
    }
    assert!(!toolrein.reload(&before(&upstream.base_url(), no_token)), "what a start would refuse");
    is_told(&toolrein, &["the old one stays in force", "IS_SET_NOWHERE"]);
    std::fs::remove_file(toolrein.config_file()).unwrap();
    assert!(!toolrein.reread());
    is_told(&toolrein, &["the old one stays in force", "there is no such file"]);
    assert_eq!(shown(&toolrein), in_force);
    assert_eq!(calls(&chat(&toolrein, after(&["r"], false))), 0, "the limit is the old one");
    assert!(toolrein.reload(&before(&upstream.base_url(), &budget(2))), "a good one is taken afterwards");
    assert_eq!(calls(&chat(&toolrein, after(&["r"], false))), 1);
    toolrein.wait_for_metric("toolrein_config_reloads_total{result=\"refused\"}", 3.0);
    toolrein.wait_for_metric("toolrein_config_reloads_total{result=\"ok\"}", 1.0);
}

/// An editor empties a file before it writes it. An empty file would mean the shipped configuration, and callers'
/// credentials would be sent to its upstream.
#[test]
fn a_file_that_holds_no_table_is_refused_and_the_upstream_stays() {
    let upstream = Scripted::start(calling(1));
    let toolrein = Toolrein::before(&upstream, &budget(50));
    let in_force = shown(&toolrein);
    for (nth, text) in ["", "\n# written in a moment\n", "mode = \"observe\"\n"].into_iter().enumerate() {
        assert!(!toolrein.reload(text), "{text:?}");
        assert_eq!(shown(&toolrein), in_force, "{text:?}");
        toolrein.wait_for_metric("toolrein_config_reloads_total{result=\"refused\"}", (nth + 1) as f64);
    }
    is_told(
        &toolrein,
        &["\"error\"", "the old one stays in force", "has no table", "the configuration in force stays"],
    );
    assert_eq!(calls(&chat(&toolrein, after(&["r"], false))), 1);
    assert_eq!(upstream.requests().len(), 1, "it went where it went before");
}

#[test]
fn settings_that_need_a_restart_are_reported_and_still_shown_with_their_old_values() {
    let upstream = Scripted::start(calling(1));
    let toolrein = Toolrein::before(&upstream, &budget(1));
    let in_force = shown(&toolrein);
    let wanted = format!(
        "listen.proxy = \"127.0.0.1:9\"\nlisten.admin = \"127.0.0.1:0\"\nupstream.url = \"{}\"\n\
         upstream.remember = \"2h\"\nupstream.idle_timeout = \"7m\"\nmode = \"observe\"\n\
         [limits]\nconnections = 9\nheader_timeout = \"9s\"\nheld_bytes = \"1MiB\"\n\
         [store]\ncalls = 9\nttl = \"9h\"\n[audit]\nfile = \"audit.jsonl\"\n[log]\nformat = \"text\"\n{}",
        upstream.base_url(),
        budget(2)
    );
    assert!(toolrein.reload(&wanted));
    let now = shown(&toolrein);
    let waiting = [
        ["listen", "proxy"],
        ["upstream", "remember"],
        ["limits", "connections"],
        ["limits", "header_timeout"],
        ["store", "calls"],
        ["store", "ttl"],
        ["audit", "file"],
        ["log", "format"],
    ];
    for [table, key] in waiting {
        is_told(&toolrein, &["\"warn\"", &format!("needs a restart: {table}.{key}\"")]);
        assert_eq!(now[table][key], in_force[table][key], "{table}.{key}");
    }
    let told = toolrein.logs().iter().filter(|line| line.contains("needs a restart")).count();
    assert_eq!(told, waiting.len(), "and nothing else");
    assert_eq!((&now["mode"], &now["upstream"]["idle_timeout"]), (&json!("observe"), &json!("7m")));
    assert_eq!(
        (&now["limits"]["held_bytes"], &now["policy"]["budget"]["tool_calls"]),
        (&json!("1MiB"), &json!(2))
    );
    // New settings must be consistent with those that wait for a restart; otherwise they would not work until then.
    let quota =
        "[store]\nttl = \"72h\"\n[policy.quota.limits.day]\ntools = [\"f\"]\ncalls = 1\nper = \"48h\"\n";
    assert!(!toolrein.reload(&before(&upstream.base_url(), quota)));
    is_told(&toolrein, &["longer than the store keeps anything", "needs a restart: store.ttl"]);
}

#[test]
fn flags_and_variables_beat_the_file_that_is_read_again() {
    let upstream = Scripted::start(calling(1));
    let variables = [("TOOLREIN_MODE", "observe")];
    let toolrein = Toolrein::before_in(&upstream, &budget(1), &variables);
    assert!(toolrein.reload(&before(&upstream.base_url(), &format!("mode = \"off\"\n{}", budget(2)))));
    let now = shown(&toolrein);
    assert_eq!((&now["mode"], &now["policy"]["budget"]["tool_calls"]), (&json!("observe"), &json!(2)));
}

#[test]
fn another_upstream_takes_the_next_request_and_the_old_one_keeps_its_stream() {
    let gate = Gate::shut();
    let shut = gate.clone();
    let old = Scripted::start(move |_, request| {
        Reply::speech(request, &Speech::text("from the old one")).held_after(2, &shut)
    });
    let new = Scripted::start(|_, request| Reply::speech(request, &Speech::text("from the new one")));
    let toolrein = Toolrein::before(&old, &budget(1));
    let mut stream = Request::post(&toolrein.chat_url(), question(true)).open();
    stream.until("from");
    assert!(toolrein.reload(&before(&new.base_url(), &budget(1))));
    assert!(chat(&toolrein, question(false)).text().contains("from the new one"));
    let relayed = get(&format!("{}/v1/models", toolrein.origin()));
    assert_eq!((relayed.status, new.requests().len(), old.requests().len()), (200, 2, 1));
    gate.open();
    assert_eq!(stream.rest().streamed_text(), "from the old one");
}

#[test]
fn what_the_store_knows_outlives_the_configuration() {
    let upstream = Scripted::start(calling(1));
    let limits = "[policy.rate_limit]\ndefault = { calls = 1, per = \"1h\" }\n";
    let toolrein = Toolrein::before(&upstream, limits);
    let first = chat(&toolrein, question(false)).json();
    let mut body: Value = serde_json::from_str(&question(false)).unwrap();
    let messages = body["messages"].as_array_mut().unwrap();
    messages.push(first["choices"][0]["message"].clone());
    messages.push(json!({"role": "tool", "tool_call_id": "call_0_0", "content": "r"}));
    assert!(toolrein.reload(&before(&upstream.base_url(), &format!("{limits}[policy.truncate]\n"))));
    let second = chat(&toolrein, body.to_string());
    assert_eq!(calls(&second), 0, "the first call was made within the hour: {}", second.text());
    assert!(upstream.request(2).json()["messages"].to_string().contains("RATE_LIMIT"));
}

#[test]
fn a_held_call_can_still_be_approved_after_a_reload() {
    let upstream = Scripted::start(calling(1));
    let held = format!("{}[policy.confirm]\ntools = [\"f\"]\nform = \"held\"\n", Person::SETTINGS);
    let toolrein = Toolrein::before(&upstream, &held);
    let person = Person::at(&toolrein);
    std::thread::scope(|scope| {
        let asking = scope.spawn(|| chat(&toolrein, question(false)));
        person.sees(1);
        assert!(
            toolrein.reload(&before(&upstream.base_url(), &format!("{}{}", Person::SETTINGS, budget(1))))
        );
        assert_eq!(person.answers(true)["tool"], "f");
        assert_eq!(calls(&asking.join().unwrap()), 1);
    });
    assert_eq!(calls(&chat(&toolrein, question(false))), 1, "nobody is asked any more");
}

#[test]
fn the_level_of_the_log_changes_at_once() {
    let upstream = Scripted::start(calling(1));
    let toolrein = Toolrein::before(&upstream, "log.level = \"warn\"\n");
    chat(&toolrein, question(false));
    assert!(toolrein.reload(&before(&upstream.base_url(), "log.level = \"info,toolrein::proxy=debug\"\n")));
    chat(&toolrein, question(true));
    assert_eq!(log_line(&toolrein, 0)["streamed"], true, "the first request was not logged");
    Connection::open(toolrein.origin()).write(b"no request\r\n\r\n");
    is_told(&toolrein, &["\"debug\"", "a connection ended early"]);
}

/// A mounted ConfigMap: the file is a link into a folder that is itself a link, and that one is exchanged.
#[test]
fn a_changed_file_is_loaded_without_a_signal_and_a_bad_one_changes_nothing() {
    let upstream = Scripted::start(calling(1));
    let text =
        |calls: u32| format!("{}[reload]\nwatch = \"20ms\"\n", before(&upstream.base_url(), &budget(calls)));
    let toolrein = Toolrein::start(&text(50));
    let mounted = tempfile::tempdir().unwrap();
    let map = |name: &str, text: &str| {
        let version = mounted.path().join(name);
        std::fs::create_dir(&version).unwrap();
        std::fs::write(version.join("proxy.toml"), text).unwrap();
        let next = mounted.path().join("next");
        std::os::unix::fs::symlink(&version, &next).unwrap();
        std::fs::rename(next, mounted.path().join("data")).unwrap();
    };
    map("first", &text(9));
    std::fs::remove_file(toolrein.config_file()).unwrap();
    std::os::unix::fs::symlink(mounted.path().join("data/proxy.toml"), toolrein.config_file()).unwrap();
    toolrein.wait_for_metric("toolrein_config_reloads_total{result=\"ok\"}", 1.0);
    assert_eq!(shown(&toolrein)["policy"]["budget"]["tool_calls"], 9);
    map("second", &text(1));
    toolrein.wait_for_metric("toolrein_config_reloads_total{result=\"ok\"}", 2.0);
    assert_eq!(calls(&chat(&toolrein, after(&["r"], false))), 0, "the new limit is in force");
    map("third", "[policy.budget]\ntool_calls = \"many\"\n");
    toolrein.wait_for_metric("toolrein_config_reloads_total{result=\"refused\"}", 1.0);
    is_told(&toolrein, &["the old one stays in force", "policy.budget.tool_calls: expected"]);
    assert_eq!(shown(&toolrein)["policy"]["budget"]["tool_calls"], 1);
    assert!(toolrein.reload(&text(2)), "a signal still works");
}
