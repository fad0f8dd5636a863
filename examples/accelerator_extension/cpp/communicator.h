// Declares the collectives of acme: members on one machine, each a device of this or another process, communicate
// through shared memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "anyaccel/abi/driver_class.hpp"

namespace acme {

constexpr const char* library_name = "acmecl";
constexpr size_t id_bytes = 40;

// Writes id_bytes: an unguessable name of shared memory.
void create_id(void* id);

// Blocks until every member has joined.
std::unique_ptr<anyaccel::abi::Communicator> join(const void* id, int32_t rank, int32_t size);

}  // namespace acme
