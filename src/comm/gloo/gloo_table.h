/* Between anyaccel and libanyaccel_gloo.so (src/libraries/gloo), which is linked with Gloo and opened when the first
 * communicator needs it: connections between the members of a group, and messages on them.
 *
 * Functions give 0, or AA_GLOO_FAILED with words in `error`. Nothing is thrown across. One thread at a time uses an
 * object, but for interrupt(). */
#ifndef ANYACCEL_COMM_GLOO_TABLE_H_
#define ANYACCEL_COMM_GLOO_TABLE_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { AA_GLOO_DONE = 0, AA_GLOO_FAILED = 1, AA_GLOO_INTERRUPTED = 2 };

typedef struct aa_gloo aa_gloo;
typedef struct aa_gloo_message aa_gloo_message;
typedef struct aa_gloo_words {
  char text[512];
} aa_gloo_words;

typedef struct aa_gloo_table {
  /* Listens on `address` (numeric) for every peer. */
  int (*create)(const char* address, int rank, int size, int64_t connect_ms, aa_gloo** out, aa_gloo_words* error);
  /* What `peer` connects with; borrowed until the next call. */
  int (*address)(aa_gloo* gloo, int peer, const char** data, size_t* bytes, aa_gloo_words* error);
  /* With what the peer's address() gave for this member. Blocks until connected, at most 5 * connect_ms. */
  int (*connect)(aa_gloo* gloo, int peer, const char* data, size_t bytes, aa_gloo_words* error);
  /* Start a message. Those of one pair and slot arrive in order; a receive may be longer than its message. */
  int (*send)(aa_gloo* gloo, int peer, uint64_t slot, const void* data, size_t bytes, aa_gloo_message** out,
              aa_gloo_words* error);
  int (*receive)(aa_gloo* gloo, int peer, uint64_t slot, void* data, size_t bytes, aa_gloo_message** out,
                 aa_gloo_words* error);
  /* Blocks until it is complete, AA_GLOO_INTERRUPTED after interrupt(). A wait that runs out of time breaks every
   * connection of the object. */
  int (*wait)(aa_gloo_message* message, int64_t ms, aa_gloo_words* error);
  void (*interrupt)(aa_gloo_message* message);
  void (*release)(aa_gloo_message* message);
  /* Breaks every connection; memory of messages is not touched any more. */
  void (*close)(aa_gloo* gloo);
  void (*destroy)(aa_gloo* gloo);
} aa_gloo_table;

/* The one exported function. NULL when the version is not the one it was built for. */
#define AA_GLOO_VERSION 1u
#define AA_GLOO_OPEN "aa_gloo_open"
typedef const aa_gloo_table* (*aa_gloo_open_fn)(uint32_t version);

#ifdef __cplusplus
}
#endif
#endif /* ANYACCEL_COMM_GLOO_TABLE_H_ */
