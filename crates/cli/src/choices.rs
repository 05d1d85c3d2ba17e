//! Flags whose values come from a registry, so that help lists every name that the library knows.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};

/// A parser of these names, each with what it stands for and a line of help.
pub(crate) fn named<T: Clone + Send + Sync + 'static>(
    choices: impl Iterator<Item = (T, &'static str, impl Into<String>)>,
) -> impl TypedValueParser<Value = T> {
    let (known, shown): (Vec<(T, &'static str)>, Vec<PossibleValue>) =
        choices.map(|(value, name, about)| ((value, name), PossibleValue::new(name).help(about.into()))).unzip();
    let find = move |said: String| known.iter().find(|(_, name)| *name == said).map(|(value, _)| value.clone());
    PossibleValuesParser::new(shown).try_map(move |said| find(said).ok_or("not one of the possible values"))
}
