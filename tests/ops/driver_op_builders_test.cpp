// Op builders and the compiler that a driver brings: found by name, listed, compiled, loaded, and refused.
#include <unistd.h>

#include <algorithm>
#include <array>

#include "accelerators/cpu/cpu_driver.h"
#include "anyaccel/abi/sized.hpp"
#include "anyaccel/driver_accelerator.h"
#include "anyaccel/error.h"
#include "anyaccel/ops/cpu_lion.h"
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

#define EXPECT_HAS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

constexpr const char* number_source = R"(
#include "anyaccel/op_source.h"
#include "made.h"
AA_OP int number() { return MADE + OWN + FROM_TOOLCHAIN; }
)";

// A driver that brings builders: the CPU's, under another name, from a file in a folder of the test's.
class DriverOpBuilders : public ::testing::Test {
 protected:
  DriverOpBuilders() : cache("ANYACCEL_CACHE_DIR", (folder.path() / "cache").string()) {
    fs::create_directories(folder.path() / "ops" / "headers");
    fs::create_directories(folder.path() / "toolchain");
    folder.write("plugin.so", "");
    folder.write("ops/number.cpp", number_source);
    folder.write("ops/headers/made.h", "#define MADE 100\n");
    folder.write("toolchain/vendor.h", "");
    number.name = "NumberBuilder";
    number.folder = "ops";
    number.sources = number_sources;
    number.include_dirs = header_dirs;
    number.compile_flags = own_flags;
    toolchain.compile_flags = toolchain_flags;
    toolchain.include_dirs = toolchain_dirs;
    toolchain.ops_dir = "ops";
  }

  DriverAccelerator& open() {
    aa_driver raw = *anyaccel_cpu_driver_query(AA_ABI_VERSION(AA_ABI_MAJOR, 0), AA_ABI_CURRENT, host_services());
    raw.name = "brings";
    list.push_back(nullptr);
    raw.op_builders = list.data();
    raw.toolchain = &toolchain;
    const std::string file = (folder.path() / "plugin.so").string();
    accelerator = std::make_unique<DriverAccelerator>(complete_table(&raw, file), file);
    return *accelerator;
  }
  int number_of(OpBuilder& builder) { return builder.load_as<HostOpLibrary>()->function<int()>("number")(); }

  TemporaryFolder folder;
  Variable cache;
  static constexpr const char* number_sources[] = {"number.cpp", nullptr};
  static constexpr const char* header_dirs[] = {"headers", nullptr};
  static constexpr const char* own_flags[] = {"-DOWN=20", nullptr};
  static constexpr const char* toolchain_flags[] = {"-DFROM_TOOLCHAIN=3", "-DOWN=1", "-UOWN", nullptr};
  static constexpr const char* toolchain_dirs[] = {"toolchain", nullptr};
  aa_op_builder number = abi::sized<aa_op_builder>();
  aa_toolchain toolchain = abi::sized<aa_toolchain>();
  std::vector<const aa_op_builder*> list = {&number};
  std::unique_ptr<DriverAccelerator> accelerator;
};

TEST_F(DriverOpBuilders, AreListedBuiltAndLoaded) {
  open();
  const std::vector<std::string> names = accelerator->op_builder_names();
  EXPECT_EQ(std::count(names.begin(), names.end(), "NumberBuilder"), 1);
  EXPECT_GT(names.size(), 28u);
  ASSERT_TRUE(accelerator->get_op_builder("NumberBuilder"));
  const auto builder = accelerator->create_op_builder("NumberBuilder");
  ASSERT_TRUE(builder);
  EXPECT_EQ(builder->op_name(), "number");
  EXPECT_EQ(builder->build_var(), "DS_BUILD_NUMBER");
  EXPECT_TRUE(builder->is_compatible());
  EXPECT_FALSE(builder->is_built());
  EXPECT_EQ(number_of(*builder), 123);
  EXPECT_TRUE(builder->is_built());
  // No other accelerator has it.
  DriverAccelerator other(complete_table(
      anyaccel_cpu_driver_query(AA_ABI_VERSION(AA_ABI_MAJOR, 0), AA_ABI_CURRENT, host_services()), "built in"));
  EXPECT_FALSE(other.create_op_builder("NumberBuilder"));
}

TEST_F(DriverOpBuilders, TheToolchainIsWhatProgramsSeeAndBuildersUse) {
  const auto compiler = folder.write("vendor-c++", "#!/bin/sh\nexec c++ -DMADE_BY_VENDOR \"$@\"\n", true);
  toolchain.compiler = compiler.c_str();
  open();
  const BuildExtension extension = accelerator->build_extension();
  EXPECT_EQ(extension.compiler, compiler.string());
  EXPECT_NE(std::find(extension.flags.begin(), extension.flags.end(), "-DFROM_TOOLCHAIN=3"), extension.flags.end());
  EXPECT_EQ(extension.include_dirs.front(), (folder.path() / "toolchain").string());
  EXPECT_EQ(accelerator->op_builder_dir(), (folder.path() / "ops").string());
  // A builder of the program's own is compiled so while the accelerator is active.
  folder.write("mine.cpp",
               "#include \"anyaccel/op_source.h\"\n#include \"vendor.h\"\n#ifndef MADE_BY_VENDOR\n#error host\n"
               "#endif\nAA_OP int number() { return FROM_TOOLCHAIN; }\n");
  register_op_builder("MineBuilder", [path = folder.path()](Accelerator&) {
    return std::make_unique<test::FolderBuilder>("MineBuilder", path, std::vector<std::string>{"mine.cpp"});
  });
  EXPECT_EQ(number_of(*accelerator->create_op_builder("MineBuilder")), 3);
  // Without it, by the host's.
  test::FolderBuilder alone("MineBuilder", folder.path(), {"mine.cpp"});
  EXPECT_HAS(message_of<BuildError>([&] { alone.load(); }), "vendor.h");
  // Anyaccel's own host ops are for the host's processor, and take no other compiler.
  EXPECT_EQ(accelerator->create_op_builder("CPUAdamBuilder")->builder().compiler, "");
}

TEST_F(DriverOpBuilders, ACompilerThatIsNotThere) {
  toolchain.compiler = "bisheng++ --target=moon";
  open();
  std::string reason;
  const auto builder = accelerator->create_op_builder("NumberBuilder");
  EXPECT_FALSE(builder->is_compatible(&reason));
  EXPECT_HAS(reason, "\"bisheng++ --target=moon\", which names no program in PATH");
  EXPECT_THROW(builder->load(), UnavailableError);
}

TEST_F(DriverOpBuilders, AReadyLibraryGoesBeforeTheSources) {
  folder.write("ops/ready.cpp", "extern \"C\" int number() { return 7; }\n");
  const std::string library = (folder.path() / "ops" / "ready.so").string();
  ASSERT_TRUE(run_program({"c++", "-shared", "-fPIC", (folder.path() / "ops/ready.cpp").string(), "-o", library}).ok());
  number.library = "ready.so";
  aa_op_builder only = number;
  only.name = "OnlyBuilder";
  only.library = "nowhere.so";
  only.sources = nullptr;
  list.push_back(&only);
  open();
  const auto builder = accelerator->create_op_builder("NumberBuilder");
  EXPECT_TRUE(builder->is_built());
  EXPECT_EQ(number_of(*builder), 7);
  EXPECT_TRUE(builder->jit_load());
  std::string reason;
  const auto missing = accelerator->create_op_builder("OnlyBuilder");
  EXPECT_FALSE(missing->is_compatible(&reason));
  EXPECT_HAS(reason, "nowhere.so is not there, and it has no sources");
  EXPECT_HAS(message_of<UnavailableError>([&] { missing->load(); }), "nowhere.so is not there");
  EXPECT_HAS(message_of<UnavailableError>([&] { missing->jit_load(); }), "has no sources to compile");
}

TEST_F(DriverOpBuilders, AKnownNameGoesBeforeOursAndGivesOurClass) {
  folder.write("ops/lion.cpp", R"(
#include "anyaccel/op_source.h"
#include "optimizers.h"
AA_OP void lion_step(const aa_parameter* p, int64_t count, const aa_lion_args*) {
  for (int64_t i = 0; i < count; ++i) static_cast<float*>(p[i].param)[0] = 41.0f;
}
AA_OP void grad_square_sums(const aa_parameter*, int64_t, double*) {}
)");
  static constexpr const char* sources[] = {"lion.cpp", nullptr};
  static constexpr const char* dirs[] = {ANYACCEL_SOURCE_DIR "/kernels/host", nullptr};
  aa_op_builder lion = abi::sized<aa_op_builder>();
  lion.name = "CPULionBuilder";
  lion.folder = "ops";
  lion.sources = sources;
  lion.include_dirs = dirs;
  list.push_back(&lion);
  open();
  const auto builder = accelerator->create_op_builder("CPULionBuilder");
  EXPECT_EQ(builder->op_name(), "cpu_lion");
  const auto own = builder->load_as<ops::CPULion>();
  const std::array<float, 2> values{1, 2};
  const Tensor param = Tensor::from_host(values.data(), {2}, DType::F32, accelerator->device());
  const Tensor grad = Tensor::from_host(values.data(), {2}, DType::F32, accelerator->device());
  const Tensor state = Tensor::from_host(values.data(), {2}, DType::F32, accelerator->device());
  own->create_lion(0);
  own->lion_update(0, 1, 0.1, 0.9, 0.99, 0, param, grad, state);
  EXPECT_EQ(param.to_vector<float>()[0], 41.0f);
  const std::vector<std::string> names = accelerator->op_builder_names();
  EXPECT_EQ(std::count(names.begin(), names.end(), "CPULionBuilder"), 1);
}

TEST_F(DriverOpBuilders, SourcesThatOthersCanChangeAreNotCompiled) {
  fs::permissions(folder.path() / "ops" / "number.cpp", fs::perms::others_write, fs::perm_options::add);
  open();
  const auto builder = accelerator->create_op_builder("NumberBuilder");
  std::string reason;
  EXPECT_FALSE(builder->is_compatible(&reason));
  EXPECT_HAS(reason, "so that another user could put code there");
  EXPECT_THROW(builder->load(), UnavailableError);
}

TEST_F(DriverOpBuilders, EntriesThatCannotBeUsedAreLeftOutWithTheReason) {
  aa_op_builder small = number, named = number, twice = number, empty = number, flagged = number, device = number;
  small.struct_size = 8;
  named.name = "number";
  empty.name = "EmptyBuilder";
  empty.sources = nullptr;
  flagged.name = "FlaggedBuilder";
  flagged.flags = 4;
  device.name = "DeviceBuilder";
  device.language = "c++";
  device.library = "ready.so";
  aa_op_builder inference = number;
  inference.name = "InferenceBuilder";
  for (const aa_op_builder* entry : {&small, &named, &twice, &empty, &flagged, &device, &inference})
    list.push_back(entry);
  toolchain.flags = 2;
  ::testing::internal::CaptureStderr();
  open();
  const auto ours = accelerator->create_op_builder("InferenceBuilder");
  const std::string said = ::testing::internal::GetCapturedStderr();
  for (const char* part :
       {"the op builder 1 of", "its struct_size is 8", "its name \"number\" does not consist of",
        "the name stands twice", "it has neither sources nor a library", "its flags are 4",
        "device code is one source, and no library", "the toolchain of",
        "the op builder InferenceBuilder of the plugin is not used: that library is part of anyaccel"}) {
    EXPECT_HAS(said, part);
  }
  EXPECT_TRUE(ours->is_compatible());
  EXPECT_EQ(accelerator->op_builder_names().size(), known_op_builders().size() + 1);
}

}  // namespace
}  // namespace anyaccel
