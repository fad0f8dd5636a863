// ANYACCEL_TRACE=FILE: profiler ranges as a trace that chrome://tracing and Perfetto open.
//
// Every accelerator's ranges are recorded here. Without the variable a range costs one load. The file is written as a
// whole when the process ends normally.
#pragma once

#include <string_view>

namespace anyaccel {

void trace_range_push(std::string_view message, std::string_view domain, std::string_view category);
// Closes the innermost open range of the domain on this thread; nothing when there is none.
void trace_range_pop(std::string_view domain);

// InvalidArgument if the file that ANYACCEL_TRACE names cannot be written; detection calls this, so that a program
// fails before its work is done and not afterwards.
void check_trace_file();

// Writes the file now, for programs whose exit code should report failures; otherwise an exit handler writes it, which
// can only log an error. Returns false, with an error in the log, if it cannot be written. Ranges that end later are
// lost.
bool finish_trace();

}  // namespace anyaccel
