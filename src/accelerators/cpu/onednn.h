// The bf16 product of oneDNN (version 3, or 2.6 and later), an optional library that is opened when it is first needed and never
// linked.
//
// oneDNN brings OpenMP threads of its own. Here each thread of the worker pool calls it for a slice of the product and
// holds a OneThread meanwhile, so that no second pool of threads comes to life.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace anyaccel::cpu::onednn {

// The state of the library. The first call opens it (some ten milliseconds); later ones only read the result.
struct Library {
  bool usable = false;
  // If usable: everything that may change its speed, "2.6.3, instruction set 0x3f". Else empty.
  std::string version;
  // If not usable: what was looked for, what was found, and what to install.
  std::string reason;
};
const Library& library();

// Forgets the library and its products and looks for this file name from now on; null: the real ones. For tests, while
// no product runs.
void look_for(const char* file_name);

// Restricts oneDNN to the calling thread, and restores the thread's OpenMP setting afterwards. Needs a usable library.
class OneThread {
 public:
  OneThread();
  ~OneThread();
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  int before_ = 0;
};

// Shape of a product out[m, n] = x[m, k] * transpose(w[n, k]): x and out without gaps, rows of w `w_stride` elements
// apart.
struct Shape {
  int64_t m, n, k, w_stride;
  bool operator==(const Shape&) const = default;
};

// Generates the code for a shape, or finds it among the most recent ones. Throws NotImplementedError when oneDNN has no
// such product for this processor. Inside a OneThread.
void prepare(const Shape& shape);

// Computes the product on the calling thread, inside a OneThread. x and w are bf16, sums are in F32 (as the bf16
// instructions of processors make them, which flush denormals). Throws as prepare() does, or Error.
void multiply(const Shape& shape, const uint16_t* x, const uint16_t* w, float* out);

// Shapes kept at present, and the most that are kept.
size_t kept_shapes();
inline constexpr size_t kMostShapes = 64;

}  // namespace anyaccel::cpu::onednn
