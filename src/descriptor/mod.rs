//! What a model may see: descriptors, derived from a component's WIT and never written by hand.
//!
//! A descriptor holds no executable handle and no permission. Everything in it that the component's author wrote is
//! untrusted text, cleaned and capped.

pub mod compare;
pub mod docs;
pub mod schema;
pub mod types;
pub mod wire;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use serde::Serialize;
use serde_json::{Value as Json, json};
use wit_parser::decoding::{DecodedWasm, decode};
use wit_parser::{Function as WitFunction, FunctionKind, InterfaceId, Resolve, WorldItem, WorldKey};

use crate::ids::{DescriptorDigest, ToolId};
use crate::text::clean_text;
use crate::value::{Plan, canonical_bytes};
use docs::NeedsError;
use types::{Builder, Field, Kind, TypeError};

/// Largest component file, in bytes.
pub const COMPONENT_MAX: u64 = 64 << 20;
/// Largest schema of one descriptor, in bytes of JSON.
pub const SCHEMA_MAX: usize = 256 << 10;
/// Largest schemas of all descriptors of one component together, in bytes of JSON.
pub const SCHEMAS_MAX: usize = 4 << 20;
/// Most functions of one component.
pub const FUNCTIONS_MAX: usize = 1_000;

/// What the model reads about one tool.
#[derive(Clone, Debug, Serialize)]
pub struct Descriptor {
    /// `package/function`.
    pub id: ToolId,
    /// The name on the wire, reversible through the snapshot.
    pub wire_name: String,
    /// A short title, where the package declares one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// The documentation that the tool's author wrote.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// JSON Schema 2020-12 of the arguments.
    pub input_schema: Json,
    /// JSON Schema 2020-12 of the result; absent where there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_schema: Option<Json>,
    /// Over all of the above except the wire name.
    pub digest: DescriptorDigest,
}

/// A component as read: its functions, imports and sections. Nothing of it has run.
#[derive(Debug)]
pub struct Component {
    /// What the documentation says of the whole: of the interface `tools`, or of the only one.
    pub description: Option<String>,
    /// The functions that can be tools, by name.
    pub functions: Vec<Function>,
    /// The functions that cannot be tools, with the reason.
    pub refused: Vec<Refused>,
    /// What the component imports, in its own order.
    pub imports: Vec<String>,
    /// The raw `portcullis:needs` record.
    pub needs: Option<Json>,
    /// What was dropped, in words for the operator.
    pub notes: Vec<String>,
}

/// One exported function.
#[derive(Clone, Debug)]
pub struct Function {
    /// `function`, or `interface.function`: the part of the tool id after the `/`.
    pub name: String,
    /// The component's export that holds the function; none where the world exports it directly.
    pub instance: Option<String>,
    /// The function's own WIT name.
    pub function: String,
    /// How to call it.
    pub plan: Arc<Plan>,
    /// What its result means.
    pub returns: Returns,
    /// Cleaned documentation.
    pub description: Option<String>,
    input_schema: Json,
    output_schema: Option<Json>,
}

/// The meaning of a function's result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Returns {
    /// Nothing.
    Nothing,
    /// A value.
    Value,
    /// `result<T, E>` at the top level: `err` is the tool's own error.
    Fallible,
}

/// A function that cannot be a tool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// `function` or `interface.function`.
    pub name: String,
    /// Why, as the end of a sentence.
    pub reason: String,
}

/// Why a file cannot be a package.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// Larger than [`COMPONENT_MAX`].
    #[error("it is {0} bytes, more than the {COMPONENT_MAX} allowed")]
    TooLarge(u64),
    /// Does not start like WebAssembly.
    #[error("it is not WebAssembly")]
    NotWasm,
    /// A core module.
    #[error("it is a core WebAssembly module and not a component")]
    CoreModule,
    /// A WIT package without code.
    #[error("it is a WIT package without code and not a component")]
    WitPackage,
    /// Does not parse or validate.
    #[error("it is no valid component: {0}")]
    Invalid(String),
    /// Its declared needs cannot be used.
    #[error(transparent)]
    Needs(#[from] NeedsError),
    /// Two interfaces with one bare name.
    #[error("it exports two interfaces with the name `{0}`")]
    AmbiguousInterface(String),
    /// Two functions with one name.
    #[error("it exports two functions with the name `{0}`")]
    AmbiguousFunction(String),
    /// Exports nothing that could be a tool.
    #[error("it exports no functions")]
    Empty,
    /// Too much to describe.
    #[error("its schemas are larger than {} MiB together", SCHEMAS_MAX >> 20)]
    TooManySchemas,
    /// Too many functions.
    #[error("it exports more than {FUNCTIONS_MAX} functions")]
    TooManyFunctions,
}

impl ReadError {
    /// What the author or operator can do about it.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::NotWasm => Some("build one with `portcullis build`"),
            Self::CoreModule => {
                Some("build for the target wasm32-wasip2, or wrap the module with `wasm-tools component new`")
            }
            Self::WitPackage => Some("name the built component, not its WIT"),
            Self::Empty => Some("a tool is a function that the component's world exports, itself or in an interface"),
            Self::AmbiguousInterface(_) => Some("rename one of the interfaces"),
            _ => None,
        }
    }
}

/// Reads a component without running anything of it.
///
/// # Errors
///
/// See [`ReadError`].
pub fn read(bytes: &[u8]) -> Result<Component, ReadError> {
    if bytes.len() as u64 > COMPONENT_MAX {
        return Err(ReadError::TooLarge(bytes.len() as u64));
    }
    match (bytes.get(..4), bytes.get(4..8)) {
        (Some(b"\0asm"), Some([_, _, 1, 0])) => {}
        (Some(b"\0asm"), Some([1, 0, 0, 0])) => return Err(ReadError::CoreModule),
        (Some(b"\0asm"), _) => return Err(ReadError::Invalid("its version is unknown".to_owned())),
        _ => return Err(ReadError::NotWasm),
    }
    if docs::nests_too_deeply(bytes) {
        return Err(ReadError::Invalid(format!("it declares more than {} types within each other", docs::NESTING_MAX)));
    }
    let sections = docs::read_sections(bytes)?;
    let invalid = |error: anyhow::Error| ReadError::Invalid(clean_text(&error.root_cause().to_string(), 300));
    let decoded = on_deep_stack(|| decode(&docs::hide_package_docs(bytes)))
        .map_err(|error| ReadError::Invalid(format!("no thread to read it on: {error}")))?;
    let (resolve, world) = match decoded.map_err(invalid)? {
        DecodedWasm::Component(resolve, world) => (resolve, world),
        DecodedWasm::WitPackage(..) => return Err(ReadError::WitPackage),
    };
    let world = &resolve.worlds[world];
    let exports = exported(&resolve, &world.exports)?;
    let mut names: HashMap<InterfaceId, String> = HashMap::new();
    for (id, interface) in &resolve.interfaces {
        if let Some(name) = &interface.name {
            names.insert(id, name.clone());
        }
    }
    for export in &exports {
        if let (Some(id), Some(bare)) = (export.interface, &export.bare) {
            names.insert(id, bare.clone());
        }
    }

    let mut builder = Builder::new(&resolve, &sections.docs, &names);
    let mut shapes = Vec::new();
    let mut refused = Vec::new();
    let mut seen = BTreeSet::new();
    for export in &exports {
        let name = export.tool_name();
        if !seen.insert(name.clone()) {
            return Err(ReadError::AmbiguousFunction(name));
        }
        match shape(&mut builder, export.function) {
            Ok((params, result)) => shapes.push((export, name, params, result)),
            Err(reason) => refused.push(Refused { name, reason }),
        }
    }
    if shapes.is_empty() && refused.is_empty() {
        return Err(ReadError::Empty);
    }
    if shapes.len() > FUNCTIONS_MAX {
        return Err(ReadError::TooManyFunctions);
    }

    let types = Arc::new(builder.finish());
    let mut total = 0;
    let mut functions = Vec::with_capacity(shapes.len());
    for (export, name, params, result) in shapes {
        let (returns, shown) = match result.map(|ty| &types.get(ty).kind) {
            None => (Returns::Nothing, None),
            Some(Kind::Result { ok, .. }) => (Returns::Fallible, *ok),
            Some(_) => (Returns::Value, result),
        };
        let input = schema::of_arguments(&types, &params);
        let output = shown.map(|ty| schema::of_value(&types, ty)).transpose();
        let (input_schema, output_schema) = match (input, output) {
            (Ok(input), Ok(output)) if size(&input).max(output.as_ref().map_or(0, size)) <= SCHEMA_MAX => {
                total += size(&input) + output.as_ref().map_or(0, size);
                (input, output)
            }
            _ => {
                let reason = format!("its schema would be larger than {} KiB", SCHEMA_MAX >> 10);
                refused.push(Refused { name, reason });
                continue;
            }
        };
        if total > SCHEMAS_MAX {
            return Err(ReadError::TooManySchemas);
        }
        let description = sections.docs.of_function(export.bare.as_deref(), &export.function.name).map(str::to_owned);
        functions.push(Function {
            name,
            instance: export.instance.clone(),
            function: export.function.name.clone(),
            plan: Arc::new(Plan::new(types.clone(), params, result)),
            returns,
            description,
            input_schema,
            output_schema,
        });
    }
    functions.sort_by(|a, b| a.name.cmp(&b.name));
    refused.sort_by(|a, b| a.name.cmp(&b.name));
    let imports = world.imports.iter().map(|(key, item)| import_name(&resolve, key, item)).collect();
    let interfaces: BTreeSet<&str> = exports.iter().filter_map(|export| export.bare.as_deref()).collect();
    let description = match interfaces.iter().next() {
        Some(only) if interfaces.len() == 1 => sections.docs.of_interface(only).map(str::to_owned),
        _ => sections.docs.of_interface("tools").map(str::to_owned),
    };
    Ok(Component { description, functions, refused, imports, needs: sections.needs, notes: sections.notes })
}

/// Runs `work` where recursion as deep as [`docs::NESTING_MAX`] allows has room, whatever thread asks for it.
///
/// # Errors
///
/// The operating system has no thread to give.
pub(crate) fn on_deep_stack<T: Send>(work: impl FnOnce() -> T + Send) -> std::io::Result<T> {
    const STACK: usize = 64 << 20;
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("portcullis-read".to_owned()).stack_size(STACK);
        let running = thread.spawn_scoped(scope, work)?;
        Ok(running.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })
}

impl Function {
    /// The descriptor of this function in a package.
    pub fn descriptor(&self, id: ToolId, wire_name: String, title: Option<String>) -> Descriptor {
        let digest = DescriptorDigest::of(&canonical_bytes(&json!({
            "id": id,
            "title": title,
            "description": self.description,
            "input": self.input_schema,
            "output": self.output_schema,
        })));
        Descriptor {
            id,
            wire_name,
            title,
            description: self.description.clone(),
            input_schema: self.input_schema.clone(),
            output_schema: self.output_schema.clone(),
            digest,
        }
    }

    /// JSON Schema 2020-12 of the arguments.
    pub fn input_schema(&self) -> &Json {
        &self.input_schema
    }

    /// JSON Schema 2020-12 of the result.
    pub fn output_schema(&self) -> Option<&Json> {
        self.output_schema.as_ref()
    }
}

fn size(schema: &Json) -> usize {
    schema.to_string().len()
}

struct Export<'r> {
    instance: Option<String>,
    /// The interface's name without its package.
    bare: Option<String>,
    interface: Option<InterfaceId>,
    /// An interface without a package of its own, declared in the world.
    inline: bool,
    function: &'r WitFunction,
}

impl Export<'_> {
    fn tool_name(&self) -> String {
        match &self.bare {
            Some(bare) if !(self.inline && bare == "tools") => {
                format!("{bare}.{}", self.function.name)
            }
            _ => self.function.name.clone(),
        }
    }
}

/// Whether an inline interface is what componentize-py exports for its own start-up. By its whole shape, so that an
/// author's own interface of that name is not hidden.
fn is_of_toolchain(name: &str, interface: &wit_parser::Interface) -> bool {
    let params = ["app-name", "symbols", "stub-wasi"];
    name == "exports"
        && interface.functions.len() == 1
        && interface
            .functions
            .get("init")
            .is_some_and(|init| init.params.iter().map(|param| param.name.as_str()).eq(params))
}

fn exported<'r>(
    resolve: &'r Resolve,
    exports: impl IntoIterator<Item = (&'r WorldKey, &'r WorldItem)>,
) -> Result<Vec<Export<'r>>, ReadError> {
    let mut found = Vec::new();
    let mut bare_names: BTreeMap<String, ()> = BTreeMap::new();
    for (key, item) in exports {
        match item {
            WorldItem::Function(function) => {
                found.push(Export { instance: None, bare: None, interface: None, inline: false, function })
            }
            WorldItem::Interface { id, .. } => {
                let interface = &resolve.interfaces[*id];
                let (instance, bare, inline) = match key {
                    WorldKey::Name(name) => {
                        if is_of_toolchain(name, interface) {
                            continue;
                        }
                        (name.clone(), name.clone(), true)
                    }
                    WorldKey::Interface(key) => {
                        let is_wasi =
                            interface.package.is_some_and(|package| resolve.packages[package].name.namespace == "wasi");
                        if is_wasi {
                            continue;
                        }
                        let bare = interface.name.clone().unwrap_or_default();
                        (resolve.id_of(*key).unwrap_or_else(|| bare.clone()), bare, false)
                    }
                };
                if interface.functions.is_empty() {
                    continue;
                }
                if bare_names.insert(bare.clone(), ()).is_some() {
                    return Err(ReadError::AmbiguousInterface(bare));
                }
                for function in interface.functions.values() {
                    found.push(Export {
                        instance: Some(instance.clone()),
                        bare: Some(bare.clone()),
                        interface: Some(*id),
                        inline,
                        function,
                    });
                }
            }
            WorldItem::Type { .. } => {}
        }
    }
    Ok(found)
}

type Shape = (Vec<Field>, Option<types::TypeRef>);

fn shape(builder: &mut Builder<'_>, function: &WitFunction) -> Result<Shape, String> {
    match function.kind {
        FunctionKind::Freestanding => {}
        FunctionKind::AsyncFreestanding => return Err("it is an async function".to_owned()),
        _ => return Err("it belongs to a resource".to_owned()),
    }
    let mut params: Vec<Field> = Vec::with_capacity(function.params.len());
    for param in &function.params {
        let ty = builder.add(&param.ty).map_err(|error| reason(&format!("argument `{}`", param.name), &error))?;
        if params.iter().any(|p| p.name == param.name) {
            return Err(format!("it has two arguments with the name `{}`", param.name));
        }
        let optional = builder.is_option(ty);
        params.push(Field { name: param.name.clone(), ty, optional, docs: None });
    }
    let result = match &function.result {
        Some(ty) => Some(builder.add(ty).map_err(|error| reason("result", &error))?),
        None => None,
    };
    Ok((params, result))
}

fn reason(place: &str, error: &TypeError) -> String {
    match error {
        TypeError::NotAValue(_) | TypeError::Unsupported(_) => {
            format!("its {place} mentions {error}")
        }
        _ => format!("its {place} has {error}"),
    }
}

fn import_name(resolve: &Resolve, key: &WorldKey, item: &WorldItem) -> String {
    match (key, item) {
        (WorldKey::Name(name), _) => name.clone(),
        (WorldKey::Interface(id), _) => {
            resolve.id_of(*id).unwrap_or_else(|| match resolve.interfaces[*id].name.clone() {
                Some(name) => name,
                None => "an interface without a name".to_owned(),
            })
        }
    }
}
