// The list of what can be broken in the reference driver, one at a time, to see that the conformance suite notices.
// Each row names a mutation and the case that must fail; REFERENCE_ASYNC_MUTATION chooses one when the plugin is
// loaded.
#pragma once

#include <cstdlib>
#include <cstring>

// clang-format off
#define REFERENCE_MUTATIONS(X)                                                                   \
  /* life */                                                                                     \
  X(probe_starts_a_thread, "probe.starts_no_thread")                                             \
  X(probe_counts_no_device, "probe.answers_consistently")                                        \
  X(probe_gives_an_unknown_state, "probe.answers_consistently")                                  \
  X(probe_changes_its_answer, "probe.same_answer_twice")                                         \
  X(probe_crashes, "probe.answers_consistently")                                                 \
  X(probe_fails, "probe.answers_consistently")                                                   \
  X(settings_are_refused, "settings.may_have_their_fallbacks")                                   \
  X(initialize_exits, "life.opens")                                                              \
  X(initialize_hangs, "life.opens")                                                              \
  X(initialize_crashes, "life.opens")                                                            \
  X(initialize_finds_nothing, "life.opens")                                                      \
  X(shutdown_is_for_ever, "devices.open_again_after_closing")                                    \
  X(closing_a_device_is_for_ever, "devices.open_again_after_closing")                            \
  X(opening_a_device_finds_nothing, "life.opens")                                                \
  X(children_crash, "fork.child_of_an_open_driver")                                              \
  X(shutdown_fails, "life.closes_without_error")                                                 \
  X(shutdown_crashes, "life.closes_without_error")                                               \
  X(shutdown_hangs, "life.closes_without_error")                                                 \
  X(closing_a_device_fails, "life.closes_without_error")                                         \
  /* facts and devices */                                                                        \
  X(device_count_is_not_what_probe_said, "devices.count_is_what_probe_said")                     \
  X(facts_change, "devices.facts_do_not_change")                                                 \
  X(devices_have_no_name, "devices.facts_are_sane")                                              \
  X(the_alignment_is_no_power_of_two, "devices.facts_are_sane")                                  \
  X(one_allocation_may_exceed_the_total, "devices.facts_are_sane")                               \
  X(the_second_device_has_no_name, "devices.facts_are_sane")                                     \
  X(the_alignment_is_zero, "memory.alloc_is_aligned_and_apart")                                  \
  X(capabilities_nobody_knows_are_promised, "devices.facts_are_sane")                            \
  X(dtypes_nobody_knows_are_storable, "devices.facts_are_sane")                                  \
  X(compute_units_are_negative, "devices.facts_are_sane")                                        \
  X(allocations_say_another_size, "memory.alloc_describes_what_it_gives")                        \
  X(bad_indexes_have_facts, "devices.refuses_bad_index")                                         \
  X(bad_indexes_open, "devices.refuses_bad_index")                                               \
  X(bad_indexes_are_internal_errors, "devices.refuses_bad_index")                                \
  X(errors_leave_a_status_behind, "devices.refuses_bad_index")                                   \
  X(the_second_device_does_not_open, "devices.every_device_opens")                               \
  X(the_second_device_needs_the_first, "many_devices.each_by_itself")                            \
  X(new_threads_use_the_first_device, "many_devices.each_on_a_new_thread")                       \
  X(memory_is_said_to_be_the_first_devices, "many_devices.each_beside_the_first")                \
  X(fills_on_other_devices_are_lost, "many_devices.each_beside_the_first")                       \
  X(closing_a_device_wipes_the_others, "many_devices.each_beside_the_first")                     \
  X(device_synchronize_waits_for_all_devices, "many_devices.a_held_device_holds_no_other")       \
  X(device_synchronize_waits_on_the_first_device_only, "many_devices.synchronizing_a_device_waits_for_its_own_streams")\
  X(free_memory_is_the_first_devices, "many_devices.free_memory_is_each_devices_own")            \
  X(times_across_devices, "many_devices.elapsed_time_needs_one_device")                          \
  X(devices_share_a_uuid, "many_devices.have_their_own_uuid")                                    \
  X(waits_across_devices_do_nothing, "many_devices.a_stream_waits_for_another_devices_event")    \
  X(direct_copies_change_their_answer, "many_devices.direct_copies_are_answered_alike")           \
  X(direct_copies_do_nothing, "many_devices.direct_copies_of_any_size")                          \
  X(small_direct_copies_are_lost, "many_devices.direct_copies_of_any_size")                      \
  X(direct_copies_lose_a_byte, "many_devices.direct_copies_of_any_size")                         \
  X(direct_copies_move_words, "many_devices.direct_copies_of_any_size")                          \
  X(direct_copies_on_the_sources_stream_are_lost, "many_devices.direct_copies_of_any_size")      \
  X(direct_copies_run_at_once, "many_devices.direct_copies_run_in_order")                        \
  X(direct_copies_wait, "many_devices.direct_copies_run_in_order")                               \
  X(direct_copies_hold_nothing, "many_devices.direct_copies_run_in_order")                       \
  X(kinds_of_memory_are_promised, "memory_kinds.facts_are_sane")                                 \
  X(spare_memory_has_a_fixed_number, "memory_kinds.facts_are_sane")                              \
  X(spare_memory_has_no_name, "memory_kinds.facts_are_sane")                                     \
  X(spare_memory_is_the_devices, "memory_kinds.usage_moves")                                     \
  X(spare_memory_leaks, "memory_kinds.usage_moves")                                              \
  X(free_spare_memory_never_moves, "memory_kinds.usage_moves")                                   \
  X(spare_memory_is_said_to_be_the_devices, "memory_kinds.holds_what_is_copied")                 \
  X(the_host_reaches_spare_memory, "memory_kinds.holds_what_is_copied")                          \
  X(unknown_kinds_have_usage, "memory_kinds.refuses_what_is_not_there")                          \
  X(files_have_no_text, "files.info_is_sane")                                                    \
  X(files_are_denied, "files.info_is_sane")                                                      \
  X(file_reads_lose_a_byte, "files.holds_what_is_transferred")                                   \
  X(file_writes_begin_with_the_file, "files.holds_what_is_transferred")                          \
  X(file_reads_do_not_end, "files.reads_end_with_the_file")                                      \
  X(memory_is_registered_twice, "files.memory_is_registered_once")                               \
  X(unregistered_memory_is_unregistered, "files.memory_is_registered_once")                      \
  X(files_for_reading_are_written, "files.refuses_what_is_wrong")                                \
  X(free_memory_exceeds_the_total, "devices.memory_info_is_sane")                                \
  X(free_memory_never_moves, "growth.free_memory_moves_with_allocations")                        \
  X(free_memory_is_kilobytes, "growth.free_memory_moves_with_allocations")                       \
  X(free_memory_is_used_memory, "growth.free_memory_moves_with_allocations")                     \
  X(total_memory_is_twice_as_much, "growth.free_memory_moves_with_allocations")                  \
  /* promises */                                                                                 \
  X(host_calls_are_not_promised, "streams.host_calls")                                           \
  X(timing_is_not_promised, "events.elapsed_time")                                               \
  X(managed_memory_is_promised, "memory.managed_memory")                                         \
  X(managed_memory_is_not_promised, "memory.managed_memory")                                     \
  X(synchronous_work_is_promised, "streams.synchronous_promise")                                 \
  X(dependencies_are_promised, "order.dependencies_are_seen")                                    \
  X(coherent_memory_is_promised, "memory.host_coherent_memory")                                  \
  X(being_the_host_is_promised, "memory.is_the_host")                                            \
  X(streams_share_a_worker, "order.work_waits_for_what_is_before_it")                            \
  X(ops_that_are_found_take_no_call, "promises.ops")                                             \
  /* memory */                                                                                   \
  X(allocations_are_not_aligned, "memory.alloc_is_aligned_and_apart")                            \
  X(large_allocations_are_not_aligned, "memory.alloc_is_aligned_and_apart")                      \
  X(pinned_memory_is_not_aligned, "memory.alloc_is_aligned_and_apart")                           \
  X(allocations_overlap, "memory.alloc_is_aligned_and_apart")                                    \
  X(no_memory_is_an_internal_error, "memory.too_much_is_resource_exhausted")                     \
  X(no_pinned_memory_is_an_internal_error, "memory.too_much_is_resource_exhausted")              \
  X(exhaustion_is_for_ever, "exhaustion.until_exhausted")                                        \
  X(few_allocations, "exhaustion.many_small_ones")                                               \
  X(free_forgets, "growth.device_memory_comes_back")                                             \
  X(free_reports_an_error, "memory.free_reports_success")                                        \
  X(pinned_memory_leaks, "growth.pinned_memory_comes_back")                                      \
  X(unknown_kinds_are_device_memory, "memory.unknown_kind_is_refused")                           \
  X(unknown_kinds_are_internal_errors, "memory.unknown_kind_is_refused")                         \
  X(errors_have_no_message, "memory.unknown_kind_is_refused")                                    \
  X(errors_leak, "growth.errors_come_back")                                                      \
  X(a_query_gives_the_pointer_as_base, "memory.query_finds_allocations")                         \
  X(a_query_gives_a_small_size, "memory.query_finds_allocations")                                \
  X(a_query_gives_another_kind, "memory.query_finds_allocations")                                \
  X(a_query_gives_another_device, "memory.query_finds_allocations")                              \
  X(a_query_finds_foreign_memory, "memory.query_knows_no_foreign_memory")                        \
  X(a_query_finds_freed_memory, "memory.query_knows_no_foreign_memory")                          \
  X(a_query_finds_a_byte_more, "memory.query_knows_no_foreign_memory")                           \
  X(pinned_memory_is_said_to_be_the_devices, "memory.pinned_memory")                             \
  /* copies and fills */                                                                         \
  X(copies_do_nothing, "copies.there_and_back")                                                  \
  X(copies_to_the_device_lose_a_byte, "copies.there_and_back")                                   \
  X(copies_to_the_host_lose_a_byte, "copies.there_and_back")                                     \
  X(copies_on_the_device_lose_a_byte, "copies.within_the_device")                                \
  X(small_copies_on_the_device_are_lost, "copies.within_the_device_of_any_size")                 \
  X(copies_move_words, "copies.at_any_offset")                                                   \
  X(copies_on_the_device_run_at_once, "order.work_waits_for_what_is_before_it")                  \
  X(copies_to_the_host_run_at_once, "order.host_memory_changes_in_order")                        \
  X(copies_to_the_device_run_at_once, "order.host_memory_changes_in_order")                      \
  X(small_copies_to_the_device_run_at_once, "order.host_memory_changes_in_order")                \
  X(fills_do_nothing, "fills.every_pattern")                                                     \
  X(fills_lose_a_byte, "fills.every_pattern")                                                    \
  X(fills_repeat_the_first_byte, "fills.every_pattern")                                          \
  X(fills_of_eight_bytes_repeat_four, "fills.every_pattern")                                     \
  X(fills_begin_at_a_multiple_of_their_pattern, "fills.every_pattern")                           \
  X(fills_want_aligned_addresses, "fills.every_pattern")                                         \
  X(fills_refer_to_their_pattern, "graphs.records_fills")                                        \
  X(fills_run_at_once, "order.work_waits_for_what_is_before_it")                                 \
  X(small_fills_run_at_once, "order.items_keep_their_order")                                     \
  X(fills_print, "fills.every_pattern")                                                          \
  X(fills_crash, "fills.every_pattern")                                                          \
  X(fills_abort, "fills.every_pattern")                                                          \
  X(fills_exit, "fills.every_pattern")                                                           \
  X(fills_hang, "fills.every_pattern")                                                           \
  /* streams */                                                                                  \
  X(streams_need_a_known_priority, "streams.any_priority_and_flag")                              \
  X(default_streams_are_refused, "streams.any_priority_and_flag")                                \
  X(query_is_always_done, "order.work_waits_for_what_is_before_it")                              \
  X(query_is_never_done, "streams.query_tells_completion")                                       \
  X(a_new_stream_is_busy, "streams.query_tells_completion")                                      \
  X(stream_query_waits, "order.enqueueing_does_not_wait")                                        \
  X(synchronize_does_nothing, "order.synchronizing_waits")                                       \
  X(synchronize_waits_for_the_first_item, "order.synchronizing_waits")                           \
  X(synchronize_waits_for_later_items, "order.synchronizing_a_stream_waits_for_no_later_work")   \
  X(synchronize_waits_for_the_device, "order.work_waits_for_what_is_before_it")                  \
  X(device_synchronize_does_nothing, "order.synchronizing_waits")                                \
  X(device_synchronize_waits_for_one_stream, "order.synchronizing_waits")                        \
  X(device_synchronize_forgets_low_priorities, "order.synchronizing_the_device_waits_for_every_stream")\
  X(destroying_a_stream_fails, "streams.destroy_reports_success")                                \
  X(destroying_a_stream_does_not_wait, "order.destroying_a_stream_waits")                        \
  X(destroying_a_stream_drops_its_work, "order.destroying_a_stream_waits")                       \
  X(destroying_a_stream_drops_its_waits, "order.destroying_a_stream_waits_for_its_waits")        \
  X(items_are_lost, "order.items_keep_their_order")                                              \
  X(the_newest_item_goes_first, "order.items_keep_their_order")                                  \
  X(a_full_queue_waits, "order.enqueueing_does_not_wait")                                        \
  X(a_full_queue_fails, "order.enqueueing_does_not_wait")                                        \
  X(native_fails, "streams.native_handle_answers")                                               \
  X(unknown_handles_are_given, "devices.native_handles_have_names")                              \
  X(threads_stay, "growth.streams_come_back")                                                    \
  X(streams_leak, "growth.streams_come_back")                                                    \
  X(items_leak, "growth.work_comes_back")                                                        \
  X(graphs_leak, "growth.graphs_come_back")                                                      \
  X(launches_leak, "growth.graphs_come_back")                                                    \
  X(host_calls_are_lost, "streams.host_calls")                                                   \
  X(host_calls_run_at_once, "streams.host_calls")                                                \
  X(host_calls_run_twice, "order.host_calls_run_once_and_in_order")                              \
  X(host_calls_hold_nothing, "order.work_waits_for_what_is_before_it")                           \
  X(host_calls_get_no_pointer, "streams.host_calls")                                             \
  /* events */                                                                                   \
  X(fresh_events_are_not_complete, "events.never_recorded_is_complete")                          \
  X(blocking_events_are_refused, "events.never_recorded_is_complete")                            \
  X(timed_blocking_events_are_refused, "events.never_recorded_is_complete")                      \
  X(events_are_always_complete, "order.a_record_covers_what_is_before_it")                       \
  X(events_are_never_complete, "events.marks_the_work_before_it")                                \
  X(events_cover_later_work, "order.a_record_covers_what_is_before_it")                          \
  X(the_first_record_counts, "order.the_latest_record_counts")                                   \
  X(any_record_counts, "order.the_latest_record_counts")                                         \
  X(event_query_waits, "order.a_record_covers_what_is_before_it")                                \
  X(event_synchronize_does_nothing, "order.synchronizing_waits")                                 \
  X(blocking_events_do_not_wait, "order.synchronizing_waits")                                    \
  X(event_synchronize_waits_for_its_stream, "order.a_record_covers_what_is_before_it")           \
  X(event_synchronize_waits_for_later_records, "order.synchronizing_an_event_waits_for_no_later_record")\
  X(waits_do_nothing, "order.a_wait_holds_only_its_stream")                                      \
  X(waits_hold_no_host_calls, "order.a_wait_holds_every_kind_of_item")                           \
  X(waits_hold_no_records, "order.a_wait_holds_every_kind_of_item")                              \
  X(waits_hold_no_fills, "order.a_wait_holds_every_kind_of_item")                                \
  X(waits_take_the_latest_record, "order.a_wait_keeps_its_record")                               \
  X(waits_for_fresh_events_hold, "order.a_fresh_event_holds_nothing")                            \
  X(waits_hold_the_host, "order.a_wait_holds_only_its_stream")                                   \
  X(waits_hold_every_stream, "order.a_wait_holds_only_its_stream")                               \
  X(destroying_an_event_fails, "events.destroy_reports_success")                                 \
  X(destroying_an_event_waits, "order.events_may_go_first")                                      \
  X(destroyed_events_hold_nobody, "order.events_may_go_first")                                   \
  X(new_events_are_old_ones, "order.events_may_go_first")                                        \
  X(events_die_with_their_stream, "events.outlives_its_stream")                                  \
  X(events_of_dead_streams_stay_open, "events.outlives_its_stream")                              \
  X(events_leak, "growth.events_come_back")                                                      \
  X(times_are_seconds, "order.elapsed_time_is_the_hosts")                                        \
  X(times_are_microseconds, "order.elapsed_time_is_the_hosts")                                   \
  X(times_have_no_sign, "order.elapsed_time_is_the_hosts")                                       \
  X(times_are_swapped, "order.elapsed_time_is_the_hosts")                                        \
  X(times_are_those_of_the_call, "order.elapsed_time_is_the_hosts")                              \
  X(open_events_have_times, "order.elapsed_time_is_the_hosts")                                   \
  X(untimed_events_have_times, "events.elapsed_time_needs_timed_events")                         \
  X(fresh_events_have_times, "events.elapsed_time_needs_timed_events")                           \
  /* order, and work that fails */                                                               \
  X(work_waits_to_be_asked_for, "order.work_runs_by_itself")                                     \
  X(a_thousand_items_break_it, "order.host_calls_run_once_and_in_order")                         \
  X(few_items_are_taken, "devices.facts_are_sane")                                               \
  X(what_is_enqueued_counts_as_executed, "fault.held_items_are_not_counted")                     \
  X(failures_are_lost, "fault.a_failure_sticks_to_its_stream")                                   \
  X(failures_are_told_once, "fault.a_failure_sticks_to_its_stream")                              \
  X(failures_change_their_code, "fault.a_failure_sticks_to_its_stream")                          \
  X(queries_hide_failures, "fault.a_failure_sticks_to_its_stream")                               \
  X(synchronizing_hides_failures, "fault.a_failure_sticks_to_its_stream")                        \
  X(events_hide_failures, "fault.a_failure_sticks_to_its_stream")                                \
  X(device_synchronize_hides_failures, "fault.a_failure_sticks_to_its_stream")                   \
  X(device_synchronize_ends_at_a_failure, "fault.synchronizing_the_device_waits_beside_a_failure")\
  X(the_last_failure_counts, "fault.the_first_failure_counts")                                   \
  X(host_calls_follow_failures, "fault.no_host_function_follows_a_failure")                      \
  X(failures_come_early, "fault.nothing_fails_before_it_runs")                                   \
  X(failures_reach_back, "fault.what_is_before_it_is_done")                                      \
  X(failures_reach_other_streams, "fault.who_waits_for_it_fails_too")                            \
  X(waits_stop_failures, "fault.who_waits_for_it_fails_too")                                     \
  X(waits_for_known_failures_do_nothing, "fault.who_waits_for_a_known_failure_fails_too")        \
  X(events_of_failed_dead_streams_stay_open, "fault.an_event_outlives_its_failed_stream")        \
  X(launches_follow_failures, "fault.a_launch_does_not_follow_a_failed_one")                     \
  /* graphs */                                                                                   \
  X(captured_work_runs_at_once, "graphs.records_and_replays")                                    \
  X(graphs_run_once, "graphs.records_and_replays")                                               \
  X(graphs_lose_their_last_item, "graphs.records_and_replays")                                   \
  X(graphs_run_backwards, "graphs.launches_run_one_after_another")                               \
  X(graphs_count_no_nodes, "graphs.records_and_replays")                                         \
  X(graphs_run_when_they_are_made, "graphs.abandoned_captures_leave_nothing")                    \
  X(capture_status_is_zero, "graphs.status_follows_the_capture")                                 \
  X(captures_nest, "graphs.captures_do_not_nest")                                                \
  X(capturing_streams_synchronize, "graphs.no_synchronizing_while_capturing")                    \
  X(capturing_does_not_end, "graphs.status_follows_the_capture")                                 \
  X(ends_without_begin, "graphs.end_without_begin_is_refused")                                   \
  X(empty_graphs_are_refused, "graphs.empty_graphs_launch")                                      \
  X(captures_mix, "graphs.two_graphs_do_not_mix")                                                \
  X(host_memory_is_read_when_captured, "graphs.host_copies_are_read_at_the_launch")              \
  X(capturing_holds_the_device, "graphs.work_on_other_streams_runs")                             \
  X(waiting_streams_do_not_join, "graphs.streams_join_by_waiting")                               \
  X(joined_streams_end_captures, "graphs.streams_join_by_waiting")                               \
  X(joined_streams_go_on_capturing, "graphs.streams_join_by_waiting")                            \
  X(captures_wait_for_each_other, "graphs.captures_do_not_wait_for_each_other")                  \
  X(launches_run_at_once, "order.graphs_run_in_order")                                           \
  X(launches_overlap, "order.launches_do_not_overlap")                                           \
  X(recorded_host_calls_run_at_once, "order.graphs_run_host_calls")                              \
  X(recorded_host_calls_are_lost, "order.graphs_run_host_calls")                                 \
  X(recording_host_calls_is_refused, "order.graphs_run_host_calls")                              \
  /* ops */                                                                                      \
  X(ops_run_at_once, "order.ops_run_in_order")                                                   \
  X(ops_refer_to_their_tensors, "order.ops_run_in_order")                                        \
  X(ops_refer_to_their_parameters, "order.ops_run_in_order")                                     \
  X(every_op_is_found, "ops.unknown_op_is_not_found")                                            \
  X(numbers_of_ops_change, "ops.numbers_are_constant")                                           \
  X(unknown_numbers_run, "ops.unknown_number_is_refused")                                        \
  X(ops_write_beyond_their_output, "op.add.every_dtype")                                         \
  X(ops_ignore_gaps_between_rows, "op.add.every_dtype")                                          \
  X(bf16_is_cut_off, "op.add.every_dtype")                                                       \
  X(ops_forget_rows_from_128, "op.add.every_size")                                               \
  X(ops_forget_the_last_of_odd_rows, "op.add.every_size")                                        \
  X(ops_forget_columns_from_256, "op.add.every_size")                                            \
  X(ops_forget_the_tail_of_sixteens, "op.add.every_size")                                        \
  X(ops_forget_columns_from_4096, "op.add.every_size")                                           \
  X(ops_forget_rows_from_65536, "op.add.every_size")                                             \
  X(ops_forget_columns_from_65536, "op.argmax.every_size")                                       \
  X(ops_change_an_input, "op.add.every_dtype")                                                   \
  X(ops_take_nan_for_zero, "op.add.special_values")                                              \
  X(ops_want_rows, "op.softmax.no_rows")                                                         \
  X(ops_ignore_gaps_between_elements, "op.rms_norm.norms_rows.spread")                           \
  X(products_forget_their_bias, "op.linear.products")                                            \
  X(products_forget_what_they_add_to, "op.linear.products")                                      \
  X(norms_forget_their_weight, "op.rms_norm.norms_rows")                                         \
  X(norms_forget_their_epsilon, "op.rms_norm.norms_rows")                                        \
  X(norms_ignore_gaps_of_their_output, "op.rms_norm.norms_rows.padded")                          \
  X(argmax_takes_the_last_of_equals, "op.argmax.takes_the_lowest_index")                               \
  X(softmax_forgets_its_scale, "op.softmax.of_rows")                                             \
  X(softmax_subtracts_no_maximum, "op.softmax.every_size")                                       \
  X(softmax_in_place_forgets_the_row, "op.softmax.of_rows.in_place")                             \
  X(scratch_is_kept, "op.softmax.of_rows")                                                       \
  X(scratch_is_taken_for_zeros, "op.softmax.of_rows")                                            \
  X(ops_begin_without_memory, "op.increment.adds.short_of_memory")

// The same, for the driver while it holds work back.
#define REFERENCE_LAZY_MUTATIONS(X)                                                              \
  X(flush_does_nothing, "lazy.flush_releases_and_does_not_wait")                                 \
  X(flush_waits, "lazy.flush_releases_and_does_not_wait")                                        \
  X(stream_query_releases_nothing, "lazy.stream_query_releases")                                 \
  X(event_query_releases_nothing, "lazy.event_query_releases")                                   \
  X(event_synchronize_releases_nothing, "lazy.event_synchronize_releases")                       \
  X(device_synchronize_releases_nothing, "lazy.device_synchronize_releases")                     \
  X(destroying_a_stream_forgets_what_is_held, "lazy.stream_destroy_releases")                    \
  X(releasing_stops_at_waits, "lazy.releasing_reaches_what_is_waited_for")                       \
  X(a_full_lazy_queue_holds, "lazy.a_full_queue_releases")                                       \
  X(a_full_lazy_queue_refuses, "lazy.a_full_queue_releases")                                     \
  X(released_work_runs_backwards, "lazy.overlapping_work_keeps_its_order")                       \
  X(step_end_releases_nothing, "lazy.steps_run_what_was_enqueued")                               \
  X(steps_of_one_key_repeat_the_first, "lazy.steps_run_what_was_enqueued")                       \
  X(steps_nest, "lazy.steps_do_not_nest")                                                        \
  X(steps_end_that_never_began, "lazy.steps_do_not_nest")                                        \
  X(idle_scratch_is_kept, "life.closes_without_error")
// clang-format on

namespace reference {

enum class Mutation {
  none,
#define REFERENCE_NAME(name, noticed_by) name,
  REFERENCE_MUTATIONS(REFERENCE_NAME) REFERENCE_LAZY_MUTATIONS(REFERENCE_NAME)
#undef REFERENCE_NAME
};

inline Mutation chosen_mutation() {
  const char* const chosen = std::getenv("REFERENCE_ASYNC_MUTATION");
  if (!chosen) return Mutation::none;
#define REFERENCE_COMPARE(name, noticed_by) \
  if (std::strcmp(chosen, #name) == 0) return Mutation::name;
  REFERENCE_MUTATIONS(REFERENCE_COMPARE)
  REFERENCE_LAZY_MUTATIONS(REFERENCE_COMPARE)
#undef REFERENCE_COMPARE
  return Mutation::none;
}

// Returns true if the driver is to be broken in this place.
inline bool mutated(Mutation mutation) {
  static const Mutation chosen = chosen_mutation();
  return mutation == chosen;
}

}  // namespace reference
