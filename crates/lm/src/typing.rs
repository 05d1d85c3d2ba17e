//! Simulates typing: how keys change the text and the suggestions, without a screen.

use crate::{
    predict::{Predictor, Suggestion},
    tokenizer::is_closing,
};

/// A key, as far as it means something here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Key {
    /// A character to be typed: a letter, a digit or a sign.
    Character(char),
    /// Takes a suggestion: the first is 0.
    Take(usize),
    /// Takes the last character back.
    Backspace,
    /// Starts over with an empty text.
    Enter,
    /// Ends the session.
    Leave,
}

/// The effect of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Something may look different now.
    Changed,
    /// A line is finished.
    Finished(String),
    /// The user leaves.
    Left,
}

/// A typing session.
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
    /// A session with empty text that shows this many suggestions.
    pub fn new(predictor: &'a mut Predictor<'m>, shown: usize) -> Self {
        let suggestions = predictor.suggest("", shown);
        Self { predictor, shown, text: String::new(), spaced: false, suggestions }
    }

    /// The text typed so far.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The shown suggestions, as they would be typed.
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
            Key::Take(number) => {
                if let Some(Suggestion { word, .. }) = self.suggestions.get(number) {
                    self.text = self.predictor.accept(&self.text, word);
                    self.spaced = self.text.ends_with(' ');
                }
                None
            }
            Key::Character(c) => {
                if spaced && is_closing(c.encode_utf8(&mut [0; 4])) {
                    self.text.pop();
                }
                self.text.push(c);
                None
            }
        };
        self.suggestions = self.predictor.suggest(&self.text, self.shown);
        for suggestion in &mut self.suggestions {
            suggestion.word = self.predictor.as_typed(&self.text, &suggestion.word);
        }
        finished.map_or(Effect::Changed, Effect::Finished)
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
        assert_eq!(words(&session), ["Hello", "Help"], "as they would be typed");
        session.press(Key::Take(1));
        assert_eq!(session.text(), "Help ", "the capital stays");
        session.press(Key::Take(7));
        assert_eq!(session.text(), "Help ", "there is no such suggestion");
        session.press(Key::Take(0));
        assert_eq!(session.text(), "Help the ");
        session.press(Key::Character(','));
        assert_eq!(session.text(), "Help the,", "a sign takes the place of the space");
        session.press(Key::Character('!'));
        assert_eq!(session.press(Key::Enter), Effect::Finished("Help the,!".into()));
        assert_eq!(session.text(), "");
        assert_eq!(session.press(Key::Leave), Effect::Left);
    }

    /// A digit took a suggestion, so that nobody could type one.
    #[test]
    fn digits_capitals_and_signs_are_typed_as_they_are() {
        let vocabulary = Vocabulary::new(["the", "to", "hello", "help", ",", "2nd"]).unwrap();
        let mut predictor = Predictor::new(&InOrder(9), &vocabulary, Rules::Words1);
        let mut session = Session::new(&mut predictor, 3);
        let shown = |session: &Session<'_, '_>| -> Vec<String> {
            session.suggestions().iter().map(|s| s.word.clone()).collect()
        };
        "at 12".chars().for_each(|c| assert_eq!(session.press(Key::Character(c)), Effect::Changed));
        assert_eq!((session.text(), shown(&session)), ("at 12", Vec::new()), "no word begins like this");
        ":30 HEL".chars().for_each(|c| assert_eq!(session.press(Key::Character(c)), Effect::Changed));
        assert_eq!(shown(&session), ["HELLO", "HELP"], "all capitals stay");
        session.press(Key::Take(0));
        assert_eq!(session.text(), "at 12:30 HELLO ");
        ". ".chars().for_each(|c| assert_eq!(session.press(Key::Character(c)), Effect::Changed));
        assert_eq!(session.text(), "at 12:30 HELLO. ");
        assert_eq!(shown(&session), ["the", "to", "hello"]);
    }
}
