//! Training allocates nothing: all that a step needs is there when the trainer is made.
#![allow(clippy::unwrap_used, reason = "the helpers of these tests unwrap as the tests do")]
#![allow(unsafe_code, reason = "counting allocations takes an allocator, whose interface is unsafe")]

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
};

use keyhush_lm::{
    kernels::KernelPath,
    model::{batch::Batch, config::ModelConfig, fast::Trainer, initial::initial_parameters},
};

thread_local! {
    /// Of this thread: the one that waits for the test allocates when it likes.
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: everything is left to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // A thread that ends allocates too, when this is gone.
        let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
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

#[test]
fn a_user_is_trained_without_allocating() {
    let before = ALLOCATIONS.get();
    drop(vec![0u8; 100]);
    assert!(ALLOCATIONS.get() > before, "the allocator counts");
    for preset in ["tiny", "mcmahan2018", "mcmahan2018-gru", "gboard", "so-nwp"] {
        let config = ModelConfig::preset(preset).unwrap().with_vocabulary(300);
        let start = initial_parameters(&config, 1).unwrap();
        let mut trainer = Trainer::new(&config, 4, 5, KernelPath::best()).unwrap();
        let mut end = vec![0.0; start.len()];
        let tokens: Vec<u32> = (0..21).map(|i| i * 13 % 300).collect();
        let before = ALLOCATIONS.get();
        trainer.load(&start);
        for len in [20, 20, 12] {
            let (inputs, targets) = (&tokens[..len], &tokens[1..=len]);
            trainer.step(&Batch { rows: 4, inputs, targets, context: &[] }, 0.1);
        }
        trainer.store(&mut end);
        assert_eq!(ALLOCATIONS.get(), before, "{preset}");
        assert_ne!(start, end);
    }
}
