//! Training allocates nothing: all that a step needs is there when the trainer is made.
#![allow(clippy::unwrap_used, reason = "the helpers of these tests unwrap as the tests do")]
#![allow(unsafe_code, reason = "counting allocations takes an allocator, whose interface is unsafe")]

use std::{
    alloc::{GlobalAlloc, Layout, System},
    sync::atomic::{AtomicUsize, Ordering},
};

use keyhush_lm::{
    kernels::KernelPath,
    model::{batch::Batch, config::ModelConfig, fast::Trainer, initial::initial_parameters},
};

static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);

struct Counting;

// SAFETY: everything is left to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: what is asked of this one is asked of that one.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: it was allocated by that one.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// One test in this file, so that nothing else allocates meanwhile.
#[test]
fn a_user_is_trained_without_allocating() {
    let before = ALLOCATIONS.load(Ordering::Relaxed);
    drop(vec![0u8; 100]);
    assert!(ALLOCATIONS.load(Ordering::Relaxed) > before, "the allocator counts");
    for preset in ["tiny", "mcmahan2018", "mcmahan2018-gru", "gboard", "so-nwp"] {
        let config = ModelConfig::preset(preset).unwrap().with_vocabulary(300);
        let start = initial_parameters(&config, 1).unwrap();
        let mut trainer = Trainer::new(&config, 4, 5, KernelPath::best()).unwrap();
        let mut end = vec![0.0; start.len()];
        let tokens: Vec<u32> = (0..21).map(|i| i * 13 % 300).collect();
        let before = ALLOCATIONS.load(Ordering::Relaxed);
        trainer.load(&start);
        for len in [20, 20, 12] {
            let (inputs, targets) = (&tokens[..len], &tokens[1..=len]);
            trainer.step(&Batch { rows: 4, inputs, targets, context: &[] }, 0.1);
        }
        trainer.store(&mut end);
        assert_eq!(ALLOCATIONS.load(Ordering::Relaxed), before, "{preset}");
        assert_ne!(start, end);
    }
}
