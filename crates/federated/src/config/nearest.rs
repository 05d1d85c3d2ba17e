//! Suggests the nearest known name for an unknown one ("did you mean").

/// Names as a person lists them.
pub(crate) fn one_of(names: &[String]) -> String {
    match names {
        [all @ .., last] if !all.is_empty() => format!("{} or {last}", all.join(", ")),
        few => few.concat(),
    }
}

/// All of some names.
pub(super) fn listed(names: &[&str]) -> String {
    match names {
        [all @ .., last] if !all.is_empty() => format!("{} and {last}", all.join(", ")),
        few => few.concat(),
    }
}

/// The name that is nearest to a word, if one is near enough to have been meant.
pub(crate) fn nearest<'a>(word: &str, names: &[&'a str]) -> Option<&'a str> {
    let word = word.to_lowercase().replace('-', "_");
    let far = |name: &str| strsim::damerau_levenshtein(&word, &name.to_lowercase().replace('-', "_"));
    let best = names.iter().map(|name| (far(name), *name)).min_by_key(|(distance, _)| *distance);
    best.filter(|(distance, name)| *distance <= (name.chars().count().max(word.chars().count()) / 3).max(1))
        .map(|(_, name)| name)
}

/// A question about an unknown word, to be appended to a sentence.
pub(crate) fn did_you_mean(word: &str, names: &[&str]) -> Option<String> {
    nearest(word, names).map(|name| format!(" (did you mean {name}?)"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_near_was_meant_and_what_is_far_was_not() {
        let names = ["norm", "greedy", "fixed-size", "noise_multiplier"];
        for (word, meant) in [
            ("nrom", Some("norm")),
            ("Norm", Some("norm")),
            ("fixed_size", Some("fixed-size")),
            ("noise_mutliplyer", Some("noise_multiplier")),
            ("delta", None),
            ("x", None),
        ] {
            assert_eq!(nearest(word, &names), meant, "{word}");
        }
        assert_eq!(nearest("norm", &[]), None);
    }

    #[test]
    fn names_are_listed_as_people_do() {
        assert_eq!(one_of(&["a".into(), "b".into(), "c".into()]), "a, b or c");
        assert_eq!((one_of(&["a".into()]), one_of(&[])), ("a".to_owned(), String::new()));
        assert_eq!(listed(&["a", "b"]), "a and b");
    }
}
