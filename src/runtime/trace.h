// ANYACCEL_TRACE=FILE: profiler ranges as a trace that chrome://tracing and Perfetto open.
//
// Every accelerator's ranges go here. Without the variable a range costs one load. The file is written when the process
// ends normally; a file that cannot be written is reported then.
#pragma once

#include <string_view>

namespace anyaccel {

void trace_range_push(std::string_view message, std::string_view domain, std::string_view category);
// Closes the innermost open range of the domain on this thread; nothing when there is none.
void trace_range_pop(std::string_view domain);

}  // namespace anyaccel
