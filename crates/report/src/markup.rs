//! Escapes text for HTML and SVG.
//!
//! The escaper of the templates is ours: beside what a browser would obey it replaces control characters, which `askama` lets
//! through and neither format can hold.

use std::fmt::{self, Write};

use askama::{
    Template,
    filters::{Escaper, Safe},
};

/// HTML already: what a template or a chart came to. Everything else that stands in a template is escaped.
pub(crate) type Markup = Safe<String>;

/// What a template comes to.
pub(crate) fn rendered(template: &impl Template) -> askama::Result<Markup> {
    Ok(Safe(template.render()?))
}

/// Replaces every character that means something to a browser, in content and in attributes alike. Control characters become
/// the sign for what cannot be shown.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Strict;

impl Escaper for Strict {
    fn write_escaped_str<W: Write>(&self, mut to: W, text: &str) -> fmt::Result {
        text.chars().try_for_each(|c| match c {
            '&' => to.write_str("&amp;"),
            '<' => to.write_str("&lt;"),
            '>' => to.write_str("&gt;"),
            '"' => to.write_str("&quot;"),
            '\'' => to.write_str("&#39;"),
            c => to.write_char(shown(c)),
        })
    }
}

/// The text as [`Strict`] writes it, for what is no template.
pub(crate) fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    let _ = Strict.write_escaped_str(&mut safe, text); // writing to a string does not fail
    safe
}

/// The character itself, or the sign for one that cannot be shown.
pub(crate) fn shown(c: char) -> char {
    if c.is_control() && c != '\n' && c != '\t' { '\u{fffd}' } else { c }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Template)]
    #[template(source = "<p title=\"{{ text }}\">{{ text }} {{ markup }}</p>", ext = "html")]
    struct Example<'a> {
        text: &'a str,
        markup: Markup,
    }

    #[test]
    fn nothing_a_browser_would_obey_is_left() {
        assert_eq!(escaped("a </script> & \"b\" 'c'"), "a &lt;/script&gt; &amp; &quot;b&quot; &#39;c&#39;");
        assert_eq!(escaped("\u{0}x\ny\u{1b}[31m"), "\u{fffd}x\ny\u{fffd}[31m");
        assert_eq!(escaped("Zoë &amp;"), "Zoë &amp;amp;");
    }

    #[test]
    fn templates_escape_as_strictly_and_leave_markup_alone() {
        let example = Example { text: "\"<\u{7}", markup: Safe("<b>&amp;</b>".into()) };
        let expected = "<p title=\"&quot;&lt;\u{fffd}\">&quot;&lt;\u{fffd} <b>&amp;</b></p>";
        assert_eq!(rendered(&example).unwrap().0, expected);
    }
}
