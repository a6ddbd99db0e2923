//! Configuration → [`Snapshot`]: what a run sees, immutable.

pub mod config;
pub mod manifest;
pub mod review;
mod rules;
pub mod source;
pub mod trust;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;
use std::sync::Arc;

use serde_json::{Map, Value as Json, json};

use crate::authority::{Authority, Risk};
use crate::descriptor::{Descriptor, Function, ReadError, wire};
use crate::gate::policy::ToolPolicy;
use crate::gate::schema::ArgumentSchema;
use crate::ids::{Fingerprint, PackageDigest, PackageName, ToolId};
use crate::registry::lock::Lock;
use crate::registry::{Package, PackageError};
use crate::value::canonical_bytes;
use config::{Config, ConfigError, ToolConfig};

/// A published, immutable set of descriptors, package digests and authority ceilings.
#[derive(Debug)]
pub struct Snapshot {
    /// Over descriptors, digests and ceilings.
    pub fingerprint: Fingerprint,
    /// Every package of the configuration, with its state.
    pub packages: BTreeMap<PackageName, PackageState>,
    tools: BTreeMap<ToolId, Arc<PublishedTool>>,
    wire: HashMap<String, ToolId>,
}

/// A tool before it has a name on the wire.
type Found = (Function, Arc<Package>, Arc<Authority>);

/// One tool of a snapshot.
#[derive(Debug)]
pub struct PublishedTool {
    /// What the model reads.
    pub descriptor: Descriptor,
    /// How it is called.
    pub function: Function,
    /// The package that holds it.
    pub package: Arc<Package>,
    /// What the package declares met with what the host configured.
    pub ceiling: Arc<Authority>,
    /// The rules that can match it.
    pub policy: ToolPolicy,
}

/// Whether the tools of a package can be called.
#[derive(Debug, Clone)]
pub enum PackageState {
    /// Yes.
    Ready(Arc<Package>),
    /// Its bytes are not the pinned ones.
    Changed,
    /// It cannot be used, and why.
    Unavailable(String),
    /// It claims one id twice.
    Ambiguous(String),
}

impl PublishedTool {
    /// Whether a schema over the tool's arguments can mean what it says.
    ///
    /// # Errors
    ///
    /// What is wrong, and what would mend it.
    pub fn check_schema(&self, schema: &ArgumentSchema) -> Result<(), (String, String)> {
        let empty = Map::new();
        let properties = self.descriptor.input_schema.get("properties").and_then(Json::as_object).unwrap_or(&empty);
        rules::check_schema(schema, &[properties], &format!("of `{}`", self.descriptor.id))
    }

    /// What the host says of the tool to clients, computed from its ceiling: never from what the tool claims.
    pub fn hints(&self) -> Risk {
        Risk::of(&self.ceiling)
    }

    /// What the tool's author says of it and of what it needs: claims, which nobody has checked.
    pub fn hearsay(&self) -> Vec<String> {
        let mut claims: Vec<String> = self.descriptor.description.iter().cloned().collect();
        match &self.package.needs {
            None => claims.push("it does not say what it needs".to_owned()),
            Some(needs) => {
                let mut lines = self.package.ceiling.lines();
                lines.extend(needs.unavailable().into_iter().map(str::to_owned));
                claims.push(match lines.is_empty() {
                    true => "it needs nothing: it is pure".to_owned(),
                    false => format!("it needs {}", lines.join("; ")),
                });
            }
        }
        claims
    }
}

impl Snapshot {
    /// Publishes a configuration: reads every package, pins it, and names its tools. `reserved` tells which id a wire name
    /// was served for before.
    ///
    /// # Errors
    ///
    /// The configuration names a function that a package does not have. A package that cannot be used is no error; its
    /// state says why, and the others work.
    pub fn publish(
        path: &Path,
        config: &Config,
        lock: &Lock,
        reserved: impl Fn(&str) -> Option<ToolId>,
    ) -> Result<Self, ConfigError> {
        let mut packages = BTreeMap::new();
        let mut found: BTreeMap<ToolId, Found> = BTreeMap::new();
        for (name, tool) in &config.tools {
            let state = load(name, tool, lock.0.get(name));
            if let PackageState::Ready(package) = &state {
                check_exposed(path, name, tool, package)?;
                let ceiling = Arc::new(package.ceiling.meet(&tool.authority));
                for function in &package.component.functions {
                    if tool.expose.as_ref().is_none_or(|shown| shown.contains(&function.name)) {
                        let id = ToolId::new(name, &function.name);
                        found.insert(id, (function.clone(), package.clone(), ceiling.clone()));
                    }
                }
            }
            packages.insert(name.clone(), state);
        }
        rules::check(path, config, &packages, &found)?;
        let ids: BTreeSet<ToolId> = found.keys().cloned().collect();
        let mut names = wire::assign(&ids, reserved);
        let policies = config.policy.index();
        let mut tools = BTreeMap::new();
        let mut by_wire = HashMap::new();
        for (id, (function, package, ceiling)) in found {
            let wire_name = names.remove(&id).unwrap_or_default();
            by_wire.insert(wire_name.clone(), id.clone());
            let title = package.titles.get(&function.name).cloned();
            let descriptor = function.descriptor(id.clone(), wire_name, title);
            let policy = policies.for_tool(&id, &ceiling);
            tools.insert(id, Arc::new(PublishedTool { descriptor, function, package, ceiling, policy }));
        }
        let ceilings = config.tools.iter().filter_map(|(name, tool)| match packages.get(name) {
            Some(PackageState::Ready(package)) => Some(package.ceiling.meet(&tool.authority).to_json()),
            _ => None,
        });
        let fingerprint = Fingerprint::of(&canonical_bytes(&json!(
            tools
                .values()
                .map(|tool| json!([tool.descriptor.digest, tool.package.digest]))
                .chain(ceilings)
                .collect::<Vec<_>>()
        )));
        Ok(Self { fingerprint, packages, tools, wire: by_wire })
    }

    /// A tool by id.
    pub fn tool(&self, id: &ToolId) -> Option<&Arc<PublishedTool>> {
        self.tools.get(id)
    }

    /// The id that a wire name stands for.
    pub fn by_wire_name(&self, name: &str) -> Option<&ToolId> {
        self.wire.get(name)
    }

    /// Every tool, by id.
    pub fn tools(&self) -> impl Iterator<Item = (&ToolId, &Arc<PublishedTool>)> {
        self.tools.iter()
    }
}

fn load(name: &PackageName, tool: &ToolConfig, pinned: Option<&PackageDigest>) -> PackageState {
    let Some(pinned) = pinned else {
        return PackageState::Unavailable(format!("it is not pinned; run `portcullis update {name}`"));
    };
    let package = match Package::read_pinned(&tool.source, pinned) {
        Ok(Some(package)) => package,
        Ok(None) => return PackageState::Changed,
        Err(PackageError::Component {
            error: error @ (ReadError::AmbiguousFunction(_) | ReadError::AmbiguousInterface(_)),
            ..
        }) => return PackageState::Ambiguous(error.to_string()),
        Err(error) => return PackageState::Unavailable(error.to_string()),
    };
    match unusable(&package, tool.expose.as_ref()) {
        Some(why) => PackageState::Unavailable(why),
        None => PackageState::Ready(Arc::new(package)),
    }
}

/// Why a package cannot be installed as it is: a function that cannot be a tool and is not left out, or an import that the
/// host does not offer.
pub fn unusable(package: &Package, expose: Option<&BTreeSet<String>>) -> Option<String> {
    let shown = |name: &str| expose.is_none_or(|expose| expose.contains(name));
    if let Some(refused) = package.component.refused.iter().find(|refused| shown(&refused.name)) {
        return Some(format!("its function `{}` cannot be a tool: {}", refused.name, refused.reason));
    }
    let missing = package.component.imports.iter().find(|import| !crate::sandbox::offers(import));
    missing.map(|import| format!("it imports `{import}`, which this host does not offer"))
}

fn check_exposed(path: &Path, name: &PackageName, tool: &ToolConfig, package: &Package) -> Result<(), ConfigError> {
    let known: BTreeSet<&str> = package.component.functions.iter().map(|function| function.name.as_str()).collect();
    let exposed = tool.expose.iter().flatten().map(|function| ("expose", function));
    let idempotent = tool.idempotent.iter().map(|function| ("idempotent", function));
    let unknown = exposed.chain(idempotent).find(|(_, function)| !known.contains(function.as_str()));
    match unknown {
        None => Ok(()),
        Some((key, function)) => Err(ConfigError {
            file: path.to_owned(),
            line: Some(tool.line),
            message: format!("`{key}` of [tools.{name}] names `{function}`, which the package does not have"),
            hint: Some(format!("it has: {}", known.into_iter().collect::<Vec<_>>().join(", "))),
        }),
    }
}
