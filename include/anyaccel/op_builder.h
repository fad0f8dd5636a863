// Op builders load a library of ops, given its name, on the active accelerator.
//
//   auto library = get_accelerator()->create_op_builder("CPUAdamBuilder")->load_as<ops::CPUAdam>();
//
// Some op libraries are part of anyaccel's own. The others are C++ sources that are compiled on the machine where they
// run, for its instruction set, and kept in the op builders' cache (in ANYACCEL_CACHE_DIR, else
// $XDG_CACHE_HOME/anyaccel, else ~/.cache/anyaccel). To add an op of your own, derive a class from HostOpBuilder that
// names its sources; see examples/custom_op.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "anyaccel/abi/base.h"
#include "anyaccel/package_path.h"

namespace anyaccel {

class Accelerator;

// Threads: any threads may create builders and load libraries at once (two that load the same op wait for one build); a
// builder object belongs to one thread at a time, except for load() and jit_load(). Several threads may call functions
// of a loaded library at once, each on its own tensors; the state that a library keeps for one optimizer belongs to one
// thread at a time.

// A loaded library of ops. Programs cast it to its wrapper class: ops::Inference for "InferenceBuilder".
class OpLibrary {
 public:
  virtual ~OpLibrary() = default;
};

// Throws the exception that corresponds to a status and releases the status; does nothing for null, which is success.
// For ops that return aa_status*. `what` names the op in the message.
void throw_if_failed(aa_status* status, const char* what);

// The functions of a shared library that was built from a host op's sources. It stays loaded until the process ends.
class HostOpLibrary : public OpLibrary {
 public:
  // `handle` comes from dlopen; `file` is used in messages.
  HostOpLibrary(void* handle, std::string file) : handle_(handle), file_(std::move(file)) {}

  const std::string& file() const noexcept { return file_; }
  // Returns the address of an exported function; null if there is none with that name.
  void* find(const char* function) const noexcept;
  // The same, typed: function<void(float*, int64_t)>("scale"). The signature is not checked. Throws InvalidArgument,
  // naming function and library, if there is none.
  template <class Signature>
  Signature* function(const char* name) const {
    return reinterpret_cast<Signature*>(require(name));
  }

 private:
  void* require(const char* name) const;
  void* handle_;
  std::string file_;
};

// The inputs of a build, every path absolute, every flag final; OpBuilder::builder() returns them.
struct BuildPlan {
  std::string op_name;
  std::vector<std::string> sources;        // *.cpp, *.cc, *.c; *.cu goes to nvcc
  std::vector<std::string> include_paths;  // the builder's, then anyaccel's
  std::vector<std::string> cxx_args;       // for C++ sources, the target's flags and CFLAGS, CXXFLAGS included
  std::vector<std::string> nvcc_args;      // for *.cu
  std::vector<std::string> ldflags;        // LDFLAGS included
  std::string target;                      // instruction set: "avx512", "avx2", "baseline"
  std::string compiler;                    // command for C and C++; empty: CXX, else c++, g++ or clang++
};

class OpBuilder {
 public:
  virtual ~OpBuilder() = default;
  // Returns a name such as "InferenceBuilder".
  virtual const std::string& name() const noexcept = 0;
  // Returns DeepSpeed's NAME of the builder, such as "transformer_inference", which is also the folder in the cache.
  // For a user-defined builder the default is derived from name(): "MyScaleBuilder" gives "my_scale".
  virtual std::string op_name() const;
  // Returns the environment variable that forces (1) or forbids (0) building it ahead of time, DeepSpeed's BUILD_VAR:
  // "DS_BUILD_AIO". For a user-defined builder "DS_BUILD_" and op_name() in capitals.
  virtual std::string build_var() const;
  // True when load() can succeed here; if not, `reason`, if given, receives the reason.
  virtual bool is_compatible(std::string* reason = nullptr) const = 0;
  // True when load() needs no compiler: the op is part of this library, prebuilt, or in the cache.
  virtual bool is_built() const { return is_compatible(); }
  // Loads the library, building it first if necessary, which takes seconds. Builders of host ops return the same object
  // while someone holds it. Thread-safe. Throws NotImplementedError, which names the op and the accelerator, if there
  // is no implementation; UnavailableError for a source, library or compiler that is missing or that other users could
  // modify; and BuildError with the compiler's output.
  virtual std::shared_ptr<OpLibrary> load() = 0;
  // The same, but ignores a prebuilt library: it comes from the cache, or is compiled now.
  virtual std::shared_ptr<OpLibrary> jit_load() { return load(); }

  // Return the sources and include folders for the build; empty lists for an op that is part of this library. Relative
  // paths are relative to folder().
  virtual std::vector<std::string> sources() const { return {}; }
  virtual std::vector<std::string> include_paths() const { return {}; }
  virtual std::vector<std::string> cxx_args() const { return {}; }
  virtual std::vector<std::string> nvcc_args() const { return {}; }
  virtual std::vector<std::string> extra_ldflags() const { return {}; }
  // Returns the folder that relative paths start from: that of the shared library or program in which the builder's
  // class is defined.
  virtual std::string folder() const;
  // Returns the complete recipe. Throws UnavailableError if a source is missing.
  virtual BuildPlan builder() const;
  // Makes the recipe begin with the accelerator's build_extension(): its compiler, flags and folders, followed by this
  // builder's own. create_op_builder() does so for builders that are not anyaccel's own. The accelerator must outlive
  // the builder.
  void build_for(const Accelerator& accelerator) { accelerator_ = &accelerator; }

  // Calls load() and casts the result to the wrapper class. Throws InvalidArgument if the library is of another class.
  template <class Wrapper>
  std::shared_ptr<Wrapper> load_as() {
    auto wrapper = std::dynamic_pointer_cast<Wrapper>(load());
    if (!wrapper) throw_wrong_wrapper();
    return wrapper;
  }

  // True when one of the programs, separated by '|', is in PATH: "clang++|g++".
  static bool command_exists(std::string_view names);
  // True when a program that calls the C function links with the libraries ("uring" for -luring), compiled with CFLAGS
  // and LDFLAGS; false without a compiler. Throws InvalidArgument for a name that is not an identifier.
  static bool has_function(const std::string& function, const std::vector<std::string>& libraries,
                           const std::vector<std::string>& library_dirs = {});

 private:
  [[noreturn]] void throw_wrong_wrapper() const;
  const Accelerator* accelerator_ = nullptr;  // null: the recipe begins with the host's toolchain
};

// An op in C++ that is compiled where it runs. Its functions are those marked AA_OP (anyaccel/op_source.h).
//
//   struct ScaleBuilder : anyaccel::HostOpBuilder {
//     ScaleBuilder() : HostOpBuilder("ScaleBuilder") {}
//     std::vector<std::string> sources() const override { return {"scale.cpp"}; }
//   };
//   AA_REGISTER_OP_BUILDER(ScaleBuilder)
class HostOpBuilder : public OpBuilder {
 public:
  explicit HostOpBuilder(std::string name) : name_(std::move(name)) {}

  const std::string& name() const noexcept override { return name_; }
  // True when the built library exists, or the sources and a compiler do.
  bool is_compatible(std::string* reason = nullptr) const override;
  bool is_built() const override;
  std::shared_ptr<OpLibrary> load() override;
  std::shared_ptr<OpLibrary> jit_load() override;
  // "-std=c++20", "-O3", "-fno-math-errno", ...
  std::vector<std::string> cxx_args() const override;
  // Wraps loaded functions in the op's class; by default returns them unchanged.
  virtual std::shared_ptr<OpLibrary> make_library(std::shared_ptr<HostOpLibrary> code) { return code; }

 protected:
  // Returns the absolute path of a prebuilt library to load; empty, the default, for none.
  virtual std::string ready_library() const { return {}; }
  // Returns the object that, together with the builder's name, identifies a wrapper: load() returns the same wrapper
  // for the same context.
  virtual const void* wrapper_context() const { return nullptr; }

 private:
  std::shared_ptr<OpLibrary> wrapper_of(std::shared_ptr<HostOpLibrary> code);
  std::string name_;
};

// Returns every builder name that anyaccel knows ("CPUAdamBuilder", ...), whether or not an accelerator has it yet, and
// those that were registered. Accelerator::op_builder_names() adds those of the accelerator's driver.
std::vector<std::string> known_op_builders();

// Registers a builder of the program or an extension with create_op_builder() and build-ops. Throws InvalidArgument if
// the name is taken.
void register_op_builder(const std::string& builder_name, std::function<std::unique_ptr<OpBuilder>(Accelerator&)> make);

// Registers a class with a default constructor when the program or library that contains it is loaded. The class's name
// is the builder's.
#define AA_REGISTER_OP_BUILDER(Class)                                                                                \
  namespace {                                                                                                        \
  [[maybe_unused]] const bool aa_registered_##Class = [] {                                                           \
    ::anyaccel::register_op_builder(#Class, [](::anyaccel::Accelerator&) -> std::unique_ptr<::anyaccel::OpBuilder> { \
      return std::make_unique<Class>();                                                                              \
    });                                                                                                              \
    return true;                                                                                                     \
  }();                                                                                                               \
  }

}  // namespace anyaccel
