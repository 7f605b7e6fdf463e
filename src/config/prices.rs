//! Prices of models, for the estimated cost of what was billed: those that ship (`prices.toml`), and the operator's own.
//! Computes; limits nothing.

use super::tables::Model;
use super::units::{optional_rate, rate};
use engine::price::Price;
use policies::pattern::{Pattern, best_match};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, LazyLock};

/// `price` in `[model.PATTERN]`: dollars for a million tokens.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rates {
    /// Of the prompt.
    #[serde(with = "rate")]
    pub input: u64,
    /// Of the part of the prompt that is read from the provider's cache; left out: as `input`, of a Claude model a tenth.
    #[serde(with = "optional_rate", default, skip_serializing_if = "Option::is_none")]
    pub cached_input: Option<u64>,
    /// Of the part of the prompt that is written to the provider's cache; left out: as `input`, of a Claude model 1.25 times
    /// as much.
    #[serde(with = "optional_rate", default, skip_serializing_if = "Option::is_none")]
    pub cache_write: Option<u64>,
    /// Of the part of that which the cache keeps for an hour; left out: twice `input`, as Anthropic bills it.
    #[serde(with = "optional_rate", default, skip_serializing_if = "Option::is_none")]
    pub cache_write_hour: Option<u64>,
    /// Of the completion.
    #[serde(with = "rate")]
    pub output: u64,
    /// Of the part of the completion that is reasoning; left out: as `output`.
    #[serde(with = "optional_rate", default, skip_serializing_if = "Option::is_none")]
    pub reasoning: Option<u64>,
}

/// `prices.toml`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Shipped {
    price: Vec<ShippedPrice>,
}

#[derive(Deserialize)]
struct ShippedPrice {
    models: Vec<String>,
    /// The month from which it was the list price.
    as_of: String,
    #[serde(flatten)]
    rates: FlatRates,
}

/// [`Rates`] as plain numbers, because serde's `flatten` loses the types of the fields.
#[derive(Deserialize)]
struct FlatRates {
    input: f64,
    cached_input: Option<f64>,
    cache_write: Option<f64>,
    cache_write_hour: Option<f64>,
    output: f64,
    reasoning: Option<f64>,
}

static TABLE: LazyLock<Vec<(Pattern, Price)>> = LazyLock::new(|| {
    // A test checks that the table can be read.
    let shipped: Vec<ShippedPrice> =
        toml::from_str(include_str!("prices.toml")).map_or_else(|_| Vec::new(), |it: Shipped| it.price);
    let rows = shipped.into_iter().filter(|row| !row.as_of.is_empty()).flat_map(|row| {
        let rates = row.rates.rates();
        row.models.into_iter().map(move |model| {
            let name = model.as_str().into();
            (Pattern::new(model), rates.price(name))
        })
    });
    rows.collect()
});

/// The prices of [`TABLE`] for a whole name, which take precedence over those for a family.
static BY_NAME: LazyLock<HashMap<&str, &Price>> = LazyLock::new(|| {
    let exact = TABLE.iter().filter(|(pattern, _)| pattern.is_exact());
    exact.map(|(pattern, price)| (pattern.as_str(), price)).collect()
});

/// The price of `model`, from those of the operator's settings that hold one, else the shipped one. A router's prefix of
/// the name (`openai/gpt-4o`) is ignored for the shipped ones.
pub(super) fn price_of<'a>(own: &'a [(Pattern, Price)], model: &str) -> Option<&'a Price> {
    let name = model.rsplit('/').next().unwrap_or(model);
    let shipped = || BY_NAME.get(name).copied().or_else(|| best_match(&TABLE, name));
    best_match(own, model).or_else(shipped)
}

/// The prices in the settings of models.
pub(super) fn own_prices(models: &BTreeMap<String, Model>) -> Vec<(Pattern, Price)> {
    let priced = models.iter().filter_map(|(name, model)| Some((name, model.price.clone()?)));
    priced.map(|(name, rates)| (Pattern::new(name), rates.price(name.as_str().into()))).collect()
}

impl Rates {
    /// The price of the model, or the pattern of models, of this name.
    fn price(&self, name: Arc<str>) -> Price {
        let Self { input, cached_input, cache_write, cache_write_hour, output, reasoning } = *self;
        // Anthropic's cache has its prices in proportion to the prompt's.
        let is_claude = name.contains("claude");
        let (read, written) = if is_claude { (input / 10, input / 4 * 5) } else { (input, input) };
        Price {
            name,
            input,
            cached_input: cached_input.unwrap_or(read),
            cache_write: cache_write.unwrap_or(written),
            cache_write_hour: cache_write_hour.unwrap_or(input.saturating_mul(2)),
            output,
            reasoning: reasoning.unwrap_or(output),
        }
    }
}

impl FlatRates {
    fn rates(&self) -> Rates {
        let micros = |dollars: f64| (dollars * 1e6).round() as u64;
        Rates {
            input: micros(self.input),
            cached_input: self.cached_input.map(micros),
            cache_write: self.cache_write.map(micros),
            cache_write_hour: self.cache_write_hour.map(micros),
            output: micros(self.output),
            reasoning: self.reasoning.map(micros),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dialects::usage::Usage;

    #[test]
    fn every_shipped_price_can_be_read_has_a_month_and_is_plausible() {
        let shipped: Shipped = toml::from_str(include_str!("prices.toml")).unwrap();
        for row in &shipped.price {
            let (year, month) = row.as_of.split_once('-').unwrap();
            assert!(("2023".."2027").contains(&year) && ("01"..="12").contains(&month), "{}", row.as_of);
            let FlatRates { input, cached_input, cache_write, output, .. } = row.rates;
            let models = &row.models;
            assert!(input > 0.0 && output >= input && output < 1_000.0, "{models:?}");
            assert!(cached_input.is_none_or(|cached| cached < input), "{models:?}");
            assert!(cache_write.is_none_or(|written| written > input && written < 2.0 * input), "{models:?}");
        }
        let mut names: Vec<&String> = shipped.price.iter().flat_map(|row| &row.models).collect();
        assert_eq!(TABLE.len(), names.len());
        names.sort_unstable();
        let count = names.len();
        names.dedup();
        assert_eq!(names.len(), count, "each name once");
    }

    #[test]
    fn a_model_is_priced_by_its_best_matching_name_and_an_unknown_model_has_no_price() {
        for (model, name) in [
            ("gpt-4o", Some("gpt-4o")),
            ("openai/gpt-4o-mini-2024-07-18", Some("gpt-4o-mini-2024*")),
            ("gpt-5-2025-08-07", Some("gpt-5-20*")),
            ("gpt-5-mini", Some("gpt-5-mini")),
            ("anthropic/claude-sonnet-4.5", Some("claude-sonnet-4.5")),
            ("claude-3-5-haiku-20241022", Some("claude-3-5-haiku*")),
            ("gpt-9", None),
            ("gpt-4o-realtime-preview", None),
            ("my-model", None),
        ] {
            assert_eq!(price_of(&[], model).map(|price| &*price.name), name, "{model}");
        }
    }

    #[test]
    fn each_kind_of_token_is_billed_at_its_own_rate() {
        let rates = Rates {
            input: 2_000_000,
            cached_input: Some(500_000),
            cache_write: Some(2_500_000),
            cache_write_hour: Some(5_000_000),
            output: 8_000_000,
            reasoning: Some(4_000_000),
        };
        let price = |rates: &Rates| rates.price("m".into());
        let usage = |prompt, cached, cache_written, completion, reasoning| Usage {
            prompt,
            cached,
            cache_written,
            completion,
            reasoning,
            ..Usage::default()
        };
        for (usage, nanodollars) in [
            (usage(1_000_000, 0, 0, 0, 0), 2_000_000_000),
            (usage(1_000, 400, 0, 0, 0), 600 * 2_000 + 400 * 500),
            (usage(1_000, 400, 100, 0, 0), 500 * 2_000 + 400 * 500 + 100 * 2_500),
            (usage(0, 0, 0, 100, 60), 40 * 8_000 + 60 * 4_000),
            (usage(0, 0, 0, 28, 28), 28 * 4_000),
            (usage(1, 9, 9, 0, 0), 500),
        ] {
            assert_eq!(price(&rates).of(&usage), nanodollars, "{usage:?}");
        }
        let for_an_hour = Usage { cache_written_hour: 60, ..usage(1_000, 400, 100, 0, 0) };
        assert_eq!(price(&rates).of(&for_an_hour), 500 * 2_000 + 400 * 500 + 40 * 2_500 + 60 * 5_000);
        let plain =
            Rates { cached_input: None, cache_write: None, cache_write_hour: None, reasoning: None, ..rates };
        assert_eq!(price(&plain).of(&usage(10, 4, 4, 10, 5)), 10 * 2_000 + 10 * 8_000);
        assert_eq!(price(&plain).of(&for_an_hour), 940 * 2_000 + 60 * 4_000);
        let claude = plain.price("claude-*".into());
        assert_eq!(claude.of(&for_an_hour), 500 * 2_000 + 400 * 200 + 40 * 2_500 + 60 * 4_000);
    }
}
