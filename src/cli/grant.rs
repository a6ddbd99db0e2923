//! `grant`

use std::time::{Duration, SystemTime};

use serde_json::Value as Json;

use super::call::read_arguments;
use super::context::{Context, local_user};
use super::grants;
use super::output::{CliError, Reply, bold};
use crate::authority::template::Only;
use crate::gate::grant::LaunchGrant;
use crate::gate::schema::ArgumentSchema;
use crate::host::Host;
use crate::ids::{CapabilityId, GrantId, Principal, RunId, ToolId};
use crate::value::strict_json;

#[derive(clap::Args)]
pub struct Args {
    /// The tool, PACKAGE/FUNCTION
    tool: ToolId,
    /// For calls whose arguments fit this JSON Schema: JSON, @FILE, or - for standard input. `{}` means any arguments
    #[arg(long, value_name = "JSON|@FILE|-")]
    arguments: String,
    /// For this capability of a manifest; otherwise for runs without a manifest
    #[arg(long, value_name = "ID")]
    capability: Option<CapabilityId>,
    /// To whom
    #[arg(long, value_name = "local|named:NAME", default_value = "local")]
    principal: Principal,
    /// For this run alone, which may have begun already; without it, for runs that begin later
    #[arg(long, value_name = "RUN")]
    run: Option<RunId>,
    /// For how long, such as 30m, 8h or 7d; `never` has no end
    #[arg(long, value_name = "TIME", default_value = "24h", value_parser = lifetime)]
    expires: Lifetime,
    /// For how many calls
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    uses: Option<u64>,
    /// What is left of the authority of a call that uses it, as `only` of a rule: 'files = ["{path}"]'
    #[arg(long, value_name = "TOML")]
    only: Option<String>,
}

/// How long a grant holds; none has no end.
#[derive(Clone, Copy)]
pub struct Lifetime(Option<Duration>);

fn lifetime(text: &str) -> Result<Lifetime, String> {
    const LONGEST: Duration = Duration::from_secs(10 * 366 * 24 * 60 * 60);
    if text == "never" {
        return Ok(Lifetime(None));
    }
    match humantime::parse_duration(text) {
        Ok(time) if time >= Duration::from_secs(1) && time <= LONGEST => Ok(Lifetime(Some(time))),
        _ => Err("a time such as 30m, 8h or 7d, at most 10 years, or `never`".to_owned()),
    }
}

pub fn run(context: &Context, args: &Args) -> Result<Reply, CliError> {
    let host = context.host()?;
    let schema = read_arguments(&args.arguments)?;
    let schema: Json = strict_json(&schema)
        .map_err(|error| CliError::input(format!("`--arguments` is no JSON: {error}")).hint(SCHEMA_HINT))?;
    let arguments =
        ArgumentSchema::new(schema).map_err(|error| CliError::input(error.to_string()).hint(SCHEMA_HINT))?;
    let only: Option<Only> = args.only.as_deref().map(read_only).transpose()?;
    check(&host, args, &arguments, only.as_ref())?;
    let now = SystemTime::now();
    let grant = LaunchGrant {
        id: GrantId::random().map_err(|error| CliError::fault(error.to_string()))?,
        principal: args.principal.clone(),
        capability: args.capability.clone().unwrap_or_else(|| CapabilityId::of_tool(&args.tool)),
        tool: args.tool.clone(),
        arguments,
        only,
        run: args.run,
        expires: args.expires.0.map(|time| now + time),
        uses: args.uses,
        given: now,
        by: format!("command line: {}", local_user()),
    };
    host.journal().give(&grant).map_err(|error| CliError::fault(error.to_string()))?;
    let mut human = format!("{} {}\n", bold("Granted"), grants::sentence(&grant));
    human.push_str("It answers an ask, and never a deny. ");
    human.push_str(match grant.run {
        None => "Runs that begin from now on may use it",
        Some(_) => "That run may use it from now on",
    });
    human.push_str(&format!("; `portcullis revoke {}` takes it back.", grant.id));
    Ok(Reply::new(grants::json(&grant, 0, None), human))
}

const SCHEMA_HINT: &str = r#"--arguments '{"properties": {"path": {"const": "/data/a.txt"}}, "required": ["path"]}'"#;

fn read_only(text: &str) -> Result<Only, CliError> {
    toml::from_str(text).map_err(|error| {
        CliError::input(format!("`--only` cannot be used: {}", error.message())).hint("--only 'files = [\"{path}\"]'")
    })
}

/// A grant for what is not there would look like one and answer nothing.
fn check(host: &Host, args: &Args, arguments: &ArgumentSchema, only: Option<&Only>) -> Result<(), CliError> {
    let published = host.published();
    let Some(tool) = published.snapshot.tool(&args.tool) else {
        return Err(CliError::input(format!("there is no tool `{}` that could be called", args.tool))
            .hint("`portcullis list` names the packages, `portcullis show PACKAGE` their functions"));
    };
    if let Some(capability) = &args.capability
        && capability.is_tool_id()
        && capability.as_str() != args.tool.as_str()
    {
        return Err(CliError::input("`--capability` names a capability of a manifest, not another tool"));
    }
    tool.check_schema(arguments).map_err(|(message, hint)| CliError::input(message).hint(hint))?;
    let templates = only.map(Only::argument_paths).unwrap_or_default();
    let properties = tool.descriptor.input_schema.get("properties");
    for template in templates {
        let name = template.split('.').next().unwrap_or(template);
        if properties.and_then(|properties| properties.get(name)).is_none() {
            return Err(CliError::input(format!("`--only` takes `{name}`, which is no argument of `{}`", args.tool)));
        }
    }
    if let Some(rule) = tool.policy.denies_always() {
        let why = rule.map_or_else(|| "the default".to_owned(), |rule| format!("the rule at line {}", rule.line));
        return Err(CliError::input(format!("`{}` is denied by {why}, and no grant answers a deny", args.tool))
            .hint("change the policy first"));
    }
    Ok(())
}
