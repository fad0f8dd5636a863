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
  X(aa_option, key, 0) \
  X(aa_option, value, 8) \
  X(aa_option_info, key, 0) \
  X(aa_option_info, help, 8) \
  X(aa_option_info, fallback, 16) \
  X(aa_scratch, struct_size, 0) \
  X(aa_scratch, flags, 4) \
  X(aa_scratch, size, 8) \
  X(aa_scratch, stream, 16) \
  X(aa_scratch, device, 24) \
  X(aa_scratch, pointer, 32) \
  X(aa_scratch, owner, 40) \
  X(aa_host, struct_size, 0) \
  X(aa_host, abi_version, 4) \
  X(aa_host, status_create, 8) \
  X(aa_host, status_release, 16) \
  X(aa_host, status_code, 24) \
  X(aa_host, status_native_code, 32) \
  X(aa_host, status_message, 40) \
  X(aa_host, log, 48) \
  X(aa_host, cache_dir, 56) \
  X(aa_host, scratch_acquire, 64) \
  X(aa_host, scratch_release, 72) \
  X(aa_host, reclaim, 80) \
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
  X(aa_device_props, queue_depth, 372) \
  X(aa_device_props, open_limit, 376) \
  X(aa_device_props, exclusive, 380) \
  X(aa_alloc, struct_size, 0) \
  X(aa_alloc, flags, 4) \
  X(aa_alloc, kind, 8) \
  X(aa_alloc, numa_node, 12) \
  X(aa_alloc, size, 16) \
  X(aa_allocation, struct_size, 0) \
  X(aa_allocation, kind, 4) \
  X(aa_allocation, pointer, 8) \
  X(aa_allocation, size, 16) \
  X(aa_allocation, memory, 24) \
  X(aa_memory_info, struct_size, 0) \
  X(aa_memory_info, kind, 4) \
  X(aa_memory_info, device_index, 8) \
  X(aa_memory_info, reserved, 12) \
  X(aa_memory_info, base, 16) \
  X(aa_memory_info, size, 24) \
  X(aa_memory_info, device_address, 32) \
  X(aa_memory_info, memory, 40) \
  X(aa_copy, struct_size, 0) \
  X(aa_copy, flags, 4) \
  X(aa_copy, destination, 8) \
  X(aa_copy, source, 16) \
  X(aa_copy, size, 24) \
  X(aa_copy, direction, 32) \
  X(aa_copy, hints, 36) \
  X(aa_copy, destination_memory, 40) \
  X(aa_copy, source_memory, 48) \
  X(aa_fill, struct_size, 0) \
  X(aa_fill, flags, 4) \
  X(aa_fill, destination, 8) \
  X(aa_fill, size, 16) \
  X(aa_fill, pattern_size, 24) \
  X(aa_fill, hints, 28) \
  X(aa_fill, pattern, 32) \
  X(aa_fill, memory, 40) \
  X(aa_stream_params, struct_size, 0) \
  X(aa_stream_params, flags, 4) \
  X(aa_stream_params, priority, 8) \
  X(aa_stream_params, hints, 12) \
  X(aa_stream_params, host_stream, 16) \
  X(aa_event_params, struct_size, 0) \
  X(aa_event_params, flags, 4) \
  X(aa_initialize_params, struct_size, 0) \
  X(aa_initialize_params, option_count, 4) \
  X(aa_initialize_params, options, 8) \
  X(aa_initialize_params, library_path, 16) \
  X(aa_device_open_params, struct_size, 0) \
  X(aa_device_open_params, index, 4) \
  X(aa_device_open_params, host_device, 8) \
  X(aa_device_open_params, options, 16) \
  X(aa_device_open_params, option_count, 24) \
  X(aa_device_open_params, flags, 28) \
  X(aa_module_params, struct_size, 0) \
  X(aa_module_params, flags, 4) \
  X(aa_module_params, image, 8) \
  X(aa_module_params, size, 16) \
  X(aa_module_params, format, 24) \
  X(aa_kernel_info, struct_size, 0) \
  X(aa_kernel_info, max_threads_per_block, 4) \
  X(aa_kernel_info, static_shared_bytes, 8) \
  X(aa_kernel_info, argument_count, 12) \
  X(aa_launch, struct_size, 0) \
  X(aa_launch, flags, 4) \
  X(aa_launch, grid, 8) \
  X(aa_launch, block, 20) \
  X(aa_launch, shared_bytes, 32) \
  X(aa_launch, argument_count, 36) \
  X(aa_launch, arguments, 40) \
  X(aa_launch, argument_sizes, 48) \
  X(aa_launch, argument_kinds, 56) \
  X(aa_launch, memories, 64) \
  X(aa_op_builder, struct_size, 0) \
  X(aa_op_builder, flags, 4) \
  X(aa_op_builder, name, 8) \
  X(aa_op_builder, folder, 16) \
  X(aa_op_builder, language, 24) \
  X(aa_op_builder, library, 32) \
  X(aa_op_builder, sources, 40) \
  X(aa_op_builder, include_dirs, 48) \
  X(aa_op_builder, compile_flags, 56) \
  X(aa_op_builder, link_flags, 64) \
  X(aa_toolchain, struct_size, 0) \
  X(aa_toolchain, flags, 4) \
  X(aa_toolchain, compiler, 8) \
  X(aa_toolchain, ops_dir, 16) \
  X(aa_toolchain, compile_flags, 24) \
  X(aa_toolchain, include_dirs, 32) \
  X(aa_toolchain, link_flags, 40) \
  X(aa_driver, struct_size, 0) \
  X(aa_driver, abi_version, 4) \
  X(aa_driver, name, 8) \
  X(aa_driver, vendor, 16) \
  X(aa_driver, version, 24) \
  X(aa_driver, sanitizer, 32) \
  X(aa_driver, communication_backend, 40) \
  X(aa_driver, visible_devices_env, 48) \
  X(aa_driver, export_env_prefixes, 56) \
  X(aa_driver, options, 64) \
  X(aa_driver, option_count, 72) \
  X(aa_driver, abi_draft, 76) \
  X(aa_driver, priority, 80) \
  X(aa_driver, flags, 84) \
  X(aa_driver, op_builders, 88) \
  X(aa_driver, toolchain, 96) \
  X(aa_driver, self, 104) \
  X(aa_driver, probe, 112) \
  X(aa_driver, initialize, 120) \
  X(aa_driver, shutdown, 128) \
  X(aa_driver, query_extension, 136) \
  X(aa_driver, device_count, 144) \
  X(aa_driver, device_props, 152) \
  X(aa_driver, device_open, 160) \
  X(aa_driver, device_close, 168) \
  X(aa_driver, device_synchronize, 176) \
  X(aa_driver, device_memory_info, 184) \
  X(aa_driver, device_native, 192) \
  X(aa_driver, mem_alloc, 200) \
  X(aa_driver, mem_free, 208) \
  X(aa_driver, mem_query, 216) \
  X(aa_driver, copy_async, 224) \
  X(aa_driver, fill_async, 232) \
  X(aa_driver, stream_create, 240) \
  X(aa_driver, stream_destroy, 248) \
  X(aa_driver, stream_query, 256) \
  X(aa_driver, stream_synchronize, 264) \
  X(aa_driver, stream_wait_event, 272) \
  X(aa_driver, stream_native, 280) \
  X(aa_driver, stream_host_call, 288) \
  X(aa_driver, event_create, 296) \
  X(aa_driver, event_destroy, 304) \
  X(aa_driver, event_record, 312) \
  X(aa_driver, event_query, 320) \
  X(aa_driver, event_synchronize, 328) \
  X(aa_driver, event_elapsed, 336) \
  X(aa_driver, module_load, 344) \
  X(aa_driver, module_unload, 352) \
  X(aa_driver, kernel_get, 360) \
  X(aa_driver, kernel_launch, 368) \
  X(aa_graph_table, struct_size, 0) \
  X(aa_graph_table, version, 4) \
  X(aa_graph_table, self, 8) \
  X(aa_graph_table, capture_begin, 16) \
  X(aa_graph_table, capture_end, 24) \
  X(aa_graph_table, capture_status, 32) \
  X(aa_graph_table, launch, 40) \
  X(aa_graph_table, node_count, 48) \
  X(aa_graph_table, destroy, 56) \
  X(aa_register, struct_size, 0) \
  X(aa_register, flags, 4) \
  X(aa_register, pointer, 8) \
  X(aa_register, size, 16) \
  X(aa_registration, struct_size, 0) \
  X(aa_registration, reserved, 4) \
  X(aa_registration, device_address, 8) \
  X(aa_registration, memory, 16) \
  X(aa_host_memory_table, struct_size, 0) \
  X(aa_host_memory_table, version, 4) \
  X(aa_host_memory_table, self, 8) \
  X(aa_host_memory_table, register_range, 16) \
  X(aa_host_memory_table, unregister_range, 24) \
  X(aa_host_code_table, struct_size, 0) \
  X(aa_host_code_table, version, 4) \
  X(aa_host_code_table, self, 8) \
  X(aa_host_code_table, target, 16) \
  X(aa_host_code_table, threads, 24) \
  X(aa_host_code_table, run, 32) \
  X(aa_norm_params, struct_size, 0) \
  X(aa_norm_params, eps, 4) \
  X(aa_norm_linear_params, struct_size, 0) \
  X(aa_norm_linear_params, eps, 4) \
  X(aa_norm_linear_params, normed, 8) \
  X(aa_norm_rope_params, struct_size, 0) \
  X(aa_norm_rope_params, eps, 4) \
  X(aa_norm_rope_params, interleaved, 8) \
  X(aa_norm_rope_params, normed, 12) \
  X(aa_embedding_shard_params, struct_size, 0) \
  X(aa_embedding_shard_params, reserved, 4) \
  X(aa_embedding_shard_params, first, 8) \
  X(aa_activation_params, struct_size, 0) \
  X(aa_activation_params, kind, 4) \
  X(aa_norm_activation_params, struct_size, 0) \
  X(aa_norm_activation_params, eps, 4) \
  X(aa_norm_activation_params, kind, 8) \
  X(aa_norm_activation_params, normed, 12) \
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
  X(aa_quantized_params, struct_size, 0) \
  X(aa_quantized_params, format, 4) \
  X(aa_quantized_params, rounding, 8) \
  X(aa_norm_quantized_params, struct_size, 0) \
  X(aa_norm_quantized_params, eps, 4) \
  X(aa_norm_quantized_params, format, 8) \
  X(aa_norm_quantized_params, rounding, 12) \
  X(aa_norm_quantized_params, kind, 16) \
  X(aa_norm_quantized_params, interleaved, 20) \
  X(aa_quantized_shard_params, struct_size, 0) \
  X(aa_quantized_shard_params, format, 4) \
  X(aa_quantized_shard_params, first, 8) \
  X(aa_cache_params, struct_size, 0) \
  X(aa_cache_params, format, 4) \
  X(aa_quantized_attention_params, struct_size, 0) \
  X(aa_quantized_attention_params, scale, 4) \
  X(aa_quantized_attention_params, window, 8) \
  X(aa_quantized_attention_params, softcap, 12) \
  X(aa_quantized_attention_params, format, 16) \
  X(aa_frequency_params, struct_size, 0) \
  X(aa_frequency_params, presence, 4) \
  X(aa_frequency_params, frequency, 8) \
  X(aa_accumulate_params, struct_size, 0) \
  X(aa_accumulate_params, accumulate, 4) \
  X(aa_moments_params, struct_size, 0) \
  X(aa_moments_params, eps, 4) \
  X(aa_moments_params, centred, 8) \
  X(aa_dropout_params, struct_size, 0) \
  X(aa_dropout_params, ratio, 4) \
  X(aa_dropout_params, seed, 8) \
  X(aa_dropout_params, offset, 16) \
  X(aa_scaled_add_params, struct_size, 0) \
  X(aa_scaled_add_params, alpha, 4) \
  X(aa_scaled_add_params, beta, 8) \
  X(aa_random_params, struct_size, 0) \
  X(aa_random_params, kind, 4) \
  X(aa_random_params, seed, 8) \
  X(aa_random_params, offset, 16) \
  X(aa_random_params, low, 24) \
  X(aa_random_params, high, 32) \
  X(aa_op_call, struct_size, 0) \
  X(aa_op_call, op, 4) \
  X(aa_op_call, tensors, 8) \
  X(aa_op_call, tensor_count, 16) \
  X(aa_op_call, params_size, 20) \
  X(aa_op_call, params, 24) \
  X(aa_op_call, memories, 32) \
  X(aa_op_call, packed, 40) \
  X(aa_pack, struct_size, 0) \
  X(aa_pack, flags, 4) \
  X(aa_pack, tensor, 8) \
  X(aa_pack, hints, 12) \
  X(aa_pack, example, 16) \
  X(aa_ops_table, struct_size, 0) \
  X(aa_ops_table, version, 4) \
  X(aa_ops_table, self, 8) \
  X(aa_ops_table, find, 16) \
  X(aa_ops_table, supports, 24) \
  X(aa_ops_table, enqueue, 32) \
  X(aa_ops_table, packed_size, 40) \
  X(aa_ops_table, pack, 48) \
  X(aa_ops_table, unpack, 56) \
  X(aa_ops_table, packed_destroy, 64) \
  X(aa_op_services, struct_size, 0) \
  X(aa_op_services, version, 4) \
  X(aa_op_services, host, 8) \
  X(aa_op_services, threads, 16) \
  X(aa_op_services, run, 24) \
  X(aa_compile_result, struct_size, 0) \
  X(aa_compile_result, succeeded, 4) \
  X(aa_compile_result, image, 8) \
  X(aa_compile_result, image_size, 16) \
  X(aa_compile_result, format, 24) \
  X(aa_compile_result, log, 32) \
  X(aa_compile_result, owner, 40) \
  X(aa_compile, struct_size, 0) \
  X(aa_compile, flags, 4) \
  X(aa_compile, language, 8) \
  X(aa_compile, name, 16) \
  X(aa_compile, source, 24) \
  X(aa_compile, source_size, 32) \
  X(aa_compile, options, 40) \
  X(aa_compile, option_count, 48) \
  X(aa_kernel_tuning, struct_size, 0) \
  X(aa_kernel_tuning, group_size, 4) \
  X(aa_kernel_tuning, lanes, 8) \
  X(aa_kernel_tuning, subgroup_size, 12) \
  X(aa_kernel_tuning, items, 16) \
  X(aa_kernel_tuning, local_memory, 20) \
  X(aa_kernel_tuning, native_f16, 24) \
  X(aa_kernel_tuning, native_f64, 28) \
  X(aa_compiler_table, struct_size, 0) \
  X(aa_compiler_table, version, 4) \
  X(aa_compiler_table, self, 8) \
  X(aa_compiler_table, languages, 16) \
  X(aa_compiler_table, fingerprint, 24) \
  X(aa_compiler_table, compile, 32) \
  X(aa_compiler_table, release, 40) \
  X(aa_compiler_table, kernel_tuning, 48) \
  X(aa_compiler_table, dialect, 56) \
  X(aa_profiler_table, struct_size, 0) \
  X(aa_profiler_table, version, 4) \
  X(aa_profiler_table, self, 8) \
  X(aa_profiler_table, range_push, 16) \
  X(aa_profiler_table, range_pop, 24) \
  X(aa_profiler_table, mark, 32) \
  X(aa_ceilings_table, struct_size, 0) \
  X(aa_ceilings_table, version, 4) \
  X(aa_ceilings_table, self, 8) \
  X(aa_ceilings_table, measure, 16) \
  X(aa_collectives_table, struct_size, 0) \
  X(aa_collectives_table, version, 4) \
  X(aa_collectives_table, self, 8) \
  X(aa_collectives_table, library, 16) \
  X(aa_collectives_table, id_size, 24) \
  X(aa_collectives_table, id_create, 32) \
  X(aa_collectives_table, comm_create, 40) \
  X(aa_collectives_table, comm_destroy, 48) \
  X(aa_collectives_table, comm_abort, 56) \
  X(aa_collectives_table, async_error, 64) \
  X(aa_collectives_table, group_begin, 72) \
  X(aa_collectives_table, group_end, 80) \
  X(aa_collectives_table, all_reduce, 88) \
  X(aa_collectives_table, reduce, 96) \
  X(aa_collectives_table, broadcast, 104) \
  X(aa_collectives_table, all_gather, 112) \
  X(aa_collectives_table, reduce_scatter, 120) \
  X(aa_collectives_table, send, 128) \
  X(aa_collectives_table, recv, 136) \
  X(aa_step, struct_size, 0) \
  X(aa_step, flags, 4) \
  X(aa_step, key, 8) \
  X(aa_lazy_table, struct_size, 0) \
  X(aa_lazy_table, version, 4) \
  X(aa_lazy_table, self, 8) \
  X(aa_lazy_table, flush, 16) \
  X(aa_lazy_table, step_begin, 24) \
  X(aa_lazy_table, step_end, 32) \
  X(aa_peer_copy, struct_size, 0) \
  X(aa_peer_copy, flags, 4) \
  X(aa_peer_copy, destination_device, 8) \
  X(aa_peer_copy, source_device, 16) \
  X(aa_peer_copy, destination, 24) \
  X(aa_peer_copy, source, 32) \
  X(aa_peer_copy, size, 40) \
  X(aa_peer_copy, destination_memory, 48) \
  X(aa_peer_copy, source_memory, 56) \
  X(aa_peer_table, struct_size, 0) \
  X(aa_peer_table, version, 4) \
  X(aa_peer_table, self, 8) \
  X(aa_peer_table, can_copy, 16) \
  X(aa_peer_table, copy_async, 24) \
  X(aa_memory_kind_info, struct_size, 0) \
  X(aa_memory_kind_info, kind, 4) \
  X(aa_memory_kind_info, name, 8) \
  X(aa_memory_kind_info, access, 40) \
  X(aa_memory_kind_info, numa_node, 44) \
  X(aa_memory_kinds_table, struct_size, 0) \
  X(aa_memory_kinds_table, version, 4) \
  X(aa_memory_kinds_table, self, 8) \
  X(aa_memory_kinds_table, count, 16) \
  X(aa_memory_kinds_table, info, 24) \
  X(aa_memory_kinds_table, usage, 32) \
  X(aa_files_info, struct_size, 0) \
  X(aa_files_info, usable, 4) \
  X(aa_files_info, text, 8) \
  X(aa_file_memory, struct_size, 0) \
  X(aa_file_memory, flags, 4) \
  X(aa_file_memory, pointer, 8) \
  X(aa_file_memory, size, 16) \
  X(aa_file_memory, memory, 24) \
  X(aa_file_params, struct_size, 0) \
  X(aa_file_params, flags, 4) \
  X(aa_file_params, descriptor, 8) \
  X(aa_file_transfer, struct_size, 0) \
  X(aa_file_transfer, flags, 4) \
  X(aa_file_transfer, pointer, 8) \
  X(aa_file_transfer, size, 16) \
  X(aa_file_transfer, file_offset, 24) \
  X(aa_file_transfer, memory, 32) \
  X(aa_files_table, struct_size, 0) \
  X(aa_files_table, version, 4) \
  X(aa_files_table, self, 8) \
  X(aa_files_table, info, 16) \
  X(aa_files_table, memory_register, 24) \
  X(aa_files_table, memory_unregister, 32) \
  X(aa_files_table, file_open, 40) \
  X(aa_files_table, file_close, 48) \
  X(aa_files_table, read, 56) \
  X(aa_files_table, write, 64) \
  X(aa_fault_table, struct_size, 0) \
  X(aa_fault_table, version, 4) \
  X(aa_fault_table, self, 8) \
  X(aa_fault_table, inject, 16) \
  X(aa_fault_table, executed, 24)

/* X(struct, size in bytes) */
#define ANYACCEL_ABI_STRUCTS(X) \
  X(aa_option, 16) \
  X(aa_option_info, 24) \
  X(aa_scratch, 48) \
  X(aa_host, 88) \
  X(aa_tensor, 112) \
  X(aa_probe, 524) \
  X(aa_device_props, 384) \
  X(aa_alloc, 24) \
  X(aa_allocation, 32) \
  X(aa_memory_info, 48) \
  X(aa_copy, 56) \
  X(aa_fill, 48) \
  X(aa_stream_params, 24) \
  X(aa_event_params, 8) \
  X(aa_initialize_params, 24) \
  X(aa_device_open_params, 32) \
  X(aa_module_params, 32) \
  X(aa_kernel_info, 16) \
  X(aa_launch, 72) \
  X(aa_op_builder, 72) \
  X(aa_toolchain, 48) \
  X(aa_driver, 376) \
  X(aa_graph_table, 64) \
  X(aa_register, 24) \
  X(aa_registration, 24) \
  X(aa_host_memory_table, 32) \
  X(aa_host_code_table, 40) \
  X(aa_norm_params, 8) \
  X(aa_norm_linear_params, 12) \
  X(aa_norm_rope_params, 16) \
  X(aa_embedding_shard_params, 16) \
  X(aa_activation_params, 8) \
  X(aa_norm_activation_params, 16) \
  X(aa_rope_table_params, 8) \
  X(aa_rope_params, 8) \
  X(aa_attention_params, 16) \
  X(aa_softmax_params, 8) \
  X(aa_increment_params, 16) \
  X(aa_repetition_params, 8) \
  X(aa_sample_params, 20) \
  X(aa_quantized_params, 12) \
  X(aa_norm_quantized_params, 24) \
  X(aa_quantized_shard_params, 16) \
  X(aa_cache_params, 8) \
  X(aa_quantized_attention_params, 20) \
  X(aa_frequency_params, 12) \
  X(aa_accumulate_params, 8) \
  X(aa_moments_params, 12) \
  X(aa_dropout_params, 24) \
  X(aa_scaled_add_params, 12) \
  X(aa_random_params, 40) \
  X(aa_op_call, 48) \
  X(aa_pack, 24) \
  X(aa_ops_table, 72) \
  X(aa_op_services, 32) \
  X(aa_compile_result, 48) \
  X(aa_compile, 56) \
  X(aa_kernel_tuning, 32) \
  X(aa_compiler_table, 64) \
  X(aa_profiler_table, 40) \
  X(aa_ceilings_table, 24) \
  X(aa_collectives_table, 144) \
  X(aa_step, 16) \
  X(aa_lazy_table, 40) \
  X(aa_peer_copy, 64) \
  X(aa_peer_table, 32) \
  X(aa_memory_kind_info, 48) \
  X(aa_memory_kinds_table, 40) \
  X(aa_files_info, 520) \
  X(aa_file_memory, 32) \
  X(aa_file_params, 12) \
  X(aa_file_transfer, 40) \
  X(aa_files_table, 72) \
  X(aa_fault_table, 32)
/* clang-format on */

#endif /* ANYACCEL_TESTS_ABI_ABI_OFFSETS_H_ */
