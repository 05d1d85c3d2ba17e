//! `keyhush bench network`: a server and its devices as real processes on this machine.

use std::time::Duration;

use bench::network::{
    Evaluations, Floor, NetworkRun, NetworkTook, Participations, Restarts, RoundTimes, ServerSteps, Step,
};
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};

use crate::{
    device::{BehaviourName, DAY_S, day_s},
    failure::{BadInput, Interrupted},
    interrupt,
};

const WHAT: &str = "\
What is printed:
  rounds          Released, and attempts that came to nothing, by the ledger.
  started again   Of a server that was killed: seconds from its start until it
                  listens, and until it releases a round. In between devices come
                  back, and correlated noise of earlier rounds is drawn again.
  participations  A device in a step is a participation. Compared are the
                  server's record of who is in the sum of a released step (the
                  side table of its ledger) and the list that devices keep of
                  what they gave and were thanked for. Lost: a device was told
                  that its report counts, and it is neither on record nor in an
                  attempt that failed. Doubled: on
                  record, or given, more than once for a step; or on record and
                  never given.
  model           The digest of the server's last model, and that of the threads
                  engine, which trains the recorded devices of each step again.
                  The noise follows from a seed, so they must be equal: every
                  report is in its sum once.
  server          CPU seconds of all its lives together; the most memory of one
                  (VmHWM, looked at every 20 ms).
  floor           CPU seconds that one thread needs to read as many bytes of
                  reports from loopback, to check every bound of each and to add
                  them up, measured after the run; and the server's CPU seconds
                  over that.
  bytes           To the server and from it, as TCP carries them.
  no answer       Requests whose connection broke, or whose answer was none. When
                  the last round is released the server ends, and whoever waits
                  for the next one hears nothing: those are counted apart.
  overhead        Seconds from one release to the next in which no device trains:
                  selection, messages, the wait for ticks (1 ms here), adding up,
                  noise, and everything that is made durable. The first round is
                  left out, for devices enrol in it, and so is every round in
                  which the server was killed.";

#[derive(Args)]
#[command(after_help = WHAT)]
pub(crate) struct NetworkArgs {
    /// Made-up devices, in one process
    #[arg(long, value_name = "N")]
    devices: u64,
    /// Reports that a round is of
    #[arg(long, value_name = "G")]
    goal: u64,
    /// Rounds
    #[arg(long, value_name = "R")]
    rounds: u64,
    /// Make sums securely. A round needs a few devices more than its goal, and after a kill as many others again
    #[arg(long)]
    secagg: bool,
    /// The model: a preset such as tiny or gboard
    #[arg(long, default_value = "tiny", value_name = "PRESET")]
    model: String,
    /// Kill the server (SIGKILL) at random moments, about every so many rounds, and start it again on the same data
    #[arg(long, value_name = "ROUNDS")]
    kill_server_every: Option<u64>,
    /// Devices send ready-made reports instead of training: to load the server
    #[arg(long)]
    ready_made: bool,
    /// How the devices behave
    #[arg(long, default_value = "steady")]
    behaviour: BehaviourName,
    /// The length of their day, where they are realistic: waves come and go once in it
    #[arg(long, value_name = "SECONDS", default_value_t = DAY_S)]
    day_seconds: f64,
    /// Threads of the server, and of the devices' training
    #[arg(long, default_value_t = 1, value_name = "N")]
    threads: usize,
    /// Another value for a setting of the task, such as devices.tick_seconds=1
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Give up when no attempt at a round ends for so many seconds
    #[arg(long, default_value_t = 600.0, value_name = "SECONDS")]
    patience: f64,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &NetworkArgs) -> anyhow::Result<()> {
    let patience = Duration::try_from_secs_f64(args.patience).map_err(|e| BadInput::wrong("patience", e))?;
    let run = NetworkRun {
        program: std::env::current_exe()?,
        devices: args.devices,
        goal: args.goal,
        rounds: args.rounds,
        secagg: args.secagg,
        model: args.model.clone(),
        kill_server_every: args.kill_server_every,
        ready_made: args.ready_made,
        realistic_day_s: matches!(args.behaviour, BehaviourName::Realistic)
            .then(|| day_s(args.day_seconds))
            .transpose()?,
        threads: args.threads,
        set: args.set.clone(),
        patience,
    };
    let stop = interrupt::watch()?;
    let bar = progress(args.rounds);
    let took = run.run(stop, &mut |step| show(&bar, step));
    bar.finish_and_clear();
    if stop.is_asked() {
        return Err(Interrupted("stopped; nothing is kept of it".to_owned()).into());
    }
    let took = took?;
    if args.json {
        println!("{}", serde_json::to_string_pretty(&took)?)
    } else {
        print(&took)
    }
    Ok(())
}

/// Shown in a terminal only.
fn progress(rounds: u64) -> ProgressBar {
    let bar = ProgressBar::new(rounds);
    let style = ProgressStyle::with_template("{pos} of {len} rounds {wide_bar} {msg}");
    let bar = match style {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    };
    bar.enable_steady_tick(Duration::from_millis(500));
    bar
}

fn show(bar: &ProgressBar, step: Step) {
    match step {
        Step::Rounds { done, .. } => bar.set_position(done),
        Step::Killed { times } => bar.set_message(format!("server killed {times} times")),
        Step::Replays => bar.set_message("played again on threads"),
        Step::Floor => bar.set_message("reading, checking and adding alone"),
    }
}

fn print(took: &NetworkTook) {
    let how = if took.secagg { "secure sums" } else { "plain sums" };
    let made = if took.ready_made { ", ready-made reports" } else { "" };
    println!("devices           {}, {} reports a round, {how}{made}", took.devices, took.goal);
    println!("model             {}, {} parameters", took.model, took.parameters);
    println!(
        "rounds            {} released of {}, {} attempts failed",
        took.rounds_closed, took.rounds, took.rounds_failed
    );
    println!("server killed     {} times", took.kills);
    if let Some(Restarts { listening_s, first_release_s, rounds_before }) = took.restarts {
        let released =
            first_release_s.map(|s| format!(", released a round after at most {s:.2} s")).unwrap_or_default();
        println!(
            "started again     listening after at most {listening_s:.2} s{released}; up to {rounds_before} rounds were over"
        );
    }
    let Participations { recorded, given, thanked, lost, doubled } = took.participations;
    println!(
        "participations    {recorded} on record; {given} given, {thanked} thanked; {lost} lost, {doubled} doubled"
    );
    if let Some(Evaluations { released, participations }) = &took.evaluations {
        let Participations { recorded, given, thanked, lost, doubled } = participations;
        let equal = match took.digests.by_devices_equal {
            Some(true) => "as threads measure",
            Some(false) => "NOT as threads measure",
            None => "not replayed",
        };
        println!(
            "by devices        {released} evaluations, {equal}; {recorded} on record; {given} given, {thanked} thanked; {lost} lost, {doubled} doubled"
        );
    }
    println!("last model        {}", took.digests.server);
    match (&took.digests.threads, &took.digests.not_replayed) {
        (Some(threads), _) => {
            let equal = if took.digests.equal == Some(true) { "equal" } else { "NOT EQUAL" };
            println!("of threads        {threads}, {equal}");
        }
        (None, why) => println!("of threads        not replayed: {}", why.as_deref().unwrap_or_default()),
    }
    println!("server            {:.2} CPU s, at most {:.0} MB", took.server.cpu_s, took.server.peak_mb);
    if let Some(Floor { report_bytes, report_cpu_ms, cpu_s, ratio }) = took.floor {
        println!(
            "floor             {cpu_s:.2} CPU s to read, check and add ({report_cpu_ms:.2} ms a report of {:.3} MB); the server needs {ratio:.2} times that",
            report_bytes as f64 / 1e6
        );
    }
    println!("devices' process  {:.2} CPU s, at most {:.0} MB", took.device_process.cpu_s, took.device_process.peak_mb);
    if took.devices_crashed + took.devices_left > 0 {
        println!(
            "of the devices    {} crashes, {} left in the midst of a part",
            took.devices_crashed, took.devices_left
        );
    }
    println!("bytes             {:.3} MB up, {:.3} MB down", took.bytes_up as f64 / 1e6, took.bytes_down as f64 / 1e6);
    println!(
        "no usable answer  {} requests; {} more when the server was done and ended",
        took.broken, took.broken_at_the_end
    );
    match &took.round {
        Some(RoundTimes { measured, wall_s, training_s, overhead_s, overhead_median_s, overhead_most_s }) => {
            println!("a round           {wall_s:.4} s, of which {training_s:.4} s training, by {measured} rounds");
            println!(
                "overhead          {overhead_s:.4} s a round; median {overhead_median_s:.4} s, at most {overhead_most_s:.4} s"
            );
        }
        None => println!("a round           not measured: no two releases follow each other without a kill"),
    }
    if let Some(ServerSteps { release_s, ledger_s, optimizer_s, checkpoint_s }) = took.server_steps {
        println!(
            "of it the server  noise {release_s:.4} s, record {ledger_s:.4} s, optimizer {optimizer_s:.4} s, checkpoint {checkpoint_s:.4} s"
        );
    }
    println!("wall seconds      {:.2}", took.wall_s);
}
