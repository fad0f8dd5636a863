// Files that are named as plugins and are none: pipes, devices, folders, parts of a library. And files that another
// user could have put there, or could replace. Each is an error that names it, and nothing of it is run.
#include <elf.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "anyaccel/detection.h"
#include "anyaccel/error.h"
#include "ops/op_build_support.h"
#include "this_build.h"
#include "two_users.h"

namespace anyaccel {
namespace {

namespace fs = std::filesystem;
using test::as_user;
using test::attacker;
using test::Swapper;
using test::TemporaryFolder;
using test::Variable;
using test::victim;

fs::path minimal() { return test::built("tests/plugins/minimal.so"); }

// Empty when it loads.
std::string refusal(const fs::path& file) {
  try {
    load_plugin(file.string());
    return {};
  } catch (const UnavailableError& error) {
    return error.what();
  }
}

bool says(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

class PluginFiles : public ::testing::Test {
 protected:
  PluginFiles() { umask(022); }
  fs::path copy(const fs::path& folder, const std::string& name) const {
    const fs::path file = folder / name;
    fs::copy_file(minimal(), file, fs::copy_options::overwrite_existing);
    chmod(file.c_str(), 0755);
    return file;
  }
  fs::path folder(const std::string& name, uid_t owner, mode_t mode) const {
    const fs::path path = place.path() / name;
    fs::create_directory(path);
    EXPECT_EQ(chown(path.c_str(), owner, owner), 0);
    EXPECT_EQ(chmod(path.c_str(), mode), 0);
    return path;
  }
  TemporaryFolder place;
};

TEST_F(PluginFiles, WhatIsNoFileIsNamed) {
  const fs::path pipe = place.path() / "pipe.so";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  const std::string text = refusal(pipe);
  EXPECT_TRUE(says(text, "plugin \"" + pipe.string() + "\": it cannot be opened: ")) << text;
  EXPECT_TRUE(says(text, "is a named pipe, not a file")) << text;
  EXPECT_TRUE(says(refusal(place.path()), "is a folder, not a file")) << refusal(place.path());
  for (const char* device : {"/dev/null", "/dev/zero", "/dev/tty"}) {
    if (!fs::exists(device)) continue;
    EXPECT_TRUE(says(refusal(device), "is a device, not a file")) << refusal(device);
  }
  EXPECT_TRUE(says(refusal(pipe / "below.so"), "is not a folder")) << refusal(pipe / "below.so");
  // The same through the environment: detection continues and reports it.
  const Variable path("ANYACCEL_PLUGIN_PATH", pipe.string() + ":/dev/zero");
  std::string errors;
  for (const std::string& error : probe_all_accelerators().plugin_errors) errors += error + "\n";
  EXPECT_TRUE(says(errors, "is a named pipe, not a file")) << errors;
  EXPECT_TRUE(says(errors, "is a device, not a file")) << errors;
}

// Cut off anywhere: dlopen() alone ends in SIGBUS for most of these.
TEST_F(PluginFiles, EveryPartOfALibraryIsRefused) {
  std::ifstream stream(minimal(), std::ios::binary);
  const std::string whole{std::istreambuf_iterator<char>(stream), {}};
  ASSERT_GT(whole.size(), 1000u);
  for (size_t length = 0; length < whole.size(); length += length < 70 ? 1 : 97) {
    const fs::path file = place.write("part.so", whole.substr(0, length));
    const std::string text = refusal(file);
    const char* reason = length == 0 ? "it is empty" : length < 4 ? "it is not an ELF file" : "it is cut off";
    ASSERT_TRUE(says(text, reason)) << length << ": " << text;
  }
  EXPECT_EQ(refusal(place.write("whole.so", whole)), "");
}

// The header, and the places and sizes that the program headers name.
TEST_F(PluginFiles, DamagedHeadersAreRefused) {
  std::ifstream stream(minimal(), std::ios::binary);
  const std::string whole{std::istreambuf_iterator<char>(stream), {}};
  std::vector<size_t> bytes;
  for (size_t i = 0; i < sizeof(Elf64_Ehdr); ++i) bytes.push_back(i);
  Elf64_Ehdr header;
  std::memcpy(&header, whole.data(), sizeof(header));
  for (size_t i = 0; i < header.e_phnum; ++i) {
    const size_t segment = header.e_phoff + i * sizeof(Elf64_Phdr);
    for (size_t k = 0; k < 8; ++k) {
      for (const size_t member : {offsetof(Elf64_Phdr, p_offset), offsetof(Elf64_Phdr, p_filesz)}) {
        bytes.push_back(segment + member + k);
      }
    }
  }
  int refused = 0;
  for (const size_t byte : bytes) {
    std::string damaged = whole;
    damaged[byte] = static_cast<char>(damaged[byte] ^ 0x40);
    const fs::path file = place.write("damaged.so", damaged);
    // In a process of its own: some bytes do not matter, and then it is loaded.
    const pid_t child = fork();
    if (child == 0) {
      const std::string text = refusal(file);
      _exit(text.empty() ? 0 : says(text, "cannot be opened as a shared library") ? 1 : 2);
    }
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) < 2) << "byte " << byte << ": " << status;
    refused += WIFEXITED(status) && WEXITSTATUS(status) == 1;
  }
  EXPECT_GT(refused, 50);
}

TEST_F(PluginFiles, ABareNameIsAFileOfTheCurrentFolder) {
  copy(place.path(), "bare.so");
  const fs::path before = fs::current_path();
  fs::current_path(place.path());
  EXPECT_EQ(refusal("bare.so"), "");
  // A device of the system is never opened.
  EXPECT_TRUE(says(refusal("libm.so.6"), "there is no such file")) << refusal("libm.so.6");
  {
    const Variable path("ANYACCEL_PLUGIN_PATH", "bare.so");
    const auto known = known_accelerators();
    EXPECT_NE(std::ranges::find(known, "xpu.external"), known.end());
  }
  fs::current_path(before);
}

TEST_F(PluginFiles, WhatOthersCanWriteIsRefused) {
  const fs::path file = copy(place.path(), "open.so");
  for (const mode_t mode : {0775, 0757}) {
    chmod(file.c_str(), mode);
    EXPECT_TRUE(says(refusal(file), mode == 0775 ? "can be written by its group (mode 775)"
                                                 : "can be written by everybody (mode 757)"))
        << refusal(file);
    chmod(file.c_str(), 0755);
    chmod(place.path().c_str(), mode);
    const std::string text = refusal(file);
    EXPECT_TRUE(says(text, "it is not loaded, because " + place.path().string() + " can be written by")) << text;
    EXPECT_TRUE(says(text, "Cure: chmod go-w " + place.path().string())) << text;
    {
      const Variable path("ANYACCEL_PLUGIN_PATH", place.path().string());
      const auto errors = probe_all_accelerators().plugin_errors;
      ASSERT_EQ(errors.size(), 1u);
      EXPECT_TRUE(
          says(errors[0], "plugin folder \"" + place.path().string() + "\": nothing is loaded from it, because "))
          << errors[0];
    }
    chmod(place.path().c_str(), 0700);
    EXPECT_EQ(refusal(file), "");
  }
}

TEST_F(PluginFiles, AnotherUsersAreRefused) {
  if (geteuid() != 0) GTEST_SKIP() << "acting as two users needs root";
  chmod(place.path().c_str(), 0755);
  const fs::path theirs = folder("theirs", attacker, 0755);
  const fs::path roots = folder("roots", 0, 0755);
  const fs::path file = copy(theirs, "file.so");
  const fs::path given = copy(roots, "given.so");
  const fs::path good = copy(roots, "good.so");
  ASSERT_EQ(chown(given.c_str(), attacker, attacker), 0);
  for (const uid_t user : {uid_t{0}, victim}) {
    EXPECT_EQ(as_user(user, 022,
                      [&] {
                        if (!says(refusal(file), "belongs to user " + std::to_string(attacker))) return 1;
                        if (!says(refusal(given), "belongs to user " + std::to_string(attacker))) return 2;
                        return refusal(good).empty() ? 0 : 3;
                      }),
              0)
        << user;
  }
  // Through a link of theirs that changes all the time, to a good one and their own.
  folder("counts", attacker, 0755);
  const Swapper swapper(theirs / "link.so", good, file, place.path() / "counts/count");
  EXPECT_EQ(as_user(victim, 022,
                    [&] {
                      for (int i = 0; i < 1000; ++i) {
                        if (refusal(theirs / "link.so").empty()) return 1;
                      }
                      return 0;
                    }),
            0);
  EXPECT_GT(swapper.swaps(), 0u);
}

}  // namespace
}  // namespace anyaccel
