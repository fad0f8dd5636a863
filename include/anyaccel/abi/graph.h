/* Extension "graph", version 1: records the work of a stream once and replays it many times.
 *
 * Absent: the host reports that graphs are not supported, and programs run their work eagerly.
 *
 * One thread at a time calls the functions of one graph, and those of the streams of one capture.
 */
#ifndef ANYACCEL_ABI_GRAPH_H_
#define ANYACCEL_ABI_GRAPH_H_

#include "anyaccel/abi/driver.h"

#ifdef __cplusplus
extern "C" {
#endif

#define AA_GRAPH_EXTENSION "graph"
#define AA_GRAPH_VERSION 1u

typedef struct aa_graph aa_graph;

typedef struct aa_graph_table {
  AA_EXTENSION_HEAD;

  /* Begins a capture: from now on, copies, fills, ops, kernel launches and host calls on `stream` are recorded instead
   * of run. A stream that waits for an event that was recorded last on a capturing stream takes part in its capture
   * until that ends: what is enqueued on it then is recorded too, and every launch runs it behind that place. Before the
   * end, the stream where the capture began waits for an event of each that has joined. The streams are of one device,
   * or the wait may return AA_UNIMPLEMENTED. A stream that captures waits for no event of another capture
   * (AA_FAILED_PRECONDITION), and the caller lets it wait for none outside of captures that is not complete. The caller
   * keeps all memory that recorded work uses valid until the graph is destroyed; host memory too. Synchronizing the
   * stream while it captures returns AA_FAILED_PRECONDITION, and so does this function when the stream already captures.
   * since 2.0 */
  AA_CALL(capture_begin, aa_stream* stream);
  /* Ends the capture and makes a graph that can be launched. On error the capture ends and no graph is made; passing
   * NULL as out_graph abandons a capture in the same way. Returns AA_FAILED_PRECONDITION when the stream does not
   * capture, and when it has joined a capture that began on another stream, which then goes on. A capture without work
   * gives a graph that may be launched. since 2.0 */
  AA_CALL(capture_end, aa_stream* stream, aa_graph** out_graph);
  /* Writes 1 when the stream is capturing, else 0. since 2.0 */
  AA_CALL(capture_status, aa_stream* stream, int32_t* out_capturing);
  /* Runs the recorded work in order on `stream`, of the same device. If an earlier launch has not completed, the two
   * run one after another, as if `stream` had waited for a record behind the earlier one; one that has failed before is
   * not waited for. Returns AA_FAILED_PRECONDITION where such a one may still be running and the two must not. since 2.0 */
  AA_CALL(launch, aa_graph* graph, aa_stream* stream);
  /* Returns the number of recorded items, for reports. since 2.0 */
  AA_CALL(node_count, aa_graph* graph, int64_t* out_count);
  /* Called when no launch of the graph is running any more. since 2.0 */
  AA_CALL(destroy, aa_graph* graph);
} aa_graph_table;

#ifdef __cplusplus
}
#endif
#endif /* ANYACCEL_ABI_GRAPH_H_ */
