//! What each source says, in words. Rendered only for whoever reads it: an allow renders nothing.

use serde_json::Value as Json;

use super::codes::Code;
use super::consent::Worth;
use super::grant::Miss;
use super::manifest::ConsentMode;
use super::policy::{PolicyVote, Rule, RuleVerdict};
use super::{Availability, Ballot, Decision, Denial, Source, Vote};
use crate::authority::Authority;
use crate::authority::url_pattern::NormalUrl;
use crate::ids::ToolId;

/// Reason, and hint for the operator.
type Words = (String, Option<String>);

fn plain(reason: impl Into<String>) -> Words {
    (reason.into(), None)
}

impl Decision<'_> {
    /// The vote of one source.
    pub fn vote(&self, source: Source) -> Vote {
        let (reason, hint) = match source {
            Source::Visibility => self.visibility(),
            Source::Registry => self.registry(),
            Source::Narrowing => self.narrowing(),
            Source::Arguments => self.arguments(),
            Source::Manifest => self.manifest(),
            Source::Policy => self.policy(),
            Source::Enforceability => plain(self.facts.unenforceable.unwrap_or("every granted axis can be enforced")),
            Source::Grant => self.grant(),
            Source::Consent => self.consent(),
            Source::Human => self.human(),
        };
        let carries = (source == Source::Grant).then(|| self.carries()).flatten();
        Vote { source, ballot: self.ballot(source), reason, carries, hint }
    }

    /// Why the call is denied.
    pub(super) fn denial(&self) -> Denial {
        match self.deciding().map(|source| self.vote(source)) {
            Some(Vote { ballot: Ballot::Deny(code), reason, hint, .. }) => Denial { code, reason, carries: None, hint },
            _ => Denial {
                code: Code::ToolDenied,
                reason: "no source allows this call".to_owned(),
                carries: None,
                hint: None,
            },
        }
    }

    /// Why a human is asked, what the ask carries, and what would make it unnecessary.
    pub(super) fn question(&self) -> (String, Option<Code>, String) {
        let asks = |source: &Source| self.ballot(*source) == Ballot::Ask;
        let asking: Vec<Vote> = Source::ALL.into_iter().filter(asks).map(|source| self.vote(source)).collect();
        let mut reasons: Vec<String> = asking.iter().map(|vote| vote.reason.clone()).collect();
        let carries = self.carries();
        if let Some(code) = carries {
            reasons.push(format!("{code}: {}", self.grant().0));
        }
        if self.consent.is_some() {
            reasons.push(self.consent().0);
        }
        let hints: Vec<String> = asking.into_iter().filter_map(|vote| vote.hint).collect();
        (reasons.join("; "), carries, hints.join("\n"))
    }

    fn carries(&self) -> Option<Code> {
        // One that has ended is no news to whoever is asked.
        matches!(self.grant, Some(Err((_, Miss::Arguments | Miss::Capability)))).then_some(Code::GrantScopeMismatch)
    }

    fn visibility(&self) -> Words {
        let tool = self.facts.tool;
        if self.facts.visible {
            return plain("the run's snapshot shows the tool");
        }
        let reason = if tool.is_known() {
            format!("the tool `{tool}` is not among the tools of this run")
        } else {
            "a tool is named package/function, or package/interface.function".to_owned()
        };
        let hint = "`portcullis list` names the packages, `portcullis show PACKAGE` their functions; `expose` and `--tools` hide some";
        (reason, Some(hint.to_owned()))
    }

    fn registry(&self) -> Words {
        let tool = self.facts.tool;
        let package = tool.package();
        match self.facts.registry {
            None => plain("the tool is not visible, so no package was looked for"),
            Some(Availability::One(digest)) => plain(format!("one package provides it, sha256 {}", digest.short())),
            Some(Availability::Unavailable(why)) => (
                format!("the package `{package}` cannot be used: {why}"),
                Some(format!(
                    "`portcullis show {package}` tells more; `portcullis update {package}` pins what is there"
                )),
            ),
            Some(Availability::Ambiguous(why)) => (
                format!("more than one implementation claims `{tool}`: {why}"),
                Some(format!("hide one of them with `expose` under [tools.{package}]")),
            ),
            Some(Availability::Changed) => (
                format!("the package `{package}` is not the one that was published"),
                Some(format!(
                    "`portcullis show {package} --diff` shows what is different; `portcullis update {package}` pins what is there now"
                )),
            ),
        }
    }

    fn narrowing(&self) -> Words {
        match (self.ballot(Source::Narrowing), self.facts.narrowing) {
            (Ballot::Deny(_), _) => plain("all tools are disabled for this run, or for the plugin that asks"),
            (_, Some(_)) => plain("the run is narrowed, and does not disable tools"),
            (_, None) => plain("the run is not narrowed"),
        }
    }

    fn arguments(&self) -> Words {
        match self.facts.arguments {
            None => plain("the tool is not known, so its arguments have no types"),
            Some(Ok(_)) => plain("the arguments fit the tool's types"),
            Some(Err(what)) => {
                let hint = format!("`portcullis show {} --json` prints the schema", self.facts.tool.package());
                (what.to_owned(), Some(hint))
            }
        }
    }

    fn manifest(&self) -> Words {
        let Some(manifest) = self.facts.manifest else {
            return plain("the run has no manifest");
        };
        let names = |mode: Option<ConsentMode>| {
            let meant = self.capabilities.iter().filter(|it| mode.is_none_or(|mode| it.consent == mode));
            meant.map(|it| format!("`{}`", it.id)).collect::<Vec<_>>().join(", ")
        };
        let (tool, id) = (self.facts.tool, &manifest.id);
        match self.ballot(Source::Manifest) {
            Ballot::Deny(_) => {
                let declared = manifest.of_tool(tool).map(|it| format!("`{}` at line {}", it.id, it.line));
                let declared = declared.collect::<Vec<_>>().join(", ");
                if declared.is_empty() {
                    let hint = format!("`permissions.tools` of the manifest `{id}` names the tools that it calls");
                    (format!("the manifest `{id}` does not declare `{tool}`"), Some(hint))
                } else {
                    let reason = format!("the manifest `{id}` does not declare `{tool}` with these arguments");
                    (reason, Some(format!("it declares it with others: {declared}")))
                }
            }
            Ballot::Ask => {
                plain(format!("the manifest `{id}` asks each time for {}", names(Some(ConsentMode::AlwaysAsk))))
            }
            _ if self.capabilities.is_empty() => {
                plain(format!("the call is not known well enough to match the manifest `{id}`"))
            }
            _ => plain(format!("the manifest `{id}` declares it: {}", names(None))),
        }
    }

    fn policy(&self) -> Words {
        let Some(canonical) = self.facts.canonical().filter(|_| !self.policies.is_empty()) else {
            return plain("the call is not known well enough to match rules");
        };
        let strictest = self.policies.iter().map(PolicyVote::verdict).max();
        // The newest comes first; the one at the beginning has a say only where it is stricter.
        let Some(index) = self.policies.iter().position(|vote| Some(vote.verdict()) == strictest) else {
            return plain("the call is not known well enough to match rules");
        };
        let (mut reason, hint) = policy_words(&self.policies[index], self, canonical);
        if index > 0 {
            reason.push_str(" (as the policy was when this run began; a new run sees the policy of now)");
        }
        (reason, hint)
    }

    fn grant(&self) -> Words {
        match (self.grant, self.facts.canonical()) {
            (Some(Ok(standing)), _) => {
                let grant = &standing.grant;
                let uses = grant
                    .uses
                    .map(|uses| format!(", use {} of {uses}", standing.used + u64::from(!standing.used_here)));
                plain(format!("the grant {} covers it{}", grant.id, uses.unwrap_or_default()))
            }
            (Some(Err((standing, miss))), Some(canonical)) => plain(miss.reason(&standing.grant, canonical)),
            _ if !self.is_open() => plain("there is no ask to answer"),
            _ => plain("no grant is for this tool"),
        }
    }

    fn consent(&self) -> Words {
        let again = || Some("`portcullis consent` gives another".to_owned());
        match self.consent {
            Some((consent, Worth::Valid)) => plain(format!("{} consented to this exact call", consent.by)),
            Some((_, Worth::Used)) => ("the consent was used before, and holds once".to_owned(), again()),
            Some((_, Worth::Expired)) => ("the consent has expired".to_owned(), again()),
            Some((_, Worth::OtherCall)) => {
                plain("the consent that was given is for another call, and was left as it is")
            }
            None if !self.is_open() => plain("there is no ask to answer"),
            None => plain("none was given beforehand"),
        }
    }

    fn human(&self) -> Words {
        match (self.ballot(Source::Human), self.facts.answer) {
            (Ballot::Allow, Some(answer)) => {
                plain(format!("{} said yes to this exact call ({})", answer.who, answer.route))
            }
            (Ballot::Deny(_), _) => plain("a human said no to this call before, in this run"),
            _ => plain("nobody was asked about this exact call"),
        }
    }

    /// Whether an ask came to those who answer, before they did.
    fn is_open(&self) -> bool {
        let base = || Source::ALL.into_iter().filter(|source| !source.answers()).map(|source| self.ballot(source));
        base().any(|ballot| ballot == Ballot::Ask) && !base().any(|ballot| matches!(ballot, Ballot::Deny(_)))
    }
}

fn policy_words(vote: &PolicyVote<'_>, decision: &Decision<'_>, arguments: &Json) -> Words {
    let tool = decision.facts.tool;
    let rules: Vec<&Rule> = vote.rules().collect();
    let places =
        || rules.iter().map(|rule| format!("`{}` at line {}", rule.tool, rule.line)).collect::<Vec<_>>().join(", ");
    let missed: Vec<String> =
        rules.iter().filter_map(|rule| rule.only.as_ref()).flat_map(|only| only.misses(arguments)).collect();
    let missed = if missed.is_empty() { String::new() } else { format!("; but {}", missed.join(", ")) };
    let why = rules.iter().find_map(|rule| rule.reason.as_deref()).map(|why| format!(": {why}")).unwrap_or_default();
    let suggested = || decision.facts.configured.map(|configured| suggestion(tool, None, None, arguments, configured));
    match vote.verdict() {
        RuleVerdict::Allow => plain(format!("allowed by the rule {}{missed}", places())),
        RuleVerdict::Ask if rules.is_empty() => {
            (format!("no rule matches `{tool}` with these arguments, and the default is to ask"), suggested())
        }
        // A rule that allows would not win over an equal one that asks.
        RuleVerdict::Ask => (
            format!("the rule {} asks{why}{missed}", places()),
            Some(format!("the rule is {}; set its `verdict` to \"allow\" there", places())),
        ),
        RuleVerdict::Deny if rules.is_empty() => {
            (format!("no rule allows `{tool}` with these arguments, and the default is to deny"), suggested())
        }
        RuleVerdict::Deny => (
            format!("a rule of this host denies `{tool}` with these arguments{why}"),
            Some(format!("the rule is {}; a deny wins over every allow, so change or remove it there", places())),
        ),
    }
}

/// The lines of configuration that would allow this call: for the arguments that fit `schema`, and under `only`, both inline
/// tables. Without `only`, as narrow as the arguments make it.
pub(crate) fn suggestion(
    tool: &ToolId,
    schema: Option<&str>,
    only: Option<&str>,
    arguments: &Json,
    configured: &Authority,
) -> String {
    let schema = schema.map(|schema| format!("\narguments = {schema}")).unwrap_or_default();
    let only = match only {
        Some(only) => format!("\nonly = {only}"),
        None => suggested_only(arguments, configured),
    };
    format!("[[policy.rules]]\ntool = \"{tool}\"{schema}\nverdict = \"allow\"{only}")
}

fn suggested_only(arguments: &Json, configured: &Authority) -> String {
    let mut parts = Vec::new();
    let names_where = |test: &dyn Fn(&str) -> bool| -> Vec<String> {
        arguments
            .as_object()
            .into_iter()
            .flatten()
            .filter(|(_, value)| value.as_str().is_some_and(test))
            .map(|(name, _)| format!("\"{{{name}}}\""))
            .collect()
    };
    if !configured.files.is_nothing() {
        let named = names_where(&|text| text.parse().is_ok_and(|path| configured.files.access(&path).is_some()));
        let folders = || configured.files.mounts().iter().map(|m| format!("\"{}/**\"", m.guest)).collect();
        let entries = if named.is_empty() { folders() } else { named };
        parts.push(format!("files = [{}]", entries.join(", ")));
    }
    if !configured.http.is_nothing() {
        let named = names_where(&|text| text.parse::<NormalUrl>().is_ok());
        if !named.is_empty() {
            parts.push(format!("http = [{}]", named.join(", ")));
        }
    }
    if parts.is_empty() { String::new() } else { format!("\nonly = {{ {} }}", parts.join(", ")) }
}
