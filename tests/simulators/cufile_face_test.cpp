// The simulated cuFile through its raw functions: what it transfers, what it returns, and what it reports.
#include <fcntl.h>

#include <cerrno>
#include <thread>

#include "tests/simulators/library_process.h"

namespace cufile_face {
namespace {

using namespace sim_test;

struct Status {
  int error, cuda_error;
};
struct Description {
  int type = 1, padding = 0;
  union {
    int fd;
    void* handle = nullptr;
  };
  const void* operations = nullptr;
};

template <typename... Args>
int file(const char* name, Args... args) {
  return call<Status>("libcufile.so.0", name, args...).error;
}
const void* at(std::uint64_t pointer) { return reinterpret_cast<const void*>(pointer); }
long long read(void* handle, std::uint64_t base, std::size_t bytes, off_t from, off_t offset = 0) {
  return call<ssize_t>("libcufile.so.0", "cuFileRead", handle, reinterpret_cast<void*>(base), bytes, from, offset);
}
long long write(void* handle, std::uint64_t base, std::size_t bytes, off_t to, off_t offset = 0) {
  return call<ssize_t>("libcufile.so.0", "cuFileWrite", handle, at(base), bytes, to, offset);
}
void* open_handle(int fd, int expected = 0) {
  Description description;
  description.fd = fd;
  void* handle = nullptr;
  CHECK_EQUAL(expected, file("cuFileHandleRegister", &handle, &description));
  return handle;
}
void close_handle(void* handle) { call<void>("libcufile.so.0", "cuFileHandleDeregister", handle); }

class CuFileFace : public LibraryProcess {
 protected:
  int open_file(int flags = O_RDWR) const {
    const int fd = ::open(path_.c_str(), flags | O_CREAT, 0600);
    if (fd < 0) std::_Exit(91);
    return fd;
  }
  // Without O_DIRECT, which not every file system has, files can be registered in compatibility mode alone.
  const Variables compatible_{{"CUFILE_ALLOW_COMPAT_MODE", "true"}};
  const std::string path_ = folder_.file("data");
};

TEST_F(CuFileFace, TransfersAndReturnsBytes) {
  expect_clean(
      [&] {
        const Device device;
        void* stream = make_stream();
        std::vector<int> values(2048);
        for (int i = 0; i < 2048; ++i) values[static_cast<std::size_t>(i)] = i;
        const std::uint64_t from = upload(values, stream), to = upload(std::vector<int>(2048, -1), stream);
        const int fd = open_file();
        void* handle = open_handle(fd);
        OK(file("cuFileBufRegister", at(from), std::size_t{8192}, 0));
        CHECK_EQUAL(8192, write(handle, from, 8192, 0));
        CHECK_EQUAL(4096, write(handle, from, 4096, 8192, 4096));
        CHECK_EQUAL(1000, read(handle, to, 1000, 8192, 400));
        CHECK_EQUAL(12288 - 12000, read(handle, to + 4096, 4096, 12000));  // the file ends before
        CHECK_EQUAL(0, read(handle, to, 4096, 12288));
        const std::vector<int> data = download<int>(to, 2048, stream);
        CHECK_EQUAL(-1, data[99]);
        CHECK_EQUAL(1024, data[100]);
        CHECK_EQUAL(1024 + 249, data[349]);
        CHECK_EQUAL(-1, data[350]);
        CHECK_EQUAL(1024 + 952, data[1024]);
        OK(file("cuFileBufDeregister", at(from)));
        close_handle(handle);
        OK(::close(fd));
        release(from);
        release(to);
        destroy_stream(stream);
        device.close();
      },
      compatible_);
}

TEST_F(CuFileFace, ErrorsOfTheSystemAreInErrno) {
  expect_clean(
      [&] {
        const Device device;
        const std::uint64_t memory = allocate(4096);
        const int writable = open_file(O_WRONLY), readable = open_file(O_RDONLY);
        void *w = open_handle(writable), *r = open_handle(readable);
        errno = 0;
        CHECK_EQUAL(-1, read(w, memory, 4096, 0));
        CHECK_EQUAL(EBADF, errno);
        close_handle(w);
        close_handle(r);
        ::close(writable);
        ::close(readable);
        release(memory);
        device.close();
      },
      compatible_);
}

TEST_F(CuFileFace, ModesFollowTheVariables) {
  struct Properties {
    unsigned major, minor;
    std::size_t sizes[2];
    unsigned status, control, more[64];
  };
  const auto status = [](unsigned expected) {
    return [expected] {
      const Device device;
      Properties properties{};
      OK(file("cuFileDriverOpen"));
      OK(file("cuFileDriverGetProperties", &properties));
      CHECK_EQUAL(expected, properties.status >> 11 & 1);
      OK(file("cuFileDriverClose_v2"));
      device.close();
    };
  };
  expect_clean(status(1), {{"CUFILE_USE_PCIP2PDMA", "true"}});
  expect_clean(status(0), {{"CUFILE_USE_PCIP2PDMA", "true"}, {"CUFILE_FORCE_COMPAT_MODE", "true"}});
  if (::access("/proc/driver/nvidia-fs/version", F_OK) == 0) return;
  expect_clean(status(0));
  expect_clean(
      [] {
        const Device device;
        CHECK_EQUAL(5001, file("cuFileDriverOpen"));
        device.close();
      },
      {{"CUFILE_ALLOW_COMPAT_MODE", "false"}});
  // Direct transfers need O_DIRECT.
  expect_clean(
      [&] {
        const Device device;
        const int fd = open_file();
        open_handle(fd, 5019);
        device.close();
      },
      {{"CUFILE_USE_PCIP2PDMA", "true"}});
}

TEST_F(CuFileFace, WhatIsRefused) {
  const auto report = run(
      [&] {
        const Device device;
        const std::uint64_t memory = allocate(8192), other = allocate(4096);
        const int fd = open_file(), folder = ::open("/", O_RDONLY);
        open_handle(folder, 5018);
        void* handle = open_handle(fd);
        open_handle(fd, 5028);
        OK(file("cuFileBufRegister", at(memory), std::size_t{4096}, 0));
        CHECK_EQUAL(5023, file("cuFileBufRegister", at(memory), std::size_t{8192}, 0));
        CHECK_EQUAL(-5017, read(handle, memory, 4096, 0, 1));                           // out-of-bounds
        CHECK_EQUAL(-5014, read(handle, memory + 4096, 8192, 0));                       // out-of-bounds
        CHECK_EQUAL(5014, file("cuFileBufRegister", at(other), std::size_t{8192}, 0));  // out-of-bounds
        CHECK_EQUAL(-5022, read(handle, other, 4096, -1));                              // bad-argument
        CHECK_EQUAL(-5022, read(handle, other, 0, 0));                                  // bad-argument
        CHECK_EQUAL(-5012, read(handle, 4096, 4096, 0));                                // bad-pointer
        CHECK_EQUAL(5022, file("cuFileBufDeregister", at(other)));                      // bad-pointer
        release(other);
        CHECK_EQUAL(-5012, read(handle, other, 4096, 0));  // bad-pointer
        release(memory);
        OK(file("cuFileBufDeregister", at(memory)));  // free-while-in-use
        ::close(fd);
        CHECK_EQUAL(-5022, read(handle, memory, 4096, 0));  // bad-handle
        close_handle(handle);                               // bad-handle
        CHECK_EQUAL(-5027, read(handle, memory, 4096, 0));  // bad-handle
        device.close();
        const int again = open_file();
        handle = open_handle(again);
        CHECK_EQUAL(-5015, read(handle, memory, 4096, 0));  // no-context
      },
      compatible_);
  EXPECT_EQ(kinds(report),
            "out-of-bounds,out-of-bounds,out-of-bounds,bad-argument,bad-argument,bad-pointer,bad-pointer,bad-pointer,"
            "free-while-in-use,bad-handle,bad-handle,bad-handle,no-context");
  EXPECT_NE(report.at("leaks").dump().find("cuFile handle"), std::string::npos) << report.at("leaks");
}

TEST_F(CuFileFace, TransfersAreOrderedWithNoStream) {
  const auto report = run(
      [&] {
        const Device device;
        void* stream = make_stream();
        const std::uint64_t memory = upload(std::vector<int>(1024, 1), stream);
        const int fd = open_file();
        void* handle = open_handle(fd);
        CHECK_EQUAL(4096, write(handle, memory, 4096, 0));
        OK(cu("cuMemsetD8Async", memory, static_cast<unsigned char>(7), std::size_t{4096}, stream));
        CHECK_EQUAL(4096, read(handle, memory, 4096, 0));  // race: nobody waited for the fill
        wait(stream);
        CHECK_EQUAL(4096, read(handle, memory, 4096, 0));
        close_handle(handle);
        ::close(fd);
        release(memory);
        destroy_stream(stream);
        device.close();
      },
      compatible_);
  EXPECT_EQ(kinds(report), "race");
}

TEST_F(CuFileFace, ThreadsTransferDifferentPartsOfAFile) {
  expect_clean(
      [&] {
        const Device device;
        constexpr int count = 4;
        constexpr std::size_t part = 65536;
        void* stream = make_stream();
        const std::uint64_t from = upload(std::vector<char>(count * part, 5), stream);
        const std::uint64_t to = upload(std::vector<char>(count * part, 0), stream);
        const int fd = open_file();
        void* handle = open_handle(fd);
        std::vector<std::thread> threads;
        for (int i = 0; i < count; ++i) {
          threads.emplace_back([&, i] {
            device.make_current();
            const auto offset = static_cast<off_t>(i * part);
            CHECK_EQUAL(part, write(handle, from, part, offset, offset));
            CHECK_EQUAL(part, read(handle, to, part, offset, offset));
          });
        }
        for (std::thread& thread : threads) thread.join();
        const auto got = download<char>(to, count * part, stream);
        for (const char value : got) CHECK_EQUAL(5, value);
        close_handle(handle);
        ::close(fd);
        release(from);
        release(to);
        destroy_stream(stream);
        device.close();
      },
      compatible_);
}

}  // namespace
}  // namespace cufile_face
