//! Compilation of JSON Schemas and patterns by the library `jsonschema`, with limits: the draft is 2020-12, patterns
//! match in linear time and bounded memory, and nothing outside the schema is loaded.

use jsonschema::{Draft, PatternOptions, Validator};
use serde_json::{Value, json};

/// The largest compiled pattern, and the largest cache of one, in bytes.
const PATTERN_BYTES: usize = 128 * 1024;

/// `schema` compiled; `None` where it is not valid or refers to another document. `checks_formats`: `format` is
/// checked, not only noted.
pub fn compile(schema: &Value, checks_formats: bool) -> Option<Validator> {
    let patterns = PatternOptions::regex().size_limit(PATTERN_BYTES).dfa_size_limit(PATTERN_BYTES);
    let options = jsonschema::options().with_draft(Draft::Draft202012).offline();
    options.with_pattern_options(patterns).should_validate_formats(checks_formats).build(schema).ok()
}

/// A validator of strings that `pattern` (ECMA-262) matches somewhere; `None` where the pattern is not valid, too
/// large, or holds look-around or back-references.
pub fn compile_pattern(pattern: &str) -> Option<Validator> {
    compile(&json!({ "pattern": pattern }), false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_have_ecmascript_semantics() {
        for (pattern, matching, other) in [
            (r"^\d+$", "12", "١"),
            (r"^\D$", "١", "1"),
            (r"^\w$", "_", "é"),
            (r"^[\w-]+$", "a-b", "a.b"),
            (r"^\s$", "\u{feff}", "\u{85}"),
            (r"^[^\s]$", "x", "\u{2003}"),
            (r"\bcat\b", "a cat", "cats"),
            (r"^a\/b\-c\_d\@$", "a/b-c_d@", "a\\/b"),
            (r"^[[a]+$", "[a", "]"),
            (r"^[a&&b]+$", "a&b", "c"),
            (r"^[.*^$|(){}]+$", "^.*$|(){}", "a"),
            (r"^a{2,3}$", "aaa", "a"),
            (r"^(?<year>\d{4})-(?:0|1)$", "2026-1", "26-1"),
            (r"^\p{L}+$", "é", "1"),
            ("^ab$", "ab", "ab\n"),
            ("b", "abc", "ac"),
        ] {
            let compiled = compile_pattern(pattern).unwrap_or_else(|| panic!("{pattern}"));
            assert!(compiled.is_valid(&json!(matching)), "{pattern} {matching:?}");
            assert!(!compiled.is_valid(&json!(other)), "{pattern} {other:?}");
        }
    }

    #[test]
    fn patterns_beyond_linear_time_and_bounded_memory_do_not_compile() {
        for pattern in [
            "(?=a)",
            "(?!a)",
            "(?<=a)",
            "(?<!a)",
            r"(a)\1",
            "(",
            "a)",
            "[a",
            "[z-a]",
            "*",
            r"\",
            r"\p{Nothing}",
            "((a{1000}){1000}){1000}",
        ] {
            assert!(compile_pattern(pattern).is_none(), "{pattern}");
        }
    }

    #[test]
    fn a_schema_with_external_references_does_not_compile() {
        // A schema that is there and could be loaded.
        let file = concat!("file://", env!("CARGO_MANIFEST_DIR"), "/src/ask_user/tool.json");
        for reference in ["https://example.com/schema.json", file, "other.json", "urn:a:b"] {
            assert!(compile(&json!({"$ref": reference}), true).is_none(), "{reference}");
        }
    }
}
