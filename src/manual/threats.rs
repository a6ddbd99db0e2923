//! What a hostile tool or caller tries, and the test that shows what it gets.
//!
//! | attack | answer | test |
//! |---|---|---|
//! | `../x`, an absolute path, odd spellings | refused | `hostile::paths_that_lead_outside_are_refused_by_every_trick` |
//! | symlinks to outside, for every operation | refused | `hostile::symlinks_out_of_the_grant_are_refused_for_every_operation` |
//! | links of `/proc` | refused | `hostile::links_of_proc_are_refused` |
//! | a hard link inside to a file outside | a file with more than one link is not opened | `hostile::a_file_with_a_second_hard_link_is_not_opened` |
//! | moving or linking from a read-only grant into a writable one | refused | `hostile::what_is_read_only_cannot_be_moved_or_linked_into_what_is_not` |
//! | truncate, create, set size or times, remove under a read-only grant | refused, unchanged | `hostile::a_read_only_grant_changes_nothing` |
//! | FIFO, socket | refused before anything blocks | `hostile::special_files_are_refused_before_they_can_block` |
//! | NUL, empty, very long, non-UTF-8 names | errors | `hostile::odd_names_are_errors_and_nothing_worse` |
//! | filling the disk | quotas of bytes, entries, open files | `hostile::filling_the_disk_stops_at_the_quotas` |
//! | a link moved to where it leads elsewhere; a special file replaced | refused | `hostile::a_link_cannot_be_moved_to_where_it_leads_elsewhere` |
//! | finding out whether something is there | the same answer either way | `hostile::what_may_not_be_read_is_the_same_whether_it_is_there_or_not` |
//! | a folder with very many entries | not listed into memory | `hostile::a_very_large_folder_is_not_listed_into_memory` |
//! | a granted folder swapped for another | the one that was opened at publication stays; another is not what was trusted | `hostile::a_granted_folder_is_the_one_that_was_opened_at_publication`, `cli::a_granted_folder_that_was_swapped_is_not_what_was_trusted` |
//! | the next file beside the one a call was narrowed to | refused, not listed | `hostile::a_call_narrowed_to_one_file_cannot_reach_or_see_the_next` |
//! | another host, port, scheme, method, path; odd spellings of addresses | refused | `hostile::only_the_granted_host_port_scheme_method_and_path_are_reached` |
//! | private, loopback and metadata addresses, also behind a name | refused unless meant | `hostile::a_private_address_is_refused_unless_it_is_meant` |
//! | another server's certificate, or one of an authority that this system does not trust | no connection | `https::a_certificate_of_a_trusted_authority_for_this_name_is_accepted_and_no_other` |
//! | redirects | come back as a new request | `hostile::a_redirect_comes_back_as_a_new_request` |
//! | own `Host`, `Authorization`, framing headers, CRLF | refused | `hostile::headers_that_the_host_decides_cannot_be_set` |
//! | reading a credential: from memory, variables, a server's echo in header or body, in base64, percent-encoded or hex, in pieces; from errors, records, logs | never in plain | `credentials::an_answer_that_echoes_it_in_any_form_and_any_pieces_is_given_without_it`, `credentials::a_guest_learns_whether_it_can_be_used_and_nothing_else`, `credentials::it_is_in_no_report_no_record_and_no_log` |
//! | an encoded or partial answer, to hide an echo in | refused, and not asked for | `credentials::an_answer_in_which_it_could_not_be_found_is_refused` |
//! | sending a credential elsewhere: by redirect, `Host`, an own header | refused, or sent without it | `credentials::it_goes_to_no_other_host_by_redirect_host_header_or_name` |
//! | using up what a run or the host has, call by call | limits of the run and of the host | `quotas::a_loop_of_small_writes_stops_at_the_bytes_of_its_run`, `quotas::a_run_makes_only_so_many_calls_and_requests`, `quotas::all_calls_together_have_the_memory_of_the_host_and_give_it_back` |
//! | raw TCP, UDP, name lookup | refused | `hostile::sockets_and_names_are_out_of_reach_with_only_http` |
//! | an answer that never ends or drips | byte cap, deadline | `hostile::an_answer_that_never_ends_meets_the_cap_and_one_that_drips_the_deadline` |
//! | endless loops and sleeps | ended, others are served meanwhile | `hostile::loops_and_sleeps_end_and_the_host_serves_others_meanwhile` |
//! | memory, huge results | typed limits | `hostile::memory_stops_at_its_limit` |
//! | floods of output | truncated | `hostile::floods_are_truncated_and_a_crash_keeps_its_last_words` |
//! | memory of the call before | absent | `one_call::every_call_gets_an_operation_of_its_own_and_the_memory_of_none_before_it` |
//! | duplicate keys, lone surrogates, wrong tags, extra keys | refused, not echoed | `one_call::arguments_that_do_not_fit_are_refused_by_path_and_never_echoed`, `mcp_stdio::a_duplicate_key_on_the_wire_is_refused_and_garbage_does_not_end_the_session` |
//! | another component in the place of a published one | `PACKAGE_CHANGED` | `one_call::a_component_that_was_replaced_after_publication_is_not_called`, `one_call::a_component_that_is_replaced_while_a_human_thinks_is_not_called` |
//! | a grant, or a consent, of another run, principal, call, package, arguments; expired, used, used by several at once | answers nothing; of several at once one wins, and the others are told | `permissions::a_run_takes_the_grants_that_it_began_with_and_those_bound_to_it`, `permissions::a_grant_ends_and_is_nobody_elses`, `permissions::uses_are_counted_when_a_decision_commits_and_never_too_often`, `permissions::a_consent_is_bound_to_the_principal_the_package_and_what_was_shown`, `permissions::of_those_that_present_a_consent_at_once_one_wins_and_the_others_are_told` |
//! | an answer that fits another call: other arguments, another package, another run; late, doubled, or a yes where a no was given | refused, and the ticket is as it was; what runs is what was stored, under what was shown met with what holds now | `tickets::a_deny_that_came_since_wins_and_a_changed_package_leaves_the_ticket`, `tickets::what_runs_is_what_was_shown_met_with_what_holds_now`, `tickets::of_four_answers_at_once_one_wins_and_the_others_are_told`, `tickets::a_no_stands_against_a_grant_that_comes_later`, `tickets::a_ticket_expires`, `journal::model` |
//! | killing the host at a moment of one's choice, to have an effect twice or a decision forgotten | no effect is repeated, no decision lost, nothing runs by itself | `crash`, at every commit and at random moments |
//! | presenting an operation with other arguments, or as somebody else | not resolved | `tickets::an_operation_that_is_presented_again_has_its_result_and_no_second_effect` |
//! | records that are edited, removed, moved or cut; a grant or ticket that a disk has changed | found by `audit verify`, with `--head` also at the end; what permits something and is not what was written permits nothing | `audit::what_was_done_to_the_records_shows_and_pruning_does_not_hide_it`, `damage::a_flipped_bit_permits_nothing_more_and_runs_nothing_again` |
//! | filling the disk, or holding the journal | a call stops before it runs | `damage::a_full_disk_stops_calls_before_they_run_and_loses_nothing` |
//! | asking without end | so many tickets of one run | `tickets::a_run_has_only_so_many_calls_waiting` |
//! | state of another package, principal, thread or run; more than there is room for; half of it | out of reach, refused, conflicts as a whole | `state::each_scope_reaches_as_far_as_it_says`, `state::keys_and_values_have_bounds`, `state::of_two_writes_of_one_key_in_a_step_the_later_call_fails`, `state::what_comes_under_the_name_of_a_removed_package_finds_nothing` |
//! | a secret argument in the records | kept only while its call waits, overwritten after | `tickets::a_ticket_that_nobody_answered_ends_with_the_next_start_and_keeps_nothing` |
//! | an approval through the model's own channel: an argument, metadata | no effect | `mcp_stdio::nothing_that_comes_through_the_protocol_permits_a_call` |
//! | an ask that hides a deny, a yes that outlives one | the strictest wins, decided again after every answer | `gate::table`, unit tests; `permissions::a_deny_that_came_while_a_human_thought_wins_over_the_yes` |
//! | a manifest that declares more than the host allows, or what nothing matches | it only tightens; it stops before anything runs | `permissions::a_manifest_tightens_and_never_loosens`, `permissions::a_launch_stops_with_a_list_before_anything_runs` |
//! | a schema or manifest that takes exponential time, reaches the network, or unfolds without end | refused at load | `gate::schema`, `publication::manifest`, unit tests |
//! | keys that were pressed before the question was there | dropped | `prompt::what_was_typed_before_the_question_answers_nothing` |
//! | a path that begins with the folder that was allowed and leads out of it | outside of the scope | `approval::scope`, unit tests |
//! | terminal escapes, bidirectional controls, long texts | cleaned, escaped, capped | `cli::prompt` and `descriptor::docs`, unit tests |
//! | two ids that fold to one wire name | both get names of their own, for good | `descriptor::wire`, unit tests |
//! | a component that takes the reader's stack or the compiler's time | refused by bounds | `cli::what_is_no_component_is_refused_in_one_sentence_and_changes_nothing`, `sandbox::engine`, unit tests |
//! | types that unfold without end | refused, or compared as they stand | `values::types_beyond_the_budget_are_refused_with_the_reason`, `descriptor::compare`, unit tests |
//! | doubled, malformed, foreign sections | dropped with a note, or refused | `descriptor::docs`, unit tests |
//! | a configuration in a folder that somebody sent | not used until it is trusted | `cli::a_configuration_that_was_found_is_used_only_if_it_is_trusted` |
//!
//! # What it does not protect against
//!
//! - A server that hands on the credential that it was sent in a form that is not looked for: reversed, compressed within the body, in
//!   an image. What the HTTP library and TLS copy of a request while it is under way is not wiped.
//! - A fault in the engine itself that lets native code be run. The engine is pinned, its proposals are cut down to what the
//!   supported toolchains need, and there is no second wall around it yet.
//! - What a granted handle is for: a tool that may write a file can write nonsense into it, and one that may send a request can
//!   put what it read into that request. Grant files and network to one package only where you mean the combination.
//! - Side channels. Guests share processors and caches with each other; without a grant their clock is coarse.
//! - A compiler that takes long all the same: what the bounds let through is compiled in this process, with no deadline yet.
//! - A file system that blocks: files are read on the calling thread, so that a folder on a dead network mount holds it.
//! - A hard link that is made to a file after it was opened.
//! - A token of `portcullis consent` in the wrong hands: within its five minutes, whoever runs as you and holds it can make that one
//!   call.
//! - A file system that loses what it said it had synced, or a state folder that is put back to an earlier state: `audit verify --head`
//!   tells, and nothing else does.
//! - A value of an environment variable that changes between a question and its answer: the question shows names, and the call gets the
//!   values of now.
//! - Whoever can write your configuration, your state folder or your cache folder: that is you.
