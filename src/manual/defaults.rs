//! What holds where nothing was said.
//!
//! | what | default | set by |
//! |---|---|---|
//! | a call that no rule matches | ask | `[policy] default` |
//! | the routes of an ask | `portcullis call`: the terminal, then a ticket; `serve --stdio`: a ticket; an embedding program: none, so that an ask is refused, `CONSENT_REQUIRED` | `[approval] routes`, `RunOptions::routes` |
//! | a ticket | waits 24 hours | `[approval] wait` |
//! | tickets of one run that wait | 100 | `[limits] run.pending` |
//! | calls of one run, bytes that they write, requests that they make, in one process | 1,000,000, 1 GiB, 100,000 | `[limits] run` |
//! | memory of all calls of a host | 4 GiB | `[limits] memory_total` |
//! | where a credential goes | the header `authorization`, as `Bearer …`; over https, or to a loopback address | `header`, `format` |
//! | a credential | 8 bytes to 16 KiB of visible ASCII, on one line; a program has 20 seconds to print it | |
//! | a caller that gets a ticket | comes back with it | `call --wait`, `RunOptions::wait` |
//! | an answer to a prompt | no, to this call, for the run | |
//! | a launch grant | of the local user, for runs without a manifest, a day, uses not counted | `grant --principal --capability --run --expires --uses` |
//! | the launch grants of a run | all that its principal had when it began, and those bound to it | `call --grant`, `RunOptions::grants` |
//! | a consent | five minutes, once | |
//! | a capability of a manifest | any arguments, `inherit`, not required, nothing delegated | `arguments`, `consent`, `required`, `delegate` |
//! | arguments and results that are kept | whole, up to 64 KiB each, with a digest; arguments of a call that waits whole, a larger result until its caller has it | `[policy] redact` |
//! | how long records are kept | for good | `prune` |
//! | an `arguments` schema | at most 64 KiB, 32 levels, 10,000 parts with references unfolded, patterns of 16,000 positions with repetitions unfolded | |
//! | a text that is held against a pattern or format | at most 16 KiB; a longer one permits nothing, and escapes no denial | |
//! | a manifest | at most 256 KiB, 256 capabilities, patterns of 16,000 positions in all | |
//! | files, HTTP, environment, credentials, state | none | `[tools.NAME]` |
//! | the state of a tool | keys of 256 bytes, values of 64 KiB, 1 MiB for each scope of a package and principal | |
//! | methods of an HTTP grant | GET, HEAD | `methods` |
//! | a private, loopback or carrier-grade address | refused | `private = true` beside the grant |
//! | a link-local address | refused | `private = true` beside a grant that names the address itself |
//! | access of a file grant | read | `access` |
//! | clock | frozen: the epoch, and a monotonic clock in steps of 10 ms from zero | `clock` |
//! | randomness | generated from a seed that the host derives from the operation with its own key | `random` |
//! | standard input, arguments | empty | |
//! | standard output and error | captured, the first and the last half of `log` bytes each | `limits.log` |
//! | limits of a call | [`Limits::DEFAULT`](crate::authority::limits::Limits::DEFAULT) | `limits` of the package, a rule's `only`, or what the package declares; the smallest holds |
//! | live resources, table elements, stack of a call | 1,000, 100,000, 512 KiB | |
//! | calls at once, calls that wait | 64, 1,024 | `[limits] concurrent`, `queue` |
//! | a commit of a call without effects | survives the process, and within 10 ms the machine; with effects the machine before anything goes on | `[journal] durability` |
//! | a folder that is listed | at most 10,000 entries | |
//! | a guest path | at most 4,096 bytes, 256 segments | |
//! | a path pattern | at most 64 segments, 8 stars in each | |
//! | what a package declares | at most 64 entries of a kind, 64 path patterns | |
//! | a component file | at most 64 MiB, 1,000 tools, 20,000 types, 1,000 types within each other, 150,000 functions, 32 MiB of code, 512 KiB in one function | |
//! | a schema of a descriptor | at most 256 KiB, 4 MiB for a package | |
//! | documentation of one item | at most 4,096 characters, without control and bidirectional characters | |
//! | an arguments document | at most 4 MiB, 1,048,576 values, 127 levels | |
