// Implements matmul_control.h: the extension "cpu.matmul".
#include "accelerators/cpu/matmul_control.h"

#include <string>

#include "accelerators/cpu/ceilings.h"
#include "accelerators/cpu/driver_objects.h"
#include "accelerators/cpu/kernels/matmul_choice.h"
#include "accelerators/cpu/onednn.h"

namespace anyaccel::cpu {
namespace {

const aa_cpu_matmul_table matmul_control = {
    sizeof(aa_cpu_matmul_table),
    AA_CPU_MATMUL_VERSION,
    [](const char* name) {
      return guarded([&] {
        static const MatmulMode before = matmul_mode();
        set_matmul_mode(name == nullptr ? before : parse_matmul_mode(name));
      });
    },
    [](int32_t* out_usable, const char** out_text) {
      return guarded([&] {
        const onednn::Library& library = onednn::library();
        static const std::string text = library.usable ? "oneDNN " + library.version : library.reason;
        *out_usable = library.usable;
        *out_text = text.c_str();
      });
    },
    [](int64_t* out_own, int64_t* out_onednn) {
      return guarded([&] {
        const MatmulCounts counts = matmul_counts();
        *out_own = counts.own;
        *out_onednn = counts.onednn;
      });
    },
    [](double seconds, double* out_rate) { return guarded([&] { *out_rate = cpu::matrix_unit_rate(seconds); }); },
};

}  // namespace

const aa_cpu_matmul_table* matmul_control_table() { return &matmul_control; }

}  // namespace anyaccel::cpu
