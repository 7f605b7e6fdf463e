//! The filter of the texts of a final answer: it removes calls that the model wrote as text. A text may come in pieces and
//! whole as well, and all say the same. A codec names the texts of an event; the edits are splices into it.

use super::{Markup, ToolNames};
use std::sync::Arc;
use wire::body::Str;
use wire::json::{decode, escaped};
use wire::splice::Splices;

/// See the file's head. `K` names a text that comes in pieces.
#[derive(Debug)]
pub struct TextCleaner<K> {
    tools: Arc<ToolNames>,
    /// The texts that come in pieces.
    texts: Vec<(K, Markup)>,
    has_cut: bool,
}

impl<K: PartialEq> TextCleaner<K> {
    /// A filter of texts in which the model may have written calls of these tools.
    pub fn new(tools: ToolNames) -> Self {
        Self { tools: Arc::new(tools), texts: Vec::new(), has_cut: false }
    }

    /// Whether something was removed.
    pub fn has_cut(&self) -> bool {
        self.has_cut
    }

    /// Cleans a piece of the text `key`, a string of `data`; with `ends` nothing is held back. Returns whether anything
    /// of it remains.
    pub fn clean_piece(
        &mut self,
        key: K,
        piece: Str,
        ends: bool,
        data: &[u8],
        splices: &mut Splices,
    ) -> bool {
        let at = self.texts.iter().position(|(known, _)| *known == key).unwrap_or_else(|| {
            self.texts.push((key, Markup::new(&self.tools)));
            self.texts.len() - 1
        });
        let said = decode(piece, data);
        let markup = &mut self.texts[at].1;
        let mut kept = markup.push(&said);
        if ends {
            kept += &markup.finish();
        }
        if said != kept {
            splices.replace(piece.span, escaped(&kept));
        }
        !kept.trim().is_empty()
    }

    /// Cleans a text that came whole, as strings of `data`; returns whether anything of it remains.
    pub fn clean_whole(&mut self, texts: &[Str], data: &[u8], splices: &mut Splices) -> bool {
        let mut markup = Markup::new(&self.tools);
        let mut is_visible = false;
        for (nth, text) in texts.iter().enumerate() {
            let said = decode(*text, data);
            let mut kept = markup.push(&said);
            if nth + 1 == texts.len() {
                kept += &markup.finish();
            }
            if said != kept {
                self.has_cut = true;
                splices.replace(text.span, escaped(&kept));
            }
            is_visible |= !kept.trim().is_empty();
        }
        is_visible
    }

    /// Ends the texts with these names: returns what was held of each, where that is anything.
    pub fn end(&mut self, ends: impl Fn(&K) -> bool) -> Vec<(K, String)> {
        let (ended, open) = std::mem::take(&mut self.texts).into_iter().partition(|(key, _)| ends(key));
        self.texts = open;
        let ended: Vec<(K, Markup)> = ended;
        let rest = ended.into_iter().map(|(key, mut markup)| (key, markup.finish()));
        rest.filter(|(_, rest)| !rest.is_empty()).collect()
    }
}
