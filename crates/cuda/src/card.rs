//! The card: memory, kernels, launches, products and graphs. Everything that CUDA does not check is in this module.
//!
//! CUDA's own rules make every launch unsafe: nothing holds a kernel to the arguments that it was written for. Here is what keeps them:
//! all memory is a [`Memory`] of this card, which outlives the graphs that name it because both live in one value; a kernel is launched
//! in one place each, beside its source; sizes are compiled into kernels from the same [`crate::shape::Shape`] that memory is taken by;
//! and there is one stream to a [`Card`], so nothing overtakes anything. What works beside others on one card is a `Card` of its own, whose
//! memory nobody else touches before [`Card::wait`] has returned.
#![allow(
    unsafe_code,
    reason = "launches, products and raw addresses are unsafe by nature; this module is where they live"
)]

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

use crate::error::CudaError;

/// Values that one worker copies at a time.
const PIECE: usize = 1 << 15;
/// The oldest architecture that kernels are written for.
const LEAST: i32 = 80;
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
}

/// An address on the card.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Address(u64);

impl Address {
    /// No memory: where a kernel takes an optional argument.
    pub(crate) const NONE: Self = Self(0);

    /// So many 4-byte numbers further.
    pub(crate) const fn plus(self, numbers: usize) -> Self {
        Self(self.0 + 4 * numbers as u64)
    }
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

/// A compiled kernel.
pub(crate) struct Kernel(CudaFunction);

/// A matrix of every user, row by row: rows are `row` numbers apart, users `user`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Matrix {
    pub(crate) at: Address,
    pub(crate) row: usize,
    pub(crate) user: usize,
    pub(crate) transposed: bool,
}

impl Matrix {
    /// As it lies.
    pub(crate) const fn new(at: Address, row: usize, user: usize) -> Self {
        Self { at, row, user, transposed: false }
    }

    /// Its transpose.
    pub(crate) const fn transposed(self) -> Self {
        Self { transposed: !self.transposed, ..self }
    }

    /// The same, beginning some rows further.
    pub(crate) const fn down(self, row: usize) -> Self {
        Self { at: self.at.plus(row * self.row), ..self }
    }

    /// The same, beginning some columns further.
    pub(crate) const fn right(self, column: usize) -> Self {
        Self { at: self.at.plus(column), ..self }
    }
}

/// `c = alpha a b + beta c` for every user, c of `m` rows and `n` columns, `k` in between. The factors lie on the card.
pub(crate) struct Product {
    pub(crate) m: usize,
    pub(crate) n: usize,
    pub(crate) k: usize,
    pub(crate) a: Matrix,
    pub(crate) b: Matrix,
    pub(crate) c: Matrix,
    pub(crate) alpha: Address,
    pub(crate) beta: Address,
}

/// What the operands of a product are; sums are float32.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operands {
    /// Float32, multiplied as such.
    F32,
    /// Float32, multiplied with mantissas of 10 bits.
    Tf32,
    /// Half precision in memory.
    F16,
}

/// Work that can be launched again and again.
pub(crate) struct Graph(CudaGraph);

fn failed(what: &'static str) -> impl Fn(cudarc::driver::DriverError) -> CudaError {
    move |problem| CudaError::Call { what, problem: problem.to_string() }
}

fn no_product(problem: cublas::result::CublasError) -> CudaError {
    CudaError::Call { what: "cuBLAS", problem: format!("{problem:?}") }
}

fn no_compiler(problem: cudarc::nvrtc::result::NvrtcError) -> CudaError {
    CudaError::Call { what: "the CUDA compiler", problem: format!("{problem:?}") }
}

/// Whether there is a card here that could be opened.
pub(crate) fn is_there() -> bool {
    libraries().is_ok() && CudaContext::device_count().is_ok_and(|count| count > 0)
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
        // SAFETY: all memory is used by one stream, so there is nothing to keep apart; captures must not see earlier events.
        unsafe { context.disable_event_tracking() };
        let stream = context.new_stream().map_err(failed("making a stream"))?;
        let blas = Products::on(&stream)?;
        let workspace = stream.alloc_zeros::<u8>(WORKSPACE).map_err(failed("taking memory"))?;
        let card = Self { context, stream, blas, workspace };
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
        let of = |name: &str| std::env::var(name).ok()?.parse().ok();
        let rank = of("OMPI_COMM_WORLD_LOCAL_RANK").or_else(|| of("MPI_LOCALRANKID")).or_else(|| of("SLURM_LOCALID"));
        Self::open(rank.unwrap_or(0))
    }

    /// What kernels are compiled for, such as `compute_90`: this card's architecture, or the newest that the compiler knows where the card is
    /// newer. The driver makes code of any later card from it.
    pub(crate) fn architecture(&self) -> Result<String, CudaError> {
        let (major, minor) = self.capability()?;
        match target(10 * major + minor, &known_architectures()?) {
            Some(number) => Ok(format!("compute_{number}")),
            None => Err(CudaError::Unavailable(format!(
                "{} has compute capability {major}.{minor}, but at least {}.{} is needed",
                self.name()?,
                LEAST / 10,
                LEAST % 10
            ))),
        }
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
        let address = Address(slice.device_ptr(&self.stream).0);
        Ok(Memory { slice, address })
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
        let mut copy = vec![0; values.len() + rest];
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
        Ok(copy)
    }

    /// Sends values up; the memory may be longer.
    pub(crate) fn upload<T: DeviceRepr>(&self, values: &[T], to: &mut Memory<T>) -> Result<(), CudaError> {
        self.upload_to(values, to, 0)
    }

    /// The same, to a place.
    pub(crate) fn upload_to<T: DeviceRepr>(
        &self,
        values: &[T],
        to: &mut Memory<T>,
        start: usize,
    ) -> Result<(), CudaError> {
        let mut to = to.slice.slice_mut(start..start + values.len());
        self.stream.memcpy_htod(values, &mut to).map_err(failed("sending data to the card"))
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
        let load = |name: &&'static str| module.load_function(name).map(Kernel).map_err(failed(name));
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
        kernel.0.set_attribute(attribute, bytes as i32).map_err(failed("asking for shared memory"))
    }

    /// Launches a kernel.
    pub(crate) fn launch(&self, kernel: &Kernel, grid: Grid, args: &[Arg]) -> Result<(), CudaError> {
        let mut launch = self.stream.launch_builder(&kernel.0);
        for arg in args {
            match arg {
                Arg::At(address) => launch.arg(&address.0),
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
        // SAFETY: see the module's header.
        unsafe { launch.launch(config) }.map(drop).map_err(failed("launching a kernel"))
    }

    /// A product for each of so many users.
    pub(crate) fn product(&self, users: usize, product: &Product, operands: Operands) -> Result<(), CudaError> {
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
        // SAFETY: see the module's header.
        unsafe {
            cublas::result::gemm_strided_batched_ex(
                *self.blas.handle(),
                operation(b),
                operation(a),
                *n as i32,
                *m as i32,
                *k as i32,
                alpha.0 as *const _,
                b.at.0 as *const _,
                operand,
                b.row as i32,
                b.user as i64,
                a.at.0 as *const _,
                operand,
                a.row as i32,
                a.user as i64,
                beta.0 as *const _,
                c.at.0 as *mut _,
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
        let mode = sys::CUstreamCaptureMode_enum::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        self.stream.begin_capture(mode).map_err(failed("recording a graph"))?;
        let done = work();
        let graph = self.stream.end_capture(sys::CUgraphInstantiate_flags(0)).map_err(failed("recording a graph"));
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
    use super::{Card, Matrix, Operands, Product, is_there, target};

    /// Runs on a card only. Without the lock a third of such recordings fail.
    #[test]
    fn a_card_that_is_closed_disturbs_nobody_who_records() {
        if !is_there() {
            println!("skipped: there is no NVIDIA card here");
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
