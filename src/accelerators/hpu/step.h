// Joins op calls that follow each other into one graph. Between the calls only values pass: memory is read for what the first of
// them reads, and written once for each tensor that they write, with its last value.
#pragma once

#include <cstdint>
#include <vector>

#include "accelerators/hpu/call_graph.h"

namespace anyaccel::hpu {

// The calls must outlive it.
class Step {
 public:
  // Returns false, with nothing changed, if the call needs another step: one of its tensors shares a part of the memory of
  // another one, or has it in another type, and one of the two is written.
  bool add(const aa_op_call& call);
  const std::vector<const aa_op_call*>& calls() const { return calls_; }

  // Everything on which the graph depends: the calls, and which of their tensors are the same memory.
  std::vector<int64_t> key() const;
  void build(Graph& graph) const;
  // The sizes and addresses of the graph's persistent tensors.
  std::vector<Sizes> persistent_sizes() const;
  std::vector<uint64_t> addresses() const;

 private:
  // Memory that calls use as one tensor.
  struct Place {
    uint64_t address = 0, bytes = 0;
    int type = 0;              // synDataType
    Sizes sizes;               // in the graph: those of the call that writes it last, else of the first that reads it
    bool read_before = false;  // it is read before the step writes it
    bool written = false;
    size_t last_call = 0;  // that writes it
    uint32_t last_tensor = 0;

    bool is(const Place& other) const { return address == other.address && bytes == other.bytes && type == other.type; }
    bool overlaps(const Place& other) const {
      return address < other.address + other.bytes && other.address < address + bytes;
    }
  };
  // The places in the order of the persistent tensors: those that are read before or written, then again those that are both.
  std::vector<size_t> persistent_places() const;

  std::vector<const aa_op_call*> calls_;
  std::vector<Place> places_;
  std::vector<std::vector<size_t>> place_of_;  // by call and tensor; of an absent tensor: any number
};

}  // namespace anyaccel::hpu
