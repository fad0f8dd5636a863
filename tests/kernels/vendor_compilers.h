// Compiling the kernels of this project with a vendor's compiler, for the tests of NVRTC and hipRTC.
#pragma once

#include <elf.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "accelerators/cuda/compile/rtc.h"
#include "anyaccel/file_output.h"
#include "base/hash.h"
#include "kernels/kernel_files.h"

namespace anyaccel {

// Counts copies to shared memory (LDGSTS) whose address has a uniform register, in an image for compute capability 9.0; 0 for other
// images. ptxas of CUDA 13.0 has made one in each of three kernels whose descriptor was wrong: an H200 refused them as illegal
// instructions. Kernels for 8.0 and 10.0 have such copies too; whether theirs are right is not known here.
inline int copies_with_uniform_addresses(const std::string& image) {
  constexpr uint32_t opcode_mask = 0xfff, opcode = 0xdae;  // in the lowest bits of an instruction
  Elf64_Ehdr header;
  if (image.size() < sizeof(header)) return 0;
  std::memcpy(&header, image.data(), sizeof(header));
  if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_machine != EM_CUDA) return 0;
  if ((header.e_flags & 0xff) != 90 && (header.e_flags >> 8 & 0xff) != 90)
    return 0;  // as older and newer compilers write it
  int count = 0;
  for (size_t i = 0; i < header.e_shnum; ++i) {
    Elf64_Shdr section;
    const size_t at = header.e_shoff + i * header.e_shentsize;
    if (at + sizeof(section) > image.size()) break;
    std::memcpy(&section, image.data() + at, sizeof(section));
    if ((section.sh_flags & SHF_EXECINSTR) == 0 || section.sh_offset + section.sh_size > image.size()) continue;
    for (size_t instruction = 0; instruction + 16 <= section.sh_size; instruction += 16) {
      uint32_t word = 0;
      std::memcpy(&word, image.data() + section.sh_offset + instruction, sizeof(word));
      count += (word & opcode_mask) == opcode ? 1 : 0;
    }
  }
  return count;
}

// What compiled before, so that a test compiles only what has changed since: all of it takes seven minutes of a core. The same compiler
// does the same with the same source and options, so that a hash of them stands for the result. Where ANYACCEL_WRITE_RESOURCES is
// set, it is written anew, with the hashes of what there is now.
class CompileRecord {
 public:
  static CompileRecord& instance() {
    static CompileRecord record;
    return record;
  }
  static std::string hash_of(const cuda::RuntimeCompiler& compiler, const std::string& name, const std::string& source,
                             const std::vector<std::string>& options, cuda::RuntimeCompiler::Image image) {
    Hash hash;
    hash.add(compiler.identity()).add(name).add(source);
    if (image == cuda::RuntimeCompiler::Image::ptx) hash.add("PTX");
    for (const std::string& option : options) hash.add(option);
    return hash.text().substr(0, 16);
  }
  static bool is_written() { return std::getenv("ANYACCEL_WRITE_RESOURCES") != nullptr; }

  bool has(const cuda::RuntimeCompiler& compiler, const std::string& hash) {
    const std::string& identity = compiler.identity();
    const std::string word = identity.substr(0, identity.find(' '));
    if (!known_.contains(word)) {
      std::ifstream stream(file_of(word));
      for (std::string line; std::getline(stream, line);) known_[word].insert(line);
    }
    if (!known_[word].contains(hash)) return false;
    add(compiler, hash);
    return true;
  }
  void add(const cuda::RuntimeCompiler& compiler, const std::string& hash) {
    if (is_written()) compiled_[compiler.identity()].insert(hash);
  }
  void write() const {
    for (const auto& [identity, hashes] : compiled_) {
      std::ofstream stream(file_of(identity.substr(0, identity.find(' '))));
      stream << "# Hashes of portable kernels and options that this compiler has compiled: see "
                "tests/kernels/vendor_compilers.h.\n# "
             << identity << "\n";
      for (const std::string& hash : hashes) stream << hash << "\n";
      ASSERT_TRUE(stream.good());
    }
  }

 private:
  static std::filesystem::path file_of(const std::string& compiler) {
    return std::filesystem::path(ANYACCEL_SOURCE_DIR) / "tests/kernels" / ("compiled_" + compiler + ".txt");
  }
  std::map<std::string, std::set<std::string>> known_;     // by the first word of the identity
  std::map<std::string, std::set<std::string>> compiled_;  // by the identity
};

class WritesCompileRecord : public ::testing::Environment {
 public:
  void TearDown() override {
    const ::testing::UnitTest& all = *::testing::UnitTest::GetInstance();
    if (CompileRecord::is_written() && all.Passed() && all.test_to_run_count() == all.total_test_count()) {
      CompileRecord::instance().write();
    }
  }
};
inline const ::testing::Environment* const writes_compile_record =
    ::testing::AddGlobalTestEnvironment(new WritesCompileRecord);

// Compiles, and returns the compiler's log. An error is a failure of the test that names options and says what is wrong.
// The log of a success is kept in the build folder, if there is one: all of them take minutes, and the same compiler logs the
// same for the same source and options.
inline std::string compile_once(const cuda::RuntimeCompiler& compiler, const std::string& name,
                                const std::string& source, const std::vector<std::string>& options,
                                cuda::RuntimeCompiler::Image image = cuda::RuntimeCompiler::Image::native) {
  const std::string hash = CompileRecord::hash_of(compiler, name, source, options, image);
  const std::filesystem::path kept = std::filesystem::path(ANYACCEL_BINARY_DIR) / "compiler_logs" / hash;
  std::error_code absent;
  if (std::filesystem::exists(kept, absent)) return read_text(kept);
  const abi::CompileOutput output = compiler.compile(name, source, options, image);
  std::string shown;
  for (const std::string& option : options) shown += " " + option;
  EXPECT_TRUE(output.succeeded) << name << shown << "\n" << output.log;
  EXPECT_EQ(output.image.empty(), !output.succeeded) << name << shown;
  const int uniform = copies_with_uniform_addresses({output.image.begin(), output.image.end()});
  EXPECT_EQ(uniform, 0) << name << shown
                        << ": a copy to shared memory has a uniform register in its address, which GPUs have "
                        << "refused (copies_with_uniform_addresses()); hide a part of the address behind aa_opaque()";
  if (output.succeeded && uniform == 0 && !output.image.empty() &&
      std::filesystem::is_directory(ANYACCEL_BINARY_DIR, absent)) {
    std::filesystem::create_directory(kept.parent_path(), absent);
    write_output_file(kept, output.log);
  }
  return output.log;
}

// The same for what is only to be compiled, and not at all where the record has it.
inline void compile_unless_recorded(const cuda::RuntimeCompiler& compiler, const std::string& name,
                                    const std::string& source, const std::vector<std::string>& options,
                                    cuda::RuntimeCompiler::Image image = cuda::RuntimeCompiler::Image::native) {
  const std::string hash = CompileRecord::hash_of(compiler, name, source, options, image);
  if (CompileRecord::instance().has(compiler, hash)) return;
  compile_once(compiler, name, source, options, image);
  CompileRecord::instance().add(compiler, hash);
}

}  // namespace anyaccel
