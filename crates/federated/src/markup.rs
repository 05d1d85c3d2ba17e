//! Text that is safe inside HTML and SVG.

/// The text with every character replaced that means something to a browser, in content and in attributes alike.
/// Control characters, which neither format can hold, become the sign for what cannot be shown.
pub(crate) fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            c => safe.push(shown(c)),
        }
    }
    safe
}

/// The character itself, or the sign for one that cannot be shown.
pub(crate) fn shown(c: char) -> char {
    if c.is_control() && c != '\n' && c != '\t' { '\u{fffd}' } else { c }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_a_browser_would_obey_is_left() {
        assert_eq!(escaped("a </script> & \"b\" 'c'"), "a &lt;/script&gt; &amp; &quot;b&quot; &#39;c&#39;");
        assert_eq!(escaped("\u{0}x\ny\u{1b}[31m"), "\u{fffd}x\ny\u{fffd}[31m");
        assert_eq!(escaped("Zoë &amp;"), "Zoë &amp;amp;");
    }
}
