// Finds the files of plugins in the folders in which they are searched for.
#pragma once

#include <string>
#include <vector>

namespace anyaccel {

// One sentence for the user: the variable, the two folders, and what they contain.
std::string plugin_places();

// Lists the plugin files: files named by ANYACCEL_PLUGIN_PATH, and all files that end in ".so", sorted by name, in its
// folders, then in the user's and in the installation's folder. A file that is reached by several paths or links is
// listed once, by the first of them. `errors` receives the names of missing files and of folders that another user
// could change, which are ignored.
std::vector<std::string> find_plugin_files(std::vector<std::string>& errors);

}  // namespace anyaccel
