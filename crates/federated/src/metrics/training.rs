//! The numbers of a line about the run itself: epsilon, clip, server.

use super::{
    Metrics,
    registry::{Absent, Goal, Metric, Source, Unit},
};

/// All of them, in the order of lines.
pub static OF_RUNS: &[&Metric] = &[
    &EPSILON,
    &SERVER_LEARNING_RATE,
    &PLANNED_PARTICIPATIONS,
    &HEADLINE_BY_DEVICES,
    &CLIP_NORM,
    &TRACKED_CLIP_NORM,
    &FRACTION_BELOW_CLIP,
    &RHO,
    &PROJECTED_EPSILON,
    &UPLOADS,
    &UPLOADED_BYTES,
    &DOWNLOADED_BYTES,
];

/// What the releases cost, one run alone, if the noise is secret.
pub static EPSILON: Metric = Metric {
    name: "epsilon",
    // Of a simulation it would be that; of a secret run it is.
    label: "epsilon with secret noise",
    column: "epsilon",
    tag: Some("privacy/epsilon"),
    unit: Unit::Epsilon,
    absent: Absent::Zero,
    ..number(|line| Some(line.price.epsilon.get()))
};

/// The server's learning rate of the next round.
pub static SERVER_LEARNING_RATE: Metric = Metric {
    name: "server_learning_rate",
    label: "the server's learning rate",
    column: "server's rate",
    tag: Some("server/learning_rate"),
    absent: Absent::Zero,
    ..number(|line| Some(line.server_learning_rate))
};

/// Participations so far, as planned.
pub static PLANNED_PARTICIPATIONS: Metric = Metric {
    name: "planned_participations",
    label: "planned participations",
    column: "participations",
    tag: Some("server/planned_participations"),
    absent: Absent::Zero,
    ..number(|line| Some(line.planned_participations as f64))
};

/// Uploads so far, as planned.
pub static UPLOADS: Metric = Metric {
    name: "uploads",
    label: "uploads",
    column: "uploads",
    tag: Some("traffic/uploads"),
    ..number(|line| Some(line.sent?.uploads as f64))
};

/// Bytes from devices so far, as planned.
pub static UPLOADED_BYTES: Metric = Metric {
    name: "uploaded_bytes",
    label: "bytes uploaded",
    column: "uploaded",
    tag: Some("traffic/uploaded_bytes"),
    unit: Unit::Bytes,
    ..number(|line| Some(line.sent?.up_bytes as f64))
};

/// Bytes to devices so far, as planned.
pub static DOWNLOADED_BYTES: Metric = Metric {
    name: "downloaded_bytes",
    label: "bytes downloaded",
    column: "downloaded",
    tag: Some("traffic/downloaded_bytes"),
    unit: Unit::Bytes,
    ..number(|line| Some(line.sent?.down_bytes as f64))
};

/// The headline as devices measured it on their own text, with noise.
pub static HEADLINE_BY_DEVICES: Metric = Metric {
    name: "headline_by_devices",
    label: "measured by devices, noised",
    column: "by devices, noised",
    tag: Some("by_devices/headline"),
    unit: Unit::Share,
    goal: Goal::Higher,
    ..number(|line| Some(line.by_devices.as_ref()?.headline().0))
};

/// The norm that updates are clipped to.
pub static CLIP_NORM: Metric = Metric {
    name: "clip_norm",
    label: "clip norm",
    column: "clip norm",
    tag: Some("clip/norm"),
    ..number(|line| line.clip_norm)
};

/// The norm that follows the quantile, where one does.
pub static TRACKED_CLIP_NORM: Metric = Metric {
    name: "tracked_clip_norm",
    label: "tracked clip norm",
    column: "tracked clip norm",
    tag: Some("clip/tracked_norm"),
    ..number(|line| line.tracked_clip_norm)
};

/// The noised share of users under the clip.
pub static FRACTION_BELOW_CLIP: Metric = Metric {
    name: "fraction_below_clip",
    label: "users under the clip, noised",
    column: "under the clip, noised",
    tag: Some("clip/fraction_below"),
    unit: Unit::Share,
    ..number(|line| line.fraction_below_clip)
};

/// The zCDP parameter, where there is one.
pub static RHO: Metric = Metric {
    name: "rho",
    label: "rho with secret noise",
    column: "rho",
    tag: Some("privacy/rho"),
    ..number(|line| Some(line.price.rho?.get()))
};

/// What the releases would cost with the cohort that this one stands for.
pub static PROJECTED_EPSILON: Metric = Metric {
    name: "projected_epsilon",
    label: "projected epsilon",
    column: "projected epsilon",
    tag: Some("privacy/projected_epsilon"),
    unit: Unit::Epsilon,
    ..number(|line| Some(line.projected_epsilon?.get()))
};

/// What they have in common.
const fn number(of: fn(&Metrics) -> Option<f64>) -> Metric {
    Metric {
        name: "",
        label: "",
        column: "",
        tag: None,
        unit: Unit::Number,
        goal: Goal::Lower,
        smoothed: false,
        log: false,
        absent: Absent::LeftOut,
        source: Source::Run(of),
    }
}
