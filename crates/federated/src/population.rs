//! The users a simulation trains on: synthetic, generated on demand, or from a store; by user or, where the unit of privacy is an example,
//! by post.

use std::collections::BTreeMap;

use corpus::{
    store::{self, Store, StoreError},
    synth::{self, Crowd},
};
use device::learner::{Learner, Post, examples::Examples, language::for_each_post};
use lm::{
    tokenizer::Tokenizer,
    vocabulary::{BOS, EOS, Vocabulary},
};
use thiserror::Error;

/// Users by number, each with their text. Asked from many threads at once.
pub trait Population: Sync {
    /// The number of users.
    fn users(&self) -> u64;

    /// Writes what a user has to learn from.
    ///
    /// # Errors
    /// When it cannot be read.
    fn read(&self, user: u64, examples: &mut Examples) -> Result<(), StoreError>;
}

/// A population whose posts can be asked for one by one.
pub trait Posts: Population {
    /// How many posts a user has.
    ///
    /// # Errors
    /// When that cannot be read.
    fn number_of_posts(&self, user: u64) -> Result<u64, StoreError>;

    /// Writes one post of a user.
    ///
    /// # Errors
    /// When it cannot be read.
    fn read_post(&self, user: u64, post: u64, examples: &mut Examples) -> Result<(), StoreError>;
}

/// A synthetic crowd, read with a vocabulary, as a learner's examples.
pub struct SyntheticPopulation<'a> {
    crowd: Crowd,
    tokenizer: Tokenizer,
    vocabulary: &'a Vocabulary,
    learner: &'a dyn Learner,
}

impl<'a> SyntheticPopulation<'a> {
    /// A crowd, how it is read, and for whom.
    #[must_use]
    pub const fn new(crowd: Crowd, tokenizer: Tokenizer, vocabulary: &'a Vocabulary, learner: &'a dyn Learner) -> Self {
        Self { crowd, tokenizer, vocabulary, learner }
    }

    fn push(&self, post: &synth::Post, ids: &mut Vec<u32>, examples: &mut Examples) {
        ids.clear();
        self.tokenizer.for_each(&post.text, |token| ids.push(self.vocabulary.id(token)));
        self.learner.read(Post { ids, labels: post.labels() }, examples);
    }

    /// Features are looked up for those who have room for them: a person has to be met for that.
    fn know(&self, user: u64, examples: &mut Examples) {
        if !examples.features().is_empty() {
            examples.set_features(&self.crowd.features(user));
        }
    }
}

impl Population for SyntheticPopulation<'_> {
    fn users(&self) -> u64 {
        self.crowd.plan().users
    }

    fn read(&self, user: u64, examples: &mut Examples) -> Result<(), StoreError> {
        examples.clear();
        self.know(user, examples);
        let mut ids = Vec::new();
        self.crowd.labelled_posts(user).iter().for_each(|post| self.push(post, &mut ids, examples));
        Ok(())
    }
}

impl Posts for SyntheticPopulation<'_> {
    fn number_of_posts(&self, user: u64) -> Result<u64, StoreError> {
        Ok(self.crowd.number_of_posts(user))
    }

    fn read_post(&self, user: u64, post: u64, examples: &mut Examples) -> Result<(), StoreError> {
        examples.clear();
        if let Some(post) = self.crowd.labelled_post(user, post) {
            self.know(user, examples);
            self.push(&post, &mut Vec::new(), examples);
        }
        Ok(())
    }
}

/// Some users of a store, as a learner's examples.
pub struct StoredPopulation<'a> {
    store: &'a Store,
    users: Vec<u64>,
    learner: &'a dyn Learner,
}

impl<'a> StoredPopulation<'a> {
    /// These users of a store, read for a learner.
    #[must_use]
    pub const fn new(store: &'a Store, users: Vec<u64>, learner: &'a dyn Learner) -> Self {
        Self { store, users, learner }
    }

    /// A user, if there is one of that number.
    fn user(&self, user: u64) -> Result<Option<store::User<'a>>, StoreError> {
        let index = usize::try_from(user).ok().and_then(|user| self.users.get(user));
        index.map(|index| self.store.user(*index)).transpose()
    }

    fn push(&self, post: store::Post<'_>, copied: &mut Copied, examples: &mut Examples) {
        let Copied { ids, labels } = copied;
        ids.clear();
        labels.clear();
        post.tokens().copy_into(ids);
        post.labels().copy_into(labels);
        self.learner.read(Post { ids, labels }, examples);
    }
}

/// Takes down what a store knows of a user.
fn know(user: &store::User<'_>, examples: &mut Examples) {
    let known: Vec<f32> = user.features().iter().take(examples.features().len()).collect();
    examples.set_features(&known);
}

/// A post of a store as a learner reads it.
#[derive(Default)]
struct Copied {
    ids: Vec<u32>,
    labels: Vec<u32>,
}

impl Population for StoredPopulation<'_> {
    fn users(&self) -> u64 {
        self.users.len() as u64
    }

    fn read(&self, user: u64, examples: &mut Examples) -> Result<(), StoreError> {
        examples.clear();
        if let Some(user) = self.user(user)? {
            know(&user, examples);
            let mut copied = Copied::default();
            user.posts().for_each(|post| self.push(post, &mut copied, examples));
        }
        Ok(())
    }
}

impl Posts for StoredPopulation<'_> {
    fn number_of_posts(&self, user: u64) -> Result<u64, StoreError> {
        Ok(self.user(user)?.map_or(0, |user| user.posts().count() as u64))
    }

    fn read_post(&self, user: u64, post: u64, examples: &mut Examples) -> Result<(), StoreError> {
        examples.clear();
        if let Some(user) = self.user(user)?
            && let Some(post) = usize::try_from(post).ok().and_then(|post| user.posts().nth(post))
        {
            know(&user, examples);
            self.push(post, &mut Copied::default(), examples);
        }
        Ok(())
    }
}

impl<P: Population + ?Sized> Population for Box<P> {
    fn users(&self) -> u64 {
        (**self).users()
    }

    fn read(&self, user: u64, examples: &mut Examples) -> Result<(), StoreError> {
        (**self).read(user, examples)
    }
}

/// The users of a population from one on, counted from 0.
pub struct Beyond<P> {
    /// The whole population.
    pub population: P,
    /// The first that is counted.
    pub first: u64,
}

impl<P: Population> Population for Beyond<P> {
    fn users(&self) -> u64 {
        self.population.users().saturating_sub(self.first)
    }

    fn read(&self, user: u64, examples: &mut Examples) -> Result<(), StoreError> {
        self.population.read(self.first + user, examples)
    }
}

/// The changes that an audit makes to a population.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Changes {
    /// Somebody who has nothing to say.
    pub without: Option<u64>,
    /// Posts, as ids, that users have before their own.
    pub planted: BTreeMap<u64, Vec<Vec<u32>>>,
}

impl Changes {
    /// Whether nothing changes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.without.is_none() && self.planted.is_empty()
    }
}

/// A population with changes, of people who write.
pub struct Changed<'a> {
    people: Box<dyn Population + 'a>,
    changes: &'a Changes,
    learner: &'a dyn Learner,
}

impl<'a> Changed<'a> {
    /// A population with these changes.
    #[must_use]
    pub fn new(people: Box<dyn Population + 'a>, changes: &'a Changes, learner: &'a dyn Learner) -> Self {
        Self { people, changes, learner }
    }
}

impl Population for Changed<'_> {
    fn users(&self) -> u64 {
        self.people.users()
    }

    fn read(&self, user: u64, examples: &mut Examples) -> Result<(), StoreError> {
        if self.changes.without == Some(user) {
            examples.clear();
            return Ok(());
        }
        let Some(planted) = self.changes.planted.get(&user) else { return self.people.read(user, examples) };
        let mut own = Examples::new(self.learner.schema());
        self.people.read(user, &mut own)?;
        examples.clear();
        examples.set_features(own.features());
        planted.iter().for_each(|post| self.learner.read(Post { ids: post, labels: &[] }, examples));
        for_each_post(&own, |post| {
            let words: Vec<u32> = post.iter().copied().filter(|id| !matches!(*id, BOS | EOS)).collect();
            self.learner.read(Post { ids: &words, labels: &[] }, examples);
        });
        Ok(())
    }
}

/// The most users whose posts are counted: a few seconds' work.
pub const MOST_USERS: u64 = 10_000_000;
/// Users of a block: a post is found among them one by one.
const BLOCK: u64 = 8;

/// Why posts cannot be the units.
#[derive(Debug, Error)]
pub enum EachPostError {
    /// More users than are counted.
    #[error(
        "counting the posts of {users} users would take too long (at most {MOST_USERS} users); use fewer users, or `unit = user`"
    )]
    TooMany {
        /// The number of users.
        users: u64,
    },
    /// Posts that cannot be read.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// `unit = example`: every post is somebody. The users' posts are counted once, a number is kept for every few users, and
/// whose post it is follows from them.
#[derive(Debug)]
pub struct EachPost<P> {
    population: P,
    /// Posts of all users before each block of users.
    before: Vec<u64>,
    posts: u64,
}

impl<P: Posts> EachPost<P> {
    /// Counts the posts of a population.
    ///
    /// # Errors
    /// When there are more than [`MOST_USERS`] users, or they cannot be read.
    pub fn new(population: P) -> Result<Self, EachPostError> {
        let users = population.users();
        if users > MOST_USERS {
            return Err(EachPostError::TooMany { users });
        }
        let (mut before, mut posts) = (Vec::with_capacity(users.div_ceil(BLOCK) as usize), 0);
        for user in 0..users {
            if user % BLOCK == 0 {
                before.push(posts);
            }
            posts += population.number_of_posts(user)?;
        }
        Ok(Self { population, before, posts })
    }

    /// The user of a post, and its number among the user's posts.
    fn place(&self, example: u64) -> Result<(u64, u64), StoreError> {
        let block = self.before.partition_point(|before| *before <= example).saturating_sub(1);
        let (mut user, mut rest) = (block as u64 * BLOCK, example - self.before.get(block).copied().unwrap_or(0));
        while user < self.population.users() {
            let posts = self.population.number_of_posts(user)?;
            if rest < posts {
                break;
            }
            rest -= posts;
            user += 1;
        }
        Ok((user, rest))
    }
}

impl<P: Posts> Population for EachPost<P> {
    fn users(&self) -> u64 {
        self.posts
    }

    fn read(&self, user: u64, examples: &mut Examples) -> Result<(), StoreError> {
        let (user, post) = self.place(user)?;
        self.population.read_post(user, post, examples)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use corpus::{
        origin::Origin,
        store::{Labels, Meta, StoreWriter, UserRecord, UserTag},
        synth::{Canaries, Dialect, SynthPlan, vocabulary},
    };
    use device::learner::{language::LanguageLearner, tags::TagLearner};
    use lm::{model::config::ModelConfig, tokenizer::Rules};

    use super::*;

    fn crowd(users: u64) -> Crowd {
        let canaries = Some(Canaries { count: 3, users: 1, repeats: 4, words: 5 });
        Crowd::new(SynthPlan { canaries, posts_per_user: 5, ..SynthPlan::new(4, users, Dialect::Informal) }).unwrap()
    }

    fn learner() -> LanguageLearner {
        LanguageLearner::new(&ModelConfig::preset("tiny").unwrap(), 4, 5).unwrap()
    }

    fn nothing() -> Examples {
        Examples::new(learner().schema())
    }

    fn read(population: &impl Population, user: u64) -> Examples {
        let mut examples = nothing();
        population.read(user, &mut examples).unwrap();
        examples
    }

    /// Every post of every user is one example, in order, and nothing else is.
    #[test]
    fn an_example_is_a_post() {
        let (words, learner) = (vocabulary(2000).unwrap(), learner());
        for users in [1, 2, 7, 8, 9, 50] {
            let crowd = crowd(users);
            let posts: Vec<String> = (0..users).flat_map(|user| crowd.posts(user)).collect();
            let population = SyntheticPopulation::new(crowd, Tokenizer::words(), &words, &learner);
            let examples = EachPost::new(population).unwrap();
            assert_eq!(examples.users(), posts.len() as u64);
            for (example, post) in (0..).zip(&posts) {
                let mut want = nothing();
                let mut ids = Vec::new();
                words.encode(Tokenizer::words(), post, &mut ids);
                LanguageLearner::push(&ids, &mut want);
                assert_eq!(read(&examples, example), want, "example {example} of {users} users");
            }
            assert_eq!(read(&examples, posts.len() as u64).len(), 0, "there is nobody after the last");
        }
    }

    /// A store in which user n has n posts of one token, n + 3; every other post has a label, n % 3; the features are n and -n.
    fn store(folder: &Path) -> Store {
        let words = Vocabulary::new((3..50).map(|i| format!("w{i}"))).unwrap();
        let meta = Meta {
            rules: Rules::Words1,
            vocabulary: Origin::BuiltIn,
            non_private: Vec::new(),
            tokens_per_user: None,
            sources: Vec::new(),
            crowd: None,
            labels: Some(Origin::BuiltIn),
            features: ["up", "down"].map(str::to_owned).to_vec(),
        };
        let path = folder.join("s.store");
        let names = Labels::new(["a", "b", "c"].map(str::to_owned).to_vec()).unwrap();
        let mut writer = StoreWriter::create(&path, false, false, &meta, &words).unwrap().with_labels(&names);
        let mut tags: Vec<UserTag> = (0..20).map(|n| UserTag::of(&n.to_string())).collect();
        tags.sort_unstable();
        for (n, tag) in (0..20u32).zip(tags) {
            let (tokens, ends): (Vec<u32>, Vec<u32>) = (1..=n).map(|end| (n + 3, end)).unzip();
            let label_ends: Vec<u32> = ends.iter().map(|end| end.div_ceil(2)).collect();
            let (tokens, ends, labels) = (&tokens, &ends, &vec![n % 3; n.div_ceil(2) as usize]);
            let (label_ends, features) = (&label_ends, &[n as f32, -(n as f32)]);
            let user = UserRecord { tag, key: "", tokens, ends, labels, label_ends, features };
            writer.user(&user).unwrap();
        }
        writer.finish().unwrap();
        Store::open(&path).unwrap()
    }

    #[test]
    fn an_example_of_a_store_is_a_post_of_the_chosen_users() {
        let (learner, folder) = (learner(), tempfile::tempdir().unwrap());
        let store = store(folder.path());
        let users = vec![3, 0, 19, 7];
        let examples = EachPost::new(StoredPopulation::new(&store, users.clone(), &learner)).unwrap();
        let want: Vec<u32> = users.iter().flat_map(|n| vec![*n as u32 + 3; *n as usize]).collect();
        assert_eq!(examples.users(), want.len() as u64);
        for (example, token) in (0..).zip(want) {
            let mut post = nothing();
            LanguageLearner::push(&[token], &mut post);
            assert_eq!(read(&examples, example), post, "example {example}");
        }
        assert_eq!(read(&examples, 29).len(), 0);
    }

    fn tag_learner() -> TagLearner {
        TagLearner::new(2000, synth::labels().names().to_vec(), 4)
    }

    /// The tags of a user's posts; they are the same where posts are read one by one.
    fn tags(population: &impl Posts, user: u64) -> Vec<Vec<u32>> {
        let mut examples = Examples::new(tag_learner().schema());
        population.read(user, &mut examples).unwrap();
        let tags: Vec<Vec<u32>> = (0..examples.len()).map(|post| examples.ids_of(1, post).to_vec()).collect();
        for (post, tags) in (0..).zip(&tags) {
            population.read_post(user, post, &mut examples).unwrap();
            assert_eq!((examples.len(), examples.ids_of(1, 0)), (1, &tags[..]), "post {post} of user {user}");
        }
        tags
    }

    #[test]
    fn a_learner_gets_the_labels_of_posts() {
        let (words, learner) = (vocabulary(2000).unwrap(), tag_learner());
        let crowd = crowd(9);
        let population = SyntheticPopulation::new(crowd.clone(), Tokenizer::words(), &words, &learner);
        for user in 0..9 {
            let want: Vec<Vec<u32>> = crowd.labelled_posts(user).iter().map(|post| post.labels().to_vec()).collect();
            assert!(want.iter().any(|labels| !labels.is_empty()));
            assert_eq!(tags(&population, user), want, "user {user}");
        }
        let folder = tempfile::tempdir().unwrap();
        let store = store(folder.path());
        let population = StoredPopulation::new(&store, vec![5, 0, 3], &learner);
        let labelled = |n: u32| (0..n).map(move |post| if post % 2 == 0 { vec![n % 3] } else { Vec::new() });
        for (user, n) in (0..).zip([5, 0, 3]) {
            assert_eq!(tags(&population, user), labelled(n).collect::<Vec<_>>(), "user {n}");
        }
    }

    /// A language model that knows so much of a person.
    fn knowing(features: usize) -> LanguageLearner {
        let config = ModelConfig { user_context: Some(features), ..ModelConfig::preset("tiny").unwrap() };
        LanguageLearner::new(&config, 4, 5).unwrap()
    }

    /// What is known of a user, whether all posts are read or one.
    fn known(population: &impl Posts, user: u64, learner: &LanguageLearner) -> Vec<f32> {
        let mut examples = Examples::new(learner.schema());
        population.read_post(user, 0, &mut examples).unwrap();
        let by_post = examples.features().to_vec();
        population.read(user, &mut examples).unwrap();
        assert_eq!(examples.features(), by_post, "user {user}");
        by_post
    }

    #[test]
    fn a_learner_gets_the_features_of_users() {
        let words = vocabulary(2000).unwrap();
        for features in [1, 3, 8, 9] {
            let (crowd, learner) = (crowd(9), knowing(features));
            let population = SyntheticPopulation::new(crowd.clone(), Tokenizer::words(), &words, &learner);
            for user in 0..9 {
                let of_all = crowd.features(user).into_iter().chain([0.0]);
                assert_eq!(known(&population, user, &learner), of_all.take(features).collect::<Vec<_>>());
            }
            assert_eq!(known(&population, 9, &learner), vec![0.0; features], "of nobody nothing is known");
        }
        let (learner, folder) = (knowing(3), tempfile::tempdir().unwrap());
        let store = store(folder.path());
        let population = StoredPopulation::new(&store, vec![5, 3], &learner);
        let want = [[5.0, -5.0, 0.0], [3.0, -3.0, 0.0], [0.0; 3]];
        assert_eq!([0, 1, 2].map(|user| known(&population, user, &learner)), want);
    }

    /// Who is read into the same examples after somebody else has nothing of them.
    #[test]
    fn examples_of_one_user_are_of_that_user_alone() {
        let (learner, folder) = (knowing(2), tempfile::tempdir().unwrap());
        let store = store(folder.path());
        let population = StoredPopulation::new(&store, vec![5], &learner);
        let mut examples = Examples::new(learner.schema());
        for user in [0, 1] {
            population.read(user, &mut examples).unwrap();
        }
        assert_eq!(examples, Examples::new(learner.schema()));
    }

    #[test]
    fn too_many_users_are_not_counted() {
        let (words, learner) = (vocabulary(100).unwrap(), learner());
        let crowd = Crowd::new(SynthPlan::new(4, 100_000_000, Dialect::Informal)).unwrap();
        let population = SyntheticPopulation::new(crowd, Tokenizer::words(), &words, &learner);
        let refused = EachPost::new(population).err().unwrap().to_string();
        assert!(refused.contains("100000000 users") && refused.contains("unit = user"), "{refused}");
    }
}
