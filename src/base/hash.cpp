// Hashes contents, to detect differences.
#include "base/hash.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <vector>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace anyaccel {
namespace {

std::string digits(const XXH128_hash_t& hash) {
  constexpr char digit[] = "0123456789abcdef";
  std::string text;
  for (const uint64_t half : {hash.high64, hash.low64}) {
    for (int shift = 60; shift >= 0; shift -= 4) text += digit[half >> shift & 15];
  }
  return text;
}

}  // namespace

struct Hash::State {
  XXH3_state_t state;
};

Hash::Hash() : state_(std::make_unique<State>()) { XXH3_128bits_reset(&state_->state); }
Hash::~Hash() = default;

Hash& Hash::add(std::string_view piece) {
  const uint64_t length = piece.size();
  XXH3_128bits_update(&state_->state, &length, sizeof(length));
  XXH3_128bits_update(&state_->state, piece.data(), piece.size());
  return *this;
}

std::string Hash::text() const { return digits(XXH3_128bits_digest(&state_->state)); }

struct FileHash::State {
  XXH3_state_t state;
};

FileHash::FileHash() : state_(std::make_unique<State>()) { XXH3_128bits_reset(&state_->state); }
FileHash::~FileHash() = default;

void FileHash::add(const char* data, size_t size) { XXH3_128bits_update(&state_->state, data, size); }

std::string FileHash::text() const { return digits(XXH3_128bits_digest(&state_->state)); }

std::optional<std::string> file_hash(const std::string& file) {
  const int descriptor = open(file.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) return {};
  FileHash hash;
  std::vector<char> buffer(1 << 16);
  int error = 0;
  for (;;) {
    const ssize_t got = read(descriptor, buffer.data(), buffer.size());
    if (got > 0) {
      hash.add(buffer.data(), static_cast<size_t>(got));
    } else if (got == 0) {
      break;
    } else if (errno != EINTR) {
      error = errno;
      break;
    }
  }
  close(descriptor);
  if (error != 0) {
    errno = error;
    return {};
  }
  return hash.text();
}

}  // namespace anyaccel
