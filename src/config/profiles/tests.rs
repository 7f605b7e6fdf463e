//! Test cases of profiles and tiers in whole configurations: what each profile contains, which requests take it, and
//! which errors are reported and in which words.

use super::*;
use crate::config::{Config, Overrides, Problems, Source};
use policies::REGISTRY;

fn load(text: &str) -> Result<Config, Problems> {
    let source = Source::Text { name: "proxy.toml".to_owned(), text: text.to_owned() };
    Config::load(source, &Overrides::default(), REGISTRY)
}

fn problems(text: &str) -> Vec<String> {
    let problems = load(text).err().map_or_else(Vec::new, |problems| problems.0);
    problems.iter().map(ToString::to_string).collect()
}

fn each_has_one_problem(cases: &[(&str, &str)]) {
    for (text, said) in cases {
        assert_eq!(problems(text), [*said], "{text}");
    }
}

/// The policies that are on in a profile.
fn on(config: &Config, profile: &str) -> Vec<&'static str> {
    config.profiles.named(profile).unwrap().policies.names().collect()
}

/// The settings of one policy in a profile, one a line.
fn settings(config: &Config, profile: &str, policy: &str) -> Vec<String> {
    let profile = config.profiles.named(profile).unwrap();
    profile.policy_settings().find(|(name, _)| *name == policy).map(|(_, lines)| lines).unwrap_or_default()
}

/// A hash as it is written in a file.
fn hash(digit: char) -> String {
    format!("sha256:{}", digit.to_string().repeat(64))
}

#[test]
fn a_profile_is_laid_over_the_policies_key_by_key() {
    let config = load(
        r#"
        base = "none"
        [policy.truncate]
        max_chars = 9000
        [policy.budget]
        tool_calls = 20
        notify_at = [0.6]
        [policy.loops]
        [profile.chat]
        off = ["loops"]
        [profile.chat.policy.budget]
        tool_calls = 5
        [profile.chat.policy.allow]
        only = ["search*"]
        [profile.plain]
    "#,
    )
    .unwrap();
    assert_eq!(config.policies.names().collect::<Vec<_>>(), ["budget", "loops", "truncate"]);
    assert_eq!(on(&config, "chat"), ["budget", "allow", "truncate"]);
    assert_eq!(on(&config, "plain"), ["budget", "loops", "truncate"]);
    let budget = settings(&config, "chat", "budget");
    // The profile's own value, the value of the policy outside of profiles, and the shipped value.
    assert_eq!(budget[..2], ["tool_calls = 5", "requests = 0"]);
    assert_eq!(budget[6..8], ["notify_at = [0.6]", "notify = \"thresholds\""]);
    assert_eq!(settings(&config, "chat", "allow")[0], r#"only = ["search*"]"#);
    assert_eq!(settings(&config, "chat", "truncate"), [""; 0], "as above, so not shown again");
    assert_eq!(config.policy_names(), ["budget", "loops", "truncate", "allow"]);
}

#[test]
fn a_profile_replaces_the_whole_value_of_a_key_even_a_table() {
    let config = load(
        r#"
        base = "none"
        [policy.rate_limit.tools]
        weather = { calls = 3, per = "60s" }
        [profile.free.policy.rate_limit]
        tools = { search = { calls = 1, per = "60s" } }
    "#,
    )
    .unwrap();
    let expected = [
        r#"default = { calls = 60, per = "60s" }"#,
        r#"wait = "0s""#,
        "texts = {}",
        r#"tools.search = { calls = 1, per = "60s" }"#,
    ];
    assert_eq!(settings(&config, "free", "rate_limit"), expected);
    assert_eq!(config.named_tools(), ["search", "weather"]);
}

#[test]
fn a_profile_may_extend_another_profile_regardless_of_their_order_in_the_file() {
    let config = load(
        r#"
        base = "none"
        [policy.truncate]
        [profile.voice-act]
        extends = "voice"
        off = ["truncate"]
        policy.allow.only = ["set_*"]
        [profile.voice]
        policy.budget = { tool_calls = 3, notify_at = [0.4] }
        [profile.voice-slow]
        extends = "voice"
        policy.budget.tool_calls = 9
    "#,
    )
    .unwrap();
    assert_eq!(on(&config, "voice"), ["budget", "truncate"]);
    assert_eq!(on(&config, "voice-act"), ["budget", "allow"]);
    assert_eq!(settings(&config, "voice-act", "budget")[0], "tool_calls = 3");
    assert_eq!(settings(&config, "voice-slow", "budget")[0], "tool_calls = 9");
    assert_eq!(settings(&config, "voice-slow", "budget")[6], "notify_at = [0.4]");
}

#[test]
fn a_profile_is_chosen_by_the_requests_model_or_api_key() {
    let key = KeyHash::of(b"sk-1").unwrap();
    let config = load(&format!(
        r#"
        [tier.free]
        keys = ["{}", "{key}"]
        [profile.one]
        models = ["gpt-*", "o3"]
        tiers = ["free"]
        [profile.two]
        models = ["gpt-4o*"]
    "#,
        hash('a')
    ))
    .unwrap();
    let of = |model: &str| config.profiles.of_model(model).map(|profile| profile.name.to_string());
    for (model, profile) in [
        ("gpt-4o-mini", Some("two")),
        ("gpt-5", Some("one")),
        ("o3", Some("one")),
        ("o3-mini", None),
        ("", None),
    ] {
        assert_eq!(of(model).as_deref(), profile, "{model}");
    }
    let of =
        |key: &[u8]| config.profiles.tier_of([key].into_iter()).1.map(|profile| profile.name.to_string());
    assert_eq!((of(b"sk-1").as_deref(), of(b"sk-2")), (Some("one"), None));
}

#[test]
fn whoever_has_no_key_is_a_guest_and_whoever_has_one_of_no_tier_is_authenticated() {
    let [demo, paid] = [b"demo", b"paid"].map(|key| KeyHash::of(key).unwrap());
    let text = format!(
        "[tier.guest]\nkeys = [\"{demo}\"]\n[tier.premium]\nkeys = [\"{paid}\"]\n\
         [profile.small]\ntiers = [\"guest\"]\n[profile.large]\ntiers = [\"auth\", \"premium\"]\n"
    );
    for (text, cases) in [
        (
            text.as_str(),
            [
                (&[][..], "guest", Some("small")),
                (&["demo"], "guest", Some("small")),
                (&["mine", "demo"], "guest", Some("small")),
                (&["mine"], "auth", Some("large")),
                (&["paid"], "premium", Some("large")),
            ],
        ),
        (
            "[profile.small]\ntiers = [\"guest\"]",
            [
                (&[][..], "guest", Some("small")),
                (&["demo"], "auth", None),
                (&["mine"], "auth", None),
                (&["mine", "demo"], "auth", None),
                (&["paid"], "auth", None),
            ],
        ),
    ] {
        let config = load(text).unwrap();
        for (keys, tier, profile) in cases {
            let found = config.profiles.tier_of(keys.iter().map(|key| key.as_bytes()));
            let found = (&**found.0, found.1.map(|profile| &*profile.name));
            assert_eq!(found, (tier, profile), "{keys:?}");
        }
    }
}

#[test]
fn the_effective_settings_with_profiles_can_be_loaded_again_as_a_configuration() {
    let text = format!(
        r#"
        conversation.profile_header = false
        [policy.budget]
        tool_calls = 20
        [policy.loops]
        [tier.free]
        keys = ["{}"]
        [profile.voice]
        models = ["gpt-4o*"]
        off = ["loops"]
        [profile.voice.policy.budget]
        tool_calls = 3
        [profile.voice.policy.turn_limits]
        categories = {{ retrieval = {{ tools = ["search*"], calls = 2, slow = "800ms" }} }}
        [profile."voice.act"]
        extends = "voice"
        tiers = ["free"]
        [profile."voice.act".policy.loops]
    "#,
        hash('0')
    );
    let config = load(&text).unwrap();
    let again = load(config.effective.as_toml()).unwrap();
    assert_eq!(again.effective, config.effective, "{}", config.effective.as_toml());
    for profile in ["voice", "voice.act"] {
        assert_eq!(on(&again, profile), on(&config, profile));
    }
    let json: Value = serde_json::from_str(config.effective.as_json()).unwrap();
    assert_eq!(json["profile"]["voice"]["policy"]["budget"]["tool_calls"], 3);
    assert_eq!(json["profile"]["voice"]["policy"]["budget"]["extension"], 0.4);
    assert_eq!(json["profile"]["voice.act"]["policy"]["loops"]["block"], 5);
    assert_eq!(json["tier"]["free"]["keys"][0], hash('0'));
}

#[test]
fn what_is_wrong_in_a_profile_is_reported_with_its_line_and_key() {
    each_has_one_problem(&[
        ("profile = 3", "proxy.toml:1: profile: expected a table, such as [profile]"),
        ("[profile]\nx = 3", "proxy.toml:2: profile.x: expected a table, such as [profile.x]"),
        (
            "[profile.x]\npolicy = 3",
            "proxy.toml:2: profile.x.policy: expected a table, such as [profile.x.policy]",
        ),
        (
            "[profile.x.policy]\nbudget = 3",
            "proxy.toml:2: profile.x.policy.budget: expected a table, such as [profile.x.policy.budget]",
        ),
        (
            "[profile.\"x y\"]",
            "proxy.toml:1: profile.\"x y\": expected a name of letters, digits, `-`, `_` and `.`, since it travels in a header",
        ),
        ("[profile.x]\nmodel = []", "proxy.toml:2: profile.x.model: unknown key; did you mean `models`?"),
        (
            "[profile.x]\nmodels = \"y\"",
            r#"proxy.toml:2: profile.x.models: expected a list, found "y"; write models = ["y"]"#,
        ),
        (
            "[profile.x]\nmodels = [\"\"]",
            r#"proxy.toml:2: profile.x.models: expected a name, or a pattern such as "search*", found """#,
        ),
        (
            "[profile.x.policy.budgets]",
            "proxy.toml:1: profile.x.policy.budgets: unknown policy; did you mean `budget`?",
        ),
        (
            "[policy.budget]\n[profile.x.policy.budget]\ntool_cals = 3",
            "proxy.toml:3: profile.x.policy.budget.tool_cals: unknown key; did you mean `tool_calls`?",
        ),
        (
            "[profile.x.policy.budget]\ntool_calls = \"3\"",
            r#"proxy.toml:2: profile.x.policy.budget.tool_calls: expected a whole number, 0 or more, found "3""#,
        ),
        // The profile's number is inconsistent with the number of the policy outside of profiles.
        (
            "[policy.confirm]\n[policy.budget]\nexhausted = \"ask\"\nextension = 5\n[profile.x.policy.budget]\ntime = \"5s\"",
            "proxy.toml:5: profile.x.policy.budget.extension: a number extends only limits of tool calls and requests; \
             expected a share such as 0.4, since tokens, money or time are limited too",
        ),
        (
            "[profile.x.policy.budget]\nnotify_at = [0.6]\n[profile.y]\nextends = \"x\"\npolicy.budget.notify_at = [0.5, 0.4]",
            "proxy.toml:5: profile.y.policy.budget.notify_at: expected shares that ascend",
        ),
    ]);
}

#[test]
fn references_and_conflicts_between_profiles_are_checked() {
    let known: Vec<&str> = REGISTRY.iter().map(|entry| entry.name).collect();
    each_has_one_problem(&[
        (
            "[profile.x]\noff = [\"loop\"]",
            "proxy.toml:2: profile.x.off: there is no policy loop; did you mean `loops`?",
        ),
        (
            "[profile.x]\noff = [\"no such\"]",
            &format!(
                "proxy.toml:2: profile.x.off: there is no policy no such; known here: {}",
                known.join(", ")
            ),
        ),
        (
            "[profile.x]\noff = [\"loops\"]\npolicy.loops.notice = 4",
            "proxy.toml:2: profile.x.off: loops has a table in this profile; leave out one of the two",
        ),
        (
            "[profile.x]\nextends = \"voise\"\n[profile.voice]",
            "proxy.toml:2: profile.x.extends: there is no [profile.voise]; did you mean `voice`?",
        ),
        (
            "[profile.x]\nextends = \"x\"",
            "proxy.toml:2: profile.x.extends: expected a profile that extends none itself",
        ),
        (
            "[profile.a]\n[profile.b]\nextends = \"a\"\n[profile.c]\nextends = \"b\"",
            "proxy.toml:5: profile.c.extends: expected a profile that extends none itself",
        ),
        (
            "[profile.a]\nmodels = [\"m*\"]\n[profile.b]\nmodels = [\"n\", \"m*\"]",
            "proxy.toml:4: profile.b.models: m* takes profile a already",
        ),
    ]);
}

#[test]
fn a_problem_in_the_base_policies_is_reported_once_and_not_again_in_each_profile() {
    let text = "[policy.budget]\ntool_calls = \"x\"\n[profile.a]\n[profile.b.policy.budget]\ncontext_tokens = 1\n\
                [profile.c]\nextends = \"b\"\npolicy.budget.context_tokens = \"y\"";
    let expected = [
        r#"proxy.toml:2: policy.budget.tool_calls: expected a whole number, 0 or more, found "x""#,
        r#"proxy.toml:8: profile.c.policy.budget.context_tokens: expected a whole number, 0 or more, found "y""#,
    ];
    assert_eq!(problems(text), expected);
}

#[test]
fn what_is_wrong_with_tiers_is_reported_and_never_with_a_key_in_it() {
    let expected = r#"expected "sha256:" and 64 hexadecimal digits (printf %s "$KEY" | sha256sum)"#;
    each_has_one_problem(&[
        ("[tier]\nfree = 3", "proxy.toml:2: tier.free: expected a table, such as [tier.free]"),
        ("[tier.\"\"]", "proxy.toml:1: tier: expected a name"),
        ("[tier.free]\nkey = []", "proxy.toml:2: tier.free.key: unknown key; did you mean `keys`?"),
        ("[tier.free]\nkeys = [\"sk-secret\"]", &format!("proxy.toml:2: tier.free.keys: {expected}")),
        (
            "[tier.free]\nkeys = \"sk-secret\"",
            "proxy.toml:2: tier.free.keys: expected a list of hashes of keys",
        ),
        (
            &format!("[tier.free]\nkeys = [\"{0}\", \"{0}\"]", hash('a')),
            "proxy.toml:2: tier.free.keys: lists a key twice",
        ),
        (
            &format!("[tier.a]\nkeys = [\"{0}\"]\n[tier.b]\nkeys = [\"{0}\"]", hash('a')),
            &format!("proxy.toml:4: tier.b.keys: {} is in tier a as well", hash('a')),
        ),
        (
            "[tier.free]\n[profile.x]\ntiers = [\"fre\"]",
            "proxy.toml:3: profile.x.tiers: there is no [tier.fre]; did you mean `free`?",
        ),
        (
            "[profile.x]\ntiers = [\"quest\"]",
            "proxy.toml:2: profile.x.tiers: there is no [tier.quest]; did you mean `guest`?",
        ),
        (
            "[profile.x]\ntiers = [\"guest\"]\n[profile.y]\ntiers = [\"guest\"]",
            "proxy.toml:4: profile.y.tiers: tier guest takes profile x already",
        ),
        (
            "[tier.free]\n[profile.x]\ntiers = [\"free\"]\n[profile.y]\ntiers = [\"free\"]",
            "proxy.toml:5: profile.y.tiers: tier free takes profile x already",
        ),
    ]);
}

#[test]
fn probable_mistakes_in_profiles_and_tiers_cause_a_warning() {
    let key = hash('a');
    for (text, warned) in [
        ("[profile.x.policy.budget]".to_owned(), None),
        ("[profile.x]\nmodels = [\"*\"]\npolicy.budget = {}".to_owned(), None),
        (
            "[policy.budget]\n[tier.free]\n[profile.x]\ntiers = [\"free\"]\n[conversation]\nprofile_header = false"
                .to_owned(),
            Some("tier.free: has no keys, so no caller is in it"),
        ),
        (
            format!("[policy.budget]\n[tier.free]\nkeys = [\"{key}\"]"),
            Some("tier.free: no profile names it, so it concerns only policies that do"),
        ),
        (
            format!("[policy.budget]\n[tier.free]\nkeys = [\"{key}\"]\n[profile.x]\ntiers = [\"free\"]"),
            Some(
                "conversation.profile_header: callers may choose another profile than their tier's by \
                 x-toolrein-profile; false holds them to it",
            ),
        ),
        (
            "[policy.budget]\n[profile.x]\n[conversation]\nprofile_header = false".to_owned(),
            Some("profile.x: it is never used: no model, tier or header selects it"),
        ),
        (
            "[policy.budget]\ntool_calls = 50\n[profile.x.policy.budget]\ntool_calls = 20".to_owned(),
            None,
        ),
        (
            "[policy.budget]\ntool_calls = 50\n[profile.x.policy.budget]\ntool_calls = 500".to_owned(),
            Some(
                "conversation.profile_header: any client may choose profile.x by x-toolrein-profile, and it is laxer \
                 (policy.budget.tool_calls is 500 instead of 50); false lets only its models and tiers have it",
            ),
        ),
        (
            "[policy.allow]\nexcept = [\"pay\"]\n[policy.confirm]\ntools = [\"a\", \"b\"]\n\
             [profile.x]\noff = [\"allow\"]\npolicy.confirm.tools = [\"a\"]"
                .to_owned(),
            Some(
                "conversation.profile_header: any client may choose profile.x by x-toolrein-profile, and it is laxer \
                 (policy.allow is off, policy.confirm.tools lacks names); false lets only its models and tiers have it",
            ),
        ),
        (
            "[policy.budget]\ntool_calls = 50\n[profile.x]\nmodels = [\"*\"]\npolicy.budget.tool_calls = 500\n\
             [conversation]\nprofile_header = false"
                .to_owned(),
            None,
        ),
    ] {
        let warnings = load(&text).unwrap().warnings;
        assert_eq!(warnings.iter().map(String::as_str).collect::<Vec<_>>(), warned.as_slice(), "{text}");
    }
}
