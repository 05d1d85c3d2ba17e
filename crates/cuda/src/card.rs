//! The card: memory, kernels, launches, products and graphs. Everything that CUDA does not check is in this module.
//!
//! CUDA's own rules make every launch unsafe: nothing holds a kernel to the arguments that it was written for. What can be checked is: a
//! kernel is launched only with as many arguments of such sizes as it has, where the driver says how many ([`Kernel`]), and a product
//! only with matrices that end within the memory that they began in ([`Address`]). The rest is a contract of this crate's own modules,
//! the only ones that see this one:
//!
//! - An [`Address`] is of a [`Memory`] of the same card that is still there. Graphs outlive the call that records them, so memory lives in
//!   one value with the graphs that name it, and code that takes other memory drops the graphs ([`crate::network::Network::read`]).
//! - What an address means to a kernel, and how much of it the kernel reads and writes, is as its source says: a kernel is launched in one
//!   place each, and sizes are compiled into it from the same [`crate::shape::Shape`] that memory is taken by.
//! - There is one stream to a [`Card`], so nothing overtakes anything. What works beside others on one card is a `Card` of its own. Of its
//!   memory another reads only the sum, after [`Card::wait`] has returned and before it is given anything else to do
//!   ([`crate::lane::Lane::join`]; the sum is then read and waited for before either is cleared).
#![allow(
    unsafe_code,
    reason = "launches, products and raw addresses are unsafe by nature; this module is where they live"
)]

mod product;

use std::ops::Deref;
use std::sync::{Arc, PoisonError, RwLock};

use cudarc::{
    cublas::{self, CudaBlas, sys::cublasComputeType_t, sys::cublasOperation_t},
    driver::{
        CudaContext, CudaFunction, CudaGraph, CudaSlice, CudaStream, DevicePtr, DeviceRepr, LaunchConfig,
        PinnedHostSlice, PushKernelArg, ValidAsZeroBits, sys,
    },
    nvrtc::{CompileError, CompileOptions, Ptx, compile_ptx_with_opts},
};

use federated::engine::Hardware;
use privacy::workers::{self, Workers};
use zeroize::Zeroizing;

pub(crate) use self::product::{Address, Matrix, Operands, Product};
use crate::error::CudaError;

/// Values that one worker copies at a time.
const PIECE: usize = 1 << 15;
/// The oldest architecture that kernels are written for.
const LEAST: i32 = 80;
/// Where launchers say which process of its machine this is: Open MPI, MPICH and Intel MPI, MVAPICH, PALS, Flux, Slurm.
const LOCAL_RANKS: [&str; 6] = [
    "OMPI_COMM_WORLD_LOCAL_RANK",
    "MPI_LOCALRANKID",
    "MV2_COMM_WORLD_LOCAL_RANK",
    "PALS_LOCAL_RANKID",
    "FLUX_TASK_LOCAL_ID",
    "SLURM_LOCALID",
];
/// Bytes that products may use beside their operands.
const WORKSPACE: usize = 64 << 20;

/// Making or destroying a cuBLAS handle synchronizes the whole card, and CUDA fails a graph that any thread is recording at that moment. So
/// recording holds this lock for reading, and a handle is made and destroyed with it held for writing.
static RECORDING: RwLock<()> = RwLock::new(());

/// A cuBLAS handle that is made and destroyed while nothing is recorded.
struct Products(Option<CudaBlas>);

impl Products {
    fn on(stream: &Arc<CudaStream>) -> Result<Self, CudaError> {
        let _alone = RECORDING.write().unwrap_or_else(PoisonError::into_inner);
        CudaBlas::new(stream.clone()).map(|blas| Self(Some(blas))).map_err(no_product)
    }
}

impl Deref for Products {
    type Target = CudaBlas;

    fn deref(&self) -> &CudaBlas {
        self.0.as_ref().expect("a handle is taken only when it is dropped")
    }
}

impl Drop for Products {
    fn drop(&mut self) {
        let _alone = RECORDING.write().unwrap_or_else(PoisonError::into_inner);
        drop(self.0.take());
    }
}

/// A card with one stream of work.
pub(crate) struct Card {
    context: Arc<CudaContext>,
    stream: Arc<CudaStream>,
    blas: Products,
    /// Where cuBLAS keeps parts of products.
    workspace: CudaSlice<u8>,
    /// Whether the card reads the host's memory by itself, as on Grace Hopper: then what is sent up is there until the card has read it.
    reads_pageable: bool,
}

/// Memory of the card.
pub(crate) struct Memory<T> {
    slice: CudaSlice<T>,
    address: Address,
}

impl<T> Memory<T> {
    /// The address of its first element.
    pub(crate) const fn address(&self) -> Address {
        self.address
    }

    /// How many values it holds.
    pub(crate) fn len(&self) -> usize {
        self.slice.len()
    }
}

/// Memory of the host that the card reads and writes by itself.
pub(crate) struct Pinned<T>(PinnedHostSlice<T>);

impl Pinned<f32> {
    /// Takes these values, which workers copy. The caller has waited for the cards that read the earlier ones: nothing here does, since
    /// the events that it would take are off.
    pub(crate) fn fill(&mut self, values: &[f32], workers: &dyn Workers) -> Result<(), CudaError> {
        let own = self.0.as_mut_slice().map_err(failed("waiting for the card"))?;
        if own.len() != values.len() {
            let problem = format!("a model of {} parameters, where {} are expected", values.len(), own.len());
            return Err(CudaError::Refused(problem));
        }
        let pieces = own.chunks_mut(PIECE).zip(values.chunks(PIECE));
        Ok(workers::all(workers, pieces, |_, (own, values)| own.copy_from_slice(values))?)
    }
}

/// One argument of a kernel.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Arg {
    /// Memory.
    At(Address),
    /// An `int`.
    Int(i32),
    /// A `u32`.
    Word(u32),
    /// A `u64` or `i64`.
    Long(u64),
    /// A `float`.
    Float(f32),
}

impl Arg {
    /// Its size.
    const fn bytes(&self) -> usize {
        match self {
            Self::At(_) | Self::Long(_) => 8,
            Self::Int(_) | Self::Word(_) | Self::Float(_) => 4,
        }
    }
}

/// How many blocks of how many threads.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Grid {
    pub(crate) blocks: [usize; 2],
    pub(crate) threads: usize,
    /// Bytes of shared memory that are asked for at the launch.
    pub(crate) shared: usize,
}

impl Grid {
    /// A thread for each of so many, 256 a block.
    pub(crate) const fn each(of: usize) -> Self {
        Self { blocks: [of.div_ceil(256), 1], threads: 256, shared: 0 }
    }

    /// Blocks by users.
    pub(crate) const fn blocks(across: usize, users: usize, threads: usize) -> Self {
        Self { blocks: [across, users], threads, shared: 0 }
    }
}

/// A compiled kernel, and how many bytes each of its parameters has, where the driver says so (from CUDA 12.4 on).
pub(crate) struct Kernel {
    function: CudaFunction,
    name: &'static str,
    parameters: Option<Vec<usize>>,
}

impl Kernel {
    /// Whether the arguments are such as the kernel has.
    fn check(&self, args: &[Arg]) -> Result<(), CudaError> {
        let sizes = || args.iter().map(Arg::bytes);
        match &self.parameters {
            Some(want) if !want.iter().copied().eq(sizes()) => {
                let got: Vec<usize> = sizes().collect();
                let problem = format!("the kernel {} has parameters of {want:?} bytes, not {got:?}", self.name);
                Err(CudaError::Refused(problem))
            }
            _ => Ok(()),
        }
    }
}

/// Work that can be launched again and again.
pub(crate) struct Graph(CudaGraph);

/// A recording that goes on. Where what is recorded panics it ends here: a stream that goes on recording can do nothing else any more,
/// not even clear what it holds of people.
struct Recording<'a> {
    stream: &'a Arc<CudaStream>,
    ended: bool,
}

impl<'a> Recording<'a> {
    fn begin(stream: &'a Arc<CudaStream>) -> Result<Self, CudaError> {
        let mode = sys::CUstreamCaptureMode_enum::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        stream.begin_capture(mode).map_err(failed("recording a graph"))?;
        Ok(Self { stream, ended: false })
    }

    /// What was recorded.
    fn end(mut self) -> Result<Option<CudaGraph>, CudaError> {
        self.ended = true;
        self.stream.end_capture(sys::CUgraphInstantiate_flags(0)).map_err(failed("recording a graph"))
    }
}

impl Drop for Recording<'_> {
    fn drop(&mut self) {
        if !self.ended {
            drop(self.stream.end_capture(sys::CUgraphInstantiate_flags(0)));
        }
    }
}

fn failed(what: &'static str) -> impl Fn(cudarc::driver::DriverError) -> CudaError {
    move |problem| match problem.0 {
        sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY => CudaError::Full,
        sys::CUresult::CUDA_ERROR_UNSUPPORTED_PTX_VERSION => CudaError::Newer,
        _ => CudaError::Call { what, problem: problem.to_string() },
    }
}

fn no_product(problem: cublas::result::CublasError) -> CudaError {
    CudaError::Call { what: "cuBLAS", problem: format!("{problem:?}") }
}

fn no_compiler(problem: cudarc::nvrtc::result::NvrtcError) -> CudaError {
    CudaError::Call { what: "the CUDA compiler", problem: format!("{problem:?}") }
}

/// Whether there is a card here: a driver that does not say that there is none. Whether the card works is another question, and so is
/// whether the libraries that it takes are there.
pub(crate) fn is_there() -> bool {
    // SAFETY: tries to open a shared library by its usual names.
    let driver = unsafe { sys::is_culib_present() };
    driver && !has_none(CudaContext::device_count().map_err(|problem| problem.0))
}

/// Whether the driver says that there is no card, or is only what programs are linked with. Anything else that is wrong is wrong with a card.
fn has_none(count: Result<i32, sys::CUresult>) -> bool {
    matches!(count, Ok(0) | Err(sys::CUresult::CUDA_ERROR_NO_DEVICE | sys::CUresult::CUDA_ERROR_STUB_LIBRARY))
}

/// Whether the libraries are there; loading what is missing would panic.
fn libraries() -> Result<(), CudaError> {
    // SAFETY: these only try to open a shared library by its usual names.
    let there = unsafe {
        [
            ("the NVIDIA driver (libcuda)", sys::is_culib_present()),
            ("the CUDA compiler library (libnvrtc)", cudarc::nvrtc::sys::is_culib_present()),
            ("cuBLAS (libcublas)", cublas::sys::is_culib_present()),
        ]
    };
    match there.iter().find(|(_, present)| !present) {
        None => Ok(()),
        Some((what, _)) => Err(CudaError::Unavailable(format!(
            "{what} is not installed or not on the library path; install CUDA 12 or 13, or use --engine threads"
        ))),
    }
}

/// Whether kernels can be compiled here, with or without a card.
pub(crate) fn has_compiler() -> bool {
    // SAFETY: tries to open a shared library by its usual names.
    unsafe { cudarc::nvrtc::sys::is_culib_present() }
}

/// Which process of its machine this is, as launchers say it in the environment; the first where none did.
fn local_rank(told: impl Fn(&str) -> Option<String>) -> usize {
    LOCAL_RANKS.iter().find_map(|name| told(name)?.parse().ok()).unwrap_or(0)
}

/// Compiles a source for an architecture such as `compute_90` or `sm_90`.
pub(crate) fn compile(
    what: &'static str,
    source: &str,
    defines: &[(&'static str, usize)],
    architecture: &str,
) -> Result<Ptx, CudaError> {
    let mut options: Vec<String> = defines.iter().map(|(name, value)| format!("-D{name}={value}")).collect();
    options.push(format!("--gpu-architecture={architecture}"));
    options.extend(["--std=c++17".to_owned(), "--extra-device-vectorization".to_owned()]);
    let options = CompileOptions { options, name: Some(format!("{what}.cu")), ..CompileOptions::default() };
    compile_ptx_with_opts(source, options).map_err(|problem| {
        let log = match problem {
            CompileError::CompileError { log, .. } => log.to_string_lossy().into_owned(),
            other => format!("{other:?}"),
        };
        CudaError::Source { what, log }
    })
}

/// The architectures that the compiler here knows, such as 90.
fn known_architectures() -> Result<Vec<i32>, CudaError> {
    let mut count = 0;
    // SAFETY: writes one number, to a place that is there.
    unsafe { cudarc::nvrtc::sys::nvrtcGetNumSupportedArchs(&mut count) }.result().map_err(no_compiler)?;
    let mut known = vec![0; usize::try_from(count).unwrap_or(0)];
    if !known.is_empty() {
        // SAFETY: writes as many numbers as the compiler has just said.
        unsafe { cudarc::nvrtc::sys::nvrtcGetSupportedArchs(known.as_mut_ptr()) }.result().map_err(no_compiler)?;
    }
    Ok(known)
}

/// The newest architecture that a card runs and the compiler knows; none below the least that kernels need.
fn target(card: i32, known: &[i32]) -> Option<i32> {
    known.iter().copied().filter(|number| (LEAST..=card).contains(number)).max()
}

/// How many bytes each parameter of a kernel has; none where the driver is older than the question.
fn parameters(function: &CudaFunction) -> Option<Vec<usize>> {
    // SAFETY: looks a name up in the driver, which `libraries` has found; nothing is called by it.
    let can_say = unsafe { sys::culib().get::<unsafe extern "C" fn()>(b"cuFuncGetParamInfo").is_ok() };
    let size = |index: usize| {
        let (mut offset, mut size) = (0, 0);
        // SAFETY: writes two numbers, to places that are there; beyond the last parameter it says that there is none.
        let said = unsafe { sys::cuFuncGetParamInfo(function.cu_function(), index, &mut offset, &mut size) };
        (said == sys::CUresult::CUDA_SUCCESS).then_some(size)
    };
    // Every kernel here has some: that there are none says nothing.
    can_say.then(|| (0..).map_while(size).collect()).filter(|sizes: &Vec<usize>| !sizes.is_empty())
}

impl Card {
    /// Opens a card by its number.
    pub(crate) fn open(number: usize) -> Result<Self, CudaError> {
        libraries()?;
        let count = CudaContext::device_count()
            .map_err(|problem| CudaError::Unavailable(format!("the NVIDIA driver provides no GPU: {problem}")))?;
        if count < 1 {
            return Err(CudaError::Unavailable("this machine has no NVIDIA GPU".to_owned()));
        }
        let context = CudaContext::new(number % count as usize).map_err(failed("opening the card"))?;
        // SAFETY: what streams of one card share is kept apart by waiting (see the module's header); captures must not see earlier events.
        unsafe { context.disable_event_tracking() };
        let stream = context.new_stream().map_err(failed("making a stream"))?;
        let blas = Products::on(&stream)?;
        let workspace = stream.alloc_zeros::<u8>(WORKSPACE).map_err(failed("taking memory"))?;
        let pageable = sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS;
        let reads_pageable = context.attribute(pageable).map_err(failed("asking the card what it reads"))? != 0;
        let card = Self { context, stream, blas, workspace, reads_pageable };
        let at = card.workspace.device_ptr(&card.stream).0;
        // SAFETY: the workspace lives as long as the handle.
        unsafe { cublas::sys::cublasSetWorkspace_v2(*card.blas.handle(), at as *mut _, WORKSPACE) }
            .result()
            .map_err(no_product)?;
        card.blas.set_pointer_mode(cublas::sys::cublasPointerMode_t::CUBLAS_POINTER_MODE_DEVICE).map_err(no_product)?;
        Ok(card)
    }

    /// Opens the card of this process: several processes of one machine take a card each.
    pub(crate) fn of_this_process() -> Result<Self, CudaError> {
        Self::open(local_rank(|name| std::env::var(name).ok()))
    }

    /// What kernels are compiled for, such as `compute_90`: this card's architecture, or the newest that the compiler knows where the card is
    /// newer. The driver makes code of any later card from it.
    pub(crate) fn architecture(&self) -> Result<String, CudaError> {
        let (major, minor) = self.capability()?;
        let own = 10 * major + minor;
        if let Some(number) = target(own, &known_architectures()?) {
            return Ok(format!("compute_{number}"));
        }
        let name = self.name()?;
        let problem = if own < LEAST {
            let (need, needed) = (LEAST / 10, LEAST % 10);
            format!(
                "{name} has compute capability {major}.{minor}, but at least {need}.{needed} is needed; use --engine threads"
            )
        } else {
            format!(
                "the CUDA compiler library (libnvrtc) no longer supports {name} (compute capability {major}.{minor}); install an older CUDA, or use --engine threads"
            )
        };
        Err(CudaError::Unavailable(problem))
    }

    /// What the last bits of products depend on.
    pub(crate) fn hardware(&self) -> Result<Hardware, CudaError> {
        let (major, minor) = self.capability()?;
        let processors = self
            .context
            .attribute(sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)
            .map_err(failed("asking the card how large it is"))?;
        let mut library = 0;
        // SAFETY: writes one number, to a place that is there.
        unsafe { cublas::sys::cublasGetVersion_v2(*self.blas.handle(), &mut library) }.result().map_err(no_product)?;
        let (mut newer, mut older, mut driver) = (0, 0, 0);
        // SAFETY: these write one or two numbers, to places that are there.
        unsafe { cudarc::nvrtc::sys::nvrtcVersion(&mut newer, &mut older) }.result().map_err(no_compiler)?;
        unsafe { sys::cuDriverGetVersion(&mut driver) }
            .result()
            .map_err(failed("asking the driver for its version"))?;
        let whole = [major, minor, processors, library, newer, older, driver].map(i32::unsigned_abs);
        let [major, minor, processors, library, newer, older, driver] = whole;
        Ok(Hardware { architecture: (major, minor), processors, library, compiler: (newer, older), driver })
    }

    /// What it is, in words.
    pub(crate) fn name(&self) -> Result<String, CudaError> {
        self.context.name().map_err(failed("asking the card for its name"))
    }

    /// Its compute capability, such as (9, 0).
    pub(crate) fn capability(&self) -> Result<(i32, i32), CudaError> {
        self.context.compute_capability().map_err(failed("asking the card what it can"))
    }

    /// Bytes that are free.
    pub(crate) fn free(&self) -> Result<usize, CudaError> {
        self.context.mem_get_info().map(|(free, _)| free).map_err(failed("asking the card for its memory"))
    }

    /// Memory, all zero.
    pub(crate) fn zeros<T: DeviceRepr + ValidAsZeroBits>(&self, len: usize) -> Result<Memory<T>, CudaError> {
        let slice = self.stream.alloc_zeros::<T>(len.max(1)).map_err(failed("taking memory"))?;
        let at = slice.device_ptr(&self.stream).0;
        Ok(Memory { address: Address { at, end: at + slice.num_bytes() as u64 }, slice })
    }

    /// Memory with these values.
    pub(crate) fn copy_of<T: DeviceRepr + ValidAsZeroBits>(&self, values: &[T]) -> Result<Memory<T>, CudaError> {
        let mut memory = self.zeros(values.len())?;
        self.upload(values, &mut memory)?;
        Ok(memory)
    }

    /// Memory of the host that the card reaches by itself: copies are several times as fast.
    pub(crate) fn pinned<T: DeviceRepr + ValidAsZeroBits>(&self, len: usize) -> Result<Pinned<T>, CudaError> {
        // SAFETY: what is read of it was written before, by `fill` or by the card.
        unsafe { self.context.alloc_pinned_with_flags(len, 0) }.map(Pinned).map_err(failed("taking memory of the host"))
    }

    /// Sends up what pinned memory holds.
    pub(crate) fn upload_pinned<T: DeviceRepr>(&self, from: &Pinned<T>, to: &mut Memory<T>) -> Result<(), CudaError> {
        self.stream.memcpy_htod(&from.0, &mut to.slice).map_err(failed("sending data to the card"))
    }

    /// Brings values down by way of pinned memory, in which nothing is left of them, with room for `rest` more. Workers copy them:
    /// memory that was never touched costs more than the copy, and each has its part of that.
    pub(crate) fn download_by(
        &self,
        from: &Memory<i64>,
        by: &mut Pinned<i64>,
        rest: usize,
        workers: &dyn Workers,
    ) -> Result<Vec<i64>, CudaError> {
        let asked = self.stream.memcpy_dtoh(&from.slice, &mut by.0).map_err(failed("bringing data from the card"));
        let came = asked.and(self.wait());
        let values = by.0.as_mut_slice().map_err(failed("waiting for the card"))?;
        // There is no noise in it: what is not handed on is wiped.
        let mut copy = Zeroizing::new(vec![0; values.len() + rest]);
        let pieces = values.chunks_mut(PIECE).zip(copy.chunks_mut(PIECE));
        let copied = workers::all(workers, pieces, |_, (values, copy)| {
            copy[..values.len()].copy_from_slice(values);
            values.fill(0);
        });
        if copied.is_err() {
            values.fill(0);
        }
        came?;
        copied?;
        Ok(std::mem::take(&mut *copy))
    }

    /// Sends values up; the memory may be longer.
    pub(crate) fn upload<T: DeviceRepr>(&self, values: &[T], to: &mut Memory<T>) -> Result<(), CudaError> {
        self.upload_to(values, to, 0)
    }

    /// Copies host memory to an existing allocation.
    pub(crate) fn upload_to<T: DeviceRepr>(
        &self,
        values: &[T],
        to: &mut Memory<T>,
        start: usize,
    ) -> Result<(), CudaError> {
        let mut to = to.slice.slice_mut(start..start + values.len());
        self.stream.memcpy_htod(values, &mut to).map_err(failed("sending data to the card"))?;
        if self.reads_pageable { self.wait() } else { Ok(()) }
    }

    /// Brings values down and waits for them; the memory may be longer.
    pub(crate) fn download<T: DeviceRepr>(&self, from: &Memory<T>, to: &mut [T]) -> Result<(), CudaError> {
        self.download_from(from, 0, to)
    }

    /// The same, from a place on.
    pub(crate) fn download_from<T: DeviceRepr>(
        &self,
        from: &Memory<T>,
        start: usize,
        to: &mut [T],
    ) -> Result<(), CudaError> {
        let from = from.slice.slice(start..start + to.len());
        self.stream.memcpy_dtoh(&from, to).map_err(failed("bringing data from the card"))?;
        self.wait()
    }

    /// Makes all of it zero.
    pub(crate) fn clear<T: DeviceRepr + ValidAsZeroBits>(&self, memory: &mut Memory<T>) -> Result<(), CudaError> {
        self.stream.memset_zeros(&mut memory.slice).map_err(failed("clearing memory"))
    }

    /// Makes zero what is left of products.
    pub(crate) fn clear_workspace(&mut self) -> Result<(), CudaError> {
        self.stream.memset_zeros(&mut self.workspace).map_err(failed("clearing memory"))
    }

    /// Whether nothing is left of products: for tests.
    pub(crate) fn workspace_is_clear(&self) -> Result<bool, CudaError> {
        let mut bytes = vec![1; WORKSPACE];
        self.stream.memcpy_dtoh(&self.workspace, &mut bytes).map_err(failed("bringing data from the card"))?;
        self.wait()?;
        Ok(bytes.iter().all(|byte| *byte == 0))
    }

    /// Copies one memory onto another of the same length.
    pub(crate) fn copy<T: DeviceRepr>(&self, from: &Memory<T>, to: &mut Memory<T>) -> Result<(), CudaError> {
        self.stream.memcpy_dtod(&from.slice, &mut to.slice).map_err(failed("copying on the card"))
    }

    /// Waits for all that was asked for.
    pub(crate) fn wait(&self) -> Result<(), CudaError> {
        self.stream.synchronize().map_err(failed("computing"))
    }

    /// The kernels of a compiled source, by name.
    pub(crate) fn load(&self, ptx: Ptx, names: &[&'static str]) -> Result<Vec<Kernel>, CudaError> {
        let module = self.context.load_module(ptx).map_err(failed("loading kernels"))?;
        let load = |name: &&'static str| {
            let function = module.load_function(name).map_err(failed(name))?;
            Ok(Kernel { parameters: parameters(&function), function, name })
        };
        names.iter().map(load).collect()
    }

    /// Whether a block can have so much shared memory.
    pub(crate) fn has_shared(&self, bytes: usize) -> Result<bool, CudaError> {
        let most = sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN;
        let most = self.context.attribute(most).map_err(failed("asking the card for its shared memory"))?;
        Ok(usize::try_from(most).is_ok_and(|most| bytes <= most))
    }

    /// Lets a kernel have more shared memory than the usual 48 KiB.
    pub(crate) fn allow_shared(&self, kernel: &Kernel, bytes: usize) -> Result<(), CudaError> {
        let attribute = sys::CUfunction_attribute_enum::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
        kernel.function.set_attribute(attribute, bytes as i32).map_err(failed("asking for shared memory"))
    }

    /// Launches a kernel, with arguments as its source has them (see the module's header).
    pub(crate) fn launch(&self, kernel: &Kernel, grid: Grid, args: &[Arg]) -> Result<(), CudaError> {
        kernel.check(args)?;
        let mut launch = self.stream.launch_builder(&kernel.function);
        for arg in args {
            match arg {
                Arg::At(address) => launch.arg(&address.at),
                Arg::Int(value) => launch.arg(value),
                Arg::Word(value) => launch.arg(value),
                Arg::Long(value) => launch.arg(value),
                Arg::Float(value) => launch.arg(value),
            };
        }
        let config = LaunchConfig {
            grid_dim: (grid.blocks[0] as u32, grid.blocks[1] as u32, 1),
            block_dim: (grid.threads as u32, 1, 1),
            shared_mem_bytes: grid.shared as u32,
        };
        // SAFETY: the arguments have the sizes of the parameters; what they mean is the contract in the module's header.
        unsafe { launch.launch(config) }.map(drop).map_err(failed("launching a kernel"))
    }

    /// A product for each of so many users.
    pub(crate) fn product(&self, users: usize, product: &Product, operands: Operands) -> Result<(), CudaError> {
        product.check(users, operands)?;
        let Product { m, n, k, a, b, c, alpha, beta } = product;
        let operation = |matrix: &Matrix| {
            if matrix.transposed { cublasOperation_t::CUBLAS_OP_T } else { cublasOperation_t::CUBLAS_OP_N }
        };
        let float = cublas::sys::cudaDataType_t::CUDA_R_32F;
        let (operand, compute) = match operands {
            Operands::F32 => (float, cublasComputeType_t::CUBLAS_COMPUTE_32F),
            Operands::Tf32 => (float, cublasComputeType_t::CUBLAS_COMPUTE_32F_FAST_TF32),
            Operands::F16 => (cublas::sys::cudaDataType_t::CUDA_R_16F, cublasComputeType_t::CUBLAS_COMPUTE_32F),
        };
        // cuBLAS has columns where we have rows: c^T = b^T a^T.
        // SAFETY: matrices and factors lie within memory, which was checked; it is still there by the contract in the module's header.
        unsafe {
            cublas::result::gemm_strided_batched_ex(
                *self.blas.handle(),
                operation(b),
                operation(a),
                *n as i32,
                *m as i32,
                *k as i32,
                alpha.at as *const _,
                b.at.at as *const _,
                operand,
                b.row as i32,
                b.user as i64,
                a.at.at as *const _,
                operand,
                a.row as i32,
                a.user as i64,
                beta.at as *const _,
                c.at.at as *mut _,
                float,
                c.row as i32,
                c.user as i64,
                users as i32,
                compute,
                cublas::sys::cublasGemmAlgo_t::CUBLAS_GEMM_DEFAULT,
            )
        }
        .map_err(no_product)
    }

    /// Records what `work` asks for, without doing it.
    pub(crate) fn record(&self, work: impl FnOnce() -> Result<(), CudaError>) -> Result<Graph, CudaError> {
        let _undisturbed = RECORDING.read().unwrap_or_else(PoisonError::into_inner);
        let recording = Recording::begin(&self.stream)?;
        let done = work();
        let graph = recording.end();
        done?;
        let none = || CudaError::Call { what: "recording a graph", problem: "nothing was recorded".to_owned() };
        graph?.map(Graph).ok_or_else(none)
    }

    /// Does what was recorded.
    pub(crate) fn replay(&self, graph: &Graph) -> Result<(), CudaError> {
        graph.0.launch().map_err(failed("launching a graph"))
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use cudarc::driver::sys::CUresult;

    use super::{Arg, Card, Grid, LOCAL_RANKS, Matrix, Operands, Product, has_none, local_rank, target};
    use crate::{shape::Shape, skipped_without_card, source::LEARN};

    /// Every launcher's word is read; nobody's is the first process, and what is no number is nobody's.
    #[test]
    fn a_process_takes_the_card_of_its_rank() {
        assert_eq!(local_rank(|_| None), 0);
        for launcher in LOCAL_RANKS {
            assert_eq!(local_rank(|name| (name == launcher).then(|| "3".to_owned())), 3, "{launcher}");
        }
        let slurm = |name: &str| match name {
            "SLURM_LOCALID" => Some("2".to_owned()),
            _ => Some("none".to_owned()),
        };
        assert_eq!(local_rank(slurm), 2);
    }

    /// A driver that fails, or libraries that are missing, are no reason to skip anything: the card is there, and does not work.
    #[test]
    fn only_a_driver_that_counts_no_cards_has_none() {
        assert!(has_none(Ok(0)) && has_none(Err(CUresult::CUDA_ERROR_NO_DEVICE)));
        assert!(has_none(Err(CUresult::CUDA_ERROR_STUB_LIBRARY)), "of machines where programs are built");
        assert!(!has_none(Ok(1)));
        let broken = [
            CUresult::CUDA_ERROR_SYSTEM_DRIVER_MISMATCH,
            CUresult::CUDA_ERROR_NOT_INITIALIZED,
            CUresult::CUDA_ERROR_SYSTEM_NOT_READY,
            CUresult::CUDA_ERROR_UNKNOWN,
        ];
        assert!(broken.into_iter().all(|problem| !has_none(Err(problem))));
    }

    /// Runs on a card only.
    #[test]
    fn kernels_are_launched_only_with_what_they_take() {
        if skipped_without_card() {
            return;
        }
        let card = Card::open(0).unwrap();
        let config = lm::model::config::ModelConfig::preset("tiny").unwrap();
        let shape = Shape::new(&config, &crate::central::one_reading(2, 3), 1).unwrap();
        let code = LEARN.compile(&shape.defines(1 << 20, 1000), &card.architecture().unwrap()).unwrap();
        let kernel = card.load(code, &["advance"]).unwrap().pop().unwrap();
        let step = card.zeros::<i32>(2).unwrap();
        let launch = |args: &[Arg]| card.launch(&kernel, Grid { blocks: [1, 1], threads: 1, shared: 0 }, args);
        let at = Arg::At(step.address());
        assert!(launch(&[at]).is_ok());
        match &kernel.parameters {
            None => println!("the driver does not say what kernels take"),
            Some(sizes) => {
                assert_eq!(*sizes, [8]);
                for wrong in [&[][..], &[at, at], &[Arg::Int(1)]] {
                    assert!(launch(wrong).is_err(), "{wrong:?}");
                }
            }
        }
        let mut said = [0; 2];
        card.download(&step, &mut said).unwrap();
        assert_eq!(said, [1, 0], "once, and by nothing that was refused");
    }

    /// Runs on a card only. A stream that goes on recording would fail at everything after it.
    #[test]
    fn a_recording_that_panics_leaves_a_card_that_works() {
        if skipped_without_card() {
            return;
        }
        let card = Card::open(0).unwrap();
        let mut memory = card.copy_of(&[7.0_f32; 64]).unwrap();
        let planted = catch_unwind(AssertUnwindSafe(|| card.record(|| panic!("a bug that was planted")).map(drop)));
        assert!(planted.is_err());
        card.clear(&mut memory).unwrap();
        let mut values = [1.0; 64];
        card.download(&memory, &mut values).unwrap();
        assert_eq!(values, [0.0; 64]);
    }

    /// Runs on a card only. Without the lock a third of such recordings fail.
    #[test]
    fn a_card_that_is_closed_disturbs_nobody_who_records() {
        if skipped_without_card() {
            return;
        }
        let card = Card::open(0).unwrap();
        let [a, b, c] = [0; 3].map(|_| card.zeros::<f32>(64 * 64).unwrap());
        let [alpha, beta] = [1.0_f32, 0.0].map(|factor| card.copy_of(&[factor]).unwrap());
        let [x, y, z] = [&a, &b, &c].map(|memory| Matrix::new(memory.address(), 64, 64 * 64));
        let product = Product { m: 64, n: 64, k: 64, a: x, b: y, c: z, alpha: alpha.address(), beta: beta.address() };
        let records = || {
            let graph = card.record(|| (0..40).try_for_each(|_| card.product(1, &product, Operands::F32)))?;
            card.replay(&graph)?;
            card.wait()
        };
        std::thread::scope(|scope| {
            let others: Vec<_> =
                (0..2).map(|_| scope.spawn(|| (0..40).try_for_each(|_| Card::open(0)?.wait()))).collect();
            while others.iter().any(|other| !other.is_finished()) {
                records().unwrap();
            }
            others.into_iter().for_each(|other| other.join().unwrap().unwrap());
        });
    }

    #[test]
    fn a_card_that_is_newer_than_the_compiler_gets_the_newest_code_that_there_is() {
        let known = [75, 80, 86, 89, 90];
        assert_eq!(
            [75, 80, 87, 90, 100, 120].map(|card| target(card, &known)),
            [None, Some(80), Some(86), Some(90), Some(90), Some(90)]
        );
        assert_eq!(target(90, &[100, 120]), None, "a compiler that has forgotten the card");
    }
}
