// A program for the tests of several hosts: its ranks reduce and say what they see.
//
//   multi_host_ranks BACKEND          joins, checks sums and who is where; rank 0 prints one line
//   multi_host_ranks BACKEND forever  reduces until that fails; each rank prints its failure and exits with 1
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <exception>
#include <set>
#include <string>
#include <vector>

#include "anyaccel/accelerator.h"
#include "anyaccel/comm/process_group.h"
#include "anyaccel/tensor.h"

namespace comm = anyaccel::comm;

namespace {

anyaccel::Tensor tensor(const anyaccel::Shape& shape, anyaccel::DType dtype) {
  return anyaccel::Tensor::empty(shape, dtype, anyaccel::get_accelerator()->device());
}

int run(const std::string& backend, bool forever) {
  comm::InitOptions options;
  options.backend = backend;
  const auto group = comm::init_process_group(options);
  const int rank = group->rank(), size = group->size();

  // 1 + 2 + ... in every element, small and large.
  for (const int64_t count : {int64_t{3}, int64_t{500000}}) {
    const anyaccel::Tensor values = tensor({count}, anyaccel::DType::F32);
    float* data = static_cast<float*>(values.data());
    for (int64_t i = 0; i < count; ++i) data[i] = static_cast<float>(rank + 1);
    group->all_reduce(values);
    for (int64_t i = 0; i < count; ++i) {
      if (data[i] != static_cast<float>(size * (size + 1) / 2)) {
        std::fprintf(stderr, "rank %d: element %lld is %g\n", rank, static_cast<long long>(i),
                     static_cast<double>(data[i]));
        return 2;
      }
    }
  }
  constexpr int64_t kName = 64;
  const anyaccel::Tensor own = tensor({kName}, anyaccel::DType::U8), all = tensor({kName * size}, anyaccel::DType::U8);
  std::memset(own.data(), 0, kName);
  gethostname(static_cast<char*>(own.data()), kName - 1);
  group->all_gather(all, own);
  if (rank == 0) {
    std::printf("%d ranks over %s on", size, group->backend().c_str());
    for (int r = 0; r < size; ++r) std::printf(" %s", static_cast<const char*>(all.data()) + r * kName);
    std::printf("\n");
    std::fflush(stdout);
  }
  const anyaccel::Tensor one = tensor({1}, anyaccel::DType::F32);
  if (forever) {
    for (;;) {
      *static_cast<float*>(one.data()) = 0;
      group->all_reduce(one);
    }
  }
  comm::destroy_process_group();
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc > 1 ? argv[1] : "", argc > 2 && std::strcmp(argv[2], "forever") == 0);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "ranks: %s\n", error.what());
    return 1;
  }
}
