//! A privacy statement as HTML: headings, paragraphs, lists, bold and code, with empty lines between them, which is all the
//! Markdown that `ledger::statement` writes. Whatever else stands in the text is shown as it is.

use crate::markup::escaped;

/// Headings become smaller by one level: the page has a first one of its own.
pub(super) fn html(markdown: &str) -> String {
    markdown.split("\n\n").map(|text| block(text.trim())).collect()
}

fn block(text: &str) -> String {
    let hashes = text.chars().take_while(|c| *c == '#').count();
    match text[hashes..].strip_prefix(' ') {
        Some(title) if (1..=5).contains(&hashes) => {
            let level = hashes + 1;
            return format!("<h{level}>{}</h{level}>\n", inline(title));
        }
        _ => {}
    }
    if let Some(items) = text.strip_prefix("- ") {
        let items: String = items.split("\n- ").map(|item| format!("<li>{}</li>\n", inline(item))).collect();
        return format!("<ul>\n{items}</ul>\n");
    }
    if text.is_empty() { String::new() } else { format!("<p>{}</p>\n", inline(text)) }
}

/// Bold and code; a mark that is not closed is shown as it is.
fn inline(text: &str) -> String {
    for (at, _) in text.char_indices() {
        let (before, rest) = text.split_at(at);
        for (mark, tag) in [("`", "code"), ("**", "strong")] {
            let Some((inside, after)) = rest.strip_prefix(mark).and_then(|rest| rest.split_once(mark)) else {
                continue;
            };
            return format!("{}<{tag}>{}</{tag}>{}", escaped(before), escaped(inside), inline(after));
        }
    }
    escaped(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_statements_are_written_in_is_rendered() {
        let markdown = "# Statement\n\n**(1, 1e-9)-private** for each `user`.\n\n## List\n\n- one\n- two `x*y`\n";
        let expected = "<h2>Statement</h2>\n<p><strong>(1, 1e-9)-private</strong> for each <code>user</code>.</p>\n\
                        <h3>List</h3>\n<ul>\n<li>one</li>\n<li>two <code>x*y</code></li>\n</ul>\n";
        assert_eq!(html(markdown), expected);
    }

    #[test]
    fn nothing_else_becomes_markup() {
        assert_eq!(html("<b>x</b> **a"), "<p>&lt;b&gt;x&lt;/b&gt; **a</p>\n");
        assert_eq!(html("`<i>` & **<u>**"), "<p><code>&lt;i&gt;</code> &amp; <strong>&lt;u&gt;</strong></p>\n");
        assert_eq!(html("####### deep"), "<p>####### deep</p>\n");
        assert_eq!(html("#no heading, `not closed"), "<p>#no heading, `not closed</p>\n");
        assert_eq!(html("[a](javascript:x)\n| a |"), "<p>[a](javascript:x)\n| a |</p>\n");
        assert_eq!(html(""), "");
    }
}
