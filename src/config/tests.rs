//! Test cases of whole configurations: the shipped file against the code, which errors are reported and in which
//! words, and the settings in effect.

use super::document::Document;
use super::file::{self, File};
use super::*;
use policies::REGISTRY;
use std::collections::BTreeSet;
use std::time::Duration;

fn load(text: &str) -> Result<Config, Problems> {
    load_with(text, &Overrides::default())
}

fn load_with(text: &str, overrides: &Overrides) -> Result<Config, Problems> {
    let source = Source::Text { name: "proxy.toml".to_owned(), text: text.to_owned() };
    Config::load(source, overrides, REGISTRY)
}

fn problems(text: &str) -> Vec<String> {
    let problems = load(text).err().map_or_else(Vec::new, |problems| problems.0);
    problems.iter().map(ToString::to_string).collect()
}

/// The dotted keys of a table down to `depth`.
fn keys(table: &Map<String, Value>, depth: usize) -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    for (key, value) in table {
        match value {
            Value::Object(inner) if depth > 1 => {
                all.extend(keys(inner, depth - 1).into_iter().map(|deeper| format!("{key}.{deeper}")));
            }
            _ => {
                all.insert(key.clone());
            }
        }
    }
    all
}

fn table_of(text: &str) -> Map<String, Value> {
    let table: toml::Table = toml::from_str(text).unwrap();
    let Value::Object(table) = serde_json::to_value(table).unwrap() else { panic!() };
    table
}

#[test]
fn the_shipped_file_says_exactly_the_defaults_of_the_code() {
    let document = Document::parse("proxy.toml", shipped::TEXT).unwrap();
    let written = file::read(&document);
    assert_eq!(written.problems, []);
    assert_eq!(written.file, File::default());
}

#[test]
fn the_shipped_file_has_every_key_and_no_other() {
    let mut default = File::default();
    default.upstream.ca_file = Some("/ca.pem".into());
    let rates = |dollars: &str| toml::from_str(&format!("input = {dollars}\noutput = {dollars}")).unwrap();
    default.model.insert("*".to_owned(), Model { price: Some(rates("1.0")), ..Model::default() });
    default.tier.insert("premium".to_owned(), Tier::default());
    default.caller.insert("ann".to_owned(), KnownCaller::default());
    let Value::Object(code) = serde_json::to_value(&default).unwrap() else { panic!() };
    let mut paper = table_of(&shipped::with_all_that_is_off());
    let models = paper["model"].as_object().unwrap().values().cloned().collect::<Vec<_>>();
    let price = serde_json::json!({ "input": 2.5, "cached_input": 1.25, "cache_write": 2.5, "cache_write_hour": 5.0,
        "output": 10.0, "reasoning": 10.0 });
    let expected = serde_json::json!({ "token_factor": 1.0, "context_window": 0, "price": price });
    assert_eq!(models, [expected]);
    let Value::Object(policies) = paper.remove("policy").unwrap() else { panic!() };
    let chat = paper.remove("profile").unwrap()["chat"].as_object().unwrap().clone();
    assert_eq!(chat.keys().collect::<Vec<_>>(), ["extends", "models", "off", "policy", "tiers"]);
    assert_eq!(keys(&paper, 2), keys(&code, 2));
    for entry in REGISTRY {
        let known = known_keys(entry);
        let Value::Object(table) = &policies[entry.name] else { panic!("{}", entry.name) };
        assert_eq!(table.keys().cloned().collect::<BTreeSet<_>>(), known, "{}", entry.name);
    }
    assert_eq!(policies.len(), REGISTRY.len());
}

#[test]
fn a_default_that_is_off_and_takes_several_lines_is_read_whole() {
    let config =
        load("base = \"none\"\n[policy.ask_user]\n[policy.duplicates]\n[policy.turn_limits]\ncalls = 3")
            .unwrap();
    let on = config.effective.as_json();
    for last in ["\"input\"", "\"award*\"", "\"*_browse\"", "\"show_next*\"", "\"*_format*\""] {
        assert!(on.contains(last), "{last} is not in {on}");
    }
}

/// The keys that a policy accepts, from its error about an unknown one.
fn known_keys(entry: &policies::Entry) -> BTreeSet<String> {
    let text = "[x]\n\"no such key\" = 1";
    let mut root = toml::de::DeTable::parse(text).unwrap();
    let table = root.get_mut().remove("x").unwrap();
    let Err(policies::BuildError::Read(error)) = (entry.build)(table.into()) else {
        panic!("{}", entry.name)
    };
    error.message().split('`').skip(3).step_by(2).map(str::to_owned).collect()
}

#[test]
fn every_shipped_key_is_explained_by_a_comment_above_it() {
    let lines: Vec<&str> = shipped::TEXT.lines().collect();
    let mut in_tools = false;
    for (above, line) in lines.iter().zip(&lines[1..]) {
        let setting = line.strip_prefix('#').filter(|rest| !rest.starts_with(' ')).unwrap_or(line);
        if setting.starts_with('[') {
            in_tools = setting == "[policy.rate_limit.tools]";
        }
        if setting.contains(" = ") && !setting.starts_with([' ', '#']) && !in_tools {
            assert!(above.starts_with("# "), "no comment above: {line}");
        }
        assert!(line.chars().count() <= 120, "too long: {line}");
    }
}

#[test]
fn the_shipped_configuration_loads_with_its_policies_and_no_warning() {
    let config = Config::load(Source::Shipped, &Overrides::default(), REGISTRY).unwrap();
    let on = ["kill", "budget", "rate_limit", "loops", "allow", "arguments", "truncate", "compact"];
    assert_eq!(config.policies.names().collect::<Vec<_>>(), on);
    assert_eq!(config.warnings, [""; 0]);
    assert_eq!(config.models, []);
    assert_eq!(config.mode, Mode::Enforce);
}

#[test]
fn a_file_changes_the_shipped_policies() {
    let shipped = Config::load(Source::Shipped, &Overrides::default(), REGISTRY).unwrap();
    assert_eq!(load("").unwrap().effective, shipped.effective);
    let one = load("[policy.budget]\ntool_calls = 20").unwrap();
    let changes = shipped.effective.changes(&one.effective);
    let changes: Vec<_> = changes.iter().map(|it| (it.key.as_str(), it.new.as_deref())).collect();
    assert_eq!(changes, [("policy.budget.tool_calls", Some("20"))]);
}

#[test]
fn a_file_with_base_none_has_only_the_policies_that_it_names() {
    let names = |text: &str| load(text).unwrap().policies.names().collect::<Vec<_>>();
    assert_eq!(names("base = \"none\"\nmode = \"off\""), [""; 0]);
    assert_eq!(names("base = \"none\"\n[policy.truncate]\n[policy.budget]"), ["budget", "truncate"]);
    let own =
        load("base = \"none\"\n[policy.rate_limit]\ntools = { f = { calls = 1, per = \"1s\" } }").unwrap();
    let settings = [
        r#"default = { calls = 60, per = "60s" }"#,
        r#"wait = "0s""#,
        "texts = {}",
        r#"tools.f = { calls = 1, per = "1s" }"#,
    ];
    assert_eq!(own.policy_settings, [("rate_limit", settings.map(str::to_owned).to_vec())]);
}

#[test]
fn a_limit_that_a_file_adds_leaves_the_shipped_ones_in_force() {
    let settings = |text: &str| {
        let config = load(text).unwrap();
        let (_, settings) =
            config.policy_settings.iter().find(|(name, _)| *name == "rate_limit").unwrap().clone();
        settings
    };
    let shipped = settings("");
    let more = settings("[policy.rate_limit.tools]\nmine = { calls = 1, per = \"1s\" }");
    assert_eq!(more.len(), shipped.len() + 1);
    assert!(shipped.iter().all(|limit| more.contains(limit)), "{more:?}");
    // One member of a limit is changed, and the other keeps its value.
    assert_eq!(
        settings("[policy.rate_limit]\ndefault = { calls = 9 }")[0],
        r#"default = { calls = 9, per = "60s" }"#
    );
}

#[test]
fn a_default_limit_holds_for_the_tools_of_shipped_patterns_that_allow_more() {
    let patterns = |text: &str| -> Vec<String> {
        let config = load(text).unwrap();
        let (_, settings) =
            config.policy_settings.iter().find(|(name, _)| *name == "rate_limit").unwrap().clone();
        settings.into_iter().filter(|line| line.starts_with("tools.")).collect()
    };
    let all = patterns("");
    let set = "[policy.rate_limit]\ndefault = ";
    assert_eq!(patterns(&format!("{set}{{ calls = 5, per = \"60s\" }}")), [""; 0]);
    assert_eq!(patterns(&format!("{set}{{ calls = 100, per = \"1h\" }}")), [""; 0]);
    assert_eq!(patterns(&format!("{set}{{ calls = 5 }}")), [""; 0]);
    assert_eq!(patterns(&format!("base = \"none\"\n{set}{{ calls = 5, per = \"60s\" }}")), [""; 0]);
    for keeps in
        ["{ calls = 60, per = \"60s\" }", "{ calls = 0, per = \"60s\" }", "{ calls = 5, per = \"1s\" }"]
    {
        assert_eq!(patterns(&format!("{set}{keeps}")), all, "{keeps}");
    }
    let some = patterns(&format!("{set}{{ calls = 18, per = \"60s\" }}"));
    assert!(some.iter().all(|line| line.contains("calls = 15") || line.contains("calls = 10")), "{some:?}");
    assert_eq!(some.len(), 7);
    // What a file says itself holds, also where it says what is shipped.
    let own = format!(
        "{set}{{ calls = 5, per = \"60s\" }}\n[policy.rate_limit.tools]\n\"*search*\" = {{ calls = 30, per = \"60s\" }}\nmine = {{ calls = 40, per = \"60s\" }}"
    );
    assert_eq!(patterns(&own).len(), 2);
}

#[test]
fn enabled_switches_a_policy_on_or_off_and_its_table_is_checked_either_way() {
    let shipped: Vec<&str> = load("").unwrap().policies.names().collect();
    let names = |text: &str| load(text).unwrap().policies.names().collect::<Vec<_>>();
    let without = |name: &str| shipped.iter().copied().filter(|it| *it != name).collect::<Vec<_>>();
    assert_eq!(names("[policy.budget]\nenabled = false\ntool_calls = 3"), without("budget"));
    assert_eq!(names("[policy.budget]\nenabled = true"), shipped);
    assert!(names("[policy.serial]\nenabled = true").contains(&"serial"));
    assert_eq!(names("[policy.serial]\nenabled = false"), shipped);
    each_has_one_problem(&[
        (
            "[policy.budget]\nenabled = false\ntool_call = 3",
            "proxy.toml:3: policy.budget.tool_call: unknown key; did you mean `tool_calls`?",
        ),
        ("[policy.budget]\nenabled = 1", "proxy.toml:2: policy.budget.enabled: expected true or false"),
    ]);
}

#[test]
fn a_profile_can_enable_a_disabled_policy_and_keeps_its_settings() {
    let config = load(
        "[policy.budget]\nenabled = false\ntool_calls = 7\n[profile.a.policy.budget]\n[profile.b.policy.loops]\nenabled = false",
    )
    .unwrap();
    let of = |name: &str| config.profiles.named(name).unwrap();
    let settings = of("a").policy_settings().next().unwrap();
    assert_eq!((settings.0, settings.1[0].as_str()), ("budget", "tool_calls = 7"));
    assert!(!config.policies.names().any(|name| name == "budget"));
    assert!(!of("b").policies.names().any(|name| name == "loops"));
    assert_eq!(of("b").policy_settings().next(), Some(("loops", vec!["enabled = false".to_owned()])));
}

#[test]
fn the_effective_settings_read_as_a_file_have_the_same_effect() {
    for text in [
        "",
        "base = \"none\"",
        "[policy.budget]\nenabled = false\n[policy.serial]",
        "[profile.a.policy.loops]\nenabled = false\n[profile.b]\noff = [\"budget\"]",
    ] {
        let config = load(text).unwrap();
        let again = load(config.effective.as_toml()).unwrap();
        assert_eq!(again.effective, config.effective, "{text}");
        assert_eq!(again.policy_names(), config.policy_names(), "{text}");
    }
}

fn with_variables(text: &str, settings: &[(&str, &str)]) -> Result<Config, Problems> {
    let settings = settings.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    load_with(text, &Overrides { settings, ..Overrides::default() })
}

#[test]
fn a_variable_sets_any_key_over_the_file() {
    let file = "mode = \"off\"\n[policy.rate_limit.tools]\nsearchAll = { calls = 1, per = \"1s\" }";
    let config = with_variables(
        file,
        &[
            ("TOOLREIN__MODE", "observe"),
            ("TOOLREIN__UPSTREAM__IDLE_TIMEOUT", "7s"),
            ("TOOLREIN__POLICY__BUDGET__TOOL_CALLS", "20"),
            ("TOOLREIN__POLICY__RATE_LIMIT__TOOLS__SEARCHALL__CALLS", "4"),
            ("TOOLREIN__POLICY__COMPACT__ENABLED", "false"),
        ],
    )
    .unwrap();
    assert_eq!(config.mode, Mode::Observe);
    assert_eq!(config.upstream.idle_timeout, Duration::from_secs(7));
    let toml = config.effective.as_toml();
    assert!(
        toml.contains("tool_calls = 20\n") && toml.contains("searchAll = { per = \"1s\", calls = 4 }"),
        "{toml}"
    );
    assert!(!config.policies.names().any(|name| name == "compact"));
    assert_ne!(config.hash, load(file).unwrap().hash, "two pods with other variables differ");
}

#[test]
fn a_wrong_variable_is_named_with_what_it_sets() {
    for (name, value, expected) in [
        (
            "TOOLREIN__POLICY__BUGDET__TOOL_CALLS",
            "2",
            "policy.bugdet: unknown policy; did you mean `budget`?",
        ),
        (
            "TOOLREIN__POLICY__BUDGET__TOOL_CALL",
            "2",
            "policy.budget.tool_call: unknown key; did you mean `tool_calls`?",
        ),
        (
            "TOOLREIN__POLICY__BUDGET__TOOL_CALLS",
            "many",
            "policy.budget.tool_calls: expected a whole number, 0 or more, found \"many\"",
        ),
        (
            "TOOLREIN__UPSTREAM__IDLE_TIMEOUT",
            "0s",
            "upstream.idle_timeout: expected a duration from 1ms to 1 year, found 0s",
        ),
        ("TOOLREIN__MODE__X", "1", "mode.x: mode is not a table"),
        ("TOOLREIN__", "1", "expected a key after TOOLREIN__, such as TOOLREIN__POLICY__BUDGET__TOOL_CALLS"),
    ] {
        let problems = with_variables("mode = \"off\"", &[(name, value)]).err().unwrap().0;
        let texts: Vec<String> = problems.iter().map(ToString::to_string).collect();
        assert_eq!(texts, [format!("{name}: {expected}")], "{name}");
    }
}

#[test]
fn variables_in_strings_come_from_the_environment() {
    // PATH is always set where cargo runs.
    let path = std::env::var("PATH").unwrap();
    let config = load("[policy.kill]\nmessage = \"${PATH}, ${TOOLREIN_NOT_SET:-else}\"").unwrap();
    assert!(config.effective.as_json().contains(&format!("{path}, else")), "{config:?}");
    each_has_one_problem(&[(
        "\n[policy.kill]\nmessage = \"${TOOLREIN_NOT_SET}\"",
        "proxy.toml:3: policy.kill.message: the variable TOOLREIN_NOT_SET is not set; write ${TOOLREIN_NOT_SET:-default} to do without it",
    )]);
    // A variable that is not replaced is no address, which must not count as a second problem.
    each_has_one_problem(&[(
        "[upstream]\nurl = \"${TOOLREIN_NOT_SET}\"",
        "proxy.toml:2: upstream.url: the variable TOOLREIN_NOT_SET is not set; write ${TOOLREIN_NOT_SET:-default} to do without it",
    )]);
}

/// Each text has this problem and no other.
fn each_has_one_problem(cases: &[(&str, &str)]) {
    for (text, said) in cases {
        assert_eq!(problems(text), [*said], "{text}");
    }
}

#[test]
fn unknown_names_are_reported_with_the_nearest_known_one() {
    let policies: Vec<&str> = REGISTRY.iter().map(|entry| entry.name).collect();
    each_has_one_problem(&[
        ("\nmod = \"off\"", r"proxy.toml:2: mod: unknown key; did you mean `mode`?"),
        ("[listn]\nproxy = 1", "proxy.toml:1: listn: unknown table; did you mean `listen`?"),
        (
            "[dashboard]",
            "proxy.toml:1: dashboard: unknown table; known here: base, mode, reload, listen, upstream, limits, notices, conversation, reask, responses, messages, store, log, audit, record, admin, telemetry, model, caller, tier, policy, profile",
        ),
        ("[listen]\nprxy = 1", "proxy.toml:2: listen.prxy: unknown key; did you mean `proxy`?"),
        (
            "[limits]\nrequest-bytes = 1",
            "proxy.toml:2: limits.request-bytes: unknown key; did you mean `request_bytes`?",
        ),
        ("[policy.budgets]", "proxy.toml:1: policy.budgets: unknown policy; did you mean `budget`?"),
        (
            "[policy.telepathy]",
            &format!("proxy.toml:1: policy.telepathy: unknown policy; known here: {}", policies.join(", ")),
        ),
        (
            "[policy.budget]\n\ntool_call = 3",
            "proxy.toml:3: policy.budget.tool_call: unknown key; did you mean `tool_calls`?",
        ),
        (
            "[policy.rate_limit.tools]\nf = { call = 3, per = \"1s\" }",
            "proxy.toml:2: policy.rate_limit.tools.f.call: unknown key; did you mean `calls`?",
        ),
        (
            "[model.gpt-4.1]\ntoken_factor = 1",
            "proxy.toml:1: model.gpt-4.1: unknown table; quote names that contain dots: [model.\"gpt-4.1\"]",
        ),
        (
            "[model.\"gpt-4.1\"]\nfactor = 1",
            "proxy.toml:2: model.\"gpt-4.1\".factor: unknown key; did you mean `token_factor`?",
        ),
    ]);
}

#[test]
fn values_of_the_wrong_kind_are_reported() {
    each_has_one_problem(&[
        ("mode = 1", "proxy.toml:1: mode: expected a string"),
        ("mode = \"on\"", r#"proxy.toml:1: mode: expected "enforce" or "observe" or "off", found "on""#),
        (
            "responses.websocket = \"off\"",
            r#"proxy.toml:1: responses.websocket: expected "http" or "pass", found "off""#,
        ),
        ("listen = 3", "proxy.toml:1: listen: expected a table, such as [listen]"),
        ("[[limits]]", "proxy.toml:1: limits: expected a table, such as [limits]"),
        ("policy = 3", "proxy.toml:1: policy: expected a table, such as [policy]"),
        ("[policy]\nbudget = []", "proxy.toml:2: policy.budget: expected a table, such as [policy.budget]"),
        (
            "[[policy.rate_limit.tools]]\nx = 1",
            "proxy.toml:1: policy.rate_limit.tools: expected a table, found a list",
        ),
        ("[[policy.budget]]", "proxy.toml:1: policy.budget: expected a table, such as [policy.budget]"),
        ("[model]\nx = 3", "proxy.toml:2: model.x: expected a table, such as [model.x]"),
        ("[model.\"\"]", "proxy.toml:1: model: expected the name of a model, or a pattern such as \"gpt-*\""),
        ("[[model.x]]", "proxy.toml:1: model.x: expected a table, such as [model.x]"),
        ("[reask]\nmax = \"3\"", r#"proxy.toml:2: reask.max: expected a whole number, 0 or more, found "3""#),
        ("[reask]\nmax = -1", "proxy.toml:2: reask.max: expected a whole number, 0 or more, found -1"),
        (
            "[upstream]\nhttp2 = \"yes\"",
            r#"proxy.toml:2: upstream.http2: expected true or false, found "yes""#,
        ),
        (
            "[notices]\nsystem_models = \"gpt-4\"",
            r#"proxy.toml:2: notices.system_models: expected a list, found "gpt-4"; write system_models = ["gpt-4"]"#,
        ),
        (
            "[policy.budget]\nnotify_at = \"half\"",
            r#"proxy.toml:2: policy.budget.notify_at: expected a list of shares such as [0.5, 0.7, 0.9], found "half""#,
        ),
        (
            "[policy.budget]\nexhausted = \"stop\"",
            r#"proxy.toml:2: policy.budget.exhausted: expected "auto" or "answer" or "inform" or "reject" or "ask", found "stop""#,
        ),
    ]);
}

#[test]
fn durations_sizes_and_policies_own_checks_are_reported() {
    each_has_one_problem(&[
        (
            "[upstream]\nremember = 60",
            "proxy.toml:2: upstream.remember: expected a duration such as \"30s\", found 60",
        ),
        (
            "[upstream]\nidle_timeout = \"soon\"",
            r#"proxy.toml:2: upstream.idle_timeout: expected a duration with its unit, such as "60s", "10m" or "1h", found "soon""#,
        ),
        (
            "[upstream]\nidle_timeout = \"0s\"",
            "proxy.toml:2: upstream.idle_timeout: expected a duration from 1ms to 1 year, found 0s",
        ),
        (
            "[limits]\ndrain_timeout = \"2years\"",
            "proxy.toml:2: limits.drain_timeout: expected at most 1 year, found 17532h",
        ),
        (
            "[limits]\nheld_bytes = \"4 megs\"",
            r#"proxy.toml:2: limits.held_bytes: expected a size such as "64KiB" or "4MB", or a number of bytes, found "4 megs""#,
        ),
        (
            "[limits]\nheld_bytes = -4",
            r#"proxy.toml:2: limits.held_bytes: expected a size such as "64KiB" or "4MB", or a number of bytes, found -4"#,
        ),
        (
            "[limits]\nrequest_bytes = 0",
            "proxy.toml:2: limits.request_bytes: expected at least 1KiB, found 0B",
        ),
        (
            "[policy.rate_limit]\ndefault = { calls = 1, per = \"0s\" }",
            "proxy.toml:2: policy.rate_limit.default.per: expected a window longer than 0",
        ),
        (
            "[policy.rate_limit.tools]\n\"a.b*\" = { calls = 1, per = \"0s\" }",
            "proxy.toml:2: policy.rate_limit.tools.\"a.b*\".per: expected a window longer than 0",
        ),
        (
            "base = \"none\"\n[policy.rate_limit]\ndefault = { calls = 1 }",
            "proxy.toml:3: policy.rate_limit.default: `per` is missing",
        ),
    ]);
}

#[test]
fn budgets_that_cannot_work_are_reported() {
    each_has_one_problem(&[
        (
            "[policy.budget]\nnotify_at = [0.9, 0.5]",
            "proxy.toml:2: policy.budget.notify_at: expected shares that ascend",
        ),
        (
            "[policy.budget]\ntokens = 5",
            "proxy.toml:2: policy.budget.tokens: unknown key; did you mean `context_tokens`?",
        ),
        (
            "[policy.budget]\nspend_usd = -0.5",
            "proxy.toml:2: policy.budget.spend_usd: expected dollars, 0 or more, found -0.5",
        ),
        (
            "[policy.budget]\nexhausted = \"ask\"",
            "proxy.toml:2: policy.budget.exhausted: \"ask\" needs policy.confirm, which says how a person is asked",
        ),
        (
            "[policy.confirm]\n[policy.budget]\nspend_usd = 1\nexhausted = \"ask\"\nextension = 20",
            "proxy.toml:5: policy.budget.extension: a number extends only limits of tool calls and requests; expected a \
             share such as 0.4, since tokens, money or time are limited too",
        ),
        ("[policy.budget]\nextension = 0", "proxy.toml:2: policy.budget.extension: expected at least 1 call"),
        (
            "[policy.budget.day]\nspend_us = 1",
            "proxy.toml:2: policy.budget.day.spend_us: unknown key; did you mean `spend_usd`?",
        ),
        (
            "[policy.budget.texts]\nnotice = \"{lefft}\"",
            "proxy.toml:2: policy.budget.texts.notice: there is no placeholder {lefft} in this text; expected {used}, \
             {left}, {advice}",
        ),
    ]);
}

#[test]
fn addresses_are_read_as_people_write_them() {
    for (written, expected) in [
        ("127.0.0.1:4000", "127.0.0.1:4000"),
        ("0.0.0.0:4000", "0.0.0.0:4000"),
        ("[::1]:4000", "[::1]:4000"),
        ("localhost:4000", "127.0.0.1:4000"),
        (":4000", "127.0.0.1:4000"),
        ("4000", "127.0.0.1:4000"),
    ] {
        let overrides = Overrides { listen: Some(written.to_owned()), ..Overrides::default() };
        let config = load_with("", &overrides).unwrap();
        assert_eq!(config.listen.proxy.to_string(), expected, "{written}");
    }
    for written in ["", ":", "localhost", "localhost:", ":+1", "65536", "1.2.3.4", "::1:x"] {
        let overrides = Overrides { listen: Some(written.to_owned()), ..Overrides::default() };
        assert!(load_with("", &overrides).is_err(), "{written}");
    }
}

#[test]
fn invalid_addresses_and_file_paths_are_reported() {
    each_has_one_problem(&[
        (
            "[listen]\nproxy = \"myhost:80\"",
            r#"proxy.toml:2: listen.proxy: expected an address and port, such as "127.0.0.1:4242" or ":4242", found "myhost:80""#,
        ),
        (
            "[listen]\nproxy = \"127.0.0.1:4243\"",
            "proxy.toml:2: listen.proxy: 127.0.0.1:4243 is taken by listen.proxy (127.0.0.1:4243)",
        ),
        (
            "[listen]\nproxy = \"127.0.0.1:1\"\nadmin = \"0.0.0.0:1\"",
            "proxy.toml:3: listen.admin: 0.0.0.0:1 is taken by listen.proxy (127.0.0.1:1)",
        ),
        (
            "[upstream]\nurl = \"api.openai.com/v1\"",
            r#"proxy.toml:2: upstream.url: expected a URL with its scheme, such as "https://api.openai.com/v1", or "demo:", found "api.openai.com/v1""#,
        ),
        (
            "[upstream]\nurl = \"ftp://h/v1\"",
            r#"proxy.toml:2: upstream.url: expected http:// or https://, found "ftp://h/v1""#,
        ),
        (
            "[upstream]\nurl = \"https://h/v1 \"",
            r#"proxy.toml:2: upstream.url: expected a URL without spaces, found "https://h/v1 ""#,
        ),
        (
            "[upstream]\nurl = \"https://me:pw@h/v1\"",
            r#"proxy.toml:2: upstream.url: expected a URL without credentials (those of the client are passed on), found "https://***@h/v1""#,
        ),
        (
            "[upstream]\nurl = \"http://127.0.0.1:4242/v1\"",
            "proxy.toml:2: upstream.url: http://127.0.0.1:4242/v1 is listen.proxy itself: requests would go round in circles",
        ),
        (
            "[upstream]\nca_file = \"/no/such.pem\"",
            "proxy.toml:2: upstream.ca_file: /no/such.pem: there is no such file",
        ),
        (
            "[audit]\nfile = \"/no/such/audit.jsonl\"",
            "proxy.toml:2: audit.file: /no/such/audit.jsonl: there is no directory /no/such",
        ),
        ("[audit]\nfile = \"/\"", "proxy.toml:2: audit.file: /: is a directory, not a file"),
    ]);
}

#[test]
fn invalid_header_names_member_paths_and_log_levels_are_reported() {
    each_has_one_problem(&[
        (
            "[conversation]\nheaders = [\"x y\"]",
            r#"proxy.toml:2: conversation.headers: expected the name of a header, such as "x-session-id", found "x y""#,
        ),
        (
            "[conversation]\nheaders = [\"Authorization\"]",
            "proxy.toml:2: conversation.headers: authorization carries a credential, which would be shown as the conversation's id",
        ),
        (
            "[conversation]\nheaders = [\"x-toolrein-conversation\"]",
            "proxy.toml:2: conversation.headers: x-toolrein-conversation is always used first, so leave it out",
        ),
        (
            "[conversation]\nbody = [\"metadata.\"]",
            r#"proxy.toml:2: conversation.body: expected a path into the body, such as "metadata.session_id", found "metadata.""#,
        ),
        (
            "[conversation]\nholdout = 5",
            "proxy.toml:2: conversation.holdout: expected a share from 0 to 1, found 5",
        ),
        (
            "[upstream]\nask_usage = \"yes\"",
            r#"proxy.toml:2: upstream.ask_usage: expected true, false or "auto", found "yes""#,
        ),
        (
            "[reask]\nanswer_tools = [\"\"]",
            r#"proxy.toml:2: reask.answer_tools: expected a name, or a pattern such as "search*", found """#,
        ),
        (
            "[log]\nlevel = \"inof\"",
            r#"proxy.toml:2: log.level: expected a level (off, error, warn, info, debug, trace) or levels by module ("info,toolrein::proxy=debug"), found "inof"; did you mean "info"?"#,
        ),
    ]);
}

#[test]
fn numbers_that_contradict_each_other_are_reported() {
    each_has_one_problem(&[
        (
            "[limits]\nheld_bytes = \"512KiB\"",
            "proxy.toml:2: limits.held_bytes: limits.held_bytes (512KiB) is less than limits.event_bytes (1MiB)",
        ),
        (
            "[limits]\nheld_bytes = \"64MiB\"",
            "proxy.toml:2: limits.held_bytes: limits.reply_bytes (32MiB) is less than limits.held_bytes (64MiB)",
        ),
        ("[reask]\nmax = 21", "proxy.toml:2: reask.max: expected at most 20, found 21"),
        ("[store]\ncalls = 0", "proxy.toml:2: store.calls: expected more than 0"),
        (
            "[model.x]\ntoken_factor = 0",
            "proxy.toml:2: model.x.token_factor: expected a factor from 0.1 to 10, found 0",
        ),
    ]);
}

#[test]
fn toml_syntax_errors_are_reported_with_their_lines() {
    for (text, lines) in [
        ("mode = off", vec![1]),
        ("[listen\nproxy = 1", vec![1]),
        ("mode = \"off\"\nmode = \"observe\"", vec![2]),
        ("[listen]\n[listen]", vec![2]),
        ("[reask]\nmax = \n\n[log]\nlevel = ", vec![2, 5]),
    ] {
        let problems = load(text).unwrap_err().0;
        assert_eq!(problems.iter().filter_map(|problem| problem.line).collect::<Vec<_>>(), lines, "{text}");
        assert!(problems.iter().all(|problem| problem.text.starts_with("not TOML: ")), "{problems:?}");
    }
}

#[test]
fn every_problem_is_reported_at_once_in_the_order_of_lines() {
    let text = r#"mod = "off"
[listen]
proxy = "here"
admin = "there"
[limits]
held_bytes = "x"
reply_bytes = "1MiB"
colour = 3
[reask]
answer_tools = ["a", 1, ""]
[policy.budget]
tool_calls = "many"
notify_at = [0.9]
notify = "late"
exhausted = "stop"
[policy.rate_limit]
default = { calls = "x", per = "0s" }
tools = { f = { calls = 1, per = "0s" }, g = { calls = 1 } }
[policy.nothing]
"#;
    let problems = load(text).unwrap_err().0;
    let places: Vec<(usize, &str)> =
        problems.iter().map(|problem| (problem.line.unwrap(), problem.key.as_str())).collect();
    assert_eq!(
        places,
        [
            (1, "mod"),
            (3, "listen.proxy"),
            (4, "listen.admin"),
            (6, "limits.held_bytes"),
            (8, "limits.colour"),
            (10, "reask.answer_tools"),
            (10, "reask.answer_tools"),
            (12, "policy.budget.tool_calls"),
            (14, "policy.budget.notify"),
            (15, "policy.budget.exhausted"),
            (17, "policy.rate_limit.default.calls"),
            (18, "policy.rate_limit.tools.g"),
            (18, "policy.rate_limit.tools.f.per"),
            (19, "policy.nothing"),
        ],
        "{}",
        Problems(problems.clone())
    );
}

#[test]
fn a_file_of_nothing_but_mistakes_is_reported_within_bounds() {
    let mistakes: [fn(usize) -> String; 7] = [
        |at| format!("k{at} = 1\n"),
        |at| format!("k{at} = [\n"),
        |at| format!("[policy.p{at}]\n"),
        |at| format!("model.m{at} = 3\n"),
        |at| format!("tier.t{at} = 3\n"),
        |at| format!("profile.p{at} = 3\n"),
        |at| format!("[profile.p{at}]\ntiers = [\"t\"]\npolicy.budget.tool_calls = \"x\"\n"),
    ];
    for mistake in mistakes {
        let text: String = (0..5_000).map(mistake).collect();
        let reported = load(&text).unwrap_err().0.len();
        assert!((1..=200).contains(&reported), "{reported} for {}", mistake(0));
    }
}

#[test]
fn overrides_beat_the_file() {
    let overrides = Overrides {
        listen: Some("127.0.0.1:0".to_owned()),
        admin: Some("127.0.0.1:0".to_owned()),
        upstream: Some("demo:".to_owned()),
        mode: Some("observe".to_owned()),
        log_level: Some("debug".to_owned()),
        settings: Vec::new(),
        inherited: None,
    };
    let text =
        "mode = \"off\"\n[listen]\nproxy = \"127.0.0.1:9\"\n[upstream]\nurl = \"https://h/v1\"\nhttp2 = true";
    let config = load_with(text, &overrides).unwrap();
    assert_eq!(config.mode, Mode::Observe);
    assert_eq!((config.listen.proxy.port(), config.listen.admin.port()), (0, 0));
    assert_eq!(config.upstream.url, Target::Demo);
    assert!(config.upstream.http2);
    assert!(config.effective.as_toml().contains("url = \"demo:\""));
}

#[test]
fn problems_of_overrides_name_the_flag_and_come_last() {
    let overrides = Overrides {
        listen: Some("4242x".to_owned()),
        admin: None,
        upstream: Some("https://h".to_owned()),
        mode: Some("of".to_owned()),
        ..Overrides::default()
    };
    let problems = load_with("x = 1", &overrides).unwrap_err().to_string();
    let lines: Vec<&str> = problems.lines().collect();
    assert!(lines[0].starts_with("proxy.toml:1: x: unknown key"), "{problems}");
    assert_eq!(
        lines[1..],
        [
            r#"--listen or TOOLREIN_LISTEN: listen.proxy: expected an address and port, such as "127.0.0.1:4242" or ":4242", found "4242x""#,
            r#"--mode or TOOLREIN_MODE: mode: expected "enforce" or "observe" or "off", found "of""#,
        ]
    );
    let clash = Overrides { admin: Some("127.0.0.1:4242".to_owned()), ..Overrides::default() };
    assert_eq!(
        load_with("", &clash).unwrap_err().to_string(),
        "--admin or TOOLREIN_ADMIN: listen.admin: 127.0.0.1:4242 is taken by listen.proxy (127.0.0.1:4242)"
    );
}

#[test]
fn policies_that_never_act_are_warned_of() {
    for (text, said) in [
        (
            "[policy.taint]",
            "policy.taint: has no effect: no policy that is on flags results; policy.injection does",
        ),
        (
            "[policy.read_more]",
            "policy.read_more: has no effect: no policy that is on shortens or clears results",
        ),
        ("[policy.confirm]", "policy.confirm: has no effect: it names no tools"),
        ("[policy.serial]\ntools = []", "policy.serial: has no effect: it names no tools"),
        ("[policy.min_conversation]", "policy.min_conversation: has no effect: it names no tools"),
        ("[policy.duplicates]\ntools = []", "policy.duplicates: has no effect: it names no tools"),
        ("[policy.fresh]", "policy.fresh: has no effect: it has no rules"),
        ("[policy.quota]", "policy.quota: has no effect: no limit is set"),
        ("[policy.turn_limits]\ncategories = {}", "policy.turn_limits: has no effect: no limit is set"),
        (
            "[policy.rate_limit]\ndefault = { calls = 0, per = \"1s\" }\ntools = {}",
            "policy.rate_limit: has no effect: no limit is set",
        ),
        (
            "[policy.loops]\nnotice = 0\nblock = 0\nempty = 0\nempty_block = 0",
            "policy.loops: has no effect: no limit is set",
        ),
        (
            "[policy.truncate]\nmax_chars = 0\nblob_chars = 0\nduplicates = false",
            "policy.truncate: has no effect: no limit is set",
        ),
        (
            "[policy.allow]\nundeclared = \"pass\"",
            "policy.allow: has no effect: it names no tools, and undeclared ones pass",
        ),
        (
            "[policy.loops]\nnotice = 4\nblock = 3",
            "policy.loops.block: 3 is less than notice (4), so calls are blocked before the model is warned",
        ),
        (
            "[policy.loops]\nempty = 5\nempty_block = 5",
            "policy.loops.empty_block: 5 is not more than empty (5), so calls are blocked before the model is warned",
        ),
        (
            "[policy.loops]\n[profile.a.policy.taint]",
            "profile.a.policy.taint: has no effect: no policy that is on flags results",
        ),
        (
            "[policy.loops]\n[admin]\ntoken_env = \"TOOLREIN_NOT_SET\"",
            "admin.token_env: TOOLREIN_NOT_SET is not set here, and without it toolrein does not start",
        ),
        (
            // Cargo sets it for every test.
            "[policy.loops]\n[admin]\ntoken_env = \"CARGO_PKG_NAME\"",
            "admin.token_env: the value of CARGO_PKG_NAME cannot be used here, and toolrein does not start with it: \
             expected a token of at least 16 characters",
        ),
    ] {
        has_one_warning(text, said);
    }
}

/// Checks the only warning of `text`, over no shipped policy.
fn has_one_warning(text: &str, said: &str) {
    let warnings = load(&format!("base = \"none\"\n{text}")).unwrap().warnings;
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(warnings[0].starts_with(said), "{warnings:?}");
}

#[test]
fn warnings_about_unset_keys_come_in_one_order() {
    let profile = |nth: usize| {
        format!(
            "[profile.p{nth}.policy.compact]\nstyle = \"summary\"\n[profile.p{nth}.policy.compact.summary]\nmodel = \"m\"\nkey_env = \"UNSET_KEY_{nth}\"\n\
             [profile.p{nth}.policy.confirm]\ntools = [\"f\"]\nform = \"held\"\n\
             [profile.p{nth}.policy.confirm.webhook]\nurl = \"http://h/{nth}\"\nsecret_env = \"UNSET_SECRET_{nth}\"\n"
        )
    };
    let text: String = (0..8).map(profile).collect();
    let named = |word: &str| -> Vec<String> {
        let warnings =
            load(&format!("base = \"none\"\nadmin.token_env = \"PATH\"\n{text}")).unwrap().warnings;
        let names = warnings.iter().filter_map(|warning| {
            let (_, name) = warning.split_once(word)?;
            Some(name[..1].to_owned())
        });
        names.collect()
    };
    let sorted: Vec<String> = (0..8).map(|nth: usize| nth.to_string()).collect();
    assert_eq!(named("UNSET_KEY_"), sorted);
    assert_eq!(named("UNSET_SECRET_"), sorted);
}

#[test]
fn odd_but_valid_settings_cause_a_warning() {
    for (text, said) in [
        (
            "[listen]\nadmin = \"0.0.0.0:4243\"\n[policy.budget]",
            "listen.admin: 0.0.0.0:4243 can be reached from other machines",
        ),
        (
            "[upstream]\nurl = \"https://api.openai.com\"\n[policy.budget]",
            "upstream.url: https://api.openai.com has no path",
        ),
        ("[upstream]\nhttp2 = true\n[policy.budget]", "upstream.http2: applies to http:// only"),
        ("", "no policy is on"),
        (
            "[policy.allow]\nexcept = [\"rm*\"]\n[policy.rate_limit]\ntools = { rmdir = { calls = 1, per = \"1s\" } }",
            "policy.rate_limit: its settings for rmdir have no effect, since policy.allow forbids these calls",
        ),
        (
            "[reask]\nanswer_tools = [\"hand_over\"]\n[policy.allow]\nonly = [\"search\"]",
            "reask.answer_tools: hand_over may be called although policy.allow forbids it",
        ),
        (
            "[policy.budget]\ntool_calls = 5\n[policy.loops]\nblock = 9",
            "policy.loops.block: 9 is never reached, since policy.budget.tool_calls is 5",
        ),
        (
            "[policy.turn_limits]\ncalls = 3\ncategories = { a = { tools = [\"f\"], calls = 4 } }",
            "policy.turn_limits.categories.a.calls: 4 is never reached, since policy.turn_limits.calls is 3",
        ),
    ] {
        has_one_warning(text, said);
    }
    for fine in [
        "[policy.taint]\n[policy.injection]",
        "[policy.read_more]\n[policy.truncate]",
        "[policy.confirm]\n[policy.injection]\n[policy.taint]\naction = \"confirm\"",
        "mode = \"off\"",
        "[policy.allow]\nonly = [\"search\"]\n[policy.rate_limit]",
        "[policy.budget]\ntool_calls = 3\nexhausted = \"inform\"\n[policy.loops]",
    ] {
        assert_eq!(load(&format!("base = \"none\"\n{fine}")).unwrap().warnings, [""; 0], "{fine}");
    }
}

#[test]
fn durations_and_sizes_are_converted_to_their_units() {
    let text = r#"
        [upstream]
        remember = "0s"
        idle_timeout = "1h 30m"
        [limits]
        request_bytes = 1500
        event_bytes = "2MB"
        [conversation]
        headers = ["X-Thread"]
        body = ["a.b.c"]
        [model."claude-*"]
        token_factor = 1.18
        [model."gpt-4.1"]
        token_factor = 1
        [policy.budget]
    "#;
    let config = load(text).unwrap();
    assert_eq!(config.upstream.remember, Duration::ZERO);
    assert_eq!(config.upstream.idle_timeout, Duration::from_secs(5_400));
    assert_eq!((config.limits.request_bytes, config.limits.event_bytes), (1_500, 2_000_000));
    assert_eq!(config.conversation.headers, ["x-thread"]);
    assert_eq!(config.conversation.body, [["a", "b", "c"]]);
    let factors: Vec<(&str, u32)> =
        config.models.iter().map(|(name, model)| (name.as_str(), model.token_factor)).collect();
    assert_eq!(factors, [("claude-*", 118), ("gpt-4.1", 100)]);
}

#[test]
fn the_effective_settings_can_be_loaded_again_and_hide_secrets() {
    let text = r#"
        mode = "observe"
        [upstream]
        url = "https://h/v1?api_key=s3cret&v=1"
        [model."gpt-4.1"]
        token_factor = 1.5
        [policy.truncate.tools]
        "read \"me\"" = 40000
        [policy.rate_limit]
    "#;
    let config = load(text).unwrap();
    assert!(!format!("{config:?}{}", config.effective.as_json()).contains("s3cret"));
    assert!(config.effective.as_toml().contains("url = \"https://h/v1?api_key=***&v=1\""));
    let again = load(config.effective.as_toml()).unwrap();
    assert_eq!(again.effective, config.effective);
    let json: Value = serde_json::from_str(config.effective.as_json()).unwrap();
    assert_eq!(json["model"]["gpt-4.1"]["token_factor"], 1.5);
    assert_eq!(json["policy"]["truncate"]["max_chars"], 16_000);
    assert_eq!(json["policy"]["truncate"]["tools"]["read \"me\""], 40_000);
    assert_eq!(json["store"]["ttl"], "24h");
    let Value::Object(json) = json else { panic!() };
    assert_eq!(Value::Object(table_of(config.effective.as_toml())), Value::Object(json));
}

#[test]
fn models_that_drop_or_refuse_late_system_messages_are_not_listed() {
    let models = Notices::default().system_models;
    for (model, listed) in [
        ("gpt-4o", true),
        ("gpt-4.1-mini", true),
        ("gpt-5.4", true),
        ("gpt-3.5-turbo-0613", true),
        ("o3", true),
        ("o4-mini", true),
        ("openai/gpt-5", true),
        ("ft:gpt-4.1-2025-04-14:org::id", true),
        ("o1-mini", false),
        ("openai/o1-mini", false),
        ("gpt-oss:20b", false),
        ("openai/gpt-oss-120b", false),
        ("claude-sonnet-4-5", false),
        ("mistral-large-latest", false),
        ("qwen3.5", false),
        ("google/gemma-3-27b-it", false),
    ] {
        assert_eq!(models.iter().any(|pattern| pattern.matches(model)), listed, "{model}");
    }
}

#[test]
fn files_are_read_as_bounded_utf8_text() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("own.toml");
    let mut huge = b"# ".repeat(1 << 19);
    let refused = |bytes: &[u8]| {
        std::fs::write(&path, bytes).unwrap();
        Config::load(Source::File(path.clone()), &Overrides::default(), REGISTRY).err().map(|e| e.to_string())
    };
    assert_eq!(refused(&huge), None);
    huge.push(b' ');
    let name = path.display();
    assert_eq!(
        refused(&huge),
        Some(format!("{name}: is larger than 1 MiB, which is too large for a configuration"))
    );
    assert_eq!(refused(b"\n# \xff"), Some(format!("{name}:2: not UTF-8 text (byte 0xff)")));
    assert_eq!(refused(b"\xef\xbb\xbfmode = \"off\"\r\n"), None);
    assert_eq!(
        refused(b"\r\nmod = 1\r\n"),
        Some(format!("{name}:2: mod: unknown key; did you mean `mode`?"))
    );
}

#[test]
fn calls_that_nobody_could_answer_are_refused_before_they_wait() {
    let held = "[policy.confirm]\ntools = [\"pay\"]\nform = \"held\"\n";
    let text = "\"held\" needs admin.token_env: the environment variable with the token of the people who may answer";
    assert_eq!(problems(held), [format!("proxy.toml:3: policy.confirm.form: {text}")]);
    let profile = "[profile.shop.policy.confirm]\nform = \"held\"\n";
    let reported = problems(&format!("[policy.confirm]\n{profile}"));
    assert_eq!(reported, [format!("proxy.toml:3: profile.shop.policy.confirm.form: {text}")]);
    let taken_over = format!("{held}[profile.shop.policy.confirm]\nhold = \"1m\"\n");
    assert_eq!(problems(&taken_over).len(), 1, "reported once, where it is");
    let token = "admin.token_env = \"TOOLREIN_ADMIN_TOKEN\"\n";
    assert_eq!(problems(&format!("{token}{held}")), [""; 0]);
    let itself = problems("admin.token_env = \"s3cret-token-of-mine\"\n");
    assert!(
        itself[0].starts_with("proxy.toml:1: admin.token_env: expected the name of an environment variable")
    );
    assert!(!itself[0].contains("s3cret"), "{itself:?}");
}

#[test]
fn a_quota_that_names_an_unknown_tier_is_refused() {
    let quota = |tier: &str| {
        format!(
            "[policy.quota.limits.images]\ntools = [\"image\"]\nper = \"5h\"\n[policy.quota.limits.images.tiers]\n\
             {tier} = 1\n[tier.free]\n"
        )
    };
    for tier in ["guest", "auth", "free"] {
        assert_eq!(problems(&quota(tier)), [""; 0], "{tier}");
    }
    let reported = problems(&quota("gest"));
    let text = "policy.quota.limits.images.tiers: there is no [tier.gest]; did you mean `guest`?";
    assert!(reported.len() == 1 && reported[0].ends_with(text), "{reported:?}");
}

#[test]
fn a_quota_window_longer_than_the_store_ttl_is_refused() {
    let quota = "[policy.quota.limits]\nimages = { tools = [\"image\"], calls = 1, per = \"5h\" }\n";
    assert_eq!(problems(quota), [""; 0]);
    let reported = problems(&format!("store.ttl = \"1h\"\n{quota}"));
    let text = "5h is longer than the store keeps anything: store.ttl is 1h";
    assert_eq!(reported, [format!("proxy.toml:3: policy.quota.limits.images.per: {text}")]);
}

#[test]
fn every_policy_window_longer_than_the_store_ttl_is_refused() {
    for (table, key) in [
        ("[policy.rate_limit.tools]\nmail = { calls = 1, per = \"5h\" }", "rate_limit.tools.mail.per"),
        ("[policy.rate_limit]\ndefault = { calls = 1, per = \"5h\" }", "rate_limit.default.per"),
        ("[policy.duplicates]\ntools = [\"pay\"]\nwindow = \"5h\"", "duplicates.window"),
        ("[policy.confirm]\ntools = [\"pay\"]\nexpires = \"5h\"", "confirm.expires"),
    ] {
        assert_eq!(problems(table), [""; 0]);
        let reported = problems(&format!("store.ttl = \"1h\"\n{table}"));
        let text = format!("policy.{key}: 5h is longer than the store keeps anything: store.ttl is 1h");
        assert!(reported.len() == 1 && reported[0].ends_with(&text), "{reported:?}");
    }
}

/// The result of reloading `text` in a program that runs with `running`.
fn reloaded(running: &str, text: &str) -> Result<Config, Problems> {
    let source = Source::Text { name: "proxy.toml".to_owned(), text: text.to_owned() };
    load(running).unwrap().reload(source, &Overrides::default(), REGISTRY)
}

#[test]
fn a_reload_keeps_settings_that_need_a_restart_and_names_them() {
    let running = "[listen]\nproxy = \"127.0.0.1:1\"\n[store]\ncalls = 7\n";
    let written = "mode = \"observe\"\n[store]\ncalls = 8\n[upstream]\nurl = \"demo:\"\nhttp2 = true\n";
    let config = reloaded(running, written).unwrap();
    let reported: Vec<&String> =
        config.warnings.iter().filter(|reported| reported.contains("restart")).collect();
    assert_eq!(
        reported,
        ["listen.proxy", "upstream.url", "store.calls"]
            .map(|key| format!("needs a restart: {key}"))
            .iter()
            .collect::<Vec<_>>()
    );
    assert_eq!((config.listen.proxy.port(), config.store.calls, config.upstream.http2), (1, 7, true));
    assert_eq!((config.mode, config.upstream.url == Target::Demo), (Mode::Observe, false));
    let effective: Value = serde_json::from_str(config.effective.as_json()).unwrap();
    assert_eq!((&effective["store"]["calls"], &effective["mode"]), (&7.into(), &"observe".into()));
    assert_eq!(
        reloaded(written, written).unwrap().warnings,
        load(written).unwrap().warnings,
        "equal is no change"
    );
}

#[test]
fn a_reload_is_refused_if_new_settings_conflict_with_those_that_need_a_restart() {
    let running = "[listen]\nproxy = \"127.0.0.1:1\"\n";
    let circle = "[listen]\nproxy = \"127.0.0.1:2\"\n[upstream]\nurl = \"http://127.0.0.1:1/v1\"\n";
    assert!(load(circle).is_ok());
    let refused = reloaded(running, circle).err().unwrap().to_string();
    assert_eq!(
        refused,
        "proxy.toml:4: upstream.url: http://127.0.0.1:1/v1 is listen.proxy itself: requests would go round in circles \
         (needs a restart: listen.proxy)"
    );
    // The new file must also be valid by itself, or the restart would fail.
    assert!(reloaded(running, "[listen]\nproxy = \"127.0.0.1:3\"\nadmin = \"127.0.0.1:3\"\n").is_err());
}

#[test]
fn a_reload_from_a_file_that_is_not_regular_is_refused() {
    // No pipe, since a test that fails should not wait for ever.
    let source = Source::File("/dev/zero".into());
    let refused =
        load("").unwrap().reload(source, &Overrides::default(), REGISTRY).err().unwrap().to_string();
    assert_eq!(refused, "/dev/zero: is not a regular file, so it cannot be read twice");
}

#[test]
fn wrong_prices_are_named_with_line_and_key() {
    let expected = "expected a price from 0 to 10000, in dollars for a million tokens";
    each_has_one_problem(&[
        (
            "[model.x]\nprice = { input = -1.0, output = 1 }",
            &format!("proxy.toml:2: model.x.price.input: {expected}, found -1"),
        ),
        (
            "[model.x.price]\ninput = 1\noutput = nan",
            &format!("proxy.toml:3: model.x.price.output: {expected}, found NaN"),
        ),
        (
            "[model.x.price]\ninput = 1\noutput = inf",
            &format!("proxy.toml:3: model.x.price.output: {expected}, found inf"),
        ),
        (
            "[model.x.price]\ninput = 1\noutput = 1\ncached_input = \"cheap\"",
            r#"proxy.toml:4: model.x.price.cached_input: expected a number, found "cheap""#,
        ),
        ("[model.x.price]\ninput = 1", "proxy.toml:1: model.x.price: `output` is missing"),
        (
            "[model.x.price]\ninput = 1\noutputs = 1",
            "proxy.toml:3: model.x.price.outputs: unknown key; did you mean `output`?",
        ),
    ]);
}

#[test]
fn a_limit_of_money_warns_of_models_whose_price_is_not_known() {
    let models = "[model.mine]\ntoken_factor = 1.2\n[model.\"gpt-4o\"]\ntoken_factor = 1.2\n\
                  [model.own]\nprice = { input = 1, output = 2 }\n";
    assert_eq!(load(models).unwrap().warnings, [""; 0]);
    let limited = load(&format!("{models}[policy.budget]\nspend_usd = 2")).unwrap();
    assert_eq!(
        limited.warnings,
        [
            "model.mine: its price is not known, so policy.budget.spend_usd does not limit it and only its tokens count; set \
          price"
        ]
    );
    let again = load(limited.effective.as_toml()).unwrap();
    assert_eq!(again.effective, limited.effective);
}
