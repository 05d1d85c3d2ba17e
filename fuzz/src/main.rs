//! The fuzzer: one target of `tests/fuzzing` in `crates/secagg`, `crates/device`, `crates/agent` or `crates/server`, named by the variable
//! `TARGET`, under libFuzzer.
#![no_main]

// Their own tests call them by their full names.
extern crate device as keyhush_device;
extern crate secagg as keyhush_secagg;

#[path = "../../crates/agent/tests/fuzzing/mod.rs"]
mod agent_files;
#[path = "../../crates/device/tests/fuzzing/mod.rs"]
mod device_messages;
#[path = "../../crates/secagg/tests/fuzzing/mod.rs"]
mod secagg_messages;
#[path = "../../crates/server/tests/fuzzing/mod.rs"]
mod server_messages;

use std::{
    alloc::{GlobalAlloc, Layout, System},
    sync::{
        OnceLock,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use libfuzzer_sys::fuzz_target;

/// What one input of a few kilobytes may allocate in all, states that are built for it included. libFuzzer has such a
/// limit too, which works with a sanitizer only; and those need a nightly compiler.
const MOST_BYTES: usize = 4 << 20;
/// The same where inputs stand for chunks of a megabyte, or for a database.
const MOST_BYTES_OF_SERVERS: usize = 64 << 20;

/// The system's allocator, until an input has used up what it may: then there is no memory, and the process aborts.
struct Limited;

/// What may still be allocated.
static LEFT: AtomicUsize = AtomicUsize::new(MOST_BYTES);

// SAFETY: every call is passed on as it is, or answered as the trait allows where there is no memory.
unsafe impl GlobalAlloc for Limited {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if LEFT.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(layout.size())).is_err() {
            return std::ptr::null_mut();
        }
        // SAFETY: the caller keeps to the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the pointer comes from `alloc` above, which is the system's.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Limited = Limited;

type Target = fn(&[u8]) -> bool;

static CHOSEN: OnceLock<(Target, usize)> = OnceLock::new();

/// The target that the variable names, and what its inputs may allocate. The first call of it builds what all calls use, and is made here.
fn choose() -> (Target, usize) {
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        LEFT.store(usize::MAX, Relaxed); // for the backtrace
        hook(panic);
    }));
    let name = std::env::var("TARGET").unwrap_or_default();
    let of_devices = || {
        let messages = secagg_messages::target(&name).or_else(|| device_messages::target(&name));
        messages.or_else(|| agent_files::target(&name))
    };
    let of_servers = || server_messages::target(&name).map(|target| (target, MOST_BYTES_OF_SERVERS));
    let Some((chosen, most)) = of_devices().map(|target| (target, MOST_BYTES)).or_else(of_servers) else {
        let of_devices = secagg_messages::TARGETS.iter().chain(&device_messages::TARGETS).chain(&agent_files::TARGETS);
        let all = of_devices.chain(&server_messages::TARGETS);
        let names: Vec<&str> = all.map(|(name, _)| *name).collect();
        panic!("TARGET={name} is none of {}: run `cargo xtask fuzz`", names.join(", "));
    };
    LEFT.store(usize::MAX, Relaxed);
    chosen(&[0]);
    (chosen, most)
}

fuzz_target!(|input: &[u8]| {
    let (chosen, most) = CHOSEN.get_or_init(choose);
    LEFT.store(*most, Relaxed);
    chosen(input);
});
