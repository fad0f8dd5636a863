// Compiled, never run: what src/comm/ccl/ccl_library.h declares of oneCCL against oneCCL's own header.
#include <oneapi/ccl.h>

#include <type_traits>

#include "comm/ccl/ccl_library.h"

namespace {

using anyaccel::comm::CclId;
using anyaccel::comm::CclLibrary;

// Our declaration of a type of the header.
template <class T>
struct Ours {
  using type = std::conditional_t<std::is_enum_v<T>, int, T>;
};
template <>
struct Ours<onecclComm_t> {
  using type = void*;
};
template <>
struct Ours<onecclComm_t*> {
  using type = void**;
};
template <>
struct Ours<onecclUniqueId> {
  using type = CclId;
};
template <>
struct Ours<onecclUniqueId*> {
  using type = CclId*;
};

template <class Result, class... Arguments>
auto ours(Result (*)(Arguments...)) -> typename Ours<Result>::type (*)(typename Ours<Arguments>::type...);

template <class Declared, class Theirs>
constexpr bool same = std::is_same_v<Declared, decltype(ours(static_cast<Theirs*>(nullptr)))>;

static_assert(same<decltype(CclLibrary::get_version), decltype(onecclGetVersion)>);
static_assert(same<decltype(CclLibrary::get_unique_id), decltype(onecclGetUniqueId)>);
static_assert(same<decltype(CclLibrary::comm_init_rank), decltype(onecclCommInitRank)>);
static_assert(same<decltype(CclLibrary::get_error_string), decltype(onecclGetErrorString)>);
static_assert(same<decltype(CclLibrary::get_last_error), decltype(onecclGetLastError)>);
static_assert(same<decltype(CclLibrary::all_reduce), decltype(onecclAllReduce)>);
static_assert(same<decltype(CclLibrary::reduce), decltype(onecclReduce)>);
static_assert(same<decltype(CclLibrary::reduce_scatter), decltype(onecclReduceScatter)>);
static_assert(same<decltype(CclLibrary::broadcast), decltype(onecclBroadcast)>);
static_assert(same<decltype(CclLibrary::all_gather), decltype(onecclAllGather)>);
static_assert(same<decltype(CclLibrary::all_to_all), decltype(onecclAllToAll)>);

static_assert(sizeof(onecclResult_t) == sizeof(int) && sizeof(onecclDataType_t) == sizeof(int) &&
              sizeof(onecclRedOp_t) == sizeof(int));
static_assert(sizeof(onecclUniqueId) == sizeof(CclId) && std::is_trivially_copyable_v<onecclUniqueId>);
static_assert(onecclSuccess == 0);
static_assert(onecclInt8 == CclLibrary::kInt8 && onecclUint8 == CclLibrary::kUint8);
static_assert(onecclInt32 == CclLibrary::kInt32 && onecclInt64 == CclLibrary::kInt64);
static_assert(onecclFloat16 == CclLibrary::kFloat16 && onecclBfloat16 == CclLibrary::kBfloat16);
static_assert(onecclFloat32 == CclLibrary::kFloat32 && onecclFloat64 == CclLibrary::kFloat64);
static_assert(onecclSum == CclLibrary::kSum && onecclProd == CclLibrary::kProduct);
static_assert(onecclMax == CclLibrary::kMax && onecclMin == CclLibrary::kMin);

}  // namespace
