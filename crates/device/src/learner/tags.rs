//! The tag learner: predicts the tags of a post from its words by logistic regression on bags of words, one against the rest for each tag.
//! This is the shape of SO-LR in Andrew et al. 2021, section 4 (10,000 words and 500 tags of Stack Overflow).
//!
//! A post is the share of each word among all of its words, those included that the vocabulary does not have; as
//! TensorFlow Federated's task of that name prepares it. With z = x W + b and the sigmoid s, the loss of a post is the sum over
//! tags of the cross-entropy of s(z) and whether the post has the tag; a step goes along its mean over the batch:
//!
//! ```text
//! d = s(z) - y      W_w -= rate x_w d      b -= rate d
//! ```
//!
//! It begins with zeros: the loss is convex. It is measured by the share of tags that are among the first few predictions.

use std::collections::BTreeMap;

use lm::{kernels::KernelPath, metrics::Counts, vocabulary::SPECIAL};

use super::{
    Layout, Learner, LearnerError, Memory, Part, Post, Predictor, Seen, Trainer,
    examples::{Examples, Kind, Schema, Value},
    told::LearnerTerms,
};

/// The words of a post.
const WORDS: usize = 0;
/// Its tags.
const TAGS: usize = 1;
/// Posts that a thread measures on at a time.
const PIECE: usize = 256;

/// Logistic regression from words to tags.
#[derive(Debug, Clone)]
pub struct TagLearner {
    words: usize,
    names: Vec<String>,
    tags: usize,
    batch: usize,
    layout: Layout,
    schema: Schema,
}

impl TagLearner {
    /// A model of so many words and of these tags, with batches of so many posts.
    #[must_use]
    pub fn new(words: usize, names: Vec<String>, batch: usize) -> Self {
        let tags = names.len();
        let part = |name: &str, rows, columns| Part { name: name.into(), rows, columns };
        Self {
            words,
            names,
            tags,
            batch: batch.max(1),
            layout: Layout::new(vec![part("weights", words, tags), part("bias", 1, tags)]),
            schema: Schema { columns: vec![("words", Kind::Ids), ("tags", Kind::Ids)], features: 0 },
        }
    }
}

impl Learner for TagLearner {
    fn name(&self) -> &'static str {
        "tags"
    }

    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn schema(&self) -> &Schema {
        &self.schema
    }

    fn measures(&self) -> &'static str {
        "tags"
    }

    /// A post has a tag, or does not have it.
    fn outcomes(&self) -> usize {
        2
    }

    fn learns_labels(&self) -> bool {
        true
    }

    fn initial(&self, _seed: u64) -> Result<Vec<f32>, LearnerError> {
        Ok(vec![0.0; self.layout.len()])
    }

    /// A post without words is nothing; one without tags says that it has none of them.
    fn read(&self, post: Post<'_>, into: &mut Examples) {
        if !post.ids.is_empty() {
            into.push(&[Value::Ids(post.ids), Value::Ids(post.labels)]);
        }
    }

    fn trainer(&self, _kernels: KernelPath) -> Result<Box<dyn Trainer>, LearnerError> {
        let model = Regression { words: self.words, values: vec![0.0; self.layout.len()], tags: self.tags };
        Ok(Box::new(TagTrainer { model, batch: self.batch, posts: Vec::new(), room: vec![0.0; self.tags] }))
    }

    fn predictor<'a>(
        &'a self,
        model: &[f32],
        held_out: &'a [Examples],
        _kernels: KernelPath,
    ) -> Result<Box<dyn Predictor + 'a>, LearnerError> {
        let (wanted, got) = (self.layout.len(), model.len());
        if wanted != got {
            return Err(LearnerError::Parameters { wanted, got });
        }
        let posts: Vec<Bag> = held_out.iter().flat_map(bags).collect();
        for (example, post) in posts.iter().enumerate() {
            post.check(example, self.words, self.tags)?;
        }
        let model = Regression { words: self.words, tags: self.tags, values: model.to_vec() };
        Ok(Box::new(TagPredictor { model, posts }))
    }

    fn told(&self) -> Option<LearnerTerms> {
        Some(LearnerTerms::Tags { labels: self.names.clone() })
    }

    fn memory(&self) -> Memory {
        let model = 4 * self.layout.len() as u64;
        let logits = 4 * self.tags as u64;
        Memory { trainer: model + (self.batch as u64 + 1) * logits, predictor: model, piece: logits }
    }

    fn settings(&self) -> serde_json::Value {
        serde_json::json!({ "tags": self.names })
    }
}

/// A post as it is learned from: each word that is known with its share, and the tags.
#[derive(Debug, Clone, PartialEq)]
struct Bag {
    words: Vec<(u32, f32)>,
    tags: Vec<u32>,
}

impl Bag {
    fn new(words: &[u32], tags: &[u32]) -> Self {
        let mut counts: BTreeMap<u32, u32> = BTreeMap::new();
        words
            .iter()
            .filter(|word| **word as usize >= SPECIAL.len())
            .for_each(|word| *counts.entry(*word).or_default() += 1);
        let share = |count: u32| count as f32 / words.len() as f32;
        let mut tags = tags.to_vec();
        tags.sort_unstable();
        tags.dedup();
        Self { words: counts.into_iter().map(|(word, count)| (word, share(count))).collect(), tags }
    }

    /// Refuses words and tags that a model does not have.
    fn check(&self, example: usize, words: usize, tags: usize) -> Result<(), LearnerError> {
        let word = self.words.iter().map(|(word, _)| *word).find(|word| *word as usize >= words);
        let tag = self.tags.iter().copied().find(|tag| *tag as usize >= tags);
        match (word, tag) {
            (Some(id), _) => Err(LearnerError::Id { example, what: "word", id, known: words }),
            (None, Some(id)) => Err(LearnerError::Id { example, what: "tag", id, known: tags }),
            (None, None) => Ok(()),
        }
    }
}

/// Somebody's posts.
fn bags(user: &Examples) -> impl Iterator<Item = Bag> + '_ {
    (0..user.len()).map(|post| Bag::new(user.ids_of(WORDS, post), user.ids_of(TAGS, post)))
}

/// The model: a row of weights for each word, then the biases.
struct Regression {
    words: usize,
    tags: usize,
    values: Vec<f32>,
}

impl Regression {
    fn row(&self, word: u32) -> &[f32] {
        &self.values[word as usize * self.tags..][..self.tags]
    }

    fn row_mut(&mut self, word: usize) -> &mut [f32] {
        &mut self.values[word * self.tags..][..self.tags]
    }

    /// z of a post.
    fn logits(&self, post: &Bag, z: &mut [f32]) {
        z.copy_from_slice(&self.values[self.words * self.tags..]);
        for (word, share) in &post.words {
            z.iter_mut().zip(self.row(*word)).for_each(|(z, w)| *z += share * w);
        }
    }

    /// Moves against a gradient of z.
    fn learn(&mut self, post: &Bag, d: &[f32], rate: f32) {
        for (word, share) in &post.words {
            let step = rate * share;
            self.row_mut(*word as usize).iter_mut().zip(d).for_each(|(w, d)| *w -= step * d);
        }
        let bias = self.row_mut(self.words);
        bias.iter_mut().zip(d).for_each(|(b, d)| *b -= rate * d);
    }
}

/// The cross-entropy of a tag's probability and whether the post has it, from its z; and the derivative.
fn cross_entropy(z: f32, has: bool) -> (f64, f32) {
    let (z, sign) = (f64::from(z), if has { -1.0 } else { 1.0 });
    // log(1 + e^x), without overflow.
    let x = sign * z;
    let loss = x.max(0.0) + libm::log1p(libm::exp(-x.abs()));
    let sigmoid = 1.0 / (1.0 + libm::exp(-z));
    (loss, (sigmoid - f64::from(u8::from(has))) as f32)
}

struct TagTrainer {
    model: Regression,
    batch: usize,
    posts: Vec<Bag>,
    room: Vec<f32>,
}

impl TagTrainer {
    fn range(&self, batch: usize) -> std::ops::Range<usize> {
        batch * self.batch..((batch + 1) * self.batch).min(self.posts.len())
    }
}

impl Trainer for TagTrainer {
    fn load(&mut self, model: &[f32]) {
        self.model.values.copy_from_slice(model);
    }

    fn replace(&mut self, model: &[f32]) {
        self.load(model);
    }

    fn store(&mut self, to: &mut [f32]) {
        to.copy_from_slice(&self.model.values);
    }

    fn cut(&mut self, user: &Examples) -> usize {
        self.posts.clear();
        self.posts.extend(bags(user));
        self.posts.len().div_ceil(self.batch)
    }

    fn counted(&mut self, batch: usize) -> usize {
        self.range(batch).len()
    }

    fn step(&mut self, batch: usize, rate: f32) -> Seen {
        let range = self.range(batch);
        let step = rate / range.len() as f32;
        let mut loss = 0.0;
        // All gradients are taken at the model as the batch found it.
        let mut gradients = Vec::with_capacity(range.len() * self.model.tags);
        for post in &self.posts[range.clone()] {
            self.model.logits(post, &mut self.room);
            for (tag, z) in (0..).zip(&self.room) {
                let (of_tag, d) = cross_entropy(*z, post.tags.binary_search(&tag).is_ok());
                loss += of_tag;
                gradients.push(d);
            }
        }
        for (post, d) in self.posts[range].iter().zip(gradients.chunks_exact(self.model.tags)) {
            self.model.learn(post, d, step);
        }
        Seen { loss }
    }
}

struct TagPredictor {
    model: Regression,
    posts: Vec<Bag>,
}

impl Predictor for TagPredictor {
    fn pieces(&self) -> usize {
        self.posts.len().div_ceil(PIECE)
    }

    fn count(&self, piece: usize) -> Result<Counts, LearnerError> {
        let mut counts = Counts::default();
        let mut z = vec![0.0; self.model.tags];
        for post in self.posts.iter().skip(piece * PIECE).take(PIECE) {
            self.model.logits(post, &mut z);
            for tag in &post.tags {
                let own = z[*tag as usize];
                let before = |(other, value): (u32, &f32)| *value > own || (*value == own && other < *tag);
                let rank = (0..).zip(&z).filter(|(other, value)| before((*other, *value))).count();
                let (loss, _) = cross_entropy(own, true);
                counts.words.add(own.is_finite().then_some(rank), -loss as f32);
            }
        }
        Ok(counts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNKNOWN: u32 = 2;

    fn learner() -> TagLearner {
        TagLearner::new(8, ["a", "b", "c"].map(str::to_owned).into(), 2)
    }

    fn examples(posts: &[(&[u32], &[u32])]) -> Examples {
        let learner = learner();
        let mut examples = Examples::new(learner.schema());
        posts.iter().for_each(|(ids, labels)| learner.read(Post { ids, labels }, &mut examples));
        examples
    }

    fn loss(model: &[f32], posts: &[Bag]) -> f64 {
        let model = Regression { words: 8, tags: 3, values: model.to_vec() };
        let mut z = vec![0.0; 3];
        let mut of = |post: &Bag| -> f64 {
            model.logits(post, &mut z);
            (0..).zip(&z).map(|(tag, z)| cross_entropy(*z, post.tags.contains(&tag)).0).sum()
        };
        posts.iter().map(&mut of).sum()
    }

    #[test]
    fn a_post_is_the_share_of_each_word_and_its_tags_once() {
        let bag = Bag::new(&[5, UNKNOWN, 4, 5], &[2, 0, 2]);
        assert_eq!(bag, Bag { words: vec![(4, 0.25), (5, 0.5)], tags: vec![0, 2] });
        assert_eq!(examples(&[(&[], &[1]), (&[4], &[])]).len(), 1, "nothing without words, something without tags");
    }

    /// A step goes along the gradient of the mean loss, as finite differences have it.
    #[test]
    fn a_step_is_a_step_along_the_gradient() {
        let user = examples(&[(&[3, 4, 4], &[0]), (&[5, UNKNOWN], &[1, 2]), (&[6], &[])]);
        let posts: Vec<Bag> = bags(&user).collect();
        let start: Vec<f32> = (0..27).map(|i| (i as f32 * 0.37).sin()).collect();
        let mut trainer = learner().trainer(KernelPath::best()).unwrap();
        assert_eq!((trainer.cut(&user), trainer.counted(0), trainer.counted(1)), (2, 2, 1));
        for (batch, of_batch) in [(0, &posts[..2]), (1, &posts[2..])] {
            trainer.load(&start);
            let seen = trainer.step(batch, 1e-3);
            assert!((seen.loss - loss(&start, of_batch)).abs() < 1e-6);
            let mut now = vec![0.0; start.len()];
            trainer.store(&mut now);
            for i in 0..start.len() {
                let at = |by: f32| {
                    let mut moved = start.clone();
                    moved[i] += by;
                    loss(&moved, of_batch) / of_batch.len() as f64
                };
                let (got, want) = (f64::from(start[i] - now[i]) / 1e-3, (at(1e-2) - at(-1e-2)) / 2e-2);
                assert!((got - want).abs() < 1e-3, "{i}: {got} instead of {want}");
            }
        }
    }

    #[test]
    fn tags_are_found_among_the_first_predictions() {
        let learner = learner();
        let user = [examples(&[(&[3], &[0, 2]), (&[4], &[1])])];
        // Word 3 says tag 2, then 1, then 0; word 4 says tag 1.
        let mut model = vec![0.0; 27];
        model[9..12].copy_from_slice(&[-1.0, 0.0, 1.0]);
        model[12..15].copy_from_slice(&[0.0, 1.0, 0.0]);
        let predictor = learner.predictor(&model, &user, KernelPath::best()).unwrap();
        assert_eq!(predictor.pieces(), 1);
        let counts = predictor.count(0).unwrap();
        assert_eq!((counts.words.targets, counts.words.hits), (3, [2, 3, 3]));
        let large = [examples(&[(&[8], &[])])];
        assert!(matches!(
            learner.predictor(&model, &large, KernelPath::best()),
            Err(LearnerError::Id { what: "word", .. })
        ));
        assert!(matches!(
            learner.predictor(&model[1..], &user, KernelPath::best()),
            Err(LearnerError::Parameters { .. })
        ));
    }

    #[test]
    fn extreme_logits_have_finite_losses() {
        for z in [-1e30, -1e3, 0.0, 1e3, 1e30] {
            for has in [false, true] {
                let (loss, d) = cross_entropy(z, has);
                assert!(loss.is_finite() && loss >= 0.0 && (-1.0..=1.0).contains(&d), "{z} {has}");
            }
        }
    }
}
