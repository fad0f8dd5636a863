// The simulated CUDA driver: starting it, looking functions up, devices, contexts, modules, and what other simulated
// libraries use of it.
#include "tests/simulators/cuda_face.h"

#include <sys/wait.h>

#include <iterator>

#include "simulators/cuda/facts.h"
#include "simulators/libraries/hooks.h"

namespace {

using namespace cuda_face;  // NOLINT

// Copy in, kernel, copy out; the same as a graph, launched twice; everything given back.
void well_behaved() {
  Program p;
  const auto stream = p.stream(), other = p.stream();
  const auto start = p.event(0), end = p.event(0);
  auto* x = p.pinned<float>(1000);
  auto* y = p.pinned<float>(1000);
  for (int i = 0; i < 1000; ++i) x[i] = static_cast<float>(i + 1);
  const auto a = p.allocate(4000), b = p.allocate(4000);
  const auto module = p.module();
  const auto scale = p.function(module);
  CU_OK(api().event_record(start, stream));
  CU_OK(p.copy(a, x, 4000, stream));
  CU_OK(p.scale(scale, stream, b, a, 3.0f, 1000));
  CU_OK(api().event_record(end, stream));
  CU_OK(api().stream_wait_event(other, end, 0));
  CU_OK(p.copy(y, b, 4000, other));
  CU_OK(api().stream_synchronize(other));
  for (int i = 0; i < 1000; ++i) CHECK(y[i] == 3.0f * x[i]);
  float milliseconds = -1;
  CU_OK(api().event_elapsed(&milliseconds, start, end));
  CHECK(milliseconds >= 0);

  GraphHandle graph = nullptr;
  GraphExecHandle exec = nullptr;
  CU_OK(api().capture_begin(stream, capture_mode_thread_local));
  CU_OK(p.scale(scale, stream, b, a, 3.0f, 1000));
  CU_OK(api().copy_async(a, b, 4000, stream));
  CU_OK(api().capture_end(stream, &graph));
  std::size_t nodes = 0;
  CU_OK(api().graph_nodes(graph, nullptr, &nodes));
  CHECK(nodes == 2);
  CU_OK(api().graph_instantiate(&exec, graph, 0));
  CU_OK(api().graph_destroy(graph));
  for (int i = 0; i < 2; ++i) CU_OK(api().graph_launch(exec, stream));
  CU_OK(p.copy(y, a, 4000, stream));
  CU_OK(api().stream_synchronize(stream));
  for (int i = 0; i < 1000; ++i) CHECK(y[i] == 9.0f * x[i]);

  CU_OK(api().graph_exec_destroy(exec));
  CU_OK(api().module_unload(module));
  for (const auto event : {start, end}) CU_OK(api().event_destroy(event));
  for (const auto one : {stream, other}) CU_OK(api().stream_destroy(one));
  for (const auto pointer : {a, b}) CU_OK(api().memory_free(pointer));
  for (auto* pointer : {x, y}) CU_OK(api().host_free(pointer));
  p.end();
}

TEST_F(CudaFace, AWellBehavedProgramLeavesACleanReport) {
  for (const char* seed : {"0", "1", "2"}) {
    const auto report = run(well_behaved, {{"SIM_SEED", seed}});
    EXPECT_EQ(report.at("violations"), nlohmann::json::array()) << "seed " << seed;
    EXPECT_EQ(report.at("leaks"), nlohmann::json::array()) << "seed " << seed;
    EXPECT_EQ(report.at("calls").at("cuMemcpyAsync"), 4);
    EXPECT_EQ(report.at("calls").at("cuMemAllocManaged"), 0);
  }
}

TEST_F(CudaFace, ItSaysThatItIsASimulator) {
  EXPECT_EQ(kinds_of([] {
              CHECK(symbol<int()>("cuda_is_simulator")() == 1);
              CHECK(api().init != nullptr);
            }),
            "");
}

TEST_F(CudaFace, FunctionsAreFoundByNameAndVersion) {
  const auto report = run([] {
    int status = -1;
    CHECK(address_of("cuMemAlloc", 3020, &status) != nullptr && status == 0);
    CHECK(address_of("cuMemAlloc", 13000) == address_of("cuMemAlloc", 3020));
    CHECK(address_of("cuMemAlloc", 2000) != address_of("cuMemAlloc", 3020));  // the 32-bit form
    CHECK(address_of("cuLaunchKernelEx", 11050, &status) == nullptr && status == 2);
    CHECK(address_of("cuNoSuchFunction", 13000, &status) == nullptr && status == 1);
    CHECK(address_of("cuMemAlloc_v2", 13000, &status) == nullptr && status == 1);  // base names only
    void* function = nullptr;
    CU_IS(error_invalid_value, symbol<GetAddress>("cuGetProcAddress_v2")("cuInit", &function, 13010, 1, nullptr));
    using OldGetAddress = int(const char*, void**, int, std::uint64_t);
    CU_IS(error_not_found, symbol<OldGetAddress>("cuGetProcAddress")("cuNoSuchFunction", &function, 12000, 1));
    CU_OK(symbol<OldGetAddress>("cuGetProcAddress")("cuInit", &function, 12000, 1));
    CHECK(function == reinterpret_cast<void*>(api().init));
    // The plain name is an old form.
    CU_IS(error_not_supported, symbol<int(void*, std::size_t)>("cuMemAlloc")(&function, 4096));
  });
  EXPECT_EQ(kinds(report), "legacy-function");
}

// NVRTC 13 asks for one, without a look at whether there is the function.
TEST_F(CudaFace, ThereAreNoExportTables) {
  EXPECT_EQ(kinds_of([] {
              const void* table = &table;
              const char id[16] = {};
              auto* get = symbol<int(const void**, const void*)>("cuGetExportTable");
              CHECK(get != nullptr);
              CU_IS(error_invalid_value, get(&table, id));
              CHECK(table == nullptr);
            }),
            "");
}

TEST_F(CudaFace, OldDriversAndHiddenFunctionsLackThem) {
  run([] { CHECK(address_of("cuMemCreate", 13000) == nullptr && symbol<int()>("cuMemCreate") == nullptr); },
      {{"SIM_FAULT", "hide:cuMemCreate"}});
  run(
      [] {
        CHECK(symbol<GetAddress>("cuGetProcAddress_v2") == nullptr);
        CHECK(symbol<int()>("cuGetProcAddress") != nullptr && symbol<int()>("cuLaunchKernelEx") != nullptr);
        int version = 0;
        CU_OK(symbol<int(int*)>("cuDriverGetVersion")(&version));
        CHECK(version == 11080);
      },
      {{"SIM_CUDA_VERSION", "11080"}});
  run([] { CHECK(symbol<int()>("cuGetProcAddress") == nullptr); }, {{"SIM_CUDA_VERSION", "11020"}});
}

TEST_F(CudaFace, TheDriverIsStartedFirstAndAContextMadeCurrent) {
  const auto report = run([] {
    int number = 0;
    ContextHandle context = nullptr;
    CU_IS(error_not_initialized, api().device_count(&number));
    CU_IS(error_invalid_value, api().init(1));
    CU_OK(api().init(0));
    CU_OK(api().device_count(&number));
    CHECK(number == 2);
    DevicePointer pointer = 0;
    CU_IS(error_invalid_context, api().memory_alloc(&pointer, 64));
    CU_OK(api().context_get_current(&context));
    CHECK(context == nullptr);
    CU_IS(error_invalid_device, api().device_get(&number, 2));
    CU_OK(api().primary_context_retain(&context, 1));
    ContextHandle same = nullptr;
    CU_OK(api().primary_context_retain(&same, 1));
    CHECK(same == context);
    CU_OK(api().context_set_current(context));
    CU_OK(symbol<int(int*)>("cuCtxGetDevice")(&number));
    CHECK(number == 1);
    std::thread([] {  // each thread has its own
      DevicePointer other = 0;
      CU_IS(error_invalid_context, api().memory_alloc(&other, 64));
    })
        .join();
    CU_OK(api().primary_context_release(1));
    CU_OK(api().memory_alloc(&pointer, 64));
    CU_OK(api().memory_free(pointer));
    CU_OK(api().primary_context_release(1));
    CU_IS(error_context_is_destroyed, api().memory_alloc(&pointer, 64));
    CU_IS(error_invalid_context, api().primary_context_release(1));
    CU_IS(error_invalid_context, api().context_set_current(context));
  });
  EXPECT_EQ(kinds(report),
            "not-initialized,bad-argument,no-context,bad-argument,no-context,no-context,bad-argument,bad-handle");
}

TEST_F(CudaFace, VisibleDevicesAreReadAsTheDriverReadsThem) {
  const std::string second = sim::cuda::uuid_text(sim::cuda::device_uuid(2));
  const std::string both = second.substr(0, 8) + "," + sim::cuda::uuid_text(sim::cuda::device_uuid(0));
  const std::string twice = second + "," + second;
  struct Case {
    const char* list;
    std::vector<int> devices;
  };
  for (const Case& one :
       {Case{"", {}}, Case{"1,3", {1, 3}}, Case{"3,0", {3, 0}}, Case{"1,9,2", {1}}, Case{"1,-1,2", {1}}, Case{"x", {}},
        Case{"0,0", {}}, Case{second.c_str(), {2}}, Case{both.c_str(), {2, 0}}, Case{"GPU-", {}},
        Case{twice.c_str(), {}}, Case{"GPU-ffff", {}}}) {
    SCOPED_TRACE(one.list);
    run(
        [&one] {
          CU_IS(one.devices.empty() ? error_no_device : success, api().init(0));
          if (one.devices.empty()) return;
          int count = 0;
          CU_OK(api().device_count(&count));
          CHECK(count == static_cast<int>(one.devices.size()));
          for (int i = 0; i < count; ++i) {
            char name[64];
            Uuid uuid;
            CU_OK(api().device_name(name, sizeof name, i));
            CHECK(name == sim::cuda::device_name(one.devices[static_cast<std::size_t>(i)]));
            CU_OK(api().device_uuid(&uuid, i));
            const auto bytes = sim::cuda::device_uuid(one.devices[static_cast<std::size_t>(i)]);
            CHECK(std::memcmp(uuid.bytes, bytes.data(), 16) == 0);
          }
        },
        {{"SIM_DEVICES", "4"}, {"CUDA_VISIBLE_DEVICES", one.list}});
  }
}

TEST_F(CudaFace, ItStartsOnlyWhereItCan) {
  run([] { CU_IS(error_no_device, api().init(0)); }, {{"SIM_DEVICES", "0"}});
  run([] { CU_IS(error_unknown, api().init(0)); }, {{"SIM_FAULT", "init"}});
  run(
      [] {
        int version = 0;
        CU_IS(error_stub_library, symbol<int(unsigned)>("cuInit")(0));
        CU_IS(error_stub_library, symbol<int(int*)>("cuDriverGetVersion")(&version));
      },
      {{"SIM_FAULT", "stub"}});
  run(
      [] {
        ContextHandle context = nullptr;
        CU_OK(api().init(0));
        CU_IS(error_device_unavailable, api().primary_context_retain(&context, 0));
      },
      {{"SIM_FAULT", "busy"}});
}

TEST_F(CudaFace, DevicesTellWhatTheyAre) {
  run(
      [] {
        const Program p;
        const auto attribute = [](int which) {
          int value = -1;
          CU_OK(api().device_attribute(&value, which, 0));
          return value;
        };
        CHECK(attribute(attribute_compute_capability_major) == 8 && attribute(attribute_compute_capability_minor) == 0);
        CHECK(attribute(attribute_warp_size) == 32 && attribute(attribute_max_shared_memory_per_block_optin) == 166912);
        CHECK(attribute(attribute_virtual_memory_management) == 1 && attribute(attribute_memory_pools) == 0);
        std::size_t bytes = 0, free = 0;
        CU_OK(api().device_total_memory(&bytes, 0));
        CHECK(bytes == std::size_t{64} << 20);
        const auto pointer = p.allocate(4096);
        CU_OK(api().memory_info(&free, &bytes));
        CHECK(bytes - free == 4096);
        CU_OK(api().memory_free(pointer));
        int least = -9, greatest = 9;
        CU_OK(api().stream_priority_range(&least, &greatest));
        CHECK(least == 0 && greatest == -5);
      },
      {{"SIM_CUDA_ARCH", "80"}, {"SIM_MEMORY", "64m"}});
}

// Numbers and names against NVIDIA's header, where the toolkit is installed.
TEST_F(CudaFace, ErrorsHaveTheNumbersOfTheHeader) {
  const char* home = std::getenv("CUDA_HOME");
  const std::string path = std::string(home == nullptr ? "/usr/local/cuda" : home) + "/include/cuda.h";
  std::ifstream file(path);
  if (!file) GTEST_SKIP() << path << " is not there";
  std::string header;  // "CUDA_ERROR_NAME=2," without the spaces
  for (const char c : std::string{std::istreambuf_iterator<char>(file), {}}) {
    if (c != ' ') header += c;
  }
  run([&header] {
    int known = 0;
    for (int code = 0; code < 1000; ++code) {
      const char* name = nullptr;
      if (api().error_name(code, &name) != success) continue;
      ++known;
      const size_t at = header.find("\n" + std::string(name) + "=");
      if (at == std::string::npos || std::stoi(header.substr(header.find('=', at) + 1)) != code) {
        std::fprintf(stderr, "%s is not %d in the header\n", name, code);
        std::_Exit(94);
      }
    }
    CHECK(known > 30);
  });
}

TEST_F(CudaFace, HandlesOfAnotherKindOrContextAreRefused) {
  const auto report = run([] {
    Program p;
    const auto stream = p.stream(), gone = p.stream();
    const auto event = p.event();
    CU_OK(api().stream_destroy(gone));
    CU_IS(error_invalid_handle, api().stream_synchronize(gone));
    CU_IS(error_invalid_handle, api().stream_synchronize(reinterpret_cast<StreamHandle>(event)));
    CU_IS(error_invalid_handle, api().stream_synchronize(reinterpret_cast<StreamHandle>(0x1234)));
    CU_IS(error_invalid_handle, api().event_record(nullptr, stream));
    CU_IS(error_invalid_handle, api().stream_destroy(nullptr));
    const auto module = p.module();
    const auto scale = p.function(module);
    const auto a = p.allocate(64);
    ContextHandle second = nullptr;
    CU_OK(api().primary_context_retain(&second, 1));
    CU_OK(api().context_set_current(second));
    const auto elsewhere = p.stream();
    CU_IS(error_invalid_handle, p.scale(scale, elsewhere, a, a, 1.0f, 1));  // function of another context
    CU_IS(error_invalid_handle, api().event_record(event, elsewhere));
    CU_OK(api().event_query(event));  // from any context
    CU_OK(api().stream_synchronize(stream));
    CU_IS(error_invalid_value, api().memory_free(a));
    CU_OK(api().context_set_current(p.context));
    CU_IS(error_invalid_handle, p.scale(scale, elsewhere, a, a, 1.0f, 1));  // stream of another context
    CU_OK(api().module_unload(module));
    CU_IS(error_invalid_handle, p.scale(scale, stream, a, a, 1.0f, 1));  // its functions went with it
  });
  EXPECT_EQ(kinds(report),
            "bad-handle,bad-handle,bad-handle,bad-handle,bad-handle,bad-handle,bad-handle,wrong-owner,bad-handle,"
            "bad-handle");
}

TEST_F(CudaFace, ModulesAreReadAndChecked) {
  const auto report = run([] {
    Program p;
    ModuleHandle module = nullptr;
    const auto load = [&](const char* image) { return api().module_load(&module, image, 0, nullptr, nullptr); };
    CU_IS(error_invalid_image, load("nothing of the kind"));
    CU_IS(error_invalid_image, load("SIMCUBIN\nkernel sim_scale\n"));
    CU_IS(error_no_binary_for_gpu, load("SIMCUBIN\narch sm_80\nkernel sim_scale\n"));
    CU_IS(error_no_binary_for_gpu, load("SIMCUBIN\narch sm_100\nkernel sim_scale\n"));
    CU_OK(load("SIMCUBIN\narch sm_90a\nkernel sim_scale\nkernel no_such_kernel\n"));
    FunctionHandle function = nullptr;
    CU_IS(error_not_found, api().module_function(&function, module, "sim_reverse"));
    CU_IS(error_not_found, api().module_function(&function, module, "no_such_kernel"));
    CU_OK(api().module_function(&function, module, "sim_scale"));
    int value = 0;
    CU_OK(api().function_attribute(&value, function_max_threads_per_block, function));
    CHECK(value == 32);

    const auto stream = p.stream();
    DevicePointer y = p.allocate(128), x = p.allocate(128);
    float factor = 2;
    std::int64_t count = 32;
    void* arguments[] = {&y, &x, &factor, &count};
    void* missing[] = {&y, &x, &factor, nullptr};
    const auto launch = [&](unsigned grid, unsigned block, unsigned block_y, unsigned shared, void** list) {
      return api().launch_kernel(function, grid, 1, 1, block, block_y, 1, shared, stream, list, nullptr);
    };
    CU_OK(launch(1, 32, 1, 0, arguments));
    CU_IS(error_invalid_value, launch(0, 32, 1, 0, arguments));
    CU_IS(error_invalid_value, launch(1, 64, 1, 0, arguments));
    CU_IS(error_invalid_value, launch(1, 32, 2, 0, arguments));
    CU_IS(error_invalid_value, launch(1, 32, 1, 0, missing));
    CU_IS(error_invalid_value, launch(1, 32, 1, 0, nullptr));
    CU_IS(error_invalid_value, launch(1, 32, 1, 49153, arguments));
    CU_IS(error_invalid_value, api().function_set_attribute(function, function_max_dynamic_shared_size_bytes, 232449));
    CU_OK(api().function_set_attribute(function, function_max_dynamic_shared_size_bytes, 232448));
    CU_OK(launch(1, 32, 1, 49153, arguments));
    CU_OK(api().stream_synchronize(stream));
  });
  EXPECT_EQ(kinds(report),
            "kernel-state,kernel-state,kernel-state,kernel-state,kernel-state,kernel-state,"
            "kernel-state,kernel-state");
}

// A cubin of the real compiler's layout: an ELF file with a section for each kernel.
std::vector<char> cubin(const std::vector<std::string>& kernels, unsigned arch, unsigned char abi) {
  struct Header {
    unsigned char ident[16] = {0x7f, 'E', 'L', 'F', 2, 1, 1, 65};
    std::uint16_t type = 2, machine = 190;
    std::uint32_t version = 1;
    std::uint64_t entry = 0, program_offset = 0, section_offset = 64;
    std::uint32_t flags = 0;
    std::uint16_t header_size = 64, program_size = 56, program_count = 0, section_size = 64, section_count = 0,
                  names = 0;
  } header;
  struct Section {
    std::uint32_t name = 0, type = 1;
    std::uint64_t flags = 0, address = 0, offset = 0, size = 0;
    std::uint32_t link = 0, info = 0;
    std::uint64_t alignment = 1, entry_size = 0;
  };
  header.ident[8] = abi;
  header.flags = abi >= 8 ? 0x6000002 | arch << 8 : 0x560500 | arch;
  header.section_count = static_cast<std::uint16_t>(kernels.size() + 1);
  std::vector<Section> sections(kernels.size() + 1);
  std::string names(1, '\0');
  for (std::size_t i = 0; i < kernels.size(); ++i) {
    sections[i + 1].name = static_cast<std::uint32_t>(names.size());
    names += ".text." + kernels[i] + '\0';
  }
  sections[0].offset = 64 + sections.size() * sizeof(Section);
  std::vector<char> image(sections[0].offset);
  std::memcpy(image.data(), &header, 64);
  std::memcpy(image.data() + 64, sections.data(), sections.size() * sizeof(Section));
  image.insert(image.end(), names.begin(), names.end());
  return image;
}

TEST_F(CudaFace, RealCubinsNameTheirKernels) {
  EXPECT_EQ(kinds_of([] {
              Program p;
              ModuleHandle module = nullptr;
              for (const unsigned char abi : {7, 8}) {
                const auto good = cubin({"sim_reverse", "sim_scale"}, 90, abi);
                CU_OK(api().module_load(&module, good.data(), 0, nullptr, nullptr));
                p.function(module, "sim_scale");
                p.function(module, "sim_reverse");
                const auto wrong = cubin({"sim_scale"}, 100, abi);
                CU_IS(error_no_binary_for_gpu, api().module_load(&module, wrong.data(), 0, nullptr, nullptr));
              }
            }),
            "");
}

TEST_F(CudaFace, AForkedChildCannotUseIt) {
  const auto report = run([] {
    const Program p;
    const pid_t child = ::fork();
    if (child == 0) {
      DevicePointer pointer = 0;
      const bool refused =
          api().memory_alloc(&pointer, 64) == error_not_initialized && api().init(0) == error_not_initialized;
      std::exit(refused ? 0 : 1);
    }
    int status = -1;
    CHECK(::waitpid(child, &status, 0) == child && status == 0);
  });
  EXPECT_EQ(kinds(report), "");
}

TEST_F(CudaFace, AChildForkedBeforeItWasStartedMayUseIt) {
  const auto report = run([] {
    int version = 0;
    CU_OK(api().driver_version(&version));
    const pid_t child = ::fork();
    if (child == 0) well_behaved();
    if (child == 0) std::_Exit(0);
    int status = -1;
    CHECK(::waitpid(child, &status, 0) == child && status == 0);
    well_behaved();
  });
  EXPECT_EQ(kinds(report), "");
}

TEST_F(CudaFace, WhatIsNotDestroyedIsALeak) {
  const auto report = run([] {
    Program p;
    p.allocate(100);
    p.pinned(100);
    p.stream();
    p.event();
    p.module();
  });
  EXPECT_EQ(report.at("leaks").size(), 5u) << report.at("leaks");
  // A context that goes takes everything with it: that is said instead.
  EXPECT_EQ(kinds_of([] {
              Program p;
              p.allocate(100);
              p.stream();
              p.end();
            }),
            "destroyed-in-use");
}

// Functions of the driver that the other simulated libraries use.
TEST_F(CudaFace, OtherLibrariesWorkOnItsStreams) {
  const auto report = run([] {
    Program p;
    auto* enqueue = symbol<decltype(sim_hooks::sim_hook_enqueue)>("sim_hook_enqueue");
    const auto stream = p.stream();
    const auto a = p.allocate(64), b = p.allocate(64);
    const auto move = [&](std::size_t bytes) {
      return enqueue(stream, "move", {{a, bytes, false}, {b, bytes, true}},
                     [bytes](char* const* at) { std::memcpy(at[1], at[0], bytes); });
    };
    CU_OK(api().fill_8_async(a, 7, 64, stream));
    CU_OK(move(64));
    char seen[64] = {};
    CU_OK(p.copy(seen, b, 64, stream));
    CHECK(seen[0] == 7 && seen[63] == 7);
    GraphHandle graph = nullptr;
    GraphExecHandle exec = nullptr;
    CU_OK(api().capture_begin(stream, capture_mode_thread_local));
    CU_OK(move(64));
    CU_OK(api().capture_end(stream, &graph));
    CU_OK(api().graph_instantiate(&exec, graph, 0));
    CU_OK(api().fill_8_async(a, 9, 64, stream));
    CU_OK(api().graph_launch(exec, stream));
    CU_OK(p.copy(seen, b, 64, stream));
    CHECK(seen[0] == 9 && seen[63] == 9);
    int device = -1;
    std::size_t bytes = 0;
    CU_OK(symbol<decltype(sim_hooks::sim_hook_pointer)>("sim_hook_pointer")(a + 16, &device, &bytes));
    CHECK(device == 0 && bytes == 48);
    CHECK(symbol<decltype(sim_hooks::sim_hook_used)>("sim_hook_used")(0) == 128);
    symbol<decltype(sim_hooks::sim_hook_count_call)>("sim_hook_count_call")("libraryFunction");
    symbol<decltype(sim_hooks::sim_hook_add_object)>("sim_hook_add_object")("library handle");
    CU_OK(move(65));
    CU_IS(700, api().stream_synchronize(stream));
  });
  EXPECT_EQ(kinds(report), "out-of-bounds");
  EXPECT_EQ(report.at("calls").at("libraryFunction"), 1);
  EXPECT_NE(report.at("leaks").dump().find("library handle"), std::string::npos);
}

}  // namespace
