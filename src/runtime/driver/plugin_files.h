// Finds the files of plugins in the folders in which they are searched for.
#pragma once

#include <string>
#include <vector>

namespace anyaccel {

// One sentence for people: the variable and the two folders, and what is there.
std::string plugin_places();

// The files that are taken for plugins: those that ANYACCEL_PLUGIN_PATH names, of its folders and then of the person's
// and the installation's folder all that end with ".so", by name. A file that is reached by several paths or links is
// listed once, by the first of them. `errors` gets what is missing, and the folders that another user could change,
// from which nothing is taken.
std::vector<std::string> find_plugin_files(std::vector<std::string>& errors);

}  // namespace anyaccel
