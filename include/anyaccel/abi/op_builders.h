/* Op builders that a plugin provides: libraries of ops that programs request by name, and the compiler that builds
 * them.
 *
 * These are data, not functions: aa_driver::op_builders and aa_driver::toolchain point to them. They require neither a
 * device nor an initialized driver, and live until the process ends.
 */
#ifndef ANYACCEL_ABI_OP_BUILDERS_H_
#define ANYACCEL_ABI_OP_BUILDERS_H_

#include "anyaccel/abi/base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One library of ops. While the plugin's accelerator is active, it is available to create_op_builder(name), `anyaccel
 * info` and `anyaccel build-ops`.
 *
 * Paths are relative to `folder`. Files that belong to another user, or that others can write to, are neither loaded
 * nor compiled.
 *
 * A builder with a name that anyaccel knows takes precedence over anyaccel's own: load() then returns anyaccel's class
 * for the op ("CPUAdamBuilder": ops::CPUAdam), which finds in the library the functions that anyaccel's own source
 * exports (share/anyaccel/kernels/host, one source for each op), with the same signatures. That is not possible for
 * libraries that are part of anyaccel, such as "InferenceBuilder": an entry with such a name is ignored with a warning;
 * use the extension "ops" instead. */
typedef struct aa_op_builder {
  uint32_t struct_size;
  uint32_t flags;   /* none yet */
  const char* name; /* letters and digits, ending in "Builder": "ScaleBuilder" */
  /* The folder that the paths start from. A relative one is relative to the folder of the plugin's file; "" is that
   * folder itself. */
  const char* folder;
  /* "" for ops on the host, in C and C++: the library's functions are found by name (op_library.h). Otherwise the
   * language of kernels for the device, as the driver's extension "compiler" names it. */
  const char* language;
  /* A prebuilt shared library of host ops; if it is "" or does not exist, the sources are compiled. */
  const char* library;
  /* Lists that end with NULL; each may also be NULL. Host ops have any number of sources, which are compiled on the
   * machine where the program runs and kept in the cache. Device code has one source. */
  const char* const* sources;
  const char* const* include_dirs;
  const char* const* compile_flags;
  const char* const* link_flags; /* host ops only */
} aa_op_builder;

/* The compiler of host ops for this accelerator: it compiles those of this plugin's builders, and of builders that a
 * program registers and creates while the accelerator is active. Programs see it as Accelerator::build_extension() and
 * op_builder_dir(). */
typedef struct aa_toolchain {
  uint32_t struct_size;
  uint32_t flags;       /* none yet */
  const char* compiler; /* a command that takes the options of gcc ("icpx"); "": CXX, else c++, g++ or clang++ */
  const char* ops_dir;  /* the folder of op sources; relative: to the folder of the plugin's file */
  /* Lists that end with NULL; each may also be NULL. They come before the builder's own. */
  const char* const* compile_flags;
  const char* const* include_dirs; /* relative: to the folder of the plugin's file */
  const char* const* link_flags;
} aa_toolchain;

#ifdef __cplusplus
}
#endif
#endif /* ANYACCEL_ABI_OP_BUILDERS_H_ */
