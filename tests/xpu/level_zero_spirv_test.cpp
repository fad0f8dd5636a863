// The portable kernels as SPIR-V: every one is compiled, and some are translated back to LLVM's bitcode and run by PoCL's CPU
// device, which takes no SPIR-V, beside the same kernels that PoCL compiled from their source.
#include <cmath>

#include "accelerators/xpu/level_zero/spirv_compiler.h"
#include "anyaccel/device_op.h"
#include "base/process/subprocess.h"
#include "kernels/kernel_files.h"
#include "ops/portable/kernel_set.h"
#include "runtime/ops/kernel_arguments.h"
#include "xpu/level_zero_test_support.h"
#include "xpu/spirv_on_opencl.h"

namespace anyaccel {
namespace {

namespace fs = std::filesystem;
using ops::portable::aa_rows;
using ops::portable::aa_view;
using test::ok;
using test::OpenedDevice;
using xpu::level_zero::compile_to_spirv;

std::string source_of(const std::string& file) {
  const fs::path folder = fs::path(ANYACCEL_SOURCE_DIR) / "kernels/portable";
  return expand_includes((folder / file).string(), {(folder / "dialects/opencl-c").string()});
}

aa_kernel_tuning tuning(int32_t group, int32_t lanes, int32_t subgroup, int32_t local, int32_t f16) {
  aa_kernel_tuning t{};
  t.struct_size = sizeof(t);
  t.group_size = group;
  t.lanes = lanes;
  t.subgroup_size = subgroup;
  t.items = group > 1 ? group : 1;
  t.local_memory = local;
  t.native_f16 = f16;
  t.native_f64 = 1;
  return t;
}

class Spirv : public ::testing::Test {
 protected:
  void SetUp() override {
    if (xpu::level_zero::find_spirv_tools().clang.empty()) {
      GTEST_SKIP() << "there are no clang and llvm-spirv of one version (Debian packages of these names)";
    }
  }
};

TEST_F(Spirv, EveryPortableKernelCompilesAndTranslatesBack) {
  const aa_kernel_tuning tunings[] = {tuning(32, 8, 8, 16384, 1), tuning(1, 1, 0, 0, 0), tuning(64, 16, 0, 32768, 0)};
  int files = 0;
  for (const auto& entry : fs::directory_iterator(fs::path(ANYACCEL_SOURCE_DIR) / "kernels/portable")) {
    if (entry.path().extension() != ".cl") continue;
    ++files;
    const std::string name = entry.path().filename().string();
    const std::string source = source_of(name);
    const std::vector<std::vector<std::string>> types = type_options(read_text(entry.path()));
    size_t number = 0;
    for (const aa_kernel_tuning& t : tunings) {
      std::vector<std::string> options = ops::portable::dialect_options(t);
      // One choice of types a tuning: the others differ in macros that these expand too.
      const std::vector<std::string>& chosen = types[number++ % types.size()];
      options.insert(options.end(), chosen.begin(), chosen.end());
      const abi::CompileOutput output = compile_to_spirv(name, source, options);
      ASSERT_TRUE(output.succeeded) << output.log;
      EXPECT_FALSE(anyaccel::testing::bitcode_of_spirv(output.image).empty()) << name;
    }
  }
  EXPECT_GE(files, 8);
}

// ---- on PoCL ---------------------------------------------------------------------------------------------------------

class SpirvOnPocl : public Spirv {
 protected:
  void SetUp() override {
    Spirv::SetUp();
    if (IsSkipped()) return;
    setenv("ANYACCEL_XPU_RUNTIME", "opencl", 1);
    setenv("ANYACCEL_OPENCL_DEVICE_TYPE", "cpu", 1);
    const aa_probe found = test::probe();
    if (found.state != AA_PROBE_USABLE) GTEST_SKIP() << "PoCL (Debian package pocl-opencl-icd): " << found.reason;
    const OpenedDevice d;
    char text[512] = {};
    ok(d.extension<aa_compiler_table>(AA_COMPILER_EXTENSION).fingerprint(d.device, text, sizeof(text)));
    const char* version = std::strstr(text, "driver ");
    if (version && std::atoi(version + 7) >= 6) GTEST_SKIP() << "PoCL takes LLVM's bitcode before version 6: " << text;
  }
};

// A module from the source, and one with the same head and other code.
struct Pair {
  Pair(const OpenedDevice& opened, const std::string& file, const aa_kernel_tuning& t) : d(opened) {
    const std::string source = source_of(file);
    const std::vector<std::string> options = ops::portable::dialect_options(t);
    std::vector<const char*> given;
    for (const std::string& option : options) given.push_back(option.c_str());
    const auto& compiler = d.extension<aa_compiler_table>(AA_COMPILER_EXTENSION);
    aa_compile_result result{};
    result.struct_size = sizeof(result);
    ok(compiler.compile(d.device, "opencl-c", file.c_str(), source.data(), source.size(), given.data(), given.size(),
                        &result));
    EXPECT_TRUE(result.succeeded) << result.log;
    const std::string image(static_cast<const char*>(result.image), result.image_size);
    ok(d.table.module_load(d.device, image.data(), image.size(), result.format, &modules[0]));

    const abi::CompileOutput output = compile_to_spirv(file, source, options);
    EXPECT_TRUE(output.succeeded) << output.log;
    const std::string bitcode = anyaccel::testing::bitcode_of_spirv(output.image);
    const std::string other = anyaccel::testing::image_with_program(image, bitcode);
    ok(d.table.module_load(d.device, other.data(), other.size(), result.format, &modules[1]), "bitcode");
    ok(compiler.release(&result));
  }
  ~Pair() {
    for (aa_module* module : modules) {
      if (module) ok(d.table.module_unload(module));
    }
  }

  // Runs the kernel of either module; `arguments` with null pointers replaced by `out` and `in`, in this order.
  template <class... Arguments>
  std::vector<float> run(int which, const char* name, uint32_t groups, uint32_t items, size_t out_size,
                         const Arguments&... arguments) const {
    aa_kernel* kernel = nullptr;
    ok(d.table.kernel_get(modules[which], name, &kernel, nullptr), name);
    if (!kernel) return {};
    const void* values[] = {&arguments...};
    const uint32_t sizes[] = {sizeof(arguments)...};
    const uint8_t kinds[] = {std::is_pointer_v<Arguments> ? AA_ARGUMENT_POINTER : AA_ARGUMENT_VALUE...};
    aa_launch launch{};
    launch.struct_size = sizeof(launch);
    launch.grid[0] = groups;
    launch.block[0] = items;
    launch.grid[1] = launch.grid[2] = launch.block[1] = launch.block[2] = 1;
    launch.argument_count = sizeof...(arguments);
    launch.arguments = values;
    launch.argument_sizes = sizes;
    launch.argument_kinds = kinds;
    aa_stream* stream = d.stream();
    std::vector<float> found(out_size);
    ok(d.table.kernel_launch(stream, kernel, &launch), name);
    void* out = nullptr;
    std::memcpy(&out, values[0], sizeof(out));
    ok(d.table.copy_async(stream, found.data(), out, out_size * sizeof(float), AA_COPY_DEVICE_TO_HOST));
    ok(d.table.stream_synchronize(stream));
    ok(d.table.stream_destroy(stream));
    return found;
  }

  const OpenedDevice& d;
  aa_module* modules[2] = {nullptr, nullptr};
};

void* upload(const OpenedDevice& d, const std::vector<float>& values) {
  const size_t size = values.size() * sizeof(float);
  void* memory = d.memory(size);
  aa_stream* stream = d.stream();
  ok(d.table.copy_async(stream, memory, values.data(), size, AA_COPY_HOST_TO_DEVICE));
  ok(d.table.stream_synchronize(stream));
  ok(d.table.stream_destroy(stream));
  return memory;
}

std::vector<float> random_values(size_t count, uint32_t seed) {
  std::vector<float> values(count);
  for (float& value : values) {
    seed = seed * 1664525u + 1013904223u;
    value = static_cast<float>(static_cast<int32_t>(seed)) * 0x1p-30f;
  }
  return values;
}

aa_tensor tensor_of(std::vector<int64_t> shape, int32_t dtype = AA_DTYPE_F32) {
  aa_tensor tensor{};
  tensor.dtype = dtype;
  tensor.ndim = static_cast<int32_t>(shape.size());
  int64_t stride = 1;
  for (size_t i = shape.size(); i-- > 0;) {
    tensor.shape[i] = shape[i];
    tensor.strides[i] = stride;
    stride *= shape[i];
  }
  return tensor;
}

// Structs by value, and 64-bit index arithmetic.
TEST_F(SpirvOnPocl, ElementwiseIsTheSameBitForBit) {
  OpenedDevice d;
  for (const int32_t items : {1, 16}) {
    const Pair pair(d, "elementwise.cl", tuning(items, 1, 0, 0, 0));
    const std::vector<float> a = random_values(777, 1);
    const std::vector<float> b = random_values(777, 2);
    void* in_a = upload(d, a);
    void* in_b = upload(d, b);
    void* out = d.memory(777 * sizeof(float));
    // a transposed: element (i, j) of [21, 37] lies at i + 21 j.
    aa_tensor transposed = tensor_of({21, 37});
    transposed.strides[0] = 1;
    transposed.strides[1] = 21;
    const aa_view plain = ops::portable::view_of(tensor_of({21, 37}));
    const aa_view turned = ops::portable::view_of(transposed);
    const int64_t count = 777;
    const auto groups = static_cast<uint32_t>(777 / (items * 4) + 1);
    std::vector<float> expected(777);
    for (size_t i = 0; i < 777; ++i) expected[i] = a[i / 37 + 21 * (i % 37)] + b[i];
    for (const int which : {0, 1}) {
      const std::vector<float> found = pair.run(which, "add", groups, static_cast<uint32_t>(items), 777, out, plain,
                                                in_a, turned, in_b, plain, count);
      EXPECT_EQ(found, expected) << (which ? "SPIR-V" : "source") << ", " << items << " items";
    }
    for (void* memory : {in_a, in_b, out}) d.free(memory, 777 * sizeof(float));
  }
}

// Local memory and barriers with a group of several items; private arrays with one.
TEST_F(SpirvOnPocl, SoftmaxAgrees) {
  OpenedDevice d;
  for (const int32_t group : {1, 8}) {
    const Pair pair(d, "rows.cl", tuning(group, 1, 0, group > 1 ? 16384 : 0, 0));
    constexpr size_t rows = 9;
    constexpr size_t width = 301;
    const std::vector<float> x = random_values(rows * width, 3);
    void* in = upload(d, x);
    void* out = d.memory(rows * width * sizeof(float));
    const aa_rows view = ops::portable::rows_of(tensor_of({rows, width}));
    const auto size = static_cast<int64_t>(width);
    const float scale = 1.5f;
    std::vector<float> results[2];
    for (const int which : {0, 1}) {
      results[which] = pair.run(which, "softmax", rows, static_cast<uint32_t>(group), rows * width, out, view, in, view,
                                size, scale);
      ASSERT_EQ(results[which].size(), rows * width);
      for (size_t r = 0; r < rows; ++r) {
        double sum = 0;
        for (size_t i = 0; i < width; ++i) sum += std::exp(static_cast<double>(x[r * width + i]) * scale);
        for (size_t i = 0; i < width; ++i) {
          const double expected = std::exp(static_cast<double>(x[r * width + i]) * scale) / sum;
          ASSERT_NEAR(results[which][r * width + i], expected, 2e-6 * expected + 1e-9)
              << (which ? "SPIR-V" : "source") << ", group " << group << ", row " << r << ", element " << i;
        }
      }
    }
    for (void* memory : {in, out}) d.free(memory, rows * width * sizeof(float));
  }
}

}  // namespace
}  // namespace anyaccel
