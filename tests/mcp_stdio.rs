//! MCP over standard input and output, with the protocol's own SDK as the client.
#![allow(clippy::unwrap_used, clippy::panic, clippy::disallowed_methods, reason = "tests")]

mod common;

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::Stdio;

use common::World;
use rmcp::model::CallToolRequestParams;
use rmcp::transport::TokioChildProcess;
use rmcp::{RoleClient, ServiceExt as _, service::RunningService};
use serde_json::{Value as Json, json};

const CONFIG: &str = r#"
[tools.hello]
source = "hello.wasm"

[tools.text]
source = "text.wasm"

[tools.files]
source = "files.wasm"
files = [{ host = "./data", guest = "/data", access = "write" }]

[tools.flood]
source = "hostile-flood.wasm"

[policy]
default = "deny"

[[policy.rules]]
tool = "*/*"
verdict = "allow"

[[policy.rules]]
tool = "files/write"
verdict = "deny"
reason = "read only"

[[policy.rules]]
tool = "files/list"
verdict = "ask"
"#;

fn command(world: &World, args: &[&str]) -> std::process::Command {
    program(world, &[&["serve", "--stdio"], args].concat())
}

fn program(world: &World, args: &[&str]) -> std::process::Command {
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_portcullis"));
    command
        .arg("--config")
        .arg(world.path("portcullis.toml"))
        .arg("--state")
        .arg(world.path("state"))
        .args(args)
        .env("XDG_CACHE_HOME", std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("host/xdg-cache"))
        .env("XDG_STATE_HOME", std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("host/xdg-state"))
        .env("XDG_DATA_HOME", std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("host/data"));
    command
}

async fn connect(world: &World, args: &[&str]) -> RunningService<RoleClient, ()> {
    let child = TokioChildProcess::new(tokio::process::Command::from(command(world, args))).unwrap();
    ().serve(child).await.unwrap()
}

async fn call(client: &RunningService<RoleClient, ()>, name: &str, arguments: Json) -> Json {
    let mut request = CallToolRequestParams::new(name.to_owned());
    request.arguments = arguments.as_object().cloned();
    serde_json::to_value(client.call_tool(request).await.unwrap()).unwrap()
}

#[tokio::test]
async fn a_client_sees_the_tools_as_they_are() {
    let world = World::new(CONFIG);
    let client = connect(&world, &[]).await;
    let tools = serde_json::to_value(client.list_all_tools().await.unwrap()).unwrap();
    let tool = |name: &str| {
        tools
            .as_array()
            .unwrap()
            .iter()
            .find(|tool| tool["name"] == name)
            .cloned()
            .unwrap_or_else(|| panic!("{name}: {tools}"))
    };
    let read = tool("files_read");
    assert_eq!(read["title"], "Read a file");
    assert_eq!(read["description"], "Read a text file.");
    assert_eq!(read["inputSchema"]["required"], json!(["path"]));
    assert_eq!(read["outputSchema"]["properties"]["result"], json!({ "type": "string" }));
    assert_eq!(read["annotations"]["readOnlyHint"], false, "what the host grants decides, not what a tool claims");
    assert_eq!(tool("hello_greet")["annotations"]["readOnlyHint"], true);
    assert_eq!(tool("text_measure")["outputSchema"]["type"], "object");
    let names: Vec<_> =
        tools.as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect();
    let mut sorted = names.clone();
    sorted.sort();
    assert_eq!(names.len(), sorted.len());
    assert_eq!(
        names,
        connect(&world, &[])
            .await
            .list_all_tools()
            .await
            .unwrap()
            .iter()
            .map(|t| t.name.to_string())
            .collect::<Vec<_>>()
    );

    let narrowed = connect(&world, &["--tools", "hello/*", "--tools", "files/r*"]).await;
    let names: Vec<_> = narrowed.list_all_tools().await.unwrap().iter().map(|tool| tool.name.to_string()).collect();
    assert_eq!(names, ["files_read", "hello_greet"]);
}

#[tokio::test]
async fn results_errors_and_denials_have_their_shapes() {
    let world = World::new(CONFIG);
    let client = connect(&world, &[]).await;
    let done = call(&client, "files_read", json!({ "path": "/data/public/q3.csv" })).await;
    assert_eq!(done["structuredContent"], json!({ "result": "region,revenue\nnorth,120\n" }));
    assert_eq!(done["content"][0]["text"], "region,revenue\nnorth,120\n");
    assert_ne!(done["isError"], true);
    let measured = call(&client, "text_measure", json!({ "text": "a b" })).await;
    assert!(
        measured["structuredContent"].is_object() && measured["structuredContent"].get("result").is_none(),
        "{measured}"
    );

    let failed = call(&client, "files_read", json!({ "path": "/data/none" })).await;
    assert_eq!(failed["isError"], true);
    assert_eq!(failed["structuredContent"]["error"]["code"], "TOOL_ERROR");

    for (name, arguments, code) in [
        ("files_write", json!({ "path": "/data/x", "text": "" }), "TOOL_DENIED"),
        ("files_read", json!({ "path": 1 }), "ARGUMENTS_INVALID"),
    ] {
        let blocked = call(&client, name, arguments).await;
        assert_eq!(blocked["isError"], true);
        assert_eq!(blocked["structuredContent"]["blocked"]["code"], code, "{blocked}");
        assert!(blocked["content"][0]["text"].as_str().unwrap().starts_with(code));
        assert!(!blocked.to_string().contains("policy.rules"), "what would change it is for the operator: {blocked}");
    }
    let waits = call(&client, "files_list", json!({ "path": "/data" })).await;
    let awaiting = &waits["structuredContent"]["awaiting"];
    assert!(waits["isError"] == true && awaiting["ticket"].as_str().unwrap().starts_with("t-"), "{waits}");
    assert!(!waits.to_string().contains("approve"), "no command line: {waits}");
    assert!(waits["_meta"]["portcullis/operation"].as_str().unwrap().ends_with("/0"), "{waits}");
    let unknown = client.call_tool(CallToolRequestParams::new("nothing")).await;
    assert!(unknown.is_err());
}

#[tokio::test]
async fn guest_output_never_reaches_the_protocol_stream() {
    let world = World::new(CONFIG);
    let client = connect(&world, &[]).await;
    for stream in ["stdout", "stderr"] {
        let done = call(&client, &format!("flood_{stream}"), json!({ "bytes": "300000" })).await;
        assert_ne!(done["isError"], true, "{done}");
    }
    let trapped = call(&client, "flood_panic-with", json!({ "text": "{\"jsonrpc\":\"2.0\"}" })).await;
    assert_eq!(trapped["structuredContent"]["error"]["code"], "TRAPPED");
    let done = call(&client, "hello_greet", json!({ "name": "x" })).await;
    assert_ne!(done["isError"], true);
}

#[test]
fn a_duplicate_key_on_the_wire_is_refused_and_garbage_does_not_end_the_session() {
    let world = World::new(CONFIG);
    let mut child = command(&world, &[]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut ask = |text: &str| -> Json {
        writeln!(input, "{text}").unwrap();
        serde_json::from_str(&output.next().unwrap().unwrap()).unwrap()
    };
    let hello = ask(
        r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}"#,
    );
    assert_eq!(hello["result"]["serverInfo"]["name"], "portcullis");
    assert_eq!(hello["result"]["protocolVersion"], "2025-06-18");
    let called = ask(concat!(
        "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}\n",
        "this is no json\n",
        r#"{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"files_read","arguments":{"path":"/data/public/q3.csv","path":"/data/private/salaries.csv"}}}"#
    ));
    assert_eq!(called["id"], 2);
    assert_eq!(called["result"]["structuredContent"]["blocked"]["code"], "ARGUMENTS_INVALID");
    let called = ask(
        r#"{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"hello_greet","arguments":{"name":"x"}}}"#,
    );
    assert_ne!(called["result"]["isError"], true, "{called}");
    // A flaw in a request that is no call has no say in a later call with the same id.
    ask(r#"{"jsonrpc":"2.0","id":7,"method":"ping","params":{},"params":{}}"#);
    let called = ask(
        r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"hello_greet","arguments":{"name":"x"}}}"#,
    );
    assert_ne!(called["result"]["isError"], true, "{called}");
    drop(input);
    assert!(child.wait().unwrap().success());
}

#[tokio::test]
async fn nothing_that_comes_through_the_protocol_permits_a_call() {
    let world = World::new(CONFIG);
    let host = world.host();
    let asked = host.start(portcullis::Principal::Local, portcullis::RunOptions::default()).await.unwrap();
    let explained = asked.explain("files/list", br#"{"path":"/data"}"#).unwrap();
    let token = portcullis::approval::ConsentToken::random().unwrap();
    let consent = portcullis::gate::consent::Consent {
        token: token.digest(),
        principal: portcullis::Principal::Local,
        call: explained.call.unwrap(),
        shown: (*explained.evaluation.authority).clone(),
        expires: std::time::SystemTime::now() + portcullis::gate::consent::CONSENT_LIFETIME,
        used_by: None,
        by: "test".to_owned(),
    };
    host.journal().keep_consent(&consent, &explained.tool).unwrap();

    let client = connect(&world, &[]).await;
    let token = token.reveal();
    let said = json!({ "consent": token, "portcullis/consent": token, "consents": [token], "approved": true, "grant": "g-000000000000",
                       "principal": "local", "verdict": "allow" });
    let mut request = CallToolRequestParams::new("files_list");
    request.arguments = json!({ "path": "/data" }).as_object().cloned();
    request.meta = Some(serde_json::from_value(said.clone()).unwrap());
    let answered = serde_json::to_value(client.call_tool(request).await.unwrap()).unwrap();
    assert!(answered["structuredContent"]["awaiting"]["ticket"].is_string(), "{answered}");
    // An argument that the tool does not have is no way in either.
    let mut arguments = said;
    arguments["path"] = json!("/data");
    let answered = call(&client, "files_list", arguments).await;
    assert_eq!(answered["structuredContent"]["blocked"]["code"], "ARGUMENTS_INVALID", "{answered}");
    // The consent is as good as it was.
    let options =
        portcullis::RunOptions { consents: vec![token.parse().unwrap()], ..portcullis::RunOptions::default() };
    let run = host.start(portcullis::Principal::Local, options).await.unwrap();
    common::done(run.call("files/list", json!({ "path": "/data" })).await.unwrap());
}

/// A server whose standard error is read, line by line.
struct Served {
    child: std::process::Child,
    input: std::process::ChildStdin,
    output: std::io::Lines<BufReader<std::process::ChildStdout>>,
    notes: std::io::Lines<BufReader<std::process::ChildStderr>>,
    asked: u64,
}

impl Served {
    fn start(mut command: std::process::Command) -> Self {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut served = Self {
            input: child.stdin.take().unwrap(),
            output: BufReader::new(child.stdout.take().unwrap()).lines(),
            notes: BufReader::new(child.stderr.take().unwrap()).lines(),
            child,
            asked: 0,
        };
        served.ask("initialize", json!({ "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": { "name": "t", "version": "1" } }));
        writeln!(served.input, "{}", json!({ "jsonrpc": "2.0", "method": "notifications/initialized" })).unwrap();
        served
    }

    fn ask(&mut self, method: &str, params: Json) -> Json {
        self.asked += 1;
        writeln!(self.input, "{}", json!({ "jsonrpc": "2.0", "id": self.asked, "method": method, "params": params }))
            .unwrap();
        serde_json::from_str(&self.output.next().unwrap().unwrap()).unwrap()
    }

    /// The code that a call is blocked with; none where it ran.
    fn blocked(&mut self, name: &str, arguments: Json) -> Option<String> {
        let answer = self.ask("tools/call", json!({ "name": name, "arguments": arguments }));
        answer["result"]["structuredContent"]["blocked"]["code"].as_str().map(str::to_owned)
    }

    /// Asks the server to read its configuration again, and waits until it says how that went.
    fn reload(&mut self) -> String {
        let id = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(id, rustix::process::Signal::HUP).unwrap();
        self.notes.next().unwrap().unwrap()
    }
}

#[test]
fn a_hangup_publishes_the_configuration_again() {
    let world = World::new(CONFIG);
    let mut served = Served::start(command(&world, &[]));
    let serving = served.notes.next().unwrap().unwrap();
    assert!(serving.contains("serving the run "), "{serving}");
    let read = || json!({ "path": "/data/public/q3.csv" });
    assert_eq!(served.blocked("files_read", read()), None);
    let deny = "\n[[policy.rules]]\ntool = \"files/read\"\nverdict = \"deny\"\n";
    world.configure(&format!("{CONFIG}{deny}"));
    assert_eq!(served.blocked("files_read", read()), None, "nothing is read before it is asked for");
    assert!(served.reload().contains("was read again"));
    assert_eq!(served.blocked("files_read", read()).as_deref(), Some("TOOL_DENIED"));

    std::fs::write(world.path("portcullis.toml"), format!("{CONFIG}\n[[policy.rules]]\ntool = \"files/read")).unwrap();
    let said = served.reload();
    assert!(said.contains("nothing has changed") && said.contains("portcullis.toml:"), "{said}");
    assert_eq!(served.blocked("files_read", read()).as_deref(), Some("TOOL_DENIED"));
    world.configure(CONFIG);
    served.reload();
    assert_eq!(served.blocked("files_read", read()), None, "back to what the run began with");
    drop(served.input);
    assert!(served.child.wait().unwrap().success());
}

#[test]
fn a_configuration_that_is_not_trusted_is_not_published() {
    let user = common::user::User::with_hello();
    user.run(&["add", "hello.wasm"]).ok();
    user.allow_all();
    let mut served = Served::start(user.command(&["serve", "--stdio"]));
    served.notes.next().unwrap().unwrap();
    assert_eq!(served.blocked("hello_greet", json!({ "name": "x" })), None);
    let text = user.read("portcullis.toml");
    std::fs::write(
        user.path("portcullis.toml"),
        format!("{text}\n[[policy.rules]]\ntool = \"*/*\"\nverdict = \"deny\"\n"),
    )
    .unwrap();
    let said = served.reload();
    assert!(said.contains("is not trusted") && said.contains("nothing has changed"), "{said}");
    assert_eq!(served.blocked("hello_greet", json!({ "name": "x" })), None);
    user.run(&["trust", "--yes"]).ok();
    served.reload();
    assert_eq!(served.blocked("hello_greet", json!({ "name": "x" })).as_deref(), Some("TOOL_DENIED"));
    drop(served.input);
    assert!(served.child.wait().unwrap().success());
}

#[tokio::test]
async fn an_answer_from_another_process_reaches_the_client_that_asks_again() {
    let world = World::new(CONFIG);
    let client = connect(&world, &[]).await;
    let list = || json!({ "path": "/data/public" });
    let asked = call(&client, "files_list", list()).await;
    let ticket = asked["structuredContent"]["awaiting"]["ticket"].as_str().unwrap();
    let operation = asked["_meta"]["portcullis/operation"].clone();
    let again = call(&client, "files_list", list()).await;
    assert_eq!(again["structuredContent"], asked["structuredContent"], "it joins the ticket that waits");
    let approved = program(&world, &["approve", ticket]).output().unwrap();
    assert!(approved.status.success(), "{approved:?}");
    let listed = call(&client, "files_list", list()).await;
    assert_eq!(listed["structuredContent"]["result"], json!(["q3.csv", "q4.csv"]), "{listed}");
    assert_eq!(listed["_meta"]["portcullis/operation"], operation, "the call that was asked about");
    let next = call(&client, "files_list", list()).await;
    assert!(next["structuredContent"]["awaiting"].is_object(), "another one is asked about again: {next}");
}
