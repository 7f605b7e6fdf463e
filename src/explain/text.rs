//! The explanation for a terminal: a header, each message with what was removed (-) and what was added (+), and the
//! totals. Only lays out and colours; every text from the recording is made visible first.

use super::facts::{Act, Explained, Fate, Kind, Made, Piece, Ruled, Shown};
use super::headline::{counts, headline, replayed_blocks};
use super::marks::{Mark, compare};
use super::visible::{abridged, grouped, grouped_noun, grouped_signed, one_line, saved_in_words, visible};
use clap::builder::styling::{AnsiColor, Style};
use std::io::{self, Write};
use wire::plural::counted;

/// The colours in use.
struct Paint {
    on: bool,
}

const HEAD: Style = Style::new().bold();
const FAINT: Style = Style::new().dimmed();
const GONE: Style = AnsiColor::Red.on_default();
const OURS: Style = AnsiColor::Green.on_default();
const POLICY: Style = AnsiColor::Yellow.on_default();

/// Writes the whole explanation.
pub(super) fn write(explained: &Explained, colour: bool, full: bool, out: &mut dyn Write) -> io::Result<()> {
    let paint = Paint { on: colour };
    write_head(explained, &paint, out)?;
    let mut shown_last = false;
    for shown in &explained.messages {
        // An untouched message takes one line, unless full texts are wanted.
        if full || shown.is_touched() {
            writeln!(out)?;
            write_message(shown, full, &paint, out)?;
            shown_last = true;
        } else {
            if shown_last {
                writeln!(out)?;
            }
            writeln!(out, "{}", title(shown, &paint))?;
            write_glimpse(shown, &paint, out)?;
            shown_last = false;
        }
        for refused in explained
            .refusals
            .iter()
            .filter(|refused| refused.message == shown.message && shown.fate != Fate::Added)
        {
            let words = format!(
                "  {} refused the request that ends with this message ({})",
                refused.policy, refused.code
            );
            writeln!(out, "{}: {}", paint.of(GONE, &words), one_line(&refused.words))?;
        }
        if explained.counterfactual_after == Some(shown.message) && shown.fate != Fate::Added {
            writeln!(out, "{}", paint.of(FAINT, COUNTERFACTUAL))?;
        }
    }
    write_live(explained, full, &paint, out)?;
    write_totals(explained, &paint, out)
}

/// What toolrein did when this was recorded.
fn write_live(explained: &Explained, full: bool, paint: &Paint, out: &mut dyn Write) -> io::Result<()> {
    if explained.live.is_empty() {
        return Ok(());
    }
    writeln!(out, "\n{}", paint.of(HEAD, "Live, when this was recorded"))?;
    for block in &explained.live {
        let what =
            block.tool.as_ref().map_or("the request".to_owned(), |tool| format!("call {}", one_line(tool)));
        let head = format!("{}  {}  message {}", block.time, block.request_id, block.message);
        let verdict = if block.mode == "observe" { "observed" } else { &block.verdict };
        let verdict = paint.of(if block.verdict == "block" { GONE } else { POLICY }, &one_line(verdict));
        writeln!(out, "  {}  {} {verdict}", paint.of(FAINT, &one_line(&head)), paint.of(HEAD, &what))?;
        if let Some(arguments) = &block.arguments {
            write_lines(Mark::Same, arguments, full, paint, out)?;
        }
        for rule in &block.rules {
            let of = rule.used.zip(rule.limit);
            let used = of.map_or(String::new(), |(used, limit)| {
                format!(", {} of {} used", grouped(used), grouped(limit))
            });
            let by = paint.of(POLICY, &one_line(&format!("{} objects, {}{used}", rule.policy, rule.reason)));
            writeln!(out, "     {by}")?;
        }
        for (word, text) in [("the model read:", &block.read), ("then the model", &block.next)] {
            if let Some(text) = text {
                let (start, left_out, _) = abridged(text, full);
                let more = if left_out > 0 { " …" } else { "" };
                writeln!(out, "     {word} {}{more}", one_line(start))?;
            }
        }
    }
    Ok(())
}

fn write_head(explained: &Explained, paint: &Paint, out: &mut dyn Write) -> io::Result<()> {
    let place = match explained.line {
        0 => explained.file.clone(),
        line => format!("{}:{line}", explained.file),
    };
    write!(out, "{}", paint.of(HEAD, &one_line(&place)))?;
    let labels = [
        ("source", &explained.source),
        ("id", &explained.id),
        ("model", &explained.model),
        ("profile", &explained.profile),
    ];
    for (name, value) in labels {
        if let Some(value) = value {
            write!(out, "  {name} {}", one_line(value))?;
        }
    }
    writeln!(out)?;
    let totals = &explained.totals;
    let line = format!(
        "{}, {} as recorded; {}, {} as sent",
        counted(totals.messages_before, "message"),
        grouped_noun(totals.tokens_before, "token"),
        counted(totals.messages_after, "message"),
        grouped_noun(totals.tokens_after, "token"),
    );
    // What would have happened is the rest of the report.
    if explained.live_counts.is_some() {
        writeln!(out, "{}", headline(explained))?;
    }
    if let Some(blocks) = replayed_blocks(explained) {
        writeln!(out, "{blocks}")?;
    }
    writeln!(out, "{}", paint.of(FAINT, &format!("the last request: {line} (estimated)")))?;
    for tool in &explained.tools {
        if let Some(policy) = tool.hidden_by {
            let name = one_line(&tool.name).into_owned();
            writeln!(
                out,
                "{} the tool {name} ({})",
                paint.of(POLICY, &format!("{policy} hides")),
                counted(tool.tokens, "token")
            )?;
        }
    }
    writeln!(out)
}

fn write_message(shown: &Shown, full: bool, paint: &Paint, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "{}", title(shown, paint))?;
    for act in &shown.acts {
        writeln!(out, "{}", act_line(act, paint))?;
    }
    if let Some(result) = &shown.instead {
        writeln!(
            out,
            "  {}",
            paint.of(POLICY, "its call would have been blocked; the model would be shown instead:")
        )?;
        write_lines(Mark::Ours, result, full, paint, out)?;
    }
    for piece in &shown.pieces {
        write_piece(piece, shown.fate, full, paint, out)?;
    }
    shown.calls.iter().try_for_each(|call| write_call(call, full, paint, out))
}

/// `#3  tool build  9,000 -> 2,000 characters  2,500 -> 560 tokens  changed`
fn title(shown: &Shown, paint: &Paint) -> String {
    let number = if shown.fate == Fate::Added { "  +".to_owned() } else { format!("{:>3}", shown.message) };
    let tool = shown.tool.as_ref().map_or_else(String::new, |tool| format!(" {}", one_line(tool)));
    let name = paint.of(HEAD, &format!("{number}  {}{tool}", shown.role));
    let size = |pick: fn(super::facts::Size) -> u64, unit: &str| match (
        shown.before.map(pick),
        shown.after.map(pick),
    ) {
        (Some(before), Some(after)) if before != after => {
            format!("{} -> {} {unit}", grouped(before), grouped(after))
        }
        (Some(one), _) | (None, Some(one)) => format!("{} {unit}", grouped(one)),
        (None, None) => String::new(),
    };
    let sizes =
        format!("{}, {}", size(|size| size.chars as u64, "characters"), size(|size| size.tokens, "tokens"));
    let fate = match shown.fate {
        Fate::Same => String::new(),
        Fate::Changed => format!("  {}", paint.of(POLICY, "changed")),
        Fate::Dropped => format!("  {}", paint.of(GONE, "dropped")),
        Fate::Added => format!("  {}", paint.of(OURS, "added")),
        Fate::Reply => format!("  {}", paint.of(FAINT, "the reply")),
        Fate::Unsent => format!("  {}", paint.of(GONE, "not sent")),
    };
    format!("{name}  {}{fate}", paint.of(FAINT, &sizes))
}

fn act_line(act: &Act, paint: &Paint) -> String {
    let name = format!("{} {}", act.policy, one_line(&act.action));
    let saved = if act.saved_tokens == 0 {
        String::new()
    } else {
        format!(" ({})", saved_in_words(act.saved_tokens))
    };
    let style = if act.applies { POLICY } else { FAINT };
    format!("  {}: {}{saved}", paint.of(style, &name), one_line(&act.why))
}

/// The first words of an untouched message, on one line.
fn write_glimpse(shown: &Shown, paint: &Paint, out: &mut dyn Write) -> io::Result<()> {
    const WIDTH: usize = 100;
    let texts = shown.pieces.iter().filter_map(|piece| piece.before.as_deref());
    let calls = shown.calls.iter().map(|call| format!("{}({})", call.tool, call.arguments));
    for text in texts.map(str::to_owned).chain(calls) {
        let mut line: String = text.split_whitespace().collect::<Vec<_>>().join(" ");
        if let Some((end, _)) = line.char_indices().nth(WIDTH) {
            line.truncate(end);
            line.push('…');
        }
        if !line.is_empty() {
            writeln!(out, "     {}", paint.of(FAINT, &one_line(&line)))?;
        }
    }
    Ok(())
}

fn write_piece(piece: &Piece, fate: Fate, full: bool, paint: &Paint, out: &mut dyn Write) -> io::Result<()> {
    let (before, after) = (piece.before.as_deref(), piece.after.as_deref());
    match (before, after) {
        (Some(before), Some(after)) => compare(before, after)
            .into_iter()
            .try_for_each(|(mark, run)| write_lines(mark, run, full, paint, out)),
        (Some(text), None) => {
            let mark = if fate == Fate::Dropped || fate == Fate::Unsent { Mark::Gone } else { Mark::Same };
            write_lines(mark, text, full, paint, out)
        }
        (None, Some(text)) => write_lines(Mark::Ours, text, full, paint, out),
        (None, None) => Ok(()),
    }?;
    if piece.kind == Kind::Part {
        writeln!(out, "     {}", paint.of(FAINT, "(a part that is not text)"))
    } else {
        Ok(())
    }
}

/// A run of text, each line after its sign.
fn write_lines(mark: Mark, run: &str, full: bool, paint: &Paint, out: &mut dyn Write) -> io::Result<()> {
    let (sign, style) = match mark {
        Mark::Same => (' ', Style::new()),
        Mark::Gone => ('-', GONE),
        Mark::Ours => ('+', OURS),
    };
    let (head, left_out, tail) = abridged(run, full);
    let mut lines = |text: &str| {
        let text = visible(text);
        let mut lines = text.lines();
        lines
            .try_for_each(|line| writeln!(out, "{}", paint.of(style, format!("   {sign} {line}").trim_end())))
    };
    lines(head)?;
    if left_out > 0 {
        lines(&format!("… {} not shown here …", grouped_noun(left_out as u64, "character")))?;
        lines(tail)?;
    }
    Ok(())
}

fn write_call(call: &Made, full: bool, paint: &Paint, out: &mut dyn Write) -> io::Result<()> {
    let name = paint.of(HEAD, &format!("call {}", one_line(&call.tool)));
    let (word, style) = match &call.ruling {
        Ruled::Released | Ruled::Unjudged => ("", FAINT),
        Ruled::Rewritten { .. } => ("  rewritten", POLICY),
        Ruled::Answered { .. } => ("  answered by toolrein", POLICY),
        Ruled::Blocked { .. } => ("  blocked", GONE),
        Ruled::Refused => ("  never made: its request was refused", GONE),
    };
    writeln!(out, "   {name}{}", paint.of(style, word))?;
    let mark = if call.ruling.is_blocked() { Mark::Gone } else { Mark::Same };
    match &call.ruling {
        Ruled::Rewritten { by, new_arguments } => {
            writeln!(out, "  {}", paint.of(POLICY, &format!("{by} rewrites its arguments:")))?;
            for (mark, run) in compare(&call.arguments, new_arguments) {
                write_lines(mark, run, full, paint, out)?;
            }
        }
        _ => write_lines(mark, &call.arguments, full, paint, out)?,
    }
    for objection in &call.objections {
        let by = paint.of(POLICY, &format!("{} objects, {}", objection.policy, objection.reason));
        writeln!(out, "  {by}: {}", one_line(&objection.message))?;
    }
    Ok(())
}

fn write_totals(explained: &Explained, paint: &Paint, out: &mut dyn Write) -> io::Result<()> {
    let totals = &explained.totals;
    let (before, after) = (totals.tokens_before, totals.tokens_after);
    let saved = before as i64 - after as i64;
    writeln!(out, "\n{}", paint.of(HEAD, "Total"))?;
    let share = if before == 0 { 0.0 } else { saved as f64 * 100.0 / before as f64 };
    writeln!(
        out,
        "  tokens of messages  {} -> {} ({}, {:.1}%)",
        grouped(before),
        grouped(after),
        saved_in_words(saved),
        share.abs()
    )?;
    if !explained.tools.is_empty() {
        let (before, after) = (totals.tool_tokens_before, totals.tool_tokens_after);
        writeln!(out, "  tokens of tools     {} -> {}", grouped(before), grouped(after))?;
    }
    let (calls, blocked) = counts(explained);
    writeln!(out, "  calls               {calls}, {blocked} blocked")?;
    if explained.policies.is_empty() {
        writeln!(out, "\n{}", explained.idle_sentence())?;
    } else {
        writeln!(out, "\n{:16} {:>8} {:>10} {:>13}", "policy", "changes", "objections", "tokens saved")?;
    }
    for sum in &explained.policies {
        let saved = grouped_signed(sum.saved_tokens);
        writeln!(
            out,
            "{} {:>8} {:>10} {saved:>13}",
            paint.of(POLICY, &format!("{:16}", sum.policy)),
            sum.changes,
            sum.blocked
        )?;
    }
    if !explained.limits.is_empty() {
        writeln!(out, "\n{:16} {:30} {:>16}", "limit of", "tool", "used at most")?;
    }
    for limit in &explained.limits {
        let used = format!("{} of {}", grouped(limit.used), grouped(limit.limit));
        writeln!(out, "{:16} {:30} {used:>16}", limit.policy, one_line(&limit.tool))?;
    }
    writeln!(out, "\n{}", paint.of(FAINT, NOTE))?;
    if explained.lacks_approvals() {
        writeln!(out, "{}", paint.of(FAINT, UNKNOWN_APPROVALS))?;
    }
    Ok(())
}

/// The line between a blocked call and what follows it.
pub(super) const COUNTERFACTUAL: &str =
    "--- a live run would have gone on differently from here; what follows is counterfactual ---";

/// How to read the figures.
const NOTE: &str = "\
The last request is shown, as enforced. Tokens are estimated. The conversation continues as it was recorded, also after
a call that would have been blocked.";

/// The limitation for calls that need an approval.
pub(super) const UNKNOWN_APPROVALS: &str = "A recording does not show whether a person approved a call: \
    calls that need an approval are shown as blocked, even if it was given.";

impl Paint {
    fn of(&self, style: Style, text: &str) -> String {
        if self.on && !text.is_empty() { format!("{style}{text}{style:#}") } else { text.to_owned() }
    }
}
