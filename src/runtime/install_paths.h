// Where this copy of anyaccel lies, found from the running program so that an installed tree can be moved.
#pragma once

#include <string>

namespace anyaccel {

// <prefix> of <prefix>/bin/anyaccel, or of the build tree; empty when it cannot be told.
std::string install_prefix();
std::string install_include_dir();  // <prefix>/include, or the source tree's while it was not installed
std::string install_share_dir();    // <prefix>/share/anyaccel
std::string install_plugin_dir();   // <prefix>/lib/anyaccel/plugins

}  // namespace anyaccel
