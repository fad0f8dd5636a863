// Compiling to SPIR-V, and kernels of the Level Zero runtime of xpu on the simulated driver.
#include <thread>

#include "accelerators/xpu/level_zero/spirv_compiler.h"
#include "base/process/subprocess.h"
#include "xpu/level_zero_test_support.h"

namespace anyaccel {
namespace {

namespace fs = std::filesystem;
using test::Child;
using test::error;
using test::ok;
using test::OpenedDevice;
using test::Variable;
using xpu::level_zero::compile_to_spirv;
using xpu::level_zero::spirv_fingerprint;

// A kernel that the simulator has, under its name and with its parameters (tests/simulators/kernels/sim_test.cl).
constexpr const char* scale_source =
    "__kernel __attribute__((reqd_work_group_size(32, 1, 1)))\n"
    "void sim_scale(__global float* y, __global const float* x, float factor, long count) {\n"
    "  const long i = get_global_id(0);\n"
    "  if (i < count) y[i] = x[i] * factor;\n"
    "}\n";
constexpr uint32_t scale_group = 32;

bool has_compilers() { return !xpu::level_zero::find_spirv_tools().clang.empty(); }
#define SKIP_WITHOUT_COMPILERS() \
  if (!has_compilers())          \
  GTEST_SKIP() << "there are no clang and llvm-spirv of one version (Debian packages of these names)"

size_t left_in(const fs::path& folder) {
  return static_cast<size_t>(std::distance(fs::directory_iterator(folder), fs::directory_iterator()));
}

// ---- compiling -------------------------------------------------------------------------------------------------------

TEST(SpirvCompiler, MakesSpirvAndLeavesNoFiles) {
  SKIP_WITHOUT_COMPILERS();
  const test::TemporaryFolder folder;
  const Variable temporary("TMPDIR", folder.path().string());
  const abi::CompileOutput output = compile_to_spirv("scale.cl", scale_source, {"-DUNUSED=1"});
  ASSERT_TRUE(output.succeeded) << output.log;
  EXPECT_EQ(output.format, "spirv");
  EXPECT_EQ(output.image.size() % 4, 0u);
  EXPECT_TRUE(xpu::level_zero::is_spirv(output.image.data()));
  EXPECT_EQ(output.log, "");
  EXPECT_EQ(left_in(folder.path()), 0u);
}

TEST(SpirvCompiler, TakesSubGroupsHalvesAndRequiredWidths) {
  SKIP_WITHOUT_COMPILERS();
  const char* source =
      "#pragma OPENCL EXTENSION cl_khr_fp16 : enable\n"
      "#ifndef cl_intel_required_subgroup_size\n"
      "#error \"the width cannot be required\"\n"
      "#endif\n"
      "float first(const float* p) { return p[0]; }\n"
      "__kernel __attribute__((intel_reqd_sub_group_size(8))) void k(__global half* y, float x) {\n"
      "  float own[2] = {x, x};\n"
      "  y[get_global_id(0)] = (half)sub_group_reduce_add(first(own));\n"
      "}\n";
  const abi::CompileOutput output = compile_to_spirv("k.cl", source, {});
  ASSERT_TRUE(output.succeeded) << output.log;
  const test::TemporaryFolder folder;
  const auto file = folder.write("k.spv", std::string(output.image.begin(), output.image.end()));
  const ProcessResult text =
      run_program({xpu::level_zero::find_spirv_tools().translator, "--to-text", file.string(), "-o", "-"});
  ASSERT_TRUE(text.ok()) << text.output;
  EXPECT_NE(text.output.find("Capability Groups"), std::string::npos);
  EXPECT_NE(text.output.find("Capability SubgroupDispatch"), std::string::npos);
  EXPECT_EQ(text.output.find("GenericPointer"), std::string::npos) << "pointers of no named space must be private";
}

TEST(SpirvCompiler, TellsErrorsUnderTheCallersName) {
  SKIP_WITHOUT_COMPILERS();
  const test::TemporaryFolder folder;
  const Variable temporary("TMPDIR", folder.path().string());
  const abi::CompileOutput output = compile_to_spirv("my \"own\".cl", "\n__kernel void k() { nonsense; }", {});
  EXPECT_FALSE(output.succeeded);
  EXPECT_NE(output.log.find("my \"own\".cl:2:"), std::string::npos) << output.log;
  EXPECT_NE(output.log.find("nonsense"), std::string::npos) << output.log;
  EXPECT_EQ(left_in(folder.path()), 0u);
}

TEST(SpirvCompiler, SaysWhatToInstallAndStillNamesTheImages) {
  const std::string with = spirv_fingerprint();
  const test::TemporaryFolder empty;
  const Variable path("PATH", empty.path().string());
  try {
    compile_to_spirv("x.cl", scale_source, {});
    FAIL() << "compiled without compilers";
  } catch (const abi::Failure& failure) {
    EXPECT_EQ(failure.code(), AA_UNAVAILABLE);
    for (const char* part : {"clang-14", "llvm-spirv-14", "install"}) {
      EXPECT_NE(std::string(failure.what()).find(part), std::string::npos) << failure.what();
    }
  }
  // Images compiled elsewhere with the compilers of Debian 12 are found by their fingerprint.
  EXPECT_NE(spirv_fingerprint().find("clang+llvm-spirv 14 "), std::string::npos);
  if (has_compilers()) {
    EXPECT_EQ(spirv_fingerprint(), with);
  }
  EXPECT_LT(with.size(), 512u);
}

TEST(SpirvCompiler, AFolderThatCannotBeWrittenIsNamed) {
  SKIP_WITHOUT_COMPILERS();
  const test::TemporaryFolder folder;
  const Variable temporary("TMPDIR", (folder.path() / "missing").string());
  // temp_directory_path gives up on a folder that is not there, and /tmp serves.
  EXPECT_TRUE(compile_to_spirv("scale.cl", scale_source, {}).succeeded);
}

// ---- kernels ---------------------------------------------------------------------------------------------------------

class LevelZeroKernels : public ::testing::Test {
 protected:
  void SetUp() override {
    SKIP_WITHOUT_COMPILERS();
    if (const std::string missing = test::level_zero_missing(); !missing.empty()) GTEST_SKIP() << missing;
  }
};

struct LoadedScale {
  explicit LoadedScale(const OpenedDevice& opened) : d(opened) {
    const auto& compiler = d.extension<aa_compiler_table>(AA_COMPILER_EXTENSION);
    aa_compile_result result{};
    result.struct_size = sizeof(result);
    ok(compiler.compile(d.device, "opencl-c", "scale.cl", scale_source, std::strlen(scale_source), nullptr, 0,
                        &result));
    EXPECT_TRUE(result.succeeded) << result.log;
    ok(d.table.module_load(d.device, result.image, result.image_size, result.format, &module), "module_load");
    ok(compiler.release(&result));
    info.struct_size = sizeof(info);
    if (module) ok(d.table.kernel_get(module, "sim_scale", &kernel, &info), "kernel_get");
  }
  ~LoadedScale() { ok(d.table.module_unload(module)); }

  aa_status* launch(aa_stream* stream, void* y, const void* x, float factor, int64_t count,
                    uint32_t arguments = 4) const {
    const void* values[] = {&y, &x, &factor, &count};
    const uint32_t sizes[] = {sizeof(y), sizeof(x), sizeof(factor), sizeof(count)};
    const uint8_t kinds[] = {AA_ARGUMENT_POINTER, AA_ARGUMENT_POINTER, AA_ARGUMENT_VALUE, AA_ARGUMENT_VALUE};
    aa_launch launch{};
    launch.struct_size = sizeof(launch);
    launch.grid[0] = static_cast<uint32_t>((count + scale_group - 1) / scale_group);
    launch.block[0] = scale_group;
    launch.grid[1] = launch.grid[2] = launch.block[1] = launch.block[2] = 1;
    launch.argument_count = arguments;
    launch.arguments = values;
    launch.argument_sizes = sizes;
    launch.argument_kinds = kinds;
    return d.table.kernel_launch(stream, kernel, &launch);
  }

  const OpenedDevice& d;
  aa_module* module = nullptr;
  aa_kernel* kernel = nullptr;
  aa_kernel_info info{};
};

TEST_F(LevelZeroKernels, TellTheirFactsAndRefuseWrongLaunches) {
  Child({}, [] {
    OpenedDevice d;
    aa_stream* stream = d.stream();
    {
      const LoadedScale scale(d);
      EXPECT_EQ(scale.info.argument_count, 4);
      EXPECT_EQ(scale.info.max_threads_per_block, 32);
      aa_kernel* missing = nullptr;
      EXPECT_EQ(error(d.table.kernel_get(scale.module, "no_such_kernel", &missing, nullptr)).first, AA_NOT_FOUND);
      void* memory = d.memory(400);
      const auto [code, message] = error(scale.launch(stream, memory, memory, 2, 100, 3));
      EXPECT_EQ(code, AA_INVALID_ARGUMENT);
      EXPECT_NE(message.find("\"sim_scale\" takes 4 arguments, 3 were given"), std::string::npos) << message;
      EXPECT_EQ(error(scale.launch(stream, memory, memory, 2, 0)).first, AA_INVALID_ARGUMENT) << "a grid of no groups";
      d.free(memory, 400);
    }
    ok(d.table.stream_destroy(stream));
  }).expect_clean();
}

// One kernel, launched by several threads on streams of their own with arguments of their own.
TEST_F(LevelZeroKernels, ThreadsDoNotMixTheirArguments) {
  Child({{"SIM_SEED", "2"}, {"SIM_DELAY_US", "20"}}, [] {
    OpenedDevice d;
    {
      const LoadedScale scale(d);
      constexpr int threads = 4;
      constexpr int64_t count = 200;
      std::vector<std::thread> running;
      std::vector<int> wrong(threads, 0);
      for (int t = 0; t < threads; ++t) {
        running.emplace_back([&, t] {
          aa_stream* stream = d.stream();
          const size_t size = count * sizeof(float);
          void* x = d.memory(size);
          void* y = d.memory(size);
          std::vector<float> input(count);
          for (int64_t i = 0; i < count; ++i) input[static_cast<size_t>(i)] = static_cast<float>(i + 1000 * t);
          ok(d.table.copy_async(stream, x, input.data(), size, AA_COPY_HOST_TO_DEVICE));
          for (int round = 0; round < 10; ++round) {
            const float factor = static_cast<float>(round * threads + t);
            std::vector<float> output(count);
            ok(scale.launch(stream, y, x, factor, count));
            ok(d.table.copy_async(stream, output.data(), y, size, AA_COPY_DEVICE_TO_HOST));
            ok(d.table.stream_synchronize(stream));
            for (size_t i = 0; i < output.size(); ++i) wrong[static_cast<size_t>(t)] += output[i] != input[i] * factor;
          }
          d.free(x, size);
          d.free(y, size);
          ok(d.table.stream_destroy(stream));
        });
      }
      for (std::thread& thread : running) thread.join();
      EXPECT_EQ(wrong, std::vector<int>(threads, 0));
    }
  }).expect_clean();
}

// y = x * 3, x = y * 2, recorded once; the arguments are those of the recording.
TEST_F(LevelZeroKernels, GraphsKeepTheArgumentsOfTheRecording) {
  const Child child({{"SIM_SEED", "4"}, {"SIM_DELAY_US", "50"}}, [] {
    OpenedDevice d;
    aa_stream* stream = d.stream();
    {
      const LoadedScale scale(d);
      const auto& graphs = d.extension<aa_graph_table>(AA_GRAPH_EXTENSION);
      constexpr int64_t count = 100;
      constexpr size_t size = count * sizeof(float);
      void* x = d.memory(size);
      void* y = d.memory(size);
      const std::vector<float> ones(count, 1.0f);
      ok(d.table.copy_async(stream, x, ones.data(), size, AA_COPY_HOST_TO_DEVICE));
      ok(graphs.capture_begin(stream));
      ok(scale.launch(stream, y, x, 3, count));
      ok(scale.launch(stream, x, y, 2, count));
      aa_graph* graph = nullptr;
      ok(graphs.capture_end(stream, &graph));
      ok(scale.launch(stream, y, y, 0, count));  // the kernel's own state changes
      for (int i = 0; i < 4; ++i) ok(graphs.launch(graph, stream));
      std::vector<float> output(count);
      ok(d.table.copy_async(stream, output.data(), x, size, AA_COPY_DEVICE_TO_HOST));
      ok(d.table.stream_synchronize(stream));
      EXPECT_EQ(output, std::vector<float>(count, 1296.0f));
      ok(graphs.destroy(graph));
      d.free(x, size);
      d.free(y, size);
    }
    ok(d.table.stream_destroy(stream));
  });
  child.expect_clean();
  EXPECT_EQ(child.report["calls"].value("zeCommandListAppendLaunchKernel", 0), 3) << "a replay must append no kernels";
}

TEST_F(LevelZeroKernels, ModulesThatAreNoneAreRefused) {
  Child({}, [] {
    OpenedDevice d;
    aa_module* module = nullptr;
    const std::string words(64, 'x');
    EXPECT_EQ(error(d.table.module_load(d.device, words.data(), words.size(), "cubin", &module)).first,
              AA_UNIMPLEMENTED);
    EXPECT_EQ(error(d.table.module_load(d.device, words.data(), words.size(), "spirv", &module)).first,
              AA_INVALID_ARGUMENT);
    // The driver's own words are in the error of a module that it does not take.
    const abi::CompileOutput unknown =
        compile_to_spirv("x.cl", "__kernel void unheard_of(__global int* x) { x[0] = 1; }", {});
    const auto [code, message] =
        error(d.table.module_load(d.device, unknown.image.data(), unknown.image.size(), "spirv", &module));
    EXPECT_EQ(code, AA_INVALID_ARGUMENT);
    EXPECT_NE(message.find("unheard_of"), std::string::npos) << message;
    // Cut off in the middle.
    EXPECT_NE(error(d.table.module_load(d.device, unknown.image.data(), unknown.image.size() / 8 * 4, "spirv", &module))
                  .first,
              AA_OK);
    EXPECT_EQ(module, nullptr);
  });
}

}  // namespace
}  // namespace anyaccel
