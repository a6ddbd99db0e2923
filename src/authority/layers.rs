//! A set of constraints of which every one must be satisfied.
//!
//! Two patterns have no exact intersection in general, so a meet keeps both. As a set of layers, meet is set union:
//! commutative, associative and idempotent by construction, and never wider than either side, since a request that
//! satisfies the union satisfies each part.

use std::collections::BTreeSet;

/// One constraint of an axis.
pub trait Layer: Ord + Clone {
    /// Whether nothing can satisfy this layer.
    fn is_nothing(&self) -> bool;
}

/// A conjunction of layers. No layer means no constraint; a layer that nothing satisfies absorbs all others.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Layers<L: Ord>(BTreeSet<L>);

impl<L: Layer> Layers<L> {
    /// No constraint: the identity of [`Layers::meet`].
    pub fn everything() -> Self {
        Self(BTreeSet::new())
    }

    /// One constraint.
    pub fn of(layer: L) -> Self {
        Self(BTreeSet::from([layer]))
    }

    /// What both allow.
    pub fn meet(&self, other: &Self) -> Self {
        let all: BTreeSet<L> = self.0.union(&other.0).cloned().collect();
        match all.iter().find(|layer| layer.is_nothing()) {
            Some(nothing) => Self::of(nothing.clone()),
            None => Self(all),
        }
    }

    /// The layers, in a fixed order.
    pub fn iter(&self) -> impl Iterator<Item = &L> {
        self.0.iter()
    }

    /// Whether there is no constraint.
    pub fn is_everything(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a layer says that nothing is allowed.
    pub fn is_nothing(&self) -> bool {
        self.0.iter().any(Layer::is_nothing)
    }
}

impl<L: Layer + Default> Layers<L> {
    /// Nothing: the absorbing element of [`Layers::meet`].
    pub fn nothing() -> Self {
        Self::of(L::default())
    }
}
