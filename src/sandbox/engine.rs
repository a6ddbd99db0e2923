//! The one engine: what it accepts, how it pools, how time passes in it.

use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::thread::Thread;
use std::time::Duration;

use sha2::{Digest, Sha256};
use wasmparser::{Parser, Payload, Validator, WasmFeatures};
use wasmtime::{
    Config, Enabled, Engine, InstanceAllocationStrategy, OptLevel, PoolingAllocationConfig, WasmBacktraceDetails,
};

use super::limits::{INSTANCES_MAX, TABLE_ELEMENTS_MAX};

/// How often the epoch advances: the grain of the CPU budget and of switching between guests.
pub const TICK: Duration = Duration::from_millis(1);

/// Largest linear memory that a slot of the pool can hold; the limit of a call is below it.
pub const MEMORY_MAX: u64 = 4 << 30;

/// Most linear memories and tables of one component.
const MEMORIES_MAX: u32 = 2;
const TABLES_MAX: u32 = 8;

/// Stack of a guest, in bytes. The host's side of a fiber comes on top.
const WASM_STACK: usize = 512 << 10;

/// The proposals that a guest may use: what the supported toolchains of Rust, JavaScript and Python emit.
///
/// The engine itself keeps multiple memories on, since without them a composed component makes it panic; here they are
/// off, so that no guest brings its own.
pub fn guest_features() -> WasmFeatures {
    WasmFeatures::MUTABLE_GLOBAL
        | WasmFeatures::SATURATING_FLOAT_TO_INT
        | WasmFeatures::SIGN_EXTENSION
        | WasmFeatures::REFERENCE_TYPES
        | WasmFeatures::CALL_INDIRECT_OVERLONG
        | WasmFeatures::MULTI_VALUE
        | WasmFeatures::BULK_MEMORY
        | WasmFeatures::BULK_MEMORY_OPT
        | WasmFeatures::SIMD
        | WasmFeatures::FLOATS
        | WasmFeatures::EXTENDED_CONST
        | WasmFeatures::GC_TYPES
        | WasmFeatures::COMPONENT_MODEL
}

/// Most functions of one component, with all its modules.
const FUNCTIONS_MAX: usize = 150_000;
/// Largest body of one function, in bytes: the compiler's time grows faster than this.
const BODY_MAX: usize = 512 << 10;
/// Most code of one component, in bytes.
const CODE_MAX: usize = 32 << 20;

/// Refuses what would take the compiler very long: a file of a few megabytes can be made to cost minutes and gigabytes.
fn bounded(bytes: &[u8]) -> Result<(), String> {
    let (mut functions, mut code) = (0, 0);
    for payload in Parser::new(0).parse_all(bytes) {
        if let Payload::CodeSectionEntry(body) = payload.map_err(|error| error.to_string())? {
            let size = body.range().len();
            functions += 1;
            code += size;
            if size > BODY_MAX {
                return Err(format!("a function of {size} bytes, where {BODY_MAX} are allowed"));
            }
            if functions > FUNCTIONS_MAX || code > CODE_MAX {
                return Err(format!("more than {FUNCTIONS_MAX} functions or {} MiB of code", CODE_MAX >> 20));
            }
        }
    }
    Ok(())
}

/// Validates `bytes` against [`guest_features`], and against what the compiler can do in a reasonable time.
///
/// # Errors
///
/// What is wrong, and where.
pub fn validate(bytes: &[u8]) -> Result<(), String> {
    bounded(bytes)?;
    Validator::new_with_features(guest_features()).validate_all(bytes).map(|_| ()).map_err(|error| error.to_string())
}

/// An engine with room for `concurrent` calls at once.
///
/// # Errors
///
/// The engine cannot be set up on this machine.
pub fn engine(concurrent: u32) -> wasmtime::Result<Engine> {
    let mut pool = PoolingAllocationConfig::new();
    pool.total_component_instances(concurrent)
        .total_core_instances(concurrent.saturating_mul(INSTANCES_MAX))
        .total_memories(concurrent.saturating_mul(MEMORIES_MAX))
        .total_tables(concurrent.saturating_mul(TABLES_MAX))
        .total_stacks(concurrent)
        .max_core_instances_per_component(INSTANCES_MAX)
        // As many as all slots together can have, so that no call starves for what others hold.
        .max_memories_per_component(MEMORIES_MAX)
        .max_tables_per_component(TABLES_MAX)
        .max_tables_per_module(4)
        .max_component_instance_size(1 << 20)
        .max_core_instance_size(1 << 20)
        .table_elements(TABLE_ELEMENTS_MAX)
        .linear_memory_keep_resident(1 << 20)
        .table_keep_resident(64 << 10)
        .pagemap_scan(Enabled::Auto)
        .max_memory_size(usize::try_from(MEMORY_MAX).unwrap_or(usize::MAX));
    let mut config = Config::new();
    config
        .allocation_strategy(InstanceAllocationStrategy::Pooling(pool))
        .cranelift_opt_level(OptLevel::Speed)
        .memory_init_cow(true)
        .epoch_interruption(true)
        .max_wasm_stack(WASM_STACK)
        .async_stack_size(WASM_STACK + (512 << 10))
        .wasm_backtrace_details(WasmBacktraceDetails::Enable)
        .wasm_component_model(true)
        .concurrency_support(false)
        .gc_support(false)
        .wasm_gc(false)
        .wasm_function_references(false)
        .wasm_threads(false)
        .wasm_memory64(false)
        .wasm_tail_call(false)
        .wasm_relaxed_simd(false)
        .wasm_multi_memory(true);
    Engine::new(&config)
}

/// Distinguishes every engine whose compiled code is not interchangeable with this one's.
pub fn fingerprint(engine: &Engine) -> [u8; 32] {
    struct Sha(Sha256);
    impl Hasher for Sha {
        fn write(&mut self, bytes: &[u8]) {
            self.0.update(bytes);
        }
        fn finish(&self) -> u64 {
            0
        }
    }
    let mut hasher = Sha(Sha256::new());
    engine.precompile_compatibility_hash().hash(&mut hasher);
    hasher.0.finalize().into()
}

/// Advances the epoch while calls are under way, from one thread that sleeps when none are.
#[derive(Debug)]
pub struct Ticker {
    shared: Arc<Shared>,
    thread: Thread,
}

#[derive(Debug, Default)]
struct Shared {
    active: AtomicUsize,
    stop: AtomicBool,
}

/// While one lives, time passes.
#[derive(Debug)]
pub struct Ticking(Arc<Shared>);

impl Ticker {
    /// Starts the thread.
    ///
    /// # Errors
    ///
    /// The operating system has no thread to give.
    pub fn start(engine: &Engine) -> std::io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let weak: Weak<Shared> = Arc::downgrade(&shared);
        let engine = engine.weak();
        let handle = std::thread::Builder::new().name("portcullis-epoch".to_owned()).spawn(move || {
            while let Some(shared) = weak.upgrade() {
                if shared.stop.load(Ordering::Acquire) {
                    return;
                }
                let active = shared.active.load(Ordering::Acquire) > 0;
                drop(shared);
                if active {
                    std::thread::sleep(TICK);
                    match engine.upgrade() {
                        Some(engine) => engine.increment_epoch(),
                        None => return,
                    }
                } else {
                    std::thread::park_timeout(Duration::from_secs(60));
                }
            }
        })?;
        Ok(Self { shared, thread: handle.thread().clone() })
    }

    /// Time passes until the value is dropped.
    pub fn tick(&self) -> Ticking {
        if self.shared.active.fetch_add(1, Ordering::AcqRel) == 0 {
            self.thread.unpark();
        }
        Ticking(self.shared.clone())
    }
}

impl Drop for Ticker {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        self.thread.unpark();
    }
}

impl Drop for Ticking {
    fn drop(&mut self) {
        self.0.active.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use wasm_encoder::{
        CodeSection, Component, Function, FunctionSection, Instruction, Module, ModuleSection, TypeSection,
    };

    use super::*;

    /// A component with a module of `count` functions of `size` instructions each.
    fn component(count: u32, size: usize) -> Vec<u8> {
        let mut types = TypeSection::new();
        types.ty().function([], []);
        let (mut functions, mut code) = (FunctionSection::new(), CodeSection::new());
        for _ in 0..count {
            functions.function(0);
            let mut body = Function::new([]);
            for _ in 0..size {
                body.instruction(&Instruction::Nop);
            }
            body.instruction(&Instruction::End);
            code.function(&body);
        }
        let mut module = Module::new();
        module.section(&types).section(&functions).section(&code);
        let mut component = Component::new();
        component.section(&ModuleSection(&module));
        component.finish()
    }

    #[test]
    fn what_would_take_the_compiler_very_long_is_refused_before_it_sees_it() {
        assert_eq!(validate(&component(10, 10)), Ok(()));
        assert!(validate(&component(150_001, 0)).unwrap_err().contains("more than 150000 functions"));
        assert!(validate(&component(1, 600_000)).unwrap_err().contains("a function of"));
    }

    #[test]
    fn proposals_that_no_supported_toolchain_needs_are_refused() {
        for module in [
            "(module (memory 1) (memory 1))",
            "(module (memory i64 1))",
            "(module (memory 1 1 shared))",
            "(module (func (return_call 0)))",
            "(module (type (struct)))",
            "(module (tag))",
        ] {
            let text = format!("(component (core {}", module.trim_start_matches('(')) + ")";
            let bytes = wat::parse_str(&text).unwrap();
            assert!(validate(&bytes).is_err(), "{module}");
        }
    }
}
