// Implements the op: the root mean square of each row of a matrix. It is compiled on the machine where the program
// runs, for its processor.
#include "anyaccel/op_source.h"

AA_OP void rms_rows(float* out, const float* x, int64_t rows, int64_t columns) {
  anyaccel::op::parallel_for(rows, 1, 1, [=](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      float sum = 0;
      for (int64_t c = 0; c < columns; ++c) sum += x[r * columns + c] * x[r * columns + c];
      out[r] = __builtin_sqrtf(sum / static_cast<float>(columns));
    }
  });
}
