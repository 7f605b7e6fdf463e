//! Metrics by model, with a cap on the number of models that get their own series, whatever names clients use. Counts
//! what upstreams billed.

use super::bounded;
use super::families::Maker;
use super::refusals::RefusalMetrics;
use dashmap::DashMap;
use dashmap::mapref::entry::Entry;
use model::record::{RefusalNote, Tokens};
use prometheus::{Error, IntCounter, IntCounterVec};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The most models with their own series.
const MOST_MODELS: usize = 50;
/// The label of all further models.
const OTHER: &str = "other";
/// The label of requests that name no model.
const NONE: &str = "none";

/// The metrics of all models.
pub(super) struct Models {
    families: Families,
    refusals: RefusalMetrics,
    /// By label. Read for every request, written when a model is first seen.
    seen: DashMap<String, Arc<Model>>,
    /// How many of them count against the cap.
    count: AtomicUsize,
}

struct Families {
    tokens: IntCounterVec,
    cached: IntCounterVec,
    cache_written: IntCounterVec,
    reasoning: IntCounterVec,
}

/// The resolved metrics of one model.
pub(super) struct Model {
    /// As a label.
    pub(super) name: String,
    input: IntCounter,
    output: IntCounter,
    cached: IntCounter,
    cache_written: IntCounter,
    reasoning: IntCounter,
}

impl Models {
    pub(super) fn new(make: &Maker<'_>) -> Result<Self, Error> {
        let families = Families {
            tokens: make.counters(
                "toolrein_tokens_total",
                "Tokens as upstreams billed them, re-asks included, by model and type: input, output.",
                &["model", "type"],
            )?,
            cached: make.counters(
                "toolrein_cached_tokens_total",
                "The part of the input tokens that was read from the provider's prompt cache.",
                &["model"],
            )?,
            cache_written: make.counters(
                "toolrein_cache_written_tokens_total",
                "The part of the input tokens that was written to the provider's prompt cache.",
                &["model"],
            )?,
            reasoning: make.counters(
                "toolrein_reasoning_tokens_total",
                "The part of the output tokens that was spent on reasoning.",
                &["model"],
            )?,
        };
        let refusals = RefusalMetrics::new(make)?;
        Ok(Self { families, refusals, seen: DashMap::new(), count: AtomicUsize::new(0) })
    }

    /// The metrics of the model with this name, or those of all others if there are too many.
    pub(super) fn model(&self, raw: Option<&str>) -> Arc<Model> {
        // A long name is looked up and kept under its label, so that it takes one entry and little memory.
        let name = bounded::name(raw.filter(|name| !name.is_empty()).unwrap_or(NONE));
        if let Some(model) = self.seen.get(name.as_ref()) {
            return Arc::clone(&model);
        }
        let is_full = self.count.load(Ordering::Relaxed) >= MOST_MODELS;
        match is_special(&name) || !is_full {
            true => self.meet(&name),
            false => self.model(Some(OTHER)),
        }
    }

    /// Counts the refusals of a model that one request met or avoided.
    pub(super) fn count_refusals(&self, model: &Model, notes: &[RefusalNote]) {
        notes.iter().for_each(|note| self.refusals.count(&model.name, *note));
    }

    /// Resolves the metrics of a model that is seen for the first time.
    fn meet(&self, name: &str) -> Arc<Model> {
        let model = match self.seen.entry(name.to_owned()) {
            Entry::Occupied(known) => return Arc::clone(known.get()),
            Entry::Vacant(vacant) => {
                // Counted while the entry is locked, so that two at once count one new name only once.
                let fits = is_special(name) || self.count.fetch_add(1, Ordering::Relaxed) < MOST_MODELS;
                fits.then(|| Arc::clone(&vacant.insert(Arc::new(self.families.model(name)))))
            }
        };
        model.unwrap_or_else(|| self.model(Some(OTHER)))
    }
}

/// Whether the label does not count against the cap.
fn is_special(name: &str) -> bool {
    [NONE, OTHER].contains(&name)
}

impl Families {
    fn model(&self, name: &str) -> Model {
        Model {
            name: name.to_owned(),
            input: self.tokens.with_label_values(&[name, "input"]),
            output: self.tokens.with_label_values(&[name, "output"]),
            cached: self.cached.with_label_values(&[name]),
            cache_written: self.cache_written.with_label_values(&[name]),
            reasoning: self.reasoning.with_label_values(&[name]),
        }
    }
}

impl Model {
    /// Counts what one request was billed.
    pub(super) fn billed(&self, tokens: &Tokens) {
        let Tokens { prompt, cached, cache_written, completion, reasoning, saved: _ } = *tokens;
        for (counter, count) in [
            (&self.input, prompt),
            (&self.output, completion),
            (&self.cached, cached),
            (&self.cache_written, cache_written),
            (&self.reasoning, reasoning),
        ] {
            counter.inc_by(count);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use prometheus::Registry;

    #[test]
    fn the_first_models_have_series_and_the_rest_share_one() {
        let registry = Registry::new();
        let models = Models::new(&Maker(&registry)).unwrap();
        let tokens = Tokens { prompt: 1, ..Tokens::default() };
        for _ in 0..2 {
            for nth in 0..MOST_MODELS + 20 {
                models.model(Some(&format!("m{nth}"))).billed(&tokens);
            }
        }
        models.model(None).billed(&tokens);
        let input = |name: &str| models.model(Some(name)).input.get();
        assert_eq!((input("m0"), input("m49"), input(OTHER), input(NONE)), (2, 2, 40, 1));
        assert_eq!(models.model(Some("m60")).name, OTHER);
        assert_eq!(models.seen.len(), MOST_MODELS + 2);
    }

    #[test]
    fn hostile_names_become_short_labels_and_take_one_place_each() {
        let registry = Registry::new();
        let models = Models::new(&Maker(&registry)).unwrap();
        let long = "long".repeat(10_000);
        for _ in 0..3 {
            assert_eq!(models.model(Some(&long)).name.chars().count(), 64);
        }
        assert_eq!(models.model(Some("a\nb")).name, "a_b");
        assert_eq!(models.count.load(Ordering::Relaxed), 2);
        assert!(models.seen.iter().all(|entry| entry.key().len() <= 70));
    }

    #[test]
    fn a_long_name_that_comes_often_takes_one_place() {
        let models = Models::new(&Maker(&Registry::new())).unwrap();
        let arn = format!("arn:aws:bedrock:eu-west-1:123456789012:inference-profile/{}", "m".repeat(40));
        for _ in 0..60 {
            assert_ne!(models.model(Some(&arn)).name, OTHER);
        }
        assert_eq!(models.model(Some("another")).name, "another");
    }

    #[test]
    fn threads_that_meet_new_names_at_once_count_each_name_once() {
        let models = Models::new(&Maker(&Registry::new())).unwrap();
        let barrier = std::sync::Barrier::new(4);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for nth in 0..MOST_MODELS - 1 {
                        barrier.wait();
                        models.model(Some(&format!("m{nth}")));
                    }
                });
            }
        });
        assert_eq!(models.seen.len(), MOST_MODELS - 1);
        assert_eq!(models.count.load(Ordering::Relaxed), MOST_MODELS - 1);
    }
}
