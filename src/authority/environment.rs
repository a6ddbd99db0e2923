//! Environment: which variables a call sees.

use std::collections::BTreeMap;

use serde_json::{Value as Json, json};

/// The axis: names, each with the value that it has where the host gave one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Environment {
    /// No constraint.
    Everything,
    /// These names. A name without a value constrains names alone: what a package declares and what narrows.
    These(BTreeMap<String, Option<String>>),
}

impl Environment {
    /// No variables.
    pub fn nothing() -> Self {
        Self::These(BTreeMap::new())
    }

    /// What both allow: names in both. One name under two different values is in neither.
    pub fn meet(&self, other: &Self) -> Self {
        match (self, other) {
            (Self::Everything, these) | (these, Self::Everything) => these.clone(),
            (Self::These(a), Self::These(b)) => Self::These(
                a.iter()
                    .filter_map(|(name, ours)| {
                        let value = match (ours, b.get(name)?) {
                            (Some(ours), Some(theirs)) if ours != theirs => return None,
                            (Some(value), _) | (None, Some(value)) => Some(value.clone()),
                            (None, None) => None,
                        };
                        Some((name.clone(), value))
                    })
                    .collect(),
            ),
        }
    }

    /// The variables to hand to a guest.
    pub fn variables(&self) -> Vec<(String, String)> {
        match self {
            Self::Everything => Vec::new(),
            Self::These(names) => {
                names.iter().filter_map(|(name, value)| Some((name.clone(), value.clone()?))).collect()
            }
        }
    }

    /// For people: names, never values.
    pub fn lines(&self) -> Vec<String> {
        match self {
            Self::Everything => vec!["any variable".to_owned()],
            Self::These(names) => names.keys().cloned().collect(),
        }
    }

    /// As data: names, never values.
    pub fn to_json(&self) -> Json {
        match self {
            Self::Everything => Json::Null,
            Self::These(names) => json!(names.keys().collect::<Vec<_>>()),
        }
    }
}
