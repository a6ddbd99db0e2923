//! Where a permitted call runs: a fresh instance for every call, with the handles of its permit and nothing else.
//!
//! | handle | file |
//! |---|---|
//! | files | `files` |
//! | http | `http` |
//! | credentials | `credential`, `http` |
//! | clock, random | `time` |
//! | state | `state` |
//! | standard streams | `stdio` |
//! | memory, tables | `limits` |
//!
//! This module imports no policy: what a call may touch has been decided when it gets here.

mod cache;
mod cpu;
mod credential;
mod engine;
mod files;
mod http;
mod ledger;
mod limits;
mod state;
mod stdio;
mod time;

/// The host's own interfaces, in a module of its own: the package is called like this crate.
mod tool {
    wasmtime::component::bindgen!({
        path: "wit",
        world: "imports",
        imports: {
            "portcullis:tool/credential.usable": async | trappable,
            default: trappable,
        },
    });
}

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use hmac::{Hmac, KeyInit as _, Mac as _};
use serde_json::Value as Json;
use sha2::Sha256;
use tokio_util::sync::CancellationToken;
use wasmtime::component::{Component, ComponentExportIndex, InstancePre, Linker, ResourceTable, Val};
use wasmtime::{Engine, Store, Trap, UpdateDeadline, WasmBacktrace};
use wasmtime_wasi::filesystem::WasiFilesystemCtxView;
use wasmtime_wasi::{WasiCtx, WasiCtxView, WasiView};
use wasmtime_wasi_http::{WasiHttpCtx, WasiHttpCtxView, WasiHttpView};

use crate::authority::Authority;
use crate::authority::limits::{Limits, format_bytes};
use crate::credential::Custody;
use crate::descriptor::{Component as Described, Function, Returns, on_deep_stack};
use crate::gate::codes::Code;
use crate::gate::{Permit, PermitError};
use crate::ids::{CallDigest, OperationId, PackageDigest};
use crate::net;
use crate::text::clean_text;
use cache::Cache;
use cpu::Cpu;
use credential::CredentialHandle;
pub use engine::MEMORY_MAX;
use engine::Ticker;
use files::{FileHandles, FileView, HasFiles};
use http::HttpHandle;
use ledger::Ledger;
pub use ledger::{Effect, LimitHit, RunQuota, RunUse};
use limits::{HostMemory, Meter, RESOURCES_MAX};
use state::StateHandle;
pub use state::{Entries, StateCommand, StateSource};
use stdio::Capture;

/// The interfaces that a component may import, without their version: WASI 0.2.
const OFFERED: [&str; 25] = [
    "wasi:cli/environment",
    "wasi:cli/exit",
    "wasi:cli/stdin",
    "wasi:cli/stdout",
    "wasi:cli/stderr",
    "wasi:cli/terminal-input",
    "wasi:cli/terminal-output",
    "wasi:cli/terminal-stdin",
    "wasi:cli/terminal-stdout",
    "wasi:cli/terminal-stderr",
    "wasi:clocks/monotonic-clock",
    "wasi:clocks/wall-clock",
    "wasi:filesystem/preopens",
    "wasi:filesystem/types",
    "wasi:http/outgoing-handler",
    "wasi:http/types",
    "wasi:io/error",
    "wasi:io/poll",
    "wasi:io/streams",
    "wasi:random/random",
    "wasi:random/insecure",
    "wasi:random/insecure-seed",
    "wasi:sockets/network",
    "wasi:sockets/instance-network",
    "wasi:sockets/ip-name-lookup",
];

/// Interfaces that are linked and grant nothing: connections are not among this version's handles.
const INERT: [&str; 4] =
    ["wasi:sockets/tcp", "wasi:sockets/tcp-create-socket", "wasi:sockets/udp", "wasi:sockets/udp-create-socket"];

/// The host's own interfaces, with the version that this host speaks.
const OWN: [(&str, &str); 2] = [("portcullis:tool/state", "0.1.0"), ("portcullis:tool/credential", "0.1.0")];

/// Whether the host offers an import, given with or without its version.
pub fn offers(import: &str) -> bool {
    let own = |(name, version)| {
        import == name || import.strip_prefix(name).and_then(|it| it.strip_prefix('@')) == Some(version)
    };
    if OWN.into_iter().any(own) {
        return true;
    }
    let (name, version) = import.split_once('@').unwrap_or((import, "0.2.0"));
    (OFFERED.contains(&name) || INERT.contains(&name)) && version.starts_with("0.2.")
}

/// The engine with all that calls share.
pub struct Sandbox {
    engine: Engine,
    linker: Linker<State>,
    ticker: Ticker,
    cache: Option<Cache>,
    fingerprint: [u8; 32],
    programs: Mutex<HashMap<PackageDigest, Arc<tokio::sync::OnceCell<Arc<Program>>>>>,
    guard: Arc<net::Guard>,
    folders: Mutex<HashMap<PathBuf, Arc<OwnedFd>>>,
    seed_key: [u8; 32],
    memory: Arc<HostMemory>,
}

/// What stands behind the handles of one call: where they read what the host keeps.
#[derive(Clone, Default)]
pub struct Backing {
    /// The state of the tool; none where the call has none.
    pub state: Option<Arc<dyn StateSource>>,
    /// The credentials of the configuration.
    pub custody: Arc<Custody>,
    /// What the run has left.
    pub quota: RunQuota,
    /// Whether an equal call is to come out the same: its randomness is seeded by the call alone, and no clock runs.
    pub deterministic: bool,
}

/// One compiled package.
pub struct Program {
    pre: InstancePre<State>,
    exports: HashMap<String, ComponentExportIndex>,
}

/// Why a component cannot be run here.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CompileError {
    /// Uses what no supported toolchain needs, or is malformed.
    #[error("it does not validate: {0}")]
    Invalid(String),
    /// Imports what the host does not have.
    #[error("it imports `{0}`, which this host does not offer")]
    Import(String),
    /// The engine refuses it.
    #[error("the engine refuses it: {0}")]
    Engine(String),
}

/// How one call ended.
#[derive(Debug)]
pub enum Ended {
    /// With a value; none where the function returns nothing.
    Returned(Option<Json>),
    /// With the tool's own error.
    ToolError(Json),
    /// By a limit, a trap or a missing permit.
    Stopped {
        /// Which.
        code: Code,
        /// A sentence for the model.
        text: String,
    },
    /// Not at all, by a fault of the host: nothing has run.
    Unstarted(String),
    /// By a fault of the host.
    Fault(String),
}

/// What one call did.
#[derive(Debug)]
pub struct Execution {
    /// How it ended.
    pub ended: Ended,
    /// Captured standard output.
    pub stdout: String,
    /// Captured standard error.
    pub stderr: String,
    /// A symbolised backtrace of the guest, where it trapped.
    pub backtrace: Option<String>,
    /// What the handles did outside.
    pub effects: Vec<Effect>,
    /// What is to be kept in the tool's state; nothing where the call did not succeed.
    pub commands: Vec<StateCommand>,
    /// What the handles refused.
    pub refusals: Vec<String>,
    /// From the permit to the end.
    pub elapsed: Duration,
    /// Time that the guest ran, in steps of a millisecond.
    pub cpu: Duration,
}

/// What one store holds.
struct State {
    table: ResourceTable,
    wasi: WasiCtx,
    files: FileHandles,
    http_ctx: WasiHttpCtx,
    http: HttpHandle,
    kept: StateHandle,
    credentials: CredentialHandle,
    meter: Meter,
    cpu: Cpu,
    cpu_limit: Option<Duration>,
}

impl WasiView for State {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        WasiCtxView { ctx: &mut self.wasi, table: &mut self.table }
    }
}

impl WasiHttpView for State {
    fn http(&mut self) -> WasiHttpCtxView<'_> {
        WasiHttpCtxView { hooks: &mut self.http, table: &mut self.table, ctx: &mut self.http_ctx }
    }
}

fn file_view(state: &mut State) -> FileView<'_> {
    FileView {
        inner: WasiFilesystemCtxView { ctx: state.wasi.filesystem(), table: &mut state.table },
        handles: &mut state.files,
    }
}

/// Links WASI 0.2 interface by interface: everything that a sandbox can name stands here.
fn linker(engine: &Engine) -> wasmtime::Result<Linker<State>> {
    use wasmtime_wasi::cli::{WasiCli, WasiCliView as _};
    use wasmtime_wasi::clocks::{WasiClocks, WasiClocksView as _};
    use wasmtime_wasi::p2::bindings::{cli, clocks, filesystem, random, sockets};
    use wasmtime_wasi::random::WasiRandom;
    use wasmtime_wasi::sockets::{WasiSockets, WasiSocketsView as _};
    use wasmtime_wasi_io::bindings::wasi::io;

    struct HasTable;
    impl wasmtime::component::HasData for HasTable {
        type Data<'a> = &'a mut ResourceTable;
    }
    struct HasKept;
    impl wasmtime::component::HasData for HasKept {
        type Data<'a> = &'a mut StateHandle;
    }
    struct HasCredentials;
    impl wasmtime::component::HasData for HasCredentials {
        type Data<'a> = &'a mut CredentialHandle;
    }
    let mut l = Linker::<State>::new(engine);
    io::error::add_to_linker::<State, HasTable>(&mut l, |s| &mut s.table)?;
    io::poll::add_to_linker::<State, HasTable>(&mut l, |s| &mut s.table)?;
    io::streams::add_to_linker::<State, HasTable>(&mut l, |s| &mut s.table)?;
    cli::environment::add_to_linker::<State, WasiCli>(&mut l, State::cli)?;
    cli::exit::add_to_linker::<State, WasiCli>(&mut l, State::cli)?;
    cli::stdin::add_to_linker::<State, WasiCli>(&mut l, State::cli)?;
    cli::stdout::add_to_linker::<State, WasiCli>(&mut l, State::cli)?;
    cli::stderr::add_to_linker::<State, WasiCli>(&mut l, State::cli)?;
    cli::terminal_input::add_to_linker::<State, WasiCli>(&mut l, State::cli)?;
    cli::terminal_output::add_to_linker::<State, WasiCli>(&mut l, State::cli)?;
    cli::terminal_stdin::add_to_linker::<State, WasiCli>(&mut l, State::cli)?;
    cli::terminal_stdout::add_to_linker::<State, WasiCli>(&mut l, State::cli)?;
    cli::terminal_stderr::add_to_linker::<State, WasiCli>(&mut l, State::cli)?;
    clocks::wall_clock::add_to_linker::<State, WasiClocks>(&mut l, State::clocks)?;
    clocks::monotonic_clock::add_to_linker::<State, WasiClocks>(&mut l, State::clocks)?;
    random::random::add_to_linker::<State, WasiRandom>(&mut l, |s| s.wasi.random())?;
    random::insecure::add_to_linker::<State, WasiRandom>(&mut l, |s| s.wasi.random())?;
    random::insecure_seed::add_to_linker::<State, WasiRandom>(&mut l, |s| s.wasi.random())?;
    filesystem::types::add_to_linker::<State, HasFiles>(&mut l, file_view)?;
    filesystem::preopens::add_to_linker::<State, HasFiles>(&mut l, file_view)?;
    // Python imports these without being asked; the context allows no address and no name.
    let options = wasmtime_wasi::p2::bindings::LinkOptions::default();
    sockets::network::add_to_linker::<State, WasiSockets>(&mut l, &(&options).into(), State::sockets)?;
    sockets::instance_network::add_to_linker::<State, WasiSockets>(&mut l, State::sockets)?;
    sockets::ip_name_lookup::add_to_linker::<State, WasiSockets>(&mut l, State::sockets)?;
    sockets::tcp::add_to_linker::<State, WasiSockets>(&mut l, State::sockets)?;
    sockets::tcp_create_socket::add_to_linker::<State, WasiSockets>(&mut l, State::sockets)?;
    sockets::udp::add_to_linker::<State, WasiSockets>(&mut l, State::sockets)?;
    sockets::udp_create_socket::add_to_linker::<State, WasiSockets>(&mut l, State::sockets)?;
    wasmtime_wasi_http::p2::add_only_http_to_linker_async(&mut l)?;
    tool::portcullis::tool::state::add_to_linker::<State, HasKept>(&mut l, |s| &mut s.kept)?;
    tool::portcullis::tool::credential::add_to_linker::<State, HasCredentials>(&mut l, |s| &mut s.credentials)?;
    Ok(l)
}

impl Sandbox {
    /// An engine for `concurrent` calls at once, which together have `memory_total` bytes of memory. `key` is this user's own; compiled code is kept in `cache`.
    ///
    /// # Errors
    ///
    /// The engine or the cache cannot be set up.
    pub fn new(concurrent: u32, memory_total: u64, key: [u8; 32], cache: Option<&Path>) -> Result<Self, String> {
        let text = |error: wasmtime::Error| format!("the engine cannot be set up: {error:#}");
        let engine = engine::engine(concurrent).map_err(text)?;
        let linker = linker(&engine).map_err(text)?;
        let ticker = Ticker::start(&engine).map_err(|error| format!("no thread for the engine's clock: {error}"))?;
        let cache = match cache {
            Some(folder) => match Cache::open(folder, key) {
                Ok(cache) => Some(cache),
                Err(error) => {
                    return Err(format!("the cache of compiled code cannot be used: {error}"));
                }
            },
            None => None,
        };
        Ok(Self {
            fingerprint: engine::fingerprint(&engine),
            engine,
            linker,
            ticker,
            cache,
            programs: Mutex::default(),
            guard: Arc::default(),
            folders: Mutex::default(),
            seed_key: key,
            memory: HostMemory::new(memory_total),
        })
    }

    /// How much memory the calls have that are under way.
    pub fn memory_used(&self) -> u64 {
        self.memory.used()
    }

    /// Whether compiled code for a package is at hand, so that getting it takes no time worth mentioning.
    pub fn is_compiled(&self, digest: &PackageDigest) -> bool {
        self.cache.as_ref().is_some_and(|cache| cache.has(&self.fingerprint, digest))
    }

    /// The compiled package, from memory, from the cache, or compiled now.
    ///
    /// # Errors
    ///
    /// See [`CompileError`].
    pub async fn program(
        &self,
        digest: PackageDigest,
        described: &Described,
        bytes: impl FnOnce() -> Result<Vec<u8>, String> + Send + 'static,
    ) -> Result<Arc<Program>, CompileError> {
        let cell = {
            let mut programs = self.programs.lock().unwrap_or_else(PoisonError::into_inner);
            programs.entry(digest).or_default().clone()
        };
        let program = cell.get_or_try_init(|| async {
            for import in &described.imports {
                if !offers(import) {
                    return Err(CompileError::Import(import.clone()));
                }
            }
            let component = match self.cache.as_ref().and_then(|c| c.load(&self.engine, &self.fingerprint, &digest)) {
                Some(component) => component,
                None => self.compile(digest, bytes).await?,
            };
            let refuse = |error: wasmtime::Error| CompileError::Engine(clean_text(&format!("{error:#}"), 400));
            let pre = self.linker.instantiate_pre(&component).map_err(refuse)?;
            let mut exports = HashMap::new();
            for function in &described.functions {
                let index = match &function.instance {
                    Some(instance) => component
                        .get_export_index(None, instance.as_str())
                        .and_then(|instance| component.get_export_index(Some(&instance), function.function.as_str())),
                    None => component.get_export_index(None, function.function.as_str()),
                };
                let index = index
                    .ok_or_else(|| CompileError::Engine(format!("the export `{}` is not there", function.name)))?;
                exports.insert(function.name.clone(), index);
            }
            Ok(Arc::new(Program { pre, exports }))
        });
        program.await.cloned()
    }

    async fn compile(
        &self,
        digest: PackageDigest,
        bytes: impl FnOnce() -> Result<Vec<u8>, String> + Send + 'static,
    ) -> Result<Component, CompileError> {
        let engine = self.engine.clone();
        let compiled = tokio::task::spawn_blocking(move || {
            let bytes = bytes().map_err(CompileError::Engine)?;
            // Reading nested types takes stack here too.
            on_deep_stack(|| {
                engine::validate(&bytes).map_err(|error| CompileError::Invalid(clean_text(&error, 400)))?;
                let refuse = |error: wasmtime::Error| CompileError::Engine(clean_text(&format!("{error:#}"), 400));
                let component = Component::new(&engine, &bytes).map_err(refuse)?;
                let code = component.serialize().map_err(refuse)?;
                Ok((component, code))
            })
            .map_err(|error| CompileError::Engine(format!("no thread to compile on: {error}")))?
        });
        let (component, code) =
            compiled.await.map_err(|_| CompileError::Engine("compiling ended unexpectedly".to_owned()))??;
        if let Some(cache) = &self.cache {
            cache.store(&self.fingerprint, &digest, &code);
        }
        Ok(component)
    }

    /// Runs one permitted call: spends the permit, mints its handles, and throws the instance away, whatever happened.
    #[allow(clippy::too_many_arguments, reason = "each is another part of one call")]
    pub async fn execute(
        &self,
        program: &Program,
        function: &Function,
        call: &CallDigest,
        arguments: &[Val],
        permit: Permit,
        backing: Backing,
        cancel: &CancellationToken,
    ) -> Execution {
        let started = Instant::now();
        let ledger = Arc::new(Ledger::new(backing.quota.clone()));
        let operation = permit.operation();
        let authority = match permit.spend(call, started) {
            Ok(authority) => authority,
            Err(error @ (PermitError::OtherCall | PermitError::Expired)) => {
                return unstarted(Ended::Unstarted(error.to_string()));
            }
        };
        let limits = authority.limits.or(&Limits::DEFAULT);
        let stdout = Capture::new(limits.log.unwrap_or(0));
        let stderr = Capture::new(limits.log.unwrap_or(0));
        let state = match self.mint(&authority, &limits, operation, call, &ledger, (&stdout, &stderr), backing) {
            Ok(state) => state,
            Err(error) => {
                return unstarted(Ended::Unstarted(format!("a granted folder cannot be opened: {error}")));
            }
        };
        let cpu = state.cpu.clone();
        let mut store = self.store(state, &limits);
        let wall = limits.wall.unwrap_or(Duration::MAX);
        let ticking = self.ticker.tick();
        let called = tokio::select! {
            biased;
            hit = ledger.until_hit() => Err(wasmtime::Error::from(hit)),
            () = cancel.cancelled() => {
                Err(wasmtime::Error::from(LimitHit::new(Code::Cancelled, "the caller cancelled the call")))
            }
            called = tokio::time::timeout(wall, cpu.charge(call_once(&mut store, program, function, arguments))) => {
                called.unwrap_or_else(|_| Err(wasmtime::Error::from(wall_hit(wall))))
            }
        };
        drop(ticking);
        // A guest may have been told of a limit, and ended before anything else could end it.
        let late = started.elapsed() > wall;
        let called = match (ledger.limit_hit(), called) {
            (Some(hit), _) => Err(wasmtime::Error::from(hit)),
            // The host's own work on behalf of a guest cannot be interrupted, and counts all the same.
            (None, Ok(_)) if late => Err(wasmtime::Error::from(wall_hit(wall))),
            (None, called) => called,
        };
        let refused = store.data().meter.refused.clone();
        let commands = store.data().kept.commands();
        // Whatever the end, nothing of this store is used again.
        drop(store);

        let (ended, backtrace) = match called {
            Ok(value) => (self.returned(function, value, &limits), None),
            Err(error) => {
                let backtrace = error.downcast_ref::<WasmBacktrace>().map(ToString::to_string);
                (stopped(&error, refused, &limits, &stderr.text()), backtrace)
            }
        };
        let commands = if matches!(ended, Ended::Returned(_)) { commands } else { Vec::new() };
        for command in &commands {
            let kind = if command.value.is_some() { "state.set" } else { "state.remove" };
            ledger.effect(kind, format!("{} {}", command.scope, command.key));
        }
        let (effects, refusals) = ledger.take();
        Execution {
            ended,
            commands,
            stdout: stdout.text(),
            stderr: stderr.text(),
            backtrace,
            effects,
            refusals,
            elapsed: started.elapsed(),
            cpu: cpu.total(),
        }
    }

    /// Opens a granted folder, once: what takes its place later is not what was granted.
    ///
    /// # Errors
    ///
    /// It is not there.
    pub fn folder(&self, host: &Path) -> std::io::Result<Arc<OwnedFd>> {
        let mut folders = self.folders.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(folder) = folders.get(host) {
            return Ok(folder.clone());
        }
        let folder = cap_std::fs::Dir::open_ambient_dir(host, cap_std::ambient_authority())?;
        let folder = Arc::new(OwnedFd::from(folder.into_std_file()));
        folders.insert(host.to_owned(), folder.clone());
        Ok(folder)
    }

    #[allow(clippy::too_many_arguments, reason = "each is another part of one call")]
    fn mint(
        &self,
        authority: &Authority,
        limits: &Limits,
        operation: OperationId,
        call: &CallDigest,
        ledger: &Arc<Ledger>,
        (stdout, stderr): (&Capture, &Capture),
        backing: Backing,
    ) -> std::io::Result<State> {
        let kept = StateHandle::mint(authority.state, backing.state, ledger.clone());
        let credentials = CredentialHandle::mint(authority.credentials.clone(), backing.custody.clone());
        let mut builder = WasiCtx::builder();
        builder
            .stdout(stdout.clone())
            .stderr(stderr.clone())
            .allow_tcp(false)
            .allow_udp(false)
            .allow_ip_name_lookup(false)
            .max_random_size(64 << 10);
        for (name, value) in authority.environment.variables() {
            builder.env(name, value);
        }
        time::grant_clock(&mut builder, authority.clock, backing.deterministic);
        if !authority.random {
            let mac = self.seed((!backing.deterministic).then_some(operation), call)?;
            time::seed_random(&mut builder, |purpose| mac.clone().chain_update(purpose).finalize().into_bytes().into());
        }
        let mut table = ResourceTable::new();
        table.set_max_capacity(RESOURCES_MAX);
        let mut authority = authority.clone();
        authority.limits = *limits;
        let files = if authority.files.is_nothing() {
            FileHandles::none(ledger.clone())
        } else {
            FileHandles::mint(&authority, ledger.clone(), |host| self.folder(host))?
        };
        let http = if authority.http.is_nothing() {
            HttpHandle::none(ledger.clone(), self.guard.clone())
        } else {
            HttpHandle::mint(&authority, backing.custody, ledger.clone(), self.guard.clone())
        };
        let mut http_ctx = WasiHttpCtx::new();
        http_ctx.set_field_size_limit(http::FIELDS_MAX);
        Ok(State {
            table,
            wasi: builder.build(),
            files,
            http_ctx,
            http,
            kept,
            credentials,
            meter: Meter::new(limits.memory.unwrap_or(u64::MAX), self.memory.clone()),
            cpu: Cpu::default(),
            cpu_limit: limits.cpu,
        })
    }

    /// What the seeds of a call's generators are made from: the host can make it again, nobody else can guess it. Without an
    /// operation an equal call gets the same.
    fn seed(&self, operation: Option<OperationId>, call: &CallDigest) -> std::io::Result<Hmac<Sha256>> {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.seed_key).map_err(std::io::Error::other)?;
        mac.update(b"portcullis-seed-1");
        mac.update(operation.map(|operation| operation.to_string()).unwrap_or_default().as_bytes());
        mac.update(call.as_bytes());
        Ok(mac)
    }

    fn store(&self, state: State, limits: &Limits) -> Store<State> {
        let mut store = Store::new(&self.engine, state);
        store.limiter(|state| &mut state.meter);
        // A lifted value takes up to one `Val` a byte on the host; what it amounts to is measured again as JSON.
        let output = limits.output.unwrap_or(u64::MAX).max(64 << 10);
        let fuel = output.saturating_mul(size_of::<Val>() as u64).saturating_add(1 << 20);
        store.set_hostcall_fuel(usize::try_from(fuel).unwrap_or(usize::MAX));
        store.set_epoch_deadline(1);
        store.epoch_deadline_callback(|mut context| {
            let state = context.data_mut();
            if let Some(limit) = state.cpu_limit
                && state.cpu.used() > limit
            {
                let text = format!("the limit `cpu` of {} was reached", humantime::format_duration(limit));
                return Err(wasmtime::Error::from(LimitHit::new(Code::LimitCpu, text)));
            }
            Ok(UpdateDeadline::YieldCustom(1, Box::pin(tokio::task::yield_now())))
        });
        store
    }

    fn returned(&self, function: &Function, value: Option<Val>, limits: &Limits) -> Ended {
        let (Some(value), Some(ty)) = (value, function.plan.result()) else {
            return Ended::Returned(None);
        };
        let json = function.plan.encode(ty, &value);
        let size = json.to_string().len() as u64;
        if let Some(limit) = limits.output
            && size > limit
        {
            return Ended::Stopped { code: Code::LimitOutput, text: output_text(limit) };
        }
        match (function.returns, json) {
            (Returns::Fallible, Json::Object(mut map)) => match (map.remove("ok"), map.remove("err")) {
                (Some(Json::Null), _) if function.output_schema().is_none() => Ended::Returned(None),
                (Some(ok), _) => Ended::Returned(Some(ok)),
                (None, Some(error)) => Ended::ToolError(error),
                (None, None) => Ended::Fault("a result is neither ok nor err".to_owned()),
            },
            (_, json) => Ended::Returned(Some(json)),
        }
    }
}

async fn call_once(
    store: &mut Store<State>,
    program: &Program,
    function: &Function,
    arguments: &[Val],
) -> wasmtime::Result<Option<Val>> {
    let instance = program.pre.instantiate_async(&mut *store).await?;
    let export = program
        .exports
        .get(&function.name)
        .and_then(|index| instance.get_func(&mut *store, index))
        .ok_or_else(|| wasmtime::format_err!("the export is not there"))?;
    let mut results = vec![Val::Bool(false); usize::from(function.plan.result().is_some())];
    export.call_async(&mut *store, arguments, &mut results).await?;
    Ok(results.pop())
}

fn unstarted(ended: Ended) -> Execution {
    Execution {
        ended,
        stdout: String::new(),
        stderr: String::new(),
        backtrace: None,
        effects: Vec::new(),
        commands: Vec::new(),
        refusals: Vec::new(),
        elapsed: Duration::ZERO,
        cpu: Duration::ZERO,
    }
}

fn wall_hit(wall: Duration) -> LimitHit {
    LimitHit::new(Code::LimitWall, format!("the limit `wall` of {} was reached", humantime::format_duration(wall)))
}

fn output_text(limit: u64) -> String {
    format!("the limit `output` of {} was reached", format_bytes(limit))
}

/// Gives an error of the engine its code.
fn stopped(error: &wasmtime::Error, refused: Option<LimitHit>, limits: &Limits, stderr: &str) -> Ended {
    let stop = |code, text: String| Ended::Stopped { code, text };
    if let Some(hit) = error.downcast_ref::<LimitHit>() {
        return stop(hit.code, hit.text.clone());
    }
    // The error of an exhausted copy budget has no type of its own.
    if format!("{error:#}").contains("fuel allocated for hostcalls") {
        return stop(Code::LimitOutput, output_text(limits.output.unwrap_or(u64::MAX)));
    }
    if error.downcast_ref::<wasmtime::component::ResourceTableError>().is_some() {
        return stop(Code::LimitMemory, format!("the limit of {RESOURCES_MAX} live resources was reached"));
    }
    if error.downcast_ref::<wasmtime::PoolConcurrencyLimitError>().is_some() {
        return stop(Code::LimitHost, "this host runs as many calls as it can; try again".to_owned());
    }
    if let Some(exit) = error.downcast_ref::<wasmtime_wasi::I32Exit>() {
        return stop(Code::Trapped, format!("the tool ended its own process with status {}", exit.0));
    }
    // A guest that was refused memory aborts; the refusal is the cause.
    if let Some(hit) = refused {
        return stop(hit.code, hit.text);
    }
    let what = match error.downcast_ref::<Trap>() {
        Some(Trap::StackOverflow) => {
            return stop(
                Code::LimitMemory,
                "the limit of the guest's stack was reached (too deep a recursion)".to_owned(),
            );
        }
        Some(Trap::UnreachableCodeReached) => "the tool crashed".to_owned(),
        Some(trap) => format!("the tool crashed ({trap})"),
        None => format!("the tool crashed ({})", clean_text(&error.root_cause().to_string(), 300)),
    };
    match last_lines(stderr) {
        Some(lines) => stop(Code::Trapped, format!("{what}: {lines}")),
        None => stop(Code::Trapped, what),
    }
}

/// The end of what a crashed guest wrote: that is where language runtimes put their error.
fn last_lines(stderr: &str) -> Option<String> {
    const LINES: usize = 12;
    let lines: Vec<&str> = stderr.lines().filter(|line| !line.trim().is_empty()).collect();
    let from = lines.len().saturating_sub(LINES);
    let text = clean_text(&lines[from..].join("\n"), 2000);
    (!text.is_empty()).then_some(text)
}
