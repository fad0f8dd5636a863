// Records the files that are mapped into this process, for a signal handler that reports which of them lost a page.
#pragma once

#include <cstddef>
#include <string>

namespace anyaccel::llm {

struct MappedFile;

// Until forget_mapping(), lost pages in [data, data + bytes) are attributed to the file. Any thread. The record is
// never freed, since a handler may be reading it; forget_mapping() lets a later mapping reuse it.
MappedFile* remember_mapping(const std::byte* data, size_t bytes, const std::string& path);
void forget_mapping(MappedFile* mapping) noexcept;

}  // namespace anyaccel::llm
