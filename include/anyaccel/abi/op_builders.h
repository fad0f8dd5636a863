/* Op builders that a plugin brings: libraries of ops that programs ask for by name, and the compiler that builds them.
 *
 * These are facts, not functions: aa_driver::op_builders and aa_driver::toolchain point to them. They need no device and no
 * initialized driver, and live until the process ends.
 */
#ifndef ANYACCEL_ABI_OP_BUILDERS_H_
#define ANYACCEL_ABI_OP_BUILDERS_H_

#include "anyaccel/abi/base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One library of ops. While the plugin's accelerator is active, create_op_builder(name), `anyaccel info` and `anyaccel
 * build-ops` have it.
 *
 * Paths are relative to `folder`. What belongs to another user, or can be written by others, is not loaded or compiled.
 *
 * A name that anyaccel knows goes before its own builder of that name: load() then gives anyaccel's class for the op
 * ("CPUAdamBuilder": ops::CPUAdam), which finds in the library the functions that anyaccel's own source exports
 * (share/anyaccel/kernels/host, one source for each op), with the same signatures. That is not possible for libraries that are part of
 * anyaccel, such as "InferenceBuilder": an entry with such a name is left out with a warning, and the extension "ops" is
 * the way. */
typedef struct aa_op_builder {
  uint32_t struct_size;
  uint32_t flags;   /* none yet */
  const char* name; /* letters and digits, ending in "Builder": "ScaleBuilder" */
  /* Where the paths start. Relative: to the folder of the plugin's file. "": that folder. */
  const char* folder;
  /* "" for ops on the host, in C and C++: the library's functions are found by name (op_library.h). Else the language, as
   * the driver's extension "compiler" names it, of kernels for the device. */
  const char* language;
  /* A shared library of host ops that is ready to be loaded; "" or not there: the sources are compiled. */
  const char* library;
  /* Lists that end with NULL, and may be NULL. Host ops: any number of sources, compiled where the program runs and kept in
   * the cache. Device code: one source. */
  const char* const* sources;
  const char* const* include_dirs;
  const char* const* compile_flags;
  const char* const* link_flags; /* host ops only */
} aa_op_builder;

/* The compiler of host ops for this accelerator: of this plugin's builders, and of those that a program registers and makes
 * while the accelerator is active. Programs see it as Accelerator::build_extension() and op_builder_dir(). */
typedef struct aa_toolchain {
  uint32_t struct_size;
  uint32_t flags;       /* none yet */
  const char* compiler; /* a command that takes the options of gcc ("icpx"); "": CXX, else c++, g++ or clang++ */
  const char* ops_dir;  /* where sources of ops lie; relative: to the folder of the plugin's file */
  /* Lists that end with NULL, and may be NULL. They come before the builder's own. */
  const char* const* compile_flags;
  const char* const* include_dirs; /* relative: to the folder of the plugin's file */
  const char* const* link_flags;
} aa_toolchain;

#ifdef __cplusplus
}
#endif
#endif /* ANYACCEL_ABI_OP_BUILDERS_H_ */
