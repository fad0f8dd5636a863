// Recognizes folders of the Hugging Face hub's cache, where a model's files are two levels further down.
#pragma once

#include <filesystem>

namespace anyaccel::llm {

// To be called where a file of a model is missing: throws CheckpointError if `dir` is such a folder (models--ORG--NAME with snapshots
// and blobs in it), or its snapshots. The message names the snapshot to give, which refs/main says.
void refuse_hub_folder(const std::filesystem::path& dir);

}  // namespace anyaccel::llm
