/* Implements the extension "collectives" of acme: members on one machine, each a device of this or another process,
 * communicate through shared memory. Yours: calls of the vendor's library of collectives, which enqueue and return;
 * this device is synchronous, so a call returns when the work is complete.
 *
 * Each member has a slot in the shared memory. A call works in rounds: every member writes a part of its data into its
 * slot, all meet, each reads what it needs from the slots, and all meet again before the slots are written anew.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "acme.h"

enum { id_bytes = 40, slot_bytes = 1 << 16, most_members = 64, joining_seconds = 300 };

#define UNUSED(argument) ((void)(argument))

struct shared {
  atomic_int joined;
  atomic_int arrived; /* members that have arrived at the current meeting */
  atomic_int meeting; /* how many meetings are over */
  atomic_int aborted;
  _Alignas(64) unsigned char slots[];
};

struct aa_comm {
  struct shared* shared;
  size_t bytes; /* of the shared memory */
  int32_t rank;
  int32_t size;
};

static unsigned char* slot_of(const aa_comm* comm, int32_t member) {
  return comm->shared->slots + (size_t)member * slot_bytes;
}

static aa_status* aborted(void) { return acme_error(AA_CANCELLED, "the communicator was aborted"); }

/* Returns when every member has arrived, or with an error if one of them has aborted. */
static aa_status* meet(aa_comm* comm) {
  struct shared* shared = comm->shared;
  const int meeting = atomic_load(&shared->meeting);
  if (atomic_fetch_add(&shared->arrived, 1) + 1 == comm->size) {
    atomic_store(&shared->arrived, 0);
    atomic_fetch_add(&shared->meeting, 1);
  }
  while (atomic_load(&shared->meeting) == meeting) {
    if (atomic_load(&shared->aborted)) return aborted();
    sched_yield();
  }
  return NULL;
}

/* ---- communicators ------------------------------------------------------------------------------------------------
 * */

static aa_status* library(void* self, aa_instance* instance, const char** out_name, const char** out_version) {
  UNUSED(self);
  UNUSED(instance);
  *out_name = "acmecl";
  *out_version = "1.0";
  return NULL;
}

static aa_status* id_size(void* self, aa_instance* instance, size_t* out_size) {
  UNUSED(self);
  UNUSED(instance);
  *out_size = id_bytes;
  return NULL;
}

/* Writes the name of the shared memory, which cannot be guessed. */
static aa_status* id_create(void* self, aa_instance* instance, void* out_id) {
  UNUSED(self);
  UNUSED(instance);
  unsigned long long numbers[2];
  if (getrandom(numbers, sizeof(numbers), 0) != (ssize_t)sizeof(numbers))
    return acme_error(AA_UNAVAILABLE, "the system gave no random numbers");
  char name[id_bytes] = "";
  snprintf(name, sizeof(name), "/acme-%016llx%016llx", numbers[0], numbers[1]);
  memcpy(out_id, name, sizeof(name));
  return NULL;
}

/* Every member calls this; the first creates the memory, and the last removes its name. */
static aa_status* comm_create(void* self, aa_device* device, const void* id, int32_t rank, int32_t size,
                              aa_comm** out_comm) {
  UNUSED(self);
  UNUSED(device);
  if (size < 1 || size > most_members || rank < 0 || rank >= size)
    return acme_error(AA_INVALID_ARGUMENT, "comm_create: a group has 1 to 64 members, of rank 0 to size - 1");
  char name[id_bytes];
  memcpy(name, id, sizeof(name));
  name[id_bytes - 1] = '\0';
  const size_t bytes = sizeof(struct shared) + (size_t)size * slot_bytes;
  const int file = shm_open(name, O_CREAT | O_RDWR | O_CLOEXEC, 0600);
  if (file < 0) return acme_error(AA_UNAVAILABLE, "comm_create: shared memory cannot be opened");
  void* memory = MAP_FAILED;
  if (ftruncate(file, (off_t)bytes) == 0) memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  aa_comm* comm = calloc(1, sizeof(aa_comm));
  if (memory == MAP_FAILED || !comm) {
    if (memory != MAP_FAILED) munmap(memory, bytes);
    free(comm);
    return acme_error(AA_RESOURCE_EXHAUSTED, "comm_create: no memory");
  }
  *comm = (aa_comm){.shared = memory, .bytes = bytes, .rank = rank, .size = size};
  atomic_fetch_add(&comm->shared->joined, 1);
  const time_t begin = time(NULL);
  while (atomic_load(&comm->shared->joined) < size) {
    if (time(NULL) - begin > joining_seconds) {
      shm_unlink(name);
      munmap(memory, bytes);
      free(comm);
      return acme_error(AA_DEADLINE_EXCEEDED, "comm_create: other members did not come within five minutes");
    }
    sched_yield();
  }
  shm_unlink(name);
  *out_comm = comm;
  return NULL;
}

static aa_status* comm_destroy(void* self, aa_comm* comm) {
  UNUSED(self);
  munmap(comm->shared, comm->bytes);
  free(comm);
  return NULL;
}

static aa_status* comm_abort(void* self, aa_comm* comm) {
  UNUSED(self);
  atomic_store(&comm->shared->aborted, 1);
  return NULL;
}

static aa_status* async_error(void* self, aa_comm* comm) {
  UNUSED(self);
  return atomic_load(&comm->shared->aborted) ? aborted() : NULL;
}

/* ---- elements -----------------------------------------------------------------------------------------------------
 * */

/* Returns the bytes of an element; 0 for an unknown type. */
static size_t element_bytes(int32_t dtype) {
  switch (dtype) {
    case AA_DTYPE_BOOL:
    case AA_DTYPE_U8:
    case AA_DTYPE_I8:
    case AA_DTYPE_F8_E4M3:
    case AA_DTYPE_F8_E5M2: return 1;
    case AA_DTYPE_I16:
    case AA_DTYPE_F16:
    case AA_DTYPE_BF16: return 2;
    case AA_DTYPE_I32:
    case AA_DTYPE_F32: return 4;
    case AA_DTYPE_I64:
    case AA_DTYPE_F64: return 8;
    default: return 0;
  }
}

static int can_reduce(int32_t dtype, int32_t op) {
  if (op < AA_REDUCE_SUM || op > AA_REDUCE_AVG) return 0;
  if (dtype == AA_DTYPE_I32 || dtype == AA_DTYPE_I64) return op != AA_REDUCE_AVG;
  return dtype == AA_DTYPE_F32 || dtype == AA_DTYPE_F64;
}

#define COMBINE(type)                                                         \
  do {                                                                        \
    type* to = into;                                                          \
    const type* from = other;                                                 \
    for (size_t i = 0; i < count; ++i) {                                      \
      switch (op) {                                                           \
        case AA_REDUCE_PRODUCT: to[i] *= from[i]; break;                      \
        case AA_REDUCE_MIN: to[i] = from[i] < to[i] ? from[i] : to[i]; break; \
        case AA_REDUCE_MAX: to[i] = from[i] > to[i] ? from[i] : to[i]; break; \
        default: to[i] += from[i]; break;                                     \
      }                                                                       \
    }                                                                         \
  } while (0)

/* Computes into = into (op) other. */
static void combine(void* into, const void* other, size_t count, int32_t dtype, int32_t op) {
  switch (dtype) {
    case AA_DTYPE_F32: COMBINE(float); break;
    case AA_DTYPE_F64: COMBINE(double); break;
    /* Sums of integers wrap. */
    case AA_DTYPE_I32:
      if (op == AA_REDUCE_MIN || op == AA_REDUCE_MAX) {
        COMBINE(int32_t);
      } else {
        COMBINE(uint32_t);
      }
      break;
    default:
      if (op == AA_REDUCE_MIN || op == AA_REDUCE_MAX) {
        COMBINE(int64_t);
      } else {
        COMBINE(uint64_t);
      }
      break;
  }
}

/* Combines the slots of all members in the order of their ranks, so that every member gets the same bits. */
static void reduce_slots(const aa_comm* comm, void* out, size_t count, int32_t dtype, int32_t op) {
  memcpy(out, slot_of(comm, 0), count * element_bytes(dtype));
  for (int32_t member = 1; member < comm->size; ++member) combine(out, slot_of(comm, member), count, dtype, op);
  if (op != AA_REDUCE_AVG) return;
  for (size_t i = 0; i < count; ++i) {
    if (dtype == AA_DTYPE_F32) ((float*)out)[i] /= (float)comm->size;
    if (dtype == AA_DTYPE_F64) ((double*)out)[i] /= (double)comm->size;
  }
}

/* ---- operations ---------------------------------------------------------------------------------------------------
 * */

/* Describes one round of a call: the data that a member writes, and what it does with the slots. */
struct round {
  const unsigned char* write; /* NULL: this member writes nothing */
  unsigned char* reduce_to;   /* NULL: no reduction is wanted here */
  unsigned char* copy_to;     /* NULL: no slot is copied; else slot i goes to copy_to + i * copy_stride */
  size_t copy_stride;
  int32_t copy_first, copy_last; /* members whose slots are copied */
};

/* Runs the round for `count` elements, in pieces that fit in a slot. */
static aa_status* run_round(aa_comm* comm, struct round round, size_t count, int32_t dtype, int32_t op) {
  const size_t width = element_bytes(dtype);
  const size_t most = slot_bytes / width;
  for (size_t done = 0; done < count; done += most) {
    const size_t now = count - done < most ? count - done : most;
    const size_t offset = done * width;
    if (round.write) memcpy(slot_of(comm, comm->rank), round.write + offset, now * width);
    aa_status* status = meet(comm);
    if (status) return status;
    if (round.reduce_to) reduce_slots(comm, round.reduce_to + offset, now, dtype, op);
    for (int32_t member = round.copy_first; round.copy_to && member <= round.copy_last; ++member) {
      memcpy(round.copy_to + (size_t)(member - round.copy_first) * round.copy_stride + offset, slot_of(comm, member),
             now * width);
    }
    status = meet(comm);
    if (status) return status;
  }
  return NULL;
}

static aa_status* check(const aa_comm* comm, int32_t dtype, int32_t op, int reduces) {
  if (reduces ? !can_reduce(dtype, op) : element_bytes(dtype) == 0)
    return acme_error(AA_UNIMPLEMENTED, "acmecl reduces F32, F64, I32 and I64, and carries every type");
  return atomic_load(&comm->shared->aborted) ? aborted() : NULL;
}

static aa_status* all_reduce(void* self, aa_comm* comm, aa_stream* stream, const void* send, void* recv, size_t count,
                             int32_t dtype, int32_t op) {
  UNUSED(self);
  UNUSED(stream);
  aa_status* status = check(comm, dtype, op, 1);
  if (status) return status;
  const struct round round = {.write = send, .reduce_to = recv};
  return run_round(comm, round, count, dtype, op);
}

static aa_status* reduce(void* self, aa_comm* comm, aa_stream* stream, const void* send, void* recv, size_t count,
                         int32_t dtype, int32_t op, int32_t root) {
  UNUSED(self);
  UNUSED(stream);
  aa_status* status = check(comm, dtype, op, 1);
  if (status) return status;
  const struct round round = {.write = send, .reduce_to = comm->rank == root ? recv : NULL};
  return run_round(comm, round, count, dtype, op);
}

static aa_status* broadcast(void* self, aa_comm* comm, aa_stream* stream, const void* send, void* recv, size_t count,
                            int32_t dtype, int32_t root) {
  UNUSED(self);
  UNUSED(stream);
  aa_status* status = check(comm, dtype, 0, 0);
  if (status) return status;
  const struct round round = {
      .write = comm->rank == root ? send : NULL, .copy_to = recv, .copy_first = root, .copy_last = root};
  return run_round(comm, round, count, dtype, 0);
}

static aa_status* all_gather(void* self, aa_comm* comm, aa_stream* stream, const void* send, void* recv, size_t count,
                             int32_t dtype) {
  UNUSED(self);
  UNUSED(stream);
  aa_status* status = check(comm, dtype, 0, 0);
  if (status) return status;
  const struct round round = {
      .write = send, .copy_to = recv, .copy_stride = count * element_bytes(dtype), .copy_last = comm->size - 1};
  return run_round(comm, round, count, dtype, 0);
}

static aa_status* reduce_scatter(void* self, aa_comm* comm, aa_stream* stream, const void* send, void* recv,
                                 size_t count, int32_t dtype, int32_t op) {
  UNUSED(self);
  UNUSED(stream);
  aa_status* status = check(comm, dtype, op, 1);
  for (int32_t member = 0; member < comm->size && !status; ++member) {
    const struct round round = {.write = (const unsigned char*)send + (size_t)member * count * element_bytes(dtype),
                                .reduce_to = member == comm->rank ? recv : NULL};
    status = run_round(comm, round, count, dtype, op);
  }
  return status;
}

/* Groups, send and recv are not implemented: the host transfers messages between two members through its own memory. */
static aa_status* group_begin(void* self, aa_instance* instance) {
  UNUSED(self);
  UNUSED(instance);
  return acme_error(AA_UNIMPLEMENTED, "acmecl has no groups of calls");
}

const aa_collectives_table acme_collectives = {.struct_size = sizeof(acme_collectives),
                                               .version = AA_COLLECTIVES_VERSION,
                                               .library = library,
                                               .id_size = id_size,
                                               .id_create = id_create,
                                               .comm_create = comm_create,
                                               .comm_destroy = comm_destroy,
                                               .comm_abort = comm_abort,
                                               .async_error = async_error,
                                               .group_begin = group_begin,
                                               .group_end = group_begin,
                                               .all_reduce = all_reduce,
                                               .reduce = reduce,
                                               .broadcast = broadcast,
                                               .all_gather = all_gather,
                                               .reduce_scatter = reduce_scatter};
