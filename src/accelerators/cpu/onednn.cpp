// Implements onednn.h: opens oneDNN, version 2 or 3, and runs its bf16 product.
#include "accelerators/cpu/onednn.h"

#include <dlfcn.h>

#include <array>
#include <atomic>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "accelerators/cpu/kernels/scratch.h"
#include "accelerators/cpu/onednn_api.h"
#include "anyaccel/error.h"
#include "anyaccel/log.h"

namespace anyaccel::cpu::onednn {
namespace {

using namespace api;

// In the order in which they are looked for. Debian 13 puts the minor version into the name; the last is the development package's
// link, which finds the library under any further name.
constexpr std::array kFileNames = {"libdnnl.so.3", "libdnnl.so.3.6", "libdnnl.so.2", "libdnnl.so"};

// The functions in use.
#define AA_ONEDNN_FUNCTIONS(X)               \
  X(dnnl_version)                            \
  X(dnnl_get_effective_cpu_isa)              \
  X(dnnl_engine_create)                      \
  X(dnnl_engine_destroy)                     \
  X(dnnl_stream_create)                      \
  X(dnnl_stream_destroy)                     \
  X(dnnl_memory_desc_get_size)               \
  X(dnnl_primitive_attr_create)              \
  X(dnnl_primitive_attr_destroy)             \
  X(dnnl_primitive_attr_set_scratchpad_mode) \
  X(dnnl_primitive_desc_destroy)             \
  X(dnnl_primitive_desc_query_md)            \
  X(dnnl_primitive_create)                   \
  X(dnnl_primitive_destroy)                  \
  X(dnnl_primitive_execute)                  \
  X(dnnl_memory_create)                      \
  X(dnnl_memory_destroy)                     \
  X(dnnl_memory_set_data_handle)
#define AA_ONEDNN_2_FUNCTIONS(X)      \
  X(dnnl_memory_desc_init_by_strides) \
  X(dnnl_matmul_desc_init)            \
  X(dnnl_primitive_desc_create)
#define AA_ONEDNN_3_FUNCTIONS(X)          \
  X(dnnl_memory_desc_create_with_strides) \
  X(dnnl_memory_desc_destroy)             \
  X(dnnl_matmul_primitive_desc_create)

class Product;

// The library once it is open; never closed.
struct Opened {
  Library library;
  int major = 0;  // version: 2 or 3
#define AA_MEMBER(name) decltype(&api::name) name = nullptr;
  AA_ONEDNN_FUNCTIONS(AA_MEMBER)
  AA_ONEDNN_2_FUNCTIONS(AA_MEMBER)  // null in version 3
  AA_ONEDNN_3_FUNCTIONS(AA_MEMBER)  // null in version 2
#undef AA_MEMBER
  // Functions of the OpenMP library that this oneDNN uses; null if it was built without threads.
  void (*omp_set_num_threads)(int) = nullptr;
  int (*omp_get_max_threads)() = nullptr;
  dnnl_engine_t engine = nullptr;
  dnnl_stream_t stream = nullptr;

  std::mutex mutex;
  std::list<std::shared_ptr<Product>> products;  // mutex; the most recently used first

  Opened() = default;
  Opened(const Opened&) = delete;
  Opened& operator=(const Opened&) = delete;
  ~Opened();
};

void check(const Opened& dnnl, dnnl_status_t status, const char* what) {
  if (status == dnnl_success) return;
  const std::string message = "oneDNN " + dnnl.library.version + ": " + what + " failed with status " +
                              std::to_string(status) + "; ANYACCEL_CPU_MATMUL=own does without it";
  if (status == dnnl_unimplemented) throw NotImplementedError(message);
  if (status == dnnl_out_of_memory) throw OutOfMemoryError(message, status);
  throw Error(message, AA_INTERNAL, status);
}

// Opens the file; the reason stays empty on success.
std::string open_library(Opened& dnnl, const char* file_name) {
  const std::string file = file_name;
  void* handle = dlopen(file_name, RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* error = dlerror();
    return "oneDNN: " + file + " cannot be opened (" + (error ? error : "no reason given") + ")";
  }
#define AA_FIND(name)                                                      \
  dnnl.name = reinterpret_cast<decltype(dnnl.name)>(dlsym(handle, #name)); \
  if (dnnl.name == nullptr) {                                              \
    return "oneDNN: " + file + " has no function " #name;                  \
  }
  AA_ONEDNN_FUNCTIONS(AA_FIND)
  const dnnl_version_t& version = *dnnl.dnnl_version();
  const std::string number =
      std::to_string(version.major) + "." + std::to_string(version.minor) + "." + std::to_string(version.patch);
  if (version.major != 3 && (version.major != 2 || version.minor < 6)) {
    return "oneDNN: " + file + " is version " + number + "; 2.6, a later 2.x or 3.x is needed";
  }
  dnnl.major = version.major;
  if (dnnl.major == 3) {
    AA_ONEDNN_3_FUNCTIONS(AA_FIND)
  } else {
    AA_ONEDNN_2_FUNCTIONS(AA_FIND)
  }
#undef AA_FIND
  // Looked up through oneDNN's own dependencies: the process may have another OpenMP library as well.
  dnnl.omp_set_num_threads = reinterpret_cast<void (*)(int)>(dlsym(handle, "omp_set_num_threads"));
  dnnl.omp_get_max_threads = reinterpret_cast<int (*)()>(dlsym(handle, "omp_get_max_threads"));
  const bool omp = dnnl.omp_set_num_threads != nullptr && dnnl.omp_get_max_threads != nullptr;
  if (version.cpu_runtime != kRuntimeSeq && !(version.cpu_runtime == kRuntimeOmp && omp)) {
    return "oneDNN: " + file + " " + number + " has a threading runtime (" + std::to_string(version.cpu_runtime) +
           ") that cannot be kept to one thread; a build with OpenMP, such as Debian's, is needed";
  }
  dnnl.library.version = number + ", instruction set " + std::to_string(dnnl.dnnl_get_effective_cpu_isa());
  if (dnnl.dnnl_engine_create(&dnnl.engine, dnnl_cpu, 0) != dnnl_success ||
      dnnl.dnnl_stream_create(&dnnl.stream, dnnl.engine, dnnl_stream_default_flags) != dnnl_success) {
    return "oneDNN: " + file + " " + number + " does not give an engine for the CPU";
  }
  return "";
}

std::atomic<Opened*> opened{nullptr};
std::atomic<const char*> file_to_open{nullptr};  // null: the first of kFileNames that is usable

Opened& open() {
  Opened* dnnl = opened.load(std::memory_order_acquire);
  if (dnnl != nullptr) return *dnnl;
  std::unique_ptr<Opened> fresh;
  const auto try_file = [&fresh](const char* file) {
    // Keeps the reason of a file that was tried before.
    std::string reason = fresh ? fresh->library.reason + "; " : "";
    fresh = std::make_unique<Opened>();
    const std::string found = open_library(*fresh, file);
    fresh->library.usable = found.empty();
    if (fresh->library.usable) return true;
    fresh->library.version.clear();
    fresh->library.reason = reason + found;
    return false;
  };
  if (const char* file = file_to_open.load()) {
    try_file(file);
  } else {
    for (const char* name : kFileNames) {
      if (try_file(name)) break;
    }
  }
  if (!fresh->library.usable) {
    fresh->library.reason +=
        "; install its package (Debian 12: libdnnl2, Debian 13: libdnnl3.6, Ubuntu 24.04: libdnnl3)";
  }
  // Without a lock, which a child after fork() might find locked: if two threads open the library, one result is
  // discarded.
  if (!opened.compare_exchange_strong(dnnl, fresh.get(), std::memory_order_acq_rel)) return *dnnl;
  log_debug(fresh->library.usable ? "oneDNN " + fresh->library.version + " is there" : fresh->library.reason);
  return *fresh.release();
}

// The code for one shape, and the objects that hold the addresses of its operands: one set for each thread that runs
// it.
class Product {
 public:
  Product(Opened& dnnl, const Shape& shape) : shape_(shape), dnnl_(dnnl) {
    const dnnl_dims_t x_dims = {shape.m, shape.k}, x_strides = {shape.k, 1};
    const dnnl_dims_t w_dims = {shape.k, shape.n}, w_strides = {1, shape.w_stride};
    const dnnl_dims_t out_dims = {shape.m, shape.n}, out_strides = {shape.n, 1};
    x_.describe(dnnl, x_dims, dnnl_bf16, x_strides);
    w_.describe(dnnl, w_dims, dnnl_bf16, w_strides);
    out_.describe(dnnl, out_dims, dnnl_f32, out_strides);

    dnnl_primitive_attr_t attributes = nullptr;
    check(dnnl, dnnl.dnnl_primitive_attr_create(&attributes), "making attributes");
    const std::unique_ptr<dnnl_primitive_attr, dnnl_status_t (*)(dnnl_primitive_attr_t)> attributes_owner(
        attributes, dnnl.dnnl_primitive_attr_destroy);
    // Working memory of the caller: several threads run the same product at once.
    check(dnnl, dnnl.dnnl_primitive_attr_set_scratchpad_mode(attributes, dnnl_scratchpad_mode_user),
          "setting the scratchpad's mode");

    const char* choosing = "choosing a bf16 product for this processor";
    dnnl_primitive_desc_t description = nullptr;
    if (dnnl.major == 3) {
      check(dnnl,
            dnnl.dnnl_matmul_primitive_desc_create(&description, dnnl.engine, x_.get(), w_.get(), nullptr, out_.get(),
                                                   attributes),
            choosing);
    } else {
      Product2 product;
      check(dnnl, dnnl.dnnl_matmul_desc_init(&product, x_.get(), w_.get(), nullptr, out_.get()),
            "describing a product");
      check(dnnl, dnnl.dnnl_primitive_desc_create(&description, &product, attributes, dnnl.engine, nullptr), choosing);
    }
    description_ = {description, dnnl.dnnl_primitive_desc_destroy};
    scratchpad_ = dnnl.dnnl_primitive_desc_query_md(description, dnnl_query_scratchpad_md, 0);
    if (scratchpad_ != nullptr) scratchpad_bytes_ = dnnl.dnnl_memory_desc_get_size(scratchpad_);
    check(dnnl, dnnl.dnnl_primitive_create(&primitive_, description), "making the code of a bf16 product");
  }
  ~Product() {
    for (const Operands& operands : idle_) destroy(operands);
    dnnl_.dnnl_primitive_destroy(primitive_);
  }
  Product(const Product&) = delete;
  Product& operator=(const Product&) = delete;

  const Shape& shape() const noexcept { return shape_; }

  void run(const uint16_t* x, const uint16_t* w, float* out) {
    const Operands operands = take();
    try {
      // oneDNN takes inputs as void* too; it does not write to them.
      set(operands[0], const_cast<uint16_t*>(x));
      set(operands[1], const_cast<uint16_t*>(w));
      set(operands[2], out);
      if (scratchpad_bytes_ > 0) set(operands[3], scratch<char>(Scratch::Row2, scratchpad_bytes_));
      const dnnl_exec_arg_t arguments[] = {
          {kArgSource, operands[0]}, {kArgWeights, operands[1]}, {kArgOut, operands[2]}, {kArgScratchpad, operands[3]}};
      check(dnnl_, dnnl_.dnnl_primitive_execute(primitive_, dnnl_.stream, scratchpad_bytes_ > 0 ? 4 : 3, arguments),
            "a bf16 product");
    } catch (...) {
      put(operands);
      throw;
    }
    put(operands);
  }

 private:
  // x, w, out, scratchpad.
  using Operands = std::array<dnnl_memory_t, 4>;

  // The description of a matrix: in memory of ours (version 2), or an object of the library (version 3).
  class Matrix {
   public:
    Matrix() = default;
    Matrix(const Matrix&) = delete;
    Matrix& operator=(const Matrix&) = delete;
    ~Matrix() {
      if (object_ != nullptr) destroy_(object_);
    }

    void describe(const Opened& dnnl, const dnnl_dims_t& dims, dnnl_data_type_t type, const dnnl_dims_t& strides) {
      destroy_ = dnnl.dnnl_memory_desc_destroy;
      check(dnnl,
            dnnl.major == 3 ? dnnl.dnnl_memory_desc_create_with_strides(&object_, 2, dims, type, strides)
                            : dnnl.dnnl_memory_desc_init_by_strides(&here_, 2, dims, type, strides),
            "describing a matrix");
    }
    const api::Matrix* get() const {
      return object_ != nullptr ? object_ : reinterpret_cast<const api::Matrix*>(&here_);
    }

   private:
    Matrix2 here_ = {};
    api::Matrix* object_ = nullptr;
    dnnl_status_t (*destroy_)(api::Matrix*) = nullptr;
  };

  void set(dnnl_memory_t memory, void* data) {
    check(dnnl_, dnnl_.dnnl_memory_set_data_handle(memory, data), "naming an operand");
  }

  Operands take() {
    {
      const std::lock_guard lock(mutex_);
      if (!idle_.empty()) {
        const Operands operands = idle_.back();
        idle_.pop_back();
        return operands;
      }
      idle_.reserve(++made_);  // so that put() needs no memory
    }
    Operands operands = {};
    const api::Matrix* const descriptions[] = {x_.get(), w_.get(), out_.get(), scratchpad_};
    for (size_t i = 0; i < (scratchpad_bytes_ > 0 ? 4u : 3u); ++i) {
      const dnnl_status_t status = dnnl_.dnnl_memory_create(&operands[i], descriptions[i], dnnl_.engine, nullptr);
      if (status == dnnl_success) continue;
      destroy(operands);
      check(dnnl_, status, "making an operand");
    }
    return operands;
  }
  void put(const Operands& operands) noexcept {
    const std::lock_guard lock(mutex_);
    idle_.push_back(operands);
  }
  void destroy(const Operands& operands) const noexcept {
    for (dnnl_memory_t memory : operands) {
      if (memory != nullptr) dnnl_.dnnl_memory_destroy(memory);
    }
  }

  Shape shape_;
  Opened& dnnl_;
  Matrix x_, w_, out_;
  std::unique_ptr<dnnl_primitive_desc, dnnl_status_t (*)(dnnl_primitive_desc_t)> description_{nullptr, nullptr};
  const api::Matrix* scratchpad_ = nullptr;  // part of description_
  size_t scratchpad_bytes_ = 0;
  dnnl_primitive_t primitive_ = nullptr;
  std::mutex mutex_;
  std::vector<Operands> idle_;  // mutex_
  size_t made_ = 0;             // mutex_
};

Opened::~Opened() {
  products.clear();
  if (stream != nullptr) dnnl_stream_destroy(stream);
  if (engine != nullptr) dnnl_engine_destroy(engine);
}

std::shared_ptr<Product> product(const Shape& shape) {
  Opened& dnnl = open();
  // Also held while code is generated: the other threads of the region need the same shape most of the time. A fork()
  // cannot come in between, since it waits for the end of the worker pool's region.
  const std::lock_guard lock(dnnl.mutex);
  auto& products = dnnl.products;
  for (auto it = products.begin(); it != products.end(); ++it) {
    if ((*it)->shape() != shape) continue;
    products.splice(products.begin(), products, it);
    return products.front();
  }
  products.push_front(std::make_shared<Product>(dnnl, shape));
  if (products.size() > kMostShapes) products.pop_back();
  return products.front();
}

}  // namespace

const Library& library() { return open().library; }

void look_for(const char* file_name) {
  file_to_open = file_name;
  delete opened.exchange(nullptr);
}

OneThread::OneThread() {
  const Opened& dnnl = open();
  if (dnnl.omp_set_num_threads == nullptr) return;
  before_ = dnnl.omp_get_max_threads();
  if (before_ != 1) dnnl.omp_set_num_threads(1);
}

OneThread::~OneThread() {
  if (before_ > 1) open().omp_set_num_threads(before_);
}

void prepare(const Shape& shape) { product(shape); }

void multiply(const Shape& shape, const uint16_t* x, const uint16_t* w, float* out) { product(shape)->run(x, w, out); }

size_t kept_shapes() {
  Opened& dnnl = open();
  const std::lock_guard lock(dnnl.mutex);
  return dnnl.products.size();
}

}  // namespace anyaccel::cpu::onednn
