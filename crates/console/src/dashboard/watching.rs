//! Reads the state of all tasks again when it changed, on a thread of its own, and puts it where pages find it.
//!
//! A ledger is verified each time it is read, so reading a long one takes a while: at most a tenth of the time is spent on it.

use std::{
    collections::BTreeMap,
    path::Path,
    sync::{Arc, mpsc},
    thread,
    time::{Duration, Instant},
};

use federated::{
    home::{Home, Log, Records},
    protocol::order::Order,
    run::{Kept, RunError},
};
use ledger::{Head, Ledger, LedgerStore};
use report::board::Curve;
use server::{
    listing,
    observed::Observed,
    orders::Orders,
    state::{Note, State, TaskState},
    tasks::{ServeError, created::Created},
};

use tokio::sync::watch;

use super::{
    listing::{Moment, Tasks, View},
    operations::{SoFar, Standing},
    told::{Detail, Line, Shows, forecast},
};

/// How often it looks whether something changed.
const EVERY: Duration = Duration::from_millis(300);
/// So much of the time is not spent on reading, for each time that is.
const REST: u32 = 9;
/// The same for reading who took part.
const RARE: u32 = 100;
/// How often operators are told that something exact changed, at most.
const TOUCHES: Duration = Duration::from_secs(1);

/// What must change before a task is read again.
#[derive(Debug, PartialEq, Eq)]
struct Mark {
    served: bool,
    wanted: Order,
    note: Option<Note>,
    head: Option<Head>,
    evaluations: usize,
}

/// A reader of the state of a server.
pub(super) struct Reader<S> {
    state: Arc<S>,
    orders: Orders,
    created: Created,
    tasks: Tasks,
    marks: BTreeMap<String, Mark>,
    /// The forecasts of tasks, by the ids of their ledgers: they follow from the plan, which never changes.
    forecasts: BTreeMap<String, (String, Option<Curve>)>,
    /// The evaluations of which viewers were told.
    told: BTreeMap<String, usize>,
    /// When it was read last how often devices took part, how long that took, and what it was.
    so_far: BTreeMap<String, (Instant, Duration, Vec<SoFar>)>,
    /// What is seen while the server runs, and how far operators were told of it.
    ticks: watch::Receiver<u64>,
    touched: Instant,
}

/// A thread that reads until this is dropped.
pub(super) struct Watching(#[expect(dead_code, reason = "the thread ends when it is dropped")] mpsc::Sender<()>);

impl<S: State + 'static> Reader<S> {
    /// Reads from now on. Where the system gives no thread there is nothing to see, and devices are served all the same.
    pub(super) fn start(mut self) -> Watching {
        let (goes_on, ended) = mpsc::channel();
        let run = move || {
            loop {
                let began = Instant::now();
                self.look();
                let pause = EVERY.max(began.elapsed() * REST);
                if ended.recv_timeout(pause) != Err(mpsc::RecvTimeoutError::Timeout) {
                    return;
                }
            }
        };
        _ = thread::Builder::new().name("dashboard".to_owned()).spawn(run);
        Watching(goes_on)
    }
}

impl<S: State> Reader<S> {
    pub(super) fn new(state: Arc<S>, data: &Path, tasks: Tasks, observed: &Observed) -> Self {
        let (orders, created) = (Orders::in_data(data), Created::in_data(data));
        let (marks, forecasts, told, so_far) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Self {
            state,
            orders,
            created,
            tasks,
            marks,
            forecasts,
            told,
            so_far,
            ticks: observed.ticks(),
            touched: Instant::now(),
        }
    }

    /// Reads what changed.
    pub(super) fn look(&mut self) {
        let (Ok(names), Ok(served)) = (self.state.names(), self.state.is_served()) else { return };
        let mut new = self.not_begun();
        new.retain(|name, _| !names.contains(name));
        self.tasks.keep(&|name| new.contains_key(name) || names.iter().any(|other| other == name));
        for (name, refused) in new {
            let line = Line::not_begun(&name, self.orders.of(&name), refused);
            self.tasks.put(View::bare(line.clone()), Moment { evaluations: 0, stands: format!("{:?}", line.state) });
        }
        self.marks.retain(|name, _| names.contains(name));
        self.forecasts.retain(|name, _| names.contains(name));
        self.so_far.retain(|name, _| names.contains(name));
        if self.touched.elapsed() >= TOUCHES && self.ticks.has_changed().unwrap_or_default() {
            self.ticks.mark_unchanged();
            self.touched = Instant::now();
            names.iter().for_each(|name| self.tasks.touch(name));
        }
        for name in names {
            let mark = match self.mark(&name, served) {
                Ok(mark) if self.marks.get(&name) == Some(&mark) => continue,
                mark => mark,
            };
            let read = mark.and_then(|mark| Ok((self.viewed(&name, &mark)?, mark)));
            match read {
                // Whether devices still complete a round is in no mark.
                Ok(((view, moment), mark)) if view.line.state != Shows::Pausing => {
                    self.marks.insert(name, mark);
                    self.tasks.put(view, moment);
                }
                Ok(((view, moment), _)) => {
                    self.marks.remove(&name);
                    self.tasks.put(view, moment);
                }
                Err(error) => {
                    self.marks.remove(&name);
                    let (view, moment) = self.unread(&name, &error);
                    self.tasks.put(view, moment);
                }
            }
        }
    }

    /// The tasks that were created and that no server has begun, with why one refused them. Where that cannot be read they are not shown.
    fn not_begun(&self) -> BTreeMap<String, Option<String>> {
        let waiting = self.created.names().unwrap_or_default().into_iter().map(|name| (name, None));
        let refused = self.created.refused().unwrap_or_default().into_iter().map(|(name, why)| (name, Some(why)));
        waiting.chain(refused).collect()
    }

    fn mark(&self, name: &str, served: bool) -> Result<Mark, ServeError> {
        let task = self.state.read_task(name)?;
        let home = task.home();
        Ok(Mark {
            served,
            wanted: self.orders.of(name),
            note: task.note()?,
            head: if home.is_begun()? { Some(home.read_store()?.head()?) } else { None },
            evaluations: home.lines(Log::Metrics).map_err(RunError::from)?.len(),
        })
    }

    fn viewed(&mut self, name: &str, mark: &Mark) -> Result<(View, Moment), ServeError> {
        let listed = listing::one(&*self.state, &self.orders, mark.served, name)?;
        let task = self.state.read_task(name)?;
        let home = task.home();
        let kept = if listed.ledger.is_some() { Some(Kept::read(home)?) } else { None };
        let line = Line::of(&listed, kept.as_ref());
        let stands = format!("{:?}", (line.for_viewers().state, listed.wanted));
        let moment = Moment { evaluations: self.evaluations(name, kept.as_ref()), stands };
        let (Some(kept), Some(spent)) = (kept, &listed.ledger) else {
            return Ok((View::bare(line), moment));
        };
        let ledger = Ledger::open(home.read_store()?, None, &[])?;
        let id = ledger.opening().id.to_string();
        let known = self.forecasts.get(name).filter(|(of, _)| *of == id).map(|(_, curve)| curve.clone());
        let ahead = known.unwrap_or_else(|| forecast(home, &kept, &ledger));
        self.forecasts.insert(name.to_owned(), (id, ahead.clone()));
        let detail = Detail::of(&kept, spent, &ledger, ahead);
        let markdown = kept.statement.to_markdown().into_bytes().into();
        let json = serde_json::to_vec_pretty(&kept.statement).ok();
        let view = View {
            line,
            detail: serde_json::to_vec(&detail).ok().map(Into::into),
            statement: json.map(|json| (markdown, json.into())),
            spent: Some(spent.clone()),
            head: ledger.head(),
            standing: Standing {
                asked: listed.asked,
                population: spent.population,
                observed: self.so_far(name, &ledger),
            },
        };
        Ok((view, moment))
    }

    /// How many evaluations viewers are told of. One that a round has followed already is told with the next: what stands then is that of no
    /// evaluation.
    fn evaluations(&mut self, name: &str, kept: Option<&Kept>) -> usize {
        let Some(kept) = kept else { return 0 };
        let stands_after = kept.ended.is_some() || kept.metrics.last().is_some_and(|last| last.round == kept.rounds);
        let told = self.told.entry(name.to_owned()).or_insert(kept.metrics.len());
        if stands_after {
            *told = kept.metrics.len();
        }
        *told
    }

    /// How often devices took part so far. The table of who took part grows with every round, so it is read for at most a hundredth of the
    /// time; a damaged one shows in the statement.
    fn so_far<L: LedgerStore>(&mut self, name: &str, ledger: &Ledger<L>) -> Vec<SoFar> {
        if let Some((read, took, known)) = self.so_far.get(name)
            && read.elapsed() < *took * RARE
        {
            return known.clone();
        }
        let began = Instant::now();
        let observed = ledger.observed_so_far().ok().flatten().unwrap_or_default();
        let known = SoFar::all(&observed);
        self.so_far.insert(name.to_owned(), (Instant::now(), began.elapsed(), known.clone()));
        known
    }

    fn unread(&self, name: &str, error: &ServeError) -> (View, Moment) {
        let line = Line::unreadable(name, self.orders.of(name), error.to_string());
        let moment = Moment { evaluations: 0, stands: format!("{:?}", line.state) };
        (View::bare(line), moment)
    }
}
