/* Where every member of every struct of the plugin interface lies, on 64-bit machines. C and C++.
 *
 * These numbers are the binary interface: a compiled plugin relies on them. A line is added when a member is appended,
 * and never changed.
 */
#ifndef ANYACCEL_TESTS_ABI_ABI_OFFSETS_H_
#define ANYACCEL_TESTS_ABI_ABI_OFFSETS_H_

/* X(struct, member, offset in bytes) */
/* clang-format off */
#define ANYACCEL_ABI_MEMBERS(X) \
  X(aa_host, struct_size, 0) \
  X(aa_host, abi_version, 4) \
  X(aa_host, status_create, 8) \
  X(aa_host, status_release, 16) \
  X(aa_host, status_code, 24) \
  X(aa_host, status_native_code, 32) \
  X(aa_host, status_message, 40) \
  X(aa_host, log, 48) \
  X(aa_tensor, data, 0) \
  X(aa_tensor, dtype, 8) \
  X(aa_tensor, ndim, 12) \
  X(aa_tensor, shape, 16) \
  X(aa_tensor, strides, 64) \
  X(aa_probe, struct_size, 0) \
  X(aa_probe, state, 4) \
  X(aa_probe, device_count, 8) \
  X(aa_probe, reason, 12) \
  X(aa_device_props, struct_size, 0) \
  X(aa_device_props, numa_node, 4) \
  X(aa_device_props, name, 8) \
  X(aa_device_props, vendor, 136) \
  X(aa_device_props, arch, 200) \
  X(aa_device_props, pci_bus_id, 264) \
  X(aa_device_props, uuid, 296) \
  X(aa_device_props, caps, 312) \
  X(aa_device_props, total_memory, 320) \
  X(aa_device_props, max_allocation, 328) \
  X(aa_device_props, alignment, 336) \
  X(aa_device_props, compute_units, 340) \
  X(aa_device_props, dtypes_storable, 344) \
  X(aa_device_props, dtypes_computable, 352) \
  X(aa_device_props, dtypes_matrix, 360) \
  X(aa_device_props, dlpack_device_type, 368) \
  X(aa_device_props, reserved, 372) \
  X(aa_memory_info, struct_size, 0) \
  X(aa_memory_info, kind, 4) \
  X(aa_memory_info, device_index, 8) \
  X(aa_memory_info, reserved, 12) \
  X(aa_memory_info, base, 16) \
  X(aa_memory_info, size, 24) \
  X(aa_option, key, 0) \
  X(aa_option, value, 8) \
  X(aa_initialize_params, struct_size, 0) \
  X(aa_initialize_params, option_count, 4) \
  X(aa_initialize_params, options, 8) \
  X(aa_initialize_params, library_path, 16) \
  X(aa_kernel_info, struct_size, 0) \
  X(aa_kernel_info, max_threads_per_block, 4) \
  X(aa_kernel_info, static_shared_bytes, 8) \
  X(aa_kernel_info, argument_count, 12) \
  X(aa_launch, struct_size, 0) \
  X(aa_launch, grid, 4) \
  X(aa_launch, block, 16) \
  X(aa_launch, shared_bytes, 28) \
  X(aa_launch, argument_count, 32) \
  X(aa_launch, arguments, 40) \
  X(aa_launch, argument_sizes, 48) \
  X(aa_driver, struct_size, 0) \
  X(aa_driver, abi_version, 4) \
  X(aa_driver, name, 8) \
  X(aa_driver, vendor, 16) \
  X(aa_driver, version, 24) \
  X(aa_driver, sanitizer, 32) \
  X(aa_driver, communication_backend, 40) \
  X(aa_driver, visible_devices_env, 48) \
  X(aa_driver, export_env_prefixes, 56) \
  X(aa_driver, probe, 64) \
  X(aa_driver, initialize, 72) \
  X(aa_driver, shutdown, 80) \
  X(aa_driver, query_extension, 88) \
  X(aa_driver, device_count, 96) \
  X(aa_driver, device_props, 104) \
  X(aa_driver, device_open, 112) \
  X(aa_driver, device_close, 120) \
  X(aa_driver, device_synchronize, 128) \
  X(aa_driver, device_memory_info, 136) \
  X(aa_driver, mem_alloc, 144) \
  X(aa_driver, mem_free, 152) \
  X(aa_driver, mem_query, 160) \
  X(aa_driver, copy_async, 168) \
  X(aa_driver, fill_async, 176) \
  X(aa_driver, stream_create, 184) \
  X(aa_driver, stream_destroy, 192) \
  X(aa_driver, stream_query, 200) \
  X(aa_driver, stream_synchronize, 208) \
  X(aa_driver, stream_wait_event, 216) \
  X(aa_driver, stream_native, 224) \
  X(aa_driver, stream_host_call, 232) \
  X(aa_driver, event_create, 240) \
  X(aa_driver, event_destroy, 248) \
  X(aa_driver, event_record, 256) \
  X(aa_driver, event_query, 264) \
  X(aa_driver, event_synchronize, 272) \
  X(aa_driver, event_elapsed, 280) \
  X(aa_driver, module_load, 288) \
  X(aa_driver, module_unload, 296) \
  X(aa_driver, kernel_get, 304) \
  X(aa_driver, kernel_launch, 312) \
  X(aa_graph_table, struct_size, 0) \
  X(aa_graph_table, version, 4) \
  X(aa_graph_table, capture_begin, 8) \
  X(aa_graph_table, capture_end, 16) \
  X(aa_graph_table, capture_status, 24) \
  X(aa_graph_table, launch, 32) \
  X(aa_graph_table, node_count, 40) \
  X(aa_graph_table, destroy, 48) \
  X(aa_host_memory_table, struct_size, 0) \
  X(aa_host_memory_table, version, 4) \
  X(aa_host_memory_table, register_range, 8) \
  X(aa_host_memory_table, unregister_range, 16) \
  X(aa_host_memory_table, alloc_on_node, 24) \
  X(aa_norm_params, struct_size, 0) \
  X(aa_norm_params, eps, 4) \
  X(aa_norm_rope_params, struct_size, 0) \
  X(aa_norm_rope_params, eps, 4) \
  X(aa_norm_rope_params, interleaved, 8) \
  X(aa_norm_activation_params, struct_size, 0) \
  X(aa_norm_activation_params, eps, 4) \
  X(aa_norm_activation_params, kind, 8) \
  X(aa_activation_params, struct_size, 0) \
  X(aa_activation_params, kind, 4) \
  X(aa_rope_table_params, struct_size, 0) \
  X(aa_rope_table_params, scale, 4) \
  X(aa_rope_params, struct_size, 0) \
  X(aa_rope_params, interleaved, 4) \
  X(aa_attention_params, struct_size, 0) \
  X(aa_attention_params, scale, 4) \
  X(aa_attention_params, window, 8) \
  X(aa_attention_params, softcap, 12) \
  X(aa_softmax_params, struct_size, 0) \
  X(aa_softmax_params, scale, 4) \
  X(aa_increment_params, struct_size, 0) \
  X(aa_increment_params, reserved, 4) \
  X(aa_increment_params, amount, 8) \
  X(aa_repetition_params, struct_size, 0) \
  X(aa_repetition_params, penalty, 4) \
  X(aa_sample_params, struct_size, 0) \
  X(aa_sample_params, temperature, 4) \
  X(aa_sample_params, top_k, 8) \
  X(aa_sample_params, top_p, 12) \
  X(aa_sample_params, min_p, 16) \
  X(aa_frequency_params, struct_size, 0) \
  X(aa_frequency_params, presence, 4) \
  X(aa_frequency_params, frequency, 8) \
  X(aa_random_params, struct_size, 0) \
  X(aa_random_params, kind, 4) \
  X(aa_random_params, seed, 8) \
  X(aa_random_params, offset, 16) \
  X(aa_random_params, low, 24) \
  X(aa_random_params, high, 32) \
  X(aa_embedding_shard_params, struct_size, 0) \
  X(aa_embedding_shard_params, reserved, 4) \
  X(aa_embedding_shard_params, first, 8) \
  X(aa_op_call, struct_size, 0) \
  X(aa_op_call, op, 4) \
  X(aa_op_call, tensors, 8) \
  X(aa_op_call, tensor_count, 16) \
  X(aa_op_call, params_size, 20) \
  X(aa_op_call, params, 24) \
  X(aa_ops_table, struct_size, 0) \
  X(aa_ops_table, version, 4) \
  X(aa_ops_table, find, 8) \
  X(aa_ops_table, supports, 16) \
  X(aa_ops_table, enqueue, 24) \
  X(aa_compile_result, struct_size, 0) \
  X(aa_compile_result, succeeded, 4) \
  X(aa_compile_result, image, 8) \
  X(aa_compile_result, image_size, 16) \
  X(aa_compile_result, format, 24) \
  X(aa_compile_result, log, 32) \
  X(aa_compile_result, owner, 40) \
  X(aa_compiler_table, struct_size, 0) \
  X(aa_compiler_table, version, 4) \
  X(aa_compiler_table, languages, 8) \
  X(aa_compiler_table, fingerprint, 16) \
  X(aa_compiler_table, compile, 24) \
  X(aa_compiler_table, release, 32) \
  X(aa_compiler_table, kernel_tuning, 40) \
  X(aa_kernel_tuning, struct_size, 0) \
  X(aa_kernel_tuning, group_size, 4) \
  X(aa_kernel_tuning, lanes, 8) \
  X(aa_kernel_tuning, subgroup_size, 12) \
  X(aa_kernel_tuning, items, 16) \
  X(aa_kernel_tuning, local_memory, 20) \
  X(aa_kernel_tuning, native_f16, 24) \
  X(aa_kernel_tuning, native_f64, 28) \
  X(aa_profiler_table, struct_size, 0) \
  X(aa_profiler_table, version, 4) \
  X(aa_profiler_table, range_push, 8) \
  X(aa_profiler_table, range_pop, 16) \
  X(aa_profiler_table, mark, 24) \
  X(aa_ceilings_table, struct_size, 0) \
  X(aa_ceilings_table, version, 4) \
  X(aa_ceilings_table, measure, 8) \
  X(aa_host_code_table, struct_size, 0) \
  X(aa_host_code_table, version, 4) \
  X(aa_host_code_table, target, 8) \
  X(aa_host_code_table, threads, 16) \
  X(aa_host_code_table, run, 24) \
  X(aa_op_services, struct_size, 0) \
  X(aa_op_services, version, 4) \
  X(aa_op_services, host, 8) \
  X(aa_op_services, threads, 16) \
  X(aa_op_services, run, 24) \
  X(aa_collectives_table, struct_size, 0) \
  X(aa_collectives_table, version, 4) \
  X(aa_collectives_table, library, 8) \
  X(aa_collectives_table, id_size, 16) \
  X(aa_collectives_table, id_create, 24) \
  X(aa_collectives_table, comm_create, 32) \
  X(aa_collectives_table, comm_destroy, 40) \
  X(aa_collectives_table, comm_abort, 48) \
  X(aa_collectives_table, async_error, 56) \
  X(aa_collectives_table, group_begin, 64) \
  X(aa_collectives_table, group_end, 72) \
  X(aa_collectives_table, all_reduce, 80) \
  X(aa_collectives_table, reduce, 88) \
  X(aa_collectives_table, broadcast, 96) \
  X(aa_collectives_table, all_gather, 104) \
  X(aa_collectives_table, reduce_scatter, 112) \
  X(aa_collectives_table, send, 120) \
  X(aa_collectives_table, recv, 128)

/* X(struct, size in bytes) */
#define ANYACCEL_ABI_STRUCTS(X) \
  X(aa_host, 56) \
  X(aa_tensor, 112) \
  X(aa_probe, 524) \
  X(aa_device_props, 376) \
  X(aa_memory_info, 32) \
  X(aa_option, 16) \
  X(aa_initialize_params, 24) \
  X(aa_kernel_info, 16) \
  X(aa_launch, 56) \
  X(aa_driver, 320) \
  X(aa_graph_table, 56) \
  X(aa_host_memory_table, 32) \
  X(aa_norm_params, 8) \
  X(aa_norm_rope_params, 12) \
  X(aa_norm_activation_params, 12) \
  X(aa_activation_params, 8) \
  X(aa_rope_table_params, 8) \
  X(aa_rope_params, 8) \
  X(aa_attention_params, 16) \
  X(aa_softmax_params, 8) \
  X(aa_increment_params, 16) \
  X(aa_repetition_params, 8) \
  X(aa_sample_params, 20) \
  X(aa_frequency_params, 12) \
  X(aa_random_params, 40) \
  X(aa_embedding_shard_params, 16) \
  X(aa_op_call, 32) \
  X(aa_ops_table, 32) \
  X(aa_compile_result, 48) \
  X(aa_compiler_table, 48) \
  X(aa_kernel_tuning, 32) \
  X(aa_profiler_table, 32) \
  X(aa_ceilings_table, 16) \
  X(aa_host_code_table, 32) \
  X(aa_op_services, 32) \
  X(aa_collectives_table, 136)
/* clang-format on */

#endif /* ANYACCEL_TESTS_ABI_ABI_OFFSETS_H_ */
