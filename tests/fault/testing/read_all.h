// Reads whole files. A read from /proc may fail midway if the process exits.
#pragma once

#include <fstream>
#include <sstream>
#include <string>

namespace ddprun {

// Returns the contents of a file, or as much as could be read. Never throws, unlike stream iterators.
inline std::string ReadAll(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

}  // namespace ddprun
