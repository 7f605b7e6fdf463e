//! The announcement of a cut: the sentence in a shortened result that names how much is gone and how to get it. Fills
//! the templates; decides nothing.

use super::super::super::texts::{Text, Texts};
use super::How;
use std::fmt::Display;
use wire::plural::range;

pub(in super::super) const CUT: Text = Text {
    key: "cut",
    default: "[toolrein: cut {gone} of {total} characters here{place}{errors}; {how}]",
    placeholders: &["gone", "total", "place", "errors", "how"],
};
pub(in super::super) const LINES: Text = Text {
    key: "lines",
    default: " ({range} of this result's {count})",
    placeholders: &["range", "first", "last", "count"],
};
pub(in super::super) const ROWS: Text = Text {
    key: "rows",
    default: " ({range} of this result's {count})",
    placeholders: &["range", "first", "last", "count"],
};
pub(in super::super) const ERRORS: Text =
    Text { key: "errors", default: ", except what looks like errors", placeholders: &[] };
pub(in super::super) const NARROWER: Text = Text {
    key: "narrower",
    default: "to see more, ask the tool for a narrower range or filter",
    placeholders: &[],
};
pub(in super::super) const READ: Text = Text {
    key: "reader",
    default: "to see more, use {reader} with call {call}",
    placeholders: &["reader", "call"],
};
pub(in super::super) const JSON: Text = Text {
    key: "json",
    default: "[toolrein: cut {gone} of {total} characters of this JSON, at each …{layout}; {how}]",
    placeholders: &["gone", "total", "layout", "how"],
};
pub(in super::super) const LAYOUT: Text =
    Text { key: "layout", default: " ({layout} of them layout)", placeholders: &["layout"] };
pub(in super::super) const JSON_LAYOUT: Text = Text {
    key: "json_layout",
    default: "[toolrein: cut {gone} of {total} characters of this JSON, all of them layout]",
    placeholders: &["gone", "total"],
};
pub(in super::super) const INSIDE: Text = Text {
    key: "inside",
    default: "[… {gone} of {total} characters cut …]",
    placeholders: &["gone", "total"],
};
pub(in super::super) const INSIDE_STRING: Text = Text {
    key: "inside_string",
    default: "…[{gone} {gone:character/characters} cut]…",
    placeholders: &["gone"],
};
pub(in super::super) const ENCODED: Text = Text {
    key: "encoded",
    default: "[toolrein: {kind}, {size}, base64, left out]",
    placeholders: &["kind", "size"],
};

/// What an announcement is written with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) struct Wording<'a> {
    /// Free of quotes, backslashes and line ends, so that an announcement needs no escape in JSON.
    pub(in super::super) texts: &'a Texts,
    pub(in super::super) how: How,
}

/// How a cut is announced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mark<'a> {
    /// The one full announcement: how much is gone, of how much, and how to get it.
    Full(Wording<'a>),
    /// A placeholder inside a value of a JSON document, whose announcement is elsewhere.
    Quiet(&'a Texts),
}

/// The facts in one announcement.
#[derive(Debug, Clone, Copy)]
pub(super) struct Loss {
    /// Characters.
    pub(super) gone: usize,
    /// Characters.
    pub(super) total: usize,
    /// Which part is cut; `None` for a text of one line.
    pub(super) place: Option<LossRange>,
    /// Whether lines that look like errors were kept out of the part that was cut.
    pub(super) errors_kept: bool,
}

/// The cut range of a text's lines or of a table's rows.
#[derive(Debug, Clone, Copy)]
pub(super) struct LossRange {
    pub(super) unit: Unit,
    /// The first and the last one cut, from 1.
    pub(super) first: usize,
    pub(super) last: usize,
    /// How many there are.
    pub(super) count: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unit {
    Lines,
    Rows,
}

impl Loss {
    /// The facts that make the longest sentence: about one line or row, or about two, as far down as can be.
    pub(super) fn at_the_end(self) -> [Self; 2] {
        [0, 1].map(|before| {
            let at_end = |place: LossRange| LossRange {
                first: place.count.saturating_sub(before).max(1),
                last: place.count,
                ..place
            };
            Self { place: self.place.map(at_end), ..self }
        })
    }
}

impl Mark<'_> {
    /// The marker in a text.
    pub(super) fn sentence(self, loss: &Loss) -> String {
        match self {
            Self::Full(wording) => wording.sentence(loss),
            Self::Quiet(texts) => {
                texts.fill(&INSIDE, &[("gone", &loss.gone as &dyn Display), ("total", &loss.total)])
            }
        }
    }
}

impl Wording<'_> {
    fn sentence(self, loss: &Loss) -> String {
        let Loss { gone, total, place, errors_kept } = loss;
        let place = place.map(|place| self.place(place)).unwrap_or_default();
        let errors = if *errors_kept { self.texts.fill(&ERRORS, &[]) } else { String::new() };
        let values: [(&str, &dyn Display); 5] =
            [("gone", gone), ("total", total), ("place", &place), ("errors", &errors), ("how", &self.how())];
        self.texts.fill(&CUT, &values)
    }

    fn place(self, LossRange { unit, first, last, count }: LossRange) -> String {
        let (text, noun) = match unit {
            Unit::Lines => (&LINES, "line"),
            Unit::Rows => (&ROWS, "row"),
        };
        let range = range(first, last, noun);
        let values: [(&str, &dyn Display); 4] =
            [("range", &range), ("first", &first), ("last", &last), ("count", &count)];
        self.texts.fill(text, &values)
    }

    fn how(self) -> String {
        match self.how {
            How::Narrower => self.texts.fill(&NARROWER, &[]),
            How::Read { reader, call } => {
                self.texts.fill(&READ, &[("reader", &reader as &dyn Display), ("call", &call)])
            }
        }
    }

    /// The marker of a JSON document: `layout` are the characters of its indentation and of needless escapes, which go
    /// first and take no information with them.
    pub(super) fn json_sentence(self, gone: usize, total: usize, layout: usize) -> String {
        if layout > 0 && layout >= gone {
            return self.texts.fill(&JSON_LAYOUT, &[("gone", &gone as &dyn Display), ("total", &total)]);
        }
        let part = if layout == 0 { String::new() } else { self.texts.fill(&LAYOUT, &[("layout", &layout)]) };
        let values: [(&str, &dyn Display); 4] =
            [("gone", &gone), ("total", &total), ("layout", &part), ("how", &self.how())];
        self.texts.fill(&JSON, &values)
    }

    /// The room that [`Self::json_sentence`] may take in a document of `total` characters, in characters.
    pub(super) fn longest_json_sentence(self, total: usize) -> usize {
        let forms = [total.saturating_sub(1), total].map(|layout| self.json_sentence(total, total, layout));
        forms.iter().map(|form| form.chars().count()).max().unwrap_or_default()
    }

    /// The longest marker of a result of less than ten million characters, in characters.
    pub(in super::super) fn longest(self) -> usize {
        const MOST: usize = 9_999_999;
        let longest = [Unit::Lines, Unit::Rows].map(|unit| {
            let place = Some(LossRange { unit, first: MOST, last: MOST, count: MOST });
            Loss { gone: MOST, total: MOST, place, errors_kept: true }.at_the_end()
        });
        let longest = longest.into_iter().flatten().map(|loss| self.sentence(&loss).chars().count());
        longest.chain([self.longest_json_sentence(MOST)]).max().unwrap_or_default()
    }
}
