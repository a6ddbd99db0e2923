//! Reason codes: one table with state, outcome and exit status.

use std::fmt;
use std::str::FromStr;

use serde::{Serialize, Serializer};

/// The state that a call with this code ends in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum State {
    Awaiting,
    Blocked,
    Completed,
    Indeterminate,
}

macro_rules! codes {
    ($($variant:ident $text:literal $state:ident $exit:literal;)*) => {
        /// Why a call did not simply succeed. Stable: programs may compare the texts.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[allow(missing_docs)]
        pub enum Code { $($variant,)* }

        impl Code {
            /// Every code.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The code as it is written everywhere.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text,)* }
            }

            /// The state that a call with this code ends in.
            pub fn state(self) -> State {
                match self { $(Self::$variant => State::$state,)* }
            }

            /// The exit status of the command line.
            pub fn exit(self) -> u8 {
                match self { $(Self::$variant => $exit,)* }
            }
        }
    };
}

codes! {
    ToolNotVisible "TOOL_NOT_VISIBLE" Blocked 3;
    ToolUnavailable "TOOL_UNAVAILABLE" Blocked 3;
    ToolAmbiguous "TOOL_AMBIGUOUS" Blocked 3;
    PackageChanged "PACKAGE_CHANGED" Blocked 3;
    ToolsDisabled "TOOLS_DISABLED" Blocked 3;
    ToolNotDeclared "TOOL_NOT_DECLARED" Blocked 3;
    ToolDenied "TOOL_DENIED" Blocked 3;
    Unenforceable "UNENFORCEABLE" Blocked 3;
    ConsentRefused "CONSENT_REFUSED" Blocked 3;
    ArgumentsInvalid "ARGUMENTS_INVALID" Blocked 2;
    ConsentRequired "CONSENT_REQUIRED" Blocked 4;
    ConsentExpired "CONSENT_EXPIRED" Blocked 4;
    ConsentUsed "CONSENT_USED" Blocked 4;
    TicketExpired "TICKET_EXPIRED" Blocked 4;
    GrantScopeMismatch "GRANT_SCOPE_MISMATCH" Awaiting 4;
    ToolError "TOOL_ERROR" Completed 1;
    StateConflict "STATE_CONFLICT" Completed 1;
    LimitMemory "LIMIT_MEMORY" Completed 5;
    LimitCpu "LIMIT_CPU" Completed 5;
    LimitWall "LIMIT_WALL" Completed 5;
    LimitOutput "LIMIT_OUTPUT" Completed 5;
    LimitFiles "LIMIT_FILES" Completed 5;
    LimitNetwork "LIMIT_NETWORK" Completed 5;
    LimitHost "LIMIT_HOST" Completed 5;
    Trapped "TRAPPED" Completed 5;
    Cancelled "CANCELLED" Completed 5;
    AuthorityMissing "AUTHORITY_MISSING" Completed 5;
    Indeterminate "INDETERMINATE" Indeterminate 6;
    Abandoned "ABANDONED" Indeterminate 6;
    ResultNotKept "RESULT_NOT_KEPT" Indeterminate 6;
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Code {
    type Err = UnknownCode;

    fn from_str(text: &str) -> Result<Self, UnknownCode> {
        Self::ALL.iter().copied().find(|code| code.as_str() == text).ok_or(UnknownCode)
    }
}

/// A text that is none of the codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it is none of the reason codes, such as TOOL_DENIED or LIMIT_WALL")]
pub struct UnknownCode;

impl Serialize for Code {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}
