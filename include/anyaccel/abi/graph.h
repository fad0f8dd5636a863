/* Extension "graph", version 1: record the work of a stream once, replay it many times.
 *
 * Absent: the host reports that graphs are not supported, and programs run their work eagerly.
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

  /* From here on, copies, fills, ops, kernel launches and host calls on `stream` are recorded and not run; event
   * records and waits between captured streams become edges. The caller keeps all memory that recorded work uses valid
   * until the graph is destroyed; host memory too. Synchronizing the stream while it captures is
   * AA_FAILED_PRECONDITION. AA_FAILED_PRECONDITION when it captures already. since 2.0 */
  AA_CALL(capture_begin, aa_stream* stream);
  /* Ends the capture and makes a graph that can be launched. On error nothing is captured any more and no graph is
   * made: this is also how a capture is abandoned, with out_graph NULL. AA_FAILED_PRECONDITION when the stream does not
   * capture. A capture without work gives a graph that may be launched. since 2.0 */
  AA_CALL(capture_end, aa_stream* stream, aa_graph** out_graph);
  /* Whether the stream is capturing. since 2.0 */
  AA_CALL(capture_status, aa_stream* stream, int32_t* out_capturing);
  /* Runs the recorded work in order on `stream`, of the same device. Launching again before an earlier launch has
   * completed runs them one after another. since 2.0 */
  AA_CALL(launch, aa_graph* graph, aa_stream* stream);
  /* Number of recorded items, for reports. since 2.0 */
  AA_CALL(node_count, aa_graph* graph, int64_t* out_count);
  /* No launch of it is running any more. since 2.0 */
  AA_CALL(destroy, aa_graph* graph);
} aa_graph_table;

#ifdef __cplusplus
}
#endif
#endif /* ANYACCEL_ABI_GRAPH_H_ */
