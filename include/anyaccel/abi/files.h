/* Extension "files", version 1: transfers between files and device memory that do not pass through the host's memory.
 *
 * Absent, or where info says that they are not possible: the host reads into its own memory and copies.
 *
 * Transfers are ordered by the host: it waits for the work that was enqueued on the memory before it calls read or
 * write, and enqueues further work on the memory after the call has returned.
 */
#ifndef ANYACCEL_ABI_FILES_H_
#define ANYACCEL_ABI_FILES_H_

#include "anyaccel/abi/driver.h"

#ifdef __cplusplus
extern "C" {
#endif

#define AA_FILES_EXTENSION "files"
#define AA_FILES_VERSION 1u

/* A file that is prepared for transfers with one device. */
typedef struct aa_file aa_file;

typedef struct aa_files_info {
  uint32_t struct_size;
  int32_t usable; /* 1: files of file systems that the vendor supports can be opened; 0: none can, see `text` */
  /* One line: the vendor's library with its version and file ("cuFile 1.14 (/usr/lib/libcufile.so.0)"); without
   * `usable` the reason, and what the user can do about it. */
  char text[512];
} aa_files_info;

/* A range of memory that mem_alloc returned on the device, of kind AA_MEMORY_DEVICE. */
typedef struct aa_file_memory {
  uint32_t struct_size;
  uint32_t flags; /* none yet */
  void* pointer;
  size_t size;       /* > 0 */
  aa_memory* memory; /* with AA_DRIVER_WANTS_MEMORY; else NULL */
} aa_file_memory;

typedef struct aa_file_params {
  uint32_t struct_size;
  uint32_t flags;     /* none yet */
  int32_t descriptor; /* opened with O_DIRECT; belongs to the host, which closes it after file_close */
} aa_file_params;

typedef struct aa_file_transfer {
  uint32_t struct_size;
  uint32_t flags; /* none yet */
  /* Anywhere in memory that mem_alloc returned on the file's device, of kind AA_MEMORY_DEVICE, registered or not. */
  void* pointer;
  size_t size;         /* > 0; at most 1 GiB */
  int64_t file_offset; /* bytes from the beginning of the file; at least 0 */
  aa_memory* memory;   /* with AA_DRIVER_WANTS_MEMORY; else NULL */
} aa_file_transfer;

typedef struct aa_files_table {
  AA_EXTENSION_HEAD;

  /* T. Tells whether files can be opened. The first call may open the vendor's library. since 2.0 */
  AA_CALL(info, aa_device* device, aa_files_info* out_info);
  /* T. Prepares memory that is used in many transfers, which may make these faster. Returns AA_ALREADY_EXISTS when a
   * part of it is registered. since 2.0 */
  AA_CALL(memory_register, aa_device* device, const aa_file_memory* what);
  /* T. `pointer` is that of memory_register. The memory must be unregistered before it is freed, when no transfer uses
   * it. Returns AA_NOT_FOUND when it is not registered. since 2.0 */
  AA_CALL(memory_unregister, aa_device* device, void* pointer);
  /* T. Returns AA_UNAVAILABLE when info says that no file can be opened, and AA_UNIMPLEMENTED when the vendor does not
   * support this file (its file system, how it was opened); the host then transfers it by itself. since 2.0 */
  AA_CALL(file_open, aa_device* device, const aa_file_params* params, aa_file** out_file);
  /* X. since 2.0 */
  AA_CALL(file_close, aa_file* file);
  /* T. Blocks until the bytes are in device memory. Writes how many there are: fewer than `size`, or 0, where the file
   * ends before. `native_code` of an error is the errno if the operating system reported one, else the vendor's
   * number. Several threads may transfer other bytes of the file meanwhile. since 2.0 */
  AA_CALL(read, aa_file* file, const aa_file_transfer* what, size_t* out_bytes);
  /* T. Blocks until the bytes are in the file (not necessarily on the disk), and writes their number, which may be less
   * than `size`. The host passes only whole blocks of 4096 bytes, since a driver may have to rewrite the rest of a
   * block. Errors as with read. since 2.0 */
  AA_CALL(write, aa_file* file, const aa_file_transfer* what, size_t* out_bytes);
} aa_files_table;

#ifdef __cplusplus
}
#endif
#endif /* ANYACCEL_ABI_FILES_H_ */
