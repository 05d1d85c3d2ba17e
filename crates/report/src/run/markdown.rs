//! A privacy statement as HTML: headings, paragraphs, lists, bold and code, with empty lines between them, which is all the
//! Markdown that statements are written in. Whatever else stands in the text is shown as it is.
//!
//! Read by hand rather than with a crate for Markdown, which would also obey links, images and HTML that somebody put into a name.

use askama::Template;

use crate::markup::{Markup, rendered};

#[derive(Template)]
#[template(path = "statement.html")]
struct Blocks<'a> {
    blocks: Vec<Block<'a>>,
}

enum Block<'a> {
    /// A heading with its level.
    Heading(usize, Vec<Span<'a>>),
    List(Vec<Vec<Span<'a>>>),
    Paragraph(Vec<Span<'a>>),
}

enum Span<'a> {
    Plain(&'a str),
    Code(&'a str),
    Strong(&'a str),
}

/// Headings become smaller by one level: the page has a first one of its own.
pub(super) fn html(markdown: &str) -> askama::Result<Markup> {
    rendered(&Blocks { blocks: markdown.split("\n\n").filter_map(|text| block(text.trim())).collect() })
}

fn block(text: &str) -> Option<Block<'_>> {
    let hashes = text.chars().take_while(|c| *c == '#').count();
    match text[hashes..].strip_prefix(' ') {
        Some(title) if (1..=5).contains(&hashes) => return Some(Block::Heading(hashes + 1, spans(title))),
        _ => {}
    }
    if let Some(items) = text.strip_prefix("- ") {
        return Some(Block::List(items.split("\n- ").map(spans).collect()));
    }
    (!text.is_empty()).then(|| Block::Paragraph(spans(text)))
}

/// Bold and code; a mark that is not closed is shown as it is.
fn spans(mut text: &str) -> Vec<Span<'_>> {
    let mut spans = Vec::new();
    while let Some((before, marked, after)) = first_marked(text) {
        spans.extend([Span::Plain(before), marked]);
        text = after;
    }
    spans.push(Span::Plain(text));
    spans
}

/// The first piece that is marked, with what stands before and behind it.
fn first_marked(text: &str) -> Option<(&str, Span<'_>, &str)> {
    text.char_indices().find_map(|(at, _)| {
        let (before, rest) = text.split_at(at);
        let inside = |mark: &str| rest.strip_prefix(mark)?.split_once(mark);
        let code = inside("`").map(|(inside, after)| (before, Span::Code(inside), after));
        code.or_else(|| inside("**").map(|(inside, after)| (before, Span::Strong(inside), after)))
    })
}

#[cfg(test)]
mod tests {
    fn html(markdown: &str) -> String {
        super::html(markdown).unwrap().0
    }

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
