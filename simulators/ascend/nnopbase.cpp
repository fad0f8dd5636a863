// Simulates the library under Huawei's operators (libnnopbase.so): tensors, scalars, lists of integers, executors. Names
// and orders of arguments are those of the open opbase repository (acl_meta.h).
#include <algorithm>
#include <cstring>
#include <span>

#include "simulators/ascend/nn_objects.h"
#include "simulators/libraries/library.h"

namespace sim_library {

using Handle = void*;

namespace {

template <typename T>
Handles<T>& handles(const char* kind) {
  static auto* all = new Handles<T>(kind);
  return *all;
}
Handles<NnTensor>& tensors() { return handles<NnTensor>("aclTensor"); }
Handles<NnScalar>& scalars() { return handles<NnScalar>("aclScalar"); }
Handles<NnExecutor>& executors() { return handles<NnExecutor>("aclOpExecutor"); }
Handles<NnIntArray>& arrays() { return handles<NnIntArray>("aclIntArray"); }

template <typename T>
int destroy(Handles<T>& of, const void* handle, const char* function) {
  if (handle == nullptr) return kNnNullPointer;
  if (of.get(handle, function) == nullptr) return kNnInvalid;
  of.remove(handle);
  return kNnSuccess;
}

}  // namespace

std::shared_ptr<const NnTensor> nn_tensor(const void* handle, const char* function) {
  return tensors().get(handle, function);
}
std::shared_ptr<const NnScalar> nn_scalar(const void* handle, const char* function) {
  return scalars().get(handle, function);
}
std::shared_ptr<const NnIntArray> nn_int_array(const void* handle, const char* function) {
  return arrays().get(handle, function);
}
std::shared_ptr<NnExecutor> nn_executor(const void* handle, const char* function) {
  return executors().get(handle, function);
}
void* nn_add_executor(std::shared_ptr<NnExecutor> executor) { return executors().add(std::move(executor)); }
void nn_remove_executor(const void* handle) { executors().remove(handle); }

int aclnnInit(const char*) { return kNnSuccess; }
int aclnnFinalize() { return kNnSuccess; }

// The shape of the storage must hold the view. Of the formats, ND (2), those with names of axes and FRACTAL_NZ (29) are simulated; the
// last for matrices, whose storage has the sizes of their blocks.
Handle aclCreateTensor(const std::int64_t* dims, std::uint64_t count, int type, const std::int64_t* strides,
                       std::int64_t offset, int format, const std::int64_t* storage, std::uint64_t storage_count,
                       void* data) {
  const auto refuse = [](const char* what) -> Handle {
    violation("bad-argument", std::string("aclCreateTensor: ") + what);
    return nullptr;
  };
  if (dims == nullptr || (storage == nullptr && storage_count > 0)) return refuse("a list of sizes is null");
  if (nn_type_bytes(type) == 0) return refuse("a type that is not simulated");
  const bool in_blocks = format == kNnFractalNz;
  if (!in_blocks && (format < 0 || format > kNnNd)) return refuse("a format that is not simulated");
  auto made = std::make_shared<NnTensor>();
  made->dims.assign(dims, dims + count);
  made->strides.resize(count);
  std::int64_t step = 1;
  for (std::size_t i = count; i-- > 0;) {
    made->strides[i] = strides != nullptr ? strides[i] : step;
    step *= dims[i];
    if (dims[i] < 0 || made->strides[i] < 0) return refuse("a size or a stride is negative");
  }
  made->offset = offset;
  made->type = type;
  made->data = static_cast<char*>(data);
  if (in_blocks) {
    made->format = kNnFractalNz;
    if (count != 2 || nn_type_bytes(type) > 4) return refuse("only matrices of small types are simulated in blocks");
    const bool dense = made->strides[0] == dims[1] && made->strides[1] == 1;
    if (offset != 0 || (!dense && !made->transposed())) return refuse("a matrix in blocks with gaps");
    if (!std::ranges::equal(std::span(storage, storage_count), made->blocks())) {
      return refuse("the sizes of the storage are not those of the matrix in blocks");
    }
    return tensors().add(std::move(made));
  }
  std::int64_t stored = 1;
  for (std::uint64_t i = 0; i < storage_count; ++i) stored *= storage[i];
  const auto end = static_cast<std::int64_t>(made->bytes() / nn_type_bytes(type)) + offset;
  if (offset < 0 || end > stored) return refuse("the view is larger than its storage");
  return tensors().add(std::move(made));
}
int aclDestroyTensor(const void* tensor) { return destroy(tensors(), tensor, __func__); }

Handle aclCreateScalar(void* value, int type) {
  auto made = std::make_shared<NnScalar>();
  const auto load = [&](auto number) {
    std::memcpy(&number, value, sizeof number);
    made->value = static_cast<double>(number);
    if constexpr (std::is_integral_v<decltype(number)>) made->whole = number;
  };
  switch (type) {
    case kNnFloat: load(float{}); break;
    case kNnInt32: load(std::int32_t{}); break;
    case kNnInt64: load(std::int64_t{}); break;
    case 11: load(double{}); break;
    default: violation("bad-argument", "aclCreateScalar: a type that is not simulated"); return nullptr;
  }
  return scalars().add(std::move(made));
}
int aclDestroyScalar(const void* scalar) { return destroy(scalars(), scalar, __func__); }

Handle aclCreateIntArray(const std::int64_t* values, std::uint64_t count) {
  if (values == nullptr && count > 0) return nullptr;
  auto made = std::make_shared<NnIntArray>();
  made->values.assign(values, values + count);
  return arrays().add(std::move(made));
}
int aclDestroyIntArray(const void* array) { return destroy(arrays(), array, __func__); }

int aclSetAclOpExecutorRepeatable(Handle executor) {
  const auto object = executor == nullptr ? nullptr : nn_executor(executor, __func__);
  if (object == nullptr) return kNnNullPointer;
  object->repeatable = true;
  return kNnSuccess;
}
int aclDestroyAclOpExecutor(Handle executor) { return destroy(executors(), executor, __func__); }

}  // namespace sim_library

SIM_EXPORT(aclnnInit, sim_library::kNnInner)
SIM_EXPORT(aclnnFinalize, sim_library::kNnInner)
SIM_EXPORT(aclCreateTensor, nullptr)
SIM_EXPORT(aclDestroyTensor, sim_library::kNnInner)
SIM_EXPORT(aclCreateScalar, nullptr)
SIM_EXPORT(aclDestroyScalar, sim_library::kNnInner)
SIM_EXPORT(aclCreateIntArray, nullptr)
SIM_EXPORT(aclDestroyIntArray, sim_library::kNnInner)
SIM_EXPORT(aclSetAclOpExecutorRepeatable, sim_library::kNnInner)
SIM_EXPORT(aclDestroyAclOpExecutor, sim_library::kNnInner)
