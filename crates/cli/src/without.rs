//! Commands that this program was built without. They stay in the list of commands, and say how to get a program that has them.
#![cfg_attr(
    any(feature = "cuda", feature = "network"),
    allow(dead_code, unused_imports, reason = "what is there is not asked for here")
)]

use std::ffi::OsString;

use clap::{Args, Subcommand};

use crate::failure::BadInput;

/// Commands of the feature `network`.
pub(crate) mod no_network {
    use super::{Args, BadInput, NETWORK, OsString, Subcommand, missing};

    /// Whatever the command takes in a program that has it.
    #[derive(Args)]
    #[command(after_help = missing(NETWORK))]
    pub(crate) struct Anything {
        #[arg(hide = true, trailing_var_arg = true, allow_hyphen_values = true)]
        said: Vec<OsString>,
    }

    pub(crate) fn run(_: &Anything) -> anyhow::Result<()> {
        Err(BadInput::Refused(missing(NETWORK)).into())
    }

    pub(crate) mod demo {
        pub(crate) use super::{Anything as DemoArgs, run};
    }

    pub(crate) mod serve {
        pub(crate) use super::{Anything as ServeArgs, run};
    }

    pub(crate) mod doctor {
        pub(crate) use super::{Anything as DoctorArgs, run};
    }

    pub(crate) mod backup {
        pub(crate) use super::{Anything as BackupArgs, run};
    }

    pub(crate) mod restore {
        pub(crate) use super::{Anything as RestoreArgs, run};
    }

    pub(crate) mod rotate {
        pub(crate) use super::subcommands::{Command as What, run};
    }

    pub(crate) mod device {
        pub(crate) use super::{Anything as DeviceArgs, run};
    }

    pub(crate) mod network {
        pub(crate) use super::{Anything as NetworkArgs, run};
    }

    pub(crate) mod slow {
        pub(crate) use super::{Anything as SlowArgs, run};
    }

    pub(crate) mod access {
        pub(crate) use super::subcommands::{Command, run};
    }

    pub(crate) mod task {
        pub(crate) use super::subcommands::{Command, run};
    }

    mod subcommands {
        use super::{BadInput, NETWORK, OsString, Subcommand, missing};

        /// Whatever is to be done.
        #[derive(Subcommand)]
        #[command(after_help = missing(NETWORK))]
        pub(crate) enum Command {
            #[command(external_subcommand)]
            #[allow(dead_code, reason = "whatever is said")]
            Anything(Vec<OsString>),
        }

        pub(crate) fn run(_: &Command) -> anyhow::Result<()> {
            Err(BadInput::Refused(missing(NETWORK)).into())
        }
    }
}

/// Commands of the feature `cuda`.
pub(crate) mod no_cuda {
    pub(crate) mod gpu {
        use super::super::{Args, BadInput, CUDA, OsString, missing};

        /// Whatever the command takes in a program that has it.
        #[derive(Args)]
        #[command(after_help = missing(CUDA))]
        pub(crate) struct GpuArgs {
            #[arg(hide = true, trailing_var_arg = true, allow_hyphen_values = true)]
            said: Vec<OsString>,
        }

        pub(crate) fn run(_: &GpuArgs) -> anyhow::Result<()> {
            Err(BadInput::Refused(missing(CUDA)).into())
        }
    }
}

/// What the feature `network` brings.
const NETWORK: &str = "the network";
/// What the feature `cuda` brings.
pub(crate) const CUDA: &str = "CUDA";

/// That something is not in this program, and how to get one that has it.
pub(crate) fn missing(what: &str) -> String {
    format!("this keyhush was built without {what}: build it with `cargo build --release --features full`")
}

#[cfg(test)]
mod tests {
    use clap::{Command, FromArgMatches};

    use super::*;

    fn said(error: &anyhow::Error) -> String {
        error.downcast_ref::<BadInput>().expect("bad input").to_string()
    }

    #[test]
    fn commands_that_are_missing_take_anything_and_say_how_to_get_them() {
        let serve = no_network::Anything::augment_args(Command::new("serve"));
        for line in [&["serve"][..], &["serve", "--listen", "a:1"], &["serve", "task.toml", "-x", "--", "--set"]] {
            let args = serve.clone().try_get_matches_from(line).expect("whatever is said");
            let args = no_network::Anything::from_arg_matches(&args).unwrap();
            let words = said(&no_network::run(&args).unwrap_err());
            assert!(words.contains("without the network") && words.contains("--features full"), "{words}");
        }
        let task = no_network::task::Command::augment_subcommands(Command::new("task"));
        let args = task.try_get_matches_from(["task", "stop", "words", "--data", "d"]).expect("whatever is said");
        let args = no_network::task::Command::from_arg_matches(&args).unwrap();
        assert!(said(&no_network::task::run(&args).unwrap_err()).contains("without the network"));
        let gpu = no_cuda::gpu::GpuArgs::augment_args(Command::new("gpu"));
        let help = gpu.try_get_matches_from(["gpu", "-h"]).unwrap_err();
        assert!(help.to_string().contains("--features full"), "its help says so too: {help}");
    }
}
