// The interface between accelerator.cpp, which holds the accelerator, and detection.cpp, which finds it.
#pragma once

#include <memory>
#include <string>

#include "anyaccel/detection.h"

namespace anyaccel {

// Finds and makes the accelerator, and keeps the report. Throws when DS_ACCELERATOR cannot be honoured.
std::unique_ptr<Accelerator> detect_accelerator();
// The report now says that the program set the accelerator itself.
void note_set_accelerator(const std::string& name);
void forget_detection();

}  // namespace anyaccel
