// The adaptor for libraries of collectives, over the tables of npu, mlu and sdaa and one with a fourth vendor's conventions,
// on a library that keeps them (fake_collectives.cpp). Members are threads.
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <thread>

#include "accelerators/fake_collectives.h"

namespace anyaccel::collectives {
namespace {

std::unique_ptr<Library> opened(const LibraryTable& table) {
  std::string problem;
  auto library = Library::bind(table, fake_library(), problem);
  EXPECT_NE(library, nullptr) << problem;
  return library;
}

std::vector<char> new_id(const Library& library) {
  std::vector<char> id(library.id_size());
  library.id_create(id.data());
  return id;
}

struct Member {
  LibraryCommunicator& comm;
  HostStream& stream;
  int rank;
  int size;
};

void on_threads(const Library& library, int size, const std::function<void(Member)>& program) {
  const std::vector<char> id = new_id(library);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        LibraryCommunicator comm(library, std::make_unique<HostDevice>(rank), id.data(), rank, size);
        HostStream stream;
        program({comm, stream, rank, size});
        comm.close();
      } catch (const std::exception& error) {
        ADD_FAILURE() << "rank " << rank << ": " << error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

template <class Call>
aa_code code_of(Call&& call) {
  try {
    call();
  } catch (const abi::Failure& failure) {
    EXPECT_STRNE(failure.what(), "");
    return failure.code();
  }
  return AA_OK;
}

constexpr size_t n = 257;

// rank + 1 times 1, 2, 3, 1, 2, ...: small enough for every type.
template <class T>
std::vector<T> values(int rank, size_t count = n) {
  std::vector<T> made(count);
  for (size_t i = 0; i < count; ++i) made[i] = static_cast<T>((rank + 1) * static_cast<int>(i % 3 + 1));
  return made;
}

template <class T>
void all_reduces(const Member& m, int32_t dtype, bool average) {
  const auto reduced = [&](int32_t op) {
    std::vector<T> data = values<T>(m.rank);
    std::vector<T> result(n);
    m.comm.all_reduce(m.stream, data.data(), result.data(), n, dtype, op);
    m.comm.all_reduce(m.stream, data.data(), data.data(), n, dtype, op);
    EXPECT_EQ(data, result) << "in place";
    return result;
  };
  const std::vector<T> sums = reduced(AA_REDUCE_SUM);
  const std::vector<T> products = reduced(AA_REDUCE_PRODUCT);
  const std::vector<T> smallest = reduced(AA_REDUCE_MIN);
  const std::vector<T> largest = reduced(AA_REDUCE_MAX);
  for (size_t i = 0; i < n; ++i) {
    const auto unit = static_cast<int>(i % 3 + 1);
    int product = 1;
    for (int rank = 0; rank < m.size; ++rank) product *= (rank + 1) * unit;
    ASSERT_EQ(sums[i], static_cast<T>(unit * m.size * (m.size + 1) / 2));
    ASSERT_EQ(products[i], static_cast<T>(product));
    ASSERT_EQ(smallest[i], static_cast<T>(unit));
    ASSERT_EQ(largest[i], static_cast<T>(unit * m.size));
  }
  std::vector<T> data = values<T>(m.rank);
  const std::vector<T> before = data;
  if (average) {
    m.comm.all_reduce(m.stream, data.data(), data.data(), n, dtype, AA_REDUCE_AVG);
    for (size_t i = 0; i < n; ++i) ASSERT_EQ(data[i], static_cast<T>(sums[i] / static_cast<T>(m.size)));
  } else {
    EXPECT_EQ(code_of([&] { m.comm.all_reduce(m.stream, data.data(), data.data(), n, dtype, AA_REDUCE_AVG); }),
              AA_UNIMPLEMENTED);
    EXPECT_EQ(data, before);
  }
}

// A type that the library does not know is transferred as bytes.
void broadcasts(const Member& m) {
  for (const bool in_place : {false, true}) {
    std::vector<double> data = values<double>(m.rank);
    std::vector<double> result(n);
    double* to = in_place ? data.data() : result.data();
    m.comm.broadcast(m.stream, data.data(), to, n, AA_DTYPE_F64, 1);
    EXPECT_EQ(std::vector<double>(to, to + n), values<double>(1));
    if (!in_place) {
      EXPECT_EQ(data, values<double>(m.rank));
    }
  }
}

// The library would return an error to the second member, and leave the first one waiting for it.
TEST(CollectiveLibrary, OneMemberPerProcess) {
  const auto library = opened(mlu::cncl_table);
  const std::vector<char> id = new_id(*library);
  LibraryCommunicator first(*library, std::make_unique<HostDevice>(0), id.data(), 0, 1);
  try {
    LibraryCommunicator second(*library, std::make_unique<HostDevice>(1), id.data(), 1, 2);
    ADD_FAILURE() << "joined";
  } catch (const abi::Failure& failure) {
    EXPECT_EQ(failure.code(), AA_UNIMPLEMENTED);
    EXPECT_NE(std::string(failure.what()).find("give each device a process of its own"), std::string::npos)
        << failure.what();
  }
  const std::vector<char> other = new_id(*library);
  LibraryCommunicator another(*library, std::make_unique<HostDevice>(1), other.data(), 0, 1);
  another.close();
  first.close();
}

TEST(CollectiveLibrary, IdOf136BytesInLists) {
  const auto library = opened(cncl);
  EXPECT_STREQ(library->name(), "cncl");
  EXPECT_EQ(library->version(), "");
  on_threads(*library, 3, [](const Member& m) {
    all_reduces<int32_t>(m, AA_DTYPE_I32, false);
    all_reduces<int16_t>(m, AA_DTYPE_I16, false);
    all_reduces<int64_t>(m, AA_DTYPE_I64, false);
    all_reduces<float>(m, AA_DTYPE_F32, false);
    broadcasts(m);
    std::vector<double> data(n);
    EXPECT_EQ(code_of([&] { m.comm.all_reduce(m.stream, data.data(), data.data(), n, AA_DTYPE_F64, AA_REDUCE_SUM); }),
              AA_UNIMPLEMENTED);
    EXPECT_EQ(code_of([&] { m.comm.all_gather(m.stream, data.data(), data.data(), 1, AA_DTYPE_F32); }),
              AA_UNIMPLEMENTED);
    // Round the ring: all at once.
    const std::vector<int32_t> own = values<int32_t>(m.rank);
    std::vector<int32_t> got(n);
    m.comm.send(m.stream, own.data(), n, AA_DTYPE_I32, (m.rank + 1) % m.size);
    m.comm.recv(m.stream, got.data(), n, AA_DTYPE_I32, (m.rank + m.size - 1) % m.size);
    EXPECT_EQ(got, values<int32_t>((m.rank + m.size - 1) % m.size));
    m.comm.async_error();  // "in progress" is none
  });
  library->group_begin();
  library->group_end();
}

TEST(CollectiveLibrary, IdOf4108BytesByItsAddressAndBroadcastInPlace) {
  const auto library = opened(ascend);
  on_threads(*library, 4, [](const Member& m) {
    all_reduces<int32_t>(m, AA_DTYPE_I32, false);
    all_reduces<double>(m, AA_DTYPE_F64, false);
    all_reduces<uint8_t>(m, AA_DTYPE_U8, false);
    broadcasts(m);
    std::vector<int32_t> all(n * 4);
    const std::vector<int32_t> own = values<int32_t>(m.rank);
    m.comm.all_gather(m.stream, own.data(), all.data(), n, AA_DTYPE_I32);
    for (int rank = 0; rank < m.size; ++rank) {
      const auto begin = all.begin() + static_cast<ptrdiff_t>(n) * rank;
      EXPECT_EQ(std::vector<int32_t>(begin, begin + n), values<int32_t>(rank));
    }
    std::vector<int32_t> part(n);
    m.comm.reduce_scatter(m.stream, all.data(), part.data(), n, AA_DTYPE_I32, AA_REDUCE_SUM);
    std::vector<int32_t> expected = values<int32_t>(m.rank);
    for (int32_t& value : expected) value *= m.size;
    EXPECT_EQ(part, expected);
    EXPECT_EQ(code_of([&] { m.comm.abort(); }), AA_UNIMPLEMENTED);
    EXPECT_EQ(code_of([&] { m.comm.send(m.stream, own.data(), n, AA_DTYPE_I32, 0); }), AA_UNIMPLEMENTED);
    m.comm.async_error();
  });
  EXPECT_EQ(code_of([&] { library->group_begin(); }), AA_UNIMPLEMENTED);
}

TEST(CollectiveLibrary, SmallestAndLargestSwappedAndAnIdOf1032BytesByValue) {
  const auto library = opened(habana);
  EXPECT_EQ(library->version(), "1.190");
  on_threads(*library, 3, [](const Member& m) {
    all_reduces<int32_t>(m, AA_DTYPE_I32, true);
    all_reduces<float>(m, AA_DTYPE_F32, true);
    std::vector<int32_t> data = values<int32_t>(m.rank);
    m.comm.reduce(m.stream, data.data(), m.rank == 2 ? data.data() : nullptr, n, AA_DTYPE_I32, AA_REDUCE_MIN, 2);
    EXPECT_EQ(data, values<int32_t>(m.rank == 2 ? 0 : m.rank));
    EXPECT_EQ(code_of([&] { m.comm.all_reduce(m.stream, data.data(), data.data(), n, AA_DTYPE_I16, AA_REDUCE_SUM); }),
              AA_UNIMPLEMENTED);
  });
}

TEST(CollectiveLibrary, OwnNumbersAndNoGroups) {
  const auto library = opened(tccl);
  on_threads(*library, 2, [](const Member& m) {
    all_reduces<int32_t>(m, AA_DTYPE_I32, false);
    all_reduces<int64_t>(m, AA_DTYPE_I64, false);
    all_reduces<float>(m, AA_DTYPE_F32, false);
    all_reduces<double>(m, AA_DTYPE_F64, false);
    EXPECT_EQ(code_of([&] { m.comm.broadcast(m.stream, nullptr, nullptr, 0, AA_DTYPE_F32, 0); }), AA_UNIMPLEMENTED);
    m.comm.async_error();
  });
  EXPECT_EQ(code_of([&] { library->group_begin(); }), AA_UNIMPLEMENTED);
}

TEST(CollectiveLibrary, ErrorsHaveTheLibrarysWordsAndACode) {
  const auto library = opened(cncl);
  std::vector<char> id = new_id(*library);
  const auto refused = [&](int rank, int size) {
    try {
      LibraryCommunicator(*library, std::make_unique<HostDevice>(0), id.data(), rank, size);
    } catch (const abi::Failure& failure) {
      EXPECT_EQ(failure.code(), AA_INVALID_ARGUMENT);
      EXPECT_EQ(failure.native_code(), 2);
      EXPECT_STREQ(failure.what(), "cnclInitComms gave 2: CNCL_RET_ERR_ARGUMENTS");
      return true;
    }
    return false;
  };
  EXPECT_TRUE(refused(2, 2));
  id.back() = 0;  // another id than the one that was made
  EXPECT_TRUE(refused(0, 1));

  id = new_id(*library);
  LibraryCommunicator broken(*library, std::make_unique<HostDevice>(13), id.data(), 0, 1);
  try {
    broken.async_error();
    ADD_FAILURE() << "no error";
  } catch (const abi::Failure& failure) {
    EXPECT_EQ(failure.code(), AA_UNAVAILABLE);
    EXPECT_NE(std::string(failure.what()).find("CNCL_RET_ERR_LINK"), std::string::npos) << failure.what();
  }
  broken.close();
}

TEST(CollectiveLibrary, AbortEndsAWaitAndEverythingAfterIt) {
  const auto library = opened(habana);
  const std::vector<char> id = new_id(*library);
  std::vector<std::unique_ptr<LibraryCommunicator>> comms(2);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      comms[static_cast<size_t>(rank)] =
          std::make_unique<LibraryCommunicator>(*library, std::make_unique<HostDevice>(rank), id.data(), rank, 2);
    });
  }
  for (std::thread& thread : threads) thread.join();
  LibraryCommunicator& comm = *comms[0];
  HostStream stream;
  std::vector<float> data(n);
  const auto reduce = [&] {
    return code_of([&] { comm.all_reduce(stream, data.data(), data.data(), n, AA_DTYPE_F32, AA_REDUCE_SUM); });
  };
  std::thread waiting([&] { EXPECT_NE(reduce(), AA_OK); });  // the other member never comes
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  comm.abort();
  waiting.join();
  EXPECT_EQ(reduce(), AA_CANCELLED);
  EXPECT_EQ(code_of([&] { comm.async_error(); }), AA_CANCELLED);
  comm.abort();  // nothing is left to do
  comm.close();
  comms[1]->close();  // destroys it
}

TEST(CollectiveLibrary, NamesWhatTheLibraryLacks) {
  LibraryTable table = tccl;
  table.names.join = "tcclCommInitSomehow";
  table.names.all_reduce = "tcclReduceAll";
  std::string problem;
  EXPECT_EQ(Library::bind(table, fake_library(), problem), nullptr);
  EXPECT_EQ(problem, "tccl lacks tcclCommInitSomehow, tcclReduceAll");
}

}  // namespace
}  // namespace anyaccel::collectives
