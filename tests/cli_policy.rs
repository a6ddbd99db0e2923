//! The commands that say who may call what: `policy`, `grant`, `grants`, `revoke`, `consent`, and the options of `call`.
#![allow(clippy::unwrap_used, clippy::panic, clippy::disallowed_methods, reason = "tests")]

mod common;

use common::guest;
use common::user::User;
use serde_json::Value as Json;

const Q3: &str = r#"{"path":"/data/public/q3.csv"}"#;
const Q4: &str = r#"{"path":"/data/public/q4.csv"}"#;

/// With the tools `files` and `text`, and these lines of policy.
fn user(policy: &str) -> User {
    let user = User::new();
    std::fs::create_dir_all(user.path("data/public")).unwrap();
    std::fs::write(user.path("data/public/q3.csv"), "north,120").unwrap();
    std::fs::write(user.path("data/public/q4.csv"), "north,131").unwrap();
    for tool in ["files", "text"] {
        std::fs::copy(guest(tool), user.path(&format!("{tool}.wasm"))).unwrap();
    }
    configure(&user, policy);
    for tool in ["files", "text"] {
        user.run(&["update", tool]).ok();
    }
    user
}

fn configure(user: &User, policy: &str) {
    let tools = "[tools.files]\nsource = \"files.wasm\"\nfiles = [{ host = \"./data\", guest = \"/data\" }]\n\n[tools.text]\nsource = \"text.wasm\"\n";
    std::fs::write(user.path("portcullis.toml"), format!("{tools}{policy}")).unwrap();
    user.run(&["trust", "--yes"]).ok();
}

#[test]
fn a_consent_is_a_token_for_one_call() {
    let user = user("");
    let given = user.run(&["consent", "files/read", "--args", Q3]).ok();
    let token = given.stdout.trim();
    assert!(token.starts_with("consent_") && token.lines().count() == 1, "{}", given.stdout);
    assert!(given.stderr.contains("read /data") && given.stderr.contains("once"), "{}", given.stderr);
    user.run(&["call", "files/read", "--args", Q4, "--consent", token])
        .failed(4, "for another call, and was left as it is");
    let explained = user.run(&["explain", "files/read", "--args", Q3, "--consent", token]).ok();
    assert!(explained.stdout.contains("consented to this exact call"), "{}", explained.stdout);
    assert_eq!(user.run(&["call", "files/read", "--args", Q3, "--consent", token]).ok().stdout, "north,120\n");
    user.run(&["call", "files/read", "--args", Q3, "--consent", token]).failed(4, "CONSENT_USED");
    user.run(&["call", "files/read", "--args", Q3, "--consent", "consent_xyz"]).failed(2, "a consent is a token");
    configure(&user, "[[policy.rules]]\ntool = \"files/read\"\nverdict = \"deny\"\nreason = \"closed\"\n");
    user.run(&["consent", "files/read", "--args", Q3])
        .failed(3, "TOOL_DENIED: a consent answers an ask and never a deny");
    user.run(&["consent", "files/reed", "--args", Q3]).failed(3, "TOOL_NOT_VISIBLE");
    user.run(&["consent", "files/read", "--args", "{}"]).failed(2, "ARGUMENTS_INVALID");
}

#[test]
fn a_grant_is_given_listed_used_and_taken_back() {
    let user = user("");
    let scope = r#"{"properties":{"path":{"const":"/data/public/q3.csv"}},"required":["path"]}"#;
    let given = user
        .run(&["--json", "grant", "files/read", "--arguments", scope, "--uses", "2", "--expires", "1h"])
        .ok()
        .json();
    let id = given["result"]["id"].as_str().unwrap().to_owned();
    user.run(&["call", "files/read", "--args", Q3, "--grant", &id]).ok();
    user.run(&["call", "files/read", "--args", Q4]).failed(4, "GRANT_SCOPE_MISMATCH: the grant ");
    let listed = user.run(&["grants"]).ok();
    assert!(listed.stdout.contains(&id) && listed.stdout.contains("used 1 of 2 times"), "{}", listed.stdout);
    let denied = user.run(&["--json", "call", "files/read", "--args", Q4]).json();
    assert_eq!((&denied["ok"], &denied["code"]), (&Json::from(false), &Json::from("GRANT_SCOPE_MISMATCH")));
    assert!(denied["result"]["ticket"].as_str().unwrap().starts_with("t-"), "{denied}");
    user.run(&["call", "files/read", "--args", Q3]).ok();
    user.run(&["call", "files/read", "--args", Q3]).failed(4, "it waits as the ticket t-");
    assert!(user.run(&["grants"]).ok().stdout.contains("No launch grant holds"));
    assert!(user.run(&["grants", "--all"]).ok().stdout.contains("used up"));

    let given =
        user.run(&["--json", "grant", "files/read", "--arguments", "{}", "--only", "files = [\"{path}\"]"]).ok().json();
    let id = given["result"]["id"].as_str().unwrap().to_owned();
    let called = user.run(&["--json", "call", "files/read", "--args", Q3]).ok().json();
    assert_eq!(called["result"]["report"]["authority"], serde_json::json!(["files: read /data/public/q3.csv"]));
    user.run(&["revoke", &id]).ok();
    user.run(&["revoke", &id]).failed(2, "no grant");
    user.run(&["call", "files/read", "--args", Q3]).failed(4, "it waits as the ticket t-");
    user.run(&["call", "files/read", "--args", Q3, "--grant", &id]).failed(4, "has ended");
}

#[test]
fn a_grant_that_could_mean_nothing_is_refused_with_the_fix() {
    let user = user("[[policy.rules]]\ntool = \"files/write\"\nverdict = \"deny\"\n");
    for (args, words) in [
        (&["files/reed", "--arguments", "{}"][..], "there is no tool `files/reed`"),
        (&["files/read"], "--arguments"),
        (&["files/read", "--arguments", "nonsense"], "is no JSON"),
        (&["files/read", "--arguments", "{\"a\":1,\"a\":2}"], "is no JSON"),
        (&["files/read", "--arguments", "{\"tipe\":\"object\"}"], "`tipe` is no keyword"),
        (
            &["files/read", "--arguments", "{\"properties\":{\"pathh\":{}}}"],
            "`pathh`, which is no argument of `files/read`",
        ),
        (&["files/read", "--arguments", "{}", "--only", "disk = []"], "unknown field `disk`"),
        (&["files/read", "--arguments", "{}", "--only", "files = [\"{pathh}\"]"], "`pathh`, which is no argument"),
        (&["files/read", "--arguments", "{}", "--only", "files = [\"/data/../x\"]"], "no empty, `.` or `..`"),
        (&["files/read", "--arguments", "{}", "--expires", "soon"], "a time such as"),
        (&["files/read", "--arguments", "{}", "--uses", "0"], "0 is not in"),
        (&["files/read", "--arguments", "{}", "--principal", "root"], "a principal is"),
        (&["files/read", "--arguments", "{}", "--capability", "files/list"], "not another tool"),
        (&["files/read", "--arguments", "{}", "--run", "1"], "a run id has"),
        (&["files/write", "--arguments", "{}"], "no grant answers a deny"),
    ] {
        let ran = user.run(&[&["grant"], args].concat());
        assert!(ran.exit == 2 && ran.stderr.contains(words), "{args:?}: {} {}", ran.exit, ran.stderr);
    }
    assert!(user.run(&["grants", "--all"]).ok().stdout.contains("No launch grant"));
}

const MANIFEST: &str = "schemaVersion: 1
id: reading
name: Reading
permissions:
  tools:
    - id: public-read
      tool: files/read
      arguments: { properties: { path: { pattern: ^/data/public/ } }, required: [path] }
      consent: always-ask
      required: true
";

#[test]
fn a_call_runs_under_a_manifest() {
    let user = user("[[policy.rules]]\ntool = \"*/*\"\nverdict = \"allow\"\n");
    std::fs::write(user.path("m.yaml"), MANIFEST).unwrap();
    let under = |args: &[&str]| user.run(&[args, &["--manifest", "m.yaml"]].concat());
    under(&["call", "files/read", "--args", Q3]).failed(4, "asks each time for `public-read`");
    under(&["call", "files/list", "--args", r#"{"path":"/data"}"#]).failed(3, "TOOL_NOT_DECLARED");
    let explained = under(&["--json", "explain", "files/read", "--args", Q3]).ok().json();
    let vote = |source: &str| {
        explained["result"]["votes"].as_array().unwrap().iter().find(|vote| vote["source"] == source).cloned().unwrap()
    };
    assert_eq!(
        (vote("manifest")["ballot"].clone(), vote("policy")["ballot"].clone()),
        (Json::from("ask"), Json::from("allow"))
    );
    assert_eq!(explained["result"]["verdict"], "ask");
    // For the capability, under the manifest, and not without it.
    user.run(&["grant", "files/read", "--arguments", "{}", "--capability", "public-read"]).ok();
    under(&["call", "files/read", "--args", Q3]).ok();
    configure(&user, "[policy]\ndefault = \"deny\"\n");
    let stopped = under(&["--json", "call", "files/read", "--args", Q3]);
    let json = stopped.json();
    assert_eq!((stopped.exit, &json["code"]), (3, &Json::from("TOOL_DENIED")));
    assert_eq!(json["error"]["problems"][0]["code"], "TOOL_DENIED");
    std::fs::write(user.path("m.yaml"), MANIFEST.replace("always-ask", "never-ask")).unwrap();
    under(&["call", "files/read", "--args", Q3]).failed(2, "m.yaml:9");
    user.run(&["call", "files/read", "--args", Q3, "--manifest", "none.yaml"]).failed(2, "cannot be read");
}

#[test]
fn a_policy_is_checked_as_a_whole() {
    let user = user(
        r#"
[[policy.rules]]
tool = "files/list"
arguments = { properties = { path = { pattern = "^/data/" } } }
verdict = "allow"

[[policy.rules]]
tool = "text/change"
arguments = { properties = { case = { const = "middle" } }, required = ["case"] }
verdict = "deny"

[[policy.rules]]
tool = "text/*"
verdict = "deny"

[[policy.rules]]
tool = "text/measure"
verdict = "allow"

[[policy.rules]]
tool = "files/read"
arguments = { properties = { path = { pattern = "^/data/" } }, required = ["path"] }
verdict = "allow"

[[policy.rules]]
tool = "files/write"
arguments = { properties = { path = { pattern = "/data/" } }, required = ["path"] }
verdict = "allow"
only = { files = ["{path}"] }
"#,
    );
    let text = user
        .read("portcullis.toml")
        .replace("guest = \"/data\" }", "guest = \"/data\" }, { host = \"./data\", guest = \"/x\" }")
        .replace("\n\n[tools.text]", "\nrandom = true\n\n[tools.text]\nhttp = [{ url = \"https://a.test/*\" }]");
    std::fs::write(user.path("portcullis.toml"), text).unwrap();
    // What is only looked at need not be trusted.
    let checked = user.run(&["--json", "policy", "check"]).ok().json();
    let warnings: Vec<(u64, &str)> = checked["result"]["warnings"]
        .as_array()
        .unwrap()
        .iter()
        .map(|warning| (warning["line"].as_u64().unwrap(), warning["kind"].as_str().unwrap()))
        .collect();
    assert_eq!(
        warnings,
        [
            (1, "wider-than-declared"),
            (1, "wider-than-declared"),
            (6, "wider-than-declared"),
            (10, "accepts-empty"),
            (10, "loose-pattern"),
            (15, "never-matches"),
            (24, "shadowed"),
            (28, "loose-pattern"),
            (33, "loose-pattern"),
        ],
        "{checked}"
    );
    let human = user.run(&["policy", "check"]).ok();
    assert!(
        human.stdout.contains("portcullis.toml:10:") && human.stdout.contains("write `required = [\"path\"]`"),
        "{}",
        human.stdout
    );
    configure(&user, "");
    assert!(user.run(&["policy", "check"]).ok().stdout.contains("nothing to warn of"));
}

#[test]
fn nothing_is_suggested_where_nobody_answered() {
    let user = user("");
    user.run(&["call", "files/read", "--args", Q3]).failed(4, "it waits as the ticket t-");
    assert!(user.run(&["policy", "suggest", "--from-audit"]).ok().stdout.contains("No answer is on record"));
    user.run(&["policy", "suggest"]).failed(2, "--from-audit");
}
