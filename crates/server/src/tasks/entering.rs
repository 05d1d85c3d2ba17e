//! How a task comes to a server: opened and checked before anything of it is kept, and entered at the coordinator.

use std::collections::BTreeSet;

use device::guard::TaskDigest;
use federated::{
    config::{Config, ConfigError, Document},
    fleet::network::{NetworkTask, Reads},
    home::{Home, LEDGER_FILE, Paper, Records},
    plan::Plan,
    protocol::{
        coordinator::{Coordinator, CoordinatorError},
        left_out::LeaveOut,
        order::Order,
        store::{AttemptAt, Store},
    },
    run::{Opened, RunError},
};
use ledger::{Approval, Import, Ledger, MemoryStore, SigningKey, VerifyingKey, Vouched, hex};
use privacy::{Delta, Epsilon, rng::Randomness};

use super::{
    Happened, MODELS, Ready, ServeError, Serving, Written,
    created::{self, Created},
};
use crate::{
    observed::Observed,
    state::{State, TaskState, is_task_name},
};

/// What holds for every task of a server.
pub(super) struct Rules {
    /// The server's realm.
    pub(super) realm: [u8; 32],
    /// The privacy officers of whom one must have approved each task; empty where no approval is needed.
    pub(super) officers: Vec<VerifyingKey>,
}

/// A task that could be begun: its plan, and what it would cost.
#[derive(Debug, Clone)]
pub struct Checked {
    /// The first entry of its ledger.
    pub plan: ledger::Plan,
    /// What it reads that an approval covers.
    pub vouched: Vec<Vouched>,
    /// The rounds of its plan.
    pub rounds: u64,
    /// What its guarantee will be, with everything that it imports.
    pub epsilon: Epsilon,
    /// The delta of that.
    pub delta: Delta,
    /// Whether it is one with secret noise; otherwise it guarantees nothing.
    pub holds: bool,
}

/// A task whose settings were opened; nothing of it is kept yet.
struct Drafted {
    name: String,
    plan: Plan,
    opened: Opened,
    network: NetworkTask,
    evaluation: Option<NetworkTask>,
}

impl Drafted {
    fn new(written: Written, realm: &[u8; 32]) -> Result<Self, ServeError> {
        let Written { name, config, approval } = written;
        let opened = Opened::new(&config)?.with_approval(approval);
        let plan = Plan::new(config, &opened.setting())?;
        let reads = Reads { learner: opened.learner(), vocabulary: opened.vocabulary(), rules: opened.rules() };
        let network = NetworkTask::new(&name, realm, &plan, reads)?;
        let evaluation = NetworkTask::of_evaluations(&name, realm, &plan, reads)?;
        Ok(Self { name, plan, opened, network, evaluation })
    }

    /// What it would cost. What it imports must be within its budget.
    fn checked(&self) -> Result<Checked, ServeError> {
        let plan = self.plan.ledger.clone();
        let key = SigningKey::generate().map_err(ledger::LedgerError::from)?;
        let mut rehearsal = Ledger::create(MemoryStore::new(), plan.clone(), key, 0)?;
        for import in self.opened.imports() {
            match rehearsal.record_import(Import::clone(import), 0) {
                Ok(_receipt) => {}
                Err(ledger::LedgerError::BudgetExceeded { max_epsilon, would_be }) => {
                    let why = format!(
                        "the budget of {max_epsilon} is used up before the first round: what this task counts costs an epsilon of {would_be} already; raise it"
                    );
                    return Err(ConfigError::new("privacy.max_epsilon", why).into());
                }
                Err(error) => return Err(error.into()),
            }
        }
        let judged = rehearsal.guaranteed()?;
        let holds = rehearsal.randomness() == Randomness::Secret && judged.epsilon.is_finite();
        let vouched = self.opened.vouched();
        Ok(Checked { rounds: self.plan.rounds, epsilon: judged.epsilon, delta: plan.delta, holds, plan, vouched })
    }
}

/// The approval of a task is of its plan, what it reads, its name and this server, by an officer whom the server trusts. Where no officers are
/// named, a task needs no approval, but one that it has must be valid.
fn check_approval(
    name: &str,
    (plan, reads): (&ledger::Plan, &[Vouched]),
    approval: Option<&Approval>,
    realm: &[u8; 32],
    officers: Option<&[VerifyingKey]>,
) -> Result<(), ServeError> {
    let refused = |problem: String| Err(ServeError::Approval { name: name.to_owned(), problem });
    let again = format!("let it be approved for this server: keyhush task approve {name}.toml --realm {}", hex(realm));
    let needs = officers.is_some_and(|officers| !officers.is_empty());
    let Some(approval) = approval else {
        return if needs {
            refused(format!("no privacy officer has approved it, and this server requires it (--officer); {again}"))
        } else {
            Ok(())
        };
    };
    if let Err(error) = approval.check_is_of(plan, name, realm).and_then(|()| approval.check_reads(reads)) {
        return refused(format!("{error}; {again}"));
    }
    match officers {
        Some(officers) if needs && !officers.contains(&approval.officer) => refused(format!(
            "it was approved by {}, who is none of the officers that this server trusts (--officer); {again}",
            approval.officer
        )),
        _ => Ok(()),
    }
}

/// The plan that a server of a realm would open a task with, and what it would cost.
///
/// # Errors
/// What is wrong with the settings.
pub fn planned(name: &str, config: Config, realm: &[u8; 32]) -> Result<Checked, ServeError> {
    check_name(name)?;
    Drafted::new(Written { name: name.to_owned(), config, approval: None }, realm)?.checked()
}

/// Whether a task could be created: its name is free, its settings have a plan that can be carried out with devices, all that they name is there, and its
/// approval is valid. `state` is none where no server was ever started, `officers` where it is not known whom the server trusts.
///
/// # Errors
/// Why not, and what to do.
pub fn check_new<S: State>(
    state: Option<&S>,
    created: &Created,
    (name, settings): (&str, &str),
    approval: Option<&Approval>,
    officers: Option<&[VerifyingKey]>,
) -> Result<Checked, ServeError> {
    check_name(name)?;
    refuse_taken(state, created, name, settings)?;
    let config = created::config(settings)?;
    let realm = match state {
        Some(state) => state.coordinator().realm()?,
        None if approval.is_none() => [0; 32],
        None => {
            let problem = "an approval is for one server, and none has been started on this data folder yet: start keyhush serve first".to_owned();
            return Err(ServeError::Approval { name: name.to_owned(), problem });
        }
    };
    let drafted = Drafted::new(Written { name: name.to_owned(), config, approval: approval.cloned() }, &realm)?;
    check_approval(name, (&drafted.plan.ledger, &drafted.opened.vouched()), approval, &realm, officers)?;
    drafted.checked()
}

fn check_name(name: &str) -> Result<(), ServeError> {
    if is_task_name(name) { Ok(()) } else { Err(ServeError::Name { name: name.to_owned() }) }
}

/// Refuses the name of a task that there is, also in other letters: names are those of folders too. A task is never changed.
fn refuse_taken<S: State>(state: Option<&S>, created: &Created, name: &str, settings: &str) -> Result<(), ServeError> {
    let advice = "a task is never changed: more budget, or other settings, are a new task under another name, which counts the ledger of this one \
        (devices.after)";
    let taken = |problem: String| Err(ServeError::Taken { name: name.to_owned(), problem });
    let known = state.map(State::names).transpose()?.unwrap_or_default();
    let all: BTreeSet<String> = known.into_iter().chain(created.names()?).collect();
    if let Some(other) = all.iter().find(|other| other.eq_ignore_ascii_case(name) && *other != name) {
        return taken(format!("{other} differs only in upper and lower case; choose another name"));
    }
    if created.has(name)? {
        return taken(advice.to_owned());
    }
    let Some(state) = state.filter(|_| all.contains(name)) else { return Ok(()) };
    let task = state.read_task(name)?;
    let Some(before) = task.home().paper(Paper::Settings).map_err(RunError::from)? else {
        // A server knew it, and it was never begun.
        return Ok(());
    };
    let as_read = |text: &str| Document::built_in(text, &[]).and_then(|document| document.config());
    let is_same = as_read(settings).is_ok_and(|new| as_read(&before).is_ok_and(|before| before == new));
    taken(if is_same {
        format!("it has the same settings; {advice}")
    } else {
        format!("its settings differ; {advice}")
    })
}

/// What a server begins with: the tasks that were named, and those that were created and are not over.
pub(super) fn ready<S: State>(
    tasks: Vec<Written>,
    created: &Created,
    (rules, data): (&Rules, &std::path::Path),
    state: &S,
    happens: &(dyn Fn(&Happened<'_>) + Sync),
) -> Result<Vec<Ready<S::Task>>, ServeError> {
    let mut ready: Vec<Ready<S::Task>> = Vec::new();
    for written in tasks {
        add(&mut ready, one(written, rules, state)?)?;
    }
    for name in created.names()? {
        if is_over(state, &name, data)? {
            continue;
        }
        match created.read(&name).and_then(|written| one(written, rules, state)) {
            Ok(task) => add(&mut ready, task)?,
            Err(error) if error.is_of_the_task() && !is_begun(state, &name)? => {
                let why = error.to_string();
                created.refuse(&name, &why)?;
                happens(&Happened::Refused { task: &name, why: &why });
            }
            Err(error) => return Err(error.of(&name)),
        }
    }
    Ok(ready)
}

fn add<T>(ready: &mut Vec<Ready<T>>, task: Ready<T>) -> Result<(), ServeError> {
    if ready.iter().any(|other| other.name == task.name || other.network.digest == task.network.digest) {
        return Err(ServeError::SameTask { name: task.name });
    }
    ready.push(task);
    Ok(())
}

/// A task, opened and checked; only then does it have a place in the state.
fn one<S: State>(written: Written, rules: &Rules, state: &S) -> Result<Ready<S::Task>, ServeError> {
    let Rules { realm, officers } = rules;
    let Drafted { name, plan, opened, network, evaluation } = Drafted::new(written, realm)?;
    if is_begun(state, &name)? {
        let begun = Ledger::open(state.read_task(&name)?.home().read_store()?, None, &[])?;
        if !begun.is_closed() {
            let approval = begun.opening().approval.as_ref();
            // One that was begun by an earlier version has an approval of its plan alone, and goes on.
            let covers = approval.is_some_and(|approval| !approval.vouched.is_empty());
            let reads = if covers { opened.vouched() } else { Vec::new() };
            check_approval(&name, (begun.plan(), &reads), approval, realm, Some(officers))?;
        }
    } else {
        check_approval(&name, (&plan.ledger, &opened.vouched()), opened.approval(), realm, Some(officers))?;
    }
    let state = state.task(&name)?;
    let known_as = known_as(&state, &network, evaluation.as_ref())?;
    Ok(Ready { name, plan, opened, network, evaluation, state, known_as })
}

fn is_begun<S: State>(state: &S, name: &str) -> Result<bool, ServeError> {
    Ok(state.names()?.iter().any(|known| known == name) && state.read_task(name)?.home().is_begun()?)
}

/// Whether nothing is left to do for a task: its ledger is closed, and people find it where they look for it.
fn is_over<S: State>(state: &S, name: &str, data: &std::path::Path) -> Result<bool, ServeError> {
    if !data.join(MODELS).join(name).join(LEDGER_FILE).is_file() || !is_begun(state, name)? {
        return Ok(false);
    }
    Ok(Ledger::open(state.read_task(name)?.home().read_store()?, None, &[])?.is_closed())
}

impl<S: State> Serving<'_, S> {
    /// Tasks that were created since it was looked last, entered at the coordinator. `served` are those that it knows.
    pub(super) fn newcomers(self, served: &mut BTreeSet<String>) -> Vec<Ready<S::Task>> {
        let Ok(names) = self.created.names() else { return Vec::new() };
        let mut new = Vec::new();
        for name in names {
            if served.contains(&name) {
                continue;
            }
            match self.newcomer(&name) {
                Ok(task) => {
                    served.insert(name);
                    new.extend(task);
                }
                Err(error) if error.is_of_the_task() => {
                    let why = error.to_string();
                    // What cannot be taken back is refused again.
                    if self.created.refuse(&name, &why).is_ok() {
                        (self.happens)(&Happened::Refused { task: &name, why: &why });
                    }
                }
                Err(error) => {
                    (self.happens)(&Happened::Broken { task: &name, error: &error });
                    served.insert(name);
                }
            }
        }
        new
    }

    /// One of them; none where it is over.
    fn newcomer(self, name: &str) -> Result<Option<Ready<S::Task>>, ServeError> {
        if is_over(self.state, name, self.data)? {
            return Ok(None);
        }
        let task = one(self.created.read(name)?, self.rules, self.state)?;
        let entering = Entering::of(&task, self.store, self.orders.of(name))?;
        entering.iter().for_each(|e| e.seen_by(self.hub.observed(), name));
        let enter =
            move |coordinator: &mut Coordinator, now| entering.iter().try_for_each(|e| e.enter(coordinator, now));
        use federated::fleet::network::Driver;
        self.hub.driver().with(enter).map_err(federated::round::RoundError::from).map_err(RunError::from)?;
        task.tasks().for_each(|(network, _)| self.observed.serves(name, network.digest, network.evaluation));
        (self.happens)(&Happened::Created { task: name });
        Ok(Some(task))
    }
}

/// A task, or its evaluations, as the coordinator is told of them.
pub(super) struct Entering {
    network: NetworkTask,
    stands: Stands,
    order: Order,
    leave_out: Option<LeaveOut>,
}

impl Entering {
    pub(super) fn of<T: TaskState>(task: &Ready<T>, store: &dyn Store, order: Order) -> Result<Vec<Self>, ServeError> {
        let mut all = Vec::new();
        for (network, stream) in task.tasks() {
            let stands = Stands::of(task.state.home(), store, &network.digest, stream)?;
            let mut leave_out = None;
            if network.secure {
                let (after, population) = (task.plan.devices.leave_out_after, network.asking.population);
                let mut between_equals = [0; 32];
                getrandom::fill(&mut between_equals).map_err(ServeError::Randomness)?;
                leave_out = Some(LeaveOut { after, population, between_equals });
            }
            all.push(Self { network: network.clone(), stands, order, leave_out });
        }
        Ok(all)
    }

    /// Operators see how its rounds go, under the name of the task.
    pub(super) fn seen_by(&self, observed: &Observed, name: &str) {
        observed.serves(name, self.network.digest, self.network.evaluation);
    }

    pub(super) fn enter(&self, coordinator: &mut Coordinator, now: u64) -> Result<(), CoordinatorError> {
        let NetworkTask { digest, asking, .. } = &self.network;
        coordinator.add_task(*digest, *asking, self.stands.begun)?;
        if self.stands.opens_again {
            coordinator.opens_again(digest)?;
        }
        if self.network.evaluation {
            coordinator.only_while_open(digest)?;
        }
        coordinator.order(digest, self.order, now)?;
        match &self.leave_out {
            Some(leave_out) => coordinator.leave_out(digest, leave_out.clone()),
            None => Ok(()),
        }
    }
}

/// The digests that a task and its evaluations are known by: those of the terms that it was begun with, or is about to begin with.
fn known_as(
    state: &impl TaskState,
    network: &NetworkTask,
    evaluation: Option<&NetworkTask>,
) -> Result<(String, Option<String>), ServeError> {
    let note = if state.home().is_begun()? { state.note()? } else { None };
    let now = || (hex(&network.digest.0), evaluation.map(|task| hex(&task.digest.0)));
    Ok(note.map_or_else(now, |note| (note.digest, note.evaluation)))
}

/// Where a task stands in a stream of its ledger.
#[derive(Clone, Copy)]
struct Stands {
    /// The round that comes next, if it has begun: keys that enrol from now on wait in it.
    begun: Option<u64>,
    /// Whether an attempt that devices were given is opened again: its end is not in the ledger.
    opens_again: bool,
}

impl Stands {
    fn of(home: &impl Records, store: &dyn Store, task: &TaskDigest, stream: &str) -> Result<Self, ServeError> {
        let ledger = if home.is_begun()? { Some(Ledger::open(home.read_store()?, None, &[])?) } else { None };
        let released = ledger.as_ref().and_then(|ledger| ledger.last_step(stream)).map(|step| step + 1);
        let open = store.open_attempt(task)?.filter(|open| !open.assigned.is_empty()).map(|open| open.at);
        let has_failed = |at: &AttemptAt| {
            let of = |ledger: &Ledger<_>| ledger.failures(stream, at.round).iter().any(|f| f.attempt == at.attempt);
            ledger.as_ref().is_some_and(of)
        };
        let goes_on = |at: &AttemptAt| released.is_none_or(|released| at.round >= released) && !has_failed(at);
        Ok(Self { begun: released.max(open.map(|at| at.round)), opens_again: open.as_ref().is_some_and(goes_on) })
    }
}
