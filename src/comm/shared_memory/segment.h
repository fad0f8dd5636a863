// Creates and maps memory that processes share: anonymous files (memfd), which other processes cannot open, which never
// have a name in /dev/shm, and which are freed with the last process that has them, however it ends.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "comm/store/socket.h"

namespace anyaccel::comm::shm {

// A mapped file; unmapped with the last owner.
class Mapping {
 public:
  Mapping(void* data, size_t bytes) noexcept : data_(static_cast<char*>(data)), bytes_(bytes) {}
  ~Mapping();
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  char* data() const noexcept { return data_; }
  size_t bytes() const noexcept { return bytes_; }

 private:
  char* data_;
  size_t bytes_;
};

struct Segment {
  FileDescriptor fd;
  std::shared_ptr<Mapping> mapping;
};

// Creates a segment of `bytes` zeros (rounded up to pages) that is sealed: neither side can change the length, so that
// no access can fail later. With `reserve` the memory is allocated at once (on the NUMA node of the calling thread),
// otherwise page by page when it is first accessed. Throws OutOfMemoryError.
Segment create_segment(const char* name, size_t bytes, bool reserve);

// Maps a segment of another member. CommunicationError, naming `owner`, unless it is sealed and `bytes` long. Ranks
// that are threads of one process get one mapping.
std::shared_ptr<Mapping> map_segment(int fd, size_t bytes, const std::string& owner);

}  // namespace anyaccel::comm::shm
