//! `keyhush bench network`: a server and its devices as real processes on this machine.

use std::time::Duration;

use bench::network::{
    Evaluations, Floor, NetworkRun, NetworkTook, Participations, Restarts, RoundTimes, ServerSteps, Step,
};
use clap::Args;
use federated::numbers::counted;
use indicatif::{ProgressBar, ProgressStyle};

use crate::{
    device::{BehaviourName, DAY_S, day_s},
    failure::{BadInput, Interrupted},
    interrupt, threads,
};

const WHAT: &str = "\
What is printed:
  rounds: released rounds and failed attempts, from the ledger.
  started again: for a server that was killed, seconds from its start until it listens, and until it releases a round. In between, \
devices come back and correlated noise of earlier rounds is drawn again.
  participations: a device in a step is a participation. The server's record of who is in the sum of a released step is compared with \
the devices' own list of reports that they sent and that were acknowledged. Lost: acknowledged, but neither on record nor in a \
failed attempt. Doubled: on record, \
or sent, more than once for a step; or on record but never sent.
  model: the digest of the server's last model, and that of the threads engine, which trains the recorded devices of each step again. \
Noise is seeded, so they must be equal: then every report is in its sum exactly once.
  server: CPU seconds over all restarts, and peak memory (VmHWM, sampled every 20 ms).
  floor: CPU seconds that one thread needs to read the same bytes of reports from loopback, check every bound and add them up, \
measured after the run; and the ratio of the server's CPU seconds to that.
  bytes: to and from the server, as carried by TCP.
  no answer: requests whose connection broke or that got no answer. The server exits when the last round is released; devices that \
wait for another round at that moment are counted separately.
  overhead: seconds between two releases in which no device trains: selection, messages, waiting for ticks (1 ms here), adding up, \
noise, and durable writes. The first round, in which devices enrol, and rounds in which the server was killed are left out.";

#[derive(Args)]
#[command(after_help = WHAT)]
pub(crate) struct NetworkArgs {
    /// Number of synthetic devices, in one process
    #[arg(long, value_name = "N")]
    devices: u64,
    /// Reports per round
    #[arg(long, value_name = "G")]
    goal: u64,
    /// Number of rounds
    #[arg(long, value_name = "R")]
    rounds: u64,
    /// Use secure aggregation. A round needs a few more devices than its goal, and as many others again after a kill
    #[arg(long)]
    secagg: bool,
    /// Model preset, such as tiny or gboard
    #[arg(long, default_value = "tiny", value_name = "PRESET")]
    model: String,
    /// Kill the server (SIGKILL) at random moments, about once per this many rounds, and restart it on the same data
    #[arg(long, value_name = "ROUNDS")]
    kill_server_every: Option<u64>,
    /// Devices send ready-made reports instead of training, to load-test the server
    #[arg(long)]
    ready_made: bool,
    /// How the devices behave
    #[arg(long, default_value = "steady")]
    behaviour: BehaviourName,
    /// Length of a day for realistic devices, whose availability comes in waves, one per day
    #[arg(long, value_name = "SECONDS", default_value_t = DAY_S)]
    day_seconds: f64,
    /// Number of threads of the server, and of the devices' training
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = threads::number)]
    threads: usize,
    /// Override a setting of the task, such as devices.tick_seconds=1
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Give up if no attempt at a round ends within this many seconds
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
        return Err(Interrupted("stopped; no results are kept".to_owned()).into());
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
        Step::Killed { times } => bar.set_message(format!("server killed {}", counted(times, "time"))),
        Step::Replays => bar.set_message("replaying on threads"),
        Step::Floor => bar.set_message("measuring the floor"),
    }
}

fn print(took: &NetworkTook) {
    let how = if took.secagg { "secure sums" } else { "plain sums" };
    let made = if took.ready_made { ", ready-made reports" } else { "" };
    println!("devices           {}, {} reports per round, {how}{made}", took.devices, took.goal);
    println!("model             {}, {} parameters", took.model, took.parameters);
    println!(
        "rounds            {} released of {}, {} attempts failed",
        took.rounds_closed, took.rounds, took.rounds_failed
    );
    println!("server killed     {}", counted(took.kills, "time"));
    if let Some(Restarts { listening_s, first_release_s, rounds_before }) = took.restarts {
        let released =
            first_release_s.map(|s| format!(", released a round after at most {s:.2} s")).unwrap_or_default();
        println!(
            "started again     listening after at most {listening_s:.2} s{released}; up to {rounds_before} rounds were over"
        );
    }
    let Participations { recorded, given, thanked, lost, doubled } = took.participations;
    println!(
        "participations    {recorded} on record; {given} sent, {thanked} acknowledged; {lost} lost, {doubled} doubled"
    );
    if let Some(Evaluations { released, participations }) = &took.evaluations {
        let Participations { recorded, given, thanked, lost, doubled } = participations;
        let equal = match took.digests.by_devices_equal {
            Some(true) => "same as on threads",
            Some(false) => "NOT the same as on threads",
            None => "not replayed",
        };
        println!(
            "by devices        {released} evaluations, {equal}; {recorded} on record; {given} sent, {thanked} acknowledged; {lost} lost, {doubled} doubled"
        );
    }
    println!("last model        {}", took.digests.server);
    match (&took.digests.threads, &took.digests.not_replayed) {
        (Some(threads), _) => {
            let equal = if took.digests.equal == Some(true) { "equal" } else { "NOT EQUAL" };
            println!("replayed on CPU   {threads}, {equal}");
        }
        (None, why) => println!("replayed on CPU   no: {}", why.as_deref().unwrap_or_default()),
    }
    println!("server            {:.2} CPU s, at most {:.0} MB", took.server.cpu_s, took.server.peak_mb);
    if let Some(Floor { report_bytes, report_cpu_ms, cpu_s, ratio }) = took.floor {
        println!(
            "floor             {cpu_s:.2} CPU s to read, check and add ({report_cpu_ms:.2} ms per report of {:.3} MB); the server needs {ratio:.2} times that",
            report_bytes as f64 / 1e6
        );
    }
    println!("devices' process  {:.2} CPU s, at most {:.0} MB", took.device_process.cpu_s, took.device_process.peak_mb);
    if took.devices_crashed + took.devices_left > 0 {
        println!(
            "of the devices    {} crashes, {} left during a participation",
            took.devices_crashed, took.devices_left
        );
    }
    println!("bytes             {:.3} MB up, {:.3} MB down", took.bytes_up as f64 / 1e6, took.bytes_down as f64 / 1e6);
    println!(
        "no usable answer  {} requests; {} more after the server had finished",
        took.broken, took.broken_at_the_end
    );
    match &took.round {
        Some(RoundTimes { measured, wall_s, training_s, overhead_s, overhead_median_s, overhead_most_s }) => {
            println!("per round         {wall_s:.4} s, of which {training_s:.4} s training, over {measured} rounds");
            println!(
                "overhead          {overhead_s:.4} s per round; median {overhead_median_s:.4} s, at most {overhead_most_s:.4} s"
            );
        }
        None => println!("per round         not measured: the server was killed between any two releases"),
    }
    if let Some(ServerSteps { release_s, ledger_s, optimizer_s, checkpoint_s }) = took.server_steps {
        println!(
            "server steps      noise {release_s:.4} s, record {ledger_s:.4} s, optimizer {optimizer_s:.4} s, checkpoint {checkpoint_s:.4} s"
        );
    }
    println!("wall seconds      {:.2}", took.wall_s);
}
