// The files that are mapped into this process, for a signal handler that tells which of them lost a page.
#pragma once

#include <cstddef>
#include <string>

namespace anyaccel::llm {

struct MappedFile;

// Until forget_mapping(), lost pages in [data, data + bytes) are those of the file. Any thread. The record lives as long as
// the process, since a handler may be looking at it; forgetting lets the next mapping use it.
MappedFile* remember_mapping(const std::byte* data, size_t bytes, const std::string& path);
void forget_mapping(MappedFile* mapping) noexcept;

}  // namespace anyaccel::llm
