/* Extension "collectives", version 1: communication between the devices of one job, each in its own process (or several
 * in one process, with one communicator per device).
 *
 * Operations are enqueued on a stream of the communicator's device, as copies are; a call does not wait for the work of
 * the other members. They may be captured in a graph. Every member makes the same calls in the same order. Equivalent
 * to the interface of NCCL and its relatives. Absent: the host carries tensors through host memory.
 */
#ifndef ANYACCEL_ABI_COLLECTIVES_H_
#define ANYACCEL_ABI_COLLECTIVES_H_

#include "anyaccel/abi/driver.h"

#ifdef __cplusplus
extern "C" {
#endif

#define AA_COLLECTIVES_EXTENSION "collectives"
#define AA_COLLECTIVES_VERSION 1u

/* The maximum size of an id, in bytes. */
#define AA_COLLECTIVES_MAX_ID 8192

typedef struct aa_comm aa_comm;

/* How elements are combined. */
typedef enum aa_reduce_op {
  AA_REDUCE_SUM = 0,
  AA_REDUCE_PRODUCT = 1,
  AA_REDUCE_MIN = 2,
  AA_REDUCE_MAX = 3,
  AA_REDUCE_AVG = 4
} aa_reduce_op;

/* Buffers are device memory of the communicator's device; counts are in elements. Buffers do not overlap unless the
 * comment of a function allows it.
 *
 * A count of 0 enqueues nothing, and its buffers may be NULL; the arguments are checked all the same. Calls return
 * AA_UNIMPLEMENTED for a dtype, an operation or a function that the library lacks, without side effects and whatever
 * the count, so that the host can ask beforehand and use another method. Every dtype of one to eight bytes can be
 * carried (broadcast, all_gather, send, recv).
 *
 * A failure that occurs later sticks to the communicator: async_error returns it. One thread at a time may call
 * functions of a communicator, except comm_abort and async_error. */
typedef struct aa_collectives_table {
  AA_EXTENSION_HEAD;

  /* Opens the library and returns its name and version ("nccl", "2.28.9"; "" where it has none), borrowed. Returns
   * AA_UNAVAILABLE, whose message says what was looked for and where, when the library is not installed. Does not open
   * a device. since 2.0 */
  AA_CALL(library, aa_instance* instance, const char** out_name, const char** out_version);
  /* Return the size of an id in bytes (at most AA_COLLECTIVES_MAX_ID), and a new id, which one member creates and the
   * host sends to the others. since 2.0 */
  AA_CALL(id_size, aa_instance* instance, size_t* out_size);
  AA_CALL(id_create, aa_instance* instance, void* out_id);
  /* Joins a communicator; blocks until every member has joined. Between group_begin and group_end, group_end blocks
   * instead. An id can be used only once. Returns AA_UNIMPLEMENTED, without joining, for a second member in this process
   * when the library allows only one. since 2.0 */
  AA_CALL(comm_create, aa_device* device, const void* id, int32_t rank, int32_t size, aa_comm** out_comm);
  /* Called when the communicator's work is complete, or when it was aborted. since 2.0 */
  AA_CALL(comm_destroy, aa_comm* comm);
  /* Aborts the operations in progress, from any thread: blocked calls return with an error, and streams continue, with
   * undefined results. Only comm_destroy may follow; other calls return AA_CANCELLED. since 2.0 */
  AA_CALL(comm_abort, aa_comm* comm);
  /* Returns NULL, or the failure of work enqueued earlier. Does not block. Any thread. since 2.0 */
  AA_CALL(async_error, aa_comm* comm);
  /* Calls between the two start together at group_end, which returns their errors too. Needed for sends and receives
   * that wait for each other. Per thread; may be nested. since 2.0 */
  AA_CALL(group_begin, aa_instance* instance);
  AA_CALL(group_end, aa_instance* instance);

  /* recv may be send (in place). since 2.0 */
  AA_CALL(all_reduce, aa_comm* comm, aa_stream* stream, const void* send, void* recv, size_t count, int32_t dtype,
          int32_t op);
  /* recv is used on root only, may be send there, and may be NULL elsewhere. since 2.0 */
  AA_CALL(reduce, aa_comm* comm, aa_stream* stream, const void* send, void* recv, size_t count, int32_t dtype,
          int32_t op, int32_t root);
  /* send is used on root only, may be recv there, and may be NULL elsewhere. since 2.0 */
  AA_CALL(broadcast, aa_comm* comm, aa_stream* stream, const void* send, void* recv, size_t count, int32_t dtype,
          int32_t root);
  /* recv: size * count elements; send may be this rank's own place in recv. since 2.0 */
  AA_CALL(all_gather, aa_comm* comm, aa_stream* stream, const void* send, void* recv, size_t count, int32_t dtype);
  /* send: size * count elements; recv may be this rank's own place in send. since 2.0 */
  AA_CALL(reduce_scatter, aa_comm* comm, aa_stream* stream, const void* send, void* recv, size_t count, int32_t dtype,
          int32_t op);
  /* A rank may send to itself only inside a group. since 2.0 */
  AA_CALL(send, aa_comm* comm, aa_stream* stream, const void* data, size_t count, int32_t dtype, int32_t peer);
  AA_CALL(recv, aa_comm* comm, aa_stream* stream, void* data, size_t count, int32_t dtype, int32_t peer);
} aa_collectives_table;

#ifdef __cplusplus
}
#endif
#endif /* ANYACCEL_ABI_COLLECTIVES_H_ */
