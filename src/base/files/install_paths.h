// Finds the files of this installation relative to the running program, so that an installed tree can be moved.
#pragma once

#include <filesystem>
#include <string>

namespace anyaccel {

// Returns the file of the running program; empty if it is unknown. Without /proc that is the name it was started by.
std::filesystem::path own_program();

// The folder that holds bin, include, lib and share: the parent of the running program's folder when that is an
// installed anyaccel, else the package that the running program was built against; empty if the program runs from a
// build tree.
std::string install_prefix();
// Returns where the package was looked for and what to do; empty if install_kernels_dir() exists.
std::string missing_package();
std::string install_include_dir();   // <prefix>/include, or the source tree's
std::string install_kernels_dir();   // <prefix>/share/anyaccel/kernels, or the source tree's: sources of ops
std::string install_library_dir();   // <prefix>/lib/anyaccel: libraries of anyaccel that are opened when needed
std::string install_plugin_dir();    // <prefix>/lib/anyaccel/plugins
std::string install_prebuilt_dir();  // <prefix>/lib/anyaccel/ops: host ops that were built ahead; empty: none

}  // namespace anyaccel
