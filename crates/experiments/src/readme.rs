//! Writes the generated part of an experiment's `README.md`; the rest is written by hand and kept.

use std::fmt::Write;

use federated::sweep::estimate::{in_brackets, of_differences_in_brackets};

use crate::{
    baselines,
    finetuning::Paired,
    format::Experiment,
    results::{Beside, Results},
};

/// The part, without its marks.
pub(crate) fn part(results: &Results, experiment: &Experiment, command: &str, pictures: &[String]) -> String {
    let mut text = String::new();
    // Writing to a string does not fail.
    let _ = writeln!(text, "`{command}` (keyhush {}{}):\n", results.keyhush, kernels(results));
    if !results.variants.is_empty() {
        text.push_str(&variants(results, experiment));
    }
    if !results.rows.is_empty() {
        text.push_str(&rows(results));
    }
    if !results.compared.is_empty() {
        text.push_str(&compared(results, experiment));
    }
    for (number, picture) in pictures.iter().enumerate() {
        let name = experiment.plot.get(number).and_then(|plot| plot.title.as_ref()).unwrap_or(&results.title);
        let _ = writeln!(text, "![{name}]({picture})\n");
    }
    if !results.paper_values.is_empty() {
        text.push_str(&paper_values(results));
    }
    for note in &results.notes {
        let _ = writeln!(text, "Note: {note}.\n");
    }
    for verdict in &results.expectations {
        let word = if verdict.holds { "holds" } else { "**does not hold**" };
        let _ = writeln!(text, "- {word}: {}", verdict.text);
    }
    text.trim_end().to_owned()
}

fn kernels(results: &Results) -> String {
    results.kernels.as_ref().map_or_else(String::new, |kernels| format!(", {kernels} kernels"))
}

fn table(head: &[String], rows: &[Vec<String>]) -> String {
    let row = |cells: &[String]| {
        let cells: Vec<String> = cells.iter().map(|cell| cell.replace('|', "\\|")).collect();
        format!("| {} |\n", cells.join(" | "))
    };
    let line = format!("|---{}|\n", "|---:".repeat(head.len() - 1));
    let rows: String = rows.iter().map(|cells| row(cells)).collect();
    format!("{}{line}{rows}\n", row(head))
}

fn variants(results: &Results, experiment: &Experiment) -> String {
    let rows = results.table_of_variants(&experiment.columns);
    let mut text = table(&rows[0], &rows[1..]);
    let seeds = results.variants.iter().map(|variant| variant.seeds.len()).max().unwrap_or(0);
    if seeds > 1 {
        let _ = writeln!(
            text,
            "Means over {seeds} seeds, {}; accuracies are smoothed over five evaluations.\n",
            in_brackets(seeds)
        );
    }
    text
}

fn compared(results: &Results, experiment: &Experiment) -> String {
    let rows = results.table_of_compared(experiment);
    let mut text = table(&rows[0], &rows[1..]);
    if experiment.paper_value.iter().any(|value| value.column.is_some()) {
        text.push_str("The paper's numbers (other text, a larger model) are in brackets.\n\n");
    }
    let seeds = results.compared.iter().map(|one| one.seeds.len()).max().unwrap_or(0);
    if seeds > 1 {
        let _ = writeln!(text, "Means over {seeds} seeds.\n");
    }
    if !results.paired.is_empty() {
        let head = ["seed by seed", "is higher than", "in", "by"].map(str::to_owned);
        let row = |pair: &Paired| {
            let unit = if pair.column.starts_with("keystrokes") { " points" } else { " %" };
            let by = pair.difference.written(|value| format!("{:+.2}", 100.0 * value)) + unit;
            vec![pair.higher.clone(), pair.lower.clone(), baselines::label(&pair.column).to_owned(), by]
        };
        text.push_str(&table(&head, &results.paired.iter().map(row).collect::<Vec<_>>()));
        let _ = writeln!(text, "Mean differences, {}.\n", of_differences_in_brackets(seeds));
    }
    text
}

fn rows(results: &Results) -> String {
    let rows = results.table_of_rows();
    table(&rows[0], &rows[1..])
}

fn paper_values(results: &Results) -> String {
    let head = ["", "paper", "here"].map(str::to_owned);
    let row = |value: &Beside| {
        let unit = if value.unit.is_empty() { String::new() } else { format!(" {}", value.unit) };
        let ours = value.ours.as_ref().map_or_else(String::new, |ours| ours.written(|number| value.what.shown(number)));
        vec![value.name.clone(), format!("{}{unit}", value.paper), ours]
    };
    table(&head, &results.paper_values.iter().map(row).collect::<Vec<_>>())
}

/// The text with the part between its marks replaced, or put at the end where it has none.
pub(crate) fn replaced(text: &str, mark: &str, part: &str) -> String {
    let (open, close) = (format!("<!-- {mark} -->"), format!("<!-- /{mark} -->"));
    let marked = format!("{open}\n{part}\n{close}");
    if let Some((before, rest)) = text.split_once(&open)
        && let Some((_, after)) = rest.split_once(&close)
    {
        return format!("{before}{marked}{after}");
    }
    format!("{}\n\n{marked}\n", text.trim_end())
}

/// What a README begins with until somebody writes it.
pub(crate) fn begun(experiment: &Experiment) -> String {
    let Experiment { title, paper, says, .. } = experiment;
    format!("# {title}\n\n{paper}: {says}.\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rest_of_a_readme_stays() {
        let text = "# A\n\nby hand\n\n<!-- results -->\nold\n<!-- /results -->\n\nmore\n";
        let new = replaced(text, "results", "new");
        assert_eq!(new, "# A\n\nby hand\n\n<!-- results -->\nnew\n<!-- /results -->\n\nmore\n");
        assert_eq!(replaced(&new, "results", "new"), new);
        let both = replaced(&new, "results-store", "of the store");
        assert!(both.starts_with(new.trim_end()) && both.ends_with("<!-- /results-store -->\n"), "{both}");
        assert_eq!(replaced(&both, "results", "new"), both);
    }

    #[test]
    fn bars_in_names_do_not_divide_cells() {
        assert_eq!(
            table(&["a".into(), "b".into()], &[vec!["x|y".into(), "1".into()]]),
            "| a | b |\n|---|---:|\n| x\\|y | 1 |\n\n"
        );
    }
}
