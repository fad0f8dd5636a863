// Runs one case of the suite from start to end: initializes the driver, opens device 0 and a stream, runs the case, and
// closes everything again. The result is stored in a slot, which is in shared memory if the case runs in a child
// process.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <string_view>

#include "conformance/context.h"

namespace anyaccel::conformance {

// The progress of a case.
enum class Stage : int { opening, running, closing, finished };

struct Slot {
  static constexpr size_t most_functions = 256;

  std::atomic<Stage> stage{Stage::opening};
  Outcome outcome = Outcome::fail;  // valid from `closing` on, like the rest up to `asked`
  std::array<char, 16384> message{};
  double milliseconds = 0;
  uint64_t asked = 0;                      // capability flags that the driver has set and that the case asked for
  aa_probe probe{};                        // of a case that opens (CaseRun::open)
  uint64_t caps = 0;                       // AA_CAP_* of device 0
  std::array<char, 4096> closing_error{};  // why closing failed; empty: it did not. Valid when finished
  uint64_t ops_found = 0;                  // see tables.h. Valid when finished, as ops_run
  uint64_t ops_run = 0;
  // Calls of each function, in the order of coverage(). Valid when finished
  std::array<int64_t, most_functions> calls{};
  std::array<int64_t, most_functions> unimplemented{};
};

// The objects that were opened, which a case may use.
struct Driver {
  const aa_driver* table;  // uncounted
  const aa_host* host;
  const MakeOpProvider* make_ops;  // empty function: the driver's own "ops" extension
  OpenedWith with;
};

// The inputs of a case.
enum class Setting {
  table,     // the table alone: nothing is opened
  opened,    // device 0 and a stream
  with_ops,  // those of an OpProvider
};

// Runs `item` on `driver`. `probe` is the result of an earlier case (ignored for Setting::table). If `close` is false,
// nothing is closed afterwards. Never throws.
void run_case(const Driver& driver, const Case& item, Setting setting, const aa_probe& probe, bool close, Slot& slot);

// Probes, initializes, opens device 0 and a stream: the case "life.opens", which fills `probe` and `caps` too.
void run_opening(const Driver& driver, bool close, Slot& slot);

// Copies the text, cut to the size of the array.
template <size_t Size>
void put_text(std::array<char, Size>& place, std::string_view text) noexcept {
  place[text.copy(place.data(), Size - 1)] = '\0';
}

}  // namespace anyaccel::conformance
