//! `grants`

use std::time::SystemTime;

use serde_json::{Value as Json, json};

use super::context::Context;
use super::output::{CliError, Reply, bold, dim};
use crate::gate::grant::LaunchGrant;
use crate::ids::CapabilityId;
use crate::text::escape_text;

#[derive(clap::Args)]
pub struct Args {
    /// Also those that have ended: expired, used up or revoked
    #[arg(long)]
    all: bool,
}

/// Most characters of a schema in a sentence.
const SCHEMA_MAX: usize = 300;

pub fn run(context: &Context, args: &Args) -> Result<Reply, CliError> {
    let host = context.host()?;
    let published = host.published();
    let kept = host.journal().grants().map_err(|error| CliError::fault(error.to_string()))?;
    let mut human = String::new();
    let mut list = Vec::new();
    for it in kept {
        let ended = ended(&it.grant, it.used, it.revoked);
        if ended.is_some() && !args.all {
            continue;
        }
        human.push_str(&format!("{}  {}\n", bold(&it.grant.id.to_string()), sentence(&it.grant)));
        let uses = match it.grant.uses {
            Some(uses) => format!("used {} of {uses} times", it.used),
            None => "uses are not counted".to_owned(),
        };
        let mut facts = vec![uses, format!("given {} by {}", when(it.grant.given), escape_text(&it.grant.by, 100))];
        if published.snapshot.tool(&it.grant.tool).is_none() {
            facts.push("without effect: there is no such tool now".to_owned());
        }
        facts.extend(ended.map(str::to_owned));
        human.push_str(&format!("    {}\n", dim(&facts.join(" · "))));
        list.push(json(&it.grant, it.used, ended));
    }
    if list.is_empty() {
        human.push_str("No launch grant holds. `portcullis grant` gives one; so can an answer on the terminal.");
    }
    Ok(Reply::new(Json::Array(list), human))
}

/// Why a grant answers nothing any more.
fn ended(grant: &LaunchGrant, used: u64, revoked: Option<SystemTime>) -> Option<&'static str> {
    if revoked.is_some() {
        Some("revoked")
    } else if grant.expires.is_some_and(|until| SystemTime::now() >= until) {
        Some("expired")
    } else if grant.uses.is_some_and(|uses| used >= uses) {
        Some("used up")
    } else {
        None
    }
}

/// A grant in one sentence.
pub fn sentence(grant: &LaunchGrant) -> String {
    let mut text = format!("{} for {}", grant.tool, grant.principal);
    if grant.capability != CapabilityId::of_tool(&grant.tool) {
        text.push_str(&format!(", as the capability {}", grant.capability));
    }
    let schema = grant.arguments.source();
    text.push_str(&match schema.as_object().is_some_and(|schema| schema.is_empty()) {
        true => ", with any arguments".to_owned(),
        false => format!(", where the arguments fit {}", escape_text(&schema.to_string(), SCHEMA_MAX)),
    });
    if let Some(only) = &grant.only {
        text.push_str(&format!(", under which only this may be touched: {}", only.lines().join("; ")));
    }
    text.push_str(&match (grant.run, grant.expires) {
        (Some(run), None) => format!(", in the run {run}, with which it ends"),
        (Some(run), Some(at)) => format!(", in the run {run}, until {}", when(at)),
        (None, None) => ", without end".to_owned(),
        (None, Some(at)) => format!(", until {}", when(at)),
    });
    text
}

/// A grant as data.
pub fn json(grant: &LaunchGrant, used: u64, ended: Option<&str>) -> Json {
    json!({
        "id": grant.id,
        "principal": grant.principal.to_string(),
        "capability": grant.capability,
        "tool": grant.tool,
        "arguments": grant.arguments.source(),
        "only": grant.only.as_ref().map(|only| only.to_json()),
        "run": grant.run.map(|run| run.to_string()),
        "expires": grant.expires.map(when),
        "uses": grant.uses,
        "used": used,
        "given": when(grant.given),
        "by": grant.by,
        "ended": ended,
    })
}

/// RFC 3339, in UTC.
pub fn when(time: SystemTime) -> String {
    humantime::format_rfc3339_seconds(time).to_string()
}
