//! Opens what a run's settings name: the text, the vocabulary, the model to start from.

use std::path::{Path, PathBuf};

use corpus::{
    store::{Part, Split, Store},
    synth::{Crowd, Dialect, SynthPlan},
};
use device::{
    finetune::GeneralText,
    learner::{Learner, Part as ModelPart},
};
use ledger::{
    Approval, DataSource, Digest, Head, Import, ImportKind, Ledger, LedgerStore, PublicData, Start, Unit, Vouched, hex,
};
use lm::{
    folder::{Folder, Learned, LearnedPart, Weights},
    model::config::ModelConfig,
    tokenizer::{Rules, Tokenizer},
    vocabulary::Vocabulary,
};
use privacy::rng::Randomness;

use super::{Presence, RunError, is_undecided};
use crate::{
    canaries::WithCanaries,
    config::{
        Config, ConfigError, Crowd as MadeUp, Data, DeviceText, EarlierModel, Evaluation, ModelStart, NewModel,
        StoredText,
    },
    evaluate::HeldOut,
    finetune::{self, Rehearsed},
    home::{Home, LEDGER_FILE, RunFolder, heads, lost::Lost, model_in},
    learners::{self, Made},
    ledger_file::Place,
    model_folder,
    plan::{Plan, Setting},
    population::{Beyond, Changed, Changes, EachPost, Population, StoredPopulation, SyntheticPopulation},
};

/// Held-out users of a thousand by default.
const HELD_OUT_PER_MILLE: u32 = 100;

/// The opened data, vocabulary and models of a run.
pub struct Opened {
    text: Text,
    vocabulary: Vocabulary,
    rules: Rules,
    learner: Box<dyn Learner>,
    first: Vec<f32>,
    start: Start,
    public_data: Vec<PublicData>,
    import: Option<Import>,
    /// Earlier tasks over the same devices.
    after: Vec<Import>,
    approval: Option<Approval>,
    prompts: Option<Vec<String>>,
    /// Declared users, and how many of them are canaries.
    canaries: Option<(u64, u64)>,
    changes: Changes,
    general: Option<GeneralText>,
}

/// The users' text that a run trains on.
enum Text {
    Crowd {
        plan: SynthPlan,
        held_out: u64,
    },
    Store {
        store: Box<Store>,
        train: Vec<u64>,
        held_out: Vec<u64>,
    },
    /// It is on devices. Models are measured on public text, or on synthetic users.
    Devices {
        public: Vec<String>,
        made_up: SynthPlan,
    },
}

impl Opened {
    /// Opens everything.
    ///
    /// # Errors
    /// When something is missing, damaged, or does not fit something else.
    pub fn new(config: &Config) -> Result<Self, RunError> {
        let store = match &config.data {
            Data::Store(StoredText { path, .. }) => {
                Some(Store::open(path).map_err(|e| ConfigError::new("data.path", e))?)
            }
            Data::Synthetic(_) | Data::Devices(_) => None,
        };
        let Origin { words: (vocabulary, rules), learner, first, start, import } = origin(config, store.as_ref())?;
        // A vocabulary that was counted from the users' own text is not public: the plan has an event for it.
        let public_words = store.iter().map(|s| &s.meta().vocabulary).filter(|o| o.non_private_event().is_none());
        // So are the names of labels, where they become a part of the model.
        let public_names = store.iter().filter_map(|s| s.meta().labels.as_ref()).filter(|_| learner.learns_labels());
        let public_names = public_names.filter(|o| o.non_private_event().is_none());
        let public =
            |what: &str, origin: &corpus::origin::Origin| PublicData { what: what.into(), why: origin.to_string() };
        let rehearsed = finetune::open(config, learner.as_ref(), &vocabulary, rules)?;
        let (general, rehearsed) = rehearsed.map(|Rehearsed { text, public }| (text, public)).unzip();
        let public_data = public_words
            .map(|origin| public("the vocabulary", origin))
            .chain(public_names.map(|origin| public("the names of the labels", origin)))
            .chain(rehearsed)
            .collect();
        let after = earlier_tasks(config, import.as_ref())?;
        let text = match (&config.data, store) {
            (Data::Store(said), Some(store)) => split(said, store)?,
            (Data::Store(_), None) => return Err(ConfigError::new("data.path", "the store was not opened").into()),
            (Data::Devices(said), _) => devices(config, said, learner.as_ref())?,
            (Data::Synthetic(said), _) => crowd(config, said)?,
        };
        let canaries = config.audit.as_ref().map(|audit| (config.participation.population, audit.canaries));
        let changes = Changes::default();
        let opened = Self {
            text,
            vocabulary,
            rules,
            learner,
            first,
            start,
            public_data,
            import,
            after,
            approval: None,
            prompts: None,
            canaries,
            changes,
            general,
        };
        opened.check_declared(config)?;
        Ok(opened)
    }

    /// With prompts of one's own for [`super::Samples`]. They must be public: what follows them is written down.
    #[must_use]
    pub fn with_prompts(self, prompts: Vec<String>) -> Self {
        Self { prompts: Some(prompts), ..self }
    }

    /// With other users than there are: somebody left out, or posts planted. For audits, which train several models and compare them;
    /// nothing of it is in the settings, so such a run cannot be resumed.
    #[must_use]
    pub fn with_changes(self, changes: Changes) -> Self {
        Self { changes, ..self }
    }

    /// The prompts that were asked for.
    pub(super) fn prompts(&self) -> Option<&[String]> {
        self.prompts.as_deref()
    }

    /// The facts that a plan needs.
    #[must_use]
    pub fn setting(&self) -> Setting {
        let non_private = match &self.text {
            Text::Store { store, .. } => store.meta().non_private.clone(),
            Text::Crowd { .. } | Text::Devices { .. } => Vec::new(),
        };
        let data = match &self.text {
            Text::Crowd { .. } => {
                DataSource::MadeUp { what: self.and_canaries("the crowd that comes with the program") }
            }
            Text::Store { .. } => {
                DataSource::Users { what: self.and_canaries("the users of a store that was imported") }
            }
            Text::Devices { .. } => DataSource::Users { what: "the devices that enrolled with the server".into() },
        };
        Setting {
            parameters: self.learner.layout().clone(),
            data,
            start: self.start.clone(),
            non_private: (!non_private.is_empty()).then(|| non_private.join("; ")),
            after: self.after.iter().map(|import| import.head).collect(),
            public_data: self.public_data.clone(),
            counted: device::evaluation::coordinates(self.learner.measures()),
            general: self.general.clone(),
        }
    }

    /// Whose text it is, with the canaries among them.
    fn and_canaries(&self, whose: &str) -> String {
        match self.canaries {
            Some((_, canaries)) => format!("{whose}, and {canaries} canaries that audit the run"),
            None => whose.to_owned(),
        }
    }

    /// All that decides what a user's training comes to, in words: the settings, the vocabulary, which text. Processes that
    /// work together have the same.
    #[must_use]
    pub fn description(&self, plan: &Plan) -> String {
        let words = corpus::origin::fingerprint(self.rules, &self.vocabulary);
        let text = match &self.text {
            Text::Crowd { .. } | Text::Devices { .. } => String::new(),
            Text::Store { store, .. } => {
                let (users, posts, tokens) = (store.users(), store.posts(), store.tokens());
                format!("{users} users, {posts} posts, {tokens} tokens, checksums {:?}", store.checksums())
            }
        };
        let general = self.general.as_ref().map(|text| format!("\n{}", hex(&finetune::digest(text))));
        [&plan.settings, &words, &text].map(String::as_str).join("\n") + &general.unwrap_or_default()
    }

    /// What devices rehearse, where the settings say that they do.
    #[must_use]
    pub const fn general(&self) -> Option<&GeneralText> {
        self.general.as_ref()
    }

    /// The store, where the text comes from one.
    #[must_use]
    pub fn store(&self) -> Option<&Store> {
        match &self.text {
            Text::Crowd { .. } | Text::Devices { .. } => None,
            Text::Store { store, .. } => Some(store),
        }
    }

    /// The parameters before the first round.
    #[must_use]
    pub fn first_parameters(&self) -> &[f32] {
        &self.first
    }

    /// The learner.
    #[must_use]
    pub fn learner(&self) -> &dyn Learner {
        self.learner.as_ref()
    }

    /// The vocabulary.
    #[must_use]
    pub const fn vocabulary(&self) -> &Vocabulary {
        &self.vocabulary
    }

    /// How text becomes tokens.
    #[must_use]
    pub const fn rules(&self) -> Rules {
        self.rules
    }

    /// With the approval of its plan by a privacy officer, for the first entry of its ledger.
    #[must_use]
    pub fn with_approval(self, approval: Option<Approval>) -> Self {
        Self { approval, ..self }
    }

    /// The approval of the plan by a privacy officer.
    #[must_use]
    pub const fn approval(&self) -> Option<&Approval> {
        self.approval.as_ref()
    }

    /// What an approval covers beside the plan, by what was read of it: the model to start from, the vocabulary, and public text.
    #[must_use]
    pub fn vouched(&self) -> Vec<Vouched> {
        let of = |what: &str, bytes: &[u8]| Vouched { what: what.to_owned(), digest: Digest::of_released(bytes) };
        let mut all = Vec::new();
        if self.start != Start::Random {
            let bytes: Vec<u8> = self.first.iter().flat_map(|value| value.to_le_bytes()).collect();
            all.push(of("the model to start from", &bytes));
        }
        let words = format!("{}\n{}", self.rules.name(), self.vocabulary.to_text());
        all.push(of("the vocabulary", words.as_bytes()));
        if let Text::Devices { public, .. } = &self.text
            && !public.is_empty()
        {
            all.push(of("the public text for evaluations", public.join("\n").as_bytes()));
        }
        if let Some(general) = &self.general {
            all.push(of("the general text that devices rehearse", &finetune::digest(general)));
        }
        all
    }

    /// The cost of the model that the run starts from, where it has a ledger (rule P15).
    #[must_use]
    pub const fn import(&self) -> Option<&Import> {
        self.import.as_ref()
    }

    /// The same, and the cost of earlier tasks over the same devices.
    pub fn imports(&self) -> impl Iterator<Item = &Import> {
        self.import.iter().chain(&self.after)
    }

    /// Who can take part.
    ///
    /// # Errors
    /// When posts are the units and cannot be counted.
    pub fn population(&self, unit: Unit) -> Result<Box<dyn Population + '_>, RunError> {
        let people = self.people(unit)?;
        let people = if self.changes.is_empty() {
            people
        } else {
            Box::new(Changed::new(people, &self.changes, self.learner()))
        };
        Ok(match self.canaries {
            Some((declared, canaries)) => Box::new(WithCanaries::new(people, declared, canaries)),
            None => people,
        })
    }

    /// Somebody like those who can take part, and who takes no part: for audits of who did. At most so many; of a store those who are
    /// held out.
    ///
    /// # Errors
    /// When the text is on devices.
    pub fn others(&self, most: u64) -> Result<Box<dyn Population + '_>, RunError> {
        Ok(match &self.text {
            Text::Crowd { plan, .. } => {
                let all = self.synthetic(SynthPlan { users: plan.users + most, ..plan.clone() })?;
                Box::new(Beyond { population: all, first: plan.users })
            }
            Text::Store { store, held_out, .. } => {
                let held_out = held_out.iter().copied().take(usize::try_from(most).unwrap_or(usize::MAX)).collect();
                Box::new(StoredPopulation::new(store, held_out, self.learner()))
            }
            Text::Devices { .. } => return Err(RunError::OnDevices),
        })
    }

    /// Who there is, without canaries.
    fn people(&self, unit: Unit) -> Result<Box<dyn Population + '_>, RunError> {
        let examples = unit == Unit::Example;
        Ok(match &self.text {
            Text::Crowd { plan, .. } => {
                let users = self.synthetic(plan.clone())?;
                if examples { Box::new(EachPost::new(users)?) } else { Box::new(users) }
            }
            Text::Store { store, train, .. } => {
                let users = StoredPopulation::new(store, train.clone(), self.learner());
                if examples { Box::new(EachPost::new(users)?) } else { Box::new(users) }
            }
            Text::Devices { .. } => return Err(RunError::OnDevices),
        })
    }

    /// The data of held-out users.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn held_out(&self, evaluation: &Evaluation) -> Result<HeldOut, RunError> {
        let (users, most) = (evaluation.users, evaluation.most_tokens);
        Ok(match &self.text {
            Text::Crowd { plan, held_out } => {
                let all = self.synthetic(SynthPlan { users: plan.users + held_out, ..plan.clone() })?;
                HeldOut::new(&all, plan.users..plan.users + held_out, most, self.learner())?
            }
            Text::Store { store, held_out, .. } => {
                let all = StoredPopulation::new(store, held_out.clone(), self.learner());
                HeldOut::new(&all, 0..users.min(held_out.len() as u64), most, self.learner())?
            }
            Text::Devices { public, made_up } if public.is_empty() => {
                let all = self.synthetic(made_up.clone())?;
                HeldOut::new(&all, 0..made_up.users, most, self.learner())?
            }
            Text::Devices { public, .. } => HeldOut::of_posts(
                public.iter().map(String::as_str),
                Tokenizer::new(self.rules),
                &self.vocabulary,
                most,
                self.learner(),
            ),
        })
    }

    fn synthetic(&self, plan: SynthPlan) -> Result<SyntheticPopulation<'_>, RunError> {
        let crowd = Crowd::new(plan).map_err(|e| ConfigError::new("data", e))?;
        Ok(SyntheticPopulation::new(crowd, Tokenizer::new(self.rules), &self.vocabulary, self.learner()))
    }

    /// How many of the declared users there are, where that is known here and can be another number: not if they are synthetic, nor
    /// where they are devices.
    ///
    /// # Errors
    /// When posts are the units and cannot be counted.
    pub fn presence(&self, config: &Config) -> Result<Option<Presence>, RunError> {
        let held_out = match &self.text {
            Text::Devices { .. } => return Ok(None),
            Text::Crowd { .. } if config.unit != Unit::Example => return Ok(None),
            Text::Crowd { .. } => 0,
            Text::Store { held_out, .. } => held_out.len() as u64,
        };
        let canaries = self.canaries.map_or(0, |(_, canaries)| canaries);
        Ok(Some(Presence::new(config, self.people(config.unit)?.users() + canaries, held_out)))
    }

    /// Refuses to begin a run most of whose declared users are not there, unless its settings say that it is meant. A run that was begun
    /// continues: users may ask to be erased.
    ///
    /// # Errors
    /// The key that declares too many.
    pub fn check_presence(&self, config: &Config) -> Result<(), RunError> {
        self.presence(config)?.map_or(Ok(()), |presence| Ok(presence.check()?))
    }

    /// The population is declared (rule P11): nobody outside of it may be there.
    fn check_declared(&self, config: &Config) -> Result<(), RunError> {
        if matches!(self.text, Text::Devices { .. }) {
            return Ok(());
        }
        // In a synthetic crowd canaries take the places of people.
        let beside = self.canaries.filter(|_| self.store().is_some()).map_or(0, |(_, canaries)| canaries);
        let (declared, there) = (config.participation.population, self.people(config.unit)?.users() + beside);
        if there > declared {
            let units = if config.unit == Unit::Example { "posts" } else { "users" };
            let why =
                format!("{declared} are declared, and there are more {units} to train on: declare at least {there}");
            return Err(ConfigError::new("participation.population", why).into());
        }
        Ok(())
    }
}

/// Who of a store is trained on, and who is held out.
fn split(said: &StoredText, store: Store) -> Result<Text, RunError> {
    let per_mille = said.held_out_per_mille.unwrap_or(HELD_OUT_PER_MILLE);
    let split =
        Split::new(said.salt.unwrap_or(0), per_mille, 0).map_err(|e| ConfigError::new("data.held_out_per_mille", e))?;
    let (mut train, mut held_out) = (Vec::new(), Vec::new());
    for user in 0..store.users() {
        let to = if split.part(store.user(user)?.tag()) == Part::Train { &mut train } else { &mut held_out };
        to.push(user);
    }
    Ok(Text::Store { store: Box::new(store), train, held_out })
}

fn crowd(config: &Config, said: &MadeUp) -> Result<Text, RunError> {
    let users = if config.unit == Unit::Example { said.users.unwrap_or(1) } else { config.participation.population };
    let dialect = said.dialect.unwrap_or(Dialect::Informal);
    let mut plan = SynthPlan::new(said.seed.unwrap_or(1), users, dialect);
    plan.posts_per_user = said.posts_per_user.unwrap_or(plan.posts_per_user);
    Crowd::new(plan.clone()).map_err(|e| ConfigError::new("data", e))?;
    Ok(Text::Crowd { plan, held_out: config.evaluation.users })
}

/// What is known where the text is on devices: what models are measured on.
fn devices(config: &Config, said: &DeviceText, learner: &dyn Learner) -> Result<Text, RunError> {
    let wrong = |problem: String| ConfigError::new("data.public_text", problem);
    let public: Vec<String> = match &said.public_text {
        None => Vec::new(),
        Some(path) => {
            let shown = path.display();
            let text = corpus::text::read(path).map_err(|e| wrong(format!("{shown}: {e}")))?;
            text.lines().filter(|line| !line.trim().is_empty()).map(str::to_owned).collect()
        }
    };
    if let Some(path) = said.public_text.as_ref().filter(|_| public.is_empty()) {
        return Err(wrong(format!("{} has no text, but models are evaluated on it", path.display())).into());
    }
    if !public.is_empty() && learner.learns_labels() {
        return Err(wrong("has no labels to learn: leave it out".to_owned()).into());
    }
    let dialect = said.dialect.unwrap_or(Dialect::Informal);
    let mut made_up = SynthPlan::new(said.seed.unwrap_or(1), config.evaluation.users, dialect);
    made_up.posts_per_user = said.posts_per_user.unwrap_or(made_up.posts_per_user);
    Crowd::new(made_up.clone()).map_err(|e| ConfigError::new("data", e))?;
    Ok(Text::Devices { public, made_up })
}

/// What the model is and was.
struct Origin {
    words: (Vocabulary, Rules),
    learner: Box<dyn Learner>,
    first: Vec<f32>,
    start: Start,
    import: Option<Import>,
}

fn origin(config: &Config, store: Option<&Store>) -> Result<Origin, RunError> {
    if let ModelStart::From(earlier) = &config.model.start {
        return started(config, earlier, store);
    }
    let Made { learner, vocabulary, rules } = learners::of(config, store)?;
    let first = learner.initial(config.seed).map_err(|e| ConfigError::new("model", e))?;
    Ok(Origin { words: (vocabulary, rules), learner, first, start: Start::Random, import: None })
}

/// What the folder of a model or of a run is called, without the folders above it; that of the run where it is its model.
fn name_of(folder: &Path) -> String {
    let whole = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
    let name = |path: &Path| path.file_name().map(|name| name.to_string_lossy().into_owned());
    match (name(&whole), whole.parent().filter(|run| run.join(LEDGER_FILE).is_file()).and_then(name)) {
        (Some(model), Some(run)) => format!("{run}/{model}"),
        (Some(model), None) => model,
        (None, _) => "without a name".to_owned(),
    }
}

/// Where the model of a folder lies, and its ledger, if it has one: a folder of a run has both.
fn places(from: &Path) -> (PathBuf, Option<PathBuf>) {
    let of_run = from.join(LEDGER_FILE);
    if of_run.is_file() {
        return (model_in(from), Some(of_run));
    }
    let beside = from.canonicalize().ok().and_then(|p| p.parent().map(|p| p.join(LEDGER_FILE)));
    (from.to_owned(), beside.filter(|path| path.is_file()))
}

/// The ledgers of earlier tasks over the same devices (`devices.after`), whose cost is counted in that of this run.
fn earlier_tasks(config: &Config, start: Option<&Import>) -> Result<Vec<Import>, RunError> {
    let mut imports: Vec<Import> = Vec::new();
    for path in config.data.devices().map_or(&[][..], |devices| &devices.after) {
        let wrong = |problem: String| {
            RunError::from(ConfigError::new("devices.after", format!("{}: {problem}", path.display())))
        };
        let ledger = if path.is_dir() { path.join(LEDGER_FILE) } else { path.clone() };
        if !ledger.is_file() {
            return Err(wrong(
                "there is no ledger; give the file ledger.jsonl of an earlier task, or the folder that has it".into(),
            ));
        }
        let heads: Vec<Head> = heads::check(&ledger)?.into_iter().map(|shown| shown.head).collect();
        let opened = Place::new(&ledger).read(&heads)?;
        // One whose end was lost never goes on, and is counted with its whole plan.
        let lost = Lost::beside(&ledger, &opened.head())?.is_some();
        if !opened.is_closed() && !lost {
            return Err(wrong(
                "the task has not finished, so its cost is not known yet: let it finish, or stop it; if the end of its ledger was lost, restore it with keyhush restore --salvage".into(),
            ));
        }
        if opened.plan().unit != config.unit {
            return Err(wrong(format!(
                "it protects each {}, and unit is {:?}: their costs cannot be added",
                opened.plan().unit.name(),
                config.unit.name()
            )));
        }
        let within = ledger.canonicalize().ok().and_then(|path| path.parent().map(name_of));
        let end = if lost && !opened.is_closed() { LOST_ITS_END } else { "" };
        let what = format!("the task {}{end}", within.unwrap_or_else(|| "without a name".to_owned()));
        check_whole(&opened).map_err(wrong)?;
        let import = opened.as_import(ImportKind::EarlierTask, what, !heads.is_empty());
        let known = start.into_iter().chain(&imports).find(|known| known.key == import.key);
        match known {
            None => imports.push(import),
            Some(known) if known.head != import.head => {
                return Err(wrong(format!(
                    "the same ledger is given in another state too, with the head {} (here {}): give the whole one everywhere, in model.from and in devices.after",
                    known.head, import.head
                )));
            }
            Some(known) if known.kind == ImportKind::EarlierTask => {
                return Err(wrong("the ledger is given twice".into()));
            }
            // The one that the model comes from is counted as such.
            Some(_) => {}
        }
    }
    Ok(imports)
}

/// A run that starts from a model: with its ledger, or from what is taken to be public (rule P15).
fn started(config: &Config, earlier: &EarlierModel, store: Option<&Store>) -> Result<Origin, RunError> {
    let wrong = |problem: String| RunError::from(ConfigError::new("model.from", problem));
    let EarlierModel { from, public } = earlier;
    let run = RunFolder::at(from);
    if is_undecided(&run)? {
        return Err(RunError::Undecided { run: run.name() });
    }
    let (folder, ledger) = places(from);
    let Folder { vocabulary, rules, weights, guarantee, .. } = model_folder::read(&folder)?;
    if let Some(store) = store {
        store.require_vocabulary(rules, &vocabulary).map_err(|e| wrong(e.to_string()))?;
    }
    let (learner, values) = learned(config, store, &vocabulary, weights)?;
    let several = |_| {
        wrong("the model was distilled from several private models, and what all of them cost cannot be continued here: start from one of them".into())
    };
    let head: Option<Head> = guarantee.ledger_head().map(str::parse).transpose().map_err(several)?;
    // What is stated is read by others: where the folder lies is nobody's business.
    let what = name_of(from);
    let (start, import) = match (ledger, public) {
        (Some(_), Some(_)) => {
            return Err(ConfigError::new(
                "model.public",
                "only valid with a model that has no ledger; this one has a ledger",
            )
            .into());
        }
        (Some(path), None) => {
            let beside = heads::check(&path)?.into_iter().map(|shown| shown.head);
            let heads: Vec<Head> = head.into_iter().chain(beside).collect();
            let ledger = Place::new(&path).read(&heads)?;
            let lost = Lost::beside(&path, &ledger.head())?;
            let what = described(&what, &ledger, lost.as_ref())?;
            check_whole(&ledger).map_err(wrong)?;
            let import = ledger.as_import(ImportKind::StartingModel, what, !heads.is_empty());
            (Start::Ledger { head: import.head }, Some(import))
        }
        (None, _) if head.is_some() => {
            return Err(wrong(
                "the model has a guarantee, but its ledger is missing: give the folder of its run".into(),
            ));
        }
        (None, Some(why)) => (Start::Public(PublicData { what, why: why.clone() }), None),
        (None, None) => {
            let why = "is missing: the model has no ledger, so give the reason why it counts as public";
            return Err(ConfigError::new("model.public", why).into());
        }
    };
    Ok(Origin { words: (vocabulary, rules), learner, first: values, start, import })
}

/// Refuses a ledger that ends before everything that its plan counts was imported: what that cost, it does not say (rule P15).
fn check_whole<S: LedgerStore>(ledger: &Ledger<S>) -> Result<(), String> {
    match ledger.missing_imports().first() {
        None => Ok(()),
        Some(head) => Err(format!(
            "the ledger was cut short: its plan counts the ledger {head}, which it does not have, so what it cost is not known; give the whole ledger"
        )),
    }
}

/// What an import says of a ledger that is not closed and never goes on.
const LOST_ITS_END: &str = ", whose ledger lost its end: counted as if its whole plan had been released";

/// What an import says of a model with a ledger. One that is not closed belongs to a run that can go on, unless its end was lost: then it is
/// counted with its whole plan.
fn described<S: LedgerStore>(what: &str, ledger: &Ledger<S>, lost: Option<&Lost>) -> Result<String, RunError> {
    match lost {
        _ if ledger.is_closed() => Ok(format!("the model {what}")),
        Some(_) => Ok(format!("the model {what}{LOST_ITS_END}")),
        None => Err(ConfigError::new("model.from", format!(
            "the run {what} has not finished, so its cost is not known yet: let it finish, end it with keyhush train --end (a task of a server with keyhush task stop), or finish its sweep; if the end of its ledger was lost, restore it with keyhush restore --salvage"
        ))
        .into()),
    }
}

/// The learner of a model that was learned before, and its parameters.
fn learned(
    config: &Config,
    store: Option<&Store>,
    vocabulary: &Vocabulary,
    weights: Weights,
) -> Result<(Box<dyn Learner>, Vec<f32>), RunError> {
    let wrong = |problem: String| RunError::from(ConfigError::new("model.from", problem));
    let name = match &weights {
        Weights::Recurrent { .. } => learners::LANGUAGE,
        Weights::Learned(learned) => &learned.config.learner,
        Weights::Ngrams(_) => return Err(wrong("an n-gram model cannot be trained further".into())),
    };
    if config.model.learner.as_ref().is_some_and(|said| said != name) {
        return Err(ConfigError::new(
            "model.learner",
            format!("the model to start from was trained by the learner {name:?}"),
        )
        .into());
    }
    match weights {
        Weights::Recurrent { config: model, values } => {
            let model = ModelConfig { dropout: None, ..model };
            if config.model.user_features && model.user_context.is_none() {
                let why = "the model to start from does not use what is known about users";
                return Err(ConfigError::new("model.user_features", why).into());
            }
            learners::check_features(&model, store)?;
            Ok((learners::language(config, &model)?, values))
        }
        Weights::Learned(Learned { config: said, values }) => {
            let mut sized = config.clone();
            sized.model.start = ModelStart::New(NewModel { vocabulary: Some(vocabulary.len()), ..NewModel::default() });
            let Made { learner, .. } = learners::named(&said.learner, &sized, store)?;
            let named =
                |part: &LearnedPart| ModelPart { name: part.name.clone(), rows: part.rows, columns: part.columns };
            let parts: Vec<ModelPart> = said.parts.iter().map(named).collect();
            if learner.settings() != said.settings || learner.layout().parts() != parts {
                return Err(wrong(
                    "it was trained for other data than this run has: the words or labels differ".into(),
                ));
            }
            Ok((learner, values))
        }
        Weights::Ngrams(_) => Err(wrong("an n-gram model cannot be trained further".into())),
    }
}

/// Whether an import's noise could be repeated.
pub(super) fn is_simulated(import: &Import) -> bool {
    import.randomness != Randomness::Secret
}
