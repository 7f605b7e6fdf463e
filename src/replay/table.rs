//! The report of a replay for people: aligned tables, the limits, the broken lines, and a summary. Formats figures;
//! adds none up. Names from recordings are shown without control characters.

use super::input::{Flaw, InputPosition};
use super::report::{LiveSums, Report, source_of};
use super::tally::{After, Conversation, Figures, Group, PolicySum, share};
use std::io::{self, Write};
use wire::plural::{grouped, noun_after};
use wire::unseen::is_unseen;

/// Limits that are shown, the fullest first.
const MOST_LIMITS: usize = 10;
/// Unused tools that are shown, those first whose definitions took the most tokens.
const MOST_UNUSED: usize = 10;
/// The longest name shown, in characters.
const LONGEST_NAME: usize = 120;
/// Between two columns.
const GAP: &str = "  ";

/// Writes the whole report.
pub(super) fn write(report: &Report, out: &mut dyn Write) -> io::Result<()> {
    if report.total.conversations > 0 {
        write_policies(report, out)?;
        write_sources(report, out)?;
        write_limits(report, out)?;
        write_unused(report, out)?;
    }
    write_broken(report, out)?;
    write_total(report, out)
}

/// Writes one conversation: its position, and what was done to it.
pub(super) fn write_one(conversation: &Conversation, out: &mut dyn Write) -> io::Result<()> {
    let Conversation { position, labels, figures, .. } = conversation;
    let solved = match labels.solved {
        Some(true) => ", solved",
        Some(false) => ", not solved",
        None => "",
    };
    let id = labels.id.as_ref().map_or_else(String::new, |id| format!("{GAP}{}", shown(id)));
    writeln!(
        out,
        "{}{GAP}{}{id}: {}, {}{solved}",
        shown(&position.to_string()),
        shown(source_of(conversation)),
        counted(figures.requests, "request"),
        counted(figures.calls, "call"),
    )?;
    for event in &conversation.events {
        let tool = event.tool.as_ref().map_or_else(String::new, |tool| format!(" {}", shown(tool)));
        let reason = event.reason.as_ref().map_or_else(String::new, |reason| format!(" ({reason})"));
        writeln!(out, "    message {}: {} {}{tool}{reason}", event.message, event.policy, event.action)?;
    }
    Ok(())
}

/// A broken line, named.
pub(super) fn broken(position: &InputPosition, flaw: &Flaw) -> String {
    format!("{}: {flaw}", shown(&position.to_string()))
}

fn write_policies(report: &Report, out: &mut dyn Write) -> io::Result<()> {
    if report.policies.is_empty() {
        return writeln!(out, "No policy is on.\n");
    }
    let mut rows = vec![head(&[
        "policy",
        "source",
        "acted",
        "blocked",
        "notices",
        "touched",
        "solved, blocked",
        "bytes saved",
        "tokens saved",
    ])];
    for policy in &report.policies {
        let total = &report.total;
        rows.extend(total.policies.get(policy).map(|sum| policy_row(policy, "all", sum, total)));
        for (source, group) in report.sources.iter().filter(|_| report.sources.len() > 1) {
            let sum = group.policies.get(policy).filter(|sum| !sum.acts.actions.is_empty());
            rows.extend(sum.map(|sum| policy_row("", &shown(source), sum, group)));
        }
    }
    write_rows(&rows, 2, out)
}

fn policy_row(policy: &str, source: &str, sum: &PolicySum, group: &Group) -> Vec<String> {
    let acts = &sum.acts;
    vec![
        policy.to_owned(),
        source.to_owned(),
        grouped(acts.acted),
        grouped(acts.blocked),
        grouped(acts.notices),
        grouped(sum.touched),
        of_solved(sum.solved_stopped, group.solved),
        signed(acts.bytes_saved),
        grouped(acts.tokens_saved),
    ]
}

fn write_unused(report: &Report, out: &mut dyn Write) -> io::Result<()> {
    let unused = report.unused_tools();
    if unused.is_empty() {
        return Ok(());
    }
    let mut rows = vec![head(&["declared, never called", "requests", "tokens each", "tokens"])];
    for (tool, used) in unused.iter().take(MOST_UNUSED) {
        let each = used.tokens / used.requests.max(1);
        rows.push(vec![shown(tool), grouped(used.requests), grouped(each), grouped(used.tokens)]);
    }
    let more = unused.len().saturating_sub(MOST_UNUSED);
    if more > 0 {
        rows.push(vec![format!("... {} more, see --json", grouped(more as u64))]);
    }
    write_rows(&rows, 1, out)
}

fn write_sources(report: &Report, out: &mut dyn Write) -> io::Result<()> {
    let mut rows = vec![head(&[
        "source",
        "conv.",
        "touched",
        "blocked",
        "solved, blocked",
        "requests",
        "calls",
        "bytes saved",
        "prefix kept",
    ])];
    for (source, group) in &report.sources {
        let figures = &group.figures;
        rows.push(vec![
            shown(source),
            grouped(group.conversations),
            grouped(group.touched),
            grouped(group.stopped),
            of_solved(group.solved_stopped, group.solved),
            grouped(figures.requests),
            grouped(figures.calls),
            signed(figures.bytes_before as i64 - figures.bytes_after as i64),
            percent(figures.prefix_kept, figures.prefix_bytes),
        ]);
    }
    write_rows(&rows, 1, out)
}

fn write_limits(report: &Report, out: &mut dyn Write) -> io::Result<()> {
    let mut limits: Vec<_> = report.limits.iter().filter(|(_, sum)| sum.most.limit > 0).collect();
    if limits.is_empty() {
        return Ok(());
    }
    // The sort is stable: equal shares stay in the order of names.
    limits.sort_by_key(|(_, sum)| std::cmp::Reverse(sum.most.used * 1_000_000 / sum.most.limit));
    let mut rows = vec![head(&["limit", "tool", "most used", "conversations", "at the limit"])];
    for ((policy, tool), sum) in limits.iter().take(MOST_LIMITS) {
        let used = format!("{} of {}", grouped(sum.most.used), grouped(sum.most.limit));
        rows.push(vec![
            (*policy).to_owned(),
            shown(tool),
            used,
            grouped(sum.conversations),
            grouped(sum.full),
        ]);
    }
    let more = limits.len().saturating_sub(MOST_LIMITS);
    if more > 0 {
        rows.push(vec![format!("... {} more, see --json", grouped(more as u64))]);
    }
    write_rows(&rows, 2, out)
}

fn write_broken(report: &Report, out: &mut dyn Write) -> io::Result<()> {
    if report.broken == 0 {
        return Ok(());
    }
    writeln!(out, "Not replayed: {}", counted(report.broken, "line"))?;
    for (position, flaw) in &report.named {
        writeln!(out, "{GAP}{}", broken(position, flaw))?;
    }
    let more = report.broken.saturating_sub(report.named.len() as u64);
    if more > 0 {
        writeln!(out, "{GAP}... and {} more", grouped(more))?;
    }
    writeln!(out)
}

fn write_total(report: &Report, out: &mut dyn Write) -> io::Result<()> {
    let Group { conversations, stopped, solved, solved_stopped, figures, .. } = &report.total;
    if *conversations == 0 {
        return writeln!(out, "Nothing to replay: no line holds a conversation.");
    }
    write_happened(&report.live_counts, out)?;
    let Figures { requests, calls, blocked, bytes_before, bytes_after, tokens_saved, .. } = figures;
    writeln!(
        out,
        "{}, {}, {}; {} blocked in {}.",
        counted(*conversations, "conversation"),
        counted(*requests, "request"),
        counted(*calls, "call"),
        counted(*blocked, "call"),
        counted(*stopped, "conversation"),
    )?;
    let After { conversations, requests, calls, blocked: avoided, .. } = figures.after;
    if conversations > 0 {
        writeln!(
            out,
            "After the first block the replay is counterfactual: the model would have gone on differently."
        )?;
        let (requests, calls) = (counted(requests, "request"), counted(calls, "call"));
        let (avoided, conversations) = (counted(avoided, "call"), counted(conversations, "conversation"));
        writeln!(
            out,
            "There: {requests}, {calls}; {avoided} blocked, an estimate of calls avoided, in {conversations}."
        )?;
    }
    if *solved > 0 {
        let share = percent(*solved_stopped, *solved);
        let text = counted(*solved, "solved conversation");
        writeln!(out, "{} of {text} would have seen a blocked call: {share}.", grouped(*solved_stopped))?;
    }
    let (before, after) = (counted(*bytes_before, "byte"), grouped(*bytes_after));
    writeln!(out, "{before} of requests became {after}; about {} saved.", counted(*tokens_saved, "token"))?;
    if figures.prefix_bytes > 0 {
        let kept = percent(figures.prefix_kept, figures.prefix_bytes);
        let breaks = counted(figures.prefix_breaks, "break");
        writeln!(
            out,
            "Prompt cache: {kept} of the earlier messages are sent again unchanged ({breaks} of the prefix)."
        )?;
    }
    if report.continued > 0 {
        writeln!(out, "{} continued by a later one.", counted(report.continued, "request body"))?;
    }
    Ok(())
}

/// What happened when toolrein recorded the conversations itself. Calls that it blocked then are not in them.
fn write_happened(live_counts: &LiveSums, out: &mut dyn Write) -> io::Result<()> {
    let LiveSums { conversations, requests, refused, calls, blocked } = live_counts;
    if *conversations == 0 {
        return Ok(());
    }
    let refused = match refused {
        0 => String::new(),
        refused => format!(", {} refused", grouped(*refused)),
    };
    writeln!(
        out,
        "When recorded: {}, {}{refused}, {}; {} blocked. In this replay of what the client saw:",
        counted(*conversations, "conversation"),
        counted(*requests, "request"),
        counted(*calls, "call"),
        counted(*blocked, "call"),
    )
}

/// Writes rows in columns, the first `left` of them aligned to the left.
fn write_rows(rows: &[Vec<String>], left: usize, out: &mut dyn Write) -> io::Result<()> {
    let columns = rows.iter().map(Vec::len).max().unwrap_or_default();
    // A row of one cell is a remark and does not affect the widths.
    let width = |column: usize| {
        let cells = rows.iter().filter(|row| row.len() > 1).filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or_default()
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    for row in rows {
        let cells = row.iter().zip(&widths).enumerate().map(|(column, (cell, &width))| {
            if column < left { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
        });
        writeln!(out, "{}", cells.collect::<Vec<_>>().join(GAP).trim_end())?;
    }
    writeln!(out)
}

fn head(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

/// A name from a recording, fit for a terminal.
fn shown(name: &str) -> String {
    let clean = name.chars().map(|letter| if is_unseen(letter) { '?' } else { letter });
    clean.take(LONGEST_NAME).collect()
}

fn counted(count: u64, what: &str) -> String {
    format!("{} {}", grouped(count), noun_after(count, what))
}

fn of_solved(stopped: u64, solved: u64) -> String {
    if solved == 0 { "-".to_owned() } else { format!("{} of {}", grouped(stopped), grouped(solved)) }
}

/// Rounded down, so that only a full share is shown as 100%.
fn percent(part: u64, whole: u64) -> String {
    share(part, whole).map_or_else(
        || "-".to_owned(),
        |_| {
            let hundredths = u128::from(part) * 10_000 / u128::from(whole);
            format!("{}.{:02}%", hundredths / 100, hundredths % 100)
        },
    )
}

fn signed(number: i64) -> String {
    let sign = if number < 0 { "-" } else { "" };
    format!("{sign}{}", grouped(number.unsigned_abs()))
}
