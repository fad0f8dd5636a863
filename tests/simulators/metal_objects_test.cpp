// The simulated Objective-C runtime and Foundation: messages, reference counts, autorelease pools, strings, blocks.
#include <thread>

#include "tests/simulators/metal_face.h"

namespace sim_test {
namespace {

class MetalObjects : public MetalFace {};

void load() { library("apple/Metal"); }

TEST_F(MetalObjects, AWellBehavedProgramLeavesACleanReport) {
  const auto report = run([] {
    load();
    CHECK_EQUAL(1, call("apple/Metal", "metal_is_simulator"));
    const Pool pool;
    const Id hello = string("h\xc3\xa4llo");
    CHECK_EQUAL(5, send<UInteger>(hello, "length"));
    CHECK_EQUAL(6, send<UInteger>(hello, "lengthOfBytesUsingEncoding:", UInteger{4}));
    CHECK(text(hello) == "h\xc3\xa4llo");
    CHECK(string("\xff") == nullptr);
    const Id other = send(send(class_named("NSString"), "alloc"), "initWithUTF8String:", "h\xc3\xa4llo");
    CHECK(send<bool>(hello, "isEqualToString:", other));
    CHECK_EQUAL(1, send<UInteger>(other, "retainCount"));
    retain(other);
    objc<void>("objc_release", other);
    let_go(other);
    CHECK(std::string(objc<const char*>("object_getClassName", hello)) == "NSString");
    CHECK(send<bool>(hello, "respondsToSelector:", sel("UTF8String")));
    CHECK(!send<bool>(hello, "respondsToSelector:", sel("commandBuffer")));
    CHECK(send<bool>(hello, "isKindOfClass:", class_named("NSObject")));
    // Protocols are no classes.
    CHECK(class_named("MTLDevice") == nullptr && class_named("MTLCompileOptions") != nullptr);
    struct Version {
      long major, minor, patch;
    };
    const auto version = send<Version>(send(class_named("NSProcessInfo"), "processInfo"), "operatingSystemVersion");
    CHECK_EQUAL(15, version.major);
    CHECK(send<bool>(send(class_named("NSProcessInfo"), "processInfo"),
                     "isOperatingSystemAtLeastVersion:", Version{14, 4, 0}));
    const Id dictionary = send(class_named("NSMutableDictionary"), "dictionary");
    send<void>(dictionary, "setObject:forKey:", send(class_named("NSNumber"), "numberWithInt:", 7), string("seven"));
    CHECK_EQUAL(7, send<int>(send(dictionary, "objectForKey:", string("seven")), "intValue"));
    const Id inner = send(send(class_named("NSAutoreleasePool"), "alloc"), "init");
    string("gone with the inner pool");
    send<void>(inner, "drain");
  });
  EXPECT_EQ(kinds(report), "");
  EXPECT_EQ(report.at("leaks"), nlohmann::json::array());
  EXPECT_EQ(report.at("calls").at("stringWithUTF8String:"), 5);
}

TEST_F(MetalObjects, NilAnswersEveryMessageWithNothing) {
  expect_clean([] {
    load();
    CHECK(send(nullptr, "commandBuffer") == nullptr);
    CHECK(send<double>(nullptr, "GPUStartTime") == 0.0);
    CHECK(objc("objc_retain", static_cast<Id>(nullptr)) == nullptr);
    CHECK(class_named("NSNothing") == nullptr);
  });
}

TEST_F(MetalObjects, ClassesComeWithTheLibraryMetal) {
  expect_clean([] {
    CHECK(class_named("NSObject") != nullptr);
    CHECK(class_named("NSString") == nullptr);
    load();
    CHECK(class_named("NSString") != nullptr);
  });
}

TEST_F(MetalObjects, FindsWhatIsDoneToDeallocatedObjects) {
  EXPECT_EQ(kinds_of([] {
              load();
              const Id object = send(class_named("NSObject"), "new");
              let_go(object);
              CHECK(send(object, "description") == nullptr);
              let_go(object);
              objc<void>("objc_release", object);
              objc("objc_retain", object);
            }),
            "use-after-free,double-free,use-after-free,use-after-free");
}

TEST_F(MetalObjects, AnObjectReleasedOnceTooOftenDiesInItsPool) {
  EXPECT_EQ(kinds_of([] {
              load();
              const Pool pool;
              let_go(string("the pool owns it"));
            }),
            "double-free");
}

TEST_F(MetalObjects, AutoreleaseWantsAPool) {
  const auto report = run([] {
    load();
    string("nobody's");
  });
  EXPECT_EQ(kinds(report), "no-pool");
  EXPECT_EQ(report.at("leaks").size(), 1U);
  EXPECT_EQ(kinds_of([] {
              load();
              std::thread([] { string("until the thread ends"); }).join();
            }),
            "no-pool");
}

TEST_F(MetalObjects, PoolsAreOfOneThreadAndPoppedOnce) {
  EXPECT_EQ(kinds_of([] {
              load();
              const Id outer = objc("objc_autoreleasePoolPush"), inner = objc("objc_autoreleasePoolPush");
              std::thread([&] { objc<void>("objc_autoreleasePoolPop", inner); }).join();
              objc<void>("objc_autoreleasePoolPop", outer);
              objc<void>("objc_autoreleasePoolPop", inner);
            }),
            "pool-state,pool-state");
}

TEST_F(MetalObjects, LeaksAreReported) {
  const auto report = run([] {
    load();
    send(class_named("NSObject"), "new");
    const Pool pool;
    retain(string("kept"));
  });
  EXPECT_EQ(kinds(report), "");
  EXPECT_EQ(report.at("leaks").size(), 2U);
}

TEST_F(MetalObjects, MessagesThatNobodyUnderstands) {
  EXPECT_EQ(kinds_of([] {
              load();
              const Pool pool;
              const Id text = string("text");
              CHECK(send(text, "newCommandQueue") == nullptr);
              CHECK(send(class_named("NSString"), "newCommandQueue") == nullptr);
              int no_object = 0;
              CHECK(send(&no_object, "length") == nullptr);
              // The selector as plain text.
              const char unregistered[] = "length";
              CHECK(objc("objc_msgSend", text, static_cast<const char*>(unregistered)) == nullptr);
              // A protocol's object cannot be made, and dealloc is not sent.
              send<void>(text, "dealloc");
            }),
            "unrecognized-selector,unrecognized-selector,bad-handle,bad-argument,bad-free");
}

TEST_F(MetalObjects, StructsInMemoryComeByStret) {
  EXPECT_EQ(kinds_of([] {
              const Pool pool;
              Metal metal;
              CHECK_EQUAL(1024, send<Size>(metal.device, "maxThreadsPerThreadgroup").width);
              // As a program for arm64 would.
              objc("objc_msgSend", metal.device, sel("maxThreadsPerThreadgroup"));
              Size size{};
              objc("objc_msgSend_stret", &size, metal.device, sel("name"));
              metal.close();
            }),
            "bad-argument,bad-argument");
}

TEST_F(MetalObjects, ElementsOutsideOfAnArray) {
  EXPECT_EQ(kinds_of([] {
              const Id devices = call<Id>("apple/Metal", "MTLCopyAllDevices");
              CHECK_EQUAL(2, send<UInteger>(devices, "count"));
              CHECK(send(devices, "objectAtIndex:", UInteger{2}) == nullptr);
              let_go(devices);
            }),
            "out-of-bounds");
}

TEST_F(MetalObjects, BlocksAreCheckedAndCopied) {
  EXPECT_EQ(kinds_of([] {
              load();
              static int calls = 0;
              TestBlock on_stack = block([](TestBlock*, Id, std::uint64_t) { ++calls; }, nullptr);
              auto* copy = static_cast<TestBlock*>(objc("_Block_copy", static_cast<Id>(&on_stack)));
              CHECK(copy != &on_stack && copy->isa == objc_symbol("_NSConcreteMallocBlock"));
              CHECK(objc("_Block_copy", static_cast<Id>(copy)) == copy);
              copy->invoke(copy, nullptr, 0);
              CHECK_EQUAL(1, calls);
              objc<void>("_Block_release", static_cast<Id>(copy));
              objc<void>("_Block_release", static_cast<Id>(copy));
              TestBlock global = on_stack;
              global.isa = objc_symbol("_NSConcreteGlobalBlock");
              CHECK(objc("_Block_copy", static_cast<Id>(&global)) == nullptr);  // without the flag for it
              global.flags = 1 << 28;
              CHECK(objc("_Block_copy", static_cast<Id>(&global)) == &global);
              TestBlock unknown = on_stack;
              unknown.isa = &calls;
              CHECK(objc("_Block_copy", static_cast<Id>(&unknown)) == nullptr);
            }),
            "bad-argument,bad-handle");
}

TEST_F(MetalObjects, OlderSystemsLackMethodsAndClasses) {
  EXPECT_EQ(kinds_of(
                [] {
                  const Pool pool;
                  Metal metal;
                  CHECK(class_named("MTLResidencySetDescriptor") == nullptr);
                  CHECK(!send<bool>(metal.queue, "respondsToSelector:", sel("addResidencySet:")));
                  const Id memory = buffer(metal, 16);
                  CHECK(!send<bool>(memory, "respondsToSelector:", sel("gpuAddress")));
                  send<std::uint64_t>(memory, "gpuAddress");
                  let_go(memory);
                  metal.close();
                },
                {{"SIM_MACOS_VERSION", "12.6"}}),
            "unrecognized-selector");
}

}  // namespace
}  // namespace sim_test
