// Implements AsyncIO::deepspeed_memcpy (anyaccel/ops/async_io.h): copies between tensors, large ones of the host by
// several threads.
#include <algorithm>
#include <cstring>
#include <system_error>
#include <thread>
#include <vector>

#include "anyaccel/error.h"
#include "anyaccel/ops/async_io.h"
#include "base/copy_bytes.h"

namespace anyaccel::ops {

void AsyncIO::deepspeed_memcpy(const Tensor& destination, const Tensor& source) const {
  if (!destination || !source) throw InvalidArgument("deepspeed_memcpy: a tensor is empty");
  if (destination.dtype() != source.dtype() || destination.numel() != source.numel()) {
    throw InvalidArgument("deepspeed_memcpy: the destination is " + std::string(dtype_name(destination.dtype())) + ' ' +
                          destination.shape().to_string() + ", the source " + std::string(dtype_name(source.dtype())) +
                          ' ' + source.shape().to_string() + "; dtypes and numbers of elements must be equal");
  }
  const bool plain = destination.device().is_host() && source.device().is_host() && destination.is_contiguous() &&
                     source.is_contiguous();
  if (!plain) {
    destination.copy_from(source.shape() == destination.shape() ? source : source.reshape(destination.shape()));
    return;
  }
  auto* to = static_cast<char*>(destination.data());
  const auto* from = static_cast<const char*>(source.data());
  const size_t bytes = source.nbytes();
  if (from < to + bytes && to < from + bytes) {
    std::memmove(to, from, bytes);
    return;
  }
  // Starting a thread costs about 30 us; a single core does not reach the memory's bandwidth.
  constexpr size_t share = size_t{16} << 20;
  const size_t threads =
      std::clamp<size_t>(bytes / share, 1, std::clamp<size_t>(std::thread::hardware_concurrency(), 1, 8));
  const size_t piece = (bytes / threads + 63) / 64 * 64;
  std::vector<std::jthread> others;
  for (size_t i = 1; i < threads; ++i) {
    const size_t begin = i * piece;
    const size_t length = i + 1 == threads ? bytes - begin : piece;
    try {
      others.emplace_back([=] { copy_bytes(to + begin, from + begin, length); });
    } catch (const std::system_error&) {  // no more threads
      copy_bytes(to + begin, from + begin, length);
    }
  }
  copy_bytes(to, from, std::min(piece, bytes));
}

}  // namespace anyaccel::ops
