// Cases of device code and of the compiler extension.
#include <algorithm>
#include <cstring>
#include <memory>
#include <string_view>

#include "anyaccel/abi/compiler.h"
#include "conformance/context.h"
#include "conformance/graph_objects.h"

namespace anyaccel::conformance {
namespace kernel_group {
namespace {

// Ends the case as unsupported if the flag is clear; in that case the functions must return AA_UNIMPLEMENTED too.
void needs_kernels(const Context& c) {
  if (c.promises(AA_CAP_KERNELS)) return;
  aa_module* module = nullptr;
  c.error(c.driver.module_load(c.device, "image", 5, "elf-so", &module), {AA_UNIMPLEMENTED},
          "module_load, whose flag is clear,");
  c.expect(module == nullptr, "module_load is unimplemented but gave a module");
  c.unsupported("the flag is clear, and module_load says so");
}

void garbage_is_refused(const Context& c) {
  needs_kernels(c);
  const Bytes garbage = pattern(4096, 1);
  for (const char* format : {"no-such-format", "cubin", "elf-so", "opencl-binary", "spirv"}) {
    aa_module* module = nullptr;
    c.any_error(c.driver.module_load(c.device, garbage.data(), garbage.size(), format, &module),
                std::string("module_load of garbage as ") + format);
    c.expect(module == nullptr, "module_load failed but gave a module");
  }
}

// Compiles and owns the result.
class Compiled {
 public:
  Compiled(const Context& c, const abi::Calls<aa_compiler_table>& table, const std::string& language,
           std::string_view source, const std::vector<const char*>& options = {})
      : context_(c), table_(table) {
    result_.struct_size = sizeof(result_);
    c.ok(table.compile(c.device, language.c_str(), "conformance", source.data(), source.size(), options.data(),
                       options.size(), &result_),
         "compile of " + language);
  }
  ~Compiled() { context_.drop(table_.release(&result_)); }
  Compiled(const Compiled&) = delete;
  Compiled& operator=(const Compiled&) = delete;
  const aa_compile_result* operator->() const noexcept { return &result_; }

 private:
  const Context& context_;
  abi::Calls<aa_compiler_table> table_;
  aa_compile_result result_{};
};

abi::Calls<aa_compiler_table> compiler(const Context& c) {
  return c.extension<aa_compiler_table>(AA_COMPILER_EXTENSION, AA_COMPILER_VERSION);
}

std::vector<std::string> languages_of(const Context& c, const abi::Calls<aa_compiler_table>& table) {
  const char* languages = nullptr;
  c.ok(table.languages(c.device, &languages), "languages");
  c.expect(languages != nullptr && *languages != '\0', "a compiler without languages");
  std::vector<std::string> list;
  for (std::string_view rest = languages; !rest.empty();) {
    const size_t comma = std::min(rest.find(','), rest.size());
    list.emplace_back(rest.substr(0, comma));
    c.expect(!list.back().empty(), "languages has an empty name");
    rest.remove_prefix(std::min(comma + 1, rest.size()));
  }
  return list;
}

void fingerprint_is_stable(const Context& c) {
  const abi::Calls<aa_compiler_table> table = compiler(c);
  char first[1024] = {};
  char second[1024] = {};
  c.ok(table.fingerprint(c.device, first, sizeof(first)), "fingerprint");
  c.ok(table.fingerprint(c.device, second, sizeof(second)), "fingerprint");
  c.expect(std::memchr(first, '\0', sizeof(first)) && *first != '\0', "the fingerprint is empty");
  c.expect(std::strcmp(first, second) == 0, "the fingerprint changes from call to call");
  char small[9];
  std::memset(small, 0x5a, sizeof(small));
  // A driver may decline to split it.
  if (c.drop(table.fingerprint(c.device, small, 8))) {
    c.expect(std::memchr(small, '\0', 8) != nullptr, "a fingerprint cut to 8 bytes is not terminated");
  }
  c.expect(small[8] == 0x5a, "fingerprint wrote beyond its 8 bytes");
}

void compile_errors_are_told(const Context& c) {
  const abi::Calls<aa_compiler_table> table = compiler(c);
  for (const std::string& language : languages_of(c, table)) {
    Compiled result(c, table, language, "this is no program {{{");
    c.expect(!result->succeeded, "compiling nonsense as " + language + " succeeded");
    c.expect(result->log != nullptr && *result->log != '\0', "a compile error without a log");
    c.expect(result->image == nullptr, "a compile error with an image");
  }
}

void unknown_language_is_refused(const Context& c) {
  aa_compile_result result{};
  result.struct_size = sizeof(result);
  c.any_error(compiler(c).compile(c.device, "no-such-language", "x", "x", 1, nullptr, 0, &result),
              "compile of an unknown language");
}

void tuning_is_sane(const Context& c) {
  const abi::Calls<aa_compiler_table> table = compiler(c);
  aa_kernel_tuning t{};
  t.struct_size = sizeof(t);
  c.ok_or_unsupported(table.kernel_tuning(c.device, &t), "kernel_tuning");
  const auto power_of_two = [](int32_t value) { return value > 0 && (value & (value - 1)) == 0; };
  c.expect(t.struct_size == sizeof(t), "kernel_tuning changed struct_size");
  c.expect(power_of_two(t.group_size), "group_size " + std::to_string(t.group_size) + " is not a power of two");
  c.expect(power_of_two(t.lanes) && t.lanes <= t.group_size,
           "lanes " + std::to_string(t.lanes) + " is not a power of two up to group_size");
  c.expect(t.subgroup_size == 0 || t.subgroup_size == t.lanes, "subgroup_size is neither 0 nor equal to lanes");
  c.expect(t.items > 0, "items is not positive");
  c.expect(t.local_memory >= 0, "local_memory is negative");
  c.expect((t.native_f16 == 0 || t.native_f16 == 1) && (t.native_f64 == 0 || t.native_f64 == 1),
           "native_f16 or native_f64 is neither 0 nor 1");
  aa_kernel_tuning again{};
  again.struct_size = sizeof(again);
  c.ok(table.kernel_tuning(c.device, &again), "kernel_tuning");
  c.expect(std::memcmp(&t, &again, sizeof(t)) == 0, "kernel_tuning changes from call to call");
  c.note = "group_size " + std::to_string(t.group_size) + ", lanes " + std::to_string(t.lanes) + ", subgroup_size " +
           std::to_string(t.subgroup_size) + ", items " + std::to_string(t.items) + ", local_memory " +
           std::to_string(t.local_memory);
}

// Kernels in the languages whose way of passing arguments is fixed: `twice` by pointer and by value, `sum_of_values`
// with values of many sizes and a struct, `place`, which writes the position of each item, and FACTOR for options.
const char* kernel_source(std::string_view language) {
  if (language == "opencl-c") {
    return R"(
#ifndef FACTOR
#define FACTOR 2
#endif
typedef struct { int a; float b; char c; } pack;
__kernel void twice(__global float* x, int n) {
  int i = (int)get_global_id(0);
  if (i < n) x[i] *= FACTOR;
}
__kernel void sum_of_values(__global float* out, char a, short b, int c, long d, float e, pack p, __global const float* in) {
  if (get_global_id(0) == 0) out[0] = (float)(a + b + c + (int)d) + e + (float)p.a + p.b + (float)p.c + in[1];
}
__kernel void place(__global int* out) {
  int x = (int)get_global_id(0), y = (int)get_global_id(1), z = (int)get_global_id(2);
  int nx = (int)get_global_size(0), ny = (int)get_global_size(1);
  out[(z * ny + y) * nx + x] = x + 100 * y + 10000 * z + 1000000 * (int)get_local_id(0);
}
)";
  }
  if (language == "metal") {
    return R"(
#include <metal_stdlib>
using namespace metal;
#ifndef FACTOR
#define FACTOR 2
#endif
struct pack { int a; float b; char c; };
kernel void twice(device float* x, constant int& n, uint i [[thread_position_in_grid]]) {
  if ((int)i < n) x[i] *= FACTOR;
}
kernel void sum_of_values(device float* out, constant char& a, constant short& b, constant int& c, constant long& d,
                          constant float& e, constant pack& p, device const float* in, uint i [[thread_position_in_grid]]) {
  if (i == 0) out[0] = (float)(a + b + c + (int)d) + e + (float)p.a + p.b + (float)p.c + in[1];
}
kernel void place(device int* out, uint3 at [[thread_position_in_grid]], uint3 size [[threads_per_grid]],
                  uint3 local [[thread_position_in_threadgroup]]) {
  out[(at.z * size.y + at.y) * size.x + at.x] = (int)(at.x + 100 * at.y + 10000 * at.z + 1000000 * local.x);
}
)";
  }
  if (language.ends_with("-c++")) {  // cuda-c++ and its relatives
    return R"(
#ifndef FACTOR
#define FACTOR 2
#endif
struct pack { int a; float b; char c; };
extern "C" __global__ void twice(float* x, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i] *= FACTOR;
}
extern "C" __global__ void sum_of_values(float* out, char a, short b, int c, long long d, float e, pack p, const float* in) {
  if (blockIdx.x * blockDim.x + threadIdx.x == 0)
    out[0] = (float)(a + b + c + (int)d) + e + (float)p.a + p.b + (float)p.c + in[1];
}
extern "C" __global__ void place(int* out) {
  int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
  int z = blockIdx.z * blockDim.z + threadIdx.z;
  int nx = gridDim.x * blockDim.x, ny = gridDim.y * blockDim.y;
  out[(z * ny + y) * nx + x] = x + 100 * y + 10000 * z + 1000000 * (int)threadIdx.x;
}
)";
  }
  return nullptr;
}

// A module compiled from the suite's source.
class Module {
 public:
  Module(const Context& c, const std::string& language, const std::vector<const char*>& options = {}) : c_(c) {
    Compiled compiled(c, compiler(c), language, kernel_source(language), options);
    c.expect(compiled->succeeded, std::string("small kernels do not compile: ") + compiled->log);
    c.expect(compiled->image && compiled->image_size > 0 && compiled->format && *compiled->format,
             "a compilation that succeeded gave no image or no format");
    // A copy: the image belongs to the driver until `release`, and the module must not need it after loading.
    const Bytes image(static_cast<const unsigned char*>(compiled->image),
                      static_cast<const unsigned char*>(compiled->image) + compiled->image_size);
    c.ok(c.driver.module_load(c.device, image.data(), image.size(), compiled->format, &module_), "module_load");
    c.expect(module_ != nullptr, "module_load succeeded but gave a null module");
  }
  ~Module() { unload(); }
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  operator aa_module*() const noexcept { return module_; }
  bool unload() noexcept {
    aa_module* module = module_;
    module_ = nullptr;
    return !module || c_.drop(c_.driver.module_unload(module));
  }
  aa_kernel* kernel(const char* name) const {
    aa_kernel* kernel = nullptr;
    c_.ok(c_.driver.kernel_get(module_, name, &kernel, nullptr), std::string("kernel_get of \"") + name + "\"");
    c_.expect(kernel != nullptr, "kernel_get succeeded but gave a null kernel");
    return kernel;
  }

 private:
  const Context& c_;
  aa_module* module_ = nullptr;
};

struct Size {
  uint32_t grid[3];
  uint32_t block[3];
};

template <class... Arguments>
aa_status* launch_with(uint32_t flags, const Context& c, aa_stream* stream, aa_kernel* kernel, const Size& size,
                       const Arguments&... arguments) {
  const void* const pointers[] = {&arguments...};
  const uint32_t sizes[] = {sizeof(arguments)...};
  const uint8_t kinds[] = {std::is_pointer_v<Arguments> ? AA_ARGUMENT_POINTER : AA_ARGUMENT_VALUE...};
  aa_launch launch{};
  launch.struct_size = sizeof(launch);
  launch.flags = flags;
  std::copy_n(size.grid, 3, launch.grid);
  std::copy_n(size.block, 3, launch.block);
  launch.argument_count = sizeof...(arguments);
  launch.arguments = pointers;
  launch.argument_sizes = sizes;
  launch.argument_kinds = kinds;
  return c.driver.kernel_launch(stream, kernel, &launch);
}

template <class... Arguments>
void launch(const Context& c, aa_stream* stream, aa_kernel* kernel, const Size& size, const Arguments&... arguments) {
  c.ok(launch_with(0, c, stream, kernel, size, arguments...), "kernel_launch");
  c.has(AA_CAP_KERNELS);  // tested by what runs, not by what is rejected
}

// The languages that the driver lists and in which the suite has kernels; ends the case if there is none.
std::vector<std::string> known_languages(const Context& c) {
  needs_kernels(c);
  std::vector<std::string> known;
  std::string all;
  for (const std::string& language : languages_of(c, compiler(c))) {
    all += (all.empty() ? "" : ", ") + language;
    if (kernel_source(language)) known.push_back(language);
  }
  if (known.empty()) c.unavailable("the suite has no kernel in the languages of this compiler: " + all);
  return known;
}

std::vector<float> ramp(size_t count) {
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) values[i] = static_cast<float>(i) + 1;
  return values;
}

void expect_times(const Context& c, const Memory& memory, const std::vector<float>& values, float factor,
                  const std::string& what) {
  std::vector<float> found(values.size());
  c.download(found.data(), memory.data(), memory.size());
  for (size_t i = 0; i < values.size(); ++i) {
    c.expect(found[i] == factor * values[i], what + ": element " + std::to_string(i) + " is " +
                                                 std::to_string(found[i]) + " and must be " +
                                                 std::to_string(factor * values[i]));
  }
}

constexpr size_t count = 1000;
constexpr Size covering{{32, 1, 1}, {32, 1, 1}};  // 1024 items

void compiles_loads_and_runs(const Context& c) {
  std::string note;
  for (const std::string& language : known_languages(c)) {
    Module module(c, language);
    aa_kernel* kernel = nullptr;
    c.error(c.driver.kernel_get(module, "no_such_kernel", &kernel, nullptr), {AA_NOT_FOUND},
            "kernel_get of an unknown name");
    c.expect(kernel == nullptr, "kernel_get failed but gave a kernel");
    aa_kernel_info info{};
    info.struct_size = sizeof(info);
    c.ok(c.driver.kernel_get(module, "twice", &kernel, &info), "kernel_get");
    c.expect(kernel != nullptr, "kernel_get succeeded but gave a null kernel");
    c.expect(info.struct_size == sizeof(info), "kernel_get changed struct_size");
    c.expect(info.max_threads_per_block >= 1, "a kernel that no thread can run");
    c.expect(info.argument_count == -1 || info.argument_count == 2,
             "a kernel of two arguments has " + std::to_string(info.argument_count));
    const auto values = ramp(count);
    Memory memory(c, count * sizeof(float));
    for (const Size& size : {covering, Size{{1000, 1, 1}, {1, 1, 1}}, Size{{143, 1, 1}, {7, 1, 1}}}) {
      if (size.block[0] > static_cast<uint32_t>(info.max_threads_per_block)) continue;
      c.upload(memory.data(), values.data(), memory.size());
      void* pointer = memory.data();
      launch(c, c.stream, kernel, size, pointer, static_cast<int32_t>(count));
      expect_times(c, memory, values, 2, language + " in blocks of " + std::to_string(size.block[0]));
    }
    note += (note.empty() ? "" : ", ") + language;
  }
  c.note = note;
}

// "A driver rejects bits that it does not know in a member called `flags` with AA_UNIMPLEMENTED, having done nothing."
void unknown_flags_are_refused(const Context& c) {
  constexpr uint32_t unknown = 1u << 31;
  for (const std::string& language : known_languages(c)) {
    const Module module(c, language);
    const auto values = ramp(count);
    Memory memory(c, count * sizeof(float));
    c.upload(memory.data(), values.data(), memory.size());
    void* pointer = memory.data();
    aa_status* const launch_status =
        launch_with(unknown, c, c.stream, module.kernel("twice"), covering, pointer, static_cast<int32_t>(count));
    // What runs nevertheless ends before the case fails, which frees its memory and its module.
    if (launch_status == nullptr) c.drop(c.driver.stream_synchronize(c.stream));
    c.error(launch_status, {AA_UNIMPLEMENTED}, "kernel_launch with an unknown bit in flags");
    c.synchronize();
    expect_times(c, memory, values, 1, "after a launch that was refused");

    const abi::Calls<aa_compiler_table> table = compiler(c);
    const std::string_view source = kernel_source(language);
    auto compiling = abi::sized<aa_compile>();
    compiling.flags = unknown;
    compiling.language = language.c_str();
    compiling.name = "conformance";
    compiling.source = source.data();
    compiling.source_size = source.size();
    auto result = abi::sized<aa_compile_result>();
    aa_status* const compile_status = table.compile(c.device, &compiling, &result);
    if (compile_status == nullptr) c.drop(table.release(&result));
    c.error(compile_status, {AA_UNIMPLEMENTED}, "compile with an unknown bit in flags");

    const Compiled compiled(c, table, language, source);
    c.expect(compiled->succeeded, std::string("small kernels do not compile: ") + compiled->log);
    auto loading = abi::sized<aa_module_params>();
    loading.flags = unknown;
    loading.image = compiled->image;
    loading.size = compiled->image_size;
    loading.format = compiled->format;
    aa_module* loaded = nullptr;
    aa_status* const load_status = c.driver.module_load(c.device, &loading, &loaded);
    if (load_status == nullptr) c.drop(c.driver.module_unload(loaded));
    c.error(load_status, {AA_UNIMPLEMENTED}, "module_load with an unknown bit in flags");
    c.expect(loaded == nullptr, "module_load was refused but gave a module");
  }
}

void arguments_of_every_size(const Context& c) {
  struct Pack {
    int32_t a;
    float b;
    int8_t c;
  };
  for (const std::string& language : known_languages(c)) {
    Module module(c, language);
    aa_kernel* kernel = module.kernel("sum_of_values");
    Memory out(c, 2 * sizeof(float));
    Memory in(c, 2 * sizeof(float));
    const float inputs[] = {1000000, 0.5f};
    const float before[] = {-1, -2};
    c.upload(in.data(), inputs, sizeof(inputs));
    c.upload(out.data(), before, sizeof(before));
    const auto launch_with = [&](int32_t third) {
      void* to = out.data();
      const void* from = in.data();
      launch(c, c.stream, kernel, {{1, 1, 1}, {1, 1, 1}}, to, int8_t{-3}, int16_t{1000}, third, int64_t{50000}, 0.25f,
             Pack{7, 16.0f, 5}, from);
      // The memory of the values is reused as soon as kernel_launch returns.
    };
    for (const int32_t third : {-200000, 300000}) {
      launch_with(third);
      float found[2] = {};
      c.download(found, out.data(), sizeof(found));
      const float expected = -3 + 1000 + static_cast<float>(third) + 50000 + 0.25f + 7 + 16 + 5 + 0.5f;
      c.expect(found[0] == expected && found[1] == -2, language + ": eight arguments gave " + std::to_string(found[0]) +
                                                           " and must give " + std::to_string(expected));
    }
  }
}

void grids_of_three_dimensions(const Context& c) {
  for (const std::string& language : known_languages(c)) {
    Module module(c, language);
    aa_kernel* kernel = module.kernel("place");
    constexpr uint32_t nx = 12, ny = 5, nz = 3;
    Memory out(c, size_t{nx} * ny * nz * sizeof(int32_t));
    for (const Size& size : {Size{{6, 5, 3}, {2, 1, 1}}, Size{{3, 5, 1}, {4, 1, 3}}, Size{{12, 5, 3}, {1, 1, 1}}}) {
      const Bytes before = pattern(out.size(), 2);
      c.upload(out.data(), before.data(), before.size());
      void* pointer = out.data();
      launch(c, c.stream, kernel, size, pointer);
      std::vector<int32_t> found(size_t{nx} * ny * nz);
      c.download(found.data(), out.data(), out.size());
      for (uint32_t i = 0; i < found.size(); ++i) {
        const uint32_t x = i % nx;
        const auto expected =
            static_cast<int32_t>(x + 100 * (i / nx % ny) + 10000 * (i / nx / ny) + 1000000 * (x % size.block[0]));
        c.expect(found[i] == expected, language + ": item " + std::to_string(i) + " says it is at " +
                                           std::to_string(found[i]) + " and is at " + std::to_string(expected));
      }
    }
  }
}

void modules_are_apart(const Context& c) {
  // The same names in two modules that were compiled with different options; one unloaded while the other is used.
  for (const std::string& language : known_languages(c)) {
    auto first = std::make_unique<Module>(c, language, std::vector<const char*>{"-DFACTOR=3"});
    Module second(c, language, {"-DFACTOR=5"});
    const auto values = ramp(count);
    Memory memory(c, count * sizeof(float));
    void* pointer = memory.data();
    const auto run = [&](aa_kernel* kernel, float factor) {
      c.upload(memory.data(), values.data(), memory.size());
      launch(c, c.stream, kernel, covering, pointer, static_cast<int32_t>(count));
      expect_times(c, memory, values, factor, language + ", one of two modules");
    };
    run(first->kernel("twice"), 3);
    run(second.kernel("twice"), 5);
    c.expect(first->unload(), "module_unload failed");
    run(second.kernel("twice"), 5);
    first = std::make_unique<Module>(c, language, std::vector<const char*>{"-DFACTOR=3"});
    run(first->kernel("twice"), 3);
  }
}

void launches_are_in_order(const Context& c) {
  for (const std::string& language : known_languages(c)) {
    Module module(c, language);
    aa_kernel* kernel = module.kernel("twice");
    const auto values = ramp(count);
    Memory memory(c, count * sizeof(float));
    Memory copy(c, count * sizeof(float));
    std::vector<float> found(count);
    void* pointer = memory.data();
    c.ok(c.driver.copy_async(c.stream, pointer, values.data(), memory.size(), AA_COPY_HOST_TO_DEVICE), "copy_async");
    for (int i = 0; i < 10; ++i) launch(c, c.stream, kernel, covering, pointer, static_cast<int32_t>(count));
    c.ok(c.driver.copy_async(c.stream, copy.data(), pointer, memory.size(), AA_COPY_DEVICE_TO_DEVICE), "copy_async");
    launch(c, c.stream, kernel, covering, pointer, static_cast<int32_t>(count));
    c.synchronize();
    expect_times(c, copy, values, 1024, language + ", ten launches between copies");
    expect_times(c, memory, values, 2048, language + ", eleven launches");
  }
}

void launches_are_captured(const Context& c) {
  const auto languages = known_languages(c);
  const abi::Calls<aa_graph_table> table = graphs(c);
  for (const std::string& language : languages) {
    Module module(c, language);
    aa_kernel* kernel = module.kernel("twice");
    auto values = ramp(count);
    Memory memory(c, count * sizeof(float));
    c.upload(memory.data(), values.data(), memory.size());
    Stream recorder(c);
    Capture capture(c, table, recorder);
    {
      void* pointer = memory.data();
      launch(c, recorder, kernel, covering, pointer, static_cast<int32_t>(count));
      launch(c, recorder, kernel, covering, pointer, static_cast<int32_t>(count));
    }
    const Graph graph(c, table, capture.end());
    expect_times(c, memory, values, 1, language + ", while recording");
    for (int round = 0; round < 3; ++round) {
      for (float& value : values) value += static_cast<float>(round);
      c.upload(memory.data(), values.data(), memory.size());
      graph.launch(c.stream);
      expect_times(c, memory, values, 4, language + ", launch " + std::to_string(round + 1));
    }
  }
}

constexpr Case cases[] = {
    {"kernels", "garbage_is_refused", garbage_is_refused},
    {"kernels", "compiles_loads_and_runs", compiles_loads_and_runs},
    {"kernels", "unknown_flags_are_refused", unknown_flags_are_refused},
    {"kernels", "arguments_of_every_size", arguments_of_every_size},
    {"kernels", "grids_of_three_dimensions", grids_of_three_dimensions},
    {"kernels", "modules_are_apart", modules_are_apart},
    {"kernels", "launches_are_in_order", launches_are_in_order},
    {"kernels", "launches_are_captured", launches_are_captured},
    {"compiler", "fingerprint_is_stable", fingerprint_is_stable},
    {"compiler", "compile_errors_are_told", compile_errors_are_told},
    {"compiler", "unknown_language_is_refused", unknown_language_is_refused},
    {"compiler", "tuning_is_sane", tuning_is_sane},
};

}  // namespace
}  // namespace kernel_group

std::span<const Case> kernel_cases() { return kernel_group::cases; }

}  // namespace anyaccel::conformance
