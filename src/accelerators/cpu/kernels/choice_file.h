// The measured choices of earlier processes: a text file in the cache folder, one line a choice.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace anyaccel::cpu {

// The result of a measurement. Times are the best of its runs, in milliseconds.
struct MeasuredChoice {
  bool onednn = false;
  double own_time = 0;
  double onednn_time = 0;
};

// <cache folder>/cpu_matmul_choices.txt; empty when there is no cache folder.
std::filesystem::path choice_file();

// The choice that was stored under this key (one line of text without tabs). A missing, damaged or foreign file has
// none: that is reported as a debug message, never as an error.
std::optional<MeasuredChoice> load_choice(const std::string& key);

// Adds or replaces the choice. The file is replaced as a whole, so that a reader sees the old or the new one; of two
// processes that store at the same moment one may be forgotten, and measured again. A folder that cannot be written is
// reported as a debug message.
void store_choice(const std::string& key, const MeasuredChoice& choice);

}  // namespace anyaccel::cpu
