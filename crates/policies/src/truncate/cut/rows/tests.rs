//! Cases and laws of the row form.

use crate::truncate::cut::tests::{cut, cut_text};
use proptest::prelude::*;
use serde_json::Value;

const MARKER: &str = "[toolrein: cut ";

/// The index of the one announcement among the lines of a table cut to `max_chars`, and the lines.
fn cut_table(text: &str, max_chars: usize) -> (usize, Vec<String>) {
    let cut = cut_text(text, max_chars);
    let lines: Vec<String> = cut.lines().map(str::to_owned).collect();
    let marked: Vec<usize> = (0..lines.len()).filter(|at| lines[*at].contains(MARKER)).collect();
    assert_eq!(marked.len(), 1, "{cut}");
    assert!(lines[marked[0]].contains("(rows "), "cut by rows: {cut}");
    (marked[0], lines)
}

fn csv(rows: usize) -> String {
    let rows = (0..rows).map(|n| format!("{n},\"Name, of {n}\",{}.50\r\n", n * 3));
    format!("id,name,price\r\n{}", rows.collect::<String>())
}

#[test]
fn comma_separated_values_keep_their_header_and_their_number_of_fields() {
    let text = csv(2_000).replace("\"Name, of 1000\"", "\"error: a \"\"b\"\"\nhere\"");
    let (marker, lines) = cut_table(&text, 4_000);
    assert_eq!(lines[0], "id,name,price");
    assert_eq!(lines[1], "0,\"Name, of 0\",0.50");
    assert_eq!(lines.last().unwrap(), "1999,\"Name, of 1999\",5997.50");
    assert!(lines[marker].starts_with("\"[toolrein: cut ") && lines[marker].ends_with("filter]\",,"));
    assert_eq!(lines[marker + 1..marker + 4], ["1000,\"error: a \"\"b\"\"", "here\",3000.50", "\"…\",,"]);
    let tail = lines.len() - marker - 4;
    assert!(marker > tail && tail > 20, "{marker} and {tail}");
    let announced =
        format!("(rows {} to {} of this result's 2000), except what looks like errors", marker, 2000 - tail);
    assert!(lines[marker].contains(&announced), "{} has no {announced}", lines[marker]);
}

#[test]
fn each_kind_of_table_keeps_its_header_and_its_form() {
    let markdown = |n: usize| format!("| {n} | item \\| {n} | open |\n");
    let psql = |n: usize| format!(" {n:>4} | item {n:>4}  | open\n");
    let kubectl = |n: usize| format!("web-{n:<6}-x7k2p   1/1     Running   {:<8}   {n}d\n", n % 3);
    let ps = |n: usize| {
        format!("root     {n:>7}  0.0  0.{} 12{n:>5} pts/0 S    00:00:0{} /bin/x -n {n}\n", n % 9, n % 7)
    };
    let files = |n: usize| format!("-rw-r--r-- 1 me  staff {n:>6} Nov {:>2} 10:00 file {n}\n", n % 30);
    let tabs = |n: usize| format!("{n}\titem {n}\topen\n");
    let rows = |row: &dyn Fn(usize) -> String| (0..900).map(row).collect::<String>();
    for (head, rows, foot, marker) in [
        (
            "Found:\n\n| id | name | state |\n|---:|:-----|---|\n",
            rows(&markdown),
            "\n900 items\n",
            "| [toolrein: ",
        ),
        (
            "  id  |    name    | state\n------+------------+------\n",
            rows(&psql),
            "(900 rows)\n",
            " [toolrein: ",
        ),
        ("NAME             READY   STATUS    RESTARTS   AGE\n", rows(&kubectl), "", "[toolrein: "),
        ("USER         PID %CPU %MEM     RSS TTY   STAT     TIME COMMAND\n", rows(&ps), "", "[toolrein: "),
        ("total 3600\n", rows(&files), "", "[toolrein: "),
        ("id\tname\tstate\n", rows(&tabs), "(900 rows)\n", "[toolrein: "),
    ] {
        let (at, lines) = cut_table(&format!("{head}{rows}{foot}"), 3_000);
        let head_lines = head.lines().count();
        assert_eq!(lines[..head_lines].join("\n") + "\n", head);
        assert!(lines[at].starts_with(marker), "{}", lines[at]);
        assert!(lines.join("\n").ends_with(foot.trim_end()), "{lines:#?}");
        assert_eq!(lines[head_lines], rows.lines().next().unwrap());
        let bars = |line: &String| line.matches('|').count() - line.matches("\\|").count();
        assert_eq!(bars(&lines[at]), bars(&lines[head_lines]), "{}", lines[at]);
        assert!(lines[at].contains("of this result's 900)"), "{}", lines[at]);
    }
}

#[test]
fn json_lines_stay_json_lines() {
    let text: String = (0..500)
        .map(|n| format!("{{\"id\":{n},\"state\":\"{}\"}}\n", if n == 250 { "error" } else { "ok" }))
        .collect();
    let (marker, lines) = cut_table(&text, 2_000);
    let lines: Vec<Value> = lines.iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines[0]["id"], 0);
    assert!(lines[marker]["toolrein"].as_str().unwrap().starts_with(MARKER));
    assert_eq!(lines[marker + 1]["id"], 250);
    assert_eq!(lines[marker + 2]["…"], "…");
    assert_eq!(lines.last().unwrap()["id"], 499);
}

#[test]
fn text_that_is_not_a_table_is_cut_as_text() {
    let lines = |line: &dyn Fn(usize) -> String| (0..900).map(line).collect::<String>();
    for text in [
        lines(&|n| format!("2024-05-01 12:00:{:02},{n:03} - shop - INFO - job done\n", n % 60)),
        lines(&|n| format!("INFO  worker   finished  job  {n:>5}\n")),
        lines(&|n| format!("12:00:{:02} INFO worker  finished {n:>5}\n", n % 60)),
        lines(&|n| format!("    let a{n} = f(b, {n});\n")),
        lines(&|n| format!("The {n}th sentence, as it were, has two commas.\nAnother has none.\n")),
        lines(&|n| format!("{n:>6}\tlet x = {n};\n")),
        lines(&|n| format!("src/a.rs:{n}:let x = y | z;\n")),
        format!("id,name\n{}", lines(&|n| format!("{n},\"never closed {n}\n"))),
        format!("# Notes\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n{}", lines(&|n| format!("line {n}\n"))),
        format!("{{\"a\":1}}\n{{broken}}\n{}", lines(&|n| format!("{{\"a\":{n}}}\n"))),
        format!("id,text\n{}", lines(&|n| format!("{n},{}\n", "word ".repeat(900)))),
    ] {
        let out = cut_text(&text, 3_000);
        assert!(!out.contains("(rows "), "{out}");
        let tail = out.split_once(MARKER).unwrap().1;
        assert!(tail.len() > 2_000, "four fifths are tail: {out}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn any_table_is_cut_within_the_limit_to_rows_of_its_own(
        form in 0..5_usize,
        cells in prop::collection::vec("[a-z0-9é ]{0,12}|error: [a-z]{3}|\"a, b\"|\"x\n\"\"y\"\"\"", 60..600),
        max_chars in 200..3_000_usize,
        ends in prop::sample::select(vec!["\n", "\r\n"]),
    ) {
        let row = |three: &[String]| match form {
            0 => three.join(","),
            1 => three.join("\t"),
            2 => format!("|{}|", three.join("|")),
            3 => three.iter().map(|cell| format!("{cell:<20}")).collect(),
            _ => serde_json::json!({ "a": three }).to_string(),
        };
        let rows: Vec<String> = cells.chunks_exact(3).map(row).collect();
        let head = ["Id,Name,State", "Id\tName\tState", "|Id|Name|State|\n|---|---|---|",
                    "ID                  NAME                STATE               ", ""][form];
        let text = format!("{head}{ends}{}{ends}", rows.join(ends)).trim_start().to_owned();
        if text.chars().count() <= max_chars {
            prop_assert_eq!(cut(&text, max_chars), None);
            return Ok(());
        }
        let out = cut_text(&text, max_chars);
        prop_assert_eq!(out.matches(MARKER).count(), 1, "{}", out);
        if !out.contains("(rows ") {
            return Ok(());
        }
        prop_assert!(out.starts_with(head));
        for line in out.lines().filter(|line| !line.contains(MARKER) && !line.contains('…')) {
            prop_assert!(text.contains(line), "{}", line);
        }
        if form == 4 {
            prop_assert!(out.lines().all(|line| serde_json::from_str::<Value>(line).is_ok()), "{}", out);
        }
    }
}
