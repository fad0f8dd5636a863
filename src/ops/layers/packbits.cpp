// Implements ops::Packbits.
#include "anyaccel/ops/packbits.h"

#include <cmath>
#include <string>

#include "anyaccel/accelerator.h"
#include "ops/builders.h"
#include "ops/host/host_tensors.h"
#include "ops/layers/argument_checks.h"
#include "runtime/ops/included_op_builder.h"

namespace anyaccel::ops {

Tensor Packbits::packbits(const Tensor& x, int64_t input_size, int /*rank*/) {
  ArgumentChecks check(accelerator_, "packbits");
  check.dtype("x", x, DType::F32);
  check.rank("x", x, 1, "[n]");
  check.require(input_size >= 0 && input_size <= x.size(0), "input_size is " + std::to_string(input_size) +
                                                                ", expected 0 to " + std::to_string(x.size(0)) +
                                                                ", the elements of x");
  const Tensor packed = Tensor::empty({(input_size + 7) / 8}, DType::U8, x.device());
  const HostTensor tensors[] = {{&x, HostUse::In}, {&packed, HostUse::Out}};
  run_on_host(accelerator_, "packbits", tensors, [&](std::span<Tensor> t) {
    const auto* const values = t[0].data_as<float>();
    auto* const bytes = t[1].data_as<uint8_t>();
    const int64_t step = t[0].stride(0);
    for (int64_t i = 0; i < t[1].numel(); ++i) {
      unsigned byte = 0;
      for (int64_t j = 8 * i; j < 8 * (i + 1); ++j) {
        byte = byte << 1 | (j < input_size && !std::signbit(values[j * step]) ? 1u : 0u);
      }
      bytes[i] = static_cast<uint8_t>(byte);
    }
  });
  return packed;
}

Tensor Packbits::unpackbits(const Tensor& packed, int64_t input_size, int /*rank*/) {
  ArgumentChecks check(accelerator_, "unpackbits");
  check.dtype("packed", packed, DType::U8);
  check.rank("packed", packed, 1, "[(input_size + 7) / 8]");
  check.require(input_size >= 0 && input_size <= 8 * packed.size(0),
                "input_size is " + std::to_string(input_size) + ", expected 0 to " +
                    std::to_string(8 * packed.size(0)) + ", the bits of packed");
  const Tensor out = Tensor::empty({input_size}, DType::F32, packed.device());
  const HostTensor tensors[] = {{&packed, HostUse::In}, {&out, HostUse::Out}};
  run_on_host(accelerator_, "unpackbits", tensors, [&](std::span<Tensor> t) {
    const auto* const bytes = t[0].data_as<uint8_t>();
    auto* const values = t[1].data_as<float>();
    const int64_t step = t[0].stride(0);
    for (int64_t i = 0; i < input_size; ++i) values[i] = (bytes[i / 8 * step] >> (7 - i % 8) & 1) != 0 ? 1.0f : -1.0f;
  });
  return out;
}

std::unique_ptr<OpBuilder> make_packbits_builder(Accelerator& accelerator) {
  return std::make_unique<IncludedOpBuilder<Packbits>>("PackbitsBuilder", accelerator);
}

}  // namespace anyaccel::ops
