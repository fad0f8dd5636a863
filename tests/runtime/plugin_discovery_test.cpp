// Tests where plugins are found, in which order they are considered, and which of two with the same name is used.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "anyaccel/accelerator.h"
#include "anyaccel/detection.h"
#include "anyaccel/error.h"
#include "ops/op_build_support.h"
#include "this_build.h"

namespace anyaccel {
namespace {

namespace fs = std::filesystem;
using test::message_of;
using test::TemporaryFolder;
using test::Variable;

bool says(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

class PluginDiscovery : public testing::Test {
 protected:
  PluginDiscovery() {
    reset_accelerator();
    umask(022);
    fs::create_directories(personal());
  }
  ~PluginDiscovery() override { reset_accelerator(); }

  fs::path personal() const { return home.path() / ".local/lib/anyaccel/plugins"; }
  // A plugin NAME of the priority, in a folder.
  static fs::path add(const fs::path& folder, const std::string& name, int priority) {
    fs::create_directories(folder);
    const fs::path file = folder / (name + "_" + std::to_string(priority) + ".so");
    fs::copy_file(test::built("tests/plugins/named.so"), file, fs::copy_options::overwrite_existing);
    chmod(file.c_str(), 0755);
    return file;
  }
  static void look_in(const fs::path& path) { setenv("ANYACCEL_PLUGIN_PATH", path.c_str(), 1); }
  static void ask_for(const char* name) {
    reset_accelerator();
    setenv("DS_ACCELERATOR", name, 1);
  }
  static std::vector<std::string> order() {
    std::vector<std::string> names;
    for (const Candidate& candidate : probe_all_accelerators().candidates) names.push_back(candidate.name);
    return names;
  }
  // Those that the machine's own folders hold (none, as a rule) and those of the test.
  static size_t count(const std::string& name) { return std::ranges::count(known_accelerators(), name); }
  static std::string errors() {
    std::string text;
    for (const std::string& error : probe_all_accelerators().plugin_errors) text += error + "\n";
    return text;
  }

  // Kept until the process ends, and no file is removed: the dynamic linker takes a new file with the inode of one that
  // it has opened for that one.
  static TemporaryFolder& new_folder() {
    static std::vector<std::unique_ptr<TemporaryFolder>> folders;
    return *folders.emplace_back(std::make_unique<TemporaryFolder>());
  }
  const TemporaryFolder& home = new_folder();
  const Variable home_variable{"HOME", home.path().string()};
  const Variable path_variable{"ANYACCEL_PLUGIN_PATH", std::nullopt};
  const Variable accelerator_variable{"DS_ACCELERATOR", std::nullopt};
};

TEST_F(PluginDiscovery, APluginInThePersonsFolderIsUsed) {
  const fs::path file = add(personal(), "acme", 100);
  EXPECT_EQ(get_accelerator()->name(), "acme");
  const DetectionReport report = detection_report();
  EXPECT_EQ(report.chosen, "acme");
  EXPECT_EQ(report.method, "auto detect");
  EXPECT_EQ(report.candidates.at(0).origin, file.string());
  EXPECT_EQ(report.candidates.at(0).priority, 100);
  EXPECT_TRUE(says(probe_all_accelerators().plugin_places, personal().string() + " (1 file)"));
}

TEST_F(PluginDiscovery, OnlyLibrariesOfAFolderAreTaken) {
  home.write(".local/lib/anyaccel/plugins/README.md", "not a plugin");
  home.write(".local/lib/anyaccel/plugins/acme_1.so.bak", "not a plugin");
  EXPECT_EQ(errors(), "");
  EXPECT_EQ(get_accelerator()->name(), "cpu");
}

TEST_F(PluginDiscovery, WithoutAHomeThereIsNoPersonsFolder) {
  add(personal(), "acme", 100);
  const fs::path before = fs::current_path();
  fs::current_path(home.path());
  for (const char* value : {"", ".", "relative"}) {
    const Variable variable("HOME", value);
    EXPECT_EQ(count("acme"), 0u) << value;
  }
  {
    const Variable variable("HOME", std::nullopt);
    EXPECT_EQ(count("acme"), 0u);
  }
  fs::current_path(before);
  EXPECT_EQ(count("acme"), 1u);
}

TEST_F(PluginDiscovery, AFolderThatOthersCanWriteIsNotUsed) {
  const fs::path file = add(personal(), "acme", 100);
  for (const fs::path& folder : {personal(), home.path() / ".local"}) {
    chmod(folder.c_str(), 0777);
    EXPECT_TRUE(says(errors(), "plugin folder \"" + personal().string() + "\": nothing is loaded from it, because " +
                                   folder.string() + " can be written by everybody (mode 777)"))
        << errors();
    testing::internal::CaptureStderr();
    reset_accelerator();
    EXPECT_EQ(get_accelerator()->name(), "cpu");
    EXPECT_TRUE(says(testing::internal::GetCapturedStderr(), "nothing is loaded from it, because "));
    // Nobody is warned of folders above one that does not exist.
    fs::rename(personal(), home.path() / "elsewhere");
    EXPECT_EQ(errors(), "");
    fs::rename(home.path() / "elsewhere", personal());
    chmod(folder.c_str(), 0755);
    EXPECT_EQ(errors(), "");
  }
}

TEST_F(PluginDiscovery, PrioritiesDecideTheOrder) {
  add(personal(), "acme", 100);
  add(personal(), "behind.cuda", 20);
  add(personal(), "last", 0);
  add(personal(), "never", -5);
  add(personal(), "xpu", 10);
  add(personal(), "cuda", 30);
  EXPECT_EQ(order(), (std::vector<std::string>{"acme", "xpu", "npu", "sdaa", "mps", "hpu", "mlu", "cuda.external",
                                               "cuda", "behind.cuda", "xpu.external", "cpu", "last", "null", "never"}));
  EXPECT_EQ(get_accelerator()->name(), "acme");
  const Candidate passed = detection_report().candidates.at(1);
  EXPECT_EQ(passed.reason, "not looked at: acme, which comes before it, is usable");
  // One of a low priority is there for those who ask for it.
  ask_for("last");
  EXPECT_EQ(get_accelerator()->name(), "last");
  unsetenv("DS_ACCELERATOR");
  fs::rename(personal() / "acme_100.so", home.path() / "acme_100.so");
  reset_accelerator();
  EXPECT_NE(get_accelerator()->name(), "last");
}

TEST_F(PluginDiscovery, AtOnePriorityPathsAndNamesDecide) {
  add(personal(), "a", 100);
  add(home.path() / "second", "b", 100);
  add(home.path() / "first", "d", 100);
  add(home.path() / "first", "c", 100);
  look_in((home.path() / "first").string() + ":" + (home.path() / "second").string());
  const std::vector<std::string> found = order();
  EXPECT_EQ((std::vector<std::string>{found.begin(), found.begin() + 4}),
            (std::vector<std::string>{"c", "d", "b", "a"}));
}

TEST_F(PluginDiscovery, TwoFilesOfOneNameAreAnErrorThatNamesBoth) {
  const fs::path mine = add(personal(), "acme", 100);
  const fs::path other = add(home.path() / "other", "acme", 20);
  add(personal(), "good", 50);
  look_in(other);
  const std::string both = "more than one plugin brings an accelerator \"acme\": \"" + other.string() + "\" and \"" +
                           mine.string() + "\"; none of them is used. Keep one file, and remove the others";
  const auto get = [] { get_accelerator(); };
  EXPECT_TRUE(says(message_of<UnavailableError>(get), both)) << message_of<UnavailableError>(get);
  ask_for("acme");
  EXPECT_TRUE(says(message_of<UnavailableError>(get), both)) << message_of<UnavailableError>(get);
  EXPECT_TRUE(says(message_of<UnavailableError>([] { make_accelerator("acme"); }), both));
  // A program that asks for another one gets it, and `anyaccel info` reports that.
  for (const char* name : {"good", "cpu"}) {
    ask_for(name);
    EXPECT_EQ(get_accelerator()->name(), name);
    EXPECT_TRUE(says(errors(), both)) << errors();
    EXPECT_EQ(count("acme"), 0u);
  }
  // The names count as people see them.
  const fs::path xpu = add(personal(), "xpu", 100);
  const fs::path external = add(personal(), "xpu.external", 100);
  ask_for("xpu.external");
  EXPECT_TRUE(says(message_of<UnavailableError>(get),
                   "\"xpu.external\": \"" + external.string() + "\" and \"" + xpu.string() + "\""))
      << message_of<UnavailableError>(get);
}

TEST_F(PluginDiscovery, OneFileByManyPathsIsOnePlugin) {
  const fs::path file = add(personal(), "acme", 100);
  const fs::path links = home.path() / "links";
  fs::create_directories(links);
  fs::create_symlink(file, links / "acme_7.so");
  fs::create_hard_link(file, links / "acme_8.so");
  fs::create_directory_symlink(personal(), home.path() / "folder");
  look_in(file.string() + ":" + (personal() / "../plugins/acme_100.so").string() + ":" + links.string() + ":" +
          (home.path() / "folder").string());
  EXPECT_EQ(errors(), "");
  EXPECT_EQ(count("acme"), 1u);
  EXPECT_EQ(detection_report().candidates.at(0).origin, file.string());
  // A copy is another file.
  fs::copy_file(file, links / "acme_9.so");
  EXPECT_TRUE(says(errors(), "more than one plugin brings")) << errors();
}

TEST_F(PluginDiscovery, ExternalNamesAreExplained) {
  const auto get = [] { get_accelerator(); };
  ask_for("xpu.external");
  const std::string none = message_of<UnavailableError>(get);
  EXPECT_TRUE(says(none,
                   "DS_ACCELERATOR asks for \"xpu.external\", which needs a plugin that calls itself \"xpu\", as a "
                   "built-in accelerator does; none was found. Plugins are looked for in ANYACCEL_PLUGIN_PATH "
                   "(not set), " +
                       personal().string() + " (0 files), "))
      << none;
  const fs::path acme = add(personal(), "acme", 100);
  ask_for("acme.external");
  EXPECT_EQ(message_of<UnavailableError>(get), "DS_ACCELERATOR asks for \"acme.external\", but the plugin \"" +
                                                   acme.string() +
                                                   "\" is called \"acme\": \".external\" is added only to the names of "
                                                   "built-in accelerators. Ask for \"acme\"");
  ask_for("gpu");
  EXPECT_TRUE(says(message_of<InvalidArgument>(get),
                   "(NAME.external means a plugin that calls itself NAME, as a built-in accelerator does.) Plugins are "
                   "looked for in "));
  // A built-in one that cannot be used, beside a plugin of its name.
  const fs::path npu = add(personal(), "npu", 100);
  ask_for("npu");
  const std::string text = message_of<UnavailableError>(get);
  EXPECT_TRUE(says(
      text, "The plugin \"" + npu.string() + "\" calls itself \"npu\" too: DS_ACCELERATOR=npu.external selects it"))
      << text;
  ask_for("npu.external");
  EXPECT_EQ(detection_report().chosen, "npu.external");
}

}  // namespace
}  // namespace anyaccel
