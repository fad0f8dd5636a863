// Uses what the plugin provides: its op builders, and its communicator between the ranks of a job.
//
//   DS_ACCELERATOR=acme ./use_acme ops
//   DS_ACCELERATOR=acme anyaccel launch --num_accelerators 2 ./use_acme ranks
#include <anyaccel/accelerator.h>
#include <anyaccel/comm/process_group.h>
#include <anyaccel/error.h>
#include <anyaccel/op_builder.h>
#include <anyaccel/tensor.h>

#include <cstdio>
#include <cstring>
#include <vector>

using namespace anyaccel;

namespace {

// Returns a function of the library that the accelerator's builder of this name loads.
template <class Signature>
Signature* function_of(const char* builder, const char* name) {
  return get_accelerator()->create_op_builder(builder)->load_as<HostOpLibrary>()->function<Signature>(name);
}

void use_ops() {
  float x[4] = {1, 2, 3, 4};
  function_of<void(float*, int64_t, float)>("AcmeScaleBuilder", "acme_scale")(x, 4, 10.0f);
  function_of<void(float*, int64_t, float)>("AcmeClipBuilder", "acme_clip")(x, 4, 25.0f);
  std::printf("%g %g %g %g\n", static_cast<double>(x[0]), static_cast<double>(x[1]), static_cast<double>(x[2]),
              static_cast<double>(x[3]));
}

void use_ranks() {
  comm::InitOptions options;
  options.backend = "acmecl";
  const auto group = comm::init_process_group(options);
  const auto rank = static_cast<float>(group->rank());
  const std::vector<float> values(100000, rank + 1);
  const Tensor sum =
      Tensor::from_host(values.data(), {static_cast<int64_t>(values.size())}, DType::F32, get_accelerator()->device());
  group->all_reduce(sum);
  const std::vector<float> result = sum.to_vector<float>();
  for (const float value : result) {
    if (value != result[0]) throw CommunicationError("the elements of a sum differ");
  }
  if (group->rank() == 0) {
    std::printf("%d ranks over %s: %g\n", group->size(), group->backend().c_str(), static_cast<double>(result[0]));
  }
}

}  // namespace

int main(int argc, char** argv) {
  try {
    if (argc == 2 && std::strcmp(argv[1], "ops") == 0) {
      use_ops();
    } else if (argc == 2 && std::strcmp(argv[1], "ranks") == 0) {
      use_ranks();
    } else {
      std::fprintf(stderr, "use_acme ops | ranks\n");
      return 2;
    }
  } catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
