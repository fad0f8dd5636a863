// Finding OpenCL: what the probe answers and what it leaves alone, with PoCL, with a fake driver, and with none. Every case
// runs in a child process with an environment of its own, so that what one opens another does not see.
#include <sys/wait.h>

#include <functional>
#include <map>

#include "this_build.h"
#include "xpu/opencl_test_support.h"

namespace anyaccel::xpu_test {
namespace {

using Environment = std::map<std::string, std::string>;

// Runs `body` in a child process with these variables and no others of ours; what it returns comes back.
std::string in_child(const Environment& environment, const std::function<std::string()>& body) {
  int ends[2];
  if (pipe(ends) != 0) return "no pipe";
  const pid_t child = fork();
  if (child == 0) {
    for (const char* name : {"ANYACCEL_XPU_RUNTIME", "ANYACCEL_OPENCL_DEVICE_TYPE", "OCL_ICD_VENDORS", "FAKE_OPENCL"}) {
      unsetenv(name);
    }
    for (const auto& [name, value] : environment) setenv(name.c_str(), value.c_str(), 1);
    std::string text;
    try {
      text = body();
    } catch (const std::exception& error) {
      text = std::string("exception: ") + error.what();
    }
    const ssize_t written = write(ends[1], text.data(), text.size());
    _exit(written == static_cast<ssize_t>(text.size()) ? 0 : 1);
  }
  close(ends[1]);
  std::string text;
  char buffer[512];
  for (ssize_t got; (got = read(ends[0], buffer, sizeof(buffer))) > 0;) text.append(buffer, static_cast<size_t>(got));
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) text += " [the child process died]";
  return text;
}

bool mapped(const std::string& library) {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    if (line.find(library) != std::string::npos) return true;
  }
  return false;
}

std::string text_of(const aa_probe& probe) {
  constexpr const char* states[] = {"absent", "unusable", "usable"};
  return std::string(states[probe.state]) + " " + std::to_string(probe.device_count) + " " + probe.reason;
}

std::string probe_text() { return text_of(probed()); }

// Initializes and closes again: "opened <devices>", or the error.
std::string open_text() {
  aa_initialize_params params{};
  params.struct_size = sizeof(params);
  aa_instance* instance = nullptr;
  const Error error = error_of(table().initialize(&params, &instance));
  if (error.code != AA_OK) return std::to_string(error.code) + " " + error.what();
  int32_t count = 0;
  ok(table().device_count(instance, &count));
  ok(table().shutdown(instance));
  return "opened " + std::to_string(count);
}

const Environment cpu{{"ANYACCEL_XPU_RUNTIME", "opencl"}, {"ANYACCEL_OPENCL_DEVICE_TYPE", "cpu"}};

Environment with(Environment environment, const std::string& name, const std::string& value) {
  environment[name] = value;
  return environment;
}

// The fake GPU driver, with the words of FAKE_OPENCL.
Environment fake(const IcdFolder& folder, const std::string& words) {
  return {{"ANYACCEL_XPU_RUNTIME", "opencl"}, {"OCL_ICD_VENDORS", folder.path()}, {"FAKE_OPENCL", words}};
}

bool starts(const std::string& text, const std::string& beginning) { return text.starts_with(beginning); }
// Returns why PoCL cannot be tested here; empty if it can.
std::string without_pocl() {
  const std::string text = in_child(cpu, open_text);
  return starts(text, "opened") ? "" : "no OpenCL driver for the CPU: " + text;
}

TEST(OpenClProbe, LeavesPoclAloneUnlessForced) {
  for (const Environment& environment : {Environment{}, Environment{{"ANYACCEL_XPU_RUNTIME", "opencl"}},
                                         Environment{{"ANYACCEL_OPENCL_DEVICE_TYPE", "cpu"}}}) {
    const std::string text = in_child(environment, [] {
      std::string answer = probe_text();
      if (mapped("libpocl")) answer += " [PoCL was loaded]";
      if (mapped("libOpenCL")) answer += " [the loader was loaded]";
      return answer;
    });
    EXPECT_FALSE(contains(text, "was loaded")) << text;
    EXPECT_FALSE(contains(text, "died")) << text;
  }
}

TEST(OpenClProbe, SaysWhatItLookedFor) {
  if (std::filesystem::exists("/dev/dri")) GTEST_SKIP() << "this machine has a GPU";
  const std::string text = in_child({}, probe_text);
  EXPECT_TRUE(contains(text, "opencl: no GPU device node (/dev/dri/renderD*, /dev/mali*, /dev/kgsl*)")) << text;
}

TEST(OpenClProbe, ForcedOnAGpuPassesPoclOver) {
  const IcdFolder folder({"libpocl.so.2.10.0"});
  const std::string text = in_child({{"ANYACCEL_XPU_RUNTIME", "opencl"}, {"OCL_ICD_VENDORS", folder.path()}},
                                    [] { return probe_text() + (mapped("libpocl") ? " [loaded]" : ""); });
  EXPECT_TRUE(starts(text, "absent 0")) << text;
  EXPECT_TRUE(contains(text, "libpocl.so.2.10.0 offers CPU devices only")) << text;
  EXPECT_FALSE(contains(text, "[loaded]")) << text;
}

TEST(OpenClProbe, RefusesWrongSettings) {
  const std::string type = in_child(with(cpu, "ANYACCEL_OPENCL_DEVICE_TYPE", "fpga"), probe_text);
  EXPECT_TRUE(starts(type, "unusable")) << type;
  EXPECT_TRUE(contains(type, "ANYACCEL_OPENCL_DEVICE_TYPE is \"fpga\"; expected gpu (the default) or cpu")) << type;
  const std::string unforced = in_child({{"ANYACCEL_OPENCL_DEVICE_TYPE", "cpu"}}, probe_text);
  EXPECT_TRUE(contains(unforced, "counts only together with ANYACCEL_XPU_RUNTIME=opencl")) << unforced;
  const std::string runtime = in_child({{"ANYACCEL_XPU_RUNTIME", "cuda"}}, probe_text);
  EXPECT_TRUE(contains(runtime, "expected level_zero or opencl")) << runtime;
}

TEST(OpenClProbe, NoDriverInstalled) {
  const IcdFolder folder({});
  const Environment environment = with(cpu, "OCL_ICD_VENDORS", folder.path());
  const std::string text = in_child(environment, probe_text);
  EXPECT_TRUE(starts(text, "absent 0")) << text;
  EXPECT_TRUE(contains(text, "no *.icd file in " + folder.path())) << text;
  const std::string opening = in_child(environment, open_text);
  EXPECT_TRUE(starts(opening, std::to_string(AA_UNAVAILABLE) + " ")) << opening;
}

TEST(OpenClProbe, LibraryThatCannotBeOpened) {
  const IcdFolder folder({"/nowhere/libmissing_opencl.so"});
  for (const bool on_cpu : {true, false}) {
    Environment environment = with(cpu, "OCL_ICD_VENDORS", folder.path());
    if (!on_cpu) environment.erase("ANYACCEL_OPENCL_DEVICE_TYPE");
    const std::string text = in_child(environment, probe_text);
    EXPECT_TRUE(starts(text, "unusable 0")) << text;
    EXPECT_TRUE(contains(text, "/nowhere/libmissing_opencl.so")) << text;
    EXPECT_TRUE(contains(text, "cannot be opened")) << text;
  }
}

TEST(OpenClProbe, LibraryThatIsNoDriver) {
  const IcdFolder folder({test::built("tests/plugins/no_entry.so")});
  const std::string text = in_child(with(cpu, "OCL_ICD_VENDORS", folder.path()), probe_text);
  EXPECT_TRUE(starts(text, "unusable 0")) << text;
  EXPECT_TRUE(contains(text, "is not an OpenCL driver")) << text;
}

TEST(OpenClProbe, FakeGpu) {
  const IcdFolder folder({fake_library()});
  const std::string text = in_child(fake(folder, "two"), probe_text);
  EXPECT_EQ(text, "usable 2 opencl: Fake Device");
  EXPECT_EQ(in_child(fake(folder, "two"), open_text), "opened 2");
  // A single file instead of a folder.
  Environment file = fake(folder, "");
  file["OCL_ICD_VENDORS"] = folder.path() + "/0.icd";
  EXPECT_EQ(in_child(file, open_text), "opened 1");
}

TEST(OpenClProbe, DevicesThatCannotBeUsed) {
  const IcdFolder folder({fake_library()});
  const std::map<std::string, std::string> reasons{
      {"no_platform", "lists no platform"},
      {"old_platform", "shared virtual memory came with OpenCL 2.0"},
      {"missing_function", "lacks the function clSetKernelArgSVMPointer"},
      {"no_device", "lists no GPU device"},
      {"cpu", "lists no GPU device"},
      {"unavailable", "says that it is not available"},
      {"no_compiler", "has no compiler"},
      {"no_svm", "has no shared virtual memory"},
      {"little_local_memory", "has 1024 bytes of local memory; the kernels need 16384"},
  };
  for (const auto& [word, reason] : reasons) {
    const std::string text = in_child(fake(folder, word), probe_text);
    EXPECT_TRUE(starts(text, "unusable 0")) << word << ": " << text;
    EXPECT_TRUE(contains(text, reason)) << word << ": " << text;
    const std::string opening = in_child(fake(folder, word), open_text);
    EXPECT_TRUE(starts(opening, std::to_string(AA_UNAVAILABLE) + " ")) << word << ": " << opening;
    EXPECT_TRUE(contains(opening, reason)) << word << ": " << opening;
  }
}

// The probe does not ask for CPU devices, so opening is where their absence is found.
TEST(OpenClProbe, CpuDriverWithoutDevices) {
  const IcdFolder folder({fake_library()});
  for (const char* words : {"cpu no_device", ""}) {
    Environment environment = fake(folder, words);
    environment["ANYACCEL_OPENCL_DEVICE_TYPE"] = "cpu";
    const std::string opening = in_child(environment, open_text);
    EXPECT_TRUE(starts(opening, std::to_string(AA_UNAVAILABLE) + " ")) << opening;
    EXPECT_TRUE(contains(opening, "lists no CPU device")) << opening;
  }
}

TEST(OpenClProbe, CpuDriverOffersOneDevice) {
  const IcdFolder folder({fake_library(), fake_library()});
  Environment environment = fake(folder, "cpu two");
  environment["ANYACCEL_OPENCL_DEVICE_TYPE"] = "cpu";
  EXPECT_EQ(in_child(environment, open_text), "opened 1");
  EXPECT_EQ(in_child(environment, probe_text).substr(0, 9), "usable 1 ");
}

// A driver that cannot be used does not hide one that can.
TEST(OpenClProbe, TakesTheSecondDriver) {
  const IcdFolder folder({"/nowhere/libmissing_opencl.so", fake_library()});
  EXPECT_EQ(in_child(fake(folder, ""), open_text), "opened 1");
}

TEST(OpenClProbe, GpuFactsBecomePropertiesAndTuning) {
  const IcdFolder folder({fake_library()});
  const auto facts = [] {
    const Opened opened;
    aa_device_props props{};
    props.struct_size = sizeof(props);
    ok(table().device_props(opened.instance, 0, &props));
    aa_kernel_tuning tuning{};
    tuning.struct_size = sizeof(tuning);
    ok(opened.compiler.kernel_tuning(opened.device, &tuning));
    const auto has = [&](aa_dtype dtype) { return (props.dtypes_computable >> dtype & 1) != 0; };
    return std::string(props.name) + " " + props.arch + " f16 " + std::to_string(has(AA_DTYPE_F16)) +
           std::to_string(tuning.native_f16) + " f64 " + std::to_string(has(AA_DTYPE_F64)) +
           std::to_string(tuning.native_f64) + " pinned " + std::to_string((props.caps & AA_CAP_PINNED_HOST) != 0) +
           " group " + std::to_string(tuning.group_size) + " lanes " + std::to_string(tuning.lanes) + " subgroup " +
           std::to_string(tuning.subgroup_size) + " items " + std::to_string(tuning.items) + " local " +
           std::to_string(tuning.local_memory);
  };
  EXPECT_EQ(in_child(fake(folder, ""), facts),
            "Fake Device OpenCL 3.0 f16 10 f64 11 pinned 0 group 256 lanes 16 subgroup 0 items 256 local 65536");
  EXPECT_EQ(in_child(fake(folder, "subgroups f16 no_f64"), facts),
            "Fake Device OpenCL 3.0 f16 11 f64 00 pinned 0 group 256 lanes 32 subgroup 32 items 256 local 65536");
}

TEST(OpenClProbe, PoclStartsNoThreadAndTheProcessCanFork) {
  if (const std::string why = without_pocl(); !why.empty()) GTEST_SKIP() << why;
  const std::string text = in_child(cpu, [] {
    const auto threads = [] {
      const std::filesystem::directory_iterator tasks("/proc/self/task");
      return std::distance(begin(tasks), end(tasks));
    };
    std::string answer = probe_text();
    if (threads() != 1) answer += " [threads were started]";
    // The child of a process that probed opens the device; the parent too, afterwards.
    answer += " child " + in_child(cpu, open_text);
    answer += " parent " + open_text();
    return answer;
  });
  EXPECT_TRUE(starts(text, "usable 1 opencl: ")) << text;
  EXPECT_TRUE(text.ends_with(" child opened 1 parent opened 1")) << text;
}

TEST(OpenClProbe, ForkAfterOpeningIsAnError) {
  if (const std::string why = without_pocl(); !why.empty()) GTEST_SKIP() << why;
  const std::string text = in_child(cpu, [] {
    const std::string own = open_text();
    return own + " child " + in_child(cpu, open_text) + " probe " + in_child(cpu, probe_text);
  });
  EXPECT_TRUE(starts(text, "opened 1 child ")) << text;
  EXPECT_TRUE(contains(text, "child " + std::to_string(AA_UNAVAILABLE))) << text;
  EXPECT_TRUE(contains(text, "probe unusable 0 opencl: OpenCL was initialized before this process was forked")) << text;
}

}  // namespace
}  // namespace anyaccel::xpu_test
