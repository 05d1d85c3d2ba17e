//! The terminal display of `predict`: one line of typed text, with the suggestions below it.

use std::io::{Stdout, Write};

use crossterm::{
    cursor::{MoveToColumn, MoveToPreviousLine},
    event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers},
    queue,
    style::Print,
    terminal::{self, Clear, ClearType},
};
use lm::{
    predict::Predictor,
    typing::{Effect, Key, Session},
};

/// Keys come one by one as long as this lives; the terminal is as before after it, also when something fails.
struct Raw;

impl Raw {
    fn new() -> std::io::Result<Self> {
        terminal::enable_raw_mode()?;
        Ok(Self)
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        let _ = terminal::disable_raw_mode();
    }
}

pub(super) fn run(predictor: &mut Predictor<'_>, shown: usize) -> anyhow::Result<()> {
    println!(
        "Tab accepts the first suggestion, Alt and a number (or F1, F2, F3) another; Enter starts a new line, Esc quits."
    );
    let _raw = Raw::new()?;
    let mut out = std::io::stdout();
    let mut session = Session::new(predictor, shown);
    draw(&session, &mut out)?;
    loop {
        let Some(key) = meaning(&event::read()?) else { continue };
        match session.press(key) {
            Effect::Changed => {}
            Effect::Finished(line) => {
                queue!(out, MoveToColumn(0), Clear(ClearType::FromCursorDown), Print(line), Print("\r\n"))?;
            }
            Effect::Left => {
                queue!(out, MoveToColumn(0), Clear(ClearType::FromCursorDown))?;
                return Ok(out.flush()?);
            }
        }
        draw(&session, &mut out)?;
    }
}

fn meaning(event: &Event) -> Option<Key> {
    let Event::Key(KeyEvent { code, modifiers, kind, .. }) = event else { return None };
    if *kind == KeyEventKind::Release {
        return None;
    }
    let control = modifiers.contains(KeyModifiers::CONTROL);
    let alt = modifiers.contains(KeyModifiers::ALT) && !control;
    match code {
        KeyCode::Char('c' | 'd') if control => Some(Key::Leave),
        KeyCode::Char(c @ '1'..='9') if alt => Some(Key::Take(*c as usize - '1' as usize)),
        // Alt with Ctrl is how some keyboards type signs.
        KeyCode::Char(c) if control == modifiers.contains(KeyModifiers::ALT) => Some(Key::Character(*c)),
        KeyCode::F(number @ 1..=9) => Some(Key::Take(usize::from(number - 1))),
        KeyCode::Tab => Some(Key::Take(0)),
        KeyCode::Backspace => Some(Key::Backspace),
        KeyCode::Enter => Some(Key::Enter),
        KeyCode::Esc => Some(Key::Leave),
        _ => None,
    }
}

/// Draws both lines and leaves the cursor behind what was typed. What does not fit is cut on the left.
fn draw(session: &Session<'_, '_>, out: &mut Stdout) -> std::io::Result<()> {
    let width = usize::from(terminal::size().map_or(80, |(columns, _)| columns)).max(8);
    let typed: Vec<char> = session.text().chars().collect();
    let shown: String = typed[typed.len().saturating_sub(width - 3)..].iter().collect();
    let numbered = session.suggestions().iter().enumerate();
    let percent = |p: f64| if p < 0.01 { "<1 %".to_owned() } else { format!("{:.0} %", 100.0 * p) };
    let suggestions: String =
        numbered.map(|(i, s)| format!("{} {} {}   ", i + 1, s.word, percent(s.probability))).collect();
    let suggestions: String = suggestions.chars().take(width - 1).collect();
    queue!(out, MoveToColumn(0), Clear(ClearType::FromCursorDown), Print("\r\n"), Print(suggestions))?;
    queue!(out, MoveToPreviousLine(1), Print("> "), Print(shown))?;
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_mean_what_people_type() {
        let key = |code, modifiers| meaning(&Event::Key(KeyEvent::new(code, modifiers)));
        let none = KeyModifiers::NONE;
        for c in ['a', 'Q', '1', '9', '.', '€'] {
            assert_eq!(key(KeyCode::Char(c), none), Some(Key::Character(c)));
        }
        assert_eq!(key(KeyCode::Char('A'), KeyModifiers::SHIFT), Some(Key::Character('A')));
        assert_eq!(key(KeyCode::Char('2'), KeyModifiers::ALT), Some(Key::Take(1)));
        assert_eq!(key(KeyCode::F(3), none), Some(Key::Take(2)));
        assert_eq!(key(KeyCode::Tab, none), Some(Key::Take(0)));
        assert_eq!(key(KeyCode::Char('@'), KeyModifiers::ALT | KeyModifiers::CONTROL), Some(Key::Character('@')));
        assert_eq!(key(KeyCode::Char('c'), KeyModifiers::CONTROL), Some(Key::Leave));
        assert_eq!(key(KeyCode::Char('x'), KeyModifiers::CONTROL), None);
        assert_eq!(key(KeyCode::Char('x'), KeyModifiers::ALT), None);
    }
}
