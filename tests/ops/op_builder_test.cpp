// Op builders: names, recipes, loading, registration, and what they answer where there is nothing to load.
#include "anyaccel/op_builder.h"

#include <dlfcn.h>

#include "anyaccel/accelerator.h"
#include "anyaccel/detection.h"
#include "anyaccel/error.h"
#include "base/simd/cpu_features.h"
#include "ops/host/host_tensors.h"
#include "ops/op_build_support.h"
#include "runtime/builtins.h"

namespace anyaccel {
namespace {

namespace fs = std::filesystem;
using test::FolderBuilder;
using test::message_of;
using test::TemporaryFolder;
using test::Variable;

constexpr const char* sum_source = R"(
#include "anyaccel/op_source.h"
AA_OP void squares(float* x, int64_t count) {
  anyaccel::op::parallel_for(count, 16, 1, [=](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) x[i] = static_cast<float>(i) * static_cast<float>(i);
  });
}
AA_OP aa_status* refuse() { return anyaccel::op::failure(AA_OUT_OF_RANGE, "asked for 7, there are 3"); }
AA_OP int vector_bits() {
#if defined(__AVX512F__)
  return 512;
#elif defined(__AVX2__)
  return 256;
#else
  return 128;
#endif
}
#ifdef VALUE
AA_OP int value() { return VALUE; }
#endif
)";

class OpBuilderTest : public ::testing::Test {
 protected:
  OpBuilderTest() : cache("ANYACCEL_CACHE_DIR", (folder.path() / "cache").string()) {
    folder.write("squares.cpp", sum_source);
  }
  FolderBuilder builder(const std::string& name = "SquaresBuilder") const {
    return FolderBuilder(name, folder.path(), {"squares.cpp"});
  }
  TemporaryFolder folder;
  Variable cache;
};

class NamedBuilder : public HostOpBuilder {
 public:
  using HostOpBuilder::HostOpBuilder;
};

// DeepSpeed's class, NAME and BUILD_VAR of every builder, as its users type them.
TEST(OpBuilderNames, AreTheOriginals) {
  struct Names {
    const char *builder, *op_name, *build_var;
  };
  constexpr Names originals[] = {
      {"AsyncIOBuilder", "async_io", "DS_BUILD_AIO"},
      {"CCLCommBuilder", "deepspeed_ccl_comm", "DS_BUILD_CCL_COMM"},
      {"CPUAdagradBuilder", "cpu_adagrad", "DS_BUILD_CPU_ADAGRAD"},
      {"CPUAdamBuilder", "cpu_adam", "DS_BUILD_CPU_ADAM"},
      {"CPULionBuilder", "cpu_lion", "DS_BUILD_CPU_LION"},
      {"DeepCompileBuilder", "dc", "DS_BUILD_DEEP_COMPILE"},
      {"EvoformerAttnBuilder", "evoformer_attn", "DS_BUILD_EVOFORMER_ATTN"},
      {"FPQuantizerBuilder", "fp_quantizer", "DS_BUILD_FP_QUANTIZER"},
      {"FlashAttentionBuilder", "flash_attn", "DS_BUILD_FlashAttention"},
      {"FusedAdamBuilder", "fused_adam", "DS_BUILD_FUSED_ADAM"},
      {"FusedLambBuilder", "fused_lamb", "DS_BUILD_FUSED_LAMB"},
      {"FusedLionBuilder", "fused_lion", "DS_BUILD_FUSED_LION"},
      {"GDSBuilder", "gds", "DS_BUILD_GDS"},
      {"InferenceBuilder", "transformer_inference", "DS_BUILD_TRANSFORMER_INFERENCE"},
      {"InferenceCoreBuilder", "inference_core_ops", "DS_BUILD_INFERENCE_CORE_OPS"},
      {"InferenceCutlassBuilder", "cutlass_ops", "DS_BUILD_CUTLASS_OPS"},
      {"PackbitsBuilder", "pack_bits", "DS_BUILD_PACK_BITS"},
      {"PinMemoryBuilder", "pin_memory", "DS_BUILD_PIN_MEMORY"},
      {"QuantizerBuilder", "quantizer", "DS_BUILD_QUANTIZER"},
      {"RaggedOpsBuilder", "ragged_device_ops", "DS_BUILD_RAGGED_DEVICE_OPS"},
      {"RaggedUtilsBuilder", "ragged_ops", "DS_BUILD_RAGGED_OPS"},
      {"RandomLTDBuilder", "random_ltd", "DS_BUILD_RANDOM_LTD"},
      {"ShareMemCommBuilder", "deepspeed_shm_comm", "DS_BUILD_SHM_COMM"},
      {"SparseAttnBuilder", "sparse_attn", "DS_BUILD_SPARSE_ATTN"},
      {"SpatialInferenceBuilder", "spatial_inference", "DS_BUILD_SPATIAL_INFERENCE"},
      {"StochasticTransformerBuilder", "stochastic_transformer", "DS_BUILD_STOCHASTIC_TRANSFORMER"},
      {"TransformerBuilder", "transformer", "DS_BUILD_TRANSFORMER"},
      {"UtilsBuilder", "utils", "DS_BUILD_UTILS"},
  };
  std::vector<std::string> known = known_op_builders();
  for (const auto& [builder_name, op_name, build_var] : originals) {
    EXPECT_EQ(std::erase(known, builder_name), 1u) << builder_name << " is not known";
    const auto made = get_accelerator()->create_op_builder(builder_name);
    ASSERT_TRUE(made) << builder_name;
    EXPECT_EQ(made->name(), builder_name);
    EXPECT_EQ(made->op_name(), op_name);
    EXPECT_EQ(made->build_var(), build_var);
  }
  for (const std::string& name : known) {
    EXPECT_EQ(find_builtin_op_builder(name), nullptr) << name << " is missing above";
  }
}

TEST(OpBuilderNames, OfAPersonsOwnAreMadeOfTheClass) {
  EXPECT_EQ(NamedBuilder("MyScaleBuilder").op_name(), "my_scale");
  EXPECT_EQ(NamedBuilder("MyScaleBuilder").build_var(), "DS_BUILD_MY_SCALE");
  EXPECT_EQ(NamedBuilder("CPUThingBuilder").op_name(), "cpu_thing");
  EXPECT_EQ(NamedBuilder("ThingLTDBuilder").op_name(), "thing_ltd");
  EXPECT_EQ(NamedBuilder("Thing2Builder").op_name(), "thing2");
}

TEST_F(OpBuilderTest, BuildsLoadsAndCalls) {
  FolderBuilder squares = builder();
  EXPECT_TRUE(squares.is_compatible());
  EXPECT_FALSE(squares.is_built());
  auto library = squares.load_as<HostOpLibrary>();
  EXPECT_TRUE(squares.is_built());
  std::vector<float> x(1000, -1.0f);
  library->function<void(float*, int64_t)>("squares")(x.data(), 1000);
  for (int i = 0; i < 1000; ++i) ASSERT_EQ(x[static_cast<size_t>(i)], static_cast<float>(i) * static_cast<float>(i));
  EXPECT_EQ(squares.load(), library) << "a second load gives the same object";
  EXPECT_EQ(squares.jit_load(), library);
  EXPECT_EQ(library->find("nothing"), nullptr);
  EXPECT_NE(message_of<InvalidArgument>([&] { library->function<void()>("nothing"); }).find("nothing"),
            std::string::npos);
}

TEST_F(OpBuilderTest, AHeaderThatChangesInALifetimeIsReadAgain) {
  folder.write("squares.cpp",
               "#include \"anyaccel/op_source.h\"\n#include \"number.h\"\nAA_OP int number() { return NUMBER; }\n");
  FolderBuilder squares("SquaresBuilder", folder.path(), {"squares.cpp"});
  for (const int number : {1, 2, 1}) {
    folder.write("number.h", "#define NUMBER " + std::to_string(number) + "\n");
    EXPECT_EQ(squares.load_as<HostOpLibrary>()->function<int()>("number")(), number);
  }
}

TEST_F(OpBuilderTest, AnOpsStatusBecomesAnException) {
  auto library = builder().load_as<HostOpLibrary>();
  auto* refuse = library->function<aa_status*()>("refuse");
  const std::string message = message_of<InvalidArgument>([&] { throw_if_failed(refuse(), "refuse"); });
  EXPECT_NE(message.find("asked for 7"), std::string::npos) << message;
}

TEST_F(OpBuilderTest, IsCompiledForTheInstructionSetInUse) {
  const cpu::Isa before = cpu::isa();
  for (const auto& [isa, bits] :
       {std::pair(cpu::Isa::Baseline, 128), std::pair(cpu::Isa::Avx2, 256), std::pair(cpu::Isa::Avx512, 512)}) {
    if (!cpu::is_isa_available(isa)) continue;
    cpu::set_isa(isa);
    EXPECT_EQ(builder().load_as<HostOpLibrary>()->function<int()>("vector_bits")(), bits);
  }
  cpu::set_isa(before);
}

TEST_F(OpBuilderTest, HonoursTheEnvironment) {
  const Variable flags("CFLAGS", "-DVALUE=7 '-DTEXT=a b'");
  const BuildPlan plan = builder("ValueBuilder").builder();
  EXPECT_NE(std::find(plan.cxx_args.begin(), plan.cxx_args.end(), "-DTEXT=a b"), plan.cxx_args.end());
  EXPECT_EQ(builder("ValueBuilder").load_as<HostOpLibrary>()->function<int()>("value")(), 7);
  const Variable compiler("CXX", "/no/such/compiler");
  std::string reason;
  EXPECT_FALSE(FolderBuilder("UnbuiltBuilder", folder.path(), {"squares.cpp"}).is_compatible(&reason));
  EXPECT_NE(reason.find("/no/such/compiler"), std::string::npos) << reason;
  const Variable unquoted("CFLAGS", "-DA='b");
  EXPECT_FALSE(FolderBuilder("UnbuiltBuilder", folder.path(), {"squares.cpp"}).is_compatible(&reason));
  EXPECT_NE(reason.find("CFLAGS is '-DA='b': its quotation does not end"), std::string::npos) << reason;
}

TEST_F(OpBuilderTest, ALibraryThatDoesNotLoadHereIsBuiltAnew) {
  // As a cache that came from another machine: everything fits, but the loader refuses the file.
  folder.write("squares.cpp",
               "extern \"C\" int missing_here();\nextern \"C\" __attribute__((visibility(\"default\"))) "
               "int call() { return missing_here(); }\n");
  const std::string message = message_of<BuildError>([&] { builder("BrokenBuilder").load(); });
  EXPECT_NE(message.find("missing_here"), std::string::npos) << message;
  // It stays an error the next time, with the library in the cache.
  EXPECT_NE(message_of<BuildError>([&] { builder("BrokenBuilder").load(); }).find("missing_here"), std::string::npos);
}

TEST_F(OpBuilderTest, AMissingSourceSaysWhereItWasLookedFor) {
  FolderBuilder lost("LostBuilder", folder.path(), {"lost.cpp"});
  std::string reason;
  EXPECT_FALSE(lost.is_compatible(&reason));
  EXPECT_NE(reason.find((folder.path() / "lost.cpp").string()), std::string::npos) << reason;
  EXPECT_THROW(lost.load(), UnavailableError);
}

TEST_F(OpBuilderTest, CudaSourcesGoToNvcc) {
  folder.write("device.cu",
               "__global__ void kernel(float* x) { x[threadIdx.x] = 1; }\n"
               "extern \"C\" __attribute__((visibility(\"default\"))) int compiled_by_nvcc() {\n"
               "#ifdef __CUDACC__\n  return 1;\n#else\n  return 0;\n#endif\n}\n");
  FolderBuilder device("DeviceBuilder", folder.path(), {"squares.cpp", "device.cu"});
  {
    const Variable list("TORCH_CUDA_ARCH_LIST", "9.0;volta");
    EXPECT_NE(message_of<InvalidArgument>([&] { device.builder(); }).find("volta"), std::string::npos);
  }
  {
    const Variable home("CUDA_HOME", "/no/such/toolkit");
    std::string reason;
    EXPECT_FALSE(device.is_compatible(&reason));
    EXPECT_NE(reason.find("/no/such/toolkit/bin/nvcc"), std::string::npos) << reason;
  }
  if (!OpBuilder::command_exists("nvcc|/usr/local/cuda/bin/nvcc")) GTEST_SKIP() << "there is no nvcc on this machine";
  const Variable list("TORCH_CUDA_ARCH_LIST", "8.0 9.0a+PTX");
  const BuildPlan plan = device.builder();
  const std::vector<std::string> expected = {"-gencode=arch=compute_80,code=sm_80",
                                             "-gencode=arch=compute_90a,code=sm_90a",
                                             "-gencode=arch=compute_90a,code=compute_90a"};
  EXPECT_EQ(plan.nvcc_args, expected);
  EXPECT_EQ(device.load_as<HostOpLibrary>()->function<int()>("compiled_by_nvcc")(), 1);
}

TEST_F(OpBuilderTest, AsksTheMachine) {
  EXPECT_TRUE(OpBuilder::command_exists("no-such-program-here|sh"));
  EXPECT_FALSE(OpBuilder::command_exists("no-such-program-here|nor-this"));
  EXPECT_TRUE(OpBuilder::has_function("cosf", {"m"}));
  EXPECT_FALSE(OpBuilder::has_function("surely_not_a_function", {"m"}));
  EXPECT_FALSE(OpBuilder::has_function("cosf", {"no_such_library_here"}));
  EXPECT_THROW(OpBuilder::has_function("a(); system(\"x\"", {}), InvalidArgument);
}

struct RegisteredSquaresBuilder : HostOpBuilder {
  RegisteredSquaresBuilder() : HostOpBuilder("RegisteredSquaresBuilder") {}
  std::vector<std::string> sources() const override { return {"squares.cpp"}; }
};
AA_REGISTER_OP_BUILDER(RegisteredSquaresBuilder)

TEST(OpBuilderRegistry, KnowsBuildersOfTheProgram) {
  auto accelerator = make_accelerator("cpu");
  auto own = accelerator->create_op_builder("RegisteredSquaresBuilder");
  ASSERT_NE(own, nullptr);
  // Relative to the program that defines the class.
  EXPECT_EQ(own->folder(), fs::read_symlink("/proc/self/exe").parent_path().string());
  ASSERT_TRUE(accelerator->get_op_builder("RegisteredSquaresBuilder"));
  EXPECT_EQ(accelerator->get_op_builder("RegisteredSquaresBuilder")()->name(), "RegisteredSquaresBuilder");
  const auto names = known_op_builders();
  EXPECT_NE(std::find(names.begin(), names.end(), "RegisteredSquaresBuilder"), names.end());
  for (const char* taken : {"RegisteredSquaresBuilder", "CPUAdamBuilder"}) {
    EXPECT_NE(message_of<InvalidArgument>([&] {
                register_op_builder(taken, [](Accelerator&) { return std::unique_ptr<OpBuilder>(); });
              }).find(taken),
              std::string::npos);
  }
}

TEST(OpBuilderRegistry, UnknownNamesGiveNothing) {
  auto accelerator = make_accelerator("cpu");
  EXPECT_EQ(accelerator->create_op_builder("NoSuchBuilder"), nullptr);
  EXPECT_FALSE(accelerator->get_op_builder("NoSuchBuilder"));
}

TEST(OpBuilderRegistry, KnownNamesWithoutAnOpSaySoByName) {
  for (const char* accelerator_name : {"cpu", "null"}) {
    auto accelerator = make_accelerator(accelerator_name);
    for (const BuiltinOpBuilder& missing : builtin_op_builders()) {
      if (missing.make) continue;
      const char* name = missing.name;
      auto builder = accelerator->create_op_builder(name);
      ASSERT_NE(builder, nullptr) << name;
      std::string reason;
      EXPECT_FALSE(builder->is_compatible(&reason));
      const std::string message = message_of<NotImplementedError>([&] { builder->load(); });
      EXPECT_EQ(message, reason);
      EXPECT_NE(message.find(name), std::string::npos) << message;
      EXPECT_NE(message.find(accelerator_name), std::string::npos) << message;
    }
  }
}

TEST(OpBuilderRegistry, DeepCompileSaysWhyItIsNotThere) {
  auto accelerator = make_accelerator("cpu");
  const auto builder = accelerator->create_op_builder("DeepCompileBuilder");
  std::string reason;
  EXPECT_FALSE(builder->is_compatible(&reason));
  EXPECT_EQ(message_of<NotImplementedError>([&] { builder->load(); }), reason);
  EXPECT_NE(reason.find("graphs"), std::string::npos) << reason;
}

TEST(HostTensors, AreUsedInPlaceOrCopiedThereAndBack) {
  auto cpu = make_accelerator("cpu");
  const Tensor on_cpu = Tensor::zeros({4}, DType::F32, cpu->device());
  const ops::HostTensor in_place[] = {{&on_cpu, ops::HostUse::InOut}};
  ops::run_on_host(*cpu, "test", in_place, [&](std::span<Tensor> tensors) {
    EXPECT_EQ(tensors[0].data(), on_cpu.data());
    tensors[0].data_as<float>()[2] = 5;
  });
  EXPECT_EQ(on_cpu.to_vector<float>(), (std::vector<float>{0, 0, 5, 0}));
}

}  // namespace
}  // namespace anyaccel
