//! Somebody typing: what keys do to the text and to the suggestions, without a screen.

use crate::predict::{Predictor, Suggestion};

/// A key, as far as it means something here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Key {
    /// A character to be typed, or the number of a suggestion.
    Character(char),
    /// Takes the first suggestion.
    Tab,
    /// Takes the last character back.
    Backspace,
    /// Begins anew.
    Enter,
    /// Leaves.
    Leave,
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Something may look different now.
    Changed,
    /// A line is finished.
    Finished(String),
    /// The user leaves.
    Left,
}

/// Signs that stand without a space before them.
const CLOSING: [char; 6] = ['.', ',', '!', '?', ';', ':'];

/// Somebody typing.
pub struct Session<'a, 'm> {
    predictor: &'a mut Predictor<'m>,
    /// How many suggestions are shown.
    shown: usize,
    text: String,
    /// Whether the last character is the space after a suggestion that was taken.
    spaced: bool,
    suggestions: Vec<Suggestion>,
}

impl<'a, 'm> Session<'a, 'm> {
    /// Somebody who has typed nothing yet and is shown so many suggestions.
    pub fn new(predictor: &'a mut Predictor<'m>, shown: usize) -> Self {
        let suggestions = predictor.suggest("", shown);
        Self { predictor, shown, text: String::new(), spaced: false, suggestions }
    }

    /// What was typed so far.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// What is shown.
    #[must_use]
    pub fn suggestions(&self) -> &[Suggestion] {
        &self.suggestions
    }

    /// A key is pressed.
    pub fn press(&mut self, key: Key) -> Effect {
        let spaced = std::mem::take(&mut self.spaced);
        let finished = match key {
            Key::Leave => return Effect::Left,
            Key::Enter => Some(std::mem::take(&mut self.text)),
            Key::Backspace => {
                self.text.pop();
                None
            }
            Key::Tab => {
                self.accept(0);
                None
            }
            Key::Character(c) => {
                let number = c.to_digit(10).and_then(|n| (n as usize).checked_sub(1));
                if !number.is_some_and(|n| self.accept(n)) {
                    if spaced && CLOSING.contains(&c) {
                        self.text.pop();
                    }
                    self.text.push(c);
                }
                None
            }
        };
        self.suggestions = self.predictor.suggest(&self.text, self.shown);
        finished.map_or(Effect::Changed, Effect::Finished)
    }

    /// Whether there was such a suggestion.
    fn accept(&mut self, number: usize) -> bool {
        let Some(Suggestion { word, .. }) = self.suggestions.get(number) else { return false };
        self.text = self.predictor.accept(&self.text, word);
        self.spaced = self.text.ends_with(' ');
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{language_model::LanguageModel, tokenizer::Rules, vocabulary::Vocabulary};

    /// Always thinks that the lower id is likelier.
    struct InOrder(usize);

    impl LanguageModel for InOrder {
        fn vocabulary(&self) -> usize {
            self.0
        }

        fn read(&self, sequences: &[&[u32]], visit: &mut dyn FnMut(usize, usize, &[f32])) {
            let values: Vec<f32> = (0..self.0).map(|i| -(i as f32)).collect();
            for (s, sequence) in sequences.iter().enumerate() {
                (0..sequence.len()).for_each(|t| visit(s, t, &values));
            }
        }
    }

    #[test]
    fn keys_type_accept_and_finish() {
        let vocabulary = Vocabulary::new(["the", "to", "hello", "help"]).unwrap();
        let mut predictor = Predictor::new(&InOrder(7), &vocabulary, Rules::Words1);
        let mut session = Session::new(&mut predictor, 3);
        let words = |session: &Session<'_, '_>| -> Vec<String> {
            session.suggestions().iter().map(|s| s.word.clone()).collect()
        };
        assert_eq!(words(&session), ["the", "to", "hello"]);
        "He".chars().for_each(|c| assert_eq!(session.press(Key::Character(c)), Effect::Changed));
        assert_eq!(words(&session), ["hello", "help"]);
        session.press(Key::Character('2'));
        assert_eq!(session.text(), "Help ", "the capital stays");
        session.press(Key::Character('x'));
        session.press(Key::Character('3'));
        assert_eq!(session.text(), "Help x3", "a number without a suggestion is a character");
        session.press(Key::Backspace);
        session.press(Key::Backspace);
        session.press(Key::Tab);
        assert_eq!(session.text(), "Help the ");
        session.press(Key::Character(','));
        assert_eq!(session.text(), "Help the,", "a sign takes the place of the space");
        session.press(Key::Character('!'));
        assert_eq!(session.press(Key::Enter), Effect::Finished("Help the,!".into()));
        assert_eq!(session.text(), "");
        assert_eq!(session.press(Key::Leave), Effect::Left);
    }
}
