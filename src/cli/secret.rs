//! `secret`: puts credentials into their stores and takes them out, and never shows one.

use std::io::{IsTerminal as _, Read as _};

use serde_json::{Value as Json, json};
use zeroize::Zeroizing;

use super::context::Context;
use super::output::{CliError, Reply, bold, dim, green, red};
use crate::authority::credentials::CredentialName;
use crate::credential::{Custody, CustodyError, SECRET_MAX, Store};

#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Put a credential into its store: from standard input, or asked for without being shown
    Set(Which),
    /// List the credentials of the configuration, and whether each can be used; no value is shown
    List,
    /// Take a credential out of its store
    Remove(Which),
}

#[derive(clap::Args)]
struct Which {
    /// The name of a `[credentials.NAME]`
    name: CredentialName,
}

pub async fn run(context: &Context, args: &Args) -> Result<Reply, CliError> {
    // What was found and is not trusted could name any file to be written.
    let (_, config) = context.trusted_config()?;
    let custody = config.custody;
    match &args.command {
        Command::Set(which) => {
            known(&custody, &which.name)?;
            let value = read(&which.name)?;
            custody.set(&which.name, value).map_err(refused)?;
            Ok(Reply::new(json!({ "name": which.name }), format!("Kept the credential {}.", which.name)))
        }
        Command::Remove(which) => {
            known(&custody, &which.name)?;
            let removed = custody.remove(&which.name).map_err(refused)?;
            let human = match removed {
                true => format!("Removed the credential {}.", which.name),
                false => format!("There was no credential {}.", which.name),
            };
            Ok(Reply::new(json!({ "name": which.name, "removed": removed }), human))
        }
        Command::List => {
            let (mut human, mut list) = (String::new(), Vec::new());
            for (name, store) in custody.stores() {
                let problem = custody.read(name).await.err().map(|error| error.to_string());
                let usable = match &problem {
                    None => green("usable"),
                    Some(problem) => format!("{}: {problem}", red("not usable")),
                };
                human.push_str(&format!("{}  {}  {usable}\n", bold(name.as_str()), dim(&store.to_string())));
                list.push(
                    json!({ "name": name, "store": store.name(), "usable": problem.is_none(), "problem": problem }),
                );
            }
            if list.is_empty() {
                human.push_str("The configuration has no [credentials.NAME].");
            }
            Ok(Reply::new(Json::Array(list), human))
        }
    }
}

fn known<'c>(custody: &'c Custody, name: &CredentialName) -> Result<&'c Store, CliError> {
    let found = custody.stores().find(|(known, _)| *known == name).map(|(_, store)| store);
    found.ok_or_else(|| {
        let lines = format!("[credentials.{name}]\nstore = \"keyring\"");
        CliError::input(CustodyError::Unknown(name.clone()).to_string())
            .hint(format!("add to the configuration\n{lines}"))
    })
}

fn refused(error: CustodyError) -> CliError {
    CliError::input(error.to_string())
}

/// From standard input, or from whoever sits at the terminal: never from the command line, where others can read it.
fn read(name: &CredentialName) -> Result<Zeroizing<Vec<u8>>, CliError> {
    let mut stdin = std::io::stdin();
    if stdin.is_terminal() {
        let asked = dialoguer::Password::new().with_prompt(format!("The credential {name}")).interact();
        let typed = asked.map_err(|error| CliError::input(format!("nothing was read: {error}")))?;
        return Ok(Zeroizing::new(typed.into_bytes()));
    }
    let mut value = Zeroizing::new(Vec::with_capacity(SECRET_MAX + 3));
    stdin.by_ref().take(SECRET_MAX as u64 + 3).read_to_end(&mut value)?;
    Ok(value)
}
