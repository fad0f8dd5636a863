// Cases of device code and of the compiler extension.
#include <cstring>
#include <string_view>

#include "anyaccel/abi/compiler.h"
#include "conformance/context.h"

namespace anyaccel::conformance {
namespace {

void needs_kernels(const Context& c) {
  if (!c.has(AA_CAP_KERNELS)) c.unsupported("the flag is clear");
}

void without_the_flag_unimplemented(const Context& c) {
  if (c.has(AA_CAP_KERNELS)) c.skip("the flag is set");
  aa_module* module = nullptr;
  c.error(c.driver.module_load(c.device, "image", 5, "elf-so", &module), {AA_UNIMPLEMENTED},
          "module_load, whose flag is clear,");
  c.expect(module == nullptr, "module_load is unimplemented but gave a module");
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
  Compiled(const Context& c, const aa_compiler_table& table, const char* language, std::string_view source)
      : context_(c), table_(table) {
    result_.struct_size = sizeof(result_);
    c.ok(table.compile(c.device, language, "conformance", source.data(), source.size(), nullptr, 0, &result_),
         "compile");
  }
  ~Compiled() { context_.drop(table_.release(&result_)); }
  Compiled(const Compiled&) = delete;
  Compiled& operator=(const Compiled&) = delete;
  const aa_compile_result& operator*() const noexcept { return result_; }
  const aa_compile_result* operator->() const noexcept { return &result_; }

 private:
  const Context& context_;
  aa_compiler_table table_;
  aa_compile_result result_{};
};

aa_compiler_table compiler(const Context& c) {
  return c.extension<aa_compiler_table>(AA_COMPILER_EXTENSION, AA_COMPILER_VERSION);
}

std::string first_language(const Context& c, const aa_compiler_table& table) {
  const char* languages = nullptr;
  c.ok(table.languages(c.device, &languages), "languages");
  c.expect(languages != nullptr && *languages != '\0', "a compiler without languages");
  const std::string_view text = languages;
  return std::string(text.substr(0, text.find(',')));
}

void fingerprint_is_stable(const Context& c) {
  const aa_compiler_table table = compiler(c);
  char first[1024] = {};
  char second[1024] = {};
  c.ok(table.fingerprint(c.device, first, sizeof(first)), "fingerprint");
  c.ok(table.fingerprint(c.device, second, sizeof(second)), "fingerprint");
  c.expect(std::memchr(first, '\0', sizeof(first)) && *first != '\0', "the fingerprint is empty");
  c.expect(std::strcmp(first, second) == 0, "the fingerprint changes from call to call");
}

void compile_errors_are_told(const Context& c) {
  const aa_compiler_table table = compiler(c);
  const std::string language = first_language(c, table);
  Compiled result(c, table, language.c_str(), "this is no program {{{");
  c.expect(!result->succeeded, "compiling nonsense succeeded");
  c.expect(result->log != nullptr && *result->log != '\0', "a compile error without a log");
  c.expect(result->image == nullptr, "a compile error with an image");
}

void unknown_language_is_refused(const Context& c) {
  aa_compile_result result{};
  result.struct_size = sizeof(result);
  c.any_error(compiler(c).compile(c.device, "no-such-language", "x", "x", 1, nullptr, 0, &result),
              "compile of an unknown language");
}

// A kernel in the languages whose way of passing arguments is fixed.
const char* kernel_source(std::string_view language) {
  if (language == "opencl-c") {
    return "__kernel void twice(__global float* x, int n) { int i = get_global_id(0); if (i < n) x[i] *= 2; }";
  }
  if (language.ends_with("-c++")) {  // cuda-c++ and its relatives
    return "extern \"C\" __global__ void twice(float* x, int n) {"
           " int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) x[i] *= 2; }";
  }
  return nullptr;
}

void compiles_loads_and_runs(const Context& c) {
  needs_kernels(c);
  const aa_compiler_table table = compiler(c);
  const std::string language = first_language(c, table);
  const char* source = kernel_source(language);
  if (!source) c.skip("the suite has no kernel in the language \"" + language + "\"");
  Compiled compiled(c, table, language.c_str(), source);
  c.expect(compiled->succeeded, std::string("a small kernel does not compile: ") + compiled->log);

  struct Module {
    const Context& c;
    aa_module* module = nullptr;
    ~Module() {
      if (module) c.drop(c.driver.module_unload(module));
    }
  } loaded{c};
  c.ok(c.driver.module_load(c.device, compiled->image, compiled->image_size, compiled->format, &loaded.module),
       "module_load");
  aa_kernel* kernel = nullptr;
  c.error(c.driver.kernel_get(loaded.module, "no_such_kernel", &kernel, nullptr), {AA_NOT_FOUND},
          "kernel_get of an unknown name");
  c.expect(kernel == nullptr, "kernel_get failed but gave a kernel");
  aa_kernel_info info{};
  info.struct_size = sizeof(info);
  c.ok(c.driver.kernel_get(loaded.module, "twice", &kernel, &info), "kernel_get");
  c.expect(kernel != nullptr, "kernel_get succeeded but gave a null kernel");
  c.expect(info.max_threads_per_block >= 1, "a kernel that no thread can run");

  constexpr int32_t count = 1000;
  std::vector<float> values(count);
  for (int32_t i = 0; i < count; ++i) values[static_cast<size_t>(i)] = static_cast<float>(i);
  Memory memory(c, count * sizeof(float));
  c.upload(memory.data(), values.data(), memory.size());
  void* pointer = memory.data();
  const void* arguments[] = {&pointer, &count};
  const size_t sizes[] = {sizeof(pointer), sizeof(count)};
  aa_launch launch{};
  launch.struct_size = sizeof(launch);
  launch.grid[0] = 32;
  launch.block[0] = 32;
  launch.grid[1] = launch.grid[2] = launch.block[1] = launch.block[2] = 1;
  launch.argument_count = 2;
  launch.arguments = arguments;
  launch.argument_sizes = sizes;
  c.ok(c.driver.kernel_launch(c.stream, kernel, &launch), "kernel_launch");
  std::vector<float> found(count);
  c.download(found.data(), memory.data(), memory.size());
  for (size_t i = 0; i < count; ++i) {
    c.expect(found[i] == 2 * values[i], "the kernel gave a wrong value at " + std::to_string(i));
  }
}

constexpr Case cases[] = {
    {"kernels", "without_the_flag_unimplemented", without_the_flag_unimplemented},
    {"kernels", "garbage_is_refused", garbage_is_refused},
    {"kernels", "compiles_loads_and_runs", compiles_loads_and_runs},
    {"compiler", "fingerprint_is_stable", fingerprint_is_stable},
    {"compiler", "compile_errors_are_told", compile_errors_are_told},
    {"compiler", "unknown_language_is_refused", unknown_language_is_refused},
};

}  // namespace

std::span<const Case> kernel_cases() { return cases; }

}  // namespace anyaccel::conformance
