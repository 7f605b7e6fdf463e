//! The result table of the demonstration, at most 100 columns wide. Formats figures and adds them up; measures
//! nothing.

use super::agent::Outcome;
use super::scenes::Pass;
use std::io::{self, Write};
use wire::plural::{counted, grouped, noun_after};

/// One scene, directly and through toolrein.
pub(super) struct Row {
    pub scene: &'static str,
    pub before: Pass,
    pub after: Pass,
}

/// The sum of all scenes on one side.
#[derive(Default, PartialEq, Eq)]
struct Sum {
    model_calls: u64,
    tool_calls: u64,
    tokens: u64,
    answered: usize,
}

/// Writes the head of the table.
pub(super) fn write_head(out: &mut impl Write) -> io::Result<()> {
    let head = ["scene", "", "model calls", "tool calls", "tokens sent", "outcome"].map(str::to_owned);
    write_line(&head, out)?;
    writeln!(out, "{}", "-".repeat(96))
}

/// Writes the lines of one scene, which can be read while the next one is played.
pub(super) fn write_row(row: &Row, out: &mut impl Write) -> io::Result<()> {
    write_line(&cells(row.scene, "direct", &row.before), out)?;
    write_line(&cells("", "through toolrein", &row.after), out)?;
    write_actions(&row.after, out)?;
    out.flush()
}

/// Writes the line that sums the table up.
pub(super) fn write_sum(rows: &[Row], out: &mut impl Write) -> io::Result<()> {
    let sum = |side: fn(&Row) -> &Pass| rows.iter().map(side).fold(Sum::default(), Sum::plus);
    writeln!(out, "\n{}", summary(&sum(|row| &row.before), &sum(|row| &row.after), rows.len()))
}

/// Writes one line for a scene: what changes through toolrein.
pub(super) fn write_change(row: &Row, out: &mut impl Write) -> io::Result<()> {
    let Row { scene, before, after } = row;
    let outcomes = format!("{} -> {}", before.journey.outcome, after.journey.outcome);
    let (sent, sent_after) = (grouped(before.asked.prompt_tokens), grouped(after.asked.prompt_tokens));
    writeln!(out, "{scene:<16}  {outcomes}; tokens {sent} -> {sent_after}")?;
    out.flush()
}

fn cells(scene: &str, way: &str, pass: &Pass) -> [String; 6] {
    let Pass { asked, journey } = pass;
    [
        scene.to_owned(),
        way.to_owned(),
        grouped(asked.requests),
        grouped(journey.tool_calls),
        grouped(asked.prompt_tokens),
        journey.outcome.to_string(),
    ]
}

/// Writes which policy did what, where any acted.
fn write_actions(pass: &Pass, out: &mut impl Write) -> io::Result<()> {
    let actions: Vec<&str> = pass.journey.actions.iter().map(String::as_str).collect();
    if actions.is_empty() { Ok(()) } else { writeln!(out, "{:<16}    by {}", "", actions.join(", ")) }
}

fn write_line(cells: &[String; 6], out: &mut impl Write) -> io::Result<()> {
    let [scene, way, model_calls, tool_calls, tokens, outcome] = cells;
    let line =
        format!("{scene:<16}  {way:<16}  {model_calls:>11}  {tool_calls:>10}  {tokens:>11}  {outcome}");
    writeln!(out, "{}", line.trim_end())
}

impl Sum {
    fn plus(self, pass: &Pass) -> Self {
        Self {
            model_calls: self.model_calls + pass.asked.requests,
            tool_calls: self.tool_calls + pass.journey.tool_calls,
            tokens: self.tokens + pass.asked.prompt_tokens,
            answered: self.answered + usize::from(pass.journey.outcome == Outcome::Answered),
        }
    }
}

fn summary(before: &Sum, after: &Sum, scenes: usize) -> String {
    if before == after {
        return format!(
            "No difference: {} of {} answered either way.",
            before.answered,
            counted(scenes, "scene")
        );
    }
    let change = match (before.tokens, after.tokens) {
        (0, _) => String::new(),
        (before, after) if after <= before => format!(" ({}% fewer)", (before - after) * 100 / before),
        (before, after) => format!(" ({}% more)", (after - before) * 100 / before),
    };
    format!(
        "toolrein: {} of {} answered, not {}; {} {} sent, not {}{change}.",
        after.answered,
        counted(scenes, "scene"),
        before.answered,
        grouped(after.tokens),
        noun_after(after.tokens, "token"),
        grouped(before.tokens),
    )
}

#[cfg(test)]
mod tests {
    use super::super::Stats;
    use super::super::agent::Journey;
    use super::*;
    use hyper::http::StatusCode;
    use std::collections::BTreeSet;

    fn pass(requests: u64, tool_calls: u64, prompt_tokens: u64, outcome: Outcome) -> Pass {
        let asked = Stats { requests, request_bytes: prompt_tokens * 4, prompt_tokens };
        Pass { asked, journey: Journey { tool_calls, actions: BTreeSet::new(), outcome } }
    }

    fn written(rows: &[Row]) -> String {
        let mut out = Vec::new();
        write_head(&mut out).unwrap();
        rows.iter().for_each(|row| write_row(row, &mut out).unwrap());
        write_sum(rows, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn the_table_shows_each_scene_with_and_without_toolrein_within_100_columns() {
        let mut acted = pass(10, 6, 12_345, Outcome::Answered);
        acted.journey.actions = ["loops=blocked", "loops=notice"].map(str::to_owned).into();
        let rows = [
            Row {
                scene: "a search loop",
                before: pass(25, 25, 1_234_567, Outcome::GaveUp(25)),
                after: acted,
            },
            Row {
                scene: "no tool support",
                before: pass(1, 0, 900, Outcome::Refused(StatusCode::BAD_REQUEST)),
                after: pass(2, 0, 1_000, Outcome::Answered),
            },
        ];
        let text = written(&rows);
        assert_eq!(
            text.lines().skip(2).collect::<Vec<_>>(),
            [
                "a search loop     direct                     25          25    1,234,567  \
                 gave up after 25 calls",
                "                  through toolrein           10           6       12,345  answered",
                "                    by loops=blocked, loops=notice",
                "no tool support   direct                      1           0          900  \
                 refused (HTTP 400)",
                "                  through toolrein            2           0        1,000  answered",
                "",
                "toolrein: 2 of 2 scenes answered, not 0; 13,345 tokens sent, not 1,235,467 (98% fewer).",
            ]
        );
        assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
    }

    #[test]
    fn a_row_of_changes_is_one_line_within_100_columns() {
        let rows = [
            Row {
                scene: "a search loop",
                before: pass(25, 25, 1_234_567, Outcome::GaveUp(25)),
                after: pass(10, 6, 12_345, Outcome::Answered),
            },
            Row {
                scene: "a 200 KB page",
                before: pass(25, 25, 1_234_567, Outcome::GaveUp(25)),
                after: pass(25, 25, 234_567, Outcome::GaveUp(25)),
            },
        ];
        let mut out = Vec::new();
        rows.iter().for_each(|row| write_change(row, &mut out).unwrap());
        let text = String::from_utf8(out).unwrap();
        assert_eq!(
            text.lines().collect::<Vec<_>>(),
            [
                "a search loop     gave up after 25 calls -> answered; tokens 1,234,567 -> 12,345",
                "a 200 KB page     gave up after 25 calls -> gave up after 25 calls; tokens 1,234,567 -> \
                 234,567",
            ]
        );
        assert!(text.lines().all(|line| line.len() <= 100), "{text}");
    }

    #[test]
    fn the_summary_says_what_got_worse_and_what_stayed() {
        let row = |after| Row { scene: "s", before: pass(1, 0, 100, Outcome::Answered), after };
        assert!(
            written(&[row(pass(1, 0, 150, Outcome::Answered))])
                .contains("150 tokens sent, not 100 (50% more)")
        );
        assert!(
            written(&[row(pass(1, 0, 100, Outcome::Answered))])
                .contains("No difference: 1 of 1 scene answered")
        );
    }

    #[test]
    fn numbers_are_grouped_by_three_digits() {
        for (number, expected) in
            [(0, "0"), (999, "999"), (1_000, "1,000"), (123_456, "123,456"), (1_234_567, "1,234,567")]
        {
            assert_eq!(grouped(number), expected);
        }
    }
}
