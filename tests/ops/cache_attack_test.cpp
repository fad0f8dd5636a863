// Another user tries to get code run through the cache of compiled ops: by planting it where the cache can be written, by
// owning a folder on the way, by swapping what a name means between check and use. The victim, root in one round and a user in
// the other, loads ops in a process of its own; the attacker's code leaves a mark as soon as it is loaded. Needs root.
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <chrono>

#include "anyaccel/error.h"
#include "anyaccel/log.h"
#include "base/hash.h"
#include "base/process/subprocess.h"
#include "ops/build/build_cache.h"
#include "ops/op_build_support.h"
#include "two_users.h"

namespace anyaccel::ops {
namespace {

namespace fs = std::filesystem;
using test::as_user;
using test::attacker;
using test::shared_group;
using test::Swapper;
using test::TemporaryFolder;
using test::Variable;
using test::victim;

struct Parties {
  uid_t victim;
  const char* name;
  friend void PrintTo(const Parties& parties, std::ostream* stream) { *stream << parties.name; }
};

class CacheAttack : public ::testing::TestWithParam<Parties> {
 protected:
  void SetUp() override {
    if (geteuid() != 0) GTEST_SKIP() << "acting as two users needs root";
    chmod(place.path().c_str(), 0755);
    source = place.write("answer.cpp", "extern \"C\" int answer() { return 42; }\n");
    // Code that is loaded says so before anybody asks it anything.
    place.write("evil.cpp",
                "#include <fcntl.h>\n#include <unistd.h>\n"
                "extern \"C\" int answer() { return 666; }\n"
                "[[gnu::constructor]] static void run() { close(open(\"" +
                    mark() + "\", O_CREAT | O_WRONLY, 0666)); }\n");
    evil = place.path() / "evil.so";
    const auto compiled =
        run_program({"c++", "-shared", "-fPIC", (place.path() / "evil.cpp").string(), "-o", evil.string()});
    ASSERT_TRUE(compiled.ok()) << compiled.output;
    fs::create_directory(marks());
    chmod(marks().c_str(), 0777);
  }

  uid_t user() const { return GetParam().victim; }
  fs::path marks() const { return place.path() / "marks"; }
  std::string mark() const { return (marks() / "evil").string(); }
  bool evil_ran() const { return fs::exists(mark()); }

  // A folder directly in the test's own that belongs to `owner`.
  fs::path folder(const std::string& name, uid_t owner, mode_t mode, gid_t group = 0) const {
    const fs::path path = place.path() / name;
    mkdir(path.c_str(), 0700);
    EXPECT_EQ(chown(path.c_str(), owner, group ? group : owner), 0);
    EXPECT_EQ(chmod(path.c_str(), mode), 0);
    return path;
  }

  BuildPlan plan() const {
    BuildPlan plan;
    plan.op_name = "answer";
    plan.target = "baseline";
    plan.sources = {source.string()};
    plan.cxx_args = {"-fPIC"};
    return plan;
  }

  static int answer_of(const BuiltLibrary& library) {
    std::string error;
    void* handle = library.image.open(error);
    if (!handle) return -1;
    const auto function = reinterpret_cast<int (*)()>(dlsym(handle, "answer"));
    const int answer = function();
    dlclose(handle);
    return answer;
  }
  // The victim asks for the op: 42 it must get, however.
  int load(const fs::path& cache, mode_t mask, std::string* said = nullptr) const {
    const fs::path words = marks() / "words";
    const int result = as_user(user(), mask, [&] {
      const int log = open(words.c_str(), O_CREAT | O_TRUNC | O_WRONLY, 0666);
      dup2(log, STDERR_FILENO);
      setenv("ANYACCEL_CACHE_DIR", cache.c_str(), 1);
      return answer_of(BuildCache(cache / "ops").find_or_build(plan()));
    });
    if (said) *said = test::read_text(words);
    if (result != 42) ADD_FAILURE() << test::read_text(words);
    fs::remove(words);
    return result;
  }

  // An entry as this cache would write it, for the attacker's library: the victim's own one, made elsewhere, with another hash.
  std::string planted_entry(std::string& name) const {
    const fs::path own = folder("own-" + std::to_string(getpid()), 0, 0755);
    const BuiltLibrary made = BuildCache(own / "ops").find_or_build(plan());
    for (const auto& file : fs::directory_iterator(own / "ops/answer")) {
      if (file.path().extension() != ".entry") continue;
      name = file.path().filename().string();
      std::string text = test::read_text(file.path());
      const auto replace = [&text](const std::string& key, const std::string& value) {
        const size_t begin = text.find("\n" + key + " ") + key.size() + 2;
        text.replace(begin, text.find('\n', begin) - begin, value);
      };
      replace("library", "evil.so");
      replace("hash", *file_hash(evil.string()));
      fs::remove_all(own);
      return text;
    }
    ADD_FAILURE() << "no entry was made";
    return {};
  }

  // Puts the planted entry and library into a folder as the attacker; whether that was possible.
  bool plant(const fs::path& cache, const std::string& name, const std::string& text) const {
    return as_user(attacker, 0, [&] {
             std::error_code error;
             fs::create_directories(cache / "ops/answer", error);
             fs::remove(cache / "ops/answer" / name, error);
             std::ofstream entry(cache / "ops/answer" / name);
             entry << text;
             entry.flush();
             fs::copy_file(evil, cache / "ops/answer/evil.so", fs::copy_options::overwrite_existing, error);
             return entry && !error ? 0 : 1;
           }) == 0;
  }

  TemporaryFolder place;
  fs::path source;
  fs::path evil;
};

INSTANTIATE_TEST_SUITE_P(Of, CacheAttack, ::testing::Values(Parties{0, "root"}, Parties{victim, "user"}),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_P(CacheAttack, PlantedLibrariesWouldLoadIfTheyWereOnesOwn) {
  std::string name;
  const std::string text = planted_entry(name);
  const fs::path cache = folder("cache", user(), 0755);
  for (const char* part : {"ops", "ops/answer"}) folder("cache/" + std::string(part), user(), 0755);
  std::ofstream(cache / "ops/answer" / name) << text;
  fs::copy_file(evil, cache / "ops/answer/evil.so");
  ASSERT_EQ(chown((cache / "ops/answer" / name).c_str(), user(), user()), 0);
  ASSERT_EQ(chown((cache / "ops/answer/evil.so").c_str(), user(), user()), 0);
  EXPECT_EQ(
      as_user(user(), 022, [&] { return answer_of(BuildCache(cache / "ops").find_or_build(plan())) == 666 ? 0 : 1; }),
      0);
  EXPECT_TRUE(evil_ran()) << "the attack of the other tests is none";
}

TEST_P(CacheAttack, WorldWritableCache) {
  std::string name, said;
  const std::string text = planted_entry(name);
  const fs::path cache = folder("cache", user(), 0777);
  ASSERT_TRUE(plant(cache, name, text));
  EXPECT_EQ(load(cache, 0, &said), 42);
  EXPECT_FALSE(evil_ran());
  EXPECT_NE(said.find("nothing is loaded from or kept in the cache folder " + cache.string() + ", because " +
                      cache.string() + " can be written by everybody (mode 777)"),
            std::string::npos)
      << said;
  EXPECT_NE(said.find("Cure: chmod go-w " + cache.string()), std::string::npos) << said;
}

// The victim makes the cache itself: nobody else may write what it makes, whatever the umask.
TEST_P(CacheAttack, WhatTheCacheMakesBelongsToItsUserAlone) {
  for (const mode_t mask : {0000, 0002}) {
    const fs::path home = folder("home" + std::to_string(mask), user(), 0755);
    const fs::path cache = home / "cache";
    EXPECT_EQ(load(cache, mask), 42);
    int seen = 0;
    for (const auto& entry : fs::recursive_directory_iterator(home)) {
      struct stat info {};
      ASSERT_EQ(lstat(entry.path().c_str(), &info), 0);
      EXPECT_EQ(info.st_mode & (S_IWGRP | S_IWOTH), 0u) << entry.path();
      seen += entry.is_regular_file();
    }
    EXPECT_EQ(seen, 3) << "an entry, a library, a lock";
    std::string name;
    EXPECT_FALSE(plant(cache, name = "x.entry", "x"));
  }
}

TEST_P(CacheAttack, GroupWritableCache) {
  std::string name, said;
  const std::string text = planted_entry(name);
  const fs::path cache = folder("cache", user(), 0775, shared_group);
  ASSERT_TRUE(plant(cache, name, text));
  EXPECT_EQ(load(cache, 002, &said), 42);
  EXPECT_FALSE(evil_ran());
  EXPECT_NE(said.find("can be written by its group (mode 775)"), std::string::npos) << said;
}

// An access list that lets one more user write shows in the group's bits.
TEST_P(CacheAttack, AccessListCache) {
  std::string name;
  const std::string text = planted_entry(name);
  const fs::path cache = folder("cache", user(), 0755);
  struct [[gnu::packed]] {
    uint32_t version = 2;
    struct {
      uint16_t tag, permissions;
      uint32_t id;
    } entry[5] = {{1, 7, ~0u},
                  {2, 7, attacker},
                  {4, 5, ~0u},
                  {0x10, 7, ~0u},
                  {0x20, 5, ~0u}};  // owner, user, group, mask, others
  } list;
  if (setxattr(cache.c_str(), "system.posix_acl_access", &list, sizeof(list), 0) != 0)
    GTEST_SKIP() << "this file system has no access lists";
  ASSERT_TRUE(plant(cache, name, text));
  EXPECT_EQ(load(cache, 022), 42);
  EXPECT_FALSE(evil_ran());
}

TEST_P(CacheAttack, ForeignOwner) {
  std::string name, said;
  const std::string text = planted_entry(name);
  const fs::path cache = folder("cache", attacker, 0755);
  ASSERT_TRUE(plant(cache, name, text));
  // With files that are the victim's own or root's, so that only the folder tells.
  for (const auto& file : fs::directory_iterator(cache / "ops/answer"))
    ASSERT_EQ(chown(file.path().c_str(), user(), 0), 0);
  EXPECT_EQ(load(cache, 022, &said), 42);
  EXPECT_FALSE(evil_ran());
  EXPECT_NE(said.find(cache.string() + " belongs to user " + std::to_string(attacker)), std::string::npos) << said;
}

TEST_P(CacheAttack, ForeignFilesInACacheThatWasOpenOnce) {
  std::string name;
  const std::string text = planted_entry(name);
  const fs::path cache = folder("cache", user(), 0777);
  ASSERT_TRUE(plant(cache, name, text));
  for (const char* part : {"", "ops", "ops/answer"}) {
    ASSERT_EQ(chown((cache / part).c_str(), user(), user()), 0);
    ASSERT_EQ(chmod((cache / part).c_str(), 0755), 0);
  }
  EXPECT_EQ(load(cache, 022), 42);
  EXPECT_FALSE(evil_ran());
}

// As an older version left them with umask 000; the folders were mended since.
TEST_P(CacheAttack, FilesThatOthersCanWrite) {
  for (const bool folders_too : {true, false}) {
    const fs::path cache = folder(folders_too ? "open" : "mended", user(), 0755);
    ASSERT_EQ(load(cache, 022), 42);
    for (const auto& file : fs::recursive_directory_iterator(cache)) {
      if (folders_too || !file.is_directory()) chmod(file.path().c_str(), 0777);
    }
    // Overwritten in place, so that they stay the victim's.
    ASSERT_EQ(as_user(attacker, 0,
                      [&] {
                        for (const auto& file : fs::directory_iterator(cache / "ops/answer")) {
                          std::string text = test::read_text(file.path());
                          if (file.path().extension() == ".entry") {
                            const size_t begin = text.find("\nhash ") + 6;
                            text.replace(begin, 32, *file_hash(evil.string()));
                          }
                          if (file.path().extension() == ".so") text = test::read_text(evil);
                          std::ofstream stream(file.path(), std::ios::binary);
                          if (!(stream << text).flush()) return 1;
                        }
                        return 0;
                      }),
              0);
    EXPECT_EQ(load(cache, 022), 42);
    EXPECT_FALSE(evil_ran());
  }
}

TEST_P(CacheAttack, WritableParent) {
  std::string name, said;
  const std::string text = planted_entry(name);
  const fs::path parent = folder("parent", user(), 0777);
  const fs::path cache = parent / "cache";
  EXPECT_EQ(load(cache, 022, &said), 42);
  EXPECT_NE(said.find(parent.string() + " can be written by everybody"), std::string::npos) << said;
  ASSERT_TRUE(plant(cache, name, text));
  EXPECT_EQ(load(cache, 022), 42);
  EXPECT_FALSE(evil_ran());
}

// In a folder with the sticky bit what is ones own cannot be renamed by others, so a cache there is used.
TEST_P(CacheAttack, StickyParent) {
  const fs::path parent = folder("parent", 0, 01777);
  const fs::path cache = parent / "cache";
  EXPECT_EQ(load(cache, 022), 42);
  EXPECT_TRUE(fs::exists(cache / "ops/answer")) << "not kept";
  EXPECT_NE(as_user(attacker, 0, [&] { return std::rename(cache.c_str(), (parent / "away").c_str()) == 0 ? 0 : 1; }),
            0);
  // The name may be taken already.
  const fs::path taken = parent / "taken";
  std::string name, said;
  const std::string text = planted_entry(name);
  ASSERT_TRUE(plant(taken, name, text));
  EXPECT_EQ(load(taken, 022, &said), 42);
  EXPECT_FALSE(evil_ran());
  EXPECT_NE(said.find("belongs to user " + std::to_string(attacker)), std::string::npos) << said;
}

TEST_P(CacheAttack, LinkOfAnotherUser) {
  std::string said;
  const fs::path own = folder("own", user(), 0755);
  const fs::path parent = folder("parent", 0, 01777);
  const fs::path cache = parent / "cache";
  ASSERT_EQ(as_user(attacker, 0, [&] { return symlink(own.c_str(), cache.c_str()); }), 0);
  EXPECT_EQ(load(cache, 022, &said), 42);
  EXPECT_NE(said.find("is a symbolic link that belongs to user"), std::string::npos) << said;
  EXPECT_FALSE(fs::exists(own / "ops"));
  // Ones own link is followed.
  const fs::path mine = parent / "mine";
  ASSERT_EQ(as_user(user(), 0, [&] { return symlink("../own", mine.c_str()); }), 0);
  EXPECT_EQ(load(mine, 022), 42);
  EXPECT_TRUE(fs::exists(own / "ops/answer"));
}

TEST_P(CacheAttack, SwappedLinksInAThousandLoads) {
  // The right one, which the attacker may read, and the attacker's: the same entry, by a link, and another library.
  const fs::path good = folder("good", user(), 0755);
  ASSERT_EQ(load(good, 022), 42);
  fs::path library, entry;
  for (const auto& file : fs::directory_iterator(good / "ops/answer")) {
    if (file.path().extension() == ".so") library = file.path();
    if (file.path().extension() == ".entry") entry = file.path();
  }
  const fs::path bad = folder("bad", attacker, 0755);
  const fs::path theirs = folder("theirs", attacker, 0755);
  ASSERT_EQ(as_user(attacker, 022,
                    [&] {
                      for (const fs::path& cache : {bad, theirs / "cache"}) {
                        fs::create_directories(cache / "ops/answer");
                        fs::create_symlink(entry, cache / "ops/answer" / entry.filename());
                      }
                      fs::copy_file(evil, bad / "ops/answer" / library.filename());
                      return 0;
                    }),
            0);
  // The last part of the way to the cache is swapped; a folder in the middle is; the library itself is.
  const fs::path swapped_library = theirs / "cache/ops/answer" / library.filename();
  struct Way {
    const char* name;
    fs::path cache, swapped, one, other;
  };
  const Way ways[] = {{"cache", theirs / "link", theirs / "link", good, bad},
                      {"folder", theirs / "up/ops/..", theirs / "up", good, bad},
                      {"library", theirs / "cache", swapped_library, library, evil}};
  for (const Way& way : ways) {
    const fs::path count = marks() / (std::string("count-") + way.name);
    const Swapper swapper(way.swapped, way.one, way.other, count);
    const uint64_t before = swapper.swaps();
    const int wrong = as_user(user(), 022, [&] {
      set_log_level(LogLevel::off);
      int found = 0;
      for (int i = 0; i < 1000 || (i < 10'000'000 && swapper.swaps() < before + 200); ++i) {
        if (const auto library = BuildCache(way.cache / "ops").find(plan())) found += answer_of(*library) != 42;
      }
      return std::min(found, 90);
    });
    EXPECT_EQ(wrong, 0) << way.name;
    EXPECT_GE(swapper.swaps(), before + 200) << way.name << ": nothing was swapped meanwhile";
    EXPECT_FALSE(evil_ran()) << way.name;
  }
}

TEST_P(CacheAttack, AnInodeThatWasOpenForWritingIsNotMapped) {
  const fs::path cache = folder("cache", user(), 0755);
  ASSERT_EQ(load(cache, 022), 42);
  std::string library;
  for (const auto& file : fs::directory_iterator(cache / "ops/answer")) {
    if (file.path().extension() == ".so") library = file.path().string();
  }
  // An older version left it so, and the attacker has it open since then.
  const int file = open(library.c_str(), O_RDWR | O_CLOEXEC);
  ASSERT_GE(file, 0);
  const int result = as_user(user(), 022, [&] {
    const auto found = BuildCache(cache / "ops").find(plan());
    if (!found) return 1;
    const std::string text = test::read_text(evil);
    if (pwrite(file, text.data(), text.size(), 0) != static_cast<ssize_t>(text.size())) return 2;
    if (answer_of(*found) != 42) return 3;
    return BuildCache(cache / "ops").find(plan()) ? 4 : 0;  // the hash is wrong now
  });
  close(file);
  EXPECT_EQ(result, 0);
  EXPECT_FALSE(evil_ran());
}

TEST_P(CacheAttack, LocksInTheWay) {
  const fs::path cache = folder("cache", user(), 0755);
  ASSERT_EQ(load(cache, 022), 42);
  fs::path lock, entry;
  for (const auto& file : fs::directory_iterator(cache / "ops/answer")) {
    if (file.path().extension() == ".lock") lock = file.path();
    if (file.path().extension() == ".entry") entry = file.path();
  }
  struct stat info {};
  ASSERT_EQ(stat(lock.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u) << "others could hold it";
  const fs::path precious = place.write("precious", "keep");
  const auto begin = std::chrono::steady_clock::now();
  // One that was readable once is no longer; a link is not followed; a pipe is not waited for.
  for (const int kind : {0, 1, 2}) {
    fs::remove(entry);
    if (kind > 0) fs::remove(lock);
    const int made = kind == 0   ? chmod(lock.c_str(), 0644)
                     : kind == 1 ? symlink(precious.c_str(), lock.c_str())
                                 : mkfifo(lock.c_str(), 0600);
    ASSERT_EQ(made, 0);
    EXPECT_EQ(load(cache, 022), 42) << kind;
    if (kind == 0) {
      ASSERT_EQ(stat(lock.c_str(), &info), 0);
      EXPECT_EQ(info.st_mode & 0777, 0600u);
    }
  }
  EXPECT_EQ(test::read_text(precious), "keep");
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::minutes(4)) << "a lock was waited for";
}

TEST_P(CacheAttack, PlaceForTemporaryFiles) {
  // A cache that cannot be used and a TMPDIR in which the attacker could swap what the compiler wrote.
  const fs::path temporary = folder("temporary", attacker, 0777);
  const Variable place("TMPDIR", temporary.string());
  std::string said;
  EXPECT_EQ(load("/proc/none", 022, &said), 42);
  EXPECT_NE(said.find("TMPDIR=" + temporary.string() + " is not used"), std::string::npos) << said;
  EXPECT_NE(said.find("so that another user could replace what is compiled there; using /tmp"), std::string::npos)
      << said;
  EXPECT_TRUE(fs::is_empty(temporary));
}

}  // namespace
}  // namespace anyaccel::ops
