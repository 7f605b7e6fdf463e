//! A schema as [`super::schema::read`] leaves it, in a form that values are held against: one node for each schema,
//! which names others by their place in a list, so that a schema that holds itself is no circle in memory. Judges
//! by the letter of JSON Schema 2020-12; what is excused and what is told of it is for others. How much work a
//! schema makes must be known before ([`super::weight`]): nothing here bounds it.

mod assertion;
mod compile;
mod equal;
mod number;
mod walk;

pub use assertion::{Assertion, Bound, Count, Of, Type, Types};

use super::place::Place;
use regex::Regex;
use serde_json::Value;
use walk::Walk;

/// The most that errors may take, in bytes: each holds its place, with keys as long as arguments like.
const MOST_TOLD: usize = 16 * 1024 * 1024;

/// A compiled schema; its root is the first node.
pub struct Checker {
    nodes: Vec<Node>,
}

/// A node by its place in the list.
type Id = usize;

/// One schema: everything that it asks of a value.
#[derive(Default)]
struct Node {
    /// In the order in which they are judged and told.
    rules: Vec<Rule>,
    /// Whether it asks something of the members or items that no other rule has looked at.
    sees_rest: bool,
}

/// What one keyword, or several that belong together, ask of a value.
enum Rule {
    Assertion(Assertion),
    Members(Members),
    Required(Vec<String>),
    DependentRequired(Vec<(String, Vec<String>)>),
    /// `propertyNames`.
    Names(Id),
    Items(Items),
    Contains {
        id: Id,
        least: u64,
        most: u64,
    },
    DependentSchemas(Vec<(String, Id)>),
    All(Vec<Id>),
    Any(Vec<Id>),
    One(Vec<Id>),
    Not(Id),
    If {
        test: Id,
        then: Option<Id>,
        otherwise: Option<Id>,
    },
    /// `unevaluatedProperties` and `unevaluatedItems`.
    Unevaluated {
        of: Of,
        id: Id,
    },
}

/// `properties`, `patternProperties` and `additionalProperties`.
struct Members {
    /// As written, which is how they are told.
    named: Vec<(String, Id)>,
    /// Places in `named`, sorted by name.
    sorted: Vec<usize>,
    patterns: Vec<(Regex, Id)>,
    rest: Option<Id>,
}

/// `prefixItems` and `items`.
struct Items {
    first: Vec<Id>,
    rest: Option<Id>,
}

/// Something that a value breaks.
pub struct Error<'a> {
    /// The value.
    pub found: &'a Value,
    /// Its JSON pointer within what was judged.
    pub place: String,
    /// What is broken.
    pub kind: Kind<'a>,
    /// The schema that asks for it.
    owner: &'a Node,
    checker: &'a Checker,
}

/// What an [`Error`] breaks.
pub enum Kind<'a> {
    Assertion(&'a Assertion),
    /// A member that must be there: its name.
    Required(&'a str),
    /// Members that nothing declares: their names.
    Additional(Vec<&'a str>),
    /// Members that fit nothing that is left to them.
    UnevaluatedProperties(Vec<&'a str>),
    UnevaluatedItems,
    PropertyNames,
    Contains,
    /// None of the branches fits: what is wrong with each.
    Any(Vec<Vec<Error<'a>>>),
    /// The same where one and only one may fit.
    One(Vec<Vec<Error<'a>>>),
    /// Several fit where one may.
    SeveralOfOne,
    Not,
}

impl Checker {
    /// `schema` compiled; `None` where it is none: what it refers to has not been through
    /// [`super::schema::read`] or leads elsewhere.
    pub fn compile(schema: &Value, are_formats_held: bool) -> Option<Self> {
        compile::compile(schema, are_formats_held).map(|nodes| Self { nodes })
    }

    /// Whether `value` fits.
    pub fn is_valid(&self, value: &Value) -> bool {
        Walk::quiet(self).node(0, value, &Place::Root)
    }

    /// Everything that is wrong with `value`; `None` where that is too much to tell.
    pub fn errors<'a>(&'a self, value: &'a Value) -> Option<Vec<Error<'a>>> {
        let mut walk = Walk::telling(self, MOST_TOLD);
        walk.node(0, value, &Place::Root);
        walk.told()
    }

    /// Whether no value fits the node `id`.
    fn is_nothing(&self, id: Id) -> bool {
        matches!(self.nodes[id].rules.as_slice(), [Rule::Assertion(Assertion::Nothing)])
    }
}

impl Node {
    fn members(&self) -> Option<&Members> {
        self.rules.iter().find_map(|rule| match rule {
            Rule::Members(members) => Some(members),
            _ => None,
        })
    }

    fn types(&self) -> Option<&Types> {
        self.rules.iter().find_map(|rule| match rule {
            Rule::Assertion(Assertion::Type(types)) => Some(types),
            _ => None,
        })
    }
}

impl<'a> Error<'a> {
    /// Whether a type stands beside what is broken.
    pub fn is_beside_type(&self) -> bool {
        self.owner.types().is_some()
    }

    /// The names of members that are declared beside what is broken.
    pub fn declared_names(&self) -> Vec<&'a str> {
        let members = self.owner.members();
        members.into_iter().flat_map(|members| &members.named).map(|(name, _)| name.as_str()).collect()
    }

    /// The types that are declared beside what is broken for the member `name`.
    pub fn declared_types(&self, name: &str) -> Option<&'a Types> {
        self.checker.nodes[self.owner.members()?.named(name)?].types()
    }
}

impl Members {
    fn named(&self, name: &str) -> Option<Id> {
        let at = self.sorted.binary_search_by(|at| self.named[*at].0.as_str().cmp(name)).ok()?;
        Some(self.named[self.sorted[at]].1)
    }
}

impl Kind<'_> {
    /// The keyword that objects.
    pub fn keyword(&self) -> &'static str {
        match self {
            Self::Assertion(assertion) => assertion.keyword(),
            Self::Required(_) => "required",
            Self::Additional(_) => "additionalProperties",
            Self::UnevaluatedProperties(_) => "unevaluatedProperties",
            Self::UnevaluatedItems => "unevaluatedItems",
            Self::PropertyNames => "propertyNames",
            Self::Contains => "contains",
            Self::Any(_) => "anyOf",
            Self::One(_) | Self::SeveralOfOne => "oneOf",
            Self::Not => "not",
        }
    }
}

#[cfg(test)]
mod tests;
