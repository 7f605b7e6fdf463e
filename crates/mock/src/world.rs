//! The simulated tools of the demonstration's agent, and their results. Everything is invented and depends only on the
//! arguments.

use super::ids::Ids;
use serde_json::{Value, json};

/// Results of one search.
const HITS: usize = 8;
/// The length of every page, in bytes.
const PAGE_BYTES: usize = 200 * 1024;

/// The definitions of the tools, as a request offers them.
pub(super) fn tools() -> Value {
    json!([
        {"type": "function", "function": {
            "name": "web_search",
            "description": "Searches the web.",
            "parameters":
                {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]}}},
        {"type": "function", "function": {
            "name": "read_url",
            "description": "Reads a web page as text.",
            "parameters":
                {"type": "object", "properties": {"url": {"type": "string"}}, "required": ["url"]}}}
    ])
}

/// The result of a call; an invalid call gets an error as its result, as in any agent.
pub(super) fn run(name: &str, arguments: &str) -> String {
    let arguments: Value = serde_json::from_str(arguments).unwrap_or_default();
    match (name, arguments["query"].as_str(), arguments["url"].as_str()) {
        ("web_search", Some(query), _) => search(query),
        ("read_url", _, Some(url)) => read_page(url),
        _ => json!({"error": format!("no tool {name} with these arguments")}).to_string(),
    }
}

fn search(query: &str) -> String {
    let mut ids = Ids::of(query.as_bytes());
    let hits: Vec<Value> = (1..=HITS)
        .map(|rank| {
            let source = ids.call();
            json!({
                "rank": rank,
                "title": format!("{query}: source {rank}"),
                "url": format!("https://example.com/{source}"),
                "snippet": format!("Source {source} touches on {query}, and refers to others."),
            })
        })
        .collect();
    json!({"query": query, "results": hits}).to_string()
}

fn read_page(url: &str) -> String {
    let mut ids = Ids::of(url.as_bytes());
    let mut page = format!("The page at {url}\n\n");
    let mut line = 0;
    while page.len() < PAGE_BYTES {
        line += 1;
        page.push_str(&format!(
            "{line}. Entry {} is one of many on this page, and few readers need it.\n",
            ids.call()
        ));
    }
    page.truncate(page.floor_char_boundary(PAGE_BYTES));
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tools_give_equal_results_for_equal_arguments() {
        let hits = run("web_search", r#"{"query":"q"}"#);
        assert_eq!(hits, run("web_search", r#"{"query":"q"}"#));
        assert_ne!(hits, run("web_search", r#"{"query":"r"}"#));
        assert_eq!(serde_json::from_str::<Value>(&hits).unwrap()["results"].as_array().unwrap().len(), HITS);
        let page = run("read_url", r#"{"url":"https://example.com/a"}"#);
        assert_eq!(
            (page.len(), page.lines().next()),
            (PAGE_BYTES, Some("The page at https://example.com/a"))
        );
    }

    #[test]
    fn an_invalid_call_gets_an_error_as_its_result() {
        for (name, arguments) in [("web_search", "{"), ("web_search", r#"{"url":"u"}"#), ("other", "{}")] {
            assert!(run(name, arguments).starts_with(r#"{"error":"#), "{name} {arguments}");
        }
    }
}
