// Device ops end to end, on a small accelerator made here: its compiler is the machine's own, its modules are shared
// libraries, and a kernel is a function that is called once for every thread of the launch.
#include "anyaccel/device_op.h"

#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>

#include "anyaccel/abi/driver_class.hpp"
#include "anyaccel/detection.h"
#include "anyaccel/error.h"
#include "base/process/subprocess.h"
#include "ops/op_build_support.h"
#include "runtime/driver/driver_table.h"
#include "runtime/driver/host_services.h"

namespace anyaccel {
namespace {

namespace fs = std::filesystem;
using test::message_of;
using test::TemporaryFolder;
using test::Variable;

int compilations = 0;
int refusals = 0;  // of the next images that are loaded
aa_code refusal = AA_INCOMPATIBLE;
int exhausted_launches = 0;  // before the next one works
bool images_are_empty = false;
std::string fingerprint = "c++ 1";
const char* languages = "opencl-c, c++";

using KernelFunction = void (*)(const void* const* arguments, unsigned global_id);

class ToyKernel final : public abi::Kernel {
 public:
  KernelFunction function = nullptr;
};

class ToyModule final : public abi::Module {
 public:
  ToyModule(const void* image, size_t size) {
    const auto file = folder_.write("module.so", std::string(static_cast<const char*>(image), size));
    handle_ = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!handle_) throw abi::Failure(AA_DATA_LOSS, dlerror());
  }
  ~ToyModule() override { dlclose(handle_); }
  abi::Kernel* kernel_get(const char* name, aa_kernel_info& info) override {
    info.argument_count = 3;
    kernel_.function = reinterpret_cast<KernelFunction>(dlsym(handle_, name));
    return kernel_.function ? &kernel_ : nullptr;
  }

 private:
  TemporaryFolder folder_;
  void* handle_;
  ToyKernel kernel_;
};

class ToyStream final : public abi::Stream {
 public:
  void copy(const aa_copy& what) override { std::memcpy(what.destination, what.source, what.size); }
  void fill(const aa_fill&) override { abi::unimplemented("fill"); }
  bool query() override { return true; }
  void synchronize() override {}
  void wait_event(abi::Event&) override {}
  void launch(abi::Kernel& kernel, const aa_launch& launch) override {
    if (exhausted_launches > 0 && exhausted_launches-- > 0) throw abi::Failure(AA_RESOURCE_EXHAUSTED, "no more queues");
    const unsigned threads = launch.grid[0] * launch.block[0];
    for (unsigned i = 0; i < threads; ++i) static_cast<ToyKernel&>(kernel).function(launch.arguments, i);
  }
};

class ToyDevice final : public abi::Device {
 public:
  void synchronize() override {}
  void memory_info(int64_t& free, int64_t& total) override { free = total = 1 << 30; }
  void mem_alloc(const aa_alloc& what, aa_allocation& out) override {
    if (what.kind > AA_MEMORY_PINNED) abi::unimplemented("mem_alloc");
    out.pointer = std::aligned_alloc(64, (what.size + 63) / 64 * 64);
  }
  void mem_free(const aa_allocation& what) override { std::free(what.pointer); }
  std::unique_ptr<abi::Stream> stream_create(const aa_stream_params&) override { return std::make_unique<ToyStream>(); }
  std::unique_ptr<abi::Module> module_load(const aa_module_params& params) override {
    if (std::strcmp(params.format, "elf-so") != 0) throw abi::Failure(AA_INVALID_ARGUMENT, "the format is not elf-so");
    if (refusals > 0 && refusals-- > 0) throw abi::Failure(refusal, "made by driver version 1, this is 2");
    return std::make_unique<ToyModule>(params.image, params.size);
  }
  const char* compile_languages() override { return languages; }
  std::string compile_fingerprint() override { return fingerprint; }
  abi::CompileOutput compile(const aa_compile& what) override {
    ++compilations;
    if (std::strcmp(what.language, "c++") != 0) throw abi::Failure(AA_INVALID_ARGUMENT, "only c++");
    const TemporaryFolder folder;
    const auto file = folder.write("kernel.cpp", std::string(what.source, what.source_size));
    const auto library = folder.path() / "kernel.so";
    std::vector<std::string> command = {"c++", "-fPIC", "-shared", file.string(), "-o", library.string()};
    command.insert(command.end(), what.options, what.options + what.option_count);
    const ProcessResult result = run_program(command);
    abi::CompileOutput output;
    output.succeeded = result.ok();
    output.log = result.output;
    const std::string image = test::read_text(library);
    if (!images_are_empty) output.image.assign(image.begin(), image.end());
    output.format = "elf-so";
    return output;
  }
};

class ToyDriver final : public abi::Driver {
 public:
  static constexpr abi::DriverFacts facts{.name = "toy", .vendor = "tests", .version = "1"};
  static void probe(aa_probe& probe) {
    probe.state = AA_PROBE_USABLE;
    probe.device_count = 1;
  }
  static std::unique_ptr<abi::Driver> initialize(const aa_initialize_params&) { return std::make_unique<ToyDriver>(); }
  uint32_t extensions() const override { return abi::compiler_extension; }
  int32_t device_count() override { return 1; }
  void device_props(int32_t, aa_device_props& props) override {
    props.caps = AA_CAP_KERNELS | AA_CAP_HOST_COHERENT | AA_CAP_SYNCHRONOUS;
    props.alignment = 64;
    props.dtypes_storable = 1u << AA_DTYPE_F32;
  }
  std::unique_ptr<abi::Device> device_open(const aa_device_open_params&) override {
    return std::make_unique<ToyDevice>();
  }
};

constexpr const char* kernel_source = R"(
#include "scale_by.h"
extern "C" void scale(const void* const* arguments, unsigned i) {
  float* x = *static_cast<float* const*>(arguments[0]);
  const int count = *static_cast<const int*>(arguments[1]);
  const float factor = *static_cast<const float*>(arguments[2]);
  if (static_cast<int>(i) < count) x[i] = x[i] * factor + OFFSET + EXTRA;
}
)";

class ScaleBuilder : public DeviceOpBuilder {
 public:
  ScaleBuilder(Accelerator& accelerator, fs::path folder)
      : DeviceOpBuilder("ScaleBuilder", accelerator), folder_(std::move(folder)) {}
  std::string folder() const override { return folder_.string(); }
  std::vector<DeviceSource> device_sources() const override { return {{"cuda-c++", "scale.cu"}, {"c++", "scale.cpp"}}; }
  std::vector<std::string> compile_options() const override { return {"-DEXTRA=" + extra}; }
  std::string extra = "0";

 private:
  fs::path folder_;
};

class DeviceOpTest : public ::testing::Test {
 protected:
  DeviceOpTest()
      : cache("ANYACCEL_CACHE_DIR", (folder.path() / "cache").string()),
        toy(complete_table(
            abi::driver_query<ToyDriver>(AA_ABI_VERSION(AA_ABI_MAJOR, 0), AA_ABI_CURRENT, host_services()), "test")) {
    folder.write("scale.cpp", kernel_source);
    folder.write("scale_by.h", "#pragma once\n#define OFFSET 0.5f\n");
    compilations = 0;
    refusals = 0;
    refusal = AA_INCOMPATIBLE;
    fingerprint = "c++ 1";
    languages = "opencl-c, c++";
  }
  std::vector<float> run(OpBuilder& builder) {
    const float values[4] = {1, 2, 3, 4};
    const Tensor x = Tensor::from_host(values, {4}, DType::F32, toy.device());
    auto library = builder.load_as<DeviceOpLibrary>();
    const DeviceKernel kernel = library->kernel("scale");
    kernel.launch({.grid = {2}, .block = {4}}, x, 3, 10.0f);
    toy.synchronize();
    return x.to_vector<float>();
  }

  TemporaryFolder folder;
  Variable cache;
  DriverAccelerator toy;
};

TEST_F(DeviceOpTest, CompilesOnceLoadsAndLaunches) {
  ScaleBuilder builder(toy, folder.path());
  EXPECT_TRUE(builder.is_compatible());
  EXPECT_FALSE(builder.is_built());
  EXPECT_EQ(builder.sources(), std::vector<std::string>{(folder.path() / "scale.cpp").string()});
  EXPECT_EQ(run(builder), (std::vector<float>{10.5f, 20.5f, 30.5f, 4}));
  EXPECT_TRUE(builder.is_built());
  EXPECT_EQ(run(builder), (std::vector<float>{10.5f, 20.5f, 30.5f, 4}));
  EXPECT_EQ(compilations, 1);
}

TEST_F(DeviceOpTest, ADriverBringsKernelsOfItsOwn) {
  static constexpr const char* sources[] = {"scale.cpp", nullptr};
  static constexpr const char* flags[] = {"-DEXTRA=4", nullptr};
  const std::string where = folder.path().string();
  aa_op_builder entry = abi::sized<aa_op_builder>();
  entry.name = "OwnScaleBuilder";
  entry.folder = where.c_str();
  entry.language = "c++";
  entry.sources = sources;
  entry.compile_flags = flags;
  const aa_op_builder* const list[] = {&entry, nullptr};
  aa_driver raw = *abi::driver_query<ToyDriver>(AA_ABI_VERSION(AA_ABI_MAJOR, 0), AA_ABI_CURRENT, host_services());
  raw.op_builders = list;
  DriverAccelerator brings(complete_table(&raw, "test"));
  const auto builder = brings.create_op_builder("OwnScaleBuilder");
  ASSERT_TRUE(builder);
  EXPECT_TRUE(builder->is_compatible());
  EXPECT_FALSE(builder->is_built());
  const float values[4] = {1, 2, 3, 4};
  const Tensor x = Tensor::from_host(values, {4}, DType::F32, brings.device());
  builder->load_as<DeviceOpLibrary>()->kernel("scale").launch({.grid = {1}, .block = {4}}, x, 4, 10.0f);
  EXPECT_EQ(x.to_vector<float>(), (std::vector<float>{14.5f, 24.5f, 34.5f, 44.5f}));
  EXPECT_TRUE(builder->is_built());
}

TEST_F(DeviceOpTest, CompilesAnewWhenAnythingChanges) {
  ScaleBuilder builder(toy, folder.path());
  run(builder);
  folder.write("scale_by.h", "#define OFFSET 0.25f\n");
  EXPECT_EQ(run(builder)[0], 10.25f);
  builder.extra = "2";
  EXPECT_EQ(run(builder)[0], 12.25f);
  fingerprint = "c++ 2";
  run(builder);
  EXPECT_EQ(compilations, 4);
}

TEST_F(DeviceOpTest, ADamagedImageIsCompiledAnew) {
  ScaleBuilder builder(toy, folder.path());
  run(builder);
  for (const auto& entry : fs::recursive_directory_iterator(folder.path() / "cache")) {
    if (entry.path().extension() == ".image") fs::resize_file(entry.path(), entry.file_size() - 100);
  }
  EXPECT_FALSE(builder.is_built());
  EXPECT_EQ(run(builder)[0], 10.5f);
  EXPECT_EQ(compilations, 2);
}

TEST_F(DeviceOpTest, AnImageThatTheDriverRefusesIsCompiledAnew) {
  ScaleBuilder builder(toy, folder.path());
  run(builder);
  refusals = 1;
  EXPECT_EQ(run(builder)[0], 10.5f);
  EXPECT_EQ(compilations, 2);
  // For want of memory it is kept, and loaded once more after cached memory was given back.
  refusals = 1;
  refusal = AA_RESOURCE_EXHAUSTED;
  EXPECT_EQ(run(builder)[0], 10.5f);
  refusals = 2;
  EXPECT_THROW(run(builder), OutOfMemoryError);
  EXPECT_EQ(run(builder)[0], 10.5f);
  EXPECT_EQ(compilations, 2);
}

TEST_F(DeviceOpTest, ALaunchThatRunsOutOfAResourceIsMadeOnceMore) {
  ScaleBuilder builder(toy, folder.path());
  exhausted_launches = 1;
  EXPECT_EQ(run(builder)[0], 10.5f);
  exhausted_launches = 2;
  EXPECT_THROW(run(builder), OutOfMemoryError);
  EXPECT_EQ(exhausted_launches, 0);
  EXPECT_EQ(run(builder)[0], 10.5f);
}

TEST_F(DeviceOpTest, ACacheThatCannotBeWrittenIsNoError) {
  const Variable nowhere("ANYACCEL_CACHE_DIR", "/proc/anyaccel");
  ScaleBuilder builder(toy, folder.path());
  EXPECT_EQ(run(builder)[0], 10.5f);
}

TEST_F(DeviceOpTest, ErrorsAreTheCompilersAndTheDriversWords) {
  folder.write("scale.cpp", "#include \"scale_by.h\"\nnonsense here;\n");
  ScaleBuilder builder(toy, folder.path());
  const std::string words = message_of<BuildError>([&] { builder.load(); });
  EXPECT_NE(words.find("nonsense"), std::string::npos) << words;
  EXPECT_NE(words.find("scale.cpp:2"), std::string::npos) << "the included file moved the lines: " << words;
  folder.write("scale.cpp", kernel_source);
  auto library = builder.load_as<DeviceOpLibrary>();
  EXPECT_NE(message_of<InvalidArgument>([&] { library->kernel("other"); }).find("other"), std::string::npos);
  EXPECT_NE(message_of<InvalidArgument>([&] { library->kernel("scale").launch({}, 1); }).find("takes 3"),
            std::string::npos);
}

TEST_F(DeviceOpTest, SuccessWithoutAnImageIsAnErrorAndNotKept) {
  ScaleBuilder builder(toy, folder.path());
  images_are_empty = true;
  EXPECT_NE(message_of<BuildError>([&] { run(builder); }).find("reports success without an image"), std::string::npos);
  images_are_empty = false;
  EXPECT_FALSE(builder.is_built());
  EXPECT_EQ(run(builder)[0], 10.5f);
}

TEST_F(DeviceOpTest, AModuleThatWasNotLoadedIsNotUnloaded) {
  static int unloaded_nothing;
  unloaded_nothing = 0;
  aa_driver raw = *abi::driver_query<ToyDriver>(AA_ABI_VERSION(AA_ABI_MAJOR, 0), AA_ABI_CURRENT, host_services());
  raw.module_unload = [](void*, aa_module* module) -> aa_status* {
    if (!module) ++unloaded_nothing;
    return nullptr;
  };
  DriverAccelerator refusing(complete_table(&raw, "test"));
  ScaleBuilder builder(refusing, folder.path());
  auto library = builder.load_as<DeviceOpLibrary>();
  refusals = 1;
  EXPECT_THROW(library->kernel("scale"), Error);
  library.reset();
  EXPECT_EQ(unloaded_nothing, 0);
}

TEST_F(DeviceOpTest, AnAcceleratorWithoutTheLanguageSaysWhichItHas) {
  languages = "metal";
  ScaleBuilder builder(toy, folder.path());
  std::string reason;
  EXPECT_FALSE(builder.is_compatible(&reason));
  EXPECT_NE(reason.find("metal"), std::string::npos) << reason;
  EXPECT_NE(reason.find("cuda-c++, c++"), std::string::npos) << reason;
  EXPECT_THROW(builder.load(), UnavailableError);
  auto cpu = make_accelerator("cpu");
  ScaleBuilder on_cpu(*cpu, folder.path());
  EXPECT_FALSE(on_cpu.is_compatible(&reason));
  EXPECT_NE(reason.find("no compiler"), std::string::npos) << reason;
}

TEST_F(DeviceOpTest, IncludesAreExpandedOnceEach) {
  folder.write("a.h", "#pragma once\n#include \"b.h\"\nint a;\n");
  folder.write("b.h", "#include \"a.h\"\nint b;\n");
  folder.write("main.c", "#include \"a.h\"\n#include \"b.h\"\n#include \"unknown.h\"\n#include <system.h>\nint c;\n");
  const std::string text = expand_includes((folder.path() / "main.c").string(), {});
  const auto count = [&](const std::string& word) {
    size_t n = 0;
    for (size_t i = text.find(word); i != std::string::npos; i = text.find(word, i + 1)) ++n;
    return n;
  };
  EXPECT_EQ(count("int a;"), 1u);
  EXPECT_EQ(count("int b;"), 1u);
  EXPECT_EQ(count("int c;"), 1u);
  EXPECT_EQ(count("#include \"unknown.h\""), 1u);
  EXPECT_EQ(count("#include <system.h>"), 1u);
  EXPECT_EQ(count("pragma"), 0u);
}

}  // namespace
}  // namespace anyaccel
