//! The explanation as one page: nothing from outside, no script, light and dark, two columns where there is room. Lays
//! out and escapes; whatever comes from the recording passes `text` or `line`, and no other way leads onto the page.

use super::facts::{Act, Explained, Fate, Kind, Made, Piece, Refused, Ruled, Shown, Size};
use super::marks::{Mark, Run, compare};
use super::text::YESES;
use super::visible::{abridged, grouped, grouped_signed, one_line, saved_in_words, visible};
use std::fmt::Write as _;
use std::io::{self, Write};

const STYLE: &str = include_str!("page.css");

/// A page in the making. Writing to a string cannot fail.
struct Page {
    html: String,
    full: bool,
}

/// Writes the page.
pub(super) fn write(explained: &Explained, full: bool, out: &mut dyn Write) -> io::Result<()> {
    let mut page = Page { html: String::new(), full };
    page.opening(explained);
    page.figures(explained);
    page.map(explained);
    page.put(format_args!(
        "<input type=\"checkbox\" id=\"only\"><label for=\"only\">Only what changed</label>\n<main>\n"
    ));
    for shown in &explained.messages {
        page.message(shown);
        let here = |refused: &&Refused| refused.message == shown.message && shown.fate != Fate::Added;
        explained.refusals.iter().filter(here).for_each(|refused| page.refusal(refused));
    }
    page.put(format_args!("</main>\n"));
    page.sums(explained);
    page.limits(explained);
    page.tools(explained);
    let yeses = if explained.lacks_yeses() { format!(" {YESES}") } else { String::new() };
    page.put(format_args!(
        "<footer>The last request is shown, as enforced. Tokens are estimated. A conversation goes on as it was \
         recorded, also behind a call that would have been withheld.{yeses} Written by <b>toolrein explain</b>.</footer>\n\
         </body>\n</html>\n"
    ));
    out.write_all(page.html.as_bytes())
}

impl Page {
    fn opening(&mut self, explained: &Explained) {
        let place = match explained.line {
            0 => line(&explained.file),
            number => format!("{}:{number}", line(&explained.file)),
        };
        self.put(format_args!(
            "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <meta name=\"color-scheme\" content=\"light dark\">\n<meta name=\"referrer\" content=\"no-referrer\">\n\
             <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n\
             <title>{place} explained</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n\
             <header>\n<h1>{place}</h1>\n<p class=\"labels\">"
        ));
        let labels = [
            ("source", &explained.source),
            ("id", &explained.id),
            ("model", &explained.model),
            ("profile", &explained.profile),
        ];
        for (name, value) in labels {
            if let Some(value) = value {
                self.put(format_args!("<span>{name} <b>{}</b></span> ", line(value)));
            }
        }
        if let Some(placement) = explained.placement {
            self.put(format_args!("<span>notices placed <b>{placement}</b></span>"));
        }
        self.put(format_args!("</p>\n</header>\n"));
    }

    fn figures(&mut self, explained: &Explained) {
        let totals = &explained.totals;
        let (before, after) = (totals.tokens_before, totals.tokens_after);
        let saved = before as i64 - after as i64;
        let touched = explained.messages.iter().filter(|shown| shown.is_touched()).count();
        let share = if before == 0 { 0.0 } else { saved as f64 * 100.0 / before as f64 };
        self.put(format_args!("<dl class=\"figures\">\n"));
        for (name, figure, more) in [
            ("as recorded", grouped(before), "tokens".to_owned()),
            ("as sent", grouped(after), "tokens".to_owned()),
            (
                if saved < 0 { "added" } else { "saved" },
                grouped(saved.unsigned_abs()),
                format!("tokens, {:.1} %", share.abs()),
            ),
            ("touched", grouped(touched as u64), format!("of {} messages", explained.messages.len())),
            ("withheld", grouped(totals.withheld as u64), format!("of {} calls", totals.calls)),
        ] {
            self.put(format_args!("<div><dt>{name}</dt><dd>{figure}<small>{more}</small></dd></div>\n"));
        }
        self.put(format_args!("</dl>\n"));
    }

    /// One bar for each message, as wide as its tokens; what is not sent is the pale end of it.
    fn map(&mut self, explained: &Explained) {
        self.put(format_args!("<nav class=\"map\" aria-label=\"Messages by tokens\">"));
        for shown in explained.messages.iter().filter(|shown| shown.fate != Fate::Added) {
            let before = shown.before.map_or(0, |size| size.tokens).max(1);
            let after = shown.after.map_or(0, |size| size.tokens);
            let kept = if shown.fate == Fate::Reply { 100 } else { (after * 100 / before).min(100) };
            let touched = if shown.is_touched() { " touched" } else { "" };
            self.put(format_args!(
                "<a href=\"#m{0}\" class=\"{1}{touched}\" style=\"flex-grow:{before}\" title=\"{0} {1}, {2} tokens\">\
                 <i style=\"height:{kept}%\"></i></a>",
                shown.message,
                shown.role,
                grouped(before),
            ));
        }
        self.put(format_args!("</nav>\n"));
    }

    fn message(&mut self, shown: &Shown) {
        let touched = if shown.is_touched() { "touched" } else { "same" };
        let is_added = shown.fate == Fate::Added;
        let id = if is_added { String::new() } else { format!(" id=\"m{}\"", shown.message) };
        self.put(format_args!(
            "<article{id} class=\"{} {touched} {}\">\n<h2>",
            shown.role,
            fate_class(shown.fate)
        ));
        if is_added {
            self.put(format_args!("<span class=\"number\">+</span>"));
        } else {
            self.put(format_args!("<a class=\"number\" href=\"#m{0}\">{0}</a>", shown.message));
        }
        self.put(format_args!("<span class=\"role\">{}</span>", shown.role));
        if let Some(tool) = &shown.tool {
            self.put(format_args!("<code>{}</code>", line(tool)));
        }
        self.put(format_args!("<span class=\"size\">{}</span>", sizes(shown.before, shown.after)));
        if let Some(word) = fate_word(shown.fate) {
            self.put(format_args!("<em class=\"fate\">{word}</em>"));
        }
        self.put(format_args!("</h2>\n"));
        self.acts(&shown.acts);
        if let Some(result) = &shown.instead {
            self.put(format_args!(
                "<div class=\"instead\"><p>Its call would have been withheld. The model would read instead:</p>"
            ));
            self.pre(&[(Mark::Ours, result)]);
            self.put(format_args!("</div>\n"));
        }
        shown.pieces.iter().for_each(|piece| self.piece(piece, shown.fate));
        shown.calls.iter().for_each(|call| self.call(call));
        self.put(format_args!("</article>\n"));
    }

    fn acts(&mut self, acts: &[Act]) {
        if acts.is_empty() {
            return;
        }
        self.put(format_args!("<ul class=\"acts\">\n"));
        for act in acts {
            let class = if act.stands { "" } else { " class=\"idle\"" };
            self.put(format_args!(
                "<li{class}><b>{}</b> <mark>{}</mark> {}",
                act.policy,
                line(&act.action),
                line(&act.why)
            ));
            if act.saved_tokens != 0 {
                self.put(format_args!(" <span class=\"size\">{}</span>", saved_in_words(act.saved_tokens)));
            }
            self.put(format_args!("</li>\n"));
        }
        self.put(format_args!("</ul>\n"));
    }

    fn piece(&mut self, piece: &Piece, fate: Fate) {
        if piece.kind == Kind::Part {
            self.put(format_args!("<p class=\"part\">a part that is no text</p>\n"));
        }
        match (&piece.before, &piece.after) {
            (Some(before), Some(after)) if before == after => self.pre(&[(Mark::Same, before)]),
            (Some(before), Some(after)) => self.beside(&compare(before, after)),
            (Some(text), None) if matches!(fate, Fate::Dropped | Fate::Unsent) => {
                self.pre(&[(Mark::Gone, text)]);
            }
            (Some(text), None) => self.pre(&[(Mark::Same, text)]),
            (None, Some(text)) => self.pre(&[(Mark::Ours, text)]),
            (None, None) => {}
        }
    }

    /// The original, and what is sent, in two columns.
    fn beside(&mut self, runs: &[Run<'_>]) {
        self.put(format_args!("<div class=\"beside\">\n"));
        for (title, without) in [("recorded", Mark::Ours), ("as sent", Mark::Gone)] {
            let side: Vec<Run<'_>> = runs.iter().copied().filter(|(mark, _)| *mark != without).collect();
            self.put(format_args!("<div><h3>{title}</h3>"));
            self.pre(&side);
            self.put(format_args!("</div>\n"));
        }
        self.put(format_args!("</div>\n"));
    }

    fn pre(&mut self, runs: &[Run<'_>]) {
        if runs.iter().all(|(_, run)| run.is_empty()) {
            return self.put(format_args!("<p class=\"part\">empty</p>\n"));
        }
        self.put(format_args!("<pre>"));
        for (mark, run) in runs {
            let (open, close) = match mark {
                Mark::Same => ("", ""),
                Mark::Gone => ("<del>", "</del>"),
                Mark::Ours => ("<ins>", "</ins>"),
            };
            let (head, left_out, tail) = abridged(run, self.full);
            self.put(format_args!("{open}{}", text(head)));
            if left_out > 0 {
                let count = grouped(left_out as u64);
                self.put(format_args!(
                    "<span class=\"more\">{count} characters not shown here</span>{}",
                    text(tail)
                ));
            }
            self.put(format_args!("{close}"));
        }
        self.put(format_args!("</pre>\n"));
    }

    fn call(&mut self, call: &Made) {
        let (class, word) = match &call.ruling {
            Ruled::Released | Ruled::Unjudged => ("", ""),
            Ruled::Rewritten { .. } => (" rewritten", "rewritten"),
            Ruled::Answered { .. } => (" rewritten", "answered by toolrein"),
            Ruled::Withheld { .. } => (" withheld", "withheld"),
            Ruled::Refused => (" withheld", "never made: its request was refused"),
        };
        self.put(format_args!("<div class=\"call{class}\">\n<p>calls <code>{}</code>", line(&call.tool)));
        if !word.is_empty() {
            self.put(format_args!(" <em class=\"fate\">{word}</em>"));
        }
        self.put(format_args!("</p>\n"));
        match &call.ruling {
            Ruled::Rewritten { new_arguments, .. } => self.beside(&compare(&call.arguments, new_arguments)),
            _ if call.arguments.is_empty() => {}
            _ => self.pre(&[(Mark::Same, &call.arguments)]),
        }
        if !call.objections.is_empty() {
            self.put(format_args!("<ul class=\"acts\">\n"));
        }
        for objection in &call.objections {
            let (policy, reason, words) = (objection.policy, objection.reason, line(&objection.message));
            self.put(format_args!("<li><b>{policy}</b> <mark>{reason}</mark> {words}</li>\n"));
        }
        if !call.objections.is_empty() {
            self.put(format_args!("</ul>\n"));
        }
        self.put(format_args!("</div>\n"));
    }

    fn refusal(&mut self, refused: &Refused) {
        let (policy, code, words) = (refused.policy, line(refused.code), line(&refused.words));
        self.put(format_args!(
            "<article class=\"touched refusal\"><h2><em class=\"fate\">request refused</em></h2>\
             <ul class=\"acts\"><li><b>{policy}</b> <mark>{code}</mark> {words}</li></ul></article>\n"
        ));
    }

    fn sums(&mut self, explained: &Explained) {
        if explained.policies.is_empty() {
            return self
                .put(format_args!("<section><h2>Policies</h2><p>No policy did anything.</p></section>\n"));
        }
        self.put(format_args!(
            "<section><h2>Policies</h2>\n<div class=\"scroll\"><table>\n<tr><th>policy</th><th class=\"n\">changes</th>\
             <th class=\"n\">objections</th><th class=\"n\">tokens saved</th><th>what it does</th></tr>\n"
        ));
        for sum in &explained.policies {
            self.put(format_args!(
                "<tr><td><b>{}</b></td><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td>{}</td></tr>\n",
                sum.policy,
                sum.changes,
                sum.withheld,
                grouped_signed(sum.saved_tokens),
                line(sum.summary)
            ));
        }
        self.put(format_args!("</table></div></section>\n"));
    }

    fn limits(&mut self, explained: &Explained) {
        if explained.limits.is_empty() {
            return;
        }
        self.put(format_args!("<section><h2>Limits, used at most</h2>\n<div class=\"scroll\"><table>\n"));
        for limit in &explained.limits {
            let (used, most) = (grouped(limit.used), grouped(limit.limit));
            self.put(format_args!(
                "<tr><td><b>{}</b></td><td><code>{}</code></td><td class=\"n\">{used} of {most}</td>\
                 <td><meter min=\"0\" max=\"{}\" value=\"{}\"></meter></td></tr>\n",
                limit.policy,
                line(&limit.tool),
                limit.limit,
                limit.used
            ));
        }
        self.put(format_args!("</table></div></section>\n"));
    }

    fn tools(&mut self, explained: &Explained) {
        if explained.tools.is_empty() {
            return;
        }
        let (before, after) = (explained.totals.tool_tokens_before, explained.totals.tool_tokens_after);
        let count = explained.tools.len();
        let tokens = if before == after {
            format!("{} tokens", grouped(before))
        } else {
            format!("{} → {} tokens", grouped(before), grouped(after))
        };
        self.put(format_args!("<section><h2>Tools declared: {count}, {tokens}</h2>\n<p class=\"tools\">"));
        for tool in &explained.tools {
            match tool.hidden_by {
                Some(policy) => self.put(format_args!(
                    "<span class=\"hidden\"><del><code>{}</code></del> hidden by <b>{policy}</b></span> ",
                    line(&tool.name)
                )),
                None => self.put(format_args!("<code>{}</code> ", line(&tool.name))),
            }
        }
        self.put(format_args!("</p></section>\n"));
    }

    fn put(&mut self, html: std::fmt::Arguments<'_>) {
        let _ = self.html.write_fmt(html);
    }
}

/// A text of several lines, harmless on a page.
fn text(text: &str) -> String {
    escaped(&visible(text))
}

/// A text as one line, the same way.
fn line(text: &str) -> String {
    escaped(&one_line(text))
}

fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + text.len() / 16);
    for letter in text.chars() {
        match letter {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            _ => out.push(letter),
        }
    }
    out
}

fn sizes(before: Option<Size>, after: Option<Size>) -> String {
    let words = |chars: String, tokens: String| format!("{chars} characters, {tokens} tokens");
    match (before, after) {
        (Some(before), Some(after)) if before != after => words(
            format!("{} → {}", grouped(before.chars as u64), grouped(after.chars as u64)),
            format!("{} → {}", grouped(before.tokens), grouped(after.tokens)),
        ),
        (Some(one), _) | (None, Some(one)) => words(grouped(one.chars as u64), grouped(one.tokens)),
        (None, None) => String::new(),
    }
}

fn fate_class(fate: Fate) -> &'static str {
    match fate {
        Fate::Same => "kept",
        Fate::Changed => "changed",
        Fate::Dropped => "dropped",
        Fate::Added => "added",
        Fate::Reply => "reply",
        Fate::Unsent => "unsent",
    }
}

fn fate_word(fate: Fate) -> Option<&'static str> {
    match fate {
        Fate::Same => None,
        Fate::Changed => Some("changed"),
        Fate::Dropped => Some("dropped"),
        Fate::Added => Some("added by toolrein"),
        Fate::Reply => Some("the reply"),
        Fate::Unsent => Some("not sent"),
    }
}
