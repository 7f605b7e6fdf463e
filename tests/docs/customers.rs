//! The page about a budget for each customer: its three lines hold each customer to a budget of its own.

use super::pages::page;
use super::support::client::Request;
use super::support::program::Toolrein;

#[test]
fn the_lines_of_the_page_give_each_customer_a_budget_of_its_own() {
    let page = page("docs/customers.md".to_owned());
    let lines = page.blocks().into_iter().find(|block| block.language == "toml").unwrap().text;
    assert_eq!(lines.lines().count(), 3, "three lines, as the page says:\n{lines}");
    assert!(lines.contains("spend_usd = 5.0"), "{lines}");
    // Less money than one request of the simulated model costs, at a price of its own.
    let lines = lines.replace("spend_usd = 5.0", "spend_usd = 0.000001");
    let program = Toolrein::start(&format!(
        "{lines}listen.proxy = \"127.0.0.1:0\"\nlisten.admin = \"127.0.0.1:0\"\nupstream.url = \"demo:\"\n\
         model.\"demo-chat\".price = {{ input = 1.0, output = 1.0 }}\n"
    ));
    for stream in [false, true] {
        let ask = |customer: &str, text: &str| {
            let body = format!(
                "{{\"model\":\"demo-chat\",\"stream\":{stream},\
                 \"messages\":[{{\"role\":\"user\",\"content\":\"{text}\"}}]}}"
            );
            Request::new("POST", &program.chat_url(), body).header("x-customer", customer).send()
        };
        let ann = format!("ann-{stream}");
        assert_eq!(ask(&ann, "One.").status, 200);
        let refused = ask(&ann, "Two.");
        assert_eq!(refused.status, 400, "{}", refused.text());
        assert_eq!(refused.json()["error"]["code"], "budget_exceeded", "{}", refused.text());
        assert_eq!(ask(&format!("bob-{stream}"), "Two.").status, 200, "another customer notices nothing");
    }
}
