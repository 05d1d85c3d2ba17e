//! N-grams and their counts in sorted arrays: the words that follow a context are adjacent.
//!
//! Level n holds all n-grams of n words, sorted. An n-gram is the word it ends with, its count, and where its followers
//! begin on the next level; its beginning is the parent. 12 bytes an n-gram, 8 at the last level.
//!
//! Counting is one sort: of all places of the text by the words that follow them. The counts of every order can be read
//! off it.

use super::{MOST_ENTRIES, NgramError, ORDERS};
use crate::vocabulary::BOS;

/// All n-grams of `n` words.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Level {
    /// The last word of each.
    pub(super) words: Vec<u32>,
    /// The count of each, as the smoothing takes it.
    pub(super) counts: Vec<u32>,
    /// Where the followers of each begin on the next level, and where the last one's end; empty on the last level.
    pub(super) children: Vec<u32>,
}

/// The n-grams of a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Trie {
    vocabulary: usize,
    levels: Vec<Level>,
}

/// What follows a context: words in the order of their ids, and their counts.
#[derive(Debug, Clone, Copy)]
pub(super) struct Followers<'a> {
    pub(super) words: &'a [u32],
    pub(super) counts: &'a [u32],
}

/// Stands between sequences; words stand one higher while they are counted.
const BOUNDARY: u32 = 0;

impl Trie {
    pub(super) fn count<'a>(
        order: usize,
        vocabulary: usize,
        sequences: impl IntoIterator<Item = &'a [u32]>,
    ) -> Result<Self, NgramError> {
        if !ORDERS.contains(&order) {
            return Err(NgramError::Order { got: order });
        }
        check_vocabulary(vocabulary)?;
        let text = join(order, vocabulary, sequences)?;
        let mut trie = Self { vocabulary, levels: raw_counts(order, &text) };
        trie.count_words_before();
        Ok(trie)
    }

    /// From levels that were stored.
    pub(super) fn from_levels(vocabulary: usize, levels: Vec<Level>) -> Result<Self, NgramError> {
        check_vocabulary(vocabulary)?;
        for (n, level) in levels.iter().enumerate() {
            let above = n.checked_sub(1).map(|above| &levels[above]);
            let below = levels.get(n + 1);
            if !is_sound(level, above, below, vocabulary) {
                return Err(NgramError::Structure { order: n + 1 });
            }
        }
        Ok(Self { vocabulary, levels })
    }

    pub(super) fn levels(&self) -> &[Level] {
        &self.levels
    }

    pub(super) fn vocabulary(&self) -> usize {
        self.vocabulary
    }

    pub(super) fn order(&self) -> usize {
        self.levels.len()
    }

    pub(super) fn len(&self, n: usize) -> usize {
        n.checked_sub(1).and_then(|level| self.levels.get(level)).map_or(0, |l| l.words.len())
    }

    /// What follows a context; nothing when it was not seen or is longer than any.
    pub(super) fn followers(&self, context: &[u32]) -> Followers<'_> {
        let nothing = Followers { words: &[], counts: &[] };
        let mut range = 0..self.levels[0].words.len();
        for (level, word) in self.levels.iter().zip(context) {
            let found = level.words[range.clone()].binary_search(word);
            let Ok(place) = found.map(|place| range.start + place) else { return nothing };
            let [Some(start), Some(end)] = [place, place + 1].map(|i| level.children.get(i)) else { return nothing };
            range = *start as usize..*end as usize;
        }
        let level = &self.levels[context.len()];
        Followers { words: &level.words[range.clone()], counts: &level.counts[range] }
    }

    /// How many n-grams of `n` words have the counts 1, 2, 3 and 4. BOS alone is no n-gram here: nothing predicts it.
    pub(super) fn counts_of_counts(&self, n: usize) -> [u64; 4] {
        let level = &self.levels[n - 1];
        let skip = usize::from(n == 1 && level.words.first() == Some(&BOS));
        let mut counts = [0; 4];
        for count in level.counts.iter().skip(skip).filter(|c| (1..=4).contains(*c)) {
            counts[*count as usize - 1] += 1;
        }
        counts
    }

    /// Replaces counts below the highest order by the number of different words seen before, except after BOS.
    fn count_words_before(&mut self) {
        // where on its level each n-gram stands when its first word is taken away; first for unigrams, where nothing is left
        let mut shorter: Vec<u32> = Vec::new();
        for n in 2..=self.order() {
            let (above, level) = (&self.levels[n - 2], &self.levels[n - 1]);
            let mut before = vec![0; above.words.len()];
            let mut links = Vec::with_capacity(level.words.len());
            for (parent, ends) in above.children.windows(2).enumerate() {
                let among = match n {
                    2 => 0..above.words.len(),
                    _ => {
                        let [start, end] = [0, 1].map(|i| self.levels[n - 3].children[shorter[parent] as usize + i]);
                        start as usize..end as usize
                    }
                };
                for word in &level.words[ends[0] as usize..ends[1] as usize] {
                    // it is there: an n-gram that was seen was also seen without its first word
                    let place = among.start + above.words[among.clone()].partition_point(|w| w < word);
                    before[place] += 1;
                    links.push(place as u32);
                }
            }
            let of_bos = of_bos(&self.levels, n - 1);
            let counts = &mut self.levels[n - 2].counts;
            let replaced = before.iter().zip(counts.iter_mut()).enumerate().filter(|(i, _)| !of_bos.contains(i));
            replaced.for_each(|(_, (before, count))| *count = *before);
            shorter = links;
        }
    }
}

fn check_vocabulary(entries: usize) -> Result<(), NgramError> {
    if (2..=MOST_ENTRIES).contains(&entries) { Ok(()) } else { Err(NgramError::Vocabulary { got: entries }) }
}

/// The n-grams of `n` words that begin with BOS. They come first, since its id is the lowest.
fn of_bos(levels: &[Level], n: usize) -> std::ops::Range<usize> {
    let first = usize::from(levels[0].words.first() == Some(&BOS));
    let end = levels[..n - 1].iter().fold(first, |end, level| level.children[end] as usize);
    0..end
}

/// All sequences in one, with boundaries between them and after the last.
fn join<'a>(
    order: usize,
    vocabulary: usize,
    sequences: impl IntoIterator<Item = &'a [u32]>,
) -> Result<Vec<u32>, NgramError> {
    let mut text = Vec::new();
    for (sequence, ids) in sequences.into_iter().enumerate() {
        let legal = |(i, id): (usize, &u32)| (*id as usize) < vocabulary && (*id == BOS) == (i == 0);
        if !ids.iter().enumerate().all(legal) {
            return Err(NgramError::Sequence { sequence, vocabulary });
        }
        if ids.len() > 1 {
            text.extend(ids.iter().map(|id| id + 1));
            text.push(BOUNDARY);
        }
    }
    if text.is_empty() {
        return Err(NgramError::NoText);
    }
    text.resize(text.len() + order, BOUNDARY);
    let most = u32::MAX - 8;
    if text.len() > most as usize { Err(NgramError::TooLong { most }) } else { Ok(text) }
}

fn raw_counts(order: usize, text: &[u32]) -> Vec<Level> {
    let window = |at: u32| &text[at as usize..at as usize + order];
    let places = 0..(text.len() - order) as u32;
    let mut places: Vec<u32> = places.filter(|at| text[*at as usize] != BOUNDARY).collect();
    places.sort_unstable_by(|a, b| window(*a).cmp(window(*b)));

    let mut levels = vec![Level::default(); order];
    let mut previous: &[u32] = &[];
    for at in places {
        let window = window(at);
        let words = window.iter().position(|w| *w == BOUNDARY).unwrap_or(order);
        let common = window[..words].iter().zip(previous).take_while(|(a, b)| a == b).count();
        for n in common..words {
            if n + 1 < order {
                let begin = levels[n + 1].words.len() as u32;
                levels[n].children.push(begin);
            }
            levels[n].words.push(window[n] - 1);
            levels[n].counts.push(0);
        }
        levels[..words].iter_mut().filter_map(|l| l.counts.last_mut()).for_each(|count| *count += 1);
        previous = window;
    }
    for n in 1..order {
        let end = levels[n].words.len() as u32;
        levels[n - 1].children.push(end);
    }
    levels
}

/// Whether a stored level is one that counting can yield, as far as reading depends on it.
fn is_sound(level: &Level, above: Option<&Level>, below: Option<&Level>, vocabulary: usize) -> bool {
    let Level { words, counts, children } = level;
    let rising = |words: &[u32]| words.windows(2).all(|w| w[0] < w[1]);
    let sorted = match above {
        None => rising(words),
        Some(above) => above.children.windows(2).all(|c| {
            let followers = words.get(c[0] as usize..c[1] as usize);
            followers.is_some_and(|f| rising(f) && f.first() != Some(&BOS))
        }),
    };
    let linked = match below {
        None => children.is_empty(),
        Some(below) => {
            children.len() == words.len() + 1
                && children.first() == Some(&0)
                && children.last().copied() == u32::try_from(below.words.len()).ok()
                && children.is_sorted()
        }
    };
    // one word besides BOS, so that there is something to predict
    let enough = above.is_some() || words.last().is_some_and(|w| *w != BOS);
    let legal = words.iter().all(|w| (*w as usize) < vocabulary) && counts.iter().all(|c| *c > 0);
    words.len() == counts.len() && enough && legal && sorted && linked
}
