//! The page about a budget for each customer: its three lines hold each customer to a budget of its own.

use super::pages::page;
use super::support::client::Request;
use super::support::program::Toolrein;

#[test]
fn the_lines_of_the_page_give_each_customer_a_budget_of_its_own_by_header_and_by_body() {
    let page = page("docs/customers.md".to_owned());
    let mut blocks =
        page.blocks().into_iter().filter(|block| block.language == "toml").map(|block| block.text);
    let (by_header, by_body) = (blocks.next().unwrap(), blocks.next().unwrap());
    assert_eq!(by_header.lines().count(), 3, "three lines, as the page says:\n{by_header}");
    assert!(by_header.contains("spend_usd = 5.0"), "{by_header}");
    let (first, rest) = by_header.split_once('\n').unwrap();
    assert!(first.starts_with("conversation.caller"), "the line that the other way replaces: {first}");
    assert_holds_each_customer_to_its_own(&by_header, |customer| (Some(customer.to_owned()), String::new()));
    let by_body = format!("{by_body}{rest}");
    assert_holds_each_customer_to_its_own(&by_body, |customer| (None, format!("\"user\":\"{customer}\",")));
}

/// `named`: the header and the members of the body by which a customer is named.
fn assert_holds_each_customer_to_its_own(lines: &str, named: impl Fn(&str) -> (Option<String>, String)) {
    // Less money than one request of the simulated model costs, at a price of its own.
    let lines = lines.replace("spend_usd = 5.0", "spend_usd = 0.000001");
    let program = Toolrein::start(&format!(
        "{lines}listen.proxy = \"127.0.0.1:0\"\nlisten.admin = \"127.0.0.1:0\"\nupstream.url = \"demo:\"\n\
         model.\"demo-chat\".price = {{ input = 1.0, output = 1.0 }}\n"
    ));
    for stream in [false, true] {
        let ask = |customer: &str, text: &str| {
            let (header, members) = named(customer);
            let body = format!(
                "{{{members}\"model\":\"demo-chat\",\"stream\":{stream},\
                 \"messages\":[{{\"role\":\"user\",\"content\":\"{text}\"}}]}}"
            );
            let request = Request::new("POST", &program.chat_url(), body);
            header.iter().fold(request, |request, name| request.header("x-customer", name)).send()
        };
        let ann = format!("ann-{stream}");
        assert_eq!(ask(&ann, "One.").status, 200);
        let refused = ask(&ann, "Two.");
        assert_eq!(refused.status, 400, "{}", refused.text());
        assert_eq!(refused.json()["error"]["code"], "budget_exceeded", "{}", refused.text());
        assert_eq!(ask(&format!("bob-{stream}"), "Two.").status, 200, "another customer notices nothing");
    }
}
