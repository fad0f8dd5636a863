// Does by hand what an Objective-C compiler does for messages, blocks and @autoreleasepool, with the runtime's
// functions.
//
// The library is opened at run time (library.h), so nothing here is linked. A message is a call of objc_msgSend, cast to the
// function type of the method: the arguments go where a C function's would, which a variadic call would not do on Apple's
// processors. No method that returns a struct is sent, since those need another function on x86.
//
// Memory rules of Objective-C: an object returned by a method whose name begins with new, alloc or copy is owned by the
// caller; any other object is borrowed from the innermost pool (Pool), and must be retained to outlive it (Owned).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

namespace anyaccel::mps {

struct objc_object;
struct objc_selector;
using Id = objc_object*;
using Selector = objc_selector*;

// These structs are passed to Metal by value: MTLSize, NSRange.
struct Size3 {
  uint64_t width, height, depth;
};
struct Range {
  uint64_t location, length;
};

// The functions of libobjc and of Metal, bound once by the probe (library.h).
struct Api {
  Id (*objc_getClass)(const char* name) = nullptr;
  Selector (*sel_registerName)(const char* name) = nullptr;
  void (*objc_msgSend)() = nullptr;
  void* (*objc_autoreleasePoolPush)() = nullptr;
  void (*objc_autoreleasePoolPop)(void* pool) = nullptr;
  void* _NSConcreteStackBlock = nullptr;  // from the block runtime, which libobjc loads
  Id (*MTLCopyAllDevices)() = nullptr;    // returns an NSArray that the caller owns
};

// The names of methods, each registered once. The comments between them say which classes they belong to.
#define ANYACCEL_METAL_SELECTORS(F)                                                   \
  /* NSObject, NSArray, NSString, NSError */                                          \
  F(retain, "retain")                                                                 \
  F(release, "release")                                                               \
  F(new_object, "new")                                                                \
  F(count, "count")                                                                   \
  F(objectAtIndex, "objectAtIndex:")                                                  \
  F(stringWithUTF8String, "stringWithUTF8String:")                                    \
  F(UTF8String, "UTF8String")                                                         \
  F(localizedDescription, "localizedDescription")                                     \
  F(code, "code")                                                                     \
  /* MTLDevice */                                                                     \
  F(name, "name")                                                                     \
  F(registryID, "registryID")                                                         \
  F(hasUnifiedMemory, "hasUnifiedMemory")                                             \
  F(supportsFamily, "supportsFamily:")                                                \
  F(recommendedMaxWorkingSetSize, "recommendedMaxWorkingSetSize")                     \
  F(maxBufferLength, "maxBufferLength")                                               \
  F(maxThreadgroupMemoryLength, "maxThreadgroupMemoryLength")                         \
  F(newBufferWithLength, "newBufferWithLength:options:")                              \
  F(newBufferWithBytes, "newBufferWithBytes:length:options:")                         \
  F(newBufferWithBytesNoCopy, "newBufferWithBytesNoCopy:length:options:deallocator:") \
  F(newCommandQueue, "newCommandQueueWithMaxCommandBufferCount:")                     \
  F(newSharedEvent, "newSharedEvent")                                                 \
  F(newLibraryWithSource, "newLibraryWithSource:options:error:")                      \
  F(newComputePipelineState, "newComputePipelineStateWithFunction:error:")            \
  F(newResidencySet, "newResidencySetWithDescriptor:error:")                          \
  /* MTLBuffer, MTLCompileOptions, MTLLibrary, MTLComputePipelineState */             \
  F(contents, "contents")                                                             \
  F(setFastMathEnabled, "setFastMathEnabled:")                                        \
  F(setLanguageVersion, "setLanguageVersion:")                                        \
  F(newFunctionWithName, "newFunctionWithName:")                                      \
  F(maxTotalThreadsPerThreadgroup, "maxTotalThreadsPerThreadgroup")                   \
  F(staticThreadgroupMemoryLength, "staticThreadgroupMemoryLength")                   \
  /* MTLResidencySet, MTLCommandQueue: only where the system has them */              \
  F(addAllocation, "addAllocation:")                                                  \
  F(removeAllocation, "removeAllocation:")                                            \
  F(requestResidency, "requestResidency")                                             \
  F(addResidencySet, "addResidencySet:")                                              \
  /* MTLCommandQueue, MTLCommandBuffer, MTLSharedEvent */                             \
  F(commandBuffer, "commandBuffer")                                                   \
  F(computeCommandEncoder, "computeCommandEncoder")                                   \
  F(blitCommandEncoder, "blitCommandEncoder")                                         \
  F(encodeSignalEvent, "encodeSignalEvent:value:")                                    \
  F(encodeWaitForEvent, "encodeWaitForEvent:value:")                                  \
  F(addCompletedHandler, "addCompletedHandler:")                                      \
  F(commit, "commit")                                                                 \
  F(waitUntilCompleted, "waitUntilCompleted")                                         \
  F(status, "status")                                                                 \
  F(error, "error")                                                                   \
  F(GPUEndTime, "GPUEndTime")                                                         \
  F(signaledValue, "signaledValue")                                                   \
  F(setSignaledValue, "setSignaledValue:")                                            \
  /* encoders */                                                                      \
  F(endEncoding, "endEncoding")                                                       \
  F(setComputePipelineState, "setComputePipelineState:")                              \
  F(setBuffer, "setBuffer:offset:atIndex:")                                           \
  F(setBytes, "setBytes:length:atIndex:")                                             \
  F(dispatchThreadgroups, "dispatchThreadgroups:threadsPerThreadgroup:")              \
  F(copyFromBuffer, "copyFromBuffer:sourceOffset:toBuffer:destinationOffset:size:")   \
  F(fillBuffer, "fillBuffer:range:value:")

struct Selectors {
#define ANYACCEL_SELECTOR(member, text) Selector member = nullptr;
  ANYACCEL_METAL_SELECTORS(ANYACCEL_SELECTOR)
#undef ANYACCEL_SELECTOR
};

extern Api api;
extern Selectors sel;

// Sends a message. A message to null returns zero. Costs one indirect call.
template <class Result = void, class... Arguments>
Result send(Id object, Selector selector, Arguments... arguments) {
  using Method = Result (*)(Id, Selector, Arguments...);
  return reinterpret_cast<Method>(api.objc_msgSend)(object, selector, arguments...);
}

// Stands for @autoreleasepool: objects borrowed inside it are released at its end. Every function that sends messages
// has one, since the program's threads have no pool of their own.
class Pool {
 public:
  Pool() : pool_(api.objc_autoreleasePoolPush()) {}
  ~Pool() { api.objc_autoreleasePoolPop(pool_); }
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

 private:
  void* pool_;
};

// Owns one reference of an object.
class Owned {
 public:
  Owned() = default;
  // Takes over the reference that a method new..., alloc or copy returned.
  static Owned given(Id object) noexcept {
    Owned owned;
    owned.object_ = object;
    return owned;
  }
  // Retains a borrowed object.
  static Owned retained(Id object) { return given(object ? send<Id>(object, sel.retain) : nullptr); }
  ~Owned() { reset(); }
  Owned(const Owned& other) : Owned(retained(other.object_)) {}
  Owned(Owned&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  Owned& operator=(Owned other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }

  Id get() const noexcept { return object_; }
  explicit operator bool() const noexcept { return object_ != nullptr; }
  void reset() {
    if (object_) send(std::exchange(object_, nullptr), sel.release);
  }
  // Passes the reference to the caller.
  Id leave() noexcept { return std::exchange(object_, nullptr); }

 private:
  Id object_ = nullptr;
};

// Returns the text of an NSString; "" for null.
std::string text_of(Id string);
// Returns a borrowed NSString; `text` must not contain a zero byte. Throws AA_RESOURCE_EXHAUSTED if it cannot be
// created.
Id string_of(const std::string& text);
// Returns "the message of an NSError (code 8)"; `error` may be null.
std::string error_text(Id error);

// A block of one argument and one captured pointer, as clang lays it out (the Block ABI of LLVM's documentation). Metal
// copies it to keep it; the copy needs no helper functions, since only a pointer is captured.
class HandlerBlock {
 public:
  using Function = void (*)(void* context, Id argument);
  HandlerBlock(Function function, void* context);
  // Returns the block, to be passed to a method that takes one.
  void* get() noexcept { return &literal_; }

 private:
  struct Descriptor {
    unsigned long reserved;
    unsigned long size;
  };
  struct Literal {
    void* isa;
    int32_t flags;
    int32_t reserved;
    void (*invoke)(Literal* self, Id argument);
    const Descriptor* descriptor;
    Function function;
    void* context;
  };
  static const Descriptor descriptor_;
  Literal literal_;
};

}  // namespace anyaccel::mps
