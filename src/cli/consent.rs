//! `consent`

use std::time::SystemTime;

use serde_json::json;

use super::call::read_arguments;
use super::context::{Context, local_user};
use super::grants::when;
use super::output::{CliError, Reply, bold, bullets, dim, note};
use crate::approval::ConsentToken;
use crate::authority::Risk;
use crate::gate::codes::Code;
use crate::gate::consent::{CONSENT_LIFETIME, Consent};
use crate::gate::{Ballot, Word};
use crate::host::RunOptions;
use crate::ids::Principal;
use crate::text::escape_text;

#[derive(clap::Args)]
pub struct Args {
    /// The tool, PACKAGE/FUNCTION
    tool: String,
    /// The arguments: JSON, @FILE, or - for standard input
    #[arg(long, value_name = "JSON|@FILE|-", default_value = "{}")]
    args: String,
}

pub async fn run(context: &Context, args: &Args) -> Result<Reply, CliError> {
    let arguments = read_arguments(&args.args)?;
    let host = context.host()?;
    let run = host.start(Principal::Local, RunOptions { grants: Some(Vec::new()), ..RunOptions::default() }).await?;
    let explanation = run.explain(&args.tool, &arguments)?;
    let evaluation = &explanation.evaluation;
    let (Some(call), Some(canonical), Word::Allow | Word::Ask) =
        (explanation.call, &explanation.arguments, evaluation.verdict)
    else {
        let vote = evaluation.deciding.map(|source| evaluation.vote(source));
        let code = match vote.map(|vote| vote.ballot) {
            Some(Ballot::Deny(code)) => code,
            _ => Code::ToolDenied,
        };
        let why = vote.map_or("no source allows this call", |vote| vote.reason.as_str());
        let error = CliError::denied(code, format!("a consent answers an ask and never a deny: {why}"));
        return Err(match evaluation.hint() {
            Some(hint) => error.hint(hint),
            None => error,
        });
    };
    let token = ConsentToken::random().map_err(|error| CliError::fault(error.to_string()))?;
    let expires = SystemTime::now() + CONSENT_LIFETIME;
    let consent = Consent {
        token: token.digest(),
        principal: Principal::Local,
        call,
        shown: (*evaluation.authority).clone(),
        expires,
        used_by: None,
        by: format!("command line: {}", local_user()),
    };
    host.journal().keep_consent(&consent, &explanation.tool).map_err(|error| CliError::fault(error.to_string()))?;
    if !context.json {
        let mut text = format!("{} {}\n", bold("This consents to one call of"), bold(explanation.tool.as_str()));
        text.push_str(&format!("{}\n  {}\n", dim("arguments"), escape_text(&canonical.to_string(), 2_000)));
        text.push_str(&format!("{}\n{}", dim("which would get"), bullets(&evaluation.authority.lines(), "no handle")));
        text.push_str(&format!("  {}\n", Risk::of(&evaluation.authority).words()));
        text.push_str(&format!("It holds until {}, once.", when(expires)));
        if evaluation.verdict == Word::Allow {
            text.push_str(" The policy allows this call, so that it is not needed now.");
        }
        note(&text);
    }
    let result = json!({
        "token": token.reveal(),
        "tool": explanation.tool,
        "arguments": canonical,
        "authority": evaluation.authority.to_json(),
        "expires": when(expires),
        "needed": evaluation.verdict == Word::Ask,
    });
    Ok(Reply { exact: true, ..Reply::new(result, token.reveal()) })
}
