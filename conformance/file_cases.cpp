// Cases of the extension "files".
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string>

#include "anyaccel/abi/files.h"
#include "conformance/context.h"

namespace anyaccel::conformance {
namespace file_group {
namespace {

using Files = abi::Calls<aa_files_table>;

constexpr size_t block = 4096;

aa_files_info info_of(const Context& c, const Files& table) {
  auto info = abi::sized<aa_files_info>();
  c.ok(table.info(c.device, &info), "info");
  c.expect(info.struct_size == sizeof(info), "info changed struct_size");
  c.expect(info.usable == 0 || info.usable == 1, "info wrote " + std::to_string(info.usable) + " to usable");
  c.expect(info.text[0] != '\0' && memchr(info.text, '\0', sizeof(info.text)) != nullptr, "info gave no text");
  return info;
}

Files usable(const Context& c) {
  const Files table = c.extension<aa_files_table>(AA_FILES_EXTENSION, AA_FILES_VERSION);
  const aa_files_info info = info_of(c, table);
  if (!info.usable) c.unavailable(info.text);
  return table;
}

// A file without a name, open with O_DIRECT, and again through the page cache.
class TemporaryFile {
 public:
  explicit TemporaryFile(const Context& c, int access = O_RDWR) {
    const std::string folder = std::filesystem::temp_directory_path().string();
    plain_ = ::open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (plain_ >= 0) {
      direct_ = ::open(("/proc/self/fd/" + std::to_string(plain_)).c_str(), access | O_DIRECT | O_CLOEXEC);
    }
    if (direct_ < 0) {
      if (plain_ >= 0) ::close(plain_);
      c.unavailable(folder + " has no files with direct transfers (O_DIRECT): " + std::strerror(errno) +
                    "; set TMPDIR to a folder on a disk");
    }
  }
  ~TemporaryFile() {
    ::close(direct_);
    ::close(plain_);
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;

  int descriptor() const noexcept { return direct_; }
  void fill(const Context& c, const Bytes& bytes) const {
    const ssize_t put = ::pwrite(plain_, bytes.data(), bytes.size(), 0);
    c.expect(put == static_cast<ssize_t>(bytes.size()) && ::fsync(plain_) == 0, "the suite could not write its file");
  }
  Bytes content() const {
    Bytes bytes(static_cast<size_t>(::lseek(plain_, 0, SEEK_END)));
    const ssize_t got = ::pread(plain_, bytes.data(), bytes.size(), 0);
    bytes.resize(static_cast<size_t>(std::max<ssize_t>(got, 0)));
    return bytes;
  }

 private:
  int plain_ = -1, direct_ = -1;
};

class Open {
 public:
  Open(const Context& c, const Files& table, int descriptor) : c_(c), table_(table) {
    auto params = abi::sized<aa_file_params>();
    params.descriptor = descriptor;
    aa_status* status = table.file_open(c.device, &params, &file_);
    if (status && c.host.status_code(&c.host, status) == AA_UNIMPLEMENTED) {
      const std::string why = c.host.status_message(&c.host, status);
      c.drop(status);
      c.unavailable("the driver does not support files in the folder for temporary ones: " + why);
    }
    c.ok(status, "file_open");
  }
  ~Open() { c_.drop(table_.file_close(file_)); }
  Open(const Open&) = delete;
  Open& operator=(const Open&) = delete;
  operator aa_file*() const noexcept { return file_; }

 private:
  const Context& c_;
  const Files& table_;
  aa_file* file_ = nullptr;
};

aa_file_transfer transfer_of(void* pointer, size_t size, int64_t offset) {
  auto what = abi::sized<aa_file_transfer>();
  what.pointer = pointer;
  what.size = size;
  what.file_offset = offset;
  return what;
}

aa_file_memory memory_of(void* pointer, size_t size) {
  auto what = abi::sized<aa_file_memory>();
  what.pointer = pointer;
  what.size = size;
  return what;
}

size_t read(const Context& c, const Files& table, aa_file* file, void* pointer, size_t size, int64_t offset) {
  const aa_file_transfer what = transfer_of(pointer, size, offset);
  size_t done = size + 1;
  c.ok(table.read(file, &what, &done), "read of " + std::to_string(size) + " bytes at " + std::to_string(offset));
  c.expect(done <= size, "read wrote " + std::to_string(done) + " as the number of bytes");
  return done;
}

void info_is_sane(const Context& c) {
  const Files table = c.extension<aa_files_table>(AA_FILES_EXTENSION, AA_FILES_VERSION);
  const aa_files_info info = info_of(c, table), again = info_of(c, table);
  c.expect(std::memcmp(&info, &again, sizeof(info)) == 0, "info says something else the second time");
  if (info.usable) return;
  auto params = abi::sized<aa_file_params>();
  aa_file* file = nullptr;
  c.error(table.file_open(c.device, &params, &file), {AA_UNAVAILABLE}, "file_open, although no file can be opened");
}

// Registered memory and other memory, whole blocks and not.
void holds_what_is_transferred(const Context& c) {
  const Files table = usable(c);
  const TemporaryFile disk(c);
  const Open file(c, table, disk.descriptor());
  constexpr size_t size = 5 * block;
  Memory source(c, size), target(c, size);
  const Bytes values = pattern(size, 1);
  for (const bool registered : {false, true}) {
    if (registered) {
      for (Memory* memory : {&source, &target}) {
        const aa_file_memory what = memory_of(memory->data(), size);
        c.ok(table.memory_register(c.device, &what), "memory_register");
      }
    }
    c.upload(source.data(), values.data(), size);
    disk.fill(c, pattern(size, 2));
    const aa_file_transfer what = transfer_of(source.data() + block, 3 * block, block);
    size_t done = 0;
    c.ok(table.write(file, &what, &done), "write");
    c.expect(done == 3 * block, "write wrote " + std::to_string(done) + " of " + std::to_string(3 * block) + " bytes");
    Bytes expected = pattern(size, 2);
    std::copy(values.begin() + block, values.begin() + 4 * block, expected.begin() + block);
    expect_equal(disk.content(), expected, "the file after a write");

    for (const auto& [offset, from, bytes] :
         {std::tuple{size_t{0}, int64_t{0}, size}, std::tuple{size_t{256}, int64_t{block}, 2 * block},
          std::tuple{size_t{777}, int64_t{4099}, size_t{5001}}}) {
      const Bytes before = pattern(size, 3);
      c.upload(target.data(), before.data(), size);
      const size_t got = read(c, table, file, target.data() + offset, bytes, from);
      c.expect(got == bytes, "read wrote " + std::to_string(got) + " of " + std::to_string(bytes) + " bytes");
      Bytes wanted = before;
      std::copy_n(expected.begin() + from, bytes, wanted.begin() + static_cast<ptrdiff_t>(offset));
      expect_equal(c.download(target.data(), size), wanted, "memory after a read");
    }
  }
  for (Memory* memory : {&source, &target}) {
    c.ok(table.memory_unregister(c.device, memory->data()), "memory_unregister");
  }
}

void reads_end_with_the_file(const Context& c) {
  const Files table = usable(c);
  const TemporaryFile disk(c);
  disk.fill(c, pattern(block + 100, 1));
  const Open file(c, table, disk.descriptor());
  Memory target(c, 2 * block);
  c.expect(read(c, table, file, target.data(), 2 * block, 0) == block + 100, "read went on behind the end of the file");
  c.expect(read(c, table, file, target.data(), block, block) == 100, "read went on behind the end of the file");
  c.expect(read(c, table, file, target.data(), block, 2 * block) == 0, "read found something behind the file");
}

void memory_is_registered_once(const Context& c) {
  const Files table = usable(c);
  Memory memory(c, 4 * block);
  const aa_file_memory all = memory_of(memory.data(), 4 * block), part = memory_of(memory.data() + block, block);
  for (int round = 0; round < 2; ++round) {
    c.ok(table.memory_register(c.device, &all), "memory_register");
    c.error(table.memory_register(c.device, &all), {AA_ALREADY_EXISTS}, "memory_register of the same memory again");
    c.error(table.memory_register(c.device, &part), {AA_ALREADY_EXISTS}, "memory_register of a part of that memory");
    c.ok(table.memory_unregister(c.device, memory.data()), "memory_unregister");
    c.error(table.memory_unregister(c.device, memory.data()), {AA_NOT_FOUND}, "a second memory_unregister");
  }
}

void refuses_what_is_wrong(const Context& c) {
  const Files table = usable(c);
  const TemporaryFile disk(c, O_RDONLY);
  disk.fill(c, pattern(block, 1));
  Memory memory(c, block);
  aa_file_memory registered = memory_of(memory.data(), block);
  registered.flags = 1u << 31;
  c.error(table.memory_register(c.device, &registered), {AA_UNIMPLEMENTED}, "memory_register with an unknown flag");
  auto params = abi::sized<aa_file_params>();
  params.descriptor = disk.descriptor();
  params.flags = 1u << 31;
  aa_file* none = nullptr;
  c.error(table.file_open(c.device, &params, &none), {AA_UNIMPLEMENTED}, "file_open with an unknown flag");

  const Open file(c, table, disk.descriptor());
  size_t done = 12345;
  aa_file_transfer what = transfer_of(memory.data(), block, -static_cast<int64_t>(block));
  c.error(table.read(file, &what, &done), {AA_INVALID_ARGUMENT}, "read at a negative offset");
  what = transfer_of(memory.data(), block, 0);
  what.flags = 1u << 31;
  c.error(table.read(file, &what, &done), {AA_UNIMPLEMENTED}, "read with an unknown flag");
  what.flags = 0;
  c.any_error(table.write(file, &what, &done), "write to a file that is open for reading");
  c.expect(done == 12345, "a call failed but wrote a number of bytes");
  expect_equal(disk.content(), pattern(block, 1), "the file after writes that were refused");
  c.expect(read(c, table, file, memory.data(), block, 0) == block, "read after refused calls");
}

constexpr Case cases[] = {
    {"files", "info_is_sane", info_is_sane},
    {"files", "holds_what_is_transferred", holds_what_is_transferred},
    {"files", "reads_end_with_the_file", reads_end_with_the_file},
    {"files", "memory_is_registered_once", memory_is_registered_once},
    {"files", "refuses_what_is_wrong", refuses_what_is_wrong},
};

}  // namespace
}  // namespace file_group

std::span<const Case> file_cases() { return file_group::cases; }

}  // namespace anyaccel::conformance
