//! The protocol's requests, answered from one run.

use std::sync::Arc;

use rmcp::ErrorData;
use rmcp::handler::server::ServerHandler;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, Implementation, ListToolsResult, PaginatedRequestParams,
    ServerCapabilities, ServerConfig,
};
use rmcp::service::{RequestContext, RoleServer};
use serde_json::Value as Json;

use super::stdio::NotStrict;
use super::view;
use crate::gate::Denial;
use crate::gate::codes::Code;
use crate::host::Run;
use crate::ids::ToolId;

/// Most tools of one page of `tools/list`.
const PAGE: usize = 200;

pub(super) struct Server {
    pub run: Arc<Run>,
    pub not_strict: NotStrict,
}

impl Server {
    fn id(&self, wire_name: &str) -> Option<&ToolId> {
        self.run.snapshot().by_wire_name(wire_name).filter(|id| self.run.shows(id))
    }
}

impl ServerHandler for Server {
    fn get_info(&self) -> ServerConfig {
        let mut info = ServerConfig::new(ServerCapabilities::builder().enable_tools().build());
        info.server_info = Implementation::new("portcullis", env!("CARGO_PKG_VERSION"));
        info.instructions = Some(
            "Tools run in sandboxes. A call may be refused or need a human's answer; the result then says why. Repeating a \
             refused call does not help."
                .to_owned(),
        );
        info
    }

    async fn list_tools(
        &self,
        request: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let from: usize = match request.and_then(|request| request.cursor) {
            Some(cursor) => {
                cursor.parse().map_err(|_| ErrorData::invalid_params("the cursor is not one of this server's", None))?
            }
            None => 0,
        };
        let shown: Vec<_> = self.run.snapshot().tools().filter(|(id, _)| self.run.shows(id)).collect();
        let page = shown.iter().skip(from).take(PAGE).map(|(_, tool)| view::tool(tool)).collect();
        let mut result = ListToolsResult::with_all_items(page);
        let end = from.saturating_add(PAGE);
        result.next_cursor = (end < shown.len()).then(|| end.to_string());
        Ok(result)
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        if let Some(reason) = self.not_strict.take(&context.id) {
            let denial = Denial {
                code: Code::ArgumentsInvalid,
                reason: format!("in the request, {reason}"),
                carries: None,
                hint: None,
            };
            return Ok(view::denied(&denial).into());
        }
        let Some(id) = self.id(&request.name).cloned() else {
            return Err(ErrorData::invalid_params("no tool of this name is offered here", None));
        };
        let arguments = Json::Object(request.arguments.unwrap_or_default());
        match self.run.call_until(id.as_str(), arguments, &context.ct).await {
            Ok(outcome) => {
                let published = self.run.snapshot().tool(&id).map(Arc::as_ref);
                Ok(view::result(published, &outcome).into())
            }
            Err(error) => {
                tracing::error!(%error, tool = %id, "a fault of the host");
                Err(ErrorData::internal_error("a fault of the host; its operator can read more in its log", None))
            }
        }
    }
}
