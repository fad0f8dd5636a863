// Loads a shared library from a sealed copy in memory, whose hash was checked.
#include "base/files/library_image.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <vector>

#include "anyaccel/error.h"
#include "base/files/files.h"
#include "base/hash.h"

namespace anyaccel {
namespace {

std::string last_error() { return std::strerror(errno); }

bool write_all(int file, const char* data, size_t size) {
  while (size > 0) {
    const ssize_t written = write(file, data, size);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    data += written;
    size -= static_cast<size_t>(written);
  }
  return true;
}

// Creates a file without a name, for systems without memory files.
FileDescriptor unnamed_file() {
  const TemporaryFolder folder("op");
  return FileDescriptor(open(folder.file("library.so").c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0700));
}

// The descriptor's path in /proc, spelled differently each time in this process: dlopen() returns the earlier library
// for a path that it has seen, and descriptor numbers are reused.
std::string unique_name(int descriptor) {
  static std::atomic<unsigned> count{0};
  std::string name = "/proc/self/fd";
  for (unsigned left = count++; left > 0; left /= 2) name += left % 2 ? "/." : "//";
  return name + "/" + std::to_string(descriptor);
}

void* open_name(const std::string& name, std::string& error) {
  void* handle = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!handle) {
    error = dlerror();
    // The name has no meaning.
    if (error.starts_with(name + ": ")) error.erase(0, name.size() + 2);
  }
  return handle;
}

}  // namespace

std::optional<LibraryImage> LibraryImage::copy(int file, const std::string& name, std::string& reason) {
  LibraryImage image;
  image.file_ = FileDescriptor(memfd_create(name.substr(0, 200).c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING));
  const bool sealed = static_cast<bool>(image.file_);
  try {
    if (!sealed) image.file_ = unnamed_file();
  } catch (const UnavailableError& error) {
    reason = error.what();
    return {};
  }
  FileHash hash;
  std::vector<char> buffer(1 << 16);
  for (;;) {
    const ssize_t got = read(file, buffer.data(), buffer.size());
    if (got == 0) break;
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 || !write_all(image.file_.get(), buffer.data(), static_cast<size_t>(got))) {
      reason = last_error();
      return {};
    }
    hash.add(buffer.data(), static_cast<size_t>(got));
  }
  if (sealed && fcntl(image.file_.get(), F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    reason = last_error();
    return {};
  }
  image.hash_ = hash.text();
  return image;
}

void* LibraryImage::open(std::string& error) const {
  if (void* handle = open_name(unique_name(file_.get()), error)) return handle;
  try {
    const TemporaryFolder folder("op");
    const std::string name = folder.file("library.so");
    const FileDescriptor copy(::open(name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0700));
    std::vector<char> buffer(1 << 16);
    off_t done = 0;
    for (;;) {
      const ssize_t got = pread(file_.get(), buffer.data(), buffer.size(), done);
      if (got == 0) {
        void* const handle = open_name(name, error);
        struct statvfs system = {};
        if (!handle && statvfs(folder.path().c_str(), &system) == 0 && (system.f_flag & ST_NOEXEC)) {
          error += "; " + folder.path().parent_path().string() +
                   " is mounted with noexec: set TMPDIR to a folder of your own from which programs may be run";
        }
        return handle;
      }
      if (got < 0 && errno == EINTR) continue;
      if (got < 0 || !write_all(copy.get(), buffer.data(), static_cast<size_t>(got))) return nullptr;
      done += got;
    }
  } catch (const UnavailableError&) {
    return nullptr;  // `error` says why the first way failed
  }
}

}  // namespace anyaccel
