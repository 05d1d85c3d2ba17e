//! Every combination of some settings: `KEY=V1,V2,...` for each key.

use crate::config::ConfigError;

/// A key and the values that it takes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Axis {
    /// The key, with its section.
    pub key: String,
    /// The values, as TOML.
    pub values: Vec<String>,
}

impl Axis {
    /// Reads `KEY=V1,V2,...`; commas within brackets, braces and quotes belong to a value.
    ///
    /// # Errors
    /// When it is not of this form, or a value comes twice.
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        let wrong = |problem: String| ConfigError::new("", format!("--grid {text}: {problem}"));
        let (key, values) = text.split_once('=').ok_or_else(|| wrong("must be KEY=V1,V2,...".into()))?;
        let key = key.trim();
        if key.is_empty() {
            return Err(wrong("the key is missing".into()));
        }
        let values = split(values);
        if values.iter().any(String::is_empty) {
            return Err(wrong("a value is missing".into()));
        }
        for (number, value) in values.iter().enumerate() {
            if values[..number].contains(value) {
                return Err(wrong(format!("{value} is given twice")));
            }
        }
        Ok(Self { key: key.to_owned(), values })
    }

    /// The values as numbers, where all are.
    #[must_use]
    pub fn numbers(&self) -> Option<Vec<f64>> {
        self.values.iter().map(|value| value.replace('_', "").parse().ok()).collect()
    }
}

fn split(values: &str) -> Vec<String> {
    let (mut depth, mut quote, mut parts) = (0_u32, None, vec![String::new()]);
    for c in values.chars() {
        match (quote, c) {
            (Some(open), _) if c == open => quote = None,
            (None, '"' | '\'') => quote = Some(c),
            (None, '[' | '{') => depth += 1,
            (None, ']' | '}') => depth = depth.saturating_sub(1),
            (None, ',') if depth == 0 => {
                parts.push(String::new());
                continue;
            }
            _ => {}
        }
        if let Some(last) = parts.last_mut() {
            last.push(c);
        }
    }
    parts.into_iter().map(|part| part.trim().to_owned()).collect()
}

/// A combination of settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Variant {
    /// The display name.
    pub name: String,
    /// What it sets, as `key=value`.
    pub set: Vec<String>,
    /// Which value of each axis it has.
    pub place: Vec<usize>,
}

/// Every combination, the last axis changing fastest; one without a change where there is no axis.
///
/// # Errors
/// When two axes have the same key.
pub fn combinations(axes: &[Axis]) -> Result<Vec<Variant>, ConfigError> {
    for (number, axis) in axes.iter().enumerate() {
        if axes[..number].iter().any(|other| other.key == axis.key) {
            return Err(ConfigError::new("", format!("--grid {}: given twice; give all its values at once", axis.key)));
        }
    }
    let mut places = vec![Vec::new()];
    for axis in axes {
        let longer = |place: &Vec<usize>| {
            (0..axis.values.len()).map(|i| [&place[..], &[i]].concat()).collect::<Vec<Vec<usize>>>()
        };
        places = places.iter().flat_map(longer).collect();
    }
    let variant = |place: Vec<usize>| {
        let pair = |(axis, i): (&Axis, &usize)| format!("{}={}", axis.key, axis.values[*i]);
        let set: Vec<String> = axes.iter().zip(&place).map(pair).collect();
        let name = if set.is_empty() { "as given".to_owned() } else { set.join(", ") };
        Variant { name, set, place }
    };
    Ok(places.into_iter().map(variant).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn axis(text: &str) -> Axis {
        Axis::parse(text).unwrap()
    }

    #[test]
    fn values_are_told_apart_and_lists_stay_together() {
        let lists = axis("privacy.restarts = [16, 32], [8]");
        assert_eq!((lists.key.as_str(), lists.values), ("privacy.restarts", vec!["[16, 32]".into(), "[8]".into()]));
        assert_eq!(axis("a=\"x,y\",'z,'").values, ["\"x,y\"", "'z,'"]);
        assert_eq!(axis("n=1_000, 2.5,1e-3").numbers(), Some(vec![1000.0, 2.5, 1e-3]));
        assert_eq!(axis("n=1,adam").numbers(), None);
    }

    #[test]
    fn what_is_no_axis_is_refused() {
        for (text, want) in [
            ("clip.norm", "KEY=V1"),
            ("=1,2", "key is missing"),
            ("a=1,,2", "a value is missing"),
            ("a=1,2,1", "1 is given twice"),
        ] {
            let error = Axis::parse(text).unwrap_err().to_string();
            assert!(error.contains(want) && error.contains("--grid"), "{error}");
        }
        let twice = combinations(&[axis("a=1"), axis("a=2")]).unwrap_err().to_string();
        assert!(twice.contains("given twice"), "{twice}");
    }

    #[test]
    fn there_is_every_combination_once() {
        let all = combinations(&[axis("a=1,2"), axis("b=x,y,z")]).unwrap();
        let names: Vec<&str> = all.iter().map(|v| v.name.as_str()).collect();
        assert_eq!(names, ["a=1, b=x", "a=1, b=y", "a=1, b=z", "a=2, b=x", "a=2, b=y", "a=2, b=z"]);
        assert_eq!((&all[4].set, &all[4].place), (&vec!["a=2".to_owned(), "b=y".to_owned()], &vec![1, 1]));
        let none = combinations(&[]).unwrap();
        assert_eq!((none.len(), none[0].name.as_str(), none[0].set.len()), (1, "as given", 0));
    }
}
