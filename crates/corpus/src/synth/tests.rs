//! Tests that the synthetic crowd is reproducible, resembles a language, and has users who differ.

use lm::{tokenizer::Tokenizer, vocabulary::Counts};

use super::*;

fn crowd(plan: SynthPlan) -> Crowd {
    Crowd::new(plan).unwrap()
}

#[test]
fn a_user_is_a_function_of_the_seed_and_the_number() {
    let small = crowd(SynthPlan::new(1, 100, Dialect::Informal));
    let large = crowd(SynthPlan::new(1, 100_000_000, Dialect::Informal));
    assert_eq!(small.posts(77), large.posts(77));
    assert_ne!(small.posts(77), small.posts(78));
    assert_ne!(small.posts(77), crowd(SynthPlan::new(2, 100, Dialect::Informal)).posts(77));
    let general = crowd(SynthPlan::new(1, 100, Dialect::General)).posts(77);
    let lower = |posts: Vec<String>| posts.concat().to_lowercase();
    let (general, informal) = (lower(general), lower(small.posts(77)));
    assert_ne!(general.get(..20), informal.get(..20), "the dialects have nobody in common");
    assert!(!large.posts(99_999_999).is_empty());
    assert!(small.posts(100).is_empty());
}

/// With canaries, which stand among the other posts.
#[test]
fn a_post_alone_is_the_one_among_all() {
    let canaries = Some(Canaries { count: 2, users: 3, repeats: 4, words: 5 });
    let crowd = crowd(SynthPlan { canaries, ..SynthPlan::new(1, 8, Dialect::Informal) });
    for user in 0..10 {
        let posts = crowd.posts(user);
        assert_eq!(crowd.number_of_posts(user), posts.len() as u64);
        let alone: Vec<String> = (0..).map_while(|post| crowd.post(user, post)).collect();
        assert_eq!(alone, posts);
    }
}

/// The text itself, so that a platform or a change that speaks differently is noticed.
#[test]
fn the_first_posts_are_these() {
    let all: String = [Dialect::General, Dialect::Informal]
        .into_iter()
        .flat_map(|dialect| crowd(SynthPlan::new(7, 50, dialect)).posts(3))
        .collect();
    let hash = all.bytes().fold(0xCBF2_9CE4_8422_2325_u64, |h, b| (h ^ u64::from(b)).wrapping_mul(0x100_0000_01B3));
    assert_eq!(format!("{hash:016x}"), FIRST_POSTS, "{}", all.chars().take(600).collect::<String>());
}
const FIRST_POSTS: &str = "9786bc50a672e8ef";

#[test]
fn the_amounts_are_as_planned() {
    let plan = SynthPlan { posts_per_user: 33, words_per_post: 200, ..SynthPlan::new(5, 300, Dialect::General) };
    let posts: Vec<Vec<String>> = (0..300).map(|user| crowd(plan.clone()).posts(user)).collect();
    let count = posts.iter().map(Vec::len).sum::<usize>() as f64 / 300.0;
    let words: usize = posts.iter().flatten().map(|post| post.split_whitespace().count()).sum();
    let words = words as f64 / (count * 300.0);
    assert!((25.0..42.0).contains(&count), "{count} posts per user");
    assert!((170.0..230.0).contains(&words), "{words} words per post");
}

#[test]
fn the_vocabulary_is_large_and_covers_the_crowd() {
    let vocabulary = vocabulary(10_000).unwrap();
    assert_eq!(vocabulary.len(), 10_000);
    for (dialect, least) in [(Dialect::General, 0.97), (Dialect::Informal, 0.93)] {
        let crowd = crowd(SynthPlan::new(9, 200, dialect));
        let mut ids = Vec::new();
        (0..200).flat_map(|user| crowd.posts(user)).for_each(|post| {
            vocabulary.encode(Tokenizer::words(), &post, &mut ids);
        });
        let known = ids.iter().filter(|id| **id != lm::vocabulary::UNK).count() as f64 / ids.len() as f64;
        assert!(known > least && known < 0.9999, "{dialect:?}: {known}");
    }
}

#[test]
fn canaries_are_with_their_holders_and_nobody_else() {
    let canaries = Canaries { count: 3, users: 4, repeats: 5, words: 5 };
    let plan = SynthPlan { canaries: Some(canaries), ..SynthPlan::new(11, 60, Dialect::General) };
    let crowd = crowd(plan);
    for canary in crowd.canaries() {
        assert_eq!(canary.holders.len(), 4);
        for user in 0..60 {
            let copies = crowd.posts(user).iter().filter(|post| **post == canary.text).count();
            assert_eq!(copies, if canary.holders.contains(&user) { 5 } else { 0 });
        }
    }
}

#[test]
fn impossible_plans_are_refused() {
    assert!(Crowd::new(SynthPlan::new(1, 0, Dialect::General)).is_err());
    assert!(Crowd::new(SynthPlan { posts_per_user: 0, ..SynthPlan::new(1, 5, Dialect::General) }).is_err());
    let canaries = Some(Canaries { count: 1, users: 6, repeats: 1, words: 5 });
    assert!(Crowd::new(SynthPlan { canaries, ..SynthPlan::new(1, 5, Dialect::General) }).is_err());
}

#[test]
fn words_follow_zipf_and_depend_on_the_word_before() {
    let crowd = crowd(SynthPlan::new(3, 300, Dialect::General));
    let mut counts = Counts::new();
    let mut pairs: BTreeMap<(String, String), u64> = BTreeMap::new();
    for post in (0..300).flat_map(|user| crowd.posts(user)) {
        counts.add(Tokenizer::words(), &post);
        let tokens = Tokenizer::words().tokens(&post);
        for pair in tokens.windows(2) {
            *pairs.entry((pair[0].clone(), pair[1].clone())).or_default() += 1;
        }
    }
    let total: u64 = counts.ranked().iter().map(|(_, count)| count).sum();
    let share = |from: usize, to: usize| {
        counts.ranked()[from..to].iter().map(|(_, count)| count).sum::<u64>() as f64 / total as f64
    };
    assert!((0.2..0.6).contains(&share(0, 20)), "{}", share(0, 20));
    assert!(share(500, counts.distinct()) > 0.1, "{}", share(500, counts.distinct()));
    // How often the likeliest follower of the word before is right, against the likeliest word of all.
    let mut best: BTreeMap<&str, u64> = BTreeMap::new();
    for ((before, _), count) in &pairs {
        let entry = best.entry(before).or_default();
        *entry = (*entry).max(*count);
    }
    let right = best.values().sum::<u64>() as f64 / pairs.values().sum::<u64>() as f64;
    assert!(right > 0.18 && right > 2.0 * share(0, 1), "{right} against {}", share(0, 1));
}

/// The user with the largest number of the largest crowd comes as quickly as the first, and is the same in sequence.
#[test]
fn any_user_of_a_hundred_million_is_made_without_the_others() {
    let crowd = crowd(SynthPlan::new(1, 100_000_000, Dialect::Informal));
    let last = crowd.posts(99_999_999);
    let in_sequence: Vec<Vec<String>> = (99_999_990..100_000_000).map(|user| crowd.posts(user)).collect();
    assert_eq!(in_sequence[9], last);
    let quickest = (0..20)
        .map(|_| {
            let start = std::time::Instant::now();
            assert_eq!(crowd.posts(99_999_999).len(), last.len());
            start.elapsed()
        })
        .min();
    // Some tenth of a millisecond; another factor for tests without optimisation and busy machines.
    assert!(quickest.unwrap() < std::time::Duration::from_millis(10), "{quickest:?}");
}

/// How often each word occurs, as a share of all.
fn shares<'a>(posts: impl Iterator<Item = &'a String>) -> BTreeMap<String, f64> {
    let mut counts: BTreeMap<String, f64> = BTreeMap::new();
    posts.flat_map(|post| Tokenizer::words().tokens(post)).for_each(|token| *counts.entry(token).or_default() += 1.0);
    let total: f64 = counts.values().sum();
    counts.values_mut().for_each(|count| *count /= total);
    counts
}

/// A word as often as in the early posts of everybody and of somebody in particular, half and half: how many bits a word
/// of the late posts of the same one costs, and of the next one.
#[test]
fn users_are_better_predicted_by_their_own_past_than_by_others() {
    for dialect in [Dialect::General, Dialect::Informal] {
        let crowd = crowd(SynthPlan { posts_per_user: 120, ..SynthPlan::new(4, 40, dialect) });
        let halves: Vec<(Vec<String>, Vec<String>)> = (0..40)
            .map(|user| crowd.posts(user))
            .filter(|posts| posts.len() >= 60)
            .map(|mut posts| {
                let late = posts.split_off(posts.len() / 2);
                (posts, late)
            })
            .collect();
        let everybody = shares(halves.iter().flat_map(|(early, _)| early));
        let bits = |early: &[String], late: &[String]| {
            let own = shares(early.iter());
            let share = |of: &BTreeMap<String, f64>, token: &str| of.get(token).copied().unwrap_or(1e-6);
            let tokens: Vec<String> = late.iter().flat_map(|post| Tokenizer::words().tokens(post)).collect();
            let bits = tokens.iter().map(|t| -libm::log2(f64::midpoint(share(&everybody, t), share(&own, t))));
            bits.sum::<f64>() / tokens.len() as f64
        };
        let own: f64 = halves.iter().map(|(early, late)| bits(early, late)).sum();
        let next = halves.iter().zip(halves.iter().cycle().skip(1));
        let next: f64 = next.map(|((early, _), (_, late))| bits(early, late)).sum();
        let saved = (next - own) / halves.len() as f64;
        assert!(halves.len() >= 15 && saved > 0.3, "{dialect:?}: their own past saves only {saved} bits a word");
    }
}

#[test]
fn habits_differ_between_users() {
    let crowd = crowd(SynthPlan { posts_per_user: 60, ..SynthPlan::new(8, 60, Dialect::Informal) });
    let share = |user: u64, is: fn(&str) -> bool| {
        let posts = crowd.posts(user);
        posts.iter().filter(|post| is(post)).count() as f64 / posts.len() as f64
    };
    type Habit = (&'static str, fn(&str) -> bool);
    let habits: [Habit; 4] = [
        ("slang", |post| post.split(' ').any(|word| matches!(word, "u" | "r" | "da" | "2" | "w" | "goin"))),
        ("emoji", |post| !post.is_ascii()),
        ("full stops", |post| post.contains('.')),
        ("capitals", |post| post.starts_with(|c: char| c.is_ascii_uppercase())),
    ];
    for (habit, is) in habits {
        let shares: Vec<f64> = (0..60).map(|user| share(user, is)).collect();
        assert!(shares.iter().any(|share| *share < 0.1), "nobody is without {habit}");
        assert!(shares.iter().any(|share| *share > 0.4), "nobody is for {habit}");
    }
}

/// What a post is about is what it speaks of: more of the things of its topic than of those of any other.
#[test]
fn labels_are_what_a_post_says() {
    let (labels, lexicon) = (labels(), lexicon::get());
    assert_eq!(labels.len(), 25);
    let question = labels.id("question").unwrap();
    let crowd = crowd(SynthPlan { words_per_post: 80, ..SynthPlan::new(6, 30, Dialect::General) });
    let things = |topic: usize, post: &str| {
        let nouns = &lexicon.topics[topic].nouns.items;
        let tokens = Tokenizer::words().tokens(post);
        tokens.iter().filter(|token| nouns.iter().any(|noun| noun.one == *token || noun.many == *token)).count()
    };
    let (mut posts, mut right) = (0, 0);
    for post in (0..30).flat_map(|user| crowd.labelled_posts(user)) {
        let topic = post.labels()[0] as usize;
        assert_eq!(post.labels().contains(&question), post.text.contains('?'), "{}", post.text);
        assert!(topic < 24 && post.labels().len() <= 2);
        let most = (0..24).map(|other| things(other, &post.text)).max();
        posts += 1;
        right += usize::from(most == Some(things(topic, &post.text)));
    }
    assert!(right * 100 > posts * 95, "{right} of {posts}");
}

/// With canaries, which are about nothing and stand among the other posts.
#[test]
fn labels_belong_to_their_posts() {
    let canaries = Some(Canaries { count: 2, users: 3, repeats: 4, words: 5 });
    let crowd = crowd(SynthPlan { canaries, ..SynthPlan::new(1, 8, Dialect::Informal) });
    let secrets: Vec<String> = crowd.canaries().into_iter().map(|canary| canary.text).collect();
    for user in 0..10 {
        let posts = crowd.labelled_posts(user);
        assert_eq!(crowd.posts(user), posts.iter().map(|post| post.text.clone()).collect::<Vec<_>>());
        for (i, post) in (0..).zip(&posts) {
            assert_eq!(crowd.labelled_post(user, i).as_ref(), Some(post));
            assert_eq!(post.labels().is_empty(), secrets.contains(&post.text));
        }
        assert_eq!(crowd.labelled_post(user, posts.len() as u64), None);
    }
}

#[test]
fn features_are_the_habits_and_within_their_range() {
    for dialect in [Dialect::General, Dialect::Informal] {
        let crowd = crowd(SynthPlan::new(8, 60, dialect));
        let all: Vec<[f32; FEATURES.len()]> = (0..60).map(|user| crowd.features(user)).collect();
        assert!(all.iter().flatten().all(|number| (-1.0..=1.0).contains(number)));
        assert_eq!(crowd.features(60), [0.0; FEATURES.len()]);
        let capitals = FEATURES.iter().position(|name| *name == "capitals").unwrap();
        for (user, features) in (0..).zip(&all) {
            let upper = crowd.posts(user).iter().filter(|post| post.contains(|c: char| c.is_ascii_uppercase())).count();
            assert_eq!(features[capitals] > 0.0, upper > 0, "user {user}");
        }
    }
}
