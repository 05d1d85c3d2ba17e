//! Selects the vector instructions that commands use: `KEYHUSH_KERNELS`.

use lm::kernels::KernelPath;

use crate::failure::BadInput;

/// The best kernels of this machine, or those that `KEYHUSH_KERNELS` names.
pub(crate) fn chosen() -> Result<KernelPath, BadInput> {
    let Some(wanted) = std::env::var_os("KEYHUSH_KERNELS") else { return Ok(KernelPath::best()) };
    let known = KernelPath::ALL.into_iter().find(|path| wanted == path.name());
    known.filter(|path| path.is_available()).ok_or_else(|| {
        let there: Vec<&str> = KernelPath::ALL.iter().filter(|p| p.is_available()).map(|p| p.name()).collect();
        BadInput::Refused(format!(
            "KEYHUSH_KERNELS={}: not available; this machine has {}",
            wanted.display(),
            there.join(", ")
        ))
    })
}
