//! Settings as text, every key explained: what `keyhush init` writes and proposals are written as.

use privacy::{
    clip::ClipStep,
    design::{DESIGNS, SizeOf},
};
use serde::Serialize;

use super::{CLIP_RULES, Config, ConfigError, DataKind, Devices, Document, RoundingKind, SecAgg};

/// What is trained when nothing is said: a small run on a made-up crowd, that learns within minutes.
pub const FIRST_RUN: &str = include_str!("first-run.toml");

/// The settings of [`FIRST_RUN`].
///
/// # Errors
/// Never, but for a mistake in that file.
pub fn first_run() -> Result<Config, ConfigError> {
    Document::new(FIRST_RUN, &[])?.config()
}

/// A key with its value, or with an example of one where it is not set.
struct Line {
    assignment: String,
    says: String,
}

/// The text of settings, section by section.
struct Page {
    text: Vec<Line>,
}

impl Page {
    fn plain(&mut self, text: String) {
        self.text.push(Line { assignment: text, says: String::new() });
    }

    /// A section, with what it is about above it.
    fn section(&mut self, name: &str, about: &str) {
        self.plain(String::new());
        about.lines().for_each(|line| self.plain(format!("# {line}")));
        self.plain(name.to_owned());
    }

    fn set(&mut self, key: &str, value: impl Serialize, says: &str) -> Result<(), ConfigError> {
        self.text.push(Line { assignment: format!("{key} = {}", written(key, &value)?), says: says.to_owned() });
        Ok(())
    }

    /// What may be missing.
    fn may(
        &mut self,
        key: &str,
        value: Option<impl Serialize>,
        example: impl Serialize,
        says: &str,
    ) -> Result<(), ConfigError> {
        match value {
            Some(value) => self.set(key, value, says),
            None => {
                self.text
                    .push(Line { assignment: format!("# {key} = {}", written(key, &example)?), says: says.to_owned() });
                Ok(())
            }
        }
    }

    /// Explanations stand one below the other.
    fn lined_up(&self) -> String {
        let said = self.text.iter().filter(|line| !line.says.is_empty());
        let width = said.map(|line| line.assignment.chars().count()).max().unwrap_or(0);
        let line = |Line { assignment, says }: &Line| match says.is_empty() {
            true => format!("{assignment}\n"),
            false => format!("{assignment:<width$}  # {says}\n"),
        };
        self.text.iter().map(line).collect()
    }
}

/// A value as TOML has it: as JSON has it, with room between thousands.
fn written(key: &str, value: &impl Serialize) -> Result<String, ConfigError> {
    let unwritable =
        |error: serde_json::Error| ConfigError { key: key.to_owned(), line: None, problem: error.to_string() };
    let json = serde_json::to_string(value).map_err(unwritable)?;
    if json.len() < 5 || !json.bytes().all(|b| b.is_ascii_digit()) {
        return Ok(json);
    }
    let groups: Vec<&str> = json.as_bytes().rchunks(3).rev().filter_map(|g| std::str::from_utf8(g).ok()).collect();
    Ok(groups.join("_"))
}

/// Settings without a schedule as text, every key explained; what is not set stands behind #. The head stands above them.
///
/// # Errors
/// When there is a path among them that is not text.
pub fn explained(config: &Config, head: &[String]) -> Result<String, ConfigError> {
    let mut page = Page { text: Vec::new() };
    head.iter().for_each(|line| page.plain(format!("# {line}")));
    page.plain(String::new());
    page.set("rounds", config.rounds, "T: rounds")?;
    page.set("unit", config.unit, "what is protected as one: \"user\", or \"example\", a single post")?;
    page.set("seed", config.seed, "the first parameters follow from it; public")?;
    page.may("noise_seed", config.noise_seed, 1, "a simulation: repeatable noise, and so no guarantee")?;
    let fast = config.floating_point_noise.then_some(true);
    page.may("floating_point_noise", fast, true, "of a simulation: faster noise, not exact")?;
    page.set("aggregation", config.aggregation, "\"plain\", or \"secagg\": nobody sees a single update")?;
    data(&mut page, config)?;
    model(&mut page, config)?;
    local(&mut page, config)?;
    participation(&mut page, config)?;
    devices(&mut page, config)?;
    secagg(&mut page, config)?;
    estimator(&mut page, config)?;
    clip(&mut page, config)?;
    privacy(&mut page, config)?;
    server(&mut page, config)?;
    rest(&mut page, config)?;
    Ok(page.lined_up())
}

fn data(page: &mut Page, config: &Config) -> Result<(), ConfigError> {
    let data = &config.data;
    page.section("[data]", "Whose text: a crowd that is made up, a store, or on devices.");
    let kinds = "\"synthetic\"; \"store\": what `keyhush data import` made; \"devices\": for keyhush serve";
    page.set("kind", data.kind, kinds)?;
    page.may("seed", data.seed, 1, "of a crowd: it follows from it")?;
    page.may("dialect", data.dialect, "informal", "of a crowd: \"informal\" or \"general\"")?;
    page.may("posts_per_user", data.posts_per_user, 40, "of a crowd: on average")?;
    page.may("users", data.users, 1000, "of a crowd with unit = \"example\": how many people typed the posts")?;
    let public = "of devices: text to measure models on, a post a line";
    page.may("public_text", data.public_text.as_ref(), "public.txt", public)?;
    page.may("path", data.path.as_ref(), "users.store", "of a store: its file")?;
    page.may("held_out_per_mille", data.held_out_per_mille, 100, "of a store: users of a thousand to evaluate on")?;
    page.may("salt", data.salt, 0, "of a store: which ones")
}

fn model(page: &mut Page, config: &Config) -> Result<(), ConfigError> {
    let model = &config.model;
    page.section("[model]", "Which model: a preset, or one to start from.");
    page.may(
        "learner",
        model.learner.as_ref(),
        "tags",
        "\"language\", or \"tags\": the labels of posts from their words",
    )?;
    page.may(
        "preset",
        model.preset.as_ref(),
        "tiny",
        "tiny, mcmahan2018, gboard, so-nwp, ... as in `keyhush pretrain`",
    )?;
    page.may("vocabulary", model.vocabulary, 1000, "instead of the preset's; a store has its own")?;
    page.may("hidden", model.hidden, 64, "units of a layer, instead of the preset's")?;
    page.may("embedding", model.embedding, 32, "its size, instead of the preset's")?;
    page.may("tied", model.tied, true, "whether the output shares the embedding, instead of the preset's choice")?;
    let features = model.user_features.then_some(true);
    page.may("user_features", features, true, "whether it reads what is known of a person, where the data has that")?;
    page.may("from", model.from.as_ref(), "pretrained", "instead of a preset: the folder of a model or a run")?;
    page.may("public", model.public.as_ref(), "Wikipedia", "why that model may be taken for public, without a ledger")
}

fn local(page: &mut Page, config: &Config) -> Result<(), ConfigError> {
    let local = &config.local;
    page.section("[local]", "What users do (McMahan et al. 2018, Algorithm 1).");
    page.set("algorithm", local.algorithm, "\"fedavg\", \"fedsgd-batch\" or \"fedsgd-all\"")?;
    page.may("epochs", local.epochs, 1, "E: readings of the text, of FedAvg")?;
    page.set("batch", local.batch, "B: sequences in a batch")?;
    page.may("unroll", local.unroll, 10, "tokens of a sequence in a batch; of language models")?;
    page.set("learning_rate", local.learning_rate, "eta: the step")?;
    page.may("most_tokens", local.most_tokens, 400, "tokens of a user that are read; all if not said")?;
    let penalty = Some(local.update_penalty).filter(|p| *p > 0.0);
    page.may("update_penalty", penalty, 0.01, "weight of the squared norm of the update in the loss")
}

fn participation(page: &mut Page, config: &Config) -> Result<(), ConfigError> {
    let from = &config.participation;
    page.section("[participation]", "Who takes part: declared before the data is opened, not measured.");
    page.set("kind", from.kind, "\"poisson\", \"fixed-size\", \"arrival\" (as devices come), \"once\"")?;
    page.set("population", from.population, "N: how many users there are")?;
    page.set("cohort", from.cohort, "users of a round: expected, exact, or the report goal")?;
    page.may("min_separation", from.min_separation, 99, "of \"arrival\": MinS, rounds between two participations")?;
    page.may("max_participations", from.max_participations, 2, "of \"arrival\": MaxP, the most of one user")?;
    page.may("vanish", from.vanish, 0.02, "the share of a round's users that vanish on the way, in the simulation")?;
    let absent = from.allow_absent.then_some(true);
    page.may("allow_absent", absent, true, "of a store: it is meant that it has less than half of the population")
}

fn devices(page: &mut Page, config: &Config) -> Result<(), ConfigError> {
    let (said, usual) = (config.devices.as_ref(), Devices::default());
    let header = if said.is_some() { "[devices]" } else { "# [devices]" };
    page.section(header, "Of data.kind = \"devices\": how long devices have (docs/TRAINING.md).");
    let select = "a round waits so long for as many devices as it would like";
    page.may("select_seconds", said.map(|d| d.select_seconds), usual.select_seconds, select)?;
    page.may(
        "report_seconds",
        said.map(|d| d.report_seconds),
        usual.report_seconds,
        "a device has so long for its report",
    )?;
    let answer = "and so long for each other message of secure aggregation";
    page.may("answer_seconds", said.map(|d| d.answer_seconds), usual.answer_seconds, answer)?;
    let tick = "reports leave at whole multiples of it, so that time tells nothing";
    page.may("tick_seconds", said.map(|d| d.tick_seconds), usual.tick_seconds, tick)?;
    let begin = "devices that are enrolled before the first round begins";
    page.may("begin_with", said.and_then(|d| d.begin_with), 1000, begin)?;
    let timer = "a device rests so long after its report: the timer that keyhush plan proposes";
    page.may("timer_hours", said.and_then(|d| d.timer_hours), 48.0, timer)
}

fn secagg(page: &mut Page, config: &Config) -> Result<(), ConfigError> {
    let (said, usual) = (config.secagg.as_ref(), SecAgg::default());
    let header = if said.is_some() { "[secagg]" } else { "# [secagg]" };
    page.section(header, "Of aggregation = \"secagg\": what it withstands, and who adds the noise (docs/SECAGG.md).");
    let adversary = "the server: \"curious\", or \"semi-malicious\", which lies about who vanished";
    page.may("adversary", said.map(|s| s.adversary), usual.adversary, adversary)?;
    page.may("dropout", said.map(|s| s.dropout), usual.dropout, "the share of devices that may vanish")?;
    page.may(
        "corrupted",
        said.map(|s| s.corrupted),
        0.33,
        "the share that may be on the server's side; a third if not said",
    )?;
    page.may(
        "security_bits",
        said.map(|s| s.security_bits),
        usual.security_bits,
        "an update is seen once in 2^this rounds",
    )?;
    page.may("failure_bits", said.map(|s| s.failure_bits), usual.failure_bits, "a round fails once in 2^this")?;
    let least = said.and_then(|s| s.least_survivors);
    let cohort = config.participation.cohort;
    let (all_left, words) = match config.data.kind {
        DataKind::Devices => (cohort, "devices below which no sum is opened: the goal, or more"),
        _ => (cohort * 9 / 10, "devices below which no sum is opened"),
    };
    page.may("least_survivors", least, all_left, words)?;
    page.may("noise", said.map(|s| s.noise), usual.noise, "\"central\", or \"distributed\": the devices add it")?;
    page.may("groups", said.map(|s| s.groups), usual.groups, "groups of a round; the server sees the sum of each")?;
    page.may(
        "leave_out_after",
        said.map(|s| s.leave_out_after),
        usual.leave_out_after,
        "who was in so many rounds that failed is not asked again; of \"arrival\" and \"once\"",
    )?;
    let spoilers = said.map(|s| s.spoilers).filter(|spoilers| *spoilers > 0);
    page.may("spoilers", spoilers, 1, "users who spoil every sum that they take part in, in the simulation")
}

fn estimator(page: &mut Page, config: &Config) -> Result<(), ConfigError> {
    let (estimator, all) = (&config.estimator, config.participation.population as f64);
    page.section("[estimator]", "What the sum of a round is divided by (McMahan et al. 2018, section 2).");
    page.set("kind", estimator.kind, "\"fixed\" (expected weight), \"clipped\", \"average\" (without privacy)")?;
    page.may("full_weight_tokens", estimator.full_weight_tokens, 200.0, "w_hat: fewer tokens weigh less than 1")?;
    page.may("total_weight", estimator.total_weight, 0.8 * all, "W of \"fixed\": all weights together, declared")?;
    page.may("least_total_weight", estimator.least_total_weight, 0.5 * all, "W_min of \"clipped\": at least so much")
}

const CLIP: &str = "\
How far one user may move the sum. Andrew et al. 2021 clip to the median of the updates' norms:
that is kind = \"adaptive\", norm = 0.1, quantile = 0.5; with correlated noise the clip moves at restarts only.";

/// Names as a person lists them.
fn one_of(names: &[String]) -> String {
    match names {
        [all @ .., last] if !all.is_empty() => format!("{} or {last}", all.join(", ")),
        few => few.concat(),
    }
}

fn clip(page: &mut Page, config: &Config) -> Result<(), ConfigError> {
    let clip = &config.clip;
    page.section("[clip]", CLIP);
    let kinds: Vec<String> = CLIP_RULES.iter().map(|kind| format!("{:?}", kind.name())).collect();
    page.set("kind", clip.kind, &one_of(&kinds))?;
    page.may("norm", clip.norm, 1.0, "S: the bound on an update; of \"adaptive\" the first")?;
    page.may("greedy", clip.greedy.then_some(true), true, "bring every local step within the bound")?;
    page.may("quantile", clip.quantile, 0.5, "gamma of \"adaptive\": the share of updates under the clip")?;
    page.may("learning_rate", clip.learning_rate, 0.2, "eta_C of \"adaptive\"")?;
    let noise = config.participation.cohort as f64 / 20.0;
    page.may(
        "count_stddev",
        clip.count_stddev,
        noise,
        "sigma_b of \"adaptive\": a twentieth of the cohort if not said",
    )?;
    page.may("step", clip.step, ClipStep::Geometric, "of \"adaptive\": \"geometric\" or \"linear\"")
}

fn privacy(page: &mut Page, config: &Config) -> Result<(), ConfigError> {
    let privacy = &config.privacy;
    page.section("[privacy]", "What is added to the sum, and what that is worth.");
    let correlated: Vec<String> = DESIGNS.iter().map(|design| format!("{:?}", design.name)).collect();
    let mechanisms = format!("\"gaussian\" with sampling; {} with arrival; \"none\"", correlated.join(", "));
    page.set("mechanism", privacy.mechanism, &mechanisms)?;
    page.may("noise_multiplier", privacy.noise_multiplier, 1.0, "z: standard deviation over sensitivity")?;
    page.may("delta", privacy.delta, 1e-7, "well below 1/population")?;
    page.set("accountant", privacy.accountant, "\"best\", or one by name, as in `keyhush privacy epsilon`")?;
    page.set("group", privacy.group, "units that are protected together, such as one person's devices")?;
    page.may("max_epsilon", privacy.max_epsilon, 8.0, "the run ends before the round that would cost more")?;
    let restarts = Some(&privacy.restarts).filter(|r| !r.is_empty());
    page.may("restarts", restarts, [128], "rounds at which correlated noise begins anew")?;
    page.may("tree_completion", privacy.tree_completion.then_some(true), true, "fill up trees with empty rounds")?;
    for of in SizeOf::ALL {
        let counting = DESIGNS.into_iter().filter_map(|design| Some((design, design.size.filter(|s| s.of == of)?)));
        let usual = counting.clone().map(|(_, size)| size.usual).next().unwrap_or(1);
        let names: Vec<String> = counting.map(|(design, _)| format!("{:?}", design.name)).collect();
        page.may(of.name(), privacy.size(of), usual, &format!("of {}", names.join(" and ")))?;
    }
    page.may("grid_bits", privacy.grid_bits, 20, "k: updates are rounded to the clip over 2^k")?;
    page.may("rotation", privacy.rotation.then_some(true), true, "rotate updates first (Xu et al. 2023, Algorithm 2)")?;
    let rounding = Some(privacy.rounding).filter(|r| *r != RoundingKind::Nearest);
    page.may(
        "rounding",
        rounding,
        RoundingKind::Conditional,
        "\"conditional\": at random, without bias, for a coarse grid",
    )
}

fn server(page: &mut Page, config: &Config) -> Result<(), ConfigError> {
    let server = &config.server;
    page.section("[server]", "What the server does with the average.");
    page.set("optimizer", server.optimizer, "\"sgd\", \"momentum\", \"adam\", \"adagrad\" or \"yogi\"")?;
    page.set("learning_rate", server.learning_rate, "eta_s: the step")?;
    page.may("momentum", server.momentum, 0.9, "of \"momentum\"")?;
    page.may("beta1", server.beta1, 0.9, "of \"adam\" and \"yogi\"")?;
    page.may("beta2", server.beta2, 0.99, "of \"adam\" and \"yogi\"")?;
    page.may("tau", server.tau, 0.001, "of \"adam\", \"adagrad\" and \"yogi\"")
}

fn rest(page: &mut Page, config: &Config) -> Result<(), ConfigError> {
    let (evaluation, none) = (&config.evaluation, None::<u64>);
    page.section("[evaluation]", "When accuracy is measured, on users that are held out.");
    page.set("every", evaluation.every, "rounds; also before the first and after the last")?;
    page.set("users", evaluation.users, "held-out users, at most")?;
    page.set("most_tokens", evaluation.most_tokens, "tokens of all of them, at most")?;
    page.may("stop_at_accuracy", evaluation.stop_at_accuracy, 0.2, "end there; needs max_epsilon, as a filter")?;
    let devices = evaluation.devices.as_ref();
    let header = if devices.is_some() { "[evaluation.devices]" } else { "# [evaluation.devices]" };
    page.section(
        header,
        "Devices measure models on their own text, with limits and noise of their own (docs/TRAINING.md).",
    );
    page.may("every", devices.map(|d| d.every), 50, "rounds; also after the last")?;
    let goal = config.participation.cohort;
    page.may("cohort", devices.map(|d| d.cohort), goal, "the report goal")?;
    page.may("min_separation", devices.map(|d| d.min_separation), 0, "MinS, evaluations between two of one device")?;
    page.may("max_participations", devices.map(|d| d.max_participations), 2, "MaxP, the most of one device")?;
    let z = devices.and_then(|d| d.noise_multiplier);
    page.may("noise_multiplier", z, 4.0, "z of each; its cost adds to that of training")?;
    page.may("most_tokens", devices.map(|d| d.most_tokens), 200, "tokens of one device that are predicted, at most")?;
    page.section("[checkpoint]", "When the state is kept; a crash loses no release in any case.");
    page.set("every", config.checkpoint.every, "rounds")?;
    page.section("# [[schedule]]", "What changes in the midst of the run, as often as needed.");
    page.may("from", none, config.rounds / 2, "the first round, from 0")?;
    page.may("clip_norm", none, 0.5, "S; the noise follows it, at the same z")?;
    page.may("noise_multiplier", none, 2.0, "z; not with correlated noise")?;
    page.may("cohort", none, 2 * config.participation.cohort, "users of a round; with sampling")?;
    page.may("local_learning_rate", none, 0.5, "the users' step")?;
    page.may("server_learning_rate", none, 0.5, "the server's step")?;
    page.section(
        "# [stands_for]",
        "The large cohort for which a small one stands, with the noise it would have; a simulation.",
    );
    page.may("population", none, 100 * config.participation.population, "its population")?;
    page.may("cohort", none, 10 * config.participation.cohort, "its users of a round")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        config::{Document, MechanismKind},
        propose::beginning,
    };

    fn parsed(text: &str) -> Result<Config, String> {
        Document::new(text, &[]).and_then(|d| d.config()).map_err(|e| e.to_string())
    }

    #[test]
    fn what_is_written_is_read_as_it_was() {
        for kind in MechanismKind::noises() {
            let config = beginning(kind).unwrap();
            let text = explained(&config, &["a line".into()]).unwrap();
            assert_eq!(parsed(&text).unwrap(), config, "{text}");
            assert!(text.lines().all(|line| line.chars().count() <= 120), "{text}");
        }
    }

    /// What serde would have accepted in a section, from what it says of a key that it does not know.
    fn keys(section: &str) -> Vec<String> {
        let whole = explained(&beginning(MechanismKind::Gaussian).unwrap(), &[]).unwrap();
        let header = match section {
            "" => String::new(),
            "schedule" => "[[schedule]]\n".to_owned(),
            other => format!("[{other}]\n"),
        };
        let text = if whole.contains(&format!("\n{header}")) && !header.is_empty() {
            whole.replace(&header, &format!("{header}zzz = 1\n"))
        } else if header.is_empty() {
            format!("zzz = 1\n{whole}")
        } else {
            format!("{whole}\n{header}zzz = 1\n")
        };
        let said = parsed(&text).unwrap_err();
        assert!(said.contains("unknown field `zzz`"), "{section}: {said}");
        said.split('`').skip(3).step_by(2).map(str::to_owned).collect()
    }

    #[test]
    fn no_key_is_left_out() {
        let text = explained(&beginning(MechanismKind::Gaussian).unwrap(), &[]).unwrap();
        let top = keys("");
        assert!(top.len() > 10, "{top:?}");
        for key in &top {
            let there = [format!("\n{key} = "), format!("\n# {key} = "), format!("[{key}]")];
            assert!(there.iter().any(|line| text.contains(line)), "{key}");
        }
        let of_values = ["rounds", "unit", "seed", "noise_seed", "floating_point_noise", "aggregation"];
        for section in top.iter().filter(|key| !of_values.contains(&key.as_str())) {
            let part = text.split(&format!("[{section}]")).nth(1).unwrap_or_else(|| panic!("{section}"));
            let part = part.split("\n[").next().unwrap().split("\n# [").next().unwrap();
            for key in keys(section) {
                let there = part.contains(&format!("\n{key} = ")) || part.contains(&format!("\n# {key} = "));
                assert!(there || text.contains(&format!("[{section}.{key}]")), "{section}.{key} is not explained");
            }
        }
        let part = text.split("[evaluation.devices]").nth(1).unwrap().split("\n[").next().unwrap();
        for key in keys("evaluation.devices") {
            assert!(part.contains(&format!("\n# {key} = ")), "evaluation.devices.{key} is not explained");
        }
    }

    #[test]
    fn examples_are_of_their_keys() {
        // Every line behind # is legal TOML of its section: as a value of its kind, if not together with the others.
        let text = explained(&beginning(MechanismKind::TREE).unwrap(), &[]).unwrap();
        let mut section = String::new();
        for line in text.lines() {
            if let Some(name) = line.strip_prefix("# ").unwrap_or(line).strip_prefix('[') {
                section = name.trim_matches(['[', ']']).to_owned();
            }
            let Some((key, value)) = line.strip_prefix("# ").and_then(|l| l.split_once(" = ")) else { continue };
            if key.contains(' ') || matches!(section.as_str(), "schedule" | "stands_for" | "evaluation.devices") {
                continue;
            }
            let value = value.split("  #").next().unwrap().trim();
            let path = if section.is_empty() { key.to_owned() } else { format!("{section}.{key}") };
            let set = [format!("{path}={value}")];
            let read = Document::new(&text, &set).and_then(|d| d.config());
            assert!(read.is_ok(), "{path} = {value}: {read:?}");
        }
    }
}
