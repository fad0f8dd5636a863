// A client of the simulated Objective-C runtime and Metal in plain C++: messages by objc_msgSend, cast to each method's type.
#pragma once

#include <sys/mman.h>

#include <cstring>
#include <string>
#include <vector>

#include "tests/simulators/library_process.h"

namespace sim_test {

using Id = void*;
using UInteger = unsigned long;
struct Size {
  UInteger width, height, depth;
};
struct Range {
  UInteger location, length;
};

inline void* objc_symbol(const char* name) {
  void* symbol = ::dlsym(library("apple/libobjc.A.dylib"), name);
  if (symbol == nullptr) {
    std::fprintf(stderr, "libobjc has no %s\n", name);
    std::_Exit(90);
  }
  return symbol;
}
template <typename Return = Id, typename... Args>
Return objc(const char* name, Args... args) {
  return reinterpret_cast<Return (*)(Args...)>(objc_symbol(name))(args...);
}
inline const char* sel(const char* name) { return objc<const char*>("sel_registerName", name); }
inline Id class_named(const char* name) { return objc<Id>("objc_getClass", name); }

// [receiver selector:args...]; x86-64 has another function for structs of more than 16 bytes.
template <typename Return = Id, typename... Args>
Return send(Id receiver, const char* selector, Args... args) {
  constexpr bool kBig = [] {
    if constexpr (std::is_void_v<Return>)
      return false;
    else
      return sizeof(Return) > 16;
  }();
  static void* const function = objc_symbol(kBig ? "objc_msgSend_stret" : "objc_msgSend");
  return reinterpret_cast<Return (*)(Id, const char*, Args...)>(function)(receiver, sel(selector), args...);
}

inline void retain(Id object) { send(object, "retain"); }
inline void let_go(Id object) { send<void>(object, "release"); }

class Pool {
 public:
  Pool() : token_(objc("objc_autoreleasePoolPush")) {}
  ~Pool() { objc<void>("objc_autoreleasePoolPop", token_); }
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

 private:
  Id token_;
};

inline Id string(const char* text) { return send(class_named("NSString"), "stringWithUTF8String:", text); }
inline std::string text(Id string) {
  const char* characters = send<const char*>(string, "UTF8String");
  return characters == nullptr ? "(null)" : characters;
}

// The ABI's layout of a block that holds one pointer.
struct TestBlock {
  void* isa;
  int flags, reserved;
  void (*invoke)(TestBlock*, Id, std::uint64_t);
  const unsigned long* descriptor;
  void* user;
};
inline TestBlock block(void (*invoke)(TestBlock*, Id, std::uint64_t), void* user) {
  static const unsigned long descriptor[] = {0, sizeof(TestBlock)};
  return {objc_symbol("_NSConcreteStackBlock"), 0, 0, invoke, descriptor, user};
}

// A device with one queue.
struct Metal {
  Metal() {
    device = call<Id>("apple/Metal", "MTLCreateSystemDefaultDevice");
    CHECK(device != nullptr);
    queue = send(device, "newCommandQueue");
    CHECK(queue != nullptr);
  }
  void close() {
    let_go(queue);
    let_go(device);
  }
  Id device = nullptr, queue = nullptr;
};
inline constexpr UInteger kShared = 0, kPrivate = 2 << 4, kUntracked = 1 << 8;
inline Id buffer(const Metal& metal, UInteger bytes, UInteger options = kShared) {
  const Id made = send(metal.device, "newBufferWithLength:options:", bytes, options);
  CHECK(made != nullptr);
  return made;
}
inline float* floats(Id buffer) { return send<float*>(buffer, "contents"); }
inline Id command_buffer(const Metal& metal) { return send(metal.queue, "commandBuffer"); }
inline void commit(Id command_buffer) { send<void>(command_buffer, "commit"); }
inline void finish(Id command_buffer) {
  commit(command_buffer);
  send<void>(command_buffer, "waitUntilCompleted");
}
inline UInteger status(Id command_buffer) { return send<UInteger>(command_buffer, "status"); }
inline void fill(Id encoder, Id buffer, UInteger from, UInteger bytes, int value) {
  send<void>(encoder, "fillBuffer:range:value:", buffer, Range{from, bytes}, static_cast<unsigned char>(value));
}
inline void copy(Id encoder, Id from, UInteger at, Id to, UInteger into, UInteger bytes) {
  send<void>(encoder, "copyFromBuffer:sourceOffset:toBuffer:destinationOffset:size:", from, at, to, into, bytes);
}
inline void end(Id encoder) { send<void>(encoder, "endEncoding"); }

// Most tests work on so many bytes.
inline constexpr UInteger kBytes = 4096;
inline constexpr std::int64_t kFloats = kBytes / 4;

// sim_scale of tests/simulators/kernels/sim_test.cl in Metal's language.
inline constexpr const char* kScale =
    "#include <metal_stdlib>\n"
    "using namespace metal;\n"
    "kernel void sim_scale(device float* y [[buffer(0)]], device const float* x [[buffer(1)]],\n"
    "    constant float& factor [[buffer(2)]], constant long& count [[buffer(3)]],\n"
    "    uint3 group [[threadgroup_position_in_grid]], uint3 item [[thread_position_in_threadgroup]]) {\n"
    "  const long i = long(group.x) * 32 + long(item.x);\n"
    "  if (i < count) y[i] = x[i] * factor;\n"
    "}\n";
// The same with its arguments in one struct, as addresses.
inline constexpr const char* kScaleInStruct =
    "#include <metal_stdlib>\n"
    "using namespace metal;\n"
    "struct Arguments { device float* y; device const float* x; float factor; long count; };\n"
    "kernel void sim_scale(constant Arguments& a [[buffer(0)]], uint3 item [[thread_position_in_grid]]) {\n"
    "  const long i = item.x;\n"
    "  if (i < a.count) a.y[i] = a.x[i] * a.factor;\n"
    "}\n";
struct ScaleArguments {
  std::uint64_t y, x;
  float factor;
  std::int64_t count;
};

inline Id pipeline(const Metal& metal, const char* source, const char* name) {
  const Pool pool;
  Id error = nullptr;
  const Id none = nullptr;
  const Id library = send(metal.device, "newLibraryWithSource:options:error:", string(source), none, &error);
  if (library == nullptr) std::fprintf(stderr, "%s\n", text(send(error, "localizedDescription")).c_str());
  CHECK(library != nullptr);
  const Id function = send(library, "newFunctionWithName:", string(name));
  CHECK(function != nullptr);
  const Id made = send(metal.device, "newComputePipelineStateWithFunction:error:", function, &error);
  let_go(function);
  let_go(library);
  return made;
}
inline void bind(Id encoder, Id buffer, UInteger index, UInteger offset = 0) {
  send<void>(encoder, "setBuffer:offset:atIndex:", buffer, offset, index);
}
template <typename T>
void bind_value(Id encoder, const T& value, UInteger index) {
  send<void>(encoder, "setBytes:length:atIndex:", static_cast<const void*>(&value), UInteger{sizeof value}, index);
}
inline void dispatch(Id encoder, UInteger groups, UInteger threads = 32) {
  send<void>(encoder, "dispatchThreadgroups:threadsPerThreadgroup:", Size{groups, 1, 1}, Size{threads, 1, 1});
}
// y = x * factor in a compute encoder.
inline void scale(Id encoder, Id state, Id y, Id x, float factor, std::int64_t count) {
  send<void>(encoder, "setComputePipelineState:", state);
  bind(encoder, y, 0);
  bind(encoder, x, 1);
  bind_value(encoder, factor, 2);
  bind_value(encoder, count, 3);
  dispatch(encoder, static_cast<UInteger>((count + 31) / 32));
}

class MetalFace : public LibraryProcess {
 protected:
  std::string kinds_of(const std::function<void()>& program, const Variables& more = {}) {
    return kinds(run(program, more));
  }
};

}  // namespace sim_test
