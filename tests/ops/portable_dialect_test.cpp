// The portable kernels in a language that only the driver knows.
#include "anyaccel/abi/driver_class.hpp"
#include "anyaccel/driver_accelerator.h"
#include "anyaccel/error.h"
#include "ops/op_build_support.h"
#include "ops/portable/kernel_set.h"
#include "runtime/driver/driver_table.h"
#include "runtime/driver/host_services.h"
#include "runtime/ops/portable_ops.h"

namespace anyaccel {
namespace {

namespace fs = std::filesystem;
using test::message_of;
using test::TemporaryFolder;
using test::Variable;

#define EXPECT_HAS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

// Settings by which the test controls the driver, and a record of what its compiler received.
struct Settings {
  const char* languages = "moon-c, opencl-c";
  std::string dialect;  // of moon-c
  std::string language;
  std::string source;
};
Settings settings;

class MoonStream final : public abi::Stream {
 public:
  void copy(const aa_copy&) override {}
  bool query() override { return true; }
  void synchronize() override {}
};

class MoonDevice final : public abi::Device {
 public:
  void synchronize() override {}
  void mem_alloc(const aa_alloc& what, aa_allocation& out) override { out.pointer = std::malloc(what.size); }
  void mem_free(const aa_allocation& what) override { std::free(what.pointer); }
  std::unique_ptr<abi::Stream> stream_create(const aa_stream_params&) override {
    return std::make_unique<MoonStream>();
  }
  const char* compile_languages() override { return settings.languages; }
  std::string compile_fingerprint() override { return "moon 1"; }
  const char* dialect(const char* language) override {
    return std::string(language) == "moon-c" ? settings.dialect.c_str() : "";
  }
  abi::CompileOutput compile(const aa_compile& what) override {
    settings.language = what.language;
    settings.source.assign(what.source, what.source_size);
    abi::CompileOutput output;
    output.log = "the moon is far away";
    return output;
  }
};

class MoonDriver final : public abi::Driver {
 public:
  static constexpr abi::DriverFacts facts{.name = "moon", .vendor = "tests", .version = "1"};
  static void probe(aa_probe& probe) {
    probe.state = AA_PROBE_USABLE;
    probe.device_count = 1;
  }
  static std::unique_ptr<abi::Driver> initialize(const aa_initialize_params&) { return std::make_unique<MoonDriver>(); }
  uint32_t extensions() const override { return abi::compiler_extension; }
  int32_t device_count() override { return 1; }
  void device_props(int32_t, aa_device_props& props) override {
    props.caps = AA_CAP_KERNELS;
    props.alignment = 64;
  }
  std::unique_ptr<abi::Device> device_open(const aa_device_open_params&) override {
    return std::make_unique<MoonDevice>();
  }
};

class PortableDialect : public ::testing::Test {
 protected:
  PortableDialect()
      : cache("ANYACCEL_CACHE_DIR", (folder.path() / "cache").string()),
        moon(complete_table(
            abi::driver_query<MoonDriver>(AA_ABI_VERSION(AA_ABI_MAJOR, 0), AA_ABI_CURRENT, host_services()), "test")) {
    settings = {};
  }
  std::string compile_one() {
    return message_of<BuildError>([&] {
      ops::portable::KernelSet kernels(moon, "nothing.cl", {"nothing"});
      kernels.get(0, 0, ops::portable::Element::F32, ops::portable::Element::F32);
    });
  }
  TemporaryFolder folder;
  Variable cache;
  DriverAccelerator moon;
};

TEST_F(PortableDialect, ADriversOwnHeaderIsWhatTheKernelsGet) {
  folder.write("language.h", "#define MOON_SAYS 1\n");
  settings.dialect = folder.path().string();
  EXPECT_HAS(compile_one(), "the moon is far away");
  EXPECT_EQ(settings.language, "moon-c");
  EXPECT_HAS(settings.source, "#define MOON_SAYS 1");
  EXPECT_EQ(settings.source.find("__kernel"), std::string::npos) << "nothing of OpenCL";
}

TEST_F(PortableDialect, ElseTheFirstLanguageThatTheHostHas) {
  EXPECT_HAS(compile_one(), "the moon is far away");
  EXPECT_EQ(settings.language, "opencl-c");
  EXPECT_HAS(settings.source, "__kernel");
  settings.languages = "cuda-c++";
  EXPECT_EQ(ops::portable::portable_dialect(moon).language, "cuda-c++");
  EXPECT_TRUE(make_portable_ops(moon));
  // Without one there are no portable ops, and ops run on the CPU.
  settings.languages = "moon-c";
  EXPECT_EQ(ops::portable::portable_dialect(moon).language, "");
  EXPECT_FALSE(make_portable_ops(moon));
}

TEST_F(PortableDialect, AFolderWithoutTheHeaderOrThatOthersCanChange) {
  settings.dialect = folder.path().string();
  EXPECT_HAS(message_of<UnavailableError>([&] { ops::portable::portable_dialect(moon); }),
             "as the folder of its dialect of moon-c, which cannot be used: there is no language.h in it");
  fs::permissions(folder.write("language.h", ""), fs::perms::others_write, fs::perm_options::add);
  EXPECT_HAS(message_of<UnavailableError>([&] { ops::portable::portable_dialect(moon); }), "language.h");
}

}  // namespace
}  // namespace anyaccel
